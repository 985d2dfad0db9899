//! What the cases found: rows with a bar and a verdict, and figures beside them.
//!
//! ```text
//! case -> row(metric, figure, bar) -> a line for people at once
//!                                  -> one JSON row of all runs at the end
//! ```
//!
//! A metric holds if each of its runs does.

use std::fmt;

use super::figures::Results;

/// What a figure must be.
#[derive(Clone, Copy)]
pub enum Bar {
    Least(f64),
    Most(f64),
    Exactly(f64),
    More(f64),
    /// Neither of them, but between.
    Between(f64, f64),
}

impl Bar {
    /// Is the figure as it must be? What is no number is not.
    fn admits(self, figure: f64) -> bool {
        match self {
            Bar::Least(bar) => figure >= bar,
            Bar::Most(bar) => figure <= bar,
            Bar::Exactly(bar) => figure == bar,
            Bar::More(bar) => figure > bar,
            Bar::Between(low, high) => figure > low && figure < high,
        }
    }
}

impl fmt::Display for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bar::Least(bar) => write!(f, ">= {bar}"),
            Bar::Most(bar) => write!(f, "<= {bar}"),
            Bar::Exactly(bar) => write!(f, "= {bar}"),
            Bar::More(bar) => write!(f, "> {bar}"),
            Bar::Between(low, high) => write!(f, "> {low} and < {high}"),
        }
    }
}

/// One metric of a case, with the figure of each run.
struct Row {
    case: String,
    metric: String,
    unit: String,
    devices: &'static str,
    runs: Vec<f64>,
    /// None: there is no bar for it.
    bar: Option<String>,
    holds: bool,
}

/// Rows of all cases.
pub struct Report {
    figures: Results,
    case: String,
    devices: &'static str,
    rows: Vec<Row>,
    failed: Vec<String>,
    /// Kills and drawn calendars as often as the contract says, however long that takes.
    pub full: bool,
}

impl Report {
    pub fn new(full: bool) -> Report {
        Report {
            figures: Results::new("accept"),
            case: String::new(),
            devices: "real",
            rows: Vec::new(),
            failed: Vec::new(),
            full,
        }
    }

    /// What comes now is of this case; its devices are `real`, or `emulated` where a model is the disk.
    pub fn begin(&mut self, case: &str, devices: &'static str) {
        case.clone_into(&mut self.case);
        self.devices = devices;
    }

    /// What was measured, and whether that is within its bar.
    pub fn row(&mut self, metric: &str, figure: f64, unit: &str, bar: Bar) {
        let holds = bar.admits(figure);
        self.line(metric, figure, unit);
        let verdict = if holds { "holds" } else { "FALLS SHORT" };
        self.note(&format!("bar {bar}: {verdict}"));
        if !holds {
            self.failed.push(format!("{}: {metric}", self.case));
        }
        self.keep(metric, figure, unit, Some((bar, holds)));
    }

    /// What a row stands beside; there is no bar for it.
    pub fn figure(&mut self, metric: &str, figure: f64, unit: &str) {
        self.line(metric, figure, unit);
        self.keep(metric, figure, unit, None);
    }

    /// A line for people, below the row that it is about.
    pub fn note(&self, line: &str) {
        self.figures.say(&format!("{:<9}{line}", ""));
    }

    /// A line for people.
    pub fn say(&self, line: &str) {
        self.figures.say(line);
    }

    /// The case could not be carried out.
    pub fn broke(&mut self, why: &dyn fmt::Display) {
        eprintln!("accept: {}: {why}", self.case);
        self.failed.push(format!("{}: {why}", self.case));
    }

    fn line(&self, metric: &str, figure: f64, unit: &str) {
        self.say(&format!(
            "{:<10}{metric:<66}{figure:>10.3} {unit}",
            self.case
        ));
    }

    fn keep(&mut self, metric: &str, figure: f64, unit: &str, verdict: Option<(Bar, bool)>) {
        let holds = verdict.is_none_or(|(_, holds)| holds);
        let mut same = self.rows.iter_mut();
        if let Some(row) = same.find(|it| it.case == self.case && it.metric == metric) {
            row.runs.push(figure);
            row.holds &= holds;
            return;
        }
        self.rows.push(Row {
            case: self.case.clone(),
            metric: metric.to_owned(),
            unit: unit.to_owned(),
            devices: self.devices,
            runs: vec![figure],
            bar: verdict.map(|(bar, _)| bar.to_string()),
            holds,
        });
    }

    /// Prints the JSON rows where they are wanted; what fell short.
    pub fn finish(mut self) -> Vec<String> {
        for row in &self.rows {
            let of = (&*row.case, "tanada", &*row.metric, &*row.unit);
            let verdict = match &row.bar {
                Some(bar) => format!(",\"bar\":{bar:?},\"holds\":{}", row.holds),
                None => String::new(),
            };
            self.figures.more = format!(",\"evidence\":\"measured\"{verdict}");
            self.figures.add(of, &row.runs, row.devices);
        }
        self.figures.finish();
        self.failed
    }
}
