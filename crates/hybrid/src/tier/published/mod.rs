//! The published mover: how does a region move while users read and write?
//!
//! ```text
//! copy source -> destination (writes go to the temporary buffer) -> synchronize the buffer, in order -> moved
//! ```
//!
//! Source: AST 3.3.

// The mover itself follows; until then nobody outside the tests uses these.
#![cfg_attr(not(test), allow(dead_code))]

mod buffer;
mod sync;
