//! In energy mode nothing but users, a full cache and old data wakes the slow device: neither a tier's movers nor a flush.

use std::rc::Rc;

use base::{Bytes, Nanos};
use device::Device;
use device::model::{ModelDisk, Spec, Store};
use hybrid::{Energy, Hybrid, Mode, Mover, Settings, Tier};

use crate::common::{get, make, pages, put, run};
use crate::tiering::tiered;

fn model(name: &str, kind: &str, size: Bytes) -> Rc<ModelDisk> {
    let spec = Spec::find(kind).expect("the catalogue has it");
    ModelDisk::new(name, &spec, Some(size), Store::Memory, 1).expect("a size the model can have")
}

/// Cache and tier in energy mode: regions of 4 MiB in extents of 1 MiB, judged every second, two seconds in a row up.
fn settings(mover: Mover) -> Settings {
    let settings = tiered(Mode::Both);
    Settings {
        energy: Some(Energy {
            age_limit: Nanos::secs(3600),
            standby_after: Nanos::secs(20),
        }),
        tier: Tier {
            mover,
            ..settings.tier
        },
        ..settings
    }
}

/// Seven pages of the third region.
fn hot(round: u64) -> base::Span {
    pages(2 * 1024 + round % 7 * 140, 1)
}

/// Reads hot pages for `seconds`, ten times a second.
async fn heat_up(disk: &Hybrid, seconds: u64) {
    for round in 0..seconds * 10 {
        get(disk, hot(round)).await;
        env::sleep(Nanos::millis(100)).await;
    }
}

fn spin_ups(slow: &ModelDisk) -> u64 {
    slow.power().expect("a model accounts for it").spin_ups
}

#[test]
fn a_tier_moves_nothing_while_its_slow_device_sleeps() {
    for mover in [Mover::Direct, Mover::Published] {
        run(1, async move {
            let slow = model("hdd0", "hdd-5400-mobile", Bytes::gib(4));
            let fast = model("ssd0", "ssd-sata-mlc", Bytes::gib(1));
            let disk = make(settings(mover), slow.clone(), fast).await;
            for round in 0..7 {
                put(&disk, hot(round), 3).await;
            }
            env::sleep(Nanos::secs(60)).await;
            let asleep = slow.spindle().expect("a model says");
            assert!(asleep.asleep, "nothing to do: it sleeps");
            assert!(asleep.since < env::now());
            let before = (spin_ups(&slow), disk.status().traffic);
            // The region is hot by what the cache answers, and most of it is on the slow device alone.
            heat_up(&disk, 60).await;
            let read = disk.status().traffic.slow_bytes_read;
            assert_eq!(read, before.1.slow_bytes_read, "{mover:?}");
            assert_eq!((spin_ups(&slow), slow.spindle()), (before.0, Some(asleep)));
            // A miss wakes it. Then the region moves.
            get(&disk, pages(900_000, 1)).await;
            assert_eq!(spin_ups(&slow), before.0 + 1);
            heat_up(&disk, 15).await;
            let up = disk.tier().expect("there is a tier").room.regions_up;
            assert_eq!(up, 1, "{mover:?}");
            let moved = disk.status().traffic.slow_bytes_read - read;
            assert!(moved > 3 << 20, "{mover:?}: {moved}");
            // What cools is demoted, and the device sleeps again after that.
            env::sleep(Nanos::secs(120)).await;
            assert!(slow.spindle().expect("a model says").asleep, "{mover:?}");
            assert_eq!(spin_ups(&slow), before.0 + 1, "{mover:?}");
        });
    }
}

#[test]
fn a_flush_wakes_no_slow_device_that_has_everything() {
    run(2, async {
        let slow = model("hdd0", "hdd-5400-mobile", Bytes::gib(4));
        let fast = model("ssd0", "ssd-sata-mlc", Bytes::gib(1));
        let written = Settings {
            mode: Mode::Cache,
            ..settings(Mover::Direct)
        };
        let disk = make(written, slow.clone(), fast).await;
        env::sleep(Nanos::secs(60)).await;
        let asleep = slow.spindle().expect("a model says");
        let before = spin_ups(&slow);
        assert!(asleep.asleep);
        for round in 0..100 {
            put(&disk, hot(round), round as u8).await;
            disk.flush().await.unwrap();
            env::sleep(Nanos::secs(1)).await;
        }
        assert_eq!((spin_ups(&slow), slow.spindle()), (before, Some(asleep)));
    });
}

#[test]
fn a_cold_page_waits_for_its_own_age_beside_hot_ones_that_are_older() {
    run(3, async {
        let slow = model("hdd0", "hdd-5400-mobile", Bytes::gib(4));
        let fast = model("ssd0", "ssd-sata-mlc", Bytes::gib(1));
        let limited = Settings {
            energy: Some(Energy {
                age_limit: Nanos::secs(600),
                standby_after: Nanos::secs(20),
            }),
            ..settings(Mover::Direct)
        };
        let disk = make(limited, slow.clone(), fast).await;
        heat_up(&disk, 15).await;
        let up = disk.tier().expect("there is a tier").room.regions_up;
        assert_eq!(up, 1);
        for round in 0..7 {
            put(&disk, hot(round), 5).await;
        }
        // The region stays hot, and its pages are dirty for longer than others may be.
        heat_up(&disk, 660).await;
        assert!(slow.spindle().expect("a model says").asleep);
        let before = spin_ups(&slow);
        put(&disk, pages(900_000, 1), 7).await;
        heat_up(&disk, 300).await;
        assert_eq!(spin_ups(&slow), before, "five of ten minutes");
        heat_up(&disk, 360).await;
        assert_eq!(spin_ups(&slow), before + 1, "eleven minutes");
    });
}
