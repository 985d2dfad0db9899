//! Does one more booking fit into an account's quota?
//!
//! ```text
//! quota/NAME   {"version":1,"quota":{"rate":500000000,"count":20,..}}
//! fits(quota, usage, new, now) -> fine | QuotaExcess: what was asked, what is used, what is left
//! ```
//!
//! Pure: no clock, no meta store.
//!
//! Always true:
//! 1. What fits leaves every limit kept: at each second of the slot, and in each stretch of 30 days.
//! 2. Less of what is booked already always fits, also where the quota has become smaller since.
//!
//! "GB in 30 days" counts the promised bytes (rate times time) of the fullest 30 days that touch the slot. What is
//! over counts by whole days (UTC), so a day may count up to one day longer.

use std::fmt;

use serde::{Deserialize, Serialize};
use vdisk::meta::{MetaError, MetaStore, whole_range};
use vdisk::record::{CapRecord, RecordError, read};

use crate::token::span_words;
use crate::usage::Usage;

/// Before the name, in a meta store.
pub const QUOTAS: &str = "quota/";
/// The stretch in which bytes are counted, in seconds: 30 days.
pub const STRETCH: u64 = 30 * 24 * 3600;

/// What an account may have. What is left out has no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quota {
    /// Bytes per second at once, all its bookings together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,
    /// Bytes booked in any 30 days.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub booked: Option<u64>,
    /// A booking begins at most so many seconds from now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead: Option<u64>,
    /// And lasts at most so many seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<u64>,
    /// At most so many that are not over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Bytes of room at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub room: Option<u64>,
    /// Its part of what is not promised, relative to other accounts; left out: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// Bytes and requests per second that it reads and writes at most, at each daemon. Programs that do not know them refuse
    /// a record with some.
    #[serde(default, skip_serializing_if = "CapRecord::is_none")]
    pub caps: CapRecord,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct QuotaRecord {
    version: u32,
    quota: Quota,
}

impl Quota {
    /// The key of an account's quota.
    pub fn key(name: &crate::name::AccountName) -> String {
        format!("{QUOTAS}{name}")
    }

    /// As it is kept.
    pub fn encode(&self) -> Vec<u8> {
        let record = QuotaRecord {
            version: 1,
            quota: *self,
        };
        serde_json::to_vec(&record).expect("plain data")
    }

    /// Reads the record under `key`.
    ///
    /// # Errors
    /// [`RecordError`]: of another version, or not as this program writes it.
    pub fn decode(key: &str, bytes: &[u8]) -> Result<Quota, RecordError> {
        let record: QuotaRecord = read(key, bytes)?;
        Ok(record.quota)
    }
}

/// An account weighs at most so much.
pub const WEIGHT_MAX: u32 = 1000;

impl Quota {
    /// Can its weight and its caps be?
    ///
    /// # Errors
    /// What is wrong and what would do.
    pub fn check(&self) -> Result<(), String> {
        if self
            .weight
            .is_some_and(|it| !(1..=WEIGHT_MAX).contains(&it))
        {
            return Err(format!("a weight is a number from 1 to {WEIGHT_MAX}"));
        }
        self.caps.check().map_err(|error| error.to_string())
    }
}

/// The quotas in `meta`, by the names of accounts; why, of one that this program cannot read.
///
/// # Errors
/// [`MetaError`].
pub async fn all(
    meta: &dyn MetaStore,
) -> Result<Vec<(String, Result<Quota, RecordError>)>, MetaError> {
    let (entries, _) = whole_range(meta, QUOTAS).await?;
    let read = entries.iter().filter_map(|entry| {
        let name = entry.key.strip_prefix(QUOTAS)?;
        let quota = Quota::decode(&entry.key, &entry.value);
        Some((name.to_owned(), quota))
    });
    Ok(read.collect())
}

/// What a booking takes of a quota. Times are seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Commitment {
    /// Which booking; asking again with the same one changes it.
    pub id: u128,
    /// Bytes per second, all its parts together.
    pub rate: u64,
    /// Its first second.
    pub from: u64,
    /// The first second behind it.
    pub until: u64,
    /// Bytes of room.
    pub space: u64,
}

impl Commitment {
    /// Is this no more than `earlier`, in every way?
    pub fn is_within(&self, earlier: &Commitment) -> bool {
        self.rate <= earlier.rate
            && self.space <= earlier.space
            && self.from >= earlier.from
            && self.until <= earlier.until
    }
}

/// Which limit a booking would exceed: what was asked, what is used beside it, and the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaExcess {
    /// Which.
    pub limit: Limit,
    /// What this booking alone takes.
    pub asked: u64,
    /// What the others take then.
    pub used: u64,
    /// What there may be.
    pub most: u64,
}

/// A limit of a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// [`Quota::rate`].
    Rate,
    /// [`Quota::booked`].
    Booked,
    /// [`Quota::ahead`].
    Ahead,
    /// [`Quota::length`].
    Length,
    /// [`Quota::count`].
    Count,
    /// [`Quota::room`].
    Room,
}

impl QuotaExcess {
    /// What would still fit.
    pub fn left(&self) -> u64 {
        self.most.saturating_sub(self.used)
    }
}

/// Millions and thousands, as rates and data are sold.
fn decimal(bytes: u64) -> String {
    let units = [
        (1_000_000_000_000, "TB"),
        (1_000_000_000, "GB"),
        (1_000_000, "MB"),
    ];
    for (size, unit) in units {
        if bytes >= size {
            let text = format!("{:.1}", bytes as f64 / size as f64);
            return format!("{} {unit}", text.trim_end_matches(".0"));
        }
    }
    format!("{bytes} B")
}

/// The same, no more than there is: what is offered is granted when it is typed back.
fn at_most(bytes: u64) -> String {
    let units = [
        (1_000_000_000_000, "TB"),
        (1_000_000_000, "GB"),
        (1_000_000, "MB"),
    ];
    let unit = units.into_iter().find(|unit| bytes >= unit.0);
    let Some((size, unit)) = unit else {
        return format!("{bytes} B");
    };
    let thousandths = u128::from(bytes) * 1_000 / u128::from(size);
    let text = format!("{}.{:03}", thousandths / 1_000, thousandths % 1_000);
    format!(
        "{} {unit}",
        text.trim_end_matches('0').trim_end_matches('.')
    )
}

impl fmt::Display for QuotaExcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (asked, used, most) = (self.asked, self.used, self.most);
        let (asked_words, used_words) = (decimal(asked), decimal(used));
        let (most_words, left) = (decimal(most), at_most(self.left()));
        match self.limit {
            Limit::Rate => write!(
                f,
                "it asks for {asked_words}/s, and of {most_words}/s at once {used_words}/s are booked in that time; ask for \
                 at most {left}/s"
            ),
            Limit::Booked => write!(
                f,
                "it comes to {asked_words}, and of {most_words} in 30 days {used_words} are booked; ask for at most {left}"
            ),
            Limit::Ahead => write!(
                f,
                "it begins in {}, and {} ahead is the most; ask for an earlier slot",
                span_words(asked),
                span_words(most)
            ),
            Limit::Length => write!(
                f,
                "it lasts {}, and {} is the most; ask for less",
                span_words(asked),
                span_words(most)
            ),
            Limit::Count => write!(
                f,
                "it would be one more, and {used} of {most} bookings are there; cancel one, or wait until one is over"
            ),
            Limit::Room => write!(
                f,
                "it asks for {asked_words} of room, and of {most_words} at once {used_words} are taken in that time; ask \
                 for at most {left}"
            ),
        }
    }
}

/// Does `new` fit beside what `usage` has, at `now`? A commitment of the same identity is replaced by it.
///
/// `usage` may hold commitments that are over; they count as bytes booked alone.
///
/// # Errors
/// [`QuotaExcess`]: the first limit that would be exceeded.
pub fn fits(quota: &Quota, usage: &Usage, new: &Commitment, now: u64) -> Result<(), QuotaExcess> {
    let earlier = usage.get(new.id);
    if earlier.is_some_and(|earlier| new.is_within(&earlier)) {
        return Ok(());
    }
    let check = |limit, most: Option<u64>, asked: u64, used: u64| match most {
        Some(most) if used.checked_add(asked).is_none_or(|sum| sum > most) => Err(QuotaExcess {
            limit,
            asked,
            used,
            most,
        }),
        _ => Ok(()),
    };
    let begins = earlier.map_or(new.from, |earlier| earlier.from.min(new.from));
    check(Limit::Ahead, quota.ahead, new.from.saturating_sub(now), 0)?;
    check(Limit::Length, quota.length, new.until - begins, 0)?;
    let others = usage.without(new.id, now);
    check(Limit::Count, quota.count, 1, others.count())?;
    if quota.rate.is_some() {
        let used = others.most_at_once(new, |it| it.rate);
        check(Limit::Rate, quota.rate, new.rate, used)?;
    }
    if quota.room.is_some() {
        let used = others.most_at_once(new, |it| it.space);
        check(Limit::Room, quota.room, new.space, used)?;
    }
    if let Some(most) = quota.booked {
        let (asked, used) = usage.with(new, now).fullest_stretch(new, &others);
        check(Limit::Booked, Some(most), asked, used)?;
    }
    Ok(())
}
