//! The bed does what it says, every figure has a name of its own, and claims judge what they say.

use std::rc::Rc;

use base::{Bytes, Nanos};
use policy::place::{Kind, Penalties};
use report::{Row, Verdict};

use super::bed::{Disk, Method, OURS, Scene, run};
use super::cases::{self, cells_of, methods, mix, preferred};
use super::common::estimate::estimate;
use super::common::loads::{Load, Pace};
use super::common::metric::jain;
use super::messages::Messages;
use super::*;

const SHORT: Plan = Plan {
    measured: Nanos::millis(500),
    seed: 7,
    seeds: 2,
};

/// MB/s of the preferred of eight, of all, and the mean: queue cost, states a millisecond old, a second of seed 1.
const BEFORE_MESSAGES: [f64; 3] = [61.079552, 142.86848, 17.85856];

fn journal() -> Journal {
    Journal::open(LISTING.name, &Options::default()).expect("none is kept")
}

#[test]
fn the_same_seed_gives_the_same_figures_and_another_seed_others() {
    let cell = cells_of(mix(2, 2), Nanos::millis(5), &[Method::of(Kind::Tanada)]).remove(0);
    let of = |seed| {
        let outcome = run(&cell.scene, &cell.method, cell.age, SHORT.measured, seed);
        let outcome = outcome.expect("it runs");
        cell.metrics
            .iter()
            .map(|it| it.of(&outcome))
            .collect::<Vec<_>>()
    };
    assert_eq!(of(3), of(3));
    assert_ne!(of(3), of(4));
}

#[test]
fn a_client_alone_on_one_idle_disk_pair_gets_what_the_model_gives() {
    // One sequential reader at a time: the disk's own rate, whichever method chooses.
    let scene = Scene {
        disks: vec![Disk::Hdd; 2],
        loads: vec![Load {
            pace: Pace::Closed(1),
            ..Load::sequential(0)
        }],
        message: Nanos(0),
    };
    let method = Method::of(Kind::LocalFirst);
    let outcome = run(&scene, &method, Nanos::millis(5), Nanos::secs(5), 1).expect("it runs");
    let rate = outcome.mb_s(0);
    assert!((55.0..79.0).contains(&rate), "{rate} MB/s of a disk of 78");
}

#[test]
fn random_reads_wait_as_the_model_says_and_an_open_loop_keeps_its_pace() {
    let scene = Scene {
        disks: vec![Disk::Hdd; 4],
        loads: (0..4)
            .map(|node| Load::random(node, Bytes::kib(4), Pace::Open(10.0)))
            .collect(),
        message: Nanos(0),
    };
    let method = Method::of(Kind::RoundRobin);
    let outcome = run(&scene, &method, Nanos::millis(5), Nanos::secs(20), 1).expect("it runs");
    let waits = outcome.waits(0..4);
    let asked = waits.len() as f64 / 20.0;
    assert!((36.0..44.0).contains(&asked), "{asked} of 40 a second");
    let mean = waits.mean() / 1e3;
    assert!(
        (6.0..14.0).contains(&mean),
        "{mean} ms for a seek and half a turn"
    );
}

#[test]
fn methods_that_hear_nothing_are_run_once_for_all_ages() {
    let cells = cases::all();
    let find = |case: &str, method: &str| {
        let found = cells
            .iter()
            .find(|it| it.case == case && it.method.name == method);
        found.expect("the cell is there")
    };
    let (fresh, old) = ("mix 2:2 state-age=1ms", "mix 2:2 state-age=500ms");
    assert!(find(fresh, "round-robin").same_run(find(old, "round-robin")));
    assert!(!find(fresh, "queue-cost").same_run(find(old, "queue-cost")));
    assert!(!find(fresh, "c3").same_run(find(fresh, "clbs")));
}

#[test]
fn with_a_flow_for_each_client_deeper_queues_get_less_than_before() {
    let scene = cases::fair(Penalties::default());
    let methods = [Method::of(Kind::Tanada), Method::stack()];
    let cells = cells_of(scene, Nanos::millis(5), &methods);
    let measured = measure(&SHORT, cells, &mut journal(), &mut |_, _| {}).expect("it runs");
    let jain = |method: usize| estimate(&measured[method].values[0]).mean;
    assert_eq!(measured[1].cell.metrics[0].name, "fairness");
    assert!(jain(1) > jain(0) + 0.04, "{} and {}", jain(1), jain(0));
}

#[test]
fn every_row_has_a_name_of_its_own_and_a_short_run_the_same_rows() {
    let cells: Vec<Cell> = [Nanos::millis(1), Nanos::millis(5)]
        .into_iter()
        .flat_map(|age| cells_of(preferred(2), age, &methods()))
        .collect();
    let names = |plan: &Plan| {
        let measured =
            measure(plan, cells.clone(), &mut journal(), &mut |_, _| {}).expect("it runs");
        let rows = compare::rows(&measured);
        let name = |row: Row| (row.table, row.case, row.method, row.metric);
        rows.into_iter().map(name).collect::<Vec<_>>()
    };
    let short = names(&SHORT);
    let shorter = names(&Plan {
        measured: Nanos::millis(200),
        seeds: 1,
        ..SHORT
    });
    assert_eq!(short, shorter);
    let mut distinct = short.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), short.len());
    // Three metrics of eleven methods at two ages, and ten of the methods beside ours.
    assert_eq!(short.len(), 3 * 2 * (11 + 10));
}

#[test]
fn the_interval_of_a_mean_holds_it_and_narrows_with_more_values() {
    let few: Vec<f64> = (0..5).map(f64::from).collect();
    let many: Vec<f64> = (0..500).map(|n| f64::from(n % 5)).collect();
    let (few, many) = (estimate(&few), estimate(&many));
    for it in [few, many] {
        assert_eq!(it.mean, 2.0);
        assert!(it.low < 2.0 && 2.0 < it.high, "{it:?}");
    }
    assert!(many.high - many.low < (few.high - few.low) / 5.0);
}

#[test]
fn a_loss_beyond_the_interval_fails_the_claim_and_one_within_it_does_not() {
    let cells = cells_of(mix(2, 2), Nanos::millis(5), &methods());
    let measured = |ours: [f64; 4]| -> Vec<Measured> {
        let of = |cell: &Cell| {
            let mine = cell.method.name == OURS;
            let large = if mine { ours } else { [50.0, 52.0, 48.0, 50.0] };
            Measured {
                cell: cell.clone(),
                values: vec![large.to_vec(), vec![1.0; 4], vec![20.0; 4]],
            }
        };
        cells.iter().map(of).collect()
    };
    let judged = |ours| {
        let claims = compare::claims(&measured(ours));
        let of = |row: &&Row| row.metric == "large_mb_s" && row.case.starts_with("mix");
        let claim = claims.iter().find(of).expect("the claim");
        (claim.verdict, claim.note.clone())
    };
    assert_eq!(judged([50.0, 52.0, 48.0, 50.1]).0, Some(Verdict::Holds));
    // The mean is less, but not on every seed.
    assert_eq!(judged([55.0, 47.0, 50.0, 47.0]).0, Some(Verdict::Holds));
    let (verdict, lost) = judged([49.0, 51.0, 47.0, 49.0]);
    assert_eq!(verdict, Some(Verdict::Fails));
    assert!(lost.contains("round-robin: by 1.000 of 50.000"), "{lost}");
}

#[test]
fn jains_index_is_one_for_equals_and_a_part_for_one_alone() {
    assert_eq!(jain([3.0, 3.0, 3.0].into_iter()), 1.0);
    assert_eq!(jain([3.0, 0.0, 0.0].into_iter()), 1.0 / 3.0);
}

#[test]
fn a_message_takes_its_time_of_each_node_in_turn_and_of_the_link() {
    let took = |cost: u64, messages: u64| {
        env::Runtime::simulated(1).block_on(async move {
            let nodes = [0, 1].map(|_| Rc::new(Messages::new(Nanos::micros(cost))));
            let sent = (0..messages).map(|_| {
                let [from, to] = nodes.clone();
                env::spawn(async move { from.send(&to, Bytes(1_250_000)).await })
            });
            let sent: Vec<_> = sent.collect();
            for task in sent {
                task.await;
            }
            env::now().since(base::Instant(0)).0 / 1_000
        })
    };
    // Free: the hop and a millisecond for the bytes, as many messages as there are at once.
    assert_eq!([took(0, 1), took(0, 3)], [1_050, 1_050]);
    // Sent, passed, received; then one behind the other on the link, which takes the longest.
    assert_eq!([took(20, 1), took(20, 3)], [1_090, 3_090]);
    // Now the processors take the longest: three sent, the last passes and is received.
    assert_eq!(took(2_000, 3), 9_050);
}

/// What half of all small reads wait at most on four SSDs, in us: a message costs so much, states come each millisecond.
fn wait_with_messages(kind: Kind, micros: u64) -> u64 {
    let scene = Scene {
        disks: vec![Disk::StallingSsd; 4],
        loads: (0..4)
            .map(|node| Load::random(node, Bytes::kib(4), Pace::Open(200.0)))
            .collect(),
        message: Nanos::micros(micros),
    };
    let method = Method::of(kind);
    let outcome = run(&scene, &method, Nanos::millis(1), Nanos::secs(5), 1).expect("it runs");
    outcome.waits(0..4).value_at_quantile(0.5)
}

#[test]
fn a_read_waits_for_its_messages_and_behind_those_that_are_announced() {
    let [free, alone, multicast] = [(Kind::Clbs, 0), (Kind::RoundRobin, 200), (Kind::Clbs, 200)]
        .map(|(kind, micros)| wait_with_messages(kind, micros));
    assert!(free < 500, "{free} us");
    // Sent, received, answered, received: four times 200 us.
    assert!((free + 800..free + 1_200).contains(&alone), "{alone} us");
    // Each node sends one and receives three a millisecond: its processor is busy for 80 % of the time.
    assert!(multicast > alone + 300, "{multicast} and {alone} us");
}

#[test]
fn what_costs_nothing_changes_nothing() {
    let cells = cases::all();
    let of = |case: &str, method: &str| {
        let found = cells
            .iter()
            .find(|it| it.case == case && it.method.name == method);
        found.expect("the cell is there")
    };
    for method in ["round-robin", "queue-cost"] {
        let free = of("preferred n=8 message=0us state-age=5ms", method);
        assert!(free.same_run(of("preferred n=8 state-age=5ms", method)));
        assert!(!free.same_run(of("preferred n=8 message=20us state-age=5ms", method)));
    }
    // As it was before messages could cost anything.
    let cell = of("preferred n=8 state-age=1ms", "queue-cost");
    let outcome = run(&cell.scene, &cell.method, cell.age, Nanos::secs(1), 1).expect("it runs");
    let values: Vec<f64> = cell.metrics.iter().map(|it| it.of(&outcome)).collect();
    assert_eq!(values, BEFORE_MESSAGES);
}

#[test]
fn the_mean_is_below_round_robins_only_if_it_is_with_all_numbers_of_readers() {
    let cells = message_cost::cells();
    let judged = |at_eight: f64| {
        let of = |cell: &Cell| {
            let eight = cell.case.starts_with("preferred n=8");
            let mean = match (cell.method.name, eight) {
                ("round-robin", _) => 10.0,
                (_, true) => at_eight,
                _ => 8.0,
            };
            Measured {
                cell: cell.clone(),
                values: vec![
                    vec![1.0; 4],
                    vec![1.0; 4],
                    vec![mean, mean + 0.5, mean, mean],
                ],
            }
        };
        let measured: Vec<Measured> = cells.iter().map(of).collect();
        message_cost::statements(&measured)
    };
    let below = judged(9.0);
    // Four costs, three ages, two methods.
    assert_eq!(below.len(), 24);
    assert!(below.iter().all(|row| row.verdict == Some(Verdict::Agrees)));
    let above = judged(11.0);
    assert!(
        above
            .iter()
            .all(|row| row.verdict == Some(Verdict::Differs))
    );
    assert!(above[0].note.contains("with 3 of 4"), "{}", above[0].note);
}
