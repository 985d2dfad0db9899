//! Long requests: how many requests of the fast device they cost, and that they read what was written.

use std::rc::Rc;

use base::{Bytes, Nanos, PAGE, Span};
use device::{Class, Memory, Meter, Op};
use hybrid::{Hybrid, Settings};

use crate::common::*;

const MIB: u64 = 1 << 20;
const PAGES: u64 = MIB / PAGE as u64;

/// A disk of 768 MiB with a fast device of 256 MiB, and what watches that one.
async fn large(settings: Settings) -> (Hybrid, Rc<Meter>) {
    let slow = Memory::new("hdd0", Bytes::mib(768));
    let fast = Meter::new(Memory::new("ssd0", Bytes::mib(256)));
    let disk = make(settings, slow, Rc::clone(&fast) as Rc<dyn device::Device>).await;
    (disk, fast)
}

/// Requests that `fast` got while `span` was read, of which each page is to read as `fill` says.
async fn requests(disk: &Hybrid, fast: &Meter, span: Span, fill: impl Fn(u64) -> u8) -> u64 {
    let before = fast.counters();
    let read = get(disk, span).await;
    let requests = fast.counters().since(&before);
    let requests = requests.of(Op::Read, Class::Foreground).requests;
    for (page, data) in (span.start.byte() / PAGE as u64..).zip(read.chunks(PAGE)) {
        assert!(data.iter().all(|byte| *byte == fill(page)), "page {page}");
    }
    requests
}

fn shuffled(rng: &mut env::Rng, count: u64) -> Vec<u64> {
    let mut numbers: Vec<u64> = (0..count).collect();
    for last in (1..numbers.len()).rev() {
        numbers.swap(last, rng.below(last as u64 + 1) as usize);
    }
    numbers
}

#[test]
fn pages_written_in_any_order_are_read_with_one_request() {
    run(1, async {
        let (disk, fast) = large(keep_dirty()).await;
        for page in shuffled(&mut env::rng("order"), PAGES) {
            put(&disk, pages(page, 1), page as u8).await;
        }
        let read = requests(&disk, &fast, pages(0, PAGES), |page| page as u8).await;
        assert_eq!(read, 1);
    });
}

#[test]
fn pages_written_anew_are_read_beside_the_run_they_left() {
    run(2, async {
        let (disk, fast) = large(keep_dirty()).await;
        put(&disk, pages(0, PAGES), 1).await;
        put(&disk, pages(1000, 40), 2).await;
        for page in [100, 101, 200] {
            put(&disk, pages(page, 1), 3).await;
        }
        let fill = |page| {
            if [100, 101, 200].contains(&page) {
                3
            } else {
                1
            }
        };
        let read = requests(&disk, &fast, pages(0, PAGES), fill).await;
        assert!(read <= 2, "{read} requests");
    });
}

/// Reads 160 of 768 MiB again and again from a cache of 256 MiB that long reads, and short `writes` between them, turned
/// over twice: hits and requests of the fast device for each MiB.
async fn turned_over(writes: bool) -> (u64, u64) {
    let (disk, fast) = large(keep_all()).await;
    let mut rng = env::rng("order");
    for round in 0..3 {
        for mib in shuffled(&mut rng, 768) {
            get(&disk, pages(mib * PAGES, PAGES)).await;
            if writes {
                put(&disk, pages(rng.below(768 * PAGES), 1), round).await;
            }
            env::sleep(Nanos::millis(20)).await;
        }
    }
    let set = shuffled(&mut rng, 160);
    for _ in 0..3 {
        for mib in &set {
            get(&disk, pages(mib * PAGES, PAGES)).await;
            env::sleep(Nanos::millis(20)).await;
        }
    }
    let before = (fast.counters(), hits_and_misses(&disk.status()));
    for mib in set {
        get(&disk, pages(mib * PAGES, PAGES)).await;
    }
    let hits = hits_and_misses(&disk.status()).0 - before.1.0;
    let reads = fast.counters().since(&before.0);
    (hits, reads.of(Op::Read, Class::Foreground).requests)
}

#[test]
fn a_cache_filled_in_random_order_reads_a_mib_with_few_requests() {
    for seed in 0..2 {
        let (hits, requests) = run(seed, turned_over(false));
        assert!(hits > 120, "{hits} of 160 are hits");
        assert!(requests <= 2 * 160, "{requests} requests for 160 MiB");
    }
}

#[test]
fn short_writes_between_do_not_leave_the_cache_in_fragments() {
    for seed in 0..2 {
        let (hits, requests) = run(seed, turned_over(true));
        assert!(hits > 120, "{hits} of 160 are hits");
        assert!(requests <= 14 * 160, "{requests} requests for 160 MiB");
    }
}
