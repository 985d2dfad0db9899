//! Who was served last, and how much of it since the device came to it?

use base::Bytes;

use super::{Approach, Dispatch, SessionId};

/// What one session got in a row.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Streak(Option<(SessionId, Bytes)>);

impl Streak {
    /// A piece of a session was chosen.
    pub fn note(&mut self, id: SessionId, dispatch: &Dispatch) {
        let before = match dispatch.approach {
            Approach::Follows => self.of(id),
            Approach::Over(_) | Approach::Jump => None,
        };
        self.0 = Some((id, before.unwrap_or(Bytes(0)) + dispatch.bytes));
    }

    /// What this session got in a row, if it was the last.
    pub fn of(&self, id: SessionId) -> Option<Bytes> {
        let last = self.0.filter(|(last, _)| *last == id);
        last.map(|(_, bytes)| bytes)
    }
}
