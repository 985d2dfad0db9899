//! One run on the product's own path, in virtual time.
//!
//! ```text
//! client -> volume (vdisk) -> its node's policy -> own store | simulated link -> server -> session -> tags -> modelled disk
//!                                  ^---- states beside answers, load reports every T ----'
//! ```
//!
//! Images are written first, through the volumes; copies go where chance puts them, the same for all methods with one seed.
//!
//! Choice: an image has 128 MiB (in a short run 16), so that writing it is no large part of a run; a link takes 50 us and passes 1.25 GB/s each way.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::{Bytes, Instant, Nanos, Sector, View};
use device::DeviceExt;
use env::net::sim;
use policy::place::Class;
use vdisk::cluster::slots::InUse;
use vdisk::cluster::volumes::NewVolume;
use vdisk::meta::MemoryMetaStore;
use vdisk::record::{OnMetaLoss, PriorityClass};

use super::super::common::loads::{EXTENT, Got, HOP, Load, Outcome, Pace, histogram};
use super::chooser::{Sents, Stores};
use super::node::{Broken, Common, Node, broken};
use super::scenes::{ProductMethod, ProductScene};

/// Nodes of every scene.
const NODES: usize = 4;
/// Bytes a second of a link, each way.
const LINK: u64 = 1_250_000_000;
/// What was written is clean, and maps are committed.
const SETTLE: Nanos = Nanos::secs(12);
/// Nothing is measured before.
const WARM: Nanos = Nanos::secs(1);
/// An open loop does not pile up more.
const OUTSTANDING_MAX: u64 = 1_000;

/// A client: one virtual machine with a virtual disk of its own.
struct Client {
    load: Load,
    disk: InUse,
    /// Of its image, in bytes.
    size: u64,
    chance: RefCell<env::Rng>,
    next: Cell<u64>,
    got: RefCell<Got>,
    outstanding: Cell<u64>,
    from: Instant,
    until: Instant,
    broken: RefCell<Option<Broken>>,
}

/// Runs `scene` for `measured` on images of so many extents; states that are not beside answers are `every` apart.
pub(super) fn run(
    scene: &ProductScene,
    method: &ProductMethod,
    every: Nanos,
    (measured, extents): (Nanos, u64),
    seed: u64,
) -> Result<Outcome, Broken> {
    let (scene, method) = (scene.clone(), *method);
    env::Runtime::simulated(seed).block_on(async move {
        sim::set_default_link(sim::Link {
            delay: sim::Delay::Fixed(HOP),
            bandwidth: Some(LINK),
            ..sim::Link::LAN
        });
        let common = Common {
            rotating: scene.rotating,
            stalls: scene.stalls,
            method,
            clients: scene.loads.len() as u32,
            nodes: NODES,
            seed,
            stores: Stores::default(),
            sents: Sents::default(),
        };
        let meta = MemoryMetaStore::new("meta");
        let mut nodes = Vec::new();
        for index in 0..NODES {
            nodes.push(Node::open(index, &common, meta.client()).await?);
        }
        for (index, node) in nodes.iter().enumerate() {
            node.report(index, &common, every).await;
        }
        let mut disks = Vec::new();
        for (index, load) in scene.loads.iter().enumerate() {
            let node = &nodes[load.node];
            disks.push(sim::on_host(node.ip, image((index, load), node, extents)).await?);
        }
        env::sleep(SETTLE).await;
        nodes.iter().for_each(|node| node.disk.begin());
        common.sents.take();
        let from = env::now() + WARM;
        let span = (from, from + measured);
        let made = disks.into_iter().zip(&scene.loads).enumerate();
        let clients: Vec<Rc<Client>> = made
            .map(|(index, (disk, load))| Client::new((index, load), disk, span, (seed, extents)))
            .collect();
        ask_all(&clients, &nodes).await?;
        let outcome = outcome(&clients, measured, common.sents.get());
        drop(clients);
        close(nodes, &common).await;
        Ok(outcome)
    })
}

/// A virtual disk that is written whole.
async fn image((index, load): (usize, &Load), node: &Node, extents: u64) -> Result<InUse, Broken> {
    let name = format!("vm{index}").parse();
    let name = name.map_err(|_| "no name".to_owned())?;
    let other = load.penalties.other;
    let fairness = other.as_f64() != 1.0;
    let fairness = fairness.then(|| other.as_f64().to_string().parse());
    let new = NewVolume {
        name,
        size: extents * EXTENT.0,
        copies: Some(2),
        min_isr: Some(1),
        priority: match load.class {
            Class::Low => PriorityClass::Low,
            Class::Normal => PriorityClass::Normal,
            Class::High => PriorityClass::High,
        },
        fairness: fairness.transpose().map_err(|_| "no fairness".to_owned())?,
        holder: None,
        on_meta_loss: OnMetaLoss::Wait,
    };
    let made = node.cluster.volumes.create(&new).await;
    made.map_err(|it| broken("making a volume")(&it))?;
    let opened = node.cluster.openings.open(&new.name).await;
    let disk = opened.map_err(|it| broken("opening a volume")(&it))?;
    let zeroes = View::copy_of(&vec![0; EXTENT.usize()]);
    for extent in 0..extents {
        let at = Sector(extent * EXTENT.0 / base::SECTOR);
        let written = disk.volume().write_at(at, zeroes.clone()).await;
        written.map_err(|it| broken("writing an image")(&it))?;
    }
    Ok(disk)
}

/// All clients ask until the end.
async fn ask_all(clients: &[Rc<Client>], nodes: &[Node]) -> Result<(), Broken> {
    let mut tasks = Vec::new();
    for client in clients {
        let ip = nodes[client.load.node].ip;
        match client.load.pace {
            Pace::Closed(depth) => {
                for _ in 0..depth {
                    let asking = Rc::clone(client).closed();
                    tasks.push(env::spawn(sim::on_host(ip, asking)));
                }
            }
            Pace::Open(rate) => {
                let asking = Rc::clone(client).open(rate);
                tasks.push(env::spawn(sim::on_host(ip, asking)));
            }
        }
    }
    for task in tasks {
        task.await;
    }
    // What an open loop asked last is answered by then.
    env::sleep(Nanos::secs(2)).await;
    match clients.iter().find_map(|it| it.broken.take()) {
        Some(why) => Err(why),
        None => Ok(()),
    }
}

fn outcome(clients: &[Rc<Client>], measured: Nanos, (reads, second): (u64, u64)) -> Outcome {
    Outcome {
        clients: clients.iter().map(|it| it.got.borrow().clone()).collect(),
        seconds: measured.secs_f64(),
        hedged: second as f64 / (reads - second).max(1) as f64,
    }
}

/// Nothing of a run is left behind.
async fn close(nodes: Vec<Node>, common: &Common) {
    common.stores.borrow_mut().clear();
    for node in &nodes {
        // What does not close well any more was measured before.
        let _ = sim::on_host(node.ip, node.cluster.stop()).await;
    }
    for node in &nodes {
        let _ = sim::on_host(node.ip, node.manager.close()).await;
    }
}

impl Client {
    fn new(
        (index, load): (usize, &Load),
        disk: InUse,
        (from, until): (Instant, Instant),
        (seed, extents): (u64, u64),
    ) -> Rc<Client> {
        let mut chance = env::Rng::from_seed(seed ^ (0xc11e_4700 + index as u64));
        Rc::new(Client {
            load: *load,
            disk,
            next: Cell::new(chance.below(extents) * EXTENT.0),
            size: extents * EXTENT.0,
            chance: RefCell::new(chance),
            got: RefCell::new(Got {
                bytes: 0,
                waits: histogram(),
            }),
            outstanding: Cell::new(0),
            from,
            until,
            broken: RefCell::default(),
        })
    }

    async fn closed(self: Rc<Self>) {
        while env::now() < self.until {
            let at = self.next();
            self.ask(at).await;
        }
    }

    async fn open(self: Rc<Self>, rate: f64) {
        while env::now() < self.until {
            let unit = self.chance.borrow_mut().unit();
            let gap = -(1.0 - unit).ln() / rate;
            env::sleep(Nanos((gap * 1e9) as u64)).await;
            if self.outstanding.get() < OUTSTANDING_MAX {
                let at = self.next();
                let client = Rc::clone(&self);
                drop(env::spawn(async move { client.ask(at).await }));
            }
        }
    }

    /// One read, noted if it began and ended while it was measured.
    async fn ask(&self, at: u64) {
        self.outstanding.set(self.outstanding.get() + 1);
        let asked = env::now();
        let sector = Sector(at / base::SECTOR);
        let read = self.disk.volume().read_at(sector, self.load.bytes).await;
        self.outstanding.set(self.outstanding.get() - 1);
        let now = env::now();
        if let Err(error) = read {
            let why = broken("a read")(&error);
            self.broken.borrow_mut().get_or_insert(why);
        } else if now >= self.from && now <= self.until {
            let mut got = self.got.borrow_mut();
            got.bytes += self.load.bytes.0;
            let micros = now.since(asked).0 / 1_000;
            got.waits.saturating_record(micros.max(1));
        }
    }

    /// Where it reads next.
    fn next(&self) -> u64 {
        let len = self.load.bytes.0;
        if self.load.sequential {
            let at = self.next.get();
            self.next.set((at + len) % self.size);
            return at;
        }
        let count: Bytes = Bytes(self.size / len);
        self.chance.borrow_mut().below(count.0) * len
    }
}
