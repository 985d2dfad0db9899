//! Advice: which cache would do a trace good, how much, and at what cost?
//!
//! ```text
//! trace -> curves of every policy (sampled when long) -> the policy that misses least over the sizes looked at
//!       -> that policy at each size, over timing cores  -> the knee: the least size with most of the gain
//!       -> other write modes and LRU at the knee        -> Advice: candidates, one of them chosen, reasons
//!       -> the slow device alone ---------------------------^ what it is compared with
//! ```
//!
//! Response times come of device models under the requests of the trace at their times (see [`timed`]),
//! hits and misses of the production policies with the production admission.
//!
//! Choice: the knee is the least size that gets nine tenths of the response time saved by the best
//! size looked at. Write-through is chosen over write-back where it is no more than a twentieth slower, since
//! it never holds data the slow device does not have.
//!
//! Always true: the same trace and options give the same advice.

mod html;
pub mod shadow;
mod timed;

use base::{Bytes, Instant, Nanos};
use device::model::{Spec, SpecError};
use hybrid::{Admission, WriteMode};
use policy::cache::Kind;
use rayon::prelude::*;
use serde::Serialize;

use crate::sim::cache::{
    Builder, Compact, Curves, LoadError, Method, Mode, NamedCurve, Ops, Unit, simulate_watched,
};
use crate::trace::{Op, Request};
use timed::{Line, PAGE, Timed, Times};

pub use html::page;

/// What advice is asked for.
#[derive(Debug, Clone)]
pub struct Options {
    /// The device that holds everything.
    pub slow: Spec,
    /// The device the cache is on.
    pub fast: Spec,
    /// The policies to choose from.
    pub policies: Vec<Kind>,
    /// The sizes to choose from; none: seven, from a 64th of what the trace touches to all of it.
    pub sizes: Vec<Bytes>,
    /// How often a day the cache may be written over.
    pub endurance: f64,
    /// Of all chance.
    pub seed: u64,
}

/// Why there is no advice.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdviseError {
    /// The trace cannot be taken in.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A device cannot be modelled.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// Nothing to choose from.
    #[error("there is no policy to choose from; name one at least")]
    NoPolicy,
    /// A cache of less than one page.
    #[error("a cache of {0} holds not one page of 4 KiB; ask for more")]
    Size(Bytes),
}

/// One cache that was looked at; the figures are of modelled devices.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Candidate {
    /// The policy.
    pub policy: String,
    /// The size of the cache.
    pub size_bytes: u64,
    /// The write mode.
    pub write: String,
    /// Requests that read and found all their pages in the cache, per request that reads.
    pub read_hit_ratio: f64,
    /// The same of all requests.
    pub hit_ratio: f64,
    /// Mean response time of the requests that were timed.
    pub response_us_mean: f64,
    /// Of reads.
    pub read_us_mean: f64,
    /// Of writes.
    pub write_us_mean: f64,
    /// Requests to the slow device for the timed requests, cleaning included.
    pub slow_requests: u64,
    /// The share of the slow device's requests that is saved; negative where there are more.
    pub slow_requests_saved: f64,
    /// Written to the fast device a day at the pace of the trace.
    pub flash_bytes_per_day: f64,
    /// That in sizes of the cache.
    pub cache_writes_per_day: f64,
    /// Mean power of both devices.
    pub watts: f64,
}

/// The slow device alone.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Alone {
    /// Mean response time.
    pub response_us_mean: f64,
    /// Of reads.
    pub read_us_mean: f64,
    /// Of writes.
    pub write_us_mean: f64,
    /// Requests to it.
    pub slow_requests: u64,
    /// Its mean power.
    pub watts: f64,
}

/// What was found.
#[derive(Debug, Clone, Serialize)]
pub struct Advice {
    /// The model of the slow device.
    pub slow: String,
    /// The model of the fast device.
    pub fast: String,
    /// Requests of the trace that read or write.
    pub requests: u64,
    /// Those at its end whose response times are in the figures; all before only warm the caches.
    pub timed_requests: u64,
    /// How long the trace is.
    pub trace_seconds: f64,
    /// What it touches, in whole pages.
    pub touched_bytes: u64,
    /// The slow device alone.
    pub alone: Alone,
    /// The caches looked at.
    pub candidates: Vec<Candidate>,
    /// Which of them is advised; none: leave it as it is.
    pub chosen: Option<usize>,
    /// Why, in sentences.
    pub reasons: Vec<String>,
    /// The miss-ratio curves the policy was chosen by.
    #[serde(skip)]
    pub curves: Vec<NamedCurve>,
}

/// At most so many requests are timed.
const TIMED_MAX: usize = 400_000;
/// The share of the best gain that is enough.
const KNEE: f64 = 0.9;
/// How much slower write-through may be.
const THROUGH_MARGIN: f64 = 1.05;
/// A lesser gain is none.
const GAIN_MIN: f64 = 0.05;

/// Takes in the requests of a trace, then advises.
#[derive(Debug)]
pub struct Adviser {
    options: Options,
    builder: Builder,
    lines: Vec<(Line, u32)>,
}

impl Adviser {
    /// Nothing taken in yet.
    ///
    /// # Errors
    /// [`AdviseError::NoPolicy`], [`AdviseError::Size`].
    pub fn new(options: Options) -> Result<Adviser, AdviseError> {
        if options.policies.is_empty() {
            return Err(AdviseError::NoPolicy);
        }
        if let Some(size) = options.sizes.iter().find(|size| size.0 < PAGE) {
            return Err(AdviseError::Size(*size));
        }
        Ok(Adviser {
            options,
            builder: Builder::new(Unit::PAGE, Ops::All),
            lines: Vec::new(),
        })
    }

    /// One more request.
    ///
    /// # Errors
    /// [`AdviseError::Load`] if it is impossible.
    pub fn push(&mut self, request: &Request) -> Result<(), AdviseError> {
        self.builder.push(request)?;
        // As the builder counts.
        if matches!(request.op, Op::Read | Op::Write) && request.size.0 > 0 {
            let line = Line {
                at: Instant(request.at.0),
                offset: request.offset.0,
                size: request.size.0 as u32,
                write: request.op == Op::Write,
            };
            self.lines.push((line, request.device));
        }
        Ok(())
    }

    /// The advice; `done` hears how many caches have been looked at, of how many.
    ///
    /// # Errors
    /// [`AdviseError`].
    pub fn advise(self, done: &(dyn Fn(usize, usize) + Sync)) -> Result<Advice, AdviseError> {
        let options = self.options;
        let trace = self.builder.finish()?;
        let (lines, size) = side_by_side(self.lines);
        let from = lines.len().saturating_sub(TIMED_MAX);
        let lines = from_zero(lines, from);
        let bed = Bed {
            places: places(&trace, &lines),
            trace,
            lines,
            from,
            size,
            options,
        };
        bed.advise(done)
    }
}

/// Devices one behind the other, each from a whole MiB on; and where the last ends.
fn side_by_side(lines: Vec<(Line, u32)>) -> (Vec<Line>, Bytes) {
    let mut ends: std::collections::BTreeMap<u32, u64> = Default::default();
    for (line, device) in &lines {
        let end = ends.entry(*device).or_default();
        *end = (*end).max(line.offset.saturating_add(u64::from(line.size)));
    }
    let mut total = 0u64;
    for end in ends.values_mut() {
        let start = total;
        total = total.saturating_add(end.saturating_add(1 << 20) >> 20 << 20);
        *end = start;
    }
    let moved = lines.into_iter().map(|(line, device)| Line {
        offset: line.offset + ends[&device],
        ..line
    });
    (moved.collect(), Bytes(total))
}

/// Time begins with the request `from`.
fn from_zero(mut lines: Vec<Line>, from: usize) -> Vec<Line> {
    let start = lines.get(from).map_or(Instant(0), |line| line.at);
    for line in &mut lines {
        line.at = Instant(line.at.since(start).0);
    }
    lines
}

/// The page of every block on the slow device.
fn places(trace: &Compact, lines: &[Line]) -> Vec<u64> {
    let mut places = vec![0; trace.footprint() as usize];
    let (mut line, mut page) = (0, lines[0].offset / PAGE);
    trace.each(|access| {
        places[access.block as usize] = page;
        page += 1;
        if access.last {
            line += 1;
            page = lines.get(line).map_or(0, |line| line.offset / PAGE);
        }
    });
    places
}

/// What every candidate is tried on.
struct Bed {
    options: Options,
    trace: Compact,
    lines: Vec<Line>,
    places: Vec<u64>,
    from: usize,
    size: Bytes,
}

const ADMISSION: Admission = Admission::SecondAccess;

impl Bed {
    fn advise(self, done: &(dyn Fn(usize, usize) + Sync)) -> Result<Advice, AdviseError> {
        let options = &self.options;
        let touched = u64::from(self.trace.footprint()) * PAGE;
        let sizes = self.sizes(touched);
        let alone = timed::bare(
            &options.slow,
            self.size,
            &self.lines[self.from..],
            options.seed,
        )?;
        let curves = Curves {
            methods: options
                .policies
                .iter()
                .map(|kind| Method::Policy(*kind))
                .collect(),
            mode: Mode {
                write: WriteMode::Back,
                admission: ADMISSION,
            },
            rate: None,
            seed: options.seed,
        }
        .run(&self.trace, &|_, _| ());
        let policy = best_policy(&options.policies, &curves, &sizes);

        let in_all = sizes.len() + 3;
        let tried: Result<Vec<Candidate>, AdviseError> = sizes
            .par_iter()
            .map(|&size| self.try_out(policy, size, WriteMode::Back, &alone))
            .collect();
        let mut candidates = tried?;
        done(sizes.len(), in_all);
        let knee = knee(&alone, &candidates);
        let size = sizes[knee];
        let mut others = vec![(policy, WriteMode::Through), (policy, WriteMode::Around)];
        if policy != Kind::Lru {
            others.push((Kind::Lru, WriteMode::Back));
        }
        let tried: Result<Vec<Candidate>, AdviseError> = others
            .par_iter()
            .map(|&(kind, write)| self.try_out(kind, size, write, &alone))
            .collect();
        candidates.extend(tried?);
        done(in_all, in_all);
        let alone = Alone {
            response_us_mean: micros(alone.mean),
            read_us_mean: micros(alone.read_mean),
            write_us_mean: micros(alone.write_mean),
            slow_requests: alone.slow_requests,
            watts: watts(&alone),
        };
        let (chosen, reasons) =
            self.choose(&alone, &candidates, knee, sizes.len(), policy, &curves);
        Ok(Advice {
            slow: options.slow.name.clone(),
            fast: options.fast.name.clone(),
            requests: self.trace.requests(),
            timed_requests: (self.lines.len() - self.from) as u64,
            trace_seconds: self.trace.span().secs_f64(),
            touched_bytes: touched,
            alone,
            candidates,
            chosen,
            reasons,
            curves,
        })
    }

    fn sizes(&self, touched: u64) -> Vec<Bytes> {
        let mut sizes = self.options.sizes.clone();
        if sizes.is_empty() {
            // Whole MiB, where that is not coarse.
            let grain = if touched >= 1 << 27 { 1 << 20 } else { PAGE };
            let part = |shift: u32| Bytes((touched >> shift).next_multiple_of(grain).max(grain));
            sizes.extend((0..=6).rev().map(part));
        }
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    fn try_out(
        &self,
        kind: Kind,
        size: Bytes,
        write: WriteMode,
        alone: &Times,
    ) -> Result<Candidate, AdviseError> {
        let options = &self.options;
        let mode = Mode {
            write,
            admission: ADMISSION,
        };
        let mut timed = Timed::new(
            (&options.slow, &options.fast),
            (self.size, size),
            &self.lines,
            &self.places,
            self.from,
            options.seed,
        )?;
        let tally = simulate_watched(&self.trace, kind, size.0 / PAGE, mode, &mut timed);
        let times = timed.finish();
        let days = self.trace.span().secs_f64().max(1.0) / 86_400.0;
        let per_day = tally.flash_bytes_written as f64 / days;
        let hits = |missed: u64, of: u64| 1.0 - missed as f64 / (of as f64).max(1.0);
        Ok(Candidate {
            policy: kind.to_string(),
            size_bytes: size.0,
            write: write.to_string(),
            read_hit_ratio: hits(tally.missed_reads, tally.reads),
            hit_ratio: 1.0 - tally.request_miss_ratio(),
            response_us_mean: micros(times.mean),
            read_us_mean: micros(times.read_mean),
            write_us_mean: micros(times.write_mean),
            slow_requests: times.slow_requests,
            slow_requests_saved: hits(times.slow_requests, alone.slow_requests),
            flash_bytes_per_day: per_day,
            cache_writes_per_day: per_day / size.0 as f64,
            watts: watts(&times),
        })
    }

    /// Which candidate, and why. The first `sized` are the sizes in write-back mode.
    fn choose(
        &self,
        alone: &Alone,
        candidates: &[Candidate],
        knee: usize,
        sized: usize,
        policy: Kind,
        curves: &[NamedCurve],
    ) -> (Option<usize>, Vec<String>) {
        let back = &candidates[knee];
        let best = &candidates[..sized].iter().min_by(|a, b| by_response(a, b));
        let best = best.unwrap_or(back);
        let gain = 1.0 - best.response_us_mean / alone.response_us_mean.max(1e-9);
        let mut reasons = Vec::new();
        if gain < GAIN_MIN {
            reasons.push(format!(
                "No cache looked at helps: the slow device alone answers in {} on average, the best cache in {}.",
                shown(alone.response_us_mean),
                shown(best.response_us_mean)
            ));
            return (None, reasons);
        }
        let through = candidates[sized..]
            .iter()
            .position(|one| one.write == WriteMode::Through.to_string())
            .map(|at| sized + at);
        let chosen = match through {
            Some(at)
                if candidates[at].response_us_mean <= back.response_us_mean * THROUGH_MARGIN =>
            {
                at
            }
            _ => knee,
        };
        let one = &candidates[chosen];
        reasons.push(format!(
            "{} of {} with {} in write-{} mode: {} on average instead of {} ({:.1} times as fast), {:.0} % of the \
             requests to the slow device saved.",
            Bytes(one.size_bytes),
            self.options.fast.name,
            one.policy,
            one.write,
            shown(one.response_us_mean),
            shown(alone.response_us_mean),
            alone.response_us_mean / one.response_us_mean.max(1e-9),
            100.0 * one.slow_requests_saved
        ));
        let saved = |candidate: &Candidate| {
            100.0 * (alone.response_us_mean - candidate.response_us_mean)
                / (alone.response_us_mean - best.response_us_mean)
        };
        let mut size = format!(
            "The knee is at {}: it saves {:.0} % of the response time that {}, the best size looked at, would save",
            Bytes(back.size_bytes),
            saved(back),
            Bytes(best.size_bytes)
        );
        if let Some(smaller) = knee.checked_sub(1).map(|at| &candidates[at]) {
            let less = format!(
                ", {} only {:.0} %",
                Bytes(smaller.size_bytes),
                saved(smaller)
            );
            size.push_str(&less);
        }
        reasons.push(size + ".");
        let objects = (back.size_bytes / PAGE) as f64;
        let mut ratios: Vec<(f64, String)> = curves
            .iter()
            .map(|named| (named.curve.at(objects).miss_ratio, named.method.to_string()))
            .collect();
        ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
        let list: Vec<String> = ratios
            .iter()
            .map(|(ratio, name)| format!("{name} {:.1} %", 100.0 * ratio))
            .collect();
        reasons.push(format!(
            "{policy} misses least over the sizes looked at; there the policies miss, page by page: {}.",
            list.join(", ")
        ));
        let modes: Vec<String> = [
            Some(knee),
            through,
            candidates[sized..]
                .iter()
                .position(|one| one.write == WriteMode::Around.to_string())
                .map(|at| sized + at),
        ]
        .into_iter()
        .flatten()
        .map(|at| {
            format!(
                "{} {}",
                candidates[at].write,
                shown(candidates[at].response_us_mean)
            )
        })
        .collect();
        let why = match chosen == knee {
            true => {
                "write-back is faster by enough to let the fast device hold data of its own for a while"
            }
            false => "write-through is about as fast and never holds data the slow device lacks",
        };
        reasons.push(format!("By write mode: {}; {why}.", modes.join(", ")));
        let worn = match one.cache_writes_per_day > self.options.endurance {
            true => format!(
                "more than the {} its endurance allows: set flash_writes_per_day, or use a larger part of the device",
                self.options.endurance
            ),
            false => format!("within the {} its endurance allows", self.options.endurance),
        };
        reasons.push(format!(
            "It writes {} a day to the fast device, {:.2} times the cache, {worn}.",
            Bytes(one.flash_bytes_per_day as u64),
            one.cache_writes_per_day
        ));
        reasons.push(format!(
            "Both devices draw {:.2} W on average, the slow one alone {:.2} W.",
            one.watts, alone.watts
        ));
        (Some(chosen), reasons)
    }
}

fn by_response(a: &Candidate, b: &Candidate) -> std::cmp::Ordering {
    a.response_us_mean.total_cmp(&b.response_us_mean)
}

fn micros(span: Nanos) -> f64 {
    span.0 as f64 / 1e3
}

fn shown(micros: f64) -> String {
    Nanos((micros * 1e3) as u64).to_string()
}

fn watts(times: &Times) -> f64 {
    times.joules / times.span.secs_f64().max(1e-9)
}

/// The policy whose curve lies lowest at the sizes looked at; of equals the first.
fn best_policy(policies: &[Kind], curves: &[NamedCurve], sizes: &[Bytes]) -> Kind {
    let sum = |named: &NamedCurve| -> f64 {
        let ratios = sizes
            .iter()
            .map(|size| named.curve.at((size.0 / PAGE) as f64).miss_ratio);
        ratios.sum()
    };
    let sums = policies.iter().zip(curves.iter().map(sum));
    sums.min_by(|a, b| a.1.total_cmp(&b.1))
        .map_or(policies[0], |(kind, _)| *kind)
}

/// The least size with most of the gain.
fn knee(alone: &Times, candidates: &[Candidate]) -> usize {
    let alone = micros(alone.mean);
    let gain = |candidate: &Candidate| alone - candidate.response_us_mean;
    let best = candidates.iter().map(gain).fold(f64::MIN, f64::max);
    let enough = |candidate: &Candidate| gain(candidate) >= KNEE * best;
    candidates.iter().position(enough).unwrap_or(0)
}

#[cfg(test)]
mod tests;
