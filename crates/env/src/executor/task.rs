//! A task with a result: spawned, awaited, cancelled.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::current::{try_current, with_current};

struct TaskState<T> {
    value: Option<T>,
    done: bool,
    waiter: Option<Waker>,
}

/// A spawned task. Await it for its result; dropping it lets the task run on alone.
pub struct Task<T> {
    state: Rc<RefCell<TaskState<T>>>,
    index: u32,
    generation: u32,
}

impl<T> Task<T> {
    /// Ends the task where it stands; what it holds is dropped. Ended already: nothing happens.
    pub fn cancel(&self) {
        let future = with_current(|core| core.tasks.retire(self.index, self.generation));
        drop(future);
    }

    /// Has the task come to its end?
    pub fn is_done(&self) -> bool {
        self.state.borrow().done
    }
}

impl<T> Future for Task<T> {
    type Output = T;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let mut state = self.state.borrow_mut();
        if let Some(value) = state.value.take() {
            return Poll::Ready(value);
        }
        assert!(!state.done, "a task's result is taken once");
        state.waiter = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// Starts `future` as a task of its own on this thread's runtime.
pub fn spawn<T: 'static>(future: impl Future<Output = T> + 'static) -> Task<T> {
    let state = Rc::new(RefCell::new(TaskState {
        value: None,
        done: false,
        waiter: None,
    }));
    let place = Rc::clone(&state);
    let (index, generation) = with_current(|core| {
        core.tasks.insert(Box::pin(async move {
            let value = future.await;
            let waiter = {
                let mut state = place.borrow_mut();
                state.value = Some(value);
                state.done = true;
                state.waiter.take()
            };
            if let Some(waiter) = waiter {
                waiter.wake();
            }
        }))
    });
    Task {
        state,
        index,
        generation,
    }
}

/// Cancels a task when it goes out of scope.
pub struct CancelOnDrop<T>(Task<T>);

impl<T> Drop for CancelOnDrop<T> {
    fn drop(&mut self) {
        let (index, generation) = (self.0.index, self.0.generation);
        // Outside a runtime every task has ended with it.
        let future = try_current(|core| core.tasks.retire(index, generation));
        drop(future);
    }
}

/// Ties `task` to a scope: when the returned guard drops, the task ends.
pub fn cancel_scope<T>(task: Task<T>) -> CancelOnDrop<T> {
    CancelOnDrop(task)
}
