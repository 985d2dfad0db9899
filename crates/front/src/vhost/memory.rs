//! The memory of a guest, as its client shares it.
//!
//! ```text
//! regions -> checked -> mapped -> Table: an address and a length -> Place in one region | places in neighbours | Outside
//! ```
//!
//! Always true: a place lies in one mapped region, whole. No two regions share an address.

use std::rc::Rc;

use env::shared::SharedMemory;

use super::message::Region;

/// Why a memory table is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// A region is empty, or ends beyond all addresses.
    #[error("region {region:x?} has no bytes, or more than there are addresses")]
    Bounds {
        /// It.
        region: Region,
    },
    /// Two of them share addresses.
    #[error("regions {one:x?} and {other:x?} overlap")]
    Overlap {
        /// One.
        one: Region,
        /// The other.
        other: Region,
    },
    /// It would take all addresses of this process.
    #[error(
        "memory of {sum} bytes, where a client may have {most}: four times this machine's, 64 GiB at least"
    )]
    Sum {
        /// Of all regions.
        sum: u128,
        /// That are allowed.
        most: u64,
    },
}

/// An address that is not the guest's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{len} bytes at {address:#x} are not in the guest's memory")]
pub struct Outside {
    /// The first.
    pub address: u64,
    /// How many.
    pub len: u64,
}

/// Can these be the regions of one memory, of `most` bytes in all?
///
/// # Errors
/// [`TableError`].
pub fn check(regions: &[Region], most: u64) -> Result<(), TableError> {
    let sum: u128 = regions.iter().map(|region| u128::from(region.len)).sum();
    if sum > u128::from(most) {
        return Err(TableError::Sum { sum, most });
    }
    for (at, region) in regions.iter().enumerate() {
        let region = *region;
        let starts = [region.guest, region.client, region.offset];
        let fits = |start: u64| start.checked_add(region.len).is_some();
        if region.len == 0 || usize::try_from(region.len).is_err() || !starts.into_iter().all(fits)
        {
            return Err(TableError::Bounds { region });
        }
        for other in &regions[..at] {
            let apart = |one: u64, of: u64| one + region.len <= of || of + other.len <= one;
            if !apart(region.guest, other.guest) || !apart(region.client, other.client) {
                let other = *other;
                return Err(TableError::Overlap {
                    one: other,
                    other: region,
                });
            }
        }
    }
    Ok(())
}

/// Memory that is mapped.
#[derive(Default)]
pub struct Table {
    regions: Vec<(Region, Rc<SharedMemory>)>,
}

/// Bytes of one region.
#[derive(Clone)]
pub struct Place {
    memory: Rc<SharedMemory>,
    at: usize,
    len: usize,
}

impl Table {
    /// Of regions that were checked, each with its memory.
    ///
    /// # Panics
    /// If a memory has not the length of its region.
    pub fn new(regions: Vec<(Region, SharedMemory)>) -> Table {
        let regions = regions.into_iter().map(|(region, memory)| {
            assert_eq!(memory.len() as u64, region.len, "mapped whole");
            (region, Rc::new(memory))
        });
        Table {
            regions: regions.collect(),
        }
    }

    /// Did the client take any of it away?
    pub fn is_broken(&self) -> bool {
        self.regions.iter().any(|(_, memory)| memory.is_broken())
    }

    /// Where `len` bytes are that the guest calls `address`, in order; they may lie in regions that follow each other.
    ///
    /// # Errors
    /// [`Outside`].
    pub fn of_guest(&self, address: u64, len: u64, out: &mut Vec<Place>) -> Result<(), Outside> {
        let outside = Outside { address, len };
        let (mut from, mut left) = (address, len);
        while left > 0 {
            let next = self.find(from, |region| region.guest).ok_or(outside)?;
            let count = left.min(next.len as u64);
            out.push(next.part(0, count as usize));
            left -= count;
            // At the end of all addresses nothing follows.
            from = match left {
                0 => from,
                _ => from.checked_add(count).ok_or(outside)?,
            };
        }
        Ok(())
    }

    /// Where `len` bytes are that the client calls `address`, in one region.
    ///
    /// # Errors
    /// [`Outside`].
    pub fn of_client(&self, address: u64, len: usize) -> Result<Place, Outside> {
        let found = self.find(address, |region| region.client);
        let found = found.filter(|place| place.len >= len && len > 0);
        found.map(|place| place.part(0, len)).ok_or(Outside {
            address,
            len: len as u64,
        })
    }

    /// From an address to the end of its region.
    fn find(&self, address: u64, start: impl Fn(&Region) -> u64) -> Option<Place> {
        self.regions.iter().find_map(|(region, memory)| {
            let at = address.checked_sub(start(region))?;
            (at < region.len).then(|| Place {
                memory: Rc::clone(memory),
                at: at as usize,
                len: (region.len - at) as usize,
            })
        })
    }
}

impl Place {
    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Has it none?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The `len` bytes of it from `at` on.
    ///
    /// # Panics
    /// Beyond its end.
    pub fn part(&self, at: usize, len: usize) -> Place {
        assert!(at + len <= self.len, "{len} at {at} of {}", self.len);
        Place {
            memory: Rc::clone(&self.memory),
            at: self.at + at,
            len,
        }
    }

    /// Did the client take any of its region away?
    pub fn is_broken(&self) -> bool {
        self.memory.is_broken()
    }

    /// Can numbers of two bytes be loaded from and stored to its even offsets?
    pub fn is_even(&self) -> bool {
        self.memory.is_even(self.at)
    }

    fn place(&self, at: usize, len: usize) -> usize {
        assert!(at + len <= self.len, "{len} at {at} of {}", self.len);
        self.at + at
    }

    /// Copies the bytes from `at` on to `out`, each once.
    ///
    /// # Panics
    /// Beyond its end, as all that follow.
    pub fn read(&self, at: usize, out: &mut [u8]) {
        self.memory.read(self.place(at, out.len()), out);
    }

    /// Puts bytes there.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        self.memory.write(self.place(at, bytes.len()), bytes);
    }

    /// The number at an even `at`.
    pub fn load_u16(&self, at: usize) -> u16 {
        self.memory.load_u16(self.place(at, 2))
    }

    /// Puts a number at an even `at`, after all that was written before.
    pub fn store_u16(&self, at: usize, value: u16) {
        self.memory.store_u16(self.place(at, 2), value);
    }
}

/// Bytes of all of them.
pub(super) fn len_of(places: &[Place]) -> u64 {
    places.iter().map(|place| place.len() as u64).sum()
}

/// Calls `each` with the parts of `places` that hold `len` bytes from `at` on, and where in those bytes each begins.
fn each_part(
    places: &[Place],
    at: u64,
    len: usize,
    mut each: impl FnMut(&Place, usize, std::ops::Range<usize>),
) {
    let (mut skip, mut done) = (at, 0);
    for place in places {
        let here = place.len() as u64;
        if skip >= here {
            skip -= here;
            continue;
        }
        let count = (here - skip).min((len - done) as u64) as usize;
        each(place, skip as usize, done..done + count);
        skip = 0;
        done += count;
        if done == len {
            return;
        }
    }
    assert_eq!(done, len, "the length was checked");
}

/// Copies what `places` hold from byte `at` on.
pub(super) fn copy_out(places: &[Place], at: u64, out: &mut [u8]) {
    each_part(places, at, out.len(), |place, from, range| {
        place.read(from, &mut out[range]);
    });
}

/// Puts `data` into `places` from byte `at` on.
pub(super) fn copy_in(places: &[Place], at: u64, data: &[u8]) {
    each_part(places, at, data.len(), |place, to, range| {
        place.write(to, &data[range]);
    });
}

#[cfg(test)]
mod tests {
    use env::shared::Descriptor;

    use super::*;

    fn region(guest: u64, len: u64, client: u64) -> Region {
        Region {
            guest,
            len,
            client,
            offset: 0,
        }
    }

    fn table(regions: &[Region]) -> Table {
        check(regions, u64::MAX).unwrap();
        let mapped = regions.iter().map(|region| {
            let len = region.len as usize;
            let memory = Descriptor::memory(len).unwrap().map(0, len).unwrap();
            (*region, memory)
        });
        Table::new(mapped.collect())
    }

    #[test]
    fn an_address_is_found_in_its_region_only() {
        let table = table(&[region(0, 8192, 1 << 40), region(1 << 32, 4096, 1 << 41)]);
        let place = table.of_client((1 << 41) + 96, 4000).unwrap();
        place.write(3999, &[7]);
        let mut places = Vec::new();
        table.of_guest((1 << 32) + 4095, 1, &mut places).unwrap();
        let mut byte = [0];
        places[0].read(0, &mut byte);
        assert_eq!(byte, [7]);
        for (address, len) in [
            (8191, 2),
            (8192, 1),
            (u64::MAX, 1),
            (0, u64::MAX),
            (1 << 40, 1),
        ] {
            let refused = table.of_guest(address, len, &mut Vec::new());
            assert_eq!(refused, Err(Outside { address, len }));
        }
        for (address, len) in [((1 << 40) + 8190, 3), (0, 1), (u64::MAX, 1), (1 << 41, 0)] {
            assert!(table.of_client(address, len).is_err(), "{address:#x} {len}");
        }
    }

    #[test]
    fn a_buffer_may_lie_in_regions_that_follow_each_other() {
        let table = table(&[region(4096, 4096, 1 << 40), region(0, 4096, 1 << 41)]);
        let mut places = Vec::new();
        table.of_guest(4000, 200, &mut places).unwrap();
        let lens: Vec<usize> = places.iter().map(Place::len).collect();
        assert_eq!(lens, [96, 104]);
        places[1].write(0, &[9]);
        let mut byte = [0];
        table.of_client(1 << 40, 1).unwrap().read(0, &mut byte);
        assert_eq!(byte, [9]);
    }

    #[test]
    fn a_table_that_cannot_be_is_refused() {
        for bad in [
            region(0, 0, 0),
            region(u64::MAX, 2, 0),
            region(0, 2, u64::MAX),
        ] {
            assert_eq!(
                check(&[bad], u64::MAX),
                Err(TableError::Bounds { region: bad })
            );
        }
        let beyond = Region {
            offset: u64::MAX,
            ..region(0, 4096, 0)
        };
        assert!(check(&[beyond], u64::MAX).is_err());
        let wide = [region(0, 4096, 0), region(4096, 1 << 40, 4096)];
        let sum = 4096 + (1 << 40);
        assert_eq!(
            check(&wide, 1 << 40),
            Err(TableError::Sum { sum, most: 1 << 40 })
        );
        let one = region(0, 4096, 1 << 40);
        for other in [
            region(4095, 1, 0),
            region(4096, 4096, (1 << 40) - 1),
            region(0, 4096, 0),
        ] {
            assert_eq!(
                check(&[one, other], u64::MAX),
                Err(TableError::Overlap { one, other })
            );
        }
        assert_eq!(
            check(&[one, region(4096, 4096, (1 << 40) + 4096)], u64::MAX),
            Ok(())
        );
    }
}
