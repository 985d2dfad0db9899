//! Does a calibration find what a device costs, and are promises by it kept in runs it has not seen?

use std::cell::{Cell, RefCell};

use base::{Buf, Instant, Nanos, Sector, Span};
use device::{Class, Info, Memory, Pending, WriteFlags};
use policy::share::{BytesPerSec, Kind, Mix, Probability, Share};

use super::reckon::{Search, Turn, line};
use super::*;
use crate::Settings;
use crate::object::error::StoreError;

/// A disk of 64 MiB that does one thing at a time: 0.4 ms and 50 MB/s; writes stall for 80 ms now and then.
struct Slow {
    below: Rc<Memory>,
    free: Cell<Instant>,
    rng: RefCell<env::Rng>,
}

const FIXED: Nanos = Nanos::micros(400);
const RATE: BytesPerSec = BytesPerSec::mb(50);

impl Slow {
    fn new() -> Rc<Slow> {
        Rc::new(Slow {
            below: Memory::new("slow", Bytes::mib(96)),
            free: Cell::new(Instant(0)),
            rng: RefCell::new(env::rng("slow")),
        })
    }

    async fn take(&self, bytes: u64, write: bool) {
        let mut time = FIXED + RATE.time_for(Bytes(bytes));
        // Once in 16 MiB on average.
        let stalls = write && self.rng.borrow_mut().below(16 << 20) < bytes;
        if stalls {
            time += Nanos::millis(80);
        }
        self.free.set(self.free.get().max(env::now()) + time);
        env::sleep_until(self.free.get()).await;
    }
}

impl Device for Slow {
    fn info(&self) -> Info {
        self.below.info()
    }

    fn read(&self, at: Sector, buf: Buf, class: Class) -> Pending<'_, Buf> {
        Box::pin(async move {
            self.take(buf.len() as u64, false).await;
            self.below.read(at, buf, class).await
        })
    }

    fn write(&self, at: Sector, data: View, flags: WriteFlags) -> Pending<'_, ()> {
        Box::pin(async move {
            self.take(data.len() as u64, true).await;
            self.below.write(at, data, flags).await
        })
    }

    fn flush(&self) -> Pending<'_, ()> {
        self.below.flush()
    }

    fn discard(&self, span: Span) -> Pending<'_, ()> {
        self.below.discard(span)
    }

    fn write_zeroes(&self, span: Span, flags: WriteFlags) -> Pending<'_, ()> {
        self.below.write_zeroes(span, flags)
    }
}

fn plan() -> Plan {
    Plan {
        mixes: vec![Mix::Reads, Mix::Writes],
        sessions: vec![4],
        windows: 30,
        step: Share::percent(2),
        room: Bytes::mib(32),
        ..Plan::quick()
    }
}

fn options() -> QueueOptions {
    // Far from the truth: the calibration does not need to know.
    QueueOptions::new(Costs::flat(BytesPerSec::mb(500)))
}

async fn made() -> Rc<Slow> {
    let device = Slow::new();
    let store = Store::format(device.clone(), Settings::default())
        .await
        .unwrap();
    let change = Change::default().creating();
    store
        .write("mine", 0, View::copy_of(b"stays"), change)
        .await
        .unwrap();
    store.close().await.unwrap();
    device
}

fn calibrated(seed: u64, plan: Plan) -> Surface {
    env::Runtime::simulated(seed).block_on(async move {
        let mut reported = 0.0;
        let mut progress = |_: &str, done: f64| {
            assert!((reported..=1.0).contains(&done), "{done} after {reported}");
            reported = done;
        };
        let device = made().await;
        let found = calibrate(device.clone(), options(), &plan, &mut progress).await;
        let found = found.unwrap();
        assert!(found.is_of(&*device));
        found
    })
}

#[test]
fn it_finds_what_requests_cost_and_what_alone_gets() {
    let found = calibrated(1, plan());
    let read = found.read;
    assert!((300_000..500_000).contains(&read.fixed_ns), "{read:?}");
    assert!((47_000_000..53_000_000).contains(&read.rate), "{read:?}");
    // 1 MiB in pieces of 256 KiB: 5.6 ms each.
    assert!((43_000_000..50_000_000).contains(&read.alone), "{read:?}");
    assert!(found.write.alone < read.alone, "{:?}", found.write);
    let kept: Surface = serde_json::from_str(&serde_json::to_string(&found).unwrap()).unwrap();
    assert_eq!(kept, found);
    assert_eq!(found.calibration().points.len(), 2);
    assert_eq!(found.scheduler, Kind::Tags.name());
}

#[test]
fn what_it_promises_is_kept_in_99_of_100_windows_of_runs_it_has_not_seen() {
    let found = calibrated(1, plan());
    let headroom = found.headroom();
    for mix in [Mix::Reads, Mix::Writes] {
        let (mut windows, mut violated) = (0, 0);
        for seed in 100..104 {
            let plan = plan();
            let overhead = headroom.at(mix, 4, plan.window, plan.probability);
            assert!(overhead < Share::percent(40), "{mix:?}: {overhead}");
            let costs = found.costs();
            let seen = env::Runtime::simulated(seed).block_on(async move {
                let device = made().await;
                let queue = Queue::new(device, QueueOptions::new(costs));
                let store = Store::open(queue.clone()).await.unwrap();
                let ground = Objects {
                    store: store.clone(),
                    reach: Bytes::mib(4),
                    data: View::copy_of(&vec![7; IO.usize()]),
                };
                let change = Change::default().creating();
                for at in 0..16 {
                    let data = ground.data.clone();
                    store
                        .write(&name(at / 4), u64::from(at % 4) << 20, data, change)
                        .await
                        .unwrap();
                }
                let bench = Bench {
                    ground: Rc::new(ground),
                    queue,
                };
                bench.trial(&costs, mix, 4, overhead, &plan).await.unwrap()
            });
            (windows, violated) = (windows + seen.0, violated + seen.1);
        }
        assert!(windows >= 400, "{mix:?}: {windows}");
        assert!(
            violated * 100 <= windows,
            "{mix:?}: {violated} of {windows}"
        );
    }
}

#[test]
fn nothing_of_it_stays_and_nothing_else_is_touched() {
    env::Runtime::simulated(3).block_on(async {
        let device = made().await;
        let plan = Plan {
            probe: Nanos::millis(100),
            windows: 2,
            mixes: vec![Mix::Mixed],
            ..plan()
        };
        let found = calibrate(device.clone(), options(), &plan, &mut |_, _| {}).await;
        found.unwrap();
        let store = Store::open(device).await.unwrap();
        assert_eq!(store.list("", None, 10).objects.len(), 1);
        let read = store.read("mine", 0, 9, Class::Foreground).await.unwrap();
        assert_eq!(&read[..], b"stays");
    });
}

#[test]
fn it_stops_when_its_time_is_over_and_says_so() {
    let found = calibrated(
        1,
        Plan {
            budget: Nanos(1),
            ..plan()
        },
    );
    assert!(found.cut && found.points.is_empty());
    // What was not measured is promised with care.
    let asked = found
        .headroom()
        .at(Mix::Reads, 1, Nanos::secs(1), Probability::default());
    assert_eq!(asked, Share::percent(60));
}

#[test]
fn it_refuses_where_there_is_no_store_or_no_room() {
    env::Runtime::simulated(1).block_on(async {
        let blank = Slow::new();
        let refused = calibrate(blank, options(), &plan(), &mut |_, _| {}).await;
        assert!(matches!(refused, Err(CalibrateError::Open { .. })));
        let large = Plan {
            room: Bytes::gib(1),
            ..plan()
        };
        let device = made().await;
        let refused = calibrate(device, options(), &large, &mut |_, _| {})
            .await
            .unwrap_err();
        assert!(
            refused
                .to_string()
                .contains("it needs 1.0 GiB for objects of its own"),
            "{refused}"
        );
    });
}

#[test]
fn the_line_goes_through_points_that_lie_on_one() {
    let points = [1.0, 2.0, 5.0, 9.0].map(|x: f64| (x * 1e5, 3e-4 + x * 2e-3));
    let (fixed, per_byte) = line(&points);
    assert!((fixed - 3e-4).abs() < 1e-9 && (per_byte - 2e-8).abs() < 1e-13);
    // A device that is slower the smaller requests are has no negative cost either.
    let (fixed, per_byte) = line(&[(1e5, 1e-3), (2e5, 4e-3)]);
    assert!(fixed >= 0.0 && per_byte > 0.0);
}

/// What a search finds if all from `least` steps on are enough, except for `unlucky`, when it is tried for longer.
fn searched(least: u64, unlucky: Option<u64>) -> (Share, u64) {
    let plan = Plan {
        step: Share::percent(2),
        most: Share::percent(20),
        ..plan()
    };
    let mut search = Search::new(&plan);
    let mut trials = 0;
    loop {
        match search.turn() {
            Turn::Found(overhead) => return (overhead, trials),
            Turn::Try(overhead, windows) => {
                let steps = overhead.0 / plan.step.0;
                let failed = windows > plan.windows && unlucky == Some(steps);
                search.tried((windows, 0), steps >= least && !failed);
                trials += 1;
            }
        }
    }
}

#[test]
fn a_search_halves_confirms_for_twice_as_long_and_adds_a_step() {
    assert_eq!(searched(3, None), (Share::percent(8), 5));
    assert_eq!(searched(0, None), (Share::percent(2), 5));
    // What was enough by luck is not enough for longer: a step more is tried.
    assert_eq!(searched(3, Some(3)), (Share::percent(10), 6));
    // Nothing that was tried is enough.
    assert_eq!(searched(11, None).0, Share::WHOLE);
}

#[test]
fn where_nothing_is_enough_the_whole_device_must_stay_free() {
    let plan = Plan {
        mixes: vec![Mix::Writes],
        windows: 10,
        most: Share::percent(4),
        ..plan()
    };
    let found = calibrated(1, plan);
    let overheads: Vec<_> = found
        .calibration()
        .points
        .iter()
        .map(|it| it.overhead)
        .collect();
    assert_eq!(overheads, [Share::WHOLE]);
    assert!(found.points[0].violated > 0 && !found.cut);
}

#[test]
fn what_holds_for_many_sessions_is_measured_first() {
    let quick = hardest_first(&Plan::quick());
    let all = [Mix::Reads, Mix::Writes, Mix::Mixed];
    assert_eq!(quick[..3], all.map(|mix| (32, mix)));
    assert_eq!(quick.len(), 6);
    let full = hardest_first(&Plan::full());
    assert_eq!(full[0], (64, Mix::Reads));
    assert_eq!(full[11], (2, Mix::Mixed));
}

/// Answers each request after 5 ms, until it breaks.
struct Breaks {
    at: Instant,
}

impl Ground for Breaks {
    fn ask(&self, _: u32, _: Direction, _: u64, _: Bytes, _: Class) -> Answer {
        let broken = env::now() >= self.at;
        Box::pin(async move {
            env::sleep(Nanos::millis(5)).await;
            match broken {
                true => Err(StoreError::Closed {
                    store: "broken".to_owned(),
                }),
                false => Ok(()),
            }
        })
    }

    fn reach(&self) -> Bytes {
        Bytes::mib(4)
    }
}

#[test]
fn where_it_fails_the_queue_goes_by_the_costs_of_before() {
    env::Runtime::simulated(1).block_on(async {
        let queue = Queue::new(Slow::new(), options());
        let before = queue.costs();
        let plan = Plan {
            probe: Nanos::millis(100),
            ..plan()
        };
        // What requests cost is known after 1.4 s.
        let measured_by = Nanos::millis(2_000);
        let ground = Rc::new(Breaks {
            at: Instant(0) + measured_by,
        });
        let mut trials = 0;
        let mut progress = |what: &str, _: f64| trials += usize::from(what.contains("sessions"));
        let failed = on(ground, &queue, &plan, &mut progress).await;
        assert!(matches!(failed, Err(CalibrateError::Store(_))));
        assert!(trials > 0, "it failed before it believed other costs");
        assert_eq!(queue.costs(), before);
    });
}
