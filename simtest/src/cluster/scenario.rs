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
use env::net::sim;
use env::sync::Sender;
use vdisk::VolumeId;
use vdisk::volume::{Condition, Counters, Volume};

use super::clients::{PLACES, World, client};
use super::drains::{drain_some, goes_back, have_copies, one_is_lost, one_leaves};
use super::faults::{inject, kinds};
use super::images::{Branches, keep_some};
use super::look::alike;
use super::mutations::Mutation;
use super::split::split;
use super::{Cluster, HOSTS, SIZE, VOLUME, host};

/// Clients of each writer.
pub(super) const CLIENTS: u32 = 3;
/// The host of the end.
const LAST: usize = HOSTS - 1;
/// Parts per million by which clocks are off at most: a slow and a fast one together stay within a fifth, the lease's margin.
const DRIFT: u64 = 80_000;
/// What everything takes at most once faults are over.
const WELL_AGAIN: Nanos = Nanos::secs(60);
/// No run takes longer: writers come and go seven times at most, each within some seconds.
const LONGEST: Nanos = Nanos::secs(600);
/// Nor has more events: what is tried without end in no time has.
const EVENTS_MAX: u64 = 20_000_000;

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
    /// How many there were; of several runs the most of one.
    pub events: u64,
    /// Requests that were answered.
    pub answered: u64,
    /// What the volumes did.
    pub counters: Counters,
}

impl Ran {
    /// Adds what another run did.
    pub fn add(&mut self, other: &Ran) {
        self.answered += other.answered;
        self.events = self.events.max(other.events);
        self.volume(&other.counters);
    }

    fn volume(&mut self, other: &Counters) {
        let all = &mut self.counters;
        all.read_repairs += other.read_repairs;
        all.isr_shrinks += other.isr_shrinks;
        all.isr_expands += other.isr_expands;
        all.resynced += other.resynced;
        all.reconciled += other.reconciled;
        all.allocated += other.allocated;
        all.merged += other.merged;
        all.commits += other.commits;
        all.relocated += other.relocated;
    }
}

/// Runs a seed.
///
/// # Errors
/// What was promised and does not hold.
pub fn run(seed: u64, mutation: Option<Mutation>) -> Result<Ran, String> {
    let runtime = env::Runtime::simulated(seed % HARDER);
    let ran = runtime.block_on(async move {
        let (ended, mut first) = env::sync::channel();
        let phase = ScenarioPhase::default();
        env::spawn(watch(phase.clone(), ended.clone()));
        env::spawn(async move {
            let outcome = match mutation {
                Some(Mutation::ClocksDrift) => split(seed, 400_000, mutation, &phase).await,
                Some(Mutation::NoSeal | Mutation::NoWait) => {
                    split(seed, DRIFT as i32, mutation, &phase).await
                }
                _ if seed % 8 == 1 => split(seed, DRIFT as i32, mutation, &phase).await,
                _ => scenario(seed, mutation, &phase).await,
            };
            let _ = ended.send(outcome);
        });
        let outcome = first.receive().await;
        let outcome = outcome.unwrap_or_else(|_| Err("no report of how it ended".to_owned()));
        outcome.map(|ran| (ran, env::events()))
    });
    let (ran, events) = ran?;
    Ok(Ran {
        hash: runtime.trace_hash(),
        events,
        ..ran
    })
}

/// How far a run is.
#[derive(Clone)]
pub(super) struct ScenarioPhase(Rc<Cell<&'static str>>);

impl Default for ScenarioPhase {
    fn default() -> ScenarioPhase {
        ScenarioPhase(Rc::new(Cell::new("writers come and go")))
    }
}

impl ScenarioPhase {
    fn is(&self, what: &'static str) {
        self.0.set(what);
    }
}

/// Ends a run that goes on and on, and says where it was.
async fn watch(phase: ScenarioPhase, ended: Sender<Result<Ran, String>>) {
    let start = env::true_now();
    loop {
        env::sleep(Nanos::millis(10)).await;
        let (took, events) = (env::true_now().since(start), env::events());
        if took > LONGEST || events > EVENTS_MAX {
            let why = format!("no end after {took} and {events} events: {}", phase.0.get());
            let _ = ended.send(Err(why));
            return;
        }
    }
}

/// One writer's clients, on its host.
pub(super) async fn work(
    volume: &Rc<Volume>,
    world: &Rc<World>,
    number: usize,
    count: u32,
    writes: bool,
) {
    for nth in 0..count {
        let who = number as u32 * 100 + nth;
        let rng = env::rng("client");
        let work = client(Rc::clone(volume), Rc::clone(world), who, writes, rng);
        sim::on_host(host(number), async { drop(env::spawn(work)) }).await;
    }
}

/// Faults until they are stopped.
struct Injector {
    over: Rc<Cell<bool>>,
    task: env::Task<()>,
}

impl Injector {
    fn start(cluster: &Rc<Cluster>, seed: u64, rng: &mut Rng) -> Injector {
        let over = Rc::new(Cell::new(false));
        let kinds = kinds(seed, rng);
        let (cluster, rng) = (Rc::clone(cluster), env::rng("faults"));
        let faults = inject(cluster, kinds, Rc::clone(&over), harder(seed), rng);
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

/// What one run is about.
struct Scenario<'a> {
    seed: u64,
    mutation: Option<Mutation>,
    phase: &'a ScenarioPhase,
    copies: u8,
    branches: Option<Rc<Branches>>,
    world: Rc<World>,
    cluster: Rc<Cluster>,
}

async fn scenario(
    seed: u64,
    mutation: Option<Mutation>,
    phase: &ScenarioPhase,
) -> Result<Ran, String> {
    let mut rng = Rng::from_seed((seed % HARDER) ^ 0x5eed);
    let mut stores = 3 + rng.below(2) as u16;
    if with_drains(seed, mutation) {
        // One can be spared.
        stores = 4;
    }
    let copies = 2 + rng.below(2) as u8;
    // With three copies a write may have to reach two of them.
    let min_isr = 1 + u8::from(harder(seed) && copies == 3 && rng.chance(0.5));
    let cluster = Cluster::new(stores, copies, min_isr, mutation).await;
    drift(&cluster, &mut rng, DRIFT);
    let this = Scenario {
        seed,
        mutation,
        phase,
        copies,
        branches: with_images(seed, mutation).then(|| Rc::new(Branches::default())),
        world: Rc::new(World::default()),
        cluster,
    };
    let mut injector = Injector::start(&this.cluster, seed, &mut rng);
    let drains_over = Rc::new(Cell::new(false));
    let drains = with_drains(seed, mutation).then(|| {
        let (cluster, over) = (Rc::clone(&this.cluster), Rc::clone(&drains_over));
        env::spawn(drain_some(cluster, copies, over, env::rng("drains")))
    });
    let mut number = 0;
    let mut ran = Ran::default();
    for _ in 0..2 + rng.below(if harder(seed) { 5 } else { 3 }) {
        let volume;
        (volume, injector) = this.open(number, injector, &mut rng).await?;
        this.writer(number, volume, &mut ran, &mut rng).await?;
        number = (number + rng.below(2) as usize) % LAST;
    }
    injector.stop().await;
    drains_over.set(true);
    this.cluster.heal().await;
    if let Some(drains) = drains {
        drains.await;
        this.empty_a_store().await?;
    }
    this.look_at_images(&mut rng).await?;
    let ran = well_again(&this.cluster, &this.world, copies, ran, phase).await?;
    if with_drains(seed, mutation) && with_images(seed, mutation) {
        phase.is("all is well, and the volume goes back to a snapshot that left a store");
        let mut rng = env::rng("goes back");
        let back = goes_back(&this.cluster, copies, LAST, mutation, &mut rng);
        let back = sim::on_host(host(LAST), back).await;
        back.map_err(|why| format!("all was well, and yet: {why}"))?;
        alike(&this.cluster, copies).await?;
    }
    Ok(ran)
}

impl Scenario<'_> {
    /// The volume for one writer. Where it does not open, faults stop until it does.
    async fn open(
        &self,
        number: usize,
        mut injector: Injector,
        rng: &mut Rng,
    ) -> Result<(Rc<Volume>, Injector), String> {
        let cluster = &self.cluster;
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
            opened = patiently(cluster, VOLUME, number).await;
            injector = Injector::start(cluster, self.seed, rng);
        }
        let volume = opened.map_err(|why| format!("nothing is wrong, and yet: {why}"))?;
        Ok((volume, injector))
    }

    /// One writer comes, works and goes, in one way or another.
    async fn writer(
        &self,
        number: usize,
        volume: Rc<Volume>,
        ran: &mut Ran,
        rng: &mut Rng,
    ) -> Result<(), String> {
        work(&volume, &self.world, number, CLIENTS, true).await;
        let mut all = vec![Rc::clone(&volume)];
        if let Some(branches) = &self.branches {
            let of = (&volume, &self.world);
            keep_some(branches, of, number, rng, self.mutation).await;
            all.extend(work_on_clones(&self.cluster, branches, number).await);
        }
        env::sleep(Nanos::millis(50 + rng.below(900))).await;
        ran.volume(&volume.counters());
        match rng.below(6) {
            // Taken over while it runs: it learns that without a request.
            0..3 => {}
            3 => {
                for volume in all {
                    drop(volume.close().await);
                }
            }
            _ => {
                drop((volume, all));
                self.cluster.crash_host(number);
            }
        }
        if let Some(branches) = self.branches.as_ref().filter(|_| rng.chance(0.5)) {
            branches.branch(&self.cluster, rng.below(8)).await?;
        }
        Ok(())
    }

    /// A store is emptied, and leaves.
    async fn empty_a_store(&self) -> Result<(), String> {
        self.phase
            .is("faults are over, and a store is to be emptied");
        self.world.over.set(true);
        let mut rng = env::rng("leaves");
        let branches = self.branches.as_deref();
        let leaves = one_leaves(&self.cluster, branches, self.copies, LAST, &mut rng);
        sim::on_host(host(LAST), leaves).await.map_err(yet)
    }

    /// Snapshots and clones are whole.
    async fn look_at_images(&self, rng: &mut Rng) -> Result<(), String> {
        let Some(branches) = self.branches.as_deref() else {
            return Ok(());
        };
        let cluster = &self.cluster;
        self.world.over.set(true);
        let loses = with_drains(self.seed, self.mutation) && rng.chance(0.5);
        let full = are_full(cluster, branches, self.copies, loses, self.phase);
        sim::on_host(host(LAST), full).await.map_err(yet)?;
        self.phase
            .is("faults are over, and snapshots and clones are looked at");
        self.world.over.set(true);
        sim::on_host(host(LAST), clones_are_well(cluster, branches)).await?;
        let looked = branches.end(cluster, &self.world, LAST);
        sim::on_host(host(LAST), looked).await.map_err(yet)
    }
}

fn yet(why: impl std::fmt::Display) -> String {
    format!("faults are over, and yet: {why}")
}

/// Snapshots have all copies, also when a store was lost for good.
async fn are_full(
    cluster: &Rc<Cluster>,
    branches: &Branches,
    copies: u8,
    loses: bool,
    phase: &ScenarioPhase,
) -> Result<(), String> {
    phase.is("faults are over, and all copies of snapshots are to be there");
    have_copies(cluster, branches, copies, LAST).await?;
    let mut rng = env::rng("loses");
    if loses && one_is_lost(cluster, branches, copies, LAST, &mut rng).await? {
        phase.is("a store is lost, and all copies of snapshots are to be there again");
        have_copies(cluster, branches, copies, LAST).await?;
    }
    Ok(())
}

/// Is this run about stores that are drained, too?
fn with_drains(seed: u64, mutation: Option<Mutation>) -> bool {
    mutation.is_some_and(Mutation::is_of_drains) || seed % 8 == 7 || seed % 16 == 2
}

/// Is this run about snapshots, clones and sizes too?
fn with_images(seed: u64, mutation: Option<Mutation>) -> bool {
    let needs = |it: Mutation| it == Mutation::TornSnapshot || it.is_of_drains();
    mutation.is_some_and(needs) || seed % 8 >= 6
}

/// Opens the clones on a host beside their parent, if they can be, and has clients work on them.
async fn work_on_clones(cluster: &Cluster, branches: &Branches, number: usize) -> Vec<Rc<Volume>> {
    let mut open = Vec::new();
    for clone in branches.clones() {
        if let Ok(volume) = cluster.open_one(clone.id, number).await {
            work(&volume, &clone.world, number, CLIENTS, true).await;
            open.push(volume);
        }
    }
    open
}

/// Faults are over: clones open, and each block can be read and written.
async fn clones_are_well(cluster: &Cluster, branches: &Branches) -> Result<(), String> {
    let failed = |why: &dyn std::fmt::Display| format!("faults are over, and yet a clone: {why}");
    for clone in branches.clones() {
        let volume = patiently(cluster, clone.id, LAST).await;
        let volume = volume.map_err(|why| failed(&why))?;
        clone.world.over.set(true);
        volume.resize(SIZE).await.map_err(|why| failed(&why))?;
        look_and_write(&clone.world, &volume).await?;
        volume.close().await.map_err(|why| failed(&why))?;
    }
    Ok(())
}

/// Each block twice, and once more with something new in it.
async fn look_and_write(world: &World, volume: &Volume) -> Result<(), String> {
    let who = LAST as u32 * 100;
    for block in PLACES {
        for _ in 0..2 {
            world.read(volume, who, block, 1).await.map_err(yet)?;
        }
        world.write(volume, who, block, 1).await.map_err(yet)?;
        world.read(volume, who, block, 1).await.map_err(yet)?;
    }
    Ok(())
}

/// Opens when nothing is wrong any more; connections that were cut may take a moment to be given up.
pub(super) async fn patiently(
    cluster: &Cluster,
    id: VolumeId,
    number: usize,
) -> Result<Rc<Volume>, vdisk::volume::VolumeError> {
    let mut opened = cluster.open_one(id, number).await;
    for _ in 0..10 {
        if opened.is_ok() {
            break;
        }
        env::sleep(Nanos::millis(300)).await;
        opened = cluster.open_one(id, number).await;
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
pub(super) async fn well_again(
    cluster: &Rc<Cluster>,
    world: &Rc<World>,
    copies: u8,
    mut ran: Ran,
    phase: &ScenarioPhase,
) -> Result<Ran, String> {
    phase.is("faults are over, and the volume is to open");
    cluster.are_up()?;
    let volume = patiently(cluster, VOLUME, LAST).await.map_err(yet)?;
    world.over.set(true);
    phase.is("faults are over, and blocks are to be read and written");
    // By the clock of its host.
    let used = async {
        volume.resize(SIZE).await.map_err(yet)?;
        look_and_write(world, &volume).await
    };
    sim::on_host(host(LAST), used).await?;
    phase.is("faults are over, and all copies are to be there again");
    let healthy = async {
        let start = env::now();
        while volume.health().condition != Condition::Healthy {
            if env::now().since(start) > WELL_AGAIN {
                return Err(format!("faults are over, and yet: {:?}", volume.health()));
            }
            env::sleep(Nanos::millis(50)).await;
        }
        Ok(())
    };
    sim::on_host(host(LAST), healthy).await?;
    // A copy too many goes as well.
    env::sleep(Nanos::secs(1)).await;
    world.history.judge()?;
    phase.is("faults are over, and the volume is to close");
    let closed = sim::on_host(host(LAST), volume.close()).await;
    closed.map_err(|why| why.to_string())?;
    alike(cluster, copies).await?;
    ran.volume(&volume.counters());
    ran.answered = world.history.answered();
    match ran.answered {
        0 => Err("no client was ever answered".to_owned()),
        _ => Ok(ran),
    }
}
