//! Reading one table of a configuration key by key, so that every mistake is found in one go.
//!
//! ```text
//! text -> tables with places -> take(key) ... -> finish: what was not taken is a mistake
//! ```
//!
//! Always true:
//! 1. A value that cannot be read is reported once, with its line and key, and counts as absent.
//! 2. A key that was not asked for is a mistake.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::fmt;
use std::path::Path;

use base::Bytes;
use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use crate::based;

/// One thing wrong in a configuration: where, which key, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mistake {
    /// Line of the file, from 1; 0 where no line is to blame.
    pub line: usize,
    /// The table, such as `[[device]] "hdd0"`; empty for the file itself.
    pub table: String,
    /// The key in that table; empty if the whole table is meant.
    pub key: String,
    /// What is wrong and what to do.
    pub what: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}: ", self.line)?;
        }
        match (self.table.is_empty(), self.key.is_empty()) {
            (true, true) => {}
            (true, false) => write!(f, "{}: ", self.key)?,
            (false, true) => write!(f, "{}: ", self.table)?,
            (false, false) => write!(f, "{} {}: ", self.table, self.key)?,
        }
        f.write_str(&self.what)
    }
}

/// Gathers mistakes; knows the text they were made in.
pub struct Mistakes<'t> {
    text: &'t str,
    found: RefCell<Vec<Mistake>>,
}

impl<'t> Mistakes<'t> {
    pub fn new(text: &'t str) -> Mistakes<'t> {
        Mistakes {
            text,
            found: RefCell::default(),
        }
    }

    pub fn add(&self, at: Option<usize>, table: &str, key: &str, what: impl Into<String>) {
        self.found.borrow_mut().push(Mistake {
            line: at.map_or(0, |at| self.line(at)),
            table: table.to_owned(),
            key: key.to_owned(),
            what: what.into(),
        });
    }

    /// All mistakes in the order of the text.
    pub fn into_sorted(self) -> Vec<Mistake> {
        let mut found = self.found.into_inner();
        found.sort_by_key(|mistake| mistake.line);
        found.dedup();
        found
    }

    fn line(&self, at: usize) -> usize {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        1 + before.iter().filter(|&&byte| byte == b'\n').count()
    }
}

/// One table being read.
pub struct Keys<'m, 't> {
    /// How mistakes call it.
    title: String,
    at: usize,
    table: DeTable<'t>,
    known: RefCell<Vec<&'static str>>,
    mistakes: &'m Mistakes<'t>,
    /// Where relative paths begin.
    folder: &'m Path,
}

/// A value taken out of a table, with its place for later complaints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct At<T> {
    pub value: T,
    pub at: usize,
}

impl<'m, 't> Keys<'m, 't> {
    pub fn new(
        title: impl Into<String>,
        at: usize,
        table: DeTable<'t>,
        (mistakes, folder): (&'m Mistakes<'t>, &'m Path),
    ) -> Keys<'m, 't> {
        Keys {
            title: title.into(),
            at,
            table,
            known: RefCell::default(),
            mistakes,
            folder,
        }
    }

    pub fn title(&self) -> &str {
        &self.title
    }

    /// Where relative paths begin.
    pub(crate) fn folder(&self) -> &Path {
        self.folder
    }

    /// Where the table begins.
    pub fn at(&self) -> usize {
        self.at
    }

    /// Complains about `key` of this table (about the table itself if `key` is empty).
    pub fn complain(&self, key: &str, what: impl Into<String>) {
        let at = self
            .table
            .iter()
            .find(|(name, _)| name.get_ref() == key)
            .map_or(self.at, |(name, _)| name.span().start);
        self.mistakes.add(Some(at), &self.title, key, what);
    }

    /// Like [`Keys::complain`], for a key that was taken and so knows its own place.
    pub fn complain_at(&self, at: usize, key: &str, what: impl Into<String>) {
        self.mistakes.add(Some(at), &self.title, key, what);
    }

    /// Is there something under `key` that was not taken yet?
    pub fn has(&self, key: &str) -> bool {
        self.table.iter().any(|(name, _)| name.get_ref() == key)
    }

    fn remove(&mut self, key: &'static str) -> Option<(usize, Spanned<DeValue<'t>>)> {
        self.known.borrow_mut().push(key);
        let (name, mut value) = self.table.remove_entry(key)?;
        based::begin(self.folder, key, value.get_mut());
        Some((name.span().start, value))
    }

    /// The value of `key`, read as a `T`; `None` if it is absent or (then reported) not a `T`.
    pub fn take<T: DeserializeOwned>(&mut self, key: &'static str) -> Option<At<T>> {
        let (at, value) = self.remove(key)?;
        match T::deserialize(ValueDeserializer::from(value)) {
            Ok(value) => Some(At { value, at }),
            Err(error) => {
                self.complain_at(at, key, error.message());
                None
            }
        }
    }

    /// As [`Keys::take`], without its place.
    pub fn value<T: DeserializeOwned>(&mut self, key: &'static str) -> Option<T> {
        self.take(key).map(|at| at.value)
    }

    /// Is the switch `key` there, and on?
    pub fn is_on(&mut self, key: &'static str) -> bool {
        self.value(key) == Some(true)
    }

    /// `found`, or a complaint about this table that says what is missing.
    pub fn need<T>(&self, found: Option<At<T>>, what: &str) -> Option<At<T>> {
        if found.is_none() {
            self.complain("", what);
        }
        found
    }

    /// A text that `parse` understands.
    pub fn parse<T, E: fmt::Display>(
        &mut self,
        key: &'static str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Option<At<T>> {
        let text = self.take::<String>(key)?;
        match parse(&text.value) {
            Ok(value) => Some(At { value, at: text.at }),
            Err(error) => {
                self.complain_at(text.at, key, error.to_string());
                None
            }
        }
    }

    /// As [`Keys::parse`], or `usual`.
    pub fn parse_or<T, E: fmt::Display>(
        &mut self,
        key: &'static str,
        usual: T,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> T {
        self.parse(key, parse).map_or(usual, |at| at.value)
    }

    /// One text or a list of texts, as they are.
    pub fn texts(&mut self, key: &'static str) -> Option<At<Vec<String>>> {
        self.parse_list(key, |text| Ok::<_, String>(text.to_owned()))
    }

    /// One text or a list of texts, each understood by `parse`.
    pub fn parse_list<T, E: fmt::Display>(
        &mut self,
        key: &'static str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Option<At<Vec<T>>> {
        #[derive(serde::Deserialize)]
        #[serde(
            untagged,
            expecting = "expected one text or a list of texts, such as [\"a\", \"b\"]"
        )]
        enum OneOrMany {
            One(String),
            Many(Vec<String>),
        }
        let given = self.take::<OneOrMany>(key)?;
        let texts = match given.value {
            OneOrMany::One(text) => vec![text],
            OneOrMany::Many(texts) => texts,
        };
        let mut values = Vec::new();
        for text in texts {
            match parse(&text) {
                Ok(value) => values.push(value),
                Err(error) => self.complain_at(given.at, key, error.to_string()),
            }
        }
        Some(At {
            value: values,
            at: given.at,
        })
    }

    /// The table under `key`.
    pub fn table(&mut self, key: &'static str) -> Option<Keys<'m, 't>> {
        let (at, value) = self.remove(key)?;
        let title = if self.title.is_empty() {
            format!("[{key}]")
        } else {
            format!("{} {key}", self.title)
        };
        match value.into_inner() {
            DeValue::Table(table) => {
                Some(Keys::new(title, at, table, (self.mistakes, self.folder)))
            }
            other => {
                let what = format!("expected a table, found {}", article(other.type_str()));
                self.complain_at(at, key, what);
                None
            }
        }
    }

    /// The tables `[[key]]`, in order; each is called by its `name`, or by its number from 1.
    pub fn tables(&mut self, key: &'static str) -> Vec<Keys<'m, 't>> {
        let Some((at, value)) = self.remove(key) else {
            return Vec::new();
        };
        let DeValue::Array(items) = value.into_inner() else {
            let what = format!("write [[{key}]] (two brackets): there can be several");
            self.complain_at(at, key, what);
            return Vec::new();
        };
        let mut tables = Vec::new();
        for (index, item) in items.into_iter().enumerate() {
            let at = item.span().start;
            match item.into_inner() {
                DeValue::Table(table) => {
                    let name = ["name", "device"]
                        .iter()
                        .find_map(|called| table.get(*called)?.get_ref().as_str());
                    let title = match name {
                        Some(name) => format!("[[{key}]] \"{name}\""),
                        None => format!("[[{key}]] number {}", index + 1),
                    };
                    tables.push(Keys::new(title, at, table, (self.mistakes, self.folder)));
                }
                _ => self.complain_at(at, key, format!("write each one as a table [[{key}]]")),
            }
        }
        tables
    }

    /// Ends the reading: every key that is left over is unknown.
    pub fn finish(self) {
        let known = self.known.borrow();
        for (name, _) in self.table.iter() {
            let key = name.get_ref().as_ref();
            let what = format!(
                "there is no such key{}",
                instead(key, known.iter().copied(), "the keys here are")
            );
            self.mistakes
                .add(Some(name.span().start), &self.title, key, what);
        }
    }

    /// A size, or `false` / `"off"` / `0` for none. Outer `None`: the key is absent.
    pub(crate) fn parse_size_or_off(&mut self, key: &'static str) -> Option<Option<Bytes>> {
        #[derive(serde::Deserialize)]
        #[serde(untagged, expecting = "expected a size such as \"1MiB\", or \"off\"")]
        enum SizeOrOff {
            Switch(bool),
            Number(u64),
            Text(String),
        }
        let given = self.take::<SizeOrOff>(key)?;
        match given.value {
            SizeOrOff::Switch(false) | SizeOrOff::Number(0) => Some(None),
            SizeOrOff::Number(bytes) => Some(Some(Bytes(bytes))),
            SizeOrOff::Text(text) if text == "off" => Some(None),
            SizeOrOff::Text(text) => match text.parse() {
                Ok(size) => Some(Some(size)),
                Err(error) => {
                    self.complain_at(given.at, key, format!("{error}, or \"off\""));
                    None
                }
            },
            SizeOrOff::Switch(true) => {
                self.complain_at(given.at, key, "say from which size on, such as \"1MiB\"");
                None
            }
        }
    }
}

/// What to write instead of `given`: the likely one if a slip of the finger explains it, else all.
///
/// # Example
/// `instead("polcy", ["policy", "write"], "the keys here are")` is `; did you mean policy?`.
pub fn instead<'a>(
    given: &str,
    known: impl IntoIterator<Item = &'a str>,
    introduction: &str,
) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    // Of two as near, the one that begins alike: the first letters are seldom the slip.
    let alike = |name: &str| {
        let pairs = given.bytes().zip(name.bytes());
        pairs.take_while(|(one, other)| one == other).count()
    };
    let nearest = known
        .iter()
        .map(|name| {
            let distance = strsim::damerau_levenshtein(given, name);
            (distance, Reverse(alike(name)), *name)
        })
        .min()
        .map(|(distance, _, name)| (distance, name));
    match nearest {
        None => String::new(),
        Some((distance, name)) if distance <= 1 + given.len() / 4 => {
            format!("; did you mean {name}?")
        }
        Some(_) => format!("; {introduction} {}", known.join(", ")),
    }
}

fn article(noun: &str) -> String {
    let an = noun.starts_with(['a', 'e', 'i', 'o', 'u']);
    format!("{} {noun}", if an { "an" } else { "a" })
}
