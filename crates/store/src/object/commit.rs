//! What makes changes durable, all since the last time together.
//!
//! ```text
//! change in memory -> touched -> cut -> flush the device -> one ledger batch -> durable
//!                                 |                             |
//!                     released pages wait here        and are free again here
//! ```
//!
//! One commit carries every change since the last ([`ledger::GroupCommit`]), so a flush costs one flush of the device and one
//! ledger write however many changes and callers it covers. After a failed one changes are refused and reads go on.
//!
//! Always true:
//! 1. A batch names only pages whose data were complete before the cut and flushed before the commit.
//! 2. The state at the cut is the durable state plus the batch.
//! 3. A page is used again only after the commit that forgets it.

use std::rc::Rc;

use base::Nanos;
use ledger::{CommitError, CommitSource, Cut, Ledger, Prepared};

use crate::object::error::StoreError;
use crate::object::parts::Parts;

/// Changes that no client flushes are committed after this long.
const COMMIT_AFTER: Nanos = Nanos::secs(1);

impl CommitSource for Parts {
    fn pending(&self) -> bool {
        self.table.borrow().anything_touched()
    }

    fn cut(&self, ledger: &Ledger) -> Prepared {
        let prepared = {
            let mut table = self.table.change();
            let mut batch = ledger.batch();
            table.take_touched(&mut batch);
            self.space.change().cut();
            ledger.prepare(batch, &mut *table)
        };
        self.room.notify_all();
        prepared
    }

    fn durable(&self, _cut: Cut) {
        self.space.change().committed();
        if self.space.borrow().is_stale(false) {
            self.trim.work.notify_all();
        }
    }
}

/// Makes the commits.
pub(crate) struct Committer(pub Rc<Parts>);

impl Committer {
    /// The task: one commit of `source` after the other, as asked for or after a while.
    pub async fn run(self, source: Rc<dyn CommitSource>) {
        let commit = &self.0.commit;
        while commit.due(COMMIT_AFTER).await {
            if let Err(why) = commit.round(&*source).await {
                self.failed(&why);
            }
            commit.wake();
            self.0.room.notify_all();
        }
    }

    /// Takes no more changes; those that came in until now are made durable.
    pub async fn last(&self) -> Result<(), StoreError> {
        self.0.commit.close();
        self.0.room.notify_all();
        let last = self.0.commit.last(&*self.0).await;
        last.map_err(|why| {
            self.failed(&why);
            self.0.not_durable(&why)
        })
    }

    fn failed(&self, why: &CommitError) {
        tracing::error!(store = %self.0.disk.name, %why, "a commit failed");
        self.0.commit.wake();
        self.0.room.notify_all();
    }
}
