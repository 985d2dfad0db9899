//! Jobs waiting for a worker, and workers waiting for a job.
//!
//! Always true: there are as many workers as jobs were ever under way at once, so a job costs no task of its own.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::task::{Poll, Waker};

/// The workers of one connection, by number.
pub(super) struct Workers<J>(RefCell<Queue<J>>);

struct Queue<J> {
    jobs: VecDeque<J>,
    idle: Vec<usize>,
    /// One per worker: set while it is idle.
    wakers: Vec<Option<Waker>>,
    closed: bool,
}

impl<J> Default for Workers<J> {
    fn default() -> Workers<J> {
        Workers(RefCell::new(Queue {
            jobs: VecDeque::new(),
            idle: Vec::new(),
            wakers: Vec::new(),
            closed: false,
        }))
    }
}

impl<J> Workers<J> {
    /// Gives a job to an idle worker; if there is none, the number of one that is to be started.
    #[inline]
    pub(super) fn put(&self, job: J) -> Option<usize> {
        let mut queue = self.0.borrow_mut();
        queue.jobs.push_back(job);
        if let Some(idle) = queue.idle.pop() {
            let waker = queue.wakers[idle].take();
            drop(queue);
            waker.expect("an idle worker left its waker").wake();
            return None;
        }
        queue.wakers.push(None);
        Some(queue.wakers.len() - 1)
    }

    /// The next job of this worker; `None` once there are no more.
    #[inline]
    pub(super) fn next(&self, worker: usize) -> impl Future<Output = Option<J>> + '_ {
        poll_fn(move |cx| {
            let mut queue = self.0.borrow_mut();
            if let Some(job) = queue.jobs.pop_front() {
                // Woken by something else while idle: no longer to be called.
                if queue.wakers[worker].take().is_some() {
                    queue.idle.retain(|&idle| idle != worker);
                }
                return Poll::Ready(Some(job));
            }
            if queue.closed {
                return Poll::Ready(None);
            }
            if queue.wakers[worker].replace(cx.waker().clone()).is_none() {
                queue.idle.push(worker);
            }
            Poll::Pending
        })
    }

    /// Workers end when the jobs there are have been taken.
    pub(super) fn close(&self) {
        let mut queue = self.0.borrow_mut();
        queue.closed = true;
        queue.idle.clear();
        let wakers: Vec<Waker> = queue.wakers.iter_mut().filter_map(Option::take).collect();
        drop(queue);
        for waker in wakers {
            waker.wake();
        }
    }
}
