//! The records of reservations as etcd has them, and when they change.
//!
//! Through etcd's own gateway (`/v3`, JSON), so that nothing of what is measured says how it stands.

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread::Builder;
use std::time::Instant;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// All records of reservations, and the first key behind them.
const KEYS: (&str, &str) = ("tanada/reservation/", "tanada/reservation0");

fn asked(etcd: SocketAddr, path: &str, body: &Value) -> Result<TcpStream, Box<dyn Error>> {
    let mut stream = TcpStream::connect(etcd)?;
    let body = body.to_string();
    write!(
        stream,
        "POST {path} HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    Ok(stream)
}

fn range() -> Value {
    json!({ "key": STANDARD.encode(KEYS.0), "range_end": STANDARD.encode(KEYS.1) })
}

/// The record in what etcd says of a key; null where it was removed.
fn record(kv: &Value) -> Result<Value, Box<dyn Error>> {
    match kv["value"].as_str() {
        Some(value) => Ok(serde_json::from_slice(&STANDARD.decode(value)?)?),
        None => Ok(Value::Null),
    }
}

/// All records.
pub fn records(etcd: SocketAddr) -> Result<Vec<Value>, Box<dyn Error>> {
    let mut answer = String::new();
    asked(etcd, "/v3/kv/range", &range())?.read_to_string(&mut answer)?;
    let (_, body) = answer.split_once("\r\n\r\n").ok_or("no answer of etcd")?;
    let body: Value = serde_json::from_str(body)?;
    body["kvs"]
        .as_array()
        .into_iter()
        .flatten()
        .map(record)
        .collect()
}

/// Changes of records as they are made, until it is dropped.
pub struct Watch {
    stream: TcpStream,
    pub changes: Receiver<(Instant, Value)>,
}

impl Watch {
    /// Returns when etcd watches.
    pub fn begin(etcd: SocketAddr) -> Result<Watch, Box<dyn Error>> {
        let stream = asked(etcd, "/v3/watch", &json!({ "create_request": range() }))?;
        let mut lines = BufReader::new(stream.try_clone()?).lines();
        let (send, changes) = channel();
        // The head, and that it is watched.
        for line in lines.by_ref() {
            if line?.contains("\"created\":true") {
                break;
            }
        }
        Builder::new().spawn(move || {
            for line in lines.map_while(Result::ok) {
                let now = Instant::now();
                let line: Value = serde_json::from_str(&line).unwrap_or_default();
                for event in line["result"]["events"].as_array().into_iter().flatten() {
                    // It is sent until the watch is dropped.
                    let _ = send.send((now, record(&event["kv"]).unwrap_or_default()));
                }
            }
        })?;
        Ok(Watch { stream, changes })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}
