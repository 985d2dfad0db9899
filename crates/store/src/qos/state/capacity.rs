//! What can the device be trusted to do, by its model and by what it was seen to do?
//!
//! ```text
//! intervals of the queue -> estimator -> parts of the model's speed seen -> costs that are trusted -> calendar
//! ```
//!
//! Choice: reads and writes are trusted at the speed seen for each alone, and at no more than that seen for both
//! together, so what was promised on the assumption of one kind holds when the other joins. Where too little was seen
//! what was known before stands; if the device became slower, at no more than it reached since.
//!
//! Pure: no clock, no device, nothing written.

use std::rc::Rc;

use base::Nanos;
use device::Info;
use policy::share::capacity::{Estimator, EstimatorOptions, Interval, Observed};
use policy::share::{BytesPerSec, Cost, Costs, Headroom, Mix, Probability, Share};

use crate::qos::book::record::{Calibration, Trust};

/// The guarantee is reckoned anew after so many samples.
const FRESH_MAX: u32 = 30;
/// Seconds without a request after which some data are read to see how fast the device is.
const IDLE_MAX: u32 = 20;

/// What the manager takes the device to be able to do.
pub(crate) struct Capacity {
    pub estimator: Estimator,
    /// What it was measured to do, if it was.
    pub calibration: Option<Rc<Calibration>>,
    /// By the model: configured or calibrated.
    pub costs: Costs,
    /// Of which device this is, where that is known.
    identity: Option<String>,
    /// Parts of the model's speed that reads, writes and both at once were seen to reach; `None`: not yet known.
    seen: [Option<Share>; 3],
    /// The device no longer does what it did when it was calibrated, or is another.
    pub drifted: bool,
    /// What was seen is not written down yet.
    dirty: bool,
    /// Samples since the guarantee was last reckoned.
    fresh: u32,
    /// Seconds in a row without a request to the device.
    idle_seconds: u32,
}

impl Capacity {
    /// By this model, with nothing seen yet.
    fn new(costs: Costs, calibration: Option<Rc<Calibration>>) -> Capacity {
        Capacity {
            estimator: Estimator::new(EstimatorOptions {
                // Reckoned on the data path's own thread: a quarter of what the default keeps.
                samples_max: 1024,
                ..EstimatorOptions::default()
            }),
            calibration,
            costs,
            identity: None,
            seen: [None; 3],
            drifted: false,
            dirty: false,
            fresh: 0,
            idle_seconds: 0,
        }
    }

    /// As remembered of this device; else by the `configured` costs. What is remembered of another `identity` does not
    /// count: the disk was replaced.
    pub fn remembered(
        (info, identity): (&Info, Option<&str>),
        configured: Costs,
        calibration: Option<Calibration>,
        trust: Option<Trust>,
    ) -> Capacity {
        let other = |of: Option<&str>| matches!((of, identity), (Some(of), Some(it)) if of != it);
        let known = trust.as_ref().and_then(|it| it.identity.as_deref()) == identity;
        let remembered = usize::from(calibration.is_some()) + usize::from(trust.is_some());
        let calibration = calibration.filter(|it| !other(it.identity.as_deref()));
        let trust = trust.filter(|it| !other(it.identity.as_deref()));
        let kept = usize::from(calibration.is_some()) + usize::from(trust.is_some());
        let replaced = kept < remembered;
        if replaced {
            tracing::warn!(device = %info.name, "the disk was replaced since: what the one before did does not count, and \
                a calibration is due");
        }
        let (calibration, other) = calibration_of(info, calibration);
        let costs = calibration.as_ref().map_or(configured, |it| it.costs);
        let mut capacity = Capacity::new(costs, calibration.map(Rc::new));
        if let Some(trust) = trust.filter(|it| it.costs == costs) {
            (capacity.seen, capacity.drifted) = (trust.speeds, trust.drifted);
            for (mix, speed) in MIXES.into_iter().zip(trust.speeds) {
                if let Some(speed) = speed {
                    capacity.estimator.begin_with(mix, speed);
                }
            }
        }
        capacity.drifted |= other || replaced;
        capacity.identity = identity.map(str::to_owned);
        // The disk of today is known by the next start.
        capacity.dirty |= !known;
        capacity
    }

    /// As just measured: what was seen before was reckoned by another model.
    pub fn calibrated(calibration: Calibration) -> Capacity {
        Capacity {
            dirty: true,
            identity: calibration.identity.clone(),
            ..Capacity::new(calibration.costs, Some(Rc::new(calibration)))
        }
    }

    /// Parts of the model's speed that reads and writes can be trusted to reach; `None`: not yet known.
    pub fn speeds(&self) -> (Option<Share>, Option<Share>) {
        let [reads, writes, both] = self.seen;
        let least = |alone: Option<Share>| match (alone, both) {
            (Some(alone), Some(both)) => Some(alone.min(both)),
            (alone, both) => alone.or(both),
        };
        (least(reads), least(writes))
    }

    /// What requests are trusted to cost at most.
    pub fn trusted(&self) -> Costs {
        let speeds = self.speeds();
        Costs {
            read: scaled(self.costs.read, speeds.0),
            write: scaled(self.costs.write, speeds.1),
        }
    }

    /// What must stay free; as `configured` until it was measured.
    pub fn headroom(&self, configured: &Headroom) -> Headroom {
        match &self.calibration {
            Some(it) => Headroom::new(it.points.iter().copied(), it.beyond),
            None => configured.clone(),
        }
    }

    /// Takes a second's work in. What it shows, and is the guarantee to be reckoned anew?
    pub fn observe(&mut self, interval: &Interval) -> (Observed, bool) {
        let observed = self.estimator.observe(interval);
        match observed {
            Observed::Taken(_) => self.fresh += 1,
            Observed::Drifted(..) => {
                self.drifted = true;
                self.dirty = true;
                self.fresh = FRESH_MAX;
            }
            Observed::Recovered(mix, speed) => {
                for of in [mix, Mix::Mixed] {
                    let seen = &mut self.seen[of as usize];
                    *seen = seen.map(|before| before.max(speed));
                }
                self.dirty = true;
            }
            _ => {}
        }
        (observed, self.fresh >= FRESH_MAX)
    }

    /// Reckons what the device can be trusted to do, for promises this sure. Has it changed?
    pub fn reckon(&mut self, surest: Probability) -> bool {
        self.fresh = 0;
        let before = self.seen;
        for (mix, before) in MIXES.into_iter().zip(before) {
            self.seen[mix as usize] = seen(&self.estimator, mix, surest, before);
        }
        let changed = self.seen != before;
        // So far from the figures in use that a calibration is worth its while.
        let far = |it: &Option<Share>| it.is_some_and(|it| it < Share::percent(50));
        self.drifted |= self.seen.iter().any(far);
        self.dirty |= changed;
        changed
    }

    /// Where little is trusted and nothing goes on, some data are to be read over: else nothing would ever show that the
    /// device is faster again. Is it so after another second with so much going on?
    pub fn wants_probe(&mut self, active: Nanos) -> bool {
        let mut seen = self.seen.iter().flatten();
        let low = seen.any(|speed| *speed < Share::percent(90));
        self.idle_seconds = match active.0 {
            0 => self.idle_seconds + 1,
            _ => 0,
        };
        let due = low && self.idle_seconds >= IDLE_MAX;
        if due {
            self.idle_seconds = 0;
        }
        due
    }

    /// What is to be written down, if that has changed.
    pub fn take_dirty(&mut self) -> Option<Trust> {
        std::mem::take(&mut self.dirty).then(|| Trust {
            identity: self.identity.clone(),
            costs: self.costs,
            speeds: self.seen,
            drifted: self.drifted,
        })
    }

    /// It could not be written down.
    pub fn set_dirty(&mut self) {
        self.dirty = true;
    }
}

/// What is looked at for itself, in the order in which it is kept.
pub(crate) const MIXES: [Mix; 3] = [Mix::Reads, Mix::Writes, Mix::Mixed];

/// The part of the model's speed that one mix was seen to reach; where too little was seen no more than `before`.
fn seen(
    estimator: &Estimator,
    mix: Mix,
    surest: Probability,
    before: Option<Share>,
) -> Option<Share> {
    let guarantee = || Some(estimator.guarantee(mix, surest, 1)?.speed);
    let samples = estimator.samples(mix);
    let known = match mix {
        // For both at once the least of what is known counts, from the first sample on.
        Mix::Mixed if samples == 0 => None,
        _ => guarantee(),
    };
    if samples >= EstimatorOptions::default().samples_min && known.is_some() {
        return known;
    }
    let all = [before, known, estimator.since_slower(mix)];
    all.into_iter().flatten().min()
}

/// The calibration if it is of this device, else a warning and whether it was of another.
fn calibration_of(info: &Info, found: Option<Calibration>) -> (Option<Calibration>, bool) {
    let Some(found) = found else {
        return (None, false);
    };
    let (name, size) = &found.device;
    if (name, *size) == (&info.name, info.size) {
        return (Some(found), false);
    }
    tracing::warn!(device = %info.name, size = %info.size, calibrated = %name, calibrated_size = %size,
        "the store was calibrated on another device: the configured costs count until it is calibrated on this one");
    (None, true)
}

/// What requests cost at a part of the model's speed.
fn scaled(cost: Cost, speed: Option<Share>) -> Cost {
    let Some(speed) = speed else {
        return cost;
    };
    let whole = u128::from(Share::WHOLE.0);
    let longer =
        |time: Nanos| Nanos((u128::from(time.0) * whole / u128::from(speed.0.max(1))) as u64);
    let rate = u128::from(cost.rate.0) * u128::from(speed.0) / whole;
    Cost {
        fixed: longer(cost.fixed),
        jump: longer(cost.jump),
        rate: BytesPerSec((rate as u64).max(1)),
    }
}
