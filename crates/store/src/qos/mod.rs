//! Who may use how much of a store's device: reservations, capabilities, sessions, the queue.

pub(crate) mod book;
pub mod calibrate;
pub mod capability;
pub mod costs;
pub mod fence;
pub mod fenced;
pub(crate) mod load_report;
pub mod manager;
pub mod queue;
pub mod session;
