//! What is run: which clients on which disks, who chooses, and what is measured.
//!
//! Source: COST 4.3 (four readers of 1 MB or 4 KB in every split: figures 4 and 5), 4.4 (sequential readers, one of them
//! preferred: figure 6). Disks that differ, stalls, load and fairness are ours.

use base::{Bytes, Nanos};
use policy::place::{Class, Kind, Penalties};

use super::bed::{Disk, Method, Scene};
use super::common::loads::{Load, Pace};
use super::common::metric::{Metric, What};
use super::message_cost;

/// How old states may be: T.
pub(super) const AGES: [Nanos; 5] = [
    Nanos::millis(1),
    Nanos::millis(5),
    Nanos::millis(20),
    Nanos::millis(100),
    Nanos::millis(500),
];
/// Readers of 1 MiB and of 4 KiB.
pub(super) const SPLITS: [(usize, usize); 3] = [(1, 3), (2, 2), (3, 1)];
/// Sequential readers.
pub(super) const READERS: [usize; 5] = [1, 2, 4, 6, 8];
/// Parts of what four disks can do.
pub(super) const LOADS: [f64; 4] = [0.3, 0.5, 0.7, 0.9];
/// Random reads of 64 KiB a second that one disk serves, one at a time: 7.2 ms each within the few GiB that the images take.
const PER_DISK: f64 = 138.0;
/// The same of 4 KiB.
const PER_DISK_SMALL: f64 = 155.0;

/// A group of cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    /// Large and small random reads.
    Mix,
    /// Sequential readers, one preferred.
    Preferred,
    /// Disks that are not alike.
    Uneven,
    /// SSDs that stall.
    Stalls,
    /// Open loop.
    Load,
    /// Bandwidth fairness.
    Fair,
    /// Ours with one part off.
    Parts,
    /// The preferred cells where messages cost something.
    Messages,
}

impl Family {
    /// The table its rows are in.
    pub fn name(self) -> &'static str {
        match self {
            Family::Mix => "mix",
            Family::Preferred => "preferred",
            Family::Uneven => "uneven",
            Family::Stalls => "stalls",
            Family::Load => "load",
            Family::Fair => "fair",
            Family::Parts => "parts",
            Family::Messages => "messages",
        }
    }
}

/// One method in one case.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Cell {
    pub family: Family,
    /// As in the rows.
    pub case: String,
    pub scene: Scene,
    pub age: Nanos,
    pub method: Method,
    pub metrics: Vec<Metric>,
}

impl Cell {
    /// Would a run of the one be a run of the other?
    pub fn same_run(&self, other: &Cell) -> bool {
        self.method == other.method
            && self.scene == other.scene
            && (self.age == other.age || !self.method.listens())
    }
}

/// Every cell of the experiment.
pub(super) fn all() -> Vec<Cell> {
    let mut cells = Vec::new();
    for age in AGES {
        for (large, small) in SPLITS {
            cells.extend(cells_of(mix(large, small), age, &with_stack()));
        }
        for readers in READERS {
            cells.extend(cells_of(preferred(readers), age, &with_stack()));
        }
        cells.extend(cells_of(uneven(), age, &methods()));
    }
    for age in [Nanos::millis(5), Nanos::millis(100)] {
        for load in LOADS {
            cells.extend(cells_of(loaded(load), age, &with_stack()));
        }
        for penalty in [Penalties::default(), Penalties::fair()] {
            cells.extend(cells_of(fair(penalty), age, &with_stack()));
        }
        cells.extend(cells_of(stalls(), age, &with_stalls()));
    }
    let age = Nanos::millis(100);
    for mut draft in [preferred(8), mix(2, 2)] {
        draft.case = format!("parts of {}", draft.case);
        draft.family = Family::Parts;
        cells.extend(cells_of(draft, age, &parts()));
    }
    cells.extend(message_cost::cells());
    cells
}

/// A case without its methods.
pub(super) struct Draft {
    pub family: Family,
    pub case: String,
    pub scene: Scene,
    pub metrics: Vec<Metric>,
}

/// A case with each of these methods.
pub(super) fn cells_of(draft: Draft, age: Nanos, methods: &[Method]) -> Vec<Cell> {
    let case = format!("{} state-age={}ms", draft.case, age.0 / 1_000_000);
    let cell = |method: &Method| Cell {
        family: draft.family,
        case: case.clone(),
        scene: draft.scene.clone(),
        age,
        method: *method,
        metrics: draft.metrics.clone(),
    };
    methods.iter().map(cell).collect()
}

/// All policies as they come, ours in both ways.
pub(super) fn methods() -> Vec<Method> {
    let mut all = Kind::ALL.map(Method::of).to_vec();
    all.push(Method::product());
    all
}

/// Disks that are slow or stall beyond their model have no store's queue before them here.
fn with_stack() -> Vec<Method> {
    let mut all = methods();
    all.push(Method::stack());
    all
}

fn with_stalls() -> Vec<Method> {
    let mut all = methods();
    all.push(Method::ours("tanada-no-hedge", |it| it.hedge = None));
    all
}

/// Ours, and ours with one part off.
fn parts() -> Vec<Method> {
    vec![
        Method::of(Kind::Tanada),
        Method::ours("no-piggyback", |it| it.piggyback = false),
        Method::ours("no-own", |it| it.own = false),
        Method::ours("no-ageing", |it| it.ageing = None),
        Method::ours("no-presence", |it| it.presence = false),
        Method::ours("no-class-memory", |it| it.class_memory = None),
        Method::ours("no-alone", |it| it.alone = None),
        Method::ours("no-yielding", |it| it.yielding = None),
        Method::ours("no-epsilon", |it| it.epsilon = None),
        Method::ours("no-eject", |it| it.eject = None),
        Method::of(Kind::Oracle),
    ]
}

/// Four readers, one a node, four requests each.
pub(super) fn mix(large: usize, small: usize) -> Draft {
    let load = |client: usize| {
        let bytes = if client < large {
            Bytes::mib(1)
        } else {
            Bytes::kib(4)
        };
        Load::random(client, bytes, Pace::Closed(4))
    };
    let larges: Vec<usize> = (0..large).collect();
    let smalls: Vec<usize> = (large..large + small).collect();
    Draft {
        family: Family::Mix,
        case: format!("mix {large}:{small}"),
        scene: Scene {
            disks: vec![Disk::Hdd; 4],
            loads: (0..large + small).map(load).collect(),
            message: Nanos(0),
        },
        metrics: vec![
            Metric::new("large_mb_s", What::Mean(larges)),
            Metric::new("small_mb_s", What::Mean(smalls.clone())),
            Metric::new("small_p99_ms", What::P99(smalls)),
        ],
    }
}

/// Sequential readers over four nodes, the first one preferred.
pub(super) fn preferred(readers: usize) -> Draft {
    let load = |client: usize| Load {
        class: if client == 0 {
            Class::High
        } else {
            Class::Normal
        },
        ..Load::sequential(client % 4)
    };
    Draft {
        family: Family::Preferred,
        case: format!("preferred n={readers}"),
        scene: Scene {
            disks: vec![Disk::Hdd; 4],
            loads: (0..readers).map(load).collect(),
            message: Nanos(0),
        },
        metrics: vec![
            Metric::new("preferred_mb_s", What::Sum(vec![0])),
            Metric::new("total_mb_s", What::Sum((0..readers).collect())),
            Metric::new("mean_mb_s", What::Mean((0..readers).collect())),
        ],
    }
}

/// Eight disks, two of them three times slower; small random reads in an open loop.
fn uneven() -> Draft {
    let mut disks = vec![Disk::Hdd; 8];
    disks[2] = Disk::SlowHdd;
    disks[5] = Disk::SlowHdd;
    // Six disks and two thirds of one, half of which is asked for.
    let each = 0.5 * (6.0 + 2.0 / 3.0) * PER_DISK_SMALL / 8.0;
    let load = |client| Load::random(client, Bytes::kib(4), Pace::Open(each));
    let all: Vec<usize> = (0..8).collect();
    Draft {
        family: Family::Uneven,
        case: "uneven disks=8 slow=2".to_owned(),
        scene: Scene {
            disks,
            loads: (0..8).map(load).collect(),
            message: Nanos(0),
        },
        metrics: vec![
            Metric::new("small_p99_ms", What::P99(all.clone())),
            Metric::new("small_mean_ms", What::Wait(all)),
        ],
    }
}

/// Four SSDs that stall now and then; small random reads.
fn stalls() -> Draft {
    let load = |client| Load::random(client, Bytes::kib(4), Pace::Open(200.0));
    let all: Vec<usize> = (0..4).collect();
    Draft {
        family: Family::Stalls,
        case: "stalls ssd".to_owned(),
        scene: Scene {
            disks: vec![Disk::StallingSsd; 4],
            loads: (0..4).map(load).collect(),
            message: Nanos(0),
        },
        metrics: vec![
            Metric::new("small_p99_ms", What::P99(all.clone())),
            Metric::new("small_mean_ms", What::Wait(all)),
            Metric::new("hedged_percent", What::Hedged),
        ],
    }
}

/// Random reads of 64 KiB in an open loop, a part of what the disks can do.
fn loaded(load: f64) -> Draft {
    let reads = |client| Load::random(client, Bytes::kib(64), Pace::Open(load * PER_DISK));
    let all: Vec<usize> = (0..4).collect();
    Draft {
        family: Family::Load,
        case: format!("load={load}"),
        scene: Scene {
            disks: vec![Disk::Hdd; 4],
            loads: (0..4).map(reads).collect(),
            message: Nanos(0),
        },
        metrics: vec![
            Metric::new("mean_ms", What::Wait(all.clone())),
            Metric::new("p99_ms", What::P99(all)),
        ],
    }
}

/// Six sequential readers of the same class: three with four times as many requests under way as the others.
pub(super) fn fair(penalties: Penalties) -> Draft {
    let load = |client: usize| Load {
        pace: Pace::Closed(if client < 3 { 8 } else { 2 }),
        penalties,
        ..Load::sequential(client % 4)
    };
    Draft {
        family: Family::Fair,
        case: format!("fair n=6 q={}", penalties.other.as_f64()),
        scene: Scene {
            disks: vec![Disk::Hdd; 4],
            loads: (0..6).map(load).collect(),
            message: Nanos(0),
        },
        metrics: vec![
            Metric::new("fairness", What::Jain),
            Metric::new("total_mb_s", What::Sum((0..6).collect())),
        ],
    }
}
