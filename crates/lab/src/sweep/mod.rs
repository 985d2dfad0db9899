//! What changes when this setting changes, and that one? Many simulations, one table.
//!
//! ```text
//! PLAN.toml -> Plan: numbered points -> shard: which of them here -> jobs side by side -> journal, a line per point
//! journals of all shards -> Results: one row per point -> CSV, Parquet, a page
//! ```
//!
//! A point is run by a [`Job`]; what it runs is the caller's. A sweep that was killed goes on where the journal ends.
//!
//! Always true:
//! 1. Results come from the journal alone, ordered by point: whether a sweep ran in one go, was killed and went on, or
//!    in parts on many machines, the bytes are the same.
//! 2. A point that fails, even by a panic, is written down with the reason; the rest go on.
//!
//! # Example
//! ```
//! use lab::sweep::{Figure, Options, Plan, Point, Shard, run};
//!
//! let directory = tempfile::tempdir()?;
//! let file = directory.path().join("plan.toml");
//! std::fs::write(&file, "kind = 'square'\n[parameters]\nx = { from = 1, to = 3, step = 1 }")?;
//! let plan = Plan::read(&file)?;
//! let square = |point: &Point| {
//!     let x = point.parameters[0].1.number().unwrap_or_default();
//!     Ok(vec![vec![("y".to_owned(), Figure::Real(x * x))]])
//! };
//! let options = Options::new(directory.path().join("out"));
//! let summary = run(&plan, &square, &options, &|_| ())?;
//! assert_eq!((summary.results.rows(), summary.failed().len()), (3, 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod figure;
mod journal;
mod merge;
mod page;
mod plan;
mod results;

use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

pub use error::{Part, SweepError};
pub use figure::Figure;
pub use merge::{merge, write_merged};
pub use page::{View, headline, page};
pub use plan::{Grid, Plan, Point};
pub use results::{ORIGIN, Results};

use journal::{Answer, Header, Journal};
use merge::{RESULTS, write};

/// What was measured of a point, by name; a point may have several rows, such as one for each operation.
pub type Row = Vec<(String, Figure)>;

/// Why a point could not be run.
pub type JobError = Box<dyn std::error::Error + Send + Sync>;

/// Runs the points of a sweep.
pub trait Job: Sync {
    /// Runs one point; others run meanwhile on other threads.
    ///
    /// # Errors
    /// Why it could not be run; it is written down, and the sweep goes on.
    fn run(&self, point: &Point) -> Result<Vec<Row>, JobError>;
}

impl<F: Fn(&Point) -> Result<Vec<Row>, JobError> + Sync> Job for F {
    fn run(&self, point: &Point) -> Result<Vec<Row>, JobError> {
        self(point)
    }
}

/// One part of several: of the points numbered from 0, those that leave `part - 1` when divided by `of`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// From 1 to `of`.
    pub part: u32,
    /// How many parts there are.
    pub of: u32,
}

impl Shard {
    /// Everything.
    pub const WHOLE: Shard = Shard { part: 1, of: 1 };

    /// What its results are called.
    fn results(self) -> String {
        match self {
            Shard::WHOLE => RESULTS.to_owned(),
            Shard { part, of } => format!("{RESULTS}-{part}-of-{of}"),
        }
    }

    /// Does the point belong to this part?
    pub fn has(self, point: u64) -> bool {
        point % u64::from(self.of) == u64::from(self.part - 1)
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Shard, String> {
        let parts = text
            .split_once('/')
            .and_then(|(part, of)| Some((part.parse().ok()?, of.parse().ok()?)));
        match parts {
            Some((part, of)) if (1..=of).contains(&part) => Ok(Shard { part, of }),
            _ => Err(format!(
                "'{text}' is not a part; write the part and how many there are, such as 3/16, counted from 1"
            )),
        }
    }
}

/// How a sweep is to be run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The directory of its journal and its results; made if need be.
    pub out: PathBuf,
    /// The part to run here.
    pub shard: Shard,
    /// So many points at a time; 0: as many as there are processors.
    pub jobs: usize,
    /// Throw away what another plan left in the directory.
    pub restart: bool,
    /// Measured values that will be looked at: without one of them in the first point that is measured, the sweep
    /// ends there and can be gone on with.
    pub wanted: Vec<String>,
}

impl Options {
    /// The whole plan, on all processors, into `out`.
    pub fn new(out: impl Into<PathBuf>) -> Options {
        Options {
            out: out.into(),
            shard: Shard::WHOLE,
            jobs: 0,
            restart: false,
            wanted: Vec::new(),
        }
    }
}

/// How far a sweep is.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// Points of this part that are done, from earlier runs too.
    pub done: u64,
    /// Points of this part.
    pub points: u64,
    /// Of those done, how many failed.
    pub failed: u64,
    /// Why the last one failed, if it did.
    pub failure: Option<(u64, &'a str)>,
}

/// What came of a sweep.
#[derive(Debug)]
pub struct Summary {
    /// Everything measured, by earlier runs too.
    pub results: Results,
    /// Points an earlier run had done.
    pub resumed: u64,
    /// Lines of the journal that were damaged; their points were run again.
    pub damaged: u64,
    /// The results as CSV.
    pub csv: PathBuf,
    /// The results as Parquet.
    pub parquet: PathBuf,
}

impl Summary {
    /// The points that failed, with the reason.
    pub fn failed(&self) -> Vec<(u64, &str)> {
        self.results.failed()
    }
}

/// Runs the points of a part that are not done yet and writes its results.
///
/// Points that failed before are tried again. `progress` is called after each point, by one thread at a time.
///
/// # Errors
/// [`SweepError`] if the directory is another plan's or cannot be written, or [`Options::wanted`] is not measured. A
/// point that fails is no error.
pub fn run(
    plan: &Plan,
    job: &dyn Job,
    options: &Options,
    progress: &(dyn Fn(Progress<'_>) + Sync),
) -> Result<Summary, SweepError> {
    fs::create_dir_all(&options.out).map_err(|source| SweepError::File {
        what: "make the directory",
        path: options.out.clone(),
        source,
    })?;
    let header = Header::new(plan, options.shard);
    let path = options.out.join(journal::name(options.shard));
    let (journal, known) = Journal::open(path.clone(), &header, options.restart)?;
    let done = |point: &u64| matches!(known.answers.get(point), Some(Answer::Rows(_)));
    let mine = (0..plan.grid().len()).filter(|point| options.shard.has(*point));
    let (before, todo): (Vec<u64>, Vec<u64>) = mine.partition(done);
    let (resumed, points) = (before.len() as u64, (before.len() + todo.len()) as u64);
    if resumed > 0 && !todo.is_empty() {
        let measured = known.answers.iter();
        let measured = measured.filter(|(_, answer)| matches!(answer, Answer::Rows(_)));
        let measured = measured.map(|(point, answer)| (*point, answer.clone()));
        look(&header, &options.wanted, measured.collect())?;
    }
    let wanted = (header.clone(), options.wanted.clone());
    let state = Mutex::new(State {
        journal,
        todo: todo.into_iter(),
        done: resumed,
        failed: 0,
        wanted: (resumed == 0).then_some(wanted),
        stopped: None,
    });
    progress(Progress {
        done: resumed,
        points,
        failed: 0,
        failure: None,
    });
    side_by_side(options.jobs, points, &state, || {
        work(plan, job, &state, points, progress);
    });
    let state = state.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(error) = state.stopped {
        return Err(error);
    }
    state.journal.sync()?;
    drop(state.journal);
    let results = Results::of(&header, journal::read(&path)?.answers);
    let name = options.shard.results();
    let (csv, parquet) = write(&results, &options.out, &name)?;
    Ok(Summary {
        results,
        resumed,
        damaged: known.damaged,
        csv,
        parquet,
    })
}

/// Does `work` on as many threads as are asked for, and as there are points.
fn side_by_side(jobs: usize, points: u64, state: &Mutex<State>, work: impl Fn() + Sync) {
    let jobs = match jobs {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        jobs => jobs,
    };
    // Threads of their own: a rayon worker that waits within a job would take up the next point meanwhile, and the
    // one it waits for with it.
    std::thread::scope(|scope| {
        for _ in 0..jobs.min(points as usize) {
            let worker = std::thread::Builder::new();
            if let Err(error) = worker.spawn_scoped(scope, &work) {
                let refused = SweepError::Other(format!("cannot start {jobs} threads: {error}"));
                lock(state).stopped.get_or_insert(refused);
            }
        }
    });
}

/// What the threads of a sweep share.
struct State {
    journal: Journal,
    todo: std::vec::IntoIter<u64>,
    done: u64,
    failed: u64,
    /// What the first point that is measured must have.
    wanted: Option<(Header, Vec<String>)>,
    stopped: Option<SweepError>,
}

/// Is all that is wanted among what was measured?
fn look(
    header: &Header,
    wanted: &[String],
    answers: BTreeMap<u64, Answer>,
) -> Result<(), SweepError> {
    let point = answers.keys().next().copied().unwrap_or_default();
    let results = Results::of(header, answers);
    let known: Vec<&str> = results.measured().collect();
    match wanted.iter().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => Err(SweepError::NotMeasured {
            name: name.clone(),
            point,
            known: known.join(", "),
        }),
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // Jobs that panic do so outside the lock.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One thread: takes the next point until there is none.
fn work(
    plan: &Plan,
    job: &dyn Job,
    state: &Mutex<State>,
    points: u64,
    progress: &(dyn Fn(Progress<'_>) + Sync),
) {
    loop {
        let next = {
            let mut state = lock(state);
            match state.stopped {
                Some(_) => None,
                None => state.todo.next(),
            }
        };
        let Some(number) = next else { return };
        let answer = answer(job, &plan.point(number));
        let failure = match &answer {
            Answer::Failed(reason) => Some(reason.clone()),
            Answer::Rows(_) => None,
        };
        let mut state = lock(state);
        let looked = match &answer {
            Answer::Rows(_) => match state.wanted.take() {
                Some((header, wanted)) => {
                    look(&header, &wanted, BTreeMap::from([(number, answer.clone())]))
                }
                None => Ok(()),
            },
            Answer::Failed(_) => Ok(()),
        };
        if let Err(error) = state.journal.add(number, answer).and(looked) {
            state.stopped.get_or_insert(error);
            return;
        }
        state.done += 1;
        state.failed += u64::from(failure.is_some());
        progress(Progress {
            done: state.done,
            points,
            failed: state.failed,
            failure: failure.as_deref().map(|reason| (number, reason)),
        });
    }
}

fn answer(job: &dyn Job, point: &Point) -> Answer {
    // A job that panicked is given up with all it had: nothing of it is looked at again.
    match catch_unwind(AssertUnwindSafe(|| job.run(point))) {
        Ok(Ok(rows)) => Answer::Rows(rows),
        Ok(Err(error)) => {
            let mut reason = error.to_string();
            let mut source = error.source();
            while let Some(cause) = source {
                reason.push_str(&format!(": {cause}"));
                source = cause.source();
            }
            Answer::Failed(reason)
        }
        Err(panic) => {
            let said = panic.downcast_ref::<String>().map(String::as_str);
            let said = said.or_else(|| panic.downcast_ref::<&str>().copied());
            Answer::Failed(format!("it panicked: {}", said.unwrap_or("without a word")))
        }
    }
}

#[cfg(test)]
mod tests;
