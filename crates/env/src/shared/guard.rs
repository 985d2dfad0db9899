//! What happens when a peer takes away memory that is mapped here?
//!
//! ```text
//! access -> no page -> SIGBUS -> is it of a guarded range? -> fresh zero pages in its place, the range is broken, go on
//!                                                          -> else: as it was before
//! ```
//!
//! As libraries of Wayland do it. The handler makes one system call and sets a flag: both may be done in a handler.

#![allow(unsafe_code)] // A signal handler is installed, which maps pages over broken ones.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Once, OnceLock};

/// Ranges that are mapped at once by all threads.
const RANGES: usize = 512;

struct Range {
    taken: AtomicBool,
    /// 0: none.
    start: AtomicUsize,
    len: AtomicUsize,
    broken: AtomicBool,
}

static TABLE: [Range; RANGES] = [const {
    Range {
        taken: AtomicBool::new(false),
        start: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        broken: AtomicBool::new(false),
    }
}; RANGES];

/// What the signal did before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// A range whose loss is survived, until it is forgotten.
pub(super) struct Guarded(usize);

impl Guarded {
    /// Guards `len` bytes from `start` on, which were just mapped.
    ///
    /// # Errors
    /// If too many are.
    pub fn new(start: usize, len: usize) -> io::Result<Guarded> {
        install();
        for (index, range) in TABLE.iter().enumerate() {
            if range
                .taken
                .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
            {
                range.broken.store(false, Ordering::Relaxed);
                range.len.store(len, Ordering::Relaxed);
                range.start.store(start, Ordering::Release);
                return Ok(Guarded(index));
            }
        }
        Err(io::Error::other(format!(
            "{RANGES} memories of other processes are mapped already"
        )))
    }

    pub fn is_broken(&self) -> bool {
        TABLE[self.0].broken.load(Ordering::Relaxed)
    }

    /// It is about to be unmapped.
    pub fn forget(&self) {
        TABLE[self.0].start.store(0, Ordering::Release);
        TABLE[self.0].taken.store(false, Ordering::Release);
    }
}

fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: all zeros is a valid sigaction, and the handler does only what a handler may.
        unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut before);
            let _ = BEFORE.set(before);
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handle as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut());
        }
    });
}

extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands a valid one to each handler.
    let at = unsafe { (*info).si_addr() }.addr();
    for range in &TABLE {
        let start = range.start.load(Ordering::Acquire);
        let len = range.len.load(Ordering::Relaxed);
        if start == 0 || at < start || at - start >= len {
            continue;
        }
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the range is a mapping of ours until it is forgotten by the thread that stands here; nothing but
        // copies through pointers ever looks at it.
        let mapped = unsafe { libc::mmap(start as *mut libc::c_void, len, access, flags, -1, 0) };
        if mapped != libc::MAP_FAILED {
            range.broken.store(true, Ordering::Relaxed);
            return;
        }
    }
    // SAFETY: what was installed before us is called as it asked to be, or the system's own way is taken.
    unsafe {
        match BEFORE.get() {
            Some(before)
                if before.sa_sigaction != libc::SIG_DFL && before.sa_sigaction != libc::SIG_IGN =>
            {
                let before: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                    std::mem::transmute(before.sa_sigaction as *const ());
                before(signal, info, context);
            }
            _ => {
                libc::signal(libc::SIGBUS, libc::SIG_DFL);
            }
        }
    }
}
