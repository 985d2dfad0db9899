//! A run in virtual time: hybrids by the simulator, stores and volumes by the engines it has no stacks for.

use base::Nanos;
use sim::run::{Outcome, Replay};
use trace::{Request, Requests, TraceError};

use super::cases::{Bed, Case, Extent};
use super::common::Trouble;
use super::sample::{Count, Sample, times};
use super::setup::Disks;
use super::{store, volume};

/// The requests of a case, as a trace.
struct Given<'a>(&'a [Request]);

impl Requests for Given<'_> {
    fn next_batch(&mut self, batch: &mut Vec<Request>) -> Result<bool, TraceError> {
        batch.clear();
        batch.extend(std::mem::take(&mut self.0));
        Ok(!batch.is_empty())
    }
}

/// Runs `case`; `seed` is where its devices' chance begins.
///
/// # Errors
/// The engine's or a device's, in words.
pub(super) fn run(
    case: &Case,
    requests: &[Request],
    extent: &Extent,
    seed: u64,
) -> Result<Sample, Trouble> {
    match case.bed {
        Bed::Hybrid(disks) => hybrid(&disks, requests, seed),
        Bed::Volume => volume::run(requests, extent, seed),
        Bed::Store => store::run(requests, extent, seed),
    }
}

fn hybrid(disks: &Disks, requests: &[Request], seed: u64) -> Result<Sample, Trouble> {
    let stack = disks.stack().map_err(|error| error.to_string())?;
    let replay = Replay {
        seed,
        // As many as a server takes of one connection; more wait outside, in their order, on both sides.
        under_way_max: front::nbd::Limits::default().requests_per_connection,
        // A point a minute: the series is not looked at.
        interval: Some(Nanos::secs(60)),
        ..Replay::default()
    };
    let outcome = sim::run::run(&stack, &mut Given(requests), &replay);
    Ok(sample(&outcome.map_err(|error| error.to_string())?)?)
}

fn sample(outcome: &Outcome) -> Result<Sample, String> {
    let response = outcome.response("all").ok_or("nothing was answered")?;
    let mut counts = Vec::new();
    for device in &outcome.devices {
        let name = &device.name;
        counts.push(Count::new(&format!("{name}_read"), device.read.bytes));
        counts.push(Count::new(&format!("{name}_written"), device.written.bytes));
    }
    let hits = outcome.caches.iter().map(|cache| cache.hit_bytes).sum();
    counts.push(Count::new("hit", hits));
    Ok(Sample {
        requests: response.requests,
        times: times(response),
        counts,
        floor: None,
    })
}
