//! A ready-made owner: a small durable map whose live records are kept in memory here.
//!
//! ```text
//! put, remove -> in memory at once, staged -> commit -> durable, all or nothing
//! ```

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use base::{Bytes, Span};
use device::Device;

use crate::batch::{Batch, Record};
use crate::error::LedgerError;
use crate::ledger::{Identity, Ledger};
use crate::report::Replay;
use crate::sweep::Owner;

/// A durable map of `u64` to at most 1024 bytes.
///
/// # Example
/// ```
/// use base::{Bytes, Span};
/// use ledger::{Identity, Ledger, Map};
///
/// let runtime = env::Runtime::simulated(1);
/// runtime.block_on(async {
///     let device = device::Memory::new("memory", Bytes::mib(16));
///     let region = Span::bytes(0, Ledger::region_for(1000, 16).0.next_multiple_of(4096));
///     let map = Map::format(device.clone(), region, Identity::default()).await?;
///     map.put(7, b"seven");
///     map.commit().await?; // durable from here on
///
///     let (map, replay) = Map::open(device, region).await?;
///     assert_eq!(map.get(7).as_deref(), Some(&b"seven"[..]));
///     assert_eq!(replay.records, 1);
///     Ok::<(), ledger::LedgerError>(())
/// })?;
/// # Ok::<(), ledger::LedgerError>(())
/// ```
pub struct Map {
    ledger: Ledger,
    contents: RefCell<Contents>,
}

#[derive(Default)]
struct Contents {
    live: Live,
    staged: Batch,
}

#[derive(Default)]
struct Live {
    values: BTreeMap<u64, Box<[u8]>>,
    bytes: u64,
}

impl Live {
    fn put(&mut self, key: u64, value: &[u8]) -> Option<Box<[u8]>> {
        self.bytes += Batch::record_bytes(key, value.len()).0;
        let before = self.values.insert(key, value.into());
        self.forget(key, before.as_deref());
        before
    }

    fn remove(&mut self, key: u64) -> Option<Box<[u8]>> {
        let before = self.values.remove(&key);
        self.forget(key, before.as_deref());
        before
    }

    fn forget(&mut self, key: u64, value: Option<&[u8]>) {
        if let Some(value) = value {
            self.bytes -= Batch::record_bytes(key, value.len()).0;
        }
    }

    fn apply(&mut self, record: Record<'_>) {
        match record {
            Record::Put { key, value } => self.put(key, value),
            Record::Remove { key } => self.remove(key),
        };
    }
}

impl Owner for Live {
    /// The cursor is the key to go on from.
    fn sweep(&mut self, cursor: u64, max: usize, out: &mut Batch) -> Option<u64> {
        let mut range = self.values.range(cursor..);
        for (key, value) in range.by_ref().take(max.max(1)) {
            out.put(*key, value);
        }
        range.next().map(|(key, _)| *key)
    }

    fn live(&self) -> Option<Bytes> {
        Some(Bytes(self.bytes))
    }
}

impl Map {
    /// Makes an empty map in `region`; see [`Ledger::format`].
    ///
    /// # Errors
    /// As for [`Ledger::format`].
    pub async fn format(
        device: Rc<dyn Device>,
        region: Span,
        identity: Identity,
    ) -> Result<Map, LedgerError> {
        let ledger = Ledger::format(device, region, identity).await?;
        Ok(Map {
            ledger,
            contents: RefCell::default(),
        })
    }

    /// Opens the map in `region`; see [`Ledger::open`].
    ///
    /// # Errors
    /// As for [`Ledger::open`].
    pub async fn open(device: Rc<dyn Device>, region: Span) -> Result<(Map, Replay), LedgerError> {
        let mut contents = Contents::default();
        let (ledger, replay) =
            Ledger::open(device, region, |record| contents.live.apply(record)).await?;
        let contents = RefCell::new(contents);
        Ok((Map { ledger, contents }, replay))
    }

    /// Opens a damaged map with what is readable; see [`Ledger::open_salvage`].
    ///
    /// # Errors
    /// As for [`Ledger::open_salvage`].
    pub async fn open_salvage(
        device: Rc<dyn Device>,
        region: Span,
    ) -> Result<(Map, Replay), LedgerError> {
        let mut contents = Contents::default();
        let (ledger, replay) =
            Ledger::open_salvage(device, region, |record| contents.live.apply(record)).await?;
        let contents = RefCell::new(contents);
        Ok((Map { ledger, contents }, replay))
    }

    /// The value of `key`.
    pub fn get(&self, key: u64) -> Option<Vec<u8>> {
        self.contents
            .borrow()
            .live
            .values
            .get(&key)
            .map(|value| value.to_vec())
    }

    /// Sets `key`, and returns the value it had; durable with the next commit.
    ///
    /// # Panics
    /// If `value` is longer than [`crate::VALUE_MAX`].
    pub fn put(&self, key: u64, value: &[u8]) -> Option<Box<[u8]>> {
        let mut contents = self.contents.borrow_mut();
        contents.staged.put(key, value);
        contents.live.put(key, value)
    }

    /// Removes `key`, and returns the value it had; durable with the next commit.
    pub fn remove(&self, key: u64) -> Option<Box<[u8]>> {
        let mut contents = self.contents.borrow_mut();
        contents.staged.remove(key);
        contents.live.remove(key)
    }

    /// Makes every change so far durable, all or nothing with those of the same commit.
    ///
    /// # Errors
    /// As for [`Ledger::commit`].
    pub async fn commit(&self) -> Result<(), LedgerError> {
        let prepared = {
            let mut contents = self.contents.borrow_mut();
            let contents = &mut *contents;
            let batch = std::mem::replace(&mut contents.staged, self.ledger.batch());
            self.ledger.prepare(batch, &mut contents.live)
        };
        self.ledger.commit(prepared).await
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.contents.borrow().live.values.len()
    }

    /// Are there no keys?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Shows every key and value to `visit`, by rising key. The map must not be changed meanwhile.
    pub fn for_each(&self, mut visit: impl FnMut(u64, &[u8])) {
        for (key, value) in &self.contents.borrow().live.values {
            visit(*key, value);
        }
    }

    /// The ledger below: payload, figures, close.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }
}
