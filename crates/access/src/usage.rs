//! What counts against an account's quota: its bookings that are not over, and the bytes of those that are.
//!
//! ```text
//! usage/NAME   version, days that are over: (day, bytes), bookings: (id, rate, room, from, length, counted)
//!
//! with(new)     a booking made or changed        without(id)  one that ends early      as_if_never(id)  one that never began
//!     \-> what is over by now goes to the days: as much as was promised on each, for 30 days
//! ```
//!
//! Pure. A project's bookings are in its own record and in that of the account it belongs to.
//!
//! Always true:
//! 1. A record is at most [`USAGE_BYTES_MAX`] long: two of them and a booking's own fit into one transaction.
//! 2. What a changed booking was promised before the change stays counted as it was.

use std::collections::BTreeMap;

use vdisk::record::RecordError;

use crate::name::AccountName;
use crate::quota::{Commitment, STRETCH};

/// Before the name, in a meta store.
pub const USAGES: &str = "usage/";
/// The most bookings of an account that are not over.
pub const COMMITMENTS_MAX: usize = 10_000;
/// The longest record.
pub const USAGE_BYTES_MAX: usize = HEAD + DAYS_MAX * DAY_BYTES + COMMITMENTS_MAX * ENTRY_BYTES;

const VERSION: u32 = 1;
/// Version, number of days, number of bookings.
const HEAD: usize = 12;
/// A day and its bytes.
const DAY_BYTES: usize = 12;
/// Identity 16, rate 8, room 8, from 8, length 4, counted 4.
const ENTRY_BYTES: usize = 48;
const DAY: u64 = 24 * 3600;
/// Days that touch the last 30 days, and one for a clock that is set.
const DAYS_MAX: usize = 33;

/// A booking that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    commitment: Commitment,
    /// From here on its bytes count as of this booking; those before went to the days.
    counted: u64,
}

/// What counts against a quota.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Usage {
    /// Bytes promised on days that are over or begun, by the day's number since 1970.
    days: BTreeMap<u32, u64>,
    /// In the order of their identities.
    entries: Vec<Entry>,
}

/// Seconds that two stretches share.
fn shared((from, until): (u64, u64), (other, end): (u64, u64)) -> u64 {
    until.min(end).saturating_sub(from.max(other))
}

impl Usage {
    /// The key of an account's usage.
    pub fn key(name: &AccountName) -> String {
        format!("{USAGES}{name}")
    }

    /// Does nothing count?
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.days.is_empty()
    }

    /// Bookings.
    pub fn count(&self) -> u64 {
        self.entries.len() as u64
    }

    /// All bookings.
    pub fn commitments(&self) -> impl Iterator<Item = &Commitment> {
        self.entries.iter().map(|it| &it.commitment)
    }

    fn place(&self, id: u128) -> Result<usize, usize> {
        self.entries
            .binary_search_by_key(&id, |it| it.commitment.id)
    }

    /// The booking of this identity.
    pub fn get(&self, id: u128) -> Option<Commitment> {
        let at = self.place(id).ok()?;
        Some(self.entries[at].commitment)
    }

    /// The most that others take at once while `new` lasts.
    pub fn most_at_once(&self, new: &Commitment, of: impl Fn(&Commitment) -> u64) -> u64 {
        let slot = (new.from, new.until);
        let beside = self.commitments();
        let beside = beside.filter(|it| it.id != new.id && shared(slot, (it.from, it.until)) > 0);
        // At one second the ends come before the beginnings.
        let mut events: Vec<(u64, bool, u64)> = Vec::new();
        for it in beside {
            events.push((it.from.max(new.from), true, of(it)));
            events.push((it.until, false, of(it)));
        }
        events.sort_unstable();
        let (mut now, mut most) = (0_u128, 0);
        for (_, begins, amount) in events {
            match begins {
                true => now += u128::from(amount),
                false => now -= u128::from(amount),
            }
            most = most.max(now);
        }
        u64::try_from(most).unwrap_or(u64::MAX)
    }

    /// The bytes of the fullest 30 days that touch the slot of `new`, which is among these: its own, and those of `others`
    /// and of days that are over. What a slot takes that is over is among the days.
    pub fn fullest_stretch(&self, new: &Commitment, others: &Usage) -> (u64, u64) {
        let own = self.place(new.id).ok().map(|at| self.entries[at]);
        let own = own.unwrap_or(Entry {
            commitment: *new,
            counted: new.until,
        });
        let sums = Sums::of(others);
        let in_stretch = |start: u64| {
            let stretch = (start, start.saturating_add(STRETCH));
            let mine = shared(stretch, (own.counted, own.commitment.until));
            let mine = u128::from(mine) * u128::from(own.commitment.rate);
            (mine + sums.between(stretch) + self.days_in(stretch), mine)
        };
        // Those that hold one second of it at least.
        let first = new.from.saturating_sub(STRETCH - 1);
        let last = new.until - 1;
        let edges = self.edges().into_iter();
        let starts = edges.filter(|start| (first..=last).contains(start));
        let starts = starts.chain([first, last]);
        let fullest = starts.map(in_stretch).max().unwrap_or((0, 0));
        let narrow = |bytes: u128| u64::try_from(bytes).unwrap_or(u64::MAX);
        (narrow(fullest.1), narrow(fullest.0 - fullest.1))
    }

    /// Where a fullest stretch may begin: its beginning or its end is where something begins or ends.
    fn edges(&self) -> Vec<u64> {
        let mut edges = Vec::new();
        for entry in &self.entries {
            edges.extend([entry.counted, entry.commitment.until]);
        }
        for day in self.days.keys() {
            let begins = u64::from(*day) * DAY;
            // A day counts whole if a second of it is in the stretch.
            edges.extend([begins, begins + 1, begins + DAY - 1, begins + DAY]);
        }
        let ends = edges
            .clone()
            .into_iter()
            .map(|edge| edge.saturating_sub(STRETCH));
        edges.extend(ends);
        edges.sort_unstable();
        edges.dedup();
        edges
    }

    fn days_in(&self, stretch: (u64, u64)) -> u128 {
        let within = self.days.iter().filter(|(day, _)| {
            let begins = u64::from(**day) * DAY;
            shared(stretch, (begins, begins + DAY)) > 0
        });
        within.map(|(_, bytes)| u128::from(*bytes)).sum()
    }

    /// Counts `rate` between two seconds on the days they are on; what is older than 30 days counts no more.
    fn note(&mut self, rate: u64, (from, until): (u64, u64), now: u64) {
        let mut at = from.max(now.saturating_sub(STRETCH));
        while at < until {
            let day = at / DAY;
            let end = until.min((day + 1) * DAY);
            let bytes = u128::from(rate) * u128::from(end - at);
            let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
            if let Ok(day) = u32::try_from(day) {
                let noted = self.days.entry(day).or_default();
                *noted = noted.saturating_add(bytes);
            }
            at = end;
        }
    }

    /// As it is at `now`: what is over has gone to the days, and days that are out of reach are gone.
    #[must_use]
    pub fn at(&self, now: u64) -> Usage {
        let mut after = self.clone();
        for entry in &self.entries {
            let it = entry.commitment;
            if it.until <= now {
                after.note(it.rate, (entry.counted, it.until), now);
            }
        }
        after.entries.retain(|it| it.commitment.until > now);
        let reach = now.saturating_sub(STRETCH) / DAY;
        // Days to come are there only after a clock was set back.
        let today = now / DAY;
        after
            .days
            .retain(|day, _| (reach..=today + 1).contains(&u64::from(*day)));
        after
    }

    /// Without a booking: what it was promised until `now` stays counted.
    #[must_use]
    pub fn without(&self, id: u128, now: u64) -> Usage {
        let mut after = self.at(now);
        if let Ok(at) = after.place(id) {
            let entry = after.entries.remove(at);
            after.note(entry.commitment.rate, (entry.counted, now), now);
        }
        after
    }

    /// Without a booking that never began, at `now`: nothing of it counts, whatever of its slot has passed.
    #[must_use]
    pub fn as_if_never(&self, id: u128, now: u64) -> Usage {
        let mut others = self.clone();
        // Before what is over goes to the days.
        others.entries.retain(|it| it.commitment.id != id);
        others.at(now)
    }

    /// With a booking, made or changed at `now`.
    #[must_use]
    pub fn with(&self, new: &Commitment, now: u64) -> Usage {
        let changed = self.at(now).get(new.id).is_some();
        let mut after = self.without(new.id, now);
        if new.until <= now {
            if !changed {
                after.note(new.rate, (new.from, new.until), now);
            }
            return after;
        }
        let counted = match changed {
            true => new.from.max(now),
            false => new.from,
        };
        let entry = Entry {
            commitment: *new,
            counted,
        };
        match after.place(new.id) {
            Ok(at) => after.entries[at] = entry,
            Err(at) => after.entries.insert(at, entry),
        }
        after
    }

    /// As it is kept.
    pub fn encode(&self) -> Vec<u8> {
        let length = HEAD + self.days.len() * DAY_BYTES + self.entries.len() * ENTRY_BYTES;
        let mut bytes = Vec::with_capacity(length);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((self.days.len() as u32).to_le_bytes());
        bytes.extend((self.entries.len() as u32).to_le_bytes());
        for (day, noted) in &self.days {
            bytes.extend(day.to_le_bytes());
            bytes.extend(noted.to_le_bytes());
        }
        for Entry {
            commitment,
            counted,
        } in &self.entries
        {
            bytes.extend(commitment.id.to_le_bytes());
            bytes.extend(commitment.rate.to_le_bytes());
            bytes.extend(commitment.space.to_le_bytes());
            bytes.extend(commitment.from.to_le_bytes());
            let narrow = |span: u64| {
                u32::try_from(span)
                    .expect("slots are checked")
                    .to_le_bytes()
            };
            bytes.extend(narrow(commitment.until - commitment.from));
            bytes.extend(narrow(counted - commitment.from));
        }
        bytes
    }

    /// Reads the record under `key`.
    ///
    /// # Errors
    /// [`RecordError`]: of another version, or not as this program writes it.
    pub fn decode(key: &str, bytes: &[u8]) -> Result<Usage, RecordError> {
        let malformed = |why: &str| RecordError::malformed(key, why);
        let mut rest = Reader(bytes);
        let head = (rest.u32(), rest.u32(), rest.u32());
        let (Some(version), Some(days), Some(entries)) = head else {
            return Err(malformed("it ends within its head"));
        };
        if version != VERSION {
            let what = key.to_owned();
            return Err(RecordError::Version {
                what,
                found: version,
                known: VERSION,
            });
        }
        let (days, entries) = (days as usize, entries as usize);
        if days > DAYS_MAX || entries > COMMITMENTS_MAX {
            return Err(malformed("it has more days or bookings than there can be"));
        }
        let mut usage = Usage::default();
        for _ in 0..days {
            let (day, noted) = rest
                .u32()
                .zip(rest.u64())
                .ok_or_else(|| malformed("it ends within a day"))?;
            if usage
                .days
                .last_key_value()
                .is_some_and(|(last, _)| *last >= day)
            {
                return Err(malformed("its days are out of order"));
            }
            usage.days.insert(day, noted);
        }
        for _ in 0..entries {
            let entry = rest
                .entry()
                .ok_or_else(|| malformed("a booking ends early or cannot be"))?;
            let last = usage.entries.last();
            if last.is_some_and(|last| last.commitment.id >= entry.commitment.id) {
                return Err(malformed("its bookings are out of order"));
            }
            usage.entries.push(entry);
        }
        match rest.0.is_empty() {
            true => Ok(usage),
            false => Err(malformed("there is more behind its end")),
        }
    }
}

/// What is left of a record.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn entry(&mut self) -> Option<Entry> {
        let id = self.array().map(u128::from_le_bytes)?;
        let (rate, space, from) = (self.u64()?, self.u64()?, self.u64()?);
        let (length, counted) = (self.u32()?, self.u32()?);
        let until = from.checked_add(u64::from(length))?;
        let commitment = Commitment {
            id,
            rate,
            from,
            until,
            space,
        };
        (length > 0 && counted < length).then(|| Entry {
            commitment,
            counted: from + u64::from(counted),
        })
    }
}

/// Bytes promised before each second at which something begins or ends.
struct Sums {
    /// Second, bytes before it, rate from it on.
    steps: Vec<(u64, u128, u128)>,
}

impl Sums {
    fn of(usage: &Usage) -> Sums {
        let mut changes: BTreeMap<u64, i128> = BTreeMap::new();
        for entry in &usage.entries {
            let rate = i128::from(entry.commitment.rate);
            *changes.entry(entry.counted).or_default() += rate;
            *changes.entry(entry.commitment.until).or_default() -= rate;
        }
        let (mut steps, mut bytes, mut rate, mut before) = (Vec::new(), 0_u128, 0_i128, 0);
        for (at, change) in changes {
            bytes += rate.unsigned_abs() * u128::from(at - before);
            rate += change;
            steps.push((at, bytes, rate.unsigned_abs()));
            before = at;
        }
        Sums { steps }
    }

    fn before(&self, at: u64) -> u128 {
        let behind = self.steps.partition_point(|(step, _, _)| *step <= at);
        match behind.checked_sub(1) {
            None => 0,
            Some(place) => {
                let (step, bytes, rate) = self.steps[place];
                bytes + rate * u128::from(at - step)
            }
        }
    }

    fn between(&self, (from, until): (u64, u64)) -> u128 {
        self.before(until) - self.before(from)
    }
}
