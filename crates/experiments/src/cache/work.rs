//! The workloads of the cache experiment, and the time and energy that each took.
//!
//! ```text
//! streams   1 GiB in 128 KiB requests; reads one ahead, writes one by one, a flush at the end
//! random    1,000 pages of 4 KiB within 10 GiB, one by one
//! days      see `day`
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
pub const PAGE: Bytes = Bytes::kib(4);
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
pub struct Watch {
    meter: Meter,
    begun: Instant,
    joules: f64,
}

impl Watch {
    pub fn start(meter: &Meter) -> Watch {
        Watch {
            meter: meter.clone(),
            begun: env::now(),
            joules: meter.joules(),
        }
    }

    /// Since the start.
    pub fn look(&self) -> Sample {
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
