//! The bytes of a node: what is written, and what is accepted of what is read.
//!
//! ```text
//! header (64 bytes): magic, version, crc, owner, born, number, level, place, count
//! 510 entries of 32 bytes: in a leaf two layers, above it the reference of a child; all zero: nothing
//! ```
//!
//! Byte by byte in `docs/formats/volume.md`.
//!
//! Always true:
//! 1. A [`Node`] in memory is valid: whatever came from outside was checked whole when it became one.
//! 2. It takes 16 KiB of memory and a few words, whatever is in it.

use base::crc::crc32c;
use base::{Buf, View};

use super::{Entry, Layer, NodeRef};
use crate::names::{Generation, NodeName, StoreNumber, Stores, VolumeId};

/// The length of a node in bytes.
pub const NODE: usize = 16 << 10;
/// Entries in a node.
pub const FANOUT: u32 = ((NODE - HEADER) / ENTRY) as u32;
/// The greatest level there is: 510^4 extents are more than 2^32.
pub const LEVEL_MAX: u8 = 3;

const HEADER: usize = 64;
const ENTRY: usize = 32;
const LAYER: usize = 16;
const MAGIC: [u8; 8] = *b"TANADAmn";
const VERSION: u32 = 1;

/// Where a node stands in its tree: levels above the leaves, and which one of that level, from the left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// 0 for a leaf.
    pub level: u8,
    /// Covers extents from `nth * 510^(level + 1)` on.
    pub nth: u32,
}

/// Extents below one entry of a node of `level`.
pub fn stride(level: u8) -> u64 {
    u64::from(FANOUT).pow(u32::from(level))
}

/// The least level whose one node covers `extents`.
pub fn level_for(extents: u32) -> u8 {
    (0..LEVEL_MAX)
        .find(|level| stride(level + 1) >= u64::from(extents))
        .unwrap_or(LEVEL_MAX)
}

impl Place {
    /// The place of that level above extent `index`.
    pub fn of(level: u8, index: u32) -> Place {
        Place {
            level,
            nth: (u64::from(index) / stride(level + 1)) as u32,
        }
    }

    /// Which of its entries leads to extent `index`.
    pub fn slot(self, index: u32) -> usize {
        ((u64::from(index) / stride(self.level)) % u64::from(FANOUT)) as usize
    }

    /// The first extent below entry `slot`; it may lie behind all there are.
    pub fn first(self, slot: usize) -> u64 {
        u64::from(self.nth) * stride(self.level + 1) + slot as u64 * stride(self.level)
    }

    /// The place below entry `slot`.
    ///
    /// # Panics
    /// Below a leaf.
    pub fn child(self, slot: usize) -> Place {
        Place {
            level: self.level.checked_sub(1).expect("below a leaf is nothing"),
            nth: self.nth * FANOUT + slot as u32,
        }
    }

    /// The place above, and the entry there that leads here.
    pub fn parent(self) -> (Place, usize) {
        let parent = Place {
            level: self.level + 1,
            nth: self.nth / FANOUT,
        };
        (parent, (self.nth % FANOUT) as usize)
    }

    /// Can there be such a place?
    fn exists(self) -> bool {
        self.level <= LEVEL_MAX
            && u64::from(self.nth) <= u64::from(u32::MAX) / stride(self.level + 1)
    }
}

/// Why bytes are not the node they should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// Too many or too few.
    #[error("it has {0} bytes, and a node has {NODE}")]
    Length(usize),
    /// Something else.
    #[error("it begins with {0:02x?}: that is no node of a map")]
    Magic([u8; 8]),
    /// Of a later program.
    #[error("it has version {0}, and this program knows {VERSION}; use a newer one")]
    Version(u32),
    /// Changed bits.
    #[error("its checksum is {found:08x} and should be {expected:08x}")]
    Checksum {
        /// Of the bytes.
        found: u32,
        /// As the reference, or the header, says.
        expected: u32,
    },
    /// A whole node, of somewhere else.
    #[error("it is another node: {field} is {found} and should be {expected}")]
    Elsewhere {
        /// What differs.
        field: &'static str,
        /// What it says.
        found: u64,
        /// What was asked for.
        expected: u64,
    },
    /// A count that the entries do not bear out.
    #[error("it says that it has {says} entries, and has {has}")]
    Count {
        /// The header.
        says: u64,
        /// The entries.
        has: u64,
    },
    /// Bytes that must be zero.
    #[error("bytes that should be zero are not, in {0}")]
    NotZero(&'static str),
    /// An entry that cannot be.
    #[error("its entry {slot} cannot be: {why}")]
    Entry {
        /// Which.
        slot: usize,
        /// What is wrong.
        why: &'static str,
    },
}

/// A node in memory. See the module's head.
pub struct Node {
    place: Place,
    bytes: Box<[u8; NODE]>,
    count: u32,
}

impl Clone for Node {
    fn clone(&self) -> Self {
        Node {
            place: self.place,
            bytes: self.bytes.clone(),
            count: self.count,
        }
    }
}

impl Node {
    /// One with nothing in it.
    pub fn empty(place: Place) -> Node {
        Node {
            place,
            bytes: zeroes(),
            count: 0,
        }
    }

    /// Where it stands.
    pub fn place(&self) -> Place {
        self.place
    }

    /// Entries that are something.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Entry `slot` of a leaf.
    pub fn entry(&self, slot: usize) -> Option<Entry> {
        debug_assert_eq!(self.place.level, 0);
        entry(self.raw(slot)).expect("checked when it came in")
    }

    /// Entry `slot` of a node above the leaves.
    pub fn child(&self, slot: usize) -> Option<NodeRef> {
        debug_assert_ne!(self.place.level, 0);
        child(self.raw(slot)).expect("checked when it came in")
    }

    /// Sets entry `slot` of a leaf.
    pub fn set_entry(&mut self, slot: usize, new: Option<Entry>) {
        debug_assert_eq!(self.place.level, 0);
        let mut raw = [0; ENTRY];
        for (i, layer) in new.iter().flat_map(Entry::layers).enumerate() {
            put_layer(&mut raw[i * LAYER..][..LAYER], &layer);
        }
        self.put(slot, raw);
    }

    /// Sets entry `slot` of a node above the leaves.
    pub fn set_child(&mut self, slot: usize, new: Option<NodeRef>) {
        debug_assert_ne!(self.place.level, 0);
        let mut raw = [0; ENTRY];
        if let Some(node) = new {
            let as_layer = Layer {
                owner: node.owner,
                born: node.born,
                stores: node.stores,
            };
            put_layer(&mut raw[..LAYER], &as_layer);
            raw[16..20].copy_from_slice(&node.number.to_le_bytes());
            raw[20..24].copy_from_slice(&node.crc.to_le_bytes());
        }
        self.put(slot, raw);
    }

    /// The first entry from `slot` on that is something.
    pub fn next_slot(&self, slot: usize) -> Option<usize> {
        (slot..FANOUT as usize).find(|slot| self.raw(*slot) != [0; ENTRY])
    }

    /// As it is written: under this name, with this checksum.
    pub fn encode(&self, name: NodeName) -> (View, u32) {
        assert!(name.born <= Generation::MAX, "generations have 40 bits");
        let mut bytes = Buf::copy_of(&self.bytes[..]);
        bytes[..HEADER].fill(0);
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..20].copy_from_slice(&name.owner.0.to_le_bytes());
        bytes[20..24].copy_from_slice(&name.number.to_le_bytes());
        bytes[24..32].copy_from_slice(&name.born.0.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.place.nth.to_le_bytes());
        bytes[36..38].copy_from_slice(&(self.count as u16).to_le_bytes());
        bytes[38] = self.place.level;
        let crc = crc32c(&bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        let whole = crc32c(&bytes);
        (bytes.freeze(), whole)
    }

    /// Reads the node that `reference` leads to from `place`.
    ///
    /// # Errors
    /// [`NodeError`]: everything is looked at.
    pub fn decode(reference: &NodeRef, place: Place, bytes: &[u8]) -> Result<Node, NodeError> {
        let node = Node::parse(bytes)?;
        let found = crc32c(bytes);
        if found != reference.crc {
            return Err(NodeError::Checksum {
                found,
                expected: reference.crc,
            });
        }
        let name = name_in(bytes);
        for (field, found, expected) in [
            (
                "volume",
                u64::from(name.owner.0),
                u64::from(reference.owner.0),
            ),
            ("generation", name.born.0, reference.born.0),
            (
                "number",
                u64::from(name.number),
                u64::from(reference.number),
            ),
            ("level", u64::from(node.place.level), u64::from(place.level)),
            ("place", u64::from(node.place.nth), u64::from(place.nth)),
        ] {
            if found != expected {
                return Err(NodeError::Elsewhere {
                    field,
                    found,
                    expected,
                });
            }
        }
        Ok(node)
    }

    /// Reads a node of which nothing is known beforehand.
    ///
    /// # Errors
    /// [`NodeError`].
    pub fn parse(bytes: &[u8]) -> Result<Node, NodeError> {
        let bytes: Box<[u8; NODE]> = match bytes.len() {
            NODE => bytes.to_vec().try_into().expect("the length was looked at"),
            len => return Err(NodeError::Length(len)),
        };
        let magic: [u8; 8] = bytes[..8].try_into().expect("eight bytes");
        if magic != MAGIC {
            return Err(NodeError::Magic(magic));
        }
        let version = u32_at(&bytes[..], 8);
        if version != VERSION {
            return Err(NodeError::Version(version));
        }
        let mut node = Node {
            place: Place {
                level: bytes[38],
                nth: u32_at(&bytes[..], 32),
            },
            count: 0,
            bytes,
        };
        node.check()?;
        Ok(node)
    }

    fn check(&mut self) -> Result<(), NodeError> {
        let expected = u32_at(&self.bytes[..], 12);
        let says = u64::from(u16::from_le_bytes([self.bytes[36], self.bytes[37]]));
        self.bytes[12..16].fill(0);
        let found = crc32c(&self.bytes[..]);
        if found != expected {
            return Err(NodeError::Checksum { found, expected });
        }
        if self.bytes[39..HEADER] != [0; HEADER - 39] {
            return Err(NodeError::NotZero("the header"));
        }
        if !self.place.exists() {
            return Err(NodeError::Elsewhere {
                field: "level",
                found: u64::from(self.place.level),
                expected: u64::from(LEVEL_MAX),
            });
        }
        if name_in(&self.bytes[..]).born > Generation::MAX {
            return Err(NodeError::NotZero("the upper bits of its generation"));
        }
        let born = name_in(&self.bytes[..]).born;
        for slot in 0..FANOUT as usize {
            self.count += u32::from(self.check_slot(slot, born)?);
        }
        let has = u64::from(self.count);
        match says == has {
            true => Ok(()),
            false => Err(NodeError::Count { says, has }),
        }
    }

    /// Is there something in it?
    fn check_slot(&self, slot: usize, born: Generation) -> Result<bool, NodeError> {
        let wrong = |why| NodeError::Entry { slot, why };
        let raw = self.raw(slot);
        let (youngest, something) = match self.place.level {
            0 => {
                let entry = entry(raw).map_err(wrong)?;
                let layers = entry.iter().flat_map(Entry::layers);
                (layers.map(|layer| layer.born).max(), entry.is_some())
            }
            _ => {
                let child = child(raw).map_err(wrong)?;
                (child.map(|child| child.born), child.is_some())
            }
        };
        if youngest.is_some_and(|youngest| youngest > born) {
            return Err(wrong("what it refers to was born after the node"));
        }
        if something && self.place.first(slot) > u64::from(u32::MAX) {
            return Err(wrong("it lies behind all extents there can be"));
        }
        Ok(something)
    }

    fn raw(&self, slot: usize) -> [u8; ENTRY] {
        assert!(slot < FANOUT as usize, "a node has {FANOUT} entries");
        self.bytes[HEADER + slot * ENTRY..][..ENTRY]
            .try_into()
            .expect("the length is fixed")
    }

    fn put(&mut self, slot: usize, raw: [u8; ENTRY]) {
        let before = self.raw(slot);
        self.count -= u32::from(before != [0; ENTRY]);
        self.count += u32::from(raw != [0; ENTRY]);
        self.bytes[HEADER + slot * ENTRY..][..ENTRY].copy_from_slice(&raw);
    }
}

fn zeroes() -> Box<[u8; NODE]> {
    vec![0; NODE].try_into().expect("the length is fixed")
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn name_in(bytes: &[u8]) -> NodeName {
    NodeName {
        owner: VolumeId(u32_at(bytes, 16)),
        number: u32_at(bytes, 20),
        born: Generation(u64::from_le_bytes(
            bytes[24..32].try_into().expect("eight bytes"),
        )),
    }
}

/// owner u32, born u40, number of stores u8, stores 3 × u16.
fn put_layer(raw: &mut [u8], layer: &Layer) {
    assert!(layer.born <= Generation::MAX, "generations have 40 bits");
    let stores = layer.stores.as_slice();
    raw[0..4].copy_from_slice(&layer.owner.0.to_le_bytes());
    raw[4..9].copy_from_slice(&layer.born.0.to_le_bytes()[..5]);
    raw[9] = stores.len() as u8;
    for (i, store) in stores.iter().enumerate() {
        raw[10 + 2 * i..12 + 2 * i].copy_from_slice(&store.0.to_le_bytes());
    }
}

fn layer(raw: &[u8]) -> Result<Option<Layer>, &'static str> {
    let count = usize::from(raw[9]);
    match count {
        0 if raw[..LAYER] == [0; LAYER] => return Ok(None),
        0 => return Err("a layer on no store"),
        1..=3 => (),
        _ => return Err("more than three stores"),
    }
    let numbers = [10, 12, 14].map(|at| StoreNumber(u16::from_le_bytes([raw[at], raw[at + 1]])));
    if numbers[count..].iter().any(|unused| unused.0 != 0) {
        return Err("a store behind the last one");
    }
    let mut born = [0; 8];
    born[..5].copy_from_slice(&raw[4..9]);
    Ok(Some(Layer {
        owner: VolumeId(u32_at(raw, 0)),
        born: Generation(u64::from_le_bytes(born)),
        stores: Stores::new(&numbers[..count]).ok_or("a store that is there twice")?,
    }))
}

fn entry(raw: [u8; ENTRY]) -> Result<Option<Entry>, &'static str> {
    let base = layer(&raw[LAYER..])?;
    match layer(&raw[..LAYER])? {
        None if base.is_some() => Err("a base without a top"),
        None => Ok(None),
        Some(top) if base.is_some_and(|base| base.is(&top)) => Err("an object above itself"),
        Some(top) => Ok(Some(Entry { top, base })),
    }
}

fn child(raw: [u8; ENTRY]) -> Result<Option<NodeRef>, &'static str> {
    let rest = &raw[24..];
    match layer(&raw[..LAYER])? {
        _ if rest != [0; 8] => Err("bytes that should be zero are not"),
        None if raw[LAYER..24] != [0; 8] => Err("a child on no store"),
        None => Ok(None),
        Some(layer) => Ok(Some(NodeRef {
            owner: layer.owner,
            born: layer.born,
            number: u32_at(&raw, 16),
            stores: layer.stores,
            crc: u32_at(&raw, 20),
        })),
    }
}
