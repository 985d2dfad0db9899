//! Requests of connections that have ended, still under way on their device.
//!
//! ```text
//! connection ends, or its client has hung up -> what it asked goes on -> done
//! the same client, once more: asks again what had no answer, waits here first
//! ```
//!
//! Always true: what a client asks again over a new connection is carried out after what its last one left behind, as soon
//! as the server knows that this ended. Else an old write could land on a newer one. Servers on several threads that let
//! clients in to one export have one table; whether a client hung up that is not read from, only its own server sees.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// What connections of one export left behind. Its clones are one.
#[derive(Clone, Default)]
pub struct Leaving(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    /// The number that the next one gets.
    next: u64,
    connections: BTreeSet<u64>,
    waiting: Vec<Waker>,
}

/// A connection that has ended, until its last request is done that changes something.
struct Left {
    of: Leaving,
    number: u64,
}

/// Requests of one connection that are under way and change something.
#[derive(Default)]
pub(super) struct Changing {
    requests: Cell<u64>,
    /// Further ones may be read.
    reads: Cell<bool>,
    /// Once it has ended, or its client hung up.
    left: RefCell<Option<Left>>,
}

impl Changing {
    /// From now on requests are read.
    pub(super) fn enter(&self) {
        self.reads.set(true);
    }

    /// A request was taken; a worker may do it later.
    pub(super) fn begin(&self, changes: bool) {
        self.requests.set(self.requests.get() + u64::from(changes));
    }

    /// It is done.
    pub(super) fn end(&self, changes: bool) {
        self.requests.set(self.requests.get() - u64::from(changes));
        self.let_go();
    }

    /// Its client has hung up, and what it had sent is still to be read.
    pub(super) fn hang_up(&self, export: &Leaving) {
        if self.reads.get() {
            let mut left = self.left.borrow_mut();
            left.get_or_insert_with(|| export.leave());
        }
    }

    /// The connection has ended: nothing more is read.
    pub(super) fn leave(&self, export: &Leaving) {
        self.hang_up(export);
        self.reads.set(false);
        self.let_go();
    }

    fn let_go(&self) {
        if self.requests.get() == 0 && !self.reads.get() {
            self.left.take();
        }
    }
}

impl Leaving {
    /// Is the other one a clone of it?
    pub(super) fn is(&self, other: &Leaving) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // No step in it leaves a table that is half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection has ended.
    fn leave(&self) -> Left {
        let mut table = self.table();
        let number = table.next;
        table.next += 1;
        table.connections.insert(number);
        Left {
            of: self.clone(),
            number,
        }
    }

    /// Waits until none of those that have ended by now changes anything any more; later ones are not waited for.
    pub(super) async fn wait(&self) {
        let next = self.table().next;
        poll_fn(|context| {
            let mut table = self.table();
            if table.connections.range(..next).next().is_none() {
                return Poll::Ready(());
            }
            table.waiting.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        let mut table = self.of.table();
        table.connections.remove(&self.number);
        let waiting = std::mem::take(&mut table.waiting);
        drop(table);
        waiting.into_iter().for_each(Waker::wake);
    }
}
