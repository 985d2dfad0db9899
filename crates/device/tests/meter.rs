//! Figures of a device: counts that add up, latencies and depth on the virtual clock.

mod reference;

use std::rc::Rc;

use base::{Buf, Bytes, Nanos, Sector, Span};
use device::fault::{Done, Injury, Rule};
use device::meter::Histogram;
use device::{Class, Device, DeviceExt, Fault, Memory, Meter, Op, WriteFlags};
use env::{Rng, Runtime};
use proptest::prelude::*;
use reference::{actions, agree, filled};

const SIZE: Bytes = Bytes::mib(1);

fn run<T: 'static>(work: impl Future<Output = T> + 'static) -> T {
    Runtime::simulated(1).block_on(work)
}

proptest! {
    #![proptest_config(reference::cases(64))]

    #[test]
    fn metered_it_reads_what_a_vec_reads_and_every_request_is_counted(
        actions in actions(SIZE, Bytes::kib(64), 60),
    ) {
        let asked = actions.len() as u64;
        run(async move {
            let meter = Meter::new(Memory::new("disk", SIZE));
            agree(&*meter, actions).await;
            let figures = meter.snapshot();
            let counted: u64 = figures.operations.iter().map(|row| row.requests).sum();
            assert!(counted >= asked);
            for row in &figures.operations {
                assert_eq!((row.errors, row.abandoned), (0, 0));
                assert_eq!(row.requests, row.latency.count);
                let in_buckets: u64 = row.latency.buckets.iter().map(|(_, count)| count).sum();
                assert_eq!(in_buckets, row.requests);
            }
            assert_eq!(figures.in_flight, 0);
        });
    }

    #[test]
    fn quantiles_are_within_a_sixteenth_above_the_sorted_list(
        mut values in prop::collection::vec(0..1_u64 << 41, 1..200),
        q in 0.0..=1.0_f64,
    ) {
        let mut histogram = Histogram::default();
        for value in &values {
            histogram.record(Nanos(*value));
        }
        values.sort_unstable();
        let rank = ((q * values.len() as f64).ceil() as usize).max(1);
        let exact = values[rank - 1];
        let answer = histogram.quantile(q).0;
        prop_assert!(answer >= exact && answer <= exact + exact / 16, "{answer} for {exact}");
        prop_assert_eq!(histogram.sum().0, values.iter().sum::<u64>());
        prop_assert_eq!(histogram.max().0, values[values.len() - 1]);
        prop_assert_eq!(histogram.at_most(Nanos(1 << 41)), values.len() as u64);
    }
}

#[test]
fn operations_and_classes_are_kept_apart() {
    run(async {
        let memory = Memory::new("disk", SIZE);
        memory.set_latency(Nanos::micros(10));
        let below: Rc<dyn Device> = memory.clone();
        let meter = Meter::new(below);
        meter.read_at(Sector(0), Bytes(4096)).await.unwrap();
        memory.set_latency(Nanos::micros(70));
        meter
            .read(Sector(0), Buf::zeroed(512), Class::Metadata)
            .await
            .unwrap();
        let data = filled(1, Bytes(1024));
        meter
            .write(Sector(0), data, WriteFlags::BACKGROUND)
            .await
            .unwrap();
        meter
            .write_zeroes(Span::bytes(0, 2048), WriteFlags::FUA)
            .await
            .unwrap();
        meter.discard(Span::bytes(0, 4096)).await.unwrap();
        meter.flush().await.unwrap();
        let figures = meter.snapshot();
        let rows: Vec<_> = figures
            .operations
            .iter()
            .map(|row| {
                (
                    &*row.op,
                    &*row.class,
                    row.requests,
                    row.bytes,
                    row.latency.p50_ns,
                )
            })
            .collect();
        assert_eq!(
            rows,
            [
                ("read", "foreground", 1, 4096, 10_000),
                ("read", "metadata", 1, 512, 70_000),
                ("write", "background", 1, 1024, 70_000),
                ("flush", "foreground", 1, 0, 70_000),
                ("discard", "foreground", 1, 4096, 70_000),
                ("write zeroes", "foreground", 1, 2048, 70_000),
            ]
        );
        assert_eq!(meter.latency(Op::Read, Class::Metadata).count(), 1);
        assert_eq!(meter.latency(Op::Write, Class::Metadata).count(), 0);
    });
}

#[test]
fn the_depth_integral_is_requests_times_time() {
    run(async {
        let memory = Memory::new("disk", SIZE);
        memory.set_latency(Nanos(100));
        let meter = Meter::new(memory);
        // 0..100 one request, 100..200 none, 200..300 three.
        meter.flush().await.unwrap();
        env::sleep(Nanos(100)).await;
        let three = env::sync::join_all((0..3).map(|_| meter.flush()));
        three
            .await
            .into_iter()
            .collect::<Result<Vec<()>, _>>()
            .unwrap();
        let figures = meter.snapshot();
        assert_eq!(figures.over_ns, 300);
        assert_eq!(figures.depth_time_ns, 100 + 300);
        assert_eq!(figures.busy_ns, 200);
        assert!((figures.mean_depth() - 4.0 / 3.0).abs() < 1e-9);
    });
}

#[test]
fn errors_and_abandoned_requests_carry_no_bytes() {
    run(async {
        let memory = Memory::new("disk", SIZE);
        memory.set_latency(Nanos::secs(9));
        let fault = Fault::new(memory, Rng::from_seed(1));
        fault
            .book()
            .add(Rule::new(Injury::Error(Done::Nothing)).once());
        let meter = Meter::new(fault);
        assert!(meter.read_at(Sector(0), Bytes(512)).await.is_err());
        let late = env::timeout(Nanos::secs(1), meter.read_at(Sector(0), Bytes(512))).await;
        assert!(late.is_err());
        let unread = meter.read_at(Sector(0), Bytes(512));
        assert_eq!(meter.in_flight(), 1);
        assert_eq!(meter.snapshot().in_flight, 1);
        drop(unread);
        let figures = meter.snapshot();
        let reads = figures.of(Op::Read, Class::Foreground).unwrap();
        assert_eq!(
            (reads.requests, reads.errors, reads.abandoned, reads.bytes),
            (1, 1, 2, 0)
        );
        assert_eq!(figures.in_flight, 0);
    });
}

#[test]
fn figures_serialize_with_units_in_their_names() {
    let text = run(async {
        let meter = Meter::new(Memory::new("disk", SIZE));
        meter.flush().await.unwrap();
        toml::to_string(&meter.snapshot()).unwrap()
    });
    for name in [
        "device = \"disk\"",
        "over_ns = 0",
        "depth_time_ns",
        "p99_ns",
        "max_ns",
    ] {
        assert!(text.contains(name), "{name} in\n{text}");
    }
}
