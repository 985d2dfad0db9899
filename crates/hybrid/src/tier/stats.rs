//! What is asked of which extent, interval by interval; the log of moves.
//!
//! A request counts once, where its first byte lies. Counts are kept by extent (what moves) and summed by
//! region (what is judged) when an interval is closed.
//!
//! Source: AST 3.2.1.

use std::collections::{BTreeMap, VecDeque};

use base::{Bytes, Instant, Map, Nanos};
use policy::tier::heat::Heat;
use policy::tier::lives::Lives;
use policy::tier::{Count, Decision, Parameters, Region, Way};

use crate::tier::{HeatInterval, MoveEnd, MoveRecord};

/// Intervals kept at most: a day of ten seconds each.
const INTERVALS_MAX: usize = 8_640;
/// Entries in all kept intervals together: some 10 MB.
const ENTRIES_MAX: usize = 400_000;
/// Moves kept at most.
const MOVES_MAX: usize = 10_000;
/// Choice: half of an extent's heat is forgotten after a minute, or after one interval if that is longer.
const HALF_LIFE: Nanos = Nanos::secs(60);

/// One request, as it is counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Touch {
    /// Where its first byte lies: extent, part of it, region.
    pub extent: u32,
    pub part: u32,
    pub region: Region,
    pub write: bool,
    /// A read that the fast device cannot answer alone.
    pub missed: bool,
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
    regions: Map<Region, Count>,
    /// Which parts of extents were touched, lowest bit first; in the interval before, too.
    parts: Map<u32, u64>,
    parts_before: Map<u32, u64>,
    // All of them.
    period: Nanos,
    /// Requests to each extent, and the reads among them that needed the slow device.
    heat: Heat,
    missed: Heat,
    /// The same reads by region.
    missed_in: Heat,
    /// How long regions stay hot.
    lives: Lives,
    intervals: VecDeque<HeatInterval>,
    entries: usize,
    // Moves.
    moves: VecDeque<MoveRecord>,
    next_move: u64,
    /// The move under way of each region, and how it ends when nothing more is to be done for it.
    moving: BTreeMap<Region, (u64, MoveEnd)>,
}

impl Stats {
    pub fn new(now: Instant, parameters: &Parameters) -> Stats {
        let period = parameters.period;
        let half_life = HALF_LIFE.max(period);
        Stats {
            number: 0,
            start: now,
            regions: Map::default(),
            parts: Map::default(),
            parts_before: Map::default(),
            period,
            heat: Heat::new(period, half_life),
            missed: Heat::new(period, half_life),
            missed_in: Heat::new(period, half_life),
            lives: Lives::new(u64::from(parameters.timeout)),
            intervals: VecDeque::new(),
            entries: 0,
            moves: VecDeque::new(),
            next_move: 1,
            moving: BTreeMap::new(),
        }
    }

    /// The parameters changed, or the grains did: heat is learned anew where the old one says nothing. With other regions
    /// what is known of the old ones says nothing; moves under way were ended before.
    pub fn set(&mut self, parameters: &Parameters, same_extents: bool, same_regions: bool) {
        let fresh = Stats::new(self.start, parameters);
        if !same_regions {
            assert!(self.moving.is_empty(), "moves of regions that are no more");
            self.missed_in = fresh.missed_in.clone();
            self.intervals.clear();
            self.entries = 0;
        }
        if parameters.period != self.period || !same_extents {
            (self.heat, self.missed) = (fresh.heat, fresh.missed);
            self.missed_in = fresh.missed_in;
            (self.parts, self.parts_before) = (fresh.parts, fresh.parts_before);
            self.period = fresh.period;
        }
        self.regions.clear();
        self.lives = fresh.lives;
    }

    /// A request comes.
    pub fn note(&mut self, touch: Touch) {
        let Touch {
            extent,
            region,
            write,
            ..
        } = touch;
        let count = self.regions.entry(region).or_insert(Count {
            region,
            reads: 0,
            writes: 0,
        });
        let (reads, writes) = if write { (0, 1) } else { (1, 0) };
        count.reads += reads;
        count.writes += writes;
        self.heat.add(extent, reads, writes);
        if touch.missed {
            self.missed.add(extent, 1, 0);
            self.missed_in.add(region.0, 1, 0);
        }
        *self.parts.entry(extent).or_default() |= 1 << touch.part.min(63);
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
        self.regions.clear();
        self.start = now;
    }

    /// Ends the interval at `now` and begins the next.
    pub fn close(&mut self, now: Instant) -> Closed {
        let mut counts: Vec<Count> = self.regions.drain().map(|(_, count)| count).collect();
        counts.sort_unstable_by_key(|count| count.region);
        let closed = Closed {
            number: self.number,
            start: self.start,
            length: now.since(self.start),
            counts,
        };
        self.heat.end_interval();
        self.missed.end_interval();
        self.missed_in.end_interval();
        self.parts_before = std::mem::take(&mut self.parts);
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
        let hot = decision.candidates.iter().map(|region| region.0);
        self.lives.interval(hot);
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

    // --- heat -------------------------------------------------------------------------------------

    /// Reads a second of `region` that needed the slow device, the recent past weighing more.
    pub fn missed_in(&self, region: Region) -> f64 {
        self.missed_in.of(region.0).all()
    }

    /// Requests a second to `extent`, the recent past weighing more.
    pub fn heat(&self, extent: u32) -> f64 {
        self.heat.of(extent).all()
    }

    /// Reads a second of `extent` that the slow device has to answer.
    pub fn missed(&self, extent: u32) -> f64 {
        self.missed.of(extent).reads
    }

    /// Which parts of `extent` were touched lately, lowest bit first.
    pub fn parts(&self, extent: u32) -> u64 {
        let of = |parts: &Map<u32, u64>| parts.get(&extent).copied().unwrap_or_default();
        of(&self.parts) | of(&self.parts_before)
    }

    /// How much longer `region` is expected to be hot.
    pub fn rest(&self, region: Region) -> Nanos {
        let intervals = self.lives.rest(region.0);
        Nanos((intervals * self.period.0 as f64) as u64)
    }

    // --- the log of moves -------------------------------------------------------------------------

    /// A move of `region` begins; one of it that is under way is given up.
    pub fn begin_move(&mut self, at: Instant, region: (Region, Bytes), way: Way, why: String) {
        let (region, region_len) = region;
        self.end_move(at, region, MoveEnd::Cancelled);
        let record = MoveRecord {
            number: self.next_move,
            at,
            interval: self.number.saturating_sub(1),
            region,
            region_len,
            up: way == Way::Up,
            why,
            end: MoveEnd::UnderWay,
            ended: None,
            copied: Bytes(0),
            copying: Nanos(0),
        };
        self.moving.insert(region, (record.number, MoveEnd::Done));
        self.next_move += 1;
        self.moves.push_back(record);
        if self.moves.len() > MOVES_MAX {
            self.moves.pop_front();
        }
    }

    fn moving(&mut self, region: Region) -> Option<&mut MoveRecord> {
        let (number, _) = *self.moving.get(&region)?;
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

    /// The copy for the move of `region` took so long.
    pub fn copying(&mut self, region: Region, took: Nanos) {
        if let Some(record) = self.moving(region) {
            record.copying += took;
        }
    }

    /// A part of the move of `region` was given up, for one of the reasons that `end` has.
    pub fn give_up(&mut self, region: Region, end: MoveEnd) {
        if let Some((_, ends)) = self.moving.get_mut(&region) {
            *ends = end;
        }
    }

    /// Nothing more is to be done for the move of `region`: it is done, but for what was given up. Returns how it ended.
    pub fn settle_move(&mut self, at: Instant, region: Region) -> Option<MoveEnd> {
        let (_, end) = *self.moving.get(&region)?;
        self.end_move(at, region, end);
        Some(end)
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

    /// Regions on their way up, ascending.
    pub fn going_up(&mut self) -> Vec<Region> {
        let moving: Vec<Region> = self.moving.keys().copied().collect();
        let mut going = moving;
        going.retain(|region| self.way_of(*region) == Some(Way::Up));
        going
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
    interval.counts.len() + interval.resident.len() + interval.candidates.len() + interval.up.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats() -> Stats {
        let parameters = Parameters {
            period: Nanos::secs(60),
            ..Parameters::default()
        };
        Stats::new(Instant(0), &parameters)
    }

    #[test]
    fn an_interval_has_the_counts_of_regions_and_the_heat_of_extents() {
        let mut stats = stats();
        for (extent, part, write) in [(0, 3, true), (1, 3, false), (1, 63, false), (9, 0, true)] {
            stats.note(Touch {
                extent,
                part,
                region: Region::at(u64::from(extent) / 4),
                write,
                missed: part == 63,
            });
        }
        let closed = stats.close(Instant(0) + Nanos::secs(60));
        let count = |region: u32, reads: u64, writes: u64| Count {
            region: Region(region),
            reads,
            writes,
        };
        assert_eq!(closed.counts, [count(1, 2, 1), count(3, 0, 1)]);
        assert_eq!((closed.number, closed.length), (0, Nanos::secs(60)));
        assert!(stats.heat(1) > stats.heat(0) && stats.heat(0) == stats.heat(9));
        assert!(stats.missed(1) > 0.0 && stats.missed(0) == 0.0);
        assert_eq!(stats.parts(1), 1 << 3 | 1 << 63);
        stats.close(Instant(0) + Nanos::secs(120));
        assert_eq!(stats.parts(1), 0);
    }

    #[test]
    fn a_new_move_of_a_region_gives_up_the_one_under_way() {
        let mut stats = stats();
        let region = (Region(4), Bytes::mib(1));
        stats.begin_move(Instant(1), region, Way::Up, "hot".to_owned());
        stats.copied(Region(4), Bytes(4096));
        stats.begin_move(Instant(2), region, Way::Down, "cold".to_owned());
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

    #[test]
    fn a_move_of_which_a_part_was_given_up_is_not_done() {
        let mut stats = stats();
        for (region, given_up) in [
            (1, None),
            (2, Some(MoveEnd::Cancelled)),
            (3, Some(MoveEnd::Failed)),
        ] {
            stats.begin_move(
                Instant(1),
                (Region(region), Bytes::mib(1)),
                Way::Up,
                "hot".to_owned(),
            );
            given_up
                .into_iter()
                .for_each(|end| stats.give_up(Region(region), end));
            let ended = stats.settle_move(Instant(2), Region(region));
            assert_eq!(ended, Some(given_up.unwrap_or(MoveEnd::Done)));
            assert_eq!(stats.settle_move(Instant(3), Region(region)), None);
        }
        let ends: Vec<MoveEnd> = stats.moves(0).iter().map(|record| record.end).collect();
        assert_eq!(ends, [MoveEnd::Done, MoveEnd::Cancelled, MoveEnd::Failed]);
    }
}
