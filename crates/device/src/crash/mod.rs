//! A device that can lose power: what was flushed stays, what was not may stay or go, sector by sector.
//!
//! ```text
//! write -> in flight -> completed, unflushed (visible, volatile) --flush--> durable
//!              |               |                                               |
//!   power cut: any part     any part                                        all of it
//!   death of the process: any part   all of it, still volatile              all of it
//! ```
//!
//! Completed but unflushed operations are kept as a log in the order they completed. A flush moves the
//! head of the log to the durable contents; a restart replays what is left onto them, leaving out what
//! the [`Survival`] drops. Contents are shared page by page between devices before and after a cut, so
//! a crash costs what was written since the last flush, not the size of the device.
//!
//! Several devices on one [`PowerSupply`] count their operations together and stop at the same instant.
//!
//! Always true, unless a planted bug is switched on:
//! 1. After a restart each sector holds its last durable contents or those of a later operation,
//!    completed or in flight, never a third thing.
//! 2. A write with FUA, and every write that completed before a completed flush began, survives.
//! 3. Of two surviving operations on a sector the one that completed later shows.
//! 4. What a restart after a power cut shows stays until the next write, over further crashes too. What the death
//!    of a process leaves visible may go with the next power cut, unless it was flushed since.
//! 5. A sector reads as an error only if an operation on it was unflushed at a power cut, and only until the next
//!    operation on it completes.

mod state;
mod supply;
mod survival;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::{Buf, Bytes, Nanos, PAGE, SECTOR, Sector, Span, View};
use env::Rng;

pub use self::supply::PowerSupply;
pub use self::survival::Survival;

use self::state::{Change, State};
use self::survival::{landed, replay};
use crate::memory::{Chunks, Waiting};
use crate::{Class, Device, DeviceError, Info, Op, Pending, WriteFlags, ready};

/// What a device answers once its power is off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AfterCut {
    /// [`DeviceError::Gone`], at once.
    #[default]
    Gone,
    /// Nothing, ever: the caller is dead as well.
    Silence,
}

/// What a discarded sector reads as until it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Discarded {
    /// Zeroes.
    #[default]
    Zeroes,
    /// What was there before.
    Unchanged,
    /// One of the two, drawn for each discard.
    Either,
}

/// What a test may change.
#[derive(Clone, Copy, Default)]
struct Settings {
    /// The least and the most an operation takes.
    delay: (Nanos, Nanos),
    survival: Survival,
    /// How likely an operation that a power cut hits leaves unreadable sectors.
    unreadable: f64,
    after_cut: AfterCut,
    discarded: Discarded,
    flush_lies: bool,
    fua_lies: bool,
}

impl Settings {
    /// Is a write with these flags durable at its completion?
    fn keeps(&self, flags: WriteFlags) -> bool {
        flags.fua && !self.fua_lies
    }
}

/// A device in memory with a volatile write cache that can lose power. See the module's head.
pub struct Crash {
    // Fixed at open.
    info: Info,
    supply: Rc<PowerSupply>,
    settings: Cell<Settings>,
    // Per request.
    waiting: Cell<usize>,
    state: RefCell<State>,
}

impl Crash {
    /// A device of `size` bytes (rounded down to whole sectors) that reads as zeroes, on a power supply
    /// of its own. `rng` draws delays.
    pub fn new(name: impl Into<String>, size: Bytes, rng: Rng) -> Rc<Crash> {
        Crash::on(&PowerSupply::new(), name, size, rng)
    }

    /// As [`Crash::new`], on a power supply that other devices may share.
    pub fn on(
        supply: &Rc<PowerSupply>,
        name: impl Into<String>,
        size: Bytes,
        rng: Rng,
    ) -> Rc<Crash> {
        let info = Info {
            name: name.into(),
            size: size - Bytes(size % SECTOR),
            physical_block: Bytes(SECTOR),
            max_io: Bytes::mib(32),
            volatile_cache: true,
            discards: true,
            rotational: false,
            read_only: false,
            crash_keeping: true,
        };
        let contents = Chunks::new(Bytes(PAGE as u64));
        Rc::new(Crash::with(info, supply, State::new(contents, rng)))
    }

    fn with(info: Info, supply: &Rc<PowerSupply>, state: State) -> Crash {
        Crash {
            info,
            supply: Rc::clone(supply),
            settings: Cell::default(),
            waiting: Cell::default(),
            state: RefCell::new(state),
        }
    }

    fn change_settings(&self, change: impl FnOnce(&mut Settings)) {
        let mut settings = self.settings.get();
        change(&mut settings);
        self.settings.set(settings);
    }

    /// From now on each operation takes a time drawn from `least..=most`; zero and zero: none.
    pub fn set_delay(&self, least: Nanos, most: Nanos) {
        assert!(least <= most, "the least delay is above the most");
        self.change_settings(|it| it.delay = (least, most));
    }

    /// Which unflushed operations the next cut leaves behind.
    pub fn set_survival(&self, survival: Survival) {
        self.change_settings(|it| it.survival = survival);
    }

    /// Each operation that is unflushed at a power cut leaves some sectors that read as errors with this
    /// probability: their old contents are gone, the new ones are not there. At first 0.
    pub fn set_unreadable(&self, likely: f64) {
        self.change_settings(|it| it.unreadable = likely);
    }

    /// What to answer once the power is off.
    pub fn set_after_cut(&self, after_cut: AfterCut) {
        self.change_settings(|it| it.after_cut = after_cut);
    }

    /// What discarded sectors read as.
    pub fn set_discarded(&self, discarded: Discarded) {
        self.change_settings(|it| it.discarded = discarded);
    }

    /// A planted bug: a flush answers without making anything durable.
    pub fn lie_about_flush(&self, lie: bool) {
        self.change_settings(|it| it.flush_lies = lie);
    }

    /// A planted bug: a write with FUA is as volatile as any other.
    pub fn lie_about_fua(&self, lie: bool) {
        self.change_settings(|it| it.fua_lies = lie);
    }

    /// The power supply, to share with other devices.
    pub fn supply(&self) -> &Rc<PowerSupply> {
        &self.supply
    }

    /// [`PowerSupply::steps`] of this device's supply.
    pub fn steps(&self) -> u64 {
        self.supply.steps()
    }

    /// [`PowerSupply::cut_at`] of this device's supply.
    pub fn cut_at(&self, step: u64) {
        self.supply.cut_at(step);
    }

    /// [`PowerSupply::cut_now`] of this device's supply.
    pub fn cut_now(&self) {
        self.supply.cut_now();
    }

    /// Completed operations that a power cut could undo.
    pub fn unflushed(&self) -> usize {
        let state = self.state.borrow();
        state.log.iter().filter(|change| !change.durable).count()
    }

    /// Sectors that read as errors now, in order.
    pub fn unreadable(&self) -> Vec<Sector> {
        let state = self.state.borrow();
        state.unreadable.iter().copied().map(Sector).collect()
    }

    /// What a read of `span` would see now, past queues and power cuts.
    ///
    /// # Panics
    /// If `span` is not within the device.
    pub fn contents(&self, span: Span) -> Vec<u8> {
        self.expect_within(span.start, span.len.0);
        let mut bytes = vec![0; span.len.usize()];
        let state = self.state.borrow();
        state.visible.read(span.start.byte(), &mut bytes);
        bytes
    }

    /// Puts `bytes` at `at`, durable at once, past queues. For contents from before the test.
    ///
    /// # Panics
    /// If they do not fit or are not whole sectors, or if something on the device is unflushed.
    pub fn load(&self, at: Sector, bytes: &[u8]) {
        self.expect_within(at, bytes.len() as u64);
        let state = &mut *self.state.borrow_mut();
        assert!(
            state.log.is_empty() && state.in_flight.is_empty(),
            "load before the first write, or after a flush"
        );
        state.durable.write(at.byte(), bytes);
        state.visible.write(at.byte(), bytes);
    }

    /// The device once power is back, on a supply of its own: durable contents and what of the rest the
    /// [`Survival`] of this device leaves, drawn from `rng`. Settings carry over. Cuts the power if it
    /// is still on. May be called again, for another draw from the same crash.
    pub fn restart(&self, rng: Rng) -> Rc<Crash> {
        self.restart_on(&PowerSupply::new(), rng)
    }

    /// As [`Crash::restart`], on a supply that other devices may share.
    pub fn restart_on(&self, supply: &Rc<PowerSupply>, mut rng: Rng) -> Rc<Crash> {
        if self.supply.is_on() {
            self.supply.cut_now();
        }
        let mut contents = self.state.borrow().durable.clone();
        let Settings {
            survival,
            unreadable: spoiled,
            ..
        } = self.settings.get();
        let unreadable = replay(
            &self.state.borrow(),
            survival,
            spoiled,
            &mut contents,
            &mut rng,
        );
        let mut state = State::new(contents, rng);
        state.unreadable = unreadable;
        self.next_life(supply, state)
    }

    /// The device as the next process finds it after this one was killed while the power stayed on: what
    /// completed is there, and as volatile as before; what was in flight has landed whole, in part or not at
    /// all, volatile too. On a supply that other devices may share. Settings carry over; this device is off.
    pub fn restart_process_on(&self, supply: &Rc<PowerSupply>, mut rng: Rng) -> Rc<Crash> {
        if self.supply.is_on() {
            self.supply.cut_now();
        }
        let before = self.state.borrow();
        let landed = landed(&before, &mut rng);
        let mut state = State::new(before.durable.clone(), rng);
        state.visible = before.visible.clone();
        state.log = before.log.clone();
        state.unreadable = before.unreadable.clone();
        drop(before);
        for change in landed {
            state.complete(change);
        }
        self.next_life(supply, state)
    }

    /// A device with this one's settings.
    fn next_life(&self, supply: &Rc<PowerSupply>, state: State) -> Rc<Crash> {
        let after = Crash::with(self.info.clone(), supply, state);
        after.settings.set(self.settings.get());
        Rc::new(after)
    }

    fn expect_within(&self, at: Sector, len: u64) {
        if let Err(refusal) = self.info.check(Op::Read, at, len) {
            panic!("{refusal}");
        }
    }

    /// How long the operation that begins now takes.
    fn draw_delay(&self) -> Nanos {
        let (least, most) = self.settings.get().delay;
        if most == Nanos(0) {
            return Nanos(0);
        }
        let span = most.0 - least.0 + 1;
        Nanos(least.0 + self.state.borrow_mut().rng.below(span))
    }

    /// The answer of an operation the power cut overtook.
    fn overtaken<'a, T: 'a>(&self, op: Op) -> Pending<'a, T> {
        match self.settings.get().after_cut {
            AfterCut::Gone => ready(Err(DeviceError::Gone {
                device: self.info.name.clone(),
                op,
                why: "its power was cut; restart it".to_owned(),
            })),
            AfterCut::Silence => Box::pin(std::future::pending()),
        }
    }

    /// Counts the operation, waits its time, and then lets `complete` do it, unless the power goes.
    /// `begin` runs now, between counting and waiting, power or not.
    fn serve<'a, B: 'a, T: 'a>(
        &'a self,
        op: Op,
        span: Span,
        begin: impl FnOnce() -> B,
        complete: impl FnOnce(B) -> T + 'a,
    ) -> Pending<'a, T> {
        if let Err(refusal) = self.info.check(op, span.start, span.len.0) {
            return ready(Err(refusal));
        }
        if !self.supply.is_on() {
            return self.overtaken(op);
        }
        self.supply.step();
        let begun = begin();
        let delay = self.draw_delay();
        if !self.supply.is_on() {
            return self.overtaken(op);
        }
        if delay == Nanos(0) {
            return ready(Ok(complete(begun)));
        }
        let waiting = Waiting::begin(&self.waiting);
        Box::pin(async move {
            // A cut need not wake us: the answer then comes late, when the time is up.
            env::sleep(delay).await;
            drop(waiting);
            if !self.supply.is_on() {
                return self.overtaken(op).await;
            }
            Ok(complete(begun))
        })
    }

    /// Carries a change through: in flight now, visible (and durable with FUA) at completion.
    fn change(&self, op: Op, change: Change) -> Pending<'_, ()> {
        let span = change.span;
        self.serve(
            op,
            span,
            move || InFlight::begin(self, change),
            // Dropping it completes it.
            drop::<InFlight<'_>>,
        )
    }
}

/// A change in flight. It completes when this drops with the power on, also when no task waits for it
/// any more; with the power off it stays in flight, for the restart to find.
struct InFlight<'a> {
    device: &'a Crash,
    key: u64,
}

impl<'a> InFlight<'a> {
    fn begin(device: &'a Crash, change: Change) -> InFlight<'a> {
        let key = device.state.borrow_mut().begin(change);
        InFlight { device, key }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if !self.device.supply.is_on() {
            return;
        }
        self.device.state.borrow_mut().land(self.key);
    }
}

impl Device for Crash {
    fn info(&self) -> Info {
        self.info.clone()
    }

    fn read(&self, at: Sector, mut buf: Buf, _class: Class) -> Pending<'_, Buf> {
        let span = Span::new(at, Bytes(buf.len() as u64));
        let read = self.serve(
            Op::Read,
            span,
            || (),
            move |()| {
                self.state.borrow().visible.read(at.byte(), &mut buf);
                buf
            },
        );
        if self.state.borrow().unreadable.is_empty() {
            return read;
        }
        Box::pin(async move {
            let buf = read.await?;
            match self.state.borrow().unreadable_in(span) {
                None => Ok(buf),
                Some(sector) => Err(DeviceError::Io {
                    device: self.info.name.clone(),
                    op: Op::Read,
                    span,
                    why: format!("sector {sector} was being written when the power went (EIO)"),
                }),
            }
        })
    }

    fn write(&self, at: Sector, data: View, flags: WriteFlags) -> Pending<'_, ()> {
        let change = Change {
            span: Span::new(at, Bytes(data.len() as u64)),
            data: Some(data),
            durable: self.settings.get().keeps(flags),
        };
        self.change(Op::Write, change)
    }

    fn flush(&self) -> Pending<'_, ()> {
        // Only what completed before the flush began is promised; the rest stays volatile.
        self.serve(
            Op::Flush,
            Span::default(),
            || self.state.borrow().log_end(),
            |end| {
                if !self.settings.get().flush_lies {
                    self.state.borrow_mut().settle(end);
                }
            },
        )
    }

    fn discard(&self, span: Span) -> Pending<'_, ()> {
        let zeroes = match self.settings.get().discarded {
            Discarded::Zeroes => true,
            Discarded::Unchanged => false,
            Discarded::Either => self.state.borrow_mut().rng.chance(0.5),
        };
        if zeroes {
            self.change(Op::Discard, Change::zeroes(span, false))
        } else {
            self.serve(Op::Discard, span, || (), |()| ())
        }
    }

    fn write_zeroes(&self, span: Span, flags: WriteFlags) -> Pending<'_, ()> {
        let durable = self.settings.get().keeps(flags);
        self.change(Op::WriteZeroes, Change::zeroes(span, durable))
    }

    fn allocation(&self, span: Span) -> Pending<'_, Vec<(u64, bool)>> {
        self.serve(
            Op::Read,
            span,
            || (),
            move |()| {
                let state = self.state.borrow();
                state.visible.runs(span.start.byte(), span.len.0)
            },
        )
    }

    fn in_flight(&self) -> usize {
        self.waiting.get()
    }
}
