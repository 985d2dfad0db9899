//! Threads that make blocking calls for the executor: all file operations where there is no io_uring,
//! and the few calls it has no operation for.
//!
//! ```text
//! start -> queue -> thread: the call -> list of ended -> wake -> collect
//! ```
//!
//! Threads start when work finds none idle, up to [`THREADS_MAX`], and end with the pool.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

use super::Operation;
use super::wake::Wake;

/// Enough to keep a disk's queue busy; few enough to cost nothing.
const THREADS_MAX: usize = 16;
/// Asks a block device to forget a range of `[start, length]` bytes: _IO(0x12, 119).
const BLKDISCARD: libc::c_ulong = 0x1277;
/// Sends a disk a command.
const SG_IO: libc::c_ulong = 0x2285;

/// A call to make, without the operation's owners, which stay on the executor's thread.
enum Call {
    Nop,
    Read {
        to: *mut u8,
        len: usize,
        at: u64,
    },
    ReadVectored {
        pieces: *const libc::iovec,
        count: usize,
        at: u64,
    },
    Write {
        from: *const u8,
        len: usize,
        at: u64,
        dsync: bool,
    },
    Sync,
    Allocate {
        mode: i32,
        at: u64,
        len: u64,
    },
    Discard {
        range: [u64; 2],
    },
    Scsi {
        header: *mut libc::c_void,
    },
}

impl Call {
    /// What `operation` asks of which file. The pointers are good as long as the operation stays where it is.
    fn of(operation: &mut Operation) -> (RawFd, Call) {
        match operation {
            Operation::Nop => (-1, Call::Nop),
            Operation::Read {
                file,
                buf,
                filled,
                at,
            } => {
                let rest = &mut buf[*filled..];
                let call = Call::Read {
                    to: rest.as_mut_ptr(),
                    len: rest.len(),
                    at: *at + *filled as u64,
                };
                (file.as_raw_fd(), call)
            }
            Operation::ReadVectored { file, pieces, at } => {
                let at = *at + pieces.filled();
                let (pieces, count) = pieces.rest();
                (file.as_raw_fd(), Call::ReadVectored { pieces, count, at })
            }
            Operation::Write {
                file,
                data,
                written,
                at,
                dsync,
            } => {
                let rest = &data[*written..];
                let call = Call::Write {
                    from: rest.as_ptr(),
                    len: rest.len(),
                    at: *at + *written as u64,
                    dsync: *dsync,
                };
                (file.as_raw_fd(), call)
            }
            Operation::Sync { file } => (file.as_raw_fd(), Call::Sync),
            Operation::Allocate {
                file,
                mode,
                at,
                len,
            } => {
                let (mode, at, len) = (*mode, *at, *len);
                (file.as_raw_fd(), Call::Allocate { mode, at, len })
            }
            Operation::Discard { file, at, len } => {
                let range = [*at, *len];
                (file.as_raw_fd(), Call::Discard { range })
            }
            Operation::Scsi { file, exchange } => {
                let header = exchange.header();
                (file.as_raw_fd(), Call::Scsi { header })
            }
            _ => unreachable!("a socket without a ring is polled: no thread waits for a peer"),
        }
    }
}

struct Job {
    slot: u32,
    file: RawFd,
    call: Call,
}

// SAFETY: the pointers of a call are to memory that the operation's slot owns, alone, until the result
// has been collected.
unsafe impl Send for Job {}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    idle: usize,
    closed: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    more: Condvar,
    ended: Mutex<Vec<(u32, i32)>>,
    any_ended: AtomicBool,
    wake: Arc<Wake>,
}

/// See the module's head.
pub(super) struct Pool {
    shared: Arc<Shared>,
    threads: RefCell<Vec<JoinHandle<()>>>,
}

const UNPOISONED: &str = "no code panics while it holds this lock";

impl Pool {
    pub(super) fn new(wake: Arc<Wake>) -> Pool {
        Pool {
            shared: Arc::new(Shared {
                queue: Mutex::default(),
                more: Condvar::new(),
                ended: Mutex::default(),
                any_ended: AtomicBool::new(false),
                wake,
            }),
            threads: RefCell::default(),
        }
    }

    /// Queues `operation`; its result comes under `slot` at a later [`Pool::collect`].
    ///
    /// # Errors
    /// If the system gives no thread, and there is none yet.
    ///
    /// # Safety
    /// The operation stays alive and untouched, and its buffer where it is, until its result has been
    /// collected.
    pub(super) unsafe fn start(&self, slot: u32, operation: &mut Operation) -> io::Result<()> {
        let (file, call) = Call::of(operation);
        let job = Job { slot, file, call };
        let mut queue = self.shared.queue.lock().expect(UNPOISONED);
        let mut threads = self.threads.borrow_mut();
        if queue.idle <= queue.jobs.len() && threads.len() < THREADS_MAX {
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new()
                .name("tanada-file".into())
                .spawn(move || shared.work());
            match thread {
                Ok(thread) => threads.push(thread),
                Err(error) if threads.is_empty() => return Err(error),
                Err(_) => {}
            }
        }
        queue.jobs.push_back(job);
        drop(queue);
        self.shared.more.notify_one();
        Ok(())
    }

    /// Appends what has ended to `ended`: slot and result.
    pub(super) fn collect(&self, ended: &mut Vec<(u32, i32)>) {
        if self.shared.any_ended.swap(false, Ordering::Acquire) {
            ended.append(&mut self.shared.ended.lock().expect(UNPOISONED));
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.queue.lock().expect(UNPOISONED).closed = true;
        self.shared.more.notify_all();
        for thread in self.threads.borrow_mut().drain(..) {
            // A thread that panicked has nothing more to end.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn work(&self) {
        let mut queue = self.queue.lock().expect(UNPOISONED);
        loop {
            let Some(job) = queue.jobs.pop_front() else {
                if queue.closed {
                    return;
                }
                queue.idle += 1;
                queue = self.more.wait(queue).expect(UNPOISONED);
                queue.idle -= 1;
                continue;
            };
            drop(queue);
            let slot = job.slot;
            let result = make(job);
            self.ended.lock().expect(UNPOISONED).push((slot, result));
            self.any_ended.store(true, Ordering::Release);
            self.wake.notify();
            queue = self.queue.lock().expect(UNPOISONED);
        }
    }
}

/// Makes the call; what it returns, or the negative errno.
fn make(job: Job) -> i32 {
    loop {
        // SAFETY: see `Send for Job`; each pointer and length are those of a live buffer, the
        // descriptor is open, and `Nop` has none.
        let answer = unsafe {
            match job.call {
                Call::Nop => 0,
                Call::Read { to, len, at } => {
                    libc::pread(job.file, to.cast(), len.min(1 << 30), at as libc::off_t)
                }
                Call::ReadVectored { pieces, count, at } => {
                    libc::preadv(job.file, pieces, count as i32, at as libc::off_t)
                }
                Call::Write {
                    from,
                    len,
                    at,
                    dsync,
                } => {
                    let piece = libc::iovec {
                        iov_base: from.cast_mut().cast(),
                        iov_len: len.min(1 << 30),
                    };
                    let flags = if dsync { libc::RWF_DSYNC } else { 0 };
                    libc::pwritev2(job.file, &piece, 1, at as libc::off_t, flags)
                }
                Call::Sync => libc::fdatasync(job.file) as isize,
                Call::Allocate { mode, at, len } => {
                    libc::fallocate(job.file, mode, at as libc::off_t, len as libc::off_t) as isize
                }
                Call::Discard { range } => libc::ioctl(job.file, BLKDISCARD, &range) as isize,
                Call::Scsi { header } => libc::ioctl(job.file, SG_IO, header) as isize,
            }
        };
        if answer >= 0 {
            // At most 2^30.
            return answer as i32;
        }
        let errno = io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EIO);
        if errno != libc::EINTR {
            return -errno;
        }
    }
}
