//! Several nodes on one meta store, in virtual time, with stores in memory.

mod back_in_time;
mod care;
mod drain;
mod idle;
mod levels;
mod seen;
mod terms;
mod trash;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;

use base::{Buf, Bytes, Nanos, Sector, View};
use device::{Class, Device, DeviceExt, Memory};
use env::net::sim;
use policy::place::{Kind, Options, State, Weights, build};
use policy::share::{BytesPerSec, Costs};
use store::qos::manager::{Manager, ManagerOptions};
use store::{Change, Store};

use vdisk::StoreNumber;
use vdisk::cluster::overview::Use;
use vdisk::cluster::stores::{NewStore, StoreRecord, StoreState};
use vdisk::cluster::volumes::NewVolume;
use vdisk::cluster::{Cluster, ClusterError, Settings, Ways};
use vdisk::meta::{Faults, LeaseId, MemoryMetaClient, MemoryMetaStore, MetaStore, Op, Redb};
use vdisk::record::{Fairness, Name, OnMetaLoss, PriorityClass};
use vdisk::replica::connect::{Connection, ConnectionError, Connector, LocalConnector, Pending};
use vdisk::volume::{Condition, Volume};

const SIZE: u64 = 12 << 20;
/// Of the node that crashes.
const HOME: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

/// A store that can be out of reach.
struct Place {
    node: Rc<Manager>,
    disk: Rc<Memory>,
    number: StoreNumber,
    down: Cell<bool>,
    /// Where it listens.
    address: RefCell<String>,
}

/// The way to an address, where a store may listen.
struct Gate(Rc<Place>, String);

impl Connector for Gate {
    fn open_since<'a>(
        &'a self,
        guard: &'a str,
        mark: u64,
        least: u64,
    ) -> Pending<'a, Rc<dyn Connection>> {
        Box::pin(async move {
            match self.0.down.get() {
                true => Err(ConnectionError::Gone("it is down".to_owned())),
                false if *self.0.address.borrow() != self.1 => Err(ConnectionError::Gone(format!(
                    "no store listens at {}",
                    self.1
                ))),
                false => {
                    let connector = LocalConnector(Rc::clone(&self.0.node));
                    connector.open_since(guard, mark, least).await
                }
            }
        })
    }
}

/// All stores, by their names.
#[derive(Default)]
struct Places(RefCell<BTreeMap<String, Rc<Place>>>);

impl Ways for Places {
    fn way(&self, store: &StoreRecord) -> (Rc<dyn Connector>, bool) {
        let places = self.0.borrow();
        let place = &places[store.name.as_str()];
        (Rc::new(Gate(Rc::clone(place), store.address.clone())), true)
    }

    fn booked(&self, holder: &str) -> [BytesPerSec; 2] {
        let mut most = [BytesPerSec(0); 2];
        for place in self.0.borrow().values() {
            for reserved in place.node.reservations() {
                let request = reserved.request;
                if request.holder == holder {
                    let most = &mut most[request.direction as usize];
                    *most = request.rate.max(*most);
                }
            }
        }
        most
    }
}

impl Places {
    async fn add(&self, cluster: &Cluster, called: &str, domain: &str) -> StoreRecord {
        let disk = Memory::new(called, Bytes::mib(64));
        let settings = store::Settings {
            name: called.to_owned(),
            ..store::Settings::default()
        };
        let made = Store::format(disk.clone(), settings).await.unwrap();
        made.close().await.unwrap();
        let options = ManagerOptions {
            node_key: Some([7; 32]),
            scrub: None,
            ..ManagerOptions::new(Costs::flat(BytesPerSec::mb(1000)), [9; 32])
        };
        let node = Manager::open(disk.clone(), options).await.unwrap();
        let new = NewStore {
            node: cluster.node().clone(),
            ..registration(called, node.store().uuid(), domain)
        };
        let record = cluster.stores.register(&new).await.unwrap();
        let place = Place {
            number: record.number,
            node,
            disk,
            down: Cell::new(false),
            address: RefCell::new(new.address),
        };
        self.0
            .borrow_mut()
            .insert(called.to_owned(), Rc::new(place));
        record
    }

    /// Extents that a store has.
    fn extents(&self, called: &str) -> usize {
        self.count(called, "v/")
    }

    /// Extents and nodes of maps.
    fn objects(&self, called: &str) -> usize {
        self.extents(called) + self.count(called, "m/")
    }

    fn count(&self, called: &str, prefix: &str) -> usize {
        let store = self.0.borrow()[called].node.store().clone();
        store.list(prefix, None, 1000).objects.len()
    }
}

fn registration(called: &str, uuid: u128, domain: &str) -> NewStore {
    NewStore {
        name: name(called),
        uuid,
        node: name("n1"),
        address: format!("unix:{called}"),
        domain: name(domain),
        rotating: false,
        leased: true,
        number: None,
    }
}

fn cluster(node: &str, meta: Rc<dyn MetaStore>, places: &Rc<Places>) -> Rc<Cluster> {
    // What is done about idle volumes has tests of its own.
    cluster_with(node, meta, places, Nanos::secs(100_000))
}

fn cluster_with(
    node: &str,
    meta: Rc<dyn MetaStore>,
    places: &Rc<Places>,
    idle_every: Nanos,
) -> Rc<Cluster> {
    let settings = Settings {
        collect_every: Nanos::secs(3),
        idle_every,
        ..Settings::new(name(node))
    };
    let policy = build(Kind::Tanada, &Options::default());
    let ways: Rc<dyn Ways> = places.clone();
    Cluster::new(settings, meta, ways, policy)
}

/// Two stores in domains of their own, and the node that has them.
async fn two_stores() -> (Rc<MemoryMetaStore>, Rc<Places>, Rc<Cluster>) {
    two_stores_with(Nanos::secs(100_000)).await
}

async fn two_stores_with(idle_every: Nanos) -> (Rc<MemoryMetaStore>, Rc<Places>, Rc<Cluster>) {
    let meta_store = MemoryMetaStore::new("meta");
    let places = Rc::new(Places::default());
    let cluster = cluster_with("n1", meta_store.client(), &places, idle_every);
    cluster.start();
    places.add(&cluster, "a", "da").await;
    places.add(&cluster, "b", "db").await;
    (meta_store, places, cluster)
}

fn vm(called: &str) -> NewVolume {
    NewVolume {
        name: name(called),
        size: SIZE,
        copies: None,
        min_isr: None,
        priority: PriorityClass::Normal,
        fairness: None,
        holder: None,
        on_meta_loss: OnMetaLoss::Wait,
    }
}

async fn write(volume: &Volume, at: u64, byte: u8) {
    let data = View::copy_of(&[byte; 4096]);
    volume.write_at(Sector(at / 512), data).await.unwrap();
}

async fn read(volume: &Volume, at: u64) -> u8 {
    let buf = Buf::for_read(4096);
    let read = volume.read(Sector(at / 512), buf, Class::Foreground).await;
    let buf = read.unwrap();
    assert!(buf.iter().all(|byte| *byte == buf[0]));
    buf[0]
}

fn refuse(meta: &MemoryMetaClient, refused: bool) {
    meta.set_faults(Faults {
        refused,
        ..Faults::default()
    });
}

fn error_text<T>(answer: Result<T, ClusterError>) -> String {
    answer.map(drop).unwrap_err().to_string()
}

#[test]
fn a_volume_is_made_seen_renamed_grown_and_removed_and_its_room_comes_back() {
    env::Runtime::simulated(1).block_on(async {
        let (_meta_store, places, cluster) = two_stores().await;
        let new = NewVolume {
            priority: PriorityClass::High,
            fairness: Some("2.5".parse().unwrap()),
            holder: Some("ann".to_owned()),
            ..vm("vm1")
        };
        let made = cluster.volumes.create(&new).await.unwrap();
        assert_eq!((made.record.copies, made.record.terms.min_isr), (2, 1));
        assert_eq!(made.record.terms.priority, PriorityClass::High);
        assert_eq!(
            made.record.terms.fairness.map(Fairness::permille),
            Some(2_500)
        );
        assert_eq!(made.record.terms.reservation.as_deref(), Some("ann"));
        assert_eq!((made.size, made.used), (SIZE, Use::Closed));
        assert!(
            error_text(cluster.volumes.create(&new).await)
                .contains("there is a volume vm1 already")
        );
        let missing = error_text(cluster.view.overview(&name("vm2")).await);
        assert_eq!(missing, "there is no volume vm2; there are vm1");

        let in_use = cluster.openings.open(&name("vm1")).await.unwrap();
        write(in_use.volume(), 0, 7).await;
        write(in_use.volume(), SIZE - 4096, 8).await;
        assert_eq!((places.extents("a"), places.extents("b")), (2, 2));
        let refused = error_text(cluster.volumes.rename(&name("vm1"), &name("vm2")).await);
        assert!(refused.contains("in use here (1 users)"), "{refused}");
        let larger = cluster.volumes.resize(&name("vm1"), 2 * SIZE, false).await;
        let larger = larger.unwrap();
        assert_eq!((larger.size, larger.used), (2 * SIZE, Use::Here(1)));
        write(in_use.volume(), SIZE + 4096, 9).await;
        let refused = error_text(cluster.volumes.resize(&name("vm1"), SIZE, false).await);
        assert!(
            refused.contains("24.0 MiB, and 12.0 MiB are less"),
            "{refused}"
        );
        assert_eq!(read(in_use.volume(), SIZE + 4096).await, 9);
        cluster
            .volumes
            .resize(&name("vm1"), SIZE, true)
            .await
            .unwrap();
        cluster
            .volumes
            .resize(&name("vm1"), 2 * SIZE, false)
            .await
            .unwrap();
        assert_eq!(read(in_use.volume(), SIZE + 4096).await, 0);
        let refused = error_text(cluster.volumes.resize(&name("vm1"), 1000, true).await);
        assert!(refused.contains("no whole number"), "{refused}");
        drop(in_use);
        cluster
            .volumes
            .rename(&name("vm1"), &name("vm2"))
            .await
            .unwrap();
        let in_use = cluster.openings.open(&name("vm2")).await.unwrap();
        assert_eq!(in_use.volume().info().size, Bytes(2 * SIZE));
        assert_eq!(read(in_use.volume(), SIZE - 4096).await, 8);
        assert_eq!(read(in_use.volume(), SIZE).await, 0);
        assert!(
            error_text(cluster.volumes.remove(&name("vm2")).await)
                .contains("cannot remove volume vm2")
        );
        drop(in_use);

        cluster.volumes.remove(&name("vm2")).await.unwrap();
        assert!(cluster.view.list().await.unwrap().is_empty());
        cluster.volumes.create(&vm("vm2")).await.unwrap();
        env::sleep(Nanos::secs(10)).await;
        assert_eq!((places.objects("a"), places.objects("b")), (0, 0));
    });
}

#[test]
fn users_share_one_engine_and_it_is_closed_seconds_after_the_last_one_left() {
    env::Runtime::simulated(2).block_on(async {
        let (_meta_store, _places, cluster) = two_stores().await;
        cluster.volumes.create(&vm("vm1")).await.unwrap();
        let opened = cluster.openings.open(&name("vm1")).await.unwrap();
        // From the first moment on.
        assert_eq!(opened.volume().health().condition, Condition::Healthy);
        drop(opened);
        let opened = [0; 3].map(|_| async { cluster.openings.open(&name("vm1")).await.unwrap() });
        let mut users = env::sync::join_all(opened).await;
        assert!(
            users
                .iter()
                .all(|it| Rc::ptr_eq(it.volume(), users[0].volume()))
        );
        let seen = async || cluster.view.overview(&name("vm1")).await.unwrap();
        assert_eq!(seen().await.used, Use::Here(3));
        users.truncate(1);
        env::sleep(Nanos::secs(60)).await;
        assert_eq!(seen().await.used, Use::Here(1));
        users.clear();
        env::sleep(Nanos::secs(3)).await;
        assert_eq!(seen().await.used, Use::Here(0));
        env::sleep(Nanos::secs(5)).await;
        let now = seen().await;
        assert_eq!((now.used, now.record.writer), (Use::Closed, None));
    });
}

#[test]
fn one_that_wants_a_volume_for_itself_gets_it_without_clients_and_keeps_them_out() {
    env::Runtime::simulated(2).block_on(async {
        let (_meta_store, _places, cluster) = two_stores().await;
        cluster.volumes.create(&vm("vm1")).await.unwrap();
        let vm1 = name("vm1");
        let client = cluster.openings.open(&vm1).await.unwrap();
        let busy = error_text(cluster.openings.open_for_one(&vm1).await);
        assert!(busy.contains("in use here (1 users)"), "{busy}");
        // Whom it was refused does not keep others out.
        drop(cluster.openings.open(&vm1).await.unwrap());
        drop(client);
        let one = cluster.openings.open_for_one(&vm1).await.unwrap();
        let taken = error_text(cluster.openings.open(&vm1).await);
        assert!(taken.contains("S3 gateway"), "{taken}");
        // What operators do goes on, and what it has is counted.
        cluster.volumes.snapshot(&vm1, &name("now")).await.unwrap();
        let before = one.volume().room_left();
        write(one.volume(), 0, 5).await;
        env::sleep(Nanos::secs(60)).await;
        let after = one.volume().room_left();
        assert!(after < before && after > Bytes(0), "{before} {after}");
        let second = error_text(cluster.openings.open_for_one(&vm1).await);
        assert!(second.contains("S3 gateway"), "{second}");
        let grown = cluster.volumes.resize(&vm1, 2 * SIZE, false);
        assert!(error_text(grown.await).contains("another size"));
        // It is closed with its user, and what that one has under way meets no later one.
        let engine = Rc::clone(one.volume());
        cluster.openings.close_for_one(one).await;
        assert!(!engine.is_open());
        let next = cluster.openings.open(&vm1).await.unwrap();
        assert!(!Rc::ptr_eq(next.volume(), &engine));
        assert_eq!(read(next.volume(), 0).await, 5);
        drop(next);
        cluster.stop().await;
    });
}

#[test]
fn a_volume_is_taken_from_a_node_that_is_gone_and_not_from_one_that_is_up() {
    env::Runtime::simulated(3).block_on(async {
        let (meta_store, places, first) = two_stores().await;
        let second = cluster("n2", meta_store.client(), &places);
        sim::on_host(HOME, async { second.start() }).await;
        first.volumes.create(&vm("vm1")).await.unwrap();
        let in_use = first.openings.open(&name("vm1")).await.unwrap();
        write(in_use.volume(), 0, 5).await;
        let refused = error_text(second.openings.open(&name("vm1")).await);
        assert!(refused.contains("node n1 has it open"), "{refused}");
        let seen = second.view.overview(&name("vm1")).await.unwrap();
        assert_eq!(seen.used, Use::Node("n1".to_owned()));
        assert!(error_text(second.volumes.remove(&name("vm1")).await).contains("node n1"));
        // One that is about to close it is waited for.
        drop(in_use);
        let taken = sim::on_host(HOME, async move {
            let taken = second.openings.open(&name("vm1")).await.unwrap();
            assert_eq!(read(taken.volume(), 0).await, 5);
            write(taken.volume(), 0, 6).await;
            taken
        });
        let taken = taken.await;
        // Its end, without a word.
        sim::crash_host(HOME);
        env::sleep(Nanos::secs(15)).await;
        let begun = env::now();
        let back = first.openings.open(&name("vm1")).await.unwrap();
        assert!(env::now().since(begun) < Nanos::secs(1));
        assert_eq!(read(back.volume(), 0).await, 6);
        let gone = taken.volume().write_at(Sector(0), View::copy_of(&[1; 512]));
        assert!(gone.await.is_err());
    });
}

#[test]
fn a_restarted_nodes_open_volume_is_taken_when_its_lease_has_run_out() {
    env::Runtime::simulated(13).block_on(async {
        let (meta_store, places, first) = two_stores().await;
        first.volumes.create(&vm("vm1")).await.unwrap();
        let before = sim::on_host(HOME, async {
            let before = cluster("n2", meta_store.client(), &places);
            before.start();
            let taken = before.openings.open(&name("vm1")).await.unwrap();
            write(taken.volume(), 0, 5).await;
            (before, taken)
        });
        let before = before.await;
        sim::crash_host(HOME);
        // It is up again, and no client uses the volume there.
        let again = cluster("n2", meta_store.client(), &places);
        again.start();
        let refused = error_text(first.openings.open(&name("vm1")).await);
        assert!(refused.contains("node n2 has it open"), "{refused}");
        env::sleep(Nanos::secs(5)).await;
        assert!(first.stores.alive().await.unwrap().contains("n2"));
        let seen = first.view.overview(&name("vm1")).await.unwrap();
        assert_eq!(seen.used, Use::Closed);
        let taken = first.openings.open(&name("vm1")).await.unwrap();
        assert_eq!(read(taken.volume(), 0).await, 5);
        drop(before);
    });
}

#[test]
fn a_volume_in_use_takes_a_store_that_joins_the_cluster() {
    env::Runtime::simulated(14).block_on(async {
        let (_, places, cluster) = two_stores().await;
        cluster.volumes.create(&vm("vm1")).await.unwrap();
        places.0.borrow()["b"].down.set(true);
        let in_use = cluster.openings.open(&name("vm1")).await.unwrap();
        for at in [0, 4 << 20, 8 << 20] {
            write(in_use.volume(), at, 5).await;
        }
        assert_eq!(in_use.volume().health().condition, Condition::Degraded);
        places.add(&cluster, "c", "dc").await;
        env::sleep(Nanos::secs(20)).await;
        assert_eq!(places.extents("c"), 3);
        assert_eq!(read(in_use.volume(), 8 << 20).await, 5);
    });
}

#[test]
fn a_volume_in_use_finds_a_store_whose_node_came_back_at_another_address() {
    env::Runtime::simulated(86).block_on(async {
        let (_meta_store, places, cluster) = two_stores().await;
        cluster.volumes.create(&vm("vm1")).await.unwrap();
        let moved = Rc::clone(&places.0.borrow()["b"]);
        *moved.address.borrow_mut() = "unix:elsewhere".to_owned();
        let in_use = cluster.openings.open(&name("vm1")).await.unwrap();
        write(in_use.volume(), 0, 5).await;
        env::sleep(Nanos::secs(20)).await;
        assert_eq!(in_use.volume().health().condition, Condition::Degraded);
        let new = NewStore {
            address: "unix:elsewhere".to_owned(),
            ..registration("b", moved.node.store().uuid(), "db")
        };
        cluster.stores.register(&new).await.unwrap();
        env::sleep(Nanos::secs(20)).await;
        assert_eq!(in_use.volume().health().condition, Condition::Healthy);
        assert_eq!((places.extents("a"), places.extents("b")), (1, 1));
    });
}

#[test]
fn a_store_is_known_by_its_identity_and_its_number_is_never_given_again() {
    env::Runtime::simulated(4).block_on(async {
        let (_meta_store, places, cluster) = two_stores().await;
        let other = error_text(cluster.stores.register(&registration("a", 99, "da")).await);
        assert!(other.contains("another store of that name"), "{other}");
        let uuid = places.0.borrow()["b"].node.store().uuid();
        let moved = cluster
            .stores
            .register(&registration("b", uuid, "dc"))
            .await
            .unwrap();
        assert_eq!((moved.number, moved.domain), (StoreNumber(2), name("dc")));
        let early = error_text(cluster.membership.remove(&name("b"), false).await);
        assert!(early.contains("drain it first"), "{early}");
        let drained = cluster
            .membership
            .set_state(&name("b"), StoreState::Draining)
            .await;
        assert_eq!(drained.unwrap().state, StoreState::Draining);
        cluster.membership.remove(&name("b"), false).await.unwrap();
        let again = places.add(&cluster, "c", "dc").await;
        assert_eq!(again.number, StoreNumber(3));
        let mut early = registration("d", 5, "dd");
        early.number = Some(StoreNumber(2));
        let refused = error_text(cluster.stores.register(&early).await);
        assert!(refused.contains("numbers below 4"), "{refused}");
        early.number = Some(StoreNumber(40));
        let taken = cluster.stores.register(&early).await.unwrap();
        assert_eq!(taken.number, StoreNumber(40));
    });
}

#[test]
fn a_drained_store_gets_nothing_new_and_a_store_in_use_is_not_removed() {
    env::Runtime::simulated(5).block_on(async {
        let (_meta_store, places, cluster) = two_stores().await;
        cluster.volumes.create(&vm("vm1")).await.unwrap();
        let refused = error_text(
            cluster
                .membership
                .set_state(&name("a"), StoreState::Draining)
                .await,
        );
        assert!(refused.contains("1 failure domains"), "{refused}");
        places.add(&cluster, "c", "dc").await;
        let in_use = cluster.openings.open(&name("vm1")).await.unwrap();
        // While it is in use.
        cluster
            .membership
            .set_state(&name("a"), StoreState::Draining)
            .await
            .unwrap();
        for extent in 0..3 {
            write(in_use.volume(), extent << 22, 1).await;
        }
        let found = ["a", "b", "c"].map(|it| places.extents(it));
        assert_eq!(found, [0, 3, 3]);
        let refused = error_text(cluster.membership.remove(&name("b"), false).await);
        assert!(refused.contains("drain it first"), "{refused}");
        let refused = error_text(cluster.membership.remove(&name("b"), true).await);
        assert!(
            refused.contains("volume vm1 counts it as in sync"),
            "{refused}"
        );
        drop(in_use);
        env::sleep(Nanos::secs(10)).await;
        // Nor nodes of the map, nor bits.
        assert_eq!(places.objects("a") + places.count("a", "d/"), 0);
        cluster.membership.remove(&name("a"), false).await.unwrap();
        let gone = error_text(
            cluster
                .membership
                .set_state(&name("a"), StoreState::Active)
                .await,
        );
        assert_eq!(gone, "there is no store a; there are b, c");
    });
}

#[test]
fn of_two_nodes_that_make_one_name_at_once_one_is_refused() {
    env::Runtime::simulated(6).block_on(async {
        let (meta_store, places, first) = two_stores().await;
        let second = cluster("n2", meta_store.client(), &places);
        let (one, other) = (vm("vm1"), vm("vm1"));
        let both =
            env::sync::join_all([first.volumes.create(&one), second.volumes.create(&other)]).await;
        let made = both.iter().filter(|it| it.is_ok()).count();
        assert_eq!(made, 1);
        let refused = both.into_iter().find_map(Result::err).unwrap();
        assert!(matches!(refused, ClusterError::Exists(_)), "{refused}");
        // Different names pass, whichever node was first with the numbers.
        let names: Vec<NewVolume> = (0..8).map(|n| vm(&format!("x{n}"))).collect();
        let made = names.iter().enumerate().map(|(n, it)| match n % 2 {
            0 => first.volumes.create(it),
            _ => second.volumes.create(it),
        });
        for made in env::sync::join_all(made.collect::<Vec<_>>()).await {
            made.unwrap();
        }
    });
}

#[test]
fn what_volumes_leave_behind_beside_their_maps_is_found_and_freed() {
    env::Runtime::simulated(15).block_on(async {
        let (_, places, cluster) = two_stores().await;
        for called in ["gone", "stays"] {
            cluster.volumes.create(&vm(called)).await.unwrap();
            let in_use = cluster.openings.open(&name(called)).await.unwrap();
            write(in_use.volume(), 0, 5).await;
        }
        env::sleep(Nanos::secs(20)).await;
        let store = places.0.borrow()["a"].node.store().clone();
        let names = || -> Vec<String> {
            let of = ["d/", "g/", "v/"].map(|prefix| store.list(prefix, None, 100).objects);
            of.into_iter().flatten().map(|it| it.name).collect()
        };
        let before = names();
        // As a crash in the middle of a copy leaves it, of both.
        for object in before.iter().filter(|it| it.starts_with("v/")) {
            for volume in ["00000001", "00000002"] {
                let name = format!("{object}.{volume}.t");
                let made = store.write(&name, 0, View::copy_of(&[1; 512]), Change::FUA.creating());
                made.await.unwrap();
            }
        }
        let in_use = cluster.openings.open(&name("stays")).await.unwrap();
        assert!(cluster.volumes.remove(&name("gone")).await.is_ok());
        cluster.collecting.collect().await.unwrap();
        let report = cluster.collecting.audit(true).await.unwrap();
        let scraps: Vec<_> = report.scraps.iter().filter(|(at, _)| at.0 == 1).collect();
        assert_eq!(scraps.len(), 4, "{scraps:?}");
        let left = names();
        // Of the open volume it is unknown what is of use.
        let open = in_use.volume().record().id.to_string();
        let of_nodes = ["g/collector", "g/damage"];
        let of_open = |it: &&String| it.contains(&open) || of_nodes.contains(&it.as_str());
        assert_eq!(left.iter().filter(of_open).count(), left.len(), "{left:?}");
        assert!(left.iter().any(|it| it.ends_with(".t")), "{left:?}");
        drop(in_use);
        env::sleep(Nanos::secs(10)).await;
        assert!(
            !cluster
                .collecting
                .audit(true)
                .await
                .unwrap()
                .scraps
                .is_empty()
        );
        assert!(!names().iter().any(|it| it.ends_with(".t")));
        let in_use = cluster.openings.open(&name("stays")).await.unwrap();
        assert_eq!(read(in_use.volume(), 0).await, 5);
    });
}

#[test]
fn one_node_at_a_time_looks_through_the_stores() {
    env::Runtime::simulated(7).block_on(async {
        let (meta_store, _places, cluster) = two_stores().await;
        let meta = meta_store.client();
        let lease: LeaseId = meta.lease(Nanos::secs(5)).await.unwrap();
        let other = Op::Put {
            key: "collector".to_owned(),
            value: b"n9".to_vec(),
            lease: Some(lease),
        };
        meta.txn(Vec::new(), vec![other]).await.unwrap();
        let refused = error_text(cluster.collecting.audit(false).await);
        assert!(refused.starts_with("node n9 looks through"), "{refused}");
        env::sleep(Nanos::secs(6)).await;
        cluster.collecting.audit(false).await.unwrap();
        cluster.collecting.audit(false).await.unwrap();
    });
}

#[test]
fn a_store_that_was_away_is_reported_and_repair_waits_for_its_resync() {
    env::Runtime::simulated(8).block_on(async {
        let (_meta_store, places, cluster) = two_stores().await;
        cluster.volumes.create(&vm("vm1")).await.unwrap();
        let away = Rc::clone(&places.0.borrow()["b"]);
        away.down.set(true);
        let in_use = cluster.openings.open(&name("vm1")).await.unwrap();
        write(in_use.volume(), 0, 3).await;
        let seen = cluster.view.overview(&name("vm1")).await.unwrap();
        assert_eq!(seen.health.condition, Condition::Degraded);
        assert!(seen.health.why.contains("store b"), "{}", seen.health.why);
        drop(in_use);
        env::sleep(Nanos::secs(10)).await;
        // Its record says the same when no node has it open.
        let seen = cluster.view.overview(&name("vm1")).await.unwrap();
        assert_eq!(
            (seen.used, seen.health.condition),
            (Use::Closed, Condition::Degraded)
        );
        away.down.set(false);
        let repaired = cluster
            .repairs
            .repair(&name("vm1"), Some(Nanos::secs(60)), false)
            .await
            .unwrap();
        assert_eq!(repaired.health.condition, Condition::Healthy);
        assert_eq!((repaired.losses.len(), repaired.unknown.len()), (0, 0));
        assert_eq!(places.extents("b"), 1);
    });
}

/// How long a read takes.
async fn timed(volume: &Volume) -> Nanos {
    let begun = env::now();
    read(volume, 0).await;
    env::now().since(begun)
}

#[test]
fn what_a_store_says_of_its_queue_unasked_decides_which_copy_is_read() {
    env::Runtime::simulated(11).block_on(async {
        let (_meta_store, places, cluster) = two_stores().await;
        cluster.volumes.create(&vm("vm1")).await.unwrap();
        let in_use = cluster.openings.open(&name("vm1")).await.unwrap();
        write(in_use.volume(), 0, 3).await;
        for (called, latency) in [("a", 2), ("b", 3)] {
            let latency = Nanos::millis(latency);
            places.0.borrow()[called].disk.set_latency(latency);
        }
        for (busy, idle, took) in [(1, 2, 3), (2, 1, 2), (1, 2, 3)] {
            // What was measured and heard before is old by then.
            env::sleep(Nanos::secs(5)).await;
            let mut state = State::idle(Weights::default());
            state.at = env::now();
            cluster.reports.heard(StoreNumber(idle), &state);
            state.requests = 50;
            (state.cost, state.work) = (Nanos::millis(500), Nanos::millis(500));
            cluster.reports.heard(StoreNumber(busy), &state);
            assert_eq!(timed(in_use.volume()).await, Nanos::millis(took));
        }
        assert_eq!(cluster.reports.heard_of(StoreNumber(1)).unwrap().states, 3);
        cluster
            .reports
            .heard(StoreNumber(9), &State::idle(Weights::default()));
        assert_eq!(cluster.reports.heard_of(StoreNumber(9)), None);
    });
}

#[test]
fn a_cluster_of_one_node_keeps_its_volumes_in_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("meta.redb");
    for round in 0..2 {
        let redb = Redb::open(&path).unwrap();
        let handle = redb.handle();
        let runtime = env::Runtime::real(env::RealConfig::default()).unwrap();
        runtime.block_on(async move {
            let places = Rc::new(Places::default());
            let cluster = cluster("n1", handle.client(), &places);
            if round == 0 {
                places.add(&cluster, "a", "da").await;
                let made = cluster.volumes.create(&vm("vm1")).await.unwrap();
                // All in one failure domain.
                assert_eq!(made.record.copies, 1);
                let in_use = cluster.openings.open(&name("vm1")).await.unwrap();
                write(in_use.volume(), 4096, 9).await;
                assert_eq!(read(in_use.volume(), 4096).await, 9);
                drop(in_use);
            }
            let all = cluster.view.list().await.unwrap();
            assert_eq!((all.len(), all[0].size), (1, SIZE));
            assert_eq!(cluster.stores.all().await.unwrap().len(), 1);
            assert!(cluster.stop().await.is_empty());
        });
    }
}

#[test]
fn a_node_alone_with_its_file_does_not_wait_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let (path, crashed) = (dir.path().join("meta.redb"), dir.path().join("crashed"));
    let redb = Redb::open(&path).unwrap();
    let handle = redb.handle();
    let runtime = env::Runtime::real(env::RealConfig::default()).unwrap();
    runtime.block_on(async move {
        let places = Rc::new(Places::default());
        let before = cluster("n1", handle.client(), &places);
        places.add(&before, "a", "da").await;
        before.volumes.create(&vm("vm1")).await.unwrap();
        let in_use = before.openings.open(&name("vm1")).await.unwrap();
        write(in_use.volume(), 4096, 9).await;
        // The records as the crash of the process leaves them; the stores were elsewhere.
        std::fs::copy(&path, &crashed).unwrap();
        drop((in_use, before));
        let again = Redb::open(&crashed).unwrap();
        let meta = again.handle().client();
        // The node that opens the volume awaits no writer without a key.
        let writers = meta.range("writer/", None, 10).await.unwrap();
        assert!(writers.entries.is_empty(), "{writers:?}");
        let after = cluster("n1", meta, &places);
        let in_use = after.openings.open(&name("vm1")).await.unwrap();
        assert_eq!(read(in_use.volume(), 4096).await, 9);
        write(in_use.volume(), 4096, 8).await;
        assert_eq!(read(in_use.volume(), 4096).await, 8);
        drop(in_use);
        assert!(after.stop().await.is_empty());
    });
}

#[test]
fn a_clone_has_what_its_snapshot_had_and_a_rollback_brings_it_back() {
    env::Runtime::simulated(9).block_on(async {
        let (_meta_store, places, cluster) = two_stores().await;
        cluster.volumes.create(&vm("vm1")).await.unwrap();
        let in_use = cluster.openings.open(&name("vm1")).await.unwrap();
        write(in_use.volume(), 0, 1).await;
        write(in_use.volume(), 8 << 20, 2).await;
        let taken = cluster
            .volumes
            .snapshot(&name("vm1"), &name("monday"))
            .await
            .unwrap();
        assert_eq!(taken.snapshots[0].name, name("monday"));
        let again = error_text(
            cluster
                .volumes
                .snapshot(&name("vm1"), &name("monday"))
                .await,
        );
        assert!(again.contains("has a snapshot monday already"), "{again}");
        write(in_use.volume(), 0, 3).await;
        let (vm1, vm2) = (name("vm1"), name("vm2"));
        let cloned = cluster
            .volumes
            .clone_volume(&vm1, &name("monday"), &vm2)
            .await;
        assert_eq!(cloned.unwrap().from.as_deref(), Some("vm1@monday"));
        let missing = error_text(
            cluster
                .volumes
                .clone_volume(&vm1, &name("sunday"), &name("vm3"))
                .await,
        );
        assert_eq!(missing, "volume vm1 has no snapshot sunday; it has monday");
        let clone = cluster.openings.open(&name("vm2")).await.unwrap();
        assert_eq!(read(clone.volume(), 0).await, 1);
        write(clone.volume(), 8 << 20, 4).await;
        assert_eq!(read(clone.volume(), 8 << 20).await, 4);
        assert_eq!(read(in_use.volume(), 8 << 20).await, 2);
        assert_eq!(read(in_use.volume(), 0).await, 3);
        let busy = error_text(
            cluster
                .volumes
                .rollback(&name("vm1"), &name("monday"))
                .await,
        );
        assert!(busy.contains("cannot roll back volume vm1"), "{busy}");
        let (_, before) = in_use.openings();
        drop(in_use);
        cluster
            .volumes
            .rollback(&name("vm1"), &name("monday"))
            .await
            .unwrap();
        let back = cluster.openings.open(&name("vm1")).await.unwrap();
        assert_eq!(read(back.volume(), 0).await, 1);
        assert_eq!(read(back.volume(), 8 << 20).await, 2);
        let (first, _) = back.openings();
        assert!(first > before, "who had it before does not go on");
        let (_, before) = clone.openings();
        drop((back, clone));

        let kept = error_text(cluster.volumes.remove(&name("vm1")).await);
        assert!(kept.contains("it has 1 snapshots"), "{kept}");
        cluster
            .volumes
            .remove_snapshot(&name("vm1"), &name("monday"))
            .await
            .unwrap();
        cluster.volumes.remove(&name("vm1")).await.unwrap();
        env::sleep(Nanos::secs(10)).await;
        let clone = cluster.openings.open(&name("vm2")).await.unwrap();
        let (first, last) = clone.openings();
        assert!((first..last).contains(&before), "no other node had it");
        assert_eq!(read(clone.volume(), 0).await, 1);
        assert_eq!(read(clone.volume(), 8 << 20).await, 4);
        drop(clone);
        cluster.volumes.remove(&name("vm2")).await.unwrap();
        env::sleep(Nanos::secs(10)).await;
        assert_eq!((places.objects("a"), places.objects("b")), (0, 0));
    });
}
