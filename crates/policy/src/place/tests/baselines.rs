//! What others do, and what all have in common.

use super::*;

fn small() -> Request {
    read_of(1, Class::Normal, 4_096)
}

/// Whom so many reads in a row go to.
fn reads(policy: &mut dyn ReplicaPolicy, times: usize, copies: &[Candidate]) -> Vec<u32> {
    let read = |_| policy.read(ms(0), &small(), copies).0;
    (0..times).map(read).collect()
}

#[test]
fn round_robin_goes_round() {
    let mut policy = RoundRobin::default();
    let copies = [copy(4, 0), copy(2, 0), copy(9, 0)];
    assert_eq!(reads(&mut policy, 5, &copies), [4, 2, 9, 4, 2]);
    let disks = [0, 1, 2].map(target);
    let mut place = || policy.place(ms(0), &small(), 2, &disks).unwrap();
    assert_eq!(place(), [DiskId(0), DiskId(1)]);
    assert_eq!(place(), [DiskId(1), DiskId(2)]);
    assert_eq!(place(), [DiskId(2), DiskId(0)]);
}

#[test]
fn random_uses_all_and_the_same_seed_the_same_way() {
    let copies = [copy(0, 0), copy(1, 0), copy(2, 0)];
    let all = reads(&mut Random::new(5), 300, &copies);
    assert_eq!(all, reads(&mut Random::new(5), 300, &copies));
    assert_ne!(all, reads(&mut Random::new(6), 300, &copies));
    for disk in 0..3 {
        let got = all.iter().filter(|it| **it == disk).count();
        assert!((70..=130).contains(&got), "{disk}: {got}");
    }
}

#[test]
fn local_first_reads_and_writes_at_home() {
    let mut policy = LocalFirst::new(1);
    let home = Candidate {
        local: true,
        ..copy(7, 0)
    };
    assert_eq!(reads(&mut policy, 3, &[copy(1, 0), home]), [7, 7, 7]);
    let away = reads(&mut policy, 100, &[copy(1, 0), copy(2, 0)]);
    assert!(away.contains(&1) && away.contains(&2));
    let at_home = Target {
        candidate: home,
        ..target(7)
    };
    for _ in 0..9 {
        let disks = policy.place(ms(0), &small(), 2, &[target(1), target(2), at_home]);
        assert_eq!(disks.unwrap()[0], DiskId(7));
    }
}

#[test]
fn clbs_goes_by_the_amount_alone() {
    let mut policy = QueuedAmount::default();
    let queued = |bytes, requests, millis| State {
        queued: Bytes(bytes),
        requests,
        ..busy(0, millis)
    };
    policy.heard(ms(0), DiskId(1), &queued(1_000_000, 1, 10));
    policy.heard(ms(0), DiskId(2), &queued(40_960, 10, 80));
    assert_eq!(reads(&mut policy, 2, &[copy(1, 0), copy(2, 0)]), [2, 2]);
    policy.heard(ms(0), DiskId(1), &queued(40_960, 9, 80));
    assert_eq!(reads(&mut policy, 1, &[copy(1, 0), copy(2, 0)]), [1]);
    assert_eq!(
        reads(&mut policy, 1, &[copy(1, 0), copy(3, 0)]),
        [3],
        "never heard of"
    );
}

#[test]
fn least_outstanding_counts_its_own() {
    let mut policy = LeastOutstanding::default();
    let copies = [copy(1, 0), copy(2, 0)];
    assert_eq!(
        reads(&mut policy, 4, &copies),
        [1, 2, 1, 2],
        "idle ones in turn"
    );
    policy.sent(ms(0), &sent(1, 1, small()));
    policy.sent(ms(0), &sent(2, 1, small()));
    policy.sent(ms(0), &sent(3, 2, small()));
    assert_eq!(reads(&mut policy, 2, &copies), [2, 2]);
    policy.answered(ms(1), DiskId(1), Ticket(1), &reply(1, None));
    policy.failed(ms(1), DiskId(1), Ticket(2), true);
    assert_eq!(reads(&mut policy, 2, &copies), [1, 1]);
}

#[test]
fn c3_scores_as_its_authors_do() {
    let mut policy = C3::new(2);
    let state = |requests| {
        Some(State {
            requests,
            ..busy(0, 0)
        })
    };
    let answer = |policy: &mut C3, took, service, requests| {
        policy.sent(ms(0), &sent(1, 1, small()));
        policy.answered(
            ms(took),
            DiskId(1),
            Ticket(1),
            &reply(service, state(requests)),
        );
    };
    let score = |policy: &C3| (policy.score(DiskId(1)) / 1e6 * 1e3).round() / 1e3;
    assert_eq!(score(&policy), 0.0);
    // R - 1/mu = 10 - 4, q = 1 + 1: 6 + 8 * 4.
    answer(&mut policy, 10, 4, 1);
    assert_eq!(score(&policy), 38.0);
    // Nine tenths of the newest: 0.9*2 + 0.6, 0.9*2 + 0.4, 1 + 0.9*3 + 0.1.
    answer(&mut policy, 4, 2, 3);
    assert_eq!(
        score(&policy),
        ((2.4 + 3.8f64.powi(3) * 2.2) * 1e3).round() / 1e3
    );
    // One under way from here, and from each of two clients: q = 3.8 + 2.
    policy.sent(ms(0), &sent(2, 1, small()));
    assert_eq!(
        score(&policy),
        ((2.4 + 5.8f64.powi(3) * 2.2) * 1e3).round() / 1e3
    );
    assert_eq!(
        policy.read(ms(0), &small(), &[copy(1, 0), copy(2, 0)]),
        DiskId(2)
    );
}

#[test]
fn md_raid1_follows_on_then_uses_the_idle_then_the_nearest() {
    let mut policy = MdRaid1::default();
    let send = |policy: &mut MdRaid1, ticket, disk, byte| {
        let sent = Sent {
            candidate: copy(disk, byte),
            ..sent(ticket, disk, small())
        };
        policy.sent(ms(0), &sent);
    };
    let both = |byte| [copy(1, byte), copy(2, byte)];
    send(&mut policy, 1, 1, 100_000);
    send(&mut policy, 2, 1, 0);
    assert_eq!(
        reads(&mut policy, 1, &both(4_096)),
        [1],
        "follows on what was sent"
    );
    assert_eq!(reads(&mut policy, 1, &both(104_096)), [2], "the idle one");
    policy.answered(ms(1), DiskId(1), Ticket(1), &reply(1, None));
    assert_eq!(
        reads(&mut policy, 1, &both(104_096)),
        [1],
        "its head is there"
    );
    send(&mut policy, 3, 2, 900_000);
    send(&mut policy, 4, 2, 900_000);
    policy.answered(ms(1), DiskId(2), Ticket(3), &reply(1, None));
    assert_eq!(
        reads(&mut policy, 1, &both(400_000)),
        [1],
        "the nearest of two busy ones"
    );
    assert_eq!(reads(&mut policy, 1, &both(600_000)), [2]);
    send(&mut policy, 5, 2, 700_000);
    let flash = |byte| {
        both(byte).map(|it| Candidate {
            rotating: false,
            ..it
        })
    };
    assert_eq!(
        reads(&mut policy, 1, &flash(600_000)),
        [1],
        "flash: the shorter line"
    );
}

#[test]
fn the_oracle_counts_device_time_and_asks_for_every_queue() {
    let mut policy = Oracle::new(Weights::default());
    let state = State {
        cost: Nanos::millis(500),
        ..busy(0, 10)
    };
    policy.heard(ms(0), DiskId(1), &state);
    policy.heard(ms(0), DiskId(2), &busy(0, 11));
    assert_eq!(reads(&mut policy, 1, &[copy(1, 500), copy(2, 500)]), [1]);
    for kind in Kind::ALL {
        let policy = build(kind, &Options::default());
        assert_eq!(policy.needs_exact_states(), kind == Kind::Oracle);
    }
}

#[test]
fn all_choose_what_is_listed_place_apart_with_room_and_repeat_themselves() {
    for kind in Kind::ALL {
        let run = || {
            let mut policy = build(kind, &Options::default());
            let mut dice = chance::Chance::new(3);
            let mut history = Vec::new();
            for ticket in 0..400 {
                let now = ms(ticket * 5);
                let first = dice.below(6) as u32;
                let copies: Vec<Candidate> = (0..=dice.below(3) as u32)
                    .map(|i| copy(first + i, 512 * ticket))
                    .collect();
                let read = policy.read(now, &small(), &copies);
                let candidate = *copies.iter().find(|it| it.disk == read).expect("listed");
                policy.sent(
                    now,
                    &Sent {
                        candidate,
                        ..sent(ticket, 0, small())
                    },
                );
                let disks: Vec<Target> = (0..9)
                    .map(|i| Target {
                        domain: DomainId(i / 3),
                        free: Bytes(4_095 + u64::from(i % 2)),
                        ..target(i)
                    })
                    .collect();
                let placed = policy
                    .place(now, &small(), 3, &disks)
                    .expect("room in each");
                let mut domains: Vec<u32> = placed.iter().map(|it| it.0 / 3).collect();
                domains.sort_unstable();
                assert_eq!(domains, [0, 1, 2], "{kind}");
                assert!(placed.iter().all(|it| it.0 % 2 == 1), "{kind}: room");
                let refused = policy.place(now, &small(), 4, &disks).unwrap_err();
                assert!(matches!(
                    refused,
                    PlaceError::TooFewDomains { with_room: 3, .. }
                ));
                if dice.below(3) > 0 {
                    let answer = reply(3, Some(busy(now.0, ticket % 40)));
                    policy.answered(now + Nanos::millis(4), read, Ticket(ticket), &answer);
                }
                policy.heard(now, DiskId(first), &busy(now.0, dice.below(50) as u64));
                history.push((read, placed));
            }
            history
        };
        assert_eq!(run(), run(), "{kind}");
    }
}
