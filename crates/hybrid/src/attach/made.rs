//! What do label and record say beside the way to the data: the mode of the volume, and which attachment it is.
//!
//! ```text
//! record and label of this volume -> the mode that the later one keeps | made before modes were kept
//! label alone, of this volume or one that counts -> its mode | made before modes were kept
//! neither -> nothing
//! ```
//!
//! A configuration that names a mode needs none of this. One that names none goes by what is kept, so the mode of a
//! volume does not change because the default does.
//!
//! Always true: a cache that is not this volume's says nothing where there is a record.

use std::rc::Rc;

use device::{Device, DeviceError};

use crate::attach::label::{Label, Unlabelled};
use crate::attach::pair::{Pair, is_ours};
use crate::settings::Mode;

/// What is kept of the mode of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MadeIn {
    /// Nothing: there is no record, and no cache of the volume.
    Nothing,
    /// A cache of a version that kept no mode; what named none was a block cache then.
    Earlier,
    /// A cache that keeps this mode.
    Mode(Mode),
}

/// What the fast device `fast` and the `record` of pairs say of the mode of the volume `name`. A label that cannot be used
/// says nothing: opening refuses it. `abandoned` is that of [`crate::Ties`].
///
/// # Errors
/// The device is gone.
///
/// # Example
/// ```
/// use std::rc::Rc;
///
/// use base::Bytes;
/// use device::{Device, Memory};
/// use hybrid::{Hybrid, MadeIn, Mode, Pair, Settings, Ties, kept_mode};
///
/// env::Runtime::simulated(1).block_on(async {
///     let slow = Memory::new("hdd0", Bytes::mib(64));
///     let fast: Rc<dyn Device> = Memory::new("ssd0", Bytes::mib(8));
///     assert_eq!(kept_mode(&fast, "vol0", None, &[]).await?, MadeIn::Nothing);
///     let settings = Settings { name: "vol0".to_owned(), mode: Mode::Both, ..Settings::default() };
///     Hybrid::create(settings, slow, Rc::clone(&fast), Ties::default()).await?.close().await?;
///     assert_eq!(kept_mode(&fast, "vol0", None, &[]).await?, MadeIn::Mode(Mode::Both));
///     // The record knows a later attachment.
///     let later = Pair { generation: 9, mode: Some(Mode::Tier), ..Pair::default() };
///     assert_eq!(kept_mode(&fast, "vol0", Some(later), &[]).await?, MadeIn::Mode(Mode::Tier));
///     Ok::<(), Box<dyn std::error::Error>>(())
/// }).unwrap();
/// ```
pub async fn kept_mode(
    fast: &Rc<dyn Device>,
    name: &str,
    record: Option<Pair>,
    abandoned: &[u128],
) -> Result<MadeIn, DeviceError> {
    let found = Label::read(fast).await?;
    Ok(made(name, record, &found, abandoned))
}

/// As [`kept_mode`], of a fast device that begins with `found`.
///
/// The record is written before the label and after it, with the same mode. So of two of one attachment the record is the
/// later one, or they say the same.
pub(crate) fn made(
    name: &str,
    record: Option<Pair>,
    found: &Result<Label, Unlabelled>,
    abandoned: &[u128],
) -> MadeIn {
    let label = found.as_ref().ok();
    let kept = match record {
        None => {
            let counts = |it: &&Label| it.attachment.counts() && !abandoned.contains(&it.uuid);
            let ours = label.filter(|it| counts(it) || it.is_of(name));
            ours.map(|label| label.mode)
        }
        Some(pair) => {
            let ours = label.filter(|label| is_ours(name, record, label));
            Some(match ours {
                Some(label) if label.generation > pair.generation => label.mode,
                Some(label) if label.generation == pair.generation => pair.mode.or(label.mode),
                _ => pair.mode,
            })
        }
    };
    match kept {
        None => MadeIn::Nothing,
        Some(None) => MadeIn::Earlier,
        Some(Some(mode)) => MadeIn::Mode(mode),
    }
}

/// Which cache a volume has, and for the how-manieth time they came together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttachmentId {
    /// The cache's identity.
    pub cache: u128,
    /// The number of the attachment.
    pub generation: u64,
}

#[cfg(test)]
mod tests {
    use base::Bytes;

    use super::*;
    use crate::attach::label::Attachment;

    const A: u128 = 0xa;

    /// A label of attachment 5 or another one, of the volume `v`, with mode `tier`.
    fn label(name: &str, generation: u64, attachment: Attachment) -> Result<Label, Unlabelled> {
        let label = Label::layout(Bytes::mib(64), None, Bytes::gib(1), name, A);
        Ok(Label {
            generation,
            attachment,
            mode: Some(Mode::Tier),
            ..label.unwrap()
        })
    }

    /// A record with this cache and attachment, and mode `both`.
    fn record(cache: Option<u128>, generation: u64) -> Option<Pair> {
        Some(Pair {
            cache,
            generation,
            mode: Some(Mode::Both),
            ..Pair::default()
        })
    }

    fn word(name: &str, record: Option<Pair>, found: &Result<Label, Unlabelled>) -> String {
        match made(name, record, found, &[]) {
            MadeIn::Nothing => "-".to_owned(),
            MadeIn::Earlier => "earlier".to_owned(),
            MadeIn::Mode(mode) => mode.to_string(),
        }
    }

    /// The label keeps `tier`, the record `both`.
    #[test]
    fn every_label_and_every_record_have_a_mode() {
        use Attachment::{Abandoned, Attached, Detached, Failing};
        let without_mode = |label: Result<Label, Unlabelled>| {
            label.map(|label| Label {
                mode: None,
                ..label
            })
        };
        let named = |generation| record(Some(A), generation);
        let silent = named(5).map(|pair| Pair { mode: None, ..pair });
        #[rustfmt::skip]
        let table = [
            // the label                                             absent     same    newer   older   alone   other   no mode
            ("none",        Err(Unlabelled::Blank),                  ["-",      "both", "both", "both", "both", "both", "earlier"]),
            ("no cache",    Err(Unlabelled::Foreign),                ["-",      "both", "both", "both", "both", "both", "earlier"]),
            ("damaged",     Err(Unlabelled::Damaged),                ["-",      "both", "both", "both", "both", "both", "earlier"]),
            ("unreadable",  Err(Unlabelled::Unreadable),             ["-",      "both", "both", "both", "both", "both", "earlier"]),
            ("version",     Err(Unlabelled::Version(9)),             ["-",      "both", "both", "both", "both", "both", "earlier"]),
            ("ours",        label("v", 5, Attached),                 ["tier",   "both", "both", "tier", "both", "both", "tier"]),
            ("later",       label("v", 8, Attached),                 ["tier",   "tier", "tier", "tier", "tier", "tier", "tier"]),
            ("older",       label("v", 3, Attached),                 ["tier",   "both", "both", "both", "both", "both", "earlier"]),
            ("failing",     label("v", 5, Failing),                  ["tier",   "both", "both", "tier", "both", "both", "tier"]),
            ("detached",    label("v", 5, Detached),                 ["tier",   "both", "both", "tier", "both", "both", "tier"]),
            ("given up",    label("v", 5, Abandoned),                ["tier",   "both", "both", "tier", "both", "both", "tier"]),
            ("long ago",    label("v", 3, Detached),                 ["tier",   "both", "both", "both", "both", "both", "earlier"]),
            ("another's",   label("w", 8, Attached),                 ["tier",   "tier", "tier", "tier", "both", "both", "tier"]),
            ("its end",     label("w", 8, Detached),                 ["-",      "tier", "tier", "tier", "both", "both", "tier"]),
            ("before",      without_mode(label("v", 5, Attached)),   ["earlier", "both", "both", "earlier", "both", "both", "earlier"]),
        ];
        let records = [
            None,
            named(5),
            named(6),
            named(4),
            record(None, 5),
            record(Some(0xb), 5),
            silent,
        ];
        for (what, found, modes) in table {
            let said = records.map(|record| word("v", record, &found));
            assert_eq!(said, modes, "{what}");
        }
    }

    #[test]
    fn a_label_that_keeps_the_beginning_of_a_name_alone_outvotes_no_record() {
        let long = "database-of-node-1";
        let found = label(long, 9, Attachment::Detached);
        assert_eq!(word(long, None, &found), "tier");
        assert_eq!(word(long, record(None, 5), &found), "both");
        assert_eq!(
            word(long, record(Some(A), 5), &found),
            "tier",
            "it is named"
        );
    }

    #[test]
    fn a_cache_that_was_given_up_tells_nothing_of_a_volume_of_another_name() {
        let live = label("w", 5, Attachment::Attached);
        assert_eq!(made("v", None, &live, &[A]), MadeIn::Nothing);
        assert_eq!(made("w", None, &live, &[A]), MadeIn::Mode(Mode::Tier));
    }
}
