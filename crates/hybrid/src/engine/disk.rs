//! One hybrid disk: its volume, what is attached to it, and whether requests may go in.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use base::{Bytes, Sector};
use device::{DeviceError, Info, Op};

use super::gate::{Gate, Inside};
use crate::attach::label::PAGE;
use crate::cache::Cache;
use crate::interpose::Overlay;
#[cfg(test)]
use crate::mutation::Mutation;
use crate::settings::{Mover, Settings};
use crate::slow::SlowDevice;
use crate::stats::{Health, Recovered};
use crate::tier::Tier;
use crate::volume::Volume;

/// One disk, whether or not a fast device is attached.
pub(crate) struct Engine {
    pub volume: Rc<Volume>,
    /// The attached fast device with all that goes on there.
    tier: RefCell<Option<Rc<Tier>>>,
    /// Why there is none.
    pub why_alone: RefCell<String>,
    pub closed: Cell<bool>,
    /// Why nothing may be read or written: the cache that has the rest is not here.
    withheld: RefCell<Option<String>>,
    gate: Gate,
    /// Management operations go one at a time.
    pub managing: Cell<bool>,
    pub recovered: Cell<Recovered>,
    /// Did the opening find all that was answered before?
    pub found_all: Cell<bool>,
}

impl Engine {
    /// The slow device `slow` alone.
    pub fn new(settings: Settings, slow: SlowDevice) -> Rc<Engine> {
        Rc::new(Engine {
            volume: Volume::new(settings, slow),
            tier: RefCell::new(None),
            why_alone: RefCell::new("no fast device is attached".to_owned()),
            closed: Cell::new(false),
            withheld: RefCell::default(),
            gate: Gate::default(),
            managing: Cell::new(false),
            recovered: Cell::default(),
            found_all: Cell::new(true),
        })
    }

    // --- what is attached -------------------------------------------------------------------------

    /// What is attached, in whatever state it is.
    pub fn tier(&self) -> Option<Rc<Tier>> {
        self.tier.borrow().clone()
    }

    /// Attaches `tier`, or nothing; returns what was attached before.
    pub fn attach(&self, tier: Option<Rc<Tier>>) -> Option<Rc<Tier>> {
        self.tier.replace(tier)
    }

    /// The tier as a reader or a flush sees it: none once the slow device stands alone.
    pub fn live_tier(&self) -> Option<Rc<Tier>> {
        let passing = |tier: &Rc<Tier>| tier.cache.health.is(Health::PassThrough);
        self.tier().filter(|tier| !passing(tier))
    }

    /// Its cache.
    pub fn live_cache(&self) -> Option<Rc<Cache>> {
        self.live_tier().map(|tier| Rc::clone(&tier.cache))
    }

    /// The tier as a writer sees it: a failing one is waited for until it is something definite.
    ///
    /// # Errors
    /// The fast device failed with the only copy of something.
    pub async fn write_tier(&self) -> Result<Option<Rc<Tier>>, DeviceError> {
        let Some(tier) = self.live_tier() else {
            return Ok(None);
        };
        tier.cache.settled().await?;
        Ok(tier.cache.is_running().then_some(tier))
    }

    /// Waits until what was changed so far outlives the process, where the disk keeps that.
    ///
    /// # Errors
    /// The fast device failed with the only copy of something.
    pub async fn outlives_process(&self) -> Result<(), DeviceError> {
        match self.live_cache() {
            Some(cache) => outlives_process(&cache).await,
            None => Ok(()),
        }
    }

    /// What a mover holds of `range`, whatever became of the fast device.
    pub fn overlay(&self, range: &Range<u64>) -> Option<Overlay> {
        let tier = self.tier.borrow();
        tier.as_ref()?.cache.mover.read(range)
    }

    /// `range` was written, and not to a mover: what that holds of it is out of date.
    pub fn written(&self, range: &Range<u64>) {
        if let Some(tier) = &*self.tier.borrow() {
            tier.cache.mover.written(range.clone());
        }
    }

    // --- the gate ---------------------------------------------------------------------------------

    /// Keeps new requests waiting and waits for those under way; open with [`Engine::open_gate`].
    pub async fn close_gate(&self) {
        self.gate.close().await;
    }

    /// Lets requests and fills go on.
    pub fn open_gate(&self) {
        if let Some(tier) = &*self.tier.borrow() {
            tier.cache.fills.pause(false);
        }
        self.gate.open();
    }

    /// Waits until requests may go in; those that waited while the disk was shut down are refused.
    ///
    /// # Errors
    /// It was shut down.
    pub async fn enter(&self, op: Op) -> Result<Inside<'_>, DeviceError> {
        let inside = self.gate.enter().await;
        self.available(op)?;
        Ok(inside)
    }

    /// Requests under way.
    pub fn inside(&self) -> u64 {
        self.gate.inside()
    }

    /// Does it answer requests at all?
    ///
    /// # Errors
    /// It was shut down, or its cache is not here.
    pub fn available(&self, op: Op) -> Result<(), DeviceError> {
        let why = match self.closed.get() {
            true => "it was shut down".to_owned(),
            false => match self.why_withheld() {
                Some(why) => why,
                None => return Ok(()),
            },
        };
        Err(DeviceError::Gone {
            device: self.volume.name.clone(),
            op,
            why,
        })
    }

    /// Why requests are refused, if they are because the cache is not here.
    pub fn why_withheld(&self) -> Option<String> {
        self.withheld.borrow().clone()
    }

    /// Refuses requests from now on, or answers them again.
    pub fn withhold(&self, why: Option<String>) {
        *self.withheld.borrow_mut() = why;
    }

    /// May `op` go to `len` bytes from `at` on?
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, op: Op, at: Sector, len: u64) -> Result<(), DeviceError> {
        self.available(op)?;
        // The slow device has our size. Its error would name it instead of us: only then is ours made.
        match self.volume.slow.info.check(op, at, len) {
            Ok(()) => Ok(()),
            Err(_) => self.info().check(op, at, len),
        }
    }

    /// Does what was changed between two commits outlive the process?
    pub fn keeps_changes(&self) -> bool {
        let settings = self.volume.settings.borrow();
        // Not promised with a published mover: its buffer may be in memory.
        let buffered = settings.mode.has_tier() && settings.tier.mover == Mover::Published;
        let cache = self.live_cache();
        let kept = cache
            .is_none_or(|cache| cache.state.has_log() && cache.fast.device.info().crash_keeping);
        kept && !buffered
    }

    /// The disk as a device.
    pub fn info(&self) -> Info {
        let slow = &self.volume.slow.info;
        Info {
            name: self.volume.name.clone(),
            size: slow.size,
            physical_block: Bytes(PAGE),
            max_io: Bytes::mib(32),
            volatile_cache: true,
            discards: slow.discards,
            rotational: false,
            read_only: slow.read_only,
            crash_keeping: slow.crash_keeping && self.keeps_changes(),
        }
    }
}

/// Waits until everything changed before this call outlives the process, where there is a restart log.
///
/// # Errors
/// The fast device failed with the only copy of something.
async fn outlives_process(cache: &Cache) -> Result<(), DeviceError> {
    if !cache.state.has_log() {
        return Ok(());
    }
    #[cfg(test)]
    if cache.volume.planted(Mutation::AnsweredBeforeLog) {
        return Ok(());
    }
    if cache.is_running() {
        let missing = cache.state.log();
        if cache.state.is_filling() {
            cache.commit.want();
        }
        match missing {
            None => return Ok(()),
            Some(cut) => match cache.commit_reached(cut).await {
                Err(error) if cache.is_running() => return Err(error),
                Err(_) => {}
                Ok(()) => return Ok(()),
            },
        }
    }
    // What is dirty goes to the slow device, where it outlives the process.
    cache.settled().await
}
