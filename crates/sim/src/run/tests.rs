//! The whole stack under small traces: sums that must hold, figures the models promise, the same run twice.

use base::{Bytes, Nanos};
use device::model::{Kind, Spec};

use super::*;
use trace::{Op, Request, Requests, TraceError};

/// Requests out of memory, in batches of one size.
struct Given<'a> {
    left: &'a [Request],
    batch: usize,
}

impl Requests for Given<'_> {
    fn next_batch(&mut self, batch: &mut Vec<Request>) -> Result<bool, TraceError> {
        batch.clear();
        let (now, later) = self.left.split_at(self.left.len().min(self.batch));
        batch.extend_from_slice(now);
        self.left = later;
        Ok(!batch.is_empty())
    }
}

fn given(left: &[Request]) -> Given<'_> {
    Given { left, batch: 1000 }
}

const HDD: Bytes = Bytes::gib(4);
const CLOSED: Pace = Pace::Closed { depth: 8 };

fn hdd() -> Spec {
    Spec::find("hdd-7200-sata").unwrap()
}

fn disk() -> Stack {
    Stack::bare("hdd", &hdd(), HDD)
}

fn cached(settings: hybrid::Settings) -> Stack {
    let mut stack = disk();
    stack.name = "cached".to_owned();
    stack.devices.push(Modelled {
        name: "ssd".to_owned(),
        spec: Spec::find("ssd-sata-mlc").unwrap(),
        size: Bytes::mib(256),
    });
    stack.volume = settings.name.clone();
    stack.hybrids.push(Made {
        settings,
        slow: "hdd".to_owned(),
        fast: "ssd".to_owned(),
    });
    stack
}

fn request(at: Nanos, op: Op, offset: u64, size: u64) -> Request {
    Request {
        at,
        offset: Bytes(offset),
        size: Bytes(size),
        device: 0,
        op,
    }
}

/// Pages of the first GiB, a few of them most of the time; `reads` of 10.
fn hot_and_cold(count: u64, reads: u64, gap: Nanos) -> Vec<Request> {
    let mut rng = env::Rng::from_seed(5);
    let mut one = |n| {
        let page = match rng.below(10) {
            0 => rng.below(1 << 18),
            _ => rng.below(512) * 500,
        };
        let op = if rng.below(10) < reads {
            Op::Read
        } else {
            Op::Write
        };
        request(gap * n, op, page * 4096, 4096 * (1 + rng.below(3)))
    };
    (0..count).map(&mut one).collect()
}

fn closed() -> Replay {
    Replay {
        pace: CLOSED,
        ..Replay::default()
    }
}

fn json(outcome: &Outcome) -> String {
    serde_json::to_string(outcome).unwrap()
}

#[test]
fn the_same_seed_gives_the_same_outcome_bit_for_bit_another_seed_another() {
    let trace = hot_and_cold(3_000, 6, Nanos::millis(5));
    let stack = cached(hybrid::Settings::default());
    for pace in [CLOSED, Pace::Open { speed: 1.5 }] {
        let with = |seed, batch| {
            let replay = Replay {
                pace,
                seed,
                heat: true,
                ..Replay::default()
            };
            let mut requests = Given {
                left: &trace,
                batch,
            };
            json(&run(&stack, &mut requests, &replay).unwrap())
        };
        let first = with(1, 1_000);
        assert_eq!(first, with(1, 1_000), "once more");
        assert_eq!(first, with(1, 7), "the trace comes in other batches");
        assert_ne!(first, with(2, 1_000), "another seed");
    }
}

#[test]
fn the_outcome_adds_up_and_agrees_with_what_the_engine_says_itself() {
    let mut trace = hot_and_cold(4_000, 6, Nanos::millis(2));
    let end = trace.len() as u64;
    trace.push(request(
        Nanos::millis(2 * end),
        Op::Discard,
        1 << 20,
        1 << 20,
    ));
    trace.push(request(Nanos::millis(2 * end), Op::Flush, 0, 0));
    for pace in [CLOSED, Pace::Open { speed: 1.0 }] {
        let stack = cached(hybrid::Settings::default());
        let replay = Replay {
            pace,
            heat: true,
            ..Replay::default()
        };
        let outcome = run(&stack, &mut given(&trace), &replay).unwrap();
        let count = |op| trace.iter().filter(|request| request.op == op).count() as u64;
        let bytes = |op| -> u64 {
            let of = trace.iter().filter(|request| request.op == op);
            of.map(|request| request.size.0).sum()
        };
        assert_eq!(
            (outcome.counts.reads, outcome.counts.writes),
            (count(Op::Read), count(Op::Write))
        );
        assert_eq!((outcome.counts.discards, outcome.counts.flushes), (1, 1));
        assert_eq!(outcome.counts.requests, trace.len() as u64);
        assert_eq!(outcome.counts.read_bytes, bytes(Op::Read));
        assert_eq!(outcome.counts.written_bytes, bytes(Op::Write));
        let by_op: u64 = outcome.speed.responses[1..]
            .iter()
            .map(|response| response.requests)
            .sum();
        assert_eq!(
            (outcome.speed.responses[0].requests, by_op),
            (outcome.counts.requests, outcome.counts.requests)
        );

        let status = &outcome.caches[0].status;
        let share = status.requests.reads();
        let reads = share.requests_fast + share.requests_slow + share.requests_both;
        assert_eq!(reads, outcome.counts.reads);
        let read = share.bytes_fast + share.bytes_slow;
        assert_eq!(read, outcome.counts.read_bytes);
        assert_eq!(
            read,
            outcome.caches[0].hit_bytes + outcome.caches[0].miss_bytes
        );
        let writes =
            status.requests.random_writes.requests + status.requests.sequential_writes.requests;
        assert_eq!(writes, outcome.counts.writes);
        assert_eq!(
            status.requests.random_writes.bytes + status.requests.sequential_writes.bytes,
            outcome.counts.written_bytes
        );
        assert_eq!(status.upkeep.bad_checksums, 0);
        assert!(status.traffic.fast_bytes_read > 0 && status.traffic.fast_bytes_written > 0);

        // What the engine sent is what the meters below it saw.
        let [hdd, ssd] = &outcome.devices[..] else {
            panic!("two devices")
        };
        assert_eq!(hdd.written.bytes, status.traffic.slow_bytes_written);
        let samples = hdd.read.bytes - status.traffic.slow_bytes_read;
        assert!(
            samples.is_multiple_of(4096) && samples <= 400 << 10,
            "{samples} bytes of fingerprints"
        );
        assert!(ssd.written.bytes >= status.traffic.fast_bytes_written);
        assert!(ssd.read.bytes >= status.traffic.fast_bytes_read);
        let classes = ssd.written.by_class;
        assert_eq!(
            classes.foreground + classes.metadata + classes.background,
            ssd.written.bytes
        );
        assert_eq!(outcome.energy.joules, hdd.joules + ssd.joules);

        // Over time it adds up to the same.
        let points = &outcome.series.points;
        assert_eq!(
            points.iter().map(|point| point.requests).sum::<u64>(),
            outcome.counts.requests
        );
        assert_eq!(
            points.iter().map(|point| point.read_bytes).sum::<u64>(),
            outcome.counts.read_bytes
        );
        let of = |index: usize| -> u64 {
            let each = points.iter().map(|point| point.devices[index]);
            each.map(|device| device.read_bytes + device.written_bytes)
                .sum()
        };
        assert_eq!(of(0), hdd.read.bytes + hdd.written.bytes);
        assert_eq!(of(1), ssd.read.bytes + ssd.written.bytes);
        let seconds: f64 = points.iter().map(|point| point.seconds).sum();
        assert!((seconds - outcome.speed.seconds).abs() < 1e-6);
        let joules: f64 = points.iter().map(|point| point.watts * point.seconds).sum();
        assert!((joules / outcome.energy.joules - 1.0).abs() < 1e-9);
        assert_eq!(
            points.last().unwrap().dirty_bytes,
            outcome.caches[0].dirty_bytes
        );
        let heat = outcome.heat.unwrap();
        let came: u64 = heat
            .bins
            .iter()
            .flat_map(|bin| &bin.requests)
            .map(|n| u64::from(*n))
            .sum();
        assert_eq!(came, outcome.counts.requests - 1, "a flush has no place");
        let resident = heat
            .bins
            .last()
            .unwrap()
            .resident
            .iter()
            .map(|share| f64::from(*share));
        let resident = resident.sum::<f64>() * heat.region_bytes as f64;
        assert!(
            (resident / status.occupancy.cached_bytes as f64 - 1.0).abs() < 1e-5,
            "{resident}"
        );
    }
}

#[test]
fn a_disk_alone_takes_the_time_its_data_sheet_says() {
    let spec = hdd();
    let Kind::Hdd(sheet) = &spec.kind else {
        panic!("a disk")
    };
    let mut rng = env::Rng::from_seed(9);
    let pages = spec.size.0 / 4096;
    let trace: Vec<Request> = (0..4_000)
        .map(|_| request(Nanos(0), Op::Read, rng.below(pages) * 4096, 4096))
        .collect();
    let stack = Stack::bare("hdd", &spec, spec.size);
    let replay = Replay {
        pace: Pace::Closed { depth: 1 },
        ..Replay::default()
    };
    let outcome = run(&stack, &mut given(&trace), &replay).unwrap();
    let promised = sheet.mechanics.read_seek_ms[1]
        + 60_000.0 / sheet.mechanics.rpm / 2.0
        + sheet.commands.overhead_ms;
    let ours = outcome.response("read").unwrap().mean_us / 1e3;
    assert!(
        (ours / promised - 1.0).abs() < 0.03,
        "{ours} ms for {promised} ms"
    );
    assert_eq!(outcome.speed.queue_depth_max, 1);
    assert!((outcome.devices[0].utilisation - 1.0).abs() < 0.01);
    assert!((outcome.speed.seconds * 1e3 / 4_000.0 / ours - 1.0).abs() < 0.001);
    assert_eq!(outcome.devices[0].queue_depth_max, 1);
    assert!(outcome.caches.is_empty() && outcome.heat.is_none());
}

#[test]
fn a_cache_makes_a_hot_trace_faster_and_says_by_what() {
    let trace = hot_and_cold(6_000, 10, Nanos(0));
    let bare = run(&disk(), &mut given(&trace), &closed()).unwrap();
    let fast = run(
        &cached(hybrid::Settings::default()),
        &mut given(&trace),
        &closed(),
    )
    .unwrap();
    assert!(fast.caches[0].hit_share.unwrap() > 0.5);
    assert!(
        fast.speed.seconds < bare.speed.seconds / 2.0,
        "{} against {}",
        fast.speed.seconds,
        bare.speed.seconds
    );
    let p50 = |outcome: &Outcome| outcome.response("read").unwrap().p50_us;
    assert!(p50(&fast) < p50(&bare) / 4.0);
    let points = &fast.series.points;
    let late = points[points.len() / 2..]
        .iter()
        .filter_map(|point| point.hit_share);
    assert!(late.clone().sum::<f64>() / late.count() as f64 > 0.7);
    assert_eq!(bare.series.points[0].hit_share, None);
}

#[test]
fn an_open_loop_takes_the_time_of_the_trace_over_its_speed() {
    let trace = hot_and_cold(500, 10, Nanos::millis(50));
    let seconds = |speed| {
        let replay = Replay {
            pace: Pace::Open { speed },
            ..Replay::default()
        };
        let outcome = run(&disk(), &mut given(&trace), &replay).unwrap();
        assert_eq!(outcome.speed.backlog.late, 0);
        assert!((outcome.speed.trace_seconds - 499.0 * 0.05).abs() < 1e-9);
        outcome.speed.seconds
    };
    for speed in [0.5, 1.0, 2.0] {
        let expected = 499.0 * 0.05 / speed;
        let ours = seconds(speed);
        assert!(
            (expected..expected + 0.1).contains(&ours),
            "{ours} s at {speed}"
        );
    }
}

#[test]
fn a_disk_that_cannot_keep_up_has_long_response_times_and_a_bounded_queue() {
    // 1,000 a second for a disk that does about 100.
    let mut rng = env::Rng::from_seed(4);
    let trace: Vec<Request> = (0..2_000)
        .map(|n| request(Nanos::millis(n), Op::Read, rng.below(1 << 20) * 4096, 4096))
        .collect();
    let replay = Replay {
        under_way_max: 16,
        ..Replay::default()
    };
    let outcome = run(&disk(), &mut given(&trace), &replay).unwrap();
    assert_eq!(outcome.counts.requests, 2_000);
    assert_eq!(outcome.speed.queue_depth_max, 16);
    let backlog = outcome.speed.backlog;
    assert!(backlog.late > 1_900, "{backlog:?}");
    // The last one should have come at 2 s and was answered at the end.
    let all = outcome.response("all").unwrap();
    let last = (outcome.speed.seconds - 1.999) * 1e6;
    assert!(
        (all.max_us / last - 1.0).abs() < 0.1,
        "{} us for {last} us",
        all.max_us
    );
    assert!(all.max_us / 1e6 >= backlog.late_max_s);
    // Without the bound they all wait in one queue: the disk sorts its own 32 either way.
    let unbounded = Replay {
        under_way_max: 4_000,
        ..Replay::default()
    };
    let free = run(&disk(), &mut given(&trace), &unbounded).unwrap();
    assert_eq!(free.speed.backlog.late, 0);
    assert!(free.speed.queue_depth_max > 1_000);
}

#[test]
fn the_warm_up_is_done_and_not_counted() {
    let trace = hot_and_cold(3_000, 10, Nanos::millis(20));
    let stack = cached(hybrid::Settings::default());
    let with = |warm_up, limit| {
        let replay = Replay {
            warm_up,
            limit,
            ..Replay::default()
        };
        run(&stack, &mut given(&trace), &replay)
    };
    let all = with(WarmUp::None, None).unwrap();
    for warm_up in [WarmUp::Requests(2_000), WarmUp::For(Nanos::secs(40))] {
        let warm = with(warm_up, None).unwrap();
        assert_eq!(
            (warm.counts.warm_up_requests, warm.counts.requests),
            (2_000, 1_000),
            "{warm_up:?}"
        );
        assert!(warm.caches[0].hit_share > all.caches[0].hit_share);
        assert_eq!(
            warm.caches[0].hit_bytes + warm.caches[0].miss_bytes,
            warm.counts.read_bytes
        );
        assert!((warm.speed.trace_seconds - 999.0 * 0.02).abs() < 1e-9);
        assert!((warm.speed.seconds - warm.speed.trace_seconds).abs() < 0.2);
    }
    assert_eq!(with(WarmUp::None, Some(700)).unwrap().counts.requests, 700);
    assert_eq!(
        with(WarmUp::Requests(500), Some(700))
            .unwrap()
            .counts
            .requests,
        200
    );
    let nothing = with(WarmUp::Requests(5_000), None).unwrap_err().to_string();
    assert!(nothing.contains("the warm-up took them all"), "{nothing}");
}

#[test]
fn long_requests_go_in_pieces_and_odd_ones_in_whole_sectors() {
    let trace = [
        request(Nanos(0), Op::Read, 1 << 20, 40 << 20),
        request(Nanos::secs(1), Op::Write, 511, 2),
        request(Nanos::secs(2), Op::Read, 4096, 0),
    ];
    let outcome = run(&disk(), &mut given(&trace), &Replay::default()).unwrap();
    assert_eq!(
        (outcome.counts.requests, outcome.counts.left_out.no_bytes),
        (2, 1)
    );
    assert_eq!(
        (outcome.counts.read_bytes, outcome.counts.written_bytes),
        (40 << 20, 1024)
    );
    assert_eq!(outcome.devices[0].read.requests, 40);
    assert_eq!(outcome.devices[0].queue_depth_max, 32);
}

#[test]
fn a_trace_beyond_the_volume_is_refused_with_how_far_it_goes() {
    let mut trace = hot_and_cold(30, 10, Nanos::millis(1));
    trace[3].offset = Bytes::gib(5);
    trace[20].offset = Bytes::gib(7);
    trace[20].size = Bytes(4096);
    let refusal = run(&disk(), &mut given(&trace), &Replay::default()).unwrap_err();
    let needed = (7u64 << 30) + 4096;
    let text = refusal.to_string();
    assert!(
        text.contains(&format!("at least {needed} bytes (7.0 GiB)")),
        "{text}"
    );
    assert!(
        text.starts_with("stack hdd: the trace reaches up to byte"),
        "{text}"
    );

    // As the error says: a larger volume, or another way to fit.
    let mut larger = disk();
    larger.grow(Bytes(needed));
    assert_eq!(larger.volume_size(), Bytes::gib(7) + Bytes::mib(1));
    assert_eq!(
        run(&larger, &mut given(&trace), &Replay::default())
            .unwrap()
            .counts
            .requests,
        30
    );
    for (fit, beyond) in [(Fit::Wrap, 0), (Fit::Drop, 2)] {
        let replay = Replay {
            layout: Layout::unsurveyed(None, fit),
            ..Replay::default()
        };
        let outcome = run(&disk(), &mut given(&trace), &replay).unwrap();
        assert_eq!(
            (outcome.counts.requests, outcome.counts.left_out.beyond),
            (30 - beyond, beyond),
            "{fit:?}"
        );
    }
}

#[test]
fn a_hybrid_may_stand_on_a_hybrid() {
    let mut stack = cached(hybrid::Settings::default());
    stack.devices.push(Modelled {
        name: "dram".to_owned(),
        spec: Spec::find("dram").unwrap(),
        size: Bytes::mib(64),
    });
    let upper = hybrid::Settings {
        name: "upper".to_owned(),
        ..hybrid::Settings::default()
    };
    stack.volume = upper.name.clone();
    stack.hybrids.push(Made {
        slow: stack.hybrids[0].settings.name.clone(),
        fast: "dram".to_owned(),
        settings: upper,
    });
    stack.grow(Bytes::gib(5));
    assert_eq!(stack.volume_size(), Bytes::gib(5));
    let trace = hot_and_cold(1_000, 8, Nanos(0));
    let outcome = run(&stack, &mut given(&trace), &closed()).unwrap();
    assert_eq!(outcome.caches.len(), 2);
    assert_eq!(outcome.setup.volume, "upper");
    assert!(outcome.caches[1].hit_share.unwrap() > 0.0);
    assert_eq!(outcome.setup.volume_bytes, 5 << 30);

    stack.hybrids[1].fast = "nowhere".to_owned();
    let refusal = run(&stack, &mut given(&trace), &closed()).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "stack cached: there is no device, stripe or hybrid 'nowhere'"
    );
}

#[test]
fn a_stripe_shares_the_work_of_its_devices_and_lists_each() {
    let mut stack = disk();
    stack.devices = (0..4)
        .map(|n| Modelled {
            name: format!("hdd{n}"),
            spec: hdd(),
            size: Bytes::gib(1),
        })
        .collect();
    stack.stripes.push(Stripe {
        name: "raid".to_owned(),
        members: (0..4).map(|n| format!("hdd{n}")).collect(),
        chunk: Bytes::kib(64),
    });
    stack.volume = "raid".to_owned();
    assert_eq!(stack.volume_size(), Bytes::gib(4));
    let trace = hot_and_cold(2_000, 1_000, Nanos(0));
    let alone = run(&disk(), &mut given(&trace), &closed()).unwrap();
    let striped = run(&stack, &mut given(&trace), &closed()).unwrap();
    assert_eq!(
        (striped.devices.len(), striped.setup.volume.as_str()),
        (4, "raid")
    );
    let bytes: u64 = striped.devices.iter().map(|device| device.read.bytes).sum();
    assert_eq!(bytes, striped.counts.read_bytes);
    for device in &striped.devices {
        assert!((0.15..0.35).contains(&(device.read.bytes as f64 / bytes as f64)));
    }
    let faster = alone.speed.seconds / striped.speed.seconds;
    assert!((1.5..4.0).contains(&faster), "{faster}");

    stack.grow(Bytes::gib(5));
    assert_eq!(stack.volume_size(), Bytes::gib(5));
    stack.stripes[0].chunk = Bytes(5000);
    let refusal = run(&stack, &mut given(&trace), &closed()).unwrap_err();
    assert!(
        refusal.to_string().contains("stripe raid with chunks of"),
        "{refusal}"
    );
}

#[test]
fn a_request_due_after_the_longest_run_is_refused_with_what_would_help() {
    let far = Nanos(18_446_744_073_709_551_000);
    let trace = [
        request(Nanos(0), Op::Read, 0, 4096),
        request(far, Op::Read, 4096, 4096),
    ];
    let error = run(&disk(), &mut given(&trace), &Replay::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "stack hdd: a request of the trace comes 584.9 years after the first, at speed 1 that is after 584.9 years, \
         and a run takes at most 100: see whether the trace's unit of time is what it was taken for (--tick), take \
         less of it (--end), or choose a higher speed"
    );
    // What is far in the trace alone does not matter to a closed loop, nor at a speed that makes it near.
    assert_eq!(
        run(&disk(), &mut given(&trace), &closed())
            .unwrap()
            .counts
            .requests,
        2
    );
    let at = |speed: f64, gap: Nanos| {
        let trace = [
            request(Nanos(0), Op::Read, 0, 4096),
            request(gap, Op::Read, 4096, 4096),
        ];
        let replay = Replay {
            pace: Pace::Open { speed },
            ..Replay::default()
        };
        run(&disk(), &mut given(&trace), &replay)
    };
    assert_eq!(at(1e6, far).unwrap().counts.requests, 2);
    assert!(matches!(
        at(1e-300, Nanos::secs(1)),
        Err(RunError::TooLong { .. })
    ));
    let nearly = at(1.0, Nanos::secs(99 * 365 * 86_400)).unwrap();
    assert!(nearly.series.points.len() <= 360);
    assert!((nearly.speed.seconds / 86_400.0 - 99.0 * 365.0).abs() < 1.0);
}

#[test]
fn senseless_paces_are_refused() {
    for (replay, start) in [
        (Pace::Open { speed: 0.0 }, "speed = 0 "),
        (Pace::Open { speed: f64::NAN }, "speed = NaN "),
        (Pace::Closed { depth: 0 }, "closed = 0 "),
    ] {
        let replay = Replay {
            pace: replay,
            ..Replay::default()
        };
        let refusal = run(&disk(), &mut given(&[]), &replay)
            .unwrap_err()
            .to_string();
        assert!(refusal.starts_with(start), "{refusal}");
    }
    let empty = run(&disk(), &mut given(&[]), &Replay::default())
        .unwrap_err()
        .to_string();
    assert!(empty.starts_with("nothing was measured"), "{empty}");
}

/// Programs read these keys, and the text of one outcome is always the same.
#[test]
fn what_an_engine_says_has_its_keys_in_one_flat_object_and_in_order() {
    let keys = "name health why write_mode policy block_bytes size_bytes \
        cache_bytes cached_bytes dirty_bytes unreadable_dirty_bytes clean_failures dirty_age_ns marked_regions \
        random_reads sequential_reads random_writes sequential_writes \
        user_requests home_requests buffer_requests dirty_write_requests \
        fast_bytes_read fast_bytes_written fast_data_writes slow_bytes_read slow_bytes_written \
        fills fills_dropped evicted bytes_cleaned clean_rounds waits_for_room bad_checksums \
        commits ledger_bytes_written ledger_writes ledger_used_bytes ledger_size_bytes \
        memory_bytes slow_asleep recovered_pages recovered_dropped recovery_ns";
    let text = serde_json::to_string(&hybrid::Status::default()).unwrap();
    let places: Vec<usize> = keys
        .split_whitespace()
        .map(|key| text.find(&format!("\"{key}\":")).expect(key))
        .collect();
    assert!(places.is_sorted(), "{text}");
    let object: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(object.as_object().unwrap().len(), places.len(), "{text}");
}
