//! What do the requests of one connection hold?
//!
//! ```text
//! admit: within the connection's limits? -> above its allowance: the host's share, the server's pool -> RequestPermit
//! ```
//!
//! Always true:
//! 1. What a request holds is freed once: when its permit is dropped.
//! 2. Up to its allowance a connection never waits for what another one holds.

use std::cell::Cell;
use std::rc::Rc;

use env::sync::{Event, Permit, Semaphore};

use super::limits::Limits;

/// Requests not answered, refused ones among them, and the bytes they hold.
#[derive(Default)]
pub(super) struct Holding {
    requests: Cell<usize>,
    bytes: Cell<u64>,
    /// Something was freed.
    room: Event,
}

/// What one request holds of the limits; given back when dropped.
pub(super) struct RequestPermit {
    holding: Rc<Holding>,
    bytes: u64,
    /// Its part of the host's share and of the server's pool, beyond the connection's allowance.
    pool: Option<(Permit, Permit)>,
}

impl Holding {
    /// Bytes held now.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// Waits until nothing is held.
    pub(super) async fn wait_empty(&self) {
        while self.requests.get() > 0 {
            self.room.wait().await;
        }
    }

    /// Waits until one more request of `bytes` may be held.
    pub(super) async fn admit(
        self: &Rc<Self>,
        limits: &Limits,
        share: &Rc<Semaphore>,
        pool: &Rc<Semaphore>,
        bytes: u64,
    ) -> RequestPermit {
        while self.is_full(limits, bytes) {
            self.room.wait().await;
        }
        self.requests.set(self.requests.get() + 1);
        self.bytes.set(self.bytes.get() + bytes);
        let mut held = RequestPermit {
            holding: Rc::clone(self),
            bytes,
            pool: None,
        };
        if self.bytes.get() > limits.allowance.0 {
            // In this order: a connection that waits for its own host's share keeps nothing from others.
            let share = share.acquire(bytes).await;
            held.pool = Some((share, pool.acquire(bytes).await));
        }
        held
    }

    fn is_full(&self, limits: &Limits, bytes: u64) -> bool {
        let requests = self.requests.get();
        requests >= limits.requests_per_connection
            || (requests > 0 && self.bytes.get() + bytes > limits.bytes_per_connection.0)
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        let holding = &self.holding;
        holding.requests.set(holding.requests.get() - 1);
        holding.bytes.set(holding.bytes.get() - self.bytes);
        holding.room.notify_all();
    }
}
