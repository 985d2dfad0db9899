//! `tanada trace ...`: work on block traces.

mod generate;
mod stat;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use report::terminal;
use report::terminal::Usage;
use report::terminal::table::size;
use serde_json::json;
use trace::write::{Form, TraceWriter, WriteError, copy};

use crate::reading::{ReadBar, ReadCounts, ReadTrace, name, remarks};

#[derive(Subcommand)]
pub enum TraceCommand {
    /// Write a trace in another form: the normal form, or one that fio replays.
    Convert(Convert),
    /// Make a trace by rule: hot spots that drift, Zipf, uniform, streams, a database.
    Generate(generate::Arguments),
    /// Say what is in traces: mix, sizes, order, load, footprint, hot spots.
    #[command(visible_alias = "info", alias = "stat")]
    Show(stat::Arguments),
}

/// `tanada trace convert`.
#[derive(Args)]
#[command(
    after_help = "Files ending in .gz and .zst are packed so; - is standard input or output.\n\
                  Example: tanada trace convert src1_0.csv.gz src1_0.csv.zst --start 10m --end 20m"
)]
pub struct Convert {
    /// The trace; several files are one trace, merged by time (blktrace writes one for each CPU)
    #[arg(required = true, value_name = "IN")]
    pub from: Vec<PathBuf>,
    /// The file to write; it bears its name once it is whole
    #[arg(value_name = "OUT")]
    pub to: PathBuf,
    /// The form to write: csv, parquet or fio [default: by the ending of OUT, else csv]
    #[arg(long = "to", value_name = "FORM")]
    pub form: Option<Form>,
    /// Overwrite OUT if it is there.
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub read: ReadTrace,
    /// Print what was done as JSON.
    #[arg(long)]
    pub json: bool,
}

pub fn run(command: TraceCommand) -> anyhow::Result<()> {
    match command {
        TraceCommand::Convert(arguments) => convert(&arguments),
        TraceCommand::Generate(arguments) => generate::run(&arguments),
        TraceCommand::Show(arguments) => stat::run(&arguments),
    }
}

fn convert(arguments: &Convert) -> anyhow::Result<()> {
    let to_stdout = arguments.to.as_os_str() == "-";
    if to_stdout && arguments.json {
        let why =
            "--json and the trace cannot both go to standard output; name a file for the trace";
        return Err(Usage(why.to_owned()).into());
    }
    let form = arguments
        .form
        .unwrap_or_else(|| Form::of_name(&arguments.to));
    let mut trace = arguments.read.open(&arguments.from)?;
    let writer = match TraceWriter::create(&arguments.to, form, arguments.force) {
        Err(error @ (WriteError::Exists { .. } | WriteError::Packed { .. })) => {
            return Err(Usage(error.to_string()).into());
        }
        answer => answer?,
    };
    let bar = ReadBar::new(&trace)?;
    let mut seen = ReadCounts::default();
    let written = copy(&mut trace, writer, |trace, batch| {
        seen.add(batch);
        bar.show(trace);
    })?;
    bar.end();
    remarks(&trace);
    let read_share = seen.reads as f64 / seen.requests.max(1) as f64;
    eprintln!(
        "{} ({}): {} requests in {}, {:.1} % of them reads -> {} ({form}): {}",
        name(&arguments.from),
        trace.format(),
        written.requests,
        seen.span,
        read_share * 100.0,
        arguments.to.display(),
        size(written.bytes),
    );
    for (number, name) in trace.device_names() {
        eprintln!("device {number}: {name}");
    }
    if !arguments.json {
        return Ok(());
    }
    let devices = trace.device_names().iter();
    terminal::json(&json!({
        "from": arguments.from,
        "format": trace.format().name(),
        "to": arguments.to,
        "form": form.to_string(),
        "requests": written.requests,
        "span_ns": seen.span.0,
        "read_share": read_share,
        "bytes": written.bytes,
        "malformed": trace.malformed().count,
        "put_in_order": trace.disorder().count,
        "devices": devices
            .map(|(number, name)| json!({"device": number, "name": name}))
            .collect::<Vec<_>>(),
        "notes": trace.notes(),
    }))
}
