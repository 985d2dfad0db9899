//! Every error a server may answer with, so that the client has the same one, word for word.

use std::fmt;

use base::Bytes;
use policy::share::calendar::Offer;
use policy::share::{BytesPerSec, Second, Slot};

use super::device_failure::{device, put_device, put_span, sentence, span};
use super::fields::{Fields, Malformed, Put};
use crate::object::error::StoreError;
use crate::object::types::ReservationId;
use crate::object::types::{Condition, Version};

/// Why a request was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The store's own error.
    Store(StoreError),
    /// The manager or the server refused it.
    Refused {
        /// On what ground.
        kind: RefusedKind,
        /// The sentence.
        text: String,
        /// What would fit, where a reservation does not.
        offer: Option<Offer>,
    },
}

/// On what ground a manager or a server refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
#[repr(u16)]
pub enum RefusedKind {
    /// The credentials do not open a session: wrong key, capability expired, badly signed ...
    Access = 64,
    /// The session may not do this: outside its scope or against its direction.
    Session = 65,
    /// The reservation does not fit, or is not there.
    Reservation = 66,
    /// Only for holders of the node key.
    NodeKeyOnly = 67,
    /// The server does not know the operation.
    Unknown = 68,
    /// It is longer than the server takes.
    TooLong = 69,
    /// The server is shutting down: it was not begun.
    ShuttingDown = 70,
    /// What came is not the protocol; the connection ends.
    Malformed = 71,
    /// The request came too early or too late: before the session is open, or a second opening.
    OutOfTurn = 72,
    /// What gave the client its rights is over: its slot, its reservation.
    Ended = 73,
}

impl RefusedKind {
    pub(super) const ALL: [RefusedKind; 10] = [
        RefusedKind::Access,
        RefusedKind::Session,
        RefusedKind::Reservation,
        RefusedKind::NodeKeyOnly,
        RefusedKind::Unknown,
        RefusedKind::TooLong,
        RefusedKind::ShuttingDown,
        RefusedKind::Malformed,
        RefusedKind::OutOfTurn,
        RefusedKind::Ended,
    ];
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Store(error) => error.fmt(f),
            Failure::Refused { text, .. } => f.write_str(text),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        Failure::Store(error)
    }
}

/// What was under way when a device failed: `StoreError::Device` has one of these words.
const UNDER_WAY: [&str; 4] = ["use", "read", "write", "scrub"];

fn put_condition(out: &mut Vec<u8>, condition: Condition) {
    let (kind, number) = match condition {
        Condition::Any => (0, 0),
        Condition::Version(version) => (1, version.0),
        Condition::StampAtMost(most) => (2, most),
    };
    out.u8(kind);
    out.u64(number);
}

fn condition(fields: &mut Fields<'_>) -> Result<Condition, Malformed> {
    let (kind, number) = (fields.u8()?, fields.u64()?);
    Ok(match (kind, number) {
        (0, 0) => Condition::Any,
        (1, _) => Condition::Version(Version(number)),
        (2, _) => Condition::StampAtMost(number),
        _ => return fields.refuse(format_args!("{kind} with {number} is no condition")),
    })
}

impl Failure {
    /// A refusal on this ground.
    pub fn refused(kind: RefusedKind, text: impl Into<String>) -> Failure {
        Failure::Refused {
            kind,
            text: text.into(),
            offer: None,
        }
    }

    /// Puts its fields; gives its status.
    pub(super) fn encode(&self, out: &mut Vec<u8>) -> u16 {
        match self {
            Failure::Store(error) => put_store(out, error),
            Failure::Refused { kind, text, offer } => {
                sentence(out, text);
                let earliest = offer.as_ref().and_then(|offer| offer.earliest);
                let largest = offer.as_ref().and_then(|offer| offer.largest);
                out.u8(u8::from(offer.is_some())
                    | u8::from(earliest.is_some()) << 1
                    | u8::from(largest.is_some()) << 2);
                out.u64(earliest.map_or(0, |slot| slot.start.0));
                out.u64(earliest.map_or(0, |slot| slot.end.0));
                out.u64(largest.map_or(0, |rate| rate.0));
                *kind as u16
            }
        }
    }

    pub(super) fn decode(status: u16, fields: &mut Fields<'_>) -> Result<Failure, Malformed> {
        if status < RefusedKind::Access as u16 {
            return Ok(Failure::Store(store(status, fields)?));
        }
        let known = RefusedKind::ALL
            .into_iter()
            .find(|kind| *kind as u16 == status);
        let Some(kind) = known else {
            return fields.refuse(format_args!("no failure has the number {status}"));
        };
        let (text, bits) = (fields.text()?, fields.u8()?);
        let slot = Slot {
            start: Second(fields.u64()?),
            end: Second(fields.u64()?),
        };
        let rate = BytesPerSec(fields.u64()?);
        let blank = slot.start.0 == 0 && slot.end.0 == 0;
        let fits = match bits {
            0 | 1 => blank && rate.0 == 0,
            3 => rate.0 == 0,
            5 => blank,
            7 => true,
            _ => false,
        };
        if !fits {
            return fields.refuse("an offer contradicts itself");
        }
        let offer = (bits & 1 != 0).then_some(Offer {
            earliest: (bits & 2 != 0).then_some(slot),
            largest: (bits & 4 != 0).then_some(rate),
        });
        Ok(Failure::Refused { kind, text, offer })
    }
}

fn put_store(out: &mut Vec<u8>, error: &StoreError) -> u16 {
    match error {
        StoreError::NotFound { store, object } => {
            out.text(store);
            out.text(object);
            1
        }
        StoreError::Exists { store, object } => {
            out.text(store);
            out.text(object);
            2
        }
        StoreError::Condition {
            store,
            object,
            asked,
            found,
            stamp,
        } => {
            out.text(store);
            out.text(object);
            put_condition(out, *asked);
            out.u64(found.0);
            out.u64(*stamp);
            3
        }
        StoreError::Request { what, why } => {
            sentence(out, what);
            sentence(out, why);
            4
        }
        StoreError::NoSpace {
            store,
            asked,
            available,
            total,
        } => {
            out.text(store);
            out.u64(asked.0);
            out.u64(available.0);
            out.u64(total.0);
            5
        }
        StoreError::Reservation {
            store,
            reservation,
            asked,
            left,
        } => {
            out.text(store);
            out.u64(reservation.0);
            out.u64(asked.0);
            out.u64(left.0);
            6
        }
        StoreError::NoReservation { store, reservation } => {
            out.text(store);
            out.u64(reservation.0);
            7
        }
        StoreError::TableFull { store, live, most } => {
            out.text(store);
            out.u64(live.0);
            out.u64(most.0);
            8
        }
        StoreError::Damaged {
            store,
            object,
            offset,
            len,
            device,
            span,
        } => {
            out.text(store);
            out.text(object);
            out.u64(*offset);
            out.u64(len.0);
            out.text(device);
            put_span(out, *span);
            9
        }
        StoreError::Device {
            store,
            what,
            object,
            source,
        } => {
            out.text(store);
            let word = UNDER_WAY.iter().position(|word| word == what);
            debug_assert!(word.is_some(), "{what:?} has no number on the wire");
            out.u8(word.unwrap_or(0) as u8);
            out.text(object);
            put_device(out, source);
            10
        }
        StoreError::Failed { store, why } => {
            out.text(store);
            sentence(out, why);
            11
        }
        StoreError::Closed { store } => {
            out.text(store);
            12
        }
        StoreError::Fenced {
            store,
            object,
            stamp,
            found,
        } => {
            out.text(store);
            out.text(object);
            out.u64(*stamp);
            out.u64(*found);
            13
        }
    }
}

fn store(status: u16, fields: &mut Fields<'_>) -> Result<StoreError, Malformed> {
    if !(1..=13).contains(&status) {
        return fields.refuse(format_args!("no failure has the number {status}"));
    }
    if status == 4 {
        return Ok(StoreError::Request {
            what: fields.text()?,
            why: fields.text()?,
        });
    }
    let store = fields.text()?;
    Ok(match status {
        1 => StoreError::NotFound {
            store,
            object: fields.text()?,
        },
        2 => StoreError::Exists {
            store,
            object: fields.text()?,
        },
        3 => StoreError::Condition {
            store,
            object: fields.text()?,
            asked: condition(fields)?,
            found: Version(fields.u64()?),
            stamp: fields.u64()?,
        },
        5 => StoreError::NoSpace {
            store,
            asked: Bytes(fields.u64()?),
            available: Bytes(fields.u64()?),
            total: Bytes(fields.u64()?),
        },
        6 => StoreError::Reservation {
            store,
            reservation: ReservationId(fields.u64()?),
            asked: Bytes(fields.u64()?),
            left: Bytes(fields.u64()?),
        },
        7 => StoreError::NoReservation {
            store,
            reservation: ReservationId(fields.u64()?),
        },
        8 => StoreError::TableFull {
            store,
            live: Bytes(fields.u64()?),
            most: Bytes(fields.u64()?),
        },
        9 => StoreError::Damaged {
            store,
            object: fields.text()?,
            offset: fields.u64()?,
            len: Bytes(fields.u64()?),
            device: fields.text()?,
            span: span(fields)?,
        },
        10 => {
            let word = usize::from(fields.u8()?);
            let Some(what) = UNDER_WAY.get(word) else {
                return fields.refuse(format_args!("{word} is nothing that can be under way"));
            };
            StoreError::Device {
                store,
                what,
                object: fields.text()?,
                source: Box::new(device(fields)?),
            }
        }
        11 => StoreError::Failed {
            store,
            why: fields.text()?,
        },
        12 => StoreError::Closed { store },
        _ => StoreError::Fenced {
            store,
            object: fields.text()?,
            stamp: fields.u64()?,
            found: fields.u64()?,
        },
    })
}
