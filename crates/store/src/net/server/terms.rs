//! On what terms is a connection: on whose behalf are its requests, under which fence, for how long?

use std::cell::Cell;
use std::rc::Rc;

use base::{Instant, Nanos};

use super::frames::End;
use super::requests::{Access, Behalf};
use crate::net::wire::{Failure, RefusedKind, Request};
use crate::qos::load_report::EVERY_LEAST;
use crate::qos::manager::Manager;
use crate::qos::session::{Peer, Phase};

/// States go along with answers.
#[derive(Clone, Copy)]
pub(super) struct Reporting {
    pub every: Nanos,
    pub last: Instant,
}

/// On what terms.
pub(super) struct Terms {
    pub behalf: Behalf,
    /// The capability it came with.
    pub token: Option<String>,
    /// How often keys had been voided when the capability was looked at.
    pub keys: u64,
    /// Shows this connection among the session's.
    pub _peer: Peer,
}

impl Terms {
    /// Takes what `request` says of all that comes behind it: here, in the order in which requests come, so that none is begun
    /// without it. There is one fence for a connection's whole life.
    pub fn taking(
        &mut self,
        request: Request,
        reporting: &Cell<Option<Reporting>>,
    ) -> Result<Request, Failure> {
        let behalf = &mut self.behalf;
        match &request {
            Request::Fence { object, token } => match &behalf.fence {
                Some(fence) if fence.is(object, *token) => {}
                Some(_) => {
                    let text = "the connection is guarded already; connect again to work under another mark";
                    return Err(Failure::refused(RefusedKind::OutOfTurn, text));
                }
                None => behalf.fence = Some(Rc::new(behalf.session.fence(object, *token)?)),
            },
            Request::ClientTag { tag, every } => {
                if behalf.access == Access::Capability {
                    let text = "cannot tell how long the queue is: this is for nodes alone; connect with the node key";
                    return Err(Failure::refused(RefusedKind::NodeKeyOnly, text));
                }
                behalf.session.prefer(tag.origin.class);
                behalf.tag = *tag;
                reporting.set(Some(Reporting {
                    every: (*every).max(EVERY_LEAST),
                    last: env::now(),
                }));
            }
            _ => {}
        }
        Ok(request)
    }

    /// Waits until the capability is good no more: its reservation is over, or its key void; why.
    pub fn until_revoked(&self, manager: &Rc<Manager>) -> impl Future<Output = End> + use<> {
        let (session, manager) = (Rc::clone(&self.behalf.session), Rc::clone(manager));
        let (token, mut keys) = (self.token.clone(), self.keys);
        let is_open = self.behalf.access == Access::Open;
        async move {
            loop {
                if session.phase() == Phase::Over {
                    return End::Ended(format!(
                        "the reservation of {} is over, and the capability with it; reserve anew",
                        session.holder_and_number()
                    ));
                }
                if is_open && !manager.unauthenticated() {
                    let store = manager.store().name();
                    return End::Revoked(format!(
                        "{store} takes only clients with credentials from now on; come with a capability"
                    ));
                }
                if let Some(token) = &token
                    && keys != manager.voided()
                {
                    keys = manager.voided();
                    if let Err(why) = manager.is_signed(token) {
                        return End::Revoked(why.to_string());
                    }
                }
                manager.revoked.wait().await;
            }
        }
    }
}
