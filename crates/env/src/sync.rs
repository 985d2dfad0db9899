//! How tasks of one runtime wait for each other. Single-threaded: no locks, no atomics.
//!
//! FIFO throughout: the task that waits first is served first.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// A place to wait for a change: `notify_all` wakes every task that waits now.
///
/// Wait in a loop that looks at the condition itself:
/// `while !ready() { event.wait().await; }`. A wait that began before the change never misses it.
#[derive(Default)]
pub struct Event {
    round: Cell<u64>,
    waiters: RefCell<Vec<Waker>>,
}

impl Event {
    /// Wakes all tasks that wait.
    pub fn notify_all(&self) {
        self.round.set(self.round.get() + 1);
        let waiters = std::mem::take(&mut *self.waiters.borrow_mut());
        for waiter in waiters {
            waiter.wake();
        }
    }

    /// Waits for the next `notify_all` after this call.
    pub fn wait(&self) -> impl Future<Output = ()> + '_ {
        let round = self.round.get();
        std::future::poll_fn(move |cx| {
            if self.round.get() != round {
                return Poll::Ready(());
            }
            let mut waiters = self.waiters.borrow_mut();
            if !waiters.iter().any(|waiter| waiter.will_wake(cx.waker())) {
                waiters.push(cx.waker().clone());
            }
            Poll::Pending
        })
    }
}

/// A counter of permits, handed out first come, first served (also when a later ask is smaller).
pub struct Semaphore {
    free: Cell<u64>,
    queue: RefCell<VecDeque<Rc<Waiting>>>,
}

struct Waiting {
    asked: u64,
    granted: Cell<bool>,
    dropped: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// Permits held; given back when dropped.
pub struct Permit {
    from: Rc<Semaphore>,
    count: u64,
}

impl Semaphore {
    /// A semaphore with `permits` to hand out.
    pub fn new(permits: u64) -> Rc<Semaphore> {
        Rc::new(Semaphore {
            free: Cell::new(permits),
            queue: RefCell::default(),
        })
    }

    /// Permits that are free.
    pub fn free(&self) -> u64 {
        self.free.get()
    }

    /// Takes `count` permits if they are free and no task waits.
    pub fn try_acquire(self: &Rc<Self>, count: u64) -> Option<Permit> {
        if !self.queue.borrow().is_empty() || self.free.get() < count {
            return None;
        }
        self.free.set(self.free.get() - count);
        Some(Permit {
            from: Rc::clone(self),
            count,
        })
    }

    /// Takes `count` permits, waiting in line for them.
    pub async fn acquire(self: &Rc<Self>, count: u64) -> Permit {
        if let Some(permit) = self.try_acquire(count) {
            return permit;
        }
        struct InLine {
            semaphore: Rc<Semaphore>,
            waiting: Rc<Waiting>,
            taken: bool,
        }
        impl Drop for InLine {
            fn drop(&mut self) {
                self.waiting.dropped.set(true);
                if self.waiting.granted.get() && !self.taken {
                    self.semaphore.release(self.waiting.asked);
                } else if !self.taken {
                    self.semaphore.serve();
                }
            }
        }
        let waiting = Rc::new(Waiting {
            asked: count,
            granted: Cell::new(false),
            dropped: Cell::new(false),
            waker: RefCell::new(None),
        });
        self.queue.borrow_mut().push_back(Rc::clone(&waiting));
        let mut in_line = InLine {
            semaphore: Rc::clone(self),
            waiting,
            taken: false,
        };
        std::future::poll_fn(|cx| {
            if in_line.waiting.granted.get() {
                return Poll::Ready(());
            }
            *in_line.waiting.waker.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
        in_line.taken = true;
        Permit {
            from: Rc::clone(self),
            count,
        }
    }

    fn release(&self, count: u64) {
        self.free.set(self.free.get() + count);
        self.serve();
    }

    fn serve(&self) {
        loop {
            let served = {
                let mut queue = self.queue.borrow_mut();
                match queue.front() {
                    Some(first) if first.dropped.get() => queue.pop_front(),
                    Some(first) if first.asked <= self.free.get() => {
                        self.free.set(self.free.get() - first.asked);
                        first.granted.set(true);
                        queue.pop_front()
                    }
                    _ => None,
                }
            };
            let Some(served) = served else { return };
            let waker = served.waker.borrow_mut().take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.from.release(self.count);
    }
}

/// The other end of a channel is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the other end of the channel is gone")]
pub struct Closed;

struct Queue<T> {
    items: VecDeque<T>,
    senders: usize,
    receiver: bool,
    waiter: Option<Waker>,
}

/// Sends into a channel of one runtime; never waits.
pub struct Sender<T>(Rc<RefCell<Queue<T>>>);
/// Takes out of a channel of one runtime.
pub struct Receiver<T>(Rc<RefCell<Queue<T>>>);

/// A FIFO channel between tasks of one runtime. Bound what you send with a [`Semaphore`].
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let queue = Rc::new(RefCell::new(Queue {
        items: VecDeque::new(),
        senders: 1,
        receiver: true,
        waiter: None,
    }));
    (Sender(Rc::clone(&queue)), Receiver(queue))
}

impl<T> Sender<T> {
    /// Appends `item`; hands it back if the receiver is gone.
    pub fn send(&self, item: T) -> Result<(), T> {
        let waiter = {
            let mut queue = self.0.borrow_mut();
            if !queue.receiver {
                return Err(item);
            }
            queue.items.push_back(item);
            queue.waiter.take()
        };
        if let Some(waiter) = waiter {
            waiter.wake();
        }
        Ok(())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.borrow_mut().senders += 1;
        Sender(Rc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let waiter = {
            let mut queue = self.0.borrow_mut();
            queue.senders -= 1;
            if queue.senders > 0 {
                return;
            }
            queue.waiter.take()
        };
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }
}

impl<T> Receiver<T> {
    /// The next item; `Closed` once all senders are gone and nothing is left.
    pub async fn receive(&mut self) -> Result<T, Closed> {
        std::future::poll_fn(|cx| {
            let mut queue = self.0.borrow_mut();
            if let Some(item) = queue.items.pop_front() {
                return Poll::Ready(Ok(item));
            }
            if queue.senders == 0 {
                return Poll::Ready(Err(Closed));
            }
            queue.waiter = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// The next item if there is one now.
    pub fn try_receive(&mut self) -> Option<T> {
        self.0.borrow_mut().items.pop_front()
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let items = {
            let mut queue = self.0.borrow_mut();
            queue.receiver = false;
            std::mem::take(&mut queue.items)
        };
        drop(items);
    }
}

/// Waits for all of `futures`, polling every one; results in order.
pub async fn join_all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    enum Slot<F: Future> {
        Waiting(Pin<Box<F>>),
        Done(Option<F::Output>),
    }
    let mut slots: Vec<Slot<F>> = futures
        .into_iter()
        .map(|future| Slot::Waiting(Box::pin(future)))
        .collect();
    std::future::poll_fn(move |cx: &mut Context<'_>| {
        let mut waiting = false;
        for slot in &mut slots {
            if let Slot::Waiting(future) = slot {
                match future.as_mut().poll(cx) {
                    Poll::Ready(value) => *slot = Slot::Done(Some(value)),
                    Poll::Pending => waiting = true,
                }
            }
        }
        if waiting {
            return Poll::Pending;
        }
        Poll::Ready(
            slots
                .iter_mut()
                .map(|slot| match slot {
                    Slot::Done(value) => value.take().expect("taken once"),
                    Slot::Waiting(_) => unreachable!("none waits"),
                })
                .collect(),
        )
    })
    .await
}
