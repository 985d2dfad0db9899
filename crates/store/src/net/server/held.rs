//! How much do the requests of a connection hold, and when may it have more?
//!
//! ```text
//! a request -> fewer than the most at once? -> within the allowance: at once
//!                                           -> beyond: session's memory, an equal share, the server's pool
//! ```
//!
//! Always true: what a request holds is freed once, when its [`Charge`] drops.

use std::cell::Cell;
use std::rc::Rc;

use base::Bytes;
use device::HeldAtCap;
use env::sync::{Event, Permit};

use super::Server;
use crate::qos::session::{Buffered, Session, work};

/// What the requests of one connection hold.
#[derive(Default)]
pub(super) struct Holding {
    /// Requests not answered, refused ones among them, and the bytes they hold.
    requests: Cell<u32>,
    bytes: Cell<u64>,
    /// A request was read and waits for room.
    admitting: Cell<bool>,
    /// Something held was freed.
    pub room: Event,
    /// What waits for a cap is not begun any more.
    ends: Cell<bool>,
    ending: Event,
}

/// A request that waits for memory, counted until it has it.
struct Waiting(Rc<Cell<u64>>);

impl Waiting {
    fn begin(count: &Rc<Cell<u64>>) -> Waiting {
        count.set(count.get() + 1);
        Waiting(Rc::clone(count))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// What one request holds of the limits; given back when dropped.
pub(super) struct Charge {
    holding: Rc<Holding>,
    server: Rc<Server>,
    bytes: u64,
    /// Its part of what its account may hold, of the session's memory and of the server's pool, beyond the connection's allowance.
    _beyond: Option<(Option<HeldAtCap>, Buffered, Permit)>,
}

impl Drop for Charge {
    fn drop(&mut self) {
        let holding = &self.holding;
        holding.requests.set(holding.requests.get() - 1);
        holding.bytes.set(holding.bytes.get() - self.bytes);
        self.server.count(|totals| totals.held -= self.bytes);
        holding.room.notify_all();
    }
}

impl Holding {
    /// The bytes they hold.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.bytes.get())
    }

    /// Is one read and not answered?
    pub fn waits(&self) -> bool {
        self.requests.get() > 0 || self.admitting.get()
    }

    /// The client has gone, or is sent away: what waits for a cap is not begun.
    pub fn end(&self) {
        self.ends.set(true);
        self.ending.notify_all();
    }

    /// Waits until [`Holding::end`].
    pub async fn until_end(&self) {
        while !self.ends.get() {
            self.ending.wait().await;
        }
    }

    /// Waits until nothing is held.
    pub async fn until_free(&self) {
        while self.requests.get() > 0 {
            self.room.wait().await;
        }
    }

    /// Waits until one more request of `bytes` may be held.
    pub async fn admit(
        self: &Rc<Self>,
        server: &Rc<Server>,
        session: &Rc<Session>,
        bytes: u64,
    ) -> Charge {
        self.admitting.set(true);
        while self.requests.get() >= server.limits.requests_per_connection {
            self.room.wait().await;
        }
        // Up to its allowance a connection does not wait.
        let mut beyond = None;
        if self.bytes.get() + bytes > server.limits.allowance.0 {
            // All that a capped account has waiting, by whatever connections, is no more than one connection's.
            let of_account = work::held_at_cap(session, bytes, server.share()).await;
            let buffered = session.buffer(Bytes(bytes)).await;
            // One request alone may hold more than its share; what comes behind it waits for it.
            while self.bytes.get() > 0 && self.bytes.get() + bytes > server.share() {
                self.room.wait().await;
            }
            let _waiting = Waiting::begin(&server.waiting);
            let permit = server.pool.acquire(bytes).await;
            beyond = Some((of_account, buffered, permit));
        }
        self.admitting.set(false);
        self.requests.set(self.requests.get() + 1);
        self.bytes.set(self.bytes.get() + bytes);
        server.count(|totals| {
            totals.held += bytes;
            totals.held_max = totals.held_max.max(totals.held);
        });
        Charge {
            holding: Rc::clone(self),
            server: Rc::clone(server),
            bytes,
            _beyond: beyond,
        }
    }
}
