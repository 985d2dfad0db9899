//! How much of the device must stay unpromised for the promises to hold?
//!
//! ```text
//! measured points (mix, sessions, window, probability -> overhead) -> what is asked -> headroom
//! ```
//!
//! Source: PROBS 4.3 (the overhead to set aside is measured, and depends on the device, the pattern and
//! the number of accesses).
//!
//! Choice: a point measured under harder conditions (more sessions, a shorter window, a surer promise,
//! both directions in place of one) holds for easier ones; between points nothing is interpolated. What is harder than every point gets
//! `beyond`.
//!
//! Always true: more sessions, a shorter window, a surer promise or a second direction never need less
//! headroom, so that a reservation that ends never leaves too little for those that stay.

use base::Nanos;

use super::{Probability, Share};

/// Which ways the promised bytes go at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mix {
    /// Only reads.
    Reads,
    /// Only writes.
    Writes,
    /// Both.
    Mixed,
}

impl Mix {
    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Mix::Reads => "reads",
            Mix::Writes => "writes",
            Mix::Mixed => "mixed",
        }
    }
}

/// Under these conditions so much had to be set aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// Which ways the bytes went.
    pub mix: Mix,
    /// Concurrent sessions.
    pub sessions: u32,
    /// The window promises were judged by.
    pub window: Nanos,
    /// The share of windows that were kept.
    pub probability: Probability,
    /// What had to be set aside.
    pub overhead: Share,
}

/// What is known about the overhead of a device.
///
/// # Example
/// ```
/// use base::Nanos;
/// use policy::share::{Headroom, Mix, Point, Probability, Share};
/// let point = |sessions, percent| Point {
///     mix: Mix::Reads,
///     sessions,
///     window: Nanos::secs(1),
///     probability: Probability::percent(99),
///     overhead: Share::percent(percent),
/// };
/// let headroom = Headroom::new([point(2, 4), point(8, 9)], Share::percent(20));
/// let at = |sessions| {
///     headroom.at(Mix::Reads, sessions, Nanos::secs(1), Probability::percent(99))
/// };
/// assert_eq!([at(1), at(2), at(3), at(9)], [4, 4, 9, 20].map(Share::percent));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Headroom {
    points: Vec<Point>,
    beyond: Share,
}

impl Headroom {
    /// Goes by `points`, and by `beyond` (or the highest of them) where none applies.
    pub fn new(points: impl IntoIterator<Item = Point>, beyond: Share) -> Headroom {
        let points: Vec<Point> = points.into_iter().collect();
        let enough = points.iter().map(|point| point.overhead);
        let highest = enough.filter(|it| *it < Share::WHOLE).max();
        Headroom {
            points,
            beyond: highest.map_or(beyond, |highest| highest.max(beyond)),
        }
    }

    /// The same under all conditions.
    pub fn flat(share: Share) -> Headroom {
        Headroom::new([], share)
    }

    /// What must stay unpromised.
    pub fn at(&self, mix: Mix, sessions: u32, window: Nanos, probability: Probability) -> Share {
        if sessions == 0 {
            return Share::NONE;
        }
        let known = |mix| {
            let as_hard = self.points.iter().filter(|point| {
                (point.mix == mix || point.mix == Mix::Mixed)
                    && point.sessions >= sessions
                    && point.window <= window
                    && point.probability >= probability
            });
            as_hard.map(|point| point.overhead).min()
        };
        // Nothing was enough under conditions that are no harder: nothing is enough here.
        let hopeless = self.points.iter().any(|point| {
            point.overhead >= Share::WHOLE
                && (point.mix == mix || mix == Mix::Mixed)
                && point.sessions <= sessions
                && point.window >= window
                && point.probability <= probability
        });
        if hopeless {
            return Share::WHOLE;
        }
        known(mix).unwrap_or(self.beyond)
    }
}

impl Default for Headroom {
    /// 20 % until the device has been measured.
    ///
    /// Source: PROBS 4.3, 5 (15 to 20 % keep violations below 10 % for about six accesses).
    fn default() -> Self {
        Headroom::flat(Share::percent(20))
    }
}
