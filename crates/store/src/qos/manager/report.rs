//! What operators and metrics see of a manager.

use device::Device;
use policy::share::calendar::{State, Stretch};
use policy::share::{Direction, Kind, Share, Slot};
use serde::{Deserialize, Serialize};

use crate::qos::book::record::{DeliveredReport, EndedReport};
use crate::qos::session::table::Sessions;
use crate::qos::state::Core;
use crate::qos::state::capacity::MIXES;
use crate::qos::state::log::Logged;

/// How a store's room is divided, in bytes. `free + reserved + used = total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SpaceReport {
    /// All.
    pub total_bytes: u64,
    /// Data.
    pub used_bytes: u64,
    /// Promised and not yet written.
    pub reserved_bytes: u64,
    /// The rest.
    pub free_bytes: u64,
    /// Objects, the manager's own among them.
    pub objects: u64,
}

/// What the device is trusted to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CapacityReport {
    /// Sequential reads, bytes per second.
    pub read: u64,
    /// Sequential writes, bytes per second.
    pub write: u64,
    /// `configured`, `calibrated`, or either with `observed` behind it where observation corrects it.
    pub source: String,
    /// Part of the model's speed that reads reach, in percent; nothing: not observed.
    pub read_speed_percent: Option<f64>,
    /// The same of writes.
    pub write_speed_percent: Option<f64>,
    /// Backlogged intervals that rests on: reads, writes, both mixed.
    pub samples: [usize; 3],
    /// When it was calibrated, in seconds since 1970.
    pub calibrated: Option<u64>,
    /// The device on which.
    pub calibrated_device: Option<String>,
    /// It does no longer what it did, or what is known is of another device.
    pub calibration_due: bool,
}

/// A stretch of the calendar.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StretchReport {
    /// First second.
    pub from: u64,
    /// First second behind it.
    pub until: u64,
    /// Reservations.
    pub sessions: u32,
    /// Bytes per second of reads promised.
    pub reads: u64,
    /// And of writes.
    pub writes: u64,
    /// Percent of the device's time promised.
    pub promised_percent: f64,
    /// Percent that must stay free for it.
    pub headroom_percent: f64,
}

impl From<&Stretch> for StretchReport {
    fn from(stretch: &Stretch) -> StretchReport {
        StretchReport {
            from: stretch.slot.start.0,
            until: stretch.slot.end.0,
            sessions: stretch.demand.sessions,
            reads: stretch.demand.reads.0,
            writes: stretch.demand.writes.0,
            promised_percent: stretch.promised.as_percent(),
            headroom_percent: stretch.headroom.as_percent(),
        }
    }
}

/// The calendar now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CalendarReport {
    /// Reservations held and not committed.
    pub held: usize,
    /// Reservations committed.
    pub committed: usize,
    /// What is promised this second.
    pub now: StretchReport,
    /// Percent of the device's time that background work is promised.
    pub floors_percent: f64,
    /// Stretches in which more is promised than the device can do since it became slower; the first ten.
    pub overcommitted: Vec<StretchReport>,
}

/// How far the scrub is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ScrubReport {
    /// Bytes per second it may read; 0: there is none.
    pub rate: u64,
    /// Rounds finished since the store was made.
    pub rounds: u64,
    /// Bytes read since the store was opened.
    pub read_bytes: u64,
    /// Bad pages it found since then.
    pub bad: u64,
    /// When a round ended last, in seconds since 1970, if since then.
    pub round_ended: Option<u64>,
}

/// The rounds of the published method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundReport {
    /// I/Os in a round.
    pub ios: u64,
    /// The length of one.
    pub unit_bytes: u64,
    /// Rounds that ended.
    pub ended: u64,
    /// What the device moved in the last one, metadata and commit left out.
    pub last_bytes_per_second: u64,
}

/// The queue in front of a device, and what went through it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueReport {
    /// The scheduler.
    pub scheduler: String,
    /// Of `rounds` and `rounds-join`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round: Option<RoundReport>,
    /// Of `tags`: what requests are cut into, on a fast device as many of them as it does in a millisecond.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantum_bytes: Option<u64>,
    /// Pieces that may be at the device at once.
    pub depth: u32,
    /// Does the scheduler look for that number by itself?
    #[serde(default)]
    pub depth_auto: bool,
    /// Pieces that are.
    pub in_flight: u32,
    /// What is given up, since the device cannot do all.
    pub shed: String,
    /// Bytes of data read through the queue.
    pub read_bytes: u64,
    /// And written.
    pub written_bytes: u64,
    /// And of metadata.
    pub metadata_bytes: u64,
    /// Bytes delivered to those nothing is promised to, in the flow they share.
    pub best_effort_bytes: u64,
    /// Bytes of background work.
    pub background_bytes: u64,
}

/// A manager, for operators and metrics.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ManagerReport {
    /// The store's name.
    pub store: String,
    /// Its number, in hexadecimal.
    pub uuid: String,
    /// The device's name.
    pub device: String,
    /// Seconds since 1970 by its clock.
    pub now: u64,
    /// The queue in front of the device.
    #[serde(flatten)]
    pub queue: QueueReport,
    /// Room.
    pub space: SpaceReport,
    /// What the device is trusted to do.
    pub capacity: CapacityReport,
    /// What is promised.
    pub calendar: CalendarReport,
    /// Why nothing can be promised, and the cure; nothing: it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best_effort_only: Option<String>,
    /// Sessions open now.
    pub sessions: usize,
    /// Buffer memory, all of it.
    pub memory_bytes: u64,
    /// The scrub.
    pub scrub: ScrubReport,
    /// What sessions that are closed got, by reservations that go on.
    #[serde(default)]
    pub delivered: Vec<DeliveredReport>,
    /// Reservations that ended lately, the latest last.
    pub ended: Vec<EndedReport>,
    /// Broken promises and the like, the latest last.
    pub log: Vec<Logged>,
}

/// What is to be known about a manager.
pub(super) fn of(sessions: &Sessions) -> ManagerReport {
    let core = &sessions.core;
    core.take_events();
    let space = core.store.space();
    let scrubbed = core.scrubbed.get();
    ManagerReport {
        store: core.store.name().to_owned(),
        uuid: format!("{:032x}", core.store.uuid()),
        device: core.queue.info().name,
        now: core.now().0,
        queue: queue(core),
        space: SpaceReport {
            total_bytes: space.total.0,
            used_bytes: space.used.0,
            reserved_bytes: space.reserved.0,
            free_bytes: space.free.0,
            objects: space.objects,
        },
        capacity: capacity(core),
        calendar: calendar(core),
        best_effort_only: core.options.best_effort_only.clone(),
        sessions: sessions.count(),
        memory_bytes: core.options.memory.0,
        scrub: ScrubReport {
            rate: core.options.scrub.map_or(0, |it| it.rate.0),
            rounds: scrubbed.rounds,
            read_bytes: scrubbed.bytes,
            bad: scrubbed.bad,
            round_ended: scrubbed.round_ended.map(|it| it.0),
        },
        delivered: sessions.delivered(),
        ended: core.history.ended().clone(),
        log: core.log.lines(),
    }
}

fn queue(core: &Core) -> QueueReport {
    let totals = core.queue.totals();
    let (best_effort, background) = core.queue.unpromised();
    let options = core.queue.options();
    let (rounds, tags) = (&options.share.rounds, &options.share.tags);
    let round = || {
        let (ended, last) = core.queue.rounds().unwrap_or_default();
        RoundReport {
            ios: rounds.round_ios,
            unit_bytes: rounds.unit.0,
            ended,
            last_bytes_per_second: last.0,
        }
    };
    let of_tags = options.kind == Kind::Tags;
    QueueReport {
        scheduler: options.kind.name().to_owned(),
        round: matches!(options.kind, Kind::Rounds | Kind::RoundsJoin).then(round),
        quantum_bytes: of_tags.then_some(tags.quantum.0),
        depth: core.queue.depth(),
        depth_auto: of_tags && tags.depth.min < tags.depth.max,
        in_flight: totals.in_flight,
        shed: core.log.shed.get().name().to_owned(),
        read_bytes: totals.read.0,
        written_bytes: totals.written.0,
        metadata_bytes: totals.metadata.0,
        best_effort_bytes: best_effort.0,
        background_bytes: background.0,
    }
}

fn capacity(core: &Core) -> CapacityReport {
    let capacity = core.capacity.borrow();
    let calibration = capacity.calibration.as_ref();
    let model = match calibration {
        Some(_) => "calibrated",
        None => "configured",
    };
    let (reads, writes) = capacity.speeds();
    let source = match (reads, writes) {
        (None, None) => model.to_owned(),
        _ => format!("{model}, observed"),
    };
    let trusted = |direction, speed: Option<Share>| {
        let speed = speed.unwrap_or(Share::WHOLE);
        let rate = capacity.costs.rate(direction, speed, core.options.unit());
        rate.0
    };
    CapacityReport {
        read: trusted(Direction::Read, reads),
        write: trusted(Direction::Write, writes),
        source,
        read_speed_percent: reads.map(Share::as_percent),
        write_speed_percent: writes.map(Share::as_percent),
        samples: MIXES.map(|mix| capacity.estimator.samples(mix)),
        calibrated: calibration.map(|it| it.measured.0),
        calibrated_device: calibration.map(|it| it.device.0.clone()),
        calibration_due: capacity.drifted,
    }
}

fn calendar(core: &Core) -> CalendarReport {
    let now = core.now();
    let calendar = core.bookings.calendar.borrow();
    let stretch = calendar.sweep(Slot::new(now, 1));
    let stretch = stretch.first().expect("a second has a stretch");
    let records = core.bookings.records.borrow();
    let committed = records.values().filter(|it| it.state == State::Committed);
    let committed = committed.count();
    let over = calendar.overcommitted(now);
    let costs = core.capacity.borrow().costs;
    CalendarReport {
        held: records.len() - committed,
        committed,
        now: stretch.into(),
        floors_percent: core.floors(&costs).as_percent(),
        overcommitted: over.iter().take(10).map(StretchReport::from).collect(),
    }
}
