//! Which session was served last, and how much of it since the device came to it?

use base::Bytes;

use super::{Approach, Direction, Dispatch, SessionId};

/// What one session got in a row.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Streak(Option<(SessionId, Direction, Bytes)>);

impl Streak {
    /// A piece of a session was chosen.
    pub fn note(&mut self, id: SessionId, dispatch: &Dispatch) {
        let before = match dispatch.approach {
            Approach::Follows => self.0.filter(|it| (it.0, it.1) == (id, dispatch.direction)),
            Approach::Over(_) | Approach::Jump => None,
        };
        let bytes = before.map_or(Bytes(0), |(.., bytes)| bytes) + dispatch.bytes;
        self.0 = Some((id, dispatch.direction, bytes));
    }

    /// The device was elsewhere since.
    pub fn end(&mut self) {
        self.0 = None;
    }

    /// Which session it was, in which direction, and what it got in a row.
    pub fn last(&self) -> Option<(SessionId, Direction, Bytes)> {
        self.0
    }
}
