//! Reservations over several stores: held at each, then committed, or at none.
//!
//! ```text
//! reserve: ask -> an account's: charged (`charged`) -> hold at every store -> commit at every store, the deciding one last -> capabilities
//!                    \ one refuses: release what is held, say what would fit
//! start:   parts a crash left -> what did the deciding store say? -> commit | release
//! ```
//!
//! Always true:
//! 1. A reservation over several stores is answered only when all have committed.
//! 2. Where one store refuses, the others keep nothing; if they cannot be reached, their hold runs out by itself.

use std::rc::Rc;

use axum::http::StatusCode;

use base::{Bytes, Nanos};
use config::store::unknown_store;
use policy::share::calendar::{BookingId, Refusal as Refuse};
use policy::share::{BytesPerSec, Direction, Probability, Second, Slot};
use reservations::book::HOLD_SECONDS;
use store::qos::manager::{
    Decision, Group, Outcome, PartName, Reconciled, ReservationRequest, ReserveError, reconcile,
};
use tokio::sync::oneshot;
use vdisk::names::RESERVED_HOLDER;

use super::charged::{Charged, Payer, Taken, commitment, fresh_id};
use super::control::{Control, Failure, NotMade, gone};
use super::reserve_words::{instead, said, shown};
use crate::api::store::{Offer, Reservation, ReserveAsk, ReserveRefusal, StoreRefusal};
use crate::daemon::thread::command::{Command, ThreadHandle};
use crate::daemon::thread::store::OpenStore;

/// Several stores agree on a slot within so many rounds of asking, or on none.
const ROUNDS_MAX: usize = 100;

/// The stores of this daemon.
#[derive(Clone, Copy)]
pub struct Stores<'a>(pub &'a Control);

/// One of them, whose parts are settled.
struct Here<'a> {
    stores: Stores<'a>,
    name: &'a str,
    uuid: u128,
}

impl Reconciled for Here<'_> {
    fn uuid(&self) -> u128 {
        self.uuid
    }

    async fn undecided(&self) -> Vec<(BookingId, Group)> {
        let look = async |store: Rc<OpenStore>| store.node.parts().undecided();
        let found = self.stores.at_store(self.name, look).await;
        found.unwrap_or_default()
    }

    async fn decision(&self, group: u128) -> Result<Decision, String> {
        let ask = async move |store: Rc<OpenStore>| store.node.parts().decision(group).await;
        let said = self.stores.at_store(self.name, ask).await;
        let said = said.map_err(|failure| failure.refusal.error)?;
        said.map_err(|error| error.to_string())
    }

    async fn decide(&self, id: BookingId, decision: Decision) -> Result<(), String> {
        let work = async move |store: Rc<OpenStore>| store.node.parts().decide(id, decision).await;
        let done = self.stores.at_store(self.name, work).await;
        let done = done.map_err(|failure| failure.refusal.error)?;
        done.map_err(|error| error.to_string())
    }
}

impl<'a> Stores<'a> {
    pub(super) fn store_names(self) -> impl Iterator<Item = &'a str> {
        let threads = self.0.threads.iter();
        threads.flat_map(|thread| thread.has.stores.iter().map(String::as_str))
    }

    /// Has `work` done with a store, on the thread it lives on.
    pub(super) async fn at_store<T: Send + 'static>(
        self,
        name: &str,
        work: impl AsyncFnOnce(Rc<OpenStore>) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let lives = |it: &&ThreadHandle| it.has.stores.iter().any(|known| known == name);
        let thread = self.0.threads.iter().find(lives).ok_or_else(|| {
            let known: Vec<&str> = self.store_names().collect();
            let said = unknown_store(name, known.iter().copied());
            let todo = "this daemon has no stores: its configuration has no [[store]]";
            Failure::of_sentence(StatusCode::NOT_FOUND, &said, todo)
        })?;
        let (reply, answer) = oneshot::channel();
        let job = move |store: Rc<OpenStore>| {
            env::spawn(async move {
                // The client may be gone; what was asked is done all the same.
                let _ = reply.send(work(store).await);
            });
        };
        let command = Command::Store {
            store: name.to_owned(),
            job: Box::new(job),
        };
        thread.post(command).map_err(|_| gone(thread))?;
        answer.await.map_err(|_| gone(thread))
    }

    /// Settles what a crash left of reservations over several stores. What cannot be settled is logged and left.
    pub async fn reconcile(self) {
        let mut here = Vec::new();
        for name in self.store_names() {
            let uuid = self.at_store(name, async |store| store.node.store().uuid());
            if let Ok(uuid) = uuid.await {
                let stores = self;
                here.push(Here { stores, name, uuid });
            }
        }
        let Outcome {
            committed,
            released,
            undecided,
            failed,
        } = reconcile(&here).await;
        if committed + released + undecided > 0 {
            tracing::info!(
                committed,
                released,
                undecided,
                "parts of reservations over several stores were found; undecided ones wait for their deciding store"
            );
        }
        for (id, why) in failed {
            tracing::error!(
                reservation = id.0,
                why,
                "part of a reservation over several stores is left undecided until the next start"
            );
        }
    }

    /// Would it fit, and what would instead?
    pub(super) async fn offer(self, asked: &ReserveAsk) -> Result<Offer, Failure> {
        let (ask, slot) = self.ask(asked).await?;
        let mut refused = Vec::new();
        let mut largest = Some(ask.rate);
        for (name, refusal) in self.refusals(asked, &ask).await? {
            let Some(refusal) = refusal else { continue };
            let fits = match &refusal {
                Refuse::Full { offer, .. } => offer.largest,
                _ => None,
            };
            largest = largest.and_then(|known| Some(known.min(fits?)));
            refused.push(StoreRefusal {
                error: said(&name, &refusal),
                store: name,
            });
        }
        let earliest = match refused.is_empty() {
            true => Some(slot.start),
            false => self.earliest(asked, &ask).await?,
        };
        Ok(Offer {
            fits: refused.is_empty(),
            from_unix_seconds: slot.start.0,
            until_unix_seconds: slot.end.0,
            earliest_unix_seconds: earliest.map(|at| at.0),
            largest_bytes_per_second: largest.map(|rate| rate.0),
            refused,
        })
    }

    /// Each store with why it refuses, if it does.
    async fn refusals(
        self,
        asked: &ReserveAsk,
        ask: &ReservationRequest,
    ) -> Result<Vec<(String, Option<Refuse>)>, Failure> {
        let mut all = Vec::new();
        for name in &asked.stores {
            let ask = ask.clone();
            let offer = self.at_store(name, async move |store| store.node.offer(&ask).err());
            all.push((name.clone(), offer.await?));
        }
        Ok(all)
    }

    /// The first slot of this length, from the asked one on, that suits all stores.
    async fn earliest(
        self,
        asked: &ReserveAsk,
        ask: &ReservationRequest,
    ) -> Result<Option<Second>, Failure> {
        let mut ask = ask.clone();
        for _ in 0..ROUNDS_MAX {
            let mut next = ask.slot.start;
            for (_, refusal) in self.refusals(asked, &ask).await? {
                let start = match refusal {
                    None => continue,
                    Some(Refuse::Full { offer, .. }) => offer.earliest.map(|slot| slot.start),
                    Some(_) => None,
                };
                let Some(start) = start else { return Ok(None) };
                next = next.max(start);
            }
            if next == ask.slot.start {
                return Ok(Some(next));
            }
            ask.slot = Slot::new(next, asked.for_seconds);
        }
        Ok(None)
    }

    /// What is asked for, in the words of a node; stores and figures are checked.
    async fn ask(self, asked: &ReserveAsk) -> Result<(ReservationRequest, Slot), Failure> {
        let invalid = |error: String, todo: &str| {
            Err(Failure::new(StatusCode::UNPROCESSABLE_ENTITY, error, todo))
        };
        let Some(first) = asked.stores.first() else {
            return invalid("no store is named".to_owned(), "name at least one");
        };
        if let Some(twice) = twice(&asked.stores) {
            return invalid(format!("{twice} is named twice"), "name each store once");
        }
        let direction = match asked.direction.as_str() {
            "read" => Direction::Read,
            "write" => Direction::Write,
            other => {
                let error = format!("'{other}' is no direction");
                return invalid(error, "write read or write");
            }
        };
        if asked.for_seconds == 0 {
            return invalid("it lasts no time".to_owned(), "give for_seconds at least 1");
        }
        if asked.rate_bytes_per_second == 0 {
            let todo = "give a rate; without a promise no reservation is needed";
            return invalid("it promises nothing".to_owned(), todo);
        }
        let percent = asked.probability_percent.unwrap_or(99.0);
        if !(percent > 0.0 && percent <= 100.0) {
            let error = format!("a probability of {percent} % makes no sense");
            return invalid(error, "write more than 0 and at most 100");
        }
        let scope = scope_of(asked)?;
        if asked.holder.starts_with(RESERVED_HOLDER) {
            let error = format!("holders that begin with {RESERVED_HOLDER} are those of volumes");
            let todo =
                "choose another, or reserve for the volume (`tanada reservation create --volume`)";
            return invalid(error, todo);
        }
        let now = self.at_store(first, async |store| store.node.now()).await?;
        let start = asked.from_unix_seconds.map_or(now, Second);
        let slot = Slot::new(start, asked.for_seconds);
        if slot.end <= now {
            let error = format!("its slot, {slot}, is over");
            return invalid(error, "let it end later, or leave from_unix_seconds out");
        }
        let ask = ReservationRequest {
            direction,
            rate: BytesPerSec(asked.rate_bytes_per_second),
            window: asked.window_ns.map_or(Nanos::secs(1), Nanos),
            probability: Probability((percent * 10_000.0).round() as u32),
            slot,
            space: Bytes(asked.space_bytes),
            scope,
            holder: asked.holder.clone(),
        };
        Ok((ask, slot))
    }

    /// Reserves at all stores, or at none; what it takes counts against the quota of `payer`, if it is for one.
    pub(super) async fn reserve(
        self,
        asked: &ReserveAsk,
        payer: Option<&Payer>,
    ) -> Result<Vec<Reservation>, NotReserved> {
        let (ask, slot) = self.ask(asked).await?;
        let group = self.group(asked, payer.is_some()).await?;
        let (Some(payer), Some(id)) = (payer, group.as_ref().map(|group| group.id)) else {
            return self.reserve_at(asked, ask, group).await;
        };
        let _made = self.0.making.begin(id);
        let charged = Charged(self.0);
        charged.charge(payer, commitment(asked, slot, id)).await?;
        let made = self.reserve_at(asked, ask, group).await;
        if made.is_err() {
            charged.settle(&payer.account, id, Taken::Never).await;
        } else {
            self.0.making.stands(id);
        }
        made
    }

    async fn reserve_at(
        self,
        asked: &ReserveAsk,
        ask: ReservationRequest,
        group: Option<Group>,
    ) -> Result<Vec<Reservation>, NotReserved> {
        let whole = group.as_ref().map(|group| group.id);
        let mut held: Vec<(String, PartName)> = Vec::new();
        for name in &asked.stores {
            let (ask, group) = (ask.clone(), group.clone());
            let hold = self.at_store(name, async move |store| {
                let until = Second(store.node.now().0 + HOLD_SECONDS);
                store.node.hold(&ask, group, until).await
            });
            match flat(hold.await) {
                Ok(id) => held.push((name.clone(), PartName { id, group: whole })),
                Err(error) => {
                    self.release(held).await;
                    return Err(self.not_reserved(asked, name, error).await);
                }
            }
        }
        let mut capabilities = Vec::new();
        for (name, part) in &held {
            let part = *part;
            let commit = self.at_store(name, async move |store| store.node.commit(part).await);
            match flat(commit.await) {
                Ok(capability) => capabilities.push(capability),
                Err(error) => {
                    let name = name.clone();
                    self.release(held).await;
                    return Err(self.not_reserved(asked, &name, error).await);
                }
            }
        }
        let mut made = Vec::new();
        for ((name, part), capability) in held.into_iter().zip(capabilities) {
            let mut reservation = self.reservation(&name, part.id).await?;
            reservation.given.capability = Some(capability);
            let link = self.at_store(&name, async |store| store.link_booked);
            reservation.given.link_booked = link.await?;
            made.push(reservation);
        }
        Ok(made)
    }

    /// Of several stores, who belongs together; the last decides. One store has a group, too, if `always`.
    async fn group(self, asked: &ReserveAsk, always: bool) -> Result<Option<Group>, Failure> {
        if asked.stores.len() < 2 && !always {
            return Ok(None);
        }
        let mut stores = Vec::new();
        for name in &asked.stores {
            stores.push(
                self.at_store(name, async |store| store.node.store().uuid())
                    .await?,
            );
        }
        let id = fresh_id(stores.first().copied().unwrap_or_default())?;
        Ok(Some(Group { id, stores }))
    }

    /// Gives back what is held or committed, the deciding store first.
    async fn release(self, held: Vec<(String, PartName)>) {
        for (name, part) in held.into_iter().rev() {
            let release = self.at_store(&name, async move |store| store.node.release(part).await);
            if let Err(error) = flat(release.await) {
                let error = match error {
                    NotDone::Reserve(error) => error.to_string(),
                    NotDone::Failure(failure) => failure.refusal.error,
                };
                tracing::error!(
                    store = name,
                    reservation = part.id.0,
                    "cannot release: {error}"
                );
            }
        }
    }

    async fn not_reserved(self, asked: &ReserveAsk, name: &str, error: NotDone) -> NotReserved {
        let refusal = match error {
            NotDone::Failure(failure) => return NotReserved::Failure(failure),
            NotDone::Reserve(ReserveError::Refused(refusal)) => refusal,
            NotDone::Reserve(error) => {
                return NotReserved::Failure(failed(name, &error));
            }
        };
        let offer = self.offer(asked).await.ok();
        NotReserved::Refused(Box::new(ReserveRefusal {
            error: said(name, &refusal),
            what_to_do: offer.as_ref().map_or(String::new(), instead),
            offer,
        }))
    }

    /// One reservation, without its capability.
    pub(super) async fn reservation(
        self,
        store: &str,
        id: BookingId,
    ) -> Result<Reservation, Failure> {
        let name = store.to_owned();
        let found = self.at_store(store, async move |store| {
            let mut all = store.node.reservations().into_iter();
            all.find(|it| it.id == id).map(|it| shown(&name, &it))
        });
        found.await?.ok_or_else(|| no_reservation(store, id))
    }

    pub(super) async fn reservations(self) -> Result<Vec<Reservation>, Failure> {
        let mut all = Vec::new();
        for name in self.store_names().map(str::to_owned).collect::<Vec<_>>() {
            let store = name.clone();
            let of = self.at_store(&name, async move |at| {
                let all = at.node.reservations();
                all.iter().map(|it| shown(&store, it)).collect::<Vec<_>>()
            });
            all.extend(of.await?);
        }
        Ok(all)
    }
}

/// What the names of a reservation's objects begin with.
fn scope_of(asked: &ReserveAsk) -> Result<String, Failure> {
    let scope = asked.scope.clone().filter(|scope| !scope.is_empty());
    scope.ok_or_else(|| {
        let error = "the scope is empty: it would be for all objects";
        let todo = "give scope: the names of its objects begin with it, such as results/";
        Failure::new(StatusCode::UNPROCESSABLE_ENTITY, error, todo)
    })
}

fn twice(names: &[String]) -> Option<&String> {
    let mut earlier = names.iter().enumerate();
    let found = earlier.find(|(at, name)| names[..*at].contains(name))?;
    Some(found.1)
}

/// Why a step at a store was not done.
enum NotDone {
    Failure(Failure),
    Reserve(ReserveError),
}

fn flat<T>(done: Result<Result<T, ReserveError>, Failure>) -> Result<T, NotDone> {
    match done {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(NotDone::Reserve(error)),
        Err(failure) => Err(NotDone::Failure(failure)),
    }
}

/// Why nothing was reserved.
pub type NotReserved = NotMade<ReserveRefusal>;

pub(super) fn failed(store: &str, error: &ReserveError) -> Failure {
    let status = match error {
        ReserveError::Request { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        ReserveError::NoBooking(_) => StatusCode::CONFLICT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    Failure::new(status, format!("{store}: {error}"), "")
}

fn no_reservation(store: &str, id: BookingId) -> Failure {
    Failure::new(
        StatusCode::NOT_FOUND,
        format!("there is no reservation {store}/{}", id.0),
        "`tanada reservation list --parts` shows what there is; what is over is forgotten",
    )
}
