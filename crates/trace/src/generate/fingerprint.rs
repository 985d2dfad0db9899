//! Is this the same trace, request for request?
//!
//! ```text
//! requests -> lines of the normal form -> SHA-256
//! ```
//!
//! It is what `sha256sum` says of the trace written as CSV, so that any reader can check a file.

use sha2::{Digest, Sha256};

use crate::write::push_csv;
use crate::{HEADER, Request};

/// Hashes requests as they pass.
pub struct Fingerprint {
    hash: Sha256,
    text: Vec<u8>,
}

impl Default for Fingerprint {
    fn default() -> Self {
        Fingerprint {
            hash: Sha256::new_with_prefix(format!("{HEADER}\n")),
            text: Vec::new(),
        }
    }
}

impl Fingerprint {
    /// Takes the next requests in.
    pub fn update(&mut self, requests: &[Request]) {
        self.text.clear();
        push_csv(requests, &mut self.text);
        self.hash.update(&self.text);
    }

    /// The hash of all that passed, in hexadecimal.
    pub fn finish(self) -> String {
        let hash = self.hash.finalize();
        hash.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
