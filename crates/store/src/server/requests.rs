//! One request carried out: the session checks and does, the answer says what came of it.

use std::rc::Rc;

use base::View;
use policy::place::Op;
use policy::share::calendar::Refusal;

use super::Server;
use super::connection::Access;
use crate::guard::Guard;
use crate::node::ReserveError;
use crate::session::{OperationError, Session};
use crate::told::{Caller, UnderWay, over, place_of};
use crate::wire::{Answer, Ask, DAMAGE_MAX, EXTENTS_MAX, Failure, RefusedKind, fitting};

/// What a request holds besides its data, at most.
pub(super) const SMALL: u64 = 4096;
/// What a request with a long answer holds.
pub(super) const LARGE: u64 = 1 << 20;
/// Objects listed at once.
const LISTED_MAX: u32 = 4096;
/// Reservations in one answer.
const RESERVED_MAX: usize = 256;
/// How far the extents of one answer reach, in bytes of the object: 65,536 pages at most.
const EXTENTS_REACH: u64 = 256 << 20;

/// The most memory a request holds at once, its data among it.
pub(super) fn charge(ask: &Ask, data_len: u32) -> u64 {
    match ask {
        Ask::Read { len, .. } => SMALL + u64::from(*len),
        Ask::List { .. }
        | Ask::Extents { .. }
        | Ask::Damage { .. }
        | Ask::Reservations { .. }
        | Ask::Undecided
        | Ask::Report => LARGE,
        Ask::Create { .. } | Ask::SetAttributes { .. } => 4 * SMALL,
        _ => SMALL + u64::from(data_len),
    }
}

/// Does a request leave all as it is? Then a panic in it harms nothing but its own connection, unless it leaves the queue half
/// changed, which ends the thread.
pub(super) fn only_looks(ask: &Ask) -> bool {
    matches!(
        ask,
        Ask::Ping
            | Ask::Read { .. }
            | Ask::List { .. }
            | Ask::Attributes { .. }
            | Ask::Stat { .. }
            | Ask::Extents { .. }
            | Ask::Space
            | Ask::Offer(_)
            | Ask::Reservations { .. }
            | Ask::Capability(_)
            | Ask::Undecided
            | Ask::Report
    )
}

/// On whose behalf a request is carried out.
#[derive(Clone)]
pub(super) struct Behalf {
    pub session: Rc<Session>,
    pub access: Access,
    /// Under which all that comes later is done.
    pub guard: Option<Rc<Guard>>,
    /// Whose reads and writes they are.
    pub caller: Caller,
    /// The lesser of both sides' limits.
    pub data_max: u32,
}

impl Behalf {
    /// Counts a read or write in the store's queue, until it is done.
    fn counted(&self, ask: &Ask, data: &View) -> Option<UnderWay> {
        let (op, object, offset, len) = match ask {
            Ask::Read {
                object,
                offset,
                len,
            } => (Op::Read, object, *offset, u64::from(*len)),
            Ask::Write { object, offset, .. } => (Op::Write, object, *offset, data.len() as u64),
            _ => return None,
        };
        let watch = &self.session.node().watch;
        watch.begin(&self.caller, op, place_of(object, offset), len, false)
    }
}

/// Carries one request out; `data` are a write's.
pub(super) async fn carry_out(server: &Server, behalf: &Behalf, ask: Ask, data: View) -> Answer {
    let Behalf {
        session, access, ..
    } = behalf;
    let guard = behalf.guard.as_ref();
    // A seal waits for passes: it must not have one. A ping does nothing.
    let guard = guard.filter(|_| !matches!(ask, Ask::Seal { .. } | Ask::Ping));
    let _pass = match guard.map(|guard| guard.enter()).transpose() {
        Ok(pass) => pass,
        Err(fenced) => return Answer::Failed(fenced.into()),
    };
    let reserves = matches!(
        ask,
        Ask::Offer(_)
            | Ask::Hold { .. }
            | Ask::Commit(_)
            | Ask::Release(_)
            | Ask::Reservations { .. }
            | Ask::Capability(_)
            | Ask::Undecided
            | Ask::Decision { .. }
            | Ask::Decide { .. }
            | Ask::Report
    );
    if reserves && *access != Access::NodeKey {
        let what = ask.op().name();
        let text = format!("cannot {what}: this is for nodes alone; connect with the node key");
        return Answer::Failed(Failure::refused(RefusedKind::NodeKeyOnly, text));
    }
    let answer = if reserves {
        reserve(server, ask, behalf.data_max).await
    } else {
        let counted = behalf.counted(&ask, &data);
        over(counted, on_objects(session, ask, data).await)
    };
    answer.unwrap_or_else(Answer::Failed)
}

async fn on_objects(session: &Session, ask: Ask, data: View) -> Result<Answer, Failure> {
    Ok(match ask {
        Ask::Ping => Answer::Done,
        Ask::Create {
            object,
            attributes,
            change,
        } => {
            let pairs = attributes.iter().map(|(name, value)| (&**name, &**value));
            let pairs: Vec<(&str, &[u8])> = pairs.collect();
            Answer::Generation(session.create(&object, &pairs, change).await?)
        }
        Ask::Write {
            object,
            offset,
            change,
        } => Answer::Generation(session.write(&object, offset, data, change).await?),
        Ask::Read {
            object,
            offset,
            len,
        } => Answer::Data(
            session
                .read(&object, offset, u64::from(len))
                .await?
                .freeze(),
        ),
        Ask::Truncate {
            object,
            size,
            change,
        } => Answer::Generation(session.truncate(&object, size, change).await?),
        Ask::Punch {
            object,
            offset,
            len,
            change,
        } => Answer::Generation(session.punch(&object, offset, len, change).await?),
        Ask::Delete { object, change } => {
            session.delete(&object, change).await?;
            Answer::Done
        }
        Ask::Rename {
            object,
            to,
            replace,
            change,
        } => Answer::Generation(session.rename(&object, &to, replace, change).await?),
        Ask::List {
            prefix,
            after,
            most,
        } => {
            let most = most.min(LISTED_MAX) as usize;
            Answer::Listing(fitting(session.list(&prefix, after.as_deref(), most)?))
        }
        Ask::Attributes { object } => Answer::Attributes(session.attributes(&object)?),
        Ask::SetAttributes {
            object,
            changes,
            change,
        } => {
            let pairs = changes
                .iter()
                .map(|(name, value)| (&**name, value.as_deref()));
            let pairs: Vec<(&str, Option<&[u8]>)> = pairs.collect();
            Answer::Generation(session.set_attributes(&object, &pairs, change).await?)
        }
        Ask::Stat { object } => Answer::Stat(session.stat(&object)?),
        Ask::Extents {
            object,
            offset,
            len,
        } => extents(session, &object, offset, len)?,
        Ask::Flush => {
            session.flush().await?;
            Answer::Done
        }
        // The connection has it already.
        Ask::Guard { .. } => Answer::Done,
        Ask::Under { holder } => {
            let under = session.come_under(holder.as_deref());
            under.map_err(|why| Failure::refused(RefusedKind::NodeKeyOnly, why))?;
            Answer::Done
        }
        Ask::Tell { .. } => Answer::State(Some(session.node().state())),
        Ask::Seal { object, mark } => {
            session.seal(&object, mark).await?;
            Answer::Done
        }
        Ask::Space => Answer::Space(session.node().store().space()),
        Ask::Damage {
            prefix,
            object,
            offset,
        } => {
            let (damage, more) = session.damage(&prefix, &object, offset, DAMAGE_MAX)?;
            Answer::Damage { damage, more }
        }
        other => unreachable!("{} is judged before", other.op().name()),
    })
}

/// As many extents as one answer holds.
fn extents(session: &Session, object: &str, offset: u64, len: u64) -> Result<Answer, Failure> {
    let mut extents = session.extents(object, offset, len.min(EXTENTS_REACH))?;
    extents.truncate(EXTENTS_MAX);
    let told = extents.last().map_or(offset, |last| last.offset + last.len);
    let end = session.stat(object)?.size.min(offset.saturating_add(len));
    let more = told < end;
    Ok(Answer::Extents { extents, more })
}

async fn reserve(server: &Server, ask: Ask, data_max: u32) -> Result<Answer, Failure> {
    let node = &server.node;
    Ok(match ask {
        Ask::Offer(wanted) => {
            node.offer(&wanted)?;
            Answer::Done
        }
        Ask::Hold {
            wanted,
            group,
            until,
        } => Answer::Booking(node.hold(&wanted, group, until).await?),
        Ask::Commit(id) => Answer::Capability(Some(node.commit(id).await?)),
        Ask::Release(id) => {
            node.release(id).await?;
            Answer::Done
        }
        Ask::Capability(id) => Answer::Capability(node.capability(id)),
        Ask::Reservations { after } => {
            let mut all = node.reservations();
            all.sort_by_key(|reserved| reserved.id);
            all.retain(|reserved| after.is_none_or(|after| reserved.id > after));
            let more = all.len() > RESERVED_MAX;
            all.truncate(RESERVED_MAX);
            Answer::Reservations {
                reservations: all,
                more,
            }
        }
        Ask::Undecided => {
            let mut all = node.undecided();
            all.truncate(RESERVED_MAX);
            Answer::Undecided(all)
        }
        Ask::Decision { group } => Answer::Decision(node.decision(group).await?),
        Ask::Decide { id, decision } => {
            node.decide(id, decision).await?;
            Answer::Done
        }
        Ask::Report => {
            let json = serde_json::to_vec(&node.report()).map_err(|error| {
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
            Answer::Data(View::copy_of(&json))
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
