//! Who asks, how, and what came of it: the same on all beds.

use base::{Bytes, Nanos};
use hdrhistogram::Histogram;
use policy::place::{Class, Penalties};

/// An image is cut into these.
pub const EXTENT: Bytes = Bytes::mib(4);
/// One way between two nodes.
pub const HOP: Nanos = Nanos::micros(50);
/// Bytes on their way, ps each.
pub const PASSING_PS: u64 = 800;
/// How a client asks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// So many requests always under way.
    Closed(u32),
    /// So many a second, at moments drawn by chance.
    Open(f64),
}

/// A client: one virtual machine with an image of its own.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    pub node: usize,
    pub sequential: bool,
    pub bytes: Bytes,
    pub pace: Pace,
    pub class: Class,
    pub penalties: Penalties,
}

impl Load {
    /// Random reads.
    pub fn random(node: usize, bytes: Bytes, pace: Pace) -> Load {
        Load {
            node,
            sequential: false,
            bytes,
            pace,
            class: Class::Normal,
            penalties: Penalties::default(),
        }
    }

    /// Reads of 256 KiB one behind the other, two at a time.
    pub fn sequential(node: usize) -> Load {
        Load {
            sequential: true,
            ..Load::random(node, Bytes::kib(256), Pace::Closed(2))
        }
    }
}

/// What a client got while it was measured.
#[derive(Debug, Clone)]
pub struct Got {
    pub bytes: u64,
    /// Microseconds from asking to having.
    pub waits: Histogram<u64>,
}

/// What came out of a run.
#[derive(Debug, Clone)]
pub struct Outcome {
    pub clients: Vec<Got>,
    pub seconds: f64,
    /// Second copies asked, of all reads.
    pub hedged: f64,
}

impl Outcome {
    /// MB/s of a client.
    pub fn mb_s(&self, client: usize) -> f64 {
        self.clients[client].bytes as f64 / 1e6 / self.seconds
    }

    /// MB/s of these clients together.
    pub fn sum_mb_s(&self, clients: impl IntoIterator<Item = usize>) -> f64 {
        clients.into_iter().map(|client| self.mb_s(client)).sum()
    }

    /// Waits of these clients together.
    pub fn waits(&self, clients: impl IntoIterator<Item = usize>) -> Histogram<u64> {
        let mut all = histogram();
        for client in clients {
            all.add(&self.clients[client].waits)
                .expect("both are of one form");
        }
        all
    }
}

pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 600_000_000, 3).expect("the bounds are in order")
}
