//! Is what is written by tools current, and is nothing too large?

use super::benchmarks;
use super::experiments;
use super::finding::Finding;
use super::links;
use super::papers;
use super::tree::Tree;

/// No file is longer: what is bigger is data, and data is generated or lives elsewhere.
const FILE_MAX_BYTES: u64 = 512 * 1024;

/// Lines that a page of docs/ may have: more is not read through, so it is cut by subject or generated.
const PAGE_MAX_LINES: usize = 250;

/// Characters that a line of prose on a page may have: longer ones would hide how long the page is.
const LINE_MAX_CHARS: usize = 120;

/// docs/papers.md and its pages are what the marks say.
#[must_use]
pub fn papers_current(tree: &Tree) -> Vec<Finding> {
    if papers::is_current(tree) {
        return Vec::new();
    }
    vec![Finding {
        file: papers::TABLE.to_owned(),
        line: 0,
        rule: "papers",
        what: "is not what the `Source:` marks say; run `cargo xtask papers`".to_owned(),
    }]
}

/// The pages of experiments are what the records say.
#[must_use]
pub fn experiments_current(tree: &Tree) -> Vec<Finding> {
    let what = match experiments::is_current(tree) {
        Ok(true) => return Vec::new(),
        Ok(false) => "or a page of its folder is not what the records say; run `cargo xtask experiment --page`".to_owned(),
        Err(error) => format!("a record cannot be used: {error:#}"),
    };
    vec![Finding {
        file: experiments::INDEX.to_owned(),
        line: 0,
        rule: "experiments",
        what,
    }]
}

/// docs/benchmarks.md is what the records say.
#[must_use]
pub fn benchmarks_current(tree: &Tree) -> Vec<Finding> {
    let what = match benchmarks::is_current(tree) {
        Ok(true) => return Vec::new(),
        Ok(false) => "is not what the records say; run `cargo xtask bench --page`".to_owned(),
        Err(error) => format!("a record cannot be read: {error:#}"),
    };
    vec![Finding {
        file: benchmarks::PAGE.to_owned(),
        line: 0,
        rule: "benchmarks",
        what,
    }]
}

/// No page of docs/ is longer than 250 lines; a line of prose there, and in README.md, than 120 characters.
#[must_use]
pub fn pages(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.with_extension("md") {
        let is_page = file.starts_with("docs/");
        if !is_page && file != "README.md" {
            continue;
        }
        let text = tree.text(file).unwrap_or_default();
        let mut add = |line, what| {
            findings.push(Finding {
                file: file.to_owned(),
                line,
                rule: "pages",
                what,
            });
        };
        let lines = text.lines().count();
        if is_page && lines > PAGE_MAX_LINES {
            add(
                0,
                format!(
                    "has {lines} lines, more than the {PAGE_MAX_LINES} of a page; cut it by subject"
                ),
            );
        }
        for (i, line) in links::prose(&text) {
            let length = line.chars().count();
            // A row of a table cannot be broken, and neither can a word.
            let whole = line.starts_with('|') || !line.trim().contains(' ');
            if length > LINE_MAX_CHARS && !whole {
                add(
                    i + 1,
                    format!(
                        "has {length} characters, more than the {LINE_MAX_CHARS} of a line; wrap it"
                    ),
                );
            }
        }
    }
    findings
}

/// Cargo.lock is there and names no source but the public registry.
#[must_use]
pub fn lock(tree: &Tree) -> Vec<Finding> {
    let file = "Cargo.lock";
    let finding = |line, what: String| Finding {
        file: file.to_owned(),
        line,
        rule: "lock",
        what,
    };
    let Some(text) = tree.text(file).filter(|_| tree.has(file)) else {
        return vec![finding(
            0,
            "is missing; `cargo metadata` writes it".to_owned(),
        )];
    };
    let public = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";
    text.lines()
        .enumerate()
        .filter(|(_, line)| line.starts_with("source = ") && *line != public)
        .map(|(i, line)| finding(i + 1, format!("`{line}` is not the public registry")))
        .collect()
}

/// No file is longer than 512 KiB.
#[must_use]
pub fn sizes(tree: &Tree) -> Vec<Finding> {
    tree.files
        .iter()
        .filter_map(|file| {
            let size = tree.root.join(file).metadata().ok()?.len();
            (size > FILE_MAX_BYTES).then(|| Finding {
                file: file.clone(),
                line: 0,
                rule: "sizes",
                what: format!(
                    "holds {size} bytes, more than the {FILE_MAX_BYTES} a file may; generate it or \
                     keep it outside"
                ),
            })
        })
        .collect()
}
