//! What a node does by itself, in tasks that end with the cluster.
//!
//! ```text
//! each kind of work: look, work, rest, and again
//! ```

use std::rc::{Rc, Weak};

use base::Nanos;

use super::collect::Collecting;
use super::damage::ClosedDamage;
use super::drain::Drains;
use super::forward::Forward;
use super::handover::Handovers;
use super::idle::IdleVolumes;
use super::left::Left;
use super::node::Node;
use super::opened::Openings;
use super::trash::Trash;
use super::wants::LOOK_FOR_WANTS;

/// Who does it.
pub(super) struct Background {
    node: Rc<Node>,
    openings: Rc<Openings>,
    forward: Rc<Forward>,
    collecting: Rc<Collecting>,
    trash: Rc<Trash>,
    handovers: Rc<Handovers>,
    drains: Drains,
    idle: Rc<IdleVolumes>,
    damage: ClosedDamage,
}

/// A kind of it.
#[derive(Clone, Copy)]
enum Work {
    Lease,
    Volumes,
    Deleted,
    Drained,
    Idle,
    Wants,
    Repaired,
}

impl Background {
    pub fn new(
        node: &Rc<Node>,
        openings: &Rc<Openings>,
        forward: &Rc<Forward>,
        collecting: &Rc<Collecting>,
        trash: &Rc<Trash>,
    ) -> Rc<Background> {
        let left = Rc::new(Left::default());
        Rc::new(Background {
            node: Rc::clone(node),
            openings: Rc::clone(openings),
            forward: Rc::clone(forward),
            collecting: Rc::clone(collecting),
            trash: Rc::clone(trash),
            handovers: Handovers::new(node, openings),
            drains: Drains::new(node, openings, &left),
            idle: IdleVolumes::new(node, openings, &left),
            damage: ClosedDamage::new(node, openings),
        })
    }

    /// Begins; all ends with this or when no volume is opened any more.
    pub fn start(self: &Rc<Self>) {
        let settings = &self.node.settings;
        for (work, pause) in [
            (Work::Lease, settings.tick),
            (Work::Volumes, settings.tick),
            (Work::Drained, settings.tick),
            (Work::Deleted, settings.collect_every),
            (Work::Repaired, settings.collect_every),
            (Work::Idle, settings.idle_every),
            (Work::Wants, LOOK_FOR_WANTS),
        ] {
            env::spawn(Background::keep(Rc::downgrade(self), pause, work));
        }
    }

    async fn keep(own: Weak<Background>, pause: Nanos, work: Work) {
        loop {
            let Some(own) = own.upgrade().filter(|it| !it.openings.is_stopping()) else {
                return;
            };
            match work {
                Work::Lease => own.node.lease.keep().await,
                Work::Volumes => own.look_around().await,
                Work::Deleted => {
                    own.trash.empty_now_and_then().await;
                    own.collecting.collect_now_and_then().await;
                }
                Work::Drained => own.drains.drain_now_and_then().await,
                Work::Idle => own.idle.keep_idle_well().await,
                Work::Wants => own.handovers.answer_wants().await,
                Work::Repaired => own.damage.repair_now_and_then().await,
            }
            drop(own);
            env::sleep(pause).await;
        }
    }

    /// Learns what is new about stores, does what others ask, and closes volumes that no client uses any more.
    async fn look_around(&self) {
        if let Err(error) = self.node.stores.all().await {
            tracing::debug!(%error, "the stores were not looked up");
        }
        if let Err(error) = self.forward.answer_others().await {
            tracing::debug!(%error, "what other nodes ask was not read");
        }
        self.openings.close_idle().await;
    }
}
