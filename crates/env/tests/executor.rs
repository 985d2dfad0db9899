//! Tasks, timers and channels in virtual time: the order of things, and that it never changes.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, Waker};

use base::{Buf, Instant, Nanos, View};
use env::net::{Address, Datagram, Listener, Stream, sim};
use env::sync::{Closed, Event, Semaphore, channel, join_all};
use env::{Runtime, sleep, sleep_until, spawn};
use proptest::prelude::*;

/// Something of everything: timers, channels, chance, streams and datagrams over a bad network.
async fn program() -> u64 {
    let [a, b] = ["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()];
    let bad = sim::Link {
        loss: 0.2,
        duplication: 0.2,
        reordering: 0.3,
        ..sim::Link::LAN
    };
    sim::set_default_link(bad);
    let (sender, mut receiver) = channel();
    let echo = spawn(sim::on_host(b, async {
        let listener = Listener::bind(&"0.0.0.0:7".parse().unwrap()).unwrap();
        let socket = Datagram::bind("0.0.0.0:7".parse().unwrap()).unwrap();
        let heard = spawn(async move {
            let mut heard = 0;
            while let Ok(message) =
                env::timeout(Nanos::secs(1), socket.receive(Buf::for_read(64))).await
            {
                heard += message.unwrap().0 as u64;
            }
            heard
        });
        let stream = listener.accept().await.unwrap();
        loop {
            let (count, mut buf) = stream.read(Buf::for_read(1000)).await.unwrap();
            if count == 0 {
                return heard.await;
            }
            buf.truncate(count);
            stream.write_all(vec![buf.freeze()]).await.unwrap();
        }
    }));
    for task in 0..10u64 {
        let sender = sender.clone();
        spawn(async move {
            let mut chance = env::rng("test");
            for _ in 0..50 {
                sleep(Nanos(chance.below(10_000))).await;
                sender.send(task + chance.below(1000)).unwrap();
            }
        });
    }
    drop(sender);
    let talk = spawn(sim::on_host(a, async move {
        let stream = Stream::connect(&"10.0.0.2:7".parse().unwrap())
            .await
            .unwrap();
        let socket = Datagram::bind("0.0.0.0:0".parse().unwrap()).unwrap();
        for turn in 1..50usize {
            socket
                .send_to(&vec![0; turn], "10.0.0.2:7".parse().unwrap())
                .await
                .unwrap();
            let sent = View::copy_of(&vec![turn as u8; turn * 100]);
            stream.write_all(vec![sent.clone()]).await.unwrap();
            let back = stream.read_exact(Buf::for_read(sent.len())).await.unwrap();
            assert_eq!(back[..], sent[..]);
        }
    }));
    let mut sum = 0u64;
    while let Ok(number) = receiver.receive().await {
        sum = sum.wrapping_mul(31).wrapping_add(number);
    }
    talk.await;
    sum.wrapping_mul(31).wrapping_add(echo.await)
}

fn outcome(seed: u64) -> (u64, u64) {
    let runtime = Runtime::simulated(seed);
    let sum = runtime.block_on(program());
    (sum, runtime.trace_hash())
}

#[test]
fn a_seed_gives_the_same_run_every_time_and_another_seed_another_run() {
    let mut seen = base::Set::default();
    for seed in 0..20 {
        let first = outcome(seed);
        assert_eq!(first, outcome(seed), "seed {seed}");
        assert!(seen.insert(first.0) && seen.insert(first.1), "seed {seed}");
    }
}

#[test]
fn timers_of_one_deadline_fire_in_the_order_they_were_asked_for() {
    let order = Runtime::simulated(1).block_on(async {
        let order = Rc::new(RefCell::new(Vec::new()));
        let tasks: Vec<_> = (0..100)
            .map(|name| {
                let order = Rc::clone(&order);
                spawn(async move {
                    sleep_until(Instant(1000 + (name % 3))).await;
                    order.borrow_mut().push((env::now().0, name));
                })
            })
            .collect();
        join_all(tasks).await;
        order.take()
    });
    let mut expected: Vec<_> = (0..100).map(|name| (1000 + (name % 3), name)).collect();
    expected.sort();
    assert_eq!(order, expected);
}

#[test]
fn virtual_time_stands_still_while_tasks_run_and_jumps_when_all_wait() {
    Runtime::simulated(1).block_on(async {
        for _ in 0..1000 {
            env::yield_now().await;
        }
        assert_eq!(env::now(), Instant(0));
        sleep(Nanos(1)).await;
        assert_eq!(env::now(), Instant(1));
        sleep(Nanos::secs(1_000_000)).await;
        assert_eq!(env::now(), Instant(1_000_000_000_000_001));
        sleep_until(Instant(5)).await;
        assert_eq!(env::now(), Instant(1_000_000_000_000_001));
    });
}

/// Counts how often it is dropped.
struct Dropped(Rc<Cell<u32>>);
impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

#[test]
fn a_cancelled_task_drops_what_it_holds_at_once_and_never_runs_again() {
    Runtime::simulated(1).block_on(async {
        let dropped = Rc::new(Cell::new(0));
        let reached = Rc::new(Cell::new(0));
        let task = {
            let (held, reached) = (Dropped(Rc::clone(&dropped)), Rc::clone(&reached));
            spawn(async move {
                let _held = held;
                reached.set(1);
                sleep(Nanos(10)).await;
                reached.set(2);
            })
        };
        sleep(Nanos(5)).await;
        assert_eq!((reached.get(), dropped.get()), (1, 0));
        task.cancel();
        assert_eq!(dropped.get(), 1);
        task.cancel();
        sleep(Nanos(100)).await;
        assert_eq!((reached.get(), dropped.get()), (1, 1));
        assert!(!task.is_done());
    });
}

#[test]
fn a_task_that_cancels_itself_ends_at_its_next_wait() {
    Runtime::simulated(1).block_on(async {
        let own: Rc<RefCell<Option<env::Task<()>>>> = Rc::default();
        let reached = Rc::new(Cell::new(0));
        let task = {
            let (own, reached) = (Rc::clone(&own), Rc::clone(&reached));
            spawn(async move {
                own.borrow().as_ref().unwrap().cancel();
                reached.set(1);
                env::yield_now().await;
                reached.set(2);
            })
        };
        *own.borrow_mut() = Some(task);
        sleep(Nanos(5)).await;
        assert_eq!(reached.get(), 1);
    });
}

#[test]
fn a_scope_ends_its_task() {
    Runtime::simulated(1).block_on(async {
        let dropped = Rc::new(Cell::new(0));
        let held = Dropped(Rc::clone(&dropped));
        let guard = env::cancel_scope(spawn(async move {
            let _held = held;
            std::future::pending::<()>().await;
        }));
        env::yield_now().await;
        assert_eq!(dropped.get(), 0);
        drop(guard);
        assert_eq!(dropped.get(), 1);
    });
}

#[test]
fn a_runtime_that_goes_drops_every_task_and_tasks_may_spawn_while_they_drop() {
    struct Spawns(Rc<Cell<u32>>);
    impl Drop for Spawns {
        fn drop(&mut self) {
            let held = Dropped(Rc::clone(&self.0));
            drop(spawn(async move {
                let _held = held;
            }));
        }
    }
    let dropped = Rc::new(Cell::new(0));
    let runtime = Runtime::simulated(1);
    let (held, spawns) = (Dropped(Rc::clone(&dropped)), Spawns(Rc::clone(&dropped)));
    runtime.block_on(async move {
        spawn(async move {
            let _held = (held, spawns);
            std::future::pending::<()>().await;
        });
        env::yield_now().await;
    });
    assert_eq!(dropped.get(), 0);
    drop(runtime);
    assert_eq!(dropped.get(), 2);
}

#[test]
fn a_timeout_ends_at_its_moment_and_drops_the_future_or_leaves_no_trace() {
    Runtime::simulated(1).block_on(async {
        let dropped = Rc::new(Cell::new(0));
        let held = Dropped(Rc::clone(&dropped));
        let late = env::timeout(Nanos(100), async move {
            let _held = held;
            sleep(Nanos(101)).await;
        })
        .await;
        assert_eq!(late, Err(env::Elapsed(Nanos(100))));
        assert_eq!((env::now(), dropped.get()), (Instant(100), 1));
        let soon = env::timeout(Nanos::secs(1000), sleep(Nanos(1))).await;
        assert_eq!((soon, env::now()), (Ok(()), Instant(101)));
        // Were the 1,000-second timer still there, time would be found to have passed.
        sleep(Nanos(1)).await;
        assert_eq!(env::now(), Instant(102));
    });
}

#[test]
#[should_panic(expected = "every task waits and no timer is set")]
fn a_timer_dropped_early_does_not_keep_a_dead_program_alive() {
    Runtime::simulated(1).block_on(async {
        let _ = env::timeout(Nanos::secs(1000), async {}).await;
        let mut sleep = Box::pin(sleep(Nanos(5)));
        poll_fn(|cx| {
            let _ = sleep.as_mut().poll(cx);
            Poll::Ready(())
        })
        .await;
        drop(sleep);
        std::future::pending::<()>().await;
    });
}

#[test]
fn a_sleep_polled_by_another_task_wakes_that_one() {
    Runtime::simulated(1).block_on(async {
        let mut moved = Box::pin(sleep(Nanos(10)));
        poll_fn(|cx| {
            assert!(moved.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        let task = spawn(async move {
            moved.await;
            env::now()
        });
        assert_eq!(task.await, Instant(10));
    });
}

#[test]
fn wakers_of_ended_tasks_and_runtimes_are_harmless() {
    async fn own_waker() -> Waker {
        poll_fn(|cx| Poll::Ready(cx.waker().clone())).await
    }
    let outlived = Runtime::simulated(1).block_on(async {
        let stale = spawn(own_waker()).await;
        // Takes the ended task's place.
        let runs = Rc::new(Cell::new(0));
        let count = Rc::clone(&runs);
        spawn(poll_fn(move |_| {
            count.set(count.get() + 1);
            Poll::<()>::Pending
        }));
        env::yield_now().await;
        assert_eq!(runs.get(), 1);
        for _ in 0..10 {
            stale.wake_by_ref();
            env::yield_now().await;
        }
        assert_eq!(runs.get(), 1, "a stale waker woke a stranger");
        own_waker().await
    });
    outlived.wake();
    let other = Runtime::simulated(2).block_on(own_waker());
    Runtime::simulated(3).block_on(async move { other.wake() });
}

#[test]
fn a_task_woken_many_times_runs_once() {
    Runtime::simulated(1).block_on(async {
        let (runs, waker) = (Rc::new(Cell::new(0)), Rc::new(RefCell::new(None::<Waker>)));
        let (count, place) = (Rc::clone(&runs), Rc::clone(&waker));
        spawn(poll_fn(move |cx| {
            count.set(count.get() + 1);
            *place.borrow_mut() = Some(cx.waker().clone());
            Poll::<()>::Pending
        }));
        env::yield_now().await;
        let waker = waker.take().unwrap();
        for _ in 0..10 {
            waker.wake_by_ref();
        }
        env::yield_now().await;
        env::yield_now().await;
        assert_eq!(runs.get(), 2);
    });
}

#[test]
fn a_semaphore_is_first_come_first_served_even_if_a_later_one_is_smaller() {
    let order = Runtime::simulated(1).block_on(async {
        let semaphore = Semaphore::new(2);
        let order = Rc::new(RefCell::new(Vec::new()));
        let held = semaphore.acquire(2).await;
        let tasks: Vec<_> = [2, 1, 2, 1, 1]
            .into_iter()
            .enumerate()
            .map(|(name, count)| {
                let (semaphore, order) = (Rc::clone(&semaphore), Rc::clone(&order));
                spawn(async move {
                    let _permit = semaphore.acquire(count).await;
                    order.borrow_mut().push((name, env::now().0));
                    sleep(Nanos(10)).await;
                })
            })
            .collect();
        sleep(Nanos(1)).await;
        assert!(semaphore.try_acquire(1).is_none());
        drop(held);
        join_all(tasks).await;
        assert_eq!(semaphore.free(), 2);
        order.take()
    });
    assert_eq!(order, [(0, 1), (1, 11), (2, 21), (3, 31), (4, 31)]);
}

#[test]
fn a_waiter_that_leaves_a_semaphore_holds_up_no_other() {
    Runtime::simulated(1).block_on(async {
        let semaphore = Semaphore::new(1);
        let held = semaphore.acquire(1).await;
        let impatient = {
            let semaphore = Rc::clone(&semaphore);
            spawn(async move { drop(semaphore.acquire(1).await) })
        };
        env::yield_now().await;
        let patient = {
            let semaphore = Rc::clone(&semaphore);
            spawn(async move { drop(semaphore.acquire(1).await) })
        };
        env::yield_now().await;
        // Granted, but cancelled before it could run.
        drop(held);
        impatient.cancel();
        patient.await;
        assert_eq!(semaphore.free(), 1);
    });
}

#[test]
fn a_channel_keeps_order_and_tells_when_the_other_end_is_gone() {
    Runtime::simulated(1).block_on(async {
        let (sender, mut receiver) = channel();
        let other = sender.clone();
        for number in 0..5 {
            sender.send(number).unwrap();
        }
        drop(sender);
        drop(other);
        for number in 0..5 {
            assert_eq!(receiver.receive().await, Ok(number));
        }
        assert_eq!(receiver.receive().await, Err(Closed));
        let (sender, receiver) = channel();
        drop(receiver);
        assert_eq!(sender.send(7), Err(7));
    });
}

#[test]
fn an_event_wakes_all_who_wait_and_is_not_missed_between_ask_and_wait() {
    Runtime::simulated(1).block_on(async {
        let event = Rc::new(Event::default());
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let event = Rc::clone(&event);
                spawn(async move { event.wait().await })
            })
            .collect();
        env::yield_now().await;
        let asked = event.wait();
        event.notify_all();
        asked.await;
        join_all(waiting).await;
    });
}

#[test]
fn streams_of_chance_do_not_disturb_each_other() {
    let draw = |other: bool| {
        Runtime::simulated(9).block_on(async move {
            if other {
                env::rng("other").bits();
            }
            let mut first = env::rng("mine");
            let mut second = env::rng("mine");
            (first.bits(), second.bits())
        })
    };
    let (first, second) = draw(false);
    assert_ne!(first, second);
    assert_eq!(draw(true), (first, second));
}

// --- the whole executor against a reference model ----------------------------------------------------

#[derive(Clone, Debug)]
enum Step {
    /// Sleeps this long.
    Sleep(u64),
    /// Lets others run.
    Yield,
    /// Wakes a task that waits, if it does.
    Wake(usize),
    /// Waits to be woken, but no longer than this.
    Wait(u64),
}

fn script() -> impl Strategy<Value = Vec<Vec<Step>>> {
    let step = prop_oneof![
        (0..6u64).prop_map(Step::Sleep),
        Just(Step::Yield),
        (0..8usize).prop_map(Step::Wake),
        (0..6u64).prop_map(Step::Wait),
    ];
    proptest::collection::vec(proptest::collection::vec(step, 0..12), 1..8)
}

type Log = Vec<(u64, usize, usize)>;

/// What the executor does: (moment, task, step) in the order the steps end.
fn run(script: Vec<Vec<Step>>) -> Log {
    Runtime::simulated(1).block_on(async move {
        let log: Rc<RefCell<Log>> = Rc::default();
        let waiting: Rc<RefCell<Vec<Option<Waker>>>> =
            Rc::new(RefCell::new(vec![None; script.len()]));
        let tasks: Vec<_> = script
            .into_iter()
            .enumerate()
            .map(|(name, steps)| {
                let (log, waiting) = (Rc::clone(&log), Rc::clone(&waiting));
                spawn(async move {
                    for (number, step) in steps.into_iter().enumerate() {
                        match step {
                            Step::Sleep(span) => sleep(Nanos(span)).await,
                            Step::Yield => env::yield_now().await,
                            Step::Wake(other) => {
                                let waker =
                                    waiting.borrow_mut().get_mut(other).and_then(Option::take);
                                if let Some(waker) = waker {
                                    waker.wake();
                                }
                            }
                            Step::Wait(limit) => {
                                let mut sleep = sleep(Nanos(limit));
                                let mut asked = false;
                                poll_fn(|cx| {
                                    let mut waiting = waiting.borrow_mut();
                                    let woken = asked && waiting[name].is_none();
                                    if woken || Pin::new(&mut sleep).poll(cx).is_ready() {
                                        waiting[name] = None;
                                        return Poll::Ready(());
                                    }
                                    asked = true;
                                    waiting[name] = Some(cx.waker().clone());
                                    Poll::Pending
                                })
                                .await;
                            }
                        }
                        log.borrow_mut().push((env::now().0, name, number));
                    }
                })
            })
            .collect();
        join_all(tasks).await;
        log.take()
    })
}

/// The same by a plain list of what is to happen: ready tasks in order, then timers by (moment, order).
fn reference(script: Vec<Vec<Step>>) -> Log {
    #[derive(Clone, Copy, PartialEq)]
    enum Is {
        /// Must begin its step.
        Begins,
        /// Ends its step when it next runs, whatever woke it.
        Ends,
        /// Ends its step if woken or late.
        Waits { until: u64, woken: bool },
    }
    let mut log = Log::new();
    let mut now = 0;
    let mut step_of = vec![0; script.len()];
    let mut state = vec![Is::Begins; script.len()];
    let mut ready: Vec<usize> = (0..script.len()).collect();
    let mut timers: Vec<(u64, usize)> = Vec::new();
    loop {
        while !ready.is_empty() {
            let task = ready.remove(0);
            // One run of the task: as many steps as end without waiting.
            while let Some(step) = script[task].get(step_of[task]) {
                match (state[task], step) {
                    (Is::Ends, _) | (Is::Waits { woken: true, .. }, _) => {}
                    (Is::Waits { until, .. }, _) if until <= now => {}
                    (Is::Waits { .. }, _) => break,
                    (Is::Begins, Step::Yield) => {
                        state[task] = Is::Ends;
                        ready.push(task);
                        break;
                    }
                    (Is::Begins, Step::Sleep(0) | Step::Wait(0)) => {}
                    (Is::Begins, Step::Sleep(span)) => {
                        state[task] = Is::Ends;
                        timers.push((now + span, task));
                        break;
                    }
                    (Is::Begins, Step::Wait(limit)) => {
                        let until = now + limit;
                        state[task] = Is::Waits {
                            until,
                            woken: false,
                        };
                        timers.push((until, task));
                        break;
                    }
                    (Is::Begins, Step::Wake(other)) => {
                        if let Some(Is::Waits { woken, .. }) = state.get_mut(*other)
                            && !*woken
                        {
                            *woken = true;
                            if !ready.contains(other) {
                                ready.push(*other);
                            }
                        }
                    }
                }
                // A step that ended early takes its timer with it.
                timers.retain(|timer| timer.1 != task);
                state[task] = Is::Begins;
                log.push((now, task, step_of[task]));
                step_of[task] += 1;
            }
        }
        let Some(next) = timers.iter().map(|timer| timer.0).min() else {
            return log;
        };
        now = next;
        // `retain` goes in the order the timers were asked for.
        timers.retain(|&(moment, task)| {
            if moment <= now {
                ready.push(task);
            }
            moment > now
        });
    }
}

proptest! {
    #[test]
    fn tasks_and_timers_run_in_the_order_of_a_plain_twin(script in script()) {
        prop_assert_eq!(run(script.clone()), reference(script));
    }
}

#[test]
fn addresses_name_simulated_places_too() {
    Runtime::simulated(1).block_on(async {
        let path: Address = "unix:/run/x.sock".parse().unwrap();
        let _listener = Listener::bind(&path).unwrap();
        let again = Listener::bind(&path).err().unwrap();
        assert_eq!(again.kind(), std::io::ErrorKind::AddrInUse);
        assert_eq!(
            Stream::connect(&path).await.unwrap().peer(),
            "unix:/run/x.sock"
        );
    });
}
