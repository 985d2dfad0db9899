//! Users of a volume beside the volume itself: whose requests have a client of their own, and a class and fairness if they differ.
//!
//! ```text
//! a user's request -> policy: by the user's class -> the user's own connection to the store, a line of its own there
//!                                                     '-- none there (yet): the volume's connection
//! ```
//!
//! A user changes which request is served first, and nothing else. Its connection to a store is a second one under the token of
//! the volume's own, beside which it was opened: what is sealed off seals off both, and no client waits until it is there.
//!
//! Source: COST 3.1 (priorities of clients and fairness among them, in q); that they are set per export too is ours.
//!
//! Always true:
//! 1. A user's connection is used only as long as the volume's connection beside it is: both have the same token.
//! 2. An indeterminate change on it ends the volume's connection as well, so the store's next one has a greater token.
//! 3. What it surely did not do is asked again on the volume's connection.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use base::{Buf, Bytes, Instant, Nanos, Sector, Span, View};
use device::{Class, Device, Info, Op, Pending, WriteFlags};
use env::sync::join_all;
use policy::place::{Class as Priority, ClientId, Origin, Penalties, Permille};
use store::ClientTag;

use super::membership::Replica;
use super::{Core, Volume, VolumeError};
use crate::names::StoreNumber;
use crate::record::VolumeRecord;
use crate::replica::connect::{Connection, ConnectionError};

/// Between two tries to open a user's connection.
const AGAIN: Nanos = Nanos::secs(1);
/// The volume itself is among them.
const USERS_MAX: usize = 256;

/// A user of one opened volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct UserId(u16);

impl UserId {
    /// The volume itself.
    pub const OWN: UserId = UserId(0);
    /// Its background copies: to stores that come back, from those that are drained, where copies lack. Of low class, and under no
    /// reservation of the volume's.
    pub const BACKGROUND: UserId = UserId(1);
}

/// A user of a volume, with a client of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct User {
    /// Who it is.
    pub client: ClientId,
    /// Its class; `None`: the volume's.
    pub class: Option<Priority>,
    /// What a seek behind another client of its class counts; `None`: as the volume says.
    pub other: Option<Permille>,
}

/// All users there were since the volume was opened.
pub(super) struct Users {
    own: Cell<ClientTag>,
    others: RefCell<Vec<User>>,
}

impl Users {
    pub fn new(own: ClientTag) -> Users {
        let behind = User {
            client: own.origin.client,
            class: Some(Priority::Low),
            other: None,
        };
        Users {
            own: Cell::new(own),
            others: RefCell::new(vec![behind]),
        }
    }

    /// Whose its requests are.
    pub fn get(&self, user: UserId) -> ClientTag {
        let own = self.own.get();
        let Some(index) = usize::from(user.0).checked_sub(1) else {
            return own;
        };
        let user = self.others.borrow()[index];
        ClientTag {
            origin: Origin {
                client: user.client,
                class: user.class.unwrap_or(own.origin.class),
            },
            penalties: Penalties {
                other: user.other.unwrap_or(own.penalties.other),
                ..own.penalties
            },
        }
    }

    /// The same one is the same user. Where there are too many, one counts as the volume itself.
    fn enter(&self, user: User) -> UserId {
        let mut all = self.others.borrow_mut();
        let is_it = |(index, known): (usize, &User)| {
            *known == user && index + 1 != usize::from(UserId::BACKGROUND.0)
        };
        let known = all.iter().enumerate().position(is_it);
        let number = known.unwrap_or(all.len()) + 1;
        if number >= USERS_MAX {
            return UserId::OWN;
        }
        if known.is_none() {
            all.push(user);
        }
        UserId(number as u16)
    }
}

/// The users' sessions with one store: connections beside the volume's own.
#[derive(Default)]
pub(super) struct ClientSessions(RefCell<BTreeMap<UserId, ClientSession>>);

struct ClientSession {
    /// The volume's own.
    beside: Rc<dyn Connection>,
    now: Now,
}

enum Now {
    Opening,
    Open(Rc<dyn Connection>),
    /// It is not tried before this.
    Failed(Instant),
}

impl ClientSessions {
    /// The user's connection beside `main`; else whether it is time to open one.
    fn find(&self, user: UserId, main: &Rc<dyn Connection>) -> Result<Rc<dyn Connection>, bool> {
        let all = self.0.borrow();
        match all.get(&user).filter(|it| Rc::ptr_eq(&it.beside, main)) {
            None => Err(true),
            Some(session) => match &session.now {
                Now::Open(connection) => Ok(Rc::clone(connection)),
                Now::Opening => Err(false),
                Now::Failed(until) => Err(env::now() >= *until),
            },
        }
    }

    fn set(&self, user: UserId, main: &Rc<dyn Connection>, now: Now) {
        let beside = Rc::clone(main);
        self.0
            .borrow_mut()
            .insert(user, ClientSession { beside, now });
    }

    /// Those that can be used.
    fn open(&self) -> Vec<(UserId, Rc<dyn Connection>)> {
        let all = self.0.borrow();
        let open = all.iter().filter_map(|(user, session)| match &session.now {
            Now::Open(connection) => Some((*user, Rc::clone(connection))),
            _ => None,
        });
        open.collect()
    }

    /// This connection is of no more use, if it is one of these.
    pub fn drop_one(&self, connection: &Rc<dyn Connection>) {
        let is_it = |session: &ClientSession| matches!(&session.now, Now::Open(own) if Rc::ptr_eq(own, connection));
        self.0.borrow_mut().retain(|_, session| !is_it(session));
    }

    /// The volume's own connection is of no more use.
    pub fn clear(&self) {
        self.0.borrow_mut().clear();
    }
}

impl Core {
    /// The connection that a user's requests to a store take. No request waits: while it is opened they take the volume's
    /// own.
    pub(super) fn connection_of(
        self: &Rc<Self>,
        replica: &Replica,
        user: UserId,
    ) -> Option<Rc<dyn Connection>> {
        let main = replica.connection()?;
        if user == UserId::OWN {
            return Some(main);
        }
        match replica.client_sessions.find(user, &main) {
            Ok(connection) => Some(connection),
            Err(due) => {
                if due {
                    replica.client_sessions.set(user, &main, Now::Opening);
                    let (core, number) = (Rc::clone(self), replica.info.number);
                    let beside = Rc::clone(&main);
                    env::spawn(async move { core.open_client_session(number, user, beside).await });
                }
                Some(main)
            }
        }
    }

    /// Opens a user's connection beside the volume's own.
    async fn open_client_session(
        &self,
        number: StoreNumber,
        user: UserId,
        main: Rc<dyn Connection>,
    ) {
        let replica = self.replica(number).expect("it was a member");
        let opened = async {
            let connection = self.enter_store(replica, replica.token()).await?;
            self.introduce(&connection, user, true).await?;
            Ok::<_, ConnectionError>(connection)
        };
        let opened = opened.await;
        if !replica
            .connection()
            .is_some_and(|now| Rc::ptr_eq(&now, &main))
        {
            return;
        }
        let now = match opened {
            Ok(connection) => Now::Open(connection),
            Err(error) => {
                tracing::debug!(volume = %self.id, store = %self.label(number), %error, "no link of a user's own");
                Now::Failed(env::now() + AGAIN)
            }
        };
        replica.client_sessions.set(user, &main, now);
    }

    /// The connection that background copies take beside `main`, a store's own; that one where there is no other.
    pub(super) async fn background(&self, main: &Rc<dyn Connection>) -> Rc<dyn Connection> {
        let is_its =
            |replica: &&Replica| replica.connection().is_some_and(|it| Rc::ptr_eq(&it, main));
        let Some(replica) = self.replicas.values().find(is_its) else {
            return Rc::clone(main);
        };
        let user = UserId::BACKGROUND;
        if let Err(true) = replica.client_sessions.find(user, main) {
            replica.client_sessions.set(user, main, Now::Opening);
            let beside = Rc::clone(main);
            self.open_client_session(replica.info.number, user, beside)
                .await;
        }
        let found = replica.client_sessions.find(user, main);
        found.unwrap_or_else(|_| Rc::clone(main))
    }

    /// Opens a user's connections to all stores there are connections to.
    async fn open_client_sessions(&self, user: UserId) {
        let opening = self.replicas.values().filter_map(|replica| {
            let main = replica.connection()?;
            // An opening under way goes on.
            replica
                .client_sessions
                .find(user, &main)
                .err()
                .filter(|due| *due)?;
            replica.client_sessions.set(user, &main, Now::Opening);
            Some(self.open_client_session(replica.info.number, user, main))
        });
        join_all(opening.collect::<Vec<_>>()).await;
    }
}

impl Core {
    /// Whose a user's requests are, and under whose reservations they come.
    fn said_of(&self, user: UserId) -> (ClientTag, Option<String>) {
        let reservation = self.record.borrow().0.reservation.clone();
        let holder = reservation.filter(|_| user != UserId::BACKGROUND);
        (self.users.get(user), holder)
    }

    /// Says at a store whose requests will come, and under whose reservations. `fresh`: nothing was said there yet.
    pub(super) async fn introduce(
        &self,
        connection: &Rc<dyn Connection>,
        user: UserId,
        mut fresh: bool,
    ) -> Result<(), ConnectionError> {
        loop {
            let said = self.said_of(user);
            let (caller, holder) = &said;
            self.within(connection.set_client_tag(*caller)).await?;
            if holder.is_some() || !fresh {
                match self
                    .within(connection.attach_reservations(holder.as_deref()))
                    .await
                {
                    // A store that knows no such thing promises nothing.
                    Err(ConnectionError::Refused(why)) => {
                        tracing::warn!(volume = %self.id, why, "no promise at a store");
                    }
                    other => other?,
                }
            }
            if said == self.said_of(user) {
                return Ok(());
            }
            // Something else was set meanwhile.
            fresh = false;
        }
    }

    /// Says at all stores anew what [`Core::introduce`] said there.
    async fn introduce_anew(&self) {
        let mut connections = Vec::new();
        for replica in self.replicas.values() {
            let own = replica
                .connection()
                .map(|connection| (UserId::OWN, connection));
            let all = own.into_iter().chain(replica.client_sessions.open());
            connections.extend(all.map(|(user, connection)| (replica, user, connection)));
        }
        let saying = connections.iter().map(async |(replica, user, connection)| {
            if let Err(error) = self.introduce(connection, *user, false).await {
                tracing::debug!(volume = %self.id, store = %replica.info.name, %error, "the next link says it");
                replica.lose(connection, false);
            }
        });
        join_all(saying.collect::<Vec<_>>()).await;
    }
}

impl Volume {
    /// Changes what operators set in its record: `change` does so and says whether anything is different. It may be asked several
    /// times.
    ///
    /// # Errors
    /// [`VolumeError`], if the record could not be changed; with [`VolumeError::Meta`] it may have been.
    pub async fn set(
        &self,
        change: impl Fn(&mut VolumeRecord) -> bool + 'static,
    ) -> Result<(), VolumeError> {
        let core = Rc::clone(&self.core);
        let changing = async move { core.change_record(|record| Ok(change(record))).await };
        // To its end, whether or not the caller still waits.
        env::spawn(changing).await
    }

    /// Its requests are `own`'s from here on, and its users' as far as they set nothing else; under whose reservations the
    /// record says. All stores that answer know it then.
    pub async fn become_one_of(&self, own: ClientTag) {
        let core = Rc::clone(&self.core);
        core.users.own.set(own);
        env::spawn(async move { core.introduce_anew().await }).await;
    }
}

/// A volume as one of its users has it: the same blocks, on the user's terms. Held as `Rc<dyn Device>`.
pub struct UserVolume {
    volume: Rc<Volume>,
    user: UserId,
}

impl Volume {
    /// The volume for a user that is a client of its own.
    pub async fn for_user(self: &Rc<Self>, user: User) -> Rc<UserVolume> {
        let user = self.core.users.enter(user);
        if user != UserId::OWN {
            self.core.open_client_sessions(user).await;
        }
        Rc::new(UserVolume {
            volume: Rc::clone(self),
            user,
        })
    }
}

impl Device for UserVolume {
    fn info(&self) -> Info {
        self.volume.info()
    }

    fn read(&self, at: Sector, buf: Buf, _class: Class) -> Pending<'_, Buf> {
        self.volume.read_as(at, buf, self.user)
    }

    fn write(&self, at: Sector, data: View, _flags: WriteFlags) -> Pending<'_, ()> {
        let span = Span::new(at, Bytes(data.len() as u64));
        self.volume.change(Op::Write, span, Some(data), self.user)
    }

    fn flush(&self) -> Pending<'_, ()> {
        self.volume.flush()
    }

    fn discard(&self, span: Span) -> Pending<'_, ()> {
        self.volume.change(Op::Discard, span, None, self.user)
    }

    fn write_zeroes(&self, span: Span, _flags: WriteFlags) -> Pending<'_, ()> {
        self.volume.change(Op::WriteZeroes, span, None, self.user)
    }

    fn allocation(&self, span: Span) -> Pending<'_, Vec<(u64, bool)>> {
        self.volume.allocation(span)
    }
}
