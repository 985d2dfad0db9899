//! What operators say of a volume: its name, how much its clients matter and get at most, what requests do while the meta store is away.
//!
//! Always true: a value that exists is one that may stand in a record.

use std::fmt;
use std::str::FromStr;

use policy::share::BytesPerSec;
use policy::share::cap::{CapError, Caps, Limit};
use serde::{Deserialize, Serialize};

/// An operator's name for a volume or a snapshot: 1 to 64 of `a-z A-Z 0-9 . _ -`, the first one a letter or digit.
///
/// # Example
/// ```
/// use replication::terms::Name;
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

/// How much a volume's clients matter beside others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
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
/// use replication::terms::Fairness;
/// let fairness: Fairness = "2.5".parse()?;
/// assert_eq!((fairness.permille(), fairness.to_string()), (2_500, "2.5".to_owned()));
/// let message = "0.5".parse::<Fairness>().unwrap_err().to_string();
/// assert_eq!(message, "0.5 is no fairness; write 1 (clients are not kept apart) to 100: how often a seek behind another client counts");
/// # Ok::<(), replication::terms::BadFairness>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnMetaLoss {
    /// They wait until it answers again, however long that takes.
    #[default]
    Wait,
    /// They fail after some time.
    Fail,
}

impl OnMetaLoss {
    pub(crate) fn is_usual(&self) -> bool {
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

/// What a volume's clients get at most, in bytes and requests per second; `None`: as much as there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CapRecord {
    /// Of reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<u64>,
    /// Of writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write: Option<u64>,
    /// Reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_iops: Option<u64>,
    /// Writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_iops: Option<u64>,
}

impl CapRecord {
    /// Can each of them be?
    ///
    /// # Errors
    /// [`CapError`], of the first that cannot.
    pub fn check(&self) -> Result<(), CapError> {
        Caps::from(*self).check()
    }

    /// Nothing at all?
    pub fn is_none(&self) -> bool {
        *self == CapRecord::default()
    }
}

impl From<CapRecord> for Caps {
    fn from(of: CapRecord) -> Caps {
        let limit = |bytes: Option<u64>, requests| Limit {
            bytes: bytes.map(BytesPerSec),
            requests,
        };
        Caps {
            read: limit(of.read, of.read_iops),
            write: limit(of.write, of.write_iops),
        }
    }
}

impl From<Caps> for CapRecord {
    fn from(caps: Caps) -> CapRecord {
        CapRecord {
            read: caps.read.bytes.map(|rate| rate.0),
            write: caps.write.bytes.map(|rate| rate.0),
            read_iops: caps.read.requests,
            write_iops: caps.write.requests,
        }
    }
}

/// What operators set of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Terms {
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
    /// What its clients get at most. Programs that know no caps refuse a record with some.
    #[serde(default, skip_serializing_if = "CapRecord::is_none")]
    pub caps: CapRecord,
}

impl Terms {
    /// Writes must reach so many copies, and everything else is as usual.
    pub fn new(min_isr: u8) -> Terms {
        Terms {
            min_isr,
            priority: PriorityClass::Normal,
            fairness: None,
            reservation: None,
            on_meta_loss: OnMetaLoss::Wait,
            caps: CapRecord::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
