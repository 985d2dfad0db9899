//! The contract of a timing core: requests in, completions out, time passed in from outside.
//!
//! ```text
//! submit(now, request) -> queue, order, mechanics -> next(): "call me at ..." -> advance(now) -> done
//! ```
//!
//! Always true:
//! 1. A core knows no clock, task or data; the same calls give the same answers.
//! 2. Time never goes backwards. It may be passed in late: what was due earlier is then done as of when it
//!    was due, so a core driven late completes at the same moments.
//! 3. Every request completes exactly once.

mod caches;
mod constant;
mod hdd;
mod parameters;
mod power;
mod ssd;

use base::{Instant, Span};

pub use self::constant::ConstantModel;
pub use self::hdd::{Geometry, HddModel, SeekCurve};
pub use self::parameters::{
    Buffers, ConstantSpec, FlashSpec, HddCommands, HddSpec, HostSide, IdleStep, Mechanics,
    PowerSpec, ReadCacheSpec, SsdSpec, WriteBuffer, WriteCacheSpec,
};
pub use self::power::{PowerMeter, Spent, State};
pub use self::ssd::{Found, Ftl, Row, Shape, SsdModel, Step, Work};

use crate::api::Op;

/// One request to a timing core.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// The caller's number for it, given back on completion.
    pub id: u64,
    /// What to do.
    pub op: Op,
    /// Where; empty for a flush.
    pub span: Span,
    /// A write that must be durable at completion.
    pub fua: bool,
}

/// A request has been served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    /// Which one.
    pub id: u64,
    /// When.
    pub at: Instant,
}

/// The pure core of a model. See the module's head.
pub trait Timing {
    /// A request arrives at `now`.
    fn submit(&mut self, now: Instant, request: Request);

    /// When `advance` has something to do next; `None` while nothing is under way.
    fn next(&self) -> Option<Instant>;

    /// Does everything due up to `now`.
    fn advance(&mut self, now: Instant);

    /// The next completion not taken yet, in order of time.
    fn take_done(&mut self) -> Option<Done>;

    /// Asks the device to go to standby as soon as nothing is under way (true if it can and will).
    fn standby(&mut self, now: Instant) -> bool;

    /// The power account, settled up to `now`.
    fn meter(&mut self, now: Instant) -> &PowerMeter;

    /// Writes the whole device once in sequence, in no time: the state from which a flash device's steady
    /// figures are measured. Other devices do not change.
    fn fill(&mut self) {}

    /// What a flash translation layer has written and moved, where there is one.
    fn work(&self) -> Option<Work> {
        None
    }
}
