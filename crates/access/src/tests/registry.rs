//! Accounts and tokens in a meta store.

use std::rc::Rc;

use vdisk::meta::{Faults, MemoryMetaClient, MemoryMetaStore, MetaError};

use super::seeds;
use crate::account::AccountState;
use crate::caller::{Caller, How};
use crate::charge::charge;
use crate::quota::Commitment;
use crate::registry::{AccessError, AccountChange, NewAccount, Peer, Registry};
use crate::role::Role;
use crate::token::TokenError;

/// Runs `scene` with an empty registry, and the way to its meta store.
fn with_registry(seed: u64, scene: impl AsyncFnOnce(Registry, Rc<MemoryMetaClient>) + 'static) {
    env::Runtime::simulated(seed).block_on(async move {
        let meta = MemoryMetaStore::new("memory").client();
        scene(Registry::new(meta.clone()), meta).await;
    });
}

fn new(name: &str, role: Role) -> NewAccount {
    NewAccount::new(name.parse().unwrap(), role)
}

async fn refused(registry: &Registry, token: &str, now: u64) -> String {
    let refused = registry.by_token(token, now).await;
    refused.expect_err("it is not taken").to_string()
}

#[test]
fn a_token_is_its_account_until_it_ends_is_revoked_or_the_account_goes() {
    with_registry(1, async |registry, _| {
        let astro = registry
            .create(&new("astro", Role::Booker), 0)
            .await
            .unwrap();
        let name = &astro.name;
        let (token, _) = registry
            .make_token(name, (10, 90), "nightly")
            .await
            .unwrap();
        let shown = token.reveal();
        let caller = registry.by_token(&shown, 99).await.unwrap();
        let expected = Caller {
            account: Some(name.clone()),
            account_id: Some(astro.id),
            role: Some(Role::Booker),
            how: How::Token(token.id),
        };
        assert_eq!(caller, expected);

        // Each in words of its own, and none of them with the secret.
        let mut words = vec![refused(&registry, &shown, 100).await];
        words.push(refused(&registry, &shown[..shown.len() - 1], 50).await);
        let stranger = crate::token::Token::fresh();
        words.push(refused(&registry, &stranger.reveal(), 50).await);
        let change = |on| AccountChange {
            on: Some(on),
            ..AccountChange::default()
        };
        registry.change(name, &change(false)).await.unwrap();
        words.push(refused(&registry, &shown, 50).await);
        registry.change(name, &change(true)).await.unwrap();
        assert_eq!(registry.by_token(&shown, 50).await.unwrap(), expected);
        registry.revoke(token.id, 60).await.unwrap();
        words.push(refused(&registry, &shown, 50).await);
        let has = [
            "ended 0 s ago",
            "is no token",
            "not known here",
            "switched off",
            "was revoked",
        ];
        for (said, part) in words.iter().zip(has) {
            assert!(said.contains(part), "{said}");
            assert!(!said.contains(&shown[30..]), "{said}");
        }
    });
}

#[test]
fn a_later_account_of_a_name_takes_no_token_of_the_earlier_one() {
    with_registry(2, async |registry, meta| {
        let astro = registry
            .create(&new("astro", Role::Admin), 0)
            .await
            .unwrap();
        let (token, record) = registry
            .make_token(&astro.name, (0, 1000), "")
            .await
            .unwrap();
        registry.delete(&astro.name, 5).await.unwrap();
        assert!(matches!(
            registry.by_token(&token.reveal(), 6).await,
            Err(AccessError::Token(TokenError::Unknown(_)))
        ));
        registry
            .create(&new("astro", Role::Admin), 7)
            .await
            .unwrap();
        // As if the deletion had been cut off before the tokens went.
        let put = vdisk::meta::Op::Put {
            key: crate::token::TokenRecord::key(token.id),
            value: record.encode(),
            lease: None,
        };
        use vdisk::meta::MetaStore as _;
        meta.txn(Vec::new(), vec![put]).await.unwrap();
        assert!(matches!(
            registry.by_token(&token.reveal(), 8).await,
            Err(AccessError::Token(TokenError::AccountOff { .. }))
        ));
    });
}

#[test]
fn a_deleted_accounts_name_waits_for_its_bookings_and_its_projects_go_with_it() {
    with_registry(3, async |registry, meta| {
        use vdisk::meta::MetaStore as _;
        let orphan = registry.create(&new("a/b", Role::Booker), 0).await;
        assert!(
            matches!(orphan, Err(AccessError::NoParent { .. })),
            "{orphan:?}"
        );
        let account = registry.create(&new("a", Role::Booker), 0).await.unwrap();
        let project = registry.create(&new("a/b", Role::Booker), 0).await.unwrap();
        let (token, _) = registry
            .make_token(&project.name, (0, 1000), "")
            .await
            .unwrap();
        let booking = Commitment {
            id: 1,
            rate: 5,
            from: 0,
            until: 100,
            space: 0,
        };
        let paid = charge(&*meta, &project.name, &booking, 0).await.unwrap();
        meta.txn(paid.compares, paid.ops).await.unwrap();
        let gone = registry.delete(&account.name, 50).await.unwrap();
        assert_eq!(gone, [account.name.clone(), project.name.clone()]);
        assert!(registry.by_token(&token.reveal(), 51).await.is_err());
        assert!(
            charge(&*meta, &project.name, &booking, 51).await.is_err(),
            "it books no more"
        );
        let waits = registry
            .create(&new("a", Role::Reader), 99)
            .await
            .unwrap_err();
        assert_eq!(
            waits.to_string().matches("1 of its bookings").count(),
            1,
            "{waits}"
        );
        let states: Vec<AccountState> = registry
            .accounts()
            .await
            .unwrap()
            .iter()
            .map(|it| it.state)
            .collect();
        assert_eq!(states, [AccountState::Deleted; 2]);
        registry.create(&new("a", Role::Reader), 100).await.unwrap();
        let again = registry.create(&new("a", Role::Reader), 100).await;
        assert!(matches!(again, Err(AccessError::Exists(_))));
    });
}

#[test]
fn a_user_is_the_account_that_names_it_else_that_of_its_group_else_says_which() {
    with_registry(4, async |registry, _| {
        let mut astro = new("astro", Role::Booker);
        astro.users.insert(1001);
        astro.groups.insert(50);
        let mut bio = new("bio", Role::Reader);
        bio.groups.extend([50, 60]);
        registry.create(&astro, 0).await.unwrap();
        registry.create(&bio, 0).await.unwrap();
        let ask = async |user, groups: &[u32], wanted: Option<&str>| {
            let wanted = wanted.map(|name| name.parse().unwrap());
            let found = registry
                .by_user(Peer { user, groups }, wanted.as_ref())
                .await;
            found.map(|it| it.map(|it| it.account.unwrap().to_string()))
        };
        let is = |name: &str| Ok(Some(name.to_owned()));
        assert_eq!(ask(1001, &[50, 60], None).await, is("astro"));
        assert_eq!(ask(1002, &[60], None).await, is("bio"));
        assert_eq!(ask(1002, &[70], None).await, Ok(None));
        let several = ask(1002, &[50], None).await;
        assert!(
            matches!(&several, Err(AccessError::Ambiguous { accounts, .. }) if accounts.len() == 2)
        );
        assert_eq!(ask(1002, &[50], Some("bio")).await, is("bio"));
        assert_eq!(ask(1001, &[60], Some("bio")).await, is("bio"));
        assert_eq!(
            ask(1003, &[60], Some("astro")).await,
            Ok(None),
            "it cannot choose what it is not"
        );
        let off = AccountChange {
            on: Some(false),
            ..AccountChange::default()
        };
        registry.change(&astro.name, &off).await.unwrap();
        assert_eq!(ask(1001, &[60], None).await, is("bio"));
        assert_eq!(ask(1001, &[], None).await, Ok(None));
    });
}

#[test]
fn a_silent_meta_store_lets_no_token_in() {
    with_registry(5, async |registry, meta| {
        let astro = registry
            .create(&new("astro", Role::Admin), 0)
            .await
            .unwrap();
        let (token, _) = registry
            .make_token(&astro.name, (0, 1000), "")
            .await
            .unwrap();
        for faults in [
            Faults {
                refused: true,
                ..Faults::default()
            },
            Faults {
                cut: true,
                ..Faults::default()
            },
        ] {
            meta.set_faults(faults);
            let asked = registry.by_token(&token.reveal(), 1).await;
            assert!(
                matches!(asked, Err(AccessError::Meta(MetaError::Unavailable { .. }))),
                "{asked:?}"
            );
            let peer = Peer {
                user: 1,
                groups: &[],
            };
            assert!(registry.by_user(peer, None).await.is_err());
        }
    });
}

#[test]
fn changes_take_effect_once_whatever_answers_are_lost() {
    for seed in seeds(30) {
        with_registry(seed, async |registry, meta| {
            meta.set_faults(Faults {
                answers_lost: 0.3,
                requests_lost: 0.1,
                timeout: base::Nanos::millis(20),
                ..Faults::default()
            });
            // A read that is lost is the caller's to repeat.
            macro_rules! until {
                ($attempt:expr) => {
                    loop {
                        match $attempt.await {
                            Err(AccessError::Meta(_) | AccessError::Busy(_)) => continue,
                            other => break other,
                        }
                    }
                };
            }
            let made = until!(registry.create(&new("a", Role::Reader), 0));
            // A repeated call may meet what an earlier one, cut off between, has made.
            assert!(
                matches!(made, Ok(_) | Err(AccessError::Exists(_))),
                "{made:?}"
            );
            let role = AccountChange {
                role: Some(Role::Operator),
                ..AccountChange::default()
            };
            let name = "a".parse().unwrap();
            assert_eq!(
                until!(registry.change(&name, &role)).unwrap().role,
                Role::Operator
            );
            let (token, _) = until!(registry.make_token(&name, (0, 100), "")).unwrap();
            assert!(until!(registry.by_token(&token.reveal(), 1)).is_ok());
            until!(registry.revoke(token.id, 2)).unwrap();
            let refused = until!(registry.by_token(&token.reveal(), 3));
            assert!(matches!(
                refused,
                Err(AccessError::Token(TokenError::Revoked(_)))
            ));
            let gone = until!(registry.delete(&name, 4));
            assert!(
                matches!(gone, Ok(_) | Err(AccessError::NoAccount { .. })),
                "{gone:?}"
            );
            let left = until!(registry.accounts()).unwrap();
            assert!(left.is_empty(), "{left:?}");
        });
    }
}
