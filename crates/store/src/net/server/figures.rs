//! What a server has done, in numbers.

use base::{Bytes, Nanos};
use serde::Serialize;

/// One connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConnectionFigures {
    /// Its number, counted from the server's start.
    pub id: u64,
    /// The other end.
    pub peer: String,
    /// How it came in: `open`, `manager key`, `capability`; `None` while it has not.
    pub access: Option<&'static str>,
    /// Whose certificate it showed, such as `node n1`.
    pub identity: Option<String>,
    /// Does it speak TLS?
    pub encrypted: bool,
    /// How long it is there, in nanoseconds.
    #[serde(serialize_with = "nanos")]
    pub age: Nanos,
    /// Bytes its requests hold.
    #[serde(serialize_with = "bytes")]
    pub held_bytes: Bytes,
    /// Requests begun and not answered.
    pub in_flight: u64,
    /// Requests answered, failed ones among them.
    pub answered: u64,
    /// Requests answered with a failure.
    pub failed: u64,
    /// Bytes of data written by it.
    pub bytes_in: u64,
    /// Bytes of data read by it.
    pub bytes_out: u64,
}

/// A server's figures since its start.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Counters {
    /// Connections taken.
    pub accepted: u64,
    /// Connections turned away or cut while they opened, because there were too many.
    #[serde(rename = "crowded_out")]
    pub turned_away: u64,
    /// Connections that did not show that they may come in, or not in time.
    pub not_let_in: u64,
    /// Connections cut because the peer stalled or went silent.
    pub stalled: u64,
    /// Connections ended because what came was not the protocol.
    pub violations: u64,
    /// Requests answered, on connections that are gone too.
    pub answered: u64,
    /// Requests answered with a failure.
    pub failed: u64,
    /// Bytes of data written.
    pub bytes_in: u64,
    /// Bytes of data read.
    pub bytes_out: u64,
    /// Bytes all requests hold.
    #[serde(serialize_with = "bytes")]
    pub held_bytes: Bytes,
    /// The most they ever held.
    #[serde(serialize_with = "bytes")]
    pub held_bytes_max: Bytes,
    /// Those connected.
    pub connections: Vec<ConnectionFigures>,
}

fn nanos<S: serde::Serializer>(span: &Nanos, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(span.0)
}

fn bytes<S: serde::Serializer>(bytes: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(bytes.0)
}
