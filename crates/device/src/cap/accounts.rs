//! Caps of accounts: one throttle for all that an account does, wherever it comes in.
//!
//! ```text
//! name -> Throttle, shared by what has that name: clients of stores, volumes     set_all -> caps of all of them
//! ```
//!
//! Always true: what had a throttle before a cap was set is under that cap afterwards.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use base::Bytes;
use policy::share::Direction;
use policy::share::cap::Caps;

use super::Throttle;

/// The throttles of accounts, by their names.
#[derive(Default)]
pub struct AccountCaps {
    throttles: RefCell<BTreeMap<String, Rc<Throttle>>>,
    /// Of accounts that have some.
    caps: RefCell<BTreeMap<String, Caps>>,
}

impl AccountCaps {
    /// That of an account. To be called inside a runtime, whose clock it reads.
    pub fn of(&self, name: &str) -> Rc<Throttle> {
        let mut throttles = self.throttles.borrow_mut();
        if let Some(throttle) = throttles.get(name) {
            return Rc::clone(throttle);
        }
        // What nothing uses owes nothing that a new one would not let pass within a second.
        throttles.retain(|_, throttle| Rc::strong_count(throttle) > 1);
        let caps = self.caps.borrow().get(name).copied().unwrap_or_default();
        let throttle = Throttle::new(caps);
        throttles.insert(name.to_owned(), Rc::clone(&throttle));
        throttle
    }

    /// Accounts have these caps from now on, and none where nothing is said.
    pub fn set_all(&self, caps: BTreeMap<String, Caps>) {
        for (name, throttle) in &*self.throttles.borrow() {
            throttle.set(caps.get(name).copied().unwrap_or_default());
        }
        *self.caps.borrow_mut() = caps;
    }

    /// What waits may go on: the daemon stops, and answers what it took.
    pub fn lift(&self) {
        self.set_all(BTreeMap::new());
    }
}

/// One user of a throttle whose requests go to no device: the session of a store's client.
pub struct ThrottleUser {
    throttle: Rc<Throttle>,
    user: u64,
}

impl ThrottleUser {
    /// One more user.
    pub fn new(throttle: Rc<Throttle>) -> ThrottleUser {
        let user = throttle.users.get();
        throttle.users.set(user + 1);
        ThrottleUser { throttle, user }
    }

    /// Waits until a request may pass. What is longer than a burst is paid for piece by piece, between which others go, and
    /// passes as a whole.
    pub async fn pass(&self, direction: Direction, bytes: Bytes) {
        if self.throttle.is_open(direction) {
            return;
        }
        let mut turn = self.throttle.enter(self.user, direction, bytes);
        while turn.pass(true).await.is_some() {}
    }
}

impl Drop for ThrottleUser {
    fn drop(&mut self) {
        self.throttle.leave(self.user);
    }
}
