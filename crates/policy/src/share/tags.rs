//! Reservation tags: every promise has a clock of its own, and the session behind its clock is next.
//!
//! ```text
//! waiting sessions -> 1. due:     promise late or on time, earliest deadline first
//!                     2. cushion: ahead of the promise, but not of it and a piece per window
//!                     3. spare:   the account served least for its weight, in it the session served least for its own
//!                  -> a piece of its first request -> all its tags move on by what the piece costs
//! ```
//!
//! A session's *due* tag is the moment at which it is entitled to its next piece. It moves on by the piece's device
//! time over the session's share of the device's time. Requests go in pieces of at most one quantum, so
//! that a newcomer, whose tag is now, waits for one piece at the device and not for a round. On a fast
//! device a piece has as many quanta as it does in a millisecond: what is shorter takes longer on its
//! way there and back than at work.
//!
//! - **Idle.** A session that asks again after a pause begins now, with a credit of at most `burst`.
//! - **Spare time** goes to all that wait, promised or not, by the weights of their accounts, within an account by
//!   weight and priority, and below their limits. So an account gains nothing by more sessions. The device
//!   never waits while some session may be served. Being served counts for the promise too, but puts the
//!   due tag at most one piece ahead of now, so no session is starved later for what was spare.
//! - **A seek is shared.** Where the device seeks, spare time stays with the session that was served last while it goes on
//!   where it was, for as many bytes as pass in the time of a seek. It is charged as ever, so shares stay as they are.
//! - **High priority leads.** A session of high priority that asked for less than its part saves up to `lead` of device time
//!   and is next in the spare time of its account until that is used. Where the device seeks, no other session of the
//!   account goes in beside its piece, since it will go on from there.
//! - **A window may cut a piece off**, so a promise is served one piece per window faster, and at least
//!   by a thirty-second, where there is time for it (2). The pieces of a small promise are smaller: what a cut costs and what the
//!   request's fixed cost costs are balanced (`sqrt(rate * fixed * device rate * window)`).
//! - **Time gets short.** Each piece has its fixed cost. When cushions are late, pieces grow to several
//!   quanta, so a device without time to spare wastes none on splitting.
//! - **Too little capacity.** Promises that are late come before everything else, so best effort is
//!   shed first. Beyond a quarter window the floors of background work go, too. All tags then lag
//!   alike, which scales all promises in proportion; a lag beyond `debt` is forgiven. A session that
//!   comes meanwhile begins at the lag of the others, not behind all of it.
//! - **Metadata** go first and are charged to the session they are for.
//! - **Commits** are asked for by bytes written or by time and hold nothing back.
//!
//! Choice: tags in place of the published rounds, after mClock (OSDI 2010), with deadlines among the
//! eligible (EEVDF) and costs in device time; finer than a round, as the paper asks for (section 5).
//!
//! Always true:
//! 1. While a session waits below its limit and the depth is not used up, something is dispatched, unless all that wait are
//!    led by a session of their account and a piece is at a device that seeks.
//! 2. No session without a late promise is served before one with a late promise, floors that are shed left out.
//! 3. When something is chosen, no promise is later than `debt` and none more than one piece ahead.

use std::collections::BTreeMap;

use base::{Bytes, Instant, Nanos};

use super::accounts::Accounts;
use super::sessions::{Entry, Sessions};
use super::streak::Streak;
use super::tag::{Tag, stretched};
use super::{
    Account, Approach, Class, Closed, Costs, DepthControl, Direction, Dispatch, EnqueueError,
    Event, Lane, Limits, Next, OpenError, Priority, Request, Scheduler, SessionCounters, SessionId,
    Share, Shed, TagsOptions, Terms, Totals,
};

/// Reservation, limit and weight tags in device time: the default.
#[derive(Clone)]
pub struct Tags {
    options: TagsOptions,
    window: Nanos,
    sessions: Sessions<Tag>,
    depth: DepthControl,
    accounts: Accounts,
    shed: Shed,
    streak: Streak,
    // Writes since the last commit was asked for.
    written: Bytes,
    written_since: Option<Instant>,
    committing: bool,
}

impl Tags {
    /// Promises are judged by `window`.
    ///
    /// # Panics
    /// If the window, the quantum or the shortest piece is zero.
    pub fn new(limits: Limits, window: Nanos, costs: Costs, options: TagsOptions) -> Tags {
        assert!(
            options.quantum.0 > 0 && options.piece_min.0 > 0,
            "pieces of zero bytes"
        );
        Tags {
            options,
            window,
            sessions: Sessions::new(limits, window, costs, options.quantum),
            depth: options.depth_on(&costs),
            accounts: Accounts::default(),
            shed: Shed::Nothing,
            streak: Streak::default(),
            written: Bytes(0),
            written_since: None,
            committing: false,
        }
    }

    /// What is given up now because the device cannot do what was promised.
    pub fn shed(&self) -> Shed {
        self.shed
    }

    /// The longest piece while there is time.
    fn quantum(&self, direction: Direction) -> Bytes {
        self.options.quantum_on(self.sessions.costs(), direction)
    }

    /// So many of them as one piece.
    fn quanta_of(&self, direction: Direction, quanta: u64) -> Bytes {
        let quantum = self.quantum(direction);
        (quantum * quanta).min(self.options.piece_most.max(quantum))
    }

    /// How a session's tags run by its terms and the costs.
    fn set_pace(&self, terms: &Terms, tag: &mut Tag) {
        let (costs, unit) = (self.sessions.costs(), self.sessions.unit());
        let window = terms.window.unwrap_or(self.window);
        let share_of = |rate| costs.share(terms.direction, rate, unit);
        tag.weight = terms.weight_quarters();
        tag.limit_share = terms.limit.map(share_of);
        tag.share = share_of(terms.rate);
        let quantum = self.quantum(terms.direction);
        tag.piece_max = self.quanta_of(terms.direction, self.options.quanta_max);
        if terms.rate.0 > 0 && terms.class == Class::Session {
            tag.piece_max = self.piece_of(terms, window).min(tag.piece_max);
        }
        tag.piece = tag.piece_max.min(quantum);
        let whole = costs.of(terms.direction, unit, Approach::Follows);
        let charge =
            Nanos((u128::from(whole.0) * u128::from(tag.piece.0) / u128::from(unit.0)) as u64);
        if self.options.cushion && terms.class == Class::Session {
            let per_window = u128::from(charge.0) * 1_000_000_000 / u128::from(window.0);
            tag.share_cushioned = tag.share + Share(tag.share.0 / 32).max(Share(per_window as u64));
        } else {
            tag.share_cushioned = tag.share;
        }
        tag.period = stretched(charge, tag.share);
        tag.period_cushioned = stretched(charge, tag.share_cushioned);
    }

    /// The length at which what a window may cut off and the fixed cost of one piece more take the same
    /// part of the device: piece / (device rate * window) = rate * fixed / piece.
    fn piece_of(&self, terms: &Terms, window: Nanos) -> Bytes {
        let cost = self.sessions.costs().direction(terms.direction);
        let fixed_bytes = u128::from(cost.rate.within(cost.fixed).0);
        let window_bytes = u128::from(terms.rate.within(window).0);
        let piece = (fixed_bytes * window_bytes).isqrt() as u64 / 4096 * 4096;
        Bytes(piece).max(self.options.piece_min)
    }

    /// How far the latest promise is beyond its deadline, floors left out.
    fn lag(&self, now: Instant) -> Nanos {
        let waiting = self.sessions.waiting();
        let promised =
            waiting.filter(|(_, it)| it.terms.class == Class::Session && it.own.share.0 > 0);
        let lags = promised.map(|(_, entry)| now.since(entry.own.due + entry.own.period));
        lags.max().unwrap_or(Nanos(0))
    }

    /// How many quanta a piece may have, by how late something is.
    fn quanta(&self, lag: Nanos) -> u64 {
        (1 + lag.0 / (self.window.0 / 64).max(1)).min(self.options.quanta_max)
    }

    /// The same of cushions.
    fn cushion_lag(&self, now: Instant) -> Nanos {
        let waiting = self.sessions.waiting();
        let lags = waiting
            .filter(|(_, it)| it.own.share_cushioned > it.own.share)
            .map(|(_, entry)| now.since(entry.own.cushioned + entry.own.period_cushioned));
        lags.max().unwrap_or(Nanos(0))
    }

    /// Where a session begins that asks again: now, or where the latest of the others is.
    fn begin(&self, now: Instant) -> Instant {
        now - self.lag(now)
    }

    fn judge_capacity(&mut self, now: Instant) {
        let lag = self.lag(now);
        // A level is left at half the lag it is entered at.
        let above = |level: Shed, bound: Nanos| lag.0 > bound.0 >> u32::from(self.shed >= level);
        let shed = if above(
            Shed::Scaled,
            Nanos(self.options.debt.0 - self.options.debt.0 / 16),
        ) {
            Shed::Scaled
        } else if above(Shed::Background, Nanos(self.window.0 / 4)) {
            Shed::Background
        } else if above(Shed::BestEffort, Nanos(self.window.0 / 8)) {
            Shed::BestEffort
        } else {
            Shed::Nothing
        };
        if shed != self.shed {
            let event = Event::Shed {
                at: now,
                from: self.shed,
                to: shed,
            };
            self.sessions.note(event);
            self.shed = shed;
        }
    }

    /// Whose account's weight counts.
    fn account_of(&self, terms: &Terms) -> Account {
        match self.options.by_account {
            true => terms.account,
            false => Account::OWNER,
        }
    }

    /// What an account weighs at least now.
    fn least_weight(&self, account: u64) -> u32 {
        if account != Account::OWNER.id {
            return 1;
        }
        let waiting = self.sessions.waiting();
        let ids = waiting.map(|(_, entry)| self.account_of(&entry.terms).id);
        self.accounts.weight_beside_owner(ids)
    }

    /// The next session, the length of its piece, and is it served from spare time?
    fn choose(&mut self, now: Instant) -> Option<(SessionId, Bytes, bool)> {
        let floors = self.shed < Shed::Background;
        // Large pieces grow when cushions are late, small ones only when promises are.
        let most = |entry: &Entry<Tag>| {
            let direction = entry.line[0].request.direction;
            self.quanta_of(direction, self.quanta(self.cushion_lag(now)))
        };
        let grown = self.quanta(self.lag(now));
        let may = |entry: &Entry<Tag>| entry.own.free <= now;
        let promised = |entry: &Entry<Tag>| {
            entry.own.share.0 > 0 && (floors || entry.terms.class != Class::Background)
        };
        let first = |key: &dyn Fn(&Tag) -> Option<u128>, only: &dyn Fn(&Entry<Tag>) -> bool| {
            let waiting = self.sessions.waiting();
            waiting
                .filter(|(_, entry)| may(entry) && only(entry))
                .filter_map(|(id, entry)| Some((key(&entry.own)?, id, entry)))
                .min_by_key(|(key, id, _)| (*key, *id))
        };
        let deadline =
            |at: Instant, period: Nanos| (at <= now).then(|| u128::from((at + period).0));
        let due = first(&|tag| deadline(tag.due, tag.period), &promised);
        let cushion = |tag: &Tag| deadline(tag.cushioned, tag.period_cushioned);
        let chosen = due.or_else(|| {
            first(&cushion, &|entry| {
                promised(entry) && entry.terms.class == Class::Session
            })
        });
        if let Some((_, id, entry)) = chosen {
            return Some((id, (entry.own.piece_max * grown).min(most(entry)), false));
        }
        let leaders = self.leaders(now);
        let free = |entry: &Entry<Tag>| may(entry) && !self.is_led(entry, &leaders);
        if let Some((id, entry)) = self.staying().filter(|(_, entry)| free(entry)) {
            return Some((id, most(entry), true));
        }
        // Of those that are led none goes in beside another's piece.
        let alone = self.sessions.in_flight() == 0;
        let waiting = self.sessions.waiting();
        let waiting = waiting.filter(|(_, entry)| free(entry) || (alone && may(entry)));
        let (id, entry) = waiting.min_by_key(|(id, entry)| {
            let account = self.account_of(&entry.terms).id;
            let spare = self.accounts.spare(account);
            (spare, account, self.spare_tag(entry), *id)
        })?;
        let (most, spare) = (most(entry), self.spare_tag(entry));
        let account = self.account_of(&entry.terms).id;
        self.accounts.chosen(account, spare);
        Some((id, most, true))
    }

    /// Which of an account's sessions is next in the spare time: the one with the least.
    fn spare_tag(&self, entry: &Entry<Tag>) -> u128 {
        let lead = self.options.lead_of(entry.terms.priority, entry.own.weight);
        entry.own.spare.saturating_sub(lead)
    }

    /// On a device that seeks, the least tag of each account's sessions of high priority that may be served now or have a
    /// piece there.
    fn leaders(&self, now: Instant) -> BTreeMap<u64, u128> {
        let mut leaders = BTreeMap::new();
        let seeks = |direction| self.sessions.seek(direction) > Nanos(0);
        if !Direction::ALL.into_iter().any(seeks) {
            return leaders;
        }
        for (_, entry) in self.sessions.all() {
            let active = !entry.is_idle() && (entry.line.is_empty() || entry.own.free <= now);
            if entry.terms.priority == Priority::High && active {
                let tag = self.spare_tag(entry);
                let account = self.account_of(&entry.terms).id;
                let least = leaders.entry(account).or_insert(tag);
                *least = tag.min(*least);
            }
        }
        leaders
    }

    /// Does another session of its account come first?
    fn is_led(&self, entry: &Entry<Tag>, leaders: &BTreeMap<u64, u128>) -> bool {
        let least = leaders.get(&self.account_of(&entry.terms).id);
        least.is_some_and(|least| *least < self.spare_tag(entry))
    }

    /// The session that was served last, if it waits, goes on from there, and had less than a seek is worth so far.
    fn staying(&self) -> Option<(SessionId, &Entry<Tag>)> {
        let (id, direction, bytes) = self.streak.last()?;
        let entry = self.sessions.get(id)?;
        let same = entry.line.front()?.request.direction == direction;
        let rate = self.sessions.costs().direction(direction).rate;
        let most = self.options.stay_on(rate, self.sessions.seek(direction));
        (same && entry.follows() && bytes < most).then_some((id, entry))
    }

    /// Moves a session's tags on: it was served what costs `charge`.
    fn serve(&mut self, now: Instant, id: SessionId, charge: Nanos) {
        let burst = self.options.burst;
        let cushion_debt = Nanos(self.window.0 / 8);
        let Some(entry) = self.sessions.get_mut(id) else {
            return;
        };
        entry.own.move_on(now, charge, (burst, cushion_debt));
    }

    /// Forgives what promises lag beyond the debt: all tags move on alike. So how much later one session is than
    /// another stays, and none falls behind for good. Floors lag a quarter window at most.
    fn forgive(&mut self, now: Instant) {
        let beyond = self.lag(now).saturating_sub(self.options.debt);
        let floors_from = now - Nanos(self.window.0 / 4);
        for (_, entry) in self.sessions.all_mut() {
            let tag = &mut entry.own;
            if entry.terms.class == Class::Background {
                tag.due = tag.due.max(floors_from);
            } else if tag.due < now {
                tag.due = (tag.due + beyond).min(now);
            }
        }
    }

    /// Is it time to commit? If not, when, as far as the clock decides.
    fn commit_at(&self) -> Option<Instant> {
        let since = self.written_since.filter(|_| !self.committing)?;
        let full = self.written >= self.options.commit_bytes;
        Some(if full {
            since
        } else {
            since + self.options.commit_after
        })
    }
}

impl Scheduler for Tags {
    fn open(&mut self, now: Instant, terms: Terms) -> Result<SessionId, OpenError> {
        let begin = self.begin(now);
        let mut tag = Tag {
            due: begin,
            cushioned: begin,
            ..Tag::default()
        };
        self.set_pace(&terms, &mut tag);
        let account = self.account_of(&terms);
        // A lead is earned by asking for less than the part, not by coming anew.
        tag.spare =
            self.accounts.line_spare(account.id) + self.options.lead_of(terms.priority, tag.weight);
        let id = self.sessions.open(now, terms, tag)?;
        self.accounts.joined(account);
        Ok(id)
    }

    fn close(&mut self, now: Instant, session: SessionId) -> Option<Closed> {
        let terms = self.sessions.get(session)?.terms;
        self.accounts.left(self.account_of(&terms).id);
        self.sessions.close(now, session)
    }

    fn set_account(&mut self, account: Account) {
        self.accounts.set(account);
    }

    fn enqueue(&mut self, now: Instant, lane: Lane, request: Request) -> Result<(), EnqueueError> {
        let begin = self.begin(now) - self.options.burst;
        self.sessions.enqueue(now, lane, request)?;
        let Lane::Session(id) = lane else {
            return Ok(());
        };
        let entry = self.sessions.get(id).expect("it was taken");
        if entry.line.len() > 1 {
            return Ok(());
        }
        let account = self.account_of(&entry.terms).id;
        let others = |(other, entry): (SessionId, &Entry<Tag>)| {
            other != id && self.account_of(&entry.terms).id == account
        };
        if !self.sessions.waiting().any(others) {
            self.accounts.came_back(account);
        }
        let spare = self.accounts.line_spare(account);
        let tag = &mut self.sessions.get_mut(id).expect("looked up above").own;
        tag.due = tag.due.max(begin);
        tag.cushioned = tag.cushioned.max(begin);
        tag.spare = tag.spare.max(spare);
        Ok(())
    }

    fn next(&mut self, now: Instant) -> Next {
        let commit_at = self.commit_at();
        if commit_at.is_some_and(|at| at <= now) {
            self.written = Bytes(0);
            self.written_since = None;
            self.committing = true;
            return Next::Commit;
        }
        let until = |at: Option<Instant>| match at.into_iter().chain(commit_at).min() {
            Some(at) => Next::Wait(at),
            None => Next::Idle,
        };
        if self.sessions.in_flight() >= self.depth.depth() {
            return until(None);
        }
        if let Some(dispatch) = self.sessions.take_metadata(now) {
            self.streak.end();
            if let Lane::Metadata { charged: Some(id) } = dispatch.lane {
                self.serve(now, id, dispatch.charge);
            }
            return Next::Dispatch(dispatch);
        }
        self.judge_capacity(now);
        self.forgive(now);
        let Some((id, piece, spare)) = self.choose(now) else {
            // What is below its limit and was not chosen waits for a piece at the device.
            let free = self.sessions.waiting().map(|(_, entry)| entry.own.free);
            return until(free.filter(|at| *at > now).min());
        };
        let dispatch = self.sessions.take(now, id, piece);
        self.streak.note(id, &dispatch);
        self.serve(now, id, dispatch.charge);
        if spare {
            let terms = self.sessions.get(id).expect("it was chosen").terms;
            let account = self.account_of(&terms).id;
            let least = self.least_weight(account);
            self.accounts.served(account, dispatch.charge, least);
        }
        Next::Dispatch(dispatch)
    }

    fn completed(&mut self, now: Instant, dispatch: &Dispatch, done: Bytes) {
        if done.0 > 0 {
            let latency = now.since(dispatch.at);
            let in_flight = self.sessions.in_flight();
            self.depth.completed(latency, dispatch.charge, in_flight);
        }
        let data = matches!(dispatch.lane, Lane::Session(_));
        if data && dispatch.direction == Direction::Write && done.0 > 0 {
            self.written += done;
            self.written_since.get_or_insert(now);
        }
        self.sessions.completed(now, dispatch, done);
    }

    fn committed(&mut self, _now: Instant) {
        assert!(self.committing, "no commit was asked for");
        self.committing = false;
    }

    fn set_costs(&mut self, now: Instant, costs: Costs) {
        self.sessions.set_costs(now, costs);
        let tags: Vec<_> = self
            .sessions
            .all()
            .map(|(id, it)| (id, it.terms, it.own))
            .collect();
        for (id, terms, mut tag) in tags {
            self.set_pace(&terms, &mut tag);
            self.sessions.get_mut(id).expect("it is open").own = tag;
        }
    }

    fn figures(&mut self, now: Instant, session: SessionId) -> Option<SessionCounters> {
        self.sessions.figures(now, session)
    }

    fn totals(&self) -> Totals {
        self.sessions.totals()
    }

    fn depth(&self) -> u32 {
        self.depth.depth()
    }

    fn take_events(&mut self) -> Vec<Event> {
        self.sessions.take_events()
    }
}
