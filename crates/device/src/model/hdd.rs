//! A disk with an arm and a spindle: which request is next, and when has it passed under the head?
//!
//! ```text
//! submit -> in a buffer already? ----------------------------------------> interface -> done
//!        -> queue (NCQ) --\
//!        -> write cache ---+-> shortest access first -> seek, turn, transfer -> done
//!                          |                                  |
//!                          +--- read-ahead goes on until the next service --+
//! ```
//!
//! Angles are fractions of a turn in 32 bits, so that going round is plain wrapping arithmetic: the
//! angle under the head at a moment is one multiplication, and the shortest access among 32 requests
//! costs a square root and a few additions each.
//!
//! Size: a disk of another size than the model's has the same heads, track lengths and zones but more or
//! fewer tracks per surface. A seek is measured on the way relative to the full stroke, so its mean and its
//! full stroke stay those of the model, whatever the size (see docs/models.md).
//!
//! Always true:
//! 1. The head is in one place: services of the medium never overlap.
//! 2. A flush completes after every write that was acknowledged before it is on the medium.
//! 3. No request waits for others longer than the age limit plus the ones that waited longer.

use std::collections::VecDeque;

use base::{Instant, Nanos, Span};

use super::power::{PowerMeter, State};
use super::spec::{HddSpec, PowerSpec};
use super::timing::{Done, Request, Timing};
use crate::api::Op;

/// One turn in the units of angles.
const TURN: f64 = 4_294_967_296.0;
/// An angle missed by less than this fraction of a turn (1.7 us at 7,200 rpm) counts as met: times are
/// rounded to nanoseconds, angles to 2^-32 of a turn.
const SLACK: u32 = (TURN / 5_000.0) as u32;
/// The longest run written from the cache at once: longer ones would keep readers waiting.
const RUN_SECTORS: u64 = 2_048;

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
struct Curve {
    a: f64,
    b: f64,
    c: f64,
    /// Tracks of the model per cylinder here.
    scale: f64,
}

impl Curve {
    fn turns(&self, cylinders: u32) -> u64 {
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
struct Place {
    zone: u32,
    within: u32,
    track: u64,
    cylinder: u32,
    angle: u32,
}

/// Tracks, zones and angles of one disk.
pub struct Geometry {
    zones: Vec<Zone>,
    surfaces: u64,
    sectors: u64,
    cylinders: u64,
    model_cylinders: u64,
    turn: f64,
    switch: f64,
    skew: u32,
}

impl Geometry {
    fn new(spec: &HddSpec, model_sectors: u64, sectors: u64) -> Geometry {
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

    fn curve(&self, seek_ms: [f64; 3]) -> Curve {
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

    fn place(&self, sector: u64) -> Place {
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
    fn pass(&self, place: Place, sectors: u64) -> f64 {
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
    fn passed(&self, place: Place, nanos: f64) -> u64 {
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

/// A command in the disk's own queue.
struct Queued {
    id: u64,
    write: bool,
    start: u64,
    sectors: u64,
    place: Place,
    /// When it came into the disk's queue.
    arrived: Instant,
    /// When the controller has understood it.
    eligible: Instant,
}

/// A run of sectors that waits in the write cache.
struct Run {
    start: u64,
    end: u64,
    place: Place,
    /// The earliest acknowledged write it holds, and when that came.
    sequence: u64,
    since: Instant,
}

/// What the medium is doing.
struct Service {
    end: Instant,
    finished: Finished,
}

enum Finished {
    /// A host's command.
    Command { id: u64 },
    /// A run of the write cache, of so many sectors.
    Run { sectors: u64, sequence: u64 },
}

/// Reading on after a read, into the buffer.
struct Stream {
    /// First sector in the buffer.
    start: u64,
    /// The head passed this sector ...
    from: u64,
    place: Place,
    /// ... at this moment.
    since: Instant,
    /// It stops before this sector.
    limit: u64,
}

struct Flush {
    id: u64,
    /// Waits for runs up to this one.
    sequence: u64,
    eligible: Instant,
}

/// A candidate for the next service.
#[derive(Clone, Copy)]
enum Pick {
    Command(usize),
    Run(usize),
}

/// The timing core of a disk.
pub struct HddModel {
    // fixed
    geometry: Geometry,
    read_curve: Curve,
    write_curve: Curve,
    turns_per_nano: u64,
    overhead: Nanos,
    interface: f64,
    depth: usize,
    age_limit: Nanos,
    write_cache: bool,
    cache_sectors: u64,
    cache_runs: usize,
    read_ahead: u64,
    segments_max: usize,

    // the queues
    queue: Vec<Queued>,
    outside: VecDeque<Request>,
    stalled: VecDeque<(Request, Instant)>,
    runs: Vec<Run>,
    cached: u64,
    sequence: u64,
    flushes: Vec<Flush>,

    // the mechanics
    service: Option<Service>,
    stream: Option<Stream>,
    track: u64,
    cylinder: u32,
    segments: VecDeque<(u64, u64)>,
    sleep_when_clean: bool,
    ready: Instant,

    // the interface
    interface_free: Instant,
    transfers: VecDeque<Done>,
    done: VecDeque<Done>,
    now: Instant,
    phase: u32,
    meter: PowerMeter,
}

impl HddModel {
    /// A disk of `size` made of the model in `spec` (whose own size is `model_size`), spinning and idle
    /// at moment zero; `seed` chooses where the platters stand.
    pub fn new(
        spec: &HddSpec,
        power: &PowerSpec,
        model_size: base::Bytes,
        size: base::Bytes,
        seed: u64,
    ) -> HddModel {
        let geometry = Geometry::new(spec, model_size.sectors(), size.sectors());
        HddModel {
            read_curve: geometry.curve(spec.read_seek_ms),
            write_curve: geometry.curve(spec.write_seek_ms),
            // 2^64 / turn: the product with a time in ns wraps once a turn; its upper half is the angle.
            turns_per_nano: (TURN * TURN / geometry.turn) as u64,
            overhead: Nanos((spec.overhead_ms * 1e6).round() as u64),
            interface: 1e3 / spec.interface_mb_s * 512.0,
            depth: spec.queue_depth as usize,
            age_limit: Nanos((spec.age_limit_ms * 1e6).round() as u64),
            write_cache: spec.write_cache,
            cache_sectors: spec.write_cache_size.sectors(),
            cache_runs: spec.write_cache_runs as usize,
            read_ahead: spec.read_ahead_size.sectors(),
            segments_max: spec.read_segments as usize,
            queue: Vec::new(),
            outside: VecDeque::new(),
            stalled: VecDeque::new(),
            runs: Vec::new(),
            cached: 0,
            sequence: 0,
            flushes: Vec::new(),
            service: None,
            stream: None,
            track: 0,
            cylinder: 0,
            segments: VecDeque::new(),
            sleep_when_clean: false,
            ready: Instant(0),
            interface_free: Instant(0),
            transfers: VecDeque::new(),
            done: VecDeque::new(),
            now: Instant(0),
            // Any odd multiplier spreads small seeds over the turn.
            phase: (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32,
            meter: PowerMeter::new(power, Instant(0)),
            geometry,
        }
    }

    /// Tracks and zones of this disk.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    // --- arithmetic of angles ------------------------------------------------------------------

    fn angle_at(&self, at: Instant) -> u32 {
        ((at.0.wrapping_mul(self.turns_per_nano) >> 32) as u32).wrapping_add(self.phase)
    }

    fn nanos(&self, turns: u64) -> u64 {
        (turns as f64 * (self.geometry.turn / TURN)).round() as u64
    }

    /// Arm time to `place` and from there the wait until it comes round, both in turns, when the way
    /// begins at angle `angle`.
    fn access(&self, place: &Place, write: bool, angle: u32) -> (u64, u64) {
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

    // --- what is asked -------------------------------------------------------------------------

    /// Takes a command in, or leaves it outside while the queue is full.
    fn admit(&mut self, request: Request, now: Instant) {
        let eligible = now.max(self.ready) + self.overhead;
        match request.op {
            Op::Flush => self.flushes.push(Flush {
                id: request.id,
                sequence: self.sequence,
                eligible,
            }),
            // A disk has nothing to free.
            Op::Discard => self.transfer(request.id, 0, eligible),
            Op::Read => {
                if self.is_buffered(request.span) {
                    self.transfer(request.id, request.span.len.sectors(), eligible);
                    return;
                }
                self.enqueue(request, now, eligible);
            }
            Op::Write | Op::WriteZeroes => {
                self.forget(request.span);
                let direct = request.fua || request.span.len.sectors() > self.cache_sectors / 2;
                if !self.write_cache || direct {
                    self.enqueue(request, now, eligible);
                } else if self.stalled.is_empty() && self.has_room(request.span) {
                    self.cache(request, eligible);
                } else {
                    self.stalled.push_back((request, eligible));
                }
            }
        }
    }

    fn enqueue(&mut self, request: Request, arrived: Instant, eligible: Instant) {
        if self.queue.len() >= self.depth {
            self.outside.push_back(request);
            return;
        }
        self.queue.push(Queued {
            id: request.id,
            write: request.op != Op::Read,
            start: request.span.start.0,
            sectors: request.span.len.sectors(),
            place: self.geometry.place(request.span.start.0),
            arrived,
            eligible,
        });
    }

    /// Moves data over the interface; completes the command.
    fn transfer(&mut self, id: u64, sectors: u64, eligible: Instant) {
        let nanos = (sectors as f64 * self.interface).round() as u64;
        let at = eligible.max(self.interface_free) + Nanos(nanos);
        self.interface_free = at;
        self.transfers.push_back(Done { id, at });
    }

    fn is_buffered(&self, span: Span) -> bool {
        let (start, end) = (span.start.0, span.end().0);
        let within = |from: u64, to: u64| from <= start && end <= to;
        self.segments.iter().any(|&(from, to)| within(from, to))
            || self.runs.iter().any(|run| within(run.start, run.end))
    }

    /// Drops what is buffered of sectors that are written.
    fn forget(&mut self, span: Span) {
        let (start, end) = (span.start.0, span.end().0);
        let clear = |from: u64, to: u64| end <= from || to <= start;
        self.segments.retain(|&(from, to)| clear(from, to));
        if let Some(stream) = &mut self.stream
            && !clear(stream.start, stream.limit)
        {
            stream.start = stream.from.max(end);
            stream.limit = stream.limit.max(stream.start);
        }
    }

    // --- the write cache -----------------------------------------------------------------------

    fn has_room(&self, span: Span) -> bool {
        let joins = self.runs.iter().any(|run| Self::joins(run, span));
        (joins || self.runs.len() < self.cache_runs)
            && self.cached + span.len.sectors() <= self.cache_sectors
    }

    fn joins(run: &Run, span: Span) -> bool {
        run.end == span.start.0 && run.end - run.start + span.len.sectors() <= RUN_SECTORS
    }

    fn cache(&mut self, request: Request, eligible: Instant) {
        let span = request.span;
        let sectors = span.len.sectors();
        let moved = if request.op == Op::Write { sectors } else { 0 };
        self.transfer(request.id, moved, eligible);
        self.sequence += 1;
        let (start, end) = (span.start.0, span.end().0);
        if self
            .runs
            .iter()
            .any(|run| run.start <= start && end <= run.end)
        {
            return; // Written over while it waits.
        }
        self.cached += sectors;
        if let Some(run) = self.runs.iter_mut().find(|run| Self::joins(run, span)) {
            run.end = end;
            return;
        }
        self.runs.push(Run {
            start,
            end,
            place: self.geometry.place(start),
            sequence: self.sequence,
            since: self.now,
        });
    }

    /// Takes stalled writes into the cache, first come, first served.
    fn unstall(&mut self, now: Instant) {
        while let Some(&(request, eligible)) = self.stalled.front() {
            if !self.has_room(request.span) {
                return;
            }
            self.stalled.pop_front();
            self.cache(request, eligible.max(now));
        }
    }

    /// Completes the flushes that wait for nothing any more.
    fn settle_flushes(&mut self) {
        if self.flushes.is_empty() {
            return;
        }
        let under_way = match &self.service {
            Some(Service {
                finished: Finished::Run { sequence, .. },
                ..
            }) => *sequence,
            _ => u64::MAX,
        };
        let waiting = self.runs.iter().map(|run| run.sequence).min();
        let oldest = waiting.unwrap_or(u64::MAX).min(under_way);
        let now = self.now;
        let mut index = 0;
        while index < self.flushes.len() {
            if self.flushes[index].sequence >= oldest {
                index += 1;
                continue;
            }
            let flush = self.flushes.remove(index);
            self.transfer(flush.id, 0, flush.eligible.max(now));
        }
    }

    // --- the medium ----------------------------------------------------------------------------

    /// Has the write cache to be emptied even while readers wait?
    fn presses(&self) -> bool {
        !self.stalled.is_empty()
            || !self.flushes.is_empty()
            || self.cached * 4 > self.cache_sectors * 3
            || self.runs.len() * 4 > self.cache_runs * 3
            || self
                .runs
                .iter()
                .any(|run| self.now.since(run.since) > self.age_limit)
    }

    /// The next service: shortest access first, unless one waited too long.
    fn pick(&self) -> Option<Pick> {
        let now = self.now;
        let angle = self.angle_at(now);
        let mut best = None;
        let mut least = u64::MAX;
        let mut oldest = (now, 0);
        for (index, queued) in self.queue.iter().enumerate() {
            if queued.arrived < oldest.0 {
                oldest = (queued.arrived, index);
            }
            let cost = match self.streamed(queued, now) {
                // As with a seek, the time until the data begin, not until they end.
                Some(end) => {
                    let passing = self.geometry.pass(queued.place, queued.sectors);
                    let begin = (end.since(now).0 as f64 - passing).max(0.0);
                    (begin / self.geometry.turn * TURN) as u64
                }
                None => {
                    let late = queued.eligible.since(now);
                    let (begin, extra) = if late.0 == 0 {
                        (angle, 0)
                    } else {
                        let extra = late.0 as f64 / self.geometry.turn * TURN;
                        (self.angle_at(queued.eligible), extra as u64)
                    };
                    let (seek, wait) = self.access(&queued.place, queued.write, begin);
                    extra + seek + wait
                }
            };
            if cost < least {
                least = cost;
                best = Some(Pick::Command(index));
            }
        }
        if now.since(oldest.0) > self.age_limit {
            return Some(Pick::Command(oldest.1));
        }
        if best.is_none() || self.presses() {
            for (index, run) in self.runs.iter().enumerate() {
                let (seek, wait) = self.access(&run.place, true, angle);
                if seek + wait < least {
                    least = seek + wait;
                    best = Some(Pick::Run(index));
                }
            }
        }
        best
    }

    /// When the read-ahead under way will have passed the whole of a queued read; `None` if it does not.
    fn streamed(&self, queued: &Queued, now: Instant) -> Option<Instant> {
        let stream = self.stream.as_ref()?;
        let end = queued.start + queued.sectors;
        if queued.write || queued.start < stream.start || queued.start > stream.limit {
            return None;
        }
        let passed = stream.since.max(now);
        if end <= stream.from {
            let moved = Nanos((queued.sectors as f64 * self.interface).round() as u64);
            return Some((queued.eligible + moved).max(passed));
        }
        if end > stream.limit {
            // Reading ahead stops at its limit; what lies behind needs a service of its own then.
            let stopped = self.geometry.pass(stream.place, stream.limit - stream.from);
            if stream.since + Nanos(stopped as u64) < now {
                return None;
            }
        }
        let nanos = self.geometry.pass(stream.place, end - stream.from);
        let at = stream.since + Nanos(nanos.round() as u64);
        let moved = Nanos((queued.sectors as f64 * self.interface).round() as u64);
        Some(at.max(queued.eligible + moved))
    }

    /// A buffer segment that reaches up to sector `end` holds as much behind the head as before it: this
    /// is its first sector.
    fn oldest_kept(&self, end: u64) -> u64 {
        end.saturating_sub(2 * self.read_ahead)
    }

    /// Ends the read-ahead; keeps what it has read.
    fn end_stream(&mut self, at: Instant) {
        let Some(stream) = self.stream.take() else {
            return;
        };
        self.meter.cut(State::Read, at);
        let passed = self
            .geometry
            .passed(stream.place, at.since(stream.since).0 as f64);
        let reached = (stream.from + passed).min(stream.limit);
        let start = stream.start.max(self.oldest_kept(reached));
        if reached > start {
            if self.segments.len() == self.segments_max {
                self.segments.pop_front();
            }
            self.segments.push_back((start, reached));
        }
        let last = self.geometry.place(reached.max(1) - 1);
        self.track = last.track;
        self.cylinder = last.cylinder;
    }

    /// Starts the next service if the medium is free and something waits for it.
    fn start(&mut self) {
        if self.service.is_some() {
            return;
        }
        let Some(pick) = self.pick() else {
            self.rest();
            return;
        };
        let now = self.now;
        match pick {
            Pick::Command(index) => {
                let queued = self.queue.swap_remove(index);
                if let Some(request) = self.outside.pop_front() {
                    self.enqueue(request, now, now + self.overhead);
                }
                let end = match self.streamed(&queued, now) {
                    Some(end) => {
                        self.read_on(&queued, end);
                        end
                    }
                    None => self.seek_and_pass(
                        queued.place,
                        queued.start,
                        queued.sectors,
                        queued.write,
                        queued.eligible.max(now),
                    ),
                };
                self.service = Some(Service {
                    end,
                    finished: Finished::Command { id: queued.id },
                });
            }
            Pick::Run(index) => {
                let run = self.runs.swap_remove(index);
                let sectors = run.end - run.start;
                let from = now.max(self.ready);
                let end = self.seek_and_pass(run.place, run.start, sectors, true, from);
                self.service = Some(Service {
                    end,
                    finished: Finished::Run {
                        sectors,
                        sequence: run.sequence,
                    },
                });
            }
        }
    }

    /// A read that the stream under way serves: the stream simply goes on further.
    fn read_on(&mut self, queued: &Queued, end: Instant) {
        let limit = (queued.start + queued.sectors + self.read_ahead).min(self.geometry.sectors);
        let oldest = self.oldest_kept(limit);
        let Some(stream) = &mut self.stream else {
            return;
        };
        let last = queued.start + queued.sectors;
        if last > stream.from {
            let nanos = self.geometry.pass(stream.place, last - stream.from);
            stream.since = stream.since + Nanos(nanos.round() as u64);
            stream.from = last;
            stream.place = self
                .geometry
                .place(last.min(self.geometry.sectors.max(1) - 1));
        }
        stream.limit = stream.limit.max(limit);
        // What the head reads next overwrites the oldest of the segment.
        stream.start = stream.start.max(oldest);
        let ahead = self
            .geometry
            .pass(stream.place, stream.limit - stream.from.min(stream.limit));
        let until = stream.since + Nanos(ahead as u64);
        self.meter.busy(State::Read, until.max(end));
    }

    /// Moves the arm, waits for the sector, lets the data pass. Returns when they have.
    fn seek_and_pass(
        &mut self,
        place: Place,
        start: u64,
        sectors: u64,
        write: bool,
        from: Instant,
    ) -> Instant {
        self.end_stream(self.now);
        let (seek, wait) = self.access(&place, write, self.angle_at(from));
        let arrive = from + Nanos(self.nanos(seek));
        let pass = self.geometry.pass(place, sectors);
        let end = from + Nanos(self.nanos(seek + wait) + pass.round() as u64);
        let (seeking, moving) = if write {
            (State::SeekWrite, State::Write)
        } else {
            (State::SeekRead, State::Read)
        };
        if seek > 0 {
            self.meter.busy(seeking, arrive);
        }
        let last = self.geometry.place(start + sectors - 1);
        self.track = last.track;
        self.cylinder = last.cylinder;
        let mut until = end;
        if !write {
            let behind = start + sectors;
            let limit = (behind + self.read_ahead).min(self.geometry.sectors);
            let next = self
                .geometry
                .place(behind.min(self.geometry.sectors.max(1) - 1));
            until = end + Nanos(self.geometry.pass(next, limit - behind) as u64);
            self.stream = Some(Stream {
                start,
                from: behind,
                place: next,
                since: end,
                limit,
            });
        }
        self.meter.busy(moving, until);
        end
    }

    /// Nothing waits for the medium: sleep, if that was asked for.
    fn rest(&mut self) {
        if self.sleep_when_clean && self.transfers.is_empty() {
            self.sleep_when_clean = false;
            self.end_stream(self.now);
            self.meter.sleep(self.now);
        }
    }

    /// The medium has finished.
    fn finish(&mut self, service: Service) {
        match service.finished {
            Finished::Command { id } => self.done.push_back(Done {
                id,
                at: service.end,
            }),
            Finished::Run { sectors, .. } => {
                self.cached -= sectors;
                self.unstall(service.end);
            }
        }
        self.settle_flushes();
        self.start();
    }

    fn settle(&mut self, now: Instant) {
        self.now = self.now.max(now);
        self.meter.settle(self.now);
    }
}

impl Timing for HddModel {
    fn submit(&mut self, now: Instant, request: Request) {
        self.advance(now);
        let nothing_to_do =
            request.op == Op::Flush && self.runs.is_empty() && self.service.is_none();
        if !nothing_to_do {
            self.ready = self.ready.max(self.meter.wake(self.now));
            self.sleep_when_clean = false;
        }
        self.admit(request, self.now);
        self.settle_flushes();
        self.start();
    }

    fn next(&self) -> Option<Instant> {
        let medium = self.service.as_ref().map(|service| service.end);
        let interface = self.transfers.front().map(|done| done.at);
        let taken = self.done.front().map(|done| done.at);
        [medium, interface, taken].into_iter().flatten().min()
    }

    fn advance(&mut self, now: Instant) {
        loop {
            let medium = self.service.as_ref().map(|service| service.end);
            let interface = self.transfers.front().map(|done| done.at);
            let due = [medium, interface].into_iter().flatten().min();
            let Some(due) = due.filter(|&due| due <= now) else {
                break;
            };
            self.settle(due);
            if interface == Some(due) {
                self.done.extend(self.transfers.pop_front());
                if self.service.is_none() {
                    self.start();
                }
            } else if let Some(service) = self.service.take() {
                self.finish(service);
            }
        }
        self.settle(now);
    }

    fn take_done(&mut self) -> Option<Done> {
        self.done.pop_front()
    }

    fn standby(&mut self, now: Instant) -> bool {
        self.advance(now);
        let commands = !self.queue.is_empty() || !self.stalled.is_empty();
        if !self.meter.sleeps() || commands || !self.flushes.is_empty() {
            return false;
        }
        self.sleep_when_clean = true;
        self.start();
        true
    }

    fn meter(&mut self, now: Instant) -> &PowerMeter {
        self.advance(now);
        &self.meter
    }
}
