//! What is counted of a run: what was taken of the trace, what was late, and what all counters said.
//!
//! ```text
//! take: warm-up? -> | measure -> arrived, answered -> bins | -> outcome
//! ```
//!
//! Always true: what was warm-up is in no figure but its own count.

use std::cell::{Cell, RefCell};

use base::{Bytes, Instant, Nanos};
use trace::Op;

use super::build::Built;
use super::layout::Reason;
use super::measure::{Depth, Snapshot, cache_outcome, device_outcome, per_second};
use super::outcome::{Backlog, Counts, DeviceOutcome, Energy, LeftOut, Outcome, Setup, Speed};
use super::plan::{Replay, RunError, WarmUp, Watch};
use super::tally::{REGIONS, Reading, Tally};

/// See the head of this file.
pub(super) struct Account {
    // Fixed.
    built: Built,
    pub(super) replay: Replay,
    /// Of the volume.
    pub(super) size: Bytes,
    // Per request.
    pub(super) taken: Cell<Taken>,
    pub(super) depth: Depth,
    late: Cell<Late>,
    counted: RefCell<Option<Counted>>,
}

/// What has been taken of the trace.
#[derive(Clone, Copy, Default)]
pub(super) struct Taken {
    /// When the first request that was taken came, in the trace.
    pub(super) first: Option<Nanos>,
    /// When the first measured one did, and the last.
    measured_from: Option<Nanos>,
    measured_to: Nanos,
    requests: u64,
    warm_up_requests: u64,
    left_out: LeftOut,
}

/// Requests sent late, the sum of their nanoseconds, and the most.
#[derive(Clone, Copy, Default)]
struct Late {
    requests: u64,
    sum: u128,
    most: Nanos,
}

/// What is counted from the end of the warm-up on.
struct Counted {
    tally: Tally,
    base: Snapshot,
    /// As of the last boundary.
    last: Snapshot,
}

impl Account {
    pub(super) fn new(built: Built, replay: Replay) -> Account {
        Account {
            size: built.volume.info().size,
            built,
            replay,
            taken: Cell::default(),
            depth: Depth::default(),
            late: Cell::default(),
            counted: RefCell::new(None),
        }
    }

    fn update_taken(&self, change: impl FnOnce(&mut Taken)) {
        let mut taken = self.taken.get();
        change(&mut taken);
        self.taken.set(taken);
    }

    /// A request is not replayed.
    pub(super) fn left_out(&self, reason: Reason) {
        self.update_taken(|taken| match reason {
            Reason::Beyond => taken.left_out.beyond += 1,
            Reason::OtherDevice => taken.left_out.other_devices += 1,
            Reason::NoBytes => taken.left_out.no_bytes += 1,
        });
    }

    /// When the first request that was taken came; this one at `at` if none was.
    pub(super) fn first(&self, at: Nanos) -> Nanos {
        let first = self.taken.get().first.unwrap_or(at);
        self.update_taken(|taken| taken.first = Some(first));
        first
    }

    /// Takes a request, which is due so long after the run began; is it measured?
    pub(super) fn take(&self, at: Nanos, due: Nanos) -> bool {
        let warm = match self.replay.warm_up {
            WarmUp::None => false,
            WarmUp::Requests(count) => self.taken.get().requests < count,
            WarmUp::For(span) => due < span,
        };
        self.update_taken(|taken| {
            taken.requests += 1;
            if warm {
                taken.warm_up_requests += 1;
            } else {
                taken.measured_from.get_or_insert(at);
                taken.measured_to = at;
            }
        });
        !warm
    }

    /// Begins to count everything, unless it has begun; did it?
    pub(super) fn measure(&self, now: Instant) -> bool {
        if self.counted.borrow().is_some() {
            return false;
        }
        for device in &self.built.devices {
            device.meter.forget_deepest();
        }
        self.depth.count(now);
        self.depth.deepest.set(self.depth.now.get());
        let tally = Tally::new(now, self.replay.interval, self.replay.heat, self.size);
        *self.counted.borrow_mut() = Some(Counted {
            tally,
            base: self.snapshot(),
            last: self.snapshot(),
        });
        true
    }

    /// A measured request is sent, so much too late.
    pub(super) fn arrived(&self, at: Option<u64>, late: Nanos) {
        if late > Nanos(0) {
            let before = self.late.get();
            self.late.set(Late {
                requests: before.requests + 1,
                sum: before.sum + u128::from(late.0),
                most: before.most.max(late),
            });
        }
        if let Some(counted) = &mut *self.counted.borrow_mut() {
            counted.tally.arrived(at, late);
        }
    }

    /// A measured request was answered.
    pub(super) fn answered(&self, op: Op, bytes: u64, took: Nanos) {
        if let Some(counted) = &mut *self.counted.borrow_mut() {
            counted.tally.answered(op, bytes, took);
        }
    }

    /// When the bin ends that is being counted.
    pub(super) fn boundary(&self) -> Option<Instant> {
        let counted = self.counted.borrow();
        counted.as_ref().and_then(|it| it.tally.boundary())
    }

    fn snapshot(&self) -> Snapshot {
        self.depth.count(env::now());
        Snapshot::of(&self.built, self.depth.time.get())
    }

    pub(super) fn close_bin(&self) {
        let next = self.snapshot();
        let mut counted = self.counted.borrow_mut();
        let Some(Counted { tally, last, .. }) = &mut *counted else {
            return;
        };
        let (before, after) = (last.hits(&self.built), next.hits(&self.built));
        let reading = Reading {
            devices: next.bins_since(last),
            depth_time: next.depth_time - last.depth_time,
            hit_bytes: after.0 - before.0,
            miss_bytes: after.1 - before.1,
            dirty: next.dirty(),
            resident: self.resident(),
        };
        tally.close(env::now(), reading);
        *last = next;
    }

    /// The share of each region on the fast device, where it is asked for.
    fn resident(&self) -> Vec<f32> {
        match (&self.built.top, self.replay.heat) {
            (Some(hybrid), true) => {
                let region = self.size.0.div_ceil(REGIONS as u64).max(1) as f64;
                let share = |bytes: Bytes| (bytes.0 as f64 / region).min(1.0) as f32;
                hybrid.residency(REGIONS).into_iter().map(share).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Everything, once no worker is left.
    pub(super) fn outcome(&self, watch: &dyn Watch) -> Result<Outcome, RunError> {
        if self.counted.borrow().is_none() {
            let taken = self.taken.get();
            return Err(match taken.warm_up_requests {
                0 => RunError::Empty {
                    left_out: taken.left_out.sum(),
                },
                requests => RunError::OnlyWarmUp { requests },
            });
        }
        self.close_bin();
        watch.end();
        let end = self.snapshot();
        let Counted { tally, base, .. } = self.counted.take().expect("looked at above");
        let seconds = env::now().since(tally.begun()).secs_f64();
        let counts = self.counts(&tally);
        let depth_time = end.depth_time - base.depth_time;
        let devices = self.built.devices.iter().enumerate();
        let devices: Vec<DeviceOutcome> = devices
            .map(|(index, device)| device_outcome(device, index, &base, &end, seconds))
            .collect();
        let hybrids = self.built.hybrids.iter();
        let caches = hybrids.zip(&base.statuses).zip(end.statuses);
        let joules = devices.iter().map(|device| device.joules).sum();
        Ok(Outcome {
            setup: self.setup(),
            speed: self.speed(&tally, &counts, seconds, depth_time),
            counts,
            energy: Energy {
                joules,
                watts: per_second(joules, seconds),
                spin_ups: devices.iter().map(|device| device.spin_ups).sum(),
            },
            devices,
            caches: caches
                .map(|(((name, _), before), status)| cache_outcome(name, before, status))
                .collect(),
            series: tally.series(self.built.top.is_some()),
            heat: tally.into_heat(),
            config: String::new(),
        })
    }

    fn setup(&self) -> Setup {
        Setup {
            stack: String::new(),
            volume: String::new(),
            volume_bytes: self.size.0,
            pace: self.replay.pace,
            warm_up: self.replay.warm_up,
            fit: self.replay.layout.fit(),
            limit: self.replay.limit,
            seed: self.replay.seed,
            trace_hash: String::new(),
        }
    }

    fn counts(&self, tally: &Tally) -> Counts {
        let taken = self.taken.get();
        let requests = [Op::Read, Op::Write, Op::Discard, Op::Flush].map(|op| tally.requests(op));
        let [reads, writes, discards, flushes] = requests;
        Counts {
            requests: requests.iter().sum(),
            reads,
            writes,
            discards,
            flushes,
            read_bytes: tally.bytes(Op::Read),
            written_bytes: tally.bytes(Op::Write),
            discarded_bytes: tally.bytes(Op::Discard),
            warm_up_requests: taken.warm_up_requests,
            left_out: taken.left_out,
        }
    }

    fn speed(&self, tally: &Tally, counts: &Counts, seconds: f64, depth_time: u128) -> Speed {
        let (taken, late) = (self.taken.get(), self.late.get());
        let from = taken.measured_from.unwrap_or_default();
        let moved = counts.read_bytes + counts.written_bytes;
        Speed {
            seconds,
            trace_seconds: taken.measured_to.saturating_sub(from).secs_f64(),
            iops: per_second(counts.requests as f64, seconds),
            bytes_per_second: per_second(moved as f64, seconds),
            responses: tally.responses(),
            queue_depth_mean: per_second(depth_time as f64 / 1e9, seconds),
            queue_depth_max: self.depth.deepest.get(),
            backlog: Backlog {
                under_way_max: self.replay.under_way_max as u64,
                late: late.requests,
                late_mean_s: late.sum as f64 / 1e9 / late.requests.max(1) as f64,
                late_max_s: late.most.secs_f64(),
            },
        }
    }
}
