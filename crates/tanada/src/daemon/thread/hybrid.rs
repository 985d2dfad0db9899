//! A hybrid on its data thread, and the commands of an administrator.
//!
//! Always true:
//! 1. One command at a time; a second one is refused, not queued.
//! 2. A change is checked whole before any of it happens.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use anyhow::Context;
use base::Bytes;
use config::{ExportConfig, HybridConfig};
use device::{Capped, Device, Meter, Throttle};
use hybrid::{Hybrid, OpenError, Ties};
use policy::share::cap::Caps;
use policy::tier::worth::Costs;
use report::terminal::said;
use sim::advise::shadow::{Shadow, ShadowOptions};
use sim::advise::tier::{Auto, EVERY, History, Terms};
use sim::cache::Mode;
use trace::tap::{Attached, Observer, Tap};

use super::caps;
use super::change::within;
use super::command::{QueueOf, TierState};
use super::health::word;
use super::layers::Layers;
use super::queued::Queued;
use super::recording::Traces;
use super::refused::{Refused, failed};
use super::tier;
use crate::api;
use crate::api::refusal::Refusal;
use crate::api::volume::Attach;
use crate::daemon::common::pairs::Memory;
use crate::daemon::common::restart::RestartFile;
use crate::daemon::common::saved_settings::Keys;
use crate::daemon::common::starts;
use crate::daemon::common::volume_mode;

/// Chooses the pages a shadow samples: no matter which, but always the same.
const SHADOW_SEED: u64 = 1;

/// A hybrid that is open.
pub struct OpenVolume {
    /// As it was opened.
    pub config: HybridConfig,
    /// Where its settings come from.
    pub(super) layers: RefCell<Layers>,
    pub meter: Rc<Meter>,
    /// What its clients get at most.
    pub(super) throttle: Rc<Throttle>,
    /// Between that and the hybrid: recorder and shadow look on here.
    tap: Rc<Tap>,
    pub(super) traces: Traces,
    /// Watches for advice, while that is wanted.
    shadow: RefCell<Option<(Attached, Rc<RefCell<Shadow>>)>>,
    pub(super) hybrid: Hybrid,
    /// Before its slow device, if rates are promised to exports.
    pub queued: Option<Rc<Queued>>,
    /// Which caches it had and has.
    memory: Memory,
    /// The fast device it has, or had last.
    fast: RefCell<String>,
    /// What was counted for learning a tier's parameters.
    learning: RefCell<Option<Auto>>,
    /// The command under way.
    busy: Cell<Option<&'static str>>,
}

/// Marks a volume as busy until it is dropped.
pub struct Busy<'a>(&'a OpenVolume);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.busy.set(None);
    }
}

/// Opens the pair. Where its cache may have the only copy of something and is not there, it is only refused if it is not
/// `missable`; else it answers nothing.
async fn open_pair(
    config: &HybridConfig,
    slow: Rc<dyn Device>,
    fast: Rc<dyn Device>,
    (ties, missable): (Ties, bool),
) -> anyhow::Result<Hybrid> {
    let settings = config.settings.clone();
    let below = Rc::clone(&slow);
    let opened = match Hybrid::open_or_create(settings.clone(), slow, fast, ties).await {
        Err(missed @ OpenError::NotHere { .. }) if missable => {
            let why = missed.to_string();
            tracing::error!(volume = config.name(), "it answers nothing: {why}");
            starts::note_missed_cache(config.name())
                .context("cannot note that a cache is missed")?;
            Hybrid::withheld(settings, below, why)
        }
        opened => opened,
    };
    opened.with_context(|| format!("volume {}", config.name()))
}

/// Can the slow device do what the settings ask of it?
async fn suits(config: &HybridConfig, slow: &Rc<dyn Device>) -> anyhow::Result<()> {
    within(&config.settings.tier, slow.info().size).map_err(|(key, what)| {
        anyhow::anyhow!(
            "volume {}: {key}: {what}; correct it in the configuration, or in settings.toml of the data directory",
            config.name()
        )
    })?;
    if config.settings.energy.is_none() {
        return Ok(());
    }
    slow.prepare_sleep().await.map_err(|error| {
        anyhow::anyhow!(
            "volume {}: energy = true lets its slow device sleep: {error}; or take energy out of the configuration, \
             and out of settings.toml of the data directory if `tanada volume set` wrote it there",
            config.name()
        )
    })
}

impl OpenVolume {
    /// Opens the pair, warm, or makes one of a blank fast device. What is `kept` stands before the configuration.
    pub async fn open(
        (mut config, kept): (HybridConfig, Keys),
        (slow, queued): (Rc<Meter>, Option<Queued>),
        fast: Rc<Meter>,
        mut memory: Memory,
    ) -> anyhow::Result<OpenVolume> {
        let mut layers = Layers::before(&mut config, kept)?;
        let fast: Rc<dyn Device> = fast;
        let chosen = volume_mode::find(&config, &fast, &memory).await?;
        config.settings.mode = chosen.mode;
        layers.found_mode(chosen.mode);
        memory.mode = Some(chosen.kept);
        let ties = memory.ties(config.force)?;
        let slow: Rc<dyn Device> = match &queued {
            Some(queued) => queued.device(),
            None => slow,
        };
        suits(&config, &slow).await?;
        let hybrid = open_pair(&config, slow, fast, (ties, memory.missable)).await?;
        if !chosen.words.is_empty() {
            tracing::info!("{}", chosen.words);
        }
        let tap = Tap::new(Rc::new(hybrid.clone()));
        let throttle = Throttle::new(config.caps);
        let volume = OpenVolume {
            meter: Meter::new(Capped::new(Rc::clone(&tap) as Rc<dyn Device>, &throttle)),
            throttle,
            traces: Traces::new(
                config.name(),
                memory.registry.data_dir(),
                &tap,
                config.trace_max,
            ),
            tap,
            shadow: RefCell::new(None),
            hybrid,
            queued: queued.map(Rc::new),
            memory,
            fast: RefCell::new(config.fast.clone()),
            layers: RefCell::new(layers),
            config,
            learning: RefCell::new(None),
            busy: Cell::new(None),
        };
        if let Some(file) = &volume.config.trace {
            volume.traces.begin(file).await;
        }
        if volume.config.advise {
            volume.shadow_anew();
        }
        Ok(volume)
    }

    /// From now on a shadow of the cache as it is now sees every request, with nothing in it; without a
    /// cache that stays as it is.
    pub(super) fn shadow_anew(&self) {
        let status = self.hybrid.status();
        if !self.is_attached() || status.occupancy.cache_bytes == 0 {
            return;
        }
        self.stop_shadow();
        let shadow = Rc::new(RefCell::new(Shadow::new(self.shadowed(), env::now())));
        let attached = self
            .tap
            .attach(Rc::clone(&shadow) as Rc<RefCell<dyn Observer>>);
        *self.shadow.borrow_mut() = Some((attached, shadow));
        tracing::info!(volume = self.config.name(), "a shadow watches for advice");
    }

    /// Does a shadow watch?
    pub(super) fn is_watched(&self) -> bool {
        self.shadow.borrow().is_some()
    }

    pub(super) fn stop_shadow(&self) {
        if let Some((attached, _)) = self.shadow.borrow_mut().take() {
            self.tap.detach(attached);
        }
    }

    /// What a shadow of the cache needs to know.
    fn shadowed(&self) -> ShadowOptions {
        let settings = self.hybrid.settings();
        ShadowOptions {
            cache: Bytes(self.hybrid.status().occupancy.cache_bytes),
            policy: settings.policy,
            mode: Mode {
                // What passes the cache by now could be cached again.
                write: match settings.write {
                    hybrid::WriteMode::Pass => hybrid::WriteMode::Back,
                    write => write,
                },
                admission: settings.admission,
            },
            bypass: settings.sequential_bypass,
            seed: SHADOW_SEED,
        }
    }

    /// Begins the shadow anew, if there is one and the cache is no longer what it shadows.
    pub(super) fn keep_shadow_true(&self) {
        let now = self.shadowed();
        let other = |(_, shadow): &(_, Rc<RefCell<Shadow>>)| *shadow.borrow().options() != now;
        let stale = self.shadow.borrow().as_ref().is_some_and(other);
        if stale {
            self.shadow_anew();
        }
    }

    /// What the shadow found.
    pub fn advice(&self) -> Result<api::volume::Advice, Refused> {
        let name = self.config.name();
        match &*self.shadow.borrow() {
            Some((_, shadow)) => Ok(api::volume::Advice::new(
                name,
                shadow.borrow().findings(env::now()),
                &api::volume::Cache::from(&self.hybrid.status()),
            )),
            None => Err(Refused::Conflict(Refusal {
                error: format!("there is no advice for {name}: no shadow watches what it is asked"),
                what_to_do: format!(
                    "set one on it with `tanada volume set {name} advise=on`, let it work as usual for a while, and ask again"
                ),
            })),
        }
    }

    /// What was asked where in the last intervals.
    pub fn heat(&self, ask: &api::tier::Ask) -> Result<api::tier::Heat, Refused> {
        let name = self.config.name();
        let first = ask.after.map_or(0, |after| after.saturating_add(1));
        let heat = self.hybrid.heat_from(first);
        let heat = heat.ok_or_else(|| tier::no_tier(name))?;
        Ok(api::tier::Heat::new(name, heat, ask, tier::Clocks::read()))
    }

    /// What moved, and why.
    pub fn moves(&self, ask: &api::tier::Ask) -> Result<api::tier::Moves, Refused> {
        let name = self.config.name();
        let settings = self.hybrid.settings();
        if !settings.mode.has_tier() {
            return Err(tier::no_tier(name));
        }
        let log = self.hybrid.moves(ask.after.unwrap_or(0));
        let region = settings.tier.region;
        Ok(api::tier::Moves::new(
            name,
            region,
            log,
            ask,
            tier::Clocks::read(),
        ))
    }

    /// What was asked in the last days, as far as it was counted since the daemon began, and what the tier goes by.
    /// Unless it was `asked` for, only what is due is copied.
    pub fn tier_state(&self, asked: bool) -> Result<TierState, Refused> {
        let name = self.config.name();
        let first = self.learning.borrow().as_ref().map_or(0, Auto::next);
        let heat = self.hybrid.heat_from(first);
        let heat = heat.ok_or_else(|| tier::no_tier(name))?;
        let settings = self.hybrid.settings();
        let choices = &settings.tier;
        let period = choices.parameters.period;
        let mut learning = self.learning.borrow_mut();
        let stale = learning
            .as_ref()
            .is_none_or(|auto| !auto.fits(heat.region, period));
        if stale {
            let mut fresh = Auto::new(heat.region, period, EVERY);
            fresh.begin_at(first);
            *learning = Some(fresh);
        }
        let auto = learning.as_mut().expect("there is one now");
        for interval in heat.intervals {
            auto.take(interval.number, interval.length, interval.counts);
        }
        let room = self.hybrid.tier().map_or(0, |tier| tier.room.room_bytes);
        let due = choices.auto && !asked && auto.due();
        Ok(TierState {
            history: match asked || due {
                true => auto.history().clone(),
                false => History::new(heat.region, period),
            },
            parameters: choices.parameters,
            auto: choices.auto,
            terms: Terms {
                kind: choices.policy,
                room: Bytes(room),
                extent: choices.extent(),
                costs: Costs::default(),
            },
            due,
        })
    }

    /// The command under way.
    pub fn command(&self) -> Option<&'static str> {
        self.busy.get()
    }

    /// Takes the volume for one command.
    pub fn begin(&self, command: &'static str) -> Result<Busy<'_>, Refused> {
        if let Some(other) = self.busy.get() {
            return Err(Refused::Conflict(Refusal {
                error: format!("{} is busy: {other} is under way", self.config.name()),
                what_to_do: "wait for it; `tanada volume show` tells how much is dirty still"
                    .into(),
            }));
        }
        self.busy.set(Some(command));
        Ok(Busy(self))
    }

    /// Is the device part of this volume now?
    pub fn uses(&self, device: &str) -> bool {
        device == self.config.slow || (self.is_attached() && device == *self.fast.borrow())
    }

    /// Is it the slow device, which is to sleep?
    pub fn lets_sleep(&self, device: &str) -> bool {
        device == self.config.slow && self.hybrid.settings().energy.is_some()
    }

    pub(super) fn is_attached(&self) -> bool {
        self.hybrid.attachment().is_some()
    }

    /// How it is now.
    pub fn report(&self) -> api::volume::Volume {
        let status = self.hybrid.status();
        api::volume::Volume {
            name: self.config.name().to_owned(),
            size_bytes: status.size_bytes,
            slow: self.config.slow.clone(),
            fast: self.is_attached().then(|| self.fast.borrow().clone()),
            attachment: self.hybrid.attachment().map(api::volume::Attachment::from),
            health: word(status.health).to_owned(),
            why: status.why.clone(),
            settings: api::volume::Settings::from(&self.hybrid.settings()),
            cache: api::volume::Cache::from(&status),
            tier: self.hybrid.tier().map(api::tier::Tier::from),
            trace: self.traces.status().map(api::volume::Trace::from),
            advise: self.is_watched(),
            caps: caps::shown(&self.throttle),
            queue: self.queued.as_ref().map(|it| it.manager().report()),
            figures: self.meter.snapshot().into(),
        }
    }

    /// Writes all dirty data to the slow device and goes on without the fast one.
    pub async fn detach(&self) -> Result<(), Refused> {
        let name = self.config.name();
        if !self.is_attached() {
            return Err(Refused::Conflict(Refusal {
                error: format!("{name} is detached already"),
                what_to_do: "nothing need be done; `tanada volume attach` takes it back".into(),
            }));
        }
        tracing::info!(volume = name, "detaching");
        self.hybrid
            .detach()
            .await
            .map_err(|error| failed(format!("cannot detach {name}: {error}")))?;
        tracing::info!(volume = name, "detached: the slow device stands alone");
        Ok(())
    }

    /// Takes a fast device (back), with an empty cache; `find` knows those that are to spare.
    pub async fn attach(
        &self,
        find: impl FnOnce(&str) -> Result<Rc<Meter>, Refused>,
        attach: Attach,
    ) -> Result<(), Refused> {
        let name = self.config.name();
        if self.is_attached() {
            return Err(Refused::Conflict(Refusal {
                error: format!("{name} has its fast device {} already", self.fast.borrow()),
                what_to_do: "detach it first".into(),
            }));
        }
        let wanted = attach.fast.clone();
        let wanted = wanted.unwrap_or_else(|| self.fast.borrow().clone());
        let spare = find(&wanted)?;
        let ties = match self.hybrid.why_withheld() {
            Some(why) => self.ties_without_missed(&why, &attach)?,
            None => {
                let ties = self.memory.ties(attach.force);
                ties.map_err(|error| failed(said::words(&error)))?
            }
        };
        tracing::info!(volume = name, fast = wanted, "attaching");
        self.hybrid.attach(spare, ties).await.map_err(|error| {
            let refusal = Refusal {
                error: format!("cannot attach {wanted} to {name}: {error}"),
                what_to_do: String::new(),
            };
            match error {
                OpenError::Device(_) | OpenError::Ledger { .. } => Refused::Failed(refusal),
                _ => Refused::Conflict(refusal),
            }
        })?;
        *self.fast.borrow_mut() = wanted;
        self.keep_shadow_true();
        Ok(())
    }

    /// Its cache is not there, because of `why`: how another one takes its place, if that is wanted.
    fn ties_without_missed(&self, why: &str, attach: &Attach) -> Result<Ties, Refused> {
        let name = self.config.name();
        let refused = |error, what_to_do: &str| {
            Refused::Conflict(Refusal {
                error: format!("cannot attach a fast device to {name}: {error}"),
                what_to_do: what_to_do.to_owned(),
            })
        };
        if !attach.new_cache {
            let todo = "or add --new-cache to begin with an empty one";
            return Err(refused(why.to_owned(), todo));
        }
        let ties = self
            .memory
            .ties_without_its_cache(attach.force, attach.lose_dirty);
        ties.map_err(|error| refused(said::words(&error), "nothing was changed"))
    }

    /// The queue before its slow device, if it has one, as one of its exports has it.
    pub fn queue_behind(&self, export: &ExportConfig) -> Option<QueueOf> {
        Some(QueueOf {
            queued: Rc::clone(self.queued.as_ref()?),
            write: self.hybrid.settings().write,
            caps: [export.caps, self.throttle.caps()],
        })
    }

    /// Does it show everything that an earlier daemon answered?
    pub fn found_all(&self) -> bool {
        self.hybrid.found_all()
    }

    /// What waits behind its cap goes on at once.
    pub fn lift_caps(&self) {
        self.throttle.set(Caps::default());
    }

    /// Ends it cleanly.
    pub async fn close(&self) -> Result<(), String> {
        self.traces.stop().await;
        let closed = self.hybrid.close().await.map_err(|error| error.to_string());
        let queue = match &self.queued {
            Some(queued) => queued.close().await,
            None => None,
        };
        closed?;
        if let Some(error) = queue {
            return Err(error);
        }
        // The ledger has everything.
        if let Some(Err(error)) = self.memory.restart.as_ref().map(RestartFile::remove) {
            tracing::warn!(volume = self.config.name(), %error, "the restart log could not be removed");
        }
        Ok(())
    }
}
