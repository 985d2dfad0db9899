//! With everything else off the stronger policy is the published one: against a page of plain code on random traces.
//!
//! Source: COST 3.1, 3.2.

use crate::rate::BytesPerSec;
use base::{Bytes, Instant, Nanos};
use proptest::prelude::*;

use crate::place::*;

/// cost', h', and the last client with its class.
type Heard = (u64, u64, Option<(u64, u8)>);

/// The published method: per disk cost', h' and who was last, as multicast last; and a, b, q.
#[derive(Default)]
struct Published {
    disks: std::collections::BTreeMap<u32, Heard>,
}

const A: [u64; 2] = [3, 2];
const B: u64 = 100;

impl Published {
    fn cost(&self, disk: u32, local: bool, o: u64, l: u64, client: u64, class: u8) -> u64 {
        let (cost, end, last) = self.disks.get(&disk).copied().unwrap_or_default();
        let q_in_halves = match last {
            Some((before, _)) if before == client => 2,
            Some((_, before)) if before > class => 40,
            Some((_, before)) if before < class => 1,
            Some(_) => 8,
            None => 2,
        };
        let seek = if o == end { 0 } else { q_in_halves * B / 2 };
        cost + A[usize::from(local)] * l + seek
    }

    /// The cheapest first, equal ones as listed; k of them in domains of their own.
    fn choose(&self, k: usize, costs: &[(u32, u32, u64)]) -> Vec<u32> {
        let (mut left, mut chosen) = (costs.to_vec(), Vec::new());
        while chosen.len() < k && !left.is_empty() {
            let least = left.iter().map(|it| it.2).min().unwrap();
            let (disk, domain, _) = *left.iter().find(|it| it.2 == least).unwrap();
            chosen.push(disk);
            left.retain(|it| it.1 != domain);
        }
        chosen
    }
}

#[derive(Debug, Clone)]
enum Event {
    Heard {
        disk: u32,
        cost: u64,
        end: u64,
        last: Option<u64>,
    },
    Read {
        client: u64,
        l: u64,
        copies: Vec<(u32, bool, u64)>,
    },
    Place {
        client: u64,
        l: u64,
        k: usize,
        disks: Vec<(u32, bool)>,
    },
    Answered(u64),
    Failed(u64),
    Wait(u64),
}

fn event() -> impl Strategy<Value = Event> {
    let copies = prop::collection::vec((0u32..8, any::<bool>(), 0u64..5), 1..5);
    let disks = prop::collection::vec((0u32..8, any::<bool>()), 1..9);
    prop_oneof![
        4 => (0u32..8, 0u64..400, 0u64..5, prop::option::of(0u64..5))
            .prop_map(|(disk, cost, end, last)| Event::Heard { disk, cost, end, last }),
        6 => (0u64..5, 1u64..60, copies).prop_map(|(client, l, copies)| Event::Read { client, l, copies }),
        2 => (0u64..5, 1u64..60, 1usize..4, disks)
            .prop_map(|(client, l, k, disks)| Event::Place { client, l, k, disks }),
        3 => any::<u64>().prop_map(Event::Answered),
        1 => any::<u64>().prop_map(Event::Failed),
        2 => (0u64..1_000_000_000).prop_map(Event::Wait),
    ]
}

fn class(client: u64) -> u8 {
    (client % 3) as u8
}

fn origin(client: u64) -> Origin {
    Origin {
        client: ClientId(client),
        class: [Class::Low, Class::Normal, Class::High][usize::from(class(client))],
    }
}

fn weights() -> Weights {
    Weights {
        local: PerByte(A[1] * 1_000),
        remote: PerByte(A[0] * 1_000),
        seek: Nanos(B),
    }
}

fn request(client: u64, l: u64) -> Request {
    Request {
        origin: origin(client),
        op: Op::Read,
        bytes: Bytes(l),
        sequential: false,
        penalties: Penalties {
            from_higher: Permille(20_000),
            other: Permille(4_000),
            from_lower: Permille(500),
        },
    }
}

fn candidate(disk: u32, local: bool, byte: Option<u64>) -> Candidate {
    Candidate {
        disk: DiskId(disk),
        local,
        rotating: disk.is_multiple_of(2),
        at: byte.map(|byte| At { object: 0, byte }),
    }
}

/// How many decisions were alike, and where the first is that is not.
fn compare(options: TanadaOptions, events: &[Event]) -> Result<usize, String> {
    let mut reference = Published::default();
    let mut tanada = Tanada::new(weights(), options, 7);
    let mut queue_cost = QueueCost::new(weights());
    let (mut now, mut tickets, mut alike) = (Instant(0), 0, 0);
    let mut under_way: Vec<(DiskId, Ticket, Instant)> = Vec::new();
    for event in events {
        match event {
            Event::Wait(time) => now = now + Nanos(*time),
            Event::Heard {
                disk,
                cost,
                end,
                last,
            } => {
                let last_class = last.map(|last| (last, class(last)));
                reference.disks.insert(*disk, (*cost, *end, last_class));
                let state = State {
                    at: now,
                    cost: Nanos(*cost),
                    tail: Tail {
                        end: Some(At {
                            object: 0,
                            byte: *end,
                        }),
                        last: last.map(origin),
                    },
                    // The published method knows nothing of these.
                    work: Nanos(cost * 7 % 300),
                    work_mean: Nanos(cost * 5 % 200),
                    utilisation: Permille((cost * 3 % 1_000) as u32),
                    queued: Bytes(cost % 9),
                    requests: *cost as u32 % 5,
                    mean: Bytes(*cost * 1_000),
                    promised: Promised::default(),
                    booked: BytesPerSec(0),
                    foremost: [None, Some(Class::Normal), Some(Class::High)][*cost as usize % 3],
                    weights: weights(),
                };
                tanada.heard(now, DiskId(*disk), &state);
                queue_cost.heard(now, DiskId(*disk), &state);
            }
            Event::Read { client, l, copies } => {
                let costs = copies.iter().map(|(disk, local, o)| {
                    let cost = reference.cost(*disk, *local, *o, *l, *client, class(*client));
                    (*disk, *disk, cost)
                });
                let costs: Vec<(u32, u32, u64)> = costs.collect();
                let expected = DiskId(reference.choose(1, &costs)[0]);
                let copies = copies
                    .iter()
                    .map(|(disk, local, o)| candidate(*disk, *local, Some(*o)));
                let copies: Vec<Candidate> = copies.collect();
                let request = request(*client, *l);
                let both = [
                    tanada.read(now, &request, &copies),
                    queue_cost.read(now, &request, &copies),
                ];
                if both != [expected; 2] {
                    return Err(format!("{event:?}: {expected} of {costs:?}, not {both:?}"));
                }
                tickets += 1;
                let chosen = copies.iter().find(|it| it.disk == expected).unwrap();
                let sent = Sent {
                    ticket: Ticket(tickets),
                    candidate: *chosen,
                    request,
                    hedge: false,
                };
                tanada.sent(now, &sent);
                queue_cost.sent(now, &sent);
                under_way.push((expected, sent.ticket, now));
                let hedge = tanada.hedge_at(expected, sent.ticket);
                assert!(options.hedge.is_some() || hedge.is_none());
                alike += 1;
            }
            Event::Place {
                client,
                l,
                k,
                disks,
            } => {
                let costs = disks.iter().map(|(disk, local)| {
                    let far = 999;
                    let cost = reference.cost(*disk, *local, far, *l, *client, class(*client));
                    (*disk, disk / 2, cost)
                });
                let costs: Vec<(u32, u32, u64)> = costs.collect();
                let expected = reference.choose(*k, &costs);
                let targets = disks.iter().map(|(disk, local)| Target {
                    candidate: candidate(*disk, *local, None),
                    domain: DomainId(disk / 2),
                    free: Bytes::gib(u64::from(*disk) + 1),
                    capacity: Bytes::gib(10),
                    reserved: Permille(disk * 100),
                });
                let targets: Vec<Target> = targets.collect();
                let request = request(*client, *l);
                for placed in [
                    tanada.place(now, &request, *k, &targets),
                    queue_cost.place(now, &request, *k, &targets),
                ] {
                    let placed =
                        placed.map(|disks| disks.iter().map(|it| it.0).collect::<Vec<_>>());
                    match placed {
                        Ok(disks) if disks == expected => alike += 1,
                        Err(PlaceError::TooFewDomains { .. }) if expected.len() < *k => {}
                        other => return Err(format!("{event:?}: {expected:?}, not {other:?}")),
                    }
                }
            }
            Event::Answered(any) | Event::Failed(any) => {
                if under_way.is_empty() {
                    continue;
                }
                let (disk, ticket, _) = under_way.swap_remove(*any as usize % under_way.len());
                if matches!(event, Event::Failed(_)) {
                    tanada.failed(now, disk, ticket, true);
                    continue;
                }
                // An answer carries a state, which the published method does not take.
                let state = State {
                    cost: Nanos(any % 999),
                    work: Nanos(any % 999),
                    ..State::idle(weights())
                };
                let state = Some(State { at: now, ..state });
                let reply = Reply {
                    residence: Nanos(1),
                    service: Nanos(1),
                    state,
                };
                tanada.answered(now, disk, ticket, &reply);
                queue_cost.answered(now, disk, ticket, &reply);
            }
        }
    }
    Ok(alike)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn with_all_else_off_it_decides_as_published(events in prop::collection::vec(event(), 1..150)) {
        let compared = compare(TanadaOptions::published(), &events);
        prop_assert!(compared.is_ok(), "{compared:?}");
    }
}

/// A trace on which every part of the stronger policy shows.
fn trace() -> Vec<Event> {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[5; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let events = prop::collection::vec(event(), 3_000).new_tree(&mut runner);
    events.unwrap().current()
}

#[test]
fn every_part_switched_on_alone_decides_otherwise() {
    let (off, on, trace) = (
        TanadaOptions::published(),
        TanadaOptions::default(),
        trace(),
    );
    assert!(compare(off, &trace).unwrap() > 800);
    for (name, options) in [
        (
            "piggyback",
            TanadaOptions {
                piggyback: true,
                ..off
            },
        ),
        (
            "device time",
            TanadaOptions {
                waits: Waits::All,
                ..off
            },
        ),
        ("own", TanadaOptions { own: true, ..off }),
        ("late", TanadaOptions { late: true, ..off }),
        ("net", TanadaOptions { net: true, ..off }),
        (
            "ageing",
            TanadaOptions {
                ageing: on.ageing,
                ..off
            },
        ),
        (
            "class memory",
            TanadaOptions {
                class_memory: on.class_memory,
                ..off
            },
        ),
        (
            "presence",
            TanadaOptions {
                presence: true,
                ..off
            },
        ),
        (
            "fresh",
            TanadaOptions {
                fresh: on.fresh,
                ..off
            },
        ),
        (
            "alone",
            TanadaOptions {
                alone: on.alone,
                ..off
            },
        ),
        (
            "yielding",
            TanadaOptions {
                yielding: Some(YieldOptions::default()),
                ..off
            },
        ),
        (
            "epsilon",
            TanadaOptions {
                epsilon: on.epsilon,
                ..off
            },
        ),
        (
            "choices",
            TanadaOptions {
                choices: on.choices,
                ..off
            },
        ),
        (
            "eject",
            TanadaOptions {
                eject: on.eject,
                ..off
            },
        ),
    ] {
        assert!(compare(options, &trace).is_err(), "{name}");
    }
}
