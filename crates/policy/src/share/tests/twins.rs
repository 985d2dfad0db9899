//! Do the rounds and the tags decide as their plain reference models do, whatever comes in whatever order?

use std::collections::BTreeMap;

use base::{Bytes, Instant, Nanos};
use proptest::prelude::*;

use super::super::*;
use super::Dice;
use super::naive::{Line, NaiveRounds, NaiveTags, Out};

fn costs() -> Costs {
    costs_at(BytesPerSec::mb(200))
}

fn costs_at(rate: BytesPerSec) -> Costs {
    let cost = Cost {
        fixed: Nanos::micros(100),
        jump: Nanos(0),
        rate,
    };
    Costs {
        read: cost,
        write: cost,
    }
}

fn request(ticket: u64, bytes: u64) -> Request {
    Request {
        ticket: Ticket(ticket),
        direction: Direction::Read,
        bytes: Bytes(bytes),
        approach: Approach::Follows,
    }
}

fn compare_rounds(join: bool, depth: u32, seed: u64, steps: u64) -> usize {
    let options = RoundsOptions {
        round_ios: 8,
        unit: Bytes::mib(1),
        depth,
        join,
    };
    let mut queue = Rounds::new(Limits::default(), Nanos::secs(1), costs(), options);
    let mut twin = NaiveRounds {
        round: 8 << 20,
        join,
        depth,
        ..NaiveRounds::default()
    };
    let mut dice = Dice::new(seed);
    let (mut sent, mut ticket, mut commits) = (Vec::new(), 0, 0);
    for step in 0..steps {
        let now = Instant(step);
        let pick =
            |dice: &mut Dice, n: usize| (n > 0).then(|| dice.below(n.max(1) as u64) as usize);
        match dice.below(10) {
            0 if twin.lines.len() < 5 => {
                let rate = dice.below(5) * 1_000_000;
                let terms = Terms::reserved(Direction::Read, BytesPerSec(rate));
                let id = queue.open(now, terms).unwrap();
                twin.open(id.0, rate);
            }
            1 if dice.below(4) == 0 => {
                if let Some(i) = pick(&mut dice, twin.lines.len()) {
                    let line = twin.lines.remove(i);
                    let closed = queue.close(now, SessionId(line.id)).unwrap();
                    let unserved: Vec<u64> = closed.unserved.iter().map(|it| it.0).collect();
                    let theirs: Vec<u64> = line.requests.iter().map(|it| it.0).collect();
                    assert_eq!(unserved, theirs, "seed {seed} step {step}");
                }
            }
            2 => {
                ticket += 1;
                twin.high.push((ticket, 4096));
                let lane = Lane::Metadata { charged: None };
                queue.enqueue(now, lane, request(ticket, 4096)).unwrap();
            }
            3..=6 => {
                if let Some(i) = pick(&mut dice, twin.lines.len()) {
                    ticket += 1;
                    let bytes = (1 + dice.below(3)) << 20;
                    twin.lines[i].requests.push((ticket, bytes, 0));
                    let lane = Lane::Session(SessionId(twin.lines[i].id));
                    queue.enqueue(now, lane, request(ticket, bytes)).unwrap();
                }
            }
            7 | 8 => {
                if let Some(i) = pick(&mut dice, sent.len()) {
                    let dispatch: Dispatch = sent.swap_remove(i);
                    queue.completed(now, &dispatch, dispatch.bytes);
                    twin.in_flight -= 1;
                }
            }
            _ if twin.committing => {
                queue.committed(now);
                twin.committing = false;
            }
            _ => {}
        }
        loop {
            let next = queue.next(now);
            assert_eq!(Out::from(next), twin.next(), "seed {seed} step {step}");
            match next {
                Next::Dispatch(dispatch) => sent.push(dispatch),
                Next::Commit => commits += 1,
                _ => break,
            }
        }
        let tokens: Vec<(u64, i64)> = queue.tokens().iter().map(|(id, it)| (id.0, *it)).collect();
        let theirs: Vec<(u64, i64)> = twin.lines.iter().map(|it| (it.id, it.tokens)).collect();
        assert_eq!(tokens, theirs, "seed {seed} step {step}");
    }
    commits
}

/// How often something waited, by what had to be given up.
fn compare_tags(depth: u32, seed: u64, steps: u64) -> [usize; 4] {
    let options = TagsOptions {
        depth: DepthOptions::fixed(depth),
        ..TagsOptions::default()
    };
    let mut dice = Dice::new(seed);
    // Short windows, so that promises are late by much of one in some runs.
    let window = Nanos::millis([30, 100, 1000][dice.below(3) as usize]);
    let options = TagsOptions {
        debt: window,
        ..options
    };
    // On fast devices pieces are longer; on the last no request is longer than a piece.
    let costs = costs_at(BytesPerSec::mb(
        [200, 200, 700, 6000][dice.below(4) as usize],
    ));
    let mut queue = Tags::new(Limits::default(), window, costs, options);
    let mut twin = NaiveTags {
        lines: Vec::new(),
        high: Vec::new(),
        costs,
        window: window.0,
        options,
        depth,
        in_flight: 0,
        accounts: BTreeMap::new(),
        spare: 0,
        shed: Shed::Nothing,
    };
    let (mut sent, mut ticket) = (Vec::new(), 0);
    let mut now = Instant(0);
    let mut seen = [0; 4];
    // In some runs the device is slower than thought, so that promises are late.
    let slow = [1, 1, 2, 6][dice.below(4) as usize];
    for step in 0..steps {
        now = now + Nanos::micros(dice.below(1200 * slow));
        let pick =
            |dice: &mut Dice, n: usize| (n > 0).then(|| dice.below(n.max(1) as u64) as usize);
        match dice.below(12) {
            0 if twin.lines.len() < 6 => {
                let rate = BytesPerSec(dice.below(90) * 1_000_000);
                let priority = Priority::ALL[dice.below(3) as usize];
                let terms = match dice.below(4) {
                    0 => Terms {
                        priority,
                        ..Terms::best_effort()
                    },
                    1 => Terms::background(
                        Direction::Read,
                        rate,
                        BytesPerSec(rate.0 * 2 + 1_000_000),
                    ),
                    _ => Terms::reserved(Direction::Read, rate),
                };
                // In half of the runs all are one account's.
                let account = Account {
                    id: seed % 2 * dice.below(3),
                    weight: 1 + dice.below(3) as u32,
                };
                let terms = Terms { account, ..terms };
                let id = queue.open(now, terms).unwrap();
                let weight = u64::from(account.weight);
                twin.accounts.entry(account.id).or_default().0 = weight;
                let begin = now.0.saturating_sub(twin.lag(now.0));
                let high = terms.priority == Priority::High;
                let weight = u128::from(terms.weight_quarters());
                let lead = u128::from(options.lead.0) * 4000 / weight;
                twin.lines.push(Line {
                    spare: twin.accounts[&account.id].2 + if high { lead } else { 0 },
                    id: id.0,
                    rate: terms.rate.0,
                    class: terms.class,
                    limit: terms.limit.map(|limit| limit.0),
                    weight: terms.weight_quarters(),
                    high,
                    account: account.id,
                    due: begin,
                    cushioned: begin,
                    ..Line::default()
                });
            }
            1 if dice.below(20) == 0 => {
                if let Some(i) = pick(&mut dice, twin.lines.len()) {
                    let line = twin.lines.remove(i);
                    queue.close(now, SessionId(line.id)).unwrap();
                    let has = |account: u64| twin.lines.iter().any(|it| it.account == account);
                    if !has(line.account) {
                        twin.accounts.remove(&line.account);
                    }
                    for high in &mut twin.high {
                        high.2 = high.2.filter(|id| *id != line.id);
                    }
                }
            }
            2 if dice.below(4) == 0 => {
                ticket += 1;
                let charged = pick(&mut dice, twin.lines.len()).map(|i| twin.lines[i].id);
                twin.high.push((ticket, 4096, charged));
                let charged = charged.map(SessionId);
                let lane = Lane::Metadata { charged };
                queue.enqueue(now, lane, request(ticket, 4096)).unwrap();
            }
            3..=6 => {
                if let Some(i) = pick(&mut dice, twin.lines.len()) {
                    ticket += 1;
                    let bytes = (1 + dice.below(256)) * 4096;
                    let id = twin.lines[i].id;
                    twin.enqueue(now.0, id, (ticket, bytes));
                    let lane = Lane::Session(SessionId(id));
                    queue.enqueue(now, lane, request(ticket, bytes)).unwrap();
                }
            }
            _ => {
                if let Some(i) = pick(&mut dice, sent.len()) {
                    let dispatch: Dispatch = sent.swap_remove(i);
                    queue.completed(now, &dispatch, dispatch.bytes);
                    twin.in_flight -= 1;
                }
            }
        }
        loop {
            let next = queue.next(now);
            assert_eq!(Out::from(next), twin.next(now.0), "seed {seed} step {step}");
            match next {
                Next::Dispatch(dispatch) => sent.push(dispatch),
                _ => break,
            }
        }
        assert_eq!(queue.shed(), twin.shed, "seed {seed} step {step}");
        seen[queue.shed() as usize] += usize::from(twin.lag(now.0) > 0);
    }
    seen
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rounds_are_their_naive_twin(join: bool, depth in 1u32..4, seed: u64) {
        compare_rounds(join, depth, seed, 800);
    }

    #[test]
    fn tags_are_their_naive_twin(depth in 1u32..4, seed: u64) {
        compare_tags(depth, seed, 2000);
    }
}

#[test]
fn the_twins_are_compared_where_it_matters() {
    assert!(compare_rounds(true, 1, 1, 2000) > 20, "rounds end");
    let mut seen = [0; 4];
    for seed in 0..30 {
        for (sum, n) in seen.iter_mut().zip(compare_tags(1, seed, 2000)) {
            *sum += n;
        }
    }
    assert!(
        seen.iter().all(|n| *n > 10),
        "every level of shedding: {seen:?}"
    );
}
