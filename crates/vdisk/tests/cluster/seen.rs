//! What a node shows when not all is well: the meta store away, stores that are not served, stores sealed beyond reason.

use super::*;

/// A volume that is open, one that is not, and the way to the meta store.
async fn two_volumes() -> (Rc<Cluster>, Rc<MemoryMetaClient>) {
    let (meta_store, places) = (MemoryMetaStore::new("meta"), Rc::new(Places::default()));
    let meta = meta_store.client();
    let node = cluster("n1", meta.clone(), &places);
    node.start();
    places.add(&node, "a", "da").await;
    places.add(&node, "b", "db").await;
    for called in ["closed", "open"] {
        node.volumes.create(&vm(called)).await.unwrap();
    }
    (node, meta)
}

#[test]
fn volumes_are_listed_and_say_so_while_the_meta_store_is_away() {
    env::Runtime::simulated(301).block_on(async {
        let (node, meta) = two_volumes().await;
        let in_use = node.openings.open(&name("open")).await.unwrap();
        write(in_use.volume(), 0, 5).await;
        env::sleep(Nanos::secs(5)).await;
        let before = node.view.seen().await.unwrap();
        assert_eq!(node.view.meta_silent(), None);
        refuse(&meta, true);
        env::sleep(Nanos::secs(40)).await;
        assert!(node.view.list().await.is_err());
        let seen = node.view.seen().await.unwrap();
        let names = |all: &[vdisk::cluster::overview::Overview]| -> Vec<(String, u64)> {
            let of =
                |it: &vdisk::cluster::overview::Overview| (it.record.name.to_string(), it.size);
            all.iter().map(of).collect()
        };
        assert_eq!(names(&seen), names(&before));
        let silent = node.view.meta_silent().unwrap();
        assert!(silent >= Nanos::secs(39), "{silent}");
        for one in &seen {
            assert_eq!(one.health.condition, Condition::Offline, "{one:?}");
            let why = &one.health.why;
            assert!(
                why.starts_with("the meta store has not answered for "),
                "{why}"
            );
        }
        assert_eq!(seen[1].used, Use::Here(1));
        refuse(&meta, false);
        env::sleep(Nanos::secs(3)).await;
        assert_eq!(node.view.meta_silent(), None);
        for one in node.view.seen().await.unwrap() {
            assert_eq!(one.health.condition, Condition::Healthy, "{one:?}");
        }
    });
}

#[test]
fn a_store_that_its_node_serves_no_more_is_down() {
    env::Runtime::simulated(302).block_on(async {
        let (meta_store, places, first) = two_stores().await;
        first.volumes.create(&vm("vm1")).await.unwrap();
        let in_use = first.openings.open(&name("vm1")).await.unwrap();
        write(in_use.volume(), 0, 5).await;
        drop(in_use);
        env::sleep(Nanos::secs(10)).await;
        first.stop().await;
        // The same node with another configuration.
        let again = cluster("n1", meta_store.client(), &places);
        let uuid = places.0.borrow()["a"].node.store().uuid();
        again.serves([format!("{uuid:032x}")].into());
        again.start();
        env::sleep(Nanos::secs(5)).await;
        let (stores, up) = (
            again.stores.all().await.unwrap(),
            again.stores.up().await.unwrap(),
        );
        let served = stores.values().map(|(store, _)| up.serves(store));
        assert_eq!(served.collect::<Vec<_>>(), [Some(true), Some(false)]);
        let seen = again.view.overview(&name("vm1")).await.unwrap();
        assert_eq!(seen.health.condition, Condition::Degraded);
        assert!(seen.health.why.contains("store b"), "{}", seen.health.why);
    });
}

/// Seals a volume's fence at a store, as any client that may write there can.
async fn seal(places: &Places, called: &str, mark: u64) {
    let node = Rc::clone(&places.0.borrow()[called].node);
    LocalConnector(node).open("g/00000001", mark).await.unwrap();
}

#[test]
fn a_volume_sealed_beyond_reason_says_so_and_repair_puts_it_right() {
    env::Runtime::simulated(303).block_on(async {
        let (_meta_store, places, cluster) = two_stores().await;
        cluster.volumes.create(&vm("vm1")).await.unwrap();
        let in_use = cluster.openings.open(&name("vm1")).await.unwrap();
        write(in_use.volume(), 0, 5).await;
        drop(in_use);
        env::sleep(Nanos::secs(10)).await;
        for store in ["a", "b"] {
            seal(&places, store, 1 << 31).await;
        }
        let refused = error_text(cluster.openings.open(&name("vm1")).await);
        assert!(refused.contains("is sealed for 2147483648"), "{refused}");
        let refused = error_text(cluster.openings.open(&name("vm1")).await);
        assert!(refused.contains("`tanada volume repair vm1`"), "{refused}");
        let seen = cluster.view.overview(&name("vm1")).await.unwrap();
        assert_eq!(seen.health.condition, Condition::Offline);
        assert!(seen.health.why.contains("`tanada volume repair vm1`"));
        // One store is away: its fence would be in the way when it comes back.
        places.0.borrow()["b"].down.set(true);
        let repaired = cluster
            .repairs
            .repair(&name("vm1"), Some(Nanos::secs(60)), false)
            .await;
        let refused = error_text(repaired);
        assert!(refused.contains("store b: it is down"), "{refused}");
        places.0.borrow()["b"].down.set(false);
        let repaired = cluster
            .repairs
            .repair(&name("vm1"), Some(Nanos::secs(60)), false)
            .await;
        let repaired = repaired.unwrap();
        assert_eq!(repaired.health.condition, Condition::Healthy);
        assert_eq!(repaired.losses.len(), 0);
        let in_use = cluster.openings.open(&name("vm1")).await.unwrap();
        assert_eq!(read(in_use.volume(), 0).await, 5);
        write(in_use.volume(), 0, 6).await;
    });
}

#[test]
fn an_empty_store_that_is_sealed_beyond_reason_is_put_right_too() {
    env::Runtime::simulated(305).block_on(async {
        let (_meta_store, places, cluster) = two_stores().await;
        cluster.volumes.create(&vm("vm1")).await.unwrap();
        let in_use = cluster.openings.open(&name("vm1")).await.unwrap();
        write(in_use.volume(), 0, 5).await;
        drop(in_use);
        env::sleep(Nanos::secs(10)).await;
        for store in ["c", "d"] {
            let number = places.add(&cluster, store, store).await.number;
            let listed = cluster
                .view
                .overview(&name("vm1"))
                .await
                .unwrap()
                .record
                .stores;
            assert!(!listed.unwrap().contains(&number), "it has nothing");
        }
        seal(&places, "c", 1 << 31).await;
        let refused = error_text(cluster.openings.open(&name("vm1")).await);
        assert!(refused.contains("is sealed for 2147483648"), "{refused}");
        // One that has nothing need not answer.
        places.0.borrow()["d"].down.set(true);
        let repaired = cluster
            .repairs
            .repair(&name("vm1"), Some(Nanos::secs(60)), false)
            .await;
        assert_eq!(repaired.unwrap().health.condition, Condition::Healthy);
        let in_use = cluster.openings.open(&name("vm1")).await.unwrap();
        assert_eq!(read(in_use.volume(), 0).await, 5);
    });
}

#[test]
fn a_volume_with_a_record_older_than_its_stores_is_not_force_repaired() {
    env::Runtime::simulated(304).block_on(async {
        let (_meta_store, places, cluster) = two_stores().await;
        cluster.volumes.create(&vm("vm1")).await.unwrap();
        let in_use = cluster.openings.open(&name("vm1")).await.unwrap();
        write(in_use.volume(), 0, 5).await;
        drop(in_use);
        env::sleep(Nanos::secs(10)).await;
        seal(&places, "a", 1_000_000).await;
        for _ in 0..2 {
            let refused = error_text(cluster.openings.open(&name("vm1")).await);
            assert!(refused.contains("bring back the newer one"), "{refused}");
        }
        let repaired = cluster
            .repairs
            .repair(&name("vm1"), Some(Nanos::secs(60)), false)
            .await;
        let refused = error_text(repaired);
        assert!(refused.contains("bring back the newer one"), "{refused}");
        let seen = cluster.view.overview(&name("vm1")).await.unwrap();
        assert_eq!(seen.health.condition, Condition::Offline);
    });
}
