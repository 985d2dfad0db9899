//! Volumes that no client has open are kept well, and go to the node that wants them.

use super::*;

/// How often nodes look for idle volumes.
const OFTEN: Nanos = Nanos::secs(10);
const NEVER: Nanos = Nanos::secs(100_000);

/// Another node of the cluster, on a host of its own.
async fn second_node(
    meta_store: &Rc<MemoryMetaStore>,
    places: &Rc<Places>,
    looks: Nanos,
) -> Rc<Cluster> {
    let second = cluster_with("n2", meta_store.client(), places, looks);
    let own = Rc::clone(&second);
    sim::on_host(HOME, async move { own.start() }).await;
    second
}

fn set_down(places: &Places, called: &str, down: bool) {
    places.0.borrow()[called].down.set(down);
}

/// Three extents, while one store is away; then no client has it open.
async fn written_without(places: &Places, cluster: &Cluster, away: &str) {
    set_down(places, away, true);
    let in_use = cluster.openings.open(&name("vm1")).await.unwrap();
    for extent in 0..3 {
        write(in_use.volume(), extent << 22, 5).await;
    }
    drop(in_use);
    env::sleep(Nanos::secs(10)).await;
}

async fn is_thin(cluster: &Cluster) -> bool {
    let seen = cluster.view.overview(&name("vm1")).await.unwrap();
    seen.record.redundancy_floor == 1 && seen.health.condition != Condition::Healthy
}

async fn is_well_and_closed(cluster: &Cluster) {
    let seen = cluster.view.overview(&name("vm1")).await.unwrap();
    let found = (
        &seen.used,
        seen.health.condition,
        seen.record.redundancy_floor,
    );
    assert_eq!(found, (&Use::Closed, Condition::Healthy, 2), "{seen:?}");
}

#[test]
fn an_idle_volume_is_resynced_when_a_store_comes_back() {
    env::Runtime::simulated(101).block_on(async {
        let (_meta_store, places, cluster) = two_stores_with(OFTEN).await;
        cluster.volumes.create(&vm("vm1")).await.unwrap();
        written_without(&places, &cluster, "b").await;
        assert!(is_thin(&cluster).await);
        set_down(&places, "b", false);
        env::sleep(Nanos::secs(120)).await;
        is_well_and_closed(&cluster).await;
        assert_eq!(places.extents("b"), 3);
        // The other one is lost: all is there.
        set_down(&places, "a", true);
        let in_use = cluster.openings.open(&name("vm1")).await.unwrap();
        assert_eq!(read(in_use.volume(), 2 << 22).await, 5);
    });
}

#[test]
fn an_idle_volume_gets_new_copies_when_a_store_is_removed_as_lost() {
    env::Runtime::simulated(102).block_on(async {
        let (_meta_store, places, cluster) = two_stores_with(OFTEN).await;
        cluster.volumes.create(&vm("vm1")).await.unwrap();
        written_without(&places, &cluster, "b").await;
        places.add(&cluster, "c", "dc").await;
        cluster.membership.remove(&name("b"), true).await.unwrap();
        // The opening that saw the store leave, a minute, and one that never knew it.
        env::sleep(Nanos::secs(180)).await;
        is_well_and_closed(&cluster).await;
        assert_eq!(places.extents("c"), 3);
        set_down(&places, "a", true);
        let in_use = cluster.openings.open(&name("vm1")).await.unwrap();
        assert_eq!(read(in_use.volume(), 2 << 22).await, 5);
    });
}

#[test]
fn a_volume_that_a_crashed_node_had_open_is_settled_and_closed() {
    env::Runtime::simulated(103).block_on(async {
        let (meta_store, places, first) = two_stores_with(OFTEN).await;
        first.volumes.create(&vm("vm1")).await.unwrap();
        let second = second_node(&meta_store, &places, OFTEN).await;
        let taken = sim::on_host(HOME, async move {
            let taken = second.openings.open(&name("vm1")).await.unwrap();
            write(taken.volume(), 0, 6).await;
            taken
        });
        let taken = taken.await;
        sim::crash_host(HOME);
        // It may as well be cut off from the meta store alone.
        env::sleep(Nanos::secs(590)).await;
        let seen = first.view.overview(&name("vm1")).await.unwrap();
        assert!(seen.record.writer.is_some(), "{seen:?}");
        env::sleep(Nanos::secs(60)).await;
        let seen = first.view.overview(&name("vm1")).await.unwrap();
        assert_eq!((seen.used, seen.record.writer), (Use::Closed, None));
        drop(taken);
    });
}

#[test]
fn an_idle_volume_is_not_opened_while_a_store_that_has_all_of_it_is_down() {
    env::Runtime::simulated(104).block_on(async {
        let (meta_store, places, first) = two_stores_with(OFTEN).await;
        first.volumes.create(&vm("vm1")).await.unwrap();
        let in_use = first.openings.open(&name("vm1")).await.unwrap();
        write(in_use.volume(), 0, 6).await;
        drop(in_use);
        env::sleep(Nanos::secs(10)).await;
        // Store b is on a node that is not up.
        let moved = NewStore {
            node: name("n9"),
            ..registration("b", places.0.borrow()["b"].node.store().uuid(), "db")
        };
        first.stores.register(&moved).await.unwrap();
        set_down(&places, "b", true);
        let second = second_node(&meta_store, &places, OFTEN).await;
        let generation = |it: &vdisk::cluster::overview::Overview| it.record.generation;
        let before = first.view.overview(&name("vm1")).await.unwrap();
        env::sleep(Nanos::secs(120)).await;
        let after = second.view.overview(&name("vm1")).await.unwrap();
        assert_eq!(generation(&after), generation(&before));
        assert_eq!(after.health.condition, Condition::Degraded);
    });
}

#[test]
fn a_client_elsewhere_gets_an_idle_volume_at_once_during_its_resync() {
    env::Runtime::simulated(105).block_on(async {
        let (meta_store, places, first) = two_stores_with(OFTEN).await;
        first.volumes.create(&vm("vm1")).await.unwrap();
        written_without(&places, &first, "b").await;
        let second = second_node(&meta_store, &places, OFTEN).await;
        places.0.borrow()["b"].disk.set_latency(Nanos::millis(300));
        set_down(&places, "b", false);
        let mut waited = 0;
        let node = loop {
            let seen = first.view.overview(&name("vm1")).await.unwrap();
            if let Some(writer) = seen.record.writer {
                break writer.node;
            }
            waited += 1;
            assert!(waited < 1_200, "{seen:?}");
            env::sleep(Nanos::millis(100)).await;
        };
        env::sleep(Nanos::secs(1)).await;
        let other = if node == "n1" { &second } else { &first };
        let begun = env::now();
        let in_use = other.openings.open(&name("vm1")).await.unwrap();
        let took = env::now().since(begun);
        assert!(took < Nanos::secs(9), "{took}");
        assert_eq!(read(in_use.volume(), 0).await, 5);
    });
}

#[test]
fn a_refused_opening_is_fast_and_says_who_has_the_volume_and_how_it_is_used() {
    env::Runtime::simulated(106).block_on(async {
        let (meta_store, places, first) = two_stores_with(NEVER).await;
        first.volumes.create(&vm("vm1")).await.unwrap();
        let second = second_node(&meta_store, &places, NEVER).await;
        let in_use = first.openings.open(&name("vm1")).await.unwrap();
        write(in_use.volume(), 0, 6).await;
        env::sleep(Nanos::secs(20)).await;
        let begun = env::now();
        let refused = error_text(second.openings.open(&name("vm1")).await);
        let took = env::now().since(begun);
        assert!(took < Nanos::secs(2), "{took}");
        assert!(
            refused.starts_with(
                "cannot open volume vm1: node n1 has it open for 1 client, the last request 20"
            ),
            "{refused}"
        );
        drop(in_use);
        // It stays open here for some seconds, and is wanted there.
        let begun = env::now();
        let taken = second.openings.open(&name("vm1")).await.unwrap();
        let took = env::now().since(begun);
        assert!(took < Nanos::secs(2), "{took}");
        assert_eq!(read(taken.volume(), 0).await, 6);
    });
}

#[test]
fn a_volume_is_taken_over_from_clients_that_are_idle_and_from_no_others() {
    env::Runtime::simulated(107).block_on(async {
        let (meta_store, places, first) = two_stores_with(NEVER).await;
        first.volumes.create(&vm("vm1")).await.unwrap();
        let second = second_node(&meta_store, &places, NEVER).await;
        let in_use = first.openings.open(&name("vm1")).await.unwrap();
        write(in_use.volume(), 0, 6).await;
        env::sleep(Nanos::secs(10)).await;
        let idle = Nanos::secs(30);
        let refused = error_text(second.openings.take_over(&name("vm1"), idle).await);
        assert!(refused.contains("node n1 has it open"), "{refused}");
        write(in_use.volume(), 0, 7).await;
        env::sleep(Nanos::secs(31)).await;
        second.openings.take_over(&name("vm1"), idle).await.unwrap();
        let seen = first.view.overview(&name("vm1")).await.unwrap();
        assert_eq!(seen.used, Use::Node("n2".to_owned()));
        let gone = in_use
            .volume()
            .write_at(Sector(0), View::copy_of(&[1; 512]));
        assert!(gone.await.is_err());
        // It waits for its client there, also when the one here comes again.
        let refused = error_text(first.openings.open(&name("vm1")).await);
        assert!(refused.contains("node n2 has it open"), "{refused}");
        let taken = second.openings.open(&name("vm1")).await.unwrap();
        assert_eq!(read(taken.volume(), 0).await, 7);
    });
}

#[test]
fn an_opening_that_failed_keeps_no_other_node_waiting() {
    env::Runtime::simulated(108).block_on(async {
        let (meta_store, places, first) = two_stores_with(NEVER).await;
        first.volumes.create(&vm("vm1")).await.unwrap();
        let in_use = first.openings.open(&name("vm1")).await.unwrap();
        write(in_use.volume(), 0, 6).await;
        drop(in_use);
        env::sleep(Nanos::secs(10)).await;
        let second = second_node(&meta_store, &places, NEVER).await;
        for store in ["a", "b"] {
            set_down(&places, store, true);
        }
        let refused = error_text(first.openings.open(&name("vm1")).await);
        assert!(refused.contains("cannot be sealed"), "{refused}");
        for store in ["a", "b"] {
            set_down(&places, store, false);
        }
        let begun = env::now();
        second.openings.open(&name("vm1")).await.unwrap();
        let took = env::now().since(begun);
        assert!(took < Nanos::secs(1), "{took}");
    });
}

#[test]
fn a_node_that_alone_loses_the_meta_store_keeps_its_volume_waiting() {
    for outage in [20, 300] {
        env::Runtime::simulated(109).block_on(async move {
            let (meta_store, places, first) = two_stores_with(OFTEN).await;
            first.volumes.create(&vm("vm1")).await.unwrap();
            let meta = meta_store.client();
            let second = cluster_with("n2", meta.clone(), &places, OFTEN);
            second.start();
            let in_use = second.openings.open(&name("vm1")).await.unwrap();
            write(in_use.volume(), 0, 6).await;
            refuse(&meta, true);
            env::sleep(Nanos::secs(15)).await;
            let held = in_use.volume().clone();
            let waits = env::spawn(async move { write(&held, 4096, 7).await });
            env::sleep(Nanos::secs(outage)).await;
            refuse(&meta, false);
            waits.await;
            assert_eq!(read(in_use.volume(), 4096).await, 7);
        });
    }
}

#[test]
fn a_want_that_could_not_be_taken_back_ends_though_its_node_stays_up() {
    env::Runtime::simulated(110).block_on(async {
        let (meta_store, places, first) = two_stores_with(NEVER).await;
        first.volumes.create(&vm("vm1")).await.unwrap();
        let meta = meta_store.client();
        let second = cluster_with("n2", meta.clone(), &places, NEVER);
        second.start();
        let _in_use = first.openings.open(&name("vm1")).await.unwrap();
        let own = Rc::clone(&second);
        let opening = env::spawn(async move { own.openings.open(&name("vm1")).await.is_err() });
        env::sleep(Nanos::millis(100)).await;
        let wants = async || {
            meta_store
                .client()
                .range("want/", None, 10)
                .await
                .unwrap()
                .entries
        };
        assert_eq!(wants().await.len(), 1);
        refuse(&meta, true);
        assert!(opening.await);
        refuse(&meta, false);
        env::sleep(Nanos::secs(20)).await;
        assert!(second.stores.alive().await.unwrap().contains("n2"));
        assert_eq!(wants().await, []);
    });
}

/// A volume is taken over from a client that is idle, while its node looks at it as a whole, and the client writes again after so
/// long. Was that answered, and yet the volume taken?
async fn is_taken_from_a_client_that_came_back(looks_after: Nanos, comes_after: Nanos) -> bool {
    let (meta_store, places) = (MemoryMetaStore::new("meta"), Rc::new(Places::default()));
    let meta = meta_store.client();
    let first = cluster_with("n1", meta.clone(), &places, NEVER);
    first.start();
    places.add(&first, "a", "da").await;
    places.add(&first, "b", "db").await;
    first.volumes.create(&vm("vm1")).await.unwrap();
    let second = second_node(&meta_store, &places, NEVER).await;
    let in_use = first.openings.open(&name("vm1")).await.unwrap();
    write(in_use.volume(), 0, 6).await;
    env::sleep(Nanos::secs(31)).await;
    meta.set_faults(Faults {
        delay_least: Nanos::millis(500),
        delay_most: Nanos::millis(500),
        ..Faults::default()
    });
    let other = Rc::clone(&second);
    let taken = env::spawn(async move {
        let taken = other
            .openings
            .take_over(&name("vm1"), Nanos::secs(30))
            .await;
        taken.is_ok()
    });
    let own = Rc::clone(&first);
    let looking = env::spawn(async move {
        env::sleep(looks_after).await;
        drop(
            own.repairs
                .repair(&name("vm1"), Some(Nanos(0)), false)
                .await,
        );
    });
    env::sleep(comes_after).await;
    let data = View::copy_of(&[7; 4096]);
    let wrote = in_use.volume().write_at(Sector(0), data).await.is_ok();
    let taken = taken.await;
    drop(env::cancel_scope(looking));
    wrote && taken
}

#[test]
fn a_volume_whose_clients_come_back_while_it_is_about_to_be_given_up_stays() {
    for looks_after in (0..2_000).step_by(250) {
        for comes_after in (500..3_500).step_by(150) {
            let (looks, comes) = (Nanos::millis(looks_after), Nanos::millis(comes_after));
            let taken = env::Runtime::simulated(111)
                .block_on(is_taken_from_a_client_that_came_back(looks, comes));
            assert!(!taken, "{looks}, {comes}");
        }
    }
}

#[test]
fn volumes_that_take_long_keep_no_other_from_being_made_well() {
    env::Runtime::simulated(112).block_on(async {
        let (_meta_store, places, cluster) = two_stores_with(OFTEN).await;
        for called in ["vm1", "vm2", "vm3", "vm4", "vm5"] {
            let size = 2500 << 20;
            cluster
                .volumes
                .create(&NewVolume { size, ..vm(called) })
                .await
                .unwrap();
        }
        set_down(&places, "b", true);
        for called in ["vm1", "vm2", "vm3", "vm4", "vm5"] {
            let in_use = cluster.openings.open(&name(called)).await.unwrap();
            let extents = if called == "vm5" { 1 } else { 600 };
            for extent in 0..extents {
                write(in_use.volume(), extent << 22, 5).await;
            }
        }
        env::sleep(Nanos::secs(10)).await;
        places.0.borrow()["b"].disk.set_latency(Nanos::millis(700));
        set_down(&places, "b", false);
        env::sleep(Nanos::secs(500)).await;
        let copies = async |called: &str| {
            let seen = cluster.view.overview(&name(called)).await.unwrap();
            seen.record.redundancy_floor
        };
        assert_eq!(copies("vm1").await, 1, "it takes long");
        assert_eq!(copies("vm5").await, 2);
    });
}

#[test]
fn a_volume_that_was_made_well_while_it_waited_for_its_turn_is_not_opened() {
    env::Runtime::simulated(113).block_on(async {
        let (_meta_store, places, cluster) = two_stores_with(OFTEN).await;
        let all = ["vm1", "vm2", "vm3", "vm4", "vm5"];
        for called in all {
            let size = 400 << 20;
            let new = NewVolume { size, ..vm(called) };
            cluster.volumes.create(&new).await.unwrap();
        }
        set_down(&places, "b", true);
        for called in all {
            let in_use = cluster.openings.open(&name(called)).await.unwrap();
            let extents = if called == "vm5" { 1 } else { 90 };
            for extent in 0..extents {
                write(in_use.volume(), extent << 22, 5).await;
            }
        }
        env::sleep(Nanos::secs(10)).await;
        places.0.borrow()["b"].disk.set_latency(Nanos::millis(700));
        set_down(&places, "b", false);
        // Four have a place; the fifth is made well by its client.
        env::sleep(Nanos::secs(11)).await;
        let in_use = cluster.openings.open(&name("vm5")).await.unwrap();
        let well = async || in_use.volume().health().condition == Condition::Healthy;
        for _ in 0..600 {
            if well().await {
                break;
            }
            env::sleep(Nanos::millis(100)).await;
        }
        assert!(well().await);
        drop(in_use);
        env::sleep(Nanos::secs(30)).await;
        let before = cluster.view.overview(&name("vm5")).await.unwrap();
        assert_eq!(before.used, Use::Closed);
        env::sleep(Nanos::secs(400)).await;
        let after = cluster.view.overview(&name("vm5")).await.unwrap();
        assert_eq!(after.record.generation, before.record.generation);
    });
}

#[test]
fn a_node_that_cannot_reach_the_stores_keeps_no_other_from_an_idle_volume() {
    for seed in 114..118 {
        env::Runtime::simulated(seed).block_on(async {
            let (meta_store, places, first) = two_stores_with(NEVER).await;
            first.volumes.create(&vm("vm1")).await.unwrap();
            written_without(&places, &first, "b").await;
            first.stop().await;
            set_down(&places, "b", false);
            // The same node, which does not reach its stores any more.
            let blind = Rc::new(Places::default());
            for (called, place) in &*places.0.borrow() {
                let unreached = Place {
                    node: Rc::clone(&place.node),
                    disk: Rc::clone(&place.disk),
                    number: place.number,
                    down: Cell::new(true),
                    address: RefCell::new(place.address.borrow().clone()),
                };
                let mut blind = blind.0.borrow_mut();
                blind.insert(called.clone(), Rc::new(unreached));
            }
            let blind = cluster_with("n1", meta_store.client(), &blind, OFTEN);
            blind.start();
            let second = second_node(&meta_store, &places, OFTEN).await;
            env::sleep(Nanos::secs(200)).await;
            is_well_and_closed(&second).await;
        });
    }
}
