//! One run: clients on the nodes of a small cluster read extents that have two copies.
//!
//! ```text
//! client -> its node's Choice (production) -> hop -> DiskQueue, its front -> ModelDisk -> hop, with the queue's state -> client
//!                 ^------------------- every T, each disk's state to all nodes -----------------'
//! front: one at a time in the order they came (the paper's) | a store's queue with a line for each client (production)
//! ```
//!
//! Source: COST 4 (four nodes with a SATA disk each, redundancy 2, virtual machines on the same nodes, clones of one image).
//!
//! Choice: the paper names neither network nor layout. A hop takes 50 us and bytes pass at 1.25 GB/s, multicasts cost
//! nothing; each client's image has extents of 4 MiB whose two copies are on disks drawn by chance, one behind the other on each disk. The layout and
//! what clients ask are the same for all methods with the same seed.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use base::{Buf, Bytes, Instant, Nanos, Sector};
use device::model::{ModelDisk, Spec, SpecError, Store as Data};
use device::{Class as DeviceClass, Device, DeviceError};
use env::sync::{Permit, Semaphore};
use hdrhistogram::Histogram;
use policy::place::{
    At, Candidate, Class, ClientId, DiskId, DiskQueue, Kind, Op, Options, Origin, Penalties, Reply,
    Request, State, TanadaOptions, Ticket, Weights, build,
};
use policy::share::{SessionId, Terms};
use store::qos::queue::{Queue, QueueOptions};
use vdisk::replica::choice::{Choice, Reported};

pub(super) const EXTENT: Bytes = Bytes::mib(4);
/// Extents of an image: 4 GiB.
const EXTENTS: u64 = 1024;
const HOP: Nanos = Nanos::micros(50);
/// Bytes on their way, ps each.
const PASSING_PS: u64 = 800;
/// Nothing is measured before.
const WARM: Nanos = Nanos::secs(1);
/// An open loop does not pile up more.
const OUTSTANDING_MAX: u64 = 1_000;

/// A node's disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Disk {
    /// `hdd-7200-sata`.
    Hdd,
    /// The same, each request three times as long.
    SlowHdd,
    /// `ssd-sata-mlc`; of 1,000 requests two stall for 300 ms.
    StallingSsd,
}

/// How a client asks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Pace {
    /// So many requests always under way.
    Closed(u32),
    /// So many a second, at moments drawn by chance.
    Open(f64),
}

/// A client: one virtual machine with an image of its own.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Load {
    pub node: usize,
    pub sequential: bool,
    pub bytes: Bytes,
    pub pace: Pace,
    pub class: Class,
    pub penalties: Penalties,
}

impl Load {
    /// Random reads.
    pub fn random(node: usize, bytes: Bytes, pace: Pace) -> Load {
        Load {
            node,
            sequential: false,
            bytes,
            pace,
            class: Class::Normal,
            penalties: Penalties::default(),
        }
    }

    /// Reads of 256 KiB one behind the other, two at a time.
    pub fn sequential(node: usize) -> Load {
        Load {
            sequential: true,
            ..Load::random(node, Bytes::kib(256), Pace::Closed(2))
        }
    }
}

/// What happens in a case.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Scene {
    pub disks: Vec<Disk>,
    pub loads: Vec<Load>,
}

/// Which policy chooses, what it hears, and which request is next at a disk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Method {
    pub name: &'static str,
    pub kind: Kind,
    pub tanada: TanadaOptions,
    /// Disks have a store's queue before them.
    pub stores: bool,
}

impl Method {
    pub fn of(kind: Kind) -> Method {
        Method {
            name: kind.name(),
            kind,
            tanada: TanadaOptions::default(),
            stores: false,
        }
    }

    /// Ours with our stores' queues: what a whole node does.
    pub fn stack() -> Method {
        Method {
            name: "tanada-stack",
            stores: true,
            ..Method::of(Kind::Tanada)
        }
    }

    /// Ours with something changed.
    pub fn ours(name: &'static str, change: impl FnOnce(&mut TanadaOptions)) -> Method {
        let mut method = Method::of(Kind::Tanada);
        method.name = name;
        change(&mut method.tanada);
        method
    }

    /// Does it listen to multicasts? For others T is nothing.
    pub fn listens(&self) -> bool {
        matches!(self.kind, Kind::Clbs | Kind::QueueCost | Kind::Tanada)
    }
}

/// What a client got while it was measured.
#[derive(Debug, Clone)]
pub(super) struct Got {
    pub bytes: u64,
    /// Microseconds from asking to having.
    pub waits: Histogram<u64>,
}

/// What came out of a run.
#[derive(Debug, Clone)]
pub(super) struct Outcome {
    pub clients: Vec<Got>,
    pub seconds: f64,
    /// Second copies asked, of all reads.
    pub hedged: f64,
}

impl Outcome {
    /// MB/s of a client.
    pub fn mb_s(&self, client: usize) -> f64 {
        self.clients[client].bytes as f64 / 1e6 / self.seconds
    }

    /// MB/s of these clients together.
    pub fn sum_mb_s(&self, clients: impl IntoIterator<Item = usize>) -> f64 {
        clients.into_iter().map(|client| self.mb_s(client)).sum()
    }

    /// Waits of these clients together.
    pub fn waits(&self, clients: impl IntoIterator<Item = usize>) -> Histogram<u64> {
        let mut all = histogram();
        for client in clients {
            all.add(&self.clients[client].waits)
                .expect("both are of one form");
        }
        all
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 600_000_000, 3).expect("the bounds are in order")
}

/// What can go wrong in a run.
#[derive(Debug, thiserror::Error)]
pub(super) enum BedError {
    #[error(transparent)]
    Model(#[from] SpecError),
    #[error(transparent)]
    Device(#[from] DeviceError),
}

// --- disks --------------------------------------------------------------------------------------------

/// Which request is next at a disk.
enum Front {
    /// One request at a time, in the order they came.
    Fifo(Rc<Semaphore>),
    /// A store's queue, a line for each client.
    Store {
        queue: Rc<Queue>,
        lines: Vec<SessionId>,
        /// When it answered last.
        answered: Cell<Instant>,
    },
}

struct Manager {
    device: Rc<ModelDisk>,
    kind: Disk,
    front: Front,
    queue: RefCell<DiskQueue>,
    tickets: Cell<u64>,
    chance: RefCell<env::Rng>,
    /// Sent and not yet in the queue: what only the oracle knows.
    on_their_way: RefCell<BTreeMap<u64, (Request, At, bool)>>,
    broken: RefCell<Option<DeviceError>>,
}

/// A request that waits in a node's line; gone from it when it is given up.
struct InLine<'a> {
    node: &'a Manager,
    ticket: Ticket,
    begun: bool,
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        if !self.begun {
            let mut queue = self.node.queue.borrow_mut();
            queue.cancel(env::now(), self.ticket);
        }
    }
}

/// A request on its way to a node.
struct OnItsWay<'a>(&'a Manager, u64);

impl<'a> OnItsWay<'a> {
    fn new(node: &'a Manager, number: u64, what: (Request, At, bool)) -> OnItsWay<'a> {
        node.on_their_way.borrow_mut().insert(number, what);
        OnItsWay(node, number)
    }
}

impl Drop for OnItsWay<'_> {
    fn drop(&mut self) {
        self.0.on_their_way.borrow_mut().remove(&self.1);
    }
}

impl Manager {
    fn new(index: usize, scene: &Scene, method: &Method, seed: u64) -> Result<Manager, SpecError> {
        let kind = scene.disks[index];
        let model = match kind {
            Disk::Hdd | Disk::SlowHdd => "hdd-7200-sata",
            Disk::StallingSsd => "ssd-sata-mlc",
        };
        let spec = Spec::find(model)?;
        let name = format!("disk{index}");
        let seed = seed.wrapping_mul(1_000).wrapping_add(index as u64);
        let device = ModelDisk::new(&name, &spec, None, Data::None, seed)?;
        let front = match method.stores {
            false => Front::Fifo(Semaphore::new(1)),
            true => {
                let options = QueueOptions::new(store::qos::costs::of_model(&spec));
                let queue = Queue::new(Rc::clone(&device) as Rc<dyn Device>, options);
                let lines = scene.loads.iter().map(|load| {
                    let terms = Terms {
                        priority: load.class,
                        ..Terms::best_effort()
                    };
                    queue.open(terms).expect("a line for each client")
                });
                Front::Store {
                    lines: lines.collect(),
                    answered: Cell::default(),
                    queue,
                }
            }
        };
        Ok(Manager {
            device,
            kind,
            front,
            queue: RefCell::new(DiskQueue::new(method.kind.queue(weights(kind)))),
            tickets: Cell::new(0),
            chance: RefCell::new(env::Rng::from_seed(seed ^ 0x005e_ed0f_57a1)),
            on_their_way: RefCell::default(),
            broken: RefCell::default(),
        })
    }

    /// Its queue now.
    fn state(&self) -> State {
        self.queue.borrow_mut().report(env::now())
    }

    /// The same with what is still on its way.
    fn exact_state(&self) -> State {
        let mut queue = self.queue.borrow().clone();
        for (ticket, (request, at, local)) in &*self.on_their_way.borrow() {
            let ticket = Ticket(u64::MAX - ticket);
            // A full queue is reported as it is.
            let _ = queue.enqueue(env::now(), ticket, request, Some(*at), *local);
        }
        queue.report(env::now())
    }

    /// A read from another node or this one; `None` if the device failed.
    async fn read(
        self: &Rc<Self>,
        request: &Request,
        at: At,
        sector: Sector,
        local: bool,
    ) -> Result<Reported<()>, ()> {
        let number = self.tickets.get();
        self.tickets.set(number + 1);
        if !local {
            let on_its_way = OnItsWay::new(self, number, (*request, at, local));
            env::sleep(HOP).await;
            drop(on_its_way);
        }
        let reply = self
            .serve(request, at, sector, local, Ticket(number))
            .await?;
        if !local {
            env::sleep(HOP + Nanos(request.bytes.0 * PASSING_PS / 1_000)).await;
        }
        Ok(Reported { what: (), reply })
    }

    async fn serve(
        self: &Rc<Self>,
        request: &Request,
        at: At,
        sector: Sector,
        local: bool,
        ticket: Ticket,
    ) -> Result<Reply, ()> {
        let arrived = env::now();
        let queued = {
            let mut queue = self.queue.borrow_mut();
            queue.enqueue(arrived, ticket, request, Some(at), local)
        };
        queued.map_err(|_| ())?;
        let mut in_line = InLine {
            node: self,
            ticket,
            begun: false,
        };
        let read = match &self.front {
            Front::Fifo(turn) => {
                let turn = turn.acquire(1).await;
                in_line.begun = true;
                // What the disk has begun it ends, wanted or not.
                let (node, bytes) = (Rc::clone(self), request.bytes);
                let read = env::spawn(async move { node.alone(sector, bytes, ticket, turn).await });
                read.await
            }
            Front::Store {
                queue,
                lines,
                answered,
            } => {
                let line = lines[request.origin.client.0 as usize];
                let buf = Buf::for_read(request.bytes.usize());
                let read = queue.read(sector, buf, DeviceClass::Session(line.0)).await;
                // As a store reckons: since it came or the one before was answered.
                let now = env::now();
                let service = now.since(answered.replace(now).max(arrived));
                in_line.begun = true;
                self.queue.borrow_mut().complete(now, ticket, service);
                read.map(|_| service)
            }
        };
        match read {
            Ok(service) => Ok(Reply {
                residence: env::now().since(arrived),
                service,
                state: Some(self.state()),
            }),
            Err(error) => {
                *self.broken.borrow_mut() = Some(error);
                Err(())
            }
        }
    }

    /// The disk's own time for a read that nothing is beside.
    async fn alone(
        &self,
        sector: Sector,
        bytes: Bytes,
        ticket: Ticket,
        turn: Permit,
    ) -> Result<Nanos, DeviceError> {
        let begun = env::now();
        let buf = Buf::for_read(bytes.usize());
        let read = self.device.read(sector, buf, DeviceClass::Foreground).await;
        env::sleep(self.delay(env::now().since(begun))).await;
        let service = env::now().since(begun);
        self.queue
            .borrow_mut()
            .complete(env::now(), ticket, service);
        drop(turn);
        read.map(|_| service)
    }

    /// What this disk takes beyond its model, where nothing is beside it.
    fn delay(&self, service: Nanos) -> Nanos {
        match self.kind {
            Disk::Hdd => Nanos(0),
            Disk::SlowHdd => service * 2,
            Disk::StallingSsd if self.chance.borrow_mut().chance(0.002) => Nanos::millis(300),
            Disk::StallingSsd => Nanos(0),
        }
    }
}

/// The constants of the published cost for a disk: its sheet's speed and mean positioning time.
fn weights(kind: Disk) -> Weights {
    let (seek, ps) = match kind {
        // 78 MB/s; 8.5 ms and half a turn. The published method does not learn that some are slow.
        Disk::Hdd | Disk::SlowHdd => (Nanos::micros(12_670), 12_800),
        Disk::StallingSsd => (Nanos::micros(60), 1_900),
    };
    Weights {
        local: policy::place::PerByte(ps),
        remote: policy::place::PerByte(ps + PASSING_PS),
        seek,
    }
}

// --- clients ------------------------------------------------------------------------------------------

/// Where an extent's two copies are: disk and sector.
type Copies = [(u32, Sector); 2];

struct Client {
    index: usize,
    load: Load,
    image: Vec<Copies>,
    chance: RefCell<env::Rng>,
    next: Cell<u64>,
    last_end: Cell<Option<u64>>,
    got: RefCell<Got>,
    outstanding: Cell<u64>,
}

struct Cluster {
    nodes: Vec<Rc<Manager>>,
    choices: Vec<Choice>,
    until: Instant,
}

/// Runs `scene` for `measured` behind a second of warming up. `every` is the age that states may reach: T.
pub(super) fn run(
    scene: &Scene,
    method: &Method,
    every: Nanos,
    measured: Nanos,
    seed: u64,
) -> Result<Outcome, BedError> {
    let (scene, method) = (scene.clone(), *method);
    env::Runtime::simulated(seed).block_on(async move {
        let until = env::now() + WARM + measured;
        let nodes: Result<Vec<Rc<Manager>>, SpecError> = (0..scene.disks.len())
            .map(|index| Ok(Rc::new(Manager::new(index, &scene, &method, seed)?)))
            .collect();
        let nodes = nodes?;
        let choices = (0..nodes.len()).map(|node| {
            Choice::new(build(
                method.kind,
                &Options {
                    weights: weights(scene.disks[0]),
                    seed: seed.wrapping_mul(100).wrapping_add(node as u64),
                    clients: scene.loads.len() as u32,
                    tanada: method.tanada,
                },
            ))
        });
        let cluster = Rc::new(Cluster {
            choices: choices.collect(),
            nodes,
            until,
        });
        if method.listens() {
            cluster.clone().multicast(every);
        }
        let clients = clients(&scene, seed);
        let tasks: Vec<_> = clients
            .iter()
            .flat_map(|client| cluster.begin(client))
            .collect();
        for task in tasks {
            task.await;
        }
        for node in &cluster.nodes {
            if let Some(error) = node.broken.take() {
                return Err(error.into());
            }
        }
        let figures = cluster.choices.iter().map(Choice::counters);
        let (reads, hedges) = figures.fold((0, 0), |(reads, hedges), it| {
            (reads + it.reads, hedges + it.hedges)
        });
        Ok(Outcome {
            clients: clients.iter().map(|it| it.got.borrow().clone()).collect(),
            seconds: measured.secs_f64(),
            hedged: hedges as f64 / reads.max(1) as f64,
        })
    })
}

/// The clients with their images laid out.
fn clients(scene: &Scene, seed: u64) -> Vec<Rc<Client>> {
    let mut layout = env::Rng::from_seed(seed ^ 0x1a_0475);
    let disks = scene.disks.len() as u64;
    let mut ends = vec![0; scene.disks.len()];
    let mut place = |disk: u64| {
        let sector = Sector(ends[disk as usize]);
        ends[disk as usize] += EXTENT.0 / base::SECTOR;
        (disk as u32, sector)
    };
    let mut image = || -> Vec<Copies> {
        let copies = |_| {
            let first = layout.below(disks);
            let second = (first + 1 + layout.below(disks - 1)) % disks;
            [place(first), place(second)]
        };
        (0..EXTENTS).map(copies).collect()
    };
    let client = |(index, load): (usize, &Load)| {
        let mut chance = env::Rng::from_seed(seed ^ (0xc11e_4700 + index as u64));
        Rc::new(Client {
            index,
            load: *load,
            image: image(),
            next: Cell::new(chance.below(EXTENTS) * EXTENT.0),
            chance: RefCell::new(chance),
            last_end: Cell::new(None),
            got: RefCell::new(Got {
                bytes: 0,
                waits: histogram(),
            }),
            outstanding: Cell::new(0),
        })
    };
    scene.loads.iter().enumerate().map(client).collect()
}

impl Cluster {
    /// Each disk's state to all nodes every `every`, the disks one after the other.
    fn multicast(self: Rc<Self>, every: Nanos) {
        for (index, node) in self.nodes.iter().cloned().enumerate() {
            let cluster = Rc::clone(&self);
            let phase = every * index as u64 / self.nodes.len() as u64;
            let telling = async move {
                env::sleep(phase).await;
                while env::now() < cluster.until {
                    let state = node.state();
                    let hearing = Rc::clone(&cluster);
                    let heard = async move {
                        env::sleep(HOP).await;
                        for choice in &hearing.choices {
                            choice.heard(DiskId(index as u32), &state);
                        }
                    };
                    drop(env::spawn(heard));
                    env::sleep(every).await;
                }
            };
            drop(env::spawn(telling));
        }
    }

    /// The tasks of a client.
    fn begin(self: &Rc<Self>, client: &Rc<Client>) -> Vec<env::Task<()>> {
        match client.load.pace {
            Pace::Closed(depth) => (0..depth)
                .map(|_| env::spawn(Rc::clone(self).closed(Rc::clone(client))))
                .collect(),
            Pace::Open(rate) => {
                vec![env::spawn(Rc::clone(self).open(Rc::clone(client), rate))]
            }
        }
    }

    async fn closed(self: Rc<Self>, client: Rc<Client>) {
        while env::now() < self.until {
            let at = client.next();
            self.ask(&client, at).await;
        }
    }

    async fn open(self: Rc<Self>, client: Rc<Client>, rate: f64) {
        while env::now() < self.until {
            let unit = client.chance.borrow_mut().unit();
            let gap = -(1.0 - unit).ln() / rate;
            env::sleep(Nanos((gap * 1e9) as u64)).await;
            if client.outstanding.get() < OUTSTANDING_MAX {
                let at = client.next();
                let (cluster, client) = (Rc::clone(&self), Rc::clone(&client));
                drop(env::spawn(async move { cluster.ask(&client, at).await }));
            }
        }
    }

    /// One read of `client`, noted if it began and ended while it was measured.
    async fn ask(&self, client: &Client, at: u64) {
        let load = &client.load;
        let extent = at / EXTENT.0;
        let within = at % EXTENT.0;
        let request = Request {
            origin: Origin {
                client: ClientId(client.index as u64),
                class: load.class,
            },
            op: Op::Read,
            bytes: load.bytes,
            sequential: client.last_end.replace(Some(at + load.bytes.0)) == Some(at),
            penalties: load.penalties,
        };
        let place = At {
            object: (client.index as u64) << 32 | extent,
            byte: within,
        };
        let copies = client.image[extent as usize];
        let candidates = copies.map(|(disk, _)| Candidate {
            disk: DiskId(disk),
            local: disk as usize == load.node,
            rotating: self.nodes[disk as usize].kind != Disk::StallingSsd,
            at: Some(place),
        });
        let choice = &self.choices[load.node];
        if choice.needs_exact_states() {
            for (disk, node) in (0..).zip(&self.nodes) {
                choice.heard(DiskId(disk), &node.exact_state());
            }
        }
        client.outstanding.set(client.outstanding.get() + 1);
        let asked = env::now();
        let ask = |disk: DiskId| {
            let found = copies.iter().find(|(it, _)| *it == disk.0);
            let (_, start) = found.expect("a disk with a copy was chosen");
            let sector = Sector(start.0 + within / base::SECTOR);
            let local = disk.0 as usize == load.node;
            let node = &self.nodes[disk.0 as usize];
            async move { node.read(&request, place, sector, local).await }
        };
        let read = choice.read(&request, &candidates, ask).await;
        client.outstanding.set(client.outstanding.get() - 1);
        let now = env::now();
        if read.is_ok() && now >= Instant(0) + WARM && now <= self.until {
            let mut got = client.got.borrow_mut();
            got.bytes += load.bytes.0;
            let micros = now.since(asked).0 / 1_000;
            got.waits.saturating_record(micros.max(1));
        }
    }
}

impl Client {
    /// Where it reads next.
    fn next(&self) -> u64 {
        let len = self.load.bytes.0;
        if self.load.sequential {
            let at = self.next.get();
            self.next.set((at + len) % (EXTENTS * EXTENT.0));
            return at;
        }
        let mut chance = self.chance.borrow_mut();
        let extent = chance.below(EXTENTS);
        extent * EXTENT.0 + chance.below(EXTENT.0 / len) * len
    }
}
