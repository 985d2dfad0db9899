//! The connection below a client: slots, writer, reader, watch.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Poll, Waker};

use base::{Buf, Instant, Map, Nanos, View};
use env::net::Stream;
use env::sync::{Event, Permit, Semaphore};
use policy::place::State;

use super::error::ClientError;
use super::{ClientOptions, Credentials, changes_nothing, in_words};
use crate::net::wire::state::decode;
use crate::net::wire::stream::{Inbox, Pieces, TransferTimeout, receiving};
use crate::net::wire::{
    Challenge, ClientHello, HEADER_LEN, Header, Kind, Malformed, NodeKey, Op, Opened, Proof,
    REQUEST_META_MAX, RESPONSE_META_MAX, Request, Response, SERVER_HELLO_LEN, ServerHello, VERSION,
};

/// Requests gathered into one send, in bytes.
const SEND_BATCH: usize = 1 << 20;
/// Longest fields of an answer that are looked at where they were received.
const IN_PLACE_MAX: usize = 16 << 10;

/// What a call gets.
pub(super) enum Got {
    Response(Response),
    /// A read's bytes: how many, and the buffer.
    Bytes(usize, Buf),
}

/// Both ends of one connection have one of these; tasks share it.
pub(super) struct Shared {
    // Fixed.
    peer: String,
    options: ClientOptions,
    stream: Rc<Stream>,
    pub server: ServerHello,
    pub opened: Opened,
    pub clock_ahead_ns: i64,
    // Per request.
    /// As many as the server takes at once.
    window: Rc<Semaphore>,
    slots: RefCell<Map<u64, Slot>>,
    next_id: Cell<u64>,
    outgoing: RefCell<Outgoing>,
    /// What was heard last of the store's queue.
    pub state: Cell<Option<State>>,
    /// When something was last heard, and last sent.
    heard: Cell<Instant>,
    spoke: Cell<Instant>,
    /// A ping of the watch is under way.
    pinging: Cell<bool>,
    /// Why the connection ended; calls are refused from then on.
    ended: RefCell<Option<String>>,
    /// It has.
    over: Event,
}

#[derive(Default)]
struct Outgoing {
    queue: VecDeque<u64>,
    writer: Option<Waker>,
    closed: bool,
    /// Since when it is.
    closed_at: Option<Instant>,
}

/// A request under way.
struct Slot {
    request: Request,
    asked_at: Instant,
    /// Taken by the writer.
    sent: bool,
    data: Option<View>,
    /// A read's buffer, if the caller gave one.
    buf: Option<Buf>,
    outcome: Option<Result<Got, ClientError>>,
    /// Nothing more comes for it.
    answered: bool,
    /// The watch's own.
    ping: bool,
    waker: Option<Waker>,
    /// The caller has gone: the answer frees the slot.
    orphaned: bool,
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

/// How the reader came to its end.
enum End {
    Stream(io::Error),
    Protocol(String),
    /// The server's last words.
    Server(String),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> End {
        End::Stream(error)
    }
}

impl From<Malformed> for End {
    fn from(why: Malformed) -> End {
        End::Protocol(why.to_string())
    }
}

// --- opening ----------------------------------------------------------------------------------------

/// Errors on the way in.
struct Opening<'a>(&'a str);

impl Opening<'_> {
    fn stream(&self, error: io::Error) -> ClientError {
        ClientError::unreachable(self.0, &error)
    }

    fn protocol(&self, why: impl ToString) -> ClientError {
        ClientError::Protocol {
            server: self.0.to_owned(),
            why: why.to_string(),
        }
    }
}

fn nonce(credentials: &Credentials) -> [u8; 32] {
    let mut fresh = [0; 32];
    env::secret("store client nonces", &mut fresh);
    match credentials {
        Credentials::NodeKey(key) => NodeKey(*key).nonce(&fresh),
        _ => fresh,
    }
}

impl Shared {
    pub async fn open(
        stream: Stream,
        server: &str,
        credentials: Credentials,
        options: &ClientOptions,
    ) -> Result<Rc<Shared>, ClientError> {
        let at = Opening(server);
        let stream = Rc::new(stream);
        // The whole opening has one deadline; later the watch judges.
        let timeout = Rc::new(TransferTimeout::new(Nanos::secs(3600), 1));
        let mut inbox = receiving(&stream, &timeout);
        let hello = ClientHello {
            version_min: VERSION,
            version_max: VERSION,
            data_max: options.data_max.0 as u32,
            nonce: nonce(&credentials),
        };
        let ours = hello.encode();
        let sent = stream.write_all(vec![View::copy_of(&ours)]).await;
        sent.map_err(|error| at.stream(error))?;
        let theirs = at.hello(&mut inbox).await?;
        let hello = ServerHello::parse(&theirs).map_err(|why| at.protocol(why))?;
        if hello.version != VERSION {
            return Err(ClientError::Version {
                server: server.to_owned(),
                min: hello.version_min,
                max: hello.version_max,
                ours: VERSION,
            });
        }
        if hello.data_max > options.data_max.0 as u32
            || hello.write_max > hello.data_max
            || hello.requests_max == 0
        {
            return Err(at.protocol("the limits in its hello contradict each other or ours"));
        }
        let challenge = Challenge {
            client: ours,
            server: theirs,
        };
        let opened = at
            .enter(&stream, &mut inbox, &challenge, &credentials)
            .await?;
        let ahead = opened.wall_clock.0 as i128 - i128::from(env::wall_clock().0);
        let shared = Rc::new(Shared {
            peer: server.to_owned(),
            options: *options,
            stream,
            server: hello,
            opened,
            clock_ahead_ns: i64::try_from(ahead).unwrap_or(i64::MAX),
            window: Semaphore::new(u64::from(hello.requests_max)),
            slots: RefCell::default(),
            next_id: Cell::new(2),
            outgoing: RefCell::default(),
            state: Cell::default(),
            heard: Cell::new(env::now()),
            spoke: Cell::new(env::now()),
            pinging: Cell::new(false),
            ended: RefCell::default(),
            over: Event::default(),
        });
        shared.start(inbox);
        Ok(shared)
    }

    fn start(self: &Rc<Self>, mut inbox: Inbox) {
        let shared = Rc::clone(self);
        env::spawn(async move { shared.write_requests().await });
        let shared = Rc::clone(self);
        env::spawn(async move {
            let end = match shared.read_answers(&mut inbox).await {
                Ok(never) => match never {},
                Err(end) => end,
            };
            shared.end(match end {
                End::Stream(error) => format!("the connection broke ({error})"),
                End::Protocol(why) => format!("what the server sent is not the protocol: {why}"),
                End::Server(why) => format!("the server ended the connection: {why}"),
            });
        });
        let shared = Rc::clone(self);
        env::spawn(async move { shared.watch().await });
    }
}

impl Opening<'_> {
    /// The server's hello; or its words, if it has none.
    async fn hello(&self, inbox: &mut Inbox) -> Result<[u8; SERVER_HELLO_LEN], ClientError> {
        loop {
            if let Some(hello) = inbox.peek::<SERVER_HELLO_LEN>() {
                inbox.skip(SERVER_HELLO_LEN);
                return Ok(hello);
            }
            // A server that cannot make sense of our hello says so in a frame.
            if let Some(head) = inbox.peek::<HEADER_LEN>()
                && let Ok(header) = Header::parse(&head, Kind::Response)
            {
                let answer = self.answer(inbox, &header, None).await?;
                return Err(self.refused(answer));
            }
            match inbox.receive().await {
                Ok(true) => {}
                Ok(false) => return Err(self.protocol("it hung up before its hello was over")),
                Err(error) => return Err(self.stream(error)),
            }
        }
    }

    async fn enter(
        &self,
        stream: &Stream,
        inbox: &mut Inbox,
        challenge: &Challenge,
        credentials: &Credentials,
    ) -> Result<Opened, ClientError> {
        let proof = match credentials {
            Credentials::Open => Proof::Open,
            Credentials::NodeKey(key) => Proof::NodeKey(NodeKey(*key).client_proof(challenge)),
            Credentials::Capability(token) if token.len() > REQUEST_META_MAX - 16 => {
                return Err(self.protocol("no capability is so long"));
            }
            Credentials::Capability(token) => Proof::Capability(token.clone()),
        };
        let meta = Request::Open(proof).encode();
        let header = Header::of(Op::Open as u16, 0, 1, &meta, &[]);
        let mut pieces = Pieces::default();
        pieces.put(&header.encode(Kind::Request));
        pieces.put(&meta);
        let sent = stream.write_all(pieces.take()).await;
        sent.map_err(|error| self.stream(error))?;
        let ended = |error: io::Error| match error.kind() {
            io::ErrorKind::UnexpectedEof => self.protocol("it hung up before it let us in"),
            _ => self.stream(error),
        };
        inbox.need(HEADER_LEN).await.map_err(ended)?;
        let head = inbox.peek::<HEADER_LEN>().expect("needed just now");
        let header = Header::parse(&head, Kind::Response).map_err(|why| self.protocol(why))?;
        let opened = match self.answer(inbox, &header, Some(1)).await? {
            Response::Opened(opened) => opened,
            other => return Err(self.refused(other)),
        };
        if let Credentials::NodeKey(key) = credentials
            && !NodeKey(*key).is_server(challenge, &opened.proof)
        {
            return Err(ClientError::Impostor {
                server: self.0.to_owned(),
            });
        }
        Ok(opened)
    }

    /// The answer of which the header is there.
    async fn answer(
        &self,
        inbox: &mut Inbox,
        header: &Header,
        id: Option<u64>,
    ) -> Result<Response, ClientError> {
        let op = match (header.op, id) {
            (0, _) => Op::Ping,
            (op, Some(id)) if op == Op::Open as u16 && header.id == id => Op::Open,
            _ => return Err(self.protocol("it answers what was not asked")),
        };
        let len = header.meta_len as usize;
        if len > IN_PLACE_MAX || header.data_len > 0 {
            return Err(self.protocol("its answer to the opening is too long"));
        }
        inbox.skip(HEADER_LEN);
        let needed = inbox.need(len).await;
        needed.map_err(|error| self.stream(error))?;
        let meta = inbox.here()[..len].to_vec();
        inbox.skip(len);
        header.check_meta(&meta).map_err(|why| self.protocol(why))?;
        Response::decode(op, header.status, &meta, Buf::for_read(0))
            .map_err(|why| self.protocol(why))
    }

    fn refused(&self, answer: Response) -> ClientError {
        match answer {
            Response::Failed(failure) => failure.into(),
            other => self.protocol(format!("it answers the opening with {other:?}")),
        }
    }
}

// --- calls ------------------------------------------------------------------------------------------

impl Shared {
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
    fn end(&self, why: String) {
        if self.ended.borrow().is_some() {
            return;
        }
        *self.ended.borrow_mut() = Some(why.clone());
        self.stream.abort();
        self.say_goodbye();
        let mut ids: Vec<u64> = self.slots.borrow().keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            let lost = self.lost(id, &why);
            self.complete(id, Err(lost));
        }
        self.over.notify_all();
    }

    fn lost(&self, id: u64, why: &str) -> ClientError {
        let slots = self.slots.borrow();
        let slot = slots.get(&id).expect("asked for a slot that is there");
        ClientError::Lost {
            server: self.peer.clone(),
            what: slot.in_words(),
            sent: slot.sent,
            changes: !changes_nothing(slot.request.op()),
            why: why.to_owned(),
        }
    }

    /// Asks, and waits for the answer.
    pub async fn call(
        &self,
        request: Request,
        data: Option<View>,
        buf: Option<Buf>,
    ) -> Result<Got, ClientError> {
        let asked_at = env::now();
        let words = |request: &Request| in_words(request, data.as_ref());
        let refuse = |request: &Request, why: &str| ClientError::Lost {
            server: self.peer.clone(),
            what: words(request),
            sent: false,
            changes: !changes_nothing(request.op()),
            why: why.to_owned(),
        };
        let turn = match self.window.try_acquire(1) {
            Some(turn) => turn,
            None => {
                let turn = env::timeout(self.options.timeout, self.window.acquire(1)).await;
                match turn {
                    Ok(turn) => turn,
                    Err(_) => {
                        return Err(ClientError::Late {
                            server: self.peer.clone(),
                            what: words(&request),
                            after: self.options.timeout,
                            sent: false,
                            changes: !changes_nothing(request.op()),
                        });
                    }
                }
            }
        };
        if let Some(why) = self.ended() {
            return Err(refuse(&request, &why));
        }
        if self.outgoing.borrow().closed {
            return Err(refuse(&request, "this client was closed"));
        }
        let id = self.put(request, asked_at, data, buf, Some(turn));
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
    fn put(
        &self,
        request: Request,
        asked_at: Instant,
        data: Option<View>,
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
            data,
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
    fn complete(&self, id: u64, outcome: Result<Got, ClientError>) {
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
}

/// Is it a load report, beside the answers?
fn is_state(header: &Header) -> bool {
    header.op == Op::ClientTag as u16 && header.id == 0
}

impl Slot {
    fn in_words(&self) -> String {
        in_words(&self.request, self.data.as_ref())
    }
}

// --- tasks ------------------------------------------------------------------------------------------

impl Shared {
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
                    let data = slot.data.as_ref().map_or(&[][..], |data| &data[..]);
                    let header = Header::of(slot.request.op() as u16, 0, id, &meta, data);
                    pieces.put(&header.encode(Kind::Request));
                    pieces.put(&meta);
                    if let Some(data) = &slot.data {
                        pieces.put_view(data.clone());
                    }
                }
            }
            self.spoke.set(env::now());
            if let Err(error) = self.stream.write_all(pieces.take()).await {
                return self.end(format!("the connection broke ({error})"));
            }
        }
        if self.ended.borrow().is_none() {
            self.stream.shutdown_write();
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

    async fn read_answers(&self, inbox: &mut Inbox) -> Result<std::convert::Infallible, End> {
        loop {
            let Some(head) = inbox.peek::<HEADER_LEN>() else {
                if inbox.receive().await? {
                    self.heard.set(env::now());
                    continue;
                }
                return Err(
                    match (inbox.here().is_empty(), self.outgoing.borrow().closed) {
                        (true, true) => End::Server("goodbye".to_owned()),
                        (true, false) => End::Server("it hung up without a word".to_owned()),
                        _ => End::Stream(io::ErrorKind::UnexpectedEof.into()),
                    },
                );
            };
            inbox.skip(HEADER_LEN);
            let header = Header::parse(&head, Kind::Response)?;
            let (op, most) = self.expect(&header)?;
            let (meta_len, data_len) = (header.meta_len as usize, header.data_len as usize);
            if meta_len > RESPONSE_META_MAX || data_len > most {
                return Err(End::Protocol(format!(
                    "an answer to {} has {meta_len} bytes of fields and {data_len} of data, at most {most} are awaited",
                    op.name()
                )));
            }
            let meta = if meta_len <= IN_PLACE_MAX {
                inbox.need(meta_len).await?;
                let meta = inbox.here()[..meta_len].to_vec();
                inbox.skip(meta_len);
                meta
            } else {
                inbox.fill(Buf::for_read(meta_len)).await?.to_vec()
            };
            header.check_meta(&meta)?;
            if is_state(&header) {
                self.state
                    .set(decode(&meta, env::now()).or(self.state.get()));
                continue;
            }
            if header.op == 0 {
                let answer = Response::decode(op, header.status, &meta, Buf::for_read(0))?;
                let Response::Failed(failure) = answer else {
                    return Err(End::Protocol("its last words are no failure".to_owned()));
                };
                return Err(End::Server(failure.to_string()));
            }
            if op == Op::Read && header.status == 0 {
                self.bytes(inbox, &header, &meta).await?;
            } else {
                let data = inbox.fill(Buf::for_read(data_len)).await?;
                header.check_data(&data)?;
                self.heard.set(env::now());
                let outcome = match Response::decode(op, header.status, &meta, data)? {
                    Response::Failed(failure) => Err(failure.into()),
                    answer => Ok(Got::Response(answer)),
                };
                self.complete(header.id, outcome);
            }
        }
    }

    /// What the frame answers, and the longest data it may carry.
    fn expect(&self, header: &Header) -> Result<(Op, usize), End> {
        if header.op == 0 {
            return Ok((Op::Ping, 0));
        }
        if is_state(header) {
            return Ok((Op::ClientTag, 0));
        }
        let slots = self.slots.borrow();
        let Some(slot) = slots.get(&header.id).filter(|slot| slot.sent) else {
            return Err(End::Protocol(format!(
                "it answers request {}, which is not under way",
                header.id
            )));
        };
        let op = slot.request.op();
        if header.op != op as u16 {
            return Err(End::Protocol(format!(
                "it answers {} with an answer to operation {}",
                op.name(),
                header.op
            )));
        }
        let most = match &slot.request {
            Request::Read { len, .. } => *len as usize,
            Request::Report => self.server.data_max as usize,
            _ => 0,
        };
        Ok((op, most))
    }

    /// Takes the bytes of a read, into the caller's buffer if there is one.
    async fn bytes(&self, inbox: &mut Inbox, header: &Header, meta: &[u8]) -> Result<(), End> {
        if !meta.is_empty() {
            return Err(End::Protocol("the answer to a read has fields".to_owned()));
        }
        let len = header.data_len as usize;
        let given = {
            let mut slots = self.slots.borrow_mut();
            slots.get_mut(&header.id).and_then(|slot| slot.buf.take())
        };
        let (head, tail) = match given {
            Some(mut buf) => {
                let tail = buf.split_off(len.min(buf.len()));
                (buf, Some(tail))
            }
            None => (Buf::for_read(len), None),
        };
        let mut buf = inbox.fill(head).await?;
        header.check_data(&buf)?;
        self.heard.set(env::now());
        if let Some(tail) = tail {
            buf.join(tail);
        }
        self.complete(header.id, Ok(Got::Bytes(len, buf)));
        Ok(())
    }

    /// Looks after deadlines, pings, and gives up a server that is gone.
    async fn watch(&self) {
        let timeout = self.options.timeout;
        let interval = Nanos((timeout.0 / 4).max(1_000_000));
        let idle = Nanos(u64::from(self.server.idle_ms) * 1_000_000);
        // Two pings may be lost in a slow moment before the server cuts us.
        let every = interval.min(Nanos((idle.0 / 3).max(1_000_000)));
        while self.ended.borrow().is_none() {
            env::sleep(every).await;
            let now = env::now();
            self.expire(now);
            let closed_at = self.outgoing.borrow().closed_at;
            if closed_at.is_some_and(|at| now.since(at) > timeout) {
                self.end("this client was closed, and the server took too long over it".to_owned());
            }
            let waits = !self.slots.borrow().is_empty();
            let silent = now.since(self.heard.get());
            if waits && silent > timeout {
                self.end(format!("nothing was heard from the server for {silent}"));
            }
            let quiet = silent >= interval || now.since(self.spoke.get()) >= every;
            if quiet && closed_at.is_none() && !self.pinging.get() && self.ended.borrow().is_none()
            {
                // An orphan from the start: its answer is heard, and that is all.
                self.put(Request::Ping, now, None, None, None);
            }
            let pings = self.slots.borrow();
            self.pinging.set(pings.values().any(|slot| slot.ping));
        }
    }

    /// Fails the requests that have waited too long.
    fn expire(&self, now: Instant) {
        let timeout = self.options.timeout;
        let mut late: Vec<u64> = {
            let slots = self.slots.borrow();
            let overdue = slots.iter().filter(|(_, slot)| {
                slot.outcome.is_none() && !slot.orphaned && now.since(slot.asked_at) >= timeout
            });
            overdue.map(|(id, _)| *id).collect()
        };
        late.sort_unstable();
        for id in late {
            let mut slots = self.slots.borrow_mut();
            let Some(slot) = slots.get_mut(&id) else {
                continue;
            };
            let late = ClientError::Late {
                server: self.peer.clone(),
                what: slot.in_words(),
                after: timeout,
                sent: slot.sent,
                changes: !changes_nothing(slot.request.op()),
            };
            slot.outcome = Some(Err(late));
            let waker = slot.waker.take();
            drop(slots);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}
