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
use vdisk::record::PriorityClass;

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
async fn noting() -> (Rc<Twin>, Rc<Cluster>, Rc<RefCell<Vec<Heard>>>) {
    let twin = Twin::new("meta");
    let places = Rc::new(Places::default());
    let heard = Rc::new(RefCell::default());
    let policy = Noting {
        policy: build(Kind::Tanada, &Options::default()),
        heard: Rc::clone(&heard),
    };
    let ways: Rc<dyn Ways> = places.clone();
    let settings = Settings::new(name("n1"));
    let cluster = Cluster::new(settings, twin.client(), ways, Box::new(policy));
    cluster.start();
    places.add(&cluster, "a", "da").await;
    places.add(&cluster, "b", "db").await;
    (twin, cluster, heard)
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
        let (_twin, cluster, heard) = noting().await;
        let new = NewVolume {
            priority: PriorityClass::High,
            fairness: fairness("4"),
            ..vm("vm1")
        };
        cluster.create(&new).await.unwrap();
        let in_use = cluster.open(&name("vm1")).await.unwrap();
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
            let (_in_use, seen) = cluster.open_as(&name("vm1"), export, &terms).await.unwrap();
            let (client, class, other) = of_a_read(&*seen, &heard).await;
            assert_eq!((class, other.0), expected, "{export}");
            // A client beside all others, and on every node the same.
            assert!(!clients.contains(&client));
            clients.push(client);
        }
    });
}
