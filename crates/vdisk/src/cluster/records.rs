//! Records in the meta store, as this node reads and changes them.
//!
//! Always true: a change that another node's came before has no effect, and is tried again a few times at most.

use std::collections::{BTreeMap, BTreeSet};

use base::Nanos;

use super::ClusterError;
use crate::image::records::{Images, ImagesError};
use crate::image::tree::{Versioned, snapshot_key, snapshots};
use crate::meta::{Compare, Entry, Op, Outcome, whole_range};
use crate::names::{ImageId, VolumeId, hex};
use crate::record::{Name, RecordError, VolumeRecord, WRITERS, Writer, volume_name_key};
use crate::trash::number_in_trash;

const VOLUMES: &str = "volume/";
const NAMES: &str = "volume-name/";
/// How often something is tried again that another node's change came before.
const TRIES: usize = 6;

/// All records of volumes.
pub type AllVolumes = BTreeMap<VolumeId, Versioned<VolumeRecord>>;

/// The records, and the node that reads them.
#[derive(Clone)]
pub(super) struct MetaRecords {
    pub node: Name,
    pub images: Images,
}

fn number(key: &str, value: &[u8]) -> Result<u32, ClusterError> {
    let text = std::str::from_utf8(value).ok();
    let number = text.and_then(|text| hex(text, 8));
    let number = number.and_then(|number| u32::try_from(number).ok());
    Ok(number.ok_or_else(|| RecordError::malformed(key, "it is no number"))?)
}

impl MetaRecords {
    /// All volumes' records.
    pub async fn volumes(&self) -> Result<AllVolumes, ClusterError> {
        let (entries, _) = whole_range(&*self.images.meta, VOLUMES).await?;
        let mut volumes = AllVolumes::new();
        for entry in entries {
            let text = entry.key.strip_prefix(VOLUMES).unwrap_or_default();
            let id = VolumeId(number(&entry.key, text.as_bytes())?);
            let record = VolumeRecord::decode(id, &entry.value)?;
            let changed = Some(entry.changed);
            volumes.insert(id, Versioned { record, changed });
        }
        Ok(volumes)
    }

    /// The number that a name stands for; none stands for a volume in the trash.
    pub async fn find(&self, name: &Name) -> Result<VolumeId, ClusterError> {
        let key = volume_name_key(name);
        if let Some(entry) = self.images.meta.get(&key).await? {
            let id = VolumeId(number(&key, &entry.value)?);
            if number_in_trash(name) != Some(id) {
                return Ok(id);
            }
        }
        let (entries, _) = whole_range(&*self.images.meta, NAMES).await?;
        let known = entries.iter().filter_map(|it| it.key.strip_prefix(NAMES));
        let known = known.filter_map(|name| name.parse().ok());
        Err(ClusterError::NoVolume {
            name: name.clone(),
            known: known.filter(|it| number_in_trash(it).is_none()).collect(),
        })
    }

    /// A volume's snapshots, by name.
    pub async fn snapshots(&self, id: VolumeId) -> Result<BTreeMap<String, ImageId>, ClusterError> {
        let prefix = snapshots(id);
        let (entries, _) = whole_range(&*self.images.meta, &prefix).await?;
        let image = |entry: &Entry| {
            let name = entry.key.strip_prefix(&prefix).unwrap_or_default();
            Ok((name.to_owned(), ImageId(number(&entry.key, &entry.value)?)))
        };
        entries.iter().map(image).collect()
    }

    /// The image of a snapshot, and its volume.
    pub async fn find_snapshot(
        &self,
        volume: &Name,
        name: &Name,
    ) -> Result<(VolumeId, ImageId), ClusterError> {
        let id = self.find(volume).await?;
        let key = snapshot_key(id, name);
        if let Some(entry) = self.images.meta.get(&key).await? {
            return Ok((id, ImageId(number(&key, &entry.value)?)));
        }
        let prefix = snapshots(id);
        let (entries, _) = whole_range(&*self.images.meta, &prefix).await?;
        let known = entries.iter().filter_map(|it| it.key.strip_prefix(&prefix));
        Err(ClusterError::NoSnapshot {
            volume: volume.clone(),
            name: name.clone(),
            known: known.filter_map(|name| name.parse().ok()).collect(),
        })
    }

    /// Refuses a name that another volume has, or that volumes have in the trash.
    pub async fn check_free(&self, name: &Name) -> Result<(), ClusterError> {
        if number_in_trash(name).is_some() {
            return Err(ClusterError::TrashName(name.clone()));
        }
        match self.images.meta.get(&volume_name_key(name)).await? {
            None => Ok(()),
            Some(_) => Err(ClusterError::Exists(name.clone())),
        }
    }

    /// All leases of writers that last.
    pub async fn held(&self) -> Result<BTreeSet<String>, ClusterError> {
        let (entries, _) = whole_range(&*self.images.meta, WRITERS).await?;
        Ok(entries.into_iter().map(|it| it.key).collect())
    }

    /// The other node that is up and has a volume open, and what the volume is called.
    pub async fn other_writer(&self, id: VolumeId) -> Result<Option<(Name, Writer)>, ClusterError> {
        let record = self.images.volume(id).await?.record;
        let own = self.node.as_str();
        let Some(writer) = record.writer.filter(|it| it.node != own) else {
            return Ok(None);
        };
        let holds = self.images.holds(&writer).await?;
        Ok(holds.then_some((record.name, writer)))
    }

    /// Tries something again that another node's change came before, a few times.
    pub async fn again<T>(
        &self,
        attempt: impl AsyncFn() -> Result<T, ClusterError>,
    ) -> Result<T, ClusterError> {
        for tried in 1..TRIES {
            match attempt().await {
                Err(error) if error.is_conflict() => {
                    let wait = env::rng("again").below(40 * tried as u64);
                    env::sleep(Nanos::millis(5 + wait)).await;
                }
                other => return other,
            }
        }
        attempt().await
    }

    /// One transaction.
    pub async fn txn(&self, compares: Vec<Compare>, ops: Vec<Op>) -> Result<(), ClusterError> {
        let keys = ops.iter().map(|op| match op {
            Op::Put { key, .. } | Op::Delete { key } => key.clone(),
        });
        let keys: Vec<String> = keys.collect();
        match self.images.meta.txn(compares, ops).await? {
            Outcome::Done(_) => Ok(()),
            Outcome::Refused(_) => Err(ImagesError::Conflict(keys.join(", ")).into()),
        }
    }
}
