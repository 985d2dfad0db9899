//! The two workloads of the tiering paper's evaluation, as far as it describes them.
//!
//! ```text
//! plan of hot spots --\
//! bursts in time ------+-> which place -> a piece of a slot -> its requests
//! background ---------/
//! ```
//!
//! The volume is cut into pages of 64 MiB and those into *slots* of 64 KiB, cut into *pieces*: one or a few
//! requests of one size, one behind the other. What lies where is fixed; a stream that comes to a piece again sends the
//! same requests. A front that passes a page takes pieces that were not taken before, in no visible order, as
//! long as the page has some.
//!
//! Source: AST 2.1, 4.1 (table 2), 4.2, 4.3.
//!
//! Always true:
//! 1. The same profile and seed give the same requests, bit for bit.
//! 2. The window is the same whether the window before it is asked for or not.
//! 3. Memory does not depend on how many requests are taken.

use base::{Bytes, Nanos};
use env::Rng;

use super::chance::{self, Burst, Scatter};
use super::clock::Clock;
use super::plan::{HotSpot, Plan, REGION};
use super::settings::Part;
use super::shapes::{Layout, SLOT, Shape};
use super::source::Source;
use crate::{Op, Request};

const PAGE: u64 = 64 << 20;
const SLOTS_PER_PAGE: u64 = PAGE / SLOT;
/// Pieces a slot is numbered in; most have fewer.
const PIECES: u64 = 16;
const PIECES_PER_PAGE: u64 = SLOTS_PER_PAGE * PIECES;
const PAGES_PER_REGION: u64 = REGION / PAGE;
const MINUTE: Nanos = Nanos::secs(60);
/// Load of a minute relative to the mean, least and most.
const LOADS: (f64, f64) = (0.8, 1.2);

/// A track at work.
struct Track {
    spots: Vec<HotSpot>,
    /// The spot at hand.
    at: usize,
    /// Pieces visited last, round and round.
    recent: Vec<u64>,
    oldest: usize,
}

/// Who sends a burst.
#[derive(Clone, Copy)]
enum Sender {
    Track(usize),
    Background,
    Scattered,
}

/// One window of a tiering workload.
struct Window {
    // fixed
    shape: &'static Shape,
    /// What lies in a slot of a class below the bound (of 256) and not below the one before.
    layouts: Vec<(u64, Layout)>,
    /// Load of each minute relative to the mean.
    loads: Vec<f64>,
    /// Regions that were not hot in the window before.
    calm: Vec<u64>,
    /// Share of bursts that are of reads.
    read_bursts: f64,
    bursts: [Burst; 2],
    // as time goes
    tracks: Vec<Track>,
    /// How far each page's pieces have been taken, in the order in which fronts take them.
    taken: Vec<u64>,
    clock: Clock,
    times: Rng,
    places: Rng,
    // the burst and the piece at hand
    op: Op,
    piece: Piece,
}

/// Requests one behind the other.
#[derive(Clone, Copy)]
struct Piece {
    next: u64,
    size: u64,
    left: u64,
}

impl Window {
    fn new(shape: &'static Shape, name: &str, seed: u64, plan: Plan, cold: &[u32]) -> Window {
        let mut rng = chance::stream(seed, &format!("{name} loads"));
        let mut strata = chance::Strata::new(10);
        let (least, most) = LOADS;
        let mut load = |_| {
            let stratum = strata.stratum(&mut rng);
            least + (most - least) * strata.within(stratum, &mut rng)
        };
        let loads = (0..shape.minutes).map(&mut load).collect();
        let mut bound = 0;
        let layouts = shape.layouts.iter().map(|layout| {
            bound += layout.slots;
            (bound, *layout)
        });
        let layouts = layouts.collect();
        assert_eq!(bound, 256, "every slot has a layout");
        // Of all bursts so many read that of all requests the promised share does.
        let read = shape.load.reads / shape.load.read_burst;
        let write = (1.0 - shape.load.reads) / shape.load.write_burst;
        let track = |spots| Track {
            spots,
            at: 0,
            recent: Vec::new(),
            oldest: 0,
        };
        Window {
            shape,
            layouts,
            loads,
            calm: (0..shape.regions)
                .filter(|region| !cold.contains(region))
                .map(u64::from)
                .collect(),
            read_bursts: read / (read + write),
            bursts: [
                Burst::new(shape.load.read_burst),
                Burst::new(shape.load.write_burst),
            ],
            tracks: plan.tracks.into_iter().map(track).collect(),
            taken: vec![0; shape.regions as usize * PAGES_PER_REGION as usize],
            clock: Clock::default(),
            times: chance::stream(seed, &format!("{name} times")),
            places: chance::stream(seed, &format!("{name} places")),
            op: Op::Read,
            piece: Piece {
                next: 0,
                size: 0,
                left: 0,
            },
        }
    }

    fn minute(&self) -> u64 {
        (self.clock.now().0 / MINUTE.0).min(self.shape.minutes - 1)
    }

    fn next_burst(&mut self) {
        let rate = self.shape.load.iops * self.loads[self.minute() as usize];
        self.clock.next_burst(&mut self.times, rate);
        let is_read = self.times.chance(self.read_bursts);
        self.op = if is_read { Op::Read } else { Op::Write };
        let requests = self.bursts[usize::from(!is_read)].draw(&mut self.times);
        self.clock.begin(requests);
        self.piece.left = 0;
    }

    fn next_sender(&mut self) -> Sender {
        let mut u = self.times.unit();
        let (from, to, share) = self.shape.scattered;
        let scattered = (from..to).contains(&self.minute());
        for (track, weight) in self.shape.tracks.iter().enumerate() {
            if u < *weight {
                return match scattered && u < *weight * share {
                    true => Sender::Scattered,
                    false => Sender::Track(track),
                };
            }
            u -= weight;
        }
        Sender::Background
    }

    /// The piece that is visited next.
    fn next_piece(&mut self) -> u64 {
        let region_pieces = REGION / SLOT * PIECES;
        match self.next_sender() {
            Sender::Background => {
                let all = u64::from(self.shape.regions) * region_pieces;
                self.places.below(all)
            }
            Sender::Scattered => {
                let region = self.calm[self.places.below(self.calm.len() as u64) as usize];
                region * region_pieces + self.places.below(region_pieces)
            }
            Sender::Track(track) => self.next_of_track(track),
        }
    }

    fn next_of_track(&mut self, number: usize) -> u64 {
        let now = self.clock.now();
        let track = &mut self.tracks[number];
        while track.at + 1 < track.spots.len() && track.spots[track.at].end <= now {
            track.at += 1;
            track.recent.clear();
            track.oldest = 0;
            let spot = &track.spots[track.at];
            if spot.repeat {
                // From the first piece again, as in the opening.
                let pages = spot.span().start as usize..spot.span().end as usize;
                let per_region = PAGES_PER_REGION as usize;
                self.taken[pages.start * per_region..pages.end * per_region].fill(0);
            }
        }
        let kind = self.places.unit();
        if kind < self.shape.rereferenced && !track.recent.is_empty() {
            let at = self.places.below(track.recent.len() as u64);
            return track.recent[at as usize];
        }
        let spot = track.spots[track.at];
        let front = spot.front(now) / PAGE;
        let piece = match kind >= 1.0 - self.shape.front.around {
            true => around(self.shape, front, &mut self.places),
            false => {
                let end = u64::from(spot.span().end) * PAGES_PER_REGION;
                let page = front + self.places.below(self.shape.front.pages);
                self.untouched(page.min(end - 1))
            }
        };
        let track = &mut self.tracks[number];
        if track.recent.len() < self.shape.remembered {
            track.recent.push(piece);
        } else {
            track.recent[track.oldest] = piece;
            track.oldest = (track.oldest + 1) % self.shape.remembered;
        }
        piece
    }

    /// A piece of a page that no front has taken, as long as there is one: the first piece of every slot,
    /// then the second of those that have one, and so on.
    fn untouched(&mut self, page: u64) -> u64 {
        loop {
            let taken = &mut self.taken[page as usize];
            let (round, line) = (*taken / SLOTS_PER_PAGE, *taken % SLOTS_PER_PAGE);
            *taken = (*taken + 1) % PIECES_PER_PAGE;
            let slot = Scatter::new(SLOTS_PER_PAGE, page).place(line);
            let slot = page * SLOTS_PER_PAGE + slot;
            if round < self.layout(slot).pieces() {
                return slot * PIECES + round;
            }
        }
    }

    fn layout(&self, slot: u64) -> Layout {
        let class = chance::mix(slot) % 256;
        let at = self.layouts.partition_point(|(bound, _)| *bound <= class);
        self.layouts[at].1
    }

    /// What a piece of a slot consists of.
    fn look(&self, piece: u64) -> Piece {
        let (slot, part) = (piece / PIECES, piece % PIECES);
        let layout = self.layout(slot);
        let size = layout.kib << 10;
        Piece {
            next: slot * SLOT + part % layout.pieces() * layout.run * size,
            size,
            left: layout.run,
        }
    }
}

/// Any piece not too far from the front.
fn around(shape: &Shape, front: u64, places: &mut Rng) -> u64 {
    let pages = u64::from(shape.regions) * PAGES_PER_REGION;
    let low = front.saturating_sub(shape.front.around_pages);
    let high = (front + shape.front.around_pages).min(pages - 1);
    let page = low + places.below(high - low + 1);
    page * PIECES_PER_PAGE + places.below(PIECES_PER_PAGE)
}

impl Source for Window {
    fn next(&mut self) -> Option<Request> {
        if self.clock.is_over() {
            self.next_burst();
        } else {
            self.clock.step(&mut self.times, self.shape.load.spacing);
        }
        if self.clock.now().0 >= self.shape.minutes * MINUTE.0 {
            return None;
        }
        if self.piece.left == 0 {
            let piece = self.next_piece();
            self.piece = self.look(piece);
        }
        self.clock.send();
        let offset = self.piece.next;
        self.piece.next += self.piece.size;
        self.piece.left -= 1;
        Some(Request {
            at: self.clock.now(),
            offset: Bytes(offset),
            size: Bytes(self.piece.size),
            device: 0,
            op: self.op,
        })
    }
}

/// The plans of both windows and what the second leaves cold.
struct Plans {
    before: Plan,
    window: Plan,
    cold: Vec<u32>,
}

impl Plans {
    fn new(shape: &Shape, seed: u64) -> Plans {
        let before = Plan::new(shape, &before_name(shape), seed, &[]);
        let cold = before.hottest(shape);
        Plans {
            window: Plan::new(shape, shape.streams, seed, &cold),
            before,
            cold,
        }
    }
}

fn before_name(shape: &Shape) -> String {
    format!("{} before", shape.streams)
}

/// The hot spots of the parts asked for, in order of their beginning.
pub(super) fn hot_spots(shape: &Shape, seed: u64, part: Part) -> Vec<HotSpot> {
    let plans = Plans::new(shape, seed);
    match part {
        Part::Before => plans.before.spots(),
        Part::Window => plans.window.spots(),
        Part::Both => {
            let shift = Nanos(shape.minutes * MINUTE.0);
            let moved = |spot: HotSpot| HotSpot {
                begin: spot.begin + shift,
                end: spot.end + shift,
                ..spot
            };
            let mut spots = plans.before.spots();
            spots.extend(plans.window.spots().into_iter().map(moved));
            spots
        }
    }
}

/// The windows asked for, one behind the other.
pub(super) struct Tiering {
    first: Option<Window>,
    second: Option<Window>,
    /// Where the second begins.
    shift: Nanos,
}

impl Tiering {
    pub(super) fn new(shape: &'static Shape, seed: u64, part: Part) -> Tiering {
        let Plans {
            before,
            window,
            cold,
        } = Plans::new(shape, seed);
        let name = before_name(shape);
        let first = (part != Part::Window).then(|| Window::new(shape, &name, seed, before, &[]));
        let second =
            (part != Part::Before).then(|| Window::new(shape, shape.streams, seed, window, &cold));
        let shift = match part {
            Part::Both => Nanos(shape.minutes * MINUTE.0),
            Part::Before | Part::Window => Nanos(0),
        };
        Tiering {
            first,
            second,
            shift,
        }
    }
}

impl Source for Tiering {
    fn next(&mut self) -> Option<Request> {
        if let Some(first) = &mut self.first {
            if let Some(request) = first.next() {
                return Some(request);
            }
            self.first = None;
        }
        let mut request = self.second.as_mut()?.next()?;
        request.at += self.shift;
        Some(request)
    }
}
