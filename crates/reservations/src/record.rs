//! What all nodes agree on about a reservation: whose it is, how far it has come, which parts stores keep.
//!
//! ```text
//! reservation/<id>                      this record, JSON with a version; changed by compare-and-swap only
//! reservation-name/<account>/<name>     the id it stands for, while the reservation is not over
//! reservation-volume/<number>           the id of the last one that was made or changed of a volume
//! reservation-export/<node>/<name>      the same of an export
//! reservation-allotment/<id>            what is booked inside an allotment ([`crate::allotment`])
//! ```
//!
//! ```text
//! (none)    -> Holding    put if absent, before any part is held
//! Holding   -> Committed  all parts are held, and enough of `hold_until` is left
//! Holding   -> Aborted    a part was refused, the node that made it is gone, or `hold_until` is over
//! Committed <-> Degraded  stores of parts are gone or promise less; parts are reserved elsewhere
//! Committed, Degraded -> Ended   released, or its slot is over
//! Aborted, Ended -> (none)       a day later
//! ```
//!
//! Always true:
//! 1. A record of another version, or with a field that is not known, is refused and never written over.
//! 2. A part stands exactly if a committed or degraded record lists it.

use policy::share::calendar::BookingId;
use policy::share::{BytesPerSec, Direction, Probability, Second, Slot};
use serde::{Deserialize, Serialize};
use store::qos::manager::{PartName, Unconfirmed};
use vdisk::StoreNumber;
use vdisk::record::Name;

pub use crate::target::{Place, QUEUE, Target};

/// The version of records.
const VERSION: u32 = 1;
/// Records begin so.
pub const PREFIX: &str = "reservation/";
const NAMES: &str = "reservation-name/";
/// No record is longer.
const RECORD_MAX: usize = 256 * 1024;
/// The longest name in a record, in bytes.
pub const NAME_MAX: usize = 128;

/// The number of a reservation, drawn by the node that makes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ReservationId(pub u128);

impl From<ReservationId> for String {
    fn from(id: ReservationId) -> String {
        id.to_string()
    }
}

impl TryFrom<String> for ReservationId {
    type Error = String;
    fn try_from(text: String) -> Result<ReservationId, String> {
        ReservationId::parse(&text).ok_or_else(|| format!("{text:?} is no id of a reservation"))
    }
}

impl ReservationId {
    /// The key of its record.
    pub fn key(self) -> String {
        format!("{PREFIX}{:032x}", self.0)
    }

    /// From a key, or from what [`Display`](std::fmt::Display) writes.
    pub fn parse(text: &str) -> Option<ReservationId> {
        let digits = text
            .strip_prefix(PREFIX)
            .or_else(|| text.strip_prefix("r-"))?;
        let plain = digits
            .bytes()
            .all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f'));
        let number = u128::from_str_radix(digits, 16).ok()?;
        (digits.len() == 32 && plain).then_some(ReservationId(number))
    }
}

impl std::fmt::Display for ReservationId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "r-{:032x}", self.0)
    }
}

/// The key under which an account's reservation of this name is found.
pub fn name_key(account: &str, name: &str) -> String {
    format!("{NAMES}{account}/{name}")
}

/// How far a reservation has come; see the module's arrows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Its parts are being held.
    Holding,
    /// It is promised.
    Committed,
    /// Promised, and not all of it can be delivered now.
    Degraded,
    /// It was never promised.
    Aborted,
    /// It was promised and is over.
    Ended,
}

impl Phase {
    /// The word in answers.
    pub const fn name(self) -> &'static str {
        match self {
            Phase::Holding => "holding",
            Phase::Committed => "committed",
            Phase::Degraded => "degraded",
            Phase::Aborted => "aborted",
            Phase::Ended => "ended",
        }
    }

    /// Do the parts that its record lists stand?
    pub const fn stands(self) -> bool {
        matches!(self, Phase::Committed | Phase::Degraded)
    }
}

/// How a volume's rate becomes parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlanKind {
    /// The promise holds for any pattern of requests.
    #[default]
    Any,
    /// It holds where all extents are asked for evenly.
    Spread,
}

/// What is promised, of whatever.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Promise {
    /// Reads in bytes per second; 0: none.
    pub read: u64,
    /// Writes in bytes per second; 0: none.
    pub write: u64,
    /// The first second of its slot, since 1970.
    pub from: u64,
    /// The first second behind it.
    pub until: u64,
    /// How many stores of a volume may be lost with the promise kept.
    pub tolerate: u8,
    /// How parts are made of it.
    pub plan: PlanKind,
    /// The window it is judged by.
    pub window_ns: u64,
    /// The share of windows to be kept, in millionths.
    pub probability_ppm: u32,
    /// Room at each store, in bytes.
    pub space: u64,
}

impl Promise {
    /// Its slot.
    pub fn slot(&self) -> Slot {
        Slot {
            start: Second(self.from),
            end: Second(self.until),
        }
    }

    /// Its rate in a direction.
    pub fn rate(&self, direction: Direction) -> BytesPerSec {
        BytesPerSec(match direction {
            Direction::Read => self.read,
            Direction::Write => self.write,
        })
    }

    /// The share of windows to be kept.
    pub fn probability(&self) -> Probability {
        Probability(self.probability_ppm)
    }
}

/// What one store keeps of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// The store.
    pub store: StoreNumber,
    /// Its number in that store's calendar.
    pub number: u64,
    /// Reads, else writes.
    pub reads: bool,
    /// In bytes per second.
    pub rate: u64,
    /// The first second behind its slot: another one than the promise's where it could not be changed yet.
    pub until: u64,
}

impl Part {
    /// Which way.
    pub fn direction(&self) -> Direction {
        match self.reads {
            true => Direction::Read,
            false => Direction::Write,
        }
    }

    /// Does it promise this rate until then, or more?
    pub(crate) fn gives(&self, rate: u64, until: u64) -> bool {
        self.rate >= rate && self.until >= until
    }

    /// The number in the store's calendar.
    pub fn booking(&self) -> BookingId {
        BookingId(self.number)
    }

    /// What its store knows it by, as part of `whole`.
    pub fn name(&self, whole: ReservationId) -> PartName {
        PartName::of(self.booking(), whole.0)
    }
}

/// What else holds for a reservation; by default nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Terms {
    /// It ends when nothing of it was asked for so many seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<u64>,
    /// It is an allotment: it has no clients itself, its account books out of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allotment: bool,
    /// It is booked inside this allotment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<ReservationId>,
    /// An account that may have its capability beside its own: an agent that hands it to its user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Its capabilities are good at stores that do not reach its record, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub offline: bool,
}

impl Terms {
    fn are_plain(&self) -> bool {
        *self == Terms::default()
    }
}

/// A reservation as its record has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reservation {
    pub(crate) version: u32,
    /// Unique among the account's reservations that are not over.
    pub name: String,
    /// Whose it is; empty: the cluster's owner.
    pub account: String,
    /// What for.
    pub target: Target,
    /// What is promised.
    pub promise: Promise,
    /// What else holds for it.
    #[serde(default, skip_serializing_if = "Terms::are_plain")]
    pub terms: Terms,
    /// How far it has come.
    pub state: Phase,
    /// Why it is degraded, aborted or over; in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// Its parts are held until then at least, in seconds since 1970.
    pub hold_until: u64,
    /// The node that makes it.
    pub by: String,
    /// The node that is changing a reservation that stands: parts may be held that are not listed yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changing: Option<String>,
    /// Of what it consists. Of one that is over: what is not known to be released.
    pub parts: Vec<Part>,
    /// When it was aborted or ended, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_since: Option<u64>,
}

/// Why a record is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the record {key} of the meta store is not as it should be: {why}; nothing was changed")]
pub struct BadRecord {
    /// Its key.
    pub key: String,
    /// What is wrong.
    pub why: String,
}

impl Reservation {
    /// One whose parts are to be held.
    pub fn holding(
        (name, account): (&str, &str),
        target: Target,
        promise: Promise,
        by: &str,
        hold_until: Second,
    ) -> Reservation {
        Reservation {
            version: VERSION,
            name: name.to_owned(),
            account: account.to_owned(),
            target,
            promise,
            terms: Terms::default(),
            state: Phase::Holding,
            cause: None,
            hold_until: hold_until.0,
            by: by.to_owned(),
            changing: None,
            parts: Vec::new(),
            over_since: None,
        }
    }

    /// Does it list this part, as that store has it? Of a number that was given twice it lists one at most.
    pub fn lists(&self, store: StoreNumber, part: &Unconfirmed) -> bool {
        let terms = (part.direction, part.rate.0, part.slot.end.0);
        let mut parts = self.parts.iter();
        parts.any(|it| {
            (it.store, it.booking()) == (store, part.id)
                && (it.direction(), it.rate, it.until) == terms
        })
    }

    /// It was never promised, or it is over, for `why`.
    #[must_use]
    pub fn over(self, why: &str, now: Second) -> Reservation {
        let state = match self.state {
            Phase::Holding | Phase::Aborted => Phase::Aborted,
            Phase::Committed | Phase::Degraded | Phase::Ended => Phase::Ended,
        };
        Reservation {
            state,
            cause: Some(why.to_owned()),
            over_since: Some(now.0),
            changing: None,
            ..self
        }
    }

    /// As it is written.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain data")
    }

    /// As it was written under `key`.
    ///
    /// # Errors
    /// [`BadRecord`]: too long, of another version, or with figures that no program writes.
    pub fn decode(key: &str, bytes: &[u8]) -> Result<Reservation, BadRecord> {
        #[derive(Deserialize)]
        struct Head {
            version: u32,
        }
        let bad = |why: String| BadRecord {
            key: key.to_owned(),
            why,
        };
        if bytes.len() > RECORD_MAX {
            return Err(bad(format!("it has {} bytes", bytes.len())));
        }
        let head: Head = serde_json::from_slice(bytes).map_err(|error| bad(error.to_string()))?;
        if head.version != VERSION {
            return Err(bad(format!(
                "it has version {}, and this program knows {VERSION}; use a newer one",
                head.version
            )));
        }
        let it: Reservation =
            serde_json::from_slice(bytes).map_err(|error| bad(error.to_string()))?;
        it.check().map_err(bad)?;
        Ok(it)
    }

    /// Is it one that can be written and read back?
    ///
    /// # Errors
    /// What makes no sense about it, and what would, in words.
    pub fn check(&self) -> Result<(), String> {
        let promise = &self.promise;
        if promise.until <= promise.from {
            return Err("it lasts no time; give it a second at least".to_owned());
        }
        if promise.read == 0 && promise.write == 0 {
            return Err("it promises nothing; give a rate of reads, of writes, or both".to_owned());
        }
        if promise.window_ns == 0 {
            return Err("a window of no time; give it a second".to_owned());
        }
        let terms = &self.terms;
        if terms.allotment && (terms.idle.is_some() || terms.within.is_some()) {
            return Err(
                "an allotment has no clients of its own and is inside no other; leave idle and the other allotment out"
                    .to_owned(),
            );
        }
        if terms.allotment && matches!(self.target, Target::Export { .. }) {
            return Err("an allotment is of stores or of a volume; name those".to_owned());
        }
        if terms.within.is_some() && matches!(self.target, Target::Export { .. }) {
            return Err(
                "an export is at no store of an allotment; reserve for it outside of any"
                    .to_owned(),
            );
        }
        if terms.offline && !matches!(self.target, Target::Stores { .. }) {
            return Err(
                "only stores give capabilities, which offline is about; leave it out".to_owned(),
            );
        }
        if let Some(agent) = &terms.agent
            && (agent.is_empty() || !check_account(agent))
        {
            return Err(format!(
                "{agent:?} is the name of no account that could be its agent; name one, or leave it out"
            ));
        }
        if terms.idle == Some(0) {
            return Err("it would end at once; give idle a second at least".to_owned());
        }
        if promise.probability_ppm > 1_000_000 {
            return Err("it promises more than all windows; ask for at most 100 %".to_owned());
        }
        check_name(&self.name)?;
        match check_account(&self.account) {
            true => Ok(()),
            false => Err(format!(
                "{:?} is the name of no account; leave it out",
                self.account
            )),
        }
    }
}

/// Is this a name for a new reservation? As of a volume, and neither like an id (`r-...`) nor a number alone, which the
/// command line takes for a part of a store.
///
/// # Errors
/// What is wrong, in words.
pub fn check_new_name(name: &str) -> Result<(), String> {
    check_name(name)?;
    name.parse::<Name>().map_err(|error| error.to_string())?;
    match name.bytes().all(|it| it.is_ascii_digit()) {
        true => Err(format!(
            "{name:?} is a number alone; choose a name with a letter, such as job-{name}"
        )),
        false => Ok(()),
    }
}

/// Is this a name that a record may have? Letters, digits, `.`, `_` and `-`, not beginning with `r-`.
///
/// # Errors
/// What is wrong, in words.
fn check_name(name: &str) -> Result<(), String> {
    let fits = |it: u8| it.is_ascii_alphanumeric() || matches!(it, b'.' | b'_' | b'-');
    if name.is_empty() || name.len() > NAME_MAX || !name.bytes().all(fits) {
        return Err(format!(
            "{name:?} is no name of a reservation; write 1 to {NAME_MAX} letters, digits, '.', '_' or '-'"
        ));
    }
    match name.starts_with("r-") {
        true => Err(format!(
            "{name:?} begins with r-, as ids do; choose another name"
        )),
        false => Ok(()),
    }
}

fn check_account(account: &str) -> bool {
    account.len() <= 2 * NAME_MAX && account.bytes().all(|it| it.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn some() -> Reservation {
        let promise = Promise {
            read: 200_000_000,
            write: 0,
            from: 100,
            until: 200,
            tolerate: 1,
            plan: PlanKind::Any,
            window_ns: 1_000_000_000,
            probability_ppm: 990_000,
            space: 0,
        };
        let target = Target::Volume {
            name: "vm1".to_owned(),
            id: 7,
        };
        Reservation::holding(("nightly", "astro"), target, promise, "n1", Second(130))
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_no_other_is() {
        let mut it = some();
        it.parts.push(Part {
            store: StoreNumber(3),
            number: 41,
            reads: true,
            rate: 125_000_000,
            until: 200,
        });
        let key = ReservationId(9).key();
        let bytes = it.encode();
        assert_eq!(Reservation::decode(&key, &bytes), Ok(it.clone()));
        let text = String::from_utf8(bytes).unwrap();
        for (from, to) in [
            ("\"version\":1", "\"version\":2"),
            ("\"until\":200", "\"until\":100"),
            ("\"read\":200000000", "\"read\":0"),
            ("\"name\":\"nightly\"", "\"name\":\"a/b\""),
            ("\"by\":", "\"bye\":1,\"by\":"),
            ("990000", "1990000"),
            ("\"state\":", "\"terms\":{\"agent\":\"\"},\"state\":"),
            ("\"state\":", "\"terms\":{\"agent\":\"a b\"},\"state\":"),
        ] {
            assert!(text.contains(from), "{from} is not in {text}");
            let other = text.replacen(from, to, 1);
            assert!(Reservation::decode(&key, other.as_bytes()).is_err(), "{to}");
        }
    }

    #[test]
    fn what_is_over_is_aborted_or_ended_as_far_as_it_had_come() {
        let over = some().over("because", Second(140));
        assert_eq!((over.state, over.over_since), (Phase::Aborted, Some(140)));
        let committed = Reservation {
            state: Phase::Committed,
            ..some()
        };
        assert_eq!(committed.over("because", Second(1)).state, Phase::Ended);
    }

    proptest! {
        #[test]
        fn ids_are_read_as_they_are_written(number: u128) {
            let id = ReservationId(number);
            prop_assert_eq!(ReservationId::parse(&id.to_string()), Some(id));
            prop_assert_eq!(ReservationId::parse(&id.key()), Some(id));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>, text: String) {
            let _ = Reservation::decode("reservation/x", &bytes);
            let _ = ReservationId::parse(&text);
            let _ = check_name(&text);
        }
    }
}
