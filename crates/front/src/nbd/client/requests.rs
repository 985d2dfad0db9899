//! Requests under way: from a call to its answer.
//!
//! ```text
//! call -> slot (its number and generation are the cookie) -> outgoing -> writer: one vectored send
//!           ^ answer, by the reader of replies -> the caller wakes
//! ```
//!
//! Always true:
//! 1. A slot is freed once: by the caller that took its answer, or by the answer if the caller has gone.
//! 2. When the connection ends, every request that waits is answered with the reason.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::rc::Rc;
use std::task::{Poll, Waker};

use base::{Buf, Span, View};
use device::{DeviceError, Op};
use env::net::Stream;
use env::net::message::Pieces;
use env::sync::Event;

use super::super::proto::{self, Errno, Request, cmd};
use super::handshake::Agreed;
use tls::Wire;

/// Requests gathered into one send, in bytes.
const SEND_BATCH: usize = 2 << 20;

/// Why a request failed: the protocol's error, and a sentence, which may be empty.
pub(super) type Failure = (Errno, String);

/// What is asked of the server: the fields of a request's head, and what a device would call it.
#[derive(Clone, Copy)]
pub(super) struct Ask {
    pub(super) op: Op,
    pub(super) command: u16,
    pub(super) flags: u16,
    pub(super) at: u64,
    pub(super) len: u64,
}

/// The connection, shared by its callers, its reader and its writer.
pub(super) struct Shared {
    // Fixed.
    pub(super) agreed: Agreed,
    stream: Rc<Stream>,
    wire: Rc<Wire>,
    // Per request.
    slots: RefCell<Vec<Slot>>,
    free: RefCell<Vec<usize>>,
    busy: Cell<usize>,
    outgoing: RefCell<Outgoing>,
    /// Why the connection ended; requests are refused from then on.
    ended: RefCell<Option<String>>,
    /// It has.
    over: Event,
}

#[derive(Default)]
struct Outgoing {
    queue: VecDeque<([u8; proto::REQUEST_LEN], Option<View>)>,
    writer: Option<Waker>,
    closed: bool,
}

/// A request under way.
#[derive(Default)]
struct Slot {
    /// Counts reuses, so that an answer to an earlier request of this slot is recognised as wrong.
    generation: u32,
    state: SlotState,
    waker: Option<Waker>,
    /// The caller has gone: the slot is freed by the answer.
    orphaned: bool,
}

#[derive(Default)]
enum SlotState {
    #[default]
    Free,
    Waiting(Waiting),
    Answered(Result<Answered, Failure>),
}

/// What is known of a request that waits for its answer.
pub(super) struct Waiting {
    pub(super) op: Op,
    pub(super) at: u64,
    /// A read's buffer; away while data are received into it.
    pub(super) buf: Option<Buf>,
    /// Bytes of a read not covered by a chunk yet.
    pub(super) missing: usize,
    pub(super) extents: Vec<(u32, u32)>,
    pub(super) failed: Option<Failure>,
}

#[derive(Default)]
pub(super) struct Answered {
    pub(super) buf: Option<Buf>,
    pub(super) extents: Vec<(u32, u32)>,
}

impl Shared {
    pub(super) fn new(agreed: Agreed, stream: Rc<Stream>, wire: Rc<Wire>) -> Rc<Shared> {
        Rc::new(Shared {
            agreed,
            stream,
            wire,
            slots: RefCell::default(),
            free: RefCell::default(),
            busy: Cell::new(0),
            outgoing: RefCell::default(),
            ended: RefCell::default(),
            over: Event::default(),
        })
    }

    /// Requests that were begun and not answered.
    pub(super) fn in_flight(&self) -> usize {
        self.busy.get()
    }

    /// Did the server announce this transmission flag?
    pub(super) fn has(&self, bit: u16) -> bool {
        self.agreed.flags & bit != 0
    }

    /// Says goodbye, unless the connection has ended already.
    pub(super) fn leave(&self) {
        if self.ended.borrow().is_none() {
            let goodbye = Request {
                flags: 0,
                command: cmd::DISC,
                cookie: 0,
                offset: 0,
                length: 0,
            };
            self.send(goodbye.encode(), None);
            self.close_writer();
        }
    }

    /// Waits until the connection has ended.
    pub(super) async fn wait_over(&self) {
        while self.ended.borrow().is_none() {
            self.over.wait().await;
        }
    }

    fn send(&self, head: [u8; proto::REQUEST_LEN], data: Option<View>) {
        self.change_outgoing(|outgoing| outgoing.queue.push_back((head, data)));
    }

    fn close_writer(&self) {
        self.change_outgoing(|outgoing| outgoing.closed = true);
    }

    fn change_outgoing(&self, change: impl FnOnce(&mut Outgoing)) {
        let mut outgoing = self.outgoing.borrow_mut();
        change(&mut outgoing);
        let writer = outgoing.writer.take();
        drop(outgoing);
        if let Some(writer) = writer {
            writer.wake();
        }
    }

    /// The connection is over: all requests that wait fail with `why`.
    pub(super) fn end(&self, why: &str) {
        if self.ended.borrow().is_some() {
            return;
        }
        *self.ended.borrow_mut() = Some(why.to_owned());
        self.over.notify_all();
        self.stream.abort();
        self.close_writer();
        let count = self.slots.borrow().len();
        for index in 0..count {
            let waiting = matches!(self.slots.borrow()[index].state, SlotState::Waiting(_));
            if waiting {
                self.answer_slot(index, Err((Errno::Shutdown, why.to_owned())));
            }
        }
    }

    /// Puts the answer into a slot and wakes its caller, or frees the slot if the caller has gone.
    pub(super) fn answer_slot(&self, index: usize, answer: Result<Answered, Failure>) {
        let waker = {
            let mut slots = self.slots.borrow_mut();
            let slot = &mut slots[index];
            slot.state = SlotState::Answered(answer);
            if slot.orphaned {
                drop(slots);
                self.release(index);
                return;
            }
            slot.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn release(&self, index: usize) {
        let old = {
            let slot = &mut self.slots.borrow_mut()[index];
            slot.generation = slot.generation.wrapping_add(1);
            slot.orphaned = false;
            slot.waker = None;
            std::mem::take(&mut slot.state)
        };
        drop(old);
        self.free.borrow_mut().push(index);
        self.busy.set(self.busy.get() - 1);
    }

    /// Starts a request now; the future waits for its answer.
    pub(super) fn answer(
        self: Rc<Self>,
        ask: Ask,
        data: Option<View>,
        buf: Option<Buf>,
    ) -> impl Future<Output = Result<Answered, Failure>> {
        let call = self.start(ask, data, buf);
        async move { call?.answer().await }
    }

    /// As [`Shared::answer`], in a device's words.
    pub(super) fn call(
        self: Rc<Self>,
        ask: Ask,
        data: Option<View>,
        buf: Option<Buf>,
    ) -> impl Future<Output = Result<Answered, DeviceError>> {
        let answer = Rc::clone(&self).answer(ask, data, buf);
        async move { answer.await.map_err(|failed| self.error(ask, failed)) }
    }

    /// Takes a slot and sends the request.
    fn start(
        self: Rc<Self>,
        ask: Ask,
        data: Option<View>,
        buf: Option<Buf>,
    ) -> Result<Call, Failure> {
        if let Some(why) = self.ended.borrow().clone() {
            return Err((Errno::Shutdown, why));
        }
        let Ok(length) = u32::try_from(ask.len) else {
            let why = format!("{} bytes do not fit one NBD request", ask.len);
            return Err((Errno::Overflow, why));
        };
        let index = self.free.borrow_mut().pop().unwrap_or_else(|| {
            self.slots.borrow_mut().push(Slot::default());
            self.slots.borrow().len() - 1
        });
        self.busy.set(self.busy.get() + 1);
        let generation = {
            let slot = &mut self.slots.borrow_mut()[index];
            slot.state = SlotState::Waiting(Waiting {
                op: ask.op,
                at: ask.at,
                missing: buf.as_ref().map_or(0, |buf| buf.len()),
                buf,
                extents: Vec::new(),
                failed: None,
            });
            slot.generation
        };
        let request = Request {
            flags: ask.flags,
            command: ask.command,
            cookie: u64::from(generation) << 32 | index as u64,
            offset: ask.at,
            length,
        };
        self.send(request.encode(), data);
        Ok(Call {
            shared: self,
            index,
            taken: false,
        })
    }

    /// What a device says of this failure.
    pub(super) fn error(&self, ask: Ask, (errno, why): Failure) -> DeviceError {
        let (device, op) = (self.agreed.info.name.clone(), ask.op);
        match errno {
            Errno::NoSpace => DeviceError::NoSpace { device, op, why },
            Errno::Perm => DeviceError::ReadOnly { device, op },
            Errno::Shutdown => DeviceError::Gone { device, op, why },
            _ => DeviceError::Io {
                device,
                op,
                span: Span::bytes(ask.at, ask.len),
                why: if why.is_empty() {
                    format!("the NBD server says {errno:?}")
                } else {
                    why
                },
            },
        }
    }

    /// Sends what is asked, in order, until the client leaves.
    pub(super) async fn write_requests(&self) -> io::Result<()> {
        let mut pieces = Pieces::default();
        loop {
            let more = poll_fn(|cx| {
                let mut outgoing = self.outgoing.borrow_mut();
                if !outgoing.queue.is_empty() {
                    return Poll::Ready(true);
                }
                if outgoing.closed {
                    return Poll::Ready(false);
                }
                outgoing.writer = Some(cx.waker().clone());
                Poll::Pending
            })
            .await;
            if !more {
                return Ok(());
            }
            {
                let mut outgoing = self.outgoing.borrow_mut();
                while pieces.bytes() < SEND_BATCH
                    && let Some((head, data)) = outgoing.queue.pop_front()
                {
                    pieces.put(&head);
                    if let Some(data) = data {
                        pieces.put_view(data);
                    }
                }
            }
            self.wire.write_all(pieces.take()).await?;
        }
    }

    /// The slot a cookie names, if a request waits there.
    pub(super) fn waiting(&self, cookie: u64) -> io::Result<usize> {
        let index = (cookie & u64::from(u32::MAX)) as usize;
        let slots = self.slots.borrow();
        let slot = slots.get(index).filter(|slot| {
            slot.generation == (cookie >> 32) as u32 && matches!(slot.state, SlotState::Waiting(_))
        });
        slot.map(|_| index)
            .ok_or_else(|| io::Error::other(format!("a reply to no request (cookie {cookie:#x})")))
    }

    /// Looks at, or changes, what is known of the request that waits in a slot.
    #[inline]
    pub(super) fn with_waiting<T>(
        &self,
        index: usize,
        see: impl FnOnce(&mut Waiting) -> T,
    ) -> io::Result<T> {
        match &mut self.slots.borrow_mut()[index].state {
            SlotState::Waiting(waiting) => Ok(see(waiting)),
            _ => Err(io::Error::other("a reply to no request")),
        }
    }

    /// Takes a request out of its slot, to be answered.
    pub(super) fn take_waiting(&self, index: usize) -> io::Result<Waiting> {
        match std::mem::take(&mut self.slots.borrow_mut()[index].state) {
            SlotState::Waiting(waiting) => Ok(waiting),
            _ => Err(io::Error::other("a reply to no request")),
        }
    }
}

/// A caller's hold on a slot.
struct Call {
    shared: Rc<Shared>,
    index: usize,
    taken: bool,
}

impl Call {
    /// Waits for the answer and frees the slot.
    async fn answer(mut self) -> Result<Answered, Failure> {
        poll_fn(|cx| {
            let mut slots = self.shared.slots.borrow_mut();
            let slot = &mut slots[self.index];
            if matches!(slot.state, SlotState::Answered(_)) {
                return Poll::Ready(());
            }
            slot.waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
        let state = std::mem::take(&mut self.shared.slots.borrow_mut()[self.index].state);
        self.taken = true;
        self.shared.release(self.index);
        match state {
            SlotState::Answered(answer) => answer,
            _ => unreachable!("waited for the answer"),
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.taken {
            return;
        }
        let answered = {
            let slot = &mut self.shared.slots.borrow_mut()[self.index];
            slot.orphaned = true;
            matches!(slot.state, SlotState::Answered(_))
        };
        if answered {
            self.shared.release(self.index);
        }
    }
}
