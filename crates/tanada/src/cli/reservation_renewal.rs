//! A reservation that is renewed for as long as its command runs.
//!
//! ```text
//! half of the slot over -> renew -> done: half a slot later again
//!                                 | failed: again after some seconds, to the end of the slot
//!                                 | over: reserve anew under the same name, again and again
//!                                 | it was cancelled: no more
//! ```
//!
//! Always true:
//! 1. What is kept here is one reservation, made by this program: its end ends what is there.
//! 2. A failure is said once until something succeeds.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use base::Nanos;
use report::terminal::said;
use tokio::time::Instant;

use super::reservation_service::{Changed, Made, Service, Which};
use super::reservation_wanted::shown;
use super::reservation_words as words;
use crate::api::reservation::{RELEASED, ReservationAsk, ReservationChange, WholeReservation};

/// A renewal that failed is tried again after a tenth of the slot, and after this at most.
const AGAIN_MOST: Duration = Duration::from_secs(5);

/// What is renewed.
pub struct Renewal {
    pub service: Service,
    /// What was asked for, to be asked for again.
    asked: ReservationAsk,
    /// The reservation that is there now.
    pub id: String,
    span: Duration,
    /// Its slot is over then, or a little later.
    end: Instant,
    /// A request to reserve was not answered: one under its name may be ours.
    is_open: bool,
    is_said: bool,
}

/// What became of it.
enum Outcome {
    Renewed,
    /// Why not.
    Failed(String),
    /// It is no longer there.
    Over(String),
    /// It was ended on purpose.
    Cancelled,
}

impl Renewal {
    /// Of `made`, asked for so just now.
    pub fn new(
        service: Service,
        asked: ReservationAsk,
        made: &WholeReservation,
        span: Nanos,
    ) -> Renewal {
        let span = Duration::from_nanos(span.0);
        Renewal {
            service,
            asked,
            id: made.id.clone(),
            span,
            end: Instant::now() + span,
            is_open: false,
            is_said: false,
        }
    }

    /// Renews until `stopped` says, or has no sender any more; what is there by then.
    #[expect(
        clippy::disallowed_methods,
        reason = "a daemon that does not answer shall not keep signals waiting"
    )]
    pub fn keep(mut self, stopped: Receiver<()>) -> JoinHandle<Renewal> {
        std::thread::spawn(move || {
            let (half, again) = (self.span / 2, (self.span / 10).min(AGAIN_MOST));
            let mut wait = half;
            while stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                wait = match self.once() {
                    Outcome::Renewed => half,
                    Outcome::Failed(why) | Outcome::Over(why) => {
                        self.say(&why);
                        again
                    }
                    Outcome::Cancelled => break,
                };
            }
            self
        })
    }

    fn once(&mut self) -> Outcome {
        let begun = Instant::now();
        let outcome = match self.renew() {
            Outcome::Failed(why) if begun >= self.end => Outcome::Over(why),
            other => other,
        };
        let outcome = match outcome {
            Outcome::Over(why) => self.anew(why),
            other => other,
        };
        match outcome {
            Outcome::Renewed => {
                self.end = begun + self.span;
                self.is_said = false;
            }
            Outcome::Cancelled => eprintln!(
                "tanada: {} was ended by another command; this one goes on without",
                self.asked.name
            ),
            Outcome::Failed(_) | Outcome::Over(_) => {}
        }
        outcome
    }

    fn renew(&self) -> Outcome {
        let change = ReservationChange {
            span: Some(shown(Nanos(self.span.as_nanos() as u64))),
            ..ReservationChange::default()
        };
        match self.service.change(self.which(), &change) {
            Ok(Changed::Done(_)) => Outcome::Renewed,
            Ok(Changed::Absent) => Outcome::Over("it is no longer there".to_owned()),
            Ok(Changed::Refused(refusal)) => self.judged(words::refused_line(&refusal)),
            Err(error) => Outcome::Failed(said::words(&error)),
        }
    }

    /// Is it there, of which a change was refused?
    fn judged(&self, why: String) -> Outcome {
        let Ok(Some(now)) = self.service.get(self.which()) else {
            return Outcome::Failed(why);
        };
        match (now.state.as_str(), now.cause.as_deref()) {
            ("ended", Some(RELEASED)) => Outcome::Cancelled,
            ("ended" | "aborted", _) => Outcome::Over(why),
            _ => Outcome::Failed(why),
        }
    }

    /// Reserves under the same name, since the one that was there is over.
    fn anew(&mut self, why: String) -> Outcome {
        match self.service.create(&self.asked) {
            Ok(Made::New(made)) => self.is_now(&made),
            // Its slot ends by the daemon's clock.
            Ok(Made::Existing(made)) if made.id == self.id => Outcome::Over(why),
            Ok(Made::Existing(made)) if self.is_open => self.is_now(&made),
            Ok(Made::Existing(_)) => {
                Outcome::Over("it is over, and another one has its name by now".to_owned())
            }
            Ok(Made::Refused(refusal)) => {
                let named = Which {
                    id: &self.asked.name,
                    account: self.asked.account.as_deref(),
                };
                // Where none is there, not even one being made, the next of its name is another's.
                if let Ok(None) = self.service.get(named) {
                    self.is_open = false;
                }
                Outcome::Over(words::refused_line(&refusal))
            }
            Err(error) => {
                self.is_open = true;
                Outcome::Over(said::words(&error.into()))
            }
        }
    }

    fn is_now(&mut self, made: &WholeReservation) -> Outcome {
        self.id.clone_from(&made.id);
        self.is_open = false;
        let mut text = format!("its slot was over; reserved anew {}", words::sentence(made));
        if !made.target.stores.is_empty() {
            text.push_str("; what the command has in TANADA_CAPABILITY is over");
        }
        eprintln!("tanada: {}: {text}", self.asked.name);
        Outcome::Renewed
    }

    fn say(&mut self, why: &str) {
        if !std::mem::replace(&mut self.is_said, true) {
            eprintln!(
                "tanada: cannot renew {}: {why}; the command goes on",
                self.asked.name
            );
        }
    }

    fn which(&self) -> Which<'_> {
        Which {
            id: &self.id,
            account: None,
        }
    }
}
