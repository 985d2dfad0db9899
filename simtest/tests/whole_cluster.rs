//! The whole cluster under faults: nothing that was answered is lost or changed, whatever fails, and all is well in the end.
//!
//! `TANADA_SEEDS=N` runs more seeds, from `TANADA_FROM` on, and `TANADA_SEED=S` replays one.

#[path = "../../crates/device/tests/recorded/mod.rs"]
mod recorded;

use std::path::Path;

use simtest::cluster::mutations::Mutation;
use simtest::cluster::scenario::{HARDER, Ran, run};

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn what_clients_see_is_one_disk_and_all_is_well_when_faults_are_over() {
    let mut all = Ran::default();
    let seeds = match number("TANADA_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let from = number("TANADA_FROM").unwrap_or(0);
            from..from + number("TANADA_SEEDS").unwrap_or(100)
        }
    };
    for seed in seeds.clone() {
        match run(seed, None) {
            Ok(ran) => all.add(&ran),
            Err(why) => panic!(
                "seed {seed}: {why}\nreplay: TANADA_SEED={seed} cargo test --release -p simtest --test whole_cluster one_disk"
            ),
        }
    }
    println!("{} seeds: {all:?}", seeds.end - seeds.start);
    if seeds.end - seeds.start >= 100 {
        // Faults that do nothing would show nothing.
        let did = all.counters;
        let all = [
            did.read_repairs,
            did.isr_shrinks,
            did.isr_expands,
            did.resynced,
            did.reconciled,
        ];
        assert!(all.iter().all(|count| *count > 0), "{did:?}");
    }
}

/// Harder scenarios in which an answered write was once lost: the last connection of an extent broke while its copies were made equal;
/// a write that had been seen was tried again after another.
#[test]
fn what_was_once_lost_is_there() {
    for seed in [1_048_954, 1_049_804, 1_049_987, 1_048_806] {
        if let Err(why) = run(seed, None) {
            panic!("seed {seed}: {why}");
        }
    }
}

/// Once a store joined with an old copy of what a snapshot has. An overlay was resynced and counted as such, though changes did
/// not reach it while its base could not be read.
#[test]
fn a_snapshot_is_the_same_on_all_its_stores() {
    if let Err(why) = run(846, None) {
        panic!("{why}");
    }
}

/// Harder scenarios that once went on for minutes: what failed was tried again at once, for as long as it might.
#[test]
fn what_once_went_on_and_on_comes_to_an_end() {
    for seed in [1_049_136, 1_049_139] {
        if let Err(why) = run(seed, None) {
            panic!("seed {seed}: {why}");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let one = run(3, None).unwrap();
    assert_eq!(run(3, None).unwrap(), one);
    assert_ne!(run(4, None).unwrap().hash, one.hash);
}

/// `trace` is of tasks, which one ran at which nanosecond, and of what went over the network; the first half of the seeds, and as many
/// harder ones.
#[test]
fn a_seed_takes_the_steps_that_are_recorded() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/digests.txt");
    let command = "cargo test -p simtest --test whole_cluster recorded";
    recorded::compare(&file, command, |seed| {
        let harder = seed >= recorded::SEEDS / 2;
        match run(seed + u64::from(harder) * HARDER, None) {
            Ok(ran) => vec![("trace", ran.hash), ("events", ran.events)],
            Err(why) => panic!("seed {seed}: {why}"),
        }
    });
}

/// A mutation must be caught, or the checks are blind.
fn caught(mutation: Mutation) {
    for seed in 0..200 {
        if let Err(why) = run(seed, Some(mutation)) {
            println!("{mutation:?} caught at seed {seed}: {why}");
            return;
        }
    }
    panic!("{mutation:?} went unseen");
}

#[test]
fn stores_that_are_not_sealed_are_caught() {
    caught(Mutation::NoSeal);
}

#[test]
fn an_answer_before_the_record_is_changed_is_caught() {
    caught(Mutation::AnswerBeforeSwap);
}

#[test]
fn extents_that_are_not_noted_as_dirty_are_caught() {
    caught(Mutation::NoDirtyBit);
}

#[test]
fn a_resync_that_misses_changes_is_caught() {
    caught(Mutation::ResyncMisses);
}

#[test]
fn disks_that_lie_about_what_is_durable_are_caught() {
    caught(Mutation::DisksLie);
}

#[test]
fn clocks_that_drift_beyond_the_margin_are_caught() {
    caught(Mutation::ClocksDrift);
}

#[test]
fn a_snapshot_of_two_moments_is_caught() {
    caught(Mutation::TornSnapshot);
}

#[test]
fn a_writer_that_does_not_wait_for_the_one_before_is_caught() {
    caught(Mutation::NoWait);
}

#[test]
fn a_snapshot_that_never_got_the_map_it_was_given_is_caught() {
    caught(Mutation::UnnamedRelocation);
}

#[test]
fn a_deletion_that_takes_the_map_of_a_snapshot_is_caught() {
    caught(Mutation::FreedByGeneration);
}
