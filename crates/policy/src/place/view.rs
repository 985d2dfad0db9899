//! What does a client know of one disk, and how does its queue look by that at this moment?
//!
//! ```text
//! states, answers, silence -> View -> QueueEstimate -> score of a request
//! ```
//!
//! Always true: a state gives way to a later one only.

use base::{Instant, Nanos};

use super::disks::Flights;
use super::suspicion::Suspicion;
use super::{Candidate, Class, ClientId, EjectOptions, Permille, Request, State, Tail, Weights};

/// One own request under way.
#[derive(Debug, Clone)]
pub(super) struct Flight {
    pub(super) sent: Instant,
    /// What it adds to the disk's queue.
    pub(super) cost: Nanos,
    /// When an answer was expected.
    pub(super) predicted: Nanos,
    /// Of the transfer, what the way takes.
    pub(super) way: Nanos,
    pub(super) request: Request,
    pub(super) rotating: bool,
    /// It is a second, or has one.
    pub(super) hedged: bool,
}

/// What is known of one disk.
#[derive(Debug, Clone, Default)]
pub(super) struct View {
    pub(super) state: Option<State>,
    /// The hop there and back, in nanoseconds.
    pub(super) net: Option<f64>,
    pub(super) under_way: Flights<Flight>,
    /// When the last own request went out, and the tail behind it.
    pub(super) own_tail: Option<(Instant, Tail)>,
    /// Requests that were given up late, none having been answered since.
    pub(super) silence: Option<Silence>,
    pub(super) suspicion: Suspicion,
}

/// A disk that let requests be given up late.
#[derive(Debug, Clone, Copy)]
pub(super) struct Silence {
    /// When the first of them went out, and when its answer was expected after that.
    since: Instant,
    predicted: Nanos,
    /// When the last was given up, and until when the disk is not to be tried again.
    noted: Instant,
    until: Instant,
}

/// A disk that needs four times as long as was predicted, and at least so long, stalls.
const STALLED: Nanos = Nanos::millis(4);

impl View {
    pub(super) const NEWEST: f64 = 0.125;

    #[inline]
    pub(super) fn net(&self) -> Nanos {
        Nanos(self.net.unwrap_or(0.0).round() as u64)
    }

    /// What went out then has come to the disk after `state` was taken.
    pub(super) fn unknown_to(&self, state: &State, sent: Instant) -> bool {
        sent + self.net() / 2 >= state.at
    }

    pub(super) fn take_state(&mut self, state: &State) {
        if self.state.is_none_or(|known| known.at <= state.at) {
            self.state = Some(state.bounded());
            self.silence = self.silence.filter(|it| state.at <= it.noted);
        }
    }

    /// How long the disk may need before it answers, since it is late: as long again.
    pub(super) fn late(&self, now: Instant) -> Nanos {
        let of = |since, predicted| now.since(since).saturating_sub(predicted);
        match (self.under_way.iter().next(), self.silence) {
            (None, None) => Nanos(0),
            (Some(oldest), None) => of(oldest.sent, oldest.predicted),
            (Some(oldest), Some(it)) if oldest.sent < it.since => of(oldest.sent, oldest.predicted),
            (Some(_), Some(it)) => of(it.since, it.predicted),
            (None, Some(it)) => it.until.since(now),
        }
    }

    /// `flight` was given up. If it was late, the disk is tried again only after as long as it has been silent.
    pub(super) fn given_up(&mut self, now: Instant, flight: &Flight) {
        if now.since(flight.sent) <= flight.predicted {
            return;
        }
        let (since, predicted) = match self.silence {
            Some(it) if it.since < flight.sent => (it.since, it.predicted),
            _ => (flight.sent, flight.predicted),
        };
        self.silence = Some(Silence {
            since,
            predicted,
            noted: now,
            until: now + now.since(since).saturating_sub(predicted),
        });
    }

    /// It does nothing now, as far as can be seen: an own request is later than a slow answer would be.
    pub(super) fn stalled(&self, now: Instant) -> bool {
        self.waits_beyond(now, STALLED, 4)
    }

    /// The oldest request under way is much later than it should be.
    pub(super) fn overdue(&self, now: Instant, options: &EjectOptions) -> bool {
        self.waits_beyond(now, options.overdue, 8)
    }

    /// The oldest request under way has had neither an answer for so long nor for so many times the prediction.
    fn waits_beyond(&self, now: Instant, least: Nanos, times: u64) -> bool {
        let oldest = self.under_way.iter().next();
        oldest.is_some_and(|it| now.since(it.sent) > least.max(it.predicted * times))
    }
}

/// How a disk's queue is seen at this moment.
pub(super) struct QueueEstimate {
    pub(super) weights: Weights,
    /// W.
    pub(super) waiting: Nanos,
    /// What others have there, as often as there are own requests before a new one.
    pub(super) again: Nanos,
    /// Behind the last own request.
    pub(super) own_tail: Option<Tail>,
    pub(super) tail: Tail,
    /// Is `tail.end` fresh enough to count?
    pub(super) end_known: bool,
    /// The highest class there.
    pub(super) foremost: Option<Class>,
    /// How far the clients seen there still count: 1 just now, 0 long ago.
    pub(super) memory: f64,
    pub(super) net: Nanos,
}

impl QueueEstimate {
    /// With own requests the state does not know of, and their end.
    #[inline]
    pub(super) fn with_own(mut self, view: &View, state: &State) -> QueueEstimate {
        let unknown = view
            .under_way
            .iter()
            .filter(|it| view.unknown_to(state, it.sent));
        let own: Nanos = unknown.map(|it| it.cost).sum();
        self.waiting += own;
        if let Some((sent, tail)) = view.own_tail
            && view.unknown_to(state, sent)
        {
            self.tail = tail;
            self.end_known = true;
            if self.foremost.is_none() {
                self.memory = 1.0;
            }
        }
        self
    }

    /// With `again`, by the requests that this client has there.
    ///
    /// Choice: what others have there counts as one turn of all of them. A store does not say how much is whose.
    pub(super) fn in_turns(mut self, view: &View, client: ClientId) -> QueueEstimate {
        let own = view
            .under_way
            .iter()
            .filter(|it| it.request.origin.client == client);
        let (number, cost) = own.fold((0, Nanos(0)), |sum, it| (sum.0 + 1, sum.1 + it.cost));
        self.again = self.waiting.saturating_sub(cost) * number;
        let tail = view.own_tail.map(|(_, tail)| tail);
        self.own_tail = tail.filter(|it| it.last.is_some_and(|last| last.client == client));
        self
    }

    /// What a request waits for: on a disk that seeks, once more for the others for each own request before it, unless it
    /// goes on where the last own one ends, or its class is next anyway.
    pub(super) fn waits(&self, request: &Request, on: &Candidate) -> Nanos {
        let goes_on = |tail: Tail| tail.seeks(request, on.at) == 0;
        let next_anyway = request.origin.class == Class::High || self.own_tail.is_some_and(goes_on);
        match on.rotating && !next_anyway {
            true => self.waiting + self.again,
            false => self.waiting,
        }
    }

    /// W + c_new + net.
    pub(super) fn score(&self, request: &Request, on: &Candidate) -> Nanos {
        let transfer = self.weights.per_byte(on.local).times(request.bytes);
        let seeks = match self.end_known {
            true => self.tail.seeks(request, on.at),
            false => 1,
        };
        let q = self.remembered(self.weigh(request));
        self.waits(request, on) + transfer + q.of(self.weights.seek) * seeks + self.net
    }

    pub(super) fn weigh(&self, request: &Request) -> Permille {
        let q = request.penalties.weigh(self.tail.last, request.origin);
        match self.foremost > Some(request.origin.class) {
            true => q.max(request.penalties.from_higher),
            false => q,
        }
    }

    pub(super) fn remembered(&self, q: Permille) -> Permille {
        if self.memory >= 1.0 {
            return q;
        }
        let whole = f64::from(Permille::WHOLE.0);
        let q = whole + (f64::from(q.0) - whole) * self.memory;
        Permille(q.round() as u32)
    }
}
