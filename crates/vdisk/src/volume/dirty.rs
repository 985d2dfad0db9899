//! Where dirty bits are kept, and the uses that keep them set.

use super::replica::Shared;
use crate::names::VolumeId;

/// The object of a volume.
pub(super) fn object(volume: VolumeId) -> String {
    format!("d/{volume}")
}

/// A change of an extent under way.
pub(super) struct InUse<'a>(&'a Shared, u32);

impl<'a> InUse<'a> {
    /// A change of an extent begins.
    pub fn of(replication: &'a Shared, index: u32) -> InUse<'a> {
        replication.borrow_mut().bitmap.begin_use(index);
        InUse(replication, index)
    }
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        let now = env::now();
        self.0.borrow_mut().bitmap.end_use(self.1, now);
    }
}
