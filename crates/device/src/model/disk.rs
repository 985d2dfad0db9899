//! A modelled device: the timing core says when, a data store holds what.
//!
//! ```text
//! request -> core.submit -> slot ---- pump: sleeps until core.next, hands completions out
//!                            |            |
//!                            |   virtual time: the store is read or written at the completion
//!                            |   real time:    at once, beside the wait, so that both overlap
//!                            +------------+--> the caller's future
//! ```
//!
//! The pump is a task that lives while requests are under way. What a core does on its own between
//! requests (destaging, collecting garbage, going to standby) is caught up on at the next call, as of when
//! it was due.
//!
//! Always true:
//! 1. A request is complete when its time has come *and* the store has done it.
//! 2. A dropped future takes nothing back: the request runs to its end.
//! 3. Time never goes backwards for the core, even where the device outlives its runtime.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use base::{Buf, Bytes, Instant, Nanos, Sector, Span, View};

use super::error::SpecError;
use super::spec::{Kind, Spec};
use super::store::{Action, Answer, Begun, Data, Store};
use super::timing::{Request, Spent, Timing, Work};
use crate::{Class, Device, DeviceError, Info, Op, Pending, Power, Spindle, WriteFlags, ready};

/// A modelled device. See the module's head.
///
/// # Example
/// ```
/// use base::{Bytes, Sector, View};
/// use device::model::{ModelDisk, Spec, Store};
/// use device::{Device, DeviceExt};
///
/// env::Runtime::simulated(7).block_on(async {
///     let spec = Spec::find("hdd-7200-sata")?;
///     let disk = ModelDisk::new("hdd0", &spec, Some(Bytes::gib(8)), Store::Memory, 7)?;
///     disk.write_at(Sector(8), View::copy_of(&[7; 4096])).await.unwrap();
///     disk.flush().await.unwrap();
///     assert_eq!(disk.read_at(Sector(8), Bytes(4096)).await.unwrap()[..], [7; 4096]);
///     assert!(disk.power().unwrap().joules > 0.0);
///     Ok::<(), device::model::SpecError>(())
/// })?;
/// # Ok::<(), device::model::SpecError>(())
/// ```
pub struct ModelDisk {
    inner: Rc<Inner>,
}

#[derive(Default)]
struct Slot {
    action: Option<Action>,
    timed: bool,
    answer: Option<Answer>,
    waker: Option<Waker>,
    /// No caller waits for the answer.
    abandoned: bool,
}

struct Inner {
    info: Info,
    data: Data,
    core: RefCell<Box<dyn Timing>>,

    slots: RefCell<Vec<Slot>>,
    free: RefCell<Vec<usize>>,
    /// Requests whose time has not come.
    waiting: Cell<usize>,
    /// Requests whose slot is taken.
    taken: Cell<usize>,

    pumping: Cell<bool>,
    armed: Cell<Option<Instant>>,
    pump_waker: RefCell<Option<Waker>>,

    /// The core's clock is the runtime's plus this.
    ahead: Cell<Nanos>,
    latest: Cell<Instant>,
}

impl ModelDisk {
    /// A device of the model `spec`, named `name` in errors and metrics; of `size` where it is to differ
    /// from the model's own, with its data in `store`.
    ///
    /// # Errors
    /// [`SpecError::Size`] if the model cannot have that size or the store is too small for it.
    pub fn new(
        name: &str,
        spec: &Spec,
        size: Option<Bytes>,
        store: Store,
        seed: u64,
    ) -> Result<Rc<ModelDisk>, SpecError> {
        let core = spec.timing(size, seed)?;
        let size = size.unwrap_or(spec.size);
        let (data, max_io) = Data::of(store, name, spec, size)?;
        let (volatile_cache, discards, rotational) = match &spec.kind {
            Kind::Hdd(hdd) => (hdd.buffers.write_cache, false, true),
            Kind::Ssd(ssd) => (!ssd.buffer.power_loss_protection, true, false),
            Kind::Constant(_) => (false, false, false),
        };
        Ok(Rc::new(ModelDisk {
            inner: Rc::new(Inner {
                info: Info {
                    name: name.to_owned(),
                    size,
                    physical_block: spec.physical_block,
                    max_io,
                    volatile_cache,
                    discards,
                    rotational,
                    read_only: false,
                    crash_keeping: false,
                },
                data,
                core: RefCell::new(core),
                slots: RefCell::default(),
                free: RefCell::default(),
                waiting: Cell::new(0),
                taken: Cell::new(0),
                pumping: Cell::new(false),
                armed: Cell::new(None),
                pump_waker: RefCell::default(),
                ahead: Cell::new(Nanos(0)),
                latest: Cell::new(Instant(0)),
            }),
        }))
    }

    /// Time and watts of every power state so far.
    pub fn spent(&self) -> Vec<Spent> {
        let now = self.inner.clock();
        self.inner.core.borrow_mut().meter(now).spent()
    }

    /// What the flash translation layer has written and moved, where the model has one.
    pub fn flash_work(&self) -> Option<Work> {
        self.inner.core.borrow().work()
    }

    /// Puts a flash model into the state its steady figures are measured from: every page written once.
    /// Takes no time and changes no data.
    pub fn fill(&self) {
        self.inner.core.borrow_mut().fill();
    }

    /// Sends a request on its way.
    fn send<'a>(&self, op: Op, span: Span, fua: bool, action: Action) -> Ticket<'a> {
        let inner = &self.inner;
        let index = {
            let mut slots = inner.slots.borrow_mut();
            let free = inner.free.borrow_mut().pop();
            let index = free.unwrap_or_else(|| {
                slots.push(Slot::default());
                slots.len() - 1
            });
            slots[index] = Slot {
                action: Some(action),
                ..Slot::default()
            };
            index
        };
        inner.waiting.set(inner.waiting.get() + 1);
        inner.taken.set(inner.taken.get() + 1);
        let now = inner.clock();
        let request = Request {
            id: index as u64,
            op,
            span,
            fua,
        };
        inner.core.borrow_mut().submit(now, request);
        if !env::is_simulated() {
            inner.start(index);
        }
        inner.hand_out();
        inner.see_to_pump();
        Ticket {
            inner: Rc::clone(inner),
            index: Some(index),
            lifetime: std::marker::PhantomData,
        }
    }

    fn plain<'a>(&'a self, op: Op, span: Span, fua: bool, action: Action) -> Pending<'a, ()> {
        let ticket = self.send(op, span, fua, action);
        Box::pin(async move { ticket.await.map(|_| ()) })
    }
}

impl Inner {
    /// The core's time: the runtime's, but never backwards (a new runtime begins at zero again).
    fn clock(&self) -> Instant {
        let mut now = env::now() + self.ahead.get();
        let latest = self.latest.get();
        if now < latest {
            self.ahead.set(self.ahead.get() + latest.since(now));
            now = latest;
        }
        self.latest.set(now);
        now
    }

    /// Has the store do what the request in `index` asks, if it has not begun.
    fn start(self: &Rc<Inner>, index: usize) {
        let action = self.slots.borrow_mut()[index].action.take();
        let Some(action) = action else { return };
        match self.data.begin(action) {
            Begun::Done(answer) => self.answer(index, answer),
            Begun::Waits(doing) => {
                let inner = Rc::clone(self);
                drop(env::spawn(async move {
                    let answer = doing.await;
                    inner.answer(index, answer);
                }));
            }
        }
    }

    fn answer(&self, index: usize, answer: Answer) {
        self.slots.borrow_mut()[index].answer = Some(answer);
        self.settle(index);
    }

    /// Wakes the task that waits for `index` if it is complete; frees the slot if none does.
    fn settle(&self, index: usize) {
        let waker = {
            let mut slots = self.slots.borrow_mut();
            let slot = &mut slots[index];
            if !slot.timed || slot.answer.is_none() {
                return;
            }
            if !slot.abandoned {
                slot.waker.take()
            } else {
                slot.answer = None;
                drop(slots);
                self.release(index);
                None
            }
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn release(&self, index: usize) {
        self.free.borrow_mut().push(index);
        self.taken.set(self.taken.get() - 1);
    }

    /// Hands out what the core has completed.
    fn hand_out(self: &Rc<Inner>) {
        loop {
            let done = self.core.borrow_mut().take_done();
            let Some(done) = done else { return };
            let index = done.id as usize;
            self.waiting.set(self.waiting.get() - 1);
            self.slots.borrow_mut()[index].timed = true;
            self.start(index);
            self.settle(index);
        }
    }

    /// Starts the pump where none runs, or wakes it where it sleeps too long.
    fn see_to_pump(self: &Rc<Inner>) {
        if self.waiting.get() == 0 {
            return;
        }
        if !self.pumping.get() {
            self.pumping.set(true);
            self.armed.set(None);
            drop(env::spawn(Pump {
                inner: Rc::clone(self),
                sleep: None,
            }));
            return;
        }
        let next = self.core.borrow().next();
        let early = match (next, self.armed.get()) {
            (Some(next), Some(armed)) => next < armed,
            (Some(_), None) => true,
            (None, _) => false,
        };
        if early && let Some(waker) = self.pump_waker.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }
}

/// Drives the core while requests are under way.
struct Pump {
    inner: Rc<Inner>,
    sleep: Option<env::Sleep>,
}

impl Future for Pump {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let inner = Rc::clone(&self.inner);
        loop {
            let now = inner.clock();
            inner.core.borrow_mut().advance(now);
            inner.hand_out();
            if inner.waiting.get() == 0 {
                return Poll::Ready(());
            }
            let next = inner.core.borrow().next();
            let next = next.expect("a core with requests under way has something to do next");
            if next <= now {
                continue;
            }
            let armed = inner.armed.get().filter(|&armed| armed > now);
            if armed.is_none_or(|armed| next < armed) {
                inner.armed.set(Some(next));
                let mut sleep = env::sleep_until(next - inner.ahead.get());
                if Pin::new(&mut sleep).poll(cx).is_ready() {
                    continue;
                }
                self.sleep = Some(sleep);
            }
            *inner.pump_waker.borrow_mut() = Some(cx.waker().clone());
            return Poll::Pending;
        }
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        self.inner.pumping.set(false);
        self.inner.armed.set(None);
        *self.inner.pump_waker.borrow_mut() = None;
    }
}

/// The caller's end of a request.
struct Ticket<'a> {
    inner: Rc<Inner>,
    index: Option<usize>,
    lifetime: std::marker::PhantomData<&'a ()>,
}

impl Future for Ticket<'_> {
    type Output = Answer;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        let index = self.index.expect("a ticket is used once");
        {
            let mut slots = self.inner.slots.borrow_mut();
            let slot = &mut slots[index];
            if !slot.timed || slot.answer.is_none() {
                slot.waker = Some(cx.waker().clone());
                return Poll::Pending;
            }
        }
        let answer = self.inner.slots.borrow_mut()[index].answer.take();
        self.index = None;
        self.inner.release(index);
        Poll::Ready(answer.expect("looked at above"))
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if let Some(index) = self.index.take() {
            let mut slots = self.inner.slots.borrow_mut();
            slots[index].abandoned = true;
            slots[index].waker = None;
            drop(slots);
            self.inner.settle(index);
        }
    }
}

impl Device for ModelDisk {
    fn info(&self) -> Info {
        self.inner.info.clone()
    }

    fn read(&self, at: Sector, buf: Buf, class: Class) -> Pending<'_, Buf> {
        let len = buf.len() as u64;
        if let Err(refusal) = self.inner.info.check(Op::Read, at, len) {
            return ready(Err(refusal));
        }
        if len == 0 {
            return ready(Ok(buf));
        }
        let span = Span::new(at, Bytes(len));
        let ticket = self.send(Op::Read, span, false, Action::Read(at, buf, class));
        Box::pin(async move {
            let buf = ticket.await?;
            Ok(buf.expect("a read answers with its buffer"))
        })
    }

    fn write(&self, at: Sector, data: View, flags: WriteFlags) -> Pending<'_, ()> {
        let len = data.len() as u64;
        if let Err(refusal) = self.inner.info.check(Op::Write, at, len) {
            return ready(Err(refusal));
        }
        if len == 0 {
            return ready(Ok(()));
        }
        let span = Span::new(at, Bytes(len));
        self.plain(Op::Write, span, flags.fua, Action::Write(at, data, flags))
    }

    fn flush(&self) -> Pending<'_, ()> {
        self.plain(Op::Flush, Span::default(), false, Action::Flush)
    }

    fn discard(&self, span: Span) -> Pending<'_, ()> {
        if let Err(refusal) = self.inner.info.check(Op::Discard, span.start, span.len.0) {
            return ready(Err(refusal));
        }
        if span.len.0 == 0 {
            return ready(Ok(()));
        }
        let action = match self.inner.info.discards {
            true => Action::Discard(span),
            false => Action::Nothing,
        };
        self.plain(Op::Discard, span, false, action)
    }

    fn write_zeroes(&self, span: Span, flags: WriteFlags) -> Pending<'_, ()> {
        let checked = self
            .inner
            .info
            .check(Op::WriteZeroes, span.start, span.len.0);
        if let Err(refusal) = checked {
            return ready(Err(refusal));
        }
        if span.len.0 == 0 {
            return ready(Ok(()));
        }
        self.plain(Op::WriteZeroes, span, flags.fua, Action::Zero(span, flags))
    }

    fn allocation(&self, span: Span) -> Pending<'_, Vec<(u64, bool)>> {
        match &self.inner.data {
            Data::Memory(memory) => memory.allocation(span),
            Data::Device(device) => device.allocation(span),
            Data::None => ready(Ok(vec![(span.len.0, false)])),
        }
    }

    fn power(&self) -> Option<Power> {
        let now = self.inner.clock();
        let mut core = self.inner.core.borrow_mut();
        let meter = core.meter(now);
        Some(Power {
            joules: meter.joules(),
            over: meter.spent().iter().map(|spent| spent.time).sum(),
            spin_ups: meter.spin_ups(),
            standby: meter.is_down(now),
        })
    }

    fn prepare_sleep(&self) -> Pending<'_, ()> {
        let now = self.inner.clock();
        let sleeps = self.inner.core.borrow_mut().meter(now).sleeps();
        let why = "its model names no standby (power.standby_watts); take a model of a disk";
        ready(sleeps.then_some(()).ok_or_else(|| DeviceError::NoSleep {
            device: self.info().name,
            why: why.to_owned(),
        }))
    }

    fn spindle(&self) -> Option<Spindle> {
        let now = self.inner.clock();
        Some(self.inner.core.borrow_mut().meter(now).spindle(now))
    }

    fn standby(&self) -> bool {
        let now = self.inner.clock();
        self.inner.core.borrow_mut().standby(now)
    }

    fn in_flight(&self) -> usize {
        self.inner.taken.get()
    }
}
