//! The index of a gateway: which buckets there are, which versions of which objects, and where their bytes lie.
//!
//! ```text
//! looks    -> a transaction of their own, on the thread that asks
//! changes  -> the index's thread -> one commit for all that wait -> answers
//! Database (redb) -> Backend -> Disk: an object of a store, or a virtual disk
//! ```
//!
//! - `record` the values, `settings` and `lock` what of them is set for buckets and versions; `tables` what there is; `transaction` and `uploads` how it changes; `listing` what a listing has.
//! - `writer` the thread; `disk` what the database lies on.
//!
//! Always true:
//! 1. A look sees the state after some commit, with all that was answered before it.
//! 2. A change is durable when it is answered well.

mod disk;
mod error;
mod in_use;
mod listing;
pub mod lock;
pub mod record;
pub mod settings;
mod tables;
#[cfg(test)]
mod tests;
mod transaction;
mod uploads;
mod writer;

use std::io;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::{Database, ReadTransaction, ReadableDatabase, ReadableTable};
use tokio::sync::oneshot;

use disk::Backend;
use record::{BlobRef, Bucket, Part, Upload, VersionId, decode};
use tables::{ABOUT, BLOBS, BUCKETS, COUNTERS, DEAD, LAYOUT, OBJECTS, PARTS, UPLOADS};
use writer::{Answer, Job, Writer};

pub use disk::{Disk, Ranges};
pub use error::{IndexError, Refused};
pub use in_use::{InUse, Use};
pub use listing::{Listed, Wanted};
pub use tables::Found;
pub use transaction::{BUCKETS_MAX, Condition, DeleteIf, Deleted, Transaction};
pub(crate) use uploads::hex;
pub use uploads::{NamedPart, PART_MIN, PARTS_MAX, UploadRef, Uploads, composite};

/// How much of the index is in memory unless asked otherwise: 64 MiB.
pub const CACHE: usize = 64 << 20;

/// An open index. It is closed when dropped, and waits for that.
pub struct Index {
    // Its thread has the database, too.
    writer: Writer,
    database: Arc<Database>,
    in_use: Arc<InUse>,
    /// The stores have little room left.
    full: AtomicBool,
}

type Done<T> = Result<T, IndexError>;

impl Index {
    /// Opens the index on `disk`, or makes one where nothing is, for what lies in `stores`, by their identities. Waits for the
    /// disk.
    ///
    /// # Errors
    /// [`IndexError::Lost`] if there is none and the stores have bytes of objects; [`IndexError::OtherStores`] if it is of
    /// others; [`IndexError::Layout`] if a later program wrote it; else the disk or the database.
    ///
    /// # Example
    /// ```no_run
    /// # fn open(disk: impl s3::Disk) -> Result<(), s3::IndexError> {
    /// let index = s3::Index::open(disk, s3::CACHE, "s0")?;
    /// assert!(index.bucket("photos")?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn open(disk: impl Disk, cache: usize, stores: &str) -> Done<Index> {
        forget_unfinished(&disk)?;
        if disk.length()? == 0 && disk.has_blobs()? {
            return Err(IndexError::Lost);
        }
        let backend = Backend::new(disk).map_err(redb::Error::from)?;
        let mut builder = Database::builder();
        builder.set_cache_size(cache);
        let database = builder.create_with_backend(backend)?;
        format(&database, stores)?;
        let database = Arc::new(database);
        let begun = Writer::begin(Arc::clone(&database));
        let writer = begun.map_err(|error| IndexError::from(redb::Error::from(error)))?;
        Ok(Index {
            writer,
            database,
            in_use: Arc::default(),
            full: AtomicBool::new(false),
        })
    }

    // --- looks ----------------------------------------------------------------------------------------

    /// The bucket of this name.
    ///
    /// # Errors
    /// The database, or a record. So do all looks.
    pub fn bucket(&self, name: &str) -> Done<Option<Bucket>> {
        tables::bucket(&self.look()?.open_table(BUCKETS)?, name)
    }

    /// All buckets, or those of an account, by name.
    pub fn buckets(&self, owner: Option<&str>) -> Done<Vec<(String, Bucket)>> {
        let table = self.look()?.open_table(BUCKETS)?;
        let mut found = Vec::new();
        for row in table.iter()? {
            let (name, value) = row?;
            let bucket: Bucket = decode(value.value())?;
            if owner.is_none_or(|it| bucket.owner == it) {
                found.push((name.value().to_owned(), bucket));
            }
        }
        Ok(found)
    }

    /// The newest version of a key, or the one that is named; delete markers, too.
    pub fn version(&self, bucket: u64, key: &str, id: Option<VersionId>) -> Done<Option<Found>> {
        let table = self.look()?.open_table(OBJECTS)?;
        match id {
            None => tables::newest(&table, bucket, key),
            Some(id) => tables::named(&table, bucket, key, id),
        }
    }

    /// A part of what a bucket has.
    pub fn list(&self, bucket: u64, wanted: &Wanted) -> Done<Listed> {
        listing::list(&self.look()?.open_table(OBJECTS)?, bucket, wanted)
    }

    /// An upload that is under way, without its parts.
    ///
    /// # Errors
    /// [`Refused::NoUpload`].
    pub fn begun(&self, bucket: u64, key: &str, id: &str) -> Done<Upload> {
        let table = self.look()?.open_table(UPLOADS)?;
        let found = table.get((bucket, key.as_bytes(), id))?;
        let found = found.ok_or_else(|| Refused::NoUpload(id.to_owned()))?;
        Ok(decode(found.value())?)
    }

    /// An upload that is under way, and all its parts by number.
    ///
    /// # Errors
    /// [`Refused::NoUpload`].
    pub fn upload(&self, bucket: u64, key: &str, id: &str) -> Done<(Upload, Vec<(u32, Part)>)> {
        let look = self.look()?;
        let uploads = look.open_table(UPLOADS)?;
        let found = uploads.get((bucket, key.as_bytes(), id))?;
        let found = found.ok_or_else(|| Refused::NoUpload(id.to_owned()))?;
        let upload = decode(found.value())?;
        let mut parts = Vec::new();
        for row in look.open_table(PARTS)?.range((id, 0)..=(id, u32::MAX))? {
            let (at, part) = row?;
            parts.push((at.value().1, decode(part.value())?));
        }
        Ok((upload, parts))
    }

    /// The uploads of a bucket, by key and name.
    pub fn uploads(&self, bucket: u64) -> Done<Vec<(String, String, Upload)>> {
        let table = self.look()?.open_table(UPLOADS)?;
        let mut found = Vec::new();
        for row in table.range((bucket, &[][..], "")..(bucket + 1, &[][..], ""))? {
            let (at, upload) = row?;
            let (_, key, id) = at.value();
            let key = String::from_utf8_lossy(key).into_owned();
            found.push((key, id.to_owned(), decode(upload.value())?));
        }
        Ok(found)
    }

    /// Up to `most` blobs whose bytes are to be deleted, behind the one called `after`.
    pub fn dead(&self, after: Option<&str>, most: usize) -> Done<Vec<BlobRef>> {
        let table = self.look()?.open_table(DEAD)?;
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let rows = table.range::<&str>((from, Bound::Unbounded))?.take(most);
        rows.map(|row| Ok(decode(row?.1.value())?)).collect()
    }

    /// Blobs that are being written and read.
    pub fn in_use(&self) -> &Arc<InUse> {
        &self.in_use
    }

    /// The stores have little room left, or enough.
    pub fn set_full(&self, full: bool) {
        self.full.store(full, Ordering::Relaxed);
    }

    /// Have the stores little room left?
    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Has a version or a part this blob, or is it in the list of what is to be deleted?
    pub fn has_blob(&self, id: &str) -> Done<bool> {
        let look = self.look()?;
        let used = look.open_table(BLOBS)?.get(id)?.is_some();
        Ok(used || look.open_table(DEAD)?.get(id)?.is_some())
    }

    fn look(&self) -> Done<ReadTransaction> {
        Ok(self.database.begin_read()?)
    }

    // --- changes --------------------------------------------------------------------------------------

    /// Carries a change out, durable when it is answered.
    ///
    /// # Errors
    /// What the change was refused for, the database, or [`IndexError::Ended`].
    pub async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Transaction<'_>) -> Done<T> + Send + 'static,
    ) -> Done<T> {
        let (send, answer) = oneshot::channel();
        let job: Job = Box::new(move |transaction| {
            let done = change(transaction);
            // A refusal has written nothing; whatever else failed may have.
            let spoilt = match &done {
                Ok(_) | Err(IndexError::Refused(_)) => None,
                Err(error @ IndexError::Record(_)) => Some((error.to_string(), false)),
                Err(other) => Some((other.to_string(), true)),
            };
            let reply = move |why: Option<&str>| {
                let done = match why {
                    Some(why) => Err(IndexError::Ended(why.to_owned())),
                    None => done,
                };
                // The one that asked may be gone.
                drop(send.send(done));
            };
            Answer {
                send: Box::new(reply),
                spoilt,
            }
        });
        let ended =
            || IndexError::Ended("an earlier change failed, or the gateway ends".to_owned());
        if !self.writer.send(job) {
            return Err(ended());
        }
        answer.await.map_err(|_| ended())?
    }
}

/// Of what a database begins with: written last, once the rest of a new one is durable.
const MAGIC: usize = 9;

/// Makes the disk empty where a database was begun and never finished: nothing was answered of it.
fn forget_unfinished(disk: &impl Disk) -> io::Result<()> {
    if disk.length()? == 0 {
        return Ok(());
    }
    let mut begin = [0; MAGIC];
    disk.read(0, &mut begin)?;
    match begin == [0; MAGIC] {
        true => disk.write(0, 0, Ranges::new()),
        false => Ok(()),
    }
}

/// Makes the tables where there are none; refuses those of a later program.
fn format(database: &Database, stores: &str) -> Done<()> {
    let transaction = database.begin_write()?;
    {
        let mut about = transaction.open_table(ABOUT)?;
        let made = about.get("stores")?.map(|it| it.value().to_owned());
        match made {
            Some(made) if made != stores => {
                let now = stores.to_owned();
                return Err(IndexError::OtherStores { made, now });
            }
            Some(_) => {}
            None => drop(about.insert("stores", stores)?),
        }
    }
    {
        let mut counters = transaction.open_table(COUNTERS)?;
        let layout = counters.get("version")?.map(|it| it.value());
        match layout {
            Some(LAYOUT) => return Ok(()),
            Some(other) => return Err(IndexError::Layout(other)),
            None => counters.insert("version", LAYOUT)?,
        };
    }
    drop(Transaction::open(&transaction)?);
    transaction.commit()?;
    Ok(())
}

impl From<io::Error> for IndexError {
    fn from(error: io::Error) -> IndexError {
        redb::Error::from(error).into()
    }
}
