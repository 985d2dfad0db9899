//! The handle to an open store: what can be asked of it, and which part does it.
//!
//! A change runs in a task of its own where it moves data: the client that asked may be gone; the pages it takes are accounted
//! for all the same.

use std::rc::Rc;

use base::{Buf, Bytes, View};
use device::{Class, Device};
use ledger::CommitSource;

use crate::object::commit::Committer;
use crate::object::damage::{BadPages, Damage};
use crate::object::error::{OpenError, StoreError};
use crate::object::finding::BadBlock;
use crate::object::layout::Settings;
use crate::object::names::Names;
use crate::object::open;
use crate::object::parts::Parts;
use crate::object::ranges::allocated_ranges;
use crate::object::read::Reader;
use crate::object::reserve::{Reservation, Reserver};
use crate::object::scrub::{ScrubStep, Scrubber};
use crate::object::trim::Trimmer;
use crate::object::truncate::Cutter;
use crate::object::types::{
    AllocatedRange, Change, Counters, Listing, ReservationId, SpaceFigures, Stat, Version,
};
use crate::object::write::Writer;

/// An open store. Cloning gives another handle; it stops when the last one drops (what was not flushed may then be
/// lost; see [`Store::close`]).
#[derive(Clone)]
pub struct Store {
    pub(crate) inner: Rc<Parts>,
    _stop: Rc<Stop>,
}

/// Ends the tasks of a store when its last handle drops.
struct Stop(Rc<Parts>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// A handle to a store whose tasks have begun.
impl From<Rc<Parts>> for Store {
    fn from(inner: Rc<Parts>) -> Store {
        let stop = Rc::new(Stop(Rc::clone(&inner)));
        Store { inner, _stop: stop }
    }
}

impl Store {
    // --- open and close --------------------------------------------------------------------------------

    /// Makes an empty store on `device` and opens it. Cut off at any point, the device holds the new store or none.
    ///
    /// # Errors
    /// [`OpenError::Settings`] if the settings or the device's size make no store; [`OpenError::Occupied`] if
    /// the device is not blank and `settings.force` is not set; [`OpenError::Version`] if it holds a store of an
    /// unknown version, forced or not; [`OpenError::Device`], [`OpenError::Ledger`].
    pub async fn format(device: Rc<dyn Device>, settings: Settings) -> Result<Store, OpenError> {
        open::format(&device, &settings).await?;
        Store::open(device).await
    }

    /// Opens the store on `device`: as it was after some change not before the last flush answered.
    ///
    /// # Errors
    /// [`OpenError::NoStore`], [`OpenError::Version`]; [`OpenError::Ledger`] if the object table is damaged;
    /// [`OpenError::Inconsistent`] if it contradicts itself: then nothing is changed; [`OpenError::Device`].
    pub async fn open(device: Rc<dyn Device>) -> Result<Store, OpenError> {
        let inner = open::open(device, |parts| Rc::clone(parts) as Rc<dyn CommitSource>).await?;
        Ok(Store::from(inner))
    }

    /// Makes everything durable and notes that nothing is under way; the store takes nothing more.
    ///
    /// # Errors
    /// [`StoreError::Failed`] if something cannot be made durable; [`StoreError::Closed`].
    pub async fn close(&self) -> Result<(), StoreError> {
        let parts = &self.inner;
        parts.usable()?;
        parts.committed().await?;
        // What came in between is made durable as well.
        Committer(Rc::clone(parts)).last().await?;
        parts.stop();
        Trimmer(Rc::clone(parts)).trimmed().await;
        let closed = parts.commit.ledger().close().await;
        closed.map_err(|error| parts.disk.failed(error.to_string()))
    }

    /// Makes every change completed before this call durable.
    ///
    /// # Errors
    /// [`StoreError::Failed`] if that is impossible, now and from now on; [`StoreError::Closed`].
    pub async fn flush(&self) -> Result<(), StoreError> {
        self.inner.committed().await
    }

    // --- objects as wholes -----------------------------------------------------------------------------

    /// Makes an empty object with these attributes (by name; see [`ATTRIBUTES_MAX`](crate::ATTRIBUTES_MAX)).
    ///
    /// # Errors
    /// [`StoreError::Exists`]; [`StoreError::Request`] for a name or attributes no object can have;
    /// [`StoreError::TableFull`], [`StoreError::Failed`], [`StoreError::Closed`].
    pub async fn create(
        &self,
        object: &str,
        attributes: &[(&str, &[u8])],
        change: Change,
    ) -> Result<Version, StoreError> {
        Names(&self.inner).create(object, attributes, change).await
    }

    /// Deletes the object.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Condition`], [`StoreError::Failed`], [`StoreError::Closed`].
    pub async fn delete(&self, object: &str, change: Change) -> Result<(), StoreError> {
        Names(&self.inner).delete(object, change).await
    }

    /// Gives the object another name; with `replace`, whatever has that name is deleted in the same step.
    ///
    /// # Errors
    /// As for [`Store::delete`], and [`StoreError::Exists`] without `replace`; [`StoreError::Request`].
    pub async fn rename(
        &self,
        object: &str,
        to: &str,
        replace: bool,
        change: Change,
    ) -> Result<Version, StoreError> {
        Names(&self.inner).rename(object, to, replace, change).await
    }

    /// What the object is like.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub fn stat(&self, object: &str) -> Result<Stat, StoreError> {
        Names(&self.inner).stat(object)
    }

    /// The first `most` objects (at most 10,000) whose names begin with `prefix` and come after `after`, in the order
    /// of their names' bytes.
    ///
    /// # Example
    /// ```
    /// # env::Runtime::simulated(1).block_on(async {
    /// # use store::{Change, Settings, Store};
    /// # let device = device::Memory::new("disk", base::Bytes::mib(8));
    /// # let store = Store::format(device, Settings::default()).await.unwrap();
    /// for name in ["a/1", "a/2", "a/3", "b/1"] {
    ///     store.create(name, &[], Change::default()).await.unwrap();
    /// }
    /// let part = store.list("a/", None, 2);
    /// assert_eq!(part.next.as_deref(), Some("a/2"));
    /// let rest = store.list("a/", part.next.as_deref(), 2);
    /// assert_eq!((rest.objects[0].name.as_str(), rest.next), ("a/3", None));
    /// # });
    /// ```
    pub fn list(&self, prefix: &str, after: Option<&str>, most: usize) -> Listing {
        Names(&self.inner).list(prefix, after, most)
    }

    /// The object's attributes, by rising name.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub fn attributes(&self, object: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        Names(&self.inner).attributes(object)
    }

    /// Sets attributes, or removes those with no value, all in one step; others stay.
    ///
    /// # Errors
    /// As for [`Store::create`], and [`StoreError::NotFound`], [`StoreError::Condition`].
    pub async fn set_attributes(
        &self,
        object: &str,
        changes: &[(&str, Option<&[u8]>)],
        change: Change,
    ) -> Result<Version, StoreError> {
        Names(&self.inner)
            .set_attributes(object, changes, change)
            .await
    }

    // --- their bytes -----------------------------------------------------------------------------------

    /// Writes `data` at byte `offset` of `object`, which grows as needed; what lies between its old end and
    /// `offset` reads as zeroes. Atomic as a whole. Complete, it can be read; durable with the next flush, or, with
    /// `change.fua`, at completion.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] unless `change.create`; [`StoreError::Condition`]; [`StoreError::NoSpace`],
    /// [`StoreError::Reservation`], [`StoreError::NoReservation`], [`StoreError::TableFull`];
    /// [`StoreError::Request`] if the data are longer than [`Store::write_max`] or reach beyond what an object may
    /// hold; [`StoreError::Damaged`] if a page of which a part stays cannot be read rightly;
    /// [`StoreError::Device`], [`StoreError::Failed`], [`StoreError::Closed`].
    pub async fn write(
        &self,
        object: &str,
        offset: u64,
        data: View,
        change: Change,
    ) -> Result<Version, StoreError> {
        let (writer, name) = (Writer(Rc::clone(&self.inner)), object.to_owned());
        env::spawn(async move { writer.write(&name, offset, data, change).await }).await
    }

    /// Sets the object's size. What lies behind it is gone: an object that grows again shows zeroes there. Atomic up
    /// to about 100,000 pages; more go in steps, from the end.
    ///
    /// # Errors
    /// As for [`Store::write`].
    pub async fn truncate(
        &self,
        object: &str,
        size: u64,
        change: Change,
    ) -> Result<Version, StoreError> {
        let (cutter, name) = (Cutter(Rc::clone(&self.inner)), object.to_owned());
        env::spawn(async move { cutter.truncate(&name, size, change).await }).await
    }

    /// Makes `len` bytes from byte `offset` a hole as far as the object reaches: they read as zeroes, whole pages
    /// become free. Atomic within each stretch of some thousand pages.
    ///
    /// # Errors
    /// As for [`Store::write`].
    pub async fn punch(
        &self,
        object: &str,
        offset: u64,
        len: u64,
        change: Change,
    ) -> Result<Version, StoreError> {
        let (cutter, name) = (Cutter(Rc::clone(&self.inner)), object.to_owned());
        env::spawn(async move { cutter.punch(&name, offset, len, change).await }).await
    }

    /// Reads up to `len` bytes from byte `offset` of `object`: fewer where it ends before, none behind its end.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Damaged`] if a page is not what was written;
    /// [`StoreError::Request`] for more than 64 MiB; [`StoreError::Device`], [`StoreError::Closed`].
    pub async fn read(
        &self,
        object: &str,
        offset: u64,
        len: u64,
        class: Class,
    ) -> Result<Buf, StoreError> {
        let reader = Reader(&self.inner);
        reader.read(object, offset, len, class).await
    }

    /// The stretches of `len` bytes from `offset`, in order and without gaps, as far as the object reaches: data or
    /// hole, and since which version at the latest they are so. A client that copied the object at version `g`
    /// need copy only stretches later than `g` (the resolution is 32 pages).
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub fn allocated_ranges(
        &self,
        object: &str,
        offset: u64,
        len: u64,
    ) -> Result<Vec<AllocatedRange>, StoreError> {
        let table = self.inner.table.borrow();
        let found = table.find(object).map(|(_, object)| object);
        let found = found.ok_or_else(|| self.inner.disk.not_found(object))?;
        Ok(allocated_ranges(found, self.inner.disk.page, offset, len))
    }

    // --- room ------------------------------------------------------------------------------------------

    /// Promises room for `bytes` of data, in whole pages; durable at completion.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`] if less is free; [`StoreError::Request`] for nothing; [`StoreError::TableFull`],
    /// [`StoreError::Failed`], [`StoreError::Closed`].
    ///
    /// # Example
    /// ```
    /// # env::Runtime::simulated(1).block_on(async {
    /// # use base::{Bytes, View};
    /// # use store::{Change, Settings, Store};
    /// # let device = device::Memory::new("disk", Bytes::mib(8));
    /// # let store = Store::format(device, Settings::default()).await.unwrap();
    /// let id = store.reserve(Bytes::mib(1)).await.unwrap();
    /// let change = Change { reservation: Some(id), create: true, ..Change::default() };
    /// store.write("a", 0, View::copy_of(&[7; 10_000]), change).await.unwrap();
    /// let space = store.space();
    /// assert_eq!((space.used, space.reserved), (Bytes(12_288), Bytes((1 << 20) - 12_288)));
    /// store.release(id).await.unwrap();
    /// assert_eq!(store.space().reserved, Bytes(0));
    /// # });
    /// ```
    pub async fn reserve(&self, bytes: Bytes) -> Result<ReservationId, StoreError> {
        Reserver(&self.inner).reserve(bytes).await
    }

    /// Gives what is left of a reservation back to the free room, once no write with it is under way; durable at
    /// completion.
    ///
    /// # Errors
    /// [`StoreError::NoReservation`], [`StoreError::Failed`], [`StoreError::Closed`].
    pub async fn release(&self, id: ReservationId) -> Result<(), StoreError> {
        Reserver(&self.inner).release(id).await
    }

    /// All reservations, the oldest first.
    pub fn reservations(&self) -> Vec<Reservation> {
        Reserver(&self.inner).all()
    }

    /// How the room is divided.
    pub fn space(&self) -> SpaceFigures {
        let (disk, table) = (&self.inner.disk, self.inner.table.borrow());
        let (superblock, snapshot) = (&disk.superblock, self.inner.space.borrow().snapshot());
        let total = u64::from(self.inner.space.borrow().total());
        let free = u64::from(snapshot.free) - table.promised();
        let bytes = |pages: u64| Bytes(pages * disk.page);
        SpaceFigures {
            total: bytes(total),
            used: bytes(total - u64::from(snapshot.free)),
            reserved: bytes(table.promised()),
            free: bytes(free),
            spare: bytes(disk.spare.min(free)),
            waiting: bytes(u64::from(snapshot.waiting)),
            units_free: u64::from(snapshot.units_free),
            units_begun: u64::from(snapshot.units_begun),
            units: superblock.units,
            unit: superblock.unit,
            page: superblock.page,
            objects: table.names.len() as u64,
            table: Bytes(table.live()),
            table_max: Bytes(superblock.live_max()),
        }
    }

    // --- damage ----------------------------------------------------------------------------------------

    /// Reads about the next `bytes` of all data and compares them with their checksums. One step at a time.
    ///
    /// # Errors
    /// [`StoreError::Failed`], [`StoreError::Closed`], and [`StoreError::Device`] if the device is gone. Data that cannot be
    /// read are no error, but found bad.
    pub async fn scrub_step(&self, bytes: Bytes) -> Result<ScrubStep, StoreError> {
        Scrubber(&self.inner).step(bytes).await
    }

    /// Every page known to be bad, by object: found by scrubs and reads, and not written since.
    pub fn bad_blocks(&self) -> Vec<BadBlock> {
        BadPages(&self.inner).all()
    }

    /// Damaged stretches of objects whose names begin with `prefix`, from byte `offset` of `object` on in the order of names:
    /// at most `most`, and whether there are more.
    pub fn damage(
        &self,
        prefix: &str,
        object: &str,
        offset: u64,
        most: usize,
    ) -> (Vec<Damage>, bool) {
        BadPages(&self.inner).stretches(prefix, object, offset, most)
    }

    // --- what it is and does ---------------------------------------------------------------------------

    /// The store's name.
    pub fn name(&self) -> &str {
        &self.inner.disk.name
    }

    /// The number given when it was made.
    pub fn uuid(&self) -> u128 {
        self.inner.disk.superblock.uuid
    }

    /// The longest single write in bytes: 4 MiB, less where the ledger is small.
    pub fn write_max(&self) -> u64 {
        self.inner.disk.superblock.write_max()
    }

    /// The unit of atomicity and checksums; writes in whole pages read nothing first.
    pub fn page(&self) -> Bytes {
        self.inner.disk.superblock.page
    }

    /// What the store has done since it was opened.
    pub fn figures(&self) -> Counters {
        let committed = self.inner.commit.counters();
        Counters {
            commits: committed.commits,
            flushes: committed.flushes,
            ..self.inner.counters.get()
        }
    }

    /// What the ledger below has done since it was opened.
    pub fn ledger_figures(&self) -> ledger::Counters {
        self.inner.commit.ledger().figures()
    }

    /// Memory taken by tables, near enough: about 6 bytes a page of data in a row, 200 and the name an object, one
    /// bit a page and two bytes a unit of the device.
    pub fn memory(&self) -> Bytes {
        Bytes(self.inner.table.borrow().memory() + self.inner.space.borrow().memory())
    }
}
