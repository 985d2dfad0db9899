//! Advice on tiers from a trace: the search proposes, the engine decides.
//!
//! ```text
//! all of the trace -> counts -> search           -> learned parameters
//! its end          -> engine: | warm-up | measured | of each row -> the fastest -> lines for the configuration
//! ```
//!
//! Always true: each row is one whole run of the engine over the same requests.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use base::Bytes;
use device::model::Spec;
use hybrid::{Mode, Settings, Tier};
use policy::cache::Kind;
use policy::tier::worth::Costs;
use rayon::prelude::*;
use serde::Serialize;

use super::history::{Counting, History};
use super::reasons::{configuration, reasons};
use super::score::{Score, Terms};
use super::search::{Freedom, Learned, Setting, at_period, learn};
use crate::advise::engine::{Engine, flash_per_day, means, slow_requests};
use crate::advise::{
    AdviseError, Alone, ENGINE_REQUESTS, Options, SIZE_MIN, begins, counts, from_zero, too_large,
};
use crate::run::{Extent, Fit, Layout, RunError, Survey};
use trace::{Op, Request};

/// What advice is asked for.
#[derive(Debug, Clone)]
pub struct TierOptions {
    /// The device that holds everything.
    pub slow: Spec,
    /// The device with the tier.
    pub fast: Spec,
    /// How much of the fast device is used; none: an eighth of the regions the trace touches.
    pub size: Option<Bytes>,
    /// How often a day the fast device may be written over.
    pub endurance: f64,
    /// The engine replays so many requests of the end of the trace at most, and measures the later half of so many.
    pub engine_requests: usize,
    /// Of all chance.
    pub seed: u64,
}

/// What decisions alone would have done.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Simulated {
    /// Requests to regions that were up, of all.
    pub share: f64,
    /// Time of the slow device that is saved, moves taken off, of all.
    pub net_share: f64,
    /// The most regions up at once.
    pub regions_up_most: usize,
    /// Regions that went up.
    pub moves_up: u64,
    /// Regions that went down.
    pub moves_down: u64,
}

impl From<&Score> for Simulated {
    fn from(score: &Score) -> Simulated {
        Simulated {
            share: score.share(),
            net_share: score.net(),
            regions_up_most: score.up_most,
            moves_up: score.ups,
            moves_down: score.downs,
        }
    }
}

/// Parameters that were learned, and what decisions alone make of them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Proposal {
    /// Length of a region.
    pub region_bytes: u64,
    /// Length of an interval (t).
    pub period_seconds: f64,
    /// Requests a second (i).
    pub iops_min: f64,
    /// Regions (n).
    pub sub_luns_max: u32,
    /// Percent (m).
    pub share_min: f64,
    /// Intervals (c).
    pub streak_min: u32,
    /// Intervals (o).
    pub timeout: u32,
    /// With them, over all that is known.
    pub simulated: Simulated,
    /// With what is set now.
    pub present: Simulated,
    /// With parameters found in the first half alone, over the second.
    pub held_out: Simulated,
    /// With what is set now, over the second half.
    pub present_held_out: Simulated,
    /// Settings that were looked at.
    pub tried: usize,
}

impl From<&Learned> for Proposal {
    fn from(learned: &Learned) -> Proposal {
        let parameters = &learned.setting.parameters;
        Proposal {
            region_bytes: learned.setting.region.0,
            period_seconds: parameters.period.secs_f64(),
            iops_min: parameters.iops_min,
            sub_luns_max: parameters.sub_luns_max,
            share_min: parameters.share_min,
            streak_min: parameters.streak_min,
            timeout: parameters.timeout,
            simulated: (&learned.score).into(),
            present: (&learned.present).into(),
            held_out: (&learned.held_out).into(),
            present_held_out: (&learned.present_held_out).into(),
            tried: learned.tried,
        }
    }
}

/// One way to use the fast device, as the engine did with it; devices are modelled.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TierRow {
    /// `cache`, `tier` or `both`.
    pub mode: String,
    /// With the learned parameters, not with the defaults.
    pub learned: bool,
    /// Requests whose data all lived on the fast device when they came, of all replayed.
    pub fast_share: f64,
    /// Mean response time of the requests that were measured.
    pub response_us_mean: f64,
    /// 95 % were answered within it.
    pub response_us_p95: f64,
    /// 99 % were answered within it.
    pub response_us_p99: f64,
    /// Of reads.
    pub read_us_mean: f64,
    /// Of writes.
    pub write_us_mean: f64,
    /// The share of the slow device's requests that is saved; negative where there are more.
    pub slow_requests_saved: f64,
    /// Bytes a day that are written to the fast device, at the trace's pace.
    pub flash_bytes_per_day: f64,
    /// How often a day the whole fast device would be written over.
    pub device_writes_per_day: f64,
    /// Mean power of both devices.
    pub watts: f64,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TierAdvice {
    /// The model of the slow device.
    pub slow: String,
    /// The model of the fast device.
    pub fast: String,
    /// How much of the fast device is used.
    pub size_bytes: u64,
    /// Requests of the trace that read or write.
    pub requests: u64,
    /// Requests that the engine measured.
    pub timed_requests: u64,
    /// Requests before them that it replayed.
    pub warm_up_requests: u64,
    /// The slow device alone.
    pub alone: Alone,
    /// What was learned.
    pub learned: Proposal,
    /// What the engine did.
    pub rows: Vec<TierRow>,
    /// Which row is advised; none: leave it as it is.
    pub chosen: Option<usize>,
    /// The lines of `[[hybrid]]` in the configuration; none if nothing is advised.
    pub configuration: Option<String>,
    /// Why, in sentences.
    pub reasons: Vec<String>,
}

/// The finest regions and intervals that are looked at.
const REGION: Bytes = Bytes::mib(16);
const PERIOD_S: u64 = 10;
/// A lesser gain is none.
const GAIN_MIN: f64 = 0.05;
/// So much slower than the fastest may be what is simpler.
const MARGIN: f64 = 1.02;

/// Takes in the requests of a trace, then advises.
#[derive(Debug)]
pub struct TierAdviser {
    options: TierOptions,
    counting: Counting,
    survey: Survey,
    start: Option<base::Nanos>,
    requests: u64,
    /// The end of the trace.
    tail: VecDeque<Request>,
}

impl TierAdviser {
    /// Nothing taken in yet.
    ///
    /// # Errors
    /// [`AdviseError::Size`].
    pub fn new(options: TierOptions) -> Result<TierAdviser, AdviseError> {
        if let Some(size) = options.size.filter(|size| *size < SIZE_MIN) {
            return Err(AdviseError::Size(size));
        }
        Ok(TierAdviser {
            options,
            counting: Counting::new(REGION, base::Nanos::secs(PERIOD_S)),
            survey: Survey::default(),
            start: None,
            requests: 0,
            tail: VecDeque::new(),
        })
    }

    /// One more request.
    pub fn push(&mut self, request: &Request) {
        let Extent { requests, end } = self.survey.devices.entry(request.device).or_default();
        *requests += 1;
        if request.op != Op::Flush {
            *end = (*end).max(request.offset.0.saturating_add(request.size.0));
        }
        self.survey.requests += 1;
        if counts(request) {
            self.requests += 1;
            let start = *self.start.get_or_insert(request.at);
            let at = request.at.saturating_sub(start);
            let write = request.op == Op::Write;
            self.counting
                .push(at, request.device, request.offset, write);
        }
        let most = match self.options.engine_requests {
            0 => ENGINE_REQUESTS,
            some => some,
        };
        if self.tail.len() == most {
            self.tail.pop_front();
        }
        self.tail.push_back(*request);
    }

    /// The advice; `done` hears how many simulations are done, of how many.
    ///
    /// # Errors
    /// [`AdviseError`].
    pub fn advise(self, done: &(dyn Fn(usize, usize) + Sync)) -> Result<TierAdvice, AdviseError> {
        // What reaches too far is reported as everywhere.
        begins(&self.survey)?;
        let options = self.options;
        let layout = Layout::of(&self.survey, None, Fit::Grow).map_err(too_large)?;
        let history = self.counting.finish();
        let size = options
            .size
            .unwrap_or_else(|| usual_size(&history, options.fast.size));
        let (present, terms) = usual_setting(&history, size);
        let learned = learn(&history, &present, &terms, Freedom::All);

        let mut tail = Vec::from(self.tail);
        let warm_up = tail.len() / 2;
        from_zero(&mut tail);
        let timed = tail[warm_up..]
            .iter()
            .filter(|request| counts(request))
            .count();
        let engine_options = Options {
            slow: options.slow,
            fast: options.fast,
            policies: vec![Kind::default()],
            sizes: Vec::new(),
            endurance: options.endurance,
            engine_requests: tail.len(),
            seed: options.seed,
        };
        let engine = Engine {
            options: &engine_options,
            tail: &tail,
            warm_up,
            layout: &layout,
        };
        let differs = learned.setting != present;
        let (alone, rows) = measure(&engine, differs.then_some(&learned.setting), size, done)?;
        let endurance = options.endurance;
        let chosen = choice(&alone, &rows, learned.lasts(), endurance);
        let reasons = reasons(&alone, &rows, chosen, &learned, (size, endurance));
        let configuration = chosen.map(|at| {
            let setting = rows[at].learned.then_some(&learned.setting);
            configuration(&rows[at].mode, setting, size)
        });
        Ok(TierAdvice {
            slow: engine_options.slow.name.clone(),
            fast: engine_options.fast.name.clone(),
            size_bytes: size.0,
            requests: self.requests,
            timed_requests: timed as u64,
            warm_up_requests: warm_up as u64,
            alone,
            learned: (&learned).into(),
            rows,
            chosen,
            configuration,
            reasons,
        })
    }
}

/// An eighth of the regions the trace touches, in whole MiB.
fn usual_size(history: &History, fast: Bytes) -> Bytes {
    let counts = history.intervals.iter().flatten();
    let mut regions: Vec<u32> = counts.map(|count| count.region.0).collect();
    regions.sort_unstable();
    regions.dedup();
    let eighth = Bytes(regions.len() as u64 * history.region.0 / 8);
    Bytes(eighth.0.next_multiple_of(1 << 20)).clamp(Bytes::mib(64), fast.max(Bytes::mib(64)))
}

/// What a tier of this size does unless told otherwise, and what its moves go by.
fn usual_setting(history: &History, size: Bytes) -> (Setting, Terms) {
    let mut usual = Tier::default();
    usual.fit(size);
    let present = Setting {
        region: usual.region,
        parameters: match usual.parameters.period.0.is_multiple_of(history.period.0) {
            true => usual.parameters,
            false => at_period(&usual.parameters, history.period),
        },
    };
    let terms = Terms {
        kind: usual.policy,
        room: size,
        extent: usual.extent(),
        costs: Costs::default(),
    };
    (present, terms)
}

/// What the engine does with the slow device alone, and with each way to use the fast one; `learned` if that is
/// something else than the defaults.
fn measure(
    engine: &Engine<'_>,
    learned: Option<&Setting>,
    size: Bytes,
    done: &(dyn Fn(usize, usize) + Sync),
) -> Result<(Alone, Vec<TierRow>), RunError> {
    let mut ways = vec![(Mode::Cache, None), (Mode::Tier, None), (Mode::Both, None)];
    if learned.is_some() {
        ways.extend([(Mode::Tier, learned), (Mode::Both, learned)]);
    }
    let of = 1 + ways.len();
    let finished = AtomicUsize::new(0);
    let one_more = || done(1 + finished.fetch_add(1, Ordering::Relaxed), of);
    let alone = engine.alone()?;
    one_more();
    let rows: Result<Vec<TierRow>, RunError> = ways
        .par_iter()
        .map(|&(mode, setting)| {
            let row = row(engine, &alone, mode, setting, size);
            one_more();
            row
        })
        .collect();
    Ok((alone, rows?))
}

fn row(
    engine: &Engine<'_>,
    alone: &Alone,
    mode: Mode,
    setting: Option<&Setting>,
    size: Bytes,
) -> Result<TierRow, RunError> {
    let mut tier = Tier::default();
    if let Some(setting) = setting {
        tier.region = setting.region;
        tier.parameters = setting.parameters;
    }
    let outcome = engine.outcome(Settings {
        mode,
        tier,
        fast_bytes: Some(size),
        ..Settings::default()
    })?;
    let [response_us_mean, read_us_mean, write_us_mean] = means(&outcome);
    let (p95, p99) = outcome
        .response("all")
        .map_or((0.0, 0.0), |all| (all.p95_us, all.p99_us));
    let status = outcome.caches.first().map(|cache| &cache.status);
    let fast = status.map_or(0.0, |status| {
        status.requests.home_requests as f64 / (status.requests.user_requests as f64).max(1.0)
    });
    let per_day = flash_per_day(&outcome);
    let saved = slow_requests(&outcome) as f64 / (alone.slow_requests as f64).max(1.0);
    Ok(TierRow {
        mode: mode.to_string(),
        learned: setting.is_some(),
        fast_share: fast,
        response_us_mean,
        response_us_p95: p95,
        response_us_p99: p99,
        read_us_mean,
        write_us_mean,
        slow_requests_saved: 1.0 - saved,
        flash_bytes_per_day: per_day,
        device_writes_per_day: per_day / size.max(engine.options.fast.size).0 as f64,
        watts: outcome.energy.watts,
    })
}

/// The fastest in the mean; of those hardly slower the first. None if that gains too little.
///
/// Choice: rows go from the simple to the particular (a cache, tiers with defaults, tiers with what was learned), so
/// the first is the simplest. What was learned is tried on the trace it was learned from, so it counts only if what is
/// learned from the first half does the second good (`lasts`). What would wear out the fast device is not advised.
pub(super) fn choice(
    alone: &Alone,
    rows: &[TierRow],
    lasts: bool,
    endurance: f64,
) -> Option<usize> {
    let counts = |row: &&TierRow| (lasts || !row.learned) && row.device_writes_per_day <= endurance;
    let fastest = rows
        .iter()
        .filter(counts)
        .map(|row| row.response_us_mean)
        .fold(f64::INFINITY, f64::min);
    let gain = 1.0 - fastest / alone.response_us_mean.max(1e-9);
    if gain < GAIN_MIN {
        return None;
    }
    rows.iter()
        .position(|row| counts(&row) && row.response_us_mean <= fastest * MARGIN)
}

#[cfg(test)]
mod tests {
    use super::super::reasons::worn;
    use super::*;

    fn alone(mean: f64) -> Alone {
        Alone {
            response_us_mean: mean,
            read_us_mean: mean,
            write_us_mean: mean,
            slow_requests: 100,
            watts: 1.0,
        }
    }

    fn one(mode: &str, learned: bool, mean: f64) -> TierRow {
        TierRow {
            mode: mode.to_owned(),
            learned,
            fast_share: 0.5,
            response_us_mean: mean,
            response_us_p95: mean,
            response_us_p99: mean,
            read_us_mean: mean,
            write_us_mean: mean,
            slow_requests_saved: 0.5,
            flash_bytes_per_day: 0.0,
            device_writes_per_day: 0.5,
            watts: 1.0,
        }
    }

    #[test]
    fn what_wears_out_the_fast_device_is_not_advised_as_a_tier_either() {
        let rows = [one("cache", false, 50.0), one("both", false, 20.0)];
        let mut rows = rows;
        rows[1].device_writes_per_day = 1.5;
        assert_eq!(choice(&alone(100.0), &rows, true, 2.0), Some(1));
        assert_eq!(choice(&alone(100.0), &rows, true, 1.0), Some(0));
        assert_eq!(choice(&alone(100.0), &rows, true, 0.1), None);
        let said = worn(&alone(1e5), &rows[1], "mode \"both\"", 1.0);
        assert!(said.contains("none within the endurance"), "{said}");
        assert!(
            said.contains("1.500 times a day, and 1 are allowed"),
            "{said}"
        );
    }

    #[test]
    fn the_simplest_of_the_fastest_is_advised_and_nothing_where_nothing_helps() {
        let rows = [
            one("cache", false, 50.0),
            one("both", false, 40.4),
            one("both", true, 40.0),
        ];
        assert_eq!(choice(&alone(100.0), &rows, true, 1.0), Some(1));
        let rows = [
            one("cache", false, 50.0),
            one("both", false, 44.0),
            one("both", true, 40.0),
        ];
        assert_eq!(choice(&alone(100.0), &rows, true, 1.0), Some(2));
        assert_eq!(choice(&alone(41.0), &rows, true, 1.0), None);
        // What is learned of the one half does the other no good.
        assert_eq!(choice(&alone(100.0), &rows, false, 1.0), Some(1));
        assert_eq!(choice(&alone(44.0), &rows, false, 1.0), None);
    }

    /// A hot spot of 16 MiB in 4 GiB, for two minutes here and then there; nine tenths of 50 requests a second.
    fn wandering(seconds: u64) -> Vec<Request> {
        let mut state = 7u64;
        let mut below = move |n: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % n
        };
        let mut hot = 0;
        let mut requests = Vec::new();
        for n in 0..seconds * 50 {
            if n % 6000 == 0 {
                hot = below(255) * 4096;
            }
            let page = match below(10) {
                0..9 => hot + below(4096),
                _ => below(1 << 20),
            };
            requests.push(Request {
                at: base::Nanos::millis(n * 20),
                offset: Bytes(page * 4096),
                size: Bytes(4096),
                device: 0,
                op: if below(4) == 0 { Op::Write } else { Op::Read },
            });
        }
        requests
    }

    #[test]
    fn a_trace_is_advised_on_by_what_the_engine_did() {
        let options = TierOptions {
            slow: Spec::find("hdd-7200-sata").expect("a model"),
            fast: Spec::find("ssd-sata-mlc").expect("a model"),
            size: Some(Bytes::mib(128)),
            endurance: 1000.0,
            engine_requests: 40_000,
            seed: 1,
        };
        let mut adviser = TierAdviser::new(options).expect("good options");
        for request in wandering(1200) {
            adviser.push(&request);
        }
        let advice = adviser
            .advise(&|_, _| ())
            .expect("the trace can be replayed");
        assert_eq!(advice.requests, 60_000);
        assert_eq!(
            (advice.warm_up_requests, advice.timed_requests),
            (20_000, 20_000)
        );
        assert!(advice.rows.len() >= 3, "{advice:?}");
        // A smaller region than a GiB follows such small spots better.
        assert!(advice.learned.simulated.net_share > advice.learned.present.net_share);
        let at = advice.chosen.expect("a fast device helps");
        assert!(advice.rows[at].response_us_mean < 0.95 * advice.alone.response_us_mean);
        let lines = advice.configuration.expect("something is advised");
        assert!(lines.starts_with("mode = \"") && lines.contains("fast_size = \"128MiB\""));
        assert!(
            advice.reasons[0].starts_with("Advised: mode"),
            "{:?}",
            advice.reasons
        );
        let small = TierOptions {
            size: Some(Bytes(4096)),
            slow: Spec::find("hdd-7200-sata").expect("a model"),
            fast: Spec::find("ssd-sata-mlc").expect("a model"),
            endurance: 1.0,
            engine_requests: 0,
            seed: 1,
        };
        assert!(matches!(TierAdviser::new(small), Err(AdviseError::Size(_))));
    }
}
