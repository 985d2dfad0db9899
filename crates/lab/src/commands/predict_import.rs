//! `tanada predict import`: what tools printed becomes a data set, or the floor of a device in one.

use std::path::Path;

use anyhow::Context;
use predict::data::{DataError, DataSet, Parameters};
use predict::floor;
use predict::import::{self, About, Format, Imported};
use report::terminal;

use super::predict::{Import, usage};

/// Adds files to a data set and writes it.
pub(super) fn import_files(arguments: &Import) -> anyhow::Result<()> {
    let mut data = data_at(&arguments.into)?;
    let mut parameters = Parameters::default();
    for one in &arguments.parameters {
        let (name, value) = one
            .split_once('=')
            .filter(|(name, value)| !name.is_empty() && !value.is_empty())
            .ok_or_else(|| usage(format!("--param {one}: write NAME=VALUE")))?;
        parameters.set(name, value);
    }
    let about = About {
        device: arguments.device.clone(),
        workload: arguments.workload.clone(),
        parameters,
    };
    if arguments.published {
        for row in experiments::predict::data_set().rows() {
            let into = arguments.into.display().to_string();
            data.add(row.clone())
                .map_err(|reason| DataError::Whole { file: into, reason })?;
        }
        eprintln!("added the published measurements");
    }
    for path in &arguments.files {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {file}"))?;
        let format = arguments.format.or_else(|| Format::of(&text)).ok_or_else(|| {
            anyhow::anyhow!(
                "{file} looks like no output of fio (JSON), YCSB, go-ycsb, sysbench or pgbench, and like no CSV with \
                 device, value and unit; name its format with --format"
            )
        })?;
        let done = match arguments.floor {
            true => add_floor(&mut data, format, &text, &file, &about)?,
            false => import::add(&mut data, format, &text, &file, &about)?,
        };
        match done.known {
            0 => eprintln!("{file}: {} measurements from {format}", done.added),
            known => eprintln!(
                "{file}: {} measurements from {format}, {known} were there already",
                done.added
            ),
        }
    }
    data.write(&arguments.into)?;
    terminal::text(&format!(
        "{}: {} measurements\n",
        arguments.into.display(),
        data.rows().len()
    ))
}

/// Adds a tool's latencies as the floor of their device.
fn add_floor(
    data: &mut DataSet,
    format: Format,
    text: &str,
    file: &str,
    about: &About,
) -> anyhow::Result<Imported> {
    let mut measured = DataSet::default();
    import::add(&mut measured, format, text, file, about)?;
    let whole = |reason: String| DataError::Whole {
        file: file.to_owned(),
        reason,
    };
    let mut done = Imported::default();
    let had = data.rows().len();
    for row in measured.rows() {
        let Some(floor) = floor::of_path(row).map_err(whole)? else {
            continue;
        };
        data.add(floor).map_err(whole)?;
        done.known += 1;
    }
    // The same row twice is one row.
    done.added = data.rows().len() - had;
    done.known -= done.added;
    anyhow::ensure!(
        done != Imported::default(),
        "{file} has no latency; a floor is what accesses take without a device"
    );
    Ok(done)
}

/// The data set at `path`: an empty one where there is none yet.
pub fn data_at(path: &Path) -> anyhow::Result<DataSet> {
    Ok(match path.exists() {
        true => DataSet::read(path)?,
        false => DataSet::default(),
    })
}
