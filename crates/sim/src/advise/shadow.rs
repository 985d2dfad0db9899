//! Advice for a volume that runs: small caches beside it, which decide on a sample of what it is asked.
//!
//! ```text
//! Tap -> request -> long stream? --yes--> goes past the cache, counted
//!                -> each page --hash--> below the threshold? --no--> counted, nothing else
//!                                              | yes
//!                                              v
//!                    SHARDS (the LRU curve)  +  miniatures of the volume's policy at 1/4, 1/2, 1, 2 and 4
//!                                               times its cache, each a threshold's share as large
//! ```
//!
//! A page is sampled or not by its number alone, so all its uses are seen or none. What a sample has too
//! few or too many of are uses of the few hottest pages, which are hits: ratios are of all uses, scaled.
//!
//! Source: Waldspurger et al., SHARDS (FAST 2015); "Cache modeling and optimization using miniature
//! simulations" (USENIX ATC 2017).
//!
//! Choice: discards leave the shadow as it is; a dirty page is written back when it leaves; of one request the first
//! 256 pages are looked at, the rest counts as going past the cache; a stream is one of the sixteen latest, each
//! request going on exactly where the one before it ended.
//!
//! Always true:
//! 1. A request with no sampled page costs a look at sixteen streams and a hash for each of at most 256 pages.
//! 2. No more than [`SAMPLED_PER_SECOND`] sampled pages a second are looked up for long: when more come, the
//!    shadow begins anew with a quarter of the rate.
//! 3. Memory is bounded by constants, whatever the volume's size and whatever is asked.
//! 4. The same requests at the same times give the same findings.

mod mini;
mod streams;

use base::{Bytes, Instant, Nanos, Span};
use hybrid::WriteMode;
use policy::cache::Kind;
use serde::{Deserialize, Serialize};
use trace::{Op, tap::Observer};

use super::{GAIN_MIN, KNEE, PAGE};
use crate::cache::{Mode, Sample, Shards, mix};
use mini::Mini;
use streams::Streams;

/// The size of the caches looked at, in fourths of the present one.
const FOURTHS: [u64; 5] = [1, 2, 4, 8, 16];
/// Which of them is the present one.
const PRESENT: usize = 2;
/// Pages in the miniature of the present cache, at most; where the cache is larger, so much less is sampled.
///
/// Choice: 8,192, from which ratios are within 0.03 of the whole simulation (a test compares).
const FRAMES: u64 = 8192;
/// Pages the LRU curve keeps at most.
const CURVE_PAGES: u32 = 16_384;
/// Pages of one request that are looked at.
const PAGES_MAX: u64 = 256;
/// Sampled pages a second the shadow bears.
///
/// Choice: 4,000, so that at 2 microseconds each they take less than a hundredth of a core.
pub const SAMPLED_PER_SECOND: u64 = 4000;
/// Fewer sampled uses say nothing.
const SAMPLED_MIN: u64 = 1000;
/// Points of the LRU curve in the findings.
const POINTS: u32 = 16;

/// What the volume is like that is shadowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShadowOptions {
    /// Its cache.
    pub cache: Bytes,
    /// Its policy.
    pub policy: Kind,
    /// Its write mode and admission.
    pub mode: Mode,
    /// Streams of this length and more go past its cache.
    pub bypass: Option<Bytes>,
    /// Chooses which pages are in the sample.
    pub seed: u64,
}

/// What one size of the cache would do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AtSize {
    /// The size.
    pub size_bytes: u64,
    /// Pages found in the cache, per page asked for, with the volume's policy; those that go past it are misses.
    pub hit_ratio: f64,
    /// The same of pages read.
    pub read_hit_ratio: f64,
    /// As `hit_ratio`, if the policy were LRU and every miss came in.
    pub lru_hit_ratio: f64,
    /// Pages the slow device would read and write.
    pub slow_pages: u64,
    /// The share of pages asked for that the slow device is spared; negative where it has more to do.
    pub slow_saved: f64,
    /// Fills and writes of the fast device in a day at the present pace.
    pub flash_bytes_per_day: f64,
}

/// A point of the LRU curve.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LruPoint {
    /// The size.
    pub size_bytes: u64,
    /// Pages found, per page asked for.
    pub hit_ratio: f64,
}

/// What a shadow found so far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Findings {
    /// For how long it has watched.
    pub watched_seconds: f64,
    /// Requests that read or write.
    pub requests: u64,
    /// Pages of 4 KiB they asked for.
    pub pages: u64,
    /// Of those, pages that went past the cache in long streams.
    pub passed_pages: u64,
    /// Uses of sampled pages.
    pub sampled: u64,
    /// The share of pages that is sampled.
    pub rate: f64,
    /// Pages touched outside long streams, estimated, in bytes.
    pub footprint_bytes: u64,
    /// How the volume's cache is run.
    #[serde(flatten)]
    pub cache: CacheMode,
    /// The present size of the cache.
    pub present_bytes: u64,
    /// A quarter, a half, once, twice and four times the present size.
    pub sizes: Vec<AtSize>,
    /// LRU at sizes evenly spread up to the footprint.
    pub lru: Vec<LruPoint>,
    /// Which of `sizes` is advised; none: too little was seen, or no size does much.
    pub chosen: Option<usize>,
    /// The advice and why, in sentences.
    pub reasons: Vec<String>,
    /// Memory the shadow holds.
    pub memory_bytes: u64,
}

/// How a cache is run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CacheMode {
    /// Its policy.
    pub policy: String,
    /// Its write mode.
    pub write: String,
    /// Which reads come in.
    pub admission: String,
}

impl Findings {
    /// The present size among the sizes.
    pub fn present(&self) -> &AtSize {
        &self.sizes[PRESENT]
    }

    /// The advised size, if it is another than the present one.
    pub fn change(&self) -> Option<&AtSize> {
        let chosen = self.chosen.filter(|&chosen| chosen != PRESENT)?;
        self.sizes.get(chosen)
    }
}

/// The shadow of a running volume's cache.
///
/// # Example
/// ```
/// use base::{Bytes, Instant, Span};
/// use sim::{advise::shadow::{Shadow, ShadowOptions}, cache::Mode};
/// use trace::{tap::Observer, Op};
/// let options = ShadowOptions {
///     cache: Bytes::mib(1),
///     policy: Default::default(),
///     mode: Mode::default(),
///     bypass: None,
///     seed: 1,
/// };
/// let mut shadow = Shadow::new(options, Instant(0));
/// for at in 0..10_000 {
///     shadow.request(Instant(at * 1_000_000), Op::Read, Span::bytes(at % 400 * 8192, 4096));
/// }
/// let found = shadow.findings(Instant(10_000_000_000));
/// // 400 pages in turn: too many for 256 pages, few enough for 512.
/// assert!(found.sizes[2].lru_hit_ratio < 0.01 && found.sizes[3].lru_hit_ratio > 0.95);
/// assert_eq!(found.chosen, Some(3));
/// ```
pub struct Shadow {
    // Fixed.
    options: ShadowOptions,
    // Since it began (anew).
    rate: f64,
    threshold: u64,
    since: Instant,
    counters: Counters,
    shards: Shards,
    minis: Vec<Mini>,
    // Of the last moments.
    streams: Streams,
    second: Instant,
    in_second: u64,
}

/// What was asked.
#[derive(Debug, Clone, Copy, Default)]
struct Counters {
    requests: u64,
    pages: u64,
    passed: u64,
    /// Pages read and written that did not go past.
    reads: u64,
    writes: u64,
    sampled: u64,
}

impl Shadow {
    /// A shadow that begins `now`, as empty caches.
    pub fn new(options: ShadowOptions, now: Instant) -> Shadow {
        let pages = (options.cache.0 / PAGE).max(1);
        let rate = (FRAMES as f64 / pages as f64).min(1.0);
        Shadow::at_rate(options, rate, now)
    }

    fn at_rate(options: ShadowOptions, rate: f64, now: Instant) -> Shadow {
        let pages = options.cache.0 as f64 / PAGE as f64;
        let mini = |fourths: u64| {
            let frames = (pages * fourths as f64 / 4.0 * rate).round().max(1.0);
            Mini::new(frames as u32, options.policy, options.mode)
        };
        let most = CURVE_PAGES;
        Shadow {
            rate,
            threshold: (rate * 2f64.powi(32)) as u64,
            since: now,
            counters: Counters::default(),
            shards: Shards::new(Sample::Blocks { most, rate }, options.seed),
            minis: FOURTHS.map(mini).into(),
            streams: Streams::default(),
            second: now,
            in_second: 0,
            options,
        }
    }

    /// What it was made for.
    pub fn options(&self) -> &ShadowOptions {
        &self.options
    }

    /// Memory it holds, in bytes.
    pub fn memory(&self) -> usize {
        let minis: usize = self.minis.iter().map(Mini::memory).sum();
        self.shards.memory() + minis
    }

    #[cold]
    fn sampled(&mut self, page: u64, write: bool) {
        self.shards.see(page, PAGE as u32);
        for mini in &mut self.minis {
            mini.access(page, write);
        }
    }

    /// Too much for a shadow? Then it begins anew, smaller.
    #[cold]
    fn spend(&mut self, at: Instant, sampled: u64) {
        self.counters.sampled += sampled;
        if at.since(self.second) >= Nanos::secs(1) {
            (self.second, self.in_second) = (at, 0);
        }
        self.in_second += sampled;
        if self.in_second > SAMPLED_PER_SECOND {
            *self = Shadow::at_rate(self.options, self.rate / 4.0, at);
        }
    }

    /// What it found until `now`.
    pub fn findings(&self, now: Instant) -> Findings {
        let counters = self.counters;
        let seconds = now.since(self.since).secs_f64();
        let curve = self.shards.curve();
        // Of the pages looked at, how many among all?
        let looked = 1.0 - share(counters.passed as f64, counters.pages as f64);
        let lru = |bytes: f64| looked * (1.0 - curve.at(bytes / PAGE as f64).miss_ratio);
        let touched = curve.footprint() * PAGE as f64;
        let sizes = FOURTHS.iter().zip(&self.minis).map(|(fourths, mini)| {
            let size_bytes = self.options.cache.0.saturating_mul(*fourths) / 4;
            let lru_hit_ratio = lru(size_bytes as f64);
            self.at_size(size_bytes, mini, lru_hit_ratio, seconds)
        });
        let sizes: Vec<AtSize> = sizes.collect();
        let (chosen, reasons) = advice(&sizes, counters.sampled, self.minis[PRESENT].frames());
        let points = (1..=POINTS).map(|point| {
            let bytes = touched * f64::from(point) / f64::from(POINTS);
            LruPoint {
                size_bytes: bytes as u64,
                hit_ratio: lru(bytes),
            }
        });
        Findings {
            watched_seconds: seconds,
            requests: counters.requests,
            pages: counters.pages,
            passed_pages: counters.passed,
            sampled: counters.sampled,
            rate: self.rate,
            footprint_bytes: touched as u64,
            cache: CacheMode {
                policy: self.options.policy.to_string(),
                write: self.options.mode.write.to_string(),
                admission: self.options.mode.admission.to_string(),
            },
            present_bytes: self.options.cache.0,
            lru: points.collect(),
            sizes,
            chosen,
            reasons,
            memory_bytes: self.memory() as u64,
        }
    }

    fn at_size(&self, size_bytes: u64, mini: &Mini, lru_hit_ratio: f64, seconds: f64) -> AtSize {
        let (counters, counts) = (self.counters, mini.counts);
        let scaled = |sampled: u64| sampled as f64 / self.rate;
        let (reads, writes) = (counters.reads as f64, counters.writes as f64);
        let write = self.options.mode.write;
        let read_misses = scaled(counts.read_misses).min(reads);
        let write_misses = scaled(counts.write_misses).min(writes);
        let homeward = match write.keeps_dirty() {
            true => scaled(counts.cleaned),
            // Each write goes there.
            false => writes,
        };
        let slow = counters.passed as f64 + read_misses + homeward;
        let written = match write {
            WriteMode::Around => 0.0,
            _ => writes,
        };
        let pages = counters.pages as f64;
        AtSize {
            size_bytes,
            hit_ratio: share(reads + writes - read_misses - write_misses, pages),
            read_hit_ratio: share(reads - read_misses, reads),
            lru_hit_ratio,
            slow_pages: slow as u64,
            slow_saved: share(pages - slow, pages),
            flash_bytes_per_day: share(
                (scaled(counts.fills) + written) * PAGE as f64 * 86_400.0,
                seconds,
            ),
        }
    }
}

impl Observer for Shadow {
    fn request(&mut self, at: Instant, op: Op, span: Span) {
        let write = match op {
            Op::Read => false,
            Op::Write => true,
            _ => return,
        };
        if span.len.0 == 0 {
            return;
        }
        let from = span.start.byte();
        let first = from / PAGE;
        let pages = from.saturating_add(span.len.0).div_ceil(PAGE) - first;
        self.counters.requests += 1;
        self.counters.pages += pages;
        let stream = self.streams.see(from, span.len.0);
        if self.options.bypass.is_some_and(|bypass| stream >= bypass.0) {
            self.counters.passed += pages;
            return;
        }
        let looked = pages.min(PAGES_MAX);
        self.counters.passed += pages - looked;
        match write {
            false => self.counters.reads += looked,
            true => self.counters.writes += looked,
        }
        let mut sampled = 0;
        for page in first..first + looked {
            if u64::from(mix(page, self.options.seed)) < self.threshold {
                self.sampled(page, write);
                sampled += 1;
            }
        }
        self.shards.pass_by(looked - sampled, PAGE as u32);
        if sampled > 0 {
            self.spend(at, sampled);
        }
    }
}

fn share(part: f64, whole: f64) -> f64 {
    match whole > 0.0 {
        true => part / whole,
        false => 0.0,
    }
}

/// Which size, and why.
fn advice(sizes: &[AtSize], sampled: u64, frames: u64) -> (Option<usize>, Vec<String>) {
    let needed = SAMPLED_MIN.max(2 * frames);
    if sampled < needed {
        let reason = format!(
            "Too little was seen to advise anything: {sampled} uses of sampled pages; {needed} are needed. Ask again later."
        );
        return (None, vec![reason]);
    }
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let saved = |at: &AtSize| at.slow_saved;
    let best = sizes.iter().map(saved).fold(f64::MIN, f64::max);
    let present = &sizes[PRESENT];
    if best < GAIN_MIN {
        let reason = format!(
            "No size up to {} spares the slow device more than {} of what is asked: a cache does little for this load.",
            Bytes(sizes[sizes.len() - 1].size_bytes),
            percent(best.max(0.0))
        );
        return (None, vec![reason]);
    }
    let knee = sizes
        .iter()
        .position(|at| at.slow_saved >= KNEE * best)
        .unwrap_or(PRESENT);
    let at = &sizes[knee];
    let mut reasons = vec![match knee.cmp(&PRESENT) {
        std::cmp::Ordering::Equal => format!(
            "Keep {}: it is the least size looked at that spares the slow device nine tenths of what the best spares it.",
            Bytes(present.size_bytes)
        ),
        std::cmp::Ordering::Less => format!(
            "{} would do: it spares the slow device {} of what is asked, the present {} {}.",
            Bytes(at.size_bytes),
            percent(at.slow_saved),
            Bytes(present.size_bytes),
            percent(present.slow_saved)
        ),
        std::cmp::Ordering::Greater => format!(
            "{} would do more: it spares the slow device {} of what is asked, the present {} {}.",
            Bytes(at.size_bytes),
            percent(at.slow_saved),
            Bytes(present.size_bytes),
            percent(present.slow_saved)
        ),
    }];
    reasons.push(format!(
        "Expected hits there: {} of pages, against {} now.",
        percent(at.hit_ratio),
        percent(present.hit_ratio)
    ));
    if at.lru_hit_ratio > at.hit_ratio + GAIN_MIN {
        reasons.push(format!(
            "LRU that takes in every miss would find {} there; consider policy=lru or admission=always, at the price of more flash writes.",
            percent(at.lru_hit_ratio)
        ));
    }
    (Some(knee), reasons)
}

#[cfg(test)]
mod tests;
