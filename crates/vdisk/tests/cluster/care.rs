//! What goes wrong with stores, and what is done about it where no node has a volume open.

use store::BadBlock;
use vdisk::cluster::overview::Overview;

use super::*;

/// Damages this page of the only extent of a store, and scrubs the store.
async fn spoil(place: &Place, byte: u8, which: &[usize]) {
    let disk = &place.disk;
    let size = disk.info().size.0;
    let mut seen = 0;
    for at in (0..size).step_by(4096) {
        let sector = Sector(at / 512);
        let buf = disk.read(sector, Buf::for_read(4096), Class::Foreground);
        let buf = buf.await.unwrap();
        if buf.iter().any(|it| *it != byte) {
            continue;
        }
        if which.contains(&seen) {
            let wrong = View::copy_of(&[byte ^ 0xff; 512]);
            disk.write_at(sector, wrong).await.unwrap();
        }
        seen += 1;
    }
    let store = place.node.store();
    while !store.scrub_step(Bytes::mib(4)).await.unwrap().round_done {}
    assert_eq!(bad(place).len(), which.len());
}

fn bad(place: &Place) -> Vec<BadBlock> {
    place.node.store().bad_blocks()
}

/// A closed volume of 64 pages with this in them.
async fn closed_volume(cluster: &Cluster, called: &str, byte: u8) {
    cluster.volumes.create(&vm(called)).await.unwrap();
    let in_use = cluster.openings.open(&name(called)).await.unwrap();
    let data = View::copy_of(&[byte; 64 * 4096]);
    in_use.volume().write_at(Sector(0), data).await.unwrap();
    drop(in_use);
    env::sleep(Nanos::secs(10)).await;
    let seen = cluster.view.overview(&name(called)).await.unwrap();
    assert_eq!(seen.used, Use::Closed);
}

#[test]
fn a_repair_writes_what_a_scrub_found_anew_and_names_what_no_copy_has() {
    env::Runtime::simulated(71).block_on(async {
        let (_meta_store, places, cluster) = two_stores().await;
        closed_volume(&cluster, "vm1", 0x5a).await;
        let (a, b) = {
            let places = places.0.borrow();
            (Rc::clone(&places["a"]), Rc::clone(&places["b"]))
        };
        let all: Vec<usize> = (0..64).collect();
        spoil(&a, 0x5a, &all).await;
        spoil(&b, 0x5a, &[7]).await;
        let repaired = cluster
            .repairs
            .repair(&name("vm1"), None, false)
            .await
            .unwrap();
        assert_eq!(repaired.counters.repaired_bytes, 63 * 4096);
        let left = repaired.damage.left;
        assert_eq!(left.len(), 2, "{left:?}");
        assert!(
            left.iter()
                .all(|it| it.lost && it.damage.offset == 7 * 4096)
        );
        assert_eq!(repaired.health.condition, Condition::Degraded);
        assert!(
            repaired.health.why.contains("28672"),
            "{}",
            repaired.health.why
        );
        assert_eq!((bad(&a).len(), bad(&b).len()), (1, 1));
    });
}

#[test]
fn damage_of_a_closed_volume_is_repaired_in_the_background() {
    env::Runtime::simulated(72).block_on(async {
        let (_meta_store, places, cluster) = two_stores().await;
        closed_volume(&cluster, "vm1", 0x5a).await;
        let a = Rc::clone(&places.0.borrow()["a"]);
        spoil(&a, 0x5a, &[0, 1, 2, 63]).await;
        env::sleep(Nanos::secs(30)).await;
        assert!(bad(&a).is_empty(), "{:?}", bad(&a));
        let seen = cluster.view.overview(&name("vm1")).await.unwrap();
        assert_eq!(seen.used, Use::Closed);
    });
}

#[test]
fn damage_of_what_a_clone_has_of_a_deleted_volume_is_repaired() {
    env::Runtime::simulated(73).block_on(async {
        let (_meta_store, places, cluster) = two_stores().await;
        closed_volume(&cluster, "vm1", 0x5a).await;
        cluster
            .volumes
            .snapshot(&name("vm1"), &name("s"))
            .await
            .unwrap();
        let (of, snapshot, new) = (name("vm1"), name("s"), name("vm2"));
        cluster
            .volumes
            .clone_volume(&of, &snapshot, &new)
            .await
            .unwrap();
        cluster
            .volumes
            .remove_snapshot(&name("vm1"), &name("s"))
            .await
            .unwrap();
        cluster.volumes.remove(&name("vm1")).await.unwrap();
        env::sleep(Nanos::secs(20)).await;
        let a = Rc::clone(&places.0.borrow()["a"]);
        spoil(&a, 0x5a, &[0, 1, 2, 63]).await;
        env::sleep(Nanos::secs(30)).await;
        assert!(bad(&a).is_empty(), "{:?}", bad(&a));
    });
}

#[test]
fn a_repair_without_the_dead_store_says_so_within_seconds() {
    env::Runtime::simulated(74).block_on(async {
        let (_meta_store, places, cluster) = two_stores().await;
        closed_volume(&cluster, "vm1", 1).await;
        places.0.borrow()["b"].down.set(true);
        let before = env::now();
        let repaired = cluster
            .repairs
            .repair(&name("vm1"), None, false)
            .await
            .unwrap();
        let took = env::now().since(before);
        assert!(took < Nanos::secs(60), "{took}");
        assert_eq!(repaired.health.condition, Condition::Degraded);
        assert_eq!(repaired.missing_copies, 1);
        assert!(
            repaired.health.why.contains("store b"),
            "{}",
            repaired.health.why
        );
    });
}

#[test]
fn a_dead_store_is_removed_as_lost_though_its_volumes_are_closed() {
    env::Runtime::simulated(75).block_on(async {
        let (_meta_store, places, cluster) = two_stores().await;
        closed_volume(&cluster, "vm1", 1).await;
        closed_volume(&cluster, "vm2", 2).await;
        places.add(&cluster, "c", "dc").await;
        places.0.borrow()["b"].down.set(true);
        cluster.membership.remove(&name("b"), true).await.unwrap();
        let repaired = cluster
            .repairs
            .repair(&name("vm1"), None, false)
            .await
            .unwrap();
        let why = repaired.health.why;
        assert_eq!(repaired.health.condition, Condition::Healthy, "{why}");
        let in_use = cluster.openings.open(&name("vm2")).await.unwrap();
        assert_eq!(read(in_use.volume(), 0).await, 2);
    });
}

#[test]
fn a_store_that_answers_is_not_removed_as_lost() {
    env::Runtime::simulated(76).block_on(async {
        let (_meta_store, places, cluster) = two_stores().await;
        places.add(&cluster, "c", "dc").await;
        closed_volume(&cluster, "vm1", 1).await;
        let has = if places.extents("a") > 0 { "a" } else { "b" };
        let refused = error_text(cluster.membership.remove(&name(has), true).await);
        assert!(refused.contains("answers still"), "{refused}");
        let seen = cluster.view.overview(&name("vm1")).await.unwrap();
        assert!(seen.record.out.is_empty());
    });
}

#[test]
fn a_node_asks_the_one_that_has_a_volume_open() {
    env::Runtime::simulated(77).block_on(async {
        let (meta_store, places, owner) = two_stores().await;
        let asker = super::cluster("n2", meta_store.client(), &places);
        asker.start();
        owner.volumes.create(&vm("vm1")).await.unwrap();
        let in_use = owner.openings.open(&name("vm1")).await.unwrap();
        write(in_use.volume(), 0, 1).await;
        let before = env::now();
        let now = asker.volumes.snapshot(&name("vm1"), &name("s")).await.unwrap();
        assert_eq!(now.snapshots.len(), 1);
        assert_eq!(now.used, Use::Node("n1".to_owned()));
        let now = asker.volumes.resize(&name("vm1"), 2 * SIZE, false).await.unwrap();
        assert_eq!(now.size, 2 * SIZE);
        assert!(env::now().since(before) < Nanos::secs(5));
        assert_eq!(in_use.volume().info().size, Bytes(2 * SIZE));
        // What is refused there is refused here, in its words.
        let refused = error_text(asker.volumes.snapshot(&name("vm1"), &name("s")).await);
        let expected = "node n1, which has the volume open: volume vm1 has a snapshot s already; choose another name, or delete it";
        assert_eq!(refused, expected);
        let refused = error_text(asker.volumes.resize(&name("vm1"), SIZE, false).await);
        assert!(refused.contains("node n1") && refused.contains("--shrink"), "{refused}");
        // Nothing is left of it.
        let left = vdisk::meta::whole_range(&*meta_store.client(), "a").await.unwrap().0;
        let left: Vec<String> = left.into_iter().map(|it| it.key).collect();
        assert!(left.iter().all(|key| key.starts_with("alive/")), "{left:?}");
    });
}

#[test]
fn a_volume_that_is_closed_while_its_owner_is_asked_is_changed_by_who_asked() {
    env::Runtime::simulated(78).block_on(async {
        let (meta_store, places, owner) = two_stores().await;
        let meta = meta_store.client();
        let asker = super::cluster("n2", meta.clone(), &places);
        asker.start();
        owner.volumes.create(&vm("vm1")).await.unwrap();
        let in_use = owner.openings.open(&name("vm1")).await.unwrap();
        write(in_use.volume(), 0, 1).await;
        let asking = asked(&asker);
        until_asked(&meta).await;
        drop(in_use);
        // It closes the volume before it looks at what others ask.
        owner.stop().await;
        let now = asking.await.unwrap();
        assert_eq!(now.snapshots.len(), 1);
        let used = asker.view.overview(&name("vm1")).await.unwrap().used;
        assert_eq!(used, Use::Here(0), "it was opened by who asked");
        assert_eq!(questions(&meta).await, 0, "it was withdrawn");
    });
}

/// Another node than the owner is asked for a snapshot.
fn asked(asker: &Rc<Cluster>) -> env::Task<Result<Overview, ClusterError>> {
    let asker = Rc::clone(asker);
    env::spawn(async move { asker.volumes.snapshot(&name("vm1"), &name("s")).await })
}

async fn questions(meta: &MemoryMetaClient) -> usize {
    let found = meta.range("ask/", None, 10).await;
    found.unwrap().entries.len()
}

async fn until_asked(meta: &MemoryMetaClient) {
    while questions(meta).await == 0 {
        env::sleep(Nanos::millis(1)).await;
    }
}

#[test]
fn a_forwarded_request_without_an_answer_names_the_request_and_the_node() {
    env::Runtime::simulated(80).block_on(async {
        let (meta_store, places, owner) = two_stores().await;
        let meta = meta_store.client();
        let asker = super::cluster("n2", meta.clone(), &places);
        asker.start();
        owner.volumes.create(&vm("vm1")).await.unwrap();
        let in_use = owner.openings.open(&name("vm1")).await.unwrap();
        write(in_use.volume(), 0, 1).await;
        let asking = asked(&asker);
        until_asked(&meta).await;
        refuse(&meta, true);
        let refused = error_text(asking.await);
        assert!(
            refused.starts_with(
                "node n1 was asked to take a snapshot of volume vm1, and the meta store"
            ),
            "{refused}"
        );
        assert!(refused.contains("`tanada volume show vm1`"), "{refused}");
    });
}

#[test]
fn an_empty_meta_store_beside_stores_with_volumes_is_a_warning() {
    env::Runtime::simulated(79).block_on(async {
        let (_meta_store, places, cluster) = two_stores().await;
        assert_eq!(cluster.forgotten_volumes().await.unwrap(), None);
        closed_volume(&cluster, "vm1", 1).await;
        assert_eq!(cluster.forgotten_volumes().await.unwrap(), None);
        cluster.stop().await;
        let meta_store = MemoryMetaStore::new("another");
        let after = super::cluster("n1", meta_store.client(), &places);
        for (called, domain) in [("a", "da"), ("b", "db")] {
            let uuid = places.0.borrow()[called].node.store().uuid();
            after
                .stores
                .register(&registration(called, uuid, domain))
                .await
                .unwrap();
        }
        let said = after.forgotten_volumes().await.unwrap().unwrap();
        assert!(said.contains("data of volumes on a, b"), "{said}");
    });
}

#[test]
fn a_backup_of_the_meta_store_serves_its_volumes_when_the_file_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let (path, backup) = (dir.path().join("meta.redb"), dir.path().join("backup"));
    let runtime = env::Runtime::real(env::RealConfig::default()).unwrap();
    runtime.block_on(async move {
        let places = Rc::new(Places::default());
        let redb = Redb::open(&path).unwrap();
        let before = super::cluster("n1", redb.handle().client(), &places);
        places.add(&before, "a", "da").await;
        before.volumes.create(&vm("vm1")).await.unwrap();
        let in_use = before.openings.open(&name("vm1")).await.unwrap();
        write(in_use.volume(), 4096, 9).await;
        drop(in_use);
        assert!(before.stop().await.is_empty());
        drop((before, redb));
        // As the documentation says: copied while the node is stopped; lost; put back.
        std::fs::copy(&path, &backup).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::copy(&backup, &path).unwrap();
        let redb = Redb::open(&path).unwrap();
        let after = super::cluster("n1", redb.handle().client(), &places);
        assert_eq!(after.forgotten_volumes().await.unwrap(), None);
        let in_use = after.openings.open(&name("vm1")).await.unwrap();
        assert_eq!(read(in_use.volume(), 4096).await, 9);
        drop(in_use);
        assert!(after.stop().await.is_empty());
    });
}
