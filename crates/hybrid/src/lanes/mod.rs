//! A hybrid of several lanes: each is a whole hybrid of its part of both devices.
//!
//! ```text
//! request -> cut at units -> lane = unit mod L -> Hybrid: map, policy, slots, ledger, intents, restart log
//! flush   -> all lanes
//!   slow device: units dealt out to the lanes in turn      fast device: a run for each lane
//! ```
//!
//! Lanes share nothing but the two devices, so each can have a core of its own. A unit is so long (16 MiB, or an extent of a
//! tier) that a request seldom meets two lanes, and a stream stays a stream within each.
//!
//! Always true:
//! 1. One lane is a [`Hybrid`] on the bare devices: the same bytes and the same requests.
//! 2. A byte of the volume belongs to one lane for as long as the cache lives: lanes and unit are in its labels.
//! 3. A flush is complete when that of every lane is.
//! 4. The first lane's label is the first that says "attached" and the last that says "detached".

mod begin;
mod device;
mod divide;
pub(crate) mod layout;
mod share;
mod sharing;
mod status;

use std::cell::RefCell;
use std::rc::Rc;

use ::device::Device;
use ::device::shared::Joined;
use base::Bytes;
use env::sync::join_all;

use crate::attach::error::OpenError;
use crate::attach::label::Label;
#[cfg(test)]
use crate::attach::label::PAGE;
use crate::engine::{Begin, Hybrid, SetError, Ties};
use crate::settings::{Settings, WriteMode};
use crate::stats::Status;
use begin::{Before, Parts, begin_all, lanes_alone, other_lanes};
use divide::Whole;
use layout::{Layout, check_cache};
use share::lane_settings;
use sharing::{Sharing, share_out};
use status::joined;

/// A hybrid of one lane or several. See the module's head. Clones are the same disk.
///
/// # Example
/// ```
/// use base::{Bytes, Sector, View};
/// use device::{Device, DeviceExt, Memory};
/// use hybrid::{Lanes, Settings, Ties};
///
/// env::Runtime::simulated(1).block_on(async {
///     let slow = Memory::new("hdd0", Bytes::mib(64));
///     let fast = Memory::new("ssd0", Bytes::mib(40));
///     let disk = Lanes::open_or_create(2, Settings::default(), slow, fast, |_| Ties::default()).await?;
///     // Across the end of a unit: half of it goes to either lane.
///     disk.write_at(Sector::containing((16 << 20) - 4096), View::copy_of(&[7; 8192])).await?;
///     disk.flush().await?;
///     assert_eq!(disk.lanes().map(|lane| lane.status().occupancy.dirty_bytes).collect::<Vec<_>>(), [4096, 4096]);
///     assert_eq!(disk.status().occupancy.dirty_bytes, 8192);
///     Ok::<(), Box<dyn std::error::Error>>(())
/// }).unwrap();
/// ```
#[derive(Clone)]
pub struct Lanes {
    inner: Rc<Inner>,
}

struct Inner {
    // Fixed at open.
    lanes: Vec<Hybrid>,
    /// What is dealt out in turn; the whole volume where there is one lane.
    unit: Bytes,
    /// They as one device.
    disk: Rc<Joined>,
    slow: Rc<dyn Device>,
    // As it is attached and changed.
    fast: RefCell<Option<Rc<dyn Device>>>,
    settings: RefCell<Settings>,
    /// Of what is counted for all lanes together.
    sharing: Sharing,
}

impl Lanes {
    /// Opens the pair if `fast` is its cache, and makes a cache of `count` lanes on `fast` if it is blank or was detached.
    /// `ties` are those of each lane, by its number; they recover at the same time.
    ///
    /// # Errors
    /// [`OpenError::Lanes`] if the devices cannot have so many, [`OpenError::OtherLanes`] if the cache on `fast` has another
    /// number; else as [`Hybrid::open_or_create`].
    pub async fn open_or_create(
        count: u32,
        settings: Settings,
        slow: Rc<dyn Device>,
        fast: Rc<dyn Device>,
        ties: impl Fn(u32) -> Ties,
    ) -> Result<Lanes, OpenError> {
        Lanes::begin(count, Begin::OpenOrCreate, settings, slow, fast, &ties).await
    }

    /// Makes an empty cache of `count` lanes on `fast`.
    ///
    /// # Errors
    /// [`OpenError::Lanes`] if the devices cannot have so many; else as [`Hybrid::create`].
    pub async fn create(
        count: u32,
        settings: Settings,
        slow: Rc<dyn Device>,
        fast: Rc<dyn Device>,
        ties: impl Fn(u32) -> Ties,
    ) -> Result<Lanes, OpenError> {
        Lanes::begin(count, Begin::Create, settings, slow, fast, &ties).await
    }

    /// Opens a hybrid made before, warm; it has as many lanes as its cache. Where a detach was cut off it goes on from there:
    /// lanes that were detached begin empty, and the slow device has what they had.
    ///
    /// # Errors
    /// [`OpenError::LaneBlank`] where making or attaching was cut off; else as [`Hybrid::open`].
    pub async fn open(
        settings: Settings,
        slow: Rc<dyn Device>,
        fast: Rc<dyn Device>,
        ties: impl Fn(u32) -> Ties,
    ) -> Result<Lanes, OpenError> {
        let found = Label::read(&fast).await?;
        let count = found.map_or(1, |label| label.lane.lanes);
        Lanes::begin(count, Begin::Open, settings, slow, fast, &ties).await
    }

    async fn begin(
        count: u32,
        how: Begin,
        mut settings: Settings,
        slow: Rc<dyn Device>,
        fast: Rc<dyn Device>,
        ties: &dyn Fn(u32) -> Ties,
    ) -> Result<Lanes, OpenError> {
        // Before it is divided: lanes of a small device are no reason for small extents.
        settings.fit(&*fast);
        settings.check()?;
        if count == 1 {
            let (below, above) = (Rc::clone(&slow), Rc::clone(&fast));
            let begun = match how {
                Begin::Create => Hybrid::create(settings.clone(), below, above, ties(0)).await,
                Begin::Open => Hybrid::open(settings.clone(), below, above, ties(0)).await,
                Begin::OpenOrCreate => {
                    Hybrid::open_or_create(settings.clone(), below, above, ties(0)).await
                }
            };
            return Ok(Lanes::of(
                vec![begun?],
                Bytes(u64::MAX),
                settings,
                slow,
                fast,
            ));
        }
        let before = Before::of(&fast, &ties(0).abandoned).await?;
        let first = before.first.as_ref().map(|label| label.lane);
        let layout = match (before.lanes, first) {
            (Some(lane), _) if lane.lanes == count => Layout::of(lane),
            (Some(lane), _) => return Err(other_lanes(&settings, &*fast, lane.lanes, count)),
            // Nothing there counts: that is said by its lanes.
            (None, Some(lane)) if how == Begin::Open && lane.lanes == count => Layout::of(lane),
            (None, _) => Layout::fresh(count, &settings, &*slow, &*fast)?,
        };
        let parts = Parts::new(layout, &fast);
        let (lanes, asks) = lanes_alone(layout, &settings, &slow)?;
        let (name, first_ties) = (&settings.name, ties(0));
        before
            .refuse_swapped(name, &slow, &fast, &first_ties)
            .await?;
        let hows = parts.judge(&lanes, how, &before, &fast, ties).await?;
        let anew = !before.first_counts;
        if anew {
            parts.make_free().await?;
        }
        begin_all(&lanes, &hows, &parts, anew, ties).await?;
        let disk = Lanes::of(lanes, layout.unit, settings, slow, fast);
        disk.inner.share_out();
        env::spawn(share_out(Rc::downgrade(&disk.inner), asks));
        Ok(disk)
    }

    fn of(
        lanes: Vec<Hybrid>,
        unit: Bytes,
        settings: Settings,
        slow: Rc<dyn Device>,
        fast: Rc<dyn Device>,
    ) -> Lanes {
        let parts = lanes.iter().cloned();
        let parts = parts.map(|lane| Rc::new(lane) as Rc<dyn Device>).collect();
        Lanes {
            inner: Rc::new(Inner {
                disk: Joined::new(settings.name.clone(), parts, unit),
                lanes,
                unit,
                slow,
                fast: RefCell::new(Some(fast)),
                settings: RefCell::new(settings),
                sharing: Sharing::default(),
            }),
        }
    }

    /// The lanes, the first one first.
    pub fn lanes(&self) -> impl Iterator<Item = &Hybrid> {
        self.inner.lanes.iter()
    }

    /// What is dealt out to the lanes in turn: a thread that reaches each lane through a gate of its own joins them by it
    /// ([`Joined`]).
    pub fn unit(&self) -> Bytes {
        self.inner.unit
    }

    /// Which lane has byte `at`, and where.
    #[cfg(test)]
    pub(crate) fn place_of(&self, at: u64) -> (&Hybrid, u64) {
        let inner = &self.inner;
        let (lane, there) = ::device::shared::part_of(inner.unit, inner.count(), at);
        (&inner.lanes[lane as usize], there)
    }

    /// A disk of one lane, which is there already.
    #[cfg(test)]
    pub(crate) fn around(lane: Hybrid, fast: Rc<dyn Device>) -> Lanes {
        let slow = Rc::clone(&lane.engine.volume.slow.device);
        let settings = lane.settings();
        Lanes::of(vec![lane], Bytes(u64::MAX), settings, slow, fast)
    }

    /// Which page of the volume is `page` of lane number `lane`?
    #[cfg(test)]
    pub(crate) fn page_of(&self, lane: u64, page: u64) -> u64 {
        let pages = self.inner.unit.0 / PAGE;
        (page / pages * u64::from(self.inner.count()) + lane) * pages + page % pages
    }

    /// Changes the write mode alone; see [`Lanes::set`].
    ///
    /// # Errors
    /// As [`Lanes::set`].
    pub async fn set_write_mode(&self, write: WriteMode) -> Result<(), SetError> {
        let settings = Settings {
            write,
            ..self.settings()
        };
        self.set(settings).await
    }

    /// Destages all dirty data and lets the slow device stand alone, while the disk is in use.
    ///
    /// # Errors
    /// The first lane's that could not: as [`Hybrid::detach`]. Others may be detached then; ask again.
    pub async fn detach(&self) -> Result<(), OpenError> {
        let (first, others) = self.inner.lanes.split_first().expect("one lane at least");
        let answers = join_all(others.iter().map(Hybrid::detach)).await;
        // The first one last: its label says for all that there is something on the device.
        let answer = match first_error(&answers) {
            Some(error) => Err(error),
            None => first.detach().await,
        };
        if answer.is_ok() {
            self.inner.fast.replace(None);
        }
        answer
    }

    /// Puts `fast` in front of a disk that stands alone, while it is in use. An empty cache is made on it.
    ///
    /// # Errors
    /// As [`Hybrid::attach`]; lanes that were attached before another one failed stay so.
    pub async fn attach(
        &self,
        fast: Rc<dyn Device>,
        ties: impl Fn(u32) -> Ties,
    ) -> Result<(), OpenError> {
        let lanes = &self.inner.lanes;
        let count = lanes.len() as u32;
        if count == 1 {
            lanes[0].attach(Rc::clone(&fast), ties(0)).await?;
        } else {
            let settings = self.settings();
            let fresh = Layout::fresh(count, &settings, &*self.inner.slow, &*fast)?;
            let layout = Layout {
                unit: self.inner.unit,
                ..fresh
            };
            let before = Before::of(&fast, &ties(0).abandoned).await?;
            if let Some(lane) = before.lanes.filter(|lane| lane.lanes != count) {
                return Err(other_lanes(&settings, &*fast, lane.lanes, count));
            }
            let parts = Parts::new(layout, &fast);
            let (name, slow) = (&settings.name, &self.inner.slow);
            before.refuse_swapped(name, slow, &fast, &ties(0)).await?;
            parts
                .judge(lanes, Begin::Create, &before, &fast, &ties)
                .await?;
            if !before.first_counts {
                parts.make_free().await?;
            }
            // The first one first, as when a cache is made.
            lanes[0]
                .attach(Rc::clone(&parts.slices[0]), ties(0))
                .await?;
            let attached = lanes.iter().zip(&parts.slices).zip(0..).skip(1);
            let attached =
                attached.map(|((lane, slice), number)| lane.attach(Rc::clone(slice), ties(number)));
            if let Some(error) = first_error(&join_all(attached).await) {
                return Err(error);
            }
        }
        self.inner.fast.replace(Some(fast));
        Ok(())
    }

    /// Stops cleanly; see [`Hybrid::close`].
    ///
    /// # Errors
    /// The first lane's that could not; all are closed then.
    pub async fn close(&self) -> Result<(), OpenError> {
        let answers = join_all(self.lanes().map(Hybrid::close)).await;
        first_error(&answers).map_or(Ok(()), Err)
    }

    /// Lets the cache use `fast_bytes` of the fast device (`None`: all of it), an equal part for each lane.
    ///
    /// # Errors
    /// [`OpenError::Lanes`] if that is too little for so many lanes; else the first lane's that could not: as
    /// [`Hybrid::resize`]. Others may have their new size then.
    pub async fn resize(&self, fast_bytes: Option<Bytes>) -> Result<(), OpenError> {
        self.check_cache(fast_bytes)?;
        let count = self.inner.lanes.len() as u64;
        let part = fast_bytes.map(|bytes| Bytes(bytes.0 / count));
        let answers = join_all(self.lanes().map(|lane| lane.resize(part))).await;
        match first_error(&answers) {
            Some(error) => Err(error),
            None => {
                self.inner.settings.borrow_mut().fast_bytes = fast_bytes;
                Ok(())
            }
        }
    }

    /// # Errors
    /// [`OpenError::Lanes`].
    fn check_cache(&self, fast_bytes: Option<Bytes>) -> Result<(), OpenError> {
        let count = self.inner.count();
        let Some(bytes) = fast_bytes.filter(|_| count > 1) else {
            return Ok(());
        };
        check_cache(count, bytes).map_err(|why| OpenError::Lanes {
            name: self.inner.settings.borrow().name.clone(),
            asked: count,
            why: format!("{why}; give it more, or detach it and choose fewer lanes"),
        })
    }

    /// Changes the choices; see [`Hybrid::set`]. Each lane has its part of what is counted for the whole.
    ///
    /// # Errors
    /// The first lane's that could not. Others may have the new choices.
    pub async fn set(&self, mut settings: Settings) -> Result<(), SetError> {
        if let Some(fast) = &*self.inner.fast.borrow() {
            settings.fit(&**fast);
        }
        let inner = &self.inner;
        let changed = inner.lanes.iter().zip(0..).map(|(lane, number)| {
            lane.set(lane_settings(&settings, inner.count(), number, inner.unit))
        });
        let answers = join_all(changed).await;
        if let Some(error) = answers.into_iter().find_map(Result::err) {
            return Err(error);
        }
        inner.settings.replace(settings);
        inner.share_out();
        Ok(())
    }

    /// The choices in force, for all lanes together.
    pub fn settings(&self) -> Settings {
        self.inner.settings.borrow().clone()
    }

    /// What all lanes did together, and where they stand: counts are sums, the health is that of the worst.
    pub fn status(&self) -> Status {
        joined(self.lanes().map(Hybrid::status).collect())
    }

    /// Did the opening find everything that was answered before it, in every lane? See [`Hybrid::found_all`].
    pub fn found_all(&self) -> bool {
        self.lanes().all(Hybrid::found_all)
    }
}

impl Inner {
    fn count(&self) -> u32 {
        self.lanes.len() as u32
    }

    /// Divides anew what is counted for all lanes together.
    fn share_out(&self) {
        let whole = Whole::of(&self.settings.borrow());
        self.sharing.share_out(&self.lanes, whole);
    }

    fn is_closed(&self) -> bool {
        self.lanes.iter().all(|lane| lane.engine.closed.get())
    }
}

fn first_error(answers: &[Result<(), OpenError>]) -> Option<OpenError> {
    answers.iter().find_map(|answer| answer.clone().err())
}
