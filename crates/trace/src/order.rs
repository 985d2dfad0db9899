//! Puts requests in order of time if they are a little out of it, and refuses more disorder.
//!
//! ```text
//! requests as the file has them -> held back while an earlier one may still come -> requests in order of time
//! ```
//!
//! Recorders write a request down when it is done, and each CPU for itself, so that neighbours in a file
//! may be out of order by as much as a request takes. A request is handed on once the file has gone on by
//! a whole window of time, or once too many are held. A file in order pays for one comparison a request.
//!
//! Always true:
//! 1. What is handed on is in order of time; among equals in the order of the file.
//! 2. At most [`HELD_MAX`] requests are held back.

use base::Nanos;

use super::{Reason, Request};

/// How many requests are held back at most: 2 MiB of them, which is 1 s of a device at 65,536 IOPS.
pub(super) const HELD_MAX: usize = 1 << 16;

/// How much disorder is put right unless asked otherwise.
///
/// Choice: 5 s. Disorder comes from requests recorded when they were done, and hardly a device in use
/// takes longer; a jump back by more is a clock that was set, or another trace appended.
pub const REORDER: Nanos = Nanos::secs(5);

/// Disorder that was put right.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Disorder {
    /// How many requests came after a later one.
    pub count: u64,
    /// By how much at most.
    pub most: Nanos,
}

/// The requests of one file on their way into order. Their times are as the file counts.
pub(super) struct Order {
    window: Nanos,
    held: Vec<Request>,
    /// Where in `held` what has not been handed on begins.
    start: usize,
    /// The greatest time so far.
    latest: Nanos,
    /// The greatest time handed on.
    done: Nanos,
    /// The earliest time that came late since `held` was last in order.
    late: Option<Nanos>,
    disorder: Disorder,
}

impl Order {
    pub(super) fn new(window: Nanos) -> Order {
        Order {
            window,
            held: Vec::new(),
            start: 0,
            latest: Nanos(0),
            done: Nanos(0),
            late: None,
            disorder: Disorder::default(),
        }
    }

    pub(super) fn disorder(&self) -> Disorder {
        self.disorder
    }

    /// How many requests are held.
    pub(super) fn held(&self) -> usize {
        self.held.len() - self.start
    }

    #[inline]
    pub(super) fn push(&mut self, request: Request) -> Result<(), Reason> {
        if request.at >= self.latest {
            self.latest = request.at;
        } else {
            self.note_late(request.at)?;
        }
        self.held.push(request);
        Ok(())
    }

    #[cold]
    fn note_late(&mut self, at: Nanos) -> Result<(), Reason> {
        let by = self.latest - at;
        if by > self.window || at < self.done {
            return Err(Reason::Backwards {
                at: at.0,
                latest: self.latest.0,
                window: self.window,
            });
        }
        self.disorder.count += 1;
        self.disorder.most = self.disorder.most.max(by);
        self.late = Some(self.late.map_or(at, |earlier| earlier.min(at)));
        Ok(())
    }

    /// Appends to `batch` up to `most` requests that nothing can come before any more; all of them once
    /// the file has ended (`last`).
    pub(super) fn take(&mut self, last: bool, most: usize, batch: &mut Vec<Request>) {
        self.settle();
        let held = &self.held[self.start..];
        let ready = if last || self.window == Nanos(0) {
            held.len()
        } else {
            // Nothing earlier than this will be let in; as many as are over the limit go in any case.
            let safe = self.latest.saturating_sub(self.window);
            let over = held.len().saturating_sub(HELD_MAX);
            over.max(held.partition_point(|request| request.at <= safe))
        };
        let handed = &held[..ready.min(most)];
        if let Some(request) = handed.last() {
            self.done = request.at;
        }
        batch.extend_from_slice(handed);
        self.start += handed.len();
        // What is left is moved to the front when it is the smaller part, so each is moved once or less.
        if self.start * 2 >= self.held.len() {
            self.held.drain(..self.start);
            self.start = 0;
        }
    }

    /// Puts what is held into order: only from where the earliest latecomer belongs.
    fn settle(&mut self) {
        let Some(late) = self.late.take() else {
            return;
        };
        // Up to the first latecomer `held` is in order, and that part holds everything not later than it
        // that stood before it; a run that is broken elsewhere lies behind the first greater time.
        let held = &mut self.held[self.start..];
        let from = held
            .iter()
            .position(|request| request.at > late)
            .unwrap_or(held.len());
        held[from..].sort_by_key(|request| request.at);
    }
}

#[cfg(test)]
mod tests {
    use base::Bytes;

    use super::super::Op;
    use super::*;

    fn request(at: u64, offset: u64) -> Request {
        Request {
            at: Nanos(at),
            offset: Bytes(offset),
            size: Bytes(512),
            device: 0,
            op: Op::Read,
        }
    }

    fn times(batch: &[Request]) -> Vec<u64> {
        batch.iter().map(|request| request.at.0).collect()
    }

    #[test]
    fn a_latecomer_within_the_window_finds_its_place() {
        let mut order = Order::new(Nanos(10));
        for (at, offset) in [(5, 1), (20, 2), (12, 3), (20, 4), (11, 5), (12, 6)] {
            order.push(request(at, offset)).expect("within the window");
        }
        let mut batch = Vec::new();
        order.take(false, 100, &mut batch);
        assert_eq!(times(&batch), [5], "20 - 10 is not past yet");
        order.take(true, 100, &mut batch);
        assert_eq!(times(&batch), [5, 11, 12, 12, 20, 20]);
        let offsets: Vec<u64> = batch.iter().map(|request| request.offset.0).collect();
        assert_eq!(offsets, [1, 5, 3, 6, 2, 4], "equals keep the file's order");
        assert_eq!(
            order.disorder(),
            Disorder {
                count: 3,
                most: Nanos(9)
            }
        );
    }

    #[test]
    fn a_latecomer_beyond_the_window_runs_backwards() {
        let mut order = Order::new(Nanos(10));
        order.push(request(100, 1)).expect("the first");
        assert_eq!(
            order.push(request(89, 2)),
            Err(Reason::Backwards {
                at: 89,
                latest: 100,
                window: Nanos(10)
            })
        );
        assert_eq!(order.disorder().count, 0, "it was not put right");
    }

    #[test]
    fn without_a_window_nothing_is_held_back() {
        let mut order = Order::new(Nanos(0));
        order.push(request(7, 1)).expect("the first");
        order.push(request(7, 2)).expect("at the same time");
        let mut batch = Vec::new();
        order.take(false, 1, &mut batch);
        assert_eq!((batch.len(), order.held()), (1, 1), "as many as fit");
        assert!(order.push(request(6, 3)).is_err());
    }

    #[test]
    fn never_more_than_the_most_are_held() {
        let mut order = Order::new(Nanos::secs(1));
        for at in 0..(HELD_MAX as u64 + 10) {
            order.push(request(at, 0)).expect("in order");
        }
        let mut batch = Vec::new();
        order.take(false, usize::MAX, &mut batch);
        assert_eq!((batch.len(), order.held()), (10, HELD_MAX));
        assert!(
            order.push(request(8, 0)).is_err(),
            "what has been handed on cannot be preceded"
        );
        order
            .push(request(9, 0))
            .expect("at the same time as the last handed on");
    }
}
