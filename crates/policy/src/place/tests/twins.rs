//! A disk's queue against its definition: a list, and the whole sum over it each time.
//!
//! Source: COST 3.1 (cost as a sum over the queue), 3.2 (cost' and h' kept instead).

use base::{Bytes, Instant, Nanos};
use proptest::prelude::*;

use crate::place::*;

/// A request in the paper's symbols: offset, length, a; and who asks, of which class.
#[derive(Debug, Clone, Copy)]
struct R {
    ticket: u64,
    o: u64,
    l: u64,
    a: u64,
    client: u64,
    class: u8,
}

/// Where the head is or will be, and who was last.
type End = (u64, Option<(u64, u8)>);

#[derive(Default)]
struct Naive {
    h: u64,
    last: Option<(u64, u8)>,
    queue: Vec<R>,
    access: u64,
}

const B: u64 = 100;
/// q by the class before: higher, equal, lower; in halves.
const Q: [u64; 3] = [40, 8, 1];
const IDLE: u64 = 50;

impl Naive {
    /// The paper's sum with `o_0 = h`, `l_0 = 0`, from the first request to the last; and where that ends.
    fn cost(&self) -> (u64, End) {
        let (mut cost, mut end, mut last) = (0, self.h, self.last);
        for r in &self.queue {
            let q = match last {
                Some((client, class)) if client != r.client => match class.cmp(&r.class) {
                    std::cmp::Ordering::Greater => Q[0],
                    std::cmp::Ordering::Equal => Q[1],
                    std::cmp::Ordering::Less => Q[2],
                },
                _ => 2,
            };
            cost += r.a * r.l + q * B * r.o.abs_diff(end).min(1) / 2;
            (end, last) = (r.o + r.l, Some((r.client, r.class)));
        }
        (cost, (end, last))
    }

    fn settle(&mut self, now: u64) {
        if self.queue.is_empty() && now - self.access >= IDLE {
            (self.h, self.last) = (0, None);
        }
    }

    fn complete(&mut self) -> R {
        let r = self.queue.remove(0);
        (self.h, self.last) = (r.o + r.l, Some((r.client, r.class)));
        r
    }
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Enqueue {
        o: u64,
        l: u64,
        local: bool,
        client: u64,
    },
    Complete,
    Cancel(usize),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u64..6, 1u64..4, any::<bool>(), 0u64..4)
            .prop_map(|(o, l, local, client)| Step::Enqueue { o, l, local, client }),
        4 => Just(Step::Complete),
        1 => (0usize..8).prop_map(Step::Cancel),
        3 => (1u64..60).prop_map(Step::Wait),
    ]
}

/// Runs both; answers how often the queue was empty for long enough to be reset.
fn compare(steps: &[Step]) -> usize {
    let mut queue = DiskQueue::new(QueueOptions {
        weights: Weights {
            local: PerByte(2_000),
            remote: PerByte(3_000),
            seek: Nanos(B),
        },
        idle_after: Nanos(IDLE),
        ..QueueOptions::default()
    });
    let penalties = Penalties {
        from_higher: Permille(20_000),
        other: Permille(4_000),
        from_lower: Permille(500),
    };
    let mut twin = Naive::default();
    let (mut now, mut resets) = (0, 0);
    for (ticket, step) in (0..).zip(steps) {
        twin.settle(now);
        match *step {
            Step::Wait(time) => now += time,
            Step::Enqueue {
                o,
                l,
                local,
                client,
            } => {
                let class = [Class::Low, Class::Normal, Class::High][client as usize % 3];
                let request = Request {
                    origin: Origin {
                        client: ClientId(client),
                        class,
                    },
                    op: Op::Read,
                    bytes: Bytes(l),
                    sequential: false,
                    penalties,
                };
                let at = Some(At { object: 0, byte: o });
                let before = twin.cost().0;
                let a = if local { 2 } else { 3 };
                let class = client as u8 % 3;
                twin.queue.push(R {
                    ticket,
                    o,
                    l,
                    a,
                    client,
                    class,
                });
                twin.access = now;
                let term = queue.enqueue(Instant(now), Ticket(ticket), &request, at, local);
                assert_eq!(term.unwrap().0, twin.cost().0 - before);
            }
            Step::Complete if !twin.queue.is_empty() => {
                let done = Ticket(twin.complete().ticket);
                twin.access = now;
                assert!(queue.complete(Instant(now), done, Nanos(1)));
            }
            Step::Cancel(index) if index < twin.queue.len() => {
                let gone = Ticket(twin.queue.remove(index).ticket);
                twin.access = now;
                assert!(queue.cancel(Instant(now), gone));
            }
            _ => assert!(!queue.cancel(Instant(now), Ticket(u64::MAX))),
        }
        resets += usize::from(twin.queue.is_empty() && now - twin.access >= IDLE);
        twin.settle(now);
        let state = queue.report(Instant(now));
        let last = state.tail.last.map(|it| (it.client.0, it.class as u8));
        let end = (state.tail.end.unwrap().byte, last);
        assert_eq!((state.cost.0, end), twin.cost());
        assert_eq!(state.queued.0, twin.queue.iter().map(|r| r.l).sum::<u64>());
        assert_eq!(state.requests as usize, twin.queue.len());
    }
    resets
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_kept_is_the_sum_over_the_queue(steps in prop::collection::vec(step(), 1..120)) {
        compare(&steps);
    }
}

#[test]
fn the_twin_is_compared_where_the_head_is_reset() {
    let enqueue = Step::Enqueue {
        o: 4,
        l: 1,
        local: true,
        client: 0,
    };
    assert_eq!(
        compare(&[enqueue, Step::Complete, Step::Wait(49), enqueue]),
        0
    );
    assert_eq!(
        compare(&[enqueue, Step::Complete, Step::Wait(50), enqueue]),
        1
    );
}
