//! A real daemon over two small files in a directory of its own, on Unix sockets.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};

use serde_json::Value;

/// Size of the volume.
pub const SIZE: u64 = 64 << 20;

/// A volume `vol0` of two files, in write mode `write`.
pub fn config(write: &str) -> String {
    format!(
        r#"
[[device]]
name = "slow"
path = "slow.img"
size = "64MiB"
[[device]]
name = "fast"
path = "fast.img"
size = "48MiB"
[[hybrid]]
name = "vol0"
slow = "slow"
fast = "fast"
write = "{write}"
admission = "always"
sequential_bypass = "off"
[[export]]
device = "vol0"
nbd = "unix:vol0.sock"
[admin]
listen = "unix:admin.sock"
"#
    )
}

/// The same in `mode`, with a tier that decides ten times a second and moves regions of 1 MiB up and down all
/// the time.
pub fn config_with_tier(mode: &str, mover: &str) -> String {
    let tier = format!(
        "mode = \"{mode}\"\n[hybrid.tier]\nperiod = \"100ms\"\nregion = \"1MiB\"\niops_min = 1\nsub_luns_max = 4\n\
         share_min = 10\nstreak_min = 1\ntimeout = 2\nmover = \"{mover}\"\nlazy_down = false\nbreak_even = false\n[[export]]\n"
    );
    config("back").replace("[[export]]\n", &tier)
}

fn tanada(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tanada"));
    command
        .current_dir(dir)
        .env_remove("RUST_LOG")
        .env("TANADA_ADMIN", "unix:admin.sock");
    command
}

/// A running daemon; killed when dropped.
pub struct Daemon {
    dir: PathBuf,
    child: Child,
    // Held open: a daemon that prints must not find the pipe closed.
    _stdout: BufReader<ChildStdout>,
    stderr: Option<ChildStderr>,
}

impl Daemon {
    /// Starts a daemon with `config` in `dir` and waits until it says it is up.
    pub fn start(dir: &Path, config: &str) -> Daemon {
        Daemon::try_start(dir, config).unwrap_or_else(|why| panic!("{why}"))
    }

    /// The same for one that may refuse.
    ///
    /// # Errors
    /// What it said, if it ended before it was up.
    pub fn try_start(dir: &Path, config: &str) -> Result<Daemon, String> {
        fs::write(dir.join("tanada.toml"), config).expect("the directory is ours");
        let mut child = tanada(dir)
            .args(["serve", "tanada.toml"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut welcome = String::new();
        while !welcome.contains("Stop it with") {
            let read = stdout.read_line(&mut welcome).expect("its output is text");
            if read == 0 {
                let mut said = String::new();
                let mut stderr = child.stderr.take().expect("piped");
                stderr.read_to_string(&mut said).expect("its log is text");
                child.wait().expect("it is our child");
                return Err(format!(
                    "the daemon ended before it was up:\n{welcome}\n{said}"
                ));
            }
        }
        Ok(Daemon {
            dir: dir.to_owned(),
            stderr: child.stderr.take(),
            child,
            _stdout: stdout,
        })
    }

    /// Where NBD clients find the volume.
    pub fn socket(&self) -> PathBuf {
        self.dir.join("vol0.sock")
    }

    /// Its URI for clients.
    pub fn uri(&self) -> String {
        format!("nbd+unix:///vol0?socket={}", self.socket().display())
    }

    /// Runs another command of the program against it; what it printed.
    pub fn command(&self, arguments: &[&str]) -> String {
        let output = tanada(&self.dir).args(arguments).output();
        let output = output.expect("the program starts");
        // A look at the whole says by its status that something is wrong: that is what some tests look for.
        let looks = arguments[0] == "status" && matches!(output.status.code(), Some(3 | 4));
        assert!(
            output.status.success() || looks,
            "tanada {arguments:?}: {}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).expect("output is text")
    }

    /// The exit status of another command, and what it printed.
    pub fn answer(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = tanada(&self.dir).args(arguments).output();
        let output = output.expect("the program starts");
        let page = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code(), page)
    }

    /// The same for output that is no text.
    pub fn command_bytes(&self, arguments: &[&str]) -> Vec<u8> {
        let output = tanada(&self.dir).args(arguments).output();
        let output = output.expect("the program starts");
        assert!(output.status.success(), "tanada {arguments:?}");
        output.stdout
    }

    /// What another command of the program says that must fail.
    pub fn refused(&self, arguments: &[&str]) -> String {
        let output = tanada(&self.dir).args(arguments).output();
        let output = output.expect("the program starts");
        let code = output.status.code();
        assert!(
            matches!(code, Some(1 | 5 | 7)),
            "tanada {arguments:?}: {code:?}"
        );
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Begins another command of the program, which may or may not get an answer.
    pub fn begin(&self, arguments: &[&str]) -> Child {
        tanada(&self.dir)
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts")
    }

    /// A page of its admin API.
    pub fn page(&self, path: &str) -> String {
        let mut stream = std::os::unix::net::UnixStream::connect(self.dir.join("admin.sock"))
            .expect("it listens there");
        let asked = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
        stream.write_all(asked.as_bytes()).expect("asked");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("text");
        answer
    }

    /// A figure of the volume's cache.
    pub fn cache(&self, figure: &str) -> u64 {
        let text = self.command(&["volume", "show", "vol0", "--json"]);
        let volume: Value = serde_json::from_str(&text).expect("output is JSON");
        let found = volume["cache"][figure].as_u64();
        found.unwrap_or_else(|| panic!("there is no figure {figure} in {volume}"))
    }

    /// Regions its tier has sent up.
    pub fn moves_up(&self) -> u64 {
        let text = self.command(&["volume", "show", "vol0", "--json"]);
        let volume: Value = serde_json::from_str(&text).expect("output is JSON");
        volume["tier"]["moves_up"].as_u64().unwrap_or(0)
    }

    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGSTOP: it does nothing at all until it is woken up.
    pub fn pause(&self) {
        self.signal(rustix::process::Signal::STOP);
    }

    /// SIGCONT: as if no time had gone by.
    pub fn wake(&self) {
        self.signal(rustix::process::Signal::CONT);
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("it is our child");
    }

    /// SIGKILL: no farewell, nothing flushed, nothing closed.
    pub fn kill(mut self) {
        self.child.kill().expect("it is our child");
        self.child.wait().expect("it is our child");
    }

    /// SIGTERM; it must end cleanly.
    pub fn stop(mut self) {
        self.signal(rustix::process::Signal::TERM);
        let mut log = String::new();
        if let Some(mut stderr) = self.stderr.take() {
            stderr.read_to_string(&mut log).expect("its log is text");
        }
        let status = self.child.wait().expect("it is our child");
        assert_eq!(status.code(), Some(0), "{log}");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
