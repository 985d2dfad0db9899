//! Every policy, and the index, against its naive reference model under random calls.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::Dice;
use super::naive::Naive;
use crate::cache::{Index, Kind, Replacement, S3Fifo, S3FifoOptions, build};

/// Random calls on a policy and its reference model: same victims, same order, same memory of keys.
fn compare(kind: Kind, capacity: u32, seed: u64, calls: usize) {
    let mut dice = Dice::new(seed);
    let mut policy = build(kind, capacity);
    let mut twin = Naive::new(kind, capacity as usize);
    let mut keys = vec![0u64; capacity as usize];
    let mut free: Vec<u32> = (0..capacity).collect();
    let mut busy: BTreeSet<u32> = BTreeSet::new();
    let key_space = u64::from(capacity) * 3;
    for call in 0..calls {
        let at = || format!("{kind}, {capacity} frames, seed {seed}, call {call}");
        let held = twin.frames();
        let pick = |dice: &mut Dice| held[dice.below(held.len() as u64) as usize];
        match dice.below(20) {
            0 if !held.is_empty() => {
                let frame = pick(&mut dice);
                policy.remove(frame);
                twin.remove(frame);
                busy.remove(&frame);
                free.push(frame);
            }
            1 | 2 if !held.is_empty() && !free.is_empty() => {
                let from = pick(&mut dice);
                let to = free.swap_remove(dice.below(free.len() as u64) as usize);
                policy.moved(from, to);
                twin.moved(from, to);
                keys[to as usize] = keys[from as usize];
                if busy.remove(&from) {
                    busy.insert(to);
                }
                free.push(from);
            }
            3 | 4 if !held.is_empty() => {
                busy.insert(pick(&mut dice));
            }
            5 | 6 => {
                if let Some(&frame) = busy.iter().nth(dice.below(8) as usize) {
                    busy.remove(&frame);
                }
            }
            7 => {
                // Room ahead of need.
                let key_of = |frame: u32| keys[frame as usize];
                let victim = policy.evict(None, &key_of, &mut |frame| !busy.contains(&frame));
                let theirs = twin.evict(None, &key_of, &mut |frame| !busy.contains(&frame));
                assert_eq!(victim, theirs, "{}", at());
                free.extend(victim);
            }
            _ => {
                let key = dice.below(key_space);
                if let Some(&frame) = held.iter().find(|&&frame| keys[frame as usize] == key) {
                    policy.hit(frame, key);
                    twin.hit(frame);
                } else {
                    assert_eq!(policy.remembers(key), twin.remembers(key), "{}", at());
                    policy.missed(key);
                    twin.missed(key);
                    if free.is_empty() {
                        let key_of = |frame: u32| keys[frame as usize];
                        let mut may = |frame| !busy.contains(&frame);
                        let victim = policy.evict(Some(key), &key_of, &mut may);
                        let theirs = twin.evict(Some(key), &key_of, &mut may);
                        assert_eq!(victim, theirs, "{}", at());
                        assert_eq!(victim.is_none(), busy.len() == held.len(), "{}", at());
                        free.extend(victim);
                    }
                    if let Some(frame) = free.pop() {
                        keys[frame as usize] = key;
                        policy.insert(frame, key);
                        twin.insert(frame, key);
                    }
                }
            }
        }
        check(&*policy, &twin.frames(), &at());
        let mut order = Vec::new();
        policy.coldest_first(&mut |frame| order.push(frame));
        assert_eq!(order, twin.coldest_first(), "{}", at());
    }
}

/// Every frame held is visited once and no other, and `len` counts them.
fn check(policy: &dyn Replacement, held: &[u32], at: &str) {
    let mut frames = Vec::new();
    policy.coldest_first(&mut |frame| frames.push(frame));
    frames.sort_unstable();
    assert_eq!(frames, held, "{at}");
    assert_eq!(policy.len(), held.len(), "{at}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lru_is_its_naive_twin(capacity in 1u32..24, seed: u64) {
        compare(Kind::Lru, capacity, seed, 1500);
    }

    #[test]
    fn fifo_is_its_naive_twin(capacity in 1u32..24, seed: u64) {
        compare(Kind::Fifo, capacity, seed, 1500);
    }

    #[test]
    fn clock_is_its_naive_twin(capacity in 1u32..24, seed: u64) {
        compare(Kind::Clock, capacity, seed, 1500);
    }

    #[test]
    fn sieve_is_its_naive_twin(capacity in 1u32..24, seed: u64) {
        compare(Kind::Sieve, capacity, seed, 1500);
    }

    #[test]
    fn s3_fifo_is_its_naive_twin(capacity in 1u32..40, seed: u64) {
        compare(Kind::S3Fifo, capacity, seed, 1500);
    }

    #[test]
    fn arc_is_its_naive_twin(capacity in 1u32..24, seed: u64) {
        compare(Kind::Arc, capacity, seed, 1500);
    }

    #[test]
    fn an_index_is_a_map(capacity in 1u32..300, seed: u64) {
        compare_index(Index::new(capacity), seed);
        compare_index(Index::roomy(capacity), seed);
    }

    #[test]
    fn an_index_that_must_ask_for_every_distance_is_a_map(capacity in 1u32..300, seed: u64) {
        compare_index(Index::without_distances(capacity), seed);
    }
}

/// Random calls on an index and a `BTreeMap`, at all loads up to full.
fn compare_index(mut index: Index, seed: u64) {
    let mut dice = Dice::new(seed);
    let capacity = index.capacity();
    let mut map: BTreeMap<u64, u32> = BTreeMap::new();
    let mut keys = vec![u64::MAX; capacity as usize];
    let mut free: Vec<u32> = (0..capacity).collect();
    // Strides as in block addresses, and a space not much larger than the capacity.
    let key_of = |dice: &mut Dice| dice.below(u64::from(capacity) * 2) * 8;
    for call in 0..4000 {
        let key = key_of(&mut dice);
        let found = index.find(key, |frame| keys[frame as usize]);
        assert_eq!(
            found,
            map.get(&key).copied(),
            "seed {seed}, call {call}, key {key}"
        );
        match (found, dice.below(8)) {
            (Some(frame), 0..3) => {
                // The key of the frame may be gone already.
                keys[frame as usize] = u64::MAX;
                let asks = |other: u32| {
                    assert_ne!(other, frame, "asked for the key of the frame removed");
                    keys[other as usize]
                };
                assert!(index.remove(key, frame, asks));
                assert!(!index.remove(key, frame, |frame| keys[frame as usize]));
                map.remove(&key);
                free.push(frame);
            }
            (Some(frame), 3) if !free.is_empty() => {
                let to = free.swap_remove(0);
                assert!(index.rename(key, frame, to));
                keys[to as usize] = key;
                keys[frame as usize] = u64::MAX;
                map.insert(key, to);
                free.push(frame);
            }
            (None, _) if !free.is_empty() => {
                let frame = free.swap_remove(dice.below(free.len() as u64) as usize);
                keys[frame as usize] = key;
                index.insert(key, frame, |frame| keys[frame as usize]);
                map.insert(key, frame);
            }
            _ => {}
        }
        assert_eq!(index.len(), map.len());
    }
    let mut frames = Vec::new();
    index.visit(&mut |frame| frames.push(frame));
    frames.sort_unstable();
    let mut expected: Vec<u32> = map.values().copied().collect();
    expected.sort_unstable();
    assert_eq!(frames, expected);
    index.resize(capacity * 3, |frame| keys[frame as usize]);
    for (&key, &frame) in &map {
        assert_eq!(index.find(key, |frame| keys[frame as usize]), Some(frame));
    }
}

#[test]
fn w_tinylfu_keeps_every_frame_in_one_part_under_random_calls() {
    let (mut misses, mut known) = (0, 0);
    for seed in 0..30 {
        let mut dice = Dice::new(seed);
        let capacity = 1 + dice.below(60) as u32;
        let mut policy = build(Kind::WTinyLfu, capacity);
        let mut resident: BTreeMap<u32, u64> = BTreeMap::new();
        let mut refused: BTreeSet<u32> = BTreeSet::new();
        for call in 0..4000 {
            let key = dice.below(u64::from(capacity) * 3);
            if let Some((&frame, _)) = resident.iter().find(|(_, resident)| **resident == key) {
                match dice.below(12) {
                    0 => {
                        policy.remove(frame);
                        resident.remove(&frame);
                        refused.remove(&frame);
                    }
                    1 => {
                        refused.insert(frame);
                    }
                    2 => {
                        refused.remove(&frame);
                    }
                    3 => {
                        let to = (0..capacity).find(|to| !resident.contains_key(to));
                        if let Some(to) = to {
                            policy.moved(frame, to);
                            resident.remove(&frame);
                            resident.insert(to, key);
                            if refused.remove(&frame) {
                                refused.insert(to);
                            }
                        }
                    }
                    _ => policy.hit(frame, key),
                }
            } else {
                policy.missed(key);
                misses += 1;
                known += u32::from(policy.remembers(key));
                let mut frame = (0..capacity).find(|frame| !resident.contains_key(frame));
                if frame.is_none() {
                    let may = &mut |frame| !refused.contains(&frame);
                    frame = policy.evict(Some(key), &|frame| resident[&frame], may);
                    assert_eq!(frame.is_none(), refused.len() == resident.len());
                    if let Some(frame) = frame {
                        assert!(!refused.contains(&frame));
                        resident.remove(&frame);
                    }
                }
                if let Some(frame) = frame {
                    policy.insert(frame, key);
                    resident.insert(frame, key);
                }
            }
            let held: Vec<u32> = resident.keys().copied().collect();
            check(
                &*policy,
                &held,
                &format!("w-tinylfu, seed {seed}, call {call}"),
            );
        }
    }
    // Only a halving of all counts just then makes it forget what it has just counted.
    assert!(
        known < misses && known > misses * 9 / 10,
        "{known} of {misses}"
    );
}

#[test]
fn a_policy_saved_coldest_first_comes_back_in_its_order() {
    for kind in [Kind::Lru, Kind::Fifo] {
        let mut policy = build(kind, 50);
        for frame in 0..50 {
            policy.insert(frame, u64::from(frame));
        }
        for frame in [7, 3, 41] {
            policy.hit(frame, u64::from(frame));
        }
        let mut restored = build(kind, 50);
        policy.coldest_first(&mut |frame| restored.insert(frame, u64::from(frame)));
        for _ in 0..50 {
            let [a, b] = [&mut policy, &mut restored]
                .map(|policy| policy.evict(None, &|frame| u64::from(frame), &mut |_| true));
            assert!(a.is_some() && a == b, "{kind}: {a:?}, {b:?}");
        }
    }
}

#[test]
fn a_resized_policy_keeps_its_frames_and_their_order() {
    for kind in Kind::ALL {
        let mut policy = build(kind, 10);
        for frame in 0..10 {
            policy.insert(frame, u64::from(frame));
        }
        policy.hit(4, 4);
        let order = |policy: &dyn Replacement| {
            let mut order = Vec::new();
            policy.coldest_first(&mut |frame| order.push(frame));
            order
        };
        let before = order(&*policy);
        policy.resize(30);
        assert_eq!((policy.capacity(), policy.len()), (30, 10), "{kind}");
        assert_eq!(order(&*policy), before, "{kind}");
        policy.insert(29, 29);
        policy.moved(29, 20);
        for frame in [9, 8, 20] {
            policy.remove(frame);
        }
        policy.resize(8);
        assert_eq!((policy.capacity(), policy.len()), (8, 8), "{kind}");
        let victim = policy.evict(None, &|frame| u64::from(frame), &mut |frame| frame == 5);
        assert_eq!(victim, Some(5), "{kind}");
    }
}

#[test]
#[should_panic(expected = "frame 9 is held: cannot shrink to 5")]
fn a_policy_does_not_shrink_over_a_frame_it_holds() {
    let mut policy = build(Kind::Lru, 10);
    policy.insert(9, 9);
    policy.resize(5);
}

#[test]
#[should_panic(expected = "frame 2 is in a list already")]
fn a_frame_is_not_inserted_twice() {
    let mut policy = build(Kind::S3Fifo, 10);
    policy.insert(2, 2);
    policy.insert(2, 3);
}

#[test]
fn two_bit_counters_need_two_uses_to_reach_the_main_queue_and_one_bit_one() {
    for (counter_bits, uses) in [(1, 1), (2, 2)] {
        for hits in 0..4 {
            let options = S3FifoOptions {
                counter_bits,
                ..S3FifoOptions::default()
            };
            let mut policy = S3Fifo::with(10, options);
            for frame in 0..10 {
                policy.insert(frame, u64::from(frame));
            }
            for _ in 0..hits {
                policy.hit(0, 0);
            }
            let victim = policy.evict(None, &|frame| u64::from(frame), &mut |_| true);
            assert_eq!(
                victim,
                Some(u32::from(hits >= uses)),
                "{counter_bits} bits, {hits} hits"
            );
            assert!(
                policy.remembers(u64::from(hits >= uses)),
                "the victim is a ghost"
            );
        }
    }
}

#[test]
fn a_long_stretch_of_dirty_frames_is_passed_once_not_at_every_eviction() {
    for kind in Kind::ALL {
        let mut policy = build(kind, 20_000);
        for frame in 0..20_000 {
            policy.insert(frame, u64::from(frame));
        }
        let mut looks = 0u64;
        for _ in 0..1_000 {
            let may = &mut |frame| {
                looks += 1;
                frame >= 10_000
            };
            assert!(
                policy.evict(None, &|frame| u64::from(frame), may).is_some(),
                "{kind}"
            );
        }
        assert!(looks < 10_000 + 1_000 * 8, "{kind}: {looks} looks");
    }
}
