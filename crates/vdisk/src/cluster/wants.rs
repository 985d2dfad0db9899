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

use base::Nanos;
use serde::{Deserialize, Serialize};

use super::ClusterError;
use super::records::MetaRecords;
use crate::meta::{LeaseId, MetaError, Op};
use crate::names::VolumeId;

/// Between two looks whether a volume is wanted that is open here.
pub(super) const LOOK_FOR_WANTS: Nanos = Nanos::millis(500);
/// Between two looks at a record that another node is about to let go.
const LOOK: Nanos = Nanos::millis(250);
/// Before the number of the volume that is wanted.
pub(super) const WANTS: &str = "want/";

/// A node wants a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Want {
    /// The only one of its kind: the answer has it.
    pub number: u64,
    pub node: String,
    /// It takes the volume from clients that were idle for so long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_idle_ms: Option<u64>,
}

/// Why a volume is not given up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct InUseThere {
    /// Of the want.
    pub number: u64,
    pub users: u64,
    /// Since the last request of a client; `None`: one is under way.
    pub idle_ms: Option<u64>,
}

pub(super) fn millis(span: Nanos) -> u64 {
    span.0 / 1_000_000
}

fn want_key(id: VolumeId) -> String {
    format!("{WANTS}{id}")
}

pub(super) fn answer_key(id: VolumeId) -> String {
    format!("in-use/{id}")
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

/// What this node wants.
pub(super) struct Claims {
    meta: MetaRecords,
    /// How long another node may take to close a volume.
    handover: Nanos,
}

impl Claims {
    pub fn new(meta: MetaRecords, handover: Nanos) -> Claims {
        Claims { meta, handover }
    }

    /// Waits until no other node that is up has the volume: one that does not need it lets it go, and one that does says so.
    pub async fn wait_for_others(
        &self,
        asked: &'static str,
        id: VolumeId,
    ) -> Result<(), ClusterError> {
        if self.meta.other_writer(id).await?.is_none() {
            return Ok(());
        }
        self.claim(asked, id, None).await
    }

    /// Says that the volume is wanted here, waits until it is free or refused, and takes that back.
    pub async fn claim(
        &self,
        asked: &'static str,
        id: VolumeId,
        from_idle: Option<Nanos>,
    ) -> Result<(), ClusterError> {
        let want = Want {
            number: env::rng("want").bits(),
            node: self.meta.node.to_string(),
            from_idle_ms: from_idle.map(millis),
        };
        let lease = self.put_want(id, &want).await;
        if let Err(error) = &lease {
            tracing::debug!(volume = %id, %error, "that it is wanted is not said");
        }
        let answer = self.until_free(asked, id, want.number).await;
        // Takes this want away, and none that another node put in its place.
        if let Ok(lease) = lease
            && let Err(error) = self.meta.images.meta.revoke(lease).await
        {
            tracing::debug!(volume = %id, %error, "the want goes when its lease runs out");
        }
        answer
    }

    /// Says that a volume is wanted, under a lease that lasts about as long as is waited.
    async fn put_want(&self, id: VolumeId, want: &Want) -> Result<LeaseId, MetaError> {
        let meta = &self.meta.images.meta;
        let lease = meta.lease(self.handover + LOOK_FOR_WANTS).await?;
        let put = Op::Put {
            key: want_key(id),
            value: serde_json::to_vec(want).expect("plain data"),
            lease: Some(lease),
        };
        meta.txn(Vec::new(), vec![put]).await?;
        Ok(lease)
    }

    /// Is a want still there?
    pub async fn stands(&self, id: VolumeId, want: &Want) -> bool {
        let found = self.meta.images.meta.get(&want_key(id)).await;
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
        let deadline = env::now() + self.handover;
        loop {
            let Some((volume, writer)) = self.meta.other_writer(id).await? else {
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
        let found = self.meta.images.meta.get(&answer_key(id)).await?;
        let answer = found.and_then(|it| serde_json::from_slice::<InUseThere>(&it.value).ok());
        Ok(answer.filter(|it| it.number == number))
    }
}
