//! On a device that seeks, spare time stays with a session that goes on; shares stay as they are.

use base::{Bytes, Instant, Nanos};

use super::super::*;
use super::leads::tags_on;

const PIECE: Bytes = Bytes::kib(64);

fn tags(jump: Nanos, stay: bool) -> Tags {
    let options = TagsOptions {
        depth: DepthOptions::fixed(1),
        stay,
        ..TagsOptions::default()
    };
    tags_on(jump, options)
}

/// Two sessions read on, by turns: how often the device changes between them, and what each got of 256 pieces.
fn served(mut tags: Tags) -> (usize, [u64; 2]) {
    let ids = [0, 1].map(|_| tags.open(Instant(0), Terms::best_effort()).unwrap());
    for ticket in 0..512 {
        let id = ids[ticket as usize % 2];
        let request = Request {
            ticket: Ticket(ticket),
            direction: Direction::Read,
            bytes: PIECE,
            approach: Approach::Follows,
        };
        tags.enqueue(Instant(0), Lane::Session(id), request)
            .unwrap();
    }
    let (mut changes, mut got, mut last) = (0, [0; 2], None);
    for step in 0..256 {
        let now = Instant(step * 1_000_000);
        let Next::Dispatch(dispatch) = tags.next(now) else {
            panic!("both wait");
        };
        tags.completed(now, &dispatch, dispatch.bytes);
        let Lane::Session(id) = dispatch.lane else {
            panic!("nothing else was asked");
        };
        changes += usize::from(last.replace(id).is_some_and(|before| before != id));
        got[usize::from(id == ids[1])] += 1;
    }
    (changes, got)
}

#[test]
fn a_device_that_seeks_changes_between_streams_once_in_the_time_of_a_seek() {
    // 10 ms at 100 MB/s are 1 MB: sixteen pieces of 64 KiB.
    let (changes, got) = served(tags(Nanos::millis(10), true));
    assert_eq!((changes, got), (15, [128, 128]));
    // 2 ms are 200 kB: four pieces.
    let (changes, got) = served(tags(Nanos::millis(2), true));
    assert_eq!((changes, got), (63, [128, 128]));
}

#[test]
fn where_nothing_seeks_or_it_is_off_streams_take_turns_piece_by_piece() {
    for (jump, stay) in [(Nanos(0), true), (Nanos::millis(10), false)] {
        assert_eq!(served(tags(jump, stay)), (255, [128, 128]));
    }
}

/// A calibration finds costs that count no seek of their own; the device seeks all the same.
#[test]
fn a_calibrated_device_seeks_as_it_was_assumed_to() {
    let mut tags = tags(Nanos::millis(10), true);
    tags.set_costs(Instant(0), Costs::flat(BytesPerSec::mb(100)));
    assert_eq!(served(tags), (15, [128, 128]));
}
