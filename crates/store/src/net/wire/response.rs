//! Responses: what came of a request, as fields and back.

use base::{Buf, Bytes, Instant, Nanos, View};
use policy::place::State as LoadReport;
use policy::share::Second;
use policy::share::calendar::{BookingId, State};

use super::failure::Failure;
use super::fields::{Fields, Malformed, Put};
use super::objects;
use super::request::Op;
use super::reserve::{decision, group, put_decision, put_group, put_wanted, wanted};
use crate::ops;
use crate::qos::manager::{Decision, Group, PartState, Quote, Reserved};

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
#[allow(missing_docs)] // They are what the operations of `manager::Manager` give.
pub enum Response {
    Opened(Opened),
    /// It is done, and there is nothing to say.
    Done,
    /// On objects.
    Object(ops::Response),
    /// A report's JSON.
    Report(View),
    Booking(BookingId),
    Quote(Quote),
    Look(PartState),
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
            (Response::Object(a), Response::Object(b)) => a == b,
            (Response::Report(a), Response::Report(b)) => a == b,
            (a, b) => {
                let ((status, meta, _), other) = (a.parts(), b.parts());
                std::mem::discriminant(a) == std::mem::discriminant(b)
                    && (status, meta) == (other.0, other.1)
            }
        }
    }
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

fn undecided(fields: &mut Fields<'_>) -> Result<Vec<(BookingId, Group)>, Malformed> {
    let count = fields.count(8 + GROUP_LEN)?;
    let mut parts = Vec::with_capacity(count);
    for _ in 0..count {
        let id = BookingId(fields.u64()?);
        match group(fields)? {
            Some(group) => parts.push((id, group)),
            None => return fields.refuse("a part belongs to no group"),
        }
    }
    Ok(parts)
}

fn quote(fields: &mut Fields<'_>) -> Result<Quote, Malformed> {
    let (ever, earliest) = (fields.flag()?, fields.u64()?);
    let (is_refused, why) = (fields.flag()?, fields.text()?);
    if !is_refused && !why.is_empty() || !ever && earliest != 0 {
        return fields.refuse("a refusal or a second is given and not announced");
    }
    Ok(Quote {
        earliest: ever.then_some(Second(earliest)),
        refused: is_refused.then_some(why),
    })
}

impl Response {
    /// The data of its frame: the bytes of a read, a report.
    pub fn data(&self) -> &[u8] {
        match self {
            Response::Object(ops::Response::Data(data)) | Response::Report(data) => data,
            _ => &[],
        }
    }

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
            Response::Object(response) => data = objects::put(&mut out, response),
            Response::Report(json) => data = json.clone(),
            Response::Booking(id) => out.u64(id.0),
            Response::Quote(quote) => {
                out.flag(quote.earliest.is_some());
                out.u64(quote.earliest.map_or(0, |at| at.0));
                out.optional_text(quote.refused.as_deref());
            }
            Response::Look(state) => {
                out.u64(state.now.0);
                out.u64(state.unused);
            }
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
            | Op::Offer
            | Op::Release
            | Op::ReleasePart
            | Op::Decide => Response::Done,
            Op::Report => Response::Report(data.freeze()),
            Op::Quote => Response::Quote(quote(&mut fields)?),
            Op::Hold | Op::HoldWithin | Op::Amend => Response::Booking(BookingId(fields.u64()?)),
            Op::Look => Response::Look(PartState {
                now: Second(fields.u64()?),
                unused: fields.u64()?,
            }),
            Op::Commit | Op::CommitPart | Op::Capability => {
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
            Op::Undecided => Response::Undecided(undecided(&mut fields)?),
            Op::Decision => Response::Decision(decision(&mut fields)?),
            // When it was heard is the connection's to say; what is behind it, a later version's.
            Op::ClientTag => return Ok(Response::State(super::state::decode(meta, Instant(0)))),
            _ => Response::Object(objects::response(op, &mut fields, data)?),
        };
        fields.end()?;
        Ok(response)
    }
}
