//! The disk models against their data sheets, and the rules of their timing core.

use base::{Bytes, Instant, Nanos, Sector, Span};
use device::Op;
use device::model::{HddModel, Kind, Request, SeekCurve, Spec, State, Timing};

/// A core, a clock that follows it, and a plain way to wait for what was asked.
struct Bench {
    core: HddModel,
    now: Instant,
    id: u64,
    sectors: u64,
    random: env::Rng,
}

impl Bench {
    fn new(model: &str, size: Option<Bytes>) -> Bench {
        Bench::tuned(model, size, |_| {})
    }

    fn tuned(model: &str, size: Option<Bytes>, tune: impl Fn(&mut Spec)) -> Bench {
        let mut spec = Spec::find(model).expect("in the catalogue");
        tune(&mut spec);
        let Kind::Hdd(hdd) = &spec.kind else {
            panic!("{model} is a disk")
        };
        let size = size.unwrap_or(spec.size);
        Bench {
            core: HddModel::new(hdd, &spec.power, spec.size, size, 7),
            now: Instant(0),
            id: 0,
            sectors: size.sectors(),
            random: env::Rng::from_seed(7),
        }
    }

    fn submit(&mut self, op: Op, at: u64, len: u64, fua: bool) -> u64 {
        self.id += 1;
        let request = Request {
            id: self.id,
            op,
            span: Span::new(Sector(at), Bytes(len)),
            fua,
        };
        self.core.submit(self.now, request);
        self.id
    }

    /// Waits for the next completion.
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

    /// One request alone; returns how long it took in ms.
    fn alone(&mut self, op: Op, at: u64, len: u64) -> f64 {
        let start = self.now;
        let id = self.submit(op, at, len, false);
        assert_eq!(self.next(), id);
        ms(self.now.since(start))
    }

    fn anywhere(&mut self) -> u64 {
        self.random.below(self.sectors / 8) * 8
    }

    fn state(&mut self, state: State) -> f64 {
        let spent = self.core.meter(self.now).spent();
        let found = spent.iter().find(|spent| spent.state == state);
        found.map_or(0.0, |spent| ms(spent.time))
    }

    /// Random 4 KiB requests at `depth`: requests per second and mean latency in ms.
    fn random(&mut self, op: Op, depth: usize, count: u64) -> (f64, f64) {
        let start = self.now;
        let mut sent = std::collections::BTreeMap::new();
        let mut total = 0.0;
        for _ in 0..depth {
            let at = self.anywhere();
            let id = self.submit(op, at, 4096, false);
            sent.insert(id, self.now);
        }
        for _ in 0..count {
            let id = self.next();
            total += ms(self.now.since(sent.remove(&id).expect("sent once")));
            let at = self.anywhere();
            let id = self.submit(op, at, 4096, false);
            sent.insert(id, self.now);
        }
        let seconds = self.now.since(start).secs_f64();
        for _ in 0..depth {
            self.next();
        }
        (count as f64 / seconds, total / count as f64)
    }

    /// Reads or writes `count` runs of `len` bytes in sequence; MB/s.
    fn sequence(&mut self, op: Op, from: u64, len: u64, count: u64, think: Nanos) -> f64 {
        let start = self.now;
        for index in 0..count {
            self.alone(op, from + index * len / 512, len);
            self.now = self.now + think;
        }
        (len * count) as f64 / self.now.since(start).secs_f64() / 1e6
    }
}

fn ms(span: Nanos) -> f64 {
    span.0 as f64 / 1e6
}

#[track_caller]
fn within(share: f64, found: f64, published: f64, what: &str) {
    println!("{what}: {found:.4} against {published:.4}");
    assert!(
        (found / published - 1.0).abs() <= share,
        "{what}: {found:.4} against {published:.4}"
    );
}

const DISKS: [&str; 3] = ["hdd-10k-sas", "hdd-7200-sata", "hdd-5400-mobile"];

fn sheet(model: &str) -> device::model::HddSpec {
    match Spec::find(model).expect("in the catalogue").kind {
        Kind::Hdd(hdd) => hdd,
        _ => panic!("{model} is a disk"),
    }
}

#[test]
fn the_seek_curve_runs_through_the_three_figures_of_the_sheet() {
    // The fit of the specification for the Savvio 10K.4: .285 + .01538 sqrt(d) + 2.13e-5 d for reads,
    // .541 + .01907 sqrt(d) + 1.28e-5 d for writes.
    for (three, [a, b, c]) in [
        ([0.30, 3.8, 7.76], [0.285, 0.01538, 2.13e-5]),
        ([0.56, 4.4, 8.31], [0.541, 0.01907, 1.28e-5]),
    ] {
        let curve = SeekCurve::through(three, 110_715.0);
        within(0.01, curve.a, a, "a");
        within(0.01, curve.b, b, "b");
        within(0.01, curve.c, c, "c");
        within(1e-6, curve.ms(1.0), three[0], "next track");
        within(1e-6, curve.ms(110_715.0), three[2], "full stroke");
    }
}

#[test]
fn the_geometry_of_the_savvio_follows_from_its_rates_and_size() {
    let bench = Bench::new("hdd-10k-sas", None);
    let tracks = bench.core.geometry().cylinders() as f64;
    within(0.01, tracks, 110_715.0, "tracks per surface");
    let mean_track = 450e9 / 6.0 / tracks;
    within(0.01, mean_track, 677_557.0, "bytes per track");
}

#[test]
fn seeks_take_what_the_sheet_says_at_any_size() {
    for model in DISKS {
        let sheet = sheet(model);
        for size in [None, Some(Bytes::gib(24)), Some(Bytes::gib(2000))] {
            for (op, state, three) in [
                (Op::Read, State::SeekRead, sheet.mechanics.read_seek_ms),
                (Op::Write, State::SeekWrite, sheet.mechanics.write_seek_ms),
            ] {
                let uncached = |spec: &mut Spec| {
                    if let Kind::Hdd(hdd) = &mut spec.kind {
                        hdd.buffers.write_cache = false;
                    }
                };
                let fresh = || Bench::tuned(model, size, uncached);
                // The meter counts the command overhead with the seek.
                let mean = |bench: &mut Bench, places: &[u64]| {
                    bench.alone(op, places[0], 4096);
                    let before = bench.state(state);
                    for &at in &places[1..] {
                        bench.alone(op, at, 4096);
                    }
                    let count = places.len() as f64 - 1.0;
                    (bench.state(state) - before) / count - sheet.commands.overhead_ms
                };
                let mut bench = fresh();
                let places: Vec<u64> = (0..4000).map(|_| bench.anywhere()).collect();
                within(0.10, mean(&mut bench, &places), three[1], "mean seek");
                let mut bench = fresh();
                let last = bench.sectors - 8;
                // Some way apart each time: what was read already is in the buffer.
                let places: Vec<u64> = (0..100)
                    .map(|turn| turn % 2 * (last - 2 * 4096 * turn) + 4096 * turn)
                    .collect();
                within(0.10, mean(&mut bench, &places), three[2], "full stroke");
                let mut bench = fresh();
                let geometry = bench.core.geometry();
                let places: Vec<u64> = (0..100)
                    .map(|track| geometry.first_sector(50 + track).0)
                    .collect();
                within(0.10, mean(&mut bench, &places), three[0], "next track");
            }
        }
    }
}

#[test]
fn sequential_runs_keep_the_media_rate_at_the_edges() {
    for model in DISKS {
        let sheet = sheet(model);
        let mut bench = Bench::new(model, None);
        let outer = bench.sequence(Op::Read, 0, 1 << 20, 300, Nanos(0));
        within(0.05, outer, sheet.mechanics.outer_mb_s, "outer rate");
        let from = bench.sectors - (400 << 11);
        let inner = bench.sequence(Op::Read, from, 1 << 20, 300, Nanos(0));
        within(0.05, inner, sheet.mechanics.inner_mb_s, "inner rate");
    }
}

#[test]
fn reading_on_by_itself_a_disk_loses_no_turn_between_small_requests() {
    for model in DISKS {
        let rate = sheet(model).mechanics.outer_mb_s;
        let mut bench = Bench::new(model, None);
        let found = bench.sequence(Op::Read, 0, 64 << 10, 2000, Nanos(0));
        within(0.05, found, rate, "64 KiB, no pause");
        // A reader that pauses for as long as the data take costs nothing either, up to the read-ahead.
        let pause = Nanos((64.0 * 1024.0 / rate * 300.0) as u64);
        let found = bench.sequence(Op::Read, 1 << 24, 64 << 10, 2000, pause);
        within(0.05, found, rate, "64 KiB, a pause after each");
    }
}

#[test]
fn a_buffer_segment_forgets_what_lies_far_behind_the_head() {
    for model in DISKS {
        let mut bench = Bench::new(model, None);
        let first = bench.sequence(Op::Read, 0, 128 << 10, 1024, Nanos(0));
        let again = bench.sequence(Op::Read, 0, 128 << 10, 1024, Nanos(0));
        within(0.05, again, first, "128 MiB read again");
        // What has just passed is still there.
        let near = bench.alone(Op::Read, (128 << 11) - 256, 4096);
        assert!(near < 1.0, "{model}: {near} ms for what is in the buffer");
    }
}

#[test]
fn small_sequential_writes_gather_in_the_cache_without_it_each_loses_a_turn() {
    for model in ["hdd-7200-sata", "hdd-5400-mobile"] {
        let mut bench = Bench::new(model, None);
        let found = bench.sequence(Op::Write, 0, 64 << 10, 4000, Nanos(0));
        let rate = sheet(model).mechanics.outer_mb_s;
        assert!(found > 0.9 * rate, "{found:.1} of {rate} MB/s");
    }
    let mut bench = Bench::new("hdd-10k-sas", None);
    let found = bench.sequence(Op::Write, 0, 16 << 10, 1000, Nanos(0));
    // 16 KiB every turn of 6 ms.
    within(0.05, found, 16.384 / 6.0, "uncached");
}

#[test]
fn four_striped_savvios_read_a_gibibyte_in_two_to_three_seconds() {
    // 256 MiB from the middle of each at the same time; a stripe is as quick as its slowest disk.
    let mut bench = Bench::new("hdd-10k-sas", None);
    let middle = bench.sectors / 2;
    let rate = bench.sequence(Op::Read, middle, 1 << 20, 256, Nanos(0));
    let seconds = 268.435_456 / rate;
    within(0.10, seconds, 2.4, "1 GiB");
    assert!((2.0..=3.0).contains(&seconds));
}

#[test]
fn a_lone_random_read_takes_overhead_seek_half_a_turn_and_its_transfer() {
    for model in DISKS {
        let sheet = sheet(model);
        let mut bench = Bench::new(model, None);
        let (_, mean) = bench.random(Op::Read, 1, 4000);
        let turn = 60_000.0 / sheet.mechanics.rpm;
        let seek = bench.state(State::SeekRead) / 4001.0; // with the overhead
        let transfer =
            4096.0 / (sheet.mechanics.outer_mb_s + sheet.mechanics.inner_mb_s) * 2.0 / 1e3;
        within(0.02, mean, seek + turn / 2.0 + transfer, "by its parts");
        let published =
            sheet.commands.overhead_ms + sheet.mechanics.read_seek_ms[1] + turn / 2.0 + transfer;
        within(0.10, mean, published, "by the sheet");
    }
}

#[test]
fn a_deep_queue_nearly_triples_random_reads() {
    for model in DISKS {
        let one = Bench::new(model, None).random(Op::Read, 1, 3000).0;
        let four = Bench::new(model, None).random(Op::Read, 4, 3000).0;
        let deep = Bench::new(model, None).random(Op::Read, 32, 6000).0;
        assert!(four > 1.2 * one, "{model}: {four:.0} against {one:.0}");
        assert!(
            (2.2..3.5).contains(&(deep / one)),
            "{model}: {deep:.0} against {one:.0}"
        );
    }
}

#[test]
fn no_request_waits_much_longer_than_the_age_limit() {
    let mut bench = Bench::new("hdd-10k-sas", None);
    let far = bench.sectors - 8;
    let limit = Nanos::millis(1000);
    // 31 clients near the outer edge, one request at the inner edge.
    for _ in 0..16 {
        let at = bench.random.below(1 << 20) * 8 % (1 << 20);
        bench.submit(Op::Read, at, 4096, false);
    }
    let lonely = bench.submit(Op::Read, far, 4096, false);
    let start = bench.now;
    for _ in 0..5000 {
        if bench.next() == lonely {
            let waited = bench.now.since(start);
            assert!(
                waited > Nanos::millis(20),
                "the near ones go first: {waited}"
            );
            assert!(waited < limit + Nanos::millis(50), "{waited}");
            return;
        }
        let at = bench.random.below(1 << 20) * 8 % (1 << 20);
        bench.submit(Op::Read, at, 4096, false);
    }
    panic!("the far request starved");
}

#[test]
fn a_cached_write_is_quick_and_a_flush_waits_for_the_medium() {
    let mut bench = Bench::new("hdd-7200-sata", None);
    let mut written = 0;
    for _ in 0..20 {
        let at = bench.anywhere();
        assert!(bench.alone(Op::Write, at, 4096) < 0.3);
        written += 1;
    }
    let start = bench.now;
    let flush = bench.submit(Op::Flush, 0, 0, false);
    assert_eq!(bench.next(), flush);
    let took = ms(bench.now.since(start));
    // Twenty places in the best order: more than three ms each, less than a seek and a turn each.
    assert!(
        took > 3.0 * f64::from(written) && took < 20.0 * f64::from(written),
        "{took}"
    );
    let again = bench.alone(Op::Flush, 0, 0);
    assert!(again < 0.3, "nothing is left: {again}");
    let mut total = 0.0;
    for _ in 0..200 {
        let (start, at) = (bench.now, bench.anywhere());
        let id = bench.submit(Op::Write, at, 4096, true);
        assert_eq!(bench.next(), id);
        total += ms(bench.now.since(start));
    }
    within(0.1, total / 200.0, 0.2 + 9.5 + 4.17 + 0.07, "FUA");
}

#[test]
fn a_full_write_cache_goes_at_the_pace_of_the_medium() {
    let mut bench = Bench::new("hdd-7200-sata", None);
    let (cached, _) = bench.random(Op::Write, 1, 4000);
    let (direct, _) = Bench::new("hdd-7200-sata", None).random(Op::Read, 1, 2000);
    // 64 runs to choose from: better than a queue of 32 reads, and far from the interface's pace.
    assert!(
        cached > 2.0 * direct && cached < 5.0 * direct,
        "{cached} {direct}"
    );
}

#[test]
fn power_is_time_in_state_times_watts_and_meets_the_sheet() {
    for (op, published) in [(Op::Read, 8.66), (Op::Write, 7.66)] {
        let mut bench = Bench::new("hdd-10k-sas", None);
        bench.random(op, 1, 3000);
        let now = bench.now;
        let meter = bench.core.meter(now);
        let spent = meter.spent();
        let time: u64 = spent.iter().map(|spent| spent.time.0).sum();
        assert_eq!(time, now.0, "every nanosecond is in one state");
        let joules: f64 = spent
            .iter()
            .map(|spent| spent.time.0 as f64 / 1e9 * spent.watts)
            .sum();
        assert_eq!(joules, meter.joules());
        within(0.03, joules / now.0 as f64 * 1e9, published, "watts");
    }
}

#[test]
fn a_disk_sleeps_by_its_timer_and_pays_for_waking() {
    let mut bench = Bench::tuned("hdd-7200-sata", None, |spec| {
        spec.power.standby_after_s = 600.0;
    });
    let awake = bench.alone(Op::Read, 0, 4096);
    let before = bench.core.meter(bench.now).joules();
    let start = bench.now;
    bench.now = start + Nanos::secs(3600);
    assert!(bench.core.meter(bench.now).is_down(bench.now));
    let hour = bench.core.meter(bench.now).joules() - before;
    // Ten minutes idle (less the read-ahead), 4 s down, the rest asleep; all but the first at 1 W.
    within(0.001, hour, 600.0 * 7.5 + 3000.0 * 1.0, "an hour");
    let asleep = bench.alone(Op::Read, 1 << 20, 4096);
    assert!((8000.0..8100.0).contains(&asleep), "{asleep} after {awake}");
    assert_eq!(bench.core.meter(bench.now).spin_ups(), 1);
    let woken = bench.core.meter(bench.now).joules() - before - hour;
    within(0.01, woken, 8.0 * 24.0, "spinning up");
}

#[test]
fn on_request_a_disk_writes_its_cache_out_and_sleeps_at_once() {
    let mut bench = Bench::new("hdd-5400-mobile", None);
    bench.alone(Op::Write, 1 << 20, 4096);
    assert!(bench.core.standby(bench.now));
    let later = bench.now + Nanos::secs(2);
    let meter = bench.core.meter(later);
    assert!(meter.is_down(later));
    assert!(
        meter
            .spent()
            .iter()
            .any(|spent| spent.state == State::Write)
    );
    // A flush finds nothing to do and lets it sleep; a read wakes it.
    bench.now = later;
    assert!(bench.alone(Op::Flush, 0, 0) < 1.0);
    assert!(bench.core.meter(bench.now).is_down(bench.now));
    assert!(bench.alone(Op::Read, 0, 4096) > 3_000.0);
}

#[test]
fn a_core_driven_late_completes_at_the_same_moments() {
    let completions = |step: u64| {
        let mut bench = Bench::new("hdd-7200-sata", Some(Bytes::gib(8)));
        let mut moments = Vec::new();
        let mut random = env::Rng::from_seed(3);
        let mut now = 0;
        for id in 0..600 {
            now += random.below(20_000_000);
            let op = [Op::Read, Op::Write, Op::Write, Op::Flush][random.below(4) as usize];
            let len = if op == Op::Flush { 0 } else { 4096 };
            let span = Span::new(Sector(random.below(1 << 20) * 8), Bytes(len));
            let fua = op == Op::Write && random.chance(0.2);
            bench
                .core
                .submit(Instant(now), Request { id, op, span, fua });
            while let Some(done) = bench.core.take_done() {
                moments.push((done.id, done.at));
            }
        }
        for turn in 1..=(20_000_000_000 / step) {
            bench.core.advance(Instant(now + turn * step));
            while let Some(done) = bench.core.take_done() {
                moments.push((done.id, done.at));
            }
        }
        assert_eq!(moments.len(), 600, "every request completes once");
        moments
    };
    assert_eq!(completions(1_000_000), completions(20_000_000_000));
}

#[test]
fn the_seed_says_where_the_platters_stand_and_nothing_else_is_random() {
    let first = |seed| {
        let core = Spec::find("hdd-7200-sata").unwrap().timing(None, seed);
        let mut core = core.expect("its own size");
        let mut ends = Vec::new();
        for id in 0..50 {
            let span = Span::new(Sector(id * 1_234_568), Bytes(4096));
            let op = Op::Read;
            let fua = false;
            core.submit(Instant(0), Request { id, op, span, fua });
        }
        while let Some(next) = core.next() {
            core.advance(next);
            while let Some(done) = core.take_done() {
                ends.push(done);
            }
        }
        assert_eq!(ends.len(), 50);
        ends
    };
    assert_eq!(first(1), first(1));
    assert_ne!(first(1), first(2));
}
