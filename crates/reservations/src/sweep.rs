//! What becomes of reservations unasked: the unfinished are aborted, those over ended, parts made anew where stores left.
//!
//! ```text
//! every few seconds, by the first of the nodes that are up, for each record:
//!   holding, its node gone or its time out     aborted
//!   being changed, that node gone or time out  as it was
//!   its slot over, its volume or account gone  ended
//!   over, with parts that are not released     released
//!   stores of parts down                       degraded, with what is left of the promise
//!   the volume is on other stores by now       reserved there; where that does not fit: degraded, cause capacity
//!   over for a day                             forgotten
//! ```
//!
//! More nodes that do it at once do no harm: each change is a compare-and-swap.

use std::collections::BTreeSet;

use base::Nanos;
use policy::share::{Direction, Second};
use vdisk::StoreNumber;

use crate::ask::{parts, spread_over};
use crate::book::{Booking, HOLD_SECONDS};
use crate::error::ReservationError;
use crate::plan::{Wanted, left_of};
use crate::record::{Part, Phase, Reservation, Target};
use crate::records::{Beside, Versioned};
use crate::service::Service;
use crate::stores::Facts;

/// Between two sweeps.
pub const EVERY: Nanos = Nanos::secs(3);
/// So long what is over can be looked at.
const KEPT_SECONDS: u64 = 24 * 60 * 60;

/// What is due for a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Due {
    Nothing,
    Forget,
    /// It is over, and why.
    Over(String),
    /// No node changes it any more.
    ForgetChange,
    /// It is over, and parts of it are not released.
    ReleaseParts,
    /// The same parts in another state.
    State(Phase, Option<String>),
    /// Other parts.
    Replan(Vec<Wanted>),
}

/// What is due for `record`, the cluster being so. Pure.
pub(crate) fn due(record: &Reservation, facts: &Facts, now: Second) -> Due {
    match record.state {
        Phase::Aborted | Phase::Ended => {
            let since = record.over_since.unwrap_or(0);
            match now.0 >= since.saturating_add(KEPT_SECONDS) {
                true => Due::Forget,
                false if record.parts.is_empty() => Due::Nothing,
                false => Due::ReleaseParts,
            }
        }
        Phase::Holding => {
            if now.0 >= record.hold_until {
                return Due::Over("its stores were not all held in time".to_owned());
            }
            match facts.nodes.contains(&record.by) {
                true => Due::Nothing,
                false => Due::Over(format!("node {}, which was making it, is gone", record.by)),
            }
        }
        Phase::Committed | Phase::Degraded => standing(record, facts, now),
    }
}

fn standing(record: &Reservation, facts: &Facts, now: Second) -> Due {
    if now.0 >= record.promise.until {
        return Due::Over("its time is out".to_owned());
    }
    if facts.accounts_off.contains(&record.account) {
        return Due::Over(format!("account {} is switched off", record.account));
    }
    if let Some(node) = &record.changing {
        return match facts.nodes.contains(node) && now.0 < record.hold_until {
            true => Due::Nothing,
            false => Due::ForgetChange,
        };
    }
    let wanted = parts(&record.target, &record.promise, facts);
    if let Target::Volume { id, name } = &record.target
        && !facts.volumes.contains_key(id)
    {
        return Due::Over(format!("volume {name} was removed"));
    }
    // Parts that could not be changed or are gone, and for a volume also those of stores where it is no more. Stores that
    // are down are waited for.
    let reachable = |store: &StoreNumber| facts.stores.get(store).is_some_and(|it| it.is_up);
    let lacks = wanted
        .iter()
        .any(|it| reachable(&it.store) && !has(record, it));
    let is_wanted = |part: &Part| {
        let place = (part.store, part.direction());
        wanted.iter().any(|it| (it.store, it.direction) == place)
    };
    if lacks || !record.parts.iter().all(is_wanted) {
        return Due::Replan(wanted);
    }
    let (state, cause) = match down(record, facts) {
        _ if goes_by_a_holder(&record.target, facts) => (
            Phase::Degraded,
            Some("its volume goes by another holder's reservations".to_owned()),
        ),
        stores if stores.is_empty() => (Phase::Committed, None),
        stores => {
            let names: Vec<String> = stores.iter().map(|it| facts.label(*it)).collect();
            (
                Phase::Degraded,
                Some(format!("stores down: {}", names.join(", "))),
            )
        }
    };
    match (record.state, &record.cause) == (state, &cause) {
        true => Due::Nothing,
        false => Due::State(state, cause),
    }
}

/// Has it the part that is wanted?
fn has(record: &Reservation, wanted: &Wanted) -> bool {
    record.parts.iter().any(|part| {
        let place = (part.store, part.direction());
        place == (wanted.store, wanted.direction)
            && (part.rate, part.until) == (wanted.rate, record.promise.until)
    })
}

/// Did an operator name a holder for the volume since?
fn goes_by_a_holder(target: &Target, facts: &Facts) -> bool {
    let Target::Volume { id, .. } = target else {
        return false;
    };
    let volume = facts.volumes.get(id);
    volume.is_some_and(|it| it.holder.is_some())
}

/// Stores of its parts that are not up.
fn down(record: &Reservation, facts: &Facts) -> BTreeSet<StoreNumber> {
    let is_up = |it: &StoreNumber| facts.stores.get(it).is_some_and(|it| it.is_up);
    let stores = record.parts.iter().map(|it| it.store);
    stores.filter(|it| !is_up(it)).collect()
}

/// What of its promise it can deliver now, in bytes per second of reads and of writes.
pub fn promised_now(record: &Reservation, facts: &Facts) -> (u64, u64) {
    if !record.state.stands() {
        return (0, 0);
    }
    if goes_by_a_holder(&record.target, facts) {
        return (0, 0);
    }
    let promise = &record.promise;
    let wanted = parts(&record.target, promise, facts);
    let lacking = wanted.iter().filter(|it| !has(record, it));
    let lacking = lacking.map(|it| it.store).chain(down(record, facts));
    let lost = lacking.collect::<BTreeSet<_>>().len() as u64;
    let over = spread_over(record, facts);
    let of = |direction| {
        let rate = promise.rate(direction).0;
        left_of(rate, over, promise.tolerate, lost)
    };
    (of(Direction::Read), of(Direction::Write))
}

/// Does what is due, if it is this node's turn.
///
/// # Errors
/// [`ReservationError::Meta`]: the next sweep tries again.
pub async fn sweep(service: &Service) -> Result<(), ReservationError> {
    let mut facts = service.cluster.facts().await?;
    // A node that is not up itself, as just after its start, does not see who is.
    if facts.nodes.first() != Some(&service.node) {
        return Ok(());
    }
    let all = service.records.all().await?;
    let standing = all.iter().filter(|it| it.record.state.stands());
    let accounts: BTreeSet<&str> = standing.map(|it| &*it.record.account).collect();
    for account in accounts {
        if !service.quotas.is_on(account).await? {
            facts.accounts_off.insert(account.to_owned());
        }
    }
    for known in all {
        let name = known.record.name.clone();
        if let Err(error) = sweep_one(service, known, &facts).await {
            tracing::info!(reservation = name, %error, "what is due for a reservation is tried again");
        }
    }
    Ok(())
}

/// After a start, in the second `began`: what this node was making before is aborted at once.
///
/// # Errors
/// [`ReservationError::Meta`].
pub async fn abort_own(service: &Service, began: Second) -> Result<(), ReservationError> {
    for known in service.records.all().await? {
        // What this very run makes is younger.
        let earlier = known.record.hold_until < began.0 + HOLD_SECONDS;
        if known.record.state == Phase::Holding && known.record.by == service.node && earlier {
            service
                .do_release(known, "the node that was making it began anew")
                .await?;
        }
    }
    Ok(())
}

async fn sweep_one(
    service: &Service,
    known: Versioned,
    facts: &Facts,
) -> Result<(), ReservationError> {
    match due(&known.record, facts, service.now()) {
        Due::Nothing => {}
        Due::Forget => service.records.forget(&known).await?,
        Due::ReleaseParts => service.release_parts(&known, facts).await?,
        Due::ForgetChange => {
            let next = Reservation {
                changing: None,
                ..known.record.clone()
            };
            service
                .records
                .swap(&known, &next, Beside::default())
                .await?;
        }
        Due::Over(why) => drop(service.do_release(known, &why).await?),
        Due::State(state, cause) => {
            tracing::info!(reservation = %known.id, state = state.name(), cause, "a reservation changed its state");
            let next = Reservation {
                state,
                cause,
                ..known.record.clone()
            };
            service
                .records
                .swap(&known, &next, Beside::default())
                .await?;
        }
        Due::Replan(wanted) => replan(service, &known, facts, &wanted).await?,
    }
    Ok(())
}

/// Reserves where the volume is now; where that does not fit, what there is stays and the record says so.
async fn replan(
    service: &Service,
    known: &Versioned,
    facts: &Facts,
    wanted: &[Wanted],
) -> Result<(), ReservationError> {
    let next = Reservation {
        state: Phase::Committed,
        cause: None,
        ..known.record.clone()
    };
    let booking = Booking {
        service,
        facts,
        id: known.id,
    };
    let cause = match booking.change(known, next, wanted, Beside::default()).await {
        Ok(_) => {
            tracing::info!(reservation = %known.id, "a reservation was made anew where its volume is now");
            return Ok(());
        }
        Err(error @ (ReservationError::Refused { .. } | ReservationError::Unreachable { .. })) => {
            format!("capacity: {error}")
        }
        Err(other) => return Err(other),
    };
    if known.record.state == Phase::Degraded && known.record.cause.as_ref() == Some(&cause) {
        return Ok(());
    }
    // Being changed and not changed, it is another version of the same.
    let Some(known) = service
        .records
        .get(known.id)
        .await?
        .filter(|it| it.record.state.stands())
    else {
        return Ok(());
    };
    let next = Reservation {
        state: Phase::Degraded,
        cause: Some(cause),
        ..known.record.clone()
    };
    service
        .records
        .swap(&known, &next, Beside::default())
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{PlanKind, Promise};

    #[test]
    fn what_an_account_has_ends_when_it_is_switched_off() {
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
        let target = Target::Stores {
            stores: Vec::new(),
            stripe: false,
            scope: "a/".to_owned(),
        };
        let record = Reservation::holding(("job", "astro"), target, promise, "n1", Second(30));
        let standing = Reservation {
            state: Phase::Committed,
            ..record
        };
        let mut facts = Facts::default();
        assert_eq!(due(&standing, &facts, Second(1)), Due::Nothing);
        facts.accounts_off.insert("astro".to_owned());
        let due = due(&standing, &facts, Second(1));
        assert_eq!(due, Due::Over("account astro is switched off".to_owned()));
    }
}
