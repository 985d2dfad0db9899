//! Who may use how much of a store's device: reservations, capabilities, sessions, the queue.
//!
//! ```text
//! capability, costs, load_report <- book, queue <- calibrate, state <- session <- manager
//! ```
//!
//! Always true: what stands further left imports nothing of what stands right of it.

pub(crate) mod book;
pub mod calibrate;
pub mod capability;
pub mod costs;
pub(crate) mod load_report;
pub mod manager;
pub mod network;
pub mod queue;
pub mod session;
pub mod state;

pub use session::{fence, fenced};
