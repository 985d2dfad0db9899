//! Compaction: how much of the live map does this batch carry along?
//!
//! ```text
//! | dead | .. live and dead mixed .. | swept so far | room for new batches and the rest of the sweep | reserve |
//!        tail                                       head
//! ```
//!
//! A sweep appends every live record once, a share with each batch. When it is through and durable, all
//! before its first batch is dead and the tail moves there. The reserve is room to append the whole live
//! map in one atomic batch: so a crash in the middle of a sweep, which wastes what was swept, never leaves a
//! log that cannot be compacted. Where a region is too tight for sweeps in shares, whole sweeps do it all.
//!
//! Pure: numbers in, a plan out.
//!
//! Always true:
//! 1. After a batch that follows the plan there is room for the whole live map as long as the live records
//!    take at most half of the log.

use base::Bytes;

use crate::batch::Batch;
use crate::layout::{BLOCK, blocks_for};

/// The owner of the live map. The ledger keeps no copy of it and asks the owner when it compacts.
pub trait Owner {
    /// Appends about `max` live records from `cursor` on to `out`, as they are now (the batch that is
    /// being prepared included). Returns the cursor to go on from, or `None` when the sweep is through.
    ///
    /// A sweep begins with cursor 0; what a cursor means is the owner's affair (a key, a slot number), but
    /// it must rise from call to call. Every record that is live through a whole sweep must be appended at
    /// least once in it, whatever was put and removed between the calls; ones put during the sweep need not be.
    fn sweep(&mut self, cursor: u64, max: usize, out: &mut Batch) -> Option<u64>;

    /// An upper bound of the bytes a sweep of the whole live map would append now
    /// (see [`Batch::record_bytes`]), if the owner knows. Without it the ledger goes by what it saw
    /// put, which counts overwritten records too, and so sweeps more often than it must.
    fn live(&self) -> Option<Bytes> {
        None
    }
}

/// What to sweep with a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Nothing.
    Rest,
    /// Begin a sweep or go on with it, about this many bytes.
    Share(u64),
    /// The sweep under way cannot end in time: forget it, sweep nothing.
    Abandon,
    /// The whole live map at once.
    Whole,
}

/// The state a plan is made from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outlook {
    /// Blocks of the log.
    pub log: u64,
    /// Blocks from the tail to the head, everything prepared counted at its worst.
    pub used: u64,
    /// Blocks the new batch takes by itself.
    pub batch: u64,
    /// Blocks of the largest batch so far.
    pub largest: u64,
    /// Bytes of the live map, the new batch included.
    pub live: u64,
    /// Bytes appended by the sweep under way.
    pub swept: Option<u64>,
}

/// Decides what to sweep with a batch. See the module's head.
pub(crate) fn plan(now: Outlook) -> Plan {
    let block = BLOCK as u64;
    let live_blocks = blocks_for(now.live as usize);
    // What the live map may grow by until the next look: a share of what is spare, or two of the
    // largest batches.
    let spare = now.log.saturating_sub(2 * live_blocks);
    let growth = (spare / 16).max((2 * now.largest).min(spare / 2)).max(4);
    let room = now.log.saturating_sub(now.used + now.batch);
    let Some(beyond) = room.checked_sub(live_blocks + growth) else {
        return Plan::Whole;
    };
    let beyond = beyond * block;
    let remaining = now.live.saturating_sub(now.swept.unwrap_or(0)).max(block);
    // New batches may take this much while the rest is swept.
    let fresh = beyond.saturating_sub(remaining);
    match now.swept {
        // A sweep that starts with a quarter of its size to spare carries four bytes along per new one.
        None if beyond > remaining + remaining / 4 => Plan::Rest,
        None if fresh < remaining / 16 => Plan::Rest,
        Some(_) if fresh == 0 => Plan::Abandon,
        _ => {
            let share =
                u128::from(now.batch * block) * u128::from(remaining) / u128::from(fresh.max(1));
            // A quarter ahead of need, so that it ends before the room does.
            Plan::Share(
                (share + share / 4).min(u128::from(beyond.saturating_sub(2 * block))) as u64,
            )
        }
    }
}

/// The size of a log in which compaction carries along about one record per new one.
pub(crate) fn log_blocks_for(records: u64, record_bytes: u64) -> u64 {
    // With L live bytes in a log of N: reserve L + (N - 2L) / 16, a sweep needs 1.25 L beyond it and leaves
    // 1.25 L in the log, so each cycle takes N - 1.06 (N - 2L) / 17 - 2.25 L of new batches, 1.25 L for N = 3.9 L.
    // 4.5 L leaves slack for the padding of small batches.
    let live = records.saturating_mul(record_bytes);
    blocks_for((live / 2).saturating_mul(9) as usize) + 64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outlook() -> Outlook {
        Outlook {
            log: 1000,
            used: 0,
            batch: 1,
            largest: 1,
            live: 200 * 4096,
            swept: None,
        }
    }

    #[test]
    fn an_empty_log_rests_and_a_full_one_sweeps_all() {
        assert_eq!(plan(outlook()), Plan::Rest);
        assert_eq!(
            plan(Outlook {
                used: 990,
                ..outlook()
            }),
            Plan::Whole
        );
    }

    #[test]
    fn a_sweep_in_shares_ends_before_the_reserve_is_touched() {
        let (mut used, mut swept) = (250, None);
        let (mut batches, mut start) = (0, 0);
        loop {
            batches += 1;
            assert!(batches < 1000, "no sweep came to its end");
            match plan(Outlook {
                used,
                swept,
                ..outlook()
            }) {
                Plan::Rest => used += 1,
                Plan::Share(bytes) => {
                    if swept.is_none() {
                        start = used;
                    }
                    // The batch fills a block of its own; the last block of a share is filled up.
                    let blocks = bytes.div_ceil(4096);
                    swept = Some(swept.unwrap_or(0) + blocks * 4096);
                    used += 1 + blocks;
                    if swept >= Some(200 * 4096) {
                        break;
                    }
                }
                other => panic!("{other:?} at {used} used"),
            }
        }
        assert!(start > 400, "started with {start} of 1000 blocks used");
        assert!(used + 200 < 1000, "ended with {used} used");
    }

    #[test]
    fn a_tight_log_waits_for_the_whole_sweep() {
        let tight = Outlook {
            log: 420,
            used: 205,
            ..outlook()
        };
        assert_eq!(plan(tight), Plan::Rest);
        assert_eq!(plan(Outlook { used: 216, ..tight }), Plan::Whole);
    }
}
