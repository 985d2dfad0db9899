//! The parts of the stronger policy, one by one.

use super::*;

fn with(options: TanadaOptions) -> Tanada {
    Tanada::new(Weights::default(), options, 1)
}

/// 4 KiB behind no other request: a seek and 12 ns a byte from afar.
const ALONE: Nanos = Nanos(8_000_000 + 49_152);

fn small() -> Request {
    read_of(1, Class::Normal, 4_096)
}

#[test]
fn an_old_state_gives_way_to_the_disks_mean() {
    let mut policy = with(TanadaOptions {
        ageing: Some(Nanos::millis(200)),
        ..TanadaOptions::published()
    });
    let state = State {
        work_mean: Nanos::millis(40),
        utilisation: Permille(500),
        ..busy(0, 100)
    };
    policy.heard(Instant(0), DiskId(1), &state);
    let waiting = |at| policy.score(ms(at), &small(), &copy(1, 500)).0 - ALONE.0;
    // After 100 ms half of them is served, 60.65 % of the rest counts, and 39.35 % of the mean.
    for (at, micros) in [(0, 100_000), (100, 46_065), (200, 25_285), (5_000, 40_000)] {
        assert!(
            (waiting(at) / 1_000).abs_diff(micros) < 2,
            "{at}: {}",
            waiting(at)
        );
    }
}

#[test]
fn own_requests_the_state_does_not_know_are_added_until_they_are_answered() {
    let mut policy = with(TanadaOptions {
        own: true,
        ..TanadaOptions::published()
    });
    let score = |policy: &Tanada| policy.score(ms(20), &small(), &copy(1, 500));
    policy.sent(ms(5), &sent(1, 1, small()));
    policy.heard(ms(10), DiskId(1), &busy(10_000_000, 30));
    assert_eq!(
        score(&policy),
        Nanos::millis(30) + ALONE,
        "it is in the 30 ms"
    );
    policy.sent(ms(15), &sent(2, 1, small()));
    policy.sent(ms(15), &sent(3, 1, small()));
    // The first of them follows the start of the disk, the second is the same block once more.
    let own = Nanos(49_152) + ALONE;
    assert_eq!(score(&policy), Nanos::millis(30) + own + ALONE);
    policy.answered(ms(18), DiskId(1), Ticket(2), &reply(1, None));
    assert_eq!(score(&policy), Nanos::millis(30) + ALONE + ALONE);
    policy.failed(ms(18), DiskId(1), Ticket(3), false);
    assert_eq!(score(&policy), Nanos::millis(30) + ALONE);
}

#[test]
fn an_own_request_at_a_disk_that_seeks_waits_for_the_others_once_more() {
    let turns = |candidate: Candidate| {
        let mut policy = with(TanadaOptions {
            own: true,
            waits: Waits::Turns,
            ..TanadaOptions::published()
        });
        let request = small();
        let sent = |ticket| Sent {
            candidate,
            request,
            ..sent(ticket, 1, request)
        };
        policy.sent(ms(5), &sent(1));
        // The disk has 30 ms, of which the own request is a part.
        policy.heard(ms(10), DiskId(1), &busy(10_000_000, 30));
        policy.score(ms(10), &request, &candidate)
    };
    let others = Nanos::millis(30) - ALONE;
    assert_eq!(turns(copy(1, 500)), others * 2 + ALONE + ALONE);
    // Flash serves them together.
    assert_eq!(turns(flash(1)), Nanos::millis(30) + ALONE);
}

#[test]
fn a_disk_that_is_late_with_an_own_request_may_need_as_long_again() {
    let options = TanadaOptions {
        late: true,
        ..TanadaOptions::published()
    };
    let mut policy = Tanada::new(Weights::default(), options, 1);
    let (here, there) = (copy(1, 1 << 30), copy(2, 1 << 30));
    let sent = Sent {
        ticket: Ticket(1),
        candidate: here,
        request: small(),
        hedge: false,
    };
    policy.sent(ms(0), &sent);
    let score = |policy: &Tanada, at| policy.score(ms(at), &small(), &here);
    let alone = policy.score(ms(0), &small(), &there);
    assert_eq!(score(&policy, 8), alone, "it is not late yet");
    assert_eq!(score(&policy, 100), alone + Nanos::millis(100) - alone);
    assert_eq!(policy.read(ms(100), &small(), &[here, there]), DiskId(2));
    policy.answered(
        ms(101),
        DiskId(1),
        Ticket(1),
        &Reply {
            residence: Nanos::millis(101),
            service: Nanos::millis(101),
            state: None,
        },
    );
    assert_eq!(score(&policy, 102), alone, "it has answered");
}

#[test]
fn a_disk_whose_late_requests_are_given_up_is_tried_after_as_long_a_silence() {
    let options = TanadaOptions {
        late: true,
        ..TanadaOptions::published()
    };
    let mut policy = Tanada::new(Weights::default(), options, 1);
    let here = copy(1, 1 << 30);
    let alone = policy.score(ms(0), &small(), &here);
    let send = |policy: &mut Tanada, at, ticket| {
        let sent = Sent {
            ticket: Ticket(ticket),
            candidate: here,
            request: small(),
            hedge: false,
        };
        policy.sent(ms(at), &sent);
    };
    let score = |policy: &Tanada, at| policy.score(ms(at), &small(), &here);
    // It should have answered after `alone`, about 8 ms; given up in time it says nothing.
    send(&mut policy, 0, 1);
    policy.failed(ms(5), DiskId(1), Ticket(1), false);
    assert_eq!(score(&policy, 6), alone);
    send(&mut policy, 10, 2);
    policy.failed(ms(30), DiskId(1), Ticket(2), false);
    let silent = Nanos::millis(20) - alone;
    assert_eq!(score(&policy, 30), silent + alone);
    assert_eq!(score(&policy, 35), silent - Nanos::millis(5) + alone);
    assert_eq!(score(&policy, 45), alone, "now it is tried");
    // Still nothing: its silence is counted from the beginning.
    send(&mut policy, 45, 3);
    assert_eq!(score(&policy, 50), Nanos::millis(40));
    policy.failed(ms(60), DiskId(1), Ticket(3), false);
    assert_eq!(score(&policy, 60), Nanos::millis(50));
    // A state that is newer knows better, and so does an answer.
    let mut updated = policy.clone();
    updated.heard(
        ms(61),
        DiskId(1),
        &State {
            at: ms(61),
            ..State::idle(Weights::default())
        },
    );
    assert_eq!(score(&updated, 62), alone);
    send(&mut policy, 62, 4);
    let reply = Reply {
        residence: Nanos::millis(1),
        service: Nanos::millis(1),
        state: None,
    };
    policy.answered(ms(63), DiskId(1), Ticket(4), &reply);
    assert_eq!(score(&policy, 64), alone);
}

#[test]
fn the_end_of_a_queue_counts_while_it_is_fresh_or_own() {
    let mut policy = with(TanadaOptions {
        own: true,
        fresh: Some(Nanos::millis(20)),
        ..TanadaOptions::published()
    });
    let follows = Nanos(49_152);
    let score = |policy: &Tanada, at, byte| policy.score(ms(at), &small(), &copy(1, byte));
    policy.heard(ms(0), DiskId(1), &busy(0, 0));
    assert_eq!(score(&policy, 20, 0), follows);
    assert_eq!(score(&policy, 21, 0), ALONE, "others may have come");
    policy.sent(ms(30), &sent(1, 1, small()));
    policy.answered(ms(39), DiskId(1), Ticket(1), &reply(8, None));
    assert_eq!(
        score(&policy, 500, 4_096),
        follows,
        "nothing newer is known"
    );
    policy.heard(ms(501), DiskId(1), &busy(501_000_000, 0));
    assert_eq!(score(&policy, 501, 4_096), ALONE);
}

#[test]
fn who_was_last_is_forgotten_with_time() {
    let mut policy = with(TanadaOptions {
        class_memory: Some(Nanos::millis(200)),
        ..TanadaOptions::published()
    });
    let last = Some(Origin {
        client: ClientId(9),
        class: Class::High,
    });
    let state = busy(0, 0);
    let tail = Tail { last, ..state.tail };
    policy.heard(ms(0), DiskId(1), &State { tail, ..state });
    let request = Request {
        penalties: Penalties::default(),
        ..small()
    };
    let seeks = |at| {
        let score = policy.score(ms(at), &request, &copy(1, 500));
        (score - Nanos(49_152)).0 / 80_000
    };
    // In hundredths of a seek: 20 times at first, 1 + 19/e after 200 ms, once in the end.
    assert_eq!([seeks(0), seeks(200), seeks(5_000)], [2_000, 799, 100]);
}

#[test]
fn a_preferred_client_is_seen_behind_others() {
    let mut queue = DiskQueue::new(QueueOptions::default());
    let preferred = read_of(9, Class::High, 4_096);
    let foremost = |queue: &mut DiskQueue, at| queue.report(ms(at)).foremost;
    queue
        .enqueue(ms(0), Ticket(1), &preferred, None, true)
        .unwrap();
    queue
        .enqueue(ms(0), Ticket(2), &small(), None, true)
        .unwrap();
    assert_eq!(foremost(&mut queue, 5), Some(Class::High));
    queue.complete(ms(10), Ticket(1), Nanos::millis(10));
    assert_eq!(foremost(&mut queue, 11), Some(Class::Normal));
    queue.complete(ms(20), Ticket(2), Nanos::millis(10));
    assert_eq!(foremost(&mut queue, 21), None);

    let mut policy = with(TanadaOptions {
        presence: true,
        ..TanadaOptions::published()
    });
    let state = State {
        foremost: Some(Class::High),
        ..busy(0, 0)
    };
    policy.heard(ms(0), DiskId(1), &state);
    let seeks = |class, byte| {
        let request = Request {
            penalties: Penalties::default(),
            ..read_of(1, class, 4_096)
        };
        (policy.score(ms(0), &request, &copy(1, byte)) - Nanos(49_152)).0 / 8_000_000
    };
    assert_eq!(
        [seeks(Class::Normal, 500), seeks(Class::High, 500)],
        [20, 1]
    );
    assert_eq!(
        seeks(Class::Normal, 0),
        0,
        "who follows on disturbs no other"
    );
}

#[test]
fn among_equals_chance_decides_and_nobody_else_gets_anything() {
    let mut policy = with(TanadaOptions {
        epsilon: Some(Permille(100)),
        ..TanadaOptions::published()
    });
    for (disk, millis) in [(1, 100), (2, 105), (3, 120)] {
        policy.heard(ms(0), DiskId(disk), &busy(0, millis));
    }
    let copies = [copy(1, 500), copy(2, 500), copy(3, 500)];
    let mut got = [0; 4];
    for _ in 0..1_000 {
        got[policy.read(ms(0), &small(), &copies).0 as usize] += 1;
    }
    assert!(got[1] > 400 && got[2] > 400 && got[3] == 0, "{got:?}");
}

#[test]
fn a_disk_further_away_costs_its_hop() {
    let mut policy = with(TanadaOptions {
        net: true,
        ..TanadaOptions::published()
    });
    for (disk, micros) in [(1, 900), (2, 300)] {
        policy.sent(ms(0), &sent(1, disk, small()));
        // Eight milliseconds there; a byte takes 2 ns on the way beside the hop.
        let took = Nanos::micros(8_000 + micros) + Nanos(2 * 4_096);
        policy.answered(ms(0) + took, DiskId(disk), Ticket(1), &reply(8, None));
    }
    let score = |disk| policy.score(ms(9), &small(), &copy(disk, 500)) - ALONE;
    assert_eq!(
        [score(1), score(2)],
        [Nanos::micros(900), Nanos::micros(300)]
    );
    assert_eq!(
        policy.read(ms(9), &small(), &[copy(1, 500), copy(2, 500)]),
        DiskId(2)
    );
}

fn flash(disk: u32) -> Candidate {
    Candidate {
        rotating: false,
        ..copy(disk, 500)
    }
}

fn hedging(disks: HedgeDisks) -> Tanada {
    with(TanadaOptions {
        hedge: Some(HedgeOptions {
            disks,
            ..HedgeOptions::default()
        }),
        ..TanadaOptions::published()
    })
}

fn sent_to(ticket: u64, candidate: Candidate) -> Sent {
    Sent {
        candidate,
        ..sent(ticket, candidate.disk.0, small())
    }
}

#[test]
fn a_late_read_is_sent_again_once_to_another_copy() {
    let mut policy = hedging(HedgeDisks::Flash);
    (0..20).for_each(|ticket| policy.sent(ms(0), &sent_to(ticket, flash(1))));
    let late = policy.hedge_at(DiskId(1), Ticket(0)).unwrap();
    assert_eq!(late, ms(0) + ALONE * 3, "three times the prediction");
    let copies = [flash(1), flash(2)];
    let mut hedge = |now, ticket| policy.hedge(now, DiskId(1), Ticket(ticket), &copies);
    assert_eq!(hedge(late - Nanos(1), 0), None, "not late yet");
    assert_eq!(hedge(late, 99), None, "no such read");
    assert_eq!(hedge(late, 0), Some(DiskId(2)));
    assert_eq!(hedge(late, 0), None, "it has a second");
    assert_eq!(hedge(late, 1), None, "one of twenty");
    assert_eq!(policy.hedge_at(DiskId(1), Ticket(0)), None);
    let second = Sent {
        hedge: true,
        ..sent_to(50, flash(2))
    };
    policy.sent(late, &second);
    assert_eq!(
        policy.hedge_at(DiskId(2), Ticket(50)),
        None,
        "a second has no second"
    );
}

#[test]
fn hedging_waits_at_least_4_ms_and_spares_writes_and_disks_with_heads() {
    let quick = State::idle(Weights {
        seek: Nanos::micros(80),
        ..Weights::default()
    });
    let mut policy = hedging(HedgeDisks::Flash);
    policy.heard(ms(0), DiskId(1), &quick);
    policy.sent(ms(0), &sent_to(1, flash(1)));
    assert_eq!(policy.hedge_at(DiskId(1), Ticket(1)), Some(ms(4)));
    let write = Request {
        op: Op::Write,
        ..small()
    };
    let write = Sent {
        request: write,
        ..sent_to(2, flash(1))
    };
    policy.sent(ms(0), &write);
    assert_eq!(policy.hedge_at(DiskId(1), Ticket(2)), None);
    for (disks, may) in [(HedgeDisks::Flash, false), (HedgeDisks::All, true)] {
        let mut policy = hedging(disks);
        policy.sent(ms(0), &sent_to(1, copy(1, 0)));
        assert_eq!(policy.hedge_at(DiskId(1), Ticket(1)).is_some(), may);
    }
    let mut off = with(TanadaOptions::published());
    off.sent(ms(0), &sent_to(1, flash(1)));
    assert_eq!(off.hedge_at(DiskId(1), Ticket(1)), None);
}

#[test]
fn at_most_one_read_of_twenty_is_sent_twice_however_late_all_are() {
    let mut policy = hedging(HedgeDisks::All);
    let mut seconds = 0;
    for ticket in 0..2_000 {
        let at = ms(ticket * 100);
        policy.sent(at, &sent_to(ticket, flash(1)));
        let copies = [flash(1), flash(2)];
        let second = policy.hedge(at + Nanos::millis(90), DiskId(1), Ticket(ticket), &copies);
        seconds += u64::from(second.is_some());
        assert!(seconds <= (ticket + 1) / 20);
        policy.answered(
            at + Nanos::millis(95),
            DiskId(1),
            Ticket(ticket),
            &reply(95, None),
        );
    }
    assert_eq!(seconds, 100);
    // A quiet time does not save up more than the burst.
    for ticket in 2_000..4_000 {
        policy.sent(ms(200_000), &sent_to(ticket, flash(1)));
    }
    let copies = [flash(1), flash(2)];
    let hedge = |ticket| policy.hedge(ms(300_000), DiskId(1), Ticket(ticket), &copies);
    assert_eq!((3_000..4_000).filter_map(hedge).count(), 16);
}

fn ejecting() -> Tanada {
    with(TanadaOptions {
        eject: Some(EjectOptions::default()),
        ..TanadaOptions::published()
    })
}

/// Twenty reads of each disk, the second disk's answered so many times later than predicted.
fn twenty_answers(policy: &mut Tanada, from: Instant, times: u64) -> Instant {
    let mut now = from;
    for ticket in 0..20 {
        for disk in 1..=3 {
            policy.sent(now, &sent_to(ticket, copy(disk, 500)));
            let took = if disk == 2 { ALONE * times } else { ALONE };
            policy.answered(now + took, DiskId(disk), Ticket(ticket), &reply(8, None));
            now = now + took;
        }
    }
    now
}

#[test]
fn a_disk_that_turns_slow_is_avoided_for_a_while_but_not_as_the_last_copy() {
    let mut policy = ejecting();
    let now = twenty_answers(&mut policy, ms(0), 10);
    assert_eq!(policy.ejected(now), [DiskId(2)]);
    // It would be the cheapest by far.
    for disk in [1, 3] {
        policy.heard(now, DiskId(disk), &busy(now.0, 500));
    }
    let copies = [copy(1, 500), copy(2, 500), copy(3, 500)];
    assert_eq!(policy.read(now, &small(), &copies), DiskId(1));
    assert_eq!(policy.read(now, &small(), &[copy(2, 500)]), DiskId(2));
    let targets = [1, 2, 3].map(target);
    let place = |policy: &mut Tanada, copies, at| policy.place(at, &small(), copies, &targets);
    assert_eq!(place(&mut policy, 2, now).unwrap(), [DiskId(1), DiskId(3)]);
    let all = place(&mut policy, 3, now).unwrap();
    assert_eq!(all.len(), 3, "better a slow disk than a copy less");
    let later = now + Nanos::secs(5);
    assert_eq!(policy.ejected(later), []);
    assert_eq!(policy.read(later, &small(), &copies), DiskId(2));
    // Its record is clean again: it takes another sixteen answers.
    policy.sent(later, &sent_to(1, copy(2, 500)));
    policy.answered(later + ALONE * 10, DiskId(2), Ticket(1), &reply(8, None));
    assert_eq!(policy.ejected(later + ALONE * 10), []);
}

#[test]
fn a_disk_that_was_slow_is_asked_while_all_others_stall() {
    let mut policy = with(TanadaOptions {
        late: true,
        eject: Some(EjectOptions::default()),
        ..TanadaOptions::published()
    });
    let now = twenty_answers(&mut policy, ms(0), 10);
    let copies = [copy(1, 500), copy(2, 500)];
    policy.sent(now, &sent_to(100, copy(1, 500)));
    let soon = now + ALONE * 2;
    assert_eq!(policy.read(soon, &small(), &copies), DiskId(1));
    // Four times what was predicted.
    let stalled = now + ALONE * 5;
    assert_eq!(policy.ejected(stalled), [DiskId(2)]);
    assert_eq!(policy.read(stalled, &small(), &copies), DiskId(2));
    policy.answered(stalled, DiskId(1), Ticket(100), &reply(8, None));
    assert_eq!(policy.read(stalled, &small(), &copies), DiskId(1));
}

#[test]
fn nobody_is_avoided_where_all_are_slow_or_nobody_to_compare_with() {
    let mut policy = ejecting();
    let now = twenty_answers(&mut policy, ms(0), 3);
    assert_eq!(policy.ejected(now), [], "three times is not four");
    let mut policy = ejecting();
    for ticket in 0..40 {
        policy.sent(ms(0), &sent_to(ticket, copy(1, 500)));
        policy.answered(ms(900), DiskId(1), Ticket(ticket), &reply(8, None));
    }
    assert_eq!(policy.ejected(ms(900)), [], "no peers");
    for disk in 1..=3 {
        for ticket in 0..40 {
            policy.sent(ms(900), &sent_to(ticket, copy(disk, 500)));
            policy.answered(ms(1_800), DiskId(disk), Ticket(ticket), &reply(8, None));
        }
    }
    assert_eq!(policy.ejected(ms(1_800)), [], "all alike");
}

#[test]
fn faults_count_and_so_does_silence() {
    let mut policy = ejecting();
    let now = twenty_answers(&mut policy, ms(0), 1);
    for ticket in 0..20 {
        policy.sent(now, &sent_to(ticket, copy(2, 500)));
        policy.failed(now, DiskId(2), Ticket(ticket), true);
    }
    assert_eq!(policy.ejected(now), [DiskId(2)]);
    let mut policy = ejecting();
    policy.sent(ms(0), &sent_to(1, copy(2, 500)));
    let copies = [copy(2, 500), copy(3, 500)];
    let read = |policy: &mut Tanada, at| policy.read(ms(at), &small(), &copies);
    assert_eq!(read(&mut policy, 1_000), DiskId(2));
    assert_eq!(
        read(&mut policy, 1_001),
        DiskId(3),
        "a second without a word"
    );
    policy.failed(ms(1_002), DiskId(2), Ticket(1), false);
    assert_eq!(
        read(&mut policy, 1_003),
        DiskId(2),
        "it was cancelled: nothing is known"
    );
}

#[test]
fn new_copies_go_where_there_is_room_and_headroom() {
    let options = TanadaOptions {
        choices: TanadaOptions::default().choices,
        ..TanadaOptions::published()
    };
    let mut policy = with(options);
    let full = Target {
        free: Bytes::gib(1),
        ..target(1)
    };
    let promised = Target {
        reserved: Permille(900),
        ..target(2)
    };
    let place = |policy: &mut Tanada, disks: &[Target]| policy.place(ms(0), &small(), 2, disks);
    for _ in 0..20 {
        let mut disks = place(&mut policy, &[full, promised, target(3), target(4)]).unwrap();
        disks.sort_unstable();
        assert_eq!(disks, [DiskId(3), DiskId(4)]);
    }
    // Work outweighs both: 20 ms more of it is more than a full disk is worse.
    policy.heard(ms(0), DiskId(3), &busy(0, 21));
    policy.heard(ms(0), DiskId(4), &busy(0, 42));
    let disks = place(&mut policy, &[full, promised, target(3), target(4)]).unwrap();
    assert_eq!(disks, [DiskId(1), DiskId(2)]);
}

#[test]
fn placement_by_old_states_does_not_run_to_one_disk() {
    let place_all = |options| {
        let mut policy = with(options);
        let targets: Vec<Target> = (0..20).map(target).collect();
        // All were busy when last heard of, but one.
        (1..20).for_each(|disk| policy.heard(ms(0), DiskId(disk), &busy(0, 30)));
        let mut got = vec![0; 20];
        for _ in 0..600 {
            for disk in policy.place(ms(400), &small(), 2, &targets).unwrap() {
                got[disk.0 as usize] += 1;
            }
        }
        got
    };
    let published = place_all(TanadaOptions::published());
    assert_eq!(published[..2], [600, 600], "the first two, each time");
    let ours = place_all(TanadaOptions::default());
    // Every disk is drawn in 6 of 20 cases.
    assert!(ours.iter().all(|got| (20..=240).contains(got)), "{ours:?}");
}

#[test]
fn lost_late_doubled_and_absurd_messages_do_no_harm() {
    let mut policy = with(TanadaOptions::default());
    policy.answered(ms(1), DiskId(1), Ticket(1), &reply(1, None));
    policy.failed(ms(1), DiskId(1), Ticket(1), true);
    policy.sent(ms(2), &sent(1, 1, small()));
    for _ in 0..3 {
        policy.answered(ms(1), DiskId(1), Ticket(1), &reply(1, Some(busy(0, 5))));
    }
    let absurd = State {
        at: Instant(u64::MAX),
        cost: Nanos(u64::MAX),
        work: Nanos(u64::MAX),
        work_mean: Nanos(u64::MAX),
        utilisation: Permille(u32::MAX),
        queued: Bytes(u64::MAX),
        requests: u32::MAX,
        weights: Weights {
            local: PerByte(u64::MAX),
            remote: PerByte(u64::MAX),
            seek: Nanos(u64::MAX),
        },
        ..busy(0, 0)
    };
    let request = Request {
        penalties: Penalties {
            other: Permille(u32::MAX),
            ..Penalties::default()
        },
        ..read_of(2, Class::Normal, 1 << 40)
    };
    for kind in Kind::ALL {
        let mut policy = build(kind, &Options::default());
        policy.heard(ms(3), DiskId(1), &absurd);
        policy.sent(ms(3), &sent(7, 1, request));
        policy.answered(ms(4), DiskId(1), Ticket(7), &reply(1, Some(absurd)));
        let copies = [copy(1, 0), copy(2, 0)];
        let got = policy.read(ms(5), &request, &copies);
        assert!([DiskId(1), DiskId(2)].contains(&got), "{kind}");
        assert!(
            policy
                .place(ms(5), &small(), 2, &[target(1), target(2)])
                .is_ok()
        );
    }
}

#[test]
fn the_disks_own_figures_are_what_clients_reckon_with() {
    let mut queue = DiskQueue::new(Kind::Tanada.queue(Weights::default()));
    // A disk that positions in 2 ms and not in 8.
    for i in 0..500 {
        let at = At {
            object: 0,
            byte: (i % 2) * 1_000_000,
        };
        queue
            .enqueue(ms(i * 10), Ticket(i), &small(), Some(at), false)
            .unwrap();
        queue.complete(ms(i * 10 + 2), Ticket(i), Nanos::millis(2));
    }
    let state = queue.report(ms(5_000));
    assert!(
        state.weights.seek.0.abs_diff(2_000_000) < 200_000,
        "{state:?}"
    );
    // Busy two milliseconds of ten, and then with one of them on average.
    assert!(state.utilisation.0.abs_diff(200) < 10, "{state:?}");
    assert!(state.work_mean.0.abs_diff(200_000) < 150_000, "{state:?}");
    let published = DiskQueue::new(Kind::QueueCost.queue(Weights::default()));
    assert_eq!(published.weights(), Weights::default());
}

#[test]
fn what_is_done_of_the_first_request_is_no_work_any_more() {
    let mut queue = DiskQueue::new(QueueOptions::default());
    let at = Some(At { object: 3, byte: 0 });
    for ticket in 0..2 {
        queue
            .enqueue(ms(10), Ticket(ticket), &small(), at, false)
            .unwrap();
    }
    let work = |queue: &mut DiskQueue, at| queue.report(ms(at)).work;
    assert_eq!(work(&mut queue, 10), ALONE * 2);
    assert_eq!(work(&mut queue, 15), ALONE * 2 - Nanos::millis(5));
    assert_eq!(work(&mut queue, 10 + 8), ALONE * 2 - Nanos::millis(8));
    let late = Nanos::millis(89) - ALONE;
    assert_eq!(
        work(&mut queue, 99),
        ALONE + late,
        "as late as it is, it may be that late again"
    );
    assert_eq!(
        queue.report(ms(99)).cost,
        ALONE * 2,
        "the published cost stays"
    );
    queue.complete(ms(100), Ticket(0), Nanos::millis(90));
    assert_eq!(work(&mut queue, 101), ALONE - Nanos::millis(1));
}

#[test]
fn a_queue_tells_how_long_requests_are_that_are_not_of_low_class() {
    let mut queue = DiskQueue::new(QueueOptions::default());
    let mean = |queue: &mut DiskQueue| queue.report(ms(0)).mean;
    assert_eq!(mean(&mut queue), Bytes(0));
    let requests = [
        (Class::Low, 4_000_000),
        (Class::Normal, 4_000),
        (Class::High, 8_000),
    ];
    for (ticket, (class, bytes)) in (1..).zip(requests) {
        queue
            .enqueue(ms(0), Ticket(ticket), &read_of(1, class, bytes), None, true)
            .unwrap();
    }
    assert_eq!(mean(&mut queue), Bytes(6_000));
    assert_eq!(queue.report(ms(0)).queued, Bytes(4_012_000));
    queue.complete(ms(1), Ticket(3), Nanos::millis(1));
    assert_eq!(mean(&mut queue), Bytes(4_000));
    queue.cancel(ms(1), Ticket(2));
    assert_eq!(mean(&mut queue), Bytes(0), "one of low class is left");
}

/// Disks with so much to do, where requests of 1 MiB wait, at `at`.
fn report_load(policy: &mut Tanada, at: u64, disks: &[(u32, u64)]) {
    for (disk, millis) in disks {
        let state = State {
            at: ms(at),
            mean: Bytes::mib(1),
            ..busy(0, *millis)
        };
        policy.heard(ms(at), DiskId(*disk), &state);
    }
}

#[test]
fn a_small_read_leaves_the_emptier_disk_to_larger_ones_unless_it_is_late() {
    let mut policy = with(TanadaOptions {
        yielding: Some(YieldOptions::default()),
        ..TanadaOptions::published()
    });
    let copies = [copy(1, 1 << 30), copy(2, 1 << 30)];
    let read = |policy: &mut Tanada, request: &Request| policy.read(ms(0), request, &copies).0;
    // 20 to 60 ms until it is answered at best: 40 as a rule, and 20 ms from that.
    for _ in 0..400 {
        for millis in [12, 52] {
            report_load(&mut policy, 0, &[(1, millis), (2, 400)]);
            assert_eq!(read(&mut policy, &small()), 1, "400 ms are late");
        }
    }
    report_load(&mut policy, 0, &[(1, 32), (2, 52)]);
    assert_eq!(read(&mut policy, &small()), 2);
    let large = read_of(1, Class::Normal, 1 << 20);
    let preferred = read_of(1, Class::High, 4_096);
    assert_eq!(
        read(&mut policy, &large),
        1,
        "who is not small takes the least"
    );
    assert_eq!(
        read(&mut policy, &preferred),
        1,
        "nor do the preferred yield"
    );
    // 40 and 1.2 times 20 are 64: 68 is late.
    report_load(&mut policy, 0, &[(1, 32), (2, 60)]);
    assert_eq!(read(&mut policy, &small()), 1);
    // All are later than usual: the least late.
    report_load(&mut policy, 0, &[(1, 90), (2, 80)]);
    assert_eq!(read(&mut policy, &small()), 2);
}

#[test]
fn among_requests_of_one_length_nobody_yields() {
    let mut policy = with(TanadaOptions {
        yielding: Some(YieldOptions::default()),
        ..TanadaOptions::published()
    });
    for (disk, millis) in [(1, 32), (2, 37)] {
        let state = State {
            mean: Bytes(4_096 * 3),
            ..busy(0, millis)
        };
        for _ in 0..1_000 {
            policy.heard(ms(0), DiskId(disk), &state);
        }
    }
    let copies = [copy(1, 1 << 30), copy(2, 1 << 30)];
    assert_eq!(policy.read(ms(0), &small(), &copies), DiskId(1));
}

#[test]
fn who_is_alone_uses_both_disks_and_who_is_not_keeps_to_the_cheaper() {
    let options = TanadaOptions {
        alone: Some(Nanos::secs(1)),
        ..TanadaOptions::published()
    };
    let mut policy = with(options);
    let copies = [copy(1, 4_096), copy(2, 1 << 30)];
    let last = |client| Tail {
        end: Some(At {
            object: 0,
            byte: 4_096,
        }),
        last: Some(Origin {
            client: ClientId(client),
            class: Class::Normal,
        }),
    };
    let hear = |policy: &mut Tanada, at, client| {
        for disk in [1, 2] {
            let state = State {
                tail: last(client),
                ..busy(at * 1_000_000, 0)
            };
            policy.heard(ms(at), DiskId(disk), &state);
        }
    };
    let answer = |policy: &mut Tanada, disk, ticket| {
        policy.sent(ms(0), &sent(ticket, disk, small()));
        policy.answered(ms(5), DiskId(disk), Ticket(ticket), &reply(5, None));
    };
    answer(&mut policy, 1, 1);
    answer(&mut policy, 2, 2);
    hear(&mut policy, 5, 1);
    // It would follow on at the first disk, where one of its own is under way.
    policy.sent(ms(5), &sent(3, 1, small()));
    assert_eq!(policy.read(ms(5), &small(), &copies), DiskId(2));
    // Long ago: it is unknown which clients are there.
    assert_eq!(policy.read(ms(2_000), &small(), &copies), DiskId(1));
    // Another client was there last.
    hear(&mut policy, 2_000, 7);
    assert_eq!(policy.read(ms(2_000), &small(), &copies), DiskId(1));
    // Nor is it alone where more wait than its own.
    hear(&mut policy, 3_000, 1);
    assert_eq!(policy.read(ms(3_000), &small(), &copies), DiskId(2));
    let shared = State {
        requests: 2,
        tail: last(1),
        ..busy(3_001_000_000, 0)
    };
    policy.heard(ms(3_001), DiskId(1), &shared);
    assert_eq!(policy.read(ms(3_001), &small(), &copies), DiskId(1));
}

#[test]
fn a_queue_that_is_full_says_so() {
    let mut queue = DiskQueue::new(QueueOptions {
        queued_max: 1,
        ..QueueOptions::default()
    });
    assert!(
        queue
            .enqueue(ms(0), Ticket(1), &small(), None, true)
            .is_ok()
    );
    let full = queue.enqueue(ms(0), Ticket(2), &small(), None, true);
    assert_eq!(
        full.unwrap_err().to_string(),
        "cannot queue a request: 1 wait at this disk already, which is the most; try again when one is answered"
    );
    assert_eq!(queue.report(ms(0)).requests, 1);
}
