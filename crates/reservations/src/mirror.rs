//! The records as this node saw them last: read once, then followed by what changes.
//!
//! ```text
//! read all -> watch from there on: put, deleted -> known
//!    ^ every four minutes, and when the watch breaks
//! ```
//!
//! So what is done each second reads nothing. What is seen here may be older than what is: whatever is done because of it
//! is a compare-and-swap, or the record is read first ([`crate::confirm`]).
//!
//! Always true:
//! 1. While it is not known to be whole there is no answer, and the records are read themselves.
//! 2. What is read anew replaces all: a meta store that was put back to an older state is seen as it is within four minutes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use base::{Instant, Nanos};
use vdisk::meta::{Entry, Event, MetaError, Revision, whole_range};

use crate::error::ReservationError;
use crate::record::{PREFIX, ReservationId};
use crate::records::{Records, Versioned, read};

/// All is read anew so often, whatever the watch said. With what a store waits before capabilities lapse
/// (`store::qos::manager::LAPSE_SECONDS`) and [`CONFIRM_SECONDS`](crate::confirm::CONFIRM_SECONDS) it is a quarter of an
/// hour until an end is felt where it is not heard of.
const ANEW: Nanos = Nanos::secs(240);
/// After a failure.
const AGAIN: Nanos = Nanos::secs(1);

/// A record, and since when this node knows this version of it, by its steady clock.
#[derive(Debug, Clone)]
pub(crate) struct Observed {
    pub known: Rc<Versioned>,
    pub since: Instant,
}

/// The records as they were seen last.
#[derive(Default)]
pub(crate) struct Mirror(RefCell<Content>);

#[derive(Default)]
struct Content {
    all: BTreeMap<ReservationId, Observed>,
    /// It is known that these are all.
    is_whole: bool,
    /// Up to where it was read or heard of.
    until: Revision,
}

impl Content {
    /// Since when exactly this is known; now, if it is new.
    fn since(&self, known: &Versioned) -> Instant {
        let before = self.all.get(&known.id).filter(|it| *it.known == *known);
        before.map_or_else(env::now, |it| it.since)
    }

    fn observe(&self, known: Versioned) -> Observed {
        Observed {
            since: self.since(&known),
            known: Rc::new(known),
        }
    }

    /// These are all, in place of whatever was seen before: of a meta store that was put back that says nothing.
    fn replace(&mut self, all: Vec<Versioned>) {
        let all = all.into_iter().map(|it| (it.id, self.observe(it)));
        self.all = all.collect();
    }
}

impl Mirror {
    /// One of them; `None`: it is not known here.
    pub fn get(&self, id: ReservationId) -> Option<Rc<Versioned>> {
        let seen = self.0.borrow();
        let found = seen.all.get(&id).filter(|_| seen.is_whole)?;
        Some(Rc::clone(&found.known))
    }

    /// For how long this very version is known here, by this node's steady clock.
    pub fn age(&self, known: &Versioned) -> Nanos {
        env::now().since(self.0.borrow().since(known))
    }

    /// All as they were seen last; where they are not followed, as they are read from `records`.
    ///
    /// # Errors
    /// [`ReservationError::Meta`].
    pub async fn all_or_read(&self, records: &Records) -> Result<Vec<Observed>, ReservationError> {
        if !self.0.borrow().is_whole {
            let read = records.all().await?;
            let mut seen = self.0.borrow_mut();
            // Else they are followed by now.
            if !seen.is_whole {
                seen.replace(read);
            }
        }
        Ok(self.0.borrow().all.values().cloned().collect())
    }

    /// All there is, as it was read at a revision.
    fn replace_all(&self, entries: &[Entry], read_at: Revision) {
        let mut seen = self.0.borrow_mut();
        if read_at < seen.until {
            tracing::warn!(
                "the meta store has an older state than before; what was seen of reservations is dropped"
            );
            seen.all.clear();
        }
        seen.replace(entries.iter().filter_map(read).collect());
        seen.until = read_at;
        seen.is_whole = true;
    }

    /// The watch said so; it says all in order.
    fn see(&self, known: Versioned) {
        let mut seen = self.0.borrow_mut();
        seen.until = seen.until.max(known.changed);
        let observed = seen.observe(known);
        seen.all.insert(observed.known.id, observed);
    }

    fn forget(&self, key: &str, revision: Revision) {
        let mut seen = self.0.borrow_mut();
        seen.until = seen.until.max(revision);
        if let Some(id) = ReservationId::parse(key) {
            seen.all.remove(&id);
        }
    }
}

/// Follows the records for as long as it is polled.
pub(crate) async fn follow(records: Records, mirror: Rc<Mirror>) {
    loop {
        if let Err(error) = follow_on(&records, &mirror).await {
            tracing::debug!(%error, "the records of reservations are read anew");
            mirror.0.borrow_mut().is_whole = false;
            env::sleep(AGAIN).await;
        }
    }
}

async fn follow_on(records: &Records, mirror: &Mirror) -> Result<(), MetaError> {
    let meta = &records.0;
    let (entries, revision) = whole_range(&**meta, PREFIX).await?;
    mirror.replace_all(&entries, revision);
    let mut watch = meta.watch(PREFIX, Revision(revision.0 + 1)).await?;
    let end = env::now() + ANEW;
    loop {
        let left = end.since(env::now());
        let Ok(events) = env::timeout(left, watch.next()).await else {
            return Ok(());
        };
        for event in events? {
            match event {
                Event::Put(entry) => {
                    if let Some(known) = read(&entry) {
                        mirror.see(known);
                    }
                }
                Event::Deleted { key, revision } => mirror.forget(&key, revision),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use policy::share::Second;

    use super::*;
    use crate::record::{PlanKind, Promise, Reservation, Target};

    fn entry(id: u128, name: &str, changed: u64) -> Entry {
        let promise = Promise {
            read: 1,
            write: 0,
            from: 0,
            until: 100,
            tolerate: 0,
            plan: PlanKind::Any,
            window_ns: 1,
            probability_ppm: 1,
            space: 0,
        };
        let target = Target::Volume {
            name: "vm1".to_owned(),
            id: 7,
        };
        let record = Reservation::holding((name, "astro"), target, promise, "n1", Second(30));
        Entry {
            key: ReservationId(id).key(),
            value: record.encode(),
            changed: Revision(changed),
            created: Revision(changed),
            lease: None,
        }
    }

    fn names(mirror: &Mirror) -> Vec<String> {
        let seen = mirror.0.borrow();
        let all = seen.all.values();
        all.map(|it| it.known.record.name.clone()).collect()
    }

    #[test]
    fn what_is_read_anew_replaces_all_also_where_the_meta_store_was_put_back() {
        env::Runtime::simulated(1).block_on(async {
            let mirror = Mirror::default();
            let (first, second) = (entry(1, "a", 10), entry(2, "b", 20));
            mirror.replace_all(&[first.clone(), second], Revision(20));
            mirror.see(read(&entry(3, "c", 25)).unwrap());
            env::sleep(Nanos::secs(40)).await;
            // The same versions are known since then, others from now on.
            let changed = entry(2, "b2", 30);
            let all = [first.clone(), changed.clone(), entry(3, "c", 25)];
            mirror.replace_all(&all, Revision(30));
            assert_eq!(names(&mirror), ["a", "b2", "c"]);
            let age = |it: &Entry| mirror.age(&read(it).unwrap());
            assert_eq!(age(&first), Nanos::secs(40));
            assert_eq!(age(&changed), Nanos(0));
            // Put back: c was never made, b is as it was, and another a has an older revision.
            let all = [entry(1, "other", 5), entry(2, "b", 20)];
            mirror.replace_all(&all, Revision(21));
            assert_eq!(names(&mirror), ["other", "b"]);
            assert_eq!(age(&all[0]), Nanos(0));
            assert!(mirror.get(ReservationId(3)).is_none());
        });
    }
}
