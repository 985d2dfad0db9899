//! Do alerts and dashboards name metrics that there are?
//!
//! ```text
//! docs/metrics.md: a row a family -> names, those of histograms with their three endings
//! rules, their tests, dashboards: each word that begins with a prefix of metrics -> is it one of the names?
//! ```
//!
//! That the page lists what the daemon exports is a test of `tanada` (`daemon/metrics/tests.rs`): names are put together
//! when a page is written.
//!
//! Always true: a family that was renamed is found wherever it is still used.

use std::collections::BTreeSet;

use regex_lite::Regex;

use super::finding::Finding;
use super::tree::Tree;

/// The list of all families.
const PAGE: &str = "docs/metrics.md";

/// Where names are used: alerts with their tests, and dashboards.
const USES: [&str; 2] = ["packaging/prometheus/", "packaging/grafana/"];

/// What a histogram has series of.
const ENDINGS: [&str; 3] = ["_bucket", "_sum", "_count"];

/// Each metric that alerts and dashboards name is on the page.
#[must_use]
pub fn metrics(tree: &Tree) -> Vec<Finding> {
    let listed = listed(&tree.text(PAGE).unwrap_or_default());
    let word = Regex::new(r"\b(?:tanada|process)_[a-z0-9_]+").expect("the pattern is well formed");
    let mut findings = Vec::new();
    let uses = tree.files.iter();
    for file in uses.filter(|file| USES.iter().any(|of| file.starts_with(of))) {
        let text = tree.text(file).unwrap_or_default();
        for (line, text) in text.lines().enumerate() {
            let unknown = word
                .find_iter(text)
                .filter(|it| !listed.contains(it.as_str()));
            findings.extend(unknown.map(|it| Finding {
                file: file.clone(),
                line: line + 1,
                rule: "metrics",
                what: format!("`{}` is no metric that {PAGE} lists", it.as_str()),
            }));
        }
    }
    findings
}

/// The names of all series.
fn listed(page: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for line in page.lines() {
        let mut cells = line.split('|').map(str::trim).skip(1);
        let (Some(name), Some(kind)) = (cells.next(), cells.next()) else {
            continue;
        };
        let name = name.trim_matches('`').to_owned();
        if kind == "histogram" {
            // By its own name it has no series.
            names.extend(ENDINGS.map(|ending| format!("{name}{ending}")));
        } else {
            names.insert(name);
        }
    }
    names
}
