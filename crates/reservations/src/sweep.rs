//! What becomes of reservations unasked: the unfinished are aborted, those over ended, parts made anew where stores left.
//!
//! ```text
//! every few seconds, by the first of the nodes that are up, for each record:
//!   holding, its node gone or its time out     aborted
//!   being changed, that node gone or time out  as it was
//!   its slot over, its volume or account gone  ended; that its slot is over its stores must say, too
//!   its allotment over, or unused for `idle`   ended
//!   over, with parts that are not released     released
//!   stores of parts down                       degraded, with what is left of the promise
//!   the volume is on other stores by now       reserved there; where that does not fit: degraded, cause capacity
//!   over for a day                             forgotten
//! ```
//!
//! Of an export it is done by its node, while that is up. More nodes that do it at once do no harm: each change is a
//! compare-and-swap. Records are as they were seen last ([`crate::mirror`]).
//!
//! Always true: a clock of this node that is wrong ends nothing before its time at its stores.

use std::cell::RefCell;
use std::collections::BTreeSet;

use base::Nanos;
use policy::share::{Direction, Second};
use store::qos::manager::PartState;
use vdisk::StoreNumber;
use vdisk::meta::TxnPart;

use crate::ask::{parts, spread_over};
use crate::book::{HOLD_SECONDS, within};
use crate::calendar::PartError;
use crate::error::ReservationError;
use crate::mirror::Observed;
use crate::plan::{Wanted, left_of};
use crate::record::{Part, Phase, Reservation, ReservationId, Target};
use crate::records::Versioned;
use crate::release::{Endings, OUT_OF_TIME};
use crate::replan::replan_all;
use crate::service::{Service, account_off};
use crate::stores::Facts;

/// Between two sweeps.
pub const EVERY: Nanos = Nanos::secs(3);
/// So many are swept side by side: a store that does not answer keeps fewer of those at others waiting.
const AT_ONCE: usize = 16;
/// So long what is over can be looked at.
const KEPT_SECONDS: u64 = 24 * 60 * 60;
/// So long after its slot one is over whose stores say nothing.
const SILENT_SECONDS: u64 = 60 * 60;

/// What is due for a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Due {
    Nothing,
    Forget,
    /// It is over, and why.
    Over(String),
    /// By this node's clock its slot is over.
    TimeOut,
    /// What it is inside of does not stand, as far as is known.
    NoAllotment(ReservationId),
    /// No node changes it any more.
    ForgetChange,
    /// It is over, and parts of it are not released.
    ReleaseParts,
    /// The same parts in another state.
    State(Phase, Option<String>),
    /// Other parts.
    Replan,
}

/// What all records together say.
#[derive(Debug, Default)]
pub(crate) struct Whole {
    /// The allotments that stand.
    pub allotments: BTreeSet<ReservationId>,
    /// Accounts with reservations that are switched off, or not there.
    pub accounts_off: BTreeSet<String>,
}

/// What is due for `record`, the cluster being so, if it has been like this for `seen`. Pure.
pub(crate) fn due(
    record: &Reservation,
    (facts, whole): (&Facts, &Whole),
    now: Second,
    age: Nanos,
) -> Due {
    // By a steady clock: of two clocks of the day one may be wrong.
    let is_held_out = age >= Nanos::secs(HOLD_SECONDS);
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
            if is_held_out {
                return Due::Over(OUT_OF_TIME.to_owned());
            }
            match facts.nodes.contains(&record.by) {
                true => Due::Nothing,
                false => Due::Over(format!("node {}, which was making it, is gone", record.by)),
            }
        }
        Phase::Committed | Phase::Degraded => standing(record, (facts, whole), now, is_held_out),
    }
}

fn standing(
    record: &Reservation,
    (facts, whole): (&Facts, &Whole),
    now: Second,
    is_held_out: bool,
) -> Due {
    if let Some(due) = over(record, whole, now) {
        return due;
    }
    if let Some(node) = &record.changing {
        return match facts.nodes.contains(node) && !is_held_out {
            true => Due::Nothing,
            false => Due::ForgetChange,
        };
    }
    let wanted = parts(&record.target, &record.promise, &record.terms, facts);
    if let Target::Volume { id, name } = &record.target
        && !facts.volumes.contains_key(id)
    {
        return Due::Over(format!("volume {name} was removed"));
    }
    // Parts that could not be changed or are gone, and for a volume also those of stores where it is no more. Stores that
    // are down are waited for.
    let reachable = |store: &StoreNumber| facts.is_up(&record.target, *store);
    let lacks = wanted
        .iter()
        .any(|it| reachable(&it.store) && !has(record, it));
    let is_wanted = |part: &Part| {
        let place = (part.store, part.direction());
        wanted.iter().any(|it| (it.store, it.direction) == place)
    };
    if lacks || !record.parts.iter().all(is_wanted) {
        return Due::Replan;
    }
    let (state, cause) = match down(record, &wanted, facts) {
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

/// Is the time out of one that stands, or that of what it belongs to?
fn over(record: &Reservation, whole: &Whole, now: Second) -> Option<Due> {
    let mut allotment = record.terms.within.iter();
    if let Some(gone) = allotment.find(|it| !whole.allotments.contains(it)) {
        return Some(Due::NoAllotment(*gone));
    }
    if whole.accounts_off.contains(&record.account) {
        return Some(Due::Over(account_off(&record.account)));
    }
    (now.0 >= record.promise.until).then_some(Due::TimeOut)
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

/// Stores that are not up, of its parts and of parts that it lacks.
fn down(record: &Reservation, wanted: &[Wanted], facts: &Facts) -> BTreeSet<StoreNumber> {
    let is_up = |it: &StoreNumber| facts.is_up(&record.target, *it);
    let stores = record.parts.iter().map(|it| it.store);
    let stores = stores.chain(wanted.iter().map(|it| it.store));
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
    let wanted = parts(&record.target, promise, &record.terms, facts);
    // A silent store may promise more still.
    let keeps = |it: &&Wanted| {
        let mut parts = record.parts.iter();
        let part = parts.find(|part| (part.store, part.direction()) == (it.store, it.direction));
        part.is_some_and(|part| part.gives(it.rate, promise.until))
    };
    let lacking = wanted.iter().filter(|it| !keeps(it));
    let lacking = lacking
        .map(|it| it.store)
        .chain(down(record, &wanted, facts));
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
    let facts = service.cluster.facts().await?;
    // A node that is not up itself, as just after its start, does not see who is.
    let is_first = facts.nodes.first() == Some(&service.node);
    if !is_first && (facts.exports.is_empty() || !facts.nodes.contains(&service.node)) {
        return Ok(());
    }
    let mut all = service.mirror.all_or_read(&service.records).await?;
    let standing = all.iter().filter(|it| it.known.record.state.stands());
    let allotments = standing
        .clone()
        .filter(|it| it.known.record.terms.allotment);
    let mut whole = Whole {
        allotments: allotments.map(|it| it.known.id).collect(),
        ..Whole::default()
    };
    all.retain(|it| is_turn(service, &it.known.record, &facts, is_first));
    let standing = all.iter().filter(|it| it.known.record.state.stands());
    let accounts: BTreeSet<&str> = standing.map(|it| &*it.known.record.account).collect();
    for account in accounts {
        match service.quotas.is_on(account).await {
            Ok(true) => {}
            Ok(false) => drop(whole.accounts_off.insert(account.to_owned())),
            Err(error @ ReservationError::Meta(_)) => return Err(error),
            // What cannot be looked up goes on, and all others with it.
            Err(error) => tracing::warn!(account, %error, "an account cannot be looked up"),
        }
    }
    {
        let there: BTreeSet<ReservationId> = all.iter().map(|it| it.known.id).collect();
        let mut looks = service.looks.borrow_mut();
        looks.retain(|id, _| there.contains(id));
    }
    let is_allotment = |it: &Observed| it.known.record.terms.allotment;
    let (allotments, others): (Vec<_>, Vec<_>) = all.into_iter().partition(is_allotment);
    let replans = RefCell::new(Vec::new());
    // What is inside an allotment ends before its parts are given away.
    for group in [others, allotments] {
        let left = RefCell::new(group.into_iter());
        let next = || left.borrow_mut().next();
        let workers = (0..AT_ONCE).map(async |_| {
            while let Some(seen) = next() {
                let swept = sweep_one(service, &seen, (&facts, &whole), &replans);
                if let Err(error) = swept.await {
                    let name = &seen.known.record.name;
                    tracing::info!(reservation = name, %error, "what is due for a reservation is tried again");
                }
            }
        });
        env::sync::join_all(workers).await;
    }
    replan_all(service, replans.into_inner()).await
}

/// After a start: what this node was making before is aborted at once, and what it was changing stays as it was.
///
/// # Errors
/// [`ReservationError::Meta`].
pub async fn abort_own(service: &Service) -> Result<(), ReservationError> {
    for known in service.records.all().await? {
        let is_own = known.record.state == Phase::Holding && known.record.by == service.node;
        // Not what this very run makes.
        if is_own && !service.making.contains(known.id) {
            let why = "the node that was making it began anew";
            Endings(service).end_judged(&known, why).await?;
        }
        let is_changed = known.record.changing.as_deref() == Some(&*service.node);
        if is_changed && !service.making.contains(known.id) {
            forget_change(service, &known).await?;
        }
    }
    Ok(())
}

/// What was being changed stays as it was: stores release what is held and not listed.
async fn forget_change(service: &Service, known: &Versioned) -> Result<(), ReservationError> {
    let next = Reservation {
        changing: None,
        ..known.record.clone()
    };
    let records = &service.records;
    records.swap(known, &next, TxnPart::default()).await?;
    Ok(())
}

/// Whose is it to sweep this one?
fn is_turn(service: &Service, record: &Reservation, facts: &Facts, is_first: bool) -> bool {
    match &record.target {
        Target::Export { node, .. } if facts.nodes.contains(node) => *node == service.node,
        _ => is_first,
    }
}

/// What is due by what was seen of a record, after its stores were asked where they have a say.
async fn judged(service: &Service, seen: &Observed, (facts, whole): (&Facts, &Whole)) -> Due {
    let (known, age) = (&*seen.known, env::now().since(seen.since));
    match due(&known.record, (facts, whole), service.now(), age) {
        Due::Nothing if is_idle(service, known, facts).await => {
            let idle = known.record.terms.idle.unwrap_or_default();
            Due::Over(format!("nothing of it was asked for {idle} s"))
        }
        Due::TimeOut => match is_over_at_stores(service, known).await {
            true => Due::Over("its time is out".to_owned()),
            // This node's clock is ahead of theirs.
            false => {
                let before = Second(known.record.promise.until.saturating_sub(1));
                due(&known.record, (facts, whole), before, age)
            }
        },
        due => due,
    }
}

async fn sweep_one(
    service: &Service,
    seen: &Observed,
    (facts, whole): (&Facts, &Whole),
    replans: &RefCell<Vec<ReservationId>>,
) -> Result<(), ReservationError> {
    let known = &*seen.known;
    let due = judged(service, seen, (facts, whole)).await;
    if due == Due::Nothing {
        return Ok(());
    }
    // What was seen may be older than what is: that is judged by the next sweep, on its own.
    if service.records.get(known.id).await?.as_ref() != Some(known) {
        return Ok(());
    }
    match due {
        Due::Nothing | Due::TimeOut => {}
        Due::Forget => service.records.forget(known).await?,
        Due::ReleaseParts => Endings(service).release_parts(known, facts).await?,
        Due::NoAllotment(allotment) => {
            let there = service.records.get(allotment).await?;
            if there.is_none_or(|it| !it.record.state.stands()) {
                let why = "its allotment is over";
                let _ended = Endings(service).end_judged(known, why).await?;
            }
        }
        Due::ForgetChange => forget_change(service, known).await?,
        Due::Over(why) => {
            let _ended = Endings(service).end_judged(known, &why).await?;
        }
        Due::State(state, cause) => {
            tracing::info!(reservation = %known.id, state = state.name(), cause, "a reservation changed its state");
            let next = Reservation {
                state,
                cause,
                ..known.record.clone()
            };
            let records = &service.records;
            records.swap(known, &next, TxnPart::default()).await?;
        }
        Due::Replan => replans.borrow_mut().push(known.id),
    }
    Ok(())
}

/// What its stores say of its parts; of those that do not answer nothing.
async fn look(service: &Service, known: &Versioned) -> Vec<(Part, Result<PartState, PartError>)> {
    let looks = known.record.parts.iter().map(async |part| {
        let seen = async {
            let place = known.record.target.place(part.store);
            let calendar = service.cluster.calendar(place).await?;
            calendar.look(part.name(known.id)).await
        };
        (*part, within(seen).await)
    });
    env::sync::join_all(looks).await
}

/// Is its slot over by the clocks of the stores that have it, be a part's longer? Where none answers, it is after an hour.
async fn is_over_at_stores(service: &Service, known: &Versioned) -> bool {
    let mut is_said = false;
    for (_, seen) in look(service, known).await {
        match seen {
            Ok(state) if state.now.0 < known.record.promise.until => return false,
            Ok(_) | Err(PartError::Absent(_)) => is_said = true,
            Err(_) => {}
        }
    }
    is_said || service.now().0 >= known.record.promise.until.saturating_add(SILENT_SECONDS)
}

/// Was nothing of it asked for so long as its terms say, at any of its stores? One that cannot say counts as in use.
async fn is_idle(service: &Service, known: &Versioned, facts: &Facts) -> bool {
    let (record, id) = (&known.record, known.id);
    let Some(idle) = record.terms.idle.filter(|_| record.state.stands()) else {
        return false;
    };
    let is_early = {
        let looks = service.looks.borrow();
        looks.get(&id).is_some_and(|at| env::now() < *at)
    };
    // What a store that is down, or has lost its part, would say is not known.
    let wanted = parts(&record.target, &record.promise, &record.terms, facts);
    let is_whole = wanted.iter().all(|it| has(record, it)) && !record.parts.is_empty();
    if is_early || !is_whole || !down(record, &wanted, facts).is_empty() {
        return false;
    }
    let mut unused = Some(idle);
    for (_, seen) in look(service, known).await {
        let since = seen.ok().map(|it| it.unused);
        unused = unused.zip(since).map(|(least, since)| least.min(since));
    }
    let Some(unused) = unused else {
        return false;
    };
    let mut looks = service.looks.borrow_mut();
    if unused >= idle {
        looks.remove(&id);
        return true;
    }
    looks.insert(id, env::now() + Nanos::secs(idle - unused));
    false
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
        let facts = Facts::default();
        let mut whole = Whole::default();
        let now = |whole: &Whole| due(&standing, (&facts, whole), Second(1), Nanos(0));
        assert_eq!(now(&whole), Due::Nothing);
        whole.accounts_off.insert("astro".to_owned());
        assert_eq!(
            now(&whole),
            Due::Over("account astro is switched off".to_owned())
        );
    }
}
