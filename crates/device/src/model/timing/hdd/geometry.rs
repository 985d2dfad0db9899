//! Where does a sector lie on the platters, how far is it for the arm, and how long does a run take to pass?
//!
//! ```text
//! sector -> zone -> track, cylinder, angle;   distance in cylinders -> seek curve -> turns
//! ```
//!
//! Angles are fractions of a turn in 32 bits, so that going round is plain wrapping arithmetic.
//!
//! Always true: the zones follow each other without a gap, from the outer edge to the inner one.

use super::super::parameters::Mechanics;

/// One turn in the units of angles.
pub(super) const TURN: f64 = 4_294_967_296.0;

/// A seek curve `a + b sqrt(d) + c d`, d in tracks of the model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SeekCurve {
    /// Constant part in ms.
    pub a: f64,
    /// Factor of the square root in ms.
    pub b: f64,
    /// Factor of the distance in ms.
    pub c: f64,
}

impl SeekCurve {
    /// The curve through a data sheet's three figures: next track, mean over random pairs of tracks, and
    /// full stroke (`tracks`), all in ms.
    ///
    /// Over random pairs the mean distance is a third of the tracks and the mean square root 8/15 of the
    /// root of the tracks.
    ///
    /// # Example
    /// ```
    /// use device::model::SeekCurve;
    /// let read = SeekCurve::through([0.30, 3.8, 7.76], 110_715.0);
    /// assert!((read.ms(36_905.0) - 4.03).abs() < 0.01);
    /// ```
    pub fn through([next, mean, full]: [f64; 3], tracks: f64) -> SeekCurve {
        // With B = b sqrt(n) and C = c n: a + b + c = next; a + B + C = full; a + 8/15 B + C/3 = mean.
        // The second less the third, and the second less the first, leave two equations in B and C.
        let root = tracks.sqrt();
        let (p, q, r) = (7.0 / 15.0, 2.0 / 3.0, full - mean);
        let (s, t, u) = (1.0 - 1.0 / root, 1.0 - 1.0 / tracks, full - next);
        let determinant = p * t - q * s;
        let (big_b, big_c) = ((r * t - q * u) / determinant, (p * u - r * s) / determinant);
        SeekCurve {
            a: full - big_b - big_c,
            b: big_b / root,
            c: big_c / tracks,
        }
    }

    /// Time of a seek over `distance` tracks of the model, in ms; none for none.
    pub fn ms(&self, distance: f64) -> f64 {
        if distance <= 0.0 {
            return 0.0;
        }
        self.a + self.b * distance.sqrt() + self.c * distance
    }
}

/// A seek curve in turns (32.32 fixed point) over cylinders of the disk in hand.
#[derive(Clone, Copy)]
pub(super) struct Curve {
    a: f64,
    b: f64,
    c: f64,
    /// Tracks of the model per cylinder here.
    scale: f64,
}

impl Curve {
    #[inline]
    pub(super) fn turns(&self, cylinders: u32) -> u64 {
        let distance = 1.0 + f64::from(cylinders - 1) * self.scale;
        (self.a + self.b * distance.sqrt() + self.c * distance) as i64 as u64
    }
}

/// A zone: a range of cylinders whose tracks hold the same number of sectors.
struct Zone {
    first_sector: u64,
    first_track: u64,
    sectors_per_track: u64,
    nanos_per_sector: f64,
    /// Angle per sector, in 2^-32 turns.
    angle_per_sector: f64,
}

/// Where a sector lies.
#[derive(Clone, Copy)]
pub(super) struct Place {
    zone: u32,
    within: u32,
    pub(super) track: u64,
    pub(super) cylinder: u32,
    pub(super) angle: u32,
}

/// Tracks, zones and angles of one disk.
pub struct Geometry {
    zones: Vec<Zone>,
    surfaces: u64,
    pub(super) sectors: u64,
    cylinders: u64,
    model_cylinders: u64,
    /// A turn in ns.
    pub(super) turn: f64,
    switch: f64,
    /// Angle by which each track begins later than the one before.
    pub(super) skew: u32,
}

impl Geometry {
    pub(super) fn new(spec: &Mechanics, model_sectors: u64, sectors: u64) -> Geometry {
        let turn = 60e9 / spec.rpm;
        let switch = spec.switch_ms * 1e6;
        // A sustained rate counts the switch after every track: bytes = rate * (turn + switch).
        let per_track = |mb_s: f64| mb_s * (turn + switch) / 1e3 / 512.0;
        let (outer, inner) = (per_track(spec.outer_mb_s), per_track(spec.inner_mb_s));
        let cylinders_for = |sectors: u64| {
            let mean = (outer + inner) / 2.0 * spec.surfaces as f64;
            ((sectors as f64 / mean).ceil() as u64).max(1)
        };
        let cylinders = cylinders_for(sectors);
        let count = spec.zones.min(cylinders);
        let mut zones = Vec::new();
        let (mut sector, mut cylinder) = (0, 0);
        for zone in 0..count {
            let share = (zone as f64 + 0.5) / count as f64;
            let per_track = ((outer + (inner - outer) * share).round() as u64).max(1);
            zones.push(Zone {
                first_sector: sector,
                first_track: cylinder * spec.surfaces,
                sectors_per_track: per_track,
                nanos_per_sector: turn / per_track as f64,
                angle_per_sector: TURN / per_track as f64,
            });
            let next = cylinders * (zone + 1) / count;
            sector += (next - cylinder) * spec.surfaces * per_track;
            cylinder = next;
        }
        Geometry {
            zones,
            surfaces: spec.surfaces,
            sectors,
            cylinders,
            model_cylinders: cylinders_for(model_sectors),
            turn,
            switch,
            skew: (switch / turn * TURN) as u64 as u32,
        }
    }

    /// Tracks per surface of this disk.
    pub fn cylinders(&self) -> u64 {
        self.cylinders
    }

    /// Tracks per surface of the disk the model describes.
    pub fn model_cylinders(&self) -> u64 {
        self.model_cylinders
    }

    /// The first sector of a cylinder (a track of every surface, counted from the outer edge).
    ///
    /// # Panics
    /// If there is no such cylinder.
    pub fn first_sector(&self, cylinder: u64) -> base::Sector {
        assert!(
            cylinder < self.cylinders,
            "{cylinder} of {}",
            self.cylinders
        );
        let track = cylinder * self.surfaces;
        let zone = self.zones.partition_point(|zone| zone.first_track <= track) - 1;
        let zone = &self.zones[zone];
        base::Sector(zone.first_sector + (track - zone.first_track) * zone.sectors_per_track)
    }

    pub(super) fn curve(&self, seek_ms: [f64; 3]) -> Curve {
        let curve = SeekCurve::through(seek_ms, (self.model_cylinders.max(4) - 1) as f64);
        let turns = |ms: f64| ms * 1e6 / self.turn * TURN;
        let here = self.cylinders.max(3) as f64 - 2.0;
        Curve {
            a: turns(curve.a),
            b: turns(curve.b),
            c: turns(curve.c),
            scale: (self.model_cylinders.max(4) as f64 - 2.0) / here,
        }
    }

    fn zone_of(&self, sector: u64) -> usize {
        self.zones
            .partition_point(|zone| zone.first_sector <= sector)
            - 1
    }

    #[inline]
    pub(super) fn place(&self, sector: u64) -> Place {
        let index = self.zone_of(sector);
        let zone = &self.zones[index];
        let from = sector - zone.first_sector;
        let (track, within) = (from / zone.sectors_per_track, from % zone.sectors_per_track);
        let track = zone.first_track + track;
        let angle = (within as f64 * zone.angle_per_sector) as u64 as u32;
        Place {
            zone: index as u32,
            within: within as u32,
            track,
            cylinder: (track / self.surfaces) as u32,
            angle: angle.wrapping_add((track as u32).wrapping_mul(self.skew)),
        }
    }

    /// Time for `sectors` to pass under the heads from `place` on, in ns: the sectors themselves and a
    /// switch at every track boundary within.
    #[inline]
    pub(super) fn pass(&self, place: Place, sectors: u64) -> f64 {
        let (mut index, mut within) = (place.zone as usize, u64::from(place.within));
        let mut track = place.track;
        let mut left = sectors;
        let mut nanos = 0.0;
        while left > 0 {
            let zone = &self.zones[index];
            let end_track = self.zones.get(index + 1).map(|next| next.first_track);
            let room = match end_track {
                Some(end) => (end - track) * zone.sectors_per_track - within,
                None => left,
            };
            let taken = left.min(room);
            let mut switches = (within + taken - 1) / zone.sectors_per_track;
            left -= taken;
            if left > 0 {
                // Into the next zone: one more switch.
                switches += 1;
                track = end_track.unwrap_or(track);
                within = 0;
                index += 1;
            }
            nanos += taken as f64 * zone.nanos_per_sector + switches as f64 * self.switch;
        }
        nanos
    }

    /// How many sectors have passed after `nanos` from `place` on (within the zone; enough for a buffer).
    #[inline]
    pub(super) fn passed(&self, place: Place, nanos: f64) -> u64 {
        let zone = &self.zones[place.zone as usize];
        let within = f64::from(place.within);
        let per_track = zone.sectors_per_track as f64;
        let period = self.turn + self.switch;
        let since_track_start = nanos + within * zone.nanos_per_sector;
        let tracks = (since_track_start / period) as u64;
        let rest = since_track_start - tracks as f64 * period;
        let on_track = (rest / zone.nanos_per_sector).min(per_track);
        (tracks as f64 * per_track + on_track - within).max(0.0) as u64
    }
}
