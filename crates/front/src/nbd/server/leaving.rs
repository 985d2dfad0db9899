//! Requests of connections that have ended, still under way on their device.
//!
//! ```text
//! connection ends -> its requests go on -> done
//! the same client, once more: asks again what had no answer, waits here first
//! ```
//!
//! Always true: what a client asks again over a new connection is carried out after what its last one left behind, as soon
//! as the server knows that this ended. Else an old write could land on a newer one.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use env::sync::Event;

/// Of one export.
#[derive(Default)]
pub(super) struct Leaving {
    /// The number that the next one gets.
    next: Cell<u64>,
    connections: RefCell<BTreeSet<u64>>,
    done: Event,
}

/// A connection that has ended, until its last request is done that changes something.
struct Left {
    of: Rc<Leaving>,
    number: u64,
}

/// Requests of one connection that are under way and change something.
#[derive(Default)]
pub(super) struct Changing {
    requests: Cell<u64>,
    /// Once it has ended.
    left: RefCell<Option<Left>>,
}

impl Changing {
    /// A request was taken; a worker may do it later.
    pub(super) fn begin(&self, changes: bool) {
        self.requests.set(self.requests.get() + u64::from(changes));
    }

    /// It is done.
    pub(super) fn end(&self, changes: bool) {
        self.requests.set(self.requests.get() - u64::from(changes));
        if self.requests.get() == 0 {
            self.left.take();
        }
    }

    /// The connection has ended.
    pub(super) fn leave(&self, export: &Rc<Leaving>) {
        if self.requests.get() > 0 {
            self.left.replace(Some(export.leave()));
        }
    }
}

impl Leaving {
    /// A connection has ended.
    fn leave(self: &Rc<Self>) -> Left {
        let number = self.next.replace(self.next.get() + 1);
        self.connections.borrow_mut().insert(number);
        Left {
            of: Rc::clone(self),
            number,
        }
    }

    /// Waits until none of those that have ended by now changes anything any more; later ones are not waited for.
    pub(super) async fn wait(&self) {
        let next = self.next.get();
        let earlier = || self.connections.borrow().range(..next).next().is_some();
        while earlier() {
            self.done.wait().await;
        }
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        self.of.connections.borrow_mut().remove(&self.number);
        self.of.done.notify_all();
    }
}
