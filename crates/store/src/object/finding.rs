//! What a check finds wrong with a store, as values and in words.

use std::fmt;

use base::Bytes;

/// One thing that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// One of the two superblocks is not whole; the other counts.
    Superblock {
        /// `A` or `B`.
        copy: char,
        /// What is wrong with it.
        why: String,
    },
    /// The ledger is damaged; what is behind the damage may be missing below.
    Ledger {
        /// What it said.
        why: String,
    },
    /// A record is not one that a store writes, or belongs to nothing.
    Record {
        /// Its key.
        key: u64,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Two objects have one name.
    NameTwice {
        /// The name.
        object: String,
        /// Their ids.
        ids: (u32, u32),
    },
    /// A page of the store is in two places.
    PageTwice {
        /// The second object that names it.
        object: String,
        /// Where in it.
        offset: u64,
        /// The page.
        page: u32,
    },
    /// An object names a page the store does not have.
    Outside {
        /// The object.
        object: String,
        /// Where in it.
        offset: u64,
        /// The page.
        page: u32,
        /// Pages of the store.
        pages: u32,
    },
    /// Data lie behind the end of an object.
    Beyond {
        /// The object.
        object: String,
        /// Where in it.
        offset: u64,
        /// Its size.
        size: u64,
    },
    /// More is reserved than is free.
    Space {
        /// All pages.
        total: u64,
        /// Pages of objects.
        used: u64,
        /// Pages of reservations.
        reserved: u64,
    },
    /// Data differ from their checksum, or cannot be read.
    Data(BadBlock),
}

/// A page of an object that is not what was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadBlock {
    /// The object.
    pub object: String,
    /// First byte.
    pub offset: u64,
    /// Length.
    pub len: Bytes,
    /// The page of the store.
    pub page: u32,
    /// What is wrong.
    pub why: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Superblock { copy, why } => write!(f, "superblock {copy} {why}"),
            Finding::Ledger { why } => f.write_str(why),
            Finding::Record { key, why } => write!(f, "the record {key:#x} {why}"),
            Finding::NameTwice { object, ids } => {
                write!(
                    f,
                    "objects {} and {} are both called {object:?}",
                    ids.0, ids.1
                )
            }
            Finding::PageTwice {
                object,
                offset,
                page,
            } => write!(
                f,
                "page {page} is at byte {offset} of {object:?} and in another place too"
            ),
            Finding::Outside {
                object,
                offset,
                page,
                pages,
            } => write!(
                f,
                "byte {offset} of {object:?} is said to be in page {page}, there are {pages}"
            ),
            Finding::Beyond {
                object,
                offset,
                size,
            } => write!(f, "{object:?} has {size} bytes, and data at byte {offset}"),
            Finding::Space {
                total,
                used,
                reserved,
            } => write!(
                f,
                "{used} pages are used and {reserved} reserved, of {total}"
            ),
            Finding::Data(bad) => write!(
                f,
                "{} at byte {} of {:?} (page {}): {}",
                bad.len, bad.offset, bad.object, bad.page, bad.why
            ),
        }
    }
}
