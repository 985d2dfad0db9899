//! Batches in line: which of them go to the device together, and which commits are answered?
//!
//! ```text
//! prepared -> committed -> at the head: in one write with the committed ones behind it -> durable
//! ```
//!
//! Always true: a batch is written only when every batch prepared before it has been committed.

use std::collections::VecDeque;

use crate::batch::Batch;
use crate::error::LedgerError;

/// Prepared batches are merged into one write up to this many bytes.
const MERGE_MAX: usize = 1 << 20;
/// Batches whose memory is kept for later ones.
const SPARE_MAX: usize = 8;

/// A prepared batch.
pub(crate) struct Entry {
    pub batch: Batch,
    pub swept: u32,
    pub blocks: u64,
    pub epoch: u64,
    /// A sweep begins with this entry: it also begins a batch on the device.
    pub starts: bool,
    /// The sweep of this entry's epoch ends with it.
    pub ends: bool,
    pub committed: bool,
    /// It begins a generation: the superblocks must point here before any commit is answered.
    pub renews: bool,
    /// Instead of being written, it fails the ledger.
    pub refused: Option<LedgerError>,
}

/// Batches by number, in the order they were prepared.
#[derive(Default)]
pub(crate) struct Queue {
    entries: VecDeque<Entry>,
    /// The number of the first of them: all before it are durable.
    first: u64,
    /// Entries before this one were in the write that failed, or before it.
    failed_before: u64,
    /// Memory of batches that are durable.
    spare: Vec<Vec<u8>>,
}

impl Queue {
    /// An empty batch, in memory used before where there is some.
    pub fn batch(&mut self) -> Batch {
        let bytes = self.spare.pop().unwrap_or_default();
        Batch { bytes, count: 0 }
    }

    /// Puts an entry in line; its number.
    pub fn push(&mut self, entry: Entry) -> u64 {
        self.entries.push_back(entry);
        self.first + self.entries.len() as u64 - 1
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    fn get_mut(&mut self, id: u64) -> Option<&mut Entry> {
        self.entries.get_mut(id.wrapping_sub(self.first) as usize)
    }

    /// It is to be written.
    pub fn commit(&mut self, id: u64) {
        if let Some(entry) = self.get_mut(id) {
            entry.committed = true;
        }
    }

    /// It will not be committed: instead of being written it fails the ledger.
    pub fn refuse(&mut self, id: u64, cause: LedgerError) {
        if let Some(entry) = self.get_mut(id) {
            entry.committed = true;
            entry.refused.get_or_insert(cause);
        }
    }

    pub fn is_durable(&self, id: u64) -> bool {
        id < self.first
    }

    /// Was it in the write that failed, or before it?
    pub fn is_in_failed_write(&self, id: u64) -> bool {
        id < self.failed_before
    }

    /// How many entries at the head go to the device in one write.
    ///
    /// # Errors
    /// Why the first of them fails the ledger.
    pub fn ready(&mut self) -> Result<usize, LedgerError> {
        let (mut entries, mut length) = (0, 0);
        for entry in &self.entries {
            let joins = entries == 0
                || (!entry.starts
                    && entry.refused.is_none()
                    && length + entry.batch.bytes.len() <= MERGE_MAX);
            if !entry.committed || !joins {
                break;
            }
            if let Some(cause) = &entry.refused {
                self.failed_before = self.first + 1;
                return Err(cause.clone());
            }
            length += entry.batch.bytes.len();
            entries += 1;
        }
        if entries > 0 {
            self.failed_before = self.first + entries as u64;
        }
        Ok(entries)
    }

    /// The first `count` entries.
    pub fn head(&self, count: usize) -> impl Iterator<Item = &Entry> + Clone {
        self.entries.iter().take(count)
    }

    /// The first `count` entries are durable.
    pub fn landed(&mut self, count: usize) {
        self.first += count as u64;
        for entry in self.entries.drain(..count) {
            let mut bytes = entry.batch.bytes;
            if self.spare.len() < SPARE_MAX && bytes.capacity() <= MERGE_MAX {
                bytes.clear();
                self.spare.push(bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An entry whose records take so many bytes.
    fn entry(bytes: usize) -> Entry {
        Entry {
            batch: Batch {
                bytes: vec![0; bytes],
                count: 1,
            },
            swept: 0,
            blocks: 1,
            epoch: 0,
            starts: false,
            ends: false,
            committed: false,
            renews: false,
            refused: None,
        }
    }

    fn queue(entries: impl IntoIterator<Item = Entry>) -> Queue {
        let mut queue = Queue::default();
        for entry in entries {
            let id = queue.push(entry);
            queue.commit(id);
        }
        queue
    }

    #[test]
    fn a_batch_waits_for_all_that_were_prepared_before_it() {
        let mut queue = queue([]);
        let ids: Vec<u64> = (0..3).map(|_| queue.push(entry(10))).collect();
        queue.commit(ids[1]);
        assert_eq!(queue.ready(), Ok(0));
        queue.commit(ids[0]);
        assert_eq!(queue.ready(), Ok(2));
        queue.landed(2);
        assert!(queue.is_durable(ids[1]) && !queue.is_durable(ids[2]));
        queue.commit(ids[2]);
        assert_eq!(queue.ready(), Ok(1));
    }

    #[test]
    fn committed_batches_share_a_write_of_limited_length() {
        assert_eq!(queue([MERGE_MAX - 10, 10, 1].map(entry)).ready(), Ok(2));
        assert_eq!(queue([2 * MERGE_MAX, 1].map(entry)).ready(), Ok(1));
    }

    #[test]
    fn a_batch_that_starts_a_sweep_begins_a_write() {
        let starts = Entry {
            starts: true,
            ..entry(1)
        };
        let mut queue = queue([entry(1), starts, entry(1)]);
        assert_eq!(queue.ready(), Ok(1));
        queue.landed(1);
        assert_eq!(queue.ready(), Ok(2));
    }

    #[test]
    fn a_refused_batch_fails_the_ledger_when_its_turn_comes() {
        let mut queue = queue([entry(1)]);
        let (dropped, later) = (queue.push(entry(1)), queue.push(entry(1)));
        queue.refuse(dropped, LedgerError::Dropped);
        queue.refuse(dropped, LedgerError::Closed);
        queue.commit(later);
        assert_eq!(queue.ready(), Ok(1));
        queue.landed(1);
        assert_eq!(queue.ready(), Err(LedgerError::Dropped));
        assert!(queue.is_in_failed_write(dropped) && !queue.is_in_failed_write(later));
    }

    #[test]
    fn memory_of_durable_batches_is_used_again() {
        let mut queue = queue([entry(100), entry(MERGE_MAX + 1)]);
        queue.landed(2);
        let again = queue.batch();
        assert!(again.bytes.is_empty() && again.bytes.capacity() >= 100);
        assert_eq!(queue.batch().bytes.capacity(), 0, "too long to keep");
    }
}
