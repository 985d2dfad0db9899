//! The connection below a client: who asks, what is under way, and how it all ends.
//!
//! ```text
//! call -> a turn in the window -> slot -> outgoing -> writer
//!           ^ outcome <- answered, late, or lost with the connection
//! ```
//!
//! Always true: a slot whose request was sent keeps its turn and its buffer until the server has answered.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use base::{Buf, Bytes, Instant, Map};
use env::net::Stream;
use env::net::message::either;
use env::sync::{Event, Permit, Semaphore};
use policy::place::State;
use tls::Wire;

use super::error::ClientError;
use super::opening::{Entered, enter};
use super::options::{ClientOptions, Credentials};
use super::reader::Reader;
use super::watch::{Pulse, watch};
use crate::net::wire::stream::Pieces;
use crate::net::wire::{Header, Kind, Opened, Request, Response, ServerHello};
use crate::ops;

/// Requests gathered into one send, in bytes.
const SEND_BATCH: usize = 1 << 20;

/// What a call gets.
pub(super) enum Got {
    Response(Response),
    /// A read's bytes: how many, and the buffer.
    Bytes(usize, Buf),
}

/// Both ends of one connection have one of these; tasks share it.
pub(super) struct Shared {
    // Fixed.
    pub peer: String,
    pub options: ClientOptions,
    /// To hang up.
    stream: Rc<Stream>,
    wire: Rc<Wire>,
    pub server: ServerHello,
    pub opened: Opened,
    pub clock_ahead_ns: i64,
    // Per request.
    /// As many as the server takes at once.
    window: Rc<Semaphore>,
    pub slots: RefCell<Map<u64, Slot>>,
    next_id: Cell<u64>,
    pub outgoing: RefCell<Outgoing>,
    /// What was heard last of the store's queue.
    pub state: Cell<Option<State>>,
    pub pulse: Pulse,
    /// Why the connection ended; calls are refused from then on.
    ended: RefCell<Option<String>>,
    /// It has.
    over: Event,
}

#[derive(Default)]
pub(super) struct Outgoing {
    queue: VecDeque<u64>,
    writer: Option<Waker>,
    pub closed: bool,
    /// Since when it is.
    pub closed_at: Option<Instant>,
}

/// A request under way.
pub(super) struct Slot {
    pub request: Request,
    pub asked_at: Instant,
    /// Taken by the writer.
    pub sent: bool,
    /// A read's buffer, if the caller gave one.
    pub buf: Option<Buf>,
    pub outcome: Option<Result<Got, ClientError>>,
    /// Nothing more comes for it.
    answered: bool,
    /// The watch's own.
    pub ping: bool,
    pub waker: Option<Waker>,
    /// The caller has gone: the answer frees the slot.
    pub orphaned: bool,
    /// Kept until the server has answered.
    turn: Option<Permit>,
}

/// The caller's side of a slot.
struct Waiting<'a> {
    shared: &'a Shared,
    id: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.shared.abandon(self.id);
    }
}

impl Shared {
    // --- from beginning to end ------------------------------------------------------------------------

    pub async fn open(
        stream: Stream,
        (server, tls): (&str, Option<&tls::Client>),
        credentials: Credentials,
        options: &ClientOptions,
    ) -> Result<Rc<Shared>, ClientError> {
        let stream = Rc::new(stream);
        let Entered {
            wire,
            shown,
            inbox,
            server: hello,
            opened,
            clock_ahead_ns,
        } = enter(&stream, (server, tls), &credentials, options).await?;
        let shared = Rc::new(Shared {
            peer: server.to_owned(),
            options: options.clone(),
            stream,
            wire,
            server: hello,
            opened,
            clock_ahead_ns,
            window: Semaphore::new(u64::from(hello.requests_max)),
            slots: RefCell::default(),
            next_id: Cell::new(2),
            outgoing: RefCell::default(),
            state: Cell::default(),
            pulse: Pulse::default(),
            ended: RefCell::default(),
            over: Event::default(),
        });
        let writer = Rc::clone(&shared);
        env::spawn(async move { writer.write_requests().await });
        let reader = Rc::clone(&shared);
        env::spawn(async move {
            let why = Reader(&reader).until_end(inbox).await;
            reader.end(why);
        });
        let watched = Rc::clone(&shared);
        env::spawn(async move { watch(&watched).await });
        if let Some(tls) = tls {
            let (tls, certified) = (tls.clone(), Rc::clone(&shared));
            env::spawn(async move { end_when_revoked(&tls, shown.as_ref(), &certified).await });
        }
        Ok(shared)
    }

    pub fn ended(&self) -> Option<String> {
        self.ended.borrow().clone()
    }

    pub async fn over(&self) -> String {
        loop {
            if let Some(why) = self.ended() {
                return why;
            }
            self.over.wait().await;
        }
    }

    /// No more requests; those that were made are sent and answered first.
    pub fn say_goodbye(&self) {
        let mut outgoing = self.outgoing.borrow_mut();
        if outgoing.closed {
            return;
        }
        outgoing.closed = true;
        outgoing.closed_at = Some(env::now());
        let writer = outgoing.writer.take();
        drop(outgoing);
        if let Some(writer) = writer {
            writer.wake();
        }
    }

    /// The server does not keep to the protocol: ends the connection.
    pub fn broken(&self, why: String) -> ClientError {
        self.end(format!("what the server sent is not the protocol: {why}"));
        ClientError::Protocol {
            server: self.peer.clone(),
            why,
        }
    }

    /// Ends the connection; every waiter hears why.
    pub fn end(&self, why: String) {
        if self.ended.borrow().is_some() {
            return;
        }
        *self.ended.borrow_mut() = Some(why.clone());
        self.stream.abort();
        self.say_goodbye();
        let mut ids: Vec<u64> = self.slots.borrow().keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            let lost = {
                let slots = self.slots.borrow();
                let slot = slots.get(&id).expect("no slot goes meanwhile");
                self.lost(&slot.request, slot.sent, &why)
            };
            self.complete(id, Err(lost));
        }
        self.over.notify_all();
    }

    fn lost(&self, request: &Request, sent: bool, why: &str) -> ClientError {
        ClientError::Lost {
            server: self.peer.clone(),
            what: in_words(request),
            sent,
            changes: changes(request),
            why: why.to_owned(),
        }
    }

    /// The answer did not come in time.
    pub fn late(&self, request: &Request, sent: bool) -> ClientError {
        ClientError::Late {
            server: self.peer.clone(),
            what: in_words(request),
            after: self.options.timeout,
            sent,
            changes: changes(request),
        }
    }

    // --- calls ----------------------------------------------------------------------------------------

    /// A request on objects, and what comes of it.
    pub async fn on_objects(&self, request: ops::Request) -> Result<ops::Response, ClientError> {
        match self.answer(Request::Object(request)).await? {
            Response::Object(response) => Ok(response),
            other => Err(self.unfit(&other)),
        }
    }

    /// A request that is done or not.
    pub async fn done(&self, request: Request) -> Result<(), ClientError> {
        match self.answer(request).await? {
            Response::Done => Ok(()),
            other => Err(self.unfit(&other)),
        }
    }

    /// A request without a buffer of the caller's, and its answer.
    pub async fn answer(&self, request: Request) -> Result<Response, ClientError> {
        match self.call(request, None).await? {
            Got::Response(answer) => Ok(answer),
            Got::Bytes(_, buf) => Ok(Response::Object(ops::Response::Data(buf.freeze()))),
        }
    }

    /// Answers are decoded by what was asked, so that one of another shape is the server's mistake.
    pub fn unfit(&self, answer: &Response) -> ClientError {
        self.broken(format!(
            "its answer is not one to what was asked: {answer:?}"
        ))
    }

    /// Asks, and waits for the answer.
    pub async fn call(&self, request: Request, buf: Option<Buf>) -> Result<Got, ClientError> {
        let asked_at = env::now();
        let turn = match self.window.try_acquire(1) {
            Some(turn) => turn,
            None => {
                let turn = env::timeout(self.options.timeout, self.window.acquire(1)).await;
                turn.map_err(|_| self.late(&request, false))?
            }
        };
        if let Some(why) = self.ended() {
            return Err(self.lost(&request, false, &why));
        }
        if self.outgoing.borrow().closed {
            return Err(self.lost(&request, false, "this client was closed"));
        }
        let id = self.put(request, asked_at, buf, Some(turn));
        let waiting = Waiting { shared: self, id };
        poll_fn(|cx| {
            let mut slots = self.slots.borrow_mut();
            let slot = slots.get_mut(&waiting.id).expect("kept while waited for");
            match slot.outcome.take() {
                Some(outcome) => Poll::Ready(outcome),
                None => {
                    slot.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Puts a request in line.
    pub fn put(
        &self,
        request: Request,
        asked_at: Instant,
        buf: Option<Buf>,
        turn: Option<Permit>,
    ) -> u64 {
        let id = self.next_id.get();
        self.next_id.set(id + 1);
        let slot = Slot {
            orphaned: turn.is_none(),
            ping: turn.is_none(),
            answered: false,
            request,
            asked_at,
            sent: false,
            buf,
            outcome: None,
            waker: None,
            turn,
        };
        self.slots.borrow_mut().insert(id, slot);
        let mut outgoing = self.outgoing.borrow_mut();
        outgoing.queue.push_back(id);
        let writer = outgoing.writer.take();
        drop(outgoing);
        if let Some(writer) = writer {
            writer.wake();
        }
        id
    }

    /// The caller takes no answer any more, or has it.
    fn abandon(&self, id: u64) {
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = slots.get_mut(&id) else {
            return;
        };
        if slot.sent && !slot.answered {
            slot.orphaned = true;
        } else {
            // Answered, or never sent: the writer passes over numbers without a slot.
            slots.remove(&id);
        }
    }

    /// Gives a slot its outcome and wakes the task that waits for it.
    pub fn complete(&self, id: u64, outcome: Result<Got, ClientError>) {
        let waker = {
            let mut slots = self.slots.borrow_mut();
            let Some(slot) = slots.get_mut(&id) else {
                return;
            };
            drop(slot.turn.take());
            slot.answered = true;
            if slot.orphaned {
                slots.remove(&id);
                return;
            }
            slot.outcome.get_or_insert(outcome);
            slot.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    // --- writer ---------------------------------------------------------------------------------------

    async fn write_requests(&self) {
        let mut pieces = Pieces::default();
        while self.requests_wait().await {
            {
                let mut outgoing = self.outgoing.borrow_mut();
                let mut slots = self.slots.borrow_mut();
                while pieces.bytes() < SEND_BATCH
                    && let Some(id) = outgoing.queue.pop_front()
                {
                    // Given up before its turn came: it is never sent.
                    let waited_for = |slot: &&mut Slot| slot.outcome.is_none();
                    let Some(slot) = slots.get_mut(&id).filter(waited_for) else {
                        continue;
                    };
                    slot.sent = true;
                    let meta = slot.request.encode();
                    let data = slot.request.data();
                    let bytes = data.map_or(&[][..], |data| &data[..]);
                    let header = Header::of(slot.request.op() as u16, 0, id, &meta, bytes);
                    pieces.put(&header.encode(Kind::Request));
                    pieces.put(&meta);
                    if let Some(data) = data {
                        pieces.put_view(data.clone());
                    }
                }
            }
            self.pulse.spoke.set(env::now());
            if let Err(error) = self.wire.write_all(pieces.take()).await {
                return self.end(format!("the connection broke ({error})"));
            }
        }
        if self.ended.borrow().is_none() {
            self.wire.finish().await;
        }
    }

    /// Waits for requests: true if there are some, false once no more will come.
    fn requests_wait(&self) -> impl Future<Output = bool> + '_ {
        poll_fn(|cx| {
            let mut outgoing = self.outgoing.borrow_mut();
            if self.ended.borrow().is_some() {
                return Poll::Ready(false);
            }
            if !outgoing.queue.is_empty() {
                return Poll::Ready(true);
            }
            if outgoing.closed {
                return Poll::Ready(false);
            }
            outgoing.writer = Some(cx.waker().clone());
            Poll::Pending
        })
    }
}

/// Ends the connection once the server's certificate is revoked or over.
async fn end_when_revoked(tls: &tls::Client, shown: Option<&tls::Certificate>, shared: &Shared) {
    let revoked = async { Some(tls.identity.until_over(shown).await) };
    let over = async {
        shared.over().await;
        None
    };
    if let Some(why) = either(revoked, over).await {
        shared.end(why);
    }
}

/// What a request was, for errors.
fn in_words(request: &Request) -> String {
    let op = request.op().name();
    match request {
        Request::Object(request) => match (request.transfer(), request.object()) {
            (Some((_, object, offset, len)), _) => {
                format!("{op} {} at byte {offset} of {object:?}", Bytes(len))
            }
            (None, Some(object)) => format!("{op} {object:?}"),
            (None, None) => op.to_owned(),
        },
        Request::Fence { object, .. } | Request::Seal { object, .. } => format!("{op} {object:?}"),
        _ => op.to_owned(),
    }
}

/// Would it change anything? What does not may be repeated whatever became of it.
fn changes(request: &Request) -> bool {
    match request {
        Request::Object(request) => request.changes(),
        _ => matches!(
            request,
            Request::Seal { .. }
                | Request::Hold { .. }
                | Request::Commit(_)
                | Request::Release(_)
                | Request::Decide { .. }
        ),
    }
}
