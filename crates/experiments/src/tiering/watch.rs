//! More counts of a run than every simulation has: its parts that have rows of their own, and what the tier did in
//! each minute.
//!
//! ```text
//! answer -> the parts of the run it was due in -> response times
//! every 20 s -> where the tier stands -> regions that are fast, requests served there
//! ```

use std::cell::RefCell;
use std::rc::Rc;

use base::{Bytes, Instant, Nanos};
use hybrid::{Heat, Hybrid, Status, TierStatus};
use serde::{Deserialize, Serialize};

use sim::run::{Begun, Distribution, Response, Watch};

/// How often the tier is looked at. Source: AST 4.3, which sampled its disks every 20 seconds.
pub(super) const LOOK: Nanos = Nanos::secs(20);
/// The paper's second column of table 5 leaves out what took longer.
const SHORT: Nanos = Nanos::millis(100);

/// What is placed before the trace begins is there by then.
const PLACING_TIMEOUT: Nanos = Nanos::secs(3_600);

/// One part of a run: requests due from the one time to the other.
#[derive(Clone)]
struct Part {
    from: Nanos,
    to: Nanos,
    times: Distribution,
    short: (u64, u128),
}

/// The tier at one moment.
#[derive(Debug, Clone, Default)]
pub(super) struct Look {
    /// Since the trace began.
    pub at: Nanos,
    pub status: Status,
    pub tier: TierStatus,
}

impl Look {
    /// (seconds since the trace began, regions that are fast)
    pub fn regions_up(&self) -> (f64, f64) {
        (self.at.secs_f64(), f64::from(self.tier.room.regions_up))
    }
}

/// One minute's answers, by when they were due.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct Minute {
    pub requests: u64,
    pub nanos: u128,
}

#[derive(Default)]
struct Observations {
    parts: Vec<Part>,
    minutes: Vec<Minute>,
    looks: Vec<Look>,
    begun: Instant,
    hybrid: Option<Rc<Hybrid>>,
    heat: Option<Heat>,
}

/// Looks on at one run.
pub(super) struct Watcher {
    observations: Rc<RefCell<Observations>>,
    /// What has to live on the fast device before the trace begins.
    placed: Bytes,
}

/// One part of a run, as it was seen.
pub(super) struct Account {
    pub response: Option<Response>,
    /// Of requests answered within 100 ms, in milliseconds.
    pub short_mean_ms: Option<f64>,
    /// What the hybrid counted in it.
    pub looks: Option<(Look, Look)>,
}

/// What was seen at the end.
pub(super) struct Sights {
    pub parts: Vec<Account>,
    pub minutes: Vec<Minute>,
    pub looks: Vec<Look>,
    pub heat: Option<Heat>,
}

impl Watcher {
    /// With `parts` (from, to); the trace waits until `placed` bytes live on the fast device.
    pub fn new(parts: &[(Nanos, Nanos)], placed: Bytes) -> Watcher {
        let part = |(from, to): &(Nanos, Nanos)| Part {
            from: *from,
            to: *to,
            times: Distribution::new(),
            short: (0, 0),
        };
        Watcher {
            observations: Rc::new(RefCell::new(Observations {
                parts: parts.iter().map(part).collect(),
                ..Observations::default()
            })),
            placed,
        }
    }

    /// What was seen, once the run is over.
    pub fn finish(&self) -> Sights {
        let mut observations = self.observations.borrow_mut();
        let observations = std::mem::take(&mut *observations);
        let parts = observations.parts.iter().map(|part| {
            let counted = part.times.count() > 0;
            Account {
                response: counted.then(|| part.times.response("all")),
                short_mean_ms: (part.short.0 > 0)
                    .then(|| part.short.1 as f64 / part.short.0 as f64 / 1e6),
                looks: looks_of(&observations.looks, part),
            }
        });
        Sights {
            parts: parts.collect(),
            heat: observations.heat,
            minutes: observations.minutes,
            looks: observations.looks,
        }
    }
}

/// How the hybrid stood at a part's beginning and end.
fn looks_of(looks: &[Look], part: &Part) -> Option<(Look, Look)> {
    let first = looks.iter().rfind(|look| look.at <= part.from)?;
    let last = looks
        .iter()
        .find(|look| look.at >= part.to)
        .or(looks.last())?;
    Some((first.clone(), last.clone()))
}

fn look(at: Nanos, hybrid: &Hybrid) -> Look {
    Look {
        at,
        status: hybrid.status(),
        tier: hybrid.tier().unwrap_or_default(),
    }
}

impl Watch for Watcher {
    fn begin(&self, hybrid: Option<Rc<Hybrid>>) -> Begun<'_> {
        Box::pin(async move {
            let Some(hybrid) = hybrid else { return };
            let deadline = env::now() + PLACING_TIMEOUT;
            while hybrid.tier().unwrap_or_default().room.held_bytes < self.placed.0 {
                assert!(env::now() < deadline, "what is to be placed has room");
                env::sleep(Nanos::secs(1)).await;
            }
            let begun = env::now();
            {
                let mut observations = self.observations.borrow_mut();
                observations.begun = begun;
                observations.hybrid = Some(Rc::clone(&hybrid));
            }
            let observations = Rc::downgrade(&self.observations);
            drop(env::spawn(async move {
                while let Some(observations) = observations.upgrade() {
                    let look = look(env::now().since(begun), &hybrid);
                    observations.borrow_mut().looks.push(look);
                    drop(observations);
                    env::sleep(LOOK).await;
                }
            }));
        })
    }

    fn answered(&self, due: Nanos, took: Nanos) {
        let observations = &mut *self.observations.borrow_mut();
        for part in &mut observations.parts {
            if (part.from..part.to).contains(&due) {
                part.times.record(took);
                if took <= SHORT {
                    part.short.0 += 1;
                    part.short.1 += u128::from(took.0);
                }
            }
        }
        let minute = (due.0 / Nanos::secs(60).0) as usize;
        if observations.minutes.len() <= minute {
            observations.minutes.resize(minute + 1, Minute::default());
        }
        observations.minutes[minute].requests += 1;
        observations.minutes[minute].nanos += u128::from(took.0);
    }

    fn end(&self) {
        let observations = &mut *self.observations.borrow_mut();
        if let Some(hybrid) = observations.hybrid.take() {
            observations
                .looks
                .push(look(env::now().since(observations.begun), &hybrid));
            observations.heat = hybrid.heat();
        }
    }
}
