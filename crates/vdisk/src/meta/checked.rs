//! What no meta store takes, whichever it is: asked once, before anything is sent.
//!
//! ```text
//! keys, values, counts, times -> fine | Bad, with the limit
//! ```
//!
//! The limits are those of etcd as it is installed (128 operations, 1.5 MiB for a request), so that what works on one machine
//! works on many.
//!
//! Always true: what passes here fits into one request of etcd.

use base::{Nanos, Set};

use super::{Compare, Entry, MetaError, MetaStore, Op, Revision};

/// The longest key, in bytes.
pub const KEY_MAX: usize = 1024;
/// The longest value, in bytes.
pub const VALUE_MAX: usize = 1024 * 1024;
/// The most a transaction may carry: bytes of all keys and values, those of the compares too.
pub const TXN_BYTES_MAX: usize = VALUE_MAX + 128 * 1024;
/// The most compares of a transaction, and the most operations.
pub const TXN_PARTS_MAX: usize = 128;
/// The most entries of one page.
pub const PAGE_MAX: usize = 1000;
/// The longest time of a lease.
pub const LEASE_MAX: Nanos = Nanos::secs(24 * 60 * 60);

/// What was asked, as errors say it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Asked<'a> {
    Get(&'a str),
    Range(&'a str),
    Txn(&'a [Compare], &'a [Op]),
    Watch(&'a str),
    Lease,
    Keep,
    Revoke,
}

impl std::fmt::Display for Asked<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Asked::Get(key) => write!(f, "read key '{}'", shown(key)),
            Asked::Range(prefix) => write!(f, "list keys under '{}'", shown(prefix)),
            Asked::Txn(compares, ops) => {
                let keys = ops
                    .iter()
                    .map(Op::key)
                    .chain(compares.iter().map(Compare::key));
                match keys.clone().next() {
                    None => write!(f, "do an empty transaction"),
                    Some(first) => {
                        write!(f, "change key '{}'", shown(first))?;
                        match ops.len() {
                            0 | 1 => Ok(()),
                            many => write!(f, " and {} more", many - 1),
                        }
                    }
                }
            }
            Asked::Watch(prefix) => write!(f, "watch keys under '{}'", shown(prefix)),
            Asked::Lease => write!(f, "take a lease"),
            Asked::Keep => write!(f, "keep a lease"),
            Asked::Revoke => write!(f, "end a lease"),
        }
    }
}

/// A key in an error message: escaped, and not endless.
fn shown(key: &str) -> String {
    const MOST: usize = 80;
    let mut text: String = key
        .chars()
        .take(MOST)
        .flat_map(char::escape_debug)
        .collect();
    if key.chars().nth(MOST).is_some() {
        text.push_str("...");
    }
    text
}

impl Compare {
    /// The key that it is about.
    pub fn key(&self) -> &str {
        match self {
            Compare::Absent(key) | Compare::Present(key) | Compare::Unchanged(key, _) => key,
        }
    }
}

impl Op {
    /// Sets a key, which stays.
    pub fn put(key: String, value: Vec<u8>) -> Op {
        Op::Put {
            key,
            value,
            lease: None,
        }
    }

    /// The key that it changes.
    pub fn key(&self) -> &str {
        match self {
            Op::Put { key, .. } | Op::Delete { key } => key,
        }
    }
}

impl super::Event {
    /// The key that was changed.
    pub fn key(&self) -> &str {
        match self {
            super::Event::Put(entry) => &entry.key,
            super::Event::Deleted { key, .. } => key,
        }
    }

    /// The transaction that changed it.
    pub fn revision(&self) -> Revision {
        match self {
            super::Event::Put(entry) => entry.changed,
            super::Event::Deleted { revision, .. } => *revision,
        }
    }
}

/// Checks for one store.
pub(super) struct Checked<'a> {
    pub store: &'a str,
    pub asked: Asked<'a>,
}

impl Checked<'_> {
    fn bad(&self, why: String) -> MetaError {
        MetaError::Bad {
            store: self.store.to_owned(),
            asked: self.asked.to_string(),
            why,
        }
    }

    pub fn key(&self, key: &str) -> Result<(), MetaError> {
        match key.len() {
            0 => Err(self.bad("a key has at least one byte".to_owned())),
            len if len > KEY_MAX => Err(self.bad(format!(
                "the key has {len} bytes, at most {KEY_MAX} are possible"
            ))),
            _ => Ok(()),
        }
    }

    pub fn prefix(&self, prefix: &str) -> Result<(), MetaError> {
        if prefix.len() > KEY_MAX {
            return Err(self.bad(format!(
                "the prefix has {} bytes, no key has more than {KEY_MAX}",
                prefix.len()
            )));
        }
        Ok(())
    }

    pub fn page(&self, prefix: &str, most: usize) -> Result<usize, MetaError> {
        self.prefix(prefix)?;
        if most == 0 {
            return Err(
                self.bad("a page of no entries says nothing; ask for one at least".to_owned())
            );
        }
        Ok(most.min(PAGE_MAX))
    }

    pub fn txn(&self, compares: &[Compare], ops: &[Op]) -> Result<(), MetaError> {
        for (what, count) in [("compares", compares.len()), ("operations", ops.len())] {
            if count > TXN_PARTS_MAX {
                return Err(self.bad(format!(
                    "{count} {what} in one transaction, at most {TXN_PARTS_MAX} are possible"
                )));
            }
        }
        let mut bytes = 0;
        for compare in compares {
            self.key(compare.key())?;
            bytes += compare.key().len();
        }
        let mut keys = Set::default();
        for op in ops {
            self.key(op.key())?;
            if !keys.insert(op.key()) {
                return Err(self.bad(format!(
                    "two operations are about key '{}'; leave one",
                    shown(op.key())
                )));
            }
            bytes += op.key().len();
            if let Op::Put { value, .. } = op {
                if value.len() > VALUE_MAX {
                    return Err(self.bad(format!(
                        "the value has {} bytes, at most {VALUE_MAX} are possible; keep big things in a store",
                        value.len()
                    )));
                }
                bytes += value.len();
            }
        }
        if bytes > TXN_BYTES_MAX {
            return Err(self.bad(format!(
                "keys and values have {bytes} bytes together, at most {TXN_BYTES_MAX} are possible in one transaction"
            )));
        }
        Ok(())
    }

    pub fn ttl(&self, ttl: Nanos) -> Result<(), MetaError> {
        if ttl == Nanos(0) || ttl > LEASE_MAX {
            return Err(self.bad(format!(
                "a lease lasts for more than no time and at most {LEASE_MAX}, not {ttl}"
            )));
        }
        Ok(())
    }
}

/// Every entry whose key begins with `prefix`, and a revision: a watch of the prefix from the one behind it has seen all
/// there is, some of it perhaps twice.
///
/// # Errors
/// As for [`MetaStore::range`].
///
/// # Example
/// ```
/// use vdisk::meta::{MetaStore, Op, Revision, MemoryMetaStore, whole_range};
/// # env::Runtime::simulated(1).block_on(async {
/// let meta = MemoryMetaStore::new("memory").client();
/// let put = Op::Put { key: "store/1".into(), value: b"here".to_vec(), lease: None };
/// meta.txn(vec![], vec![put]).await?;
/// let (stores, revision) = whole_range(&*meta, "store/").await?;
/// assert_eq!(stores[0].value, b"here");
/// let changes = meta.watch("store/", Revision(revision.0 + 1)).await?;
/// # drop(changes);
/// # Ok::<(), vdisk::meta::MetaError>(()) }).unwrap();
/// ```
pub async fn whole_range(
    store: &dyn MetaStore,
    prefix: &str,
) -> Result<(Vec<Entry>, Revision), MetaError> {
    let first = store.range(prefix, None, PAGE_MAX).await?;
    let (mut entries, revision, mut more) = (first.entries, first.revision, first.more);
    while more {
        let after = entries.last().map(|entry| entry.key.clone());
        let page = store.range(prefix, after.as_deref(), PAGE_MAX).await?;
        entries.extend(page.entries);
        more = page.more;
    }
    Ok((entries, revision))
}
