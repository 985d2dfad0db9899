//! Connections to stores: the volume's own, and those of its users beside them.
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
//! 3. A connection with an indeterminate change is never used again; the store's next one has a greater token.
//! 4. A store whose fence is older than the record says gets no connection.

use std::rc::Rc;

use base::{Instant, Nanos};
use env::sync::join_all;
use policy::place::{Reply, State};
use store::ClientTag;

use super::record_io::RecordIo;
use super::replica::Replica;
use super::state::Core;
use super::users::{Now, UserId};
use crate::names::{Generation, StoreNumber};
use crate::replica::choice::Reported;
use crate::replica::connect::{Connection, ConnectionError};

/// Between two tries to open a user's connection.
const AGAIN: Nanos = Nanos::secs(1);

/// Opens connections to stores, the volume's own and its users'.
#[derive(Clone, Copy)]
pub(super) struct Connections<'a> {
    core: &'a Rc<Core>,
}

impl<'a> Connections<'a> {
    pub fn of(core: &'a Rc<Core>) -> Connections<'a> {
        Connections { core }
    }

    /// A connection to `replica` under `token`, if the store is no older than it was.
    async fn enter_store(
        self,
        replica: &Replica,
        token: Generation,
    ) -> Result<Rc<dyn Connection>, ConnectionError> {
        let (connector, least) = (replica.connector(), replica.age.borrow().least());
        let opened = connector.open_since(&self.core.replicas.fence_name, token.0, least);
        let opened = self.core.within(opened).await;
        if let Err(ConnectionError::PutBack(why)) = &opened {
            if replica.age.borrow_mut().refuse(why.clone()) {
                tracing::error!(volume = %self.core.id, why);
            }
        } else if opened.is_ok() {
            replica.age.borrow_mut().admit();
        }
        opened
    }

    /// Looks how far the fence of a store is, and makes that durable. Is it known now?
    pub(super) async fn look_at_fence(
        self,
        replica: &Replica,
        connection: &Rc<dyn Connection>,
    ) -> bool {
        let Ok(stat) = self
            .core
            .within(connection.stat(&self.core.replicas.fence_name))
            .await
        else {
            return false;
        };
        let durable = self.core.within(connection.flush()).await.is_ok();
        if durable {
            replica.age.borrow_mut().reached(stat.version.0);
        }
        durable
    }

    /// Whose a user's requests are, and under whose reservations they come.
    fn said_of(self, user: UserId) -> (ClientTag, Option<String>) {
        let named = self.core.volume_record().terms.reservation.clone();
        let holder = named.or_else(|| Some(self.core.id.reservation_holder()));
        let holder = holder.filter(|_| user != UserId::BACKGROUND);
        (self.core.clients.users.get(user), holder)
    }

    /// Says at a store whose requests will come, and under whose reservations. `fresh`: nothing was said there yet.
    async fn introduce(
        self,
        connection: &Rc<dyn Connection>,
        user: UserId,
        mut fresh: bool,
    ) -> Result<(), ConnectionError> {
        loop {
            let said = self.said_of(user);
            let (caller, holder) = &said;
            self.core.within(connection.set_client_tag(*caller)).await?;
            if holder.is_some() || !fresh {
                match self
                    .core
                    .within(connection.attach_reservations(holder.as_deref()))
                    .await
                {
                    // A store that knows no such thing promises nothing.
                    Err(ConnectionError::Refused(why)) => {
                        tracing::warn!(volume = %self.core.id, why, "no promise at a store");
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
    pub(super) async fn introduce_anew(self) {
        let mut connections = Vec::new();
        for replica in self.core.replicas.values() {
            let own = replica
                .connection()
                .map(|connection| (UserId::OWN, connection));
            let all = own.into_iter().chain(replica.client_sessions.open());
            connections.extend(all.map(|(user, connection)| (replica, user, connection)));
        }
        let saying = connections.iter().map(async |(replica, user, connection)| {
            if let Err(error) = self.introduce(connection, *user, false).await {
                tracing::debug!(volume = %self.core.id, store = %replica.info.name, %error, "the next link says it");
                replica.lose(connection, false);
            }
        });
        join_all(saying.collect::<Vec<_>>()).await;
    }

    /// Opens a connection to `replica` under its token.
    pub(super) async fn open_connection(
        self,
        replica: &Replica,
    ) -> Result<Rc<dyn Connection>, ConnectionError> {
        let connection = self.enter_store(replica, replica.token()).await?;
        self.look_at_fence(replica, &connection).await;
        self.introduce(&connection, UserId::OWN, true).await?;
        let longest = (connection.write_max() / 4096 * 4096).max(4096);
        self.core
            .replicas
            .write_max
            .set(self.core.replicas.write_max.get().min(longest));
        if let Ok(space) = self.core.within(connection.space()).await {
            replica.says(&space);
        }
        Ok(connection)
    }

    /// As [`Core::open_connection`], under a token greater than that of any connection it had.
    pub(super) async fn open_anew(
        self,
        replica: &Replica,
    ) -> Result<Rc<dyn Connection>, ConnectionError> {
        let before = replica.token();
        let newer = RecordIo::of(self.core).change_record(|record| Ok(record.generation <= before));
        if let Err(error) = newer.await {
            return Err(ConnectionError::Refused(error.to_string()));
        }
        let token = self.core.generation();
        let connection = self.enter_store(replica, token).await?;
        self.look_at_fence(replica, &connection).await;
        self.introduce(&connection, UserId::OWN, true).await?;
        replica.state_mut().opened_anew(token);
        Ok(connection)
    }

    /// Opens connections of in-sync stores again, as long as the volume is open.
    pub(super) async fn keep_connected(self) {
        let mut turn = 0_u32;
        while self.core.usable().is_ok() {
            let broken: Vec<StoreNumber> = self
                .core
                .replicas
                .values()
                .filter(|it| {
                    it.is_needed() && it.connection().is_none() && !it.state().is_tainted()
                })
                .map(|it| it.info.number)
                .collect();
            for number in &broken {
                let replica = self.core.replicas.get(*number).expect("just listed");
                let token = replica.token();
                match self.open_connection(replica).await {
                    // Out of the in-sync set, or tainted again, while it was opened.
                    Ok(_) if !replica.is_needed() || replica.state().is_tainted() => {}
                    Ok(_) if replica.token() != token => {}
                    Ok(connection) => {
                        replica.set_connection(connection);
                        self.core.life.changed.notify_all();
                    }
                    Err(ConnectionError::Fenced { why, .. }) => {
                        self.core.fence(why);
                    }
                    Err(error) => {
                        tracing::debug!(volume = %self.core.id, store = %self.core.replicas.label(*number), %error, "no link");
                    }
                }
            }
            // 50 ms, 100 ms ... 1.6 s between tries that fail.
            turn = if broken.is_empty() {
                0
            } else {
                (turn + 1).min(5)
            };
            let wait = match broken.is_empty() {
                true => self.core.settings.tick,
                false => Nanos::millis(50 << turn),
            };
            let _ = env::timeout(wait, self.core.life.changed.wait()).await;
            env::sleep(Nanos::millis(10)).await;
        }
    }

    /// The connection that a user's requests to a store take. No request waits: while it is opened they take the volume's
    /// own.
    pub(super) fn connection_of(
        self,
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
                    let (core, number) = (Rc::clone(self.core), replica.info.number);
                    let beside = Rc::clone(&main);
                    env::spawn(async move {
                        Connections::of(&core)
                            .open_client_session(number, user, beside)
                            .await
                    });
                }
                Some(main)
            }
        }
    }

    /// What a store said last beside answers to a user, or to the volume as long as the user has no connection there.
    pub(super) fn heard_by(self, replica: &Replica, user: UserId) -> Option<State> {
        let main = replica.connection()?;
        let own = replica.client_sessions.find(user, &main);
        own.unwrap_or(main).state()
    }

    /// Opens a user's connection beside the volume's own.
    async fn open_client_session(
        self,
        number: StoreNumber,
        user: UserId,
        main: Rc<dyn Connection>,
    ) {
        let replica = self.core.replicas.get(number).expect("it was a member");
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
                tracing::debug!(volume = %self.core.id, store = %self.core.replicas.label(number), %error, "no link of a user's own");
                Now::Failed(env::now() + AGAIN)
            }
        };
        replica.client_sessions.set(user, &main, now);
    }

    /// The connection that background copies take beside `main`, a store's own; that one where there is no other.
    pub(super) async fn background(self, main: &Rc<dyn Connection>) -> Rc<dyn Connection> {
        let is_its =
            |replica: &&Replica| replica.connection().is_some_and(|it| Rc::ptr_eq(&it, main));
        let Some(replica) = self.core.replicas.values().find(is_its) else {
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
    pub(super) async fn open_client_sessions(self, user: UserId) {
        let opening = self.core.replicas.values().filter_map(|replica| {
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

/// An answer, with what the policy learns from it.
pub(super) fn reported<T>(what: T, begun: Instant, connection: &Rc<dyn Connection>) -> Reported<T> {
    let took: Nanos = env::now().since(begun);
    Reported {
        what,
        reply: Reply {
            residence: took,
            service: took,
            state: connection.state(),
        },
    }
}
