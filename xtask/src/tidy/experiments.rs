//! The pages of what the recorded experiments found.
//!
//! ```text
//! experiments/results/NAME.json -> docs/experiments/tables/NAME.md: each figure that is judged, one a line
//!                               -> the table of claims in docs/experiments.md, between two marks
//! ```
//!
//! A record is one run: its judged rows, with date, commit, machine and command (`xtask/src/bench/experiment.rs` writes it).
//! Claims that differ by their case alone are one line in the table of claims: the figure is the range of theirs.
//!
//! Always true: the same records give the same pages, and `cargo xtask tidy` refuses others.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result};
use serde_json::Value;

use super::prose::number;
use super::tree::Tree;

/// The folder of the records.
pub const RESULTS: &str = "experiments/results/";
/// The page with the table of claims.
pub const INDEX: &str = "docs/experiments.md";
/// The folder of the generated pages.
pub const TABLES: &str = "docs/experiments/tables/";

const BEGIN: &str = "<!-- claims: written by `cargo xtask experiment --page` -->\n";
const END: &str = "<!-- end of claims -->\n";

/// Every page by its path; the index among them, where there is one.
///
/// # Errors
/// If a record cannot be read, or the index has no place for the claims.
pub fn pages(tree: &Tree) -> Result<BTreeMap<String, String>> {
    let records = records(tree)?;
    let page = |record: &Record| (format!("{TABLES}{}.md", record.name), table_page(record));
    let mut pages: BTreeMap<String, String> = records.iter().map(page).collect();
    if records.is_empty() {
        return Ok(pages);
    }
    let index = tree.text(INDEX).unwrap_or_default();
    let parts = index.split_once(BEGIN).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(END)?;
        Some((before, after))
    });
    let (before, after) =
        parts.with_context(|| format!("{INDEX} has no marks around its table of claims"))?;
    let text = format!("{before}{BEGIN}\n{}\n{END}{after}", claims(&records));
    pages.insert(INDEX.to_owned(), text);
    Ok(pages)
}

/// Writes all pages.
///
/// # Errors
/// If a record cannot be read or a page not be written.
pub fn write(tree: &Tree) -> Result<()> {
    for (file, text) in pages(tree)? {
        let path = tree.root().join(&file);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Are all pages what the records say?
///
/// # Errors
/// If a record cannot be read.
pub fn is_current(tree: &Tree) -> Result<bool> {
    let pages = pages(tree)?;
    let mut written = tree
        .with_extension("md")
        .filter(|file| file.starts_with(TABLES));
    Ok(written.all(|file| pages.contains_key(file))
        && pages
            .iter()
            .all(|(file, text)| tree.text(file).as_ref() == Some(text)))
}

/// One recorded run.
struct Record {
    name: String,
    about: String,
    /// Rows with a verdict.
    rows: Vec<Value>,
}

fn records(tree: &Tree) -> Result<Vec<Record>> {
    let files = tree
        .with_extension("json")
        .filter(|file| file.starts_with(RESULTS));
    let record = |file: &str| {
        let text = tree.text(file).unwrap_or_default();
        let record: Value =
            serde_json::from_str(&text).with_context(|| format!("{file} is no JSON"))?;
        let rows = record["rows"]
            .as_array()
            .with_context(|| format!("{file} has no `rows`"))?;
        let of = |key: &str| record[key].as_str().unwrap_or("unknown").to_owned();
        let name = record["experiment"].as_str();
        Ok(Record {
            name: name
                .with_context(|| format!("{file} has no `experiment`"))?
                .to_owned(),
            about: format!(
                "{}, commit {}: `{}`",
                of("date"),
                of("commit"),
                of("command")
            ),
            rows: rows
                .iter()
                .filter(|row| row["verdict"].is_string())
                .cloned()
                .collect(),
        })
    };
    files.map(record).collect()
}

fn word<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().unwrap_or("")
}

/// A figure, or the words in its place.
fn shown(value: &Value) -> String {
    match value.as_f64() {
        Some(figure) => number(figure),
        None => value.as_str().unwrap_or("").to_owned(),
    }
}

/// `fails-outside` as people read it.
fn verdict(row: &Value) -> &str {
    match word(row, "verdict") {
        "direction-only" => "direction only",
        "fails-outside" => "fails outside the tuned cells",
        "not-judged" => "not judged",
        other => other,
    }
}

/// How often each verdict was given: `4 agrees, 22 direction only`.
fn counts(rows: &[&Value]) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for row in rows {
        let verdict = verdict(row);
        match counts.iter_mut().find(|(it, _)| *it == verdict) {
            Some((_, count)) => *count += 1,
            None => counts.push((verdict, 1)),
        }
    }
    match &counts[..] {
        [(verdict, 1)] => (*verdict).to_owned(),
        _ => {
            let words = counts
                .iter()
                .map(|(verdict, count)| format!("{count} {verdict}"));
            words.collect::<Vec<_>>().join(", ")
        }
    }
}

/// What the rows of one line of the table of claims share: of statements how they were measured alone.
fn line_of(row: &Value) -> [String; 3] {
    let is_claim = row["bar"].is_number() || word(row, "table").ends_with("claims");
    let of = |key: &str| {
        if is_claim {
            word(row, key).to_owned()
        } else {
            String::new()
        }
    };
    let measured = ["evidence", "devices"].map(|key| word(row, key)).join(" ");
    let table = format!("{} {measured}", of("table"));
    [table, of("metric"), of("unit")]
}

/// One line for claims alike but for their case and method, one for all statements that were measured alike.
fn claims(records: &[Record]) -> String {
    let mut text =
        "| experiment | claim | evidence | bar | figure | verdict |\n|---|---|---|---|---|---|\n"
            .to_owned();
    for record in records {
        let mut lines: Vec<([String; 3], Vec<&Value>)> = Vec::new();
        for row in &record.rows {
            let line = line_of(row);
            match lines.iter_mut().find(|(it, _)| *it == line) {
                Some((_, rows)) => rows.push(row),
                None => lines.push((line, vec![row])),
            }
        }
        let name = &record.name;
        for ([_, metric, unit], rows) in lines {
            let about = match metric.is_empty() {
                true => format!("what the paper says: {}", each(&rows, "table").join(", ")),
                false => {
                    let methods = each(&rows, "method").join("`, `");
                    format!(
                        "{}: {}, `{methods}`",
                        cases(&rows),
                        metric.replace('_', " ")
                    )
                }
            };
            let [bar, ours] = match metric.is_empty() {
                true => [String::new(), String::new()],
                false => ["bar", "ours"].map(|key| range(&rows, key, &unit)),
            };
            let (evidence, devices) = (word(rows[0], "evidence"), word(rows[0], "devices"));
            let verdicts = counts(&rows);
            text.push_str(&format!(
                "| [{name}](experiments/tables/{name}.md) | {about} | {evidence}, {devices} | {bar} | {ours} | {verdicts} |\n"
            ));
        }
    }
    text
}

/// What `rows` have under `key`, each once.
fn each<'a>(rows: &[&'a Value], key: &str) -> Vec<&'a str> {
    let mut words: Vec<&str> = Vec::new();
    for row in rows {
        if !words.contains(&word(row, key)) {
            words.push(word(row, key));
        }
    }
    words
}

fn cases(rows: &[&Value]) -> String {
    let cases = each(rows, "case");
    match &cases[..] {
        [first, _, _, _, ..] => format!("{first} and {} more", cases.len() - 1),
        few => few.join("; "),
    }
}

/// From the least to the most.
fn range(rows: &[&Value], key: &str, unit: &str) -> String {
    let values: Vec<f64> = rows.iter().filter_map(|row| row[key].as_f64()).collect();
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    match (values.len(), least == most) {
        (0, _) => "none".to_owned(),
        (_, true) => format!("{} {unit}", number(least)),
        (_, false) => format!("{} to {} {unit}", number(least), number(most)),
    }
}

fn table_page(record: &Record) -> String {
    let name = &record.name;
    let mut page = format!(
        "# `{name}`: what was judged\n\nWritten by `cargo xtask experiment --page` from `{RESULTS}{name}.json`.\n\n{}.\n",
        record.about
    );
    let all: Vec<&Value> = record.rows.iter().collect();
    for table in each(&all, "table") {
        let rows = all.iter().copied();
        let rows: Vec<&Value> = rows.filter(|row| word(row, "table") == table).collect();
        page.push_str(&format!("\n## {table}\n\n{}.\n\n", counts(&rows)));
        page.push_str(
            "| case | method | metric | published or bar | ours | evidence | verdict | |\n|---|---|---|---|---|---|---|---|\n",
        );
        rows.into_iter().for_each(|row| page.push_str(&line(row)));
    }
    page
}

fn line(row: &Value) -> String {
    let beside = if row["bar"].is_number() {
        &row["bar"]
    } else {
        &row["published"]
    };
    let (low, high) = (shown(&row["low"]), shown(&row["high"]));
    let spread = match low == high {
        true => String::new(),
        false => format!(" ({low} to {high})"),
    };
    format!(
        "| {} | `{}` | {} ({}) | {} | {}{spread} | {}, {} | {} | {} |\n",
        word(row, "case"),
        word(row, "method"),
        word(row, "metric"),
        word(row, "unit"),
        shown(beside),
        shown(&row["ours"]),
        word(row, "evidence"),
        word(row, "devices"),
        verdict(row),
        word(row, "note").replace('|', "/")
    )
}
