//! Quotas in the transactions that commit, many at once, over a meta store that loses requests and answers.

use std::cell::Cell;
use std::rc::Rc;

use base::Nanos;
use vdisk::meta::{Faults, MemoryMetaClient, MemoryMetaStore, MetaError, MetaStore, Op, Outcome};

use super::seeds;
use crate::charge::{QuotaError, charge, charge_alone, refund, take_back_alone, usage};
use crate::name::AccountName;
use crate::quota::{Commitment, Quota};
use crate::registry::{AccountChange, NewAccount, Registry};
use crate::role::Role;

const MB: u64 = 1_000_000;

fn name(text: &str) -> AccountName {
    text.parse().unwrap()
}

/// An account and two projects of it; the quota of the account is on all three together.
async fn set_up(meta: Rc<MemoryMetaClient>, quota: Quota) -> Registry {
    let registry = Registry::new(meta);
    for account in ["astro", "astro/a", "astro/b"] {
        let mut new = NewAccount::new(name(account), Role::Booker);
        new.quota = (account == "astro").then_some(quota);
        registry.create(&new, 0).await.unwrap();
    }
    registry
}

/// Books as a reservation service does: the charge and the booking's own record in one transaction. Is it granted?
async fn book(meta: &dyn MetaStore, account: &AccountName, it: &Commitment) -> bool {
    let own = |op: &Op| matches!(op, Op::Put { .. });
    loop {
        let paid = match charge(meta, account, it, 100).await {
            Ok(paid) => paid,
            Err(QuotaError::Excess { .. }) => return false,
            Err(QuotaError::Meta(_)) => continue,
            Err(other) => panic!("{other}"),
        };
        assert!(paid.ops.iter().all(own));
        let record = Op::Put {
            key: format!("reservation/{:x}", it.id),
            value: it.rate.to_le_bytes().to_vec(),
            lease: None,
        };
        let ops = paid.ops.into_iter().chain([record]).collect();
        match meta.txn(paid.compares, ops).await {
            Ok(Outcome::Done(_)) => return true,
            // Another one came before, or it is unknown: the same identity counts once.
            Ok(Outcome::Refused(_)) | Err(MetaError::Unknown { .. }) => {
                let wait = env::rng("again").below(20);
                env::sleep(Nanos::millis(wait)).await;
            }
            Err(MetaError::Unavailable { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
}

/// 100 at once for the last 100 MB/s, 3 MB/s each; how many were granted.
fn rush(seed: u64, faults: Faults) -> u64 {
    env::Runtime::simulated(seed).block_on(async move {
        let store = MemoryMetaStore::new("memory");
        let quota = Quota {
            rate: Some(100 * MB),
            ..Quota::default()
        };
        set_up(store.client(), quota).await;
        let granted = Rc::new(Cell::new(0));
        // Looks all the while: never above.
        let watcher = store.client();
        let watching = env::cancel_scope(env::spawn(async move {
            loop {
                let seen = usage(&*watcher, &name("astro")).await.unwrap();
                let rates: u64 = seen.commitments().map(|it| it.rate).sum();
                assert!(rates <= 100 * MB, "{rates}");
                env::sleep(Nanos::millis(3)).await;
            }
        }));
        let all = (0..100_u64).map(|n| {
            let (meta, granted) = (store.client(), Rc::clone(&granted));
            meta.set_faults(faults);
            async move {
                let account = ["astro", "astro/a", "astro/b"][n as usize % 3];
                let it = Commitment {
                    id: u128::from(n) + 1,
                    rate: 3 * MB,
                    from: 200 + n % 7,
                    until: 1000,
                    space: 0,
                };
                if book(&*meta, &name(account), &it).await {
                    granted.set(granted.get() + 1);
                }
            }
        });
        env::sync::join_all(all).await;
        drop(watching);
        let meta = store.client();
        let there = usage(&*meta, &name("astro")).await.unwrap();
        let records = meta.range("reservation/", None, 1000).await.unwrap();
        assert_eq!(records.entries.len() as u64, granted.get());
        assert_eq!(
            there.count(),
            granted.get(),
            "what was granted counts, and nothing else"
        );
        granted.get()
    })
}

#[test]
fn a_hundred_at_once_never_get_more_than_the_last_hundred_megabytes() {
    for seed in seeds(40) {
        let mut draw = env::Rng::from_seed(seed);
        let faults = Faults {
            delay_most: Nanos::millis(draw.below(15)),
            requests_lost: draw.below(20) as f64 / 100.0,
            answers_lost: draw.below(30) as f64 / 100.0,
            timeout: Nanos::millis(50),
            ..Faults::default()
        };
        // All that fit are granted, too: 33 times 3 MB/s.
        assert_eq!(
            rush(seed, faults),
            33,
            "TANADA_SEED={seed} cargo test -p access a_hundred"
        );
    }
}

#[test]
fn a_charge_that_was_read_before_a_change_does_not_commit_after_it() {
    env::Runtime::simulated(1).block_on(async {
        let meta = MemoryMetaStore::new("memory").client();
        let registry = set_up(meta.clone(), Quota::default()).await;
        let it = Commitment {
            id: 1,
            rate: 5 * MB,
            from: 200,
            until: 210,
            space: 0,
        };
        let project = name("astro/a");
        let off = AccountChange {
            on: Some(false),
            ..AccountChange::default()
        };
        let on = AccountChange {
            on: Some(true),
            ..AccountChange::default()
        };
        // The account it belongs to is switched off; its quota falls; another booking comes.
        for change in 0..3 {
            let paid = charge(&*meta, &project, &it, 100).await.unwrap();
            match change {
                0 => drop(registry.change(&name("astro"), &off).await.unwrap()),
                1 => {
                    let less = Quota {
                        rate: Some(6 * MB),
                        ..Quota::default()
                    };
                    registry.set_quota(&name("astro"), &less).await.unwrap();
                }
                _ => {
                    let other = Commitment { id: 2, ..it };
                    assert!(book(&*meta, &name("astro/b"), &other).await);
                }
            }
            let done = meta.txn(paid.compares, paid.ops).await.unwrap();
            assert!(matches!(done, Outcome::Refused(_)), "{change}");
            if change == 0 {
                let refused = charge(&*meta, &project, &it, 100).await.unwrap_err();
                assert_eq!(refused, QuotaError::NoAccount(name("astro")));
                registry.change(&name("astro"), &on).await.unwrap();
            }
        }
        let refused = charge(&*meta, &project, &it, 100).await.unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the quota of account astro does not allow it: it asks for 5 MB/s, and of 6 MB/s at once 5 MB/s are booked in \
             that time; ask for at most 1 MB/s"
        );
        // What ends leaves the quota of both.
        let back = refund(&*meta, &name("astro/b"), 2, 100).await.unwrap();
        meta.txn(back.compares, back.ops).await.unwrap();
        assert!(charge(&*meta, &project, &it, 100).await.is_ok());
        assert_eq!(refund(&*meta, &project, 77, 0).await.unwrap(), vdisk::meta::TxnPart::default());
    });
}

#[test]
fn a_slot_that_cannot_be_is_refused() {
    env::Runtime::simulated(1).block_on(async {
        let meta = MemoryMetaStore::new("memory").client();
        set_up(meta.clone(), Quota::default()).await;
        for (from, until) in [(5, 5), (6, 5), (0, u64::from(u32::MAX) + 1), (0, u64::MAX)] {
            let it = Commitment {
                id: 1,
                rate: 1,
                from,
                until,
                space: 0,
            };
            let refused = charge(&*meta, &name("astro"), &it, 0).await;
            assert_eq!(refused, Err(QuotaError::Slot { from, until }));
        }
    });
}

#[test]
fn a_slot_that_is_over_is_refused_and_what_was_never_made_is_given_back_whole() {
    env::Runtime::simulated(1).block_on(async {
        let meta = MemoryMetaStore::new("memory").client();
        let quota = Quota {
            booked: Some(1000),
            ..Quota::default()
        };
        let registry = set_up(meta.clone(), quota).await;
        let project = name("astro/a");
        let booking = |rate, from, until| Commitment {
            id: 1,
            rate,
            from,
            until,
            space: 0,
        };
        let over = booking(u64::MAX, 98, 99);
        let refused = charge_alone(&*meta, (&project, None), &over, 100).await;
        let (until, now) = (99, 100);
        assert_eq!(refused, Err(QuotaError::Over { until, now }));
        for account in [&project, &name("astro")] {
            assert!(usage(&*meta, account).await.unwrap().is_empty());
        }
        // An earlier account of the name has another identity.
        let id = registry.account(&project).await.unwrap().id;
        let other = (&project, Some(id ^ 1));
        let refused = charge_alone(&*meta, other, &booking(10, 100, 200), 100).await;
        assert_eq!(refused, Err(QuotaError::NoAccount(project.clone())));
        let own = (&project, Some(id));
        // Half of the slot has passed, or all of it, before the booking is refused.
        for now in [150, 200, 300] {
            charge_alone(&*meta, own, &booking(10, 100, 200), 100)
                .await
                .unwrap();
            take_back_alone(&*meta, &project, 1, now).await.unwrap();
            for account in [&project, &name("astro")] {
                let left = usage(&*meta, account).await.unwrap();
                assert!(left.is_empty(), "{left:?}");
            }
        }
    });
}
