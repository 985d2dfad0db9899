//! The published method: the session with most tokens is next, and all get new ones when the round is over.
//!
//! ```text
//! round of SROUND units -> tokens by rate -> leader's request -> ... -> round over -> commit
//!   ^------------------------------------------------------------- committed -------'
//! ```
//!
//! ```text
//! Between    -> Running     a request waits                    begin
//! Running    -> Committing  round served whole, device empty   next answers Commit
//! Running    -> Committing  nothing waits, device empty        next answers Commit
//! Committing -> Between     committed
//! ```
//!
//! Source: PROBS 3.3: a queue per access, tokens in proportion to the rates at the start of each round
//! of SROUND I/Os, the queue with most tokens first, a newcomer's tokens in the next round, metadata
//! first of all and outside tokens and rounds, commit and throughput at the end.
//!
//! Choice: tokens count bytes, so that no access is rounded down to nothing. A leader whose queue is
//! empty yields to the next, into debt if it must, until the round has served its bytes; what is left
//! of tokens then lapses. Ties go to the lower id. A device with nothing to do closes the round. One
//! request at a time is at the device unless `depth` says otherwise; tokens go when a request is sent,
//! which then is the same as when it completes. The commit waits for all of the round's requests and
//! holds data back until it is durable. An access without a rate gets no tokens.
//!
//! Choice: with `join` (the paper's future work) a newcomer gets its part of what is left of the
//! running round at once, and the others' tokens shrink in proportion.
//!
//! Always true:
//! 1. Tokens handed out at the start of a round sum to the round.
//! 2. A round sends no request once its bytes are used up; it exceeds them by less than one request.
//! 3. Between a commit asked for and `committed` no data are sent.

use base::{Bytes, Instant, Nanos};

use super::sessions::Sessions;
use super::split::proportion;
use super::{
    BytesPerSec, Closed, Costs, Dispatch, EnqueueError, Event, Lane, Limits, Next, OpenError,
    Request, Scheduler, SessionCounters, SessionId, Terms, Totals,
};

/// The parameters of the published method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundsOptions {
    /// I/Os in a round (the paper's SROUND).
    pub round_ios: u64,
    /// The length of one I/O (the paper's allocation unit).
    pub unit: Bytes,
    /// Requests at the device at once.
    pub depth: u32,
    /// Does a newcomer get tokens in the running round?
    pub join: bool,
}

impl Default for RoundsOptions {
    /// As in the paper's figure 6: rounds of 64 I/Os of 1 MiB, one at a time.
    fn default() -> Self {
        RoundsOptions {
            round_ios: 64,
            unit: Bytes::mib(1),
            depth: 1,
            join: false,
        }
    }
}

/// A round that is over.
///
/// Source: PROBS 3.3 (throughput per queue and of the device at the end of each round).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Round {
    /// Its number, from 1.
    pub number: u64,
    /// When its first request could go.
    pub from: Instant,
    /// When its last one was done, before the commit.
    pub to: Instant,
    /// What each session that was open at the end moved, by id.
    pub of: Vec<(SessionId, Bytes)>,
}

impl Round {
    /// The rate of the device in this round, metadata and commit left out.
    pub fn throughput(&self) -> BytesPerSec {
        BytesPerSec::of(
            self.of.iter().map(|(_, bytes)| *bytes).sum(),
            self.to.since(self.from),
        )
    }
}

/// What one session holds in the round that runs.
#[derive(Debug, Clone, Copy, Default)]
struct Purse {
    /// Bytes it may still send before others that hold more; below zero: it was served beyond its part.
    tokens: i64,
    moved: Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Between,
    Running,
    Committing,
}

/// Rounds of tokens, with or without [`RoundsOptions::join`].
#[derive(Clone)]
pub struct Rounds {
    options: RoundsOptions,
    sessions: Sessions<Purse>,
    phase: Phase,
    // The round that runs, or ran last.
    number: u64,
    from: Instant,
    done_at: Instant,
    /// Bytes it will still send.
    left: i64,
    last: Option<Round>,
}

impl Rounds {
    /// Promises are judged by `window`.
    ///
    /// # Panics
    /// If the round, the unit or the depth is zero.
    pub fn new(limits: Limits, window: Nanos, costs: Costs, options: RoundsOptions) -> Rounds {
        assert!(
            options.round_ios > 0,
            "a round of no requests serves no session"
        );
        assert!(options.depth > 0, "a queue depth of zero serves no session");
        Rounds {
            options,
            sessions: Sessions::new(limits, window, costs, options.unit),
            phase: Phase::Between,
            number: 0,
            from: Instant(0),
            done_at: Instant(0),
            left: 0,
            last: None,
        }
    }

    /// The tokens every open session holds, by id.
    pub fn tokens(&self) -> Vec<(SessionId, i64)> {
        let all = self.sessions.all();
        all.map(|(id, entry)| (id, entry.own.tokens)).collect()
    }

    /// Bytes a whole round serves.
    fn round(&self) -> u64 {
        self.options.round_ios * self.options.unit.0
    }

    fn begin(&mut self, now: Instant) {
        let rates: Vec<u64> = self.sessions.all().map(|(_, it)| it.terms.rate.0).collect();
        let tokens = proportion(self.round(), &rates);
        for ((_, entry), tokens) in self.sessions.all_mut().zip(tokens) {
            entry.own = Purse {
                tokens: tokens as i64,
                moved: Bytes(0),
            };
        }
        self.number += 1;
        self.from = now;
        self.left = self.round() as i64;
        self.phase = Phase::Running;
    }

    fn end(&mut self) -> Next {
        let all = self.sessions.all();
        self.last = Some(Round {
            number: self.number,
            from: self.from,
            to: self.done_at,
            of: all.map(|(id, entry)| (id, entry.own.moved)).collect(),
        });
        self.phase = Phase::Committing;
        Next::Commit
    }

    /// Gives `newcomer` its part of what is left of the round, at the cost of all that hold tokens.
    fn join(&mut self, newcomer: SessionId) {
        let left = self.left as u64;
        let sum: u64 = self.sessions.all().map(|(_, it)| it.terms.rate.0).sum();
        let rate = self.sessions.get(newcomer).map_or(0, |it| it.terms.rate.0);
        let part = proportion(left, &[rate, sum - rate])[0];
        let held: Vec<u64> = self
            .sessions
            .all()
            .map(|(_, entry)| entry.own.tokens.max(0) as u64)
            .collect();
        let all_held: u64 = held.iter().sum();
        let kept = u128::from(all_held) * u128::from(left - part) / u128::from(left);
        let shrunk = proportion(kept as u64, &held);
        for ((id, entry), tokens) in self.sessions.all_mut().zip(shrunk) {
            if id == newcomer {
                entry.own.tokens = part as i64;
            } else if entry.own.tokens > 0 {
                entry.own.tokens = tokens as i64;
            }
        }
    }

    fn leader(&self) -> Option<SessionId> {
        let most = |(id, tokens): &(SessionId, i64)| (std::cmp::Reverse(*tokens), *id);
        let waiting = self.sessions.waiting();
        let leader = waiting
            .map(|(id, entry)| (id, entry.own.tokens))
            .min_by_key(most);
        leader.map(|(id, _)| id)
    }
}

impl Scheduler for Rounds {
    fn open(&mut self, now: Instant, terms: Terms) -> Result<SessionId, OpenError> {
        let id = self.sessions.open(now, terms, Purse::default())?;
        if self.options.join && self.phase == Phase::Running && self.left > 0 {
            self.join(id);
        }
        Ok(id)
    }

    fn close(&mut self, now: Instant, session: SessionId) -> Option<Closed> {
        self.sessions.close(now, session)
    }

    fn enqueue(&mut self, now: Instant, lane: Lane, request: Request) -> Result<(), EnqueueError> {
        self.sessions.enqueue(now, lane, request)
    }

    fn next(&mut self, now: Instant) -> Next {
        if self.sessions.in_flight() >= self.options.depth {
            return Next::Idle;
        }
        if let Some(dispatch) = self.sessions.take_metadata(now) {
            return Next::Dispatch(dispatch);
        }
        if self.phase == Phase::Committing {
            return Next::Idle;
        }
        let leader = self.leader();
        if self.phase == Phase::Between {
            if leader.is_none() {
                return Next::Idle;
            }
            self.begin(now);
        }
        // Chosen anew: the round may just have begun.
        match self.leader().filter(|_| self.left > 0) {
            Some(id) => {
                let dispatch = self.sessions.take(now, id, Bytes(u64::MAX));
                let purse = &mut self.sessions.get_mut(id).expect("it leads").own;
                purse.tokens -= dispatch.bytes.0 as i64;
                purse.moved += dispatch.bytes;
                self.left -= dispatch.bytes.0 as i64;
                Next::Dispatch(dispatch)
            }
            None if self.sessions.in_flight() == 0 => self.end(),
            None => Next::Idle,
        }
    }

    fn completed(&mut self, now: Instant, dispatch: &Dispatch, done: Bytes) {
        self.done_at = now;
        self.sessions.completed(now, dispatch, done);
    }

    fn committed(&mut self, _now: Instant) {
        assert_eq!(self.phase, Phase::Committing, "no commit was asked for");
        self.phase = Phase::Between;
    }

    fn set_costs(&mut self, now: Instant, costs: Costs) {
        self.sessions.set_costs(now, costs);
    }

    fn figures(&mut self, now: Instant, session: SessionId) -> Option<SessionCounters> {
        self.sessions.figures(now, session)
    }

    fn totals(&self) -> Totals {
        self.sessions.totals()
    }

    fn depth(&self) -> u32 {
        self.options.depth
    }

    fn last_round(&self) -> Option<&Round> {
        self.last.as_ref()
    }

    fn take_events(&mut self) -> Vec<Event> {
        self.sessions.take_events()
    }
}
