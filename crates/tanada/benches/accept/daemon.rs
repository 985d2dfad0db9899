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
        tanada(&self.dir, arguments)
    }

    /// What a command prints; it must succeed.
    pub fn text(&self, arguments: &[&str]) -> Result<String, Box<dyn Error>> {
        text(&self.dir, arguments)
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
    pub fn connect(&self) -> Result<Http<UnixStream>, Box<dyn Error>> {
        Ok(Http(UnixStream::connect(self.dir.join("admin.sock"))?))
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

/// A connection for one request after the other.
pub struct Http<S>(pub S);

impl<S: Read + Write> Http<S> {
    /// Asks; the status of the answer, and what it says.
    pub fn ask(
        &mut self,
        method: &str,
        path: &str,
        body: &Value,
    ) -> Result<(u16, Value), Box<dyn Error>> {
        let body = match body {
            Value::Null => String::new(),
            body => body.to_string(),
        };
        write!(
            self.0,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )?;
        let mut got = Vec::new();
        let mut buf = [0; 16 << 10];
        loop {
            let read = self.0.read(&mut buf)?;
            if read == 0 {
                return Err("the daemon hung up".into());
            }
            got.extend_from_slice(&buf[..read]);
            if let Some((status, body)) = whole(&got)? {
                return Ok((status, serde_json::from_slice(body).unwrap_or_default()));
            }
        }
    }

    /// Posts; the answer must be a success.
    pub fn made(&mut self, path: &str, body: &Value) -> Result<Value, Box<dyn Error>> {
        let (status, answer) = self.ask("POST", path, body)?;
        match status {
            200..300 => Ok(answer),
            _ => Err(format!("{path} with {body}: status {status}: {answer}").into()),
        }
    }

    /// What is there.
    pub fn get(&mut self, path: &str) -> Result<Value, Box<dyn Error>> {
        let (status, answer) = self.ask("GET", path, &Value::Null)?;
        match status {
            200..300 => Ok(answer),
            _ => Err(format!("{path}: status {status}: {answer}").into()),
        }
    }

    /// Removes it.
    pub fn delete(&mut self, path: &str) -> Result<(), Box<dyn Error>> {
        let (status, answer) = self.ask("DELETE", path, &Value::Null)?;
        match status {
            200..300 => Ok(()),
            _ => Err(format!("DELETE {path}: status {status}: {answer}").into()),
        }
    }
}

/// The status of an answer, and its body.
type Answer<'a> = (u16, &'a [u8]);

/// An answer that is there as a whole.
fn whole(got: &[u8]) -> Result<Option<Answer<'_>>, Box<dyn Error>> {
    let Some(end) = got.windows(4).position(|it| it == b"\r\n\r\n") else {
        return Ok(None);
    };
    let (head, body) = (std::str::from_utf8(&got[..end])?, &got[end + 4..]);
    let status = head.split(' ').nth(1).ok_or("no status")?.parse()?;
    let length = head.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case("content-length")
            .then(|| value.trim().parse::<usize>().ok())?
    });
    // An answer without content has no length.
    let length = length.unwrap_or(0);
    Ok((body.len() >= length).then(|| (status, &body[..length])))
}
