//! Responses: what came of a request, as fields and back.

use base::{Buf, Bytes, Instant, Nanos, View};
use policy::place::State as LoadReport;
use policy::share::Second;
use policy::share::calendar::{BookingId, State};

use super::failure::Failure;
use super::fields::{Fields, Malformed, Put};
use super::request::{
    Op, decision, group, put_attributes, put_decision, put_group, put_wanted, wanted,
};
use crate::object::damage::Damage;
use crate::object::types::{AllocatedRange, Listing, SpaceFigures, Stat, Version};
use crate::qos::manager::{Decision, Group, Reserved};

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
#[allow(missing_docs)] // They are what the operations of `Store` and `manager::Manager` give.
pub enum Response {
    Opened(Opened),
    /// It is done, and there is nothing to say.
    Done,
    Version(Version),
    /// The bytes of a read, or a report's JSON.
    Data(View),
    Stat(Stat),
    Listing(Listing),
    Attributes(Vec<(String, Vec<u8>)>),
    AllocatedRanges {
        allocated_ranges: Vec<AllocatedRange>,
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
    State(Option<LoadReport>),
    Failed(Failure),
}

impl PartialEq for Response {
    fn eq(&self, other: &Response) -> bool {
        match (self, other) {
            (Response::Data(a), Response::Data(b)) => a[..] == b[..],
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

/// Bytes of one group without stores.
const GROUP_LEN: usize = 1 + 16 + 4;
/// Bytes of one reservation without texts and stores.
const RESERVED_LEN: usize = 8 + 49 + 1 + GROUP_LEN + 8 + 8;

fn put_reserved(out: &mut Vec<u8>, reserved: &Reserved) {
    out.u64(reserved.id.0);
    put_wanted(out, &reserved.request);
    match reserved.state {
        State::Tentative { until } => {
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
        request: wanted(fields)?,
        state: match (fields.u8()?, fields.u64()?) {
            (0, until) => State::Tentative {
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

impl Response {
    /// The status, fields and data of its frame.
    pub fn parts(&self) -> (u16, Vec<u8>, View) {
        let mut out = Vec::new();
        let mut data = View::empty();
        match self {
            Response::Opened(opened) => {
                out.text(&opened.name);
                out.raw(&opened.proof);
                out.u64(opened.memory.0);
                out.u64(opened.wall_clock.0);
            }
            Response::Done => {}
            Response::Version(version) => out.u64(version.0),
            Response::Data(view) => data = view.clone(),
            Response::Stat(stat) => put_stat(&mut out, stat),
            Response::Listing(listing) => {
                out.optional_text(listing.next.as_deref());
                out.u32(listing.objects.len() as u32);
                for stat in &listing.objects {
                    put_stat(&mut out, stat);
                }
            }
            Response::Attributes(attributes) => put_attributes(&mut out, attributes),
            Response::AllocatedRanges {
                allocated_ranges,
                more,
            } => {
                out.flag(*more);
                put_allocated_ranges(&mut out, allocated_ranges);
            }
            Response::Space(figures) => put_space(&mut out, figures),
            Response::Damage { damage, more } => {
                out.flag(*more);
                put_damage(&mut out, damage);
            }
            Response::Booking(id) => out.u64(id.0),
            Response::Capability(token) => out.optional_text(token.as_deref()),
            Response::Reservations { reservations, more } => {
                out.flag(*more);
                out.u32(reservations.len() as u32);
                for reserved in reservations {
                    put_reserved(&mut out, reserved);
                }
            }
            Response::Undecided(parts) => {
                out.u32(parts.len() as u32);
                for (id, group) in parts {
                    out.u64(id.0);
                    put_group(&mut out, Some(group));
                }
            }
            Response::Decision(decision) => put_decision(&mut out, *decision),
            Response::State(state) => out.extend(state.iter().flat_map(super::state::encode)),
            Response::Failed(failure) => {
                let status = failure.encode(&mut out);
                return (status, out, data);
            }
        }
        (0, out, data)
    }

    /// What an answer to `op` says.
    pub fn decode(op: Op, status: u16, meta: &[u8], data: Buf) -> Result<Response, Malformed> {
        let mut fields = Fields::new(op.name(), meta);
        let carries_data = matches!(op, Op::Read | Op::Report);
        if !data.is_empty() && (status != 0 || !carries_data) {
            return fields.refuse("the answer carries data where there can be none");
        }
        if status != 0 {
            let failure = Failure::decode(status, &mut fields)?;
            fields.end()?;
            return Ok(Response::Failed(failure));
        }
        let response = match op {
            Op::Open => Response::Opened(Opened {
                name: fields.text()?,
                proof: fields.array()?,
                memory: Bytes(fields.u64()?),
                wall_clock: Nanos(fields.u64()?),
            }),
            Op::Ping
            | Op::Fence
            | Op::AttachReservation
            | Op::Seal
            | Op::Delete
            | Op::Flush
            | Op::Offer
            | Op::Release
            | Op::Decide => Response::Done,
            Op::Create | Op::Write | Op::Truncate | Op::Punch | Op::Rename | Op::SetAttributes => {
                Response::Version(Version(fields.u64()?))
            }
            Op::Read | Op::Report => Response::Data(data.freeze()),
            Op::Stat => Response::Stat(stat(&mut fields)?),
            Op::List => {
                let (is_some, next) = (fields.flag()?, fields.text()?);
                if !is_some && !next.is_empty() {
                    return fields.refuse("a next part is given and not announced");
                }
                let count = fields.count(STAT_LEN)?;
                let objects = (0..count).map(|_| stat(&mut fields));
                Response::Listing(Listing {
                    objects: objects.collect::<Result<_, _>>()?,
                    next: is_some.then_some(next),
                })
            }
            Op::Attributes => {
                let count = fields.count(4)?;
                let pairs = (0..count).map(|_| Ok((fields.text()?, fields.bytes()?.to_vec())));
                Response::Attributes(pairs.collect::<Result<_, _>>()?)
            }
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
            Op::Space => Response::Space(space(&mut fields)?),
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
            Op::Hold => Response::Booking(BookingId(fields.u64()?)),
            Op::Commit | Op::Capability => {
                let (is_some, token) = (fields.flag()?, fields.text()?);
                if !is_some && !token.is_empty() {
                    return fields.refuse("a capability is given and not announced");
                }
                Response::Capability(is_some.then_some(token))
            }
            Op::Reservations => {
                let more = fields.flag()?;
                let count = fields.count(RESERVED_LEN)?;
                let reservations = (0..count).map(|_| reserved(&mut fields));
                Response::Reservations {
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
                Response::Undecided(parts)
            }
            Op::Decision => Response::Decision(decision(&mut fields)?),
            // When it was heard is the connection's to say; what is behind it, a later version's.
            Op::ClientTag => return Ok(Response::State(super::state::decode(meta, Instant(0)))),
        };
        fields.end()?;
        Ok(response)
    }
}
