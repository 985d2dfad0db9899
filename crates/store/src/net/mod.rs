//! The store over a network: messages, server, client.

pub mod client;
pub mod server;
pub mod wire;
