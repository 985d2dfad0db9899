//! The cluster's level: nodes whose programs can do different ones, a raise under load, and what programs before levels read.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use vdisk::cluster::level::{LEVEL_MAX, Level, LevelRange};
use vdisk::cluster::upgrade::Upgraded;
use vdisk::meta::{Entry, whole_range};

use super::*;

/// The record of a store as programs have it that know of no levels.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoreBefore {
    version: u32,
    number: u16,
    name: String,
    uuid: String,
    node: String,
    address: String,
    domain: String,
    #[serde(default)]
    rotating: bool,
    #[serde(default)]
    leased: bool,
    #[serde(default)]
    state: StateBefore,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum StateBefore {
    #[default]
    Active,
    Draining,
}

fn store_before() -> StoreBefore {
    StoreBefore {
        version: 1,
        number: 1,
        name: "old".to_owned(),
        uuid: format!("{:032x}", 7),
        node: "n0".to_owned(),
        address: "unix:old".to_owned(),
        domain: "d0".to_owned(),
        rotating: true,
        leased: true,
        state: StateBefore::Draining,
    }
}

/// And what a node says while it is up.
#[derive(Debug, Serialize, Deserialize)]
struct AliveBefore {
    stores: BTreeSet<String>,
}

fn levels(min: u32, max: u32) -> LevelRange {
    LevelRange::new(Level(min), Level(max)).expect("a range")
}

/// A node whose program can do these.
fn node(
    called: &str,
    meta: &Rc<MemoryMetaStore>,
    places: &Rc<Places>,
    range: LevelRange,
) -> Rc<Cluster> {
    let settings = Settings {
        collect_every: Nanos::secs(3),
        levels: range,
        ..Settings::new(name(called))
    };
    let policy = build(Kind::Tanada, &Options::default());
    let ways: Rc<dyn Ways> = places.clone();
    Cluster::new(settings, meta.client(), ways, policy)
}

/// A meta store in which programs before levels have taken stores in.
async fn begun_before_levels() -> Rc<MemoryMetaStore> {
    let meta = MemoryMetaStore::new("meta");
    put(&*meta.client(), "store-next", b"1", None).await;
    meta
}

async fn put(meta: &dyn MetaStore, key: &str, value: &[u8], lease: Option<LeaseId>) {
    let put = Op::Put {
        key: key.to_owned(),
        value: value.to_vec(),
        lease,
    };
    meta.txn(Vec::new(), vec![put]).await.expect("it is put");
}

async fn entries(meta: &Rc<MemoryMetaStore>, prefix: &str) -> Vec<Entry> {
    let found = whole_range(&*meta.client(), prefix).await;
    found.expect("it answers").0
}

async fn level(cluster: &Cluster) -> Level {
    let seen = cluster.view.seen_records().await.expect("seen");
    seen.levels().expect("it answers").level
}

async fn versions(meta: &Rc<MemoryMetaStore>) -> Vec<u64> {
    let version = |entry: &Entry| {
        let record: serde_json::Value = serde_json::from_slice(&entry.value).expect("JSON");
        record["version"].as_u64().expect("a version")
    };
    entries(meta, "store/").await.iter().map(version).collect()
}

fn from_to(raised: &Result<Upgraded, ClusterError>) -> (u32, u32) {
    let raised = raised.as_ref().expect("it is raised");
    (raised.from.0, raised.to.0)
}

#[test]
fn what_is_written_at_level_1_is_read_by_programs_before_levels() {
    env::Runtime::simulated(1).block_on(async {
        let meta = begun_before_levels().await;
        let places = Rc::new(Places::default());
        let cluster = node("n1", &meta, &places, LevelRange::of_program());
        let first = places.add(&cluster, "a", "da").await;
        cluster.serves([first.uuid.clone()].into());
        cluster.start();
        places.add(&cluster, "b", "db").await;
        cluster.volumes.create(&vm("vm1")).await.unwrap();
        let in_use = cluster.openings.open(&name("vm1")).await.unwrap();
        write(in_use.volume(), 0, 1).await;
        cluster
            .volumes
            .snapshot(&name("vm1"), &name("s"))
            .await
            .unwrap();
        cluster
            .membership
            .set_state(&name("b"), StoreState::Draining)
            .await
            .unwrap_err();
        env::sleep(Nanos::secs(5)).await;
        assert_eq!(level(&cluster).await, Level(1));
        let stores = entries(&meta, "store/").await;
        assert_eq!(stores.len(), 2);
        for entry in stores {
            let before: StoreBefore = serde_json::from_slice(&entry.value).expect("as before");
            assert_eq!(before.version, 1);
            // To the byte.
            assert_eq!(serde_json::to_vec(&before).unwrap(), entry.value);
        }
        let alive = entries(&meta, "alive/").await;
        let before: AliveBefore = serde_json::from_slice(&alive[0].value).expect("as before");
        assert_eq!(before.stores, [first.uuid].into());
        // All else that is there are records that did not change, and keys of which those programs know nothing.
        let known = [
            "alive/",
            "cluster/joined",
            "collector",
            "image/",
            "numbers",
            "snapshot/",
            "store-name/",
            "store-next",
            "store/",
            "volume-name/",
            "volume/",
            "writer/",
        ];
        for entry in entries(&meta, "").await {
            assert!(
                known.iter().any(|it| entry.key.starts_with(it)),
                "{}",
                entry.key
            );
        }
    });
}

#[test]
fn what_programs_before_levels_wrote_is_read_and_counts_as_level_1() {
    env::Runtime::simulated(2).block_on(async {
        let meta = begun_before_levels().await;
        let client = meta.client();
        let before = store_before();
        let text = serde_json::to_vec(&before).unwrap();
        put(&*client, "store/00001", &text, None).await;
        let lease = client.lease(Nanos::secs(60)).await.unwrap();
        let stores = [before.uuid.clone()].into();
        let alive = serde_json::to_vec(&AliveBefore { stores }).unwrap();
        put(&*client, "alive/n0", &alive, Some(lease)).await;
        let cluster = clerk("n1", meta.client(), LevelRange::of_program());
        let seen = cluster.view.seen_records().await.unwrap();
        let (record, _) = &seen.stores[&StoreNumber(1)];
        assert_eq!((record.node.as_str(), record.levels), ("n0", None));
        assert_eq!(seen.up.serves(record), Some(true));
        let report = seen.levels().unwrap();
        assert_eq!((report.level, report.next), (Level(1), None));
        cluster.start();
        env::sleep(Nanos::secs(1)).await;
        let text = error_text(cluster.upgrade.run(false).await);
        assert!(
            text.contains("cannot raise the cluster above level 1")
                && text.contains("n0 (up) can do level 1 alone"),
            "{text}"
        );
        // Its node is gone: it never said what it can do.
        client.revoke(lease).await.unwrap();
        let text = error_text(cluster.upgrade.run(true).await);
        assert!(
            text.contains("n0 is down and does not say what it can do"),
            "{text}"
        );
    });
}

#[test]
fn a_new_cluster_begins_at_the_highest_level_and_older_programs_are_refused() {
    env::Runtime::simulated(3).block_on(async {
        let meta = MemoryMetaStore::new("meta");
        let places = Rc::new(Places::default());
        let cluster = node("n1", &meta, &places, LevelRange::of_program());
        cluster.start();
        let record = places.add(&cluster, "a", "da").await;
        places.add(&cluster, "b", "db").await;
        env::sleep(Nanos::secs(2)).await;
        assert_eq!(level(&cluster).await, LEVEL_MAX);
        assert_eq!(record.levels, Some(LevelRange::of_program()));
        let stores = entries(&meta, "store/").await;
        for entry in stores {
            assert!(serde_json::from_slice::<StoreBefore>(&entry.value).is_err());
        }
        cluster.volumes.create(&vm("vm1")).await.unwrap();
        let old = node("n2", &meta, &places, levels(1, 1));
        old.start();
        let expected = "node n2 cannot take part in the cluster: that is at level 2, and this program can do level 1 alone; \
                        install a version on this node that can do level 2, as the other nodes have";
        assert_eq!(error_text(old.levels.check().await), expected);
        assert_eq!(error_text(old.stores.register(&registration("c", 9, "dc")).await), expected);
        assert_eq!(error_text(old.openings.open(&name("vm1")).await.map(|_| ())), expected);
        assert_eq!(error_text(old.upgrade.run(true).await), expected);
        env::sleep(Nanos::secs(30)).await;
        let alive: Vec<String> = entries(&meta, "alive/").await.into_iter().map(|it| it.key).collect();
        assert_eq!(alive, ["alive/n1"]);
        // A program that does not go back as far as the cluster is.
        let newer = node("n3", &meta, &places, levels(3, 4));
        let text = error_text(newer.levels.check().await);
        assert!(text.contains("that is at level 2, and this program can do levels 3 to 4"), "{text}");
        assert!(text.contains("raise the cluster with `tanada cluster upgrade` when all nodes can do level 3"), "{text}");
    });
}

#[test]
fn three_nodes_are_upgraded_one_by_one_and_the_level_rises_under_load() {
    for seed in 0..8 {
        env::Runtime::simulated(seed).block_on(upgraded_under_load());
    }
}

async fn upgraded_under_load() {
    let meta = begun_before_levels().await;
    let places = Rc::new(Places::default());
    let ranges = [levels(1, 2), levels(1, 3), levels(1, 1)];
    let mut nodes = Vec::new();
    for (number, range) in ranges.into_iter().enumerate() {
        let cluster = node(&format!("n{number}"), &meta, &places, range);
        cluster.start();
        let store = format!("s{number}");
        places.add(&cluster, &store, &format!("d{number}")).await;
        nodes.push(cluster);
    }
    env::sleep(Nanos::secs(2)).await;
    let of = NewVolume {
        copies: Some(3),
        ..vm("vm1")
    };
    nodes[0].volumes.create(&of).await.unwrap();
    let in_use = nodes[0].openings.open(&name("vm1")).await.unwrap();
    let (volume, written) = (Rc::clone(in_use.volume()), Rc::new(Cell::new(0_u8)));
    let counted = Rc::clone(&written);
    let _load = env::cancel_scope(env::spawn(async move {
        for byte in 1..=200 {
            write(&volume, 4096 * u64::from(byte), byte).await;
            counted.set(byte);
            env::sleep(Nanos::millis(100)).await;
        }
    }));
    // Some can, one cannot: nothing is changed.
    let refused = error_text(nodes[1].upgrade.run(false).await);
    assert!(
        refused.contains("level 1: n2 (up) can do level 1 alone; install"),
        "{refused}"
    );
    assert_eq!(versions(&meta).await, [1, 1, 1]);
    // Down it keeps the others from it as well: it did not say what it can do.
    let last = nodes.pop().unwrap();
    last.stop().await;
    let refused = error_text(nodes[1].upgrade.run(true).await);
    assert!(
        refused.contains("n2 is down and does not say what it can do"),
        "{refused}"
    );
    let newer = node("n2", &meta, &places, levels(1, 2));
    newer.start();
    env::sleep(Nanos::secs(2)).await;
    let dry = nodes[0].upgrade.run(true).await;
    assert_eq!((from_to(&dry), dry.unwrap().nodes.len()), ((1, 2), 3));
    assert_eq!(level(&nodes[0]).await, Level(1));
    // All that can do more agree on what all can.
    assert_eq!(from_to(&nodes[1].upgrade.run(false).await), (1, 2));
    assert_eq!(level(&newer).await, Level(2));
    assert_eq!(versions(&meta).await, [2, 2, 2]);
    // n1 could do still more.
    let refused = error_text(newer.upgrade.run(false).await);
    assert!(
        refused.contains("above level 2: n0 (up) can do levels 1 to 2, n2 (up)"),
        "{refused}"
    );
    env::sleep(Nanos::secs(30)).await;
    assert_eq!(written.get(), 200);
    assert_eq!(in_use.volume().health().condition, Condition::Healthy);
    for byte in 1..=200_u8 {
        assert_eq!(read(in_use.volume(), 4096 * u64::from(byte)).await, byte);
    }
}

#[test]
fn a_node_that_is_down_counts_by_what_its_stores_records_say_from_level_2_on() {
    env::Runtime::simulated(5).block_on(async {
        let meta = MemoryMetaStore::new("meta");
        let places = Rc::new(Places::default());
        let first = node("n1", &meta, &places, levels(1, 2));
        let second = node("n2", &meta, &places, levels(1, 2));
        first.start();
        second.start();
        let a = places.add(&first, "a", "da").await;
        let b = places.add(&second, "b", "db").await;
        env::sleep(Nanos::secs(1)).await;
        second.stop().await;
        first.stop().await;
        let renewed = |cluster: Rc<Cluster>, record: StoreRecord| async move {
            let new = NewStore {
                node: cluster.node().clone(),
                ..registration(
                    record.name.as_str(),
                    u128::from_str_radix(&record.uuid, 16).unwrap(),
                    record.domain.as_str(),
                )
            };
            cluster.stores.register(&new).await
        };
        let first = node("n1", &meta, &places, levels(1, 3));
        first.start();
        renewed(Rc::clone(&first), a).await.unwrap();
        let text = error_text(first.upgrade.run(false).await);
        assert!(
            text.contains("level 2: n2 (down) can do levels 1 to 2;"),
            "{text}"
        );
        // It comes up with a newer program, and goes.
        let second = node("n2", &meta, &places, levels(2, 3));
        second.start();
        renewed(Rc::clone(&second), b.clone()).await.unwrap();
        env::sleep(Nanos::secs(1)).await;
        second.stop().await;
        let raised = first.upgrade.run(false).await;
        assert_eq!(from_to(&raised), (2, 3));
        let down = &raised.unwrap().nodes[1];
        assert_eq!(down.to_string(), "n2 (down) can do levels 2 to 3");
        // Put back to the older program it is refused.
        let second = node("n2", &meta, &places, levels(1, 2));
        second.start();
        let text = error_text(renewed(Rc::clone(&second), b).await);
        assert!(
            text.contains("node n2 cannot take part in the cluster: that is at level 3"),
            "{text}"
        );
        env::sleep(Nanos::secs(5)).await;
        let alive: Vec<String> = entries(&meta, "alive/")
            .await
            .into_iter()
            .map(|it| it.key)
            .collect();
        assert_eq!(alive, ["alive/n1"]);
    });
}

#[test]
fn a_crash_within_an_upgrade_leaves_the_level_raised_or_as_it_was() {
    let (mut raised, mut not) = (0, 0);
    for seed in 0..60 {
        let is_raised = env::Runtime::simulated(seed).block_on(crashed_within(seed));
        *(if is_raised { &mut raised } else { &mut not }) += 1;
    }
    assert!(raised > 5 && not > 5, "{raised} {not}");
}

/// Stores that no node can reach: only their records count.
struct NoWays;

impl Ways for NoWays {
    fn way(&self, _: &StoreRecord) -> (Rc<dyn Connector>, bool) {
        (Rc::new(NoWays), false)
    }

    fn booked(&self, _: &str) -> [BytesPerSec; 2] {
        [BytesPerSec(0); 2]
    }
}

impl Connector for NoWays {
    fn open_since<'a>(&'a self, _: &'a str, _: u64, _: u64) -> Pending<'a, Rc<dyn Connection>> {
        Box::pin(async { Err(ConnectionError::Gone("it is none".to_owned())) })
    }
}

/// A node of a cluster whose stores are records alone.
fn clerk(called: &str, meta: Rc<dyn MetaStore>, range: LevelRange) -> Rc<Cluster> {
    let settings = Settings {
        levels: range,
        ..Settings::new(name(called))
    };
    let policy = build(Kind::Tanada, &Options::default());
    Cluster::new(settings, meta, Rc::new(NoWays), policy)
}

/// A cluster of more stores than one transaction takes; was the level raised when the node crashed?
async fn crashed_within(seed: u64) -> bool {
    const STORES: u16 = 230;
    let meta = begun_before_levels().await;
    let client = meta.client();
    let cluster = clerk("n1", client.clone(), LevelRange::of_program());
    for number in 1..=STORES {
        let record = StoreBefore {
            number,
            name: format!("s{number}"),
            uuid: format!("{number:032x}"),
            node: "n1".to_owned(),
            leased: number % 2 == 1,
            ..store_before()
        };
        let text = serde_json::to_vec(&record).unwrap();
        put(&*client, &format!("store/{number:05}"), &text, None).await;
    }
    cluster.start();
    env::sleep(Nanos::secs(1)).await;
    client.set_faults(Faults {
        delay_least: Nanos::millis(1),
        delay_most: Nanos::millis(9),
        ..Faults::default()
    });
    let upgrading = Rc::clone(&cluster);
    let task = env::spawn(async move { upgrading.upgrade.run(false).await.map(|_| ()) });
    let task = env::cancel_scope(task);
    env::sleep(Nanos::millis(3 * seed)).await;
    drop(task);
    client.set_faults(Faults {
        refused: true,
        ..Faults::default()
    });
    let next = clerk("n2", meta.client(), LevelRange::of_program());
    next.start();
    env::sleep(Nanos::secs(1)).await;
    let now = level(&next).await;
    let versions_now = versions(&meta).await;
    let new = versions_now.iter().filter(|version| **version == 2).count();
    match now {
        Level(1) => assert_eq!(new, 0),
        _ => assert!(new >= 100, "{new}"),
    }
    // The node is back, and who asks ends what was begun.
    client.set_faults(Faults::default());
    env::sleep(Nanos::secs(15)).await;
    let done = next.upgrade.run(false).await;
    assert_eq!(from_to(&done), (now.0, 2));
    assert!(versions(&meta).await.iter().all(|version| *version == 2));
    now == Level(2)
}

#[test]
fn a_node_that_comes_up_while_the_level_rises_is_seen_or_refused() {
    let (mut held, mut refused) = (0, 0);
    for seed in 0..200 {
        let is_held = env::Runtime::simulated(seed).block_on(joined_meanwhile());
        *(if is_held { &mut held } else { &mut refused }) += 1;
    }
    assert!(held > 20 && refused > 20, "{held} {refused}");
}

/// Did the older node keep the cluster at level 1?
async fn joined_meanwhile() -> bool {
    let meta = begun_before_levels().await;
    let newer = clerk("n1", meta.client(), levels(1, 2));
    newer.start();
    newer
        .stores
        .register(&registration("a", 1, "da"))
        .await
        .unwrap();
    env::sleep(Nanos::secs(1)).await;
    let client = meta.client();
    client.set_faults(Faults {
        delay_most: Nanos::millis(20),
        ..Faults::default()
    });
    let older = clerk("n2", client, levels(1, 1));
    let wait = env::rng("wait").below(60);
    older.start();
    env::sleep(Nanos::millis(wait)).await;
    let raised = newer.upgrade.run(false).await;
    env::sleep(Nanos::secs(5)).await;
    let is_up = entries(&meta, "alive/")
        .await
        .iter()
        .any(|it| it.key == "alive/n2");
    let now = level(&newer).await;
    match raised {
        Ok(_) => assert_eq!((now, is_up), (Level(2), false)),
        Err(error) => {
            assert!(matches!(error, ClusterError::LevelHeld { .. }), "{error}");
            assert_eq!((now, is_up), (Level(1), true));
        }
    }
    is_up
}

#[test]
fn a_follower_hears_the_level_and_each_raise() {
    env::Runtime::simulated(8).block_on(async {
        let meta = begun_before_levels().await;
        let places = Rc::new(Places::default());
        let cluster = node("n1", &meta, &places, LevelRange::of_program());
        cluster.start();
        let other = node("n2", &meta, &places, levels(1, 1));
        let heard: Rc<RefCell<Vec<Level>>> = Rc::default();
        let (all, following) = (Rc::clone(&heard), Rc::clone(&other));
        env::spawn(async move {
            let hear = |level| all.borrow_mut().push(level);
            match following.levels.follow(hear).await {}
        });
        env::sleep(Nanos::secs(1)).await;
        assert_eq!(*heard.borrow(), [Level(1)]);
        // It keeps no lease: the others do not know of it.
        assert_eq!(from_to(&cluster.upgrade.run(false).await), (1, 2));
        env::sleep(Nanos::secs(1)).await;
        assert_eq!(*heard.borrow(), [Level(1), Level(2)]);
        let refused = error_text(other.openings.open(&name("vm1")).await.map(|_| ()));
        assert!(refused.contains("no volume"), "{refused}");
        assert!(other.levels.check().await.is_err());
    });
}
