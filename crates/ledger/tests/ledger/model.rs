//! The ledger against a plain `BTreeMap`: whatever is done, both hold the same.

use crate::common::*;
use env::Rng;
use ledger::{Batch, Ledger, Map};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Step {
    Put(u64, Vec<u8>),
    Remove(u64),
    Commit,
    Reopen,
    Close,
}

fn step() -> impl Strategy<Value = Step> {
    let key = prop_oneof![
        0..40u64,
        Just(u64::MAX),
        (0..8u64).prop_map(|low| low << 40)
    ];
    let value = prop::collection::vec(any::<u8>(), 0..=1024);
    prop_oneof![
        8 => (key.clone(), value).prop_map(|(key, value)| Step::Put(key, value)),
        3 => key.prop_map(Step::Remove),
        6 => Just(Step::Commit),
        1 => Just(Step::Reopen),
        1 => Just(Step::Close),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_map_equals_its_model_over_reopens_and_laps(
        steps in prop::collection::vec(step(), 1..400),
        log_blocks in 40..120u64,
    ) {
        run(async move {
            let device = memory(log_blocks);
            let region = region(log_blocks);
            let mut map = Map::format(device.clone(), region, identity()).await.unwrap();
            let (mut now, mut durable) = (Model::new(), Model::new());
            for step in steps {
                match step {
                    Step::Put(key, value) => {
                        let before = map.put(key, &value);
                        assert_eq!(before.map(Vec::from), now.insert(key, value));
                    }
                    Step::Remove(key) => {
                        let before = map.remove(key);
                        assert_eq!(before.map(Vec::from), now.remove(&key));
                    }
                    Step::Commit => {
                        map.commit().await.unwrap();
                        durable = now.clone();
                    }
                    Step::Reopen | Step::Close => {
                        let closed = matches!(step, Step::Close);
                        if closed {
                            map.ledger().close().await.unwrap();
                        }
                        now = durable.clone();
                        let replay;
                        (map, replay) = expect(device.clone(), region, &now).await;
                        assert!(!closed || replay.clean);
                    }
                }
                assert_eq!(contents(&map), now);
            }
        });
    }
}

/// Random changes for `laps` laps of a log of `log_blocks`, one reopen in `reopen` commits; `cold` records are
/// never touched. Returns how many sweeps ended, and in how many batches they were.
async fn laps(log_blocks: u64, keys: u64, cold: u64, laps: u64, reopen: u64) -> (u64, u64) {
    let device = memory(log_blocks);
    let region = region(log_blocks);
    let mut rng = Rng::from_seed(log_blocks);
    let (mut map, mut model) = with_cold(device.clone(), region, cold).await;
    let (mut written, mut sweeps, mut carriers) = (0, 0, 0);
    while written < laps * log_blocks * BLOCK {
        for _ in 0..1 + rng.below(8) {
            change(&mut rng, keys, 600, &map, &mut model);
        }
        let before = map.ledger().figures();
        map.commit().await.unwrap();
        let after = map.ledger().figures();
        written += after.bytes_written - before.bytes_written;
        sweeps += after.sweeps - before.sweeps;
        carriers += u64::from(after.swept > before.swept);
        if rng.below(reopen) == 0 {
            (map, _) = expect(device.clone(), region, &model).await;
        }
    }
    expect(device, region, &model).await;
    (sweeps, carriers)
}

#[test]
fn hundreds_of_laps_in_a_log_barely_twice_the_live_records_lose_nothing() {
    // Cold records and 75 of 100 keys take about 16 blocks, and up to 20.
    run(async {
        let (sweeps, carriers) = laps(44, 100, 200, 300, 200).await;
        assert!(sweeps > 300, "{sweeps} sweeps");
        assert!(
            carriers < 2 * sweeps,
            "whole sweeps, not shares: {carriers} for {sweeps}"
        );
    });
}

#[test]
fn hundreds_of_laps_in_a_roomy_log_lose_nothing() {
    run(async {
        let (sweeps, carriers) = laps(350, 100, 1000, 200, 500).await;
        assert!(sweeps > 200, "{sweeps} sweeps");
        assert!(
            carriers > 5 * sweeps,
            "sweeps in shares: {carriers} for {sweeps}"
        );
    });
}

#[test]
fn an_owner_that_does_not_know_what_is_live_loses_nothing_either() {
    run(async {
        let device = memory(120);
        let mut rng = Rng::from_seed(4);
        let (mut ledger, mut owner) = {
            let ledger = Ledger::format(device.clone(), region(120), identity())
                .await
                .unwrap();
            (ledger, Slots::default())
        };
        let mut written = 0;
        while written < 100 * 120 * BLOCK {
            let mut batch = ledger.batch();
            for _ in 0..1 + rng.below(5) {
                let key = rng.below(150);
                if rng.below(3) == 0 {
                    owner.remove(&mut batch, key);
                } else {
                    owner.put(&mut batch, key, &vec![key as u8; rng.below(300) as usize]);
                }
            }
            let before = ledger.figures().bytes_written;
            let prepared = ledger.prepare(batch, &mut owner);
            ledger.commit(prepared).await.unwrap();
            written += ledger.figures().bytes_written - before;
            if rng.below(300) == 0 {
                let model = owner.model();
                (ledger, owner) = open_slots(device.clone(), region(120)).await.unwrap();
                assert_eq!(owner.model(), model);
            }
        }
    });
}

#[test]
fn a_region_of_the_advised_size_sweeps_about_one_record_per_new_one() {
    run(async {
        let records = 50_000u64;
        let bytes = Ledger::region_for(records, 11);
        let region = base::Span::bytes(0, bytes.0);
        let device = device::Memory::new("memory", bytes);
        let map = Map::format(device, region, identity()).await.unwrap();
        let mut rng = Rng::from_seed(9);
        let value = [3; 11];
        for batch in 0..2000u64 {
            for at in 0..1000 {
                let key = if batch < 50 {
                    batch * 1000 + at
                } else {
                    rng.below(records)
                };
                map.put(key | 1 << 63, &value);
            }
            map.commit().await.unwrap();
        }
        let figures = map.ledger().figures();
        assert!(figures.sweeps > 5, "{figures:?}");
        let share = figures.swept as f64 / figures.records as f64;
        assert!(share < 1.1, "{share} swept per new record: {figures:?}");
    });
}

#[test]
fn a_batch_may_be_larger_than_any_single_write() {
    run(async {
        let device = memory(4000);
        let map = Map::format(device.clone(), region(4000), identity())
            .await
            .unwrap();
        for key in 0..4000 {
            map.put(key, &[1; 1000]);
        }
        map.commit().await.unwrap();
        for key in 0..4000 {
            map.put(key, &[2; 1000]);
        }
        map.commit().await.unwrap();
        let model = contents(&map);
        let (_, replay) = expect(device, region(4000), &model).await;
        assert_eq!(replay.batches, 2);
    });
}

#[test]
fn batches_are_reused() {
    let mut batch = Batch::new();
    batch.put(1, b"x");
    batch.clear();
    assert!(batch.is_empty() && batch.bytes().0 == 0);
}
