//! `tanada bench app`: what a database does on a device.
//!
//! ```text
//! TARGET -> a MariaDB of its own in it -> load -> run by run -> RAW/*.json -> data set -> `tanada predict`
//!        <- stopped and removed, also after errors and Ctrl-C
//! ```
//!
//! What is in RAW already is not measured again; if all of it is, no database is started at all.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use base::{Bytes, Nanos};
use clap::{Args, ValueEnum};
use experiments::app::mariadb::{Commit, Server, Settings, Tools};
use experiments::app::outcome::{Outcome, Summary};
use experiments::app::process::Stop;
use experiments::app::work::{Records, Workload};
use experiments::app::{self, Home, Plan};
use indicatif::ProgressBar;
use report::terminal;
use report::terminal::Usage;
use report::terminal::progress;
use report::terminal::table::table;
use serde::Serialize;

use crate::commands::bench::{FIGURE_HEAD, figure_cells};
use crate::commands::interrupt;
use crate::commands::predict_import::data_at;
use crate::reading::{seconds, some_seconds};

#[derive(Args)]
#[command(
    after_help = "TARGET is an empty folder on the device. All of the database is in a folder of its own there, which is removed at the \
    end.\nExample: tanada bench app /mnt/nvme0 --name nvme0 --into data.csv"
)]
pub struct BenchApp {
    /// A folder on the device.
    #[arg(value_name = "TARGET")]
    pub target: PathBuf,
    /// The device's name in the data set [default: the last part of TARGET]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// The data set to add to: CSV, or Parquet (.parquet); made if it is not there.
    #[arg(long, value_name = "DATA", default_value = "data.csv")]
    pub into: PathBuf,
    /// Where the runs' outputs are kept [default: NAME.raw beside the data set]
    #[arg(long, value_name = "DIR")]
    pub raw: Option<PathBuf>,
    /// The folder may hold data: they stay, but their users share the device.
    #[arg(long)]
    pub beside: bool,
    /// Which workloads: a (half reads), b (95 % reads), c (reads), write-only [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub workloads: Vec<Workload>,
    #[command(flatten)]
    pub load: LoadArguments,
    /// The database's memory for pages; what does not fit is read from the device.
    #[arg(long, default_value_t = Bytes::mib(16), value_name = "SIZE")]
    pub buffer_pool: Bytes,
    /// The redo log's size.
    #[arg(long, default_value_t = Bytes::mib(32), value_name = "SIZE")]
    pub log: Bytes,
    /// When a commit is answered: when its log is flushed to the device, or at once.
    #[arg(long, value_enum, default_value_t = CommitWhen::Durable)]
    pub commit: CommitWhen,
    /// Past the page cache, or through it (memory file systems may have no other way).
    #[arg(long, value_enum, default_value_t = super::Io::Direct)]
    pub io: super::Io,
    /// Who the database runs as, where we are root [default: mysql, else `nobody`]
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

// What the database holds, and what is asked of it how often. A doc comment would be the command's.
#[derive(Args)]
pub struct LoadArguments {
    /// Records in the database, of 1,000 bytes each unless given.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000), value_name = "N")]
    pub records: u64,
    /// Fields of a record.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100), value_name = "N")]
    pub fields: u32,
    /// Bytes of a field.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(8..=4000), value_name = "N")]
    pub field_bytes: u32,
    /// Clients, each with one operation at a time.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=512), value_name = "N")]
    pub clients: u32,
    /// Operations a second of all clients together, at even intervals; latencies also count from when an operation was to begin
    /// [default: each client asks again as soon as it was answered]
    #[arg(long, value_name = "N")]
    pub rate: Option<f64>,
    /// How long each run counts.
    #[arg(long = "time", alias = "seconds", default_value = "30s", value_parser = some_seconds, value_name = "SPAN")]
    pub seconds: u32,
    /// How long it runs before, which does not count.
    #[arg(long, default_value = "5s", value_parser = seconds, value_name = "SPAN")]
    pub ramp: u32,
    /// How often everything is repeated.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100), value_name = "N")]
    pub runs: u32,
    /// Where chance begins.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CommitWhen {
    /// When its log is flushed to the device.
    Durable,
    /// At once; the log is flushed every second.
    Lazy,
}

/// One workload as it is printed: medians over the runs.
#[derive(Serialize)]
struct Figure {
    workload: String,
    metric: &'static str,
    unit: &'static str,
    median: f64,
    low: f64,
    high: f64,
    runs: usize,
}

/// Runs it.
pub fn run(arguments: &BenchApp) -> anyhow::Result<()> {
    let plan = plan(arguments)?;
    let name = super::name_of(arguments.name.as_deref(), &arguments.target)?;
    let raw = super::raw_of(arguments.raw.as_deref(), &arguments.into, &name);
    fs::create_dir_all(&raw).with_context(|| format!("cannot make {}", raw.display()))?;
    for warning in plan.warnings(memory()) {
        eprintln!("{name}: {warning}");
    }
    let outputs = measure(arguments, &plan, &name, &raw)?;
    let mut data = data_at(&arguments.into)?;
    let mut outcomes = Vec::new();
    for output in &outputs {
        let shown = output.display().to_string();
        let text = fs::read_to_string(output).with_context(|| format!("cannot read {shown}"))?;
        let broken = |why: String| anyhow::anyhow!("{shown}: {why}");
        let outcome = Outcome::read(&text).map_err(broken)?;
        for row in outcome.rows(&name, &shown).map_err(broken)? {
            data.add(row).map_err(broken)?;
        }
        outcomes.push(outcome);
    }
    data.write(&arguments.into)?;
    report(arguments, &name, &plan, &outcomes)
}

fn plan(arguments: &BenchApp) -> anyhow::Result<Plan> {
    if arguments
        .load
        .rate
        .is_some_and(|rate| !(rate.is_finite() && rate > 0.0))
    {
        return Err(Usage("--rate: a number of operations a second, above zero".to_owned()).into());
    }
    for (option, given, least) in [
        ("--buffer-pool", arguments.buffer_pool, Bytes::mib(5)),
        ("--log", arguments.log, Bytes::mib(4)),
    ] {
        if given < least {
            return Err(Usage(format!("{option} {given}: the database needs {least}")).into());
        }
    }
    let mut workloads = arguments.workloads.clone();
    if workloads.is_empty() {
        workloads = Workload::ALL.to_vec();
    }
    workloads.sort_unstable();
    workloads.dedup();
    Ok(Plan {
        records: Records {
            count: arguments.load.records,
            fields: arguments.load.fields,
            field_bytes: arguments.load.field_bytes,
        },
        workloads,
        clients: arguments.load.clients,
        rate: arguments.load.rate,
        counts: Nanos::secs(u64::from(arguments.load.seconds)),
        ramp: Nanos::secs(u64::from(arguments.load.ramp)),
        runs: arguments.load.runs,
        seed: arguments.load.seed,
        server: Settings {
            buffer_pool: arguments.buffer_pool,
            log: arguments.log,
            commit: match arguments.commit {
                CommitWhen::Durable => Commit::Durable,
                CommitWhen::Lazy => Commit::Lazy,
            },
            direct: arguments.io == super::Io::Direct,
            user: arguments.user.clone(),
        },
    })
}

/// This machine's memory, if it is known.
fn memory() -> Option<Bytes> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(Bytes::kib(kib))
}

/// Runs what was not run yet; where all outputs are, in the runs' order.
fn measure(
    arguments: &BenchApp,
    plan: &Plan,
    name: &str,
    raw: &Path,
) -> anyhow::Result<Vec<PathBuf>> {
    let planned = plan.planned();
    let output = |run: &app::Planned| raw.join(format!("{}.json", run.name));
    let missing: Vec<&app::Planned> = planned.iter().filter(|run| !output(run).exists()).collect();
    if !missing.is_empty() {
        let each = u64::from(arguments.load.seconds) + u64::from(arguments.load.ramp);
        eprintln!(
            "{name}: {} runs, about {} s and the loading; outputs go to {}",
            missing.len(),
            missing.len() as u64 * each,
            raw.display()
        );
        let stop = interrupt::listen()?;
        let tools = Tools::find()?;
        let (home, left) = Home::claim(&arguments.target, arguments.beside)?;
        if left {
            eprintln!("{name}: what a run that did not end left there was cleared away");
        }
        app::room_for(&arguments.target, plan)?;
        let bar = progress::bar("{prefix} [{bar:40}] {percent}% {msg} (left {eta})", 1000);
        let server = ready(&tools, &home, plan, &stop, &bar)?;
        bar.set_prefix("measuring");
        for (n, run) in missing.iter().enumerate() {
            bar.set_message(run.name.clone());
            bar.set_position(n as u64 * 1000 / missing.len() as u64);
            let outcome = app::measure(&server, plan, run, &arguments.target, &stop)?;
            // Whole or not at all: a broken-off run leaves no half output.
            let begun = output(run).with_extension("part");
            fs::write(&begun, serde_json::to_vec_pretty(&outcome)?)
                .with_context(|| format!("cannot write {}", begun.display()))?;
            fs::rename(&begun, output(run))?;
        }
        bar.finish_and_clear();
        server.stop()?;
    }
    Ok(planned.iter().map(output).collect())
}

fn ready(
    tools: &Tools,
    home: &Home,
    plan: &Plan,
    stop: &Stop,
    bar: &ProgressBar,
) -> anyhow::Result<Server> {
    let mut report_progress = |what: &str, done: f64| {
        bar.set_prefix("preparing");
        bar.set_message(what.to_owned());
        bar.set_position((done * 1000.0) as u64);
    };
    app::prepare(tools, &home.data(), plan, stop, &mut report_progress)?;
    Ok(Server::start(tools, &home.data(), &plan.server, stop)?)
}

fn figure(
    of: &[&Outcome],
    metric: &'static str,
    unit: &'static str,
    value: &dyn Fn(&Outcome) -> Option<f64>,
) -> Option<Figure> {
    let values: Vec<f64> = of.iter().filter_map(|outcome| value(outcome)).collect();
    let first = of.first().filter(|_| !values.is_empty())?;
    Some(Figure {
        workload: first.workload.clone(),
        metric,
        unit,
        median: predict::data::Reduce::Median.of(&values),
        low: values.iter().copied().fold(f64::INFINITY, f64::min),
        high: values.iter().copied().fold(0.0, f64::max),
        runs: values.len(),
    })
}

/// What is reported of one workload.
fn figures(of: &[&Outcome]) -> Vec<Figure> {
    type Of = fn(&Outcome) -> Option<Summary>;
    let mut figures = Vec::new();
    let latencies: [(&str, &str, Of); 4] = [
        ("read_latency", "read_latency p99", |it| it.reads),
        ("write_latency", "write_latency p99", |it| it.updates),
        ("read_intended_latency", "read_intended_latency p99", |it| {
            it.reads_intended
        }),
        (
            "write_intended_latency",
            "write_intended_latency p99",
            |it| it.updates_intended,
        ),
    ];
    for (mean, p99, of_outcome) in latencies {
        figures.extend(figure(of, mean, "us", &|it| Some(of_outcome(it)?.mean_us)));
        figures.extend(figure(of, p99, "us", &|it| Some(of_outcome(it)?.p99_us)));
    }
    figures.extend(figure(of, "throughput", "ops/s", &|it| {
        Some(it.throughput())
    }));
    type Count = fn(&experiments::app::outcome::Counters) -> u64;
    let counts: [(&str, Count); 3] = [
        ("device reads", |it| it.reads),
        ("device writes", |it| it.writes),
        ("device flushes", |it| it.flushes),
    ];
    for (metric, count) in counts {
        let each = |it: &Outcome| Some(count(&it.device?) as f64 / it.operations_all as f64);
        figures.extend(figure(of, metric, "per op", &each));
    }
    figures
}

fn report(
    arguments: &BenchApp,
    name: &str,
    plan: &Plan,
    outcomes: &[Outcome],
) -> anyhow::Result<()> {
    let all: Vec<Figure> = plan
        .workloads
        .iter()
        .flat_map(|workload| {
            let of = |it: &&Outcome| it.workload == workload.to_string();
            figures(&outcomes.iter().filter(of).collect::<Vec<_>>())
        })
        .collect();
    if arguments.json {
        return terminal::json(&all);
    }
    let rows = all.iter().map(|figure| {
        let cells = figure_cells(
            figure.metric,
            figure.median,
            figure.unit,
            (figure.low, figure.high),
            figure.runs,
        );
        [vec![figure.workload.clone()], cells].concat()
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let database = outcomes.first().map_or("", |first| &first.database);
    let io = match plan.server.direct {
        true => "past the page cache",
        false => "through the page cache",
    };
    terminal::text(&format!(
        "{name}, in {}: {database}, {} of data, buffer pool {}, {io}, commits {}\n\n{}\n\
         Device counters are of all that used the device meanwhile. A count can be given to the model: tanada predict fit {} --count \
         read-16K-latency=N\n",
        arguments.into.display(),
        Bytes(plan.records.bytes()),
        plan.server.buffer_pool,
        match plan.server.commit {
            Commit::Durable => "durable",
            Commit::Lazy => "lazy",
        },
        table(&[&["WORKLOAD"][..], &FIGURE_HEAD].concat(), &rows),
        arguments.into.display(),
    ))
}
