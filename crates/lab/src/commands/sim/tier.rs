//! `tanada sim tier`: which regions would a tiering rule have had on the fast device, interval by interval?
//!
//! ```text
//! trace -> sim::tier -> one line per interval (JSON) | a table and what it came to
//! ```

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use base::{Bytes, Nanos};
use clap::Args;
use policy::tier::{Hystor, Kind, Parameters, StaticTiering};
use report::terminal;
use report::terminal::Usage;
use report::terminal::table::{count, share, table};
use sim::tier::{Options, Row, Simulation, Summary, Window};
use trace::{Request, Requests, Trace};

use crate::reading::{ReadBar, ReadTrace, remarks, time};

#[derive(Args)]
#[command(after_help = "\
Regions are numbered from 1 in address order, intervals from 0, from the trace's first request on. A read or write \
counts in the region of its first byte. Moves are taken as done at once. The paper's letters: t --period, \
i --iops-min, n --sub-luns-max, m --share-min, c --streak-min, o --timeout.

Example: tanada sim tier trace.csv.zst --policy on-the-fly --fast-regions 24 --json")]
pub struct SimTier {
    /// Trace files of one recording, merged by time.
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// The rule: on-the-fly, static, hystor.
    #[arg(long, default_value_t, value_name = "RULE")]
    policy: Kind,
    /// One interval of statistics and decisions.
    #[arg(long, default_value = "60s", value_name = "TIME", value_parser = time)]
    period: Nanos,
    /// Below so many requests a second an interval is ignored.
    #[arg(long, default_value_t = Parameters::default().iops_min, value_name = "IOPS")]
    iops_min: f64,
    /// At most so many regions are considered in one interval.
    #[arg(long, default_value_t = Parameters::default().sub_luns_max, value_name = "REGIONS")]
    sub_luns_max: u32,
    /// The candidates take more than so many percent of all requests.
    #[arg(long, default_value_t = Parameters::default().share_min, value_name = "PERCENT")]
    share_min: f64,
    /// So many intervals in a row a group is a candidate before it goes up.
    #[arg(long, default_value_t = Parameters::default().streak_min, value_name = "INTERVALS")]
    streak_min: u32,
    /// After so many intervals in a row outside the candidates a region goes down.
    #[arg(long, default_value_t = Parameters::default().timeout, value_name = "INTERVALS")]
    timeout: u32,
    #[arg(long, value_name = "TIME", value_parser = time, help = window_help())]
    window: Option<Nanos>,
    /// What is counted and moved together: a power of two from 1 MiB on.
    #[arg(long, default_value = "1GiB", value_name = "SIZE")]
    region: Bytes,
    /// How many regions the fast device holds.
    #[arg(long, default_value_t = Options::default().fast_regions, value_name = "REGIONS")]
    fast_regions: u32,
    /// The trace of the window before, by which static tiering decides at the start.
    #[arg(long, value_name = "TRACE")]
    before: Vec<PathBuf>,
    #[command(flatten)]
    read: ReadTrace,
    /// Print JSON: one object per interval, a line each.
    #[arg(long)]
    json: bool,
}

fn window_help() -> String {
    let minutes = |window: Nanos| window.0 / Nanos::secs(60).0;
    format!(
        "How much static and hystor look at before they decide [default: {}m and {}m]",
        minutes(StaticTiering::WINDOW),
        minutes(Hystor::WINDOW)
    )
}

/// Simulates and prints.
pub fn run(arguments: &SimTier) -> anyhow::Result<()> {
    let options = Options {
        kind: arguments.policy,
        parameters: Parameters {
            period: arguments.period,
            iops_min: arguments.iops_min,
            sub_luns_max: arguments.sub_luns_max,
            share_min: arguments.share_min,
            streak_min: arguments.streak_min,
            timeout: arguments.timeout,
            window: arguments.window,
        },
        region: arguments.region,
        fast_regions: arguments.fast_regions,
    };
    options.check().map_err(|error| Usage(error.to_string()))?;
    if !arguments.before.is_empty() && options.kind != Kind::Static {
        let why = "--before is what static tiering learns from; say --policy static with it";
        return Err(Usage(why.to_owned()).into());
    }
    let mut simulation = match arguments.before.is_empty() {
        true => Simulation::new(options)?,
        false => {
            let mut window = Window::new(options)?;
            let trace = arguments.read.open(&arguments.before)?;
            through(trace, |request| Ok(window.push(request)?))?;
            Simulation::placed(options, &window)?
        }
    };
    let mut out = BufWriter::new(io::stdout().lock());
    let mut lines = Vec::new();
    let mut failed = None;
    let mut each = |row: Row| match arguments.json {
        true if failed.is_none() => failed = print(&mut out, &row).err(),
        true => {}
        false => lines.push(line(&row)),
    };
    let trace = arguments.read.open(&arguments.traces)?;
    through(trace, |request| Ok(simulation.push(request, &mut each)?))?;
    let summary = simulation.finish(&mut each);
    if let Some(error) = failed {
        return Err(error.into());
    }
    out.flush()?;
    drop(out);
    match arguments.json {
        true => Ok(()),
        false => terminal::text(&text(&lines, &summary, &options)),
    }
}

/// Hands every request of `trace` to `push`; then reports what was left out.
fn through(
    mut trace: Trace,
    mut push: impl FnMut(&Request) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let bar = ReadBar::new(&trace)?;
    let mut batch = Vec::new();
    while trace.next_batch(&mut batch)? {
        for request in &batch {
            push(request)?;
        }
        bar.show(&trace);
    }
    bar.end();
    remarks(&trace);
    Ok(())
}

fn print(out: &mut impl Write, row: &Row) -> io::Result<()> {
    serde_json::to_writer(&mut *out, row)?;
    out.write_all(b"\n")
}

/// A row of the table.
fn line(row: &Row) -> Vec<String> {
    vec![
        row.interval.to_string(),
        row.ios.to_string(),
        runs(&row.candidates),
        runs(&row.up),
        runs(&row.down),
        row.resident.len().to_string(),
    ]
}

/// Regions in their order, neighbours as one: `65-68,70`; a long list by its beginning.
fn runs(regions: &[u32]) -> String {
    /// As many as stand side by side on a terminal.
    const MOST: usize = 6;
    let runs: Vec<&[u32]> = regions.chunk_by(|a, b| a + 1 == *b).collect();
    let mut shown: Vec<String> = runs
        .iter()
        .take(MOST)
        .map(|run| match run {
            [one] => one.to_string(),
            run => format!("{}-{}", run[0], run[run.len() - 1]),
        })
        .collect();
    let rest: usize = runs.iter().skip(MOST).map(|run| run.len()).sum();
    if rest > 0 {
        shown.push(format!("and {rest} more"));
    }
    match shown.is_empty() {
        true => "-".to_owned(),
        false => shown.join(","),
    }
}

/// What is printed for people.
fn text(lines: &[Vec<String>], summary: &Summary, options: &Options) -> String {
    let heads = [
        "INTERVAL",
        "REQUESTS",
        "CANDIDATES",
        "UP",
        "DOWN",
        "RESIDENT",
    ];
    format!(
        "{}\n{} over {} regions of {}: {} of {} requests in {} intervals went to regions that were up\n\
         {} moves up, {} down; {} regions up at most\n",
        table(&heads, lines),
        options.kind,
        options.fast_regions,
        options.region,
        share(summary.resident_ios as f64, summary.ios as f64),
        count(summary.ios as f64),
        summary.intervals,
        summary.up,
        summary.down,
        summary.resident_max,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_shown_as_one_and_the_order_is_kept() {
        assert_eq!(runs(&[65, 66, 67, 68, 70, 3]), "65-68,70,3");
        assert_eq!(runs(&[]), "-");
        let odd: Vec<u32> = (0..20).map(|n| n * 2 + 1).collect();
        assert_eq!(runs(&odd), "1,3,5,7,9,11,and 14 more");
    }
}
