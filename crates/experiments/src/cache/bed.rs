//! What is measured: bare devices and caches made of modelled ones.
//!
//! ```text
//! Setup (which disk, which engine) --seed--> Bed: one Device to use, the models below it to meter
//! ```
//!
//! Source: DMSSD 6.1, table 1. The SSD is the Intel X25-E, the SLC disk of 32 GB of its day.

use std::rc::Rc;

use base::{Buf, Bytes, Nanos, Sector};
use device::model::{ModelDisk, Spec, SpecError, Store};
use device::{Class, Device, DeviceError, Power};
use hybrid::{Admission, Energy, Hybrid, Mode, Settings, Ties};

use super::trouble::Trouble;
use crate::experiment::hollow::Hollow;
use published::dmssd::Dmssd;

/// The program's own choice of when a disk in energy mode sleeps.
pub const STANDBY_AFTER: Nanos = Nanos::secs(60);
/// The program's own limit on the age of dirty data in energy mode.
const AGE_LIMIT: Nanos = Nanos::secs(30 * 60);

/// More places than a disk of ours keeps in its buffer.
const ELSEWHERE: u64 = 16;

/// The hard disks of the paper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disk {
    /// 2.5 inches, 160 GB, 5,400 rpm.
    Mobile,
    /// 3.5 inches, 250 GB, 7,200 rpm.
    Desktop,
}

impl Disk {
    fn model(self) -> &'static str {
        match self {
            Disk::Mobile => "hdd-5400-mobile",
            Disk::Desktop => "hdd-7200-sata",
        }
    }
}

/// What stands before the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// Nothing: the disk itself.
    Bare,
    /// Nothing; the disk goes to sleep by its own timer, after so many seconds.
    Timer(u64),
    /// The published cache.
    Published,
    /// Ours, with every read admitted and no bypass, as the published one has neither.
    Ours,
    /// Ours as `mode = "cache"` comes: reads on second access, streams of 1 MiB and more bypass.
    Defaults,
    /// Ours as a new hybrid comes: cache and tier, `mode = "both"`.
    Both,
    /// Ours as it comes, before a disk that goes to sleep by its own timer, as soon as in energy mode.
    CacheTimer,
    /// Ours as it comes, in energy mode.
    Energy,
}

impl Engine {
    /// The disk's model, with the timer that it has here.
    fn spec_of(self, disk: Disk) -> Result<Spec, SpecError> {
        let mut spec = Spec::find(disk.model())?;
        match self {
            Engine::Timer(seconds) => spec.power.standby_after_s = seconds as f64,
            Engine::CacheTimer => spec.power.standby_after_s = STANDBY_AFTER.secs_f64(),
            _ => {}
        }
        Ok(spec)
    }
}

/// One system to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setup {
    /// Its name in the rows.
    pub method: &'static str,
    /// The hard disk; none for the bare SSD.
    pub disk: Option<Disk>,
    /// What stands before it.
    pub engine: Engine,
}

const fn setup(method: &'static str, disk: Option<Disk>, engine: Engine) -> Setup {
    Setup {
        method,
        disk,
        engine,
    }
}

/// The methods of the main table, in its order. Energy mode is measured on the 3.5-inch disk, which has most
/// to save.
pub const METHODS: [Setup; 8] = [
    setup("hdd-2.5", Some(Disk::Mobile), Engine::Bare),
    setup("hdd-3.5", Some(Disk::Desktop), Engine::Bare),
    setup("ssd", None, Engine::Bare),
    setup("dmssd-2.5", Some(Disk::Mobile), Engine::Published),
    setup("dmssd-3.5", Some(Disk::Desktop), Engine::Published),
    setup("tanada-2.5", Some(Disk::Mobile), Engine::Ours),
    setup("tanada-3.5", Some(Disk::Desktop), Engine::Ours),
    setup("tanada-energy", Some(Disk::Desktop), Engine::Energy),
];

/// Ours as `mode = "cache"` comes, and as a new hybrid does, for the streams: what a user sees who sets nothing else.
pub const AS_IT_COMES: [Setup; 4] = [
    setup("tanada-2.5", Some(Disk::Mobile), Engine::Defaults),
    setup("tanada-3.5", Some(Disk::Desktop), Engine::Defaults),
    setup("tanada-both-2.5", Some(Disk::Mobile), Engine::Both),
    setup("tanada-both-3.5", Some(Disk::Desktop), Engine::Both),
];

/// Further systems for days: disks with a timer, bare and before our cache, and energy mode on the other disk.
pub const OF_DAYS: [Setup; 9] = [
    setup("hdd-2.5-timer-20", Some(Disk::Mobile), Engine::Timer(20)),
    setup("hdd-2.5-timer", Some(Disk::Mobile), Engine::Timer(60)),
    setup("hdd-2.5-timer-300", Some(Disk::Mobile), Engine::Timer(300)),
    setup("hdd-3.5-timer-20", Some(Disk::Desktop), Engine::Timer(20)),
    setup("hdd-3.5-timer", Some(Disk::Desktop), Engine::Timer(60)),
    setup("hdd-3.5-timer-300", Some(Disk::Desktop), Engine::Timer(300)),
    setup("tanada-2.5-timer", Some(Disk::Mobile), Engine::CacheTimer),
    setup("tanada-3.5-timer", Some(Disk::Desktop), Engine::CacheTimer),
    setup("tanada-energy-2.5", Some(Disk::Mobile), Engine::Energy),
];

/// Ours, the published cache, or nothing; kept to end it as it wants to be ended.
pub enum Cache {
    /// The device is bare.
    None,
    /// The published one.
    Published(Rc<Dmssd>),
    /// Ours.
    Ours(Rc<Hybrid>),
}

/// The meters of a system.
#[derive(Clone)]
pub struct Meter(Vec<Rc<ModelDisk>>);

/// A system set up.
pub struct Bed {
    /// What the workload uses.
    pub target: Rc<dyn Device>,
    /// What stands before the disk.
    pub cache: Cache,
    /// Every model below it.
    pub meter: Meter,
}

impl Meter {
    /// Energy of all devices so far, in joules.
    pub fn joules(&self) -> f64 {
        self.powers().map(|power| power.joules).sum()
    }

    /// How often a spindle was spun up so far.
    pub fn spin_ups(&self) -> u64 {
        self.powers().map(|power| power.spin_ups).sum()
    }

    fn powers(&self) -> impl Iterator<Item = Power> + '_ {
        let power = |model: &Rc<ModelDisk>| model.power().expect("a model knows its power");
        self.0.iter().map(power)
    }
}

impl Setup {
    /// For a workload that wants blocks of `block`.
    pub async fn build(&self, block: Bytes, day: bool, seed: u64) -> Result<Bed, Trouble> {
        let alone = matches!(self.engine, Engine::Bare | Engine::Timer(_));
        // Bare models are a matter of time alone; the engines check what they read back.
        let store = |spec: &Spec| match (alone, day) {
            (true, _) => Store::None,
            (false, false) => Store::Memory,
            (false, true) => Store::Device(Hollow::of_size(&spec.name, spec.size)),
        };
        let ssd = |seed| {
            let spec = Spec::find("ssd-sata-slc")?;
            ModelDisk::new("ssd", &spec, None, store(&spec), seed)
        };
        let Some(disk) = self.disk else {
            return Ok(Bed::bare(ssd(seed)?));
        };
        let spec = self.engine.spec_of(disk)?;
        let hdd = ModelDisk::new("hdd", &spec, None, store(&spec), seed)?;
        if alone {
            return Ok(Bed::bare(hdd));
        }
        let ssd = ssd(seed ^ 0x55d)?;
        let meter = Meter(vec![hdd.clone(), ssd.clone()]);
        if self.engine == Engine::Published {
            let cache = Rc::new(Dmssd::new(hdd, ssd, block));
            return Ok(Bed {
                target: cache.clone(),
                cache: Cache::Published(cache),
                meter,
            });
        }
        let mut settings = Settings {
            name: self.method.to_owned(),
            block,
            ..Settings::default()
        };
        if self.engine == Engine::Energy {
            settings.energy = Some(Energy {
                age_limit: AGE_LIMIT,
                standby_after: STANDBY_AFTER,
            });
        }
        if self.engine == Engine::Both {
            settings.mode = Mode::Both;
        }
        // To compare caches, not what they let pass; days are measured as the program comes.
        let as_it_comes = [Engine::Defaults, Engine::Both].contains(&self.engine);
        if as_it_comes {
            settings.block = Settings::default().block;
        } else if !day {
            settings.admission = Admission::Always;
            settings.sequential_bypass = None;
        }
        let hybrid = Rc::new(Hybrid::create(settings, hdd, ssd, Ties::default()).await?);
        Ok(Bed {
            target: hybrid.clone(),
            cache: Cache::Ours(hybrid),
            meter,
        })
    }
}

impl Bed {
    fn bare(model: Rc<ModelDisk>) -> Bed {
        Bed {
            target: model.clone(),
            cache: Cache::None,
            meter: Meter(vec![model]),
        }
    }

    /// Fills the disk's own buffer with other places of the disk, behind the caches' backs. Something always
    /// uses a disk for a moment; and the model's buffer would otherwise keep a stream of any length.
    pub async fn use_disk_elsewhere(&self) -> Result<(), DeviceError> {
        for model in &self.meter.0 {
            let info = model.info();
            let step = info.size.sectors() / 64 / 8 * 8;
            for n in 0..ELSEWHERE * u64::from(info.rotational) {
                let at = Sector((n + 32) * step);
                model
                    .read(at, Buf::for_read(4096), Class::Foreground)
                    .await?;
            }
        }
        Ok(())
    }

    /// Has everything that only the cache holds written to the disk, and ends.
    pub async fn destage_all(self) -> Result<(), Trouble> {
        drop(self.target);
        match self.cache {
            Cache::None => {}
            Cache::Published(cache) => {
                let cache = Rc::into_inner(cache).expect("the workload has ended");
                cache.destage_all().await?;
            }
            Cache::Ours(hybrid) => hybrid.detach().await?,
        }
        Ok(())
    }
}
