//! A guest whose server looks at its ring for a while, instead of being kicked.

use std::rc::Rc;

use base::Nanos;
use env::Watched;

use crate::client::Client;
use crate::guest::{Ask, Guest};
use crate::{SOCKET, serve, simulated};

/// A thread of the server's that spins now and then, for a second or so. Here tasks run meanwhile, so that more can go wrong
/// than on a real one. `blind`: some day it leaves off without a last look.
pub async fn spin(watched: Rc<dyn Watched>, blind: bool) {
    let mut rng = env::rng("spins");
    for _ in 0..4_000 {
        env::sleep(Nanos(rng.below(300_000))).await;
        watched.spin_begins();
        for _ in 0..rng.below(4) {
            env::sleep(Nanos(rng.below(100_000))).await;
            if watched.look() {
                break;
            }
        }
        if blind && rng.chance(0.01) {
            return;
        }
        watched.spin_ends();
    }
}

/// Asks for a flush, and lets what is ready run.
async fn flush(guest: &Rc<Guest>) -> env::Task<Result<Vec<u8>, u8>> {
    let asking = Rc::clone(guest);
    let flushing = env::spawn(async move { asking.submit(Ask::Flush).await });
    env::sleep(Nanos::millis(1)).await;
    flushing
}

#[test]
fn a_guest_kicks_no_server_that_looks_by_itself() {
    for event_idx in [true, false] {
        simulated(async move |memory| {
            let server = serve(memory, false, false);
            let guest = Guest::new(event_idx);
            let client = Client::new(&guest, SOCKET);
            client.connect().await.unwrap();
            guest.submit(Ask::Flush).await.unwrap();
            env::sleep(Nanos::millis(1)).await;
            let watched = server.watched();
            for round in 0..5u64 {
                let (kicks, under_way) = (guest.kicks.get(), guest.under_way());
                watched.spin_begins();
                assert!(!watched.look(), "nothing has come");
                let flushing = flush(&guest).await;
                assert_eq!(guest.under_way(), under_way + 1, "it is not looked at");
                // Seen by a look, or by the last one.
                match round % 2 {
                    0 => assert!(watched.look() && !watched.spin_ends()),
                    _ => assert!(watched.spin_ends()),
                }
                flushing.await.unwrap();
                assert_eq!(guest.kicks.get(), kicks, "no kick was wanted");
                env::sleep(Nanos::millis(1)).await;
                flush(&guest).await.await.unwrap();
                assert_eq!(guest.kicks.get(), kicks + 1, "it sleeps again");
            }
        });
    }
}

/// What is stopped, or was left by its client, is neither looked at nor written to.
#[test]
fn a_spin_leaves_queues_alone_that_are_not_served() {
    simulated(async |memory| {
        let server = serve(memory, false, false);
        let guest = Guest::new(false);
        let client = Client::new(&guest, SOCKET);
        client.connect().await.unwrap();
        guest.submit(Ask::Flush).await.unwrap();
        client.stop_queue(0).await.unwrap();
        let watched = server.watched();
        watched.spin_begins();
        let flushing = flush(&guest).await;
        assert_eq!(guest.kicks.get(), 2, "a stopped queue asks for nothing");
        assert!(!watched.look() && !watched.spin_ends());
        client.begin_queue(0).await.unwrap();
        flushing.await.unwrap();
        // Its client goes while the thread spins.
        watched.spin_begins();
        client.hang_up();
        env::sleep(Nanos::millis(1)).await;
        assert!(!watched.look() && !watched.spin_ends());
        client.connect().await.unwrap();
        guest.submit(Ask::Flush).await.unwrap();
    });
}
