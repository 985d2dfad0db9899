//! A store as a volume's writer has it: its connections, the room it has, and what the writer decides by of it.
//!
//! Where it stands with the volume is in [`ReplicaState`], whose arrows say how that changes.
//!
//! Always true: no borrow of what the writer decides by outlives a call here.

use std::cell::{Cell, Ref, RefCell, RefMut};
use std::rc::Rc;

use base::{Bytes, Instant};
use policy::place::{At, Candidate, DiskId, Permille, State, Target};
use policy::share::{BytesPerSec, Credit};
use replication::Replication;
use replication::age::Age;
use replication::replica::ReplicaState;
pub(super) use replication::replica::SyncState;
use store::SpaceFigures;

use super::settings::StoreInfo;
use super::users::ClientSessions;
use crate::names::Generation;
use crate::replica::connect::{Connection, Connector};

/// Of each store the thirty-second part is kept for maps, dirty bits and writes over what is there, but no less and no more than
/// this. A write takes new room before it frees the old.
const KEPT_MIN: Bytes = Bytes::mib(2);

const KEPT_MAX: Bytes = Bytes::mib(64);

/// What the volume's writer decides by, as its tasks share it.
pub(super) type Shared = Rc<RefCell<Replication<Rc<dyn Connection>>>>;

/// A store as this volume's writer has it.
pub(super) struct Replica {
    pub info: StoreInfo,
    /// The way to it as it is now: its node may come back at another address.
    pub connector: RefCell<Rc<dyn Connector>>,
    /// Those of users, beside the volume's own.
    pub client_sessions: ClientSessions,
    /// Why something cannot be resynced to it.
    pub resync_error: RefCell<Option<String>>,
    /// Room it had when it was last asked, and what was sent there since.
    pub free: Cell<Bytes>,
    pub sent: Cell<u64>,
    pub total: Cell<Bytes>,
    /// When it was last asked for that and answered, or got a connection.
    pub answered: Cell<Instant>,
    /// How far the volume's fence is there.
    pub age: RefCell<Age>,
    /// What is left of what is booked for reads there.
    pub credit: Cell<Credit>,
    /// It refused something for lack of room, and was not in sync since.
    pub was_full: Cell<bool>,
    replication: Shared,
}

impl Replica {
    /// A store that `replication` has.
    pub fn new(info: StoreInfo, replication: &Shared) -> Replica {
        Replica {
            connector: RefCell::new(Rc::clone(&info.connector)),
            info,
            client_sessions: ClientSessions::default(),
            resync_error: RefCell::default(),
            free: Cell::new(Bytes(0)),
            sent: Cell::new(0),
            total: Cell::new(Bytes(0)),
            answered: Cell::new(env::now()),
            age: RefCell::default(),
            credit: Cell::default(),
            was_full: Cell::new(false),
            replication: Rc::clone(replication),
        }
    }

    /// What the writer decides by of it.
    pub fn state(&self) -> Ref<'_, ReplicaState<Rc<dyn Connection>>> {
        Ref::map(self.replication.borrow(), |all| {
            &all.replicas[&self.info.number]
        })
    }

    /// The same, to be changed.
    pub fn state_mut(&self) -> RefMut<'_, ReplicaState<Rc<dyn Connection>>> {
        RefMut::map(self.replication.borrow_mut(), |all| {
            let state = all.replicas.get_mut(&self.info.number);
            state.expect("each store has a state")
        })
    }

    /// Where it stands with the volume.
    pub fn sync_state(&self) -> SyncState {
        self.state().sync_state()
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

    /// Is something left of what is booked for reads there, by what was `heard` beside their answers?
    pub fn has_credit(&self, heard: Option<State>) -> bool {
        let booked = heard.map_or(BytesPerSec(0), |it| it.booked);
        let mut credit = self.credit.get();
        let is_left = credit.is_left(env::now(), booked);
        self.credit.set(credit);
        is_left
    }

    /// So much is read there.
    pub fn reads(&self, bytes: Bytes) {
        let mut credit = self.credit.get();
        credit.take(bytes);
        self.credit.set(credit);
    }

    pub fn target(&self) -> Target {
        // What is placed now stays: what is promised soon counts as much as what is promised now.
        let heard = self.connection().and_then(|connection| connection.state());
        Target {
            candidate: self.candidate(None),
            domain: self.info.domain,
            free: self.room(),
            capacity: self.total.get(),
            reserved: heard.map_or(Permille(0), |it| it.promised.hour),
        }
    }

    /// Must changes reach it?
    pub fn is_needed(&self) -> bool {
        self.state().is_needed()
    }

    /// Its connection, if it can be used.
    pub fn connection(&self) -> Option<Rc<dyn Connection>> {
        self.state().connection().cloned()
    }

    /// Is it in sync, and this its connection? Then it was never out since this became so.
    pub fn is_in_by(&self, connection: &Rc<dyn Connection>) -> bool {
        self.is_by(connection) && self.state().is_in_sync()
    }

    /// Is this its connection still?
    pub fn is_by(&self, connection: &Rc<dyn Connection>) -> bool {
        let state = self.state();
        let own = state.connection();
        own.is_some_and(|own| Rc::ptr_eq(own, connection))
    }

    /// The token of its connection.
    pub fn token(&self) -> Generation {
        self.state().token()
    }

    pub fn drop_connection(&self) {
        self.client_sessions.clear();
        self.state_mut().disconnect();
    }

    pub fn set_connection(&self, connection: Rc<dyn Connection>) {
        self.answered.set(env::now());
        self.client_sessions.clear();
        self.state_mut().connect(connection);
    }

    /// This connection is of no more use. `tainted`: a change on it is indeterminate.
    pub fn lose(&self, connection: &Rc<dyn Connection>, tainted: bool) {
        self.client_sessions.drop_one(connection);
        let own = self.is_by(connection);
        if self.state_mut().lose(own, tainted) {
            self.client_sessions.clear();
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
        match self.sync_state() {
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

impl Drop for Replica {
    /// What it is to the volume ends with it, store by store: `replication` may be held longer.
    fn drop(&mut self) {
        self.state_mut().disconnect();
        self.client_sessions.clear();
    }
}

/// A store loses a copy: until the meta store has a map without it, the store does not join.
pub(super) struct Leaving<'a>(&'a Replica);

impl Leaving<'_> {
    pub(super) fn of(replica: &Replica) -> Leaving<'_> {
        replica.state_mut().begin_leaving();
        Leaving(replica)
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.state_mut().end_leaving();
    }
}
