//! The flash models against their data sheets, and the rules of their translation layer.

use base::{Bytes, Instant, Nanos, Sector, Span};
use device::Op;
use device::model::{Ftl, Kind, Request, Shape, Spec, SsdModel, Timing, Work};

struct Bench {
    core: SsdModel,
    now: Instant,
    id: u64,
    units: u64,
    random: env::Rng,
}

impl Bench {
    fn new(model: &str, size: Bytes) -> Bench {
        let spec = Spec::find(model).expect("in the catalogue");
        let Kind::Ssd(ssd) = &spec.kind else {
            panic!("{model} is made of flash")
        };
        Bench {
            core: SsdModel::new(ssd, &spec.power, spec.size, size),
            now: Instant(0),
            id: 0,
            units: size.0 / 4096,
            random: env::Rng::from_seed(7),
        }
    }

    fn submit(&mut self, op: Op, unit: u64, len: u64, fua: bool) -> u64 {
        self.id += 1;
        let span = Span::new(Sector(unit * 8), Bytes(len));
        let id = self.id;
        self.core.submit(self.now, Request { id, op, span, fua });
        id
    }

    fn next(&mut self) -> u64 {
        loop {
            if let Some(done) = self.core.take_done() {
                self.now = done.at;
                return done.id;
            }
            let next = self.core.next().expect("something is under way");
            self.core.advance(next);
        }
    }

    fn alone(&mut self, op: Op, unit: u64, len: u64) -> f64 {
        let start = self.now;
        let id = self.submit(op, unit, len, false);
        assert_eq!(self.next(), id);
        self.now.since(start).0 as f64 / 1e3
    }

    /// Random 4 KiB requests over the first `units`: requests per second.
    fn random(&mut self, op: Op, units: u64, depth: u64, count: u64) -> f64 {
        for _ in 0..depth {
            let unit = self.random.below(units);
            self.submit(op, unit, 4096, false);
        }
        let start = self.now;
        for _ in 0..count {
            self.next();
            let unit = self.random.below(units);
            self.submit(op, unit, 4096, false);
        }
        let seconds = self.now.since(start).secs_f64();
        for _ in 0..depth {
            self.next();
        }
        count as f64 / seconds
    }

    fn sequence(&mut self, op: Op, len: u64, depth: u64, count: u64) -> f64 {
        let start = self.now;
        for index in 0..count + depth {
            if index >= depth {
                self.next();
            }
            if index < count {
                self.submit(op, index * len / 4096 % self.units, len, false);
            }
        }
        (len * count) as f64 / self.now.since(start).secs_f64() / 1e6
    }

    /// What has been done since `before`.
    fn since(&self, before: Work) -> Work {
        let now = self.core.ftl().work();
        Work {
            host_units: now.host_units - before.host_units,
            moved_units: now.moved_units - before.moved_units,
            programmed_units: now.programmed_units - before.programmed_units,
            erases: now.erases - before.erases,
        }
    }
}

#[track_caller]
fn within(share: f64, found: f64, published: f64, what: &str) {
    println!("{what}: {found:.4} against {published:.4}");
    assert!(
        (found / published - 1.0).abs() <= share,
        "{what}: {found:.3} against {published:.3}"
    );
}

#[test]
fn ssd_sata_mlc_meets_the_figures_of_the_intel_520() {
    let fresh = || Bench::new("ssd-sata-mlc", Bytes::gib(24));
    let span = Bytes::gib(8).0 / 4096; // the sheet measured over 8 GB
    let mut bench = fresh();
    let reads: f64 = (0..1000)
        .map(|turn| bench.alone(Op::Read, turn * 7919 % span, 4096))
        .sum();
    within(0.10, reads / 1000.0, 80.0, "read latency, us");
    let mut bench = fresh();
    let writes: f64 = (0..1000)
        .map(|turn| bench.alone(Op::Write, turn * 7919 % span, 4096))
        .sum();
    within(0.10, writes / 1000.0, 85.0, "write latency, us");
    within(
        0.10,
        fresh().random(Op::Read, span, 32, 50_000),
        50e3,
        "read IOPS",
    );
    within(
        0.10,
        fresh().random(Op::Write, span, 32, 50_000),
        80e3,
        "write IOPS",
    );
    let read = fresh().sequence(Op::Read, 128 << 10, 32, 8000);
    within(0.10, read, 550.0, "sequential read");
    let write = fresh().sequence(Op::Write, 128 << 10, 32, 8000);
    within(0.10, write, 520.0, "sequential write");
}

#[test]
fn ssd_nvme_tlc_meets_the_steady_figures_of_the_micron_9200() {
    let fresh = || Bench::new("ssd-nvme-tlc", Bytes::gib(4));
    let units = fresh().units;
    let mut bench = fresh();
    bench.core.fill();
    let reads: f64 = (0..1000)
        .map(|_| {
            let unit = bench.random.below(units);
            bench.alone(Op::Read, unit, 4096)
        })
        .sum();
    let mean = reads / 1000.0;
    assert!((82.8..=150.0).contains(&mean), "92 to 150 us: {mean}");
    let mut bench = fresh();
    let writes: f64 = (0..1000)
        .map(|_| {
            let unit = bench.random.below(units);
            bench.alone(Op::Write, unit, 4096)
        })
        .sum();
    within(0.10, writes / 1000.0, 21.0, "write latency, us");
    let mut bench = fresh();
    bench.core.fill();
    let reads = bench.random(Op::Read, units, 256, 200_000);
    within(0.10, reads, 840e3, "read IOPS");
    // Steady state: everything written once, then as much again at random, then measured.
    let mut bench = fresh();
    bench.core.fill();
    bench.random(Op::Write, units, 256, units);
    let writes = bench.random(Op::Write, units, 256, 300_000);
    within(0.10, writes, 285e3, "steady write IOPS");
    let read = fresh().sequence(Op::Read, 128 << 10, 32, 20_000);
    within(0.10, read, 3500.0, "sequential read");
    let write = fresh().sequence(Op::Write, 128 << 10, 32, 20_000);
    within(0.10, write, 3500.0, "sequential write");
}

#[test]
fn ssd_sata_slc_meets_the_latencies_and_rates_of_the_x25_e() {
    let fresh = || Bench::new("ssd-sata-slc", Bytes(32_000_000_000));
    within(
        0.10,
        fresh().alone(Op::Read, 99, 4096),
        75.0,
        "read latency, us",
    );
    within(
        0.10,
        fresh().alone(Op::Write, 99, 4096),
        85.0,
        "write latency, us",
    );
    let units = fresh().units;
    within(
        0.10,
        fresh().random(Op::Read, units, 32, 20_000),
        35e3,
        "read IOPS",
    );
    let read = fresh().sequence(Op::Read, 128 << 10, 8, 4000);
    within(0.10, read, 250.0, "sequential read");
    let write = fresh().sequence(Op::Write, 128 << 10, 8, 4000);
    within(0.10, write, 170.0, "sequential write");
}

#[test]
fn random_writes_are_amplified_as_theory_says_sequential_ones_are_not() {
    // Greedy collection of uniform random writes with spare share s = 1 - size/raw copies between
    // (1 - s) / (2 s) - some and + some units per unit; the free pool takes its share of the spare.
    for (model, size, least, most) in [
        ("ssd-sata-mlc", Bytes::gib(2), 3.0, 8.0),
        ("ssd-nvme-tlc", Bytes::gib(2), 1.5, 3.5),
    ] {
        let mut bench = Bench::new(model, size);
        let units = bench.units;
        bench.core.fill();
        let before = bench.core.ftl().work();
        bench.random(Op::Write, units, 32, 3 * units / 2);
        let settled = bench.since(before);
        assert!(settled.moved_units > 0);
        let before = bench.core.ftl().work();
        bench.random(Op::Write, units, 32, units / 2);
        let steady = bench.since(before).amplification();
        println!("{model}: amplification {steady:.2}");
        assert!((least..most).contains(&steady), "{model}: {steady:.2}");
        bench.core.ftl().check();

        let mut bench = Bench::new(model, size);
        bench.core.fill();
        let before = bench.core.ftl().work();
        bench.sequence(Op::Write, 128 << 10, 8, 2 * size.0 / (128 << 10));
        let sequential = bench.since(before).amplification();
        assert!(
            (0.99..1.05).contains(&sequential),
            "{model}: {sequential:.3}"
        );
        bench.core.ftl().check();
    }
}

#[test]
fn what_is_discarded_need_not_be_moved() {
    let moved = |discard: bool| {
        let mut bench = Bench::new("ssd-sata-mlc", Bytes::gib(2));
        let units = bench.units;
        bench.core.fill();
        if discard {
            let id = bench.submit(Op::Discard, units / 2, units / 2 * 4096, false);
            assert_eq!(bench.next(), id);
        }
        bench.random(Op::Write, units / 2, 32, units);
        bench.core.ftl().check();
        bench.core.ftl().work().moved_units
    };
    let (with, without) = (moved(true), moved(false));
    assert!(with * 4 < without, "{with} against {without}");
}

#[test]
fn a_discarded_page_and_a_buffered_one_are_read_without_the_flash() {
    let mut bench = Bench::new("ssd-sata-mlc", Bytes::gib(2));
    let flash = bench.alone(Op::Read, 0, 4096);
    bench.alone(Op::Write, 0, 4096);
    let buffered = bench.alone(Op::Read, 0, 4096);
    assert!(buffered < flash / 2.0, "{buffered} against {flash}");
    bench.alone(Op::Flush, 0, 0);
    let flushed = bench.alone(Op::Read, 0, 4096);
    assert!((flushed - flash).abs() < 2.0, "{flushed} against {flash}");
    bench.alone(Op::Discard, 0, 4096);
    let nothing = bench.alone(Op::Read, 0, 4096);
    assert!(nothing < flash / 2.0, "{nothing} against {flash}");
}

#[test]
fn a_flush_waits_for_programs_unless_the_buffer_survives_a_power_loss() {
    let mut bench = Bench::new("ssd-sata-mlc", Bytes::gib(2));
    bench.alone(Op::Write, 0, 4096);
    let flush = bench.alone(Op::Flush, 0, 0);
    assert!((750.0..1000.0).contains(&flush), "one program: {flush} us");
    let nothing = bench.alone(Op::Flush, 0, 0);
    assert!(nothing < 50.0, "{nothing}");
    let start = bench.now;
    let id = bench.submit(Op::Write, 5, 4096, true);
    assert_eq!(bench.next(), id);
    assert!(bench.now.since(start) > Nanos::micros(750), "FUA");

    let mut bench = Bench::new("ssd-nvme-tlc", Bytes::gib(2));
    bench.alone(Op::Write, 0, 4096);
    assert!(bench.alone(Op::Flush, 0, 0) < 10.0);
}

#[test]
fn reads_wait_for_a_program_under_way_but_not_for_those_queued() {
    let mut bench = Bench::new("ssd-sata-mlc", Bytes::gib(8));
    let units = bench.units;
    for turn in 0..8 {
        bench.submit(Op::Write, turn * 256, 1 << 20, false);
    }
    let mut worst: f64 = 0.0;
    let mut sum = 0.0;
    for turn in 0..200 {
        let unit = units / 2 + turn * 997;
        let start = bench.now;
        let id = bench.submit(Op::Read, unit, 4096, false);
        while bench.next() != id {}
        let took = bench.now.since(start).0 as f64 / 1e3;
        worst = worst.max(took);
        sum += took;
    }
    // 8 MiB are eight programs for each die, 6.4 ms. A read waits for one of 750 us, with the rows that
    // cross its channel for up to eight dies (49 us each) before that program and once more before itself.
    assert!(worst < 2_500.0, "{worst}");
    assert!(sum / 200.0 < 500.0, "{}", sum / 200.0);
}

#[test]
fn any_mix_completes_every_request_once_and_keeps_the_maps_true() {
    for (model, seed) in [
        ("ssd-sata-mlc", 1),
        ("ssd-sata-slc", 2),
        ("ssd-nvme-tlc", 3),
    ] {
        let run = || {
            let mut bench = Bench::new(model, Bytes::mib(96));
            bench.random = env::Rng::from_seed(seed);
            let mut moments = Vec::new();
            for _ in 0..30_000 {
                bench.now = bench.now + Nanos(bench.random.below(40_000));
                let op = [
                    Op::Read,
                    Op::Write,
                    Op::Write,
                    Op::Write,
                    Op::Discard,
                    Op::Flush,
                ][bench.random.below(6) as usize];
                let len = match op {
                    Op::Flush => 0,
                    _ => (1 + bench.random.below(16)) * 4096,
                };
                let unit = bench.random.below(bench.units - 16);
                let fua = op == Op::Write && bench.random.chance(0.05);
                bench.submit(op, unit, len, fua);
                while let Some(done) = bench.core.take_done() {
                    moments.push((done.id, done.at));
                }
            }
            while let Some(next) = bench.core.next() {
                bench.core.advance(next);
                while let Some(done) = bench.core.take_done() {
                    moments.push((done.id, done.at));
                }
            }
            let work = bench.core.ftl().work();
            assert!(work.erases > 100, "{work:?}");
            bench.core.ftl().check();
            moments
        };
        let moments = run();
        let mut ids: Vec<u64> = moments.iter().map(|&(id, _)| id).collect();
        ids.sort_unstable();
        assert_eq!(ids, (1..=30_000).collect::<Vec<u64>>());
        assert_eq!(moments, run(), "the same run twice");
    }
}

#[test]
fn a_flash_device_idles_works_and_sums_its_power_to_the_nanosecond() {
    let mut bench = Bench::new("ssd-sata-mlc", Bytes::gib(2));
    bench.random(Op::Read, 1000, 4, 1000);
    bench.random(Op::Write, 1000, 4, 1000);
    bench.now = bench.now + Nanos::secs(10);
    let now = bench.now;
    let meter = bench.core.meter(now);
    let spent = meter.spent();
    assert_eq!(spent.iter().map(|spent| spent.time.0).sum::<u64>(), now.0);
    let joules: f64 = spent
        .iter()
        .map(|spent| spent.time.0 as f64 / 1e9 * spent.watts)
        .sum();
    assert_eq!(joules, meter.joules());
    let mean = joules / now.0 as f64 * 1e9;
    assert!((0.6..0.62).contains(&mean), "mostly idle: {mean}");
    assert!(!bench.core.standby(now), "this sheet names no standby");
}

#[test]
fn the_map_agrees_with_a_plain_twin() {
    let shape = Shape {
        units: 500,
        dies: 3,
        blocks: 16,
        rows: 4,
        row_units: 4,
        low: 3,
    };
    let mut ftl = Ftl::new(shape);
    let mut random = env::Rng::from_seed(11);
    let mut written = std::collections::BTreeSet::new();
    let mut discarded = std::collections::BTreeSet::new();
    for _ in 0..50_000 {
        let unit = random.below(500) as u32;
        if random.chance(0.1) {
            ftl.discard(unit);
            discarded.insert(unit);
            written.remove(&unit);
        } else {
            loop {
                match ftl.write(unit) {
                    Some((_, Some(row))) => {
                        ftl.programmed(row.die, row.block);
                        break;
                    }
                    Some((_, None)) => break,
                    None => {
                        for die in 0..shape.dies {
                            ftl.collect(die);
                        }
                    }
                }
            }
            written.insert(unit);
            discarded.remove(&unit);
        }
        for die in 0..shape.dies {
            if ftl.wants_collection(die) {
                ftl.collect(die);
            }
        }
    }
    ftl.check();
    for unit in 0..500 {
        let found = ftl.find(unit);
        assert_eq!(
            discarded.contains(&unit),
            found == device::model::Found::Nothing,
            "unit {unit}"
        );
    }
    let work = ftl.work();
    assert!(
        work.moved_units > 0 && work.amplification() > 1.0,
        "{work:?}"
    );
}
