//! What a throttle counts.

use base::{Bytes, Nanos};

/// What passed one way while there was a cap, and what waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Passed {
    /// Requests that passed.
    pub requests: u64,
    /// Their bytes.
    pub bytes: Bytes,
    /// Those among them that had to wait.
    pub waited: u64,
    /// How long, all together.
    pub wait: Nanos,
    /// Requests that wait now.
    pub waiting: u64,
}

impl Passed {
    pub(super) fn pass(&mut self, bytes: Bytes, wait: Nanos) {
        self.requests += 1;
        self.bytes += bytes;
        self.waited += u64::from(wait.0 > 0);
        self.wait = Nanos(self.wait.0.saturating_add(wait.0));
    }
}

/// Both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Reads.
    pub read: Passed,
    /// Writes.
    pub write: Passed,
}
