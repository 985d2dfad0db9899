//! A way to the meta store on which answers are held until they are let go.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::Nanos;
use env::sync::Event;

use crate::meta::{
    Compare, Entry, LeaseId, MetaError, MetaStore, Op, Outcome, Page, Pending, Revision, Watch,
};

/// What is asked on the way.
pub(super) enum Asked<'a> {
    /// A page of the keys that begin so.
    Range(&'a str),
    /// A transaction that does this.
    Txn(&'a [Op]),
}

type Matches = Box<dyn Fn(&Asked<'_>) -> bool>;

/// Answers that are held.
pub(super) struct Hold {
    matches: Matches,
    left: Cell<u64>,
    held: Cell<u64>,
    open: Cell<bool>,
    changed: Event,
}

impl Hold {
    /// Waits until one was done, and its answer is held.
    pub async fn has_one(&self) {
        while self.held.get() == 0 {
            self.changed.wait().await;
        }
    }

    /// Lets go what is held, and holds no more.
    pub fn let_go(&self) {
        self.left.set(0);
        self.open.set(true);
        self.changed.notify_all();
    }
}

/// See the module's head.
pub(super) struct Gate {
    meta: Rc<dyn MetaStore>,
    holds: RefCell<Vec<Rc<Hold>>>,
}

impl Gate {
    pub fn new(meta: Rc<dyn MetaStore>) -> Rc<Gate> {
        let holds = RefCell::default();
        Rc::new(Gate { meta, holds })
    }

    /// Holds the next `most` answers to what matches.
    pub fn hold(&self, most: u64, matches: impl Fn(&Asked<'_>) -> bool + 'static) -> Rc<Hold> {
        let hold = Rc::new(Hold {
            matches: Box::new(matches),
            left: Cell::new(most),
            held: Cell::new(0),
            open: Cell::new(false),
            changed: Event::default(),
        });
        self.holds.borrow_mut().push(Rc::clone(&hold));
        hold
    }

    async fn pass<T>(&self, asked: Asked<'_>, answer: Pending<'_, T>) -> Result<T, MetaError> {
        let hold = {
            let holds = self.holds.borrow();
            let mut fit = holds.iter().filter(|it| it.left.get() > 0);
            fit.find(|it| (it.matches)(&asked)).map(Rc::clone)
        };
        if let Some(hold) = &hold {
            hold.left.set(hold.left.get() - 1);
        }
        let answer = answer.await;
        if let Some(hold) = hold {
            hold.held.set(hold.held.get() + 1);
            hold.changed.notify_all();
            while !hold.open.get() {
                hold.changed.wait().await;
            }
        }
        answer
    }
}

impl MetaStore for Gate {
    fn get<'a>(&'a self, key: &'a str) -> Pending<'a, Option<Entry>> {
        self.meta.get(key)
    }

    fn range<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        most: usize,
    ) -> Pending<'a, Page> {
        let answer = self.meta.range(prefix, after, most);
        Box::pin(self.pass(Asked::Range(prefix), answer))
    }

    fn txn(&self, compares: Vec<Compare>, ops: Vec<Op>) -> Pending<'_, Outcome> {
        Box::pin(async move {
            let answer = self.meta.txn(compares, ops.clone());
            self.pass(Asked::Txn(&ops), answer).await
        })
    }

    fn watch<'a>(&'a self, prefix: &'a str, from: Revision) -> Pending<'a, Box<dyn Watch>> {
        self.meta.watch(prefix, from)
    }

    fn lease(&self, ttl: Nanos) -> Pending<'_, LeaseId> {
        self.meta.lease(ttl)
    }

    fn keep(&self, lease: LeaseId) -> Pending<'_, Nanos> {
        self.meta.keep(lease)
    }

    fn revoke(&self, lease: LeaseId) -> Pending<'_, ()> {
        self.meta.revoke(lease)
    }
}
