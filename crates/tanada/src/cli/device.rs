//! `tanada device ...`: a daemon's devices, the models, and measuring either; disks for its group (`device_claim`).

use std::fmt::Write as _;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Context;
use base::Nanos;
use device::model::bench::{self, BenchReport, Pattern, Plan};
use device::model::{ModelInfo, Spec};
use device::{FileOptions, model};
use env::fs::Direct;
use indicatif::ProgressBar;
use report::terminal::table::{count, size, table};

use super::client::Client;
use super::options::Device;
use super::{device_claim, show};
use crate::api;

/// Runs one of them.
pub fn run(command: Device) -> anyhow::Result<()> {
    match command {
        Device::List(ask) => {
            let devices: Vec<api::status::Device> = Client::new(ask.admin)?.get("/v1/devices")?;
            show::answer(ask.json, &devices, || show::devices(&devices))
        }
        Device::Claim(disk) => device_claim::claim(&disk),
        Device::Release(disk) => device_claim::release(&disk),
        Device::Models { json } => {
            let models = model::catalogue();
            show::answer(json, &models, || models_page(&models))
        }
        Device::Bench {
            target,
            overwrite,
            json,
        } => {
            let report = with_spinner(&format!("measuring {target}"), || {
                measure(&target, overwrite)
            })?;
            show::answer(json, &report, || report_page(&report))
        }
    }
}

/// Every model with its figures; a source that several figures share is written once.
fn models_page(models: &[ModelInfo]) -> String {
    let mut text = String::new();
    for info in models {
        let _ = write!(text, "{} ({})", info.name, info.kind);
        if !info.aliases.is_empty() {
            let _ = write!(text, ", also {}", info.aliases.join(", "));
        }
        let _ = writeln!(text, "\n  {}", info.about);
        let mut sources: Vec<&str> = Vec::new();
        let rows: Vec<Vec<String>> = info
            .figures
            .iter()
            .map(|figure| {
                let known = sources.iter().position(|source| *source == figure.source);
                let number = known.unwrap_or_else(|| {
                    sources.push(&figure.source);
                    sources.len() - 1
                });
                // A size such as 8MiB has its unit already.
                let has_unit = figure.value.ends_with(|c: char| c.is_ascii_alphabetic());
                let unit = if has_unit { "" } else { figure.unit };
                vec![
                    figure.key.clone(),
                    format!("{} {unit}", figure.value).trim_end().to_owned(),
                    format!("[{}]", number + 1),
                ]
            })
            .collect();
        for line in table(&["FIGURE", "VALUE", "SOURCE"], &rows).lines() {
            let _ = writeln!(text, "    {line}");
        }
        for (index, source) in sources.iter().enumerate() {
            let _ = writeln!(text, "    [{}] {source}", index + 1);
        }
        text.push('\n');
    }
    text.push_str(
        "Use one with `model = \"NAME\"` in a [[device]]; a file of your own with \
         `model = \"path/to/own.toml\"`.\n",
    );
    text
}

/// Runs `work` with a sign of life on a terminal.
fn with_spinner<T>(what: &str, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    if !io::stderr().is_terminal() {
        return work();
    }
    let spinner = ProgressBar::new_spinner().with_message(what.to_owned());
    spinner.enable_steady_tick(Duration::from_millis(120));
    let answer = work();
    spinner.finish_and_clear();
    answer
}

/// A model in virtual time, or a path in real time.
fn measure(target: &str, overwrite: bool) -> anyhow::Result<BenchReport> {
    let path = Path::new(target);
    let is_model_file = target.ends_with(".toml");
    if !path.exists() || is_model_file {
        let spec = Spec::find(target).with_context(|| format!("cannot measure '{target}'"))?;
        return Ok(bench::measure(&spec, None, &Plan::default(), 1)?);
    }
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
    let path = path.to_owned();
    let name = target.to_owned();
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
    let micros = |us: f64| report::terminal::table::span((us * 1e3) as u64);
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
            "\nOnly reads were measured; --overwrite measures writes too and destroys data.\n",
        );
    }
    text
}
