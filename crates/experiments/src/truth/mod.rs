//! Does the simulator say the truth? The same set-up and the same requests, in virtual time and through a whole daemon in real time.
//!
//! ```text
//! case -> requests -> virtual time: simulator, or the engine over models        -> times, bytes -.
//!                 '-> real time: NBD or store client -> `tanada serve` -> models -> times, bytes -+-> differences, claims (rows)
//!                          '---> a device in memory of the same daemon: the floor ---------------'
//! ```
//!
//! - `cases` what is asked of what; `setup` that in both forms; `client` the open loop that asks.
//! - `modelled` runs in virtual time, of which `volume` and `store` make those that are no hybrid; `real` runs with a `daemon`.
//! - `sample` what a run gives; `rows` what is reported of it; `common` what all of these name.
//!
//! In real time: those figures differ from run to run, and say little on a machine that does something else meanwhile.
//!
//! Always true:
//! 1. Virtual and real figures are never in one table.
//! 2. No daemon outlives its run.

mod cases;
mod client;
mod common;
mod daemon;
mod modelled;
mod real;
mod rows;
mod sample;
mod setup;
mod store;
mod volume;

use trace::Request;

use crate::app::process::Stop;
use crate::experiment::jobs::{Job, side_by_side};
use crate::experiment::journal::Journal;
use crate::experiment::{ExperimentError, Options, Progress, Results};
use cases::{CASES, Case, Extent, led};
pub use common::LISTING;
use common::{Bench, REAL, Trouble, VIRTUAL};
use rows::Found;
use sample::Sample;

/// Runs the experiment.
///
/// # Errors
/// [`ExperimentError::Machine`] if there is no daemon to run; [`ExperimentError::Failed`] if a run failed or was interrupted;
/// those of traces and of the journal.
pub fn run(options: Options<'_>, progress: &mut Progress<'_>) -> Result<Results, ExperimentError> {
    let part = options.part;
    part.check(&CASES.map(|case| case.name), &[VIRTUAL, REAL])?;
    let program = match part.has_method(REAL) {
        true => Some(daemon::program().map_err(|why| ExperimentError::Machine {
            experiment: LISTING.name,
            why,
        })?),
        false => None,
    };
    let extent = Extent::of(&options);
    let mut journal = Journal::open(LISTING.name, &options)?;
    let asked = CASES.iter().filter(|case| part.has_case(case.name));
    let asked: Vec<Asked> = asked
        .map(|case| {
            let requests = case.requests(&extent)?;
            Ok(Asked { case, requests })
        })
        .collect::<Result<_, ExperimentError>>()?;
    let mut found: Vec<Found> = asked
        .iter()
        .map(|it| Found::new(it.case, &it.requests))
        .collect();
    if part.has_method(VIRTUAL) {
        // About a tenth of the time.
        let mut virtually = |what: &str, done: f64| progress(what, done / 10.0);
        modelled(&asked, &extent, &mut found, &mut journal, &mut virtually)?;
    }
    if let Some(program) = &program {
        let never = Stop::default();
        let bench = Bench {
            program,
            extent: &extent,
            stop: options.stop.unwrap_or(&never),
        };
        let mut really = |what: &str, done: f64| progress(what, 0.1 + 0.9 * done);
        bench.run(&asked, &mut found, &mut journal, &mut really)?;
    }
    progress("done", 1.0);
    Ok(Results {
        rows: rows::rows(&found, &extent, part.is_whole()),
        figures: Vec::new(),
    })
}

/// A case, and its requests where there are any.
struct Asked {
    case: &'static Case,
    requests: Option<Vec<Request>>,
}

impl Asked {
    fn failed(&self, method: &'static str, trouble: Trouble) -> ExperimentError {
        ExperimentError::Failed {
            case: self.case.name.to_owned(),
            method,
            source: Box::new(trouble),
        }
    }
}

/// The names of a case's runs on one side.
fn name_of(case: &Case, method: &str, nth: u64) -> String {
    format!("{} {method} {}", case.name, nth + 1)
}

/// All runs in virtual time, side by side.
fn modelled(
    asked: &[Asked],
    extent: &Extent,
    found: &mut [Found],
    journal: &mut Journal,
    progress: &mut Progress<'_>,
) -> Result<(), ExperimentError> {
    let mut jobs: Vec<Job<'_, Sample>> = Vec::new();
    let mut whose = Vec::new();
    for (at, it) in asked.iter().enumerate() {
        let Some(requests) = &it.requests else {
            continue;
        };
        for nth in 0..extent.runs {
            let seed = extent.seed.wrapping_add(nth);
            jobs.push(Job::new(name_of(it.case, VIRTUAL, nth), move || {
                let requests = led(requests, nth, extent.runs);
                let done = modelled::run(it.case, &requests, extent, seed);
                done.map_err(|trouble| it.failed(VIRTUAL, trouble))
            }));
            whose.push(at);
        }
    }
    let samples = side_by_side(&jobs, journal, progress)?;
    for (at, sample) in whose.into_iter().zip(samples) {
        found[at].modelled.push(sample);
    }
    Ok(())
}

impl Bench<'_> {
    fn run(
        &self,
        asked: &[Asked],
        found: &mut [Found],
        journal: &mut Journal,
        progress: &mut Progress<'_>,
    ) -> Result<(), ExperimentError> {
        let count = asked.len() as u64 * self.extent.runs;
        // Run by run over all cases: what the machine does meanwhile meets all of them.
        for nth in 0..self.extent.runs {
            for (at, it) in asked.iter().enumerate() {
                let Some(requests) = &it.requests else {
                    continue;
                };
                let name = name_of(it.case, REAL, nth);
                let done = nth * asked.len() as u64 + at as u64;
                progress(&name, done as f64 / count as f64);
                let sample = match journal.get(&name) {
                    Some(sample) => sample,
                    None => {
                        let requests = led(requests, nth, self.extent.runs);
                        let sample = real::run(it.case, &requests, self);
                        let sample = sample.map_err(|trouble| it.failed(REAL, trouble))?;
                        journal.put(&name, &sample)?;
                        sample
                    }
                };
                found[at].real.push(sample);
            }
        }
        Ok(())
    }
}
