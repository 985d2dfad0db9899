//! Which fast device belongs to a volume, and does what is on it count?
//!
//! ```text
//! label (on the fast device) + record of pairs (kept elsewhere) -> judge -> open | make | refuse, in words
//! ```
//!
//! An *attachment* is one coming together of a volume and a fast device. Nothing here knows of pages.

pub(crate) mod error;
pub mod inspect;
pub(crate) mod label;
pub(crate) mod lane;
pub(crate) mod made;
pub(crate) mod pair;
pub(crate) mod refuse;
pub(crate) mod relabel;
