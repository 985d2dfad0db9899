//! A cluster of three stores and two nodes, whose coordinators can be killed at any step.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::rc::Rc;

use base::{Bytes, Nanos, Sector, Span};
use device::{Device as _, Memory};
use policy::share::calendar::State;
use policy::share::cap::Caps;
use policy::share::{BytesPerSec, Costs};
use store::qos::manager::{Manager, ManagerOptions, Reserved};
use store::{Settings, Store};
use vdisk::StoreNumber;
use vdisk::meta::{
    Compare, Entry, LeaseId, MemoryMetaClient, MemoryMetaStore, MetaError, MetaStore, Op, Outcome,
    Page, Pending as MetaPending, Revision, Watch, whole_range,
};

use crate::allotment::{self, Allotments};
use crate::ask::{Ask, AskTerms, TargetAsk, parts};
use crate::calendar::{Calendar, LocalCalendar, PartAnswer, PartError, PartRequest};
use crate::confirm::{Own, confirm};
use crate::plan::Wanted;
use crate::quota::{Quotas, Unlimited};
use crate::record::{Place, PlanKind, Promise, QUEUE, Reservation, ReservationId};
use crate::service::Service;
use crate::stores::{ClusterStores, Facts, Pending, StoreFact, VolumeFact};
use crate::sweep::sweep;

/// The node that has the export.
pub const EXPORTING: &str = "n2";

/// When a node is killed: it does so many more steps, a call of the meta store or of a store being two.
pub type Steps = Rc<Cell<u64>>;

/// One step more, or never again.
async fn step(steps: &Steps) {
    match steps.get() {
        0 => pending().await,
        left => steps.set(left - 1),
    }
}

/// All that nodes have in common.
pub struct World {
    pub meta: Rc<MemoryMetaStore>,
    stores: RefCell<Vec<(StoreNumber, Rc<Manager>)>>,
    disks: BTreeMap<StoreNumber, Rc<Memory>>,
    pub facts: RefCell<Facts>,
    /// The calendar of the export `vol0` of node n2.
    export: Rc<Manager>,
    /// Node n2 has that export.
    pub has_export: Cell<bool>,
    /// How often something was read of the meta store.
    pub reads: Cell<u64>,
    /// Stores that do not answer: what is asked fails at once.
    pub silent: RefCell<BTreeSet<StoreNumber>>,
    /// Stores that keep what is asked.
    pub hung: RefCell<BTreeSet<StoreNumber>>,
}

/// One node's way to the meta store.
struct Meta {
    client: Rc<MemoryMetaClient>,
    world: Rc<World>,
    steps: Steps,
}

impl Meta {
    async fn do_it<T>(&self, work: MetaPending<'_, T>) -> Result<T, MetaError> {
        step(&self.steps).await;
        let done = work.await;
        step(&self.steps).await;
        done
    }
}

impl MetaStore for Meta {
    fn get<'a>(&'a self, key: &'a str) -> MetaPending<'a, Option<Entry>> {
        self.world.reads.set(self.world.reads.get() + 1);
        Box::pin(self.do_it(self.client.get(key)))
    }
    fn range<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        most: usize,
    ) -> MetaPending<'a, Page> {
        self.world.reads.set(self.world.reads.get() + 1);
        Box::pin(self.do_it(self.client.range(prefix, after, most)))
    }
    fn txn(&self, compares: Vec<Compare>, ops: Vec<Op>) -> MetaPending<'_, Outcome> {
        // It is sent when it is polled first: not before the step.
        Box::pin(async move {
            step(&self.steps).await;
            let done = self.client.txn(compares, ops).await;
            step(&self.steps).await;
            done
        })
    }
    fn watch<'a>(&'a self, prefix: &'a str, from: Revision) -> MetaPending<'a, Box<dyn Watch>> {
        self.client.watch(prefix, from)
    }
    fn lease(&self, ttl: Nanos) -> MetaPending<'_, LeaseId> {
        self.client.lease(ttl)
    }
    fn keep(&self, lease: LeaseId) -> MetaPending<'_, Nanos> {
        self.client.keep(lease)
    }
    fn revoke(&self, lease: LeaseId) -> MetaPending<'_, ()> {
        self.client.revoke(lease)
    }
}

/// One node's way to the stores.
struct Stores {
    node: String,
    world: Rc<World>,
    steps: Steps,
}

struct Near {
    calendar: LocalCalendar,
    store: StoreNumber,
    world: Rc<World>,
    steps: Steps,
}

impl Near {
    async fn do_it<T>(&self, work: Pending<'_, T>) -> Result<T, PartError> {
        step(&self.steps).await;
        if self.world.hung.borrow().contains(&self.store) {
            return pending().await;
        }
        let silent = |_| {
            let is_silent = self.world.silent.borrow().contains(&self.store);
            is_silent.then(|| PartError::Unreachable("it is silent".to_owned()))
        };
        if let Some(error) = silent(()) {
            return Err(error);
        }
        let done = work.await;
        step(&self.steps).await;
        // It may fall silent before its answer comes.
        silent(()).map_or(done, Err)
    }
}

impl Calendar for Near {
    fn ask(&self, request: PartRequest) -> Pending<'_, PartAnswer> {
        Box::pin(self.do_it(self.calendar.ask(request)))
    }
}

impl ClusterStores for Stores {
    fn facts(&self) -> Pending<'_, Facts, MetaError> {
        Box::pin(async {
            let mut facts = self.world.facts.borrow().clone();
            facts.node.clone_from(&self.node);
            if self.node == EXPORTING && self.world.has_export.get() {
                facts.exports =
                    BTreeMap::from([("vol0".to_owned(), self.world.export.store().uuid())]);
            }
            Ok(facts)
        })
    }
    fn calendar<'a>(&'a self, place: Place<'a>) -> Pending<'a, Rc<dyn Calendar>> {
        Box::pin(async move {
            let store = match place {
                Place::Store(store) => store,
                Place::Export { node, .. } if node == self.node => QUEUE,
                Place::Export { node, .. } => {
                    return Err(PartError::Unreachable(format!("ask at node {node}")));
                }
            };
            let mut stores = self.world.stores();
            stores.push((QUEUE, Rc::clone(&self.world.export)));
            let mut stores = stores.iter();
            let Some((_, manager)) = stores.find(|(number, _)| *number == store) else {
                return Err(PartError::Unreachable("it has left".to_owned()));
            };
            Ok(Rc::new(Near {
                calendar: LocalCalendar(Rc::clone(manager)),
                store,
                world: Rc::clone(&self.world),
                steps: Rc::clone(&self.steps),
            }) as Rc<dyn Calendar>)
        })
    }
}

async fn format(number: u16, size: Bytes) -> Rc<Memory> {
    let disk = Memory::new(format!("disk{number}"), size);
    let formatted = Store::format(disk.clone(), Settings::default()).await;
    formatted.unwrap().close().await.unwrap();
    disk
}

/// All of a store's disk.
fn whole(disk: &Memory) -> Span {
    Span {
        start: Sector(0),
        len: disk.info().size,
    }
}

async fn open(number: u16, disk: Rc<Memory>) -> Rc<Manager> {
    let options = ManagerOptions {
        scrub: None,
        ..ManagerOptions::new(Costs::flat(BytesPerSec::mb(100)), [number as u8; 32])
    };
    let manager = Manager::open(disk, options).await.unwrap();
    manager.parts().take_by_record();
    manager
}

impl World {
    /// Three stores, the volume `vm1` with two copies on all of them, nodes n1 and n2 up.
    pub async fn new() -> Rc<World> {
        World::of(Bytes::mib(16)).await
    }

    /// The same with disks of this size.
    pub async fn of(size: Bytes) -> Rc<World> {
        let (mut stores, mut disks) = (Vec::new(), BTreeMap::new());
        let mut facts = Facts::default();
        for number in 1..=3 {
            let disk = format(number, size).await;
            let manager = open(number, Rc::clone(&disk)).await;
            disks.insert(StoreNumber(number), disk);
            let fact = StoreFact {
                name: format!("s{number}"),
                uuid: manager.store().uuid(),
                address: format!("10.0.0.{number}:10881"),
                is_up: true,
                is_active: true,
            };
            facts.stores.insert(StoreNumber(number), fact);
            stores.push((StoreNumber(number), manager));
        }
        let volume = VolumeFact {
            name: "vm1".to_owned(),
            copies: 2,
            stores: [1, 2, 3].map(StoreNumber).into(),
            holder: None,
            caps: Caps::default(),
        };
        facts.volumes = BTreeMap::from([(7, volume)]);
        facts.nodes = ["n1", "n2"].map(str::to_owned).into();
        Rc::new(World {
            meta: MemoryMetaStore::new("memory"),
            stores: RefCell::new(stores),
            disks,
            export: open(4, format(4, size).await).await,
            has_export: Cell::new(true),
            reads: Cell::default(),
            facts: RefCell::new(facts),
            silent: RefCell::default(),
            hung: RefCell::default(),
        })
    }

    /// The service of a node that is killed after so many steps; it settles the parts of `stores`, and sweeps.
    pub fn node(
        self: &Rc<Self>,
        name: &str,
        steps: u64,
    ) -> (Rc<Service>, Steps, Rc<MemoryMetaClient>) {
        self.node_with(name, steps, Rc::new(Unlimited))
    }

    /// The same, with these quotas.
    pub fn node_with(
        self: &Rc<Self>,
        name: &str,
        steps: u64,
        quotas: Rc<dyn Quotas>,
    ) -> (Rc<Service>, Steps, Rc<MemoryMetaClient>) {
        let steps = Rc::new(Cell::new(steps));
        let client = self.meta.client();
        let meta = Meta {
            client: Rc::clone(&client),
            world: Rc::clone(self),
            steps: Rc::clone(&steps),
        };
        let stores = Stores {
            node: name.to_owned(),
            world: Rc::clone(self),
            steps: Rc::clone(&steps),
        };
        let service = Service::new(name, Rc::new(meta), Rc::new(stores), quotas);
        (service, steps, client)
    }

    /// From now on this node settles the parts of all stores each second, and sweeps.
    pub fn tend(self: &Rc<Self>, service: &Rc<Service>) -> env::CancelOnDrop<()> {
        let (world, service) = (Rc::clone(self), Rc::clone(service));
        env::cancel_scope(env::spawn(async move {
            let _following = service.follow();
            for second in 0_u64.. {
                confirm(&service, &world.own()).await;
                if second % 3 == 0 {
                    let _ = sweep(&service).await;
                }
                env::sleep(Nanos::secs(1)).await;
            }
        }))
    }

    /// The stores as they are now.
    pub fn stores(&self) -> Vec<(StoreNumber, Rc<Manager>)> {
        self.stores.borrow().clone()
    }

    /// The same, to be settled.
    pub fn own(&self) -> Vec<Own> {
        let stores = self.stores();
        let stores = stores.iter().map(|(number, it)| Own::store(*number, it));
        let export = Own {
            exports: vec!["vol0".to_owned()],
            ..Own::store(QUEUE, &self.export)
        };
        stores.chain([export]).collect()
    }

    /// All that is on a store's disk.
    pub fn copy_of(&self, store: StoreNumber) -> Vec<u8> {
        let disk = &self.disks[&store];
        disk.contents(whole(disk))
    }

    /// Puts a store back to a copy of its disk, and opens it again.
    pub async fn put_back(&self, store: StoreNumber, copy: &[u8]) {
        let disk = &self.disks[&store];
        let at = self
            .stores()
            .iter()
            .position(|(number, _)| *number == store);
        let (_, before) = self.stores.borrow_mut().remove(at.unwrap());
        before.close().await.unwrap();
        drop(before);
        disk.load(whole(disk).start, copy);
        let manager = open(store.0, Rc::clone(disk)).await;
        self.stores
            .borrow_mut()
            .insert(at.unwrap(), (store, manager));
    }

    /// The parts that all stores have.
    pub fn parts(&self) -> Vec<(StoreNumber, Reserved)> {
        let mut stores = self.stores();
        stores.push((QUEUE, Rc::clone(&self.export)));
        let of = |(number, manager): &(StoreNumber, Rc<Manager>)| {
            let number = *number;
            manager
                .reservations()
                .into_iter()
                .map(move |it| (number, it))
        };
        stores.iter().flat_map(of).collect()
    }

    /// Each part stands by a record that lists it, and each that is listed is there.
    pub fn agree(&self, records: &[Reservation]) -> Result<(), String> {
        // Stores drop what is over by themselves; the sweep says so in the record some seconds later.
        let now = env::wall_clock().0 / 1_000_000_000;
        let standing = records
            .iter()
            .filter(|it| it.state.stands() && it.promise.until > now);
        let mut listed: Vec<(StoreNumber, u64, u64)> = standing
            .clone()
            .flat_map(|it| {
                it.parts
                    .iter()
                    .map(|part| (part.store, part.number, part.rate))
            })
            .collect();
        listed.sort_unstable();
        let mut kept = Vec::new();
        for (store, part) in self.parts() {
            if part.state != State::Committed {
                return Err(format!(
                    "part {} of store {} is only held",
                    part.id.0, store.0
                ));
            }
            kept.push((store, part.id.0, part.request.rate.0));
        }
        kept.sort_unstable();
        if kept != listed {
            return Err(format!("stores have {kept:?}, records list {listed:?}"));
        }
        let standing: Vec<&Reservation> = standing.collect();
        self.promises_are_kept(&standing)?;
        none_overlap(&standing)
    }

    /// The parts of each are those of its promise, to the second and the byte.
    fn promises_are_kept(&self, standing: &[&Reservation]) -> Result<(), String> {
        let facts = self.facts.borrow();
        for record in standing {
            let wanted = parts(&record.target, &record.promise, &record.terms, &facts);
            let place = |it: &Wanted| (it.store, it.direction, it.rate, record.promise.until);
            let mut wanted: Vec<_> = wanted.iter().map(place).collect();
            let has = record.parts.iter();
            let mut has: Vec<_> = has
                .map(|it| (it.store, it.direction(), it.rate, it.until))
                .collect();
            wanted.sort_unstable();
            has.sort_unstable();
            if has != wanted {
                let name = &record.name;
                return Err(format!("{name} has {has:?}, its promise needs {wanted:?}"));
            }
        }
        Ok(())
    }
}

/// Requests of a volume or an export come under one reservation each way.
pub fn none_overlap(standing: &[&Reservation]) -> Result<(), String> {
    for (at, one) in standing.iter().enumerate() {
        let clashes = standing[..at].iter().find(|other| {
            let same_way = one.promise.read.min(other.promise.read) > 0
                || one.promise.write.min(other.promise.write) > 0;
            let has_clients = !one.terms.allotment && !other.terms.allotment;
            let is_one = one.target.key().is_some() && one.target == other.target;
            let at_once = one.promise.slot().overlaps(other.promise.slot());
            is_one && has_clients && same_way && at_once
        });
        if let Some(other) = clashes {
            return Err(format!("{} and {} have one target", one.name, other.name));
        }
    }
    Ok(())
}

/// There is a calendar exactly of each allotment that stands, as its record and those inside say.
pub async fn calendars_agree(service: &Service) -> Result<(), String> {
    let all = service.all().await.unwrap();
    let standing: BTreeMap<ReservationId, &Reservation> = all
        .iter()
        .filter(|it| it.record.state.stands())
        .map(|it| (it.id, &it.record))
        .collect();
    let meta = &*service.records.0;
    let (entries, _) = whole_range(meta, allotment::PREFIX).await.unwrap();
    let allotments = standing.iter().filter(|(_, it)| it.terms.allotment);
    if entries.len() != allotments.clone().count() {
        let keys: Vec<_> = entries.iter().map(|it| &it.key).collect();
        return Err(format!("there are calendars {keys:?}"));
    }
    for (id, record) in allotments {
        let found = Allotments(&service.records).get(*id).await.unwrap();
        let (calendar, _) = found.ok_or_else(|| format!("{id} has no calendar"))?;
        let inside = standing
            .iter()
            .filter(|(_, it)| it.terms.within == Some(*id));
        let inside = inside.map(|(id, it)| (*id, *it)).collect();
        let is = calendar.check_is(record, &inside);
        is.map_err(|why| format!("{id}: {why}"))?;
    }
    Ok(())
}

/// Reads of vm1 for ten minutes from now on.
pub fn of_vm1(service: &Service, name: &str, mb: u64) -> Ask {
    let now = service.now().0;
    Ask {
        name: name.to_owned(),
        account: "astro".to_owned(),
        target: TargetAsk::Volume("vm1".to_owned()),
        promise: Promise {
            read: mb * 1_000_000,
            write: 0,
            from: now,
            until: now + 600,
            tolerate: 1,
            plan: PlanKind::Any,
            window_ns: 1_000_000_000,
            probability_ppm: 990_000,
            space: 0,
        },
        tolerate_said: false,
        from_said: false,
        terms: AskTerms::default(),
    }
}

/// The records as they are.
pub async fn records(service: &Service) -> Vec<Reservation> {
    let all = service.all().await.unwrap().into_iter();
    all.map(|it| it.record).collect()
}
