//! When clients used a volume last.

use std::cell::Cell;

use base::{Instant, Nanos};

/// Requests of clients.
pub(super) struct Usage {
    under_way: Cell<u64>,
    /// When one began or ended last.
    last: Cell<Instant>,
}

/// A request under way, until it is dropped.
pub(super) struct Request<'a>(&'a Usage);

impl Usage {
    pub fn new() -> Usage {
        Usage {
            under_way: Cell::new(0),
            last: Cell::new(env::now()),
        }
    }

    pub fn begin(&self) -> Request<'_> {
        self.under_way.set(self.under_way.get() + 1);
        self.last.set(env::now());
        Request(self)
    }

    /// Since the last request; `None`: one is under way.
    pub fn idle_for(&self) -> Option<Nanos> {
        let idle = env::now().since(self.last.get());
        (self.under_way.get() == 0).then_some(idle)
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        let usage = self.0;
        usage.under_way.set(usage.under_way.get() - 1);
        usage.last.set(env::now());
    }
}
