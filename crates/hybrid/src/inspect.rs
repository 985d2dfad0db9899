//! What does a device begin with? Looked at without a runtime and without opening it for writes.
//!
//! ```text
//! first MiB -> blank | a cache of ours (of which slow device, with its data or detached) | something else
//! ```

use base::Bytes;

use crate::label::{Label, PAGE, Unlabelled};

/// How much of the start is looked at: a partition table, a file system or a label shows there.
pub const START: Bytes = Bytes::mib(1);

/// What the start of a device shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// Zeroes.
    Blank,
    /// A cache.
    Cache {
        /// The volume that made it.
        name: String,
        /// Of a slow device so long.
        slow_size: Bytes,
        /// Its contents count: it was not detached or given up.
        counts: bool,
    },
    /// A cache's label that cannot be read: of another version, or damaged.
    Unreadable,
    /// Anything else.
    Other,
}

/// Looks at the `start` of a device of `size`.
///
/// # Example
/// ```
/// use base::Bytes;
/// use hybrid::inspect::{START, Start, look};
///
/// let mut start = vec![0; START.usize()];
/// assert_eq!(look(&start, Bytes::gib(1)), Start::Blank);
/// start[512..515].copy_from_slice(b"abc");
/// assert_eq!(look(&start, Bytes::gib(1)), Start::Other);
/// ```
pub fn look(start: &[u8], size: Bytes) -> Start {
    let pages = start.chunks_exact(PAGE as usize).take(2);
    let found: Vec<_> = pages.map(|page| Label::parse(page, size)).collect();
    let newest = found.iter().filter_map(|label| label.as_ref().ok());
    if let Some(label) = newest.max_by_key(|label| label.sequence) {
        return Start::Cache {
            name: label.name.clone(),
            slow_size: label.slow_size,
            counts: label.tie.counts(),
        };
    }
    let ours = |why: &Unlabelled| matches!(why, Unlabelled::Version(_) | Unlabelled::Damaged);
    if found.iter().filter_map(|it| it.as_ref().err()).any(ours) {
        return Start::Unreadable;
    }
    match start.iter().all(|byte| *byte == 0) {
        true => Start::Blank,
        false => Start::Other,
    }
}
