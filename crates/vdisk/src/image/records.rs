//! Images as they stand in the meta store: records are read with their revisions, and changes carried out.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::image::tree::{
    Change, IMAGES, ImageError, ImageRecord, NUMBERS_KEY, Numbers, Versioned,
};
use crate::image::tree::{image_key, snapshots};
use crate::map::{MapError, Trouble};
use crate::meta::{Entry, MetaError, MetaStore, Outcome};
use crate::names::{ImageId, VolumeId, hex};
use crate::record::{RecordError, VolumeRecord, Writer, volume_key, writer_key};

/// Entries read at once.
const PAGE: usize = 500;

/// Why something about images was not done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImagesError {
    /// The meta store.
    #[error(transparent)]
    Meta(#[from] MetaError),
    /// A record that cannot be read.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// What was asked cannot be.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// A map that cannot be read.
    #[error(transparent)]
    Map(#[from] MapError),
    /// A store does not do what it was asked.
    #[error("cannot {asked} on store {store}: {source}; it is tried again later")]
    Store {
        /// Which.
        store: String,
        /// What was asked.
        asked: String,
        /// What stood in the way.
        source: Trouble,
    },
    /// No such record.
    #[error("there is no {0} in the meta store")]
    Missing(String),
    /// Another transaction changed something meanwhile.
    #[error("another node changed {0} meanwhile; look again and ask again")]
    Conflict(String),
}

/// Reads and changes the records of images.
#[derive(Clone)]
pub struct Images {
    /// Where they are.
    pub meta: Rc<dyn MetaStore>,
}

/// All images there are.
pub type AllImages = BTreeMap<ImageId, Versioned<ImageRecord>>;

impl Images {
    /// A volume's record.
    ///
    /// # Errors
    /// [`ImagesError::Missing`], [`ImagesError::Meta`], [`ImagesError::Record`].
    pub async fn volume(&self, id: VolumeId) -> Result<Versioned<VolumeRecord>, ImagesError> {
        let key = volume_key(id);
        let found = self
            .meta
            .get(&key)
            .await?
            .ok_or(ImagesError::Missing(key))?;
        known(found, |bytes| VolumeRecord::decode(id, bytes))
    }

    /// Does a writer's lease last? Its node may be up and know nothing of the volume, if it was started again.
    ///
    /// # Errors
    /// [`ImagesError::Meta`].
    pub async fn holds(&self, writer: &Writer) -> Result<bool, ImagesError> {
        let found = self.meta.get(&writer_key(writer.lease)).await?;
        Ok(found.is_some())
    }

    /// An image's record.
    ///
    /// # Errors
    /// As for [`Images::volume`].
    pub async fn image(&self, id: ImageId) -> Result<Versioned<ImageRecord>, ImagesError> {
        let key = image_key(id);
        let found = self
            .meta
            .get(&key)
            .await?
            .ok_or(ImagesError::Missing(key))?;
        known(found, |bytes| ImageRecord::decode(id, bytes))
    }

    /// The numbers that come next.
    ///
    /// # Errors
    /// As for [`Images::volume`].
    pub async fn numbers(&self) -> Result<Versioned<Numbers>, ImagesError> {
        match self.meta.get(NUMBERS_KEY).await? {
            Some(found) => known(found, Numbers::decode),
            None => Ok(Versioned {
                record: Numbers::first(),
                changed: None,
            }),
        }
    }

    /// All images.
    ///
    /// # Errors
    /// As for [`Images::volume`].
    pub async fn all(&self) -> Result<AllImages, ImagesError> {
        let mut images = AllImages::new();
        for entry in self.range(IMAGES).await? {
            let number = entry.key.strip_prefix(IMAGES).and_then(|text| hex(text, 8));
            let id = number.map(|number| ImageId(number as u32)).ok_or_else(|| {
                RecordError::malformed(&format!("the key {}", entry.key), "no image has it")
            })?;
            images.insert(id, known(entry, |bytes| ImageRecord::decode(id, bytes))?);
        }
        Ok(images)
    }

    /// How many snapshots a volume has.
    ///
    /// # Errors
    /// As for [`Images::volume`].
    pub async fn snapshots(&self, volume: VolumeId) -> Result<usize, ImagesError> {
        Ok(self.range(&snapshots(volume)).await?.len())
    }

    async fn range(&self, prefix: &str) -> Result<Vec<Entry>, ImagesError> {
        let mut entries: Vec<Entry> = Vec::new();
        loop {
            let after = entries.last().map(|entry| entry.key.clone());
            let page = self.meta.range(prefix, after.as_deref(), PAGE).await?;
            entries.extend(page.entries);
            if !page.more {
                return Ok(entries);
            }
        }
    }

    /// Carries a change out.
    ///
    /// # Errors
    /// [`ImagesError::Conflict`] if something was changed since it was read; [`ImagesError::Meta`].
    pub async fn change(&self, change: Change) -> Result<(), ImagesError> {
        let keys = change.compares.iter().map(|compare| match compare {
            crate::meta::Compare::Absent(key)
            | crate::meta::Compare::Present(key)
            | crate::meta::Compare::Unchanged(key, _) => key.as_str(),
        });
        let keys = keys.collect::<Vec<_>>().join(", ");
        match self.meta.txn(change.compares, change.ops).await? {
            Outcome::Done(_) => Ok(()),
            Outcome::Refused(_) => Err(ImagesError::Conflict(keys)),
        }
    }
}

fn known<T>(
    entry: Entry,
    decode: impl FnOnce(&[u8]) -> Result<T, RecordError>,
) -> Result<Versioned<T>, ImagesError> {
    Ok(Versioned {
        record: decode(&entry.value)?,
        changed: Some(entry.changed),
    })
}
