//! Volumes go into the trash and come out of it: each step as one transaction.
//!
//! ```text
//! live -> (put) in the trash -> (restore) live, under a free name
//!                            -> (give_up) deleting -> snapshots go, one by one -> (delete) the collector's
//! ```
//!
//! All here is pure, as in `tree`.
//!
//! Always true: a volume in the trash has all its images, and they are as those of any other volume to writers, collectors and audits,
//! until it is given up.

use super::change::Change;
use super::error::ImageError;
use super::record::{ImageRecord, Versioned};
use super::tree::{closed, delete_volume};
use crate::meta::{Compare, Op};
use crate::names::VolumeId;
use crate::record::{Name, VolumeRecord, volume_key, volume_name_key};
use crate::trash::{TrashRecord, name_in_trash, trash_key};

fn renamed(change: &mut Change, volume: &Versioned<VolumeRecord>, name: &Name) {
    let record = VolumeRecord {
        name: name.clone(),
        ..volume.record.clone()
    };
    change.volume(volume, &record);
    let key = volume_name_key(name);
    change.compares.push(Compare::Absent(key.clone()));
    change.put(key, record.id.to_string().into_bytes());
    change.ops.push(Op::Delete {
        key: volume_name_key(&volume.record.name),
    });
}

fn unchanged(change: &mut Change, id: VolumeId, trash: &Versioned<TrashRecord>) {
    change.unchanged(trash_key(id), trash.changed);
}

/// Puts a volume that no node has open into the trash: its name is free. A record that an earlier stay left is written over.
///
/// # Errors
/// [`ImageError::Open`], [`ImageError::Going`].
pub fn put(volume: &Versioned<VolumeRecord>, trash: &TrashRecord) -> Result<Change, ImageError> {
    closed("delete", &volume.record)?;
    let id = volume.record.id;
    let mut change = Change::default();
    renamed(&mut change, volume, &name_in_trash(id));
    change.put(trash_key(id), trash.encode());
    Ok(change)
}

/// Takes a volume that no node has open out of the trash, under a free name.
///
/// # Errors
/// [`ImageError::Open`], [`ImageError::Going`].
pub fn restore(
    volume: &Versioned<VolumeRecord>,
    trash: &Versioned<TrashRecord>,
    name: &Name,
) -> Result<Change, ImageError> {
    closed("restore", &volume.record)?;
    if trash.record.deleting {
        return Err(ImageError::Going {
            asked: "restore",
            volume: trash.record.name.clone(),
        });
    }
    let id = volume.record.id;
    let mut change = Change::default();
    unchanged(&mut change, id, trash);
    renamed(&mut change, volume, name);
    change.ops.push(Op::Delete { key: trash_key(id) });
    Ok(change)
}

/// Notes that a volume in the trash is removed for good: it is not restored any more, however far that is.
pub fn give_up(volume: &Versioned<VolumeRecord>, trash: &Versioned<TrashRecord>) -> Change {
    let id = volume.record.id;
    let deleting = TrashRecord {
        deleting: true,
        ..trash.record.clone()
    };
    let mut change = Change::default();
    unchanged(&mut change, id, trash);
    // Nothing may have restored it meanwhile.
    change.unchanged(volume_key(id), volume.changed);
    change.put(trash_key(id), deleting.encode());
    change
}

/// Removes a volume that was given up, that no node has open and that has no snapshots any more (`count` of them).
///
/// # Errors
/// As [`delete_volume`].
pub fn delete(
    volume: &Versioned<VolumeRecord>,
    head: &Versioned<ImageRecord>,
    count: usize,
    trash: &Versioned<TrashRecord>,
) -> Result<Change, ImageError> {
    let mut change = delete_volume(volume, head, count)?;
    let id = volume.record.id;
    unchanged(&mut change, id, trash);
    change.ops.push(Op::Delete { key: trash_key(id) });
    Ok(change)
}

/// Forgets a record whose volume is not in the trash: `volume` as it was read, if it is there at all.
pub fn forget(
    id: VolumeId,
    volume: Option<&Versioned<VolumeRecord>>,
    trash: &Versioned<TrashRecord>,
) -> Change {
    let mut change = Change::default();
    unchanged(&mut change, id, trash);
    let changed = volume.and_then(|known| known.changed);
    change.unchanged(volume_key(id), changed);
    change.ops.push(Op::Delete { key: trash_key(id) });
    change
}
