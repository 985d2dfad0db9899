//! The published mover's task: one region after the other.
//!
//! ```text
//! up:   room for all of it -> slow read, fast write, chunk by chunk -> copies shown -> synchronized -> up
//! down: chunk by chunk: fast read, slow write -> slow flush -> extents demoting, clean pages go
//!       -> buffer and dirty pages synchronized -> slow
//! ```
//!
//! Choice: 2 MiB are read, then written, one such step at a time. With the paper's disks (four at 10,000 rpm,
//! 64 KiB chunks, write cache off) that gives both times of its table 1: a disk gets 512 KiB of each step, reads
//! them ahead on the way up, and loses two turns a step on the way down.
//!
//! Always true:
//! 1. A dirty page leaves the fast device only after it was destaged and the slow device was flushed.
//! 2. No request waits for a copy; a copy that finds no slots leaves its pages where they are.

use std::rc::Rc;

use policy::tier::{Region, Way};

use super::carry::Ended;
use super::down::move_down;
use super::up::move_up;
use super::{MoveEnd, Tier};
use crate::stats::count;

/// The task that moves regions as published.
pub(crate) async fn published_loop(tier: Rc<Tier>) {
    let cache = &tier.cache;
    let queue = &tier.movers.queue;
    while !cache.stopped.get() && cache.is_running() {
        let work = queue.work();
        if let Some(wait) = tier.opens_in() {
            // Other choices wake it before.
            let _ = env::timeout(wait, work).await;
            continue;
        }
        let Some((region, way)) = queue.begin() else {
            work.await;
            continue;
        };
        let ended = match way {
            Way::Up => move_up(&tier, region).await,
            Way::Down => move_down(&tier, region).await,
        };
        match ended {
            Ended::Again => {}
            Ended::Dropped => end_published(&tier, region, MoveEnd::Cancelled),
            Ended::Done => end_published(&tier, region, MoveEnd::Done),
        }
        queue.end(ended == Ended::Again);
    }
}

fn end_published(tier: &Tier, region: Region, end: MoveEnd) {
    let mut stats = tier.stats.borrow_mut();
    if stats.end_move(env::now(), region, end) && end == MoveEnd::Cancelled {
        count(&tier.counts.cancelled, 1);
    }
}
