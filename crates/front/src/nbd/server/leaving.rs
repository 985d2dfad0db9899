//! Requests of connections that have ended, still under way on their device.
//!
//! ```text
//! connection ends -> its requests go on -> done
//! the same client, once more: asks again what had no answer, waits here first
//! ```
//!
//! Always true: what a client asks again over a new connection is carried out after what its last one left behind, as soon
//! as the server knows that this ended. Else an old write could land on a newer one.

use std::cell::Cell;
use std::rc::Rc;

use env::sync::Event;

/// Of one export.
#[derive(Default)]
pub(super) struct Leaving {
    connections: Cell<u64>,
    done: Event,
}

/// A connection that has ended, until its last request is done.
pub(super) struct Left(Rc<Leaving>);

impl Leaving {
    /// A connection has ended.
    pub(super) fn leave(self: &Rc<Self>) -> Left {
        self.connections.set(self.connections.get() + 1);
        Left(Rc::clone(self))
    }

    /// Waits until none of those that have ended has a request under way.
    pub(super) async fn wait(&self) {
        while self.connections.get() > 0 {
            self.done.wait().await;
        }
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        self.0.connections.set(self.0.connections.get() - 1);
        self.0.done.notify_all();
    }
}
