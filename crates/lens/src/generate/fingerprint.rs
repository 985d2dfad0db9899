//! Is this the same trace, request for request?
//!
//! ```text
//! requests -> lines of the normal form -> SHA-256
//! ```
//!
//! It is what `sha256sum` says of the trace written as CSV, so that anybody can check a file.

use sha2::{Digest, Sha256};

use crate::trace::{HEADER, Op, Request};

/// Hashes requests as they pass.
pub struct Fingerprint {
    hash: Sha256,
    text: Vec<u8>,
}

impl Default for Fingerprint {
    fn default() -> Self {
        let mut text = Vec::from(HEADER);
        text.push(b'\n');
        Fingerprint {
            hash: Sha256::new(),
            text,
        }
    }
}

impl Fingerprint {
    /// Takes the next requests in.
    pub fn update(&mut self, requests: &[Request]) {
        for request in requests {
            self.number(request.at.0 / 1_000, b',');
            let op = match request.op {
                Op::Read => b"R,",
                Op::Write => b"W,",
                Op::Discard => b"D,",
                Op::Flush => b"F,",
            };
            self.text.extend_from_slice(op);
            self.number(request.offset.0, b',');
            self.number(request.size.0, b',');
            self.number(u64::from(request.device), b'\n');
        }
        self.hash.update(&self.text);
        self.text.clear();
    }

    fn number(&mut self, mut number: u64, then: u8) {
        let mut digits = [0; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        self.text.extend_from_slice(&digits[at..]);
        self.text.push(then);
    }

    /// The hash of all that passed, in hexadecimal.
    pub fn finish(mut self) -> String {
        self.hash.update(&self.text);
        let hash = self.hash.finalize();
        hash.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
