//! What the ledger's tests share: regions, runs, and the reference model of a map.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::rc::Rc;

use base::{Bytes, Span};
use device::{Device, Memory};
use env::{Rng, Runtime};
use ledger::{Batch, Identity, Ledger, LedgerError, Map, Owner, Record, Replay};

pub const BLOCK: u64 = 4096;

/// What a map should hold.
pub type Model = BTreeMap<u64, Vec<u8>>;

/// Runs in virtual time.
pub fn run<T: 'static>(future: impl Future<Output = T> + 'static) -> T {
    Runtime::simulated(1).block_on(future)
}

/// A region with a log of `log_blocks` blocks, 1 MiB into the device.
pub fn region(log_blocks: u64) -> Span {
    Span::bytes(1 << 20, (2 + log_blocks) * BLOCK)
}

/// A memory device that such a region fits.
pub fn memory(log_blocks: u64) -> Rc<Memory> {
    Memory::new("memory", Bytes((1 << 20) + (2 + log_blocks + 3) * BLOCK))
}

pub fn identity() -> Identity {
    Identity {
        id: 0x1234_5678_9abc_def0_0fed_cba9_8765_4321,
        payload: b"payload".to_vec(),
    }
}

/// All a map holds.
pub fn contents(map: &Map) -> Model {
    let mut model = Model::new();
    map.for_each(|key, value| {
        model.insert(key, value.to_vec());
    });
    model
}

/// Opens the map and checks that it holds just what `model` does.
pub async fn expect(device: Rc<dyn Device>, region: Span, model: &Model) -> (Map, Replay) {
    let (map, replay) = Map::open(device, region).await.expect("the ledger opens");
    assert_eq!(&contents(&map), model);
    (map, replay)
}

/// Formats a map with `cold` records of 200 bytes that no later change touches: only sweeps keep them.
pub async fn with_cold(device: Rc<dyn Device>, region: Span, cold: u64) -> (Map, Model) {
    let map = Map::format(device, region, identity()).await.unwrap();
    for key in 0..cold {
        map.put(1_000_000 + key, &[key as u8; 200]);
    }
    map.commit().await.unwrap();
    let model = contents(&map);
    (map, model)
}

/// Puts or removes something at random, in the map and in its reference model.
pub fn change(rng: &mut Rng, keys: u64, value_max: u64, map: &Map, model: &mut Model) {
    let key = rng.below(keys) * 0x0101;
    if rng.below(4) == 0 {
        map.remove(key);
        model.remove(&key);
    } else {
        let mut value = vec![0; rng.below(value_max + 1) as usize];
        rng.fill(&mut value);
        map.put(key, &value);
        model.insert(key, value);
    }
}

type Slot = Option<(u64, Vec<u8>)>;

/// An owner that keeps records in numbered slots and does not know how many bytes are live.
#[derive(Default, Clone)]
pub struct Slots {
    slots: Rc<RefCell<Vec<Slot>>>,
}

impl Slots {
    pub fn put(&self, batch: &mut Batch, key: u64, value: &[u8]) {
        batch.put(key, value);
        self.apply(Record::Put { key, value });
    }

    pub fn remove(&self, batch: &mut Batch, key: u64) {
        batch.remove(key);
        self.apply(Record::Remove { key });
    }

    pub fn apply(&self, record: Record<'_>) {
        let mut slots = self.slots.borrow_mut();
        let of = |wanted| move |slot: &Slot| slot.as_ref().map(|one| one.0) == wanted;
        match record {
            Record::Put { key, value } => {
                let at = slots.iter().position(of(Some(key)));
                let at = at.or_else(|| slots.iter().position(of(None)));
                let entry = Some((key, value.to_vec()));
                match at {
                    Some(at) => slots[at] = entry,
                    None => slots.push(entry),
                }
            }
            Record::Remove { key } => {
                if let Some(at) = slots.iter().position(of(Some(key))) {
                    slots[at] = None;
                }
            }
        }
    }

    pub fn model(&self) -> Model {
        self.slots.borrow().iter().flatten().cloned().collect()
    }
}

impl Owner for Slots {
    fn sweep(&mut self, cursor: u64, max: usize, out: &mut Batch) -> Option<u64> {
        let slots = self.slots.borrow();
        let from = cursor as usize;
        for (key, value) in slots.iter().skip(from).take(max).flatten() {
            out.put(*key, value);
        }
        let next = from + max;
        (next < slots.len()).then_some(next as u64)
    }
}

/// Opens a ledger whose owner are slots.
pub async fn open_slots(
    device: Rc<dyn Device>,
    region: Span,
) -> Result<(Ledger, Slots), LedgerError> {
    let slots = Slots::default();
    let (ledger, _) = Ledger::open(device, region, |record| slots.apply(record)).await?;
    Ok((ledger, slots))
}

/// Where the batches of a log begin, in blocks of the log, and how many blocks each takes: read off the
/// bytes, as `docs/formats/ledger.md` says.
pub fn frames(log: &[u8]) -> Vec<(u64, u64, u64)> {
    let mut found = Vec::new();
    for (index, block) in log.chunks_exact(BLOCK as usize).enumerate() {
        if block.starts_with(b"TaLB") {
            let length = u32::from_le_bytes(block[48..52].try_into().unwrap());
            let sequence = u64::from_le_bytes(block[16..24].try_into().unwrap());
            found.push((
                sequence,
                index as u64,
                (64 + u64::from(length)).div_ceil(BLOCK),
            ));
        }
    }
    found.sort_unstable();
    found
}
