//! Which copy of a block is read, and on which disks do new copies go?
//!
//! ```text
//! disk's node:  enqueue, complete -> DiskQueue -> State (cost', h', last client, ...)
//!                                                   | multicast, or on a reply
//! client:  sent, answered, failed, heard -> ReplicaPolicy --read---> one of the copies
//!                                                         --place--> k disks in k failure domains
//! ```
//!
//! Each disk of the cluster keeps the cost of its queue in a [`DiskQueue`] and reports it to the clients as a
//! [`State`]. Each client (the engine of virtual disks on one node) asks a [`ReplicaPolicy`]: the published
//! queue cost, the stronger policy that contains it, or what others do ([`Kind`]).
//!
//! Costs are device time in [`Nanos`]; lengths are [`Bytes`]; weights are picoseconds per byte ([`PerByte`])
//! and thousandths ([`Permille`]), so the published sums are exact in whole numbers.
//!
//! Pure: no clock, device or task; chance comes from a seed. The engine carries the decisions out; experiments
//! run this same code in virtual time. Which copies may be read at all is the engine's business: it lists only
//! those.
//!
//! Source: COST 3 (method), 4.1 (which decision where).
//!
//! Always true:
//! 1. The same calls with the same seed give the same answers.
//! 2. A read goes to one of the copies listed; new copies go to disks with room, each in a domain of its own.
//! 3. Memory is bounded: disks known, requests under way and requests queued have limits.

mod c3;
mod chance;
mod disks;
mod kind;
mod local_first;
mod md_raid1;
mod measure;
mod options;
mod outstanding;
mod queue;
mod queue_cost;
mod queued_amount;
mod spread;
mod suspicion;
mod tanada;
mod term;
#[cfg(test)]
mod tests;
mod turns;
mod view;

use crate::rate::BytesPerSec;
use std::fmt;

use base::{Bytes, Instant, Nanos};

pub use c3::C3;
pub use kind::{Kind, Options, UnknownKind, build};
pub use local_first::LocalFirst;
pub use md_raid1::MdRaid1;
pub use options::{HedgeDisks, HedgeOptions, PowerOfChoices, TanadaOptions, Waits, YieldOptions};
pub use outstanding::LeastOutstanding;
pub use queue::{DiskQueue, QueueFull, QueueOptions};
pub use queue_cost::{Oracle, QueueCost};
pub use queued_amount::QueuedAmount;
pub use suspicion::EjectOptions;
pub use tanada::Tanada;
pub use term::{Penalties, PerByte, Permille, Tail, Weights, term};
pub use turns::{Random, RoundRobin};

/// A disk of the cluster: one store with one queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiskId(pub u32);

impl fmt::Display for DiskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "disk {}", self.0)
    }
}

/// What fails together: a node, a rack, a room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DomainId(pub u32);

/// Whose request it is: one user of one volume or export, the same on all nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// The engine's own name for one request to one disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// How much a client matters, set per volume and export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Class {
    /// Less than others.
    Low,
    /// As others.
    #[default]
    Normal,
    /// Preferred.
    High,
}

impl Class {
    /// All, lowest first.
    pub const ALL: [Class; 3] = [Class::Low, Class::Normal, Class::High];

    /// For reports.
    pub const fn name(self) -> &'static str {
        match self {
            Class::Low => "low",
            Class::Normal => "normal",
            Class::High => "high",
        }
    }
}

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// Which client.
    pub client: ClientId,
    /// Its class.
    pub class: Class,
}

/// Read or write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// One copy answers.
    Read,
    /// Goes to every copy.
    Write,
}

/// A place on a disk: a byte of an object. A caller that knows places on the whole disk calls it object 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct At {
    /// Which object; what lies in different ones is far apart.
    pub object: u64,
    /// Bytes from its beginning.
    pub byte: u64,
}

impl At {
    /// The place `len` further on.
    pub const fn after(self, len: Bytes) -> At {
        At {
            object: self.object,
            byte: self.byte.saturating_add(len.0),
        }
    }

    /// Bytes between two places; the most there can be between two objects.
    pub const fn distance(self, other: At) -> u64 {
        if self.object != other.object {
            return u64::MAX;
        }
        self.byte.abs_diff(other.byte)
    }
}

/// One request, as all its copies have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Who asks.
    pub origin: Origin,
    /// Read or write.
    pub op: Op,
    /// Its length.
    pub bytes: Bytes,
    /// Does it follow on its client's last one? Looked at only where places are not known.
    pub sequential: bool,
    /// How other clients before it in a queue count, as its volume or export has it.
    pub penalties: Penalties,
}

/// A disk that has a copy, or could.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Which.
    pub disk: DiskId,
    /// Is it in the asking node?
    pub local: bool,
    /// Does it have heads to move?
    pub rotating: bool,
    /// Where on it the request begins, if the engine knows.
    pub at: Option<At>,
}

/// A disk that new copies may go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// The disk.
    pub candidate: Candidate,
    /// What it fails together with.
    pub domain: DomainId,
    /// Room left.
    pub free: Bytes,
    /// All its room.
    pub capacity: Bytes,
    /// The part of its time that is promised to reservations.
    pub reserved: Permille,
}

/// A disk's load report: the state of its queue.
///
/// The published method needs `cost`, `tail` and, where q is not 1, who was last.
///
/// Source: COST 3.2 (cost' and h' are multicast periodically).
///
/// Choice: the paper's q needs the last client and its class, which it does not say to send; they are part of `tail`.
/// `work` and all below it are ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// When it was so, by the *hearer's* clock: when it came in, less the hop.
    pub at: Instant,
    /// cost': the sum of the terms of all queued requests.
    pub cost: Nanos,
    /// h': where the last queued request ends, and whose it is.
    pub tail: Tail,
    /// What one request costs there.
    pub weights: Weights,
    /// Device time until the queue is empty: `cost` with q = 1, less what is done of the first request.
    pub work: Nanos,
    /// `work`, averaged over about a second.
    pub work_mean: Nanos,
    /// The part of that second it was busy.
    pub utilisation: Permille,
    /// Length of all queued requests.
    pub queued: Bytes,
    /// Their number.
    pub requests: u32,
    /// The highest class among those queued.
    pub foremost: Option<Class>,
    /// The mean length of those of normal or higher class that are queued; zero if there are none.
    pub mean: Bytes,
    /// How much of its time is promised to reservations.
    pub promised: Promised,
    /// Bytes per second of reads that are promised to the hearer itself, now. No policy looks at it: where it is not zero,
    /// the hearer may ask this disk before others.
    pub booked: BytesPerSec,
}

/// How much of a disk's time is promised to reservations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Promised {
    /// Now.
    pub now: Permille,
    /// At most, in the hour to come.
    pub hour: Permille,
}

impl State {
    /// An idle disk about which nothing is known but what requests should cost.
    pub fn idle(weights: Weights) -> State {
        State {
            at: Instant(0),
            cost: Nanos(0),
            tail: Tail::start(At::default()),
            weights,
            work: Nanos(0),
            work_mean: Nanos(0),
            utilisation: Permille(0),
            queued: Bytes(0),
            requests: 0,
            foremost: None,
            mean: Bytes(0),
            promised: Promised::default(),
            booked: BytesPerSec(0),
        }
    }

    /// The same with nothing in it so large that sums would overflow: states come over a wire.
    pub fn bounded(self) -> State {
        State {
            cost: self.cost.min(term::LONGEST),
            weights: self.weights.bounded(),
            work: self.work.min(term::LONGEST),
            work_mean: self.work_mean.min(term::LONGEST),
            utilisation: self.utilisation.min(Permille::WHOLE),
            promised: Promised {
                now: self.promised.now.min(Permille::WHOLE),
                hour: self.promised.hour.min(Permille::WHOLE),
            },
            ..self
        }
    }
}

/// A request that was just sent to a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// The engine's name for it; unlike those of all others under way to the same disk.
    pub ticket: Ticket,
    /// Where to.
    pub candidate: Candidate,
    /// What.
    pub request: Request,
    /// Is it the second of a hedged read?
    pub hedge: bool,
}

/// What came back with an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply {
    /// From its arrival at the disk's node to its answer there.
    pub residence: Nanos,
    /// The device time of it.
    pub service: Nanos,
    /// The disk's state when it answered, if the node sent it along.
    pub state: Option<State>,
}

/// Why no disks were found for new copies.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceError {
    /// Nothing was asked.
    #[error("cannot place 0 copies; ask for at least 1")]
    NoCopies,
    /// Too few domains have room.
    #[error(
        "cannot place {copies} copies of {bytes}: of {domains} failure domains {with_room} have a disk with so \
         much room; add a disk in another domain, free some space or ask for fewer copies"
    )]
    TooFewDomains {
        /// Copies asked for.
        copies: usize,
        /// Length of each.
        bytes: Bytes,
        /// Domains there are.
        domains: usize,
        /// Those with room.
        with_room: usize,
    },
}

/// Decides which disk a client asks.
///
/// One instance serves the requests of one node. The engine reports every request it sends, also writes
/// and reads that had no choice, and what became of it. Time never runs backwards from call to call.
///
/// No answer depends on a state for correctness: any listed copy may be read.
pub trait ReplicaPolicy {
    /// Which of the copies a read goes to.
    ///
    /// # Panics
    /// If `copies` is empty.
    fn read(&mut self, now: Instant, request: &Request, copies: &[Candidate]) -> DiskId;

    /// The disks for `copies` copies of a new allocation, written by `request`; distinct domains, cheapest first.
    ///
    /// An overwrite is not asked about: it goes to its copies.
    ///
    /// # Errors
    /// [`PlaceError`] if fewer domains have room.
    fn place(
        &mut self,
        now: Instant,
        request: &Request,
        copies: usize,
        disks: &[Target],
    ) -> Result<Vec<DiskId>, PlaceError>;

    /// A request went out.
    fn sent(&mut self, _now: Instant, _sent: &Sent) {}

    /// It was answered.
    fn answered(&mut self, _now: Instant, _disk: DiskId, _ticket: Ticket, _reply: &Reply) {}

    /// It will not be: an error, a broken connection, or cancelled (`fault` is false then).
    fn failed(&mut self, _now: Instant, _disk: DiskId, _ticket: Ticket, _fault: bool) {}

    /// A state came by multicast.
    fn heard(&mut self, _now: Instant, _disk: DiskId, _state: &State) {}

    /// When to ask [`hedge`](Self::hedge) about a read that is under way; `None`: never.
    fn hedge_at(&self, _disk: DiskId, _ticket: Ticket) -> Option<Instant> {
        None
    }

    /// The disk that gets the same read as well, now that it is late. The engine takes the first answer and cancels
    /// the other.
    fn hedge(
        &mut self,
        _now: Instant,
        _disk: DiskId,
        _ticket: Ticket,
        _copies: &[Candidate],
    ) -> Option<DiskId> {
        None
    }

    /// Disks that are avoided now because they are slower than they should be, ascending.
    fn ejected(&self, _now: Instant) -> Vec<DiskId> {
        Vec::new()
    }

    /// Must [`heard`](Self::heard) be given every disk's present state, with requests still on their way to it counted,
    /// before each decision? Only a simulation can.
    fn needs_exact_states(&self) -> bool {
        false
    }
}
