//! What is asked of a run: a stack, and how a trace is replayed on it.
//!
//! Values and their refusals only; `drive` carries them out.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use base::{Bytes, Nanos};
use device::model::{Spec, SpecError};
use device::{DeviceError, StripeError};
use hybrid::OpenError;
use serde::Serialize;
use trace::TraceError;

use super::layout::{Layout, LayoutError};

/// What is put under the trace: models, what is made of them, and which of it the trace is replayed on.
#[derive(Debug, Clone)]
pub struct Stack {
    /// Its name in tables and charts.
    pub name: String,
    /// The devices.
    pub devices: Vec<Modelled>,
    /// Devices that are used as one.
    pub stripes: Vec<Stripe>,
    /// What is made of them, each after those it stands on.
    pub hybrids: Vec<Made>,
    /// Which device, stripe or hybrid the trace is replayed on.
    pub volume: String,
    /// The configuration it came from, to repeat it.
    pub config: String,
}

/// A device of a stack.
#[derive(Debug, Clone)]
pub struct Modelled {
    /// Its name.
    pub name: String,
    /// The model.
    pub spec: Spec,
    /// How much it holds.
    pub size: Bytes,
}

/// Devices of a stack used as one: chunks dealt out in turn.
#[derive(Debug, Clone)]
pub struct Stripe {
    /// Its name.
    pub name: String,
    /// The devices, in order.
    pub members: Vec<String>,
    /// What each gets before it is the next one's turn.
    pub chunk: Bytes,
}

/// A hybrid of a stack.
#[derive(Debug, Clone)]
pub struct Made {
    /// Its name is in here.
    pub settings: hybrid::Settings,
    /// The slow device, stripe or hybrid.
    pub slow: String,
    /// The fast one.
    pub fast: String,
}

impl Stack {
    /// The stack of one device alone.
    pub fn bare(name: &str, spec: &Spec, size: Bytes) -> Stack {
        Stack {
            name: name.to_owned(),
            devices: vec![Modelled {
                name: name.to_owned(),
                spec: spec.clone(),
                size,
            }],
            stripes: Vec::new(),
            hybrids: Vec::new(),
            volume: name.to_owned(),
            config: String::new(),
        }
    }

    /// The device or stripe that gives the volume its size: the slow one of the slow one, down to the ground.
    fn ground(&self) -> &str {
        let mut name = self.volume.as_str();
        // A hybrid stands only on what comes before it, so going down ends.
        for hybrid in self.hybrids.iter().rev() {
            if hybrid.settings.name == name {
                name = &hybrid.slow;
            }
        }
        name
    }

    fn device_at(&self, name: &str) -> Option<usize> {
        self.devices.iter().position(|device| device.name == name)
    }

    /// How much the volume holds; zero if the stack has no such volume.
    pub fn volume_size(&self) -> Bytes {
        let ground = self.ground();
        let size = |name: &str| self.device_at(name).map(|index| self.devices[index].size);
        match self.stripes.iter().find(|stripe| stripe.name == ground) {
            Some(stripe) => {
                let sizes: Option<Vec<Bytes>> =
                    stripe.members.iter().map(|name| size(name)).collect();
                sizes.map_or(Bytes(0), |sizes| {
                    device::striped::size_of(&sizes, stripe.chunk)
                })
            }
            None => size(ground).unwrap_or_default(),
        }
    }

    /// Gives the volume's slow device at least `size`, in whole MiB; of a stripe each member its part. A modelled disk
    /// of another size keeps its seek times and rates (see docs/models.md).
    pub fn grow(&mut self, size: Bytes) {
        let ground = self.ground().to_owned();
        let stripe = self.stripes.iter().find(|stripe| stripe.name == ground);
        let (names, part) = match stripe {
            Some(stripe) => {
                let members = stripe.members.len() as u64;
                let row = (stripe.chunk * members).0;
                (
                    stripe.members.clone(),
                    Bytes(size.0.next_multiple_of(row) / members),
                )
            }
            None => (vec![ground], size),
        };
        for name in names {
            if let Some(index) = self.device_at(&name) {
                let device = &mut self.devices[index];
                device.size = device.size.max(Bytes(part.0.next_multiple_of(1 << 20)));
            }
        }
    }
}

/// When requests come.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "loop", rename_all = "kebab-case")]
pub enum Pace {
    /// At their times in the trace, so many times as fast.
    Open {
        /// 1: as recorded; 2: in half the time.
        speed: f64,
    },
    /// As fast as possible: so many are always under way.
    Closed {
        /// How many.
        depth: usize,
    },
}

/// What comes before the measurement: done like the rest, counted nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WarmUp {
    /// Nothing.
    #[default]
    None,
    /// So many requests.
    Requests(u64),
    /// What comes in so much time: of the trace over the speed, or of the run in a closed loop.
    #[serde(serialize_with = "nanos")]
    For(Nanos),
}

fn nanos<S: serde::Serializer>(span: &Nanos, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_u64(span.0)
}

/// How a trace is replayed.
#[derive(Debug, Clone, PartialEq)]
pub struct Replay {
    /// When requests come.
    pub pace: Pace,
    /// What is not measured.
    pub warm_up: WarmUp,
    /// At most so many requests, the warm-up among them; the rest of the trace is not read.
    pub limit: Option<u64>,
    /// At most so many requests are under way in an open loop; what comes while so many are waits outside, and
    /// its response time counts from when it should have come.
    pub under_way_max: usize,
    /// Where on the volume a request of the trace goes.
    pub layout: Layout,
    /// The least length of a point of the series; none: as it comes out best.
    pub interval: Option<Nanos>,
    /// Is the map of regions over time wanted?
    pub heat: bool,
    /// Of all chance: where platters stand, and such.
    pub seed: u64,
}

impl Default for Replay {
    fn default() -> Replay {
        Replay {
            pace: Pace::Open { speed: 1.0 },
            warm_up: WarmUp::None,
            limit: None,
            under_way_max: 1024,
            layout: Layout::default(),
            interval: None,
            heat: false,
            seed: 1,
        }
    }
}

/// The longest a trace may last over its speed. Choice: 100 years; a clock of 64 bits ends after 584, and a slow
/// stack is not done when the last request comes.
pub(super) const LONGEST: Nanos = Nanos::secs(100 * YEAR as u64);
/// In seconds.
const YEAR: f64 = 365.0 * 86_400.0;

fn years(seconds: f64) -> String {
    match seconds / YEAR {
        years @ ..1e6 => format!("{years:.1} years"),
        years => format!("{years:.0e} years"),
    }
}

/// Why a trace was not replayed to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A request has no place on the volume.
    #[error("stack {stack}: {source}")]
    Layout {
        /// The stack.
        stack: String,
        /// Which request, and what to do.
        source: Box<LayoutError>,
    },
    /// A model cannot be made.
    #[error("stack {stack}: device {device}: {source}")]
    Model {
        /// The stack.
        stack: String,
        /// The device.
        device: String,
        /// What the model says.
        source: Box<SpecError>,
    },
    /// A stripe cannot be made.
    #[error("stack {stack}: {source}")]
    Stripe {
        /// The stack.
        stack: String,
        /// What is wrong with it.
        source: StripeError,
    },
    /// The hybrid cannot be made.
    #[error("stack {stack}: {source}")]
    Hybrid {
        /// The stack.
        stack: String,
        /// What the engine says.
        source: Box<OpenError>,
    },
    /// A name leads nowhere.
    #[error("stack {stack}: there is no device, stripe or hybrid '{name}'")]
    Name {
        /// The stack.
        stack: String,
        /// The name.
        name: String,
    },
    /// A model or the engine refused a request.
    #[error("stack {stack}: {source}")]
    Device {
        /// The stack.
        stack: String,
        /// What was refused.
        source: Box<DeviceError>,
    },
    /// Nothing was measured.
    #[error(
        "nothing was measured: the trace has {requests} requests that can be replayed, and the warm-up took them \
         all; take a shorter warm-up"
    )]
    OnlyWarmUp {
        /// Requests of the warm-up.
        requests: u64,
    },
    /// The trace has nothing to replay.
    #[error(
        "nothing was measured: the trace has no request that can be replayed ({left_out} were left out)"
    )]
    Empty {
        /// Requests left out.
        left_out: u64,
    },
    /// A request is due later than any run lasts.
    #[error(
        "stack {stack}: a request of the trace comes {} after the first, at speed {} that is after {}, and a run takes \
         at most {}: see whether the trace's unit of time is what it was taken for (--tick), take less of it (--end), \
         or choose a higher speed",
        years(at.secs_f64()), at.secs_f64() / due, years(*due), LONGEST.secs_f64() / YEAR
    )]
    TooLong {
        /// The stack.
        stack: String,
        /// When it comes in the trace, after the first request that was taken.
        at: Nanos,
        /// The same over the speed, in seconds: more than a [`Nanos`] may hold.
        due: f64,
    },
    /// A speed or depth that makes no sense.
    #[error("{what} = {value} makes no sense: it must be {must}")]
    Replay {
        /// What was asked.
        what: &'static str,
        /// The value.
        value: String,
        /// What would do.
        must: &'static str,
    },
}

/// What is done before a trace begins.
pub type Begun<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Looks on while a trace is replayed, in its virtual time.
pub trait Watch {
    /// The stack stands, and the trace begins when this is done; `hybrid` is the volume, if it is one.
    fn begin(&self, hybrid: Option<Rc<hybrid::Hybrid>>) -> Begun<'_>;

    /// A request that was due `due` after the first one has been answered, `took` after it was due.
    fn answered(&self, due: Nanos, took: Nanos);

    /// The last answer has come.
    fn end(&self);
}

impl Replay {
    pub(super) fn check(&self) -> Result<(), RunError> {
        let refuse = |what, value: String, must| Err(RunError::Replay { what, value, must });
        match self.pace {
            Pace::Open { speed } if !(speed.is_finite() && speed > 0.0) => {
                return refuse("speed", speed.to_string(), "a number above 0");
            }
            Pace::Closed { depth } if !(1..=65_536).contains(&depth) => {
                return refuse("closed", depth.to_string(), "1 to 65536 requests");
            }
            _ => {}
        }
        if !(1..=65_536).contains(&self.under_way_max) {
            let value = self.under_way_max.to_string();
            return refuse("in_flight", value, "1 to 65536 requests");
        }
        match self.interval {
            Some(Nanos(0)) => refuse("interval", "0".to_owned(), "longer than nothing"),
            _ => Ok(()),
        }
    }
}
