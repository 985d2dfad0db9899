//! Lets management operations wait until no request is under way.

use std::cell::Cell;

use env::sync::Event;

/// Requests go through it; management closes it.
#[derive(Default)]
pub(super) struct Gate {
    closed: Cell<bool>,
    inside: Cell<u64>,
    changed: Event,
}

pub(crate) struct Inside<'a>(&'a Gate);

impl Gate {
    /// Waits until requests may go in.
    pub async fn enter(&self) -> Inside<'_> {
        while self.closed.get() {
            self.changed.wait().await;
        }
        self.inside.set(self.inside.get() + 1);
        Inside(self)
    }

    /// Requests under way.
    pub fn inside(&self) -> u64 {
        self.inside.get()
    }

    /// Keeps new requests waiting and waits for those under way.
    pub async fn close(&self) {
        while self.closed.replace(true) {
            self.changed.wait().await;
        }
        while self.inside.get() > 0 {
            self.changed.wait().await;
        }
    }

    pub fn open(&self) {
        self.closed.set(false);
        self.changed.notify_all();
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.inside.set(self.0.inside.get() - 1);
        if self.0.closed.get() && self.0.inside.get() == 0 {
            self.0.changed.notify_all();
        }
    }
}
