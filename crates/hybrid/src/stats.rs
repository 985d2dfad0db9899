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

/// Counts in one of the cells of a group.
pub(crate) fn count_in<T: Copy>(cell: &Cell<T>, counted: impl FnOnce(&mut T)) {
    let mut group = cell.get();
    counted(&mut group);
    cell.set(group);
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
        count_in(cell, |share| share.add(fast, slow));
    }

    pub fn write(&self, bytes: u64, sequential: bool) {
        let cell = if sequential {
            &self.sequential_writes
        } else {
            &self.random_writes
        };
        count_in(cell, |written| {
            written.requests += 1;
            written.bytes += bytes;
        });
    }

    /// What users read and wrote; how the cache met it is not counted here.
    pub fn requests(&self) -> UserRequests {
        UserRequests {
            random_reads: self.random_reads.get(),
            sequential_reads: self.sequential_reads.get(),
            random_writes: self.random_writes.get(),
            sequential_writes: self.sequential_writes.get(),
            ..UserRequests::default()
        }
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
    /// Its cache may hold what the slow device has not, and is not here: every request fails.
    CacheLost,
    /// Shut down.
    Closed,
}

/// What a hybrid disk did since it was opened and where it stands. In JSON its parts are one flat object.
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
    /// What is on the fast device.
    #[serde(flatten)]
    pub occupancy: Occupancy,
    /// What users asked for.
    #[serde(flatten)]
    pub requests: UserRequests,
    /// What went over the two devices.
    #[serde(flatten)]
    pub traffic: Traffic,
    /// What the cache did behind the users' backs.
    #[serde(flatten)]
    pub upkeep: Upkeep,
    /// How the map was made durable.
    #[serde(flatten)]
    pub ledger: LedgerUse,
    /// Memory held for the map and the policy, in bytes.
    pub memory_bytes: u64,
    /// Is the slow device's spindle at rest?
    pub slow_asleep: bool,
    /// What the last start found.
    #[serde(flatten)]
    pub recovered: Recovered,
}

/// What is on the fast device, and what of it waits for the slow one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Occupancy {
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
    /// How long the oldest of them wait for the cleaner, in nanoseconds. Hot data of a tier stay dirty on purpose: their regions
    /// of 4 MiB do not count.
    pub dirty_age_ns: u64,
    /// Regions of 4 MiB marked as about to change on the slow device.
    pub marked_regions: u64,
}

/// Reads and writes of users, and how many of them the fast device could answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct UserRequests {
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
}

impl UserRequests {
    /// All reads, in streams and outside.
    pub fn reads(&self) -> Share {
        let (random, sequential) = (self.random_reads, self.sequential_reads);
        Share {
            requests_fast: random.requests_fast + sequential.requests_fast,
            requests_slow: random.requests_slow + sequential.requests_slow,
            requests_both: random.requests_both + sequential.requests_both,
            bytes_fast: random.bytes_fast + sequential.bytes_fast,
            bytes_slow: random.bytes_slow + sequential.bytes_slow,
        }
    }
}

/// What went over the two devices, the ledger and the label left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Traffic {
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
}

/// What the cache did to keep room, to destage and to keep bad copies out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Upkeep {
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
}

/// The ledger that keeps the map: what was committed, and how full its log is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct LedgerUse {
    /// Commits of the map.
    pub commits: u64,
    /// Bytes written to the ledger.
    #[serde(rename = "ledger_bytes_written")]
    pub bytes_written: u64,
    /// Writes sent for the ledger.
    #[serde(rename = "ledger_writes")]
    pub writes: u64,
    /// Bytes of the ledger's log in use.
    #[serde(rename = "ledger_used_bytes")]
    pub used_bytes: u64,
    /// Size of the ledger's log in bytes.
    #[serde(rename = "ledger_size_bytes")]
    pub size_bytes: u64,
}

/// What the last start found on the fast device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Recovered {
    /// Pages it recovered.
    #[serde(rename = "recovered_pages")]
    pub pages: u64,
    /// Clean pages it dropped because their region was marked.
    #[serde(rename = "recovered_dropped")]
    pub dropped: u64,
    /// How long it took.
    #[serde(rename = "recovery_ns")]
    pub took: NanosOf,
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
