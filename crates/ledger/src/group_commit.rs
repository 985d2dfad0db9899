//! One commit for many changes: when is it due, what must be flushed before it, and who learns that it is durable?
//!
//! ```text
//! change in memory -> note -> due (asked for, or some time after the first) -> cut -> flush the device -> one batch -> durable
//!                                                                               \ what changes from here on waits for the next
//! Open -> Failed   a flush or a batch failed, or the owner says so: final
//! Open -> Closed   the owner closes; one last commit carries what came in since
//! ```
//!
//! The owner keeps the state and the loop: [`GroupCommit::due`], [`GroupCommit::round`], then [`GroupCommit::wake`].
//! [`Cuts`] decides, without a clock or a device; [`GroupCommit`] waits, flushes and writes.
//!
//! Always true:
//! 1. At most one commit is under way.
//! 2. Of a device with a volatile cache, all data whose writes were noted before the cut are flushed before the batch.
//! 3. A cut is durable only after all before it; after a failed commit none becomes durable any more.

use std::cell::RefCell;
use std::rc::Rc;

use base::{Instant, Nanos};
use device::{Device, DeviceError};
use env::sync::Event;

use crate::error::LedgerError;
use crate::ledger::{Ledger, Prepared};

/// The number of a commit; the default is durable from the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Cut(u64);

impl Cut {
    /// The commit after this one.
    #[must_use]
    pub fn next(self) -> Cut {
        Cut(self.0 + 1)
    }
}

/// Whose changes the commits carry.
pub trait CommitSource {
    /// Did anything change since the last cut?
    fn pending(&self) -> bool;

    /// Takes every change since the last cut as one batch and prepares it: the state in memory at this moment is what
    /// the batch and its swept records describe.
    fn cut(&self, ledger: &Ledger) -> Prepared;

    /// All up to `cut` is durable. Those who wait for it are not yet awake.
    fn durable(&self, cut: Cut);
}

/// Why a change is not durable, and by this ledger never will be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// The data that a commit names could not be flushed.
    #[error("{0}")]
    Flush(DeviceError),
    /// The batch could not be written.
    #[error("{0}")]
    Ledger(LedgerError),
    /// The owner gave the ledger up for this reason.
    #[error("{0}")]
    Owner(String),
    /// The owner takes no more changes.
    #[error("it is closed")]
    Closed,
}

/// What commits have done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CommitCounters {
    /// Commits that became durable.
    pub commits: u64,
    /// Flushes of the device before them.
    pub flushes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    Open,
    Failed(CommitError),
    Closed,
}

/// What the committer does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Stop,
    Commit,
    Sleep,
    SleepFor(Nanos),
}

/// What one who waits for a cut learns.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Look {
    Durable,
    Never(CommitError),
    /// Its commit is under way, or asked for already.
    Wait,
    /// Its commit was not yet asked for; now it is.
    Asked,
}

/// A commit under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Begun {
    cut: Cut,
    /// Writes noted before it.
    writes: u64,
    flush: bool,
}

/// All that decides. Numbers of cuts rise by one.
struct Cuts {
    phase: Phase,
    stopped: bool,
    cut: Cut,
    durable: Cut,
    under_way: bool,
    wanted: bool,
    /// When the first change after the last cut was noted.
    pending_since: Option<Instant>,
    /// Writes to the device that completed, and how many of them it has flushed.
    writes: u64,
    flushed: u64,
    counters: CommitCounters,
}

impl Cuts {
    fn new() -> Cuts {
        Cuts {
            phase: Phase::Open,
            stopped: false,
            cut: Cut(0),
            durable: Cut(0),
            under_way: false,
            wanted: false,
            pending_since: None,
            writes: 0,
            flushed: 0,
            counters: CommitCounters::default(),
        }
    }

    /// Something changed. True if it is the first change since the last cut.
    fn note(&mut self, now: Instant) -> bool {
        let first = self.pending_since.is_none();
        self.pending_since.get_or_insert(now);
        first
    }

    /// A commit is asked for. True if none was.
    fn want(&mut self) -> bool {
        !std::mem::replace(&mut self.wanted, true)
    }

    /// What the committer does at `now`, where changes wait at most `after`.
    fn step(&mut self, now: Instant, after: Nanos) -> Step {
        if self.stopped {
            return Step::Stop;
        }
        if !self.wanted {
            let Some(since) = self.pending_since else {
                return Step::Sleep;
            };
            let due = since + after;
            if now < due {
                return Step::SleepFor(due.since(now));
            }
        }
        self.wanted = false;
        Step::Commit
    }

    /// Begins a commit, if there is anything to carry; the `last` one also of a closed owner.
    fn begin(&mut self, pending: bool, last: bool, volatile: bool) -> Option<Begun> {
        self.pending_since = None;
        let open = self.phase == Phase::Open || last && self.phase == Phase::Closed;
        if !open || !pending {
            return None;
        }
        assert!(!self.under_way, "one commit at a time");
        self.under_way = true;
        self.cut = self.cut.next();
        Some(Begun {
            cut: self.cut,
            writes: self.writes,
            flush: volatile && self.flushed != self.writes,
        })
    }

    /// The batch is durable, and with it what was flushed.
    fn landed(&mut self, begun: Begun) {
        self.under_way = false;
        self.flushed = begun.writes;
        self.durable = begun.cut;
        self.counters.commits += 1;
    }

    /// Nothing becomes durable from here on. The first reason stays.
    fn fail(&mut self, why: CommitError) {
        if !matches!(self.phase, Phase::Failed(_)) {
            self.phase = Phase::Failed(why);
        }
    }

    fn close(&mut self) {
        if self.phase == Phase::Open {
            self.phase = Phase::Closed;
        }
    }

    fn usable(&self) -> Result<(), CommitError> {
        match &self.phase {
            Phase::Open => Ok(()),
            Phase::Failed(why) => Err(why.clone()),
            Phase::Closed => Err(CommitError::Closed),
        }
    }

    fn look(&mut self, cut: Cut) -> Look {
        if self.durable >= cut {
            return Look::Durable;
        }
        if let Err(why) = self.usable() {
            return Look::Never(why);
        }
        if self.cut < cut && self.want() {
            return Look::Asked;
        }
        Look::Wait
    }
}

/// Commits of one owner's changes to its ledger, each of which carries all since the last.
pub struct GroupCommit {
    ledger: Ledger,
    /// Holds the data that commits name.
    device: Rc<dyn Device>,
    volatile: bool,
    cuts: RefCell<Cuts>,
    /// Wakes the committer.
    work: Event,
    /// Wakes those who wait for a cut.
    changed: Event,
}

impl GroupCommit {
    /// Commits to `ledger` what names data on `device`.
    pub fn new(ledger: Ledger, device: Rc<dyn Device>) -> GroupCommit {
        GroupCommit {
            ledger,
            volatile: device.info().volatile_cache,
            device,
            cuts: RefCell::new(Cuts::new()),
            work: Event::default(),
            changed: Event::default(),
        }
    }

    /// The ledger that the commits go to.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// What commits have done.
    pub fn counters(&self) -> CommitCounters {
        self.cuts.borrow().counters
    }

    // --- for those who change something ---------------------------------------------------------------

    /// The commit that will carry a change made now.
    pub fn next(&self) -> Cut {
        self.cuts.borrow().cut.next()
    }

    /// The state changed: a commit is due in a while.
    pub fn note(&self) {
        if self.cuts.borrow_mut().note(env::now()) {
            self.work.notify_all();
        }
    }

    /// A write of data to the device completed.
    pub fn wrote(&self) {
        self.cuts.borrow_mut().writes += 1;
    }

    /// Asks for a commit soon, without waiting.
    pub fn want(&self) {
        if self.cuts.borrow_mut().want() {
            self.work.notify_all();
        }
    }

    /// May anything still become durable?
    ///
    /// # Errors
    /// Why not.
    pub fn usable(&self) -> Result<(), CommitError> {
        self.cuts.borrow().usable()
    }

    /// Is the last cut durable?
    pub fn is_idle(&self) -> bool {
        let cuts = self.cuts.borrow();
        cuts.durable == cuts.cut
    }

    /// Is `cut` durable?
    pub fn is_durable(&self, cut: Cut) -> bool {
        self.cuts.borrow().durable >= cut
    }

    /// Waits until everything changed before this call is durable.
    ///
    /// # Errors
    /// As for [`GroupCommit::reached`].
    pub async fn committed(&self, source: &dyn CommitSource) -> Result<(), CommitError> {
        let cut = self.cuts.borrow().cut;
        let cut = if source.pending() { cut.next() } else { cut };
        self.reached(cut).await
    }

    /// Waits until `cut` is durable, and asks for its commit if need be.
    ///
    /// # Errors
    /// Why it never will be.
    pub async fn reached(&self, cut: Cut) -> Result<(), CommitError> {
        loop {
            let look = self.cuts.borrow_mut().look(cut);
            match look {
                Look::Durable => return Ok(()),
                Look::Never(why) => return Err(why),
                Look::Wait => {}
                Look::Asked => self.work.notify_all(),
            }
            self.changed.wait().await;
        }
    }

    // --- for the owner --------------------------------------------------------------------------------

    /// Waits until a commit was asked for, or a change has waited for `after`; false once the committer is stopped.
    pub async fn due(&self, after: Nanos) -> bool {
        loop {
            let step = self.cuts.borrow_mut().step(env::now(), after);
            match step {
                Step::Stop => return false,
                Step::Commit => return true,
                Step::Sleep => self.work.wait().await,
                Step::SleepFor(left) => {
                    let _ = env::timeout(left, self.work.wait()).await;
                }
            }
        }
    }

    /// One commit, if there is anything to carry and nothing has failed; true if there was one. Those who wait learn of
    /// it with [`GroupCommit::wake`].
    ///
    /// # Errors
    /// [`CommitError::Flush`], [`CommitError::Ledger`]: final.
    pub async fn round(&self, source: &dyn CommitSource) -> Result<bool, CommitError> {
        self.commit(source, false).await
    }

    /// What came in until the owner was closed, once no other commit is under way.
    ///
    /// # Errors
    /// Why it, or an earlier one, is not durable.
    pub async fn last(&self, source: &dyn CommitSource) -> Result<(), CommitError> {
        while self.cuts.borrow().under_way {
            self.changed.wait().await;
        }
        let carried = self.commit(source, true).await;
        // Another caller waits for it, and no committer wakes that one.
        self.changed.notify_all();
        carried?;
        match self.usable() {
            Err(why) if why != CommitError::Closed => Err(why),
            _ => Ok(()),
        }
    }

    /// Wakes the committer, and those who wait for a cut to look again.
    pub fn wake(&self) {
        self.work.notify_all();
        self.changed.notify_all();
    }

    /// Nothing becomes durable any more but by a commit under way. The first reason stays.
    pub fn fail(&self, why: CommitError) {
        self.cuts.borrow_mut().fail(why);
        self.wake();
    }

    /// The owner takes no more changes: only [`GroupCommit::last`] commits.
    pub fn close(&self) {
        self.cuts.borrow_mut().close();
        self.wake();
    }

    /// Ends the committer.
    pub fn stop(&self) {
        self.cuts.borrow_mut().stopped = true;
        self.work.notify_all();
    }

    /// Has the owner stopped the committer?
    pub fn is_stopped(&self) -> bool {
        self.cuts.borrow().stopped
    }

    async fn commit(&self, source: &dyn CommitSource, last: bool) -> Result<bool, CommitError> {
        let pending = source.pending();
        let begun = self.cuts.borrow_mut().begin(pending, last, self.volatile);
        let Some(begun) = begun else {
            return Ok(false);
        };
        // No await between the number and the batch: a change made now belongs to this cut or to the next.
        let prepared = source.cut(&self.ledger);
        match self.write(begun, prepared).await {
            Ok(()) => {
                self.cuts.borrow_mut().landed(begun);
                source.durable(begun.cut);
                Ok(true)
            }
            Err(why) => {
                let mut cuts = self.cuts.borrow_mut();
                cuts.under_way = false;
                cuts.fail(why.clone());
                Err(why)
            }
        }
    }

    async fn write(&self, begun: Begun, prepared: Prepared) -> Result<(), CommitError> {
        if begun.flush {
            self.device.flush().await.map_err(CommitError::Flush)?;
            self.cuts.borrow_mut().counters.flushes += 1;
        }
        let committed = self.ledger.commit(prepared).await;
        committed.map_err(CommitError::Ledger)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Nanos = Nanos(100);

    fn at(nanos: u64) -> Instant {
        Instant::default() + Nanos(nanos)
    }

    /// A commit of something pending, if there is one.
    fn begin(cuts: &mut Cuts) -> Option<Begun> {
        cuts.begin(true, false, true)
    }

    #[test]
    fn a_change_is_due_after_a_while_and_at_once_when_asked_for() {
        let mut cuts = Cuts::new();
        assert_eq!(cuts.step(at(5), AFTER), Step::Sleep);
        assert!(cuts.note(at(10)), "the committer must learn of the first");
        assert!(!cuts.note(at(90)));
        assert_eq!(cuts.step(at(30), AFTER), Step::SleepFor(Nanos(80)));
        assert_eq!(cuts.step(at(110), AFTER), Step::Commit);
        begin(&mut cuts).unwrap();
        assert_eq!(cuts.step(at(111), AFTER), Step::Sleep);
        assert!(cuts.want());
        assert!(!cuts.want(), "it is asked for already");
        assert_eq!(cuts.step(at(112), AFTER), Step::Commit);
        assert_eq!(cuts.step(at(113), AFTER), Step::Sleep, "asked for once");
    }

    #[test]
    fn a_change_after_the_cut_waits_for_the_next_one() {
        let mut cuts = Cuts::new();
        let before = cuts.cut.next();
        assert_eq!(cuts.look(before), Look::Asked);
        assert_eq!(cuts.step(at(0), AFTER), Step::Commit);
        let begun = begin(&mut cuts).unwrap();
        let after = cuts.cut.next();
        assert_eq!(cuts.look(before), Look::Wait, "its commit is under way");
        assert_eq!(cuts.look(after), Look::Asked);
        cuts.landed(begun);
        assert_eq!(cuts.look(before), Look::Durable);
        assert_eq!(cuts.look(after), Look::Wait);
        assert_eq!(cuts.look(Cut::default()), Look::Durable);
    }

    #[test]
    fn a_flush_is_needed_once_for_the_writes_before_a_cut() {
        let mut cuts = Cuts::new();
        let mut one = |writes: u64, between: u64| {
            cuts.writes += writes;
            let begun = begin(&mut cuts).unwrap();
            cuts.writes += between;
            cuts.landed(begun);
            begun.flush
        };
        assert!(!one(0, 0), "nothing was written");
        assert!(one(2, 1));
        assert!(one(0, 0), "a write ended after the cut");
        assert!(!one(0, 0));
        cuts.writes += 1;
        assert!(
            !cuts.begin(true, false, false).unwrap().flush,
            "not volatile"
        );
    }

    #[test]
    fn nothing_to_carry_makes_no_commit_and_is_no_longer_due() {
        let mut cuts = Cuts::new();
        cuts.note(at(0));
        assert_eq!(cuts.begin(false, false, true), None);
        assert_eq!((cuts.step(at(500), AFTER), cuts.cut), (Step::Sleep, Cut(0)));
    }

    #[test]
    fn a_failure_is_final_and_the_first_one_counts() {
        let mut cuts = Cuts::new();
        let begun = begin(&mut cuts).unwrap();
        cuts.landed(begun);
        let why = CommitError::Owner("the device smokes".to_owned());
        cuts.fail(why.clone());
        cuts.fail(CommitError::Closed);
        cuts.close();
        assert_eq!(cuts.usable(), Err(why.clone()));
        assert_eq!(cuts.look(Cut(1)), Look::Durable);
        assert_eq!(cuts.look(Cut(2)), Look::Never(why));
        assert_eq!(begin(&mut cuts), None);
        assert_eq!(cuts.begin(true, true, true), None);
    }

    #[test]
    fn a_closed_owner_commits_once_more_and_no_caller_waits_for_it() {
        let mut cuts = Cuts::new();
        cuts.close();
        assert_eq!(cuts.look(Cut(1)), Look::Never(CommitError::Closed));
        assert_eq!(begin(&mut cuts), None);
        assert!(cuts.begin(true, true, true).is_some());
    }

    #[test]
    fn a_commit_that_lands_after_a_failure_is_durable_all_the_same() {
        let mut cuts = Cuts::new();
        let begun = begin(&mut cuts).unwrap();
        cuts.fail(CommitError::Closed);
        cuts.landed(begun);
        assert_eq!(cuts.look(Cut(1)), Look::Durable);
    }

    #[test]
    fn a_stopped_committer_does_nothing_more() {
        let mut cuts = Cuts::new();
        cuts.want();
        cuts.stopped = true;
        assert_eq!(cuts.step(at(0), AFTER), Step::Stop);
    }
}
