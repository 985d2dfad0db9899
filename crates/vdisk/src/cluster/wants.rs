//! How a volume goes from the node that has it open to one that wants it.
//!
//! ```text
//! who wants it   want/<volume>, under a lease of its own -> record has no writer any more -> opens it
//!                                                      -> in-use/<volume> with the want's number -> refused, and says by whom
//! who has it     no client uses it -> closes it | clients use it -> in-use/<volume> | taken over, and they are idle -> closes it
//! ```
//!
//! Always true:
//! 1. Only the node that has a volume open gives it up, in good order; a node that is gone loses it with its lease.
//! 2. A volume whose clients were served within the time that a taker names is not given up.
//! 3. A want ends with the claim that made it, or some seconds later with its lease.

use std::rc::Rc;

use base::Nanos;
use serde::{Deserialize, Serialize};

use super::opened::Slot;
use super::{Cluster, ClusterError};
use crate::meta::{LeaseId, MetaError, Op, whole_range};
use crate::names::VolumeId;
use crate::record::{Name, Writer};

/// Between two looks whether a volume is wanted that is open here.
pub(super) const LOOK_FOR_WANTS: Nanos = Nanos::millis(500);
/// Between two looks at a record that another node is about to let go.
const LOOK: Nanos = Nanos::millis(250);
/// The clients here have so long to come after a volume was taken over.
const KEPT: Nanos = Nanos::secs(60);
const WANTS: &str = "want/";

/// A node wants a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Want {
    /// The only one of its kind: the answer has it.
    number: u64,
    node: String,
    /// It takes the volume from clients that were idle for so long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from_idle_ms: Option<u64>,
}

/// Why a volume is not given up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct InUseThere {
    /// Of the want.
    number: u64,
    users: u64,
    /// Since the last request of a client; `None`: one is under way.
    idle_ms: Option<u64>,
}

fn millis(span: Nanos) -> u64 {
    span.0 / 1_000_000
}

fn want_key(id: VolumeId) -> String {
    format!("{WANTS}{id}")
}

fn answer_key(id: VolumeId) -> String {
    format!("in-use/{id}")
}

/// Does no client need a volume here, or has the want come for those that were idle for long?
fn may_go(slot: &Slot, want: &Want) -> bool {
    let idle = slot.volume().idle_for();
    let was_idle = |least: u64| idle.is_some_and(|it| it >= Nanos::millis(least));
    slot.users() == 0 || want.from_idle_ms.is_some_and(was_idle)
}

impl InUseThere {
    fn describe(&self) -> String {
        let users = match self.users {
            1 => "1 client".to_owned(),
            many => format!("{many} clients"),
        };
        match self.idle_ms {
            None => format!(" for {users}, with requests under way"),
            Some(idle) => format!(" for {users}, the last request {} ago", Nanos::millis(idle)),
        }
    }
}

impl Cluster {
    /// Waits until no other node that is up has the volume: one that does not need it lets it go, and one that does says so.
    pub(super) async fn wait_for_others(
        &self,
        asked: &'static str,
        id: VolumeId,
    ) -> Result<(), ClusterError> {
        if self.other_writer(id).await?.is_none() {
            return Ok(());
        }
        self.claim(asked, id, None).await
    }

    /// The other node that is up and has a volume open.
    async fn other_writer(&self, id: VolumeId) -> Result<Option<(Name, Writer)>, ClusterError> {
        let record = self.images.volume(id).await?.record;
        let own = self.node().as_str();
        let Some(writer) = record.writer.filter(|it| it.node != own) else {
            return Ok(None);
        };
        let holds = self.images.holds(&writer).await?;
        Ok(holds.then_some((record.name, writer)))
    }

    /// Says that the volume is wanted here, waits until it is free or refused, and takes that back.
    async fn claim(
        &self,
        asked: &'static str,
        id: VolumeId,
        from_idle: Option<Nanos>,
    ) -> Result<(), ClusterError> {
        let want = Want {
            number: env::rng("want").bits(),
            node: self.node().to_string(),
            from_idle_ms: from_idle.map(millis),
        };
        let lease = self.put_want(id, &want).await;
        if let Err(error) = &lease {
            tracing::debug!(volume = %id, %error, "that it is wanted is not said");
        }
        let answer = self.until_free(asked, id, want.number).await;
        // Takes this want away, and none that another node put in its place.
        if let Ok(lease) = lease
            && let Err(error) = self.images.meta.revoke(lease).await
        {
            tracing::debug!(volume = %id, %error, "the want goes when its lease runs out");
        }
        answer
    }

    /// Says that a volume is wanted, under a lease that lasts about as long as is waited.
    async fn put_want(&self, id: VolumeId, want: &Want) -> Result<LeaseId, MetaError> {
        let meta = &self.images.meta;
        let lease = meta.lease(self.settings.handover + LOOK_FOR_WANTS).await?;
        let put = Op::Put {
            key: want_key(id),
            value: serde_json::to_vec(want).expect("plain data"),
            lease: Some(lease),
        };
        meta.txn(Vec::new(), vec![put]).await?;
        Ok(lease)
    }

    /// Is a want still there?
    async fn stands(&self, id: VolumeId, want: &Want) -> bool {
        let found = self.images.meta.get(&want_key(id)).await;
        let found = found.ok().flatten();
        let found = found.and_then(|it| serde_json::from_slice::<Want>(&it.value).ok());
        found.is_some_and(|it| it.number == want.number)
    }

    async fn until_free(
        &self,
        asked: &'static str,
        id: VolumeId,
        number: u64,
    ) -> Result<(), ClusterError> {
        let deadline = env::now() + self.settings.handover;
        loop {
            let Some((volume, writer)) = self.other_writer(id).await? else {
                return Ok(());
            };
            let refused = self.refusal(id, number).await?;
            if refused.is_some() || env::now() >= deadline {
                return Err(ClusterError::Elsewhere {
                    asked,
                    volume,
                    node: writer.node,
                    used: refused.map_or(String::new(), |it| it.describe()),
                });
            }
            env::sleep(LOOK).await;
        }
    }

    /// What the node that has the volume says to this want.
    async fn refusal(&self, id: VolumeId, number: u64) -> Result<Option<InUseThere>, ClusterError> {
        let found = self.images.meta.get(&answer_key(id)).await?;
        let answer = found.and_then(|it| serde_json::from_slice::<InUseThere>(&it.value).ok());
        Ok(answer.filter(|it| it.number == number))
    }

    /// Puts a key that goes with this node. Is it there?
    async fn note(&self, key: String, value: Vec<u8>) -> bool {
        if self.lease.get().is_none() {
            self.keep_lease().await;
        }
        let lease = self.lease.get();
        // Without one it would stay for good.
        if lease.is_none() {
            return false;
        }
        let put = Op::Put { key, value, lease };
        let put = self.images.meta.txn(Vec::new(), vec![put]).await;
        put.inspect_err(|error| tracing::debug!(%error, "a note is not there"))
            .is_ok()
    }

    /// Takes a volume over from another node whose clients of it sent nothing for `idle`, and keeps it open here for a minute.
    ///
    /// # Errors
    /// [`ClusterError::Elsewhere`] if they did; as for [`Cluster::open`].
    pub async fn take_over(&self, name: &Name, idle: Nanos) -> Result<(), ClusterError> {
        let id = self.find(name).await?;
        let _alone = self.alone(id).await;
        if self.other_writer(id).await?.is_some() {
            self.claim("take over", id, Some(idle)).await?;
        }
        let in_use = self.open_alone(id).await?;
        env::spawn(async move {
            env::sleep(KEPT).await;
            drop(in_use);
        });
        Ok(())
    }

    // --- where it is open -------------------------------------------------------------------------

    pub(super) async fn answer_wants(&self) {
        if self.open.borrow().is_empty() {
            return;
        }
        let wants = match whole_range(&*self.images.meta, WANTS).await {
            Ok((wants, _)) => wants,
            Err(error) => return tracing::debug!(%error, "it is unknown which volumes are wanted"),
        };
        for entry in wants {
            let text = entry.key.strip_prefix(WANTS).unwrap_or_default();
            let number = crate::names::hex(text, 8).and_then(|it| u32::try_from(it).ok());
            let want = serde_json::from_slice::<Want>(&entry.value);
            let (Some(number), Ok(want)) = (number, want) else {
                continue;
            };
            let slot = self.slot(VolumeId(number));
            if let Some(slot) = slot.filter(|_| want.node != self.node().as_str()) {
                self.answer_want(&slot, &want).await;
            }
        }
    }

    /// Gives a volume up that no client here needs, or says which do.
    async fn answer_want(&self, slot: &Rc<Slot>, want: &Want) {
        let (users, idle) = (slot.users(), slot.volume().idle_for());
        if !may_go(slot, want) {
            let answer = InUseThere {
                number: want.number,
                users,
                idle_ms: idle.map(millis),
            };
            if slot.answered.replace(want.number) != want.number {
                let value = serde_json::to_vec(&answer).expect("plain data");
                if !self.note(answer_key(slot.id()), value).await {
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
        let Some(own) = self.own.upgrade() else {
            return;
        };
        let (slot, want) = (Rc::clone(slot), want.clone());
        env::spawn(async move {
            let _alone = own.alone(slot.id()).await;
            let stands = own.stands(slot.id(), &want).await;
            // Clients may have come, or come back, while this waited.
            if stands && slot.volume().is_open() && may_go(&slot, &want) {
                if let Err(error) = own.close_slot(&slot).await {
                    tracing::warn!(volume = %slot.name(), %error, "given up, and not all is settled");
                }
            } else {
                slot.wanted.set(false);
            }
        });
    }
}
