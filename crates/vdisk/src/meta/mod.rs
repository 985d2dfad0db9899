//! Small records that all nodes agree on: which volumes there are, who writes them, which stores are in sync.
//!
//! ```text
//! get, range -> entries, each with the revision of its last change
//! txn(compares, ops) -> all ops if every compare holds, else none, in one step
//! watch(prefix, revision) -> every change since, in order, none missing
//! lease(ttl) -> keys put under it vanish when no client keeps it
//! ```
//!
//! Values are bytes; the writer of a record says what they mean. Keys are text, ordered by their bytes.
//!
//! - [`Redb`] in a file, for one node: the default.
//! - [`Etcd`] for several nodes.
//! - [`MemoryMetaStore`] in memory, deterministic in virtual time, with faults on demand: what simulations use.
//!
//! Always true:
//! 1. Transactions take effect in one order, the same for all clients, and each that changes anything has a greater
//!    revision than all before it.
//! 2. A transaction whose outcome is unknown ([`MetaError::Unknown`]) takes effect whole or not at all, once, and
//!    perhaps only after the answer: it may still be on its way.
//! 3. What was answered is seen by every client that asks afterwards.
//! 4. A key under a lease is there for at least the lease's time since it was last kept. It goes sooner if it is deleted, or
//!    if every client that could count on it is known to be gone.
//! 5. Dropping a future that waits changes nothing but which task hears of it: a transaction may be done, a watch loses no
//!    event.

mod checked;
mod etcd;
mod memory;
mod redb;
mod state;

pub use checked::{
    KEY_MAX, LEASE_MAX, PAGE_MAX, TXN_BYTES_MAX, TXN_PARTS_MAX, VALUE_MAX, whole_range,
};
pub use etcd::{Etcd, EtcdConfig, EtcdError, EtcdHandle, EtcdTls};
pub use memory::{Faults, MemoryMetaClient, MemoryMetaStore};
pub use redb::{Redb, RedbError, RedbHandle};

use std::future::Future;
use std::pin::Pin;

use base::Nanos;

/// The answer of a meta store, some time.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, MetaError>> + 'a>>;

pub use replication::swap::Revision;

/// A lease: what is put under it lasts as long as a client keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u64);

/// A key and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// What was put last.
    pub value: Vec<u8>,
    /// The transaction that put the key where there was none.
    pub created: Revision,
    /// The one that put this value.
    pub changed: Revision,
    /// Under which lease.
    pub lease: Option<LeaseId>,
}

/// A part of a range.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// In the order of their keys.
    pub entries: Vec<Entry>,
    /// The store's revision when it was read: watch from the next one on, and nothing is missed.
    pub revision: Revision,
    /// Is there more behind the last one?
    pub more: bool,
}

/// What must be so for a transaction to do anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compare {
    /// There is no such key.
    Absent(String),
    /// The key is there, whatever its value.
    Present(String),
    /// The key was last changed by this transaction; revision 0 stands for a key that is not there.
    Unchanged(String, Revision),
}

/// A change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Sets a key.
    Put {
        /// The key.
        key: String,
        /// Its value.
        value: Vec<u8>,
        /// It vanishes with this lease.
        lease: Option<LeaseId>,
    },
    /// Removes a key; nothing if it is not there.
    Delete {
        /// The key.
        key: String,
    },
}

/// What is to go through in another's transaction, or not at all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TxnPart {
    /// What must hold.
    pub compares: Vec<Compare>,
    /// What is changed then.
    pub ops: Vec<Op>,
}

impl TxnPart {
    /// Both.
    #[must_use]
    pub fn and(mut self, other: TxnPart) -> TxnPart {
        self.compares.extend(other.compares);
        self.ops.extend(other.ops);
        self
    }
}

/// What became of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Its changes are durable. The revision is its own; if it changed nothing (it deleted only what was not there),
    /// the store's.
    Done(Revision),
    /// A compare did not hold; what its keys hold, in the order of the compares, all at one moment.
    Refused(Vec<Option<Entry>>),
}

/// A committed change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A key has a new value.
    Put(Entry),
    /// A key is gone, deleted or with its lease.
    Deleted {
        /// The key.
        key: String,
        /// When.
        revision: Revision,
    },
}

/// Changes as they come.
pub trait Watch {
    /// The next changes, in order; waits until there are some, however long the store cannot be reached.
    ///
    /// Changes of one transaction come together, in the order of its operations; those of a lease that ran out in the
    /// order of their keys. Dropping the future loses none.
    ///
    /// # Errors
    /// [`MetaError::Compacted`] if changes were forgotten before they were seen: read the range again and watch
    /// from there. This watch is then over, and says so each time. [`MetaError::Bad`] if it may not be watched, and
    /// [`MetaError::Unavailable`] if the store is closed for good.
    fn next(&mut self) -> Pending<'_, Vec<Event>>;
}

/// Where the records are. Held as `Rc<dyn MetaStore>`; lives on one thread.
pub trait MetaStore {
    /// What a key holds.
    ///
    /// # Errors
    /// [`MetaError::Unavailable`], [`MetaError::Bad`].
    fn get<'a>(&'a self, key: &'a str) -> Pending<'a, Option<Entry>>;

    /// At most `most` entries whose keys begin with `prefix` and come behind `after`, as they were at one moment.
    ///
    /// A page may end sooner ([`PAGE_MAX`] entries, or some megabytes): `more` says so. An empty prefix is every key.
    /// Pages asked one after another show different moments: [`whole_range`] reads them so that a watch fills the gaps.
    ///
    /// # Errors
    /// As for [`MetaStore::get`]; [`MetaError::Bad`] if `most` is 0.
    fn range<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        most: usize,
    ) -> Pending<'a, Page>;

    /// Does all of `ops` if all of `compares` hold, else nothing. No two of `ops` may be about the same key.
    ///
    /// # Errors
    /// [`MetaError::Unavailable`]: nothing was done and nothing will be; [`MetaError::Unknown`]: all or nothing was, or
    /// still will be; [`MetaError::NoLease`]: the compares hold, but a lease does not, and nothing was done;
    /// [`MetaError::Bad`]: too much at once ([`TXN_PARTS_MAX`], [`VALUE_MAX`], [`TXN_BYTES_MAX`]), a key that none can be.
    fn txn(&self, compares: Vec<Compare>, ops: Vec<Op>) -> Pending<'_, Outcome>;

    /// Every change of keys that begin with `prefix`, from the transaction `from` on (that one included, also one that
    /// is yet to come).
    ///
    /// # Errors
    /// As for [`MetaStore::get`]. [`Watch::next`] fails on what is forgotten already.
    fn watch<'a>(&'a self, prefix: &'a str, from: Revision) -> Pending<'a, Box<dyn Watch>>;

    /// A new lease that lasts for `ttl` from now unless it is kept: count from when this was *asked*. Backends that count
    /// coarsely make it longer, never shorter. Restarts of the store may prolong it.
    ///
    /// # Errors
    /// As for [`MetaStore::get`]; [`MetaError::Bad`] for no time at all or more than [`LEASE_MAX`].
    fn lease(&self, ttl: Nanos) -> Pending<'_, LeaseId>;

    /// Begins the time of a lease again; answers how long it lasts from the moment this was *asked*.
    ///
    /// # Errors
    /// [`MetaError::NoLease`] if it has run out; [`MetaError::Unavailable`] if no answer came: it may have begun again, but
    /// only what was answered may be counted on.
    fn keep(&self, lease: LeaseId) -> Pending<'_, Nanos>;

    /// Is a key that went with its lease a proof that no client counts on the lease any more, by rule 4? Else a caller that needs
    /// one waits as long as a lease lasts.
    fn leases_are_proof(&self) -> bool {
        true
    }

    /// Ends a lease and removes what is under it, in one transaction.
    ///
    /// # Errors
    /// [`MetaError::NoLease`] if it has run out; [`MetaError::Unavailable`], [`MetaError::Unknown`] as for
    /// [`MetaStore::txn`].
    fn revoke(&self, lease: LeaseId) -> Pending<'_, ()>;
}

/// Why a meta store did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MetaError {
    /// No answer came, and nothing was done.
    #[error("cannot {asked} in the meta store {store}: {why}; nothing was changed")]
    Unavailable {
        /// Which.
        store: String,
        /// What was to be done.
        asked: String,
        /// What stood in the way.
        why: String,
    },
    /// It was sent, and no answer came.
    #[error(
        "it is unknown whether the meta store {store} did this: {asked}: {why}; read it again and see"
    )]
    Unknown {
        /// Which.
        store: String,
        /// What was to be done.
        asked: String,
        /// What stood in the way.
        why: String,
    },
    /// The lease is not there: it ran out, or never was.
    #[error("lease {} of the meta store {store} has run out or never was; take a new one", lease.0)]
    NoLease {
        /// Which.
        store: String,
        /// The lease.
        lease: LeaseId,
    },
    /// Changes that were asked for are forgotten.
    #[error(
        "the meta store {store} has forgotten changes before revision {oldest}; read the range and watch from there"
    )]
    Compacted {
        /// Which.
        store: String,
        /// The first one it still has.
        oldest: Revision,
    },
    /// What was asked can never be done.
    #[error("cannot {asked} in the meta store {store}: {why}")]
    Bad {
        /// Which.
        store: String,
        /// What was to be done.
        asked: String,
        /// What is wrong with it.
        why: String,
    },
}
