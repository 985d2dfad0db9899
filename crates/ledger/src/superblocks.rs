//! Both superblocks of a region: which of them counts?
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
