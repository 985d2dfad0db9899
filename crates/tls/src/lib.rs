//! TLS on streams: who is at the other end, may it still come in, and how do the bytes travel?
//!
//! ```text
//! authority  makes certificates                                    (the cluster's, with rcgen)
//! pem        reads certificates and keys
//! peer       certificate -> serial number, names, validity         Node | Account | Unknown
//! settings   own certificate + authorities                         what rustls is told
//! identity   settings + revoked numbers                            accept, connect, until_over
//! wire       a stream in the clear or a rustls session on it       one task reads, one writes
//! ```
//!
//! `store` speaks TLS 1.3 alone, by an [`Identity`], and the admin API by [`Settings`]; NBD has settings of its own and
//! shares [`Wire`] and [`pem`].
//!
//! Always true:
//! 1. A peer is a node or an account only by a certificate that an authority of the cluster signed, in its time.
//! 2. No session outlives its certificate, be that revoked or over: nothing is resumed, and who serves waits for
//!    [`Identity::until_over`].
//! 3. The clock of checks is the run's: in virtual time certificates grow old with it.

pub mod authority;
mod identity;
mod peer;
pub mod pem;
mod settings;
mod verify;
mod wire;

pub use identity::{Client, Identity};
pub use peer::{Certificate, Peer, Serial};
pub use pem::TlsError;
pub use settings::{Material, Settings};
pub use verify::Expected;
pub use wire::{TlsWire, Wire, words};

/// What a stream in TLS begins with: the first byte of a handshake, and of an alert, and the major version behind it.
const RECORDS: [[u8; 2]; 2] = [[22, 3], [21, 3]];

/// Do these first bytes of a peer look like TLS?
///
/// # Example
/// ```
/// assert!(tls::looks_like_tls(&[21, 3, 3, 0, 2]));
/// assert!(!tls::looks_like_tls(b"TANADAst"));
/// ```
pub fn looks_like_tls(bytes: &[u8]) -> bool {
    RECORDS.iter().any(|head| bytes.starts_with(head))
}
