//! Two small devices, what is on them, and short forms.

use std::future::Future;
use std::rc::Rc;

use base::{Buf, Bytes, PAGE, Sector, Span};
use device::{Class, Device, DeviceExt, Memory, WriteFlags};
use env::Runtime;
use hybrid::{Admission, Hybrid, Settings, Status, Ties, WriteMode};

/// No whole number of pages, and more than three regions of 4 MiB.
pub const SLOW: Bytes = Bytes((14 << 20) + 3 * 512);
pub const FAST: Bytes = Bytes::mib(2);

pub fn run<T: 'static>(seed: u64, test: impl Future<Output = T> + 'static) -> T {
    Runtime::simulated(seed).block_on(test)
}

/// Everything read is kept, and no stream goes past.
pub fn keep_all() -> Settings {
    Settings {
        name: "vol0".to_owned(),
        admission: Admission::Always,
        sequential_bypass: None,
        ..Settings::default()
    }
}

/// As [`keep_all`], and the cleaner leaves dirty pages where they are for a moment.
pub fn keep_dirty() -> Settings {
    Settings {
        dirty_low: 90,
        dirty_high: 95,
        ..keep_all()
    }
}

/// As [`keep_all`], in write mode `write`.
pub fn writing(write: WriteMode) -> Settings {
    Settings {
        write,
        ..keep_all()
    }
}

/// A slow device with contents of its own, and a blank fast one.
pub fn devices() -> (Rc<Memory>, Rc<Memory>) {
    let slow = Memory::new("hdd0", SLOW);
    slow.load(Sector(0), &noise(7, SLOW));
    (slow, Memory::new("ssd0", FAST))
}

/// A disk of the two.
pub async fn make(settings: Settings, slow: Rc<dyn Device>, fast: Rc<dyn Device>) -> Hybrid {
    let made = Hybrid::create(settings, slow, fast, Ties::default()).await;
    made.unwrap_or_else(|error| panic!("two fitting devices make a disk: {error}"))
}

/// Random bytes, of no pattern a bug could make up.
pub fn noise(seed: u64, len: Bytes) -> Vec<u8> {
    let mut bytes = vec![0; len.usize()];
    env::Rng::from_seed(seed).fill(&mut bytes);
    bytes
}

pub fn pages(first: u64, count: u64) -> Span {
    Span::bytes(first * PAGE as u64, count * PAGE as u64)
}

/// `span` filled with `fill`.
pub async fn put(disk: &dyn Device, span: Span, fill: u8) {
    let data = crate::twin::filled(fill, span.len);
    let wrote = disk.write(span.start, data, WriteFlags::default()).await;
    wrote.unwrap_or_else(|error| panic!("{span}: {error}"));
}

pub async fn get(disk: &dyn Device, span: Span) -> Buf {
    let read = disk.read_at(span.start, span.len).await;
    read.unwrap_or_else(|error| panic!("{span}: {error}"))
}

/// Does all of `span` read as `fill`?
pub async fn reads_as(disk: &dyn Device, span: Span, fill: u8) -> bool {
    get(disk, span).await.iter().all(|byte| *byte == fill)
}

/// The whole device.
pub async fn everything(disk: &dyn Device) -> Vec<u8> {
    let mut bytes = Vec::new();
    let size = disk.info().size.0;
    for at in (0..size).step_by(1 << 20) {
        let span = Span::bytes(at, (size - at).min(1 << 20));
        bytes.extend_from_slice(&get(disk, span).await);
    }
    bytes
}

/// Requests of users answered by the fast device alone, and those that needed the slow one.
pub fn hits_and_misses(status: &Status) -> (u64, u64) {
    let reads = status.requests.reads();
    (
        reads.requests_fast,
        reads.requests_slow + reads.requests_both,
    )
}

/// Reads that no user waits for.
pub async fn read_in_background(disk: &dyn Device, span: Span) -> Buf {
    let buf = Buf::for_read(span.len.usize());
    let read = disk.read(span.start, buf, Class::Background).await;
    read.unwrap_or_else(|error| panic!("{span}: {error}"))
}
