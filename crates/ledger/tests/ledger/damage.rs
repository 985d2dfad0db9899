//! Damage: distinguished from a cut-off tail, located, and survivable with what is readable.

use std::rc::Rc;

use crate::common::*;
use crate::forge::forge;
use base::{Bytes, SECTOR, Sector, Span};
use device::crash::PowerSupply;
use device::fault::{Done, Fault, Injury, Rule};
use device::{Crash, Device, Memory};
use env::Rng;
use ledger::{Ledger, LedgerError, Loss, Map};
use proptest::prelude::*;

/// A ledger with some laps behind it: its device, what it holds now, and before the last batch.
async fn grown(log_blocks: u64, commits: u64) -> (Rc<Memory>, Model, Model) {
    let device = memory(log_blocks);
    let map = Map::format(device.clone(), region(log_blocks), identity())
        .await
        .unwrap();
    let mut rng = Rng::from_seed(commits);
    let (mut model, mut before) = (Model::new(), Model::new());
    for _ in 0..commits {
        before = model.clone();
        for _ in 0..1 + rng.below(5) {
            change(&mut rng, 12, 800, &map, &mut model);
        }
        map.commit().await.unwrap();
    }
    (device, model, before)
}

fn log(log_blocks: u64) -> Span {
    let region = region(log_blocks);
    Span::new(
        region.start.after(Bytes(2 * BLOCK)),
        Bytes(log_blocks * BLOCK),
    )
}

/// Opens a damaged ledger and checks the answer: all there, or the damage located, or the last batch missing.
/// `block` is the damaged block of the log.
async fn judge(
    device: Rc<Memory>,
    log_blocks: u64,
    block: u64,
    all: &Model,
    but_last: &Model,
    what: &str,
) -> &'static str {
    let whole = log(log_blocks);
    let frames = frames(&device.contents(whole));
    match Map::open(device, region(log_blocks)).await {
        Ok((map, replay)) => {
            let found = contents(&map);
            if &found == all {
                return "whole";
            }
            assert!(
                &found == but_last,
                "{what}: {:?} {replay:?} {frames:?}",
                map.ledger().figures()
            );
            "torn"
        }
        Err(LedgerError::Damaged {
            sector,
            sequence,
            durable,
            ..
        }) => {
            assert!(durable >= sequence, "{what}");
            let at = (sector.0 - whole.start.0) * SECTOR / BLOCK;
            // The damaged block lies in the batch that the error names. A destroyed magic hides its length;
            // then the next batch that can be seen bounds it.
            let longest = frames
                .iter()
                .find(|frame| frame.1 == at)
                .map_or(log_blocks, |frame| frame.2);
            let distance = (block + log_blocks - at) % log_blocks;
            assert!(
                distance < longest,
                "{what}: damage in block {block}, reported {at}"
            );
            "damaged"
        }
        Err(other) => panic!("{what}: {other}"),
    }
}

#[test]
fn every_flipped_bit_is_located_or_harmless_or_in_the_last_batch() {
    run(async {
        let log_blocks = 24;
        let (device, all, but_last) = grown(log_blocks, 120).await;
        let span = log(log_blocks);
        let original = device.contents(span);
        let mut rng = Rng::from_seed(1);
        let mut outcomes = std::collections::BTreeMap::new();
        for block in 0..log_blocks {
            // All of each header, and samples of the rest.
            let header = 0..64 * 8;
            let rest = (0..256).map(|_| rng.below(BLOCK * 8)).collect::<Vec<_>>();
            for bit in header.chain(rest) {
                let at = (block * BLOCK + bit / 8) as usize;
                let mut sector = original[at / 512 * 512..][..512].to_vec();
                sector[at % 512] ^= 1 << (bit % 8);
                let place = Sector(span.start.0 + at as u64 / 512);
                device.load(place, &sector);
                let what = format!("bit {bit} of block {block}");
                let outcome =
                    judge(device.clone(), log_blocks, block, &all, &but_last, &what).await;
                *outcomes.entry(outcome).or_insert(0) += 1;
                sector[at % 512] ^= 1 << (bit % 8);
                device.load(place, &sector);
            }
        }
        // Each outcome was met: the test looked at live, dead and last batches.
        assert!(outcomes.len() == 3, "{outcomes:?}");
        expect(device, region(log_blocks), &all).await;
    });
}

#[test]
fn every_destroyed_sector_is_located_or_harmless_or_in_the_last_batch() {
    run(async {
        for (log_blocks, commits) in [(24, 60), (24, 75), (40, 300)] {
            let (device, all, but_last) = grown(log_blocks, commits).await;
            let span = log(log_blocks);
            let mut rng = Rng::from_seed(2);
            for sector in 0..span.len.sectors() {
                let place = Sector(span.start.0 + sector);
                let original = device.contents(Span::new(place, Bytes(SECTOR)));
                for kind in 0..3 {
                    let mut bad = vec![0; 512];
                    match kind {
                        0 => {}
                        1 => rng.fill(&mut bad),
                        // A neighbour's data: a misdirected write.
                        _ => {
                            let other = Sector(span.start.0 + rng.below(span.len.sectors()));
                            bad = device.contents(Span::new(other, Bytes(SECTOR)));
                        }
                    }
                    device.load(place, &bad);
                    let what = format!("sector {sector}, kind {kind}");
                    judge(
                        device.clone(),
                        log_blocks,
                        sector / 8,
                        &all,
                        &but_last,
                        &what,
                    )
                    .await;
                }
                device.load(place, &original);
            }
        }
    });
}

#[test]
fn after_a_clean_close_even_the_last_batch_is_missed() {
    run(async {
        let (device, all, _) = grown(24, 5).await;
        let (map, _) = expect(device.clone(), region(24), &all).await;
        map.ledger().close().await.unwrap();
        let frames = frames(&device.contents(log(24)));
        let &(sequence, block, _) = frames.last().unwrap();
        let place = log(24).start.after(Bytes(block * BLOCK));
        device.load(place, &[0; 512]);
        let refused = Map::open(device, region(24)).await.err().unwrap();
        let expected = LedgerError::Damaged {
            device: "memory".to_owned(),
            sector: place,
            sequence,
            durable: sequence,
            why: "there is no whole header",
        };
        assert_eq!(refused, expected);
    });
}

#[test]
fn salvage_goes_on_with_what_is_readable_and_lists_what_is_not() {
    run(async {
        let device = memory(64);
        let map = Map::format(device.clone(), region(64), identity())
            .await
            .unwrap();
        for key in 1..=10 {
            map.put(key, &[key as u8; 100]);
            map.commit().await.unwrap();
        }
        // Batches 3, 4 and 8 begin in blocks 2, 3 and 7.
        let place = |block: u64| log(64).start.after(Bytes(block * BLOCK));
        for block in [2, 3, 7] {
            device.load(place(block), &[0xdd; 512]);
        }
        let refused = Map::open(device.clone(), region(64)).await.err().unwrap();
        assert_eq!(
            refused.to_string(),
            format!(
                "the ledger on memory is damaged at {}: batch 3 should be there (there is no whole header), \
                 since batches up to 5 were durable; open it with salvage to go on with what is readable",
                place(2)
            )
        );
        let (map, replay) = Map::open_salvage(device.clone(), region(64)).await.unwrap();
        let keys: Vec<u64> = contents(&map).into_keys().collect();
        assert_eq!(keys, [1, 2, 5, 6, 7, 9, 10]);
        let losses = [(3, 4, 2), (8, 8, 7)];
        let losses = losses.map(|(first, last, block)| Loss {
            first,
            last,
            sector: place(block),
        });
        assert_eq!(replay.losses, losses);
        // Not written yet: a second look finds the same.
        assert!(Map::open(device.clone(), region(64)).await.is_err());
        map.put(11, b"new");
        map.commit().await.unwrap();
        let model = contents(&map);
        let (map, replay) = expect(device.clone(), region(64), &model).await;
        assert_eq!(replay.losses, []);
        for key in 0..100 {
            map.put(key, &[9; 30]);
            map.commit().await.unwrap();
        }
        let model = contents(&map);
        expect(device, region(64), &model).await;
    });
}

#[test]
fn salvage_of_a_sound_ledger_loses_nothing() {
    run(async {
        for commits in [0, 1, 30, 150] {
            let (device, all, _) = grown(24, commits).await;
            let (map, replay) = Map::open_salvage(device.clone(), region(24)).await.unwrap();
            assert_eq!(contents(&map), all);
            assert_eq!(replay.losses, []);
            map.commit().await.unwrap();
            expect(device, region(24), &all).await;
        }
    });
}

#[test]
fn salvage_reads_around_bad_sectors() {
    run(async {
        let (device, _, _) = grown(24, 10).await;
        let fault = Fault::new(device.clone(), Rng::from_seed(1));
        let frames = frames(&device.contents(log(24)));
        let (sequence, block, _) = frames[4];
        let bad = Span::new(log(24).start.after(Bytes(block * BLOCK)), Bytes(SECTOR));
        fault.book().add(
            Rule::new(Injury::Error(Done::Nothing))
                .on(&[device::Op::Read])
                .within(bad),
        );
        let refused = Map::open(fault.clone(), region(24)).await.err().unwrap();
        let LedgerError::Damaged {
            sequence: missing,
            why,
            ..
        } = refused
        else {
            panic!("{refused}");
        };
        assert_eq!((missing, why), (sequence, "the device cannot read it"));
        let (_, replay) = Map::open_salvage(fault.clone(), region(24)).await.unwrap();
        assert_eq!(
            replay.losses,
            [Loss {
                first: sequence,
                last: sequence,
                sector: bad.start
            }]
        );
        // All reads fail: the device is gone, which is another thing than a damaged log.
        fault.book().add(
            Rule::new(Injury::Error(Done::Nothing))
                .on(&[device::Op::Read])
                .within(log(24)),
        );
        let refused = Map::open_salvage(fault, region(24)).await.err().unwrap();
        assert!(matches!(refused, LedgerError::Device { .. }), "{refused}");
    });
}

fn fails_to_read(within: Span) -> Rule {
    let rule = Rule::new(Injury::Error(Done::Nothing));
    rule.on(&[device::Op::Read]).within(within)
}

fn block_of_log(log_blocks: u64, block: u64) -> Span {
    let at = log(log_blocks).start.after(Bytes(block * BLOCK));
    Span::new(at, Bytes(BLOCK))
}

#[test]
fn an_unreadable_block_behind_the_last_batch_is_a_torn_end() {
    run(async {
        for unreadable in [Bytes(SECTOR), Bytes(BLOCK), Bytes(5 * BLOCK)] {
            let (device, all, _) = grown(64, 6).await;
            let fault = Fault::new(device.clone(), Rng::from_seed(1));
            let head = frames(&device.contents(log(64)))
                .last()
                .map_or(0, |(_, block, blocks)| block + blocks);
            let bad = Span::new(block_of_log(64, head).start, unreadable);
            fault.book().add(fails_to_read(bad));
            let (map, replay) = Map::open(fault.clone(), region(64)).await.unwrap();
            assert_eq!(contents(&map), all);
            let blocks = unreadable.0.div_ceil(BLOCK);
            assert!(
                replay.torn_tail && replay.unreadable == blocks,
                "{replay:?}"
            );
            assert_eq!(replay.unreadable_at, Some(bad.start));
            // What is written there can be read again.
            fault.book().clear();
            for key in 0..100 {
                map.put(key, &[key as u8; 40]);
                map.commit().await.unwrap();
            }
            expect(device, region(64), &contents(&map)).await;
        }
    });
}

#[test]
fn opening_writes_nothing_over_what_it_cannot_read() {
    run(async {
        let (device, all, _) = grown(64, 6).await;
        let fault = Fault::new(device.clone(), Rng::from_seed(1));
        let frames = frames(&device.contents(log(64)));
        let (_, block, _) = frames[frames.len() - 1];
        fault.book().add(fails_to_read(block_of_log(64, block)));
        let before = device.contents(region(64));
        let (map, replay) = Map::open(fault.clone(), region(64)).await.unwrap();
        assert_eq!((replay.unreadable, contents(&map) == all), (1, false));
        drop(map);
        assert!(device.contents(region(64)) == before, "it was zeroed");
        // It can be read again: nothing was lost.
        fault.book().clear();
        expect(fault, region(64), &all).await;
    });
}

#[test]
fn batches_behind_an_unreadable_end_never_come_back() {
    run(async {
        // A close without a commit in between changes nothing.
        for closes in [false, true] {
            let (device, ..) = grown(64, 6).await;
            let fault = Fault::new(device.clone(), Rng::from_seed(1));
            let frames = frames(&device.contents(log(64)));
            // The last three batches, all in blocks of their own, were durable.
            let lost = frames[frames.len() - 3].1;
            let bad = Span::new(block_of_log(64, lost).start, Bytes(8 * BLOCK));
            fault.book().add(fails_to_read(bad));
            let (mut map, replay) = Map::open(fault.clone(), region(64)).await.unwrap();
            assert_eq!((replay.unreadable, replay.batches), (8, 3));
            if closes {
                map.ledger().close().await.unwrap();
                let (again, reported) = expect(fault.clone(), region(64), &contents(&map)).await;
                assert_eq!(reported, replay);
                map = again;
            }
            // As long as the first lost one was, so that the next one lost would follow it.
            assert_eq!(frames[frames.len() - 3].2, 1);
            map.put(7, &[1; 100]);
            map.commit().await.unwrap();
            fault.book().clear();
            expect(fault, region(64), &contents(&map)).await;
        }
    });
}

#[test]
fn an_unreadable_end_that_cannot_be_written_over_takes_no_commit() {
    run(async {
        let (device, ..) = grown(64, 6).await;
        let fault = Fault::new(device.clone(), Rng::from_seed(1));
        let frames = frames(&device.contents(log(64)));
        let (_, block, blocks) = frames[frames.len() - 1];
        // Behind the batch to come.
        let bad = block_of_log(64, block + blocks + 2);
        let head = block_of_log(64, block + blocks);
        for span in [head, bad] {
            fault.book().add(fails_to_read(span));
        }
        let writes = [device::Op::Write, device::Op::WriteZeroes];
        let rule = Rule::new(Injury::Error(Done::Nothing)).on(&writes);
        fault.book().add(rule.within(bad));
        let (map, _) = Map::open(fault, region(64)).await.unwrap();
        map.put(1, b"new");
        let refused = map.commit().await.unwrap_err();
        let said = refused.to_string();
        assert!(
            said.starts_with("cannot write over the unreadable end of the ledger in "),
            "{said}"
        );
    });
}

#[test]
fn an_unreadable_end_may_be_written_over_in_part_and_be_readable_again() {
    run(async {
        for written in 0..8 {
            let (device, ..) = grown(64, 6).await;
            let fault = Fault::new(device.clone(), Rng::from_seed(1));
            let frames = frames(&device.contents(log(64)));
            let lost = frames[frames.len() - 3].1;
            let bad = Span::new(block_of_log(64, lost).start, Bytes(8 * BLOCK));
            fault.book().add(fails_to_read(bad));
            let writes = [device::Op::Write, device::Op::WriteZeroes];
            let rule = Rule::new(Injury::Error(Done::Nothing)).on(&writes);
            fault.book().add(rule.within(bad).after(written));
            let (map, _) = Map::open(fault.clone(), region(64)).await.unwrap();
            map.put(7, &[1; 100]);
            assert!(map.commit().await.is_err());
            drop(map);
            fault.book().clear();
            let opened = Map::open(fault, region(64)).await;
            let (_, replay) = opened.unwrap_or_else(|error| panic!("{written}: {error}"));
            // The batch is noted as indeterminate: nothing of it comes back, and that is reported.
            assert_eq!((replay.batches, replay.unreadable), (3, 0), "{written}");
            assert_eq!(replay.unreadable_at, Some(bad.start));
        }
    });
}

#[test]
fn an_unreadable_end_is_reported_until_the_first_commit_and_kept_by_a_close() {
    run(async {
        let (device, all, but_last) = grown(64, 6).await;
        let fault = Fault::new(device.clone(), Rng::from_seed(1));
        let frames = frames(&device.contents(log(64)));
        let (sequence, block, _) = frames[frames.len() - 1];
        let bad = block_of_log(64, block);
        fault.book().add(fails_to_read(bad));
        let before = device.contents(region(64));
        for _ in 0..3 {
            let (map, replay) = expect(fault.clone(), region(64), &but_last).await;
            assert_eq!(
                (replay.unreadable, replay.unreadable_at),
                (1, Some(bad.start))
            );
            map.ledger().close().await.unwrap();
            assert!(device.contents(region(64)) == before, "it was written to");
        }
        // It can be read again: nothing was lost.
        fault.book().clear();
        let (map, replay) = expect(fault.clone(), region(64), &all).await;
        assert_eq!(replay.unreadable_at, None);
        drop(map);

        // Now it is written over, and that goes wrong after the indeterminate batch is noted.
        fault.book().add(fails_to_read(bad));
        let writes = [device::Op::Write, device::Op::WriteZeroes];
        let rule = Rule::new(Injury::Error(Done::Nothing)).on(&writes);
        fault.book().add(rule.within(log(64)).after(1));
        let (map, _) = expect(fault.clone(), region(64), &but_last).await;
        map.put(7, &[1; 100]);
        assert!(map.commit().await.is_err());
        fault.book().clear();
        // All is readable, and the note is a superblock of version 2 with the batch's number.
        let superblocks = || {
            let bytes = device.contents(Span::new(region(64).start, Bytes(2 * BLOCK)));
            let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
            let version = |at: usize| number(at + 8) as u32;
            [0, BLOCK as usize].map(|at| (version(at), number(at + 88)))
        };
        assert_eq!(superblocks(), [(2, sequence); 2]);
        let (map, replay) = expect(fault.clone(), region(64), &but_last).await;
        assert_eq!(
            (replay.unreadable, replay.unreadable_at),
            (0, Some(bad.start))
        );
        map.put(7, &[1; 100]);
        map.commit().await.unwrap();
        let (map, replay) = expect(fault, region(64), &contents(&map)).await;
        assert_eq!(replay.unreadable_at, None);
        map.ledger().close().await.unwrap();
        assert_eq!(superblocks(), [(1, 0); 2]);
    });
}

#[test]
fn a_salvage_of_a_log_with_a_doubted_batch_lists_it_and_keeps_its_note() {
    run(async {
        let (device, _, but_last) = grown(64, 6).await;
        let fault = Fault::new(device.clone(), Rng::from_seed(1));
        let frames = frames(&device.contents(log(64)));
        let (sequence, block, _) = frames[frames.len() - 1];
        let bad = block_of_log(64, block);
        let rules = || {
            fault.book().add(fails_to_read(bad));
            let writes = [device::Op::Write, device::Op::WriteZeroes];
            let rule = Rule::new(Injury::Error(Done::Nothing)).on(&writes);
            fault.book().add(rule.within(log(64)));
        };
        // The indeterminate batch is noted, and nothing more; then all can be read.
        rules();
        let (map, _) = expect(fault.clone(), region(64), &but_last).await;
        map.put(7, &[1; 100]);
        assert!(map.commit().await.is_err());
        fault.book().clear();
        let salvaged = async || {
            let (map, replay) = Map::open_salvage(fault.clone(), region(64)).await.unwrap();
            assert_eq!(contents(&map), but_last);
            let loss = Loss {
                first: sequence,
                last: sequence,
                sector: bad.start,
            };
            assert_eq!(replay.losses, [loss]);
            map
        };
        // A commit that fails after the salvage leaves it as it was.
        let map = salvaged().await;
        rules();
        map.put(7, &[1; 100]);
        assert!(map.commit().await.is_err());
        fault.book().clear();
        let (_, replay) = expect(fault.clone(), region(64), &but_last).await;
        assert_eq!(replay.unreadable_at, Some(bad.start));
        let map = salvaged().await;
        map.put(7, &[1; 100]);
        map.commit().await.unwrap();
        let (_, replay) = expect(fault.clone(), region(64), &contents(&map)).await;
        assert_eq!(replay.unreadable_at, None);
    });
}

/// A map whose last commit a power cut hit, with sectors that cannot be read; none if nothing is indeterminate.
async fn with_unreadable_end(seed: u64) -> Option<(Rc<Crash>, Map, Model)> {
    let size = Bytes((1 << 20) + 80 * BLOCK);
    let device = Crash::new("crash", size, Rng::from_seed(seed));
    let map = Map::format(device.clone(), region(64), identity());
    let map = map.await.unwrap();
    for key in 0..6 {
        map.put(key, &[key as u8; 40]);
        map.commit().await.unwrap();
    }
    device.set_unreadable(1.0);
    device.cut_at(device.steps());
    for key in 0..10 {
        map.put(key, &[0xff; 900]);
    }
    map.commit().await.unwrap_err();
    let device = device.restart(Rng::from_seed(seed));
    let (map, replay) = Map::open(device.clone(), region(64)).await.unwrap();
    replay.unreadable_at?;
    let model = contents(&map);
    Some((device, map, model))
}

#[test]
fn a_power_cut_after_an_unreadable_end_leaves_it_reported_or_a_commit_there() {
    run(async {
        let (mut reported, mut committed, mut doubted) = (0, 0, 0);
        for seed in 0..40 {
            for step in 0.. {
                let Some((device, map, before)) = with_unreadable_end(seed).await else {
                    break;
                };
                doubted += 1;
                let supply = PowerSupply::new();
                device.set_unreadable(0.3);
                device.cut_at(device.steps() + step);
                // Of three blocks, so that it may be torn between them.
                for key in 0..10 {
                    map.put(key, &[7; 900]);
                }
                let after = contents(&map);
                let answered = map.commit().await.is_ok();
                let closed = answered && map.ledger().close().await.is_ok();
                let device = device.restart_on(&supply, Rng::from_seed(1000 * seed + step));
                let what = format!("seed {seed}, step {step}");
                let opened = Map::open(device.clone() as Rc<dyn Device>, region(64)).await;
                let (map, replay) = opened.unwrap_or_else(|error| panic!("{what}: {error}"));
                if contents(&map) == after {
                    assert_eq!(replay.unreadable_at, None, "{what}");
                    committed += 1;
                } else {
                    assert!(!answered && contents(&map) == before, "{what}: {replay:?}");
                    assert!(replay.unreadable_at.is_some(), "{what}: it is not reported");
                    reported += 1;
                }
                if closed {
                    break;
                }
            }
        }
        // Steps of the note, of the zeroes and of the batch were cut; and some seeds left no indeterminate batch.
        assert!(
            reported > 100 && committed > 30,
            "{reported} {committed} {doubted}"
        );
    });
}

#[test]
fn a_read_that_fails_now_and_then_loses_no_batch() {
    run(async {
        for after in 0..20 {
            for times in 1..=3 {
                let (device, all, _) = grown(24, 60).await;
                let fault = Fault::new(device, Rng::from_seed(1));
                let rule = fails_to_read(log(24)).after(after).times(times);
                fault.book().add(rule);
                expect(fault, region(24), &all).await;
            }
        }
    });
}

#[test]
fn an_unreadable_batch_among_others_is_damage_in_its_place() {
    run(async {
        let (device, _, _) = grown(64, 6).await;
        let fault = Fault::new(device.clone(), Rng::from_seed(1));
        let frames = frames(&device.contents(log(64)));
        let (sequence, block, _) = frames[2];
        fault.book().add(fails_to_read(block_of_log(64, block)));
        match Map::open(fault, region(64)).await.err().unwrap() {
            LedgerError::Damaged {
                sequence: missing,
                durable,
                ..
            } => assert!(missing == sequence && durable > missing),
            other => panic!("{other}"),
        }
    });
}

#[test]
fn a_device_that_reads_nothing_is_gone_and_not_damaged() {
    run(async {
        let (device, _, _) = grown(24, 6).await;
        let fault = Fault::new(device, Rng::from_seed(1));
        fault.book().add(fails_to_read(log(24)));
        let refused = Map::open(fault, region(24)).await.err().unwrap();
        assert!(matches!(refused, LedgerError::Device { .. }), "{refused}");
    });
}

/// A ledger whose log of 16 blocks has been filled more than once, forged as `input` says, salvaged and
/// committed to.
async fn renewed_after(input: &[u8]) {
    let device = memory(16);
    let span = region(16);
    let map = Map::format(device.clone(), span, identity()).await.unwrap();
    for round in 0..40u64 {
        map.put(round % 7, &[round as u8; 300]);
        map.remove(round % 5);
        map.commit().await.unwrap();
    }
    let mut image = device.contents(span);
    forge(&mut image, input);
    device.load(span.start, &image);
    let (map, _) = Map::open_salvage(device.clone(), span).await.unwrap();
    map.put(1, b"after");
    map.commit().await.unwrap();
    let model = contents(&map);
    let (map, replay) = expect(device.clone(), span, &model).await;
    assert_eq!(replay.losses, []);
    // And it stays a ledger, around its end and beyond.
    for key in 0..40 {
        map.put(key % 9, &[key as u8; 200]);
        map.commit().await.unwrap();
        expect(device.clone(), span, &contents(&map)).await;
    }
}

#[test]
fn a_renewal_cut_off_leaves_the_log_as_it_was_or_renewed() {
    run(async {
        let slot = |slot: u64| Span::new(region(64).start.after(Bytes(slot * BLOCK)), Bytes(BLOCK));
        let mut outcomes = Vec::new();
        for cut in [log(64), slot(0), slot(1)] {
            let device = memory(64);
            let map = Map::format(device.clone(), region(64), identity())
                .await
                .unwrap();
            for key in 1..=10 {
                map.put(key, &[key as u8; 100]);
                map.commit().await.unwrap();
            }
            device.load(log(64).start.after(Bytes(4 * BLOCK)), &[0xdd; 512]);
            let fault = Fault::new(device.clone(), Rng::from_seed(1));
            fault.book().add(
                Rule::new(Injury::Error(Done::Nothing))
                    .on(&[device::Op::Write])
                    .within(cut),
            );
            let (map, before) = Map::open_salvage(fault, region(64)).await.unwrap();
            let salvaged = contents(&map);
            map.put(11, b"new");
            map.commit().await.unwrap_err();
            // Not answered: the old log with its old gap, or the whole new state, and nothing else.
            outcomes.push(match Map::open(device.clone(), region(64)).await {
                Ok((found, _)) => {
                    assert_eq!(contents(&found), contents(&map));
                    true
                }
                Err(LedgerError::Damaged { sequence: 5, .. }) => {
                    let (found, after) =
                        Map::open_salvage(device.clone(), region(64)).await.unwrap();
                    assert_eq!((contents(&found), &after), (salvaged, &before));
                    false
                }
                Err(other) => panic!("{other}"),
            });
            let (map, _) = Map::open_salvage(device.clone(), region(64)).await.unwrap();
            for key in 20..120 {
                map.put(key % 30, b"on");
                map.commit().await.unwrap();
            }
            expect(device, region(64), &contents(&map)).await;
        }
        // Both outcomes were met: one superblock is written before the other.
        assert!(!outcomes[0] && outcomes[1] != outcomes[2], "{outcomes:?}");
    });
}

#[test]
fn what_a_salvage_passed_over_is_no_later_damage() {
    // Found by fuzzing.
    let found: [&[u8]; 2] = [
        &[
            70, 160, 142, 164, 164, 164, 164, 164, 164, 164, 14, 164, 164, 164, 164, 164, 91, 164,
            164, 164, 164, 164, 164, 164, 34, 70, 107, 164, 164, 164, 97, 164, 164, 164, 164, 91,
            164, 164, 164, 164, 164, 164, 164, 34, 70, 107,
        ],
        &[
            154, 133, 5, 110, 5, 155, 133, 110, 110, 110, 110, 84, 97, 76, 5, 7, 192, 0, 224, 0, 0,
            0, 0, 0, 0, 0, 5, 5, 110, 110, 5, 5, 5, 5, 5, 5, 0, 0, 0, 0, 239, 25, 127, 127, 127,
            127, 127, 127, 127, 147, 58, 66, 58, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
            0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 97, 0, 0,
            122, 0, 0, 0, 0, 0, 0, 0, 47, 0, 0, 0, 0, 0, 224, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ],
    ];
    for input in found {
        run(async move { renewed_after(input).await });
    }
}

#[test]
fn a_salvage_goes_on_from_no_number_that_would_soon_be_too_great() {
    run(async {
        // The highest number the format knows, in a superblock's revision and in a batch's sequence.
        let highest = |block: u8, at: u8| {
            let mut bytes = Vec::new();
            for byte in at..at + 6 {
                bytes.extend([block, 0, 2 * byte, 0, 0xff]);
            }
            bytes
        };
        renewed_after(&[vec![7], highest(0, 40)].concat()).await;
        renewed_after(&[vec![7], highest(9, 16)].concat()).await;
        let (device, _, _) = grown(16, 60).await;
        let mut image = device.contents(region(16));
        forge(
            &mut image,
            &[vec![7], highest(0, 40), highest(1, 40)].concat(),
        );
        device.load(region(16).start, &image);
        let refused = Map::open_salvage(device, region(16)).await.err().unwrap();
        let expected = LedgerError::NoLedger {
            device: "memory".to_owned(),
            region: region(16),
            a: "has numbers too great to go on from",
            b: "has numbers too great to go on from",
        };
        assert_eq!(refused, expected);
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_damage_never_panics_and_never_invents_a_batch(
        pieces in prop::collection::vec((0..26u64 * 8, prop::collection::vec(any::<u8>(), 512), 0..512usize), 1..12),
        salvage: bool,
    ) {
        run(async move {
            let (device, _, _) = grown(24, 90).await;
            for (sector, bytes, from) in pieces {
                let place = Sector(region(24).start.0 + sector);
                let mut now = device.contents(Span::new(place, Bytes(SECTOR)));
                now[from..].copy_from_slice(&bytes[from..]);
                device.load(place, &now);
            }
            let mut values = 0;
            let opened = if salvage {
                Ledger::open_salvage(device.clone(), region(24), |_| values += 1).await
            } else {
                Ledger::open(device.clone(), region(24), |_| values += 1).await
            };
            match opened {
                Ok((_, replay)) => assert_eq!(replay.records, values),
                Err(LedgerError::Damaged { .. } | LedgerError::NoLedger { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        });
    }

    #[test]
    fn forged_numbers_under_right_checksums_are_answered_and_never_panic(
        seal in 0..8u8,
        changes in prop::collection::vec(any::<[u8; 5]>(), 1..6),
    ) {
        run(async move {
            let (device, _, _) = grown(16, 60).await;
            let mut image = device.contents(region(16));
            let mut input = vec![seal];
            input.extend(changes.concat());
            forge(&mut image, &input);
            device.load(region(16).start, &image);
            let mut shown = 0;
            if let Ok((_, replay)) = Ledger::open(device.clone(), region(16), |_| shown += 1).await {
                assert_eq!(replay.records, shown);
            }
            let Ok((map, _)) = Map::open_salvage(device.clone(), region(16)).await else {
                return;
            };
            map.put(1, b"after");
            if map.commit().await.is_ok() {
                expect(device, region(16), &contents(&map)).await;
            }
        });
    }
}
