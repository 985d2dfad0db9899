//! What may be asked about the objects of stores where their contents do not matter: names, to delete and to list.
//!
//! Used where deleted images are freed and where audits look for objects that no map names.

use super::Pending;
use crate::names::StoreNumber;

/// Objects of the stores, by name. Held as `Rc<dyn Objects>`; lives on one thread.
pub trait Objects {
    /// All stores of the cluster.
    fn stores(&self) -> Vec<StoreNumber>;

    /// What a store is called, for errors.
    fn label(&self, store: StoreNumber) -> String {
        store.to_string()
    }

    /// Deletes an object; nothing if it is not there, or the store has left the cluster for good.
    ///
    /// # Errors
    /// If it is not known to be gone.
    fn delete<'a>(&'a self, store: StoreNumber, name: &'a str) -> Pending<'a, ()>;

    /// At most `most` names that begin with `prefix` and come behind `after`, in the order of their bytes.
    ///
    /// # Errors
    /// If the store does not answer.
    fn list<'a>(
        &'a self,
        store: StoreNumber,
        prefix: &'a str,
        after: &'a str,
        most: usize,
    ) -> Pending<'a, Vec<String>>;
}
