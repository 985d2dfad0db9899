//! What cases say to a daemon beside commands that print: HTTP at its admin socket, and bytes to a command.

use std::error::Error;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use serde_json::Value;

use super::daemon::Daemon;

impl Daemon {
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
