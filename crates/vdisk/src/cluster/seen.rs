//! What this node shows of the cluster, whether or not the meta store answers.
//!
//! ```text
//! meta store answers in time -> records, kept as the last ones
//!                       else -> the last ones, and for how long it has been silent; engines of this node say how their volumes are now
//! ```

use std::cell::Cell;
use std::collections::BTreeSet;

use base::{Instant, Nanos};

use super::stores::AllStores;
use super::up::Up;
use super::volumes::{AllVolumes, Overview, Use};
use super::{Cluster, ClusterError};
use crate::image::records::AllImages;
use crate::meta::MetaError;
use crate::volume::{Condition, Health};

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
    /// Leases of writers that last.
    pub(super) held: BTreeSet<String>,
    /// For how long the meta store has not answered, if this is what it said before; or since this node began.
    pub silent: Option<Nanos>,
}

/// When the meta store answered last.
pub(super) struct Answers {
    last: Cell<Option<Instant>>,
    begun: Cell<Option<Instant>>,
}

impl Answers {
    pub fn new() -> Answers {
        Answers {
            last: Cell::new(None),
            begun: Cell::new(None),
        }
    }

    /// It answered just now.
    pub fn heard(&self) {
        self.last.set(Some(env::now()));
    }

    /// It was asked.
    pub fn asked(&self) {
        if self.begun.get().is_none() {
            self.begun.set(Some(env::now()));
        }
    }

    fn since(&self) -> Nanos {
        let since = self.last.get().or(self.begun.get());
        since.map_or(Nanos(0), |it| env::now().since(it))
    }
}

impl Cluster {
    /// For how long the meta store has not answered, where that is long.
    pub fn meta_silent(&self) -> Option<Nanos> {
        Some(self.answers.since()).filter(|it| *it >= SILENT)
    }

    /// All records, from the meta store.
    pub(super) async fn read_records(&self) -> Result<Records, ClusterError> {
        self.answers.asked();
        let records = Records {
            volumes: self.records().await?,
            images: self.images.all().await?,
            stores: self.stores().await?,
            up: self.up().await?,
            held: self.held().await?,
            silent: None,
        };
        self.answers.heard();
        *self.last_records.borrow_mut() = records.clone();
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
        let mut last = self.last_records.borrow().clone();
        last.silent = Some(self.answers.since());
        Ok(last)
    }

    /// All volumes, by name, as far as they are known: as [`Cluster::list`] while the meta store answers.
    ///
    /// # Errors
    /// As for [`Cluster::seen_records`].
    pub async fn seen(&self) -> Result<Vec<Overview>, ClusterError> {
        let records = self.seen_records().await?;
        let mut all = self.overviews(&records);
        if let Some(silent) = records.silent {
            for one in &mut all {
                one.health = without_meta(&one.used, &one.health, silent);
            }
        }
        Ok(all)
    }
}

/// How a volume is, by what was known before the meta store fell silent.
fn without_meta(used: &Use, before: &Health, silent: Nanos) -> Health {
    let (condition, why) = match used {
        // Its engine says so itself.
        Use::Here(_) => return before.clone(),
        Use::Closed => (
            Condition::Offline,
            format!("the meta store has not answered for {silent}: it cannot be opened"),
        ),
        Use::Node(node) => (
            before.condition,
            format!(
                "the meta store has not answered for {silent}: how it is on {node} now is not known here"
            ),
        ),
    };
    let condition = match condition {
        Condition::Healthy => Condition::Degraded,
        other => other,
    };
    Health { condition, why }
}
