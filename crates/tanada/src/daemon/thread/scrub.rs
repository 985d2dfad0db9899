//! The scrub of a store: rounds that read all it has, now and then or when asked.
//!
//! Always true: one round runs at a time.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use base::{Bytes, Nanos};
use policy::share::{BytesPerSec, Second};
use store::qos::manager::Manager;

use super::refused::Refused;
use crate::api::refusal::Refusal;
use crate::api::store as api;

/// What a scrub reads at once.
const SCRUB_STEP: Bytes = Bytes::mib(1);
/// Between the end of a round and the next one.
const SCRUB_PAUSE: Nanos = Nanos::secs(24 * 3600);
/// How the scrub goes.
#[derive(Default)]
struct State {
    running: bool,
    rounds: u64,
    read: Bytes,
    of: Bytes,
    bad: u64,
    failed: Option<String>,
    ended: Option<Second>,
}

/// The scrub of one store.
pub struct Scrub {
    /// The store's name.
    name: String,
    node: Rc<Manager>,
    state: RefCell<State>,
    /// Of the rounds that begin by themselves; `None`: there are none.
    rate: Cell<Option<BytesPerSec>>,
    /// A task begins them.
    repeats: Cell<bool>,
    /// The round that runs is to be cut off.
    cut_off: Cell<bool>,
    /// The store closes.
    ended: Cell<bool>,
}

impl Scrub {
    /// One that has not begun.
    pub fn of(name: &str, node: &Rc<Manager>) -> Rc<Scrub> {
        Rc::new(Scrub {
            name: name.to_owned(),
            node: Rc::clone(node),
            state: RefCell::default(),
            rate: Cell::default(),
            repeats: Cell::default(),
            cut_off: Cell::default(),
            ended: Cell::default(),
        })
    }

    /// How it goes.
    pub fn report(&self) -> api::Scrub {
        let scrub = self.state.borrow();
        api::Scrub {
            running: scrub.running,
            bytes_per_second: self.rate.get().map(|rate| rate.0),
            rounds: scrub.rounds,
            read_bytes: scrub.read.0,
            of_bytes: scrub.of.0,
            bad: scrub.bad,
            ended_unix_seconds: scrub.ended.map(|at| at.0),
            failed: scrub.failed.clone(),
        }
    }

    /// The store closes: no round begins or goes on.
    pub fn end(&self) {
        self.ended.set(true);
    }

    /// All data are read at this rate now and then, from now on; `None`: when asked alone.
    pub fn set_rate(self: &Rc<Self>, rate: Option<BytesPerSec>) {
        self.rate.set(rate);
        if rate.is_some() && !self.repeats.replace(true) {
            env::spawn(now_and_then(Rc::downgrade(self)));
        }
    }

    /// Begins a round of the scrub, or goes on with the one that was cut off.
    pub fn begin(self: &Rc<Self>) -> Result<(), Refused> {
        if self.state.borrow().running {
            return Err(Refused::Conflict(Refusal {
                error: format!("{} is being scrubbed already", self.name),
                what_to_do: format!("`tanada store show {}` tells how far", self.name),
            }));
        }
        let scrub = Rc::clone(self);
        self.mark_begun();
        env::spawn(async move { scrub.round(false).await });
        Ok(())
    }

    /// Cuts off the round of the scrub that runs; the next one goes on where it was.
    pub fn stop(&self) {
        self.cut_off.set(true);
    }

    fn mark_begun(&self) {
        self.cut_off.set(false);
        let of = self.node.store().space().used;
        let mut scrub = self.state.borrow_mut();
        let rounds = scrub.rounds;
        *scrub = State {
            running: true,
            of,
            rounds,
            ..State::default()
        };
    }

    /// Reads to the end of the round, `paced` at most at the rate that is set; the queue holds it below its ceiling in any
    /// case.
    async fn round(&self, paced: bool) {
        // A round that was cut off at its very end has nothing left; then the next one is meant, once.
        let mut may_go_on = true;
        while !self.ended.get() && !self.cut_off.get() {
            let begun = env::now();
            let step = match self.node.store().scrub_step(SCRUB_STEP).await {
                Ok(step) => step,
                Err(error) => {
                    self.state.borrow_mut().failed = Some(error.to_string());
                    break;
                }
            };
            for bad in &step.bad {
                tracing::error!(
                    store = self.name,
                    object = bad.object,
                    offset = bad.offset,
                    why = bad.why,
                    "the scrub found damage"
                );
            }
            let nothing_yet = {
                let mut scrub = self.state.borrow_mut();
                scrub.rounds = step.rounds;
                scrub.read += step.read;
                scrub.bad += step.bad.len() as u64;
                scrub.read.0 == 0
            };
            if step.round_done && !(nothing_yet && std::mem::take(&mut may_go_on)) {
                break;
            }
            if paced {
                let Some(rate) = self.rate.get() else {
                    let why = "it was cut off: the configuration wants none any more";
                    self.state.borrow_mut().failed = Some(why.to_owned());
                    break;
                };
                let spent = env::now().since(begun);
                env::sleep(rate.time_for(step.read).saturating_sub(spent)).await;
            }
        }
        let mut scrub = self.state.borrow_mut();
        scrub.running = false;
        scrub.ended = Some(self.node.now());
    }
}

async fn now_and_then(scrub: Weak<Scrub>) {
    loop {
        {
            let Some(scrub) = scrub.upgrade() else { return };
            if scrub.ended.get() || scrub.rate.get().is_none() {
                scrub.repeats.set(false);
                return;
            }
            if !scrub.state.borrow().running {
                scrub.mark_begun();
                scrub.round(true).await;
            }
        }
        env::sleep(SCRUB_PAUSE).await;
    }
}
