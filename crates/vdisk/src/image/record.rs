//! The records of images, and of the numbers that come next: JSON with a version.

use serde::{Deserialize, Serialize};

use crate::map::Root;
use crate::meta::Revision;
use crate::names::{Generation, ImageId, VolumeId};
use crate::record::{Name, RecordError, check_current, check_generation, check_size, read};

const VERSION: u32 = 1;
/// The key of the numbers that come next.
pub const NUMBERS_KEY: &str = "numbers";
/// What the keys of all images begin with.
pub const IMAGES: &str = "image/";

/// What an image is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum ImageState {
    /// Its volume writes to it.
    Head,
    /// It stays as it is.
    Snapshot(Name),
    /// Deleted and not readable; it holds together what its children share.
    #[serde(rename = "ghost")]
    DeferredDelete {
        /// Has been freed what only it has?
        swept: bool,
    },
    /// It is being freed.
    Deleting,
}

/// An image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageRecord {
    pub(super) version: u32,
    /// Its number.
    pub id: ImageId,
    /// The volume it was a head of.
    pub volume: VolumeId,
    /// What it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<ImageId>,
    /// Bytes a reader sees.
    pub size: u64,
    /// Its map.
    pub root: Root,
    /// What was born in this generation or before belongs to the parent too.
    pub since: Generation,
    /// What it is.
    pub state: ImageState,
    /// Of a head that is gone: what its volume allocated after the root's generation, and not after this one, is in no map.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_until: Option<Generation>,
}

/// The numbers that come next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Numbers {
    version: u32,
    /// Of the next volume.
    pub volume: u32,
    /// Of the next image.
    pub image: u32,
}

/// A record as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versioned<T> {
    /// What it says.
    pub record: T,
    /// Of its last change; `None`: it is not there yet.
    pub changed: Option<Revision>,
}

/// The key of an image's record.
pub fn image_key(id: ImageId) -> String {
    format!("{IMAGES}{id}")
}

/// The key under which a snapshot is found by its name.
pub fn snapshot_key(volume: VolumeId, name: &Name) -> String {
    format!("{}{name}", snapshots(volume))
}

/// What the keys of all snapshots of a volume begin with.
pub fn snapshots(volume: VolumeId) -> String {
    format!("snapshot/{volume}/")
}

impl Numbers {
    /// In a cluster that has nothing yet.
    pub fn first() -> Numbers {
        Numbers {
            version: VERSION,
            volume: 1,
            image: 1,
        }
    }

    /// As it stands in the meta store.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a record is plain data")
    }

    /// Reads it back.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn decode(bytes: &[u8]) -> Result<Numbers, RecordError> {
        read("the record of the numbers that come next", bytes)
    }

    pub(super) fn take_image(&mut self) -> Option<ImageId> {
        let id = ImageId(self.image);
        self.image = self.image.checked_add(1)?;
        Some(id)
    }

    pub(super) fn take_volume(&mut self) -> Option<VolumeId> {
        let id = VolumeId(self.volume);
        self.volume = self.volume.checked_add(1)?;
        Some(id)
    }
}

impl ImageRecord {
    pub(super) fn head(id: ImageId, volume: VolumeId, size: u64, root: Root) -> ImageRecord {
        ImageRecord {
            version: VERSION,
            id,
            volume,
            parent: None,
            size,
            root,
            since: Generation(0),
            state: ImageState::Head,
            lost_until: None,
        }
    }

    /// A head that goes on from `parent`.
    pub(super) fn child(id: ImageId, volume: VolumeId, parent: &ImageRecord) -> ImageRecord {
        ImageRecord {
            parent: Some(parent.id),
            since: parent.root.generation,
            ..ImageRecord::head(id, volume, parent.size, parent.root)
        }
    }

    /// As it stands in the meta store.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a record is plain data")
    }

    /// Reads it back.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn decode(id: ImageId, bytes: &[u8]) -> Result<ImageRecord, RecordError> {
        let what = format!("the record of image {id}");
        let record: ImageRecord = read(&what, bytes)?;
        let refuse = |why: String| Err(RecordError::malformed(&what, why));
        if record.id != id {
            return refuse(format!("it is that of image {}", record.id));
        }
        if let Err(why) = check_size(record.size) {
            return refuse(why);
        }
        if record.root.level > crate::map::node::LEVEL_MAX {
            return refuse(format!("its map has {} levels", record.root.level));
        }
        let node = record.root.node.map(|node| node.born);
        check_current(&what, record.root.generation)?;
        let others = [Some(record.since), record.lost_until];
        for generation in others.into_iter().chain([node]).flatten() {
            check_generation(&what, generation)?;
        }
        if node > Some(record.root.generation) {
            return refuse("its map begins at a node born after the map".to_owned());
        }
        Ok(record)
    }

    /// Is it readable?
    pub fn is_live(&self) -> bool {
        matches!(self.state, ImageState::Head | ImageState::Snapshot(_))
    }
}
