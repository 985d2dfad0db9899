//! Does the tree keep its own rules?
//!
//! ```text
//! files -> one function per rule -> findings: file, line, what is wrong and what to do
//! ```
//!
//! The compiler and clippy see to the code; this sees to what they do not know: which crate may see
//! which, how a file opens, what may not be left behind, whether the words and links still hold.

use std::fmt;

use anyhow::{Result, bail};
use regex_lite::Regex;

use crate::papers;
use crate::rust_text;
use crate::tree::Tree;

/// The crates from the top terrace to the bottom one: each sees only those behind it.
pub const TERRACES: [&str; 11] = [
    "tanada", "lens", "front", "vdisk", "store", "hybrid", "ledger", "device", "env", "policy",
    "base",
];

/// These see nothing but `base`, whatever stands between.
const SEE_ONLY_BASE: [&str; 2] = ["policy", "env"];

/// No file is longer: what is bigger is data, and data is generated or lives elsewhere.
const FILE_MAX_BYTES: u64 = 512 * 1024;

/// One broken rule at one place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file, relative to the workspace.
    pub file: String,
    /// The line, from 1; 0 for the file as a whole.
    pub line: usize,
    /// The rule's name.
    pub rule: &'static str,
    /// What is wrong and what to do.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": [{}] {}", self.rule, self.what)
    }
}

/// Checks the project and prints what it finds.
///
/// # Errors
/// If a rule is broken or the tree cannot be read.
pub fn run() -> Result<()> {
    let tree = Tree::of_project()?;
    let findings = check(&tree);
    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        bail!("tidy: {} places break the rules", findings.len());
    }
    println!("tidy: {} files keep the rules", tree.files.len());
    Ok(())
}

/// Everything that breaks a rule, by file and line.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Finding> {
    let rules: [fn(&Tree) -> Vec<Finding>; 9] = [
        order,
        heads,
        unfinished,
        words,
        links,
        opt_in_to_unsafe,
        papers_current,
        lock,
        sizes,
    ];
    let mut findings: Vec<Finding> = rules.iter().flat_map(|rule| rule(tree)).collect();
    findings.sort();
    findings
}

/// A crate sees only those behind it in `TERRACES`, and takes the workspace's lints.
fn order(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.files {
        let Some(dir) = file
            .strip_prefix("crates/")
            .and_then(|rest| rest.strip_suffix("/Cargo.toml"))
        else {
            continue;
        };
        let text = tree.text(file).unwrap_or_default();
        let mut add = |line, what| {
            findings.push(Finding {
                file: file.clone(),
                line,
                rule: "order",
                what,
            });
        };
        let manifest: toml::Table = match toml::from_str(&text) {
            Ok(manifest) => manifest,
            Err(error) => {
                add(0, format!("is not TOML: {}", error.message()));
                continue;
            }
        };
        let Some(place) = TERRACES.iter().position(|name| *name == dir) else {
            add(
                0,
                format!(
                    "crate `{dir}` has no place in the order ({}); give it one in xtask/src/tidy.rs \
                     and ARCHITECTURE.md",
                    TERRACES.join(", ")
                ),
            );
            continue;
        };
        let inherits = manifest
            .get("lints")
            .and_then(|lints| lints.get("workspace"))
            .and_then(toml::Value::as_bool);
        if inherits != Some(true) {
            add(0, "lacks `[lints] workspace = true`".to_owned());
        }
        for dependency in dependencies(&manifest) {
            let name = dependency.strip_prefix("tanada-").unwrap_or(&dependency);
            let Some(seen) = TERRACES.iter().position(|crate_name| *crate_name == name) else {
                continue;
            };
            let line = 1 + text
                .lines()
                .position(|line| line.trim_start().starts_with(dependency.as_str()))
                .unwrap_or_default();
            if seen <= place {
                add(
                    line,
                    format!(
                        "`{dir}` may not see `{name}`, which lies above it; the order is {}",
                        TERRACES.join(", ")
                    ),
                );
            } else if SEE_ONLY_BASE.contains(&dir) && name != "base" {
                add(line, format!("`{dir}` may see only `base`, not `{name}`"));
            }
        }
    }
    findings
}

/// The names of all dependencies, of every kind and target.
fn dependencies(manifest: &toml::Table) -> Vec<String> {
    let kinds = ["dependencies", "dev-dependencies", "build-dependencies"];
    let mut names = Vec::new();
    let mut gather = |table: &toml::Table| {
        for kind in kinds {
            let Some(entries) = table.get(kind).and_then(toml::Value::as_table) else {
                continue;
            };
            for (name, entry) in entries {
                // A renamed dependency is known by its package.
                let package = entry.get("package").and_then(toml::Value::as_str);
                names.push(package.unwrap_or(name).to_owned());
            }
        }
    };
    gather(manifest);
    if let Some(targets) = manifest.get("target").and_then(toml::Value::as_table) {
        for target in targets.values().filter_map(toml::Value::as_table) {
            gather(target);
        }
    }
    names
}

/// Every source file opens with a head comment.
fn heads(tree: &Tree) -> Vec<Finding> {
    let sources = tree.with_extension("rs").filter(|file| {
        let roots = ["crates/", "sim/", "xtask/"];
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
fn unfinished(tree: &Tree) -> Vec<Finding> {
    let left_behind =
        Regex::new(r"\b(todo|unimplemented|dbg)!|#\[ignore\b|\b(allow|expect)\([^)]*\bdead_code\b")
            .expect("the pattern is well formed");
    let mut findings = Vec::new();
    for file in tree.with_extension("rs") {
        let text = tree.text(file).unwrap_or_default();
        for (i, line) in rust_text::lines(&text).iter().enumerate() {
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

/// The project speaks of itself: nothing about trackers, the machine it was written on, or by what.
fn words(tree: &Tree) -> Vec<Finding> {
    // Written so that the patterns do not match their own text.
    let patterns = [
        (r"(?i)\bissues? #?[0-9]+\b", "a number in someone's tracker"),
        (r"(?i)\bsub-?agents?\b", "how it was written"),
        (
            r"(?i)\b(ai|coding)[ -](agents?|assistants?)\b",
            "how it was written",
        ),
        (r"(?i)\blanguage[ -]models?\b", "how it was written"),
        (r"(^|[\s`'\x22(=])/work[/]", "a path of one machine"),
        (r"(^|[\s`'\x22(=])/root[/]", "a path of one machine"),
        (r"(^|[\s`'\x22(=])/home[/][a-z]", "a path of one machine"),
        (r"(^|[\s`'\x22(/])\.librar[y]\b", "a path of one machine"),
    ]
    .map(|(pattern, why)| {
        (
            Regex::new(pattern).expect("the pattern is well formed"),
            why,
        )
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
            for (pattern, why) in &patterns {
                if let Some(found) = pattern.find(line) {
                    findings.push(Finding {
                        file: file.clone(),
                        line: i + 1,
                        rule: "words",
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

/// A relative link in Markdown leads to a file, and its `#part` to a heading there.
fn links(tree: &Tree) -> Vec<Finding> {
    let link = Regex::new(r"\]\(([^()\s]+)\)").expect("the pattern is well formed");
    let code = Regex::new(r"`[^`]*`").expect("the pattern is well formed");
    let mut findings = Vec::new();
    for file in tree.with_extension("md") {
        let text = tree.text(file).unwrap_or_default();
        for (i, line) in prose(&text) {
            // Links keep their code-styled label, so only what stands outside of labels is blanked.
            let line = code.replace_all(line, "``");
            for found in link.captures_iter(&line) {
                let target = &found[1];
                if target.contains("://") || target.starts_with("mailto:") {
                    continue;
                }
                if let Some(what) = broken_link(tree, file, target) {
                    findings.push(Finding {
                        file: file.to_owned(),
                        line: i + 1,
                        rule: "links",
                        what,
                    });
                }
            }
        }
    }
    findings
}

/// The lines of a Markdown text outside of code fences, numbered from 0.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for (i, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            lines.push((i, line));
        }
    }
    lines
}

fn broken_link(tree: &Tree, file: &str, target: &str) -> Option<String> {
    let (path, part) = match target.split_once('#') {
        Some((path, part)) => (path, Some(part)),
        None => (target, None),
    };
    let Some(to) = resolve(file, path) else {
        return Some(format!("the link to {target} leaves the project"));
    };
    if !tree.has(&to) {
        return Some(format!(
            "the link to {target} leads nowhere: there is no {to}"
        ));
    }
    let part = part.filter(|_| to.ends_with(".md"))?;
    let text = tree.text(&to).unwrap_or_default();
    let known = prose(&text)
        .into_iter()
        .filter(|(_, line)| line.starts_with('#'))
        .any(|(_, line)| anchor(line.trim_start_matches('#').trim()) == part);
    (!known).then(|| format!("the link to {target} leads nowhere: {to} has no heading #{part}"))
}

/// `path` as seen from the directory of `file`; `None` if it climbs out of the project.
fn resolve(file: &str, path: &str) -> Option<String> {
    if path.is_empty() {
        return Some(file.to_owned());
    }
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// A heading as the part of a link: lower case, words joined by hyphens.
fn anchor(heading: &str) -> String {
    heading
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

/// A file with `unsafe` in it, or the module it is part of, says so at its top; each use says why it is
/// sound.
fn opt_in_to_unsafe(tree: &Tree) -> Vec<Finding> {
    let keyword = Regex::new(r"\bunsafe\b\s*(\{|fn\b|impl\b|extern\b|$)")
        .expect("the pattern is well formed");
    // A signature in a type or trait has nothing to justify; a block and an impl do.
    let justified = Regex::new(r"\bunsafe\b\s*(\{|impl\b|$)").expect("the pattern is well formed");
    // How far above its block the reasoning may start.
    let reach = 12;
    let mut findings = Vec::new();
    for file in tree.with_extension("rs") {
        let text = tree.text(file).unwrap_or_default();
        let lines = rust_text::lines(&text);
        let opted_in = module_files(file)
            .iter()
            .any(|module| opts_in(&tree.text(module).unwrap_or_default()));
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

fn opts_in(text: &str) -> bool {
    rust_text::lines(text)
        .iter()
        .any(|line| line.code.starts_with("#![allow(unsafe_code"))
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

/// docs/papers.md is what the marks say.
fn papers_current(tree: &Tree) -> Vec<Finding> {
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

/// Cargo.lock is there and names no source but the public registry.
fn lock(tree: &Tree) -> Vec<Finding> {
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
fn sizes(tree: &Tree) -> Vec<Finding> {
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
