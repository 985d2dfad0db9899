//! What is set on a volume and on an export: class and fairness, as the policy that chooses copies hears them.

use std::cell::RefCell;
use std::rc::Rc;

use base::{Buf, Instant, Sector};
use device::{Class as How, Device};
use policy::place::{
    Candidate, Class, ClientId, DiskId, Kind, Options, Permille, PlaceError, ReplicaPolicy,
    Request, Target, build,
};

use vdisk::cluster::Settings;
use vdisk::cluster::opened::Terms;
use vdisk::cluster::set::{CapChange, Setting};
use vdisk::record::{CapRecord, PriorityClass};

use policy::share::{Direction, Second, Slot};
use store::qos::manager::ReservationRequest;

use super::*;

/// Whose request it was, of what class, and what a seek behind another client counts for it.
type Heard = (ClientId, Class, Permille);

/// A policy that notes of what requests it was asked.
struct Noting {
    policy: Box<dyn ReplicaPolicy>,
    heard: Rc<RefCell<Vec<Heard>>>,
}

impl Noting {
    fn note(&self, request: &Request) {
        let (origin, other) = (request.origin, request.penalties.other);
        let heard = (origin.client, origin.class, other);
        self.heard.borrow_mut().push(heard);
    }
}

impl ReplicaPolicy for Noting {
    fn read(&mut self, now: Instant, request: &Request, copies: &[Candidate]) -> DiskId {
        self.note(request);
        self.policy.read(now, request, copies)
    }

    fn place(
        &mut self,
        now: Instant,
        request: &Request,
        copies: usize,
        disks: &[Target],
    ) -> Result<Vec<DiskId>, PlaceError> {
        self.note(request);
        self.policy.place(now, request, copies, disks)
    }
}

/// Two stores, the node that has them, and what its policy heard.
async fn noting() -> (
    Rc<MemoryMetaStore>,
    Rc<Places>,
    Rc<Cluster>,
    Rc<RefCell<Vec<Heard>>>,
) {
    let meta_store = MemoryMetaStore::new("meta");
    let places = Rc::new(Places::default());
    let heard = Rc::new(RefCell::default());
    let policy = Noting {
        policy: build(Kind::Tanada, &Options::default()),
        heard: Rc::clone(&heard),
    };
    let ways: Rc<dyn Ways> = places.clone();
    let settings = Settings::new(name("n1"));
    let cluster = Cluster::new(settings, meta_store.client(), ways, Box::new(policy));
    cluster.start();
    places.add(&cluster, "a", "da").await;
    places.add(&cluster, "b", "db").await;
    (meta_store, places, cluster, heard)
}

fn fairness(text: &str) -> Option<Fairness> {
    Some(text.parse().unwrap())
}

/// What the policy hears of a read.
async fn of_a_read(device: &dyn Device, heard: &RefCell<Vec<Heard>>) -> Heard {
    heard.borrow_mut().clear();
    let read = device.read(Sector(0), Buf::for_read(4096), How::Foreground);
    read.await.unwrap();
    let all = heard.borrow();
    assert!(all.iter().all(|one| one == &all[0]), "{all:?}");
    all[0]
}

#[test]
fn class_and_fairness_of_a_volume_and_of_its_exports_reach_the_policy() {
    env::Runtime::simulated(81).block_on(async {
        let (_meta_store, _places, cluster, heard) = noting().await;
        let new = NewVolume {
            priority: PriorityClass::High,
            fairness: fairness("4"),
            ..vm("vm1")
        };
        cluster.volumes.create(&new).await.unwrap();
        let in_use = cluster.openings.open(&name("vm1")).await.unwrap();
        let own = in_use.volume();
        write(own, 0, 7).await;
        let client = ClientId(u64::from(own.record().id.0));
        let volume = of_a_read(&**own, &heard).await;
        assert_eq!(volume, (client, Class::High, Permille(4_000)));

        let mut clients = vec![client];
        for (export, priority, fair, expected) in [
            ("a", Some(PriorityClass::Low), None, (Class::Low, 4_000)),
            ("b", None, fairness("2.5"), (Class::High, 2_500)),
            (
                "c",
                Some(PriorityClass::Normal),
                fairness("1"),
                (Class::Normal, 1_000),
            ),
        ] {
            let terms = Terms {
                priority,
                fairness: fair,
            };
            let (_in_use, seen) = cluster
                .openings
                .open_as(&name("vm1"), export, &terms)
                .await
                .unwrap();
            let (client, class, other) = of_a_read(&*seen, &heard).await;
            assert_eq!((class, other.0), expected, "{export}");
            // A client beside all others, and on every node the same.
            assert!(!clients.contains(&client));
            clients.push(client);
        }
    });
}

/// Bytes that sessions of this priority got at all stores.
fn delivered(places: &Places, priority: &str) -> u64 {
    let places = places.0.borrow();
    let sessions = places.values().flat_map(|it| it.node.sessions());
    let of = sessions.filter(|it| it.priority == priority);
    of.map(|it| it.delivery.delivered_bytes).sum()
}

#[test]
fn settings_of_an_open_volume_apply_at_once_and_exports_keep_their_own() {
    env::Runtime::simulated(82).block_on(async {
        let (_meta_store, places, cluster, heard) = noting().await;
        cluster.volumes.create(&vm("vm1")).await.unwrap();
        let in_use = cluster.openings.open(&name("vm1")).await.unwrap();
        let own = in_use.volume();
        write(own, 0, 7).await;
        let terms = Terms {
            priority: None,
            fairness: fairness("2"),
        };
        let export = cluster.openings.open_as(&name("vm1"), "a", &terms).await;
        let (_more, seen) = export.unwrap();
        let (_, class, other) = of_a_read(&**own, &heard).await;
        assert_eq!((class, other.0), (Class::Normal, 1_000));

        let setting = Setting {
            priority: Some(PriorityClass::High),
            fairness: fairness("4"),
            ..Setting::default()
        };
        let now = cluster.volumes.set(&name("vm1"), &setting).await.unwrap();
        assert_eq!(now.record.terms.priority, PriorityClass::High);
        let (_, class, other) = of_a_read(&**own, &heard).await;
        assert_eq!((class, other.0), (Class::High, 4_000));
        let (_, class, other) = of_a_read(&*seen, &heard).await;
        assert_eq!((class, other.0), (Class::High, 2_000));
        // Also where requests wait.
        let before = (delivered(&places, "high"), delivered(&places, "normal"));
        for _ in 0..20 {
            of_a_read(&**own, &heard).await;
            of_a_read(&*seen, &heard).await;
        }
        let after = (delivered(&places, "high"), delivered(&places, "normal"));
        assert!(after.0 - before.0 >= 40 * 4096, "{before:?} {after:?}");
        assert_eq!(after.1, before.1);
    });
}

/// Bytes that reservations at all stores got.
fn under_reservations(places: &Places) -> u64 {
    let places = places.0.borrow();
    let sessions = places.values().flat_map(|it| it.node.sessions());
    let of = sessions.filter(|it| it.reservation.is_some());
    of.map(|it| it.delivery.delivered_bytes).sum()
}

#[test]
fn a_volume_in_use_attaches_and_leaves_its_holders_reservation() {
    env::Runtime::simulated(85).block_on(async {
        let (_meta_store, places, cluster) = two_stores().await;
        let nodes: Vec<_> = places
            .0
            .borrow()
            .values()
            .map(|it| Rc::clone(&it.node))
            .collect();
        for node in &nodes {
            let slot = Slot::new(node.now(), 60);
            let wanted =
                ReservationRequest::new(Direction::Read, BytesPerSec::mb(10), slot).holder("ann");
            let soon = Second(node.now().0 + 10);
            let held = node.hold(&wanted, None, soon).await.unwrap();
            node.commit(held).await.unwrap();
        }
        cluster.volumes.create(&vm("vm1")).await.unwrap();
        let in_use = cluster.openings.open(&name("vm1")).await.unwrap();
        let terms = Terms {
            priority: Some(PriorityClass::Low),
            fairness: None,
        };
        let export = cluster.openings.open_as(&name("vm1"), "a", &terms).await;
        let (_more, seen) = export.unwrap();
        write(in_use.volume(), 0, 7).await;
        let mut got = Vec::new();
        for holder in [Some("ann".to_owned()), None] {
            for _ in 0..10 {
                read(in_use.volume(), 0).await;
                let buf = Buf::for_read(4096);
                seen.read(Sector(0), buf, How::Foreground).await.unwrap();
            }
            got.push(under_reservations(&places));
            let setting = Setting {
                holder: Some(holder),
                ..Setting::default()
            };
            cluster.volumes.set(&name("vm1"), &setting).await.unwrap();
        }
        for _ in 0..10 {
            read(in_use.volume(), 0).await;
        }
        got.push(under_reservations(&places));
        assert!(
            got[0] == 0 && got[1] >= 20 * 4096 && got[2] == got[1],
            "{got:?}"
        );
    });
}

#[test]
fn min_isr_is_set_while_a_store_is_out_and_the_record_still_has_it_out() {
    env::Runtime::simulated(83).block_on(async {
        let (_meta_store, places, cluster) = two_stores().await;
        cluster.volumes.create(&vm("vm1")).await.unwrap();
        places.0.borrow()["b"].down.set(true);
        let in_use = cluster.openings.open(&name("vm1")).await.unwrap();
        let own = in_use.volume();
        write(own, 0, 7).await;
        let out = own.record().out;
        assert_eq!(out.len(), 1);
        let least = |copies| Setting {
            min_isr: Some(copies),
            ..Setting::default()
        };
        let now = cluster.volumes.set(&name("vm1"), &least(2)).await.unwrap();
        assert_eq!((now.record.terms.min_isr, &now.record.out), (2, &out));
        assert_eq!(now.health.condition, Condition::ReadOnly);
        let refused = own.write_at(Sector(0), View::copy_of(&[8; 4096])).await;
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("it asks for at least 2"), "{refused}");
        assert_eq!(read(own, 0).await, 7);
        cluster.volumes.set(&name("vm1"), &least(1)).await.unwrap();
        write(own, 0, 9).await;
        for wrong in [0, 3] {
            let error_text = error_text(cluster.volumes.set(&name("vm1"), &least(wrong)).await);
            let expected = format!(
                "writes of volume vm1 cannot reach {wrong} copies: it has 2; ask for 1 to 2"
            );
            assert_eq!(error_text, expected);
        }
        assert_eq!(own.record().terms.min_isr, 1);
    });
}

#[test]
fn settings_apply_while_no_node_or_another_one_has_the_volume() {
    env::Runtime::simulated(84).block_on(async {
        let (meta_store, places, cluster) = two_stores().await;
        let other = super::cluster("n2", meta_store.client(), &places);
        other.start();
        cluster.volumes.create(&vm("vm1")).await.unwrap();
        let holder = |holder: Option<&str>| Setting {
            holder: Some(holder.map(str::to_owned)),
            ..Setting::default()
        };
        // Closed: no store is asked.
        let all: Vec<_> = places.0.borrow().values().cloned().collect();
        for place in &all {
            place.down.set(true);
        }
        let now = cluster
            .volumes
            .set(&name("vm1"), &holder(Some("ann")))
            .await
            .unwrap();
        assert_eq!(
            (now.record.terms.reservation.as_deref(), &now.used),
            (Some("ann"), &Use::Closed)
        );
        let all: Vec<_> = places.0.borrow().values().cloned().collect();
        for place in &all {
            place.down.set(false);
        }
        let there = other.openings.open(&name("vm1")).await.unwrap();
        write(there.volume(), 0, 1).await;
        let now = cluster
            .volumes
            .set(&name("vm1"), &holder(None))
            .await
            .unwrap();
        assert_eq!(now.used, Use::Node("n2".to_owned()));
        assert_eq!(there.volume().record().terms.reservation, None);
        // There it is set beside all that its writer changes meanwhile.
        let writing = async {
            for at in 0..3 {
                write(there.volume(), at * (4 << 20), 2).await;
                env::sleep(Nanos::secs(1)).await;
            }
        };
        let setting = async {
            for _ in 0..10 {
                other
                    .volumes
                    .set(&name("vm1"), &holder(None))
                    .await
                    .unwrap();
                env::sleep(Nanos::millis(250)).await;
                other
                    .volumes
                    .set(&name("vm1"), &holder(Some("bob")))
                    .await
                    .unwrap();
            }
        };
        let writing: std::pin::Pin<Box<dyn Future<Output = ()>>> = Box::pin(writing);
        env::sync::join_all(vec![writing, Box::pin(setting)]).await;
        assert_eq!(
            there.volume().record().terms.reservation.as_deref(),
            Some("bob")
        );
        drop(there);
        env::sleep(Nanos::secs(10)).await;
        // All is in the record that the next writer reads.
        let here = cluster.openings.open(&name("vm1")).await.unwrap();
        assert_eq!(
            here.volume().record().terms.reservation.as_deref(),
            Some("bob")
        );
        for at in 0..3 {
            assert_eq!(read(here.volume(), at * (4 << 20)).await, 2);
        }
        let missing = error_text(cluster.volumes.set(&name("vm2"), &holder(None)).await);
        assert_eq!(missing, "there is no volume vm2; there are vm1");
    });
}

#[test]
fn a_cap_holds_at_once_where_the_volume_is_open_and_for_all_its_clients_there() {
    env::Runtime::simulated(85).block_on(async {
        let (meta_store, places, cluster) = two_stores().await;
        let other = super::cluster("n2", meta_store.client(), &places);
        other.start();
        cluster.volumes.create(&vm("vm1")).await.unwrap();
        let there = other.openings.open(&name("vm1")).await.unwrap();
        let volume: Rc<dyn Device> = there.volume().clone();
        let clients = [there.capped(Rc::clone(&volume)), there.capped(volume)];
        let reading = async || {
            let begun = env::now();
            let all = clients.iter().map(async |client| {
                for _ in 0..6 {
                    let read = client.read(Sector(0), Buf::for_read(1 << 20), How::Foreground);
                    read.await.unwrap();
                }
            });
            env::sync::join_all(all).await;
            env::now().since(begun)
        };
        assert!(reading().await < Nanos::secs(1), "nothing is capped");
        let cap = |read| Setting {
            caps: CapChange {
                read: Some(read),
                ..CapChange::default()
            },
            ..Setting::default()
        };
        // Set from the node that does not have it.
        let now = cluster
            .volumes
            .set(&name("vm1"), &cap(4 << 20))
            .await
            .unwrap();
        assert_eq!(now.used, Use::Node("n2".to_owned()));
        assert_eq!(now.record.terms.caps.read, Some(4 << 20));
        let took = reading().await;
        // Twelve MiB, of which four are a burst.
        assert!(
            (Nanos::secs(2)..Nanos::millis(2_500)).contains(&took),
            "{took:?}"
        );
        let waited = there.throttle().counters().read;
        assert_eq!((waited.requests, waited.waited), (12, 8));

        let slow = cluster
            .volumes
            .set(&name("vm1"), &cap(4095))
            .await
            .unwrap_err();
        assert!(slow.to_string().contains("less than one block"), "{slow}");
        // Opened anew it is as it was set, and then it is taken off.
        cluster.volumes.set(&name("vm1"), &cap(0)).await.unwrap();
        assert!(reading().await < Nanos::secs(1));
        let record = there.volume().record();
        assert_eq!(record.terms.caps, CapRecord::default());
    });
}

#[test]
fn a_cap_below_what_its_holder_has_booked_is_refused() {
    let setting = Setting {
        caps: CapChange {
            read: Some(9_000_000),
            ..CapChange::default()
        },
        ..Setting::default()
    };
    env::Runtime::simulated(86).block_on(async move {
        let (_meta_store, places, cluster) = two_stores().await;
        cluster.volumes.create(&vm("vm1")).await.unwrap();
        let mut held = setting.clone();
        held.holder = Some(Some("ann".to_owned()));
        let all: Vec<_> = places.0.borrow().values().cloned().collect();
        for place in &all {
            let now = place.node.now();
            let request = ReservationRequest::new(
                Direction::Read,
                BytesPerSec(9_000_001),
                Slot::new(now, 600),
            );
            let id = place
                .node
                .hold(&request.holder("ann"), None, Second(now.0 + 9))
                .await;
            place.node.commit(id.unwrap()).await.unwrap();
        }
        let refused = cluster.volumes.set(&name("vm1"), &held).await.unwrap_err();
        assert!(
            refused
                .to_string()
                .contains("a cap of 9 MB/s of reads is below the 9 MB/s"),
            "{refused}"
        );
        // Without the holder, or with a cap that leaves room for it.
        cluster.volumes.set(&name("vm1"), &setting).await.unwrap();
        held.caps.read = Some(9_000_001);
        cluster.volumes.set(&name("vm1"), &held).await.unwrap();
        // And the other way round: the holder is there, and the cap comes.
        assert!(cluster.volumes.set(&name("vm1"), &setting).await.is_err());
    });
}
