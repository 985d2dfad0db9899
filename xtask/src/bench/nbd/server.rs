//! A server under way: started, asked for its processor time, ended.

use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// A short path for sockets: their length is limited to about 100 bytes.
pub(super) struct SocketDir(pub(super) PathBuf);

impl SocketDir {
    pub(super) fn new() -> Result<SocketDir> {
        let path = std::env::temp_dir().join(format!("tanada-bench-{}", std::process::id()));
        fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(SocketDir(path))
    }
}

impl Drop for SocketDir {
    fn drop(&mut self) {
        // What stays behind on failure is an empty directory below the system's temporary one.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A server under way; ended when dropped.
pub(super) struct Server {
    child: Child,
    pub(super) uri: String,
}

impl Server {
    pub(super) fn cpu_seconds(&self) -> Result<f64> {
        let path = format!("/proc/{}/stat", self.child.id());
        let stat = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        cpu_seconds(&stat).with_context(|| format!("cannot understand {path}"))
    }

    /// Starts the server called `name` in `dir`, and waits until its `socket` can be reached.
    pub(super) fn start(
        name: &str,
        mut command: Command,
        dir: &Path,
        socket: &Path,
        export: &str,
    ) -> Result<Server> {
        let log = dir.join(format!("{name}.log"));
        let child = command
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .spawn()
            .with_context(|| format!("cannot start {name}; try `cargo xtask setup`"))?;
        let mut server = Server {
            child,
            uri: format!("nbd+unix:///{export}?socket={}", socket.display()),
        };
        for _ in 0..1000 {
            if UnixStream::connect(socket).is_ok() {
                return Ok(server);
            }
            if let Some(status) = server.child.try_wait()? {
                let said = fs::read_to_string(&log).unwrap_or_default();
                bail!("{name} ended with {status}: {}", said.trim());
            }
            pause();
        }
        bail!("{name} did not open {} within 10 s", socket.display())
    }

    fn stop(&mut self) {
        if let Ok(Some(_)) = self.child.try_wait() {
            return;
        }
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // It may end by itself in between; then no process is left to signal.
            let _ = kill_process(pid, Signal::TERM);
        }
        for _ in 0..500 {
            if let Ok(Some(_)) = self.child.try_wait() {
                return;
            }
            pause();
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// User and system time of a process from its `stat` line.
fn cpu_seconds(stat: &str) -> Option<f64> {
    // The program's name stands in parentheses and may hold anything.
    let behind_name = &stat[stat.rfind(')')? + 1..];
    let fields: Vec<&str> = behind_name.split_whitespace().collect();
    let user: u64 = fields.get(11)?.parse().ok()?;
    let system: u64 = fields.get(12)?.parse().ok()?;
    Some((user + system) as f64 / rustix::param::clock_ticks_per_second() as f64)
}

#[expect(
    clippy::disallowed_methods,
    reason = "waits for another process, outside of every runtime"
)]
fn pause() {
    std::thread::sleep(Duration::from_millis(10));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_read_behind_a_name_with_spaces_and_parentheses() {
        let stat = "42 (a (b) c) S 1 42 42 0 -1 4194304 100 0 0 0 150 50 0 0 20 0 1 0 100 1 1";
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        assert_eq!(cpu_seconds(stat), Some(200.0 / ticks));
        assert_eq!(cpu_seconds("42 (a) S 1"), None);
    }
}
