//! Are promises kept that are built on a calibration, or on what the device was seen to do? Judged by runs neither has
//! seen.
//!
//! ```text
//! seed -> store::qos::calibrate on the model -> costs, headroom -> promises to N sessions -> other seeds: windows kept
//! seed -> seconds in which all waited -> Estimator -> the speed of 99 of 100 -> other seeds: seconds as fast
//! ```
//!
//! Source: PROBS 4.3, 5 (the level of a guarantee is to be found by itself), 3.3 (what was achieved is to decide over new
//! reservations).

use std::cell::RefCell;
use std::rc::Rc;

use base::{Buf, Bytes, Instant, Nanos, Sector, View};
use device::{Class, Device, WriteFlags};
use policy::share::capacity::{Estimator, EstimatorOptions};
use policy::share::{Direction, Mix, Probability, Share, Terms};
use report::Evidence;
use store::StoreError;
use store::qos::calibrate::{self, Answer, Ground, Surface};
use store::qos::queue::{Queue, QueueOptions};

use super::bed::{self, Client, IO, Method, by_equation};
use super::plan::{Base, Found, Piece, Plan, piece, row};
use super::vertex::{self, Times, Vertex};

/// What is promised.
const P99: Probability = Probability::percent(99);
/// Of each stream.
const REACH: Bytes = Bytes::mib(64);
/// Runs that were not seen before.
const HELD_OUT: u64 = 4;
/// The method of promises to as many sessions as were calibrated with, and to another number.
const CALIBRATION: &str = "calibration";
const BETWEEN: &str = "between";

/// Streams on the model itself: it keeps no contents, so no store could stand on it.
struct Bare {
    queue: Rc<Queue>,
    data: View,
}

impl Ground for Bare {
    fn ask(&self, stream: u32, direction: Direction, at: u64, len: Bytes, class: Class) -> Answer {
        let (queue, data) = (Rc::clone(&self.queue), self.data.clone());
        let from = Sector::containing(REACH.0 * u64::from(stream) + at);
        Box::pin(async move {
            let asked = match direction {
                Direction::Read => {
                    let buf = Buf::for_read(len.usize());
                    queue.read(from, buf, class).await.map(drop)
                }
                Direction::Write => {
                    let flags = WriteFlags { fua: false, class };
                    queue.write(from, data.slice(0, len.usize()), flags).await
                }
            };
            asked.map_err(|source| StoreError::Device {
                store: "model".to_owned(),
                what: "use",
                object: stream.to_string(),
                source: Box::new(source),
            })
        })
    }

    fn reach(&self) -> Bytes {
        REACH
    }
}

fn calibrated(plan: &Plan, mix: Mix, sessions: &[u32]) -> Surface {
    let plan = calibrate::Plan {
        mixes: vec![mix],
        sessions: sessions.to_vec(),
        windows: (plan.together.0 / 1_000_000_000).max(20),
        step: Share::percent(2),
        budget: Nanos(u64::MAX),
        ..calibrate::Plan::quick()
    };
    let found: Rc<RefCell<Option<Surface>>> = Rc::default();
    let result = Rc::clone(&found);
    env::Runtime::simulated(7_001).block_on(async move {
        let streams = calibrate::streams(&plan).expect("a whole plan");
        let device = Vertex::new(Times::STORE, REACH * u64::from(streams), None);
        let queue = Queue::new(device, QueueOptions::new(vertex::costs()));
        let ground = Rc::new(Bare {
            queue: Rc::clone(&queue),
            data: View::copy_of(&vec![7; IO.usize()]),
        });
        let surface = calibrate::on(ground, &queue, &plan, &mut |_, _| {}).await;
        *result.borrow_mut() = Some(surface.expect("the model refuses nothing"));
    });
    found.take().expect("it ran to its end")
}

/// Promises to so many sessions by a surface that was calibrated with others or as many, in runs it has not seen.
fn surface(plan: &Plan, mix: Mix, calibrated_with: &[u32], sessions: u32) -> Found {
    let surface = calibrated(plan, mix, calibrated_with);
    let costs = surface.costs();
    let case = format!("{} n={sessions} window=1s", mix.name());
    let by = match calibrated_with.contains(&sessions) {
        true => CALIBRATION,
        false => BETWEEN,
    };
    if !promises_something(&surface) {
        let remark = "calibrated with one seed: no overhead that was tried was enough";
        return rows(&case, by, Share::WHOLE, [None; 2], remark);
    }
    let overhead = surface.headroom().at(mix, sessions, Nanos::secs(1), P99);
    let promises = calibrate::promises(&costs, mix, sessions, overhead);
    // The queue has been at work before, as it was when it was calibrated.
    let warm = Instant(0) + Nanos::secs(3);
    let mut clients: Vec<Client> = Direction::ALL
        .map(|direction| Client {
            pause: Some((warm, Instant(u64::MAX))),
            ..Client::new(
                Terms {
                    direction,
                    ..Terms::best_effort()
                },
                Instant(0),
            )
        })
        .to_vec();
    let sessions_of = promises.iter();
    clients.extend(
        sessions_of.map(|(direction, rate)| Client::new(Terms::reserved(*direction, *rate), warm)),
    );
    let method = Method::tags("tags", |options| *options = QueueOptions::new(costs));
    // Of each client: windows that were kept, and all.
    let mut each = vec![(0, 0); clients.len()];
    for seed in 0..HELD_OUT {
        let end = warm + plan.together.max(Nanos::secs(20));
        let run = bed::run(&method, Times::STORE, &clients, end, 9_000 + seed);
        for ((kept, all), got) in each.iter_mut().zip(&run.got) {
            let broken = got.broken();
            (*kept, *all) = (*kept + broken.of - broken.below, *all + broken.of);
        }
    }
    let parts = each.iter().filter_map(|(kept, all)| part(*kept, *all));
    let least = parts.reduce(f64::min);
    let (kept, all) = each
        .iter()
        .fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
    let remark = format!(
        "calibrated with one seed, {all} windows of {HELD_OUT} others; overhead is of the device's time by the costs found: {} us and {} a \
         read, {} us and {} a write",
        costs.read.fixed.0 / 1000,
        costs.read.rate,
        costs.write.fixed.0 / 1000,
        costs.write.rate
    );
    rows(&case, by, overhead, [part(kept, all), least], &remark)
}

/// Was an overhead found that is enough? Else there is no promise to be kept.
pub(super) fn promises_something(surface: &Surface) -> bool {
    let mut found = surface.points.iter();
    found.len() > 0 && found.all(|it| it.overhead_ppb < Share::WHOLE.0)
}

/// In percent; nothing of nothing.
fn part(kept: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| 100.0 * kept as f64 / all as f64)
}

/// `kept`: of all windows, and of those of the session with the least.
fn rows(
    case: &str,
    method: &str,
    set_aside: Share,
    [kept, least]: [Option<f64>; 2],
    remark: &str,
) -> Found {
    let evidence = match method {
        BETWEEN => Evidence::HeldOut,
        _ => Evidence::Measured,
    };
    let row = |metric, ours| {
        let row = row("coverage", case, method, metric, "percent", ours);
        row.evidence(evidence).noted(remark)
    };
    Found {
        rows: vec![
            row("overhead_percent", Some(set_aside.as_percent())),
            row("kept_percent", kept),
            row("kept_least_percent", least),
        ],
        curves: Vec::new(),
    }
}

/// The guarantee of the estimator, in runs it has not seen.
fn estimated(plan: &Plan, base: &Base, direction: Direction) -> Found {
    // It promises nothing on fewer than sixty seconds.
    let length = Nanos(plan.together.0 * 5).max(Nanos::secs(80));
    let clients = by_equation(base.of(direction), direction, 4, 10.0);
    let method = Method::tags("tags", |_| {});
    let intervals = |seed| {
        let end = Instant(0) + length;
        bed::run(&method, Times::STORE, &clients, end, seed).intervals
    };
    let mix = match direction {
        Direction::Read => Mix::Reads,
        Direction::Write => Mix::Writes,
    };
    let mut estimator = Estimator::new(EstimatorOptions::default());
    for interval in intervals(7_001) {
        estimator.observe(&interval);
    }
    let case = format!("{} n=4 window=1s", mix.name());
    let guarantee = estimator.guarantee(mix, P99, 1);
    let guarantee = guarantee.expect("enough was seen");
    let (mut kept, mut all) = (0, 0);
    for seed in 0..HELD_OUT {
        for interval in intervals(9_000 + seed) {
            let work = interval.read_work + interval.write_work;
            let fast = u128::from(work.0) * 1_000_000_000
                >= u128::from(guarantee.speed.0) * u128::from(interval.length.0);
            (kept, all) = (kept + u64::from(fast), all + 1);
        }
    }
    let remark = format!(
        "learned from {} seconds of one seed, {all} seconds of {HELD_OUT} others; overhead is what is missing to the mean speed",
        guarantee.samples
    );
    let mean = mean_speed(&intervals(7_001));
    let missing = 1.0 - guarantee.speed.as_percent() / 100.0 / mean;
    rows(
        &case,
        "estimator",
        bed::share(100.0 * missing.max(0.0)),
        // The device has no sessions.
        [part(kept, all), None],
        &remark,
    )
}

fn mean_speed(intervals: &[policy::share::capacity::Interval]) -> f64 {
    let work = intervals.iter().map(|it| it.read_work.0 + it.write_work.0);
    let time = intervals.iter().map(|it| it.length.0);
    work.sum::<u64>() as f64 / time.sum::<u64>().max(1) as f64
}

pub(super) fn pieces<'a>(plan: &'a Plan, base: &'a Base) -> Vec<Piece<'a>> {
    let mut pieces = Vec::new();
    for sessions in [2, 8, 32] {
        for mix in [Mix::Reads, Mix::Writes, Mix::Mixed] {
            let name = format!("{sessions} sessions, {}", mix.name());
            let work = move || surface(plan, mix, &[sessions], sessions);
            pieces.push(piece("coverage", Some(CALIBRATION), name, work));
        }
    }
    for mix in [Mix::Reads, Mix::Writes, Mix::Mixed] {
        let name = format!("12 sessions between others, {}", mix.name());
        let work = move || surface(plan, mix, &[2, 8, 32], 12);
        pieces.push(piece("coverage", Some(BETWEEN), name, work));
    }
    for direction in Direction::ALL {
        let name = format!("estimator, {direction}s");
        let work = move || estimated(plan, base, direction);
        pieces.push(piece("coverage", Some("estimator"), name, work));
    }
    pieces
}
