//! The store beside its reference model: random requests, closed and opened again and again.

use std::rc::Rc;

use device::Memory;

use super::crash_run::{PLAIN, Plan, World, request};
use super::{small, small_size, sums_hold};
use crate::{Store, check};

#[test]
fn a_store_equals_its_model_after_every_reopening() {
    for seed in 0..30 {
        env::Runtime::simulated(seed).block_on(async move {
            let disk = Memory::new("disk", small_size(16));
            let mut store = Store::format(disk.clone(), small()).await.unwrap();
            let world: Rc<World> = Rc::default();
            let mut rng = env::rng("requests");
            let plan = Plan {
                management: true,
                ..PLAIN
            };
            for round in 0..4 {
                for _ in 0..120 {
                    assert!(request(&store, &world, plan, &mut rng).await);
                    sums_hold(&store);
                }
                assert_eq!(*world.broken.borrow(), None, "seed {seed}");
                world.flush(&store).await.unwrap();
                let journal = store.inner.journal.borrow().clone();
                store.close().await.unwrap();
                let report = check(disk.clone(), true).await.unwrap();
                assert!(report.is_clean(), "seed {seed}: {:?}", report.findings);
                store = Store::open(disk.clone()).await.unwrap();
                if let Err(why) = world.recovered(&journal, &store).await {
                    panic!("seed {seed}, round {round}: {why}");
                }
            }
        });
    }
}
