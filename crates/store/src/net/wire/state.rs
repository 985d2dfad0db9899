//! A queue's state as fields, beside answers and in datagrams.
//!
//! A reader takes what it knows: each version's own fields come behind those of the one before. What it cannot
//! read is no state, and no error: no client depends on one.

use base::{Bytes, Instant, Nanos};
use policy::place::{
    At, Class, ClientId, Origin, PerByte, Permille, Promised, State, Tail, Weights,
};
use policy::share::BytesPerSec;

use super::auth::{NodeKey, TAG_LEN};
use super::fields::{Fields, Malformed, Put};

/// The version of a state that this program writes; one less where nothing is booked, as the rest is the same.
const VERSION: u8 = 4;
/// The most bytes that are looked at.
pub(crate) const STATE_MAX: usize = 256;

pub(super) fn put_class(out: &mut Vec<u8>, class: Class) {
    out.u8(match class {
        Class::Low => 1,
        Class::Normal => 2,
        Class::High => 3,
    });
}

pub(super) fn class(fields: &mut Fields<'_>) -> Result<Class, Malformed> {
    match fields.u8()? {
        1 => Ok(Class::Low),
        2 => Ok(Class::Normal),
        3 => Ok(Class::High),
        other => fields.refuse(format_args!("{other} is no class")),
    }
}

pub(super) fn put_origin(out: &mut Vec<u8>, origin: Origin) {
    out.u64(origin.client.0);
    put_class(out, origin.class);
}

pub(super) fn origin(fields: &mut Fields<'_>) -> Result<Origin, Malformed> {
    Ok(Origin {
        client: ClientId(fields.u64()?),
        class: class(fields)?,
    })
}

/// The fields of a state. When it was so is the hearer's to say.
pub(crate) fn encode(state: &State) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    let booked = state.booked.0;
    out.u8(if booked > 0 { VERSION } else { VERSION - 1 });
    for number in [state.cost, state.work, state.work_mean] {
        out.u64(number.0);
    }
    out.u64(state.queued.0);
    out.u32(state.requests);
    out.u32(state.utilisation.0);
    out.u64(state.weights.local.0);
    out.u64(state.weights.remote.0);
    out.u64(state.weights.seek.0);
    out.flag(state.tail.end.is_some());
    let end = state.tail.end.unwrap_or_default();
    out.u64(end.object);
    out.u64(end.byte);
    out.flag(state.tail.last.is_some());
    if let Some(last) = state.tail.last {
        put_origin(&mut out, last);
    }
    out.flag(state.foremost.is_some());
    if let Some(foremost) = state.foremost {
        put_class(&mut out, foremost);
    }
    // Version 2.
    out.u64(state.mean.0);
    // Version 3.
    for part in [state.promised.now, state.promised.hour] {
        out.u16(part.0 as u16);
    }
    if booked > 0 {
        // Version 4.
        out.u64(booked);
    }
    out
}

/// What some fields say, heard `at`; `None` if that is nothing this program knows.
pub(crate) fn decode(meta: &[u8], at: Instant) -> Option<State> {
    let meta = &meta[..meta.len().min(STATE_MAX)];
    let mut fields = Fields::new("a state", meta);
    state(&mut fields, at).ok().map(State::bounded)
}

fn state(fields: &mut Fields<'_>, at: Instant) -> Result<State, Malformed> {
    let version = fields.u8()?;
    if version == 0 {
        return fields.refuse("there is no version 0");
    }
    let (cost, work) = (Nanos(fields.u64()?), Nanos(fields.u64()?));
    let work_mean = Nanos(fields.u64()?);
    let queued = Bytes(fields.u64()?);
    let requests = fields.u32()?;
    let utilisation = Permille(fields.u32()?);
    let weights = Weights {
        local: PerByte(fields.u64()?),
        remote: PerByte(fields.u64()?),
        seek: Nanos(fields.u64()?),
    };
    let is_known = fields.flag()?;
    let end = At {
        object: fields.u64()?,
        byte: fields.u64()?,
    };
    let last = match fields.flag()? {
        true => Some(origin(fields)?),
        false => None,
    };
    let foremost = match fields.flag()? {
        true => Some(class(fields)?),
        false => None,
    };
    let mean = match version {
        1 => Bytes(0),
        _ => Bytes(fields.u64()?),
    };
    let (promised, booked) = promises(fields, version)?;
    Ok(State {
        at,
        cost,
        tail: Tail {
            end: is_known.then_some(end),
            last,
        },
        weights,
        work,
        work_mean,
        utilisation,
        queued,
        requests,
        foremost,
        mean,
        promised,
        booked,
    })
}

/// What is promised to all, and to the hearer.
fn promises(fields: &mut Fields<'_>, version: u8) -> Result<(Promised, BytesPerSec), Malformed> {
    let promised = match version {
        1 | 2 => Promised::default(),
        _ => Promised {
            now: Permille(fields.u16()?.into()),
            hour: Permille(fields.u16()?.into()),
        },
    };
    let booked = match version {
        1..=3 => BytesPerSec(0),
        _ => BytesPerSec(fields.u64()?),
    };
    Ok((promised, booked))
}

// --- datagrams --------------------------------------------------------------------------------------

const MAGIC: [u8; 4] = *b"TaSt";
/// The version of datagrams.
const DATAGRAM: u16 = 1;
/// The longest datagram with a state in it.
pub const DATAGRAM_MAX: usize = 512;

/// A state that a node sends unasked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Announced {
    /// Of which store of the cluster.
    pub store: u16,
    /// When the sender began, by its clock: a later run's count from anew.
    pub run: u64,
    /// Rises with each datagram of the store in a run.
    pub sequence: u64,
    /// The queue.
    pub state: State,
}

impl Announced {
    /// As a datagram, for holders of the key.
    pub fn encode(&self, key: &NodeKey) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        out.raw(&MAGIC);
        out.u16(DATAGRAM);
        out.u16(self.store);
        out.u64(self.run);
        out.u64(self.sequence);
        out.extend(encode(&self.state));
        let tag = key.tag(&out);
        out.raw(&tag);
        out
    }

    /// What a datagram says that was heard `at`; `None` if it is not from a holder of the key, or nothing this program
    /// knows.
    pub fn decode(datagram: &[u8], key: &NodeKey, at: Instant) -> Option<Announced> {
        let (message, tag) = datagram.split_last_chunk::<TAG_LEN>()?;
        if datagram.len() > DATAGRAM_MAX || !key.is_tagged(message, tag) {
            return None;
        }
        let mut fields = Fields::new("a datagram", message);
        let known = fields.array().ok()? == MAGIC && fields.u16().ok()? == DATAGRAM;
        let (store, run) = (fields.u16().ok()?, fields.u64().ok()?);
        let sequence = fields.u64().ok()?;
        let state = state(&mut fields, at).ok().map(State::bounded)?;
        known.then_some(Announced {
            store,
            run,
            sequence,
            state,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> State {
        State {
            at: Instant(7),
            cost: Nanos::millis(12),
            tail: Tail {
                end: Some(At {
                    object: 3,
                    byte: 4096,
                }),
                last: Some(Origin {
                    client: ClientId(9),
                    class: Class::High,
                }),
            },
            weights: Weights::default(),
            work: Nanos::millis(11),
            work_mean: Nanos::millis(5),
            utilisation: Permille(700),
            queued: Bytes::mib(3),
            requests: 17,
            foremost: Some(Class::Low),
            mean: Bytes::kib(64),
            promised: Promised {
                now: Permille(250),
                hour: Permille(700),
            },
            booked: BytesPerSec(70_000_000),
        }
    }

    #[test]
    fn a_state_is_read_as_it_was_written_also_if_a_later_version_adds_to_it() {
        let idle = State {
            at: Instant(7),
            ..State::idle(Weights::default())
        };
        for state in [full(), idle] {
            let mut bytes = encode(&state);
            assert_eq!(decode(&bytes, Instant(7)), Some(state));
            match state.booked.0 {
                0 => assert_eq!(bytes[0], 3, "readers of before miss nothing"),
                _ => {
                    bytes[0] = 5;
                    bytes.extend([1, 2, 3]);
                }
            }
            assert_eq!(decode(&bytes, Instant(7)), Some(state));
        }
    }

    #[test]
    fn a_state_of_an_earlier_version_is_read_without_what_later_ones_added() {
        let without = |promised, mean| State {
            promised,
            mean,
            booked: BytesPerSec(0),
            ..full()
        };
        let none = Promised::default();
        let mut bytes = encode(&full());
        for (version, added, state) in [
            (3, 8, without(full().promised, full().mean)),
            (2, 4, without(none, full().mean)),
            (1, 8, without(none, Bytes(0))),
        ] {
            bytes.truncate(bytes.len() - added);
            assert_eq!(decode(&bytes, Instant(7)), None, "cut off before {version}");
            bytes[0] = version;
            assert_eq!(decode(&bytes, Instant(7)), Some(state));
        }
    }

    #[test]
    fn what_is_no_state_is_none_and_what_is_too_large_is_cut() {
        let bytes = encode(&full());
        for len in 0..bytes.len() {
            assert_eq!(decode(&bytes[..len], Instant(0)), None, "{len} bytes");
        }
        for at in 0..bytes.len() {
            for value in [0, 1, 2, 0x7f, 0xff] {
                let mut changed = bytes.clone();
                changed[at] = value;
                if let Some(state) = decode(&changed, Instant(0)) {
                    assert!(state.cost <= Nanos::secs(3600) && state.utilisation.0 <= 1000);
                }
            }
        }
    }

    #[test]
    fn a_datagram_is_read_with_the_key_alone_and_only_if_no_bit_changed() {
        let key = NodeKey([7; 32]);
        let announced = Announced {
            store: 3,
            run: 1 << 60,
            sequence: 12,
            state: full(),
        };
        let bytes = announced.encode(&key);
        assert!(bytes.len() <= DATAGRAM_MAX);
        assert_eq!(Announced::decode(&bytes, &key, Instant(7)), Some(announced));
        assert_eq!(
            Announced::decode(&bytes, &NodeKey([8; 32]), Instant(7)),
            None
        );
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Announced::decode(&changed, &key, Instant(7)), None, "{bit}");
        }
        for len in 0..bytes.len() {
            assert_eq!(Announced::decode(&bytes[..len], &key, Instant(7)), None);
        }
        // Of a later version, with the key.
        let mut later = bytes[..bytes.len() - TAG_LEN].to_vec();
        later[4] = 2;
        later.extend(key.tag(&later));
        assert_eq!(Announced::decode(&later, &key, Instant(7)), None);
    }
}
