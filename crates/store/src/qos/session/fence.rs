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

use std::rc::Rc;

use policy::share::Direction;

use crate::object::error::StoreError;
use crate::object::names::check_name;
use crate::object::types::{Change, Condition};
use crate::qos::session::{OperationError, Session};
use crate::qos::state::Core;
use crate::qos::state::permits::Key;

/// The greatest token a fence is sealed with. Tokens count takeovers: one a second reaches this in 136 years, and a fence
/// sealed with the greatest number would let no successor in.
pub const SEAL_MAX: u64 = u32::MAX as u64;

/// A fence object and the token a writer works under; see the module's head.
#[derive(Clone)]
pub struct Fence {
    core: Rc<Core>,
    object: Rc<str>,
    token: u64,
}

/// Leave for one operation; given back when dropped.
pub struct Permit {
    core: Rc<Core>,
    key: Key,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.core.permits.end(&self.key);
    }
}

impl Fence {
    /// As [`Session::fence`].
    pub(super) fn new(
        session: &Session,
        object: &str,
        token: u64,
    ) -> Result<Fence, OperationError> {
        session.may("be guarded by", object, None)?;
        check_name(object).map_err(|why| StoreError::Request {
            what: format!("guard a session by {object:?}"),
            why,
        })?;
        Ok(Fence {
            core: Rc::clone(session.manager()),
            object: Rc::from(object),
            token,
        })
    }

    /// Is it this one?
    pub fn is(&self, object: &str, token: u64) -> bool {
        (&*self.object, self.token) == (object, token)
    }

    /// Leave for one operation.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] if the fence was sealed with a greater token.
    pub fn enter(&self) -> Result<Permit, StoreError> {
        let store = &self.core.store;
        let found = store.stat(&self.object).map_or(0, |stat| stat.stamp);
        if found > self.token {
            return Err(fenced(store.name(), &self.object, self.token, found));
        }
        let key = (Rc::clone(&self.object), self.token);
        self.core.permits.begin(&key);
        Ok(Permit {
            core: Rc::clone(&self.core),
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

/// As [`Session::seal`].
pub(super) async fn seal(
    session: &Session,
    object: &str,
    token: u64,
) -> Result<(), OperationError> {
    session.may("seal", object, Some(Direction::Write))?;
    if token > SEAL_MAX {
        let why = format!("a guard's mark is at most {SEAL_MAX}, since it counts takeovers");
        let what = format!("seal {object:?} with mark {token}");
        return Err(StoreError::Request { what, why }.into());
    }
    let (core, store) = (session.manager(), session.manager().store());
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
    while core.permits.lesser(object, token) {
        core.permits.done.wait().await;
    }
    // After the last of them, so that what the successor sees is durable with its seal.
    Ok(store.flush().await?)
}
