//! What happens to promises when a client comes, returns, is greedy, or the device has work of its own?
//!
//! ```text
//! four to 32 accesses by equation (1), 15 % set aside, and something happens -> violated windows of a second, lag, total
//! ```

use base::{Bytes, Instant, Nanos};
use policy::share::violations::{Violations, percent};
use policy::share::{BytesPerSec, Direction, Terms};

use super::bed::{Client, Method, Run, by_equation, run};
use super::plan::{Base, Found, Piece, Plan, mb, piece, row};
use super::vertex::Times;

/// Set aside, in percent.
pub(super) const OVERHEAD: f64 = 15.0;

fn at(seconds: u64) -> Instant {
    Instant(0) + Nanos::secs(seconds)
}

/// A scene: its clients, its device.
pub(super) type Scene = (&'static str, &'static str, Vec<Client>, Times);

/// All there are.
pub(super) fn all(base: &Base) -> Vec<Scene> {
    let reads = |n| by_equation(base.read, Direction::Read, n, OVERHEAD);
    let mut idle = reads(4);
    idle[3].pause = Some((at(3), at(5)));
    let mut greedy = reads(4);
    greedy[0].outstanding = 256;
    let mut scrub = reads(4);
    scrub.push(Client {
        background: true,
        ..Client::new(Terms::reserved(Direction::Read, BytesPerSec(0)), Instant(0))
    });
    let burst = Times {
        burst: Some((at(4), at(4) + Nanos::millis(300), 200)),
        ..Times::STORE
    };
    // Half of the device's time each.
    let half = |rate: BytesPerSec| BytesPerSec(rate.0 / 2);
    let mut mixed = by_equation(half(base.read), Direction::Read, 2, OVERHEAD);
    mixed.extend(by_equation(half(base.write), Direction::Write, 2, OVERHEAD));
    vec![
        (
            "idle return",
            "the largest of four asks for nothing from 3 to 5 s",
            idle,
            Times::STORE,
        ),
        (
            "greedy client",
            "the smallest of four has 256 MiB outstanding",
            greedy,
            Times::STORE,
        ),
        (
            "scrub",
            "background reads as fast as they may",
            scrub,
            Times::STORE,
        ),
        (
            "burst",
            "from 4 s on everything takes three times as long for 300 ms",
            reads(4),
            burst,
        ),
        (
            "mixed",
            "two readers and two writers, half of the device's time each",
            mixed,
            Times::STORE,
        ),
    ]
}

fn runs(plan: &Plan, method: &Method, times: Times, clients: &[Client]) -> Vec<Run> {
    plan.seeds()
        .map(|seed| run(method, times, clients, plan.end(), seed))
        .collect()
}

fn scene(plan: &Plan, method: &Method, (case, about, clients, times): &Scene) -> Found {
    let runs = runs(plan, method, *times, clients);
    let promised = clients.iter().filter(|client| !client.background).count();
    let each: Vec<Violations> = (0..promised)
        .map(|at| {
            let seen = runs.iter().map(|run| run.got[at].broken());
            seen.fold(Violations::default(), |sum, seen| Violations {
                below: sum.below + seen.below,
                of: sum.of + seen.of,
            })
        })
        .collect();
    let total = runs.iter().map(|run| mb(run.total())).sum::<f64>() / runs.len() as f64;
    let remark = format!(
        "{about}; {OVERHEAD} % set aside, windows of a second in which enough was asked for"
    );
    let row =
        |metric, unit, ours| row("scenes", case, method.name, metric, unit, ours).noted(&*remark);
    Found {
        rows: vec![
            row("violation_percent", "percent", percent(&each)),
            row("total_mb_s", "MB/s", Some(total)),
        ],
        curves: Vec::new(),
    }
}

/// How newcomers fare: all but the first come while others are served.
fn joining(plan: &Plan, base: &Base, method: &Method, direction: Direction, n: u32) -> Found {
    let clients = by_equation(base.of(direction), direction, n, OVERHEAD);
    let case = format!("{direction} n={n}");
    joined(
        plan,
        ("joining", &case),
        method,
        &clients,
        base.of(direction),
    )
}

/// The same of any clients; `base` is what the largest of them would get alone.
pub(super) fn joined(
    plan: &Plan,
    (table, case): (&'static str, &str),
    method: &Method,
    clients: &[Client],
    base: BytesPerSec,
) -> Found {
    let runs = runs(plan, method, Times::STORE, clients);
    let newcomers: Vec<_> = runs.iter().flat_map(|run| &run.got[1..]).collect();
    let lag = newcomers
        .iter()
        .map(|got| got.lag)
        .max()
        .unwrap_or(Bytes(0));
    let wait = newcomers
        .iter()
        .map(|got| got.wait)
        .max()
        .unwrap_or(Nanos(0));
    let first = newcomers
        .iter()
        .filter_map(|got| got.first_violation())
        .min();
    let rates = clients.iter().map(|client| client.terms.rate.0);
    let largest = rates.max().unwrap_or(0) as f64;
    let quantum = 256.0;
    let bound = quantum + 2.0 * quantum * largest / base.0 as f64;
    let row = |metric, unit, ours: Option<f64>, remark: &str| {
        row(table, case, method.name, metric, unit, ours).noted(remark)
    };
    Found {
        rows: vec![
            row(
                "lag_kib",
                "KiB",
                Some(lag.0 as f64 / 1024.0),
                "the most any newcomer was behind its rate in its first second",
            ),
            row(
                "bound_kib",
                "KiB",
                Some(bound),
                "one quantum, and what the largest is owed by its booking while two quanta at the device end",
            ),
            row(
                "wait_ms",
                "ms",
                Some(wait.secs_f64() * 1e3),
                "the longest any newcomer waited for its first byte, to half a millisecond",
            ),
            row(
                "first_violation_s",
                "s",
                first.map(Nanos::secs_f64),
                "from coming to the end of the first violated second, the soonest of all newcomers; none: no such second",
            ),
        ],
        curves: Vec::new(),
    }
}

pub(super) fn pieces<'a>(plan: &'a Plan, base: &'a Base) -> Vec<Piece<'a>> {
    let mut pieces = Vec::new();
    for n in [32, 16, 6, 2] {
        for direction in Direction::ALL {
            for method in Method::all() {
                let work = move || joining(plan, base, &method, direction, n);
                let name = format!("{n} come, {direction}s, {}", method.name);
                pieces.push(piece("joining", Some(method.name), name, work));
            }
        }
    }
    for it in all(base) {
        for method in Method::all() {
            let it = it.clone();
            let name = format!("{}, {}", it.0, method.name);
            let work = move || scene(plan, &method, &it);
            pieces.push(piece("scenes", Some(method.name), name, work));
        }
    }
    pieces
}
