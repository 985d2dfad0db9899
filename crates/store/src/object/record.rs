//! What the store keeps in its ledger.
//!
//! | key | value |
//! |---|---|
//! | id << 3 | object: size, born, generation, mark, cut generation, cut offset (u64 each), flags u8 |
//! | id << 3 + 1 | its name, UTF-8 |
//! | (id << 2 + part) << 3 + 2 | its attributes, in parts of 1,024 bytes |
//! | (id << 29 + segment) << 3 + 3 | 32 of its pages (`segment.rs`) |
//! | number << 3 + 4 | reservation: pages left u64 |
//! | 5 | scrub cursor: id u32, segment u32, rounds u64, pages u64 |
//!
//! An id is a number below 2^32, used again when its object is gone. Little-endian; byte by byte in
//! `docs/formats.md`.

use ledger::Record;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub(crate) const OBJECT: u64 = 0;
pub(crate) const NAME: u64 = 1;
pub(crate) const ATTRIBUTES: u64 = 2;
pub(crate) const SEGMENT: u64 = 3;
pub(crate) const RESERVATION: u64 = 4;
pub(crate) const SCRUB: u64 = 5;
/// Kinds there are.
pub(crate) const KINDS: u64 = 6;

/// Segments an object may have.
pub(crate) const SEGMENTS_MAX: u64 = 1 << 29;
/// Bytes of attributes in one record.
pub(crate) const PART: usize = 1024;
/// Numbers of reservations are below this.
pub(crate) const RESERVATIONS_MAX: u64 = 1 << 48;

/// The object is deleted; its segments are being taken apart.
pub(crate) const FLAG_DELETING: u8 = 1;

pub(crate) fn object_key(id: u32) -> u64 {
    u64::from(id) << 3 | OBJECT
}

pub(crate) fn name_key(id: u32) -> u64 {
    u64::from(id) << 3 | NAME
}

pub(crate) fn attributes_key(id: u32, part: u64) -> u64 {
    (u64::from(id) << 2 | part) << 3 | ATTRIBUTES
}

pub(crate) fn segment_key(id: u32, segment: u32) -> u64 {
    (u64::from(id) << 29 | u64::from(segment)) << 3 | SEGMENT
}

pub(crate) fn reservation_key(number: u64) -> u64 {
    number << 3 | RESERVATION
}

/// The key of the one scrub cursor.
pub(crate) const SCRUB_KEY: u64 = SCRUB;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct RawObject {
    pub size: U64,
    pub born: U64,
    pub version: U64,
    pub stamp: U64,
    pub cut_generation: U64,
    pub cut_offset: U64,
    pub flags: u8,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct RawCursor {
    pub object: U32,
    pub segment: U32,
    pub rounds: U64,
    pub pages: U64,
}

/// Where the scrub goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Cursor {
    pub object: u32,
    pub segment: u32,
    /// Rounds through the whole store.
    pub rounds: u64,
    /// Pages read in this round.
    pub pages: u64,
}

impl Cursor {
    pub fn raw(self) -> RawCursor {
        RawCursor {
            object: self.object.into(),
            segment: self.segment.into(),
            rounds: self.rounds.into(),
            pages: self.pages.into(),
        }
    }

    pub fn of(raw: &RawCursor) -> Cursor {
        Cursor {
            object: raw.object.get(),
            segment: raw.segment.get(),
            rounds: raw.rounds.get(),
            pages: raw.pages.get(),
        }
    }
}

/// A record, sorted by kind: its number within the kind, and its value unless it was removed.
pub(crate) fn sort(record: Record<'_>) -> Option<(u64, u64, Option<&[u8]>)> {
    let (key, value) = match record {
        Record::Put { key, value } => (key, Some(value)),
        Record::Remove { key } => (key, None),
    };
    let (kind, number) = (key & 7, key >> 3);
    let known = match kind {
        OBJECT | NAME => number <= u64::from(u32::MAX),
        ATTRIBUTES => number >> 2 <= u64::from(u32::MAX),
        SEGMENT => true,
        RESERVATION => number < RESERVATIONS_MAX,
        SCRUB => number == 0,
        _ => false,
    };
    known.then_some((kind, number, value))
}

/// Attributes as bytes: for each, by rising name: length of name u8, name, length of value u16, value.
pub(crate) fn encode_attributes<'a>(
    attributes: impl IntoIterator<Item = (&'a str, &'a [u8])>,
) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in attributes {
        bytes.push(name.len() as u8);
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(&(value.len() as u16).to_le_bytes());
        bytes.extend_from_slice(value);
    }
    bytes
}

/// `None` if no attributes are written like this.
pub(crate) fn decode_attributes(mut bytes: &[u8]) -> Option<Vec<(String, Vec<u8>)>> {
    let mut attributes: Vec<(String, Vec<u8>)> = Vec::new();
    while let Some((len, rest)) = bytes.split_first() {
        let (name, rest) = rest.split_at_checked(usize::from(*len))?;
        let name = std::str::from_utf8(name).ok()?;
        let (len, rest) = rest.split_first_chunk::<2>()?;
        let (value, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*len)))?;
        if name.is_empty()
            || attributes
                .last()
                .is_some_and(|(last, _)| last.as_str() >= name)
        {
            return None;
        }
        attributes.push((name.to_owned(), value.to_vec()));
        bytes = rest;
    }
    Some(attributes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_come_back_and_malformed_ones_are_refused() {
        let pairs = [("a", &b"1"[..]), ("owner", b""), ("z", &[7; 300])];
        let bytes = encode_attributes(pairs);
        let back = decode_attributes(&bytes).unwrap();
        assert!(
            back.iter()
                .map(|(n, v)| (n.as_str(), v.as_slice()))
                .eq(pairs)
        );
        for cut in 1..bytes.len() {
            if let Some(fewer) = decode_attributes(&bytes[..cut]) {
                assert!(fewer.len() < 3, "cut at {cut}");
            }
        }
        assert_eq!(
            decode_attributes(&encode_attributes([("b", &b""[..]), ("a", b"")])),
            None
        );
        assert_eq!(decode_attributes(&[2, 0xff, 0xff, 0, 0]), None);
    }

    #[test]
    fn keys_of_different_things_differ() {
        let keys = [
            object_key(7),
            name_key(7),
            attributes_key(7, 0),
            attributes_key(7, 3),
            segment_key(7, 0),
            segment_key(u32::MAX, (SEGMENTS_MAX - 1) as u32),
            reservation_key(7),
            SCRUB_KEY,
        ];
        for (at, key) in keys.iter().enumerate() {
            assert!(!keys[..at].contains(key));
            let record = Record::Remove { key: *key };
            assert!(sort(record).is_some());
        }
        assert_eq!(sort(Record::Remove { key: 7 }), None);
        assert_eq!(sort(Record::Remove { key: 1 << 60 }), None);
    }
}
