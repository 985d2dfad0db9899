//! The NBD client: an export of another server as a [`Device`].
//!
//! ```text
//! Device call -> slot (cookie) -> outgoing -> writer: one vectored send
//!                  ^ answer <- reader: replies and chunks, data straight into the caller's buffer
//! ```
//!
//! Used by tests, benchmarks and tools; speaks structured replies and `base:allocation` where the server
//! does, and checks every byte a server sends as a server checks a client's.
//!
//! Always true:
//! 1. Each request gets exactly one answer: the server's, or why the connection ended.
//! 2. A call dropped half-way keeps its slot and buffer until the server has answered.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Poll, Waker};

use base::{Buf, Bytes, Nanos, Sector, Span, View};
use device::{Class, Device, DeviceError, Info, Op, Pending, WriteFlags};
use env::net::message::{Inbox, Pieces, TransferTimeout};
use env::net::{Address, Stream};
use env::sync::Event;

use super::proto::{self, ALLOCATION, CHUNK_LEN, Errno, Fields, GREETING_LEN, OPTION_REPLY_LEN};
use super::proto::{OPTION_REPLY_MAGIC, Request, SIMPLE_REPLY_LEN, STRING_MAX};
use super::proto::{can, chunk, cmd, flag, handshake, info, opt, rep, state};
use super::tls::ClientTls;
use super::wire::{TlsWire, Wire};

/// Longest reply to an option, and longest chunk without data, that is accepted.
const REPLY_MAX: usize = 32 << 10;
/// Receive buffer.
const RECEIVE_BUFFER: Bytes = Bytes::kib(256);
/// A rest of a payload longer than this is received straight into its own buffer.
const DIRECT_FROM: Bytes = Bytes::kib(32);
/// Requests gathered into one send, in bytes.
const SEND_BATCH: usize = 2 << 20;
/// A trim, zeroing or status request goes this far at once.
const REACH: u64 = 1 << 30;

/// What to ask for.
#[derive(Clone)]
pub struct ClientOptions {
    /// The export's name; empty for the default one.
    pub export: String,
    /// Ask for structured replies (and with them for sentences, holes and block status).
    pub structured: bool,
    /// Go on in TLS, or not at all.
    pub tls: Option<ClientTls>,
    /// Time for connecting and the whole negotiation.
    pub timeout: Nanos,
}

impl Default for ClientOptions {
    fn default() -> ClientOptions {
        ClientOptions {
            export: String::new(),
            structured: true,
            tls: None,
            timeout: Nanos::secs(30),
        }
    }
}

/// An export in a server's list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Its description; empty if there is none.
    pub description: String,
}

/// Why a client could not connect.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The stream could not be opened, or broke.
    #[error("cannot talk to the NBD server: {0}")]
    Stream(#[from] io::Error),
    /// What the server sent is not the protocol.
    #[error("the server does not speak NBD as it should: {0}")]
    Protocol(String),
    /// The server refused an option.
    #[error("the server refused {option} (reply {kind:#x}): {why}")]
    Refused {
        /// Which option.
        option: &'static str,
        /// The reply's type.
        kind: u32,
        /// The server's sentence, if it sent one.
        why: String,
    },
    /// It took too long.
    #[error("the negotiation took longer than {0}")]
    Late(Nanos),
}

fn protocol<T>(why: impl Into<String>) -> Result<T, ClientError> {
    Err(ClientError::Protocol(why.into()))
}

/// A connection to an export; itself a [`Device`]. Dropping it says goodbye;
/// [`Client::close`] waits until the server has heard.
pub struct Client {
    shared: Rc<Shared>,
}

struct Shared {
    // Fixed.
    info: Info,
    flags: u16,
    structured: bool,
    allocation: bool,
    description: String,
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
    Waiting {
        op: Op,
        at: u64,
        /// A read's buffer; away while data are received into it.
        buf: Option<Buf>,
        /// Bytes of a read not covered by a chunk yet.
        missing: usize,
        extents: Vec<(u32, u32)>,
        failed: Option<(Errno, String)>,
    },
    Answered(Result<Answered, (Errno, String)>),
}

struct Answered {
    buf: Option<Buf>,
    extents: Vec<(u32, u32)>,
}

// --- negotiation ------------------------------------------------------------------------------------

struct Talk {
    stream: Rc<Stream>,
    wire: Rc<Wire>,
    inbox: Inbox<Wire>,
}

fn receiving(wire: &Rc<Wire>) -> Inbox<Wire> {
    // The whole negotiation has one deadline; later a slow server is the caller's to judge.
    let unhurried = Rc::new(TransferTimeout::new(Nanos::secs(3600), 1));
    Inbox::new(Rc::clone(wire), RECEIVE_BUFFER, DIRECT_FROM, unhurried)
}

impl Talk {
    async fn begin(stream: Stream, tls: Option<&ClientTls>) -> Result<Talk, ClientError> {
        let stream = Rc::new(stream);
        let wire = Rc::new(Wire::Plain(Rc::clone(&stream)));
        let inbox = receiving(&wire);
        let mut talk = Talk {
            stream,
            wire,
            inbox,
        };
        let greeting = talk.inbox.take::<GREETING_LEN>().await?;
        let mut fields = Fields(&greeting);
        if (fields.u64(), fields.u64()) != (Some(proto::GREETING_MAGIC), Some(proto::OPTION_MAGIC))
        {
            return protocol("its greeting is not newstyle");
        }
        let offered = fields.u16().unwrap_or(0);
        if offered & handshake::FIXED_NEWSTYLE == 0 {
            return protocol("it does not offer fixed newstyle");
        }
        let taken = offered & (handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES);
        talk.send(&u32::from(taken).to_be_bytes()).await?;
        if let Some(tls) = tls {
            talk.option(opt::STARTTLS, &[]).await?;
            talk.accepted(opt::STARTTLS, "STARTTLS").await?;
            if !talk.inbox.here().is_empty() {
                return protocol("it sent bytes in the clear after it agreed to TLS");
            }
            let config = std::sync::Arc::clone(&tls.config);
            let session = rustls::ClientConnection::new(config, tls.server.clone())
                .map_err(io::Error::other)?;
            let tls = TlsWire::handshake(Rc::clone(&talk.stream), session.into()).await?;
            talk.wire = Rc::new(Wire::Tls(Box::new(tls)));
            talk.inbox = receiving(&talk.wire);
        }
        Ok(talk)
    }

    async fn send(&self, bytes: &[u8]) -> io::Result<()> {
        self.wire.write_all(vec![View::copy_of(bytes)]).await
    }

    async fn option(&self, option: u32, data: &[u8]) -> io::Result<()> {
        let mut out = Vec::new();
        proto::put_option(&mut out, option, data);
        self.send(&out).await
    }

    /// One reply to `option`: its type and data.
    async fn reply(&mut self, option: u32) -> Result<(u32, Vec<u8>), ClientError> {
        let head = self.inbox.take::<OPTION_REPLY_LEN>().await?;
        let mut fields = Fields(&head);
        if (fields.u64(), fields.u32()) != (Some(OPTION_REPLY_MAGIC), Some(option)) {
            return protocol(format!("its reply is not one to option {option}"));
        }
        let kind = fields.u32().unwrap_or(0);
        let len = fields.u32().unwrap_or(u32::MAX) as usize;
        if len > REPLY_MAX {
            return protocol(format!(
                "a reply to option {option} of {len} bytes is too long"
            ));
        }
        self.inbox.need(len).await?;
        let data = self.inbox.here()[..len].to_vec();
        self.inbox.skip(len);
        Ok((kind, data))
    }

    /// Replies up to the final one: what came before it.
    async fn replies(
        &mut self,
        option: u32,
        name: &'static str,
    ) -> Result<Vec<(u32, Vec<u8>)>, ClientError> {
        let mut found = Vec::new();
        loop {
            let (kind, data) = self.reply(option).await?;
            if kind == rep::ACK {
                return Ok(found);
            }
            if kind & rep::ERROR != 0 {
                let why = String::from_utf8_lossy(&data).into_owned();
                return Err(ClientError::Refused {
                    option: name,
                    kind,
                    why,
                });
            }
            found.push((kind, data));
        }
    }

    async fn accepted(&mut self, option: u32, name: &'static str) -> Result<(), ClientError> {
        self.replies(option, name).await.map(|_| ())
    }
}

impl Client {
    /// Connects to `address` and negotiates.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn connect(
        address: &Address,
        options: &ClientOptions,
    ) -> Result<Client, ClientError> {
        let connecting = async { Client::over(Stream::connect(address).await?, options).await };
        env::timeout(options.timeout, connecting)
            .await
            .unwrap_or(Err(ClientError::Late(options.timeout)))
    }

    /// The exports a server lists.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn list(
        address: &Address,
        tls: Option<&ClientTls>,
    ) -> Result<Vec<Listed>, ClientError> {
        let mut talk = Talk::begin(Stream::connect(address).await?, tls).await?;
        talk.option(opt::LIST, &[]).await?;
        let mut listed = Vec::new();
        for (kind, data) in talk.replies(opt::LIST, "LIST").await? {
            let mut fields = Fields(&data);
            let (rep::SERVER, Some(name)) = (kind, fields.string()) else {
                return protocol("an entry of its list makes no sense");
            };
            let description = String::from_utf8_lossy(fields.0).into_owned();
            listed.push(Listed {
                name: name.to_owned(),
                description,
            });
        }
        talk.option(opt::ABORT, &[]).await?;
        // The protocol lets a server hang up without this answer.
        let _ = talk.accepted(opt::ABORT, "ABORT").await;
        Ok(listed)
    }

    /// Negotiates over a stream that is open already (no deadline of its own).
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn over(stream: Stream, options: &ClientOptions) -> Result<Client, ClientError> {
        let mut talk = Talk::begin(stream, options.tls.as_ref()).await?;
        let mut structured = false;
        let mut allocation = false;
        if options.structured {
            talk.option(opt::STRUCTURED_REPLY, &[]).await?;
            structured = talk
                .accepted(opt::STRUCTURED_REPLY, "STRUCTURED_REPLY")
                .await
                .is_ok();
        }
        if structured {
            let mut query = Vec::new();
            proto::put_string(&mut query, &options.export);
            query.extend(1u32.to_be_bytes());
            proto::put_string(&mut query, ALLOCATION);
            talk.option(opt::SET_META_CONTEXT, &query).await?;
            let contexts = talk
                .replies(opt::SET_META_CONTEXT, "SET_META_CONTEXT")
                .await;
            allocation = matches!(contexts, Ok(found) if !found.is_empty());
        }
        let mut ask = Vec::new();
        proto::put_string(&mut ask, &options.export);
        let wanted = [info::NAME, info::DESCRIPTION, info::BLOCK_SIZE];
        ask.extend((wanted.len() as u16).to_be_bytes());
        for kind in wanted {
            ask.extend(kind.to_be_bytes());
        }
        talk.option(opt::GO, &ask).await?;
        let facts = talk.replies(opt::GO, "GO").await?;
        let mut learnt = Learnt {
            name: options.export.clone(),
            ..Learnt::default()
        };
        for (kind, data) in facts {
            if kind == rep::INFO && learnt.fact(&data).is_none() {
                return protocol("a fact about the export makes no sense");
            }
        }
        Ok(Client {
            shared: learnt.into_shared(talk, structured, allocation)?,
        })
    }

    /// The transmission flags the server announced (`proto::can`).
    pub fn flags(&self) -> u16 {
        self.shared.flags
    }

    /// The server's description of the export; empty if it sent none.
    pub fn description(&self) -> &str {
        &self.shared.description
    }

    /// Was `base:allocation` agreed on?
    pub fn knows_allocation(&self) -> bool {
        self.shared.allocation
    }

    /// Asks the server to read a range into its caches.
    ///
    /// # Errors
    /// [`DeviceError`] as for a read.
    pub async fn cache(&self, span: Span) -> Result<(), DeviceError> {
        let shared = Rc::clone(&self.shared);
        shared
            .call(
                Op::Read,
                cmd::CACHE,
                0,
                span.start.byte(),
                span.len.0,
                None,
                None,
            )
            .await?;
        Ok(())
    }

    /// Makes a range read as zeroes if that is fast; `None` if the server says it is not.
    ///
    /// # Errors
    /// [`DeviceError`] as for a write.
    pub async fn zero_fast(&self, span: Span) -> Result<Option<()>, DeviceError> {
        let shared = &self.shared;
        let (at, len) = (span.start.byte(), span.len.0);
        let answer = Rc::clone(shared)
            .answer(
                Op::WriteZeroes,
                cmd::WRITE_ZEROES,
                flag::FAST_ZERO,
                at,
                len,
                None,
                None,
            )
            .await;
        match answer {
            Ok(_) => Ok(Some(())),
            Err((Errno::NotSupported, _)) => Ok(None),
            Err(failed) => Err(shared.error(Op::WriteZeroes, at, len, failed)),
        }
    }

    /// Says goodbye and waits (ten seconds at most) until the server has answered what is under way and
    /// hung up.
    pub async fn close(self) {
        let shared = Rc::clone(&self.shared);
        drop(self);
        let over = async {
            while shared.ended.borrow().is_none() {
                shared.over.wait().await;
            }
        };
        if env::timeout(Nanos::secs(10), over).await.is_err() {
            shared.end("the server did not hang up");
        }
    }
}

/// What the negotiation taught.
#[derive(Default)]
struct Learnt {
    name: String,
    description: String,
    size: u64,
    flags: u16,
    block: Option<(u32, u32, u32)>,
}

impl Learnt {
    fn fact(&mut self, data: &[u8]) -> Option<()> {
        let mut fields = Fields(data);
        match fields.u16()? {
            info::EXPORT => {
                self.size = fields.u64()?;
                self.flags = fields.u16()?;
            }
            info::NAME => self.name = proto::text(fields.0)?.to_owned(),
            info::DESCRIPTION => {
                let text = fields.bytes(fields.0.len().min(STRING_MAX))?;
                self.description = String::from_utf8_lossy(text).into_owned();
            }
            info::BLOCK_SIZE => {
                self.block = Some((fields.u32()?, fields.u32()?, fields.u32()?));
            }
            _ => {}
        }
        Some(())
    }

    fn into_shared(
        self,
        talk: Talk,
        structured: bool,
        allocation: bool,
    ) -> Result<Rc<Shared>, ClientError> {
        if self.flags & can::HAS_FLAGS == 0 {
            return protocol("it did not describe the export");
        }
        // Defaults of the protocol for a server that names no block sizes.
        let (least, preferred, most) = self.block.unwrap_or((512, 4096, 32 << 20));
        if least > 512 || most < 512 {
            return protocol(format!(
                "its blocks of {least} to {most} bytes do not fit devices of 512-byte sectors"
            ));
        }
        let has = |bit: u16| self.flags & bit != 0;
        let shared = Rc::new(Shared {
            info: Info {
                name: if self.name.is_empty() {
                    "nbd".into()
                } else {
                    self.name
                },
                size: Bytes(self.size - self.size % 512),
                physical_block: Bytes(u64::from(preferred).next_power_of_two().max(512)),
                max_io: Bytes(u64::from(most.min(32 << 20) & !511)),
                volatile_cache: has(can::FLUSH),
                discards: has(can::TRIM),
                rotational: has(can::ROTATIONAL),
                read_only: has(can::READ_ONLY),
            },
            flags: self.flags,
            structured,
            allocation,
            description: self.description,
            stream: talk.stream,
            wire: talk.wire,
            slots: RefCell::default(),
            free: RefCell::default(),
            busy: Cell::new(0),
            outgoing: RefCell::default(),
            ended: RefCell::default(),
            over: Event::default(),
        });
        let reader = Rc::clone(&shared);
        let inbox = talk.inbox;
        env::spawn(async move {
            let why = match reader.read_replies(inbox).await {
                Ok(()) => "the server hung up".to_owned(),
                Err(error) => error.to_string(),
            };
            reader.end(&why);
        });
        let writer = Rc::clone(&shared);
        env::spawn(async move {
            if let Err(error) = writer.write_requests().await {
                writer.end(&error.to_string());
            }
        });
        Ok(shared)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if self.shared.ended.borrow().is_none() {
            let goodbye = Request {
                flags: 0,
                command: cmd::DISC,
                cookie: 0,
                offset: 0,
                length: 0,
            };
            self.shared.send(goodbye.encode(), None);
            self.shared.close_writer();
        }
    }
}

// --- transmission -----------------------------------------------------------------------------------

impl Shared {
    fn send(&self, head: [u8; proto::REQUEST_LEN], data: Option<View>) {
        let mut outgoing = self.outgoing.borrow_mut();
        outgoing.queue.push_back((head, data));
        let writer = outgoing.writer.take();
        drop(outgoing);
        if let Some(writer) = writer {
            writer.wake();
        }
    }

    fn close_writer(&self) {
        let mut outgoing = self.outgoing.borrow_mut();
        outgoing.closed = true;
        let writer = outgoing.writer.take();
        drop(outgoing);
        if let Some(writer) = writer {
            writer.wake();
        }
    }

    /// The connection is over: all requests that wait fail with `why`.
    fn end(&self, why: &str) {
        if self.ended.borrow().is_some() {
            return;
        }
        *self.ended.borrow_mut() = Some(why.to_owned());
        self.over.notify_all();
        self.stream.abort();
        self.close_writer();
        let count = self.slots.borrow().len();
        for index in 0..count {
            let waiting = matches!(self.slots.borrow()[index].state, SlotState::Waiting { .. });
            if waiting {
                self.answer_slot(index, Err((Errno::Shutdown, why.to_owned())));
            }
        }
    }

    /// Puts the answer into a slot and wakes its caller, or frees the slot if the caller has gone.
    fn answer_slot(&self, index: usize, answer: Result<Answered, (Errno, String)>) {
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
    #[allow(clippy::too_many_arguments)] // The fields of one request, in the order of the wire.
    fn answer(
        self: Rc<Self>,
        op: Op,
        command: u16,
        flags: u16,
        at: u64,
        len: u64,
        data: Option<View>,
        buf: Option<Buf>,
    ) -> impl Future<Output = Result<Answered, (Errno, String)>> {
        let started = match self.ended.borrow().clone() {
            Some(why) => Err((Errno::Shutdown, why)),
            None if len > u64::from(u32::MAX) => Err((
                Errno::Overflow,
                format!("{len} bytes do not fit one NBD request"),
            )),
            None => Ok(()),
        };
        let call = started.map(|()| {
            let index = self.free.borrow_mut().pop().unwrap_or_else(|| {
                self.slots.borrow_mut().push(Slot::default());
                self.slots.borrow().len() - 1
            });
            self.busy.set(self.busy.get() + 1);
            let generation = {
                let slot = &mut self.slots.borrow_mut()[index];
                slot.state = SlotState::Waiting {
                    op,
                    at,
                    missing: buf.as_ref().map_or(0, |buf| buf.len()),
                    buf,
                    extents: Vec::new(),
                    failed: None,
                };
                slot.generation
            };
            let cookie = u64::from(generation) << 32 | index as u64;
            let length = len as u32;
            let request = Request {
                flags,
                command,
                cookie,
                offset: at,
                length,
            };
            self.send(request.encode(), data);
            Call {
                shared: Rc::clone(&self),
                index,
                taken: false,
            }
        });
        async move {
            let mut call = call?;
            poll_fn(|cx| {
                let mut slots = call.shared.slots.borrow_mut();
                let slot = &mut slots[call.index];
                if matches!(slot.state, SlotState::Answered(_)) {
                    return Poll::Ready(());
                }
                slot.waker = Some(cx.waker().clone());
                Poll::Pending
            })
            .await;
            let state = std::mem::take(&mut call.shared.slots.borrow_mut()[call.index].state);
            call.taken = true;
            call.shared.release(call.index);
            match state {
                SlotState::Answered(answer) => answer,
                _ => unreachable!("waited for the answer"),
            }
        }
    }

    fn error(&self, op: Op, at: u64, len: u64, (errno, why): (Errno, String)) -> DeviceError {
        let device = self.info.name.clone();
        match errno {
            Errno::NoSpace => DeviceError::NoSpace { device, op, why },
            Errno::Perm => DeviceError::ReadOnly { device, op },
            Errno::Shutdown => DeviceError::Gone { device, op, why },
            _ => DeviceError::Io {
                device,
                op,
                span: Span::bytes(at, len),
                why: if why.is_empty() {
                    format!("the NBD server says {errno:?}")
                } else {
                    why
                },
            },
        }
    }

    #[allow(clippy::too_many_arguments)] // The fields of one request, in the order of the wire.
    fn call(
        self: Rc<Self>,
        op: Op,
        command: u16,
        flags: u16,
        at: u64,
        len: u64,
        data: Option<View>,
        buf: Option<Buf>,
    ) -> impl Future<Output = Result<Answered, DeviceError>> {
        let answer = Rc::clone(&self).answer(op, command, flags, at, len, data, buf);
        async move {
            answer
                .await
                .map_err(|failed| self.error(op, at, len, failed))
        }
    }

    async fn write_requests(&self) -> io::Result<()> {
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
    fn waiting(&self, cookie: u64) -> io::Result<usize> {
        let index = (cookie & u64::from(u32::MAX)) as usize;
        let slots = self.slots.borrow();
        let slot = slots.get(index).filter(|slot| {
            slot.generation == (cookie >> 32) as u32
                && matches!(slot.state, SlotState::Waiting { .. })
        });
        slot.map(|_| index)
            .ok_or_else(|| io::Error::other(format!("a reply to no request (cookie {cookie:#x})")))
    }

    async fn read_replies(&self, mut inbox: Inbox<Wire>) -> io::Result<()> {
        loop {
            while inbox.here().len() < 4 {
                if !inbox.receive().await? {
                    return Ok(());
                }
            }
            let magic = inbox.peek::<4>().map(u32::from_be_bytes);
            match magic {
                Some(proto::SIMPLE_REPLY_MAGIC) => self.simple_reply(&mut inbox).await?,
                Some(proto::CHUNK_MAGIC) if self.structured => self.chunk(&mut inbox).await?,
                _ => return Err(io::Error::other("a reply begins with the wrong magic")),
            }
        }
    }

    async fn simple_reply(&self, inbox: &mut Inbox<Wire>) -> io::Result<()> {
        let head = inbox.take::<SIMPLE_REPLY_LEN>().await?;
        let mut fields = Fields(&head[4..]);
        let code = fields.u32().unwrap_or(0);
        let index = self.waiting(fields.u64().unwrap_or(0))?;
        if code != 0 {
            self.answer_slot(index, Err((Errno::of(code), String::new())));
            return Ok(());
        }
        if let Some(buf) = self.take_buf(index)? {
            if self.structured {
                return Err(io::Error::other("a read was answered by a simple reply"));
            }
            let buf = inbox.fill(buf).await?;
            self.answer_slot(
                index,
                Ok(Answered {
                    buf: Some(buf),
                    extents: Vec::new(),
                }),
            );
            return Ok(());
        }
        self.answer_slot(
            index,
            Ok(Answered {
                buf: None,
                extents: Vec::new(),
            }),
        );
        Ok(())
    }

    fn take_buf(&self, index: usize) -> io::Result<Option<Buf>> {
        match &mut self.slots.borrow_mut()[index].state {
            SlotState::Waiting { buf, .. } => Ok(buf.take()),
            _ => Err(io::Error::other("a reply to no request")),
        }
    }

    async fn chunk(&self, inbox: &mut Inbox<Wire>) -> io::Result<()> {
        let head = inbox.take::<CHUNK_LEN>().await?;
        let mut fields = Fields(&head[4..]);
        let broken = || io::Error::other("a chunk makes no sense");
        let flags = fields.u16().ok_or_else(broken)?;
        let kind = fields.u16().ok_or_else(broken)?;
        let index = self.waiting(fields.u64().ok_or_else(broken)?)?;
        let len = fields.u32().ok_or_else(broken)? as usize;
        match kind {
            chunk::NONE if len == 0 => {}
            chunk::OFFSET_DATA if len > 8 => {
                let at = u64::from_be_bytes(inbox.take::<8>().await?);
                self.place(inbox, index, at, len - 8, true).await?;
            }
            chunk::OFFSET_HOLE if len == 12 => {
                let at = u64::from_be_bytes(inbox.take::<8>().await?);
                let hole = u32::from_be_bytes(inbox.take::<4>().await?) as usize;
                self.place(inbox, index, at, hole, false).await?;
            }
            chunk::BLOCK_STATUS if len > 4 && len % 8 == 4 && len <= REPLY_MAX => {
                inbox.need(len).await?;
                let ranges = inbox.here()[4..len].chunks_exact(8).map(|pair| {
                    let mut pair = Fields(pair);
                    (pair.u32().unwrap_or(0), pair.u32().unwrap_or(0))
                });
                if let SlotState::Waiting { extents, .. } =
                    &mut self.slots.borrow_mut()[index].state
                {
                    extents.extend(ranges);
                }
                inbox.skip(len);
            }
            kind if kind & (1 << 15) != 0 && (6..=REPLY_MAX).contains(&len) => {
                inbox.need(len).await?;
                let mut fields = Fields(&inbox.here()[..len]);
                let errno = Errno::of(fields.u32().ok_or_else(broken)?);
                let why = usize::from(fields.u16().ok_or_else(broken)?);
                let why = fields.bytes(why).ok_or_else(broken)?;
                let why = String::from_utf8_lossy(why).into_owned();
                if let SlotState::Waiting { failed, .. } = &mut self.slots.borrow_mut()[index].state
                {
                    failed.get_or_insert((errno, why));
                }
                inbox.skip(len);
            }
            _ => return Err(broken()),
        }
        if flags & chunk::DONE != 0 {
            self.finish(index)?;
        }
        Ok(())
    }

    /// Puts `len` bytes of a read, received or zero, where they belong in its buffer.
    async fn place(
        &self,
        inbox: &mut Inbox<Wire>,
        index: usize,
        at: u64,
        len: usize,
        is_data: bool,
    ) -> io::Result<()> {
        let outside = || io::Error::other("a chunk lies outside of its read");
        let from = match &self.slots.borrow()[index].state {
            SlotState::Waiting {
                at: start, missing, ..
            } if len <= *missing && len > 0 => {
                usize::try_from(at.checked_sub(*start).ok_or_else(outside)?)
                    .map_err(|_| outside())?
            }
            _ => return Err(outside()),
        };
        let mut buf = self.take_buf(index)?.ok_or_else(outside)?;
        if from.checked_add(len).is_none_or(|end| end > buf.len()) {
            return Err(outside());
        }
        let mut middle = buf.split_off(from);
        let tail = middle.split_off(len);
        let middle = if is_data {
            inbox.fill(middle).await?
        } else {
            middle.fill(0);
            middle
        };
        buf.join(middle);
        buf.join(tail);
        if let SlotState::Waiting {
            buf: place,
            missing,
            ..
        } = &mut self.slots.borrow_mut()[index].state
        {
            *place = Some(buf);
            *missing -= len;
        }
        Ok(())
    }

    fn finish(&self, index: usize) -> io::Result<()> {
        let state = std::mem::take(&mut self.slots.borrow_mut()[index].state);
        let SlotState::Waiting {
            op,
            at,
            buf,
            missing,
            extents,
            failed,
        } = state
        else {
            return Err(io::Error::other("a reply to no request"));
        };
        if let Some(failed) = failed {
            self.answer_slot(index, Err(failed));
            return Ok(());
        }
        if missing > 0 {
            let why = format!("a {op} at byte {at} was answered with {missing} bytes missing");
            // The slot still counts as waiting, so that its caller learns why the connection ended.
            self.answer_slot(index, Err((Errno::Io, why.clone())));
            return Err(io::Error::other(why));
        }
        self.answer_slot(index, Ok(Answered { buf, extents }));
        Ok(())
    }
}

/// A caller's hold on a slot.
struct Call {
    shared: Rc<Shared>,
    index: usize,
    taken: bool,
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

// --- as a device ------------------------------------------------------------------------------------

impl Client {
    fn has(&self, bit: u16) -> bool {
        self.shared.flags & bit != 0
    }

    fn fua(&self, wanted: bool) -> u16 {
        if wanted && self.has(can::FUA) {
            flag::FUA
        } else {
            0
        }
    }

    /// A range in requests that fit the protocol's 32-bit length.
    async fn by_reach(
        &self,
        op: Op,
        command: u16,
        flags: u16,
        span: Span,
    ) -> Result<(), DeviceError> {
        let end = span.end().byte();
        let mut at = span.start.byte();
        while at < end {
            let len = (end - at).min(REACH);
            Rc::clone(&self.shared)
                .call(op, command, flags, at, len, None, None)
                .await?;
            at += len;
        }
        Ok(())
    }
}

impl Device for Client {
    fn info(&self) -> Info {
        self.shared.info.clone()
    }

    fn read(&self, at: Sector, buf: Buf, _class: Class) -> Pending<'_, Buf> {
        let len = buf.len() as u64;
        if let Err(error) = self.shared.info.check(Op::Read, at, len) {
            return device::ready(Err(error));
        }
        if len == 0 {
            return device::ready(Ok(buf));
        }
        let shared = Rc::clone(&self.shared);
        let call = shared.call(Op::Read, cmd::READ, 0, at.byte(), len, None, Some(buf));
        Box::pin(async move {
            let answered = call.await?;
            Ok(answered.buf.expect("a read is answered with its buffer"))
        })
    }

    fn write(&self, at: Sector, data: View, flags: WriteFlags) -> Pending<'_, ()> {
        let len = data.len() as u64;
        if let Err(error) = self.shared.info.check(Op::Write, at, len) {
            return device::ready(Err(error));
        }
        if len == 0 {
            return device::ready(Ok(()));
        }
        let shared = Rc::clone(&self.shared);
        let fua = self.fua(flags.fua);
        let call = shared.call(Op::Write, cmd::WRITE, fua, at.byte(), len, Some(data), None);
        Box::pin(async move {
            call.await?;
            if flags.fua && fua == 0 {
                return self.flush().await;
            }
            Ok(())
        })
    }

    fn flush(&self) -> Pending<'_, ()> {
        if !self.has(can::FLUSH) {
            return device::ready(Ok(()));
        }
        let call = Rc::clone(&self.shared).call(Op::Flush, cmd::FLUSH, 0, 0, 0, None, None);
        Box::pin(async move { call.await.map(|_| ()) })
    }

    fn discard(&self, span: Span) -> Pending<'_, ()> {
        if let Err(error) = self.shared.info.check(Op::Discard, span.start, span.len.0) {
            return device::ready(Err(error));
        }
        if !self.has(can::TRIM) {
            return device::ready(Ok(()));
        }
        Box::pin(self.by_reach(Op::Discard, cmd::TRIM, 0, span))
    }

    fn write_zeroes(&self, span: Span, flags: WriteFlags) -> Pending<'_, ()> {
        if let Err(error) = self
            .shared
            .info
            .check(Op::WriteZeroes, span.start, span.len.0)
        {
            return device::ready(Err(error));
        }
        if self.has(can::WRITE_ZEROES) {
            return Box::pin(async move {
                let fua = self.fua(flags.fua);
                self.by_reach(Op::WriteZeroes, cmd::WRITE_ZEROES, fua, span)
                    .await?;
                if flags.fua && fua == 0 {
                    return self.flush().await;
                }
                Ok(())
            });
        }
        Box::pin(async move {
            let most = self.shared.info.max_io.0.min(1 << 20);
            let zeroes = Buf::zeroed(most.min(span.len.0) as usize).freeze();
            let mut at = span.start.byte();
            while at < span.end().byte() {
                let len = (span.end().byte() - at).min(most);
                let piece = zeroes.slice(0, len as usize);
                self.write(Sector::containing(at), piece, flags).await?;
                at += len;
            }
            Ok(())
        })
    }

    fn allocation(&self, span: Span) -> Pending<'_, Vec<(u64, bool)>> {
        if let Err(error) = self.shared.info.check(Op::Read, span.start, span.len.0) {
            return device::ready(Err(error));
        }
        if !self.shared.allocation {
            return device::ready(Ok(vec![(span.len.0, true)]));
        }
        Box::pin(async move {
            let mut extents: Vec<(u64, bool)> = Vec::new();
            let mut at = span.start.byte();
            let end = span.end().byte();
            while at < end {
                let len = (end - at).min(REACH);
                let shared = Rc::clone(&self.shared);
                let answered = shared
                    .call(Op::Read, cmd::BLOCK_STATUS, 0, at, len, None, None)
                    .await?;
                let from = at;
                for (len, flags) in answered.extents {
                    let len = u64::from(len).min(end - at);
                    let is_data = flags & state::ZERO == 0;
                    match extents.last_mut() {
                        Some(last) if last.1 == is_data => last.0 += len,
                        _ if len > 0 => extents.push((len, is_data)),
                        _ => {}
                    }
                    at += len;
                }
                if at == from {
                    let why = "its block status covers nothing".to_owned();
                    return Err(self.shared.error(Op::Read, at, len, (Errno::Io, why)));
                }
            }
            Ok(extents)
        })
    }

    fn in_flight(&self) -> usize {
        self.shared.busy.get()
    }
}
