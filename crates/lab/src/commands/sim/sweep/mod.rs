//! `tanada sim sweep` and `tanada sim merge`: many simulations, one table.
//!
//! ```text
//! PLAN.toml -> lab::sweep, with the job its kind names -> table | JSON | HTML, results.csv, results.parquet
//! journals of all parts -> merge --------------------------------^
//! ```

mod cache_job;
mod run_job;
mod source;

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use lab::sweep::{
    Figure, Job, Options, Plan, Progress, Results, Shard, SweepError, View, headline, merge, page,
    run, write_merged,
};
use report::terminal;
use report::terminal::Usage;
use report::terminal::table::table;

use source::Remarks;

#[derive(Args)]
#[command(
    after_help = "The same command goes on where it was stopped or killed. Parts (--shard) run anywhere; \
    `tanada sim merge` joins them.\n\
    Example: tanada sim sweep plan.toml --shard 3/16 --out sweep"
)]
pub struct Sweep {
    /// The plan: what to vary, and what to run at each point.
    #[arg(value_name = "PLAN.toml")]
    pub plan: PathBuf,
    /// Where the journal and the results go [default: the plan's name with .sweep, here]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Run one part of so many, such as 3/16, counted from 1.
    #[arg(long, default_value = "1/1", value_name = "PART/OF")]
    pub shard: Shard,
    /// So many points at a time [default: one per processor]
    #[arg(long, default_value_t = 0, hide_default_value = true, value_name = "N")]
    pub jobs: usize,
    /// Throw away what another plan left in the directory.
    #[arg(long)]
    pub restart: bool,
    #[command(flatten)]
    pub form: Form,
}

#[derive(Args)]
#[command(after_help = "Example: tanada sim merge sweep -o merged --html merged.html")]
pub struct Merge {
    /// Directories that `tanada sim sweep --out` wrote, or the journals in them.
    #[arg(required = true, value_name = "DIR|FILE")]
    pub inputs: Vec<PathBuf>,
    /// Where results.csv and results.parquet go.
    #[arg(short, long, value_name = "DIR")]
    pub out: PathBuf,
    /// Leave out what is missing instead of refusing.
    #[arg(long)]
    pub partial: bool,
    #[command(flatten)]
    pub form: Form,
}

/// In which form to answer.
#[derive(Args)]
pub struct Form {
    /// Print the rows as JSON.
    #[arg(long)]
    pub json: bool,
    /// Write a report: one self-contained HTML file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// The parameter the report's charts run along [default: the first that has several numbers]
    #[arg(long, value_name = "PARAMETER")]
    pub x: Option<String>,
    /// A measured value to draw; several are possible [default: the first few that vary]
    #[arg(long, value_name = "NAME")]
    pub y: Vec<String>,
}

/// The kinds of points there are.
const KINDS: &str = "run, cache";

fn job(kind: &str, bar: &ProgressBar) -> Result<Box<dyn Job>, Usage> {
    let remarks = Remarks::new(bar.clone());
    match kind {
        "run" => Ok(Box::new(run_job::RunJob::new(remarks))),
        "cache" => Ok(Box::new(cache_job::CacheJob::new(remarks))),
        other => Err(Usage(format!(
            "there is no kind '{other}' of points; there are {KINDS}"
        ))),
    }
}

/// Runs `tanada sim sweep`.
pub fn sweep(arguments: &Sweep) -> anyhow::Result<()> {
    let plan = Plan::read(&arguments.plan).map_err(as_usage)?;
    let bar = ProgressBar::no_length();
    let job = job(plan.kind(), &bar)?;
    let text = std::fs::read_to_string(&arguments.plan)?;
    let name = arguments.plan.display().to_string();
    let view = arguments.form.view(command(arguments), Some((name, text)));
    view.check_plan(&plan).map_err(Usage)?;
    arguments.form.check_place()?;
    let stem = arguments.plan.file_stem().unwrap_or_default();
    let out = arguments.out.clone();
    let out = out.unwrap_or_else(|| Path::new(stem).with_extension("sweep"));
    let options = Options {
        shard: arguments.shard,
        jobs: arguments.jobs,
        restart: arguments.restart,
        wanted: view.y.clone(),
        ..Options::new(&out)
    };
    bar.set_style(ProgressStyle::with_template(
        "{bar:30} {pos} of {len} points  {msg}  {eta} left",
    )?);
    let progress = |progress: Progress<'_>| {
        bar.set_length(progress.points);
        bar.set_position(progress.done);
        if let Some((point, reason)) = progress.failure {
            bar.set_message(format!("{} failed", progress.failed));
            bar.suspend(|| eprintln!("point {point} failed: {reason}"));
        }
    };
    let summary = run(&plan, &*job, &options, &progress).map_err(as_usage)?;
    bar.finish_and_clear();
    if summary.resumed > 0 {
        eprintln!("{} points were done already", summary.resumed);
    }
    if summary.damaged > 0 {
        eprintln!(
            "{} lines of the journal were damaged; their points were run again",
            summary.damaged
        );
    }
    answer(
        &summary.results,
        &arguments.form,
        &view,
        (&summary.csv, &summary.parquet),
    )
}

/// Runs `tanada sim merge`.
pub fn join(arguments: &Merge) -> anyhow::Result<()> {
    arguments.form.check_place()?;
    let results = merge(&arguments.inputs, arguments.partial).map_err(as_usage)?;
    let (csv, parquet) = write_merged(&results, &arguments.out).map_err(as_usage)?;
    let inputs = arguments.inputs.iter().map(|input| quoted(input));
    let command = format!(
        "tanada sim merge {} -o {}",
        inputs.collect::<Vec<_>>().join(" "),
        quoted(&arguments.out)
    );
    let view = arguments.form.view(command, None);
    answer(&results, &arguments.form, &view, (&csv, &parquet))
}

impl Form {
    /// Can the report be put where it is to go? Asked before anything is run.
    fn check_place(&self) -> anyhow::Result<()> {
        let Some(file) = &self.html else {
            return Ok(());
        };
        let directory = match file.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        if !directory.is_dir() {
            bail!(
                "cannot write the report to {}: there is no directory {}; make it, or name another",
                file.display(),
                directory.display()
            );
        }
        if file.is_dir() {
            bail!(
                "cannot write the report to {}: it is a directory; name a file",
                file.display()
            );
        }
        Ok(())
    }

    fn view(&self, command: String, plan: Option<(String, String)>) -> View {
        View {
            x: self.x.clone(),
            y: self.y.clone(),
            command,
            plan,
        }
    }
}

/// Results in the form asked for; an error if points failed.
fn answer(
    results: &Results,
    form: &Form,
    view: &View,
    (csv, parquet): (&Path, &Path),
) -> anyhow::Result<()> {
    view.check(results).map_err(Usage)?;
    if let Some(file) = &form.html {
        std::fs::write(file, page(results, view).html())
            .with_context(|| format!("cannot write the report to {}", file.display()))?;
    }
    match form.json {
        true => terminal::json(&results.json())?,
        false => {
            let files = format!("{}\n{}\n", csv.display(), parquet.display());
            terminal::text(&format!("{}{files}", text(results, view)))?;
        }
    }
    let failed = results.failed();
    match failed.first() {
        None => Ok(()),
        Some((point, reason)) => bail!(
            "{} points failed, the first of them point {point}: {reason}; `tanada sim sweep` tries them again when it is run again",
            failed.len()
        ),
    }
}

/// More rows are looked at in the files.
const ROWS_SHOWN: usize = 40;

/// Parameters and the values looked at first, as a table.
fn text(results: &Results, view: &View) -> String {
    let mut names = vec!["point".to_owned()];
    names.extend(results.parameters().iter().cloned());
    names.extend(headline(results, view));
    if !results.failed().is_empty() {
        names.push("failed".to_owned());
    }
    let rows: Vec<Vec<String>> = (0..results.rows().min(ROWS_SHOWN))
        .map(|row| {
            names
                .iter()
                .map(|name| cell(results.cell(row, name)))
                .collect()
        })
        .collect();
    let heads: Vec<String> = names.iter().map(|name| name.to_uppercase()).collect();
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let mut text = table(&heads, &rows);
    if results.rows() > ROWS_SHOWN {
        text.push_str(&format!("... {} rows in all\n", results.rows()));
    }
    for origin in results.origins() {
        text.push_str(&format!("trace {origin}\n"));
    }
    text.push('\n');
    text
}

fn cell(figure: Option<&Figure>) -> String {
    match figure {
        None => "-".to_owned(),
        Some(Figure::Real(number)) if number.is_finite() => {
            // Four digits: what people compare.
            let digits = (3.0 - number.abs().max(1e-9).log10().floor()).clamp(0.0, 9.0) as usize;
            format!("{number:.digits$}")
        }
        // One line, whatever a reason says.
        Some(other) => other
            .to_string()
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" "),
    }
}

/// What the user asked for and cannot be is bad usage; the rest is a job that failed.
fn as_usage(error: SweepError) -> anyhow::Error {
    match error {
        SweepError::Plan { .. }
        | SweepError::OtherPlan { .. }
        | SweepError::Journal { .. }
        | SweepError::Mixed(_)
        | SweepError::Twice { .. }
        | SweepError::NotMeasured { .. }
        | SweepError::NoJournal { .. } => Usage(error.to_string()).into(),
        error => error.into(),
    }
}

/// The command that does the same again.
fn command(arguments: &Sweep) -> String {
    let mut words = format!("tanada sim sweep {}", quoted(&arguments.plan));
    if arguments.shard != Shard::WHOLE {
        let Shard { part, of } = arguments.shard;
        words.push_str(&format!(" --shard {part}/{of}"));
    }
    words
}

/// A path as a shell takes it.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => text,
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}
