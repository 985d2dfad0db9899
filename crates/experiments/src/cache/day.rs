//! Days with idle stretches: bursts of small requests while a machine is used, a log all day long.
//!
//! ```text
//! rhythm: when, how often, which files, the log -> two days, the second measured -> energy, spin-ups, answers
//! ```
//!
//! The times of energy mode were chosen on the first rhythm; the others were written down before any of them ran, and none
//! was changed since.
//!
//! Choice: an office machine; a recorder that plays for the evening; a builder that works at night on more than the SSD
//! holds; a server of mail that is never idle for long, on which sleeping can hardly pay.
//!
//! Always true: bursts and log writes are due at the same moments whatever stands below, and a day has 24 hours.

use std::rc::Rc;

use base::{Buf, Bytes, Instant, Nanos, Sector};
use device::{Class, Device, DeviceError, WriteFlags};
use env::Rng;
use report::Evidence;
use serde::{Deserialize, Serialize};

use super::bed::{Bed, Setup};
use super::trouble::Trouble;
use super::work::{PAGE, Sample, Watch};

/// A day.
const DAY: Nanos = Nanos::secs(24 * 3600);
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
    /// From and to, in minutes of the day.
    works: &'static [(u64, u64)],
    /// Mean seconds from one burst to the next meanwhile.
    gap: f64,
    /// The share of bursts that read.
    reads: f64,
    files: Files,
    /// The log is written so often, day and night.
    log: Nanos,
}

/// The data that are used.
#[derive(Debug, PartialEq)]
struct Files {
    /// All of them.
    all: Bytes,
    /// One of them.
    one: Bytes,
    /// How much more often the popular ones: a number from 0 to 1 to this power says which.
    skew: i32,
    /// Sizes of requests, each as likely.
    requests: [Bytes; 4],
    /// Read on where the last burst ended.
    goes_on: bool,
}

/// Every day that is measured.
pub static DAYS: [Rhythm; 4] = [
    Rhythm {
        name: "day",
        evidence: Evidence::Calibrated,
        works: &[
            (540, 570),
            (600, 630),
            (660, 690),
            (780, 810),
            (840, 870),
            (900, 930),
            (960, 990),
            (1020, 1050),
        ],
        gap: 4.0,
        reads: 0.7,
        files: Files {
            all: Bytes::gib(4),
            one: Bytes::kib(512),
            skew: 4,
            requests: [Bytes::kib(4), Bytes::kib(4), Bytes::kib(16), Bytes::kib(64)],
            goes_on: false,
        },
        log: Nanos::secs(600),
    },
    Rhythm {
        name: "day of a recorder",
        evidence: Evidence::HeldOut,
        works: &[(1080, 1380)],
        gap: 4.0,
        reads: 1.0,
        files: Files {
            all: Bytes::gib(64),
            one: Bytes::gib(1),
            skew: 1,
            requests: [Bytes::kib(256); 4],
            goes_on: true,
        },
        log: Nanos::secs(3600),
    },
    Rhythm {
        name: "day of a builder",
        evidence: Evidence::HeldOut,
        works: &[(0, 10), (180, 190), (360, 370), (720, 730), (1200, 1210)],
        gap: 0.5,
        reads: 0.4,
        files: Files {
            all: Bytes::gib(64),
            one: Bytes::mib(1),
            skew: 2,
            requests: [
                Bytes::kib(4),
                Bytes::kib(16),
                Bytes::kib(64),
                Bytes::kib(128),
            ],
            goes_on: false,
        },
        log: Nanos::secs(120),
    },
    Rhythm {
        name: "day of a mail server",
        evidence: Evidence::HeldOut,
        works: &[(0, 1439)],
        gap: 60.0,
        reads: 0.5,
        files: Files {
            all: Bytes::gib(16),
            one: Bytes::kib(256),
            skew: 3,
            requests: [Bytes::kib(4), Bytes::kib(4), Bytes::kib(8), Bytes::kib(32)],
            goes_on: false,
        },
        log: Nanos::secs(300),
    },
];

/// What the SSD holds.
const SSD: Bytes = Bytes(32_000_000_000);

impl Rhythm {
    /// Are its files more than the SSD alone holds?
    pub fn needs_disk(&self) -> bool {
        self.files.all > SSD
    }

    /// What stands behind a figure of `method`: the times of energy mode alone were chosen on the first day.
    pub fn evidence_of(&self, method: &str) -> Evidence {
        match self.evidence {
            Evidence::Calibrated if !method.contains("energy") => Evidence::Measured,
            evidence => evidence,
        }
    }
}

/// What a day took.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Day {
    /// Time and energy.
    pub sample: Sample,
    /// Requests answered, the log's not among them.
    pub requests: u64,
    /// Mean time to answer one, in milliseconds.
    pub mean_ms: f64,
    /// The longest, in seconds.
    pub longest_s: f64,
    /// How often the spindle was spun up.
    pub spin_ups: u64,
}

/// Two days; the second is measured. The first one warms the cache, as the day before did. Bursts are `thinned` so many
/// times further apart.
pub async fn day(
    rhythm: &'static Rhythm,
    setup: &Setup,
    thinned: f64,
    seed: u64,
) -> Result<Day, Trouble> {
    let bed = setup.build(PAGE, true, seed).await?;
    one_day(rhythm, thinned, &bed).await?;
    let before = bed.meter.spin_ups();
    let watch = Watch::start(&bed.meter);
    let answers = one_day(rhythm, thinned, &bed).await?;
    let sample = watch.look();
    // A request that is due at the end of it may be answered behind midnight.
    assert!((sample.seconds - DAY.secs_f64()).abs() < 60.0, "{sample:?}");
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
async fn one_day(rhythm: &'static Rhythm, thinned: f64, bed: &Bed) -> Result<Answers, DeviceError> {
    let midnight = env::now();
    let log = keep_log(rhythm, midnight, Rc::clone(&bed.target));
    let log = env::spawn(log);
    let mut rng = env::rng("day");
    let mut answers = Answers::default();
    // Where the file that is read on ends in it.
    let mut at = 0;
    for (from, to) in rhythm.works {
        let minute = |minute: &u64| midnight + Nanos::secs(minute * 60);
        let mut due = minute(from);
        while due < minute(to) {
            env::sleep_until(due).await;
            at = burst(&*bed.target, rhythm, at, &mut rng, &mut answers).await?;
            let gap = -rhythm.gap * thinned * (1.0 - rng.unit()).ln();
            due = due + Nanos::from_secs_f64(gap);
        }
    }
    log.await?;
    env::sleep_until(midnight + DAY).await;
    Ok(answers)
}

/// A few requests one after the other of one file; popular files far more often. Where the last one ended.
async fn burst(
    target: &dyn Device,
    rhythm: &Rhythm,
    before: u64,
    rng: &mut Rng,
    answers: &mut Answers,
) -> Result<u64, DeviceError> {
    let files = &rhythm.files;
    let mut at = match files.goes_on && !before.is_multiple_of(files.one.0) {
        true => before,
        false => files.begin(rng),
    };
    let reads = rng.chance(rhythm.reads);
    for _ in 0..=rng.below(BURST_MAX) {
        let len = files.requests[rng.below(4) as usize];
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
        if files.goes_on && at.is_multiple_of(files.one.0) {
            break;
        }
    }
    Ok(at)
}

impl Files {
    /// Where a burst begins that does not go on.
    fn begin(&self, rng: &mut Rng) -> u64 {
        let count = self.all.0 / self.one.0;
        let popular = (rng.unit().powi(self.skew) * count as f64) as u64;
        // Popular files lie anywhere, not side by side.
        let file = popular.wrapping_mul(0x9e37_79b1) % count;
        let begin = file * self.one.0;
        match self.goes_on {
            true => begin,
            false => begin + rng.below(16) * Bytes::kib(4).0,
        }
    }
}

/// A log grows behind the files.
async fn keep_log(
    rhythm: &'static Rhythm,
    midnight: Instant,
    target: Rc<dyn Device>,
) -> Result<(), DeviceError> {
    let mut at = rhythm.files.all.0;
    for n in 1..DAY.0 / rhythm.log.0 {
        env::sleep_until(midnight + Nanos(n * rhythm.log.0)).await;
        let data = Buf::zeroed(LOG_WRITE.usize()).freeze();
        target
            .write(Sector::containing(at), data, WriteFlags::default())
            .await?;
        target.flush().await?;
        at += LOG_WRITE.0;
    }
    Ok(())
}
