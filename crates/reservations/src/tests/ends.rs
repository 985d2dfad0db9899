//! Accounts that are switched off, and changes that come in between, at every moment.

use std::rc::Rc;

use access::name::AccountName;
use access::registry::{AccountChange, NewAccount, Registry};
use access::role::Role;
use base::Nanos;
use vdisk::StoreNumber;
use vdisk::meta::Faults;

use super::world::{World, none_overlap, of_vm1, records};
use crate::ReservationError;
use crate::accounts::AccountQuotas;
use crate::ask::{Ask, TargetAsk};
use crate::quota::Quotas;
use crate::record::{Phase, Reservation};
use crate::service::{Change, Service};
use crate::sweep::{abort_own, sweep};

const FOREVER: u64 = u64::MAX;

/// Some accounts.
async fn accounts(world: &World) -> Registry {
    let registry = Registry::new(world.meta.client());
    for name in ["astro", "astro/lens", "astronomy"] {
        let account = NewAccount::new(name.parse().unwrap(), Role::Booker);
        registry.create(&account, 0).await.unwrap();
    }
    registry
}

/// A node that keeps quotas, and to which the meta store takes so long at most.
fn node(world: &Rc<World>, name: &str, delay_most: Nanos) -> Rc<Service> {
    let quotas: Rc<dyn Quotas> = Rc::new(AccountQuotas(world.meta.client()));
    let (service, _, meta) = world.node_with(name, FOREVER, quotas);
    meta.set_faults(Faults {
        delay_most,
        timeout: Nanos::millis(500),
        ..Faults::default()
    });
    service
}

async fn switch_off(registry: &Registry, account: &str) {
    let account: AccountName = account.parse().unwrap();
    let change = AccountChange {
        on: Some(false),
        ..AccountChange::default()
    };
    registry.change(&account, &change).await.unwrap();
}

fn at_s1(service: &Service, account: &str) -> Ask {
    at(service, "s1", account)
}

fn at(service: &Service, store: &str, account: &str) -> Ask {
    let mut ask = of_vm1(service, "job", 10);
    ask.account = account.to_owned();
    ask.target = TargetAsk::Stores {
        stores: vec![store.to_owned()],
        stripe: false,
        scope: "a/".to_owned(),
    };
    ask
}

#[test]
fn what_an_account_and_its_projects_have_ends_at_once_and_no_other() {
    env::Runtime::simulated(1).block_on(async {
        let world = World::new().await;
        let registry = accounts(&world).await;
        let service = node(&world, "n1", Nanos(0));
        for account in ["astro", "astro/lens", "astronomy"] {
            service.create(at_s1(&service, account)).await.unwrap();
        }
        // It is on: nothing ends.
        service.end_account("astro").await.unwrap();
        assert_eq!(world.parts().len(), 3);
        switch_off(&registry, "astro").await;
        service.end_account("astro").await.unwrap();
        let left = world.parts();
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].1.request.holder, "astronomy");
        let known = service.find("astro", "job").await;
        assert!(matches!(known, Err(ReservationError::Absent(_))));
        let over = records(&service).await;
        let over = over.iter().filter(|it| it.state == Phase::Ended);
        let mut causes: Vec<_> = over.filter_map(|it| it.cause.clone()).collect();
        causes.sort();
        let said = [
            "account astro is switched off",
            "account astro/lens is switched off",
        ];
        assert_eq!(causes, said);
    });
}

/// So many of `account` at `store`, small ones.
async fn make(service: &Rc<Service>, store: &str, account: &str, count: u64) {
    for nth in 0..count {
        let mut ask = at(service, store, account);
        ask.name = format!("{account}{nth}");
        ask.promise.read = 1_000_000;
        service.create(ask).await.unwrap();
    }
}

#[test]
fn what_is_over_of_one_account_ends_in_one_sweep() {
    env::Runtime::simulated(1).block_on(async {
        let world = World::new().await;
        let registry = accounts(&world).await;
        let service = node(&world, "n1", Nanos::millis(5));
        make(&service, "s1", "astro", 20).await;
        switch_off(&registry, "astro").await;
        // They all change the use of one quota, side by side.
        sweep(&service).await.unwrap();
        assert_eq!(world.parts(), []);
        let all = records(&service).await;
        assert!(all.iter().all(|it| it.state == Phase::Ended));
    });
}

#[test]
fn a_store_that_does_not_answer_keeps_others_waiting_by_the_sixteen() {
    env::Runtime::simulated(1).block_on(async {
        let world = World::new().await;
        let registry = accounts(&world).await;
        let service = node(&world, "n1", Nanos(0));
        make(&service, "s3", "astro", 40).await;
        make(&service, "s1", "astronomy", 1).await;
        for account in ["astro", "astronomy"] {
            switch_off(&registry, account).await;
        }
        world.hung.borrow_mut().insert(StoreNumber(3));
        // Each waits for its store for eight seconds.
        let swept = env::timeout(Nanos::secs(30), sweep(&service)).await;
        swept.unwrap().unwrap();
        assert!(world.parts().iter().all(|(store, _)| store.0 == 3));
        let all = records(&service).await;
        assert!(all.iter().all(|it| it.state == Phase::Ended));
    });
}

#[test]
fn of_two_changes_at_once_one_is_done_though_their_node_settles_what_it_left() {
    let mut refused = 0;
    for seed in 0..60_u64 {
        refused += env::Runtime::simulated(seed).block_on(async move {
            let world = World::new().await;
            accounts(&world).await;
            let service = node(&world, "n1", Nanos::millis(20));
            let (made, _) = service.create(at_s1(&service, "astro")).await.unwrap();
            let changes = [11, 12].map(|mb| {
                let (service, made) = (Rc::clone(&service), made.clone());
                let more = Change {
                    read: Some(mb * 1_000_000),
                    ..Change::default()
                };
                env::spawn(async move { service.amend(made, more).await.is_ok() })
            });
            env::sleep(Nanos::millis(seed * 2)).await;
            abort_own(&service).await.unwrap();
            let mut done = 0;
            for change in changes {
                done += u32::from(change.await);
            }
            assert!(done > 0, "seed {seed}");
            u32::from(done == 1)
        });
    }
    assert!(refused > 5, "{refused} were refused");
}

#[test]
fn all_records_of_an_account_are_over_before_a_store_is_asked_to_release() {
    let mut begun = 0;
    for steps in (0..).step_by(5) {
        let (left, standing) = env::Runtime::simulated(steps).block_on(async move {
            let world = World::new().await;
            let registry = accounts(&world).await;
            let service = node(&world, "n1", Nanos(0));
            for nth in 0..6 {
                let mut ask = at_s1(&service, "astro");
                ask.name = format!("job{nth}");
                service.create(ask).await.unwrap();
            }
            switch_off(&registry, "astro").await;
            let quotas: Rc<dyn Quotas> = Rc::new(AccountQuotas(world.meta.client()));
            // It stands still after so many steps.
            let (ending, ..) = world.node_with("n2", steps, quotas);
            let _ending =
                env::cancel_scope(env::spawn(async move { ending.end_account("astro").await }));
            env::sleep(Nanos::secs(2)).await;
            let standing = records(&service).await;
            let standing = standing.iter().filter(|it| it.state.stands()).count();
            (world.parts().len(), standing)
        });
        assert!(left == 6 || standing == 0, "{steps}: {left}, {standing}");
        begun += u32::from(left == 6 && standing < 6);
        if left == 0 {
            break;
        }
        assert!(steps < 2000, "it does not come to an end");
    }
    assert!(begun > 1, "stopped {begun} times among the records");
}

#[test]
fn an_account_that_is_switched_off_while_a_change_is_under_way_has_nothing_left_at_its_stores() {
    let mut changed = 0;
    for moment in 0..300_u64 {
        changed += env::Runtime::simulated(moment).block_on(async move {
            let world = World::new().await;
            let registry = accounts(&world).await;
            // The one that ends is faster: it comes between any two steps of the other.
            let service = node(&world, "n1", Nanos::millis(60));
            let ending = node(&world, "n2", Nanos(0));
            let (made, _) = service.create(at_s1(&service, "astro")).await.unwrap();
            let amending = env::spawn({
                let service = Rc::clone(&service);
                let more = Change {
                    read: Some(12_000_000),
                    ..Change::default()
                };
                async move { service.amend(made, more).await.is_ok() }
            });
            env::sleep(Nanos::millis(moment)).await;
            switch_off(&registry, "astro").await;
            ending.end_account("astro").await.unwrap();
            // At once: the stores settle nothing by themselves here.
            let committed = world.parts().into_iter();
            let committed = committed
                .filter(|(_, it)| matches!(it.state, policy::share::calendar::State::Committed));
            assert_eq!(committed.count(), 0, "{moment} ms");
            let done = amending.await;
            let _tended = world.tend(&service);
            env::sleep(Nanos::secs(2)).await;
            assert!(world.parts().is_empty(), "{moment} ms");
            u32::from(done)
        });
    }
    assert!((20..280).contains(&changed), "{changed} changes came first");
}

#[test]
fn a_change_and_a_new_one_are_never_granted_for_one_volume_and_time() {
    let (mut changed, mut made) = (0, 0);
    for moment in 0..200_u64 {
        let (of, both) = env::Runtime::simulated(moment).block_on(async move {
            let world = World::new().await;
            accounts(&world).await;
            let service = node(&world, "n1", Nanos::millis(20));
            let (first, _) = service.create(of_vm1(&service, "first", 10)).await.unwrap();
            let (from, until) = (first.record.promise.until, first.record.promise.until + 600);
            let amending = env::spawn({
                let service = Rc::clone(&service);
                let longer = Change {
                    until: Some(until),
                    ..Change::default()
                };
                async move { service.amend(first, longer).await.is_ok() }
            });
            env::sleep(Nanos::millis(moment)).await;
            let mut second = of_vm1(&service, "second", 10);
            (second.promise.from, second.promise.until) = (from, until);
            let made = service.create(second).await.is_ok();
            let changed = amending.await;
            let all = records(&service).await;
            let standing: Vec<&Reservation> = all.iter().filter(|it| it.state.stands()).collect();
            (none_overlap(&standing), (changed, made))
        });
        assert_eq!(of, Ok(()), "{moment} ms");
        changed += u32::from(both.0);
        made += u32::from(both.1);
    }
    assert!(changed > 20 && made > 20, "{changed} changed, {made} made");
}
