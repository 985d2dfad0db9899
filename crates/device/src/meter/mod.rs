//! A device that counts: requests, bytes and latencies of the device below, by operation and class.
//!
//! ```text
//! request -> begin: in flight + 1 -> the device below -> end: count, bytes, latency, in flight - 1
//!                                                             snapshot -> Snapshot
//! ```
//!
//! [`RequestCounters`] counts by whatever operations and classes its owner names; a [`Meter`] does so before a device.
//!
//! Latency runs from the call to the answer, so it includes time the request waited in the device.
//!
//! Always true:
//! 1. `requests` counts answers, good and bad; `errors` the bad ones among them. `bytes` counts good ones.
//! 2. A request whose caller did not wait for its end is counted as `abandoned` and nowhere else.
//! 3. A quantile is at most 1/16 above the true one, and never above the largest value seen.

mod histogram;
mod requests;

use std::rc::Rc;

use base::{Buf, Nanos, Sector, Span, View};
use serde::Serialize;

pub use self::histogram::{Histogram, Latency};
pub use self::requests::{RequestCounters, Watch};

use crate::{Class, Device, Info, Op, Pending, Power, Spindle, WriteFlags};

/// What operations of a device are called, in the order of [`Op`].
pub const OPS: [&str; 5] = ["read", "write", "flush", "discard", "write zeroes"];
/// What classes are called, in the order of [`Class::KINDS`].
const CLASSES: [&str; 3] = ["foreground", "metadata", "background"];

/// What was asked of a device in one operation and class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OpSnapshot {
    /// The operation, as it reads in errors.
    pub op: String,
    /// The class; flushes and discards count as foreground.
    pub class: String,
    /// Answers, good and bad.
    pub requests: u64,
    /// Bytes of good answers.
    pub bytes: u64,
    /// Bad answers.
    pub errors: u64,
    /// Requests whose caller went away before the answer.
    pub abandoned: u64,
    /// From the call to the answer, good and bad.
    pub latency: Latency,
}

/// Everything a [`Meter`] knows, since it was made.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Snapshot {
    /// The device's name.
    pub device: String,
    /// How long it was watched.
    pub over_ns: u64,
    /// Requests begun and not ended.
    pub in_flight: u64,
    /// The sum over time of requests in flight: divided by `over_ns`, the mean queue depth; two
    /// snapshots give the mean between them. At most `u64::MAX`; [`Counters`] has no such bound.
    pub depth_time_ns: u64,
    /// Time with at least one request in flight.
    pub busy_ns: u64,
    /// The most requests in flight at once.
    pub deepest: u64,
    /// Operations and classes that were asked for, reads first.
    pub operations: Vec<OpSnapshot>,
}

impl Snapshot {
    /// The figures of one operation and class, if it was ever asked for.
    pub fn of(&self, op: Op, class: Class) -> Option<&OpSnapshot> {
        let (op, class) = (op.to_string(), class.to_string());
        self.operations
            .iter()
            .find(|figures| figures.op == op && figures.class == class)
    }

    /// The mean number of requests in flight since the meter was made.
    pub fn mean_depth(&self) -> f64 {
        if self.over_ns == 0 {
            return 0.0;
        }
        self.depth_time_ns as f64 / self.over_ns as f64
    }
}

/// The counters of a [`Meter`] alone: cheap to take often. The difference of two is what happened between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// How long the device was watched.
    pub over: Nanos,
    /// The sum over time of requests in flight, in nanoseconds: more than a [`Nanos`] holds when thousands are in
    /// flight for days.
    pub depth_time: u128,
    /// Time with at least one request in flight.
    pub busy: Nanos,
    /// The most requests in flight at once, since the meter was made or [`Meter::forget_deepest`] was called.
    pub deepest: u64,
    rows: [OpCounters; OPS.len() * CLASSES.len()],
}

/// One operation and class of [`Counters`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpCounters {
    /// Answers, good and bad.
    pub requests: u64,
    /// Bytes of good answers.
    pub bytes: u64,
}

impl Counters {
    /// What was asked in one operation and class.
    pub fn of(&self, op: Op, class: Class) -> OpCounters {
        self.rows[row_of(op, class)]
    }

    /// What was asked in one operation, all classes together.
    pub fn all(&self, op: Op) -> OpCounters {
        Class::KINDS.iter().map(|class| self.of(op, *class)).fold(
            OpCounters::default(),
            |sum, row| OpCounters {
                requests: sum.requests + row.requests,
                bytes: sum.bytes + row.bytes,
            },
        )
    }

    /// What happened since `earlier`; `deepest` is this one's own.
    pub fn since(&self, earlier: &Counters) -> Counters {
        let mut since = *self;
        since.over = self.over - earlier.over;
        since.depth_time = self.depth_time - earlier.depth_time;
        since.busy = self.busy - earlier.busy;
        for (row, before) in since.rows.iter_mut().zip(&earlier.rows) {
            row.requests -= before.requests;
            row.bytes -= before.bytes;
        }
        since
    }
}

/// A device that keeps figures of the one below. See the module's head.
///
/// # Example
/// ```
/// use base::{Bytes, Sector};
/// use device::{Class, DeviceExt, Memory, Meter, Op};
/// env::Runtime::simulated(1).block_on(async {
///     let meter = Meter::new(Memory::new("disk", Bytes::mib(1)));
///     meter.read_at(Sector(0), Bytes(4096)).await.unwrap();
///     let figures = meter.snapshot();
///     let reads = figures.of(Op::Read, Class::Foreground).unwrap();
///     assert_eq!((reads.requests, reads.bytes), (1, 4096));
/// });
/// ```
pub struct Meter {
    inner: Rc<dyn Device>,
    requests: Rc<RequestCounters>,
}

impl Meter {
    /// Watches `inner` from now on. To be called inside a runtime, whose clock it reads.
    pub fn new(inner: Rc<dyn Device>) -> Rc<Meter> {
        Rc::new(Meter {
            inner,
            requests: RequestCounters::new(&OPS, &CLASSES),
        })
    }

    /// The figures up to now.
    pub fn snapshot(&self) -> Snapshot {
        self.requests.snapshot(&self.inner.info().name)
    }

    /// The counters up to now.
    pub fn counters(&self) -> Counters {
        let mut counters = self.requests.load();
        self.requests.fill(&mut counters.rows);
        counters
    }

    /// From now on `deepest` counts what is in flight now and later.
    pub fn forget_deepest(&self) {
        self.requests.forget_deepest();
    }

    /// The latencies of one operation and class so far.
    pub fn latency(&self, op: Op, class: Class) -> Histogram {
        self.requests.latency(op as usize, class.kind())
    }

    /// Watches one request. `work` begins it.
    fn watch<'a, T: 'a>(
        &'a self,
        op: Op,
        class: Class,
        bytes: u64,
        work: impl FnOnce(&'a dyn Device) -> Pending<'a, T>,
    ) -> Pending<'a, T> {
        let watch = self.requests.begin(op as usize, class.kind(), bytes);
        let work = work(&*self.inner);
        Box::pin(async move {
            let answer = work.await;
            watch.end(answer.is_ok());
            answer
        })
    }
}

fn row_of(op: Op, class: Class) -> usize {
    op as usize * CLASSES.len() + class.kind()
}

impl Device for Meter {
    fn info(&self) -> Info {
        self.inner.info()
    }

    fn read(&self, at: Sector, buf: Buf, class: Class) -> Pending<'_, Buf> {
        let bytes = buf.len() as u64;
        self.watch(Op::Read, class, bytes, move |device| {
            device.read(at, buf, class)
        })
    }

    fn read_vectored(&self, at: Sector, bufs: Vec<Buf>, class: Class) -> Pending<'_, Vec<Buf>> {
        let bytes = bufs.iter().map(|buf| buf.len() as u64).sum();
        self.watch(Op::Read, class, bytes, move |device| {
            device.read_vectored(at, bufs, class)
        })
    }

    fn write(&self, at: Sector, data: View, flags: WriteFlags) -> Pending<'_, ()> {
        let bytes = data.len() as u64;
        self.watch(Op::Write, flags.class, bytes, move |device| {
            device.write(at, data, flags)
        })
    }

    fn flush(&self) -> Pending<'_, ()> {
        self.watch(Op::Flush, Class::Foreground, 0, |device| device.flush())
    }

    fn discard(&self, span: Span) -> Pending<'_, ()> {
        self.watch(Op::Discard, Class::Foreground, span.len.0, move |device| {
            device.discard(span)
        })
    }

    fn write_zeroes(&self, span: Span, flags: WriteFlags) -> Pending<'_, ()> {
        self.watch(Op::WriteZeroes, flags.class, span.len.0, move |device| {
            device.write_zeroes(span, flags)
        })
    }

    fn allocation(&self, span: Span) -> Pending<'_, Vec<(u64, bool)>> {
        self.inner.allocation(span)
    }

    fn power(&self) -> Option<Power> {
        self.inner.power()
    }

    fn prepare_sleep(&self) -> Pending<'_, ()> {
        self.inner.prepare_sleep()
    }

    fn spindle(&self) -> Option<Spindle> {
        self.inner.spindle()
    }

    fn standby(&self) -> bool {
        self.inner.standby()
    }

    fn in_flight(&self) -> usize {
        self.requests.in_flight() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_the_figures_in_short() {
        use crate::{DeviceExt, Memory};
        use base::Bytes;
        env::Runtime::simulated(1).block_on(async {
            let memory = Memory::new("disk", Bytes::mib(1));
            memory.set_latency(Nanos::micros(10));
            let meter = Meter::new(memory);
            meter.read_at(Sector(0), Bytes(4096)).await.unwrap();
            let before = meter.counters();
            let reads = (0..3).map(|n| meter.read_at(Sector(8 * n), Bytes(4096)));
            for answer in env::sync::join_all(reads).await {
                answer.unwrap();
            }
            let since = meter.counters().since(&before);
            let reads = since.all(Op::Read);
            assert_eq!((reads.requests, reads.bytes), (3, 3 * 4096));
            assert_eq!(since.all(Op::Write), OpCounters::default());
            assert_eq!(since.deepest, 3);
            assert_eq!(since.depth_time, 30_000);
            assert_eq!(
                (since.busy, since.over),
                (Nanos::micros(10), Nanos::micros(10))
            );
            assert_eq!(meter.snapshot().deepest, 3);
            meter.forget_deepest();
            assert_eq!(meter.counters().deepest, 0);
        });
    }

    #[test]
    fn a_deep_queue_over_days_is_counted_to_the_end() {
        use crate::Memory;
        use base::Bytes;
        env::Runtime::simulated(1).block_on(async {
            let meter = Meter::new(Memory::new("disk", Bytes::mib(1)));
            meter.requests.assume_in_flight(65_536);
            let days = Nanos::secs(10 * 86_400);
            env::sleep(days).await;
            assert_eq!(meter.counters().depth_time, 65_536 * u128::from(days.0));
            assert_eq!(meter.snapshot().depth_time_ns, u64::MAX);
        });
    }

    #[test]
    fn rows_are_in_the_order_of_the_tables() {
        let ops = [Op::Read, Op::Write, Op::Flush, Op::Discard, Op::WriteZeroes];
        for (op_index, op) in ops.into_iter().enumerate() {
            assert_eq!(op.to_string(), OPS[op_index]);
            for (class_index, class) in Class::KINDS.into_iter().enumerate() {
                assert_eq!(class.to_string(), CLASSES[class_index]);
                assert_eq!(row_of(op, class), op_index * CLASSES.len() + class_index);
            }
        }
    }
}
