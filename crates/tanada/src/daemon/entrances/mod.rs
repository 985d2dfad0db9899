//! How clients of a data thread are let in, at the start and where the configuration is read anew.
//!
//! ```text
//! start:  listen at every address -> devices open -> serve
//! reload: change::check, which listens at what is new -> change::apply
//! ```
//!
//! Always true: every address is listened at before any disk is touched.

pub mod change;
pub mod listen;
pub mod serve;
