//! A ring that closes once its thread is gone: what a driver has of it is given up by then, and not before.
//!
//! ```text
//! runtime dropped with commands at a driver -> a second descriptor of its ring -> the thread has ended -> closed
//! ```
//!
//! A driver learns by the closing that its server is gone. That of Linux 6.12 (ublk) gives back the requests it has, and takes
//! the thread to be gone as well. To one that lives the kernel still hands a request that came meanwhile: it has an owner then
//! that answers nothing, and the recovery of the disk waits for it for ever.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

/// How often to look whether the thread has ended.
const EVERY: Duration = Duration::from_millis(1);
/// How often to look at all: ten seconds. A thread that goes on for longer would keep its driver waiting.
const LOOKS: u32 = 10_000;

/// Keeps the ring of `descriptor` open until this thread has ended. A process that ends before closes it then.
///
/// # Errors
/// The system's: no descriptor, or no thread.
pub(super) fn close_behind(descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let ring = descriptor.try_clone_to_owned()?;
    let thread = rustix::thread::gettid().as_raw_nonzero();
    let own = PathBuf::from(format!("/proc/self/task/{thread}"));
    std::thread::Builder::new()
        .name("tanada-ring".into())
        .spawn(move || close_once_gone(ring, || own.exists()))
        .map(drop)
}

fn close_once_gone(ring: OwnedFd, lives: impl Fn() -> bool) {
    let mut looks = 0;
    while looks < LOOKS && lives() {
        std::thread::park_timeout(EVERY);
        looks += 1;
    }
    drop(ring);
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsFd;

    use super::*;

    /// A pipe for the ring: its other end sees the moment of closing.
    #[test]
    fn what_a_thread_leaves_is_closed_when_it_has_ended_and_not_before() {
        let (mut reads, writes) = io::pipe().unwrap();
        let (left, is_left) = std::sync::mpsc::channel();
        let (go_on, may_end) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new().spawn(move || {
            close_behind(writes.as_fd()).unwrap();
            drop(writes);
            left.send(()).unwrap();
            may_end.recv().unwrap();
        });
        is_left.recv().unwrap();
        let mut wait = [rustix::event::PollFd::new(
            &reads,
            rustix::event::PollFlags::IN,
        )];
        let some = rustix::time::Timespec {
            tv_sec: 0,
            tv_nsec: 50_000_000,
        };
        let ready = rustix::event::poll(&mut wait, Some(&some)).unwrap();
        assert_eq!(ready, 0, "it is open while its thread lives");
        go_on.send(()).unwrap();
        thread.unwrap().join().unwrap();
        assert_eq!(reads.read(&mut [0]).unwrap(), 0, "then it is closed");
    }
}
