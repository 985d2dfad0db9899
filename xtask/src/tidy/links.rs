//! Do links lead somewhere?

use regex_lite::Regex;

use super::finding::Finding;
use super::tree::Tree;

/// A relative link in Markdown leads to a file, and its `#part` to a heading there.
#[must_use]
pub fn links(tree: &Tree) -> Vec<Finding> {
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
pub(super) fn prose(text: &str) -> Vec<(usize, &str)> {
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
