//! Rows of what was promised in real time.

use super::bed::{Method, Run, share};
use super::needed::{SECOND, case};
use super::plan::{Base, mb, row};
use super::real::{STEP, Scenario, TARGETS, What, World};
use policy::share::violations::{Violations, percent};
use policy::share::{BytesPerSec, load};
use report::{Row, Value};

/// The violation rate in percent if this was promised, and of how many windows of a second.
pub(super) fn violated(run: &Run, promised: &[BytesPerSec]) -> (Option<f64>, u64) {
    let accesses = promised.iter().zip(&run.got);
    let each: Vec<Violations> = accesses
        .map(|(rate, got)| Violations::count(*rate, &got.throughputs(SECOND)))
        .collect();
    (percent(&each), each.iter().map(|it| it.of).sum())
}

pub(super) fn note(world: World) -> &'static str {
    match world {
        World::Queue => {
            "virtual time: clients at the queue before the model, no store, as in the long run"
        }
        World::Virtual => "virtual time: sessions, node, store, queue and the model over memory",
        World::Real => {
            "real: time, executor, sessions, node, store and a file; modelled: when the file's answers come, as the paper's SSD would"
        }
    }
}

/// What one run gave.
pub(super) fn rows_of(world: World, it: &Scenario, base: &Base, run: &Run) -> Vec<Row> {
    let method = world.method(it.method.name);
    let table = world.table("stack");
    let row = |case: &str, metric: &str, unit: &str, ours: Option<f64>| {
        row(&table, case, &method, metric, unit, ours)
            .on(world.devices())
            .noted(note(world))
    };
    let name = it.name();
    let mut rows = vec![
        row(&name, "total_mb_s", "MB/s", Some(mb(run.total()))),
        row(&name, "depth_mean", "pieces", Some(run.depth)),
        row(&name, "late_us", "us", Some(run.late.0 as f64 / 1e3)),
    ];
    match it.kind {
        What::Alone(_) => {}
        What::Accesses {
            direction,
            overhead,
        } => {
            let n = it.clients.len() as u32;
            let at = |overhead| violated(run, &load(base.of(direction), share(overhead), n));
            let (below, windows) = at(overhead);
            let remark = format!("{}; of {windows} windows", note(world));
            rows.push(row(&name, "violation_percent", "percent", below).noted(remark));
            for target in TARGETS {
                let case = case(direction, n, SECOND, target);
                let needed = needed(&it.method, overhead, target, &|overhead| at(overhead).0);
                rows.push(row(&case, "overhead_percent", "percent", needed.0).noted(needed.1));
            }
        }
        What::Scene(_, about) => {
            let each: Vec<Violations> = run.got.iter().map(|got| got.broken()).collect();
            let remark = format!("{}; {about}", note(world));
            rows.push(row(&name, "violation_percent", "percent", percent(&each)).noted(remark));
        }
    }
    rows
}

/// The least overhead by which at most `target` percent are violated, as far as one run shows.
pub(super) fn needed(
    method: &Method,
    promised_at: f64,
    target: f64,
    violated: &dyn Fn(f64) -> Option<f64>,
) -> (Option<f64>, &'static str) {
    let keeps = |overhead| violated(overhead).is_some_and(|below| below <= target);
    if method.paced {
        let kept = keeps(promised_at);
        let remark = match kept {
            true => "so much is enough; less was not tried, as it would be another run",
            false => "so much as was tried is not enough",
        };
        return (kept.then_some(promised_at), remark);
    }
    let mut steps = (0..200).map(|step| f64::from(step) * STEP);
    let least = steps.find(|overhead| keeps(*overhead));
    (
        least,
        "the rates do not matter to this method: one run tells",
    )
}

/// How far two worlds are apart, method by method: the most in any case.
pub(super) fn agreement(rows: &[Row]) -> Vec<Row> {
    let number = |row: &Row| row.ours.as_ref().and_then(Value::number);
    let find = |case: &str, method: &str, metric: &str| {
        let mut here = rows.iter();
        let row = here.find(|it| (&*it.case, &*it.method, &*it.metric) == (case, method, metric));
        row.and_then(number)
    };
    let mut all = Vec::new();
    for (case, one, other) in [
        ("real beside virtual", World::Real, World::Virtual),
        ("virtual beside queue", World::Virtual, World::Queue),
    ] {
        for method in &Method::all()[..4] {
            let (ours, theirs) = (one.method(method.name), other.method(method.name));
            let mut add = |metric: &str, unit: &str, of: &str, off: &dyn Fn(f64, f64) -> f64| {
                let here = rows
                    .iter()
                    .filter(|it| it.method == ours && it.metric == of);
                let pairs = here.filter_map(|it| Some((number(it)?, find(&it.case, &theirs, of)?)));
                let each: Vec<f64> = pairs.map(|(one, other)| off(one, other)).collect();
                let most = each
                    .iter()
                    .copied()
                    .max_by(|a, b| a.abs().total_cmp(&b.abs()));
                let remark = format!("the most of {} cases; low and high: over them", each.len());
                let table = one.table("agreement");
                let row = row(&table, case, method.name, metric, unit, most);
                all.push(row.on(one.devices()).over(&each).noted(remark));
            };
            let parts = |one: f64, other: f64| 100.0 * (one / other - 1.0);
            add("total_off_percent", "percent", "total_mb_s", &parts);
            let points = |one: f64, other: f64| one - other;
            add(
                "violation_off_points",
                "points",
                "violation_percent",
                &points,
            );
        }
    }
    all
}
