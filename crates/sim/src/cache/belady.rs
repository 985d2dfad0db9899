//! How few misses would a cache have that knew the future? The bound no policy can beat.
//!
//! ```text
//! backwards over the trace:  next[i] = the access after i that asks for the same block
//! forwards:                  resident = the set of next uses; a hit is "this access is in the set";
//!                            the victim is the block never used again, else the greatest of the set
//! ```
//!
//! A resident block is named by its next use, so the whole cache is one set of access numbers. It is kept
//! as a bitmap with summaries, 64 to one, so that the greatest member is found in six steps at most.
//!
//! Source: Belady, "A study of replacement algorithms for a virtual-storage computer" (1966), MIN.
//!
//! Choice: every miss comes in, as with the policies it is the bound of; a cache that may refuse
//! blocks ([`Bound::Refusing`]) bounds those with an admission rule.

use super::Compact;
use super::cell::ratio;

/// What the all-knowing cache may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Bound {
    /// Every miss comes in: MIN as published.
    #[default]
    Demand,
    /// A block used again later than all residents stays out.
    Refusing,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Least {
    /// Objects asked for.
    pub accesses: u64,
    /// Those not resident.
    pub misses: u64,
    /// Bytes asked for.
    pub bytes: u64,
    /// Those in objects not resident.
    pub missed_bytes: u64,
    /// Requests.
    pub requests: u64,
    /// Those that found an object missing.
    pub missed_requests: u64,
    /// Objects brought in.
    pub promotions: u64,
}

impl Least {
    /// Misses per access.
    pub fn miss_ratio(&self) -> f64 {
        ratio(self.misses, self.accesses)
    }
}

/// The future of a trace, worked out once for all sizes: four bytes per access.
#[derive(Clone, Debug)]
pub struct Future {
    next: Vec<u32>,
}

const NEVER: u32 = u32::MAX;

impl Future {
    /// Reads `trace` from its end.
    pub fn of(trace: &Compact) -> Future {
        let raw = trace.raw();
        let mut seen = vec![NEVER; trace.footprint() as usize];
        let mut next = vec![NEVER; raw.len()];
        for at in (0..raw.len()).rev() {
            let block = (raw[at] >> 1) as usize;
            next[at] = std::mem::replace(&mut seen[block], at as u32);
        }
        Future { next }
    }

    /// Runs MIN with room for `objects` over `trace`, whose future this is. Writes count as reads.
    ///
    /// # Panics
    /// If `objects` is 0 or this is the future of a trace of another length.
    pub fn misses(&self, trace: &Compact, objects: u64, bound: Bound) -> Least {
        assert!(objects > 0, "a cache has room for at least one object");
        assert_eq!(
            self.next.len() as u64,
            trace.accesses(),
            "the future of another trace"
        );
        let mut uses = Uses::new(self.next.len());
        // Residents that are never used again, beside those in `uses`.
        let mut spent = 0u64;
        let mut held = 0u64;
        let mut least = Least {
            accesses: trace.accesses(),
            bytes: trace.bytes(),
            requests: trace.requests(),
            ..Least::default()
        };
        let mut missed = false;
        let mut at = 0;
        trace.each(|access| {
            let next = self.next[at];
            if uses.take(at as u32) {
                // A hit: the same block goes on under its next use.
                match next {
                    NEVER => spent += 1,
                    next => uses.put(next),
                }
            } else {
                missed = true;
                least.misses += 1;
                least.missed_bytes += u64::from(access.bytes);
                let full = held == objects;
                let stays_out = bound == Bound::Refusing
                    && full
                    && (next == NEVER || (spent == 0 && uses.greatest().is_none_or(|g| g < next)));
                if !stays_out {
                    match (full, spent) {
                        (false, _) => held += 1,
                        (true, 0) => uses.remove_greatest(),
                        (true, _) => spent -= 1,
                    }
                    match next {
                        NEVER => spent += 1,
                        next => uses.put(next),
                    }
                    least.promotions += 1;
                }
            }
            if access.last {
                least.missed_requests += u64::from(missed);
                missed = false;
            }
            at += 1;
        });
        least
    }
}

/// A set of numbers below a limit: a bitmap, and above it bitmaps of which words are not empty.
struct Uses {
    levels: Vec<Vec<u64>>,
}

impl Uses {
    fn new(limit: usize) -> Uses {
        let mut levels = Vec::new();
        let mut len = limit.max(1);
        loop {
            len = len.div_ceil(64);
            levels.push(vec![0; len]);
            if len == 1 {
                return Uses { levels };
            }
        }
    }

    #[inline]
    fn put(&mut self, number: u32) {
        let mut at = number as usize;
        for level in &mut self.levels {
            let word = &mut level[at / 64];
            let was_empty = *word == 0;
            *word |= 1 << (at % 64);
            if !was_empty {
                return;
            }
            at /= 64;
        }
    }

    /// Takes `number` out: was it in?
    #[inline]
    fn take(&mut self, number: u32) -> bool {
        let mut at = number as usize;
        if self.levels[0][at / 64] & (1 << (at % 64)) == 0 {
            return false;
        }
        for level in &mut self.levels {
            let word = &mut level[at / 64];
            *word &= !(1 << (at % 64));
            if *word != 0 {
                break;
            }
            at /= 64;
        }
        true
    }

    #[inline]
    fn greatest(&self) -> Option<u32> {
        let mut at = 0;
        for level in self.levels.iter().rev() {
            let word = level[at];
            // Only the top word can be empty: the others were pointed at.
            let bit = word.checked_ilog2()?;
            at = at * 64 + bit as usize;
        }
        Some(at as u32)
    }

    #[inline]
    fn remove_greatest(&mut self) {
        let greatest = self
            .greatest()
            .expect("a full cache with no spent block has used ones");
        self.take(greatest);
    }
}

#[cfg(test)]
mod tests {
    use super::super::compact::Builder;
    use super::super::{LoadError, Ops, Unit};
    use super::*;
    use base::{Bytes, Nanos};
    use trace::{Op, Request};

    fn trace(keys: impl IntoIterator<Item = u64>) -> Result<Compact, LoadError> {
        let mut builder = Builder::new(Unit::Request, Ops::All);
        for key in keys {
            builder.push(&Request {
                at: Nanos(0),
                offset: Bytes(key * 512),
                size: Bytes(512),
                device: 0,
                op: Op::Read,
            })?;
        }
        builder.finish()
    }

    /// The least misses there can be, by trying every choice of victim.
    fn brute(keys: &[u64], held: &mut Vec<u64>, room: usize, refusing: bool) -> u64 {
        let Some((&key, rest)) = keys.split_first() else {
            return 0;
        };
        if held.contains(&key) {
            return brute(rest, held, room, refusing);
        }
        let mut least = u64::MAX;
        if held.len() < room {
            held.push(key);
            least = brute(rest, held, room, refusing);
            held.pop();
        } else {
            for at in 0..held.len() {
                let old = std::mem::replace(&mut held[at], key);
                least = least.min(brute(rest, held, room, refusing));
                held[at] = old;
            }
            if refusing {
                least = least.min(brute(rest, held, room, refusing));
            }
        }
        least + 1
    }

    #[test]
    fn no_choice_of_victims_misses_less() -> Result<(), LoadError> {
        let mut state = 7u64;
        for _ in 0..60 {
            let keys: Vec<u64> = (0..11)
                .map(|_| {
                    state = state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    (state >> 33) % 5
                })
                .collect();
            let trace = trace(keys.iter().copied())?;
            let future = Future::of(&trace);
            for room in 1..=3 {
                for (bound, refusing) in [(Bound::Demand, false), (Bound::Refusing, true)] {
                    let least = brute(&keys, &mut Vec::new(), room, refusing);
                    let ours = future.misses(&trace, room as u64, bound);
                    assert_eq!(ours.misses, least, "{keys:?}, room {room}, {bound:?}");
                }
            }
        }
        Ok(())
    }

    #[test]
    fn a_set_finds_its_greatest_across_levels() {
        let mut uses = Uses::new(300_000);
        assert_eq!(uses.greatest(), None);
        for number in [5, 64, 299_999, 4096, 0] {
            uses.put(number);
        }
        for expected in [299_999, 4096, 64, 5, 0] {
            assert_eq!(uses.greatest(), Some(expected));
            assert!(uses.take(expected) && !uses.take(expected));
        }
        assert_eq!(uses.greatest(), None);
    }
}
