//! Which operations are under way under which fence and token?

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use env::sync::Event;

/// A fence object and a token.
pub(crate) type Key = (Rc<str>, u64);

/// Operations under way, by fence and token.
#[derive(Default)]
pub(crate) struct Permits {
    under_way: RefCell<BTreeMap<Key, u64>>,
    /// A permit came back.
    pub done: Event,
}

impl Permits {
    /// An operation begins.
    pub fn begin(&self, key: &Key) {
        let mut under_way = self.under_way.borrow_mut();
        *under_way.entry(key.clone()).or_default() += 1;
    }

    /// An operation that was begun is done.
    pub fn end(&self, key: &Key) {
        let mut under_way = self.under_way.borrow_mut();
        let count = under_way.get_mut(key).expect("counted when it began");
        *count -= 1;
        if *count == 0 {
            under_way.remove(key);
        }
        drop(under_way);
        self.done.notify_all();
    }

    /// Is an operation under `object` with a token below `token` under way?
    pub fn lesser(&self, object: &str, token: u64) -> bool {
        let from = (Rc::from(object), 0);
        let under_way = self.under_way.borrow();
        let mut all = under_way.range(from..);
        all.next()
            .is_some_and(|((name, other), _)| &**name == object && *other < token)
    }
}
