//! The workloads of the cache experiment, and the time and energy that each took.
//!
//! ```text
//! streams   1 GiB in 128 KiB requests; reads one ahead, writes one by one, a flush at the end
//! random    1,000 pages of 4 KiB within 10 GiB, one by one
//! day       24 hours: bursts of small requests in working hours, a log all day long
//! ```
//!
//! Source: DMSSD 6.1.
//!
//! Choice: the paper reads and writes files on ext3; we send what such a file system sends. Linux of 2.6.31
//! reads ahead by 128 KiB and asks for the next piece when a program begins the last one: two requests at a
//! time. Mounted `sync`, a program waits for each write: one request at a time; ext3 of that day sent no
//! flush with it (`barrier=0`), we send one at the end. A read of 1 KB fetches its page of 4 KiB. The page
//! cache is cold (a reread reaches the device); the file system's own blocks and journal are left out.
//!
//! Choice: file and range lie in the first 10 GiB, where a fresh file system puts them; the seed says where.
//! Two minutes of rest lie between a case and its repetition, after a few reads elsewhere on the disk: what
//! the disk's own small buffer holds is not what is measured.

use std::collections::VecDeque;
use std::rc::Rc;

use base::{Buf, Bytes, Instant, Nanos, Sector, View};
use device::{Class, Device, DeviceError, WriteFlags};
use env::Rng;
use serde::{Deserialize, Serialize};

use super::bed::{Bed, Meter, Setup};
use super::trouble::Trouble;

/// One request of a stream.
pub const REQUEST: Bytes = Bytes::kib(128);
/// Reads under way at once: the one waited for and the one ahead.
const READS_AHEAD: usize = 2;
/// The part of the disk that is used.
const RANGE: Bytes = Bytes::gib(10);
/// One small read.
const PAGE: Bytes = Bytes::kib(4);
const RANDOM_READS: usize = 1_000;
/// Rest between a case and its repetition.
const REST: Nanos = Nanos::secs(120);

/// What one case took.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Sample {
    /// Time, in seconds.
    pub seconds: f64,
    /// Energy of all devices, in joules.
    pub joules: f64,
}

impl Sample {
    /// Mean power of all devices, in watts.
    pub fn watts(&self) -> f64 {
        self.joules / self.seconds
    }

    /// One after the other.
    pub fn then(self, next: Sample) -> Sample {
        Sample {
            seconds: self.seconds + next.seconds,
            joules: self.joules + next.joules,
        }
    }

    /// What it takes beyond `head`, `times` over.
    pub fn rest_times(self, head: Sample, times: f64) -> Sample {
        Sample {
            seconds: (self.seconds - head.seconds) * times,
            joules: (self.joules - head.joules) * times,
        }
    }
}

/// Reads the meters now and again.
#[derive(Clone)]
struct Watch {
    meter: Meter,
    begun: Instant,
    joules: f64,
}

impl Watch {
    fn start(meter: &Meter) -> Watch {
        Watch {
            meter: meter.clone(),
            begun: env::now(),
            joules: meter.joules(),
        }
    }

    /// Since the start.
    fn look(&self) -> Sample {
        Sample {
            seconds: env::now().since(self.begun).secs_f64(),
            joules: self.meter.joules() - self.joules,
        }
    }
}

/// How much of a case is its beginning: heads that were parked, a spindle at rest.
pub const HEAD: Bytes = Bytes::mib(1);

/// A case, and what its first [`HEAD`] took.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Run {
    /// The beginning.
    pub head: Sample,
    /// All of it.
    pub whole: Sample,
}

/// A case and its repetition.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Twice {
    /// The first time.
    pub first: Run,
    /// Once more.
    pub again: Run,
    /// To destage, then, what only the cache holds; the beginning is to wake the disk if it sleeps.
    pub destage: Run,
}

async fn twice<F>(bed: Bed, mut work: impl FnMut(Watch) -> F) -> Result<Twice, Trouble>
where
    F: Future<Output = Result<Run, DeviceError>>,
{
    let first = work(Watch::start(&bed.meter)).await?;
    bed.use_disk_elsewhere().await?;
    env::sleep(REST).await;
    let again = work(Watch::start(&bed.meter)).await?;
    drop(work);
    let watch = Watch::start(&bed.meter);
    bed.use_disk_elsewhere().await?;
    let head = watch.look();
    bed.destage_all().await?;
    let whole = watch.look();
    Ok(Twice {
        first,
        again,
        destage: Run { head, whole },
    })
}

/// Where a file of `len` lies.
fn place(rng: &mut Rng, len: Bytes) -> u64 {
    let places = (RANGE.0 - len.0) / REQUEST.0 + 1;
    rng.below(places) * REQUEST.0
}

/// Reads a file of `len` from one end to the other, twice.
pub async fn reads(setup: &Setup, len: Bytes, seed: u64) -> Result<Twice, Trouble> {
    let bed = setup.build(REQUEST, false, seed).await?;
    let from = place(&mut env::rng("file"), len);
    let target = Rc::clone(&bed.target);
    twice(bed, move |watch| {
        read_stream(Rc::clone(&target), from, len, watch)
    })
    .await
}

async fn read_stream(
    target: Rc<dyn Device>,
    from: u64,
    len: Bytes,
    watch: Watch,
) -> Result<Run, DeviceError> {
    let mut head = Sample::default();
    let mut under_way = VecDeque::with_capacity(READS_AHEAD);
    for n in 0..len.0 / REQUEST.0 {
        if n == HEAD.0 / REQUEST.0 {
            for rest in under_way.drain(..) {
                finish(rest).await?;
            }
            head = watch.look();
        }
        if under_way.len() == READS_AHEAD
            && let Some(oldest) = under_way.pop_front()
        {
            finish(oldest).await?;
        }
        let at = Sector::containing(from + n * REQUEST.0);
        let target = Rc::clone(&target);
        under_way.push_back(env::spawn(async move {
            let buf = Buf::for_read(REQUEST.usize());
            target.read(at, buf, Class::Foreground).await
        }));
    }
    for rest in under_way {
        finish(rest).await?;
    }
    let whole = watch.look();
    Ok(Run { head, whole })
}

async fn finish(read: env::Task<Result<Buf, DeviceError>>) -> Result<(), DeviceError> {
    read.await.map(drop)
}

/// Writes a file of `len` from one end to the other, twice.
pub async fn writes(setup: &Setup, len: Bytes, seed: u64) -> Result<Twice, Trouble> {
    let bed = setup.build(REQUEST, false, seed).await?;
    let from = place(&mut env::rng("file"), len);
    let target = Rc::clone(&bed.target);
    let mut data = Buf::zeroed(REQUEST.usize());
    env::rng("data").fill(&mut data);
    let data = data.freeze();
    twice(bed, move |watch| {
        write_stream(Rc::clone(&target), from, len, data.clone(), watch)
    })
    .await
}

async fn write_stream(
    target: Rc<dyn Device>,
    from: u64,
    len: Bytes,
    data: View,
    watch: Watch,
) -> Result<Run, DeviceError> {
    let mut head = Sample::default();
    for n in 0..len.0 / REQUEST.0 {
        if n == HEAD.0 / REQUEST.0 {
            head = watch.look();
        }
        let at = Sector::containing(from + n * REQUEST.0);
        target
            .write(at, data.clone(), WriteFlags::default())
            .await?;
    }
    target.flush().await?;
    let whole = watch.look();
    Ok(Run { head, whole })
}

/// Reads pages here and there, the same ones twice.
pub async fn random(setup: &Setup, seed: u64) -> Result<Twice, Trouble> {
    let bed = setup.build(PAGE, false, seed).await?;
    let mut rng = env::rng("places");
    let places: Rc<Vec<u64>> = Rc::new(
        (0..RANDOM_READS)
            .map(|_| rng.below(RANGE.0 / PAGE.0) * PAGE.0)
            .collect(),
    );
    let target = Rc::clone(&bed.target);
    twice(bed, move |watch| {
        read_places(Rc::clone(&target), Rc::clone(&places), watch)
    })
    .await
}

async fn read_places(
    target: Rc<dyn Device>,
    places: Rc<Vec<u64>>,
    watch: Watch,
) -> Result<Run, DeviceError> {
    for at in places.iter() {
        let buf = Buf::for_read(PAGE.usize());
        target
            .read(Sector::containing(*at), buf, Class::Foreground)
            .await?;
    }
    let whole = watch.look();
    Ok(Run {
        head: Sample::default(),
        whole,
    })
}

// --- the day --------------------------------------------------------------------------------------

/// A day.
const DAY: Nanos = Nanos::secs(24 * 3600);
/// The data of an office machine that are used at all.
const WORKING_SET: Bytes = Bytes::gib(4);
/// A log writes this much ...
const LOG_WRITE: Bytes = Bytes::kib(16);
/// ... this often, day and night, and flushes it.
const LOG_PERIOD: Nanos = Nanos::secs(600);
/// Mean time between two bursts while the user works.
const BURST_GAP: f64 = 4.0;
/// Requests of one burst at most.
const BURST_MAX: u64 = 8;

/// What a day took.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Day {
    /// Time and energy.
    pub sample: Sample,
    /// Requests of the person at work.
    pub requests: u64,
    /// Mean time to answer one, in milliseconds.
    pub mean_ms: f64,
    /// The longest, in seconds.
    pub longest_s: f64,
    /// How often the spindle was spun up.
    pub spin_ups: u64,
}

/// Two days; the second is measured. The first one warms the cache, as the day before did.
pub async fn day(setup: &Setup, seed: u64) -> Result<Day, Trouble> {
    let bed = setup.build(PAGE, true, seed).await?;
    one_day(&bed).await?;
    let before = bed.meter.spin_ups();
    let watch = Watch::start(&bed.meter);
    let answers = one_day(&bed).await?;
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

/// From midnight to midnight. The user works from 9 to 12 and from 13 to 18, the first half of each hour.
async fn one_day(bed: &Bed) -> Result<Answers, DeviceError> {
    let midnight = env::now();
    let log = env::spawn(keep_log(Rc::clone(&bed.target)));
    let mut rng = env::rng("day");
    let mut answers = Answers::default();
    for hour in (9..12).chain(13..18) {
        let begin = midnight + Nanos::secs(hour * 3600);
        let end = begin + Nanos::secs(1800);
        env::sleep_until(begin).await;
        while env::now() < end {
            burst(&*bed.target, &mut rng, &mut answers).await?;
            let gap = -BURST_GAP * (1.0 - rng.unit()).ln();
            env::sleep(Nanos::from_secs_f64(gap)).await;
        }
    }
    log.await?;
    env::sleep_until(midnight + DAY).await;
    Ok(answers)
}

/// A few requests side by side of one file: 70 % reads, of 4 to 64 KiB; popular files far more often.
async fn burst(
    target: &dyn Device,
    rng: &mut Rng,
    answers: &mut Answers,
) -> Result<(), DeviceError> {
    let files = WORKING_SET.0 / Bytes::kib(512).0;
    let popular = (rng.unit().powi(4) * files as f64) as u64;
    // Popular files lie anywhere, not side by side.
    let file = popular.wrapping_mul(0x9e37_79b1) % files;
    let mut at = file * Bytes::kib(512).0 + rng.below(16) * Bytes::kib(4).0;
    let reads = rng.chance(0.7);
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
async fn keep_log(target: Rc<dyn Device>) -> Result<(), DeviceError> {
    let periods = DAY.0 / LOG_PERIOD.0;
    let mut at = WORKING_SET.0;
    for _ in 1..periods {
        env::sleep(LOG_PERIOD).await;
        let data = Buf::zeroed(LOG_WRITE.usize()).freeze();
        target
            .write(Sector::containing(at), data, WriteFlags::default())
            .await?;
        target.flush().await?;
        at += LOG_WRITE.0;
    }
    Ok(())
}
