//! What a memory-like device does beside its table: caches that fill, pages that hit, latency that grows.

use base::{Bytes, Instant, Nanos, Sector, Span};
use device::Op;
use device::model::{Request, Spec, Timing};

fn spec(more: &str) -> Spec {
    let text = format!(
        "name = \"mine\"\nabout = \"one\"\nsize = \"1GiB\"\n[constant]\nread_us = [[4096, 100], [65536, 400]]\n\
         write_us = [[4096, 20], [65536, 50]]\nparallel = 4\nread_mb_s = 5000\nwrite_mb_s = 5000\n{more}\n\
         [power]\nidle_watts = 1\nread_watts = 2\nwrite_watts = 3\n"
    );
    Spec::parse("mine.toml", &text).unwrap()
}

/// One device and its clock.
struct Bed {
    core: Box<dyn Timing>,
    now: Instant,
    requests: u64,
}

impl Bed {
    fn new(more: &str) -> Bed {
        Bed {
            core: spec(more).timing(None, 1).unwrap(),
            now: Instant(0),
            requests: 0,
        }
    }

    fn submit(&mut self, op: Op, at: u64, len: u64) {
        let span = Span::new(Sector(at / 512), Bytes(len));
        let (id, fua) = (self.requests, false);
        self.requests += 1;
        self.core.submit(self.now, Request { id, op, span, fua });
    }

    /// What each request under way takes from now on, in us, in the order they end.
    fn ends(&mut self) -> Vec<f64> {
        let begun = self.now;
        let mut took = Vec::new();
        while let Some(next) = self.core.next() {
            self.now = next;
            self.core.advance(next);
            while let Some(done) = self.core.take_done() {
                took.push(done.at.since(begun).0 as f64 / 1e3);
            }
        }
        took
    }

    fn alone(&mut self, op: Op, at: u64, len: u64) -> f64 {
        self.submit(op, at, len);
        let ends = self.ends();
        assert_eq!(ends.len(), 1);
        ends[0]
    }
}

#[test]
fn writes_are_fast_until_the_cache_is_full_and_again_when_it_emptied() {
    let mut bed =
        Bed::new("[constant.write_cache]\nsize = \"64KiB\"\nrefill_mb_s = 1\nbeyond_times = 8");
    for n in 0..16 {
        assert_eq!(bed.alone(Op::Write, n * 4096, 4096), 20.0, "write {n}");
    }
    // 16 writes took 320 us, in which 320 bytes were emptied.
    assert_eq!(bed.alone(Op::Write, 0, 4096), 160.0);
    assert_eq!(bed.alone(Op::Read, 0, 4096), 100.0, "reads do not care");
    bed.now = bed.now + Nanos::millis(5);
    assert_eq!(bed.alone(Op::Write, 0, 4096), 20.0);
    assert_eq!(bed.alone(Op::Write, 0, 4096), 160.0);
    // A minute empties all of it, and no more than that.
    bed.now = bed.now + Nanos::secs(60);
    assert_eq!(bed.alone(Op::Write, 0, 65_536), 50.0);
    assert_eq!(bed.alone(Op::Write, 0, 65_536), 400.0);
}

#[test]
fn a_page_read_or_written_lately_is_read_at_the_speed_of_a_hit() {
    let mut bed =
        Bed::new("[constant.read_cache]\nsize = \"16KiB\"\nhit_us = [[4096, 10], [65536, 40]]");
    assert_eq!(bed.alone(Op::Read, 0, 4096), 100.0);
    assert_eq!(bed.alone(Op::Read, 0, 4096), 10.0);
    assert_eq!(bed.alone(Op::Write, 4096, 4096), 20.0, "writes go through");
    assert_eq!(bed.alone(Op::Read, 4096, 4096), 10.0);
    // Three others push out the page used longest ago: the first.
    for n in 2..5 {
        assert_eq!(bed.alone(Op::Read, n * 4096, 4096), 100.0);
    }
    assert_eq!(bed.alone(Op::Read, 4096, 4096), 10.0);
    assert_eq!(bed.alone(Op::Read, 0, 4096), 100.0);
    // What is larger than the cache is never a hit.
    bed.alone(Op::Read, 1 << 20, 65_536);
    assert_eq!(bed.alone(Op::Read, 1 << 20, 65_536), 400.0);
}

#[test]
fn each_other_request_in_flight_makes_one_longer() {
    let mut bed = Bed::new("each_in_flight_percent = 50");
    assert_eq!(bed.alone(Op::Read, 0, 4096), 100.0);
    for n in 0..3 {
        bed.submit(Op::Read, n * 4096, 4096);
    }
    assert_eq!(bed.ends(), [100.0, 150.0, 200.0]);
    assert_eq!(
        bed.alone(Op::Write, 0, 4096),
        20.0,
        "all of them are through"
    );
    let mut plain = Bed::new("");
    for n in 0..3 {
        plain.submit(Op::Read, n * 4096, 4096);
    }
    assert_eq!(plain.ends(), [100.0; 3]);
}

#[test]
fn what_no_device_could_have_is_refused_by_its_key() {
    for (more, key) in [
        (
            "each_in_flight_percent = -1",
            "constant.each_in_flight_percent",
        ),
        (
            "[constant.write_cache]\nsize = 100\nrefill_mb_s = 1\nbeyond_times = 8",
            "constant.write_cache.size",
        ),
        (
            "[constant.write_cache]\nsize = \"64KiB\"\nrefill_mb_s = -1\nbeyond_times = 8",
            "constant.write_cache.refill_mb_s",
        ),
        (
            "[constant.write_cache]\nsize = \"64KiB\"\nrefill_mb_s = 1\nbeyond_times = 0.5",
            "constant.write_cache.beyond_times",
        ),
        (
            "[constant.read_cache]\nsize = \"16KiB\"\nhit_us = []",
            "constant.read_cache.hit_us",
        ),
        (
            "[constant.read_cache]\nsize = 0\nhit_us = [[4096, 10]]",
            "constant.read_cache.size",
        ),
    ] {
        let text = format!(
            "name = \"mine\"\nabout = \"one\"\nsize = \"1GiB\"\n[constant]\nread_us = [[4096, 100]]\nwrite_us = [[4096, 20]]\n\
             parallel = 4\nread_mb_s = 500\nwrite_mb_s = 500\n{more}\n[power]\nidle_watts = 1\nread_watts = 2\nwrite_watts = 3\n"
        );
        let refusal = Spec::parse("mine.toml", &text).unwrap_err().to_string();
        assert!(refusal.contains(key), "{refusal}");
    }
}
