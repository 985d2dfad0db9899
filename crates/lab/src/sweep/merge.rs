//! Parts of a sweep become its results.

use super::Shard;
use super::error::Part;
use super::error::SweepError;
use super::journal::Header;
use super::results::Results;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

pub(super) const RESULTS: &str = "results";

/// Joins the parts of a sweep: `inputs` are journals, or directories with journals in them.
///
/// `partial`: what is missing is left out rather than refused.
///
/// # Errors
/// [`SweepError::Mixed`], [`SweepError::Twice`] and [`SweepError::Missing`] if the parts do not make one sweep.
pub fn merge(inputs: &[PathBuf], partial: bool) -> Result<Results, SweepError> {
    let mut journals = Vec::new();
    for input in inputs {
        match input.is_dir() {
            true => journals.extend(journals_in(input)?),
            false => journals.push(input.clone()),
        }
    }
    let mut all: Option<(PathBuf, Header)> = None;
    let mut answers = BTreeMap::new();
    for path in journals {
        let contents = super::journal::read(&path)?;
        let header = contents.header;
        match &all {
            None => all = Some((path.clone(), header)),
            Some((first, known))
                if known.plan != header.plan || known.program != header.program =>
            {
                let part = |path: &Path, header: &Header| Part {
                    path: path.to_owned(),
                    plan: header.plan.clone(),
                    program: header.program.clone(),
                };
                let parts = [part(first, known), part(&path, &header)];
                return Err(SweepError::Mixed(Box::new(parts)));
            }
            Some(_) => {}
        }
        for (point, answer) in contents.answers {
            if let Some((first, _)) = answers.insert(point, (path.clone(), answer)) {
                return Err(SweepError::Twice {
                    point,
                    first,
                    second: path,
                });
            }
        }
    }
    let Some((_, header)) = all else {
        return Err(SweepError::NoJournal {
            directory: inputs.first().cloned().unwrap_or_default(),
        });
    };
    let missing = |point: &u64| !answers.contains_key(point);
    let missing: Vec<u64> = (0..header.grid.len()).filter(missing).collect();
    if !missing.is_empty() && !partial {
        return Err(without(&missing, &header));
    }
    let answers = answers
        .into_iter()
        .map(|(point, (_, answer))| (point, answer));
    Ok(Results::of(&header, answers.collect()))
}

/// What is said of points that are in no journal.
fn without(missing: &[u64], header: &Header) -> SweepError {
    let Shard { of, .. } = header.shard;
    let shown = missing.iter().take(SHOWN_MAX).map(|point| match of {
        1 => point.to_string(),
        of => format!("{point} of part {}/{of}", point % u64::from(of) + 1),
    });
    let mut which = shown.collect::<Vec<_>>().join(", ");
    if missing.len() > SHOWN_MAX {
        which.push_str(", ...");
    }
    SweepError::Missing {
        missing: missing.len() as u64,
        points: header.grid.len(),
        which,
    }
}

/// So many missing points are named.
pub(super) const SHOWN_MAX: usize = 8;

pub(super) fn journals_in(directory: &Path) -> Result<Vec<PathBuf>, SweepError> {
    let failed = |source| SweepError::File {
        what: "look into",
        path: directory.to_owned(),
        source,
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("journal") && name.ends_with(".jsonl") {
            found.push(path);
        }
    }
    found.sort();
    match found.is_empty() {
        true => Err(SweepError::NoJournal {
            directory: directory.to_owned(),
        }),
        false => Ok(found),
    }
}

/// Writes `results` as `results.csv` and `results.parquet` into a directory, which is made if need be; where they are.
///
/// # Errors
/// [`SweepError::File`].
pub fn write_merged(results: &Results, out: &Path) -> Result<(PathBuf, PathBuf), SweepError> {
    fs::create_dir_all(out).map_err(|source| SweepError::File {
        what: "make the directory",
        path: out.to_owned(),
        source,
    })?;
    write(results, out, RESULTS)
}

/// Both files, each put in place whole.
pub(super) fn write(
    results: &Results,
    out: &Path,
    name: &str,
) -> Result<(PathBuf, PathBuf), SweepError> {
    let place = |ending: &str, bytes: Vec<u8>| {
        let path = out.join(format!("{name}.{ending}"));
        let new = out.join(format!("{name}.{ending}.new"));
        let written = fs::write(&new, bytes).and_then(|()| fs::rename(&new, &path));
        written
            .map(|()| path.clone())
            .map_err(|source| SweepError::File {
                what: "write",
                path,
                source,
            })
    };
    let csv = place("csv", results.csv().into_bytes())?;
    let parquet = place("parquet", results.parquet()?)?;
    Ok((csv, parquet))
}
