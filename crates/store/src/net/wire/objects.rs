//! Requests on objects and what comes of them, as fields and back.
//!
//! A change begins with the object's name and how it is to be done; what is its own follows.

use base::{Buf, Bytes, View};
use device::Class;

use super::fields::{Fields, Malformed, Put};
use super::request::Op;
use crate::object::damage::Damage;
use crate::object::types::{
    AllocatedRange, Change, Condition, Listing, SpaceFigures, Stat, Version,
};
use crate::ops::{Request, Response};

// --- changes ----------------------------------------------------------------------------------------

const FUA: u8 = 1;
const CREATE: u8 = 2;
const STAMP: u8 = 4;
const AT_GENERATION: u8 = 8;
const STAMP_AT_MOST: u8 = 16;

fn put_change(out: &mut Vec<u8>, change: &Change) {
    let (kind, number) = match change.condition {
        Condition::Any => (0, 0),
        Condition::Version(version) => (AT_GENERATION, version.0),
        Condition::StampAtMost(most) => (STAMP_AT_MOST, most),
    };
    let bit = |set: bool, bit: u8| if set { bit } else { 0 };
    out.u8(kind
        | bit(change.fua, FUA)
        | bit(change.create, CREATE)
        | bit(change.stamp.is_some(), STAMP));
    out.u64(number);
    out.u64(change.stamp.unwrap_or(0));
}

fn change(fields: &mut Fields<'_>) -> Result<Change, Malformed> {
    let bits = fields.u8()?;
    let (number, stamp) = (fields.u64()?, fields.u64()?);
    let condition = match bits & !(FUA | CREATE | STAMP) {
        0 if number == 0 => Condition::Any,
        AT_GENERATION => Condition::Version(Version(number)),
        STAMP_AT_MOST => Condition::StampAtMost(number),
        _ => return fields.refuse(format_args!("no change is asked for as {bits:#x}")),
    };
    let stamp = match bits & STAMP {
        0 if stamp != 0 => return fields.refuse("a mark is given and not announced"),
        0 => None,
        _ => Some(stamp),
    };
    Ok(Change {
        class: Class::Foreground,
        fua: bits & FUA != 0,
        condition,
        stamp,
        reservation: None,
        create: bits & CREATE != 0,
    })
}

// --- requests ---------------------------------------------------------------------------------------

/// Which operation it is.
pub(super) fn op(request: &Request) -> Op {
    match request {
        Request::Create { .. } => Op::Create,
        Request::Write { .. } => Op::Write,
        Request::Read { .. } => Op::Read,
        Request::Truncate { .. } => Op::Truncate,
        Request::Punch { .. } => Op::Punch,
        Request::Delete { .. } => Op::Delete,
        Request::Rename { .. } => Op::Rename,
        Request::List { .. } => Op::List,
        Request::Attributes { .. } => Op::Attributes,
        Request::SetAttributes { .. } => Op::SetAttributes,
        Request::Stat { .. } => Op::Stat,
        Request::AllocatedRanges { .. } => Op::AllocatedRanges,
        Request::Flush => Op::Flush,
        Request::Space => Op::Space,
        Request::Damage { .. } => Op::Damage,
    }
}

/// The fields of a request; how many entries it may have and how long a read may be is bounded by the caller.
pub(super) fn encode(out: &mut Vec<u8>, request: &Request) {
    if let Some(name) = request.object() {
        out.text(name);
    }
    if let Some(change) = request.change() {
        put_change(out, change);
    }
    let short = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    match request {
        Request::Create { attributes, .. } => put_attributes(out, attributes),
        Request::Write { offset, .. } => out.u64(*offset),
        Request::Read { offset, len, .. } => {
            out.u64(*offset);
            out.u32(short(*len));
        }
        Request::Truncate { size, .. } => out.u64(*size),
        Request::Punch { offset, len, .. } | Request::AllocatedRanges { offset, len, .. } => {
            out.u64(*offset);
            out.u64(*len);
        }
        Request::Rename { to, replace, .. } => {
            out.text(to);
            out.flag(*replace);
        }
        Request::List { after, most, .. } => {
            out.optional_text(after.as_deref());
            out.u32(short(*most as u64));
        }
        Request::SetAttributes { changes, .. } => {
            out.u32(changes.len() as u32);
            for (name, value) in changes {
                out.text(name);
                out.flag(value.is_some());
                out.bytes(value.as_deref().unwrap_or(&[]));
            }
        }
        Request::Damage { object, offset, .. } => {
            out.text(object);
            out.u64(*offset);
        }
        Request::Delete { .. }
        | Request::Attributes { .. }
        | Request::Stat { .. }
        | Request::Flush
        | Request::Space => {}
    }
}

/// What the fields of `op` ask for. The data of a write are still to come.
pub(super) fn decode(op: Op, fields: &mut Fields<'_>) -> Result<Request, Malformed> {
    if matches!(op, Op::Flush | Op::Space) {
        return Ok(match op {
            Op::Flush => Request::Flush,
            _ => Request::Space,
        });
    }
    let object = fields.text()?;
    match op {
        Op::Read | Op::List | Op::Attributes | Op::Stat | Op::AllocatedRanges | Op::Damage => {
            look(op, object, fields)
        }
        _ => {
            let change = change(fields)?;
            changing(op, object, change, fields)
        }
    }
}

fn look(op: Op, object: String, fields: &mut Fields<'_>) -> Result<Request, Malformed> {
    Ok(match op {
        Op::Read => Request::Read {
            object,
            offset: fields.u64()?,
            len: fields.u32()?.into(),
            class: Class::Foreground,
        },
        Op::List => {
            let (is_some, after) = (fields.flag()?, fields.text()?);
            if !is_some && !after.is_empty() {
                return fields.refuse("a name to begin after is given and not announced");
            }
            Request::List {
                prefix: object,
                after: is_some.then_some(after),
                most: fields.u32()? as usize,
            }
        }
        Op::Attributes => Request::Attributes { object },
        Op::Stat => Request::Stat { object },
        Op::AllocatedRanges => Request::AllocatedRanges {
            object,
            offset: fields.u64()?,
            len: fields.u64()?,
        },
        Op::Damage => Request::Damage {
            prefix: object,
            object: fields.text()?,
            offset: fields.u64()?,
            most: DAMAGE_MAX,
        },
        other => return fields.refuse(format_args!("{} does not look at objects", other.name())),
    })
}

fn changing(
    op: Op,
    object: String,
    change: Change,
    fields: &mut Fields<'_>,
) -> Result<Request, Malformed> {
    Ok(match op {
        Op::Create => Request::Create {
            object,
            attributes: attributes(fields)?,
            change,
        },
        Op::Write => Request::Write {
            object,
            offset: fields.u64()?,
            data: View::empty(),
            change,
        },
        Op::Truncate => Request::Truncate {
            object,
            size: fields.u64()?,
            change,
        },
        Op::Punch => Request::Punch {
            object,
            offset: fields.u64()?,
            len: fields.u64()?,
            change,
        },
        Op::Delete => Request::Delete { object, change },
        Op::Rename => Request::Rename {
            object,
            to: fields.text()?,
            replace: fields.flag()?,
            change,
        },
        Op::SetAttributes => Request::SetAttributes {
            object,
            changes: attribute_changes(fields)?,
            change,
        },
        other => return fields.refuse(format_args!("{} changes no object", other.name())),
    })
}

fn put_attributes(out: &mut Vec<u8>, attributes: &[(String, Vec<u8>)]) {
    out.u32(attributes.len() as u32);
    for (name, value) in attributes {
        out.text(name);
        out.bytes(value);
    }
}

fn attributes(fields: &mut Fields<'_>) -> Result<Vec<(String, Vec<u8>)>, Malformed> {
    let count = fields.count(4)?;
    let pairs = (0..count).map(|_| Ok((fields.text()?, fields.bytes()?.to_vec())));
    pairs.collect()
}

/// A name, and the value it gets; none: it is removed.
type AttributeChange = (String, Option<Vec<u8>>);

fn attribute_changes(fields: &mut Fields<'_>) -> Result<Vec<AttributeChange>, Malformed> {
    let count = fields.count(5)?;
    let mut changes = Vec::with_capacity(count);
    for _ in 0..count {
        let (name, is_some) = (fields.text()?, fields.flag()?);
        let value = fields.bytes()?;
        if !is_some && !value.is_empty() {
            return fields.refuse("a value is given to an attribute to be removed");
        }
        changes.push((name, is_some.then(|| value.to_vec())));
    }
    Ok(changes)
}

// --- responses --------------------------------------------------------------------------------------

/// Bytes of one object in a listing, its name aside.
const STAT_LEN: usize = 2 + 8 + 8 + 8 + 8;
/// Bytes of one range.
const RANGE_LEN: usize = 8 + 8 + 1 + 8;
/// Bytes of one damaged stretch, its name aside.
const DAMAGE_LEN: usize = 2 + 8 + 8;
/// The most damaged stretches of one answer: with the longest names half of what an answer may have.
pub(crate) const DAMAGE_MAX: usize = 500;
/// The most ranges of one answer.
pub(crate) const RANGES_MAX: usize = 16_384;
/// The most bytes of listed objects in one answer.
pub(crate) const LISTING_BYTES_MAX: usize = 512 << 10;

fn put_stat(out: &mut Vec<u8>, stat: &Stat) {
    out.text(&stat.name);
    out.u64(stat.size);
    out.u64(stat.version.0);
    out.u64(stat.born.0);
    out.u64(stat.stamp);
}

fn stat(fields: &mut Fields<'_>) -> Result<Stat, Malformed> {
    Ok(Stat {
        name: fields.text()?,
        size: fields.u64()?,
        version: Version(fields.u64()?),
        born: Version(fields.u64()?),
        stamp: fields.u64()?,
    })
}

/// Cuts a listing to what fits into one answer.
pub(crate) fn fitting(mut listing: Listing) -> Listing {
    let mut bytes = 0;
    let fits = listing.objects.iter().take_while(|stat| {
        bytes += stat.name.len() + STAT_LEN;
        bytes <= LISTING_BYTES_MAX
    });
    let count = fits.count();
    if count < listing.objects.len() {
        listing.objects.truncate(count);
        listing.next = listing.objects.last().map(|stat| stat.name.clone());
    }
    listing
}

fn put_space(out: &mut Vec<u8>, space: &SpaceFigures) {
    let numbers = [
        space.total.0,
        space.used.0,
        space.reserved.0,
        space.free.0,
        space.spare.0,
        space.waiting.0,
        space.units_free,
        space.units_begun,
        space.units,
        space.unit.0,
        space.page.0,
        space.objects,
        space.table.0,
        space.table_max.0,
    ];
    for number in numbers {
        out.u64(number);
    }
}

fn space(fields: &mut Fields<'_>) -> Result<SpaceFigures, Malformed> {
    Ok(SpaceFigures {
        total: Bytes(fields.u64()?),
        used: Bytes(fields.u64()?),
        reserved: Bytes(fields.u64()?),
        free: Bytes(fields.u64()?),
        spare: Bytes(fields.u64()?),
        waiting: Bytes(fields.u64()?),
        units_free: fields.u64()?,
        units_begun: fields.u64()?,
        units: fields.u64()?,
        unit: Bytes(fields.u64()?),
        page: Bytes(fields.u64()?),
        objects: fields.u64()?,
        table: Bytes(fields.u64()?),
        table_max: Bytes(fields.u64()?),
    })
}

fn put_allocated_ranges(out: &mut Vec<u8>, allocated_ranges: &[AllocatedRange]) {
    out.u32(allocated_ranges.len() as u32);
    for range in allocated_ranges {
        out.u64(range.offset);
        out.u64(range.len);
        out.flag(range.data);
        out.u64(range.version.0);
    }
}

fn put_damage(out: &mut Vec<u8>, damage: &[Damage]) {
    out.u32(damage.len() as u32);
    for one in damage {
        out.text(&one.object);
        out.u64(one.offset);
        out.u64(one.len);
    }
}

/// The fields and data of a response.
pub(super) fn put(out: &mut Vec<u8>, response: &Response) -> View {
    match response {
        Response::Done => {}
        Response::Version(version) => out.u64(version.0),
        Response::Data(data) => return data.clone(),
        Response::Stat(stat) => put_stat(out, stat),
        Response::Listing(listing) => {
            out.optional_text(listing.next.as_deref());
            out.u32(listing.objects.len() as u32);
            for stat in &listing.objects {
                put_stat(out, stat);
            }
        }
        Response::Attributes(attributes) => put_attributes(out, attributes),
        Response::AllocatedRanges {
            allocated_ranges,
            more,
        } => {
            out.flag(*more);
            put_allocated_ranges(out, allocated_ranges);
        }
        Response::Space(figures) => put_space(out, figures),
        Response::Damage { damage, more } => {
            out.flag(*more);
            put_damage(out, damage);
        }
    }
    View::empty()
}

/// What the response to `op` says.
pub(super) fn response(op: Op, fields: &mut Fields<'_>, data: Buf) -> Result<Response, Malformed> {
    Ok(match op {
        Op::Delete | Op::Flush => Response::Done,
        Op::Create | Op::Write | Op::Truncate | Op::Punch | Op::Rename | Op::SetAttributes => {
            Response::Version(Version(fields.u64()?))
        }
        Op::Read => Response::Data(data.freeze()),
        Op::Stat => Response::Stat(stat(fields)?),
        Op::List => Response::Listing(listing(fields)?),
        Op::Attributes => Response::Attributes(attributes(fields)?),
        Op::AllocatedRanges => {
            let more = fields.flag()?;
            let count = fields.count(RANGE_LEN)?;
            let allocated_ranges = (0..count).map(|_| {
                Ok(AllocatedRange {
                    offset: fields.u64()?,
                    len: fields.u64()?,
                    data: fields.flag()?,
                    version: Version(fields.u64()?),
                })
            });
            Response::AllocatedRanges {
                allocated_ranges: allocated_ranges.collect::<Result<_, _>>()?,
                more,
            }
        }
        Op::Space => Response::Space(space(fields)?),
        Op::Damage => {
            let more = fields.flag()?;
            let count = fields.count(DAMAGE_LEN)?;
            let damage = (0..count).map(|_| {
                Ok(Damage {
                    object: fields.text()?,
                    offset: fields.u64()?,
                    len: fields.u64()?,
                })
            });
            Response::Damage {
                damage: damage.collect::<Result<_, _>>()?,
                more,
            }
        }
        other => return fields.refuse(format_args!("{} is not on objects", other.name())),
    })
}

fn listing(fields: &mut Fields<'_>) -> Result<Listing, Malformed> {
    let (is_some, next) = (fields.flag()?, fields.text()?);
    if !is_some && !next.is_empty() {
        return fields.refuse("a next part is given and not announced");
    }
    let count = fields.count(STAT_LEN)?;
    let objects = (0..count).map(|_| stat(fields));
    Ok(Listing {
        objects: objects.collect::<Result<_, _>>()?,
        next: is_some.then_some(next),
    })
}
