//! What goes on where a store does not answer, or a map cannot be read.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use crate::image::records::ImagesError;
use crate::map::objects::Objects;
use crate::map::{Pending, Trouble};
use crate::names::StoreNumber;

/// Objects of the stores that still answer: one that did not is not asked again.
pub(super) struct Answering {
    below: Rc<dyn Objects>,
    silent: RefCell<BTreeSet<StoreNumber>>,
}

impl Answering {
    pub fn new(below: Rc<dyn Objects>) -> Answering {
        Answering {
            below,
            silent: RefCell::default(),
        }
    }

    async fn ask<T>(&self, store: StoreNumber, asked: Pending<'_, T>) -> Result<T, Trouble> {
        if self.silent.borrow().contains(&store) {
            return Err("it did not answer a moment ago".into());
        }
        let answer = asked.await;
        if answer.is_err() {
            self.silent.borrow_mut().insert(store);
        }
        answer
    }
}

impl Objects for Answering {
    fn stores(&self) -> Vec<StoreNumber> {
        self.below.stores()
    }

    fn label(&self, store: StoreNumber) -> String {
        self.below.label(store)
    }

    fn delete<'a>(&'a self, store: StoreNumber, name: &'a str) -> Pending<'a, ()> {
        Box::pin(self.ask(store, self.below.delete(store, name)))
    }

    fn list<'a>(
        &'a self,
        store: StoreNumber,
        prefix: &'a str,
        after: &'a str,
        most: usize,
    ) -> Pending<'a, Vec<String>> {
        Box::pin(self.ask(store, self.below.list(store, prefix, after, most)))
    }
}

/// The first thing that a store did not do, or that a map did not answer; the others go on meanwhile.
#[derive(Default)]
pub(super) struct FirstError(Option<ImagesError>);

impl FirstError {
    /// Keeps the error of a store or a map, and answers any other.
    pub fn up<T>(&mut self, result: Result<T, ImagesError>) -> Result<Option<T>, ImagesError> {
        match result {
            Err(error @ (ImagesError::Store { .. } | ImagesError::Map(_))) => {
                self.0.get_or_insert(error);
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// Was there one?
    pub fn done(self) -> Result<(), ImagesError> {
        self.0.map_or(Ok(()), Err)
    }
}
