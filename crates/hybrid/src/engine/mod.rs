//! The hybrid disk: a [`Device`] made of a slow and a fast one.
//!
//! ```text
//! request -> gate -> read: parts from fast and slow     write: cached or past     flush: commit + slow flush
//!                     |                                   |
//!                   cache (slots, map, ledger)          slow
//! beside it, as tasks: committer, cleaner, clearing of intents, fills, the tier's
//! ```
//!
//! An operation on an open disk runs as a task of its own: a caller that goes away leaves no closed gate, and no
//! slow write under way whose pages are not locked.

mod allocation;
pub(crate) mod compare;
mod discard;
pub(crate) mod disk;
mod flush;
mod format;
mod gate;
pub(crate) mod lane;
mod late;
pub(crate) mod manage;
mod misses;
mod open;
mod parts;
mod read;
mod recover;
pub mod rescue;
mod runs;
mod setup;
mod status;
mod write;

use std::rc::Rc;

use base::{Buf, Bytes, Sector, Span, View};
use device::{Class, Device, Info, Op, Pending, Power, Spindle, WriteFlags, ready};

use crate::attach::error::OpenError;
use crate::attach::label::PAGE;
use crate::attach::made::AttachmentId;
use crate::index::page_map::{REGION_PAGES, UNIT_PAGES};
use crate::payload::Payload;
use crate::settings::{Settings, WriteMode};
use crate::slow::SlowDevice;
use crate::stats::Status;
use crate::tier::status::{heat, tier_status};
use crate::tier::{Heat, MoveRecord, Tier, TierStatus};
use allocation::allocation;
use discard::discard;
use disk::Engine;
use flush::flush;
pub(crate) use format::check_lost;
use format::format;
pub(crate) use lane::Begin;
pub use manage::SetError;
use read::read;
pub use setup::Ties;
use status::status;
use write::put;

/// One disk of the slow device's size and contents, with a fast device in front. Clone it freely: clones
/// are the same disk.
///
/// # Example
/// See [`Hybrid::create`].
#[derive(Clone)]
pub struct Hybrid {
    pub(crate) engine: Rc<Engine>,
}

impl Hybrid {
    /// Makes a hybrid disk of `slow`, whose contents stay, and `fast`, which becomes an empty cache.
    ///
    /// # Errors
    /// [`OpenError`]; nothing was written then, unless a device failed half-way.
    ///
    /// # Example
    /// ```
    /// use base::{Bytes, Sector, View};
    /// use device::{Device, DeviceExt, Memory};
    /// use hybrid::{Hybrid, Settings, Ties};
    ///
    /// env::Runtime::simulated(1).block_on(async {
    ///     let slow = Memory::new("hdd0", Bytes::mib(64));
    ///     let fast = Memory::new("ssd0", Bytes::mib(8));
    ///     let disk = Hybrid::create(Settings::default(), slow, fast, Ties::default()).await?;
    ///     disk.write_at(Sector(8), View::copy_of(&[7; 4096])).await?;
    ///     disk.flush().await?;
    ///     assert_eq!(disk.read_at(Sector(8), Bytes(4096)).await?[0], 7);
    ///     assert_eq!(disk.status().occupancy.dirty_bytes, 4096); // on the fast device only, so far
    ///     disk.detach().await?;
    ///     assert_eq!(disk.status().occupancy.dirty_bytes, 0); // the slow device has it all
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// }).unwrap();
    /// ```
    pub async fn create(
        settings: Settings,
        slow: Rc<dyn Device>,
        fast: Rc<dyn Device>,
        ties: Ties,
    ) -> Result<Hybrid, OpenError> {
        let engine = fitted(settings, slow, &*fast)?;
        format(&engine, fast, &ties).await?;
        Ok(Hybrid { engine })
    }

    /// Opens a hybrid disk made before, warm, after a clean stop or a crash.
    ///
    /// # Errors
    /// [`OpenError`]; nothing was written then.
    pub async fn open(
        settings: Settings,
        slow: Rc<dyn Device>,
        fast: Rc<dyn Device>,
        ties: Ties,
    ) -> Result<Hybrid, OpenError> {
        let engine = fitted(settings, slow, &*fast)?;
        open::open(&engine, fast, &ties).await?;
        Ok(Hybrid { engine })
    }

    /// Opens the pair if `fast` is its cache, and makes a cache on `fast` if it is blank or was detached.
    ///
    /// # Errors
    /// [`OpenError`]; with `ties.force`, what stands in the way on `fast` is destroyed instead, unless the record
    /// of pairs says that it may be the only copy.
    pub async fn open_or_create(
        settings: Settings,
        slow: Rc<dyn Device>,
        fast: Rc<dyn Device>,
        ties: Ties,
    ) -> Result<Hybrid, OpenError> {
        let engine = fitted(settings, slow, &*fast)?;
        open::open_or_create(&engine, fast, &ties).await?;
        Ok(Hybrid { engine })
    }

    /// The slow device alone, with no cache yet; see [`Hybrid::attach`].
    ///
    /// # Errors
    /// [`OpenError::Settings`].
    pub fn alone(settings: Settings, slow: Rc<dyn Device>) -> Result<Hybrid, OpenError> {
        settings.check()?;
        Ok(Hybrid {
            engine: Engine::new(settings, SlowDevice::new(slow)),
        })
    }

    /// The slow device of a disk whose cache may hold the rest and is not here: every request is refused, and `why` says so,
    /// until an empty cache is attached. The record must have forgotten the lost one by then.
    ///
    /// # Errors
    /// [`OpenError::Settings`].
    pub fn withheld(
        settings: Settings,
        slow: Rc<dyn Device>,
        why: String,
    ) -> Result<Hybrid, OpenError> {
        let disk = Hybrid::alone(settings, slow)?;
        disk.engine.withhold(Some(why));
        disk.engine.found_all.set(false);
        Ok(disk)
    }

    /// Why every request is refused; `None` if the cache is here, or none is missed.
    pub fn why_withheld(&self) -> Option<String> {
        self.engine.why_withheld()
    }

    /// Puts `fast` in front of a disk that stands alone, while it is in use. An empty cache is made on it.
    ///
    /// # Errors
    /// [`OpenError`]; the disk goes on alone then.
    pub async fn attach(&self, fast: Rc<dyn Device>, ties: Ties) -> Result<(), OpenError> {
        let engine = Rc::clone(&self.engine);
        env::spawn(async move { manage::attach(&engine, fast, ties).await }).await
    }

    /// Destages all dirty data and lets the slow device stand alone, while the disk is in use.
    /// Afterwards the slow device is a plain disk again.
    ///
    /// # Errors
    /// [`OpenError::Device`] if data could not be destaged: the pair stays together then; or if the fast
    /// device's label could not be written: nothing is dirty then, and the fast device is given up.
    pub async fn detach(&self) -> Result<(), OpenError> {
        let engine = Rc::clone(&self.engine);
        env::spawn(async move { manage::detach(&engine).await }).await
    }

    /// Stops cleanly: everything is committed, dirty data stay on the fast device, and the next start is
    /// warm. Requests that come later are refused.
    ///
    /// # Errors
    /// [`OpenError`] if the last commit failed; the disk is closed all the same.
    pub async fn close(&self) -> Result<(), OpenError> {
        let engine = Rc::clone(&self.engine);
        env::spawn(async move { manage::close(&engine).await }).await
    }

    /// Lets the cache use `fast_bytes` of the fast device (`None`: all of it), while the disk is in use.
    /// A smaller cache evicts what lies behind its new end; dirty data are destaged first.
    ///
    /// # Errors
    /// [`OpenError::TooSmall`], or a device's error; the size stays as it was then.
    pub async fn resize(&self, fast_bytes: Option<Bytes>) -> Result<(), OpenError> {
        let engine = Rc::clone(&self.engine);
        env::spawn(async move { manage::resize(&engine, fast_bytes).await }).await
    }

    /// What the disk did since it was opened and where it stands.
    pub fn status(&self) -> Status {
        status(&self.engine)
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
        let regions = self.engine.volume.slow.info.size.0.div_ceil(REGION).max(1);
        if let Some(cache) = self.engine.live_cache() {
            for (unit, pages) in (0u64..).zip(cache.state.map().residents()) {
                let part = unit * UNIT_PAGES / REGION_PAGES * parts as u64 / regions;
                residency[part as usize] += Bytes(u64::from(*pages) * PAGE);
            }
        }
        residency
    }

    /// The last intervals of the tier's statistics; `None` without a tier.
    pub fn heat(&self) -> Option<Heat> {
        self.heat_from(0)
    }

    /// As [`Hybrid::heat`], the intervals from number `first` on.
    pub fn heat_from(&self, first: u64) -> Option<Heat> {
        self.tiered().map(|tier| heat(&tier, first))
    }

    /// The log of moves from number `after` + 1 on, oldest first, as far as it is kept.
    pub fn moves(&self, after: u64) -> Vec<MoveRecord> {
        let tier = self.tiered();
        tier.map_or_else(Vec::new, |tier| tier.stats.borrow().moves(after))
    }

    /// Where the tier stands; `None` without a tier.
    pub fn tier(&self) -> Option<TierStatus> {
        self.tiered().map(|tier| tier_status(&tier))
    }

    /// The choices in force.
    pub fn settings(&self) -> Settings {
        self.engine.volume.settings.borrow().clone()
    }

    /// Changes the choices: the write mode, the policy, the block size, marks, bypass, budget, energy. A
    /// mode that keeps no dirty data is in force once none are left. The size of the fast part is
    /// [`Hybrid::resize`]'s.
    ///
    /// # Errors
    /// [`SetError`]; nothing changed then, but for a mode change whose cleaning failed.
    pub async fn set(&self, settings: Settings) -> Result<(), SetError> {
        let engine = Rc::clone(&self.engine);
        env::spawn(async move { manage::set(&engine, settings).await }).await
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

    /// Did the opening find everything that was answered before it? After the death of a process that is so only if its
    /// restart log was found and goes on from the last commit. A client that stayed may go on then, and only then.
    pub fn found_all(&self) -> bool {
        self.engine.found_all.get()
    }

    /// The tier, where there is one.
    fn tiered(&self) -> Option<Rc<Tier>> {
        let tier = self.engine.live_tier();
        tier.filter(|_| self.engine.volume.has_tier())
    }

    /// The cache that the disk has now; `None` while the slow device stands alone.
    pub fn attachment(&self) -> Option<AttachmentId> {
        let cache = self.engine.live_cache()?;
        let label = cache.health.label.borrow();
        Some(label.id())
    }
}

impl Device for Hybrid {
    fn info(&self) -> Info {
        self.engine.info()
    }

    fn read(&self, at: Sector, buf: Buf, class: Class) -> Pending<'_, Buf> {
        if let Err(error) = self.engine.check(Op::Read, at, buf.len() as u64) {
            return ready(Err(error));
        }
        Box::pin(async move {
            let _inside = self.engine.enter(Op::Read).await?;
            if buf.is_empty() {
                return Ok(buf);
            }
            read(&self.engine, at, buf, class).await
        })
    }

    fn write(&self, at: Sector, data: View, flags: WriteFlags) -> Pending<'_, ()> {
        if let Err(error) = self.engine.check(Op::Write, at, data.len() as u64) {
            return ready(Err(error));
        }
        let engine = Rc::clone(&self.engine);
        let task = env::spawn(async move {
            let _inside = engine.enter(Op::Write).await?;
            let range = at.byte()..at.byte() + data.len() as u64;
            put(&engine, range, Payload::Data(data), flags).await?;
            engine.outlives_process().await
        });
        Box::pin(task)
    }

    fn flush(&self) -> Pending<'_, ()> {
        if let Err(error) = self.engine.available(Op::Flush) {
            return ready(Err(error));
        }
        Box::pin(async move {
            let _inside = self.engine.enter(Op::Flush).await?;
            flush(&self.engine).await
        })
    }

    fn discard(&self, span: Span) -> Pending<'_, ()> {
        if let Err(error) = self.engine.check(Op::Discard, span.start, span.len.0) {
            return ready(Err(error));
        }
        let engine = Rc::clone(&self.engine);
        let task = env::spawn(async move {
            let _inside = engine.enter(Op::Discard).await?;
            discard(&engine, span).await?;
            engine.outlives_process().await
        });
        Box::pin(task)
    }

    fn write_zeroes(&self, span: Span, flags: WriteFlags) -> Pending<'_, ()> {
        if let Err(error) = self.engine.check(Op::WriteZeroes, span.start, span.len.0) {
            return ready(Err(error));
        }
        let engine = Rc::clone(&self.engine);
        let task = env::spawn(async move {
            let _inside = engine.enter(Op::WriteZeroes).await?;
            let range = span.start.byte()..span.end().byte();
            put(&engine, range, Payload::Zeroes, flags).await?;
            engine.outlives_process().await
        });
        Box::pin(task)
    }

    /// As the slow device says, but a region with dirty pages holds data.
    fn allocation(&self, span: Span) -> Pending<'_, Vec<(u64, bool)>> {
        if let Err(error) = self.engine.check(Op::Read, span.start, span.len.0) {
            return ready(Err(error));
        }
        Box::pin(async move {
            let _inside = self.engine.enter(Op::Read).await?;
            allocation(&self.engine, span).await
        })
    }

    fn power(&self) -> Option<Power> {
        let slow = self.engine.volume.slow.device.power();
        let tier = self.engine.tier();
        let fast = tier.and_then(|tier| tier.cache.fast.device.power());
        match (slow, fast) {
            (Some(slow), Some(fast)) => Some(Power {
                joules: slow.joules + fast.joules,
                ..slow
            }),
            (slow, fast) => slow.or(fast),
        }
    }

    fn prepare_sleep(&self) -> Pending<'_, ()> {
        self.engine.volume.slow.device.prepare_sleep()
    }

    fn spindle(&self) -> Option<Spindle> {
        self.engine.volume.slow.device.spindle()
    }

    fn standby(&self) -> bool {
        self.engine.volume.slow.device.standby()
    }

    fn in_flight(&self) -> usize {
        self.engine.inside() as usize
    }
}

/// The engine over the slow device alone, with settings that fit `fast`.
fn fitted(
    mut settings: Settings,
    slow: Rc<dyn Device>,
    fast: &dyn Device,
) -> Result<Rc<Engine>, OpenError> {
    settings.fit(fast);
    settings.check()?;
    Ok(Engine::new(settings, SlowDevice::new(slow)))
}
