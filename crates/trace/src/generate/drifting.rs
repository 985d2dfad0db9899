//! Hot spots by rules of their own: a second tiering workload, which was fitted to no published result.
//!
//! ```text
//! seed -> for each of 293 ranks its spots, one after the other: lifetime, place, drift -> two hours
//! burst -> rank (Zipf) -> its spot at this moment -> goes on where the last request ended | block (Zipf)
//! ```
//!
//! A *spot* is a GiB of the volume that is worked on, as by one job. At each moment there are as many as the
//! volume has regions, and the one of rank k gets a share of the bursts in proportion to `1 / k^theta`. When
//! a spot's life ends, another takes over its rank: at a place of its own, or at a former place of this rank.
//! While it lives it moves, up or down, and turns round at the volume's ends. Blocks that stay within it stay
//! as hot as they are; what comes in at one end takes the ranks of what goes out at the other.
//!
//! The first hour is the window before, from which static tiering learns, the second the one that is measured.
//! No rule looks at what an hour was like: spots that live on, and returns, are what the hours have in common.
//!
//! All parameters were chosen, and written down here and in `docs/generator.md`, before any method ran on this
//! workload; none was changed after.
//!
//! Source: popularity is Zipf's with 0.99, the constant of YCSB (Cooper et al., SoCC 2010, 4.1); blocks of recorded
//! traces follow Zipf's law (Yang and Zhu, ACM TOS 12(4), 2016). Of blocks within a spot the same, without a
//! parameter more: locality looks alike on every scale (McNutt, The Fractal Structure of Data Reference, 2000).
//!
//! Source: 40 % are reads, and 40 % of requests go on where the last one ended, the rest
//! random, as SPC-1 has it (described by Gill and Modha, WOW, FAST 2005, "SPC-1 Benchmark").
//!
//! Source: two phases describe gaps between requests of storage traces best (Wajahat et al.,
//! Performance Evaluation 142, 2020): short ones within a burst, long ones between bursts.
//!
//! Source: jobs of production logs come again and again, and their run times vary by more than their
//! mean (Feitelson, Packing Schemes for Gang Scheduling, JSSPP 1996; its workload model).
//!
//! Choice: lifetimes are log-normal, so that they cannot be negative and few are long. 95 % of what people and
//! programs work on lasts from two minutes to two hours; hence a median of 15 minutes (the geometric middle)
//! and a deviation of 1 of the logarithm. The coefficient of variation is then 1.31, above 1 as in the logs.
//!
//! Choice: one new spot in four comes to a former place of its rank. There is no figure for it; common
//! sense says that most work is new and much of it is not.
//!
//! Choice: drift is up to 8 GiB an hour in either direction, all speeds alike, so that a spot moves by its own
//! length in a median lifetime, as when data are read once, or appended to.
//!
//! Choice: sizes are those of profile `mixed`, half of them 4 KiB, the others 8, 16 and 64 KiB, 14.5 KiB on average.
//!
//! Choice: a burst has 8 requests on average, two for each of four disks.
//!
//! Choice: the rate is 250 requests a second. By the data sheet of the disk (3.8 ms to seek for a read, 4.4 ms for a
//! write, 3.0 ms for half a turn, 0.2 ms overhead, 0.14 ms for 14.5 KiB at 103 MB/s) a random request takes
//! 7.5 ms, so four disks are busy for 47 % of the time at most, and for 37 % if a request that goes on needs no
//! seek.
//!
//! Always true:
//! 1. At each moment each rank has exactly one spot; ranks do not depend on each other.
//! 2. No request reaches beyond the volume.
//! 3. The second hour is the same whether the first is asked for or not.

use std::collections::VecDeque;

use base::{Bytes, Nanos};
use env::Rng;

use super::chance::{self, Scatter, Zipf};
use super::clock::Arrivals;
use super::plain::SIZES;
use super::plan::REGION;
use super::profile::{HOUR, Profile};
use super::settings::{Part, Settings};
use super::source::Source;
use crate::{Op, Request};

/// The volume's regions, and the spots of one moment.
pub(super) const SPOTS: u64 = 293;
pub(super) const THETA: f64 = 0.99;
/// Half of the lifetimes are shorter.
pub(super) const MEDIAN: Nanos = Nanos::secs(15 * 60);
/// The standard deviation of a lifetime's logarithm.
pub(super) const SIGMA: f64 = 1.0;
/// Share of new spots that come to a former place of their rank, where it has one.
pub(super) const RETURNS: f64 = 0.25;
/// Blocks an hour, at most.
pub(super) const DRIFT_MAX: u64 = 8 * SPOT;
/// Share of a spot's requests that begin where its last one ended.
pub(super) const ONWARD: f64 = 0.4;

const BLOCK: u64 = 4 << 10;
/// Blocks of a spot, and of the volume.
pub(super) const SPOT: u64 = REGION / BLOCK;
const BLOCKS: u64 = SPOTS * SPOT;
/// Places at which a spot can begin.
const PLACES: u64 = BLOCKS - SPOT;

/// Where a spot begins, and how it goes on from there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// Its first block in the beginning.
    pub first: u64,
    /// Blocks an hour, upwards or downwards.
    pub drift: i64,
    /// Which of its blocks have which rank.
    ranks: Scatter,
}

impl Place {
    fn new(rng: &mut Rng) -> Place {
        Place {
            first: rng.below(PLACES),
            drift: rng.below(2 * DRIFT_MAX + 1) as i64 - DRIFT_MAX as i64,
            ranks: Scatter::new(SPOT, rng.bits()),
        }
    }
}

/// A GiB that is worked on for a while.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spot {
    /// When it takes over its rank, from the beginning of the first hour, and when it gives it up.
    pub begin: Nanos,
    pub end: Nanos,
    pub place: Place,
}

impl Spot {
    /// Its first block at a moment.
    pub(super) fn first(&self, at: Nanos) -> u64 {
        let passed = i128::from(at.saturating_sub(self.begin).0);
        let way = i128::from(self.place.drift) * passed / i128::from(HOUR.0);
        // To the end and back.
        let places = i128::from(PLACES);
        let turn = (i128::from(self.place.first) + way).rem_euclid(2 * places);
        let first = match turn < places {
            true => turn,
            false => 2 * places - 1 - turn,
        };
        first as u64
    }

    /// The block of a rank at a moment: the same one as long as it lies within the spot.
    pub(super) fn block(&self, rank: u64, at: Nanos) -> u64 {
        let first = self.first(at);
        first + (self.place.ranks.place(rank).wrapping_sub(first) & (SPOT - 1))
    }
}

/// A lifetime, log-normal about this median.
fn lifetime(rng: &mut Rng, median: f64) -> Nanos {
    Nanos((median * chance::exp(SIGMA * chance::normal(rng))) as u64)
}

/// The spots of a rank, one behind the other, through both hours.
pub(super) fn spots(seed: u64, rank: u64) -> Vec<Spot> {
    let mut rng = chance::stream(seed, &format!("drifting rank {rank}"));
    let median = MEDIAN.0 as f64;
    let mut places = vec![Place::new(&mut rng)];
    let mut number = 0;
    // The first spot is met in the midst of its life, and one that is met is a long one rather than a short
    // one: in proportion to its length, which moves the median of a log-normal distribution by this factor.
    let met = lifetime(&mut rng, median * chance::exp(SIGMA * SIGMA));
    let left = (met.0 as f64 * rng.unit()) as u64;
    let (mut begin, mut end) = (Nanos(0), Nanos(left));
    let mut spots = Vec::new();
    loop {
        spots.push(Spot {
            begin,
            end,
            place: places[number],
        });
        if end >= HOUR * 2 {
            return spots;
        }
        let others = places.len() as u64 - 1;
        if rng.chance(RETURNS) && others > 0 {
            // Any but the one that ends now.
            let other = rng.below(others) as usize;
            number = other + usize::from(other >= number);
        } else {
            number = places.len();
            places.push(Place::new(&mut rng));
        }
        begin = end;
        end = begin + lifetime(&mut rng, median);
    }
}

/// A rank at work.
struct Line {
    spots: Vec<Spot>,
    /// The spot at hand.
    at: usize,
    /// What it was asked last.
    last: Option<Request>,
}

impl Line {
    fn advance(&mut self, moment: Nanos) {
        while self.spots[self.at].end <= moment {
            self.at += 1;
            self.last = None;
        }
    }
}

/// One of the two hours.
struct Hour {
    // fixed
    begin: Nanos,
    reads: f64,
    ranks: Zipf,
    blocks: Zipf,
    // as time goes
    lines: Vec<Line>,
    /// The rank that sends the burst at hand.
    rank: usize,
    arrivals: Arrivals,
    places: Rng,
}

impl Hour {
    fn new(number: u64, settings: &Settings) -> Hour {
        let profile = Profile::Drifting;
        let seed = settings.seed;
        let line = |rank| Line {
            spots: spots(seed, rank),
            at: 0,
            last: None,
        };
        Hour {
            begin: HOUR * number,
            reads: settings.read_share_of(profile),
            ranks: Zipf::new(SPOTS, THETA),
            blocks: Zipf::new(SPOT, THETA),
            lines: (0..SPOTS).map(line).collect(),
            rank: 0,
            arrivals: Arrivals::new(
                settings.iops_of(profile),
                settings.burst_of(profile),
                chance::stream(seed, &format!("drifting hour {number} times")),
            ),
            places: chance::stream(seed, &format!("drifting hour {number} places")),
        }
    }

    /// A request anywhere in the spot.
    fn random(&mut self, spot: &Spot, at: Nanos) -> Request {
        let mut part = self.places.below(16);
        let mut sizes = SIZES.iter();
        let kib = loop {
            let (kib, parts) = sizes.next().expect("sixteen parts have a size");
            match part.checked_sub(*parts) {
                Some(rest) => part = rest,
                None => break *kib,
            }
        };
        let size = kib << 10;
        let rank = self.blocks.draw(&mut self.places);
        let block = spot.block(rank, self.begin + at);
        let is_read = self.places.chance(self.reads);
        Request {
            at,
            offset: Bytes(block * BLOCK / size * size),
            size: Bytes(size),
            device: 0,
            op: if is_read { Op::Read } else { Op::Write },
        }
    }
}

impl Source for Hour {
    fn next(&mut self) -> Option<Request> {
        self.arrivals.step();
        let at = self.arrivals.now();
        if at >= HOUR {
            return None;
        }
        if self.arrivals.begins_burst() {
            self.rank = self.ranks.draw(&mut self.places) as usize;
        }
        let line = &mut self.lines[self.rank];
        line.advance(self.begin + at);
        let spot = line.spots[line.at];
        let onward = self.places.chance(ONWARD);
        let next = line.last.filter(|_| onward).map(|last| Request {
            at,
            offset: last.offset + last.size,
            ..last
        });
        let request = next
            .filter(|next| next.offset.0 + next.size.0 <= BLOCKS * BLOCK)
            .unwrap_or_else(|| self.random(&spot, at));
        self.lines[self.rank].last = Some(request);
        Some(request)
    }
}

/// The hours asked for, one behind the other.
pub(super) struct Drifting {
    hours: VecDeque<Hour>,
    /// Where the hour at hand begins in the trace.
    shift: Nanos,
}

impl Drifting {
    pub(super) fn new(settings: &Settings) -> Drifting {
        let numbers = match settings.part.unwrap_or_default() {
            Part::Before => 0..1,
            Part::Window => 1..2,
            Part::Both => 0..2,
        };
        Drifting {
            hours: numbers.map(|number| Hour::new(number, settings)).collect(),
            shift: Nanos(0),
        }
    }
}

impl Source for Drifting {
    fn next(&mut self) -> Option<Request> {
        loop {
            if let Some(mut request) = self.hours.front_mut()?.next() {
                request.at += self.shift;
                return Some(request);
            }
            self.hours.pop_front();
            self.shift += HOUR;
        }
    }
}
