//! A whole run: writers come and go, everything fails, and in the end everything must be well again.
//!
//! ```text
//! a round: open on some host -> clients at work, faults -> the host crashes | is taken over while it runs | closes
//! the end: faults stop -> opens, heals, answers within bounds -> every block read and written -> copies compared -> history judged
//! ```

use std::cell::Cell;
use std::rc::Rc;

use base::Nanos;
use env::Rng;
use env::net::sim::{self, Delay, Link};
use vdisk::volume::{Condition, Figures, Volume};

use super::clients::{PLACES, World, client};
use super::faults::{inject, kinds};
use super::look::alike;
use super::planted::Bug;
use super::{Cluster, HOSTS, host};

/// Clients of each writer.
const CLIENTS: u32 = 3;
/// The host of the end.
const LAST: usize = HOSTS - 1;
/// Parts per million by which clocks are off at most: a slow and a fast one together stay within a fifth, the lease's margin.
const DRIFT: u64 = 80_000;
/// What everything takes at most once faults are over.
const WELL_AGAIN: Nanos = Nanos::secs(60);

/// Seeds from here on are those from 0 on, with more faults and writers, and writes that must reach two copies.
pub const HARDER: u64 = 1 << 20;

fn harder(seed: u64) -> bool {
    seed >= HARDER
}

/// What is left of a run: the same seed gives the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ran {
    /// Of all events.
    pub hash: u64,
    /// Requests that were answered.
    pub answered: u64,
    /// What the volumes did.
    pub figures: Figures,
}

impl Ran {
    /// Adds what another run did.
    pub fn add(&mut self, other: &Ran) {
        self.answered += other.answered;
        self.volume(&other.figures);
    }

    fn volume(&mut self, other: &Figures) {
        let all = &mut self.figures;
        all.mended += other.mended;
        all.put_out += other.put_out;
        all.taken_in += other.taken_in;
        all.resynced += other.resynced;
        all.reconciled += other.reconciled;
        all.allocated += other.allocated;
        all.commits += other.commits;
    }
}

/// Runs a seed.
///
/// # Errors
/// What was promised and does not hold.
pub fn run(seed: u64, bug: Option<Bug>) -> Result<Ran, String> {
    let runtime = env::Runtime::simulated(seed % HARDER);
    let ran = runtime.block_on(async move {
        let story = async {
            match bug {
                Some(Bug::ClocksDrift) => split(seed, 400_000, bug).await,
                Some(Bug::NoSeal) => split(seed, DRIFT as i32, bug).await,
                _ if seed % 8 == 1 => split(seed, DRIFT as i32, bug).await,
                _ => story(seed, bug).await,
            }
        };
        let ended = env::timeout(Nanos::secs(3600), story).await;
        ended.unwrap_or_else(|_| Err("it never ends".to_owned()))
    })?;
    Ok(Ran {
        hash: runtime.trace_hash(),
        ..ran
    })
}

/// One writer's clients, on its host.
async fn work(volume: &Rc<Volume>, world: &Rc<World>, number: usize, count: u32, writes: bool) {
    for nth in 0..count {
        let who = number as u32 * 100 + nth;
        let work = client(
            Rc::clone(volume),
            Rc::clone(world),
            who,
            writes,
            env::rng("client"),
        );
        sim::on_host(host(number), async { drop(env::spawn(work)) }).await;
    }
}

/// Faults until they are told to stop.
struct Injector {
    over: Rc<Cell<bool>>,
    task: env::Task<()>,
}

impl Injector {
    fn start(cluster: &Rc<Cluster>, seed: u64, rng: &mut Rng) -> Injector {
        let over = Rc::new(Cell::new(false));
        let kinds = kinds(seed, rng);
        let faults = inject(
            Rc::clone(cluster),
            kinds,
            Rc::clone(&over),
            harder(seed),
            env::rng("faults"),
        );
        Injector {
            over,
            task: env::spawn(faults),
        }
    }

    async fn stop(self) {
        self.over.set(true);
        self.task.await;
    }
}

async fn story(seed: u64, bug: Option<Bug>) -> Result<Ran, String> {
    let mut rng = Rng::from_seed((seed % HARDER) ^ 0x5eed);
    let stores = 3 + rng.below(2) as u16;
    let copies = 2 + rng.below(2) as u8;
    // With three copies a write may have to reach two of them.
    let min_isr = 1 + u8::from(harder(seed) && copies == 3 && rng.chance(0.5));
    let cluster = Cluster::new(stores, copies, min_isr, bug).await;
    drift(&cluster, &mut rng, DRIFT);
    let world = Rc::new(World::default());
    let mut injector = Injector::start(&cluster, seed, &mut rng);
    let mut number = 0;
    let mut ran = Ran::default();
    for _ in 0..2 + rng.below(if harder(seed) { 5 } else { 3 }) {
        let mut opened = cluster.open(number).await;
        for _ in 0..2 {
            if opened.is_err() {
                env::sleep(Nanos::millis(rng.below(400))).await;
                opened = cluster.open(number).await;
            }
        }
        if opened.is_err() {
            injector.stop().await;
            cluster.heal().await;
            opened = patiently(&cluster, number).await;
            injector = Injector::start(&cluster, seed, &mut rng);
        }
        let volume = opened.map_err(|why| format!("nothing is wrong, and yet: {why}"))?;
        work(&volume, &world, number, CLIENTS, true).await;
        env::sleep(Nanos::millis(50 + rng.below(900))).await;
        ran.volume(&volume.figures());
        match rng.below(6) {
            // Taken over while it runs: it learns that by itself.
            0..3 => {}
            3 => drop(volume.close().await),
            _ => {
                drop(volume);
                cluster.crash_host(number);
            }
        }
        number = (number + rng.below(2) as usize) % LAST;
    }
    injector.stop().await;
    cluster.heal().await;
    well_again(&cluster, &world, copies, ran).await
}

/// Opens when nothing is wrong any more; connections that were cut may take a moment to be given up.
async fn patiently(
    cluster: &Cluster,
    number: usize,
) -> Result<Rc<Volume>, vdisk::volume::VolumeError> {
    let mut opened = cluster.open(number).await;
    for _ in 0..10 {
        if opened.is_ok() {
            break;
        }
        env::sleep(Nanos::millis(300)).await;
        opened = cluster.open(number).await;
    }
    opened
}

fn drift(cluster: &Cluster, rng: &mut Rng, most: u64) {
    let hosts = (0..HOSTS).map(host);
    for ip in hosts.chain(cluster.nodes.iter().map(|node| node.ip)) {
        sim::set_drift(ip, rng.below(2 * most + 1) as i32 - most as i32);
    }
}

/// Faults are over: everything must be healthy and right, in time.
async fn well_again(
    cluster: &Rc<Cluster>,
    world: &Rc<World>,
    copies: u8,
    mut ran: Ran,
) -> Result<Ran, String> {
    cluster.are_up()?;
    let volume = patiently(cluster, LAST).await;
    let volume = volume.map_err(|why| format!("faults are over, and yet: {why}"))?;
    world.over.set(true);
    let who = LAST as u32 * 100;
    let failed = |why| format!("faults are over, and yet: {why}");
    for block in PLACES {
        for _ in 0..2 {
            world.read(&volume, who, block, 1).await.map_err(failed)?;
        }
        world.write(&volume, who, block, 1).await.map_err(failed)?;
        world.read(&volume, who, block, 1).await.map_err(failed)?;
    }
    let start = env::now();
    while volume.health().condition != Condition::Healthy {
        if env::now().since(start) > WELL_AGAIN {
            return Err(format!("faults are over, and yet: {:?}", volume.health()));
        }
        env::sleep(Nanos::millis(50)).await;
    }
    // A copy too many goes as well.
    env::sleep(Nanos::secs(1)).await;
    world.history.judge()?;
    let closed = sim::on_host(host(LAST), volume.close()).await;
    closed.map_err(|why| why.to_string())?;
    alike(cluster, copies).await?;
    ran.volume(&volume.figures());
    ran.answered = world.history.answered();
    match ran.answered {
        0 => Err("nobody was ever answered".to_owned()),
        _ => Ok(ran),
    }
}

/// A writer loses the meta store, and goes on while somebody else takes over. Either he loses all stores but one as well and reads
/// there while his lease lasts, or he sends writes of which he can answer none. His clock is slow and his successor's is fast.
async fn split(seed: u64, drift: i32, bug: Option<Bug>) -> Result<Ran, String> {
    let mut rng = Rng::from_seed((seed % HARDER) ^ 0x5eed);
    let cluster = Cluster::new(3, 2, 1, bug).await;
    sim::set_drift(host(0), -drift);
    sim::set_drift(host(1), drift);
    let world = Rc::new(World::default());
    let failed = |why: vdisk::volume::VolumeError| format!("nothing is wrong, and yet: {why}");
    let old = cluster.open(0).await.map_err(failed)?;
    for block in PLACES {
        let wrote = world.write(&old, 1, block, 1).await;
        wrote.map_err(|why| format!("nothing is wrong, and yet: {why}"))?;
    }
    // What he cannot write would keep him from reading it.
    let alone = rng.chance(0.6);
    let count = if alone { CLIENTS } else { 4 * CLIENTS };
    work(&old, &world, 0, count, !alone).await;
    env::sleep(Nanos::millis(rng.below(2_500))).await;
    let picked = rng.below(3) as usize;
    for (at, node) in cluster.nodes.iter().enumerate() {
        if alone {
            let other = if at == picked { 1 } else { 0 };
            sim::partition(&[host(other)], &[node.ip]);
        } else if at == picked {
            // His writes come there after those of his successor.
            let delay = Delay::Uniform(Nanos::millis(20), Nanos::millis(250));
            sim::set_link(host(0), node.ip, Link { delay, ..Link::LAN });
        }
    }
    let cut = vdisk::meta::Faults {
        cut: true,
        patience: Nanos::millis(100),
        ..Default::default()
    };
    cluster.meta_faults(0, cut);
    env::sleep(Nanos::millis(rng.below(300))).await;
    let new = cluster.open(1).await.map_err(failed)?;
    work(&new, &world, 1, CLIENTS, true).await;
    env::sleep(Nanos::secs(if alone { 3 } else { 8 })).await;
    drop((old, new));
    cluster.crash_host(0);
    cluster.crash_host(1);
    cluster.heal().await;
    well_again(&cluster, &world, 2, Ran::default()).await
}
