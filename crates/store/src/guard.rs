//! Which writer has been replaced, and how does its successor know that it is done?
//!
//! ```text
//! Guarded (object, mark) -> enter: is the object's mark greater? -> Pass, kept until the operation is done
//!                                   yes: fenced, reads too                     |
//! seal(object, mark) -> the object's mark, in memory -> no pass of a lesser mark is out -> durable -> answer
//! ```
//!
//! A *guard* is an object of which only the mark matters. A writer works under the mark it was given, as under a
//! fencing token. Its successor has a greater one and *seals* the guard with it before it does anything. By then every
//! request of the replaced writer is done and can be seen, or was refused. All its later requests are refused too, also
//! after a crash of the store.
//!
//! A mark is given to one holder only (a number that was compared and swapped somewhere), so sealing again with the
//! mark that is there is the same holder's, and does the same again. A lesser mark is refused as fenced.
//!
//! What is not guarded is not fenced: a client that may write the guard object itself may undo it.
//!
//! Always true:
//! 1. When a seal is answered, no operation guarded with a lesser mark is under way, and none will be begun.
//! 2. An operation under a pass goes on to its end, and keeps the pass until then, whether or not its caller still
//!    waits.
//! 3. Passes are counted by guard and mark; what is remembered is bounded by the operations under way.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use base::{Buf, View};
use env::sync::Event;
use policy::place::Op;
use policy::share::Direction;

use crate::damage::Damage;
use crate::error::StoreError;
use crate::names::check_name;
use crate::node::Node;
use crate::object::{Change, Condition, Extent, Generation, Listing, SpaceFigures, Stat};
use crate::session::{OperationError, Session};
use crate::told::{self, Caller, UnderWay, place_of};

/// The greatest mark a guard is sealed with. Marks count takeovers: one a second reaches this in 136 years, and a guard
/// sealed with the greatest number would let no successor in.
pub const SEAL_MAX: u64 = u32::MAX as u64;

/// Operations under way, by guard and mark.
#[derive(Default)]
pub(crate) struct Guards {
    under_way: RefCell<BTreeMap<(Rc<str>, u64), u64>>,
    /// A pass came back.
    done: Event,
}

impl Guards {
    /// Is an operation guarded by `object` with a mark below `mark` under way?
    fn lesser(&self, object: &str, mark: u64) -> bool {
        let from = (Rc::from(object), 0);
        let under_way = self.under_way.borrow();
        let mut all = under_way.range(from..);
        all.next()
            .is_some_and(|((name, other), _)| &**name == object && *other < mark)
    }
}

/// An object and the mark a writer works under; see the module's head.
#[derive(Clone)]
pub struct Guard {
    node: Rc<Node>,
    object: Rc<str>,
    mark: u64,
}

/// Leave for one operation; given back when dropped.
pub struct Pass {
    node: Rc<Node>,
    key: (Rc<str>, u64),
}

impl Drop for Pass {
    fn drop(&mut self) {
        let guards = &self.node.guards;
        let mut under_way = guards.under_way.borrow_mut();
        let count = under_way.get_mut(&self.key).expect("counted when it began");
        *count -= 1;
        if *count == 0 {
            under_way.remove(&self.key);
        }
        drop(under_way);
        guards.done.notify_all();
    }
}

impl Guard {
    /// Is it this one?
    pub fn is(&self, object: &str, mark: u64) -> bool {
        (&*self.object, self.mark) == (object, mark)
    }

    /// Leave for one operation.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] if the guard was sealed with a greater mark.
    pub fn enter(&self) -> Result<Pass, StoreError> {
        let store = &self.node.store;
        let found = store.stat(&self.object).map_or(0, |stat| stat.mark);
        if found > self.mark {
            return Err(fenced(store.name(), &self.object, self.mark, found));
        }
        let key = (Rc::clone(&self.object), self.mark);
        let mut under_way = self.node.guards.under_way.borrow_mut();
        *under_way.entry(key.clone()).or_default() += 1;
        Ok(Pass {
            node: Rc::clone(&self.node),
            key,
        })
    }
}

fn fenced(store: &str, object: &str, mark: u64, found: u64) -> StoreError {
    StoreError::Fenced {
        store: store.to_owned(),
        object: object.to_owned(),
        mark,
        found,
    }
}

impl Session {
    /// A guard for what is done here on behalf of `object`'s owner under `mark`. The object need not be there yet.
    ///
    /// # Errors
    /// [`OperationError`] if the object is not the session's to see, or can have no such name.
    pub fn guard(&self, object: &str, mark: u64) -> Result<Guard, OperationError> {
        self.may("be guarded by", object, None)?;
        check_name(object).map_err(|why| StoreError::Request {
            what: format!("guard a session by {object:?}"),
            why,
        })?;
        Ok(Guard {
            node: Rc::clone(self.node()),
            object: Rc::from(object),
            mark,
        })
    }

    /// Fences all writers guarded by `object` with a mark below `mark`: when this is answered none of their operations
    /// is under way, none will be begun, and that is durable.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] if its mark is greater already; [`StoreError::Request`] above [`SEAL_MAX`]; else as for [`Session::create`]. Then nothing is known:
    /// some may be fenced.
    ///
    /// # Example
    /// ```
    /// # use base::{Bytes, View};
    /// # use store::{Change, Settings, Store, node::{Node, NodeOptions}, session::Access};
    /// # use policy::share::{BytesPerSec, Costs};
    /// # env::Runtime::simulated(1).block_on(async {
    /// # let device = device::Memory::new("disk", Bytes::mib(16));
    /// # Store::format(device.clone(), Settings::default()).await.unwrap().close().await.unwrap();
    /// # let options = NodeOptions { node_key: Some([1; 32]), ..NodeOptions::new(Costs::flat(BytesPerSec::mb(9)), [7; 32]) };
    /// # let node = Node::open(device, options).await.unwrap();
    /// let session = node.open_session(Access::NodeKey).unwrap();
    /// session.seal("g/7", 1).await.unwrap();
    /// let first = session.guarded("g/7", 1).unwrap();
    /// first.create("a", &[], Change::FUA).await.unwrap();
    /// session.seal("g/7", 2).await.unwrap();
    /// let refused = first.stat("a").unwrap_err().to_string();
    /// assert!(refused.starts_with("fenced: what \"g/7\" in "), "{refused}");
    /// # });
    /// ```
    pub async fn seal(&self, object: &str, mark: u64) -> Result<(), OperationError> {
        self.may("seal", object, Some(Direction::Write))?;
        if mark > SEAL_MAX {
            let why = format!("a guard's mark is at most {SEAL_MAX}, since it counts takeovers");
            let what = format!("seal {object:?} with mark {mark}");
            return Err(StoreError::Request { what, why }.into());
        }
        let (node, store) = (self.node(), self.node().store());
        let change = Change {
            mark: Some(mark),
            condition: Condition::MarkAtMost(mark),
            ..Change::default()
        };
        loop {
            let made = match store.stat(object) {
                Ok(stat) if stat.mark > mark => {
                    return Err(fenced(store.name(), object, mark, stat.mark).into());
                }
                Ok(stat) if stat.mark == mark => break,
                Ok(_) => store.set_attributes(object, &[], change).await,
                Err(_) => store.create(object, &[], change).await,
            };
            match made {
                // Another request was here meanwhile: look again.
                Ok(_)
                | Err(
                    StoreError::Exists { .. }
                    | StoreError::Condition { .. }
                    | StoreError::NotFound { .. },
                ) => {}
                Err(other) => return Err(other.into()),
            }
        }
        #[cfg(test)]
        if store.inner.planted(crate::open::Bug::HastySeal) {
            return Ok(store.flush().await?);
        }
        while node.guards.lesser(object, mark) {
            node.guards.done.wait().await;
        }
        // After the last of them, so that what the successor sees is durable with its seal.
        Ok(store.flush().await?)
    }

    /// This session under a guard; see the module's head.
    ///
    /// # Errors
    /// As for [`Session::guard`].
    pub fn guarded(
        self: &Rc<Self>,
        object: &str,
        mark: u64,
    ) -> Result<Rc<Guarded>, OperationError> {
        Ok(Rc::new(Guarded {
            guard: self.guard(object, mark)?,
            session: Rc::clone(self),
            caller: Cell::new(Caller::unknown(0)),
        }))
    }
}

/// A session every operation of which, reads included, is refused once its guard was sealed with a greater mark.
pub struct Guarded {
    session: Rc<Session>,
    guard: Guard,
    /// Whose reads and writes they are.
    caller: Cell<Caller>,
}

impl Guarded {
    /// The session without its guard.
    pub fn session(&self) -> &Rc<Session> {
        &self.session
    }

    /// Says whose reads and writes these are from now on.
    pub fn tell(&self, caller: Caller) {
        self.session.prefer(caller.origin.class);
        self.caller.set(caller);
    }

    /// Counts a read or write in the store's queue, until it is done.
    fn counted(&self, op: Op, object: &str, offset: u64, len: u64) -> Option<UnderWay> {
        let watch = &self.session.node().watch;
        let at = place_of(object, offset);
        watch.begin(&self.caller.get(), op, at, len, true)
    }

    /// One change, in a task of its own: it keeps its pass to its end, though the client that asked may be gone.
    async fn change<T: 'static>(
        &self,
        work: impl AsyncFnOnce(Rc<Session>) -> Result<T, OperationError> + 'static,
    ) -> Result<T, OperationError> {
        let pass = self.guard.enter()?;
        let session = Rc::clone(&self.session);
        env::spawn(async move {
            let answer = work(session).await;
            drop(pass);
            answer
        })
        .await
    }

    /// As [`Session::read`].
    ///
    /// # Errors
    /// [`OperationError`]; [`StoreError::Fenced`], as all below.
    pub async fn read(&self, object: &str, offset: u64, len: u64) -> Result<Buf, OperationError> {
        let _pass = self.guard.enter()?;
        let counted = self.counted(Op::Read, object, offset, len);
        let answer = self.session.read(object, offset, len).await;
        told::over(counted, answer)
    }

    /// As [`Session::extents`].
    ///
    /// # Errors
    /// [`OperationError`].
    pub fn extents(
        &self,
        object: &str,
        offset: u64,
        len: u64,
    ) -> Result<Vec<Extent>, OperationError> {
        let _pass = self.guard.enter()?;
        self.session.extents(object, offset, len)
    }

    /// As [`Session::write`].
    ///
    /// # Errors
    /// [`OperationError`].
    pub async fn write(
        &self,
        object: &str,
        offset: u64,
        data: View,
        change: Change,
    ) -> Result<Generation, OperationError> {
        let counted = self.counted(Op::Write, object, offset, data.len() as u64);
        let object = object.to_owned();
        self.change(async move |session| {
            told::over(counted, session.write(&object, offset, data, change).await)
        })
        .await
    }

    /// As [`Session::truncate`].
    ///
    /// # Errors
    /// [`OperationError`].
    pub async fn truncate(
        &self,
        object: &str,
        size: u64,
        change: Change,
    ) -> Result<Generation, OperationError> {
        let object = object.to_owned();
        self.change(async move |session| session.truncate(&object, size, change).await)
            .await
    }

    /// As [`Session::punch`].
    ///
    /// # Errors
    /// [`OperationError`].
    pub async fn punch(
        &self,
        object: &str,
        offset: u64,
        len: u64,
        change: Change,
    ) -> Result<Generation, OperationError> {
        let object = object.to_owned();
        self.change(async move |session| session.punch(&object, offset, len, change).await)
            .await
    }

    /// As [`Session::create`].
    ///
    /// # Errors
    /// [`OperationError`].
    pub async fn create(
        &self,
        object: &str,
        attributes: &[(&str, &[u8])],
        change: Change,
    ) -> Result<Generation, OperationError> {
        let object = object.to_owned();
        let pairs = attributes.iter();
        let owned: Vec<(String, Vec<u8>)> = pairs
            .map(|(name, value)| ((*name).to_owned(), value.to_vec()))
            .collect();
        self.change(async move |session| {
            let pairs = owned.iter().map(|(name, value)| (&**name, &**value));
            let pairs: Vec<(&str, &[u8])> = pairs.collect();
            session.create(&object, &pairs, change).await
        })
        .await
    }

    /// Sets nothing but the mark that `change` gives; as [`Session::set_attributes`] with none.
    ///
    /// # Errors
    /// [`OperationError`].
    pub async fn stamp(&self, object: &str, change: Change) -> Result<Generation, OperationError> {
        let object = object.to_owned();
        self.change(async move |session| session.set_attributes(&object, &[], change).await)
            .await
    }

    /// As [`Session::delete`].
    ///
    /// # Errors
    /// [`OperationError`].
    pub async fn delete(&self, object: &str, change: Change) -> Result<(), OperationError> {
        let object = object.to_owned();
        self.change(async move |session| session.delete(&object, change).await)
            .await
    }

    /// As [`Session::rename`].
    ///
    /// # Errors
    /// [`OperationError`].
    pub async fn rename(
        &self,
        object: &str,
        to: &str,
        replace: bool,
        change: Change,
    ) -> Result<Generation, OperationError> {
        let (object, to) = (object.to_owned(), to.to_owned());
        self.change(async move |session| session.rename(&object, &to, replace, change).await)
            .await
    }

    /// As [`Session::stat`].
    ///
    /// # Errors
    /// [`OperationError`].
    pub fn stat(&self, object: &str) -> Result<Stat, OperationError> {
        let _pass = self.guard.enter()?;
        self.session.stat(object)
    }

    /// As [`Session::list`].
    ///
    /// # Errors
    /// [`OperationError`].
    pub fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        most: usize,
    ) -> Result<Listing, OperationError> {
        let _pass = self.guard.enter()?;
        self.session.list(prefix, after, most)
    }

    /// As [`Session::damage`], all of it.
    ///
    /// # Errors
    /// [`OperationError`].
    pub fn damage(&self, prefix: &str) -> Result<Vec<Damage>, OperationError> {
        let _pass = self.guard.enter()?;
        let (damage, _) = self.session.damage(prefix, "", 0, usize::MAX)?;
        Ok(damage)
    }

    /// How the store's room is divided.
    ///
    /// # Errors
    /// [`OperationError`].
    pub fn space(&self) -> Result<SpaceFigures, OperationError> {
        let _pass = self.guard.enter()?;
        Ok(self.session.node().store().space())
    }

    /// As [`Session::flush`].
    ///
    /// # Errors
    /// [`OperationError`].
    pub async fn flush(&self) -> Result<(), OperationError> {
        self.change(async move |session| session.flush().await)
            .await
    }
}
