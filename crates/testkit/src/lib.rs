//! What tests of several crates share; no product crate depends on it but for its tests.
//!
//! ```text
//! browser:    a real browser, and what it makes of a page
//! on_the_fly: a reference model of the published tiering decision
//! program:    a program under test, run to its end
//! traces:     the public traces, where they are there
//! ```

pub mod browser;
pub mod on_the_fly;
pub mod program;
pub mod traces;
