//! The store in memory: the suite in virtual time, and its faults.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use base::Nanos;
use env::Runtime;
use vdisk::meta::{
    Compare, Faults, MemoryMetaClient, MemoryMetaStore, MetaError, MetaStore, Op, Outcome, Revision,
};

use crate::suite::{Place, all_cases};

type Case = fn(Place) -> Pin<Box<dyn Future<Output = ()>>>;

/// Delays as between machines, so that requests meet each other.
fn far() -> Faults {
    Faults {
        delay_least: Nanos::micros(50),
        delay_most: Nanos::micros(900),
        ..Faults::default()
    }
}

fn run(name: &'static str, case: Case) {
    for (seed, faults) in [(1, Faults::default()), (2, far())] {
        Runtime::simulated(seed).block_on(async move {
            let memory = MemoryMetaStore::new("twin");
            let (one, two) = (memory.client(), memory.client());
            one.set_faults(faults);
            two.set_faults(faults);
            let root = format!("{name}/");
            // Keys of another user, before and behind.
            for key in ["\0", "\u{10ffff}"] {
                one.txn(vec![], vec![put(key, "x")]).await.unwrap();
            }
            case(Place { one, two, root }).await;
        });
    }
}

all_cases!(run);

fn put(key: &str, value: &str) -> Op {
    Op::Put {
        key: key.into(),
        value: value.into(),
        lease: None,
    }
}

async fn value(client: &MemoryMetaClient, key: &str) -> Option<Vec<u8>> {
    client.get(key).await.unwrap().map(|entry| entry.value)
}

#[test]
fn a_client_that_is_refused_knows_that_nothing_was_done_and_others_go_on() {
    Runtime::simulated(1).block_on(async {
        let memory = MemoryMetaStore::new("twin");
        let (one, two) = (memory.client(), memory.client());
        one.set_faults(Faults {
            refused: true,
            ..Faults::default()
        });
        let error = one.txn(vec![], vec![put("k", "1")]).await.unwrap_err();
        assert!(matches!(error, MetaError::Unavailable { .. }), "{error}");
        assert_eq!(
            error.to_string(),
            "cannot change key 'k' in the meta store twin: the connection is refused; nothing was changed"
        );
        two.txn(vec![], vec![put("k", "2")]).await.unwrap();
        one.set_faults(Faults::default());
        assert_eq!(value(&one, "k").await.unwrap(), b"2");
    });
}

#[test]
fn a_lost_request_and_a_lost_answer_look_the_same() {
    Runtime::simulated(1).block_on(async {
        let memory = MemoryMetaStore::new("twin");
        let (one, two) = (memory.client(), memory.client());
        for (name, faults, was_done) in [
            (
                "request",
                Faults {
                    requests_lost: 1.0,
                    ..far()
                },
                false,
            ),
            (
                "answer",
                Faults {
                    answers_lost: 1.0,
                    ..far()
                },
                true,
            ),
            ("cut", Faults { cut: true, ..far() }, false),
        ] {
            one.set_faults(faults);
            let asked = env::now();
            let error = one.txn(vec![], vec![put(name, "1")]).await.unwrap_err();
            assert!(
                matches!(error, MetaError::Unknown { .. }),
                "{name}: {error}"
            );
            assert_eq!(env::now().since(asked), faults.timeout);
            assert_eq!(value(&two, name).await.is_some(), was_done, "{name}");
            // Reading does no harm: there is nothing not to know.
            let error = one.get(name).await.unwrap_err();
            assert!(matches!(error, MetaError::Unavailable { .. }), "{error}");
        }
    });
}

#[test]
fn a_request_arrives_although_its_sender_is_gone() {
    Runtime::simulated(1).block_on(async {
        let memory = MemoryMetaStore::new("twin");
        let (one, two) = (memory.client(), memory.client());
        one.set_faults(Faults {
            delay_least: Nanos::secs(1),
            delay_most: Nanos::secs(1),
            ..Faults::default()
        });
        let sent = one.txn(vec![], vec![put("k", "late")]);
        assert!(env::timeout(Nanos::millis(1), sent).await.is_err());
        two.txn(vec![], vec![put("k", "early")]).await.unwrap();
        assert_eq!(value(&two, "k").await.unwrap(), b"early");
        env::sleep(Nanos::secs(1)).await;
        assert_eq!(value(&two, "k").await.unwrap(), b"late");
    });
}

#[test]
fn a_watch_waits_while_its_client_is_cut_off_and_then_sees_all() {
    Runtime::simulated(1).block_on(async {
        let memory = MemoryMetaStore::new("twin");
        let (one, two) = (memory.client(), memory.client());
        let mut watch = one.watch("k", Revision(0)).await.unwrap();
        one.set_faults(Faults {
            cut: true,
            ..Faults::default()
        });
        for round in 0..3 {
            two.txn(vec![], vec![put("k", &round.to_string())])
                .await
                .unwrap();
        }
        assert!(env::timeout(Nanos::secs(60), watch.next()).await.is_err());
        one.set_faults(Faults::default());
        assert_eq!(watch.next().await.unwrap().len(), 3);
    });
}

#[test]
fn leases_end_at_their_nanosecond_and_a_restart_gives_them_their_time_again() {
    Runtime::simulated(1).block_on(async {
        let memory = MemoryMetaStore::new("twin");
        let meta = memory.client();
        let start = env::now();
        let lease = meta.lease(Nanos::secs(10)).await.unwrap();
        let under = |key: &str| Op::Put {
            key: key.into(),
            value: vec![],
            lease: Some(lease),
        };
        meta.txn(vec![], vec![under("k")]).await.unwrap();
        let mut watch = meta.watch("k", Revision(0)).await.unwrap();
        watch.next().await.unwrap();
        watch.next().await.unwrap();
        assert_eq!(env::now().since(start), Nanos::secs(10));

        let lease = meta.lease(Nanos::secs(10)).await.unwrap();
        let put = Op::Put {
            key: "k".into(),
            value: vec![],
            lease: Some(lease),
        };
        meta.txn(vec![], vec![put]).await.unwrap();
        env::sleep(Nanos::secs(9)).await;
        memory.restart();
        env::sleep(Nanos::secs(9)).await;
        assert!(value(&meta, "k").await.is_some());
        env::sleep(Nanos::secs(1)).await;
        assert!(value(&meta, "k").await.is_none());
        // And what was before is forgotten.
        let error = watch.next().await.unwrap_err();
        assert!(matches!(error, MetaError::Compacted { .. }), "{error}");
    });
}

#[test]
fn what_was_compacted_is_said_to_be_each_time() {
    Runtime::simulated(1).block_on(async {
        let memory = MemoryMetaStore::new("twin");
        let meta = memory.client();
        for round in 0..10 {
            meta.txn(vec![], vec![put("k", &round.to_string())])
                .await
                .unwrap();
        }
        let now = memory.revision();
        memory.compact(Revision(now.0 - 2));
        let mut watch = meta.watch("k", Revision(now.0 - 3)).await.unwrap();
        for _ in 0..2 {
            match watch.next().await {
                Err(MetaError::Compacted { oldest, .. }) => assert_eq!(oldest.0, now.0 - 2),
                other => panic!("{other:?}"),
            }
        }
        let mut watch = meta.watch("k", Revision(now.0 - 2)).await.unwrap();
        assert_eq!(watch.next().await.unwrap().len(), 3);
    });
}

#[test]
fn one_seed_one_run() {
    let run = |seed| {
        let runtime = Runtime::simulated(seed);
        let outcomes = runtime.block_on(async {
            let memory = MemoryMetaStore::new("twin");
            let clients: Vec<Rc<MemoryMetaClient>> = (0..4).map(|_| memory.client()).collect();
            let tasks: Vec<_> = clients
                .into_iter()
                .enumerate()
                .map(|(number, client)| {
                    env::spawn(async move {
                        client.set_faults(Faults {
                            requests_lost: 0.1,
                            answers_lost: 0.1,
                            ..far()
                        });
                        let mut said = Vec::new();
                        for round in 0..30 {
                            let key = format!("k{}", round % 3);
                            let held = client.get(&key).await.ok().flatten();
                            let revision = held.map_or(Revision(0), |it| it.changed);
                            let outcome = client
                                .txn(
                                    vec![Compare::Unchanged(key.clone(), revision)],
                                    vec![put(&key, &number.to_string())],
                                )
                                .await;
                            said.push(match outcome {
                                Ok(Outcome::Done(revision)) => revision.0,
                                Ok(Outcome::Refused(_)) => 0,
                                Err(_) => u64::MAX,
                            });
                        }
                        said
                    })
                })
                .collect();
            env::sync::join_all(tasks).await
        });
        (runtime.trace_hash(), outcomes)
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
    let all: Vec<u64> = run(7).1.concat();
    assert!(
        all.contains(&0) && all.contains(&u64::MAX),
        "faults were met"
    );
}
