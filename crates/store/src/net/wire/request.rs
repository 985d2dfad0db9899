//! Requests: what is asked, as fields and back.

use base::{Nanos, View};
use policy::place::{Penalties, Permille};
use policy::share::Second;
use policy::share::calendar::BookingId;

use super::fields::{Fields, Malformed, Put};
use super::objects;
use super::reserve::{
    decision, group, part, put_decision, put_hold, put_part, put_wanted, quoted, wanted,
};
use super::state::{origin, put_origin};
use crate::ops;
use crate::qos::load_report::ClientTag;
use crate::qos::manager::{Decision, Group, PartName, ReservationRequest};

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
    /// From now on all of this connection is done under a token.
    Fence = 3, "guard";
    /// Which client asks from now on, for the choice between copies, and how often the queue's state is to come along.
    ClientTag = 4, "tell";
    /// Whose reservations are attached to the requests from now on.
    AttachReservation = 5, "come under";
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
    AllocatedRanges = 27, "extents";
    /// Make durable what was answered.
    Flush = 28, "flush";
    /// How the room is divided.
    Space = 29, "space";
    /// Fence those with lesser tokens.
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
    /// Hold what is to replace one.
    Amend = 41, "amend";
    /// Would a reservation fit, and what would instead?
    Quote = 42, "quote";
    /// Keep what is held, named with the whole that it is part of.
    CommitPart = 43, "commit a part";
    /// Give it back, named so.
    ReleasePart = 44, "release a part";
    /// How a part is, and for how long nothing of it was asked.
    Look = 45, "look at a part";
    /// Hold one within an allotment.
    HoldWithin = 46, "hold within an allotment";
    /// How the manager is.
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

/// A request. The data of a write travel beside its fields.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // The fields are those of the operations of `Session` and `manager::Manager`.
pub enum Request {
    Open(Proof),
    Ping,
    /// On objects.
    Object(ops::Request),
    Fence {
        object: String,
        token: u64,
    },
    Seal {
        object: String,
        token: u64,
    },
    ClientTag {
        tag: ClientTag,
        /// At most so often; never more than ten times a millisecond.
        every: Nanos,
    },
    AttachReservation {
        holder: Option<String>,
    },
    Offer(ReservationRequest),
    Hold {
        wanted: ReservationRequest,
        group: Option<Group>,
        until: Second,
    },
    HoldWithin {
        /// The whole, an allotment, that has parts here.
        within: u128,
        wanted: ReservationRequest,
        group: Group,
        until: Second,
    },
    Amend {
        /// Which is to be replaced.
        id: BookingId,
        wanted: ReservationRequest,
        group: Option<Group>,
        until: Second,
    },
    /// All for one slot.
    Quote(Vec<ReservationRequest>),
    Commit(PartName),
    Release(PartName),
    Look(PartName),
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

// --- parts of requests ------------------------------------------------------------------------------

fn hold_within(fields: &mut Fields<'_>) -> Result<Request, Malformed> {
    let within = fields.u128()?;
    let (wanted, until) = (wanted(fields)?, Second(fields.u64()?));
    match group(fields)? {
        Some(group) => Ok(Request::HoldWithin {
            within,
            wanted,
            group,
            until,
        }),
        None => fields.refuse("what is within an allotment belongs to a group"),
    }
}

fn proof(fields: &mut Fields<'_>) -> Result<Proof, Malformed> {
    Ok(match fields.u8()? {
        0 => Proof::Open,
        1 => Proof::NodeKey(fields.array()?),
        2 => Proof::Capability(fields.text()?),
        other => return fields.refuse(format_args!("{other} is no way in")),
    })
}

fn put_proof(out: &mut Vec<u8>, proof: &Proof) {
    match proof {
        Proof::Open => out.u8(0),
        Proof::NodeKey(proof) => {
            out.u8(1);
            out.raw(proof);
        }
        Proof::Capability(token) => {
            out.u8(2);
            out.text(token);
        }
    }
}

/// The holder of reservations to attach.
fn holder(fields: &mut Fields<'_>) -> Result<Option<String>, Malformed> {
    let (is_some, holder) = (fields.flag()?, fields.text()?);
    if !is_some && !holder.is_empty() {
        return fields.refuse("a holder is given and not announced");
    }
    Ok(is_some.then_some(holder))
}

fn client_tag(fields: &mut Fields<'_>) -> Result<ClientTag, Malformed> {
    Ok(ClientTag {
        origin: origin(fields)?,
        penalties: Penalties {
            other: weight(fields)?,
            from_higher: weight(fields)?,
            from_lower: weight(fields)?,
        },
    })
}

fn put_client_tag(out: &mut Vec<u8>, tag: &ClientTag) {
    put_origin(out, tag.origin);
    let penalties = &tag.penalties;
    out.u32(penalties.other.0);
    out.u32(penalties.from_higher.0);
    out.u32(penalties.from_lower.0);
}

/// How much a seek counts: at most a million times.
fn weight(fields: &mut Fields<'_>) -> Result<Permille, Malformed> {
    match fields.u32()? {
        weight @ 0..=1_000_000_000 => Ok(Permille(weight)),
        other => fields.refuse(format_args!("no seek counts {other} thousandths")),
    }
}

// --- requests ---------------------------------------------------------------------------------------

impl Request {
    /// Which operation it is.
    pub fn op(&self) -> Op {
        match self {
            Request::Open(_) => Op::Open,
            Request::Ping => Op::Ping,
            Request::Object(request) => objects::op(request),
            Request::Fence { .. } => Op::Fence,
            Request::Seal { .. } => Op::Seal,
            Request::ClientTag { .. } => Op::ClientTag,
            Request::AttachReservation { .. } => Op::AttachReservation,
            Request::Offer(_) => Op::Offer,
            Request::Quote(_) => Op::Quote,
            Request::Hold { .. } => Op::Hold,
            Request::HoldWithin { .. } => Op::HoldWithin,
            Request::Amend { .. } => Op::Amend,
            Request::Commit(PartName { group: None, .. }) => Op::Commit,
            Request::Commit(_) => Op::CommitPart,
            Request::Release(PartName { group: None, .. }) => Op::Release,
            Request::Release(_) => Op::ReleasePart,
            Request::Look(_) => Op::Look,
            Request::Reservations { .. } => Op::Reservations,
            Request::Undecided => Op::Undecided,
            Request::Decision { .. } => Op::Decision,
            Request::Decide { .. } => Op::Decide,
            Request::Capability(_) => Op::Capability,
            Request::Report => Op::Report,
        }
    }

    /// Its fields. What is longer than the limits of the operations cannot be asked for; `check` says so.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        match self {
            Request::Open(proof) => put_proof(&mut out, proof),
            Request::Ping | Request::Undecided | Request::Report => {}
            Request::Object(request) => objects::encode(&mut out, request),
            Request::Fence { object, token } | Request::Seal { object, token } => {
                out.text(object);
                out.u64(*token);
            }
            Request::ClientTag { tag, every } => {
                put_client_tag(&mut out, tag);
                out.u64(every.0);
            }
            Request::AttachReservation { holder } => out.optional_text(holder.as_deref()),
            Request::Offer(wanted) => put_wanted(&mut out, wanted),
            Request::Quote(all) => {
                out.u32(all.len() as u32);
                all.iter().for_each(|it| put_wanted(&mut out, it));
            }
            Request::Hold {
                wanted,
                group,
                until,
            } => put_hold(&mut out, wanted, *until, group.as_ref()),
            Request::HoldWithin {
                within,
                wanted,
                group,
                until,
            } => {
                out.u128(*within);
                put_hold(&mut out, wanted, *until, Some(group));
            }
            Request::Amend {
                id,
                wanted,
                group,
                until,
            } => {
                out.u64(id.0);
                put_hold(&mut out, wanted, *until, group.as_ref());
            }
            Request::Reservations { after } => {
                out.flag(after.is_some());
                out.u64(after.map_or(0, |after| after.0));
            }
            Request::Decision { group } => out.u128(*group),
            Request::Decide { id, decision } => {
                out.u64(id.0);
                put_decision(&mut out, *decision);
            }
            Request::Commit(part) | Request::Release(part) | Request::Look(part) => {
                put_part(&mut out, *part);
            }
            Request::Capability(id) => out.u64(id.0),
        }
        out
    }

    /// Gives a write the data that came behind its fields.
    pub fn carry(&mut self, arrived: View) {
        if let Request::Object(ops::Request::Write { data, .. }) = self {
            *data = arrived;
        }
    }

    /// The data that go behind its fields.
    pub fn data(&self) -> Option<&View> {
        match self {
            Request::Object(ops::Request::Write { data, .. }) => Some(data),
            _ => None,
        }
    }

    /// What the fields of `op` ask for.
    pub fn decode(op: Op, meta: &[u8]) -> Result<Request, Malformed> {
        let mut fields = Fields::new(op.name(), meta);
        let request = Request::fields(op, &mut fields)?;
        fields.end()?;
        Ok(request)
    }

    fn fields(op: Op, fields: &mut Fields<'_>) -> Result<Request, Malformed> {
        Ok(match op {
            Op::Open => Request::Open(proof(fields)?),
            Op::Ping => Request::Ping,
            Op::Fence => Request::Fence {
                object: fields.text()?,
                token: fields.u64()?,
            },
            Op::Seal => Request::Seal {
                object: fields.text()?,
                token: fields.u64()?,
            },
            Op::ClientTag => Request::ClientTag {
                tag: client_tag(fields)?,
                every: Nanos(fields.u64()?),
            },
            Op::AttachReservation => Request::AttachReservation {
                holder: holder(fields)?,
            },
            Op::Offer => Request::Offer(wanted(fields)?),
            Op::Quote => Request::Quote(quoted(fields)?),
            Op::Hold => Request::Hold {
                wanted: wanted(fields)?,
                until: Second(fields.u64()?),
                group: group(fields)?,
            },
            Op::HoldWithin => hold_within(fields)?,
            Op::Amend => Request::Amend {
                id: BookingId(fields.u64()?),
                wanted: wanted(fields)?,
                until: Second(fields.u64()?),
                group: group(fields)?,
            },
            Op::Commit => Request::Commit(BookingId(fields.u64()?).into()),
            Op::Release => Request::Release(BookingId(fields.u64()?).into()),
            Op::CommitPart => Request::Commit(part(fields)?),
            Op::ReleasePart => Request::Release(part(fields)?),
            Op::Look => Request::Look(part(fields)?),
            Op::Reservations => {
                let (is_some, after) = (fields.flag()?, fields.u64()?);
                if !is_some && after != 0 {
                    return fields.refuse("a number to begin after is given and not announced");
                }
                Request::Reservations {
                    after: is_some.then_some(BookingId(after)),
                }
            }
            Op::Undecided => Request::Undecided,
            Op::Decision => Request::Decision {
                group: fields.u128()?,
            },
            Op::Decide => Request::Decide {
                id: BookingId(fields.u64()?),
                decision: decision(fields)?,
            },
            Op::Capability => Request::Capability(BookingId(fields.u64()?)),
            Op::Report => Request::Report,
            _ => Request::Object(objects::decode(op, fields)?),
        })
    }
}
