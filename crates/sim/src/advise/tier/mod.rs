//! Advice on tiers: which mode, region, period and parameters would do a trace or a running volume good?
//!
//! ```text
//! trace  -> counts by region and interval -> search (decisions alone, costs of moving) -> Setting
//!        -> the end of the trace through the engine: the slow device alone, cache, tier and both, with the
//!           defaults and with what was learned -> rows -> the fastest, with reasons
//! volume -> its statistics -> search -> Setting, with what it would gain in decisions alone
//! ```
//!
//! The search ranks; of a trace, what is advised is what the engine itself did ([`crate::run`]).
//!
//! Always true: the same trace and options give the same advice.

mod auto;
mod history;
mod reasons;
mod score;
mod search;
mod trace;

pub use auto::{Auto, EVERY, Verdict};
pub use history::{COUNTS_MAX, Counting, History};
pub use score::{Score, Terms, score};
pub use search::{Freedom, Learned, Setting, at_period, learn};
pub use trace::{Proposal, Simulated, TierAdvice, TierAdviser, TierOptions, TierRow};
