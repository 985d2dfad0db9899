//! The periodic work of a manager: slots begin and end, capacity is estimated, violations are logged, data are
//! scrubbed.
//!
//! ```text
//! each second: book (what is over) | sessions (who begins, who ends) | queue -> estimator -> calendar | events -> log
//! scrub:       a piece -> wait as long as it may take at its rate -> the next piece; at the end of a round a pause
//! ```
//!
//! Choice: reads and writes are trusted at the speed seen for each alone, and at no more than that seen for both
//! together, so what was promised on the assumption of one kind holds when the other joins. Where too little was seen
//! what was known before stands; if the device became slower, at no more than it reached since.

use std::rc::{Rc, Weak};

use base::{Bytes, Nanos};
use policy::share::capacity::{Drift, Estimator, EstimatorOptions, Observed};
use policy::share::{Cause, Event as Happened, Mix, Probability, Share};

use super::{LOG_MAX, Logged, Manager, ScrubOptions};
use crate::object::error::StoreError;
use crate::object::scrub::ScrubStep;
use crate::qos::book::{self, Record};
use crate::qos::session::{EndedReport, Session, SessionReport, WindowsReport};

/// The guarantee is reckoned anew after so many samples.
const FRESH_MAX: u32 = 30;
/// Seconds without a request after which some data are read to see how fast the device is.
const IDLE_MAX: u32 = 20;
/// So many pieces of the scrub's.
const PROBE_PIECES: u32 = 4;
/// Read in one go by the scrub.
const SCRUB_PIECE: Bytes = Bytes::mib(1);

/// What sessions of one reservation got.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Totals {
    delivered: u64,
    windows: WindowsReport,
}

impl Totals {
    fn add(&mut self, report: &SessionReport) {
        self.delivered += report.delivered_bytes;
        self.windows.kept += report.windows.kept;
        self.windows.no_demand += report.windows.no_demand;
        self.windows.capacity += report.windows.capacity;
        self.windows.scheduler += report.windows.scheduler;
    }
}

/// The task of each second, until the manager is gone.
pub(super) async fn every_second(manager: Weak<Manager>) {
    loop {
        // Slots are in seconds of the wall clock.
        let into = env::wall_clock().0 % 1_000_000_000;
        env::sleep(Nanos(1_000_000_000 - into)).await;
        let Some(manager) = manager.upgrade() else {
            return;
        };
        if manager.stopped.get() {
            return;
        }
        manager.second().await;
    }
}

impl Manager {
    async fn second(&self) {
        let now = self.now();
        for session in self.open_sessions() {
            session.look_at(now);
        }
        if self.expires(now) {
            let _changing = self.changing.acquire(1).await;
            if let Err(error) = self.expire().await {
                tracing::warn!(store = %self.store.name(), %error, "what is over cannot be forgotten yet");
            }
        }
        self.watch_capacity();
        self.take_events();
        if self.ended_dirty.get()
            && let Err(error) = self.keep_history().await
        {
            tracing::warn!(store = %self.store.name(), %error, "history cannot be written yet");
        }
        if let Err(error) = self.keep_trust().await {
            tracing::warn!(store = %self.store.name(), %error, "the speed that was seen cannot be written yet");
        }
    }

    // --- capacity ---------------------------------------------------------------------------------

    fn watch_capacity(&self) {
        let interval = self.queue.take_interval();
        if self.calibrating.get().is_some() {
            // It is charged by other costs than those in use.
            return;
        }
        let observed = self.capacity.borrow_mut().estimator.observe(&interval);
        let due = {
            let mut capacity = self.capacity.borrow_mut();
            match observed {
                Observed::Taken(_) => capacity.fresh += 1,
                Observed::Drifted(..) => {
                    capacity.drifted = true;
                    capacity.dirty = true;
                    capacity.fresh = FRESH_MAX;
                }
                Observed::Recovered(mix, speed) => {
                    for of in [mix, Mix::Mixed] {
                        let seen = &mut capacity.seen[of as usize];
                        *seen = seen.map(|before| before.max(speed));
                    }
                    capacity.dirty = true;
                }
                _ => {}
            }
            capacity.fresh >= FRESH_MAX
        };
        if let Observed::Drifted(mix, drift) = observed {
            let which = match drift {
                Drift::Up => "faster",
                Drift::Down => "slower",
            };
            tracing::warn!(store = %self.store.name(), mix = mix.name(), "the device is {which} than it was: a calibration is due");
            self.log(Logged::drift(self.now(), mix, which));
        }
        if let Observed::Recovered(mix, speed) = observed {
            tracing::info!(store = %self.store.name(), mix = mix.name(), %speed, "the device is as fast again as it was taken to be");
            self.log(Logged::drift(self.now(), mix, "faster"));
            self.set_trusted_capacity();
        }
        if due {
            self.trust();
        }
        self.look_again(interval.active);
    }

    /// Where little is trusted and nothing goes on, some data are read over: else nothing would ever show that the device is
    /// faster again.
    fn look_again(&self, active: Nanos) {
        let low = {
            let capacity = self.capacity.borrow();
            let mut seen = capacity.seen.iter().flatten();
            seen.any(|speed| *speed < Share::percent(90))
        };
        let idle = match active.0 {
            0 => self.idle_seconds.get() + 1,
            _ => 0,
        };
        self.idle_seconds.set(idle);
        if !low || idle < IDLE_MAX {
            return;
        }
        self.idle_seconds.set(0);
        let manager = self.strong();
        env::spawn(async move {
            for _ in 0..PROBE_PIECES {
                if manager.stopped.get() || manager.scrub_once().await.is_err() {
                    return;
                }
            }
        });
    }

    /// Reckons what the device can be trusted to do, and sets it in the calendar.
    fn trust(&self) {
        let surest = {
            let records = self.records.borrow();
            let all = records.values().map(|it| it.contract.probability);
            all.max().unwrap_or_default().max(Probability::default())
        };
        let changed = {
            let mut capacity = self.capacity.borrow_mut();
            capacity.fresh = 0;
            let before = capacity.seen;
            let mixes = [Mix::Reads, Mix::Writes, Mix::Mixed];
            for (mix, before) in mixes.into_iter().zip(before) {
                capacity.seen[mix as usize] = seen(&capacity.estimator, mix, surest, before);
            }
            let changed = capacity.seen != before;
            // So far from the figures in use that a calibration is worth its while.
            let far = |it: &Option<Share>| it.is_some_and(|it| it < Share::percent(50));
            capacity.drifted |= capacity.seen.iter().any(far);
            capacity.dirty |= changed;
            changed
        };
        if !changed {
            return;
        }
        self.set_trusted_capacity();
        let now = self.now();
        let over = self.calendar.borrow().overcommitted(now);
        if let Some(first) = over.first() {
            tracing::warn!(store = %self.store.name(), from = %first.slot.start, promised = %first.promised,
                "the device became slower than what is promised");
            self.log(Logged::overcommitted(now, first));
        }
    }

    /// Writes down how fast the device was seen to be.
    pub(super) async fn keep_trust(&self) -> Result<(), StoreError> {
        let trust = {
            let mut capacity = self.capacity.borrow_mut();
            if !std::mem::replace(&mut capacity.dirty, false) {
                return Ok(());
            }
            capacity.trust()
        };
        let written = book::put_trust(&self.store, &trust).await;
        if written.is_err() {
            self.capacity.borrow_mut().dirty = true;
        }
        written
    }

    // --- what happened ----------------------------------------------------------------------------

    pub(crate) fn take_events(&self) {
        let now = self.now();
        for event in self.queue.take_events() {
            match event {
                Happened::Violated {
                    session,
                    windows,
                    promised,
                    delivered,
                    cause,
                    ..
                } => {
                    let whose = self.flows.borrow().get(&session).copied();
                    if whose.is_none() && self.calibrating.get().is_some() {
                        // A trial's own: no client was promised it.
                        continue;
                    }
                    let logged = Logged::violated(now, whose, windows, promised, delivered, cause);
                    if cause != Cause::NoDemand {
                        tracing::warn!(store = %self.store.name(), "{}", logged.what);
                    }
                    self.log(logged);
                }
                Happened::Shed { from, to, .. } => {
                    tracing::warn!(store = %self.store.name(), from = from.name(), to = to.name(), "what is given up changed");
                    self.shed.set(to);
                    self.log(Logged::shed(now, from, to));
                }
                Happened::Lost(events) => self.log(Logged::lost(now, events)),
                _ => {}
            }
        }
    }

    pub(super) fn log(&self, line: Logged) {
        let mut log = self.log.borrow_mut();
        if log.len() >= LOG_MAX {
            log.pop_front();
        }
        log.push_back(line);
    }

    /// A session's reservation is over.
    pub(crate) fn note_over(&self, session: &Session, why: &'static str) {
        self.log(Logged::over(self.now(), session, why));
        tracing::info!(store = %self.store.name(), session = session.number(), why, "a session is over");
    }

    /// A session was closed.
    pub(crate) fn note_closed(&self, session: &Session) {
        let mut report = session.report();
        report.closed = Some(self.now().0);
        // Of what has ended already it was counted while it was open.
        if let Some(id) = session
            .reservation()
            .filter(|id| self.records.borrow().contains_key(id))
        {
            self.totals.borrow_mut().entry(id).or_default().add(&report);
        }
        let mut closed = self.closed.borrow_mut();
        if closed.len() >= super::CLOSED_MAX {
            closed.pop_front();
        }
        closed.push_back(report);
    }

    /// A reservation is over.
    pub(super) fn note_ended(&self, record: &Record, why: &'static str) {
        let closed = self.totals.borrow_mut().remove(&record.id);
        let mut totals = closed.unwrap_or_default();
        for session in self.open_sessions() {
            if session.reservation() == Some(record.id) {
                totals.add(&session.report());
            }
        }
        let contract = &record.contract;
        self.ended.borrow_mut().push(EndedReport {
            reservation: record.id.0,
            holder: record.holder.clone(),
            direction: contract.direction.name().to_owned(),
            promised: contract.rate.0,
            from: contract.slot.start.0,
            until: contract.slot.end.0,
            ended: self.now().0,
            why: why.to_owned(),
            delivered_bytes: totals.delivered,
            windows: totals.windows,
        });
        self.ended_dirty.set(true);
    }

    /// Writes down which reservations ended.
    pub(super) async fn keep_history(&self) -> Result<(), StoreError> {
        if !self.ended_dirty.replace(false) {
            return Ok(());
        }
        let ended = {
            let mut ended = self.ended.borrow_mut();
            let old = ended.len().saturating_sub(book::ENDED_MAX);
            ended.drain(..old);
            ended.clone()
        };
        let written = book::put_history(&self.store, &ended).await;
        if written.is_err() {
            self.ended_dirty.set(true);
        }
        written
    }
}

/// The part of the model's speed that one mix was seen to reach; where too little was seen no more than `before`.
fn seen(
    estimator: &Estimator,
    mix: Mix,
    surest: Probability,
    before: Option<Share>,
) -> Option<Share> {
    let guarantee = || Some(estimator.guarantee(mix, surest, 1)?.speed);
    let samples = estimator.samples(mix);
    let known = match mix {
        // For both at once the least of what is known counts, from the first sample on.
        Mix::Mixed if samples == 0 => None,
        _ => guarantee(),
    };
    if samples >= EstimatorOptions::default().samples_min && known.is_some() {
        return known;
    }
    let all = [before, known, estimator.since_slower(mix)];
    all.into_iter().flatten().min()
}

/// The scrub's task, until the manager is gone or its store takes nothing more.
pub(super) async fn scrub(manager: Weak<Manager>, options: ScrubOptions) {
    loop {
        let begun = env::now();
        let wait = {
            let Some(manager) = manager.upgrade() else {
                return;
            };
            let Ok(wait) = manager.scrub_piece(options).await else {
                return;
            };
            wait
        };
        let spent = env::now().since(begun);
        env::sleep(wait.saturating_sub(spent)).await;
    }
}

impl Manager {
    /// Reads one piece; how long it may have taken. An error is final.
    async fn scrub_piece(self: &Rc<Self>, options: ScrubOptions) -> Result<Nanos, StoreError> {
        if self.stopped.get() {
            return Err(StoreError::Closed {
                store: self.store.name().to_owned(),
            });
        }
        let step = self.scrub_once().await?;
        let pause = match step.round_done {
            true => options.pause,
            false => Nanos(0),
        };
        Ok(options.rate.time_for(step.read) + pause)
    }

    /// Reads the next piece of the round.
    async fn scrub_once(self: &Rc<Self>) -> Result<ScrubStep, StoreError> {
        let step = self.store.scrub_step(SCRUB_PIECE).await?;
        let mut scrubbed = self.scrubbed.get();
        scrubbed.rounds = step.rounds;
        scrubbed.bytes += step.read.0;
        scrubbed.bad += step.bad.len() as u64;
        for bad in &step.bad {
            tracing::error!(store = %self.store.name(), object = %bad.object, offset = bad.offset, why = %bad.why, "the scrub found damage");
        }
        if step.round_done {
            scrubbed.round_ended = Some(self.now());
        }
        self.scrubbed.set(scrubbed);
        Ok(step)
    }
}
