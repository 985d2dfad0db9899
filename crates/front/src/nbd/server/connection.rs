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

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use base::{Buf, Instant, Nanos, View};
use env::net::message::{Channel as _, Inbox, Outbox, Pieces, TransferTimeout, either, in_steps};
use env::net::{Member, Origin, Stream};
use env::sync::{Event, Semaphore};

use super::super::negotiate::Agreement;
use super::super::proto::{self, Command, Errno, REQUEST_LEN, Refusal, Request};
use super::counters::{ConnectionSnapshot, LiveCounters};
use super::ending::{End, Flags};
use super::handshake::{Entered, negotiate};
use super::holding::{Holding, RequestPermit};
use super::leaving::{Changing, Leaving};
use super::limits::Limits;
use super::replies::encode;
use super::requests::{Response, charge};
use super::workers::Workers;
use super::{Server, Shelf};
use tls::Wire;

/// So many seconds later it is asked again whether a certificate is over.
const CLOCK: u64 = 3600;
/// Replies gathered into one send, in bytes.
const SEND_BATCH: usize = 2 << 20;
/// One client.
pub(super) struct Connection {
    // Fixed.
    pub(super) id: u64,
    pub(super) peer: String,
    since: Instant,
    pub(super) stream: Rc<Stream>,
    pub(super) reading: Rc<TransferTimeout>,
    sending: TransferTimeout,
    /// What all connections of its host may hold of the server's pool.
    share: Rc<Semaphore>,
    // Once.
    pub(super) shelf: RefCell<Option<Rc<Shelf>>>,
    pub(super) flags: Flags,
    // Per request.
    counters: LiveCounters,
    holding: Rc<Holding>,
    workers: Workers<Job>,
    outgoing: Outbox<Reply>,
    changing: Changing,
    /// Draining has begun, its last request is done, or it was cut.
    ending: Event,
}

/// A request on its way to a device.
struct Job {
    command: Command,
    cookie: u64,
    data: Option<View>,
    held: RequestPermit,
}

/// An answer on its way to the client.
struct Reply {
    cookie: u64,
    answer: Response,
    held: RequestPermit,
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
        self.hang_up();
    }

    /// From now on no request is read; once none is in flight the connection ends. A refusal would fail what a client
    /// asks again over its next connection.
    fn drain(&self) {
        self.flags.draining.set(true);
        self.ending.notify_all();
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
            holding: Rc::default(),
            workers: Workers::default(),
            outgoing: Outbox::default(),
            changing: Changing::default(),
            ending: Event::default(),
        })
    }

    /// Takes no further request, also none that is here already.
    fn hang_up(&self) {
        self.flags.cut.set(true);
        self.stream.abort();
        self.ending.notify_all();
    }

    /// If its client uses the export of `leaving` and has hung up: who comes to it waits until all that it asked is done.
    pub(super) fn note_hang_up(&self, leaving: &Leaving) {
        let shelf = self.shelf.borrow();
        let uses = shelf.as_ref().is_some_and(|it| it.leaving.is(leaving));
        if uses && self.stream.is_hung_up() {
            self.changing.hang_up(leaving);
        }
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
            held_bytes: self.holding.bytes(),
            counts: self.counters.counts(),
        }
    }

    /// Serves this client, from its greeting to its end.
    pub(super) async fn run(self: &Rc<Self>, server: &Rc<Server>) {
        match env::timeout(server.limits.negotiation, negotiate(self, server)).await {
            Ok(Ok(entered)) => {
                let _end = entered.expires.map(|last| self.end_after(last));
                self.transmit(server, entered).await;
            }
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

    /// Cuts it once the certificate that opened it is over; `last` is its last second since 1970.
    fn end_after(self: &Rc<Self>, last: u64) -> env::CancelOnDrop<()> {
        let own = Rc::downgrade(self);
        env::cancel_scope(env::spawn(async move {
            let now = || env::wall_clock().0 / Nanos::secs(1).0;
            // The clock may be set meanwhile.
            while let Some(left) = last.checked_sub(now()) {
                env::sleep(Nanos::secs(left.saturating_add(1).min(CLOCK))).await;
            }
            if let Some(own) = own.upgrade() {
                own.cut("the certificate that it showed has expired");
            }
        }))
    }

    // --- transmission -------------------------------------------------------------------------------

    async fn transmit(self: &Rc<Self>, server: &Rc<Server>, entered: Entered) {
        let Entered {
            wire,
            inbox,
            agreement,
            shelf,
            expires: _,
        } = entered;
        tracing::info!(
            peer = self.peer,
            export = agreement.offer.name,
            tls = self.flags.encrypted.get(),
            "client connected"
        );
        self.changing.enter();
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
        self.changing.leave(&shelf.leaving);
        self.workers.close();
        self.holding.wait_empty().await;
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
            self.ending.wait().await;
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
        while !self.flags.draining.get() {
            let request = match self.next_request(&mut inbox).await {
                Ok(request) => request,
                Err(end) => return end,
            };
            let judged = proto::judge(&request, &terms);
            if judged == Ok(Command::Disconnect) {
                return End::Left;
            }
            let bytes = judged.as_ref().map_or(0, |command| charge(command).0);
            let Some(held) = self.admit(server, bytes).await else {
                return End::Lost(io::ErrorKind::ConnectionAborted.into());
            };
            let taken = match judged {
                Ok(command) => {
                    self.counters.asked(&command);
                    shelf.counters.asked(&command);
                    let data = self.payload(&command, &mut inbox).await;
                    if data.is_err() {
                        // It never became a request of the device; nothing is sent.
                        self.answered(shelf, true);
                    }
                    let cookie = request.cookie;
                    data.map(|data| {
                        let job = Job {
                            command,
                            cookie,
                            data,
                            held,
                        };
                        self.start(job, shelf, terms.structured);
                    })
                }
                Err(Refusal { errno, why }) => {
                    self.counters.refused();
                    shelf.counters.refused();
                    let drained = inbox.drain(u64::from(request.payload())).await;
                    self.reading.end();
                    self.reply(Reply {
                        cookie: request.cookie,
                        answer: Response::Failed(errno, why),
                        held,
                    });
                    drained
                }
            };
            if let Err(error) = taken {
                return End::Lost(error);
            }
        }
        self.wait_drained().await
    }

    /// Waits until one more request of `bytes` may be held; none once the connection is cut: what a client asked before is
    /// not begun behind what it asks over its next one.
    async fn admit(&self, server: &Server, bytes: u64) -> Option<RequestPermit> {
        let (limits, share, pool) = (&server.limits, &self.share, &server.pool);
        let admitted = async { Some(self.holding.admit(limits, share, pool, bytes).await) };
        let cut = async {
            while !self.flags.cut.get() {
                self.ending.wait().await;
            }
            None
        };
        let held = either(admitted, cut).await;
        held.filter(|_| !self.flags.cut.get())
    }

    /// The next request, or how the transmission ended without one.
    #[inline]
    async fn next_request(&self, inbox: &mut Inbox<Wire>) -> Result<Request, End> {
        let head = loop {
            if let Some(head) = inbox.peek::<REQUEST_LEN>() {
                break head;
            }
            match inbox.receive().await {
                Ok(true) => {}
                Ok(false) if inbox.here().is_empty() => return Err(End::Left),
                Ok(false) => return Err(End::Lost(io::ErrorKind::UnexpectedEof.into())),
                Err(error) => return Err(End::Lost(error)),
            }
        };
        inbox.skip(REQUEST_LEN);
        self.reading.end();
        let wrong = End::Violation("a request begins with the wrong magic");
        Request::parse(&head).ok_or(wrong)
    }

    /// What a write is to write; nothing comes with other commands.
    #[inline]
    async fn payload(
        &self,
        command: &Command,
        inbox: &mut Inbox<Wire>,
    ) -> io::Result<Option<View>> {
        let Command::Write { len, .. } = *command else {
            return Ok(None);
        };
        let filled = inbox.fill(Buf::for_read(len as usize)).await;
        self.reading.end();
        filled.map(|buf| Some(buf.freeze()))
    }

    fn answered(&self, shelf: &Shelf, failed: bool) {
        self.counters.answered(failed);
        shelf.counters.answered(failed);
        if self.flags.draining.get() && self.counters.counts().in_flight == 0 {
            self.ending.notify_all();
        }
    }

    // --- workers ------------------------------------------------------------------------------------

    fn start(self: &Rc<Self>, job: Job, shelf: &Rc<Shelf>, structured: bool) {
        // From here on it counts: the connection may end before a worker takes it.
        self.changing.begin(job.command.changes());
        let Some(number) = self.workers.put(job) else {
            return;
        };
        let (connection, shelf) = (Rc::clone(self), Rc::clone(shelf));
        env::spawn(async move {
            while let Some(job) = connection.workers.next(number).await {
                let Job {
                    command,
                    cookie,
                    data,
                    held,
                } = job;
                let request = env::client_request();
                let changes = command.changes();
                let answer = shelf.target.carry_out(command, data, structured).await;
                drop(request);
                connection.changing.end(changes);
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
                self.hang_up();
                self.outgoing.clear();
            }
            held.clear();
        }
    }
}
