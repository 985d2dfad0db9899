//! Users of a volume beside the volume itself: whose requests have a client of their own, and a class and fairness if they differ.
//!
//! ```text
//! a user's request -> policy: by the user's class -> the user's own link to the store, a line of its own there
//!                                                     '-- none there (yet): the volume's link
//! ```
//!
//! A user changes which request is served first, and nothing else. Its link to a store is a second one under the mark of
//! the volume's own, beside which it was opened: what is sealed off seals off both, and no client waits until it is there.
//!
//! Source: COST 3.1 (priorities of clients and fairness among them, in q); that they are set per export too is ours.
//!
//! Always true:
//! 1. A user's link is used only as long as the volume's link beside it is: both have the same mark.
//! 2. An indeterminate change on it ends the volume's link as well, so the store's next one has a greater mark.
//! 3. What it surely did not do is asked again on the volume's link.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use base::{Buf, Bytes, Instant, Nanos, Sector, Span, View};
use device::{Class, Device, Info, Op, Pending, WriteFlags};
use env::sync::join_all;
use policy::place::{Class as Priority, ClientId, Origin, Penalties, Permille};
use store::Caller;

use super::members::Member;
use super::{Core, Volume, VolumeError};
use crate::link::{Link, LinkError};
use crate::names::StoreNumber;
use crate::record::VolumeRecord;

/// Between two tries to open a user's link.
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
    own: Cell<Caller>,
    others: RefCell<Vec<User>>,
}

impl Users {
    pub fn new(own: Caller) -> Users {
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
    pub fn get(&self, user: UserId) -> Caller {
        let own = self.own.get();
        let Some(index) = usize::from(user.0).checked_sub(1) else {
            return own;
        };
        let user = self.others.borrow()[index];
        Caller {
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

/// The users' links to one store.
#[derive(Default)]
pub(super) struct Sides(RefCell<BTreeMap<UserId, Side>>);

struct Side {
    /// The volume's own.
    beside: Rc<dyn Link>,
    now: Now,
}

enum Now {
    Opening,
    Open(Rc<dyn Link>),
    /// It is not tried before this.
    Failed(Instant),
}

impl Sides {
    /// The user's link beside `main`; else whether it is time to open one.
    fn find(&self, user: UserId, main: &Rc<dyn Link>) -> Result<Rc<dyn Link>, bool> {
        let all = self.0.borrow();
        match all.get(&user).filter(|it| Rc::ptr_eq(&it.beside, main)) {
            None => Err(true),
            Some(side) => match &side.now {
                Now::Open(link) => Ok(Rc::clone(link)),
                Now::Opening => Err(false),
                Now::Failed(until) => Err(env::now() >= *until),
            },
        }
    }

    fn set(&self, user: UserId, main: &Rc<dyn Link>, now: Now) {
        let beside = Rc::clone(main);
        self.0.borrow_mut().insert(user, Side { beside, now });
    }

    /// Those that can be used.
    fn open(&self) -> Vec<(UserId, Rc<dyn Link>)> {
        let all = self.0.borrow();
        let open = all.iter().filter_map(|(user, side)| match &side.now {
            Now::Open(link) => Some((*user, Rc::clone(link))),
            _ => None,
        });
        open.collect()
    }

    /// This link is of no more use, if it is one of these.
    pub fn drop_one(&self, link: &Rc<dyn Link>) {
        let is_it = |side: &Side| matches!(&side.now, Now::Open(own) if Rc::ptr_eq(own, link));
        self.0.borrow_mut().retain(|_, side| !is_it(side));
    }

    /// The volume's own link is of no more use.
    pub fn clear(&self) {
        self.0.borrow_mut().clear();
    }
}

impl Core {
    /// The link that a user's requests to a store take. No request waits: while it is opened they take the volume's
    /// own.
    pub(super) fn link_of(self: &Rc<Self>, member: &Member, user: UserId) -> Option<Rc<dyn Link>> {
        let main = member.link()?;
        if user == UserId::OWN {
            return Some(main);
        }
        match member.sides.find(user, &main) {
            Ok(link) => Some(link),
            Err(due) => {
                if due {
                    member.sides.set(user, &main, Now::Opening);
                    let (core, number) = (Rc::clone(self), member.site.number);
                    let beside = Rc::clone(&main);
                    env::spawn(async move { core.open_side(number, user, beside).await });
                }
                Some(main)
            }
        }
    }

    /// Opens a user's link beside the volume's own.
    async fn open_side(&self, number: StoreNumber, user: UserId, main: Rc<dyn Link>) {
        let member = self.member(number).expect("it was a member");
        let opened = async {
            let link = self.enter_store(member, member.mark()).await?;
            self.introduce(&link, user, true).await?;
            Ok::<_, LinkError>(link)
        };
        let opened = opened.await;
        if !member.link().is_some_and(|now| Rc::ptr_eq(&now, &main)) {
            return;
        }
        let now = match opened {
            Ok(link) => Now::Open(link),
            Err(error) => {
                tracing::debug!(volume = %self.id, store = %self.label(number), %error, "no link of a user's own");
                Now::Failed(env::now() + AGAIN)
            }
        };
        member.sides.set(user, &main, now);
    }

    /// The link that background copies take beside `main`, a store's own; that one where there is no other.
    pub(super) async fn background(&self, main: &Rc<dyn Link>) -> Rc<dyn Link> {
        let is_its = |member: &&Member| member.link().is_some_and(|it| Rc::ptr_eq(&it, main));
        let Some(member) = self.members.values().find(is_its) else {
            return Rc::clone(main);
        };
        let user = UserId::BACKGROUND;
        if let Err(true) = member.sides.find(user, main) {
            member.sides.set(user, main, Now::Opening);
            let beside = Rc::clone(main);
            self.open_side(member.site.number, user, beside).await;
        }
        let found = member.sides.find(user, main);
        found.unwrap_or_else(|_| Rc::clone(main))
    }

    /// Opens a user's links to all stores there are links to.
    async fn open_sides(&self, user: UserId) {
        let opening = self.members.values().filter_map(|member| {
            let main = member.link()?;
            // An opening under way goes on.
            member.sides.find(user, &main).err().filter(|due| *due)?;
            member.sides.set(user, &main, Now::Opening);
            Some(self.open_side(member.site.number, user, main))
        });
        join_all(opening.collect::<Vec<_>>()).await;
    }
}

impl Core {
    /// Whose a user's requests are, and under whose reservations they come.
    fn said_of(&self, user: UserId) -> (Caller, Option<String>) {
        let reservation = self.record.borrow().0.reservation.clone();
        let holder = reservation.filter(|_| user != UserId::BACKGROUND);
        (self.users.get(user), holder)
    }

    /// Says at a store whose requests will come, and under whose reservations. `fresh`: nothing was said there yet.
    pub(super) async fn introduce(
        &self,
        link: &Rc<dyn Link>,
        user: UserId,
        mut fresh: bool,
    ) -> Result<(), LinkError> {
        loop {
            let said = self.said_of(user);
            let (caller, holder) = &said;
            self.within(link.tell(*caller)).await?;
            if holder.is_some() || !fresh {
                match self.within(link.come_under(holder.as_deref())).await {
                    // A store that knows no such thing promises nothing.
                    Err(LinkError::Refused(why)) => {
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
        let mut links = Vec::new();
        for member in self.members.values() {
            let own = member.link().map(|link| (UserId::OWN, link));
            let all = own.into_iter().chain(member.sides.open());
            links.extend(all.map(|(user, link)| (member, user, link)));
        }
        let saying = links.iter().map(async |(member, user, link)| {
            if let Err(error) = self.introduce(link, *user, false).await {
                tracing::debug!(volume = %self.id, store = %member.site.name, %error, "the next link says it");
                member.lose(link, false);
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
    pub async fn become_one_of(&self, own: Caller) {
        let core = Rc::clone(&self.core);
        core.users.own.set(own);
        env::spawn(async move { core.introduce_anew().await }).await;
    }
}

/// A volume as one of its users has it: the same blocks, on the user's terms. Held as `Rc<dyn Device>`.
pub struct Seen {
    volume: Rc<Volume>,
    user: UserId,
}

impl Volume {
    /// The volume for a user that is a client of its own.
    pub async fn seen_by(self: &Rc<Self>, user: User) -> Rc<Seen> {
        let user = self.core.users.enter(user);
        if user != UserId::OWN {
            self.core.open_sides(user).await;
        }
        Rc::new(Seen {
            volume: Rc::clone(self),
            user,
        })
    }
}

impl Device for Seen {
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
