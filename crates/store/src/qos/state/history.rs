//! Which reservations have been, and what did each get?

use std::cell::{Cell, Ref, RefCell};

use crate::Store;
use crate::object::error::StoreError;
use crate::qos::book;
use crate::qos::book::record::EndedReport;

/// Reservations that ended lately.
pub(crate) struct History {
    ended: RefCell<Vec<EndedReport>>,
    /// It is not written down yet.
    dirty: Cell<bool>,
}

impl History {
    /// As it was written down.
    pub fn new(ended: Vec<EndedReport>) -> History {
        History {
            ended: RefCell::new(ended),
            dirty: Cell::new(false),
        }
    }

    /// A reservation ended.
    pub fn push(&self, ended: EndedReport) {
        self.ended.borrow_mut().push(ended);
        self.dirty.set(true);
    }

    /// Those that ended, the latest last.
    pub fn ended(&self) -> Ref<'_, Vec<EndedReport>> {
        self.ended.borrow()
    }

    /// Writes down what is not written yet.
    ///
    /// # Errors
    /// [`StoreError`]; then it is to be written still.
    pub async fn write(&self, store: &Store) -> Result<(), StoreError> {
        if !self.dirty.replace(false) {
            return Ok(());
        }
        let ended = {
            let mut ended = self.ended.borrow_mut();
            let old = ended.len().saturating_sub(book::ENDED_MAX);
            ended.drain(..old);
            ended.clone()
        };
        let written = book::put_history(store, &ended).await;
        if written.is_err() {
            self.dirty.set(true);
        }
        written
    }
}
