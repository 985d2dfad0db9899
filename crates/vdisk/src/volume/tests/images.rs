//! Snapshots, clones, sizes and deletions beside plain copies of what every image should hold.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use base::{Buf, Bytes, Nanos, Sector, Span, View};
use device::{Class, Device, DeviceError, DeviceExt, WriteFlags};
use env::Rng;
use env::net::sim;

use super::cluster::{Cluster, SIZE, VOLUME, host};
use super::direct::{alike, collector};
use crate::image::audit::Audit;
use crate::image::records::{Images, ImagesError};
use crate::image::tree as image;
use crate::names::{EXTENT, ImageId, VolumeId};
use crate::record::Name;
use crate::volume::{Condition, Mutation, Volume, VolumeError};

/// A cluster, its volumes in use, and what all images hold.
struct World {
    cluster: Rc<Cluster>,
    mutation: Option<Mutation>,
    nodes: u16,
    named: u32,
    volumes: BTreeMap<VolumeId, (Rc<Volume>, Vec<u8>)>,
    snapshots: Vec<(ImageId, VolumeId, Vec<u8>)>,
}

fn filled(byte: u8, len: usize) -> View {
    View::copy_of(&vec![byte; len])
}

async fn read(volume: &Volume, at: u64, len: usize) -> Buf {
    let buf = Buf::for_read(len);
    let read = volume.read(Sector(at / 512), buf, Class::Foreground).await;
    read.unwrap()
}

async fn healthy(volume: &Volume) {
    for _ in 0..1000 {
        if volume.health().condition == Condition::Healthy {
            return;
        }
        env::sleep(Nanos::millis(20)).await;
    }
    panic!("{:?}", volume.health());
}

impl World {
    async fn new(stores: u16, copies: u8, mutation: Option<Mutation>) -> World {
        let cluster = Cluster::new(stores, copies, 1, Bytes::mib(256)).await;
        let mut world = World {
            cluster,
            mutation,
            nodes: 0,
            named: 0,
            volumes: BTreeMap::new(),
            snapshots: Vec::new(),
        };
        world.open(VOLUME, vec![0; SIZE.usize()]).await;
        world
    }

    fn images(&self) -> Images {
        Images {
            meta: self.cluster.meta_store.client(),
        }
    }

    fn name(&mut self) -> Name {
        self.named += 1;
        format!("n{}", self.named).parse().unwrap()
    }

    fn volume(&self) -> &Rc<Volume> {
        &self.volumes[&VOLUME].0
    }

    async fn open(&mut self, id: VolumeId, model: Vec<u8>) {
        self.nodes += 1;
        let meta = self.cluster.meta_store.client();
        let volume = self
            .cluster
            .open_one(id, self.nodes, meta, self.mutation)
            .await;
        self.volumes.insert(id, (volume.unwrap(), model));
    }

    async fn snapshot(&mut self, id: VolumeId) -> ImageId {
        let name = self.name();
        let (volume, model) = &self.volumes[&id];
        let image = volume.snapshot(name).await.unwrap();
        self.snapshots.push((image, id, model.clone()));
        image
    }

    async fn clone(&mut self, which: usize) -> VolumeId {
        let name = self.name();
        let (image, of, model) = self.snapshots[which].clone();
        let images = self.images();
        let id = loop {
            let numbers = images.numbers().await.unwrap();
            let source = images.image(image).await.unwrap();
            let of = images.volume(of).await.unwrap();
            let (volume, change) = image::clone(&numbers, &source, &of, name.clone()).unwrap();
            match images.change(change).await {
                Ok(()) => break volume.id,
                // Its parent is in use.
                Err(ImagesError::Conflict(_)) => {}
                Err(error) => panic!("{error}"),
            }
        };
        self.open(id, model).await;
        id
    }

    async fn delete_snapshot(&mut self, which: usize) {
        let (image, ..) = self.snapshots.remove(which);
        let images = self.images();
        let known = images.image(image).await.unwrap();
        let change = image::delete_snapshot(&known).unwrap();
        images.change(change).await.unwrap();
        self.collect().await;
    }

    /// Frees what is deleted, beside writers that commit.
    async fn collect(&self) {
        loop {
            match collector(&self.cluster).run().await {
                Ok(()) => return,
                Err(ImagesError::Map(error)) => println!("{error}"),
                Err(error) => panic!("{error}"),
            }
        }
    }

    async fn rollback(&mut self, which: usize) {
        let (image, id, model) = self.snapshots[which].clone();
        let Some((volume, _)) = self.volumes.remove(&id) else {
            return;
        };
        volume.close().await.unwrap();
        let images = self.images();
        let numbers = images.numbers().await.unwrap();
        let of = images.volume(id).await.unwrap();
        let head = images.image(of.record.head).await.unwrap();
        let target = images.image(image).await.unwrap();
        let (_, change) = image::rollback(&numbers, &of, &head, &target).unwrap();
        images.change(change).await.unwrap();
        self.collect().await;
        self.open(id, model).await;
    }

    async fn delete_volume(&mut self, id: VolumeId) {
        let (volume, _) = self.volumes.remove(&id).unwrap();
        volume.close().await.unwrap();
        let images = self.images();
        let count = images.snapshots(id).await.unwrap();
        let of = images.volume(id).await.unwrap();
        let head = images.image(of.record.head).await.unwrap();
        let change = image::delete_volume(&of, &head, count).unwrap();
        images.change(change).await.unwrap();
        self.collect().await;
    }

    /// Writes, zeroes or reads somewhere.
    async fn request(&mut self, id: VolumeId, rng: &mut Rng) -> Result<(), String> {
        let (volume, model) = self.volumes.get_mut(&id).unwrap();
        let len = match rng.below(3) {
            0 => 512 * (1 + rng.below(8)),
            1 => 4096 * (1 + rng.below(30)),
            _ => 65_536 * (1 + rng.below(40)),
        };
        let len = len.min(model.len() as u64);
        let at = rng.below((model.len() as u64 - len) / 512 + 1) * 512;
        let range = at as usize..(at + len) as usize;
        match rng.below(5) {
            0 | 1 => {
                let mut data = vec![0; len as usize];
                rng.fill(&mut data);
                let view = View::copy_of(&data);
                volume.write_at(Sector(at / 512), view).await.unwrap();
                model[range].copy_from_slice(&data);
            }
            2 => {
                let span = Span::bytes(at, len);
                let flags = WriteFlags::default();
                volume.write_zeroes(span, flags).await.unwrap();
                model[range].fill(0);
            }
            _ => {
                let found = read(volume, at, len as usize).await;
                if found[..] != model[range] {
                    return Err(format!("volume {id}: {len} at {at} differ"));
                }
            }
        }
        Ok(())
    }

    async fn check(&self, id: VolumeId) -> Result<(), String> {
        let (volume, model) = &self.volumes[&id];
        for at in (0..model.len()).step_by(1 << 20) {
            let len = (model.len() - at).min(1 << 20);
            let found = read(volume, at as u64, len).await;
            if let Some(first) = (0..len).find(|i| found[*i] != model[at + i]) {
                return Err(format!("volume {id}: byte {} differs", at + first));
            }
        }
        Ok(())
    }

    async fn step(&mut self, rng: &mut Rng) -> Result<(), String> {
        let ids: Vec<VolumeId> = self.volumes.keys().copied().collect();
        let id = ids[rng.below(ids.len() as u64) as usize];
        let which = rng.below(self.snapshots.len().max(1) as u64) as usize;
        let some = !self.snapshots.is_empty();
        match rng.below(40) {
            0 | 1 if self.snapshots.len() < 5 => drop(self.snapshot(id).await),
            2 if some && ids.len() < 3 => drop(self.clone(which).await),
            3 if some => self.delete_snapshot(which).await,
            4 | 5 => {
                // Its node crashes, or it is closed.
                let (volume, model) = self.volumes.remove(&id).unwrap();
                if rng.chance(0.5) {
                    volume.close().await.unwrap();
                }
                drop(volume);
                self.open(id, model).await;
                self.check(id).await?;
            }
            6 => {
                let size = 4096 * (1 + rng.below(4 * EXTENT / 4096));
                let (volume, model) = self.volumes.get_mut(&id).unwrap();
                volume.resize(Bytes(size)).await.unwrap();
                model.resize(size as usize, 0);
            }
            7 if some && rng.chance(0.3) => self.rollback(which).await,
            8 if ids.len() > 1 && rng.chance(0.3) => {
                let images = self.images();
                if id != VOLUME && images.snapshots(id).await.unwrap() == 0 {
                    self.delete_volume(id).await;
                }
            }
            9 => env::sleep(Nanos::millis(rng.below(200))).await,
            _ => self.request(id, rng).await?,
        }
        Ok(())
    }

    /// Every image is what it should be, every copy too, and nothing is left over.
    async fn end(mut self, copies: u8) -> Result<(), String> {
        let ids: Vec<VolumeId> = self.volumes.keys().copied().collect();
        for id in ids {
            self.check(id).await?;
        }
        for which in 0..self.snapshots.len() {
            let id = self.clone(which).await;
            self.check(id).await?;
            self.delete_volume(id).await;
        }
        for (volume, _) in self.volumes.values() {
            healthy(volume).await;
            volume.close().await.map_err(|why| why.to_string())?;
        }
        alike(&self.cluster, copies).await?;
        let report = Audit(&collector(&self.cluster)).run(false).await.unwrap();
        let left = report.leaks.len() + report.extra.len();
        match left {
            0 => Ok(()),
            _ => Err(format!("left over: {report:?}")),
        }
    }
}

async fn beside_twins(seed: u64, mutation: Option<Mutation>) -> Result<(), String> {
    let mut rng = Rng::from_seed(seed ^ 0x1a6e);
    let copies = 1 + (seed % 3) as u8;
    let mut world = World::new(3, copies, mutation).await;
    for _ in 0..150 {
        world.step(&mut rng).await?;
    }
    world.end(copies).await
}

fn run(seed: u64, mutation: Option<Mutation>) -> Result<(), String> {
    env::Runtime::simulated(seed).block_on(beside_twins(seed, mutation))
}

#[test]
fn volumes_and_all_their_images_are_what_their_twins_are() {
    let number = |variable: &str| std::env::var(variable).ok()?.parse().ok();
    let seeds = match number("TANADA_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let from = number("TANADA_FROM").unwrap_or(0);
            from..from + number("TANADA_SEEDS").unwrap_or(12)
        }
    };
    for seed in seeds {
        if let Err(why) = run(seed, None) {
            panic!("seed {seed}: {why}; replay with TANADA_SEED={seed}");
        }
    }
}

#[test]
fn a_write_that_skips_the_rest_of_a_block_is_caught() {
    let caught = (0..20).find_map(|seed| run(seed, Some(Mutation::HalfBlock)).err());
    println!("{}", caught.expect("it went unseen"));
}

/// Both stores have a change, and neither answers: then all goes well again.
async fn write_indeterminate(world: &World, at: u64, byte: u8) {
    for server in &world.cluster.servers {
        server.deaf.set(1.0);
    }
    let data = filled(byte, 65_536);
    let write = world.volume().write_at(Sector(at / 512), data);
    assert!(write.await.is_err(), "a write was acknowledged");
    world.cluster.heal().await;
}

/// An overlay gets a block whose write was not acknowledged. What is read then stays.
async fn an_indeterminate_block(mutation: Option<Mutation>) -> Result<(), String> {
    let mut world = World::new(2, 2, mutation).await;
    let volume = Rc::clone(world.volume());
    volume
        .write_at(Sector(0), filled(1, 1 << 20))
        .await
        .unwrap();
    world.snapshot(VOLUME).await;
    volume.write_at(Sector(0), filled(2, 65_536)).await.unwrap();
    write_indeterminate(&world, 65_536, 3).await;
    let before = read(&volume, 65_536, 4096).await;
    drop((volume, world.volumes.remove(&VOLUME)));
    world.open(VOLUME, Vec::new()).await;
    let after = read(world.volume(), 65_536, 4096).await;
    match before[..] == after[..] {
        true => Ok(()),
        false => Err(format!("{} was read, now {}", before[0], after[0])),
    }
}

#[test]
fn an_overlays_blocks_are_looked_up_again_after_an_indeterminate_write() {
    let run = |mutation| env::Runtime::simulated(46).block_on(an_indeterminate_block(mutation));
    run(None).unwrap();
    println!(
        "{}",
        run(Some(Mutation::StaleBlocks)).expect_err("it went unseen")
    );
}

#[test]
fn a_clone_reads_its_parent_and_writes_beside_it_block_by_block() {
    env::Runtime::simulated(41).block_on(async {
        let mut world = World::new(3, 2, None).await;
        let all = filled(1, EXTENT as usize);
        world.volume().write_at(Sector(0), all).await.unwrap();
        world.volumes.get_mut(&VOLUME).unwrap().1[..EXTENT as usize].fill(1);
        world.snapshot(VOLUME).await;
        let id = world.clone(0).await;
        let clone = Rc::clone(&world.volumes[&id].0);
        clone.write_at(Sector(9), filled(2, 512)).await.unwrap();
        assert_eq!(read(&clone, 8 * 512, 1536).await[510..514], [1, 1, 2, 2]);
        assert_eq!(read(&clone, 65_535 / 512 * 512, 1024).await[..], [1; 1024]);
        world.volumes.get_mut(&id).unwrap().1[9 * 512..10 * 512].fill(2);
        world.check(VOLUME).await.unwrap();
        // One block of 64 KiB on two stores is all that was written.
        let names = |prefix: &str| {
            let stats = world.cluster.servers.iter().flat_map(|server| {
                let node = server.node();
                node.store().list(prefix, None, 100).objects
            });
            stats.map(|stat| stat.size).collect::<Vec<_>>()
        };
        assert_eq!(names(&format!("v/{id}/")), [65_536, 65_536]);
        // All others: the base is needed no more.
        for block in 0..64_u64 {
            let at = block * 65_536;
            let data = filled(3, 65_536);
            clone.write_at(Sector(at / 512), data).await.unwrap();
        }
        world.volumes.get_mut(&id).unwrap().1[..EXTENT as usize].fill(3);
        clone.close().await.unwrap();
        let map = collector(&world.cluster);
        let head = world.images().volume(id).await.unwrap().record.head;
        let root = world.images().image(head).await.unwrap().record.root;
        let map = crate::map::Map::open(map.reader, id, root, 3, Default::default());
        assert_eq!(map.get(0).await.unwrap().unwrap().base, None);
        world.volumes.remove(&id);
        let model = [
            vec![3; EXTENT as usize],
            vec![0; (SIZE.0 - EXTENT) as usize],
        ]
        .concat();
        world.open(id, model).await;
        world.end(2).await.unwrap();
    });
}

#[test]
fn a_third_layer_is_never_made() {
    env::Runtime::simulated(42).block_on(async {
        let mut world = World::new(3, 2, None).await;
        for round in 1..=4_u8 {
            let at = u64::from(round) * 70_000 / 512;
            let write = world.volume().write_at(Sector(at), filled(round, 9_216));
            write.await.unwrap();
            let at = (at * 512) as usize;
            world.volumes.get_mut(&VOLUME).unwrap().1[at..at + 9_216].fill(round);
            world.check(VOLUME).await.unwrap();
            world.snapshot(VOLUME).await;
        }
        // The first is whole, the second an overlay, the third whole again, the fourth an overlay.
        assert_eq!(world.volume().counters().merged, 1);
        world.end(2).await.unwrap();
    });
}

#[test]
fn what_lies_behind_the_end_is_gone_when_the_volume_grows_again() {
    env::Runtime::simulated(43).block_on(async {
        let mut world = World::new(3, 2, None).await;
        let volume = Rc::clone(world.volume());
        let all = filled(1, SIZE.usize());
        volume.write_at(Sector(0), all).await.unwrap();
        volume.resize(Bytes(EXTENT + 12_288)).await.unwrap();
        assert_eq!(volume.info().size, Bytes(EXTENT + 12_288));
        let late = volume.read(Sector(EXTENT / 256), Buf::for_read(512), Class::Foreground);
        assert!(matches!(late.await, Err(DeviceError::OutOfRange { .. })));
        volume.resize(SIZE).await.unwrap();
        let kept = (EXTENT + 12_288) as usize;
        let model = [vec![1; kept], vec![0; SIZE.usize() - kept]].concat();
        world.volumes.get_mut(&VOLUME).unwrap().1 = model;
        let refused = volume.resize(Bytes(1)).await.unwrap_err();
        assert!(refused.to_string().contains("whole number"), "{refused}");
        world.end(2).await.unwrap();
    });
}

#[test]
fn a_snapshot_has_a_name_that_no_other_has() {
    env::Runtime::simulated(44).block_on(async {
        let world = World::new(2, 2, None).await;
        let name: Name = "before".parse().unwrap();
        world.volume().snapshot(name.clone()).await.unwrap();
        let refused = world.volume().snapshot(name).await.unwrap_err();
        assert!(matches!(refused, VolumeError::Image { .. }), "{refused}");
        let volume = world.volume();
        volume.write_at(Sector(0), filled(1, 512)).await.unwrap();
        assert_eq!(read(volume, 0, 512).await[0], 1);
    });
}

/// The writer's node crashes at every moment of a snapshot: it is there, whole, or not at all, and the volume goes on.
#[test]
fn a_snapshot_that_its_writer_does_not_survive_is_whole_or_not_there() {
    let there = Rc::new(Cell::new([0, 0]));
    for step in 0.. {
        let counts = Rc::clone(&there);
        let finished = env::Runtime::simulated(45).block_on(async move {
            let mut world = World::new(3, 2, None).await;
            let write = world.volume().write_at(Sector(0), filled(1, 299_520));
            write.await.unwrap();
            world.snapshot(VOLUME).await;
            let write = world.volume().write_at(Sector(100), filled(2, 5_000 * 512));
            write.await.unwrap();
            let model = &mut world.volumes.get_mut(&VOLUME).unwrap().1;
            model[..299_520].fill(1);
            model[51_200..51_200 + 5_000 * 512].fill(2);
            let (volume, model) = world.volumes.remove(&VOLUME).unwrap();
            let done = Rc::new(Cell::new(false));
            let (taken_there, home) = (Rc::clone(&done), host(1000 + world.nodes));
            let name: Name = "late".parse().unwrap();
            let taken = async move {
                drop(env::spawn(async move {
                    taken_there.set(volume.snapshot(name).await.is_ok())
                }));
            };
            sim::on_host(home, taken).await;
            env::sleep(Nanos::micros(100 * step)).await;
            let finished = done.get();
            sim::crash_host(home);
            world.open(VOLUME, model.clone()).await;
            world.check(VOLUME).await.unwrap();
            let key = image::snapshot_key(VOLUME, &"late".parse().unwrap());
            let found = world.images().meta.get(&key).await.unwrap();
            let mut seen = counts.get();
            seen[usize::from(found.is_some())] += 1;
            counts.set(seen);
            assert!(found.is_some() || !finished, "it was answered");
            if let Some(found) = found {
                let text = String::from_utf8(found.value).unwrap();
                let image = ImageId(u32::from_str_radix(&text, 16).unwrap());
                world.snapshots.push((image, VOLUME, model));
            }
            let volume = Rc::clone(world.volume());
            volume
                .write_at(Sector(0), filled(3, 70_000 / 512 * 512))
                .await
                .unwrap();
            world.volumes.get_mut(&VOLUME).unwrap().1[..70_000 / 512 * 512].fill(3);
            world.snapshots.remove(0);
            world.end(2).await.unwrap();
            finished
        });
        if finished {
            break;
        }
    }
    let [absent, whole] = there.get();
    assert!(absent > 0 && whole > 0, "{absent} {whole}");
}
