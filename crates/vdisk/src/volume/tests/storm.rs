//! Everything at once: clients, stores that crash, stall, lose answers or are cut off, a meta store that fails, and writers
//! that crash or are taken over, at any instant.
//!
//! ```text
//! a round: open on a new node -> clients at work, faults -> the writer crashes, or is taken over while it runs, or closes
//! the end: all faults stop -> opens, heals, answers -> every block twice -> every copy of every extent beside the others
//! ```
//!
//! Each block of 4 KiB is a register with one client: it holds the last write that was answered, or one behind it that was
//! not; and what was read once stays. `TANADA_SEEDS=N` runs more seeds, from `TANADA_FROM` on, and `TANADA_SEED=S` replays one.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::{Buf, Bytes, Nanos, Sector, Span, View};
use device::{Class, Device, DeviceExt, WriteFlags};
use env::Rng;
use env::net::sim;

use super::cluster::{Cluster, host};
use super::direct::alike;
use crate::meta::{Faults, TwinClient};
use crate::volume::{Bug, Condition, Volume};

const BLOCK: u64 = 4096;
const CLIENTS: u64 = 3;
/// Where blocks lie: at both ends of three extents and in the middle.
const PLACES: [u64; 6] = [0, 700, 1020, 1024, 1500, 2047];

/// One block, as its client knows it.
#[derive(Default)]
struct Register {
    known: u64,
    /// Written and not answered.
    maybe: Vec<u64>,
    /// The greatest tag that anybody read or was answered: nobody sees a lesser one from then on.
    newest: u64,
}

#[derive(Default)]
struct World {
    blocks: RefCell<Vec<Register>>,
    tags: Cell<u64>,
    /// The node that has the volume.
    owner: Cell<u64>,
    broken: RefCell<Option<String>>,
    answered: Cell<u64>,
    /// The block that somebody began to write last.
    hot: Cell<(usize, Sector)>,
}

/// Zeroes are written here alone: elsewhere each tag is greater than the ones before.
const ZEROED: usize = 5;

/// A client's block: three in a row at each place, one for each client.
fn at(client: u64, place: usize) -> (usize, Sector) {
    let block = PLACES[place] + client;
    let index = place * CLIENTS as usize + client as usize;
    (index, Sector(block * BLOCK / 512))
}

fn tagged(tag: u64) -> View {
    let mut bytes = Vec::with_capacity(BLOCK as usize);
    while bytes.len() < BLOCK as usize {
        bytes.extend_from_slice(&tag.to_le_bytes());
    }
    View::copy_of(&bytes)
}

impl World {
    fn new() -> Rc<World> {
        let world = World::default();
        let count = PLACES.len() * CLIENTS as usize;
        world
            .blocks
            .borrow_mut()
            .resize_with(count, Register::default);
        Rc::new(world)
    }

    fn fail(&self, why: String) {
        self.broken.borrow_mut().get_or_insert(why);
    }

    fn seen(&self, index: usize, bytes: &[u8]) {
        let first: [u8; 8] = bytes[..8].try_into().expect("eight bytes");
        let tag = u64::from_le_bytes(first);
        if bytes.chunks(8).any(|part| part != first) {
            return self.fail(format!("block {index} is torn"));
        }
        let mut blocks = self.blocks.borrow_mut();
        let block = &mut blocks[index];
        if tag != block.known && !block.maybe.contains(&tag) {
            let (known, maybe) = (block.known, block.maybe.clone());
            return self.fail(format!(
                "block {index} holds {tag}; {known} was answered or read, {maybe:?} may be there"
            ));
        }
        block.known = tag;
        block.maybe.clear();
        block.newest = block.newest.max(tag);
    }

    /// Somebody else's block, which may be written at this moment: no older than what was seen before the read began.
    fn glimpsed(&self, index: usize, newest: u64, bytes: &[u8]) {
        let first: [u8; 8] = bytes[..8].try_into().expect("eight bytes");
        let tag = u64::from_le_bytes(first);
        let block = &mut self.blocks.borrow_mut()[index];
        if tag < newest || bytes.chunks(8).any(|part| part != first) {
            self.fail(format!(
                "block {index} showed {newest} before, now it is torn or {tag}"
            ));
        }
        block.newest = block.newest.max(tag);
    }
}

/// One client of the writer `owner`, until it is told to stop or the volume is gone.
async fn client(volume: Rc<Volume>, world: Rc<World>, number: u64, owner: u64, mut rng: Rng) {
    loop {
        let place = rng.below(PLACES.len() as u64) as usize;
        let (index, sector) = at(number, place);
        let late = world.owner.get() != owner;
        let answer = if rng.chance(0.5) {
            let zero = place == ZEROED && rng.chance(0.3);
            let tag = match zero {
                true => 0,
                false => {
                    world.tags.set(world.tags.get() + 1);
                    world.tags.get()
                }
            };
            if place != ZEROED {
                world.hot.set((index, sector));
            }
            if !late {
                world.blocks.borrow_mut()[index].maybe.push(tag);
            }
            let span = Span::new(sector, Bytes(BLOCK));
            let wrote = match zero {
                true => volume.write_zeroes(span, WriteFlags::default()).await,
                false => volume.write_at(sector, tagged(tag)).await,
            };
            if wrote.is_ok() && world.owner.get() == owner {
                let block = &mut world.blocks.borrow_mut()[index];
                block.known = tag;
                block.maybe.clear();
                block.newest = block.newest.max(tag);
            }
            wrote
        } else if place != ZEROED && rng.chance(0.5) {
            let mut answer = Ok(());
            for _ in 0..4 {
                let (index, sector) = world.hot.get();
                let newest = world.blocks.borrow()[index].newest;
                let buf = Buf::for_read(BLOCK as usize);
                let read = volume.read(sector, buf, Class::Foreground).await;
                answer = read.map(|buf| {
                    if world.owner.get() == owner {
                        world.glimpsed(index, newest, &buf);
                    }
                });
                if answer.is_err() {
                    break;
                }
            }
            answer
        } else {
            let buf = Buf::for_read(BLOCK as usize);
            let read = volume.read(sector, buf, Class::Foreground).await;
            read.map(|buf| {
                if world.owner.get() == owner {
                    world.seen(index, &buf);
                }
            })
        };
        match answer {
            Ok(()) if late => {
                world.fail(format!(
                    "writer {owner} answers after another has the volume"
                ));
                return;
            }
            Ok(()) => world.answered.set(world.answered.get() + 1),
            Err(_) if late => return,
            Err(_) => env::sleep(Nanos::millis(5)).await,
        }
        env::sleep(Nanos::micros(rng.below(2_000))).await;
    }
}

/// Something goes wrong, or right again.
async fn fault(cluster: &Cluster, meta: &TwinClient, node: u64, rng: &mut Rng) {
    let server = &cluster.servers[rng.below(cluster.servers.len() as u64) as usize];
    match rng.below(8) {
        0 | 1 if server.is_up() => server.crash(),
        0 | 1 => server.start().await,
        2 => server.stalled.set(true),
        3 => server.deaf.set(0.1),
        4 => {
            server.cut.borrow_mut().insert(host(1000 + node as u16));
        }
        5 => meta.set_faults(Faults {
            answers_lost: 0.3,
            requests_lost: 0.2,
            delay_most: Nanos::millis(20),
            patience: Nanos::millis(100),
            cut: rng.chance(0.3),
            ..Faults::default()
        }),
        6 => meta.set_faults(Faults::default()),
        _ => server.heal().await,
    }
}

/// Opens the volume on a new node, mending what stands in the way if it does not open otherwise.
async fn opened(
    cluster: &Rc<Cluster>,
    world: &World,
    bug: Option<Bug>,
) -> Result<(Rc<Volume>, Rc<TwinClient>, u64), String> {
    for attempt in 0..20 {
        let node = world.owner.get() + 1 + 1_000 * attempt;
        let meta = cluster.twin.client();
        let (there, to) = (Rc::clone(cluster), Rc::clone(&meta));
        match there.open(node as u16, to, bug).await {
            Ok(volume) => return Ok((volume, meta, node)),
            Err(_) if attempt < 3 => env::sleep(Nanos::millis(300)).await,
            Err(_) => cluster.heal().await,
        }
    }
    Err("the volume does not open although nothing is broken".to_owned())
}

async fn story(seed: u64, bug: Option<Bug>) -> Result<(), String> {
    let mut rng = Rng::from_seed(seed ^ 0x5eed);
    let copies = 2 + (seed % 2) as u8;
    let cluster = Cluster::new(4, copies, 1, Bytes::mib(64)).await;
    let world = World::new();
    let rounds = 3 + rng.below(3);
    let mut old: Option<u64> = None;
    for _ in 0..rounds {
        let (volume, meta, node) = opened(&cluster, &world, bug).await?;
        world.owner.set(node);
        let home = host(1000 + node as u16);
        for number in 0..CLIENTS {
            let work = client(
                Rc::clone(&volume),
                Rc::clone(&world),
                number,
                node,
                env::rng("client"),
            );
            sim::on_host(home, async { drop(env::spawn(work)) }).await;
        }
        for _ in 0..rng.below(8) {
            env::sleep(Nanos::micros(rng.below(60_000))).await;
            fault(&cluster, &meta, node, &mut rng).await;
        }
        env::sleep(Nanos::micros(rng.below(200_000))).await;
        if let Some(old) = old.take() {
            sim::crash_host(host(1000 + old as u16));
        }
        match rng.below(3) {
            // Taken over while it runs: it learns that by itself.
            0 => old = Some(node),
            _ => sim::crash_host(home),
        }
        if let Some(why) = world.broken.borrow().clone() {
            return Err(why);
        }
    }
    cluster.heal().await;
    let (volume, _, node) = opened(&cluster, &world, bug).await?;
    world.owner.set(node);
    for _ in 0..2 {
        for client in 0..CLIENTS {
            for place in 0..PLACES.len() {
                let (index, sector) = at(client, place);
                let buf = Buf::for_read(BLOCK as usize);
                let read = volume.read(sector, buf, Class::Foreground).await;
                let buf = read.map_err(|why| format!("faults are over, and yet: {why}"))?;
                world.seen(index, &buf);
            }
        }
    }
    let mut left = 1_000;
    while volume.health().condition != Condition::Healthy {
        left -= 1;
        if left == 0 {
            return Err(format!("faults are over, and yet: {:?}", volume.health()));
        }
        env::sleep(Nanos::millis(50)).await;
    }
    // A copy too many goes as well.
    env::sleep(Nanos::secs(1)).await;
    volume.close().await.map_err(|why| why.to_string())?;
    alike(&cluster, copies).await?;
    match world.broken.borrow().clone() {
        Some(why) => Err(why),
        None if world.answered.get() == 0 => Err("nobody was ever answered".to_owned()),
        None => Ok(()),
    }
}

fn run(seed: u64, bug: Option<Bug>) -> Result<(), String> {
    env::Runtime::simulated(seed).block_on(story(seed, bug))
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn nothing_that_was_answered_is_lost_or_changed_whatever_fails() {
    let seeds = match number("TANADA_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let from = number("TANADA_FROM").unwrap_or(0);
            from..from + number("TANADA_SEEDS").unwrap_or(60)
        }
    };
    for seed in seeds {
        if let Err(why) = run(seed, None) {
            panic!("seed {seed}: {why}; replay with TANADA_SEED={seed}");
        }
    }
}

/// A planted bug must be caught, or the checkers are blind.
fn catch(bug: Bug) {
    for seed in 0..300 {
        if let Err(why) = run(seed, Some(bug)) {
            println!("{bug:?} caught at seed {seed}: {why}");
            return;
        }
    }
    panic!("{bug:?} went unseen");
}

#[test]
fn an_answer_before_the_record_is_changed_is_caught() {
    catch(Bug::AnswerBeforeSwap);
}

#[test]
fn a_read_beside_a_write_is_caught() {
    catch(Bug::LooseRead);
}

#[test]
fn an_extent_that_is_not_noted_as_dirty_is_caught() {
    catch(Bug::NoDirtyBit);
}

#[test]
fn stores_that_are_not_sealed_are_caught() {
    catch(Bug::NoSeal);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let hash = |seed: u64| {
        let runtime = env::Runtime::simulated(seed);
        runtime.block_on(story(seed, None)).expect("it holds");
        runtime.trace_hash()
    };
    assert_eq!(hash(3), hash(3));
    assert_ne!(hash(3), hash(4));
}
