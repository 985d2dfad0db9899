//! `kind = "cache"`: each point runs one policy at one size over a trace.
//!
//! ```text
//! settings of a point: trace, format | policy, size, unit, ops, write, admission -> sim::cache -> one row
//! ```

use anyhow::{Context, bail};
use base::Bytes;
use hybrid::{Admission, WriteMode};
use lab::sweep::{Figure, Job, JobError, ORIGIN, Point, Row};
use serde::Deserialize;
use sim::cache::{Compact, Method, Mode, Ops, Plan, Size, Unit};
use toml::Value;

use super::source::{Memo, Remarks, Source, read};

/// So many traces are kept in memory; more seeds of a generated one than that are generated again and again.
const TRACES: usize = 4;

/// Runs policies.
pub struct CacheJob {
    /// With what there is to say of where they come from.
    traces: Memo<(Compact, Option<String>)>,
    remarks: Remarks,
}

/// `[base]`, named as the options of `tanada sim cache`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    policy: String,
    size: Value,
    unit: Option<String>,
    ops: Option<String>,
    write: Option<String>,
    admission: Option<String>,
}

/// What a word of the settings says; without one, the usual.
fn word<T: std::str::FromStr>(word: Option<&str>, usual: T) -> anyhow::Result<T>
where
    T::Err: std::fmt::Display,
{
    match word {
        None => Ok(usual),
        Some(word) => word
            .parse()
            .map_err(|error: T::Err| anyhow::anyhow!("{error}")),
    }
}

/// The figures of a row by name.
fn figures(row: &sim::cache::Row) -> Row {
    let mut figures = Row::new();
    let mut put = |name: &str, figure: Figure| figures.push((name.to_owned(), figure));
    put("miss_ratio", row.miss_ratio.into());
    put("byte_miss_ratio", row.byte_miss_ratio.into());
    for (name, count) in [
        ("flash_bytes_written", row.traffic.flash_bytes_written),
        ("slow_bytes_read", row.traffic.slow_bytes_read),
        ("slow_bytes_written", row.traffic.slow_bytes_written),
        ("promotions", row.traffic.promotions),
        ("trace_request_misses", row.trace.trace_request_misses),
    ] {
        if let Some(count) = count {
            put(name, count.into());
        }
    }
    for (name, count) in [
        ("requests", row.requests),
        ("misses", row.misses),
        ("bytes", row.bytes),
        ("missed_bytes", row.missed_bytes),
        ("objects", row.objects),
        ("trace_requests", row.trace.trace_requests),
    ] {
        put(name, count.into());
    }
    figures
}

impl CacheJob {
    pub fn new(remarks: Remarks) -> CacheJob {
        CacheJob {
            traces: Memo::new(TRACES),
            remarks,
        }
    }

    fn row(&self, point: &Point) -> anyhow::Result<Row> {
        let mut settings = point.settings.clone();
        let source = Source::take(&mut settings, point.seed)?;
        let settings: Settings = read(settings).context("its [base]")?;
        let size = match &settings.size {
            // What a range of sizes hands out.
            Value::Integer(bytes) if *bytes > 0 => Size::Bytes(Bytes(*bytes as u64)),
            Value::String(text) => text.parse()?,
            other => bail!("size is {other}; write 1%, 24GiB or 4897obj"),
        };
        let unit = word(settings.unit.as_deref(), Unit::PAGE)?;
        let ops = word(settings.ops.as_deref(), Ops::default())?;
        let mode = Mode {
            write: word(settings.write.as_deref(), WriteMode::default())?,
            admission: word(settings.admission.as_deref(), Admission::Always)?,
        };
        if mode.write == WriteMode::Pass {
            bail!("write = \"pass\" caches nothing, so there is nothing to simulate");
        }
        let plan = Plan {
            methods: vec![word::<Method>(Some(&settings.policy), Method::Belady)?],
            sizes: vec![size],
            mode,
        };
        let key = format!("{} {unit} {ops}", source.key());
        let trace = self.traces.get(&key, || {
            let mut requests = source.open()?;
            let trace = Compact::load(&mut requests, unit, ops, &mut |_| {})?;
            self.remarks.say(&source, &requests);
            Ok((trace, requests.origin()))
        })?;
        let (trace, origin) = &*trace;
        let rows = plan.run(trace, &|_, _| {})?;
        let row = rows.first().context("a policy and a size make one row")?;
        let mut figures = figures(row);
        if let Some(origin) = origin {
            figures.push((ORIGIN.to_owned(), origin.as_str().into()));
        }
        Ok(figures)
    }
}

impl Job for CacheJob {
    fn run(&self, point: &Point) -> Result<Vec<Row>, JobError> {
        match self.row(point) {
            Ok(row) => Ok(vec![row]),
            Err(error) => Err(report::terminal::said::words(&error).into()),
        }
    }
}
