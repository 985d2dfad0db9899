//! `kind = "run"`: each point replays a trace on a stack of modelled devices.
//!
//! ```text
//! settings of a point: trace, format | replay: how it is replayed | all else: the configuration of the stack
//! outcome -> one row: response times, rates, energy, each device, each hybrid
//! ```

use anyhow::{Context, bail};
use lab::sweep::{Figure, Job, JobError, ORIGIN, Point, Row};
use serde::Deserialize;
use sim::run::{Fit, Layout, Outcome, Pace, Replay, Survey, WarmUp, run};
use toml::Value;

use super::source::{Memo, Remarks, Source, read};
use crate::commands::sim::run as command;

/// So many traces' extents are kept.
const SURVEYS: usize = 64;

/// Replays points.
pub struct RunJob {
    /// With what there is to say of where their requests come from.
    surveys: Memo<(Survey, Option<String>)>,
    remarks: Remarks,
}

/// `[base.replay]`, named as the options of `tanada sim run`.
#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    volume: Option<String>,
    device: Option<u32>,
    fit: Option<String>,
    speed: Option<f64>,
    closed: Option<usize>,
    in_flight: Option<usize>,
    warm_up: Option<Value>,
    limit: Option<u64>,
}

impl RunJob {
    pub fn new(remarks: Remarks) -> RunJob {
        RunJob {
            surveys: Memo::new(SURVEYS),
            remarks,
        }
    }

    fn row(&self, point: &Point) -> anyhow::Result<Row> {
        let mut settings = point.settings.clone();
        let source = Source::take(&mut settings, point.seed)?;
        let replay: Settings = match settings.remove("replay") {
            Some(Value::Table(replay)) => read(replay).context("its [base.replay]")?,
            Some(_) => bail!("replay is no table; write [base.replay]"),
            None => Settings::default(),
        };
        if settings.is_empty() {
            bail!("it has no stack; name its configuration: config = \"STACK.toml\"");
        }
        let text = toml::to_string(&settings)?;
        let stack = command::stack(&text, "the stack", "sweep", replay.volume.as_deref())?;
        let key = format!("{} {:?} {:?}", source.key(), replay.device, replay.limit);
        let survey = self.surveys.get(&key, || {
            let mut trace = source.open()?;
            let survey = Survey::of(&mut trace, replay.device, replay.limit, &mut |_| {})??;
            self.remarks.say(&source, &trace);
            Ok((survey, trace.origin()))
        })?;
        let (survey, origin) = &*survey;
        let fit = match &replay.fit {
            Some(word) => word.parse().map_err(anyhow::Error::msg)?,
            None => Fit::Refuse,
        };
        let how = Replay {
            pace: match (replay.speed, replay.closed) {
                (Some(_), Some(_)) => {
                    bail!("replay.speed and replay.closed exclude each other; write one of them")
                }
                (_, Some(depth)) => Pace::Closed { depth },
                (speed, None) => Pace::Open {
                    speed: speed.unwrap_or(1.0),
                },
            },
            warm_up: warm_up(replay.warm_up.as_ref())?,
            limit: replay.limit,
            under_way_max: replay.in_flight.unwrap_or(Replay::default().under_way_max),
            layout: Layout::of(survey, replay.device, fit)?,
            seed: point.seed,
            ..Replay::default()
        };
        let mut row = row(&run(&stack, &mut source.open()?, &how)?);
        if let Some(origin) = origin {
            row.push((ORIGIN.to_owned(), origin.as_str().into()));
        }
        Ok(row)
    }
}

fn warm_up(value: Option<&Value>) -> anyhow::Result<WarmUp> {
    match value {
        None => Ok(WarmUp::None),
        Some(Value::Integer(requests)) if *requests >= 0 => Ok(WarmUp::Requests(*requests as u64)),
        Some(Value::String(text)) => command::read_warm_up(text).map_err(anyhow::Error::msg),
        Some(other) => {
            bail!("replay.warm_up is {other}; write a number of requests or a span such as \"10m\"")
        }
    }
}

impl Job for RunJob {
    fn run(&self, point: &Point) -> Result<Vec<Row>, JobError> {
        match self.row(point) {
            Ok(row) => Ok(vec![row]),
            Err(error) => Err(report::terminal::said::words(&error).into()),
        }
    }
}

/// An outcome's figures by name, those looked at first in front.
fn row(outcome: &Outcome) -> Row {
    let mut row = Row::new();
    let mut put = |name: String, figure: Figure| row.push((name, figure));
    if let Some(all) = outcome.response("all") {
        put("all_mean_us".to_owned(), all.mean_us.into());
        put("all_p99_us".to_owned(), all.p99_us.into());
    }
    put("iops".to_owned(), outcome.speed.iops.into());
    for cache in &outcome.caches {
        // Unknown without reads.
        for (name, share) in [
            ("request_hit_share", cache.request_hit_share),
            ("hit_share", cache.hit_share),
        ] {
            if let Some(share) = share {
                put(format!("{}.{name}", cache.name), share.into());
            }
        }
    }
    put("watts".to_owned(), outcome.energy.watts.into());
    row.extend(times(outcome));
    row.extend(totals(outcome));
    row.extend(parts(outcome));
    let hash = outcome.setup.trace_hash.as_str();
    row.push(("trace_hash".to_owned(), hash.into()));
    row
}

/// How long requests took, by kind.
fn times(outcome: &Outcome) -> Row {
    let mut row = Row::new();
    for response in &outcome.speed.responses {
        let op = &response.op;
        for (name, value) in [
            ("mean", response.mean_us),
            ("p50", response.p50_us),
            ("p90", response.p90_us),
            ("p95", response.p95_us),
            ("p99", response.p99_us),
            ("p999", response.p999_us),
            ("max", response.max_us),
        ] {
            // Two of all requests stand in front.
            if op != "all" || !matches!(name, "mean" | "p99") {
                row.push((format!("{op}_{name}_us"), value.into()));
            }
        }
        row.push((format!("{op}_requests"), response.requests.into()));
    }
    row
}

/// Figures of the run as a whole.
fn totals(outcome: &Outcome) -> impl Iterator<Item = (String, Figure)> {
    let counts = [
        ("read_bytes", outcome.counts.read_bytes),
        ("written_bytes", outcome.counts.written_bytes),
        ("warm_up_requests", outcome.counts.warm_up_requests),
        ("left_out_requests", outcome.counts.left_out.sum()),
        ("late_requests", outcome.speed.backlog.late),
        ("queue_depth_max", outcome.speed.queue_depth_max),
        ("spin_ups", outcome.energy.spin_ups),
    ];
    let numbers = [
        ("seconds", outcome.speed.seconds),
        ("bytes_per_second", outcome.speed.bytes_per_second),
        ("queue_depth_mean", outcome.speed.queue_depth_mean),
        ("late_max_seconds", outcome.speed.backlog.late_max_s),
        ("joules", outcome.energy.joules),
    ];
    let counts = counts.map(|(name, value)| (name.to_owned(), value.into()));
    let numbers = numbers.map(|(name, value)| (name.to_owned(), value.into()));
    counts.into_iter().chain(numbers)
}

/// Figures of each device and each cache.
fn parts(outcome: &Outcome) -> Row {
    let mut row = Row::new();
    let mut put = |name: String, figure: Figure| row.push((name, figure));
    for device in &outcome.devices {
        let name = |figure: &str| format!("{}.{figure}", device.name);
        put(name("read_bytes"), device.read.bytes.into());
        put(name("written_bytes"), device.written.bytes.into());
        put(name("queue_depth_mean"), device.queue_depth_mean.into());
        put(name("utilisation_share"), device.utilisation.into());
        put(name("joules"), device.joules.into());
        if let Some(flash) = &device.flash {
            put(name("amplification"), flash.amplification.into());
            put(name("erases"), flash.erases.into());
        }
    }
    for cache in &outcome.caches {
        let name = |figure: &str| format!("{}.{figure}", cache.name);
        put(name("promoted_bytes"), cache.promoted_bytes.into());
        put(name("evicted_bytes"), cache.evicted_bytes.into());
        put(name("flash_data_bytes"), cache.flash_data_bytes.into());
        put(name("flash_ledger_bytes"), cache.flash_ledger_bytes.into());
        put(name("written_back_bytes"), cache.written_back_bytes.into());
        put(name("dirty_bytes"), cache.dirty_bytes.into());
    }
    row
}
