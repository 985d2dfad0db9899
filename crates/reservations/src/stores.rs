//! The stores of a cluster as reservations see them: their calendars, and which of them are there.
//!
//! ```text
//! Cluster -> facts: stores, volumes, nodes that are up
//!         -> calendar of a store: here (a manager), or somewhere else (a client with the node key)
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use policy::share::Second;
use policy::share::calendar::{BookingId, NoBooking};
use policy::share::cap::Caps;
use store::net::client::{Client, ClientError};
use store::net::wire::RefusedKind;
use store::qos::manager::{Group, Manager, Quote, ReservationRequest, ReserveError};
use vdisk::StoreNumber;
use vdisk::meta::MetaError;

/// An answer, some time.
pub type Pending<'a, T, E = PartError> = Pin<Box<dyn Future<Output = Result<T, E>> + 'a>>;

/// Why a store did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PartError {
    /// It will not, and nothing was changed.
    #[error("{0}")]
    Refused(String),
    /// It has no such part.
    #[error("{0}")]
    Absent(String),
    /// No answer: it may or may not have done it.
    #[error("{0}")]
    Unreachable(String),
}

/// One store's calendar. Held as `Rc<dyn Calendar>`. All is as [`Manager`] has it.
#[allow(missing_docs)]
pub trait Calendar {
    fn quote<'a>(&'a self, wanted: &'a [ReservationRequest]) -> Pending<'a, Quote>;
    fn hold<'a>(
        &'a self,
        wanted: &'a ReservationRequest,
        group: Group,
        until: Second,
    ) -> Pending<'a, BookingId>;
    fn amend<'a>(
        &'a self,
        replaced: BookingId,
        wanted: &'a ReservationRequest,
        group: Group,
        until: Second,
    ) -> Pending<'a, BookingId>;
    /// Answers the capability.
    fn commit(&self, id: BookingId) -> Pending<'_, String>;
    fn release(&self, id: BookingId) -> Pending<'_, ()>;
    fn capability(&self, id: BookingId) -> Pending<'_, Option<String>>;
}

/// A store of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreFact {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub uuid: u128,
    /// Where clients reach it.
    pub address: String,
    /// Does its node serve it now, as far as is known?
    pub is_up: bool,
    /// Does it take new data?
    pub is_active: bool,
}

/// A virtual disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeFact {
    /// Its name.
    pub name: String,
    /// Copies of each extent.
    pub copies: u8,
    /// Stores that have something of it; empty: none yet.
    pub stores: BTreeSet<StoreNumber>,
    /// The holder whose reservations are attached to its requests, if an operator named one.
    pub holder: Option<String>,
    /// What its clients get at most.
    pub caps: Caps,
}

/// The cluster at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    /// Its stores.
    pub stores: BTreeMap<StoreNumber, StoreFact>,
    /// Its volumes, by their numbers.
    pub volumes: BTreeMap<u32, VolumeFact>,
    /// The nodes that are up.
    pub nodes: BTreeSet<String>,
    /// Accounts that are known to be switched off, or not there.
    pub accounts_off: BTreeSet<String>,
}

impl Facts {
    /// The stores at which a volume needs parts: those that have something of it, or where there are fewer than it has
    /// copies, all that take new data, as any of them may be chosen.
    pub fn stores_of(&self, volume: &VolumeFact) -> BTreeSet<StoreNumber> {
        let known = |it: &&StoreNumber| self.stores.contains_key(it);
        let stores: BTreeSet<_> = volume.stores.iter().filter(known).copied().collect();
        if stores.len() >= usize::from(volume.copies) {
            return stores;
        }
        let active = self.stores.iter().filter(|(_, it)| it.is_active);
        stores
            .into_iter()
            .chain(active.map(|(number, _)| *number))
            .collect()
    }

    /// A store's name, or its number where it has left.
    pub fn label(&self, store: StoreNumber) -> String {
        let known = self.stores.get(&store);
        known.map_or_else(|| format!("number {}", store.0), |it| it.name.clone())
    }
}

/// The cluster. Held as `Rc<dyn ClusterStores>`.
pub trait ClusterStores {
    /// How it is now.
    fn facts(&self) -> Pending<'_, Facts, MetaError>;

    /// A store's calendar.
    ///
    /// # Errors
    /// [`PartError::Unreachable`].
    fn calendar(&self, store: StoreNumber) -> Pending<'_, Rc<dyn Calendar>>;
}

// --- here -----------------------------------------------------------------------------------------------

/// The calendar of a store of this very node.
pub struct LocalCalendar(pub Rc<Manager>);

fn here(error: ReserveError) -> PartError {
    match error {
        ReserveError::NoBooking(absent) => PartError::Absent(absent.to_string()),
        ReserveError::Store { .. } => PartError::Unreachable(error.to_string()),
        other => PartError::Refused(other.to_string()),
    }
}

impl Calendar for LocalCalendar {
    fn quote<'a>(&'a self, wanted: &'a [ReservationRequest]) -> Pending<'a, Quote> {
        Box::pin(async move { Ok(self.0.quote(wanted)) })
    }
    fn hold<'a>(
        &'a self,
        wanted: &'a ReservationRequest,
        group: Group,
        until: Second,
    ) -> Pending<'a, BookingId> {
        Box::pin(async move { self.0.hold(wanted, Some(group), until).await.map_err(here) })
    }
    fn amend<'a>(
        &'a self,
        replaced: BookingId,
        wanted: &'a ReservationRequest,
        group: Group,
        until: Second,
    ) -> Pending<'a, BookingId> {
        Box::pin(async move {
            let amended = self.0.amend(replaced, wanted, Some(group), until);
            amended.await.map_err(here)
        })
    }
    fn commit(&self, id: BookingId) -> Pending<'_, String> {
        Box::pin(async move { self.0.commit(id).await.map_err(here) })
    }
    fn release(&self, id: BookingId) -> Pending<'_, ()> {
        Box::pin(async move { self.0.release(id).await.map_err(here) })
    }
    fn capability(&self, id: BookingId) -> Pending<'_, Option<String>> {
        Box::pin(async move { Ok(self.0.capability(id)) })
    }
}

// --- somewhere else ---------------------------------------------------------------------------------------

/// The calendar of a store behind a server, with the node key.
pub struct RemoteCalendar(pub Client);

fn there(error: ClientError) -> PartError {
    let text = error.to_string();
    match error {
        ClientError::Refused {
            kind: RefusedKind::ShuttingDown,
            ..
        } => PartError::Unreachable(text),
        ClientError::Refused { .. } => PartError::Refused(text),
        _ => PartError::Unreachable(text),
    }
}

/// The wire has one number for all that a calendar refuses; what is not there has its own words.
fn there_of(id: BookingId) -> impl Fn(ClientError) -> PartError {
    move |error| match there(error) {
        PartError::Refused(text) if text == NoBooking(id).to_string() => PartError::Absent(text),
        other => other,
    }
}

impl Calendar for RemoteCalendar {
    fn quote<'a>(&'a self, wanted: &'a [ReservationRequest]) -> Pending<'a, Quote> {
        Box::pin(async move { self.0.quote(wanted).await.map_err(there) })
    }
    fn hold<'a>(
        &'a self,
        wanted: &'a ReservationRequest,
        group: Group,
        until: Second,
    ) -> Pending<'a, BookingId> {
        Box::pin(async move { self.0.hold(wanted, Some(group), until).await.map_err(there) })
    }
    fn amend<'a>(
        &'a self,
        replaced: BookingId,
        wanted: &'a ReservationRequest,
        group: Group,
        until: Second,
    ) -> Pending<'a, BookingId> {
        Box::pin(async move {
            let amended = self.0.amend(replaced, wanted, Some(group), until);
            amended.await.map_err(there_of(replaced))
        })
    }
    fn commit(&self, id: BookingId) -> Pending<'_, String> {
        Box::pin(async move { self.0.commit(id).await.map_err(there_of(id)) })
    }
    fn release(&self, id: BookingId) -> Pending<'_, ()> {
        Box::pin(async move { self.0.release(id).await.map_err(there_of(id)) })
    }
    fn capability(&self, id: BookingId) -> Pending<'_, Option<String>> {
        Box::pin(async move { self.0.capability(id).await.map_err(there) })
    }
}
