//! How does a node reach a store?

use std::rc::Rc;

use super::stores::StoreRecord;
use crate::replica::connect::Connector;

/// The ways to stores. Held as `Rc<dyn Ways>`.
pub trait Ways {
    /// The way to a store, and whether it is in this very process.
    fn way(&self, store: &StoreRecord) -> (Rc<dyn Connector>, bool);
}
