//! S3-FIFO: a small FIFO sieves what comes in, the main FIFO keeps what was used, a ghost remembers.
//!
//! ```text
//! new key ---------> small (10 %) --used--> main (90 %) --used--> main again
//! key in the ghost ---------------------------^   |
//!                      small --unused--> ghost    +--unused--> gone
//! ```
//!
//! Source: S3-FIFO (SOSP 2023), algorithm 1. Its authors advise one-bit counters for block traces: a
//! block is often used twice within a moment (read, then written), which says little.
//!
//! Always true:
//! 1. Every frame held is in one of small, main and the queue of refused frames; a refused frame
//!    still counts to its own queue.
//! 2. Only a key that leaves unused from the small queue becomes a ghost.

use super::lists::{Lists, Look, RETRIES};
use super::marks::Marks;
use super::{Ghost, Replacement};

const SMALL: usize = 0;
const MAIN: usize = 1;
const ASIDE: usize = 2;

/// The sizes S3-FIFO leaves open.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct S3FifoOptions {
    /// Bits of a frame's counter: 1, or 2 as in the paper's experiments.
    pub counter_bits: u32,
    /// The small queue's share of the capacity, above 0 and below 1.
    pub small_share: f64,
    /// Keys the ghost remembers, as a share of the capacity.
    pub ghost_share: f64,
}

impl Default for S3FifoOptions {
    fn default() -> Self {
        S3FifoOptions {
            counter_bits: 1,
            small_share: 0.1,
            ghost_share: super::kind::GHOST_SHARE,
        }
    }
}

/// S3-FIFO. Six bytes of links, two or three bits and 2.7 bytes of ghost a frame.
#[derive(Clone, Debug)]
pub struct S3Fifo {
    options: S3FifoOptions,
    /// The counter's top; a frame of the small queue needs `promote` uses to reach the main one.
    top: u8,
    promote: u8,
    small_target: u32,

    lists: Lists<3>,
    uses: Uses,
    /// 1: the frame belongs to the main queue (it may be set aside).
    in_main: Marks<1>,
    ghost: Ghost,
    small: u32,
    main: u32,
}

/// The counters, at the width asked for.
#[derive(Clone, Debug)]
enum Uses {
    One(Marks<1>),
    Two(Marks<2>),
}

impl Uses {
    #[inline(always)]
    fn get(&self, frame: u32) -> u8 {
        match self {
            Uses::One(marks) => marks.get(frame),
            Uses::Two(marks) => marks.get(frame),
        }
    }
    #[inline(always)]
    fn set(&mut self, frame: u32, uses: u8) {
        match self {
            Uses::One(marks) => marks.set(frame, uses),
            Uses::Two(marks) => marks.set(frame, uses),
        }
    }
    fn resize(&mut self, frames: u32) {
        match self {
            Uses::One(marks) => marks.resize(frames),
            Uses::Two(marks) => marks.resize(frames),
        }
    }
    fn memory(&self) -> usize {
        match self {
            Uses::One(marks) => marks.memory(),
            Uses::Two(marks) => marks.memory(),
        }
    }
}

impl S3Fifo {
    /// For frames `0..capacity`: one-bit counters, small queue 10 %, ghost 90 %.
    pub fn new(capacity: u32) -> S3Fifo {
        S3Fifo::with(capacity, S3FifoOptions::default())
    }

    /// For frames `0..capacity` with the given sizes.
    ///
    /// # Panics
    /// If an option is out of its range.
    pub fn with(capacity: u32, options: S3FifoOptions) -> S3Fifo {
        let S3FifoOptions {
            counter_bits,
            small_share,
            ghost_share,
        } = options;
        assert!(
            small_share > 0.0 && small_share < 1.0,
            "small share {small_share} not in 0..1"
        );
        assert!(ghost_share >= 0.0, "ghost share {ghost_share} is negative");
        let uses = match counter_bits {
            1 => Uses::One(Marks::new(capacity)),
            2 => Uses::Two(Marks::new(capacity)),
            _ => panic!("counters have 1 or 2 bits, not {counter_bits}"),
        };
        let top = (1 << counter_bits) - 1;
        S3Fifo {
            options,
            top,
            // Source: S3-FIFO algorithm 1, "if t.freq > 1" with two bits.
            promote: top.min(2),
            small_target: Self::small_target(capacity, small_share),
            lists: Lists::new(capacity),
            uses,
            in_main: Marks::new(capacity),
            ghost: Ghost::share(capacity, ghost_share),
            small: 0,
            main: 0,
        }
    }

    fn small_target(capacity: u32, share: f64) -> u32 {
        ((f64::from(capacity) * share) as u32).max(1)
    }

    /// What becomes of a frame the hunt meets, in whatever list.
    #[inline(always)]
    fn look(
        uses: &mut Uses,
        in_main: &mut Marks<1>,
        (small, main, promote): (&mut u32, &mut u32, u8),
        may: &mut dyn FnMut(u32) -> bool,
        frame: u32,
    ) -> Look {
        let used = uses.get(frame);
        if in_main.get(frame) == 1 {
            if used > 0 {
                uses.set(frame, used - 1);
                return Look::Keep(MAIN);
            }
        } else if used >= promote {
            uses.set(frame, 0);
            in_main.set(frame, 1);
            *small -= 1;
            *main += 1;
            return Look::Keep(MAIN);
        }
        if may(frame) { Look::Take } else { Look::Aside }
    }

    fn forget(&mut self, frame: u32) {
        if self.in_main.get(frame) == 1 {
            self.main -= 1;
        } else {
            self.small -= 1;
        }
    }
}

impl Replacement for S3Fifo {
    #[inline]
    fn missed(&mut self, _key: u64) {}

    #[inline]
    fn hit(&mut self, frame: u32, _key: u64) {
        assert!(!self.lists.is_free(frame), "frame {frame} is not held");
        let used = self.uses.get(frame);
        if used < self.top {
            self.uses.set(frame, used + 1);
        }
    }

    #[inline]
    fn insert(&mut self, frame: u32, key: u64) {
        let main = self.ghost.take(key);
        self.lists.push(if main { MAIN } else { SMALL }, frame);
        self.uses.set(frame, 0);
        self.in_main.set(frame, u8::from(main));
        if main {
            self.main += 1;
        } else {
            self.small += 1;
        }
    }

    #[inline]
    fn evict(
        &mut self,
        _incoming: Option<u64>,
        key_of: &dyn Fn(u32) -> u64,
        may: &mut dyn FnMut(u32) -> bool,
    ) -> Option<u32> {
        let main_target = self.lists.frames().saturating_sub(self.small_target);
        let order = if self.main > main_target {
            [MAIN, SMALL]
        } else {
            [SMALL, MAIN]
        };
        let (uses, in_main) = (&mut self.uses, &mut self.in_main);
        let (small, main, promote) = (&mut self.small, &mut self.main, self.promote);
        let look = &mut |frame| Self::look(uses, in_main, (small, main, promote), may, frame);
        let (lists, refused) = (&mut self.lists, &mut None);
        let victim = lists
            .retry(ASIDE, RETRIES, refused, look)
            .or_else(|| lists.sweep(order[0], ASIDE, refused, look))
            .or_else(|| lists.sweep(order[1], ASIDE, refused, look))
            .or_else(|| lists.retry(ASIDE, u32::MAX, refused, look))
            // Frames that earned a place in the main queue meanwhile have not been offered yet.
            .or_else(|| lists.sweep(MAIN, ASIDE, refused, look))?;
        if self.in_main.get(victim) == 0 {
            self.ghost.push(key_of(victim));
        }
        self.forget(victim);
        Some(victim)
    }

    fn remove(&mut self, frame: u32) {
        self.lists.take(frame);
        self.forget(frame);
    }

    fn is_unused(&self, frame: u32) -> bool {
        self.uses.get(frame) == 0
    }

    fn leave(&mut self, frame: u32, key: u64) {
        if self.in_main.get(frame) == 0 {
            self.ghost.push(key);
        }
        self.remove(frame);
    }

    #[inline]
    fn moved(&mut self, from: u32, to: u32) {
        self.lists.replace(from, to);
        self.uses.set(to, self.uses.get(from));
        self.in_main.set(to, self.in_main.get(from));
    }

    #[inline]
    fn remembers(&self, key: u64) -> bool {
        self.ghost.contains(key)
    }

    fn len(&self) -> usize {
        self.small as usize + self.main as usize
    }

    fn coldest_first(&self, visit: &mut dyn FnMut(u32)) {
        // Small before main: filled in this order, a fresh policy offers those of the small queue first.
        for list in [ASIDE, SMALL, MAIN] {
            self.lists.visit(list, visit);
        }
    }

    fn capacity(&self) -> u32 {
        self.lists.frames()
    }

    fn resize(&mut self, capacity: u32) {
        self.lists.resize(capacity);
        self.uses.resize(capacity);
        self.in_main.resize(capacity);
        self.small_target = Self::small_target(capacity, self.options.small_share);
        // Which ghosts were the newest of all is not known: all are forgotten, and are learned anew.
        self.ghost = Ghost::share(capacity, self.options.ghost_share);
    }

    fn memory(&self) -> usize {
        self.lists.memory() + self.uses.memory() + self.in_main.memory() + self.ghost.memory()
    }
}
