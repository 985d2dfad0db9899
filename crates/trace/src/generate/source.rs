//! Where a generated trace's requests come from.

use crate::Request;

/// Hands out requests one by one, in order of time.
pub(super) trait Source: Send {
    /// The next one; `None` at the end.
    fn next(&mut self) -> Option<Request>;
}
