//! Deleted volumes are whole until their time is over, whatever happens to stores and nodes meanwhile.

use vdisk::cluster::overview::Overview;
use vdisk::cluster::trash::{InTrash, KEPT};
use vdisk::meta::{Compare, Entry, Outcome, Page, Pending as Asked, Revision, Watch};

use super::*;

/// Longer than a node takes to look for volumes whose time is over, and to remove one.
const LOOKED: Nanos = Nanos::secs(330);

/// A volume with 1 in a snapshot, and 2 since then; closed.
async fn a_volume_with_a_snapshot(cluster: &Cluster) {
    cluster.volumes.create(&vm("vm1")).await.unwrap();
    let in_use = cluster.openings.open(&name("vm1")).await.unwrap();
    write(in_use.volume(), 0, 1).await;
    write(in_use.volume(), 4 << 20, 1).await;
    let monday = name("monday");
    cluster
        .volumes
        .snapshot(&name("vm1"), &monday)
        .await
        .unwrap();
    write(in_use.volume(), 0, 2).await;
    drop(in_use);
    env::sleep(Nanos::secs(10)).await;
}

async fn reads(cluster: &Cluster, called: &str, at: u64) -> u8 {
    let in_use = cluster.openings.open(&name(called)).await.unwrap();
    read(in_use.volume(), at).await
}

/// The volume of [`a_volume_with_a_snapshot`] is as it was, under this name.
async fn is_whole(cluster: &Cluster, called: &str) {
    assert_eq!(reads(cluster, called, 0).await, 2);
    assert_eq!(reads(cluster, called, 4 << 20).await, 1);
    let copy = name("copy");
    let (of, monday) = (name(called), name("monday"));
    cluster
        .volumes
        .clone_volume(&of, &monday, &copy)
        .await
        .unwrap();
    assert_eq!(reads(cluster, "copy", 0).await, 1);
    env::sleep(Nanos::secs(10)).await;
    cluster.volumes.remove(&copy).await.unwrap();
}

async fn volumes(cluster: &Cluster) -> Vec<String> {
    let all = cluster.view.list().await.unwrap();
    all.iter().map(|it| it.record.name.to_string()).collect()
}

async fn trash(cluster: &Cluster) -> Vec<InTrash> {
    cluster.trash.list().await.unwrap()
}

async fn put(cluster: &Cluster, called: &str) -> Name {
    cluster.trash.put(&name(called), None).await.unwrap();
    trash(cluster).await.last().unwrap().id()
}

/// Neither losses nor leaks.
async fn audit(cluster: &Cluster) {
    let report = cluster.collecting.audit(false).await.unwrap();
    let clean = report.losses.is_empty() && report.leaks.is_empty();
    assert!(clean && report.unknown.is_empty(), "{report:?}");
}

/// All that was freed is gone from the stores.
async fn is_empty(places: &Places) {
    env::sleep(Nanos::secs(20)).await;
    assert_eq!((places.objects("a"), places.objects("b")), (0, 0));
}

#[test]
fn a_deleted_volume_has_no_name_and_is_restored_whole_under_a_free_one() {
    env::Runtime::simulated(301).block_on(async {
        let (_meta_store, _places, cluster) = two_stores().await;
        a_volume_with_a_snapshot(&cluster).await;
        let in_use = cluster.openings.open(&name("vm1")).await.unwrap();
        let refused = error_text(cluster.trash.put(&name("vm1"), None).await);
        assert!(
            refused.contains("cannot delete volume vm1: it is in use here"),
            "{refused}"
        );
        drop(in_use);
        let by = Some("ann".to_owned());
        let record = cluster.trash.put(&name("vm1"), by.clone()).await.unwrap();
        assert_eq!(record.ends_ms - record.deleted_ms, 7 * 24 * 3600 * 1000);
        let found = trash(&cluster).await;
        let Overview {
            size,
            snapshots,
            used,
            ..
        } = &found[0].volume;
        assert_eq!((*size, snapshots.len(), used), (SIZE, 1, &Use::Closed));
        assert_eq!(
            (found[0].record.name.as_str(), &found[0].record.by),
            ("vm1", &by)
        );
        let id = found[0].id();
        assert_eq!(id.as_str(), "deleted.00000001");

        assert!(volumes(&cluster).await.is_empty());
        assert!(cluster.view.volumes().await.unwrap().is_empty());
        for gone in ["vm1", id.as_str()] {
            let refused = error_text(cluster.openings.open(&name(gone)).await);
            assert_eq!(
                refused,
                format!("there is no volume {gone}; there are none")
            );
            let refused = error_text(cluster.volumes.remove(&name(gone)).await);
            assert!(refused.contains("there is no volume"), "{refused}");
        }
        let refused = error_text(cluster.volumes.create(&vm("deleted.00000007")).await);
        assert!(
            refused.contains("volumes in the trash are called so"),
            "{refused}"
        );
        env::sleep(Nanos::secs(60)).await;
        audit(&cluster).await;

        cluster.volumes.create(&vm("vm1")).await.unwrap();
        let refused = error_text(cluster.trash.restore(&name("vm1"), None).await);
        assert!(
            refused.contains("there is a volume vm1 already"),
            "{refused}"
        );
        let vm2 = name("vm2");
        let restored = cluster
            .trash
            .restore(&name("vm1"), Some(&vm2))
            .await
            .unwrap();
        assert_eq!((restored.record.name, restored.snapshots.len()), (vm2, 1));
        is_whole(&cluster, "vm2").await;
        assert!(trash(&cluster).await.is_empty());
        let missing = error_text(cluster.trash.restore(&name("vm1"), None).await);
        assert_eq!(missing, "there is no vm1 in the trash; there are none");
    });
}

#[test]
fn deleted_volumes_of_one_name_differ_by_what_they_are_called_in_the_trash() {
    env::Runtime::simulated(302).block_on(async {
        let (_meta_store, places, cluster) = two_stores().await;
        let mut ids = Vec::new();
        for byte in [1, 2] {
            cluster.volumes.create(&vm("vm1")).await.unwrap();
            let in_use = cluster.openings.open(&name("vm1")).await.unwrap();
            write(in_use.volume(), 0, byte).await;
            drop(in_use);
            ids.push(put(&cluster, "vm1").await);
            env::sleep(Nanos::secs(1)).await;
        }
        let refused = error_text(cluster.trash.delete(&name("vm1")).await);
        let said = format!(
            "there are 2 volumes vm1 in the trash: {}, {}; say which of these",
            ids[0], ids[1]
        );
        assert_eq!(refused, said);
        cluster.trash.restore(&ids[1], None).await.unwrap();
        assert_eq!(reads(&cluster, "vm1", 0).await, 2);
        cluster.trash.delete(&name("vm1")).await.unwrap();
        assert!(trash(&cluster).await.is_empty());
        env::sleep(Nanos::secs(10)).await;
        cluster.volumes.remove(&name("vm1")).await.unwrap();
        is_empty(&places).await;
    });
}

#[test]
fn a_volume_is_removed_with_its_snapshots_after_seven_days_and_its_clone_goes_on() {
    env::Runtime::simulated(303).block_on(async {
        let (_meta_store, places, cluster) = two_stores().await;
        a_volume_with_a_snapshot(&cluster).await;
        let (vm1, monday, vm2) = (name("vm1"), name("monday"), name("vm2"));
        cluster
            .volumes
            .clone_volume(&vm1, &monday, &vm2)
            .await
            .unwrap();
        let id = put(&cluster, "vm1").await;
        let clone = cluster.view.overview(&vm2).await.unwrap();
        assert_eq!(clone.from, Some(format!("{id}@monday")));
        assert_eq!(reads(&cluster, "vm2", 0).await, 1);
        sim::stopped(sim::host(), Nanos(KEPT.0 - Nanos::secs(1000).0));
        env::sleep(LOOKED).await;
        assert_eq!(trash(&cluster).await.len(), 1);
        sim::stopped(sim::host(), Nanos::secs(1000));
        env::sleep(LOOKED).await;
        assert!(trash(&cluster).await.is_empty());
        audit(&cluster).await;
        assert_eq!(reads(&cluster, "vm2", 0).await, 1);
        assert_eq!(reads(&cluster, "vm2", 4 << 20).await, 1);
        env::sleep(Nanos::secs(10)).await;
        cluster.volumes.remove(&vm2).await.unwrap();
        is_empty(&places).await;
    });
}

#[test]
fn a_volume_in_the_trash_leaves_drained_and_lost_stores_and_gets_its_copies_back() {
    env::Runtime::simulated(304).block_on(async {
        let (_meta_store, places, cluster) = two_stores_with(Nanos::secs(10)).await;
        a_volume_with_a_snapshot(&cluster).await;
        put(&cluster, "vm1").await;
        places.add(&cluster, "c", "dc").await;
        let (a, b) = (name("a"), name("b"));
        cluster
            .membership
            .set_state(&a, StoreState::Draining)
            .await
            .unwrap();
        for _ in 0..600 {
            env::sleep(Nanos::secs(1)).await;
            if cluster.membership.remove(&a, false).await.is_ok() {
                break;
            }
        }
        assert_eq!(places.objects("a"), 0);
        // Now b is gone for good, and d takes its place.
        places.add(&cluster, "d", "dd").await;
        env::sleep(Nanos::secs(60)).await;
        places.0.borrow()["b"].down.set(true);
        cluster.membership.remove(&b, true).await.unwrap();
        env::sleep(Nanos::secs(300)).await;
        let found = trash(&cluster).await.remove(0).volume;
        assert_eq!(found.record.redundancy_floor, 2, "{found:?}");
        assert_eq!(found.health.condition, Condition::Healthy, "{found:?}");
        audit(&cluster).await;
        cluster.trash.restore(&name("vm1"), None).await.unwrap();
        is_whole(&cluster, "vm1").await;
    });
}

#[test]
fn what_an_older_program_renames_or_removes_leaves_the_trash() {
    env::Runtime::simulated(305).block_on(async {
        let (meta_store, _places, cluster) = two_stores().await;
        a_volume_with_a_snapshot(&cluster).await;
        let id = put(&cluster, "vm1").await;
        // An older program renames it: its records are as those of any volume.
        let meta = meta_store.client();
        let entry = meta.get("volume/00000001").await.unwrap().unwrap();
        let text = String::from_utf8(entry.value).unwrap();
        let put_key = |key: &str, value: &str| Op::Put {
            key: key.to_owned(),
            value: value.as_bytes().to_vec(),
            lease: None,
        };
        let ops = vec![
            put_key("volume/00000001", &text.replace(id.as_str(), "old")),
            put_key("volume-name/old", "00000001"),
            Op::Delete {
                key: format!("volume-name/{id}"),
            },
        ];
        meta.txn(Vec::new(), ops).await.unwrap();
        assert!(trash(&cluster).await.is_empty());
        is_whole(&cluster, "old").await;
        sim::stopped(sim::host(), KEPT);
        env::sleep(LOOKED).await;
        is_whole(&cluster, "old").await;
        assert_eq!(meta.get("trash/00000001").await.unwrap(), None);
    });
}

/// A way to the meta store that is gone after so many changes of volumes; the last one is done or not.
struct Dying {
    meta: Rc<MemoryMetaClient>,
    left: Cell<u32>,
    last_is_done: bool,
}

impl MetaStore for Dying {
    fn get<'a>(&'a self, key: &'a str) -> Asked<'a, Option<Entry>> {
        self.meta.get(key)
    }

    fn range<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        most: usize,
    ) -> Asked<'a, Page> {
        self.meta.range(prefix, after, most)
    }

    fn txn(&self, compares: Vec<Compare>, ops: Vec<Op>) -> Asked<'_, Outcome> {
        Box::pin(async move {
            match self.left.get().checked_sub(1) {
                Some(left) => self.left.set(left),
                None if !self.meta.faults().refused => {
                    if self.last_is_done {
                        self.meta.txn(compares, ops).await?;
                    }
                    refuse(&self.meta, true);
                    self.meta.get("").await?;
                    unreachable!("it is refused");
                }
                None => {}
            }
            self.meta.txn(compares, ops).await
        })
    }

    fn watch<'a>(&'a self, prefix: &'a str, from: Revision) -> Asked<'a, Box<dyn Watch>> {
        self.meta.watch(prefix, from)
    }

    fn lease(&self, ttl: Nanos) -> Asked<'_, LeaseId> {
        self.meta.lease(ttl)
    }

    fn keep(&self, lease: LeaseId) -> Asked<'_, Nanos> {
        self.meta.keep(lease)
    }

    fn revoke(&self, lease: LeaseId) -> Asked<'_, ()> {
        self.meta.revoke(lease)
    }
}

/// Puts a volume there, takes it out, and deletes it for good, on a node that crashes.
async fn all_steps(node: &Cluster) -> Result<(), ClusterError> {
    let vm1 = name("vm1");
    node.trash.put(&vm1, None).await?;
    node.trash.restore(&vm1, None).await?;
    node.trash.put(&vm1, None).await?;
    node.trash.delete(&vm1).await
}

/// A node that crashes after so many changes. Did it do all before?
async fn crashes_after(changes: u32, last_is_done: bool) -> bool {
    let (meta_store, places, cluster) = two_stores().await;
    a_volume_with_a_snapshot(&cluster).await;
    let dying = Rc::new(Dying {
        meta: meta_store.client(),
        left: Cell::new(changes),
        last_is_done,
    });
    let node = super::cluster("n2", dying.clone(), &places);
    let done = all_steps(&node).await;
    let crashed = dying.meta.faults().refused;
    assert!(done.is_ok() || crashed, "{done:?}");
    drop(node);
    let (there, in_trash) = (volumes(&cluster).await, trash(&cluster).await);
    assert!(there.len() + in_trash.len() <= 1);
    if there.is_empty() && in_trash.iter().all(|it| it.record.deleting) {
        if !in_trash.is_empty() {
            let refused = error_text(cluster.trash.restore(&name("vm1"), None).await);
            assert!(refused.contains("it is being removed"), "{refused}");
        }
        env::sleep(LOOKED).await;
        assert!(trash(&cluster).await.is_empty());
        is_empty(&places).await;
        return !crashed;
    }
    env::sleep(LOOKED).await;
    audit(&cluster).await;
    if there.is_empty() {
        cluster.trash.restore(&name("vm1"), None).await.unwrap();
    }
    is_whole(&cluster, "vm1").await;
    !crashed
}

#[test]
fn a_crash_at_any_step_leaves_a_volume_whole_or_gone() {
    let mut whole = Vec::new();
    for changes in 0..12 {
        for last_is_done in [false, true] {
            let runtime = env::Runtime::simulated(310 + u64::from(changes));
            whole.push(runtime.block_on(crashes_after(changes, last_is_done)));
        }
    }
    // The last ones got through, and there were steps to crash at.
    let steps = whole.iter().filter(|it| !**it).count();
    assert!((12..24).contains(&steps), "{steps}");
}
