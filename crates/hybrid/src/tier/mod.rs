//! A home on the fast device for hot regions.

mod published;
mod settings;
mod view;

pub use settings::{Buffer, CopyBack, Mode, Mover, Tier};
pub use view::{Heat, HeatInterval, MoveEnd, MoveRecord, TierStatus};
