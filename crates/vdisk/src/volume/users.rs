//! Users of a volume beside the volume itself: whose requests have a client of their own, and a class and fairness if they differ.
//!
//! Always true: a user's connection is known beside the volume's own with which it was opened, and with no other.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use base::Instant;
use policy::place::{Class as Priority, ClientId, Origin, Penalties, Permille};
use store::ClientTag;

use crate::replica::connect::Connection;

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
    pub own: Cell<ClientTag>,
    pub others: RefCell<Vec<User>>,
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
    pub fn enter(&self, user: User) -> UserId {
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

pub(super) enum Now {
    Opening,
    Open(Rc<dyn Connection>),
    /// It is not tried before this.
    Failed(Instant),
}

impl ClientSessions {
    /// The user's connection beside `main`; else whether it is time to open one.
    pub fn find(
        &self,
        user: UserId,
        main: &Rc<dyn Connection>,
    ) -> Result<Rc<dyn Connection>, bool> {
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

    pub fn set(&self, user: UserId, main: &Rc<dyn Connection>, now: Now) {
        let beside = Rc::clone(main);
        self.0
            .borrow_mut()
            .insert(user, ClientSession { beside, now });
    }

    /// Those that can be used.
    pub fn open(&self) -> Vec<(UserId, Rc<dyn Connection>)> {
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
