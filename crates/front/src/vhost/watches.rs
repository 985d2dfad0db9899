//! The queues of a disk, for a thread that spins.
//!
//! ```text
//! env: a spin begins, looks, ends -> Watches -> each queue of the client that is served
//! ```
//!
//! Always true: a queue that is gone is not looked at.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use env::Watched;

/// See the module's head.
#[derive(Default)]
pub(super) struct Watches(RefCell<Vec<Weak<dyn Watched>>>);

impl Watches {
    /// One more queue, for as long as it lives.
    pub fn add(&self, queue: &Rc<dyn Watched>) {
        let mut queues = self.0.borrow_mut();
        queues.retain(|known| known.strong_count() > 0);
        queues.push(Rc::downgrade(queue));
    }

    /// Calls `each` for every queue; did one of them say so?
    fn each(&self, each: impl Fn(&dyn Watched) -> bool) -> bool {
        let mut any = false;
        for queue in self.0.borrow().iter().filter_map(Weak::upgrade) {
            any |= each(&*queue);
        }
        any
    }
}

impl Watched for Watches {
    fn spin_begins(&self) {
        self.each(|queue| {
            queue.spin_begins();
            false
        });
    }

    fn look(&self) -> bool {
        self.each(|queue| queue.look())
    }

    fn spin_ends(&self) -> bool {
        self.each(|queue| queue.spin_ends())
    }
}
