//! Whatever it does inside, it reads as a plain disk would: random requests beside a `Vec<u8>`.

use base::{Bytes, Nanos};
use device::{Crash, Device, Memory};
use hybrid::{Admission, Hybrid, Settings, Ties, WriteMode};
use policy::cache::Kind;
use proptest::prelude::*;

use crate::common::{everything, run};
use crate::twin::{Action, actions, agree, cases};

fn settings() -> impl Strategy<Value = Settings> {
    let words = (
        prop::sample::select(WriteMode::ALL.to_vec()),
        prop::sample::select(Kind::ALL.to_vec()),
        0..=8_u32,
        any::<bool>(),
        prop::option::of(12..=20_u32),
        (1..=40_u8, 41..=95_u8),
    );
    words.prop_map(
        |(write, policy, block, always, bypass, (low, high))| Settings {
            name: "vol0".to_owned(),
            write,
            policy,
            block: Bytes(4096 << block),
            admission: match always {
                true => Admission::Always,
                false => Admission::SecondAccess,
            },
            sequential_bypass: bypass.map(|shift| Bytes(1 << shift)),
            dirty_low: low,
            dirty_high: high,
            commit_after: Nanos::millis(5),
            ..Settings::default()
        },
    )
}

/// A slow device of any number of sectors, with requests that stay within it.
fn slow_and_requests() -> impl Strategy<Value = (Bytes, Vec<Action>)> {
    let size = (1000..6000_u64).prop_map(|sectors| Bytes(sectors * 512));
    size.prop_flat_map(|size| {
        let requests = actions(size, Bytes::kib(200), 120);
        (Just(size), requests)
    })
}

/// Requests that wait for ever are a failure, not a long test. The hour is a virtual one.
async fn in_time(work: impl Future<Output = ()>) {
    let done = env::timeout(Nanos::secs(3600), work).await;
    done.expect("all requests end within an hour");
}

proptest! {
    #![proptest_config(cases(48))]

    #[test]
    fn a_hybrid_reads_like_a_plain_disk_and_leaves_a_complete_slow_one(
        settings in settings(),
        (size, requests) in slow_and_requests(),
        fast_kib in 768..2048_u64,
        seed in any::<u64>(),
    ) {
        run(seed, async move {
            let slow = Memory::new("hdd0", size);
            slow.set_latency(Nanos::micros(50));
            // Room for the block beside ledger and spare slots.
            let fast_size = Bytes::kib(fast_kib) + settings.block;
            let fast = Memory::new("ssd0", fast_size);
            fast.set_latency(Nanos::micros(5));
            let disk = Hybrid::create(settings, slow.clone(), fast, Ties::default()).await.unwrap();
            in_time(agree(&disk, requests)).await;
            let before = everything(&disk).await;
            disk.detach().await.unwrap();
            assert_eq!(disk.status().occupancy.dirty_bytes, 0);
            assert!(everything(&*slow).await == before, "the slow device alone has it all");
            assert!(everything(&disk).await == before, "and the disk goes on");
        });
    }

    #[test]
    fn a_hybrid_over_devices_that_answer_in_any_order_reads_like_a_plain_disk(
        settings in settings(),
        (size, requests) in slow_and_requests(),
        seed in any::<u64>(),
    ) {
        run(seed, async move {
            let slow = Crash::new("hdd0", size, env::rng("slow"));
            slow.set_delay(Nanos(0), Nanos::millis(8));
            let fast = Crash::new("ssd0", Bytes::mib(1) + settings.block, env::rng("fast"));
            fast.set_delay(Nanos(0), Nanos::micros(300));
            let disk = Hybrid::create(settings, slow, fast, Ties::default()).await.unwrap();
            in_time(agree(&disk, requests)).await;
            disk.close().await.unwrap();
        });
    }
}

#[test]
fn two_runs_of_one_seed_do_the_same() {
    let once = |seed| {
        let runtime = env::Runtime::simulated(seed);
        let status = runtime.block_on(async {
            let slow = Crash::new("hdd0", crate::common::SLOW, env::rng("slow"));
            slow.set_delay(Nanos(0), Nanos::millis(8));
            let fast = Crash::new("ssd0", crate::common::FAST, env::rng("fast"));
            fast.set_delay(Nanos(0), Nanos::micros(300));
            let settings = Settings {
                admission: Admission::Always,
                ..Settings::default()
            };
            let disk = crate::common::make(settings, slow, fast).await;
            let mut rng = env::rng("work");
            for turn in 0..2000 {
                let span = crate::common::pages(rng.below(3000), 1 + rng.below(4));
                match turn % 5 {
                    0 | 1 => crate::common::put(&disk, span, turn as u8).await,
                    2 => disk.flush().await.unwrap(),
                    _ => drop(crate::common::get(&disk, span).await),
                }
            }
            disk.status()
        });
        (status, runtime.trace_hash())
    };
    let (first, hash) = once(1);
    assert_eq!(once(1), (first.clone(), hash));
    assert_ne!(once(2).1, hash, "another seed, another run");
    assert!(
        first.upkeep.evicted > 0 && first.upkeep.bytes_cleaned > 0,
        "{first:?}"
    );
}
