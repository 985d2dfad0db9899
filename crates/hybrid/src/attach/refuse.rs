//! What is said of a fast device that is refused, or made empty?
//!
//! ```text
//! verdict, labels -> OpenError -> its sentence; by force: the sentence, and that what is there is lost
//! ```
//!
//! The check of a configuration and the start take their words from here.

use base::Bytes;

use crate::attach::error::OpenError;
use crate::attach::label::{self, Label, Unlabelled};
use crate::attach::pair::{Pair, Refusal};

/// What a fast device holds, in words.
pub(crate) fn holding(found: &Result<Label, Unlabelled>) -> String {
    match found {
        Ok(label) => format!(
            "holds cache {:032x} of '{}' ({}, attachment {})",
            label.uuid,
            label.name,
            label.attachment.word(),
            label.generation
        ),
        Err(Unlabelled::Blank) => "is blank".to_owned(),
        Err(_) => "holds data that are not a cache of ours".to_owned(),
    }
}

/// A refusal of a fast device of `size` in words; the names are of the volume, the slow and the fast device.
pub(crate) fn refused(
    names: (&str, &str, &str),
    size: Bytes,
    found: &Result<Label, Unlabelled>,
    refusal: Refusal,
    slow_label: Option<&Label>,
) -> OpenError {
    let (name, slow, fast) = (names.0.to_owned(), names.1.to_owned(), names.2.to_owned());
    let numbers = |label: &Label| (label.uuid, label.generation);
    let (uuid, generation) = found.as_ref().map_or((0, 0), numbers);
    match refusal {
        Refusal::NotHere(pair) => OpenError::NotHere {
            name,
            fast,
            found: holding(found),
            slow,
            cache: pair.cache.unwrap_or_default(),
            generation: pair.generation,
        },
        Refusal::Older(pair) => OpenError::Older {
            name,
            fast,
            of: other_than(names.0, pair, found.as_ref().ok()),
            cache: uuid,
            found: generation,
            known: pair.generation,
        },
        Refusal::Another(pair) => OpenError::Another {
            name,
            fast,
            of: name_on(found.as_ref().ok()),
            cache: uuid,
            known: pair.cache.unwrap_or_default(),
        },
        Refusal::Foreign => OpenError::Foreign { fast },
        Refusal::Version(found) => OpenError::Version {
            fast,
            found,
            known: label::VERSION_MAX,
        },
        Refusal::Damaged => OpenError::Damaged {
            fast,
            why: "neither copy of its label is whole".to_owned(),
        },
        Refusal::Unreadable => OpenError::Unreadable { fast },
        Refusal::Swapped => OpenError::Swapped {
            name,
            slow,
            fast,
            of: name_on(slow_label),
        },
        Refusal::Short(end) => OpenError::Short {
            fast,
            size: size.0,
            end,
        },
    }
}

/// The volume that a label names, if that is another one than `name` and the record does not know the cache.
fn other_than(name: &str, record: Pair, label: Option<&Label>) -> Option<String> {
    let label = label.filter(|it| record.cache != Some(it.uuid) && !it.is_of(name))?;
    Some(label.name.clone())
}

/// The volume that a label names.
fn name_on(label: Option<&Label>) -> String {
    label.map_or(String::new(), |label| label.name.clone())
}

/// Why an empty cache is made for the volume `name` on a fast device that begins with `found`.
pub(crate) fn makes(name: &str, found: &Result<Label, Unlabelled>) -> String {
    match found {
        Ok(_) => {
            format!("a cache that was detached or given up: {name} begins with an empty one on it")
        }
        Err(_) => format!("blank: {name} begins with an empty cache on it"),
    }
}

/// That an empty cache is made for the volume `name` by force, although `refused` stands in the way.
pub(crate) fn loses(name: &str, refused: &OpenError) -> String {
    format!(
        "{refused}; with force = true {name} begins with an empty cache on it all the same, and what it holds is lost"
    )
}
