//! The records as this node saw them last: read once, then followed by what changes.
//!
//! ```text
//! read all -> watch from there on: put, deleted -> known
//!    ^ every ten minutes, and when the watch breaks
//! ```
//!
//! So what is done each second reads nothing. What is seen here may be older than what is: whatever is done because of it
//! is a compare-and-swap, or the record is read first ([`crate::confirm`]).
//!
//! Always true: while it is not known to be whole there is no answer, and the records are read themselves.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};

use base::{Instant, Nanos};
use vdisk::meta::{Entry, Event, MetaError, Revision, whole_range};

use crate::record::{PREFIX, Reservation, ReservationId};
use crate::records::Versioned;
use crate::service::Service;

/// All is read anew so often, whatever the watch said.
const ANEW: Nanos = Nanos::secs(600);
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
pub(crate) struct Mirror(RefCell<Option<BTreeMap<ReservationId, Observed>>>);

/// A record as an entry has it; one that cannot be read is logged, and hides no other.
pub(crate) fn read(entry: &Entry) -> Option<Versioned> {
    let record = Reservation::decode(&entry.key, &entry.value);
    match (ReservationId::parse(&entry.key), record) {
        (Some(id), Ok(record)) => Some(Versioned {
            id,
            record,
            changed: entry.changed,
        }),
        (None, _) => {
            tracing::warn!(key = entry.key, "this is the key of no reservation");
            None
        }
        (_, Err(error)) => {
            tracing::warn!(%error, "a reservation is left alone");
            None
        }
    }
}

impl Mirror {
    /// One of them; `None`: it is not known here.
    pub fn get(&self, id: ReservationId) -> Option<Rc<Versioned>> {
        let known = self.0.borrow();
        let seen = known.as_ref()?.get(&id)?;
        Some(Rc::clone(&seen.known))
    }

    /// All of them; `None`: it is not known which there are.
    pub fn all(&self) -> Option<Vec<Observed>> {
        let known = self.0.borrow();
        known.as_ref().map(|it| it.values().cloned().collect())
    }

    fn see(&self, known: Versioned) {
        let mut all = self.0.borrow_mut();
        let all = all.get_or_insert_default();
        let before = all.get(&known.id);
        // What is read anew may be older than what the watch said.
        if before.is_some_and(|it| it.known.changed >= known.changed) {
            return;
        }
        let seen = Observed {
            known: Rc::new(known),
            since: env::now(),
        };
        all.insert(seen.known.id, seen);
    }

    fn forget(&self, key: &str, revision: Revision) {
        let id = ReservationId::parse(key);
        if let (Some(id), Some(all)) = (id, self.0.borrow_mut().as_mut())
            && all.get(&id).is_some_and(|it| it.known.changed <= revision)
        {
            all.remove(&id);
        }
    }

    /// What was read is all there is.
    fn is_all(&self, entries: &[Entry], read_at: Revision) {
        let ids = entries
            .iter()
            .filter_map(|it| ReservationId::parse(&it.key));
        let there: BTreeSet<ReservationId> = ids.collect();
        let mut all = self.0.borrow_mut();
        let all = all.get_or_insert_default();
        all.retain(|id, it| there.contains(id) || it.known.changed > read_at);
    }
}

/// Follows the records until the service is gone.
pub(crate) async fn follow(service: Weak<Service>) {
    loop {
        let Some(service) = service.upgrade() else {
            return;
        };
        if let Err(error) = follow_on(&service).await {
            tracing::debug!(%error, "the records of reservations are read anew");
            *service.mirror.0.borrow_mut() = None;
            env::sleep(AGAIN).await;
        }
    }
}

async fn follow_on(service: &Service) -> Result<(), MetaError> {
    let meta = &service.records.0;
    let (entries, revision) = whole_range(&**meta, PREFIX).await?;
    // Whole before anything of it is seen: nothing awaits from here to there.
    service.mirror.is_all(&entries, revision);
    entries
        .iter()
        .filter_map(read)
        .for_each(|it| service.mirror.see(it));
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
                        service.mirror.see(known);
                    }
                }
                Event::Deleted { key, revision } => service.mirror.forget(&key, revision),
            }
        }
    }
}
