//! What operators and metrics see of a manager.

use base::Bytes;
use policy::share::calendar::{BookingId, State, Stretch};
use policy::share::{Cause, Direction, Mix, Second, Share, Shed, Slot};
use serde::{Deserialize, Serialize};

use super::Manager;
use crate::qos::session::{EndedReport, Session, SessionReport};

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

/// A line of the log of violations and the like.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Logged {
    /// Seconds since 1970.
    pub at: u64,
    /// `violated`, `shed`, `over`, `drift`, `overcommitted`, `lost`.
    pub kind: String,
    /// Whose promise, if one's.
    pub reservation: Option<u64>,
    /// `capacity` or `scheduler`, of a violated one.
    pub cause: Option<String>,
    /// In words.
    pub what: String,
}

impl Logged {
    fn new(at: Second, kind: &str, what: String) -> Logged {
        Logged {
            at: at.0,
            kind: kind.to_owned(),
            reservation: None,
            cause: None,
            what,
        }
    }

    pub(super) fn violated(
        at: Second,
        whose: Option<BookingId>,
        windows: u64,
        promised: Bytes,
        delivered: Bytes,
        cause: Cause,
    ) -> Logged {
        let name = match whose {
            Some(id) => format!("reservation {}", id.0),
            None => "a session".to_owned(),
        };
        let blame = match cause {
            Cause::Capacity => "the device did less than was promised to all",
            Cause::Scheduler => "the device did enough, but for others",
            Cause::NoDemand => "no more was asked for",
        };
        Logged {
            reservation: whose.map(|id| id.0),
            cause: Some(cause.name().to_owned()),
            ..Logged::new(
                at,
                "violated",
                format!(
                    "{name} got {delivered} of {promised} promised in a window ({windows} in a row): {blame}"
                ),
            )
        }
    }

    pub(super) fn shed(at: Second, from: Shed, to: Shed) -> Logged {
        let what = format!("given up: {} (before: {})", to.name(), from.name());
        Logged::new(at, "shed", what)
    }

    pub(super) fn over(at: Second, session: &Session, why: &str) -> Logged {
        let number = session.number();
        Logged {
            reservation: session.reservation().map(|id| id.0),
            ..Logged::new(at, "over", format!("session {number} is over: {why}"))
        }
    }

    pub(super) fn drift(at: Second, mix: Mix, which: &str) -> Logged {
        let what = format!(
            "the device is {which} than it was ({}): a calibration is due",
            mix.name()
        );
        Logged::new(at, "drift", what)
    }

    pub(super) fn overcommitted(at: Second, first: &Stretch) -> Logged {
        let what = format!(
            "more is promised than the device can do, first in {}: {} promised, {} to stay free",
            first.slot, first.promised, first.headroom
        );
        Logged::new(at, "overcommitted", what)
    }

    pub(super) fn lost(at: Second, events: u64) -> Logged {
        Logged::new(at, "lost", format!("{events} events were dropped"))
    }
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
    /// The scheduler.
    pub scheduler: String,
    /// Pieces that may be at the device at once.
    pub depth: u32,
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
    /// Room.
    pub space: SpaceReport,
    /// What the device is trusted to do.
    pub capacity: CapacityReport,
    /// What is promised.
    pub calendar: CalendarReport,
    /// Sessions open now.
    pub sessions: usize,
    /// Buffer memory, all of it.
    pub memory_bytes: u64,
    /// The scrub.
    pub scrub: ScrubReport,
    /// Reservations that ended lately, the latest last.
    pub ended: Vec<EndedReport>,
    /// Broken promises and the like, the latest last.
    pub log: Vec<Logged>,
}

impl Manager {
    /// The sessions that are open, then those closed lately.
    pub fn sessions(&self) -> Vec<SessionReport> {
        let open = self.open_sessions();
        let open = open.iter().map(|session| session.report());
        open.chain(self.closed.borrow().iter().cloned()).collect()
    }

    /// What is to be known about it.
    pub fn report(&self) -> ManagerReport {
        self.take_events();
        let space = self.store.space();
        let totals = self.queue.totals();
        let (best_effort, background) = self.queue.unpromised();
        let scrubbed = self.scrubbed.get();
        ManagerReport {
            store: self.store.name().to_owned(),
            uuid: format!("{:032x}", self.uuid()),
            device: self.store.inner.disk.device_name.clone(),
            now: self.now().0,
            scheduler: self.queue.kind().name().to_owned(),
            depth: self.queue.depth(),
            in_flight: totals.in_flight,
            shed: self.shed.get().name().to_owned(),
            read_bytes: totals.read.0,
            written_bytes: totals.written.0,
            metadata_bytes: totals.metadata.0,
            best_effort_bytes: best_effort.delivered.0,
            background_bytes: background.delivered.0,
            space: SpaceReport {
                total_bytes: space.total.0,
                used_bytes: space.used.0,
                reserved_bytes: space.reserved.0,
                free_bytes: space.free.0,
                objects: space.objects,
            },
            capacity: self.capacity_report(),
            calendar: self.calendar_report(),
            sessions: self.sessions.borrow().len(),
            memory_bytes: self.options.memory.0,
            scrub: ScrubReport {
                rate: self.options.scrub.map_or(0, |it| it.rate.0),
                rounds: scrubbed.rounds,
                read_bytes: scrubbed.bytes,
                bad: scrubbed.bad,
                round_ended: scrubbed.round_ended.map(|it| it.0),
            },
            ended: self.ended.borrow().clone(),
            log: self.log.borrow().iter().cloned().collect(),
        }
    }

    fn capacity_report(&self) -> CapacityReport {
        let capacity = self.capacity.borrow();
        let calibration = self.calibration.borrow();
        let model = match &*calibration {
            Some(_) => "calibrated",
            None => "configured",
        };
        let speeds = capacity.speeds();
        let source = match speeds {
            (None, None) => model.to_owned(),
            _ => format!("{model}, observed"),
        };
        let unit = self.unit();
        let trusted = |direction| {
            let (costs, speed) = match direction {
                Direction::Read => (capacity.costs, speeds.0),
                Direction::Write => (capacity.costs, speeds.1),
            };
            costs.rate(direction, speed.unwrap_or(Share::WHOLE), unit).0
        };
        let samples = [Mix::Reads, Mix::Writes, Mix::Mixed];
        CapacityReport {
            read: trusted(Direction::Read),
            write: trusted(Direction::Write),
            source,
            read_speed_percent: speeds.0.map(Share::as_percent),
            write_speed_percent: speeds.1.map(Share::as_percent),
            samples: samples.map(|mix| capacity.estimator.samples(mix)),
            calibrated: calibration.as_ref().map(|it| it.measured.0),
            calibrated_device: calibration.as_ref().map(|it| it.device.0.clone()),
            calibration_due: capacity.drifted,
        }
    }

    fn calendar_report(&self) -> CalendarReport {
        let now = self.now();
        let calendar = self.calendar.borrow();
        let stretch = calendar.sweep(Slot::new(now, 1));
        let stretch = stretch.first().expect("a second has a stretch");
        let records = self.records.borrow();
        let committed = records.values().filter(|it| it.state == State::Committed);
        let committed = committed.count();
        let over = calendar.overcommitted(now);
        CalendarReport {
            held: records.len() - committed,
            committed,
            now: stretch.into(),
            floors_percent: self.floors().as_percent(),
            overcommitted: over.iter().take(10).map(StretchReport::from).collect(),
        }
    }
}
