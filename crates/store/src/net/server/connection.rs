//! One client, from its first byte to goodbye: which task reads, works, writes?
//!
//! ```text
//! reader: frames -> admit (held) -> data -> a task: Session --> answers --> writer: one vectored send
//!            ^ not read from while too much is held                          | frees what was held
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
//! 1. Each request that was begun is carried out to its end, even if its client is gone by then. One that waits for a cap is not.
//! 2. What a request holds is freed once: when its answer was sent or can no longer be.
//! 3. The data of a request that is refused are taken off the stream, so that the next one is found.

use std::cell::{Cell, OnceCell};
use std::rc::Rc;

use base::{Buf, Instant, Nanos};
use env::net::message::either;
use env::net::{Member, Origin, Stream};
use env::sync::Event;
use tls::{Certificate, Wire};

use super::answers::{Answers, Reply};
use super::figures::ConnectionFigures;
use super::frames::{self, End, violation};
use super::held::{Charge, Holding};
use super::opening::{In, NotIn, Opening, is_good, secured, send_one};
use super::pace::Pace;
use super::requests::{Access, SMALL, carry_out, charge, only_looks};
use super::terms::Terms;
use super::{Door, Limits, Server};
use crate::net::wire::{Failure, Header, Op, RefusedKind, Request, Response};

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

/// A client whose reservation is over is answered what was begun within this, and has as long to take it.
const ENDING: Nanos = Nanos::millis(500);

/// One client.
pub(super) struct Connection {
    // Fixed.
    pub id: u64,
    pub peer: String,
    since: Instant,
    stream: Rc<Stream>,
    /// What it came by.
    door: Door,
    pace: Pace,
    // Once.
    /// What the certificate says that it showed.
    shown: OnceCell<Certificate>,
    access: Cell<Option<Access>>,
    draining: Cell<bool>,
    cut: Cell<bool>,
    // Per request.
    counts: Cell<Counts>,
    in_flight: Cell<u64>,
    held: Rc<Holding>,
    answers: Answers,
    /// Draining has begun, or its last request is done.
    drained: Event,
}

impl Member for Connection {
    fn is_opening(&self) -> bool {
        self.access.get().is_none()
    }

    fn overdue(&self, now: Instant) -> Option<&'static str> {
        // A peer that waits for the server is not silent.
        let waits = self.held.waits() || self.is_opening();
        self.pace.overdue(now, waits)
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
        self.held.end();
        self.drained.notify_all();
    }
}

impl Connection {
    pub fn new(
        id: u64,
        (stream, door): (Stream, Door),
        limits: &Limits,
        waiting: &Rc<Cell<u64>>,
    ) -> Rc<Connection> {
        Rc::new(Connection {
            id,
            peer: stream.peer(),
            since: env::now(),
            stream: Rc::new(stream),
            door,
            pace: Pace::new(limits, waiting),
            shown: OnceCell::new(),
            access: Cell::default(),
            draining: Cell::default(),
            cut: Cell::default(),
            counts: Cell::default(),
            in_flight: Cell::default(),
            held: Rc::default(),
            answers: Answers::default(),
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
            identity: self.shown.get().map(|shown| shown.peer.to_string()),
            encrypted: self.door.tls.is_some(),
            age: env::now().since(self.since),
            held_bytes: self.held.bytes(),
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
        let wire = OnceCell::new();
        match env::timeout(server.limits.opening, self.open(server, &wire)).await {
            Ok(Ok(entered)) => {
                self.access.set(Some(entered.terms.behalf.access));
                self.pace.hear();
                self.serve(server, entered).await;
            }
            Ok(Err(why)) => self.turn_away(server, wire.get(), why).await,
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

    /// From its first byte to its session; what it speaks through is in `wire` as soon as that is known.
    async fn open(&self, server: &Server, wire: &OnceCell<Rc<Wire>>) -> Result<In, NotIn> {
        let (spoken, shown) = secured(&self.stream, self.door.tls.as_ref()).await?;
        let wire = wire.get_or_init(|| Rc::new(spoken));
        if let Some(shown) = shown {
            let _ = self.shown.set(shown);
        }
        is_good(self.door.tls.as_ref(), self.shown.get())?;
        let opening = Opening {
            id: self.id,
            peer: &self.peer,
            limits: &server.limits,
            manager: &server.manager,
            key: server.key.as_ref(),
            wire,
            shown: self.shown.get(),
            pace: &self.pace,
            is_near: self.door.is_near,
        };
        opening.open().await
    }

    async fn turn_away(&self, server: &Server, wire: Option<&Rc<Wire>>, why: NotIn) {
        server.count(|totals| totals.not_let_in += 1);
        match why {
            NotIn::Lost(error) => {
                tracing::info!(peer = self.peer, %error, "client lost before it was let in");
                return;
            }
            NotIn::Tls(error) => {
                tracing::warn!(peer = self.peer, why = %error, "not let in: TLS was not agreed on");
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
                if let Some(wire) = wire {
                    let answering = send_one(wire, op, id, &answer);
                    // A client that does not read that in time does not learn it.
                    let _ = env::timeout(server.limits.linger, answering).await;
                }
            }
        }
        self.goodbye(server, wire).await;
    }

    /// Waits for the peer to hang up: closing with bytes unread would make the system throw away our last answers.
    async fn goodbye(&self, server: &Server, wire: Option<&Rc<Wire>>) {
        let stream = Rc::clone(&self.stream);
        let goodbye = async move {
            match wire {
                Some(wire) => wire.finish().await,
                None => stream.shutdown_write(),
            }
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
            identity = self
                .shown
                .get()
                .map(|shown| tracing::field::display(&shown.peer)),
            "client connected"
        );
        let wire = Rc::clone(&entered.wire);
        let mut writer = {
            let (connection, wire) = (Rc::clone(self), Rc::clone(&wire));
            let session = Rc::downgrade(&entered.terms.behalf.session);
            env::spawn(async move {
                let Connection {
                    peer, stream, pace, ..
                } = &*connection;
                let answers = &connection.answers;
                answers.write((peer, stream), &wire, pace, &session).await;
            })
        };
        let end = self.until_end(server, &mut entered).await;
        self.held.end();
        self.pace.reading.end();
        let is_written = self.last_words(server, &end, &mut writer).await;
        while self.in_flight.get() > 0 {
            self.held.room.wait().await;
        }
        self.note_end(server, &end);
        self.answers.close();
        if !is_written {
            writer.await;
        }
        self.held.until_free().await;
        if !self.answers.is_deaf() && !matches!(end, End::Lost(_)) {
            self.goodbye(server, Some(&wire)).await;
        }
    }

    /// Of a client whose rights are gone: what it is told, and no more. Is all of that written?
    async fn last_words(&self, server: &Server, end: &End, writer: &mut env::Task<()>) -> bool {
        let linger = if let End::Ended(why) = end {
            let begun = async {
                while self.in_flight.get() > 0 {
                    self.held.room.wait().await;
                }
            };
            // What takes longer is not answered.
            let _ = env::timeout(ENDING, begun).await;
            self.answers.end(why);
            ENDING
        } else if let Some((why, linger)) = end.is_revoked(server.limits.linger) {
            // A peer that reads slowly must not be served what was queued for it before.
            self.answers.hush(why);
            linger
        } else {
            return false;
        };
        self.answers.close();
        let written = env::timeout(linger, writer).await;
        if written.is_err() {
            self.stream.abort();
        }
        written.is_ok()
    }

    /// Reads requests and begins them until there is a reason to end.
    async fn until_end(self: &Rc<Self>, server: &Rc<Server>, entered: &mut In) -> End {
        let revoked = entered.terms.until_revoked(&server.manager);
        let disowned = async {
            match &self.door.tls {
                Some(tls) => End::Disowned(tls.until_over(self.shown.get()).await),
                None => std::future::pending().await,
            }
        };
        let reading = async {
            match self.read_requests(server, entered).await {
                Ok(never) => match never {},
                Err(end) => end,
            }
        };
        let revoked = either(disowned, revoked);
        either(revoked, either(reading, self.wait_drained())).await
    }

    /// What is said of the end, to the log and to the client.
    fn note_end(&self, server: &Server, end: &End) {
        match end {
            End::Left => tracing::info!(peer = self.peer, "client left"),
            End::Drained => tracing::info!(peer = self.peer, "client sent away"),
            End::Lost(error) => tracing::info!(peer = self.peer, %error, "client lost"),
            End::Revoked(why) | End::Ended(why) => {
                tracing::info!(peer = self.peer, why, "client sent away")
            }
            End::Disowned(why) => tracing::warn!(peer = self.peer, why, "client sent away"),
            End::Violation(id, why) => {
                server.count(|totals| totals.violations += 1);
                tracing::warn!(peer = self.peer, why, "client broke the protocol");
                self.answers.put_last(*id, RefusedKind::Malformed, why);
            }
        }
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
        self.answers.close();
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
        let In { inbox, terms, .. } = entered;
        loop {
            let header = frames::header(inbox).await?;
            self.pace.hear();
            let data_max = terms.behalf.data_max;
            let judged = frames::request(inbox, &header, data_max, &self.draining).await?;
            let judged = judged.and_then(|request| terms.taking(request, &self.answers.reporting));
            self.pace.reading.end();
            match judged {
                Ok(mut request) => {
                    let bytes = charge(&request, header.data_len);
                    let held = self.admit(server, terms, bytes).await;
                    if header.data_len > 0 {
                        terms.behalf.takes(header.data_len).await;
                        self.pace.receives(header.data_len.into());
                        let buf = Buf::for_read(header.data_len as usize);
                        let data = inbox.fill(buf).await?.freeze();
                        self.pace.received();
                        let checked = header.check_data(&data);
                        checked.map_err(|why| violation(header.id, why))?;
                        request.carry(data);
                    }
                    self.pace.hear();
                    self.start(terms, request, header.id, held);
                }
                Err(failure) => {
                    let held = self.admit(server, terms, SMALL).await;
                    let drained = inbox.drain(u64::from(header.data_len)).await;
                    self.pace.reading.end();
                    self.refuse(&header, failure, held);
                    drained?;
                }
            }
        }
    }

    async fn admit(&self, server: &Rc<Server>, terms: &Terms, bytes: u64) -> Charge {
        let charge = self.held.admit(server, &terms.behalf.session, bytes).await;
        self.pace.hear();
        charge
    }

    fn refuse(&self, header: &Header, failure: Failure, held: Charge) {
        let answer = Response::Failed(failure);
        self.answered(&answer, 0);
        self.answers.put(Reply {
            op: header.op,
            id: header.id,
            answer,
            held: Some(held),
        });
    }

    fn start(self: &Rc<Self>, terms: &Terms, request: Request, id: u64, held: Charge) {
        self.in_flight.set(self.in_flight.get() + 1);
        let arrived = request.data().map_or(0, |data| data.len());
        self.count(|counts| counts.bytes_in += arrived as u64);
        let connection = Rc::clone(self);
        let behalf = terms.behalf.clone();
        env::spawn(async move {
            let op = request.op();
            let looks = only_looks(&request);
            let client_request = env::client_request();
            let work = carry_out(&behalf, connection.held.until_end(), request);
            let answer = match looks {
                true => env::caught(work).await,
                // Its panic may leave the store's memory half changed: that is the whole thread's end.
                false => Ok(work.await),
            };
            drop(client_request);
            connection.in_flight.set(connection.in_flight.get() - 1);
            let answer = match answer {
                Ok(answer) => answer,
                Err(why) => {
                    connection.broken(op, &why);
                    drop(held);
                    connection.drained.notify_all();
                    return;
                }
            };
            connection.answered(&answer, answer.data().len() as u64);
            connection.answers.put(Reply {
                op: op as u16,
                id,
                answer,
                held: Some(held),
            });
            connection.held.room.notify_all();
            if connection.draining.get() {
                connection.drained.notify_all();
            }
        });
    }

    fn answered(&self, answer: &Response, bytes_out: u64) {
        self.pace.hear();
        self.count(|counts| {
            counts.answered += 1;
            counts.failed += u64::from(matches!(answer, Response::Failed(_)));
            counts.bytes_out += bytes_out;
        });
    }
}
