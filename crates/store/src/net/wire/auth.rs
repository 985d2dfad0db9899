//! Which side knows the node key? Neither side sends it: each shows what it makes of both sides' nonces.
//!
//! ```text
//! server nonce, client nonce -> client: HMAC(key, "client", both hellos) -> server
//!                               client <- HMAC(key, "server", both hellos) : server
//! ```
//!
//! Both hellos are covered, so nothing in them can be changed on the way either. What is recorded is of no use
//! later: the other side's nonce is another one then.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::hello::{CLIENT_HELLO_LEN, SERVER_HELLO_LEN};

/// Bytes of what shows where a datagram comes from.
pub const TAG_LEN: usize = 16;

/// A key that the nodes of one cluster share.
#[derive(Clone, PartialEq, Eq)]
pub struct NodeKey(pub [u8; 32]);

impl std::fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NodeKey(secret)")
    }
}

/// Both hellos as they were sent.
pub struct Challenge {
    /// The client's.
    pub client: [u8; CLIENT_HELLO_LEN],
    /// The server's.
    pub server: [u8; SERVER_HELLO_LEN],
}

impl NodeKey {
    fn mac(&self, purpose: &[u8], parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("any length makes a key");
        mac.update(b"tanada store wire 1 ");
        mac.update(purpose);
        for part in parts {
            mac.update(part);
        }
        mac
    }

    /// A nonce that cannot be foreseen without the key, from bits that are never the same.
    pub fn nonce(&self, fresh: &[u8]) -> [u8; 32] {
        self.mac(b"nonce", &[fresh]).finalize().into_bytes().into()
    }

    /// Shows that `message`, a datagram, comes from a holder of the key.
    pub fn tag(&self, message: &[u8]) -> [u8; TAG_LEN] {
        let whole: [u8; 32] = self
            .mac(b"datagram", &[message])
            .finalize()
            .into_bytes()
            .into();
        *whole.first_chunk().expect("a part of it")
    }

    /// Does it? Takes the same time whatever it is.
    pub fn is_tagged(&self, message: &[u8], tag: &[u8; TAG_LEN]) -> bool {
        let mac = self.mac(b"datagram", &[message]);
        mac.verify_truncated_left(tag).is_ok()
    }

    fn proof(&self, side: &[u8], challenge: &Challenge) -> Hmac<Sha256> {
        self.mac(side, &[&challenge.client, &challenge.server])
    }

    /// What a client shows.
    pub fn client_proof(&self, challenge: &Challenge) -> [u8; 32] {
        self.proof(b"client", challenge)
            .finalize()
            .into_bytes()
            .into()
    }

    /// What a server shows.
    pub fn server_proof(&self, challenge: &Challenge) -> [u8; 32] {
        self.proof(b"server", challenge)
            .finalize()
            .into_bytes()
            .into()
    }

    /// Does `proof` show that the client knows the key? Takes the same time whatever it is.
    pub fn is_client(&self, challenge: &Challenge, proof: &[u8; 32]) -> bool {
        self.proof(b"client", challenge).verify_slice(proof).is_ok()
    }

    /// Does `proof` show that the server knows the key?
    pub fn is_server(&self, challenge: &Challenge, proof: &[u8; 32]) -> bool {
        self.proof(b"server", challenge).verify_slice(proof).is_ok()
    }
}
