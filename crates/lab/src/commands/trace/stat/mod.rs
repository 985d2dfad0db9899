//! `tanada trace show`: what is in a trace, for people, programs and browsers.
//!
//! ```text
//! files -> trace::open -> trace::stat -> a page of 80 columns | JSON, a line per file | one HTML file
//! ```

mod drawing;
mod html;
mod page;

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use anyhow::Context;
use base::{Bytes, Nanos};
use clap::Args;
use report::terminal;
use report::terminal::Usage;
use serde::Serialize;
use trace::Requests;
use trace::stat::{Options, Statistics, Summary};

use crate::reading::{ReadBar, ReadTrace, remarks, time};

#[derive(Args)]
#[command(
    after_help = "Hot regions, concentrations and the shares of the hottest regions follow the tiering \
                  paper; docs/traces.md says how each figure is counted.\n\
                  Example: tanada trace show --html report.html volume.csv.zst"
)]
pub struct Arguments {
    /// The traces, plain, gzip or zstd; each is looked at on its own.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The files are one trace, to be merged by time (blktrace writes one per CPU).
    #[arg(long)]
    merge: bool,
    /// How much of a device is one region.
    #[arg(long, default_value = "1GiB", value_name = "SIZE")]
    region: Bytes,
    /// How long the windows are in which concentration is looked at.
    #[arg(long, default_value = "60s", value_name = "TIME", value_parser = time)]
    window: Nanos,
    /// Leave windows with fewer reads and writes out.
    #[arg(long, default_value_t = 60, value_name = "REQUESTS")]
    min_io: u64,
    #[command(flatten)]
    read: ReadTrace,
    /// Print JSON: one object for each trace, a line each.
    #[arg(long)]
    json: bool,
    /// Write a report: one self-contained HTML file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// One trace that was looked at.
#[derive(Serialize)]
struct Looked {
    file: String,
    format: &'static str,
    malformed: u64,
    disordered: u64,
    /// (number, name) of devices that have one.
    device_names: Vec<(u32, String)>,
    notes: Vec<String>,
    #[serde(flatten)]
    summary: Summary,
}

/// Looks at each trace and shows it.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let options = Options {
        region: arguments.region,
        window: arguments.window,
        min_io: arguments.min_io,
    };
    // Before any file is opened.
    Statistics::new(options).map_err(|error| Usage(error.to_string()))?;
    let groups: Vec<&[PathBuf]> = match arguments.merge {
        true => vec![&arguments.files],
        false => arguments.files.chunks(1).collect(),
    };
    let mut all = Vec::new();
    for files in groups {
        let one = look(files, &arguments.read, options)?;
        match arguments.json {
            true => {
                let mut out = io::stdout().lock();
                serde_json::to_writer(&mut out, &one)?;
                writeln!(out)?;
            }
            false => {
                if !all.is_empty() {
                    terminal::text("\n")?;
                }
                terminal::text(&page::page(&one, terminal_width()))?;
            }
        }
        all.push(one);
    }
    if let Some(file) = &arguments.html {
        std::fs::write(file, html::html(&all, &terminal::own_command()))
            .with_context(|| format!("cannot write the report to {}", file.display()))?;
    }
    Ok(())
}

fn look(files: &[PathBuf], read: &ReadTrace, options: Options) -> anyhow::Result<Looked> {
    let mut trace = read.open(files)?;
    let name = files[0].file_name().unwrap_or(files[0].as_os_str());
    let file = match files.len() - 1 {
        0 => name.to_string_lossy().into_owned(),
        more => format!("{} +{more}", name.to_string_lossy()),
    };
    let bar = ReadBar::new(&trace)?;
    let mut statistics = Statistics::new(options)?;
    let mut batch = Vec::new();
    while trace.next_batch(&mut batch)? {
        statistics
            .add(&batch)
            .with_context(|| format!("cannot look at the trace {file}"))?;
        bar.show(&trace);
    }
    bar.end();
    remarks(&trace);
    Ok(Looked {
        file,
        format: trace.format().name(),
        malformed: trace.malformed().count,
        disordered: trace.disorder().count,
        device_names: trace.device_names().to_vec(),
        notes: trace.notes().to_vec(),
        summary: statistics.finish()?,
    })
}

/// Columns of the terminal; 80 where there is none.
fn terminal_width() -> usize {
    let columns = match io::stdout().is_terminal() {
        true => crossterm::terminal::size().map_or(80, |(columns, _)| columns.into()),
        false => 80,
    };
    columns.clamp(60, 160)
}

#[cfg(test)]
mod tests;
