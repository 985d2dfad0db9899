//! What is a way from one host to another like?
//!
//! A link has a direction: how long a message is under way, how often one is lost, comes twice or is held back.

use base::Nanos;

use crate::Rng;

/// How long a message is under way, its size aside.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Delay {
    /// Always the same.
    Fixed(Nanos),
    /// Any span from the first to the second, each as likely.
    Uniform(Nanos, Nanos),
    /// At least `least`, and on average `tail` more, seldom far more.
    Exponential {
        /// The shortest.
        least: Nanos,
        /// Mean of what is added.
        tail: Nanos,
    },
}

/// What happens on the way from one host to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Time under way.
    pub delay: Delay,
    /// Bytes a second; `None` for no limit.
    pub bandwidth: Option<u64>,
    /// Chance that a datagram, or a segment of a stream at each try, is lost.
    pub loss: f64,
    /// Chance that a datagram comes twice.
    pub duplication: f64,
    /// Chance that a datagram is held back, so that others overtake it. Those not held back keep order.
    pub reordering: f64,
    /// Longest time a datagram is held back.
    pub held_back: Nanos,
}

impl Link {
    /// A good local network: 50 to 100 us, nothing lost.
    pub const LAN: Link = Link {
        delay: Delay::Uniform(Nanos::micros(50), Nanos::micros(100)),
        bandwidth: None,
        loss: 0.0,
        duplication: 0.0,
        reordering: 0.0,
        held_back: Nanos::millis(1),
    };

    /// From a host to itself: 5 us, nothing lost.
    pub const LOOPBACK: Link = Link {
        delay: Delay::Fixed(Nanos::micros(5)),
        ..Link::LAN
    };
}

impl Delay {
    pub(super) fn draw(self, chance: &mut Rng) -> Nanos {
        match self {
            Delay::Fixed(span) => span,
            Delay::Uniform(least, most) => {
                least + Nanos(chance.below(most.saturating_sub(least).0 + 1))
            }
            Delay::Exponential { least, tail } => {
                // `unit` is below 1, so the logarithm is finite.
                let factor = -(1.0 - chance.unit()).ln();
                least + Nanos((tail.0 as f64 * factor) as u64)
            }
        }
    }
}
