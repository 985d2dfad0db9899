//! One daemon in a folder of its own, and the commands that are typed there.

use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

/// The model `disk.toml` of its folder.
const DISK: &str = include_str!("../../../../benches/sixty.toml");

/// Killed with what holds it.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A daemon, which may be down.
pub struct Daemon {
    pub dir: PathBuf,
    pub running: Option<Running>,
}

impl Daemon {
    /// The folder of a daemon with this configuration; it is not started.
    pub fn new(dir: &Path, config: &str) -> Result<Daemon, Box<dyn Error>> {
        fs::create_dir_all(dir)?;
        fs::write(dir.join("disk.toml"), DISK)?;
        fs::write(dir.join("t.toml"), config)?;
        Ok(Daemon {
            dir: dir.to_owned(),
            running: None,
        })
    }

    /// Starts it, and waits until it is up.
    pub fn begin(&mut self) -> Result<(), Box<dyn Error>> {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.dir.join("log"))?;
        let mut daemon = self
            .tanada(&["serve", "t.toml"])
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()?;
        let mut lines = BufReader::new(daemon.stdout.take().expect("piped")).lines();
        self.running = Some(Running(daemon));
        loop {
            let Some(line) = lines.next() else {
                let log = fs::read_to_string(self.dir.join("log"))?;
                return Err(format!("the daemon ended: {log}").into());
            };
            if line?.contains("Stop it with") {
                return Ok(());
            }
        }
    }

    pub fn tanada(&self, arguments: &[&str]) -> Command {
        tanada(&self.dir, arguments)
    }

    /// What a command prints; it must succeed.
    pub fn text(&self, arguments: &[&str]) -> Result<String, Box<dyn Error>> {
        text(&self.dir, arguments)
    }

    pub fn json(&self, arguments: &[&str]) -> Result<Value, Box<dyn Error>> {
        Ok(serde_json::from_str(&self.text(arguments)?)?)
    }
}

/// The program, as it is typed in a folder.
pub fn tanada(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tanada"));
    command
        .current_dir(dir)
        .env("TANADA_ADMIN", "unix:admin.sock")
        .env_remove("TANADA_CAPABILITY")
        .stdin(Stdio::null())
        .args(arguments);
    command
}

/// What a command in a folder prints; it must succeed.
pub fn text(dir: &Path, arguments: &[&str]) -> Result<String, Box<dyn Error>> {
    let done = tanada(dir, arguments).output()?;
    match done.status.success() {
        true => Ok(String::from_utf8(done.stdout)?),
        false => {
            let why = String::from_utf8_lossy(&done.stderr).into_owned();
            Err(format!("tanada {arguments:?}: {why}").into())
        }
    }
}
