//! What every command that reads a trace has in common: its options, its progress bar, its summary.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use base::Nanos;
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use report::terminal::Usage;
use trace::{self, Bad, Format, Op, ReadOptions, Request, Trace, TraceError};

/// How a trace is read.
#[derive(Args, Clone)]
pub struct ReadTrace {
    /// The format of the trace [default: by name and content]
    #[arg(long, value_name = "FORMAT", long_help = formats())]
    pub format: Option<Format>,
    /// The unit of time, such as 1ms, where the format does not say it (ascii, lis, cache-csv, oracle-general)
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub tick: Option<Nanos>,
    /// What a malformed record does.
    #[arg(long, value_enum, default_value_t = OnBad::Fatal)]
    pub bad: OnBad,
    /// Leave out what comes before this time, such as 10m, since the first request
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub start: Option<Nanos>,
    /// Leave out what comes at this time since the first request, or later
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub end: Option<Nanos>,
    /// Only this device; may be given several times
    #[arg(long = "device", value_name = "NUMBER")]
    pub devices: Vec<u32>,
    /// How much disorder in time is put right [default: none for csv and parquet, 5s for the others]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub reorder: Option<Nanos>,
    /// Where cache-csv has what, such as time=1,obj=2,size=3,op=4, by number or name
    #[arg(long, value_name = "COLUMNS")]
    pub columns: Option<String>,
}

/// What a malformed record does.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnBad {
    /// It ends the command with an error that names it.
    Fatal,
    /// It is left out and counted.
    Count,
}

fn formats() -> String {
    let mut text = "The format of the trace [default: by name and content]\n".to_owned();
    for format in Format::all() {
        text.push_str(&format!("\n- {format}: {}", format.about()));
    }
    text
}

/// Reads a time such as `1ms`.
pub fn time(text: &str) -> Result<Nanos, humantime::DurationError> {
    let time: Duration = humantime::parse_duration(text)?;
    Ok(Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
}

/// Whole seconds of a span such as `10s`; a number alone is in seconds, as it was before 0.2.
pub fn seconds(text: &str) -> Result<u32, String> {
    const DAY: u64 = 86_400;
    let said = || format!("'{text}' is no span of whole seconds up to a day; write such as 10s");
    let seconds = match text.parse::<u32>() {
        Ok(seconds) => u64::from(seconds),
        Err(_) => {
            let span = config::read_span(text)?;
            let whole = span.0.is_multiple_of(Nanos::secs(1).0);
            whole
                .then_some(span.0 / Nanos::secs(1).0)
                .ok_or_else(said)?
        }
    };
    let seconds = Some(seconds).filter(|seconds| *seconds <= DAY);
    seconds
        .and_then(|it| u32::try_from(it).ok())
        .ok_or_else(said)
}

/// The same, a second at least.
pub fn some_seconds(text: &str) -> Result<u32, String> {
    match seconds(text)? {
        0 => Err("it is a second at least".to_owned()),
        seconds => Ok(seconds),
    }
}

impl ReadTrace {
    /// The same for the library.
    pub fn options(&self) -> ReadOptions {
        ReadOptions {
            format: self.format,
            tick: self.tick,
            bad: match self.bad {
                OnBad::Fatal => Bad::Fatal,
                OnBad::Count => Bad::Count,
            },
            from: self.start,
            to: self.end,
            devices: (!self.devices.is_empty()).then(|| self.devices.clone()),
            reorder: self.reorder,
            columns: self.columns.clone(),
        }
    }

    /// Opens `files` as one trace; `-` is standard input.
    pub fn open(&self, files: &[PathBuf]) -> anyhow::Result<Trace> {
        match trace::open_many(files, &self.options()) {
            Err(TraceError::Options(why)) => Err(Usage(why).into()),
            answer => Ok(answer?),
        }
    }
}

/// How far the reading of a trace is, drawn on a terminal only.
pub struct ReadBar {
    bar: ProgressBar,
}

impl ReadBar {
    pub fn new(trace: &Trace) -> anyhow::Result<ReadBar> {
        let (bar, template) = match trace.progress() {
            (_, 0) => (ProgressBar::new_spinner(), "{spinner} {bytes} {msg}"),
            (_, whole) => (
                ProgressBar::new(whole),
                "{bar:30} {percent:>3} %  {bytes} of {total_bytes}, {eta} left  {msg}",
            ),
        };
        bar.set_style(ProgressStyle::with_template(template).context("the progress bar")?);
        Ok(ReadBar { bar })
    }

    /// Shows how far `trace` is.
    pub fn show(&self, trace: &Trace) {
        self.bar.set_position(trace.progress().0);
    }

    /// Goes away.
    pub fn end(self) {
        self.bar.finish_and_clear();
    }
}

/// What was read, counted along the way.
#[derive(Default)]
pub struct ReadCounts {
    pub requests: u64,
    pub reads: u64,
    pub span: Nanos,
}

impl ReadCounts {
    pub fn add(&mut self, batch: &[Request]) {
        self.requests += batch.len() as u64;
        self.reads += batch.iter().filter(|one| one.op == Op::Read).count() as u64;
        self.span = batch.last().map_or(self.span, |one| one.at);
    }
}

/// Says on stderr what was assumed, put right and left out.
pub fn remarks(trace: &Trace) {
    for line in trace.remarks() {
        eprintln!("{line}");
    }
}

/// The file, or the first of several, for a sentence.
pub fn name(files: &[PathBuf]) -> String {
    match files {
        [one] => shown(one),
        [first, rest @ ..] => format!("{} and {} more", shown(first), rest.len()),
        [] => String::new(),
    }
}

fn shown(file: &Path) -> String {
    file.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_of_whole_seconds_is_read_and_a_number_alone_counts_seconds() {
        assert_eq!(seconds("10s"), Ok(10));
        assert_eq!(seconds("1m 30s"), Ok(90));
        assert_eq!(seconds("7"), Ok(7));
        for odd in ["", "1ms", "25h", "soon", "-1"] {
            assert!(seconds(odd).is_err(), "{odd}");
        }
        assert_eq!(some_seconds("1s"), Ok(1));
        assert!(some_seconds("0s").is_err());
    }
}
