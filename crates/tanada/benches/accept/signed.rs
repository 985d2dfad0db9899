//! A client of S3 without a library: signed URLs over plain sockets, one request after the other.
//!
//! Signed by what Signature Version 4 says of URLs, so that no client's library is in the way. Benchmarks include this file
//! with `#[path]`, and `daemon.rs` with it.

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use ring::digest::{SHA256, digest};
use ring::hmac::{HMAC_SHA256, Key, sign};
use serde_json::Value;

use super::daemon::Daemon;

/// An access key, and where it is used.
#[derive(Clone)]
pub struct Client {
    pub host: String,
    pub id: String,
    pub secret: String,
}

impl Client {
    /// A new key of an account.
    pub fn of(daemon: &Daemon, account: &str) -> Result<Client, Box<dyn Error>> {
        let made = daemon.json(&["s3", "key", "create", account, "--json"])?;
        let text = |it: &Value| it.as_str().map(str::to_owned).ok_or("a text");
        Ok(Client {
            host: host(daemon)?,
            id: text(&made["about"]["id"])?,
            secret: text(&made["secret"])?,
        })
    }

    /// The path and the query of a signed URL, good for an hour. What stands behind `?` already is sorted, and begins with
    /// small letters: in the order that is signed it comes last.
    fn signed(&self, method: &str, asked: &str) -> String {
        let (path, more) = match asked.split_once('?') {
            Some((path, more)) => (path, format!("&{more}")),
            None => (asked, String::new()),
        };
        let now = jiff::Timestamp::now();
        let (day, moment) = (
            now.strftime("%Y%m%d").to_string(),
            now.strftime("%Y%m%dT%H%M%SZ"),
        );
        let scope = format!("{day}/us-east-1/s3/aws4_request");
        let query = format!(
            "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={}%2F{}&X-Amz-Date={moment}&X-Amz-Expires=3600&\
             X-Amz-SignedHeaders=host{more}",
            self.id,
            scope.replace('/', "%2F")
        );
        let host = &self.host;
        let request = format!("{method}\n{path}\n{query}\nhost:{host}\n\nhost\nUNSIGNED-PAYLOAD");
        let hashed = hex(digest(&SHA256, request.as_bytes()).as_ref());
        let text = format!("AWS4-HMAC-SHA256\n{moment}\n{scope}\n{hashed}");
        let mut key = format!("AWS4{}", self.secret).into_bytes();
        for part in [&*day, "us-east-1", "s3", "aws4_request", &text] {
            key = sign(&Key::new(HMAC_SHA256, &key), part.as_bytes())
                .as_ref()
                .to_vec();
        }
        format!("{path}?{query}&X-Amz-Signature={}", hex(&key))
    }

    pub fn connect(&self) -> Result<BufReader<TcpStream>, String> {
        let text = |error: std::io::Error| error.to_string();
        let stream = TcpStream::connect(&self.host).map_err(text)?;
        // A short body does not wait until its header is acknowledged.
        stream.set_nodelay(true).map_err(text)?;
        Ok(BufReader::new(stream))
    }

    /// Asks for something over a connection; the status, and the bytes that came as they come.
    pub fn ask(
        &self,
        stream: &mut BufReader<TcpStream>,
        (method, path): (&str, &str),
        body: &[u8],
        mut came: impl FnMut(&[u8]),
    ) -> Result<u16, String> {
        let text = |error: std::io::Error| error.to_string();
        let head = format!(
            "{method} {} HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n\r\n",
            self.signed(method, path),
            self.host,
            body.len()
        );
        let socket = stream.get_mut();
        socket.write_all(head.as_bytes()).map_err(text)?;
        socket.write_all(body).map_err(text)?;
        let (mut status, mut length) = (0, 0_usize);
        for nth in 0.. {
            let mut line = String::new();
            if stream.read_line(&mut line).map_err(text)? == 0 {
                return Err("the gateway hung up".to_owned());
            }
            let line = line.trim_end();
            match line.split_once(':') {
                _ if nth == 0 => {
                    let word = line.split(' ').nth(1).and_then(|it| it.parse().ok());
                    status = word.ok_or_else(|| format!("no status: {line}"))?;
                }
                Some((key, value)) if key.eq_ignore_ascii_case("content-length") => {
                    length = value.trim().parse().unwrap_or(0);
                }
                None if line.is_empty() => break,
                _ => {}
            }
        }
        let mut piece = vec![0; length.min(256 << 10)];
        while length > 0 {
            let most = length.min(piece.len());
            let read = stream.read(&mut piece[..most]).map_err(text)?;
            if read == 0 {
                return Err("the gateway hung up within an answer".to_owned());
            }
            came(&piece[..read]);
            length -= read;
        }
        Ok(status)
    }

    /// The same of what must succeed.
    pub fn done(&self, what: (&str, &str), body: &[u8]) -> Result<(), Box<dyn Error>> {
        let mut said = Vec::new();
        let status = self.ask(&mut self.connect()?, what, body, |piece| {
            said.extend_from_slice(piece);
        })?;
        match status {
            200..300 => Ok(()),
            _ => Err(format!("{what:?}: {status}: {}", String::from_utf8_lossy(&said)).into()),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|it| format!("{it:02x}")).collect()
}

/// Where the first gateway of a daemon listens.
pub fn host(daemon: &Daemon) -> Result<String, Box<dyn Error>> {
    let gateways = daemon.json(&["s3", "list", "--json"])?;
    let listen = gateways[0]["listen"][0].as_str().ok_or("an address")?;
    Ok(listen.to_owned())
}
