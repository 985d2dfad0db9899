//! Plain reference models of the rounds and the tags: lists, no figures, nothing saved for later.

use std::collections::BTreeMap;

use base::{Bytes, Instant};

use super::super::*;

/// What comes out, as far as a reference model says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Out {
    /// Ticket, offset, length.
    Send(u64, u64, u64),
    Commit,
    Wait(u64),
    Idle,
}

/// A session of either reference model.
#[derive(Default)]
pub struct Line {
    pub id: u64,
    pub rate: u64,
    pub tokens: i64,
    /// Ticket, length, sent.
    pub requests: Vec<(u64, u64, u64)>,
    // Tags only.
    pub class: Class,
    pub limit: Option<u64>,
    pub weight: u64,
    pub high: bool,
    pub account: u64,
    pub due: u64,
    pub cushioned: u64,
    pub free: u64,
    pub spare: u128,
}

/// PROBS 3.3, steps 1 to 6, as one would write them on a page.
#[derive(Default)]
pub struct NaiveRounds {
    pub lines: Vec<Line>,
    pub high: Vec<(u64, u64)>,
    pub round: u64,
    pub join: bool,
    pub depth: u32,
    pub in_flight: u32,
    pub left: i64,
    pub running: bool,
    pub committing: bool,
}

impl NaiveRounds {
    pub fn open(&mut self, id: u64, rate: u64) {
        let mut newcomer = Line {
            id,
            rate,
            ..Line::default()
        };
        if self.join && self.running && self.left > 0 {
            let all: u64 = self.lines.iter().map(|line| line.rate).sum();
            let left = self.left as u64;
            let mine = split(left, &[rate, all])[0];
            let held: Vec<u64> = self.lines.iter().map(|l| l.tokens.max(0) as u64).collect();
            let sum: u64 = held.iter().sum();
            let keep = u128::from(sum) * u128::from(left - mine) / u128::from(left);
            for (line, tokens) in self.lines.iter_mut().zip(split(keep as u64, &held)) {
                if line.tokens > 0 {
                    line.tokens = tokens as i64;
                }
            }
            newcomer.tokens = mine as i64;
        }
        self.lines.push(newcomer);
    }

    pub fn next(&mut self) -> Out {
        if self.in_flight >= self.depth {
            return Out::Idle;
        }
        if !self.high.is_empty() {
            let (ticket, bytes) = self.high.remove(0);
            self.in_flight += 1;
            return Out::Send(ticket, 0, bytes);
        }
        if self.committing {
            return Out::Idle;
        }
        if !self.running {
            if self.lines.iter().all(|line| line.requests.is_empty()) {
                return Out::Idle;
            }
            let rates: Vec<u64> = self.lines.iter().map(|line| line.rate).collect();
            for (line, tokens) in self.lines.iter_mut().zip(split(self.round, &rates)) {
                line.tokens = tokens as i64;
            }
            self.left = self.round as i64;
            self.running = true;
        }
        let mut leader: Option<&mut Line> = None;
        for line in &mut self.lines {
            let ahead = leader
                .as_ref()
                .is_none_or(|leader| line.tokens > leader.tokens);
            if !line.requests.is_empty() && ahead {
                leader = Some(line);
            }
        }
        match leader {
            Some(line) if self.left > 0 => {
                let (ticket, bytes, _) = line.requests.remove(0);
                line.tokens -= bytes as i64;
                self.left -= bytes as i64;
                self.in_flight += 1;
                Out::Send(ticket, 0, bytes)
            }
            _ if self.in_flight > 0 => Out::Idle,
            _ => {
                self.running = false;
                self.committing = true;
                Out::Commit
            }
        }
    }
}

/// Largest remainders, one unit after the other.
pub fn split(amount: u64, weights: &[u64]) -> Vec<u64> {
    let sum: u128 = weights.iter().map(|w| u128::from(*w)).sum();
    if sum == 0 {
        return vec![0; weights.len()];
    }
    let exact = |w: u64| u128::from(amount) * u128::from(w);
    let mut parts: Vec<u64> = weights.iter().map(|w| (exact(*w) / sum) as u64).collect();
    let mut rest: Vec<u128> = weights.iter().map(|w| exact(*w) % sum).collect();
    while parts.iter().sum::<u64>() < amount {
        let most = *rest.iter().max().expect("there is a session");
        let first = rest.iter().position(|r| *r == most).expect("it is there");
        parts[first] += 1;
        rest[first] = 0;
    }
    parts
}

/// The tags, every sum done anew at every turn. All requests are reads, follow on each other and are
/// multiples of 4 KiB.
pub struct NaiveTags {
    pub lines: Vec<Line>,
    pub high: Vec<(u64, u64, Option<u64>)>,
    pub costs: Costs,
    pub window: u64,
    pub options: TagsOptions,
    pub depth: u32,
    pub in_flight: u32,
    /// Of each account with lines: its weight, its spare tag, and that of its line last served so.
    pub accounts: BTreeMap<u64, (u64, u128, u128)>,
    /// The spare tag of the account last served so.
    pub spare: u128,
    pub shed: Shed,
}

impl NaiveTags {
    /// What a request of `bytes` costs.
    fn cost(&self, bytes: u64) -> u64 {
        self.costs
            .of(Direction::Read, Bytes(bytes), Approach::Follows)
            .0
    }

    /// What `piece` of a request of `bytes` is charged.
    fn charge(&self, piece: u64, bytes: u64) -> u64 {
        let priced = bytes.min(self.options.quantum.0);
        (u128::from(self.cost(priced)) * u128::from(piece) / u128::from(priced)) as u64
    }

    fn share(&self, rate: u64) -> u64 {
        let quantum = self.options.quantum;
        self.costs
            .share(Direction::Read, BytesPerSec(rate), quantum)
            .0
    }

    /// The longest piece while there is time: the quanta that fit in a millisecond, or one.
    fn longest(&self) -> u64 {
        let quantum = self.options.quantum.0;
        let mut longest = quantum;
        while longest + quantum <= self.options.piece_most.0
            && self.cost(longest + quantum) <= self.options.piece_time.0
        {
            longest += quantum;
        }
        longest
    }

    fn grown(&self, quanta: u64) -> u64 {
        let longest = self.longest();
        (longest * quanta).min(self.options.piece_most.0.max(longest))
    }

    fn piece_max(&self, line: &Line) -> u64 {
        let most = self.grown(self.options.quanta_max);
        if line.class != Class::Session || line.rate == 0 {
            return most;
        }
        let fixed = self.costs.read.rate.within(self.costs.read.fixed).0;
        let window = u128::from(line.rate) * u128::from(self.window) / 1_000_000_000;
        let root = ((u128::from(fixed) * window) as f64).sqrt() as u64;
        (root / 4096 * 4096).clamp(self.options.piece_min.0, most)
    }

    /// By the clock, how long the usual piece takes at a share.
    fn period(&self, line: &Line, share: u64) -> u64 {
        let piece = self.piece_max(line).min(self.longest());
        let charge = self.charge(piece, self.options.quantum.0);
        slow(charge, share)
    }

    fn share_cushioned(&self, line: &Line) -> u64 {
        let share = self.share(line.rate);
        if line.class != Class::Session || !self.options.cushion {
            return share;
        }
        let piece = self.piece_max(line).min(self.longest());
        let charge = self.charge(piece, self.options.quantum.0);
        share + (share / 32).max(charge * 1_000_000_000 / self.window)
    }

    pub fn lag(&self, now: u64) -> u64 {
        let promised =
            |l: &&Line| l.class == Class::Session && l.rate > 0 && !l.requests.is_empty();
        let late = |l: &Line| now.saturating_sub(l.due + self.period(l, self.share(l.rate)));
        self.lines
            .iter()
            .filter(promised)
            .map(late)
            .max()
            .unwrap_or(0)
    }

    fn cushion_lag(&self, now: u64) -> u64 {
        let cushioned =
            |l: &&Line| self.share_cushioned(l) > self.share(l.rate) && !l.requests.is_empty();
        let late =
            |l: &Line| now.saturating_sub(l.cushioned + self.period(l, self.share_cushioned(l)));
        self.lines
            .iter()
            .filter(cushioned)
            .map(late)
            .max()
            .unwrap_or(0)
    }

    pub fn enqueue(&mut self, now: u64, id: u64, request: (u64, u64)) {
        let begin = (now - self.lag(now).min(now)).saturating_sub(self.options.burst.0);
        let of = |line: &&Line| line.id == id;
        let whose = self.lines.iter().find(of).expect("it is open").account;
        let waits = |line: &Line| line.account == whose && !line.requests.is_empty();
        let account = self.accounts.get_mut(&whose).expect("it has a line");
        if !self.lines.iter().any(waits) {
            account.1 = account.1.max(self.spare);
        }
        let line = self
            .lines
            .iter_mut()
            .find(|line| line.id == id)
            .expect("it is open");
        if line.requests.is_empty() {
            line.due = line.due.max(begin);
            line.cushioned = line.cushioned.max(begin);
            line.spare = line.spare.max(account.2);
        }
        line.requests.push((request.0, request.1, 0));
    }

    fn serve(&mut self, now: u64, id: u64, charge: u64) {
        let Some(i) = self.lines.iter().position(|line| line.id == id) else {
            return;
        };
        let share = self.share(self.lines[i].rate);
        let cushioned = self.share_cushioned(&self.lines[i]);
        let limit = self.lines[i].limit.map(|limit| self.share(limit));
        let (burst, window) = (self.options.burst.0, self.window);
        let line = &mut self.lines[i];
        if line.rate > 0 {
            line.due = line.due.min(now) + slow(charge, share);
            line.cushioned = line.cushioned.min(now).max(now.saturating_sub(window / 8));
            line.cushioned += slow(charge, cushioned);
        }
        if let Some(limit) = limit {
            line.free = line.free.max(now.saturating_sub(burst)) + slow(charge, limit);
        }
        line.spare += u128::from(charge) * 4000 / u128::from(line.weight);
    }

    pub fn next(&mut self, now: u64) -> Out {
        if self.in_flight >= self.depth {
            return Out::Idle;
        }
        if !self.high.is_empty() {
            let (ticket, bytes, charged) = self.high.remove(0);
            self.in_flight += 1;
            if let Some(id) = charged {
                self.serve(now, id, self.cost(bytes));
            }
            return Out::Send(ticket, 0, bytes);
        }
        // What is given up: entered above a bound, left below half of it.
        let lag = self.lag(now);
        let debt = self.options.debt.0;
        let bounds = [
            (Shed::Scaled, debt - debt / 16),
            (Shed::Background, self.window / 4),
            (Shed::BestEffort, self.window / 8),
        ];
        let over = |(level, bound): &&(Shed, u64)| {
            lag > if self.shed >= *level {
                bound / 2
            } else {
                *bound
            }
        };
        self.shed = bounds.iter().find(over).map_or(Shed::Nothing, |it| it.0);
        for line in &mut self.lines {
            if line.class == Class::Background {
                line.due = line.due.max(now.saturating_sub(self.window / 4));
            } else if line.due < now {
                line.due = (line.due + lag.saturating_sub(debt)).min(now);
            }
        }
        let quanta = |lag: u64| (1 + lag / (self.window / 64)).min(self.options.quanta_max);
        let most = self.grown(quanta(self.cushion_lag(now)));
        let grown = quanta(self.lag(now));

        let waiting = |l: &&Line| !l.requests.is_empty() && l.free <= now;
        let floors = self.shed < Shed::Background;
        let promised = |l: &&Line| l.rate > 0 && (floors || l.class != Class::Background);
        let piece = |l: &Line| (self.piece_max(l) * grown).min(most);
        let lines = || self.lines.iter().filter(waiting);
        let due = lines()
            .filter(promised)
            .filter(|l| l.due <= now)
            .min_by_key(|l| (l.due + self.period(l, self.share(l.rate)), l.id));
        let cushion = || {
            lines()
                .filter(|l| l.rate > 0 && l.class == Class::Session && l.cushioned <= now)
                .min_by_key(|l| (l.cushioned + self.period(l, self.share_cushioned(l)), l.id))
        };
        let of = |l: &Line| (self.accounts[&l.account].1, l.account);
        let lead = u128::from(self.options.lead.0) * 4000;
        let ahead = |l: &Line| {
            if l.high {
                lead / u128::from(l.weight)
            } else {
                0
            }
        };
        let tag = |l: &Line| l.spare.saturating_sub(ahead(l));
        let spare = || lines().min_by_key(|l| (of(l), tag(l), l.id));
        let (id, bytes, by_weight) = match due.or_else(cushion) {
            Some(line) => (line.id, piece(line), None),
            None => match spare() {
                Some(line) => (line.id, most, Some((line.account, tag(line)))),
                None => {
                    let waiting = self.lines.iter().filter(|l| !l.requests.is_empty());
                    let free = waiting.map(|l| l.free).min();
                    return free.map_or(Out::Idle, Out::Wait);
                }
            },
        };
        let line = self
            .lines
            .iter_mut()
            .find(|line| line.id == id)
            .expect("chosen");
        let (ticket, length, sent) = line.requests[0];
        let bytes = bytes.min(length - sent);
        line.requests[0].2 += bytes;
        if sent + bytes == length {
            line.requests.remove(0);
        }
        self.in_flight += 1;
        let charge = self.charge(bytes, length);
        self.serve(now, id, charge);
        if let Some((whose, spare)) = by_weight {
            // The owner's weighs as much as all that wait beside it.
            let waits = |id: u64| {
                self.lines
                    .iter()
                    .any(|l| l.account == id && !l.requests.is_empty())
            };
            let others = self
                .accounts
                .iter()
                .filter(|(id, _)| whose == 0 && **id != 0 && waits(**id));
            let least: u64 = others.map(|(_, other)| other.0).sum();
            let account = self.accounts.get_mut(&whose).expect("it has a line");
            self.spare = account.1;
            account.1 += u128::from(charge) * 1000 / u128::from(account.0.max(least));
            account.2 = account.2.max(spare);
        }
        Out::Send(ticket, sent, bytes)
    }
}

/// `time` at a share of the device, by the clock.
fn slow(time: u64, share: u64) -> u64 {
    let clock = u128::from(time) * 1_000_000_000 / u128::from(share.max(1));
    u64::try_from(clock).unwrap_or(u64::MAX)
}

impl From<Next> for Out {
    fn from(next: Next) -> Out {
        match next {
            Next::Dispatch(it) => Out::Send(it.ticket.0, it.offset.0, it.bytes.0),
            Next::Commit => Out::Commit,
            Next::Wait(Instant(at)) => Out::Wait(at),
            Next::Idle => Out::Idle,
        }
    }
}
