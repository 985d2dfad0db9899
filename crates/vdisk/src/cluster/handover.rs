//! A volume that is open here goes to the node that wants it, or that node hears who uses it.
//!
//! Always true: a volume whose clients were served within the time that a taker names is not given up.

use std::rc::Rc;

use base::Nanos;

use super::node::Node;
use super::opened::Openings;
use super::slots::Slot;
use super::wants::{InUseThere, WANTS, Want, answer_key, millis};
use crate::meta::whole_range;
use crate::names::{VolumeId, hex};

/// Does no client need a volume here, or has the want come for those that were idle for long?
fn may_go(slot: &Slot, want: &Want) -> bool {
    let idle = slot.idle_for();
    let was_idle = |least: u64| idle.is_some_and(|it| it >= Nanos::millis(least));
    slot.users() == 0 || want.from_idle_ms.is_some_and(was_idle)
}

/// What other nodes want of this one.
pub(super) struct Handovers {
    node: Rc<Node>,
    openings: Rc<Openings>,
}

impl Handovers {
    pub fn new(node: &Rc<Node>, openings: &Rc<Openings>) -> Rc<Handovers> {
        Rc::new(Handovers {
            node: Rc::clone(node),
            openings: Rc::clone(openings),
        })
    }

    pub async fn answer_wants(self: &Rc<Self>) {
        if self.node.slots.is_empty() {
            return;
        }
        let wants = match whole_range(&*self.node.meta.images.meta, WANTS).await {
            Ok((wants, _)) => wants,
            Err(error) => return tracing::debug!(%error, "it is unknown which volumes are wanted"),
        };
        for entry in wants {
            let text = entry.key.strip_prefix(WANTS).unwrap_or_default();
            let number = hex(text, 8).and_then(|it| u32::try_from(it).ok());
            let want = serde_json::from_slice::<Want>(&entry.value);
            let (Some(number), Ok(want)) = (number, want) else {
                continue;
            };
            let slot = self.node.slots.get(VolumeId(number));
            if let Some(slot) = slot.filter(|_| want.node != self.node.name().as_str()) {
                self.answer_want(&slot, &want).await;
            }
        }
    }

    /// Gives a volume up that no client here needs, or says which do.
    async fn answer_want(self: &Rc<Self>, slot: &Rc<Slot>, want: &Want) {
        let (users, idle) = (slot.users(), slot.idle_for());
        if !may_go(slot, want) {
            let answer = InUseThere {
                number: want.number,
                users,
                idle_ms: idle.map(millis),
            };
            if slot.answered.replace(want.number) != want.number {
                let value = serde_json::to_vec(&answer).expect("plain data");
                if !self.node.lease.note(answer_key(slot.id()), value).await {
                    slot.answered.set(0);
                    tracing::debug!(volume = %slot.name(), "who wants it is not answered");
                }
            }
            return;
        }
        if slot.wanted.replace(true) {
            return;
        }
        tracing::info!(volume = %slot.name(), node = want.node, users, "given up for another node");
        let own = Rc::clone(self);
        let (slot, want) = (Rc::clone(slot), want.clone());
        env::spawn(async move {
            let _alone = own.node.slots.alone(slot.id()).await;
            let stands = own.openings.claims.stands(slot.id(), &want).await;
            // Clients may have come, or come back, while this waited.
            if stands && slot.volume().is_open() && may_go(&slot, &want) {
                if let Err(error) = own.openings.close(&slot).await {
                    tracing::warn!(volume = %slot.name(), %error, "given up, and not all is settled");
                }
            } else {
                slot.wanted.set(false);
            }
        });
    }
}
