//! Generated traces: workloads made by rule, where no recorded one is at hand.
//!
//! ```text
//! profile + seed + settings -> source of one kind -> limit (requests, time) -> batches, as from a file
//!    src1-0, src1-1                  tiering: hot spots that live, drift, return (plan, tiering, shapes)
//!    drifting                        drifting: hot spots by rules of their own, fitted to nothing
//!    zipf, uniform, sequential, mixed  plain: one pattern each
//!    db                              database: pages, log, checkpoints
//! ```
//!
//! A result got from a generated trace must say so: [`Generator::origin`] is the sentence for it.
//! `docs/generator.md` holds what each profile promises, what was measured, and the hashes of the tiering
//! workloads, which do not change without a decision record.
//!
//! Source: AST 2.1, 4.1-4.3, 6 ("other workloads").
//!
//! Always true:
//! 1. The same profile, seed and settings give the same requests, bit for bit, on every machine.
//! 2. The first request comes at 0, and none comes before the one before it.
//! 3. A longer run of the same settings begins with the shorter one.

mod chance;
mod clock;
mod database;
mod drifting;
mod fingerprint;
mod plain;
mod plan;
mod profile;
mod settings;
mod shapes;
mod source;
#[cfg(test)]
mod tests;
mod tiering;

pub use fingerprint::Fingerprint;
pub use plan::{HotSpot, REGION};
pub use profile::{Profile, UnknownProfile};
pub use settings::{GenerateError, Part, Settings};

use base::Nanos;

use self::database::Database;
use self::drifting::Drifting;
use self::plain::Plain;
use self::source::Source;
use self::tiering::Tiering;

use crate::{BATCH, Request, Requests, TraceError};

/// A generated trace.
///
/// # Example
/// ```
/// use trace::generate::{Generator, Profile, Settings};
/// use trace::Requests;
/// let settings = Settings { requests: Some(1_000), ..Settings::default() };
/// let mut trace = Generator::new(Profile::Zipf, &settings)?;
/// let (mut batch, mut requests) = (Vec::new(), 0);
/// while trace.next_batch(&mut batch)? {
///     requests += batch.len();
/// }
/// assert_eq!(requests, 1_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Generator {
    profile: Profile,
    settings: Settings,
    source: Box<dyn Source>,
    /// Still to come at most, and the moment none reaches.
    left: u64,
    until: Nanos,
    at: Nanos,
}

impl Generator {
    /// The trace of a profile.
    ///
    /// # Errors
    /// [`GenerateError`] for a setting that the profile has not, or beyond its range.
    pub fn new(profile: Profile, settings: &Settings) -> Result<Generator, GenerateError> {
        settings.check(profile)?;
        let until = settings.span_of(profile);
        Ok(Generator {
            profile,
            source: source(profile, settings),
            left: settings.requests_of(profile),
            until,
            at: Nanos(0),
            settings: settings.clone(),
        })
    }

    /// Which profile.
    pub fn profile(&self) -> Profile {
        self.profile
    }

    /// How far along it is, 0 to 1.
    pub fn done(&self) -> f64 {
        let requests = self.settings.requests_of(self.profile);
        let by_count = match requests {
            u64::MAX => 0.0,
            all => (all - self.left) as f64 / all.max(1) as f64,
        };
        let by_time = match self.until {
            Nanos(u64::MAX) => 0.0,
            until => self.at.secs_f64() / until.secs_f64().max(1e-9),
        };
        by_count.max(by_time).min(1.0)
    }

    /// What a report says of where its requests come from, such as
    /// `generated: src1-0, window, seed 1`.
    pub fn origin(&self) -> String {
        let part = match self.profile.window() {
            Some(_) => format!(", {}", self.settings.part.unwrap_or_default()),
            None => String::new(),
        };
        format!(
            "generated: {}{part}, seed {}",
            self.profile, self.settings.seed
        )
    }
}

impl Requests for Generator {
    fn next_batch(&mut self, batch: &mut Vec<Request>) -> Result<bool, TraceError> {
        batch.clear();
        while batch.len() < BATCH && self.left > 0 {
            match self.source.next() {
                Some(request) if request.at < self.until => {
                    self.left -= 1;
                    self.at = request.at;
                    batch.push(request);
                }
                _ => self.left = 0,
            }
        }
        Ok(!batch.is_empty())
    }
}

/// What a profile is made by.
fn source(profile: Profile, settings: &Settings) -> Box<dyn Source> {
    match (profile.shape(), profile) {
        (Some(shape), _) => Box::new(Tiering::new(
            shape,
            settings.seed,
            settings.part.unwrap_or_default(),
        )),
        (None, Profile::Drifting) => Box::new(Drifting::new(settings)),
        (None, Profile::Db) => Box::new(Database::new(settings)),
        (None, _) => Box::new(Plain::new(profile, settings)),
    }
}

/// The hot spots that a tiering profile's trace was made from, in order of their beginning, with times in
/// that trace; empty for other profiles.
pub fn hot_spots(profile: Profile, seed: u64, part: Part) -> Vec<HotSpot> {
    match profile.shape() {
        Some(shape) => tiering::hot_spots(shape, seed, part),
        None => Vec::new(),
    }
}
