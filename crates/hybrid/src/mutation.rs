//! Mistakes that tests plant to see that the checkers catch them.

/// Mistakes that tests plant to see that the checkers catch them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// A commit does not flush the data it names.
    SkippedFlush,
    /// A write past the cache does not wait for its intent.
    LateInvalidation,
    /// A page counts as clean before the slow device was flushed.
    EarlyClean,
    /// A copy of what the slow device may still lose is made without an intent.
    UnrecordedIntent,
    /// A region's pages are dropped on its way down before the slow device was flushed.
    DroppedEarly,
    /// A region counts as demoted, and its pages are forgotten, before the dirty ones are destaged.
    RecordFirst,
    /// A fill takes the place of what was written since it began.
    StaleFill,
    /// A published copy takes the place of what was written since it began.
    StaleCopy,
    /// The synchronization of a temporary buffer leaves a marked run out.
    IgnoredMark,
    /// The record of pairs does not say that data may be dirty before they are.
    UnrecordedDirty,
    /// An attachment before the one that the record of pairs knows is opened.
    OlderAccepted,
}
