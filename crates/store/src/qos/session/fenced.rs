//! A session of which nothing is done any more once its writer was replaced.
//!
//! ```text
//! request -> a permit of the fence -> counted in the load report -> the session -> the permit back
//! ```

use std::cell::Cell;
use std::rc::Rc;

use policy::place::State;

use crate::ops::{Limits, ObjectOps, Pending, Request, Response};
use crate::qos::load_report::{self, ClientTag, UnderWay, place_of};
use crate::qos::session::fence::Fence;
use crate::qos::session::{OperationError, Session, work};

/// A session every operation of which, reads included, is refused once its fence was sealed with a greater token.
pub struct Fenced {
    session: Rc<Session>,
    fence: Fence,
    /// Whose reads and writes they are.
    tag: Cell<ClientTag>,
}

impl Fenced {
    /// A session under a fence; see [`crate::qos::fence`].
    ///
    /// # Errors
    /// As for [`Session::fence`].
    pub fn new(
        session: &Rc<Session>,
        object: &str,
        token: u64,
    ) -> Result<Rc<Fenced>, OperationError> {
        Ok(Rc::new(Fenced {
            fence: session.fence(object, token)?,
            session: Rc::clone(session),
            tag: Cell::new(ClientTag::unknown(0)),
        }))
    }

    /// The session without its fence.
    pub fn session(&self) -> &Rc<Session> {
        &self.session
    }

    /// Says whose reads and writes these are from now on.
    pub fn set_client_tag(&self, tag: ClientTag) {
        self.session.prefer(tag.origin.class);
        self.tag.set(tag);
    }

    /// Does what `request` asks. A change has a task of its own: it keeps its permit to its end, though the client that
    /// asked may be gone.
    async fn carry_out(&self, request: Request) -> Result<Response, OperationError> {
        let permit = self.fence.enter()?;
        let counted = counted(&self.session, &self.tag.get(), &request, true);
        if !request.changes() {
            let answer = work::carry_out(&self.session, request).await;
            return load_report::over(counted, answer);
        }
        let session = Rc::clone(&self.session);
        env::spawn(async move {
            let answer = work::carry_out(&session, request).await;
            let answer = load_report::over(counted, answer);
            drop(permit);
            answer
        })
        .await
    }
}

impl ObjectOps for Fenced {
    type Error = OperationError;

    fn call(&self, request: Request) -> Pending<'_, Response, OperationError> {
        Box::pin(self.carry_out(request))
    }

    fn limits(&self) -> Limits {
        self.session.limits()
    }

    fn load(&self) -> Option<State> {
        self.session.load()
    }
}

/// Counts a read or write in the store's queue, until it is done.
pub(crate) fn counted(
    session: &Session,
    tag: &ClientTag,
    request: &Request,
    local: bool,
) -> Option<UnderWay> {
    let (op, object, offset, len) = request.transfer()?;
    let load = &session.manager().load;
    load.begin(tag, op, place_of(object, offset), len, local)
}
