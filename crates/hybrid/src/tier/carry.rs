//! What the published mover does alike on the way up and on the way down: pace, synchronization, end.
//!
//! Source: AST 3.3.2.

use std::rc::Rc;

use base::{Instant, Nanos};
use policy::tier::Region;

use super::Tier;
use super::drain::{bring_away, drain_buffer_of};
use crate::moving::{Errand, Phase, SYNC_WRITE_MAX, Step};
use crate::settings::Buffer;
use crate::stats::Health;

/// After something failed.
pub(super) const FAILURE_REST: Nanos = Nanos::secs(1);

/// How a move ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    Done,
    /// There was nothing to do, or no room.
    Dropped,
    /// The mover is to halt, or a device failed: to be done again.
    Again,
}

pub(super) fn note_copying(tier: &Tier, region: Region, begun: Instant) {
    let took = env::now().since(begun);
    tier.stats.borrow_mut().copying(region, took);
}

pub(super) fn may_go_on(tier: &Tier) -> bool {
    !tier.movers.queue.is_halted() && tier.runs()
}

pub(super) fn buffer_in_memory(tier: &Tier) -> bool {
    tier.cache.volume.settings.borrow().tier.buffer == Buffer::Memory
}

/// Waits for the next write that the pace allows; false: the move is to end.
pub(super) async fn turn(tier: &Tier) -> bool {
    let published = &tier.movers.published;
    loop {
        if !may_go_on(tier) {
            return false;
        }
        let now = env::now();
        match published.wait(now) {
            Nanos(0) => {
                published.take_turn(now);
                return true;
            }
            wait => env::sleep(wait).await,
        }
    }
}

/// Synchronizes a buffer in memory; false: the move is to end before its time.
pub(super) async fn synchronize(tier: &Rc<Tier>) -> bool {
    let cache = &tier.cache;
    let published = &tier.movers.published;
    loop {
        if !may_go_on(tier) {
            return false;
        }
        let now = env::now();
        match published.next_step(now) {
            Step::Done => return true,
            Step::Wait(wait) => env::sleep(wait).await,
            Step::Write(run) => {
                published.take_turn(now);
                debug_assert!(run.end - run.start <= SYNC_WRITE_MAX.0);
                if let Err(error) = bring_away(tier, run, Errand::Sync).await {
                    tracing::error!(volume = %cache.volume.name, %error, "a region's buffer could not be written");
                    env::sleep(FAILURE_REST).await;
                }
            }
        }
    }
}

/// The end of a move: synchronized, or before its time with the buffer written out at once.
pub(super) async fn finish(tier: &Rc<Tier>) -> Ended {
    let cache = &tier.cache;
    let done = match tier.movers.published.phase() {
        Some(Phase::SyncingUp) => synchronize(tier).await,
        Some(Phase::SyncingDown) => may_go_on(tier),
        _ => false,
    };
    // Or users could go on behind the drain's back for ever.
    tier.movers.published.with(|moving| moving.closing = true);
    while let Err(error) = drain_buffer_of(tier).await {
        if cache.stopped.get() {
            // No request comes any more, and no flush has called it durable.
            tier.movers.published.forget_buffer();
            break;
        }
        if cache.health.is(Health::Failed) {
            // The buffer has the only copy of writes that were acknowledged: reads see it until the end, and
            // every flush fails.
            return Ended::Again;
        }
        tracing::error!(volume = %cache.volume.name, %error, "what users wrote could not be brought away");
        env::sleep(FAILURE_REST).await;
    }
    tier.movers.published.end();
    tier.movers.demote_work.notify_all();
    if done { Ended::Done } else { Ended::Again }
}
