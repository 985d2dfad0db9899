//! Where and when a tiering workload is hot: the hot spots of one window.
//!
//! ```text
//! seed -> lifetimes and sizes in strata -> places (new, or hot before) -> hot spots on each track
//!                                                                            |
//!                                              front of a spot at a moment <-+
//! ```
//!
//! A *hot spot* is a group of adjacent regions that takes a good part of all I/O for some minutes. Within it
//! the I/O stands in a narrow *front* that drifts through the group, turning round at its ends. A *track* is
//! hot spots one after the other, without a gap; a workload has a few tracks at a time.
//!
//! Source: AST 2.1 (sizes, lifetimes, return of hot spots; hot places move to neighbours).
//!
//! Choice: the paper gives of lifetimes 83 % >= 3 minutes and about 50 % >= 10, of sizes a mean of 6 GB and a
//! 90th percentile of 12; the distributions between are straight lines through these points. Long-lived spots
//! are the large ones, as drift makes them.
//!
//! Always true:
//! 1. Spots of one track do not overlap in time; spots of one moment do not share a region.
//! 2. No spot of a window lies on or beside one of the hottest regions of the window before.
//! 3. Of six spots of a plan in a row one lives below 3 minutes and three 10 or longer (unless cut off).

use base::Nanos;
use env::Rng;

use super::chance::{self, Strata};
use super::shapes::Shape;

/// The size of a region: the published sub-LUN.
pub const REGION: u64 = 1 << 30;
const MINUTE: u64 = 60_000_000;

/// Lifetimes in minutes at the sixths of their distribution.
const LIFETIMES: [f64; 7] = [1.0, 3.0, 6.0, 10.0, 13.0, 17.0, 28.0];
/// Sizes in regions at the sixths.
const SIZES: [f64; 7] = [0.0, 1.0, 2.8, 4.8, 7.0, 10.0, 15.0];

/// So many of a window's hottest regions stay cold in the next. Static tiering places 24; which of them are
/// the hottest in the end is certain only when the window is over, hence three times as many.
///
/// Choice: the paper says that static tiering got 1 %, which is what 24 of 293 regions take of the background.
const AVOIDED: usize = 72;

/// A place is hot again only after so long: before, it would be the same spot that paused.
const COLD: Nanos = Nanos::secs(600);

/// A group of adjacent regions that takes much of the I/O for some minutes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HotSpot {
    /// When it begins, from the start of its window.
    pub begin: Nanos,
    /// When it ends.
    pub end: Nanos,
    /// Its lifetime had the window not ended before.
    pub lifetime: Nanos,
    /// Its first region (of 1 GiB, counted from 0).
    pub region: u32,
    /// How many adjacent regions.
    pub regions: u32,
    /// Was this place hot before in the same window?
    pub again: bool,
    /// Does it repeat the window's opening, request for request?
    pub repeat: bool,
    /// How far its front drifts in a minute, in bytes.
    pub drift: u64,
    /// Where the front begins on its way to the upper end and back, in bytes.
    pub(super) phase: u64,
}

impl HotSpot {
    /// Where the front stands at a moment: the byte of the volume it has reached.
    pub fn front(&self, at: Nanos) -> u64 {
        let length = u64::from(self.regions) * REGION;
        let minutes = u128::from(at.saturating_sub(self.begin).0 / 1_000);
        let way = self.phase + (minutes * u128::from(self.drift) / u128::from(MINUTE)) as u64;
        // To the end and back.
        let turn = way % (2 * length);
        let within = match turn < length {
            true => turn,
            false => 2 * length - 1 - turn,
        };
        u64::from(self.region) * REGION + within
    }

    /// The regions it covers.
    pub fn span(&self) -> std::ops::Range<u32> {
        self.region..self.region + self.regions
    }

    fn is_near(&self, span: &std::ops::Range<u32>) -> bool {
        self.region <= span.end && span.start <= self.region + self.regions
    }
}

/// The hot spots of one window.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    /// For each track its spots in order of time.
    pub(super) tracks: Vec<Vec<HotSpot>>,
}

/// Draws lifetimes, sizes and whether a place was hot before.
struct Draws {
    rng: Rng,
    strata: Strata,
    /// Grows by the share of returns with each spot; at 1 the next is one.
    returns: f64,
}

fn at(points: &[f64; 7], u: f64) -> f64 {
    let stratum = ((u * 6.0) as usize).min(5);
    points[stratum] + (points[stratum + 1] - points[stratum]) * (u * 6.0 - stratum as f64)
}

impl Draws {
    /// Lifetime in microseconds and size in regions.
    fn spot(&mut self) -> (u64, u32) {
        let stratum = self.strata.stratum(&mut self.rng);
        let minutes = at(&LIFETIMES, self.strata.within(stratum, &mut self.rng));
        let regions = at(&SIZES, self.strata.within(stratum, &mut self.rng));
        let lifetime = (minutes * MINUTE as f64) as u64;
        (lifetime, (regions.ceil() as u32).max(1))
    }
}

impl Plan {
    /// The plan of a window that leaves some regions cold.
    pub(super) fn new(shape: &Shape, name: &str, seed: u64, avoided: &[u32]) -> Plan {
        let mut draws = Draws {
            rng: chance::stream(seed, name),
            strata: Strata::new(6),
            returns: 0.5,
        };
        let mut tracks: Vec<Vec<HotSpot>> = vec![Vec::new(); shape.tracks.len()];
        let window = shape.minutes * MINUTE;
        let repeated = shape.repeated_minutes * MINUTE;
        let until = window - repeated;
        // The track that ends first goes on first, so that spots come in order of time.
        loop {
            let end = |track: &Vec<HotSpot>| track.last().map_or(0, |spot| spot.end.0 / 1_000);
            let Some((track, begin)) = (0..tracks.len())
                .map(|track| (track, end(&tracks[track])))
                .min_by_key(|(track, end)| (*end, *track))
                .filter(|(_, end)| *end < until)
            else {
                break;
            };
            let spot = next_spot(shape, &mut draws, &tracks, avoided, begin, until);
            tracks[track].push(spot);
        }
        for track in &mut tracks {
            let opening: Vec<HotSpot> = track
                .iter()
                .filter(|spot| spot.begin.0 / 1_000 < repeated)
                .map(|spot| {
                    let moved = Nanos::micros(until);
                    let end = (spot.end + moved).min(Nanos::micros(window));
                    HotSpot {
                        begin: spot.begin + moved,
                        end,
                        again: true,
                        repeat: true,
                        ..*spot
                    }
                })
                .collect();
            track.extend(opening);
        }
        Plan { tracks }
    }

    /// The regions that take the most requests: [`AVOIDED`] of them.
    pub(super) fn hottest(&self, shape: &Shape) -> Vec<u32> {
        let mut load = vec![0.0; shape.regions as usize];
        for (track, share) in self.tracks.iter().zip(shape.tracks) {
            for spot in track {
                let time = (spot.end.0 - spot.begin.0) as f64;
                for region in spot.span() {
                    load[region as usize] += share * time / f64::from(spot.regions);
                }
            }
        }
        let mut order: Vec<u32> = (0..shape.regions).collect();
        order.sort_by(|a, b| load[*b as usize].total_cmp(&load[*a as usize]));
        order.truncate(AVOIDED);
        order
    }

    /// All spots in order of their beginning.
    pub(super) fn spots(&self) -> Vec<HotSpot> {
        let mut spots: Vec<HotSpot> = self.tracks.iter().flatten().copied().collect();
        spots.sort_by_key(|spot| (spot.begin.0, spot.region));
        spots
    }
}

fn next_spot(
    shape: &Shape,
    draws: &mut Draws,
    tracks: &[Vec<HotSpot>],
    avoided: &[u32],
    begin: u64,
    until: u64,
) -> HotSpot {
    let (lifetime, mut regions) = draws.spot();
    let begin_at = Nanos::micros(begin);
    let ended = |spot: &&HotSpot| spot.end <= begin_at;
    let cold = |spot: &&HotSpot| spot.end + COLD <= begin_at;
    draws.returns += shape.returns;
    // A place that was hot before in this window, the one whose size fits best; it is hot in full again.
    let old = match draws.returns >= 1.0 {
        true => tracks
            .iter()
            .flatten()
            .filter(cold)
            // What hangs on to a spot that still lives would be one spot with it.
            .filter(|spot| {
                let alive = tracks.iter().flatten().filter(|other| !ended(other));
                !alive.clone().any(|other| other.is_near(&spot.span()))
            })
            .filter(|spot| spot.regions.abs_diff(regions) <= 1 + regions / 5)
            .min_by_key(|spot| (spot.regions.abs_diff(regions), spot.begin.0)),
        false => None,
    };
    let (region, again) = match old {
        Some(spot) => {
            draws.returns -= 1.0;
            regions = spot.regions;
            (spot.region, true)
        }
        None => new_place(shape, draws, tracks, avoided, begin_at, regions),
    };
    let (slow, fast) = (shape.front.drift_mib.0 << 20, shape.front.drift_mib.1 << 20);
    let drift = slow + draws.rng.below(fast - slow + 1);
    // At the one end or at the other.
    let length = u64::from(regions) * REGION;
    let phase = draws.rng.below(2) * length;
    HotSpot {
        begin: begin_at,
        end: Nanos::micros((begin + lifetime).min(until)),
        lifetime: Nanos::micros(lifetime),
        region,
        regions,
        again,
        repeat: false,
        drift,
        phase,
    }
}

/// A place that was not hot, neither in this window nor in the one before; where the volume has no such
/// place left, one of this window's old places, if need be in part.
fn new_place(
    shape: &Shape,
    draws: &mut Draws,
    tracks: &[Vec<HotSpot>],
    avoided: &[u32],
    begin: Nanos,
    regions: u32,
) -> (u32, bool) {
    let all = || tracks.iter().flatten();
    let near = |region: u32, spot: &HotSpot| spot.is_near(&(region..region + regions));
    let bases: Vec<u32> = (0..=shape.regions - regions)
        .filter(|region| {
            // Beside is too near: a front looks beyond its group's end.
            let mut old = avoided.iter();
            !old.any(|old| (*region..region + regions + 2).contains(&(old + 1)))
        })
        .collect();
    let fresh: Vec<u32> = bases
        .iter()
        .copied()
        .filter(|region| !all().any(|spot| near(*region, spot)))
        .collect();
    if !fresh.is_empty() {
        return (fresh[draws.rng.below(fresh.len() as u64) as usize], false);
    }
    let old: Vec<u32> = bases
        .into_iter()
        .filter(|region| {
            let mut alive = all().filter(|spot| spot.end > begin);
            !alive.any(|spot| near(*region, spot))
        })
        .collect();
    assert!(
        !old.is_empty(),
        "{} regions have room for hot spots beside those of the window before",
        shape.regions
    );
    (old[draws.rng.below(old.len() as u64) as usize], true)
}
