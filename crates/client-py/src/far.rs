//! The package's own thread of `env`: connections live there, and callers wait without the interpreter's lock.
//!
//! ```text
//! a thread of Python: ask(work) -> mailbox -> that thread: a task each -> answer
//!                     Far<T>    -> number  -> Rc<T>, there until the Far is dropped
//! ```
//!
//! Always true:
//! 1. What is not `Send` never leaves the thread.
//! 2. A child after fork(2) starts a thread of its own; what was connected before is closed there.

use std::any::Any;
use std::cell::RefCell;
use std::future::Future;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::{io, process, thread};

use base::Map;
use env::{Poster, RealConfig, Runtime};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::interrupt::EVERY;

/// Begun on the thread.
type Job = Box<dyn FnOnce() + Send>;

/// The way to the thread, and the process that started it.
static THREAD: Mutex<Option<(u32, Poster<Job>)>> = Mutex::new(None);
/// The next number of what lives there.
static NEXT: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// What lives on this thread.
    static HERE: RefCell<Map<u64, Rc<dyn Any>>> = RefCell::default();
}

/// Something on the thread, held from anywhere.
pub struct Far<T> {
    number: u64,
    of: PhantomData<fn() -> T>,
}

impl<T: 'static> Far<T> {
    /// Holds `value`, on the thread.
    pub fn new(value: T) -> Far<T> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        HERE.with_borrow_mut(|here| here.insert(number, Rc::new(value)));
        Far {
            number,
            of: PhantomData,
        }
    }

    /// Does `work` with it on the thread, and waits; Ctrl-C ends the waiting, the work is done all the same.
    pub fn ask<R: Send + 'static, F: Future<Output = R> + 'static>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(Rc<T>) -> F + Send + 'static,
    ) -> PyResult<R> {
        let number = self.number;
        let done = ask(py, move || {
            let here = HERE.with_borrow(|here| here.get(&number).cloned());
            let value = here.and_then(|it| it.downcast::<T>().ok());
            async move {
                match value {
                    Some(value) => Some(work(value).await),
                    None => None,
                }
            }
        })?;
        done.ok_or_else(|| PyRuntimeError::new_err("it was connected before a fork; connect again"))
    }
}

impl<T> Drop for Far<T> {
    fn drop(&mut self) {
        let number = self.number;
        let drop_there: Job = Box::new(move || {
            // Dropped outside of the borrow: it may drop others.
            let value = HERE.with_borrow_mut(|here| here.remove(&number));
            drop(value);
        });
        // Without the thread it is gone already.
        let _ = poster().map(|poster| poster.post(drop_there));
    }
}

/// Does `work` on the thread, and waits.
pub fn ask<R: Send + 'static, F: Future<Output = R> + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> F + Send + 'static,
) -> PyResult<R> {
    let (send, answer) = mpsc::channel();
    let job: Job = Box::new(move || {
        let work = work();
        env::spawn(async move {
            // The caller may have been interrupted.
            let _ = send.send(work.await);
        });
    });
    let ended = || PyRuntimeError::new_err("the thread of connections ended; start Python again");
    let poster = poster().map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
    poster.post(job).map_err(|_| ended())?;
    py.detach(move || {
        loop {
            match answer.recv_timeout(EVERY) {
                Ok(done) => return Ok(done),
                Err(RecvTimeoutError::Timeout) => Python::attach(|py| py.check_signals())?,
                Err(RecvTimeoutError::Disconnected) => return Err(ended()),
            }
        }
    })
}

/// The way to the thread of this process, which is started if there is none.
fn poster() -> io::Result<Poster<Job>> {
    let mut thread = THREAD.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((process, poster)) = &*thread
        && *process == process::id()
    {
        return Ok(poster.clone());
    }
    let poster = start()?;
    let before = thread.replace((process::id(), poster.clone()));
    // The thread behind it is the parent's.
    std::mem::forget(before);
    Ok(poster)
}

fn start() -> io::Result<Poster<Job>> {
    let (poster, mut jobs) = env::mailbox::<Job>();
    let (send, begun) = mpsc::channel();
    let serve = move || {
        let runtime = match Runtime::real(RealConfig::default()) {
            Ok(runtime) => runtime,
            Err(error) => return drop(send.send(Err(error))),
        };
        drop(send.send(Ok(())));
        runtime.block_on(async move {
            while let Ok(job) = jobs.receive().await {
                job();
            }
        });
    };
    let builder = thread::Builder::new().name("tanada-stores".to_owned());
    builder.spawn(serve)?;
    match begun.recv() {
        Ok(begun) => begun.map(|()| poster),
        Err(_) => Err(io::Error::other("the thread of connections did not start")),
    }
}
