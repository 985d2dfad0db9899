//! Reserved throughput over a whole cluster: a volume, or a set of stores, under one reservation.
//!
//! ```text
//! ask -> plan: parts at stores -> hold all -> the record in the meta store decides -> commit -> capabilities
//!   stores: parts without an answer ask their record (confirm)      nodes: what is due for a record (sweep)
//! ```
//!
//! Calendars stay in the stores; the whole is a record in the meta store, changed by compare-and-swap. Any node of the
//! cluster makes reservations.
//!
//! - `record` what is written, and its states; `target` what for; `records` how it is read and changed; `ask`, `plan` which parts it takes.
//! - `stores` the cluster, `calendar` those of its stores; `book` the two phases; `release` how it ends; `offer` what would fit instead.
//! - `allotment` what is booked inside a standing reservation; `mirror` the records as they change, without reading them anew.
//! - `confirm` what a store does about a part; `sweep` what becomes of records unasked; `quota` what accounts may; `capability` what
//!   their holders show.
//! - `caps` what is booked of a volume, and what its clients may have at most.
//! - [`service`] all of it, as the API has it.
//!
//! Source: PROBS 3.1 (the storage manager allots resources when it accepts a reservation). Choice: several stores under one
//! reservation, decided by a record, and offers when refused.

pub mod accounts;
mod admission;
pub mod allotment;
pub mod ask;
pub mod book;
pub mod calendar;
pub mod capability;
mod caps;
pub mod confirm;
pub mod error;
mod making;
pub mod mirror;
pub mod offer;
pub mod plan;
pub mod quota;
pub mod record;
pub mod records;
mod release;
mod replan;
pub mod service;
pub mod stores;
pub mod sweep;
pub mod target;
#[cfg(test)]
mod tests;

pub use caps::largest_of;
pub use error::ReservationError;
pub use service::Service;
