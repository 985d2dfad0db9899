//! Deletions that are interrupted anywhere, and accounts of the same name that come while they run.

use std::rc::Rc;

use base::Nanos;
use vdisk::meta::{Faults, MemoryMetaStore, MetaStore, Op};

use super::seeds;
use crate::account::AccountState;
use crate::charge::{QuotaError, charge_alone, refund_alone, usage};
use crate::error::AccessError;
use crate::name::AccountName;
use crate::quota::Commitment;
use crate::registry::{NewAccount, Registry};
use crate::role::Role;
use crate::token::Token;

const NAMES: [&str; 3] = ["astro", "astro/a", "astro/b"];

fn name(text: &str) -> AccountName {
    text.parse().unwrap()
}

fn slow(seed: u64) -> Faults {
    let mut draw = env::Rng::from_seed(seed);
    Faults {
        delay_most: Nanos::millis(1 + draw.below(9)),
        ..Faults::default()
    }
}

async fn make(registry: &Registry, account: &str) -> Result<(), AccessError> {
    let new = NewAccount::new(name(account), Role::Booker);
    registry.create(&new, 0).await.map(drop)
}

/// An account with two projects, and a token of each.
async fn set_up(registry: &Registry) -> Vec<Token> {
    let mut tokens = Vec::new();
    for account in NAMES {
        make(registry, account).await.unwrap();
        let made = registry.make_token(&name(account), (0, 1000), "").await;
        tokens.push(made.unwrap().0);
    }
    tokens
}

#[test]
fn a_deletion_that_was_interrupted_revives_no_project_with_a_later_account() {
    let mut interrupted = 0;
    for seed in seeds(120) {
        interrupted += env::Runtime::simulated(seed).block_on(async move {
            let store = MemoryMetaStore::new("memory");
            let registry = Registry::new(store.client());
            let tokens = set_up(&registry).await;
            let meta = store.client();
            meta.set_faults(slow(seed));
            let deleting = env::cancel_scope(env::spawn(async move {
                let _ = Registry::new(meta).delete(&name("astro"), 1).await;
            }));
            env::sleep(Nanos::millis(env::rng("cut").below(120))).await;
            drop(deleting);
            let begun = registry.account(&name("astro")).await.is_err();
            let left = registry.accounts().await.unwrap();
            let left = left.iter().filter(|it| it.state != AccountState::Deleted);
            let left = left.count();
            if !begun {
                assert_eq!(left, 3, "seed {seed}");
                return 0;
            }
            // Asked again it is finished, as by the sweep, as by the next account of the name.
            match seed % 3 {
                0 => drop(registry.delete(&name("astro"), 2).await),
                1 => registry.sweep(2).await.unwrap(),
                _ => {}
            }
            make(&registry, "astro").await.unwrap();
            for project in &NAMES[1..] {
                let found = registry.account(&name(project)).await;
                assert!(
                    matches!(found, Err(AccessError::NoAccount { .. })),
                    "seed {seed}"
                );
            }
            make(&registry, "astro/a").await.unwrap();
            for token in &tokens {
                let shown = registry.by_token(&token.reveal(), 3).await;
                assert!(shown.is_err(), "seed {seed}");
            }
            u64::from(left > 0)
        });
    }
    assert!(interrupted > 10, "{interrupted} were interrupted within");
}

#[test]
fn a_deletion_that_goes_on_takes_nothing_of_a_later_account() {
    for seed in seeds(120) {
        env::Runtime::simulated(seed).block_on(async move {
            let store = MemoryMetaStore::new("memory");
            let registry = Rc::new(Registry::new(store.client()));
            set_up(&registry).await;
            let meta = store.client();
            meta.set_faults(slow(seed));
            let deleting = env::spawn(async move {
                // The later account may come before its last step.
                let _ = Registry::new(meta).delete(&name("astro"), 1).await;
            });
            for account in ["astro", "astro/a"] {
                while let Err(why) = make(&registry, account).await {
                    let waits = matches!(why, AccessError::Exists(_) | AccessError::Busy(_));
                    assert!(waits, "seed {seed}: {why}");
                    env::sleep(Nanos::millis(1)).await;
                }
            }
            deleting.await;
            for account in ["astro", "astro/a"] {
                let found = registry.account(&name(account)).await;
                assert!(found.is_ok(), "seed {seed}: {found:?}");
            }
        });
    }
}

/// Asks again while the meta store does not tell whether it was done.
async fn until_answered(ask: impl AsyncFn() -> Result<(), QuotaError>) {
    while let Err(why) = ask().await {
        let waits = matches!(why, QuotaError::Meta(_) | QuotaError::Busy(_));
        assert!(waits, "{why}");
    }
}

#[test]
fn a_charge_by_itself_keeps_the_name_until_it_is_given_back() {
    for seed in seeds(40) {
        env::Runtime::simulated(seed).block_on(async move {
            let store = MemoryMetaStore::new("memory");
            let registry = Registry::new(store.client());
            set_up(&registry).await;
            let meta = store.client();
            let mut draw = env::Rng::from_seed(seed);
            meta.set_faults(Faults {
                answers_lost: draw.below(30) as f64 / 100.0,
                timeout: Nanos::millis(50),
                ..slow(seed)
            });
            let booking = |id| Commitment {
                id,
                rate: 5,
                from: 10,
                until: 1000,
                space: 0,
            };
            for id in 1..=3 {
                let (account, booking) = (name("astro/a"), booking(id));
                until_answered(async || charge_alone(&*meta, (&account, None), &booking, 5).await)
                    .await;
            }
            let counted = async |account: &str| {
                usage(&*store.client(), &name(account))
                    .await
                    .unwrap()
                    .count()
            };
            assert_eq!((counted("astro").await, counted("astro/a").await), (3, 3));
            registry.delete(&name("astro"), 6).await.unwrap();
            let waits = make(&registry, "astro").await.unwrap_err();
            assert!(
                matches!(waits, AccessError::NameWaits { bookings: 3, .. }),
                "{waits}"
            );
            let plain = store.client();
            let refused = charge_alone(&*plain, (&name("astro/a"), None), &booking(4), 7).await;
            assert!(
                matches!(refused, Err(QuotaError::NoAccount(_))),
                "{refused:?}"
            );
            for id in 1..=3 {
                let account = name("astro/a");
                until_answered(async || refund_alone(&*meta, &account, id, 8).await).await;
            }
            registry.sweep(9).await.unwrap();
            make(&registry, "astro").await.unwrap();
            assert_eq!(counted("astro").await, 0);
        });
    }
}

#[test]
fn a_record_that_cannot_be_read_keeps_no_other_from_the_end_of_its_deletion() {
    env::Runtime::simulated(1).block_on(async {
        let store = MemoryMetaStore::new("memory");
        let (meta, registry) = (store.client(), Registry::new(store.client()));
        set_up(&registry).await;
        let junk = Op::Put {
            key: "account/abc".to_owned(),
            value: b"junk".to_vec(),
            lease: None,
        };
        let booking = Commitment {
            id: 1,
            rate: 1,
            from: 0,
            until: 100,
            space: 0,
        };
        charge_alone(&*meta, (&name("astro"), None), &booking, 0)
            .await
            .unwrap();
        registry.delete(&name("astro"), 1).await.unwrap();
        meta.txn(Vec::new(), vec![junk]).await.unwrap();
        assert!(
            registry.has(&name("astro")).await.unwrap(),
            "its name waits"
        );
        let swept = registry.sweep(200).await;
        assert!(matches!(swept, Err(AccessError::Record(_))), "{swept:?}");
        assert!(!registry.has(&name("astro")).await.unwrap());
        assert_eq!(registry.names().await.unwrap(), [name("abc")]);
    });
}

#[test]
fn a_revoked_certificate_opens_nothing_even_before_this_daemon_hears_of_it() {
    env::Runtime::simulated(1).block_on(async {
        let store = MemoryMetaStore::new("memory");
        let registry = Registry::new(store.client());
        set_up(&registry).await;
        let astro = name("astro");
        let id = registry.account(&astro).await.unwrap().id;
        let number = tls::Serial::parse("a1").unwrap();
        let opens = async |serial| registry.by_certificate((&astro, id), serial).await;
        assert!(opens("a1").await.is_ok());
        let revocations = vdisk::cluster::revoked::Revocations::new(store.client());
        revocations.revoke(&number, "account astro").await.unwrap();
        assert_eq!(
            opens("a1").await,
            Err(AccessError::Revoked("a1".to_owned()))
        );
        assert!(opens("b2").await.is_ok());
    });
}
