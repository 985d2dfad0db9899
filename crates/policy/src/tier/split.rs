//! How much of the fast device belongs to the tier, and how much to the block cache?
//!
//! ```text
//! hits a second per GiB at the margin of each --Split::sample--> the tier's bytes
//! ```
//!
//! Each side has two margins: what one GiB more would bring it, and what it would lose by one GiB less. Space goes
//! where it brings more than it costs the other side, a bounded step at a time.
//!
//! | margin | measured by |
//! |---|---|
//! | cache, one more | its ghost: misses on what left it lately |
//! | cache, one less | hits on the coldest part of what it holds |
//! | tier, one more | reads of the hottest extents that wait for room |
//! | tier, one less | hits on its coldest residents |
//!
//! Always true:
//! 1. Each side keeps its floor, and both together have the whole.
//! 2. The boundary moves by one step at most in a sample, and only when two samples in a row say the same.

use base::Bytes;

/// Hits a second that a GiB more or less would bring or cost.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Margin {
    /// One GiB more would bring so many.
    pub more: f64,
    /// One GiB less would cost so many.
    pub less: f64,
}

/// What the boundary goes by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SplitOptions {
    /// The bytes that both share.
    pub whole: Bytes,
    /// The tier keeps at least so much.
    pub tier_floor: Bytes,
    /// The cache keeps at least so much.
    pub cache_floor: Bytes,
    /// The boundary moves by so much.
    pub step: Bytes,
    /// Space changes hands only if it brings so many times what it costs.
    pub advantage: f64,
}

impl SplitOptions {
    /// A sixteenth for each side at least, steps of a sixty-fourth, an advantage of a quarter.
    pub fn of(whole: Bytes) -> SplitOptions {
        SplitOptions {
            whole,
            tier_floor: whole / 16,
            cache_floor: whole / 16,
            step: Bytes((whole.0 / 64).max(1)),
            advantage: 1.25,
        }
    }
}

/// Which side should get space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    Tier,
    Cache,
}

/// Moves the boundary.
///
/// # Example
/// ```
/// use base::Bytes;
/// use policy::tier::split::{Margin, Split, SplitOptions};
/// let mut split = Split::new(SplitOptions::of(Bytes::gib(64)), Bytes::gib(32));
/// let cache = Margin { more: 5.0, less: 10.0 };
/// let tier = Margin { more: 40.0, less: 30.0 };
/// assert_eq!(split.sample(cache, tier), Bytes::gib(32));
/// assert_eq!(split.sample(cache, tier), Bytes::gib(33));
/// ```
#[derive(Debug, Clone)]
pub struct Split {
    // Fixed.
    options: SplitOptions,
    // Per sample.
    tier: Bytes,
    /// Smoothed margins; none before the first sample.
    seen: Option<[Margin; 2]>,
    last: Option<Wish>,
}

impl Split {
    /// What a sample counts beside all before it.
    const WEIGHT: f64 = 0.5;
    /// Fewer hits a second per GiB are not worth moving data for.
    const LEAST: f64 = 0.01;

    /// Begins with `tier` for the tier, or as near as the floors allow.
    ///
    /// # Panics
    /// If the floors together exceed the whole, or the advantage is below 1.
    pub fn new(options: SplitOptions, tier: Bytes) -> Split {
        let SplitOptions {
            whole,
            tier_floor,
            cache_floor,
            advantage,
            ..
        } = options;
        assert!(
            tier_floor
                .0
                .checked_add(cache_floor.0)
                .is_some_and(|sum| sum <= whole.0),
            "floors of {tier_floor} and {cache_floor} in {whole}"
        );
        assert!(advantage >= 1.0, "advantage {advantage}");
        Split {
            options,
            tier: Bytes(tier.0.clamp(tier_floor.0, whole.0 - cache_floor.0)),
            seen: None,
            last: None,
        }
    }

    /// One sample of both sides' margins in, the tier's bytes out.
    pub fn sample(&mut self, cache: Margin, tier: Margin) -> Bytes {
        let new = [cache, tier];
        let seen = self.seen.get_or_insert(new);
        for (old, new) in seen.iter_mut().zip(new) {
            old.more += (new.more - old.more) * Self::WEIGHT;
            old.less += (new.less - old.less) * Self::WEIGHT;
        }
        let [cache, tier] = *seen;
        let gains = |more: f64, less: f64| {
            let pays = more > less * self.options.advantage && more >= Self::LEAST;
            pays.then_some(more - less)
        };
        let (to_tier, to_cache) = (gains(tier.more, cache.less), gains(cache.more, tier.less));
        let wish = match (to_tier, to_cache) {
            // Both sides have something cold at their end and something hot waiting: the larger gain.
            (Some(a), Some(b)) if a == b => None,
            (Some(a), Some(b)) => Some(if a > b { Wish::Tier } else { Wish::Cache }),
            (Some(_), None) => Some(Wish::Tier),
            (None, Some(_)) => Some(Wish::Cache),
            (None, None) => None,
        };
        if wish.is_some() && wish == self.last {
            let SplitOptions {
                whole,
                tier_floor,
                cache_floor,
                step,
                ..
            } = self.options;
            let tier = match wish {
                Some(Wish::Tier) => self.tier.0.saturating_add(step.0),
                _ => self.tier.0.saturating_sub(step.0),
            };
            self.tier = Bytes(tier.clamp(tier_floor.0, whole.0 - cache_floor.0));
        }
        self.last = wish;
        self.tier
    }

    /// The tier's bytes.
    pub fn tier(&self) -> Bytes {
        self.tier
    }

    /// The cache's bytes.
    pub fn cache(&self) -> Bytes {
        self.options.whole - self.tier
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn margin(more: f64, less: f64) -> Margin {
        Margin { more, less }
    }

    fn split() -> Split {
        Split::new(SplitOptions::of(Bytes::gib(64)), Bytes::gib(32))
    }

    #[test]
    fn space_goes_to_the_tier_until_the_cache_has_its_floor() {
        let mut split = split();
        for _ in 0..100 {
            split.sample(margin(0.0, 1.0), margin(100.0, 50.0));
        }
        assert_eq!(split.tier(), Bytes::gib(60));
        assert_eq!(split.cache(), Bytes::gib(4));
        for _ in 0..100 {
            split.sample(margin(100.0, 50.0), margin(0.0, 1.0));
        }
        assert_eq!(split.tier(), Bytes::gib(4));
    }

    #[test]
    fn a_small_advantage_moves_nothing() {
        let mut split = split();
        for _ in 0..100 {
            split.sample(margin(12.0, 10.0), margin(12.0, 10.0));
        }
        assert_eq!(split.tier(), Bytes::gib(32));
    }

    #[test]
    fn an_idle_volume_moves_nothing() {
        let mut split = split();
        for _ in 0..100 {
            split.sample(margin(0.0, 0.0), margin(0.005, 0.0));
        }
        assert_eq!(split.tier(), Bytes::gib(32));
    }

    #[test]
    fn samples_that_contradict_each_other_move_nothing() {
        let mut split = split();
        for round in 0..100 {
            let (hot, cold) = (margin(100.0, 0.0), margin(0.0, 0.0));
            match round % 2 {
                0 => split.sample(hot, cold),
                _ => split.sample(cold, hot),
            };
        }
        // The wishes go back and forth, so no two in a row are the same for long.
        assert!(
            (30..=34).contains(&(split.tier().0 >> 30)),
            "{}",
            split.tier()
        );
    }

    #[test]
    fn it_settles_where_both_margins_are_alike() {
        // Diminishing returns: the n-th GiB of the tier brings 640 / n hits a second, of the cache 160 / n.
        let mut split = split();
        for _ in 0..200 {
            let (cache, tier) = (split.cache().0 >> 30, split.tier().0 >> 30);
            let at = |first: f64, n: u64| first / n as f64;
            split.sample(
                margin(at(160.0, cache + 1), at(160.0, cache)),
                margin(at(640.0, tier + 1), at(640.0, tier)),
            );
        }
        // Alike at 51.2; within the advantage of a quarter that is 48 to 53.
        assert!(
            (47..=53).contains(&(split.tier().0 >> 30)),
            "{}",
            split.tier()
        );
    }

    proptest! {
        #[test]
        fn floors_hold_and_steps_are_bounded(
            samples in prop::collection::vec(prop::array::uniform4(0.0f64..100.0), 1..200),
            start in 0u64..80,
        ) {
            let mut split = Split::new(SplitOptions::of(Bytes::gib(64)), Bytes::gib(start));
            for [a, b, c, d] in samples {
                let before = split.tier();
                let after = split.sample(margin(a, b), margin(c, d));
                prop_assert!((Bytes::gib(4)..=Bytes::gib(60)).contains(&after));
                prop_assert!(after.0.abs_diff(before.0) <= Bytes::gib(1).0);
                prop_assert_eq!(split.tier() + split.cache(), Bytes::gib(64));
            }
        }
    }
}
