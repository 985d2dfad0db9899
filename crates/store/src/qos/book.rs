//! What a manager must remember: reservations, numbers given, keys, what the device was measured to do, what has been.
//!
//! ```text
//! .tanada/bookings/<number>   one reservation each        .tanada/keys         public keys accepted
//! .tanada/numbers             numbers below are given     .tanada/calibration  costs and headroom, measured
//! .tanada/history             reservations that ended     .tanada/trust        the speed the device was seen to have
//! ```
//!
//! They are objects of the store itself, JSON with a version, each written in one step and durable before the request
//! is answered. A text that became shorter is filled up with spaces, so that no second step is needed. Field by field
//! in `docs/formats.md`.
//!
//! Always true:
//! 1. What is of an unknown version, or no JSON of ours, is refused when the manager opens, and never written over.
//! 2. A number is given once, whatever a crash took back.

use std::collections::BTreeMap;

use base::{Bytes, Nanos, View};
use device::Class;
use policy::share::calendar::{Booking, BookingId, State};
use policy::share::{
    BytesPerSec, Contract, Cost, Costs, Direction, Mix, Point, Probability, Second, Share, Slot,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::object::error::{OpenError, StoreError};
use crate::object::types::Change;
use crate::object::types::ReservationId;
use crate::qos::capability::Keyring;
use crate::{Store, qos::session::EndedReport};

/// What the names of system objects begin with.
pub const SYSTEM: &str = ".tanada/";
const BOOKINGS: &str = ".tanada/bookings/";
const NUMBERS: &str = ".tanada/numbers";
const KEYS: &str = ".tanada/keys";
const CALIBRATION: &str = ".tanada/calibration";
const HISTORY: &str = ".tanada/history";
const TRUST: &str = ".tanada/trust";
/// The version of all of them.
const VERSION: u32 = 1;
/// So many numbers are set aside at once: at most as many are skipped by a restart.
const NUMBERS_AT_ONCE: u64 = 16;
/// Reservations that ended and are remembered: far less than the longest write.
pub(crate) const ENDED_MAX: usize = 200;

/// A reservation over several stores: all of it or none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The whole reservation's number, drawn by the client that makes it.
    pub id: u128,
    /// The stores that are part of it. They are committed in this order, so the last one *decides*: once it has
    /// committed all have.
    pub stores: Vec<u128>,
}

impl Group {
    /// The store whose commit is the commit of all.
    pub fn decider(&self) -> Option<u128> {
        self.stores.last().copied()
    }
}

/// A reservation as it is remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub id: BookingId,
    /// With its room.
    pub contract: Contract,
    pub state: State,
    pub scope: String,
    pub holder: String,
    pub group: Option<Group>,
    /// Its room in the store.
    pub room: Option<ReservationId>,
    pub made: Second,
}

impl Record {
    /// As the calendar has it: room is the store's concern.
    pub fn booking(&self) -> Booking {
        let contract = Contract {
            space: Bytes(0),
            ..self.contract
        };
        Booking {
            contract,
            state: self.state,
        }
    }
}

/// What the device was measured to do; see [`crate::qos::manager::Manager::set_calibration`].
#[derive(Debug, Clone, PartialEq)]
pub struct Calibration {
    /// What requests cost.
    pub costs: Costs,
    /// What must stay free, as measured.
    pub points: Vec<Point>,
    /// What must stay free where no point was measured.
    pub beyond: Share,
    /// When.
    pub measured: Second,
    /// On which device: its name and size.
    pub device: (String, Bytes),
    /// Whatever else was found, for reports.
    pub surface: serde_json::Value,
}

/// The speed the device was seen to have, as parts of what a model of it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Trust {
    /// The model.
    pub costs: Costs,
    /// Of reads, of writes, of both at once.
    pub speeds: [Option<Share>; 3],
    /// It no longer does what it did when it was calibrated.
    pub drifted: bool,
}

/// All that is remembered, as it was found.
#[derive(Debug, Default)]
pub(crate) struct Book {
    pub records: BTreeMap<BookingId, Record>,
    /// Numbers from here on were never given.
    pub numbers: u64,
    pub keys: Keyring,
    pub calibration: Option<Calibration>,
    pub trust: Option<Trust>,
    pub ended: Vec<EndedReport>,
}

// --- as written -------------------------------------------------------------------------------------

#[derive(Deserialize)]
struct Head {
    version: u32,
}

#[derive(Serialize, Deserialize)]
struct RawBooking {
    version: u32,
    id: u64,
    state: RawState,
    direction: RawDirection,
    rate: u64,
    window_ns: u64,
    probability_ppm: u32,
    space: u64,
    from: u64,
    until: u64,
    scope: String,
    holder: String,
    group: Option<RawGroup>,
    room: Option<u64>,
    made: u64,
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
struct RawNumbers {
    version: u32,
    next: u64,
}

#[derive(Serialize, Deserialize)]
struct RawKeys {
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
struct RawHistory {
    version: u32,
    ended: Vec<EndedReport>,
}

#[derive(Serialize, Deserialize)]
struct RawCalibration {
    version: u32,
    read: RawCost,
    write: RawCost,
    points: Vec<RawPoint>,
    beyond_ppb: u64,
    measured: u64,
    device: String,
    device_bytes: u64,
    surface: serde_json::Value,
}

#[derive(Serialize, Deserialize)]
struct RawTrust {
    version: u32,
    read: RawCost,
    write: RawCost,
    reads_ppb: Option<u64>,
    writes_ppb: Option<u64>,
    mixed_ppb: Option<u64>,
    drifted: bool,
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
    fn of(record: &Record) -> RawBooking {
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
            from: contract.slot.start.0,
            until: contract.slot.end.0,
            scope: record.scope.clone(),
            holder: record.holder.clone(),
            group: record.group.as_ref().map(|group| RawGroup {
                id: hex(group.id),
                stores: group.stores.iter().map(|store| hex(*store)).collect(),
            }),
            room: record.room.map(|room| room.0),
            made: record.made.0,
        }
    }

    fn record(self) -> Result<Record, String> {
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
                    start: Second(self.from),
                    end: Second(self.until),
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
        })
    }
}

impl RawKeys {
    fn ring(self) -> Result<Keyring, String> {
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
    fn of(calibration: &Calibration) -> RawCalibration {
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
            surface: calibration.surface.clone(),
        }
    }

    fn calibration(self) -> Result<Calibration, String> {
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
            surface: self.surface,
        })
    }
}

impl RawTrust {
    fn of(trust: &Trust) -> RawTrust {
        let [reads, writes, mixed] = trust.speeds.map(|speed| speed.map(|it| it.0));
        RawTrust {
            version: VERSION,
            read: RawCost::of(&trust.costs.read),
            write: RawCost::of(&trust.costs.write),
            reads_ppb: reads,
            writes_ppb: writes,
            mixed_ppb: mixed,
            drifted: trust.drifted,
        }
    }

    fn trust(self) -> Result<Trust, String> {
        let speeds = [self.reads_ppb, self.writes_ppb, self.mixed_ppb];
        Ok(Trust {
            costs: Costs {
                read: self.read.cost()?,
                write: self.write.cost()?,
            },
            speeds: speeds.map(|speed| speed.map(Share)),
            drifted: self.drifted,
        })
    }
}

// --- reading and writing ----------------------------------------------------------------------------

/// Reads one system object; `None`: there is none.
async fn read<T: DeserializeOwned>(store: &Store, object: &str) -> Result<Option<T>, OpenError> {
    let broken = |why: String| OpenError::System {
        store: store.name().to_owned(),
        object: object.to_owned(),
        why,
    };
    let Ok(stat) = store.stat(object) else {
        return Ok(None);
    };
    let bytes = store
        .read(object, 0, stat.size, Class::Metadata)
        .await
        .map_err(|error| broken(error.to_string()))?;
    let head: Head = serde_json::from_slice(&bytes).map_err(|error| broken(error.to_string()))?;
    if head.version != VERSION {
        return Err(OpenError::SystemVersion {
            store: store.name().to_owned(),
            object: object.to_owned(),
            found: head.version,
            known: VERSION,
        });
    }
    let whole = serde_json::from_slice(&bytes).map_err(|error| broken(error.to_string()))?;
    Ok(Some(whole))
}

/// Writes one system object in one step; durable at completion.
async fn write<T: Serialize>(store: &Store, object: &str, value: &T) -> Result<(), StoreError> {
    let mut bytes = serde_json::to_vec(value).expect("numbers and texts");
    let before = store.stat(object).map_or(0, |stat| stat.size as usize);
    bytes.resize(bytes.len().max(before), b' ');
    let change = Change::FUA.creating().class(Class::Metadata);
    let view = View::copy_of(&bytes);
    store.write(object, 0, view, change).await.map(drop)
}

fn booking_name(id: BookingId) -> String {
    format!("{BOOKINGS}{:020}", id.0)
}

impl Book {
    /// All that a store's system objects say.
    pub async fn load(store: &Store) -> Result<Book, OpenError> {
        let mut book = Book {
            numbers: 1,
            ..Book::default()
        };
        let mut after = None;
        loop {
            let part = store.list(BOOKINGS, after.as_deref(), 1000);
            for stat in &part.objects {
                let broken = |why| OpenError::System {
                    store: store.name().to_owned(),
                    object: stat.name.clone(),
                    why,
                };
                let raw: RawBooking = read(store, &stat.name).await?.expect("just listed");
                let record = raw.record().map_err(broken)?;
                if booking_name(record.id) != stat.name {
                    return Err(broken(format!("it speaks of number {}", record.id.0)));
                }
                book.records.insert(record.id, record);
            }
            match part.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        let broken = |object: &str| {
            let (store, object) = (store.name().to_owned(), object.to_owned());
            move |why| OpenError::System { store, object, why }
        };
        if let Some(raw) = read::<RawNumbers>(store, NUMBERS).await? {
            book.numbers = raw.next;
        }
        if let Some((last, _)) = book.records.last_key_value() {
            book.numbers = book.numbers.max(last.0 + 1);
        }
        if let Some(raw) = read::<RawKeys>(store, KEYS).await? {
            book.keys = raw.ring().map_err(broken(KEYS))?;
        }
        if let Some(raw) = read::<RawCalibration>(store, CALIBRATION).await? {
            book.calibration = Some(raw.calibration().map_err(broken(CALIBRATION))?);
        }
        if let Some(raw) = read::<RawTrust>(store, TRUST).await? {
            book.trust = Some(raw.trust().map_err(broken(TRUST))?);
        }
        if let Some(raw) = read::<RawHistory>(store, HISTORY).await? {
            book.ended = raw.ended;
        }
        Ok(book)
    }
}

/// Writes a reservation, new or changed.
pub(crate) async fn put_record(store: &Store, record: &Record) -> Result<(), StoreError> {
    write(store, &booking_name(record.id), &RawBooking::of(record)).await
}

/// Forgets a reservation; durable at completion.
pub(crate) async fn remove_record(store: &Store, id: BookingId) -> Result<(), StoreError> {
    let change = Change::FUA.class(Class::Metadata);
    match store.delete(&booking_name(id), change).await {
        Err(StoreError::NotFound { .. }) => Ok(()),
        other => other,
    }
}

/// Sets numbers aside from `next` on; answers where they end.
pub(crate) async fn put_numbers(store: &Store, next: u64) -> Result<u64, StoreError> {
    let end = next + NUMBERS_AT_ONCE;
    let raw = RawNumbers {
        version: VERSION,
        next: end,
    };
    write(store, NUMBERS, &raw).await?;
    Ok(end)
}

/// Writes the key ring.
pub(crate) async fn put_keys(store: &Store, ring: &Keyring) -> Result<(), StoreError> {
    let digits = |public: &[u8; 32]| public.iter().map(|byte| format!("{byte:02x}")).collect();
    let key = |key: &crate::qos::capability::Accepted| RawKey {
        public: digits(&key.public),
        from: key.from.0,
        until: key.until.map(|until| until.0),
    };
    let raw = RawKeys {
        version: VERSION,
        keys: ring.keys().iter().map(key).collect(),
    };
    write(store, KEYS, &raw).await
}

/// Writes what the device was measured to do.
pub(crate) async fn put_calibration(store: &Store, it: &Calibration) -> Result<(), StoreError> {
    write(store, CALIBRATION, &RawCalibration::of(it)).await
}

/// Writes how fast the device was seen to be.
pub(crate) async fn put_trust(store: &Store, it: &Trust) -> Result<(), StoreError> {
    write(store, TRUST, &RawTrust::of(it)).await
}

/// Writes what has been, the latest last.
pub(crate) async fn put_history(store: &Store, ended: &[EndedReport]) -> Result<(), StoreError> {
    let raw = RawHistory {
        version: VERSION,
        ended: ended.to_vec(),
    };
    write(store, HISTORY, &raw).await
}
