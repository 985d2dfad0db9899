//! One client, from hello to goodbye: who reads, who works, who writes?
//!
//! ```text
//! reader: bytes -> judge -> admit -> job --> workers: Device --> replies --> writer: one vectored send
//!            ^ not read from while too much is held                            | frees what was held
//! ```
//!
//! ```text
//! Negotiating  -> Transmitting  GO or EXPORT_NAME
//! Negotiating  -> Gone          ABORT, a deadline, a cut
//! Transmitting -> Leaving       DISC, end of stream, a violation, or drained (nothing in flight)
//! Leaving      -> Gone          every request answered by its device, every reply sent or unsendable
//! ```
//!
//! Workers are tasks kept for the connection's life, as many as requests were ever under way at once, so
//! a request costs no task of its own. No timer is set per request.
//!
//! Always true:
//! 1. Each accepted request is carried out to its end, even if its client is gone by then.
//! 2. What a request holds is freed once: when its reply was sent or can no longer be.
//! 3. A refused write's payload is taken off the stream, so that the next request is found.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::rc::Rc;
use std::task::{Poll, Waker};

use base::{Buf, Bytes, Instant, View};
use env::net::message::{Channel as _, Inbox, Outbox, Pieces, TransferTimeout, either, in_steps};
use env::net::{Member, Origin, Stream};
use env::sync::{Event, Permit, Semaphore};

use super::counters::{ConnectionSnapshot, LiveCounters};
use super::negotiate::{Agreement, Negotiation, Step, TlsState};
use super::proto::{self, ALLOCATION_ID, CLIENT_FLAGS_LEN, Errno, OPTION_LEN, REQUEST_LEN};
use super::proto::{Command, Request, chunk};
use super::requests::{Part, Response, charge};
use super::server::{Limits, Server, Shelf};
use super::supply::Prepared;
use super::tls::{Allowed, TlsMode};
use super::wire::{TlsWire, Wire};

/// Receive buffer during the negotiation, and the longest option held.
const NEGOTIATION_BUFFER: Bytes = Bytes::kib(64);
const OPTION_MAX: u32 = 32 << 10;
/// Receive buffer during transmission.
const RECEIVE_BUFFER: Bytes = Bytes::kib(256);
/// A rest of a payload longer than this is received straight into its own buffer.
const DIRECT_FROM: Bytes = Bytes::kib(32);
/// Replies gathered into one send, in bytes.
const SEND_BATCH: usize = 2 << 20;
/// Longest sentence sent with an error.
const SENTENCE_MAX: usize = 1024;

/// One client.
pub(super) struct Connection {
    // Fixed.
    pub(super) id: u64,
    pub(super) peer: String,
    since: Instant,
    stream: Rc<Stream>,
    reading: Rc<TransferTimeout>,
    sending: TransferTimeout,
    /// What all connections of its host may hold of the server's pool.
    share: Rc<Semaphore>,
    // Once.
    shelf: RefCell<Option<Rc<Shelf>>>,
    flags: Flags,
    // Per request.
    counters: LiveCounters,
    holding: Holding,
    workers: RefCell<Workers>,
    outgoing: Outbox<Reply>,
    /// Draining has begun, or its last request is done.
    drained: Event,
}

/// What happens to a connection once.
#[derive(Default)]
struct Flags {
    encrypted: Cell<bool>,
    draining: Cell<bool>,
    cut: Cell<bool>,
    /// Sending failed: replies go nowhere from now on.
    deaf: Cell<bool>,
}

/// Requests not answered, refused ones among them, and the bytes they hold.
#[derive(Default)]
struct Holding {
    requests: Cell<usize>,
    bytes: Cell<u64>,
    /// Something was freed.
    room: Event,
}

impl Holding {
    fn take(&self, bytes: u64) {
        self.requests.set(self.requests.get() + 1);
        self.bytes.set(self.bytes.get() + bytes);
    }

    fn free(&self, bytes: u64) {
        self.requests.set(self.requests.get() - 1);
        self.bytes.set(self.bytes.get() - bytes);
        self.room.notify_all();
    }
}

/// A request on its way to a device.
struct Job {
    command: Command,
    cookie: u64,
    data: Option<View>,
    held: RequestPermit,
}

/// What one request holds of the limits; given back when dropped.
struct RequestPermit {
    connection: Rc<Connection>,
    bytes: u64,
    /// Its part of the host's share and of the server's pool, beyond the connection's allowance.
    pool: Option<(Permit, Permit)>,
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        self.connection.holding.free(self.bytes);
    }
}

struct Reply {
    cookie: u64,
    answer: Response,
    held: RequestPermit,
}

/// Jobs waiting for a worker, and workers waiting for a job.
#[derive(Default)]
struct Workers {
    jobs: VecDeque<Job>,
    idle: Vec<usize>,
    /// One per worker: set while it is idle.
    wakers: Vec<Option<Waker>>,
    closed: bool,
}

/// How the transmission came to its end.
enum End {
    /// DISC, or the client hung up between requests.
    Left,
    /// The server drains and nothing is in flight.
    Drained,
    /// The stream failed or ended in the middle of a request.
    Lost(io::Error),
    /// What came is not NBD.
    Violation(&'static str),
}

/// A negotiation that led to transmission.
struct Entered {
    wire: Rc<Wire>,
    inbox: Inbox<Wire>,
    agreement: Box<Agreement>,
    shelf: Rc<Shelf>,
}

impl Member for Connection {
    fn is_opening(&self) -> bool {
        self.shelf.borrow().is_none()
    }

    fn overdue(&self, now: Instant) -> Option<&'static str> {
        let late = self.reading.overdue(now) || self.sending.overdue(now);
        late.then_some("the client stalled")
    }

    fn is_cut(&self) -> bool {
        self.flags.cut.get()
    }

    fn origin(&self) -> Origin {
        self.stream.origin()
    }

    fn cut(&self, why: &'static str) {
        tracing::warn!(peer = self.peer, why, "cut");
        self.flags.cut.set(true);
        self.stream.abort();
    }

    /// From now on requests are refused; once none is in flight the connection ends.
    fn drain(&self) {
        self.flags.draining.set(true);
        self.drained.notify_all();
    }
}

impl Connection {
    pub(super) fn new(
        id: u64,
        stream: Stream,
        limits: &Limits,
        share: Rc<Semaphore>,
    ) -> Rc<Connection> {
        let rate = limits.rate_min_bytes_per_second;
        Rc::new(Connection {
            id,
            peer: stream.peer(),
            since: env::now(),
            stream: Rc::new(stream),
            reading: Rc::new(TransferTimeout::new(limits.stall, rate)),
            sending: TransferTimeout::new(limits.stall, rate),
            share,
            shelf: RefCell::default(),
            flags: Flags::default(),
            counters: LiveCounters::default(),
            holding: Holding::default(),
            workers: RefCell::default(),
            outgoing: Outbox::default(),
            drained: Event::default(),
        })
    }

    pub(super) fn uses(&self, shelf: &Rc<Shelf>) -> bool {
        self.shelf
            .borrow()
            .as_ref()
            .is_some_and(|mine| Rc::ptr_eq(mine, shelf))
    }

    pub(super) fn snapshot(&self) -> ConnectionSnapshot {
        ConnectionSnapshot {
            id: self.id,
            peer: self.peer.clone(),
            export: self
                .shelf
                .borrow()
                .as_ref()
                .map(|shelf| shelf.export.name.clone()),
            tls: self.flags.encrypted.get(),
            age: env::now().since(self.since),
            held_bytes: self.holding.bytes.get(),
            counts: self.counters.counts(),
        }
    }

    /// Serves this client, from its greeting to its end.
    pub(super) async fn run(self: &Rc<Self>, server: &Rc<Server>) {
        match env::timeout(server.limits.negotiation, self.negotiate(server)).await {
            Ok(Ok(entered)) => self.transmit(server, entered).await,
            Ok(Err(why)) => {
                server.negotiation_failed();
                tracing::debug!(peer = self.peer, %why, "negotiation ended");
                self.stream.shutdown_write();
            }
            Err(late) => {
                server.negotiation_failed();
                tracing::debug!(peer = self.peer, %late, "negotiation cut");
                self.flags.cut.set(true);
                self.stream.abort();
            }
        }
    }

    // --- negotiation --------------------------------------------------------------------------------

    async fn negotiate(&self, server: &Server) -> io::Result<Entered> {
        let mut wire = Rc::new(Wire::Plain(Rc::clone(&self.stream)));
        let receiving = |wire: &Rc<Wire>| {
            let timeout = Rc::clone(&self.reading);
            Inbox::new(Rc::clone(wire), NEGOTIATION_BUFFER, DIRECT_FROM, timeout)
        };
        let mut inbox = receiving(&wire);
        wire.write_all(vec![View::copy_of(&proto::greeting())])
            .await?;
        let flags = u32::from_be_bytes(inbox.take::<CLIENT_FLAGS_LEN>().await?);
        let tls = match &server.tls {
            None => TlsState::Unavailable,
            Some(tls) if tls.mode == TlsMode::Required => TlsState::Required,
            Some(_) => TlsState::Offered,
        };
        let mut negotiation = Negotiation::new(flags, tls).map_err(io::Error::other)?;
        let mut prepared = Prepared::default();
        loop {
            let head = inbox.take::<OPTION_LEN>().await?;
            let Some((option, len)) = proto::option_head(&head) else {
                return Err(io::Error::other("an option begins with the wrong magic"));
            };
            let mut out = Vec::new();
            let step = if len > OPTION_MAX {
                inbox.drain(u64::from(len)).await?;
                negotiation.oversized(option, len, &mut out)
            } else {
                inbox.need(len as usize).await?;
                // All of it is here: what takes time from now on is not the client's.
                self.reading.end();
                let data = &inbox.here()[..len as usize];
                let wanted = negotiation.wanted(option, data);
                prepared.prepare(server, wanted).await;
                let step = negotiation.option(option, data, &prepared.catalogue(server), &mut out);
                inbox.skip(len as usize);
                step
            };
            self.reading.end();
            // Held from here on: an export removed while the reply is sent ends this connection too.
            let shelf = match &step {
                Step::Enter(agreement) => prepared.shelf(server, &agreement.offer.name),
                _ => None,
            };
            self.shelf.borrow_mut().clone_from(&shelf);
            if !out.is_empty() {
                wire.write_all(vec![View::copy_of(&out)]).await?;
            }
            match step {
                Step::Continue => {}
                Step::Close(why) => return Err(io::Error::other(why)),
                Step::StartTls => {
                    if !inbox.here().is_empty() {
                        let why = "bytes in the clear after STARTTLS, which may be injected";
                        return Err(io::Error::other(why));
                    }
                    let (started, allowed) = self.start_tls(server).await?;
                    wire = Rc::new(started);
                    prepared.allow(allowed);
                    inbox = receiving(&wire);
                    negotiation.tls_started();
                    self.flags.encrypted.set(true);
                }
                Step::Enter(agreement) => {
                    let shelf = shelf.expect("an export just offered is there");
                    let inbox = inbox.grown(RECEIVE_BUFFER, DIRECT_FROM);
                    return Ok(Entered {
                        wire,
                        inbox,
                        agreement,
                        shelf,
                    });
                }
            }
        }
    }

    /// The wire through TLS, and which exports the client's certificate opens.
    async fn start_tls(&self, server: &Server) -> io::Result<(Wire, Allowed)> {
        let tls = server
            .tls
            .as_ref()
            .ok_or_else(|| io::Error::other("no certificate"))?;
        let session = rustls::ServerConnection::new(std::sync::Arc::clone(&tls.config))
            .map_err(io::Error::other)?;
        let stream = Rc::clone(&self.stream);
        let wire = TlsWire::handshake(stream, session.into()).await?;
        let allowed = wire.with_certificates(|certificates| tls.allowed(certificates));
        Ok((Wire::Tls(Box::new(wire)), allowed))
    }

    // --- transmission -------------------------------------------------------------------------------

    async fn transmit(self: &Rc<Self>, server: &Rc<Server>, entered: Entered) {
        let Entered {
            wire,
            inbox,
            agreement,
            shelf,
        } = entered;
        tracing::info!(
            peer = self.peer,
            export = agreement.offer.name,
            tls = self.flags.encrypted.get(),
            "client connected"
        );
        let structured = agreement.structured;
        let writer = {
            let (connection, wire) = (Rc::clone(self), Rc::clone(&wire));
            env::spawn(async move { connection.write_replies(&wire, structured).await })
        };
        let end = {
            let reading = self.read_requests(server, &agreement, &shelf, inbox);
            either(reading, self.wait_drained()).await
        };
        self.reading.end();
        self.close_workers();
        while self.holding.requests.get() > 0 {
            self.holding.room.wait().await;
        }
        self.outgoing.close();
        writer.await;
        let lost = matches!(end, End::Lost(_));
        match end {
            End::Left => tracing::info!(peer = self.peer, "client left"),
            End::Drained => tracing::info!(peer = self.peer, "client sent away"),
            End::Lost(error) => tracing::info!(peer = self.peer, %error, "client lost"),
            End::Violation(why) => {
                server.violated();
                tracing::warn!(peer = self.peer, why, "client broke the protocol");
            }
        }
        if !self.flags.deaf.get() && !lost {
            let goodbye = async {
                wire.finish().await;
                // Closing with bytes unread would make the kernel throw away our last replies.
                let mut buf = Buf::for_read(4096);
                while let Ok((len, back)) = wire.read(buf).await {
                    if len == 0 {
                        break;
                    }
                    buf = back;
                }
            };
            // A client that does not hang up in time is hung up on.
            let _ = env::timeout(server.limits.linger, goodbye).await;
        }
        self.stream.abort();
    }

    async fn wait_drained(&self) -> End {
        while !self.flags.draining.get() || self.counters.counts().in_flight > 0 {
            self.drained.wait().await;
        }
        End::Drained
    }

    async fn read_requests(
        self: &Rc<Self>,
        server: &Rc<Server>,
        agreement: &Agreement,
        shelf: &Rc<Shelf>,
        mut inbox: Inbox<Wire>,
    ) -> End {
        let terms = agreement.terms();
        loop {
            let Some(head) = inbox.peek::<REQUEST_LEN>() else {
                match inbox.receive().await {
                    Ok(true) => continue,
                    Ok(false) if inbox.here().is_empty() => return End::Left,
                    Ok(false) => return End::Lost(io::ErrorKind::UnexpectedEof.into()),
                    Err(error) => return End::Lost(error),
                }
            };
            inbox.skip(REQUEST_LEN);
            self.reading.end();
            let Some(request) = Request::parse(&head) else {
                return End::Violation("a request begins with the wrong magic");
            };
            let judged = match proto::judge(&request, &terms) {
                Ok(Command::Disconnect) => return End::Left,
                Ok(_) if self.flags.draining.get() => {
                    Err((Errno::Shutdown, "the server is shutting down".to_owned()))
                }
                Ok(command) => Ok(command),
                Err(refusal) => Err((refusal.errno, refusal.why)),
            };
            match judged {
                Ok(command) => {
                    let held = self.admit(server, charge(&command).0).await;
                    self.counters.asked(&command);
                    shelf.counters.asked(&command);
                    let data = if let Command::Write { len, .. } = command {
                        let filled = inbox.fill(Buf::for_read(len as usize)).await;
                        self.reading.end();
                        match filled {
                            Ok(buf) => Some(buf.freeze()),
                            Err(error) => {
                                // It never became a request of the device; nothing is sent.
                                self.answered(shelf, true);
                                return End::Lost(error);
                            }
                        }
                    } else {
                        None
                    };
                    let cookie = request.cookie;
                    let job = Job {
                        command,
                        cookie,
                        data,
                        held,
                    };
                    self.start(job, shelf, terms.structured);
                }
                Err((errno, why)) => {
                    let held = self.admit(server, 0).await;
                    self.counters.refused();
                    shelf.counters.refused();
                    let drained = inbox.drain(u64::from(request.payload())).await;
                    self.reading.end();
                    let answer = Response::Failed(errno, why);
                    self.reply(Reply {
                        cookie: request.cookie,
                        answer,
                        held,
                    });
                    if let Err(error) = drained {
                        return End::Lost(error);
                    }
                }
            }
        }
    }

    /// Waits until one more request of `bytes` may be held.
    async fn admit(self: &Rc<Self>, server: &Server, bytes: u64) -> RequestPermit {
        let limits = &server.limits;
        let full = || {
            let held = self.holding.requests.get();
            held >= limits.requests_per_connection
                || (held > 0 && self.holding.bytes.get() + bytes > limits.bytes_per_connection.0)
        };
        while full() {
            self.holding.room.wait().await;
        }
        self.holding.take(bytes);
        let mut held = RequestPermit {
            connection: Rc::clone(self),
            bytes,
            pool: None,
        };
        if self.holding.bytes.get() > limits.allowance.0 {
            // In this order: a connection that waits for its own host's share keeps nothing from others.
            let share = self.share.acquire(bytes).await;
            held.pool = Some((share, server.pool.acquire(bytes).await));
        }
        held
    }

    fn answered(&self, shelf: &Shelf, failed: bool) {
        self.counters.answered(failed);
        shelf.counters.answered(failed);
        if self.flags.draining.get() && self.counters.counts().in_flight == 0 {
            self.drained.notify_all();
        }
    }

    // --- workers ------------------------------------------------------------------------------------

    fn start(self: &Rc<Self>, job: Job, shelf: &Rc<Shelf>, structured: bool) {
        let mut workers = self.workers.borrow_mut();
        workers.jobs.push_back(job);
        if let Some(idle) = workers.idle.pop() {
            let waker = workers.wakers[idle].take();
            drop(workers);
            waker.expect("an idle worker left its waker").wake();
            return;
        }
        let number = workers.wakers.len();
        workers.wakers.push(None);
        drop(workers);
        let (connection, shelf) = (Rc::clone(self), Rc::clone(shelf));
        env::spawn(async move {
            while let Some(job) = connection.next_job(number).await {
                let Job {
                    command,
                    cookie,
                    data,
                    held,
                } = job;
                let answer = shelf.target.carry_out(command, data, structured).await;
                if let Response::Failed(errno, why) = &answer
                    && *errno != Errno::NotSupported
                {
                    tracing::warn!(
                        export = shelf.export.name,
                        errno = errno.word(),
                        why,
                        "request failed"
                    );
                }
                connection.answered(&shelf, matches!(answer, Response::Failed(..)));
                connection.reply(Reply {
                    cookie,
                    answer,
                    held,
                });
            }
        });
    }

    fn next_job(&self, worker: usize) -> impl Future<Output = Option<Job>> + '_ {
        poll_fn(move |cx| {
            let mut workers = self.workers.borrow_mut();
            if let Some(job) = workers.jobs.pop_front() {
                // Woken by something else while idle: no longer to be called.
                if workers.wakers[worker].take().is_some() {
                    workers.idle.retain(|&idle| idle != worker);
                }
                return Poll::Ready(Some(job));
            }
            if workers.closed {
                return Poll::Ready(None);
            }
            if workers.wakers[worker].replace(cx.waker().clone()).is_none() {
                workers.idle.push(worker);
            }
            Poll::Pending
        })
    }

    fn close_workers(&self) {
        let mut workers = self.workers.borrow_mut();
        workers.closed = true;
        workers.idle.clear();
        let wakers: Vec<Waker> = workers.wakers.iter_mut().filter_map(Option::take).collect();
        drop(workers);
        for waker in wakers {
            waker.wake();
        }
    }

    // --- writer -------------------------------------------------------------------------------------

    fn reply(&self, reply: Reply) {
        if !self.flags.deaf.get() {
            self.outgoing.push(reply);
        }
    }

    /// Sends all pieces; a client that takes none of them for long is noticed, however many there are.
    async fn send(&self, wire: &Wire, pieces: Vec<View>) -> io::Result<()> {
        for run in in_steps(pieces) {
            let bytes = run.iter().map(|piece| piece.len()).sum();
            wire.write_all(run).await?;
            self.sending.moved(bytes);
        }
        Ok(())
    }

    async fn write_replies(&self, wire: &Wire, structured: bool) {
        let mut pieces = Pieces::default();
        let mut held: Vec<RequestPermit> = Vec::new();
        while self.outgoing.wait().await {
            while pieces.bytes() < SEND_BATCH
                && let Some(reply) = self.outgoing.pop()
            {
                encode(&mut pieces, reply.cookie, reply.answer, structured);
                held.push(reply.held);
            }
            self.sending.begin(pieces.bytes());
            let sent = self.send(wire, pieces.take()).await;
            self.sending.end();
            if let Err(error) = sent {
                tracing::debug!(peer = self.peer, %error, "replies cannot be sent");
                self.flags.deaf.set(true);
                self.stream.abort();
                self.outgoing.clear();
            }
            held.clear();
        }
    }
}

/// Puts one answer on the wire: a simple reply, or chunks.
fn encode(out: &mut Pieces, cookie: u64, answer: Response, structured: bool) {
    match answer {
        Response::Done => out.put(&proto::simple_reply(cookie, 0)),
        Response::Failed(errno, _) if !structured => {
            out.put(&proto::simple_reply(cookie, errno.code()));
        }
        Response::Failed(errno, why) => {
            let why = proto::shortened(&why, SENTENCE_MAX);
            let len = 6 + why.len() as u32;
            out.put(&proto::chunk_head(chunk::DONE, chunk::ERROR, cookie, len));
            out.put(&errno.code().to_be_bytes());
            out.put(&(why.len() as u16).to_be_bytes());
            out.put(why.as_bytes());
        }
        Response::Data { data, .. } if !structured => {
            out.put(&proto::simple_reply(cookie, 0));
            out.put_view(data);
        }
        Response::Data { data, .. } if data.is_empty() => {
            out.put(&proto::chunk_head(chunk::DONE, chunk::NONE, cookie, 0));
        }
        Response::Data { at, data } => put_data(out, chunk::DONE, cookie, at, data),
        Response::Parts(parts) => {
            let last = parts.len() - 1;
            for (number, part) in parts.into_iter().enumerate() {
                let flags = if number == last { chunk::DONE } else { 0 };
                match part {
                    Part::Data { at, data } => put_data(out, flags, cookie, at, data),
                    Part::Hole { at, len } => {
                        out.put(&proto::chunk_head(flags, chunk::OFFSET_HOLE, cookie, 12));
                        out.put(&at.to_be_bytes());
                        out.put(&len.to_be_bytes());
                    }
                }
            }
        }
        Response::Extents(extents) => {
            let len = 4 + 8 * extents.len() as u32;
            out.put(&proto::chunk_head(
                chunk::DONE,
                chunk::BLOCK_STATUS,
                cookie,
                len,
            ));
            out.put(&ALLOCATION_ID.to_be_bytes());
            for (len, flags) in extents {
                out.put(&len.to_be_bytes());
                out.put(&flags.to_be_bytes());
            }
        }
    }
}

fn put_data(out: &mut Pieces, flags: u16, cookie: u64, at: u64, data: View) {
    let len = 8 + data.len() as u32;
    out.put(&proto::chunk_head(flags, chunk::OFFSET_DATA, cookie, len));
    out.put(&at.to_be_bytes());
    out.put_view(data);
}
