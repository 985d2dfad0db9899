//! What was asked, by operation and class: how often, how much, and how long the answers took.
//!
//! ```text
//! begin(op, class, bytes) -> Watch, in flight -> end(good?): counted, with its latency | dropped: abandoned
//! ```
//!
//! Operations and classes are the owner's: it names them once, and counts by their places in its lists.
//!
//! Always true: a request is counted in one row, once, as answered or as abandoned.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::{Instant, Nanos};

use super::histogram::{Histogram, Latency};
use super::{Counters, OpCounters, OpSnapshot, Snapshot};

/// One operation and class.
#[derive(Default)]
struct Row {
    bytes: u64,
    errors: u64,
    abandoned: u64,
    latency: Histogram,
}

/// Counts requests. See the module's head.
///
/// # Example
/// ```
/// use device::meter::RequestCounters;
/// env::Runtime::simulated(1).block_on(async {
///     let requests = RequestCounters::new(&["read", "write"], &["low", "high"]);
///     requests.begin(0, 1, 4096).end(true);
///     let rows = requests.snapshot("vm1").operations;
///     assert_eq!((rows[0].op.as_str(), rows[0].class.as_str()), ("read", "high"));
///     assert_eq!((rows[0].requests, rows[0].bytes), (1, 4096));
/// });
/// ```
pub struct RequestCounters {
    // Fixed.
    ops: &'static [&'static str],
    classes: &'static [&'static str],
    since: Instant,
    // Per request.
    rows: RefCell<Vec<Option<Row>>>,
    in_flight: Cell<u64>,
    depth_time: Cell<u128>,
    busy: Cell<u64>,
    deepest: Cell<u64>,
    /// Up to here `depth_time` and `busy` are counted.
    counted_to: Cell<Instant>,
}

impl RequestCounters {
    /// Counts from now on. To be called inside a runtime, whose clock it reads.
    pub fn new(
        ops: &'static [&'static str],
        classes: &'static [&'static str],
    ) -> Rc<RequestCounters> {
        let now = env::now();
        Rc::new(RequestCounters {
            ops,
            classes,
            since: now,
            rows: RefCell::new((0..ops.len() * classes.len()).map(|_| None).collect()),
            in_flight: Cell::new(0),
            depth_time: Cell::new(0),
            busy: Cell::new(0),
            deepest: Cell::new(0),
            counted_to: Cell::new(now),
        })
    }

    /// A request of `bytes` begins; its operation and class by their places in the lists.
    pub fn begin(self: &Rc<Self>, op: usize, class: usize, bytes: u64) -> Watch {
        debug_assert!(op < self.ops.len() && class < self.classes.len());
        let start = env::now();
        self.count_depth(start);
        let depth = self.in_flight.get() + 1;
        self.in_flight.set(depth);
        self.deepest.set(self.deepest.get().max(depth));
        Watch {
            counters: Rc::clone(self),
            row: op * self.classes.len() + class,
            bytes,
            start,
            end: None,
        }
    }

    /// The figures up to now of what is called `of`.
    pub fn snapshot(&self, of: &str) -> Snapshot {
        let load = self.load();
        let kinds = self.ops.iter();
        let kinds = kinds.flat_map(|op| self.classes.iter().map(move |class| (op, class)));
        let rows = self.rows.borrow();
        let operations = kinds.zip(rows.iter()).filter_map(|((op, class), row)| {
            row.as_ref().map(|row| OpSnapshot {
                op: (*op).to_owned(),
                class: (*class).to_owned(),
                requests: row.latency.count(),
                bytes: row.bytes,
                errors: row.errors,
                abandoned: row.abandoned,
                latency: Latency::from(&row.latency),
            })
        });
        Snapshot {
            device: of.to_owned(),
            over_ns: load.over.0,
            in_flight: self.in_flight.get(),
            depth_time_ns: u64::try_from(load.depth_time).unwrap_or(u64::MAX),
            busy_ns: load.busy.0,
            deepest: load.deepest,
            operations: operations.collect(),
        }
    }

    /// Requests begun and not ended.
    pub fn in_flight(&self) -> u64 {
        self.in_flight.get()
    }

    /// How busy it was up to now; no rows.
    pub(super) fn load(&self) -> Counters {
        let now = env::now();
        self.count_depth(now);
        Counters {
            over: now.since(self.since),
            depth_time: self.depth_time.get(),
            busy: Nanos(self.busy.get()),
            deepest: self.deepest.get(),
            ..Counters::default()
        }
    }

    /// Writes each operation and class down in short, operation by operation.
    pub(super) fn fill(&self, rows: &mut [OpCounters]) {
        for (total, row) in rows.iter_mut().zip(self.rows.borrow().iter()) {
            if let Some(row) = row {
                (total.requests, total.bytes) = (row.latency.count(), row.bytes);
            }
        }
    }

    /// From now on `deepest` counts what is in flight now and later.
    pub(super) fn forget_deepest(&self) {
        self.deepest.set(self.in_flight.get());
    }

    /// The latencies of one operation and class so far.
    pub(super) fn latency(&self, op: usize, class: usize) -> Histogram {
        let rows = self.rows.borrow();
        let row = rows[op * self.classes.len() + class].as_ref();
        row.map_or_else(Histogram::default, |row| row.latency.clone())
    }

    /// As if so many requests were in flight.
    #[cfg(test)]
    pub(super) fn assume_in_flight(&self, requests: u64) {
        self.in_flight.set(requests);
    }

    fn count_depth(&self, now: Instant) {
        let depth = self.in_flight.get();
        if depth > 0 {
            let span = now.since(self.counted_to.get()).0;
            let time = u128::from(depth) * u128::from(span);
            self.depth_time.set(self.depth_time.get() + time);
            self.busy.set(self.busy.get() + span);
        }
        self.counted_to.set(now);
    }
}

/// One request in flight; it is written down when this drops.
pub struct Watch {
    counters: Rc<RequestCounters>,
    row: usize,
    bytes: u64,
    start: Instant,
    /// Was the answer good? None: there is none yet.
    end: Option<bool>,
}

impl Watch {
    /// The request was answered now.
    pub fn end(mut self, good: bool) {
        self.end = Some(good);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let counters = &*self.counters;
        let mut rows = counters.rows.borrow_mut();
        let row = rows[self.row].get_or_insert_default();
        let Some(good) = self.end else {
            // Perhaps the runtime is gone, and its clock with it: the depth falls as of the last count.
            row.abandoned += 1;
            counters.in_flight.set(counters.in_flight.get() - 1);
            return;
        };
        let now = env::now();
        counters.count_depth(now);
        counters.in_flight.set(counters.in_flight.get() - 1);
        if good {
            row.bytes += self.bytes;
        } else {
            row.errors += 1;
        }
        row.latency.record(now.since(self.start));
    }
}
