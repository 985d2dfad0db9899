//! A store: made, opened, closed; its parts and the figures that are asked of it.
//!
//! ```text
//! format -> ledger, then superblock -> open
//! open   -> superblock -> ledger replayed -> everything looked at -> next epoch durable -> at work
//! ```

use std::cell::Cell;
#[cfg(test)]
use std::cell::RefCell;
use std::rc::Rc;

use base::{Bytes, Nanos};
use device::Device;
use env::Critical;
use env::sync::Event;
use ledger::{GroupCommit, Identity, Ledger, Replay};

use crate::object::check::read_superblock;
use crate::object::error::{OpenError, StoreError};
use crate::object::finding::Finding;
use crate::object::layout::{EPOCHS, Found, Settings, Superblock, is_blank};
use crate::object::load::Records;
use crate::object::locks::Locks;
use crate::object::space::Space;
use crate::object::table::Table;
use crate::object::trim::Trim;
use crate::object::types::{Counters, SpaceFigures};

/// Changes that no client flushes are committed after this long.
const COMMIT_AFTER: Nanos = Nanos::secs(1);

/// An open store. Cloning gives another handle; it stops when the last one drops (what was not flushed may then be
/// lost; see [`Store::close`]).
#[derive(Clone)]
pub struct Store {
    pub(crate) inner: Rc<Inner>,
    _stop: Rc<Stop>,
}

/// Ends the tasks of a store when its last handle drops.
struct Stop(Rc<Inner>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Mistakes that tests plant to see that the checkers catch them.
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// A commit does not flush the data it names.
    SkippedFlush,
    /// A page is free as soon as nothing in memory names it.
    EarlyFree,
    /// A commit leaves a record for the next one.
    LateRecord,
    /// A read does not compare checksums.
    UncheckedRead,
    /// A seal answers while operations of the fenced are under way.
    HastySeal,
    /// Listing allocated ranges panics.
    PanickingLook,
    /// A unit is free again before the device has discarded it.
    LooseTrim,
    /// What is released is discarded before its commit.
    EarlyTrim,
}

pub(crate) struct Inner {
    // Fixed.
    pub name: String,
    pub device: Rc<dyn Device>,
    pub device_name: String,
    /// Pages of the longest single request to the device.
    pub io_pages: u64,
    pub superblock: Superblock,
    pub page: u64,
    /// Free pages only overwrites may take.
    pub spare: u64,
    // What is there.
    pub table: Critical<Table>,
    pub space: Critical<Space>,
    pub locks: Rc<Locks>,
    /// The last version given.
    pub version: Cell<u64>,
    pub next_reservation: Cell<u64>,
    // What is under way.
    pub commit: GroupCommit,
    /// Pages became free, or a commit was cut or done, or the condition changed.
    pub room: Event,
    /// An object is to be deleted.
    pub reap: Event,
    pub trim: Trim,
    pub figures: Cell<Counters>,
    #[cfg(test)]
    pub planted: Cell<Option<Mutation>>,
    #[cfg(test)]
    pub journal: RefCell<Vec<(u64, crate::tests::Step)>>,
}

/// If the end of the log could not be read, says so and commits once: from then on what may have been there never counts,
/// before any page that it may name is written.
async fn settle_end(
    store: &str,
    device: &str,
    ledger: &Ledger,
    replay: &Replay,
    table: &mut Table,
) -> Result<(), OpenError> {
    let Some(at) = replay.unreadable_at else {
        return Ok(());
    };
    tracing::warn!(
        store,
        device,
        byte = at.byte(),
        blocks = replay.unreadable,
        "the end of the object table's log cannot be read: a power cut hit its last commit, or what was flushed last is \
         missing"
    );
    let prepared = ledger.prepare(ledger.batch(), table);
    let committed = ledger.commit(prepared).await;
    committed.map_err(|source| OpenError::Ledger {
        device: device.to_owned(),
        source,
    })
}

impl Store {
    /// Makes an empty store on `device` and opens it. Cut off at any point, the device holds the new store or none.
    ///
    /// # Errors
    /// [`OpenError::Settings`] if the settings or the device's size make no store; [`OpenError::Occupied`] if
    /// the device is not blank and `settings.force` is not set; [`OpenError::Version`] if it holds a store of an
    /// unknown version, forced or not; [`OpenError::Device`], [`OpenError::Ledger`].
    pub async fn format(device: Rc<dyn Device>, settings: Settings) -> Result<Store, OpenError> {
        let info = device.info();
        let failed = |what| {
            let device = info.name.clone();
            move |source| OpenError::Device {
                device,
                what,
                source,
            }
        };
        let found = Superblock::read(&device)
            .await
            .map_err(failed("read the superblocks of"))?;
        let mut occupied = None;
        for found in &found {
            match found {
                Found::Version(_) => {
                    return Err(read_superblock(&device)
                        .await
                        .map(|_| ())
                        .expect_err("seen just now"));
                }
                Found::Whole(other) => occupied = Some(format!("the store {:?}", other.name)),
                Found::Bad(_) => {}
            }
        }
        if occupied.is_none() && !is_blank(&device).await.map_err(failed("read"))? {
            occupied = Some("data of something else".to_owned());
        }
        if let Some(what) = occupied.filter(|_| !settings.force) {
            return Err(OpenError::Occupied {
                device: info.name.clone(),
                what,
            });
        }
        let mut rng = env::rng("store.uuid");
        let uuid = u128::from(rng.bits()) << 64 | u128::from(rng.bits() ^ env::wall_clock().0);
        let mut superblock =
            Superblock::layout(info.size, &settings, uuid).map_err(|why| OpenError::Settings {
                device: info.name.clone(),
                why,
            })?;
        // What was there counts no more before the first byte of it is written over.
        Superblock::wipe(&device).await.map_err(failed("make"))?;
        let identity = Identity {
            id: uuid,
            payload: Vec::new(),
        };
        Ledger::format(Rc::clone(&device), superblock.ledger, identity)
            .await
            .map_err(|source| OpenError::Ledger {
                device: info.name.clone(),
                source,
            })?;
        superblock.write(&device).await.map_err(failed("make"))?;
        Store::open(device).await
    }

    /// Opens the store on `device`: as it was after some change not before the last flush answered.
    ///
    /// # Errors
    /// [`OpenError::NoStore`], [`OpenError::Version`]; [`OpenError::Ledger`] if the object table is damaged;
    /// [`OpenError::Inconsistent`] if it contradicts itself: then nothing is changed; [`OpenError::Device`].
    pub async fn open(device: Rc<dyn Device>) -> Result<Store, OpenError> {
        let (mut superblock, _) = read_superblock(&device).await?;
        let info = device.info();
        let mut records = Records::default();
        let visit = |record: ledger::Record<'_>| records.visit(record);
        let (ledger, replay) = Ledger::open(Rc::clone(&device), superblock.ledger, visit)
            .await
            .map_err(|source| OpenError::Ledger {
                device: info.name.clone(),
                source,
            })?;
        if ledger.id() != superblock.uuid {
            records.find(Finding::Ledger {
                why: "the ledger belongs to another store".to_owned(),
            });
        }
        let mut loaded = records.load(&superblock);
        if let Some(first) = loaded.findings.first() {
            return Err(OpenError::Inconsistent {
                device: info.name.clone(),
                count: loaded.findings_count,
                first: Box::new(first.clone()),
            });
        }
        settle_end(
            &superblock.name,
            &info.name,
            &ledger,
            &replay,
            &mut loaded.table,
        )
        .await?;
        // Both copies, so that losing one never sets an epoch back.
        superblock.epoch = (superblock.epoch.max(loaded.version >> 40) + 1) % EPOCHS;
        for _ in 0..2 {
            superblock
                .write(&device)
                .await
                .map_err(|source| OpenError::Device {
                    device: info.name.clone(),
                    what: "begin a new epoch of",
                    source,
                })?;
        }
        let page = superblock.page.0;
        let pages = u64::from(superblock.pages());
        let inner = Rc::new(Inner {
            name: superblock.name.clone(),
            device_name: info.name,
            io_pages: (info.max_io.0.min(4 << 20) / page).max(1),
            page,
            spare: (pages / 256).clamp(1, 1024),
            version: Cell::new(superblock.epoch << 40),
            next_reservation: Cell::new(superblock.epoch << 24),
            superblock,
            commit: GroupCommit::new(ledger, Rc::clone(&device)),
            device,
            table: Critical::new(loaded.table),
            space: Critical::new(loaded.space),
            locks: Rc::default(),
            room: Event::default(),
            reap: Event::default(),
            trim: Trim::default(),
            figures: Cell::default(),
            #[cfg(test)]
            planted: Cell::new(None),
            #[cfg(test)]
            journal: RefCell::default(),
        });
        env::spawn(Rc::clone(&inner).commit_loop(COMMIT_AFTER));
        env::spawn(Rc::clone(&inner).reap_loop());
        env::spawn(Rc::clone(&inner).trim_loop());
        let stop = Rc::new(Stop(Rc::clone(&inner)));
        Ok(Store { inner, _stop: stop })
    }

    /// Makes everything durable and notes that nothing is under way; the store takes nothing more.
    ///
    /// # Errors
    /// [`StoreError::Failed`] if something cannot be made durable; [`StoreError::Closed`].
    pub async fn close(&self) -> Result<(), StoreError> {
        self.inner.usable()?;
        self.inner.committed().await?;
        let inner = &self.inner;
        // What came in between is made durable as well.
        inner.last_commit().await?;
        inner.stop();
        inner.trimmed().await;
        let closed = inner.commit.ledger().close().await;
        closed.map_err(|error| inner.failed(error.to_string()))
    }

    /// The store's name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The number given when it was made.
    pub fn uuid(&self) -> u128 {
        self.inner.superblock.uuid
    }

    /// The longest single write in bytes: 4 MiB, less where the ledger is small.
    pub fn write_max(&self) -> u64 {
        self.inner.superblock.write_max()
    }

    /// The unit of atomicity and checksums; writes in whole pages read nothing first.
    pub fn page(&self) -> Bytes {
        self.inner.superblock.page
    }

    /// How the room is divided.
    pub fn space(&self) -> SpaceFigures {
        let inner = &self.inner;
        let (table, snapshot) = (inner.table.borrow(), inner.space.borrow().snapshot());
        let total = u64::from(inner.space.borrow().total());
        let free = u64::from(snapshot.free) - table.promised;
        let bytes = |pages: u64| Bytes(pages * inner.page);
        SpaceFigures {
            total: bytes(total),
            used: bytes(total - u64::from(snapshot.free)),
            reserved: bytes(table.promised),
            free: bytes(free),
            spare: bytes(inner.spare.min(free)),
            waiting: bytes(u64::from(snapshot.waiting)),
            units_free: u64::from(snapshot.units_free),
            units_begun: u64::from(snapshot.units_begun),
            units: inner.superblock.units,
            unit: inner.superblock.unit,
            page: inner.superblock.page,
            objects: table.names.len() as u64,
            table: Bytes(table.live()),
            table_max: Bytes(inner.superblock.live_max()),
        }
    }

    /// What the store has done since it was opened.
    pub fn figures(&self) -> Counters {
        let committed = self.inner.commit.counters();
        Counters {
            commits: committed.commits,
            flushes: committed.flushes,
            ..self.inner.figures.get()
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

impl Inner {
    /// Ends the store's tasks.
    pub fn stop(&self) {
        self.commit.stop();
        self.reap.notify_all();
        self.trim.work.notify_all();
        self.room.notify_all();
    }

    pub fn count(&self, change: impl FnOnce(&mut Counters)) {
        let mut figures = self.figures.get();
        change(&mut figures);
        self.figures.set(figures);
    }

    /// The next version.
    pub fn next_generation(&self) -> u64 {
        let next = self.version.get() + 1;
        self.version.set(next);
        next
    }

    #[cfg(test)]
    pub fn planted(&self, mutation: Mutation) -> bool {
        self.planted.get() == Some(mutation)
    }
}
