//! A session of high priority that asks for less than its part is next; what it saved is its own, and of its account alone.

use base::{Bytes, Instant, Nanos};

use super::super::*;

const PIECE: Bytes = Bytes::kib(64);

/// On a device of 100 MB/s whose head takes `jump` to another place.
pub(super) fn tags_on(jump: Nanos, options: TagsOptions) -> Tags {
    let cost = Cost {
        fixed: Nanos::micros(100),
        jump,
        rate: BytesPerSec::mb(100),
    };
    let costs = Costs {
        read: cost,
        write: cost,
    };
    Tags::new(Limits::default(), Nanos::secs(1), costs, options)
}

fn tags(jump: Nanos, depth: u32, lead: Nanos) -> Tags {
    let options = TagsOptions {
        depth: DepthOptions::fixed(depth),
        lead,
        ..TagsOptions::default()
    };
    tags_on(jump, options)
}

fn open(tags: &mut Tags, priority: Priority) -> SessionId {
    open_of(tags, priority, Account::OWNER)
}

fn open_of(tags: &mut Tags, priority: Priority, account: Account) -> SessionId {
    let terms = Terms {
        priority,
        account,
        ..Terms::best_effort()
    };
    tags.open(Instant(0), terms).unwrap()
}

fn ask(tags: &mut Tags, now: Instant, id: SessionId, ticket: u64) {
    ask_for(tags, now, id, (ticket, Approach::Jump));
}

fn ask_for(tags: &mut Tags, now: Instant, id: SessionId, (ticket, approach): (u64, Approach)) {
    let request = Request {
        ticket: Ticket(ticket),
        direction: Direction::Read,
        bytes: PIECE,
        approach,
    };
    tags.enqueue(now, Lane::Session(id), request).unwrap();
}

/// The session of the next piece, which is done at once.
fn served(tags: &mut Tags, now: Instant) -> SessionId {
    let Next::Dispatch(dispatch) = tags.next(now) else {
        panic!("something waits");
    };
    tags.completed(now, &dispatch, PIECE);
    match dispatch.lane {
        Lane::Session(id) => id,
        Lane::Metadata { .. } => panic!("nothing but data was asked for"),
    }
}

/// Four normal sessions have always something waiting; one of high priority asks for three pieces in each twelve. How many
/// pieces are served from when it asks until it has its three, at most, once it has saved a lead?
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
            let took = step + 1 - asked_at;
            worst = if step < 600 { 0 } else { worst.max(took) };
        }
    }
    worst
}

#[test]
fn high_priority_that_asks_little_is_next() {
    assert_eq!(until_served(Nanos::millis(20)), 3);
    assert!(until_served(Nanos(0)) > 3);
}

#[test]
fn where_the_device_seeks_nothing_goes_in_beside_a_piece_that_leads() {
    let both = |mut tags: Tags| {
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
    assert_eq!(both(tags(Nanos::millis(8), 4, lead)), (true, false, true));
    assert_eq!(both(tags(Nanos(0), 4, lead)), (true, true, false));
    // A calibration counts no seek; the device seeks all the same.
    let mut calibrated = tags(Nanos::millis(8), 4, lead);
    calibrated.set_costs(Instant(0), Costs::flat(BytesPerSec::mb(100)));
    assert_eq!(both(calibrated), (true, false, true));
}

#[test]
fn coming_anew_renews_no_lead() {
    let mut tags = tags(Nanos(0), 1, TagsOptions::default().lead);
    let normal = open(&mut tags, Priority::Normal);
    for ticket in 0..1_000 {
        ask(&mut tags, Instant(0), normal, 1_000_000 + ticket);
    }
    let mut of_normal = 0;
    for nth in 0..20 {
        let high = open(&mut tags, Priority::High);
        (0..8).for_each(|piece| ask(&mut tags, Instant(0), high, nth * 8 + piece));
        let mut left = 8;
        while left > 0 {
            match served(&mut tags, Instant(0)) == high {
                true => left -= 1,
                false => of_normal += 1,
            }
        }
        tags.close(Instant(0), high);
    }
    // Eight pieces are twice what a normal session has meanwhile; with a lead they would all go first.
    assert!(of_normal >= 20, "{of_normal} beside 160");
}

#[test]
fn who_leads_keeps_out_its_own_account_alone() {
    let mut tags = tags(Nanos::millis(8), 2, TagsOptions::default().lead);
    let other = Account { id: 1, weight: 1 };
    let [high, normal] = [Priority::High, Priority::Normal].map(|it| open(&mut tags, it));
    let beside = open_of(&mut tags, Priority::Normal, other);
    for id in [normal, high, beside, normal, high, beside] {
        ask(&mut tags, Instant(0), id, id.0);
        assert_eq!(served(&mut tags, Instant(0)), id);
    }
    ask(&mut tags, Instant(1), high, 100);
    let Next::Dispatch(first) = tags.next(Instant(1)) else {
        panic!("it waits");
    };
    assert_eq!(first.lane, Lane::Session(high));
    ask(&mut tags, Instant(1), normal, 200);
    assert_eq!(tags.next(Instant(1)), Next::Idle);
    ask(&mut tags, Instant(1), beside, 300);
    let Next::Dispatch(second) = tags.next(Instant(1)) else {
        panic!("another account's waits");
    };
    assert_eq!(second.lane, Lane::Session(beside));
}

#[test]
fn an_account_that_comes_back_does_not_pay_for_one_that_stays() {
    let mut tags = tags(Nanos::millis(10), 1, Nanos(0));
    let of = |id, weight| Account { id, weight };
    let heavy = open_of(&mut tags, Priority::Normal, of(1, 1_000));
    let light = open_of(&mut tags, Priority::Normal, of(2, 1));
    let back = open_of(&mut tags, Priority::Normal, of(3, 1_000));
    for ticket in 0..1_000 {
        ask(&mut tags, Instant(0), heavy, ticket);
        ask_for(
            &mut tags,
            Instant(0),
            light,
            (10_000 + ticket, Approach::Follows),
        );
    }
    // The light one has its turn, and stays for a few pieces.
    while served(&mut tags, Instant(0)) != light {}
    assert_eq!(served(&mut tags, Instant(0)), light);
    for ticket in 0..200 {
        ask(&mut tags, Instant(0), back, 20_000 + ticket);
    }
    let next = (0..60).filter(|_| served(&mut tags, Instant(0)) == back);
    assert!(next.count() >= 20);
}
