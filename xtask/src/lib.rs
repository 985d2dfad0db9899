//! The project's own chores: what `cargo xtask NAME` does.
//!
//! ```text
//! setup   what the tests need, installed or named       test    setup, every test, one summary
//! tidy    the tree's own rules                          check   what continuous integration runs
//! papers  paper section -> source, as a table           bench   figures beside peers, and the page of them
//! soak    long randomized runs                          package Debian packages
//! experiment  the papers' measurements, recorded, and the pages of them
//! ```

pub mod bench;
pub mod check;
pub mod package;
mod python;
mod scripts;
pub mod setup;
pub mod shell;
pub mod soak;
pub mod test;
pub mod tidy;
pub mod tools;
pub mod trial;
