//! Requests: what is asked, as fields and back.

use base::{Bytes, Nanos};
use device::Class;
use policy::place::{Penalties, Permille};
use policy::share::calendar::BookingId;
use policy::share::{BytesPerSec, Direction, Probability, Second, Slot};

use super::fields::{Fields, Malformed, Put};
use super::state::{origin, put_origin};
use crate::node::{Ask as Wanted, Decision, Group};
use crate::object::{Change, Condition, Generation};
use crate::told::Caller;

macro_rules! ops {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $said:literal;)*) => {
        /// The operations, by their numbers on the wire.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        pub enum Op { $($(#[$doc])* $name = $number,)* }

        impl Op {
            /// All of them.
            pub const ALL: &[Op] = &[$(Op::$name,)*];

            /// The operation of this number, if there is one.
            pub fn of(number: u16) -> Option<Op> {
                match number { $($number => Some(Op::$name),)* _ => None }
            }

            /// In words, for errors and figures.
            pub fn name(self) -> &'static str {
                match self { $(Op::$name => $said,)* }
            }
        }
    };
}

ops! {
    /// The client's credentials; the first request, once.
    Open = 1, "open";
    /// Nothing; that the other side is there.
    Ping = 2, "ping";
    /// From now on all of this connection is done under a mark.
    Guard = 3, "guard";
    /// Which client asks from now on, for the choice between copies, and how often the queue's state is to come along.
    Tell = 4, "tell";
    /// Whose reservations are attached to the requests from now on.
    Under = 5, "come under";
    /// Make an object.
    Create = 16, "create";
    /// Write bytes.
    Write = 17, "write";
    /// Read bytes.
    Read = 18, "read";
    /// Set the size.
    Truncate = 19, "truncate";
    /// Make a hole.
    Punch = 20, "punch";
    /// Delete an object.
    Delete = 21, "delete";
    /// Give it another name.
    Rename = 22, "rename";
    /// Objects by prefix.
    List = 23, "list";
    /// Its attributes.
    Attributes = 24, "attributes";
    /// Set or remove some.
    SetAttributes = 25, "set attributes";
    /// What it is like.
    Stat = 26, "stat";
    /// Where it holds data, and since when.
    Extents = 27, "extents";
    /// Make durable what was answered.
    Flush = 28, "flush";
    /// How the room is divided.
    Space = 29, "space";
    /// Fence those with lesser marks.
    Seal = 30, "seal";
    /// What is known to be damaged.
    Damage = 31, "damage";
    /// Would a reservation fit?
    Offer = 32, "offer";
    /// Hold one.
    Hold = 33, "hold";
    /// Keep what is held.
    Commit = 34, "commit";
    /// Give it back.
    Release = 35, "release";
    /// All reservations.
    Reservations = 36, "reservations";
    /// A reservation's capability again.
    Capability = 37, "capability";
    /// Parts of reservations over several stores that a crash left open.
    Undecided = 38, "undecided";
    /// What the store that decides over such a reservation says.
    Decision = 39, "decision";
    /// Carry that out.
    Decide = 40, "decide";
    /// How the node is.
    Report = 48, "report";
}

/// How a client shows that it may come in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof {
    /// Not at all.
    Open,
    /// What it makes of the challenge with the node key.
    NodeKey([u8; 32]),
    /// A capability.
    Capability(String),
}

/// A request. The data of a write travel beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // The fields are those of the operations of `Store` and `node::Node`.
pub enum Ask {
    Open(Proof),
    Ping,
    Create {
        object: String,
        attributes: Vec<(String, Vec<u8>)>,
        change: Change,
    },
    Write {
        object: String,
        offset: u64,
        change: Change,
    },
    Read {
        object: String,
        offset: u64,
        len: u32,
    },
    Truncate {
        object: String,
        size: u64,
        change: Change,
    },
    Punch {
        object: String,
        offset: u64,
        len: u64,
        change: Change,
    },
    Delete {
        object: String,
        change: Change,
    },
    Rename {
        object: String,
        to: String,
        replace: bool,
        change: Change,
    },
    List {
        prefix: String,
        after: Option<String>,
        most: u32,
    },
    Attributes {
        object: String,
    },
    SetAttributes {
        object: String,
        changes: Vec<(String, Option<Vec<u8>>)>,
        change: Change,
    },
    Stat {
        object: String,
    },
    Extents {
        object: String,
        offset: u64,
        len: u64,
    },
    Flush,
    Space,
    /// Of objects with this prefix, from that byte of that object on.
    Damage {
        prefix: String,
        object: String,
        offset: u64,
    },
    Guard {
        object: String,
        mark: u64,
    },
    Seal {
        object: String,
        mark: u64,
    },
    Tell {
        caller: Caller,
        /// At most so often; never more than ten times a millisecond.
        every: Nanos,
    },
    Under {
        holder: Option<String>,
    },
    Offer(Wanted),
    Hold {
        wanted: Wanted,
        group: Option<Group>,
        until: Second,
    },
    Commit(BookingId),
    Release(BookingId),
    Reservations {
        /// Those with a greater number than this.
        after: Option<BookingId>,
    },
    Capability(BookingId),
    Undecided,
    Decision {
        group: u128,
    },
    Decide {
        id: BookingId,
        decision: Decision,
    },
    Report,
}

// --- changes ----------------------------------------------------------------------------------------

const FUA: u8 = 1;
const CREATE: u8 = 2;
const MARK: u8 = 4;
const AT_GENERATION: u8 = 8;
const MARK_AT_MOST: u8 = 16;

fn put_change(out: &mut Vec<u8>, change: &Change) {
    let (kind, number) = match change.condition {
        Condition::Any => (0, 0),
        Condition::Generation(generation) => (AT_GENERATION, generation.0),
        Condition::MarkAtMost(most) => (MARK_AT_MOST, most),
    };
    let bit = |set: bool, bit: u8| if set { bit } else { 0 };
    out.u8(kind
        | bit(change.fua, FUA)
        | bit(change.create, CREATE)
        | bit(change.mark.is_some(), MARK));
    out.u64(number);
    out.u64(change.mark.unwrap_or(0));
}

fn change(fields: &mut Fields<'_>) -> Result<Change, Malformed> {
    let bits = fields.u8()?;
    let (number, mark) = (fields.u64()?, fields.u64()?);
    let condition = match bits & !(FUA | CREATE | MARK) {
        0 if number == 0 => Condition::Any,
        AT_GENERATION => Condition::Generation(Generation(number)),
        MARK_AT_MOST => Condition::MarkAtMost(number),
        _ => return fields.refuse(format_args!("no change is asked for as {bits:#x}")),
    };
    let mark = match bits & MARK {
        0 if mark != 0 => return fields.refuse("a mark is given and not announced"),
        0 => None,
        _ => Some(mark),
    };
    Ok(Change {
        class: Class::Foreground,
        fua: bits & FUA != 0,
        condition,
        mark,
        reservation: None,
        create: bits & CREATE != 0,
    })
}

// --- reservations -----------------------------------------------------------------------------------

pub(super) fn put_wanted(out: &mut Vec<u8>, wanted: &Wanted) {
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

pub(super) fn wanted(fields: &mut Fields<'_>) -> Result<Wanted, Malformed> {
    let direction = match fields.u8()? {
        0 => Direction::Read,
        1 => Direction::Write,
        other => return fields.refuse(format_args!("{other} is no direction")),
    };
    Ok(Wanted {
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

pub(super) fn put_decision(out: &mut Vec<u8>, decision: Decision) {
    out.flag(decision == Decision::Committed);
}

pub(super) fn decision(fields: &mut Fields<'_>) -> Result<Decision, Malformed> {
    Ok(match fields.flag()? {
        true => Decision::Committed,
        false => Decision::Aborted,
    })
}

/// How much a seek counts: at most a million times.
fn weight(fields: &mut Fields<'_>) -> Result<Permille, Malformed> {
    match fields.u32()? {
        weight @ 0..=1_000_000_000 => Ok(Permille(weight)),
        other => fields.refuse(format_args!("no seek counts {other} thousandths")),
    }
}

// --- requests ---------------------------------------------------------------------------------------

impl Ask {
    /// Which operation it is.
    pub fn op(&self) -> Op {
        match self {
            Ask::Open(_) => Op::Open,
            Ask::Ping => Op::Ping,
            Ask::Create { .. } => Op::Create,
            Ask::Write { .. } => Op::Write,
            Ask::Read { .. } => Op::Read,
            Ask::Truncate { .. } => Op::Truncate,
            Ask::Punch { .. } => Op::Punch,
            Ask::Delete { .. } => Op::Delete,
            Ask::Rename { .. } => Op::Rename,
            Ask::List { .. } => Op::List,
            Ask::Attributes { .. } => Op::Attributes,
            Ask::SetAttributes { .. } => Op::SetAttributes,
            Ask::Stat { .. } => Op::Stat,
            Ask::Extents { .. } => Op::Extents,
            Ask::Flush => Op::Flush,
            Ask::Space => Op::Space,
            Ask::Guard { .. } => Op::Guard,
            Ask::Seal { .. } => Op::Seal,
            Ask::Damage { .. } => Op::Damage,
            Ask::Tell { .. } => Op::Tell,
            Ask::Under { .. } => Op::Under,
            Ask::Offer(_) => Op::Offer,
            Ask::Hold { .. } => Op::Hold,
            Ask::Commit(_) => Op::Commit,
            Ask::Release(_) => Op::Release,
            Ask::Reservations { .. } => Op::Reservations,
            Ask::Undecided => Op::Undecided,
            Ask::Decision { .. } => Op::Decision,
            Ask::Decide { .. } => Op::Decide,
            Ask::Capability(_) => Op::Capability,
            Ask::Report => Op::Report,
        }
    }

    /// Its fields. What is longer than the limits of the operations cannot be asked for; `check` says so.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        match self {
            Ask::Open(Proof::Open) => out.u8(0),
            Ask::Open(Proof::NodeKey(proof)) => {
                out.u8(1);
                out.raw(proof);
            }
            Ask::Open(Proof::Capability(token)) => {
                out.u8(2);
                out.text(token);
            }
            Ask::Ping | Ask::Flush | Ask::Space | Ask::Undecided | Ask::Report => {}
            Ask::Create {
                object,
                attributes,
                change,
            } => {
                out.text(object);
                put_change(&mut out, change);
                out.u32(attributes.len() as u32);
                for (name, value) in attributes {
                    out.text(name);
                    out.bytes(value);
                }
            }
            Ask::Write {
                object,
                offset,
                change,
            } => {
                out.text(object);
                put_change(&mut out, change);
                out.u64(*offset);
            }
            Ask::Read {
                object,
                offset,
                len,
            } => {
                out.text(object);
                out.u64(*offset);
                out.u32(*len);
            }
            Ask::Truncate {
                object,
                size,
                change,
            } => {
                out.text(object);
                put_change(&mut out, change);
                out.u64(*size);
            }
            Ask::Punch {
                object,
                offset,
                len,
                change,
            } => {
                out.text(object);
                put_change(&mut out, change);
                out.u64(*offset);
                out.u64(*len);
            }
            Ask::Delete { object, change } => {
                out.text(object);
                put_change(&mut out, change);
            }
            Ask::Rename {
                object,
                to,
                replace,
                change,
            } => {
                out.text(object);
                put_change(&mut out, change);
                out.text(to);
                out.flag(*replace);
            }
            Ask::List {
                prefix,
                after,
                most,
            } => {
                out.text(prefix);
                out.flag(after.is_some());
                out.text(after.as_deref().unwrap_or(""));
                out.u32(*most);
            }
            Ask::Attributes { object } | Ask::Stat { object } => out.text(object),
            Ask::SetAttributes {
                object,
                changes,
                change,
            } => {
                out.text(object);
                put_change(&mut out, change);
                out.u32(changes.len() as u32);
                for (name, value) in changes {
                    out.text(name);
                    out.flag(value.is_some());
                    out.bytes(value.as_deref().unwrap_or(&[]));
                }
            }
            Ask::Extents {
                object,
                offset,
                len,
            } => {
                out.text(object);
                out.u64(*offset);
                out.u64(*len);
            }
            Ask::Damage {
                prefix,
                object,
                offset,
            } => {
                out.text(prefix);
                out.text(object);
                out.u64(*offset);
            }
            Ask::Guard { object, mark } | Ask::Seal { object, mark } => {
                out.text(object);
                out.u64(*mark);
            }
            Ask::Tell { caller, every } => {
                put_origin(&mut out, caller.origin);
                let penalties = &caller.penalties;
                out.u32(penalties.other.0);
                out.u32(penalties.from_higher.0);
                out.u32(penalties.from_lower.0);
                out.u64(every.0);
            }
            Ask::Under { holder } => {
                out.flag(holder.is_some());
                out.text(holder.as_deref().unwrap_or(""));
            }
            Ask::Offer(wanted) => put_wanted(&mut out, wanted),
            Ask::Hold {
                wanted,
                group,
                until,
            } => {
                put_wanted(&mut out, wanted);
                out.u64(until.0);
                put_group(&mut out, group.as_ref());
            }
            Ask::Reservations { after } => {
                out.flag(after.is_some());
                out.u64(after.map_or(0, |after| after.0));
            }
            Ask::Decision { group } => out.u128(*group),
            Ask::Decide { id, decision } => {
                out.u64(id.0);
                put_decision(&mut out, *decision);
            }
            Ask::Commit(id) | Ask::Release(id) | Ask::Capability(id) => out.u64(id.0),
        }
        out
    }

    /// What the fields of `op` ask for.
    pub fn decode(op: Op, meta: &[u8]) -> Result<Ask, Malformed> {
        let mut fields = Fields::new(op.name(), meta);
        let ask = Ask::fields(op, &mut fields)?;
        fields.end()?;
        Ok(ask)
    }

    fn fields(op: Op, fields: &mut Fields<'_>) -> Result<Ask, Malformed> {
        Ok(match op {
            Op::Open => Ask::Open(match fields.u8()? {
                0 => Proof::Open,
                1 => Proof::NodeKey(fields.array()?),
                2 => Proof::Capability(fields.text()?),
                other => return fields.refuse(format_args!("{other} is no way in")),
            }),
            Op::Ping => Ask::Ping,
            Op::Create => {
                let (object, change) = (fields.text()?, change(fields)?);
                let count = fields.count(4)?;
                let pairs = (0..count).map(|_| Ok((fields.text()?, fields.bytes()?.to_vec())));
                Ask::Create {
                    object,
                    attributes: pairs.collect::<Result<_, _>>()?,
                    change,
                }
            }
            Op::Write => Ask::Write {
                object: fields.text()?,
                change: change(fields)?,
                offset: fields.u64()?,
            },
            Op::Read => Ask::Read {
                object: fields.text()?,
                offset: fields.u64()?,
                len: fields.u32()?,
            },
            Op::Truncate => Ask::Truncate {
                object: fields.text()?,
                change: change(fields)?,
                size: fields.u64()?,
            },
            Op::Punch => Ask::Punch {
                object: fields.text()?,
                change: change(fields)?,
                offset: fields.u64()?,
                len: fields.u64()?,
            },
            Op::Delete => Ask::Delete {
                object: fields.text()?,
                change: change(fields)?,
            },
            Op::Rename => Ask::Rename {
                object: fields.text()?,
                change: change(fields)?,
                to: fields.text()?,
                replace: fields.flag()?,
            },
            Op::List => {
                let prefix = fields.text()?;
                let (is_some, after) = (fields.flag()?, fields.text()?);
                if !is_some && !after.is_empty() {
                    return fields.refuse("a name to begin after is given and not announced");
                }
                Ask::List {
                    prefix,
                    after: is_some.then_some(after),
                    most: fields.u32()?,
                }
            }
            Op::Attributes => Ask::Attributes {
                object: fields.text()?,
            },
            Op::SetAttributes => {
                let (object, change) = (fields.text()?, change(fields)?);
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
                Ask::SetAttributes {
                    object,
                    changes,
                    change,
                }
            }
            Op::Stat => Ask::Stat {
                object: fields.text()?,
            },
            Op::Extents => Ask::Extents {
                object: fields.text()?,
                offset: fields.u64()?,
                len: fields.u64()?,
            },
            Op::Flush => Ask::Flush,
            Op::Space => Ask::Space,
            Op::Guard => Ask::Guard {
                object: fields.text()?,
                mark: fields.u64()?,
            },
            Op::Seal => Ask::Seal {
                object: fields.text()?,
                mark: fields.u64()?,
            },
            Op::Damage => Ask::Damage {
                prefix: fields.text()?,
                object: fields.text()?,
                offset: fields.u64()?,
            },
            Op::Tell => Ask::Tell {
                caller: Caller {
                    origin: origin(fields)?,
                    penalties: Penalties {
                        other: weight(fields)?,
                        from_higher: weight(fields)?,
                        from_lower: weight(fields)?,
                    },
                },
                every: Nanos(fields.u64()?),
            },
            Op::Under => {
                let (is_some, holder) = (fields.flag()?, fields.text()?);
                if !is_some && !holder.is_empty() {
                    return fields.refuse("a holder is given and not announced");
                }
                Ask::Under {
                    holder: is_some.then_some(holder),
                }
            }
            Op::Offer => Ask::Offer(wanted(fields)?),
            Op::Hold => Ask::Hold {
                wanted: wanted(fields)?,
                until: Second(fields.u64()?),
                group: group(fields)?,
            },
            Op::Commit => Ask::Commit(BookingId(fields.u64()?)),
            Op::Release => Ask::Release(BookingId(fields.u64()?)),
            Op::Reservations => {
                let (is_some, after) = (fields.flag()?, fields.u64()?);
                if !is_some && after != 0 {
                    return fields.refuse("a number to begin after is given and not announced");
                }
                Ask::Reservations {
                    after: is_some.then_some(BookingId(after)),
                }
            }
            Op::Undecided => Ask::Undecided,
            Op::Decision => Ask::Decision {
                group: fields.u128()?,
            },
            Op::Decide => Ask::Decide {
                id: BookingId(fields.u64()?),
                decision: decision(fields)?,
            },
            Op::Capability => Ask::Capability(BookingId(fields.u64()?)),
            Op::Report => Ask::Report,
        })
    }
}
