//! What the ring is made of, in the shape in which `loom` offers it too (`tests/handover_ring.rs` puts it in this place).

#![allow(unsafe_code)] // Pointers into a cell are followed by the ring, which says why it may.

pub(super) use std::sync::Arc;
pub(super) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering, fence};

/// A cell whose owner at each moment is settled by the atomics beside it.
pub(super) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(super) fn new(value: T) -> UnsafeCell<T> {
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }

    /// Calls `f` with a pointer to the value; what `f` does with it is the ring's to answer for.
    #[inline]
    pub(super) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}
