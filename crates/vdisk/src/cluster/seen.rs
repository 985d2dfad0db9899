//! What this node shows of the cluster, whether or not the meta store answers.
//!
//! ```text
//! meta store answers in time -> records, kept as the last ones
//!                       else -> the last ones, and for how long it has been silent; engines of this node say how their volumes are now
//! ```

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use base::Nanos;

use super::ClusterError;
use super::drain::Progress;
use super::level::Level;
use super::node::Node;
use super::overview::{Overview, Use, closed_health, origin, snapshots_of, without_meta};
use super::records::AllVolumes;
use super::stores::{AllStores, StoreRecord, lists};
use super::up::Up;
use super::upgrade::{LevelReport, report};
use crate::image::records::AllImages;
use crate::meta::MetaError;
use crate::names::StoreNumber;
use crate::record::{Name, VolumeRecord, VolumeState, writer_key};
use crate::trash::is_in_trash;
use crate::volume::{Health, Left};

/// A look waits so long for the meta store.
const LOOKS: Nanos = Nanos::secs(1);
/// A meta store that did not answer for so long is silent.
const SILENT: Nanos = Nanos::secs(4);

/// All records that there are to be seen.
#[derive(Clone, Default)]
pub struct Records {
    pub(super) volumes: AllVolumes,
    pub(super) images: AllImages,
    /// The stores.
    pub stores: AllStores,
    /// The nodes that are up.
    pub up: Up,
    /// The level in force; `None`: it was never read.
    pub(super) level: Option<Level>,
    /// Leases of writers that last.
    pub(super) held: BTreeSet<String>,
    /// For how long the meta store has not answered, if this is what it said before; or since this node began.
    pub silent: Option<Nanos>,
}

impl Records {
    /// How many deleted volumes are kept.
    pub fn in_trash(&self) -> usize {
        let volumes = self.volumes.values();
        volumes.filter(|it| is_in_trash(&it.record)).count()
    }

    /// The cluster's level and what its nodes can do; `None`: it is not known.
    pub fn levels(&self) -> Option<LevelReport> {
        let level = self.level?;
        Some(report(level, &self.up, &self.stores))
    }
}

/// Neither being removed nor in the trash.
fn is_there(record: &VolumeRecord) -> bool {
    record.state == VolumeState::Live && !is_in_trash(record)
}

/// What this node sees.
pub struct View {
    node: Rc<Node>,
    /// What the meta store said last.
    last: RefCell<Records>,
}

impl View {
    pub(super) fn new(node: &Rc<Node>) -> Rc<View> {
        Rc::new(View {
            node: Rc::clone(node),
            last: RefCell::default(),
        })
    }

    /// For how long the meta store has not answered, where that is long.
    pub fn meta_silent(&self) -> Option<Nanos> {
        Some(self.node.lease.answers.since()).filter(|it| *it >= SILENT)
    }

    /// All records, from the meta store.
    async fn read_records(&self) -> Result<Records, ClusterError> {
        self.node.lease.answers.asked();
        let records = Records {
            volumes: self.node.meta.volumes().await?,
            images: self.node.meta.images.all().await?,
            stores: self.node.stores.all().await?,
            up: self.node.stores.up().await?,
            level: Some(self.node.levels.in_force().await?.level),
            held: self.node.meta.held().await?,
            silent: None,
        };
        self.node.lease.answers.heard();
        *self.last.borrow_mut() = records.clone();
        Ok(records)
    }

    /// All records; those that were read last where the meta store does not answer.
    ///
    /// # Errors
    /// [`ClusterError::Record`]; [`ClusterError::Meta`] if it refuses.
    pub async fn seen_records(&self) -> Result<Records, ClusterError> {
        // The task that keeps the node's lease sees when it is back.
        if self.meta_silent().is_none() {
            match env::timeout(LOOKS, self.read_records()).await {
                Ok(Err(ClusterError::Meta(
                    MetaError::Unavailable { .. } | MetaError::Unknown { .. },
                )))
                | Err(_) => {}
                Ok(answer) => return answer,
            }
        }
        let mut last = self.last.borrow().clone();
        last.silent = Some(self.node.lease.answers.since());
        Ok(last)
    }

    /// All volumes, by name, as far as they are known: as [`View::list`] while the meta store answers.
    ///
    /// # Errors
    /// As for [`View::seen_records`].
    pub async fn seen(&self) -> Result<Vec<Overview>, ClusterError> {
        let (all, _) = self.seen_all().await?;
        Ok(all)
    }

    /// The same, and the records that this is from.
    ///
    /// # Errors
    /// As for [`View::seen_records`].
    pub async fn seen_all(&self) -> Result<(Vec<Overview>, Records), ClusterError> {
        let records = self.seen_records().await?;
        let mut all = self.overviews(&records);
        if let Some(silent) = records.silent {
            for one in &mut all {
                one.health = without_meta(&one.used, &one.health, silent);
            }
        }
        Ok((all, records))
    }

    /// The records of all volumes that are neither being removed nor in the trash, from the meta store.
    ///
    /// # Errors
    /// [`ClusterError::Meta`], [`ClusterError::Record`].
    pub async fn volumes(&self) -> Result<Vec<VolumeRecord>, ClusterError> {
        let all = self.node.meta.volumes().await?.into_values();
        let records = all.map(|it| it.record);
        Ok(records.filter(is_there).collect())
    }

    /// A volume's record, and its size in bytes; asks for nothing else.
    ///
    /// # Errors
    /// [`ClusterError::NoVolume`], [`ClusterError::Meta`], [`ClusterError::Record`].
    pub async fn look(&self, name: &Name) -> Result<(VolumeRecord, u64), ClusterError> {
        let id = self.node.meta.find(name).await?;
        let record = self.node.meta.images.volume(id).await?.record;
        let head = self.node.meta.images.image(record.head).await?;
        Ok((record, head.record.size))
    }

    /// All volumes, by name.
    ///
    /// # Errors
    /// [`ClusterError::Meta`], [`ClusterError::Record`].
    pub async fn list(&self) -> Result<Vec<Overview>, ClusterError> {
        let records = self.read_records().await?;
        Ok(self.overviews(&records))
    }

    /// All volumes in the trash.
    ///
    /// # Errors
    /// As for [`View::list`].
    pub(super) async fn list_in_trash(&self) -> Result<Vec<Overview>, ClusterError> {
        let records = self.read_records().await?;
        Ok(self.overviews_of(&records, is_in_trash))
    }

    /// The volumes in these records that are not in the trash, by name.
    fn overviews(&self, records: &Records) -> Vec<Overview> {
        self.overviews_of(records, is_there)
    }

    fn overviews_of(&self, records: &Records, of: fn(&VolumeRecord) -> bool) -> Vec<Overview> {
        let (volumes, images) = (&records.volumes, &records.images);
        let stores = records.stores.values().map(|(store, _)| store);
        let down = stores.filter(|it| records.up.serves(it) == Some(false));
        let down: Vec<_> = down.cloned().collect();
        let live = volumes.values().map(|known| &known.record);
        let live = live.filter(|record| of(record));
        let mut all: Vec<Overview> = live
            .map(|record| {
                let used = self.used(record, &records.held);
                Overview {
                    size: images.get(&record.head).map_or(0, |it| it.record.size),
                    from: origin(record, volumes, images),
                    snapshots: snapshots_of(record, volumes, images),
                    health: self.health(record, &used, &down),
                    used,
                    record: record.clone(),
                }
            })
            .collect();
        all.sort_by(|a, b| a.record.name.cmp(&b.record.name));
        all
    }

    /// One volume.
    ///
    /// # Errors
    /// [`ClusterError::NoVolume`], and as for [`View::list`].
    pub async fn overview(&self, name: &Name) -> Result<Overview, ClusterError> {
        let id = self.node.meta.find(name).await?;
        let all = self.list().await?;
        let known = all.iter().map(|it| it.record.name.clone()).collect();
        let found = all.into_iter().find(|it| it.record.id == id);
        found.ok_or(ClusterError::NoVolume {
            name: name.clone(),
            known,
        })
    }

    fn used(&self, record: &VolumeRecord, held: &BTreeSet<String>) -> Use {
        if let Some(slot) = self.node.slots.get(record.id) {
            return Use::Here(slot.users());
        }
        match &record.writer {
            Some(writer)
                if writer.node != self.node.name().as_str()
                    && held.contains(&writer_key(writer.lease)) =>
            {
                Use::Node(writer.node.clone())
            }
            _ => Use::Closed,
        }
    }

    /// From its engine where it is open here, else from its record.
    fn health(&self, record: &VolumeRecord, used: &Use, down: &[StoreRecord]) -> Health {
        match (used, self.node.slots.get(record.id)) {
            (Use::Here(_), Some(slot)) => slot.volume().health(),
            _ => closed_health(record, down, |it| self.node.stores.label(it)),
        }
    }

    /// How far each of these stores is.
    ///
    /// # Errors
    /// [`ClusterError::Meta`], [`ClusterError::Record`].
    pub async fn progress(&self, stores: &[StoreNumber]) -> Result<Vec<Progress>, ClusterError> {
        match stores.is_empty() {
            true => Ok(Vec::new()),
            false => Ok(self.progress_of(&self.read_records().await?, stores)),
        }
    }

    /// How far each of these stores is by these records.
    pub fn progress_of(&self, records: &Records, stores: &[StoreNumber]) -> Vec<Progress> {
        let of = |store: &StoreNumber| {
            let volumes = records.volumes.values().map(|it| &it.record);
            let listing = volumes.filter(|it| lists(it, *store));
            let mut here = Left::default();
            for slot in self.node.slots.all() {
                let left = slot.volume().left_on(*store);
                here.extents += left.extents;
                here.nodes += left.nodes;
            }
            Progress {
                volumes: listing.map(|it| it.name.clone()).collect(),
                here,
            }
        };
        stores.iter().map(of).collect()
    }
}
