//! A store as a volume's writer has it.
//!
//! ```text
//! InSync  -> Out      a change may have missed it: the record says so before it is acknowledged
//! Out     -> Joining  resync has given it everything; changes need it again from here on
//! Joining -> InSync   the record says so
//! Joining -> Out      a change missed it
//! ```
//!
//! Always true: a connection that was lost is never used again.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use base::{Bytes, Instant};
use policy::place::{At, Candidate, DiskId, Permille, Target};
use replication::age::Age;
use store::SpaceFigures;

use super::settings::StoreInfo;
use super::users::ClientSessions;
use crate::names::{ExtentName, Generation};
use crate::replica::connect::{Connection, Connector};

/// Of each store the thirty-second part is kept for maps, dirty bits and writes over what is there, but no less and no more than
/// this. A write takes new room before it frees the old.
const KEPT_MIN: Bytes = Bytes::mib(2);

const KEPT_MAX: Bytes = Bytes::mib(64);

/// Where a store stands with this volume; see the module's arrows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SyncState {
    InSync,
    Joining,
    Out,
}

/// A store as this volume's writer has it.
pub(super) struct Replica {
    pub info: StoreInfo,
    /// The way to it as it is now: its node may come back at another address.
    pub connector: RefCell<Rc<dyn Connector>>,
    pub sync_state: Cell<SyncState>,
    pub connection: RefCell<Option<Rc<dyn Connection>>>,
    /// Those of users, beside it.
    pub client_sessions: ClientSessions,
    /// A change is indeterminate: the next connection needs a greater token than this.
    pub tainted: Cell<bool>,
    /// The token of its next connection.
    pub token: Cell<Generation>,
    /// While it is out: extents that were resynced, and that changes keep up to date.
    pub synced: RefCell<BTreeSet<u32>>,
    /// The same of what older images have.
    pub synced_objects: RefCell<BTreeSet<ExtentName>>,
    /// Why something cannot be resynced to it.
    pub resync_error: RefCell<Option<String>>,
    /// Copies that are being taken away from it.
    pub leaving: Cell<u64>,
    /// Room it had when it was last asked, and what was sent there since.
    pub free: Cell<Bytes>,
    pub sent: Cell<u64>,
    pub total: Cell<Bytes>,
    /// When it was last asked for that and answered, or got a connection.
    pub answered: Cell<Instant>,
    /// How far the volume's fence is there.
    pub age: RefCell<Age>,
    /// It refused something for lack of room, and was not in sync since.
    pub was_full: Cell<bool>,
}

impl Replica {
    pub fn new(info: StoreInfo, token: Generation) -> Replica {
        Replica {
            connector: RefCell::new(Rc::clone(&info.connector)),
            info,
            sync_state: Cell::new(SyncState::InSync),
            connection: RefCell::default(),
            client_sessions: ClientSessions::default(),
            tainted: Cell::new(false),
            token: Cell::new(token),
            synced: RefCell::default(),
            synced_objects: RefCell::default(),
            resync_error: RefCell::default(),
            leaving: Cell::new(0),
            free: Cell::new(Bytes(0)),
            sent: Cell::new(0),
            total: Cell::new(Bytes(0)),
            answered: Cell::new(env::now()),
            age: RefCell::default(),
            was_full: Cell::new(false),
        }
    }

    /// The way to it.
    pub fn connector(&self) -> Rc<dyn Connector> {
        self.connector.borrow().clone()
    }

    pub fn disk(&self) -> DiskId {
        DiskId(u32::from(self.info.number.0))
    }

    pub fn candidate(&self, at: Option<At>) -> Candidate {
        Candidate {
            disk: self.disk(),
            local: self.info.local,
            rotating: self.info.rotating,
            at,
        }
    }

    pub fn target(&self) -> Target {
        Target {
            candidate: self.candidate(None),
            domain: self.info.domain,
            free: self.room(),
            capacity: self.total.get(),
            reserved: Permille(0),
        }
    }

    /// Must changes reach it?
    pub fn is_needed(&self) -> bool {
        self.sync_state.get() != SyncState::Out
    }

    /// It misses a change of this extent: that must be resynced again before it joins, also where a snapshot has it by then.
    pub fn lacks(&self, index: u32) {
        self.synced.borrow_mut().remove(&index);
        self.synced_objects
            .borrow_mut()
            .retain(|it| it.index != index);
    }

    /// Nothing counts as resynced to it.
    pub fn lacks_all(&self) {
        self.synced.borrow_mut().clear();
        self.synced_objects.borrow_mut().clear();
    }

    /// Its connection, if it can be used.
    pub fn connection(&self) -> Option<Rc<dyn Connection>> {
        self.connection.borrow().clone()
    }

    /// Is it in sync, and this its connection? Then it was never out since this became so.
    pub fn is_in_by(&self, connection: &Rc<dyn Connection>) -> bool {
        let own = self.connection.borrow();
        let same = own.as_ref().is_some_and(|own| Rc::ptr_eq(own, connection));
        same && self.sync_state.get() == SyncState::InSync
    }

    /// The token of its connection.
    pub fn token(&self) -> Generation {
        self.token.get()
    }

    pub fn drop_connection(&self) {
        self.client_sessions.clear();
        *self.connection.borrow_mut() = None;
    }

    pub fn set_connection(&self, connection: Rc<dyn Connection>) {
        self.answered.set(env::now());
        self.client_sessions.clear();
        *self.connection.borrow_mut() = Some(connection);
    }

    /// This connection is of no more use. `tainted`: a change on it is indeterminate.
    pub fn lose(&self, connection: &Rc<dyn Connection>, tainted: bool) {
        self.client_sessions.drop_one(connection);
        let mut own = self.connection.borrow_mut();
        if own.as_ref().is_some_and(|own| Rc::ptr_eq(own, connection)) {
            *own = None;
            self.client_sessions.clear();
            self.tainted.set(self.tainted.get() || tainted);
        } else if tainted {
            // A later connection, there or not yet, would have the same token, and so has the volume's beside a user's. An
            // indeterminate change may still come after its changes.
            *own = None;
            self.client_sessions.clear();
            self.tainted.set(true);
        }
    }

    /// Takes what it says of its room.
    pub fn says(&self, space: &SpaceFigures) {
        self.free
            .set(Bytes(space.free.0.saturating_sub(space.spare.0)));
        self.total.set(space.total);
        self.sent.set(0);
    }

    /// Room for data when it was last asked, as far as it is known.
    pub fn last_room(&self) -> Bytes {
        let older_images = (self.total.get().0 / 32).clamp(KEPT_MIN.0, KEPT_MAX.0);
        Bytes(self.free.get().0.saturating_sub(older_images))
    }

    /// Room for data, if all that was sent since takes room.
    pub fn room(&self) -> Bytes {
        Bytes(self.last_room().0.saturating_sub(self.sent.get()))
    }

    /// So much was sent there.
    pub fn takes(&self, bytes: u64) {
        self.sent.set(self.sent.get().saturating_add(bytes));
    }

    pub fn room_in_words(&self) -> String {
        let Replica { info, total, .. } = self;
        match self.sync_state.get() {
            SyncState::Out => format!("store {} is out of sync since it was full", info.name),
            _ => format!(
                "store {} has room for {} of {}",
                info.name,
                self.last_room(),
                total.get()
            ),
        }
    }
}

/// A store loses a copy: until the meta store has a map without it, the store does not join.
pub(super) struct Leaving<'a>(&'a Replica);

impl Leaving<'_> {
    pub(super) fn of(replica: &Replica) -> Leaving<'_> {
        replica.leaving.set(replica.leaving.get() + 1);
        Leaving(replica)
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.leaving.set(self.0.leaving.get() - 1);
    }
}
