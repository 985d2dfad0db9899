//! What would `tanada serve` do? The best candidates through the engine, in virtual time.
//!
//! ```text
//! end of the trace: | warm-up | measured |
//!      -> slow device alone                                   -> Alone
//!      -> candidate, default settings                         -> a row with the sequential bypass
//!      -> the same but for sequential_bypass = "off"          -> a row without it
//! ```
//!
//! Always true: rows that were replayed take the place of the model's, two for one.

use base::Bytes;
use hybrid::Settings;
use rayon::prelude::*;

use super::{Alone, By, Candidate, Options, days};
use crate::run::{Layout, Made, Modelled, Outcome, Replay, RunError, Stack, WarmUp, run};
use trace::{Request, Requests, TraceError};

/// Replays the end of a trace.
pub(super) struct Engine<'a> {
    pub options: &'a Options,
    /// From time zero on.
    pub tail: &'a [Request],
    /// So many of it only warm up.
    pub warm_up: usize,
    pub layout: &'a Layout,
}

struct Tail<'a>(&'a [Request]);

impl Requests for Tail<'_> {
    fn next_batch(&mut self, batch: &mut Vec<Request>) -> Result<bool, TraceError> {
        let (now, later) = self.0.split_at(self.0.len().min(4096));
        batch.clear();
        batch.extend_from_slice(now);
        self.0 = later;
        Ok(!batch.is_empty())
    }
}

const SLOW: &str = "slow";
const FAST: &str = "fast";
const VOLUME: &str = "volume";

/// Means of all, of reads and of writes; flushes and discards are not what is compared.
pub(super) fn means(outcome: &Outcome) -> [f64; 3] {
    let [reads, writes] = ["read", "write"].map(|op| {
        let response = outcome.response(op);
        response.map_or((0.0, 0.0), |one| (one.requests as f64, one.mean_us))
    });
    let all = (reads.0 * reads.1 + writes.0 * writes.1) / (reads.0 + writes.0).max(1.0);
    [all, reads.1, writes.1]
}

pub(super) fn slow_requests(outcome: &Outcome) -> u64 {
    let slow = outcome.devices.iter().find(|device| device.name == SLOW);
    slow.map_or(0, |slow| slow.read.requests + slow.written.requests)
}

/// Bytes that the cache wrote to the fast device, a day.
pub(super) fn flash_per_day(outcome: &Outcome) -> f64 {
    let cache = outcome.caches.iter().find(|cache| cache.name == VOLUME);
    let flash = cache.map_or(0, |cache| cache.flash_data_bytes + cache.flash_ledger_bytes);
    flash as f64 / days((outcome.speed.trace_seconds * 1e9) as u64)
}

impl Engine<'_> {
    fn run(&self, stack: &Stack) -> Result<Outcome, RunError> {
        let replay = Replay {
            warm_up: match self.warm_up {
                0 => WarmUp::None,
                some => WarmUp::Requests(some as u64),
            },
            layout: self.layout.clone(),
            seed: self.options.seed,
            ..Replay::default()
        };
        run(stack, &mut Tail(self.tail), &replay)
    }

    /// The slow device, which the layout has grown where the trace needs it.
    fn bare(&self) -> Stack {
        Stack::bare(SLOW, &self.options.slow, self.options.slow.size)
    }

    pub fn alone(&self) -> Result<Alone, RunError> {
        let outcome = self.run(&self.bare())?;
        let [response_us_mean, read_us_mean, write_us_mean] = means(&outcome);
        Ok(Alone {
            response_us_mean,
            read_us_mean,
            write_us_mean,
            slow_requests: slow_requests(&outcome),
            watts: outcome.energy.watts,
        })
    }

    /// What the engine does with `settings`, which say how much of the fast device is used.
    pub fn outcome(&self, settings: Settings) -> Result<Outcome, RunError> {
        self.run(&self.made(settings))
    }

    /// The slow device with a fast one as `settings` say.
    fn made(&self, settings: Settings) -> Stack {
        let mut stack = self.bare();
        // The ledger needs room of its own, by the size of both devices.
        let slow = self.options.slow.size.max(self.layout.needed());
        let used = settings.fast_bytes.unwrap_or(self.options.fast.size);
        let least = used.0 / 8 * 9 + slow.0 / 4096 + (64 << 20);
        let size = Bytes(least.next_multiple_of(1 << 20)).max(self.options.fast.size);
        stack.devices.push(Modelled {
            name: FAST.to_owned(),
            spec: self.options.fast.clone(),
            size,
        });
        stack.name = format!("{} of {}", settings.policy, used);
        stack.hybrids.push(Made {
            settings: Settings {
                name: VOLUME.to_owned(),
                ..settings
            },
            slow: SLOW.to_owned(),
            fast: FAST.to_owned(),
        });
        stack.volume = VOLUME.to_owned();
        stack
    }

    /// `one` with other settings than the default where it says so, and with `bypass`.
    fn stack(&self, one: &Candidate, bypass: Option<Bytes>) -> Stack {
        let words = "a candidate's words are those of its policy and mode";
        self.made(Settings {
            policy: one.policy.parse().expect(words),
            write: one.write.parse().expect(words),
            sequential_bypass: bypass,
            fast_bytes: Some(Bytes(one.size_bytes)),
            ..Settings::default()
        })
    }

    fn row(
        &self,
        alone: &Alone,
        one: &Candidate,
        bypass: Option<Bytes>,
    ) -> Result<Candidate, RunError> {
        let outcome = self.run(&self.stack(one, bypass))?;
        let [response_us_mean, read_us_mean, write_us_mean] = means(&outcome);
        let slow_requests = slow_requests(&outcome);
        let cache = outcome.caches.iter().find(|cache| cache.name == VOLUME);
        let per_day = flash_per_day(&outcome);
        Ok(Candidate {
            sequential_bypass_bytes: bypass.map(|bypass| bypass.0),
            by: By::Engine,
            read_hit_ratio: cache
                .and_then(|cache| cache.request_hit_share)
                .unwrap_or(1.0),
            response_us_mean,
            read_us_mean,
            write_us_mean,
            slow_requests,
            slow_requests_saved: 1.0 - slow_requests as f64 / (alone.slow_requests as f64).max(1.0),
            flash_bytes_per_day: per_day,
            device_writes_per_day: per_day / one.size_bytes.max(self.options.fast.size.0) as f64,
            watts: outcome.energy.watts,
            ..one.clone()
        })
    }

    /// `candidates` with those that `list` names replayed; `done` is called after each replay.
    pub fn replace(
        &self,
        alone: &Alone,
        candidates: Vec<Candidate>,
        list: &[usize],
        done: &(dyn Fn() + Sync),
    ) -> Result<Vec<Candidate>, RunError> {
        let bypasses = [Settings::default().sequential_bypass, None];
        let rows: Result<Vec<Vec<Candidate>>, RunError> = candidates
            .into_par_iter()
            .enumerate()
            .map(|(at, one)| {
                if !list.contains(&at) {
                    return Ok(vec![one]);
                }
                let replayed = bypasses.par_iter().map(|bypass| {
                    let row = self.row(alone, &one, *bypass);
                    done();
                    row
                });
                replayed.collect()
            })
            .collect();
        Ok(rows?.into_iter().flatten().collect())
    }
}
