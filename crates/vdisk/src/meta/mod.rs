//! Small records that all nodes agree on: which volumes there are, who writes them, which stores are in sync.
//!
//! ```text
//! get, range -> entries, each with the revision of its last change
//! txn(compares, ops) -> all ops if every compare holds, else none, in one step
//! watch(prefix, revision) -> every change since, in order, none missing
//! lease(ttl) -> keys put under it vanish when nobody keeps it
//! ```
//!
//! Values are bytes; who writes a record says what they mean. Keys are text, ordered by their bytes.
//!
//! Always true:
//! 1. Transactions take effect in one order, the same for all who look, and each has a greater revision than all before it.
//! 2. A transaction whose outcome is unknown ([`MetaError::Unknown`]) took effect whole or not at all.
//! 3. A key under a lease is there for at least the lease's time since it was last kept, unless it is deleted.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use base::Nanos;

/// The answer of a meta store, some time.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, MetaError>> + 'a>>;

/// Counts the transactions that changed anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A lease: what is put under it lasts as long as somebody keeps it.
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
    /// The key was last changed by this transaction.
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

/// What became of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Its changes are durable.
    Done(Revision),
    /// A compare did not hold; what its keys hold, in the order of the compares.
    Refused(Vec<Option<Entry>>),
}

/// A change that somebody made.
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
    /// The next changes, in order; waits until there are some.
    ///
    /// # Errors
    /// [`MetaError::Compacted`] if changes were forgotten before they were seen: read the range again and watch
    /// from there.
    fn next(&mut self) -> Pending<'_, Vec<Event>>;
}

/// Where the records are. Held as `Rc<dyn MetaStore>`; lives on one thread.
pub trait MetaStore {
    /// What a key holds.
    ///
    /// # Errors
    /// [`MetaError::Unavailable`], [`MetaError::Bad`].
    fn get<'a>(&'a self, key: &'a str) -> Pending<'a, Option<Entry>>;

    /// At most `most` entries whose keys begin with `prefix` and come behind `after`.
    ///
    /// # Errors
    /// As for [`MetaStore::get`].
    fn range<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        most: usize,
    ) -> Pending<'a, Page>;

    /// Does all of `ops` if all of `compares` hold, else nothing.
    ///
    /// # Errors
    /// [`MetaError::Unavailable`]: nothing was done; [`MetaError::Unknown`]: all or nothing was; [`MetaError::NoLease`].
    fn txn(&self, compares: Vec<Compare>, ops: Vec<Op>) -> Pending<'_, Outcome>;

    /// Every change of keys that begin with `prefix`, from the transaction `from` on (that one included).
    ///
    /// # Errors
    /// As for [`MetaStore::get`].
    fn watch<'a>(&'a self, prefix: &'a str, from: Revision) -> Pending<'a, Box<dyn Watch>>;

    /// A new lease that lasts for `ttl` unless it is kept.
    ///
    /// # Errors
    /// As for [`MetaStore::get`].
    fn lease(&self, ttl: Nanos) -> Pending<'_, LeaseId>;

    /// Begins the time of a lease again; answers how long it lasts from the moment this was *asked*.
    ///
    /// # Errors
    /// [`MetaError::NoLease`] if it has run out.
    fn keep(&self, lease: LeaseId) -> Pending<'_, Nanos>;

    /// Ends a lease and removes what is under it.
    ///
    /// # Errors
    /// As for [`MetaStore::keep`].
    fn revoke(&self, lease: LeaseId) -> Pending<'_, ()>;
}

/// Why a meta store did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MetaError {
    /// Nobody answered, and nothing was done.
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
        "nobody knows whether the meta store {store} did this: {asked}: {why}; read it again and see"
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
