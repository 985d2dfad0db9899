//! Why the index did not do what it was asked.

use super::record::RecordError;

/// What a request cannot have. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// No bucket is called so.
    #[error("there is no bucket {0}")]
    NoBucket(String),
    /// It has another owner, or the same.
    #[error("there is a bucket {name} already")]
    BucketExists {
        /// Its name.
        name: String,
        /// Is it the asking account's own?
        own: bool,
    },
    /// It has objects, or versions of some.
    #[error("bucket {0} is not empty: delete its objects first, with all their versions")]
    NotEmpty(String),
    /// The account has as many buckets as it may.
    #[error("an account has at most {0} buckets: delete one first")]
    TooManyBuckets(usize),
    /// No object has this key, or it was deleted.
    #[error("there is no object {0:?}")]
    NoKey(String),
    /// The key has no such version.
    #[error("{key:?} has no version {version}")]
    NoVersion {
        /// The key.
        key: String,
        /// As the client wrote it.
        version: String,
    },
    /// The version is a delete marker.
    #[error("this version of {0:?} is the mark that it was deleted")]
    IsMarker(String),
    /// What the client expects is not so.
    #[error("{0:?} is not as the request expects it")]
    Precondition(String),
    /// No upload is called so, or it has ended.
    #[error("there is no upload {0} of this key: it was completed or ended")]
    NoUpload(String),
    /// The version cannot be removed, or its lock be changed so.
    #[error("the version is locked: {0}")]
    Locked(String),
    /// The bucket has no object lock.
    #[error(
        "the bucket has no object lock: it is set when a bucket is made, or once it has versions"
    )]
    NoLock,
    /// A bucket with object lock has versions always, and one without versions no object lock.
    #[error("object lock needs versions: they are enabled before it, and stay so")]
    LockNeedsVersions,
    /// Access control lists count for nothing in this bucket, and grant something to others.
    #[error("the bucket's list grants something to others: make it private first")]
    HasGrants,
    /// The bucket has as many uploads under way as it may.
    #[error("a bucket has at most {0} uploads under way: complete or end some first")]
    TooManyUploads(usize),
    /// A part that is named did not come, or another one did.
    #[error("part {0} did not come, or its ETag is another one")]
    NoPart(u32),
    /// The parts are not named in their order.
    #[error("parts are to be named by rising number, each once")]
    PartOrder,
    /// The whole has another checksum than was said.
    #[error("the parts together have {found}, and {said} was said")]
    OtherChecksum {
        /// As it is, in base64.
        found: String,
        /// As the request has it.
        said: String,
    },
    /// A part that is not the last one is too short.
    #[error("part {number} has {size} bytes: all but the last have at least {least}")]
    PartTooSmall {
        /// Which.
        number: u32,
        /// Its length.
        size: u64,
        /// What it must have.
        least: u64,
    },
}

/// Why the index does not answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// The request cannot be had.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The database, or what it lies on.
    #[error("the index of the gateway cannot be used: {0}")]
    Database(Box<redb::Error>),
    /// A record is not what was written.
    #[error("a record of the index is damaged: {0}")]
    Record(#[from] RecordError),
    /// There is none, and there should be.
    #[error(
        "the first store has no index, and the stores have bytes of objects: their index is elsewhere or lost; name the stores in \
         the order they had, or bring the right disk back"
    )]
    Lost,
    /// It is of other stores, or of these in another order.
    #[error(
        "the gateway was made over the stores {made}, and {now} are named; name the same ones in the same order: they cannot be \
         changed yet"
    )]
    OtherStores {
        /// Those that it was made over.
        made: String,
        /// Those that are named.
        now: String,
    },
    /// The index of a later program.
    #[error("the index has layout {0}, and this program knows layout {known}; start the program that wrote it", known = super::tables::LAYOUT)]
    Layout(u64),
    /// It is closed, or an earlier change could not be made durable.
    #[error("the index takes no more: {0}")]
    Ended(String),
}

macro_rules! of_database {
    ($($error:ident)*) => {$(
        impl From<redb::$error> for IndexError {
            fn from(error: redb::$error) -> IndexError {
                IndexError::Database(Box::new(error.into()))
            }
        }
    )*};
}

of_database!(Error DatabaseError TransactionError TableError StorageError CommitError);
