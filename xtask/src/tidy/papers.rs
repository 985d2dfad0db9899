//! Which part of which paper is carried out where?
//!
//! ```text
//! `Source:` and `Choice:` marks in comments -> docs/papers/TAG.md, other.md, choices.md; docs/papers.md lists them
//! ```
//!
//! A mark opens a paragraph of a comment (`Source: AST 3.2.2, figures 1-4.`) or is a heading of a doc
//! comment (`# Source`) with the paragraph below it. It belongs to the item it documents, to the file
//! (`//!`), or to the function it stands in (`//`).
//!
//! Always true: the same tree gives the same text, and moving an item without renaming it inside
//! its file changes nothing (no line numbers).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result};
use regex_lite::Regex;

use super::rust_text::{self, Line};
use super::tree::Tree;

/// The page that lists the others.
pub const TABLE: &str = "docs/papers.md";

/// The folder of the others: one for each paper, one for other sources, one for choices.
pub const PAGES: &str = "docs/papers/";

/// The papers Tanada carries out: tag and subject.
const PAPERS: [(&str, &str); 5] = [
    ("AST", "on-the-fly automated storage tiering"),
    ("PROBS", "object storage device with reserved throughput"),
    ("DMSSD", "SSD as a disk cache"),
    ("COST", "replica choice by queue cost for virtual disks"),
    ("SCM", "benchmark results predicted by regression"),
];

/// What a mark says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// This part of a paper is carried out here.
    Source,
    /// The papers leave this open; what was chosen.
    Choice,
}

/// One mark in one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// The file, relative to the workspace.
    pub file: String,
    /// The item it belongs to; empty for the file as a whole.
    pub item: String,
    /// Source or choice.
    pub kind: Kind,
    /// What it says, on one line.
    pub text: String,
}

/// Writes the pages, and removes those that the marks no longer give.
///
/// # Errors
/// If a file cannot be read or written.
pub fn write(tree: &Tree) -> Result<()> {
    let pages = pages(tree);
    for stale in written(tree).filter(|file| !pages.contains_key(*file)) {
        fs::remove_file(tree.root.join(stale)).with_context(|| format!("cannot remove {stale}"))?;
    }
    for (file, text) in pages {
        let path = tree.root.join(file);
        fs::create_dir_all(path.parent().expect("docs/ is in the workspace"))?;
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Are the pages what the marks say?
#[must_use]
pub fn is_current(tree: &Tree) -> bool {
    let pages = pages(tree);
    written(tree).all(|file| pages.contains_key(file))
        && pages
            .iter()
            .all(|(file, text)| tree.text(file).as_ref() == Some(text))
}

/// Is it one of these pages?
#[must_use]
pub fn is_page(file: &str) -> bool {
    file == TABLE || file.starts_with(PAGES)
}

fn written(tree: &Tree) -> impl Iterator<Item = &str> {
    tree.with_extension("md").filter(|file| is_page(file))
}

/// Every mark of the crates' sources, in the order of files and lines.
#[must_use]
pub fn marks(tree: &Tree) -> Vec<Mark> {
    let sources = tree
        .with_extension("rs")
        .filter(|file| file.starts_with("crates/"));
    sources
        .flat_map(|file| {
            let text = tree.text(file).unwrap_or_default();
            marks_in(file, &text)
        })
        .collect()
}

/// The marks of one file.
#[must_use]
pub fn marks_in(file: &str, text: &str) -> Vec<Mark> {
    let mut marks = Vec::new();
    if !["Source", "Choice"].iter().any(|word| text.contains(word)) {
        return marks;
    }
    let lines = rust_text::lines(text);
    let mut i = 0;
    while i < lines.len() {
        let Some(slashes) = opening(&lines[i]) else {
            i += 1;
            continue;
        };
        let own_line = lines[i].code.trim().is_empty();
        let start = i;
        let mut block = Vec::new();
        while i < lines.len() && opening(&lines[i]) == Some(slashes) {
            if i > start && (!own_line || !lines[i].code.trim().is_empty()) {
                break;
            }
            block.push(lines[i].comment[slashes.len()..].trim());
            i += 1;
        }
        let found = marks_of_block(&block);
        if found.is_empty() {
            continue;
        }
        let item = match slashes {
            "//!" => String::new(),
            "///" => item_below(&lines, i).unwrap_or_default(),
            _ => item_around(&lines, start),
        };
        marks.extend(found.into_iter().map(|(kind, text)| Mark {
            file: file.to_owned(),
            item: item.clone(),
            kind,
            text,
        }));
    }
    marks
}

/// The pages for this tree: file and text.
#[must_use]
pub fn pages(tree: &Tree) -> BTreeMap<String, String> {
    let marks = marks(tree);
    let mut index = String::from(
        "# Where each paper lives in the source\n\n\
         Written by `cargo xtask papers` from the `Source:` and `Choice:` marks in the code; edit those.\n\n\
         | page | has | rows |\n|---|---|---|\n",
    );
    let mut pages = BTreeMap::new();
    for page in papers(&marks).into_iter().chain(others(&marks)) {
        let _ = writeln!(
            index,
            "| [{}](papers/{}.md) | {} | {} |",
            page.label,
            page.stem,
            page.subject,
            page.rows.len()
        );
        let text = format!(
            "# {}: {}\n\nWritten by `cargo xtask papers`; [papers.md](../papers.md) lists all such pages.\n\n\
             | {} | {} |\n|---|---|\n{}",
            page.label,
            page.subject,
            page.columns[0],
            page.columns[1],
            page.rows.concat()
        );
        pages.insert(format!("{PAGES}{}.md", page.stem), text);
    }
    pages.insert(TABLE.to_owned(), index);
    pages
}

/// One page: a table of two columns.
struct Page {
    stem: String,
    label: &'static str,
    subject: &'static str,
    columns: [&'static str; 2],
    rows: Vec<String>,
}

/// The page of each paper that has a mark.
fn papers(marks: &[Mark]) -> Vec<Page> {
    let mut by_paper: BTreeMap<usize, Vec<(String, &Mark)>> = BTreeMap::new();
    for mark in marks.iter().filter(|mark| mark.kind == Kind::Source) {
        for (paper, section) in sections(&mark.text) {
            by_paper.entry(paper).or_default().push((section, mark));
        }
    }
    let mut pages = Vec::new();
    for (index, (tag, subject)) in PAPERS.iter().enumerate() {
        let Some(mut rows) = by_paper.remove(&index) else {
            continue;
        };
        rows.sort_by_key(|(section, mark)| {
            (
                numbers(section),
                section.clone(),
                mark.file.clone(),
                mark.item.clone(),
            )
        });
        rows.dedup_by_key(|(section, mark)| (section.clone(), place(mark)));
        pages.push(Page {
            stem: tag.to_lowercase(),
            label: tag,
            subject,
            columns: ["Part", "Carried out in"],
            rows: rows
                .iter()
                .map(|(section, mark)| format!("| {} | {} |\n", cell(section), place(mark)))
                .collect(),
        });
    }
    pages
}

/// The pages of other sources and of choices, if there are any.
fn others(marks: &[Mark]) -> Vec<Page> {
    let is_other = |mark: &&Mark| {
        let papers = sections(&mark.text);
        mark.kind == Kind::Source && papers.iter().all(|(paper, _)| *paper == PAPERS.len())
    };
    let sources = Page {
        stem: "other".to_owned(),
        label: "Other",
        subject: "sources that are none of these papers",
        columns: ["Where", "Source"],
        rows: by_place(marks.iter().filter(is_other).collect()),
    };
    let choices = Page {
        stem: "choices".to_owned(),
        label: "Choices",
        subject: "where the papers are silent or differ",
        columns: ["Where", "Choice"],
        rows: by_place(
            marks
                .iter()
                .filter(|mark| mark.kind == Kind::Choice)
                .collect(),
        ),
    };
    let both = [sources, choices].into_iter();
    both.filter(|page| !page.rows.is_empty()).collect()
}

fn by_place(mut marks: Vec<&Mark>) -> Vec<String> {
    marks.sort_by_key(|mark| (mark.file.clone(), mark.item.clone(), mark.text.clone()));
    marks
        .iter()
        .map(|mark| format!("| {} | {} |\n", place(mark), cell(&mark.text)))
        .collect()
}

fn opening(line: &Line) -> Option<&'static str> {
    ["//!", "///", "//"]
        .into_iter()
        .find(|slashes| line.comment.starts_with(slashes))
}

/// (kind, text) of each mark in one comment.
fn marks_of_block(block: &[&str]) -> Vec<(Kind, String)> {
    let mut marks: Vec<(Kind, String)> = Vec::new();
    // Does the next line continue the last mark?
    let mut open = false;
    // A heading waits for its paragraph.
    let mut heading = None;
    for line in block {
        let (kind, text) = if let Some(text) = line.strip_prefix("Source:") {
            (Some(Kind::Source), text)
        } else if let Some(text) = line.strip_prefix("Choice:") {
            (Some(Kind::Choice), text)
        } else {
            (None, *line)
        };
        let text = text.trim();
        if let Some(kind) = kind {
            marks.push((kind, text.to_owned()));
            (open, heading) = (true, None);
        } else if line.starts_with('#') {
            open = false;
            heading = match line.trim_start_matches('#').trim() {
                "Source" => Some(Kind::Source),
                "Choice" => Some(Kind::Choice),
                _ => None,
            };
        } else if text.is_empty() || text.starts_with("```") {
            open = false;
        } else if let Some(kind) = heading.take() {
            marks.push((kind, text.to_owned()));
            open = true;
        } else if open {
            let last = &mut marks.last_mut().expect("a mark is open").1;
            last.push(' ');
            last.push_str(text);
        }
    }
    marks.retain(|(_, text)| !text.is_empty());
    marks
}

fn item_pattern() -> Regex {
    Regex::new(
        r"^\s*(?:pub(?:\([^)]*\))?\s+)?(?:(?:async|const|unsafe|default)\s+)*(fn|struct|enum|trait|union|mod|const|static|type|macro_rules!)\s+(?:mut\s+)?([A-Za-z_][A-Za-z0-9_]*)",
    )
    .expect("the pattern is well formed")
}

fn impl_pattern() -> Regex {
    Regex::new(r"^(?:unsafe\s+)?impl\b(?:<[^{]*?>)?\s*(?:[^{]*\bfor\s+)?([A-Za-z_][A-Za-z0-9_:]*)")
        .expect("the pattern is well formed")
}

/// The item whose documentation ends just above line `below`.
fn item_below(lines: &[Line], below: usize) -> Option<String> {
    let mut in_attribute = 0_i64;
    for (i, line) in lines.iter().enumerate().skip(below) {
        let code = line.code.trim();
        if in_attribute > 0 || code.starts_with("#[") {
            in_attribute += balance(code);
            continue;
        }
        if code.is_empty() {
            continue;
        }
        if let Some(found) = item_pattern().captures(code) {
            return Some(qualified(lines, i, &found[2]));
        }
        // A field or a variant.
        let name: String = code
            .trim_start_matches("pub ")
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect();
        return (!name.is_empty()).then(|| qualified(lines, i, &name));
    }
    None
}

/// The function (or other item) that line `at` stands in, or the one just below it.
fn item_around(lines: &[Line], at: usize) -> String {
    let indent = |line: &Line| line.code.len() - line.code.trim_start().len();
    let own = if lines[at].code.trim().is_empty() {
        // The comment's own indent is what stands before its slashes.
        lines[at].code.len()
    } else {
        indent(&lines[at])
    };
    if own == 0 {
        return item_below(lines, at).unwrap_or_default();
    }
    for i in (0..at).rev() {
        if lines[i].code.trim().is_empty() || indent(&lines[i]) >= own {
            continue;
        }
        if let Some(found) = item_pattern().captures(&lines[i].code) {
            return qualified(lines, i, &found[2]);
        }
        if let Some(found) = impl_pattern().captures(&lines[i].code) {
            return found[1].to_owned();
        }
    }
    String::new()
}

/// `Container::name` for what is indented below an `impl`, `struct`, `enum`, `trait` or `mod`.
fn qualified(lines: &[Line], at: usize, name: &str) -> String {
    if !lines[at].code.starts_with(' ') {
        return name.to_owned();
    }
    for line in lines[..at].iter().rev() {
        // Formatted code: what holds an indented item starts at the margin.
        if line.code.starts_with([' ', '}', ')']) || line.code.trim().is_empty() {
            continue;
        }
        if let Some(found) = impl_pattern().captures(&line.code) {
            return format!("{}::{name}", &found[1]);
        }
        if let Some(found) = item_pattern().captures(&line.code) {
            return format!("{}::{name}", &found[2]);
        }
    }
    name.to_owned()
}

fn balance(code: &str) -> i64 {
    code.chars()
        .map(|c| match c {
            '[' | '(' => 1,
            ']' | ')' => -1,
            _ => 0,
        })
        .sum()
}

/// (index in `PAPERS`, part) of each paper a mark names; the length of `PAPERS` for none of them.
fn sections(text: &str) -> Vec<(usize, String)> {
    let tag = Regex::new(r"\b(AST|PROBS|DMSSD|COST|SCM)\b").expect("the pattern is well formed");
    let starts: Vec<(usize, usize, usize)> = tag
        .find_iter(text)
        .map(|found| {
            let paper = PAPERS
                .iter()
                .position(|(tag, _)| *tag == found.as_str())
                .expect("the pattern lists the papers");
            (paper, found.start(), found.end())
        })
        .collect();
    if starts.is_empty() {
        return vec![(PAPERS.len(), text.to_owned())];
    }
    starts
        .iter()
        .enumerate()
        .map(|(n, (paper, _, end))| {
            let until = starts.get(n + 1).map_or(text.len(), |next| next.1);
            let part = text[*end..until]
                .trim_start_matches([',', ':', ' '])
                .trim_end_matches([' ', ',', ';', '.'])
                .trim_end_matches(" and")
                .trim();
            let part = if part.is_empty() { "as a whole" } else { part };
            (*paper, part.to_owned())
        })
        .collect()
}

/// The section number at the front, for sorting: 3.2.2 before 3.10; parts without one come last.
fn numbers(section: &str) -> Vec<u64> {
    let number: String = section
        .trim_start_matches("section ")
        .chars()
        .take_while(|c| c.is_ascii_digit() || *c == '.')
        .collect();
    let parts: Vec<u64> = number.split('.').filter_map(|n| n.parse().ok()).collect();
    if parts.is_empty() {
        vec![u64::MAX]
    } else {
        parts
    }
}

fn place(mark: &Mark) -> String {
    let item = if mark.item.is_empty() {
        String::new()
    } else {
        format!("::{}", mark.item)
    };
    format!("[`{}{item}`](../../{})", mark.file, mark.file)
}

fn cell(text: &str) -> String {
    // Links of rustdoc lead nowhere in Markdown: `[`x`]` becomes `x`.
    text.replace("[`", "`")
        .replace("`]", "`")
        .replace('|', "\\|")
        .replace('[', "\\[")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(String, String)> {
        marks_in("a.rs", text)
            .into_iter()
            .map(|mark| (mark.item, mark.text))
            .collect()
    }

    fn pair(item: &str, text: &str) -> (String, String) {
        (item.to_owned(), text.to_owned())
    }

    #[test]
    fn a_mark_belongs_to_what_it_documents() {
        let text = "//! Head.\n//!\n//! Source: AST 3.2.2,\n//! figures 1-4.\n\n\
                    /// Cost.\n///\n/// Source: COST 3.2\n#[must_use]\npub fn added_cost() {}\n\n\
                    pub struct Weights {\n    /// Source: COST 3.1\n    pub seek: u64,\n}\n\n\
                    impl Weights {\n    /// # Source\n    /// COST 4\n    pub fn sum(&self) {\n        \
                    // Source: COST 5\n        x();\n    }\n}\n";
        assert_eq!(
            found(text),
            [
                pair("", "AST 3.2.2, figures 1-4."),
                pair("added_cost", "COST 3.2"),
                pair("Weights::seek", "COST 3.1"),
                pair("Weights::sum", "COST 4"),
                pair("Weights::sum", "COST 5"),
            ]
        );
    }

    #[test]
    fn a_word_in_a_sentence_is_no_mark() {
        assert_eq!(found("/// Gathers `Source:` marks.\nfn f() {}\n"), []);
        assert_eq!(found("let a = \"// Source: AST 1\";\n"), []);
    }

    #[test]
    fn one_mark_may_name_two_papers() {
        assert_eq!(
            sections("AST 3.1, figure 2; DMSSD 4."),
            [(0, "3.1, figure 2".to_owned()), (2, "4".to_owned())]
        );
        assert_eq!(
            sections("the data sheet"),
            [(5, "the data sheet".to_owned())]
        );
    }

    #[test]
    fn sections_sort_as_numbers() {
        assert!(numbers("3.2.2, figure") < numbers("3.10"));
        assert!(numbers("4") < numbers("table 1"));
    }
}
