//! `tanada experiment ...`: the papers' measurements, most in virtual time, their figures beside ours.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, Subcommand};
use experiments::{ExperimentError, Options, Part, Results};
use report::terminal;
use report::terminal::Usage;
use report::terminal::progress::bar;
use report::terminal::table::table;
use report::{Row, Value};

use crate::commands::interrupt;

#[derive(Subcommand)]
pub enum Experiment {
    /// List the experiments.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Run one: the paper's figures beside ours.
    Run(Box<RunExperiment>),
}

#[derive(Args)]
pub struct RunExperiment {
    /// Its name; `tanada experiment list` shows them.
    pub name: String,
    /// The same rows from a shorter run (under a minute).
    #[arg(long)]
    pub quick: bool,
    /// The first seed; others follow it.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Only these cases, with their own figures and no verdicts; a name that is none is answered with those there are.
    #[arg(long, value_name = "CASE,...", value_delimiter = ',')]
    pub cases: Vec<String>,
    /// Only these methods, likewise.
    #[arg(long, value_name = "METHOD,...", value_delimiter = ',')]
    pub methods: Vec<String>,
    /// Write down in this file what is done, and go on there if the run was interrupted: type the same command again.
    #[arg(long, value_name = "FILE")]
    pub resume: Option<PathBuf>,
    /// Print the rows as JSON.
    #[arg(long)]
    pub json: bool,
    /// Write a report: one self-contained HTML file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// For tiering: replay the recorded src1_0 and src1_1 of MSR Cambridge in this folder (SNIA IOTTA), not generated ones.
    #[arg(long, value_name = "DIR")]
    pub msr: Option<PathBuf>,
    /// For tiering: also compare our defaults with the disk and the cache alone on every block trace in this folder; of a part with --cases traces.
    #[arg(long, value_name = "DIR")]
    pub traces: Option<PathBuf>,
    /// For reserve: some of it in real time, on a file of 1 GiB in this folder or of this name, beside virtual time; ten minutes.
    #[arg(long, value_name = "PLACE", conflicts_with = "quick")]
    pub real: Option<PathBuf>,
    /// For predict-loop: how many times slower than their sheets the devices are; what a fast one does is then not lost in what
    /// the way there takes [default: 1]
    #[arg(long, value_name = "TIMES")]
    pub slower: Option<f64>,
}

/// Lists or runs experiments.
pub fn run(command: Experiment) -> anyhow::Result<()> {
    match command {
        Experiment::List { json: true } => terminal::json(&experiments::list()),
        Experiment::List { json: false } => {
            let rows: Vec<Vec<String>> = experiments::list()
                .iter()
                .map(|one| [one.name, one.paper, one.about].map(str::to_owned).to_vec())
                .collect();
            terminal::text(&table(&["EXPERIMENT", "PAPER", "ABOUT"], &rows))
        }
        Experiment::Run(arguments) => run_one(&arguments),
    }
}

fn run_one(arguments: &RunExperiment) -> anyhow::Result<()> {
    // The others are ended by a signal as any program is: they put nothing back.
    let stop = match ["predict-loop", "truth"].contains(&&*arguments.name) {
        true => Some(interrupt::listen()?),
        false => None,
    };
    let options = Options {
        quick: arguments.quick,
        seed: arguments.seed,
        msr: arguments.msr.as_deref(),
        traces: arguments.traces.as_deref(),
        real: arguments.real.as_deref(),
        slower: arguments.slower.unwrap_or(1.0),
        stop: stop.as_ref(),
        part: Part {
            cases: &arguments.cases,
            methods: &arguments.methods,
        },
        resume: arguments.resume.as_deref(),
    };
    check(arguments)?;
    let bar = bar("{bar:30} {percent:>3} %  {msg}", 1000);
    let mut progress = |what: &str, done: f64| {
        bar.set_message(what.to_owned());
        bar.set_position((done * 1000.0) as u64);
    };
    let Results { rows, figures } = match experiments::run(&arguments.name, options, &mut progress)
    {
        Err(error @ (ExperimentError::Unknown { .. } | ExperimentError::NoPart { .. })) => {
            return Err(Usage(error.to_string()).into());
        }
        answer => answer?,
    };
    bar.finish_and_clear();
    if let Some(file) = &arguments.html {
        let title = format!("Tanada: experiment {}", arguments.name);
        write(file, &report::html_with(&rows, figures, &title))?;
    }
    terminal::answer(arguments.json, &rows, || page(&rows))?;
    if !options.part.is_whole() {
        return Ok(());
    }
    let failures = experiments::failures(&arguments.name, &rows);
    if let Some(first) = failures.first() {
        anyhow::bail!(
            "{} figure(s) of {} do not come out as printed; the first: {first}",
            failures.len(),
            arguments.name
        );
    }
    Ok(())
}

/// Refuses options of one experiment with another.
fn check(arguments: &RunExperiment) -> anyhow::Result<()> {
    let own = [
        ("--msr", arguments.msr.is_some(), "tiering"),
        ("--traces", arguments.traces.is_some(), "tiering"),
        ("--real", arguments.real.is_some(), "reserve"),
        ("--slower", arguments.slower.is_some(), "predict-loop"),
    ];
    for (option, given, experiment) in own {
        if given && arguments.name != experiment {
            let name = &arguments.name;
            let what = format!("{option} is for the experiment {experiment}, not for {name}");
            return Err(Usage(what).into());
        }
    }
    Ok(())
}

fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(file, text)
        .with_context(|| format!("cannot write the report to {}", file.display()))
}

/// One table for each group of rows, notes beneath it.
fn page(rows: &[Row]) -> String {
    let mut page = String::new();
    for group in rows.chunk_by(|a, b| a.table == b.table && a.devices == b.devices) {
        page.push_str(&format!("{} ({})\n", group[0].table, group[0].devices));
        let is_judged = group.iter().any(|row| row.verdict.is_some());
        let head = HEAD.iter().chain(JUDGED.iter().filter(|_| is_judged));
        let head: Vec<&str> = head.copied().collect();
        let lines: Vec<Vec<String>> = group.iter().map(|row| line(row, is_judged)).collect();
        page.push_str(&table(&head, &lines));
        let mut notes: Vec<&str> = group.iter().map(|row| row.note.as_str()).collect();
        notes.retain(|note| !note.is_empty());
        notes.dedup();
        for note in notes {
            page.push_str(&format!("  - {note}\n"));
        }
        page.push('\n');
    }
    page
}

const HEAD: [&str; 8] = [
    "CASE",
    "METHOD",
    "METRIC",
    "UNIT",
    "PUBLISHED",
    "OURS",
    "SPREAD",
    "EVIDENCE",
];
const JUDGED: [&str; 2] = ["BAR", "VERDICT"];

fn line(row: &Row, is_judged: bool) -> Vec<String> {
    let mut line = vec![
        row.case.clone(),
        row.method.clone(),
        row.metric.clone(),
        row.unit.clone(),
        printed(row),
        beside(row),
        spread(row),
        row.evidence.to_string(),
    ];
    if is_judged {
        line.push(word(row.bar.map(Value::Number).as_ref()));
        line.push(
            row.verdict
                .map_or_else(|| "-".to_owned(), |it| it.to_string()),
        );
    }
    line
}

fn word(value: Option<&Value>) -> String {
    value.map_or_else(|| "-".to_owned(), Value::to_string)
}

/// The published figure with every decimal that is printed, where those are more than four digits.
fn printed(row: &Row) -> String {
    let short = word(row.published.as_ref());
    match &row.published {
        Some(Value::Number(number)) if number.to_string().len() > short.len() => number.to_string(),
        _ => short,
    }
}

/// Our figure, with as many decimals as the published one has where those are more than we would show.
fn beside(row: &Row) -> String {
    let ours = word(row.ours.as_ref());
    let (Some(Value::Number(published)), Some(Value::Number(number))) = (&row.published, &row.ours)
    else {
        return ours;
    };
    let decimals = |text: &str| text.split_once('.').map_or(0, |(_, part)| part.len());
    let printed = decimals(&published.to_string());
    match printed > decimals(&ours) {
        true => format!("{number:.printed$}"),
        false => ours,
    }
}

fn spread(row: &Row) -> String {
    match (&row.low, &row.high) {
        (Some(low), Some(high)) if low != high => format!("{low}..{high}"),
        _ => "-".to_owned(),
    }
}
