//! Where is the head, and how long does it take from there to a sector?
//!
//! ```text
//! moment -> angle under the head;  place -> seek along the curve, then the wait until it comes round
//! ```
//!
//! The angle at a moment is one multiplication; a way costs a square root and a few additions.
//!
//! Always true: the arm is over one track, the one of the last sector that passed.

use base::{Bytes, Instant};

use super::super::parameters::Mechanics;
use super::geometry::{Curve, Geometry, Place, TURN};

/// An angle missed by less than this fraction of a turn (1.7 us at 7,200 rpm) counts as met: times are
/// rounded to nanoseconds, angles to 2^-32 of a turn.
const SLACK: u32 = (TURN / 5_000.0) as u32;

/// The platters and the arm over them.
pub(super) struct Arm {
    pub(super) geometry: Geometry,
    read_curve: Curve,
    write_curve: Curve,
    turns_per_nano: u64,
    /// The angle under the head at moment zero.
    phase: u32,

    track: u64,
    cylinder: u32,
}

impl Arm {
    /// At the outer edge; `seed` chooses where the platters stand.
    pub(super) fn new(spec: &Mechanics, model_size: Bytes, size: Bytes, seed: u64) -> Arm {
        let geometry = Geometry::new(spec, model_size.sectors(), size.sectors());
        Arm {
            read_curve: geometry.curve(spec.read_seek_ms),
            write_curve: geometry.curve(spec.write_seek_ms),
            // 2^64 / turn: the product with a time in ns wraps once a turn; its upper half is the angle.
            turns_per_nano: (TURN * TURN / geometry.turn) as u64,
            // Any odd multiplier spreads small seeds over the turn.
            phase: (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32,
            track: 0,
            cylinder: 0,
            geometry,
        }
    }

    /// The angle under the head.
    #[inline]
    pub(super) fn angle_at(&self, at: Instant) -> u32 {
        ((at.0.wrapping_mul(self.turns_per_nano) >> 32) as u32).wrapping_add(self.phase)
    }

    /// How long so many units of angle take.
    #[inline]
    pub(super) fn nanos(&self, turns: u64) -> u64 {
        (turns as f64 * (self.geometry.turn / TURN)).round() as u64
    }

    /// The angle that passes in so many ns.
    #[inline]
    pub(super) fn turns(&self, nanos: f64) -> u64 {
        (nanos / self.geometry.turn * TURN) as u64
    }

    /// Arm time to `place` and from there the wait until it comes round, both in turns, when the way
    /// begins at angle `angle`.
    #[inline]
    pub(super) fn access(&self, place: &Place, write: bool, angle: u32) -> (u64, u64) {
        let distance = place.cylinder.abs_diff(self.cylinder);
        let seek = if distance != 0 {
            let curve = if write {
                &self.write_curve
            } else {
                &self.read_curve
            };
            curve.turns(distance)
        } else if place.track != self.track {
            u64::from(self.geometry.skew)
        } else {
            0
        };
        let wait = place.angle.wrapping_sub(angle.wrapping_add(seek as u32));
        let wait = if wait > u32::MAX - SLACK { 0 } else { wait };
        (seek, u64::from(wait))
    }

    /// The head has passed `sector`, and is over its track.
    #[inline]
    pub(super) fn passed(&mut self, sector: u64) {
        let last = self.geometry.place(sector);
        self.track = last.track;
        self.cylinder = last.cylinder;
    }
}
