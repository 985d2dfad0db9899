//! Reserving in two phases: all parts are held, the record says that they stand, the stores hear of it.
//!
//! ```text
//! record Holding -> hold at every store -> record Committed, with the parts -> commit at every store -> answered
//!                       \ one refuses: record Aborted, held parts are released
//! change: record says which node changes it -> hold what is new or more -> record with the new parts -> commit -> release what is not listed
//! ```
//!
//! Killed at any step it leaves a record that [`crate::sweep`] ends, and parts that [`crate::confirm`] settles by it.
//!
//! Always true:
//! 1. The record is Holding before any part is held, and says which parts stand before any is committed.
//! 2. It says so only while all holds have [`MARGIN`] left.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use base::{Bytes, Nanos};
use policy::share::{BytesPerSec, Direction, Second};
use store::qos::manager::{Group, ReservationRequest};
use vdisk::meta::TxnPart;
use vdisk::{StoreNumber, VolumeId};

use crate::admission::Admission;
use crate::allotment::wanted_of;
use crate::calendar::{Calendar, PartError, PartRequest};
use crate::error::ReservationError;
use crate::plan::Wanted;
use crate::record::{Part, Phase, Promise, Reservation, ReservationId, Target};
use crate::records::{Swapped, Versioned, again};
use crate::release::Endings;
use crate::service::Service;
use crate::stores::Facts;

/// How long parts are held at least.
pub const HOLD_SECONDS: u64 = 30;
/// So much of it must be left when the record is changed: clocks differ.
pub const MARGIN: u64 = 5;
/// A store that does not answer for so long counts as unreachable.
const ANSWER: Nanos = Nanos::secs(8);

/// What the holder begins with whose reservations an export's requests are served by; its name follows.
pub const EXPORT_HOLDER: &str = "export:";

/// What a part asks of its store.
pub(crate) fn request(record: &Reservation, wanted: &Wanted) -> ReservationRequest {
    let promise = &record.promise;
    let (scope, holder) = match &record.target {
        // A capability for it would reach nothing: these names are for the node key alone.
        Target::Volume { id, .. } => ("v/".to_owned(), VolumeId(*id).reservation_holder()),
        Target::Stores { scope, .. } => (scope.clone(), holder(&record.account, &record.name)),
        Target::Export { name, .. } => (String::new(), format!("{EXPORT_HOLDER}{name}")),
    };
    // Clients come under what is booked inside it, never under an allotment itself.
    let (scope, holder) = match record.terms.allotment {
        true => ("v/".to_owned(), format!("allotment:{}", record.name)),
        false => (scope, holder),
    };
    let space = match wanted.direction {
        Direction::Read => 0,
        Direction::Write => promise.space,
    };
    ReservationRequest {
        direction: wanted.direction,
        rate: BytesPerSec(wanted.rate),
        window: Nanos(promise.window_ns),
        probability: promise.probability(),
        slot: promise.slot(),
        space: Bytes(space),
        scope,
        holder,
    }
}

/// Who a store shows as holder: the account; where there is none, what can be no account's name.
fn holder(account: &str, name: &str) -> String {
    match account {
        "" => format!("{name} (no account)"),
        account => account.to_owned(),
    }
}

/// What was asked for, in words.
pub(crate) fn what(promise: &Promise) -> String {
    let ways = [(promise.read, "reads"), (promise.write, "writes")];
    let rates = ways.iter().filter(|(rate, _)| *rate > 0);
    let rates: Vec<_> = rates
        .map(|(rate, of)| format!("{} of {of}", BytesPerSec(*rate)))
        .collect();
    rates.join(" and ")
}

/// One reservation being made or changed.
pub(crate) struct Booking<'a> {
    pub service: &'a Service,
    pub facts: &'a Facts,
    pub id: ReservationId,
    /// What it is for.
    pub target: &'a Target,
    /// Its capabilities need no record.
    pub offline: bool,
}

impl Booking<'_> {
    /// The group that its part at `store` belongs to; its record decides, and names the other stores.
    fn group(&self, store: StoreNumber) -> Group {
        let mut stores = Vec::from_iter(self.facts.identity(self.target, store));
        stores.extend(self.offline.then_some(Group::OFFLINE));
        stores.push(Group::BY_RECORD);
        Group {
            id: self.id.0,
            stores,
        }
    }

    async fn calendar(&self, store: StoreNumber) -> Result<Rc<dyn Calendar>, PartError> {
        let place = self.target.place(store);
        self.service.cluster.calendar(place).await
    }

    /// Makes it: the record is Holding and there. Answers the record as it is then.
    pub async fn make(
        &self,
        record: Reservation,
        wanted: &[Wanted],
    ) -> Result<Reservation, ReservationError> {
        let held = self.hold(&record, &BTreeMap::new(), wanted, 0).await;
        let committed = match held {
            Ok((held, _)) => {
                let next = Reservation {
                    state: Phase::Committed,
                    parts: held,
                    ..record.clone()
                };
                self.swap(&record, next).await
            }
            Err(error) => Err(error),
        };
        match committed {
            Ok(record) => {
                self.commit(&record.parts).await;
                Ok(record)
            }
            Err(error) => {
                self.abort(&error).await;
                Err(error)
            }
        }
    }

    /// Changes a record that stands into `next`, whose parts are to be `wanted`.
    pub async fn change(
        &self,
        known: &Versioned,
        next: Reservation,
        wanted: &[Wanted],
        beside: TxnPart,
    ) -> Result<Reservation, ReservationError> {
        let before = Reservation {
            changing: Some(self.service.node.clone()),
            hold_until: self.service.now().0 + HOLD_SECONDS,
            ..known.record.clone()
        };
        let next = Reservation {
            changing: None,
            hold_until: before.hold_until,
            ..next
        };
        if known.record.changing.is_some() {
            return Err(ReservationError::Changing(next.name));
        }
        // What a former run of this node was changing is another matter.
        let _making = self.service.making.begin(self.id);
        let noted = self.service.records.swap(known, &before, beside);
        if noted.await? == Swapped::Not {
            return Err(ReservationError::Changing(next.name));
        }
        let changed = self.change_noted(&before, next, wanted).await;
        if changed.is_err() {
            self.forget_change(&before).await;
        }
        changed
    }

    /// Nothing is changed any more, not even by a swap that is still on its way: stores release what is held and not
    /// listed. Where this fails a sweep does it.
    async fn forget_change(&self, before: &Reservation) {
        let records = &self.service.records;
        let Ok(Some(known)) = records.get(self.id).await else {
            return;
        };
        if known.record == *before {
            let as_it_was = Reservation {
                changing: None,
                ..before.clone()
            };
            let _ = records.swap(&known, &as_it_was, TxnPart::default()).await;
        }
    }

    async fn change_noted(
        &self,
        before: &Reservation,
        next: Reservation,
        wanted: &[Wanted],
    ) -> Result<Reservation, ReservationError> {
        let mut there = BTreeMap::new();
        for part in &before.parts {
            there.insert((part.store, part.direction()), *part);
        }
        let same_terms = request_terms(before) == request_terms(&next);
        let keep = |it: &&Wanted| {
            let part = there.get(&(it.store, it.direction));
            let until = next.promise.until;
            part.is_some_and(|part| same_terms && (part.rate, part.until) == (it.rate, until))
        };
        let kept: Vec<Part> = wanted
            .iter()
            .filter(keep)
            .map(|it| there[&(it.store, it.direction)])
            .collect();
        let more: Vec<Wanted> = wanted.iter().filter(|it| !keep(it)).copied().collect();
        let most = next.promise.tolerate.into();
        let (held, silent) = self.hold(&next, &there, &more, most).await?;
        let mut parts = held.clone();
        parts.extend(kept);
        // As they were: a sweep changes them when their stores are back.
        let left = silent.iter();
        parts.extend(left.filter_map(|it| there.get(&(it.store, it.direction))));
        parts.sort_unstable();
        if let Some(silent) = silent.first()
            && (&next.promise, &parts) == (&before.promise, &before.parts)
        {
            let store = self.facts.label(silent.store);
            let why = PartError::Unreachable("nothing could be changed meanwhile".to_owned());
            return Err(ReservationError::of_part(&what(&next.promise), store, why));
        }
        let next = Reservation { parts, ..next };
        // Where its answer is lost it may be done all the same: what is held is not for this node to release then.
        self.swap(before, next.clone()).await?;
        self.commit(&next.parts).await;
        // What was amended is gone with the commit of what replaced it.
        let replaced = |it: &Part| held.iter().any(|new| same_place(new, it));
        let dropped = before.parts.iter().filter(|it| !next.parts.contains(it));
        self.release(dropped.filter(|it| !replaced(it)).copied())
            .await;
        Ok(next)
    }

    /// Holds all of `wanted`, side by side; where there is a part already, what is to replace it. One that fails releases
    /// the others, but for at most `silent_most` stores that do not answer: what they were asked is answered beside.
    async fn hold(
        &self,
        record: &Reservation,
        there: &BTreeMap<(StoreNumber, Direction), Part>,
        wanted: &[Wanted],
        silent_most: usize,
    ) -> Result<(Vec<Part>, Vec<Wanted>), ReservationError> {
        let until = Second(record.hold_until);
        let holds = wanted.iter().map(async |it| {
            let before = there.get(&(it.store, it.direction));
            let group = self.group(it.store);
            let held = self.hold_one(record, it, before, (group, until));
            (it, held.await)
        });
        let (mut held, mut failed, mut silent) = (Vec::new(), Vec::new(), Vec::new());
        for (wanted, answer) in env::sync::join_all(holds).await {
            match answer {
                Ok(number) => held.push(Part {
                    store: wanted.store,
                    number,
                    reads: wanted.direction == Direction::Read,
                    rate: wanted.rate,
                    until: record.promise.until,
                }),
                Err(error) => {
                    if matches!(error, PartError::Unreachable(_)) {
                        silent.push(*wanted);
                    }
                    failed.push((self.facts.label(wanted.store), error));
                }
            }
        }
        // What a silent store promises already is enough where no more of it is wanted.
        let has_less = |it: &&Wanted| {
            let part = there.get(&(it.store, it.direction));
            !part.is_some_and(|part| part.gives(it.rate, record.promise.until))
        };
        let stores = silent.iter().filter(has_less).map(|it| it.store);
        let stores: BTreeSet<StoreNumber> = stores.collect();
        if failed.len() == silent.len() && stores.len() <= silent_most {
            return Ok((held, silent));
        }
        self.release(held.into_iter()).await;
        Err(refused(&what(&record.promise), failed))
    }

    async fn hold_one(
        &self,
        record: &Reservation,
        wanted: &Wanted,
        before: Option<&Part>,
        (group, until): (Group, Second),
    ) -> Result<u64, PartError> {
        let wanted_there = request(record, wanted);
        let held = async {
            let calendar = self.calendar(wanted.store).await?;
            if let Some(part) = before {
                let amend = PartRequest::Amend {
                    replaced: part.booking(),
                    wanted: wanted_there.clone(),
                    group: group.clone(),
                    until,
                };
                match calendar.hold(amend).await {
                    // Its store lost it: it is made anew.
                    Err(PartError::Absent(_)) => {}
                    other => return other,
                }
            }
            let wanted = wanted_there;
            let hold = match record.terms.within {
                Some(allotment) => PartRequest::HoldWithin {
                    within: allotment.0,
                    wanted,
                    group,
                    until,
                },
                None => PartRequest::Hold {
                    wanted,
                    group,
                    until,
                },
            };
            calendar.hold(hold).await
        };
        within(held).await.map(|id| id.0)
    }

    /// Makes `next` of `before`, with the account's quota in the same transaction. Another reservation of the account that
    /// comes in between is no hindrance; another change of this one is.
    async fn swap(
        &self,
        before: &Reservation,
        next: Reservation,
    ) -> Result<Reservation, ReservationError> {
        let service = self.service;
        for tried in 1.. {
            let now = service.now();
            if now.0 + MARGIN > next.hold_until {
                return Err(ReservationError::TooSlow(what(&next.promise)));
            }
            let known = service.records.get(self.id).await?;
            let Some(known) = known.filter(|it| it.record == *before) else {
                return Err(ReservationError::Changing(next.name.clone()));
            };
            let wanted = wanted_of(&next);
            let admission = Admission(service);
            let mut beside = admission
                .charge(self.id, &next, &wanted, self.facts)
                .await?;
            if before.state.stands() && before.promise != next.promise {
                // Another one may have been made for what was free until now.
                let of = (&next.target, &next.promise, &next.terms);
                beside = beside.and(admission.alone(self.id, of, self.facts).await?);
            }
            if service.records.swap(&known, &next, beside).await? == Swapped::Done {
                return Ok(next);
            }
            again(tried).await;
        }
        unreachable!("time goes on")
    }

    /// Tells the stores that their parts stand. One that does not hear asks the record itself.
    async fn commit(&self, parts: &[Part]) {
        let commits = parts.iter().map(async |part| {
            if let Err(error) = self.commit_one(part).await {
                tracing::info!(reservation = %self.id, store = self.facts.label(part.store), %error,
                    "a store will ask for the record of its part");
            }
        });
        env::sync::join_all(commits).await;
    }

    async fn commit_one(&self, part: &Part) -> Result<(), PartError> {
        let done = async {
            let calendar = self.calendar(part.store).await?;
            calendar.commit(part.name(self.id)).await.map(drop)
        };
        within(done).await
    }

    /// Gives parts back that may only be held yet: what is to take another one's place does so first, else that one would
    /// be left. Those whose store did not answer are left.
    pub async fn end(&self, parts: Vec<Part>) -> Vec<Part> {
        let ends = parts
            .into_iter()
            .map(async |part| match self.commit_one(&part).await {
                Err(PartError::Unreachable(_)) => vec![part],
                _ => self.release([part].into_iter()).await,
            });
        env::sync::join_all(ends).await.concat()
    }

    /// Gives parts back; those whose store did not answer are left.
    pub async fn release(&self, parts: impl Iterator<Item = Part>) -> Vec<Part> {
        let releases = parts.map(async |part| {
            let done = async {
                let calendar = self.calendar(part.store).await?;
                calendar.release(part.name(self.id)).await
            };
            match within(done).await {
                Ok(()) | Err(PartError::Absent(_)) => None,
                Err(error) => {
                    tracing::info!(reservation = %self.id, store = self.facts.label(part.store), %error,
                        "a part is released later");
                    Some(part)
                }
            }
        });
        let left = env::sync::join_all(releases).await;
        left.into_iter().flatten().collect()
    }

    /// The record says that nothing was promised.
    async fn abort(&self, error: &ReservationError) {
        let Ok(Some(known)) = self.service.records.get(self.id).await else {
            return;
        };
        if known.record.state == Phase::Holding {
            let (endings, why) = (Endings(self.service), error.to_string());
            // Else it is aborted when its time is out.
            let _ = endings.end_judged(&known, &why).await;
        }
    }
}

/// All that a part's request depends on, its rate apart.
fn request_terms(record: &Reservation) -> ReservationRequest {
    let any = Wanted {
        store: StoreNumber(0),
        direction: Direction::Write,
        rate: 0,
    };
    request(record, &any)
}

fn same_place(a: &Part, b: &Part) -> bool {
    (a.store, a.reads) == (b.store, b.reads)
}

/// As `work` has it; as unreachable what takes too long.
pub(crate) async fn within<T>(
    work: impl Future<Output = Result<T, PartError>>,
) -> Result<T, PartError> {
    match env::timeout(ANSWER, work).await {
        Ok(answer) => answer,
        Err(_) => Err(PartError::Unreachable(format!("no answer within {ANSWER}"))),
    }
}

/// One error of all that stores said: a refusal says more than a silence.
fn refused(what: &str, failed: Vec<(String, PartError)>) -> ReservationError {
    let mut reasons = Vec::new();
    let mut silent = None;
    for (store, error) in failed {
        match ReservationError::of_part(what, store, error) {
            ReservationError::Refused { refused, .. } => reasons.extend(refused),
            other => silent = silent.or(Some(other)),
        }
    }
    match (reasons.is_empty(), silent) {
        (true, Some(silent)) => silent,
        _ => ReservationError::Refused {
            what: what.to_owned(),
            refused: reasons,
        },
    }
}
