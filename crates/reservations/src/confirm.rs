//! A store's parts of reservations, settled by what their records say.
//!
//! ```text
//! each second, of each part that is held, or committed and not confirmed for a minute: what does its record say? That a
//! committed one stands may be known by what was seen of the records last; whatever else is read.
//!   it stands, and lists the part    commit (which confirms)
//!   it stands, and does not          release, if it is not just being changed
//!   aborted, ended, or gone          release
//!   holding                          wait; with its time out abort it first
//!   the meta store does not answer   wait: the part stays promised
//! ```
//!
//! Always true: nothing that may stand is released, whatever time it is.

use std::rc::Rc;

use base::Nanos;
use store::qos::manager::Unconfirmed;
use vdisk::StoreNumber;
use vdisk::meta::TxnPart;

use crate::book::HOLD_SECONDS;
use crate::calendar::{LocalCalendar, OwnCalendar, PartError};
use crate::error::ReservationError;
use crate::record::{Part, Phase, QUEUE, Reservation, ReservationId, Target};
use crate::records::Versioned;
use crate::release::{Endings, OUT_OF_TIME};
use crate::service::Service;

/// A calendar of this node: of one of its stores, or of the queue of exports.
#[derive(Clone)]
pub struct Own {
    /// The store; [`QUEUE`] of exports.
    pub store: StoreNumber,
    /// The exports that its parts are for; none of a store.
    pub exports: Vec<String>,
    /// How it is asked.
    pub calendar: Rc<dyn OwnCalendar>,
}

impl Own {
    /// A store of this very thread.
    pub fn store(store: StoreNumber, manager: &Rc<store::qos::manager::Manager>) -> Own {
        Own {
            store,
            exports: Vec::new(),
            calendar: Rc::new(LocalCalendar(Rc::clone(manager))),
        }
    }

    /// Are parts of `target` at `store` here? Exports are those of this node.
    fn has(&self, node: &str, target: &Target, store: StoreNumber) -> bool {
        let is_mine = match target {
            Target::Export { node: of, name } => of == node && self.exports.contains(name),
            Target::Volume { .. } | Target::Stores { .. } => store != QUEUE,
        };
        is_mine && self.store == store
    }
}

/// So long a part stands without another look at its record.
pub const CONFIRM_SECONDS: u64 = 60;

/// What to do about a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Commit,
    Release,
    /// First the record has to say that nothing is promised.
    Abort,
    Wait,
}

/// What the record of a part says of it, that is as it is for `seen` at least. Pure.
pub(crate) fn judge(
    record: Option<&Reservation>,
    store: StoreNumber,
    part: &Unconfirmed,
    seen: Nanos,
) -> Verdict {
    let Some(record) = record else {
        return Verdict::Release;
    };
    // By a steady clock: the clock of this node may differ from that of the one that makes it.
    let is_held_out = seen >= Nanos::secs(HOLD_SECONDS);
    match record.state {
        Phase::Aborted | Phase::Ended => Verdict::Release,
        Phase::Holding if is_held_out => Verdict::Abort,
        Phase::Holding => Verdict::Wait,
        Phase::Committed | Phase::Degraded if record.lists(store, part) => Verdict::Commit,
        // Held for a change of the record that may still come, or to be replaced by what is.
        Phase::Committed | Phase::Degraded if record.changing.is_some() => Verdict::Wait,
        Phase::Committed | Phase::Degraded => Verdict::Release,
    }
}

/// Settles the parts that this node has; those with no answer wait for the next time.
pub async fn confirm(service: &Service, own: &[Own]) {
    for here in own {
        let mut parts = match here.calendar.unconfirmed(CONFIRM_SECONDS).await {
            Ok(parts) => parts,
            Err(error) => {
                tracing::debug!(store = here.store.0, %error, "parts are settled later");
                continue;
            }
        };
        // What replaces a part is committed before that part is looked at: the two are never gone together.
        parts.sort_by_key(|part| part.held_until.is_none());
        for part in parts {
            if let Err(error) = confirm_part(service, here, &part).await {
                tracing::debug!(store = here.store.0, part = part.id.0, %error, "a part waits for its record");
            }
        }
    }
}

/// Leaves out of the records what they list of this node's calendars and is not there: a sweep makes it anew.
///
/// # Errors
/// [`ReservationError::Meta`].
pub async fn note_lost(service: &Service, own: &[Own]) -> Result<(), ReservationError> {
    for seen in service.mirror.all_or_read(&service.records).await? {
        let known = seen.known;
        let record = &known.record;
        if !record.state.stands()
            || record.changing.is_some()
            || service.now().0 + 1 >= record.promise.until
        {
            continue;
        }
        let mut lost = Vec::new();
        for part in &record.parts {
            if is_lost(service, own, &known, part).await {
                lost.push(*part);
            }
        }
        // What was seen may be older than what is.
        if lost.is_empty() || service.records.get(known.id).await?.as_ref() != Some(&*known) {
            continue;
        }
        tracing::warn!(reservation = %known.id, parts = lost.len(), "a store lost parts of a reservation; they are made anew");
        let left = record.parts.iter().filter(|it| !lost.contains(it));
        let next = Reservation {
            parts: left.copied().collect(),
            state: Phase::Degraded,
            cause: Some("a store lost its part".to_owned()),
            ..record.clone()
        };
        service
            .records
            .swap(&known, &next, TxnPart::default())
            .await?;
    }
    Ok(())
}

async fn is_lost(service: &Service, own: &[Own], known: &Versioned, part: &Part) -> bool {
    let target = &known.record.target;
    let mut here = own.iter();
    let Some(here) = here.find(|it| it.has(&service.node, target, part.store)) else {
        return false;
    };
    let is_there = here.calendar.has(part.name(known.id)).await;
    is_there == Ok(false)
}

async fn confirm_part(
    service: &Service,
    here: &Own,
    part: &Unconfirmed,
) -> Result<(), ReservationError> {
    let id = ReservationId(part.group);
    let judged = |known: Option<&Versioned>| {
        let age = known.map_or(Nanos(0), |it| service.mirror.age(it));
        judge(known.map(|it| &it.record), here.store, part, age)
    };
    let calendar = here.calendar.as_calendar();
    // It was committed because its record said so, and nothing else was seen of it since.
    let seen = service.mirror.get(id).filter(|_| part.held_until.is_none());
    if seen.is_some_and(|it| judged(Some(&*it)) == Verdict::Commit) {
        return settled(part, calendar.commit(part.part()).await.map(drop));
    }
    let known = service.records.get(id).await?;
    let record = known.as_ref().map(|it| &it.record);
    let done = match judged(known.as_ref()) {
        Verdict::Wait => return Ok(()),
        Verdict::Commit => calendar.commit(part.part()).await.map(drop),
        // What is to replace it may have come since the parts were listed: together they are never gone.
        Verdict::Release if record.is_some_and(|it| it.state.stands()) => {
            here.calendar.release_alone(part.part()).await
        }
        Verdict::Release => calendar.release(part.part()).await,
        Verdict::Abort => {
            if let Some(known) = &known {
                Endings(service).end_judged(known, OUT_OF_TIME).await?;
            }
            // What the record says now is seen the next time.
            return Ok(());
        }
    };
    settled(part, done)
}

fn settled(part: &Unconfirmed, done: Result<(), PartError>) -> Result<(), ReservationError> {
    match done {
        Ok(()) | Err(PartError::Absent(_)) => {}
        Err(error) => tracing::warn!(part = part.id.0, %error, "a part cannot be settled yet"),
    }
    Ok(())
}
