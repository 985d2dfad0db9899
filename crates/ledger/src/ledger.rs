//! The handle to a ledger: made, opened, and used by its owner.
//!
//! ```text
//! prepare: batch + swept records (`compaction`) -> queue (order is fixed here)
//! commit:  marks its entry; the writer takes the committed head of the queue, as much as fits one write
//! ```

use std::rc::Rc;

use base::{Bytes, Span};
use device::Device;

use crate::batch::{Batch, Record};
use crate::error::LedgerError;
use crate::layout::{BLOCK, Found, PAYLOAD, Place, Superblock};
use crate::log::{DURABLE, Log, SUPERBLOCKS};
use crate::replay::{self, Start};
use crate::report::{Replay, Salvaged};
use crate::salvage;
use crate::superblocks::{fresh_generation, newest, read_superblocks, refuse_unknown};
use crate::sweep::{self, Owner};
use crate::writer::{Writer, failed};

/// The longest payload a superblock holds, in bytes.
pub const PAYLOAD_MAX: usize = PAYLOAD;

/// The records of one batch on the device: its length is a 32-bit number.
const BATCH_MAX: usize = u32::MAX as usize - BLOCK;

/// Who the ledger belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Identity {
    /// The ledger's own number, for ever.
    pub id: u128,
    /// What its owner wants to find first when it opens: at most [`PAYLOAD_MAX`] bytes.
    pub payload: Vec<u8>,
}

/// What a ledger has done since it was opened, and where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Batches prepared and durable (several may have shared one write).
    pub batches: u64,
    /// Records in them, without swept ones.
    pub records: u64,
    /// Swept records in them.
    pub swept: u64,
    /// Bytes written to the device, superblocks and padding included.
    pub bytes_written: u64,
    /// Writes sent to the device, superblocks included.
    pub device_writes: u64,
    /// Writes of superblocks among them.
    pub superblock_writes: u64,
    /// Sweeps that came to their end.
    pub sweeps: u64,
    /// Bytes of the log between tail and head.
    pub log_used: u64,
    /// Bytes of the log.
    pub log_size: u64,
    /// The last durable batch on the device.
    pub sequence: u64,
}

/// A durable map's log. Cloning gives another handle to the same ledger.
///
/// # Example
/// See [`crate::Map`] for the whole round trip with a ready-made owner.
#[derive(Clone)]
pub struct Ledger {
    inner: Rc<Writer>,
}

/// A batch in line. Hand it to [`Ledger::commit`]; dropping it instead fails the ledger, since later batches
/// were prepared on top of it.
#[must_use = "dropping a prepared batch fails the ledger; commit it"]
pub struct Prepared {
    inner: Rc<Writer>,
    id: u64,
    committed: bool,
}

impl Ledger {
    /// Makes an empty ledger in `region`, over whatever ledger was there. Atomic: cut off at any point, the
    /// region opens as the ledger it held before or as the new one.
    ///
    /// # Errors
    /// [`LedgerError::Region`] if the region is not on the device, not in whole 4 KiB blocks or too small;
    /// [`LedgerError::Version`] if it holds a ledger of an unknown version (see [`Ledger::wipe`]);
    /// [`LedgerError::Payload`]; [`LedgerError::Device`].
    pub async fn format(
        device: Rc<dyn Device>,
        region: Span,
        identity: Identity,
    ) -> Result<Ledger, LedgerError> {
        let log = Log::new(device, region)?;
        check_payload(&identity.payload)?;
        let found = match read_superblocks(&*log.device, &log.name, region).await {
            Ok(found) => found,
            // What cannot be read is to be written.
            Err(LedgerError::Device { .. }) => {
                [Found::Bad("cannot be read"), Found::Bad("cannot be read")]
            }
            Err(other) => return Err(other),
        };
        refuse_unknown(&found, &log.name, region)?;
        let before = newest(found).ok();
        let generation = fresh_generation(before.as_ref().map(|before| before.0.generation));
        let (mut revision, mut older) = (0, 0);
        if let Some((superblock, slot, _)) = &before {
            revision = superblock.revision;
            older = 1 - slot;
        }
        let start = Place {
            sequence: 1,
            position: 0,
        };
        let superblock = Superblock {
            id: identity.id,
            generation,
            revision,
            log_blocks: log.blocks,
            tail: start,
            durable: 0,
            clean: true,
            doubted: 0,
            payload: identity.payload,
        };
        let writer = Writer::new(log, superblock, older, start, Start::empty(start));
        writer.write_superblocks(|_| {}).await?;
        let inner = Rc::new(writer);
        Ok(Ledger { inner })
    }

    /// Opens the ledger in `region`: shows every record from the tail on, in order, to `visit`; the state
    /// after the last is the ledger's. What a crash cut off is not shown.
    ///
    /// # Errors
    /// [`LedgerError::NoLedger`] if neither superblock is whole; [`LedgerError::Version`];
    /// [`LedgerError::Region`] if the ledger there has another size; [`LedgerError::Damaged`] if a durable
    /// batch cannot be read (what `visit` saw is then incomplete; see [`Ledger::open_salvage`]);
    /// [`LedgerError::Device`].
    pub async fn open(
        device: Rc<dyn Device>,
        region: Span,
        mut visit: impl FnMut(Record<'_>),
    ) -> Result<(Ledger, Replay), LedgerError> {
        let visit = |salvaged: Salvaged<'_>| {
            if let Salvaged::Record(record) = salvaged {
                visit(record);
            }
        };
        Ledger::open_with(device, region, false, visit).await
    }

    /// Opens a damaged ledger with what is readable: reads the whole log, shows the records of every whole
    /// batch from the tail on, in order, and reports the gaps in [`Replay::losses`]. A removal or an overwrite
    /// in a gap is lost too, so old values may come back: the owner must treat the map as suspect.
    /// The first commit afterwards writes the whole map anew under a new generation, so that nothing the
    /// salvage passed over ever counts again. Cut off before it is answered, the log is as damaged as it was, or
    /// renewed.
    ///
    /// # Errors
    /// As for [`Ledger::open`], but for `Damaged`. A superblock with a number of 2^47 or more counts as not whole:
    /// no ledger gets there, and what goes on from it could not be opened again.
    pub async fn open_salvage(
        device: Rc<dyn Device>,
        region: Span,
        mut visit: impl FnMut(Record<'_>),
    ) -> Result<(Ledger, Replay), LedgerError> {
        Ledger::open_rescue(device, region, |salvaged| {
            if let Salvaged::Record(record) = salvaged {
                visit(record);
            }
        })
        .await
    }

    /// As [`Ledger::open_salvage`], and shows where batches are missing among the records. A record behind the last gap is
    /// the newest of its key; any other key may have had a newer one in a gap.
    ///
    /// # Errors
    /// As for [`Ledger::open_salvage`].
    pub async fn open_rescue(
        device: Rc<dyn Device>,
        region: Span,
        visit: impl FnMut(Salvaged<'_>),
    ) -> Result<(Ledger, Replay), LedgerError> {
        Ledger::open_with(device, region, true, visit).await
    }

    async fn open_with(
        device: Rc<dyn Device>,
        region: Span,
        salvage: bool,
        mut visit: impl FnMut(Salvaged<'_>),
    ) -> Result<(Ledger, Replay), LedgerError> {
        let log = Log::new(device, region)?;
        let found = read_superblocks(&*log.device, &log.name, region).await?;
        refuse_unknown(&found, &log.name, region)?;
        let found = if salvage {
            found.map(Found::for_salvage)
        } else {
            found
        };
        let (superblock, slot, hard_tail) =
            newest(found).map_err(|(a, b)| LedgerError::NoLedger {
                device: log.name.clone(),
                region,
                a,
                b,
            })?;
        if superblock.log_blocks != log.blocks {
            let recorded = Bytes((superblock.log_blocks + SUPERBLOCKS) * BLOCK as u64);
            return Err(LedgerError::Region {
                device: log.name,
                region,
                why: format!(
                    "the ledger there was formatted with {recorded}; open it with that size"
                ),
            });
        }
        let (start, report) = if salvage {
            salvage::salvage(&log, &superblock, &mut visit).await?
        } else {
            let mut visit = |record: Record<'_>| visit(Salvaged::Record(record));
            replay::replay(&log, &superblock, &mut visit).await?
        };
        // The last batch may have survived a killed process in the device's volatile cache only. Nothing may be
        // written after it before it is durable, or a power cut could leave the later one alone.
        let flushed = log.device.flush().await;
        flushed.map_err(|source| log.error("flush what was found of", source))?;
        let inner = Rc::new(Writer::new(log, superblock, 1 - slot, hard_tail, start));
        Ok((Ledger { inner }, report))
    }

    /// Erases both superblocks, whatever they are, so that the region holds no ledger any more.
    ///
    /// # Errors
    /// [`LedgerError::Region`], [`LedgerError::Device`].
    pub async fn wipe(device: Rc<dyn Device>, region: Span) -> Result<(), LedgerError> {
        let log = Log::new(device, region)?;
        let span = Span::new(region.start, Bytes(SUPERBLOCKS * BLOCK as u64));
        let written = log.device.write_zeroes(span, DURABLE).await;
        written.map_err(|source| log.error("wipe", source))
    }

    /// The size of a region that holds `live_records` records of `value_len` bytes each (keys of any
    /// size) such that compaction carries along about one record per new one, or fewer.
    pub fn region_for(live_records: u64, value_len: usize) -> Bytes {
        let record = Batch::record_bytes(u64::MAX, value_len).0;
        let blocks = SUPERBLOCKS + sweep::log_blocks_for(live_records, record);
        Bytes(blocks * BLOCK as u64)
    }

    // --- use ----------------------------------------------------------------------------------------

    /// An empty batch, in memory used before where there is some.
    pub fn batch(&self) -> Batch {
        self.inner.state.borrow_mut().queue.batch()
    }

    /// Puts `batch` in line. The owner's state at this call must be that after everything prepared before
    /// and this batch: live records are swept from it into the same atomic batch as needed.
    ///
    /// Never waits. What is wrong (a full region, an earlier failure) is the answer of the commit.
    pub fn prepare(&self, batch: Batch, owner: &mut dyn Owner) -> Prepared {
        let live = owner.live();
        let share = {
            let mut state = self.inner.state.borrow_mut();
            state.compaction.begin(self.inner.log.blocks, &batch, live)
        };
        // The owner may ask the ledger for figures: no borrow is held from here on.
        let outlook = share.outlook;
        let (mut entry, sweeping) = share.carry(batch, owner);
        let free = outlook.log.saturating_sub(outlook.used);
        if entry.blocks > free || entry.batch.bytes.len() > BATCH_MAX {
            let block = BLOCK as u64;
            entry.refused = Some(LedgerError::Full {
                device: self.inner.log.name.clone(),
                needed: Bytes(entry.blocks * block),
                free: Bytes(free * block),
                log: Bytes(outlook.log * block),
            });
        }
        let mut state = self.inner.state.borrow_mut();
        let ended = state.compaction.accept(&mut entry, sweeping, outlook.batch);
        state.counters.sweeps += u64::from(ended);
        Prepared {
            id: state.queue.push(entry),
            inner: Rc::clone(&self.inner),
            committed: false,
        }
    }

    /// Makes a prepared batch durable, together with all prepared before it. Several that wait share one
    /// device write.
    ///
    /// # Errors
    /// [`LedgerError::Device`] if the write failed, [`LedgerError::Full`] if the live records outgrew the region,
    /// [`LedgerError::Failed`] after any earlier failure, [`LedgerError::Closed`].
    pub async fn commit(&self, mut prepared: Prepared) -> Result<(), LedgerError> {
        assert!(
            Rc::ptr_eq(&self.inner, &prepared.inner),
            "a batch is committed to the ledger that prepared it"
        );
        prepared.committed = true;
        let id = prepared.id;
        let start = {
            let mut state = self.inner.state.borrow_mut();
            state.queue.commit(id);
            !std::mem::replace(&mut state.writing, true)
        };
        if start {
            let inner = Rc::clone(&self.inner);
            // A task of its own: the caller may be cancelled, the write goes on. Detached on purpose.
            drop(env::spawn(async move { inner.write_queue().await }));
        }
        loop {
            {
                let state = self.inner.state.borrow();
                if state.queue.is_durable(id) {
                    return Ok(());
                }
                if let Some(cause) = &state.failed {
                    return Err(match state.queue.is_in_failed_write(id) {
                        true => cause.clone(),
                        false => failed(cause),
                    });
                }
                if state.closed {
                    return Err(LedgerError::Closed);
                }
            }
            self.inner.progress.wait().await;
        }
    }

    /// Notes in the superblock that all is well and nothing is under way; the ledger takes nothing more.
    ///
    /// While a batch is indeterminate ([`Replay::unreadable_at`]) and nothing was committed since, all is left as it was found: the
    /// next opening says so again.
    ///
    /// # Errors
    /// [`LedgerError::Unfinished`] while batches are prepared and not durable; [`LedgerError::Failed`];
    /// [`LedgerError::Device`].
    pub async fn close(&self) -> Result<(), LedgerError> {
        {
            let mut state = self.inner.state.borrow_mut();
            if let Some(cause) = &state.failed {
                return Err(failed(cause));
            }
            if state.closed {
                return Ok(());
            }
            let prepared = state.queue.len();
            if prepared > 0 {
                return Err(LedgerError::Unfinished { prepared });
            }
            state.closed = true;
            if state.track.indeterminate() != 0 {
                return Ok(());
            }
        }
        // Behind a clean mark the next opening does not look.
        self.inner.clear_unreadable().await?;
        self.inner
            .write_superblocks(|superblock| superblock.clean = true)
            .await
    }

    /// The number given at format.
    pub fn id(&self) -> u128 {
        self.inner.id
    }

    /// The owner's payload in the superblock.
    pub fn payload(&self) -> Vec<u8> {
        self.inner.state.borrow().superblocks.payload.clone()
    }

    /// Replaces the payload. Atomic: cut off at any point, the old or the new one is found.
    ///
    /// # Errors
    /// [`LedgerError::Payload`] if it is too long; [`LedgerError::Failed`]; [`LedgerError::Closed`];
    /// [`LedgerError::Device`], after which the ledger takes nothing more.
    pub async fn set_payload(&self, payload: &[u8]) -> Result<(), LedgerError> {
        check_payload(payload)?;
        if self.inner.state.borrow().closed {
            return Err(LedgerError::Closed);
        }
        self.inner
            .write_superblocks(|superblock| superblock.payload = payload.to_vec())
            .await
    }

    /// What the ledger has done since it was opened, and where it stands.
    pub fn figures(&self) -> Counters {
        let state = self.inner.state.borrow();
        let block = BLOCK as u64;
        Counters {
            log_used: state.track.used() * block,
            log_size: self.inner.log.blocks * block,
            sequence: state.track.durable,
            ..state.counters
        }
    }
}

fn check_payload(payload: &[u8]) -> Result<(), LedgerError> {
    if payload.len() > PAYLOAD {
        return Err(LedgerError::Payload {
            asked: Bytes(payload.len() as u64),
            most: Bytes(PAYLOAD as u64),
        });
    }
    Ok(())
}

impl Drop for Prepared {
    fn drop(&mut self) {
        if !self.committed {
            let mut state = self.inner.state.borrow_mut();
            state.queue.refuse(self.id, LedgerError::Dropped);
        }
    }
}
