//! Child processes of a measurement (such as a database): started, waited for, and ended with it.
//!
//! ```text
//! start -> a process group of its own (Ctrl-C reaches us alone) -> end: SIGTERM, wait, SIGKILL
//!                 we die -> SIGTERM from the kernel (setpriv --pdeathsig)
//! ```
//!
//! Always true:
//! 1. A process dropped has ended.

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// One look at another process, and the next.
const STEP: Duration = Duration::from_millis(20);
/// Where programs lie that are not in every user's PATH.
const PLACES: [&str; 4] = ["/usr/sbin", "/usr/bin", "/usr/libexec", "/sbin"];

/// Who a process runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// A request to stop: set once, seen by all who hold it.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    own: Arc<AtomicBool>,
    above: Option<Arc<AtomicBool>>,
}

impl Stop {
    /// Sets it for those who hold this one.
    pub fn set(&self) {
        self.own.store(true, Ordering::Relaxed);
    }

    /// Is it set, here or above?
    pub fn is_set(&self) -> bool {
        let read = |flag: &Arc<AtomicBool>| flag.load(Ordering::Relaxed);
        read(&self.own) || self.above.as_ref().is_some_and(read)
    }

    /// One that is set with this one, and that does not set this one.
    ///
    /// # Example
    /// ```
    /// use experiments::app::process::Stop;
    /// let (above, other) = (Stop::default(), Stop::default());
    /// let below = above.below();
    /// below.set();
    /// assert!(below.is_set() && !above.is_set());
    /// let below = above.below();
    /// above.set();
    /// assert!(below.is_set() && !other.is_set());
    /// ```
    pub fn below(&self) -> Stop {
        Stop {
            own: Arc::default(),
            above: Some(Arc::clone(&self.own)),
        }
    }
}

/// A process of ours.
#[derive(Debug)]
pub struct Process {
    child: Child,
    timeout: Duration,
}

/// The first of `names` among the programs of this machine.
pub fn find_program(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(PLACES.iter().map(PathBuf::from));
    let mut all = folders.flat_map(|folder| names.iter().map(move |name| folder.join(name)));
    all.find(|file| file.is_file())
}

/// `program` as a command that ends when this thread does, run as `identity` where we may choose.
pub fn bound(program: impl AsRef<OsStr>, identity: Option<Identity>) -> Command {
    let mut command = Command::new("setpriv");
    if let Some(Identity { uid, gid }) = identity {
        command.args([
            format!("--reuid={uid}"),
            format!("--regid={gid}"),
            "--clear-groups".to_owned(),
        ]);
    }
    command.arg("--pdeathsig=TERM").arg(program);
    command
}

impl Process {
    /// Starts it; `timeout`: how long it may take to end after the signal.
    ///
    /// # Errors
    /// The system's.
    pub fn start(mut command: Command, timeout: Duration) -> io::Result<Process> {
        let child = command.stdin(Stdio::null()).process_group(0).spawn()?;
        Ok(Process { child, timeout })
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// The system's.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Waits until it has ended by itself, at most so long.
    ///
    /// # Errors
    /// The system's.
    pub fn wait(&mut self, longest: Duration) -> io::Result<Option<ExitStatus>> {
        let mut waited = Duration::ZERO;
        loop {
            match self.child.try_wait()? {
                None if waited < longest => {
                    pause(STEP);
                    waited += STEP;
                }
                answer => return Ok(answer),
            }
        }
    }

    /// Signals it to end and waits; kills it if it takes too long. True if it ended upon the signal.
    ///
    /// # Errors
    /// The system's.
    pub fn end(&mut self) -> io::Result<bool> {
        if self.child.try_wait()?.is_some() {
            return Ok(true);
        }
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) {
            // Gone meanwhile is as good.
            let _ = kill_process(pid, Signal::TERM);
        }
        if self.wait(self.timeout)?.is_some() {
            return Ok(true);
        }
        self.child.kill()?;
        self.child.wait()?;
        Ok(false)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// Rests this thread: it waits for another process, which no clock of ours drives.
pub fn pause(span: Duration) {
    // No other thread unparks this one; woken early, the caller looks once more often.
    std::thread::park_timeout(span);
}

/// Looks again and again until `there`, at most so long; false if it never was, or `stop` was set.
pub fn await_that(longest: Duration, stop: &Stop, mut there: impl FnMut() -> bool) -> bool {
    let mut waited = Duration::ZERO;
    while !there() {
        if waited >= longest || stop.is_set() {
            return false;
        }
        pause(STEP);
        waited += STEP;
    }
    true
}

/// Is a process of this number there?
pub fn lives(pid: u32) -> bool {
    std::path::Path::new(&format!("/proc/{pid}")).exists()
}

/// A temporary folder that others may walk through, gone when it is dropped. Those of the same `kind` whose owner died before
/// that are removed.
///
/// # Errors
/// The system's.
pub fn room(kind: &str) -> io::Result<tempfile::TempDir> {
    let prefix = format!("tanada-{kind}-");
    let entries = std::fs::read_dir(std::env::temp_dir())?;
    for entry in entries.flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| {
            let (pid, _) = name.strip_prefix(&prefix)?.split_once('-')?;
            pid.parse().ok()
        });
        if owner.is_some_and(|pid| !lives(pid)) {
            // A folder of another user stays.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    let folder = tempfile::Builder::new()
        .prefix(&format!("{prefix}{}-", std::process::id()))
        .tempdir()?;
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o711))?;
    Ok(folder)
}

/// A process, other than this one, that was started with `words` in its command line.
pub fn started_with(words: &str) -> Option<u32> {
    let entries = std::fs::read_dir("/proc").ok()?.flatten();
    let mut numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.find(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let here = line
            .windows(words.len())
            .any(|part| part == words.as_bytes());
        here && *pid != std::process::id()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_process_has_ended_even_if_it_would_not() {
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' TERM; sleep 60 & wait; sleep 60"]);
        let process = Process::start(command, Duration::from_millis(100)).unwrap();
        let id = process.id();
        assert!(lives(id));
        drop(process);
        assert!(!lives(id));
    }

    #[test]
    fn the_rooms_of_the_dead_are_cleared_and_those_of_the_living_stay() {
        let mine = room("test").unwrap();
        // No process has this number: the largest there can be is 2^22.
        let dead = std::env::temp_dir().join("tanada-test-4194305-x");
        std::fs::create_dir(&dead).unwrap();
        let other = room("test").unwrap();
        assert!(!dead.exists() && mine.path().exists() && other.path().exists());
    }

    #[test]
    fn who_asks_to_stop_is_not_kept_waiting() {
        let stop = Stop::default();
        stop.set();
        assert!(!await_that(Duration::from_secs(3600), &stop, || false));
        assert!(await_that(Duration::ZERO, &stop, || true));
    }
}
