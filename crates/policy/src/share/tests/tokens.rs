//! The paper's token arithmetic as a case file that any reader can check by eye.

use base::{Bytes, Instant, Nanos};

use super::super::*;

fn numbers(text: &str) -> Vec<u64> {
    let numbers = text.split_whitespace();
    numbers.map(|n| n.parse().expect("a number")).collect()
}

#[test]
fn tokens_are_what_the_case_file_says() {
    let (mut round, mut rates) = (0, Vec::new());
    let mut checked = 0;
    for line in include_str!("cases/tokens.case").lines() {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "" | "#" => continue,
            "round" => round = numbers(rest)[0],
            "rates" => rates = numbers(rest),
            "tokens" => {
                let reserved: Vec<_> = rates.iter().map(|mb| BytesPerSec::mb(*mb)).collect();
                let tokens = share_round(Bytes::mib(round), &reserved).unwrap();
                let tokens: Vec<u64> = tokens.iter().map(|bytes| bytes.0).collect();
                assert_eq!(tokens, numbers(rest), "round {round} rates {rates:?}");
                assert_eq!(
                    started(round, &rates, false).1,
                    numbers(rest),
                    "as the scheduler has them"
                );
            }
            "order" => {
                let wanted = numbers(rest);
                let (mut queue, _) = started(round, &rates, false);
                let mut order = Vec::new();
                for _ in 0..wanted.len() {
                    let Next::Dispatch(dispatch) = queue.next(Instant(0)) else {
                        break;
                    };
                    order.push(dispatch.ticket.0);
                    queue.completed(Instant(0), &dispatch, dispatch.bytes);
                }
                assert_eq!(order, wanted, "round {round} rates {rates:?}");
            }
            other => panic!("'{other}' is no word of a case"),
        }
        checked += 1;
    }
    assert_eq!(checked, 19);
}

/// A round of `round` MiB among sessions that all have more waiting than it takes, and their tokens
/// when it began.
fn started(round: u64, rates: &[u64], join: bool) -> (Rounds, Vec<u64>) {
    let options = RoundsOptions {
        round_ios: round,
        join,
        ..RoundsOptions::default()
    };
    let costs = Costs::flat(BytesPerSec::mb(100));
    let mut queue = Rounds::new(Limits::default(), Nanos::secs(1), costs, options);
    let now = Instant(0);
    for (i, rate) in rates.iter().enumerate() {
        let terms = Terms::reserved(Direction::Read, BytesPerSec::mb(*rate));
        let id = queue.open(now, terms).unwrap();
        for _ in 0..round {
            let request = Request {
                ticket: Ticket(i as u64 + 1),
                direction: Direction::Read,
                bytes: Bytes::mib(1),
                approach: Approach::Follows,
            };
            queue.enqueue(now, Lane::Session(id), request).unwrap();
        }
    }
    let mut asked = queue.clone();
    let Next::Dispatch(first) = asked.next(now) else {
        panic!("everybody waits");
    };
    let mut tokens: Vec<u64> = asked.tokens().iter().map(|(_, it)| *it as u64).collect();
    tokens[first.ticket.0 as usize - 1] += first.bytes.0;
    (queue, tokens)
}

#[test]
fn equation_one_gives_what_the_paper_shares_out() {
    let rates = load(BytesPerSec::mb(200), Share::percent(10), 1);
    assert_eq!(rates, [BytesPerSec::mb(180)]);
    for n in 1..=64 {
        let sum = total_of(&load(BytesPerSec::mb(236), Share::percent(15), n));
        assert!((200_599_900..=200_600_000).contains(&sum.0), "n={n}: {sum}");
    }
}

#[test]
fn memory_is_split_to_the_byte_or_refused() {
    let rates = [BytesPerSec(1), BytesPerSec(1), BytesPerSec(1)];
    let parts = split_memory(Bytes(100), Bytes(10), &rates).unwrap();
    assert_eq!(parts, [Bytes(34), Bytes(33), Bytes(33)]);
    let refusal = split_memory(Bytes(20), Bytes(10), &rates)
        .unwrap_err()
        .to_string();
    assert_eq!(
        refusal,
        "cannot give 3 sessions at least 10 B each of 20 B; lower the floor"
    );
    let refusal = share_round(Bytes(1), &[BytesPerSec(1), BytesPerSec(0)]).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "cannot split by reservations: number 1 (from 0) is zero; leave it out"
    );
}

#[test]
fn a_newcomer_shares_what_is_left_of_the_round_if_it_may_join() {
    let (mut queue, _) = started(8, &[1, 1], false);
    let (mut joined, _) = started(8, &[1, 1], true);
    for queue in [&mut queue, &mut joined] {
        for _ in 0..2 {
            let Next::Dispatch(dispatch) = queue.next(Instant(0)) else {
                panic!("both wait");
            };
            queue.completed(Instant(0), &dispatch, dispatch.bytes);
        }
        let terms = Terms::reserved(Direction::Read, BytesPerSec::mb(1));
        queue.open(Instant(0), terms).unwrap();
    }
    let of = |queue: &Rounds| {
        queue
            .tokens()
            .iter()
            .map(|(_, it)| it >> 20)
            .collect::<Vec<_>>()
    };
    // 6 of 8 are left, 3 each: a third of it is the newcomer's.
    assert_eq!(of(&queue), [3, 3, 0]);
    assert_eq!(of(&joined), [2, 2, 2]);
}
