//! What the disk of a kernel or of a virtual machine did.

/// Requests since the disk is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Requests under way.
    pub under_way: u64,
    /// Requests answered.
    pub answered: u64,
    /// Those among them that failed.
    pub failed: u64,
    /// Reads that did not fail.
    pub reads: u64,
    /// Their bytes.
    pub bytes_read: u64,
    /// Writes that did not fail.
    pub writes: u64,
    /// Their bytes.
    pub bytes_written: u64,
    /// Flushes that did not fail.
    pub flushes: u64,
    /// Discards that did not fail.
    pub discards: u64,
    /// Zeroing that did not fail.
    pub zeroes: u64,
    /// Writes and zeroes that were durable before the answer (FUA, or a guest without a write cache).
    pub forced: u64,
}

impl Counters {
    pub(crate) fn read(&mut self, len: u64) {
        self.reads += 1;
        self.bytes_read += len;
    }

    pub(crate) fn wrote(&mut self, len: u64, forced: bool) {
        self.writes += 1;
        self.bytes_written += len;
        self.forced += u64::from(forced);
    }

    pub(crate) fn zeroed(&mut self, forced: bool) {
        self.zeroes += 1;
        self.forced += u64::from(forced);
    }
}
