//! `tanada bench ...`: measure what predictions are made from.
//!
//! ```text
//! bench device TARGET -> may it be written? -> fio, job by job -> RAW/*.json -> data set -> `tanada predict`
//! bench app TARGET    -> app      bench model NAME, bench device TARGET --quick -> quick
//! ```
//!
//! Each job's output is kept as fio wrote it. What is there already is not measured again, so a run that was broken off goes on
//! where it was.

mod app;
mod over;
mod quick;

use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use base::Bytes;
use clap::{Args, Subcommand, ValueEnum};
use indicatif::ProgressBar;
use predict::data::{DataSet, Reduce};
use predict::grid::{Grid, Job, SIZES, Way};
use predict::import::{self, About, Format};
use report::terminal;
use report::terminal::Usage;
use report::terminal::progress;
use report::terminal::table::table;
use serde::Serialize;

use app::BenchApp;
use quick::BenchModel;

use crate::commands::predict_import::data_at;
use crate::reading::{seconds, some_seconds};

/// The size of the file made in a folder, unless given.
const FILE_SIZE: Bytes = Bytes::gib(1);
/// What is read at a time when a target is looked at or filled.
const PIECE: u64 = 1 << 20;
/// Places of a target that are looked at for data.
const PLACES: u64 = 64;

#[derive(Subcommand)]
pub enum Bench {
    /// Measure a device model, in virtual time.
    Model(BenchModel),
    /// Measure a device's own figures with fio: random reads and writes of 1 to 256 KiB.
    Device(BenchDevice),
    /// Measure a database on a device: MariaDB under a load like YCSB's core workloads.
    App(BenchApp),
}

#[derive(Args)]
#[command(
    after_help = "TARGET is a block device, a file, or a folder (a file is made in it and removed at the end).\n\
    Example: tanada bench device /dev/nvme0n1 --name nvme0 --into data.csv --read-only"
)]
pub struct BenchDevice {
    /// A block device, a file, or a folder on the device.
    #[arg(value_name = "TARGET")]
    pub target: PathBuf,
    /// Seven cases of two seconds, without fio and into no data set; only reads, unless --overwrite is given.
    #[arg(long, conflicts_with_all = ["name", "raw", "sizes", "size"])]
    pub quick: bool,
    /// The device's name in the data set [default: the last part of TARGET]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// The data set to add to: CSV, or Parquet (.parquet); made if it is not there.
    #[arg(long, value_name = "DATA", default_value = "data.csv")]
    pub into: PathBuf,
    /// Where fio's outputs are kept [default: NAME.raw beside the data set]
    #[arg(long, value_name = "DIR")]
    pub raw: Option<PathBuf>,
    /// Block sizes [default: 1KiB,4KiB,16KiB,64KiB,256KiB]
    #[arg(long, value_delimiter = ',', value_name = "SIZE")]
    pub sizes: Vec<Bytes>,
    /// Only reads; the target's data stay.
    #[arg(long, conflicts_with = "overwrite")]
    pub read_only: bool,
    #[command(flatten)]
    pub over: over::Over,
    /// Accesses under way at a time.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024), value_name = "N")]
    pub depth: u32,
    /// How long each job counts.
    #[arg(long = "time", alias = "seconds", default_value = "10s", value_parser = some_seconds, value_name = "SPAN")]
    pub seconds: u32,
    /// How long it runs before, which does not count.
    #[arg(long, default_value = "2s", value_parser = seconds, value_name = "SPAN")]
    pub ramp: u32,
    /// How often everything is repeated.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100), value_name = "N")]
    pub runs: u32,
    /// The size of the file made in a folder [default: 1GiB]
    #[arg(long, value_name = "SIZE")]
    pub size: Option<Bytes>,
    /// Go past the page cache, or through it (memory file systems have no other way).
    #[arg(long, value_enum, default_value_t = Io::Direct)]
    pub io: Io,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Io {
    /// Past the page cache.
    Direct,
    /// Through the page cache.
    Buffered,
}

/// Runs a command.
pub fn run(command: Bench) -> anyhow::Result<()> {
    match command {
        Bench::Model(wanted) => quick::model(&wanted),
        Bench::Device(wanted) if wanted.quick => {
            wanted.over.consent(&wanted.target)?;
            quick::device(&wanted.target, wanted.over.overwrite, wanted.json)
        }
        Bench::Device(arguments) => {
            arguments.over.consent(&arguments.target)?;
            device(&arguments)
        }
        Bench::App(arguments) => app::run(&arguments),
    }
}

/// What is measured, and what must be removed afterwards.
struct Target {
    path: PathBuf,
    /// Ours: made for this, removed at the end.
    made: bool,
}

impl Drop for Target {
    fn drop(&mut self) {
        if self.made {
            // A file that is left is taken up by the next run.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A figure as it is printed: the median of its runs.
#[derive(Serialize)]
struct Figure {
    regressor: String,
    value: f64,
    unit: String,
    low: f64,
    high: f64,
    runs: usize,
}

fn device(arguments: &BenchDevice) -> anyhow::Result<()> {
    fio_is_here()?;
    let name = name_of(arguments.name.as_deref(), &arguments.target)?;
    let mut ways = vec![Way::Read];
    if !arguments.read_only {
        ways.push(Way::Write);
    }
    let target = prepare(arguments)?;
    let grid = Grid {
        sizes: match arguments.sizes.is_empty() {
            true => SIZES.to_vec(),
            false => arguments.sizes.clone(),
        },
        ways,
        depth: arguments.depth,
        seconds: arguments.seconds,
        ramp: arguments.ramp,
        runs: arguments.runs,
        direct: arguments.io == Io::Direct,
        span: None,
    };
    if let Some(odd) = grid
        .sizes
        .iter()
        .find(|size| size.0 == 0 || size.0 % 512 != 0)
    {
        return Err(Usage(format!("--sizes {odd}: write multiples of 512 bytes")).into());
    }
    let raw = raw_of(arguments.raw.as_deref(), &arguments.into, &name);
    fs::create_dir_all(&raw).with_context(|| format!("cannot make {}", raw.display()))?;
    let jobs = grid.jobs(&target.path.display().to_string());
    eprintln!(
        "{name}: {} jobs, about {} s; outputs go to {}",
        jobs.len(),
        grid.duration(),
        raw.display()
    );
    let outputs = measure(&jobs, &raw)?;
    drop(target);
    let mut data = data_at(&arguments.into)?;
    let about = About {
        device: Some(name.clone()),
        ..About::default()
    };
    for output in &outputs {
        let text = fs::read_to_string(output)
            .with_context(|| format!("cannot read {}", output.display()))?;
        import::add(
            &mut data,
            Format::Fio,
            &text,
            &output.display().to_string(),
            &about,
        )?;
    }
    data.write(&arguments.into)?;
    report(arguments, &name, &data)
}

fn fio_is_here() -> anyhow::Result<()> {
    let answer = Command::new("fio")
        .arg("--version")
        .stderr(Stdio::null())
        .output();
    match answer {
        Ok(answer) if answer.status.success() => Ok(()),
        _ => bail!(
            "cannot run fio, which does the measuring; install the package `fio` of your system \
             (`tanada doctor` looks for it)"
        ),
    }
}

/// Where outputs are kept: as asked, or beside the data set.
pub fn raw_of(asked: Option<&Path>, into: &Path, name: &str) -> PathBuf {
    let beside = || {
        let folder = into.parent().unwrap_or(Path::new(""));
        folder.join(format!("{name}.raw"))
    };
    asked.map_or_else(beside, Path::to_owned)
}

/// The device's name: as asked, or the last part of `target`.
pub fn name_of(asked: Option<&str>, target: &Path) -> anyhow::Result<String> {
    if let Some(name) = asked {
        return Ok(name.to_owned());
    }
    let whole = fs::canonicalize(target).unwrap_or_else(|_| target.to_owned());
    match whole.file_name() {
        Some(name) => Ok(name.to_string_lossy().into_owned()),
        None => Err(Usage("name the device with --name".to_owned()).into()),
    }
}

// --- the target -----------------------------------------------------------------------------------

/// Sees to it that there is something to read, and that nothing is lost that matters.
fn prepare(arguments: &BenchDevice) -> anyhow::Result<Target> {
    let target = &arguments.target;
    let shown = target.display();
    let kind = fs::metadata(target)
        .with_context(|| {
            format!("cannot measure {shown}: name a block device, a file or a folder")
        })?
        .file_type();
    if kind.is_dir() {
        return in_folder(target, arguments.size.unwrap_or(FILE_SIZE));
    }
    if !kind.is_file() && !kind.is_block_device() {
        bail!("cannot measure {shown}: it is neither a block device, a file nor a folder");
    }
    if arguments.size.is_some() {
        return Err(Usage(
            "--size is for the file made in a folder; a device is measured whole".to_owned(),
        )
        .into());
    }
    let found = Target {
        path: target.clone(),
        made: false,
    };
    let holds_data = holds_data(target)?;
    if arguments.read_only {
        if !holds_data {
            bail!(
                "cannot measure reads of {shown}: it is blank, and what was never written is answered without \
                 looking; leave --read-only out, so that it is filled first"
            );
        }
        return Ok(found);
    }
    if holds_data && !arguments.over.overwrite {
        bail!(
            "cannot measure writes to {shown}: it holds data; measure reads alone with --read-only, name a folder \
             on it, or give --overwrite if the data may be lost"
        );
    }
    claim(target)?;
    if !holds_data {
        fill(target)?;
    }
    Ok(found)
}

/// A file of its own in a folder; one that a broken-off run left is used again.
fn in_folder(folder: &Path, size: Bytes) -> anyhow::Result<Target> {
    if size.0 < PIECE {
        return Err(Usage(format!("--size {size}: at least 1 MiB is needed")).into());
    }
    let free = rustix::fs::statvfs(folder)
        .map(|at| at.f_bavail * at.f_frsize)
        .with_context(|| format!("cannot ask how much is free in {}", folder.display()))?;
    let target = Target {
        path: folder.join("tanada-bench-device.tmp"),
        made: true,
    };
    let there = fs::metadata(&target.path).map_or(0, |file| file.len());
    if size.0 > free + there {
        bail!(
            "cannot make a file of {size} in {}: {} is free; ask for less with --size",
            folder.display(),
            Bytes(free)
        );
    }
    let file = fs::File::create(&target.path)
        .with_context(|| format!("cannot make {}", target.path.display()))?;
    file.set_len(size.0 / PIECE * PIECE)?;
    drop(file);
    fill(&target.path)?;
    Ok(target)
}

/// Is anything but zeroes at its start, its end or some places between?
fn holds_data(path: &Path) -> anyhow::Result<bool> {
    let shown = path.display();
    let mut file = fs::File::open(path).with_context(|| format!("cannot open {shown}"))?;
    let size = file.seek(SeekFrom::End(0))?;
    if size < PIECE {
        bail!(
            "cannot measure {shown}: it has {}; at least 1 MiB is needed",
            Bytes(size)
        );
    }
    let mut piece = vec![0; PIECE as usize];
    for place in 0..=PLACES {
        let at = (u128::from(size - PIECE) * u128::from(place) / u128::from(PLACES)) as u64;
        file.seek(SeekFrom::Start(at))?;
        file.read_exact(&mut piece)
            .with_context(|| format!("cannot read {shown}"))?;
        if piece.iter().any(|byte| *byte != 0) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Refuses a target that is mounted or in use, as every device that is opened for writing.
fn claim(path: &Path) -> anyhow::Result<()> {
    let options = device::FileOptions {
        direct: env::fs::Direct::No,
        ..device::FileOptions::default()
    };
    let path = path.to_owned();
    let runtime =
        env::Runtime::real(env::RealConfig::default()).context("cannot make a runtime")?;
    runtime.block_on(async move {
        let opened: std::rc::Rc<dyn device::Device> = device::File::open("target", &path, options)?;
        drop(opened);
        Ok(())
    })
}

/// Writes data to all of it: what was never written is answered without looking.
fn fill(path: &Path) -> anyhow::Result<()> {
    let shown = path.display();
    let mut file = fs::OpenOptions::new()
        .write(true)
        .open(path)
        .with_context(|| format!("cannot write {shown}"))?;
    let size = file.seek(SeekFrom::End(0))?;
    file.rewind()?;
    let bar = bar("filling", size);
    let mut rng = env::Rng::from_seed(1);
    let mut piece = vec![0; PIECE as usize];
    let mut left = size;
    while left > 0 {
        rng.fill(&mut piece);
        let len = left.min(PIECE);
        std::io::Write::write_all(&mut file, &piece[..len as usize])
            .with_context(|| format!("cannot fill {shown}"))?;
        left -= len;
        bar.inc(len);
    }
    file.sync_all()
        .with_context(|| format!("cannot fill {shown}"))?;
    bar.finish_and_clear();
    Ok(())
}

// --- measuring ------------------------------------------------------------------------------------

/// How much of `what` is done.
fn bar(what: &'static str, length: u64) -> ProgressBar {
    let bar = progress::bar("{prefix} [{bar:40}] {percent}% {msg} (left {eta})", length);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar.with_prefix(what)
}

/// Runs what was not run yet; where all outputs are, in the jobs' order.
fn measure(jobs: &[Job], raw: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let bar = bar("measuring", jobs.len() as u64);
    let mut outputs = Vec::new();
    for job in jobs {
        let output = raw.join(format!("{}.json", job.name));
        bar.set_message(job.name.clone());
        if !output.exists() {
            let text = job.run().map_err(anyhow::Error::msg)?;
            // Whole or not at all: a broken-off run leaves no half output.
            let begun = output.with_extension("part");
            fs::write(&begun, text).with_context(|| format!("cannot write {}", begun.display()))?;
            fs::rename(&begun, &output)?;
        }
        outputs.push(output);
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(outputs)
}

fn report(arguments: &BenchDevice, name: &str, data: &DataSet) -> anyhow::Result<()> {
    let reduced = data.reduce(Reduce::Median);
    let figures: Vec<Figure> = reduced
        .regressors
        .iter()
        .filter_map(|regressor| {
            let value = regressor.values.get(name)?;
            let extreme = |pick: fn(f64, f64) -> f64| value.runs.iter().copied().reduce(pick);
            Some(Figure {
                regressor: regressor.name.clone(),
                value: value.value,
                unit: regressor.kind.unit().to_string(),
                low: extreme(f64::min)?,
                high: extreme(f64::max)?,
                runs: value.runs.len(),
            })
        })
        .collect();
    if arguments.json {
        return terminal::json(&figures);
    }
    let rows = figures.iter().map(|figure| {
        let (name, unit) = (&figure.regressor, &figure.unit);
        let range = (figure.low, figure.high);
        figure_cells(name, figure.value, unit, range, figure.runs)
    });
    let rows: Vec<Vec<String>> = rows.collect();
    terminal::text(&format!(
        "{name}, in {}\n\n{}",
        arguments.into.display(),
        table(&FIGURE_HEAD, &rows)
    ))
}

/// What tables of figures have above [`figure_cells`].
pub const FIGURE_HEAD: [&str; 5] = ["FIGURE", "MEDIAN", "UNIT", "LOWEST - HIGHEST", "RUNS"];

/// A figure of several runs, as a row of a table.
pub fn figure_cells(
    name: &str,
    median: f64,
    unit: &str,
    (low, high): (f64, f64),
    runs: usize,
) -> Vec<String> {
    vec![
        name.to_owned(),
        format!("{median:.3}"),
        unit.to_owned(),
        format!("{low:.3} - {high:.3}"),
        runs.to_string(),
    ]
}
