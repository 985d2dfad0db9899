//! Stores are drained while everything goes on, used again, and taken away for good when no record lists them.
//!
//! ```text
//! drain   engines hear of it one after the other -> what is there leaves -> the records list it no more
//! remove  one transaction beside all records, as a cluster does -> the store is gone, with all it had
//! ```
//!
//! In the end one store leaves for good: whatever is looked at after that must be on the others.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;

use base::Nanos;
use env::Rng;
use vdisk::image::records::ImagesError;
use vdisk::image::tree::Change;
use vdisk::meta::{Compare, Op};
use vdisk::record::{gone_key, volume_key};
use vdisk::volume::{Condition, Volume};
use vdisk::{StoreNumber, VolumeId};

use super::images::{Branches, ImageTree, collect, holds};
use super::look::alike_at_least;
use super::mutations::Mutation;
use super::{Cluster, VOLUME};

/// What it takes at most to empty a store once faults are over.
const EMPTY: Nanos = Nanos::secs(120);

/// Takes a store away for good if no record lists it. Was it?
async fn try_to_remove(cluster: &Cluster, store: StoreNumber) -> Result<bool, String> {
    let images = ImageTree(cluster).images();
    let all = images.all().await.map_err(|why| why.to_string())?;
    let volumes: BTreeSet<VolumeId> = all.values().map(|it| it.record.volume).collect();
    let mut change = Change::default();
    for id in volumes {
        let known = match images.volume(id).await {
            Ok(known) => known,
            Err(ImagesError::Missing(_)) => continue,
            Err(why) => return Err(why.to_string()),
        };
        if (known.record.stores.as_ref()).is_none_or(|all| all.contains(&store)) {
            return Ok(false);
        }
        let changed = known.changed.expect("it was read");
        let compare = Compare::Unchanged(volume_key(id), changed);
        change.compares.push(compare);
    }
    change.ops.push(Op::Put {
        key: gone_key(store),
        value: Vec::new(),
        lease: None,
    });
    match images.change(change).await {
        Ok(()) => {
            let node = cluster.nodes.iter().find(|node| node.number == store.0);
            node.expect("it was drained").leave().await;
            Ok(true)
        }
        Err(ImagesError::Conflict(_)) => Ok(false),
        Err(why) => Err(why.to_string()),
    }
}

/// Drains stores, uses them again and takes them away, until it is stopped.
pub async fn drain_some(cluster: Rc<Cluster>, copies: u8, over: Rc<Cell<bool>>, mut rng: Rng) {
    while !over.get() {
        env::sleep(Nanos::millis(rng.below(700))).await;
        let (present, drained) = (cluster.present(), cluster.draining.stores());
        if over.get() || present.len() <= usize::from(copies) {
            continue;
        }
        match drained.first() {
            None => {
                let picked = present[rng.below(present.len() as u64) as usize];
                cluster.draining.set(BTreeSet::from([picked]), &mut rng);
            }
            Some(_) if rng.chance(0.3) => cluster.draining.set(BTreeSet::new(), &mut rng),
            // It may be asked again if the meta store did not answer.
            Some(store) => drop(try_to_remove(&cluster, *store).await),
        }
    }
}

/// Faults are over: one store more is emptied and leaves.
///
/// # Errors
/// If that comes to no end.
pub async fn one_leaves(
    cluster: &Rc<Cluster>,
    branches: Option<&Branches>,
    copies: u8,
    number: usize,
    rng: &mut Rng,
) -> Result<(), String> {
    let present = cluster.present();
    if present.len() <= usize::from(copies) {
        return Ok(());
    }
    let picked = present[rng.below(present.len() as u64) as usize];
    let store = cluster.draining.stores().first().copied().unwrap_or(picked);
    cluster.draining.set(BTreeSet::from([store]), rng);
    let none = Branches::default();
    let open = open_all(cluster, branches.unwrap_or(&none), number).await?;
    let start = env::now();
    while !try_to_remove(cluster, store).await? {
        if env::now().since(start) > EMPTY {
            let left: Vec<_> = open
                .iter()
                .map(|it| (it.left_on(store), it.health()))
                .collect();
            return Err(format!("store {store} is never empty: {left:?}"));
        }
        env::sleep(Nanos::millis(200)).await;
    }
    for volume in open {
        volume.close().await.map_err(|why| why.to_string())?;
    }
    Ok(())
}

/// Faults are over: all volumes are healthy in time, and then what their snapshots have is on as many stores as it should be.
///
/// # Errors
/// What is not so.
pub async fn have_copies(
    cluster: &Rc<Cluster>,
    branches: &Branches,
    copies: u8,
    number: usize,
) -> Result<(), String> {
    let open = open_all(cluster, branches, number).await?;
    let start = env::now();
    while let Some(volume) = (open.iter()).find(|it| it.health().condition != Condition::Healthy) {
        if env::now().since(start) > EMPTY {
            return Err(format!("{} is {:?}", volume.record().name, volume.health()));
        }
        env::sleep(Nanos::millis(100)).await;
    }
    // What the head has unreconciled is reconciled.
    env::sleep(Nanos::secs(1)).await;
    for volume in open {
        volume.close().await.map_err(|why| why.to_string())?;
    }
    alike_at_least(cluster, copies).await
}

async fn open_all(
    cluster: &Rc<Cluster>,
    branches: &Branches,
    number: usize,
) -> Result<Vec<Rc<Volume>>, String> {
    let mut open = Vec::new();
    let clones = branches.clones();
    for id in clones.iter().map(|clone| clone.id).chain([VOLUME]) {
        let volume = super::scenario::patiently(cluster, id, number).await;
        open.push(volume.map_err(|why| format!("volume {id} does not open: {why}"))?);
    }
    Ok(open)
}

/// A store is lost for good, with all it had, and is forgotten when no volume counts on it. Was one, or can none be spared?
///
/// # Errors
/// If a volume goes on to count on it.
pub async fn one_is_lost(
    cluster: &Rc<Cluster>,
    branches: &Branches,
    copies: u8,
    number: usize,
    rng: &mut Rng,
) -> Result<bool, String> {
    let present = cluster.present();
    if present.len() <= usize::from(copies) {
        return Ok(false);
    }
    let store = present[rng.below(present.len() as u64) as usize];
    let node = cluster.nodes.iter().find(|node| node.number == store.0);
    node.expect("it is present").leave().await;
    for volume in open_all(cluster, branches, number).await? {
        let record = volume.record();
        let lists = record.stores.is_none_or(|all| all.contains(&store));
        if lists && !record.out.contains_key(&store) {
            return Err(format!("{} counts on store {store}", record.name));
        }
        volume.close().await.map_err(|why| why.to_string())?;
    }
    let mut change = Change::default();
    change.ops.push(Op::Put {
        key: gone_key(store),
        value: Vec::new(),
        lease: None,
    });
    let forgotten = ImageTree(cluster).images().change(change).await;
    forgotten.map(|()| true).map_err(|why| why.to_string())
}

/// The volume, of which all is well and which no node has open, gets a snapshot that leaves a store; goes on from that; and
/// what the head had that was is freed. What the snapshot held must be there, in both.
///
/// # Errors
/// What is not so.
pub async fn goes_back(
    cluster: &Rc<Cluster>,
    copies: u8,
    number: usize,
    mutation: Option<Mutation>,
    rng: &mut Rng,
) -> Result<(), String> {
    let present = cluster.present();
    if present.len() <= usize::from(copies) {
        return Ok(());
    }
    let error_text = |why: vdisk::volume::VolumeError| why.to_string();
    let name: vdisk::record::Name = "last".parse().expect("a name");
    let volume = super::scenario::patiently(cluster, VOLUME, number).await;
    let volume = volume.map_err(error_text)?;
    volume.snapshot(name.clone()).await.map_err(error_text)?;
    let before = holds(cluster, &name, number).await?;
    // What is left of the clone that it was read by would keep the snapshot where it is.
    collect(cluster, None).await?;
    let store = present[rng.below(present.len() as u64) as usize];
    cluster.draining.set(BTreeSet::from([store]), rng);
    let start = env::now();
    while volume
        .record()
        .stores
        .is_some_and(|all| all.contains(&store))
    {
        if env::now().since(start) > EMPTY {
            return Err(format!(
                "store {store} is never empty: {:?}",
                volume.left_on(store)
            ));
        }
        env::sleep(Nanos::millis(200)).await;
    }
    volume.close().await.map_err(error_text)?;
    ImageTree(cluster).roll_back(&name).await?;
    collect(cluster, mutation).await?;
    if holds(cluster, &name, number).await? != before {
        return Err("the snapshot that the volume went back to has something else".to_owned());
    }
    // Its own map is the snapshot's.
    let volume = super::scenario::patiently(cluster, VOLUME, number).await;
    volume
        .map_err(error_text)?
        .close()
        .await
        .map_err(error_text)
}
