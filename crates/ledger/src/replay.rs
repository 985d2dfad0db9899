//! Finding the records again: which batches are there, and is one missing that should not be?
//!
//! ```text
//! tail: batch n, n+1, n+2, ... the first that is not the next in line, whole and of this generation: the head
//!    behind it, a header of a later batch?  -> damage: the missing one was durable
//!    the superblock knows a later batch?    -> damage
//!    neither                                -> the end, or a batch that a crash cut off
//! ```
//!
//! A read that fails is repeated block by block. A block that cannot be read holds no batch: before the head it is
//! damage like any other. At the head it is what a crash left of the batch under way, or a batch that was durable:
//! nothing shows which, so it is reported until the next commit. From when that begins the superblock notes the batch as
//! indeterminate, and the batch no longer counts; the commit begins a generation.
//!
//! Always true:
//! 1. A batch's records are shown only after both of its checksums agreed.
//! 2. A batch of an earlier lap or an earlier format never counts: number, place and generation must agree.

use base::Bytes;

use crate::batch::{Record, Records};
use crate::error::LedgerError;
use crate::layout::{BLOCK, Place, Superblock};
use crate::log::Log;
use crate::reader::{Here, Reader};
use crate::report::{Replay, Unreadable};

/// The superblock notes the last durable batch at least this often, in blocks (64 MiB). So a header
/// that proves damage is at most this far behind it.
pub(crate) const NOTE_EVERY: u64 = 16 << 10;

/// Where a ledger goes on after replay.
pub(crate) struct Start {
    pub head: Place,
    pub tail: Place,
    /// Bytes of records put: no more than this is live.
    pub put_bytes: u64,
    /// The first commit must leave damage behind.
    pub renew: bool,
    /// What could not be read behind the head.
    pub unreadable: Unreadable,
}

impl Start {
    pub fn empty(at: Place) -> Start {
        Start {
            head: at,
            tail: at,
            put_bytes: 0,
            renew: false,
            unreadable: Unreadable::default(),
        }
    }
}

/// Shows the records; returns the bytes put.
pub(crate) fn show(records: Records<'_>, visit: &mut impl FnMut(Record<'_>)) -> u64 {
    let mut put = 0;
    for record in records {
        if let Record::Put { value, .. } = record {
            // A record's head and key take at most 10 bytes.
            put += value.len() as u64 + 10;
        }
        visit(record);
    }
    put
}

/// Shows every record from the tail on to `visit`.
pub(crate) async fn replay(
    log: &Log,
    superblock: &Superblock,
    visit: &mut impl FnMut(Record<'_>),
) -> Result<(Start, Replay), LedgerError> {
    let mut reader = Reader::new(log, superblock.tail.position);
    let mut start = Start::empty(superblock.tail);
    let mut report = Replay::default();
    let end = whole_batches(&mut reader, superblock, &mut start, &mut report, visit).await?;
    let missing = start.head;
    let damaged = |durable| LedgerError::Damaged {
        device: log.name.clone(),
        sector: log.sector(missing.position),
        sequence: missing.sequence,
        durable,
        why: end.why,
    };
    if superblock.durable >= missing.sequence {
        reader.expect_any()?;
        return Err(damaged(superblock.durable));
    }
    report.clean = superblock.clean && superblock.durable + 1 == missing.sequence;
    if report.clean {
        // Nothing was written after the clean mark, so nothing can be missing.
        return Ok((start, report));
    }
    let last = reader.end.min(missing.position + NOTE_EVERY + 1);
    reader.end = last.max(reader.next);
    if let Some(later) = reader.later(superblock, missing, last).await? {
        return Err(damaged(later));
    }
    reader.expect_any()?;
    let unreadable = reader.unreadable.range(missing.position..);
    let positions: Vec<u64> = unreadable.copied().collect();
    if end.suspect {
        let first = positions.first().copied().unwrap_or(missing.position);
        report.unreadable = positions.len() as u64;
        report.unreadable_at = Some(log.sector(first));
    }
    start.renew = end.suspect;
    start.unreadable = Unreadable {
        positions,
        doubted: if end.suspect { missing.sequence } else { 0 },
    };
    Ok((start, report))
}

/// Why the whole batches end where they do.
struct End {
    why: &'static str,
    /// A batch that was durable may lie there.
    suspect: bool,
}

/// Shows the records of every whole batch from the tail on, and moves `start` behind them.
async fn whole_batches(
    reader: &mut Reader<'_>,
    superblock: &Superblock,
    start: &mut Start,
    report: &mut Replay,
    visit: &mut impl FnMut(Record<'_>),
) -> Result<End, LedgerError> {
    loop {
        let (why, torn, suspect) = match reader.batch(superblock, start.head).await? {
            Here::Whole(heading) => {
                start.put_bytes += show(reader.records(&heading), visit);
                report.batches += 1;
                report.records += u64::from(heading.count);
                report.bytes += Bytes(heading.blocks() * BLOCK as u64);
                // Batches from before the superblock's tail moved there name an older one.
                if heading.tail.position >= start.tail.position {
                    start.tail = heading.tail;
                }
                start.head = Place {
                    sequence: start.head.sequence + 1,
                    position: start.head.position + heading.blocks(),
                };
                reader.pass(heading.blocks());
                continue;
            }
            Here::Torn(why) => (why, true, false),
            Here::Unreadable(why) => (why, true, true),
            Here::Not(why) => (why, false, false),
        };
        report.torn_tail = torn;
        return Ok(End { why, suspect });
    }
}
