//! What a session does: as its [`Store`](crate::Store), within what it may.
//!
//! ```text
//! request -> within the cap of its account -> may: names, direction, phase -> its flow, and room for changes -> the store
//!                                            '-> lists leave out what is not its to see
//! ```

use base::Bytes;
use device::HeldAtCap;
use policy::place::State;
use policy::share::Direction;

use super::rights::hidden;
use super::{OperationError, Session};
use crate::object::error::StoreError;
use crate::object::names::LISTING_MAX;
use crate::object::types::{Listing, Stat};
use crate::ops::{self, Limits, ObjectError, ObjectOps, Pending, Request, Response};

impl ObjectOps for Session {
    type Error = OperationError;

    fn call(&self, request: Request) -> Pending<'_, Response, OperationError> {
        Box::pin(carry_out(self, request))
    }

    fn limits(&self) -> Limits {
        self.manager.store.limits()
    }

    fn load(&self) -> Option<State> {
        Some(self.load_report())
    }
}

/// Does what `request` asks of the session's store; in which class and from which room is the session's to say.
pub(crate) async fn carry_out(
    session: &Session,
    request: Request,
) -> Result<Response, OperationError> {
    within_cap(session, &request).await?;
    // Asked behind the wait: its reservation may be over by now.
    carry_out_now(session, request).await
}

/// Waits until the account of `session` may have what `request` takes. Nothing of it is done yet, so this may be given up.
///
/// # Errors
/// [`OperationError::Stops`].
pub(crate) async fn within_cap(session: &Session, request: &Request) -> Result<(), OperationError> {
    let (direction, bytes) = match request {
        Request::Read { len, .. } => (Direction::Read, *len),
        Request::Write { data, .. } => (Direction::Write, data.len() as u64),
        _ if request.change().is_some() => (Direction::Write, 0),
        _ => return Ok(()),
    };
    match &session.paying.cap {
        Some(cap) if !cap.pass(direction, Bytes(bytes)).await => Err(OperationError::Stops),
        _ => Ok(()),
    }
}

/// Waits until a request that holds `bytes` of memory may wait for the cap of its account, whose requests hold `most` at once.
pub(crate) async fn held_at_cap(session: &Session, bytes: u64, most: u64) -> Option<HeldAtCap> {
    let cap = session.paying.cap.as_ref()?;
    cap.hold(Bytes(bytes), Bytes(most)).await
}

/// As [`carry_out`], of what [`within_cap`] has let pass. The store's figures count it.
pub(crate) async fn carry_out_now(
    session: &Session,
    request: Request,
) -> Result<Response, OperationError> {
    let requests = &session.sessions.requests;
    let watch = requests.begin(request.kind(), 0, request.data_len());
    let answer = carry_out_uncounted(session, request).await;
    watch.end(answer.is_ok());
    answer
}

async fn carry_out_uncounted(
    session: &Session,
    mut request: Request,
) -> Result<Response, OperationError> {
    narrow(session, &mut request);
    may(session, &request)?;
    let store = &session.manager.store;
    match &mut request {
        Request::List {
            prefix,
            after,
            most,
        } => {
            let listing = list(session, prefix, after.take(), *most);
            return Ok(Response::Listing(listing));
        }
        Request::Read { class, .. } => *class = session.class_of(Direction::Read),
        _ => {}
    }
    let Some(asked) = request.change().copied() else {
        let mut answer = ops::carry_out(store, &request).await?;
        if let Response::Damage { damage, .. } = &mut answer {
            damage.retain(|it| hidden(session.trusted, &it.object).is_none());
        }
        return Ok(answer);
    };
    loop {
        let change = session.change(asked);
        if let Some(as_asked) = request.change_mut() {
            *as_asked = change;
        }
        match ops::carry_out(store, &request).await {
            // The slot ended meanwhile and took the room along: again without it.
            Err(StoreError::NoReservation { .. }) if change.reservation != session.room.get() => {}
            answer => return Ok(answer?),
        }
    }
}

/// A list reaches no further than what the session is for.
fn narrow(session: &Session, request: &mut Request) {
    let granted = session.granted();
    let scope = granted.as_ref().map_or("", |it| &it.scope);
    if let Request::List { prefix, .. } | Request::Damage { prefix, .. } = request
        && scope.starts_with(&**prefix)
    {
        scope.clone_into(prefix);
    }
}

/// May the session do it? Of a rename both names must be its to write.
fn may(session: &Session, request: &Request) -> Result<(), OperationError> {
    let (read, write) = (Some(Direction::Read), Some(Direction::Write));
    let (what, direction) = match request {
        Request::Create { .. } => ("create", write),
        Request::Write { .. } => ("write", write),
        Request::Read { .. } => ("read", read),
        Request::Truncate { .. } => ("truncate", write),
        Request::Punch { .. } => ("punch a hole in", write),
        Request::Delete { .. } => ("delete", write),
        Request::Rename { .. } => ("rename", write),
        Request::SetAttributes { .. } => ("set attributes of", write),
        Request::Attributes { .. } | Request::Stat { .. } | Request::AllocatedRanges { .. } => {
            ("look at", None)
        }
        Request::List { .. } => ("list", None),
        Request::Damage { .. } => ("list the damage of", None),
        Request::Flush => {
            let granted = session.granted();
            return session.goes_on("flush", granted.as_ref().map_or("", |it| &it.scope));
        }
        Request::Space => return Ok(()),
    };
    session.may(what, request.object().unwrap_or(""), direction)?;
    match request {
        Request::Rename { to, .. } => session.may(what, to, direction),
        _ => Ok(()),
    }
}

/// As [`crate::Store::list`], without what is not the session's to see.
fn list(session: &Session, prefix: &str, mut after: Option<String>, most: usize) -> Listing {
    let most = most.clamp(1, LISTING_MAX);
    let mut found = Listing::default();
    loop {
        let wanted = most - found.objects.len();
        let part = session.manager.store.list(prefix, after.as_deref(), wanted);
        let passed = part
            .objects
            .last()
            .and_then(|it| hidden(session.trusted, &it.name));
        let visible = |it: &Stat| hidden(session.trusted, &it.name).is_none();
        found
            .objects
            .extend(part.objects.into_iter().filter(visible));
        match part.next {
            // All names with a hidden prefix are passed in one step, however many there are.
            Some(next) if found.objects.len() < most => {
                after = Some(passed.map_or(next, |prefix| format!("{prefix}{}", char::MAX)));
            }
            next => {
                found.next = next;
                return found;
            }
        }
    }
}

impl From<OperationError> for ObjectError {
    fn from(error: OperationError) -> ObjectError {
        match &error {
            OperationError::Store(error) => ObjectError::from(error),
            other => ObjectError::Refused(other.to_string()),
        }
    }
}
