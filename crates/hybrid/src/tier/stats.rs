//! What is asked of which extent, interval by interval; the log of moves.
//!
//! A request counts once, where its first byte lies. Counts are kept by extent (what moves) and summed by
//! region (what is judged) when an interval is closed.
//!
//! Source: AST 3.2.1.

use std::collections::{BTreeMap, VecDeque};

use base::{Bytes, Instant, Map, Nanos};
use policy::tier::{Count, Decision, Region, Way};

use crate::tier::table::Table;
use crate::tier::{HeatInterval, MoveEnd, MoveRecord};

/// Intervals kept at most.
const INTERVALS_MAX: usize = 240;
/// Entries in all kept intervals together: some 10 MB.
const ENTRIES_MAX: usize = 400_000;
/// Moves kept at most.
const MOVES_MAX: usize = 10_000;
/// What is left of an extent's heat after one interval.
const COOLING: f64 = 0.5;
/// Below this an extent is forgotten.
const HEAT_MIN: f64 = 0.05;

/// Requests to one extent in the interval that runs.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    reads: u64,
    writes: u64,
    /// Which of its parts were touched, lowest bit first.
    parts: u64,
}

/// How hot an extent is.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Warmth {
    /// Requests per interval, older ones count for less.
    pub heat: f64,
    /// The parts touched in the last interval with requests.
    pub parts: u64,
}

/// The counts of one interval.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Closed {
    pub number: u64,
    pub start: Instant,
    pub length: Nanos,
    pub counts: Vec<Count>,
}

pub(crate) struct Stats {
    // The interval that runs.
    number: u64,
    start: Instant,
    open: Map<u32, Tally>,
    // Those before it.
    warmth: BTreeMap<u32, Warmth>,
    intervals: VecDeque<HeatInterval>,
    entries: usize,
    // Moves.
    moves: VecDeque<MoveRecord>,
    next_move: u64,
    /// The move under way of each region.
    moving: BTreeMap<Region, u64>,
}

impl Stats {
    pub fn new(now: Instant) -> Stats {
        Stats {
            number: 0,
            start: now,
            open: Map::default(),
            warmth: BTreeMap::new(),
            intervals: VecDeque::new(),
            entries: 0,
            moves: VecDeque::new(),
            next_move: 1,
            moving: BTreeMap::new(),
        }
    }

    /// A request began at `part` of `extent`.
    pub fn note(&mut self, extent: u32, part: u32, write: bool) {
        let tally = self.open.entry(extent).or_default();
        if write {
            tally.writes += 1;
        } else {
            tally.reads += 1;
        }
        tally.parts |= 1 << part.min(63);
    }

    /// When the interval that runs began.
    pub fn start(&self) -> Instant {
        self.start
    }

    /// The number of the interval that runs.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Forgets what was counted in the interval that runs; it begins anew.
    pub fn restart(&mut self, now: Instant) {
        self.open.clear();
        self.start = now;
    }

    /// Ends the interval at `now` and begins the next.
    pub fn close(&mut self, now: Instant, table: &Table) -> Closed {
        let mut regions: BTreeMap<Region, Count> = BTreeMap::new();
        for warmth in self.warmth.values_mut() {
            warmth.heat *= COOLING;
        }
        let mut extents: Vec<(u32, Tally)> = self.open.drain().collect();
        extents.sort_unstable_by_key(|(extent, _)| *extent);
        for (extent, tally) in extents {
            let region = table.region_of(extent);
            let count = regions.entry(region).or_insert(Count {
                region,
                reads: 0,
                writes: 0,
            });
            count.reads += tally.reads;
            count.writes += tally.writes;
            let warmth = self.warmth.entry(extent).or_default();
            warmth.heat += (tally.reads + tally.writes) as f64;
            warmth.parts = tally.parts;
        }
        self.warmth.retain(|_, warmth| warmth.heat >= HEAT_MIN);
        let closed = Closed {
            number: self.number,
            start: self.start,
            length: now.since(self.start),
            counts: regions.into_values().collect(),
        };
        self.number += 1;
        self.start = now;
        closed
    }

    /// Keeps a closed interval with what was decided and what was resident at its end.
    pub fn keep(
        &mut self,
        closed: Closed,
        decision: &Decision,
        resident: Vec<(Region, Bytes)>,
        up: Vec<Region>,
    ) {
        let interval = HeatInterval {
            number: closed.number,
            start: closed.start,
            length: closed.length,
            counts: closed.counts,
            candidates: decision.candidates.clone(),
            resident,
            up,
        };
        self.entries += entries(&interval);
        self.intervals.push_back(interval);
        while self.intervals.len() > INTERVALS_MAX
            || self.entries > ENTRIES_MAX && self.intervals.len() > 1
        {
            let gone = self.intervals.pop_front().expect("more than one");
            self.entries -= entries(&gone);
        }
    }

    pub fn intervals(&self) -> impl Iterator<Item = &HeatInterval> {
        self.intervals.iter()
    }

    /// How warm `extent` is, without the interval that runs.
    pub fn warmth(&self, extent: u32) -> Warmth {
        self.warmth.get(&extent).copied().unwrap_or_default()
    }

    /// As [`Stats::warmth`], with what the interval that runs has seen so far.
    pub fn warmth_now(&self, extent: u32) -> Warmth {
        let before = self.warmth(extent);
        match self.open.get(&extent) {
            None => before,
            Some(tally) => Warmth {
                heat: before.heat * COOLING + (tally.reads + tally.writes) as f64,
                parts: before.parts | tally.parts,
            },
        }
    }

    // --- the log of moves -------------------------------------------------------------------------

    /// A move of `region` begins; one of it that is under way is given up.
    pub fn begin_move(&mut self, at: Instant, region: Region, way: Way, why: String) {
        self.end_move(at, region, MoveEnd::Cancelled);
        let record = MoveRecord {
            number: self.next_move,
            at,
            interval: self.number.saturating_sub(1),
            region,
            up: way == Way::Up,
            why,
            end: MoveEnd::UnderWay,
            ended: None,
            copied: Bytes(0),
        };
        self.moving.insert(region, record.number);
        self.next_move += 1;
        self.moves.push_back(record);
        if self.moves.len() > MOVES_MAX {
            self.moves.pop_front();
        }
    }

    fn moving(&mut self, region: Region) -> Option<&mut MoveRecord> {
        let number = *self.moving.get(&region)?;
        let first = self.moves.front()?.number;
        self.moves.get_mut(number.checked_sub(first)? as usize)
    }

    /// Is a move of `region` under way, and which?
    pub fn way_of(&mut self, region: Region) -> Option<Way> {
        let up = self.moving(region)?.up;
        Some(if up { Way::Up } else { Way::Down })
    }

    /// `bytes` were copied for the move of `region`.
    pub fn copied(&mut self, region: Region, bytes: Bytes) {
        if let Some(record) = self.moving(region) {
            record.copied += bytes;
        }
    }

    /// The move of `region` is over, if one is under way. Returns whether there was one.
    pub fn end_move(&mut self, at: Instant, region: Region, end: MoveEnd) -> bool {
        if let Some(record) = self.moving(region) {
            record.end = end;
            record.ended = Some(at);
        }
        self.moving.remove(&region).is_some()
    }

    /// Every move under way is over.
    pub fn end_all(&mut self, at: Instant, end: MoveEnd) {
        let moving: Vec<Region> = self.moving.keys().copied().collect();
        for region in moving {
            self.end_move(at, region, end);
        }
    }

    /// Moves under way.
    pub fn pending(&self) -> usize {
        self.moving.len()
    }

    /// The moves after number `after`, oldest first.
    pub fn moves(&self, after: u64) -> Vec<MoveRecord> {
        let later = |record: &&MoveRecord| record.number > after;
        self.moves.iter().filter(later).cloned().collect()
    }
}

fn entries(interval: &HeatInterval) -> usize {
    interval.counts.len() + interval.resident.len() + interval.candidates.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tier::Tier;

    fn table() -> Table {
        let choices = Tier {
            region: Bytes::mib(4),
            extent: Bytes::mib(1),
            ..Tier::default()
        };
        Table::new(4096, &choices)
    }

    #[test]
    fn an_interval_has_the_counts_of_regions_and_the_heat_of_extents() {
        let mut stats = Stats::new(Instant(0));
        for (extent, write) in [(0, true), (1, false), (1, false), (9, true)] {
            stats.note(extent, 3, write);
        }
        let closed = stats.close(Instant(100), &table());
        let count = |region: u32, reads: u64, writes: u64| Count {
            region: Region(region),
            reads,
            writes,
        };
        assert_eq!(closed.counts, [count(1, 2, 1), count(3, 0, 1)]);
        assert_eq!((closed.number, closed.length), (0, Nanos(100)));
        assert_eq!(stats.warmth(1).heat, 2.0);
        stats.close(Instant(200), &table());
        assert_eq!(stats.warmth(1).heat, 1.0);
        assert_eq!(stats.warmth(1).parts, 8);
    }

    #[test]
    fn a_new_move_of_a_region_gives_up_the_one_under_way() {
        let mut stats = Stats::new(Instant(0));
        stats.begin_move(Instant(1), Region(4), Way::Up, "hot".to_owned());
        stats.copied(Region(4), Bytes(4096));
        stats.begin_move(Instant(2), Region(4), Way::Down, "cold".to_owned());
        assert!(stats.end_move(Instant(3), Region(4), MoveEnd::Done));
        assert!(!stats.end_move(Instant(4), Region(4), MoveEnd::Done));
        let moves = stats.moves(0);
        let ends: Vec<MoveEnd> = moves.iter().map(|record| record.end).collect();
        assert_eq!(ends, [MoveEnd::Cancelled, MoveEnd::Done]);
        assert_eq!(
            (moves[0].copied, moves[0].ended),
            (Bytes(4096), Some(Instant(2)))
        );
        assert_eq!(stats.moves(1).len(), 1);
        assert_eq!(stats.pending(), 0);
    }
}
