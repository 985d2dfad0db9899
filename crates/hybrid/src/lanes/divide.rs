//! How much of what is counted for the whole may each lane use in the next interval?
//!
//! ```text
//! what each lane used and wants -> Divider -> limits of each lane
//!   flash budget: the whole's own, charged with what the lanes report; what is left is dealt out as bytes
//!   dirty limits: of the whole's cache, dealt out as bytes, told as marks of each lane's cache
//!   tier:         iops_min in proportion to requests, so that all lanes judge as the whole would; sub_luns_max likewise
//! ```
//!
//! A lane gets what it wants up to an equal part, and what others leave beyond that. None ever has less than a quarter of an
//! equal part: a lane that wakes need not wait for the next division.
//!
//! Pure: values in, values out; the lanes may be on any threads.
//!
//! Always true:
//! 1. The shares sum to at most the whole, but for one region of a tier, which every lane may consider.
//! 2. A lane that wants its equal part or more has it after one division, whatever was before.

use base::{Bytes, Instant, Nanos};
use policy::cache::admission::FlashBudget;
use policy::cache::cleaner::CleanerOptions;

use crate::limits::{DirtyMarks, LaneLimits, LaneUse, SlowPart};
use crate::settings::Settings;

/// A lane that wants nothing keeps one in so many of an equal part.
const KEPT: u64 = 4;
/// What a lane asked for of the flash budget is forgotten about so fast.
const FLASH_WANTS: Nanos = Nanos::secs(8);
/// No more of a lane's cache is ever dirty, in percent: what [`Settings::check`] allows at most.
const DIRTY_MAX: f64 = 95.0;

/// What is counted for the whole.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Whole {
    pub flash_writes_per_day: Option<Bytes>,
    /// In percent of the whole cache.
    pub dirty: DirtyMarks,
    pub iops_min: f64,
    pub sub_luns_max: u32,
    /// Of the tier's statistics.
    pub period: Nanos,
}

impl Whole {
    pub fn of(settings: &Settings) -> Whole {
        let parameters = &settings.tier.parameters;
        Whole {
            flash_writes_per_day: settings.flash_writes_per_day,
            dirty: DirtyMarks {
                low: f64::from(settings.dirty_low),
                high: f64::from(settings.dirty_high),
            },
            iops_min: parameters.iops_min,
            sub_luns_max: parameters.sub_luns_max,
            period: parameters.period,
        }
    }
}

/// Divides again and again.
pub(super) struct Divider {
    whole: Whole,
    budget: FlashBudget,
    /// What each lane asks for of it in an interval: the most of late, as who asks now and then must find enough at once.
    flash_wants: Vec<u64>,
    /// Requests of each lane in the last period of the tier and in this one, and when this one began.
    requests: [Vec<u64>; 2],
    begun: Instant,
    /// When the last division was.
    last: Instant,
}

impl Divider {
    /// For so many lanes, none of which has anything yet.
    pub fn new(whole: Whole, lanes: usize, now: Instant) -> Divider {
        Divider {
            budget: FlashBudget::new(whole.flash_writes_per_day, now),
            flash_wants: vec![0; lanes],
            whole,
            requests: [vec![0; lanes], vec![0; lanes]],
            begun: now,
            last: now,
        }
    }

    /// What each lane may use from now on, of `whole`; `uses` are those of all lanes since the last division.
    pub fn divide(&mut self, whole: Whole, now: Instant, uses: &[LaneUse]) -> Vec<LaneLimits> {
        if whole.flash_writes_per_day != self.whole.flash_writes_per_day {
            self.budget = FlashBudget::new(whole.flash_writes_per_day, now);
        }
        self.whole = whole;
        let over = now.since(self.last);
        self.last = now;
        let flash = self.flash(now, over, uses);
        let dirty = dirty(whole.dirty, uses);
        let slow = slow(over, uses);
        let weights = self.weights(now, uses);
        let regions = regions(whole.sub_luns_max, &weights);
        let all: u64 = weights.iter().sum();
        let iops_min = weights.iter().map(|weight| match all {
            0 => whole.iops_min / weights.len() as f64,
            all => whole.iops_min * (*weight as f64 / all as f64),
        });
        let limits = flash.into_iter().zip(dirty.into_iter().zip(slow));
        limits
            .zip(iops_min.zip(regions))
            .map(
                |((flash, (dirty, slow)), (iops_min, sub_luns_max))| LaneLimits {
                    flash,
                    dirty,
                    slow,
                    iops_min,
                    sub_luns_max,
                },
            )
            .collect()
    }

    /// How the flash budget of each lane changes, where `over` passed since the last division.
    fn flash(&mut self, now: Instant, over: Nanos, uses: &[LaneUse]) -> Vec<Option<i64>> {
        let forgotten = (over.secs_f64() / FLASH_WANTS.secs_f64()).min(1.0);
        for (want, lane) in self.flash_wants.iter_mut().zip(uses) {
            self.budget.charge(now, lane.flash.charged);
            let before = want.saturating_sub((*want as f64 * forgotten) as u64);
            *want = lane.flash.asked.0.max(before);
        }
        let Some(left) = self.budget.left(now) else {
            return vec![None; uses.len()];
        };
        let nothing_is_too_much = vec![u64::MAX; uses.len()];
        let shares = fair(left.0, &self.flash_wants, &nothing_is_too_much);
        let changes = shares.into_iter().zip(uses).map(|(share, lane)| {
            let share = i64::try_from(share).unwrap_or(i64::MAX);
            Some(share.saturating_sub(lane.flash.left))
        });
        changes.collect()
    }

    /// Requests of each lane over the last period of the tier, and of this one so far.
    fn weights(&mut self, now: Instant, uses: &[LaneUse]) -> Vec<u64> {
        if now.since(self.begun) >= self.whole.period {
            self.requests.swap(0, 1);
            self.requests[1].fill(0);
            self.begun = now;
        }
        let [before, current] = &mut self.requests;
        for (count, lane) in current.iter_mut().zip(uses) {
            *count += lane.requests;
        }
        let both = before.iter().zip(current);
        both.map(|(before, current)| *before + *current).collect()
    }
}

/// The marks of each lane's cleaner.
fn dirty(whole: DirtyMarks, uses: &[LaneUse]) -> Vec<DirtyMarks> {
    let part = |bytes: u64, percent: f64| (bytes as f64 * percent / 100.0) as u64;
    let capacity: u64 = uses.iter().map(|lane| lane.capacity.0).sum();
    // Choice: half-way to what is dirty at most, so that reads keep a part of a lane that is written to alone.
    let most = (whole.high + DIRTY_MAX) / 2.0;
    let wants: Vec<u64> = uses
        .iter()
        .map(|lane| (lane.dirty + lane.dirtied).0)
        .collect();
    let caps: Vec<u64> = uses
        .iter()
        .map(|lane| part(lane.capacity.0, most))
        .collect();
    let shares = fair(part(capacity, whole.high), &wants, &caps);
    let marks = shares.into_iter().zip(uses).map(|(share, lane)| {
        if lane.capacity == Bytes(0) {
            return whole;
        }
        let high = share as f64 * 100.0 / lane.capacity.0 as f64;
        DirtyMarks {
            low: high * whole.low / whole.high,
            high,
        }
    });
    marks.collect()
}

/// What each lane's cleaner may have of the slow device, where `over` passed since the last division.
fn slow(over: Nanos, uses: &[LaneUse]) -> Vec<SlowPart> {
    let options = CleanerOptions::default();
    let wants: Vec<u64> = uses.iter().map(|lane| lane.dirty.0).collect();
    let nothing_is_too_much = vec![u64::MAX; wants.len()];
    let rates = fair(
        options.slow_bytes_per_second.0,
        &wants,
        &nothing_is_too_much,
    );
    let busy = |lane: &LaneUse| lane.slow.busy.secs_f64();
    let busy_all: f64 = uses.iter().map(busy).sum();
    let requests_all: u64 = uses.iter().map(|lane| lane.slow.requests).sum();
    let parts = rates.into_iter().zip(uses).map(|(rate, lane)| {
        let others = requests_all - lane.slow.requests;
        let gap = over.0.checked_div(others).map_or(Nanos(u64::MAX), Nanos);
        let share = (busy_all - busy(lane)) / over.secs_f64().max(f64::MIN_POSITIVE);
        SlowPart {
            bytes_per_second: Bytes(rate),
            others_busy: share.clamp(0.0, 1.0),
            others_idle: gap >= options.idle_after,
        }
    });
    parts.collect()
}

/// How many regions each lane considers: one at least, the rest by weight.
fn regions(whole: u32, weights: &[u64]) -> Vec<u32> {
    let rest = u64::from(whole).saturating_sub(weights.len() as u64);
    let all: u64 = weights.iter().sum::<u64>();
    let parts = match all {
        0 => even(rest, weights.len()),
        _ => {
            let mut parts: Vec<u64> = weights
                .iter()
                .map(|weight| (u128::from(rest) * u128::from(*weight) / u128::from(all)) as u64)
                .collect();
            // What rounding left goes to the busiest, the first of them first.
            let spare = rest - parts.iter().sum::<u64>();
            let mut busiest: Vec<usize> = (0..weights.len()).collect();
            busiest.sort_by_key(|lane| std::cmp::Reverse(weights[*lane]));
            for lane in busiest.into_iter().take(spare as usize) {
                parts[lane] += 1;
            }
            parts
        }
    };
    parts.into_iter().map(|part| part as u32 + 1).collect()
}

/// Shares of `whole` among parts that want `wants` and take at most `caps`: what each wants up to an equal part, then what
/// others leave, then what is wanted by none, evenly. Each has its part of what is kept for all, if it takes so much.
fn fair(whole: u64, wants: &[u64], caps: &[u64]) -> Vec<u64> {
    let parts = wants.len() as u64;
    let kept = whole / parts / KEPT;
    let mut shares: Vec<u64> = caps.iter().map(|cap| kept.min(*cap)).collect();
    let wanted: Vec<u64> = wants
        .iter()
        .zip(caps)
        .map(|(want, cap)| *want.min(cap))
        .collect();
    fill(whole, &mut shares, &wanted);
    fill(whole, &mut shares, caps);
    shares
}

/// Raises the lowest shares first, none above what `upto` says of it, until they sum to `whole`.
fn fill(whole: u64, shares: &mut [u64], upto: &[u64]) {
    let mut left = whole - shares.iter().sum::<u64>();
    let mut open: Vec<usize> = (0..shares.len())
        .filter(|at| shares[*at] < upto[*at])
        .collect();
    // Those that need least first: what they leave is for the others.
    open.sort_by_key(|at| (upto[*at] - shares[*at], *at));
    for (done, at) in open.iter().enumerate() {
        let more = (upto[*at] - shares[*at]).min(left / (open.len() - done) as u64);
        shares[*at] += more;
        left -= more;
    }
}

/// `whole` in so many parts, as even as can be.
fn even(whole: u64, parts: usize) -> Vec<u64> {
    let parts = parts as u64;
    (0..parts)
        .map(|part| whole / parts + u64::from(part < whole % parts))
        .collect()
}

#[cfg(test)]
mod tests {
    use policy::cache::allowance::Spent;
    use proptest::prelude::*;

    use super::*;
    use crate::limits::SlowUse;

    const DAY: u64 = 24 * 60 * 60;

    fn whole(per_day: Option<u64>) -> Whole {
        Whole {
            flash_writes_per_day: per_day.map(Bytes),
            ..Whole::of(&Settings::default())
        }
    }

    /// Lanes that keep what they are granted and spend some of it.
    struct Spenders {
        divider: Divider,
        whole: Whole,
        now: Instant,
        left: Vec<i64>,
    }

    impl Spenders {
        fn new(whole: Whole, lanes: usize) -> Spenders {
            Spenders {
                divider: Divider::new(whole, lanes, Instant(0)),
                whole,
                now: Instant(0),
                left: vec![0; lanes],
            }
        }

        /// One interval, in which lane by lane so much is asked for of the flash budget; charged as far as it goes.
        fn step(&mut self, asked: &[u64], rest: &[LaneUse]) -> Vec<LaneLimits> {
            self.now = self.now + Nanos::secs(1);
            let uses = asked
                .iter()
                .zip(&mut self.left)
                .zip(rest)
                .map(|((asked, left), rest)| {
                    let charged = (*asked).min((*left).max(0) as u64);
                    *left -= charged as i64;
                    LaneUse {
                        flash: Spent {
                            left: *left,
                            charged: Bytes(charged),
                            asked: Bytes(*asked),
                        },
                        ..*rest
                    }
                });
            let uses: Vec<LaneUse> = uses.collect();
            let limits = self.divider.divide(self.whole, self.now, &uses);
            for (left, limits) in self.left.iter_mut().zip(&limits) {
                *left += limits.flash.unwrap_or_default();
            }
            limits
        }
    }

    fn lane(requests: u64, dirty: u64, dirtied: u64) -> LaneUse {
        LaneUse {
            requests,
            dirty: Bytes(dirty),
            dirtied: Bytes(dirtied),
            capacity: Bytes::gib(1),
            ..LaneUse::default()
        }
    }

    fn some_lane() -> impl Strategy<Value = (u64, LaneUse)> {
        let amount = || prop_oneof![Just(0), 0..1_u64 << 32, Just(u64::MAX >> 20)];
        let dirty = 0..=1_u64 << 30;
        let busy = 0..2_000_000_000_u64;
        (
            amount(),
            0..1_000_000_u64,
            dirty,
            amount(),
            busy,
            0..1000_u64,
        )
            .prop_map(|(asked, requests, dirty, dirtied, busy, slow)| {
                let slow = SlowUse {
                    requests: slow,
                    busy: Nanos(busy),
                };
                let rest = LaneUse {
                    slow,
                    ..lane(requests, dirty, dirtied)
                };
                (asked, rest)
            })
    }

    /// What several lanes do in each of some intervals.
    fn histories() -> impl Strategy<Value = Vec<Vec<(u64, LaneUse)>>> {
        let lanes = prop_oneof![Just(2_usize), Just(4), Just(8), Just(64)];
        lanes.prop_flat_map(|lanes| {
            prop::collection::vec(prop::collection::vec(some_lane(), lanes), 1..12)
        })
    }

    proptest! {
        #[test]
        fn shares_sum_to_at_most_the_whole_and_none_starves(
            history in histories(),
            per_day in 0..1_u64 << 44,
            regions in 1..100_u32,
        ) {
            let whole = Whole {
                sub_luns_max: regions,
                ..whole(Some(per_day))
            };
            let lanes = history[0].len();
            let mut twin = Spenders::new(whole, lanes);
            let mut charged = 0_i128;
            for interval in history {
                let (asked, rest): (Vec<u64>, Vec<LaneUse>) = interval.into_iter().unzip();
                let before: i64 = twin.left.iter().sum();
                let limits = twin.step(&asked, &rest);
                // The flash budget: an hour at once, and what flowed in since.
                let spent: i64 = limits.iter().map(|lane| lane.flash.unwrap()).sum();
                charged += i128::from(before) + i128::from(spent) - i128::from(twin.left.iter().sum::<i64>());
                let left: i64 = twin.left.iter().sum();
                let hour = i128::from(per_day / 24);
                let flowed = i128::from(per_day) * i128::from(twin.now.0) / i128::from(DAY * 1_000_000_000);
                prop_assert!(charged + i128::from(left) <= hour + flowed + 1);
                let equal = left / lanes as i64;
                prop_assert!(twin.left.iter().all(|own| *own >= equal / KEPT as i64 - 1));
                // What may be dirty.
                let capacity = 1_u64 << 30;
                let marks: f64 = limits.iter().map(|lane| lane.dirty.high).sum();
                prop_assert!(marks <= whole.dirty.high * lanes as f64 + 1e-6);
                for lane in &limits {
                    let DirtyMarks { low, high } = lane.dirty;
                    prop_assert!(0.0 < low && low < high && high <= DIRTY_MAX);
                    prop_assert!(high >= whole.dirty.high / KEPT as f64 - 100.0 / capacity as f64 * lanes as f64);
                }
                // What the cleaners may have of the slow device.
                let rates: u64 = limits.iter().map(|lane| lane.slow.bytes_per_second.0).sum();
                prop_assert!(rates <= CleanerOptions::default().slow_bytes_per_second.0);
                prop_assert!(limits.iter().all(|lane| lane.slow.bytes_per_second.0 > 0));
                prop_assert!(limits.iter().all(|lane| (0.0..=1.0).contains(&lane.slow.others_busy)));
                // The tier.
                let iops: f64 = limits.iter().map(|lane| lane.iops_min).sum();
                prop_assert!(iops <= whole.iops_min * (1.0 + 1e-9));
                let considered: u64 = limits.iter().map(|lane| u64::from(lane.sub_luns_max)).sum();
                prop_assert_eq!(considered, u64::from(regions).max(lanes as u64));
                prop_assert!(limits.iter().all(|lane| lane.sub_luns_max >= 1));
            }
        }

        /// Whatever was before, one division is enough for a lane that wakes.
        #[test]
        fn a_lane_that_wakes_has_its_part_after_one_division(
            history in histories(),
            which in 0..64_usize,
        ) {
            let lanes = history[0].len();
            let which = which % lanes;
            let mut twin = Spenders::new(whole(Some(1 << 40)), lanes);
            for mut interval in history.clone() {
                interval[which] = (0, lane(0, 0, 0));
                let (asked, rest): (Vec<u64>, Vec<LaneUse>) = interval.into_iter().unzip();
                twin.step(&asked, &rest);
            }
            let mut interval = history[0].clone();
            interval[which] = (u64::MAX >> 20, lane(1000, 1 << 29, 1 << 30));
            let (asked, rest): (Vec<u64>, Vec<LaneUse>) = interval.into_iter().unzip();
            let limits = twin.step(&asked, &rest);
            let all: i64 = twin.left.iter().sum();
            prop_assert!(twin.left[which] >= all / lanes as i64 - 1);
            prop_assert!(limits[which].dirty.high >= twin.whole.dirty.high - 1e-6);
        }

        /// Idle lanes keep what is kept for them, no more, where one has use for all.
        #[test]
        fn idle_lanes_give_away(lanes in prop_oneof![Just(2_usize), Just(4), Just(8)], which in 0..8_usize) {
            let which = which % lanes;
            let mut twin = Spenders::new(whole(Some(1 << 40)), lanes);
            let mut asked = vec![0; lanes];
            let mut rest = vec![lane(0, 0, 0); lanes];
            (asked[which], rest[which]) = (u64::MAX >> 20, lane(1000, 1 << 30, 1 << 30));
            let limits = twin.step(&asked, &rest);
            let (all, n): (i64, i64) = (twin.left.iter().sum(), lanes as i64);
            let kept = (n - 1) * (all / n / KEPT as i64);
            prop_assert!(twin.left[which] >= all - kept - n);
            let most = (twin.whole.dirty.high + DIRTY_MAX) / 2.0;
            let kept = (n - 1) as f64 * twin.whole.dirty.high / KEPT as f64;
            let high = (twin.whole.dirty.high * n as f64 - kept).min(most);
            prop_assert!((limits[which].dirty.high - high).abs() < 1e-3);
            prop_assert_eq!(limits[which].iops_min, twin.whole.iops_min);
            prop_assert_eq!(limits[which].sub_luns_max, twin.whole.sub_luns_max - (lanes as u32 - 1));
        }
    }

    /// Each lane's rule ignores an interval if and only if the whole's would.
    #[test]
    fn lanes_judge_an_interval_as_the_whole_would() {
        for (rates, counts) in [([30, 15, 10, 0], true), ([30, 10, 5, 0], false)] {
            let mut twin = Spenders::new(whole(None), 4);
            let rest: Vec<LaneUse> = rates.iter().map(|rate| lane(*rate, 0, 0)).collect();
            let mut limits = Vec::new();
            for _ in 0..10 {
                limits = twin.step(&[0; 4], &rest);
            }
            let judged: Vec<bool> = rates
                .iter()
                .zip(&limits)
                .map(|(rate, lane)| *rate as f64 >= lane.iops_min)
                .collect();
            // An idle lane's regions grow cold while others are busy.
            assert_eq!(judged, [counts, counts, counts, true], "{rates:?}");
        }
    }

    #[test]
    fn the_slow_device_is_as_busy_as_all_lanes_make_it() {
        let mut twin = Spenders::new(whole(None), 2);
        let users = |requests, busy| LaneUse {
            slow: SlowUse {
                requests,
                busy: Nanos::millis(busy),
            },
            ..lane(0, 0, 0)
        };
        let limits = twin.step(&[0; 2], &[users(100, 400), users(3, 20)]);
        let [first, second] = [limits[0].slow, limits[1].slow];
        assert!((first.others_busy - 0.02).abs() < 1e-9 && first.others_idle);
        assert!((second.others_busy - 0.4).abs() < 1e-9 && !second.others_idle);
        assert_eq!(first.bytes_per_second, Bytes(30_000_000));
    }

    #[test]
    fn another_cap_begins_a_budget_of_its_own() {
        let mut twin = Spenders::new(whole(None), 2);
        let idle = [lane(0, 0, 0); 2];
        assert_eq!(twin.step(&[0; 2], &idle)[0].flash, None);
        twin.whole.flash_writes_per_day = Some(Bytes(48_000));
        assert_eq!(twin.step(&[0; 2], &idle)[0].flash, Some(1000));
    }
}
