//! Which certificates are revoked, for all nodes of the cluster?
//!
//! ```text
//! revoke -> revoked/<serial> = {"version":1,"whose":"node n2"}
//! follow -> what is there, then each change as it comes -> the caller's set
//! ```
//!
//! Always true:
//! 1. What was seen as revoked stays so for a follower, whatever becomes of the meta store.
//! 2. A record that cannot be read revokes its number all the same.

use std::collections::BTreeSet;
use std::rc::Rc;

use base::Nanos;
use serde::{Deserialize, Serialize};
use tls::Serial;

use crate::meta::{Compare, Event, MetaError, MetaStore, Op, Outcome, Revision, whole_range};

const REVOKED: &str = "revoked/";
/// Between two tries to look where the meta store does not answer.
const AGAIN: Nanos = Nanos::millis(250);

/// What a record says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    version: u32,
    /// Whose certificate it was, for people.
    whose: String,
}

/// The revoked certificates, by their records.
#[derive(Clone)]
pub struct Revocations {
    meta: Rc<dyn MetaStore>,
}

fn serial_of(key: &str) -> Option<Serial> {
    Serial::parse(key.strip_prefix(REVOKED)?)
}

impl Revocations {
    /// Those of the cluster whose records are in `meta`.
    pub fn new(meta: Rc<dyn MetaStore>) -> Revocations {
        Revocations { meta }
    }

    /// Revokes a certificate; one that is revoked already stays so.
    ///
    /// # Errors
    /// [`MetaError`].
    pub async fn revoke(&self, serial: &Serial, whose: &str) -> Result<(), MetaError> {
        let key = format!("{REVOKED}{serial}");
        let record = Record {
            version: 1,
            whose: whose.to_owned(),
        };
        let put = Op::Put {
            key: key.clone(),
            value: serde_json::to_vec(&record).expect("plain data"),
            lease: None,
        };
        match self.meta.txn(vec![Compare::Absent(key)], vec![put]).await? {
            Outcome::Done(_) | Outcome::Refused(_) => Ok(()),
        }
    }

    /// Gives `hear` each number that is revoked, those of now first, then each as it comes. Only ends with its future.
    pub async fn follow(&self, mut hear: impl FnMut(BTreeSet<Serial>)) -> std::convert::Infallible {
        loop {
            if let Err(error) = self.follow_once(&mut hear).await {
                tracing::debug!(%error, "revoked certificates are not heard of");
            }
            env::sleep(AGAIN).await;
        }
    }

    async fn follow_once(&self, hear: &mut impl FnMut(BTreeSet<Serial>)) -> Result<(), MetaError> {
        let (entries, revision) = whole_range(&*self.meta, REVOKED).await?;
        hear(entries.iter().filter_map(|it| serial_of(&it.key)).collect());
        let mut watch = self.meta.watch(REVOKED, Revision(revision.0 + 1)).await?;
        loop {
            let events = watch.next().await?;
            let put = events.iter().filter_map(|event| match event {
                Event::Put(entry) => serial_of(&entry.key),
                Event::Deleted { .. } => None,
            });
            hear(put.collect());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::meta::{Faults, MemoryMetaStore};

    fn serial(text: &str) -> Serial {
        Serial::parse(text).expect("digits")
    }

    #[test]
    fn a_follower_hears_what_was_revoked_before_and_what_is_within_a_second() {
        env::Runtime::simulated(1).block_on(async {
            let store = MemoryMetaStore::new("memory");
            let (here, there) = (store.client(), store.client());
            let by = Revocations::new(here.clone());
            by.revoke(&serial("a1"), "node n2").await.expect("revoked");
            by.revoke(&serial("a1"), "node n2").await.expect("again");
            let heard: Rc<RefCell<BTreeSet<Serial>>> = Rc::default();
            let (follower, all) = (Revocations::new(there.clone()), Rc::clone(&heard));
            env::spawn(async move {
                let hear = |more: BTreeSet<Serial>| all.borrow_mut().extend(more);
                match follower.follow(hear).await {}
            });
            env::sleep(Nanos::secs(1)).await;
            assert_eq!(*heard.borrow(), BTreeSet::from([serial("a1")]));
            by.revoke(&serial("b2"), "account x")
                .await
                .expect("revoked");
            env::sleep(Nanos::secs(1)).await;
            assert!(heard.borrow().contains(&serial("b2")));
            // Out of reach: what comes meanwhile is heard within a second of the way back.
            there.set_faults(Faults {
                refused: true,
                ..Faults::default()
            });
            env::sleep(Nanos::secs(3)).await;
            by.revoke(&serial("c3"), "node n3").await.expect("revoked");
            there.set_faults(Faults::default());
            env::sleep(Nanos::secs(1)).await;
            assert_eq!(heard.borrow().len(), 3);
            // A record that says nothing, and a key that is no number.
            for key in ["revoked/d4", "revoked/what"] {
                let put = Op::Put {
                    key: key.to_owned(),
                    value: b"junk".to_vec(),
                    lease: None,
                };
                here.txn(vec![], vec![put]).await.expect("put");
            }
            env::sleep(Nanos::secs(1)).await;
            assert_eq!(heard.borrow().len(), 4);
        });
    }
}
