//! Both ways beside trying every order, and beside each other on long histories.

use proptest::prelude::*;

use super::*;

/// Every order: what could come next is what began before anything left was over.
fn naive(tag: Tag, left: &[Operation]) -> bool {
    let first_end = left.iter().filter_map(|it| it.ended).min();
    let Some(first_end) = first_end else {
        return true;
    };
    (0..left.len()).any(|at| {
        let operation = left[at];
        let mut rest = left.to_vec();
        rest.remove(at);
        operation.began < first_end
            && match operation.act {
                Act::Read(found) => found == tag && naive(tag, &rest),
                Act::Write(tag) => naive(tag, &rest),
            }
    })
}

/// Operations with distinct moments; each write of a tag but zero happens once.
fn histories(zeroes: bool) -> impl Strategy<Value = Vec<Operation>> {
    let one = (0..100_u64, 1..60_u64, 0..10_u8, 0..4_u64, 0..4_u8);
    proptest::collection::vec(one, 1..8).prop_map(move |parts| {
        let mut written = BTreeSet::new();
        let mut operations = Vec::new();
        for (at, (began, len, kind, tag, fate)) in parts.into_iter().enumerate() {
            let reads =
                kind < 5 || (tag == ZERO && !zeroes) || (tag != ZERO && !written.insert(tag));
            let act = if reads {
                Act::Read(tag)
            } else {
                Act::Write(tag)
            };
            // Distinct: the number of the operation is the last digit.
            let moment = |moment: u64, end: u64| 1 + moment * 20 + at as u64 * 2 + end;
            let answered = reads || fate > 0;
            operations.push(Operation {
                began: moment(began, 0),
                ended: answered.then(|| moment(began + len, 1)),
                block: 0,
                act,
                who: at as u32,
            });
        }
        operations
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn zones_say_what_trying_every_order_says(history in histories(false)) {
        prop_assert_eq!(zoned(&history).is_ok(), naive(ZERO, &history));
    }

    #[test]
    fn the_search_says_what_trying_every_order_says(history in histories(true)) {
        prop_assert_eq!(searched(&history).is_ok(), naive(ZERO, &history));
    }
}

/// What `clients` saw of a register that does one thing at a time.
fn honest(seed: u64, count: u64, clients: u64, zeroes: bool) -> Vec<Operation> {
    let mut rng = env::Rng::from_seed(seed);
    let mut operations = Vec::new();
    let mut free = vec![1; clients as usize];
    let mut tag = ZERO;
    let mut effect = 1;
    for number in 1..=count {
        let client = rng.below(clients) as usize;
        // Each takes effect at a moment of its own, in this order, between its beginning and its end.
        effect = (effect + 10 + rng.below(40)).max(free[client] + 10);
        let began = effect - 1 - rng.below(effect - free[client]).min(200);
        let ended = effect + 1 + rng.below(100);
        let act = match rng.below(10) {
            0 if zeroes => Act::Write(ZERO),
            0..5 => Act::Write(number),
            _ => Act::Read(tag),
        };
        if let Act::Write(new) = act {
            tag = new;
        }
        let unknown = matches!(act, Act::Write(_)) && rng.chance(0.05);
        // Begins are even, ends are odd, and none shares a moment with another of the same kind.
        operations.push(Operation {
            began: began * 100_000 + number * 2,
            ended: (!unknown).then_some(ended * 100_000 + number * 2 + 1),
            block: 3,
            act,
            who: client as u32,
        });
        free[client] = ended + 1;
    }
    operations
}

#[test]
fn a_long_honest_history_has_an_order_and_one_stale_read_ends_it() {
    for seed in 0..20 {
        let zeroes = seed % 2 == 1;
        let mut history = honest(seed, 4000, 4, zeroes);
        check(&history).unwrap();
        // A read late in the history that gives what an answered write of its beginning wrote.
        let old = history.iter().find_map(|it| match it.act {
            Act::Write(tag) if tag != ZERO && it.ended.is_some() => Some(tag),
            _ => None,
        });
        let stale = history
            .iter_mut()
            .rev()
            .find(|it| matches!(it.act, Act::Read(_)));
        stale.unwrap().act = Act::Read(old.unwrap());
        assert!(check(&history).is_err(), "seed {seed}");
    }
}

#[test]
fn both_ways_agree_on_long_histories_with_one_read_changed() {
    for seed in 0..60 {
        let mut history = honest(seed, 60, 5, false);
        let mut rng = env::Rng::from_seed(seed);
        let reads: Vec<usize> = (0..history.len())
            .filter(|at| matches!(history[*at].act, Act::Read(_)))
            .collect();
        let at = reads[rng.below(reads.len() as u64) as usize];
        let near = history[at.saturating_sub(1 + rng.below(5) as usize)];
        let (Act::Write(tag) | Act::Read(tag)) = near.act;
        history[at].act = Act::Read(tag);
        assert_eq!(
            zoned(&history).is_ok(),
            searched(&history).is_ok(),
            "seed {seed}"
        );
    }
}

#[test]
fn blocks_are_registers_of_their_own_and_the_error_tells_what_does_not_fit() {
    let op = |block, began, ended, act| Operation {
        began,
        ended,
        block,
        act,
        who: 1,
    };
    let history = [
        op(1, 1, Some(2), Act::Write(5)),
        op(2, 3, Some(4), Act::Read(0)),
        op(1, 5, Some(6), Act::Write(6)),
        op(1, 7, Some(8), Act::Read(5)),
    ];
    let message = check(&history).unwrap_err().to_string();
    assert_eq!(
        message,
        "block 1: 6 came and went while 5 was there; around it:\n  1 .. 2: 1 writes 5\n  5 .. 6: 1 writes 6\n  \
         7 .. 8: 1 reads 5"
    );
    assert!(check(&history[..3]).is_ok());
}
