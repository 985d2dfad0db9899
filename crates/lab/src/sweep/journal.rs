//! Which points are done already, and what came out?
//!
//! ```text
//! line 1:            sum  {plan, grid, shard, program}
//! every other line:  sum  {point, rows | why it failed}       appended as points end, in any order
//! ```
//!
//! A line begins with the CRC-32C of the rest in eight hexadecimal digits. Lines are appended whole by one program at
//! a time (the file is locked).
//!
//! Always true:
//! 1. A line whose sum is wrong costs its own point, which is run again, and nothing else.
//! 2. Of two lines for a point the later one counts: a point that failed may succeed later.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crc_fast::CrcAlgorithm::Crc32Iscsi;
use serde::{Deserialize, Serialize};

use super::plan::Grid;
use super::{Plan, Row, Shard, SweepError};

/// What is known of one point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// What was measured.
    Rows(Vec<Row>),
    /// Why nothing was.
    Failed(String),
}

/// The first line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The plan's identity.
    pub plan: String,
    /// Which program ran it.
    pub program: String,
    /// What its points are.
    pub kind: String,
    /// Which part of the plan this is.
    pub shard: Shard,
    /// The axes.
    pub grid: Grid,
}

impl Header {
    /// The first line of the journal of one part of a plan.
    pub fn new(plan: &Plan, shard: Shard) -> Header {
        Header {
            plan: plan.identity().to_owned(),
            program: env!("CARGO_PKG_VERSION").to_owned(),
            kind: plan.kind().to_owned(),
            shard,
            grid: plan.grid().clone(),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Line {
    point: u64,
    #[serde(flatten)]
    answer: Answer,
}

/// All that a journal says.
#[derive(Debug, Clone, PartialEq)]
pub struct Contents {
    /// Its first line.
    pub header: Header,
    /// The points by their number.
    pub answers: BTreeMap<u64, Answer>,
    /// Lines that were torn or damaged.
    pub damaged: u64,
    /// Where the last whole line ends.
    end: u64,
}

/// The file's name in the directory of the sweep.
pub(super) fn name(shard: Shard) -> String {
    match shard {
        Shard::WHOLE => "journal.jsonl".to_owned(),
        Shard { part, of } => format!("journal-{part}-of-{of}.jsonl"),
    }
}

/// Reads a journal.
///
/// # Errors
/// [`SweepError::File`] if it cannot be read, [`SweepError::Journal`] if its first line is no journal's.
pub fn read(path: &Path) -> Result<Contents, SweepError> {
    let failed = |source| SweepError::File {
        what: "read",
        path: path.to_owned(),
        source,
    };
    let mut file = BufReader::new(File::open(path).map_err(failed)?);
    let mut line = Vec::new();
    file.read_until(b'\n', &mut line).map_err(failed)?;
    let mut contents = Contents {
        header: checked(&line).ok_or_else(|| SweepError::Journal {
            path: path.to_owned(),
        })?,
        answers: BTreeMap::new(),
        damaged: 0,
        end: line.len() as u64,
    };
    let mut at = contents.end;
    loop {
        line.clear();
        let length = file.read_until(b'\n', &mut line).map_err(failed)? as u64;
        if length == 0 {
            return Ok(contents);
        }
        at += length;
        if line.ends_with(b"\n") {
            contents.end = at;
        }
        match checked::<Line>(&line) {
            Some(Line { point, answer }) if point < contents.header.grid.len() => {
                contents.answers.insert(point, answer);
            }
            _ => contents.damaged += 1,
        }
    }
}

/// A line's contents, if it is whole and its sum is right.
fn checked<T: for<'de> Deserialize<'de>>(line: &[u8]) -> Option<T> {
    let line = line.strip_suffix(b"\n")?;
    let (sum, text) = line.split_at_checked(SUM_DIGITS)?;
    let text = text.strip_prefix(b" ")?;
    let sum = u64::from_str_radix(std::str::from_utf8(sum).ok()?, 16).ok()?;
    if sum != crc_fast::checksum(Crc32Iscsi, text) {
        return None;
    }
    serde_json::from_slice(text).ok()
}

const SUM_DIGITS: usize = 8;

fn line(value: &impl Serialize) -> Vec<u8> {
    let text = serde_json::to_string(value).expect("figures are kept as text");
    let sum = crc_fast::checksum(Crc32Iscsi, text.as_bytes());
    format!("{sum:08x} {text}\n").into_bytes()
}

/// A journal that is being written.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    /// Opens the journal at `path`, begins it if there is none, and hands out what is in it.
    ///
    /// # Errors
    /// [`SweepError::Busy`] if another program writes it; [`SweepError::OtherPlan`] if it is of another plan or part
    /// and `restart` does not ask to throw it away.
    pub fn open(
        path: PathBuf,
        header: &Header,
        restart: bool,
    ) -> Result<(Journal, Contents), SweepError> {
        let failed = |source| SweepError::File {
            what: "open",
            path: path.clone(),
            source,
        };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(SweepError::Busy { path }),
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        let known = match read(&path) {
            // Empty, or killed while its first line was written.
            Err(SweepError::Journal { .. }) if whole_lines(&path).map_err(failed)? == 0 => None,
            Err(error) => return Err(error),
            Ok(_) if restart => None,
            Ok(contents) if contents.header != *header => {
                return Err(SweepError::OtherPlan {
                    path,
                    had: contents.header.plan,
                    now: header.plan.clone(),
                    done: contents.answers.len(),
                });
            }
            Ok(contents) => Some(contents),
        };
        let contents = match known {
            Some(contents) => {
                file.set_len(contents.end).map_err(failed)?;
                file.seek(SeekFrom::End(0)).map_err(failed)?;
                contents
            }
            None => {
                let first = line(header);
                file.set_len(0).map_err(failed)?;
                file.write_all(&first).map_err(failed)?;
                Contents {
                    header: header.clone(),
                    answers: BTreeMap::new(),
                    damaged: 0,
                    end: first.len() as u64,
                }
            }
        };
        Ok((Journal { path, file }, contents))
    }

    /// Writes down what is known of a point, in one piece.
    pub fn add(&mut self, point: u64, answer: Answer) -> Result<(), SweepError> {
        let line = line(&Line { point, answer });
        self.file
            .write_all(&line)
            .map_err(|source| self.failed(source))
    }

    /// Waits until all of it outlives a loss of power.
    pub fn sync(&self) -> Result<(), SweepError> {
        self.file.sync_data().map_err(|source| self.failed(source))
    }

    fn failed(&self, source: std::io::Error) -> SweepError {
        SweepError::File {
            what: "write",
            path: self.path.clone(),
            source,
        }
    }
}

fn whole_lines(path: &Path) -> std::io::Result<usize> {
    let bytes = std::fs::read(path)?;
    Ok(bytes.iter().filter(|byte| **byte == b'\n').count())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::Figure;

    fn header() -> Header {
        let plan = "kind = 'test'\n[parameters]\nx = [1, 2, 3, 4]";
        let plan = Plan::of(plan, Path::new("")).unwrap();
        Header::new(&plan, Shard::WHOLE)
    }

    fn rows(n: i64) -> Answer {
        Answer::Rows(vec![vec![("y".to_owned(), Figure::Whole(n))]])
    }

    /// A journal of points 0, 1 and 2, of which the second failed.
    fn journal(directory: &Path) -> PathBuf {
        let path = directory.join(name(Shard::WHOLE));
        let (mut journal, _) = Journal::open(path.clone(), &header(), false).unwrap();
        journal.add(0, rows(10)).unwrap();
        journal
            .add(1, Answer::Failed("no luck".to_owned()))
            .unwrap();
        journal.add(2, rows(12)).unwrap();
        path
    }

    #[test]
    fn a_journal_cut_anywhere_keeps_its_whole_lines_and_goes_on() {
        let directory = tempfile::tempdir().unwrap();
        let path = journal(directory.path());
        let whole = std::fs::read(&path).unwrap();
        let ends: Vec<usize> = (1..=whole.len())
            .filter(|n| whole[n - 1] == b'\n')
            .collect();
        for length in 0..=whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            let (mut journal, contents) = Journal::open(path.clone(), &header(), false).unwrap();
            let lines = ends.iter().filter(|end| **end <= length).count();
            assert_eq!(
                contents.answers.len(),
                lines.saturating_sub(1),
                "cut at {length}"
            );
            journal.add(3, rows(13)).unwrap();
            drop(journal);
            let again = read(&path).unwrap();
            assert_eq!(again.answers.len(), contents.answers.len() + 1);
            assert_eq!((again.answers[&3].clone(), again.damaged), (rows(13), 0));
        }
    }

    #[test]
    fn a_damaged_line_costs_its_own_point_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = journal(directory.path());
        let whole = std::fs::read(&path).unwrap();
        let ends: Vec<usize> = (1..=whole.len())
            .filter(|n| whole[n - 1] == b'\n')
            .collect();
        for at in ends[0]..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x41;
            std::fs::write(&path, bytes).unwrap();
            let contents = read(&path).unwrap();
            // A line end that is gone joins two lines.
            let expected = if ends.contains(&(at + 1)) {
                1..=2
            } else {
                2..=2
            };
            assert!(
                expected.contains(&contents.answers.len()),
                "byte {at}: {contents:?}"
            );
        }
    }

    #[test]
    fn another_plan_is_refused_and_thrown_away_only_when_asked() {
        let directory = tempfile::tempdir().unwrap();
        let path = journal(directory.path());
        let mut other = header();
        other.plan = "ffffffffffffffff".to_owned();
        let refusal = Journal::open(path.clone(), &other, false)
            .unwrap_err()
            .to_string();
        assert!(
            refusal.contains("another plan")
                && refusal.contains("its 3 points")
                && refusal.contains("--restart"),
            "{refusal}"
        );
        assert_eq!(read(&path).unwrap().answers.len(), 3, "nothing was touched");
        let (_journal, contents) = Journal::open(path, &other, true).unwrap();
        assert_eq!(contents.answers.len(), 0);
    }

    #[test]
    fn two_programs_do_not_write_one_journal() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("j");
        let first = Journal::open(path.clone(), &header(), false).unwrap();
        let refusal = Journal::open(path.clone(), &header(), false).unwrap_err();
        assert!(matches!(refusal, SweepError::Busy { .. }), "{refusal}");
        drop(first);
        Journal::open(path, &header(), false).unwrap();
    }

    #[test]
    fn a_file_that_is_no_journal_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("j");
        std::fs::write(&path, "dear diary\n").unwrap();
        let refusal = Journal::open(path.clone(), &header(), false).unwrap_err();
        assert!(matches!(refusal, SweepError::Journal { .. }), "{refusal}");
        assert_eq!(std::fs::read(&path).unwrap(), b"dear diary\n");
    }
}
