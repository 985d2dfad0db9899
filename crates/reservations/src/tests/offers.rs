//! What is offered is granted, and is the best there is; quotas are never exceeded, however many ask.

use std::collections::BTreeMap;
use std::rc::Rc;

use access::charge::usage;
use access::name::AccountName;
use access::quota::Quota;
use access::registry::{NewAccount, Registry};
use access::role::Role;
use base::Nanos;
use policy::share::{Direction, Second, Slot};
use store::qos::manager::Reserved;

use super::world::{World, of_vm1};
use crate::ReservationError;
use crate::accounts::AccountQuotas;
use crate::ask::{Ask, TargetAsk};
use crate::quota::Quotas;
use crate::service::Service;

const FOREVER: u64 = u64::MAX;

/// Would so much of vm1 fit in that slot, by what stands? Second by second, without any of the code that is asked.
fn twin_fits(world: &World, slot: Slot, [read, write]: [u64; 2]) -> bool {
    let parts = world.parts();
    let there = |of: &dyn Fn(&Reserved) -> bool, second: Second| {
        let at = Slot::new(second, 1);
        let counted = parts
            .iter()
            .filter(|(_, it)| of(it) && it.request.slot.overlaps(at));
        let mut sums = BTreeMap::new();
        for (store, it) in counted {
            *sums.entry(store.0).or_insert(0) += it.request.rate.0;
        }
        sums
    };
    (slot.start.0..slot.end.0).all(|second| {
        let own = |it: &Reserved| it.request.holder == "volume:7";
        let asked = [(Direction::Read, read), (Direction::Write, write)];
        let clash = asked.iter().any(|(direction, rate)| {
            let same = |it: &Reserved| own(it) && it.request.direction == *direction;
            *rate > 0 && !there(&same, Second(second)).is_empty()
        });
        // 100 MB/s, 20 % kept free, 5 % for background work; two copies, one of which may be lost: all of it at each.
        let sums = there(&|_| true, Second(second));
        let most = sums.values().max().copied().unwrap_or_default();
        !clash && most + read + write <= 75_000_000
    })
}

#[test]
fn an_offer_is_the_earliest_the_largest_and_the_longest() {
    env::Runtime::simulated(5).block_on(async {
        let mut rng = env::rng("offers");
        let (mut clashes, mut offers) = (0, 0);
        for round in 0..1000 {
            let world = World::new().await;
            let (service, ..) = world.node("n1", FOREVER);
            let now = service.now().0;
            for nth in 0..rng.below(5) {
                let mut other = of_vm1(&service, &format!("other{nth}"), 5 + rng.below(60));
                if rng.below(4) > 0 {
                    other.target = TargetAsk::Stores {
                        stores: vec![format!("s{}", 1 + rng.below(3))],
                        stripe: false,
                        scope: "a/".to_owned(),
                    };
                }
                other.promise.from = now + rng.below(40);
                other.promise.until = other.promise.from + 1 + rng.below(30);
                let _ = service.create(other).await;
            }
            let mut ask = of_vm1(&service, "vm", 10 + rng.below(70));
            ask.promise.write = rng.below(2) * rng.below(30_000_000);
            ask.promise.from = now + rng.below(20);
            ask.promise.until = ask.promise.from + 1 + rng.below(30);
            let (from, seconds) = (ask.promise.from, ask.promise.until - ask.promise.from);
            let offer = service.quote(&ask).await.unwrap();
            let fits = |from: u64, seconds: u64, permille: u64| {
                let part = |rate: u64| (rate * permille / 1000).max(u64::from(rate > 0));
                let rates = [ask.promise.read, ask.promise.write].map(part);
                twin_fits(&world, Slot::new(Second(from), seconds), rates)
            };
            assert_eq!(offer.fits, fits(from, seconds, 1000), "round {round}");
            let mut begins = from..from + 120;
            let earliest = begins.find(|at| fits(*at, seconds, 1000)).map(Second);
            assert_eq!(offer.earliest, earliest, "round {round}");
            let longest = (1..=seconds).take_while(|it| fits(from, *it, 1000)).last();
            assert_eq!(offer.longest_seconds, longest, "round {round}");
            let permille = offer.largest_permille.map_or(0, u64::from);
            assert!(
                permille == 0 || fits(from, seconds, permille),
                "round {round}"
            );
            assert!(
                permille == 1000 || !fits(from, seconds, permille + 1),
                "round {round}"
            );
            offers += u64::from(!offer.fits);
            clashes += u64::from(offer.refused.iter().any(|(of, _)| of == "volume vm1"));
            if let Some(earliest) = offer.earliest {
                let taken = service.create(ask.with(earliest.0, seconds, 1000));
                taken.await.unwrap();
            }
        }
        assert!(
            offers > 200 && clashes > 50,
            "{offers} offers, {clashes} clashes"
        );
    });
}

fn at(store: u64, mut ask: Ask) -> Ask {
    ask.target = TargetAsk::Stores {
        stores: vec![format!("s{store}")],
        stripe: false,
        scope: "a/".to_owned(),
    };
    ask
}

/// Two nodes that keep the quotas of accounts, of which `astro` has `quota`.
async fn with_quota(world: &Rc<World>, quota: Quota) -> [Rc<Service>; 2] {
    let mut account = NewAccount::new("astro".parse().unwrap(), Role::Booker);
    account.quota = Some(quota);
    let registry = Registry::new(world.meta.client());
    registry.create(&account, 0).await.unwrap();
    ["n1", "n2"].map(|node| {
        let quotas: Rc<dyn Quotas> = Rc::new(AccountQuotas(world.meta.client()));
        world.node_with(node, FOREVER, quotas).0
    })
}

#[test]
fn a_hundred_at_once_at_two_nodes_get_no_more_than_the_quota_of_their_account() {
    for seed in 0..10 {
        env::Runtime::simulated(seed).block_on(async move {
            let world = World::new().await;
            let quota = Quota {
                rate: Some(100_000_000),
                ..Quota::default()
            };
            let services = with_quota(&world, quota).await;
            // All of them fit at the stores.
            let asked = (0..100_u64).map(|nth| {
                let service = Rc::clone(&services[nth as usize % 2]);
                env::spawn(async move {
                    let ask = of_vm1(&service, &format!("job{nth}"), 0);
                    let mut ask = at(1 + nth % 3, ask);
                    ask.promise.read = 2_200_000;
                    service.create(ask).await
                })
            });
            let mut granted = 0;
            for made in asked.collect::<Vec<_>>() {
                match made.await {
                    Ok(_) => granted += 1,
                    Err(ReservationError::Quota(why)) => {
                        assert!(why.contains("account astro"), "{why}");
                    }
                    Err(other) => panic!("{other}"),
                }
            }
            assert_eq!(granted, 45, "seed {seed}");
            // What was held for others is given back.
            let _tended = world.tend(&services[0]);
            env::sleep(Nanos::secs(2)).await;
            let rates = world.parts();
            let sum: u64 = rates.iter().map(|(_, it)| it.request.rate.0).sum();
            assert_eq!(sum, 45 * 2_200_000, "seed {seed}");
            let astro: AccountName = "astro".parse().unwrap();
            let charged = usage(&*world.meta.client(), &astro).await.unwrap();
            let charged: u64 = charged.commitments().map(|it| it.rate).sum();
            assert_eq!(charged, sum, "seed {seed}");
        });
    }
}

#[test]
fn an_offer_knows_the_quota_of_the_account() {
    env::Runtime::simulated(1).block_on(async {
        let world = World::new().await;
        let quota = Quota {
            rate: Some(30_000_000),
            ..Quota::default()
        };
        let [service, _] = with_quota(&world, quota).await;
        let ask = of_vm1(&service, "much", 40);
        let offer = service.quote(&ask).await.unwrap();
        assert!(!offer.fits);
        assert_eq!(offer.refused[0].0, "account astro");
        assert_eq!(offer.largest_permille, Some(750));
        assert_eq!((offer.earliest, offer.longest_seconds), (None, None));
        let refused = service.create(ask.clone()).await.unwrap_err();
        assert!(matches!(refused, ReservationError::Quota(_)), "{refused}");
        service
            .create(ask.with(ask.promise.from, 600, 750))
            .await
            .unwrap();
    });
}

#[test]
fn an_offer_of_what_is_there_says_so_and_of_a_taken_name_that_it_is_taken() {
    env::Runtime::simulated(1).block_on(async {
        let world = World::new().await;
        let (service, ..) = world.node("n1", FOREVER);
        let ask = of_vm1(&service, "night", 40);
        service.create(ask.clone()).await.unwrap();
        assert!(service.quote(&ask).await.unwrap().fits);
        let other = of_vm1(&service, "night", 41);
        let taken = service.quote(&other).await;
        assert!(matches!(taken, Err(ReservationError::NameTaken(_))));
    });
}
