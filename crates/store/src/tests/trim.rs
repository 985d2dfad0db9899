//! Freed room goes back to the device: when, what of it, and what meanwhile? On a real file, and on a device that counts.

use std::cell::{Cell, RefCell};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::rc::Rc;

use base::{Buf, Bytes, Nanos, Sector, Span, View};
use device::{Class, Device, DeviceError, File, FileOptions, Info, Memory, Pending, WriteFlags};

use super::{pattern, sums_hold};
use crate::object::types::Change;
use crate::{Settings, Store};

const MIB: u64 = 1 << 20;
const NEW: Change = Change {
    create: true,
    ..Change::FUA
};

/// Notes each discard, which takes a time of its own.
struct Counting {
    below: Rc<Memory>,
    takes_discards: bool,
    takes: Cell<Nanos>,
    fails: Cell<bool>,
    discards: RefCell<Vec<Span>>,
}

impl Counting {
    fn new(takes_discards: bool) -> Rc<Counting> {
        Rc::new(Counting {
            below: Memory::new("counting", Bytes::mib(16)),
            takes_discards,
            takes: Cell::default(),
            fails: Cell::default(),
            discards: RefCell::default(),
        })
    }

    fn discarded(&self) -> Bytes {
        let spans = self.discards.borrow();
        spans.iter().map(|span| span.len).sum()
    }
}

impl Device for Counting {
    fn info(&self) -> Info {
        Info {
            discards: self.takes_discards,
            ..self.below.info()
        }
    }

    fn read(&self, at: Sector, buf: Buf, class: Class) -> Pending<'_, Buf> {
        self.below.read(at, buf, class)
    }

    fn write(&self, at: Sector, data: View, flags: WriteFlags) -> Pending<'_, ()> {
        self.below.write(at, data, flags)
    }

    fn flush(&self) -> Pending<'_, ()> {
        self.below.flush()
    }

    fn discard(&self, span: Span) -> Pending<'_, ()> {
        Box::pin(async move {
            env::sleep(self.takes.get()).await;
            if self.fails.get() {
                return Err(DeviceError::Gone {
                    device: "counting".to_owned(),
                    op: device::Op::Discard,
                    why: "the test wants it so".to_owned(),
                });
            }
            self.discards.borrow_mut().push(span);
            self.below.discard(span).await
        })
    }

    fn write_zeroes(&self, span: Span, flags: WriteFlags) -> Pending<'_, ()> {
        self.below.write_zeroes(span, flags)
    }
}

fn by_mib() -> Settings {
    Settings {
        unit: Bytes::mib(1),
        zone: Bytes::mib(16),
        ..super::small()
    }
}

/// Objects of 1 MiB, by number.
async fn fill(store: &Store, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let data = pattern(number, MIB as usize);
        store
            .write(&number.to_string(), 0, data, NEW)
            .await
            .unwrap();
    }
}

async fn delete(store: &Store, numbers: std::ops::Range<u64>) {
    for number in numbers {
        store
            .delete(&number.to_string(), Change::FUA)
            .await
            .unwrap();
    }
}

async fn holds(store: &Store, number: u64) {
    let read = store
        .read(&number.to_string(), 0, MIB, Class::Foreground)
        .await;
    assert!(
        *read.unwrap() == *pattern(number, MIB as usize),
        "object {number}"
    );
}

fn on(device: &Rc<Counting>, test: impl AsyncFnOnce(Store) + 'static) {
    let device = Rc::clone(device);
    env::Runtime::simulated(1).block_on(async move {
        let store = Store::format(device, by_mib()).await.unwrap();
        test(store).await;
    });
}

/// Bytes of disk that a file takes.
fn taken(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().blocks() * 512
}

#[test]
fn deleted_objects_leave_holes_in_the_file_of_their_store() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.img");
    let config = env::RealConfig {
        seed: Some(1),
        ..env::RealConfig::default()
    };
    let runtime = env::Runtime::real(config).unwrap();
    runtime.block_on(async move {
        let options = FileOptions {
            create: Some(Bytes::mib(64)),
            ..FileOptions::default()
        };
        let file = File::open("disk", &path, options).unwrap();
        let store = Store::format(file, by_mib()).await.unwrap();
        store.inner.trim.after.set(Nanos::millis(1));
        fill(&store, 0..24).await;
        let full = taken(&path);
        assert!(full >= 24 * MIB, "{full}");
        delete(&store, 1..24).await;
        for _ in 0..1_000 {
            if store.figures().bytes_discarded >= 22 * MIB {
                break;
            }
            env::sleep(Nanos::millis(10)).await;
        }
        let left = taken(&path);
        assert!(
            left <= full - 20 * MIB,
            "{left} of {full} bytes are taken still"
        );
        holds(&store, 0).await;
        fill(&store, 30..40).await;
        for number in [0, 30, 39] {
            holds(&store, number).await;
        }
        store.close().await.unwrap();
    });
}

#[test]
fn freed_units_are_discarded_once_and_only_after_a_rest() {
    let device = Counting::new(true);
    let seen = Rc::clone(&device);
    on(&device, async move |store| {
        fill(&store, 0..10).await;
        delete(&store, 2..8).await;
        env::sleep(Nanos::secs(9)).await;
        assert_eq!(seen.discarded(), Bytes(0));
        env::sleep(Nanos::secs(2)).await;
        assert_eq!(seen.discarded(), Bytes::mib(6));
        assert_eq!(store.figures().bytes_discarded, 6 * MIB);
        assert_eq!(seen.discards.borrow().len(), 1, "neighbours go together");
        env::sleep(Nanos::secs(100)).await;
        assert_eq!(seen.discarded(), Bytes::mib(6));
        for number in [0, 1, 8, 9] {
            holds(&store, number).await;
        }
        sums_hold(&store);
    });
}

#[test]
fn what_is_freed_late_in_a_rest_waits_for_the_next_one() {
    let device = Counting::new(true);
    let seen = Rc::clone(&device);
    on(&device, async move |store| {
        fill(&store, 0..10).await;
        delete(&store, 2..4).await;
        env::sleep(Nanos::secs(9)).await;
        delete(&store, 6..7).await;
        env::sleep(Nanos::secs(2)).await;
        assert_eq!(seen.discarded(), Bytes::mib(2));
        env::sleep(Nanos::secs(20)).await;
        assert_eq!(seen.discarded(), Bytes::mib(3));
        sums_hold(&store);
    });
}

#[test]
fn discards_leave_the_device_to_clients_half_of_the_time() {
    let device = Counting::new(true);
    let seen = Rc::clone(&device);
    on(&device, async move |store| {
        fill(&store, 0..12).await;
        for number in [0, 2, 4, 6, 8, 10] {
            delete(&store, number..number + 1).await;
        }
        seen.takes.set(Nanos::secs(1));
        env::sleep(Nanos::secs(10)).await;
        let begun = env::now();
        while seen.discards.borrow().len() < 6 {
            env::sleep(Nanos::millis(10)).await;
        }
        let took = env::now().since(begun);
        assert!(took >= Nanos::secs(10), "six discards of 1 s in {took}");
        assert!(took <= Nanos::secs(13), "six discards of 1 s in {took}");
    });
}

#[test]
fn a_store_that_keeps_its_blocks_leaves_no_holes_in_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.img");
    let config = env::RealConfig {
        seed: Some(1),
        ..env::RealConfig::default()
    };
    let runtime = env::Runtime::real(config).unwrap();
    runtime.block_on(async move {
        let kept = |keeps: bool| {
            let path = path.clone();
            async move {
                let options = FileOptions {
                    create: Some(Bytes::mib(64)),
                    ..FileOptions::default()
                };
                let file = File::open("disk", &path, options).unwrap();
                let device: Rc<dyn Device> = match keeps {
                    true => Rc::new(crate::KeepsBlocks(file)),
                    false => file,
                };
                let settings = Settings {
                    force: true,
                    ..by_mib()
                };
                let store = Store::format(device, settings).await.unwrap();
                store.inner.trim.after.set(Nanos::millis(1));
                fill(&store, 0..24).await;
                let full = taken(&path);
                assert!(full >= 24 * MIB, "{full}");
                delete(&store, 1..24).await;
                for _ in 0..400 {
                    if store.figures().bytes_discarded >= 22 * MIB {
                        break;
                    }
                    env::sleep(Nanos::millis(5)).await;
                }
                let left = taken(&path);
                store.close().await.unwrap();
                (full, left)
            }
        };
        let (full, left) = kept(true).await;
        assert!(left >= full, "{left} of {full}: blocks are gone");
        let (full, left) = kept(false).await;
        assert!(
            left <= full - 20 * MIB,
            "{left} of {full}: it shows nothing"
        );
    });
}

#[test]
fn a_unit_that_is_written_again_within_the_rest_is_not_discarded() {
    let device = Counting::new(true);
    let seen = Rc::clone(&device);
    on(&device, async move |store| {
        let units = store.space().units;
        fill(&store, 0..units - 1).await;
        delete(&store, 2..5).await;
        fill(&store, 50..53).await;
        env::sleep(Nanos::secs(30)).await;
        assert_eq!(seen.discarded(), Bytes(0));
    });
}

#[test]
fn a_write_waits_for_a_discard_instead_of_being_refused() {
    let device = Counting::new(true);
    let seen = Rc::clone(&device);
    on(&device, async move |store| {
        let units = store.space().units;
        fill(&store, 0..units - 1).await;
        delete(&store, 0..4).await;
        seen.takes.set(Nanos::secs(5));
        env::sleep(Nanos::secs(11)).await;
        let lent = store.inner.space.borrow().lent();
        assert!(lent > 0, "a discard is under way");
        let space = store.space();
        assert!(space.free >= Bytes::mib(4), "{space:?}");
        sums_hold(&store);
        fill(&store, 60..63).await;
        assert!(seen.discarded() > Bytes(0));
        for number in [4, 60, 62] {
            holds(&store, number).await;
        }
    });
}

#[test]
fn a_store_is_closed_only_when_no_discard_is_under_way() {
    let device = Counting::new(true);
    let seen = Rc::clone(&device);
    on(&device, async move |store| {
        fill(&store, 0..8).await;
        delete(&store, 0..8).await;
        seen.takes.set(Nanos::secs(5));
        env::sleep(Nanos::secs(11)).await;
        assert_eq!(seen.discarded(), Bytes(0));
        store.close().await.unwrap();
        assert_eq!(seen.discarded(), Bytes::mib(8));
    });
}

#[test]
fn room_that_is_promised_is_not_lent() {
    let device = Counting::new(true);
    let seen = Rc::clone(&device);
    on(&device, async move |store| {
        fill(&store, 0..8).await;
        delete(&store, 0..8).await;
        let space = store.space();
        let rest = Bytes(space.free.0 - space.spare.0 - MIB / 2);
        let id = store.reserve(rest).await.unwrap();
        env::sleep(Nanos::secs(60)).await;
        assert_eq!(seen.discarded(), Bytes(0));
        sums_hold(&store);
        store.release(id).await.unwrap();
        env::sleep(Nanos::secs(60)).await;
        assert_eq!(seen.discarded(), Bytes::mib(8));
    });
}

#[test]
fn a_device_that_refuses_a_discard_costs_the_store_nothing() {
    let device = Counting::new(true);
    let seen = Rc::clone(&device);
    on(&device, async move |store| {
        fill(&store, 0..8).await;
        delete(&store, 1..8).await;
        seen.fails.set(true);
        env::sleep(Nanos::secs(60)).await;
        fill(&store, 20..27).await;
        for number in [0, 20, 26] {
            holds(&store, number).await;
        }
        store.close().await.unwrap();
    });
}

#[test]
fn a_device_without_discards_is_sent_none() {
    let device = Counting::new(false);
    let seen = Rc::clone(&device);
    on(&device, async move |store| {
        fill(&store, 0..8).await;
        delete(&store, 0..8).await;
        env::sleep(Nanos::secs(60)).await;
        assert_eq!(seen.discarded(), Bytes(0));
    });
}
