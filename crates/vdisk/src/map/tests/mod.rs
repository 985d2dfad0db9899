//! Maps against what they should be: entries come back, old roots stay whole, memory is bounded, bad bytes are refused.

mod hostile;
mod scenes;

use std::rc::Rc;

use base::Bytes;

use super::cache::Cache;
use super::memory::Memory;
use super::reader::Reader;
use super::{Entry, Layer, Map, Root};
use crate::names::{Generation, StoreNumber, Stores, VolumeId};

pub(crate) fn layer(born: u64) -> Layer {
    Layer {
        owner: VolumeId(1),
        born: Generation(born),
        stores: Stores::new(&[StoreNumber(born as u16 % 7), StoreNumber(9)]).unwrap(),
    }
}

pub(crate) fn full(born: u64) -> Entry {
    Entry::full(layer(born))
}

/// A reader with room for `nodes` nodes.
pub(crate) fn reader(memory: &Rc<Memory>, nodes: u64) -> Rc<Reader> {
    Reader::new(memory.clone(), Cache::new(Bytes(nodes * 17_000)))
}

pub(crate) fn map(memory: &Rc<Memory>, root: Root, extents: u32) -> Map {
    Map::open(
        reader(memory, 64),
        VolumeId(1),
        root,
        extents,
        Generation(0),
    )
}
