//! A setting of the configuration as the runtime of a data thread takes it.
//!
//! `policy` decides how long to look for work, `env` looks; neither knows the other.

use std::io;

use base::{Instant, Nanos};
use env::{Polling, SpinPolicy, Wait};
use policy::poll::{self, Adaptive, Setting};

use crate::api::status::Thread;

/// What a runtime does to wait as `setting` says.
pub fn polling(setting: Setting) -> Polling {
    match setting {
        Setting::Off => Polling::Off,
        Setting::Adaptive => Polling::By(|| Box::new(Rule::default())),
        Setting::Always => Polling::UpTo(Nanos(u64::MAX)),
    }
}

/// The runtime of a data thread that waits so.
pub fn runtime(setting: Setting) -> io::Result<env::Runtime> {
    env::Runtime::real(env::RealConfig {
        polling: polling(setting),
        ..env::RealConfig::default()
    })
}

/// How the thread of this runtime, with `names` at its top, waited since `since`.
pub fn report(names: &[String], poll: Setting, since: Instant) -> Thread {
    let spun = env::spin_counters();
    Thread {
        names: names.to_owned(),
        poll: poll.name().to_owned(),
        seconds: env::now().since(since).secs_f64(),
        spun_seconds: spun.spun.secs_f64(),
        spun_in_vain_seconds: spun.in_vain.secs_f64(),
    }
}

#[derive(Default)]
struct Rule(Adaptive);

impl SpinPolicy for Rule {
    fn request_ended(&mut self, now: Instant) {
        self.0.request_ended(now);
    }

    fn spin(&mut self, now: Instant, under_way: bool) -> Nanos {
        self.0.spin(now, under_way)
    }

    fn waited(&mut self, wait: &Wait) {
        let &Wait {
            began,
            ended,
            spun,
            found,
            came,
            under_way,
        } = wait;
        self.0.waited(&poll::Wait {
            began,
            ended,
            spun,
            found,
            came,
            under_way,
        });
    }

    fn preempted(&mut self, now: Instant) {
        self.0.preempted(now);
    }
}

#[cfg(test)]
mod tests {
    use env::{RealConfig, Runtime, SpinCounters};

    use super::*;

    fn runtime(setting: Setting) -> Runtime {
        Runtime::real(RealConfig {
            polling: polling(setting),
            ..RealConfig::default()
        })
        .unwrap()
    }

    /// Requests whose client is another thread that asks again at once, for `span`.
    async fn serve(span: Nanos) -> u64 {
        let (to_client, mut at_client) = env::mailbox::<()>();
        let (to_server, mut at_server) = env::mailbox::<()>();
        let asks = move || {
            let config = RealConfig::default();
            Runtime::real(config).unwrap().block_on(async move {
                while to_server.post(()).is_ok() && at_client.receive().await.is_ok() {}
            });
        };
        let client = std::thread::Builder::new().spawn(asks).unwrap();
        let end = env::now() + span;
        let mut served = 0;
        while env::now() < end && at_server.receive().await.is_ok() {
            drop(env::client_request());
            served += 1;
            if to_client.post(()).is_err() {
                break;
            }
        }
        drop((to_client, at_server));
        client.join().unwrap();
        served
    }

    /// Timers, as of a daemon's housekeeping, and no requests.
    async fn idle(span: Nanos) -> SpinCounters {
        let before = env::spin_counters();
        let end = env::now() + span;
        while env::now() < end {
            env::sleep(Nanos::millis(1)).await;
        }
        let after = env::spin_counters();
        SpinCounters {
            spins: after.spins - before.spins,
            found: after.found - before.found,
            spun: after.spun - before.spun,
            in_vain: after.in_vain - before.in_vain,
        }
    }

    #[test]
    fn a_thread_whose_clients_are_silent_does_not_spin() {
        runtime(Setting::Adaptive).block_on(async {
            let nothing = idle(Nanos::millis(50)).await;
            assert_eq!(nothing, SpinCounters::default(), "no client was there yet");
            // On a busy machine others take the processor now and then, and it does not look for 100 ms.
            let mut busy = SpinCounters::default();
            for _ in 0..50 {
                serve(Nanos::millis(100)).await;
                busy = env::spin_counters();
                if busy.spins > 0 {
                    break;
                }
            }
            assert!(busy.spins > 0, "with clients it looks");
            env::sleep(poll::RECENT).await;
            let silent = idle(Nanos::millis(200)).await;
            assert_eq!(silent, SpinCounters::default(), "after {busy:?}");
        });
    }

    #[test]
    fn off_never_spins_and_always_never_sleeps() {
        runtime(Setting::Off).block_on(async {
            serve(Nanos::millis(50)).await;
            assert_eq!(env::spin_counters(), SpinCounters::default());
        });
        runtime(Setting::Always).block_on(async {
            let began = env::now();
            let spun = idle(Nanos::millis(50)).await.spun;
            let whole = env::now().since(began);
            // What is not spent looking is spent running the task.
            assert!(spun.0 * 10 > whole.0 * 9, "{spun} of {whole}");
        });
    }
}
