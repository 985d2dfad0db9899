//! Every byte of a superblock and of a batch's header. `docs/formats/ledger.md` says the same in words.
//!
//! Always true:
//! 1. All versions keep the magic at byte 0, the version at byte 8 and the checksum of the whole block at byte 12 of
//!    a superblock. So an unknown version can be distinguished from a damaged one.
//! 2. Two checksums cover every bit of a batch, padding included: one the header, one the rest.

use base::crc::crc32c;
use zerocopy::little_endian::{U32, U64, U128};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The log's unit, and a superblock's length, in bytes.
pub(crate) const BLOCK: usize = 4096;
/// The newest format that this program reads.
pub(crate) const VERSION: u32 = 2;
/// What it writes, and all that earlier programs know; [`VERSION`] only while a batch is indeterminate.
const VERSION_UNDOUBTED: u32 = 1;
/// The longest payload in bytes.
pub(crate) const PAYLOAD: usize = 2048;
/// A batch header's length in bytes.
pub(crate) const HEADER: usize = size_of::<Header>();

/// No log gets anywhere near so many blocks or batches; sums of lesser numbers cannot overflow.
pub(crate) const FAR: u64 = 1 << 48;

/// A salvage trusts no number from here on: a number that it goes on from must leave room below [`FAR`].
pub(crate) const FAR_SALVAGED: u64 = FAR / 2;

const SUPERBLOCK_MAGIC: [u8; 8] = *b"TANADAlg";
const BATCH_MAGIC: [u8; 4] = *b"TaLB";

/// A place in the log: which batch, and where it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Place {
    /// Batches are numbered from 1 without gaps.
    pub sequence: u64,
    /// Blocks written before it since the format; its block in the log is this modulo the log's length.
    pub position: u64,
}

/// A superblock as it lies on the device; 4,096 bytes.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawSuperblock {
    magic: [u8; 8],
    version: U32,
    crc: U32,
    id: U128,
    generation: U64,
    revision: U64,
    log_blocks: U64,
    tail_sequence: U64,
    tail_position: U64,
    durable_sequence: U64,
    clean: U32,
    payload_len: U32,
    /// Version 2; zero in version 1.
    doubted_sequence: U64,
    payload: [u8; PAYLOAD],
    padding: [u8; BLOCK - 96 - PAYLOAD],
}

const _: () = assert!(size_of::<RawSuperblock>() == BLOCK);

/// A superblock's contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub id: u128,
    pub generation: u64,
    pub revision: u64,
    pub log_blocks: u64,
    pub tail: Place,
    pub durable: u64,
    pub clean: bool,
    /// A batch of this number could not be read and may have been durable. Neither it nor what is behind it counts, whatever can
    /// be read by now, and that is to be reported; the next commit begins a generation. 0: none.
    pub doubted: u64,
    pub payload: Vec<u8>,
}

/// What is in a superblock's place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    Whole(Superblock),
    Unknown(u32),
    Bad(&'static str),
}

impl Found {
    /// As a salvage takes it: bad if its numbers could soon be too great to be read again.
    pub fn for_salvage(self) -> Found {
        match self {
            Found::Whole(superblock)
                if [
                    superblock.revision,
                    superblock.tail.sequence,
                    superblock.tail.position,
                    superblock.durable,
                ]
                .into_iter()
                .any(|number| number >= FAR_SALVAGED) =>
            {
                Found::Bad("has numbers too great to go on from")
            }
            other => other,
        }
    }
}

impl Superblock {
    /// The last batch that was durable, or may have been.
    pub fn proven(&self) -> u64 {
        self.durable.max(self.doubted)
    }

    /// May a batch of this number count?
    pub fn counts(&self, sequence: u64) -> bool {
        self.doubted == 0 || sequence < self.doubted
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut raw = RawSuperblock::new_zeroed();
        raw.magic = SUPERBLOCK_MAGIC;
        raw.version = match self.doubted {
            0 => VERSION_UNDOUBTED,
            _ => VERSION,
        }
        .into();
        raw.doubted_sequence = self.doubted.into();
        raw.id = self.id.into();
        raw.generation = self.generation.into();
        raw.revision = self.revision.into();
        raw.log_blocks = self.log_blocks.into();
        raw.tail_sequence = self.tail.sequence.into();
        raw.tail_position = self.tail.position.into();
        raw.durable_sequence = self.durable.into();
        raw.clean = u32::from(self.clean).into();
        raw.payload_len = (self.payload.len() as u32).into();
        raw.payload[..self.payload.len()].copy_from_slice(&self.payload);
        raw.crc = crc32c(raw.as_bytes()).into();
        raw.as_bytes().to_vec()
    }

    pub fn decode(block: &[u8]) -> Found {
        let Ok(raw) = RawSuperblock::read_from_bytes(block) else {
            return Found::Bad("is not one block long");
        };
        let mut raw = raw;
        if raw.magic != SUPERBLOCK_MAGIC {
            return Found::Bad("has no magic");
        }
        let crc = std::mem::take(&mut raw.crc);
        if crc32c(raw.as_bytes()) != crc.get() {
            return Found::Bad("has a wrong checksum");
        }
        if !(VERSION_UNDOUBTED..=VERSION).contains(&raw.version.get()) {
            return Found::Unknown(raw.version.get());
        }
        let payload_len = raw.payload_len.get() as usize;
        let far = |number: U64| number.get() >= FAR;
        if payload_len > PAYLOAD
            || raw.log_blocks.get() == 0
            || raw.tail_sequence.get() == 0
            || [
                raw.log_blocks,
                raw.tail_sequence,
                raw.tail_position,
                raw.durable_sequence,
                raw.doubted_sequence,
            ]
            .into_iter()
            .any(far)
            || far(raw.revision)
        {
            return Found::Bad("has values no ledger writes");
        }
        Found::Whole(Superblock {
            id: raw.id.get(),
            generation: raw.generation.get(),
            revision: raw.revision.get(),
            log_blocks: raw.log_blocks.get(),
            tail: Place {
                sequence: raw.tail_sequence.get(),
                position: raw.tail_position.get(),
            },
            durable: raw.durable_sequence.get(),
            clean: raw.clean.get() == 1,
            doubted: raw.doubted_sequence.get(),
            payload: raw.payload[..payload_len].to_vec(),
        })
    }
}

/// A batch's header as it lies on the device; 64 bytes. The records follow, then zeroes to the block's end.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(crate) struct Header {
    magic: [u8; 4],
    header_crc: U32,
    generation: U64,
    sequence: U64,
    position: U64,
    tail_sequence: U64,
    tail_position: U64,
    length: U32,
    count: U32,
    body_crc: U32,
    swept: U32,
}

const _: () = assert!(HEADER == 64);

/// What a batch's header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Heading {
    pub generation: u64,
    pub place: Place,
    /// Where the live part of the log begins once this batch is durable.
    pub tail: Place,
    /// Bytes of records.
    pub length: u32,
    /// Number of records.
    pub count: u32,
    /// How many of them were carried along by compaction.
    pub swept: u32,
}

/// Blocks a batch with `length` bytes of records takes.
pub(crate) const fn blocks_for(length: usize) -> u64 {
    ((HEADER + length) as u64).div_ceil(BLOCK as u64)
}

impl Heading {
    /// Completes a batch whose records and padding already lie behind the header in `frame`.
    pub fn seal(&self, frame: &mut [u8]) {
        let mut raw = Header {
            magic: BATCH_MAGIC,
            header_crc: 0.into(),
            generation: self.generation.into(),
            sequence: self.place.sequence.into(),
            position: self.place.position.into(),
            tail_sequence: self.tail.sequence.into(),
            tail_position: self.tail.position.into(),
            length: self.length.into(),
            count: self.count.into(),
            body_crc: crc32c(&frame[HEADER..]).into(),
            swept: self.swept.into(),
        };
        raw.header_crc = crc32c(&raw.as_bytes()[8..]).into();
        frame[..HEADER].copy_from_slice(raw.as_bytes());
    }

    /// The heading at the start of `block` and the checksum of what follows, if the header is whole.
    pub fn decode(block: &[u8]) -> Option<(Heading, u32)> {
        let (raw, _) = Header::read_from_prefix(block).ok()?;
        if raw.magic != BATCH_MAGIC || crc32c(&raw.as_bytes()[8..]) != raw.header_crc.get() {
            return None;
        }
        let heading = Heading {
            generation: raw.generation.get(),
            place: Place {
                sequence: raw.sequence.get(),
                position: raw.position.get(),
            },
            tail: Place {
                sequence: raw.tail_sequence.get(),
                position: raw.tail_position.get(),
            },
            length: raw.length.get(),
            count: raw.count.get(),
            swept: raw.swept.get(),
        };
        Some((heading, raw.body_crc.get()))
    }

    /// Blocks the batch takes.
    pub fn blocks(&self) -> u64 {
        blocks_for(self.length as usize)
    }
}
