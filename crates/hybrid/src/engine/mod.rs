//! The hybrid disk: a [`Device`] made of a slow and a fast one.
//!
//! ```text
//! request -> gate -> read: parts from fast and slow     write: cached or past     flush: commit + slow flush
//!                     |                                   |
//!                   cache (slots, map, ledger)          slow
//! beside it, as tasks: committer, cleaner, clearing of intents, fills
//! ```

pub(crate) mod compare;
pub(crate) mod open;
pub(crate) mod read;
pub mod rescue;
pub(crate) mod write;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::{Buf, Bytes, Nanos, Sector, Span, View};
use device::{Class, Device, DeviceError, Info, Op, Pending, Power, WriteFlags, ready};
use env::sync::Event;
use policy::cache::admission::{
    Admission as Reads, FlashBudget, Reads as Rule, StreamPosition, Streams,
};

use crate::attach::error::OpenError;
use crate::attach::label::PAGE;
use crate::attach::pair::Pair;
use crate::cache::{Cache, Condition};
use crate::engine::compare::Recent;
use crate::index::locks::PageLocks;
use crate::index::page_map::{REGION_PAGES, UNIT_PAGES};
use crate::settings::{Admission, Settings, SettingsError, WriteMode};
use crate::slow::Slow;
use crate::stats::{Counters, Health, NanosOf, Status};
use crate::tier::{Heat, MoveRecord, TierStatus};

/// Sequential streams followed at once.
const STREAMS: u32 = 128;
/// Missed reads remembered: one for so many blocks of the cache, and at least so many.
const SEEN_PART: u64 = 8;
const SEEN_LEAST: u64 = 1024;

/// Lets management operations wait until no request is under way.
#[derive(Default)]
struct Gate {
    closed: Cell<bool>,
    inside: Cell<u64>,
    changed: Event,
}

struct Inside<'a>(&'a Gate);

impl Gate {
    async fn enter(&self) -> Inside<'_> {
        while self.closed.get() {
            self.changed.wait().await;
        }
        self.inside.set(self.inside.get() + 1);
        Inside(self)
    }

    /// Keeps new requests waiting and waits for those under way.
    async fn close(&self) {
        while self.closed.replace(true) {
            self.changed.wait().await;
        }
        while self.inside.get() > 0 {
            self.changed.wait().await;
        }
    }

    fn open(&self) {
        self.closed.set(false);
        self.changed.notify_all();
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.inside.set(self.0.inside.get() - 1);
        if self.0.closed.get() && self.0.inside.get() == 0 {
            self.0.changed.notify_all();
        }
    }
}

/// What the last start found.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Recovered {
    pub pages: u64,
    pub dropped: u64,
    pub took: Nanos,
}

pub(crate) struct Inner {
    // Fixed.
    pub name: String,
    pub slow: Rc<Slow>,
    pub locks: Rc<PageLocks>,
    // What an administrator may change.
    pub settings: RefCell<Settings>,
    pub cache: RefCell<Option<Rc<Cache>>>,
    pub why_alone: RefCell<String>,
    pub closed: Cell<bool>,
    gate: Gate,
    /// Management operations go one at a time.
    pub managing: Cell<bool>,
    /// What a close fingerprints beside the sampled pages.
    pub recent: RefCell<Recent>,
    // Decisions beside the policy.
    streams: RefCell<Streams>,
    budget: RefCell<FlashBudget>,
    reads: RefCell<Reads>,
    // Counters.
    pub counters: Counters,
    pub recovered: Cell<Recovered>,
}

/// One disk of the slow device's size and contents, with a fast device in front. Clone it freely: clones
/// are the same disk.
///
/// # Example
/// See [`Hybrid::create`].
#[derive(Clone)]
pub struct Hybrid {
    pub(crate) inner: Rc<Inner>,
}

impl Inner {
    pub fn new(settings: Settings, slow: Rc<Slow>) -> Rc<Inner> {
        let inner = Inner {
            name: settings.name.clone(),
            slow,
            locks: Rc::default(),
            streams: RefCell::new(Streams::new(STREAMS, settings.sequential_bypass)),
            budget: RefCell::new(FlashBudget::new(settings.flash_writes_per_day, env::now())),
            reads: RefCell::new(Reads::new(Rule::Always, 0)),
            settings: RefCell::new(settings),
            cache: RefCell::new(None),
            why_alone: RefCell::new("no fast device is attached".to_owned()),
            closed: Cell::new(false),
            gate: Gate::default(),
            managing: Cell::new(false),
            recent: RefCell::default(),
            counters: Counters::default(),
            recovered: Cell::default(),
        };
        Rc::new(inner)
    }

    /// The cache as a reader or a flush sees it: none once the slow device stands alone.
    pub fn live_cache(&self) -> Option<Rc<Cache>> {
        let cache = self.cache.borrow();
        let cache = cache.as_ref()?;
        let passing = matches!(*cache.condition.borrow(), Condition::PassThrough(_));
        (!passing).then(|| Rc::clone(cache))
    }

    /// The cache as a writer sees it: a failing one is waited for until it is something definite.
    pub async fn write_cache(&self) -> Result<Option<Rc<Cache>>, DeviceError> {
        let Some(cache) = self.live_cache() else {
            return Ok(None);
        };
        cache.settled().await?;
        Ok(cache.is_running().then_some(cache))
    }

    pub fn observe_stream(&self, at: u64, len: u64) -> StreamPosition {
        self.streams.borrow_mut().see(Span::bytes(at, len))
    }

    /// May `bytes` be written to the fast device today? Takes them off the budget if so.
    pub fn flash_budget_allows(&self, bytes: Bytes) -> bool {
        self.budget.borrow_mut().admit(env::now(), bytes)
    }

    /// Is a read miss of block `key` worth a copy? `remembered`: the policy has seen it lately.
    pub fn admits_read(&self, key: u64, remembered: bool) -> bool {
        self.reads.borrow_mut().read(key, remembered)
    }

    /// Memory of missed reads, for a cache of `slots` slots.
    pub fn remember_reads(&self, slots: u32) {
        let settings = self.settings.borrow();
        let rule = match settings.admission {
            Admission::Always => Rule::Always,
            Admission::SecondAccess => Rule::OnSecondAccess,
        };
        let blocks = u64::from(slots) / (settings.block.0 / PAGE);
        let keys = (blocks / SEEN_PART).max(SEEN_LEAST) as u32;
        *self.reads.borrow_mut() = Reads::new(rule, keys);
    }

    /// Keeps new requests waiting and waits for those under way; open with [`Inner::open_gate`].
    pub async fn close_gate(&self) {
        self.gate.close().await;
    }

    /// Waits until requests may go in; those that waited while the disk was shut down are refused.
    async fn enter(&self, op: Op) -> Result<Inside<'_>, DeviceError> {
        let inside = self.gate.enter().await;
        if self.closed.get() {
            return Err(self.gone(op));
        }
        Ok(inside)
    }

    pub fn open_gate(&self) {
        if let Some(cache) = &*self.cache.borrow() {
            cache.no_fills.set(false);
        }
        self.gate.open();
    }

    /// Takes over changed settings.
    pub fn apply(self: &Rc<Self>, settings: Settings) {
        let old = self.settings.replace(settings.clone());
        if old.sequential_bypass != settings.sequential_bypass {
            *self.streams.borrow_mut() = Streams::new(STREAMS, settings.sequential_bypass);
        }
        if old.flash_writes_per_day != settings.flash_writes_per_day {
            *self.budget.borrow_mut() = FlashBudget::new(settings.flash_writes_per_day, env::now());
        }
        if let Some(cache) = &*self.cache.borrow() {
            if (old.admission, old.block) != (settings.admission, settings.block) {
                self.remember_reads(cache.slots.borrow().total());
            }
            if (old.policy, old.block) != (settings.policy, settings.block) {
                let grain = settings.block.0 / PAGE;
                cache.map.borrow_mut().set_grain(settings.policy, grain);
                cache.set_room(cache.slots.borrow().total(), grain);
            }
            self.apply_tier(cache, &old);
            cache.clean_work.notify_all();
        }
    }

    fn gone(&self, op: Op) -> DeviceError {
        DeviceError::Gone {
            device: self.name.clone(),
            op,
            why: "it was shut down".to_owned(),
        }
    }

    fn check(&self, op: Op, at: Sector, len: u64) -> Result<(), DeviceError> {
        if self.closed.get() {
            return Err(self.gone(op));
        }
        // The slow device has our size. Its error would name it instead of us: only then is ours made.
        match self.slow.info.check(op, at, len) {
            Ok(()) => Ok(()),
            Err(_) => self.info().check(op, at, len),
        }
    }

    fn info(&self) -> Info {
        let slow = &self.slow.info;
        Info {
            name: self.name.clone(),
            size: slow.size,
            physical_block: Bytes(PAGE),
            max_io: Bytes::mib(32),
            volatile_cache: true,
            discards: slow.discards,
            rotational: false,
            read_only: slow.read_only,
        }
    }

    pub fn status(&self) -> Status {
        let settings = self.settings.borrow();
        let mut status = Status {
            name: self.name.clone(),
            write_mode: settings.write.to_string(),
            policy: settings.policy.to_string(),
            block_bytes: settings.block.0,
            size_bytes: self.slow.info.size.0,
            slow_bytes_read: self.slow.bytes_read.get(),
            slow_bytes_written: self.slow.bytes_written.get(),
            slow_asleep: self.slow.asleep(),
            recovered_pages: self.recovered.get().pages,
            recovered_dropped: self.recovered.get().dropped,
            recovery: NanosOf(self.recovered.get().took),
            ..Status::default()
        };
        self.counters.fill_in(&mut status);
        match &*self.cache.borrow() {
            None => {
                status.health = Health::PassThrough;
                status.why = self.why_alone.borrow().clone();
            }
            Some(cache) => cache_status(cache, &mut status),
        }
        if let Some(why) = self.slow.failure() {
            status.health = Health::Failed;
            status.why = format!("a flush of the slow device failed: {why}");
        }
        if self.closed.get() {
            status.health = Health::Closed;
        }
        status
    }
}

fn cache_status(cache: &Cache, status: &mut Status) {
    (status.health, status.why) = match &*cache.condition.borrow() {
        Condition::Running => running_health(cache),
        Condition::Evacuating(error) => (Health::Evacuating, error.to_string()),
        Condition::PassThrough(why) => (Health::PassThrough, why.clone()),
        Condition::Failed(error) => (Health::Failed, error.to_string()),
    };
    let map = cache.map.borrow();
    let counts = &cache.counts;
    let ledger = cache.ledger.figures();
    status.cache_bytes = u64::from(cache.slots.borrow().total()) * PAGE;
    status.cached_bytes = u64::from(map.resident()) * PAGE;
    status.dirty_bytes = u64::from(map.dirty()) * PAGE;
    status.unreadable_dirty_bytes = cache.trouble.unreadable_dirty(&map).len() as u64 * PAGE;
    status.clean_failures = cache.trouble.failed_rounds();
    status.dirty_age_ns = map
        .oldest_dirty()
        .map_or(0, |oldest| env::now().since(oldest).0);
    status.marked_regions = cache.intents.borrow().len() as u64;
    let requests = &cache.tier.counts;
    status.user_requests = requests.requests.get();
    status.home_requests = requests.hit_requests.get();
    status.buffer_requests = requests.buffer_requests.get();
    status.dirty_write_requests = requests.dirty_write_requests.get();
    status.fast_bytes_read = counts.fast_bytes_read.get();
    status.fast_bytes_written = counts.fast_bytes_written.get();
    status.fast_data_writes = counts.data_writes.get();
    status.fills = counts.fills.get();
    status.fills_dropped = counts.fills_dropped.get();
    status.evicted = counts.evicted.get();
    status.bytes_cleaned = counts.bytes_cleaned.get();
    status.clean_rounds = counts.clean_batches.get();
    status.waits_for_room = counts.waits_for_room.get();
    status.bad_checksums = counts.bad_checksums.get();
    status.commits = counts.commits.get();
    status.ledger_bytes_written = ledger.bytes_written;
    status.ledger_writes = ledger.device_writes;
    status.ledger_used_bytes = ledger.log_used;
    status.ledger_size_bytes = ledger.log_size;
    status.memory_bytes = (map.memory() + cache.tier.published.memory()) as u64;
}

/// A cache that works is healthy unless something wants attention.
fn running_health(cache: &Cache) -> (Health, String) {
    let clean_error = cache.clean_error.borrow();
    let words = cache
        .trouble
        .words(&cache.map.borrow(), clean_error.as_ref());
    match words {
        None => (Health::Healthy, String::new()),
        Some(why) => (Health::Degraded, why),
    }
}

impl Hybrid {
    /// What the disk did since it was opened and where it stands.
    pub fn status(&self) -> Status {
        self.inner.status()
    }

    /// Where in the volume the cached data lie: it is cut in `parts` of one length, and for each the answer
    /// has the bytes that the fast device holds of it, in whole pieces of 4 MiB (a piece across a cut counts
    /// for the part it begins in).
    ///
    /// # Example
    /// ```
    /// use base::{Bytes, Sector, View};
    /// use device::{DeviceExt, Memory};
    /// use hybrid::{Hybrid, Settings, Ties};
    ///
    /// env::Runtime::simulated(1).block_on(async {
    ///     let (slow, fast) = (Memory::new("hdd0", Bytes::mib(64)), Memory::new("ssd0", Bytes::mib(8)));
    ///     let disk = Hybrid::create(Settings::default(), slow, fast, Ties::default()).await?;
    ///     disk.write_at(Sector::containing(40 << 20), View::copy_of(&[7; 8192])).await?;
    ///     assert_eq!(disk.residency(4), [0, 0, 8192, 0].map(Bytes));
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// }).unwrap();
    /// ```
    pub fn residency(&self, parts: usize) -> Vec<Bytes> {
        const REGION: u64 = REGION_PAGES * PAGE;
        let mut residency = vec![Bytes(0); parts];
        let regions = self.inner.slow.info.size.0.div_ceil(REGION).max(1);
        if let Some(cache) = self.inner.live_cache() {
            for (unit, pages) in (0u64..).zip(cache.map.borrow().residents()) {
                let part = unit * UNIT_PAGES / REGION_PAGES * parts as u64 / regions;
                residency[part as usize] += Bytes(u64::from(*pages) * PAGE);
            }
        }
        residency
    }

    /// The last intervals of the tier's statistics; `None` without a tier.
    pub fn heat(&self) -> Option<Heat> {
        self.inner.heat(0)
    }

    /// As [`Hybrid::heat`], the intervals from number `first` on.
    pub fn heat_from(&self, first: u64) -> Option<Heat> {
        self.inner.heat(first)
    }

    /// The log of moves from number `after` + 1 on, oldest first, as far as it is kept.
    pub fn moves(&self, after: u64) -> Vec<MoveRecord> {
        self.inner.moves(after)
    }

    /// Where the tier stands; `None` without a tier.
    pub fn tier(&self) -> Option<TierStatus> {
        self.inner.tier_status()
    }

    /// The choices in force.
    pub fn settings(&self) -> Settings {
        self.inner.settings.borrow().clone()
    }

    /// Changes the choices: the write mode, the policy, the block size, marks, bypass, budget, energy. A
    /// mode that keeps no dirty data is in force once none are left. The size of the fast part is
    /// [`Hybrid::resize`]'s.
    ///
    /// # Errors
    /// [`SetError`]; nothing changed then, but for a mode change whose cleaning failed.
    pub async fn set(&self, settings: Settings) -> Result<(), SetError> {
        let disk = self.clone();
        env::spawn(async move { disk.set_whole(settings).await }).await
    }

    async fn set_whole(&self, settings: Settings) -> Result<(), SetError> {
        settings.check()?;
        let _managing = self.manage("change the settings of")?;
        let inner = &self.inner;
        let old = self.settings();
        let mut settings = Settings {
            name: old.name.clone(),
            fast_bytes: old.fast_bytes,
            ..settings
        };
        // What was not asked for stays as it is.
        settings.tier.extent = settings.tier.extent.or_else(|| {
            let extent = old.tier.extent?;
            Some(extent.min(settings.tier.region))
        });
        let cache = inner.live_cache();
        if let Some(cache) = &cache {
            inner.check_block_for(cache, settings.block)?;
        }
        let clean_first = old.write.keeps_dirty() && !settings.write.keeps_dirty();
        // No move goes on under other choices than those it began with.
        let other_moves = (settings.mode, &settings.tier) != (old.mode, &old.tier);
        let _halt = match &cache {
            Some(cache) if clean_first || other_moves => Some(inner.halt_moves(cache).await),
            _ => None,
        };
        if let Some(cache) = cache.as_ref().filter(|_| settings.write.keeps_dirty()) {
            let pair = cache.pair.now();
            inner.note_pair(
                cache,
                Pair {
                    dirty: true,
                    ..pair
                },
            )?;
        }
        inner.apply(settings);
        let Some(cache) = cache.filter(|_| clean_first) else {
            return Ok(());
        };
        // Most of it while users go on; then hold them up for the rest, or it might never end.
        inner.destage_most(&cache).await?;
        inner.close_gate().await;
        let answer = inner.destage_all(&cache).await;
        if answer.is_ok() && cache.is_running() {
            let pair = cache.pair.now();
            // Said too much, at worst.
            if let Err(error) = inner.note_pair(
                &cache,
                Pair {
                    dirty: false,
                    ..pair
                },
            ) {
                tracing::warn!(volume = %inner.name, %error, "the record still says dirty");
            }
        }
        inner.open_gate();
        Ok(answer?)
    }

    /// Changes the write mode alone; see [`Hybrid::set`].
    ///
    /// # Errors
    /// As [`Hybrid::set`].
    pub async fn set_write_mode(&self, write: WriteMode) -> Result<(), SetError> {
        let settings = Settings {
            write,
            ..self.settings()
        };
        self.set(settings).await
    }
}

/// Why a change of settings was refused or not carried through.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SetError {
    /// The choice makes no sense.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// Another management operation is under way, or the choice does not fit the cache.
    #[error(transparent)]
    Refused(#[from] OpenError),
    /// A device failed while dirty data were being destaged.
    #[error("the new settings are in force, but dirty data could not all be destaged: {0}")]
    Cleaning(#[from] DeviceError),
}

impl Device for Hybrid {
    fn info(&self) -> Info {
        self.inner.info()
    }

    fn read(&self, at: Sector, buf: Buf, class: Class) -> Pending<'_, Buf> {
        if let Err(error) = self.inner.check(Op::Read, at, buf.len() as u64) {
            return ready(Err(error));
        }
        Box::pin(async move {
            let _inside = self.inner.enter(Op::Read).await?;
            if buf.is_empty() {
                return Ok(buf);
            }
            self.inner.read(at, buf, class).await
        })
    }

    fn write(&self, at: Sector, data: View, flags: WriteFlags) -> Pending<'_, ()> {
        if let Err(error) = self.inner.check(Op::Write, at, data.len() as u64) {
            return ready(Err(error));
        }
        let inner = Rc::clone(&self.inner);
        let task = env::spawn(async move {
            let _inside = inner.enter(Op::Write).await?;
            Rc::clone(&inner).write(at, data, flags).await
        });
        Box::pin(task)
    }

    fn flush(&self) -> Pending<'_, ()> {
        if self.inner.closed.get() {
            return ready(Err(self.inner.gone(Op::Flush)));
        }
        Box::pin(async move {
            let _inside = self.inner.enter(Op::Flush).await?;
            self.inner.flush().await
        })
    }

    fn discard(&self, span: Span) -> Pending<'_, ()> {
        if let Err(error) = self.inner.check(Op::Discard, span.start, span.len.0) {
            return ready(Err(error));
        }
        let inner = Rc::clone(&self.inner);
        let task = env::spawn(async move {
            let _inside = inner.enter(Op::Discard).await?;
            Rc::clone(&inner).discard(span).await
        });
        Box::pin(task)
    }

    fn write_zeroes(&self, span: Span, flags: WriteFlags) -> Pending<'_, ()> {
        if let Err(error) = self.inner.check(Op::WriteZeroes, span.start, span.len.0) {
            return ready(Err(error));
        }
        let inner = Rc::clone(&self.inner);
        let task = env::spawn(async move {
            let _inside = inner.enter(Op::WriteZeroes).await?;
            Rc::clone(&inner).write_zeroes(span, flags).await
        });
        Box::pin(task)
    }

    /// As the slow device says, but a region with dirty pages holds data.
    fn allocation(&self, span: Span) -> Pending<'_, Vec<(u64, bool)>> {
        if let Err(error) = self.inner.check(Op::Read, span.start, span.len.0) {
            return ready(Err(error));
        }
        Box::pin(async move {
            let _inside = self.inner.enter(Op::Read).await?;
            // What is in a temporary buffer is on neither device.
            self.inner.drain_buffer().await?;
            let below = self.inner.slow.device.allocation(span).await?;
            let Some(cache) = self.inner.live_cache() else {
                return Ok(below);
            };
            let map = cache.map.borrow();
            Ok(with_dirty(span.start.byte(), below, |region| {
                map.dirty_regions(region).next().map(|(region, _)| region)
            }))
        })
    }

    fn power(&self) -> Option<Power> {
        let slow = self.inner.slow.device.power();
        let fast = self
            .inner
            .cache
            .borrow()
            .as_ref()
            .and_then(|cache| cache.fast.power());
        match (slow, fast) {
            (Some(slow), Some(fast)) => Some(Power {
                joules: slow.joules + fast.joules,
                ..slow
            }),
            (slow, fast) => slow.or(fast),
        }
    }

    fn standby(&self) -> bool {
        self.inner.slow.device.standby()
    }

    fn in_flight(&self) -> usize {
        self.inner.gate.inside.get() as usize
    }
}

/// Turns holes that touch a dirty region into data there. `next_dirty(region)` returns the first dirty
/// region from `region` on.
fn with_dirty(
    start: u64,
    below: Vec<(u64, bool)>,
    next_dirty: impl Fn(u64) -> Option<u64>,
) -> Vec<(u64, bool)> {
    const REGION: u64 = REGION_PAGES * PAGE;
    let mut pieces: Vec<(u64, bool)> = Vec::new();
    let mut push = |len: u64, data: bool| match pieces.last_mut() {
        Some((so_far, same)) if *same == data => *so_far += len,
        _ if len == 0 => {}
        _ => pieces.push((len, data)),
    };
    let mut at = start;
    for (len, data) in below {
        let end = at + len;
        if data {
            push(len, true);
            at = end;
        }
        while at < end {
            let dirty_at = next_dirty(at / REGION).map_or(u64::MAX, |region| region * REGION);
            let hole_end = dirty_at.clamp(at, end);
            push(hole_end - at, false);
            let data_end = dirty_at.saturating_add(REGION).clamp(hole_end, end);
            push(data_end - hole_end, true);
            at = data_end;
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hole_with_dirty_data_is_data_there() {
        const M: u64 = 1 << 20;
        let dirty = |region: u64| [2, 3, 9].into_iter().find(|dirty| *dirty >= region);
        // A hole of 40 MiB; regions 2, 3 (8..16 MiB) and 9 (36..40 MiB) are dirty.
        assert_eq!(
            with_dirty(0, vec![(40 * M, false)], dirty),
            [
                (8 * M, false),
                (8 * M, true),
                (20 * M, false),
                (4 * M, true)
            ]
        );
        assert_eq!(
            with_dirty(10 * M, vec![(2 * M, false)], dirty),
            [(2 * M, true)]
        );
        assert_eq!(
            with_dirty(0, vec![(4 * M, true), (4 * M, false)], dirty),
            [(4 * M, true), (4 * M, false)]
        );
    }
}
