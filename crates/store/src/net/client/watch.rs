//! Who looks after a connection: deadlines of calls, pings, a server that is gone.

use std::cell::Cell;

use base::{Instant, Nanos};

use super::connection::Shared;
use crate::net::wire::Request;

/// Signs of life, either way.
pub(super) struct Pulse {
    /// When something was last heard, and last sent.
    pub heard: Cell<Instant>,
    pub spoke: Cell<Instant>,
    /// A ping of the watch is under way.
    pinging: Cell<bool>,
}

impl Default for Pulse {
    fn default() -> Pulse {
        Pulse {
            heard: Cell::new(env::now()),
            spoke: Cell::new(env::now()),
            pinging: Cell::new(false),
        }
    }
}

/// Watches until the connection has ended.
pub(super) async fn watch(shared: &Shared) {
    let timeout = shared.options.timeout;
    let interval = Nanos((timeout.0 / 4).max(1_000_000));
    let idle = Nanos(u64::from(shared.server.idle_ms) * 1_000_000);
    // Two pings may be lost in a slow moment before the server cuts us.
    let every = interval.min(Nanos((idle.0 / 3).max(1_000_000)));
    while shared.ended().is_none() {
        env::sleep(every).await;
        let now = env::now();
        expire(shared, now);
        let closed_at = shared.outgoing.borrow().closed_at;
        if closed_at.is_some_and(|at| now.since(at) > timeout) {
            shared.end("this client was closed, and the server took too long over it".to_owned());
        }
        let waits = !shared.slots.borrow().is_empty();
        let silent = now.since(shared.pulse.heard.get());
        if waits && silent > timeout {
            shared.end(format!("nothing was heard from the server for {silent}"));
        }
        let quiet = silent >= interval || now.since(shared.pulse.spoke.get()) >= every;
        if quiet && closed_at.is_none() && !shared.pulse.pinging.get() && shared.ended().is_none() {
            // An orphan from the start: its answer is heard, and that is all.
            shared.put(Request::Ping, now, None, None);
        }
        let pings = shared.slots.borrow();
        shared
            .pulse
            .pinging
            .set(pings.values().any(|slot| slot.ping));
    }
}

/// Fails the requests that have waited too long.
fn expire(shared: &Shared, now: Instant) {
    let timeout = shared.options.timeout;
    let mut late: Vec<u64> = {
        let slots = shared.slots.borrow();
        let overdue = slots.iter().filter(|(_, slot)| {
            slot.outcome.is_none() && !slot.orphaned && now.since(slot.asked_at) >= timeout
        });
        overdue.map(|(id, _)| *id).collect()
    };
    late.sort_unstable();
    for id in late {
        let mut slots = shared.slots.borrow_mut();
        let Some(slot) = slots.get_mut(&id) else {
            continue;
        };
        let late = shared.late(&slot.request, slot.sent);
        slot.outcome = Some(Err(late));
        let waker = slot.waker.take();
        drop(slots);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
