//! Hot regions are promoted to the fast device, and demoted again.

use std::rc::Rc;

use base::{Bytes, Nanos, Span};
use device::fault::{Book, Done, Injury, Rule};
use device::model::{ModelDisk, Spec, Store};
use device::{Crash, Device, Memory, Op};
use hybrid::{
    Admission, CopyBack, Demotion, Health, Hybrid, Mode, MoveEnd, Settings, Tier, TierStatus, Ties,
};
use policy::tier::{Parameters, Region};
use proptest::prelude::*;

use crate::common::{everything, get, make, noise, pages, put, reads_as, run};
use crate::twin::{actions, agree, cases};

const SLOW: Bytes = Bytes::mib(64);
const FAST: Bytes = Bytes::mib(24);

/// Regions of 4 MiB in extents of 1 MiB, judged every second: two seconds in a row up, three away down.
pub(super) fn tiered(mode: Mode) -> Settings {
    Settings {
        name: "vol0".to_owned(),
        mode,
        tier: Tier {
            parameters: Parameters {
                period: Nanos::secs(1),
                iops_min: 1.0,
                share_min: 50.0,
                streak_min: 2,
                timeout: 3,
                ..Parameters::default()
            },
            region: Bytes::mib(4),
            extent: Some(Bytes::mib(1)),
            break_even: false,
            ..Tier::default()
        },
        ..Settings::default()
    }
}

fn devices() -> (Rc<Memory>, Rc<Memory>) {
    let slow = Memory::new("hdd0", SLOW);
    slow.load(base::Sector(0), &noise(7, SLOW));
    (slow, Memory::new("ssd0", FAST))
}

/// Reads in `region` for `seconds`, ten times a second.
async fn heat_up(disk: &Hybrid, region: u32, seconds: u64) {
    for round in 0..seconds * 10 {
        get(
            disk,
            pages(u64::from(region - 1) * 1024 + round % 7 * 150, 1),
        )
        .await;
        env::sleep(Nanos::millis(100)).await;
    }
}

fn tier(disk: &Hybrid) -> TierStatus {
    disk.tier().expect("there is a tier")
}

#[test]
fn a_hot_region_goes_up_and_all_of_it_is_read_from_the_fast_device() {
    run(1, async {
        let (slow, fast) = devices();
        let disk = make(tiered(Mode::Tier), slow.clone(), fast).await;
        heat_up(&disk, 3, 4).await;
        assert_eq!(tier(&disk).room.regions_up, 1);
        assert_eq!(tier(&disk).room.held_bytes, 4 << 20);
        let before = disk.status().traffic.slow_bytes_read;
        let all = get(&disk, Span::bytes(8 << 20, 4 << 20)).await;
        assert_eq!(disk.status().traffic.slow_bytes_read, before);
        assert_eq!(&all[..], &noise(7, SLOW)[8 << 20..12 << 20]);
        let moves = disk.moves(0);
        assert_eq!(moves.len(), 1);
        assert_eq!(
            (moves[0].region, moves[0].up, moves[0].end),
            (Region(3), true, MoveEnd::Done)
        );
    });
}

#[test]
fn what_is_not_up_is_left_where_it_is() {
    run(2, async {
        let (slow, fast) = devices();
        let disk = make(tiered(Mode::Tier), slow.clone(), fast).await;
        put(&disk, pages(9000, 4), 5).await;
        for _ in 0..3 {
            get(&disk, pages(5000, 16)).await;
        }
        let status = disk.status();
        assert_eq!(
            (status.occupancy.cached_bytes, status.occupancy.dirty_bytes),
            (0, 0)
        );
        assert!(reads_as(&*slow, pages(9000, 4), 5).await);
    });
}

/// Where region `number` lies.
fn region(number: u64) -> Span {
    Span::bytes((number - 1) << 22, 4 << 20)
}

#[test]
fn writes_to_a_region_that_is_up_leave_the_slow_device_alone() {
    run(3, async {
        let (slow, fast) = devices();
        let disk = make(tiered(Mode::Tier), slow.clone(), fast).await;
        heat_up(&disk, 3, 4).await;
        let before = disk.status().traffic.slow_bytes_written;
        for round in 0..40 {
            put(&disk, pages(2048 + round * 20, 8), round as u8).await;
        }
        // The cleaner lets them be: they will be written again.
        heat_up(&disk, 3, 3).await;
        assert_eq!(disk.status().traffic.slow_bytes_written, before);
        assert_eq!(tier(&disk).room.held_dirty_bytes, 40 * 8 * 4096);
        let status = disk.status();
        assert!(status.requests.home_requests >= 40, "{status:?}");
    });
}

#[test]
fn a_write_during_a_copy_wins() {
    run(4, async {
        let (slow, fast) = devices();
        // Each chunk takes 50 ms, and users write meanwhile.
        slow.set_latency(Nanos::millis(50));
        let mut settings = tiered(Mode::Tier);
        settings.tier.flow_control = false;
        let disk = make(settings, slow.clone(), fast).await;
        heat_up(&disk, 3, 2).await;
        let mut written = 0;
        while tier(&disk).room.held_bytes < 4 << 20 {
            put(&disk, pages(2048 + written * 3 % 1024, 1), 9).await;
            env::sleep(Nanos::micros(700)).await;
            written += 1;
        }
        assert!(written > 100, "{written} writes met the copy");
        let expected = noise(7, SLOW);
        for page in 0..1024 {
            let at = 2048 + page;
            let ours = (0..written).any(|number| number * 3 % 1024 == page);
            let found = get(&disk, pages(at, 1)).await;
            match ours {
                true => assert!(found.iter().all(|byte| *byte == 9), "page {at}"),
                false => assert_eq!(found[..], expected[(at as usize) << 12..][..4096]),
            }
        }
    });
}

#[test]
fn a_clean_region_goes_down_without_a_write_to_the_slow_device() {
    run(5, async {
        let (slow, fast) = devices();
        let mut settings = tiered(Mode::Tier);
        settings.tier.demotion.lazy = false;
        let disk = make(settings, slow.clone(), fast).await;
        heat_up(&disk, 3, 4).await;
        assert_eq!(tier(&disk).room.held_bytes, 4 << 20);
        heat_up(&disk, 9, 5).await;
        assert_eq!(
            tier(&disk).room.held_bytes,
            4 << 20,
            "the other one came for it"
        );
        assert_eq!(tier(&disk).room.regions_up, 1);
        assert_eq!(disk.status().traffic.slow_bytes_written, 0);
        let down = disk.moves(0).into_iter().find(|record| !record.up).unwrap();
        assert_eq!(
            (down.region, down.end, down.copied),
            (Region(3), MoveEnd::Done, Bytes(0))
        );
    });
}

#[test]
fn what_changed_is_destaged_before_its_region_is_demoted() {
    for copy_back in [CopyBack::Changed, CopyBack::All] {
        run(6, async move {
            let (slow, fast) = devices();
            let mut settings = tiered(Mode::Tier);
            settings.tier.demotion.lazy = false;
            settings.tier.demotion.copy_back = copy_back;
            let disk = make(settings, slow.clone(), fast).await;
            heat_up(&disk, 3, 4).await;
            put(&disk, pages(2500, 10), 77).await;
            heat_up(&disk, 9, 6).await;
            assert_eq!(tier(&disk).room.regions_up, 1);
            assert!(reads_as(&*slow, pages(2500, 10), 77).await);
            let expected = match copy_back {
                CopyBack::Changed => 10 * 4096,
                _ => 4 << 20,
            };
            assert_eq!(disk.status().traffic.slow_bytes_written, expected);
            assert_eq!(tier(&disk).moves.bytes_down, expected);
        });
    }
}

#[test]
fn an_idle_region_stays_until_room_is_needed_and_costs_nothing_if_wanted() {
    run(7, async {
        let (slow, fast) = devices();
        let disk = make(tiered(Mode::Tier), slow.clone(), fast).await;
        heat_up(&disk, 3, 4).await;
        heat_up(&disk, 9, 6).await;
        assert_eq!(tier(&disk).moves.down, 1);
        assert_eq!(tier(&disk).room.held_bytes, 8 << 20, "it rests");
        let copied = tier(&disk).moves.bytes_up;
        heat_up(&disk, 3, 4).await;
        assert_eq!(tier(&disk).moves.bytes_up, copied, "it is there still");
        // Room for five: the coldest at rest gives way.
        for number in [5, 6, 7, 11] {
            heat_up(&disk, number, 6).await;
        }
        let status = tier(&disk);
        assert!(status.room.held_bytes <= status.room.room_bytes);
        let before = disk.status().traffic.slow_bytes_read;
        get(&disk, region(11)).await;
        assert_eq!(
            disk.status().traffic.slow_bytes_read,
            before,
            "the newest is up"
        );
        get(&disk, region(9)).await;
        assert!(
            disk.status().traffic.slow_bytes_read > before,
            "the oldest is not"
        );
    });
}

#[test]
fn a_promotion_that_cools_is_cancelled() {
    run(8, async {
        let (slow, fast) = devices();
        // 1 MiB a second at most: the users of the other region see to that.
        slow.set_latency(Nanos::millis(5));
        let disk = make(tiered(Mode::Tier), slow.clone(), fast).await;
        let mut settings = disk.settings();
        settings.tier.windows = Vec::new();
        settings.tier.region = Bytes::mib(16);
        disk.set(settings).await.unwrap();
        heat_up(&disk, 1, 2).await;
        slow.set_latency(Nanos::secs(2));
        for round in 0..30 {
            get(&disk, pages(12_000 + round * 7, 1)).await;
        }
        let first = disk.moves(0).into_iter().next().unwrap();
        assert_eq!((first.region, first.end), (Region(1), MoveEnd::Cancelled));
        assert!(first.copied < Bytes::mib(16), "{}", first.copied);
        assert_eq!(tier(&disk).moves.cancelled, 1);
    });
}

#[test]
fn a_region_stays_up_over_a_clean_stop() {
    run(9, async {
        let (slow, fast) = devices();
        let disk = make(tiered(Mode::Tier), slow.clone(), fast.clone()).await;
        heat_up(&disk, 3, 4).await;
        put(&disk, pages(2500, 10), 77).await;
        disk.close().await.unwrap();
        let disk = Hybrid::open(tiered(Mode::Tier), slow.clone(), fast, Ties::default())
            .await
            .unwrap();
        assert_eq!(
            (tier(&disk).room.regions_up, tier(&disk).room.held_bytes),
            (1, 4 << 20)
        );
        let before = disk.status().traffic.slow_bytes_read;
        assert!(reads_as(&disk, pages(2500, 10), 77).await);
        get(&disk, region(3)).await;
        assert_eq!(disk.status().traffic.slow_bytes_read, before);
        // The policy knows of it: it goes when it has been away for long enough.
        heat_up(&disk, 9, 6).await;
        assert_eq!(disk.moves(0).iter().filter(|record| !record.up).count(), 1);
    });
}

#[test]
fn a_region_stays_up_over_a_power_cut() {
    run(10, async {
        let slow = Crash::new("hdd0", SLOW, env::rng("slow"));
        let fast = Crash::new("ssd0", FAST, env::rng("fast"));
        let disk = make(tiered(Mode::Both), slow.clone(), fast.clone()).await;
        heat_up(&disk, 3, 4).await;
        put(&disk, pages(2500, 10), 77).await;
        disk.flush().await.unwrap();
        slow.cut_now();
        fast.cut_now();
        let (slow, fast) = (slow.restart(env::rng("s")), fast.restart(env::rng("f")));
        let disk = Hybrid::open(tiered(Mode::Both), slow, fast, Ties::default())
            .await
            .unwrap();
        assert_eq!(
            (tier(&disk).room.regions_up, tier(&disk).room.held_bytes),
            (1, 4 << 20)
        );
        assert!(reads_as(&disk, pages(2500, 10), 77).await);
    });
}

#[test]
fn extents_of_another_size_come_back_where_all_of_them_was_up() {
    run(11, async {
        let (slow, fast) = devices();
        let disk = make(tiered(Mode::Tier), slow.clone(), fast.clone()).await;
        heat_up(&disk, 3, 4).await;
        put(&disk, pages(2500, 10), 77).await;
        disk.close().await.unwrap();
        let mut settings = tiered(Mode::Tier);
        settings.tier.extent = Some(Bytes::mib(4));
        let disk = Hybrid::open(
            settings.clone(),
            slow.clone(),
            fast.clone(),
            Ties::default(),
        )
        .await
        .unwrap();
        assert_eq!(
            (tier(&disk).room.regions_up, tier(&disk).room.held_bytes),
            (1, 4 << 20)
        );
        // While it is in use, too.
        settings.tier.extent = Some(Bytes::mib(8));
        settings.tier.region = Bytes::mib(8);
        disk.set(settings).await.unwrap();
        assert_eq!(tier(&disk).room.regions_up, 0, "half of the new one was up");
        assert!(reads_as(&disk, pages(2500, 10), 77).await);
        env::sleep(Nanos::secs(10)).await;
        assert_eq!(
            disk.status().occupancy.cached_bytes,
            0,
            "nothing is left over"
        );
        assert!(reads_as(&*slow, pages(2500, 10), 77).await);
    });
}

#[test]
fn pinned_ranges_are_up_from_the_start_and_barred_ones_never() {
    run(12, async {
        let (slow, fast) = devices();
        let mut settings = tiered(Mode::Tier);
        settings.tier.pinned = vec![Span::bytes(21 << 20, 1 << 20)];
        settings.tier.barred = vec![region(3)];
        let disk = make(settings.clone(), slow.clone(), fast).await;
        env::sleep(Nanos::secs(2)).await;
        assert_eq!(tier(&disk).room.held_bytes, 1 << 20);
        heat_up(&disk, 3, 4).await;
        assert_eq!(tier(&disk).room.held_bytes, 1 << 20);
        // Changed while it is in use.
        settings.tier.pinned = Vec::new();
        settings.tier.barred = vec![Span::bytes(20 << 20, 4 << 20)];
        disk.set(settings).await.unwrap();
        heat_up(&disk, 3, 4).await;
        assert_eq!(tier(&disk).room.held_bytes, 4 << 20);
        let before = disk.status().traffic.slow_bytes_read;
        get(&disk, region(3)).await;
        assert_eq!(disk.status().traffic.slow_bytes_read, before);
    });
}

#[test]
fn outside_its_windows_no_move_begins() {
    run(13, async {
        let (slow, fast) = devices();
        let now = Nanos(env::wall_clock().0 % Nanos::secs(86_400).0);
        let later = |span: Nanos| Nanos((now.0 + span.0) % Nanos::secs(86_400).0);
        let mut settings = tiered(Mode::Tier);
        settings.tier.windows = vec![(later(Nanos::secs(600)), later(Nanos::secs(1200)))];
        let disk = make(settings, slow, fast).await;
        heat_up(&disk, 3, 10).await;
        assert_eq!(
            (tier(&disk).room.regions_up, disk.moves(0)),
            (0, Vec::new())
        );
        env::sleep(Nanos::secs(600)).await;
        heat_up(&disk, 3, 4).await;
        assert_eq!(tier(&disk).room.regions_up, 1);
    });
}

/// A window of the day from `from` to `to`, counted from now.
fn window(from: Nanos, to: Nanos) -> (Nanos, Nanos) {
    const DAY: u64 = 86_400_000_000_000;
    let at = |span: Nanos| Nanos((env::wall_clock().0 + span.0) % DAY);
    (at(from), at(to))
}

/// Reads the first page of `region` for `seconds`, ten times a second.
async fn keep_hot(disk: &Hybrid, region: u64, seconds: u64) {
    for _ in 0..seconds * 10 {
        get(disk, pages((region - 1) * 1024, 1)).await;
        env::sleep(Nanos::millis(100)).await;
    }
}

#[test]
fn what_is_touched_outside_the_windows_is_promoted_when_one_opens() {
    run(30, async {
        let (slow, fast) = devices();
        let mut settings = tiered(Mode::Tier);
        // Extents come up one by one, as they are touched.
        settings.tier.break_even = true;
        settings.tier.windows = vec![
            window(Nanos(0), Nanos::secs(10)),
            window(Nanos::secs(30), Nanos::secs(90)),
        ];
        let disk = make(settings, slow.clone(), fast).await;
        keep_hot(&disk, 3, 5).await;
        assert_eq!(tier(&disk).room.regions_up, 1);
        keep_hot(&disk, 3, 10).await;
        // The second extent of the region, which is sent up: a write to what is up goes to the fast device.
        let other = pages(2048 + 256, 4);
        put(&disk, other, 1).await;
        put(&disk, other, 2).await;
        assert!(reads_as(&*slow, other, 2).await, "it stayed where it was");
        assert_eq!(disk.status().occupancy.dirty_bytes, 0);
        keep_hot(&disk, 3, 20).await;
        put(&disk, other, 3).await;
        put(&disk, other, 4).await;
        assert!(
            disk.status().occupancy.dirty_bytes > 0,
            "the window is open"
        );
        assert!(reads_as(&disk, other, 4).await);
    });
}

#[test]
fn what_is_missing_after_a_restart_is_copied_in_the_next_window() {
    run(31, async {
        let (slow, fast) = devices();
        let settings = tiered(Mode::Tier);
        let disk = make(settings.clone(), slow.clone(), fast.clone()).await;
        // 1 MiB a second, so that the copy is under way when the disk is closed.
        slow.set_latency(Nanos::millis(900));
        keep_hot(&disk, 3, 3).await;
        disk.close().await.unwrap();
        slow.set_latency(Nanos(0));
        let mut settings = settings;
        settings.tier.windows = vec![window(Nanos::secs(60), Nanos::secs(120))];
        let disk = Hybrid::open(settings, slow, fast, Ties::default())
            .await
            .unwrap();
        let (up, held) = (tier(&disk).room.regions_up, tier(&disk).room.held_bytes);
        assert!(up == 1 && held < 4 << 20, "{up} up, {held} held");
        keep_hot(&disk, 3, 40).await;
        assert_eq!(tier(&disk).moves.bytes_up, 0, "nothing is copied yet");
        keep_hot(&disk, 3, 30).await;
        assert_eq!(tier(&disk).room.held_bytes, 4 << 20);
    });
}

#[test]
fn a_closed_disk_copies_nothing_more() {
    run(32, async {
        let (slow, fast) = devices();
        let book = Book::new(env::rng("requests"));
        let (slow_seen, fast_seen) = (book.wrap(slow.clone()), book.wrap(fast.clone()));
        // More than goes at once.
        let mut settings = tiered(Mode::Tier);
        settings.tier.region = Bytes::mib(16);
        let disk = make(settings.clone(), slow_seen, fast_seen).await;
        slow.set_latency(Nanos::millis(20));
        heat_up(&disk, 3, 2).await;
        // Users keep the slow device busy and slow, so that copies wait for their turn for a second each.
        slow.set_latency(Nanos::millis(100));
        let users: Vec<_> = (0..8)
            .map(|user| {
                let disk = disk.clone();
                env::spawn(async move {
                    for round in 0..8 {
                        get(&disk, pages(9000 + user * 100 + round, 1)).await;
                    }
                })
            })
            .collect();
        for user in users {
            user.await;
        }
        let moves = disk.moves(0);
        assert_eq!(moves[0].end, MoveEnd::UnderWay);
        slow.set_latency(Nanos(0));
        disk.close().await.unwrap();
        let steps = book.steps();
        env::sleep(Nanos::secs(600)).await;
        assert_eq!(book.steps(), steps, "no request uses the devices");
        let disk = Hybrid::open(settings, slow, fast, Ties::default())
            .await
            .unwrap();
        assert!(everything(&disk).await == noise(7, SLOW));
    });
}

#[test]
fn a_promotion_that_lost_its_readers_is_cancelled_in_the_log() {
    run(33, async {
        let (slow, fast) = devices();
        let mut settings = tiered(Mode::Tier);
        settings.tier.break_even = true;
        settings.tier.region = Bytes::mib(16);
        settings.tier.extent = Some(Bytes::mib(16));
        settings.tier.parameters.timeout = 1000;
        let disk = make(settings, slow.clone(), fast).await;
        slow.set_latency(Nanos::millis(50));
        for round in 0..60 {
            get(&disk, pages(round * 61 % 4096, 1)).await;
        }
        let first = || disk.moves(0).into_iter().next().expect("it was sent up");
        assert_eq!(first().end, MoveEnd::UnderWay);
        // It stays wanted, but its readers are gone, and the rest would come a minute at a time.
        slow.set_latency(Nanos::secs(60));
        for round in 0..40 {
            get(&disk, pages(12_000 + round * 7, 1)).await;
        }
        assert_eq!(first().end, MoveEnd::Cancelled);
        assert!(first().copied < Bytes::mib(16));
        assert_eq!(
            (tier(&disk).moves.cancelled, tier(&disk).moves.down),
            (1, 0)
        );
    });
}

#[test]
fn regions_of_another_size_have_numbers_of_their_own() {
    run(34, async {
        let (slow, fast) = devices();
        let disk = make(tiered(Mode::Tier), slow.clone(), fast).await;
        slow.set_latency(Nanos::millis(300));
        heat_up(&disk, 3, 1).await;
        assert_eq!(disk.moves(0)[0].end, MoveEnd::UnderWay);
        let mut settings = tiered(Mode::Tier);
        settings.tier.region = Bytes::mib(2);
        disk.set(settings).await.unwrap();
        slow.set_latency(Nanos(0));
        assert_eq!(disk.heat().expect("a tier").intervals, []);
        // Region 3 of 4 MiB, 8 to 12 MiB, is regions 5 and 6 of 2 MiB.
        for _ in 0..60 {
            get(&disk, pages(2048, 1)).await;
            env::sleep(Nanos::millis(100)).await;
        }
        let moves = disk.moves(0);
        let old = &moves[0];
        assert_eq!(
            (old.region, old.region_len, old.end),
            (Region(3), Bytes::mib(4), MoveEnd::Cancelled)
        );
        assert!(moves[1..].iter().all(|one| one.region_len == Bytes::mib(2)));
        let down: Vec<Region> = moves[1..]
            .iter()
            .filter(|one| !one.up)
            .map(|one| one.region)
            .collect();
        assert_eq!(down, [Region(6)], "the other half is not asked for");
        let heat = disk.heat().expect("a tier");
        assert!(heat.intervals.iter().all(|interval| {
            interval
                .counts
                .iter()
                .all(|count| count.region == Region(5))
        }));
    });
}

#[test]
fn a_large_extent_is_emptied_while_others_have_their_turn() {
    run(35, async {
        let slow = Memory::new("hdd0", Bytes::mib(256));
        let fast = Memory::new("ssd0", Bytes::mib(96));
        let mut settings = tiered(Mode::Tier);
        settings.tier.region = Bytes::mib(64);
        settings.tier.extent = Some(Bytes::mib(64));
        settings.tier.demotion.lazy = false;
        let disk = make(settings, slow, fast).await;
        for _ in 0..40 {
            get(&disk, pages(3, 1)).await;
            env::sleep(Nanos::millis(100)).await;
        }
        assert_eq!(tier(&disk).room.held_bytes, 64 << 20);
        // Held pages are fewer from one turn to the next.
        let mut seen = std::collections::BTreeSet::new();
        for round in 0..200 {
            get(&disk, pages(40_000 + round % 9, 1)).await;
            for _ in 0..64 {
                seen.insert(tier(&disk).room.held_bytes);
                env::yield_now().await;
            }
            env::sleep(Nanos::millis(100)).await;
        }
        assert_eq!((seen.first(), seen.last()), (Some(&0), Some(&(64 << 20))));
        assert!(seen.len() > 3, "{seen:?}");
    });
}

#[test]
fn beside_a_tier_the_cache_has_the_rest() {
    run(14, async {
        let (slow, fast) = devices();
        let mut settings = tiered(Mode::Both);
        settings.admission = Admission::Always;
        settings.sequential_bypass = None;
        settings.tier.share = Some(50);
        let disk = make(settings, slow.clone(), fast).await;
        let room = tier(&disk).room.room_bytes;
        get(&disk, region(12)).await;
        heat_up(&disk, 3, 4).await;
        env::sleep(Nanos::millis(100)).await;
        assert_eq!(tier(&disk).room.held_bytes, 4 << 20);
        let before = disk.status().traffic.slow_bytes_read;
        get(&disk, region(12)).await;
        get(&disk, region(3)).await;
        assert_eq!(disk.status().traffic.slow_bytes_read, before);
        assert_eq!(disk.status().occupancy.cached_bytes, 8 << 20);
        // A flood of other data costs the cache, and not the tier.
        for number in 5..16 {
            get(&disk, region(number)).await;
        }
        let status = tier(&disk);
        assert_eq!(
            (status.room.held_bytes, status.room.room_bytes),
            (4 << 20, room)
        );
        let before = disk.status().traffic.slow_bytes_read;
        get(&disk, region(3)).await;
        assert_eq!(disk.status().traffic.slow_bytes_read, before);
    });
}

#[test]
fn the_boundary_between_tier_and_cache_follows_their_use() {
    run(20, async {
        let (slow, fast) = devices();
        let mut settings = tiered(Mode::Both);
        settings.admission = Admission::Always;
        settings.sequential_bypass = None;
        settings.tier.parameters.streak_min = 1000;
        let disk = make(settings.clone(), slow.clone(), fast).await;
        let half = tier(&disk).room.room_bytes;
        // What is read comes back a little too late for the cache, and nothing wants to be up.
        for round in 0..60_000_u64 {
            get(&disk, pages(round * 11 % 6_000, 1)).await;
            env::sleep(Nanos::millis(1)).await;
        }
        let low = tier(&disk).room.room_bytes;
        assert!(low < half / 2, "{low} of {half}");
        // Now no request uses the cache, and more is hot than the tier has room for.
        settings.tier.parameters.streak_min = 1;
        settings.tier.parameters.share_min = 99.0;
        disk.set(settings).await.unwrap();
        for round in 0..60_000_u64 {
            put(&disk, pages(6_000 + round * 7 % 5_000, 1), 3).await;
            env::sleep(Nanos::millis(1)).await;
        }
        let high = tier(&disk).room.room_bytes;
        assert!(high > 3 * low, "{high} from {low}");
    });
}

#[test]
fn a_cache_becomes_a_tier_and_a_tier_a_cache_and_nothing_is_lost() {
    run(15, async {
        let (slow, fast) = devices();
        let disk = make(tiered(Mode::Cache), slow.clone(), fast).await;
        put(&disk, pages(5000, 100), 1).await;
        assert_eq!(disk.status().occupancy.dirty_bytes, 100 * 4096);
        disk.set(tiered(Mode::Tier)).await.unwrap();
        heat_up(&disk, 3, 4).await;
        put(&disk, pages(2500, 10), 2).await;
        env::sleep(Nanos::secs(5)).await;
        let status = disk.status();
        assert_eq!(
            status.occupancy.cached_bytes,
            tier(&disk).room.held_bytes,
            "the cache's pages were destaged"
        );
        assert!(reads_as(&*slow, pages(5000, 100), 1).await);
        disk.set(tiered(Mode::Cache)).await.unwrap();
        assert_eq!(disk.tier(), None);
        assert!(disk.status().occupancy.cached_bytes >= 4 << 20);
        for (span, fill) in [(pages(5000, 100), 1), (pages(2500, 10), 2)] {
            assert!(reads_as(&disk, span, fill).await);
        }
        disk.detach().await.unwrap();
        assert!(reads_as(&*slow, pages(2500, 10), 2).await);
    });
}

#[test]
fn a_smaller_fast_device_sends_the_coldest_down() {
    run(16, async {
        let (slow, fast) = devices();
        let disk = make(tiered(Mode::Tier), slow.clone(), fast).await;
        heat_up(&disk, 9, 4).await;
        put(&disk, pages(8200, 10), 5).await;
        heat_up(&disk, 3, 6).await;
        assert_eq!(tier(&disk).room.held_bytes, 8 << 20);
        disk.resize(Some(Bytes::mib(6))).await.unwrap();
        env::sleep(Nanos::secs(2)).await;
        let status = tier(&disk);
        assert!(
            status.room.held_bytes <= status.room.room_bytes && status.room.room_bytes < 6 << 20
        );
        heat_up(&disk, 3, 4).await;
        let before = disk.status().traffic.slow_bytes_read;
        get(&disk, region(3)).await;
        assert_eq!(disk.status().traffic.slow_bytes_read, before);
        assert!(reads_as(&disk, pages(8200, 10), 5).await);
        disk.detach().await.unwrap();
        assert!(reads_as(&*slow, pages(8200, 10), 5).await);
    });
}

#[test]
fn a_read_of_clean_data_goes_to_the_slow_device_when_the_fast_is_busier() {
    run(17, async {
        let (slow, fast) = devices();
        slow.set_latency(Nanos::millis(1));
        let disk = make(tiered(Mode::Tier), slow.clone(), fast.clone()).await;
        heat_up(&disk, 3, 4).await;
        put(&disk, pages(2100, 1), 8).await;
        assert_eq!(tier(&disk).room.held_bytes, 4 << 20);
        fast.set_latency(Nanos::millis(20));
        let before = disk.status().traffic.slow_bytes_read;
        for round in 0..2000_u64 {
            get(&disk, pages(2200 + round % 500, 1)).await;
            // Another user is at the slow device as well, so that its waits are known.
            if round.is_multiple_of(2) {
                get(&disk, pages(9000 + round, 1)).await;
            }
        }
        let spared = disk.status().traffic.slow_bytes_read - before - 1000 * 4096;
        assert!(spared > 100 * 4096, "{spared} bytes");
        for _ in 0..50 {
            assert!(
                reads_as(&disk, pages(2100, 1), 8).await,
                "what changed is on the fast one alone"
            );
        }
    });
}

#[test]
fn what_the_slow_device_cannot_read_the_fast_one_does() {
    run(36, async {
        let (slow, fast) = devices();
        let book = Book::new(env::rng("faults"));
        let shaky = book.wrap(slow.clone());
        let disk = make(tiered(Mode::Tier), shaky, fast.clone()).await;
        heat_up(&disk, 3, 4).await;
        assert_eq!(tier(&disk).room.held_bytes, 4 << 20);
        slow.set_latency(Nanos::millis(1));
        fast.set_latency(Nanos::millis(20));
        let bad = Rule::new(Injury::Error(Done::Nothing))
            .on(&[Op::Read])
            .within(region(3));
        book.add(bad);
        let expected = noise(7, SLOW);
        for round in 0..2000_u64 {
            let page = 2200 + round % 500;
            let found = get(&disk, pages(page, 1)).await;
            assert_eq!(found[..], expected[(page as usize) << 12..][..4096]);
            // Another user is at the slow device as well, so that its waits are known.
            if round.is_multiple_of(2) {
                get(&disk, pages(9000 + round, 1)).await;
            }
        }
        let errors = book.injuries().errors;
        assert!(errors > 100, "{errors} reads were asked of the slow device");
        assert_eq!(disk.status().health, Health::Healthy);
    });
}

#[test]
fn a_full_tier_makes_no_writer_wait_for_ever() {
    run(18, async {
        let (slow, fast) = devices();
        slow.set_latency(Nanos::millis(2));
        let mut settings = tiered(Mode::Both);
        settings.tier.share = Some(90);
        settings.tier.parameters.sub_luns_max = 16;
        settings.tier.parameters.share_min = 50.0;
        let disk = make(settings, slow.clone(), fast).await;
        let writing = async {
            for round in 0..4000_u64 {
                let page = round * 977 % 16_000;
                put(&disk, pages(page, 16), (round % 250) as u8 + 1).await;
                env::sleep(Nanos::millis(3)).await;
            }
        };
        env::timeout(Nanos::secs(600), writing)
            .await
            .expect("every write ends");
        assert!(tier(&disk).room.regions_up > 2);
    });
}

/// The mean response in milliseconds of reads elsewhere while a region of 1 GiB comes up, and how many seconds
/// that took.
fn beside_a_promotion(copies: bool, flow_control: bool) -> (f64, f64) {
    run(19, async move {
        let model = |name: &str, model: &str, size: Bytes| {
            let spec = Spec::find(model).unwrap();
            ModelDisk::new(name, &spec, Some(size), Store::None, 1).unwrap()
        };
        let slow = model("hdd0", "hdd-10k-sas", Bytes::gib(16));
        let fast = model("ssd0", "ssd-sata-mlc", Bytes::gib(2));
        let mut settings = tiered(Mode::Tier);
        settings.tier.region = Bytes::gib(1);
        settings.tier.parameters.timeout = 1000;
        settings.tier.flow_control = flow_control;
        // The region is not read, so with break-even nothing is copied.
        settings.tier.break_even = !copies;
        let disk = make(settings, slow, fast).await;
        let mut rng = env::rng("users");
        let (mut waited, mut reads) = (0.0, 0);
        let start = base::Instant(0) + Nanos::secs(3);
        let mut end = start;
        while env::now() < start + Nanos::secs(120) {
            put(&disk, pages(rng.below(4096), 1), 0).await;
            put(&disk, pages(rng.below(4096), 1), 0).await;
            let begun = env::now();
            get(&disk, pages(300_000 + rng.below(3_000_000), 1)).await;
            if begun > start && (tier(&disk).room.held_bytes < 1 << 30 || !copies) {
                waited += env::now().since(begun).secs_f64() * 1e3;
                reads += 1;
                end = env::now();
            }
            env::sleep(Nanos::millis(rng.below(20))).await;
        }
        (waited / f64::from(reads), end.since(start).secs_f64())
    })
}

#[test]
fn a_promotion_yields_to_users_and_comes_through_all_the_same() {
    let (alone, _) = beside_a_promotion(false, true);
    let (controlled, took) = beside_a_promotion(true, true);
    let (reckless, rushed) = beside_a_promotion(true, false);
    println!("{alone:.2} ms alone");
    println!("{controlled:.2} ms with flow control, 1 GiB in {took:.0} s");
    println!("{reckless:.2} ms without, 1 GiB in {rushed:.0} s");
    assert!(controlled < alone * 2.0 && controlled < reckless * 0.9);
    assert!(took < 110.0, "it comes through: {took} s");
}

fn tiers() -> impl Strategy<Value = Settings> {
    let words = (
        prop::sample::select(vec![Mode::Tier, Mode::Both]),
        (0..=2_u32, 0..=2_u32),
        (1..=60_u64, 1..=3_u32, 1..=3_u32, 0..=90_u32),
        (
            any::<bool>(),
            any::<bool>(),
            any::<bool>(),
            any::<bool>(),
            any::<bool>(),
        ),
        prop::option::of(10..=90_u8),
        0..=8_u32,
    );
    words.prop_map(|(mode, grains, rule, flags, share, block)| {
        let extent = Bytes::mib(1 << grains.0);
        let (lazy_down, flow_control, break_even, either, all) = flags;
        Settings {
            name: "vol0".to_owned(),
            mode,
            block: Bytes(4096 << block),
            commit_after: Nanos::millis(5),
            tier: Tier {
                parameters: Parameters {
                    period: Nanos::millis(rule.0),
                    iops_min: 0.0,
                    streak_min: rule.1,
                    timeout: rule.2,
                    share_min: f64::from(rule.3),
                    sub_luns_max: 2,
                    ..Parameters::default()
                },
                region: extent * (1 << grains.1),
                extent: Some(extent),
                flow_control,
                break_even,
                either,
                share,
                demotion: Demotion {
                    copy_back: if all {
                        CopyBack::All
                    } else {
                        CopyBack::Changed
                    },
                    lazy: lazy_down,
                    ..Demotion::default()
                },
                ..Tier::default()
            },
            ..Settings::default()
        }
    })
}

proptest! {
    #![proptest_config(cases(32))]

    #[test]
    fn a_tier_reads_like_a_plain_disk_and_leaves_a_complete_slow_one(
        settings in tiers(),
        requests in actions(Bytes::mib(12), Bytes::kib(200), 200),
        fast_mib in 4..10_u64,
        seed in any::<u64>(),
    ) {
        run(seed, async move {
            let slow = Crash::new("hdd0", Bytes::mib(12), env::rng("slow"));
            slow.set_delay(Nanos(0), Nanos::millis(8));
            let fast = Crash::new("ssd0", Bytes::mib(fast_mib), env::rng("fast"));
            fast.set_delay(Nanos(0), Nanos::micros(300));
            let made = Hybrid::create(settings, slow.clone(), fast, Ties::default());
            let disk = made.await.unwrap();
            let work = env::timeout(Nanos::secs(3600), agree(&disk, requests));
            work.await.expect("all requests end within an hour");
            let before = everything(&disk).await;
            disk.detach().await.unwrap();
            assert!(everything(&*slow).await == before, "the slow device alone has it all");
        });
    }
}
