//! What is measured: which servers, over what, under which load, and what is to be reached.

use super::results::{Metric, Spread};

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Group {
    File,
    Memory,
    Hit,
}

impl Group {
    pub(super) fn name(self) -> &'static str {
        match self {
            Group::File => "file",
            Group::Memory => "memory",
            Group::Hit => "hit",
        }
    }

    pub(super) fn methods(self) -> &'static [Method] {
        match self {
            Group::File => &[Method::Tanada, Method::Qemu, Method::Nbdkit, Method::Bare],
            Group::Memory => &[Method::Tanada, Method::Nbdkit],
            Group::Hit => &[Method::Tanada, Method::Plain],
        }
    }

    /// Whom the aims compare with.
    pub(super) fn peer(self) -> Method {
        match self {
            Group::File => Method::Qemu,
            Group::Memory => Method::Nbdkit,
            Group::Hit => Method::Plain,
        }
    }

    pub(super) fn cases(self) -> &'static [Case] {
        match self {
            Group::File | Group::Memory => &CASES,
            Group::Hit => &HITS,
        }
    }

    /// What is to be reached in `case`, compared within each round.
    pub(super) fn aims(self, case: Case) -> Vec<Aim> {
        let peer = self.peer();
        let iops = |of, least| Aim::at_least(of, Metric::Iops, least);
        let cpu = |most| Aim::at_most(peer, Metric::CpuUsPerIo, most);
        match (self, case.name) {
            (Group::File, "4k-randread-qd32" | "4k-randwrite-qd32") => {
                vec![iops(peer, 1.15), cpu(0.5), iops(Method::Bare, 0.9)]
            }
            (Group::File, "1m-read-qd4" | "1m-read-qd16") => vec![iops(Method::Bare, 0.95)],
            (Group::Memory, "4k-randread-qd32" | "4k-randwrite-qd32") => {
                vec![iops(peer, 1.3), cpu(0.5)]
            }
            // Two threads that meet by chance are fast in one round and slow in the next: each round counts.
            (Group::Memory, "4k-randread-qd1") => {
                vec![iops(peer, 1.5), iops(peer, 1.0).in_every_round()]
            }
            (Group::Hit, _) => vec![cpu(1.3)],
            _ => Vec::new(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    Tanada,
    Qemu,
    Nbdkit,
    Bare,
    /// Tanada over the cache's fast device alone.
    Plain,
}

impl Method {
    pub(super) fn name(self) -> &'static str {
        match self {
            Method::Tanada => "tanada",
            Method::Qemu => "qemu-storage-daemon",
            Method::Nbdkit => "nbdkit",
            Method::Bare => "bare-io_uring",
            Method::Plain => "device-alone",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) rw: &'static str,
    pub(super) block: &'static str,
    pub(super) depth: u32,
}

/// Something to reach: a ratio of Tanada's figure to another's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Aim {
    pub(super) of: Method,
    pub(super) metric: Metric,
    pub(super) bound: f64,
    /// Is less better?
    pub(super) at_most: bool,
    /// Must the worst round reach it, and not only the median?
    pub(super) in_every_round: bool,
}

impl Aim {
    fn at_least(of: Method, metric: Metric, bound: f64) -> Aim {
        Aim {
            of,
            metric,
            bound,
            at_most: false,
            in_every_round: false,
        }
    }

    fn at_most(of: Method, metric: Metric, bound: f64) -> Aim {
        Aim {
            at_most: true,
            ..Aim::at_least(of, metric, bound)
        }
    }

    fn in_every_round(self) -> Aim {
        Aim {
            in_every_round: true,
            ..self
        }
    }

    pub(super) fn is_reached(self, by: Spread) -> bool {
        match (self.at_most, self.in_every_round) {
            (false, false) => by.median >= self.bound,
            (false, true) => by.low >= self.bound,
            (true, false) => by.median <= self.bound,
            (true, true) => by.high <= self.bound,
        }
    }

    pub(super) fn what(self) -> String {
        let metric = match self.metric {
            Metric::Iops | Metric::MbPerS => "IOPS",
            Metric::CpuUsPerIo => "server CPU",
        };
        let when = if self.in_every_round {
            ", in every round"
        } else {
            ""
        };
        format!("{metric} over {}{when}", self.of.name())
    }
}

/// Hits of a warm cache.
const HITS: [Case; 2] = [
    case("1m-hit-qd1", "randread", "1m", 1),
    case("1m-hit-qd16", "randread", "1m", 16),
];

const CASES: [Case; 7] = [
    case("4k-randread-qd1", "randread", "4k", 1),
    case("4k-randread-qd32", "randread", "4k", 32),
    case("4k-randwrite-qd1", "randwrite", "4k", 1),
    case("4k-randwrite-qd32", "randwrite", "4k", 32),
    case("1m-read-qd4", "read", "1m", 4),
    case("1m-read-qd16", "read", "1m", 16),
    case("1m-write-qd4", "write", "1m", 4),
];

const fn case(name: &'static str, rw: &'static str, block: &'static str, depth: u32) -> Case {
    Case {
        name,
        rw,
        block,
        depth,
    }
}
