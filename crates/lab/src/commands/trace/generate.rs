//! `tanada trace generate`: a workload made by rule, written as a trace.
//!
//! ```text
//! PROFILE + settings -> trace::generate -> CSV or another form, packed by the name's ending | standard output
//!                                      \-> summary: requests, span, SHA-256 of the normal form
//! ```
//!
//! The file says behind its header, in a remark, that it is generated and by which command; fio's iolog has no
//! room for it.

use std::path::PathBuf;

use base::{Bytes, Nanos};
use clap::Args;
use report::terminal;
use report::terminal::Usage;
use report::terminal::progress::bar;
use report::terminal::table::{share, size, table};
use serde_json::json;
use trace::GENERATED;
use trace::generate::{Fingerprint, Generator, Part, Profile, Settings, UnknownProfile};
use trace::write::{Form, TraceWriter, WriteError, copy};

use crate::reading::{ReadCounts, time};

/// `tanada trace generate`.
#[derive(Args)]
#[command(
    after_help = "Files ending in .gz and .zst are packed so; - is standard output.\n\
    Example: tanada trace generate src1-0 --part both -o src1-0.generated.csv.zst\n\
    Example: tanada trace generate zipf --size 256GiB --theta 1.1 --for 10m --iops 5000 -o zipf.csv"
)]
pub struct Arguments {
    /// The workload; --list shows them
    #[arg(required_unless_present = "list")]
    pub profile: Option<String>,
    /// List the profiles.
    #[arg(long)]
    pub list: bool,
    /// The file to write; it bears its name once it is whole
    #[arg(short, long, default_value = "-", value_name = "OUT")]
    pub output: PathBuf,
    /// The form to write: csv, parquet or fio [default: by the ending of OUT, else csv]
    #[arg(long = "to", value_name = "FORM")]
    pub form: Option<Form>,
    /// Overwrite OUT if it is there.
    #[arg(long)]
    pub force: bool,
    /// The seed of all chance: one seed, one trace, bit for bit
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// src1-0, src1-1, drifting: which windows: before (from which static tiering learns), window or both
    /// [default: window]
    #[arg(long)]
    pub part: Option<Part>,
    /// At most so many requests [default: 1000000 without --for; src1-0, src1-1 and drifting as long as they are]
    #[arg(long, value_name = "COUNT")]
    pub requests: Option<u64>,
    /// Only requests of the first so long, such as 10m
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    pub span: Option<Nanos>,
    #[command(flatten)]
    pub shape: ShapeArguments,
    /// Print what was done as JSON.
    #[arg(long)]
    pub json: bool,
}

// How the requests are, as far as that is asked for. A doc comment would be the command's.
#[derive(Args)]
pub struct ShapeArguments {
    /// The address space [default: 64GiB]
    #[arg(long)]
    pub size: Option<Bytes>,
    /// Mean requests per second [default: 1000, drifting 250]
    #[arg(long, value_name = "RATE")]
    pub iops: Option<f64>,
    /// Mean requests in a burst; 1 is a Poisson process [default: 1, drifting 8]
    #[arg(long, value_name = "COUNT")]
    pub burst: Option<f64>,
    /// Share of reads, such as 0.7 or 70% [default: 0.7, sequential 1, drifting 0.4]
    #[arg(long, value_name = "SHARE", value_parser = read_share)]
    pub read_share: Option<f64>,
    /// Size of a request [default: 4KiB, of a stream's 128KiB, of a database page 8KiB]
    #[arg(long, value_name = "SIZE")]
    pub block: Option<Bytes>,
    /// zipf, mixed, db: how steep the ranks fall [default: 0.99]
    #[arg(long)]
    pub theta: Option<f64>,
    /// sequential, mixed: how many streams [default: 1, mixed 4]
    #[arg(long, value_name = "COUNT")]
    pub streams: Option<u32>,
    /// mixed: share of requests that belong to streams [default: 0.3]
    #[arg(long, value_name = "SHARE", value_parser = read_share)]
    pub stream_share: Option<f64>,
    /// db: time between checkpoints [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub checkpoint: Option<Nanos>,
}

/// Reads `0.7` or `70%`.
fn read_share(text: &str) -> Result<f64, String> {
    let (number, whole) = match text.strip_suffix('%') {
        Some(percent) => (percent, 100.0),
        None => (text, 1.0),
    };
    match number.trim().parse::<f64>() {
        Ok(number) => Ok(number / whole),
        Err(_) => Err("a share is a number such as 0.7 or 70%".to_owned()),
    }
}

impl Arguments {
    /// The command that makes the same requests again.
    fn command(&self, profile: Profile) -> String {
        let spelled = |span: Nanos| {
            let text = humantime::format_duration(span.duration()).to_string();
            text.replace(' ', "")
        };
        let settings = [
            ("part", self.part.map(|part| part.to_string())),
            ("requests", self.requests.map(|count| count.to_string())),
            ("for", self.span.map(spelled)),
            ("size", self.shape.size.map(|size| size.0.to_string())),
            ("iops", self.shape.iops.map(|rate| rate.to_string())),
            ("burst", self.shape.burst.map(|count| count.to_string())),
            (
                "read-share",
                self.shape.read_share.map(|share| share.to_string()),
            ),
            ("block", self.shape.block.map(|size| size.0.to_string())),
            ("theta", self.shape.theta.map(|theta| theta.to_string())),
            ("streams", self.shape.streams.map(|count| count.to_string())),
            (
                "stream-share",
                self.shape.stream_share.map(|share| share.to_string()),
            ),
            ("checkpoint", self.shape.checkpoint.map(spelled)),
            ("seed", Some(self.seed.to_string())),
        ];
        let mut command = format!("tanada trace generate {profile}");
        for (name, value) in settings {
            if let Some(value) = value {
                command.push_str(&format!(" --{name} {value}"));
            }
        }
        command
    }

    fn settings(&self) -> Settings {
        Settings {
            seed: self.seed,
            part: self.part,
            requests: self.requests,
            span: self.span,
            size: self.shape.size,
            iops: self.shape.iops,
            burst: self.shape.burst,
            read_share: self.shape.read_share,
            block: self.shape.block,
            theta: self.shape.theta,
            streams: self.shape.streams,
            stream_share: self.shape.stream_share,
            checkpoint: self.shape.checkpoint,
        }
    }
}

/// Generates a trace, or lists what there is.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.profile {
        Some(name) if !arguments.list => generate(name, arguments),
        _ => list(arguments.json),
    }
}

fn list(json: bool) -> anyhow::Result<()> {
    if json {
        let profile = |one: Profile| json!({"name": one.name(), "about": one.about()});
        return terminal::json(&Profile::ALL.map(profile));
    }
    let row = |one: Profile| vec![one.name().to_owned(), one.about().to_owned()];
    terminal::text(&table(&["PROFILE", "ABOUT"], &Profile::ALL.map(row)))
}

fn generate(name: &str, arguments: &Arguments) -> anyhow::Result<()> {
    let usage = |error: &dyn std::error::Error| Usage(error.to_string());
    let profile: Profile = name
        .parse()
        .map_err(|error: UnknownProfile| usage(&error))?;
    let to_stdout = arguments.output.as_os_str() == "-";
    if to_stdout && arguments.json {
        let why = "--json and the trace cannot both go to standard output; name a file with -o";
        return Err(Usage(why.to_owned()).into());
    }
    let mut trace =
        Generator::new(profile, &arguments.settings()).map_err(|error| usage(&error))?;
    let origin = trace.origin();
    let form = arguments
        .form
        .unwrap_or_else(|| Form::of_name(&arguments.output));
    let mut writer = match TraceWriter::create(&arguments.output, form, arguments.force) {
        Err(error @ (WriteError::Exists { .. } | WriteError::Packed { .. })) => {
            return Err(usage(&error).into());
        }
        answer => answer?,
    };
    writer.remark(&format!("{GENERATED}{}", arguments.command(profile)));
    let bar = bar("{bar:30} {percent:>3} %  {msg}", 1_000);
    bar.set_message(origin.clone());
    let (mut seen, mut fingerprint) = (ReadCounts::default(), Fingerprint::default());
    let written = copy(&mut trace, writer, |trace, batch| {
        seen.add(batch);
        fingerprint.update(batch);
        bar.set_position((trace.done() * 1_000.0) as u64);
    })?;
    bar.finish_and_clear();
    let hash = fingerprint.finish();
    eprintln!(
        "{origin}: {} requests in {}, {} reads -> {} ({form}): {}\n\
         sha256 of the normal form: {hash}",
        written.requests,
        seen.span,
        share(seen.reads as f64, written.requests as f64),
        arguments.output.display(),
        size(written.bytes),
    );
    if !arguments.json {
        return Ok(());
    }
    terminal::json(&json!({
        "origin": origin,
        "generated": true,
        "profile": profile.name(),
        "part": profile.window().map(|_| arguments.part.unwrap_or_default().to_string()),
        "seed": arguments.seed,
        "to": arguments.output,
        "form": form.to_string(),
        "requests": written.requests,
        "span_ns": seen.span.0,
        "read_share": seen.reads as f64 / written.requests.max(1) as f64,
        "bytes": written.bytes,
        "sha256": hash,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_in_the_file_makes_the_same_requests_again() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            arguments: Arguments,
        }
        let given = "generate mixed --size 1GiB --for 90s --iops 12.5 --read-share 70% --block 8KiB \
                     --theta 1.1 --streams 3 --stream-share 0.25 --burst 2 --requests 77 --seed 9";
        let read = |line: &str| <Line as clap::Parser>::parse_from(line.split(' ')).arguments;
        let given = read(given);
        let command = given.command(Profile::Mixed);
        let rest = command.strip_prefix("tanada trace ").expect("our command");
        let again = read(rest);
        assert_eq!(again.profile.as_deref(), Some("mixed"));
        assert_eq!(
            format!("{:?}", again.settings()),
            format!("{:?}", given.settings())
        );
        assert!(command.ends_with(" --seed 9"), "{command}");
    }

    #[test]
    fn shares_are_numbers_or_percent() {
        assert_eq!(read_share("0.7"), Ok(0.7));
        assert_eq!(read_share("70%"), Ok(0.7));
        assert_eq!(read_share("100 %"), Ok(1.0));
        assert!(read_share("most").is_err());
    }
}
