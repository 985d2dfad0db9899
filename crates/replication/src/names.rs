//! Numbers and names: volumes, images, generations, stores, and the objects that extents and map nodes are.
//!
//! ```text
//! v/<volume>/<born>/<index>   an extent        v/0000002a/00000003e8/0000007f
//! m/<volume>/<born>/<node>    a node of a map  m/0000002a/00000003e9/00000000
//! ```
//!
//! `volume` allocated it in the generation `born`; numbers are lower-case hexadecimal of fixed width, so names sort as
//! the numbers do, and what was allocated since some generation is one stretch of a listing.
//!
//! Always true:
//! 1. A name that is read back is the one that was written: anything else is no name of ours.
//! 2. An index and the generation it was allocated in belong to one object only, ever.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The length of an extent in bytes.
pub const EXTENT: u64 = 4 << 20;

/// The number of a volume; never given twice.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct VolumeId(pub u32);

impl VolumeId {
    /// The holder under which stores keep what a cluster's service reserves for this volume. Operators give no holder such
    /// a name.
    ///
    /// # Example
    /// ```
    /// assert_eq!(replication::names::VolumeId(7).reservation_holder(), "volume:7");
    /// ```
    pub fn reservation_holder(self) -> String {
        format!("{RESERVED_HOLDER}{}", self.0)
    }
}

/// What the names of those holders begin with.
pub const RESERVED_HOLDER: &str = "volume:";

/// The number of an image: a root in the tree of snapshots and clones; never given twice.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct ImageId(pub u32);

/// Counts openings, changes of the in-sync set and commits of a volume; a clone goes on from its parent's. At most
/// [`Generation::MAX`]. Zero comes before all.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Generation(pub u64);

/// The number of a store in its cluster.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct StoreNumber(pub u16);

impl Generation {
    /// The greatest there is: 40 bits.
    pub const MAX: Generation = Generation((1 << 40) - 1);

    /// The greatest that the record of a volume or image may have: 2^32 are left to the writers that open it.
    pub const RECORD_MAX: Generation = Generation(Generation::MAX.0 - (1 << 32));

    /// The next one.
    ///
    /// # Panics
    /// Behind [`Generation::MAX`]: at a thousand a second that is in 34 years.
    #[must_use]
    pub fn next(self) -> Generation {
        assert!(self < Generation::MAX, "a volume has 2^40 generations");
        Generation(self.0 + 1)
    }
}

impl fmt::Display for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

impl fmt::Display for ImageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for StoreNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The most copies anything has.
pub const COPIES_MAX: usize = 3;

/// Stores that have a copy of something: one to three, none twice, in the order they were chosen in.
///
/// # Example
/// ```
/// use replication::{StoreNumber, Stores};
/// let stores = Stores::new(&[StoreNumber(7), StoreNumber(2)]).unwrap();
/// assert_eq!(stores.as_slice(), [StoreNumber(7), StoreNumber(2)]);
/// assert!(Stores::new(&[]).is_none() && Stores::new(&[StoreNumber(1); 2]).is_none());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<StoreNumber>", into = "Vec<StoreNumber>")]
pub struct Stores {
    numbers: [StoreNumber; COPIES_MAX],
    len: u8,
}

impl Stores {
    /// These stores; `None` for no store, more than three, or one that is there twice.
    pub fn new(stores: &[StoreNumber]) -> Option<Stores> {
        let twice = (stores.iter().enumerate()).any(|(i, store)| stores[..i].contains(store));
        if twice || stores.is_empty() || stores.len() > COPIES_MAX {
            return None;
        }
        let mut numbers = [StoreNumber(0); COPIES_MAX];
        numbers[..stores.len()].copy_from_slice(stores);
        Some(Stores {
            numbers,
            len: stores.len() as u8,
        })
    }

    /// In their order.
    pub fn as_slice(&self) -> &[StoreNumber] {
        &self.numbers[..usize::from(self.len)]
    }

    /// In their order.
    pub fn iter(&self) -> impl Iterator<Item = StoreNumber> + '_ {
        self.as_slice().iter().copied()
    }

    /// Is it one of them?
    pub fn contains(&self, store: StoreNumber) -> bool {
        self.as_slice().contains(&store)
    }
}

impl fmt::Debug for Stores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.iter().map(|store| store.0))
            .finish()
    }
}

impl From<Stores> for Vec<StoreNumber> {
    fn from(stores: Stores) -> Self {
        stores.as_slice().to_vec()
    }
}

impl TryFrom<Vec<StoreNumber>> for Stores {
    type Error = String;

    fn try_from(stores: Vec<StoreNumber>) -> Result<Self, String> {
        Stores::new(&stores)
            .ok_or_else(|| format!("{} stores where one to three are, none twice", stores.len()))
    }
}

/// An extent's object. Displays as its name.
///
/// # Example
/// ```
/// use replication::{ExtentName, Generation, VolumeId};
/// let name = ExtentName { owner: VolumeId(42), born: Generation(1000), index: 127 };
/// assert_eq!(name.to_string(), "v/0000002a/00000003e8/0000007f");
/// assert_eq!(ExtentName::parse("v/0000002a/00000003e8/0000007f"), Some(name));
/// assert_eq!(ExtentName::parse("v/0000002A/00000003e8/0000007f"), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExtentName {
    /// The volume that allocated it.
    pub owner: VolumeId,
    /// The generation it was allocated in.
    pub born: Generation,
    /// Which extent of the volume.
    pub index: u32,
}

/// The object of a map's node. Displays as its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeName {
    /// The volume that wrote it.
    pub owner: VolumeId,
    /// The generation of the commit that wrote it.
    pub born: Generation,
    /// Which of the nodes of that commit.
    pub number: u32,
}

impl ExtentName {
    /// What the names of all extents begin with that `owner` allocated.
    pub fn prefix(owner: VolumeId) -> String {
        format!("v/{owner}/")
    }

    /// List behind this, and all extents that `owner` allocated in `born` or later come, and no others.
    pub fn before(owner: VolumeId, born: Generation) -> String {
        format!("v/{owner}/{:010x}/", born.0)
    }

    /// Reads a name; `None` if it is none.
    pub fn parse(name: &str) -> Option<ExtentName> {
        let (owner, born, index) = numbers(name, "v/")?;
        Some(ExtentName { owner, born, index })
    }
}

impl NodeName {
    /// What the names of all nodes begin with that `owner` wrote.
    pub fn prefix(owner: VolumeId) -> String {
        format!("m/{owner}/")
    }

    /// List behind this, and all nodes that `owner` wrote in `born` or later come, and no others.
    pub fn before(owner: VolumeId, born: Generation) -> String {
        format!("m/{owner}/{:010x}/", born.0)
    }

    /// Reads a name; `None` if it is none.
    pub fn parse(name: &str) -> Option<NodeName> {
        let (owner, born, number) = numbers(name, "m/")?;
        Some(NodeName {
            owner,
            born,
            number,
        })
    }
}

impl fmt::Display for ExtentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "v/{}/{:010x}/{:08x}",
            self.owner, self.born.0, self.index
        )
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "m/{}/{:010x}/{:08x}",
            self.owner, self.born.0, self.number
        )
    }
}

fn numbers(name: &str, kind: &str) -> Option<(VolumeId, Generation, u32)> {
    let mut parts = name.strip_prefix(kind)?.split('/');
    let owner = hex(parts.next()?, 8)?;
    let born = hex(parts.next()?, 10)?;
    let number = hex(parts.next()?, 8)?;
    match parts.next() {
        None => Some((VolumeId(owner as u32), Generation(born), number as u32)),
        Some(_) => None,
    }
}

/// What the engine of `volume` fills before it gets the name `object`, or takes the place of what has it.
pub fn filling(object: &str, volume: VolumeId) -> String {
    format!("{object}.{volume}.t")
}

/// Whose engine fills, or filled, what is called `name`; `None` if it is no such name.
pub fn volume_filling(name: &str) -> Option<VolumeId> {
    let (object, volume) = name.strip_suffix(".t")?.rsplit_once('.')?;
    ExtentName::parse(object)?;
    hex(volume, 8).map(|number| VolumeId(number as u32))
}

/// Exactly `digits` lower-case hexadecimal digits.
pub fn hex(text: &str, digits: usize) -> Option<u64> {
    let fits = text.len() == digits
        && (text.bytes()).all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    match fits {
        true => u64::from_str_radix(text, 16).ok(),
        false => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_sort_by_number_and_a_listing_after_a_generation_begins_there() {
        let name = |born, index| ExtentName {
            owner: VolumeId(1),
            born: Generation(born),
            index,
        };
        let names = [
            name(9, 300),
            name(10, 0),
            name(10, 16),
            name(255, 1),
            name(256, 0),
        ];
        assert!(names.is_sorted());
        let texts: Vec<String> = names.iter().map(ToString::to_string).collect();
        assert!(texts.is_sorted(), "{texts:?}");
        let before = ExtentName::before(VolumeId(1), Generation(10));
        let behind: Vec<_> = texts.iter().filter(|text| **text > before).collect();
        assert_eq!(behind, texts[1..].iter().collect::<Vec<_>>());
    }

    #[test]
    fn what_is_being_filled_says_for_whom() {
        let extent = ExtentName {
            owner: VolumeId(1),
            born: Generation(10),
            index: 7,
        };
        let name = filling(&extent.to_string(), VolumeId(0x2a));
        assert_eq!(volume_filling(&name), Some(VolumeId(0x2a)));
        for other in [
            extent.to_string(),
            format!("{extent}.t"),
            "x.0000002a.t".to_owned(),
        ] {
            assert_eq!(volume_filling(&other), None, "{other}");
        }
    }

    #[test]
    fn what_only_looks_like_a_name_is_none() {
        for text in [
            "v/00000001/000000000a/0000001",
            "v/00000001/000000000a/00000001.t",
            "v/00000001/000000000a/+0000001",
            "v/00000001/000000000a/00000001/",
            "m/00000001/000000000a/00000001",
            "v/00000001/000000000a",
            "v/",
        ] {
            assert_eq!(ExtentName::parse(text), None, "{text}");
        }
        assert!(NodeName::parse("m/00000001/000000000a/00000001").is_some());
    }
}
