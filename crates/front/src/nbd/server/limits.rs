//! How much does a server take on, and how long does it wait?

use base::{Bytes, Nanos};

/// How much the server takes on, and how long it waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once. One more takes the place of the oldest that still negotiates, or is
    /// turned away.
    pub connections: usize,
    /// Connections at once of one host; those by Unix sockets count as none's.
    pub connections_per_host: usize,
    /// Longest read or write: a power of two from 64 KiB to 32 MiB.
    pub payload_max: Bytes,
    /// Requests of one connection accepted and not answered; beyond them it is not read from.
    pub requests_per_connection: usize,
    /// Their bytes; at least one request of `payload_max` fits.
    pub bytes_per_connection: Bytes,
    /// Bytes of each connection that never wait for others.
    pub allowance: Bytes,
    /// Bytes of all connections together beyond their allowances; at least one `payload_max`.
    pub bytes: Bytes,
    /// Of these, bytes of all connections of one client host (or of one user, by Unix sockets); at least one `payload_max`.
    pub bytes_per_host: Bytes,
    /// Time for the whole negotiation, TLS included.
    pub negotiation: Nanos,
    /// How long a client may stall in the middle of a message, or leave a reply unread.
    pub stall: Nanos,
    /// Slowest pace of a long payload, in bytes per second, either way.
    pub rate_min_bytes_per_second: u64,
    /// How long a client may take to hang up after the last reply.
    pub linger: Nanos,
    /// How long `drain` waits for replies to be read before it cuts connections.
    pub drain: Nanos,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 1024,
            connections_per_host: 512,
            payload_max: Bytes::mib(32),
            requests_per_connection: 256,
            bytes_per_connection: Bytes::mib(64),
            allowance: Bytes::kib(256),
            bytes: Bytes::mib(512),
            bytes_per_host: Bytes::mib(128),
            negotiation: Nanos::secs(15),
            stall: Nanos::secs(30),
            rate_min_bytes_per_second: 64 << 10,
            linger: Nanos::secs(1),
            drain: Nanos::secs(30),
        }
    }
}

impl Limits {
    /// The nearest limits the server can keep: each at least what one longest request needs.
    pub(super) fn workable(mut self) -> Limits {
        let payload = self.payload_max.0.clamp(64 << 10, 32 << 20);
        self.payload_max = Bytes(1 << payload.ilog2());
        // A request that warms a cache holds up to 8 MiB.
        let most = self.payload_max.max(Bytes::mib(8));
        self.connections = self.connections.max(1);
        self.connections_per_host = self.connections_per_host.clamp(1, self.connections);
        self.requests_per_connection = self.requests_per_connection.max(1);
        self.bytes_per_connection = self.bytes_per_connection.max(most);
        self.bytes = self.bytes.max(most);
        self.bytes_per_host = self.bytes_per_host.max(most);
        self
    }
}
