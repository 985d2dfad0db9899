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

/// One test at a time: what the one gives back, the other may map again.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn alone() -> std::sync::MutexGuard<'static, ()> {
    ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Is anything mapped at address `at` of this process?
fn is_mapped(at: usize) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("this is Linux");
    maps.lines().any(|line| {
        let range = line
            .split_once(' ')
            .and_then(|(range, _)| range.split_once('-'));
        let (from, to) = range.expect("each line begins with a range");
        let number = |text| usize::from_str_radix(text, 16).expect("an address");
        (number(from)..number(to)).contains(&at)
    })
}

#[test]
fn a_thread_that_ends_gives_its_pool_back() {
    let _alone = alone();
    let work = || {
        let mut long = Buf::for_read(1 << 20);
        let at = long.address() as usize;
        let buffers: Vec<Buf> = [1, 4096, 60_000].map(Buf::for_read).into();
        drop((long, buffers));
        assert!(
            is_mapped(at),
            "the pool keeps a huge page while the thread lives"
        );
        (IN_USE.load(Ordering::SeqCst), at)
    };
    let kept = std::thread::Builder::new()
        .spawn(work)
        .expect("a thread")
        .join();
    let (kept, at) = kept.expect("it ends");
    assert!(
        kept >= 64 << 10,
        "the pool keeps buffers while the thread lives"
    );
    assert_eq!(IN_USE.load(Ordering::SeqCst), 0);
    assert!(!is_mapped(at));
}

/// Long buffers that go to another thread and stay there, as a gate's may: more than its pool keeps.
#[test]
fn pieces_that_end_on_another_thread_are_given_back() {
    let _alone = alone();
    let (send, receive) = std::sync::mpsc::channel();
    let maker = std::thread::Builder::new().spawn(move || {
        for _ in 0..200 {
            let buf = Buf::for_read(1 << 20);
            send.send(base::Parcel::new(buf)).expect("it is taken");
        }
    });
    let mut places = Vec::new();
    for parcel in receive {
        let mut buf = parcel.open();
        places.push(buf.address() as usize);
    }
    maker.expect("a thread").join().expect("it ends");
    places.sort_unstable();
    places.dedup();
    // What this thread's pool keeps (32 MiB) holds at most so many halves, and each may hold its other half.
    let mapped = places.iter().filter(|at| is_mapped(**at)).count();
    assert!(mapped <= 64, "{mapped} of {} are mapped", places.len());
}
