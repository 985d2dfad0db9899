//! Work without the interpreter, which Ctrl-C ends.
//!
//! ```text
//! this thread: lock released -> waits, and looks for signals -> a signal: Stop is set, the exception raised
//! a thread of the work's own: computes, and looks at Stop now and then -----^
//! ```
//!
//! The interpreter handles signals on its main thread alone, so that one waits and another works.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// How often signals are looked for.
pub const EVERY: Duration = Duration::from_millis(100);

/// Shall the work end?
#[derive(Default)]
pub struct Stop(AtomicBool);

impl Stop {
    /// `Break` once Ctrl-C was pressed.
    pub fn flow(&self) -> ControlFlow<()> {
        match self.0.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

/// Does `work`. Whatever it gives once it was stopped is dropped, and the signal's exception raised.
pub fn detached<T: Send>(py: Python<'_>, work: impl FnOnce(&Stop) -> T + Send) -> PyResult<T> {
    let stop = Stop::default();
    py.detach(|| {
        thread::scope(|scope| {
            let (send, ended) = mpsc::channel::<()>();
            let begun = thread::Builder::new()
                .name("tanada".to_owned())
                .spawn_scoped(scope, || {
                    // Dropped at the end, also by a panic.
                    let _send = send;
                    work(&stop)
                });
            let worker = begun.map_err(|error| {
                PyRuntimeError::new_err(format!("cannot start a thread: {error}"))
            })?;
            let mut raised = None;
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(EVERY) {
                if raised.is_none()
                    && let Err(error) = Python::attach(|py| py.check_signals())
                {
                    stop.0.store(true, Ordering::Relaxed);
                    raised = Some(error);
                }
            }
            let done = worker.join();
            match (raised, done) {
                (_, Err(panic)) => std::panic::resume_unwind(panic),
                (Some(error), _) => Err(error),
                (None, Ok(done)) => Ok(done),
            }
        })
    })
}
