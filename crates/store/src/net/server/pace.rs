//! Does a peer keep going? Messages that stall, answers left unread, silence.
//!
//! ```text
//! received, sent -> since when, how many bytes -> overdue: alone, or while others wait for the memory it holds
//! ```

use std::cell::Cell;
use std::rc::Rc;

use base::{Instant, Nanos};

use super::limits::Limits;
use crate::net::wire::stream::TransferTimeout;

/// The pace of one connection, both ways.
pub(super) struct Pace {
    // Fixed.
    pub reading: Rc<TransferTimeout>,
    sending: TransferTimeout,
    /// How long the peer may say nothing with nothing under way.
    idle: Nanos,
    /// How a peer is hurried on while others wait for the memory that it holds.
    hurry: Hurry,
    // Per request.
    /// When the peer was last heard or answered.
    heard: Cell<Instant>,
    /// Since when data come in, and go out, and how many bytes.
    receiving: Cell<Option<(Instant, u64)>>,
    sent_since: Cell<Option<(Instant, u64)>>,
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

impl Pace {
    /// `waiting`: the requests of the whole server that wait for memory.
    pub fn new(limits: &Limits, waiting: &Rc<Cell<u64>>) -> Pace {
        let rate = limits.rate_min_bytes_per_second;
        Pace {
            reading: Rc::new(TransferTimeout::new(limits.stall, rate)),
            sending: TransferTimeout::new(limits.stall, rate),
            idle: limits.idle,
            hurry: Hurry {
                waiting: Rc::clone(waiting),
                stall: limits.hurried_stall,
                rate: limits.hurried_rate_min_bytes_per_second.max(1),
            },
            heard: Cell::new(env::now()),
            receiving: Cell::default(),
            sent_since: Cell::default(),
        }
    }

    /// The peer was heard or answered just now.
    pub fn hear(&self) {
        self.heard.set(env::now());
    }

    /// Data of `len` bytes begin to come in.
    pub fn receives(&self, len: u64) {
        self.receiving.set(Some((env::now(), len)));
    }

    /// They are there.
    pub fn received(&self) {
        self.receiving.set(None);
        self.reading.end();
    }

    /// Answers of `len` bytes begin to go out.
    pub fn sends(&self, len: usize) {
        self.sending.begin(len);
        self.sent_since.set(Some((env::now(), len as u64)));
    }

    /// They are gone.
    pub fn sent(&self) {
        self.sent_since.set(None);
        self.sending.end();
        self.hear();
    }

    /// Why the peer is to be cut; `waits`: it waits for the server, so that it is not silent.
    pub fn overdue(&self, now: Instant, waits: bool) -> Option<&'static str> {
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
        (silent && !waits).then_some("the peer has gone silent")
    }
}
