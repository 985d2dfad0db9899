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

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use env::sync::Event;
use policy::share::Direction;

use crate::object::error::StoreError;
use crate::object::names::check_name;
use crate::object::types::{Change, Condition};
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
    /// [`StoreError::Fenced`] if its token is greater already; [`StoreError::Request`] above [`SEAL_MAX`]; else [`OperationError`]. Then nothing is known:
    /// some may be fenced.
    ///
    /// # Example
    /// ```
    /// # use base::{Bytes, View};
    /// # use store::{Change, ObjectCalls, Settings, Store, qos::{fenced::Fenced, manager::{Manager, ManagerOptions}, session::Access}};
    /// # use policy::share::{BytesPerSec, Costs};
    /// # env::Runtime::simulated(1).block_on(async {
    /// # let device = device::Memory::new("disk", Bytes::mib(16));
    /// # Store::format(device.clone(), Settings::default()).await.unwrap().close().await.unwrap();
    /// # let options = ManagerOptions { node_key: Some([1; 32]), ..ManagerOptions::new(Costs::flat(BytesPerSec::mb(9)), [7; 32]) };
    /// # let manager = Manager::open(device, options).await.unwrap();
    /// let session = manager.open_session(Access::NodeKey).unwrap();
    /// session.seal("g/7", 1).await.unwrap();
    /// let first = Fenced::new(&session, "g/7", 1).unwrap();
    /// first.create("a", &[], Change::FUA).await.unwrap();
    /// session.seal("g/7", 2).await.unwrap();
    /// let refused = first.stat("a").await.unwrap_err().to_string();
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
}
