//! What does a device begin with? Looked at without a runtime and without opening it for writes.
//!
//! ```text
//! first MiB -> blank | a cache of ours (of which slow device, with its data or detached) | something else
//!           -> with the record of pairs: what would a start make of it?
//! ```

use base::Bytes;

use crate::attach::error::OpenError;
use crate::attach::label::{Label, PAGE, Unlabelled, choose};
use crate::attach::made::{MadeIn, made};
use crate::attach::pair::{Pair, Verdict, is_ours, judge_both};
use crate::attach::refuse::{loses, makes, refused};

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
            counts: label.attachment.counts(),
            name: label.name,
        },
        Err(Unlabelled::Blank) => Start::Blank,
        Err(Unlabelled::Foreign | Unlabelled::Unreadable) => Start::Other,
        Err(Unlabelled::Version(_) | Unlabelled::Damaged | Unlabelled::Short(_)) => {
            Start::Unreadable
        }
    }
}

/// The newest label whole in the first two pages; as [`Label::at_start`].
fn label_in(start: &[u8], size: Bytes) -> Option<Label> {
    let pages = start.chunks_exact(PAGE as usize).take(2);
    let whole = pages.filter_map(|page| Label::parse(page, size).ok());
    whole.max_by_key(|label| label.sequence)
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

/// A pair of devices that is to be a volume.
#[derive(Debug, Clone, Copy)]
pub struct Offered<'a> {
    /// The volume's name.
    pub name: &'a str,
    /// The slow device's.
    pub slow: &'a str,
    /// The fast one's.
    pub fast: &'a str,
    /// What the slow one begins with, and how long it is, where that is known.
    pub slow_start: Option<(&'a [u8], Bytes)>,
    /// What the fast one begins with.
    pub start: &'a [u8],
    /// How long it is.
    pub size: Bytes,
}

/// What is known of a volume beside its devices.
#[derive(Debug, Clone, Copy, Default)]
pub struct Beside<'a> {
    /// The record of pairs.
    pub record: Option<Pair>,
    /// As that of [`crate::Ties`].
    pub abandoned: &'a [u128],
    /// As that of [`crate::Ties`].
    pub force: bool,
}

/// What a start of a volume would make of its devices, as far as labels and record show. The start says it in the same
/// words.
#[derive(Debug, Clone, PartialEq)]
pub enum Outlook {
    /// The fast device has the volume's cache, made by the volume of this name.
    Opens(String),
    /// An empty cache is made on it, as these words say.
    Makes(String),
    /// What is on it is lost by force, as these words say.
    Loses(String),
    /// The start is refused.
    Refused(OpenError),
}

/// What a start of the volume would make of these devices.
///
/// # Example
/// ```
/// use base::Bytes;
/// use hybrid::Pair;
/// use hybrid::inspect::{Beside, Offered, Outlook, outlook};
///
/// let size = Bytes::gib(1);
/// let blank = Offered { name: "vol0", slow: "hdd0", fast: "ssd0", slow_start: None, start: &[0; 8192], size };
/// let words = "blank: vol0 begins with an empty cache on it".to_owned();
/// assert_eq!(outlook(&blank, &Beside::default()), Outlook::Makes(words));
/// let missed = Pair { cache: Some(7), generation: 3, dirty: true, ..Pair::default() };
/// let Outlook::Refused(why) = outlook(&blank, &Beside { record: Some(missed), ..Beside::default() }) else {
///     panic!("its cache is missed");
/// };
/// assert!(why.to_string().starts_with("ssd0 is blank, but vol0 has a cache that may hold what hdd0 has not"));
/// ```
pub fn outlook(offered: &Offered<'_>, beside: &Beside<'_>) -> Outlook {
    let found = found(offered.start, offered.size);
    let slow = offered
        .slow_start
        .and_then(|(start, size)| label_in(start, size));
    let &Beside {
        record,
        abandoned,
        force,
    } = beside;
    let judged = |force| {
        judge_both(
            offered.name,
            record,
            slow.as_ref(),
            &found,
            abandoned,
            force,
        )
    };
    let words = |refusal| {
        let names = (offered.name, offered.slow, offered.fast);
        refused(names, offered.size, &found, refusal, slow.as_ref())
    };
    match (judged(force), judged(false), &found) {
        (Verdict::Refuse(refusal), ..) => Outlook::Refused(words(refusal)),
        (Verdict::Open, _, Ok(label)) => opens(offered, beside, label),
        (_, Verdict::Refuse(refusal), _) => Outlook::Loses(loses(offered.name, &words(refusal))),
        _ => Outlook::Makes(makes(offered.name, &found)),
    }
}

/// The outlook where the cache of `label` is the volume's.
fn opens(offered: &Offered<'_>, beside: &Beside<'_>, label: &Label) -> Outlook {
    let Some((_, size)) = offered
        .slow_start
        .filter(|(_, size)| *size != label.slow_size)
    else {
        return Outlook::Opens(label.name.clone());
    };
    let error = OpenError::WrongSlow {
        fast: offered.fast.to_owned(),
        expected: label.slow_size,
        slow: offered.slow.to_owned(),
        size,
    };
    let dirty = beside.record.is_some_and(|pair| pair.dirty);
    match beside.force && is_ours(offered.name, beside.record, label) && !dirty {
        true => Outlook::Loses(loses(offered.name, &error)),
        false => Outlook::Refused(error),
    }
}

/// What the start of a fast device and the record of pairs tell of the mode of the volume; as [`crate::kept_mode`].
pub fn kept_mode(offered: &Offered<'_>, beside: &Beside<'_>) -> MadeIn {
    let found = found(offered.start, offered.size);
    made(offered.name, beside.record, &found, beside.abandoned)
}
