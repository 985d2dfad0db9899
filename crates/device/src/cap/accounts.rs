//! Caps of accounts: one throttle for all that an account does, wherever it comes in.
//!
//! ```text
//! name -> Throttle, shared by what has that name: clients of stores, volumes     set_all -> caps of all of them
//! ```
//!
//! Always true:
//! 1. What had a throttle before a cap was set is under that cap afterwards.
//! 2. A throttle is forgotten only when a new one would let no more pass, so coming again gains nothing.
//! 3. Of an account with a cap requests of stores' clients hold no more memory together than one request, or what is allowed.

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
        throttles.retain(|_, it| Rc::strong_count(it) > 1 || !it.is_as_new());
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

    #[cfg(test)]
    pub(super) fn known(&self) -> usize {
        self.throttles.borrow().len()
    }

    /// The daemon stops: what waits before a device may go on, and what users of throttles wait for is refused.
    pub fn lift(&self) {
        for throttle in self.throttles.borrow().values() {
            throttle.stops.set(true);
        }
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
    /// passes as a whole. `false`: it waited until the daemon stops, and is not to be begun.
    pub async fn pass(&self, direction: Direction, bytes: Bytes) -> bool {
        if self.throttle.is_open(direction) {
            return true;
        }
        let stopped = self.throttle.stops.get();
        let mut turn = self.throttle.enter(self.user, direction, bytes);
        while turn.pass(true).await.is_some() {}
        stopped || !self.throttle.stops.get()
    }

    /// Waits until a request that holds so much memory may wait here, where all of its account's may hold `most`. One alone
    /// may hold more. Where nothing is capped nothing is counted.
    pub async fn hold(&self, bytes: Bytes, most: Bytes) -> Option<HeldAtCap> {
        let throttle = &self.throttle;
        if throttle.caps().is_none() {
            return None;
        }
        while throttle.held.get() > 0 && throttle.held.get().saturating_add(bytes.0) > most.0 {
            throttle.room.wait().await;
        }
        throttle.held.set(throttle.held.get() + bytes.0);
        Some(HeldAtCap {
            throttle: Rc::clone(throttle),
            bytes: bytes.0,
        })
    }
}

/// A part of what requests of an account hold; given back when dropped.
pub struct HeldAtCap {
    throttle: Rc<Throttle>,
    bytes: u64,
}

impl Drop for HeldAtCap {
    fn drop(&mut self) {
        self.throttle
            .held
            .set(self.throttle.held.get() - self.bytes);
        self.throttle.room.notify_all();
    }
}

impl Drop for ThrottleUser {
    fn drop(&mut self) {
        self.throttle.leave(self.user);
    }
}
