//! How long does a copy wait, and which device answers a read that both could?
//!
//! Always true: a copy waits for its tokens and then at most as long as it would take at the floor of the rate. So users
//! who never pause do not stop it for ever.

use std::rc::Rc;

use base::{Bytes, Nanos};
use policy::tier::either::Side;
use policy::tier::flow::FlowOptions;

use super::Tier;

/// The task that looks at waits.
pub(crate) async fn pace_loop(tier: Rc<Tier>) {
    let cache = &tier.cache;
    while !cache.stopped.get() && cache.is_running() {
        let changed = tier.movers.changed.wait();
        if !cache.volume.has_tier() {
            changed.await;
            continue;
        }
        env::sleep(FlowOptions::SAMPLE).await;
        tier.pace.borrow_mut().sample(
            env::now(),
            &cache.volume.slow,
            cache.fast.waited(),
            tier.counts.bytes_moved.get(),
        );
    }
}

/// Waits until `bytes` may be moved.
pub(crate) async fn pace(tier: &Rc<Tier>, bytes: Bytes) {
    let cache = &tier.cache;
    if cache.volume.settings.borrow().tier.flow_control {
        loop {
            let wait = tier.pace.borrow().tokens.wait(env::now(), bytes);
            if wait.0 == 0 || cache.stopped.get() {
                break;
            }
            // The rate may rise meanwhile.
            env::sleep(wait.min(FlowOptions::SAMPLE)).await;
        }
        tier.pace.borrow_mut().tokens.take(env::now(), bytes);
        let floor = tier.pace.borrow().floor;
        let timeout = bytes.0 as f64 / floor.0 as f64;
        let timeout = Nanos::from_secs_f64(timeout);
        let _ = env::timeout(timeout, cache.volume.slow.quiet()).await;
    }
    let moved = &tier.counts.bytes_moved;
    moved.set(moved.get() + bytes.0);
}

/// Should the next read of data that both devices have go to the slow one? One that sleeps is not woken for that.
pub(crate) fn reads_slow(tier: &Tier) -> bool {
    let cache = &tier.cache;
    let asked = {
        let settings = cache.volume.settings.borrow();
        settings.mode.has_tier() && settings.tier.either
    };
    asked && !cache.volume.is_at_rest() && tier.pace.borrow_mut().either.next() == Side::Slow
}
