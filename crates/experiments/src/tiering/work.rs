//! What is replayed: the two windows of the paper, generated or recorded, and the window before each.
//!
//! ```text
//! profile + seed | src1_0.csv, src1_1.csv of a folder
//!     -> requests of the window, times from its beginning -> every method
//!     -> requests by region of the window before          -> the 24 busiest: static tiering
//! ```
//!
//! Source: AST table 2 (which minutes), 4.1 (the window before).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::Nanos;
use report::Evidence;

use super::bed::REGION;
use crate::experiment::ExperimentError;
use trace::generate::{Generator, Part, Profile, Settings};
use trace::{Op, ReadOptions, Request, Requests, TraceError, open};

/// One of the paper's two workloads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case {
    /// Its name in the tables.
    pub name: &'static str,
    /// The generated one.
    profile: Profile,
    /// What the recorded one is called.
    file: &'static str,
    /// The window that is measured, in minutes of the recorded one.
    minutes: (u64, u64),
}

/// Both, in the order of the tables.
pub(super) const CASES: [Case; 2] = [
    Case {
        name: "src1-0",
        profile: Profile::Src1_0,
        file: "src1_0",
        minutes: (1920, 2020),
    },
    Case {
        name: "src1-1",
        profile: Profile::Src1_1,
        file: "src1_1",
        minutes: (480, 600),
    },
];

/// Those that played no part in any choice, each with seeds other than [`FITTED`]: the paper's two, whose rates and shares
/// were fitted to its tables, and one by rules of its own, fitted to nothing.
pub(super) const HELD_OUT: [Case; 3] = [
    Case {
        name: "src1-0 held-out",
        ..CASES[0]
    },
    Case {
        name: "src1-1 held-out",
        ..CASES[1]
    },
    Case {
        name: "drifting",
        profile: Profile::Drifting,
        file: "",
        minutes: (60, 120),
    },
];

/// A workload, read once for all methods.
#[derive(Clone)]
pub(super) struct Workload {
    pub case: &'static str,
    /// From the beginning of the window.
    pub requests: Arc<[Request]>,
    /// How long the window is.
    pub length: Nanos,
    /// Regions by requests of the window before, the busiest first.
    pub busiest: Vec<u64>,
    /// Where the requests come from, for notes.
    pub origin: String,
    /// What figures measured on it can prove.
    pub evidence: Evidence,
}

/// The seed with which the generators were fitted to the paper's tables, and on which our defaults were chosen.
const FITTED: u64 = 1;

const MINUTE: Nanos = Nanos::secs(60);

impl Case {
    fn length(&self) -> Nanos {
        MINUTE * (self.minutes.1 - self.minutes.0)
    }

    /// Its requests: generated from `seed`, or recorded ones of the folder `msr`; of the window at most `at_most`.
    pub fn load(
        &self,
        seed: u64,
        msr: Option<&Path>,
        at_most: Option<Nanos>,
    ) -> Result<Workload, ExperimentError> {
        let length = at_most.map_or(self.length(), |at_most| at_most.min(self.length()));
        let (requests, before, origin) = match msr {
            Some(folder) => self.recorded(folder, length)?,
            None => self.generated(seed, length),
        };
        let evidence = match (msr, seed) {
            (Some(_), _) => Evidence::Measured,
            (None, FITTED) => Evidence::Calibrated,
            (None, _) => Evidence::HeldOut,
        };
        Ok(Workload {
            case: self.name,
            requests: requests.into(),
            length,
            busiest: busiest(&before),
            origin,
            evidence,
        })
    }

    fn generated(&self, seed: u64, length: Nanos) -> (Vec<Request>, Vec<u64>, String) {
        let part = |part, span| {
            let settings = Settings {
                seed,
                part: Some(part),
                span,
                ..Settings::default()
            };
            Generator::new(self.profile, &settings).expect("a tiering profile has parts")
        };
        let mut window = part(Part::Window, Some(length));
        let origin = window.origin();
        let (mut requests, mut before) = (Vec::new(), Vec::new());
        let never = "a generator does not fail";
        each(&mut window, |request| requests.push(*request)).expect(never);
        each(&mut part(Part::Before, None), |request| {
            count(&mut before, request);
        })
        .expect(never);
        (requests, before, origin)
    }

    /// The file of the folder, whatever it is packed with.
    fn find(&self, folder: &Path) -> Result<PathBuf, ExperimentError> {
        let missing = |why: String| ExperimentError::Recorded {
            case: self.name,
            folder: folder.to_owned(),
            file: self.file,
            why,
        };
        let entries = std::fs::read_dir(folder).map_err(|error| missing(error.to_string()))?;
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| missing(error.to_string()))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let stem = name.split('.').next().unwrap_or_default();
            if stem == self.file && name.contains(".csv") {
                found.push(entry.path());
            }
        }
        found.sort();
        found.into_iter().next().ok_or_else(|| {
            missing(format!(
                "there is no {}.csv (or .csv.gz, .csv.zst)",
                self.file
            ))
        })
    }

    fn recorded(
        &self,
        folder: &Path,
        length: Nanos,
    ) -> Result<(Vec<Request>, Vec<u64>, String), ExperimentError> {
        let path = self.find(folder)?;
        let trouble = |source: TraceError| ExperimentError::Trace {
            case: self.name.to_owned(),
            source: Box::new(source),
        };
        let begin = MINUTE * self.minutes.0;
        let slice = |from: Nanos, to: Nanos| {
            let options = ReadOptions {
                from: Some(from),
                to: Some(to),
                ..ReadOptions::default()
            };
            open(&path, &options)
        };
        let (mut requests, mut before) = (Vec::new(), Vec::new());
        let mut earlier = slice(begin.saturating_sub(self.length()), begin).map_err(trouble)?;
        each(&mut earlier, |request| count(&mut before, request)).map_err(trouble)?;
        let mut window = slice(begin, begin + length).map_err(trouble)?;
        each(&mut window, |request| {
            if matches!(request.op, Op::Read | Op::Write) {
                requests.push(*request);
            }
        })
        .map_err(trouble)?;
        if requests.is_empty() {
            return Err(ExperimentError::Recorded {
                case: self.name,
                folder: folder.to_owned(),
                file: self.file,
                why: format!(
                    "{} has no request in minutes {} to {}; is it the whole trace?",
                    path.display(),
                    self.minutes.0,
                    self.minutes.1
                ),
            });
        }
        let origin = format!(
            "recorded: {}, minutes {} to {}",
            path.file_name().unwrap_or_default().to_string_lossy(),
            self.minutes.0,
            self.minutes.0 + length.0 / MINUTE.0
        );
        Ok((requests, before, origin))
    }
}

fn each(requests: &mut dyn Requests, mut take: impl FnMut(&Request)) -> Result<(), TraceError> {
    let mut batch = Vec::new();
    while requests.next_batch(&mut batch)? {
        batch.iter().for_each(&mut take);
    }
    Ok(())
}

/// A request counts once, where its first byte lies.
fn count(regions: &mut Vec<u64>, request: &Request) {
    let region = (request.offset.0 / REGION.0) as usize;
    if regions.len() <= region {
        regions.resize(region + 1, 0);
    }
    regions[region] += 1;
}

/// Regions with requests, the busiest first, of two alike the lower one.
fn busiest(counts: &[u64]) -> Vec<u64> {
    let mut regions: Vec<u64> = (0..counts.len() as u64)
        .filter(|region| counts[*region as usize] > 0)
        .collect();
    regions.sort_by_key(|region| (std::cmp::Reverse(counts[*region as usize]), *region));
    regions
}

impl Workload {
    /// The same requests, so many times as fast, under the name `case`.
    pub fn compressed(&self, times: f64, case: &'static str) -> Workload {
        let sooner = |at: Nanos| Nanos((at.0 as f64 / times) as u64);
        let request = |request: &Request| Request {
            at: sooner(request.at),
            ..*request
        };
        Workload {
            case,
            requests: self.requests.iter().map(request).collect(),
            length: sooner(self.length),
            busiest: self.busiest.clone(),
            origin: format!("{}, {times} times as fast", self.origin),
            // No choice was made for what comes out at another speed.
            evidence: Evidence::Measured,
        }
    }

    /// Its requests, so many times one after the other with `pause` between the windows.
    pub fn replay(&self, times: u64, pause: Nanos) -> Replayed {
        Replayed {
            requests: Arc::clone(&self.requests),
            at: 0,
            shift: Nanos(0),
            step: self.length + pause,
            times,
        }
    }
}

/// The requests of a workload, taken out of memory.
pub(super) struct Replayed {
    requests: Arc<[Request]>,
    at: usize,
    shift: Nanos,
    step: Nanos,
    times: u64,
}

impl Requests for Replayed {
    fn next_batch(&mut self, batch: &mut Vec<Request>) -> Result<bool, TraceError> {
        batch.clear();
        if self.at == self.requests.len() {
            self.times -= 1;
            self.at = 0;
            self.shift += self.step;
        }
        if self.times == 0 {
            return Ok(false);
        }
        let end = self.requests.len().min(self.at + trace::BATCH);
        let shifted = self.requests[self.at..end].iter().map(|request| Request {
            at: request.at + self.shift,
            ..*request
        });
        batch.extend(shifted);
        self.at = end;
        Ok(true)
    }
}
