//! The gate's side: a call becomes a request, and its answer finds the caller.
//!
//! ```text
//! slot:  free --call--> waiting --answer--> answered --caller looks--> free
//!                          \--caller went away--> orphaned --answer--> free
//! owner gone: waiting -> answered with "gone", orphaned -> free
//! ```
//!
//! Always true:
//! 1. Each slot that is not free has a request at the owner, or its answer.
//! 2. A permit is held from before a request is sent until its answer is out of the ring.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

use base::{Buf, Bytes, Parcel, Sector, Span, View};
use env::sync::{Permit, Semaphore};
use env::{Consumer, Producer};

use super::call::{Answer, Call, Handle, Outcome, Request};
use crate::{Class, Device, DeviceError, Info, Op, Pending, WriteFlags};

/// Why calls end once the owner is gone.
const OWNER_GONE: &str = "the thread that has it has ended";

/// The gate's end of a link. It goes to the thread that serves a front.
pub struct GateEnd {
    requests: Producer<Request>,
    answers: Consumer<Answer>,
    depth: usize,
}

/// See the module's head.
enum Slot {
    Free,
    Waiting(Permit, Option<Waker>),
    Orphaned(Permit),
    Answered(Result<Outcome, DeviceError>),
}

#[derive(Default)]
struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Slots {
    fn insert(&mut self, slot: Slot) -> u32 {
        match self.free.pop() {
            Some(number) => {
                self.slots[number as usize] = slot;
                number
            }
            None => {
                self.slots.push(slot);
                (self.slots.len() - 1) as u32
            }
        }
    }

    /// Frees slot `number`; what was in it.
    fn free(&mut self, number: u32) -> Slot {
        self.free.push(number);
        std::mem::replace(&mut self.slots[number as usize], Slot::Free)
    }

    /// The answer for slot `number` has come: the caller to wake, and what is to be dropped with no borrow held.
    fn answered(
        &mut self,
        number: u32,
        outcome: Result<Outcome, DeviceError>,
    ) -> (Option<Waker>, Option<Permit>) {
        let slot = &mut self.slots[number as usize];
        match std::mem::replace(slot, Slot::Answered(outcome)) {
            Slot::Waiting(permit, waker) => (waker, Some(permit)),
            Slot::Orphaned(permit) => {
                self.free(number);
                (None, Some(permit))
            }
            Slot::Free | Slot::Answered(_) => unreachable!("a call is answered once"),
        }
    }
}

/// A link as the gate has it: opens devices of the owner.
pub struct Gate {
    // Fixed.
    room: Rc<Semaphore>,
    /// A place of its own for giving a device up: callers that never cease must not keep it open.
    closer: Rc<Semaphore>,
    // Per device.
    next_device: Cell<u32>,
    /// To be given up at the owner as soon as a request has room.
    closing: RefCell<Vec<Handle>>,
    // Per call.
    requests: RefCell<Producer<Request>>,
    slots: RefCell<Slots>,
    owner_gone: Cell<bool>,
    /// Do calls that find the owner gone never end?
    is_silent: Cell<bool>,
}

/// A device of the owner's. See the module's head.
///
/// What it is like is as it was when it was opened, or when [`Remote::look`] asked last. It reports no power, and does not
/// spin down.
pub struct Remote {
    gate: Rc<Gate>,
    handle: Handle,
    info: RefCell<Info>,
    under_way: Cell<usize>,
}

impl GateEnd {
    pub(super) fn new(
        requests: Producer<Request>,
        answers: Consumer<Answer>,
        depth: usize,
    ) -> GateEnd {
        GateEnd {
            requests,
            answers,
            depth,
        }
    }

    /// Puts the end to work, on the gate's thread. The owner may come later: calls wait for it.
    pub fn join(self) -> Rc<Gate> {
        let gate = Rc::new(Gate {
            room: Semaphore::new(self.depth as u64),
            closer: Semaphore::new(1),
            next_device: Cell::new(0),
            closing: RefCell::default(),
            requests: RefCell::new(self.requests),
            slots: RefCell::default(),
            owner_gone: Cell::new(false),
            is_silent: Cell::new(false),
        });
        env::spawn(take_answers(Rc::downgrade(&gate), self.answers));
        gate
    }
}

/// Hands answers to their callers until the owner is gone, which it is soon after the gate.
async fn take_answers(gate: Weak<Gate>, mut answers: Consumer<Answer>) {
    while let Ok(Answer { slot, outcome }) = answers.receive().await {
        let Some(gate) = gate.upgrade() else {
            continue;
        };
        let (waker, permit) = gate.slots.borrow_mut().answered(slot, outcome);
        drop(permit);
        if let Some(waker) = waker {
            waker.wake();
        }
        gate.close_some();
    }
    if let Some(gate) = gate.upgrade() {
        gate.end();
    }
}

impl Gate {
    /// Opens the owner's device `name`; it is given up when the answer is dropped.
    ///
    /// # Errors
    /// The owner's, or [`DeviceError::Gone`] if there is no owner any more.
    pub async fn open(self: &Rc<Self>, name: &str) -> Result<Rc<Remote>, DeviceError> {
        let handle = Handle(self.next_device.get());
        self.next_device.set(handle.0 + 1);
        // A caller that goes away meanwhile leaves nothing open: the owner gets the close after it.
        let mut opening = Opening {
            gate: self,
            handle: Some(handle),
        };
        let called = self.call(handle, Call::Open(name.to_owned())).await;
        let outcome = self.answered(called, || gone(name, Op::Read)).await?;
        opening.handle = None;
        let Outcome::Info(info) = outcome else {
            unreachable!("an opening is answered with what was opened");
        };
        Ok(Rc::new(Remote {
            gate: Rc::clone(self),
            handle,
            info: RefCell::new(info),
            under_way: Cell::new(0),
        }))
    }

    /// Has the owner do `call`, in its turn; none if it is gone.
    async fn call(&self, device: Handle, call: Call) -> Option<Result<Outcome, DeviceError>> {
        let permit = self.room.acquire(1).await;
        let slot = self.send(device, call, Slot::Waiting(permit, None))?;
        let mut waiting = Waiting {
            gate: self,
            slot: Some(slot),
        };
        poll_fn(|cx| waiting.poll(cx)).await
    }

    /// From now on a call that finds the owner gone never ends, instead of failing. For a front whose clients shall rather
    /// lose their connection, and come again, than be told that the disk failed.
    pub fn fall_silent(&self) {
        self.is_silent.set(true);
    }

    /// The answer to a call, if the owner gave one.
    async fn answered(
        &self,
        answer: Option<Result<Outcome, DeviceError>>,
        gone: impl FnOnce() -> DeviceError,
    ) -> Result<Outcome, DeviceError> {
        match answer {
            Some(answer) => answer,
            None if self.is_silent.get() => std::future::pending().await,
            None => Err(gone()),
        }
    }

    /// Sends a request; its slot, or none if the owner is gone.
    fn send(&self, device: Handle, call: Call, slot: Slot) -> Option<u32> {
        if self.owner_gone.get() {
            return None;
        }
        let slot = self.slots.borrow_mut().insert(slot);
        let request = Request { slot, device, call };
        let refused = match self.requests.borrow_mut().try_send(request) {
            Ok(()) => return Some(slot),
            Err(env::Refused::Closed(request)) => request,
            Err(env::Refused::Full(_)) => unreachable!("a request has a permit"),
        };
        // With no borrow held: the permit lets the next caller in.
        let freed = self.slots.borrow_mut().free(slot);
        drop((refused, freed));
        None
    }

    /// Gives devices up at the owner, as far as there is room.
    fn close_some(&self) {
        while !self.closing.borrow().is_empty() {
            let Some(permit) = self.closer.try_acquire(1) else {
                return;
            };
            let handle = self.closing.borrow_mut().pop();
            let Some(handle) = handle else { return };
            if self
                .send(handle, Call::Close, Slot::Orphaned(permit))
                .is_none()
            {
                return;
            }
        }
    }

    fn close(&self, handle: Handle) {
        self.closing.borrow_mut().push(handle);
        self.close_some();
    }

    /// The owner is gone: every call that waits is answered.
    fn end(&self) {
        self.owner_gone.set(true);
        let mut over = Vec::new();
        {
            let mut slots = self.slots.borrow_mut();
            for number in 0..slots.slots.len() as u32 {
                match &slots.slots[number as usize] {
                    // Freed by the caller when it looks: no answer will come.
                    Slot::Waiting(..) | Slot::Orphaned(_) => over.push(slots.free(number)),
                    Slot::Free | Slot::Answered(_) => {}
                }
            }
            slots.free.clear();
        }
        for slot in over {
            if let Slot::Waiting(permit, waker) = slot {
                drop(permit);
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
        }
    }
}

fn gone(device: &str, op: Op) -> DeviceError {
    DeviceError::Gone {
        device: device.to_owned(),
        op,
        why: OWNER_GONE.to_owned(),
    }
}

/// A device that is being opened.
struct Opening<'a> {
    gate: &'a Gate,
    handle: Option<Handle>,
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            self.gate.close(handle);
        }
    }
}

/// A caller that waits for its answer.
struct Waiting<'a> {
    gate: &'a Gate,
    slot: Option<u32>,
}

impl Waiting<'_> {
    /// The answer; none if there will be none.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Outcome, DeviceError>>> {
        let number = self.slot.expect("an answer is taken once");
        let mut slots = self.gate.slots.borrow_mut();
        match &mut slots.slots[number as usize] {
            Slot::Waiting(_, Some(waker)) => waker.clone_from(cx.waker()),
            Slot::Waiting(_, waker) => *waker = Some(cx.waker().clone()),
            Slot::Free => {
                self.slot = None;
                return Poll::Ready(None);
            }
            Slot::Answered(_) => {
                self.slot = None;
                let Slot::Answered(outcome) = slots.free(number) else {
                    unreachable!("looked at just now");
                };
                return Poll::Ready(Some(outcome));
            }
            Slot::Orphaned(_) => unreachable!("its caller is here"),
        }
        Poll::Pending
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let Some(number) = self.slot.take() else {
            return;
        };
        let mut slots = self.gate.slots.borrow_mut();
        let left = match std::mem::replace(&mut slots.slots[number as usize], Slot::Free) {
            Slot::Waiting(permit, _) => {
                slots.slots[number as usize] = Slot::Orphaned(permit);
                None
            }
            Slot::Answered(outcome) => {
                slots.free.push(number);
                Some(outcome)
            }
            Slot::Free | Slot::Orphaned(_) => None,
        };
        drop(slots);
        drop(left);
    }
}

impl Remote {
    /// Asks the owner what the device is like by now: one that grew shows its new size from then on.
    ///
    /// # Errors
    /// [`DeviceError::Gone`].
    pub async fn look(&self) -> Result<Info, DeviceError> {
        let Outcome::Info(info) = self.call(Call::Look).await? else {
            unreachable!("a look is answered with what was seen");
        };
        self.info.replace(info.clone());
        Ok(info)
    }

    async fn call(&self, call: Call) -> Result<Outcome, DeviceError> {
        let _counted = crate::memory::Waiting::begin(&self.under_way);
        let op = call.op();
        let called = self.gate.call(self.handle, call).await;
        let gone = || gone(&self.info.borrow().name, op);
        self.gate.answered(called, gone).await
    }

    async fn done(&self, call: Call) -> Result<(), DeviceError> {
        self.call(call).await.map(drop)
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.gate.close(self.handle);
    }
}

impl Device for Remote {
    fn info(&self) -> Info {
        // Whether the device keeps answered writes may change at the owner, and is not known here.
        Info {
            crash_keeping: false,
            ..self.info.borrow().clone()
        }
    }

    fn read(&self, at: Sector, buf: Buf, class: Class) -> Pending<'_, Buf> {
        // A piece of a larger buffer stays here, and is filled from the one that travels.
        let (parcel, mut piece) = match Parcel::of_sole(buf) {
            Ok(parcel) => (parcel, None),
            Err(piece) => (Parcel::new(Buf::for_read(piece.len())), Some(piece)),
        };
        Box::pin(async move {
            let Outcome::Read(parcel) = self.call(Call::Read(at, parcel, class)).await? else {
                unreachable!("a read is answered with its data");
            };
            let read = parcel.open();
            Ok(match piece.take() {
                None => read,
                Some(mut piece) => {
                    match read.is_known_zero() {
                        true => piece.zero(),
                        false => piece.copy_from_slice(&read),
                    }
                    piece
                }
            })
        })
    }

    fn write(&self, at: Sector, data: View, flags: WriteFlags) -> Pending<'_, ()> {
        if data.is_known_zero() {
            let len = Bytes(data.len() as u64);
            return Box::pin(self.done(Call::WriteZeroData(at, len, flags)));
        }
        let parcel = Parcel::of_view(data);
        Box::pin(async move {
            let Outcome::Written(parcel) = self.call(Call::Write(at, parcel, flags)).await? else {
                unreachable!("a write is answered with its buffer");
            };
            // Back to this thread's pool, where it came from.
            drop(parcel.map(Parcel::open));
            Ok(())
        })
    }

    fn flush(&self) -> Pending<'_, ()> {
        Box::pin(self.done(Call::Flush))
    }

    fn discard(&self, span: Span) -> Pending<'_, ()> {
        Box::pin(self.done(Call::Discard(span)))
    }

    fn write_zeroes(&self, span: Span, flags: WriteFlags) -> Pending<'_, ()> {
        Box::pin(self.done(Call::WriteZeroes(span, flags)))
    }

    fn allocation(&self, span: Span) -> Pending<'_, Vec<(u64, bool)>> {
        Box::pin(async move {
            let Outcome::Allocation(runs) = self.call(Call::Allocation(span)).await? else {
                unreachable!("it is answered with runs");
            };
            Ok(runs)
        })
    }

    fn in_flight(&self) -> usize {
        self.under_way.get()
    }
}
