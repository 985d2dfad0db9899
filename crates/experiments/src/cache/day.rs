//! Days with idle stretches: bursts of small requests in working hours, a log all day long.
//!
//! ```text
//! rhythm: hours, the part of each that is worked, bursts, log -> two days, the second measured -> energy, spin-ups, answers
//! ```
//!
//! The times of energy mode were chosen on the first rhythm; the others were written down before any of them ran, and none
//! was changed since.
//!
//! Choice: an office machine; a recorder that is watched in the evening; a builder that works at night, mostly writes; a
//! server of mail that is never idle for long, on which sleeping can hardly pay.

use std::rc::Rc;

use base::{Buf, Bytes, Nanos, Sector};
use device::{Class, Device, DeviceError, WriteFlags};
use env::Rng;
use report::Evidence;
use serde::{Deserialize, Serialize};

use super::bed::{Bed, Setup};
use super::trouble::Trouble;
use super::work::{PAGE, Sample, Watch};

/// A day.
const DAY: Nanos = Nanos::secs(24 * 3600);
/// The data that are used at all.
const WORKING_SET: Bytes = Bytes::gib(4);
/// A log writes this much, and flushes it.
const LOG_WRITE: Bytes = Bytes::kib(16);
/// Requests of one burst at most.
const BURST_MAX: u64 = 8;

/// When something is asked for, and what.
#[derive(Debug, PartialEq)]
pub struct Rhythm {
    /// Its name in the rows.
    pub name: &'static str,
    pub evidence: Evidence,
    /// From and to: hours of the day at which work begins, one after the other.
    hours: &'static [(u64, u64)],
    /// So long each time.
    works: Nanos,
    /// Mean seconds between two bursts meanwhile.
    gap: f64,
    /// The share of bursts that read.
    reads: f64,
    /// The log is written so often, day and night.
    log: Nanos,
}

/// Every day that is measured.
pub static DAYS: [Rhythm; 4] = [
    Rhythm {
        name: "day",
        evidence: Evidence::Calibrated,
        hours: &[(9, 12), (13, 18)],
        works: Nanos::secs(1800),
        gap: 4.0,
        reads: 0.7,
        log: Nanos::secs(600),
    },
    Rhythm {
        name: "day of a recorder",
        evidence: Evidence::HeldOut,
        hours: &[(18, 23)],
        works: Nanos::secs(3600),
        gap: 30.0,
        reads: 0.95,
        log: Nanos::secs(3600),
    },
    Rhythm {
        name: "day of a builder",
        evidence: Evidence::HeldOut,
        hours: &[(0, 1), (3, 4), (6, 7), (12, 13), (20, 21)],
        works: Nanos::secs(600),
        gap: 0.5,
        reads: 0.4,
        log: Nanos::secs(120),
    },
    Rhythm {
        name: "day of a mail server",
        evidence: Evidence::HeldOut,
        hours: &[(0, 24)],
        works: Nanos::secs(3600),
        gap: 60.0,
        reads: 0.5,
        log: Nanos::secs(300),
    },
];

/// What a day took.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Day {
    /// Time and energy.
    pub sample: Sample,
    /// Requests of those at work.
    pub requests: u64,
    /// Mean time to answer one, in milliseconds.
    pub mean_ms: f64,
    /// The longest, in seconds.
    pub longest_s: f64,
    /// How often the spindle was spun up.
    pub spin_ups: u64,
}

/// Two days; the second is measured. The first one warms the cache, as the day before did.
pub async fn day(rhythm: &Rhythm, setup: &Setup, seed: u64) -> Result<Day, Trouble> {
    let bed = setup.build(PAGE, true, seed).await?;
    one_day(rhythm, &bed).await?;
    let before = bed.meter.spin_ups();
    let watch = Watch::start(&bed.meter);
    let answers = one_day(rhythm, &bed).await?;
    let sample = watch.look();
    let mean_s = answers.sum_s / answers.count as f64;
    Ok(Day {
        sample,
        requests: answers.count,
        mean_ms: mean_s * 1e3,
        longest_s: answers.longest_s,
        spin_ups: bed.meter.spin_ups() - before,
    })
}

/// How long answers took.
#[derive(Default)]
struct Answers {
    count: u64,
    sum_s: f64,
    longest_s: f64,
}

/// From midnight to midnight.
async fn one_day(rhythm: &Rhythm, bed: &Bed) -> Result<Answers, DeviceError> {
    let midnight = env::now();
    let log = env::spawn(keep_log(rhythm.log, Rc::clone(&bed.target)));
    let mut rng = env::rng("day");
    let mut answers = Answers::default();
    for hour in rhythm.hours.iter().flat_map(|(from, to)| *from..*to) {
        let begin = midnight + Nanos::secs(hour * 3600);
        let end = begin + rhythm.works;
        env::sleep_until(begin).await;
        while env::now() < end {
            burst(&*bed.target, rhythm.reads, &mut rng, &mut answers).await?;
            let gap = -rhythm.gap * (1.0 - rng.unit()).ln();
            env::sleep_until((env::now() + Nanos::from_secs_f64(gap)).min(end)).await;
        }
    }
    log.await?;
    env::sleep_until(midnight + DAY).await;
    Ok(answers)
}

/// A few requests side by side of one file, of 4 to 64 KiB; popular files far more often.
async fn burst(
    target: &dyn Device,
    reads: f64,
    rng: &mut Rng,
    answers: &mut Answers,
) -> Result<(), DeviceError> {
    let files = WORKING_SET.0 / Bytes::kib(512).0;
    let popular = (rng.unit().powi(4) * files as f64) as u64;
    // Popular files lie anywhere, not side by side.
    let file = popular.wrapping_mul(0x9e37_79b1) % files;
    let mut at = file * Bytes::kib(512).0 + rng.below(16) * Bytes::kib(4).0;
    let reads = rng.chance(reads);
    for _ in 0..=rng.below(BURST_MAX) {
        let len = Bytes::kib([4, 4, 16, 64][rng.below(4) as usize]);
        let begun = env::now();
        if reads {
            let buf = Buf::for_read(len.usize());
            target
                .read(Sector::containing(at), buf, Class::Foreground)
                .await?;
        } else {
            let data = Buf::zeroed(len.usize()).freeze();
            target
                .write(Sector::containing(at), data, WriteFlags::default())
                .await?;
        }
        let took = env::now().since(begun).secs_f64();
        answers.count += 1;
        answers.sum_s += took;
        answers.longest_s = answers.longest_s.max(took);
        at += len.0;
    }
    Ok(())
}

/// A log grows behind the working set.
async fn keep_log(period: Nanos, target: Rc<dyn Device>) -> Result<(), DeviceError> {
    let periods = DAY.0 / period.0;
    let mut at = WORKING_SET.0;
    for _ in 1..periods {
        env::sleep(period).await;
        let data = Buf::zeroed(LOG_WRITE.usize()).freeze();
        target
            .write(Sector::containing(at), data, WriteFlags::default())
            .await?;
        target.flush().await?;
        at += LOG_WRITE.0;
    }
    Ok(())
}
