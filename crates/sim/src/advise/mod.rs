//! Advice: which cache would do a trace good, how much, and at what cost?
//!
//! ```text
//! trace -> curves of every policy (sampled when long) -> the policy that misses least over the sizes looked at
//!       -> that policy at each size, over timing cores  -> the knee: the least size with most of the gain
//!       -> other write modes and LRU at the knee        -> candidates by the quick model
//!       -> the best few, each with the sequential bypass of the default settings and without it, and the slow
//!          device alone, through the engine             -> Advice: one of them, its settings, reasons
//! ```
//!
//! The quick model is response times of device models under the requests of the trace at their times (see
//! `timed`), with hits and misses of the production policies and admission. It only ranks: what is advised
//! is chosen by what the engine itself does ([`crate::run`]), unless that is turned off.
//!
//! All figures are of the end of the trace; what comes before only warms the caches. The model warms up with
//! all of it, the engine with as many requests as are measured at most.
//!
//! Choice: the least size that gets nine tenths of the response time saved by the best size. At that size,
//! of all that are no more than a twentieth slower than the fastest: those that never hold data the slow
//! device does not have before write-back, and default settings before others. What writes the fast device
//! over more often than its endurance allows is not advised.
//!
//! Always true:
//! 1. The same trace and options give the same advice.
//! 2. Of each request of the trace no more is kept than four bytes per page and eight bytes more, of each page
//!    touched its place, and of the end a bounded number of requests.

mod advice;
mod choose;
mod engine;
mod html;
pub mod shadow;
pub mod tier;
mod timed;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use base::{Bytes, Instant, Nanos};
use device::model::{Spec, SpecError};
use hybrid::{Admission, WriteMode};
use policy::cache::Kind;
use rayon::prelude::*;

use crate::cache::{
    Builder, Compact, Curves, LoadError, Method, Mode, NamedCurve, Ops, Unit, simulate_watched,
};
use crate::run::{Extent, Fit, Layout, LayoutError, RunError, Survey};
use choose::{Choice, GAIN_MIN, KNEE, choice, configuration, shortlist};
use engine::Engine;
use timed::{Line, PAGE, Timed, Times, micros, watts};
use trace::{Op, Request};

pub use advice::{Advice, Alone, By, Candidate};
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
    /// How often a day the fast device may be written over, whatever part of it the cache is.
    pub endurance: f64,
    /// The engine replays so many requests of the end of the trace at most, and the later half of so many is
    /// measured; 0: the quick model alone, with [`ENGINE_REQUESTS`] in its place.
    pub engine_requests: usize,
    /// Of all chance.
    pub seed: u64,
}

/// As many requests as the engine usually replays for each candidate: seconds of work.
pub const ENGINE_REQUESTS: usize = 200_000;

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
    #[error("a cache of {0} is too small to be served: {SIZE_MIN} is the least")]
    Size(Bytes),
    /// No disk is as large.
    #[error(
        "the trace reaches beyond 2^63 bytes, its devices one behind the other, so it is probably damaged or read \
         in the wrong format; or choose one device of it with --device"
    )]
    TooLarge,
    /// The engine cannot replay it.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// The least cache the engine takes.
const SIZE_MIN: Bytes = Bytes(64 * PAGE);

/// Takes in the requests of a trace, then advises.
#[derive(Debug)]
pub struct Adviser {
    options: Options,
    builder: Builder,
    survey: Survey,
    /// The end of the trace.
    tail: VecDeque<Request>,
    tail_max: usize,
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
        if let Some(size) = options.sizes.iter().find(|size| **size < SIZE_MIN) {
            return Err(AdviseError::Size(*size));
        }
        let tail_max = match options.engine_requests {
            0 => ENGINE_REQUESTS,
            some => some,
        };
        Ok(Adviser {
            options,
            builder: Builder::new(Unit::PAGE, Ops::All),
            survey: Survey::default(),
            tail: VecDeque::new(),
            tail_max,
        })
    }

    /// One more request.
    ///
    /// # Errors
    /// [`AdviseError::Load`] if it is impossible.
    pub fn push(&mut self, request: &Request) -> Result<(), AdviseError> {
        self.builder.push(request)?;
        let Extent { requests, end } = self.survey.devices.entry(request.device).or_default();
        *requests += 1;
        if request.op != Op::Flush {
            *end = (*end).max(request.offset.0.saturating_add(request.size.0));
        }
        self.survey.requests += 1;
        if self.tail.len() == self.tail_max {
            self.tail.pop_front();
        }
        self.tail.push_back(*request);
        Ok(())
    }

    /// The advice; `done` hears how many simulations are done, of how many.
    ///
    /// # Errors
    /// [`AdviseError`].
    pub fn advise(self, done: &(dyn Fn(usize, usize) + Sync)) -> Result<Advice, AdviseError> {
        let begins = begins(&self.survey)?;
        let layout = Layout::of(&self.survey, None, Fit::Grow).map_err(too_large)?;
        let mut places = vec![0; self.builder.blocks().len()];
        for (device, page, block) in self.builder.blocks() {
            places[block as usize] = begins[&device] / PAGE + page;
        }
        let trace = self.builder.finish()?;
        let mut tail = Vec::from(self.tail);
        let warm_up = tail.len().saturating_sub(self.tail_max.div_ceil(2));
        from_zero(&mut tail);
        // The model's time begins where it measures.
        let mut timed = tail[warm_up..].to_vec();
        from_zero(&mut timed);
        let lines = timed.iter().filter(|request| counts(request));
        let lines: Vec<Line> = lines
            .map(|request| Line {
                at: Instant(request.at.0),
                offset: begins[&request.device] + request.offset.0,
                size: request.size.0 as u32,
                write: request.op == Op::Write,
            })
            .collect();
        let bed = Bed {
            options: self.options,
            places,
            trace,
            lines,
            size: layout.needed(),
            tail,
            warm_up,
            layout,
        };
        bed.advise(done)
    }
}

/// As the builder counts.
fn counts(request: &Request) -> bool {
    matches!(request.op, Op::Read | Op::Write) && request.size.0 > 0
}

fn too_large(_: LayoutError) -> AdviseError {
    AdviseError::TooLarge
}

/// Where each device begins, one behind the other, each at a whole MiB: as [`Layout`] has it.
fn begins(survey: &Survey) -> Result<std::collections::BTreeMap<u32, u64>, AdviseError> {
    let mut total = 0u64;
    let mut begins = std::collections::BTreeMap::new();
    for (device, extent) in &survey.devices {
        let begin = total
            .checked_next_multiple_of(1 << 20)
            .ok_or(AdviseError::TooLarge)?;
        begins.insert(*device, begin);
        total = begin
            .checked_add(extent.end)
            .filter(|end| *end <= 1 << 63)
            .ok_or(AdviseError::TooLarge)?;
    }
    Ok(begins)
}

/// Time begins with the first request.
fn from_zero(requests: &mut [Request]) {
    let start = requests.first().map_or(Nanos(0), |request| request.at);
    for request in requests {
        request.at = Nanos(request.at.0.saturating_sub(start.0));
    }
}

/// What every candidate is tried on.
struct Bed {
    options: Options,
    trace: Compact,
    /// Requests that are timed.
    lines: Vec<Line>,
    /// Of each block its page on the slow device.
    places: Vec<u64>,
    /// How much the slow device holds at least.
    size: Bytes,
    /// The end of the trace as it is, for the engine.
    tail: Vec<Request>,
    /// So many of that only warm up.
    warm_up: usize,
    layout: Layout,
}

const ADMISSION: Admission = Admission::SecondAccess;

/// How far it is.
struct Progress<'a> {
    done: AtomicUsize,
    of: usize,
    hears: &'a (dyn Fn(usize, usize) + Sync),
}

impl Progress<'_> {
    fn one_more(&self) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        (self.hears)(done, self.of);
    }
}

impl Bed {
    fn advise(self, done: &(dyn Fn(usize, usize) + Sync)) -> Result<Advice, AdviseError> {
        let options = &self.options;
        let touched = u64::from(self.trace.footprint()) * PAGE;
        let sizes = self.sizes(touched);
        let alone = timed::bare(&options.slow, self.size, &self.lines, options.seed)?;
        let curves = self.curves();
        let policy = best_policy(&options.policies, &curves, &sizes);

        let mut others = vec![(policy, WriteMode::Through), (policy, WriteMode::Around)];
        if policy != Kind::Lru {
            others.push((Kind::Lru, WriteMode::Back));
        }
        let tried = sizes.len() + others.len();
        let replays = match options.engine_requests {
            0 => 0,
            _ => 1 + 2 * tried.min(choose::SHORTLIST),
        };
        let progress = Progress {
            done: AtomicUsize::new(0),
            of: tried + replays,
            hears: done,
        };
        let try_out = |kind, size, write| {
            let one = self.try_out(kind, size, write, &alone);
            progress.one_more();
            one
        };
        let by_size: Result<Vec<Candidate>, AdviseError> = sizes
            .par_iter()
            .map(|&size| try_out(policy, size, WriteMode::Back))
            .collect();
        let mut candidates = by_size?;
        let knee = choose::knee(micros(alone.mean), &candidates, options.endurance);
        let of_size = choose::of_size(micros(alone.mean), &candidates, knee);
        let size = sizes[knee];
        let other: Result<Vec<Candidate>, AdviseError> = others
            .par_iter()
            .map(|&(kind, write)| try_out(kind, size, write))
            .collect();
        candidates.extend(other?);
        let mut alone = Alone::from(&alone);
        if options.engine_requests > 0 {
            (alone, candidates) = self.by_engine(&alone, candidates, &progress)?;
        }
        let of_policy = choose::of_policy(policy, (size.0 / PAGE) as f64, &curves);
        let advice = self.advice(alone, candidates, [of_size, of_policy]);
        Ok(Advice { curves, ..advice })
    }

    /// The miss-ratio curves of all policies.
    fn curves(&self) -> Vec<NamedCurve> {
        let policies = self.options.policies.iter();
        let curves = Curves {
            methods: policies.map(|kind| Method::Policy(*kind)).collect(),
            mode: Mode {
                write: WriteMode::Back,
                admission: ADMISSION,
            },
            rate: None,
            seed: self.options.seed,
        };
        curves.run(&self.trace, &|_, _| ())
    }

    /// What the engine does alone and with the best of the candidates, in place of what the model says.
    fn by_engine(
        &self,
        alone: &Alone,
        candidates: Vec<Candidate>,
        progress: &Progress<'_>,
    ) -> Result<(Alone, Vec<Candidate>), AdviseError> {
        let options = &self.options;
        let engine = Engine {
            options,
            tail: &self.tail,
            warm_up: self.warm_up,
            layout: &self.layout,
        };
        let list = shortlist(alone, &candidates, options.endurance);
        let alone = engine.alone()?;
        progress.one_more();
        let mut candidates = engine.replace(&alone, candidates, &list, &|| progress.one_more())?;
        let more = choose::untried(&alone, &candidates, options.endurance);
        if !more.is_empty() {
            candidates = engine.replace(&alone, candidates, &more, &|| ())?;
        }
        Ok((alone, candidates))
    }

    /// Which candidate is advised, and why: `why` its size and its policy, and what speaks for it among the others.
    fn advice(&self, alone: Alone, candidates: Vec<Candidate>, why: [String; 2]) -> Advice {
        let options = &self.options;
        let choice = choice(&alone, &candidates, options.endurance);
        let mut reasons = vec![choose::verdict(&alone, &candidates, choice, options)];
        let mut chosen = None;
        if let Choice::Advised(at) = choice {
            reasons.extend(why);
            reasons.extend(choose::of_the_choice(&alone, &candidates, at, options));
            chosen = Some(at);
        }
        let engine = options.engine_requests > 0;
        Advice {
            slow: options.slow.name.clone(),
            fast: options.fast.name.clone(),
            requests: self.trace.requests(),
            timed_requests: self.lines.len() as u64,
            engine_warm_up_requests: if engine { self.warm_up as u64 } else { 0 },
            trace_seconds: self.trace.span().secs_f64(),
            touched_bytes: u64::from(self.trace.footprint()) * PAGE,
            configuration: chosen.map(|at| configuration(&candidates[at])),
            alone,
            candidates,
            chosen,
            reasons,
            curves: Vec::new(),
        }
    }

    fn sizes(&self, touched: u64) -> Vec<Bytes> {
        let mut sizes = self.options.sizes.clone();
        if sizes.is_empty() {
            // Whole MiB, where that is not coarse.
            let grain = if touched >= 1 << 27 { 1 << 20 } else { PAGE };
            let part = |shift: u32| Bytes((touched >> shift).next_multiple_of(grain));
            sizes.extend((0..=6).rev().map(|shift| part(shift).max(SIZE_MIN)));
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
            self.trace.requests() - self.lines.len() as u64,
            options.seed,
        )?;
        simulate_watched(&self.trace, kind, size.0 / PAGE, mode, &mut timed);
        let times = timed.finish();
        let per_day =
            times.flash_bytes as f64 / days(self.lines.last().map_or(0, |last| last.at.0));
        let hits = |missed: u64, of: u64| 1.0 - missed as f64 / (of as f64).max(1.0);
        Ok(Candidate {
            policy: kind.to_string(),
            size_bytes: size.0,
            write: write.to_string(),
            sequential_bypass_bytes: None,
            by: By::Model,
            read_hit_ratio: hits(times.missed_reads, times.reads),
            response_us_mean: micros(times.mean),
            read_us_mean: micros(times.read_mean),
            write_us_mean: micros(times.write_mean),
            slow_requests: times.slow_requests,
            slow_requests_saved: hits(times.slow_requests, alone.slow_requests),
            flash_bytes_per_day: per_day,
            device_writes_per_day: per_day / size.max(options.fast.size).0 as f64,
            watts: watts(&times),
        })
    }
}

/// Nanoseconds in days; a second at least, so that a burst is not taken for a day's work and more.
fn days(nanos: u64) -> f64 {
    (nanos as f64 / 1e9).max(1.0) / 86_400.0
}

fn shown(micros: f64) -> String {
    Nanos((micros * 1e3) as u64).to_string()
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

#[cfg(test)]
mod tests;
