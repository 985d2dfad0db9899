//! Records and how they are written: a batch is a list of changes that take effect together.
//!
//! ```text
//! head u16: key bytes 0..=8 (4 bits) | value length + 1, or 0 for a removal (12 bits)
//! key:      its bytes, the lowest first, without the zero bytes on top
//! value:    as given
//! ```
//!
//! Small keys are short: put tags in the low bits. An 11-byte value under a key below 2^32 takes 17 bytes.

use base::Bytes;

/// The longest value in bytes.
pub const VALUE_MAX: usize = 1024;

/// The bytes of a record beside key and value.
const HEAD: usize = 2;

/// One change, as replay shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record<'a> {
    /// `key` has this value from here on.
    Put {
        /// The key.
        key: u64,
        /// Its value.
        value: &'a [u8],
    },
    /// `key` has no value from here on.
    Remove {
        /// The key.
        key: u64,
    },
}

/// A list of changes that become durable together or not at all. Later ones win.
///
/// # Example
/// ```
/// let mut batch = ledger::Batch::new();
/// batch.put(7, b"seven");
/// batch.remove(8);
/// assert_eq!(batch.len(), 2);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Batch {
    pub(crate) bytes: Vec<u8>,
    pub(crate) count: u32,
}

impl Batch {
    /// A batch with no changes.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// `key` is to have `value`.
    ///
    /// # Panics
    /// If `value` is longer than [`VALUE_MAX`].
    pub fn put(&mut self, key: u64, value: &[u8]) {
        assert!(
            value.len() <= VALUE_MAX,
            "a value of {} bytes; at most {VALUE_MAX} fit a record",
            value.len()
        );
        self.head(key, value.len() + 1);
        self.bytes.extend_from_slice(value);
    }

    /// `key` is to have no value.
    pub fn remove(&mut self, key: u64) {
        self.head(key, 0);
    }

    fn head(&mut self, key: u64, value_code: usize) {
        let key_len = key_len(key);
        let head = (key_len | value_code << 4) as u16;
        self.bytes.extend_from_slice(&head.to_le_bytes());
        self.bytes.extend_from_slice(&key.to_le_bytes()[..key_len]);
        self.count += 1;
    }

    /// Number of changes.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Are there no changes?
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes the changes take in the log.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.bytes.len() as u64)
    }

    /// Forgets the changes and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
    }

    /// Bytes a value of `value_len` bytes under `key` takes in the log.
    pub const fn record_bytes(key: u64, value_len: usize) -> Bytes {
        Bytes((HEAD + key_len(key) + value_len) as u64)
    }

    /// The changes in order.
    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
        Records { rest: &self.bytes }
    }

    /// Drops every put: what is left are the removals.
    pub(crate) fn keep_removals(&mut self) {
        let mut removals = Batch::new();
        for record in self.records() {
            if let Record::Remove { key } = record {
                removals.remove(key);
            }
        }
        *self = removals;
    }
}

const fn key_len(key: u64) -> usize {
    8 - key.leading_zeros() as usize / 8
}

/// Walks encoded records; ends early where they are malformed, with bytes left over.
pub(crate) struct Records<'a> {
    pub rest: &'a [u8],
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    #[inline]
    fn next(&mut self) -> Option<Record<'a>> {
        let (head, rest) = self.rest.split_first_chunk::<2>()?;
        let head = u16::from_le_bytes(*head) as usize;
        let (key_len, value_code) = (head & 15, head >> 4);
        let value_len = value_code.saturating_sub(1);
        if key_len > 8 || value_len > VALUE_MAX || rest.len() < key_len + value_len {
            return None;
        }
        let key = if let Some(eight) = rest.first_chunk::<8>() {
            // The shift drops what belongs to the value; a shift by 64 would be for the key 0.
            u64::from_le_bytes(*eight) & (!0u64).checked_shr(64 - 8 * key_len as u32).unwrap_or(0)
        } else {
            let mut eight = [0; 8];
            eight[..key_len].copy_from_slice(&rest[..key_len]);
            u64::from_le_bytes(eight)
        };
        let value = &rest[key_len..key_len + value_len];
        self.rest = &rest[key_len + value_len..];
        Some(match value_code {
            0 => Record::Remove { key },
            _ => Record::Put { key, value },
        })
    }
}

/// Are these `count` well-formed records and nothing else?
pub(crate) fn well_formed(bytes: &[u8], count: u32) -> bool {
    let mut records = Records { rest: bytes };
    let found = records.by_ref().count();
    records.rest.is_empty() && found == count as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_as_they_were_put() {
        let long = [9; VALUE_MAX];
        let mut batch = Batch::new();
        let keys = [0, 1, 255, 256, u64::from(u32::MAX), 1 << 63, u64::MAX];
        for key in keys {
            for value in [&b""[..], b"x", b"eleven byte", &long] {
                let before = batch.bytes();
                batch.put(key, value);
                assert_eq!(
                    batch.bytes() - before,
                    Batch::record_bytes(key, value.len())
                );
            }
            batch.remove(key);
        }
        assert!(well_formed(&batch.bytes, batch.count));
        let back: Vec<Record<'_>> = batch.records().collect();
        assert_eq!(back.len(), 5 * keys.len());
        for (at, key) in keys.into_iter().enumerate() {
            assert_eq!(back[5 * at + 3], Record::Put { key, value: &long });
            assert_eq!(back[5 * at + 4], Record::Remove { key });
        }
    }

    #[test]
    fn an_eleven_byte_value_takes_seventeen_bytes_under_a_small_key() {
        assert_eq!(Batch::record_bytes(u64::from(u32::MAX), 11), Bytes(17));
        assert_eq!(Batch::record_bytes(u64::MAX, 11), Bytes(21));
    }

    #[test]
    fn cut_or_overlong_records_are_not_well_formed() {
        let mut batch = Batch::new();
        batch.put(300, b"value");
        for cut in 1..batch.bytes.len() {
            assert!(!well_formed(&batch.bytes[..cut], 1), "cut at {cut}");
        }
        assert!(!well_formed(&batch.bytes, 2));
        assert!(
            !well_formed(&[9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 1),
            "a nine-byte key"
        );
        let overlong = ((VALUE_MAX + 2) << 4) as u16;
        let mut bytes = overlong.to_le_bytes().to_vec();
        bytes.extend(vec![0; VALUE_MAX + 1]);
        assert!(!well_formed(&bytes, 1));
    }
}
