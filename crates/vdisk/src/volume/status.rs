//! What operators are told of a volume.

/// How a volume is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// Every extent has all its copies in sync.
    Healthy,
    /// Some copies are missing, and none is re-replicated or resynced now.
    Degraded,
    /// Some copies are missing, and are being re-replicated or resynced.
    Resyncing,
    /// There is no room for all copies of what is written anew.
    Full,
    /// There are extents that cannot be written.
    ReadOnly,
    /// Nothing can be done.
    Offline,
}

/// How a volume is, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// How.
    pub condition: Condition,
    /// Why it is not healthy; empty if it is.
    pub why: String,
}

/// What a volume has done since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Read repairs: copies that failed a read and were repaired from another.
    pub read_repairs: u64,
    /// Damaged bytes that were written anew from another copy.
    pub repaired_bytes: u64,
    /// Stores that left the in-sync set.
    pub isr_shrinks: u64,
    /// Stores that joined the in-sync set again.
    pub isr_expands: u64,
    /// Extents copied to stores that were out.
    pub resynced: u64,
    /// Bytes copied from store to store, so that copies are equal and as many as configured.
    pub copied_bytes: u64,
    /// Extents whose copies were made equal.
    pub reconciled: u64,
    /// Extents allocated.
    pub allocated: u64,
    /// Overlays and their bases made one.
    pub merged: u64,
    /// Roots given to the meta store.
    pub commits: u64,
    /// Extents of older images that left drained stores, or got copies they lacked.
    pub relocated: u64,
}
