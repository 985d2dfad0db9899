//! The ledger: puts prepared batches together and makes them durable with one write.
//!
//! ```text
//! prepare: batch + swept records -> queue (order is fixed here)
//! commit:  marks its entry; the writer takes the committed head of the queue, as much as fits one write
//! writer:  one batch on the device at a time, FUA; then every commit it held is answered
//! ```
//!
//! Always true:
//! 1. At most one batch is on its way to the device; the next starts when it is durable. So a batch that
//!    is there proves that all before it were durable.
//! 2. The log between the tails of both superblocks and the head is never overwritten.
//! 3. A batch is written only when every batch prepared before it has been committed.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use base::{Buf, Bytes, Sector, Span};
use device::{Class, Device, DeviceError, WriteFlags};
use env::sync::{Event, Semaphore, join_all};

use crate::batch::{Batch, Record};
use crate::error::LedgerError;
use crate::layout::{BLOCK, Found, HEADER, Heading, PAYLOAD, Place, Superblock, blocks_for};
use crate::replay::{self, Start};
use crate::report::{Replay, Salvaged, Unreadable};
use crate::superblocks::{newest, read_superblocks, refuse_unknown};
use crate::sweep::{self, Outlook, Owner, Plan};

/// The longest payload a superblock holds, in bytes.
pub const PAYLOAD_MAX: usize = PAYLOAD;

/// Prepared batches are merged into one write up to this many bytes.
const MERGE_MAX: usize = 1 << 20;
/// The records of one batch on the device: its length is a 32-bit number.
const BATCH_MAX: usize = u32::MAX as usize - BLOCK;
/// Blocks of the two superblocks.
const SUPERBLOCKS: u64 = 2;
/// A log shorter than this holds nothing useful.
const LOG_BLOCKS_MIN: u64 = 8;
/// Ledger metadata is urgent: users wait for it.
const DURABLE: WriteFlags = WriteFlags {
    fua: true,
    class: Class::Metadata,
};

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
    inner: Rc<Inner>,
}

/// A batch in line. Hand it to [`Ledger::commit`]; dropping it instead fails the ledger, since later batches
/// were prepared on top of it.
#[must_use = "dropping a prepared batch fails the ledger; commit it"]
pub struct Prepared {
    inner: Rc<Inner>,
    id: u64,
    committed: bool,
}

struct Entry {
    batch: Batch,
    swept: u32,
    blocks: u64,
    epoch: u64,
    /// A sweep begins with this entry: it also begins a batch on the device.
    starts: bool,
    /// The sweep of this entry's epoch ends with it.
    ends: bool,
    committed: bool,
    /// It begins a generation: the superblocks must point here before any commit is answered.
    renews: bool,
    /// Instead of being written, it fails the ledger.
    refused: Option<LedgerError>,
}

/// Blocks appended from the start of one sweep to the start of the next.
struct Epoch {
    id: u64,
    blocks: u64,
}

#[derive(Clone, Copy)]
struct Sweeping {
    cursor: u64,
    swept: u64,
    epoch: u64,
}

struct State {
    // The superblocks.
    /// Of the batches that count.
    generation: u64,
    revision: u64,
    /// Which slot (0 or 1) is written first next time: the one that is older or bad.
    older: usize,
    payload: Vec<u8>,
    clean: bool,
    /// The lesser tail of the two superblocks: behind it nothing is overwritten.
    hard_tail: Place,
    /// The head when the superblocks last noted the durable batch.
    noted: u64,
    /// The first commit must sweep everything and begin a generation, to leave damage or an indeterminate batch behind.
    renew: bool,
    /// What replay could not read behind the head; written over before the next batch.
    unreadable: Unreadable,
    // The log on the device.
    head: Place,
    tail: Place,
    durable: u64,
    /// Where the sweeps under way or ended in the queue began on the device.
    starts: VecDeque<(u64, Place)>,
    // The queue.
    queue: VecDeque<Entry>,
    first: u64,
    writing: bool,
    failed: Option<LedgerError>,
    /// Entries before this one were in the write that failed, or before it.
    failed_before: u64,
    closed: bool,
    // Compaction, as prepared.
    epochs: VecDeque<Epoch>,
    sweeping: Option<Sweeping>,
    largest: u64,
    /// Bytes put that may be live, where the owner does not say.
    bound: u64,
    since_sweep: u64,
    figures: Counters,
    spare: Vec<Vec<u8>>,
}

impl State {
    /// The indeterminate batch; 0: none any more.
    fn indeterminate(&self) -> u64 {
        match self.unreadable.doubted > self.durable {
            true => self.unreadable.doubted,
            false => 0,
        }
    }
}

struct Inner {
    device: Rc<dyn Device>,
    name: String,
    region: Span,
    log_blocks: u64,
    piece: usize,
    id: u128,
    state: RefCell<State>,
    progress: Event,
    superblock: Rc<Semaphore>,
}

// --- opening ----------------------------------------------------------------------------------------

/// The region in blocks, if a ledger can live there.
fn geometry(device: &dyn Device, region: Span) -> Result<(String, u64, usize), LedgerError> {
    let info = device.info();
    let refuse = |why: String| LedgerError::Region {
        device: info.name.clone(),
        region,
        why,
    };
    let block = BLOCK as u64;
    if !region.start.byte().is_multiple_of(block) || !region.len.is_multiple_of(block) {
        return Err(refuse(
            "start and length must be multiples of 4 KiB".to_owned(),
        ));
    }
    let end = region.start.byte().checked_add(region.len.0);
    if end.is_none_or(|end| end > info.size.0) {
        return Err(refuse(format!("the device holds {}", info.size)));
    }
    let least = SUPERBLOCKS + LOG_BLOCKS_MIN;
    if region.len.0 / block < least {
        return Err(refuse(format!(
            "at least {} are needed",
            Bytes(least * block)
        )));
    }
    if info.max_io.0 < block {
        return Err(refuse(format!(
            "the device takes {} at once, a block is 4 KiB",
            info.max_io
        )));
    }
    let piece = info.max_io.0.min(1 << 20) / block * block;
    Ok((
        info.name,
        region.len.0 / block - SUPERBLOCKS,
        piece as usize,
    ))
}

/// A generation under which no batch on the device counts: drawn anew, and mixed with the one before, so
/// that a repeated seed does not repeat it either.
fn fresh_generation(before: Option<u64>) -> u64 {
    let drawn = env::rng("ledger generation").bits();
    let Some(before) = before else {
        return drawn;
    };
    let mixed = drawn ^ before.rotate_left(23).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed.wrapping_add(u64::from(mixed == before))
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
        let (name, log_blocks, piece) = geometry(&*device, region)?;
        check_payload(&identity.payload)?;
        let found = match read_superblocks(&*device, &name, region).await {
            Ok(found) => found,
            // What cannot be read is to be written.
            Err(LedgerError::Device { .. }) => {
                [Found::Bad("cannot be read"), Found::Bad("cannot be read")]
            }
            Err(other) => return Err(other),
        };
        refuse_unknown(&found, &name, region)?;
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
        let ledger = Ledger::assemble(
            device,
            (name, region, log_blocks, piece),
            Superblock {
                id: identity.id,
                generation,
                revision,
                log_blocks,
                tail: start,
                durable: 0,
                clean: true,
                doubted: 0,
                payload: identity.payload,
            },
            older,
            start,
            Start::empty(start),
        );
        ledger.inner.write_superblocks(|_| {}).await?;
        Ok(ledger)
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
        let (name, log_blocks, piece) = geometry(&*device, region)?;
        let found = read_superblocks(&*device, &name, region).await?;
        refuse_unknown(&found, &name, region)?;
        let found = if salvage {
            found.map(Found::for_salvage)
        } else {
            found
        };
        let (superblock, slot, hard_tail) =
            newest(found).map_err(|(a, b)| LedgerError::NoLedger {
                device: name.clone(),
                region,
                a,
                b,
            })?;
        if superblock.log_blocks != log_blocks {
            let recorded = Bytes((superblock.log_blocks + SUPERBLOCKS) * BLOCK as u64);
            return Err(LedgerError::Region {
                device: name,
                region,
                why: format!(
                    "the ledger there was formatted with {recorded}; open it with that size"
                ),
            });
        }
        let log = replay::Log {
            device: Rc::clone(&device),
            name: name.clone(),
            region,
            start: region.start.after(Bytes(SUPERBLOCKS * BLOCK as u64)),
            blocks: log_blocks,
            piece,
        };
        let (start, report) = if salvage {
            replay::salvage(&log, &superblock, &mut visit).await?
        } else {
            let mut visit = |record: Record<'_>| visit(Salvaged::Record(record));
            replay::replay(&log, &superblock, &mut visit).await?
        };
        // The last batch may have survived a killed process in the device's volatile cache only. Nothing may be
        // written after it before it is durable, or a power cut could leave the later one alone.
        device.flush().await.map_err(|source| LedgerError::Device {
            device: name.clone(),
            doing: "flush what was found of",
            region,
            source: Box::new(source),
        })?;
        let shape = (name, region, log_blocks, piece);
        let ledger = Ledger::assemble(device, shape, superblock, 1 - slot, hard_tail, start);
        Ok((ledger, report))
    }

    fn assemble(
        device: Rc<dyn Device>,
        (name, region, log_blocks, piece): (String, Span, u64, usize),
        superblock: Superblock,
        older: usize,
        hard_tail: Place,
        start: Start,
    ) -> Ledger {
        let used = start.head.position - start.tail.position;
        Ledger {
            inner: Rc::new(Inner {
                device,
                name,
                region,
                log_blocks,
                piece,
                id: superblock.id,
                progress: Event::default(),
                superblock: Semaphore::new(1),
                state: RefCell::new(State {
                    generation: superblock.generation,
                    revision: superblock.revision,
                    older,
                    payload: superblock.payload,
                    clean: superblock.clean,
                    hard_tail,
                    // Replay went on from here with nothing noted behind it: note soon.
                    noted: superblock.tail.position,
                    renew: start.renew,
                    unreadable: start.unreadable,
                    head: start.head,
                    tail: start.tail,
                    durable: start.head.sequence - 1,
                    starts: VecDeque::new(),
                    queue: VecDeque::new(),
                    first: 0,
                    writing: false,
                    failed: None,
                    failed_before: 0,
                    closed: false,
                    epochs: VecDeque::from([Epoch {
                        id: 0,
                        blocks: used,
                    }]),
                    sweeping: None,
                    largest: 0,
                    bound: start.put_bytes,
                    since_sweep: 0,
                    figures: Counters::default(),
                    spare: Vec::new(),
                }),
            }),
        }
    }

    /// Erases both superblocks, whatever they are, so that the region holds no ledger any more.
    ///
    /// # Errors
    /// [`LedgerError::Region`], [`LedgerError::Device`].
    pub async fn wipe(device: Rc<dyn Device>, region: Span) -> Result<(), LedgerError> {
        let (name, ..) = geometry(&*device, region)?;
        let span = Span::new(region.start, Bytes(SUPERBLOCKS * BLOCK as u64));
        let written = device.write_zeroes(span, DURABLE).await;
        written.map_err(|source| LedgerError::Device {
            device: name,
            doing: "wipe",
            region,
            source: Box::new(source),
        })
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
        let bytes = self
            .inner
            .state
            .borrow_mut()
            .spare
            .pop()
            .unwrap_or_default();
        Batch { bytes, count: 0 }
    }

    /// Puts `batch` in line. The owner's state at this call must be that after everything prepared before
    /// and this batch: live records are swept from it into the same atomic batch as needed.
    ///
    /// Never waits. What is wrong (a full region, an earlier failure) is the answer of the commit.
    pub fn prepare(&self, batch: Batch, owner: &mut dyn Owner) -> Prepared {
        let live = owner.live();
        let (outlook, epoch, sweeping, renew) = {
            let mut state = self.inner.state.borrow_mut();
            let put = batch.bytes.len() as u64;
            state.bound += put;
            state.since_sweep += put;
            let outlook = Outlook {
                log: self.inner.log_blocks,
                used: state.epochs.iter().map(|epoch| epoch.blocks).sum(),
                batch: blocks_for(batch.bytes.len()),
                largest: state.largest,
                live: live.map_or(state.bound, |bytes| bytes.0),
                swept: state.sweeping.map(|sweeping| sweeping.swept),
            };
            let epoch = state.epochs.back().map_or(0, |epoch| epoch.id);
            let renew = std::mem::take(&mut state.renew);
            (outlook, epoch, state.sweeping, renew)
        };
        // The owner may ask the ledger for figures: no borrow is held from here on.
        let records = batch.count;
        let mut entry = Entry {
            batch,
            swept: 0,
            blocks: outlook.batch,
            epoch,
            starts: false,
            ends: false,
            committed: false,
            renews: renew,
            refused: None,
        };
        let mut sweeping = sweeping;
        match if renew {
            Plan::Whole
        } else {
            sweep::plan(outlook)
        } {
            Plan::Rest => {}
            Plan::Abandon => sweeping = None,
            Plan::Share(bytes) => {
                let mut current = sweeping.unwrap_or_else(|| {
                    entry.starts = true;
                    Sweeping {
                        cursor: 0,
                        swept: 0,
                        epoch: epoch + 1,
                    }
                });
                // A block begun is filled: its padding costs as much as records.
                let before = entry.batch.bytes.len();
                let target = blocks_for(before + bytes as usize) as usize * BLOCK - HEADER;
                entry.ends = sweep_until(owner, &mut entry.batch, &mut current.cursor, target);
                current.swept += (entry.batch.bytes.len() - before) as u64;
                sweeping = Some(current);
            }
            Plan::Whole => {
                // The owner's state holds what the batch puts; only its removals must be written.
                entry.batch.keep_removals();
                let before = entry.batch.bytes.len();
                let mut current = Sweeping {
                    cursor: 0,
                    swept: 0,
                    epoch: epoch + 1,
                };
                entry.starts = true;
                entry.ends = true;
                while !sweep_until(owner, &mut entry.batch, &mut current.cursor, usize::MAX) {}
                current.swept = (entry.batch.bytes.len() - before) as u64;
                sweeping = Some(current);
            }
        }
        self.enqueue(entry, records, sweeping, outlook)
    }

    /// Accounts for the entry and appends it to the queue.
    fn enqueue(
        &self,
        mut entry: Entry,
        records: u32,
        mut sweeping: Option<Sweeping>,
        outlook: Outlook,
    ) -> Prepared {
        let mut state = self.inner.state.borrow_mut();
        entry.blocks = blocks_for(entry.batch.bytes.len());
        entry.swept = entry.batch.count.saturating_sub(records);
        let free = outlook.log.saturating_sub(outlook.used);
        if entry.blocks > free || entry.batch.bytes.len() > BATCH_MAX {
            let block = BLOCK as u64;
            entry.refused = Some(LedgerError::Full {
                device: self.inner.name.clone(),
                needed: Bytes(entry.blocks * block),
                free: Bytes(free * block),
                log: Bytes(outlook.log * block),
            });
        }
        if entry.starts {
            entry.epoch += 1;
            state.epochs.push_back(Epoch {
                id: entry.epoch,
                blocks: 0,
            });
        }
        if let Some(epoch) = state.epochs.back_mut() {
            epoch.blocks += entry.blocks;
        }
        if entry.starts {
            state.since_sweep = 0;
        }
        if let Some(ended) = sweeping.filter(|_| entry.ends) {
            state.bound = ended.swept + state.since_sweep;
            state.epochs.retain(|epoch| epoch.id >= ended.epoch);
            state.figures.sweeps += 1;
            sweeping = None;
        }
        state.sweeping = sweeping;
        state.largest = state.largest.max(outlook.batch);
        let id = state.first + state.queue.len() as u64;
        state.queue.push_back(entry);
        drop(state);
        Prepared {
            inner: Rc::clone(&self.inner),
            id,
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
            let at = (id - state.first) as usize;
            if let Some(entry) = state.queue.get_mut(at) {
                entry.committed = true;
            }
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
                if id < state.first {
                    return Ok(());
                }
                if let Some(cause) = &state.failed {
                    return Err(if id < state.failed_before {
                        cause.clone()
                    } else {
                        failed(cause)
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
            if !state.queue.is_empty() {
                return Err(LedgerError::Unfinished {
                    prepared: state.queue.len(),
                });
            }
            state.closed = true;
            if state.indeterminate() != 0 {
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
        self.inner.state.borrow().payload.clone()
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
            log_used: (state.head.position - state.tail.position) * block,
            log_size: self.inner.log_blocks * block,
            sequence: state.durable,
            ..state.figures
        }
    }
}

fn failed(cause: &LedgerError) -> LedgerError {
    LedgerError::Failed {
        first: Box::new(cause.clone()),
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

/// Sweeps from `cursor` until the batch holds about `target` bytes; true if the sweep came to its end.
fn sweep_until(owner: &mut dyn Owner, batch: &mut Batch, cursor: &mut u64, target: usize) -> bool {
    // A few records first, to see how long they are; then as many as fit, at most some thousand.
    let (mut record, mut most) = (1, 16);
    loop {
        let (bytes, count) = (batch.bytes.len(), batch.count);
        let left = target.saturating_sub(bytes);
        if left < record {
            return false;
        }
        let max = (left / record).clamp(1, most);
        let Some(next) = owner.sweep(*cursor, max, batch) else {
            return true;
        };
        assert!(
            next > *cursor,
            "a sweep's cursor must rise, it went from {cursor} to {next}"
        );
        *cursor = next;
        let new = (batch.count - count) as usize;
        if new == 0 {
            // A stretch with nothing live: look further each time.
            most = (4 * most).min(4096);
        } else {
            record = (batch.bytes.len() - bytes).div_ceil(new);
            most = 4096;
        }
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        if self.committed {
            return;
        }
        let mut state = self.inner.state.borrow_mut();
        let at = self.id.wrapping_sub(state.first) as usize;
        if let Some(entry) = state.queue.get_mut(at) {
            entry.committed = true;
            entry.refused.get_or_insert(LedgerError::Dropped);
        }
    }
}

// --- writing ----------------------------------------------------------------------------------------

/// A batch as it goes to the device.
struct Frame {
    at: Place,
    data: Buf,
    /// Entries in it.
    entries: usize,
    /// The tail once it is durable.
    tail: Place,
    /// A sweep ends in it.
    ends: bool,
    /// Of its header. A new one counts once the superblocks name it, which they do before any commit is answered.
    generation: u64,
    renews: bool,
    records: u64,
    swept: u64,
}

impl Inner {
    /// Writes what is committed at the head of the queue until nothing is.
    async fn write_queue(&self) {
        let outcome = loop {
            match self.next_frame() {
                Ok(Some(frame)) => {
                    if let Err(cause) = self.write_frame(frame).await {
                        break Err(cause);
                    }
                }
                Ok(None) => break Ok(()),
                Err(cause) => break Err(cause),
            }
        };
        self.state.borrow_mut().writing = false;
        if let Err(cause) = outcome {
            self.fail(cause);
        }
        self.progress.notify_all();
    }

    fn fail(&self, cause: LedgerError) {
        let mut state = self.state.borrow_mut();
        if state.failed.is_none() {
            state.failed = Some(cause);
        }
        drop(state);
        self.progress.notify_all();
    }

    /// Forms the next batch from the committed head of the queue; `None` if nothing is committed.
    fn next_frame(&self) -> Result<Option<Frame>, LedgerError> {
        let mut state = self.state.borrow_mut();
        if let Some(cause) = &state.failed {
            return Err(cause.clone());
        }
        if state.closed {
            return Ok(None);
        }
        let (mut entries, mut length) = (0, 0);
        for entry in &state.queue {
            let joins = entries == 0
                || (!entry.starts
                    && entry.refused.is_none()
                    && length + entry.batch.bytes.len() <= MERGE_MAX);
            if !entry.committed || !joins {
                break;
            }
            if let Some(cause) = &entry.refused {
                let cause = cause.clone();
                state.failed_before = state.first + 1;
                return Err(cause);
            }
            length += entry.batch.bytes.len();
            entries += 1;
        }
        if entries == 0 {
            return Ok(None);
        }
        state.failed_before = state.first + entries as u64;
        let at = state.head;
        let blocks = blocks_for(length);
        let mut data = Buf::for_read(blocks as usize * BLOCK);
        let (mut count, mut swept, mut promised, mut from) = (0, 0, 0, HEADER);
        let mut tail = state.tail;
        let mut ends = false;
        let mut begun = None;
        for entry in state.queue.iter().take(entries) {
            let bytes = &entry.batch.bytes;
            data[from..from + bytes.len()].copy_from_slice(bytes);
            from += bytes.len();
            count += entry.batch.count;
            swept += entry.swept;
            promised += entry.blocks;
            if entry.starts {
                begun = Some((entry.epoch, at));
            }
            if entry.ends {
                ends = true;
                let known = state.starts.iter().copied().chain(begun);
                if let Some((_, start)) = known.into_iter().find(|(epoch, _)| *epoch == entry.epoch)
                {
                    tail = start;
                }
            }
        }
        data[from..].fill(0);
        // Entries that share a batch also share what it saves by not being padded apart.
        let epoch = state.queue[0].epoch;
        if let Some(epoch) = state.epochs.iter_mut().find(|one| one.id == epoch) {
            epoch.blocks -= promised - blocks;
        }
        state.starts.extend(begun);
        state
            .starts
            .retain(|(_, start)| start.position >= tail.position);
        let renews = state.queue[0].renews;
        let generation = if renews {
            // Damage, and whatever else of the old generation lies where batches go on, must never count.
            fresh_generation(Some(state.generation))
        } else {
            state.generation
        };
        let heading = Heading {
            generation,
            place: at,
            tail,
            length: length as u32,
            count,
            swept,
        };
        heading.seal(&mut data);
        Ok(Some(Frame {
            at,
            data,
            entries,
            tail,
            ends,
            generation,
            renews,
            records: u64::from(count - swept),
            swept: u64::from(swept),
        }))
    }

    /// Writes one batch and answers those in it.
    async fn write_frame(&self, frame: Frame) -> Result<(), LedgerError> {
        let blocks = (frame.data.len() / BLOCK) as u64;
        let end = frame.at.position + blocks;
        let (clean, reused) = {
            let state = self.state.borrow();
            (
                state.clean,
                end > state.hard_tail.position + self.log_blocks,
            )
        };
        if clean || reused {
            // No batch follows a clean mark, and none overwrites what a superblock still points at.
            self.write_superblocks(|superblock| superblock.clean = false)
                .await?;
        }
        {
            let state = self.state.borrow();
            assert!(
                end <= state.hard_tail.position + self.log_blocks,
                "the log's accounts are wrong: {blocks} blocks at {:?} with the tail at {:?}",
                frame.at,
                state.hard_tail
            );
        }
        self.clear_unreadable().await?;
        self.write_log(frame.at.position, frame.data).await?;
        let note = {
            let mut state = self.state.borrow_mut();
            state.head = Place {
                sequence: frame.at.sequence + 1,
                position: end,
            };
            state.durable = frame.at.sequence;
            state.tail = frame.tail;
            state.generation = frame.generation;
            let lag = state.tail.position - state.hard_tail.position;
            (frame.ends && lag >= self.log_blocks / 8) || end - state.noted >= replay::NOTE_EVERY
        };
        if frame.renews {
            self.write_superblocks(|_| {}).await?;
        }
        {
            let mut state = self.state.borrow_mut();
            let state = &mut *state;
            state.first += frame.entries as u64;
            for entry in state.queue.drain(..frame.entries) {
                let mut bytes = entry.batch.bytes;
                if state.spare.len() < 8 && bytes.capacity() <= MERGE_MAX {
                    bytes.clear();
                    state.spare.push(bytes);
                }
            }
            state.figures.batches += frame.entries as u64;
            state.figures.records += frame.records;
            state.figures.swept += frame.swept;
        }
        self.progress.notify_all();
        if note && !frame.renews {
            self.write_superblocks(|_| {}).await?;
        }
        Ok(())
    }

    /// Writes zeroes over what replay could not read behind the head. Where a batch that was durable may lie there, the
    /// ledger fails if that cannot be done. Before that the superblocks note the batch as indeterminate, since the zeroes
    /// remove the evidence. From then on all that is there is void.
    async fn clear_unreadable(&self) -> Result<(), LedgerError> {
        let (positions, suspect) = {
            let mut state = self.state.borrow_mut();
            let found = std::mem::take(&mut state.unreadable.positions);
            (found, state.indeterminate() != 0)
        };
        if suspect {
            self.write_superblocks(|_| {}).await?;
        }
        // Nothing is overwritten that an older superblock counts on.
        let end = self.state.borrow().hard_tail.position + self.log_blocks;
        for position in positions.into_iter().filter(|it| *it < end) {
            let span = Span::new(self.sector(position), Bytes(BLOCK as u64));
            match self.device.write_zeroes(span, DURABLE).await {
                Ok(()) => {}
                Err(source) if suspect || matches!(source, DeviceError::Gone { .. }) => {
                    let cause = self.device_error("write over the unreadable end of", source);
                    self.fail(cause.clone());
                    return Err(cause);
                }
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Where block `position` of the log lies.
    fn sector(&self, position: u64) -> Sector {
        let block = BLOCK as u64;
        let log = self.region.start.after(Bytes(SUPERBLOCKS * block));
        log.after(Bytes(position % self.log_blocks * block))
    }

    /// Writes `data` to the log from block `position` on, around its end if need be.
    async fn write_log(&self, position: u64, data: Buf) -> Result<(), LedgerError> {
        let view = data.freeze();
        let mut writes = Vec::with_capacity(1);
        let mut done = 0;
        while done < view.len() {
            let at = (position + (done / BLOCK) as u64) % self.log_blocks;
            let to_end = (self.log_blocks - at) as usize * BLOCK;
            let len = (view.len() - done).min(to_end).min(self.piece);
            let slice = view.slice(done, len);
            writes.push(self.device.write(self.sector(at), slice, DURABLE));
            done += len;
        }
        {
            let mut state = self.state.borrow_mut();
            state.figures.device_writes += writes.len() as u64;
            state.figures.bytes_written += view.len() as u64;
        }
        let outcomes: Result<Vec<()>, DeviceError> = if writes.len() == 1 {
            writes.remove(0).await.map(|()| Vec::new())
        } else {
            join_all(writes).await.into_iter().collect()
        };
        outcomes
            .map(|_| ())
            .map_err(|source| self.device_error("write a batch of", source))
    }

    fn device_error(&self, doing: &'static str, source: DeviceError) -> LedgerError {
        LedgerError::Device {
            device: self.name.clone(),
            doing,
            region: self.region,
            source: Box::new(source),
        }
    }

    /// Writes both superblocks with `change`, the older one first, so that at every moment one is whole. A
    /// failure fails the ledger.
    async fn write_superblocks(
        &self,
        change: impl FnOnce(&mut Superblock),
    ) -> Result<(), LedgerError> {
        let _turn = self.superblock.acquire(1).await;
        let (mut superblock, older, head) = {
            let state = self.state.borrow();
            if let Some(cause) = &state.failed {
                return Err(failed(cause));
            }
            let superblock = Superblock {
                id: self.id,
                generation: state.generation,
                revision: state.revision,
                log_blocks: self.log_blocks,
                tail: state.tail,
                durable: state.durable,
                clean: state.clean,
                doubted: state.indeterminate(),
                payload: state.payload.clone(),
            };
            (superblock, state.older, state.head.position)
        };
        change(&mut superblock);
        for slot in [older, 1 - older] {
            superblock.revision += 1;
            let at = self.region.start.after(Bytes((slot * BLOCK) as u64));
            let data = Buf::copy_of(&superblock.encode()).freeze();
            if let Err(source) = self.device.write(at, data, DURABLE).await {
                let cause = self.device_error("write a superblock of", source);
                self.fail(cause.clone());
                return Err(cause);
            }
        }
        let mut state = self.state.borrow_mut();
        state.revision = superblock.revision;
        state.older = older;
        state.hard_tail = superblock.tail;
        state.noted = head;
        state.clean = superblock.clean;
        state.payload = superblock.payload;
        state.figures.device_writes += 2;
        state.figures.superblock_writes += 2;
        state.figures.bytes_written += 2 * BLOCK as u64;
        Ok(())
    }
}
