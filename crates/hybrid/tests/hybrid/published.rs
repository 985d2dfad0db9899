//! The published way to move a region: copied whole, with a temporary buffer for what users write meanwhile.

use std::rc::Rc;

use base::{Bytes, Nanos, Span};
use device::fault::{Book, Injury, Rule};
use device::model::{ModelDisk, Spec, Store};
use device::{Device, DeviceExt, Memory, Striped, striped};
use hybrid::{
    Buffer, CopyBack, Demotion, Health, Hybrid, Mode, MoveEnd, MoveRecord, Mover, Settings, Tier,
    Ties,
};
use policy::tier::{Parameters, Region};

use crate::common::{everything, get, make, noise, put, reads_as, run};

const SLOW: Bytes = Bytes::mib(64);
const FAST: Bytes = Bytes::mib(40);
const REGION: u64 = 8 << 20;

/// Regions of 8 MiB, judged every second: two seconds in a row up, three away down.
fn published(buffer: Buffer, copy_back: CopyBack) -> Settings {
    Settings {
        name: "vol0".to_owned(),
        mode: Mode::Tier,
        tier: Tier {
            parameters: Parameters {
                period: Nanos::secs(1),
                iops_min: 1.0,
                share_min: 50.0,
                streak_min: 2,
                timeout: 3,
                ..Parameters::default()
            },
            region: Bytes(REGION),
            extent: Some(Bytes(REGION)),
            mover: Mover::Published,
            buffer,
            demotion: Demotion {
                copy_back,
                without_contents: copy_back == CopyBack::Nothing,
                ..Demotion::default()
            },
            ..Tier::default()
        },
        ..Settings::default()
    }
}

/// Reads somewhere in `region` ten times a second until `over`, or a minute has passed.
async fn heat_until(disk: &Hybrid, region: u32, over: impl Fn(&Hybrid) -> bool) {
    for round in 0..600 {
        if over(disk) {
            return;
        }
        let at = u64::from(region - 1) * REGION + round % 7 * 4096;
        get(disk, Span::bytes(at, 4096)).await;
        env::sleep(Nanos::millis(100)).await;
    }
    panic!("nothing came of a minute of requests: {:?}", disk.moves(0));
}

fn done(disk: &Hybrid, moves: usize) -> bool {
    let ended = |record: &MoveRecord| record.end == MoveEnd::Done;
    disk.moves(0).len() >= moves && disk.moves(0).iter().all(ended)
}

#[test]
fn a_region_moves_up_and_down_again_with_all_that_is_written_meanwhile() {
    for buffer in [Buffer::Memory, Buffer::Fast] {
        for copy_back in [CopyBack::All, CopyBack::Changed] {
            run(1, async move {
                let contents = noise(7, SLOW);
                let (slow, fast) = (Memory::new("hdd0", SLOW), Memory::new("ssd0", FAST));
                slow.set_latency(Nanos::millis(5));
                fast.set_latency(Nanos::micros(500));
                slow.load(base::Sector(0), &contents);
                let disk = make(published(buffer, copy_back), slow.clone(), fast).await;
                // A task writes all the while: single sectors, each its own, and reads each back later.
                let writer = env::spawn({
                    let disk = disk.clone();
                    async move {
                        for number in 0..4000_u64 {
                            let at = REGION + number * 37 % 16_384 * 512;
                            put(&disk, Span::bytes(at, 512), number as u8 | 1).await;
                            assert!(reads_as(&disk, Span::bytes(at, 512), number as u8 | 1).await);
                            env::sleep(Nanos::millis(2)).await;
                        }
                    }
                });
                heat_until(&disk, 2, |disk| done(disk, 1)).await;
                assert_eq!(disk.tier().expect("a tier").room.regions_up, 1);
                writer.await;
                heat_until(&disk, 5, |disk| {
                    disk.moves(0)
                        .iter()
                        .any(|record| !record.up && record.end == MoveEnd::Done)
                })
                .await;
                let mut expected = contents;
                for number in 0..4000_u64 {
                    let at = (REGION + number * 37 % 16_384 * 512) as usize;
                    expected[at..at + 512].fill(number as u8 | 1);
                }
                let moves = disk.moves(0);
                assert!(
                    everything(&disk).await == expected,
                    "{buffer:?} {copy_back:?}: {moves:?}"
                );
                disk.detach().await.expect("everything is destaged");
                assert!(
                    everything(&*slow).await == expected,
                    "{buffer:?} {copy_back:?}"
                );
                let up = &moves[0];
                assert_eq!((up.region, up.up, up.copied.0), (Region(2), true, REGION));
                assert!(up.copying > Nanos(0));
            });
        }
    }
}

#[test]
fn a_queued_move_waits_for_the_next_window() {
    run(2, async {
        const DAY: u64 = 86_400_000_000_000;
        let at = |seconds: u64| Nanos((env::wall_clock().0 + seconds * 1_000_000_000) % DAY);
        let (slow, fast) = (Memory::new("hdd0", SLOW), Memory::new("ssd0", FAST));
        let mut settings = published(Buffer::Fast, CopyBack::Changed);
        settings.tier.windows = vec![(at(0), at(12)), (at(60), at(120))];
        settings.tier.parameters.period = Nanos::secs(5);
        settings.tier.parameters.share_min = 80.0;
        settings.tier.parameters.timeout = 1000;
        let disk = make(settings, slow.clone(), fast).await;
        let both_hot = async |seconds: u64| {
            for _ in 0..seconds * 2 {
                get(&disk, Span::bytes(REGION, 4096)).await;
                get(&disk, Span::bytes(4 * REGION, 4096)).await;
                env::sleep(Nanos::millis(333)).await;
            }
        };
        both_hot(14).await;
        // Both are decided after ten seconds; one moves for some more, beyond the window's end.
        slow.set_latency(Nanos::secs(1));
        both_hot(2).await;
        env::sleep(Nanos::secs(25)).await;
        let ends: Vec<MoveEnd> = disk.moves(0).iter().map(|record| record.end).collect();
        assert_eq!(ends, [MoveEnd::Done, MoveEnd::UnderWay]);
        assert_eq!(disk.moves(0)[1].copied, Bytes(0));
        env::sleep(Nanos::secs(60)).await;
        assert!(done(&disk, 2), "{:?}", disk.moves(0));
    });
}

#[test]
fn holes_are_not_reported_where_the_buffer_has_data() {
    run(3, async {
        let (slow, fast) = (Memory::new("hdd0", SLOW), Memory::new("ssd0", FAST));
        let disk = make(published(Buffer::Memory, CopyBack::All), slow.clone(), fast).await;
        slow.set_latency(Nanos::secs(1));
        heat_until(&disk, 2, |disk| !disk.moves(0).is_empty()).await;
        let span = Span::bytes(REGION + (1 << 20), 8192);
        put(&disk, span, 7).await;
        assert_eq!(disk.moves(0)[0].end, MoveEnd::UnderWay);
        assert_eq!(
            disk.status().occupancy.dirty_bytes,
            0,
            "it is in memory alone"
        );
        let pieces = disk.allocation(span).await.expect("it can be told");
        assert_eq!(pieces, [(8192, true)]);
        let elsewhere = Span::bytes(6 * REGION, 8192);
        let pieces = disk.allocation(elsewhere).await.expect("it can be told");
        assert_eq!(pieces, [(8192, false)], "nothing was ever written there");
        assert!(reads_as(&disk, span, 7).await);
    });
}

#[test]
fn what_the_buffer_holds_is_read_though_the_fast_device_is_gone() {
    run(6, async {
        let (slow, fast) = (Memory::new("hdd0", SLOW), Memory::new("ssd0", FAST));
        let book = Book::new(env::rng("faults"));
        let settings = published(Buffer::Memory, CopyBack::All);
        let disk = make(settings, slow.clone(), book.wrap(fast)).await;
        heat_until(&disk, 2, |disk| done(disk, 1)).await;
        put(&disk, Span::bytes(REGION, 8192), 5).await;
        slow.set_latency(Nanos::millis(500));
        heat_until(&disk, 3, |disk| disk.moves(0).len() > 1).await;
        let span = Span::bytes(2 * REGION + (1 << 20), 8192);
        put(&disk, span, 7).await;
        assert_eq!(
            disk.status().occupancy.dirty_bytes,
            8192,
            "the rest is in memory"
        );

        book.add(Rule::new(Injury::Gone).device("ssd0"));
        env::sleep(Nanos::secs(60)).await;
        let status = disk.status();
        assert_eq!(status.health, Health::Failed, "{}", status.why);
        assert!(reads_as(&disk, span, 7).await, "it was acknowledged");
        let wider = Span::bytes(span.start.byte() - 4096, 16_384);
        let read = get(&disk, wider).await;
        let held = read[4096..12_288].iter().all(|byte| *byte == 7);
        assert!(held, "it lies over the slow device's");
        disk.flush().await.expect_err("it is in memory alone");
    });
}

#[test]
fn a_flush_of_the_buffer_fails_once_both_devices_are_gone() {
    run(8, async {
        let (slow, fast) = (Memory::new("hdd0", SLOW), Memory::new("ssd0", FAST));
        let book = Book::new(env::rng("faults"));
        let settings = published(Buffer::Memory, CopyBack::All);
        let ties = Ties {
            on_abandon: Some(Rc::new(|_| Ok(()))),
            ..Ties::default()
        };
        let (hdd, ssd) = (book.wrap(slow.clone()), book.wrap(fast));
        let disk = Hybrid::create(settings, hdd, ssd, ties).await;
        let disk = disk.expect("two blank devices");
        slow.set_latency(Nanos::millis(500));
        heat_until(&disk, 2, |disk| !disk.moves(0).is_empty()).await;
        let span = Span::bytes(REGION + (1 << 20), 8192);
        put(&disk, span, 7).await;
        assert_eq!(
            disk.status().occupancy.dirty_bytes,
            0,
            "it is in memory alone"
        );

        book.add(Rule::new(Injury::Gone).device("ssd0"));
        book.add(Rule::new(Injury::Gone).device("hdd0"));
        for _ in 0..3 {
            disk.flush().await.expect_err("it is in memory alone");
            env::sleep(Nanos::secs(2)).await;
        }
        let status = disk.status();
        assert_eq!(status.health, Health::PassThrough, "{}", status.why);
        assert!(reads_as(&disk, span, 7).await, "it was acknowledged");
    });
}

#[test]
fn barred_extents_of_a_region_that_moves_stay_where_they_are() {
    for buffer in [Buffer::Memory, Buffer::Fast] {
        run(4, async move {
            let contents = noise(7, SLOW);
            let (slow, fast) = (Memory::new("hdd0", SLOW), Memory::new("ssd0", FAST));
            slow.load(base::Sector(0), &contents);
            slow.set_latency(Nanos::millis(50));
            let mut settings = published(buffer, CopyBack::All);
            settings.tier.extent = Some(Bytes::mib(1));
            // The third MiB of the second region.
            let barred = Span::bytes(REGION + (2 << 20), 1 << 20);
            settings.tier.barred = vec![barred];
            let disk = make(settings, slow.clone(), fast).await;
            let (here, there) = (
                Span::bytes(REGION + (2 << 20) + 8192, 4096),
                Span::bytes(REGION + (3 << 20), 4096),
            );
            heat_until(&disk, 2, |disk| !disk.moves(0).is_empty()).await;
            put(&disk, here, 1).await;
            put(&disk, there, 2).await;
            heat_until(&disk, 2, |disk| done(disk, 1)).await;
            disk.flush().await.expect("it is durable");
            let status = disk.tier().expect("a tier");
            assert_eq!(status.room.held_bytes, REGION - (1 << 20), "{buffer:?}");
            assert!(status.moves.bytes_up <= REGION - (1 << 20), "{status:?}");
            assert!(reads_as(&*slow, here, 1).await);
            put(&disk, here, 3).await;
            put(&disk, there, 4).await;
            assert!(
                reads_as(&*slow, here, 3).await,
                "{buffer:?}: it stays there"
            );
            assert!(!reads_as(&*slow, there, 4).await);
            heat_until(&disk, 5, |disk| {
                disk.tier().expect("a tier").room.held_bytes == 0
                    || disk
                        .moves(0)
                        .iter()
                        .any(|one| !one.up && one.end == MoveEnd::Done)
            })
            .await;
            let mut expected = contents;
            for (span, fill) in [(here, 3), (there, 4)] {
                let at = span.start.byte() as usize;
                expected[at..at + span.len.usize()].fill(fill);
            }
            assert!(everything(&disk).await == expected, "{buffer:?}");
            disk.detach().await.expect("everything is destaged");
            assert!(everything(&*slow).await == expected, "{buffer:?}");
        });
    }
}

#[test]
fn writers_of_a_region_that_fills_the_tier_do_not_wait_for_its_copy() {
    run(5, async {
        let (slow, fast) = (
            Memory::new("hdd0", SLOW),
            Memory::new("ssd0", Bytes::mib(10)),
        );
        let disk = make(
            published(Buffer::Fast, CopyBack::Changed),
            slow.clone(),
            fast,
        )
        .await;
        heat_until(&disk, 2, |disk| !disk.moves(0).is_empty()).await;
        // Each step of the copy takes seconds, and users write over what was copied.
        slow.set_latency(Nanos::secs(2));
        let mut longest = Nanos(0);
        for round in 0..4000_u64 {
            let begun = env::now();
            put(
                &disk,
                Span::bytes(REGION + round * 7 % 1900 * 4096, 4096),
                1,
            )
            .await;
            longest = longest.max(env::now().since(begun));
            env::sleep(Nanos::millis(4)).await;
        }
        assert_eq!(disk.moves(0)[0].end, MoveEnd::Done, "it moved meanwhile");
        assert!(longest < Nanos::millis(200), "{longest}");
    });
}

/// The paper's devices: four disks as one, and an SSD.
fn paper_devices() -> (Rc<dyn Device>, Rc<dyn Device>) {
    let disk = Spec::find("hdd-10k-sas").expect("in the catalogue");
    let members = (0..4)
        .map(|number| -> Rc<dyn Device> {
            let name = format!("hdd{number}");
            ModelDisk::new(&name, &disk, Some(Bytes::gib(74)), Store::None, number)
                .expect("a size it can have")
        })
        .collect();
    let raid = Striped::new("raid", members, striped::CHUNK).expect("four disks are a stripe");
    let flash = Spec::find("ssd-sata-mlc").expect("in the catalogue");
    let fast = ModelDisk::new("ssd0", &flash, Some(Bytes::gib(24)), Store::Memory, 9)
        .expect("a size it can have");
    (raid, fast)
}

/// AST table 1: 2-3 s up and 6-7 s down for a subLUN of 1 GiB, without requests of users.
#[test]
fn on_the_papers_devices_a_region_takes_the_papers_times() {
    run(1, async {
        let (slow, fast) = paper_devices();
        let mut settings = published(Buffer::Memory, CopyBack::All);
        settings.tier.region = Bytes::gib(1);
        settings.tier.extent = Some(Bytes::gib(1));
        settings.tier.parameters.period = Nanos::secs(60);
        settings.tier.parameters.iops_min = 0.01;
        let disk = make(settings, slow, fast).await;
        let hot = |minute: u64| 100 + minute / 4 % 2;
        for minute in 0..16 {
            for second in 0..60 {
                // Two requests a minute decide; moves come in the quiet after the minute's end.
                if second == 55 {
                    disk.read_at(base::Sector(hot(minute) << 21), Bytes(4096))
                        .await
                        .expect("it is there");
                }
                env::sleep(Nanos::secs(1)).await;
            }
        }
        let moves = disk.moves(0);
        let seconds = |up: bool| -> Vec<f64> {
            let ended = moves
                .iter()
                .filter(|record| record.up == up && record.end == MoveEnd::Done);
            ended.map(|record| record.copying.secs_f64()).collect()
        };
        println!("up: {:?} s, down: {:?} s", seconds(true), seconds(false));
        assert!(
            seconds(true).len() >= 2 && seconds(false).len() >= 2,
            "{moves:?}"
        );
        assert!(seconds(true).iter().all(|took| (2.0..=3.0).contains(took)));
        assert!(seconds(false).iter().all(|took| (6.0..=7.0).contains(took)));
    });
}
