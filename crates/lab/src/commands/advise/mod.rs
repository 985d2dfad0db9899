//! `tanada advise`: which cache would do this trace good, and what would it cost?

mod tier;

use std::path::PathBuf;

use anyhow::Context;
use base::Bytes;
use clap::Args;
use device::model::Spec;
use policy::cache::Kind;
use report::terminal;
use report::terminal::Usage;
use report::terminal::progress::bar;
use report::terminal::table::{share, size, span, table};
use sim::advise::{Advice, Adviser, By, ENGINE_REQUESTS, Options, page};
use sim::cache::Method;
use sim::on_threads;
use trace::{Request, Requests};

use crate::reading::{self, ReadBar, ReadTrace, remarks};

#[derive(Args)]
#[command(after_help = "\
Instead of a trace, the name of a volume: advice from the shadow that watches it (tanada volume set vol0 advise=on);
of the options only --admin and --json count then. A volume with a tier is advised on that too. To choose among policies and devices, record a trace of the volume
(tanada volume set vol0 trace=FILE) and ask about that.

Example: tanada advise trace.csv.zst --slow hdd-7200-sata --fast ssd-sata-mlc")]
pub struct Advise {
    /// Trace files of one recording, merged by time; or a running volume.
    #[arg(required = true, value_name = "TRACE|VOLUME")]
    pub traces: Vec<PathBuf>,
    /// The device that holds everything: a model, or the TOML file of an own one.
    #[arg(long, default_value = "hdd-7200-sata", value_name = "MODEL")]
    pub slow: String,
    /// The device the cache would be on.
    #[arg(long, default_value = "ssd-sata-mlc", value_name = "MODEL")]
    pub fast: String,
    /// Policies to choose from, separated by commas, or all.
    #[arg(long, default_value = "all", value_name = "LIST")]
    pub policy: String,
    /// Sizes to choose from, such as 4GiB,16GiB. [default: from a 64th of what the trace touches to all of it]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub size: Vec<Bytes>,
    /// How often a day the fast device may be written over, whatever part of it the cache is.
    #[arg(long, default_value_t = 1.0, value_name = "TIMES")]
    pub endurance: f64,
    /// Replay at most so many requests of the trace's end through the engine for each of the best caches, the
    /// later half of so many measured; 0: let a quick model alone decide.
    #[arg(long, default_value_t = ENGINE_REQUESTS, value_name = "N")]
    pub replay: usize,
    /// Where chance begins: platters, samples.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// How many threads work. [default: one per processor]
    #[arg(long, default_value_t = 0, hide_default_value = true, value_name = "N")]
    pub jobs: usize,
    /// Advise on tiers too: cache, tier or both on --size of the fast device [default: an eighth of what the trace
    /// touches], and with which parameters.
    #[arg(long, conflicts_with = "html")]
    pub tier: bool,
    /// The admin API of the daemon that has the volume: HOST:PORT or unix:/path
    #[arg(
        long,
        env = "TANADA_ADMIN",
        value_name = "ADDR",
        hide_env_values = true
    )]
    pub admin: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Write a report: one self-contained HTML file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    #[command(flatten)]
    pub read: ReadTrace,
}

impl Advise {
    /// Refuses an endurance that makes no sense.
    pub fn check_endurance(&self) -> Result<(), Usage> {
        match self.endurance > 0.0 && self.endurance.is_finite() {
            true => Ok(()),
            false => Err(Usage(format!(
                "--endurance {}: it must be above 0, such as 0.3",
                self.endurance
            ))),
        }
    }

    /// Reads the trace and gives each request to `take`, with a bar on a terminal and remarks at the end.
    pub fn feed(&self, mut take: impl FnMut(&Request) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let mut trace = self.read.open(&self.traces)?;
        let reading = ReadBar::new(&trace)?;
        let mut batch = Vec::new();
        while trace.next_batch(&mut batch)? {
            batch.iter().try_for_each(&mut take)?;
            reading.show(&trace);
        }
        reading.end();
        remarks(&trace);
        Ok(())
    }
}

/// Advises and prints.
pub fn run(arguments: &Advise) -> anyhow::Result<()> {
    if arguments.tier {
        return tier::run(arguments);
    }
    let usage = |error: &dyn std::fmt::Display| Usage(error.to_string());
    let methods = Method::list(&arguments.policy).map_err(|error| usage(&error))?;
    let policies: Vec<Kind> = methods
        .iter()
        .filter_map(|method| match method {
            Method::Policy(kind) => Some(*kind),
            Method::Belady => None,
        })
        .collect();
    arguments.check_endurance()?;
    let options = Options {
        slow: Spec::find(&arguments.slow).map_err(|error| usage(&error))?,
        fast: Spec::find(&arguments.fast).map_err(|error| usage(&error))?,
        policies,
        sizes: arguments.size.clone(),
        endurance: arguments.endurance,
        engine_requests: arguments.replay,
        seed: arguments.seed,
    };
    let mut adviser = Adviser::new(options).map_err(|error| usage(&error))?;
    arguments.feed(|request| Ok(adviser.push(request)?))?;
    let trying = bar(SIMULATIONS, 0);
    let advice = on_threads(arguments.jobs, || {
        adviser.advise(&|done, of| {
            trying.set_length(of as u64);
            trying.set_position(done as u64);
        })
    })??;
    trying.finish_and_clear();
    if let Some(file) = &arguments.html {
        let name = reading::name(&arguments.traces);
        let page = page(&advice, &name, &terminal::own_command(), arguments.seed);
        std::fs::write(file, page.html())
            .with_context(|| format!("cannot write the report to {}", file.display()))?;
    }
    terminal::answer(arguments.json, &advice, || text(&advice))
}

/// How simulations that run are shown.
pub const SIMULATIONS: &str = "{bar:30} {pos}/{len} simulations";

pub fn micros(us: f64) -> String {
    span((us * 1e3) as u64)
}

fn text(advice: &Advice) -> String {
    let mut text = String::new();
    for reason in &advice.reasons {
        text.push_str(&format!("{reason}\n"));
    }
    if let Some(configuration) = &advice.configuration {
        text.push_str("\nIn [[hybrid]] of the configuration:\n");
        for line in configuration.lines() {
            text.push_str(&format!("    {line}\n"));
        }
    }
    text.push('\n');
    let engine = advice.candidates.iter().any(|one| one.by == By::Engine);
    let by = match engine {
        true => By::Engine,
        false => By::Model,
    };
    let mut lines = vec![alone_cells(advice)];
    lines.extend(rows_by(advice, by));
    text.push_str(&table(&HEADS, &lines));
    let ranked = rows_by(advice, By::Model);
    if engine && !ranked.is_empty() {
        text.push_str(
            "\nBy a quick model, without bypass and ledger, after all of the trace before. It only ranks: its times are not \
             those that the engine would have.\n",
        );
        text.push_str(&table(&HEADS, &ranked));
    }
    text.push_str(&format!(
        "\n{} and {} are modelled, at the trace's own pace. All figures are of the last {} of {} reads and writes; what \
         comes before only warms the caches.\n",
        advice.slow, advice.fast, advice.timed_requests, advice.requests
    ));
    if engine {
        text.push_str(&format!(
            "The first table is the engine of tanada serve, after {} requests of warm-up.\n",
            advice.engine_warm_up_requests
        ));
    }
    text
}

const HEADS: [&str; 12] = [
    "",
    "POLICY",
    "SIZE",
    "WRITE",
    "BYPASS",
    "READ HITS",
    "MEAN",
    "READ",
    "WRITE",
    "SLOW I/O SAVED",
    "FLASH/DAY",
    "POWER",
];

/// The slow device by itself.
fn alone_cells(advice: &Advice) -> Vec<String> {
    let nothing = || "-".to_owned();
    vec![
        String::new(),
        "(none)".to_owned(),
        nothing(),
        nothing(),
        nothing(),
        nothing(),
        micros(advice.alone.response_us_mean),
        micros(advice.alone.read_us_mean),
        micros(advice.alone.write_us_mean),
        nothing(),
        nothing(),
        format!("{:.2} W", advice.alone.watts),
    ]
}

/// The candidates whose figures are of the engine, or of the model.
fn rows_by(advice: &Advice, by: By) -> Vec<Vec<String>> {
    let of = advice.candidates.iter().enumerate();
    of.filter(|(_, one)| one.by == by)
        .map(|(at, one)| {
            vec![
                if advice.chosen == Some(at) { "*" } else { "" }.to_owned(),
                one.policy.clone(),
                size(one.size_bytes),
                one.write.clone(),
                one.sequential_bypass_bytes
                    .map_or_else(|| "off".to_owned(), size),
                share(one.read_hit_ratio, 1.0),
                micros(one.response_us_mean),
                micros(one.read_us_mean),
                micros(one.write_us_mean),
                format!("{:.1} %", 100.0 * one.slow_requests_saved),
                size(one.flash_bytes_per_day as u64),
                format!("{:.2} W", one.watts),
            ]
        })
        .collect()
}
