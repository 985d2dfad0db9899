//! What is kept and what is not: warm starts, sequential streams, the budget of flash writes, a sleeping
//! disk, figures that add up.

use std::rc::Rc;

use base::{Bytes, Nanos, Sector, Span};
use device::crash::{PowerSupply, Survival};
use device::model::{ModelDisk, Spec, Store};
use device::{Crash, Device, DeviceExt, Memory};
use hybrid::{Admission, Energy, Hybrid, Settings, Ties, WriteMode};

use crate::common::*;

#[test]
fn a_closed_cache_comes_back_whole() {
    for write in WriteMode::ALL {
        run(1, async move {
            let (slow, fast) = devices();
            let disk = make(keep_all(), slow.clone(), fast.clone()).await;
            put(&disk, pages(0, 100), 1).await;
            get(&disk, pages(1000, 200)).await;
            env::sleep(Nanos::secs(1)).await;
            disk.set_write_mode(write).await.unwrap();
            let before = disk.status();
            assert!(before.occupancy.cached_bytes >= 300 * 4096);
            disk.close().await.unwrap();
            let disk = Hybrid::open(writing(write), slow, fast, Ties::default())
                .await
                .unwrap();
            let after = disk.status();
            assert_eq!(
                after.occupancy.cached_bytes, before.occupancy.cached_bytes,
                "{write}"
            );
            assert_eq!(
                after.occupancy.dirty_bytes, before.occupancy.dirty_bytes,
                "{write}"
            );
            assert_eq!(
                after.recovered.pages * 4096,
                before.occupancy.cached_bytes,
                "{write}"
            );
            assert_eq!(after.recovered.dropped, 0, "{write}");
            if write != WriteMode::Pass {
                get(&disk, pages(1000, 200)).await;
                assert_eq!(hits_and_misses(&disk.status()), (1, 0), "{write}");
            }
        });
    }
}

#[test]
fn after_a_power_cut_the_cache_is_warm_but_for_marked_regions() {
    for seed in 0..20 {
        run(seed, async move {
            let supply = PowerSupply::new();
            let slow = Crash::on(&supply, "hdd0", SLOW, env::rng("slow"));
            let fast = Crash::on(&supply, "ssd0", FAST, env::rng("fast"));
            for device in [&slow, &fast] {
                device.set_survival(Survival::Any);
                device.set_delay(Nanos(0), Nanos::micros(100));
            }
            let disk = make(keep_all(), slow.clone(), fast.clone()).await;
            // Regions 0 to 2 hold clean pages from reads and dirty ones from writes.
            let mut rng = env::rng("work");
            for _ in 0..60 {
                get(&disk, pages(rng.below(3060), 4)).await;
                put(&disk, pages(rng.below(3060), 2), 9).await;
            }
            disk.flush().await.unwrap();
            env::sleep(Nanos::secs(2)).await;
            disk.flush().await.unwrap();
            let settled = disk.status();
            assert_eq!(settled.occupancy.marked_regions, 0);
            let cached = settled.occupancy.cached_bytes / 4096;
            // A write past the cache marks region 1, where some clean pages are; others are under way.
            let in_region = 1024;
            let around = Settings {
                write: WriteMode::Around,
                ..disk.settings()
            };
            let busy = disk.clone();
            drop(env::spawn(async move {
                let _ = busy.set(around).await;
                for page in 0..in_region {
                    let data = crate::twin::filled(3, Bytes(4096));
                    if busy
                        .write_at(pages(1024 + page, 1).start, data)
                        .await
                        .is_err()
                    {
                        return;
                    }
                }
            }));
            env::sleep(Nanos(rng.below(20_000_000))).await;
            supply.cut_now();

            let supply = PowerSupply::new();
            let slow = slow.restart_on(&supply, env::rng("slow restart"));
            let fast = fast.restart_on(&supply, env::rng("fast restart"));
            let disk = Hybrid::open(keep_all(), slow, fast, Ties::default())
                .await
                .unwrap();
            let status = disk.status();
            let (back, dropped) = (status.recovered.pages, status.recovered.dropped);
            // What was cached is back, or was in a marked region and clean, or was written over.
            if status.occupancy.marked_regions == 0 {
                assert_eq!(dropped, 0, "seed {seed}: nothing is dropped but for a mark");
                assert!(back * 100 >= cached * 99, "seed {seed}: {back} of {cached}");
            } else {
                assert_eq!(status.occupancy.marked_regions, 1, "seed {seed}");
                let elsewhere = back + dropped + in_region;
                assert!(
                    elsewhere * 100 >= cached * 99,
                    "seed {seed}: {back} + {dropped} of {cached}"
                );
            }
        });
    }
}

#[test]
fn a_power_cut_without_marks_costs_no_flushed_entry() {
    for seed in 0..20 {
        run(seed, async move {
            let supply = PowerSupply::new();
            let slow = Crash::on(&supply, "hdd0", SLOW, env::rng("slow"));
            let fast = Crash::on(&supply, "ssd0", FAST, env::rng("fast"));
            let disk = make(keep_all(), slow.clone(), fast.clone()).await;
            put(&disk, pages(0, 150), 1).await;
            get(&disk, pages(1000, 150)).await;
            env::sleep(Nanos::secs(2)).await;
            disk.flush().await.unwrap();
            let cached = disk.status().occupancy.cached_bytes / 4096;
            assert_eq!(cached, 300);
            // Written over and not flushed: each page is still there, old or new.
            let mut rng = env::rng("more");
            for _ in 0..rng.below(100) {
                put(&disk, pages(rng.below(150), 1), 2).await;
            }
            supply.cut_now();
            let supply = PowerSupply::new();
            let slow = slow.restart_on(&supply, env::rng("slow restart"));
            let fast = fast.restart_on(&supply, env::rng("fast restart"));
            let disk = Hybrid::open(keep_all(), slow, fast, Ties::default())
                .await
                .unwrap();
            let status = disk.status();
            assert_eq!(
                (status.recovered.pages, status.recovered.dropped),
                (300, 0),
                "seed {seed}"
            );
            for page in 0..150 {
                let held = get(&disk, pages(page, 1)).await;
                assert!(
                    held.iter()
                        .all(|byte| *byte == held[0] && (1..=2).contains(byte))
                );
            }
        });
    }
}

#[test]
fn a_long_stream_goes_past_the_cache_and_what_it_passes_stays_right() {
    run(3, async {
        let (slow, fast) = devices();
        let settings = Settings {
            sequential_bypass: Some(Bytes::kib(256)),
            ..keep_all()
        };
        let disk = make(settings, slow.clone(), fast).await;
        put(&disk, pages(600, 4), 1).await;
        for at in (0..1024).step_by(16) {
            put(&disk, pages(at, 16), 2).await;
        }
        let status = disk.status();
        // The first 256 KiB are cached, and the dirty pages in the way are overwritten where they are.
        assert!(
            status.traffic.fast_bytes_written <= (256 + 64 + 32) << 10,
            "{status:?}"
        );
        assert!(
            status.traffic.slow_bytes_written >= (4096 - 256 - 64 - 32) << 10,
            "{status:?}"
        );
        assert!(
            status.requests.sequential_writes.requests >= 60,
            "{status:?}"
        );
        assert!(reads_as(&disk, pages(0, 1024), 2).await);

        let before = disk.status();
        for at in (1024..3072).step_by(16) {
            get(&disk, pages(at, 16)).await;
        }
        env::sleep(Nanos::secs(1)).await;
        let fills = disk.status().upkeep.fills - before.upkeep.fills;
        assert!(fills <= 80, "{fills} pages of a stream of 2048 were copied");
        disk.detach().await.unwrap();
        assert!(slow.contents(pages(0, 1024)).iter().all(|byte| *byte == 2));
    });
}

#[test]
fn second_access_copies_what_comes_back_and_nothing_else() {
    run(4, async {
        let (slow, fast) = devices();
        let settings = Settings {
            admission: Admission::SecondAccess,
            ..keep_all()
        };
        let disk = make(settings, slow, fast).await;
        let mut rng = env::rng("places");
        let places: Vec<u64> = (0..100).map(|number| number * 31 + rng.below(20)).collect();
        for (round, fills) in [(1, 0), (2, 100), (3, 100)] {
            for page in &places {
                get(&disk, pages(*page, 1)).await;
            }
            env::sleep(Nanos::secs(1)).await;
            assert_eq!(disk.status().upkeep.fills, fills, "round {round}");
        }
        assert_eq!(hits_and_misses(&disk.status()), (100, 200));
    });
}

#[test]
fn only_writes_never_copies_a_read_and_pass_caches_nothing() {
    for write in [WriteMode::OnlyWrites, WriteMode::Pass] {
        run(5, async move {
            let (slow, fast) = devices();
            let disk = make(writing(write), slow.clone(), fast).await;
            for _ in 0..3 {
                get(&disk, pages(50, 8)).await;
                read_in_background(&disk, pages(50, 8)).await;
            }
            put(&disk, pages(100, 8), 1).await;
            env::sleep(Nanos::millis(10)).await;
            let status = disk.status();
            assert_eq!(status.upkeep.fills, 0, "{write}");
            let cached = if write == WriteMode::Pass {
                0
            } else {
                8 * 4096
            };
            assert_eq!(status.occupancy.cached_bytes, cached, "{write}");
            assert!(reads_as(&disk, pages(100, 8), 1).await);
        });
    }
}

#[test]
fn a_write_miss_reads_nothing() {
    run(6, async {
        let (slow, fast) = devices();
        for block in [4096, 128 << 10, 1 << 20] {
            let settings = Settings {
                block: Bytes(block),
                ..keep_all()
            };
            let (slow, fast): (Rc<Memory>, Rc<Memory>) = (slow.clone(), fast.clone());
            let disk = make(settings, slow, fast).await;
            let before = disk.status().traffic.slow_bytes_read;
            put(&disk, Span::bytes(3 << 20, 4096), 1).await;
            put(&disk, Span::bytes((4 << 20) + 512, 1024), 2).await;
            assert_eq!(
                disk.status().traffic.slow_bytes_read,
                before,
                "block {block}"
            );
            // The other sectors of the page are the slow device's.
            let page = get(&disk, Span::bytes(4 << 20, 4096)).await;
            assert!(page[512..1536].iter().all(|byte| *byte == 2));
            assert!(page[..512] == noise(7, SLOW)[4 << 20..(4 << 20) + 512] || block > 4096);
            disk.detach().await.unwrap();
            disk.close().await.unwrap();
        }
    });
}

#[test]
fn beyond_the_days_budget_the_flash_is_spared() {
    run(7, async {
        let (slow, _) = devices();
        let fast = Memory::new("ssd0", Bytes::mib(12));
        // 24 MiB a day: one hour's share, 1 MiB, at once.
        let settings = Settings {
            flash_writes_per_day: Some(Bytes::mib(24)),
            ..keep_all()
        };
        let disk = make(settings, slow, fast).await;
        for page in 0..1024 {
            put(&disk, pages(page * 3, 1), 7).await;
        }
        let status = disk.status();
        assert_eq!(status.traffic.fast_bytes_written, 1 << 20, "{status:?}");
        assert!(status.traffic.slow_bytes_written >= 3 << 20, "{status:?}");
        for page in 0..1024 {
            assert!(reads_as(&disk, pages(page * 3, 1), 7).await);
        }
        env::sleep(Nanos::secs(3600)).await;
        let before = disk.status().traffic.fast_bytes_written;
        for page in 0..512 {
            put(&disk, pages(page * 3, 1), 8).await;
        }
        let more = disk.status().traffic.fast_bytes_written - before;
        assert!(more >= 1 << 20, "an hour later there is room again: {more}");
    });
}

fn model(name: &str, kind: &str, size: Bytes) -> Rc<ModelDisk> {
    let spec = Spec::find(kind).expect("the catalogue has it");
    ModelDisk::new(name, &spec, Some(size), Store::Memory, 1).expect("a size the model can have")
}

#[test]
fn a_sleeping_disk_sleeps_on_and_an_awake_one_gets_everything() {
    run(8, async {
        let slow = model("hdd0", "hdd-5400-mobile", Bytes::gib(4));
        let fast = model("ssd0", "ssd-sata-mlc", Bytes::gib(1));
        let settings = Settings {
            energy: Some(Energy {
                age_limit: Nanos::secs(1800),
                standby_after: Nanos::secs(20),
            }),
            ..keep_all()
        };
        let disk = make(settings, slow.clone(), fast).await;
        env::sleep(Nanos::secs(60)).await;
        let asleep = slow.power().unwrap();
        assert!(asleep.standby, "nothing to do: it sleeps");
        // Writes, flushes and reads of what is cached go on for 20 minutes; the disk sleeps through.
        for minute in 0..20 {
            put(&disk, pages(minute * 5000, 4), 3).await;
            disk.flush().await.unwrap();
            assert!(reads_as(&disk, pages(minute * 5000, 4), 3).await);
            env::sleep(Nanos::secs(60)).await;
        }
        let still = slow.power().unwrap();
        assert!(still.standby);
        assert_eq!(still.spin_ups, asleep.spin_ups);
        assert_eq!(disk.status().occupancy.dirty_bytes, 80 * 4096);
        assert!(disk.status().slow_asleep);
        // A read miss wakes it; while it spins all that waits is destaged.
        get(&disk, pages(900_000, 1)).await;
        env::sleep(Nanos::secs(10)).await;
        assert_eq!(slow.power().unwrap().spin_ups, asleep.spin_ups + 1);
        assert_eq!(disk.status().occupancy.dirty_bytes, 0);
        env::sleep(Nanos::secs(120)).await;
        assert!(slow.power().unwrap().standby, "then it sleeps again");
    });
}

#[test]
fn nothing_waits_longer_than_the_age_limit_for_a_sleeping_disk() {
    run(9, async {
        let slow = model("hdd0", "hdd-5400-mobile", Bytes::gib(4));
        let fast = model("ssd0", "ssd-sata-mlc", Bytes::gib(1));
        let settings = Settings {
            energy: Some(Energy {
                age_limit: Nanos::secs(600),
                standby_after: Nanos::secs(20),
            }),
            ..keep_all()
        };
        let disk = make(settings, slow.clone(), fast).await;
        env::sleep(Nanos::secs(60)).await;
        let spin_ups = slow.power().unwrap().spin_ups;
        put(&disk, pages(100, 4), 3).await;
        env::sleep(Nanos::secs(580)).await;
        assert_eq!(disk.status().occupancy.dirty_bytes, 4 * 4096);
        assert!(slow.power().unwrap().standby);
        env::sleep(Nanos::secs(60)).await;
        assert_eq!(disk.status().occupancy.dirty_bytes, 0);
        assert_eq!(slow.power().unwrap().spin_ups, spin_ups + 1);
    });
}

#[test]
fn every_byte_read_is_counted_once() {
    run(10, async {
        let (slow, fast) = devices();
        let disk = make(keep_all(), slow, fast).await;
        put(&disk, pages(10, 4), 1).await;
        get(&disk, pages(10, 4)).await; // fast
        get(&disk, pages(500, 4)).await; // slow
        get(&disk, pages(8, 4)).await; // half and half
        let status = disk.status();
        let each = hybrid::Share {
            requests_fast: 1,
            requests_slow: 1,
            requests_both: 1,
            bytes_fast: 6 * 4096,
            bytes_slow: 6 * 4096,
        };
        assert_eq!(status.requests.reads(), each);
        assert_eq!(
            status.requests.random_writes.bytes + status.requests.sequential_writes.bytes,
            4 * 4096
        );
        assert_eq!(disk.read_at(Sector(0), Bytes(0)).await.unwrap().len(), 0);
    });
}
