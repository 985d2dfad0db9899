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

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

use base::{Buf, Bytes, Nanos, PAGE, SECTOR, Sector, Span, View};
use env::Rng;
use env::sync::Event;

use crate::memory::{Chunks, Waiting};
use crate::{Class, Device, DeviceError, Info, Op, Pending, WriteFlags, ready};

/// Which unflushed operations a power cut leaves behind. Operations in flight count as unflushed.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Survival {
    /// Anything: each crash draws how likely survival is, each operation whether it survives whole,
    /// not at all, or torn between two sectors.
    #[default]
    Any,
    /// Every operation survives whole.
    All,
    /// None survives.
    Nothing,
    /// Every other operation survives whole, beginning with the first.
    Alternating,
    /// Each operation survives whole with this probability.
    Operations(f64),
    /// Each sector of each operation survives with this probability.
    Sectors(f64),
}

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

/// The power of one or more [`Crash`] devices, and the count of their operations.
///
/// # Example
/// ```
/// use base::{Bytes, Sector, View};
/// use device::crash::{Crash, PowerSupply};
/// use device::{DeviceError, DeviceExt};
/// let supply = PowerSupply::new();
/// let slow = Crash::on(&supply, "slow", Bytes::mib(16), env::Rng::from_seed(1));
/// let fast = Crash::on(&supply, "fast", Bytes::mib(16), env::Rng::from_seed(2));
/// supply.cut_at(1); // operation 0 completes, operation 1 is under way when the power goes
/// env::Runtime::simulated(1).block_on(async move {
///     let data = View::copy_of(&[1; 512]);
///     assert_eq!(fast.write_at(Sector(0), data.clone()).await, Ok(()));
///     let cut = slow.write_at(Sector(0), data).await;
///     assert!(matches!(cut, Err(DeviceError::Gone { .. })));
///     let fast = fast.restart(env::Rng::from_seed(3));
///     let sector = fast.read_at(Sector(0), Bytes(512)).await.unwrap();
///     assert!(sector[0] <= 1); // it was never flushed
/// });
/// ```
#[derive(Default)]
pub struct PowerSupply {
    steps: Cell<u64>,
    cut_at: Cell<Option<u64>>,
    off: Cell<bool>,
    went_off: Event,
}

impl PowerSupply {
    /// Power that is on.
    pub fn new() -> Rc<PowerSupply> {
        Rc::default()
    }

    /// Operations begun so far on all devices, reads and flushes included.
    pub fn steps(&self) -> u64 {
        self.steps.get()
    }

    /// Cuts the power while operation number `step` (from 0, over all devices) is under way: it does
    /// not complete, but may have happened in part. A step that is past cuts at the next operation.
    pub fn cut_at(&self, step: u64) {
        self.cut_at.set(Some(step));
    }

    /// Cuts the power now.
    pub fn cut_now(&self) {
        self.off.set(true);
        self.went_off.notify_all();
    }

    /// Is the power on?
    pub fn is_on(&self) -> bool {
        !self.off.get()
    }

    /// Waits until the power is off.
    pub async fn wait_for_cut(&self) {
        while self.is_on() {
            self.went_off.wait().await;
        }
    }

    /// Counts an operation of something else that this power feeds, such as a file beside the devices. False if the
    /// power is off, or goes off while the operation is under way: it may have happened then.
    pub fn operate(&self) -> bool {
        if self.is_on() {
            self.step();
        }
        self.is_on()
    }

    /// Counts one operation; the power may go off while it is under way.
    fn step(&self) {
        let step = self.steps.get();
        self.steps.set(step + 1);
        if self.cut_at.get().is_some_and(|cut| cut <= step) {
            self.cut_now();
        }
    }
}

/// One operation that changes contents.
#[derive(Clone)]
struct Change {
    span: Span,
    /// None: zeroes.
    data: Option<View>,
    /// Survives any crash (FUA).
    durable: bool,
}

impl Change {
    fn apply(&self, contents: &mut Chunks) {
        self.apply_part(contents, 0, self.span.len.sectors());
    }

    /// The operation on `sectors` of its sectors from the `first` one on, volatile.
    fn part(&self, first: u64, sectors: u64) -> Change {
        let (from, len) = ((first * SECTOR) as usize, (sectors * SECTOR) as usize);
        Change {
            span: Span::new(Sector(self.span.start.0 + first), Bytes(sectors * SECTOR)),
            data: self.data.as_ref().map(|data| data.slice(from, len)),
            durable: false,
        }
    }

    /// Applies `sectors` sectors from the `first` one of the operation.
    fn apply_part(&self, contents: &mut Chunks, first: u64, sectors: u64) {
        let at = self.span.start.byte() + first * SECTOR;
        let from = (first * SECTOR) as usize;
        let len = sectors * SECTOR;
        match &self.data {
            Some(data) => contents.write(at, &data[from..from + len as usize]),
            None => contents.zero(at, len),
        }
    }
}

struct State {
    /// What survives for certain; unflushed operations are not in it.
    durable: Chunks,
    /// What a read sees.
    visible: Chunks,
    /// Completed since the head was flushed, in order of completion.
    log: VecDeque<Change>,
    /// The number of the first operation in `log`, counted from the start.
    log_start: u64,
    /// Begun and not completed; the key only distinguishes them.
    in_flight: Vec<(u64, Change)>,
    next_key: u64,
    /// Sectors that read as errors until they are written.
    unreadable: BTreeSet<u64>,
    rng: Rng,
}

impl State {
    fn new(contents: Chunks, rng: Rng) -> State {
        State {
            durable: contents.clone(),
            visible: contents,
            log: VecDeque::new(),
            log_start: 0,
            in_flight: Vec::new(),
            next_key: 0,
            unreadable: BTreeSet::new(),
            rng,
        }
    }
}

/// A device in memory with a volatile write cache that can lose power. See the module's head.
pub struct Crash {
    // Fixed at open.
    info: Info,
    supply: Rc<PowerSupply>,
    // Settings a test may change.
    delay: Cell<(Nanos, Nanos)>,
    survival: Cell<Survival>,
    /// How likely an operation that a power cut hits leaves unreadable sectors.
    unreadable: Cell<f64>,
    after_cut: Cell<AfterCut>,
    discarded: Cell<Discarded>,
    flush_lies: Cell<bool>,
    fua_lies: Cell<bool>,
    // Per request.
    waiting: Cell<usize>,
    state: RefCell<State>,
}

/// A volatile cache holds at most this many unflushed operations; the oldest are then written behind.
const CACHE_OPERATIONS_MAX: usize = 1 << 16;

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
        };
        let contents = Chunks::new(Bytes(PAGE as u64));
        Rc::new(Crash::with(info, supply, State::new(contents, rng)))
    }

    fn with(info: Info, supply: &Rc<PowerSupply>, state: State) -> Crash {
        Crash {
            info,
            supply: Rc::clone(supply),
            delay: Cell::default(),
            survival: Cell::default(),
            unreadable: Cell::default(),
            after_cut: Cell::default(),
            discarded: Cell::default(),
            flush_lies: Cell::default(),
            fua_lies: Cell::default(),
            waiting: Cell::default(),
            state: RefCell::new(state),
        }
    }

    /// From now on each operation takes a time drawn from `least..=most`; zero and zero: none.
    pub fn set_delay(&self, least: Nanos, most: Nanos) {
        assert!(least <= most, "the least delay is above the most");
        self.delay.set((least, most));
    }

    /// Which unflushed operations the next cut leaves behind.
    pub fn set_survival(&self, survival: Survival) {
        self.survival.set(survival);
    }

    /// Each operation that is unflushed at a power cut leaves some sectors that read as errors with this
    /// probability: their old contents are gone, the new ones are not there. At first 0.
    pub fn set_unreadable(&self, likely: f64) {
        self.unreadable.set(likely);
    }

    /// What to answer once the power is off.
    pub fn set_after_cut(&self, after_cut: AfterCut) {
        self.after_cut.set(after_cut);
    }

    /// What discarded sectors read as.
    pub fn set_discarded(&self, discarded: Discarded) {
        self.discarded.set(discarded);
    }

    /// A planted bug: a flush answers without making anything durable.
    pub fn lie_about_flush(&self, lie: bool) {
        self.flush_lies.set(lie);
    }

    /// A planted bug: a write with FUA is as volatile as any other.
    pub fn lie_about_fua(&self, lie: bool) {
        self.fua_lies.set(lie);
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
        let unreadable = self.replay(&mut contents, &mut rng);
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
        let mut in_flight: Vec<&Change> =
            before.in_flight.iter().map(|(_, change)| change).collect();
        shuffle(&mut in_flight, &mut rng);
        let mut landed = Vec::new();
        for change in in_flight {
            let sectors = change.span.len.sectors();
            match rng.below(5) {
                0 | 1 => landed.push(change.part(0, sectors)),
                2 => landed.push(change.part(0, rng.below(sectors + 1))),
                _ => {}
            }
        }
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
        after.delay.set(self.delay.get());
        after.survival.set(self.survival.get());
        after.unreadable.set(self.unreadable.get());
        after.after_cut.set(self.after_cut.get());
        after.discarded.set(self.discarded.get());
        after.flush_lies.set(self.flush_lies.get());
        after.fua_lies.set(self.fua_lies.get());
        Rc::new(after)
    }

    /// Applies what survives of the unflushed operations; returns the sectors that cannot be read afterwards.
    fn replay(&self, contents: &mut Chunks, rng: &mut Rng) -> BTreeSet<u64> {
        let state = self.state.borrow();
        let mut unreadable = state.unreadable.clone();
        // Operations in flight have no order among themselves. They go last: one that landed before a
        // completed one of the same sector shows as "did not survive".
        let mut unordered: Vec<&Change> =
            state.in_flight.iter().map(|(_, change)| change).collect();
        shuffle(&mut unordered, rng);
        let likely = match self.survival.get() {
            // Draw the two ends often: most bugs show when almost all or almost nothing survives.
            Survival::Any => [0.0, 0.05, 0.5, 0.95, 1.0][rng.below(5) as usize],
            Survival::Operations(likely) | Survival::Sectors(likely) => likely,
            Survival::All => 1.0,
            Survival::Nothing | Survival::Alternating => 0.0,
        };
        let mut order = 0_u64;
        let completed = state.log.iter().map(|change| (change, change.durable));
        // FUA in flight promises nothing yet.
        let begun = unordered.into_iter().map(|change| (change, false));
        for (change, durable) in completed.chain(begun) {
            if durable {
                change.apply(contents);
                heal(&mut unreadable, change.span);
                continue;
            }
            order += 1;
            if self.unreadable.get() > 0.0 {
                heal(&mut unreadable, change.span);
                if rng.chance(self.unreadable.get()) {
                    spoil(&mut unreadable, change.span, rng);
                }
            }
            match self.survival.get() {
                Survival::All => change.apply(contents),
                Survival::Nothing => {}
                Survival::Alternating if order % 2 == 1 => change.apply(contents),
                Survival::Alternating => {}
                Survival::Operations(_) if rng.chance(likely) => change.apply(contents),
                Survival::Operations(_) => {}
                Survival::Sectors(_) => apply_some_sectors(change, contents, likely, rng),
                Survival::Any if rng.chance(0.2) => tear(change, contents, rng),
                Survival::Any if rng.chance(likely) => change.apply(contents),
                Survival::Any => {}
            }
        }
        unreadable
    }

    fn expect_within(&self, at: Sector, len: u64) {
        if let Err(refusal) = self.info.check(Op::Read, at, len) {
            panic!("{refusal}");
        }
    }

    /// How long the operation that begins now takes.
    fn draw_delay(&self) -> Nanos {
        let (least, most) = self.delay.get();
        if most == Nanos(0) {
            return Nanos(0);
        }
        let span = most.0 - least.0 + 1;
        Nanos(least.0 + self.state.borrow_mut().rng.below(span))
    }

    fn gone(&self, op: Op) -> DeviceError {
        DeviceError::Gone {
            device: self.info.name.clone(),
            op,
            why: "its power was cut; restart it".to_owned(),
        }
    }

    /// The answer of an operation the power cut overtook.
    fn overtaken<'a, T: 'a>(&self, op: Op) -> Pending<'a, T> {
        match self.after_cut.get() {
            AfterCut::Gone => ready(Err(self.gone(op))),
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

    fn zeroes(&self, op: Op, span: Span, durable: bool) -> Pending<'_, ()> {
        let change = Change {
            span,
            data: None,
            durable,
        };
        self.change(op, change)
    }

    /// Can every sector of `span` be read?
    fn readable(&self, span: Span) -> Result<(), DeviceError> {
        let state = self.state.borrow();
        let mut bad = state.unreadable.range(span.start.0..span.end().0);
        match bad.next() {
            None => Ok(()),
            Some(sector) => Err(DeviceError::Io {
                device: self.info.name.clone(),
                op: Op::Read,
                span,
                why: format!("sector {sector} was being written when the power went (EIO)"),
            }),
        }
    }

    fn promises_fua(&self, flags: WriteFlags) -> bool {
        flags.fua && !self.fua_lies.get()
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
        let mut state = device.state.borrow_mut();
        let key = state.next_key;
        state.next_key += 1;
        state.in_flight.push((key, change));
        InFlight { device, key }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if !self.device.supply.is_on() {
            return;
        }
        let mut state = self.device.state.borrow_mut();
        let place = state.in_flight.iter().position(|(key, _)| *key == self.key);
        let place = place.expect("only this guard takes it out");
        let (_, change) = state.in_flight.swap_remove(place);
        state.complete(change);
    }
}

impl State {
    fn complete(&mut self, change: Change) {
        change.apply(&mut self.visible);
        heal(&mut self.unreadable, change.span);
        self.log.push_back(change);
        if self.log.len() > CACHE_OPERATIONS_MAX {
            self.settle(self.log_start + 1);
        }
        // A durable head needs no flush to settle.
        while self.log.front().is_some_and(|change| change.durable) {
            self.settle(self.log_start + 1);
        }
    }

    /// The number the next completed operation will have.
    fn log_end(&self) -> u64 {
        self.log_start + self.log.len() as u64
    }

    /// Makes operations below `end` durable.
    fn settle(&mut self, end: u64) {
        while self.log_start < end
            && let Some(change) = self.log.pop_front()
        {
            self.log_start += 1;
            change.apply(&mut self.durable);
        }
    }
}

/// The sectors of `span` were written: they can be read.
fn heal(unreadable: &mut BTreeSet<u64>, span: Span) {
    if !unreadable.is_empty() {
        unreadable.retain(|sector| !(span.start.0..span.end().0).contains(sector));
    }
}

/// Some neighbouring sectors of `span`, at most a page of them, cannot be read.
fn spoil(unreadable: &mut BTreeSet<u64>, span: Span, rng: &mut Rng) {
    let sectors = span.len.sectors();
    if sectors == 0 {
        return;
    }
    let first = rng.below(sectors);
    let count = 1 + rng.below((sectors - first).min(PAGE as u64 / SECTOR));
    let first = span.start.0 + first;
    unreadable.extend(first..first + count);
}

fn shuffle<T>(items: &mut [T], rng: &mut Rng) {
    for last in (1..items.len()).rev() {
        items.swap(last, rng.below(last as u64 + 1) as usize);
    }
}

fn apply_some_sectors(change: &Change, contents: &mut Chunks, likely: f64, rng: &mut Rng) {
    for sector in 0..change.span.len.sectors() {
        if rng.chance(likely) {
            change.apply_part(contents, sector, 1);
        }
    }
}

/// A head, a tail or scattered sectors of the operation survive.
fn tear(change: &Change, contents: &mut Chunks, rng: &mut Rng) {
    let sectors = change.span.len.sectors();
    let cut = rng.below(sectors + 1);
    match rng.below(3) {
        0 => change.apply_part(contents, 0, cut),
        1 => change.apply_part(contents, cut, sectors - cut),
        _ => apply_some_sectors(change, contents, 0.5, rng),
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
            self.readable(span).map(|()| buf)
        })
    }

    fn write(&self, at: Sector, data: View, flags: WriteFlags) -> Pending<'_, ()> {
        let change = Change {
            span: Span::new(at, Bytes(data.len() as u64)),
            data: Some(data),
            durable: self.promises_fua(flags),
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
                if !self.flush_lies.get() {
                    self.state.borrow_mut().settle(end);
                }
            },
        )
    }

    fn discard(&self, span: Span) -> Pending<'_, ()> {
        let zeroes = match self.discarded.get() {
            Discarded::Zeroes => true,
            Discarded::Unchanged => false,
            Discarded::Either => self.state.borrow_mut().rng.chance(0.5),
        };
        if zeroes {
            self.zeroes(Op::Discard, span, false)
        } else {
            self.serve(Op::Discard, span, || (), |()| ())
        }
    }

    fn write_zeroes(&self, span: Span, flags: WriteFlags) -> Pending<'_, ()> {
        self.zeroes(Op::WriteZeroes, span, self.promises_fua(flags))
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
