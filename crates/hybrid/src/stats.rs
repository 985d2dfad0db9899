//! What a hybrid disk did and where it stands: figures that cannot mislead.
//!
//! Hits are counted by bytes and by request, requests served by both devices are a case of their own, and
//! sequential requests are kept apart from random ones.

use std::cell::Cell;

use base::Nanos;
use serde::Serialize;

/// Adds `by` to what `cell` counts.
pub(crate) fn count(cell: &Cell<u64>, by: u64) {
    cell.set(cell.get() + by);
}

/// Requests and bytes of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Share {
    /// Requests served by the fast device alone.
    pub requests_fast: u64,
    /// Requests served by the slow device alone.
    pub requests_slow: u64,
    /// Requests that needed both.
    pub requests_both: u64,
    /// Bytes that came from the fast device.
    pub bytes_fast: u64,
    /// Bytes that came from the slow device.
    pub bytes_slow: u64,
}

impl Share {
    fn add(&mut self, fast: u64, slow: u64) {
        match (fast > 0, slow > 0) {
            (true, true) => self.requests_both += 1,
            (true, false) => self.requests_fast += 1,
            (false, _) => self.requests_slow += 1,
        }
        self.bytes_fast += fast;
        self.bytes_slow += slow;
    }

    /// Share of bytes that came from the fast device, in 0..=1; 0 if there were none.
    pub fn hit_share(&self) -> f64 {
        let all = self.bytes_fast + self.bytes_slow;
        if all == 0 {
            0.0
        } else {
            self.bytes_fast as f64 / all as f64
        }
    }
}

/// Requests and bytes written by users.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Written {
    /// Requests.
    pub requests: u64,
    /// Bytes.
    pub bytes: u64,
}

/// The engine's counters.
#[derive(Default)]
pub(crate) struct Counters {
    random_reads: Cell<Share>,
    sequential_reads: Cell<Share>,
    random_writes: Cell<Written>,
    sequential_writes: Cell<Written>,
}

impl Counters {
    pub fn read(&self, fast: u64, slow: u64, sequential: bool) {
        let cell = if sequential {
            &self.sequential_reads
        } else {
            &self.random_reads
        };
        let mut share = cell.get();
        share.add(fast, slow);
        cell.set(share);
    }

    pub fn write(&self, bytes: u64, sequential: bool) {
        let cell = if sequential {
            &self.sequential_writes
        } else {
            &self.random_writes
        };
        let mut written = cell.get();
        written.requests += 1;
        written.bytes += bytes;
        cell.set(written);
    }

    pub fn fill_in(&self, status: &mut Status) {
        status.random_reads = self.random_reads.get();
        status.sequential_reads = self.sequential_reads.get();
        status.random_writes = self.random_writes.get();
        status.sequential_writes = self.sequential_writes.get();
    }
}

/// In what state a hybrid disk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Health {
    /// Cache and slow device work together.
    #[default]
    Healthy,
    /// They work, and something wants attention: dirty data that cannot be read, or a cleaner that gets nowhere.
    Degraded,
    /// The slow device stands alone: detached, or the fast device failed while nothing was dirty.
    PassThrough,
    /// The fast device failed; dirty data are being destaged.
    Evacuating,
    /// Dirty data cannot be destaged, or a flush of the slow device failed: writes and flushes fail.
    Failed,
    /// Shut down.
    Closed,
}

/// What a hybrid disk did since it was opened and where it stands.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Status {
    /// The volume's name.
    pub name: String,
    /// In what state it is.
    pub health: Health,
    /// Why, where there is something to say.
    pub why: String,
    /// The write mode in force.
    pub write_mode: String,
    /// The replacement policy in force.
    pub policy: String,
    /// Block size in bytes.
    pub block_bytes: u64,
    /// Size of the volume in bytes.
    pub size_bytes: u64,
    /// Room for data on the fast device, in bytes.
    pub cache_bytes: u64,
    /// Data on the fast device, in bytes.
    pub cached_bytes: u64,
    /// Data that only the fast device has, in bytes.
    pub dirty_bytes: u64,
    /// Of those, what the last read of the fast device could not read, in bytes.
    pub unreadable_dirty_bytes: u64,
    /// Rounds of the cleaner that failed since the last one that wrote something to the slow device.
    pub clean_failures: u64,
    /// How long the oldest of them wait, in nanoseconds.
    pub dirty_age_ns: u64,
    /// Regions of 4 MiB marked as about to change on the slow device.
    pub marked_regions: u64,
    /// Reads outside sequential streams.
    pub random_reads: Share,
    /// Reads in sequential streams.
    pub sequential_reads: Share,
    /// Writes outside sequential streams.
    pub random_writes: Written,
    /// Writes in sequential streams.
    pub sequential_writes: Written,
    /// Requests of users, reads and writes.
    pub user_requests: u64,
    /// Those of which all data lived on the fast device when they came, or that wrote to what lives there.
    pub home_requests: u64,
    /// Those that the temporary buffer of a move served.
    pub buffer_requests: u64,
    /// Writes over data all of which only the fast device had.
    pub dirty_write_requests: u64,
    /// Bytes read from the fast device's slots.
    pub fast_bytes_read: u64,
    /// Bytes written to the fast device's slots.
    pub fast_bytes_written: u64,
    /// Writes sent to the fast device's slots.
    pub fast_data_writes: u64,
    /// Bytes read from the slow device.
    pub slow_bytes_read: u64,
    /// Bytes written to the slow device.
    pub slow_bytes_written: u64,
    /// Pages copied to the fast device after a read miss or a write-through.
    pub fills: u64,
    /// Copies given up for want of room or time.
    pub fills_dropped: u64,
    /// Pages evicted.
    pub evicted: u64,
    /// Bytes the cleaner destaged.
    pub bytes_cleaned: u64,
    /// Rounds of the cleaner.
    pub clean_rounds: u64,
    /// Times a request had to wait for room.
    pub waits_for_room: u64,
    /// Pages whose checksum did not agree.
    pub bad_checksums: u64,
    /// Commits of the map.
    pub commits: u64,
    /// Bytes written to the ledger.
    pub ledger_bytes_written: u64,
    /// Writes sent for the ledger.
    pub ledger_writes: u64,
    /// Bytes of the ledger's log in use.
    pub ledger_used_bytes: u64,
    /// Size of the ledger's log in bytes.
    pub ledger_size_bytes: u64,
    /// Memory held for the map and the policy, in bytes.
    pub memory_bytes: u64,
    /// Is the slow device's spindle at rest?
    pub slow_asleep: bool,
    /// Pages the last start recovered.
    pub recovered_pages: u64,
    /// Clean pages the last start dropped because their region was marked.
    pub recovered_dropped: u64,
    /// How long the last start took.
    #[serde(rename = "recovery_ns")]
    pub recovery: NanosOf,
}

/// A span as a plain number in JSON.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NanosOf(pub Nanos);

impl Serialize for NanosOf {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_bytes_add_up() {
        let mut share = Share::default();
        share.add(4096, 0);
        share.add(0, 4096);
        share.add(1024, 3072);
        assert_eq!(
            (
                share.requests_fast,
                share.requests_slow,
                share.requests_both
            ),
            (1, 1, 1)
        );
        assert_eq!(share.bytes_fast + share.bytes_slow, 3 * 4096);
        assert!((share.hit_share() - 5120.0 / 12288.0).abs() < 1e-12);
    }
}
