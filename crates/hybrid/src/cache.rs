//! One attached fast device: slots, map, write intents, and the commits that make them durable together.
//!
//! ```text
//! change the map in memory -> touched pages -> cut -> flush the fast device -> one ledger batch -> durable
//!                                               |                                   |
//!                                  freed slots wait here                 and are free again here
//! ```
//!
//! One commit carries every change since the last (group commit), so a flush costs one ledger write
//! however many pages it covers.
//!
//! ```text
//! Running    -> Evacuating   a write or a commit on the fast device failed
//! Evacuating -> PassThrough  nothing is dirty (any more), and the label says so, or the registry does
//! Evacuating -> Failed       dirty data cannot be read back, or the failure cannot be noted durably
//! Running    -> PassThrough  detach
//! ```
//!
//! Always true:
//! 1. A batch names only slots whose data were complete before the cut and flushed before the commit.
//! 2. The state at the cut is the durable state plus the batch.
//! 3. A slot is used again only after the commit that forgets it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::{Buf, Bytes, Instant, Map, Nanos, Sector, View, crc::crc32c_of_page};
use device::{Class, Device, DeviceError, WriteFlags};
use env::sync::{Event, Semaphore};
use ledger::{Batch, Ledger};

use crate::attach::label::{Attachment, Label, PAGE};
use crate::attach::pair::{Keeper, Pair};
use crate::attach::relabel::Labels;
use crate::durable::intent::WriteIntents;
use crate::durable::record::{self, Live};
use crate::durable::samples::{sample_crc, sample_pages};
use crate::index::page_map::{Entry, FULL, PageMap, Pinned, REGION_PAGES, UNIT_PAGES, frames_for};
use crate::index::slots::{SlotAllocator, SlotRun};
#[cfg(test)]
use crate::mutation::Mutation;
use crate::settings::Settings;
use crate::slow::{Slow, Waited};
use crate::tier;
use crate::trouble::Trouble;

/// Bytes of fills under way at most; further read misses are not copied.
const FILL_BYTES_MAX: u64 = 32 << 20;

/// So often a label is tried before a failure is noted elsewhere.
const LABEL_TRIES: u32 = 3;

/// After this many failed reads the fast device is given up.
const READ_ERRORS_MAX: u64 = 16;

/// Where the cache stands; see the module's arrows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Condition {
    Running,
    Evacuating(DeviceError),
    PassThrough(String),
    Failed(DeviceError),
}

/// Counts since the device was opened.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub fast_bytes_read: Cell<u64>,
    pub fast_bytes_written: Cell<u64>,
    pub data_writes: Cell<u64>,
    pub flushes: Cell<u64>,
    pub commits: Cell<u64>,
    pub fills: Cell<u64>,
    pub fills_dropped: Cell<u64>,
    pub evicted: Cell<u64>,
    pub bad_checksums: Cell<u64>,
    pub bytes_cleaned: Cell<u64>,
    pub clean_batches: Cell<u64>,
    pub waits_for_room: Cell<u64>,
}

pub(crate) fn count(cell: &Cell<u64>, by: u64) {
    cell.set(cell.get() + by);
}

/// The cut and commit numbers, and the tasks that wait for them.
#[derive(Default)]
struct Commits {
    cut: Cell<u64>,
    done: Cell<u64>,
    wanted: Cell<bool>,
    /// Wakes the committer.
    work: Event,
    /// Wakes tasks that wait for a commit.
    changed: Event,
    first_pending: Cell<Option<Instant>>,
}

pub(crate) struct Cache {
    // Fixed.
    pub name: String,
    pub fast: Rc<dyn Device>,
    pub slow: Rc<Slow>,
    pub ledger: Ledger,
    volatile: bool,
    pub on_abandon: Option<Abandon>,
    /// What outlasts the loss of the fast device.
    pub pair: Rc<Keeper>,
    // The map and what surrounds it.
    pub label: Labels,
    pub map: RefCell<PageMap>,
    pub slots: RefCell<SlotAllocator>,
    pub intents: RefCell<WriteIntents>,
    /// Fingerprints by sample number: known, or unknown.
    pub samples: RefCell<Map<u64, Option<u32>>>,
    touched: RefCell<Vec<u64>>,
    touched_samples: RefCell<Vec<u64>>,
    /// Where pages were unmapped since the last commit, by MiB: the commit that makes it durable.
    recently_unmapped: RefCell<Map<u64, u64>>,
    /// The pages that are fingerprinted, ascending.
    sample_pages: Vec<u64>,
    commits: Commits,
    pub condition: RefCell<Condition>,
    /// What lives here by extents.
    pub tier: Rc<tier::State>,
    // Room.
    frames_max: Cell<u32>,
    pages_per_block: Cell<u64>,
    /// Slots reserved for extents.
    held: Cell<u64>,
    reserved: Cell<u32>,
    spare: Cell<u32>,
    /// Slots, frames or the condition changed.
    pub room: Event,
    /// The cleaner should look again.
    pub clean_work: Event,
    /// How many wait for clean pages.
    pub starving: Cell<u32>,
    /// An extent waits for clean pages that make room for it.
    pub wanting: Cell<bool>,
    /// Why the cleaner makes no progress, if it does not.
    pub clean_error: RefCell<Option<DeviceError>>,
    /// What keeps it from being healthy while it works.
    pub trouble: Trouble,
    /// One round of cleaning or clearing of intents at a time; the task that ends the cache's work takes it for good.
    pub cleaning: Rc<Semaphore>,
    fast_name: String,
    /// Failed reads since the last good one.
    failed_reads: Cell<u64>,
    /// The label or the record of pairs names the failure: evacuation may begin.
    pub failing_noted: Cell<bool>,
    fast_io_max: usize,
    /// Writers waiting for slots, in the order they came.
    takers: RefCell<Turns>,
    // Fills under way: page -> token.
    fills: RefCell<Map<u64, u64>>,
    next_fill: Cell<u64>,
    fill_bytes: Cell<u64>,
    /// No fill may begin: a management operation is under way.
    pub no_fills: Cell<bool>,
    flushed_writes: Cell<u64>,
    /// Reads of users from slots.
    waited: Cell<Waited>,
    pub stopped: Cell<bool>,
    pub counts: Counters,
    #[cfg(test)]
    pub planted: Cell<Option<Mutation>>,
}

/// Remembers, elsewhere than on the fast device, that a cache counts no more.
pub type Abandon = Rc<dyn Fn(u128) -> Result<(), String>>;

/// Where it is kept that a cache counts, or counts no more.
pub(crate) struct Ends {
    pub on_abandon: Option<Abandon>,
    pub pair: Rc<Keeper>,
}

/// Slots held back from residents, for out-of-place writes.
pub(crate) fn spare_for(slots: u32) -> u32 {
    (slots / 50).max(16.min(slots / 4)).max(1)
}

impl Cache {
    pub fn new(
        settings: &Settings,
        fast: Rc<dyn Device>,
        slow: Rc<Slow>,
        ledger: Ledger,
        label: Label,
        map: PageMap,
        ends: Ends,
    ) -> Rc<Cache> {
        let slots = label.slots;
        let pages_per_block = settings.block.0 / PAGE;
        let tier = tier::State::new(slow.whole_pages(), &settings.tier);
        let sample_pages = sample_pages(slow.whole_pages());
        Rc::new(Cache {
            name: settings.name.clone(),
            tier,
            slow,
            ledger,
            on_abandon: ends.on_abandon,
            pair: ends.pair,
            label: Labels::new(Rc::clone(&fast), label),
            map: RefCell::new(map),
            slots: RefCell::new(SlotAllocator::new(slots)),
            intents: RefCell::default(),
            samples: RefCell::default(),
            touched: RefCell::default(),
            touched_samples: RefCell::default(),
            recently_unmapped: RefCell::default(),
            sample_pages,
            commits: Commits::default(),
            condition: RefCell::new(Condition::Running),
            frames_max: Cell::new(frames_for(slots, spare_for(slots), pages_per_block)),
            pages_per_block: Cell::new(pages_per_block),
            held: Cell::new(0),
            reserved: Cell::new(0),
            spare: Cell::new(spare_for(slots)),
            room: Event::default(),
            clean_work: Event::default(),
            volatile: fast.info().volatile_cache,
            starving: Cell::new(0),
            wanting: Cell::new(false),
            clean_error: RefCell::new(None),
            trouble: Trouble::default(),
            cleaning: Semaphore::new(1),
            fast_name: fast.info().name,
            failed_reads: Cell::new(0),
            failing_noted: Cell::new(false),
            fast_io_max: (fast.info().max_io.0 / PAGE * PAGE).clamp(PAGE, 1 << 20) as usize,
            fast,
            takers: RefCell::default(),
            fills: RefCell::default(),
            next_fill: Cell::new(0),
            fill_bytes: Cell::new(0),
            no_fills: Cell::new(false),
            flushed_writes: Cell::new(0),
            waited: Cell::default(),
            stopped: Cell::new(false),
            counts: Counters::default(),
            #[cfg(test)]
            planted: Cell::new(None),
        })
    }

    #[cfg(test)]
    pub(crate) fn planted(&self, mutation: Mutation) -> bool {
        self.planted.get() == Some(mutation)
    }

    /// Other slots or another block size: how many blocks may stay.
    pub fn set_room(&self, slots: u32, pages_per_block: u64) {
        self.spare.set(spare_for(slots));
        self.pages_per_block.set(pages_per_block);
        self.set_held_pages(self.held.get());
    }

    /// Slots held back for writes out of place.
    pub fn spare_slots(&self) -> u32 {
        self.spare.get()
    }

    /// Slots that data may stay in: all but the spares.
    pub fn data_slots(&self) -> u64 {
        let slots = self.slots.borrow().total();
        u64::from(slots - spare_for(slots))
    }

    /// How many blocks may stay beside `held` slots for extents.
    fn frames_beside(&self, held: u64) -> u32 {
        let slots = self.slots.borrow().total();
        let taken = u64::from(spare_for(slots)) + held;
        let taken = taken.min(u64::from(slots)) as u32;
        frames_for(slots, taken, self.pages_per_block.get())
    }

    /// So many slots are reserved for extents from now on; the cache has the rest.
    pub fn set_held_pages(&self, held: u64) {
        self.held.set(held);
        self.frames_max.set(self.frames_beside(held));
        self.room.notify_all();
    }

    /// Pages that the cache may hold now.
    pub fn cache_pages(&self) -> u64 {
        u64::from(self.frames_max.get()) * self.pages_per_block.get()
    }

    /// Evicts what would not fit beside `held` slots for extents. False if dirty blocks are in the way.
    pub fn make_room_beside(&self, held: u64) -> bool {
        let most = self.frames_beside(held);
        while self.map.borrow().frames() + self.reserved.get() > most {
            if !self.evict_one(None) {
                return false;
            }
        }
        true
    }

    /// Evicts every clean block.
    pub fn evict_clean(&self) {
        while self.evict_one(None) {}
    }

    /// Notes that the table of extents changed.
    pub fn note_extent(&self) {
        self.note_pending();
    }

    /// Pages one write may take at once and still leave room for others.
    pub fn chunk_pages(&self) -> u64 {
        u64::from((self.spare.get() / 4).clamp(1, 256))
    }

    pub fn is_running(&self) -> bool {
        matches!(*self.condition.borrow(), Condition::Running)
    }

    // --- commits ----------------------------------------------------------------------------------

    /// The commit that will carry a change made now.
    pub fn next_commit(&self) -> u64 {
        self.commits.cut.get() + 1
    }

    /// Notes that the map entry of `page` changed.
    pub fn touch(&self, page: u64) {
        self.touched.borrow_mut().push(page);
        self.note_pending();
    }

    pub fn touch_sample(&self, number: u64) {
        self.touched_samples.borrow_mut().push(number);
        self.note_pending();
    }

    fn note_pending(&self) {
        if self.commits.first_pending.get().is_none() {
            self.commits.first_pending.set(Some(env::now()));
            self.commits.work.notify_all();
        }
    }

    /// Does a commit have anything to carry?
    pub fn anything_pending(&self) -> bool {
        !self.touched.borrow().is_empty()
            || self.intents.borrow().any_touched()
            || !self.touched_samples.borrow().is_empty()
            || self.tier.table.borrow().any_touched()
    }

    /// Waits until everything changed before this call is durable.
    pub async fn committed(&self) -> Result<(), DeviceError> {
        let number = if self.anything_pending() {
            self.next_commit()
        } else {
            self.commits.cut.get()
        };
        self.commit_reached(number).await
    }

    /// Waits until commit `number` is durable.
    pub async fn commit_reached(&self, number: u64) -> Result<(), DeviceError> {
        loop {
            // What was durable on a dead device may be lost with it: nothing may rely on it any more.
            if let Condition::Failed(error) = &*self.condition.borrow() {
                return Err(self.flush_failed(error));
            }
            if self.commits.done.get() >= number {
                return Ok(());
            }
            match &*self.condition.borrow() {
                Condition::Running => {}
                Condition::Evacuating(error) | Condition::Failed(error) => {
                    return Err(self.flush_failed(error));
                }
                // The slow device stands alone: what is on it counts, once that is flushed.
                Condition::PassThrough(_) => return Err(self.flush_failed(&self.not_running())),
            }
            if self.commits.cut.get() < number {
                self.want_commit();
            }
            self.commits.changed.wait().await;
        }
    }

    fn flush_failed(&self, cause: &DeviceError) -> DeviceError {
        DeviceError::FlushFailed {
            device: self.name.clone(),
            why: cause.to_string(),
        }
    }

    /// Asks for a commit soon, without waiting.
    pub fn want_commit(&self) {
        if !self.commits.wanted.replace(true) {
            self.commits.work.notify_all();
        }
    }

    /// The committer's task: one commit after the other, as asked or after `commit_after`.
    pub async fn commit_loop(self: Rc<Self>, commit_after: Nanos) {
        while !self.stopped.get() {
            if !self.commits.wanted.get() {
                match self.commits.first_pending.get() {
                    None => self.commits.work.wait().await,
                    Some(since) => {
                        let due = since + commit_after;
                        let remaining = due.since(env::now());
                        if remaining > Nanos(0) {
                            let _ = env::timeout(remaining, self.commits.work.wait()).await;
                        }
                        if env::now() >= due {
                            self.commits.wanted.set(true);
                        }
                    }
                }
                continue;
            }
            self.commit_round().await;
        }
    }

    async fn commit_round(self: &Rc<Self>) {
        self.commits.wanted.set(false);
        if !self.is_running() {
            self.commits.first_pending.set(None);
            self.commits.changed.notify_all();
            return;
        }
        if !self.anything_pending() {
            self.commits.first_pending.set(None);
            self.commits.changed.notify_all();
            return;
        }
        let prepared = self.cut();
        let number = self.commits.cut.get();
        let writes = self.counts.data_writes.get();
        let answer = async {
            let must_flush = self.volatile && self.flushed_writes.get() != writes;
            #[cfg(test)]
            let must_flush = must_flush && !self.planted(Mutation::SkippedFlush);
            if must_flush {
                self.fast.flush().await?;
                count(&self.counts.flushes, 1);
            }
            self.ledger
                .commit(prepared)
                .await
                .map_err(|error| self.ledger_error(&error))
        }
        .await;
        match answer {
            Ok(()) => {
                self.flushed_writes.set(writes);
                self.slots.borrow_mut().committed();
                let later = |_: &u64, commit: &mut u64| *commit > number;
                self.recently_unmapped.borrow_mut().retain(later);
                self.commits.done.set(number);
                count(&self.counts.commits, 1);
            }
            Err(error) => self.fail(error).await,
        }
        self.commits.changed.notify_all();
        self.room.notify_all();
    }

    fn ledger_error(&self, error: &dyn std::fmt::Display) -> DeviceError {
        DeviceError::Io {
            device: self.fast.info().name,
            op: device::Op::Write,
            span: self.label.borrow().ledger,
            why: format!("the map could not be committed: {error}"),
        }
    }

    /// Takes every change since the last cut as one batch. No await between here and `prepare`: the
    /// state in memory at this moment is what the batch and its swept records describe.
    fn cut(&self) -> ledger::Prepared {
        self.commits.cut.set(self.next_commit());
        self.commits.first_pending.set(None);
        let map = self.map.borrow();
        let mut intents = self.intents.borrow_mut();
        let samples = self.samples.borrow();
        let mut batch = Batch::new();
        let mut touched = std::mem::take(&mut *self.touched.borrow_mut());
        touched.sort_unstable();
        touched.dedup();
        for page in touched {
            record::page(&mut batch, page, &map);
        }
        for (region, marked) in intents.take_touched() {
            record::intent(&mut batch, region, marked);
        }
        for number in self.touched_samples.take() {
            record::sample(&mut batch, number, samples[&number]);
        }
        let mut table = self.tier.table.borrow_mut();
        for (extent, kept) in table.take_touched() {
            record::extent(&mut batch, extent, kept);
        }
        let mut slots = self.slots.borrow_mut();
        slots.cut();
        let mut live = Live {
            map: &map,
            slots: slots.total(),
            intents: &intents,
            samples: &samples,
            table: &table,
        };
        self.ledger.prepare(batch, &mut live)
    }

    // --- failure ----------------------------------------------------------------------------------

    /// The fast device failed. If nothing is dirty the slow device goes on alone. Else the cleaner tries
    /// to destage what is dirty.
    pub async fn fail(self: &Rc<Self>, error: DeviceError) {
        if !self.is_running() {
            return;
        }
        tracing::error!(volume = %self.name, %error, "the fast device failed");
        *self.condition.borrow_mut() = Condition::Evacuating(error);
        self.cancel_all_fills();
        if self.map.borrow().dirty() == 0 {
            self.pass("the fast device failed while nothing was dirty")
                .await;
        } else {
            self.note_failing().await;
        }
        self.changed();
    }

    /// What is destaged from now on may be newer than clean entries of the last commit. A start after a crash
    /// must not trust those, so it is noted durably first. If it cannot be noted, nothing is destaged.
    async fn note_failing(self: &Rc<Self>) {
        let mut answer = Ok(());
        for _ in 0..LABEL_TRIES {
            answer = self.label.change_attachment(Attachment::Failing).await;
            if answer.is_ok() {
                break;
            }
        }
        let Err(error) = answer else {
            self.failing_noted.set(true);
            return;
        };
        tracing::warn!(volume = %self.name, %error, "the label could not be changed");
        let noted = match self.pair.is_kept() {
            true => self.note_failing_pair(),
            false => Err("no record of pairs is kept".to_owned()),
        };
        match noted {
            Ok(()) => self.failing_noted.set(true),
            Err(why) => self.die(DeviceError::Gone {
                device: self.name.clone(),
                op: device::Op::Write,
                why: format!(
                    "{error}; and that the fast device fails could not be noted elsewhere ({why}), so its \
                     dirty data stay on it: repair one of the two and start again"
                ),
            }),
        }
    }

    fn note_failing_pair(&self) -> Result<(), String> {
        let (label, known) = (self.label.borrow(), self.pair.now());
        self.pair.note(Pair {
            cache: Some(label.uuid),
            generation: label.generation.max(known.generation),
            dirty: true,
            failing: true,
            // The label of one that was accepted may still be behind, and can no longer be changed.
            accepted: known.accepted && known.cache == Some(label.uuid),
            mode: known.mode,
        })
    }

    fn changed(&self) {
        self.commits.work.notify_all();
        self.commits.changed.notify_all();
        self.room.notify_all();
        self.clean_work.notify_all();
        self.tier.wake();
    }

    /// Cuts the tie to a failed fast device, durably, so that its contents never count again.
    pub async fn pass(self: &Rc<Self>, why: &str) {
        let error = match &*self.condition.borrow() {
            Condition::Evacuating(error) => error.clone(),
            _ => return,
        };
        let abandoned = self.abandon().await;
        if !matches!(*self.condition.borrow(), Condition::Evacuating(_)) {
            return; // Another task ended it first.
        }
        *self.condition.borrow_mut() = match abandoned {
            Ok(()) => {
                tracing::warn!(volume = %self.name, "passing through to the slow device: {why}");
                Condition::PassThrough(format!("{why}: {error}"))
            }
            Err(refusal) => Condition::Failed(DeviceError::Gone {
                device: self.name.clone(),
                op: device::Op::Write,
                why: format!(
                    "{error}; and the fast device could not be given up safely ({refusal}): \
                     stop the volume and open it without the fast device"
                ),
            }),
        };
        self.changed();
    }

    /// The dirty data cannot be destaged.
    pub fn die(&self, error: DeviceError) {
        tracing::error!(volume = %self.name, %error, "dirty data cannot be written back to the slow device");
        *self.condition.borrow_mut() = Condition::Failed(error);
        self.changed();
    }

    /// Its contents count no more, durably.
    pub async fn abandon(&self) -> Result<(), String> {
        let alone = self.pair.now().alone();
        let listed = match self.label.change_attachment(Attachment::Abandoned).await {
            Ok(()) => Ok(()),
            Err(error) => match &self.on_abandon {
                Some(remember) => remember(self.label.borrow().uuid),
                // An attachment that the record does not know of any more is an older one.
                None if self.pair.is_kept() => return self.pair.note(alone),
                None => Err(format!(
                    "{error}; no registry of abandoned caches is configured"
                )),
            },
        };
        if listed.is_ok()
            && let Err(why) = self.pair.note(alone)
        {
            // It names a cache that counts no more: the next start sees that.
            tracing::warn!(volume = %self.name, why, "the record of pairs could not be written");
        }
        listed
    }

    /// Waits until a failing cache has become something definite. `Ok`: the slow device stands alone.
    pub async fn settled(&self) -> Result<(), DeviceError> {
        loop {
            match &*self.condition.borrow() {
                Condition::PassThrough(_) | Condition::Running => return Ok(()),
                Condition::Failed(error) => return Err(error.clone()),
                Condition::Evacuating(_) => {}
            }
            self.room.wait().await;
        }
    }

    // --- room -------------------------------------------------------------------------------------

    fn evict_one(&self, incoming: Option<u64>) -> bool {
        let mut slots = self.slots.borrow_mut();
        let mut gone = Vec::new();
        let evicted = self.map.borrow_mut().evict(incoming, &mut |page, slot| {
            slots.release(slot);
            gone.push(page);
        });
        drop(slots);
        count(&self.counts.evicted, gone.len() as u64);
        for page in gone {
            self.fills.borrow_mut().remove(&page);
            self.note_unmapped(page);
            self.touch(page);
        }
        evicted
    }

    /// Makes room for the blocks of pages `first..end` without waiting; the answer holds it.
    pub fn try_reserve(self: &Rc<Self>, first: u64, end: u64) -> Option<Reserved> {
        loop {
            let needed = self.map.borrow().frames_needed(first, end);
            let held = self.map.borrow().frames() + self.reserved.get();
            if needed == 0 || held + needed <= self.frames_max.get() || held == 0 {
                self.reserved.set(self.reserved.get() + needed);
                return Some(Reserved {
                    cache: Rc::clone(self),
                    frames: needed,
                });
            }
            if !self.evict_one(Some(first)) {
                return None;
            }
        }
    }

    /// Makes room for the blocks of pages `first..end`, waiting for the cleaner if all is dirty.
    pub async fn reserve(self: &Rc<Self>, first: u64, end: u64) -> Result<Reserved, DeviceError> {
        loop {
            if !self.is_running() {
                return Err(self.not_running());
            }
            if let Some(reserved) = self.try_reserve(first, end) {
                return Ok(reserved);
            }
            count(&self.counts.waits_for_room, 1);
            self.wait_for_cleaner().await;
            if let Some(error) = self.clean_error.borrow().clone() {
                return Err(error);
            }
        }
    }

    async fn wait_for_cleaner(&self) {
        self.starving.set(self.starving.get() + 1);
        self.clean_work.notify_all();
        self.room.wait().await;
        self.starving.set(self.starving.get() - 1);
    }

    pub fn not_running(&self) -> DeviceError {
        match &*self.condition.borrow() {
            Condition::Evacuating(error) | Condition::Failed(error) => error.clone(),
            Condition::PassThrough(why) => DeviceError::Gone {
                device: self.fast.info().name,
                op: device::Op::Write,
                why: why.clone(),
            },
            Condition::Running => unreachable!("asked only when not running"),
        }
    }

    /// Takes up to `wanted` slots without waiting; fewer, or none, if fewer are free.
    pub fn try_take(&self, wanted: u32) -> Vec<SlotRun> {
        let mut slots = self.slots.borrow_mut();
        let mut runs = Vec::new();
        let mut missing = wanted;
        while missing > 0 {
            let Some(run) = slots.take_run(missing) else {
                break;
            };
            missing -= run.count;
            runs.push(run);
        }
        // Reclaim freed slots before the last free one is taken.
        if slots.free_count() < self.spare.get() / 2 && slots.awaiting_commit() > 0 {
            drop(slots);
            self.want_commit();
        }
        runs
    }

    /// Takes `wanted` slots, all at once and in turn, waiting for commits and readers to free them.
    /// (Writers that each held a few and waited for more could wait for each other for ever.)
    pub async fn take(&self, wanted: u32) -> Result<Vec<SlotRun>, DeviceError> {
        let turn = Turn::new(&self.takers);
        loop {
            if !self.is_running() {
                return Err(self.not_running());
            }
            if turn.is_first() && self.slots.borrow().free_count() >= wanted {
                let runs = self.try_take(wanted);
                // There may be enough left for the next in line.
                self.room.notify_all();
                return Ok(runs);
            }
            count(&self.counts.waits_for_room, 1);
            if self.map.borrow().frames() > self.frames_max.get() {
                self.evict_one(None);
            }
            if self.slots.borrow().awaiting_commit() > 0 {
                self.want_commit();
            }
            self.wait_for_cleaner().await;
        }
    }

    /// Returns slots that were taken and never mapped nor written, or written and never mapped.
    pub fn give_back(&self, runs: &[SlotRun]) {
        let mut slots = self.slots.borrow_mut();
        for run in runs {
            for slot in run.first..run.first + run.count {
                slots.give_back(slot);
            }
        }
        drop(slots);
        self.room.notify_all();
    }

    // --- data -------------------------------------------------------------------------------------

    fn sector(&self, slot: u32) -> Sector {
        self.label.borrow().slot(slot)
    }

    pub async fn write_slots(
        &self,
        first: u32,
        data: View,
        class: Class,
    ) -> Result<(), DeviceError> {
        count(&self.counts.fast_bytes_written, data.len() as u64);
        let flags = WriteFlags { fua: false, class };
        let mut from = 0;
        while from < data.len() {
            let len = self.fast_io_max.min(data.len() - from);
            let at = self.sector(first + (from / base::PAGE) as u32);
            let answer = self.fast.write(at, data.slice(from, len), flags).await;
            count(&self.counts.data_writes, 1);
            answer?;
            let slot = first + (from / base::PAGE) as u32;
            self.trouble.slots_written(slot, (len / base::PAGE) as u32);
            from += len;
        }
        Ok(())
    }

    /// The longest request the fast device takes, in bytes; whole pages.
    pub fn fast_io_max(&self) -> usize {
        self.fast_io_max
    }

    /// Reads neighbouring slots and checks every page; the caller is entered as a reader.
    ///
    /// # Errors
    /// The device's own, or `Corrupt` for a page whose checksum does not agree.
    pub async fn read_slots(&self, first: u32, buf: Buf, class: Class) -> Result<Buf, DeviceError> {
        let slots = (buf.len() / base::PAGE) as u32;
        let answer = self.read_and_check(first, buf, class).await;
        self.trouble.slots_read(first, slots, answer.is_err());
        answer
    }

    async fn read_and_check(&self, first: u32, buf: Buf, class: Class) -> Result<Buf, DeviceError> {
        count(&self.counts.fast_bytes_read, buf.len() as u64);
        let begun = env::now();
        let buf = self.fast.read(self.sector(first), buf, class).await?;
        if class != Class::Background {
            Waited::add(&self.waited, begun);
        }
        self.failed_reads.set(0);
        let map = self.map.borrow();
        let zero = buf.is_known_zero();
        for (slot, page) in (first..).zip(buf.chunks(PAGE as usize)) {
            if crc32c_of_page(page, zero) != map.crc(slot) {
                count(&self.counts.bad_checksums, 1);
                return Err(DeviceError::Corrupt {
                    device: self.fast.info().name,
                    span: base::Span::new(self.sector(slot), Bytes(PAGE)),
                    why: format!("the checksum of slot {slot} does not agree"),
                });
            }
        }
        Ok(buf)
    }

    /// Reads of users from slots, and what they waited.
    pub fn waited(&self) -> Waited {
        self.waited.get()
    }

    /// Is this an error of the fast device?
    pub fn is_ours(&self, error: &DeviceError) -> bool {
        match error {
            DeviceError::Io { device, .. }
            | DeviceError::Corrupt { device, .. }
            | DeviceError::Gone { device, .. } => *device == self.fast_name,
            _ => false,
        }
    }

    /// A read of the fast device failed: after a number of them in a row it is given up.
    pub fn note_read_error(self: &Rc<Self>, error: &DeviceError) {
        if matches!(error, DeviceError::Corrupt { .. }) {
            return;
        }
        count(&self.failed_reads, 1);
        if self.failed_reads.get() >= READ_ERRORS_MAX {
            let (cache, error) = (Rc::clone(self), error.clone());
            // A task of its own: the reader may go away.
            env::spawn(async move { cache.fail(error).await });
        }
    }

    /// One whole page from its slot.
    pub async fn read_page(&self, slot: u32, class: Class) -> Result<Buf, DeviceError> {
        self.read_slots(slot, Buf::for_read(base::PAGE), class)
            .await
    }

    /// Maps `page` to `slot`, whose data are complete.
    pub fn map_page(&self, page: u64, slot: u32, dirty: bool, mask: u8, crc: u32) {
        let old = self
            .map
            .borrow_mut()
            .put(page, slot, dirty, mask, crc, env::now());
        if let Some(old) = old {
            self.slots.borrow_mut().release(old);
        }
        self.touch(page);
    }

    /// Forgets `page` (in memory now, durably at the next commit).
    pub fn unmap_page(&self, page: u64) {
        if let Some(slot) = self.map.borrow_mut().remove(page) {
            self.slots.borrow_mut().release(slot);
            // A copy that began while the page was here may be older than what was here.
            self.fills.borrow_mut().remove(&page);
            self.note_unmapped(page);
            self.touch(page);
        }
    }

    /// The map forgets `page`; until the next commit the durable one may have it.
    fn note_unmapped(&self, page: u64) {
        let (unit, commit) = (page / UNIT_PAGES, self.next_commit());
        self.recently_unmapped.borrow_mut().insert(unit, commit);
    }

    /// Forgets clean pages `first..end` and copies of them that are on their way.
    pub fn forget_pages(&self, first: u64, end: u64) {
        self.cancel_fills(first, end);
        for page in first..end {
            self.unmap_page(page);
        }
    }

    /// Forgets a clean page that turned out unreadable, if it is still where it was.
    pub fn drop_bad(&self, page: u64, entry: &Entry) {
        if self.map.borrow().get(page).as_ref() == Some(entry) && !entry.dirty {
            self.outdate_copies(page, page + 1);
            self.unmap_page(page);
        }
    }

    // --- write intents -----------------------------------------------------------------------

    /// As [`Cache::begin_slow_write`] without a durable intent and without waiting, if neither the map nor the
    /// durable one has any of pages `first..end`, nor a fingerprint of them.
    pub fn begin_unrecorded_write(self: &Rc<Self>, first: u64, end: u64) -> Option<SlowWrite> {
        if !self.is_running() {
            return None;
        }
        let samples = &self.sample_pages;
        let sampled = samples.partition_point(|page| *page < end)
            > samples.partition_point(|page| *page < first);
        let known = {
            let (map, unmapped) = (self.map.borrow(), self.recently_unmapped.borrow());
            let mut units = first / UNIT_PAGES..end.div_ceil(UNIT_PAGES);
            map.resident_in(first, end) > 0 && (first..end).any(|page| map.find(page).is_some())
                || !unmapped.is_empty() && units.any(|unit| unmapped.contains_key(&unit))
        };
        if sampled || known {
            return None;
        }
        let regions = (first / REGION_PAGES)..=((end - 1) / REGION_PAGES);
        let now = env::now();
        let mut intents = self.intents.borrow_mut();
        for region in regions.clone() {
            intents.begin_unrecorded(region, now);
        }
        Some(SlowWrite {
            cache: Rc::clone(self),
            first: *regions.start(),
            last: *regions.end(),
        })
    }

    /// A copy of pages `first..end` is to come: if the slow device was written there and not flushed since, the
    /// intent must be as durable as the copy.
    pub fn record_intents(&self, first: u64, end: u64) {
        #[cfg(test)]
        if self.planted(Mutation::UnrecordedIntent) {
            return;
        }
        let next = self.next_commit();
        let mut intents = self.intents.borrow_mut();
        for region in first / REGION_PAGES..=(end - 1) / REGION_PAGES {
            intents.record(region, next);
        }
        if intents.any_touched() {
            self.note_pending();
        }
    }

    /// Marks the regions of pages `first..end` as about to change behind the cache's back, and waits
    /// until the intents are durable.
    pub async fn begin_slow_write(
        self: &Rc<Self>,
        first: u64,
        end: u64,
    ) -> Result<SlowWrite, DeviceError> {
        let now = env::now();
        let regions = (first / REGION_PAGES)..=((end - 1) / REGION_PAGES);
        let mut needed = 0;
        {
            let mut intents = self.intents.borrow_mut();
            for region in regions.clone() {
                needed = needed.max(intents.begin(region, self.next_commit(), now));
            }
            if intents.any_touched() {
                self.note_pending();
            }
        }
        let guard = SlowWrite {
            cache: Rc::clone(self),
            first: *regions.start(),
            last: *regions.end(),
        };
        #[cfg(test)]
        if self.planted(Mutation::LateInvalidation) {
            return Ok(guard);
        }
        self.commit_reached(needed).await?;
        Ok(guard)
    }

    // --- fills ------------------------------------------------------------------------------------

    /// Registers a copy of pages `first..end` to come; `None` if one of them is coming already or too
    /// much is under way.
    pub fn begin_fill(&self, first: u64, end: u64) -> Option<u64> {
        let bytes = (end - first) * PAGE;
        let too_much = self.fill_bytes.get() + bytes > FILL_BYTES_MAX;
        let none = self.no_fills.get() || self.stopped.get();
        if !self.is_running() || none || too_much {
            count(&self.counts.fills_dropped, 1);
            return None;
        }
        let mut fills = self.fills.borrow_mut();
        if (first..end).any(|page| fills.contains_key(&page)) {
            return None;
        }
        self.record_intents(first, end);
        let token = self.next_fill.get();
        self.next_fill.set(token + 1);
        fills.extend((first..end).map(|page| (page, token)));
        self.fill_bytes.set(self.fill_bytes.get() + bytes);
        Some(token)
    }

    /// Is the copy of `page` that `token` stands for still up to date?
    pub fn fill_stands(&self, token: u64, page: u64) -> bool {
        #[cfg(test)]
        if self.planted(Mutation::StaleFill) {
            return true;
        }
        self.fills.borrow().get(&page) == Some(&token)
    }

    /// The published mover may have copied pages `first..end` and not mapped the copies yet: those are out of date.
    fn outdate_copies(&self, first: u64, end: u64) {
        #[cfg(test)]
        if self.planted(Mutation::StaleCopy) {
            return;
        }
        let slots = self.tier.published.touched(first, end);
        if !slots.is_empty() {
            self.give_back(&slots);
        }
    }

    /// Whatever is being copied to the fast device for pages `first..end` is out of date.
    pub fn cancel_fills(&self, first: u64, end: u64) {
        self.outdate_copies(first, end);
        let mut fills = self.fills.borrow_mut();
        if fills.is_empty() {
            return;
        }
        for page in first..end {
            fills.remove(&page);
        }
    }

    fn cancel_all_fills(&self) {
        self.fills.borrow_mut().clear();
    }

    /// Ends a fill that will not be carried out.
    pub fn forget_fill(&self, token: u64, first: u64, end: u64) {
        let mut fills = self.fills.borrow_mut();
        for page in first..end {
            if fills.get(&page) == Some(&token) {
                fills.remove(&page);
            }
        }
        self.fill_bytes
            .set(self.fill_bytes.get() - (end - first) * PAGE);
        if self.fill_bytes.get() == 0 {
            self.room.notify_all();
        }
    }

    /// Copies whole clean pages from `first` on to the fast device, unless they were written meanwhile.
    /// Never waits for room.
    pub async fn fill(self: &Rc<Self>, token: u64, first: u64, data: View) {
        let end = first + data.len() as u64 / PAGE;
        if let Err(error) = self.fill_pages(token, first, end, data).await {
            self.fail(error).await;
        }
    }

    /// A fill found too few free slots: the next ones shall find more.
    fn make_free_soon(&self, incoming: u64) {
        while self.slots.borrow().awaiting_commit() < self.spare.get() / 4 {
            if !self.evict_one(Some(incoming)) {
                break;
            }
        }
        self.want_commit();
    }

    async fn fill_pages(
        self: &Rc<Self>,
        token: u64,
        first: u64,
        end: u64,
        data: View,
    ) -> Result<(), DeviceError> {
        if !self.is_running() {
            return Ok(());
        }
        // Writers come first: a fill leaves them some free slots, and evicts nothing it cannot use.
        if self.slots.borrow().free_count() < (end - first) as u32 + self.spare.get() / 4 {
            count(&self.counts.fills_dropped, 1);
            let pinned = self.map.borrow().pinned_of(first);
            match pinned {
                Pinned::No => self.make_free_soon(first),
                // The room is there: it waits for a commit.
                Pinned::Hot | Pinned::Cold => self.want_commit(),
            }
            return Ok(());
        }
        let Some(_room) = self.try_reserve(first, end) else {
            count(&self.counts.fills_dropped, 1);
            return Ok(());
        };
        let runs = self.try_take((end - first) as u32);
        let mut page = first;
        for run in &runs {
            let from = ((page - first) * PAGE) as usize;
            let piece = data.slice(from, run.count as usize * PAGE as usize);
            self.write_slots(run.first, piece.clone(), Class::Background)
                .await?;
            for slot in run.first..run.first + run.count {
                #[cfg(test)]
                let over = self.planted(Mutation::StaleFill);
                #[cfg(not(test))]
                let over = false;
                if self.fill_stands(token, page)
                    && self.is_running()
                    && (over || self.map.borrow().find(page).is_none())
                {
                    let from = ((page - first) * PAGE) as usize;
                    let page_data = &data[from..from + PAGE as usize];
                    let crc = crc32c_of_page(page_data, data.is_known_zero());
                    self.map_page(page, slot, false, FULL, crc);
                    count(&self.counts.fills, 1);
                } else {
                    self.give_back(&[SlotRun {
                        first: slot,
                        count: 1,
                    }]);
                }
                page += 1;
            }
        }
        Ok(())
    }

    /// Waits until no fill is under way; none begins until the gate is opened again.
    pub async fn quiesce_fills(&self) {
        self.no_fills.set(true);
        self.cancel_all_fills();
        while self.fill_bytes.get() > 0 {
            self.room.wait().await;
        }
    }

    /// Evicts every page in a slot from `slot` on; none of them is dirty.
    pub fn drop_slots_from(&self, slot: u32) {
        let total = self.slots.borrow().total();
        for slot in slot..total {
            let found = self.map.borrow().in_slot(slot);
            if let Some((page, entry)) = found {
                assert!(!entry.dirty, "page {page} was destaged first");
                self.unmap_page(page);
            }
        }
    }

    /// Ends the tasks of this cache.
    pub fn stop(&self) {
        self.stopped.set(true);
        self.changed();
    }

    // --- fingerprints -----------------------------------------------------------------------------

    /// Reads sample `number` of the slow device anew and notes its fingerprint.
    pub async fn refresh_sample(&self, number: u64, page: u64) {
        // A page that cannot be read has no known fingerprint.
        let crc = sample_crc(&*self.slow.device, page).await.ok();
        self.samples.borrow_mut().insert(number, crc);
        self.touch_sample(number);
    }
}

/// The tasks that wait, in order.
#[derive(Default)]
struct Turns {
    next: u64,
    waiting: std::collections::VecDeque<u64>,
}

/// A place in a line; left when dropped.
struct Turn<'a> {
    line: &'a RefCell<Turns>,
    number: u64,
}

impl<'a> Turn<'a> {
    fn new(line: &'a RefCell<Turns>) -> Turn<'a> {
        let mut turns = line.borrow_mut();
        let number = turns.next;
        turns.next += 1;
        turns.waiting.push_back(number);
        Turn { line, number }
    }

    fn is_first(&self) -> bool {
        self.line.borrow().waiting.front() == Some(&self.number)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.line
            .borrow_mut()
            .waiting
            .retain(|number| *number != self.number);
    }
}

/// Block frames held ready; given back when dropped.
pub(crate) struct Reserved {
    cache: Rc<Cache>,
    frames: u32,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let cache = &self.cache;
        cache.reserved.set(cache.reserved.get() - self.frames);
        if cache.starving.get() > 0 {
            cache.room.notify_all();
        }
    }
}

/// A write to the slow device behind the cache's back; over when dropped.
pub(crate) struct SlowWrite {
    cache: Rc<Cache>,
    first: u64,
    last: u64,
}

impl Drop for SlowWrite {
    fn drop(&mut self) {
        let now = env::now();
        let mut intents = self.cache.intents.borrow_mut();
        for region in self.first..=self.last {
            intents.end(region, now);
        }
    }
}
