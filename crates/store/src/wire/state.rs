//! A queue's state as fields, beside answers and in datagrams.
//!
//! A reader takes what it knows: version 1 is these fields, and what a later version adds comes behind them. What it cannot
//! read is no state, and no error: nobody needs one.

use base::{Bytes, Instant, Nanos};
use policy::place::{At, Class, ClientId, Origin, PerByte, Permille, State, Tail, Weights};

use super::fields::{Fields, Malformed, Put};

/// The version of a state that this program writes.
const VERSION: u8 = 1;
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
    out.u8(VERSION);
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
    out
}

/// What some fields tell, heard `at`; `None` if that is nothing this program knows.
pub(crate) fn decode(meta: &[u8], at: Instant) -> Option<State> {
    let meta = &meta[..meta.len().min(STATE_MAX)];
    let mut fields = Fields::new("a state", meta);
    state(&mut fields, at).ok().map(State::bounded)
}

fn state(fields: &mut Fields<'_>, at: Instant) -> Result<State, Malformed> {
    if fields.u8()? < VERSION {
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
    })
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
            bytes[0] = 2;
            bytes.extend([1, 2, 3]);
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
}
