//! `tanada bench model` and `bench device --quick`: seven cases of a model in virtual time, or of a device in real time.
//!
//! ```text
//! a model's name, or its TOML file -> bench::measure        \
//! a device or file                 -> bench::measure_device -> a table, or JSON
//! ```

use std::io::{self, IsTerminal};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Context;
use base::Nanos;
use clap::Args;
use device::FileOptions;
use device::model::Spec;
use device::model::bench::{self, BenchReport, Pattern, Plan};
use env::fs::Direct;
use indicatif::ProgressBar;
use report::terminal::table::{count, size, table};
use report::terminal::{self, Usage};

/// Which model.
#[derive(Args)]
pub struct BenchModel {
    /// Its name, as `tanada model list` has it, or the TOML file of an own one.
    #[arg(value_name = "NAME|FILE")]
    pub model: String,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Measures a model, in virtual time.
pub fn model(wanted: &BenchModel) -> anyhow::Result<()> {
    let name = &wanted.model;
    let unknown = |error| Usage(format!("cannot measure '{name}': {error}"));
    let spec = Spec::find(name).map_err(unknown)?;
    let plan = Plan::default();
    let report = with_spinner(name, || Ok(bench::measure(&spec, None, &plan, 1)?))?;
    terminal::answer(wanted.json, &report, || report_page(&report))
}

/// Measures a device or file, in real time.
pub fn device(path: &Path, overwrite: bool, as_json: bool) -> anyhow::Result<()> {
    let name = path.display().to_string();
    let report = with_spinner(&name, || measure(path, overwrite))?;
    terminal::answer(as_json, &report, || report_page(&report))
}

/// Runs `work` with a sign of life on a terminal.
fn with_spinner<T>(name: &str, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    if !io::stderr().is_terminal() {
        return work();
    }
    let spinner = ProgressBar::new_spinner().with_message(format!("measuring {name}"));
    spinner.enable_steady_tick(Duration::from_millis(120));
    let answer = work();
    spinner.finish_and_clear();
    answer
}

fn measure(path: &Path, overwrite: bool) -> anyhow::Result<BenchReport> {
    let plan = Plan {
        // Seven cases of a device, while the user waits.
        time: Nanos::secs(2),
        writes: overwrite,
        overwrite,
        ..Plan::default()
    };
    let options = FileOptions {
        read_only: !overwrite,
        direct: Direct::Auto,
        ..FileOptions::default()
    };
    let (path, name) = (path.to_owned(), path.display().to_string());
    let runtime = env::Runtime::real(env::RealConfig::default())
        .context("cannot make a runtime to measure in")?;
    runtime.block_on(async move {
        let file: Rc<dyn device::Device> = device::File::open(name, path, options)?;
        Ok(bench::measure_device(file, &plan).await?)
    })
}

fn report_page(report: &BenchReport) -> String {
    let how = match report.modelled {
        true => "modelled, in virtual time",
        false => "real",
    };
    let mut text = format!("{}: {}, {how}\n\n", report.device, size(report.size_bytes));
    let micros = |us: f64| terminal::table::span((us * 1e3) as u64);
    let rows: Vec<Vec<String>> = report
        .cases
        .iter()
        .map(|case| {
            vec![
                match case.pattern {
                    Pattern::SequentialRead => "sequential read",
                    Pattern::SequentialWrite => "sequential write",
                    Pattern::RandomRead => "random read",
                    Pattern::RandomWrite => "random write",
                }
                .to_owned(),
                size(case.block_bytes),
                case.depth.to_string(),
                count(case.iops),
                format!("{:.1}", case.mb_per_s),
                micros(case.latency_us_mean),
                micros(case.latency_us_p50),
                micros(case.latency_us_p99),
                case.watts
                    .map_or("-".to_owned(), |watts| format!("{watts:.2} W")),
            ]
        })
        .collect();
    text.push_str(&table(
        &[
            "CASE", "BLOCK", "DEPTH", "IOPS", "MB/S", "MEAN", "P50", "P99", "POWER",
        ],
        &rows,
    ));
    if !report.modelled && report.cases.iter().all(|case| !case.pattern.writes()) {
        text.push_str(
            "\nOnly reads were measured; --overwrite --yes measures writes too and destroys data.\n",
        );
    }
    text
}
