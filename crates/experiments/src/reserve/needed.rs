//! How much of the device must stay unpromised, by scheduler, accesses, window and how many violations are allowed?
//!
//! ```text
//! overhead -> rates by equation (1) -> run -> throughputs by window -> violation rate; the least overhead that keeps it
//! ```
//!
//! Source: PROBS 4.2, figure 6.
//!
//! Choice: of methods that know rates by their ratio only, one run stands for every overhead: what they deliver does not
//! depend on it. Tags pace by the rates, so each overhead is a run of its own.

use std::collections::BTreeMap;

use base::{Bytes, Nanos};
use policy::share::violations::{Violations, Window, percent};
use policy::share::{BytesPerSec, Direction};

use report::Row;

use super::bed::{Client, IO, Method, by_equation, run};
use super::page::Curve;
use super::plan::{Base, Found, Piece, Plan, mb, piece, row};

/// Concurrent accesses.
pub(super) const ACCESSES: [u32; 10] = [2, 3, 4, 5, 6, 7, 8, 16, 32, 64];
/// Violations allowed, in percent.
pub(super) const TARGETS: [f64; 3] = [10.0, 1.0, 0.1];
/// Overheads beyond are not tried.
const MOST: f64 = 95.0;
/// Of those that pace.
const MOST_PACED: f64 = 60.0;

/// What the accesses of some runs got, over all seeds.
#[derive(Debug, Clone)]
struct Measured {
    /// By window, then by access; the last window is each access's part of a round.
    rates: Vec<Vec<Vec<BytesPerSec>>>,
    total: f64,
    depth: f64,
}

/// What an access moves in a round of 64 by its tokens, in whole I/Os.
fn part_of_round(n: u32, access: usize) -> Window {
    let parts = u64::from(n) * (u64::from(n) + 1);
    let ios = (64.0 * 2.0 * (access as f64 + 1.0) / parts as f64).round();
    Window::Bytes(Bytes(IO.0 * (ios as u64).max(1)))
}

fn measure(plan: &Plan, method: &Method, clients: &[Client]) -> Measured {
    let n = clients.len() as u32;
    let windows = Window::JUDGED.len();
    let mut all = Measured {
        rates: vec![vec![Vec::new(); n as usize]; windows + 1],
        total: 0.0,
        depth: 0.0,
    };
    for seed in plan.seeds() {
        let run = run(method, plan.times, clients, plan.end(), seed);
        for (at, got) in run.got.iter().enumerate() {
            for (window, rates) in Window::JUDGED.iter().zip(&mut all.rates) {
                rates[at].extend(got.throughputs(*window));
            }
            all.rates[windows][at].extend(got.throughputs(part_of_round(n, at)));
        }
        all.total += mb(run.total()) / plan.seeds as f64;
        all.depth += run.depth / plan.seeds as f64;
    }
    all
}

impl Measured {
    /// The violation rate in percent if this was promised, and of how many windows.
    fn violated(&self, window: usize, promised: &[BytesPerSec]) -> (Option<f64>, u64) {
        let each: Vec<Violations> = promised
            .iter()
            .zip(&self.rates[window])
            .map(|(rate, got)| Violations::count(*rate, got))
            .collect();
        (percent(&each), each.iter().map(|it| it.of).sum())
    }
}

/// Accesses by the part of the device that is set aside, in percent.
type Accesses<'a> = Box<dyn Fn(f64) -> Vec<Client> + 'a>;

/// One method under the same accesses: runs made once, for all windows and targets.
pub(super) struct Cell<'a> {
    plan: &'a Plan,
    method: &'a Method,
    /// What rows begin with.
    name: String,
    accesses: Accesses<'a>,
    runs: BTreeMap<u32, Measured>,
}

/// What was needed, and how it went then.
struct Needed {
    overhead: f64,
    violated: Option<f64>,
    windows: u64,
    total: f64,
    depth: f64,
    kept: bool,
}

impl<'a> Cell<'a> {
    /// Accesses by equation (1).
    fn new(
        plan: &'a Plan,
        base: &'a Base,
        method: &'a Method,
        direction: Direction,
        n: u32,
    ) -> Cell<'a> {
        let name = format!("{direction} n={n}");
        Cell::with(plan, method, name, move |overhead| {
            by_equation(base.of(direction), direction, n, overhead)
        })
    }

    /// Other accesses: what `accesses` gives for a part set aside, in percent.
    pub(super) fn with(
        plan: &'a Plan,
        method: &'a Method,
        name: String,
        accesses: impl Fn(f64) -> Vec<Client> + 'a,
    ) -> Cell<'a> {
        Cell {
            plan,
            method,
            name,
            accesses: Box::new(accesses),
            runs: BTreeMap::new(),
        }
    }
}

impl Cell<'_> {
    fn overhead(&self, step: u32) -> f64 {
        f64::from(step) * self.plan.step
    }

    fn look(&mut self, step: u32, window: usize) -> (Option<f64>, u64, f64, f64) {
        let key = if self.method.paced { step } else { 0 };
        let overhead = self.overhead(step);
        let (plan, method, accesses) = (self.plan, self.method, &self.accesses);
        let run = self.runs.entry(key).or_insert_with(|| {
            let asked = if method.paced { overhead } else { 10.0 };
            measure(plan, method, &accesses(asked))
        });
        let promised = accesses(overhead).into_iter().map(|it| it.terms.rate);
        let promised: Vec<BytesPerSec> = promised.collect();
        let (violated, windows) = run.violated(window, &promised);
        (violated, windows, run.total, run.depth)
    }

    /// The least overhead at which at most `target` percent of the windows are violated, by bisection.
    fn needed(&mut self, window: usize, target: f64) -> Needed {
        let most = if self.method.paced { MOST_PACED } else { MOST };
        let keeps = |cell: &mut Self, step| {
            let (violated, ..) = cell.look(step, window);
            violated.is_none_or(|violated| violated <= target)
        };
        let (mut low, mut high) = (0, (most / self.plan.step) as u32);
        let kept = keeps(self, low) || keeps(self, high);
        if keeps(self, low) {
            high = low;
        }
        while kept && low < high {
            let middle = (low + high) / 2;
            match keeps(self, middle) {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        let (violated, windows, total, depth) = self.look(high, window);
        Needed {
            overhead: if kept { self.overhead(high) } else { 100.0 },
            violated,
            windows,
            total,
            depth,
            kept,
        }
    }
}

/// The case's name.
pub(super) fn case(direction: Direction, n: u32, window: Window, target: f64) -> String {
    case_of(&format!("{direction} n={n}"), window, target)
}

/// The same of any accesses.
pub(super) fn case_of(name: &str, window: Window, target: f64) -> String {
    format!("{name} window={window} target={target}%")
}

/// What is needed in these windows for these targets.
pub(super) fn rows_of(
    cell: &mut Cell<'_>,
    table: &str,
    windows: &[usize],
    targets: &[f64],
) -> Found {
    let mut found = Found::default();
    for &window in windows {
        for &target in targets {
            let needed = cell.needed(window, target);
            let case = case_of(&cell.name, Window::JUDGED[window], target);
            let remark = match (needed.windows, needed.kept) {
                (0, _) => "no window was filled".to_owned(),
                (windows, true) => format!("of {windows} windows"),
                (windows, false) => {
                    format!("not kept at any overhead that was tried; of {windows} windows")
                }
            };
            let measured = needed.windows > 0;
            let mut add = |metric, unit, ours: Option<f64>| {
                let row = row(table, &case, cell.method.name, metric, unit, ours);
                found.rows.push(row.noted(remark.clone()));
            };
            add(
                "overhead_percent",
                "percent",
                measured.then_some(needed.overhead),
            );
            add("violation_percent", "percent", needed.violated);
            add("total_mb_s", "MB/s", Some(needed.total));
        }
    }
    found
}

/// Figure 6's own cell: windows are parts of a round, ten percent may be violated.
fn figure6(cell: &mut Cell<'_>, base: &Base, direction: Direction, n: u32) -> Found {
    let needed = cell.needed(Window::JUDGED.len(), 10.0);
    let degradation = 100.0 * (1.0 - needed.total / mb(base.of(direction)));
    let case = cell.name.clone();
    let name = cell.method.name;
    let row = |metric, ours| {
        let remark = format!("of {} windows; depth {:.1}", needed.windows, needed.depth);
        row("figure 6", &case, name, metric, "percent", Some(ours)).noted(remark)
    };
    let curve = |what: &str, value| Curve {
        figure: 6,
        chart: format!("{what}, {direction}s"),
        name: name.to_owned(),
        points: vec![(f64::from(n), value / 100.0)],
    };
    Found {
        rows: vec![
            row("overhead_percent", needed.overhead),
            row("degradation_percent", degradation),
        ],
        curves: vec![
            curve("Overhead needed", needed.overhead),
            curve("Lost throughput", degradation),
        ],
    }
}

/// Figure 6's figures of the published method.
pub(super) fn published(plan: &Plan, base: &Base, direction: Direction) -> Vec<Row> {
    let method = Method::rounds(64);
    let of = |n| {
        let mut cell = Cell::new(plan, base, &method, direction, n);
        figure6(&mut cell, base, direction, n).rows
    };
    (2..=8).flat_map(of).collect()
}

/// All cells, those of many accesses first: they take longest.
pub(super) fn pieces<'a>(plan: &'a Plan, base: &'a Base) -> Vec<Piece<'a>> {
    let mut pieces = Vec::new();
    for n in ACCESSES.into_iter().rev() {
        for direction in Direction::ALL {
            for method in Method::all() {
                let name = format!("{} of {n} {direction}s", method.name);
                let work = move || {
                    let mut cell = Cell::new(plan, base, &method, direction, n);
                    let mut found = rows_of(&mut cell, "overhead", &[0, 1, 2, 3], &TARGETS);
                    if (2..=8).contains(&n) {
                        let figure = figure6(&mut cell, base, direction, n);
                        found.rows.extend(figure.rows);
                        found.curves.extend(figure.curves);
                    }
                    let of = cell.look(0, 3).3;
                    let case = format!("{direction} n={n}");
                    let depth = row(
                        "depth",
                        &case,
                        method.name,
                        "depth_mean",
                        "pieces",
                        Some(of),
                    );
                    found
                        .rows
                        .push(depth.noted("nothing set aside; looked at every 10 ms"));
                    found
                };
                pieces.push(piece("overhead", Some(method.name), name, work));
            }
        }
    }
    for n in [6, 16, 32] {
        for direction in Direction::ALL {
            for method in ablations() {
                let work = move || {
                    let mut cell = Cell::new(plan, base, &method, direction, n);
                    rows_of(&mut cell, "ablations", &[0, 3], &[1.0])
                };
                let name = format!("{} of {n} {direction}s", method.name);
                pieces.push(piece("ablations", Some(method.name), name, work));
            }
        }
    }
    pieces
}

/// Tags without one thing or with another in its place.
fn ablations() -> Vec<Method> {
    vec![
        Method::tags("tags", |_| {}),
        Method::tags("tags-no-cushion", |options| {
            options.share.tags.cushion = false;
        }),
        Method::tags("tags-1mib", |options| {
            let tags = &mut options.share.tags;
            (tags.quantum, tags.quanta_max, tags.piece_min) = (IO, 1, IO);
        }),
        Method::tags("tags-depth1", |options| {
            options.share.tags.depth = policy::share::DepthOptions::fixed(1);
        }),
    ]
}

/// A second of an access's own time.
pub(super) const SECOND: Window = Window::Time(Nanos(1_000_000_000));
