//! Reservations as operators and the API have them: made, asked about, changed, released.

use std::rc::Rc;

use base::Nanos;
use policy::share::Second;
use vdisk::meta::MetaStore;

use crate::ask::{Ask, Planned, parts};
use crate::book::{Booking, HOLD_SECONDS, MARGIN, what};
use crate::caps::check_caps;
use crate::error::ReservationError;
use crate::offer::{self, Offer};
use crate::quota::Quotas;
use crate::record::{Promise, Reservation, ReservationId, Target};
use crate::records::{Beside, Records, Swapped, Versioned};
use crate::stores::{ClusterStores, Facts, PartError};

/// How often a release is tried again that another change came before.
const RELEASE_TRIES: u64 = 20;

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

/// What a client shows at one store.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct StoreCapability {
    /// The store's identity, in 32 hexadecimal digits.
    pub store: String,
    /// Where it is reached.
    pub address: String,
    /// The capability.
    pub token: String,
}

/// Reservations over the stores of a cluster, as one of its nodes makes them. Any node can.
pub struct Service {
    /// This node.
    pub(crate) node: String,
    pub(crate) records: Records,
    pub(crate) cluster: Rc<dyn ClusterStores>,
    pub(crate) quotas: Rc<dyn Quotas>,
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
        })
    }

    /// The second it is, by this node's clock.
    pub fn now(&self) -> Second {
        Second(env::wall_clock().0 / 1_000_000_000)
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

    /// The reservation of this id, or of this name in `account`.
    ///
    /// # Errors
    /// [`ReservationError::Absent`], [`ReservationError::Meta`], [`ReservationError::Record`].
    pub async fn find(&self, account: &str, name: &str) -> Result<Versioned, ReservationError> {
        let found = match ReservationId::parse(name) {
            Some(id) => self.records.get(id).await?,
            None => self.records.find(account, name).await?,
        };
        found.ok_or_else(|| ReservationError::Absent(name.to_owned()))
    }

    /// Would it fit now, and what would instead? Nothing is set aside.
    ///
    /// # Errors
    /// [`ReservationError::Request`], [`ReservationError::Meta`], [`ReservationError::Unreachable`].
    pub async fn quote(&self, ask: &Ask) -> Result<Offer, ReservationError> {
        let facts = self.cluster.facts().await?;
        let planned = ask.plan(&facts)?;
        offer::find(self, &facts, ask, &planned).await
    }

    /// Makes a reservation; one that is there on the same terms is answered as it is. `true`: it was made now.
    ///
    /// Carried out to its end whether or not the caller waits.
    ///
    /// # Errors
    /// [`ReservationError`]; nothing is promised then, but after [`ReservationError::Meta`] with an unknown outcome.
    pub async fn create(self: &Rc<Self>, ask: Ask) -> Result<(Versioned, bool), ReservationError> {
        let service = Rc::clone(self);
        env::spawn(async move { service.do_create(&ask).await }).await
    }

    async fn do_create(&self, ask: &Ask) -> Result<(Versioned, bool), ReservationError> {
        let facts = self.cluster.facts().await?;
        let Planned {
            target,
            promise,
            wanted,
        } = ask.plan(&facts)?;
        if let Some(known) = self.records.find(&ask.account, &ask.name).await? {
            return same(known, &target, &promise, ask.from_said);
        }
        let id = draw_id();
        let alone = self.records.one_at_a_time(&target, id).await?;
        self.check_alone(id, &target, &promise).await?;
        check_caps(&facts, &target, &promise)?;
        let until = Second(self.now().0 + HOLD_SECONDS);
        let (name, account) = (&*ask.name, &*ask.account);
        let record = Reservation::holding((name, account), target, promise, &self.node, until);
        // Refused at once, before any store is asked; what counts is asked again with the commit.
        self.quotas.charge(id, &record, self.now()).await?;
        if self.records.put_new(id, &record, alone).await? == Swapped::Not {
            // The same name, or another reservation of the volume, came first: asked again, this is answered.
            return Err(ReservationError::Changing(ask.name.clone()));
        }
        let service = self;
        let facts = &facts;
        let booking = Booking { service, facts, id };
        booking.make(record, &wanted).await?;
        let made = self.find("", &id.to_string()).await?;
        Ok((made, true))
    }

    /// Requests of a volume come under one reservation each way: two would not add up.
    async fn check_alone(
        &self,
        own: ReservationId,
        target: &Target,
        promise: &Promise,
    ) -> Result<(), ReservationError> {
        let Target::Volume { id, name } = target else {
            return Ok(());
        };
        let clashes = |it: &&Versioned| {
            let other = &it.record.promise;
            let same_way =
                other.read > 0 && promise.read > 0 || other.write > 0 && promise.write > 0;
            let same = matches!(&it.record.target, Target::Volume { id: other, .. } if other == id);
            let is_other = it.id != own && it.record.over_since.is_none();
            is_other && same && same_way && other.slot().overlaps(promise.slot())
        };
        match self.records.all().await?.iter().find(clashes) {
            None => Ok(()),
            Some(other) => Err(ReservationError::Request(format!(
                "volume {name} has the reservation {} in that time already; change that one \
                 (`tanada reservation set {}`), or ask for another time",
                other.record.name, other.id
            ))),
        }
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
        let known = &self.find("", &id.to_string()).await?;
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
        let alone = self.records.one_at_a_time(&record.target, id).await?;
        self.check_alone(id, &record.target, &promise).await?;
        check_caps(&facts, &record.target, &promise)?;
        let next = Reservation {
            promise,
            ..record.clone()
        };
        next.check().map_err(ReservationError::Request)?;
        let wanted = parts(&next.target, &next.promise, &facts);
        self.quotas.charge(known.id, &next, self.now()).await?;
        let booking = Booking {
            service: self,
            facts: &facts,
            id: known.id,
        };
        booking.change(known, next, &wanted, alone).await?;
        self.find("", &known.id.to_string()).await
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
        env::spawn(async move { service.do_release(known, &why).await }).await
    }

    pub(crate) async fn do_release(
        &self,
        known: Versioned,
        why: &str,
    ) -> Result<Versioned, ReservationError> {
        let facts = self.cluster.facts().await?;
        let mut known = known;
        for tried in 1.. {
            if known.record.over_since.is_some() {
                return Ok(known);
            }
            let over = known.record.clone().over(why, self.now());
            let beside = self
                .quotas
                .refund(known.id, &known.record, self.now())
                .await?;
            if self.records.swap(&known, &over, beside).await? == Swapped::Done {
                break;
            }
            if tried == RELEASE_TRIES {
                return Err(ReservationError::Changing(known.record.name));
            }
            let wait = env::rng("again").below(10 * tried);
            env::sleep(Nanos::millis(1 + wait)).await;
            // Another change came first: what it left is released.
            known = self.find("", &known.id.to_string()).await?;
        }
        let over = self.find("", &known.id.to_string()).await?;
        self.release_parts(&over, &facts).await?;
        self.find("", &known.id.to_string()).await
    }

    /// Releases the parts of what is over; the record lists those left.
    pub(crate) async fn release_parts(
        &self,
        known: &Versioned,
        facts: &Facts,
    ) -> Result<(), ReservationError> {
        let booking = Booking {
            service: self,
            facts,
            id: known.id,
        };
        // A store that left the cluster took its part along.
        let there = known.record.parts.iter();
        let there = there.filter(|it| facts.stores.contains_key(&it.store));
        let left = booking.release(there.copied()).await;
        if left != known.record.parts {
            let next = Reservation {
                parts: left,
                ..known.record.clone()
            };
            // Another node may have done the same.
            self.records.swap(known, &next, Beside::default()).await?;
        }
        Ok(())
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
        if matches!(known.record.target, Target::Volume { .. }) {
            return Ok(Vec::new());
        }
        let facts = self.cluster.facts().await?;
        let mut all = Vec::new();
        for part in &known.record.parts {
            let name = facts.label(part.store);
            let failed = |error: PartError| {
                ReservationError::of_part(&what(&known.record.promise), name.clone(), error)
            };
            let calendar = self.cluster.calendar(part.store).await.map_err(failed)?;
            // A part that its store does not know as committed yet is committed by this.
            let token = calendar.commit(part.booking()).await.map_err(failed)?;
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
    target: &Target,
    promise: &Promise,
    from_said: bool,
) -> Result<(Versioned, bool), ReservationError> {
    let record = &known.record;
    // Asked for from now on once more, it begins a little later.
    let terms = |it: &Promise| Promise {
        from: if from_said { it.from } else { 0 },
        until: it.until - it.from,
        ..it.clone()
    };
    match record.target == *target && terms(&record.promise) == terms(promise) {
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
