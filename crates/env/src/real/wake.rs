//! How another thread ends the executor's wait, with a write only where it does wait.
//!
//! ```text
//! running --park--> parked --notify: write the eventfd--> notified --turn--> running
//!    \________________________notify: no write________________/
//! ```

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::event::{EventfdFlags, eventfd};

const RUNNING: u8 = 0;
const PARKED: u8 = 1;
const NOTIFIED: u8 = 2;

/// See the module's head.
pub(crate) struct Wake {
    state: AtomicU8,
    event: OwnedFd,
}

impl Wake {
    pub(crate) fn new() -> std::io::Result<Wake> {
        Ok(Wake {
            state: AtomicU8::new(RUNNING),
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// The executor's next wait, or the one it is in, ends at once.
    pub(crate) fn notify(&self) {
        if self.state.swap(NOTIFIED, Ordering::AcqRel) == PARKED {
            // Fails only when 2^64 - 2 are written unread; then the wait has ended anyway.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }

    /// Has another thread called since the last turn?
    pub(crate) fn was_notified(&self) -> bool {
        self.state.load(Ordering::Acquire) == NOTIFIED
    }

    /// The executor is about to wait; false if it was notified.
    pub(crate) fn park(&self) -> bool {
        self.state
            .compare_exchange(RUNNING, PARKED, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// The executor looks at its notifications from here on.
    pub(crate) fn turn(&self) {
        self.state.swap(RUNNING, Ordering::AcqRel);
    }

    /// Readable after a write; read it to arm it again.
    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Takes the eventfd's count.
    pub(crate) fn clear(&self) {
        let mut count = [0; 8];
        // Would block where nothing is written: the very state wanted.
        let _ = rustix::io::read(&self.event, &mut count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(wake: &Wake) -> bool {
        let mut count = [0; 8];
        rustix::io::read(wake.event(), &mut count).is_ok()
    }

    #[test]
    fn only_a_parked_executor_costs_a_write() {
        let wake = Wake::new().unwrap();
        wake.notify();
        assert!(!written(&wake));
        assert!(!wake.park(), "there is news");
        wake.turn();
        assert!(wake.park());
        wake.notify();
        wake.notify();
        assert!(written(&wake));
        assert!(!written(&wake), "one write for both");
    }
}
