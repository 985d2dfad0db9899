//! What has the volume done since it was opened, and what changed last?

use std::cell::Cell;

use env::sync::Event;

use super::status::Counters;

/// Mutations: mistakes that tests plant to see that the checkers catch them.
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// A change is answered before the record says which store missed it.
    AnswerBeforeSwap,
    /// Reads do not wait for writes under way.
    LooseRead,
    /// Extents are not noted as dirty.
    NoDirtyBit,
    /// Stores are not sealed when a volume is opened.
    NoSeal,
    /// A store leaves an extent before a root without it is in the meta store.
    NoCommit,
    /// A write to a part of a block that an overlay lacks leaves out the rest.
    HalfBlock,
    /// Which blocks an overlay has is not looked for again when its copies were made equal.
    StaleBlocks,
    /// A snapshot is taken of unreconciled extents.
    UnreconciledSnapshot,
    /// A change that is tried again lets others to its range meanwhile.
    FreeRange,
    /// What lies behind the end stays when a volume becomes smaller.
    KeepsBehind,
    /// Stores that come back get what the head has, and nothing of snapshots.
    HeadOnlyResync,
    /// An older image's map is written anew whichever store went out meanwhile.
    UncountedRelocation,
    /// A damaged copy is repaired without its range: a write may come between.
    LooseRepair,
    /// An indeterminate change on a user's own connection does not end the volume's.
    UntaintedByClients,
}

/// What the volume has done.
#[derive(Default)]
pub(super) struct Life {
    /// Something changed that a task may wait for.
    pub changed: Event,
    pub counters: Cell<Counters>,
    #[cfg(test)]
    pub mutated: Cell<Option<Mutation>>,
}
