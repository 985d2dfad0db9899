//! Deleted objects are taken apart: their segments go, and their pages come back with the commits that follow.
//!
//! ```text
//! delete, rename over -> a share at once -> the rest, a share with each commit -> record and number go with the last
//! ```

use std::rc::Rc;

use crate::object::parts::Parts;
use crate::object::table::Table;

/// Takes objects under deletion apart.
pub(crate) struct Reaper(pub Rc<Parts>);

impl Reaper {
    /// The task, as long as the store is open.
    pub async fn run(self) {
        let parts = &*self.0;
        while !parts.commit.is_stopped() {
            let first = parts.table.borrow().deleting.first().copied();
            let Some(id) = first else {
                parts.reap.wait().await;
                continue;
            };
            let charge = parts.disk.superblock.stage_max() / 2;
            if parts.stage(charge).await.is_err() || parts.commit.is_stopped() {
                return;
            }
            let released = take_apart(parts, &mut parts.table.change(), id);
            parts.space.change().release(&released);
            parts.commit.note();
            env::yield_now().await;
        }
    }
}

/// Takes an object's name away in this step, and drops the first share of it. The rest, if any, is the reaper's.
pub(crate) fn delete(parts: &Parts, table: &mut Table, id: u32) {
    table.doom(id);
    let released = take_apart(parts, table, id);
    let mut space = parts.space.change();
    space.forget(id);
    space.release(&released);
}

/// Drops a share of the segments of an object under deletion, and the object with the last of them.
fn take_apart(parts: &Parts, table: &mut Table, id: u32) -> Vec<u32> {
    let released = table.drop_segments(id, 0, parts.disk.segments_at_once());
    let object = table.get(id);
    if object.is_some_and(|object| object.segments.is_empty()) {
        table.bury(id);
    }
    released
}
