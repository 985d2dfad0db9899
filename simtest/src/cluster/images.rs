//! Snapshots, clones and other sizes of a volume that is at work, and what they hold in the end.
//!
//! ```text
//! while writers come and go: a snapshot, another size, a clone of a snapshot that is opened and worked on from then on
//! the end: a new clone of each snapshot -> every block -> all of one moment? -> the history of the volume, and of its clones
//!          clones, then snapshots are deleted; what only they had is freed
//! ```
//!
//! Always true:
//! 1. What a snapshot holds was all there at one moment between its call and its answer; a clone begins as that.
//! 2. Behind a size that was answered there are zeroes, when the volume is larger again.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::{Buf, Bytes, Nanos, Sector};
use device::{Class, Device};
use env::Rng;
use env::net::sim;
use vdisk::image::collect::Collector;
use vdisk::image::records::{Images, ImagesError};
use vdisk::image::tree::{self as image, snapshot_key};
use vdisk::map::cache::Cache;
use vdisk::map::reader::Reader;
use vdisk::record::Name;
use vdisk::volume::{Volume, VolumeError};
use vdisk::{ImageId, VolumeId};

use super::clients::{BLOCK, PLACES, World, ZEROED};
use super::look::Direct;
use super::mutations::Mutation;
use super::{Cluster, SIZE, VOLUME, host};
use crate::linear::{Moment, Tag, ZERO};

/// What a snapshot reads as in a history.
const SNAPSHOTS: u32 = 9_000;
/// Snapshots of a run.
const SNAPSHOTS_MAX: usize = 4;
/// Clones of a run that are worked on: the stores are small.
const CLONES_MAX: usize = 1;

/// A snapshot that was asked for.
pub struct Snap {
    name: Name,
    /// The same again, a little later: with the mistake that makes snapshots torn, half of it is taken from there.
    again: Option<Name>,
    called: Moment,
    answered: Cell<Option<Moment>>,
    /// What it holds.
    holds: RefCell<Vec<(u64, Tag)>>,
}

/// A clone that is worked on.
pub struct Branch {
    /// The volume.
    pub id: VolumeId,
    /// What its clients saw.
    pub world: Rc<World>,
    of: Rc<Snap>,
}

/// All of a run.
#[derive(Default)]
pub struct Branches {
    snaps: RefCell<Vec<Rc<Snap>>>,
    clones: RefCell<Vec<Rc<Branch>>>,
}

fn error_text(why: impl std::fmt::Display) -> String {
    why.to_string()
}

/// The images, past every link and node.
pub struct ImageTree<'a>(pub &'a Cluster);

impl ImageTree<'_> {
    pub(super) fn images(&self) -> Images {
        let meta = self.0.meta_store.client();
        Images { meta }
    }

    /// A new volume that begins as an image.
    async fn clone_of(&self, of: ImageId) -> Result<VolumeId, String> {
        let images = self.images();
        loop {
            let numbers = images.numbers().await.map_err(error_text)?;
            let source = images.image(of).await.map_err(error_text)?;
            let parent = images.volume(VOLUME).await.map_err(error_text)?;
            let name = format!("c{}", numbers.record.volume);
            let name = name.parse().map_err(error_text)?;
            let made = image::clone(&numbers, &source, &parent, name);
            let (volume, change) = made.map_err(error_text)?;
            match images.change(change).await {
                Ok(()) => return Ok(volume.id),
                Err(ImagesError::Conflict(_)) => {}
                Err(error) => return Err(error_text(error)),
            }
        }
    }

    /// The image of a snapshot, if it is there.
    async fn image_of(&self, name: &Name) -> Result<Option<ImageId>, String> {
        let key = snapshot_key(VOLUME, name);
        let found = self.images().meta.get(&key).await.map_err(error_text)?;
        let Some(found) = found else {
            return Ok(None);
        };
        let text = String::from_utf8(found.value).map_err(error_text)?;
        let number = u32::from_str_radix(&text, 16).map_err(error_text)?;
        Ok(Some(ImageId(number)))
    }

    /// Deletes a volume that no node has open.
    async fn remove(&self, id: VolumeId) -> Result<(), String> {
        let images = self.images();
        let of = images.volume(id).await.map_err(error_text)?;
        let head = images.image(of.record.head).await.map_err(error_text)?;
        let change = image::delete_volume(&of, &head, 0).map_err(error_text)?;
        images.change(change).await.map_err(error_text)
    }

    async fn remove_snapshot(&self, name: &Name) -> Result<(), String> {
        let images = self.images();
        while let Some(image) = self.image_of(name).await? {
            let known = images.image(image).await.map_err(error_text)?;
            let change = image::delete_snapshot(&known).map_err(error_text)?;
            match images.change(change).await {
                Ok(()) | Err(ImagesError::Conflict(_)) => {}
                Err(error) => return Err(error_text(error)),
            }
        }
        Ok(())
    }

    /// Lets the volume, which no node has open, go on from a snapshot.
    pub(super) async fn roll_back(&self, name: &Name) -> Result<(), String> {
        let images = self.images();
        let target = self.image_of(name).await?.ok_or("the snapshot is gone")?;
        let target = images.image(target).await.map_err(error_text)?;
        let numbers = images.numbers().await.map_err(error_text)?;
        let of = images.volume(VOLUME).await.map_err(error_text)?;
        let head = images.image(of.record.head).await.map_err(error_text)?;
        let (_, change) = image::rollback(&numbers, &of, &head, &target).map_err(error_text)?;
        images.change(change).await.map_err(error_text)
    }
}

impl Branches {
    /// Clones that are worked on.
    pub fn clones(&self) -> Vec<Rc<Branch>> {
        self.clones.borrow().clone()
    }

    fn snaps(&self) -> Vec<Rc<Snap>> {
        self.snaps.borrow().clone()
    }

    /// Takes a snapshot while clients are at work.
    pub async fn snapshot(
        self: Rc<Self>,
        volume: Rc<Volume>,
        world: Rc<World>,
        wait: Nanos,
        mutation: Option<Mutation>,
    ) {
        env::sleep(wait).await;
        let count = self.snaps.borrow().len();
        if count >= SNAPSHOTS_MAX || world.over.get() {
            return;
        }
        let name = |part: &str| format!("s{count}{part}").parse().expect("a name");
        let torn = mutation == Some(Mutation::TornSnapshot);
        let snap = Rc::new(Snap {
            name: name(""),
            again: torn.then(|| name("-again")),
            called: world.history.moment(),
            answered: Cell::new(None),
            holds: RefCell::default(),
        });
        self.snaps.borrow_mut().push(Rc::clone(&snap));
        let mut taken = volume.snapshot(snap.name.clone()).await;
        if let Some(again) = &snap.again {
            env::sleep(Nanos::millis(30)).await;
            taken = volume.snapshot(again.clone()).await;
        }
        if taken.is_ok() {
            snap.answered.set(Some(world.history.moment()));
        }
    }

    /// Makes the volume smaller, and after a while as large as it was.
    pub async fn resize(volume: Rc<Volume>, world: Rc<World>, wait: Nanos) {
        env::sleep(wait).await;
        if world.over.get() {
            return;
        }
        // What lies behind becomes zero, whether or not the change is acknowledged.
        let asked = world.history.writes(SNAPSHOTS - 1, ZEROED, 1, ZERO);
        if volume.resize(Bytes(ZEROED * BLOCK)).await.is_ok() {
            world.history.wrote(&asked);
        }
        env::sleep(wait).await;
        let _ = volume.resize(SIZE).await;
    }

    /// Clones one of the snapshots, if it is there, to be worked on.
    pub async fn branch(&self, cluster: &Cluster, which: u64) -> Result<(), String> {
        let snaps = self.snaps();
        let count = snaps.len() as u64;
        if count == 0 || self.clones.borrow().len() >= CLONES_MAX {
            return Ok(());
        }
        let of = Rc::clone(&snaps[(which % count) as usize]);
        if of.again.is_some() {
            return Ok(());
        }
        let Some(image) = ImageTree(cluster).image_of(&of.name).await? else {
            return Ok(());
        };
        let id = ImageTree(cluster).clone_of(image).await?;
        let nth = 1 + self.clones.borrow().len() as u64;
        let world = Rc::new(World::of_clone(nth));
        let branch = Branch { id, world, of };
        self.clones.borrow_mut().push(Rc::new(branch));
        Ok(())
    }

    /// Looks at what each snapshot holds, judges it, and deletes it.
    pub async fn end(
        &self,
        cluster: &Rc<Cluster>,
        world: &World,
        host: usize,
    ) -> Result<(), String> {
        for snap in self.snaps() {
            let Some(mut holds) = holds(cluster, &snap.name, host).await? else {
                match snap.answered.get() {
                    Some(_) => return Err(format!("snapshot {} is gone", snap.name)),
                    None => continue,
                }
            };
            if let Some(again) = &snap.again {
                let later = self::holds(cluster, again, host).await?;
                // The first extent as of then, the others as of now.
                let first = vdisk::EXTENT / BLOCK;
                for (at, later) in holds.iter_mut().zip(later.unwrap_or_default()) {
                    if at.0 >= first && at.0 == later.0 {
                        *at = later;
                    }
                }
            }
            let answered = snap.answered.get();
            let answered = answered.unwrap_or_else(|| world.history.moment());
            let who = SNAPSHOTS;
            let between = (snap.called, answered);
            world.history.kept(who, between, &holds)?;
            *snap.holds.borrow_mut() = holds;
        }
        for clone in self.clones() {
            clone.world.history.begins_as(&clone.of.holds.borrow());
            let judged = clone.world.history.judge();
            judged.map_err(|why| format!("clone {}: {why}", clone.id))?;
            ImageTree(cluster).remove(clone.id).await?;
        }
        for snap in self.snaps() {
            ImageTree(cluster).remove_snapshot(&snap.name).await?;
            if let Some(again) = &snap.again {
                ImageTree(cluster).remove_snapshot(again).await?;
            }
        }
        collect(cluster, None).await
    }
}

/// Frees what deleted images alone had.
pub async fn collect(cluster: &Rc<Cluster>, mutation: Option<Mutation>) -> Result<(), String> {
    let direct = Rc::new(Direct(Rc::clone(cluster)));
    let collector = Collector {
        images: ImageTree(cluster).images(),
        reader: Reader::new(direct.clone(), Cache::new(Bytes::mib(4))),
        objects: direct,
    };
    if mutation == Some(Mutation::FreedByGeneration) {
        let all = ImageTree(cluster)
            .images()
            .all()
            .await
            .map_err(error_text)?;
        for (gone, until) in
            (all.values()).filter_map(|it| Some((&it.record, it.record.lost_until?)))
        {
            // As if it were alone in its tree.
            let alone = all.iter().filter(|(id, _)| **id == gone.id);
            let alone = alone.map(|(id, known)| (*id, known.clone())).collect();
            collector
                .free_lost(&alone, gone, until)
                .await
                .map_err(error_text)?;
        }
    }
    collector.run().await.map_err(error_text)
}

/// What a snapshot holds, read twice through a clone of its own; `None` if there is no such snapshot.
pub(super) async fn holds(
    cluster: &Rc<Cluster>,
    name: &Name,
    host: usize,
) -> Result<Option<Vec<(u64, Tag)>>, String> {
    let Some(image) = ImageTree(cluster).image_of(name).await? else {
        return Ok(None);
    };
    let id = ImageTree(cluster).clone_of(image).await?;
    let failed = |why: VolumeError| format!("a clone of {name} does not open: {why}");
    let volume = super::scenario::patiently(cluster, id, host).await;
    let volume = volume.map_err(failed)?;
    let mut holds = Vec::new();
    for turn in 0..2 {
        for (at, block) in PLACES.into_iter().enumerate() {
            if (block + 1) * BLOCK > volume.info().size.0 {
                continue;
            }
            let buf = Buf::for_read(BLOCK as usize);
            let sector = Sector(block * BLOCK / 512);
            let read = volume.read(sector, buf, Class::Foreground).await;
            let buf = read.map_err(|why| format!("snapshot {name}: {why}"))?;
            let first: [u8; 8] = buf[..8].try_into().expect("eight bytes");
            if buf.chunks(8).any(|part| part != first) {
                return Err(format!("snapshot {name}: block {block} is torn"));
            }
            let tag = Tag::from_le_bytes(first);
            match turn {
                0 => holds.push((block, tag)),
                _ if holds[at].1 == tag => {}
                _ => {
                    return Err(format!(
                        "snapshot {name}: block {block} is {} and {tag}",
                        holds[at].1
                    ));
                }
            }
        }
    }
    volume.close().await.map_err(error_text)?;
    ImageTree(cluster).remove(id).await?;
    Ok(Some(holds))
}

/// A snapshot or two and other sizes, beside the clients of a writer.
pub(super) async fn keep_some(
    branches: &Rc<Branches>,
    (volume, world): (&Rc<Volume>, &Rc<World>),
    number: usize,
    rng: &mut Rng,
    mutation: Option<Mutation>,
) {
    if rng.chance(0.7) {
        let wait = Nanos::millis(rng.below(300));
        let (volume, world) = (Rc::clone(volume), Rc::clone(world));
        let work = Rc::clone(branches).snapshot(volume, world, wait, mutation);
        sim::on_host(host(number), async { drop(env::spawn(work)) }).await;
    }
    if rng.chance(0.3) {
        let wait = Nanos::millis(rng.below(200));
        let work = Branches::resize(Rc::clone(volume), Rc::clone(world), wait);
        sim::on_host(host(number), async { drop(env::spawn(work)) }).await;
    }
}
