//! Counting answers: whole distributions at the end, and a bounded number of points over time.
//!
//! ```text
//! answer -> histogram of its operation, open bin --boundary--> closed bins --too many--> merged by a round factor
//! ```
//!
//! The time a closed loop takes is not known beforehand. So bins begin short and are merged whenever there are too
//! many: at the end there are 72 to 360 of them, and their length is a round number.
//!
//! Always true: every answer is in one histogram and in one bin; merging loses none.

use base::{Bytes, Instant, Nanos};
use device::meter::Histogram;

use super::outcome::{Bin, DevicePoint, Heat, Point, Response, Series};
use trace::Op;

/// Rows of the map of regions.
pub(super) const REGIONS: usize = 64;
/// Bins at most, where their length is ours to choose; a multiple of every factor of the ladder.
const BINS_MAX: usize = 360;
/// Bins at most, where a length was asked for.
const ASKED_MAX: usize = 3_600;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;
/// Lengths of bins: each a whole number of times the one before.
const LADDER: [u64; 18] = [
    MS,
    2 * MS,
    10 * MS,
    20 * MS,
    100 * MS,
    200 * MS,
    S,
    2 * S,
    10 * S,
    20 * S,
    60 * S,
    120 * S,
    600 * S,
    1_200 * S,
    3_600 * S,
    7_200 * S,
    21_600 * S,
    43_200 * S,
];

const OPS: [(Op, &str); 4] = [
    (Op::Read, "read"),
    (Op::Write, "write"),
    (Op::Discard, "discard"),
    (Op::Flush, "flush"),
];

/// A distribution: exact count, sum and maximum, and percentiles to three digits.
#[derive(Clone)]
pub struct Distribution {
    sum: u128,
    max: u64,
    histogram: hdrhistogram::Histogram<u64>,
}

impl Default for Distribution {
    fn default() -> Distribution {
        Distribution::new()
    }
}

impl Distribution {
    /// Nothing counted yet.
    pub fn new() -> Distribution {
        Distribution {
            sum: 0,
            max: 0,
            histogram: hdrhistogram::Histogram::new(3)
                .expect("three digits are among those it can keep"),
        }
    }

    /// Counts one value.
    pub fn record(&mut self, value: Nanos) {
        self.sum += u128::from(value.0);
        self.max = self.max.max(value.0);
        self.histogram
            .record(value.0)
            .expect("it grows with what it is given");
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Takes over what `other` counted.
    pub fn merge(&mut self, other: &Distribution) {
        self.sum += other.sum;
        self.max = self.max.max(other.max);
        self.histogram
            .add(&other.histogram)
            .expect("it grows with what it is given");
    }

    /// What came out, under the name `op`.
    pub fn response(&self, op: &str) -> Response {
        let requests = self.histogram.len();
        let us = |ns: u64| ns.min(self.max) as f64 / 1e3;
        let at = |share: f64| us(self.histogram.value_at_quantile(share));
        let mut cdf: Vec<(f64, f64)> = Vec::new();
        let hundredths = (1..100).map(|n| f64::from(n) / 100.0);
        let tail = [0.995, 0.999, 0.9995, 0.9999, 0.99999, 1.0];
        for share in hundredths.chain(tail) {
            let time = at(share);
            match cdf.last_mut() {
                // As many as are answered within one time: the last of them.
                Some(last) if last.0 == time => last.1 = share,
                _ => cdf.push((time, share)),
            }
        }
        Response {
            op: op.to_owned(),
            requests,
            mean_us: self.sum as f64 / requests as f64 / 1e3,
            p50_us: at(0.5),
            p90_us: at(0.9),
            p95_us: at(0.95),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: us(self.max),
            cdf,
        }
    }
}

/// One device since the bin began.
#[derive(Clone, Copy, Default)]
pub(super) struct DeviceBin {
    pub read: u64,
    pub written: u64,
    /// Nanoseconds times requests.
    pub depth_time: u128,
    pub busy: Nanos,
    pub joules: f64,
}

/// What is read off meters when a bin ends: how far counters went since it began, and how things stand.
#[derive(Clone, Default)]
pub(super) struct Reading {
    pub devices: Vec<DeviceBin>,
    /// Nanoseconds times requests.
    pub depth_time: u128,
    pub hit_bytes: u64,
    pub miss_bytes: u64,
    pub dirty: Bytes,
    /// The share of each region on the fast device; empty where it was not asked for.
    pub resident: Vec<f32>,
}

#[derive(Clone, Default)]
struct OpenBin {
    length: Nanos,
    read: u64,
    written: u64,
    latency: Histogram,
    late_max: Nanos,
    heat: Vec<u32>,
    reading: Reading,
}

impl OpenBin {
    /// Takes over what follows it.
    fn append(&mut self, next: OpenBin) {
        self.length += next.length;
        self.read += next.read;
        self.written += next.written;
        self.latency.merge(&next.latency);
        self.late_max = self.late_max.max(next.late_max);
        for (own, other) in self.heat.iter_mut().zip(&next.heat) {
            *own += other;
        }
        let (own, next) = (&mut self.reading, next.reading);
        for (own, other) in own.devices.iter_mut().zip(&next.devices) {
            own.read += other.read;
            own.written += other.written;
            own.depth_time += other.depth_time;
            own.busy += other.busy;
            own.joules += other.joules;
        }
        own.depth_time += next.depth_time;
        own.hit_bytes += next.hit_bytes;
        own.miss_bytes += next.miss_bytes;
        own.dirty = next.dirty;
        own.resident = next.resident;
    }

    fn point(&self, at: Nanos, cached: bool) -> Point {
        let seconds = self.length.secs_f64();
        // The last bin may have no length: an answer at its very beginning.
        let per_second = |amount: f64| if seconds > 0.0 { amount / seconds } else { 0.0 };
        let reading = &self.reading;
        let devices: Vec<DevicePoint> = reading
            .devices
            .iter()
            .map(|device| DevicePoint {
                read_bytes: device.read,
                written_bytes: device.written,
                queue_depth: per_second(device.depth_time as f64 / 1e9),
                utilisation: per_second(device.busy.secs_f64()),
                watts: per_second(device.joules),
            })
            .collect();
        let requests = self.latency.count();
        let us = |span: Nanos| (requests > 0).then_some(span.0 as f64 / 1e3);
        let read = reading.hit_bytes + reading.miss_bytes;
        Point {
            at_s: at.secs_f64(),
            seconds,
            requests,
            iops: per_second(requests as f64),
            read_bytes: self.read,
            written_bytes: self.written,
            mean_us: us(self.latency.mean()),
            p95_us: us(self.latency.quantile(0.95)),
            queue_depth: per_second(reading.depth_time as f64 / 1e9),
            hit_share: (cached && read > 0).then(|| reading.hit_bytes as f64 / read as f64),
            dirty_bytes: reading.dirty.0,
            late_max_s: self.late_max.secs_f64(),
            watts: devices.iter().map(|device| device.watts).sum(),
            devices,
        }
    }
}

/// Everything counted since the measurement began.
pub(super) struct Tally {
    // Fixed.
    begun: Instant,
    bins_max: usize,
    heat: bool,
    region: Bytes,
    // Over all.
    distributions: [Option<Box<Distribution>>; OPS.len()],
    bytes: [u64; OPS.len()],
    // Over time.
    step: Nanos,
    bins: Vec<OpenBin>,
    open: OpenBin,
}

impl Tally {
    /// From `begun` on; the volume has `volume` bytes.
    pub fn new(begun: Instant, interval: Option<Nanos>, heat: bool, volume: Bytes) -> Tally {
        Tally {
            begun,
            bins_max: interval.map_or(BINS_MAX, |_| ASKED_MAX),
            heat,
            region: Bytes(volume.0.div_ceil(REGIONS as u64).max(1)),
            distributions: [const { None }; OPS.len()],
            bytes: [0; OPS.len()],
            step: interval.unwrap_or(Nanos(LADDER[0])),
            bins: Vec::new(),
            open: Tally::empty(heat),
        }
    }

    fn empty(heat: bool) -> OpenBin {
        OpenBin {
            heat: vec![0; if heat { REGIONS } else { 0 }],
            ..OpenBin::default()
        }
    }

    pub fn begun(&self) -> Instant {
        self.begun
    }

    /// A request that begins at byte `at` has come, `late` after its time.
    pub fn arrived(&mut self, at: Option<u64>, late: Nanos) {
        self.open.late_max = self.open.late_max.max(late);
        if let (true, Some(at)) = (self.heat, at) {
            self.open.heat[(at / self.region.0) as usize] += 1;
        }
    }

    /// It was answered.
    pub fn answered(&mut self, op: Op, bytes: u64, took: Nanos) {
        let index = op as usize;
        self.distributions[index]
            .get_or_insert_with(|| Box::new(Distribution::new()))
            .record(took);
        self.bytes[index] += bytes;
        self.open.latency.record(took);
        match op {
            Op::Read => self.open.read += bytes,
            Op::Write => self.open.written += bytes,
            Op::Discard | Op::Flush => {}
        }
    }

    /// When the open bin ends; none if that is beyond all time.
    pub fn boundary(&self) -> Option<Instant> {
        let length = self.step.0.checked_mul(self.bins.len() as u64 + 1)?;
        self.begun.0.checked_add(length).map(Instant)
    }

    /// Ends the open bin; `reading` is what meters say.
    pub fn close(&mut self, now: Instant, reading: Reading) {
        let closed = Nanos(self.step.0.saturating_mul(self.bins.len() as u64));
        let from = self.begun + closed;
        let mut bin = std::mem::replace(&mut self.open, Tally::empty(self.heat));
        bin.length = now.since(from);
        bin.reading = reading;
        self.bins.push(bin);
        if self.bins.len() == self.bins_max {
            self.merge();
        }
    }

    fn merge(&mut self) {
        let place = LADDER.iter().position(|step| *step == self.step.0);
        let factor = match place {
            Some(at) if at + 1 < LADDER.len() => LADDER[at + 1] / LADDER[at],
            _ => 2,
        };
        let mut merged: Vec<OpenBin> = Vec::with_capacity(self.bins_max);
        for (index, bin) in self.bins.drain(..).enumerate() {
            match merged.last_mut() {
                Some(last) if !index.is_multiple_of(factor as usize) => last.append(bin),
                _ => merged.push(bin),
            }
        }
        self.bins = merged;
        self.step = Nanos(self.step.0.saturating_mul(factor));
    }

    /// Requests of one operation.
    pub fn requests(&self, op: Op) -> u64 {
        let distribution = &self.distributions[op as usize];
        distribution
            .as_ref()
            .map_or(0, |distribution| distribution.histogram.len())
    }

    /// Bytes of one operation.
    pub fn bytes(&self, op: Op) -> u64 {
        self.bytes[op as usize]
    }

    /// Response times: all together, then by operation.
    pub fn responses(&self) -> Vec<Response> {
        let mut all: Option<Distribution> = None;
        let mut by_op = Vec::new();
        for (op, name) in OPS {
            if let Some(own) = &self.distributions[op as usize] {
                all.get_or_insert_with(Distribution::new).merge(own);
                by_op.push(own.response(name));
            }
        }
        let mut responses: Vec<Response> = all.iter().map(|all| all.response("all")).collect();
        responses.extend(by_op);
        responses
    }

    /// The points; `cached`: is there a cache whose hits count?
    pub fn series(&self, cached: bool) -> Series {
        let points = (0u64..).zip(&self.bins);
        Series {
            interval_ns: self.step.0,
            points: points
                .map(|(index, bin)| bin.point(Nanos(self.step.0.saturating_mul(index)), cached))
                .collect(),
        }
    }

    /// The map of regions, if it was kept.
    pub fn into_heat(self) -> Option<Heat> {
        self.heat.then(|| Heat {
            region_bytes: self.region.0,
            bins: self
                .bins
                .into_iter()
                .map(|bin| Bin {
                    requests: bin.heat,
                    resident: bin.reading.resident,
                })
                .collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(dirty: u64) -> Reading {
        Reading {
            devices: vec![DeviceBin {
                read: 1,
                joules: 0.5,
                ..DeviceBin::default()
            }],
            dirty: Bytes(dirty),
            ..Reading::default()
        }
    }

    #[test]
    fn each_step_of_the_ladder_is_a_factor_that_divides_the_number_of_bins() {
        for pair in LADDER.windows(2) {
            assert!(pair[1].is_multiple_of(pair[0]), "{pair:?}");
            assert!(
                (BINS_MAX as u64).is_multiple_of(pair[1] / pair[0]),
                "{pair:?}"
            );
        }
    }

    #[test]
    fn bins_are_merged_and_lose_nothing() {
        let begun = Instant(7);
        let mut tally = Tally::new(begun, None, true, Bytes::mib(64));
        let mut answers = 0;
        let end = Instant(60 * S);
        while let Some(now) = tally.boundary().filter(|boundary| *boundary < end) {
            tally.arrived(Some(63 << 20), Nanos(5));
            tally.answered(Op::Read, 512, Nanos(answers));
            answers += 1;
            tally.close(now, reading(answers));
        }
        assert_eq!(tally.requests(Op::Read), answers);
        let series = tally.series(true);
        assert!(
            (72..=BINS_MAX).contains(&series.points.len()),
            "{}",
            series.points.len()
        );
        assert_eq!(
            series
                .points
                .iter()
                .map(|point| point.requests)
                .sum::<u64>(),
            answers
        );
        let read: u64 = series
            .points
            .iter()
            .map(|point| point.devices[0].read_bytes)
            .sum();
        assert_eq!(read, answers);
        let joules: f64 = series
            .points
            .iter()
            .map(|point| point.watts * point.seconds)
            .sum();
        assert!((joules - answers as f64 / 2.0).abs() < 1e-6, "{joules}");
        assert_eq!(series.points.last().unwrap().dirty_bytes, answers);
        for (index, point) in series.points.iter().enumerate() {
            assert_eq!(point.seconds, series.interval_ns as f64 / 1e9);
            assert!((point.at_s - index as f64 * point.seconds).abs() < 1e-9);
        }
        let heat = tally.into_heat().unwrap();
        let hot: u32 = heat.bins.iter().map(|bin| bin.requests[63]).sum();
        assert_eq!(u64::from(hot), answers);
    }

    #[test]
    fn a_bin_that_would_end_beyond_all_time_ends_with_it() {
        let half = Nanos(u64::MAX / 2);
        let mut tally = Tally::new(Instant(7), Some(half), false, Bytes::mib(1));
        assert_eq!(tally.boundary(), Some(Instant(7) + half));
        tally.close(Instant(7) + half, reading(1));
        assert_eq!(tally.boundary(), None);
        tally.close(Instant(u64::MAX), reading(2));
        assert_eq!(tally.boundary(), None);
        assert_eq!(tally.series(false).points.len(), 2);
    }

    #[test]
    fn percentiles_are_those_of_a_sorted_list() {
        let mut tally = Tally::new(Instant(0), None, false, Bytes::mib(1));
        let mut rng = env::Rng::from_seed(3);
        let mut all: Vec<u64> = (0..10_000).map(|_| 1_000 + rng.below(50_000_000)).collect();
        for value in &all {
            tally.answered(Op::Write, 4096, Nanos(*value));
        }
        all.sort_unstable();
        let responses = tally.responses();
        assert_eq!(responses.len(), 2);
        for response in &responses {
            let near = |ours: f64, rank: usize| {
                let truth = all[rank - 1] as f64 / 1e3;
                assert!((ours / truth - 1.0).abs() < 0.001, "{ours} for {truth}");
            };
            near(response.p50_us, 5_000);
            near(response.p95_us, 9_500);
            near(response.p99_us, 9_900);
            near(response.p999_us, 9_990);
            near(response.max_us, 10_000);
            let mean = all.iter().sum::<u64>() as f64 / 1e7;
            assert!((response.mean_us - mean).abs() < 1e-6);
            assert!(response.cdf.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1));
            assert_eq!(response.cdf.last().unwrap().1, 1.0);
        }
    }
}
