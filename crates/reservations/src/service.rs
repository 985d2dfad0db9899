//! Reservations as operators and the API have them: made, asked about, changed, released.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use base::Instant;
use policy::share::Second;
use vdisk::meta::MetaStore;

use crate::admission::Admission;
use crate::ask::{Ask, Planned, parts};
use crate::book::{Booking, HOLD_SECONDS, MARGIN, what, within};
use crate::calendar::PartError;
use crate::capability::StoreCapability;
use crate::caps::check_caps;
use crate::error::ReservationError;
use crate::making::Making;
use crate::mirror::{Mirror, follow};
use crate::offer::{self, Offer, Turns};
use crate::quota::Quotas;
use crate::record::{Promise, Reservation, ReservationId, Target, Terms, check_new_name};
use crate::records::{Records, Swapped, Versioned};
use crate::release::Endings;
use crate::stores::{ClusterStores, Facts};

/// So many of an account are ended side by side.
const ENDS_AT_ONCE: usize = 4;

/// What is to be different; `None`: as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Change {
    /// Reads in bytes per second.
    pub read: Option<u64>,
    /// Writes in bytes per second.
    pub write: Option<u64>,
    /// The first second behind its slot.
    pub until: Option<u64>,
}

/// Reservations over the stores of a cluster, as one of its nodes makes them. Any node can.
pub struct Service {
    /// This node.
    pub(crate) node: String,
    pub(crate) records: Records,
    pub(crate) cluster: Rc<dyn ClusterStores>,
    pub(crate) quotas: Rc<dyn Quotas>,
    /// The records, while they are followed.
    pub(crate) mirror: Rc<Mirror>,
    /// Who may ask what would fit now.
    offers: Turns,
    /// What this run of the node makes or changes now.
    pub(crate) making: Making,
    /// When what may end unused is looked at next.
    pub(crate) looks: RefCell<BTreeMap<ReservationId, Instant>>,
    /// This node's clock is wrong by so many seconds.
    #[cfg(test)]
    pub(crate) clock_ahead: std::cell::Cell<u64>,
}

impl Service {
    /// The service of `node`, by the records in `meta`.
    pub fn new(
        node: &str,
        meta: Rc<dyn MetaStore>,
        cluster: Rc<dyn ClusterStores>,
        quotas: Rc<dyn Quotas>,
    ) -> Rc<Service> {
        Rc::new(Service {
            node: node.to_owned(),
            records: Records(meta),
            cluster,
            quotas,
            mirror: Rc::default(),
            offers: Turns::default(),
            making: Making::default(),
            looks: RefCell::default(),
            #[cfg(test)]
            clock_ahead: std::cell::Cell::default(),
        })
    }

    /// From now on what changes in the records is followed: parts are settled and sweeps made without reading them.
    pub fn follow(self: &Rc<Self>) -> env::CancelOnDrop<()> {
        let (records, mirror) = (self.records.clone(), Rc::clone(&self.mirror));
        env::cancel_scope(env::spawn(follow(records, mirror)))
    }

    /// The second it is, by this node's clock.
    pub fn now(&self) -> Second {
        let now = env::wall_clock().0 / 1_000_000_000;
        #[cfg(test)]
        let now = now + self.clock_ahead.get();
        Second(now)
    }

    /// The cluster as it is now.
    ///
    /// # Errors
    /// [`ReservationError::Meta`].
    pub async fn facts(&self) -> Result<Facts, ReservationError> {
        Ok(self.cluster.facts().await?)
    }

    /// All reservations, those lately over among them.
    ///
    /// # Errors
    /// [`ReservationError::Meta`].
    pub async fn all(&self) -> Result<Vec<Versioned>, ReservationError> {
        self.records.all().await
    }

    /// The reservation of this id.
    ///
    /// # Errors
    /// [`ReservationError::Absent`], [`ReservationError::Meta`], [`ReservationError::Record`].
    pub async fn get(&self, id: ReservationId) -> Result<Versioned, ReservationError> {
        let found = self.records.get(id).await?;
        found.ok_or_else(|| ReservationError::Absent(id.to_string()))
    }

    /// What a person calls by its id, or by its name in `account`.
    ///
    /// # Errors
    /// [`ReservationError::Absent`], [`ReservationError::Meta`], [`ReservationError::Record`].
    pub async fn find(&self, account: &str, name: &str) -> Result<Versioned, ReservationError> {
        if let Some(id) = ReservationId::parse(name) {
            return self.get(id).await;
        }
        let found = self.records.find(account, name).await?;
        found.ok_or_else(|| ReservationError::Absent(name.to_owned()))
    }

    /// Would it be made now, and what would be instead? Nothing is set aside.
    ///
    /// # Errors
    /// [`ReservationError::Request`], [`ReservationError::NameTaken`], [`ReservationError::Changing`],
    /// [`ReservationError::Meta`], [`ReservationError::Unreachable`].
    pub async fn quote(&self, ask: &Ask) -> Result<Offer, ReservationError> {
        let _turn = self.offers.turn(&ask.account).await;
        self.do_quote(ask).await
    }

    /// The same where the account has its turn now; `None`: another offer is being made for it.
    pub async fn quote_now(&self, ask: &Ask) -> Option<Result<Offer, ReservationError>> {
        let _turn = self.offers.try_turn(&ask.account)?;
        Some(self.do_quote(ask).await)
    }

    async fn do_quote(&self, ask: &Ask) -> Result<Offer, ReservationError> {
        let facts = self.cluster.facts().await?;
        let planned = ask.plan(&facts)?;
        let terms = self.terms(ask).await?;
        if let Some(known) = self.records.find(&ask.account, &ask.name).await? {
            let Planned {
                target, promise, ..
            } = &planned;
            same(known, (target, promise, &terms), ask.from_said)?;
            return Ok(Offer::as_asked(promise));
        }
        check_new_name(&ask.name).map_err(ReservationError::Request)?;
        check_caps(&facts, &planned.target, &planned.promise)?;
        offer::find(self, &facts, (ask, &terms), &planned).await
    }

    /// Makes a reservation; one that is there on the same terms is answered as it is. `true`: it was made now.
    ///
    /// Carried out to its end whether or not the caller waits.
    ///
    /// # Errors
    /// [`ReservationError`]; nothing is promised then, but after [`ReservationError::Meta`] with an unknown outcome.
    pub async fn create(self: &Rc<Self>, ask: Ask) -> Result<(Versioned, bool), ReservationError> {
        let service = Rc::clone(self);
        env::spawn(async move {
            let id = draw_id();
            let _making = service.making.begin(id);
            service.do_create(id, &ask).await
        })
        .await
    }

    async fn do_create(
        &self,
        id: ReservationId,
        ask: &Ask,
    ) -> Result<(Versioned, bool), ReservationError> {
        let facts = self.cluster.facts().await?;
        let Planned {
            target,
            promise,
            wanted,
        } = ask.plan(&facts)?;
        let terms = self.terms(ask).await?;
        if let Some(known) = self.records.find(&ask.account, &ask.name).await? {
            return same(known, (&target, &promise, &terms), ask.from_said);
        }
        check_new_name(&ask.name).map_err(ReservationError::Request)?;
        let (admission, of) = (Admission(self), (&target, &promise, &terms));
        let alone = admission.alone(id, of, &facts).await?;
        let until = Second(self.now().0 + HOLD_SECONDS);
        let (name, account) = (&*ask.name, &*ask.account);
        let record = Reservation {
            terms,
            ..Reservation::holding((name, account), target, promise, &self.node, until)
        };
        // Refused at once, before any store is asked; what counts is asked again with the commit.
        admission.charge(id, &record, &wanted, &facts).await?;
        if self.records.put_new(id, &record, alone).await? == Swapped::Not {
            // The same name, or another reservation of the volume, came first: asked again, this is answered.
            return Err(ReservationError::Changing(ask.name.clone()));
        }
        let booking = Booking {
            service: self,
            facts: &facts,
            id,
            target: &record.target.clone(),
            offline: record.terms.offline,
        };
        booking.make(record, &wanted).await?;
        let made = self.get(id).await?;
        Ok((made, true))
    }

    /// The terms that are asked for, the allotment found.
    pub(crate) async fn terms(&self, ask: &Ask) -> Result<Terms, ReservationError> {
        let within = match &ask.terms.within {
            Some(name) => Some(self.allotment(&ask.account, name).await?),
            None => None,
        };
        Ok(Terms {
            idle: ask.terms.idle,
            allotment: ask.terms.allotment,
            within,
            agent: ask.terms.agent.clone(),
            offline: ask.terms.offline,
        })
    }

    /// The allotment of this name in `account`, or of this id.
    ///
    /// # Errors
    /// [`ReservationError::Absent`]; [`ReservationError::Request`] if it is none, or another account's;
    /// [`ReservationError::Over`].
    pub(crate) async fn allotment(
        &self,
        account: &str,
        name: &str,
    ) -> Result<ReservationId, ReservationError> {
        let known = self.find(account, name).await?;
        if known.record.account != account {
            // What another account's is called, or whether it stands, is not told.
            return Err(ReservationError::Absent(name.to_owned()));
        }
        check_stands(&known.record)?;
        match known.record.terms.allotment {
            true => Ok(known.id),
            false => Err(ReservationError::Request(format!(
                "{name} is no allotment; make one with `tanada reservation create --allotment`"
            ))),
        }
    }

    /// Ends a reservation for `why`; answered when all stores in reach have cut its clients off. One that is over is
    /// answered as it is.
    ///
    /// # Errors
    /// [`ReservationError::Changing`], [`ReservationError::Meta`]; then it goes on.
    pub async fn release(
        self: &Rc<Self>,
        known: Versioned,
        why: &str,
    ) -> Result<Versioned, ReservationError> {
        let (service, why) = (Rc::clone(self), why.to_owned());
        env::spawn(async move { Endings(&service).release(known, &why).await }).await
    }

    /// Ends all that `account` and its projects have, if they are let in no longer, some at a time. What is not ended by
    /// this, as where stores are silent, a sweep ends.
    ///
    /// # Errors
    /// [`ReservationError::Meta`] if they cannot be read.
    pub async fn end_account(&self, account: &str) -> Result<(), ReservationError> {
        let project = format!("{account}/");
        let mut all = self.records.all().await?;
        all.retain(|it| {
            let of = &it.record.account;
            it.record.state.stands() && (of == account || of.starts_with(&project))
        });
        let endings = Endings(self);
        let later = |id: ReservationId, error: ReservationError| {
            tracing::info!(reservation = %id, %error, "what an account has ends with the next sweep");
        };
        // First all records, whatever their stores do. They change the use of one quota: more at a time are only in each
        // other's way.
        let mut over = Vec::new();
        for some in all.chunks(ENDS_AT_ONCE) {
            let ends = some.iter().map(|it| endings.end_of_account(it.clone()));
            for (it, ended) in some.iter().zip(env::sync::join_all(ends).await) {
                match ended {
                    Ok(ended) => over.extend(ended),
                    Err(error) => later(it.id, error),
                }
            }
        }
        let rest = over.into_iter().map(async |(known, inside)| {
            if let Err(error) = endings.end_rest(&known, inside).await {
                later(known.id, error);
            }
        });
        env::sync::join_all(rest).await;
        Ok(())
    }

    /// Changes rate or end without a gap. What is no more than before is always granted.
    ///
    /// # Errors
    /// [`ReservationError`]; then all is as it was.
    pub async fn amend(
        self: &Rc<Self>,
        known: Versioned,
        change: Change,
    ) -> Result<Versioned, ReservationError> {
        let service = Rc::clone(self);
        env::spawn(async move { service.do_amend(known.id, change).await }).await
    }

    async fn do_amend(
        &self,
        id: ReservationId,
        change: Change,
    ) -> Result<Versioned, ReservationError> {
        // A sweep may have changed it since it was looked up.
        let known = &self.get(id).await?;
        let record = &known.record;
        check_stands(record)?;
        let facts = self.cluster.facts().await?;
        let promise = Promise {
            read: change.read.unwrap_or(record.promise.read),
            write: change.write.unwrap_or(record.promise.write),
            until: change.until.unwrap_or(record.promise.until),
            ..record.promise.clone()
        };
        if promise.read == 0 && promise.write == 0 || promise.until <= self.now().0 {
            return Err(ReservationError::Request(
                "nothing would be left of it; release it instead (`tanada reservation delete`)"
                    .to_owned(),
            ));
        }
        if record.promise.until < self.now().0 + MARGIN {
            return Err(ReservationError::Request(
                "it is over within seconds, too soon to be changed; reserve anew".to_owned(),
            ));
        }
        let (admission, of) = (Admission(self), (&record.target, &promise, &record.terms));
        let alone = admission.alone(id, of, &facts).await?;
        let next = Reservation {
            promise,
            ..record.clone()
        };
        next.check().map_err(ReservationError::Request)?;
        let wanted = parts(&next.target, &next.promise, &next.terms, &facts);
        Admission(self)
            .charge(known.id, &next, &wanted, &facts)
            .await?;
        let booking = Booking {
            service: self,
            facts: &facts,
            id: known.id,
            target: &record.target,
            offline: record.terms.offline,
        };
        booking.change(known, next, &wanted, alone).await?;
        self.get(known.id).await
    }

    /// What its holder shows at each store; nothing of a volume's, whose clients need none.
    ///
    /// # Errors
    /// [`ReservationError::Over`]; [`ReservationError::Unreachable`] if a store does not answer.
    pub async fn capabilities(
        &self,
        known: &Versioned,
    ) -> Result<Vec<StoreCapability>, ReservationError> {
        check_stands(&known.record)?;
        let is_of_stores = matches!(known.record.target, Target::Stores { .. });
        if !is_of_stores || known.record.terms.allotment {
            return Ok(Vec::new());
        }
        let facts = self.cluster.facts().await?;
        let mut all = Vec::new();
        for part in &known.record.parts {
            let name = facts.label(part.store);
            let failed = |error: PartError| {
                ReservationError::of_part(&what(&known.record.promise), name.clone(), error)
            };
            let place = known.record.target.place(part.store);
            let asked = async {
                let calendar = self.cluster.calendar(place).await?;
                // A part that its store does not know as committed yet is committed by this.
                calendar.commit(part.name(known.id)).await
            };
            let token = within(asked).await.map_err(failed)?;
            let Some(store) = facts.stores.get(&part.store) else {
                continue;
            };
            all.push(StoreCapability {
                store: format!("{:032x}", store.uuid),
                address: store.address.clone(),
                token,
            });
        }
        Ok(all)
    }
}

/// Why what an account had is over.
pub(crate) fn account_off(account: &str) -> String {
    format!("account {account} is switched off")
}

/// Is it promised?
fn check_stands(record: &Reservation) -> Result<(), ReservationError> {
    match record.state.stands() {
        true => Ok(()),
        false => Err(ReservationError::Over {
            name: record.name.clone(),
            state: record.state.name(),
        }),
    }
}

/// One of this name is there: on the same terms it is the one that is asked for.
fn same(
    known: Versioned,
    (target, promise, own): (&Target, &Promise, &Terms),
    from_said: bool,
) -> Result<(Versioned, bool), ReservationError> {
    let record = &known.record;
    // Asked for from now on once more, it begins a little later.
    let terms = |it: &Promise| Promise {
        from: if from_said { it.from } else { 0 },
        until: it.until - it.from,
        ..it.clone()
    };
    let is_same = record.target == *target && record.terms == *own;
    match is_same && terms(&record.promise) == terms(promise) {
        true if record.state.stands() => Ok((known, false)),
        true => Err(ReservationError::Changing(record.name.clone())),
        false => Err(ReservationError::NameTaken(record.name.clone())),
    }
}

fn draw_id() -> ReservationId {
    let mut bytes = [0; 16];
    env::secret("reservation", &mut bytes);
    ReservationId(u128::from_le_bytes(bytes))
}
