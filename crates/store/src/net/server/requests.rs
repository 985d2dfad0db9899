//! One request carried out: the session checks and does, the answer says what came of it.

use std::rc::Rc;

use base::View;
use env::net::message::either;
use policy::share::Direction;
use policy::share::calendar::Refusal;

use crate::net::wire::{Failure, RANGES_MAX, RefusedKind, Request, Response, fitting};
use crate::ops::{self, ObjectCalls};
use crate::qos::fence::Fence;
use crate::qos::fenced::counted;
use crate::qos::load_report::{ClientTag, over};
use crate::qos::manager::{Manager, ReserveError};
use crate::qos::session::{OperationError, Session, work};

/// How a client came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Open,
    NodeKey,
    Capability,
}

impl Access {
    pub fn name(self) -> &'static str {
        match self {
            Access::Open => "open",
            Access::NodeKey => "node key",
            Access::Capability => "capability",
        }
    }
}

/// What a request holds besides its data, at most.
pub(super) const SMALL: u64 = 4096;
/// What a request with a long answer holds.
pub(super) const LARGE: u64 = 1 << 20;
/// Objects listed at once.
const LISTED_MAX: usize = 4096;
/// Reservations in one answer.
const RESERVED_MAX: usize = 256;
/// How far the ranges of one answer reach, in bytes of the object: 65,536 pages at most.
const RANGES_REACH: u64 = 256 << 20;

/// The most memory a request holds at once, its data among it.
pub(super) fn charge(request: &Request, data_len: u32) -> u64 {
    use crate::ops::Request as On;
    match request {
        Request::Object(On::Read { len, .. }) => SMALL + len,
        Request::Object(On::List { .. } | On::AllocatedRanges { .. } | On::Damage { .. })
        | Request::Reservations { .. }
        | Request::Undecided
        | Request::Report => LARGE,
        Request::Object(On::Create { .. } | On::SetAttributes { .. }) => 4 * SMALL,
        _ => SMALL + u64::from(data_len),
    }
}

/// Does a request leave all as it is? Then a panic in it harms nothing but its own connection, unless it leaves the queue half
/// changed, which ends the thread.
pub(super) fn only_looks(request: &Request) -> bool {
    match request {
        Request::Object(ops::Request::Damage { .. }) => false,
        Request::Object(request) => !request.changes(),
        _ => matches!(
            request,
            Request::Ping
                | Request::Offer(_)
                | Request::Quote(_)
                | Request::Reservations { .. }
                | Request::Capability(_)
                | Request::Undecided
                | Request::Report
        ),
    }
}

/// On whose behalf a request is carried out.
#[derive(Clone)]
pub(super) struct Behalf {
    pub manager: Rc<Manager>,
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
    /// Waits until so much data may come in over the node's link.
    pub async fn takes(&self, bytes: u32) {
        let way = Direction::Write;
        self.session.cross_link(way, bytes.into()).await;
    }
}

/// Carries one request out; its data may leave over the node's link then.
/// One that waits for a cap is not begun behind `ended`.
pub(super) async fn carry_out(
    behalf: &Behalf,
    ended: impl Future<Output = ()>,
    request: Request,
) -> Response {
    let answer = match within_cap(behalf, ended, &request).await {
        Ok(()) => answer_of(behalf, request).await,
        Err(failure) => Response::Failed(failure),
    };
    // Without a permit: no seal waits for the link.
    let bytes = answer.data().len() as u64;
    behalf.session.cross_link(Direction::Read, bytes).await;
    answer
}

/// Waits for the cap of an account, as long as the connection has not ended: what was asked long ago must not be done behind
/// what the client asked for elsewhere since. Without a permit: no seal waits for a cap.
async fn within_cap(
    behalf: &Behalf,
    ended: impl Future<Output = ()>,
    request: &Request,
) -> Result<(), Failure> {
    let Request::Object(request) = request else {
        return Ok(());
    };
    let passes = work::within_cap(&behalf.session, request);
    let ends = async {
        ended.await;
        Err(OperationError::Stops)
    };
    Ok(either(passes, ends).await?)
}

async fn answer_of(behalf: &Behalf, request: Request) -> Response {
    let fence = behalf.fence.as_ref();
    // A seal waits for permits: it must not have one. A ping does nothing.
    let fence = fence.filter(|_| !matches!(request, Request::Seal { .. } | Request::Ping));
    let _permit = match fence.map(|fence| fence.enter()).transpose() {
        Ok(pass) => pass,
        Err(fenced) => return Response::Failed(fenced.into()),
    };
    let answer = match request {
        Request::Object(request) => on_objects(behalf, request).await,
        request @ (Request::Ping
        | Request::Fence { .. }
        | Request::Seal { .. }
        | Request::ClientTag { .. }
        | Request::AttachReservation { .. }) => of_connection(&behalf.session, request).await,
        request if behalf.access == Access::NodeKey => {
            reserve(&behalf.manager, request, behalf.data_max).await
        }
        request => {
            let what = request.op().name();
            let text = format!("cannot {what}: this is for nodes alone; connect with the node key");
            Err(Failure::refused(RefusedKind::NodeKeyOnly, text))
        }
    };
    answer.unwrap_or_else(Response::Failed)
}

async fn of_connection(session: &Session, request: Request) -> Result<Response, Failure> {
    Ok(match request {
        // The connection has a fence already when its request is carried out.
        Request::Ping | Request::Fence { .. } => Response::Done,
        Request::AttachReservation { holder } => {
            let under = session.attach_reservations(holder.as_deref());
            under.map_err(|why| Failure::refused(RefusedKind::NodeKeyOnly, why))?;
            Response::Done
        }
        Request::ClientTag { .. } => Response::State(Some(session.load_report())),
        Request::Seal { object, token } => {
            session.seal(&object, token).await?;
            Response::Done
        }
        other => unreachable!("{} is judged before", other.op().name()),
    })
}

/// A request on objects, as far as one answer holds what comes of it.
async fn on_objects(behalf: &Behalf, request: ops::Request) -> Result<Response, Failure> {
    let session = &*behalf.session;
    let request = match request {
        ops::Request::AllocatedRanges {
            object,
            offset,
            len,
        } => return allocated_ranges(session, object, offset, len).await,
        ops::Request::List {
            prefix,
            after,
            most,
        } => ops::Request::List {
            prefix,
            after,
            most: most.min(LISTED_MAX),
        },
        request => request,
    };
    let counted = counted(session, &behalf.tag, &request, false);
    Ok(Response::Object(
        match over(counted, work::carry_out_now(session, request).await)? {
            ops::Response::Listing(listing) => ops::Response::Listing(fitting(listing)),
            response => response,
        },
    ))
}

/// As many ranges as one answer holds.
async fn allocated_ranges(
    session: &Session,
    object: String,
    offset: u64,
    len: u64,
) -> Result<Response, Failure> {
    let within = len.min(RANGES_REACH);
    let mut allocated_ranges = session.allocated_ranges(&object, offset, within).await?;
    allocated_ranges.truncate(RANGES_MAX);
    let covered = allocated_ranges
        .last()
        .map_or(offset, |last| last.offset + last.len);
    let end = session.stat(&object).await?.size;
    let more = covered < end.min(offset.saturating_add(len));
    Ok(Response::Object(ops::Response::AllocatedRanges {
        allocated_ranges,
        more,
    }))
}

async fn reserve(
    manager: &Rc<Manager>,
    request: Request,
    data_max: u32,
) -> Result<Response, Failure> {
    Ok(match request {
        Request::Offer(wanted) => {
            manager.offer(&wanted)?;
            Response::Done
        }
        Request::Quote(wanted) => Response::Quote(manager.quote(&wanted)),
        Request::Hold {
            wanted,
            group,
            until,
        } => Response::Booking(manager.hold(&wanted, group, until).await?),
        Request::Amend {
            id,
            wanted,
            group,
            until,
        } => Response::Booking(manager.amend(id, &wanted, group, until).await?),
        Request::HoldWithin {
            within,
            wanted,
            group,
            until,
        } => {
            let held = manager.parts().hold_within(within, &wanted, group, until);
            Response::Booking(held.await?)
        }
        Request::Commit(part) => Response::Capability(Some(manager.commit(part).await?)),
        Request::Release(part) => {
            manager.release(part).await?;
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
        Request::Report => report(manager, data_max)?,
        other => of_parts(manager, other).await?,
    })
}

/// What becomes of parts of reservations over several stores.
async fn of_parts(manager: &Rc<Manager>, request: Request) -> Result<Response, Failure> {
    Ok(match request {
        Request::Look(part) => {
            let found = manager.parts().look(part).map_err(ReserveError::from);
            Response::Look(found?)
        }
        Request::Undecided => {
            let mut all = manager.parts().undecided();
            all.truncate(RESERVED_MAX);
            Response::Undecided(all)
        }
        Request::Decision { group } => Response::Decision(manager.parts().decision(group).await?),
        Request::Decide { id, decision } => {
            manager.parts().decide(id, decision).await?;
            Response::Done
        }
        other => unreachable!("{} is not about reservations", other.op().name()),
    })
}

/// How the manager is, as JSON.
fn report(manager: &Manager, data_max: u32) -> Result<Response, Failure> {
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
    Ok(Response::Report(View::copy_of(&json)))
}

impl From<OperationError> for Failure {
    fn from(error: OperationError) -> Failure {
        match error {
            OperationError::Store(error) => Failure::Store(error),
            OperationError::Stops => Failure::refused(RefusedKind::ShuttingDown, error.to_string()),
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
