//! A shadow says what the whole simulation says, within bounds of memory and work.

use base::{Bytes, Instant, Nanos, Span};
use hybrid::{Admission as Rule, WriteMode};
use policy::cache::Kind;

use super::{PAGE, SAMPLED_PER_SECOND, Shadow, ShadowOptions};
use crate::cache::{Builder, Compact, Mode, Ops, Unit, exact_lru, simulate};
use trace::tap::Observer;
use trace::{Op, Request};

fn options(cache: Bytes, write: WriteMode, admission: Rule) -> ShadowOptions {
    ShadowOptions {
        cache,
        policy: Kind::S3Fifo,
        mode: Mode { write, admission },
        bypass: None,
        seed: 7,
    }
}

fn next(state: &mut u64) -> u64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    *state >> 11
}

/// One page each, that of rank r with a chance proportional to r^-0.9, one in four a write.
fn zipf(requests: usize, pages: u64) -> Vec<Request> {
    let mut sum = 0.0;
    let cumulative: Vec<f64> = (1..=pages)
        .map(|rank| {
            sum += (rank as f64).powf(-0.9);
            sum
        })
        .collect();
    let mut state = 20_261_120;
    let draw = |n| {
        let at = next(&mut state) as f64 / (1u64 << 53) as f64 * sum;
        let rank = cumulative.partition_point(|&up_to| up_to < at) as u64;
        Request {
            at: Nanos::millis(n as u64),
            // An odd factor keeps pages apart, and neighbours in rank far from each other.
            offset: Bytes((rank * 0x9e3d % (1 << 20)) * PAGE),
            size: Bytes(PAGE),
            device: 0,
            op: if next(&mut state).is_multiple_of(4) {
                Op::Write
            } else {
                Op::Read
            },
        }
    };
    (0..requests).map(draw).collect()
}

fn show(shadow: &mut Shadow, requests: &[Request]) {
    for request in requests {
        let span = Span::bytes(request.offset.0, request.size.0);
        shadow.request(Instant(request.at.0), request.op, span);
    }
}

fn compact(requests: &[Request]) -> Compact {
    let mut builder = Builder::new(Unit::PAGE, Ops::All);
    for request in requests {
        builder.push(request).expect("every request is possible");
    }
    builder.finish().expect("there are requests")
}

#[test]
fn a_sample_says_what_the_whole_simulation_says() {
    let requests = zipf(400_000, 300_000);
    let trace = compact(&requests);
    let exact = exact_lru(&trace);
    // 32,768 pages: a quarter of them is sampled.
    let cache = Bytes::mib(128);
    let options = options(cache, WriteMode::Back, Rule::SecondAccess);
    let mut shadow = Shadow::new(options, Instant(0));
    show(&mut shadow, &requests);
    let found = shadow.findings(Instant(400_000_000_000));
    assert_eq!(found.rate, 0.25);
    assert_eq!((found.requests, found.pages), (400_000, 400_000));
    for at in &found.sizes {
        let room = at.size_bytes / PAGE;
        let lru = 1.0 - exact.at(room as f64).miss_ratio;
        assert!((at.lru_hit_ratio - lru).abs() < 0.03, "{at:?}, LRU {lru}");
        let whole = simulate(&trace, Kind::S3Fifo, room, options.mode);
        let hits = 1.0 - whole.miss_ratio();
        assert!((at.hit_ratio - hits).abs() < 0.03, "{at:?}, hits {hits}");
        let slow = (whole.slow_bytes_read + whole.slow_bytes_written) as f64 / PAGE as f64;
        let saved = 1.0 - slow / 400_000.0;
        assert!(
            (at.slow_saved - saved).abs() < 0.03,
            "{at:?}, saved {saved}"
        );
        let flash = whole.flash_bytes_written as f64 * 86_400.0 / 400.0;
        assert!(
            (at.flash_bytes_per_day / flash - 1.0).abs() < 0.03,
            "{at:?}, flash {flash}"
        );
    }
    let touched = found.footprint_bytes as f64 / PAGE as f64;
    let footprint = f64::from(trace.footprint());
    assert!(
        (touched / footprint - 1.0).abs() < 0.05,
        "{touched} of {footprint}"
    );
    assert_eq!(found.chosen.is_some(), found.sampled >= 16_384);
}

#[test]
fn every_write_mode_moves_what_the_simulation_moves() {
    let requests = zipf(60_000, 20_000);
    let trace = compact(&requests);
    // 2,048 pages, all of them sampled: nothing is estimated.
    let cache = Bytes::mib(8);
    for write in [
        WriteMode::Back,
        WriteMode::Through,
        WriteMode::Around,
        WriteMode::OnlyWrites,
    ] {
        for admission in [Rule::Always, Rule::SecondAccess] {
            let options = options(cache, write, admission);
            let mut shadow = Shadow::new(options, Instant(0));
            show(&mut shadow, &requests);
            let found = shadow.findings(Instant(86_400_000_000_000));
            let whole = simulate(&trace, Kind::S3Fifo, 2048, options.mode);
            let at = found.present();
            // Pages have other numbers there, so a policy's ghosts confuse others: one page in a thousand may differ.
            let near = |ours: f64, theirs: f64, of: f64| {
                assert!(
                    (ours - theirs).abs() <= of / 1000.0,
                    "{write} {admission}: {ours}, {theirs}"
                );
            };
            let slow = (whole.slow_bytes_read + whole.slow_bytes_written) / PAGE;
            near(at.slow_pages as f64, slow as f64, 60_000.0);
            let flash = whole.flash_bytes_written as f64;
            near(at.flash_bytes_per_day, flash, (60_000 * PAGE) as f64);
            near(at.hit_ratio, 1.0 - whole.miss_ratio(), 1.0);
        }
    }
}

#[test]
fn memory_and_work_are_bounded() {
    // A cache of 1 TiB and pages all over 2^40 bytes, 50,000 a second.
    for cache in [Bytes::mib(4), Bytes::gib(1), Bytes::gib(1024)] {
        let options = options(cache, WriteMode::Back, Rule::SecondAccess);
        let mut shadow = Shadow::new(options, Instant(0));
        let mut state = 3;
        for n in 0..400_000u64 {
            let page = next(&mut state) % (1 << 28);
            shadow.request(
                Instant(n * 20_000),
                Op::Read,
                Span::bytes(page * PAGE, PAGE),
            );
        }
        let found = shadow.findings(Instant(8_000_000_000));
        let each_second = 50_000.0 * found.rate;
        assert!(
            each_second < SAMPLED_PER_SECOND as f64,
            "{cache}: {found:?}"
        );
        assert!(
            found.memory_bytes < 16 << 20,
            "{cache}: {} bytes",
            found.memory_bytes
        );
    }
}

#[test]
fn long_streams_go_past_the_cache() {
    let options = ShadowOptions {
        bypass: Some(Bytes::mib(1)),
        ..options(Bytes::mib(8), WriteMode::Back, Rule::Always)
    };
    let mut shadow = Shadow::new(options, Instant(0));
    // Two streams side by side, 4 MiB each in 64 KiB: the first fifteen requests of each come in.
    for n in 0..64u64 {
        for start in [1 << 30, 1 << 33] {
            shadow.request(
                Instant(n),
                Op::Read,
                Span::bytes(start + (n << 16), 1 << 16),
            );
        }
    }
    let found = shadow.findings(Instant(1000));
    assert_eq!((found.pages, found.passed_pages), (2048, 2 * 49 * 16));
    assert_eq!(found.footprint_bytes, (2 * 15) << 16);
    // Of a giant only so much is looked at, whatever its length.
    let before = found.footprint_bytes;
    shadow.request(Instant(2000), Op::Write, Span::bytes(1 << 35, 1 << 40));
    assert_eq!(shadow.findings(Instant(2000)).footprint_bytes, before);
}

#[test]
fn too_little_seen_is_said_and_no_advice() {
    let options = options(Bytes::mib(8), WriteMode::Back, Rule::SecondAccess);
    let mut shadow = Shadow::new(options, Instant(0));
    let found = shadow.findings(Instant(0));
    assert_eq!((found.requests, found.chosen), (0, None));
    shadow.request(Instant(5), Op::Flush, Span::default());
    shadow.request(Instant(6), Op::Read, Span::bytes(0, 4096));
    let found = shadow.findings(Instant(7));
    assert_eq!((found.requests, found.chosen), (1, None));
    assert!(
        found.reasons[0].starts_with("Too little was seen"),
        "{:?}",
        found.reasons
    );
    assert!(found.change().is_none());
}

#[test]
fn a_small_load_gets_a_smaller_cache_advised_and_a_scan_gets_none() {
    let options = options(Bytes::mib(16), WriteMode::Back, Rule::Always);
    // 500 pages over and over: a quarter of 4,096 holds them.
    let mut shadow = Shadow::new(options, Instant(0));
    let mut state = 9;
    for n in 0..30_000 {
        let page = next(&mut state) % 500 * 2;
        shadow.request(
            Instant(n * 1_000_000),
            Op::Read,
            Span::bytes(page * PAGE, PAGE),
        );
    }
    let found = shadow.findings(Instant(30_000_000_000));
    assert_eq!(found.chosen, Some(0), "{:?}", found.reasons);
    assert_eq!(found.change().map(|at| at.size_bytes), Some(4 << 20));
    // Each page once.
    let mut shadow = Shadow::new(options, Instant(0));
    for n in 0..30_000u64 {
        shadow.request(
            Instant(n * 1_000_000),
            Op::Read,
            Span::bytes(n * 2 * PAGE, PAGE),
        );
    }
    let found = shadow.findings(Instant(30_000_000_000));
    assert_eq!(found.chosen, None);
    assert!(
        found.reasons[0].starts_with("No size"),
        "{:?}",
        found.reasons
    );
}
