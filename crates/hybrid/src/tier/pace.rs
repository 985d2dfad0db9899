//! How fast may moves go, and which device reads what both have?
//!
//! ```text
//! every 200 ms: what users waited for the slow device, and for the fast one
//!    -> policy::tier::flow   -> tokens: bytes a second that movers may copy
//!    -> policy::tier::either -> reads of clean data on the slow device when the fast one is the busier
//! ```
//!
//! Always true:
//! 1. Without flow control nothing waits here.
//! 2. A copy waits for its tokens and then at most as long as it would take at the floor of the rate: users who
//!    never pause do not stop it for ever.

use base::{Bytes, Instant, Nanos};
use policy::tier::either::{Either, Waits};
use policy::tier::flow::{Flow, FlowOptions, Sample, Tokens};

use crate::slow::{SlowDevice, Waited};

/// What may go at once without a pause.
const BURST: Bytes = Bytes::mib(4);

/// While users leave the slow device this part of its time, copies go at least so fast. What moves is expected to
/// save the device more than it costs, so a long delay gains nothing.
const IDLE_PART: f64 = 0.1;
const FLOOR: Bytes = Bytes::mib(8);

/// Choice: 4 MiB/s more after each good sample, so that a new hot spot is promoted while it is hot.
fn options() -> FlowOptions {
    FlowOptions {
        step: Bytes::mib(4),
        ..FlowOptions::default()
    }
}

/// What flow control and the choice between the devices know.
pub(crate) struct Pace {
    flow: Flow,
    pub tokens: Tokens,
    pub either: Either,
    // At the last sample.
    reads: Waited,
    written: Waited,
    fast: Waited,
    moved: u64,
    sampled: Instant,
    busy: Nanos,
    /// What is never refused now, in bytes a second.
    pub floor: Bytes,
}

impl Pace {
    pub fn new(now: Instant) -> Pace {
        let flow = Flow::new(options());
        Pace {
            tokens: Tokens::new(flow.rate(), BURST, now),
            flow,
            either: Either::default(),
            reads: Waited::default(),
            written: Waited::default(),
            fast: Waited::default(),
            moved: 0,
            sampled: now,
            busy: Nanos(0),
            floor: options().floor,
        }
    }

    /// Bytes a second that may move.
    pub fn rate(&self) -> Bytes {
        self.flow.rate().max(self.floor)
    }

    /// What a read of a user waits for the idle slow device, as far as that is known.
    pub fn unloaded(&self) -> Option<Nanos> {
        self.flow.unloaded()
    }

    /// At `now`: what users waited for the two devices, and what has moved.
    pub fn sample(&mut self, now: Instant, slow: &SlowDevice, fast: Waited, moved: u64) {
        let waits = |new: Waited, old: Waited| {
            let requests = new.requests - old.requests;
            Waits {
                requests,
                wait: Nanos((new.nanos - old.nanos) / requests.max(1)),
            }
        };
        let (slow_reads, slow_written) = (slow.reads(), slow.written());
        let mut reads = waits(slow_reads, self.reads);
        let writes = waits(slow_written, self.written);
        let on_fast = waits(fast, self.fast);
        if reads.requests + writes.requests == 0 && slow.busy_for(FlowOptions::SAMPLE) {
            // Requests were there and none was answered: that counts as one wait of the whole sample.
            reads = Waits {
                requests: 1,
                wait: FlowOptions::SAMPLE,
            };
        }
        let rate = self.flow.sample(&Sample {
            requests: reads.requests,
            wait: reads.wait,
            writes: writes.requests,
            write_wait: writes.wait,
            moved: Bytes(moved - self.moved),
        });
        let (busy, over) = (slow.foreground_busy(), now.since(self.sampled));
        let idle = 1.0 - busy.saturating_sub(self.busy).secs_f64() / over.secs_f64();
        self.floor = match idle >= IDLE_PART {
            true => FLOOR,
            false => options().floor,
        };
        (self.busy, self.sampled) = (busy, now);
        self.tokens.set_rate(now, rate.max(self.floor));
        self.either.sample(on_fast, reads);
        (self.reads, self.written) = (slow_reads, slow_written);
        (self.fast, self.moved) = (fast, moved);
    }
}
