//! One request carried out: the session checks and does, the answer says what came of it.

use std::rc::Rc;

use base::View;
use policy::place::Op;
use policy::share::calendar::Refusal;

use super::Server;
use super::connection::Access;
use crate::net::wire::{DAMAGE_MAX, Failure, RANGES_MAX, RefusedKind, Request, Response, fitting};
use crate::qos::fence::Fence;
use crate::qos::load_report::{ClientTag, UnderWay, over, place_of};
use crate::qos::manager::ReserveError;
use crate::qos::session::{OperationError, Session};

/// What a request holds besides its data, at most.
pub(super) const SMALL: u64 = 4096;
/// What a request with a long answer holds.
pub(super) const LARGE: u64 = 1 << 20;
/// Objects listed at once.
const LISTED_MAX: u32 = 4096;
/// Reservations in one answer.
const RESERVED_MAX: usize = 256;
/// How far the ranges of one answer reach, in bytes of the object: 65,536 pages at most.
const RANGES_REACH: u64 = 256 << 20;

/// The most memory a request holds at once, its data among it.
pub(super) fn charge(request: &Request, data_len: u32) -> u64 {
    match request {
        Request::Read { len, .. } => SMALL + u64::from(*len),
        Request::List { .. }
        | Request::AllocatedRanges { .. }
        | Request::Damage { .. }
        | Request::Reservations { .. }
        | Request::Undecided
        | Request::Report => LARGE,
        Request::Create { .. } | Request::SetAttributes { .. } => 4 * SMALL,
        _ => SMALL + u64::from(data_len),
    }
}

/// Does a request leave all as it is? Then a panic in it harms nothing but its own connection, unless it leaves the queue half
/// changed, which ends the thread.
pub(super) fn only_looks(request: &Request) -> bool {
    matches!(
        request,
        Request::Ping
            | Request::Read { .. }
            | Request::List { .. }
            | Request::Attributes { .. }
            | Request::Stat { .. }
            | Request::AllocatedRanges { .. }
            | Request::Space
            | Request::Offer(_)
            | Request::Reservations { .. }
            | Request::Capability(_)
            | Request::Undecided
            | Request::Report
    )
}

/// On whose behalf a request is carried out.
#[derive(Clone)]
pub(super) struct Behalf {
    pub session: Rc<Session>,
    pub access: Access,
    /// Under which all that comes later is done.
    pub fence: Option<Rc<Fence>>,
    /// Whose reads and writes they are.
    pub tag: ClientTag,
    /// The lesser of both sides' limits.
    pub data_max: u32,
}

impl Behalf {
    /// Counts a read or write in the store's queue, until it is done.
    fn counted(&self, request: &Request, data: &View) -> Option<UnderWay> {
        let (op, object, offset, len) = match request {
            Request::Read {
                object,
                offset,
                len,
            } => (Op::Read, object, *offset, u64::from(*len)),
            Request::Write { object, offset, .. } => {
                (Op::Write, object, *offset, data.len() as u64)
            }
            _ => return None,
        };
        let load = &self.session.manager().load;
        load.begin(&self.tag, op, place_of(object, offset), len, false)
    }
}

/// Carries one request out; `data` are a write's.
pub(super) async fn carry_out(
    server: &Server,
    behalf: &Behalf,
    request: Request,
    data: View,
) -> Response {
    let Behalf {
        session, access, ..
    } = behalf;
    let fence = behalf.fence.as_ref();
    // A seal waits for permits: it must not have one. A ping does nothing.
    let fence = fence.filter(|_| !matches!(request, Request::Seal { .. } | Request::Ping));
    let _permit = match fence.map(|fence| fence.enter()).transpose() {
        Ok(pass) => pass,
        Err(fenced) => return Response::Failed(fenced.into()),
    };
    let reserves = matches!(
        request,
        Request::Offer(_)
            | Request::Hold { .. }
            | Request::Commit(_)
            | Request::Release(_)
            | Request::Reservations { .. }
            | Request::Capability(_)
            | Request::Undecided
            | Request::Decision { .. }
            | Request::Decide { .. }
            | Request::Report
    );
    if reserves && *access != Access::NodeKey {
        let what = request.op().name();
        let text = format!("cannot {what}: this is for nodes alone; connect with the node key");
        return Response::Failed(Failure::refused(RefusedKind::NodeKeyOnly, text));
    }
    let answer = if reserves {
        reserve(server, request, behalf.data_max).await
    } else {
        let counted = behalf.counted(&request, &data);
        over(counted, on_objects(session, request, data).await)
    };
    answer.unwrap_or_else(Response::Failed)
}

async fn on_objects(session: &Session, request: Request, data: View) -> Result<Response, Failure> {
    Ok(match request {
        Request::Ping => Response::Done,
        Request::Create {
            object,
            attributes,
            change,
        } => {
            let pairs = attributes.iter().map(|(name, value)| (&**name, &**value));
            let pairs: Vec<(&str, &[u8])> = pairs.collect();
            Response::Version(session.create(&object, &pairs, change).await?)
        }
        Request::Write {
            object,
            offset,
            change,
        } => Response::Version(session.write(&object, offset, data, change).await?),
        Request::Read {
            object,
            offset,
            len,
        } => Response::Data(
            session
                .read(&object, offset, u64::from(len))
                .await?
                .freeze(),
        ),
        Request::Truncate {
            object,
            size,
            change,
        } => Response::Version(session.truncate(&object, size, change).await?),
        Request::Punch {
            object,
            offset,
            len,
            change,
        } => Response::Version(session.punch(&object, offset, len, change).await?),
        Request::Delete { object, change } => {
            session.delete(&object, change).await?;
            Response::Done
        }
        Request::Rename {
            object,
            to,
            replace,
            change,
        } => Response::Version(session.rename(&object, &to, replace, change).await?),
        Request::List {
            prefix,
            after,
            most,
        } => {
            let most = most.min(LISTED_MAX) as usize;
            Response::Listing(fitting(session.list(&prefix, after.as_deref(), most)?))
        }
        Request::Attributes { object } => Response::Attributes(session.attributes(&object)?),
        Request::SetAttributes {
            object,
            changes,
            change,
        } => {
            let pairs = changes
                .iter()
                .map(|(name, value)| (&**name, value.as_deref()));
            let pairs: Vec<(&str, Option<&[u8]>)> = pairs.collect();
            Response::Version(session.set_attributes(&object, &pairs, change).await?)
        }
        Request::Stat { object } => Response::Stat(session.stat(&object)?),
        Request::AllocatedRanges {
            object,
            offset,
            len,
        } => allocated_ranges(session, &object, offset, len)?,
        Request::Flush => {
            session.flush().await?;
            Response::Done
        }
        // The connection has it already.
        Request::Fence { .. } => Response::Done,
        Request::AttachReservation { holder } => {
            let under = session.attach_reservations(holder.as_deref());
            under.map_err(|why| Failure::refused(RefusedKind::NodeKeyOnly, why))?;
            Response::Done
        }
        Request::ClientTag { .. } => Response::State(Some(session.manager().state())),
        Request::Seal { object, token } => {
            session.seal(&object, token).await?;
            Response::Done
        }
        Request::Space => Response::Space(session.manager().store().space()),
        Request::Damage {
            prefix,
            object,
            offset,
        } => {
            let (damage, more) = session.damage(&prefix, &object, offset, DAMAGE_MAX)?;
            Response::Damage { damage, more }
        }
        other => unreachable!("{} is judged before", other.op().name()),
    })
}

/// As many ranges as one answer holds.
fn allocated_ranges(
    session: &Session,
    object: &str,
    offset: u64,
    len: u64,
) -> Result<Response, Failure> {
    let mut allocated_ranges = session.allocated_ranges(object, offset, len.min(RANGES_REACH))?;
    allocated_ranges.truncate(RANGES_MAX);
    let covered = allocated_ranges
        .last()
        .map_or(offset, |last| last.offset + last.len);
    let end = session.stat(object)?.size.min(offset.saturating_add(len));
    let more = covered < end;
    Ok(Response::AllocatedRanges {
        allocated_ranges,
        more,
    })
}

async fn reserve(server: &Server, request: Request, data_max: u32) -> Result<Response, Failure> {
    let manager = &server.manager;
    Ok(match request {
        Request::Offer(wanted) => {
            manager.offer(&wanted)?;
            Response::Done
        }
        Request::Hold {
            wanted,
            group,
            until,
        } => Response::Booking(manager.hold(&wanted, group, until).await?),
        Request::Commit(id) => Response::Capability(Some(manager.commit(id).await?)),
        Request::Release(id) => {
            manager.release(id).await?;
            Response::Done
        }
        Request::Capability(id) => Response::Capability(manager.capability(id)),
        Request::Reservations { after } => {
            let mut all = manager.reservations();
            all.sort_by_key(|reserved| reserved.id);
            all.retain(|reserved| after.is_none_or(|after| reserved.id > after));
            let more = all.len() > RESERVED_MAX;
            all.truncate(RESERVED_MAX);
            Response::Reservations {
                reservations: all,
                more,
            }
        }
        Request::Undecided => {
            let mut all = manager.undecided();
            all.truncate(RESERVED_MAX);
            Response::Undecided(all)
        }
        Request::Decision { group } => Response::Decision(manager.decision(group).await?),
        Request::Decide { id, decision } => {
            manager.decide(id, decision).await?;
            Response::Done
        }
        Request::Report => {
            let json = serde_json::to_vec(&manager.report()).map_err(|error| {
                Failure::refused(
                    RefusedKind::TooLong,
                    format!("cannot report: the report cannot be written down ({error})"),
                )
            })?;
            if json.len() > data_max as usize {
                return Err(Failure::refused(
                    RefusedKind::TooLong,
                    format!(
                        "cannot report: the report has {} bytes, at most {data_max} travel in one frame",
                        json.len()
                    ),
                ));
            }
            Response::Data(View::copy_of(&json))
        }
        other => unreachable!("{} is not about reservations", other.op().name()),
    })
}

impl From<OperationError> for Failure {
    fn from(error: OperationError) -> Failure {
        match error {
            OperationError::Store(error) => Failure::Store(error),
            other => Failure::refused(RefusedKind::Session, other.to_string()),
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        // The cause of a refusal for want of room is in what `ReserveError` says.
        Failure::from(ReserveError::from(refusal))
    }
}

impl From<ReserveError> for Failure {
    fn from(error: ReserveError) -> Failure {
        let text = error.to_string();
        let offer = match error {
            ReserveError::Refused(Refusal::Full { offer, .. }) => Some(offer),
            _ => None,
        };
        Failure::Refused {
            kind: RefusedKind::Reservation,
            text,
            offer,
        }
    }
}
