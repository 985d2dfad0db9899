//! Does the tree keep its own rules?
//!
//! ```text
//! files -> one function per rule -> findings: file, line, what is wrong and what to do
//!                               \-> measures -> beside the baseline -> findings
//! ```
//!
//! The compiler and clippy see to the code; this sees to what they do not know: which crate may see which, how a
//! file opens, what may not be left behind, whether words, links and names of metrics still hold, whether pages, files, functions and types
//! are short enough, whether imports go in circles, how commits are called.
//!
//! Always true: a rule reads the tree (or what `source` made of its Rust files) and nothing else; only the names of
//! commits come from git.

pub mod baseline;
pub mod benchmarks;
pub mod circles;
pub mod commits;
pub mod experiments;
pub mod facts;
pub mod files;
pub mod finding;
pub mod habits;
pub mod links;
pub mod look;
pub mod metrics;
pub mod order;
pub mod papers;
mod prose;
pub mod rust_text;
pub mod size;
pub mod source;
pub mod tree;
pub mod types;
pub mod words;

use std::fs;

use anyhow::{Context, Result, bail};

use baseline::Baseline;
use facts::Source;
use finding::{Finding, Measure};
use source::Sources;
use tree::Tree;

/// What tidy has to say.
#[derive(Debug, Default)]
pub struct Report {
    /// What breaks a rule, by file and line.
    pub findings: Vec<Finding>,
    /// What could not be checked, and why.
    pub skipped: Vec<String>,
    /// What the baseline holds.
    pub baseline: Baseline,
}

/// Checks the project and prints what it finds.
///
/// # Errors
/// If a rule is broken or the tree cannot be read.
pub fn run() -> Result<()> {
    let tree = Tree::of_project()?;
    let report = report(&tree);
    for finding in &report.findings {
        println!("{finding}");
    }
    for skipped in &report.skipped {
        println!("tidy: skipped: {skipped}");
    }
    print_totals(&report.baseline);
    if !report.findings.is_empty() {
        bail!("tidy: {} places break the rules", report.findings.len());
    }
    println!("tidy: {} files keep the rules", tree.files.len());
    Ok(())
}

/// Writes the baseline anew, with what became less and nothing that became more.
///
/// # Errors
/// If the tree cannot be read, the baseline is not of its form, or it cannot be written.
pub fn shrink() -> Result<()> {
    let tree = Tree::of_project()?;
    let text = tree.text(baseline::FILE).unwrap_or_default();
    let old = Baseline::parse(&text).with_context(|| baseline::FILE.to_owned())?;
    let new = old.shrunk(&measures(&tree, &Sources::of(&tree)));
    let path = tree.root.join(baseline::FILE);
    fs::write(&path, new.text()).with_context(|| format!("cannot write {}", path.display()))?;
    print_totals(&new);
    Ok(())
}

fn print_totals(baseline: &Baseline) {
    println!("tidy: above the measures, in {}:", baseline::FILE);
    for ((rule, total), (_, what)) in baseline.totals().into_iter().zip(baseline::RULES) {
        println!(
            "  {rule:<10} {:>6} in {:>4} entries   {what}",
            total.sum, total.entries
        );
    }
}

/// Everything that breaks a rule, by file and line.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Finding> {
    report(tree).findings
}

/// Everything that breaks a rule, what could not be checked, and the baseline.
#[must_use]
pub fn report(tree: &Tree) -> Report {
    let rules: [fn(&Tree) -> Vec<Finding>; 11] = [
        order::order,
        habits::heads,
        habits::outside,
        links::links,
        metrics::metrics,
        files::papers_current,
        files::benchmarks_current,
        files::experiments_current,
        files::pages,
        files::lock,
        files::sizes,
    ];
    let mut report = Report {
        findings: rules.iter().flat_map(|rule| rule(tree)).collect(),
        ..Report::default()
    };
    let sources = Sources::of(tree);
    report.findings.extend(unreadable(&sources));
    report.findings.extend(habits::unfinished(&sources));
    report.findings.extend(habits::opt_in_to_unsafe(&sources));
    match Baseline::parse(&tree.text(baseline::FILE).unwrap_or_default()) {
        Ok(baseline) => report.baseline = baseline,
        Err(error) => report.findings.push(Finding {
            file: baseline::FILE.to_owned(),
            line: 0,
            rule: "baseline",
            what: format!("{error:#}"),
        }),
    }
    let over = report.baseline.compare(&measures(tree, &sources));
    report.findings.extend(over);
    if let Some(after) = &report.baseline.after {
        match commits::since(&tree.root, after) {
            Ok(subjects) => report.findings.extend(commits::commits(&subjects)),
            Err(why) => report.skipped.push(format!("subjects of commits: {why}")),
        }
    }
    report.findings.sort();
    report
}

/// All that has a measure, within it or above it.
#[must_use]
pub fn measures(tree: &Tree, sources: &Sources) -> Vec<Measure> {
    let rules: [fn(&Sources) -> Vec<Measure>; 5] = [
        size::files,
        size::functions,
        types::fields,
        types::methods,
        circles::circles,
    ];
    let mut measures: Vec<Measure> = rules.iter().flat_map(|rule| rule(sources)).collect();
    measures.extend(words::words(tree, sources));
    measures
}

/// Rust files that are none.
fn unreadable(sources: &Sources) -> Vec<Finding> {
    let finding = |source: &Source| {
        Some(Finding {
            file: source.file.clone(),
            line: 0,
            rule: "syntax",
            what: format!("cannot be read as Rust: {}", source.error.as_ref()?),
        })
    };
    sources.files.iter().filter_map(finding).collect()
}
