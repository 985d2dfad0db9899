//! One client: when does it ask, and how long did it wait?
//!
//! ```text
//! closed: ask -> answer -> ask -> ...                 latency = answer - asked
//! open:   ask at 0, t, 2t, ... whatever happens       latency = answer - asked, and answer - when it was to be asked
//! ```
//!
//! A client that waits for a slow answer asks less meanwhile, so what it measures leaves out operations that would have come then: coordinated
//! omission. With a rate, every operation has a moment at which it was to begin; the time from that moment is the *intended* latency.
//!
//! Runs in real time against a database, and in virtual time against one that is made up.
//!
//! Source: SCM 4.2.2 (mean latencies of reads and of writes); the name and the cure of coordinated omission are Gil Tene's.
//!
//! Always true:
//! 1. With a rate, an operation that was to begin in the time that counts is counted, however late it came; or the run fails.
//! 2. A run with a failed operation has no result.

use std::future::Future;

use base::{Instant, Nanos};
use hdrhistogram::Histogram;

use super::process::Stop;
use super::work::{Operation, Records, Stream, Workload};

/// The longest latency that is distinguished from a longer one.
const LONGEST: Nanos = Nanos::secs(600);

/// What carries operations out.
pub trait Database {
    /// Carries one out; returns when it is answered.
    ///
    /// # Errors
    /// A sentence if it failed.
    fn execute(&mut self, operation: &Operation) -> impl Future<Output = Result<(), String>>;
}

/// How the database is asked.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// What for.
    pub workload: Workload,
    /// Clients, each with a connection and one operation at a time.
    pub clients: u32,
    /// Operations a second of all clients together (open loop); `None`: each asks as soon as it was answered (closed loop).
    pub rate: Option<f64>,
    /// What counts.
    pub counts: Nanos,
    /// What passes before and does not count.
    pub ramp: Nanos,
    /// Where chance begins; each client goes on from there in its own way.
    pub seed: u64,
}

/// Why a run has no result.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DriveError {
    /// An operation failed.
    #[error("an operation failed: {0}")]
    Operation(String),
    /// The caller wants it to stop.
    #[error("interrupted")]
    Interrupted,
    /// The rate is more than the database does.
    #[error(
        "{rate} operations a second are more than it does: {late} after the end one that was to begin before it had not begun; \
         ask for a lower rate (--rate)"
    )]
    Rate {
        /// What was asked.
        rate: f64,
        /// How long after the end.
        late: Nanos,
    },
}

/// The latencies of one kind of operation.
#[derive(Debug, Clone)]
pub struct Latencies {
    histogram: Histogram<u64>,
    sum: u128,
}

impl Default for Latencies {
    fn default() -> Latencies {
        let histogram = Histogram::new_with_bounds(1, LONGEST.0, 3);
        Latencies {
            histogram: histogram.expect("bounds and digits are possible"),
            sum: 0,
        }
    }
}

impl Latencies {
    fn count(&mut self, latency: Nanos) {
        self.histogram.saturating_record(latency.0.max(1));
        self.sum += u128::from(latency.0);
    }

    fn add(&mut self, other: &Latencies) {
        self.histogram
            .add(&other.histogram)
            .expect("both have the same bounds");
        self.sum += other.sum;
    }

    /// How many.
    pub fn len(&self) -> u64 {
        self.histogram.len()
    }

    /// None?
    pub fn is_empty(&self) -> bool {
        self.histogram.is_empty()
    }

    /// Their mean in us, exact; none of none.
    pub fn mean_us(&self) -> Option<f64> {
        (!self.is_empty()).then(|| self.sum as f64 / self.len() as f64 / 1e3)
    }

    /// The latency that `percent` of them do not exceed, in us, to three digits.
    pub fn percentile_us(&self, percent: f64) -> Option<f64> {
        (!self.is_empty()).then(|| self.histogram.value_at_percentile(percent) as f64 / 1e3)
    }
}

/// What a client, or all of them, saw.
#[derive(Debug, Clone, Default)]
pub struct Measured {
    /// From the moment reads were asked.
    pub reads: Latencies,
    /// From the moment updates were asked.
    pub updates: Latencies,
    /// From the moment reads were to be asked; empty in a closed loop.
    pub reads_intended: Latencies,
    /// From the moment updates were to be asked; empty in a closed loop.
    pub updates_intended: Latencies,
    /// Operations, those that do not count too.
    pub all: u64,
}

impl Measured {
    /// Adds what another client saw.
    pub fn add(&mut self, other: &Measured) {
        self.reads.add(&other.reads);
        self.updates.add(&other.updates);
        self.reads_intended.add(&other.reads_intended);
        self.updates_intended.add(&other.updates_intended);
        self.all += other.all;
    }

    /// Operations that count.
    pub fn operations(&self) -> u64 {
        self.reads.len() + self.updates.len()
    }
}

/// Does what client `number` (from 0) does, until the end of `load`.
///
/// # Errors
/// [`DriveError`]: an operation failed, `stop` was set, or the rate cannot be kept.
pub async fn client<D: Database>(
    database: &mut D,
    load: &Load,
    records: Records,
    number: u32,
    stop: &Stop,
) -> Result<Measured, DriveError> {
    // Neighbouring seeds are mixed by the generator.
    let seed = load.seed.wrapping_mul(1_000_003) + u64::from(number);
    let mut stream = Stream::new(load.workload, records, seed);
    let mut seen = Measured::default();
    let begin = env::now();
    let from = begin + load.ramp;
    let end = from + load.counts;
    // Clients share the rate and take turns.
    let every = load.rate.map(|rate| f64::from(load.clients) * 1e9 / rate);
    let mut turns = 0_u64;
    loop {
        if stop.is_set() {
            return Err(DriveError::Interrupted);
        }
        let due = match every {
            Some(every) => {
                let turn = turns as f64 + f64::from(number) / f64::from(load.clients);
                let due = begin + Nanos((turn * every) as u64);
                if due < end {
                    wait_until(due, stop).await?;
                    too_late(load, end)?;
                }
                due
            }
            None => env::now(),
        };
        if due >= end {
            return Ok(seen);
        }
        turns += 1;
        let operation = stream.draw();
        let asked = env::now();
        let done = database.execute(&operation).await;
        done.map_err(DriveError::Operation)?;
        seen.all += 1;
        if due >= from {
            let (plain, intended) = match operation.reads() {
                true => (&mut seen.reads, &mut seen.reads_intended),
                false => (&mut seen.updates, &mut seen.updates_intended),
            };
            let answered = env::now();
            plain.count(answered.since(asked));
            if every.is_some() {
                intended.count(answered.since(due));
            }
        }
    }
}

/// An operation is asked as long after the end as the time that counts, at most.
fn too_late(load: &Load, end: Instant) -> Result<(), DriveError> {
    let late = env::now().since(end);
    match load.rate {
        Some(rate) if late > load.counts => Err(DriveError::Rate { rate, late }),
        _ => Ok(()),
    }
}

/// Sleeps, but not through an interruption.
async fn wait_until(due: Instant, stop: &Stop) -> Result<(), DriveError> {
    const STEP: Nanos = Nanos::millis(200);
    while env::now() < due {
        if stop.is_set() {
            return Err(DriveError::Interrupted);
        }
        env::sleep_until(due.min(env::now() + STEP)).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers after a fixed time, but stands still for a while once.
    struct Stalls {
        each: Nanos,
        at: Instant,
        stall: Nanos,
        fails_after: u32,
    }

    impl Default for Stalls {
        fn default() -> Stalls {
            Stalls {
                each: Nanos::micros(100),
                at: Instant(u64::MAX),
                stall: Nanos(0),
                fails_after: u32::MAX,
            }
        }
    }

    impl Database for Stalls {
        async fn execute(&mut self, _: &Operation) -> Result<(), String> {
            if self.fails_after == 0 {
                return Err("no such record".to_owned());
            }
            self.fails_after -= 1;
            env::sleep(self.each).await;
            if env::now() >= self.at {
                self.at = Instant(u64::MAX);
                env::sleep(self.stall).await;
            }
            Ok(())
        }
    }

    fn load(rate: Option<f64>) -> Load {
        Load {
            workload: Workload::WorkloadC,
            clients: 1,
            rate,
            counts: Nanos::secs(10),
            ramp: Nanos::secs(1),
            seed: 1,
        }
    }

    fn drive(mut database: Stalls, load: Load, number: u32) -> Result<Measured, DriveError> {
        env::Runtime::simulated(1).block_on(async move {
            let stop = Stop::default();
            client(&mut database, &load, Records::default(), number, &stop).await
        })
    }

    /// Stands still for a second in the middle of ten.
    fn stalling() -> Stalls {
        Stalls {
            at: Instant(5_000_000_000),
            stall: Nanos::secs(1),
            ..Stalls::default()
        }
    }

    #[test]
    fn a_closed_loop_asks_again_at_once_and_leaves_out_who_would_have_waited() {
        let seen = drive(stalling(), load(None), 0).unwrap();
        assert_eq!(seen.reads.len(), 90_000);
        assert!(seen.reads_intended.is_empty() && seen.updates.is_empty());
        // One operation of a second among ninety thousand of 100 us.
        let mean = seen.reads.mean_us().unwrap();
        assert!((mean - 111.1).abs() < 0.1, "{mean}");
        let p99 = seen.reads.percentile_us(99.0).unwrap();
        assert!((p99 - 100.0).abs() < 0.2, "{p99}");
    }

    #[test]
    fn an_open_loop_counts_from_when_an_operation_was_to_begin() {
        let seen = drive(stalling(), load(Some(1_000.0)), 0).unwrap();
        assert_eq!(seen.reads.len(), 10_000, "all that were to begin did");
        // An operation due in the second that was stood still waited half a second on average. A ninth of them more waited
        // until the queue was gone: 1000 and 111 operations in 10 000, mean 0.5 s.
        let plain = seen.reads.mean_us().unwrap();
        let intended = seen.reads_intended.mean_us().unwrap();
        assert!((plain - 200.0).abs() < 1.0, "{plain}");
        assert!((intended - 55_655.0).abs() < 200.0, "{intended}");
        let p99 = |of: &Latencies| of.percentile_us(99.0).unwrap();
        assert!(p99(&seen.reads) < 101.0, "{}", p99(&seen.reads));
        assert!(p99(&seen.reads_intended) > 850_000.0);
    }

    #[test]
    fn a_stall_before_the_time_that_counts_counts_where_it_lasts_into_it() {
        let early = |stall| Stalls {
            at: Instant(100_000_000),
            stall,
            ..Stalls::default()
        };
        let short = drive(early(Nanos::millis(300)), load(Some(1_000.0)), 0).unwrap();
        assert!(short.reads_intended.mean_us().unwrap() < 101.0);
        let long = drive(early(Nanos::secs(1)), load(Some(1_000.0)), 0).unwrap();
        assert!(long.reads_intended.percentile_us(100.0).unwrap() > 90_000.0);
    }

    #[test]
    fn a_rate_that_cannot_be_kept_has_no_result() {
        let slow = Stalls {
            each: Nanos::millis(5),
            ..Stalls::default()
        };
        let error = drive(slow, load(Some(1_000.0)), 0).unwrap_err();
        let DriveError::Rate { rate, late } = &error else {
            panic!("{error}")
        };
        assert!(*rate == 1_000.0 && *late > Nanos::secs(10), "{error}");
        assert!(
            error
                .to_string()
                .starts_with("1000 operations a second are more than it does: 10"),
            "{error}"
        );
    }

    #[test]
    fn a_failed_operation_leaves_no_result() {
        let failing = Stalls {
            fails_after: 100,
            ..Stalls::default()
        };
        let error = drive(failing, load(None), 0).unwrap_err();
        assert_eq!(error.to_string(), "an operation failed: no such record");
    }

    #[test]
    fn clients_share_a_rate_and_take_turns() {
        let shared = Load {
            clients: 4,
            ..load(Some(100.0))
        };
        let mut all = Measured::default();
        for number in 0..4 {
            all.add(&drive(Stalls::default(), shared, number).unwrap());
        }
        assert_eq!(all.operations(), 1_000);
    }

    #[test]
    fn who_is_interrupted_stops_though_its_next_operation_is_far_away() {
        let error = env::Runtime::simulated(1).block_on(async {
            let stop = Stop::default();
            let stopping = stop.clone();
            drop(env::spawn(async move {
                env::sleep(Nanos::secs(2)).await;
                stopping.set();
            }));
            let rarely = Load {
                counts: Nanos::secs(10_000),
                ..load(Some(0.001))
            };
            let mut database = Stalls::default();
            let error = client(&mut database, &rarely, Records::default(), 0, &stop).await;
            assert!(env::now() < Instant(3_000_000_000));
            error.unwrap_err()
        });
        assert_eq!(error, DriveError::Interrupted);
    }
}
