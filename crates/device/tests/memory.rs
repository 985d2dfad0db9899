//! The memory device, against its reference model and at its edges.

mod reference;

use std::rc::Rc;

use base::{Buf, Bytes, Nanos, Sector, Span};
use device::{Class, Device, DeviceError, DeviceExt, Memory};
use env::Runtime;
use proptest::prelude::*;
use reference::{actions, agree, filled};

const SIZE: Bytes = Bytes(5 << 19); // two and a half chunks

proptest! {
    #![proptest_config(reference::cases(64))]

    #[test]
    fn memory_reads_what_a_vec_reads(actions in actions(SIZE, SIZE, 60), latency in 0..2_u64) {
        let memory = Memory::new("twin", SIZE);
        memory.set_latency(Nanos::micros(latency));
        Runtime::simulated(1).block_on(async move { agree(&*memory, actions).await });
    }
}

#[test]
fn a_sparse_tebibyte_costs_what_is_stored_on_it() {
    let memory = Memory::new("big", Bytes::gib(1024));
    let last = Sector(Bytes::gib(1024).sectors() - 1);
    let there = Rc::clone(&memory);
    Runtime::simulated(1).block_on(async move {
        there
            .write_at(Sector(0), filled(1, Bytes(512)))
            .await
            .unwrap();
        there.write_at(last, filled(2, Bytes(512))).await.unwrap();
        assert_eq!(there.held(), Bytes::mib(2));
        let whole = Span::new(Sector(0), there.info().size);
        let runs = there.allocation(whole).await.unwrap();
        let mib = 1 << 20;
        assert_eq!(
            runs,
            [(mib, true), ((1 << 40) - 2 * mib, false), (mib, true)]
        );
        there.discard(whole).await.unwrap();
        assert_eq!(there.held(), Bytes(0));
        let read = there.read_at(last, Bytes(512)).await.unwrap();
        assert!(read.iter().all(|&byte| byte == 0));
    });
    assert_eq!(memory.contents(Span::new(last, Bytes(512))), [0; 512]);
}

#[test]
fn a_discard_of_part_of_a_chunk_zeroes_the_part_and_keeps_the_rest() {
    let memory = Memory::new("m", Bytes::mib(4));
    memory.load(Sector(0), &vec![9; 4 << 20]);
    Runtime::simulated(1)
        .block_on({
            let memory = Rc::clone(&memory);
            async move {
                memory
                    .discard(Span::bytes((1 << 20) - 512, (1 << 20) + 1024))
                    .await
            }
        })
        .unwrap();
    let edges = memory.contents(Span::bytes((1 << 20) - 1024, (1 << 20) + 2048));
    assert_eq!(edges[..512], [9; 512]);
    assert!(edges[512..(1 << 20) + 1536].iter().all(|&byte| byte == 0));
    assert_eq!(edges[(1 << 20) + 1536..], [9; 512]);
    assert_eq!(memory.held(), Bytes::mib(3));
}

#[test]
fn requests_outside_or_between_sectors_are_refused_with_the_numbers() {
    let memory = Memory::new("small", Bytes(1024));
    Runtime::simulated(1).block_on(async move {
        let behind = memory
            .read(Sector(1), Buf::zeroed(1024), Class::Foreground)
            .await;
        assert_eq!(
            behind.unwrap_err().to_string(),
            "cannot read 1024 bytes at byte 512 of small: it holds 1024 bytes in 512-byte sectors"
        );
        let torn = memory.write_at(Sector(0), filled(1, Bytes(100))).await;
        assert!(matches!(
            torn,
            Err(DeviceError::OutOfRange { len: 100, .. })
        ));
        let far = memory
            .discard(Span::new(Sector(u64::MAX), Bytes(512)))
            .await;
        assert!(matches!(far, Err(DeviceError::OutOfRange { .. })));
    });
}

#[test]
fn latency_passes_on_the_clock_and_counts_as_in_flight() {
    let memory = Memory::new("slow", Bytes::mib(1));
    memory.set_latency(Nanos::millis(3));
    Runtime::simulated(1).block_on(async move {
        let start = env::now();
        let write = memory.write_at(Sector(0), filled(1, Bytes(512)));
        assert_eq!(memory.in_flight(), 1);
        write.await.unwrap();
        assert_eq!(env::now().since(start), Nanos::millis(3));
        assert_eq!(memory.in_flight(), 0);
    });
}
