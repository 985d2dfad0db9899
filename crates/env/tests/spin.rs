//! Looking for work before sleeping, on the real driver: what the policy is asked and told, and what is watched meanwhile.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::{Instant, Nanos};
use env::sync::Event;
use env::{Choice, Polling, RealConfig, Runtime, SpinPolicy, Wait, Watched};

/// What the policy of this thread was asked and told.
#[derive(Default)]
struct Log {
    requests_ended: u32,
    asked: Vec<bool>,
    waits: Vec<Wait>,
}

thread_local! {
    static LOG: RefCell<Log> = RefCell::default();
    static GRANT: Cell<Nanos> = const { Cell::new(Nanos(0)) };
}

struct Recorded;

impl SpinPolicy for Recorded {
    fn request_ended(&mut self, _now: Instant) {
        LOG.with_borrow_mut(|log| log.requests_ended += 1);
    }

    fn spin(&mut self, _now: Instant, under_way: bool) -> Nanos {
        LOG.with_borrow_mut(|log| log.asked.push(under_way));
        GRANT.get()
    }

    fn waited(&mut self, wait: &Wait) {
        LOG.with_borrow_mut(|log| log.waits.push(*wait));
    }

    fn preempted(&mut self, _now: Instant) {}
}

fn runtimes() -> Vec<Runtime> {
    let made = |thread_pool| {
        Runtime::real(RealConfig {
            thread_pool,
            polling: Polling::By(|| Box::new(Recorded)),
            ..RealConfig::default()
        })
        .unwrap()
    };
    vec![made(Choice::Auto), made(Choice::Always)]
}

/// Begins anew, with `grant` for each wait.
fn grant(span: Nanos) {
    LOG.take();
    GRANT.set(span);
}

#[test]
fn the_policy_hears_how_each_wait_went() {
    for runtime in runtimes() {
        runtime.block_on(async {
            // A timer that is due within the grant ends the wait; nothing came.
            grant(Nanos::secs(10));
            env::sleep(Nanos::millis(2)).await;
            let log = LOG.take();
            assert!(log.asked.len() >= log.waits.len());
            let wait = log.waits.last().unwrap();
            assert!(!wait.found && !wait.came, "{wait:?}");
            assert!(wait.spun >= Nanos::millis(1), "{wait:?}");
            assert_eq!(wait.ended, wait.began + wait.spun);

            // Beyond the grant it sleeps. Long enough that no busy machine holds the thread back until the timer is due.
            grant(Nanos::micros(100));
            env::sleep(Nanos::millis(200)).await;
            let log = LOG.take();
            let wait = log.waits.last().unwrap();
            assert!(!wait.found && !wait.came, "{wait:?}");
            assert!(wait.spun >= Nanos::micros(100), "{wait:?}");
            assert!(wait.ended.since(wait.began) > wait.spun, "{wait:?}");

            // Another thread's word is found while looking, and awaited asleep where nothing is granted.
            for (span, found) in [(Nanos::secs(10), true), (Nanos(0), false)] {
                let (poster, mut mailbox) = env::mailbox();
                let before = env::spin_counters();
                grant(span);
                let other = move || {
                    let runtime = Runtime::real(RealConfig::default()).unwrap();
                    runtime.block_on(async { env::sleep(Nanos::millis(5)).await });
                    poster.post(()).ok();
                };
                let thread = std::thread::Builder::new().spawn(other).unwrap();
                mailbox.receive().await.unwrap();
                let log = LOG.take();
                thread.join().unwrap();
                let wait = log.waits.last().unwrap();
                assert_eq!((wait.found, wait.came), (found, true), "{wait:?}");
                let after = env::spin_counters();
                assert_eq!(after.found - before.found, u64::from(found));
                assert_eq!(after.in_vain, before.in_vain);
            }
        });
    }
}

#[test]
fn the_policy_hears_of_requests_of_clients() {
    for runtime in runtimes() {
        runtime.block_on(async {
            grant(Nanos(0));
            env::sleep(Nanos::millis(1)).await;
            let log = LOG.take();
            assert_eq!(log.requests_ended, 0);
            assert!(log.asked.iter().all(|under_way| !under_way));
            let (one, other) = (env::client_request(), env::client_request());
            drop(one);
            env::sleep(Nanos::millis(1)).await;
            let log = LOG.take();
            assert_eq!(log.requests_ended, 1);
            assert!(log.asked.iter().all(|under_way| *under_way));
            drop(other);
            env::sleep(Nanos::millis(1)).await;
            let log = LOG.take();
            assert_eq!(log.requests_ended, 1);
            assert!(log.asked.iter().all(|under_way| !under_way));
        });
    }
}

/// A queue whose other side fills it after some looks.
struct Queue {
    looks_left: Cell<u32>,
    suppressed: Cell<bool>,
    /// Something comes between the last look and the end.
    late: bool,
    filled: Cell<bool>,
    came: Event,
    calls: RefCell<Vec<&'static str>>,
}

impl Watched for Queue {
    fn spin_begins(&self) {
        assert!(env::is_spinning());
        self.suppressed.set(true);
        self.calls.borrow_mut().push("begins");
    }

    fn look(&self) -> bool {
        assert!(self.suppressed.get());
        self.looks_left.set(self.looks_left.get().saturating_sub(1));
        let here = self.looks_left.get() == 0 && !self.late;
        if here {
            self.filled.set(true);
            self.came.notify_all();
        }
        here
    }

    fn spin_ends(&self) -> bool {
        assert!(!env::is_spinning());
        self.suppressed.set(false);
        self.calls.borrow_mut().push("ends");
        if self.late {
            self.filled.set(true);
            self.came.notify_all();
        }
        self.late
    }
}

#[test]
fn what_is_watched_is_looked_at_while_the_thread_spins_and_not_afterwards() {
    for runtime in runtimes() {
        for late in [false, true] {
            runtime.block_on(async move {
                // Nothing wakes a thread that sleeps here, so it is to look until the third time.
                grant(if late {
                    Nanos::millis(2)
                } else {
                    Nanos::secs(600)
                });
                let queue = Rc::new(Queue {
                    looks_left: Cell::new(3),
                    suppressed: Cell::new(false),
                    late,
                    filled: Cell::new(false),
                    came: Event::default(),
                    calls: RefCell::default(),
                });
                let watched: Rc<dyn Watched> = queue.clone();
                assert!(env::watch(&watched));
                while !queue.filled.get() {
                    queue.came.wait().await;
                }
                assert!(!queue.suppressed.get());
                let calls = queue.calls.borrow().clone();
                assert_eq!(calls.last(), Some(&"ends"));
                assert!(calls.chunks(2).all(|pair| pair == ["begins", "ends"]));
                let wait = *LOG.take().waits.last().unwrap();
                assert!(wait.found, "{wait:?}");
                drop(watched);
                // It is forgotten with its last owner.
                let count = calls.len();
                drop(queue);
                env::sleep(Nanos::millis(1)).await;
                assert!(count >= 2);
            });
        }
    }
}

#[test]
fn nothing_spins_in_virtual_time_or_unasked() {
    let asleep = Runtime::real(RealConfig::default()).unwrap();
    for runtime in [Runtime::simulated(1), asleep] {
        runtime.block_on(async {
            let _request = env::client_request();
            env::sleep(Nanos::millis(1)).await;
            assert!(!env::is_spinning());
            assert_eq!(env::spin_counters(), env::SpinCounters::default());
        });
    }
}
