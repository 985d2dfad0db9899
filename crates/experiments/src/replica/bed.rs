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
//! Choice: the paper names neither network nor layout. A hop takes 50 us and bytes pass at 1.25 GB/s, messages cost
//! nothing but where the scene says what (messages); each client has an image of its own (the paper's share blocks), with extents of 4 MiB whose two copies are on disks drawn by chance, one behind the other on each disk. The layout and
//! what clients ask are the same for all methods with the same seed.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::common::loads::{EXTENT, Got, HOP, Load, Outcome, Pace, histogram};
use super::disks::{Manager, weights};
use base::{Bytes, Instant, Nanos, Sector};
use device::DeviceError;
use device::model::SpecError;
use policy::place::{
    At, Candidate, ClientId, DiskId, Kind, Op, Options, Origin, Request, State, TanadaOptions,
    build,
};
use vdisk::replica::choice::Choice;

/// Extents of an image: 4 GiB.
const EXTENTS: u64 = 1024;
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

/// What happens in a case.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Scene {
    pub disks: Vec<Disk>,
    pub loads: Vec<Load>,
    /// What each message takes of a node's processor; nothing: nor does it wait for a link.
    pub message: Nanos,
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

/// Ours as it is where disks serve in the order requests come. No daemon has these options.
pub(super) const OURS: &str = "tanada-first-come";

impl Method {
    pub fn of(kind: Kind) -> Method {
        Method {
            name: match kind {
                Kind::Tanada => OURS,
                other => other.name(),
            },
            kind,
            tanada: TanadaOptions::first_come(),
            stores: false,
        }
    }

    /// Ours as daemons have it, at disks without stores' queues.
    pub fn product() -> Method {
        Method {
            name: "tanada",
            tanada: TanadaOptions::default(),
            ..Method::of(Kind::Tanada)
        }
    }

    /// Ours with our stores' queues: what a whole node does.
    pub fn stack() -> Method {
        Method {
            name: "tanada-stack",
            tanada: TanadaOptions::default(),
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

/// What can go wrong in a run.
#[derive(Debug, thiserror::Error)]
pub(super) enum BedError {
    #[error(transparent)]
    Model(#[from] SpecError),
    #[error(transparent)]
    Device(#[from] DeviceError),
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
                    drop(env::spawn(Rc::clone(&cluster).announced(index, state)));
                    env::sleep(every).await;
                }
            };
            drop(env::spawn(telling));
        }
    }

    /// All nodes hear the state of the disk `index`, each as soon as it has taken the message in.
    async fn announced(self: Rc<Self>, index: usize, state: State) {
        let disk = DiskId(index as u32);
        let sender = &self.nodes[index].messages;
        if !sender.cost_something() {
            env::sleep(HOP).await;
            for choice in &self.choices {
                choice.heard(disk, &state);
            }
            return;
        }
        self.choices[index].heard(disk, &state);
        sender.transmit(Bytes(0)).await;
        for node in (0..self.nodes.len()).filter(|node| *node != index) {
            let cluster = Rc::clone(&self);
            let heard = async move {
                cluster.nodes[node].messages.receive().await;
                cluster.choices[node].heard(disk, &state);
            };
            drop(env::spawn(heard));
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
            let (asker, node) = (&self.nodes[load.node], &self.nodes[disk.0 as usize]);
            async move { node.read(&request, place, sector, asker).await }
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
