//! How does a node reach a store?

use std::rc::Rc;

use device::Throttle;
use policy::share::BytesPerSec;

use super::stores::StoreRecord;
use crate::replica::connect::Connector;

/// The ways to stores. Held as `Rc<dyn Ways>`.
pub trait Ways {
    /// The way to a store, and whether it is in this very process.
    fn way(&self, store: &StoreRecord) -> (Rc<dyn Connector>, bool);

    /// The largest bookings of a holder that have not ended, at any of the stores of this very process: of reads, and of writes.
    fn booked(&self, _holder: &str) -> [BytesPerSec; 2] {
        Default::default()
    }

    /// What the account of this name gets at most in this very process, whatever it does.
    fn account_cap(&self, _account: &str) -> Option<Rc<Throttle>> {
        None
    }
}
