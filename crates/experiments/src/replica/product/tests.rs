//! The bed is the product's path, and the same seed gives the same figures.

use base::Bytes;
use policy::place::Kind;

use super::super::common::loads::{Load, Pace};
use super::scenes::{ProductScene, cases, methods};
use super::*;

fn method(name: &str) -> ProductMethod {
    let found = methods().into_iter().find(|it| it.name == name);
    found.expect("it is one of the methods")
}

fn figures(case: &ProductCase, name: &str, seed: u64) -> Vec<f64> {
    let outcome = bed::run(
        &case.scene,
        &method(name),
        case.age,
        (Nanos::millis(500), 8),
        seed,
    );
    let outcome = outcome.expect("it runs");
    case.metrics.iter().map(|it| it.of(&outcome)).collect()
}

#[test]
fn the_same_seed_gives_the_same_figures_and_another_seed_others() {
    let case = cases().remove(0);
    assert_eq!(figures(&case, "tanada", 3), figures(&case, "tanada", 3));
    assert_ne!(figures(&case, "tanada", 3), figures(&case, "tanada", 4));
}

#[test]
fn a_reader_alone_is_served_by_the_disks_whichever_way_it_asks() {
    let scene = ProductScene {
        rotating: true,
        stalls: None,
        loads: vec![Load::random(0, Bytes::kib(4), Pace::Closed(1))],
    };
    for name in ["round-robin", "oracle-fifo"] {
        let span = Nanos::secs(4);
        let outcome = bed::run(&scene, &method(name), Nanos::millis(5), (span, 8), 1);
        let waits = outcome.expect("it runs").waits([0]);
        let mean = waits.mean() / 1e3;
        assert!(
            (3.0..14.0).contains(&mean),
            "{name}: {mean} ms for a seek and half a turn"
        );
    }
}

#[test]
fn a_preferred_client_gets_more_than_another_one() {
    let found = cases()
        .into_iter()
        .find(|it| it.name.starts_with("preferred"));
    let case = found.expect("there is one");
    let [preferred, total] = figures(&case, "tanada", 1)[..] else {
        panic!("two metrics");
    };
    assert!(preferred > total / 8.0 * 1.5, "{preferred} of {total} MB/s");
}

#[test]
fn what_is_held_out_is_other_cases_and_every_case_has_a_name_of_its_own() {
    let all = cases();
    for (at, case) in all.iter().enumerate() {
        assert!(
            all[..at].iter().all(|it| it.name != case.name),
            "{}",
            case.name
        );
        let same = all.iter().filter(|it| it.scene == case.scene);
        assert!(same.clone().all(|it| it.held_out == case.held_out));
        assert!(
            all.iter().any(|it| it.topic == case.topic && it.held_out),
            "{}",
            case.name
        );
    }
    assert!(methods().iter().any(|it| it.kind == Kind::Tanada));
}
