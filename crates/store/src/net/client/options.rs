//! How a client comes in, how long it waits and how much it takes.

use base::{Bytes, Nanos};

/// How a client comes in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credentials {
    /// Without any: only to a store that was opened so, on this machine.
    Open,
    /// With the key that the cluster's nodes share; it is never sent. In TLS with the certificate of a node, too.
    NodeKey([u8; 32]),
    /// With the capability of a reservation; a listener on a connection in the clear can read it.
    Capability(String),
}

/// How long a client waits, and how much it takes.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientOptions {
    /// For connecting, hello and credentials.
    pub opening: Nanos,
    /// For one answer, waiting for its turn included; noticed at most a quarter late. A server of which nothing at all
    /// is heard for so long, pings unanswered too, is given up.
    pub timeout: Nanos,
    /// Longest data of one answer.
    pub data_max: Bytes,
    /// For a `tls:` address: what is shown there, whom it trusts, and which server is looked for.
    pub tls: Option<tls::Client>,
}

impl Default for ClientOptions {
    fn default() -> ClientOptions {
        ClientOptions {
            opening: Nanos::secs(10),
            timeout: Nanos::secs(30),
            data_max: Bytes::mib(16),
            tls: None,
        }
    }
}
