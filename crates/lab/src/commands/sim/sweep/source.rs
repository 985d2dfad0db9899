//! What do the points of a sweep run on: a trace file, or a generated one?
//!
//! Points of one sweep mostly share their trace: what was worked out of it once is kept for the others.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use anyhow::{Context, bail};
use base::{Bytes, Nanos, Set};
use config::read_span;
use indicatif::ProgressBar;
use serde::Deserialize;
use toml::{Table, Value};
use trace::generate::{Generator, Profile, Settings};
use trace::{Format, ReadOptions, Request, Requests, Trace, TraceError};

use crate::reading::remarks;

/// Where requests come from.
#[derive(Debug, Clone)]
pub enum Source {
    /// A file.
    File(PathBuf, ReadOptions),
    /// A workload made by rule.
    Generated(Profile, Settings),
}

/// `[base.generate]`, named as the options of `tanada trace generate`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    profile: String,
    seed: Option<u64>,
    part: Option<String>,
    requests: Option<u64>,
    #[serde(rename = "for")]
    span: Option<String>,
    size: Option<Bytes>,
    iops: Option<f64>,
    burst: Option<f64>,
    read_share: Option<f64>,
    block: Option<Bytes>,
    theta: Option<f64>,
    streams: Option<u32>,
    stream_share: Option<f64>,
    checkpoint: Option<String>,
}

impl Source {
    /// Takes what says where requests come from out of the settings of a point; what is generated has the point's
    /// `seed`, unless it names its own.
    pub fn take(settings: &mut Table, seed: u64) -> anyhow::Result<Source> {
        let generate = settings.remove("generate");
        let mut word = |key: &str| match settings.remove(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => bail!("{key} is {}; it must be a text", other.type_str()),
        };
        let (trace, format) = (word("trace")?, word("format")?);
        let format: Option<Format> = format.map(|name| name.parse()).transpose()?;
        match (trace, generate) {
            (Some(path), None) => Ok(Source::File(
                PathBuf::from(path),
                ReadOptions {
                    format,
                    ..ReadOptions::default()
                },
            )),
            (None, Some(Value::Table(generate))) => {
                generated(generate, seed).context("its [base.generate]")
            }
            (None, Some(_)) => bail!("generate is no table; write [base.generate]"),
            (None, None) => {
                bail!("it has no trace; write trace = \"FILE\" under [base], or [base.generate]")
            }
            (Some(_), Some(_)) => bail!("trace and generate exclude each other; write one of them"),
        }
    }

    /// The same text for the same requests.
    pub fn key(&self) -> String {
        match self {
            Source::File(path, options) => format!("{path:?} {:?}", options.format),
            Source::Generated(profile, settings) => format!("{profile} {settings:?}"),
        }
    }

    /// Opens it, from its beginning.
    pub fn open(&self) -> anyhow::Result<Opened> {
        Ok(match self {
            Source::File(path, options) => Opened::File(Box::new(trace::open(path, options)?)),
            Source::Generated(profile, settings) => {
                Opened::Generated(Box::new(Generator::new(*profile, settings)?))
            }
        })
    }
}

/// What a point reads.
pub enum Opened {
    /// A file.
    File(Box<Trace>),
    /// A workload made by rule.
    Generated(Box<Generator>),
}

impl Opened {
    /// What results say of where their requests come from; a file is named by the plan.
    pub fn origin(&self) -> Option<String> {
        match self {
            Opened::File(_) => None,
            Opened::Generated(generator) => Some(generator.origin()),
        }
    }
}

impl Requests for Opened {
    fn next_batch(&mut self, batch: &mut Vec<Request>) -> Result<bool, TraceError> {
        match self {
            Opened::File(trace) => trace.next_batch(batch),
            Opened::Generated(generator) => generator.next_batch(batch),
        }
    }
}

/// Says on stderr what was noted of each trace, once for each.
pub struct Remarks {
    bar: ProgressBar,
    said: Mutex<Set<String>>,
}

impl Remarks {
    /// Without a scratch on `bar`.
    pub fn new(bar: ProgressBar) -> Remarks {
        Remarks {
            bar,
            said: Mutex::default(),
        }
    }

    /// Says what was noted of a file that was read to its end; of a workload there is nothing to say.
    pub fn say(&self, source: &Source, opened: &Opened) {
        let (Source::File(path, _), Opened::File(trace)) = (source, opened) else {
            return;
        };
        let quiet =
            trace.notes().is_empty() && trace.disorder().count == 0 && trace.malformed().count == 0;
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if !quiet && said.insert(source.key()) {
            self.bar.suspend(|| {
                eprintln!("of {}", path.display());
                remarks(trace);
            });
        }
    }
}

fn generated(settings: Table, seed: u64) -> anyhow::Result<Source> {
    let written: Written = read(settings)?;
    let span = |text: Option<String>| -> anyhow::Result<Option<Nanos>> {
        text.map(|text| read_span(&text))
            .transpose()
            .map_err(anyhow::Error::msg)
    };
    let part = written.part.map(|part| part.parse()).transpose();
    let settings = Settings {
        seed: written.seed.unwrap_or(seed),
        part: part.map_err(anyhow::Error::msg)?,
        requests: written.requests,
        span: span(written.span)?,
        size: written.size,
        iops: written.iops,
        burst: written.burst,
        read_share: written.read_share,
        block: written.block,
        theta: written.theta,
        streams: written.streams,
        stream_share: written.stream_share,
        checkpoint: span(written.checkpoint)?,
    };
    Ok(Source::Generated(written.profile.parse()?, settings))
}

/// What remains of the settings once all else is taken, read as `T`.
pub fn read<T: serde::de::DeserializeOwned>(settings: Table) -> anyhow::Result<T> {
    Ok(T::deserialize(Value::Table(settings))?)
}

/// The last few things that were worked out, by name; each is worked out once, however many ask for it at a time.
pub struct Memo<T> {
    room: usize,
    kept: Mutex<Vec<(String, Slot<T>)>>,
}

type Slot<T> = Arc<OnceLock<Result<Arc<T>, String>>>;

impl<T> Memo<T> {
    /// Keeps the last `room` things.
    pub fn new(room: usize) -> Memo<T> {
        Memo {
            room,
            kept: Mutex::new(Vec::new()),
        }
    }

    /// The thing called `name`, worked out if it is not kept.
    pub fn get(
        &self,
        name: &str,
        work_out: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<Arc<T>> {
        let slot = self.slot(name);
        let known = slot.get_or_init(|| match work_out() {
            Ok(thing) => Ok(Arc::new(thing)),
            Err(error) => Err(report::terminal::said::words(&error)),
        });
        known.clone().map_err(anyhow::Error::msg)
    }

    fn slot(&self, name: &str) -> Slot<T> {
        // A thread that panicked while it was locked had changed nothing by halves.
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = match kept.iter().position(|(known, _)| known == name) {
            Some(at) => kept.remove(at).1,
            None => Slot::default(),
        };
        kept.push((name.to_owned(), Arc::clone(&slot)));
        if kept.len() > self.room {
            kept.remove(0);
        }
        slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_plans_name_what_there_is() {
        for name in ["policies", "stacks"] {
            let file = format!(
                "{}/../../experiments/sim/{name}.toml",
                env!("CARGO_MANIFEST_DIR")
            );
            let plan = lab::sweep::Plan::read(file.as_ref()).unwrap();
            for number in 0..plan.grid().len() {
                let point = plan.point(number);
                let mut settings = point.settings;
                let source = Source::take(&mut settings, point.seed).unwrap();
                if number == 0 {
                    let mut batch = Vec::new();
                    assert!(source.open().unwrap().next_batch(&mut batch).unwrap());
                }
                if plan.kind() == "run" {
                    settings.remove("replay");
                    let text = toml::to_string(&settings).unwrap();
                    crate::commands::sim::run::stack(&text, "the stack", "sweep", None).unwrap();
                }
            }
        }
    }

    #[test]
    fn requests_come_from_one_place_that_is_named_in_full() {
        let take =
            |text: &str| Source::take(&mut toml::from_str(text).unwrap(), 7).map(|from| from.key());
        let own =
            take("generate = { profile = 'zipf', requests = 10, for = '10m', seed = 3 }").unwrap();
        let points = take("generate = { profile = 'zipf', requests = 10, for = '10m' }").unwrap();
        assert!(
            own.contains("seed: 3") && points.contains("seed: 7"),
            "{own} {points}"
        );
        assert_ne!(
            take("trace = 'a'").unwrap(),
            take("trace = 'a'\nformat = 'csv'").unwrap()
        );
        for (text, reason) in [
            ("", "it has no trace"),
            (
                "trace = 'a'\ngenerate = { profile = 'zipf' }",
                "exclude each other",
            ),
            (
                "generate = { profile = 'zipf', sise = 1 }",
                "[base.generate]",
            ),
            ("generate = { profile = 'zopf' }", "[base.generate]"),
            ("trace = 5", "trace is integer"),
            ("trace = 'a'\nformat = 'tar'", "no trace format 'tar'"),
        ] {
            let refusal = format!("{:#}", take(text).expect_err(text));
            assert!(refusal.contains(reason), "{text}: {refusal}");
        }
    }

    #[test]
    fn what_is_kept_is_worked_out_once_and_the_oldest_gives_way() {
        let kept = Memo::new(2);
        let worked = std::cell::RefCell::new(String::new());
        for name in ["a", "b", "a", "c", "a", "b"] {
            let thing = kept.get(name, || {
                worked.borrow_mut().push_str(name);
                Ok(name.to_owned())
            });
            assert_eq!(*thing.unwrap(), name);
        }
        assert_eq!(worked.into_inner(), "abcb");
        let refusal = kept.get("d", || bail!("no")).unwrap_err().to_string();
        assert_eq!(refusal, "no");
    }
}
