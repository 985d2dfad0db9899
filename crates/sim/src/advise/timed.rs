//! How long would each request take, and what would the devices draw?
//!
//! ```text
//! simulated cache --steps of a request--> pieces --at its time--> timing core of the slow and of the fast model
//!                                          |                              |
//!                      fills, cleaned blocks: behind, no one waits        +--> its last piece done: answered
//! ```
//!
//! The cores are those of the modelled devices, driven open loop at the times of the trace, so queues and
//! seeks are theirs. What is simplified beside the engine: no ledger, no locks, and dirty blocks are
//! cleaned when they leave, in order of address whenever the slow device is idle, not ahead of need.

use std::collections::BTreeSet;

use base::{Bytes, Instant, Nanos, SECTOR, Sector, Span};
use device::Op;
use device::model::{Request, Spec, SpecError, Timing};

use crate::cache::{Step, Watch};

/// A request as the devices see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub at: Instant,
    /// Bytes from the start of the slow device.
    pub offset: u64,
    pub size: u32,
    pub write: bool,
}

/// The unit of the cache.
pub(super) const PAGE: u64 = 4096;
/// The number of pieces no request waits for.
const BEHIND: u64 = u64::MAX;
/// As the engine's high mark of dirty pages: what may wait to be cleaned, in percent of the cache.
const DIRTY_PERCENT: usize = 60;
/// Cleaned blocks are joined to writes of up to this many pages.
const CLEAN_PAGES_MAX: u64 = 64;

struct Disk {
    timing: Box<dyn Timing>,
    under_way: u64,
    requests: u64,
    time: Instant,
}

impl Disk {
    fn new(spec: &Spec, least: Bytes, seed: u64) -> Result<Disk, SpecError> {
        // In whole MiB, which every model takes.
        let least = Bytes(least.0.next_multiple_of(1 << 20));
        let size = (least > spec.size).then_some(least);
        Ok(Disk {
            timing: spec.timing(size, seed)?,
            under_way: 0,
            requests: 0,
            time: Instant(0),
        })
    }

    fn submit(&mut self, now: Instant, id: u64, op: Op, span: Span) {
        self.time = self.time.max(now);
        self.under_way += 1;
        self.requests += 1;
        self.timing.submit(
            now,
            Request {
                id,
                op,
                span,
                fua: false,
            },
        );
    }

    /// Does what is due up to `until` and no more than one moment of it: true while there may be more.
    fn step(&mut self, until: Instant, answered: &mut [Instant]) -> bool {
        let Some(due) = self.timing.next().filter(|due| *due <= until) else {
            return false;
        };
        self.time = self.time.max(due);
        self.timing.advance(due);
        while let Some(done) = self.timing.take_done() {
            self.under_way -= 1;
            if let Some(answer) = answered.get_mut(done.id as usize) {
                *answer = (*answer).max(done.at);
            }
        }
        true
    }
}

fn pages(first: u64, count: u64) -> Span {
    Span::new(Sector(first * PAGE / SECTOR), Bytes(count * PAGE))
}

/// What a replay came to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Times {
    pub mean: Nanos,
    pub read_mean: Nanos,
    pub write_mean: Nanos,
    pub slow_requests: u64,
    pub reads: u64,
    /// Reads that needed the slow device.
    pub missed_reads: u64,
    pub flash_bytes: u64,
    pub joules: f64,
    pub span: Nanos,
}

/// Follows a simulation with devices beneath it.
pub(super) struct Timed<'a> {
    // Fixed.
    /// The requests that are timed.
    lines: &'a [Line],
    /// Of each block its page on the slow device.
    places: &'a [u64],
    // Devices.
    slow: Disk,
    fast: Disk,
    /// Pages that left dirty and wait for an idle moment.
    dirty: BTreeSet<u64>,
    /// Beyond this many requests wait for cleaning.
    dirty_max: usize,
    // This request.
    /// So many more only warm the cache.
    warm_up: u64,
    next: usize,
    /// On each device, the slow one first: what, from which page, how many pages.
    pieces: [Vec<(Op, u64, u64)>; 2],
    fills: Vec<u32>,
    // All.
    answered: Vec<Instant>,
    missed_reads: u64,
    flash_pages: u64,
}

impl<'a> Timed<'a> {
    pub fn new(
        (slow, fast): (&Spec, &Spec),
        (slow_size, fast_size): (Bytes, Bytes),
        lines: &'a [Line],
        places: &'a [u64],
        warm_up: u64,
        seed: u64,
    ) -> Result<Timed<'a>, SpecError> {
        Ok(Timed {
            lines,
            places,
            slow: Disk::new(slow, slow_size, seed)?,
            fast: Disk::new(fast, fast_size, seed)?,
            dirty: BTreeSet::new(),
            dirty_max: (fast_size.0 / PAGE) as usize * DIRTY_PERCENT / 100,
            warm_up,
            next: 0,
            pieces: Default::default(),
            fills: Vec::new(),
            answered: lines.iter().map(|line| line.at).collect(),
            missed_reads: 0,
            flash_pages: 0,
        })
    }

    /// Both devices up to `until`; an idle slow one cleans.
    fn drive(&mut self, until: Instant) {
        loop {
            let more = self.slow.step(until, &mut self.answered);
            if self.slow.under_way == 0 && !self.dirty.is_empty() && self.slow.time < until {
                self.clean();
            } else if !more {
                break;
            }
        }
        while self.fast.step(until, &mut self.answered) {}
    }

    /// Writes the lowest dirty page, and those right behind it.
    fn clean(&mut self) {
        let Some(first) = self.dirty.pop_first() else {
            return;
        };
        let mut count = 1;
        while count < CLEAN_PAGES_MAX && self.dirty.remove(&(first + count)) {
            count += 1;
        }
        let now = self.slow.time;
        self.slow
            .submit(now, BEHIND, Op::Write, pages(first, count));
    }

    /// One more page of the request, joined to the piece before where it follows on.
    fn piece(&mut self, slow: bool, op: Op, page: u64) {
        let pieces = &mut self.pieces[usize::from(!slow)];
        if let Some((last_op, first, count)) = pieces.last_mut()
            && (*last_op, *first + *count) == (op, page)
        {
            *count += 1;
            return;
        }
        pieces.push((op, page, 1));
    }

    /// Lets the devices end their work.
    pub fn finish(mut self) -> Times {
        self.drive(Instant(u64::MAX));
        let last = self.lines.last().map_or(Instant(0), |line| line.at);
        let end = self.slow.time.max(self.fast.time).max(last);
        let joules = self.slow.timing.meter(end).joules() + self.fast.timing.meter(end).joules();
        times(
            self.lines,
            &self.answered,
            Times {
                slow_requests: self.slow.requests,
                missed_reads: self.missed_reads,
                flash_bytes: self.flash_pages * PAGE,
                joules,
                span: end.since(Instant(0)),
                ..Times::default()
            },
        )
    }
}

fn times(lines: &[Line], answered: &[Instant], other: Times) -> Times {
    let mean = |wanted: &dyn Fn(&Line) -> bool| {
        let these = lines.iter().zip(answered).filter(|(line, _)| wanted(line));
        let (count, sum) = these.fold((0u64, 0u64), |(count, sum), (line, answered)| {
            (count + 1, sum + answered.since(line.at).0)
        });
        Nanos(sum.checked_div(count).unwrap_or(0))
    };
    Times {
        reads: lines.iter().filter(|line| !line.write).count() as u64,
        mean: mean(&|_| true),
        read_mean: mean(&|line| !line.write),
        write_mean: mean(&|line| line.write),
        ..other
    }
}

impl Watch for Timed<'_> {
    fn begin(&mut self) {
        self.pieces.iter_mut().for_each(Vec::clear);
        self.fills.clear();
        if self.warm_up == 0 {
            let at = self.lines[self.next].at;
            self.drive(at);
        }
    }

    fn step(&mut self, step: Step) {
        if self.warm_up > 0 {
            return;
        }
        if matches!(step, Step::FastWrite { .. } | Step::Fill { .. }) {
            self.flash_pages += 1;
        }
        match step {
            Step::FastRead { frame } => self.piece(false, Op::Read, u64::from(frame)),
            Step::FastWrite { frame } => self.piece(false, Op::Write, u64::from(frame)),
            Step::SlowRead { block } => self.piece(true, Op::Read, self.places[block as usize]),
            Step::SlowWrite { block } => self.piece(true, Op::Write, self.places[block as usize]),
            Step::Fill { frame } => self.fills.push(frame),
            Step::Clean { block } => {
                let page = self.places[block as usize];
                match self.dirty.len() < self.dirty_max {
                    true => {
                        self.dirty.insert(page);
                    }
                    // No room for more until this one is written: the request waits for it.
                    false => self.piece(true, Op::Write, page),
                }
            }
        }
    }

    fn end(&mut self) {
        if self.warm_up > 0 {
            self.warm_up -= 1;
            return;
        }
        let at = self.lines[self.next].at;
        let id = self.next as u64;
        let reads = |(op, _, _): &(Op, u64, u64)| *op == Op::Read;
        if !self.lines[self.next].write && self.pieces[0].iter().any(reads) {
            self.missed_reads += 1;
        }
        let disks = [&mut self.slow, &mut self.fast];
        for (disk, pieces) in disks.into_iter().zip(&mut self.pieces) {
            for (op, first, count) in pieces.drain(..) {
                disk.submit(at, id, op, pages(first, count));
            }
        }
        // What left now cannot be cleaned before now.
        self.slow.time = self.slow.time.max(at);
        for frame in self.fills.drain(..) {
            self.fast
                .submit(at, BEHIND, Op::Write, pages(u64::from(frame), 1));
        }
        self.next += 1;
    }
}

/// The slow device alone.
pub(super) fn bare(
    slow: &Spec,
    size: Bytes,
    lines: &[Line],
    seed: u64,
) -> Result<Times, SpecError> {
    let mut disk = Disk::new(slow, size, seed)?;
    let mut answered: Vec<Instant> = lines.iter().map(|line| line.at).collect();
    for (id, line) in lines.iter().enumerate() {
        while disk.step(line.at, &mut answered) {}
        let op = if line.write { Op::Write } else { Op::Read };
        let start = line.offset / SECTOR;
        let end = (line.offset + u64::from(line.size)).div_ceil(SECTOR);
        let span = Span::new(Sector(start), Bytes((end - start) * SECTOR));
        disk.submit(line.at, id as u64, op, span);
    }
    while disk.step(Instant(u64::MAX), &mut answered) {}
    let last = lines.last().map_or(Instant(0), |line| line.at);
    let end = disk.time.max(last);
    Ok(times(
        lines,
        &answered,
        Times {
            slow_requests: disk.requests,
            joules: disk.timing.meter(end).joules(),
            span: end.since(Instant(0)),
            ..Times::default()
        },
    ))
}

pub(super) fn micros(span: Nanos) -> f64 {
    span.0 as f64 / 1e3
}

pub(super) fn watts(times: &Times) -> f64 {
    times.joules / times.span.secs_f64().max(1e-9)
}
