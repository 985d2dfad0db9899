//! A device beside a plain `Vec<u8>`: both do the same, and must read the same.

use base::{Buf, Bytes, SECTOR, Sector, Span, View};
use device::{Class, Device, DeviceExt, WriteFlags};
use proptest::prelude::*;

/// So many cases; a failing one is printed in full, so nothing is kept in files.
pub fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// One request. Places and lengths count sectors; every request stays within the device.
#[derive(Debug, Clone)]
pub enum Action {
    Write { span: Span, fill: u8, fua: bool },
    Read(Span),
    Flush,
    Discard(Span),
    WriteZeroes { span: Span, fua: bool },
}

fn span(size: Bytes, len_max: Bytes) -> impl Strategy<Value = Span> {
    (0..size.sectors(), 1..=len_max.sectors()).prop_map(move |(start, len)| {
        let len = len.min(size.sectors() - start);
        Span::new(Sector(start), Bytes(len * SECTOR))
    })
}

/// Up to `count` requests on a device of `size` bytes, each of at most `len_max`.
pub fn actions(size: Bytes, len_max: Bytes, count: usize) -> impl Strategy<Value = Vec<Action>> {
    let within = move || span(size, len_max);
    let action = prop_oneof![
        4 => (within(), 1..=255_u8, any::<bool>())
            .prop_map(|(span, fill, fua)| Action::Write { span, fill, fua }),
        4 => within().prop_map(Action::Read),
        1 => Just(Action::Flush),
        1 => within().prop_map(Action::Discard),
        1 => (within(), any::<bool>()).prop_map(|(span, fua)| Action::WriteZeroes { span, fua }),
    ];
    prop::collection::vec(action, 1..count)
}

fn flags(fua: bool) -> WriteFlags {
    WriteFlags {
        fua,
        class: Class::Foreground,
    }
}

/// Sends `actions` one after the other and compares every read, the allocation, and in the end the
/// whole device with the reference model. The device must read as zeroes at first.
pub async fn agree(device: &dyn Device, actions: Vec<Action>) {
    let size = device.info().size;
    let mut reference = vec![0_u8; size.usize()];
    let range = |span: Span| span.start.byte() as usize..span.end().byte() as usize;
    for action in actions {
        match action.clone() {
            Action::Write { span, fill, fua } => {
                // A slope, so that a byte in the wrong place shows.
                let mut data = Buf::for_read(span.len.usize());
                for (place, byte) in data.iter_mut().enumerate() {
                    *byte = fill.wrapping_add((place / 512) as u8);
                }
                reference[range(span)].copy_from_slice(&data);
                let wrote = device.write(span.start, data.freeze(), flags(fua)).await;
                assert_eq!(wrote, Ok(()), "{action:?}");
            }
            Action::Read(span) => {
                let read = device.read_at(span.start, span.len).await;
                let read = read.unwrap_or_else(|error| panic!("{action:?}: {error}"));
                assert!(
                    read[..] == reference[range(span)],
                    "{action:?} reads something else"
                );
            }
            Action::Flush => assert_eq!(device.flush().await, Ok(())),
            Action::Discard(span) => {
                assert_eq!(device.discard(span).await, Ok(()), "{action:?}");
                // Zeroes or as before, sector by sector: what it shows first it must go on showing.
                let read = device.read_at(span.start, span.len).await;
                let read = read.unwrap_or_else(|error| panic!("after {action:?}: {error}"));
                let sectors = read.chunks(512).zip(reference[range(span)].chunks_mut(512));
                for (now, before) in sectors {
                    assert!(*now == *before || now.iter().all(|&byte| byte == 0));
                    before.copy_from_slice(now);
                }
            }
            Action::WriteZeroes { span, fua } => {
                reference[range(span)].fill(0);
                let wrote = device.write_zeroes(span, flags(fua)).await;
                assert_eq!(wrote, Ok(()), "{action:?}");
            }
        }
    }
    let step = device.info().max_io.0.min(size.0);
    for at in (0..size.0).step_by(step as usize) {
        let span = Span::bytes(at, step.min(size.0 - at));
        let read = device.read_at(span.start, span.len).await;
        let read = read.unwrap_or_else(|error| panic!("{span}: {error}"));
        assert!(
            read[..] == reference[range(span)],
            "{span} reads something else in the end"
        );
    }
    let runs = device.allocation(Span::bytes(0, size.0)).await;
    let mut at = 0_usize;
    for (len, data) in runs.expect("the allocation of the whole device") {
        let end = at + len as usize;
        assert!(
            data || reference[at..end].iter().all(|&byte| byte == 0),
            "bytes {at}..{end} hold data and are called a hole"
        );
        at = end;
    }
    assert_eq!(at as u64, size.0, "the allocation covers the device");
}

/// A view of `len` bytes, all `fill`.
pub fn filled(fill: u8, len: Bytes) -> View {
    let mut data = Buf::for_read(len.usize());
    data.fill(fill);
    data.freeze()
}
