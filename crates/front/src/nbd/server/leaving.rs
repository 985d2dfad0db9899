//! Requests of connections that have ended, still under way on their device.
//!
//! ```text
//! connection ends -> its requests go on -> done
//! the same client, once more: asks again what had no answer, waits here first
//! ```
//!
//! Always true: what a client asks again over a new connection is carried out after what its last one left behind, as soon
//! as the server knows that this ended. Else an old write could land on a newer one. Servers on several threads that let
//! clients in to one export have one table.

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
    pub(super) fn leave(&self, export: &Leaving) {
        if self.requests.get() > 0 {
            self.left.replace(Some(export.leave()));
        }
    }
}

impl Leaving {
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
