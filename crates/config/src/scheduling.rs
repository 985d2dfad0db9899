//! How the queue of a device is run: `scheduler`, and of it `round`, `quantum` and `depth`; of a hybrid's slow device
//! too, where it has one (`queue = true`).
//!
//! ```text
//! scheduler -> which keys it has -> each within its bounds -> the options of a queue
//! ```
//!
//! Always true of a `Scheduling`:
//! 1. It has only what its scheduler goes by: a round with `rounds` and `rounds-join`, a quantum with `tags`.
//!
//! Source: PROBS 3.3 (rounds of SROUND I/Os of one allocation unit, one at the device).

use base::Bytes;
use policy::share::{DepthOptions, Kind};
use store::qos::queue::QueueOptions;

use super::keys::{At, Keys};
use super::store::{Assumed, read_assumed};

/// I/Os in a round at most: of the longest unit 64 GiB.
pub const ROUND_MAX: u64 = 4096;
/// The shortest and the longest quantum: below, fixed costs eat the device; above, no piece is longer anyway.
pub const QUANTUM: [Bytes; 2] = [Bytes::kib(16), Bytes::mib(4)];
/// Pieces or requests at the device at most.
pub const DEPTH_MAX: u32 = 64;

/// How a queue is run; what is `None` is as the scheduler has it by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Scheduling {
    /// Who is next.
    pub kind: Kind,
    /// I/Os in a round, each of one unit of the store (SROUND).
    pub round: Option<u64>,
    /// What requests are cut into.
    pub quantum: Option<Bytes>,
    /// Pieces or requests at the device at once.
    pub depth: Option<u32>,
}

impl Scheduling {
    /// What is said goes into the options of a queue; an I/O of a round has `unit`.
    pub fn put_into(self, unit: Bytes, queue: &mut QueueOptions) {
        queue.kind = self.kind;
        let share = &mut queue.share;
        if matches!(self.kind, Kind::Rounds | Kind::RoundsJoin) {
            share.rounds.unit = unit;
        }
        share.rounds.round_ios = self.round.unwrap_or(share.rounds.round_ios);
        if let Some(quantum) = self.quantum {
            share.tags.quantum = quantum;
            share.tags.piece_min = share.tags.piece_min.min(quantum);
        }
        if let Some(depth) = self.depth {
            share.fifo_depth = depth;
            share.rounds.depth = depth;
            share.tags.depth = DepthOptions::fixed(depth);
        }
    }
}

/// The queue before the slow device of a hybrid.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct HybridQueue {
    /// How it is run.
    pub scheduling: Scheduling,
    /// What the slow device is assumed to do.
    pub assumed: Assumed,
}

/// What has a meaning only where there is a queue.
const OF_QUEUE: [&str; 6] = [
    "scheduler",
    "round",
    "quantum",
    "depth",
    "read_speed",
    "write_speed",
];

/// Reads `queue` of a hybrid and what belongs to it. `sleeps`: its slow device may be asleep.
pub(super) fn read_queue(keys: &mut Keys<'_, '_>, sleeps: bool) -> Option<HybridQueue> {
    let queue = keys.take::<bool>("queue");
    let there: Vec<&str> = OF_QUEUE.into_iter().filter(|key| keys.has(key)).collect();
    let scheduling = read_scheduling(keys);
    let assumed = read_assumed(keys);
    let At { at, .. } = match queue.filter(|it| it.value) {
        Some(queue) => queue,
        None => {
            for key in there {
                let what = "says how the queue before the slow device is run, and there is none; add queue = true, or take \
                            it out";
                keys.complain(key, what);
            }
            return None;
        }
    };
    if sleeps {
        let what = "with energy = true the slow device may be asleep, and what sleeps keeps no promise; take one of the two \
                    out";
        keys.complain_at(at, "queue", what);
    }
    Some(HybridQueue {
        scheduling,
        assumed,
    })
}

/// Reads the keys of a queue.
pub(super) fn read_scheduling(keys: &mut Keys<'_, '_>) -> Scheduling {
    let kind = keys.parse_or("scheduler", Kind::default(), str::parse);
    let round = keys.take::<u64>("round");
    let quantum = keys.take::<Bytes>("quantum");
    let depth = read_depth(keys, kind);
    check_round(keys, kind, round);
    check_quantum(keys, kind, quantum);
    Scheduling {
        kind,
        round: round.map(|it| it.value),
        quantum: quantum.map(|it| it.value),
        depth,
    }
}

fn check_round(keys: &Keys<'_, '_>, kind: Kind, round: Option<At<u64>>) {
    let Some(At { value: round, at }) = round else {
        return;
    };
    if !matches!(kind, Kind::Rounds | Kind::RoundsJoin) {
        let what = format!(
            "the scheduler {kind} has no rounds; take it out, or write scheduler = \"rounds\" (as published) or \
             \"rounds-join\""
        );
        keys.complain_at(at, "round", what);
    } else if !(1..=ROUND_MAX).contains(&round) {
        let what = format!("a round has 1 to {ROUND_MAX} I/Os of one unit each; write such as 64");
        keys.complain_at(at, "round", what);
    }
}

fn check_quantum(keys: &Keys<'_, '_>, kind: Kind, quantum: Option<At<Bytes>>) {
    let Some(At { value: quantum, at }) = quantum else {
        return;
    };
    let [least, most] = QUANTUM;
    if kind != Kind::Tags {
        let what = format!(
            "the scheduler {kind} sends whole requests; take it out, or write scheduler = \"tags\", which cuts them in pieces"
        );
        keys.complain_at(at, "quantum", what);
    } else if !(quantum.0.is_power_of_two() && (least..=most).contains(&quantum)) {
        let what = format!("{quantum} is not a power of two from {least} to {most}");
        keys.complain_at(at, "quantum", what);
    }
}

/// A number, or nothing for `"auto"`, which `tags` alone knows.
fn read_depth(keys: &mut Keys<'_, '_>, kind: Kind) -> Option<u32> {
    #[derive(serde::Deserialize)]
    #[serde(
        untagged,
        expecting = "expected \"auto\" or a number from 1 to 64, such as 4"
    )]
    enum Depth {
        Number(u32),
        Text(String),
    }
    let At { value, at } = keys.take::<Depth>("depth")?;
    let what = match value {
        Depth::Number(depth) if (1..=DEPTH_MAX).contains(&depth) => return Some(depth),
        Depth::Number(depth) => format!("{depth} is not from 1 to {DEPTH_MAX}"),
        Depth::Text(text) if text != "auto" => {
            format!("'{text}' is no depth; write \"auto\" or a number from 1 to {DEPTH_MAX}")
        }
        Depth::Text(_) if kind == Kind::Tags => return None,
        Depth::Text(_) => format!(
            "the scheduler {kind} does not look for a depth by itself; write a number from 1 to {DEPTH_MAX} (1 is what was \
             published), or scheduler = \"tags\""
        ),
    };
    keys.complain_at(at, "depth", what);
    None
}
