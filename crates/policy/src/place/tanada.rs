//! Tanada's own replica policy: the published cost, computed from what is known of each disk *now*.
//!
//! ```text
//! score = W                    + c_new                  + net
//!         aged state, own        measured a and b,        measured hop
//!         requests since         q by class and age
//! -> read: any within `epsilon` of the least      place: the k least of d drawn, with room and headroom
//!    small: the most that is not late              alone: as C3
//! -> late: a second copy is asked                 slower than it should be: avoided, unless it is the last copy
//! ```
//!
//! Every part is a switch of [`TanadaOptions`]; with all of them off ([`TanadaOptions::published`]) the decisions are
//! those of [`QueueCost`](super::QueueCost), which a test holds.
//!
//! Source: COST 3 (the cost), 6 (future work: general loads, reliability).
//!
//! Choice: the published method needs states no older than about one service time. With older ones all clients run to
//! the disk that was idle, and back. So states come with every answer, own requests are added, what is old decays to the
//! disk's mean, and among equals chance decides. A cost says how much a request disturbs others. A client that is alone
//! disturbs no other and is faster by using all copies at once.
//!
//! Always true:
//! 1. With the same seed the same calls give the same answers.
//! 2. The disk of the last copy is never avoided.
//! 3. Of any n reads since the start at most a twentieth (`budget`) is sent a second time.

use base::{Bytes, Instant, Nanos};

use super::c3::C3;
use super::chance::Chance;
use super::disks::Disks;
use super::options::{HedgeDisks, TanadaOptions, Waits};
use super::spread::{cheapest, first_apart, with_room};
use super::view::{Flight, QueueEstimate, View};
use super::{
    Candidate, Class, ClientId, DiskId, Op, Penalties, Permille, PlaceError, ReplicaPolicy, Reply,
    Request, Sent, State, Tail, Target, Ticket, Weights,
};

/// What something costs on the average, and how far from that as a rule; nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
struct Usual {
    mean: Option<f64>,
    deviation: f64,
}

impl Usual {
    /// With one more `cost`: so many `deviations` above the mean.
    fn learn(&mut self, cost: Nanos, deviations: Permille) -> Nanos {
        let cost = cost.0 as f64;
        let mean = self.mean.get_or_insert(cost);
        let off = cost - *mean;
        *mean += Tanada::NEWEST * off;
        self.deviation += Tanada::NEWEST * (off.abs() - self.deviation);
        Nanos((*mean + deviations.as_f64() * self.deviation).round() as u64)
    }
}

/// The default policy.
#[derive(Debug, Clone)]
pub struct Tanada {
    /// Of disks that were not heard of.
    weights: Weights,
    options: TanadaOptions,
    disks: Disks<View>,
    chance: Chance,
    /// Seconds that may be sent, in thousandths.
    hedges: u32,
    /// The length of what waits at the disks, and what small reads cost at best; averaged.
    waiting_bytes: f64,
    small_costs: Usual,
    /// The choice for a client that is alone.
    own: C3,
}

impl Tanada {
    /// Of what is averaged over requests, at each.
    const NEWEST: f64 = 1.0 / 64.0;

    /// A client that has heard nothing; unknown disks have `weights`, chance comes from `seed`.
    pub fn new(weights: Weights, options: TanadaOptions, seed: u64) -> Tanada {
        Tanada {
            weights,
            options,
            disks: Disks::default(),
            chance: Chance::new(seed),
            hedges: 0,
            waiting_bytes: 0.0,
            small_costs: Usual::default(),
            own: C3::new(1),
        }
    }

    fn seen(&self, now: Instant, disk: DiskId, client: ClientId) -> QueueEstimate {
        let unknown = View::default();
        let view = self.disks.get(disk).unwrap_or(&unknown);
        let state = view.state.unwrap_or(State::idle(self.weights));
        let age = now.since(state.at);
        let left = self.options.ageing.map_or(1.0, |tau| kept(age, tau));
        let seen = QueueEstimate {
            weights: state.weights,
            waiting: self.reported(&state, age, left),
            again: Nanos(0),
            own_tail: None,
            tail: state.tail,
            end_known: self.options.fresh.is_none_or(|fresh| age <= fresh),
            foremost: state.foremost.filter(|_| self.options.presence),
            memory: self.options.class_memory.map_or(1.0, |tau| kept(age, tau)),
            net: if self.options.net {
                view.net()
            } else {
                Nanos(0)
            },
        };
        let mut seen = match self.options.own {
            true => seen.with_own(view, &state),
            false => seen,
        };
        if self.options.waits == Waits::Turns {
            seen = seen.in_turns(view, client);
        }
        if self.options.late {
            seen.waiting = seen.waiting.max(view.late(now));
        }
        seen
    }

    /// The work that a state reports, aged.
    ///
    /// Source: COST 3.2 (cost'), aged: `e^(-dt/tau) * max(0, W0 - dt*(1-rho)) + (1 - e^(-dt/tau)) * Wmean`.
    fn reported(&self, state: &State, age: Nanos, kept: f64) -> Nanos {
        let reported = match self.options.waits {
            Waits::All | Waits::Turns => state.work,
            Waits::Cost => state.cost,
        };
        if self.options.ageing.is_none() {
            return reported;
        }
        let idle = 1.0 - state.utilisation.as_f64();
        let left = (reported.0 as f64 - age.0 as f64 * idle).max(0.0);
        let mean = state.work_mean.0 as f64;
        Nanos((kept * left + (1.0 - kept) * mean).round() as u64)
    }

    /// What a request would cost on a disk by all that is known now: `W + c_new + net`.
    pub fn score(&self, now: Instant, request: &Request, on: &Candidate) -> Nanos {
        self.seen(now, on.disk, request.origin.client)
            .score(request, on)
    }

    fn avoided(&self, now: Instant, disk: DiskId) -> bool {
        let (Some(options), Some(view)) = (&self.options.eject, self.disks.get(disk)) else {
            return false;
        };
        view.suspicion.ejected(now) || view.overdue(now, options)
    }

    /// Those of the copies that may be asked: the ones that are not avoided, unless all of these stall while others do not.
    /// To have been slow a while ago is less than to do nothing now.
    fn askable(&self, now: Instant, copies: &[Candidate]) -> Vec<Candidate> {
        let stalls = |it: &Candidate| {
            let view = self.disks.get(it.disk);
            self.options.late && view.is_some_and(|view| view.stalled(now))
        };
        let trusted = copies.iter().filter(|it| !self.avoided(now, it.disk));
        let trusted: Vec<Candidate> = trusted.copied().collect();
        match trusted.iter().all(stalls) && copies.iter().any(|it| !stalls(it)) {
            true => copies.iter().filter(|it| !stalls(it)).copied().collect(),
            false => trusted,
        }
    }

    fn learn_length(waiting_bytes: &mut f64, state: &State) {
        if state.mean > Bytes(0) {
            *waiting_bytes += Tanada::NEWEST * (state.mean.0 as f64 - *waiting_bytes);
        }
    }

    /// Did no other client's request wait at this disk at its last load report, which is not long ago?
    fn is_alone(&self, now: Instant, request: &Request, disk: DiskId) -> bool {
        let (Some(memory), Some(view)) = (self.options.alone, self.disks.get(disk)) else {
            return false;
        };
        view.state.is_some_and(|state| {
            let own = (state.tail.last).is_none_or(|it| it.client == request.origin.client);
            own && now.since(state.at) <= memory && state.requests as usize <= view.under_way.len()
        })
    }

    /// For a read that yields: the fullest disk at which it is not late, or else the emptiest.
    fn yielded(&mut self, now: Instant, request: &Request, copies: &[Candidate]) -> Option<DiskId> {
        let options = self.options.yielding?;
        let small = request.bytes.0 as f64 * f64::from(options.smaller) <= self.waiting_bytes;
        if !small || request.origin.class == Class::High {
            return None;
        }
        let score = |it: &Candidate| (self.score(now, request, it), it.disk);
        let mut scores: Vec<(Nanos, DiskId)> = copies.iter().map(score).collect();
        scores.sort_by_key(|(score, _)| *score);
        let (least, emptiest) = *scores.first()?;
        let late = self.small_costs.learn(least, options.deviations);
        let in_time = scores.iter().rfind(|(score, _)| *score <= late);
        Some(in_time.map_or(emptiest, |(_, disk)| *disk))
    }

    /// The least score; among those alike chance decides.
    fn best(&mut self, now: Instant, request: &Request, copies: &[Candidate]) -> Option<DiskId> {
        let scores: Vec<Nanos> = copies
            .iter()
            .map(|it| self.score(now, request, it))
            .collect();
        let least = *scores.iter().min()?;
        let alike = match self.options.epsilon {
            None => {
                return copies
                    .get(scores.iter().position(|it| *it == least)?)
                    .map(|it| it.disk);
            }
            Some(epsilon) => least + epsilon.of(least),
        };
        let disks = copies
            .iter()
            .zip(&scores)
            .filter(|(_, score)| **score <= alike);
        let disks: Vec<DiskId> = disks.map(|(copy, _)| copy.disk).collect();
        Some(disks[self.chance.below(disks.len())])
    }

    /// A few disks by chance, as many domains as can be.
    fn draw(&mut self, mut room: Vec<Target>, drawn: usize) -> Vec<Target> {
        self.chance.shuffle(&mut room);
        let apart = first_apart(&room, drawn);
        room.sort_by_key(|it| !apart.contains(&it.candidate.disk));
        room.truncate(drawn);
        room
    }

    /// Without those that are avoided, if enough are left.
    fn trusted(&self, now: Instant, disks: &[Target], bytes: Bytes, copies: usize) -> Vec<Target> {
        let trusted = disks
            .iter()
            .filter(|it| !self.avoided(now, it.candidate.disk));
        let trusted: Vec<Target> = trusted.copied().collect();
        match with_room(&trusted, bytes, copies) {
            Ok(_) => trusted,
            Err(_) => disks.to_vec(),
        }
    }

    fn judge(&mut self, now: Instant, disk: DiskId) {
        let Some(options) = self.options.eject else {
            return;
        };
        let Some(mut suspicion) = self.disks.get(disk).map(|view| view.suspicion.clone()) else {
            return;
        };
        suspicion.judge(now, &options, || {
            let others = self.disks.iter().filter(|(other, _)| *other != disk);
            others
                .filter_map(|(_, view)| view.suspicion.ratio(&options))
                .collect()
        });
        if let Some(view) = self.disks.get_mut(disk) {
            view.suspicion = suspicion;
        }
    }
}

/// What is left of one after `age`, if in `tau` 63 % go.
fn kept(age: Nanos, tau: Nanos) -> f64 {
    (-(age.0 as f64) / tau.0.max(1) as f64).exp()
}

impl ReplicaPolicy for Tanada {
    fn read(&mut self, now: Instant, request: &Request, copies: &[Candidate]) -> DiskId {
        let trusted = self.askable(now, copies);
        if !trusted.is_empty()
            && trusted
                .iter()
                .all(|it| self.is_alone(now, request, it.disk))
        {
            return self.own.read(now, request, &trusted);
        }
        if let Some(disk) = self.yielded(now, request, &trusted) {
            return disk;
        }
        let best = self.best(now, request, &trusted);
        let best = best.or_else(|| self.best(now, request, copies));
        best.expect("a block has at least one copy")
    }

    fn place(
        &mut self,
        now: Instant,
        request: &Request,
        copies: usize,
        disks: &[Target],
    ) -> Result<Vec<DiskId>, PlaceError> {
        let Some(choices) = self.options.choices else {
            let disks = self.trusted(now, disks, request.bytes, copies);
            return cheapest(&disks, request.bytes, copies, |it| {
                self.score(now, request, &it.candidate)
            });
        };
        let room = with_room(disks, request.bytes, copies)?;
        let room = self.trusted(now, &room, request.bytes, copies);
        let drawn = self.draw(room, copies.max(choices.drawn as usize));
        cheapest(&drawn, request.bytes, copies, |it| {
            let used = it.capacity.0.saturating_sub(it.free.0) as u128 * 1_000;
            let used = Permille((used / u128::from(it.capacity.0.max(1))) as u32);
            self.score(now, request, &it.candidate)
                + used.of(choices.full)
                + it.reserved.min(Permille::WHOLE).of(choices.reserved)
        })
    }

    fn sent(&mut self, now: Instant, sent: &Sent) {
        self.own.sent(now, sent);
        let Sent {
            candidate, request, ..
        } = sent;
        let seen = self.seen(now, candidate.disk, request.origin.client);
        let plain = Request {
            penalties: Penalties::NONE,
            ..*request
        };
        let predicted = seen.score(&plain, candidate);
        let base = seen.waits(request, candidate) + seen.net;
        let cost = match self.options.waits {
            Waits::All | Waits::Turns => predicted - base,
            Waits::Cost => seen.score(request, candidate) - base,
        };
        let of = |weight: super::PerByte| weight.times(request.bytes);
        let way = of(seen.weights.per_byte(candidate.local)).saturating_sub(of(seen.weights.local));
        let view = self.disks.entry(candidate.disk, View::default);
        view.own_tail = Some((now, Tail::behind(request, candidate.at)));
        let flight = Flight {
            sent: now,
            cost,
            predicted,
            way,
            request: *request,
            rotating: candidate.rotating,
            hedged: sent.hedge,
        };
        view.under_way.push(sent.ticket, flight);
        if let (Some(hedge), Op::Read, false) = (self.options.hedge, request.op, sent.hedge) {
            self.hedges = (self.hedges + hedge.budget.0).min(hedge.burst * 1_000);
        }
    }

    fn answered(&mut self, now: Instant, disk: DiskId, ticket: Ticket, reply: &Reply) {
        self.own.answered(now, disk, ticket, reply);
        let Some(view) = self.disks.get_mut(disk) else {
            return;
        };
        if let (true, Some(state)) = (self.options.piggyback, &reply.state) {
            view.take_state(state);
            Tanada::learn_length(&mut self.waiting_bytes, state);
        }
        let Some(flight) = view.under_way.take(ticket) else {
            return;
        };
        view.silence = None;
        let took = now.since(flight.sent);
        let hop = took
            .saturating_sub(reply.residence)
            .saturating_sub(flight.way);
        let known = view.net.get_or_insert(hop.0 as f64);
        *known += View::NEWEST * (hop.0 as f64 - *known);
        view.suspicion.answered(took, flight.predicted);
        self.judge(now, disk);
    }

    fn failed(&mut self, now: Instant, disk: DiskId, ticket: Ticket, fault: bool) {
        self.own.failed(now, disk, ticket, fault);
        let Some(view) = self.disks.get_mut(disk) else {
            return;
        };
        match view.under_way.take(ticket) {
            Some(_) if fault => {
                view.suspicion.fault();
                self.judge(now, disk);
            }
            Some(flight) => view.given_up(now, &flight),
            None => {}
        }
    }

    fn heard(&mut self, _now: Instant, disk: DiskId, state: &State) {
        self.disks.entry(disk, View::default).take_state(state);
        Tanada::learn_length(&mut self.waiting_bytes, state);
    }

    fn hedge_at(&self, disk: DiskId, ticket: Ticket) -> Option<Instant> {
        let hedge = self.options.hedge?;
        let flight = self.disks.get(disk)?.under_way.get(ticket)?;
        let may = hedge.disks == HedgeDisks::All || !flight.rotating;
        let late = hedge.after_min.max(hedge.factor.of(flight.predicted));
        (may && flight.request.op == Op::Read && !flight.hedged).then_some(flight.sent + late)
    }

    fn hedge(
        &mut self,
        now: Instant,
        disk: DiskId,
        ticket: Ticket,
        copies: &[Candidate],
    ) -> Option<DiskId> {
        let late = self.hedge_at(disk, ticket)? <= now;
        if !late || self.hedges < 1_000 {
            return None;
        }
        let others = copies.iter().filter(|it| it.disk != disk);
        let others: Vec<Candidate> = others.copied().collect();
        let others = match others.iter().all(|it| self.avoided(now, it.disk)) {
            true => Vec::new(),
            false => self.askable(now, &others),
        };
        let request = self.disks.get(disk)?.under_way.get(ticket)?.request;
        let second = self.best(now, &request, &others)?;
        self.hedges -= 1_000;
        self.disks
            .get_mut(disk)?
            .under_way
            .mark(ticket, |it| it.hedged = true);
        Some(second)
    }

    fn ejected(&self, now: Instant) -> Vec<DiskId> {
        let all = self.disks.iter().map(|(disk, _)| disk);
        let mut ejected: Vec<DiskId> = all.filter(|disk| self.avoided(now, *disk)).collect();
        ejected.sort_unstable();
        ejected
    }
}
