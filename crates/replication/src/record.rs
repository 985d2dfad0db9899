//! What all nodes agree on about a volume: its writer and generation, the stores that miss writes, its head.
//!
//! ```text
//! volume/<id>           this record, JSON with a version       changed by compare-and-swap only
//! volume-name/<name>    the number it stands for
//! ```
//!
//! Always true:
//! 1. A record of a version that is not known, or with a field that is not, is refused: it is never written over.
//! 2. What is read has been checked: sizes, names and numbers are such as this program writes.

use std::collections::{BTreeMap, BTreeSet};

use policy::share::cap::Caps;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::names::{COPIES_MAX, EXTENT, Generation, ImageId, StoreNumber, VolumeId};
pub use crate::terms::{
    BadFairness, BadName, CapRecord, Fairness, Name, OnMetaLoss, PriorityClass, Terms,
};

/// The version of all records here.
const VERSION: u32 = 1;
/// No record is longer; what is, is refused unread.
pub const RECORD_MAX: usize = 512 * 1024;
/// The greatest volume: 2^50 bytes.
pub const SIZE_MAX: u64 = 1 << 50;
/// Sizes are multiples of this.
pub const SIZE_UNIT: u64 = 4096;

/// The writer of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Writer {
    /// The node's name.
    pub node: String,
    /// Its lease in the meta store. Under it is [`writer_key`], so every node sees whether it lasts.
    pub lease: u64,
    /// An earlier writer may still answer: the node that takes the volume from this one waits as long as this one had to. A record
    /// without this field counts as true.
    #[serde(default = "may_wait")]
    pub waits: bool,
}

fn may_wait() -> bool {
    true
}

/// What a volume is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VolumeState {
    /// It may be opened.
    #[default]
    Live,
    /// It is being removed; no node opens it.
    Deleting,
}

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeRecord {
    /// 1: a record with another version is refused.
    pub version: u32,

    // Fixed from its making.
    /// Its number.
    pub id: VolumeId,
    /// Its name.
    pub name: Name,
    /// Copies of each extent.
    pub copies: u8,

    /// As operators set it.
    #[serde(flatten)]
    pub terms: Terms,

    // As it is used.
    /// Where its map begins.
    pub head: ImageId,
    /// Counts openings, changes of the in-sync set and commits. Whatever is born has this one or an earlier one.
    pub generation: Generation,
    /// The generation of the last opening.
    pub epoch: Generation,
    /// The writer that has it open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writer: Option<Writer>,
    /// Stores that miss writes, and the generation since which they do.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub out: BTreeMap<StoreNumber, Generation>,
    /// Stores that may have something of it; each is noted before its first use. `None`: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stores: Option<BTreeSet<StoreNumber>>,
    /// A store was found to be used in this generation already: the record is an old one, and no node opens the volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub older_than: Option<Generation>,
    /// The generation that the volume's fence had at each store, durably: a store that shows a lesser one was put back.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub seen: BTreeMap<StoreNumber, u64>,
    /// The least number of in-sync copies any extent may have.
    #[serde(rename = "weakest")]
    pub redundancy_floor: u8,
    /// Is it being removed?
    #[serde(default)]
    pub state: VolumeState,
}

/// Why a record is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// Of a later program.
    #[error(
        "{what} has version {found}, and this program knows {known}; use a newer one, nothing was changed"
    )]
    Version {
        /// Which record.
        what: String,
        /// Its version.
        found: u32,
        /// The greatest that this program knows.
        known: u32,
    },
    /// Not as this program writes it.
    #[error("{what} is not as it should be: {why}; nothing was changed")]
    Malformed {
        /// Which record.
        what: String,
        /// What is wrong.
        why: String,
    },
}

impl RecordError {
    /// `what` is not as it should be, and why.
    pub fn malformed(what: &str, why: impl Into<String>) -> RecordError {
        RecordError::Malformed {
            what: what.to_owned(),
            why: why.into(),
        }
    }
}

/// Reads a record that has a version in it.
///
/// # Errors
/// [`RecordError`]: too long, of another version, or not as this program writes it.
pub fn read<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T, RecordError> {
    read_up_to(VERSION, what, bytes)
}

/// Reads a record of version 1 to `known`.
///
/// # Errors
/// As for [`read`].
///
/// # Example
/// ```
/// #[derive(serde::Deserialize)]
/// struct Record {
///     version: u32,
/// }
///
/// let record: Record = replication::record::read_up_to(2, "a record", br#"{"version": 2}"#)?;
/// assert_eq!(record.version, 2);
/// # Ok::<(), replication::record::RecordError>(())
/// ```
pub fn read_up_to<T: DeserializeOwned>(
    known: u32,
    what: &str,
    bytes: &[u8],
) -> Result<T, RecordError> {
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
    }
    if bytes.len() > RECORD_MAX {
        let why = format!("it has {} bytes, more than {RECORD_MAX}", bytes.len());
        return Err(RecordError::malformed(what, why));
    }
    let malformed = |error: serde_json::Error| RecordError::malformed(what, error.to_string());
    let found: Versioned = serde_json::from_slice(bytes).map_err(malformed)?;
    if !(VERSION..=known).contains(&found.version) {
        return Err(RecordError::Version {
            what: what.to_owned(),
            found: found.version,
            known,
        });
    }
    serde_json::from_slice(bytes).map_err(malformed)
}

/// A generation that can be.
///
/// # Errors
/// [`RecordError::Malformed`] if it is greater than [`Generation::MAX`].
pub fn check_generation(what: &str, generation: Generation) -> Result<(), RecordError> {
    match generation <= Generation::MAX {
        true => Ok(()),
        false => {
            let most = Generation::MAX;
            let why = format!("generation {generation} is none; the greatest is {most}");
            Err(RecordError::malformed(what, why))
        }
    }
}

/// A generation that others can follow.
///
/// # Errors
/// [`RecordError::Malformed`] if it is greater than [`Generation::RECORD_MAX`].
pub fn check_current(what: &str, generation: Generation) -> Result<(), RecordError> {
    check_generation(what, generation)?;
    match generation <= Generation::RECORD_MAX {
        true => Ok(()),
        false => {
            let why = format!("too few generations are left behind {generation}");
            Err(RecordError::malformed(what, why))
        }
    }
}

/// Can an image have this size?
///
/// # Errors
/// Why it cannot.
pub fn check_size(size: u64) -> Result<(), String> {
    match size {
        0 => Err("a volume has at least 4 KiB".to_owned()),
        _ if size > SIZE_MAX => Err(format!(
            "{size} bytes are more than a volume can have, {SIZE_MAX}"
        )),
        _ if !size.is_multiple_of(SIZE_UNIT) => {
            Err(format!("{size} bytes are no whole number of {SIZE_UNIT}"))
        }
        _ => Ok(()),
    }
}

/// Extents that `size` bytes take.
pub fn extents(size: u64) -> u32 {
    u32::try_from(size.div_ceil(EXTENT)).expect("sizes are at most 2^50 bytes")
}

/// The key of a volume's record.
pub fn volume_key(id: VolumeId) -> String {
    format!("volume/{id}")
}

/// Before the lease in [`writer_key`].
pub const WRITERS: &str = "writer/";

/// The key that is there as long as a writer's lease lasts.
pub fn writer_key(lease: u64) -> String {
    format!("{WRITERS}{lease:016x}")
}

/// The key that says that a store has left the cluster: its number is never given again.
pub fn gone_key(store: StoreNumber) -> String {
    format!("gone/{store}")
}

/// The key under which a volume's number is found by its name.
pub fn volume_name_key(name: &Name) -> String {
    format!("volume-name/{name}")
}

/// In regular use no volume comes so many generations further than its record. At ten a second, more than commits ever are, that
/// takes ten months. Far below what a store can be sealed with.
const AHEAD_MOST: u64 = 1 << 28;

impl VolumeRecord {
    /// Is a fence sealed with more than any writer of this volume can have had?
    pub fn is_beyond_reason(&self, sealed: u64) -> bool {
        sealed > self.generation.0.saturating_add(AHEAD_MOST)
    }

    /// Why no node opens the volume by this record, though it is there.
    pub fn refusal(&self) -> Option<String> {
        let found = self.older_than.filter(|it| *it > self.generation)?;
        let now = self.generation;
        Some(match self.is_beyond_reason(found.0) {
            true => format!(
                "a store is sealed for generation {found}, and its record is at {now}: no writer of it was ever there; \
                 `tanada volume repair {}` puts the stores right",
                self.name
            ),
            false => format!(
                "its record is at generation {now}, and a store was used in {found} already: the meta store is older than the \
                 stores; bring back the newer one"
            ),
        })
    }

    /// A new volume with `copies` of each extent, of which a write must reach `min_isr`.
    pub fn new(id: VolumeId, name: Name, copies: u8, min_isr: u8, head: ImageId) -> VolumeRecord {
        VolumeRecord {
            version: VERSION,
            id,
            name,
            copies,
            terms: Terms::new(min_isr),
            head,
            generation: Generation(0),
            epoch: Generation(0),
            writer: None,
            out: BTreeMap::new(),
            stores: Some(BTreeSet::new()),
            older_than: None,
            seen: BTreeMap::new(),
            redundancy_floor: copies,
            state: VolumeState::Live,
        }
    }

    /// As it stands in the meta store.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a record is plain data")
    }

    /// Reads it back.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn decode(id: VolumeId, bytes: &[u8]) -> Result<VolumeRecord, RecordError> {
        let what = format!("the record of volume {id}");
        let record: VolumeRecord = read(&what, bytes)?;
        let refuse = |why: String| Err(RecordError::malformed(&what, why));
        if record.id != id {
            return refuse(format!("it is that of volume {}", record.id));
        }
        if !(1..=COPIES_MAX as u8).contains(&record.copies) {
            return refuse(format!(
                "{} copies; there are 1 to {COPIES_MAX}",
                record.copies
            ));
        }
        if record.terms.min_isr == 0 || record.terms.min_isr > record.copies {
            return refuse(format!(
                "a write must reach {} of {} copies",
                record.terms.min_isr, record.copies
            ));
        }
        if let Err(error) = Caps::from(record.terms.caps).check() {
            return refuse(error.to_string());
        }
        if record.redundancy_floor > record.copies {
            let (in_sync, copies) = (record.redundancy_floor, record.copies);
            return refuse(format!("{in_sync} of {copies} copies are in sync"));
        }
        for generation in record.out.values() {
            check_generation(&what, *generation)?;
        }
        check_current(&what, record.generation)?;
        if record.epoch > record.generation {
            let (epoch, generation) = (record.epoch, record.generation);
            return refuse(format!("epoch {epoch} is behind generation {generation}"));
        }
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> VolumeRecord {
        let mut record = VolumeRecord::new(VolumeId(3), "vm-1".parse().unwrap(), 3, 2, ImageId(9));
        record.generation = Generation(12);
        record.epoch = Generation(10);
        record.out.insert(StoreNumber(4), Generation(11));
        record.terms.fairness = Some("4".parse().unwrap());
        record.writer = Some(Writer {
            node: "n1".to_owned(),
            lease: u64::MAX,
            waits: true,
        });
        record
    }

    #[test]
    fn a_record_names_what_happens_on_meta_loss_only_where_requests_fail() {
        let usual = String::from_utf8(record().encode()).unwrap();
        assert!(!usual.contains("on_meta_loss"), "{usual}");
        let mut record = record();
        record.terms.on_meta_loss = OnMetaLoss::Fail;
        let text = String::from_utf8(record.encode()).unwrap();
        assert!(text.contains("\"on_meta_loss\":\"fail\""), "{text}");
        assert_eq!(
            VolumeRecord::decode(VolumeId(3), text.as_bytes()),
            Ok(record)
        );
    }

    #[test]
    fn a_record_names_caps_only_where_there_are_some() {
        assert!(
            !String::from_utf8(record().encode())
                .unwrap()
                .contains("caps")
        );
        let mut record = record();
        record.terms.caps = CapRecord {
            read: Some(100_000_000),
            write_iops: Some(500),
            ..CapRecord::default()
        };
        let text = String::from_utf8(record.encode()).unwrap();
        let said = "\"caps\":{\"read\":100000000,\"write_iops\":500}";
        assert!(text.contains(said), "{text}");
        let read = |text: &str| VolumeRecord::decode(VolumeId(3), text.as_bytes());
        assert_eq!(read(&text), Ok(record));
        for broken in [
            "{\"read\":0}",
            "{\"write_iops\":0}",
            "{\"reads\":1}",
            "{\"read\":-1}",
        ] {
            let broken = text.replace(said, &format!("\"caps\":{broken}"));
            assert!(read(&broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn a_writers_record_that_does_not_say_whether_it_waits_counts_as_waiting() {
        let writer: Writer = serde_json::from_str(r#"{"node": "n1", "lease": 7}"#).unwrap();
        assert!(writer.waits);
    }

    #[test]
    fn a_record_is_read_back_as_it_was_written() {
        let record = record();
        assert_eq!(
            VolumeRecord::decode(VolumeId(3), &record.encode()),
            Ok(record)
        );
    }

    #[test]
    fn a_record_stands_in_the_meta_store_as_it_did_before_it_had_groups() {
        let text = String::from_utf8(record().encode()).unwrap();
        assert_eq!(
            text,
            "{\"version\":1,\"id\":3,\"name\":\"vm-1\",\"copies\":3,\"min_isr\":2,\"priority\":\"normal\",\"fairness\":4000,\
             \"head\":9,\"generation\":12,\"epoch\":10,\
             \"writer\":{\"node\":\"n1\",\"lease\":18446744073709551615,\"waits\":true},\
             \"out\":{\"4\":11},\"stores\":[],\"weakest\":3,\"state\":\"live\"}"
        );
    }

    #[test]
    fn a_record_of_a_later_version_is_refused_and_says_so() {
        let text = String::from_utf8(record().encode()).unwrap();
        let later = text.replace("\"version\":1", "\"version\":2,\"more\":true");
        let message = VolumeRecord::decode(VolumeId(3), later.as_bytes())
            .unwrap_err()
            .to_string();
        assert_eq!(
            message,
            "the record of volume 00000003 has version 2, and this program knows 1; use a newer one, nothing was changed"
        );
    }

    #[test]
    fn a_record_that_cannot_be_is_refused() {
        let text = String::from_utf8(record().encode()).unwrap();
        for (from, to) in [
            ("\"id\":3", "\"id\":4"),
            ("\"copies\":3", "\"copies\":4"),
            ("\"min_isr\":2", "\"min_isr\":0"),
            ("\"weakest\":3", "\"weakest\":9"),
            ("\"fairness\":4000", "\"fairness\":999"),
            ("\"fairness\":4000", "\"fairness\":100001"),
            ("\"epoch\":10", "\"epoch\":13"),
            ("\"generation\":12", "\"generation\":1099511627776"),
            ("\"generation\":12", "\"generation\":1099511627775"),
            ("vm-1", "vm 1"),
            ("\"epoch\"", "\"epoche\""),
            ("\"epoch\"", "\"more\":1,\"epoch\""),
            ("\"min_isr\":2", "\"min_isr\":2,\"min_isr\":2"),
            ("\"epoch\":10", "\"epoch\":10,\"epoch\":10"),
            ("}", ""),
        ] {
            let changed = text.replace(from, to);
            assert_ne!(changed, text, "{from} is there");
            let refused = VolumeRecord::decode(VolumeId(3), changed.as_bytes());
            assert!(
                matches!(refused, Err(RecordError::Malformed { .. })),
                "{to}: {refused:?}"
            );
        }
        let long = vec![b' '; RECORD_MAX + 1];
        assert!(VolumeRecord::decode(VolumeId(3), &long).is_err());
    }
}
