//! A real disk's rest: is it asleep, since when, and who may send and wake it?
//!
//! ```text
//! Awake   -> Falling   it may sleep: nothing is under way, what was written is flushed
//! Falling -> Asleep    the disk says so
//! Falling -> Awake     a request came between | the disk refused
//! Asleep  -> Awake     a request, which turns the disk
//! Asleep  -> Rising    a request to a disk that was stopped: it is started first
//! Rising  -> Awake     it turns
//! Awake  <-> Asleep    a look: its own timer, or another program
//! ```
//!
//! The disk is looked at every few seconds in which no request came; it answers that without waking.
//!
//! Always true:
//! 1. One command at a time; no request is sent to a disk that falls, is stopped or rises.
//! 2. Looking wakes nothing.

mod answer;
mod command;
mod drive;
mod error;
#[cfg(test)]
pub(crate) mod tests;

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;

use base::{Instant, Nanos};
use env::sync::Semaphore;

pub(crate) use answer::Mode;
#[cfg(test)]
pub(crate) use command::Command;
pub(crate) use drive::Drive;
#[cfg(test)]
pub(crate) use drive::Transport;
pub(crate) use error::Obstacle;

use crate::Spindle;

/// How often a disk is looked at that is sent nothing.
pub(crate) const LOOK_EVERY: Nanos = Nanos::secs(10);

/// See the module's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Awake,
    Falling,
    Asleep { stopped: bool },
    Rising,
}

impl From<Mode> for State {
    fn from(mode: Mode) -> State {
        match mode {
            Mode::Awake => State::Awake,
            Mode::Standby => State::Asleep { stopped: false },
            Mode::Stopped => State::Asleep { stopped: true },
        }
    }
}

/// See the module's head.
pub(crate) struct Sleeper {
    // Fixed.
    drive: Drive,
    // As it goes.
    state: Cell<State>,
    since: Cell<Instant>,
    turn: Rc<Semaphore>,
    /// A request came since the last look.
    used: Cell<bool>,
    /// It was said that the disk does not sleep.
    complained: Cell<bool>,
}

impl Sleeper {
    /// Of a disk as it is now.
    pub async fn new(drive: Drive) -> Result<Rc<Sleeper>, Obstacle> {
        let mode = drive.mode().await?;
        Ok(Rc::new(Sleeper {
            drive,
            state: Cell::new(mode.into()),
            since: Cell::new(env::now()),
            turn: Semaphore::new(1),
            used: Cell::new(false),
            complained: Cell::new(false),
        }))
    }

    /// How the spindle is, as far as is known. One that falls sleeps already.
    pub fn spindle(&self) -> Spindle {
        Spindle {
            asleep: matches!(self.state.get(), State::Falling | State::Asleep { .. }),
            since: self.since.get(),
        }
    }

    fn set(&self, state: State) {
        let was = self.spindle().asleep;
        self.state.set(state);
        if self.spindle().asleep != was {
            self.since.set(env::now());
        }
    }

    /// To be awaited before each request that the disk itself must answer.
    pub async fn request(&self) {
        self.used.set(true);
        match self.state.get() {
            State::Awake => {}
            // The request itself wakes it.
            State::Asleep { stopped: false } => self.set(State::Awake),
            State::Falling | State::Asleep { stopped: true } | State::Rising => self.rise().await,
        }
    }

    async fn rise(&self) {
        let _turn = self.turn.acquire(1).await;
        match self.state.get() {
            State::Awake => return,
            State::Falling | State::Asleep { stopped: false } => {}
            // Rising: the request that began it was given up.
            State::Asleep { stopped: true } | State::Rising => {
                self.set(State::Rising);
                if let Err(error) = self.drive.wake().await {
                    // The request is sent all the same: what it meets is its answer.
                    tracing::error!(%error, "the disk could not be started");
                }
            }
        }
        self.set(State::Awake);
    }

    /// Is it to fall asleep now? Then [`Sleeper::fall`] is next.
    pub fn begin_to_fall(&self) -> bool {
        let awake = self.state.get() == State::Awake;
        if awake {
            self.used.set(false);
            self.set(State::Falling);
        }
        awake
    }

    /// Sends the disk to sleep once what was written is `flushed`, unless a request comes first.
    pub async fn fall(&self, flushed: impl Future<Output = bool>) {
        let _turn = self.turn.acquire(1).await;
        if self.state.get() != State::Falling {
            return;
        }
        let flushed = flushed.await;
        let state = match flushed && !self.used.get() {
            true => self.sent_to_sleep().await,
            false => State::Awake,
        };
        self.set(state);
    }

    /// What became of the disk.
    async fn sent_to_sleep(&self) -> State {
        if let Err(error) = self.drive.sleep().await {
            self.complain(&error.to_string());
            return State::Awake;
        }
        match self.drive.mode().await {
            Ok(Mode::Awake) => {
                self.complain("it says that it does, and turns on");
                State::Awake
            }
            Ok(mode) => mode.into(),
            // It took the command. To start one that turns does no harm.
            Err(_) => State::Asleep {
                stopped: self.drive.stops(),
            },
        }
    }

    fn complain(&self, why: &str) {
        if !self.complained.replace(true) {
            tracing::warn!(
                disk = self.drive.disk(),
                why,
                "the disk does not go to sleep"
            );
        }
    }

    /// Asks the disk, unless requests did.
    pub async fn look(&self) {
        let rests = matches!(self.state.get(), State::Awake | State::Asleep { .. });
        if self.used.replace(false) || !rests {
            return;
        }
        let _turn = self.turn.acquire(1).await;
        let before = self.state.get();
        let Ok(mode) = self.drive.mode().await else {
            return;
        };
        // A request that came meanwhile is what is newest.
        if !self.used.get() && self.state.get() == before && before != State::Falling {
            self.set(mode.into());
        }
    }
}
