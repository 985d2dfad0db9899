//! A session of high priority that asks for less than its part waits for the piece at the device alone.

use base::{Bytes, Instant, Nanos};

use super::super::*;

const PIECE: Bytes = Bytes::kib(64);

fn tags(jump: Nanos, depth: u32, lead: Nanos) -> Tags {
    let cost = Cost {
        fixed: Nanos::micros(100),
        jump,
        rate: BytesPerSec::mb(100),
    };
    let costs = Costs {
        read: cost,
        write: cost,
    };
    let options = TagsOptions {
        depth: DepthOptions::fixed(depth),
        lead,
        ..TagsOptions::default()
    };
    Tags::new(Limits::default(), Nanos::secs(1), costs, options)
}

fn open(tags: &mut Tags, priority: Priority) -> SessionId {
    let terms = Terms {
        priority,
        ..Terms::best_effort()
    };
    tags.open(Instant(0), terms).unwrap()
}

fn ask(tags: &mut Tags, now: Instant, id: SessionId, ticket: u64) {
    let request = Request {
        ticket: Ticket(ticket),
        direction: Direction::Read,
        bytes: PIECE,
        approach: Approach::Jump,
    };
    tags.enqueue(now, Lane::Session(id), request).unwrap();
}

/// Four normal sessions have always something waiting; one of high priority asks for three pieces in each twelve. How many
/// pieces are served from when it asks until it has its three, at most?
fn until_served(lead: Nanos) -> u64 {
    let mut tags = tags(Nanos(0), 1, lead);
    let high = open(&mut tags, Priority::High);
    let normal = [(); 4].map(|()| open(&mut tags, Priority::Normal));
    for id in normal {
        for ticket in 0..400 {
            ask(&mut tags, Instant(0), id, 1_000_000 + id.0 * 1_000 + ticket);
        }
    }
    let (mut worst, mut asked_at, mut left) = (0, 0, 0);
    for step in 0..1_200 {
        let now = Instant(step * 1_000_000);
        if step % 12 == 0 {
            assert_eq!(left, 0, "it asks for less than its part");
            (0..3).for_each(|nth| ask(&mut tags, now, high, step + nth));
            (asked_at, left) = (step, 3);
        }
        let Next::Dispatch(dispatch) = tags.next(now) else {
            panic!("all wait");
        };
        tags.completed(now, &dispatch, dispatch.bytes);
        if dispatch.lane == Lane::Session(high) {
            left -= 1;
            worst = worst.max(step + 1 - asked_at);
        }
    }
    worst
}

#[test]
fn high_priority_that_asks_little_is_next() {
    assert_eq!(until_served(TagsOptions::default().lead), 3);
    assert!(until_served(Nanos(0)) > 3);
}

#[test]
fn where_the_device_seeks_nothing_goes_in_beside_a_piece_that_leads() {
    let both = |jump, lead| {
        let mut tags = tags(jump, 4, lead);
        let [high, normal] =
            [Priority::High, Priority::Normal].map(|priority| open(&mut tags, priority));
        // Both have been served, so that tags count.
        for id in [normal, high, normal, high] {
            ask(&mut tags, Instant(0), id, id.0);
            let Next::Dispatch(dispatch) = tags.next(Instant(0)) else {
                panic!("it waits");
            };
            tags.completed(Instant(0), &dispatch, PIECE);
        }
        ask(&mut tags, Instant(1), high, 100);
        ask(&mut tags, Instant(1), normal, 200);
        let Next::Dispatch(first) = tags.next(Instant(1)) else {
            panic!("both wait");
        };
        let beside = match tags.next(Instant(1)) {
            Next::Dispatch(_) => true,
            Next::Idle => false,
            other => panic!("nothing but a completion can change that: {other:?}"),
        };
        tags.completed(Instant(2), &first, PIECE);
        let after = matches!(tags.next(Instant(2)), Next::Dispatch(_));
        (first.lane == Lane::Session(high), beside, after)
    };
    let lead = TagsOptions::default().lead;
    assert_eq!(both(Nanos::millis(8), lead), (true, false, true));
    assert_eq!(both(Nanos(0), lead), (true, true, false));
}
