//! An SSD as a disk cache: what does it save, in time and in energy, as published and as ours?
//!
//! ```text
//! methods (bed) x cases (work) x seeds -> samples -> main table -> comparisons (compare) -> rows
//! ```
//!
//! Everything happens in virtual time on the modelled disks of the paper's table 1.
//!
//! Source: DMSSD 6.
//!
//! Always true:
//! 1. Every case of every method has seconds, watts and joules, and `joules = watts x seconds`.
//! 2. The same options give the same rows, bit for bit.

mod bed;
mod compare;
mod day;
mod day_rows;
mod directions;
mod spread;
mod trouble;
mod work;

use std::collections::BTreeMap;

use base::Bytes;
use report::{Evidence, Row, Value};

use serde::{Deserialize, Serialize};

use crate::experiment::jobs::{Job, side_by_side};
use crate::experiment::journal::Journal;
use crate::experiment::{ExperimentError, Listing, Options, Progress};
use bed::{AS_IT_COMES, Engine, METHODS, OF_DAYS, Setup};
use day::{DAYS, Day, Rhythm};
use trouble::Trouble;
use work::{HEAD, Run, Sample, Twice};

/// The experiment, for listings.
pub const LISTING: Listing = Listing {
    name: "cache",
    paper: "DMSSD",
    about: "an SSD as a disk cache: time and energy of streams, random reads and a day, published and ours",
};

/// The cases, in the order of the tables.
pub const CASES: [&str; 7] = [
    "read",
    "reread",
    "write",
    "rewrite",
    "random",
    "random-reread",
    "day",
];

/// The metrics of the main table with their units.
pub const METRICS: [(&str, &str); 3] = [("seconds", "s"), ("watts", "W"), ("joules", "J")];

/// The names of the methods, in the order of the tables.
pub fn methods() -> [&'static str; 8] {
    METHODS.map(|setup| setup.method)
}

/// The length of the paper's file.
const FILE: Bytes = Bytes::gib(1);
/// The length of a short run's file; what it takes is multiplied.
const QUICK_FILE: Bytes = Bytes::mib(64);
/// In a short run the bursts of the days held out are so many times further apart.
const THINNED: f64 = 20.0;

/// Samples by (case, method), one for each seed.
type Samples = BTreeMap<(&'static str, &'static str), Vec<Sample>>;

/// All that was measured.
#[derive(Default)]
struct Measured {
    main: Samples,
    /// Ours as it comes, as a cache and as a new hybrid.
    as_it_comes: Samples,
    /// What it took afterwards to destage what only the cache held.
    destage: Samples,
    days: BTreeMap<(&'static str, &'static str), Vec<Day>>,
}

/// The kinds of run.
#[derive(Clone, Copy)]
enum Work {
    Reads,
    Writes,
    Random,
    Day(&'static Rhythm),
}

impl Work {
    fn name(self) -> &'static str {
        match self {
            Work::Reads => "read",
            Work::Writes => "write",
            Work::Random => "random",
            Work::Day(rhythm) => rhythm.name,
        }
    }

    /// The cases that one run of it gives.
    fn cases(self) -> &'static [&'static str] {
        match self {
            Work::Reads => &["read", "reread"],
            Work::Writes => &["write", "rewrite"],
            Work::Random => &["random", "random-reread"],
            Work::Day(rhythm) => std::slice::from_ref(&rhythm.name),
        }
    }
}

/// Runs the experiment.
///
/// # Errors
/// [`ExperimentError`], naming case and method.
///
/// # Source
/// DMSSD 6, figures 9-17.
pub fn run(options: Options, progress: &mut Progress<'_>) -> Result<Vec<Row>, ExperimentError> {
    let held_out = DAYS[1..].iter().map(|rhythm| rhythm.name);
    let cases: Vec<_> = CASES.into_iter().chain(held_out).collect();
    let of_days = OF_DAYS.map(|setup| setup.method);
    let methods: Vec<_> = methods().into_iter().chain(of_days).collect();
    options.part.check(&cases, &methods)?;
    let measured = measure(options, progress)?;
    let mut rows = compare::main_table(&measured, options);
    rows.extend(day_rows::figures(&measured));
    progress("done", 1.0);
    if !options.part.is_whole() {
        return Ok(rows);
    }
    rows.extend(compare::stated(&measured));
    rows.extend(directions::directions(&measured));
    rows.extend(compare::against_published(&measured));
    rows.extend(compare::as_it_comes(&measured));
    rows.extend(compare::destage(&measured, options));
    rows.extend(day_rows::savings(&measured));
    rows.extend(day_rows::claims(&measured, options.quick));
    Ok(rows)
}

fn measure(options: Options, progress: &mut Progress<'_>) -> Result<Measured, ExperimentError> {
    let (file, seeds) = if options.quick {
        (QUICK_FILE, 2)
    } else {
        (FILE, 5)
    };
    let mut plan: Vec<(Work, Setup)> = Vec::new();
    for work in [Work::Reads, Work::Writes, Work::Random] {
        plan.extend(METHODS.map(|setup| (work, setup)));
    }
    if options.part.is_whole() {
        for work in [Work::Reads, Work::Writes] {
            plan.extend(AS_IT_COMES.map(|setup| (work, setup)));
        }
    }
    for rhythm in &DAYS {
        let all = METHODS.into_iter().chain(OF_DAYS);
        let all = all.filter(|setup| setup.disk.is_some() || !rhythm.needs_disk());
        plan.extend(all.map(|setup| (Work::Day(rhythm), setup)));
    }
    plan.retain(|(work, setup)| {
        let cases = work.cases().iter();
        cases
            .clone()
            .any(|case| options.part.has(case, setup.method))
    });
    let mut jobs = Vec::new();
    for (work, setup) in &plan {
        for seed in (0..seeds).map(|n| options.seed.wrapping_add(n)) {
            let name = format!(
                "{} of {}, {:?}, seed {seed}",
                work.name(),
                setup.method,
                setup.engine
            );
            jobs.push(Job::new(name, move || {
                // A runtime of its own for each: no run sees what another left.
                let runtime = env::Runtime::simulated(seed);
                runtime
                    .block_on(one(*work, *setup, file, seed))
                    .map_err(|trouble| trouble.of(work.name(), setup.method))
            }));
        }
    }
    let mut journal = Journal::open(LISTING.name, &options)?;
    let outcomes = side_by_side(&jobs, &mut journal, progress)?;
    let mut measured = Measured::default();
    for (n, outcome) in outcomes.into_iter().enumerate() {
        let (work, setup) = &plan[n / seeds as usize];
        measured.add(*work, setup, file, outcome);
    }
    Ok(measured)
}

/// How often a short file's rest fits into that of the paper's.
fn share(file: Bytes) -> f64 {
    (FILE - HEAD).0 as f64 / (file - HEAD).0 as f64
}

/// What one run gave.
#[derive(Serialize, Deserialize)]
enum Outcome {
    Twice(Twice),
    Day(Day),
}

async fn one(work: Work, setup: Setup, file: Bytes, seed: u64) -> Result<Outcome, Trouble> {
    Ok(match work {
        Work::Reads => Outcome::Twice(work::reads(&setup, file, seed).await?),
        Work::Writes => Outcome::Twice(work::writes(&setup, file, seed).await?),
        Work::Random => Outcome::Twice(work::random(&setup, seed).await?),
        Work::Day(rhythm) => {
            let is_short = file < FILE && rhythm.evidence == Evidence::HeldOut;
            let thinned = if is_short { THINNED } else { 1.0 };
            Outcome::Day(day::day(rhythm, &setup, thinned, seed).await?)
        }
    })
}

impl Measured {
    /// Files what one run gave under its cases.
    fn add(&mut self, work: Work, setup: &Setup, file: Bytes, outcome: Outcome) {
        let twice = match outcome {
            Outcome::Twice(twice) => twice,
            Outcome::Day(day) => {
                let of = (work.name(), setup.method);
                self.days.entry(of).or_default().push(day);
                self.main.entry(of).or_default().push(day.sample);
                return;
            }
        };
        // A short run's stream is a part of the paper's: what comes after its beginning comes more often.
        let times = match work {
            Work::Reads | Work::Writes => share(file),
            Work::Random | Work::Day(_) => 1.0,
        };
        let full = |run: Run| run.head.then(run.whole.rest_times(run.head, times));
        let table = match setup.engine {
            Engine::Defaults | Engine::Both => &mut self.as_it_comes,
            _ => &mut self.main,
        };
        for (case, run) in work.cases().iter().zip([twice.first, twice.again]) {
            let cell = table.entry((*case, setup.method));
            cell.or_default().push(full(run));
        }
        let caches = [Engine::Published, Engine::Ours, Engine::Energy];
        if caches.contains(&setup.engine) && matches!(work, Work::Writes) {
            let cell = self.destage.entry(("rewrite", setup.method));
            cell.or_default().push(full(twice.destage));
        }
    }
}
