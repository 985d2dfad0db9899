//! One client, from hello to goodbye: which task reads, works, writes?
//!
//! ```text
//! reader: bytes -> header, fields -> admit -> data -> a task: Session --> answers --> writer: one vectored send
//!            ^ not read from while too much is held                                 | frees what was held
//! ```
//!
//! ```text
//! Opening -> In       hello and credentials are good
//! Opening -> Gone     they are not, a deadline, a cut
//! In      -> Leaving  end of stream, a violation, or drained (nothing in flight)
//! Leaving -> Gone     every request answered by the store, every answer sent or unsendable
//! ```
//!
//! Always true:
//! 1. Each request that was begun is carried out to its end, even if its client is gone by then.
//! 2. What a request holds is freed once: when its answer was sent or can no longer be.
//! 3. The data of a request that is refused are taken off the stream, so that the next one is found.

use std::cell::Cell;
use std::io;
use std::rc::Rc;

use base::{Buf, Bytes, Instant, Nanos, View};
use env::net::message::{Outbox, either};
use env::net::{Member, Origin, Stream};
use env::sync::{Event, Permit};

use super::figures::ConnectionFigures;
use super::requests::{Behalf, SMALL, carry_out, charge, only_looks};
use super::{Limits, Server};
use crate::net::wire::state::encode;
use crate::net::wire::stream::{Inbox, Pieces, TransferTimeout, receiving};
use crate::net::wire::{
    CLIENT_HELLO_LEN, Challenge, ClientHello, DATA_MAX, Failure, HEADER_LEN, Header, Kind,
    Malformed, NodeKey, Op, Opened, Proof, REQUEST_META_MAX, RESPONSE_META_MAX, RefusedKind,
    Request, Response, ServerHello, VERSION, Ways,
};
use crate::ops;
use crate::qos::load_report::{ClientTag, EVERY_LEAST};
use crate::qos::manager::Manager;
use crate::qos::session::{Access as NodeAccess, Buffered, Peer, Phase, Session};

/// Answers gathered into one send, in bytes.
const SEND_BATCH: usize = 1 << 20;
/// The number of a frame that concerns the whole connection.
const CONNECTION: u16 = 0;

/// How a client came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Open,
    NodeKey,
    Capability,
}

impl Access {
    fn name(self) -> &'static str {
        match self {
            Access::Open => "open",
            Access::NodeKey => "node key",
            Access::Capability => "capability",
        }
    }
}

/// What a connection has done.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    pub answered: u64,
    pub failed: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
}

impl Counts {
    pub fn add(&mut self, other: &Counts) {
        self.answered += other.answered;
        self.failed += other.failed;
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
    }
}

/// One client.
pub(super) struct Connection {
    // Fixed.
    pub id: u64,
    pub peer: String,
    since: Instant,
    stream: Rc<Stream>,
    reading: Rc<TransferTimeout>,
    sending: TransferTimeout,
    /// How long the peer may say nothing with nothing under way.
    idle: Nanos,
    /// How a peer is hurried on while others wait for the memory that it holds.
    hurry: Hurry,
    // Once.
    access: Cell<Option<Access>>,
    draining: Cell<bool>,
    cut: Cell<bool>,
    /// Sending failed: answers go nowhere from now on.
    deaf: Cell<bool>,
    /// Its capability is good no more: nothing is answered from now on.
    revoked: Cell<bool>,
    // Per request.
    counts: Cell<Counts>,
    /// When the peer was last heard or answered.
    heard: Cell<Instant>,
    in_flight: Cell<u64>,
    /// A request was read and waits for room.
    admitting: Cell<bool>,
    /// Since when data come in, and go out, and how many bytes.
    receiving: Cell<Option<(Instant, u64)>>,
    sent_since: Cell<Option<(Instant, u64)>>,
    /// Requests not answered, refused ones among them, and the bytes they hold.
    held_requests: Cell<u32>,
    held_bytes: Cell<u64>,
    reporting: Cell<Option<Reporting>>,
    outgoing: Outbox<Reply>,
    /// Something held was freed.
    room: Event,
    /// Draining has begun, or its last request is done.
    drained: Event,
}

/// A request that waits for memory, counted until it has it.
struct Waiting(Rc<Cell<u64>>);

impl Waiting {
    fn begin(count: &Rc<Cell<u64>>) -> Waiting {
        count.set(count.get() + 1);
        Waiting(Rc::clone(count))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// What one request holds of the limits; given back when dropped.
struct Charge {
    connection: Rc<Connection>,
    server: Rc<Server>,
    bytes: u64,
    /// Its part of the session's memory and of the server's pool, beyond the connection's allowance.
    _beyond: Option<(Buffered, Permit)>,
}

impl Drop for Charge {
    fn drop(&mut self) {
        let connection = &self.connection;
        let requests = connection.held_requests.get() - 1;
        connection.held_requests.set(requests);
        let bytes = connection.held_bytes.get() - self.bytes;
        connection.held_bytes.set(bytes);
        self.server.count(|totals| totals.held -= self.bytes);
        connection.room.notify_all();
    }
}

struct Reply {
    op: u16,
    id: u64,
    answer: Response,
    /// The goodbye holds nothing.
    held: Option<Charge>,
}

/// How it came to its end.
enum End {
    /// The client hung up between requests.
    Left,
    /// The server drains and nothing is in flight.
    Drained,
    /// The stream failed or ended in the middle of a request.
    Lost(io::Error),
    /// What came is not the protocol: the frame it concerns, and why.
    Violation(u64, String),
    /// The capability it came with is good no more, and why.
    Revoked(String),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> End {
        End::Lost(error)
    }
}

/// A client that was let in.
struct In {
    inbox: Inbox,
    terms: Terms,
}

/// On what terms.
struct Terms {
    behalf: Behalf,
    /// The capability it came with.
    token: Option<String>,
    /// How often keys had been voided when the capability was looked at.
    keys: u64,
    /// Shows this connection among the session's.
    _peer: Peer,
}

impl Terms {
    /// Takes what `request` says of all that comes behind it: here, in the order in which requests come, so that none is begun
    /// without it. There is one fence for a connection's whole life.
    fn taking(
        &mut self,
        request: Request,
        reporting: &Cell<Option<Reporting>>,
    ) -> Result<Request, Failure> {
        let behalf = &mut self.behalf;
        match &request {
            Request::Fence { object, token } => match &behalf.fence {
                Some(fence) if fence.is(object, *token) => {}
                Some(_) => {
                    let text = "the connection is guarded already; connect again to work under another mark";
                    return Err(Failure::refused(RefusedKind::OutOfTurn, text));
                }
                None => behalf.fence = Some(Rc::new(behalf.session.fence(object, *token)?)),
            },
            Request::ClientTag { tag, every } => {
                if behalf.access == Access::Capability {
                    let text = "cannot tell how long the queue is: this is for nodes alone; connect with the node key";
                    return Err(Failure::refused(RefusedKind::NodeKeyOnly, text));
                }
                behalf.session.prefer(tag.origin.class);
                behalf.tag = *tag;
                reporting.set(Some(Reporting {
                    every: (*every).max(EVERY_LEAST),
                    last: env::now(),
                }));
            }
            _ => {}
        }
        Ok(request)
    }
}

/// States go along with answers.
#[derive(Clone, Copy)]
struct Reporting {
    every: Nanos,
    last: Instant,
}

/// While others wait for memory a peer that holds some is given less time.
struct Hurry {
    /// Requests of the whole server that wait for memory.
    waiting: Rc<Cell<u64>>,
    stall: Nanos,
    rate: u64,
}

impl Hurry {
    /// Does a transfer of so many bytes, under way since then, keep others waiting for too long?
    fn overdue(&self, now: Instant, transfer: Option<(Instant, u64)>) -> bool {
        let Some((since, bytes)) = transfer.filter(|_| self.waiting.get() > 0) else {
            return false;
        };
        let longest = self.stall + Nanos::from_secs_f64(bytes as f64 / self.rate as f64);
        now.since(since) > longest
    }
}

/// Why a client was not let in.
enum NotIn {
    Lost(io::Error),
    /// What the server answers.
    Refused(u16, u64, Failure),
    /// The server has answered already.
    Version(u16, u16),
}

impl From<io::Error> for NotIn {
    fn from(error: io::Error) -> NotIn {
        NotIn::Lost(error)
    }
}

impl From<Malformed> for NotIn {
    fn from(why: Malformed) -> NotIn {
        let failure = Failure::refused(RefusedKind::Malformed, why.to_string());
        NotIn::Refused(CONNECTION, 0, failure)
    }
}

impl Member for Connection {
    fn is_opening(&self) -> bool {
        self.access.get().is_none()
    }

    fn overdue(&self, now: Instant) -> Option<&'static str> {
        if self.reading.overdue(now) {
            return Some("the peer stalled in the middle of a message");
        }
        if self.sending.overdue(now) {
            return Some("the peer leaves its answers unread");
        }
        if self.hurry.overdue(now, self.receiving.get()) {
            let why = "the peer stalled in the middle of a message while others wait for memory";
            return Some(why);
        }
        if self.hurry.overdue(now, self.sent_since.get()) {
            return Some("the peer leaves its answers unread while others wait for memory");
        }
        let silent = now.since(self.heard.get()) > self.idle;
        // A peer that waits for the server is not silent.
        let waits = self.held_requests.get() > 0 || self.admitting.get() || self.is_opening();
        (silent && !waits).then_some("the peer has gone silent")
    }

    fn is_cut(&self) -> bool {
        self.cut.get()
    }

    fn origin(&self) -> Origin {
        self.stream.origin()
    }

    fn cut(&self, why: &'static str) {
        tracing::warn!(peer = self.peer, why, "cut");
        self.cut.set(true);
        self.stream.abort();
    }

    /// From now on requests are refused; once none is in flight the connection ends.
    fn drain(&self) {
        self.draining.set(true);
        self.drained.notify_all();
    }
}

impl Connection {
    pub fn new(
        id: u64,
        stream: Stream,
        limits: &Limits,
        waiting: &Rc<Cell<u64>>,
    ) -> Rc<Connection> {
        let rate = limits.rate_min_bytes_per_second;
        Rc::new(Connection {
            id,
            peer: stream.peer(),
            since: env::now(),
            stream: Rc::new(stream),
            reading: Rc::new(TransferTimeout::new(limits.stall, rate)),
            sending: TransferTimeout::new(limits.stall, rate),
            idle: limits.idle,
            hurry: Hurry {
                waiting: Rc::clone(waiting),
                stall: limits.hurried_stall,
                rate: limits.hurried_rate_min_bytes_per_second.max(1),
            },
            access: Cell::default(),
            draining: Cell::default(),
            cut: Cell::default(),
            deaf: Cell::default(),
            revoked: Cell::default(),
            counts: Cell::default(),
            heard: Cell::new(env::now()),
            in_flight: Cell::default(),
            admitting: Cell::default(),
            receiving: Cell::default(),
            sent_since: Cell::default(),
            held_requests: Cell::default(),
            held_bytes: Cell::default(),
            reporting: Cell::default(),
            outgoing: Outbox::default(),
            room: Event::default(),
            drained: Event::default(),
        })
    }

    pub fn counts(&self) -> Counts {
        self.counts.get()
    }

    pub fn figures(&self) -> ConnectionFigures {
        let counts = self.counts.get();
        ConnectionFigures {
            id: self.id,
            peer: self.peer.clone(),
            access: self.access.get().map(Access::name),
            age: env::now().since(self.since),
            held_bytes: Bytes(self.held_bytes.get()),
            in_flight: self.in_flight.get(),
            answered: counts.answered,
            failed: counts.failed,
            bytes_in: counts.bytes_in,
            bytes_out: counts.bytes_out,
        }
    }

    fn count(&self, change: impl FnOnce(&mut Counts)) {
        let mut counts = self.counts.get();
        change(&mut counts);
        self.counts.set(counts);
    }

    /// All of this client's connection, from hello to goodbye.
    pub async fn run(self: &Rc<Self>, server: &Rc<Server>) {
        match env::timeout(server.limits.opening, self.open(server)).await {
            Ok(Ok(entered)) => self.serve(server, entered).await,
            Ok(Err(why)) => self.turn_away(server, why).await,
            Err(_) => {
                server.count(|totals| totals.not_let_in += 1);
                tracing::warn!(
                    peer = self.peer,
                    "not let in: hello and credentials took too long"
                );
                self.stream.abort();
            }
        }
    }

    // --- opening ------------------------------------------------------------------------------------

    async fn open(self: &Rc<Self>, server: &Rc<Server>) -> Result<In, NotIn> {
        let mut inbox = receiving(&self.stream, &self.reading);
        let theirs: [u8; CLIENT_HELLO_LEN] = inbox.take().await?;
        let hello = ClientHello::parse(&theirs)?;
        let ours = server.hello(&hello);
        let challenge = Challenge {
            client: theirs,
            server: ours.encode(),
        };
        self.stream
            .write_all(vec![View::copy_of(&challenge.server)])
            .await?;
        if ours.version == 0 {
            return Err(NotIn::Version(hello.version_min, hello.version_max));
        }
        let head = inbox.take::<HEADER_LEN>().await?;
        let header = Header::parse(&head, Kind::Request)?;
        if header.op != Op::Open as u16 {
            let why = "the first request must be the opening, with the client's credentials";
            let failure = Failure::refused(RefusedKind::OutOfTurn, why);
            return Err(NotIn::Refused(header.op, header.id, failure));
        }
        let meta = self.meta(&mut inbox, &header).await?;
        let Request::Open(proof_shown) = Request::decode(Op::Open, &meta)? else {
            unreachable!("the fields of an opening are one")
        };
        let refused = |text: String| {
            let failure = Failure::refused(RefusedKind::Access, text);
            NotIn::Refused(Op::Open as u16, header.id, failure)
        };
        let (access, proof) = match &proof_shown {
            Proof::Open => (NodeAccess::Open, [0; 32]),
            Proof::Capability(token) => (NodeAccess::Capability(token), [0; 32]),
            Proof::NodeKey(proof) => match server.shown(&challenge, proof) {
                Ok(ours) => (NodeAccess::NodeKey, ours),
                Err(why) => return Err(refused(why)),
            },
        };
        let way = match access {
            NodeAccess::Open => Access::Open,
            NodeAccess::NodeKey => Access::NodeKey,
            NodeAccess::Capability(_) => Access::Capability,
        };
        // Noted before the token is looked at: a key that is voided from now on ends the connection.
        let keys = server.manager.voided();
        let session = server.manager.open_session(access);
        let session = session.map_err(|why| refused(why.to_string()))?;
        let opened = Response::Opened(Opened {
            name: server.manager.store().name().to_owned(),
            proof,
            memory: session.memory(),
            wall_clock: env::wall_clock(),
        });
        self.reading.end();
        self.send_one(Op::Open as u16, header.id, &opened).await?;
        self.access.set(Some(way));
        self.heard.set(env::now());
        let token = match &proof_shown {
            Proof::Capability(token) => Some(token.clone()),
            _ => None,
        };
        let terms = Terms {
            token,
            keys,
            _peer: session.joined(&self.peer),
            behalf: Behalf {
                session,
                access: way,
                fence: None,
                tag: ClientTag::unknown(self.id),
                data_max: ours.data_max,
            },
        };
        Ok(In { inbox, terms })
    }

    /// A request's fields. The data of an opening are none.
    async fn meta(&self, inbox: &mut Inbox, header: &Header) -> Result<Vec<u8>, NotIn> {
        if header.meta_len as usize > REQUEST_META_MAX || header.data_len != 0 {
            return Err(Malformed(format!(
                "an opening has at most {REQUEST_META_MAX} bytes of fields and no data; this one has {} and {}",
                header.meta_len, header.data_len
            ))
            .into());
        }
        let len = header.meta_len as usize;
        inbox.need(len).await?;
        let meta = inbox.here()[..len].to_vec();
        inbox.skip(len);
        header.check_meta(&meta)?;
        Ok(meta)
    }

    async fn send_one(&self, op: u16, id: u64, answer: &Response) -> io::Result<()> {
        let (status, meta, _) = answer.parts();
        let header = Header::of(op, status, id, &meta, &[]);
        let mut pieces = Pieces::default();
        pieces.put(&header.encode(Kind::Response));
        pieces.put(&meta);
        self.stream.write_all(pieces.take()).await
    }

    async fn turn_away(&self, server: &Server, why: NotIn) {
        server.count(|totals| totals.not_let_in += 1);
        match why {
            NotIn::Lost(error) => {
                tracing::info!(peer = self.peer, %error, "client lost before it was let in");
                return;
            }
            NotIn::Version(min, max) => {
                tracing::warn!(
                    peer = self.peer,
                    min,
                    max,
                    "not let in: no version that both speak"
                );
            }
            NotIn::Refused(op, id, failure) => {
                tracing::warn!(peer = self.peer, why = %failure, "not let in");
                let answer = Response::Failed(failure);
                let reporting = self.send_one(op, id, &answer);
                // A client that does not read that in time does not learn it.
                let _ = env::timeout(server.limits.linger, reporting).await;
            }
        }
        self.goodbye(server).await;
    }

    /// Waits for the peer to hang up: closing with bytes unread would make the system throw away our last answers.
    async fn goodbye(&self, server: &Server) {
        let stream = Rc::clone(&self.stream);
        let goodbye = async move {
            stream.shutdown_write();
            let mut buf = Buf::for_read(4096);
            while let Ok((1.., back)) = stream.read(buf).await {
                buf = back;
            }
        };
        // A client that does not hang up in time is hung up on. One that has is left its last answers.
        if env::timeout(server.limits.linger, goodbye).await.is_err() {
            self.stream.abort();
        }
    }

    // --- serving ------------------------------------------------------------------------------------

    async fn serve(self: &Rc<Self>, server: &Rc<Server>, mut entered: In) {
        tracing::info!(
            peer = self.peer,
            access = entered.terms.behalf.access.name(),
            "client connected"
        );
        let mut writer = {
            let connection = Rc::clone(self);
            let manager = Rc::clone(&server.manager);
            env::spawn(async move { connection.write_answers(&manager).await })
        };
        let mut is_written = false;
        let end = {
            let session = Rc::clone(&entered.terms.behalf.session);
            let (token, keys) = (entered.terms.token.clone(), entered.terms.keys);
            let reading = async {
                match self.read_requests(server, &mut entered).await {
                    Ok(never) => match never {},
                    Err(end) => end,
                }
            };
            let revoked = wait_revoked(&server.manager, &session, token.as_deref(), keys);
            either(revoked, either(reading, self.wait_drained())).await
        };
        self.reading.end();
        if let End::Revoked(why) = &end {
            self.hush(why);
            self.outgoing.close();
            // A peer that reads slowly must not be served what was queued for it before.
            match env::timeout(server.limits.linger, &mut writer).await {
                Ok(()) => is_written = true,
                Err(_) => self.stream.abort(),
            }
        }
        while self.in_flight.get() > 0 {
            self.room.wait().await;
        }
        match &end {
            End::Left => tracing::info!(peer = self.peer, "client left"),
            End::Drained => tracing::info!(peer = self.peer, "client sent away"),
            End::Lost(error) => tracing::info!(peer = self.peer, %error, "client lost"),
            End::Revoked(why) => tracing::info!(peer = self.peer, why, "client sent away"),
            End::Violation(id, why) => {
                server.count(|totals| totals.violations += 1);
                tracing::warn!(peer = self.peer, why, "client broke the protocol");
                self.reply(Reply {
                    op: CONNECTION,
                    id: *id,
                    answer: Response::Failed(Failure::refused(RefusedKind::Malformed, why)),
                    held: None,
                });
            }
        }
        self.outgoing.close();
        if !is_written {
            writer.await;
        }
        while self.held_requests.get() > 0 {
            self.room.wait().await;
        }
        if !self.deaf.get() && !matches!(end, End::Lost(_)) {
            self.goodbye(server).await;
        }
    }

    /// Says why nothing more is served, and answers nothing from here on.
    fn hush(&self, why: &str) {
        self.outgoing.clear();
        self.reply(Reply {
            op: CONNECTION,
            id: 0,
            answer: Response::Failed(Failure::refused(RefusedKind::Access, why)),
            held: None,
        });
        self.revoked.set(true);
    }

    /// A defect of this program came to light in a request of this connection, which changed nothing: the connection ends,
    /// others go on.
    fn broken(&self, op: Op, why: &env::Panicked) {
        tracing::error!(peer = self.peer, op = op.name(), %why, "a request panicked; its connection ends");
        self.cut("a request of it panicked");
    }

    /// The same in what reads requests and sends answers.
    pub fn ended_by(&self, why: &env::Panicked) {
        tracing::error!(peer = self.peer, %why, "a connection panicked; it ends");
        self.cut("it panicked");
        self.outgoing.close();
    }

    async fn wait_drained(&self) -> End {
        while !self.draining.get() || self.in_flight.get() > 0 {
            self.drained.wait().await;
        }
        End::Drained
    }

    async fn read_requests(
        self: &Rc<Self>,
        server: &Rc<Server>,
        entered: &mut In,
    ) -> Result<std::convert::Infallible, End> {
        let In { inbox, terms } = entered;
        loop {
            let Some(head) = inbox.peek::<HEADER_LEN>() else {
                match inbox.receive().await? {
                    true => continue,
                    false if inbox.here().is_empty() => return Err(End::Left),
                    false => return Err(End::Lost(io::ErrorKind::UnexpectedEof.into())),
                }
            };
            inbox.skip(HEADER_LEN);
            let header = Header::parse(&head, Kind::Request).map_err(|why| violation(0, why))?;
            self.heard.set(env::now());
            let judged = self.judge(inbox, &header, terms.behalf.data_max).await?;
            let judged = judged.and_then(|request| terms.taking(request, &self.reporting));
            self.reading.end();
            let id = header.id;
            match judged {
                Ok(mut request) => {
                    let bytes = charge(&request, header.data_len);
                    let held = self.admit(server, &terms.behalf.session, bytes).await;
                    if header.data_len > 0 {
                        let buf = Buf::for_read(header.data_len as usize);
                        let len = u64::from(header.data_len);
                        self.receiving.set(Some((env::now(), len)));
                        let data = inbox.fill(buf).await?.freeze();
                        self.receiving.set(None);
                        self.reading.end();
                        header.check_data(&data).map_err(|why| violation(id, why))?;
                        request.carry(data);
                    }
                    self.heard.set(env::now());
                    self.start(server, terms, request, id, held);
                }
                Err(failure) => {
                    let held = self.admit(server, &terms.behalf.session, SMALL).await;
                    let drained = inbox.drain(u64::from(header.data_len)).await;
                    self.reading.end();
                    self.answered(&Response::Failed(failure.clone()), 0);
                    self.reply(Reply {
                        op: header.op,
                        id,
                        answer: Response::Failed(failure),
                        held: Some(held),
                    });
                    drained?;
                }
            }
        }
    }

    /// What a frame asks for, its fields taken; or why it is refused. Its data are still to come.
    async fn judge(
        &self,
        inbox: &mut Inbox,
        header: &Header,
        data_max: u32,
    ) -> Result<Result<Request, Failure>, End> {
        let id = header.id;
        let refuse = |kind, text: String| Ok(Err(Failure::refused(kind, text)));
        let (meta_len, data_len) = (header.meta_len as usize, header.data_len);
        if meta_len > RESPONSE_META_MAX || data_len > DATA_MAX {
            return Err(End::Violation(
                id,
                format!("no frame has {meta_len} bytes of fields and {data_len} of data"),
            ));
        }
        let Some(op) = Op::of(header.op) else {
            inbox.drain(meta_len as u64).await?;
            let text = format!(
                "this server knows no operation {}; it speaks version {VERSION} of the protocol",
                header.op
            );
            return refuse(RefusedKind::Unknown, text);
        };
        let name = op.name();
        if meta_len > REQUEST_META_MAX {
            inbox.drain(meta_len as u64).await?;
            let text = format!(
                "cannot {name}: its fields have {meta_len} bytes, at most {REQUEST_META_MAX} are taken"
            );
            return refuse(RefusedKind::TooLong, text);
        }
        inbox.need(meta_len).await?;
        let meta = &inbox.here()[..meta_len];
        header.check_meta(meta).map_err(|why| violation(id, why))?;
        let request = Request::decode(op, meta).map_err(|why| violation(id, why))?;
        inbox.skip(meta_len);
        let carries = op == Op::Write;
        if data_len > 0 && !carries {
            let why = format!("{name} carries {data_len} bytes of data, where there can be none");
            return Err(End::Violation(id, why));
        }
        let len = match request {
            Request::Object(ops::Request::Read { len, .. }) => len.max(data_len.into()),
            _ => data_len.into(),
        };
        if len > u64::from(data_max) {
            let (len, most) = (Bytes(len), Bytes(u64::from(data_max)));
            let text = format!(
                "cannot {name} {len} at once: at most {most} travel in one frame; ask in parts"
            );
            return refuse(RefusedKind::TooLong, text);
        }
        if self.draining.get() {
            let text = format!("cannot {name}: the server is shutting down");
            return refuse(RefusedKind::ShuttingDown, text);
        }
        if op == Op::Open {
            let text = "the session is open already; connect again for another one".to_owned();
            return refuse(RefusedKind::OutOfTurn, text);
        }
        Ok(Ok(request))
    }

    /// Waits until one more request of `bytes` may be held.
    async fn admit(
        self: &Rc<Self>,
        server: &Rc<Server>,
        session: &Rc<Session>,
        bytes: u64,
    ) -> Charge {
        self.admitting.set(true);
        while self.held_requests.get() >= server.limits.requests_per_connection {
            self.room.wait().await;
        }
        // Up to its allowance a connection does not wait.
        let mut beyond = None;
        if self.held_bytes.get() + bytes > server.limits.allowance.0 {
            let buffered = session.buffer(Bytes(bytes)).await;
            // One request alone may hold more than its share; what comes behind it waits for it.
            while self.held_bytes.get() > 0 && self.held_bytes.get() + bytes > server.share() {
                self.room.wait().await;
            }
            let _waiting = Waiting::begin(&server.waiting);
            beyond = Some((buffered, server.pool.acquire(bytes).await));
        }
        self.admitting.set(false);
        self.heard.set(env::now());
        self.held_requests.set(self.held_requests.get() + 1);
        self.held_bytes.set(self.held_bytes.get() + bytes);
        server.count(|totals| {
            totals.held += bytes;
            totals.held_max = totals.held_max.max(totals.held);
        });
        Charge {
            connection: Rc::clone(self),
            server: Rc::clone(server),
            bytes,
            _beyond: beyond,
        }
    }

    fn start(
        self: &Rc<Self>,
        server: &Rc<Server>,
        terms: &Terms,
        request: Request,
        id: u64,
        held: Charge,
    ) {
        self.in_flight.set(self.in_flight.get() + 1);
        let arrived = request.data().map_or(0, |data| data.len());
        self.count(|counts| counts.bytes_in += arrived as u64);
        let (connection, server) = (Rc::clone(self), Rc::clone(server));
        let behalf = terms.behalf.clone();
        env::spawn(async move {
            let op = request.op();
            let looks = only_looks(&request);
            let work = carry_out(&server, &behalf, request);
            let answer = match looks {
                true => env::caught(work).await,
                // Its panic may leave the store's memory half changed: that is the whole thread's end.
                false => Ok(work.await),
            };
            let answer = match answer {
                Ok(answer) => answer,
                Err(why) => {
                    connection.in_flight.set(connection.in_flight.get() - 1);
                    connection.broken(op, &why);
                    drop(held);
                    connection.drained.notify_all();
                    return;
                }
            };
            let len = answer.data().len();
            connection.in_flight.set(connection.in_flight.get() - 1);
            connection.answered(&answer, len as u64);
            connection.reply(Reply {
                op: op as u16,
                id,
                answer,
                held: Some(held),
            });
            connection.room.notify_all();
            if connection.draining.get() {
                connection.drained.notify_all();
            }
        });
    }

    fn answered(&self, answer: &Response, bytes_out: u64) {
        self.heard.set(env::now());
        self.count(|counts| {
            counts.answered += 1;
            counts.failed += u64::from(matches!(answer, Response::Failed(_)));
            counts.bytes_out += bytes_out;
        });
    }

    // --- writer -------------------------------------------------------------------------------------

    fn reply(&self, reply: Reply) {
        if !self.deaf.get() && !self.revoked.get() {
            self.outgoing.push(reply);
        }
    }

    /// The queue's state as a frame of its own, if it is time for one.
    fn report_load(&self, manager: &Manager, pieces: &mut Pieces) {
        let now = env::now();
        let due = |it: &Reporting| now.since(it.last) >= it.every;
        let Some(reporting) = self.reporting.get().filter(due) else {
            return;
        };
        let meta = encode(&manager.state());
        let header = Header::of(Op::ClientTag as u16, 0, 0, &meta, &[]);
        pieces.put(&header.encode(Kind::Response));
        pieces.put(&meta);
        let last = now;
        self.reporting.set(Some(Reporting { last, ..reporting }));
    }

    async fn write_answers(&self, manager: &Manager) {
        let mut pieces = Pieces::default();
        let mut held: Vec<Option<Charge>> = Vec::new();
        while self.outgoing.wait().await {
            while pieces.bytes() < SEND_BATCH
                && let Some(reply) = self.outgoing.pop()
            {
                let (status, meta, data) = reply.answer.parts();
                let header = Header::of(reply.op, status, reply.id, &meta, &data);
                pieces.put(&header.encode(Kind::Response));
                pieces.put(&meta);
                pieces.put_view(data);
                held.push(reply.held);
            }
            self.report_load(manager, &mut pieces);
            self.sending.begin(pieces.bytes());
            self.sent_since
                .set(Some((env::now(), pieces.bytes() as u64)));
            let sent = self.stream.write_all(pieces.take()).await;
            self.sent_since.set(None);
            self.sending.end();
            self.heard.set(env::now());
            if let Err(error) = sent {
                tracing::debug!(peer = self.peer, %error, "answers cannot be sent");
                self.deaf.set(true);
                self.stream.abort();
                self.outgoing.clear();
            }
            held.clear();
        }
    }
}

/// Waits until the client's capability is good no more: its reservation is over, or its key void.
///
/// `keys` is how often keys were voided when the token was looked at.
async fn wait_revoked(manager: &Manager, session: &Session, token: Option<&str>, keys: u64) -> End {
    let mut keys = keys;
    loop {
        if session.phase() == Phase::Over {
            return End::Revoked(format!(
                "the reservation of {} is over, and the capability with it; reserve anew",
                session.holder_and_number()
            ));
        }
        if let Some(token) = token
            && keys != manager.voided()
        {
            keys = manager.voided();
            if let Err(why) = manager.is_signed(token) {
                return End::Revoked(why.to_string());
            }
        }
        manager.revoked.wait().await;
    }
}

fn violation(id: u64, why: Malformed) -> End {
    End::Violation(id, why.to_string())
}

impl Server {
    fn hello(&self, theirs: &ClientHello) -> ServerHello {
        let speaks = theirs.version_min <= VERSION && theirs.version_max >= VERSION;
        let mut fresh = [0; 32];
        env::secret("store server nonces", &mut fresh);
        let nonce = match &self.key {
            Some(key) => key.nonce(&fresh),
            None => fresh,
        };
        let data_max = (self.limits.data_max.0 as u32).min(theirs.data_max);
        let write_max = self.manager.store().write_max().min(u64::from(data_max));
        ServerHello {
            version: if speaks { VERSION } else { 0 },
            version_min: VERSION,
            version_max: VERSION,
            ways: Ways {
                open: self.manager.unauthenticated(),
                node_key: self.key.is_some(),
                capability: true,
            },
            nonce,
            store: self.manager.store().uuid(),
            data_max,
            requests_max: self.limits.requests_per_connection,
            write_max: write_max as u32,
            idle_ms: u32::try_from(self.limits.idle.0 / 1_000_000).unwrap_or(u32::MAX),
        }
    }

    /// What this server shows to a client that has shown the node key; why not, if it has not.
    fn shown(&self, challenge: &Challenge, proof: &[u8; 32]) -> Result<[u8; 32], String> {
        let store = self.manager.store().name();
        let Some(key) = &self.key else {
            return Err(format!(
                "cannot let a node in: {store} has no node key; give it the cluster's key, or come with a capability"
            ));
        };
        match key.is_client(challenge, proof) {
            true => Ok(NodeKey::server_proof(key, challenge)),
            false => Err(format!(
                "cannot let a node in: what it shows was not made with the node key of {store}; give both the same key"
            )),
        }
    }
}
