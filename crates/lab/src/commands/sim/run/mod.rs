//! `tanada sim run`: a trace on stacks of modelled devices, side by side.
//!
//! ```text
//! TRACE --once through--> survey -> layout ---------\
//! STACK.toml ... (those `tanada serve` takes) -> stacks -> sim::run, a thread for each -> table | JSON | HTML
//! ```
//!
//! A configuration is the one `tanada serve` would take: what it says of files, sockets and the admin API means
//! nothing here, and a real device in it is refused, because it has no virtual time.

mod comparison;
mod page;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use base::Nanos;
use clap::Args;
use config::{self, Config, Kind};
use device::model::Spec;
use indicatif::{ProgressBar, ProgressStyle};
use rayon::prelude::*;
use report::terminal::{self, Usage, quoted};
use serde::Serialize;
use sim::run::{
    Fit, Layout, Made, Modelled, Outcome, Pace, Replay, RunError, Stack, Stripe, Survey, WarmUp,
    run_watched,
};
use trace::{ReadOptions, Requests, TraceError, open_many};

use crate::reading::{self, OnBad, ReadTrace};
use comparison::text;
pub use comparison::{comparison, lead, long, remarks};

/// The model that `memory = true` stands for.
const MEMORY_MODEL: &str = "dram";

#[derive(Args)]
#[command(
    after_help = "The engine is that of `tanada serve`, in virtual time; contents are left out.\n\
    Example: tanada sim run web.csv.zst --config hdd.toml --config cache.toml --speed 2"
)]
pub struct Arguments {
    /// The trace; several files are one trace, merged by time.
    #[arg(required = true, value_name = "TRACE")]
    pub traces: Vec<PathBuf>,
    /// A stack: a configuration as `tanada serve` takes it, of modelled devices; several are compared.
    /// [default: the built-in one]
    #[arg(long, value_name = "STACK.toml")]
    pub config: Vec<PathBuf>,
    /// Which device or hybrid of the configurations the trace goes to [default: the exported one]
    #[arg(long, value_name = "NAME")]
    pub volume: Option<String>,
    #[command(flatten)]
    pub read: ReadTrace,
    /// What to do with requests beyond the volume's end: refuse, grow (the volume), wrap, scale (the
    /// addresses) or drop.
    #[arg(long, default_value = "refuse", value_name = "HOW")]
    pub fit: Fit,
    /// Send requests at their times in the trace, so many times as fast [default: 1]
    #[arg(long, value_name = "FACTOR", conflicts_with = "closed")]
    pub speed: Option<f64>,
    /// Send requests as fast as they are answered, so many at a time.
    #[arg(long, value_name = "DEPTH")]
    pub closed: Option<usize>,
    /// Requests under way at most when they are sent at their times; later ones wait, and that counts.
    #[arg(long, default_value_t = Replay::default().under_way_max, value_name = "N")]
    pub in_flight: usize,
    /// Do not measure the first so many requests (100000), or so much time (10m).
    #[arg(long, value_name = "COUNT|SPAN", value_parser = read_warm_up)]
    pub warm_up: Option<WarmUp>,
    /// Take only so many requests of the trace.
    #[arg(long, value_name = "COUNT")]
    pub limit: Option<u64>,
    /// The length of a point over time [default: so that there are 72 to 360]
    #[arg(long, value_name = "SPAN", value_parser = config::read_span)]
    pub interval: Option<Nanos>,
    /// The seed of all chance.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Print the outcomes as JSON, one for each configuration.
    #[arg(long)]
    pub json: bool,
    /// Write a report: one self-contained HTML file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// `100000` requests, or `10m`.
pub fn read_warm_up(text: &str) -> Result<WarmUp, String> {
    match text.parse() {
        Ok(requests) => Ok(WarmUp::Requests(requests)),
        Err(_) => config::read_span(text).map(WarmUp::For).map_err(|_| {
            format!("'{text}' is neither a number of requests nor a span of time such as \"10m\"")
        }),
    }
}

/// A trace that has been read once: where it is, how it is read, how far it reaches.
pub struct Source {
    paths: Vec<PathBuf>,
    options: ReadOptions,
    /// What the trace says of its having been generated.
    pub generated: Option<String>,
    /// Requests, span, and how far each device reaches.
    pub survey: Survey,
}

impl Source {
    /// Reads the trace (its first `limit` requests, if there is a limit) from one end to the other. `progress`
    /// hears how many requests were read.
    pub fn survey(
        paths: &[PathBuf],
        options: ReadOptions,
        limit: Option<u64>,
        progress: &mut dyn FnMut(u64),
    ) -> anyhow::Result<Source> {
        if paths.iter().any(|path| path == Path::new("-")) {
            let what =
                "a simulation reads its trace more than once: write it to a file and name that";
            return Err(Usage(what.to_owned()).into());
        }
        let mut trace = match open_many(paths, &options) {
            Err(TraceError::Options(why)) => return Err(Usage(why).into()),
            answer => answer?,
        };
        let survey = Survey::of(&mut trace, None, limit, progress)?;
        reading::remarks(&trace);
        Ok(Source {
            generated: trace.generated().map(str::to_owned),
            paths: paths.to_owned(),
            survey: survey.map_err(|error| Usage(error.to_string()))?,
            options,
        })
    }

    /// What to call it.
    pub fn name(&self) -> String {
        reading::name(&self.paths)
    }

    /// Opens the trace once more.
    pub fn open(&self) -> Result<Box<dyn Requests>, TraceError> {
        Ok(Box::new(open_many(&self.paths, &self.options)?))
    }

    /// Where its requests go.
    pub fn layout(&self, fit: Fit) -> anyhow::Result<Layout> {
        Layout::of(&self.survey, None, fit).map_err(|error| Usage(error.to_string()).into())
    }
}

/// The stack that a configuration describes: its devices by their models, its hybrids, and the volume (the one
/// named, else the one exported, else the only thing that is part of nothing else). `origin` is what mistakes call
/// the text.
pub fn stack(text: &str, origin: &str, name: &str, volume: Option<&str>) -> anyhow::Result<Stack> {
    let config = config::read(text, origin, None)?;
    let usage = |what: String| anyhow::Error::from(Usage(format!("{origin}: {what}")));
    let (mut devices, mut stripes) = (Vec::new(), Vec::new());
    for device in &config.devices {
        let (model, size) = match &device.kind {
            Kind::Model { model, size, .. } => (model.as_str(), *size),
            Kind::Memory { size } => (MEMORY_MODEL, *size),
            Kind::Striped { members, chunk } => {
                stripes.push(Stripe {
                    name: device.name.clone(),
                    members: members.clone(),
                    chunk: *chunk,
                });
                continue;
            }
            Kind::Path { path, .. } => {
                return Err(usage(format!(
                    "device \"{}\" is a real one ({}), and a simulation has only models: write model = \"...\" and \
                     size = \"...\" in place of path (`tanada model list` lists them)",
                    device.name,
                    path.display()
                )));
            }
        };
        devices.push(Modelled {
            name: device.name.clone(),
            spec: Spec::find(model).with_context(|| format!("{origin}: device {}", device.name))?,
            size,
        });
    }
    let volume = chosen_volume(&config, volume).map_err(usage)?;
    let hybrids = config.hybrids.into_iter().map(|hybrid| Made {
        settings: hybrid.settings,
        slow: hybrid.slow,
        fast: hybrid.fast,
    });
    Ok(Stack {
        name: name.to_owned(),
        devices,
        stripes,
        hybrids: hybrids.collect(),
        volume,
        config: text.to_owned(),
    })
}

fn chosen_volume(config: &Config, asked: Option<&str>) -> Result<String, String> {
    let devices = config.devices.iter().map(|device| device.name.as_str());
    let hybrids = config.hybrids.iter().map(|hybrid| hybrid.name());
    let all: Vec<&str> = devices.chain(hybrids).collect();
    let is_part = |name: &str| {
        let mut hybrids = config.hybrids.iter();
        let mut stripes = config
            .devices
            .iter()
            .filter_map(|device| match &device.kind {
                Kind::Striped { members, .. } => Some(members),
                _ => None,
            });
        hybrids.any(|hybrid| hybrid.slow == name || hybrid.fast == name)
            || stripes.any(|members| members.iter().any(|member| member == name))
    };
    let tops: Vec<&str> = all.iter().copied().filter(|name| !is_part(name)).collect();
    if let Some(asked) = asked {
        return match all.contains(&asked) {
            true => Ok(asked.to_owned()),
            false => Err(format!(
                "there is no device, stripe or hybrid \"{asked}\"{}",
                config::instead(asked, all, "there are")
            )),
        };
    }
    let mut exported: Vec<&str> = config
        .exports
        .iter()
        .filter(|export| export.volume.is_none())
        .map(|export| export.device.as_str())
        .collect();
    exported.sort_unstable();
    exported.dedup();
    match (exported.as_slice(), tops.as_slice()) {
        ([one], _) | ([], [one]) => Ok((*one).to_owned()),
        ([], []) => Err(
            "there is no [[device]] that a trace could go to; `tanada config example` shows some"
                .to_owned(),
        ),
        ([], several) | (several, _) => Err(format!(
            "there are {}: say with --volume which one the trace goes to",
            several.join(", ")
        )),
    }
}

/// Replays `trace` on the stack that the configuration `text` describes, under the name `name`; `replay` says
/// everything but the layout, which is made of `fit`. For sweeps.
pub fn run_config_text(
    text: &str,
    name: &str,
    volume: Option<&str>,
    trace: &Source,
    fit: Fit,
    replay: &Replay,
    progress: &mut dyn FnMut(u64),
) -> anyhow::Result<Outcome> {
    let stack = stack(text, name, name, volume)?;
    let replay = Replay {
        layout: trace.layout(fit)?,
        ..replay.clone()
    };
    let outcome = run_watched(&stack, &mut *trace.open()?, &replay, progress);
    outcome.map_err(as_usage)
}

/// What the user asked for and cannot be is bad usage; the rest is a job that failed.
fn as_usage(error: RunError) -> anyhow::Error {
    match error {
        RunError::Layout { .. }
        | RunError::Replay { .. }
        | RunError::TooLong { .. }
        | RunError::Model { .. }
        | RunError::Hybrid { .. } => Usage(error.to_string()).into(),
        error => error.into(),
    }
}

/// Runs `tanada sim run`.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let texts = texts(arguments)?;
    let volume = arguments.volume.as_deref();
    // What is wrong with one of them is reported before the trace is read.
    for text in &texts {
        stack(&text.text, &text.origin, &text.name, volume)?;
    }
    let bar = Bar::new("reading the trace")?;
    let options = arguments.read.options();
    let source = Source::survey(&arguments.traces, options, arguments.limit, &mut |read| {
        bar.set(read)
    })?;
    let replay = Replay {
        pace: match arguments.closed {
            Some(depth) => Pace::Closed { depth },
            None => Pace::Open {
                speed: arguments.speed.unwrap_or(1.0),
            },
        },
        warm_up: arguments.warm_up.unwrap_or_default(),
        limit: arguments.limit,
        under_way_max: arguments.in_flight,
        interval: arguments.interval,
        heat: arguments.html.is_some() || arguments.json,
        seed: arguments.seed,
        ..Replay::default()
    };
    bar.begin("replaying", source.survey.requests * texts.len() as u64);
    let one = |text: &Text| {
        let mut shown = 0;
        let progress = &mut |taken| bar.add(taken - std::mem::replace(&mut shown, taken));
        let fit = arguments.fit;
        run_config_text(
            &text.text, &text.name, volume, &source, fit, &replay, progress,
        )
    };
    // All are waited for: which mistake is reported must not depend on which thread came first.
    let outcomes: Vec<anyhow::Result<Outcome>> = texts.par_iter().map(one).collect();
    bar.end();
    let outcomes = outcomes
        .into_iter()
        .collect::<anyhow::Result<Vec<Outcome>>>()?;
    if let Some(file) = &arguments.html {
        let html = page::page(&outcomes, &source, &command_line(arguments));
        std::fs::write(file, html)
            .with_context(|| format!("cannot write the report to {}", file.display()))?;
    }
    match arguments.json {
        true => {
            let generated = source.generated.as_deref();
            let json = |outcome| Json { generated, outcome };
            terminal::json(&outcomes.iter().map(json).collect::<Vec<Json<'_>>>())
        }
        false => terminal::text(&text(&outcomes, &source.name())),
    }
}

/// An outcome as programs read it.
#[derive(Serialize)]
struct Json<'a> {
    /// What the trace says of its having been generated.
    #[serde(skip_serializing_if = "Option::is_none")]
    generated: Option<&'a str>,
    #[serde(flatten)]
    outcome: &'a Outcome,
}

/// A configuration to be simulated.
struct Text {
    /// What the outcome is called.
    name: String,
    /// What mistakes call it.
    origin: String,
    text: String,
}

fn texts(arguments: &Arguments) -> anyhow::Result<Vec<Text>> {
    let mut texts: Vec<Text> = Vec::new();
    for path in &arguments.config {
        let origin = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|error| Usage(format!("cannot read the stack {origin}: {error}")))?;
        // A stack is called by its file's name, or by its path where that is taken.
        let stem = path
            .file_stem()
            .unwrap_or(path.as_os_str())
            .to_string_lossy();
        let name = match texts.iter().any(|text| text.name == stem) {
            true => origin.clone(),
            false => stem.into_owned(),
        };
        texts.push(Text { name, origin, text });
    }
    if texts.is_empty() {
        texts.push(Text {
            name: "built-in".to_owned(),
            origin: "the built-in configuration".to_owned(),
            text: config::default_text(Path::new(config::DATA_DIR)),
        });
    }
    Ok(texts)
}

/// The command that does the same again.
fn command_line(arguments: &Arguments) -> String {
    let mut words = vec!["tanada sim run".to_owned()];
    let path = |path: &Path| quoted(&path.display().to_string());
    words.extend(arguments.traces.iter().map(|trace| path(trace)));
    let mut option = |name: &str, value: Option<String>| {
        words.extend(value.map(|value| format!("--{name} {}", quoted(&value))));
    };
    for config in &arguments.config {
        option("config", Some(config.display().to_string()));
    }
    option("volume", arguments.volume.clone());
    let spelled = |span: Nanos| humantime::format_duration(span.duration()).to_string();
    let read = &arguments.read;
    option("format", read.format.map(|format| format.to_string()));
    option("tick", read.tick.map(spelled));
    option(
        "bad",
        (read.bad == OnBad::Count).then(|| "count".to_owned()),
    );
    option("start", read.start.map(spelled));
    option("end", read.end.map(spelled));
    for device in &read.devices {
        option("device", Some(device.to_string()));
    }
    option("reorder", read.reorder.map(spelled));
    option("columns", read.columns.clone());
    option(
        "fit",
        (arguments.fit != Fit::Refuse).then(|| arguments.fit.word().to_owned()),
    );
    option("speed", arguments.speed.map(|speed| speed.to_string()));
    option("closed", arguments.closed.map(|depth| depth.to_string()));
    let usual = Replay::default().under_way_max;
    option(
        "in-flight",
        (arguments.in_flight != usual).then(|| arguments.in_flight.to_string()),
    );
    option("warm-up", arguments.warm_up.and_then(warm_up_word));
    option("limit", arguments.limit.map(|limit| limit.to_string()));
    option("interval", arguments.interval.map(spelled));
    option("seed", Some(arguments.seed.to_string()));
    words.join(" ")
}

fn warm_up_word(warm_up: WarmUp) -> Option<String> {
    match warm_up {
        WarmUp::None => None,
        WarmUp::Requests(count) => Some(count.to_string()),
        WarmUp::For(span) => Some(humantime::format_duration(span.duration()).to_string()),
    }
}

/// How it goes, on a terminal only.
struct Bar {
    bar: ProgressBar,
    done: AtomicU64,
}

impl Bar {
    fn new(what: &str) -> anyhow::Result<Bar> {
        let bar = ProgressBar::no_length();
        bar.set_style(ProgressStyle::with_template(
            "{spinner} {human_pos} requests  {msg}",
        )?);
        bar.set_message(what.to_owned());
        Ok(Bar {
            bar,
            done: AtomicU64::new(0),
        })
    }

    fn set(&self, done: u64) {
        self.bar.set_position(done);
    }

    fn begin(&self, what: &str, of: u64) {
        self.bar.set_position(0);
        self.bar.set_message(what.to_owned());
        if of > 0 {
            self.bar.set_length(of);
            let template =
                "{bar:30} {percent:>3} %  {human_pos} of {human_len} requests  {msg}  {eta} left";
            self.bar.set_style(
                ProgressStyle::with_template(template).expect("a constant that was tried"),
            );
        }
    }

    fn add(&self, more: u64) {
        let done = self.done.fetch_add(more, Ordering::Relaxed) + more;
        self.bar.set_position(done);
    }

    fn end(&self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests;
