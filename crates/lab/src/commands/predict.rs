//! `tanada predict ...`: what would an application do on a device that cannot be bought yet?
//!
//! ```text
//! tools' outputs -> import -> DATA.csv | DATA.parquet -> show | fit | compare | estimate -> table | JSON | HTML
//! ```
//!
//! Two modes: `model`, the default one, and `paper`, the best of the candidates exactly as published.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::predict_estimate::{estimate, floor_line};
use super::predict_import::import_files;
use super::predict_pages::{fit_table, published_page, score_table};
use anyhow::Context;
use clap::{Args, Subcommand, ValueEnum};
use predict::data::{Cell, DataSet, Reduce, Reduced};
use predict::floor::{self, Floors};
use predict::import::Format;
use predict::judge::Verdict;
use predict::model::Form;
use predict::noise::{self, Noise};
use predict::page::page;
use predict::paper::{self, CellFit};
use predict::study::{self};
use report::terminal;
use report::terminal::Usage;
use report::terminal::table::table;
use serde::Serialize;

/// How many tables of noise are drawn beside the published method, and from which seed.
const NOISE: (usize, u64) = (1_000, 1);
/// What `--floor` says for the floors of the data set.
const MEASURED: &str = "measured";

#[derive(Subcommand)]
pub enum Predict {
    /// Add what tools printed to a data set.
    Import(Import),
    /// Show a data set: devices and their figures, results, runs, what is missing.
    Show(Show),
    /// Fit every workload, and judge the fits by leaving each device out.
    Fit(Fit),
    /// Compare the methods: their errors with each device left out in turn.
    Compare(Fit),
    /// Predict the results of a device from its own figures.
    Estimate(Estimate),
}

#[derive(Args)]
#[command(
    after_help = "Formats: fio (JSON), ycsb, go-ycsb, sysbench, pgbench, csv; known by the contents.\n\
    Example: tanada predict import run1.json run2.json --device nvme0 --into data.csv"
)]
pub struct Import {
    /// The tools' outputs.
    #[arg(required_unless_present = "published", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// The data set: a CSV file, or a Parquet file (.parquet); made if it is not there.
    #[arg(long, value_name = "DATA")]
    pub into: PathBuf,
    /// Whose output the files are [default: by their contents]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<Format>,
    /// The device that was measured.
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,
    /// The workload that was run.
    #[arg(long, value_name = "NAME")]
    pub workload: Option<String>,
    /// A parameter of the workload, such as data_gb=16; as often as needed.
    #[arg(long = "param", value_name = "NAME=VALUE")]
    pub parameters: Vec<String>,
    /// The outputs are of the device's path alone, with something in its place that answers at once.
    #[arg(long, conflicts_with_all = ["published", "workload"])]
    pub floor: bool,
    /// Add the measurements of the paper (three devices, four workloads, seven sizes).
    #[arg(long)]
    pub published: bool,
}

/// The data set and how its repeated runs are reduced.
#[derive(Args)]
pub struct Data {
    /// The data set: CSV or Parquet.
    #[arg(value_name = "DATA")]
    pub data: PathBuf,
    /// How repeated runs become one value.
    #[arg(long, value_enum, default_value_t = Runs::Trimmed)]
    pub runs: Runs,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum Runs {
    /// The highest and the lowest dropped, the mean of the rest (as published, of five).
    Trimmed,
    /// The median.
    Median,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// y = cpu + sum n L, nothing negative.
    Model,
    /// The best line of the candidates, as published.
    Paper,
}

#[derive(Args)]
pub struct Show {
    #[command(flatten)]
    pub data: Data,
}

/// The form of the model.
#[derive(Args)]
pub struct Terms {
    /// The latencies an operation waits for [default: read-16K-latency,write-64K-latency]
    #[arg(long, value_delimiter = ',', value_name = "REGRESSOR")]
    pub terms: Vec<String>,
    /// How often an operation waits for a term, counted in a trace, such as read-16K-latency=0.63.
    #[arg(long = "count", value_name = "REGRESSOR=N")]
    pub counts: Vec<String>,
    /// What the path takes of a latency without its device, such as read-16K-latency=70us; measured: the data set's own
    /// (import --floor). What --at gives is then the device's alone.
    #[arg(long = "floor", value_name = "REGRESSOR=VALUE|measured")]
    pub floors: Vec<String>,
    /// The parameter over whose values cells are fitted together.
    #[arg(long, default_value = predict::model::POOLED, value_name = "PARAMETER")]
    pub pool: String,
}

#[derive(Args)]
pub struct Fit {
    #[command(flatten)]
    pub data: Data,
    /// Which method.
    #[arg(long, value_enum, default_value_t = Mode::Model)]
    pub mode: Mode,
    #[command(flatten)]
    pub terms: Terms,
    /// Write a report: one self-contained HTML file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

#[derive(Args)]
#[command(
    after_help = "Example: tanada predict estimate data.csv --at read-16K-latency=12us --at write-64K-latency=50us"
)]
pub struct Estimate {
    #[command(flatten)]
    pub data: Data,
    /// A device of the data set.
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,
    /// A figure of the device, such as write-64K-latency=50us; overrides the data set's.
    #[arg(long = "at", value_name = "REGRESSOR=VALUE")]
    pub at: Vec<String>,
    /// Which method.
    #[arg(long, value_enum, default_value_t = Mode::Model)]
    pub mode: Mode,
    #[command(flatten)]
    pub terms: Terms,
    /// Sizes that were never run: a second line over the pooled parameter (mode paper).
    #[arg(long, value_delimiter = ',', value_name = "SIZE")]
    pub sizes: Vec<f64>,
    /// Predict however far outside of what was measured.
    #[arg(long)]
    pub extrapolate: bool,
    /// The share of results an interval is to hold.
    #[arg(long, default_value_t = 0.95, value_name = "SHARE")]
    pub level: f64,
    /// Clients that wait for their answers: who is the bottleneck?
    #[arg(long, value_name = "N")]
    pub clients: Option<f64>,
    /// Processors the application runs on.
    #[arg(long, value_name = "N", requires = "clients")]
    pub cores: Option<f64>,
}

/// Runs a command.
pub fn run(command: Predict) -> anyhow::Result<()> {
    match command {
        Predict::Import(arguments) => import_files(&arguments),
        Predict::Show(arguments) => show_data(&arguments),
        Predict::Fit(arguments) => fit(&arguments, false),
        Predict::Compare(arguments) => fit(&arguments, true),
        Predict::Estimate(arguments) => estimate(&arguments),
    }
}

pub(super) fn usage(text: impl Into<String>) -> anyhow::Error {
    Usage(text.into()).into()
}

/// Reads the data set, reduces it, and takes the floor apart that is asked for.
pub(super) fn read_for(data: &Data, terms: &Terms, mode: Mode) -> anyhow::Result<Reduced> {
    let reduced = read(data)?;
    if terms.floors.is_empty() {
        return Ok(reduced);
    }
    if mode == Mode::Paper {
        return Err(usage(
            "--floor is of the model: the published method knows no floor, leave it away or --mode paper",
        ));
    }
    let floors = floors(&reduced, &terms.floors)?;
    Ok(floor::apart(&reduced, &floors)?)
}

/// The floors that `--floor` gives or asks for.
fn floors(data: &Reduced, said: &[String]) -> anyhow::Result<Floors> {
    let mut floors = match said.iter().any(|it| it == MEASURED) {
        true => Floors::measured(data)?,
        false => Floors::default(),
    };
    for one in said.iter().filter(|it| *it != MEASURED) {
        let (name, value) = one.split_once('=').ok_or_else(|| {
            usage(format!(
                "--floor {one}: write REGRESSOR=VALUE, such as read-16K-latency=70us, or {MEASURED}"
            ))
        })?;
        floors
            .give_text(name, value)
            .map_err(|error| usage(format!("--floor {one}: {error}")))?;
    }
    Ok(floors)
}

/// Reads the data set and reduces it.
pub(super) fn read(data: &Data) -> anyhow::Result<Reduced> {
    let how = match data.runs {
        Runs::Trimmed => Reduce::Trimmed,
        Runs::Median => Reduce::Median,
    };
    Ok(DataSet::read(&data.data)?.reduce(how))
}

/// A cell of a data set, for `show`.
#[derive(Serialize)]
struct Shown {
    cell: String,
    unit: String,
    values: BTreeMap<String, f64>,
    runs: usize,
    missing: Vec<String>,
}

fn show_data(arguments: &Show) -> anyhow::Result<()> {
    let data = read(&arguments.data)?;
    let measured: Vec<String> = data.measured().into_iter().map(str::to_owned).collect();
    let cell = |cell: &Cell| Shown {
        cell: cell.name(),
        unit: cell.kind.unit().to_string(),
        values: cell
            .values
            .iter()
            .map(|(d, v)| (d.clone(), v.value))
            .collect(),
        runs: cell.values.values().map(|v| v.runs.len()).sum(),
        missing: measured
            .iter()
            .filter(|device| !cell.values.contains_key(*device))
            .cloned()
            .collect(),
    };
    let shown: Vec<Shown> = data.cells.iter().map(cell).collect();
    if !arguments.data.json {
        return terminal::text(&shown_page(&data, &measured, &shown));
    }
    #[derive(Serialize)]
    struct All {
        devices: Vec<String>,
        figures: BTreeMap<String, BTreeMap<String, f64>>,
        results: Vec<Shown>,
    }
    let figures = data
        .regressors
        .iter()
        .map(|r| {
            let values = r.values.iter().map(|(d, v)| (d.clone(), v.value)).collect();
            (r.name.clone(), values)
        })
        .collect();
    terminal::json(&All {
        devices: data.devices.clone(),
        figures,
        results: shown,
    })
}

/// Devices and their figures, and the results by device.
fn shown_page(data: &Reduced, measured: &[String], shown: &[Shown]) -> String {
    let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.3}"));
    let mut head = vec!["FIGURE", "UNIT"];
    head.extend(data.devices.iter().map(String::as_str));
    let rows: Vec<Vec<String>> = data
        .regressors
        .iter()
        .map(|r| {
            let mut row = vec![r.name.clone(), r.kind.unit().to_string()];
            row.extend(data.devices.iter().map(|d| number(data.figure(d, &r.name))));
            row
        })
        .collect();
    let mut text = table(&head, &rows);
    let mut head = vec!["RESULT", "UNIT", "RUNS"];
    head.extend(measured.iter().map(String::as_str));
    let rows: Vec<Vec<String>> = shown
        .iter()
        .map(|cell| {
            let mut row = vec![cell.cell.clone(), cell.unit.clone(), cell.runs.to_string()];
            row.extend(measured.iter().map(|d| number(cell.values.get(d).copied())));
            row
        })
        .collect();
    text.push('\n');
    text.push_str(&table(&head, &rows));
    text
}

/// The form asked for.
pub(super) fn form(terms: &Terms) -> anyhow::Result<Form> {
    let mut form = match terms.terms.is_empty() {
        true => Form::default(),
        false => Form::of(&terms.terms.iter().map(String::as_str).collect::<Vec<_>>()),
    };
    form.pooled.clone_from(&terms.pool);
    for one in &terms.counts {
        let said = one.split_once('=');
        let said = said.and_then(|(name, n)| Some((name, n.parse::<f64>().ok()?)));
        if !said.is_some_and(|(name, n)| form.count(name, n)) {
            return Err(usage(format!(
                "--count {one}: write REGRESSOR=N with N from 0, such as read-16K-latency=0.63"
            )));
        }
    }
    Ok(form)
}

/// Every cell's lines as published, and those that have none.
pub(super) fn lines(data: &Reduced) -> (Vec<CellFit>, Vec<String>) {
    let measured = data.measured();
    let mut fits = Vec::new();
    let mut silent = Vec::new();
    for cell in &data.cells {
        match paper::fit(data, cell, &measured) {
            Ok(fit) => fits.push(fit),
            Err(error) => silent.push(error.to_string()),
        }
    }
    (fits, silent)
}

/// What noise would score where `metric` is fitted, if there are candidates.
fn noise_of(data: &Reduced, metric: &str, cells: usize) -> Option<Noise> {
    let measured = data.measured();
    let candidates: Vec<Vec<f64>> = data
        .regressors
        .iter()
        .filter(|r| paper::same_direction(&r.name, metric))
        .filter_map(|r| {
            let figures = measured.iter().map(|device| data.figure(device, &r.name));
            figures.collect::<Option<Vec<f64>>>()
        })
        .collect();
    (!candidates.is_empty() && measured.len() > 1)
        .then(|| noise::best_of(&candidates, cells, NOISE.0, NOISE.1))
}

/// The published method over a data set.
#[derive(Serialize)]
pub(super) struct Published {
    pub(super) mode: &'static str,
    pub(super) cells: Vec<CellFit>,
    /// By metric: the mean best R2, and what noise would score.
    pub(super) metrics: BTreeMap<String, (f64, Option<Noise>)>,
    pub(super) warnings: Vec<String>,
}

fn published(data: &Reduced) -> Published {
    let (cells, mut warnings) = lines(data);
    let mut by_metric: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for fit in &cells {
        let metric = fit.cell.rsplit(' ').next().unwrap_or_default().to_owned();
        by_metric
            .entry(metric)
            .or_default()
            .push(fit.chosen().line.r2.unwrap_or(0.0));
        if fit.devices == 2 {
            warnings.push(format!(
                "{}: every line passes through its two devices: R2 says nothing",
                fit.cell
            ));
        }
        if !fit.chosen().plausible {
            warnings.push(format!(
                "{}: the best line says a slower device does better ({}): not plausible",
                fit.cell,
                fit.chosen().regressor
            ));
        }
    }
    let metrics = by_metric
        .into_iter()
        .map(|(metric, r2)| {
            let mean = r2.iter().sum::<f64>() / r2.len() as f64;
            let noise = noise_of(data, &metric, r2.len());
            (metric, (mean, noise))
        })
        .collect();
    Published {
        mode: "paper",
        cells,
        metrics,
        warnings,
    }
}

fn fit(arguments: &Fit, compare: bool) -> anyhow::Result<()> {
    let data = read_for(&arguments.data, &arguments.terms, arguments.mode)?;
    let study = study::study(&data, &form(&arguments.terms)?);
    if let Some(file) = &arguments.html {
        let study = study.as_ref().map_err(|error| usage(error.to_string()))?;
        let command = format!("tanada predict fit {}", arguments.data.data.display());
        write(file, &page(&data, study, &lines(&data).0, &command))?;
    }
    if arguments.mode == Mode::Paper && !compare {
        let published = published(&data);
        return terminal::answer(arguments.data.json, &published, || {
            published_page(&published)
        });
    }
    let study = study.map_err(|error| usage(error.to_string()))?;
    if arguments.data.json {
        return terminal::json(&study);
    }
    let mut text = format!("{}{}\n\n", study.form.sentence(), floor_line(&study));
    if !compare {
        text.push_str(&fit_table(&study));
        text.push('\n');
    }
    text.push_str(&score_table(&study));
    text.push_str(&format!("\n{}\n", study.verdict.sentence()));
    for group in &study.groups {
        if let Verdict::Nearest { .. } = group.verdict {
            text.push_str(&format!(
                "  - {}: {}\n",
                group.group,
                group.verdict.sentence()
            ));
        }
        if let Some(why) = &group.why_not {
            text.push_str(&format!("  - {why}\n"));
        }
    }
    for warning in study.warnings.iter().chain(&study.judgement.silent) {
        text.push_str(&format!("  - {warning}\n"));
    }
    terminal::text(&text)
}

fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(file, text)
        .with_context(|| format!("cannot write the report to {}", file.display()))
}
