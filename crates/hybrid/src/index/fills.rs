//! Which pages are being copied to the fast device, and does their copy still count?
//!
//! A write of a page, or its removal, makes the copy void: the task that copies asks with its token before it maps the page.

use std::cell::{Cell, RefCell};

use base::{Bytes, Map};

/// Bytes of copies under way at most; further read misses are not copied.
const BYTES_MAX: Bytes = Bytes::mib(32);

/// Copies under way.
#[derive(Default)]
pub(crate) struct Fills {
    /// Page to token.
    pages: RefCell<Map<u64, u64>>,
    next: Cell<u64>,
    bytes: Cell<u64>,
    /// No copy may begin: a management operation is under way.
    paused: Cell<bool>,
}

impl Fills {
    /// May a copy of `bytes` begin?
    pub fn have_room(&self, bytes: u64) -> bool {
        !self.paused.get() && self.bytes.get() + bytes <= BYTES_MAX.0
    }

    /// Is one of pages `first..end` being copied, and does its copy count?
    pub fn has_any(&self, first: u64, end: u64) -> bool {
        let pages = self.pages.borrow();
        (first..end).any(|page| pages.contains_key(&page))
    }

    /// A copy of pages `first..end`, `bytes` long, begins. Returns its token.
    pub fn begin(&self, first: u64, end: u64, bytes: u64) -> u64 {
        let token = self.next.get();
        self.next.set(token + 1);
        let mut pages = self.pages.borrow_mut();
        pages.extend((first..end).map(|page| (page, token)));
        self.bytes.set(self.bytes.get() + bytes);
        token
    }

    /// Does the copy of `page` that `token` stands for still count?
    pub fn stands(&self, token: u64, page: u64) -> bool {
        self.pages.borrow().get(&page) == Some(&token)
    }

    /// Copies of pages `first..end` count no more.
    pub fn cancel(&self, first: u64, end: u64) {
        let mut pages = self.pages.borrow_mut();
        if pages.is_empty() {
            return;
        }
        for page in first..end {
            pages.remove(&page);
        }
    }

    /// No copy under way counts any more.
    pub fn cancel_all(&self) {
        self.pages.borrow_mut().clear();
    }

    /// The copy of `token`, of pages `first..end` and `bytes` long, is over. True if it was the last one.
    pub fn end(&self, token: u64, first: u64, end: u64, bytes: u64) -> bool {
        let mut pages = self.pages.borrow_mut();
        for page in first..end {
            if pages.get(&page) == Some(&token) {
                pages.remove(&page);
            }
        }
        self.bytes.set(self.bytes.get() - bytes);
        self.is_idle()
    }

    /// Is no copy under way?
    pub fn is_idle(&self) -> bool {
        self.bytes.get() == 0
    }

    /// No copy begins from now on, and those under way do not count; or copies may begin again.
    pub fn pause(&self, paused: bool) {
        self.paused.set(paused);
        if paused {
            self.cancel_all();
        }
    }
}
