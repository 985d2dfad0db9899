//! What a message costs the nodes of the beds: time of a processor and of a link, taken in turn.
//!
//! ```text
//! sender: CPU, then link -> hop -> receiver: CPU
//! request, answer and the state of a disk alike; what is not for another node is no message
//! ```
//!
//! Source: COST 4.4 (multicasts are held to be why round robin, which has none, has the higher mean; no figure is given).
//!
//! Choice: a node's processor serves requests, answers and multicasts one at a time, in the order they come, and so does
//! its link. A multicast is sent once and received by each other node. A message without data is a frame of 128 bytes.
//!
//! Always true: where a message costs nothing none waits for anything, and no task is scheduled otherwise.

use std::cell::Cell;

use base::{Bytes, Instant, Nanos};

use super::common::loads::{HOP, PASSING_PS};

/// A message beside its data.
const FRAME: Bytes = Bytes(128);

/// A processor or a link: one at a time, in the order they come.
#[derive(Debug, Default)]
struct Turns {
    /// From when it has nothing to do.
    free: Cell<Instant>,
}

impl Turns {
    /// Waits for its turn, and `time` more.
    async fn take(&self, time: Nanos) {
        let now = env::now();
        let end = self.free.get().max(now) + time;
        self.free.set(end);
        env::sleep(end.since(now)).await;
    }
}

/// A node's part in the traffic.
#[derive(Debug)]
pub(super) struct Messages {
    /// Of the processor, for each message that is sent or received.
    cost: Nanos,
    processor: Turns,
    link: Turns,
}

impl Messages {
    pub(super) fn new(cost: Nanos) -> Messages {
        Messages {
            cost,
            processor: Turns::default(),
            link: Turns::default(),
        }
    }

    /// Does a message cost anything?
    pub(super) fn cost_something(&self) -> bool {
        self.cost > Nanos(0)
    }

    /// A message with `data` from here to `other`, until it is received.
    pub(super) async fn send(&self, other: &Messages, data: Bytes) {
        if !self.cost_something() {
            return env::sleep(HOP + passing(data)).await;
        }
        self.transmit(data).await;
        other.receive().await;
    }

    /// What sending takes here, until the last byte is on its way.
    pub(super) async fn transmit(&self, data: Bytes) {
        self.processor.take(self.cost).await;
        self.link.take(passing(data + FRAME)).await;
    }

    /// The way, and what receiving takes here.
    pub(super) async fn receive(&self) {
        env::sleep(HOP).await;
        self.processor.take(self.cost).await;
    }
}

/// How long bytes take to pass.
fn passing(data: Bytes) -> Nanos {
    Nanos(data.0 * PASSING_PS / 1_000)
}
