//! The head of a file: its name's object, always of one length, so that one write replaces it.
//!
//! ```text
//! {"blob": "9f..", "stripe": 1048576, "width": 3, "copies": 1, "size": 123456, "stores": ["07..", ..]}, spaces to 4096 bytes
//! ```
//!
//! Always true: a head that is read has sound figures: its layout places each of its bytes.

use serde::{Deserialize, Serialize};

use crate::layout::Layout;

/// How long a head is.
pub const HEAD_LEN: u64 = 4096;
/// The most stores of a file.
pub const WIDTH_MAX: usize = 64;
/// Digits of a blob and of a store's identity.
const DIGITS: usize = 32;
/// No store's object is longer.
pub const SIZE_MAX: u64 = 1 << 50;

/// What a head says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// Names the file's data: 32 hexadecimal digits, drawn by its writer.
    pub blob: String,
    /// Bytes of a chunk.
    pub stripe: u64,
    /// How many stores it is on.
    pub width: usize,
    /// How many times each chunk is there: once.
    pub copies: u32,
    /// Bytes of the file.
    pub size: u64,
    /// The identities of the stores; chunk j is on the one of number j mod width.
    pub stores: Vec<String>,
}

impl Head {
    /// How it is cut.
    pub fn layout(&self) -> Layout {
        Layout {
            stripe: self.stripe,
            width: self.width,
        }
    }

    /// Its bytes, [`HEAD_LEN`] of them; nothing for figures that no head has.
    pub fn encode(&self) -> Option<Vec<u8>> {
        self.check().ok()?;
        let mut bytes = serde_json::to_vec(self).ok()?;
        let fits = bytes.len() as u64 <= HEAD_LEN;
        bytes.resize(HEAD_LEN as usize, b' ');
        fits.then_some(bytes)
    }

    /// The head that `bytes` are.
    ///
    /// # Errors
    /// What is wrong with them, for a sentence.
    pub fn decode(bytes: &[u8]) -> Result<Head, String> {
        if bytes.len() as u64 != HEAD_LEN {
            return Err(format!(
                "it has {} bytes, where a head has {HEAD_LEN}",
                bytes.len()
            ));
        }
        let head: Head = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        head.check().map(|()| head)
    }

    fn check(&self) -> Result<(), String> {
        if !is_hex(&self.blob) || !self.stores.iter().all(|it| is_hex(it)) {
            return Err("blob and stores are not 32 hexadecimal digits".to_owned());
        }
        if self.width != self.stores.len() || !(1..=WIDTH_MAX).contains(&self.width) {
            return Err(format!(
                "its width is {}, of {} stores, where 1 to {WIDTH_MAX} may be",
                self.width,
                self.stores.len()
            ));
        }
        if self.copies != 1 {
            return Err(format!(
                "it has {} copies, and this program reads one: use a newer one",
                self.copies
            ));
        }
        if !(1..=SIZE_MAX).contains(&self.stripe) || self.size > SIZE_MAX {
            return Err(format!(
                "{} bytes in chunks of {} cannot be",
                self.size, self.stripe
            ));
        }
        Ok(())
    }
}

/// Is it a number as blobs and stores are named by: 32 hexadecimal digits?
pub fn is_hex(text: &str) -> bool {
    let is_digit = |it: u8| matches!(it, b'0'..=b'9' | b'a'..=b'f');
    text.len() == DIGITS && text.bytes().all(is_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> Head {
        Head {
            blob: "0123456789abcdef0123456789abcdef".to_owned(),
            stripe: 1 << 20,
            width: 2,
            copies: 1,
            size: 5,
            stores: vec!["0".repeat(DIGITS), "f".repeat(DIGITS)],
        }
    }

    #[test]
    fn a_head_is_read_as_it_was_written_and_has_one_length() {
        let mut wide = head();
        wide.stores = vec!["a".repeat(DIGITS); WIDTH_MAX];
        wide.width = WIDTH_MAX;
        for head in [head(), wide] {
            let bytes = head.encode().unwrap();
            assert_eq!(bytes.len() as u64, HEAD_LEN);
            assert_eq!(Head::decode(&bytes), Ok(head));
        }
    }

    #[test]
    fn what_is_no_head_is_refused_with_its_mistake() {
        let of = |change: fn(&mut Head)| {
            let mut head = head();
            change(&mut head);
            assert_eq!(head.encode(), None);
            let mut bytes = serde_json::to_vec(&head).unwrap();
            bytes.resize(HEAD_LEN as usize, b' ');
            Head::decode(&bytes).unwrap_err()
        };
        assert!(of(|it| it.width = 3).contains("its width is 3, of 2 stores"));
        assert!(of(|it| it.copies = 2).contains("2 copies"));
        assert!(of(|it| it.stripe = 0).contains("chunks of 0"));
        assert!(of(|it| it.size = u64::MAX).contains("cannot be"));
        assert!(of(|it| it.blob = "../../etc".to_owned()).contains("hexadecimal"));
        assert!(Head::decode(b"{}").unwrap_err().contains("2 bytes"));
        assert!(Head::decode(&[b'x'; HEAD_LEN as usize]).is_err());
    }
}
