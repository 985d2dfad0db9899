//! Which writer has been replaced, and how does its successor know that it is done?
//!
//! ```text
//! Fenced (object, token) -> enter: is the fence's token greater? -> Permit, kept until the operation is done
//!                                   yes: fenced, reads too                     |
//! seal(object, token) -> the fence's token, in memory -> no permit of a lesser token is out -> durable -> answer
//! ```
//!
//! A *fence* is an object of which only the stamp matters: the fence's *token*. A writer works under the token it was
//! given. Its successor has a greater one and *seals* the fence with it before it does anything. By then every
//! request of the replaced writer is done and can be seen, or was refused. All its later requests are refused too, also
//! after a crash of the store.
//!
//! A token is given to one holder only (a number that was compared and swapped somewhere), so sealing again with the
//! token that is there is the same holder's, and does the same again. A lesser token is refused as fenced.
//!
//! What is done without a fence is never refused so: a client that may write the fence object itself may undo it.
//!
//! Always true:
//! 1. When a seal is answered, no operation under a lesser token is under way, and none will be begun.
//! 2. An operation under a permit goes on to its end, and keeps the permit until then, whether or not its caller still
//!    waits.
//! 3. Permits are counted by fence and token; what is remembered is bounded by the operations under way.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use base::{Buf, View};
use env::sync::Event;
use policy::place::Op;
use policy::share::Direction;

use crate::object::damage::Damage;
use crate::object::error::StoreError;
use crate::object::names::check_name;
use crate::object::types::{
    AllocatedRange, Change, Condition, Listing, SpaceFigures, Stat, Version,
};
use crate::qos::load_report::{self, ClientTag, UnderWay, place_of};
use crate::qos::manager::Manager;
use crate::qos::session::{OperationError, Session};

/// The greatest token a fence is sealed with. Tokens count takeovers: one a second reaches this in 136 years, and a fence
/// sealed with the greatest number would let no successor in.
pub const SEAL_MAX: u64 = u32::MAX as u64;

/// Operations under way, by fence and token.
#[derive(Default)]
pub(crate) struct Fences {
    under_way: RefCell<BTreeMap<(Rc<str>, u64), u64>>,
    /// A permit came back.
    done: Event,
}

impl Fences {
    /// Is an operation under `object` with a token below `token` under way?
    fn lesser(&self, object: &str, token: u64) -> bool {
        let from = (Rc::from(object), 0);
        let under_way = self.under_way.borrow();
        let mut all = under_way.range(from..);
        all.next()
            .is_some_and(|((name, other), _)| &**name == object && *other < token)
    }
}

/// A fence object and the token a writer works under; see the module's head.
#[derive(Clone)]
pub struct Fence {
    manager: Rc<Manager>,
    object: Rc<str>,
    token: u64,
}

/// Leave for one operation; given back when dropped.
pub struct Permit {
    manager: Rc<Manager>,
    key: (Rc<str>, u64),
}

impl Drop for Permit {
    fn drop(&mut self) {
        let fences = &self.manager.fences;
        let mut under_way = fences.under_way.borrow_mut();
        let count = under_way.get_mut(&self.key).expect("counted when it began");
        *count -= 1;
        if *count == 0 {
            under_way.remove(&self.key);
        }
        drop(under_way);
        fences.done.notify_all();
    }
}

impl Fence {
    /// Is it this one?
    pub fn is(&self, object: &str, token: u64) -> bool {
        (&*self.object, self.token) == (object, token)
    }

    /// Leave for one operation.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] if the fence was sealed with a greater token.
    pub fn enter(&self) -> Result<Permit, StoreError> {
        let store = &self.manager.store;
        let found = store.stat(&self.object).map_or(0, |stat| stat.stamp);
        if found > self.token {
            return Err(fenced(store.name(), &self.object, self.token, found));
        }
        let key = (Rc::clone(&self.object), self.token);
        let mut under_way = self.manager.fences.under_way.borrow_mut();
        *under_way.entry(key.clone()).or_default() += 1;
        Ok(Permit {
            manager: Rc::clone(&self.manager),
            key,
        })
    }
}

fn fenced(store: &str, object: &str, token: u64, found: u64) -> StoreError {
    StoreError::Fenced {
        store: store.to_owned(),
        object: object.to_owned(),
        stamp: token,
        found,
    }
}

impl Session {
    /// A fence for what is done here on behalf of `object`'s owner under `token`. The object need not be there yet.
    ///
    /// # Errors
    /// [`OperationError`] if the object is not the session's to see, or can have no such name.
    pub fn fence(&self, object: &str, token: u64) -> Result<Fence, OperationError> {
        self.may("be guarded by", object, None)?;
        check_name(object).map_err(|why| StoreError::Request {
            what: format!("guard a session by {object:?}"),
            why,
        })?;
        Ok(Fence {
            manager: Rc::clone(self.manager()),
            object: Rc::from(object),
            token,
        })
    }

    /// Fences all writers under `object` with a token below `token`: when this is answered none of their operations
    /// is under way, none will be begun, and that is durable.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] if its token is greater already; [`StoreError::Request`] above [`SEAL_MAX`]; else as for [`Session::create`]. Then nothing is known:
    /// some may be fenced.
    ///
    /// # Example
    /// ```
    /// # use base::{Bytes, View};
    /// # use store::{Change, Settings, Store, qos::{manager::{Manager, ManagerOptions}, session::Access}};
    /// # use policy::share::{BytesPerSec, Costs};
    /// # env::Runtime::simulated(1).block_on(async {
    /// # let device = device::Memory::new("disk", Bytes::mib(16));
    /// # Store::format(device.clone(), Settings::default()).await.unwrap().close().await.unwrap();
    /// # let options = ManagerOptions { node_key: Some([1; 32]), ..ManagerOptions::new(Costs::flat(BytesPerSec::mb(9)), [7; 32]) };
    /// # let manager = Manager::open(device, options).await.unwrap();
    /// let session = manager.open_session(Access::NodeKey).unwrap();
    /// session.seal("g/7", 1).await.unwrap();
    /// let first = session.fenced("g/7", 1).unwrap();
    /// first.create("a", &[], Change::FUA).await.unwrap();
    /// session.seal("g/7", 2).await.unwrap();
    /// let refused = first.stat("a").unwrap_err().to_string();
    /// assert!(refused.starts_with("fenced: what \"g/7\" in "), "{refused}");
    /// # });
    /// ```
    pub async fn seal(&self, object: &str, token: u64) -> Result<(), OperationError> {
        self.may("seal", object, Some(Direction::Write))?;
        if token > SEAL_MAX {
            let why = format!("a guard's mark is at most {SEAL_MAX}, since it counts takeovers");
            let what = format!("seal {object:?} with mark {token}");
            return Err(StoreError::Request { what, why }.into());
        }
        let (manager, store) = (self.manager(), self.manager().store());
        let change = Change {
            stamp: Some(token),
            condition: Condition::StampAtMost(token),
            ..Change::default()
        };
        loop {
            let made = match store.stat(object) {
                Ok(stat) if stat.stamp > token => {
                    return Err(fenced(store.name(), object, token, stat.stamp).into());
                }
                Ok(stat) if stat.stamp == token => break,
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
        if store
            .inner
            .planted(crate::object::parts::Mutation::HastySeal)
        {
            return Ok(store.flush().await?);
        }
        while manager.fences.lesser(object, token) {
            manager.fences.done.wait().await;
        }
        // After the last of them, so that what the successor sees is durable with its seal.
        Ok(store.flush().await?)
    }

    /// This session under a fence; see the module's head.
    ///
    /// # Errors
    /// As for [`Session::fence`].
    pub fn fenced(self: &Rc<Self>, object: &str, token: u64) -> Result<Rc<Fenced>, OperationError> {
        Ok(Rc::new(Fenced {
            fence: self.fence(object, token)?,
            session: Rc::clone(self),
            tag: Cell::new(ClientTag::unknown(0)),
        }))
    }
}

/// A session every operation of which, reads included, is refused once its fence was sealed with a greater token.
pub struct Fenced {
    session: Rc<Session>,
    fence: Fence,
    /// Whose reads and writes they are.
    tag: Cell<ClientTag>,
}

impl Fenced {
    /// The session without its fence.
    pub fn session(&self) -> &Rc<Session> {
        &self.session
    }

    /// Says whose reads and writes these are from now on.
    pub fn set_client_tag(&self, tag: ClientTag) {
        self.session.prefer(tag.origin.class);
        self.tag.set(tag);
    }

    /// Counts a read or write in the store's queue, until it is done.
    fn counted(&self, op: Op, object: &str, offset: u64, len: u64) -> Option<UnderWay> {
        let load = &self.session.manager().load;
        let at = place_of(object, offset);
        load.begin(&self.tag.get(), op, at, len, true)
    }

    /// One change, in a task of its own: it keeps its permit to its end, though the client that asked may be gone.
    async fn change<T: 'static>(
        &self,
        work: impl AsyncFnOnce(Rc<Session>) -> Result<T, OperationError> + 'static,
    ) -> Result<T, OperationError> {
        let permit = self.fence.enter()?;
        let session = Rc::clone(&self.session);
        env::spawn(async move {
            let answer = work(session).await;
            drop(permit);
            answer
        })
        .await
    }

    /// As [`Session::read`].
    ///
    /// # Errors
    /// [`OperationError`]; [`StoreError::Fenced`], as all below.
    pub async fn read(&self, object: &str, offset: u64, len: u64) -> Result<Buf, OperationError> {
        let _permit = self.fence.enter()?;
        let counted = self.counted(Op::Read, object, offset, len);
        let answer = self.session.read(object, offset, len).await;
        load_report::over(counted, answer)
    }

    /// As [`Session::allocated_ranges`].
    ///
    /// # Errors
    /// [`OperationError`].
    pub fn allocated_ranges(
        &self,
        object: &str,
        offset: u64,
        len: u64,
    ) -> Result<Vec<AllocatedRange>, OperationError> {
        let _permit = self.fence.enter()?;
        self.session.allocated_ranges(object, offset, len)
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
    ) -> Result<Version, OperationError> {
        let counted = self.counted(Op::Write, object, offset, data.len() as u64);
        let object = object.to_owned();
        self.change(async move |session| {
            load_report::over(counted, session.write(&object, offset, data, change).await)
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
    ) -> Result<Version, OperationError> {
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
    ) -> Result<Version, OperationError> {
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
    ) -> Result<Version, OperationError> {
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

    /// Sets nothing but the stamp that `change` gives; as [`Session::set_attributes`] with none.
    ///
    /// # Errors
    /// [`OperationError`].
    pub async fn stamp(&self, object: &str, change: Change) -> Result<Version, OperationError> {
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
    ) -> Result<Version, OperationError> {
        let (object, to) = (object.to_owned(), to.to_owned());
        self.change(async move |session| session.rename(&object, &to, replace, change).await)
            .await
    }

    /// As [`Session::stat`].
    ///
    /// # Errors
    /// [`OperationError`].
    pub fn stat(&self, object: &str) -> Result<Stat, OperationError> {
        let _permit = self.fence.enter()?;
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
        let _permit = self.fence.enter()?;
        self.session.list(prefix, after, most)
    }

    /// As [`Session::damage`], all of it.
    ///
    /// # Errors
    /// [`OperationError`].
    pub fn damage(&self, prefix: &str) -> Result<Vec<Damage>, OperationError> {
        let _permit = self.fence.enter()?;
        let (damage, _) = self.session.damage(prefix, "", 0, usize::MAX)?;
        Ok(damage)
    }

    /// How the store's room is divided.
    ///
    /// # Errors
    /// [`OperationError`].
    pub fn space(&self) -> Result<SpaceFigures, OperationError> {
        let _permit = self.fence.enter()?;
        Ok(self.session.manager().store().space())
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
