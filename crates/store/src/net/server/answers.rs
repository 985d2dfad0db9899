//! Answers on their way to a client, gathered into few sends, with load reports beside them.
//!
//! Always true: what an answer holds is freed when it was sent, or can no longer be.

use std::cell::Cell;
use std::rc::Weak;

use env::net::Stream;
use env::net::message::Outbox;
use tls::Wire;

use super::frames::CONNECTION;
use super::held::Charge;
use super::pace::Pace;
use super::terms::Reporting;
use crate::net::wire::state::encode;
use crate::net::wire::stream::Pieces;
use crate::net::wire::{Failure, Header, Kind, Op, RefusedKind, Response};
use crate::qos::session::Session;

/// Answers gathered into one send, in bytes.
const SEND_BATCH: usize = 1 << 20;

/// One answer.
pub(super) struct Reply {
    pub op: u16,
    pub id: u64,
    pub answer: Response,
    /// The goodbye holds nothing.
    pub held: Option<Charge>,
}

/// What one connection still says.
#[derive(Default)]
pub(super) struct Answers {
    outgoing: Outbox<Reply>,
    /// Sending failed: answers go nowhere from now on.
    deaf: Cell<bool>,
    /// Its capability is good no more: nothing is answered from now on.
    revoked: Cell<bool>,
    pub reporting: Cell<Option<Reporting>>,
}

impl Answers {
    pub fn put(&self, reply: Reply) {
        if !self.deaf.get() && !self.revoked.get() {
            self.outgoing.push(reply);
        }
    }

    /// Says what concerns the whole connection.
    pub fn put_last(&self, id: u64, kind: RefusedKind, why: &str) {
        self.put(Reply {
            op: CONNECTION,
            id,
            answer: Response::Failed(Failure::refused(kind, why)),
            held: None,
        });
    }

    /// Says why nothing more is served, and answers nothing from here on; what waits is not sent.
    pub fn hush(&self, why: &str) {
        self.outgoing.clear();
        self.put_last(0, RefusedKind::Access, why);
        self.revoked.set(true);
    }

    /// Says behind what waits that the client's rights are over, and answers nothing from here on.
    pub fn end(&self, why: &str) {
        self.put_last(0, RefusedKind::Ended, why);
        self.revoked.set(true);
    }

    /// Nothing more is said behind what waits.
    pub fn close(&self) {
        self.outgoing.close();
    }

    /// Can the peer not hear any more?
    pub fn is_deaf(&self) -> bool {
        self.deaf.get()
    }

    /// Sends what is put, until it is closed and all is said.
    pub async fn write(
        &self,
        (peer, stream): (&str, &Stream),
        wire: &Wire,
        pace: &Pace,
        session: &Weak<Session>,
    ) {
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
            self.report_load(session, &mut pieces);
            pace.sends(pieces.bytes());
            let sent = wire.write_all(pieces.take()).await;
            pace.sent();
            if let Err(error) = sent {
                tracing::debug!(peer, %error, "answers cannot be sent");
                self.deaf.set(true);
                stream.abort();
                self.outgoing.clear();
            }
            held.clear();
        }
    }

    /// The queue's state as a frame of its own, if it is time for one.
    fn report_load(&self, session: &Weak<Session>, pieces: &mut Pieces) {
        let now = env::now();
        let due = |it: &Reporting| now.since(it.last) >= it.every;
        let Some(reporting) = self.reporting.get().filter(due) else {
            return;
        };
        let Some(session) = session.upgrade() else {
            return;
        };
        let meta = encode(&session.load_report());
        let header = Header::of(Op::ClientTag as u16, 0, 0, &meta, &[]);
        pieces.put(&header.encode(Kind::Response));
        pieces.put(&meta);
        let last = now;
        self.reporting.set(Some(Reporting { last, ..reporting }));
    }
}
