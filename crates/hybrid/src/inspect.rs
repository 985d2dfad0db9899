//! What does a device begin with? Looked at without a runtime and without opening it for writes.
//!
//! ```text
//! first MiB -> blank | a cache of ours (of which slow device, with its data or detached) | something else
//!           -> with the record of pairs: would a start refuse it as this volume's fast device?
//! ```

use base::Bytes;

use crate::label::{Label, PAGE, Unlabelled, choose};
use crate::open::{OpenError, refused};
use crate::pair::{Pair, Verdict, judge};

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
    match found(start, size) {
        Ok(label) => Start::Cache {
            slow_size: label.slow_size,
            counts: label.tie.counts(),
            name: label.name,
        },
        Err(Unlabelled::Blank) => Start::Blank,
        Err(Unlabelled::Foreign | Unlabelled::Unreadable) => Start::Other,
        Err(Unlabelled::Version(_) | Unlabelled::Damaged | Unlabelled::Short(_)) => {
            Start::Unreadable
        }
    }
}

/// What the labels say together; as opening reads them.
fn found(start: &[u8], size: Bytes) -> Result<Label, Unlabelled> {
    let pages = start.chunks_exact(PAGE as usize).take(2);
    let labels: Vec<_> = pages.map(|page| Label::parse(page, size)).collect();
    match choose(&labels) {
        // Zeroes for labels alone prove little.
        Err(Unlabelled::Blank) if start.iter().any(|byte| *byte != 0) => Err(Unlabelled::Foreign),
        answer => answer,
    }
}

/// A device that is to be the fast one of a volume.
#[derive(Debug, Clone, Copy)]
pub struct Offered<'a> {
    /// The volume's name.
    pub name: &'a str,
    /// The slow device's.
    pub slow: &'a str,
    /// The fast one's.
    pub fast: &'a str,
    /// What it begins with.
    pub start: &'a [u8],
    /// How long it is.
    pub size: Bytes,
}

/// Why a start of the volume with this `record` of pairs would refuse the fast device; `None`: it would not, as far
/// as label and record tell. `abandoned` and `force` are those of [`crate::Ties`].
///
/// # Example
/// ```
/// use base::Bytes;
/// use hybrid::Pair;
/// use hybrid::inspect::{Offered, refusal};
///
/// let blank = Offered { name: "vol0", slow: "hdd0", fast: "ssd0", start: &[0; 8192], size: Bytes::gib(1) };
/// assert_eq!(refusal(&blank, None, &[], false), None);
/// let missed = Pair { cache: Some(7), generation: 3, dirty: true, ..Pair::default() };
/// let said = refusal(&blank, Some(missed), &[], false).unwrap().to_string();
/// assert!(said.starts_with("ssd0 is blank, but vol0 has a cache that may hold what hdd0 has not"));
/// assert_eq!(refusal(&blank, Some(missed), &[7], false), None);
/// ```
pub fn refusal(
    offered: &Offered<'_>,
    record: Option<Pair>,
    abandoned: &[u128],
    force: bool,
) -> Option<OpenError> {
    let found = found(offered.start, offered.size);
    match judge(offered.name, record, &found, abandoned, force) {
        Verdict::Open | Verdict::Make => None,
        Verdict::Refuse(refusal) => {
            let names = (offered.name, offered.slow, offered.fast);
            Some(refused(names, offered.size, &found, refusal))
        }
    }
}
