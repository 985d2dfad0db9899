//! What is asked and said of reservations, as fields and back.

use base::{Bytes, Nanos};
use policy::share::calendar::BookingId;
use policy::share::{BytesPerSec, Direction, Probability, Second, Slot};

use super::fields::{Fields, Malformed, Put};
use crate::qos::manager::{Decision, Group, PartName, ReservationRequest};

/// Requests that are asked about together, at most.
const QUOTED_MAX: usize = 8;
/// Bytes of one request without its texts.
const WANTED_LEN: usize = 49;

pub(super) fn put_wanted(out: &mut Vec<u8>, wanted: &ReservationRequest) {
    out.u8(match wanted.direction {
        Direction::Read => 0,
        Direction::Write => 1,
    });
    out.u64(wanted.rate.0);
    out.u64(wanted.window.0);
    out.u32(wanted.probability.0);
    out.u64(wanted.slot.start.0);
    out.u64(wanted.slot.end.0);
    out.u64(wanted.space.0);
    out.text(&wanted.scope);
    out.text(&wanted.holder);
}

pub(super) fn wanted(fields: &mut Fields<'_>) -> Result<ReservationRequest, Malformed> {
    let direction = match fields.u8()? {
        0 => Direction::Read,
        1 => Direction::Write,
        other => return fields.refuse(format_args!("{other} is no direction")),
    };
    Ok(ReservationRequest {
        direction,
        rate: BytesPerSec(fields.u64()?),
        window: Nanos(fields.u64()?),
        probability: Probability(fields.u32()?),
        slot: Slot {
            start: Second(fields.u64()?),
            end: Second(fields.u64()?),
        },
        space: Bytes(fields.u64()?),
        scope: fields.text()?,
        holder: fields.text()?,
    })
}

pub(super) fn put_group(out: &mut Vec<u8>, group: Option<&Group>) {
    out.flag(group.is_some());
    out.u128(group.map_or(0, |group| group.id));
    let stores = group.map_or(&[][..], |group| &group.stores);
    out.u32(stores.len() as u32);
    for store in stores {
        out.u128(*store);
    }
}

pub(super) fn group(fields: &mut Fields<'_>) -> Result<Option<Group>, Malformed> {
    let (is_some, id) = (fields.flag()?, fields.u128()?);
    let count = fields.count(16)?;
    let stores: Vec<u128> = (0..count)
        .map(|_| fields.u128())
        .collect::<Result<_, _>>()?;
    if !is_some && (id != 0 || count != 0) {
        return fields.refuse("a group is given and not announced");
    }
    Ok(is_some.then_some(Group { id, stores }))
}

/// A part and, where there is one, the whole: which of the two is the operation's.
pub(super) fn put_part(out: &mut Vec<u8>, part: PartName) {
    out.u64(part.id.0);
    if let Some(group) = part.group {
        out.u128(group);
    }
}

pub(super) fn part(fields: &mut Fields<'_>) -> Result<PartName, Malformed> {
    let id = BookingId(fields.u64()?);
    Ok(PartName::of(id, fields.u128()?))
}

pub(super) fn put_decision(out: &mut Vec<u8>, decision: Decision) {
    out.flag(decision == Decision::Committed);
}

pub(super) fn decision(fields: &mut Fields<'_>) -> Result<Decision, Malformed> {
    Ok(match fields.flag()? {
        true => Decision::Committed,
        false => Decision::Aborted,
    })
}

/// What is to be held, until when, and of which group it is to be part.
pub(super) fn put_hold(
    out: &mut Vec<u8>,
    wanted: &ReservationRequest,
    until: Second,
    group: Option<&Group>,
) {
    put_wanted(out, wanted);
    out.u64(until.0);
    put_group(out, group);
}

/// Requests asked about together.
pub(super) fn quoted(fields: &mut Fields<'_>) -> Result<Vec<ReservationRequest>, Malformed> {
    let count = fields.count(WANTED_LEN)?;
    if count > QUOTED_MAX {
        return fields.refuse(format_args!(
            "at most {QUOTED_MAX} requests are asked about together"
        ));
    }
    let all: Vec<ReservationRequest> = (0..count)
        .map(|_| wanted(fields))
        .collect::<Result<_, _>>()?;
    match all.windows(2).all(|pair| pair[0].slot == pair[1].slot) {
        true => Ok(all),
        false => fields.refuse(format_args!(
            "requests that are asked about together are for one slot"
        )),
    }
}
