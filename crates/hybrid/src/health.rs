//! May the fast device be relied on, and where is it kept that it may not?
//!
//! ```text
//! Healthy    -> Evacuating   a write or a commit on the fast device failed
//! Evacuating -> PassThrough  nothing is dirty (any more), and the label says so, or the registry does
//! Evacuating -> Failed       dirty data cannot be read back, or the failure cannot be noted durably
//! ```
//!
//! Always true: nothing is destaged from a failing device before a start after a crash would know that it fails.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use device::{DeviceError, Op};

use crate::attach::label::Attachment;
use crate::attach::pair::{Keeper, Pair};
use crate::attach::relabel::Labels;
use crate::index::page_map::PageMap;
use crate::stats::Health;
use crate::trouble::Trouble;

/// So often a label is tried before a failure is noted elsewhere.
const LABEL_TRIES: u32 = 3;

/// Remembers, elsewhere than on the fast device, that a cache counts no more.
pub type Abandon = Rc<dyn Fn(u128) -> Result<(), String>>;

/// Where it is kept that a cache counts, or counts no more.
pub(crate) struct Ends {
    pub on_abandon: Option<Abandon>,
    pub pair: Rc<Keeper>,
}

/// Where a cache stands, and why.
#[derive(Debug, Clone)]
struct State {
    health: Health,
    why: String,
    /// What a request meets; `None` while it works.
    error: Option<DeviceError>,
}

/// The condition of one attached fast device.
pub(crate) struct Condition {
    /// The volume's name, and the fast device's.
    volume: String,
    fast: String,
    pub label: Labels,
    /// What outlasts the loss of the fast device.
    pub pair: Rc<Keeper>,
    on_abandon: Option<Abandon>,
    state: RefCell<State>,
    /// The label or the record of pairs names the failure: evacuation may begin.
    failing_noted: Cell<bool>,
    /// What keeps it from being healthy while it works.
    pub trouble: Trouble,
}

impl Condition {
    pub fn new(volume: &str, fast: &str, label: Labels, ends: Ends) -> Condition {
        Condition {
            volume: volume.to_owned(),
            fast: fast.to_owned(),
            label,
            pair: ends.pair,
            on_abandon: ends.on_abandon,
            state: RefCell::new(State {
                health: Health::Healthy,
                why: String::new(),
                error: None,
            }),
            failing_noted: Cell::new(false),
            trouble: Trouble::default(),
        }
    }

    pub fn is(&self, health: Health) -> bool {
        self.state.borrow().health == health
    }

    pub fn is_running(&self) -> bool {
        self.is(Health::Healthy)
    }

    /// Evacuation may begin: a start after a crash would know.
    pub fn is_failing_noted(&self) -> bool {
        self.failing_noted.get()
    }

    /// What a request meets that needs the fast device.
    ///
    /// # Panics
    /// If it is running.
    pub fn not_running(&self) -> DeviceError {
        let error = self.state.borrow().error.clone();
        error.expect("asked only when not running")
    }

    /// In what state it is, and why, where there is something to say. `unreadable`: dirty pages of which the last read
    /// failed; `clean_error`: what the cleaner met last.
    pub fn status(
        &self,
        map: &PageMap,
        unreadable: &[u64],
        clean_error: Option<&DeviceError>,
    ) -> (Health, String) {
        let state = self.state.borrow();
        if state.health != Health::Healthy {
            return (state.health, state.why.clone());
        }
        match self.trouble.words(map, unreadable, clean_error) {
            None => (Health::Healthy, String::new()),
            Some(why) => (Health::Degraded, why),
        }
    }

    fn enter(&self, health: Health, why: String, error: DeviceError) {
        *self.state.borrow_mut() = State {
            health,
            why,
            error: Some(error),
        };
    }

    fn gone(&self, device: &str, why: String) -> DeviceError {
        DeviceError::Gone {
            device: device.to_owned(),
            op: Op::Write,
            why,
        }
    }

    /// The fast device failed. False if it did before.
    pub fn evacuate(&self, error: DeviceError) -> bool {
        if !self.is_running() {
            return false;
        }
        tracing::error!(volume = %self.volume, %error, "the fast device failed");
        self.enter(Health::Evacuating, error.to_string(), error);
        true
    }

    /// The dirty data cannot be destaged.
    pub fn fail(&self, error: DeviceError) {
        tracing::error!(volume = %self.volume, %error, "dirty data cannot be written back to the slow device");
        self.enter(Health::Failed, error.to_string(), error);
    }

    /// What is destaged from now on may be newer than clean entries of the last commit. A start after a crash
    /// must not trust those, so it is noted durably first.
    ///
    /// # Errors
    /// It cannot be noted: nothing may be destaged.
    pub async fn note_failing(&self) -> Result<(), DeviceError> {
        let mut answer = Ok(());
        for _ in 0..LABEL_TRIES {
            answer = self.label.change_attachment(Attachment::Failing).await;
            if answer.is_ok() {
                break;
            }
        }
        let Err(error) = answer else {
            self.failing_noted.set(true);
            return Ok(());
        };
        tracing::warn!(volume = %self.volume, %error, "the label could not be changed");
        let noted = match self.pair.is_kept() {
            true => self.note_failing_pair(),
            false => Err("no record of pairs is kept".to_owned()),
        };
        match noted {
            Ok(()) => {
                self.failing_noted.set(true);
                Ok(())
            }
            Err(why) => Err(self.gone(&self.volume, format!(
                "{error}; and that the fast device fails could not be noted elsewhere ({why}), so its dirty data stay on \
                 it: repair one of the two and start again"
            ))),
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

    /// Cuts the tie to a failed fast device, durably, so that its contents never count again. False if another task ended
    /// it before.
    pub async fn pass(&self, why: &str) -> bool {
        if !self.is(Health::Evacuating) {
            return false;
        }
        let error = self.not_running();
        let abandoned = self.abandon().await;
        if !self.is(Health::Evacuating) {
            return false;
        }
        match abandoned {
            Ok(()) => {
                tracing::warn!(volume = %self.volume, "passing through to the slow device: {why}");
                let why = format!("{why}: {error}");
                self.enter(Health::PassThrough, why.clone(), self.gone(&self.fast, why));
            }
            Err(refusal) => {
                let error = self.gone(&self.volume, format!(
                    "{error}; and the fast device could not be given up safely ({refusal}): stop the volume and open it \
                     without the fast device"
                ));
                self.enter(Health::Failed, error.to_string(), error);
            }
        }
        true
    }

    /// Its contents count no more, durably.
    ///
    /// # Errors
    /// Why that could not be noted anywhere.
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
            tracing::warn!(volume = %self.volume, why, "the record of pairs could not be written");
        }
        listed
    }
}
