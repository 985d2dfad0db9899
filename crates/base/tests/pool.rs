//! What a thread's pool of buffers keeps goes back to the system when the thread ends.

#![allow(unsafe_code)] // A counting allocator has no safe form.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use base::Buf;

/// Bytes of page-aligned memory in use: buffers, and nothing else in this test.
static IN_USE: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() == base::PAGE {
            IN_USE.fetch_add(layout.size(), Ordering::SeqCst);
        }
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        if layout.align() == base::PAGE {
            IN_USE.fetch_sub(layout.size(), Ordering::SeqCst);
        }
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn a_thread_that_ends_gives_its_pool_back() {
    let work = || {
        let buffers: Vec<Buf> = [1, 4096, 70_000, 1 << 20].map(Buf::for_read).into();
        drop(buffers);
        IN_USE.load(Ordering::SeqCst)
    };
    let kept = std::thread::Builder::new()
        .spawn(work)
        .expect("a thread")
        .join();
    assert!(
        kept.expect("it ends") >= 1 << 20,
        "the pool keeps buffers while the thread lives"
    );
    assert_eq!(IN_USE.load(Ordering::SeqCst), 0);
}
