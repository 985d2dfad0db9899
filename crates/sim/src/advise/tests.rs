//! Is the advice what a careful reader of the curves would say, and does the engine bear it out?

use super::*;
use crate::run::{Made, Modelled, Outcome, Replay, Stack, WarmUp, run};
use trace::{ReadOptions, Requests, TraceError, open};

/// Reads and writes of pages at 40 a second: a hot set of 16 MiB in 512 MiB, and all the rest now and then.
fn requests(count: u64) -> Vec<Request> {
    let mut state = 42u64;
    let mut at = 0;
    let mut random = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state >> 33
    };
    (0..count)
        .map(|_| {
            at += 1_000_000 * (random() % 50);
            let hot = random() % 10 < 9;
            let page = random() % if hot { 4_096 } else { 131_072 };
            Request {
                at: Nanos(at),
                offset: Bytes(page * PAGE),
                size: Bytes(PAGE),
                device: 0,
                op: if random() % 4 == 0 {
                    Op::Write
                } else {
                    Op::Read
                },
            }
        })
        .collect()
}

fn options() -> Options {
    Options {
        slow: Spec::find("hdd-7200-sata").expect("a model"),
        fast: Spec::find("ssd-sata-mlc").expect("a model"),
        policies: vec![Kind::Lru, Kind::S3Fifo],
        sizes: [2, 4, 8, 16, 32, 64].map(Bytes::mib).to_vec(),
        endurance: 1.0,
        engine_requests: 0,
        seed: 1,
    }
}

fn advise(requests: &[Request], options: Options) -> Advice {
    let mut adviser = Adviser::new(options).expect("the options make sense");
    for request in requests {
        adviser.push(request).expect("every request is possible");
    }
    adviser.advise(&|_, _| ()).expect("there is advice")
}

#[test]
fn the_knee_is_where_the_hot_set_fits() {
    let advice = advise(&requests(40_000), options());
    let chosen = &advice.candidates[advice.chosen.expect("a cache helps")];
    for reason in &advice.reasons {
        println!("{reason}");
    }
    let size = Bytes(chosen.size_bytes);
    assert!((Bytes::mib(16)..=Bytes::mib(32)).contains(&size), "{size}");
    assert!(chosen.response_us_mean < advice.alone.response_us_mean / 2.0);
    assert!(
        chosen.slow_requests_saved > 0.3,
        "{}",
        chosen.slow_requests_saved
    );
    assert_eq!(
        advice.candidates.len(),
        6 + 3 - usize::from(chosen.policy == "lru")
    );
    assert!(
        advice.reasons[0].contains("on average instead of"),
        "{}",
        advice.reasons[0]
    );
}

#[test]
fn what_is_asked_for_once_needs_no_cache() {
    let once: Vec<Request> = (0..3_000)
        .map(|n| Request {
            at: Nanos::millis(30 * n),
            offset: Bytes((n * 7_919 % 3_001) << 16),
            size: Bytes(PAGE),
            device: 0,
            op: Op::Read,
        })
        .collect();
    let advice = advise(&once, options());
    assert_eq!(advice.chosen, None);
    assert!(
        advice.reasons[0].starts_with("No cache looked at helps"),
        "{}",
        advice.reasons[0]
    );
}

#[test]
fn a_long_write_through_is_one_request_to_the_slow_device() {
    // Neighbours that come back in another order, so that frames lie anywhere.
    let writes: Vec<Request> = (0..2_000)
        .map(|n| Request {
            at: Nanos::millis(40 * n),
            offset: Bytes((n * 7 % 61) << 16),
            size: Bytes::kib(64),
            device: 0,
            op: Op::Write,
        })
        .collect();
    let sizes = vec![Bytes::mib(1)];
    let advice = advise(&writes, Options { sizes, ..options() });
    for write in ["through", "around"] {
        let one = advice.candidates.iter().find(|one| one.write == write);
        assert_eq!(
            one.map(|one| one.slow_requests),
            Some(2_000),
            "write-{write}"
        );
    }
}

#[test]
fn nothing_to_choose_from_is_refused() {
    let none = Options {
        policies: Vec::new(),
        ..options()
    };
    assert!(matches!(Adviser::new(none), Err(AdviseError::NoPolicy)));
    let small = Options {
        sizes: vec![Bytes(512)],
        ..options()
    };
    let refused = Adviser::new(small).unwrap_err().to_string();
    assert_eq!(
        refused,
        "a cache of 512 B is too small to be served: 256.0 KiB is the least"
    );
}

struct Listed(std::vec::IntoIter<Request>);
impl Requests for Listed {
    fn next_batch(&mut self, batch: &mut Vec<Request>) -> Result<bool, TraceError> {
        batch.clear();
        batch.extend(self.0.by_ref().take(4096));
        Ok(!batch.is_empty())
    }
}

/// The stack of one hybrid with the defaults but for what is given.
fn stack(settings: hybrid::Settings, fast: Bytes) -> Stack {
    let modelled = |name: &str, spec: &Spec, size| Modelled {
        name: name.to_owned(),
        spec: spec.clone(),
        size,
    };
    let options = options();
    Stack {
        name: "advised".to_owned(),
        devices: vec![
            modelled("slow", &options.slow, options.slow.size),
            modelled("fast", &options.fast, fast),
        ],
        stripes: Vec::new(),
        hybrids: vec![Made {
            settings: hybrid::Settings {
                name: "vol".to_owned(),
                ..settings
            },
            slow: "slow".to_owned(),
            fast: "fast".to_owned(),
        }],
        volume: "vol".to_owned(),
        config: String::new(),
    }
}

fn mean(outcome: &Outcome) -> f64 {
    let all = outcome.response("all").expect("there were requests");
    all.mean_us
}

#[test]
fn the_quick_model_is_near_the_engine_where_nothing_is_sequential() {
    let requests = requests(12_000);
    let sizes = vec![Bytes::mib(16)];
    let advice = advise(&requests, Options { sizes, ..options() });
    for write in [WriteMode::Back, WriteMode::Through] {
        let found = advice
            .candidates
            .iter()
            .find(|one| one.write == write.to_string());
        let one = found.expect("the mode was looked at");
        let settings = hybrid::Settings {
            policy: one.policy.parse().expect("a policy"),
            write,
            fast_bytes: Some(Bytes::mib(16)),
            ..hybrid::Settings::default()
        };
        let mut listed = Listed(requests.clone().into_iter());
        let outcome = run(
            &stack(settings, Bytes::gib(1)),
            &mut listed,
            &Replay::default(),
        );
        let real = mean(&outcome.expect("the stack runs"));
        let error = one.response_us_mean / real - 1.0;
        println!(
            "write-{write}: the model {:.0} us, the engine {real:.0} us ({:+.0} %)",
            one.response_us_mean,
            100.0 * error
        );
        assert!(
            error.abs() < 0.35,
            "write-{write}: {:.0} us, engine {real:.0}",
            one.response_us_mean
        );
    }
}

/// The first requests of a shared trace; `None` where traces are absent and not required.
fn cloudphysics(count: usize) -> Option<Vec<Request>> {
    let path = testkit::traces::shared("cloudphysics/cloudPhysicsIO.vscsi.zst")?;
    let mut trace = open(&path, &ReadOptions::default()).expect("the shared trace opens");
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    while all.len() < count && trace.next_batch(&mut batch).expect("the trace is whole") {
        all.extend_from_slice(&batch);
    }
    all.truncate(count);
    Some(all)
}

#[test]
fn serving_cloudphysics_as_advised_answers_as_promised() {
    let Some(requests) = cloudphysics(6_000) else {
        return;
    };
    let asked = Options {
        policies: vec![Kind::WTinyLfu],
        sizes: vec![Bytes::mib(256)],
        engine_requests: 8_000,
        ..options()
    };
    let seed = asked.seed;
    let advice = advise(&requests, asked);
    for one in &advice.candidates {
        println!(
            "{} {} bypass {:?} by {:?}: {:.0} us",
            one.policy, one.write, one.sequential_bypass_bytes, one.by, one.response_us_mean
        );
    }
    for reason in &advice.reasons {
        println!("{reason}");
    }
    assert_eq!(
        (advice.timed_requests, advice.engine_warm_up_requests),
        (4_000, 2_000)
    );
    let one = &advice.candidates[advice.chosen.expect("a cache helps")];
    assert_eq!(one.by, By::Engine);
    let configuration = advice.configuration.as_deref().expect("it is advised");
    let says = |line: &str| configuration.lines().any(|one| one == line);
    assert!(
        says(&format!("policy = \"{}\"", one.policy)),
        "{configuration}"
    );
    assert!(says("fast_size = \"256MiB\""), "{configuration}");
    let off = says("sequential_bypass = \"off\"");
    assert!(
        off || says("sequential_bypass = \"1MiB\""),
        "{configuration}"
    );

    // As the configuration says, but for another size of the fast device, which the advice does not know.
    let mut settings = hybrid::Settings {
        policy: one.policy.parse().expect("a policy"),
        write: one.write.parse().expect("a mode"),
        fast_bytes: Some(Bytes::mib(256)),
        ..hybrid::Settings::default()
    };
    if off {
        settings.sequential_bypass = None;
    }
    let replay = Replay {
        warm_up: WarmUp::Requests(2_000),
        seed,
        ..Replay::default()
    };
    let mut listed = Listed(requests.into_iter());
    let served = run(&stack(settings, Bytes::gib(8)), &mut listed, &replay);
    let served = mean(&served.expect("the stack runs"));
    let error = one.response_us_mean / served - 1.0;
    println!(
        "promised {:.0} us, served {served:.0} us",
        one.response_us_mean
    );
    assert!(
        error.abs() < 0.05,
        "{:.0} us, served {served:.0}",
        one.response_us_mean
    );

    // Nothing looked at with the engine would have been much better.
    let engine = advice.candidates.iter().filter(|one| one.by == By::Engine);
    let best = engine
        .map(|one| one.response_us_mean)
        .fold(f64::MAX, f64::min);
    assert!(one.response_us_mean <= 1.05 * best);
}

#[test]
fn what_wears_out_the_fast_device_is_not_advised() {
    let endurance = 1e-6;
    let advice = advise(
        &requests(4_000),
        Options {
            endurance,
            ..options()
        },
    );
    assert_eq!((advice.chosen, &advice.configuration), (None, &None));
    assert!(
        advice.reasons[0].contains("none within the endurance"),
        "{}",
        advice.reasons[0]
    );
}

#[test]
fn what_the_model_promises_is_tried_before_no_is_said() {
    let row = |by: By, us: f64, wear: f64| Candidate {
        policy: "lru".to_owned(),
        size_bytes: 1 << 30,
        write: "back".to_owned(),
        sequential_bypass_bytes: None,
        by,
        read_hit_ratio: 0.5,
        response_us_mean: us,
        read_us_mean: us,
        write_us_mean: us,
        slow_requests: 1,
        slow_requests_saved: 0.5,
        flash_bytes_per_day: 0.0,
        device_writes_per_day: wear,
        watts: 1.0,
    };
    let alone = Alone {
        response_us_mean: 100.0,
        read_us_mean: 100.0,
        write_us_mean: 100.0,
        slow_requests: 2,
        watts: 1.0,
    };
    let no = [
        row(By::Engine, 99.0, 0.1),
        row(By::Model, 3.0, 0.1),
        row(By::Model, 2.0, 5.0),
        row(By::Model, 98.0, 0.1),
    ];
    assert_eq!(
        choose::untried(&alone, &no, 1.0),
        [1],
        "it gains, and wears nothing out"
    );
    let yes = [row(By::Engine, 50.0, 0.1), row(By::Model, 3.0, 0.1)];
    assert!(choose::untried(&alone, &yes, 1.0).is_empty());
}

#[test]
fn any_candidate_can_be_chosen() {
    let row = |policy: &str, write: &str, size: u64, us: f64, wear: f64| Candidate {
        policy: policy.to_owned(),
        size_bytes: size,
        write: write.to_owned(),
        sequential_bypass_bytes: None,
        by: By::Model,
        read_hit_ratio: 0.5,
        response_us_mean: us,
        read_us_mean: us,
        write_us_mean: us,
        slow_requests: 1,
        slow_requests_saved: 0.5,
        flash_bytes_per_day: wear * size as f64,
        device_writes_per_day: wear,
        watts: 1.0,
    };
    let alone = Alone {
        response_us_mean: 1_000.0,
        read_us_mean: 1_000.0,
        write_us_mean: 1_000.0,
        slow_requests: 2,
        watts: 1.0,
    };
    let mut rows = vec![
        row("s3-fifo", "back", 1 << 20, 400.0, 0.5),
        row("s3-fifo", "back", 2 << 20, 100.0, 0.5),
        row("s3-fifo", "around", 2 << 20, 300.0, 0.1),
        row("lru", "back", 2 << 20, 90.0, 0.9),
    ];
    // The fastest, whatever its policy.
    assert_eq!(choice(&alone, &rows, 1.0), Choice::Advised(3));
    // Not beyond the endurance.
    assert_eq!(choice(&alone, &rows, 0.6), Choice::Advised(1));
    assert_eq!(choice(&alone, &rows, 0.3), Choice::Advised(2));
    assert_eq!(choice(&alone, &rows, 0.01), Choice::Worn(3));
    // Around, where it is as fast.
    rows[2].response_us_mean = 93.0;
    assert_eq!(choice(&alone, &rows, 1.0), Choice::Advised(2));
    // What the engine was not asked about does not count beside what it was.
    rows[1].by = By::Engine;
    assert_eq!(choice(&alone, &rows, 1.0), Choice::Advised(1));
    // The default bypass, unless without it is much faster.
    rows[3] = Candidate {
        sequential_bypass_bytes: Some(1 << 20),
        response_us_mean: 104.0,
        ..rows[1].clone()
    };
    assert_eq!(choice(&alone, &rows, 1.0), Choice::Advised(3));
    rows[3].response_us_mean = 107.0;
    assert_eq!(choice(&alone, &rows, 1.0), Choice::Advised(1));
    assert_eq!(
        configuration(&rows[1]),
        "mode = \"cache\"\npolicy = \"s3-fifo\"\nwrite = \"back\"\nfast_size = \"2MiB\"\nsequential_bypass = \"off\"\n"
    );
}

#[test]
fn devices_that_reach_too_far_together_are_refused() {
    let mut adviser = Adviser::new(options()).expect("the options make sense");
    for device in 0..3 {
        let read = Request {
            at: Nanos(0),
            offset: Bytes((1 << 63) - PAGE),
            size: Bytes(PAGE),
            device,
            op: Op::Read,
        };
        adviser.push(&read).expect("each alone is possible");
    }
    let refused = adviser.advise(&|_, _| ()).expect_err("no disk is so large");
    assert!(matches!(refused, AdviseError::TooLarge), "{refused}");
}
