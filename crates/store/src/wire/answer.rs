//! Answers: what came of a request, as fields and back.

use base::{Buf, Bytes, Instant, Nanos, View};
use policy::place::State as Told;
use policy::share::Second;
use policy::share::calendar::{BookingId, State};

use super::ask::{Op, decision, group, put_decision, put_group, put_wanted, wanted};
use super::failure::Failure;
use super::fields::{Fields, Malformed, Put};
use crate::damage::Damage;
use crate::node::{Decision, Group, Reserved};
use crate::object::{Extent, Generation, Listing, SpaceFigures, Stat};

/// As which client the connection counts from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// The store's name.
    pub name: String,
    /// Shows that the server knows the node key, if the client showed it; else zeroes.
    pub proof: [u8; 32],
    /// What the session's requests may hold at once at present.
    pub memory: Bytes,
    /// The server's clock, in nanoseconds since 1970.
    pub wall_clock: Nanos,
}

/// What came of a request.
#[derive(Debug, Clone)]
#[allow(missing_docs)] // They are what the operations of `Store` and `node::Node` give.
pub enum Answer {
    Opened(Opened),
    /// It is done, and there is nothing to say.
    Done,
    Generation(Generation),
    /// The bytes of a read, or a report's JSON.
    Data(View),
    Stat(Stat),
    Listing(Listing),
    Attributes(Vec<(String, Vec<u8>)>),
    Extents {
        extents: Vec<Extent>,
        /// There are more behind the last.
        more: bool,
    },
    Space(SpaceFigures),
    Damage {
        damage: Vec<Damage>,
        /// There is more behind the last.
        more: bool,
    },
    Booking(BookingId),
    Capability(Option<String>),
    Reservations {
        reservations: Vec<Reserved>,
        /// There are more behind the last.
        more: bool,
    },
    Undecided(Vec<(BookingId, Group)>),
    Decision(Decision),
    /// How long the queue is; `None`: the report has a form that this program does not know.
    State(Option<Told>),
    Failed(Failure),
}

impl PartialEq for Answer {
    fn eq(&self, other: &Answer) -> bool {
        match (self, other) {
            (Answer::Data(a), Answer::Data(b)) => a[..] == b[..],
            (a, b) => {
                let ((status, meta, _), other) = (a.parts(), b.parts());
                std::mem::discriminant(a) == std::mem::discriminant(b)
                    && (status, meta) == (other.0, other.1)
            }
        }
    }
}

/// Bytes of one object in a listing, its name aside.
const STAT_LEN: usize = 2 + 8 + 8 + 8 + 8;
/// Bytes of one extent.
const EXTENT_LEN: usize = 8 + 8 + 1 + 8;
/// Bytes of one damaged stretch, its name aside.
const DAMAGE_LEN: usize = 2 + 8 + 8;
/// The most damaged stretches of one answer: with the longest names half of what an answer may have.
pub(crate) const DAMAGE_MAX: usize = 500;
/// The most extents of one answer.
pub(crate) const EXTENTS_MAX: usize = 16_384;
/// The most bytes of listed objects in one answer.
pub(crate) const LISTING_BYTES_MAX: usize = 512 << 10;

fn put_stat(out: &mut Vec<u8>, stat: &Stat) {
    out.text(&stat.name);
    out.u64(stat.size);
    out.u64(stat.generation.0);
    out.u64(stat.born.0);
    out.u64(stat.mark);
}

fn stat(fields: &mut Fields<'_>) -> Result<Stat, Malformed> {
    Ok(Stat {
        name: fields.text()?,
        size: fields.u64()?,
        generation: Generation(fields.u64()?),
        born: Generation(fields.u64()?),
        mark: fields.u64()?,
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

/// Bytes of one group without stores.
const GROUP_LEN: usize = 1 + 16 + 4;
/// Bytes of one reservation without texts and stores.
const RESERVED_LEN: usize = 8 + 49 + 1 + GROUP_LEN + 8 + 8;

fn put_reserved(out: &mut Vec<u8>, reserved: &Reserved) {
    out.u64(reserved.id.0);
    put_wanted(out, &reserved.ask);
    match reserved.state {
        State::Held { until } => {
            out.u8(0);
            out.u64(until.0);
        }
        State::Committed => {
            out.u8(1);
            out.u64(0);
        }
    }
    put_group(out, reserved.group.as_ref());
    out.u64(reserved.space_left.0);
    out.u64(reserved.made.0);
}

fn reserved(fields: &mut Fields<'_>) -> Result<Reserved, Malformed> {
    Ok(Reserved {
        id: BookingId(fields.u64()?),
        ask: wanted(fields)?,
        state: match (fields.u8()?, fields.u64()?) {
            (0, until) => State::Held {
                until: Second(until),
            },
            (1, 0) => State::Committed,
            _ => return fields.refuse("a reservation is neither held nor committed"),
        },
        group: group(fields)?,
        space_left: Bytes(fields.u64()?),
        made: Second(fields.u64()?),
    })
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

impl Answer {
    /// The status, fields and data of its frame.
    pub fn parts(&self) -> (u16, Vec<u8>, View) {
        let mut out = Vec::new();
        let mut data = View::empty();
        match self {
            Answer::Opened(opened) => {
                out.text(&opened.name);
                out.raw(&opened.proof);
                out.u64(opened.memory.0);
                out.u64(opened.wall_clock.0);
            }
            Answer::Done => {}
            Answer::Generation(generation) => out.u64(generation.0),
            Answer::Data(view) => data = view.clone(),
            Answer::Stat(stat) => put_stat(&mut out, stat),
            Answer::Listing(listing) => {
                out.flag(listing.next.is_some());
                out.text(listing.next.as_deref().unwrap_or(""));
                out.u32(listing.objects.len() as u32);
                for stat in &listing.objects {
                    put_stat(&mut out, stat);
                }
            }
            Answer::Attributes(attributes) => {
                out.u32(attributes.len() as u32);
                for (name, value) in attributes {
                    out.text(name);
                    out.bytes(value);
                }
            }
            Answer::Extents { extents, more } => {
                out.flag(*more);
                out.u32(extents.len() as u32);
                for extent in extents {
                    out.u64(extent.offset);
                    out.u64(extent.len);
                    out.flag(extent.data);
                    out.u64(extent.generation.0);
                }
            }
            Answer::Space(figures) => put_space(&mut out, figures),
            Answer::Damage { damage, more } => {
                out.flag(*more);
                out.u32(damage.len() as u32);
                for one in damage {
                    out.text(&one.object);
                    out.u64(one.offset);
                    out.u64(one.len);
                }
            }
            Answer::Booking(id) => out.u64(id.0),
            Answer::Capability(token) => {
                out.flag(token.is_some());
                out.text(token.as_deref().unwrap_or(""));
            }
            Answer::Reservations { reservations, more } => {
                out.flag(*more);
                out.u32(reservations.len() as u32);
                for reserved in reservations {
                    put_reserved(&mut out, reserved);
                }
            }
            Answer::Undecided(parts) => {
                out.u32(parts.len() as u32);
                for (id, group) in parts {
                    out.u64(id.0);
                    put_group(&mut out, Some(group));
                }
            }
            Answer::Decision(decision) => put_decision(&mut out, *decision),
            Answer::State(state) => {
                out.extend(state.iter().flat_map(super::state::encode));
            }
            Answer::Failed(failure) => {
                let status = failure.encode(&mut out);
                return (status, out, data);
            }
        }
        (0, out, data)
    }

    /// What an answer to `op` says.
    pub fn decode(op: Op, status: u16, meta: &[u8], data: Buf) -> Result<Answer, Malformed> {
        let mut fields = Fields::new(op.name(), meta);
        let carries_data = matches!(op, Op::Read | Op::Report);
        if !data.is_empty() && (status != 0 || !carries_data) {
            return fields.refuse("the answer carries data where there can be none");
        }
        if status != 0 {
            let failure = Failure::decode(status, &mut fields)?;
            fields.end()?;
            return Ok(Answer::Failed(failure));
        }
        let answer = match op {
            Op::Open => Answer::Opened(Opened {
                name: fields.text()?,
                proof: fields.array()?,
                memory: Bytes(fields.u64()?),
                wall_clock: Nanos(fields.u64()?),
            }),
            Op::Ping
            | Op::Guard
            | Op::Under
            | Op::Seal
            | Op::Delete
            | Op::Flush
            | Op::Offer
            | Op::Release
            | Op::Decide => Answer::Done,
            Op::Create | Op::Write | Op::Truncate | Op::Punch | Op::Rename | Op::SetAttributes => {
                Answer::Generation(Generation(fields.u64()?))
            }
            Op::Read | Op::Report => Answer::Data(data.freeze()),
            Op::Stat => Answer::Stat(stat(&mut fields)?),
            Op::List => {
                let (is_some, next) = (fields.flag()?, fields.text()?);
                if !is_some && !next.is_empty() {
                    return fields.refuse("a next part is given and not announced");
                }
                let count = fields.count(STAT_LEN)?;
                let objects = (0..count).map(|_| stat(&mut fields));
                Answer::Listing(Listing {
                    objects: objects.collect::<Result<_, _>>()?,
                    next: is_some.then_some(next),
                })
            }
            Op::Attributes => {
                let count = fields.count(4)?;
                let pairs = (0..count).map(|_| Ok((fields.text()?, fields.bytes()?.to_vec())));
                Answer::Attributes(pairs.collect::<Result<_, _>>()?)
            }
            Op::Extents => {
                let more = fields.flag()?;
                let count = fields.count(EXTENT_LEN)?;
                let extents = (0..count).map(|_| {
                    Ok(Extent {
                        offset: fields.u64()?,
                        len: fields.u64()?,
                        data: fields.flag()?,
                        generation: Generation(fields.u64()?),
                    })
                });
                Answer::Extents {
                    extents: extents.collect::<Result<_, _>>()?,
                    more,
                }
            }
            Op::Space => Answer::Space(space(&mut fields)?),
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
                Answer::Damage {
                    damage: damage.collect::<Result<_, _>>()?,
                    more,
                }
            }
            Op::Hold => Answer::Booking(BookingId(fields.u64()?)),
            Op::Commit | Op::Capability => {
                let (is_some, token) = (fields.flag()?, fields.text()?);
                if !is_some && !token.is_empty() {
                    return fields.refuse("a capability is given and not announced");
                }
                Answer::Capability(is_some.then_some(token))
            }
            Op::Reservations => {
                let more = fields.flag()?;
                let count = fields.count(RESERVED_LEN)?;
                let reservations = (0..count).map(|_| reserved(&mut fields));
                Answer::Reservations {
                    reservations: reservations.collect::<Result<_, _>>()?,
                    more,
                }
            }
            Op::Undecided => {
                let count = fields.count(8 + GROUP_LEN)?;
                let mut parts = Vec::with_capacity(count);
                for _ in 0..count {
                    let id = BookingId(fields.u64()?);
                    match group(&mut fields)? {
                        Some(group) => parts.push((id, group)),
                        None => return fields.refuse("a part belongs to no group"),
                    }
                }
                Answer::Undecided(parts)
            }
            Op::Decision => Answer::Decision(decision(&mut fields)?),
            // When it was heard is the connection's to say; what is behind it, a later version's.
            Op::Tell => return Ok(Answer::State(super::state::decode(meta, Instant(0)))),
        };
        fields.end()?;
        Ok(answer)
    }
}
