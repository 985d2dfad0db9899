//! From a device to a store at work.
//!
//! ```text
//! format -> ledger, then superblock -> open
//! open   -> superblock -> ledger replayed -> everything looked at -> next epoch durable -> at work
//! ```

use std::rc::Rc;

use device::{Device, DeviceError};
use ledger::{CommitSource, Identity, Ledger, Replay};

use crate::object::check::read_superblock;
use crate::object::commit::Committer;
use crate::object::disk::Disk;
use crate::object::error::OpenError;
use crate::object::finding::Finding;
use crate::object::layout::{EPOCHS, Found, Settings, Superblock, is_blank};
use crate::object::load::{Loaded, Records};
use crate::object::parts::Parts;
use crate::object::reap::Reaper;
use crate::object::table::Table;
use crate::object::trim::Trimmer;

/// Makes an empty store on `device`; see [`crate::Store::format`].
pub(crate) async fn format(device: &Rc<dyn Device>, settings: &Settings) -> Result<(), OpenError> {
    let info = device.info();
    let failed = |what| device_error(&info.name, what);
    let occupied = occupant(device).await?;
    if let Some(what) = occupied.filter(|_| !settings.force) {
        return Err(OpenError::Occupied {
            device: info.name.clone(),
            what,
        });
    }
    let mut rng = env::rng("store.uuid");
    let uuid = u128::from(rng.bits()) << 64 | u128::from(rng.bits() ^ env::wall_clock().0);
    let mut superblock =
        Superblock::layout(info.size, settings, uuid).map_err(|why| OpenError::Settings {
            device: info.name.clone(),
            why,
        })?;
    // What was there counts no more before the first byte of it is written over.
    Superblock::wipe(device).await.map_err(failed("make"))?;
    let identity = Identity {
        id: uuid,
        payload: Vec::new(),
    };
    Ledger::format(Rc::clone(device), superblock.ledger, identity)
        .await
        .map_err(|source| OpenError::Ledger {
            device: info.name.clone(),
            source,
        })?;
    superblock.write(device).await.map_err(failed("make"))
}

/// What the device holds, if it is not blank.
///
/// # Errors
/// [`OpenError::Version`] for a store of an unknown version; [`OpenError::Device`].
pub async fn occupant(device: &Rc<dyn Device>) -> Result<Option<String>, OpenError> {
    let name = device.info().name;
    let failed = |what| device_error(&name, what);
    let found = Superblock::read(device)
        .await
        .map_err(failed("read the superblocks of"))?;
    let mut occupied = None;
    for found in &found {
        match found {
            Found::Version(_) => {
                return Err(read_superblock(device)
                    .await
                    .map(|_| ())
                    .expect_err("seen just now"));
            }
            Found::Whole(other) => occupied = Some(format!("the store {:?}", other.name)),
            Found::Bad(_) => {}
        }
    }
    if occupied.is_none() && !is_blank(device).await.map_err(failed("read"))? {
        occupied = Some("data of something else".to_owned());
    }
    Ok(occupied)
}

fn device_error(device: &str, what: &'static str) -> impl FnOnce(DeviceError) -> OpenError {
    let device = device.to_owned();
    move |source| OpenError::Device {
        device,
        what,
        source,
    }
}

/// Opens the store on `device`, see [`crate::Store::open`], and begins its tasks. `source` says whose changes the commits
/// carry: the parts', or in tests those of a mistaken source in front of them.
pub(crate) async fn open(
    device: Rc<dyn Device>,
    source: impl FnOnce(&Rc<Parts>) -> Rc<dyn CommitSource>,
) -> Result<Rc<Parts>, OpenError> {
    let (mut superblock, _) = read_superblock(&device).await?;
    let name = device.info().name;
    let (ledger, replay, mut loaded) = load(&device, &superblock).await?;
    if replay.unreadable_at.is_some() {
        let store = &superblock.name;
        settle_end(store, &name, &ledger, &replay, &mut loaded.table).await?;
    }
    // Both copies, so that losing one never sets an epoch back.
    superblock.epoch = (superblock.epoch.max(loaded.version >> 40) + 1) % EPOCHS;
    for _ in 0..2 {
        let written = superblock.write(&device).await;
        written.map_err(device_error(&name, "begin a new epoch of"))?;
    }
    let parts = Rc::new(Parts::new(Disk::new(device, superblock), ledger, loaded));
    let source = source(&parts);
    env::spawn(Committer(Rc::clone(&parts)).run(source));
    env::spawn(Reaper(Rc::clone(&parts)).run());
    env::spawn(Trimmer(Rc::clone(&parts)).run());
    Ok(parts)
}

/// What the ledger shows, if nothing contradicts itself.
async fn load(
    device: &Rc<dyn Device>,
    superblock: &Superblock,
) -> Result<(Ledger, Replay, Loaded), OpenError> {
    let name = device.info().name;
    let mut records = Records::default();
    let visit = |record: ledger::Record<'_>| records.visit(record);
    let opened = Ledger::open(Rc::clone(device), superblock.ledger, visit).await;
    let (ledger, replay) = opened.map_err(|source| OpenError::Ledger {
        device: name.clone(),
        source,
    })?;
    if ledger.id() != superblock.uuid {
        records.find(Finding::Ledger {
            why: "the ledger belongs to another store".to_owned(),
        });
    }
    let loaded = records.load(superblock);
    if let Some(first) = loaded.findings.first() {
        return Err(OpenError::Inconsistent {
            device: name,
            count: loaded.findings_count,
            first: Box::new(first.clone()),
        });
    }
    Ok((ledger, replay, loaded))
}

/// The end of the log could not be read: says so and commits once. From then on what may have been there never counts,
/// before any page that it may name is written.
async fn settle_end(
    store: &str,
    device: &str,
    ledger: &Ledger,
    replay: &Replay,
    table: &mut Table,
) -> Result<(), OpenError> {
    tracing::warn!(
        store,
        device,
        byte = replay.unreadable_at.map(|at| at.byte()),
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
