//! The connections of a session, as operators see them.

use std::rc::Rc;

use super::Session;

/// A connection of a session, as operators see it; gone when dropped.
pub struct Peer {
    session: Rc<Session>,
    name: String,
}

impl Peer {
    /// A connection of this name uses the session.
    pub(super) fn of(session: &Rc<Session>, name: &str) -> Peer {
        session.peers.borrow_mut().push(name.to_owned());
        Peer {
            session: Rc::clone(session),
            name: name.to_owned(),
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let mut peers = self.session.peers.borrow_mut();
        if let Some(at) = peers.iter().position(|name| *name == self.name) {
            peers.remove(at);
        }
    }
}
