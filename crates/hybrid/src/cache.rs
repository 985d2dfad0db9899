//! One attached fast device: what is on it, the commits that make that durable, and how it ends.
//!
//! ```text
//! change the map in memory -> touched pages -> cut -> flush the fast device -> one ledger batch -> durable
//! ```
//!
//! One commit carries every change since the last (group commit), so a flush costs one ledger write
//! however many pages it covers.
//!
//! Always true:
//! 1. A batch names only slots whose data were complete before the cut and flushed before the commit.
//! 2. What may be stale of a page is forgotten with the page: copies under way, and what a mover holds.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::{Buf, Bytes, Instant, Nanos, View};
use device::{Class, Device, DeviceError, Op};
use env::sync::{Event, Semaphore};
use ledger::{CommitError, CommitSource, Cut, GroupCommit, Ledger};

use crate::attach::label::{Label, PAGE};
use crate::attach::relabel::Labels;
use crate::durable::samples::sample_crc;
use crate::durable::source::Source;
use crate::fast::FastDevice;
use crate::health::{Condition, Ends};
use crate::index::Index;
use crate::index::extents::ExtentTable;
use crate::index::fills::Fills;
use crate::index::page_map::{Entry, PageMap, REGION_PAGES};
use crate::index::slots::{GROUP, LONG, SlotRun};
use crate::interpose::Interpose;
#[cfg(test)]
use crate::mutation::Mutation;
use crate::room::Room;
use crate::stats::{Health, Upkeep, count_in};
use crate::volume::Volume;

/// So many groups of slots at most are looked at for room beside a victim, for one request.
const LOOKS: u32 = 8;
/// A group of slots is emptied ahead of need only where it is at most one part in so many of the cache.
const GROUP_SHARE: u32 = 64;

/// Who wants clean pages, and how far the cleaner gets.
pub(crate) struct Destaging {
    /// One round of cleaning or clearing of intents at a time; the task that ends the cache's work takes it for good.
    pub turn: Rc<Semaphore>,
    /// The cleaner should look again.
    pub work: Event,
    /// When a user last wrote something to the cache alone.
    pub written_at: Cell<Option<Instant>>,
    /// A cleaner that holds need not look again at a write below so much dirty.
    pub holds_until: Cell<Bytes>,
    /// How many wait for clean pages.
    pub starving: Cell<u32>,
    /// An extent waits for clean pages that make room for it.
    pub wanting: Cell<bool>,
    /// Why the cleaner makes no progress, if it does not.
    pub error: RefCell<Option<DeviceError>>,
}

pub(crate) struct Cache {
    pub volume: Rc<Volume>,
    pub fast: FastDevice,
    pub health: Condition,
    /// All that the ledger keeps.
    pub state: Source,
    pub commit: GroupCommit,
    pub room: Room,
    pub destaging: Destaging,
    pub fills: Fills,
    /// Moves regions, and may hold what users wrote meanwhile.
    pub mover: Rc<dyn Interpose>,
    pub stopped: Cell<bool>,
    /// Counts since the device was attached; bad checksums are the fast device's to count.
    pub upkeep: Cell<Upkeep>,
}

/// What a cache is made of.
pub(crate) struct Made {
    pub fast: Rc<dyn Device>,
    pub ledger: Ledger,
    pub label: Label,
    pub map: PageMap,
    pub extents: ExtentTable,
    pub mover: Rc<dyn Interpose>,
    pub ends: Ends,
}

impl Cache {
    pub fn new(volume: &Rc<Volume>, made: Made) -> Rc<Cache> {
        let Made { fast, label, .. } = made;
        let slots = label.slots;
        let pages_per_block = volume.settings.borrow().block.0 / PAGE;
        let name = fast.info().name;
        let slots_and_label = FastDevice::new(Rc::clone(&fast), &label);
        let labels = Labels::new(Rc::clone(&fast), label);
        Rc::new(Cache {
            volume: Rc::clone(volume),
            fast: slots_and_label,
            health: Condition::new(&volume.name, &name, labels, made.ends),
            state: Source::new(Index::new(made.map, slots), made.extents),
            commit: GroupCommit::new(made.ledger, fast),
            room: Room::new(slots, pages_per_block),
            destaging: Destaging {
                turn: volume.destaging_turn(),
                work: Event::default(),
                written_at: Cell::new(None),
                holds_until: Cell::new(Bytes(0)),
                starving: Cell::new(0),
                wanting: Cell::new(false),
                error: RefCell::new(None),
            },
            fills: Fills::default(),
            mover: made.mover,
            stopped: Cell::new(false),
            upkeep: Cell::default(),
        })
    }

    pub fn is_running(&self) -> bool {
        self.health.is_running()
    }

    /// Ends the tasks of this cache.
    pub fn stop(&self) {
        self.stopped.set(true);
        self.commit.stop();
        self.changed();
    }

    // --- commits ----------------------------------------------------------------------------------

    /// Notes that the map entry of `page` changed.
    pub fn touch(&self, page: u64) {
        self.state.touch(page);
        self.commit.note();
    }

    /// Waits until everything changed before this call is durable.
    pub async fn committed(&self) -> Result<(), DeviceError> {
        if !self.is_running() && self.state.pending() {
            return Err(self.flush_failed(&self.health.not_running()));
        }
        let answer = self.commit.committed(&self.state).await;
        self.answered(answer)
    }

    /// Waits until commit `cut` is durable.
    pub async fn commit_reached(&self, cut: Cut) -> Result<(), DeviceError> {
        if !self.is_running() && !self.commit.is_durable(cut) {
            return Err(self.flush_failed(&self.health.not_running()));
        }
        let answer = self.commit.reached(cut).await;
        self.answered(answer)
    }

    fn answered(&self, answer: Result<(), CommitError>) -> Result<(), DeviceError> {
        // What was durable on a dead device may be lost with it: nothing may rely on it any more.
        if self.health.is(Health::Failed) {
            return Err(self.flush_failed(&self.health.not_running()));
        }
        answer.map_err(|error| match self.is_running() {
            true => self.commit_failed(error),
            // The slow device stands alone: what is on it counts, once that is flushed.
            false => self.flush_failed(&self.health.not_running()),
        })
    }

    fn flush_failed(&self, cause: &DeviceError) -> DeviceError {
        DeviceError::FlushFailed {
            device: self.volume.name.clone(),
            why: cause.to_string(),
        }
    }

    fn commit_failed(&self, error: CommitError) -> DeviceError {
        match error {
            CommitError::Flush(error) => error,
            error => DeviceError::Io {
                device: self.fast.name(),
                op: Op::Write,
                span: self.health.label.borrow().ledger,
                why: format!("the map could not be committed: {error}"),
            },
        }
    }

    /// The committer's task: one commit after the other, as asked or after `commit_after`.
    pub async fn commit_loop(self: Rc<Self>, commit_after: Nanos) {
        while self.commit.due(commit_after).await {
            if !self.is_running() {
                // The round carries nothing then, and forgets what was pending.
                self.end_commits();
            }
            match self.commit.round(&self.state).await {
                Ok(false) => {
                    self.commit.wake();
                    continue;
                }
                Ok(true) => {}
                Err(error) => self.fail(self.commit_failed(error)).await,
            }
            self.commit.wake();
            self.room.notify_all();
        }
    }

    /// Nothing becomes durable any more.
    fn end_commits(&self) {
        let why = self.health.not_running().to_string();
        self.commit.fail(CommitError::Owner(why));
    }

    // --- failure ----------------------------------------------------------------------------------

    /// The fast device failed. If nothing is dirty the slow device goes on alone. Else the cleaner tries
    /// to destage what is dirty.
    pub async fn fail(&self, error: DeviceError) {
        if !self.health.evacuate(error) {
            return;
        }
        self.fills.cancel_all();
        if self.state.map().dirty() == 0 {
            self.pass("the fast device failed while nothing was dirty")
                .await;
        } else if let Err(error) = self.health.note_failing().await {
            self.die(error);
        }
        self.changed();
    }

    /// Wakes all tasks that wait for something of this cache.
    fn changed(&self) {
        match self.is_running() {
            true => self.commit.wake(),
            false => self.end_commits(),
        }
        self.room.notify_all();
        self.destaging.work.notify_all();
        self.mover.wake();
    }

    /// Cuts the tie to a failed fast device, durably, so that its contents never count again.
    pub async fn pass(&self, why: &str) {
        if self.health.pass(why).await {
            self.changed();
        }
    }

    /// The dirty data cannot be destaged.
    pub fn die(&self, error: DeviceError) {
        self.health.fail(error);
        self.changed();
    }

    /// Waits until a failing cache has become something definite. `Ok`: the slow device stands alone.
    pub async fn settled(&self) -> Result<(), DeviceError> {
        while self.health.is(Health::Evacuating) {
            self.room.wait().await;
        }
        match self.health.is(Health::Failed) {
            true => Err(self.health.not_running()),
            false => Ok(()),
        }
    }

    /// A read of the fast device failed: after a number of them in a row it is given up.
    pub fn note_read_error(self: &Rc<Self>, error: &DeviceError) {
        if self.fast.read_failed(error) {
            let (cache, error) = (Rc::clone(self), error.clone());
            // A task of its own: the reader may go away.
            env::spawn(async move { cache.fail(error).await });
        }
    }

    // --- data -------------------------------------------------------------------------------------

    /// Writes neighbouring slots from `first` on.
    pub async fn write_slots(
        &self,
        first: u32,
        data: View,
        class: Class,
    ) -> Result<(), DeviceError> {
        let wrote = || self.commit.wrote();
        self.fast.write(first, data, class, wrote).await
    }

    /// Reads neighbouring slots and checks every page; the caller is entered as a reader.
    ///
    /// # Errors
    /// As for [`FastDevice::read`].
    pub async fn read_slots(&self, first: u32, buf: Buf, class: Class) -> Result<Buf, DeviceError> {
        self.fast.read(first, buf, class, &self.state.index).await
    }

    /// One whole page from its slot.
    pub async fn read_page(&self, slot: u32, class: Class) -> Result<Buf, DeviceError> {
        self.read_slots(slot, Buf::for_read(base::PAGE), class)
            .await
    }

    // --- the map ----------------------------------------------------------------------------------

    /// Maps `page` as `entry` says, whose slot is complete.
    pub fn map_page(&self, page: u64, entry: &Entry) {
        self.state.index.borrow_mut().put(page, entry, env::now());
        self.touch(page);
    }

    /// Forgets `page` (in memory now, durably at the next commit).
    pub fn unmap_page(&self, page: u64) {
        let next = self.commit.next();
        if self.state.index.borrow_mut().remove(page, next) {
            // A copy that began while the page was here may be older than what was here.
            self.fills.cancel(page, page + 1);
            self.touch(page);
        }
    }

    /// Forgets clean pages `first..end` and copies of them that are on their way.
    pub fn forget_pages(&self, first: u64, end: u64) {
        self.cancel_copies(first, end);
        for page in first..end {
            self.unmap_page(page);
        }
    }

    /// Forgets a clean page that turned out unreadable, if it is still where it was.
    pub fn drop_bad(&self, page: u64, entry: &Entry) {
        let same = self.state.map().get(page).as_ref() == Some(entry);
        if same && !entry.dirty {
            self.outdate_copies(page, page + 1);
            self.unmap_page(page);
        }
    }

    /// Evicts clean blocks to make room for `wanted` ones: that of page `incoming` and those behind it (`None`: ahead of
    /// need). False if fewer could be evicted, as all others are dirty.
    ///
    /// A long request is written fastest to a long run of slots. So where it needs room, with the next block go unused
    /// pages beside it: no more than are missing, or a small part of the cache.
    pub fn evict(&self, incoming: Option<u64>, wanted: u32) -> bool {
        let note = |gone: &[(u64, u32)]| {
            count_in(&self.upkeep, |counts| counts.evicted += gone.len() as u64);
            for (page, _) in gone {
                self.fills.cancel(*page, page + 1);
                self.touch(*page);
            }
        };
        let small_part = self.room.frames_max() / GROUP_SHARE;
        let (mut missing, mut looks) = (wanted, if wanted < LONG { 0 } else { LOOKS });
        while missing > 0 {
            let next = self.commit.next();
            let evicted = self.state.index.borrow_mut().evict(incoming, next);
            let Some(gone) = evicted else { return false };
            note(&gone);
            missing -= 1;
            if let Some((_, slot)) = gone.first().filter(|_| looks > 0 && missing > 0) {
                looks -= 1;
                let most = missing.max(small_part.min(GROUP)) as usize;
                let mut index = self.state.index.borrow_mut();
                let beside = index.evict_beside(*slot, most, next);
                drop(index);
                note(&beside);
                missing = missing.saturating_sub(beside.len() as u32);
            }
        }
        true
    }

    /// Returns slots that were taken and never mapped nor written, or written and never mapped.
    pub fn give_back(&self, runs: &[SlotRun]) {
        {
            let mut slots = self.state.slots_mut();
            for run in runs {
                for slot in run.first..run.first + run.count {
                    slots.give_back(slot);
                }
            }
        }
        self.room.notify_all();
    }

    // --- copies under way -------------------------------------------------------------------------

    /// A mover may have copied pages `first..end` and not mapped the copies yet: those are out of date.
    fn outdate_copies(&self, first: u64, end: u64) {
        #[cfg(test)]
        if self.volume.planted(Mutation::StaleCopy) {
            return;
        }
        let slots = self.mover.changed(first, end);
        if !slots.is_empty() {
            self.give_back(&slots);
        }
    }

    /// Whatever is being copied to the fast device for pages `first..end` is out of date.
    pub fn cancel_copies(&self, first: u64, end: u64) {
        self.outdate_copies(first, end);
        self.fills.cancel(first, end);
    }

    /// A copy of pages `first..end` is to come: if the slow device was written there and not flushed since, the
    /// intent must be as durable as the copy.
    pub fn record_intents(&self, first: u64, end: u64) {
        #[cfg(test)]
        if self.volume.planted(Mutation::UnrecordedIntent) {
            return;
        }
        let next = self.commit.next();
        let mut intents = self.state.intents.borrow_mut();
        for region in first / REGION_PAGES..=(end - 1) / REGION_PAGES {
            intents.record(region, next);
        }
        if intents.any_touched() {
            self.commit.note();
        }
    }

    /// Reads sample `number` of the slow device anew and notes its fingerprint.
    pub async fn refresh_sample(&self, number: u64, page: u64) {
        // A page that cannot be read has no known fingerprint.
        let crc = sample_crc(&*self.volume.slow.device, page).await.ok();
        self.state.samples.borrow_mut().set(number, crc);
        self.commit.note();
    }
}

#[cfg(test)]
mod tests {
    use base::{Bytes, Sector};
    use device::fault::{Book, Done, Injury, Rule};
    use device::{Memory, WriteFlags};

    use super::*;
    use crate::{Hybrid, Settings, Ties};

    /// A write past the cache may rely on an intent that was durable before the fast device failed.
    #[test]
    fn a_cut_that_is_durable_is_not_refused_while_the_cache_evacuates() {
        env::Runtime::simulated(1).block_on(async {
            let book = Book::new(env::rng("faults"));
            let slow = book.wrap(Memory::new("hdd0", Bytes::mib(16)));
            let fast = book.wrap(Memory::new("ssd0", Bytes::mib(2)));
            let made = Hybrid::create(Settings::default(), slow, fast, Ties::default()).await;
            let disk = made.unwrap();
            let cache = disk.engine.live_cache().unwrap();
            let durable = cache.commit.next();
            let data = View::copy_of(&[7; base::PAGE]);
            let written = disk.write(Sector(0), data.clone(), WriteFlags::default());
            written.await.unwrap();
            disk.flush().await.unwrap();
            book.add(
                Rule::new(Injury::Delay(Nanos::secs(9)))
                    .on(&[Op::Write])
                    .device("hdd0"),
            );
            let fails = Rule::new(Injury::Error(Done::Nothing)).on(&[Op::Write]);
            book.add(fails.device("ssd0").once());
            let late = cache.commit.next();
            let user = disk.clone();
            let write = async move { user.write(Sector(8), data, WriteFlags::default()).await };
            let write = env::spawn(write);
            env::sleep(Nanos::secs(1)).await;
            assert!(cache.health.is(Health::Evacuating));
            assert_eq!(cache.commit_reached(durable).await, Ok(()));
            let refused = cache.commit_reached(late).await;
            assert!(
                matches!(refused, Err(DeviceError::FlushFailed { .. })),
                "{refused:?}"
            );
            write.await.unwrap();
            assert!(cache.health.is(Health::PassThrough));
        });
    }
}
