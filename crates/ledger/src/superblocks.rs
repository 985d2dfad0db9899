//! Both superblocks of a region: which of them counts, and what do they say now?
//!
//! ```text
//! slot 0, slot 1 -> whole | of an unknown version | bad -> the newest whole one, and the tail that both still need
//! ```
//!
//! Always true: one unreadable or torn copy is what the other is for.

use base::{Buf, Bytes, Span};
use device::{Class, Device};

use crate::error::LedgerError;
use crate::layout::{BLOCK, Found, Place, Superblock, VERSION};
use crate::track::Track;

/// What the superblocks say, as last written.
pub(crate) struct Superblocks {
    /// Of the batches that count.
    pub generation: u64,
    pub revision: u64,
    /// Which slot (0 or 1) is written first next time: the one that is older or bad.
    pub older: usize,
    pub payload: Vec<u8>,
    pub clean: bool,
    /// The lesser tail of the two: behind it nothing is overwritten.
    pub hard_tail: Place,
    /// The head when they last noted the durable batch.
    pub noted: u64,
}

impl Superblocks {
    /// As found: the newest, the slot that is older or bad, and the lesser tail.
    pub fn new(newest: Superblock, older: usize, hard_tail: Place) -> Superblocks {
        Superblocks {
            generation: newest.generation,
            revision: newest.revision,
            older,
            payload: newest.payload,
            clean: newest.clean,
            hard_tail,
            // Replay went on from here with nothing noted behind it: note soon.
            noted: newest.tail.position,
        }
    }

    /// What one says that is written now, but for its revision.
    pub fn next(&self, id: u128, log_blocks: u64, track: &Track) -> Superblock {
        Superblock {
            id,
            generation: self.generation,
            revision: self.revision,
            log_blocks,
            tail: track.tail,
            durable: track.durable,
            clean: self.clean,
            doubted: track.indeterminate(),
            payload: self.payload.clone(),
        }
    }

    /// Both say `written` since the head was at `head`.
    pub fn landed(&mut self, written: Superblock, head: u64) {
        self.revision = written.revision;
        self.hard_tail = written.tail;
        self.noted = head;
        self.clean = written.clean;
        self.payload = written.payload;
    }
}

/// A generation under which no batch on the device counts: drawn anew, and mixed with the one before, so
/// that a repeated seed does not repeat it either.
pub(crate) fn fresh_generation(before: Option<u64>) -> u64 {
    let drawn = env::rng("ledger generation").bits();
    let Some(before) = before else {
        return drawn;
    };
    let mixed = drawn ^ before.rotate_left(23).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed.wrapping_add(u64::from(mixed == before))
}

/// Both superblocks, as found.
pub(crate) async fn read_superblocks(
    device: &dyn Device,
    name: &str,
    region: Span,
) -> Result<[Found; 2], LedgerError> {
    let mut found = [Found::Bad("was not read"), Found::Bad("was not read")];
    let mut failure = None;
    for (slot, place) in found.iter_mut().enumerate() {
        let at = region.start.after(Bytes((slot * BLOCK) as u64));
        match device.read(at, Buf::for_read(BLOCK), Class::Metadata).await {
            Ok(block) => *place = Superblock::decode(&block),
            Err(source) => {
                *place = Found::Bad("cannot be read");
                failure = Some(source);
            }
        }
    }
    // One unreadable copy is what the other is for; with none left the device's own words say more.
    match failure {
        Some(source) if !found.iter().any(|one| !matches!(one, Found::Bad(_))) => {
            Err(LedgerError::Device {
                device: name.to_owned(),
                doing: "read the superblocks of",
                region,
                source: Box::new(source),
            })
        }
        _ => Ok(found),
    }
}

pub(crate) fn refuse_unknown(
    found: &[Found; 2],
    name: &str,
    region: Span,
) -> Result<(), LedgerError> {
    for one in found {
        if let Found::Unknown(version) = one {
            return Err(LedgerError::Version {
                device: name.to_owned(),
                region,
                found: *version,
                known: VERSION,
            });
        }
    }
    Ok(())
}

/// The newest whole superblock, its slot, and the lesser tail of the whole ones.
pub(crate) fn newest(
    found: [Found; 2],
) -> Result<(Superblock, usize, Place), (&'static str, &'static str)> {
    match found {
        [Found::Whole(a), Found::Whole(b)] if a.generation == b.generation => {
            let hard = if a.tail.position < b.tail.position {
                a.tail
            } else {
                b.tail
            };
            if a.revision > b.revision {
                Ok((a, 0, hard))
            } else {
                Ok((b, 1, hard))
            }
        }
        [Found::Whole(a), Found::Whole(b)] => {
            // A format or a renewal was cut off: the older log's tail no longer counts.
            let (newest, slot) = if a.revision > b.revision {
                (a, 0)
            } else {
                (b, 1)
            };
            let hard = newest.tail;
            Ok((newest, slot, hard))
        }
        [Found::Whole(a), _] => {
            let hard = a.tail;
            Ok((a, 0, hard))
        }
        [_, Found::Whole(b)] => {
            let hard = b.tail;
            Ok((b, 1, hard))
        }
        [a, b] => {
            let why = |found| match found {
                Found::Bad(why) => why,
                _ => "is of an unknown version",
            };
            Err((why(a), why(b)))
        }
    }
}
