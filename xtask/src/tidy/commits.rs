//! Does a commit's subject say in one line what changed where?
//!
//! `crate: what`, at most 72 characters, no full stop. Checked are the commits behind the one that the baseline
//! names. Where there is no git, no such commit (an exported tree, a shallow clone), or it does not lead to what is
//! checked out, the rule is skipped, and a line says so.

use std::path::Path;
use std::process::Command;

use regex_lite::Regex;

use super::finding::Finding;

/// Characters of a subject: what `git log --oneline` and mail show without a break.
const SUBJECT_MAX_CHARS: usize = 72;

/// One commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// Its short name.
    pub hash: String,
    /// The first line of what it says.
    pub subject: String,
}

/// What is wrong with the subjects.
#[must_use]
pub fn commits(commits: &[Commit]) -> Vec<Finding> {
    let form = Regex::new(r"^[a-z0-9][a-z0-9_-]*(, [a-z0-9][a-z0-9_-]*)*: \S")
        .expect("the pattern is well formed");
    let mut findings = Vec::new();
    for Commit { hash, subject } in commits {
        let mut add = |what: String| {
            findings.push(Finding {
                file: format!("commit {hash}"),
                line: 0,
                rule: "commits",
                what: format!("the subject \"{subject}\" {what}"),
            });
        };
        let length = subject.chars().count();
        if length > SUBJECT_MAX_CHARS {
            add(format!(
                "has {length} characters, more than {SUBJECT_MAX_CHARS}; the why belongs into the body"
            ));
        }
        if !form.is_match(subject) {
            add("is not of the form `crate: what`".to_owned());
        }
        if subject.ends_with('.') {
            add("ends in a full stop".to_owned());
        }
    }
    findings
}

/// The commits behind `after` that lead to what is checked out.
///
/// # Errors
/// Why they are unknown.
pub fn since(root: &Path, after: &str) -> Result<Vec<Commit>, String> {
    if !root.join(".git").exists() {
        return Err("there is no git here".to_owned());
    }
    let git = |args: &[&str]| {
        let out = Command::new("git").arg("-C").arg(root).args(args).output();
        out.ok()
            .filter(|out| out.status.success())
            .map(|out| String::from_utf8_lossy(&out.stdout).into_owned())
    };
    if git(&["merge-base", "--is-ancestor", after, "HEAD"]).is_none() {
        return Err(format!("no commit {after} leads to what is checked out"));
    }
    let range = format!("{after}..HEAD");
    let log = git(&["log", "--no-merges", "--format=%h %s", &range])
        .ok_or_else(|| format!("git cannot list {range}"))?;
    let commit = |line: &str| {
        let (hash, subject) = line.split_once(' ').unwrap_or((line, ""));
        Commit {
            hash: hash.to_owned(),
            subject: subject.to_owned(),
        }
    };
    Ok(log.lines().map(commit).collect())
}
