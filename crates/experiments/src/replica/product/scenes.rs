//! What is run on the product bed: who asks, which method chooses, and which of it is held out.
//!
//! ```text
//! tuned cells: seeds 1 to 10, what the other beds have, and twice what was held out before something was changed
//! held out:    seeds 301 to 310, other lengths, numbers and stalls
//! ```
//!
//! Source: COST 4.3 (large beside small readers), 4.4 (a preferred client among others). Stalls and fairness are ours.

use base::{Bytes, Nanos};
use policy::place::{Class, Kind, Penalties, TanadaOptions};
use policy::share::Kind as Scheduler;

use super::super::common::loads::{Load, Pace};
use super::super::common::metric::{Metric, What};
use super::disk::Stalls;

/// Who chooses, and which request is next at a store.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ProductMethod {
    pub name: &'static str,
    pub kind: Kind,
    pub tanada: TanadaOptions,
    pub scheduler: Scheduler,
}

impl ProductMethod {
    fn of(kind: Kind) -> ProductMethod {
        ProductMethod {
            name: kind.name(),
            kind,
            tanada: TanadaOptions::default(),
            scheduler: Scheduler::Tags,
        }
    }

    /// The same where stores serve in the order requests come, as the paper's disks do.
    fn fifo(name: &'static str, kind: Kind) -> ProductMethod {
        ProductMethod {
            name,
            scheduler: Scheduler::Fifo,
            ..ProductMethod::of(kind)
        }
    }
}

/// All that `[cluster] replica_choice` offers but chance, the greedy choice by exact states, and three of them at stores
/// that serve in the order requests come: the paper's system, ours and the greedy one.
pub(super) fn methods() -> Vec<ProductMethod> {
    let offered = Kind::ALL.into_iter().filter(|it| *it != Kind::Random);
    let mut all: Vec<ProductMethod> = offered.map(ProductMethod::of).collect();
    all.extend([
        ProductMethod::fifo("queue-cost-fifo", Kind::QueueCost),
        ProductMethod::fifo("tanada-fifo", Kind::Tanada),
        ProductMethod::fifo("oracle-fifo", Kind::Oracle),
    ]);
    all
}

/// Clients over four nodes with a disk each.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ProductScene {
    pub rotating: bool,
    pub stalls: Option<Stalls>,
    pub loads: Vec<Load>,
}

/// What a cell is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Topic {
    Mix,
    Preferred,
    Stalls,
    Fair,
}

impl Topic {
    pub fn table(self) -> &'static str {
        match self {
            Topic::Mix => "product-mix",
            Topic::Preferred => "product-preferred",
            Topic::Stalls => "product-stalls",
            Topic::Fair => "product-fair",
        }
    }
}

/// A case at one age of states, without its method.
#[derive(Debug, Clone)]
pub(super) struct ProductCase {
    pub topic: Topic,
    /// As in the rows.
    pub name: String,
    pub scene: ProductScene,
    pub age: Nanos,
    pub held_out: bool,
    pub metrics: Vec<Metric>,
}

/// T of the claims and one that is fresh.
const AGES: [Nanos; 2] = [Nanos::millis(5), Nanos::millis(100)];

/// Every case. What is held out was written down in experiments/replica/README.md before it was run.
pub(super) fn cases() -> Vec<ProductCase> {
    let mut all = Vec::new();
    for age in AGES {
        all.extend([mix(2, 2, age), mix(3, 1, age), preferred(age), fair(age)]);
        all.extend([other_mix(age), other_preferred(age), other_fair(age)]);
        all.extend([third_mix(age), third_preferred(age), third_fair(age)]);
        all.extend([
            held_out_mix(age),
            held_out_preferred(age),
            held_out_fair(age),
        ]);
    }
    for age in AGES {
        all.extend([stalls(age), other_stalls(age)]);
        all.extend([third_stalls(age), held_out_stalls(age)]);
    }
    all
}

fn aged(name: &str, age: Nanos) -> String {
    format!("{name} state-age={}ms", age.0 / 1_000_000)
}

fn on_disks(loads: Vec<Load>) -> ProductScene {
    ProductScene {
        rotating: true,
        stalls: None,
        loads,
    }
}

/// Large and small random readers, one a node.
fn mixed(
    (name, age, held_out): (&str, Nanos, bool),
    larges: &[Load],
    smalls: &[Load],
) -> ProductCase {
    let large: Vec<usize> = (0..larges.len()).collect();
    let small: Vec<usize> = (larges.len()..larges.len() + smalls.len()).collect();
    ProductCase {
        topic: Topic::Mix,
        name: aged(name, age),
        scene: on_disks(larges.iter().chain(smalls).copied().collect()),
        age,
        held_out,
        metrics: vec![
            Metric::new("large_mb_s", What::Mean(large)),
            Metric::new("small_mb_s", What::Mean(small.clone())),
            Metric::new("small_p99_ms", What::P99(small)),
        ],
    }
}

fn readers(nodes: std::ops::Range<usize>, bytes: Bytes, depth: u32) -> Vec<Load> {
    let reader = |node: usize| Load::random(node % 4, bytes, Pace::Closed(depth));
    nodes.map(reader).collect()
}

fn mix(large: usize, small: usize, age: Nanos) -> ProductCase {
    let larges = readers(0..large, Bytes::mib(1), 4);
    let smalls = readers(large..large + small, Bytes::kib(4), 4);
    let name = format!("mix {large}:{small}");
    mixed((&name, age, false), &larges, &smalls)
}

/// Large ones of 512 KiB, small ones of 16 KiB, and more of these.
fn other_mix(age: Nanos) -> ProductCase {
    let larges = readers(0..2, Bytes::kib(512), 6);
    let smalls = readers(2..5, Bytes::kib(16), 3);
    mixed(("other mix 2:3", age, false), &larges, &smalls)
}

/// One large one of 2 MiB with few under way, and three small ones of 8 KiB with many.
fn third_mix(age: Nanos) -> ProductCase {
    let larges = readers(0..1, Bytes::mib(2), 2);
    let smalls = readers(1..4, Bytes::kib(8), 5);
    mixed(("third mix 1:3", age, false), &larges, &smalls)
}

/// Large ones of 256 KiB and as many small ones, all with eight under way.
fn held_out_mix(age: Nanos) -> ProductCase {
    let larges = readers(0..2, Bytes::kib(256), 8);
    let smalls = readers(2..4, Bytes::kib(4), 8);
    mixed(("held-out mix 2:2", age, true), &larges, &smalls)
}

/// Sequential readers, the first of which is preferred.
fn sequential(
    (name, age, held_out): (&str, Nanos, bool),
    count: usize,
    (bytes, depth): (Bytes, u32),
) -> ProductCase {
    let load = |client: usize| Load {
        bytes,
        pace: Pace::Closed(depth),
        class: match client {
            0 => Class::High,
            _ => Class::Normal,
        },
        ..Load::sequential(client % 4)
    };
    ProductCase {
        topic: Topic::Preferred,
        name: aged(name, age),
        scene: on_disks((0..count).map(load).collect()),
        age,
        held_out,
        metrics: vec![
            Metric::new("preferred_mb_s", What::Sum(vec![0])),
            Metric::new("total_mb_s", What::Sum((0..count).collect())),
        ],
    }
}

fn preferred(age: Nanos) -> ProductCase {
    let reads = (Bytes::kib(256), 2);
    sequential(("preferred n=8", age, false), 8, reads)
}

/// Reads half as long and twice as many under way.
fn other_preferred(age: Nanos) -> ProductCase {
    let reads = (Bytes::kib(128), 4);
    sequential(("other preferred n=8", age, false), 8, reads)
}

/// Short reads, many under way.
fn third_preferred(age: Nanos) -> ProductCase {
    let reads = (Bytes::kib(64), 8);
    sequential(("third preferred n=8", age, false), 8, reads)
}

/// Long reads, three under way.
fn held_out_preferred(age: Nanos) -> ProductCase {
    let reads = (Bytes::kib(512), 3);
    sequential(("held-out preferred n=8", age, true), 8, reads)
}

/// Sequential readers of one class, some of which have more requests under way.
fn uneven(
    (name, age, held_out): (&str, Nanos, bool),
    depths: &[u32],
    penalties: Penalties,
) -> ProductCase {
    let load = |(client, depth): (usize, &u32)| Load {
        pace: Pace::Closed(*depth),
        penalties,
        ..Load::sequential(client % 4)
    };
    ProductCase {
        topic: Topic::Fair,
        name: aged(name, age),
        scene: on_disks(depths.iter().enumerate().map(load).collect()),
        age,
        held_out,
        metrics: vec![
            Metric::new("fairness", What::Jain),
            Metric::new("total_mb_s", What::Sum((0..depths.len()).collect())),
        ],
    }
}

fn fair(age: Nanos) -> ProductCase {
    let depths = [8, 8, 8, 2, 2, 2];
    uneven(("fair n=6 q=4", age, false), &depths, Penalties::fair())
}

fn other_fair(age: Nanos) -> ProductCase {
    let depths = [6, 6, 3, 1, 1];
    let penalties = Penalties::fair();
    uneven(("other fair n=5 q=4", age, false), &depths, penalties)
}

fn third_fair(age: Nanos) -> ProductCase {
    let depths = [10, 4, 4, 2, 2, 1, 1];
    let penalties = Penalties::fair();
    uneven(("third fair n=7 q=4", age, false), &depths, penalties)
}

fn held_out_fair(age: Nanos) -> ProductCase {
    let depths = [12, 12, 2, 2, 1, 1];
    let penalties = Penalties::fair();
    uneven(("held-out fair n=6 q=4", age, true), &depths, penalties)
}

/// SSDs that stall; small random reads in an open loop.
fn stalling(
    (name, age, held_out): (&str, Nanos, bool),
    stalls: Stalls,
    (bytes, rate): (Bytes, f64),
) -> ProductCase {
    let load = |client| Load::random(client, bytes, Pace::Open(rate));
    let all: Vec<usize> = (0..4).collect();
    ProductCase {
        topic: Topic::Stalls,
        name: aged(name, age),
        scene: ProductScene {
            rotating: false,
            stalls: Some(stalls),
            loads: (0..4).map(load).collect(),
        },
        age,
        held_out,
        metrics: vec![
            Metric::new("small_mean_ms", What::Wait(all.clone())),
            Metric::new("small_p99_ms", What::P99(all)),
            Metric::new("hedged_percent", What::Hedged),
        ],
    }
}

fn stalls(age: Nanos) -> ProductCase {
    let stalls = Stalls {
        chance: 0.002,
        span: Nanos::millis(300),
    };
    stalling(("stalls ssd", age, false), stalls, (Bytes::kib(4), 200.0))
}

/// Shorter stalls that come more often, and longer reads at a higher rate.
fn other_stalls(age: Nanos) -> ProductCase {
    let stalls = Stalls {
        chance: 0.005,
        span: Nanos::millis(80),
    };
    let reads = (Bytes::kib(8), 300.0);
    stalling(("other stalls ssd", age, false), stalls, reads)
}

/// Stalls between these, and longer reads.
fn third_stalls(age: Nanos) -> ProductCase {
    let stalls = Stalls {
        chance: 0.003,
        span: Nanos::millis(150),
    };
    let reads = (Bytes::kib(16), 250.0);
    stalling(("third stalls ssd", age, false), stalls, reads)
}

/// Rare and long ones, at a lower rate.
fn held_out_stalls(age: Nanos) -> ProductCase {
    let stalls = Stalls {
        chance: 0.001,
        span: Nanos::millis(600),
    };
    let reads = (Bytes::kib(4), 150.0);
    stalling(("held-out stalls ssd", age, true), stalls, reads)
}
