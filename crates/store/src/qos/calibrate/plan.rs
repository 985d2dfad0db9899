//! What is measured, in which order, and for how long.

use base::{Bytes, Nanos};
use policy::share::{Mix, Probability, Share};

use super::error::CalibrateError;

/// The paper's I/O.
pub(super) const IO: Bytes = Bytes::mib(1);
/// Streams that are served in turn when costs are measured.
pub(super) const STREAMS: u32 = 4;

/// What is measured and how long it may take.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Lengths whose costs are measured, the quantum last; longer ones come in pieces.
    pub sizes: Vec<Bytes>,
    /// How long each.
    pub probe: Nanos,
    /// Which ways the promised bytes go.
    pub mixes: Vec<Mix>,
    /// Concurrent sessions.
    pub sessions: Vec<u32>,
    /// The window and the share of windows that are to be kept.
    pub window: Nanos,
    /// See `window`.
    pub probability: Probability,
    /// Windows in each trial.
    pub windows: u64,
    /// Overheads that are tried lie so far apart.
    pub step: Share,
    /// No overhead beyond is tried.
    pub most: Share,
    /// Room for its objects, of all sessions together.
    pub room: Bytes,
    /// When it ends at the latest; what was not measured by then is left out.
    pub budget: Nanos,
}

impl Plan {
    /// About a quarter of an hour at most: 4 and 32 sessions, 10 windows of a second, steps of 4 %.
    pub fn quick() -> Plan {
        Plan {
            sizes: [32, 64, 128, 256].map(Bytes::kib).to_vec(),
            probe: Nanos::secs(1),
            mixes: vec![Mix::Reads, Mix::Writes, Mix::Mixed],
            sessions: vec![4, 32],
            window: Nanos::secs(1),
            probability: Probability::default(),
            windows: 10,
            step: Share::percent(4),
            most: Share::percent(60),
            room: Bytes::gib(1),
            budget: Nanos::secs(900),
        }
    }

    /// Some hours: 2 to 64 sessions, 60 windows, steps of 1 %.
    pub fn full() -> Plan {
        Plan {
            probe: Nanos::secs(5),
            sessions: vec![2, 8, 32, 64],
            windows: 60,
            step: Share::percent(1),
            room: Bytes::gib(4),
            budget: Nanos::secs(4 * 3600),
            ..Plan::quick()
        }
    }

    /// The longest it may take.
    pub fn longest(&self) -> Nanos {
        let trial = self.window * (2 * self.windows + 1);
        let lengths = 2 * (self.sizes.len() as u64 + 1);
        self.budget + trial + self.probe * 2 * lengths
    }
}

/// Streams a plan needs.
pub fn streams(plan: &Plan) -> Result<u32, CalibrateError> {
    let most = plan.sessions.iter().copied().max();
    let most = most.ok_or(CalibrateError::Plan("it has no number of sessions"))?;
    if plan.sizes.len() < 2 || plan.sizes.iter().any(|size| *size > IO || size.0 == 0) {
        return Err(CalibrateError::Plan(
            "costs take two lengths or more, of at most 1 MiB",
        ));
    }
    if plan.sessions.contains(&0) || plan.step.0 == 0 || plan.windows == 0 || plan.probe.0 == 0 {
        return Err(CalibrateError::Plan("nothing of it may be zero"));
    }
    Ok(most.max(STREAMS))
}

/// What holds for many sessions holds for few, so these points say most if the time runs out.
pub(super) fn hardest_first(plan: &Plan) -> Vec<(u32, Mix)> {
    let mut sessions = plan.sessions.clone();
    sessions.sort_unstable_by(|a, b| b.cmp(a));
    let cells = sessions
        .into_iter()
        .flat_map(|sessions| plan.mixes.iter().map(move |mix| (sessions, *mix)));
    cells.collect()
}

/// Half as many violated windows as the promise allows.
pub(super) fn enough(plan: &Plan, (windows, violated): (u64, u64)) -> bool {
    let miss = 1.0 - plan.probability.as_f64();
    violated as f64 <= (windows as f64 * miss / 2.0).floor()
}
