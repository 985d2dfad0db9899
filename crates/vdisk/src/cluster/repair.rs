//! One volume is opened and made whole, as far as it can be, while an operator waits.

use std::rc::Rc;

use base::Nanos;

use super::ClusterError;
use super::collect::Collecting;
use super::node::Node;
use super::opened::Openings;
use super::reseal::Unsealing;
use super::slots::InUse;
use crate::image::audit::Loss;
use crate::names::StoreNumber;
use crate::record::Name;
use crate::volume::{Condition, Counters, Health, Repairs};

/// What was found and done about one volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repaired {
    /// How it is now.
    pub health: Health,
    /// In-sync copies that extents of the head lack.
    pub missing_copies: u64,
    /// What became of the damage that stores know of.
    pub damage: Repairs,
    /// What its engine has done since the volume was opened.
    pub counters: Counters,
    /// Of what its images need: copies that are not there.
    pub losses: Vec<Loss>,
    /// Stores of which nothing is known.
    pub unknown: Vec<StoreNumber>,
    /// Objects that no image refers to, of all volumes; freed if that was asked.
    pub leaks: usize,
}

/// A repair without a limit of its own waits so long at most.
const REPAIR_MAX: Nanos = Nanos::secs(300);
/// And no longer than this while nothing changes: more than a store may take to answer, and than an engine rests between two
/// tries to do without a store that is gone.
const NO_CHANGE_MAX: Nanos = Nanos::secs(30);
/// Between two looks at how far it is.
const REPAIR_LOOK: Nanos = Nanos::millis(500);

/// Waits until a volume is healthy, for good of no use, or gets no further.
async fn wait_until_whole(in_use: &InUse, timeout: Option<Nanos>) {
    let volume = in_use.volume();
    let until = env::now() + timeout.unwrap_or(REPAIR_MAX);
    let mut last = None;
    let mut changed = env::now();
    loop {
        let health = volume.health();
        let over = match health.condition {
            Condition::Healthy => true,
            // It may have no lease for a moment.
            Condition::Offline => in_use.is_over().await,
            _ => false,
        };
        let now = (volume.missing_copies(), volume.counters(), health.why);
        if last.as_ref() != Some(&now) {
            (last, changed) = (Some(now), env::now());
        }
        let stands_still = timeout.is_none() && env::now().since(changed) >= NO_CHANGE_MAX;
        if over || stands_still || env::now() >= until {
            return;
        }
        env::sleep(REPAIR_LOOK).await;
    }
}

/// What makes a volume whole.
pub struct VolumeRepair {
    node: Rc<Node>,
    openings: Rc<Openings>,
    collecting: Rc<Collecting>,
    unsealing: Unsealing,
}

impl VolumeRepair {
    pub(super) fn new(
        node: &Rc<Node>,
        openings: &Rc<Openings>,
        collecting: &Rc<Collecting>,
    ) -> VolumeRepair {
        VolumeRepair {
            node: Rc::clone(node),
            openings: Rc::clone(openings),
            collecting: Rc::clone(collecting),
            unsealing: Unsealing::new(node, collecting),
        }
    }

    /// Opens a volume, repairs what its stores know to be damaged, waits until its copies are equal and complete, and looks
    /// whether all are there. It waits at most `timeout`; without one, as long as copies are made, or some seconds more.
    ///
    /// # Errors
    /// [`ClusterError`] if it cannot be opened, or the stores not be looked through.
    pub async fn repair(
        &self,
        name: &Name,
        timeout: Option<Nanos>,
        free: bool,
    ) -> Result<Repaired, ClusterError> {
        self.unsealing
            .unseal(self.node.meta.find(name).await?)
            .await?;
        let (in_use, id) = self.openings.in_use(name).await?;
        let volume = in_use.volume();
        wait_until_whole(&in_use, timeout).await;
        let damage = volume.repair_damage().await;
        let health = volume.health();
        let missing_copies = volume.missing_copies();
        let report = self.collecting.audit(free).await?;
        let images = self.node.meta.images.all().await?;
        let own = |loss: &Loss| {
            let image = images.get(&loss.image);
            image.is_some_and(|image| image.record.volume == id)
        };
        Ok(Repaired {
            health,
            missing_copies,
            damage,
            counters: in_use.volume().counters(),
            losses: report.losses.into_iter().filter(own).collect(),
            unknown: report.unknown,
            leaks: report.leaks.len() + report.scraps.len(),
        })
    }
}
