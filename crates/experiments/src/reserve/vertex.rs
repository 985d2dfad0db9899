//! The paper's SSD as far as the paper describes it: how long does each request take, one at a time or several at once?
//!
//! ```text
//! read:  set up (+ jump, if it does not follow on the last) -> transfer -> the store's copy -> done
//! write: the store's copy -> set up -> media (fast, or slow while garbage is collected) -> done
//! flush: what was written since the last one costs a commit
//! ```
//!
//! Each stage does one thing at a time; requests that are at the device together overlap in different stages. One at
//! a time they add up, which is how the paper sends them.
//!
//! Why not the flash model of `device::model`? It reads as fast from two streams as from one, where the paper lost 8
//! to 10 %. The paper says nothing about channels and dies that could explain it.
//!
//! Source: PROBS table 2, 4.1 (variance of writes, fresh and used), 4.2 (two reads together get 90 to 92 % of one),
//! footnote 1 (a request costs 0.1 ms).
//!
//! Choice: 1 MiB takes 4.096 ms at 256 MB/s, of which 0.1 ms is the footnote's; the rest gives the transfer rate. What
//! the store adds to a read (236 MB/s) is as much as one copy at 3 GB/s takes, so it is counted by bytes. What two
//! streams lose is set up anew whenever a read does not follow on the last one. Writes go on at the rate of a fresh
//! device until garbage is collected, which takes a fifth of all bytes and slows them down so far that mean and
//! deviation are those of table 2; how long it goes on is what makes the deviation over 4 MiB fit. A commit
//! takes two milliseconds on average, whatever is in it, and is as uneven as makes the rest of that deviation.
//!
//! Always true:
//! 1. The same seed and requests give the same times.
//! 2. No stage does two things at once.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use base::{Buf, Bytes, Instant, Nanos, Sector, Span, View};
use device::{Class, Device, Info, Op, Pending, WriteFlags, ready};
use policy::share::{BytesPerSec, Cost, Costs};

/// How the media take writes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Media {
    /// As long as no garbage is collected.
    pub fast: BytesPerSec,
    /// While it is.
    pub slow: BytesPerSec,
    /// Bytes written at once at each rate, on average.
    pub fast_run: Bytes,
    pub slow_run: Bytes,
}

/// Everything that takes time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Times {
    /// Every request.
    pub setup: Nanos,
    /// A read that does not follow on the last one.
    pub jump: Nanos,
    pub transfer: BytesPerSec,
    /// Spread of a read's transfer, in thousandths.
    pub read_spread: u64,
    /// How much longer writes take for each further session that wrote within the last second, in thousandths.
    pub per_writer: u64,
    pub media: Media,
    /// What the store does with each byte besides; `None`: no store.
    pub copy: Option<BytesPerSec>,
    /// A commit, on average.
    pub commit: Nanos,
    /// Everything takes so many percent longer from then to then: a burst of the device's own work.
    pub burst: Option<(Instant, Instant, u64)>,
}

impl Times {
    /// The device 80 % full, with nothing above it.
    pub const DIRECT: Times = Times {
        setup: Nanos::micros(100),
        jump: Nanos::micros(439),
        transfer: BytesPerSec(262_400_000),
        read_spread: 8,
        per_writer: 0,
        media: Media {
            fast: BytesPerSec(228_000_000),
            slow: BytesPerSec(137_500_000),
            fast_run: Bytes::mib(32),
            slow_run: Bytes::mib(8),
        },
        copy: None,
        commit: Nanos::millis(2),
        burst: None,
    };

    /// Under the store.
    pub const STORE: Times = Times {
        copy: Some(BytesPerSec(3_020_000_000)),
        ..Times::DIRECT
    };

    /// Never written before.
    pub fn fresh(self) -> Times {
        Times {
            media: Media {
                fast: BytesPerSec(233_300_000),
                slow: BytesPerSec(169_000_000),
                fast_run: Bytes::mib(72),
                slow_run: Bytes::mib(8),
            },
            ..self
        }
    }

    /// The store checks or makes sums of all bytes at this rate, besides its copy.
    pub fn with_sums(self, rate: BytesPerSec) -> Times {
        let copy = self.copy.map_or(0.0, |copy| 1.0 / copy.0 as f64);
        let both = 1.0 / (copy + 1.0 / rate.0 as f64);
        Times {
            copy: Some(BytesPerSec(both as u64)),
            ..self
        }
    }
}

/// What arrived at each session, piece by piece.
pub(super) type Log = BTreeMap<u64, Vec<(Instant, Bytes)>>;

struct State {
    rng: env::Rng,
    // When each stage is free again.
    setup: Instant,
    transfer: Instant,
    copy: Instant,
    read_end: Sector,
    slow: bool,
    run_left: u64,
    unwritten: bool,
    // When each session wrote last.
    writers: BTreeMap<u64, Instant>,
    log: Log,
    // Of requests with data: how many were answered, and how much later than they should have been, in sum.
    answered: u64,
    late: Nanos,
}

impl State {
    /// How many sessions wrote within the last second, but for one.
    fn further_writers(&mut self, now: Instant, class: Class) -> u64 {
        if let Class::Session(number) = class {
            self.writers.insert(number, now);
        }
        self.writers
            .retain(|_, wrote| now.since(*wrote) <= Nanos::secs(1));
        (self.writers.len() as u64).saturating_sub(1)
    }
}

/// The device: times as given, no contents unless there is something below.
pub(super) struct Vertex {
    times: Times,
    size: Bytes,
    below: Option<Rc<dyn Device>>,
    state: RefCell<State>,
}

fn exponential(rng: &mut env::Rng, mean: f64) -> f64 {
    -mean * (1.0 - rng.unit()).ln()
}

impl Vertex {
    pub fn new(times: Times, size: Bytes, below: Option<Rc<dyn Device>>) -> Rc<Vertex> {
        Rc::new(Vertex {
            times,
            size,
            below,
            state: RefCell::new(State {
                rng: env::rng("vertex"),
                setup: Instant(0),
                transfer: Instant(0),
                copy: Instant(0),
                read_end: Sector(u64::MAX),
                slow: true,
                run_left: 0,
                unwritten: false,
                writers: BTreeMap::new(),
                log: Log::new(),
                answered: 0,
                late: Nanos(0),
            }),
        })
    }

    /// What each session got since the last call, and by how much requests were answered late, on average.
    pub fn take_log(&self) -> (Log, Nanos) {
        let mut state = self.state.borrow_mut();
        let late = Nanos(state.late.0 / state.answered.max(1));
        (state.late, state.answered) = (Nanos(0), 0);
        (std::mem::take(&mut state.log), late)
    }

    /// In a burst everything takes longer.
    fn burst(&self, at: Instant, time: Nanos) -> Nanos {
        match self.times.burst {
            Some((from, to, percent)) if from <= at && at < to => {
                Nanos(time.0 * (100 + percent) / 100)
            }
            _ => time,
        }
    }

    fn copied(&self, state: &mut State, from: Instant, bytes: Bytes) -> Instant {
        let Some(rate) = self.times.copy else {
            return from;
        };
        state.copy = state.copy.max(from) + rate.time_for(bytes);
        state.copy
    }

    /// When a read that comes now is done.
    fn read_done(&self, now: Instant, at: Sector, bytes: Bytes) -> Instant {
        let state = &mut *self.state.borrow_mut();
        let follows = state.read_end == at;
        state.read_end = Span::bytes(at.byte(), bytes.0).end();
        let jump = if follows { Nanos(0) } else { self.times.jump };
        let start = state.setup.max(now);
        state.setup = start + self.burst(start, self.times.setup + jump);
        let start = state.transfer.max(state.setup);
        let time = self.times.transfer.time_for(bytes).0 as f64;
        // Of two draws the sum is a triangle: its deviation is 1/sqrt(6) of its half width.
        let draw = state.rng.unit() + state.rng.unit() - 1.0;
        let spread = self.times.read_spread as f64 / 1000.0 * 6_f64.sqrt();
        let time = Nanos((time * (1.0 + spread * draw)) as u64);
        state.transfer = start + self.burst(start, time);
        let done = state.transfer;
        self.copied(state, done, bytes)
    }

    fn write_done(&self, now: Instant, bytes: Bytes, class: Class) -> Instant {
        let state = &mut *self.state.borrow_mut();
        state.unwritten = true;
        let slower = 1000 + self.times.per_writer * state.further_writers(now, class);
        let copied = self.copied(state, now, bytes);
        let start = state.setup.max(copied);
        state.setup = start + self.burst(start, self.times.setup);
        let start = state.transfer.max(state.setup);
        let media = self.times.media;
        let (mut left, mut time) = (bytes.0, Nanos(0));
        while left > 0 {
            if state.run_left == 0 {
                state.slow = !state.slow;
                let mean = if state.slow {
                    media.slow_run
                } else {
                    media.fast_run
                };
                state.run_left = (exponential(&mut state.rng, mean.0 as f64) as u64).max(4096);
            }
            let part = left.min(state.run_left);
            let rate = if state.slow { media.slow } else { media.fast };
            time += rate.time_for(Bytes(part));
            left -= part;
            state.run_left -= part;
        }
        let time = Nanos(time.0 * slower / 1000);
        state.transfer = start + self.burst(start, time);
        state.transfer
    }

    fn flush_done(&self, now: Instant) -> Instant {
        let state = &mut *self.state.borrow_mut();
        if !std::mem::take(&mut state.unwritten) {
            return now;
        }
        let time = exponential(&mut state.rng, self.times.commit.0 as f64);
        state.transfer = state.transfer.max(now) + Nanos(time as u64);
        state.transfer
    }

    fn arrived(&self, class: Class, bytes: Bytes, due: Instant) {
        let now = env::now();
        let mut state = self.state.borrow_mut();
        state.answered += 1;
        state.late += now.since(due);
        if let Class::Session(number) = class {
            state.log.entry(number).or_default().push((now, bytes));
        }
    }
}

impl Device for Vertex {
    fn info(&self) -> Info {
        Info {
            name: "vertex".to_owned(),
            size: self.size,
            physical_block: Bytes::kib(4),
            max_io: Bytes::mib(32),
            volatile_cache: true,
            discards: false,
            rotational: false,
            read_only: false,
            crash_keeping: false,
        }
    }

    fn read(&self, at: Sector, buf: Buf, class: Class) -> Pending<'_, Buf> {
        let bytes = Bytes(buf.len() as u64);
        if let Err(error) = self.info().check(Op::Read, at, bytes.0) {
            return ready(Err(error));
        }
        let done = self.read_done(env::now(), at, bytes);
        let below = self.below.clone();
        Box::pin(async move {
            let buf = match below {
                Some(device) => device.read(at, buf, class).await?,
                None => buf,
            };
            env::sleep_until(done).await;
            self.arrived(class, bytes, done);
            Ok(buf)
        })
    }

    fn write(&self, at: Sector, data: View, flags: WriteFlags) -> Pending<'_, ()> {
        let bytes = Bytes(data.len() as u64);
        if let Err(error) = self.info().check(Op::Write, at, bytes.0) {
            return ready(Err(error));
        }
        let done = self.write_done(env::now(), bytes, flags.class);
        let below = self.below.clone();
        Box::pin(async move {
            if let Some(device) = below {
                device.write(at, data, flags).await?;
            }
            env::sleep_until(done).await;
            self.arrived(flags.class, bytes, done);
            Ok(())
        })
    }

    fn flush(&self) -> Pending<'_, ()> {
        let done = self.flush_done(env::now());
        let below = self.below.clone();
        Box::pin(async move {
            if let Some(device) = below {
                device.flush().await?;
            }
            env::sleep_until(done).await;
            Ok(())
        })
    }

    fn discard(&self, _span: Span) -> Pending<'_, ()> {
        ready(Ok(()))
    }

    fn write_zeroes(&self, span: Span, flags: WriteFlags) -> Pending<'_, ()> {
        let done = self.write_done(env::now(), Bytes(0), flags.class);
        let below = self.below.clone();
        Box::pin(async move {
            if let Some(device) = below {
                device.write_zeroes(span, flags).await?;
            }
            env::sleep_until(done).await;
            Ok(())
        })
    }
}

/// What the model costs in the terms of the schedulers: each piece is set up anew, as when several are served.
pub(super) fn costs() -> Costs {
    let of = |fixed: Nanos, media: f64| {
        let copy = Times::STORE.copy.map_or(0.0, |copy| 1.0 / copy.0 as f64);
        Cost {
            fixed,
            jump: Nanos(0),
            rate: BytesPerSec((1.0 / (1.0 / media + copy)) as u64),
        }
    };
    let Times {
        setup,
        jump,
        transfer,
        media,
        ..
    } = Times::STORE;
    let (fast, slow) = (media.fast_run.0 as f64, media.slow_run.0 as f64);
    let time = fast / media.fast.0 as f64 + slow / media.slow.0 as f64;
    Costs {
        read: of(setup + jump, transfer.0 as f64),
        write: of(setup, (fast + slow) / time),
    }
}
