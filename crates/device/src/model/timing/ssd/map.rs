//! Where does each logical unit of a flash device live?
//!
//! Tables are allocated where something was written.

/// What the map says of a unit that never was written: it lies where a sequential fill would have put it.
pub(super) const UNTOUCHED: u32 = u32::MAX;
/// A unit given up by a discard.
pub(super) const DISCARDED: u32 = u32::MAX - 1;
/// Units per lazily allocated piece of the map.
const CHUNK: usize = 4096;

/// Units to places; a place is below [`DISCARDED`].
pub(super) struct UnitMap(Vec<Option<Box<[u32; CHUNK]>>>);

impl UnitMap {
    /// A map in which nothing was written.
    pub(super) fn new(units: u32) -> UnitMap {
        let chunks = (units as usize).div_ceil(CHUNK);
        UnitMap((0..chunks).map(|_| None).collect())
    }

    #[inline]
    pub(super) fn get(&self, unit: u32) -> u32 {
        match &self.0[unit as usize / CHUNK] {
            Some(chunk) => chunk[unit as usize % CHUNK],
            None => UNTOUCHED,
        }
    }

    #[inline]
    pub(super) fn set(&mut self, unit: u32, place: u32) {
        let chunk =
            self.0[unit as usize / CHUNK].get_or_insert_with(|| Box::new([UNTOUCHED; CHUNK]));
        chunk[unit as usize % CHUNK] = place;
    }
}
