//! The record of what was done: a file of lines, each with the hash of the one before.
//!
//! ```text
//! {"n":8,"at":1795345200.125,"who":"account astro, booker, by token ..3f2a","from":"tcp 127.0.0.1",
//!  "what":"POST /v1/reservations","answer":200,"before":"<SHA-256 of line 7>"}
//! ```
//!
//! A line is in the file, durable, before [`Audit::append`] returns; the answer it tells of goes out after that. The first
//! line's `before` is [`ANCHOR`]. Who removes or changes a line in the middle breaks the chain behind it. Who cuts lines off at
//! the end does not: the last number and hash, noted elsewhere, show that.
//!
//! Always true:
//! 1. What a crash left of a last line is cut at the next start, and a line says so.
//! 2. No line holds a token, a capability or a body: a path is written without its query.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::token::hex;

/// What the first line has for the hash of a line before it.
pub const ANCHOR: &str = "0000000000000000000000000000000000000000000000000000000000000000";
/// The longest line; texts are cut so that each is shorter.
const LINE_MAX: usize = 16 * 1024;
/// The longest text of a line, in characters.
const TEXT_MAX: usize = 400;

/// Something that was asked and answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// When, in seconds since 1970.
    pub at: f64,
    /// Who asked: account and token's last digits, or user.
    pub who: String,
    /// Whence: address, or the process at a Unix socket.
    pub from: String,
    /// What: method and path, or the action of the wire.
    pub what: String,
    /// The status of the answer.
    pub answer: u16,
}

/// A line of the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Counts from 1.
    pub n: u64,
    /// When, in seconds since 1970.
    pub at: f64,
    /// Who asked.
    pub who: String,
    /// Whence.
    pub from: String,
    /// What.
    pub what: String,
    /// The status of the answer; 0: none.
    pub answer: u16,
    /// The hash of the line before.
    pub before: String,
}

/// Why there is no audit log.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuditError {
    /// The file.
    #[error("the audit log {path} cannot be used")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What is at its end is no line of it.
    #[error(
        "{path} does not end as an audit log does: {why}; move it away, and the next start begins a new one"
    )]
    NotOurs {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

/// What a file was found to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Lines that are whole and in order.
    pub lines: u64,
    /// The hash of the last of them: noted elsewhere, it shows later that nothing was cut off.
    pub last: String,
    /// The first line that is not as it was written, and why.
    pub broken: Option<Broken>,
}

/// A line that is not as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Broken {
    /// Counts from 1.
    pub line: u64,
    /// What is wrong.
    pub why: String,
}

/// The file, open for more lines.
pub struct Audit {
    path: PathBuf,
    file: File,
    /// Lines in it.
    lines: u64,
    /// The hash of the last one.
    last: String,
    /// Where the next line begins: what a failed write left behind it is cut first.
    end: u64,
}

fn hash(line: &[u8]) -> String {
    hex(&Sha256::digest(line))
}

fn cut(text: &str) -> String {
    text.chars().take(TEXT_MAX).collect()
}

impl Audit {
    /// Opens the file, or makes it, readable by its owner alone. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// [`AuditError`].
    pub fn open(path: &Path, now: f64) -> Result<Audit, AuditError> {
        let failed = |source| AuditError::File {
            path: path.to_owned(),
            source,
        };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.mode(0o600).open(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        let (end, tail) = last_line(&mut file, length).map_err(failed)?;
        let not_ours = |why: &str| AuditError::NotOurs {
            path: path.to_owned(),
            why: why.to_owned(),
        };
        let tail = tail.ok_or_else(|| not_ours("its last line is too long"))?;
        let (lines, last) = match tail.is_empty() {
            true => (0, ANCHOR.to_owned()),
            false => {
                let line: Result<Line, _> = serde_json::from_slice(&tail);
                let line = line.map_err(|error| not_ours(&error.to_string()))?;
                (line.n, hash(&tail))
            }
        };
        let mut audit = Audit {
            path: path.to_owned(),
            file,
            lines,
            last,
            end,
        };
        if end < length {
            let event = Event {
                at: now,
                who: "the daemon".to_owned(),
                from: "its start".to_owned(),
                what: format!("cut {} bytes of a line that a crash left", length - end),
                answer: 0,
            };
            audit.append(&event).map_err(failed)?;
        }
        if let Some(folder) = path.parent().filter(|it| !it.as_os_str().is_empty()) {
            let folder = File::open(folder).and_then(|folder| folder.sync_all());
            folder.map_err(failed)?;
        }
        Ok(audit)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a line and makes it durable. Waits for the disk. Answers its number.
    ///
    /// # Errors
    /// The system's: the line is not there then, and the next one takes its place.
    pub fn append(&mut self, event: &Event) -> io::Result<u64> {
        let line = Line {
            n: self.lines + 1,
            at: (event.at * 1000.0).round() / 1000.0,
            who: cut(&event.who),
            from: cut(&event.from),
            what: cut(&event.what),
            answer: event.answer,
            before: self.last.clone(),
        };
        let mut bytes = serde_json::to_vec(&line).map_err(io::Error::other)?;
        let last = hash(&bytes);
        bytes.push(b'\n');
        self.file.set_len(self.end)?;
        self.file.seek(SeekFrom::Start(self.end))?;
        self.file.write_all(&bytes)?;
        self.file.sync_data()?;
        self.end += bytes.len() as u64;
        self.lines = line.n;
        self.last = last;
        Ok(line.n)
    }
}

/// Where the whole lines of a file end, and the last of them without its end; `None` if that is too long to be one.
fn last_line(file: &mut File, length: u64) -> io::Result<(u64, Option<Vec<u8>>)> {
    let window = length.min(2 * LINE_MAX as u64);
    file.seek(SeekFrom::Start(length - window))?;
    let mut tail = Vec::new();
    file.take(window).read_to_end(&mut tail)?;
    let is_end = |byte: &u8| *byte == b'\n';
    let Some(end) = tail.iter().rposition(is_end) else {
        // No whole line: all of a short file is what a crash left.
        let short = length <= LINE_MAX as u64;
        return Ok((0, short.then(Vec::new)));
    };
    let begin = tail[..end].iter().rposition(is_end).map(|at| at + 1);
    let begin = begin.or((window == length).then_some(0));
    let line = begin.map(|begin| tail[begin..end].to_vec());
    let line = line.filter(|line| line.len() <= LINE_MAX);
    Ok((length - window + end as u64 + 1, line))
}

/// The next line of a file, without its end; `None` behind the last one.
fn next_line(file: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Option<bool>> {
    line.clear();
    let read = file.take(LINE_MAX as u64 + 1).read_until(b'\n', line)?;
    if read == 0 {
        return Ok(None);
    }
    let whole = line.last() == Some(&b'\n');
    if whole {
        line.pop();
    }
    Ok(Some(whole))
}

/// Reads a whole file and names the first line that is not as it was written.
///
/// A last line without an end is what is being written, or what a crash left: broken, too.
///
/// # Errors
/// The system's.
pub fn verify(path: &Path) -> io::Result<Verdict> {
    let mut file = BufReader::new(File::open(path)?);
    let mut verdict = Verdict {
        lines: 0,
        last: ANCHOR.to_owned(),
        broken: None,
    };
    let mut bytes = Vec::new();
    while let Some(whole) = next_line(&mut file, &mut bytes)? {
        let number = verdict.lines + 1;
        if let Err(why) = check_line(&bytes, whole, number, &verdict.last) {
            verdict.broken = Some(Broken { line: number, why });
            break;
        }
        verdict.lines = number;
        verdict.last = hash(&bytes);
    }
    Ok(verdict)
}

fn check_line(bytes: &[u8], whole: bool, number: u64, before: &str) -> Result<(), String> {
    if !whole {
        return Err("it has no end, or is longer than a line can be".to_owned());
    }
    let line: Line = serde_json::from_slice(bytes)
        .map_err(|error| format!("it is no line of a log: {error}"))?;
    if line.before != before {
        return Err("the hash in it is not that of the line before: one of the two was changed, or lines between them are gone".to_owned());
    }
    match line.n == number {
        true => Ok(()),
        false => Err(format!("it says it is line {}", line.n)),
    }
}

/// Lines with numbers greater than `after`, `limit` at most, oldest first. What is no line is left out.
///
/// # Errors
/// The system's.
pub fn read(path: &Path, after: u64, limit: usize) -> io::Result<Vec<Line>> {
    let mut file = BufReader::new(File::open(path)?);
    let mut lines = Vec::new();
    let mut bytes = Vec::new();
    while lines.len() < limit
        && let Some(whole) = next_line(&mut file, &mut bytes)?
    {
        let line: Option<Line> = whole.then(|| serde_json::from_slice(&bytes).ok()).flatten();
        lines.extend(line.filter(|line| line.n > after));
    }
    Ok(lines)
}
