//! How much a server takes on at once, and how long it waits for a peer.

use base::{Bytes, Nanos};

use super::requests::{LARGE, SMALL};
use crate::net::wire::DATA_MAX;

/// How much a server takes on, and how long it waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once. One more takes the place of the oldest that is not let in yet, or is turned away.
    pub connections: usize,
    /// Connections at once of one host; those by Unix sockets count as none's.
    pub connections_per_host: usize,
    /// Longest data of one frame, either way.
    pub data_max: Bytes,
    /// Requests of one connection begun and not answered; beyond them it is not read from.
    pub requests_per_connection: u32,
    /// Bytes of each connection that never wait for others.
    pub allowance: Bytes,
    /// Bytes of all connections together beyond their allowances; at least one longest request.
    pub bytes: Bytes,
    /// Time for hello and credentials.
    pub opening: Nanos,
    /// How long a peer may stall in the middle of a message, or leave an answer unread.
    pub stall: Nanos,
    /// The same while others wait for memory of the server.
    pub hurried_stall: Nanos,
    /// How long a peer may say nothing with nothing under way.
    pub idle: Nanos,
    /// Slowest pace of long data, in bytes per second, either way.
    pub rate_min_bytes_per_second: u64,
    /// The same while others wait for memory of the server.
    pub hurried_rate_min_bytes_per_second: u64,
    /// How long a peer may take to hang up after the last answer.
    pub linger: Nanos,
    /// How long `drain` waits for answers to be read before it cuts connections.
    pub drain: Nanos,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 1024,
            connections_per_host: 512,
            data_max: Bytes::mib(16),
            requests_per_connection: 256,
            allowance: Bytes::kib(64),
            bytes: Bytes::mib(256),
            opening: Nanos::secs(10),
            stall: Nanos::secs(30),
            hurried_stall: Nanos::secs(2),
            idle: Nanos::secs(120),
            rate_min_bytes_per_second: 64 << 10,
            hurried_rate_min_bytes_per_second: 1 << 20,
            linger: Nanos::secs(1),
            drain: Nanos::secs(30),
        }
    }
}

impl Limits {
    /// The nearest limits the server can keep.
    pub(super) fn workable(mut self) -> Limits {
        self.connections = self.connections.max(1);
        self.connections_per_host = self.connections_per_host.clamp(1, self.connections);
        self.data_max = Bytes(self.data_max.0.clamp(64 << 10, u64::from(DATA_MAX)));
        self.requests_per_connection = self.requests_per_connection.max(1);
        let longest = self.data_max.0 + SMALL;
        self.bytes = self.bytes.max(Bytes(longest.max(LARGE)));
        self.idle = self.idle.max(Nanos::secs(1));
        self
    }
}
