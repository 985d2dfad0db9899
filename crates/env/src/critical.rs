//! State that the tasks of one thread share, and that no panic may leave half changed.
//!
//! ```text
//! change -> the section ends: others see the state whole
//!        \-> a panic passes through it: no `caught` of this runtime catches any more -> the runtime ends
//! ```
//!
//! [`crate::caught`] ends one task's work and lets others go on, so it must not do that where the others go on with what the
//! panic left half changed. A thread then starts anew from what is durable.
//!
//! Always true:
//! 1. A panic that begins within a section ends the runtime, wherever it is caught.
//! 2. What is dropped because of a panic that began elsewhere may enter sections and leave them whole.

use std::cell::{Ref, RefCell, RefMut};
use std::ops::{Deref, DerefMut};

use crate::executor::catch::Catch;
use crate::executor::try_current;

/// Shared state is being changed until this is dropped.
#[must_use = "the section ends when this is dropped"]
pub struct CriticalSection {
    /// A panic was under way already when it began.
    panicking: bool,
}

/// Begins a change of state that is done in several steps.
///
/// # Example
/// ```
/// let ended = std::panic::catch_unwind(|| {
///     env::Runtime::simulated(1).block_on(async {
///         env::catch_panics();
///         let _ = env::caught(async {
///             let _section = env::critical_section();
///             panic!("half done");
///         })
///         .await;
///         unreachable!("nothing goes on with what is half done");
///     })
/// });
/// assert!(ended.is_err());
/// ```
pub fn critical_section() -> CriticalSection {
    CriticalSection {
        panicking: std::thread::panicking(),
    }
}

impl Drop for CriticalSection {
    fn drop(&mut self) {
        if !self.panicking && std::thread::panicking() {
            // Outside a runtime nothing catches.
            let _ = try_current(|core| core.catch.set(Catch::HalfChanged));
        }
    }
}

/// A `RefCell` whose changes are critical sections.
///
/// # Example
/// ```
/// let queue = env::Critical::new(vec![1]);
/// queue.change().push(2);
/// assert_eq!(queue.borrow().len(), 2);
/// ```
#[derive(Debug, Default)]
pub struct Critical<T>(RefCell<T>);

/// A [`Critical`] that is being changed.
pub struct Change<'a, T> {
    state: RefMut<'a, T>,
    _section: CriticalSection,
}

impl<T> Critical<T> {
    /// Holds `state`.
    pub fn new(state: T) -> Critical<T> {
        Critical(RefCell::new(state))
    }

    /// Looks at it.
    ///
    /// # Panics
    /// While it is being changed.
    pub fn borrow(&self) -> Ref<'_, T> {
        self.0.borrow()
    }

    /// Changes it until the answer is dropped; never across an `await`.
    ///
    /// # Panics
    /// While others look at it or change it.
    pub fn change(&self) -> Change<'_, T> {
        Change {
            state: self.0.borrow_mut(),
            _section: critical_section(),
        }
    }
}

impl<T> Deref for Change<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.state
    }
}

impl<T> DerefMut for Change<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.state
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::rc::Rc;

    use super::*;
    use crate::{Runtime, catch_panics, caught};

    /// Does the runtime outlive a panic that `work` makes and [`caught`] would catch?
    fn outlives(work: impl AsyncFn(&Critical<u32>) + 'static) -> bool {
        let ended = catch_unwind(AssertUnwindSafe(|| {
            Runtime::simulated(1).block_on(async move {
                catch_panics();
                let state = Rc::new(Critical::new(0));
                let shared = Rc::clone(&state);
                let task = crate::spawn(async move { caught(work(&shared)).await.is_err() });
                assert!(task.await, "it should panic");
                assert_eq!(*state.borrow(), 0, "it is half changed");
            });
        }));
        ended.is_ok()
    }

    /// Changes the state back when it is dropped.
    struct Undo<'a>(&'a Critical<u32>);

    impl Drop for Undo<'_> {
        fn drop(&mut self) {
            *self.0.change() = 0;
        }
    }

    #[test]
    fn a_panic_within_a_change_ends_the_runtime_and_one_beside_it_does_not() {
        assert!(outlives(async |_| panic!("beside")));
        assert!(outlives(async |state| {
            *state.change() = 0;
            panic!("behind");
        }));
        assert!(!outlives(async |state| {
            let mut state = state.change();
            *state = 1;
            panic!("within");
        }));
        assert!(!outlives(async |state| {
            let _section = critical_section();
            *state.change() = 1;
            panic!("between two steps");
        }));
    }

    #[test]
    fn what_a_panic_drops_may_change_state_on_its_way() {
        assert!(outlives(async |state| {
            let _undo = Undo(state);
            *state.change() = 1;
            panic!("beside");
        }));
    }
}
