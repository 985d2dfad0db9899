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
use std::fmt;
use std::str::FromStr;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::names::{COPIES_MAX, EXTENT, Generation, ImageId, StoreNumber, VolumeId};

/// The version of all records here.
const VERSION: u32 = 1;
/// No record is longer; what is, is refused unread.
pub const RECORD_MAX: usize = 512 * 1024;
/// The greatest volume: 2^50 bytes.
pub const SIZE_MAX: u64 = 1 << 50;
/// Sizes are multiples of this.
pub const SIZE_UNIT: u64 = 4096;

/// An operator's name for a volume or a snapshot: 1 to 64 of `a-z A-Z 0-9 . _ -`, the first one a letter or digit.
///
/// # Example
/// ```
/// use vdisk::record::Name;
/// assert!("golden-24.04".parse::<Name>().is_ok());
/// let message = "a/b".parse::<Name>().unwrap_err().to_string();
/// assert_eq!(message, "\"a/b\" is no name: it has 1 to 64 of a-z A-Z 0-9 . _ -, and begins with a letter or digit");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

/// Why something is no name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no name: it has 1 to 64 of a-z A-Z 0-9 . _ -, and begins with a letter or digit")]
pub struct BadName(pub String);

impl Name {
    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Name {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Name, BadName> {
        let begins = text
            .bytes()
            .next()
            .is_some_and(|b| b.is_ascii_alphanumeric());
        let all = text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
        match begins && all && text.len() <= 64 {
            true => Ok(Name(text.to_owned())),
            false => Err(BadName(text.chars().take(100).collect())),
        }
    }
}

impl TryFrom<String> for Name {
    type Error = BadName;

    fn try_from(text: String) -> Result<Name, BadName> {
        text.parse()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> String {
        name.0
    }
}

/// The writer of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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

/// How much a volume's clients matter beside others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PriorityClass {
    /// Less than others.
    Low,
    /// As others.
    #[default]
    Normal,
    /// Preferred.
    High,
}

/// How far clients of one class are kept apart: what a seek behind another one's request counts, 1 to 100 times one behind
/// their own. Kept in thousandths.
///
/// Choice: COST gives q no values. At 1 no client is kept apart; at 100 a seek of 8 ms counts as most of a second, longer
/// than queues in use are, and more changes no choice.
///
/// # Source
/// COST 3.1 (q above 1 between different clients: bandwidth fairness); that it is set per volume and export is ours.
///
/// # Example
/// ```
/// use vdisk::record::Fairness;
/// let fairness: Fairness = "2.5".parse()?;
/// assert_eq!((fairness.permille(), fairness.to_string()), (2_500, "2.5".to_owned()));
/// let message = "0.5".parse::<Fairness>().unwrap_err().to_string();
/// assert_eq!(message, "0.5 is no fairness; write 1 (clients are not kept apart) to 100: how often a seek behind another client counts");
/// # Ok::<(), vdisk::record::BadFairness>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Fairness(u32);

/// Why something is no fairness.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0} is no fairness; write 1 (clients are not kept apart) to 100: how often a seek behind another client counts"
)]
pub struct BadFairness(pub String);

impl Fairness {
    /// In thousandths.
    pub fn permille(self) -> u32 {
        self.0
    }

    /// As operators write it.
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / 1_000.0
    }
}

impl fmt::Display for Fairness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.as_f64())
    }
}

impl TryFrom<u32> for Fairness {
    type Error = BadFairness;

    fn try_from(permille: u32) -> Result<Fairness, BadFairness> {
        match permille {
            1_000..=100_000 => Ok(Fairness(permille)),
            _ => Err(BadFairness((f64::from(permille) / 1_000.0).to_string())),
        }
    }
}

impl TryFrom<f64> for Fairness {
    type Error = BadFairness;

    fn try_from(number: f64) -> Result<Fairness, BadFairness> {
        match (1.0..=100.0).contains(&number) {
            true => Ok(Fairness((number * 1_000.0).round() as u32)),
            false => Err(BadFairness(number.to_string())),
        }
    }
}

impl FromStr for Fairness {
    type Err = BadFairness;

    fn from_str(text: &str) -> Result<Fairness, BadFairness> {
        let number = text.parse::<f64>();
        let number = number.map_err(|_| BadFairness(format!("'{text}'")))?;
        Fairness::try_from(number)
    }
}

impl From<Fairness> for u32 {
    fn from(fairness: Fairness) -> u32 {
        fairness.0
    }
}

impl From<PriorityClass> for policy::place::Class {
    fn from(class: PriorityClass) -> Self {
        match class {
            PriorityClass::Low => policy::place::Class::Low,
            PriorityClass::Normal => policy::place::Class::Normal,
            PriorityClass::High => policy::place::Class::High,
        }
    }
}

/// What requests do that cannot be answered because the meta store does not answer, and the writer's lease has run out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnMetaLoss {
    /// They wait until it answers again, however long that takes.
    #[default]
    Wait,
    /// They fail after some time.
    Fail,
}

impl OnMetaLoss {
    fn is_usual(&self) -> bool {
        *self == OnMetaLoss::default()
    }

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            OnMetaLoss::Wait => "wait",
            OnMetaLoss::Fail => "fail",
        }
    }
}

impl FromStr for OnMetaLoss {
    type Err = String;

    fn from_str(text: &str) -> Result<OnMetaLoss, String> {
        match text {
            "wait" => Ok(OnMetaLoss::Wait),
            "fail" => Ok(OnMetaLoss::Fail),
            other => Err(format!(
                "'{other}' is not what requests do while the meta store is away; write wait or fail"
            )),
        }
    }
}

/// What a volume is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VolumeState {
    /// It may be opened.
    #[default]
    Live,
    /// It is being removed; no node opens it.
    Deleting,
}

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeRecord {
    /// 1.
    pub(crate) version: u32,

    // Fixed from its making.
    /// Its number.
    pub id: VolumeId,
    /// Its name.
    pub name: Name,
    /// Copies of each extent.
    pub copies: u8,

    // As operators set them.
    /// How many copies a write must reach at least.
    pub min_isr: u8,
    /// Its clients beside others, where they meet at one disk.
    #[serde(default)]
    pub priority: PriorityClass,
    /// How far they and others of their class are kept apart; `None`: they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fairness: Option<Fairness>,
    /// The holder of the reservations, at each store, that are attached to its requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<String>,
    /// What requests do while the meta store is away.
    #[serde(default, skip_serializing_if = "OnMetaLoss::is_usual")]
    pub on_meta_loss: OnMetaLoss,

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
        "{what} has version {found}, and this program knows {VERSION}; use a newer one, nothing was changed"
    )]
    Version {
        /// Which record.
        what: String,
        /// Its version.
        found: u32,
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
    pub(crate) fn malformed(what: &str, why: impl Into<String>) -> RecordError {
        RecordError::Malformed {
            what: what.to_owned(),
            why: why.into(),
        }
    }
}

/// Reads a record that has a version in it.
pub(crate) fn read<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T, RecordError> {
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
    if found.version != VERSION {
        return Err(RecordError::Version {
            what: what.to_owned(),
            found: found.version,
        });
    }
    serde_json::from_slice(bytes).map_err(malformed)
}

/// A generation that can be.
pub(crate) fn check_generation(what: &str, generation: Generation) -> Result<(), RecordError> {
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
pub(crate) fn check_current(what: &str, generation: Generation) -> Result<(), RecordError> {
    check_generation(what, generation)?;
    match generation <= Generation::RECORD_MAX {
        true => Ok(()),
        false => {
            let why = format!("too few generations are left behind {generation}");
            Err(RecordError::malformed(what, why))
        }
    }
}

/// Why no image can have this size.
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
pub(crate) const WRITERS: &str = "writer/";

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
            min_isr,
            priority: PriorityClass::Normal,
            fairness: None,
            reservation: None,
            on_meta_loss: OnMetaLoss::Wait,
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
        if record.min_isr == 0 || record.min_isr > record.copies {
            return refuse(format!(
                "a write must reach {} of {} copies",
                record.min_isr, record.copies
            ));
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
        record.fairness = Some("4".parse().unwrap());
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
        record.on_meta_loss = OnMetaLoss::Fail;
        let text = String::from_utf8(record.encode()).unwrap();
        assert!(text.contains("\"on_meta_loss\":\"fail\""), "{text}");
        assert_eq!(
            VolumeRecord::decode(VolumeId(3), text.as_bytes()),
            Ok(record)
        );
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

    #[test]
    fn fairness_is_a_number_from_1_to_100_and_nothing_else() {
        for (text, permille) in [
            ("1", 1_000),
            ("2.5", 2_500),
            ("1.0004", 1_000),
            ("100", 100_000),
        ] {
            let fairness: Fairness = text.parse().unwrap();
            assert_eq!(fairness.permille(), permille, "{text}");
        }
        for text in ["", "0", "0.999", "-4", "100.1", "1e9", "NaN", "inf", "four"] {
            let message = text.parse::<Fairness>().unwrap_err().to_string();
            assert!(message.contains("is no fairness; write 1"), "{message}");
        }
    }

    #[test]
    fn names_are_short_and_plain() {
        for name in ["", "-a", ".a", "a/b", "a b", "\u{e4}", &"a".repeat(65)] {
            assert!(name.parse::<Name>().is_err(), "{name:?}");
        }
        for name in ["a", "0", "A_b-c.d", &"a".repeat(64)] {
            assert!(name.parse::<Name>().is_ok(), "{name:?}");
        }
    }
}
