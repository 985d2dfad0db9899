//! A panic that ends one task's work instead of everything on its thread.
//!
//! ```text
//! future -> poll -> panics -> dropped -> Panicked: what it said
//!                   (virtual time: goes on, unless the runtime is set to catch)
//!                   (goes on where it left shared state half changed: `critical.rs`)
//! ```
//!
//! Only for work that shares no state with others which a panic could leave half changed: looking, parsing, answering.
//! What changes shared state runs in a task of its own; its panic ends the runtime, and a thread starts anew from what is
//! durable.
//!
//! Always true:
//! 1. A simulation fails at a panic that no test asked to catch.
//! 2. After a panic within a [`crate::critical_section`] none is caught.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::Poll;

use crate::executor::catch::Catch;
use crate::executor::with_current;

/// What a panic said.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a defect of this program: {0}")]
pub struct Panicked(pub String);

impl Panicked {
    /// What is in a panic's payload.
    pub fn of(payload: &(dyn Any + Send)) -> Panicked {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        Panicked(text.unwrap_or("it said nothing").to_owned())
    }
}

/// In virtual time: from now on [`caught`] catches, as it does in real time.
pub fn catch_panics() {
    with_current(|core| core.catch.set(Catch::Caught));
}

/// Runs `work` to its end. A panic in it drops it, and is the error.
///
/// # Errors
/// [`Panicked`], with what the panic said; where it was is in the log.
///
/// # Panics
/// As `work` does, once a panic of this runtime began within a [`crate::critical_section`].
///
/// # Example
/// ```
/// env::Runtime::simulated(1).block_on(async {
///     env::catch_panics();
///     let ended = env::caught(async { panic!("out of range") }).await;
///     let said: Result<(), _> = ended;
///     assert_eq!(said.unwrap_err().0, "out of range");
/// });
/// ```
pub async fn caught<T>(work: impl Future<Output = T>) -> Result<T, Panicked> {
    let mut work: Option<Pin<Box<dyn Future<Output = T>>>> = Some(Box::pin(work));
    std::future::poll_fn(move |cx| {
        let Some(future) = work.as_mut() else {
            return Poll::Pending;
        };
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx)));
        let payload = match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(value)) => return Poll::Ready(Ok(value)),
            Err(payload) => payload,
        };
        match with_current(|core| core.catch.get()) {
            Catch::Caught => {}
            Catch::GoesOn => resume_unwind(payload),
            Catch::HalfChanged => {
                let Panicked(why) = Panicked::of(&*payload);
                panic!(
                    "{why} (that left shared state half changed: nothing more is served from it)"
                );
            }
        }
        // What it holds is given back; a second panic on the way is the first one's fault.
        let future = work.take();
        let _ = catch_unwind(AssertUnwindSafe(|| drop(future)));
        Poll::Ready(Err(Panicked::of(&*payload)))
    })
    .await
}
