//! What is asked of a volume on any node is done by the node that has it open.
//!
//! ```text
//! asker: ask/<volume>/<name> = what, under a lease of its own ... answer/<name>, until it comes or the owner is gone
//! owner: each second: ask/ of volumes that are open here -> taken (deleted) -> done -> answer/<name>, under its lease
//! ```
//!
//! Always true:
//! 1. What is asked is done at most once, and by the node that is asked alone: it has deleted the question first.
//! 2. An asker that withdraws its question knows that it was not done; else it says that it may have been.

use std::rc::Rc;

use base::Nanos;
use serde::{Deserialize, Serialize};

use super::ClusterError;
use super::local::LocalVolumes;
use super::node::Node;
use super::set::{CapChange, Setting};

use crate::meta::{Compare, LeaseId, Op, Outcome, whole_range};
use crate::names::{StoreNumber, VolumeId, hex};
use crate::record::{Fairness, Name, OnMetaLoss, PriorityClass, read};

const ASKS: &str = "ask/";
const ANSWERS: &str = "answer/";
const VERSION: u32 = 1;
/// Between two looks for an answer.
const LOOK: Nanos = Nanos::millis(200);
/// An owner takes a question within a second or two, or does not know such questions.
const TAKEN_WITHIN: Nanos = Nanos::secs(10);
/// An owner that is up and has not answered by then may still do it.
const TIMEOUT: Nanos = Nanos::secs(90);
/// An answer that is not fetched is gone after this.
const KEPT: Nanos = Nanos::secs(60);

/// What can be asked of the node that has a volume open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Request {
    Snapshot {
        name: Name,
    },
    Resize {
        size: u64,
        shrink: bool,
    },
    Set {
        priority: Option<PriorityClass>,
        fairness: Option<Fairness>,
        min_copies: Option<u8>,
        /// Empty: under nothing any more.
        holder: Option<String>,
        on_meta_loss: Option<OnMetaLoss>,
        /// Left out where they stay: older nodes know no caps.
        #[serde(default, skip_serializing_if = "CapChange::is_empty")]
        caps: CapChange,
    },
    /// Go on without a store that is gone for good.
    GiveUp {
        store: u16,
    },
}

impl Request {
    /// What is asked of a volume, in words.
    fn in_words(&self) -> &'static str {
        match self {
            Request::Snapshot { .. } => "take a snapshot",
            Request::Resize { .. } => "change the size",
            Request::Set { .. } => "change the settings",
            Request::GiveUp { .. } => "go on without a store",
        }
    }
}

impl From<&Setting> for Request {
    fn from(setting: &Setting) -> Request {
        let holder = setting.holder.clone();
        Request::Set {
            priority: setting.priority,
            fairness: setting.fairness,
            min_copies: setting.min_isr,
            holder: holder.map(Option::unwrap_or_default),
            on_meta_loss: setting.on_meta_loss,
            caps: setting.caps,
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AskRecord {
    version: u32,
    from: String,
    /// The node that is asked: no other takes it.
    to: String,
    request: Request,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerRecord {
    version: u32,
    /// Nothing: it is done.
    refused: Option<String>,
}

/// How a question to another node ended.
enum Asked {
    Done,
    /// It was not taken, and never will be.
    Withdrawn,
}

fn encoded(record: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(record).expect("a record is plain data")
}

/// What this node asks of others, and they of it.
pub(super) struct Forward {
    node: Rc<Node>,
    local: Rc<LocalVolumes>,
}

impl Forward {
    pub fn new(node: &Rc<Node>, local: &Rc<LocalVolumes>) -> Rc<Forward> {
        Rc::new(Forward {
            node: Rc::clone(node),
            local: Rc::clone(local),
        })
    }

    /// The other node that is up and has the volume open.
    async fn owner_of(&self, id: VolumeId) -> Result<Option<String>, ClusterError> {
        let writer = self.node.meta.other_writer(id).await?;
        Ok(writer.map(|(_, writer)| writer.node))
    }

    /// Has the node that has the volume open do it; `false`: no other node has it, so it is to be done here.
    ///
    /// # Errors
    /// [`ClusterError::Refused`] with what that node said; [`ClusterError::NoAnswer`] or [`ClusterError::Unheard`] if it may have
    /// been done.
    pub async fn forward(
        &self,
        name: &Name,
        id: VolumeId,
        request: Request,
    ) -> Result<bool, ClusterError> {
        while let Some(node) = self.owner_of(id).await? {
            match self.ask(&node, id, name, &request).await? {
                Asked::Done => return Ok(true),
                // It closed the volume meanwhile, or is gone.
                Asked::Withdrawn => {}
            }
        }
        Ok(false)
    }

    async fn ask(
        &self,
        node: &str,
        id: VolumeId,
        name: &Name,
        request: &Request,
    ) -> Result<Asked, ClusterError> {
        let meta = &self.node.meta.images.meta;
        let mut rng = env::rng("ask");
        let unique = format!("{}-{:016x}", self.node.name(), rng.bits());
        let ask = AskRecord {
            version: VERSION,
            from: self.node.name().to_string(),
            to: node.to_owned(),
            request: request.clone(),
        };
        let lease = meta.lease(TIMEOUT).await?;
        let asked = self
            .ask_under(
                lease,
                &format!("{ASKS}{id}/{unique}"),
                &unique,
                encoded(&ask),
            )
            .await;
        let outcome = match asked {
            Ok(()) => self.answer_of(node, id, name, &unique).await,
            Err(error) => Err(error),
        };
        let _ = meta.revoke(lease).await;
        // From here on the question may have been taken, and only the meta store knows.
        outcome.map_err(|error| match error {
            ClusterError::Meta(source) => ClusterError::Unheard {
                node: node.to_owned(),
                volume: name.clone(),
                asked: request.in_words(),
                source: Box::new(source),
            },
            other => other,
        })
    }

    async fn ask_under(
        &self,
        lease: LeaseId,
        key: &str,
        unique: &str,
        value: Vec<u8>,
    ) -> Result<(), ClusterError> {
        let compares = vec![
            Compare::Absent(key.to_owned()),
            Compare::Absent(format!("{ANSWERS}{unique}")),
        ];
        let put = Op::Put {
            key: key.to_owned(),
            value,
            lease: Some(lease),
        };
        self.node.meta.txn(compares, vec![put]).await
    }

    /// Waits for the answer, as long as the node has the volume or has taken the question.
    async fn answer_of(
        &self,
        node: &str,
        id: VolumeId,
        name: &Name,
        unique: &str,
    ) -> Result<Asked, ClusterError> {
        let meta = &self.node.meta.images.meta;
        let key = format!("{ANSWERS}{unique}");
        let begun = env::now();
        let (until, mut taken) = (begun + TIMEOUT, false);
        loop {
            if let Some(entry) = meta.get(&key).await? {
                let answer: AnswerRecord = read(&key, &entry.value)?;
                let _ = meta.txn(Vec::new(), vec![Op::Delete { key }]).await;
                return match answer.refused {
                    None => Ok(Asked::Done),
                    Some(said) => Err(ClusterError::Refused {
                        node: node.to_owned(),
                        said,
                    }),
                };
            }
            let late = env::now() >= until;
            let left = self.owner_of(id).await?.as_deref() != Some(node);
            let idle = !taken && env::now() >= begun + TAKEN_WITHIN;
            if late || left || idle {
                let withdrawn = self.withdraw(id, unique).await?;
                if withdrawn && left {
                    return Ok(Asked::Withdrawn);
                }
                taken = !withdrawn;
                if withdrawn || ((late || left) && meta.get(&key).await?.is_none()) {
                    return Err(ClusterError::NoAnswer {
                        node: node.to_owned(),
                        volume: name.clone(),
                        taken,
                    });
                }
            }
            env::sleep(LOOK).await;
        }
    }

    /// Takes a question back. `false`: it was taken already.
    async fn withdraw(&self, id: VolumeId, unique: &str) -> Result<bool, ClusterError> {
        let key = format!("{ASKS}{id}/{unique}");
        let compares = vec![Compare::Present(key.clone())];
        let ops = vec![Op::Delete { key }];
        match self.node.meta.images.meta.txn(compares, ops).await? {
            Outcome::Done(_) => Ok(true),
            Outcome::Refused(_) => Ok(false),
        }
    }

    // --- the owner ----------------------------------------------------------------------------------

    /// Does what other nodes ask of volumes that are open here.
    pub async fn answer_others(self: &Rc<Self>) -> Result<(), ClusterError> {
        if self.node.slots.is_empty() {
            return Ok(());
        }
        let (entries, _) = whole_range(&*self.node.meta.images.meta, ASKS).await?;
        for entry in entries {
            let Some((id, unique)) = parsed(&entry.key) else {
                continue;
            };
            let is_own = read::<AskRecord>(&entry.key, &entry.value);
            let is_own = is_own.map_or(true, |ask| ask.to == self.node.name().as_str());
            if !is_own || self.node.slots.get(id).is_none() {
                continue;
            }
            let compares = vec![Compare::Unchanged(entry.key.clone(), entry.changed)];
            let key = entry.key.clone();
            let taken = self
                .node
                .meta
                .images
                .meta
                .txn(compares, vec![Op::Delete { key }]);
            if !matches!(taken.await?, Outcome::Done(_)) {
                continue;
            }
            let (unique, value) = (unique.to_owned(), entry.value);
            let own = Rc::clone(self);
            env::spawn(async move { own.answer(id, &unique, &value).await });
        }
        Ok(())
    }

    async fn answer(&self, id: VolumeId, unique: &str, value: &[u8]) {
        let done = match read::<AskRecord>(ASKS, value) {
            Ok(ask) => {
                tracing::info!(volume = %id, node = ask.from, "asked by another node");
                self.do_here(id, &ask.request).await
            }
            Err(error) => Err(error.into()),
        };
        let answer = AnswerRecord {
            version: VERSION,
            refused: done.err().map(|error| error.to_string()),
        };
        let sent = async {
            let meta = &self.node.meta.images.meta;
            let lease = meta.lease(KEPT).await?;
            let put = Op::Put {
                key: format!("{ANSWERS}{unique}"),
                value: encoded(&answer),
                lease: Some(lease),
            };
            meta.txn(Vec::new(), vec![put]).await
        };
        if let Err(error) = sent.await {
            tracing::warn!(volume = %id, %error, "another node does not hear what became of what it asked");
        }
    }

    async fn do_here(&self, id: VolumeId, request: &Request) -> Result<(), ClusterError> {
        let name = self.node.meta.images.volume(id).await?.record.name;
        match request.clone() {
            Request::Snapshot { name: snapshot } => self.local.snapshot(id, &name, &snapshot).await,
            Request::Resize { size, shrink } => self.local.resize(id, &name, size, shrink).await,
            Request::Set {
                priority,
                fairness,
                min_copies,
                holder,
                on_meta_loss,
                caps,
            } => {
                let setting = Setting {
                    priority,
                    fairness,
                    min_isr: min_copies,
                    holder: holder.map(|it| Some(it).filter(|it| !it.is_empty())),
                    on_meta_loss,
                    caps,
                };
                self.local.set(id, &setting).await
            }
            Request::GiveUp { store } => {
                let store = StoreNumber(store);
                self.local.give_up(id, &name, store).await
            }
        }
    }
}

/// The volume that is asked for, and the name of the question.
fn parsed(key: &str) -> Option<(VolumeId, &str)> {
    let (volume, unique) = key.strip_prefix(ASKS)?.split_once('/')?;
    Some((VolumeId(u32::try_from(hex(volume, 8)?).ok()?), unique))
}
