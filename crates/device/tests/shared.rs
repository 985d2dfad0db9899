//! Parts of one device: against a reference model, beside each other, through flushes and to sleep.

mod reference;

use std::cell::Cell;
use std::rc::Rc;

use base::{Buf, Bytes, Nanos, Sector, Span, View};
use device::fault::{Done, Fault, Injury, Rule};
use device::shared::{Dealt, Joined, Shared, Slice, part_of, size_of_part};
use device::{Class, Device, DeviceError, DeviceExt, Info, Memory, Op, Pending, WriteFlags};
use env::sync::join_all;
use env::{Rng, Runtime, sleep, spawn};
use proptest::prelude::*;
use reference::{actions, agree, filled};

const KIB: u64 = 1 << 10;

proptest! {
    #![proptest_config(reference::cases(48))]

    #[test]
    fn parts_read_what_a_vec_reads_and_leave_the_others_alone(
        requests in actions(Bytes::kib(96), Bytes::kib(96), 40),
        parts in 1..5_u32,
        part in 0..4_u32,
        unit in 0..4_u32,
        latency in 0..2_u64,
    ) {
        let part = part % parts;
        let unit = Bytes::kib(4 << unit);
        Runtime::simulated(1).block_on(async move {
            // A size that ends within a unit.
            let size = Bytes(u64::from(parts) * 96 * KIB + 33 * KIB);
            for slices in [true, false] {
                let disk = Memory::new("disk", size);
                disk.set_latency(Nanos::micros(latency));
                let shared = Shared::new(disk.clone(), parts);
                let own = |at| match slices {
                    true => at / (96 * KIB) == u64::from(part),
                    false => part_of(unit, parts, at).0 == part,
                };
                for at in (0..size.0).step_by(512) {
                    let fill = if own(at) { 0 } else { 0xa5 };
                    disk.load(Sector::containing(at), &[fill; 512]);
                }
                let device: Rc<dyn Device> = match slices {
                    true => Slice::new(&shared, part, Span::bytes(u64::from(part) * 96 * KIB, 96 * KIB)),
                    false => Dealt::new(&shared, part, unit),
                };
                agree(&*device, requests.clone()).await;
                let now = disk.contents(Span::bytes(0, size.0));
                for at in (0..size.0).step_by(512).filter(|at| !own(*at)) {
                    assert!(now[at as usize..at as usize + 512].iter().all(|byte| *byte == 0xa5));
                }
            }
        });
    }
}

proptest! {
    #![proptest_config(reference::cases(48))]

    #[test]
    fn parts_joined_read_what_a_vec_reads_and_are_the_device_again(
        requests in actions(Bytes::kib(200), Bytes::kib(200), 40),
        parts in 1..5_u32,
        unit in 0..4_u32,
        latency in 0..2_u64,
    ) {
        let unit = Bytes::kib(4 << unit);
        Runtime::simulated(1).block_on(async move {
            let disk = Memory::new("disk", Bytes::kib(201));
            disk.set_latency(Nanos::micros(latency));
            let shared = Shared::new(disk.clone(), parts);
            let all = (0..parts).map(|part| Dealt::new(&shared, part, unit) as Rc<dyn Device>);
            let whole = Joined::new("whole", all.collect(), unit);
            prop_assert_eq!(whole.info().size, Bytes::kib(201));
            agree(&*whole, requests).await;
            // The same bytes in the same places.
            let len = Bytes::kib(201);
            let read = whole.read_at(Sector(0), len).await.unwrap();
            prop_assert!(read[..] == disk.contents(Span::bytes(0, len.0))[..]);
            let behind = whole.read_at(Sector(len.sectors()), Bytes(512)).await;
            prop_assert!(behind.unwrap_err().to_string().contains("of whole:"));
            Ok(())
        })?;
    }
}

#[test]
fn every_byte_is_of_one_part_and_lies_where_part_of_says() {
    Runtime::simulated(1).block_on(async {
        for (parts, unit, size) in [(2, 4, 37), (4, 8, 64), (8, 4, 101), (1, 16, 40)] {
            let (unit, size) = (Bytes::kib(unit), Bytes::kib(size));
            let disk = Memory::new("disk", size);
            let shared = Shared::new(disk.clone(), parts);
            let all: Vec<_> = (0..parts)
                .map(|part| Dealt::new(&shared, part, unit))
                .collect();
            let mut next = vec![0; parts as usize];
            for at in (0..size.0).step_by(512) {
                let (part, there) = part_of(unit, parts, at);
                assert_eq!(there, next[part as usize]);
                next[part as usize] += 512;
                let data = filled((at / 512) as u8, Bytes(512));
                let part = &all[part as usize];
                part.write_at(Sector::containing(there), data)
                    .await
                    .unwrap();
                assert_eq!(disk.contents(Span::bytes(at, 512)), [(at / 512) as u8; 512]);
            }
            for (part, len) in (0..).zip(next) {
                assert_eq!(size_of_part(unit, parts, part, size), Bytes(len));
                assert_eq!(all[part as usize].info().size, Bytes(len));
            }
        }
    });
}

/// A device that counts its flushes, and sleeps when it is asked to.
struct Counting {
    disk: Rc<Memory>,
    flushes: Cell<u64>,
    asleep: Cell<bool>,
}

impl Device for Counting {
    fn info(&self) -> Info {
        self.disk.info()
    }
    fn read(&self, at: Sector, buf: Buf, class: Class) -> Pending<'_, Buf> {
        self.disk.read(at, buf, class)
    }
    fn write(&self, at: Sector, data: View, flags: WriteFlags) -> Pending<'_, ()> {
        self.disk.write(at, data, flags)
    }
    fn flush(&self) -> Pending<'_, ()> {
        self.flushes.set(self.flushes.get() + 1);
        self.disk.flush()
    }
    fn discard(&self, span: Span) -> Pending<'_, ()> {
        self.disk.discard(span)
    }
    fn write_zeroes(&self, span: Span, flags: WriteFlags) -> Pending<'_, ()> {
        self.disk.write_zeroes(span, flags)
    }
    fn standby(&self) -> bool {
        self.asleep.set(true);
        true
    }
}

fn counting(parts: u32) -> (Rc<Counting>, Rc<Shared>) {
    let disk = Memory::new("disk", Bytes::mib(1));
    disk.set_latency(Nanos::millis(1));
    let counting = Rc::new(Counting {
        disk,
        flushes: Cell::new(0),
        asleep: Cell::new(false),
    });
    let shared = Shared::new(counting.clone(), parts);
    (counting, shared)
}

#[test]
fn flushes_that_meet_are_one_that_began_after_each_was_asked_for() {
    Runtime::simulated(1).block_on(async {
        let (disk, shared) = counting(4);
        let parts: Vec<_> = (0..4)
            .map(|part| Dealt::new(&shared, part, Bytes::kib(64)))
            .collect();
        // All at once: one.
        let flushes = parts.iter().map(|part| part.flush());
        assert!(join_all(flushes).await.iter().all(Result::is_ok));
        assert_eq!(disk.flushes.get(), 1);
        // While one is under way it does for none that comes later: they share the next one.
        let first = spawn({
            let part = parts[0].clone();
            async move { part.flush().await }
        });
        sleep(Nanos::micros(500)).await;
        let begun = env::now();
        let later = parts.iter().map(|part| part.flush());
        assert!(join_all(later).await.iter().all(Result::is_ok));
        assert!(first.is_done());
        assert_eq!(disk.flushes.get(), 3);
        assert_eq!(env::now().since(begun), Nanos::micros(1500));
        // One whose caller went away still ends for the others.
        let left = env::timeout(Nanos::micros(10), parts[0].flush()).await;
        assert!(left.is_err());
        assert_eq!(parts[1].flush().await, Ok(()));
        assert_eq!(disk.flushes.get(), 5);
    });
}

#[test]
fn a_flush_that_fails_fails_all_later_ones_of_all_parts() {
    Runtime::simulated(1).block_on(async {
        let disk = Memory::new("disk", Bytes::mib(1));
        disk.set_latency(Nanos::millis(1));
        let fault = Fault::new(disk, Rng::from_seed(1));
        let rule = Rule::new(Injury::Error(Done::Nothing)).on(&[Op::Flush]);
        fault.book().add(rule.once());
        let shared = Shared::new(fault, 2);
        let parts = [0, 1].map(|part| Dealt::new(&shared, part, Bytes::kib(64)));
        let flushes = parts.iter().map(|part| part.flush());
        assert!(join_all(flushes).await.iter().all(Result::is_err));
        // The device forgets; what a part wrote before may be lost all the same, whichever it was.
        for part in &parts {
            let refused = part.flush().await;
            assert!(
                matches!(refused, Err(DeviceError::FlushFailed { .. })),
                "{refused:?}"
            );
        }
    });
}

#[test]
fn the_device_sleeps_when_no_part_needs_it() {
    Runtime::simulated(1).block_on(async {
        let (disk, shared) = counting(2);
        let parts = [0, 1].map(|part| Dealt::new(&shared, part, Bytes::kib(64)));
        assert!(!parts[0].standby());
        assert!(!parts[0].standby());
        parts[1].read_at(Sector(0), Bytes(512)).await.unwrap();
        assert!(!parts[1].standby(), "part 0 asked before the read");
        assert!(!disk.asleep.get());
        assert!(parts[0].standby());
        assert!(disk.asleep.get());
    });
}
