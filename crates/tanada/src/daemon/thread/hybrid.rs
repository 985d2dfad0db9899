//! A hybrid on its data thread, and the commands of an administrator.
//!
//! Always true:
//! 1. One command at a time; a second one is refused, not queued.
//! 2. A change is checked whole before any of it happens.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::Context;
use base::{Bytes, Nanos};
use config::{HybridConfig, check_name};
use device::{Device, Meter};
use hybrid::{Health, Hybrid, OpenError, Settings};
use policy::tier::worth::Costs;
use report::terminal::said;
use sim::advise::shadow::{Shadow, ShadowOptions};
use sim::advise::tier::{Auto, EVERY, History, Terms};
use sim::cache::Mode;
use trace::record::{Recorder, Recording, check_max};
use trace::tap::{Attached, Observer, Tap};

use super::change::{changed, within};
use super::command::TierState;
use super::refused::{Refused, failed};
use super::shown::word;
use super::{DataThread, tier};
use crate::api;
use crate::api::refusal::Refusal;
use crate::api::volume::{Attach, Change};
use crate::daemon::common::pairs::Memory;
use crate::daemon::common::volume_mode;

/// How often a recorder gets the time.
const TICK: Nanos = Nanos::secs(1);
/// How long the end of a recording waits for its file.
const TRACE_TIMEOUT: Nanos = Nanos::secs(5);
/// Where traces lie that a command began, in the data directory.
const TRACES: &str = "traces";

/// Chooses the pages a shadow samples: no matter which, but always the same.
const SHADOW_SEED: u64 = 1;

/// A hybrid that is open.
pub struct OpenVolume {
    pub config: HybridConfig,
    pub meter: Rc<Meter>,
    /// Between the meter and the hybrid: a recorder looks on here.
    tap: Rc<Tap>,
    recorder: RefCell<Option<(Attached, Rc<RefCell<Recorder>>)>>,
    /// Why the configuration's recording could not begin.
    no_trace: RefCell<Option<Recording>>,
    trace_max: Cell<Bytes>,
    /// Watches for advice, while that is wanted.
    shadow: RefCell<Option<(Attached, Rc<RefCell<Shadow>>)>>,
    hybrid: Hybrid,
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

impl OpenVolume {
    /// Opens the pair, warm, or makes one of a blank fast device.
    pub async fn open(
        mut config: HybridConfig,
        slow: Rc<Meter>,
        fast: Rc<Meter>,
        mut memory: Memory,
    ) -> anyhow::Result<OpenVolume> {
        let fast: Rc<dyn Device> = fast;
        let chosen = volume_mode::find(&config, &fast, &memory).await?;
        config.settings.mode = chosen.mode;
        memory.mode = Some(chosen.kept);
        let ties = memory.ties(config.force)?;
        within(&config.settings.tier, slow.info().size)
            .map_err(|(key, what)| anyhow::anyhow!("volume {}: {key}: {what}", config.name()))?;
        let hybrid = Hybrid::open_or_create(config.settings.clone(), slow, fast, ties)
            .await
            .with_context(|| format!("volume {}", config.name()))?;
        if !chosen.words.is_empty() {
            tracing::info!("{}", chosen.words);
        }
        let tap = Tap::new(Rc::new(hybrid.clone()));
        let volume = OpenVolume {
            meter: Meter::new(Rc::clone(&tap) as Rc<dyn Device>),
            tap,
            recorder: RefCell::new(None),
            no_trace: RefCell::new(None),
            trace_max: Cell::new(config.trace_max),
            shadow: RefCell::new(None),
            hybrid,
            memory,
            fast: RefCell::new(config.fast.clone()),
            config,
            learning: RefCell::new(None),
            busy: Cell::new(None),
        };
        if let Some(file) = &volume.config.trace {
            volume.record_from_start(file).await;
        }
        if volume.config.advise {
            volume.shadow_anew();
        }
        Ok(volume)
    }

    /// Begins the recording the configuration asks for. A disk is worth more than its trace: if that
    /// fails, the volume serves all the same, and says why nothing is recorded.
    async fn record_from_start(&self, file: &Path) {
        let name = self.config.name();
        let max = self.trace_max.get();
        // Only without a working directory a path stays relative.
        let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        match Recorder::open(&file, max).await {
            Ok(recorder) => self.record(recorder),
            Err(error) => {
                let why = said::words_of(&error);
                tracing::error!(volume = name, "no trace is recorded: {why}");
                *self.no_trace.borrow_mut() = Some(Recording {
                    file,
                    max,
                    written: 0,
                    dropped: 0,
                    bytes: Bytes(0),
                    failed: Some(why),
                });
            }
        }
    }

    /// From now on the recorder sees every request.
    fn record(&self, recorder: Recorder) {
        tracing::info!(volume = self.config.name(), file = %recorder.status().file.display(), "recording a trace");
        let recorder = Rc::new(RefCell::new(recorder));
        // Idle, a recorder hears of the time from this task, which ends with the recording.
        let ticked = Rc::downgrade(&recorder);
        drop(env::spawn(async move {
            loop {
                env::sleep(TICK).await;
                let Some(recorder) = ticked.upgrade() else {
                    return;
                };
                recorder.borrow_mut().tick(env::now());
            }
        }));
        let observer = Rc::clone(&recorder) as Rc<RefCell<dyn Observer>>;
        let attached = self.tap.attach(observer);
        *self.no_trace.borrow_mut() = None;
        *self.recorder.borrow_mut() = Some((attached, recorder));
    }

    /// Ends the recording, if there is one.
    async fn stop_recording(&self) {
        *self.no_trace.borrow_mut() = None;
        let Some((attached, recorder)) = self.recorder.borrow_mut().take() else {
            return;
        };
        self.tap.detach(attached);
        // The ticking task and a report hold it for a moment only, never while another task runs.
        if let Some(recorder) = Rc::into_inner(recorder) {
            let done = recorder.into_inner().finish(TRACE_TIMEOUT).await;
            tracing::info!(
                volume = self.config.name(),
                file = %done.file.display(),
                requests = done.written,
                dropped = done.dropped,
                "the trace is recorded"
            );
        }
    }

    /// From now on a shadow of the cache as it is now sees every request, with nothing in it; without a
    /// cache that stays as it is.
    fn shadow_anew(&self) {
        let status = self.hybrid.status();
        if !self.is_attached() || status.cache_bytes == 0 {
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

    fn stop_shadow(&self) {
        if let Some((attached, _)) = self.shadow.borrow_mut().take() {
            self.tap.detach(attached);
        }
    }

    /// What a shadow of the cache needs to know.
    fn shadowed(&self) -> ShadowOptions {
        let settings = self.hybrid.settings();
        ShadowOptions {
            cache: Bytes(self.hybrid.status().cache_bytes),
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
    fn keep_shadow_true(&self) {
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
        let room = self.hybrid.tier().map_or(0, |status| status.room_bytes);
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

    /// The recording, or why there is none although one was asked for.
    fn recording(&self) -> Option<Recording> {
        let recorder = self.recorder.borrow();
        match &*recorder {
            Some((_, recorder)) => Some(recorder.borrow().status()),
            None => self.no_trace.borrow().clone(),
        }
    }

    /// What a change says of the trace, checked and begun but not attached: `Some(None)` ends a recording.
    async fn new_recorder(&self, change: &Change) -> Result<Option<Option<Recorder>>, Refused> {
        let name = self.config.name();
        let invalid = |key: &str, what: String| {
            Refused::Invalid(Refusal {
                error: format!("cannot set {key} of {name}: {what}"),
                what_to_do: "nothing was changed".into(),
            })
        };
        let max = match &change.trace_max {
            None => self.trace_max.get(),
            Some(text) => {
                let max = text
                    .parse::<Bytes>()
                    .map_err(|error| invalid("trace_max", error.to_string()))?;
                check_max(max).map_err(|error| invalid("trace_max", error.to_string()))?;
                max
            }
        };
        match change.trace.as_deref() {
            None => Ok(None),
            Some("off") => Ok(Some(None)),
            Some(file) => {
                let path = self.trace_path(file).map_err(|why| invalid("trace", why))?;
                let path = path.as_path();
                let why = |error: trace::record::RecordError| said::words_of(&error);
                // The same file again: the old recording has to leave it first, and does so only if
                // nothing stands in the way of a new one.
                let same = |recording: Recording| recording.file == path;
                let restart = self.recording().is_some_and(same);
                if restart {
                    let checked = Recorder::check(path, max).await;
                    checked.map_err(|error| invalid("trace", why(error)))?;
                    self.stop_recording().await;
                }
                let opened = Recorder::open(path, max).await;
                let recorder = opened.map_err(|error| match restart {
                    false => invalid("trace", why(error)),
                    true => Refused::Failed(Refusal {
                        error: format!("cannot begin the trace of {name} anew: {}", why(error)),
                        what_to_do: "the recording so far has ended and its files are kept; \
                                     nothing else was changed"
                            .into(),
                    }),
                })?;
                Ok(Some(Some(recorder)))
            }
        }
    }

    /// Where a trace of this name goes: a command names a file of [`TRACES`], never a path.
    fn trace_path(&self, name: &str) -> Result<PathBuf, String> {
        let folder = self.memory.registry.data_dir().join(TRACES);
        // Only without a working directory a path stays relative.
        let folder = std::path::absolute(&folder).unwrap_or(folder);
        if let Err(why) = check_name(name) {
            let configured =
                "a path of your own goes into the configuration, as trace of the [[hybrid]]";
            let lies = format!("a trace that a command begins is in {}", folder.display());
            return Err(format!(
                "{why}; {lies}, so write such as trace=vol0.csv; {configured}"
            ));
        }
        std::fs::create_dir_all(&folder)
            .map_err(|error| format!("cannot make the folder {}: {error}", folder.display()))?;
        Ok(folder.join(name))
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

    fn is_attached(&self) -> bool {
        matches!(
            self.hybrid.status().health,
            Health::Healthy | Health::Degraded | Health::Evacuating | Health::Failed
        )
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
            trace: self.recording().map(api::volume::Trace::from),
            advise: self.shadow.borrow().is_some(),
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

    /// Takes a fast device (back), with an empty cache.
    pub async fn attach(&self, thread: &DataThread, attach: Attach) -> Result<(), Refused> {
        let name = self.config.name();
        if self.is_attached() {
            return Err(Refused::Conflict(Refusal {
                error: format!("{name} has its fast device {} already", self.fast.borrow()),
                what_to_do: "detach it first".into(),
            }));
        }
        let wanted = attach.fast.unwrap_or_else(|| self.fast.borrow().clone());
        let spare = thread.spare(&wanted, name)?;
        let ties = self.memory.ties(attach.force);
        let ties = ties.map_err(|error| failed(said::words(&error)))?;
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

    /// Changes settings while it runs.
    pub async fn change(&self, change: Change) -> Result<(), Refused> {
        let name = self.config.name();
        let old = self.hybrid.settings();
        let size = Bytes(self.hybrid.status().size_bytes);
        let new = changed(&old, &change, self.config.standby_after)
            .and_then(|new| within(&new.tier, size).map(|()| new))
            .map_err(|(key, what)| {
                Refused::Invalid(Refusal {
                    error: format!("cannot set {key} of {name}: {what}"),
                    what_to_do: "nothing was changed".into(),
                })
            })?;
        if change.advise == Some(true) && !self.is_attached() {
            return Err(Refused::Conflict(Refusal {
                error: format!("cannot set advise of {name}: it has no cache to give advice on"),
                what_to_do: format!("give it a fast device with `tanada volume attach {name}`"),
            }));
        }
        // Last of the checks: this one makes a file.
        let recorder = self.new_recorder(&change).await?;
        if let Some(max) = change.trace_max.as_deref().and_then(|max| max.parse().ok()) {
            self.trace_max.set(max);
            // A recording that another one replaces keeps its files.
            if recorder.is_none()
                && let Some((_, recorder)) = &*self.recorder.borrow()
            {
                let set = recorder.borrow().set_max(max);
                set.map_err(|error| failed(error.to_string()))?;
            }
        }
        if let Some(recorder) = recorder {
            self.stop_recording().await;
            if let Some(recorder) = recorder {
                self.record(recorder);
            }
        }
        if new.fast_bytes != old.fast_bytes {
            let to = new
                .fast_bytes
                .map_or_else(|| "all".to_owned(), |it| it.to_string());
            tracing::info!(volume = name, to, "resizing the cache");
            self.hybrid
                .resize(new.fast_bytes)
                .await
                .map_err(|error| failed(format!("cannot resize the cache of {name}: {error}")))?;
        }
        if (Settings {
            fast_bytes: old.fast_bytes,
            ..new.clone()
        }) != old
        {
            tracing::info!(volume = name, "changing settings: {}", change.words());
            self.hybrid
                .set(new)
                .await
                .map_err(|error| failed(format!("settings of {name}: {error}")))?;
        }
        match change.advise {
            Some(true) => self.shadow_anew(),
            Some(false) => self.stop_shadow(),
            None => self.keep_shadow_true(),
        }
        Ok(())
    }

    /// Ends it cleanly.
    pub async fn close(&self) -> Result<(), String> {
        self.stop_recording().await;
        self.hybrid.close().await.map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(json: &str) -> Result<Settings, (&'static str, String)> {
        let change = serde_json::from_str(json).unwrap();
        changed(&Settings::default(), &change, Nanos::secs(60))
    }

    #[test]
    fn what_is_not_named_stays() {
        assert_eq!(change("{}").unwrap(), Settings::default());
        let new = change(r#"{"write": "through", "dirty_high": 40, "sequential_bypass": "off"}"#);
        let expected = Settings {
            write: hybrid::WriteMode::Through,
            dirty_high: 40,
            sequential_bypass: None,
            ..Settings::default()
        };
        assert_eq!(new.unwrap(), expected);
    }

    #[test]
    fn a_tier_is_changed_key_by_key() {
        let new = change(r#"{"mode": "both", "tier": {"period": "10s", "pinned": ["1GiB+1MiB"]}}"#);
        let new = new.unwrap();
        assert_eq!(new.mode, hybrid::Mode::Both);
        assert_eq!(new.tier.parameters.period, Nanos::secs(10));
        let usual = Settings::default().tier.parameters;
        assert_eq!(new.tier.parameters.streak_min, usual.streak_min);
        let (key, what) = within(&new.tier, Bytes::gib(1)).unwrap_err();
        assert_eq!(
            (key, what.as_str()),
            ("tier.pinned", "1GiB+1MiB reaches beyond its end at 1.0 GiB")
        );
        assert_eq!(within(&new.tier, Bytes::gib(2)), Ok(()));
    }

    #[test]
    fn energy_comes_with_its_age_limit() {
        let new = change(r#"{"energy": true, "age_limit": "5m"}"#).unwrap();
        assert_eq!(new.energy.unwrap().age_limit, Nanos::secs(300));
        let (key, what) = change(r#"{"age_limit": "5m"}"#).unwrap_err();
        assert_eq!(key, "age_limit");
        assert!(what.contains("energy=true"), "{what}");
    }

    #[test]
    fn a_senseless_change_names_its_key() {
        assert_eq!(change(r#"{"write": "fast"}"#).unwrap_err().0, "write");
        let (key, what) = change(r#"{"fast_size": "much"}"#).unwrap_err();
        assert_eq!(key, "fast_size");
        assert!(what.ends_with("or all"), "{what}");
        let (key, what) = change(r#"{"tier": {"timeout": 0}}"#).unwrap_err();
        assert_eq!(key, "timeout");
        assert!(what.contains("go down at once"), "{what}");
        let (_, what) = change(r#"{"dirty_low": 80}"#).unwrap_err();
        assert!(what.starts_with("dirty_low = 80 %"), "{what}");
    }
}
