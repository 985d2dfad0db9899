//! The executor: which task runs next, and when does time move on?
//!
//! ```text
//! ready queue (FIFO) -> poll -> due timers -> park in the driver -> ready queue ...
//! ```
//!
//! `core` is one executor, `slots` its tasks, `current` the one of this thread and how wakers find theirs, `task` what
//! callers hold of a task.

pub(crate) mod catch;
mod core;
mod current;
mod slots;
mod task;
mod timers;
mod virtual_time;

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use base::Instant;

pub(crate) use self::current::{try_current, wake_at_turn_end, with_current};
pub use self::task::{CancelOnDrop, Task, cancel_scope, spawn};
pub(crate) use self::timers::TimerId;

use self::core::{Core, Driver};
use self::current::{Entered, Inbox, is_free};
use self::virtual_time::VirtualClock;
use crate::real::{Completion, Operation, Reactor, RealConfig};

/// An executor with its driver. Make one with [`Runtime::simulated`] or `Runtime::real`.
///
/// # Example
/// ```
/// use base::Nanos;
/// let runtime = env::Runtime::simulated(7);
/// let waited = runtime.block_on(async {
///     let start = env::now();
///     env::sleep(Nanos::secs(3600)).await;
///     env::now().since(start)
/// });
/// assert_eq!(waited, Nanos::secs(3600)); // and no time has passed for you
/// ```
pub struct Runtime {
    core: Rc<Core>,
}

/// Asks an executor from another thread to run something on its own thread.
#[derive(Clone)]
pub struct Remote {
    inbox: Arc<Inbox>,
}

impl Remote {
    /// Interrupts the executor's wait, so that it looks at its channels.
    pub fn unpark(&self) {
        self.inbox.unpark();
    }
}

impl Runtime {
    /// A runtime in virtual time: the clock starts at zero and moves only when every task waits.
    /// All chance comes from `seed`.
    pub fn simulated(seed: u64) -> Runtime {
        Runtime::with_driver(Driver::Virtual(VirtualClock::default()), seed)
    }

    /// A runtime in real time, on io_uring, or on a thread pool where io_uring is refused.
    ///
    /// # Errors
    /// If the system gives no descriptor or thread, or no random seed.
    pub fn real(config: RealConfig) -> io::Result<Runtime> {
        let seed = match config.seed {
            Some(seed) => seed,
            None => crate::real::system_seed()?,
        };
        let reactor = Reactor::new(&config)?;
        Ok(Runtime::with_driver(Driver::Real(reactor), seed))
    }

    fn with_driver(driver: Driver, seed: u64) -> Runtime {
        Runtime {
            core: Rc::new(Core::new(driver, seed)),
        }
    }

    /// What moves this runtime: `virtual`, `io_uring` or `thread pool`.
    pub fn driver_name(&self) -> &'static str {
        match self.core.driver() {
            Driver::Virtual(_) => "virtual",
            Driver::Real(reactor) => reactor.name(),
        }
    }

    /// Runs `future` to its end on this thread, with every task it spawns.
    ///
    /// Tasks still waiting when it ends stay where they are; a later `block_on` goes on with them.
    ///
    /// # Panics
    /// If called inside a runtime, or (virtual time) if every task waits for something that can no
    /// longer happen.
    pub fn block_on<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> T {
        assert!(is_free(), "a runtime is running on this thread already");
        let _entered = Entered::new(&self.core);
        let core = &*self.core;
        let result: Rc<RefCell<Option<T>>> = Rc::default();
        let place = Rc::clone(&result);
        core.tasks.host.set(0);
        let root = core.tasks.insert(Box::pin(async move {
            let value = future.await;
            *place.borrow_mut() = Some(value);
        }));
        // A batch bounds how long completions wait behind tasks that keep waking each other.
        const BATCH: usize = 256;
        loop {
            core.drain_inbox();
            for _ in 0..BATCH {
                let Some((index, generation)) = core.tasks.next_ready() else {
                    break;
                };
                if core.run_one(index, generation)
                    && (index, generation) == root
                    && let Some(value) = result.borrow_mut().take()
                {
                    core.wake_kept();
                    return value;
                }
            }
            core.wake_kept();
            if !core.tasks.any_ready() {
                core.advance();
            } else if let Driver::Real(reactor) = core.driver() {
                let _ = reactor.poll();
            }
            core.fire_due();
        }
    }

    /// A digest of every step taken so far: which task ran at which nanosecond. Virtual time only.
    pub fn trace_hash(&self) -> u64 {
        self.core.hash()
    }

    /// A handle for other threads.
    pub fn remote(&self) -> Remote {
        Remote {
            inbox: Arc::clone(self.core.inbox()),
        }
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        // Futures may touch the runtime while they drop, and even spawn: enter it, and drop them with
        // no borrow held.
        let entered = Entered::new(&self.core);
        loop {
            let futures = self.core.tasks.retire_all();
            if futures.is_empty() {
                break;
            }
            for future in futures {
                // One that panics while it is dropped must not end the process: others are behind it.
                let _ = catch_unwind(AssertUnwindSafe(|| drop(future)));
            }
        }
        self.core.clear();
        self.core.wake_kept();
        drop(entered);
        Inbox::unregister(self.core.id());
    }
}

/// The present moment of this thread's runtime: what the clock of this host shows.
pub fn now() -> Instant {
    with_current(|core| core.now())
}

/// The present moment whatever the clock of this host shows; the same as [`now`] unless clocks were made to drift
/// ([`crate::net::sim::set_drift`]). For what stands beside all hosts: measures, and meta stores of simulations.
pub fn true_now() -> Instant {
    with_current(|core| core.true_now())
}

/// Does this thread's runtime run in virtual time?
pub fn is_simulated() -> bool {
    with_current(|core| core.is_simulated())
}

/// How many times a task has been run so far (for benchmarks of the executor).
pub fn events() -> u64 {
    with_current(|core| core.steps())
}

/// Lets every task that is ready now run before the caller goes on.
pub async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|cx| {
        if yielded {
            return Poll::Ready(());
        }
        yielded = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Starts `operation` on this thread's runtime.
pub(crate) fn start(operation: Operation) -> io::Result<Completion> {
    with_current(|core| match core.reactor() {
        Some(reactor) => reactor.start(operation),
        None => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "a real file or socket was used in a simulated runtime, which has none",
        )),
    })
}
