//! Errors of the crates as exceptions of the package.
//!
//! ```text
//! error, with its causes -> one sentence -> TraceError | SimulationError | PredictionError
//! ```

use std::error::Error;

use pyo3::{PyErr, import_exception};
use report::terminal::said::words_of;

import_exception!(tanada._errors, PredictionError);
import_exception!(tanada._errors, SimulationError);
import_exception!(tanada._errors, TraceError);

/// A trace cannot be read.
pub fn trace(error: &(dyn Error + 'static)) -> PyErr {
    TraceError::new_err(words_of(error))
}

/// A simulation cannot be made.
pub fn simulation(error: &(dyn Error + 'static)) -> PyErr {
    SimulationError::new_err(words_of(error))
}

/// Nothing can be predicted.
pub fn prediction(error: &(dyn Error + 'static)) -> PyErr {
    PredictionError::new_err(words_of(error))
}
