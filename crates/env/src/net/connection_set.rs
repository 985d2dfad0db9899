//! The connections of one server: which are taken, which are cut, and how are they all closed?
//!
//! ```text
//! Listener -> accept -> admit: room? -> a task for each member, from its greeting to its end -> gone
//!                         watched: a member that is overdue is cut
//! ```
//!
//! Always true:
//! 1. No more than the limit are in, those that are cut and not gone yet left out.
//! 2. Only members that are still being let in make room for others.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

use base::{Instant, Nanos};

use super::{Address, Listener, Origin, Stream};
use crate::Task;
use crate::sync::Event;

/// One connection, as its set sees it.
pub trait Member {
    /// Is it still being let in?
    fn is_opening(&self) -> bool;
    /// Why it is to be cut now, if it is.
    fn overdue(&self, now: Instant) -> Option<&'static str>;
    /// Has it been cut?
    fn is_cut(&self) -> bool;
    /// Where it comes from.
    fn origin(&self) -> Origin {
        Origin::Unknown
    }
    /// Ends it at once; what it has begun still runs to its end.
    fn cut(&self, why: &'static str);
    /// From now on it begins nothing; once nothing is under way it ends.
    fn drain(&self);
}

/// Every open connection, by number in the order they came.
pub struct ConnectionSet<M> {
    members: RefCell<BTreeMap<u64, Rc<M>>>,
    acceptors: RefCell<Vec<(Address, Task<()>)>>,
    came: Cell<u64>,
    turned_away: Cell<u64>,
    stalled: Cell<u64>,
    draining: Cell<bool>,
    watching: Cell<bool>,
    /// A connection has ended.
    gone: Event,
}

impl<M> Default for ConnectionSet<M> {
    fn default() -> ConnectionSet<M> {
        ConnectionSet {
            members: RefCell::default(),
            acceptors: RefCell::default(),
            came: Cell::new(0),
            turned_away: Cell::new(0),
            stalled: Cell::new(0),
            draining: Cell::new(false),
            watching: Cell::new(false),
            gone: Event::default(),
        }
    }
}

impl<M: Member + 'static> ConnectionSet<M> {
    /// Gives each connection that `listener` takes to `admit` until the set closes. A failure to accept goes to
    /// `failed`, and the next try is a tenth of a second later.
    pub fn accept(
        &self,
        listener: Listener,
        admit: impl Fn(Stream) + 'static,
        failed: impl Fn(&Listener, io::Error) + 'static,
    ) {
        let address = listener.address().clone();
        let acceptor = accept_each(listener, admit, failed);
        self.acceptors.borrow_mut().push((address, acceptor));
    }

    /// From now on no connection is taken at `address`, where no listener listens; those that came there go on.
    pub fn close_at(&self, address: &Address) {
        self.acceptors.borrow_mut().retain(|(at, acceptor)| {
            let stays = at != address;
            if !stays {
                acceptor.cancel();
            }
            stays
        });
    }

    /// The number of one more, if there is room; cuts the oldest that is still being let in if need be. A set that
    /// closes takes no connection: then there is no number, and nothing is counted.
    ///
    /// # Errors
    /// [`Full`].
    pub fn number(&self, most: usize) -> Result<Option<u64>, Full> {
        if self.draining.get() {
            return Ok(None);
        }
        self.came.set(self.came.get() + 1);
        self.make_room(most, |_| true)?;
        Ok(Some(self.came.get()))
    }

    /// As [`ConnectionSet::number`], and no more than `most_of_one` come from one host.
    ///
    /// # Errors
    /// [`Full`].
    pub fn number_from(
        &self,
        origin: Origin,
        most: usize,
        most_of_one: usize,
    ) -> Result<Option<u64>, Full> {
        if self.draining.get() {
            return Ok(None);
        }
        if matches!(origin, Origin::Host(_)) {
            let room = self.make_room(most_of_one, |member| member.origin() == origin);
            if room.is_err() {
                self.came.set(self.came.get() + 1);
            }
            room?;
        }
        self.number(most)
    }

    /// Sees that fewer than `most` of those that count are in.
    fn make_room(&self, most: usize, counts: impl Fn(&M) -> bool) -> Result<(), Full> {
        let members = self.members.borrow();
        let open = || members.values().filter(|it| !it.is_cut() && counts(it));
        if open().count() < most {
            return Ok(());
        }
        self.turned_away.set(self.turned_away.get() + 1);
        let oldest = open().find(|member| member.is_opening());
        oldest.ok_or(Full)?.cut("too many connections");
        Ok(())
    }

    /// Takes in the member of this number, looks after it every `interval`, and lets go of it when `serving` has ended.
    pub fn enter(
        self: &Rc<Self>,
        number: u64,
        member: Rc<M>,
        interval: Nanos,
        serving: impl Future<Output = ()> + 'static,
    ) {
        self.members.borrow_mut().insert(number, member);
        self.watch(interval);
        let set = Rc::clone(self);
        crate::spawn(async move {
            serving.await;
            set.members.borrow_mut().remove(&number);
            set.gone.notify_all();
        });
    }

    /// Cuts connections that are overdue, as long as there is any connection.
    fn watch(self: &Rc<Self>, interval: Nanos) {
        if self.watching.replace(true) {
            return;
        }
        let set = Rc::clone(self);
        crate::spawn(async move {
            while !set.members.borrow().is_empty() {
                crate::sleep(interval).await;
                let now = crate::now();
                for member in set.members.borrow().values() {
                    if !member.is_cut()
                        && let Some(why) = member.overdue(now)
                    {
                        set.stalled.set(set.stalled.get() + 1);
                        member.cut(why);
                    }
                }
            }
            set.watching.set(false);
        });
    }

    /// From now on no connection is taken, and no listener listens.
    pub fn close(&self) {
        self.draining.set(true);
        for (_, acceptor) in self.acceptors.borrow_mut().drain(..) {
            acceptor.cancel();
        }
    }

    /// Drains all for which `which` is true, and waits until they are gone. After `timeout` they are cut.
    pub async fn leave(&self, timeout: Nanos, which: impl Fn(&M) -> bool) {
        let mine = || -> Vec<Rc<M>> {
            let mut all = self.all();
            all.retain(|member| which(member));
            all
        };
        let all_gone = async || {
            while !mine().is_empty() {
                self.gone.wait().await;
            }
        };
        for member in mine() {
            if member.is_opening() {
                member.cut("the server is shutting down");
            } else {
                member.drain();
            }
        }
        if crate::timeout(timeout, all_gone()).await.is_err() {
            for member in mine() {
                member.cut("its answers were not read in time");
            }
            all_gone().await;
        }
    }
}

impl<M> ConnectionSet<M> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.members.borrow().len()
    }

    /// Is there no member?
    pub fn is_empty(&self) -> bool {
        self.members.borrow().is_empty()
    }

    /// For how many `which` is true.
    pub fn count(&self, which: impl Fn(&M) -> bool) -> usize {
        let members = self.members.borrow();
        members.values().filter(|member| which(member)).count()
    }

    /// All connections, the oldest first.
    pub fn all(&self) -> Vec<Rc<M>> {
        self.members.borrow().values().map(Rc::clone).collect()
    }

    /// Is it closed?
    pub fn is_closed(&self) -> bool {
        self.draining.get()
    }

    /// How many came so far, how many found no room or made it, and how many were overdue.
    pub fn counts(&self) -> (u64, u64, u64) {
        (self.came.get(), self.turned_away.get(), self.stalled.get())
    }
}

/// Gives each connection that `listener` takes to `admit` until the task is cancelled. A failure to accept goes to `failed`,
/// and the next try is a tenth of a second later.
pub fn accept_each(
    listener: Listener,
    admit: impl Fn(Stream) + 'static,
    failed: impl Fn(&Listener, io::Error) + 'static,
) -> Task<()> {
    crate::spawn(async move {
        loop {
            match listener.accept().await {
                Ok(stream) => admit(stream),
                Err(error) => {
                    // Out of descriptors, most likely: it passes when connections end.
                    failed(&listener, error);
                    crate::sleep(Nanos::millis(100)).await;
                }
            }
        }
    })
}

/// No room for one more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many connections")]
pub struct Full;
