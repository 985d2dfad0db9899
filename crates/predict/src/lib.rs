//! What would my application do on that device?
//!
//! ```text
//! measurements (data, import) -> paper mode:    one line a cell, the best of the candidates   (paper)
//!                             -> default model: y = cpu + sum n_j L_j, non-negative           (model)
//!     a path's floor, where it was measured, is taken apart from the device's part before     (floor)
//!                 each judged by leaving every device out in turn                             (judge)
//! ```
//!
//! Source: SCM 3, 4.2; the default model and its judgement are ours: `docs/decisions/0007`.
//!
//! Always true:
//! 1. No prediction comes without the left-out errors of its method and of the simple ones beside it.
//! 2. The same data give the same answer, bit for bit; what is simulated has a fixed seed.

pub mod data;
pub mod floor;
mod form;
pub mod grid;
pub mod import;
pub mod interval;
pub mod judge;
pub mod model;
pub mod nnls;
pub mod noise;
pub mod page;
pub mod paper;
pub mod queue;
mod spread;
pub mod study;
mod target;
pub mod units;
