//! `tanada._native`: what the Python package `tanada` asks the other crates for.
//!
//! ```text
//! Python (python/tanada) -> traces   -> trace: requests as columns -> Arrow's C stream interface
//!                        -> caches   -> sim: rows of a comparison  -> JSON
//!                        -> results  -> predict: study, estimates  -> JSON
//!                        -> stores   -> far: a thread of env -> files, objects -> store's client
//! ```
//!
//! Names, types and documentation that people see are the Python package's; here is as little as can be. Rows and
//! estimates come as the JSON that the command line prints, so both have the same numbers, bit for bit.
//!
//! Always true:
//! 1. Nothing that takes long holds the interpreter's lock, and Ctrl-C is heard within a tenth of a second.
//! 2. An error is an exception of `tanada._errors`, with the library's sentence.

mod caches;
mod errors;
mod failure;
mod far;
mod interrupt;
mod objects;
mod results;
mod stores;
mod traces;
mod ways;

use pyo3::prelude::*;

/// The module.
#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::caches::{compare, compare_files, curves};
    #[pymodule_export]
    use crate::results::{estimate, study};
    #[pymodule_export]
    use crate::stores::{Reader, Stores, Writer, connect};
    #[pymodule_export]
    use crate::traces::{Trace, formats, read_trace};
}
