//! The objects of the book as they are written: JSON, field by field in `docs/formats.md`.

use base::{Bytes, Nanos};
use policy::share::calendar::{BookingId, State};
use policy::share::{
    BytesPerSec, Contract, Cost, Costs, Direction, Mix, Point, Probability, Second, Share, Slot,
};
use serde::{Deserialize, Serialize};

use super::record::{Calibration, EndedReport, Group, Record, Trust};
use crate::object::types::ReservationId;
use crate::qos::capability::{Accepted, Keyring};

/// The version of all of them.
pub(super) const VERSION: u32 = 1;

#[derive(Deserialize)]
pub(super) struct Head {
    pub version: u32,
}

#[derive(Serialize, Deserialize)]
pub(super) struct RawBooking {
    version: u32,
    id: u64,
    state: RawState,
    direction: RawDirection,
    rate: u64,
    window_ns: u64,
    probability_ppm: u32,
    space: u64,
    #[serde(flatten)]
    slot: RawSlot,
    scope: String,
    holder: String,
    group: Option<RawGroup>,
    room: Option<u64>,
    made: u64,
    #[serde(flatten)]
    others: RawOthers,
}

/// Other reservations that it is about.
#[derive(Serialize, Deserialize)]
struct RawOthers {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    replaces: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    first: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    within: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct RawSlot {
    from: u64,
    until: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RawState {
    HeldUntil(u64),
    Committed,
}

#[derive(Serialize, Deserialize, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
enum RawDirection {
    Read,
    Write,
}

impl From<Direction> for RawDirection {
    fn from(direction: Direction) -> RawDirection {
        match direction {
            Direction::Read => RawDirection::Read,
            Direction::Write => RawDirection::Write,
        }
    }
}

#[derive(Serialize, Deserialize)]
struct RawGroup {
    id: String,
    stores: Vec<String>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct RawNumbers {
    version: u32,
    pub next: u64,
}

#[derive(Serialize, Deserialize)]
pub(super) struct RawKeys {
    version: u32,
    keys: Vec<RawKey>,
}

#[derive(Serialize, Deserialize)]
struct RawKey {
    public: String,
    from: u64,
    until: Option<u64>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct RawHistory {
    version: u32,
    pub ended: Vec<EndedReport>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct RawCalibration {
    version: u32,
    read: RawCost,
    write: RawCost,
    points: Vec<RawPoint>,
    beyond_ppb: u64,
    measured: u64,
    device: String,
    device_bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    identity: Option<String>,
    surface: serde_json::Value,
}

#[derive(Serialize, Deserialize)]
pub(super) struct RawTrust {
    version: u32,
    read: RawCost,
    write: RawCost,
    reads_ppb: Option<u64>,
    writes_ppb: Option<u64>,
    mixed_ppb: Option<u64>,
    drifted: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    identity: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct RawCost {
    fixed_ns: u64,
    jump_ns: u64,
    rate: u64,
}

#[derive(Serialize, Deserialize)]
struct RawPoint {
    mix: RawMix,
    sessions: u32,
    window_ns: u64,
    probability_ppm: u32,
    overhead_ppb: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RawMix {
    Reads,
    Writes,
    Mixed,
}

fn hex(number: u128) -> String {
    format!("{number:032x}")
}

fn unhex(text: &str) -> Result<u128, String> {
    u128::from_str_radix(text, 16).map_err(|_| format!("{text:?} is no hexadecimal number"))
}

impl RawBooking {
    pub(super) fn of(record: &Record) -> RawBooking {
        let contract = &record.contract;
        RawBooking {
            version: VERSION,
            id: record.id.0,
            state: match record.state {
                State::Tentative { until } => RawState::HeldUntil(until.0),
                State::Committed => RawState::Committed,
            },
            direction: contract.direction.into(),
            rate: contract.rate.0,
            window_ns: contract.window.0,
            probability_ppm: contract.probability.0,
            space: contract.space.0,
            slot: RawSlot {
                from: contract.slot.start.0,
                until: contract.slot.end.0,
            },
            scope: record.scope.clone(),
            holder: record.holder.clone(),
            group: record.group.as_ref().map(|group| RawGroup {
                id: hex(group.id),
                stores: group.stores.iter().map(|store| hex(*store)).collect(),
            }),
            room: record.room.map(|room| room.0),
            made: record.made.0,
            others: RawOthers {
                replaces: record.replaces.map(|id| id.0),
                first: record.first.map(hex),
                within: record.within.map(hex),
            },
        }
    }

    pub(super) fn record(self) -> Result<Record, String> {
        let group = match self.group {
            None => None,
            Some(group) => Some(Group {
                id: unhex(&group.id)?,
                stores: group
                    .stores
                    .iter()
                    .map(|store| unhex(store))
                    .collect::<Result<_, _>>()?,
            }),
        };
        if self.rate == 0 || self.window_ns == 0 || self.probability_ppm > 1_000_000 {
            return Err("it promises what no store can promise".to_owned());
        }
        Ok(Record {
            id: BookingId(self.id),
            contract: Contract {
                rate: BytesPerSec(self.rate),
                direction: match self.direction {
                    RawDirection::Read => Direction::Read,
                    RawDirection::Write => Direction::Write,
                },
                window: Nanos(self.window_ns),
                probability: Probability(self.probability_ppm),
                slot: Slot {
                    start: Second(self.slot.from),
                    end: Second(self.slot.until),
                },
                space: Bytes(self.space),
            },
            state: match self.state {
                RawState::HeldUntil(until) => State::Tentative {
                    until: Second(until),
                },
                RawState::Committed => State::Committed,
            },
            scope: self.scope,
            holder: self.holder,
            group,
            room: self.room.map(ReservationId),
            made: Second(self.made),
            replaces: self.others.replaces.map(BookingId),
            first: self.others.first.map(|it| unhex(&it)).transpose()?,
            within: self.others.within.map(|it| unhex(&it)).transpose()?,
        })
    }
}

impl RawNumbers {
    pub(super) fn of(next: u64) -> RawNumbers {
        RawNumbers {
            version: VERSION,
            next,
        }
    }
}

impl RawHistory {
    pub(super) fn of(ended: &[EndedReport]) -> RawHistory {
        RawHistory {
            version: VERSION,
            ended: ended.to_vec(),
        }
    }
}

impl RawKeys {
    pub(super) fn of(ring: &Keyring) -> RawKeys {
        let digits = |public: &[u8; 32]| public.iter().map(|byte| format!("{byte:02x}")).collect();
        let key = |key: &Accepted| RawKey {
            public: digits(&key.public),
            from: key.from.0,
            until: key.until.map(|until| until.0),
        };
        RawKeys {
            version: VERSION,
            keys: ring.keys().iter().map(key).collect(),
        }
    }

    pub(super) fn ring(self) -> Result<Keyring, String> {
        let mut ring = Keyring::default();
        for key in self.keys {
            let mut public = [0; 32];
            let ascii = key.public.is_ascii() && key.public.len() == 64;
            for (at, byte) in public.iter_mut().enumerate().filter(|_| ascii) {
                let digits = &key.public[2 * at..2 * at + 2];
                *byte = u8::from_str_radix(digits, 16)
                    .map_err(|_| format!("{:?} is no public key", key.public))?;
            }
            if !ascii {
                return Err(format!("{:?} is no public key", key.public));
            }
            ring.accept(public, Second(key.from), key.until.map(Second));
        }
        Ok(ring)
    }
}

impl RawCost {
    fn of(cost: &Cost) -> RawCost {
        RawCost {
            fixed_ns: cost.fixed.0,
            jump_ns: cost.jump.0,
            rate: cost.rate.0,
        }
    }

    fn cost(&self) -> Result<Cost, String> {
        if self.rate == 0 {
            return Err("a device of no speed".to_owned());
        }
        Ok(Cost {
            fixed: Nanos(self.fixed_ns),
            jump: Nanos(self.jump_ns),
            rate: BytesPerSec(self.rate),
        })
    }
}

impl RawCalibration {
    pub(super) fn of(calibration: &Calibration) -> RawCalibration {
        let point = |point: &Point| RawPoint {
            mix: match point.mix {
                Mix::Reads => RawMix::Reads,
                Mix::Writes => RawMix::Writes,
                Mix::Mixed => RawMix::Mixed,
            },
            sessions: point.sessions,
            window_ns: point.window.0,
            probability_ppm: point.probability.0,
            overhead_ppb: point.overhead.0,
        };
        RawCalibration {
            version: VERSION,
            read: RawCost::of(&calibration.costs.read),
            write: RawCost::of(&calibration.costs.write),
            points: calibration.points.iter().map(point).collect(),
            beyond_ppb: calibration.beyond.0,
            measured: calibration.measured.0,
            device: calibration.device.0.clone(),
            device_bytes: calibration.device.1.0,
            identity: calibration.identity.clone(),
            surface: calibration.surface.clone(),
        }
    }

    pub(super) fn calibration(self) -> Result<Calibration, String> {
        let point = |point: &RawPoint| Point {
            mix: match point.mix {
                RawMix::Reads => Mix::Reads,
                RawMix::Writes => Mix::Writes,
                RawMix::Mixed => Mix::Mixed,
            },
            sessions: point.sessions,
            window: Nanos(point.window_ns),
            probability: Probability(point.probability_ppm),
            overhead: Share(point.overhead_ppb),
        };
        Ok(Calibration {
            costs: Costs {
                read: self.read.cost()?,
                write: self.write.cost()?,
            },
            points: self.points.iter().map(point).collect(),
            beyond: Share(self.beyond_ppb),
            measured: Second(self.measured),
            device: (self.device, Bytes(self.device_bytes)),
            identity: self.identity,
            surface: self.surface,
        })
    }
}

impl RawTrust {
    pub(super) fn of(trust: &Trust) -> RawTrust {
        let [reads, writes, mixed] = trust.speeds.map(|speed| speed.map(|it| it.0));
        RawTrust {
            version: VERSION,
            read: RawCost::of(&trust.costs.read),
            write: RawCost::of(&trust.costs.write),
            reads_ppb: reads,
            writes_ppb: writes,
            mixed_ppb: mixed,
            drifted: trust.drifted,
            identity: trust.identity.clone(),
        }
    }

    pub(super) fn trust(self) -> Result<Trust, String> {
        let speeds = [self.reads_ppb, self.writes_ppb, self.mixed_ppb];
        Ok(Trust {
            costs: Costs {
                read: self.read.cost()?,
                write: self.write.cost()?,
            },
            speeds: speeds.map(|speed| speed.map(Share)),
            drifted: self.drifted,
            identity: self.identity,
        })
    }
}
