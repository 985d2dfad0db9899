//! A meta store that fails where the objects do: one count of operations for both.

use std::rc::Rc;

use base::Nanos;

use crate::map::memory::Memory;
use crate::meta::{
    Compare, Entry, LeaseId, MetaError, MetaStore, Op, Outcome, Page, Pending, Revision, Watch,
};

pub(crate) struct Failing {
    pub below: Rc<dyn MetaStore>,
    pub memory: Rc<Memory>,
}

impl Failing {
    fn step(&self, asked: &str) -> Result<(), MetaError> {
        self.memory
            .step(|_| ())
            .map_err(|error| MetaError::Unavailable {
                store: "failing".to_owned(),
                asked: asked.to_owned(),
                why: error.to_string(),
            })
    }
}

impl MetaStore for Failing {
    fn get<'a>(&'a self, key: &'a str) -> Pending<'a, Option<Entry>> {
        Box::pin(async move {
            self.step("get")?;
            self.below.get(key).await
        })
    }

    fn range<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        most: usize,
    ) -> Pending<'a, Page> {
        Box::pin(async move {
            self.step("range")?;
            self.below.range(prefix, after, most).await
        })
    }

    /// Fails before it is carried out, or behind it.
    fn txn(&self, compares: Vec<Compare>, ops: Vec<Op>) -> Pending<'_, Outcome> {
        Box::pin(async move {
            self.step("txn")?;
            let outcome = self.below.txn(compares, ops).await?;
            self.step("txn, answer")
                .map_err(|error| MetaError::Unknown {
                    store: "failing".to_owned(),
                    asked: "txn".to_owned(),
                    why: error.to_string(),
                })?;
            Ok(outcome)
        })
    }

    fn watch<'a>(&'a self, prefix: &'a str, from: Revision) -> Pending<'a, Box<dyn Watch>> {
        self.below.watch(prefix, from)
    }

    fn lease(&self, ttl: Nanos) -> Pending<'_, LeaseId> {
        self.below.lease(ttl)
    }

    fn keep(&self, lease: LeaseId) -> Pending<'_, Nanos> {
        self.below.keep(lease)
    }

    fn revoke(&self, lease: LeaseId) -> Pending<'_, ()> {
        self.below.revoke(lease)
    }
}
