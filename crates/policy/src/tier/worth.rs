//! Is it worth promoting this extent?
//!
//! ```text
//! cost:  position + missing bytes / rate                                      time of the slow device
//! value: reads a second x expected rest of its life x (slow read - fast read) time of the slow device
//! ```
//!
//! A promotion begins if its value exceeds the cost by a margin, the best ratio first (of extents of one size that
//! is the hottest first); one that runs is cancelled as soon as what it would still save is less than what it would
//! still cost.
//!
//! Source: AST 6 (future work: overhead of moves); on disks like the paper's 16 MiB cost as much as 25 random reads.

use base::{Bytes, Nanos};

/// What things cost, as measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Costs {
    /// What it takes the slow device to get to an extent.
    pub position: Nanos,
    /// What it then reads in a second, in bytes.
    pub slow_rate: Bytes,
    /// What a foreground read costs on the slow device.
    pub slow_read: Nanos,
    /// What it costs on the fast one.
    pub fast_read: Nanos,
}

impl Default for Costs {
    /// A disk of 10,000 turns a minute and a flash disk, until something is measured.
    fn default() -> Self {
        Costs {
            position: Nanos::micros(6_800),
            slow_rate: Bytes(113_000_000),
            slow_read: Nanos::micros(6_900),
            fast_read: Nanos::micros(150),
        }
    }
}

impl Costs {
    /// What copying so much costs.
    pub fn copy(&self, missing: Bytes) -> Nanos {
        match missing {
            Bytes(0) => Nanos(0),
            _ => Nanos::from_secs_f64(self.copy_seconds(missing)),
        }
    }

    fn copy_seconds(&self, missing: Bytes) -> f64 {
        self.position.secs_f64() + missing.0 as f64 / self.slow_rate.0.max(1) as f64
    }

    /// What one read saves.
    pub fn saved(&self) -> Nanos {
        self.slow_read.saturating_sub(self.fast_read)
    }
}

/// An extent that could come up, or is coming.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Waiting {
    /// Which.
    pub extent: u32,
    /// What would have to be copied.
    pub missing: Bytes,
    /// Reads a second that go to the slow device because of what is missing.
    pub reads: f64,
    /// For how much longer it is expected to be hot.
    pub rest: Nanos,
}

/// An extent to promote.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ranked {
    /// Which.
    pub extent: u32,
    /// Slow-device time it is expected to save, for each second it costs.
    pub ratio: f64,
}

/// Weighs promotions.
///
/// # Example
/// ```
/// use base::{Bytes, Nanos};
/// use policy::tier::worth::{Costs, Waiting, Worth};
/// let worth = Worth::default();
/// let extent = |reads| Waiting { extent: 1, missing: Bytes::mib(16), reads, rest: Nanos::secs(60) };
/// // 16 MiB cost 155 ms of disk; 20 reads in a minute save 135 ms, 40 save 270.
/// assert!(worth.ratio(&Costs::default(), &extent(20.0 / 60.0)) < 1.0);
/// assert!(worth.begins(&Costs::default(), &extent(40.0 / 60.0)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Worth {
    /// A promotion begins if it saves more than so many times what it costs.
    pub margin: f64,
}

impl Default for Worth {
    /// Choice: exactly what it costs; how long it stays hot is guessed cautiously enough.
    fn default() -> Self {
        Worth { margin: 1.0 }
    }
}

impl Worth {
    /// What it saves over what it costs; infinite if nothing is missing.
    pub fn ratio(&self, costs: &Costs, waiting: &Waiting) -> f64 {
        if waiting.missing == Bytes(0) {
            return f64::INFINITY;
        }
        let saves = waiting.reads * waiting.rest.secs_f64() * costs.saved().secs_f64();
        saves / costs.copy_seconds(waiting.missing)
    }

    /// May its promotion begin?
    pub fn begins(&self, costs: &Costs, waiting: &Waiting) -> bool {
        self.ratio(costs, waiting) > self.margin
    }

    /// Has a promotion that runs cooled, so that what is left of it should not be done?
    pub fn has_cooled(&self, costs: &Costs, waiting: &Waiting) -> bool {
        self.ratio(costs, waiting) < 1.0
    }

    /// Those whose promotion may begin, the best ratio first; equals: the lower extent first.
    pub fn rank(&self, costs: &Costs, waiting: &[Waiting]) -> Vec<Ranked> {
        let mut ranked: Vec<Ranked> = waiting
            .iter()
            .filter(|one| self.begins(costs, one))
            .map(|one| Ranked {
                extent: one.extent,
                ratio: self.ratio(costs, one),
            })
            .collect();
        ranked.sort_unstable_by(|a, b| b.ratio.total_cmp(&a.ratio).then(a.extent.cmp(&b.extent)));
        ranked
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const COSTS: Costs = Costs {
        position: Nanos::millis(10),
        slow_rate: Bytes(100_000_000),
        slow_read: Nanos::millis(10),
        fast_read: Nanos::millis(0),
    };

    fn waiting(extent: u32, megabytes: u64, reads: f64, rest: u64) -> Waiting {
        Waiting {
            extent,
            missing: Bytes(megabytes * 1_000_000),
            reads,
            rest: Nanos::secs(rest),
        }
    }

    #[test]
    fn the_published_price_of_a_move_in_random_reads() {
        // Mean seek 3.8 ms, half a turn 3 ms, 113 MB/s: a GiB costs 9.5 s, 1355 to 1400 reads; 16 MiB 22 to 25.
        let costs = Costs::default();
        let reads = |size| costs.copy(size).secs_f64() / costs.slow_read.secs_f64();
        assert!((9.4..9.6).contains(&costs.copy(Bytes::gib(1)).secs_f64()));
        assert!((1_300.0..1_450.0).contains(&reads(Bytes::gib(1))));
        assert!((21.0..26.0).contains(&reads(Bytes::mib(16))));
    }

    #[test]
    fn the_break_even_is_where_reads_saved_pay_for_the_copy() {
        // 9 MB: 10 + 90 = 100 ms, ten reads.
        let worth = Worth { margin: 1.0 };
        let ratio = |reads| worth.ratio(&COSTS, &waiting(1, 9, reads, 10));
        assert!((ratio(1.0) - 1.0).abs() < 1e-12);
        assert!(worth.begins(&COSTS, &waiting(1, 9, 1.001, 10)));
        assert!(!worth.begins(&COSTS, &waiting(1, 9, 0.999, 10)));
        assert!(worth.has_cooled(&COSTS, &waiting(1, 9, 0.999, 10)));
        // Half copied, half the price.
        assert!(!worth.has_cooled(&COSTS, &waiting(1, 4, 0.999, 10)));
    }

    #[test]
    fn the_hottest_come_first_and_what_does_not_pay_stays() {
        let list = [
            waiting(5, 9, 2.0, 10),
            waiting(3, 9, 9.0, 10),
            waiting(4, 9, 0.1, 10),
            waiting(1, 9, 2.0, 10),
            waiting(2, 0, 0.0, 0),
        ];
        let order: Vec<u32> = Worth::default()
            .rank(&COSTS, &list)
            .iter()
            .map(|ranked| ranked.extent)
            .collect();
        assert_eq!(order, [2, 3, 1, 5]);
    }

    #[test]
    fn a_slow_device_that_is_the_faster_one_is_never_relieved() {
        let costs = Costs {
            slow_read: Nanos::micros(10),
            fast_read: Nanos::micros(100),
            ..COSTS
        };
        assert_eq!(costs.saved(), Nanos(0));
        assert!(!Worth::default().begins(&costs, &waiting(1, 1, 1e9, 1_000)));
    }

    proptest! {
        #[test]
        fn ranking_is_that_of_a_plain_search(
            list in prop::collection::vec((0u64..20, 0u32..8, 0u64..60), 0..40),
        ) {
            let list: Vec<Waiting> = (0..)
                .zip(list)
                .map(|(extent, (size, reads, rest))| waiting(extent, size, f64::from(reads), rest))
                .collect();
            let worth = Worth::default();
            let ranked = worth.rank(&COSTS, &list);
            // Pick the best of the rest, again and again.
            let mut rest = list.clone();
            let mut plain = Vec::new();
            loop {
                let mut best: Option<usize> = None;
                for at in 0..rest.len() {
                    let better = best.is_none_or(|best| {
                        worth.ratio(&COSTS, &rest[at]) > worth.ratio(&COSTS, &rest[best])
                    });
                    if worth.begins(&COSTS, &rest[at]) && better {
                        best = Some(at);
                    }
                }
                match best {
                    Some(at) => plain.push(rest.remove(at).extent),
                    None => break,
                }
            }
            prop_assert_eq!(ranked.iter().map(|one| one.extent).collect::<Vec<u32>>(), plain);
            for one in &list {
                // What may begin has not cooled.
                prop_assert!(!(worth.begins(&COSTS, one) && worth.has_cooled(&COSTS, one)));
            }
        }
    }
}
