//! Images: the tree of heads, snapshots and clones, and each way it changes as one transaction.
//!
//! ```text
//! snapshot   head H            -> snapshot H <- new head            rollback   head H, snapshot S -> S <- new head; H goes
//! clone      snapshot S        -> S <- head of a new volume         delete     H or S -> deferred-delete -> deleting -> forgotten
//!
//! DeferredDelete   no name any more; what only it has is freed           delete, rollback
//! DeferredDelete   -> Deleting    at most one child, no neighbour deleting    reparent
//! Deleting         -> (nothing)   all that neither parent nor child has is freed, the child goes to the parent    forget
//! ```
//!
//! All here is pure: records with their revisions in, the compares and ops of one transaction out. `collect` carries
//! deletions out.
//!
//! Always true:
//! 1. The images that have an object are neighbours of each other: it is born in one head, goes to children, and never comes
//!    back. So what neither the parent nor a child has, no image has. An image with two children must therefore stay as a
//!    deferred-delete image (`DeferredDelete`): without it those two would share things and not be neighbours.
//! 2. What a head has and was born later than its `since` no other readable image has.
//! 3. Only heads change; a deferred-delete image gets no more children.
//!
//! Source: COST 2, 4.1 (images forked from snapshots).

use crate::map::Root;
use crate::meta::{Compare, Op, Revision};
use crate::names::Generation;
use crate::record::{Name, VolumeRecord, VolumeState, check_size, volume_key, volume_name_key};

pub use super::change::Change;
pub use super::error::ImageError;
pub use super::record::{
    IMAGES, ImageRecord, ImageState, NUMBERS_KEY, Numbers, Versioned, image_key, snapshot_key,
    snapshots,
};

fn live(asked: &'static str, volume: &VolumeRecord) -> Result<(), ImageError> {
    match volume.state {
        VolumeState::Live => Ok(()),
        VolumeState::Deleting => Err(ImageError::Going {
            asked,
            volume: volume.name.clone(),
        }),
    }
}

pub(super) fn closed(asked: &'static str, volume: &VolumeRecord) -> Result<(), ImageError> {
    live(asked, volume)?;
    match &volume.writer {
        None => Ok(()),
        Some(writer) => Err(ImageError::Open {
            asked,
            volume: volume.name.clone(),
            node: writer.node.clone(),
        }),
    }
}

/// Makes a volume with nothing in it.
///
/// # Errors
/// [`ImageError::Size`], [`ImageError::Copies`], [`ImageError::NoNumber`].
pub fn create(
    numbers: &Versioned<Numbers>,
    name: Name,
    size: u64,
    copies: u8,
    min_isr: u8,
) -> Result<(VolumeRecord, Change), ImageError> {
    if let Err(why) = check_size(size) {
        return Err(ImageError::Size { name, why });
    }
    if !(1..=3).contains(&copies) || min_isr == 0 || min_isr > copies {
        return Err(ImageError::Copies {
            name,
            copies,
            min_isr,
        });
    }
    let mut next = numbers.record.clone();
    let image = next.take_image().ok_or(ImageError::NoNumber)?;
    let volume = VolumeRecord::new(
        next.take_volume().ok_or(ImageError::NoNumber)?,
        name,
        copies,
        min_isr,
        image,
    );
    let head = ImageRecord::head(image, volume.id, size, Root::empty(Generation(0)));
    let mut change = Change::default();
    change.numbers(numbers, &next);
    change.new_volume(&volume);
    change.new_image(&head);
    Ok((volume, change))
}

/// Takes the next generation into the record: before anything is born in it, or bears it as a stamp. So the next writer
/// after a crash goes on behind all that was ever used.
pub fn advance(volume: &Versioned<VolumeRecord>) -> (VolumeRecord, Change) {
    let mut new_volume = volume.record.clone();
    new_volume.generation = new_volume.generation.next();
    let mut change = Change::default();
    change.volume(volume, &new_volume);
    (new_volume, change)
}

/// Gives the head the root of a commit. Its generation is behind that of the record: what is allocated since the commit
/// began is born in a later one, and [`advance`] took that first.
///
/// # Errors
/// [`ImageError::Early`].
pub fn commit(
    volume: &Versioned<VolumeRecord>,
    head: &Versioned<ImageRecord>,
    root: Root,
) -> Result<(ImageRecord, Change), ImageError> {
    if root.generation >= volume.record.generation {
        return Err(ImageError::Early {
            volume: volume.record.name.clone(),
            root: root.generation,
            record: volume.record.generation,
        });
    }
    let new_head = ImageRecord {
        root,
        ..head.record.clone()
    };
    let mut change = Change::default();
    change.unchanged(volume_key(volume.record.id), volume.changed);
    change.image(head, &new_head);
    Ok((new_head, change))
}

/// Gives an image that is no head a map that says the same, with other places. `numbers` is the revision of the record of the
/// numbers from before the image's children were looked up: each new one takes a number.
pub fn relocate(
    volume: &Versioned<VolumeRecord>,
    image: &Versioned<ImageRecord>,
    numbers: Revision,
    root: Root,
) -> Change {
    let elsewhere = ImageRecord {
        root,
        ..image.record.clone()
    };
    let mut change = Change::default();
    change.unchanged(volume_key(volume.record.id), volume.changed);
    change.unchanged(NUMBERS_KEY.to_owned(), Some(numbers));
    change.image(image, &elsewhere);
    change
}

/// Keeps the head as it was last committed under `name`; the volume goes on with a new head on the same map. What was
/// written since the commit began and is older than it must not be changed until this is done.
///
/// # Errors
/// [`ImageError::Going`], [`ImageError::NoNumber`].
pub fn snapshot(
    numbers: &Versioned<Numbers>,
    volume: &Versioned<VolumeRecord>,
    head: &Versioned<ImageRecord>,
    name: Name,
) -> Result<(ImageRecord, Change), ImageError> {
    live("take a snapshot of", &volume.record)?;
    let mut next = numbers.record.clone();
    let kept = ImageRecord {
        state: ImageState::Snapshot(name.clone()),
        ..head.record.clone()
    };
    let new_head = ImageRecord::child(
        next.take_image().ok_or(ImageError::NoNumber)?,
        volume.record.id,
        &kept,
    );
    let new_volume = VolumeRecord {
        head: new_head.id,
        ..volume.record.clone()
    };
    let key = snapshot_key(kept.volume, &name);
    let mut change = Change::default();
    change.numbers(numbers, &next);
    change.volume(volume, &new_volume);
    change.image(head, &kept);
    change.new_image(&new_head);
    change.compares.push(Compare::Absent(key.clone()));
    change.put(key, kept.id.to_string().into_bytes());
    Ok((new_head, change))
}

/// A new volume that begins as `source` is; `of` is the volume whose snapshot that is, and says which stores miss writes.
///
/// # Errors
/// [`ImageError::NoSnapshot`], [`ImageError::NoNumber`].
pub fn clone(
    numbers: &Versioned<Numbers>,
    source: &Versioned<ImageRecord>,
    of: &Versioned<VolumeRecord>,
    name: Name,
) -> Result<(VolumeRecord, Change), ImageError> {
    no_snapshot("clone it", &source.record)?;
    let mut next = numbers.record.clone();
    let image = next.take_image().ok_or(ImageError::NoNumber)?;
    let from = &of.record;
    let mut volume = VolumeRecord::new(
        next.take_volume().ok_or(ImageError::NoNumber)?,
        name,
        from.copies,
        from.terms.min_isr,
        image,
    );
    volume.generation = from.generation;
    volume.epoch = Generation(0);
    volume.out = from.out.clone();
    volume.stores = from.stores.clone();
    volume.redundancy_floor = from.redundancy_floor;
    let head = ImageRecord::child(image, volume.id, &source.record);
    let mut change = Change::default();
    change.numbers(numbers, &next);
    // Neither the snapshot may go meanwhile nor a store leave the in-sync set.
    change.unchanged(image_key(source.record.id), source.changed);
    change.unchanged(volume_key(from.id), of.changed);
    change.new_volume(&volume);
    change.new_image(&head);
    Ok((volume, change))
}

fn no_snapshot(asked: &'static str, image: &ImageRecord) -> Result<(), ImageError> {
    match image.state {
        ImageState::Snapshot(_) => Ok(()),
        _ => Err(ImageError::NoSnapshot {
            asked,
            image: image.id,
        }),
    }
}

/// Lets a volume that no node has open go on from its snapshot `target`; the head that was is deleted. Snapshots stay.
///
/// # Errors
/// [`ImageError::Open`], [`ImageError::Going`], [`ImageError::NoSnapshot`], [`ImageError::Foreign`], [`ImageError::NoNumber`].
pub fn rollback(
    numbers: &Versioned<Numbers>,
    volume: &Versioned<VolumeRecord>,
    head: &Versioned<ImageRecord>,
    target: &Versioned<ImageRecord>,
) -> Result<(ImageRecord, Change), ImageError> {
    closed("roll back", &volume.record)?;
    no_snapshot("roll back to it", &target.record)?;
    if target.record.volume != volume.record.id {
        return Err(ImageError::Foreign {
            volume: volume.record.name.clone(),
            image: target.record.id,
        });
    }
    let mut next = numbers.record.clone();
    let last = head.record.root.generation;
    let generation = volume.record.generation.max(last).next();
    let gone = ImageRecord {
        state: ImageState::DeferredDelete { swept: false },
        lost_until: Some(generation),
        ..head.record.clone()
    };
    let mut new_head = ImageRecord::child(
        next.take_image().ok_or(ImageError::NoNumber)?,
        volume.record.id,
        &target.record,
    );
    new_head.root.generation = generation;
    let new_volume = VolumeRecord {
        head: new_head.id,
        generation,
        // As an opening: who had the volume before does not go on with what it read.
        epoch: generation,
        ..volume.record.clone()
    };
    let mut change = Change::default();
    change.numbers(numbers, &next);
    change.volume(volume, &new_volume);
    change.image(head, &gone);
    change.unchanged(image_key(target.record.id), target.changed);
    change.new_image(&new_head);
    Ok((new_head, change))
}

/// Takes a snapshot's name away; what only it has is freed by and by.
///
/// # Errors
/// [`ImageError::NoSnapshot`].
pub fn delete_snapshot(image: &Versioned<ImageRecord>) -> Result<Change, ImageError> {
    let ImageState::Snapshot(name) = &image.record.state else {
        return Err(ImageError::NoSnapshot {
            asked: "delete it",
            image: image.record.id,
        });
    };
    let deferred = ImageRecord {
        state: ImageState::DeferredDelete { swept: false },
        ..image.record.clone()
    };
    let mut change = Change::default();
    change.image(image, &deferred);
    change.ops.push(Op::Delete {
        key: snapshot_key(image.record.volume, name),
    });
    Ok(change)
}

/// Removes a volume that no node has open and that has no snapshots (`count` of them); what only it has is freed later.
///
/// # Errors
/// [`ImageError::Open`], [`ImageError::Going`], [`ImageError::HasSnapshots`].
pub fn delete_volume(
    volume: &Versioned<VolumeRecord>,
    head: &Versioned<ImageRecord>,
    count: usize,
) -> Result<Change, ImageError> {
    closed("delete", &volume.record)?;
    if count > 0 {
        return Err(ImageError::HasSnapshots {
            volume: volume.record.name.clone(),
            count,
        });
    }
    let gone = ImageRecord {
        state: ImageState::DeferredDelete { swept: false },
        lost_until: Some(Generation::MAX),
        ..head.record.clone()
    };
    let going = VolumeRecord {
        state: VolumeState::Deleting,
        ..volume.record.clone()
    };
    let mut change = Change::default();
    change.volume(volume, &going);
    change.image(head, &gone);
    change.ops.push(Op::Delete {
        key: volume_name_key(&volume.record.name),
    });
    Ok(change)
}

/// Gives the head another size. What a smaller one no longer has must be out of its map before (`Map::resize`).
///
/// # Errors
/// [`ImageError::Size`], [`ImageError::Going`].
pub fn resize(
    volume: &Versioned<VolumeRecord>,
    head: &Versioned<ImageRecord>,
    size: u64,
) -> Result<(ImageRecord, Change), ImageError> {
    live("resize", &volume.record)?;
    if let Err(why) = check_size(size) {
        let name = volume.record.name.clone();
        return Err(ImageError::Size { name, why });
    }
    let new_head = ImageRecord {
        size,
        ..head.record.clone()
    };
    let mut change = Change::default();
    change.unchanged(volume_key(volume.record.id), volume.changed);
    change.image(head, &new_head);
    Ok((new_head, change))
}

/// Begins to free a deferred-delete image for good, with the one child it has. From here on what the two share is the
/// child's, back to what its parent has.
pub fn reparent(
    deferred: &Versioned<ImageRecord>,
    child: Option<&Versioned<ImageRecord>>,
) -> Change {
    let deleting = ImageRecord {
        state: ImageState::Deleting,
        ..deferred.record.clone()
    };
    let mut change = Change::default();
    change.image(deferred, &deleting);
    if let Some(child) = child {
        let closer = ImageRecord {
            since: deferred.record.since,
            ..child.record.clone()
        };
        change.image(child, &closer);
    }
    change
}

/// Notes that what only a deferred-delete image had is freed.
pub fn swept(deferred: &Versioned<ImageRecord>) -> Change {
    let mut change = Change::default();
    let swept = ImageRecord {
        state: ImageState::DeferredDelete { swept: true },
        ..deferred.record.clone()
    };
    change.image(deferred, &swept);
    change
}

/// Forgets an image that was freed; its child becomes its parent's. Its volume, given if it was the last image of that, goes with
/// it. Until then the record lists the stores that deferred-delete images may use. Neighbours may now hold something alone.
pub fn forget(
    gone: &Versioned<ImageRecord>,
    parent: Option<&Versioned<ImageRecord>>,
    child: Option<&Versioned<ImageRecord>>,
    volume: Option<&Versioned<VolumeRecord>>,
) -> Change {
    let unswept = |state: &ImageState| match state {
        ImageState::DeferredDelete { .. } => ImageState::DeferredDelete { swept: false },
        other => other.clone(),
    };
    let mut change = Change::default();
    change.unchanged(image_key(gone.record.id), gone.changed);
    change.ops.push(Op::Delete {
        key: image_key(gone.record.id),
    });
    if let Some(parent) = parent.filter(|parent| !parent.record.is_live()) {
        let kept = ImageRecord {
            state: unswept(&parent.record.state),
            ..parent.record.clone()
        };
        change.image(parent, &kept);
    }
    if let Some(child) = child {
        let adopted = ImageRecord {
            parent: gone.record.parent,
            state: unswept(&child.record.state),
            ..child.record.clone()
        };
        change.image(child, &adopted);
    }
    if let Some(volume) = volume.filter(|it| it.record.state == VolumeState::Deleting) {
        change.unchanged(volume_key(volume.record.id), volume.changed);
        change.ops.push(Op::Delete {
            key: volume_key(volume.record.id),
        });
    }
    change
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{ImageId, VolumeId};

    #[test]
    fn a_commit_waits_until_the_record_has_the_generation_behind_it() {
        let numbers = Versioned {
            record: Numbers::first(),
            changed: None,
        };
        let name = "vm".parse().unwrap();
        let (mut record, _) = create(&numbers, name, 4096, 2, 1).unwrap();
        let head = Versioned {
            record: ImageRecord::head(record.head, record.id, 4096, Root::empty(Generation(0))),
            changed: None,
        };
        let mut taken = Vec::new();
        for _ in 0..3 {
            let changed = None;
            let volume = Versioned { record, changed };
            let done = commit(&volume, &head, Root::empty(Generation(2))).is_ok();
            taken.push((volume.record.generation.0, done));
            record = advance(&volume).0;
        }
        assert_eq!(taken, [(0, false), (1, false), (2, false)]);
        let changed = None;
        let volume = Versioned { record, changed };
        assert!(commit(&volume, &head, Root::empty(Generation(2))).is_ok());
    }

    #[test]
    fn an_image_whose_map_has_come_to_the_last_generation_is_refused() {
        let decode = |generation| {
            let root = Root::empty(Generation(generation));
            let image = ImageRecord::head(ImageId(1), VolumeId(1), 4096, root);
            ImageRecord::decode(ImageId(1), &image.encode())
        };
        assert!(decode(1 << 39).is_ok());
        assert!(decode(Generation::MAX.0).is_err());
    }
}
