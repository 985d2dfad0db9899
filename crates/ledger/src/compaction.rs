//! The accounts of compaction: what the log holds, and what a batch must carry along.
//!
//! ```text
//! begin: what is there and how large the batch is -> a share (see `sweep::plan`)
//! carry: the batch with live records swept from its owner -> accept: accounted for
//! ```
//!
//! Always true: the sum of the epochs is no less than the log from tail to head, with all that is prepared.

use std::collections::VecDeque;

use base::Bytes;

use crate::batch::Batch;
use crate::layout::{BLOCK, HEADER, blocks_for};
use crate::queue::Entry;
use crate::sweep::{self, Outlook, Owner, Plan};

/// Blocks appended from the start of one sweep to the start of the next.
struct Epoch {
    id: u64,
    blocks: u64,
}

/// A sweep under way.
#[derive(Clone, Copy)]
pub(crate) struct Sweeping {
    cursor: u64,
    swept: u64,
    epoch: u64,
}

/// See the module's head.
pub(crate) struct Compaction {
    epochs: VecDeque<Epoch>,
    sweeping: Option<Sweeping>,
    /// Blocks of the largest batch so far.
    largest: u64,
    /// Bytes put that may be live, where the owner does not say.
    bound: u64,
    since_sweep: u64,
    /// The first commit must sweep everything and begin a generation, to leave damage or an indeterminate batch behind.
    renew: bool,
}

/// What one batch is to carry along.
pub(crate) struct Share {
    pub outlook: Outlook,
    epoch: u64,
    sweeping: Option<Sweeping>,
    renew: bool,
}

impl Share {
    /// `batch` with what its owner sweeps into it.
    pub fn carry(self, batch: Batch, owner: &mut dyn Owner) -> (Entry, Option<Sweeping>) {
        let (records, mut sweeping) = (batch.count, self.sweeping);
        let mut entry = Entry {
            batch,
            swept: 0,
            blocks: 0,
            epoch: self.epoch,
            starts: false,
            ends: false,
            committed: false,
            renews: self.renew,
            refused: None,
        };
        let anew = Sweeping {
            cursor: 0,
            swept: 0,
            epoch: self.epoch + 1,
        };
        let plan = match self.renew {
            true => Plan::Whole,
            false => sweep::plan(self.outlook),
        };
        match plan {
            Plan::Rest => {}
            Plan::Abandon => sweeping = None,
            Plan::Share(bytes) => {
                entry.starts = sweeping.is_none();
                let mut current = sweeping.unwrap_or(anew);
                // A block begun is filled: its padding costs as much as records.
                let before = entry.batch.bytes.len();
                let target = blocks_for(before + bytes as usize) as usize * BLOCK - HEADER;
                entry.ends = sweep_until(owner, &mut entry.batch, &mut current.cursor, target);
                current.swept += (entry.batch.bytes.len() - before) as u64;
                sweeping = Some(current);
            }
            Plan::Whole => {
                // The owner's state holds what the batch puts; only its removals must be written.
                entry.batch.keep_removals();
                let before = entry.batch.bytes.len();
                let mut current = anew;
                (entry.starts, entry.ends) = (true, true);
                while !sweep_until(owner, &mut entry.batch, &mut current.cursor, usize::MAX) {}
                current.swept = (entry.batch.bytes.len() - before) as u64;
                sweeping = Some(current);
            }
        }
        entry.blocks = blocks_for(entry.batch.bytes.len());
        entry.swept = entry.batch.count.saturating_sub(records);
        (entry, sweeping)
    }
}

impl Compaction {
    /// Of a log with so many blocks from tail to head, in which so many bytes were put.
    pub fn new(used: u64, put: u64, renew: bool) -> Compaction {
        Compaction {
            epochs: VecDeque::from([Epoch {
                id: 0,
                blocks: used,
            }]),
            sweeping: None,
            largest: 0,
            bound: put,
            since_sweep: 0,
            renew,
        }
    }

    /// What `batch` must carry along in a log of so many blocks, with so many live bytes if the owner knows.
    pub fn begin(&mut self, log: u64, batch: &Batch, live: Option<Bytes>) -> Share {
        let put = batch.bytes.len() as u64;
        self.bound += put;
        self.since_sweep += put;
        Share {
            outlook: Outlook {
                log,
                used: self.epochs.iter().map(|epoch| epoch.blocks).sum(),
                batch: blocks_for(batch.bytes.len()),
                largest: self.largest,
                live: live.map_or(self.bound, |bytes| bytes.0),
                swept: self.sweeping.map(|sweeping| sweeping.swept),
            },
            epoch: self.epochs.back().map_or(0, |epoch| epoch.id),
            sweeping: self.sweeping,
            renew: std::mem::take(&mut self.renew),
        }
    }

    /// Accounts for an entry, whose batch alone takes `batch` blocks; true if a sweep ends with it.
    pub fn accept(
        &mut self,
        entry: &mut Entry,
        mut sweeping: Option<Sweeping>,
        batch: u64,
    ) -> bool {
        if entry.starts {
            entry.epoch += 1;
            self.epochs.push_back(Epoch {
                id: entry.epoch,
                blocks: 0,
            });
            self.since_sweep = 0;
        }
        if let Some(epoch) = self.epochs.back_mut() {
            epoch.blocks += entry.blocks;
        }
        let ended = sweeping.filter(|_| entry.ends);
        if let Some(ended) = ended {
            self.bound = ended.swept + self.since_sweep;
            self.epochs.retain(|epoch| epoch.id >= ended.epoch);
            sweeping = None;
        }
        self.sweeping = sweeping;
        self.largest = self.largest.max(batch);
        ended.is_some()
    }

    /// Entries of `epoch` that share a batch save so many blocks by not being padded apart.
    pub fn saved(&mut self, epoch: u64, blocks: u64) {
        if let Some(epoch) = self.epochs.iter_mut().find(|one| one.id == epoch) {
            epoch.blocks -= blocks;
        }
    }
}

/// Sweeps from `cursor` until the batch holds about `target` bytes; true if the sweep came to its end.
fn sweep_until(owner: &mut dyn Owner, batch: &mut Batch, cursor: &mut u64, target: usize) -> bool {
    // A few records first, to see how long they are; then as many as fit, at most some thousand.
    let (mut record, mut most) = (1, 16);
    loop {
        let (bytes, count) = (batch.bytes.len(), batch.count);
        let left = target.saturating_sub(bytes);
        if left < record {
            return false;
        }
        let max = (left / record).clamp(1, most);
        let Some(next) = owner.sweep(*cursor, max, batch) else {
            return true;
        };
        assert!(
            next > *cursor,
            "a sweep's cursor must rise, it went from {cursor} to {next}"
        );
        *cursor = next;
        let new = (batch.count - count) as usize;
        if new == 0 {
            // A stretch with nothing live: look further each time.
            most = (4 * most).min(4096);
        } else {
            record = (batch.bytes.len() - bytes).div_ceil(new);
            most = 4096;
        }
    }
}
