//! NBD: a device as a disk of any NBD client, over TCP or a Unix socket, in the clear or in TLS.
//!
//! ```text
//! stranger's bytes -> proto (parse, judge) -> server::requests -> Device
//!                     negotiate (options)     server::connection (reader, workers, writer)
//! Client: the other side, itself a Device
//! ```
//!
//! The complete fixed-newstyle protocol; `docs/nbd.md` says what is answered to what. `proto` and
//! `negotiate` are pure and fuzzed; `server` and `connection` run on real and simulated streams alike.
//!
//! Source: the NBD protocol as kept with the reference implementation (`doc/proto.md`).
//!
//! Always true:
//! 1. Nothing a client sends reaches the device unless it is in whole sectors and within the export.
//! 2. A broken or hostile client loses its own connection, and no other client's.
//! 3. A flush on one connection covers every write any connection has seen complete.

mod client;
pub mod kernel;
pub mod negotiate;
pub mod proto;
mod server;
mod tls;

pub use client::{Client, ClientError, ClientOptions, Listed};
pub use server::{Account, Leaving, Soon, Supplied, Supply};
pub use server::{Config, Export, ExportError, Limits, Server};
pub use server::{ConnectionSnapshot, Counters, ExportSnapshot, ServerSnapshot};
pub use tls::{ByCertificate, ClientTls, Tls, TlsError, TlsMode};
