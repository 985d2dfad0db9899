//! The ring beneath the hand-over, walked through by `loom`: every interleaving of its two ends, within bounds on preemptions.
//!
//! The product's own file is compiled here with loom's atomics in place of the standard ones, so no special build is needed.

#![allow(unsafe_code)] // The ring's own; see there.

use std::sync::Arc;
use std::task::{Wake, Waker};

use loom::model::Builder;
use loom::sync::Notify;
use loom::thread;

mod atomics {
    pub(super) use loom::cell::UnsafeCell;
    pub(super) use loom::sync::Arc;
    pub(super) use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering, fence};
}

#[path = "../src/handover/ring.rs"]
mod ring;

use ring::{Found, In, Out, Refused, ring};

/// A thread that waits for its waker; loom reports one that is never woken.
struct Parked(Notify);

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.0.notify();
    }
}

fn parked() -> (Arc<Parked>, Waker) {
    let parked = Arc::new(Parked(Notify::new()));
    let waker = Waker::from(Arc::clone(&parked));
    (parked, waker)
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// Sends, waiting for room; false if the consumer is gone.
fn send<T>(into: &mut In<T>, item: T) -> bool {
    let (parked, waker) = parked();
    let mut item = item;
    loop {
        match into.push(item) {
            Ok(woken) => {
                wake(woken);
                return true;
            }
            Err(Refused::Closed(_)) => return false,
            Err(Refused::Full(back)) => item = back,
        }
        match into.wait_for_room(&waker) {
            true => parked.0.wait(),
            false => thread::yield_now(),
        }
    }
}

/// Receives, waiting for an item; none if the producer is gone.
fn receive<T>(out: &mut Out<T>) -> Option<T> {
    let (parked, waker) = parked();
    loop {
        let (found, woken) = out.pop();
        wake(woken);
        match found {
            Found::Item(item) => return Some(item),
            Found::Closed => return None,
            Found::Nothing if out.wait_for_item(&waker) => parked.0.wait(),
            Found::Nothing => thread::yield_now(),
        }
    }
}

fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

#[test]
fn all_that_is_sent_comes_out_in_order_through_a_ring_of_one() {
    explore(2, || {
        let (mut into, mut out) = ring(1);
        let sender = thread::spawn(move || {
            for item in 0..3 {
                assert!(send(&mut into, Box::new(item)));
            }
            wake(into.close());
        });
        for item in 0..3 {
            assert_eq!(receive(&mut out).as_deref(), Some(&item));
        }
        assert_eq!(receive(&mut out), None);
        sender.join().unwrap();
    });
}

#[test]
fn a_ring_of_two_fills_and_empties_while_both_ends_wait() {
    explore(2, || {
        let (mut into, mut out) = ring(2);
        let sender = thread::spawn(move || {
            for item in 0..3 {
                assert!(send(&mut into, Box::new(item)));
            }
        });
        for item in 0..3 {
            assert_eq!(receive(&mut out).as_deref(), Some(&item));
        }
        sender.join().unwrap();
        let (found, _) = out.pop();
        assert_eq!(found, Found::Nothing, "closed by `close` alone");
    });
}

#[test]
fn a_producer_that_waits_for_room_learns_that_the_consumer_went() {
    explore(2, || {
        let (mut into, mut out) = ring(1);
        let receiver = thread::spawn(move || {
            let first = receive(&mut out);
            wake(out.close());
            first
        });
        let sent = (0..3).take_while(|item| send(&mut into, Box::new(*item)));
        let sent = sent.count();
        assert!(sent == 1 || sent == 2, "{sent} were taken");
        assert_eq!(receiver.join().unwrap().as_deref(), Some(&0));
        // What was not taken goes with the ring: loom reports what is never dropped.
    });
}

#[test]
fn a_consumer_that_waits_learns_that_the_producer_went() {
    explore(3, || {
        let (mut into, mut out) = ring::<Box<u8>>(1);
        let sender = thread::spawn(move || {
            assert!(send(&mut into, Box::new(1)));
            wake(into.close());
        });
        assert_eq!(receive(&mut out).as_deref(), Some(&1));
        assert_eq!(receive(&mut out), None);
        sender.join().unwrap();
    });
}

#[test]
fn a_waker_that_is_replaced_while_it_is_taken_is_not_lost() {
    explore(3, || {
        let (mut into, mut out) = ring(1);
        let sender = thread::spawn(move || {
            assert!(send(&mut into, Box::new(1)));
            into
        });
        // Leaves one waker, then waits with another one.
        let (_, first) = parked();
        let _ = out.wait_for_item(&first);
        assert_eq!(receive(&mut out).as_deref(), Some(&1));
        drop(sender.join().unwrap());
    });
}
