//! Does every file open with a head, leave nothing half done, speak of the project alone, and say why `unsafe` is sound?

use regex_lite::Regex;

use super::facts::Source;
use super::finding::Finding;
use super::source::Sources;
use super::tree::Tree;

/// Every source file opens with a head comment.
#[must_use]
pub fn heads(tree: &Tree) -> Vec<Finding> {
    let sources = tree.with_extension("rs").filter(|file| {
        let roots = ["crates/", "simtest/", "xtask/"];
        roots.iter().any(|root| file.starts_with(root)) && file.contains("/src/")
    });
    let mut findings = Vec::new();
    for file in sources {
        let text = tree.text(file).unwrap_or_default();
        let first = text
            .lines()
            .find(|line| !line.trim().is_empty() && !line.starts_with("#!["));
        if !first.is_some_and(|line| line.starts_with("//!")) {
            findings.push(Finding {
                file: file.to_owned(),
                line: 1,
                rule: "heads",
                what:
                    "opens without a head comment; say with `//!` which question this file answers"
                        .to_owned(),
            });
        }
    }
    findings
}

/// Nothing half done: no macros that stand for missing code, no tests or warnings switched off.
#[must_use]
pub fn unfinished(sources: &Sources) -> Vec<Finding> {
    let left_behind =
        Regex::new(r"\b(todo|unimplemented|dbg)!|#\[ignore\b|\b(allow|expect)\([^)]*\bdead_code\b")
            .expect("the pattern is well formed");
    let mut findings = Vec::new();
    for Source { file, lines, .. } in &sources.files {
        for (i, line) in lines.iter().enumerate() {
            if !line.code.contains(['!', '#']) {
                continue;
            }
            if let Some(found) = left_behind.find(&line.code) {
                findings.push(Finding {
                    file: file.to_owned(),
                    line: i + 1,
                    rule: "unfinished",
                    what: format!("`{}` may not stay", found.as_str()),
                });
            }
        }
    }
    findings
}

/// What a line has that a pattern finds, the pattern, and why it may not be. Written so that they do not find themselves.
const OUTSIDE: [(&str, &str, &str); 9] = [
    (
        "issue",
        r"(?i)\bissues? #?[0-9]+\b",
        "a number in someone's tracker",
    ),
    ("agent", r"(?i)\bsub-?agents?\b", "how it was written"),
    (
        "ai",
        r"(?i)\bai[ -](agents?|assistants?)\b",
        "how it was written",
    ),
    (
        "coding",
        r"(?i)\bcoding[ -](agents?|assistants?)\b",
        "how it was written",
    ),
    (
        "language",
        r"(?i)\blanguage[ -]models?\b",
        "how it was written",
    ),
    ("/wor", r"(^|[\s`'\x22(=])/work[/]", "a path of one machine"),
    ("/roo", r"(^|[\s`'\x22(=])/root[/]", "a path of one machine"),
    (
        "/hom",
        r"(^|[\s`'\x22(=])/home[/][a-z]",
        "a path of one machine",
    ),
    (
        ".libr",
        r"(^|[\s`'\x22(/])\.librar[y]\b",
        "a path of one machine",
    ),
];

/// The project speaks of itself: nothing about trackers, the machine it was written on, or by what.
#[must_use]
pub fn outside(tree: &Tree) -> Vec<Finding> {
    let patterns = OUTSIDE.map(|(has, pattern, why)| {
        let pattern = Regex::new(pattern).expect("the pattern is well formed");
        (has, pattern, why)
    });
    let mut findings = Vec::new();
    for file in &tree.files {
        if file == "Cargo.lock" {
            continue;
        }
        let Some(text) = tree.text(file) else {
            continue;
        };
        for (i, line) in text.lines().enumerate() {
            let lower = line.to_lowercase();
            for (_, pattern, why) in patterns.iter().filter(|it| lower.contains(it.0)) {
                if let Some(found) = pattern.find(line) {
                    findings.push(Finding {
                        file: file.clone(),
                        line: i + 1,
                        rule: "outside",
                        what: format!(
                            "`{}` is {why}, not about the project",
                            found.as_str().trim()
                        ),
                    });
                }
            }
        }
    }
    findings
}

/// A file with `unsafe` in it, or the module it is part of, says so at its top; each use says why it is
/// sound.
#[must_use]
pub fn opt_in_to_unsafe(sources: &Sources) -> Vec<Finding> {
    let keyword = Regex::new(r"\bunsafe\b\s*(\{|fn\b|impl\b|extern\b|$)")
        .expect("the pattern is well formed");
    // A signature in a type or trait has nothing to justify; a block and an impl do.
    let justified = Regex::new(r"\bunsafe\b\s*(\{|impl\b|$)").expect("the pattern is well formed");
    // How far above its block the reasoning may start.
    let reach = 12;
    let mut findings = Vec::new();
    let opts_in = |file: &String| {
        let source = sources.files.iter().find(|source| source.file == *file);
        let mut lines = source.into_iter().flat_map(|source| &source.lines);
        lines.any(|line| line.code.starts_with("#![allow(unsafe_code"))
    };
    for Source { file, lines, .. } in &sources.files {
        if !lines.iter().any(|line| line.code.contains("unsafe")) {
            continue;
        }
        let opted_in = module_files(file).iter().any(opts_in);
        for (i, line) in lines.iter().enumerate() {
            if !keyword.is_match(&line.code) {
                continue;
            }
            let mut add = |what: &str| {
                findings.push(Finding {
                    file: file.to_owned(),
                    line: i + 1,
                    rule: "unsafe",
                    what: what.to_owned(),
                });
            };
            if !opted_in {
                add("`unsafe` in a file whose module does not open with `#![allow(unsafe_code)]`");
            }
            let reasons = &lines[i.saturating_sub(reach)..=i];
            if justified.is_match(&line.code)
                && !reasons.iter().any(|line| line.comment.contains("SAFETY"))
            {
                add("`unsafe` without a `// SAFETY:` comment that says why it is sound");
            }
        }
    }
    findings
}

/// The file itself and the modules it is part of, but never a whole crate.
fn module_files(file: &str) -> Vec<String> {
    let mut files = vec![file.to_owned()];
    let mut dir = file;
    while let Some((above, _)) = dir.rsplit_once('/') {
        if above.ends_with("/src") {
            break;
        }
        files.push(format!("{above}.rs"));
        files.push(format!("{above}/mod.rs"));
        dir = above;
    }
    files
}
