//! What is over its measure today, and may only become less?
//!
//! ```text
//! measures beside xtask/baseline.toml -> more than its entry, or none: refused
//!                                     -> less than its entry: to be written down (`tidy --shrink`)
//! ```
//!
//! Always true:
//!
//! 1. `--shrink` makes no entry larger and no total larger. It takes entries along that moved: what one file
//!    lost of a name or a word, others may have.
//! 2. An entry that is added or raised by hand shows in `[ceilings]`, for no total may be above its ceiling. The
//!    ceilings of sums are rounded up to three digits, so that not every commit changes them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::{Context, Result, ensure};

use super::finding::{Finding, Measure};

/// Where it lies.
pub const FILE: &str = "xtask/baseline.toml";

/// The rules with a baseline, and what their numbers are.
pub const RULES: [(&str, &str); 8] = [
    ("files", "product lines of a file, above 500"),
    ("functions", "lines of a function, above 60"),
    ("fields", "fields of a type, above 15"),
    ("methods", "methods of a type, above 30"),
    (
        "spread",
        "files in which the methods of one type stand, above 1",
    ),
    (
        "circles",
        "files that import each other in a circle, above 5; by the folder that most of them lie in",
    ),
    (
        "folders",
        "imports between folders that lie on a circle, one an entry",
    ),
    ("words", "refused words in a file"),
];

/// The entries, by rule and name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Baseline {
    /// Commits behind this one keep the rule of subjects.
    pub after: Option<String>,
    ceilings: BTreeMap<String, Total>,
    entries: BTreeMap<String, BTreeMap<String, Entry>>,
}

/// What one thing may have.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    now: usize,
    /// Why it stays.
    reason: Option<String>,
}

/// How much a rule's entries hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Total {
    /// How many there are.
    pub entries: usize,
    /// Their sum.
    pub sum: usize,
}

impl Total {
    /// What the entries of `rule` may hold when they hold this. A word that moves to two files has two entries: their
    /// number is not held.
    fn ceiling(self, rule: &str) -> Total {
        Total {
            entries: if rule == "words" { 0 } else { self.entries },
            sum: three_digits(self.sum),
        }
    }
}

/// The number, rounded up to three digits and zeros.
fn three_digits(number: usize) -> usize {
    let mut step = 1;
    while number / step > 999 {
        step *= 10;
    }
    number.next_multiple_of(step)
}

impl Baseline {
    /// Reads its text.
    ///
    /// # Errors
    /// If it is not TOML or not of this form.
    pub fn parse(text: &str) -> Result<Baseline> {
        let table: toml::Table = toml::from_str(text).context("it is not TOML")?;
        let mut baseline = Baseline::default();
        for (section, value) in table {
            let value = value
                .as_table()
                .with_context(|| format!("{section} is no table"))?;
            match section.as_str() {
                "commits" => {
                    let after = value.get("after").and_then(toml::Value::as_str);
                    baseline.after = after.map(str::to_owned);
                }
                "ceilings" => {
                    for (rule, total) in value {
                        let number = |name: &str| {
                            number_of(total.get(name))
                                .with_context(|| format!("ceilings.{rule}: {name} is no number"))
                        };
                        let total = Total {
                            entries: number("entries")?,
                            sum: number("sum")?,
                        };
                        baseline.ceilings.insert(rule.clone(), total);
                    }
                }
                rule => {
                    ensure!(
                        RULES.iter().any(|(name, _)| *name == rule),
                        "there is no rule {rule}"
                    );
                    let mut entries = BTreeMap::new();
                    for (key, value) in value {
                        let entry = entry_of(value).with_context(|| {
                            format!("{rule}: {key} is neither a number nor {{ now, reason }}")
                        })?;
                        entries.insert(key.clone(), entry);
                    }
                    baseline.entries.insert(rule.to_owned(), entries);
                }
            }
        }
        Ok(baseline)
    }

    /// A baseline that accepts what there is.
    #[must_use]
    pub fn accepting(measures: &[Measure]) -> Baseline {
        let mut baseline = Baseline::default();
        for measure in measures.iter().filter(|it| it.now > it.limit) {
            baseline.set(measure, None);
        }
        for (rule, total) in baseline.totals() {
            baseline
                .ceilings
                .insert(rule.to_owned(), total.ceiling(rule));
        }
        baseline
    }

    fn set(&mut self, measure: &Measure, reason: Option<String>) {
        let entry = Entry {
            now: measure.now,
            reason,
        };
        let entries = self.entries.entry(measure.rule.to_owned()).or_default();
        entries.insert(measure.key.clone(), entry);
    }

    fn entry(&self, rule: &str, key: &str) -> Option<&Entry> {
        self.entries.get(rule)?.get(key)
    }

    /// What each rule's entries hold.
    #[must_use]
    pub fn totals(&self) -> Vec<(&'static str, Total)> {
        let total = |rule: &str| {
            let entries = self
                .entries
                .get(rule)
                .into_iter()
                .flat_map(|it| it.values());
            entries.fold(Total::default(), |total, entry| Total {
                entries: total.entries + 1,
                sum: total.sum + entry.now,
            })
        };
        RULES.iter().map(|(rule, _)| (*rule, total(rule))).collect()
    }

    /// Its text, in one order.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::from(
            "# What is over its measure today (CONTRIBUTING.md). `cargo xtask tidy` refuses more, and\n\
             # `cargo xtask tidy --shrink` writes down what became less. A number may become\n\
             # `{ now = 90, reason = \"a flat table\" }`.\n\n",
        );
        if let Some(after) = &self.after {
            let _ = write!(
                out,
                "[commits] # those behind this one have the form of a subject\nafter = {}\n\n",
                quoted(after)
            );
        }
        out.push_str(
            "[ceilings] # how many entries a rule may have, and their sum, rounded up to three digits\n",
        );
        for (rule, _) in RULES {
            let total = self.ceilings.get(rule).copied().unwrap_or_default();
            let _ = writeln!(
                out,
                "{rule} = {{ entries = {}, sum = {} }}",
                total.entries, total.sum
            );
        }
        for (rule, what) in RULES {
            let entries = self.entries.get(rule).filter(|entries| !entries.is_empty());
            let Some(entries) = entries else { continue };
            let _ = writeln!(out, "\n[{rule}] # {what}");
            for (key, entry) in entries {
                let _ = match &entry.reason {
                    None => writeln!(out, "{} = {}", quoted(key), entry.now),
                    Some(reason) => writeln!(
                        out,
                        "{} = {{ now = {}, reason = {} }}",
                        quoted(key),
                        entry.now,
                        quoted(reason)
                    ),
                };
            }
        }
        out
    }

    /// What is more than its entry, less than its entry, or above a ceiling.
    #[must_use]
    pub fn compare(&self, measures: &[Measure]) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut over = BTreeSet::new();
        for measure in measures.iter().filter(|it| it.now > it.limit) {
            over.insert((measure.rule, measure.key.as_str()));
            let entry = self.entry(measure.rule, &measure.key).map(|it| it.now);
            let Measure { now, limit, .. } = measure;
            let may = match entry {
                Some(entry) if entry == *now => continue,
                Some(entry) if entry > *now => {
                    findings.push(too_large(
                        measure.rule,
                        &measure.key,
                        entry,
                        &now.to_string(),
                    ));
                    continue;
                }
                Some(entry) => format!("the baseline has {entry} and only shrinks"),
                None => format!("at most {limit} may be"),
            };
            findings.push(Finding {
                file: measure.file.clone(),
                line: measure.line,
                rule: measure.rule,
                what: format!("{} ({now}: {may})", measure.what),
            });
        }
        for (rule, _) in RULES {
            for (key, entry) in self.entries.get(rule).into_iter().flatten() {
                if !over.contains(&(rule, key.as_str())) {
                    findings.push(too_large(rule, key, entry.now, "nothing above the measure"));
                }
            }
        }
        for (rule, total) in self.totals() {
            let ceiling = self.ceilings.get(rule).copied().unwrap_or_default();
            let more = total.ceiling(rule).entries > ceiling.entries;
            if more || total.sum > ceiling.sum {
                findings.push(in_baseline(rule, format!(
                    "{} entries of together {} are above the ceiling of {} and {}: nothing is added here",
                    total.entries, total.sum, ceiling.entries, ceiling.sum
                )));
            } else if total.ceiling(rule) != ceiling {
                let what =
                    "the ceiling is above what the entries hold; run `cargo xtask tidy --shrink`";
                findings.push(in_baseline(rule, what.to_owned()));
            }
        }
        findings
    }

    /// The same with smaller numbers where there is less, and with entries moved to where their names or words went.
    #[must_use]
    pub fn shrunk(&self, measures: &[Measure]) -> Baseline {
        let mut shrunk = Baseline {
            after: self.after.clone(),
            ..Baseline::default()
        };
        let over = measures.iter().filter(|it| it.now > it.limit);
        let mut kept = BTreeSet::new();
        // What is more than its entry, and what became free, by rule and name.
        let mut more: BTreeMap<(&str, &str), Vec<&Measure>> = BTreeMap::new();
        let mut free: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for measure in over {
            let name = (measure.rule, name_in(measure.rule, &measure.key));
            match self.entry(measure.rule, &measure.key) {
                Some(entry) if measure.now <= entry.now => {
                    *free.entry(name).or_default() += entry.now - measure.now;
                    shrunk.set(measure, entry.reason.clone());
                }
                _ => more.entry(name).or_default().push(measure),
            }
            kept.insert((measure.rule, measure.key.as_str()));
        }
        for (rule, entries) in &self.entries {
            for (key, entry) in entries {
                if !kept.contains(&(rule.as_str(), key.as_str())) {
                    *free.entry((rule, name_in(rule, key))).or_default() += entry.now;
                }
            }
        }
        for (name, measures) in more {
            let had = |measure: &Measure| self.entry(measure.rule, &measure.key).cloned();
            let before = |measure: &Measure| had(measure).map_or(0, |entry| entry.now);
            let wanted: usize = measures.iter().map(|it| it.now - before(it)).sum();
            let moved = wanted <= free.get(&name).copied().unwrap_or_default();
            for measure in measures {
                let old = had(measure);
                if moved {
                    shrunk.set(measure, old.and_then(|entry| entry.reason));
                } else if let Some(entry) = old {
                    let entries = shrunk.entries.entry(measure.rule.to_owned()).or_default();
                    entries.insert(measure.key.clone(), entry);
                }
            }
        }
        for (rule, total) in shrunk.totals() {
            let old = self.ceilings.get(rule).copied().unwrap_or_default();
            let new = total.ceiling(rule);
            let ceiling = Total {
                entries: old.entries.min(new.entries),
                sum: old.sum.min(new.sum),
            };
            shrunk.ceilings.insert(rule.to_owned(), ceiling);
        }
        shrunk
    }
}

fn number_of(value: Option<&toml::Value>) -> Option<usize> {
    value?.as_integer()?.try_into().ok()
}

fn entry_of(value: &toml::Value) -> Option<Entry> {
    let now = number_of(Some(value)).or_else(|| number_of(value.get("now")))?;
    let reason = value.get("reason").and_then(toml::Value::as_str);
    Some(Entry {
        now,
        reason: reason.map(str::to_owned),
    })
}

fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// What stays of an entry's name when its file moves.
fn name_in<'a>(rule: &str, key: &'a str) -> &'a str {
    let path = match rule {
        "words" => return key.rsplit_once(": ").map_or(key, |(_, word)| word),
        "files" => key,
        _ => match key.split_once("::") {
            Some((_, name)) => return name,
            None => key,
        },
    };
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

fn in_baseline(rule: &str, what: String) -> Finding {
    Finding {
        file: FILE.to_owned(),
        line: 0,
        rule: "baseline",
        what: format!("{rule}: {what}"),
    }
}

fn too_large(rule: &str, key: &str, entry: usize, now: &str) -> Finding {
    in_baseline(
        rule,
        format!("\"{key}\" has {entry}, but there is {now}; run `cargo xtask tidy --shrink`"),
    )
}
