//! What is read of the meta store while nothing happens, with as many reservations as there may be.

use base::Nanos;

use super::world::{World, of_vm1};
use crate::ask::{Ask, TargetAsk};

/// Over three stores.
const MANY: u64 = 9000;
/// Seconds: each part is confirmed twice.
const QUIET: u64 = 130;

#[test]
fn nine_thousand_reservations_that_stand_cost_no_reads() {
    env::Runtime::simulated(1).block_on(async {
        let world = World::of(base::Bytes::mib(512)).await;
        let (service, ..) = world.node("n1", u64::MAX);
        for nth in 0..MANY {
            let mut ask = Ask {
                target: TargetAsk::Stores {
                    stores: vec![format!("s{}", 1 + nth % 3)],
                    stripe: false,
                    scope: "job/".to_owned(),
                },
                ..of_vm1(&service, &format!("job{nth}"), 10)
            };
            ask.promise.from += 100_000 + nth / 3 * 10;
            ask.promise.until = ask.promise.from + 10;
            service.create(ask).await.unwrap();
        }
        let _tending = world.tend(&service);
        env::sleep(Nanos::secs(70)).await;
        let before = world.reads.get();
        env::sleep(Nanos::secs(QUIET)).await;
        let quiet = world.reads.get() - before;
        // What changes is seen all the same.
        let known = service.find("astro", "job7").await.unwrap();
        let before = world.reads.get();
        service.release(known, "done").await.unwrap();
        env::sleep(Nanos::secs(60)).await;
        let change = world.reads.get() - before;
        println!(
            "{MANY} reservations: {quiet} reads in {QUIET} s, {change} for a release and a minute"
        );
        assert_eq!(quiet, 0);
        assert!(change < 10, "{change}");
    });
}
