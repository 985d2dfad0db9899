//! What can the device be trusted to do, going by what it has done?
//!
//! ```text
//! interval -> backlogged throughout? -> speed = device time by the model / time by the clock
//!   -> kept by direction -> windows -> block bootstrap -> lower quantile -> bounds -> guarantee
//!   -> cumulative sum ----> drift: forget what came before
//! ```
//!
//! Only an interval in which requests waited all the time says what the device can do; an idle one
//! says what was asked of it. It still says that the device can do at least so much while it was busy: where
//! little is trusted, several such intervals in a row take that back. The guarantee is not the mean but the speed that all but `1 - p` of the
//! windows reach, and of that the lower end of what the samples allow: slow stretches come in bunches
//! (garbage collection), so samples are redrawn in blocks as long as they depend on each other.
//!
//! Source: PROBS 2, 3.3 (the device must know what it can do now and feed it back), 5 (finding the
//! guarantee by itself is left as future work).
//!
//! Choice: all of the method. Chance comes from a seed, so the same samples give the same guarantee.
//!
//! Always true:
//! 1. The guarantee lies within the bounds.
//! 2. At most `samples_max` samples are kept per mix.

use std::collections::VecDeque;

use base::Nanos;

pub use super::drift::Drift;

use super::drift::Watch;
use super::{Mix, Probability, Share};

/// What the estimator goes by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EstimatorOptions {
    /// The shortest and the longest interval that is taken; about a second each is meant.
    pub interval: (Nanos, Nanos),
    /// The part of an interval in which requests must have waited.
    pub backlogged_min: Share,
    /// A direction alone: at least this part of the device time went its way.
    pub alone_min: Share,
    /// Samples kept per mix.
    pub samples_max: usize,
    /// No guarantee on fewer.
    pub samples_min: usize,
    /// Never a guarantee below: one bad measurement must not close the device.
    pub lower: Share,
    /// Samples above are not taken: that was a cache, not the device.
    pub upper: Share,
    /// An interval that was not backlogged counts if the device was busy for so long.
    pub active_min: Nanos,
    /// So many of them in a row, all well above what is trusted, take that back.
    pub light_min: u32,
    /// Times samples are redrawn.
    pub redraws: u32,
    /// How sure the guarantee is, given the samples.
    pub confidence: Probability,
    /// Chance.
    pub seed: u64,
}

impl Default for EstimatorOptions {
    /// Intervals of 0.5 to 2 s, backlogged for 95 %; 60 to 4096 samples; a tenth to twice the model's
    /// speed; 200 redraws; 95 % sure.
    fn default() -> Self {
        EstimatorOptions {
            interval: (Nanos::millis(500), Nanos::secs(2)),
            backlogged_min: Share::percent(95),
            alone_min: Share::percent(90),
            samples_max: 4096,
            samples_min: 60,
            lower: Share::percent(10),
            upper: Share::percent(200),
            active_min: Nanos::millis(5),
            light_min: 5,
            redraws: 200,
            confidence: Probability::percent(95),
            seed: 1,
        }
    }
}

/// What the device did in one interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    /// How long it was.
    pub length: Nanos,
    /// For how long of it requests waited.
    pub backlogged: Nanos,
    /// For how long of it the device did something at all.
    pub active: Nanos,
    /// Device time of the reads done, by the model.
    pub read_work: Nanos,
    /// Device time of the writes done, by the model.
    pub write_work: Nanos,
}

/// What became of an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Observed {
    /// It is a sample.
    Taken(Mix),
    /// Requests did not wait all the time: it says nothing.
    NotBacklogged,
    /// Too short or too long.
    WrongLength,
    /// Faster than the device can be.
    TooFast,
    /// It is a sample, and with it the device no longer does what it did: older samples are forgotten,
    /// and a calibration is due.
    Drifted(Mix, Drift),
    /// With little to do the device is well faster than it is trusted to be: all samples are forgotten, and this is what it
    /// does at least.
    Recovered(Mix, Share),
}

/// A speed to build promises on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guarantee {
    /// Device time done per time by the clock: multiply a direction's rate by it.
    pub speed: Share,
    /// Samples it rests on.
    pub samples: usize,
    /// Are they enough to have seen what they exclude? If not, a margin was taken off.
    pub enough: bool,
    /// Was it cut to the bounds?
    pub bounded: bool,
}

/// Estimates what the device can be trusted to do.
///
/// # Example
/// ```
/// use base::Nanos;
/// use policy::share::{Mix, Probability, Share};
/// use policy::share::capacity::{Estimator, EstimatorOptions, Interval, Observed};
/// let mut estimator = Estimator::new(EstimatorOptions::default());
/// let second = Nanos::secs(1);
/// for n in 0..400 {
///     let read_work = Nanos::millis(if n % 10 == 0 { 800 } else { 950 });
///     let done = Interval { length: second, backlogged: second, active: second, read_work, write_work: Nanos(0) };
///     assert_eq!(estimator.observe(&done), Observed::Taken(Mix::Reads));
/// }
/// let all_but_one_percent = estimator.guarantee(Mix::Reads, Probability::percent(99), 1).unwrap();
/// assert_eq!(all_but_one_percent.speed, Share::percent(80));
/// assert_eq!(estimator.guarantee(Mix::Writes, Probability::percent(99), 1), None);
/// ```
#[derive(Debug, Clone)]
pub struct Estimator {
    options: EstimatorOptions,
    reads: Series,
    writes: Series,
    mixed: Series,
}

impl Estimator {
    /// Knows nothing yet.
    ///
    /// # Panics
    /// If the bounds are not ascending, or no samples or redraws are allowed.
    pub fn new(options: EstimatorOptions) -> Estimator {
        assert!(options.lower <= options.upper, "bounds must ascend");
        assert!(0 < options.samples_min && options.samples_min <= options.samples_max);
        assert!(options.redraws > 0, "a bootstrap without redraws");
        Estimator {
            options,
            reads: Series::default(),
            writes: Series::default(),
            mixed: Series::default(),
        }
    }

    /// Begins with what was known: while there are no samples, the device is trusted to do this.
    pub fn begin_with(&mut self, mix: Mix, speed: Share) {
        self.series_mut(mix).trusted = Some(speed.0);
    }

    /// Takes what the device did in one interval, if it says what it can do.
    pub fn observe(&mut self, interval: &Interval) -> Observed {
        let options = self.options;
        let (shortest, longest) = options.interval;
        if interval.length < shortest || interval.length > longest {
            return Observed::WrongLength;
        }
        let part = |of: Nanos, whole: Nanos| {
            Share((u128::from(of.0) * 1_000_000_000 / u128::from(whole.0.max(1))) as u64)
        };
        let work = interval.read_work + interval.write_work;
        if part(interval.backlogged, interval.length) < options.backlogged_min {
            return self.light(interval, work);
        }
        let speed = part(work, interval.length);
        if speed > options.upper {
            return Observed::TooFast;
        }
        let mix = self.mix(interval, work);
        let series = self.series_mut(mix);
        series.light = 0;
        match series.push(speed, options.samples_max) {
            Some(drift) => Observed::Drifted(mix, drift),
            None => Observed::Taken(mix),
        }
    }

    /// Which way the work of an interval went.
    fn mix(&self, interval: &Interval, work: Nanos) -> Mix {
        let part = |of: Nanos| u128::from(of.0) * u128::from(Share::WHOLE.0);
        let alone = u128::from(work.0) * u128::from(self.options.alone_min.0);
        if part(interval.read_work) >= alone {
            Mix::Reads
        } else if part(interval.write_work) >= alone {
            Mix::Writes
        } else {
            Mix::Mixed
        }
    }

    /// An interval in which no request waited: the device does at least what it did while it was busy.
    ///
    /// Choice: the mean of a few intervals, a quarter above what their samples say; a device that is slower shows that with
    /// one request at a time as well.
    fn light(&mut self, interval: &Interval, work: Nanos) -> Observed {
        let options = self.options;
        if interval.active < options.active_min || work.0 == 0 {
            return Observed::NotBacklogged;
        }
        let mix = self.mix(interval, work);
        let series = self.series_mut(mix);
        let speed = u128::from(work.0) * u128::from(Share::WHOLE.0) / u128::from(interval.active.0);
        let speed = speed.min(u128::from(Share::WHOLE.0)) as u64;
        let Some(usual) = series.mean() else {
            return Observed::NotBacklogged;
        };
        if speed < usual + usual / 4 {
            (series.light, series.light_sum) = (0, 0);
            return Observed::NotBacklogged;
        }
        series.light += 1;
        series.light_sum += speed;
        if series.light < options.light_min {
            return Observed::NotBacklogged;
        }
        let mean = series.light_sum / u64::from(series.light);
        *series = Series {
            trusted: Some(mean),
            ..Series::default()
        };
        // What both do together was reckoned by the same samples.
        self.mixed = Series {
            trusted: Some(mean),
            ..Series::default()
        };
        Observed::Recovered(mix, Share(mean))
    }

    /// The speed that windows of `intervals` intervals reach with `probability`; `None` while there are
    /// too few samples. For [`Mix::Mixed`] the least of what is known, as any of it may come.
    ///
    /// # Panics
    /// If `intervals` is zero.
    pub fn guarantee(
        &self,
        mix: Mix,
        probability: Probability,
        intervals: usize,
    ) -> Option<Guarantee> {
        assert!(intervals > 0, "a window of no intervals");
        let of = |series: &Series| series.guarantee(&self.options, probability, intervals);
        match mix {
            Mix::Reads => of(&self.reads),
            Mix::Writes => of(&self.writes),
            Mix::Mixed => {
                let all = [&self.reads, &self.writes, &self.mixed];
                all.into_iter().filter_map(of).min_by_key(|it| it.speed)
            }
        }
    }

    /// The speed reached since the device became slower by all but a tenth of the samples, while they are too few for
    /// a guarantee.
    pub fn since_slower(&self, mix: Mix) -> Option<Share> {
        let series = match mix {
            Mix::Reads => &self.reads,
            Mix::Writes => &self.writes,
            Mix::Mixed => &self.mixed,
        };
        series.since_slower(&self.options)
    }

    /// Samples kept.
    pub fn samples(&self, mix: Mix) -> usize {
        match mix {
            Mix::Reads => self.reads.speeds.len(),
            Mix::Writes => self.writes.speeds.len(),
            Mix::Mixed => self.mixed.speeds.len(),
        }
    }

    fn series_mut(&mut self, mix: Mix) -> &mut Series {
        match mix {
            Mix::Reads => &mut self.reads,
            Mix::Writes => &mut self.writes,
            Mix::Mixed => &mut self.mixed,
        }
    }
}

/// The samples of one mix, and the watch over their mean.
#[derive(Debug, Clone, Default)]
struct Series {
    /// Oldest first.
    speeds: VecDeque<u64>,
    watch: Watch,
    /// Its last drift was down.
    slower: bool,
    /// What it was trusted to do before there were samples.
    trusted: Option<u64>,
    /// Intervals in a row with little to do in which the device was well faster, and the sum of what it did.
    light: u32,
    light_sum: u64,
}

impl Series {
    fn mean(&self) -> Option<u64> {
        let sum: u128 = self.speeds.iter().map(|speed| u128::from(*speed)).sum();
        match sum.checked_div(self.speeds.len() as u128) {
            Some(mean) => u64::try_from(mean).ok(),
            None => self.trusted,
        }
    }

    fn push(&mut self, speed: Share, most: usize) -> Option<Drift> {
        if self.speeds.len() >= most {
            self.speeds.pop_front();
        }
        self.speeds.push_back(speed.0);
        let (drift, since) = self.watch.push(speed.0 as f64)?;
        let old = self.speeds.len().saturating_sub(since);
        self.speeds.drain(..old);
        self.watch = Watch::default();
        self.slower = drift == Drift::Down;
        Some(drift)
    }

    fn since_slower(&self, options: &EstimatorOptions) -> Option<Share> {
        let few = !self.speeds.is_empty() && self.speeds.len() < options.samples_min;
        if !self.slower || !few {
            return None;
        }
        let mut sorted: Vec<u64> = self.speeds.iter().copied().collect();
        sorted.sort_unstable();
        let low = sorted[sorted.len() / 10];
        Some(Share(low.clamp(options.lower.0, options.upper.0)))
    }

    fn guarantee(
        &self,
        options: &EstimatorOptions,
        probability: Probability,
        intervals: usize,
    ) -> Option<Guarantee> {
        let samples = self.speeds.len();
        if samples < options.samples_min || samples < intervals {
            return None;
        }
        let speeds: Vec<f64> = self.speeds.iter().map(|speed| *speed as f64).collect();
        let windows: Vec<f64> = speeds
            .windows(intervals)
            .map(|window| window.iter().sum::<f64>() / intervals as f64)
            .collect();
        let miss = 1.0 - probability.as_f64();
        let block = block_length(&windows).max(intervals);
        let low = redraw(&windows, block, miss, options);
        // To be sure of a quantile one must have seen beyond it: so many independent windows.
        let unsure = 1.0 - options.confidence.as_f64();
        let needed = unsure.max(1e-9).ln() / (1.0 - miss.max(1e-9)).ln();
        let independent = windows.len() as f64 / block as f64;
        let enough = independent >= needed;
        let speed = if enough {
            low
        } else {
            low - margin(&windows, needed / independent)
        };
        let bounded = speed.clamp(options.lower.0 as f64, options.upper.0 as f64);
        Some(Guarantee {
            speed: Share(bounded as u64),
            samples,
            enough,
            bounded: bounded != speed,
        })
    }
}

/// What is taken off because too little was seen: a quarter of the way from the median down to the
/// least for each doubling that is missing, at most half of it.
fn margin(windows: &[f64], missing: f64) -> f64 {
    let mut sorted = windows.to_vec();
    sorted.sort_by(f64::total_cmp);
    let reach = sorted[sorted.len() / 2] - sorted[0];
    reach * (0.25 * missing.log2()).min(0.5)
}

/// How many windows in a row depend on each other: the cube root of their number, or twice the distance
/// at which their correlation is lost, whichever is more, up to a quarter of all.
fn block_length(windows: &[f64]) -> usize {
    let n = windows.len();
    let mean = windows.iter().sum::<f64>() / n as f64;
    let product = |lag: usize| -> f64 {
        let pairs = windows.iter().zip(&windows[lag..]);
        pairs.map(|(a, b)| (a - mean) * (b - mean)).sum()
    };
    let variance = product(0);
    let lost = if variance > 0.0 {
        let noise = 2.0 / (n as f64).sqrt();
        (1..n / 8).find(|&lag| product(lag) / variance < noise.max(0.1))
    } else {
        Some(1)
    };
    let lag = lost.unwrap_or(n / 8);
    let by_number = (n as f64).cbrt().ceil() as usize;
    // Samples without memory need no blocks.
    let block = if lag <= 1 { 1 } else { by_number.max(2 * lag) };
    block.clamp(1, (n / 4).max(1))
}

/// The lower end of the `miss` quantile over redraws of `windows` in blocks.
fn redraw(windows: &[f64], block: usize, miss: f64, options: &EstimatorOptions) -> f64 {
    let n = windows.len();
    let mut chance = options.seed;
    let starts = (n - block + 1) as u64;
    let mut lows: Vec<f64> = (0..options.redraws)
        .map(|_| {
            let mut drawn = Vec::with_capacity(n + block);
            while drawn.len() < n {
                let start = (mix_bits(&mut chance) % starts) as usize;
                drawn.extend_from_slice(&windows[start..start + block]);
            }
            drawn.truncate(n);
            let rank = (miss * n as f64) as usize;
            let (_, low, _) = drawn.select_nth_unstable_by(rank.min(n - 1), f64::total_cmp);
            *low
        })
        .collect();
    lows.sort_by(f64::total_cmp);
    let unsure = 1.0 - options.confidence.as_f64();
    lows[(unsure * lows.len() as f64) as usize]
}

/// SplitMix64: the next number of a seed.
fn mix_bits(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut bits = *state;
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
