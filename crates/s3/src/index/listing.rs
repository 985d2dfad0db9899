//! Which keys, versions and common prefixes does a listing have?
//!
//! ```text
//! first key behind the marker -> has it the prefix? -> is there a delimiter behind the prefix? -> a common prefix, once;
//!                                                                                                then the first key behind it
//!                                                     \-> else the key: its newest version, or all of them
//! ```
//!
//! Always true:
//! 1. Keys and common prefixes come in the order of their bytes, each once, and count alike.
//! 2. A common prefix that is listed costs one search, however much it has.

use redb::ReadableTable;

use super::error::IndexError;
use super::tables::{Found, ObjectKey};

/// What is to be listed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wanted {
    /// What keys begin with.
    pub prefix: String,
    /// What ends a common prefix; empty: there are none.
    pub delimiter: String,
    /// Keys and common prefixes up to this one were listed.
    pub after: Option<String>,
    /// With it: versions of that very key that are older than this number come first.
    pub after_number: Option<u64>,
    /// Keys, versions and common prefixes together.
    pub most: usize,
    /// All versions and delete markers, not only the newest.
    pub versions: bool,
}

/// A part of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listed {
    /// Keys with a version each; `true`: it is the newest.
    pub entries: Vec<(String, Found, bool)>,
    /// In order.
    pub prefixes: Vec<String>,
    /// There is more: go on behind this key or common prefix, and version.
    pub next: Option<(String, Option<u64>)>,
}

impl Listed {
    fn len(&self) -> usize {
        self.entries.len() + self.prefixes.len()
    }
}

/// The most rows that one listing looks at.
pub(super) const ROWS_MAX: usize = 20_000;

/// Where a search begins.
type Place = (Vec<u8>, u64);

/// What comes after a row.
enum Step {
    /// The next one.
    Next,
    /// Those from this place on.
    From(Place),
    /// Nothing.
    End,
}

/// Lists what is wanted of a bucket.
///
/// # Errors
/// The database, or a record.
pub fn list(
    objects: &impl ReadableTable<ObjectKey, &'static [u8]>,
    bucket: u64,
    wanted: &Wanted,
) -> Result<Listed, IndexError> {
    let mut search = Search {
        wanted,
        listed: Listed::default(),
        met: (wanted.after_number.and(wanted.after.as_ref())).map(|it| it.clone().into_bytes()),
        rows: 0,
        passed: None,
    };
    let mut next = first_place(wanted).filter(|_| wanted.most > 0);
    while let Some((key, turned)) = next.take() {
        for row in objects.range((bucket, &*key, turned)..(bucket + 1, &[][..], 0))? {
            let (at, value) = row?;
            let (_, key, turned) = at.value();
            match search.take(key, turned, value.value())? {
                Step::Next => {}
                Step::From(place) => {
                    next = Some(place);
                    break;
                }
                Step::End => return Ok(search.listed),
            }
        }
    }
    Ok(search.listed)
}

/// A listing under way.
struct Search<'w> {
    wanted: &'w Wanted,
    listed: Listed,
    /// The key whose newest version was met, shown or not.
    met: Option<Vec<u8>>,
    /// Rows that were looked at.
    rows: usize,
    /// The last of them.
    passed: Option<(String, u64)>,
}

impl Search<'_> {
    /// Ends before a row of `key`, where enough was looked at. A common prefix of which nothing was shown so far is shown then:
    /// what of it was not looked at may show.
    fn stop_at(&mut self, key: &str) {
        if let Some(common) = common_prefix(key, self.wanted)
            && self.listed.prefixes.last().is_none_or(|it| it != common)
        {
            self.listed.prefixes.push(common.to_owned());
            self.listed.next = Some((common.to_owned(), None));
            return;
        }
        let versions = self.wanted.versions;
        let passed = self.passed.take();
        self.listed.next = passed.map(|(key, number)| (key, versions.then_some(number)));
    }

    /// Takes one row.
    fn take(&mut self, key: &[u8], turned: u64, value: &[u8]) -> Result<Step, IndexError> {
        let wanted = self.wanted;
        if !key.starts_with(wanted.prefix.as_bytes()) {
            return Ok(Step::End);
        }
        // Deleted keys and old versions are not shown, and may be without number.
        self.rows += 1;
        if self.rows > ROWS_MAX {
            self.stop_at(text(key));
            return Ok(Step::End);
        }
        let is_newest = self.met.as_deref() != Some(key);
        self.passed = Some((text(key).to_owned(), u64::MAX - turned));
        if is_newest {
            self.met = Some(key.to_vec());
        } else if !wanted.versions {
            return Ok(Step::Next);
        }
        let key = text(key);
        let common = common_prefix(key, wanted);
        if let Some(common) = common
            && wanted.after.as_deref().is_some_and(|after| common <= after)
        {
            return Ok(Step::From((behind(common), 0)));
        }
        let found = Found::decode_alone(turned, value)?;
        if !wanted.versions && found.version.content.is_none() {
            return Ok(Step::Next);
        }
        if self.listed.len() == wanted.most {
            self.listed.next = last_listed(&self.listed, wanted);
            return Ok(Step::End);
        }
        let Some(common) = common else {
            self.listed.entries.push((key.to_owned(), found, is_newest));
            return Ok(Step::Next);
        };
        self.listed.prefixes.push(common.to_owned());
        Ok(Step::From((behind(common), 0)))
    }
}

/// Where the first search begins; `None`: nothing can be behind the marker.
fn first_place(wanted: &Wanted) -> Option<Place> {
    let start = (wanted.prefix.clone().into_bytes(), 0);
    let Some(after) = &wanted.after else {
        return Some(start);
    };
    let marker = match wanted.after_number {
        Some(number) => (
            after.clone().into_bytes(),
            (u64::MAX - number).checked_add(1)?,
        ),
        // The next string of all is this one with a zero byte.
        None => ([after.as_bytes(), &[0]].concat(), 0),
    };
    Some(marker.max(start))
}

/// The prefix that a key shares with others, up to the first delimiter behind the prefix that is wanted.
fn common_prefix<'k>(key: &'k str, wanted: &Wanted) -> Option<&'k str> {
    if wanted.delimiter.is_empty() {
        return None;
    }
    let rest = &key[wanted.prefix.len()..];
    let at = rest.find(&wanted.delimiter)?;
    Some(&key[..wanted.prefix.len() + at + wanted.delimiter.len()])
}

/// Behind all keys that begin so: no byte of UTF-8 is as great.
fn behind(prefix: &str) -> Vec<u8> {
    [prefix.as_bytes(), &[0xff]].concat()
}

/// What was listed last, in the order of bytes.
fn last_listed(listed: &Listed, wanted: &Wanted) -> Option<(String, Option<u64>)> {
    let key = listed.entries.last();
    let prefix = listed.prefixes.last();
    let number = |found: &Found| wanted.versions.then_some(found.number);
    match (key, prefix) {
        (Some((key, ..)), Some(prefix)) if prefix > key => Some((prefix.clone(), None)),
        (Some((key, found, _)), _) => Some((key.clone(), number(found))),
        (None, prefix) => prefix.map(|it| (it.clone(), None)),
    }
}

fn text(key: &[u8]) -> &str {
    // Keys come as text; what is damaged beyond that lists as nothing.
    std::str::from_utf8(key).unwrap_or_default()
}
