//! Is the advice what a careful reader of the curves would say, and does the engine bear it out?

use super::*;
use crate::sim::run::{Made, Modelled, Replay, Stack, run};
use crate::trace::{Requests, TraceError};

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
        "a cache of 512 B holds not one page of 4 KiB; ask for more"
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

#[test]
fn the_engine_does_what_was_advised_it_would() {
    let requests = requests(12_000);
    let sizes = vec![Bytes::mib(16)];
    let advice = advise(&requests, Options { sizes, ..options() });
    let engine = |write: WriteMode, policy: &str| {
        let modelled = |name: &str, spec: &Spec, size| Modelled {
            name: name.to_owned(),
            spec: spec.clone(),
            size,
        };
        let options = options();
        let stack = Stack {
            name: "advised".to_owned(),
            devices: vec![
                modelled("slow", &options.slow, Bytes::gib(500)),
                modelled("fast", &options.fast, Bytes::gib(1)),
            ],
            hybrids: vec![Made {
                settings: hybrid::Settings {
                    name: "vol".to_owned(),
                    policy: policy.parse().expect("a policy"),
                    write,
                    fast_bytes: Some(Bytes::mib(24)),
                    ..hybrid::Settings::default()
                },
                slow: "slow".to_owned(),
                fast: "fast".to_owned(),
            }],
            volume: "vol".to_owned(),
            config: String::new(),
        };
        let mut listed = Listed(requests.clone().into_iter());
        let outcome = run(&stack, &mut listed, &Replay::default()).expect("the stack runs");
        outcome
            .response("all")
            .expect("there were requests")
            .mean_us
    };
    for write in [WriteMode::Back, WriteMode::Through] {
        let found = advice
            .candidates
            .iter()
            .find(|one| one.write == write.to_string());
        let one = found.expect("the mode was looked at");
        let real = engine(write, &one.policy);
        let error = one.response_us_mean / real - 1.0;
        println!(
            "write-{write}: advised {:.0} us, the engine {real:.0} us ({:+.0} %)",
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
