//! Which requests of a trace does a cache miss, by policy and size?
//!
//! ```text
//! trace --Compact::load--> numbered accesses --simulate--> Tally        one policy, one size
//!                                            --Future----> Least        the bound: what Belady's MIN misses
//!                                            --exact_lru-> Curve        LRU at all sizes, in one pass
//!                                            --Part------> Curve        any policy, from a sample of blocks
//!                          --Shards--------------------->  Curve        LRU, from a stream
//! Plan: policies x sizes in parallel ------------------->  Rows         what `tanada sim cache` prints
//! ```
//!
//! The policies and the admission are the production ones of `policy::cache`.
//!
//! **What is counted.** One *access* asks for one object. With [`Unit::Request`] each request is one
//! access, to the object its first block address names. With [`Unit::Block`] a request is split, and each of
//! its blocks is one access; a whole request is a hit only if all its blocks are, which is counted
//! beside ([`Counters::missed_reads`], [`Counters::missed_writes`]).

mod belady;
mod cell;
mod compact;
mod curve;
mod html;
mod plan;
mod shards;
mod size;
mod stack;
#[cfg(test)]
mod tests;
mod unit;

pub use belady::{Bound, Future, Least};
pub use cell::{Counters, Mode, simulate};
pub(crate) use cell::{Step, Watch, simulate_watched};
pub use compact::{Access, Builder, Compact, LoadError};
pub use curve::{Curve, Part, Point, Shape, exact_lru};
pub use html::page;
pub use plan::{
    Curves, Method, NamedCurve, Plan, Row, SHARES, TraceRequests, Traffic, UnknownMethod,
};
pub(crate) use shards::mix;
pub use shards::{Sample, Shards};
pub use size::{Size, SizeError};
pub use unit::{Ops, Unit, UnknownUnit};
