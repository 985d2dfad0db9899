//! The hand-over in virtual time, and between two real threads.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base::Nanos;
use env::sync::Closed;
use env::{Choice, RealConfig, Refused, Runtime, handover, sleep, spawn};

/// Two pairs of tasks, each with a ring; what came out, in order.
fn two_rings(seed: u64) -> (Vec<(u8, u32)>, u64) {
    let runtime = Runtime::simulated(seed);
    let order = runtime.block_on(async {
        let order: Rc<RefCell<Vec<(u8, u32)>>> = Rc::default();
        let mut takers = Vec::new();
        for name in [b'a', b'b'] {
            let (mut producer, mut consumer) = handover(4);
            spawn(async move {
                for item in 0..50 {
                    producer.send(item).await.unwrap();
                }
            });
            let order = Rc::clone(&order);
            takers.push(spawn(async move {
                while let Ok(item) = consumer.receive().await {
                    order.borrow_mut().push((name, item));
                }
            }));
        }
        for taker in takers {
            taker.await;
        }
        Rc::try_unwrap(order).unwrap().into_inner()
    });
    (order, runtime.trace_hash())
}

#[test]
fn one_seed_gives_one_order_and_seeds_give_both_orders_of_two_rings() {
    let mut first = [false; 2];
    for seed in 0..32 {
        let (order, hash) = two_rings(seed);
        assert_eq!((order.clone(), hash), two_rings(seed));
        for name in [b'a', b'b'] {
            let items: Vec<u32> = order
                .iter()
                .filter(|(from, _)| *from == name)
                .map(|(_, item)| *item)
                .collect();
            assert_eq!(items, (0..50).collect::<Vec<_>>());
        }
        first[usize::from(order[0].0 == b'b')] = true;
    }
    assert_eq!(first, [true, true]);
}

#[test]
fn a_full_ring_stops_the_producer_until_the_consumer_takes_one() {
    Runtime::simulated(1).block_on(async {
        let (mut producer, mut consumer) = handover(2);
        let sent = Rc::new(RefCell::new(0));
        let count = Rc::clone(&sent);
        let sender = spawn(async move {
            for item in 0..5 {
                producer.send(item).await.unwrap();
                *count.borrow_mut() += 1;
            }
            producer
        });
        sleep(Nanos::secs(1)).await;
        assert_eq!(*sent.borrow(), 2);
        assert_eq!(consumer.receive().await, Ok(0));
        sleep(Nanos::secs(1)).await;
        assert_eq!(*sent.borrow(), 3);
        for item in 1..5 {
            assert_eq!(consumer.receive().await, Ok(item));
        }
        let mut producer = sender.await;
        producer.try_send(5).unwrap();
        producer.try_send(6).unwrap();
        assert_eq!(producer.try_send(7), Err(Refused::Full(7)));
        drop(consumer);
        assert_eq!(producer.try_send(8), Err(Refused::Closed(8)));
        assert_eq!(producer.send(9).await, Err(9));
    });
}

#[test]
fn what_is_left_in_the_ring_is_dropped_when_the_consumer_goes() {
    Runtime::simulated(1).block_on(async {
        let (mut producer, mut consumer) = handover(4);
        let item = Arc::new(());
        for _ in 0..3 {
            producer.send(Arc::clone(&item)).await.unwrap();
        }
        // One is taken out of the ring and not yet due, or handed over.
        let _ = env::timeout(Nanos(1), consumer.receive()).await;
        drop(consumer);
        assert_eq!(Arc::strong_count(&item), 1);
        drop(producer);
    });
}

#[test]
fn the_end_comes_after_all_that_was_sent() {
    Runtime::simulated(3).block_on(async {
        let (mut producer, mut consumer) = handover(4);
        producer.send(1).await.unwrap();
        producer.send(2).await.unwrap();
        drop(producer);
        assert_eq!(consumer.receive().await, Ok(1));
        assert_eq!(consumer.receive().await, Ok(2));
        assert_eq!(consumer.receive().await, Err(Closed));
    });
}

/// A runtime of each driver that this system offers.
fn real(thread_pool: Choice) -> Runtime {
    Runtime::real(RealConfig {
        seed: Some(1),
        thread_pool,
        ..RealConfig::default()
    })
    .unwrap()
}

#[test]
fn two_threads_share_a_ring_that_runs_full_and_empty() {
    const ITEMS: u64 = 200_000;
    for choice in [Choice::Auto, Choice::Always] {
        let (mut producer, mut consumer) = handover(16);
        let (mut back, mut answers) = handover(16);
        let echo = std::thread::Builder::new()
            .spawn(move || {
                real(choice).block_on(async move {
                    while let Ok(item) = consumer.receive().await {
                        back.send(item).await.unwrap();
                    }
                });
            })
            .unwrap();
        real(choice).block_on(async move {
            let sender = spawn(async move {
                for item in 0..ITEMS {
                    producer.send(item).await.unwrap();
                    if item % 1000 == 0 {
                        // Both threads fall asleep now and then.
                        sleep(Nanos::micros(20)).await;
                    }
                }
            });
            for item in 0..ITEMS {
                assert_eq!(answers.receive().await, Ok(item));
            }
            sender.await;
            assert_eq!(answers.receive().await, Err(Closed));
        });
        echo.join().unwrap();
    }
}

#[test]
fn the_death_of_a_thread_is_seen_by_the_other_one() {
    for choice in [Choice::Auto, Choice::Always] {
        let (mut producer, mut consumer) = handover::<u64>(2);
        let (_kept, mut answers) = handover::<u64>(2);
        let taken = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&taken);
        let other = std::thread::Builder::new()
            .spawn(move || {
                real(choice).block_on(async move {
                    // This runtime ends with a task that still waits, and its ring with it.
                    spawn(async move {
                        let _ = answers.receive().await;
                    });
                    while consumer.receive().await.unwrap() < 10 {
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                });
            })
            .unwrap();
        let sent = real(choice).block_on(async move {
            let mut sent = 0;
            while producer.send(sent).await.is_ok() {
                sent += 1;
            }
            sent
        });
        other.join().unwrap();
        assert_eq!(taken.load(Ordering::Relaxed), 10);
        assert!((11..=14).contains(&sent), "{sent}");
    }
}
