//! One daemon in a folder of its own, and the commands that are typed there.

use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
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
        let mut command = Command::new(env!("CARGO_BIN_EXE_tanada"));
        command
            .current_dir(&self.dir)
            .env("TANADA_ADMIN", "unix:admin.sock")
            .env_remove("TANADA_CAPABILITY")
            .stdin(Stdio::null())
            .args(arguments);
        command
    }

    /// What a command prints; it must succeed.
    pub fn text(&self, arguments: &[&str]) -> Result<String, Box<dyn Error>> {
        let done = self.tanada(arguments).output()?;
        match done.status.success() {
            true => Ok(String::from_utf8(done.stdout)?),
            false => {
                let why = String::from_utf8_lossy(&done.stderr).into_owned();
                Err(format!("tanada {arguments:?}: {why}").into())
            }
        }
    }

    pub fn json(&self, arguments: &[&str]) -> Result<Value, Box<dyn Error>> {
        Ok(serde_json::from_str(&self.text(arguments)?)?)
    }

    /// Runs a command with these bytes as its standard input.
    pub fn feed(&self, arguments: &[&str], bytes: &[u8]) -> Result<(), Box<dyn Error>> {
        let mut command = self.tanada(arguments);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        child.stdin.take().expect("piped").write_all(bytes)?;
        match child.wait()?.success() {
            true => Ok(()),
            false => Err(format!("tanada {arguments:?} failed").into()),
        }
    }

    /// A connection to its admin socket.
    pub fn connect(&self) -> Result<UnixStream, Box<dyn Error>> {
        Ok(UnixStream::connect(self.dir.join("admin.sock"))?)
    }
}

/// Posts JSON over a connection that stays; the status of the answer, and its body.
pub fn post(
    socket: &mut UnixStream,
    path: &str,
    body: &Value,
) -> Result<(u16, String), Box<dyn Error>> {
    let body = body.to_string();
    write!(
        socket,
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut got = Vec::new();
    let mut buf = [0; 16 << 10];
    loop {
        let read = socket.read(&mut buf)?;
        if read == 0 {
            return Err("the daemon hung up".into());
        }
        got.extend_from_slice(&buf[..read]);
        let text = String::from_utf8_lossy(&got);
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case("content-length")
                .then(|| value.trim().parse::<usize>().ok())?
        });
        if body.len() >= length.ok_or("no length")? {
            let status = head.split(' ').nth(1).ok_or("no status")?;
            return Ok((status.parse()?, body.to_owned()));
        }
    }
}
