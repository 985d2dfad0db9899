//! Which pieces of a long experiment are done already, and what came out?
//!
//! ```text
//! line 1:            sum  {experiment, how it is run, program}
//! every other line:  sum  {job, what it gave}                  appended as jobs end, in any order
//! ```
//!
//! A line begins with the CRC-32C of the rest in eight hexadecimal digits.
//!
//! Always true:
//! 1. A line that was torn or damaged costs its own job, which is done again, and nothing else.
//! 2. What a journal gives back is what was put there, bit for bit.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use crc_fast::CrcAlgorithm::Crc32Iscsi;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::experiment::{ExperimentError, Options};

/// The first line: a journal is of one run alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Header {
    experiment: String,
    options: String,
    program: String,
}

#[derive(Serialize, Deserialize)]
struct Line {
    job: String,
    gave: serde_json::Value,
}

/// What is done of an experiment; without a file, nothing is written down.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    file: Option<(PathBuf, File)>,
    done: BTreeMap<String, serde_json::Value>,
}

impl Journal {
    /// The journal that `options` name, of this experiment.
    ///
    /// # Errors
    /// [`ExperimentError::Journal`] if it cannot be read or written, or is of another run.
    pub fn open(experiment: &str, options: &Options<'_>) -> Result<Journal, ExperimentError> {
        let Some(path) = options.resume else {
            return Ok(Journal::default());
        };
        let refused = |why: String| ExperimentError::Journal {
            path: path.to_owned(),
            why,
        };
        let header = Header {
            experiment: experiment.to_owned(),
            options: options.identity(),
            program: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let (file, text) = opened(path).map_err(|error| refused(error.to_string()))?;
        let mut journal = Journal {
            file: Some((path.to_owned(), file)),
            done: BTreeMap::new(),
        };
        let mut lines = text.split_inclusive(|byte| *byte == b'\n');
        match lines.next().and_then(checked::<Header>) {
            Some(had) if had == header => {}
            Some(had) => {
                return Err(refused(format!(
                    "it is of '{}' with {} (version {}), and this is '{}' with {} (version {}); give another file",
                    had.experiment,
                    had.options,
                    had.program,
                    header.experiment,
                    header.options,
                    header.program
                )));
            }
            None if text.is_empty() => journal.append(&header)?,
            None => {
                return Err(refused(
                    "it is no journal of an experiment; give another file".to_owned(),
                ));
            }
        }
        for Line { job, gave } in lines.filter_map(checked) {
            journal.done.insert(job, gave);
        }
        if !text.is_empty() && !text.ends_with(b"\n") {
            journal.write(b"\n")?;
        }
        Ok(journal)
    }

    /// What a job gave, if it is done.
    pub fn get<T: DeserializeOwned>(&self, job: &str) -> Option<T> {
        T::deserialize(self.done.get(job)?).ok()
    }

    /// A job is done.
    ///
    /// # Errors
    /// [`ExperimentError::Journal`] if it cannot be written down.
    pub fn put(&mut self, job: &str, gave: &impl Serialize) -> Result<(), ExperimentError> {
        if self.file.is_none() {
            return Ok(());
        }
        let gave = serde_json::to_value(gave).expect("figures are text");
        self.append(&Line {
            job: job.to_owned(),
            gave,
        })
    }

    fn append(&mut self, value: &impl Serialize) -> Result<(), ExperimentError> {
        let text = serde_json::to_string(value).expect("figures are text");
        let sum = crc_fast::checksum(Crc32Iscsi, text.as_bytes());
        self.write(format!("{sum:08x} {text}\n").as_bytes())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), ExperimentError> {
        let Some((path, file)) = &mut self.file else {
            return Ok(());
        };
        file.write_all(bytes)
            .map_err(|error| ExperimentError::Journal {
                path: path.clone(),
                why: error.to_string(),
            })
    }
}

fn opened(path: &Path) -> std::io::Result<(File, Vec<u8>)> {
    let mut options = OpenOptions::new();
    let mut file = options.read(true).append(true).create(true).open(path)?;
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    Ok((file, text))
}

/// A line's contents, if it is whole and its sum is right.
fn checked<T: DeserializeOwned>(line: &[u8]) -> Option<T> {
    let line = line.strip_suffix(b"\n")?;
    let (sum, text) = line.split_at_checked(8)?;
    let text = text.strip_prefix(b" ")?;
    let sum = u64::from_str_radix(std::str::from_utf8(sum).ok()?, 16).ok()?;
    if sum != crc_fast::checksum(Crc32Iscsi, text) {
        return None;
    }
    serde_json::from_slice(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_comes_back_bit_for_bit_and_a_torn_line_costs_itself_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let options = Options {
            resume: Some(&path),
            ..Options::default()
        };
        let figures = [0.1 + 0.2, 1.0 / 3.0, 5e-324, f64::MAX];
        let mut journal = Journal::open("cache", &options).unwrap();
        journal.put("one", &figures).unwrap();
        journal.put("two", &figures).unwrap();
        drop(journal);
        let mut text = std::fs::read(&path).unwrap();
        text.truncate(text.len() - 3);
        std::fs::write(&path, &text).unwrap();

        let mut journal = Journal::open("cache", &options).unwrap();
        let back: [f64; 4] = journal.get("one").unwrap();
        assert_eq!(back.map(f64::to_bits), figures.map(f64::to_bits));
        assert_eq!(journal.get::<[f64; 4]>("two"), None);
        journal.put("two", &[1.0; 4]).unwrap();
        let journal = Journal::open("cache", &options).unwrap();
        assert_eq!(journal.get("two"), Some([1.0; 4]));
    }

    #[test]
    fn a_journal_of_another_run_is_refused_and_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let options = |seed| Options {
            seed,
            resume: Some(&path),
            ..Options::default()
        };
        Journal::open("cache", &options(1)).unwrap();
        let had = std::fs::read(&path).unwrap();
        for (name, seed) in [("cache", 2), ("tiering", 1)] {
            let refusal = Journal::open(name, &options(seed)).unwrap_err().to_string();
            assert!(refusal.contains("give another file"), "{refusal}");
        }
        std::fs::write(&path, "a shopping list\n").unwrap();
        let refusal = Journal::open("cache", &options(1)).unwrap_err().to_string();
        assert!(refusal.contains("no journal"), "{refusal}");
        assert_eq!(std::fs::read(&path).unwrap(), b"a shopping list\n");
        assert!(!had.is_empty());
    }
}
