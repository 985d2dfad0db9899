//! Messages from other threads: a queue whose reader is a task of one runtime.
//!
//! ```text
//! any thread: post -> queue -> wake the executor (at most one eventfd write per wait) -> receive
//! ```
//!
//! Unbounded: bound what you post (a request is answered before the next is sent, or count them).
//!
//! Always true:
//! 1. Messages of one poster arrive in the order they were posted.
//! 2. A message posted before the mailbox waits is seen without a wake-up; none is ever missed.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use crate::sync::Closed;

struct Shared<T> {
    messages: VecDeque<T>,
    posters: usize,
    open: bool,
    waiter: Option<Waker>,
}

/// Posts messages from any thread; clone it for more.
pub struct Poster<T: Send>(Arc<Mutex<Shared<T>>>);

/// Takes messages out, on the thread of the runtime that waits.
pub struct Mailbox<T: Send> {
    shared: Arc<Mutex<Shared<T>>>,
    /// Messages taken out together, so that a burst costs one lock.
    taken: VecDeque<T>,
}

/// A new mailbox.
///
/// # Example
/// ```
/// let (poster, mut mailbox) = env::mailbox();
/// let runtime = env::Runtime::real(env::RealConfig::default())?;
/// let thread = std::thread::Builder::new().spawn(move || poster.post(7))?;
/// assert_eq!(runtime.block_on(async move { mailbox.receive().await }), Ok(7));
/// # thread.join().unwrap().unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn mailbox<T: Send>() -> (Poster<T>, Mailbox<T>) {
    let shared = Arc::new(Mutex::new(Shared {
        messages: VecDeque::new(),
        posters: 1,
        open: true,
        waiter: None,
    }));
    (
        Poster(Arc::clone(&shared)),
        Mailbox {
            shared,
            taken: VecDeque::new(),
        },
    )
}

fn lock<T>(shared: &Mutex<Shared<T>>) -> MutexGuard<'_, Shared<T>> {
    // A queue is whole between any two of its operations, whichever thread panicked.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T: Send> Poster<T> {
    /// Appends `message` and wakes the reader; hands it back if the mailbox is gone. Never waits.
    pub fn post(&self, message: T) -> Result<(), T> {
        let waiter = {
            let mut shared = lock(&self.0);
            if !shared.open {
                return Err(message);
            }
            shared.messages.push_back(message);
            shared.waiter.take()
        };
        if let Some(waiter) = waiter {
            waiter.wake();
        }
        Ok(())
    }
}

impl<T: Send> Clone for Poster<T> {
    fn clone(&self) -> Self {
        lock(&self.0).posters += 1;
        Poster(Arc::clone(&self.0))
    }
}

impl<T: Send> Drop for Poster<T> {
    fn drop(&mut self) {
        let waiter = {
            let mut shared = lock(&self.0);
            shared.posters -= 1;
            if shared.posters > 0 {
                return;
            }
            shared.waiter.take()
        };
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }
}

impl<T: Send> Mailbox<T> {
    /// The next message; [`Closed`] once every poster is gone and nothing is left. Dropping the future
    /// loses no message.
    pub async fn receive(&mut self) -> Result<T, Closed> {
        std::future::poll_fn(|cx| {
            if let Some(message) = self.taken.pop_front() {
                return Poll::Ready(Ok(message));
            }
            let mut shared = lock(&self.shared);
            std::mem::swap(&mut self.taken, &mut shared.messages);
            if let Some(message) = self.taken.pop_front() {
                return Poll::Ready(Ok(message));
            }
            if shared.posters == 0 {
                return Poll::Ready(Err(Closed));
            }
            shared.waiter = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// The next message if one is there.
    pub fn try_receive(&mut self) -> Option<T> {
        if self.taken.is_empty() {
            std::mem::swap(&mut self.taken, &mut lock(&self.shared).messages);
        }
        self.taken.pop_front()
    }
}

impl<T: Send> Drop for Mailbox<T> {
    fn drop(&mut self) {
        let messages = {
            let mut shared = lock(&self.shared);
            shared.open = false;
            std::mem::take(&mut shared.messages)
        };
        // With no lock held: a message may hold a poster of this very mailbox.
        drop(messages);
    }
}
