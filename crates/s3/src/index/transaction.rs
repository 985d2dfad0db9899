//! Changes of the index, all or nothing: each decides first, and writes only what it has decided.
//!
//! ```text
//! put, delete of a version without number:
//!   bucket Off        the version `null` is replaced, or removed
//!   bucket Enabled    one more version, or one more delete marker
//!   bucket Suspended  the version `null` is replaced, by a delete marker where it is deleted
//! a version goes  -> each of its blobs is counted down -> at none: dead, until its bytes are deleted
//! ```
//!
//! Always true:
//! 1. A change that is refused has written nothing.
//! 2. A blob is in `blobs` as often as versions and parts have it, or in `dead`, or in neither: then it was not committed.
//! 3. A version that is locked is removed by no change: each that removes one asks its lock first, in the same transaction.
//! 4. The number of a version is greater than that of all before it.

use redb::{ReadableTable, Table, WriteTransaction};

use super::error::{IndexError, Refused};
use super::lock::Change;
use super::record::{
    BlobRef, Bucket, Content, Version, VersionId, Versioning, decode, decode_version, encode,
    encode_version,
};
use super::tables::{
    BLOBS, BUCKETS, COUNTERS, DEAD, Found, OBJECTS, ObjectKey, PARTS, UPLOADS, UploadKey, bucket,
    named, newest,
};
use super::uploads::Uploads;

/// The most buckets of one account.
pub const BUCKETS_MAX: usize = 1000;

/// On what an object is put or deleted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Condition {
    /// On whatever is there.
    #[default]
    Any,
    /// Only if there is no object of this key.
    Absent,
    /// Only if there is one.
    Present,
    /// Only if it has this ETag.
    Etag(String),
    /// Only if it has another one, or there is none.
    OtherEtag(String),
}

impl Condition {
    /// Does it hold for the object that is there? An absent one under [`Condition::Etag`] is an error of its own.
    fn check(&self, key: &str, found: Option<&Content>) -> Result<(), Refused> {
        let holds = match (self, found) {
            (Condition::Any, _) => true,
            (Condition::Absent, found) => found.is_none(),
            (Condition::Present | Condition::Etag(_), None) => {
                return Err(Refused::NoKey(key.to_owned()));
            }
            (Condition::Present, Some(_)) => true,
            (Condition::Etag(etag), Some(found)) => found.etag == *etag,
            (Condition::OtherEtag(etag), found) => found.is_none_or(|it| it.etag != *etag),
        };
        match holds {
            true => Ok(()),
            false => Err(Refused::Precondition(key.to_owned())),
        }
    }
}

/// What a deletion expects of the version that is there, marker or not. Of a key that has none nothing is expected.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeleteIf {
    /// Its ETag; [`Condition::Present`] is any.
    pub etag: Condition,
    /// When it was put, in seconds since 1970.
    pub modified: Option<u64>,
    /// Its length.
    pub size: Option<u64>,
}

impl DeleteIf {
    fn check(&self, key: &str, found: Option<&Found>) -> Result<(), Refused> {
        let Some(found) = found else { return Ok(()) };
        let content = found.version.content.as_ref();
        let etag = match &self.etag {
            Condition::Etag(etag) => content.is_some_and(|it| it.etag == *etag),
            _ => true,
        };
        let modified = (self.modified).is_none_or(|it| it == found.version.modified / 1000);
        let size = (self.size).is_none_or(|it| content.is_some_and(|found| found.size == it));
        match etag && modified && size {
            true => Ok(()),
            false => Err(Refused::Precondition(key.to_owned())),
        }
    }
}

/// What became of a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Deleted {
    /// A delete marker was made, or removed.
    pub marker: bool,
    /// Of the version that was made or removed, where the bucket has versions or one was named.
    pub version: Option<VersionId>,
}

/// A transaction that changes the index.
pub struct Transaction<'t> {
    buckets: Table<'t, &'static str, &'static [u8]>,
    objects: Table<'t, ObjectKey, &'static [u8]>,
    pub(super) uploads: Table<'t, UploadKey, &'static [u8]>,
    pub(super) parts: Table<'t, (&'static str, u32), &'static [u8]>,
    blobs: Table<'t, &'static str, u64>,
    dead: Table<'t, &'static str, &'static [u8]>,
    counters: Table<'t, &'static str, u64>,
}

type Done<T> = Result<T, IndexError>;

impl<'t> Transaction<'t> {
    pub(super) fn open(transaction: &'t WriteTransaction) -> Done<Transaction<'t>> {
        Ok(Transaction {
            buckets: transaction.open_table(BUCKETS)?,
            objects: transaction.open_table(OBJECTS)?,
            uploads: transaction.open_table(UPLOADS)?,
            parts: transaction.open_table(PARTS)?,
            blobs: transaction.open_table(BLOBS)?,
            dead: transaction.open_table(DEAD)?,
            counters: transaction.open_table(COUNTERS)?,
        })
    }

    /// The number after the last one that was given under this name.
    fn count(&mut self, what: &str) -> Done<u64> {
        let next = 1 + self.counters.get(what)?.map_or(0, |it| it.value());
        self.counters.insert(what, next)?;
        Ok(next)
    }

    // --- buckets --------------------------------------------------------------------------------------

    /// Makes an empty bucket.
    ///
    /// # Errors
    /// [`Refused::BucketExists`], [`Refused::TooManyBuckets`].
    pub fn create_bucket(&mut self, name: &str, owner: &str, now: u64) -> Done<Bucket> {
        if let Some(found) = bucket(&self.buckets, name)? {
            let (name, own) = (name.to_owned(), found.owner == owner);
            return Err(Refused::BucketExists { name, own }.into());
        }
        let mut own = 0;
        for row in self.buckets.iter()? {
            let found: Bucket = decode(row?.1.value())?;
            own += usize::from(found.owner == owner);
        }
        if own >= BUCKETS_MAX {
            return Err(Refused::TooManyBuckets(BUCKETS_MAX).into());
        }
        let made = Bucket {
            id: self.count("bucket")?,
            owner: owner.to_owned(),
            created: now,
            ..Bucket::default()
        };
        self.buckets.insert(name, &*encode(&made))?;
        Ok(made)
    }

    /// Deletes a bucket without objects; uploads that are under way end.
    ///
    /// # Errors
    /// [`Refused::NoBucket`], [`Refused::NotEmpty`].
    pub fn delete_bucket(&mut self, name: &str) -> Done<()> {
        let id = self.bucket(name)?.id;
        let mut objects = self.objects.range((id, &[][..], 0)..(id + 1, &[][..], 0))?;
        if objects.next().is_some() {
            return Err(Refused::NotEmpty(name.to_owned()).into());
        }
        drop(objects);
        Uploads(self).abort_all(name, id)?;
        self.buckets.remove(name)?;
        Ok(())
    }

    /// Changes what is said of the bucket of this name and number.
    ///
    /// # Errors
    /// [`Refused::NoBucket`]; also where there is another one of that name.
    pub fn change_bucket(
        &mut self,
        bucket: (&str, u64),
        change: impl FnOnce(&mut Bucket),
    ) -> Done<()> {
        self.try_bucket(bucket, |bucket| {
            change(bucket);
            Ok(())
        })
    }

    /// Changes what is said of a bucket, unless that is refused for what it is now.
    ///
    /// # Errors
    /// As for [`Transaction::change_bucket`]; what `change` refuses.
    pub fn try_bucket(
        &mut self,
        (name, id): (&str, u64),
        change: impl FnOnce(&mut Bucket) -> Result<(), Refused>,
    ) -> Done<()> {
        let mut found = self.still(name, id)?;
        change(&mut found)?;
        self.buckets.insert(name, &*encode(&found))?;
        Ok(())
    }

    /// The bucket called `name`.
    ///
    /// # Errors
    /// [`Refused::NoBucket`].
    pub fn bucket(&self, name: &str) -> Done<Bucket> {
        let found = bucket(&self.buckets, name)?;
        found.ok_or_else(|| Refused::NoBucket(name.to_owned()).into())
    }

    /// Is the bucket of this name still the one that a request was let in to?
    ///
    /// # Errors
    /// [`Refused::NoBucket`].
    pub fn is_still(&self, name: &str, id: u64) -> Done<()> {
        self.still(name, id).map(drop)
    }

    /// The bucket of this name, which is still the one of this number.
    fn still(&self, name: &str, id: u64) -> Done<Bucket> {
        let found = self.bucket(name)?;
        match found.id == id {
            true => Ok(found),
            false => Err(Refused::NoBucket(name.to_owned()).into()),
        }
    }

    // --- objects --------------------------------------------------------------------------------------

    /// Puts an object whose bytes are durable in the stores, or `inline`; its version's number where the bucket gives some.
    ///
    /// # Errors
    /// [`Refused::NoBucket`], [`Refused::Precondition`], [`Refused::NoKey`], [`Refused::NoLock`]; [`Refused::Locked`] where it
    /// would replace a version that is.
    pub fn put(
        &mut self,
        (name, key): (&str, &str),
        mut version: Version,
        inline: &[u8],
        condition: &Condition,
    ) -> Done<Option<VersionId>> {
        let bucket = self.bucket(name)?;
        let now = newest(&self.objects, bucket.id, key)?;
        condition.check(key, now.as_ref().and_then(|it| it.version.content.as_ref()))?;
        let change = Change {
            now: version.modified,
            bypass: false,
        };
        version.lock = version.lock.of_new(bucket.lock.as_ref(), change.now)?;
        version.null = bucket.versioning != Versioning::Enabled;
        if version.null {
            // What is locked, or cannot be read, is met before the first write.
            self.check_removal(bucket.id, key, VersionId::Null, change)?;
        }
        for blob in version.content.iter().flat_map(|it| &it.blobs) {
            self.count_up(blob)?;
        }
        if version.null {
            self.remove_version(bucket.id, key, VersionId::Null)?;
        }
        let found = self.insert(bucket.id, key, &version, inline)?;
        Ok((bucket.versioning == Versioning::Enabled).then_some(found))
    }

    /// Puts an object that has the same bytes as another one had a moment ago.
    ///
    /// # Errors
    /// As for [`Transaction::put`], and [`Refused::NoKey`] if they are gone.
    pub fn copy(
        &mut self,
        (name, key): (&str, &str),
        version: Version,
        inline: &[u8],
        condition: &Condition,
    ) -> Done<Option<VersionId>> {
        for blob in version.content.iter().flat_map(|it| &it.blobs) {
            if self.blobs.get(&*blob.id)?.is_none() {
                return Err(Refused::NoKey(key.to_owned()).into());
            }
        }
        self.put((name, key), version, inline, condition)
    }

    /// Deletes the object, or one version of it.
    ///
    /// # Errors
    /// [`Refused::NoBucket`], [`Refused::Precondition`], [`Refused::Locked`]. What is not there is deleted.
    pub fn delete(
        &mut self,
        (name, key): (&str, &str),
        version: Option<VersionId>,
        expected: &DeleteIf,
        (owner, change): (&str, Change),
    ) -> Done<Deleted> {
        let bucket = self.bucket(name)?;
        if *expected != DeleteIf::default() {
            let found = match version {
                Some(version) => named(&self.objects, bucket.id, key, version)?,
                None => newest(&self.objects, bucket.id, key)?,
            };
            expected.check(key, found.as_ref())?;
        }
        let removed =
            version.or((bucket.versioning != Versioning::Enabled).then_some(VersionId::Null));
        if let Some(removed) = removed {
            self.check_removal(bucket.id, key, removed, change)?;
        }
        if let Some(version) = version {
            let removed = self.remove_version(bucket.id, key, version)?;
            return Ok(Deleted {
                marker: removed.is_some_and(|it| it.version.content.is_none()),
                version: Some(version),
            });
        }
        if bucket.versioning != Versioning::Enabled {
            self.remove_version(bucket.id, key, VersionId::Null)?;
        }
        if bucket.versioning == Versioning::Off {
            return Ok(Deleted::default());
        }
        let marker = Version {
            modified: change.now,
            owner: owner.to_owned(),
            null: bucket.versioning == Versioning::Suspended,
            ..Version::default()
        };
        let version = self.insert(bucket.id, key, &marker, &[])?;
        Ok(Deleted {
            marker: true,
            version: Some(version),
        })
    }

    /// Changes what is said of a version beside its bytes: of the one with this number in a bucket, by its name and number.
    ///
    /// # Errors
    /// [`Refused::NoBucket`]; [`Refused::NoKey`]: it was deleted or replaced; [`Refused::IsMarker`]; what `change` refuses.
    pub fn change_version(
        &mut self,
        (name, id): (&str, u64),
        (key, number): (&str, u64),
        change: impl FnOnce(&mut Version) -> Result<(), Refused>,
    ) -> Done<()> {
        self.is_still(name, id)?;
        let at = (id, key.as_bytes(), u64::MAX - number);
        let (mut version, inline) = match self.objects.get(at)? {
            Some(row) => {
                let (version, inline) = decode_version(row.value())?;
                (version, inline.to_vec())
            }
            None => return Err(Refused::NoKey(key.to_owned()).into()),
        };
        if version.content.is_none() {
            return Err(Refused::IsMarker(key.to_owned()).into());
        }
        change(&mut version)?;
        self.objects
            .insert(at, &*encode_version(&version, &inline))?;
        Ok(())
    }

    /// The newest version of a key.
    pub(super) fn newest(&self, bucket: u64, key: &str) -> Done<Option<Found>> {
        newest(&self.objects, bucket, key)
    }

    fn insert(
        &mut self,
        bucket: u64,
        key: &str,
        version: &Version,
        inline: &[u8],
    ) -> Done<VersionId> {
        let number = self.count("version-number")?;
        let at = (bucket, key.as_bytes(), u64::MAX - number);
        self.objects.insert(at, &*encode_version(version, inline))?;
        Ok(match version.null {
            true => VersionId::Null,
            false => VersionId::Number(number),
        })
    }

    /// May the version be removed now? One that is not there may.
    fn check_removal(&self, bucket: u64, key: &str, id: VersionId, change: Change) -> Done<()> {
        match named(&self.objects, bucket, key, id)? {
            Some(found) => Ok(found.version.lock.check_removal(change)?),
            None => Ok(()),
        }
    }

    /// Removes a version of which [`check_removal`](Self::check_removal) was asked.
    fn remove_version(&mut self, bucket: u64, key: &str, id: VersionId) -> Done<Option<Found>> {
        let Some(found) = named(&self.objects, bucket, key, id)? else {
            return Ok(None);
        };
        let at = (bucket, key.as_bytes(), u64::MAX - found.number);
        self.objects.remove(at)?;
        for blob in found.version.content.iter().flat_map(|it| &it.blobs) {
            self.count_down(blob)?;
        }
        Ok(Some(found))
    }

    // --- blobs ----------------------------------------------------------------------------------------

    /// One more version or part has the blob.
    pub(super) fn count_up(&mut self, blob: &BlobRef) -> Done<()> {
        let now = self.blobs.get(&*blob.id)?.map_or(0, |it| it.value());
        self.blobs.insert(&*blob.id, now + 1)?;
        Ok(())
    }

    /// One fewer; without any its bytes are to be deleted.
    pub(super) fn count_down(&mut self, blob: &BlobRef) -> Done<()> {
        let now = self.blobs.get(&*blob.id)?.map_or(0, |it| it.value());
        if now > 1 {
            self.blobs.insert(&*blob.id, now - 1)?;
            return Ok(());
        }
        self.blobs.remove(&*blob.id)?;
        self.dead.insert(&*blob.id, &*encode(blob))?;
        Ok(())
    }

    /// Bytes that were written and are not needed are to be deleted; not those that a version has.
    pub fn give_up(&mut self, blob: &BlobRef) -> Done<()> {
        // Its version came after all: the request was cut off while its change went on.
        if self.blobs.get(&*blob.id)?.is_some() {
            return Ok(());
        }
        self.dead.insert(&*blob.id, &*encode(blob))?;
        Ok(())
    }

    /// The bytes of these are deleted.
    pub fn forget_dead(&mut self, blobs: &[BlobRef]) -> Done<()> {
        for blob in blobs {
            self.dead.remove(&*blob.id)?;
        }
        Ok(())
    }
}
