//! Which places of a disk were touched? Tables by number, and bitmaps of what was read and written.
//!
//! ```text
//! number of a region or MiB -> Table -> position -> what is known about it
//! first page ..= last page  -> Footprint -> one bit per 4 KiB page, 72 bytes per touched MiB
//! ```
//!
//! Always true:
//! 1. Memory grows with the places touched, never with the requests.
//! 2. What was touched is exact while [`Footprint::is_exact`] says so, and at least what is reported afterwards.

use base::Map;

/// Numbers below this are looked up in an array of up to 4 MiB, those above in a hash map.
const FRONT_MAX: usize = 1 << 20;
/// A page: the finer grain of footprints.
const PAGE: u64 = 4096;
/// Pages in one MiB: the coarser grain.
const PAGES: u64 = 256;
/// A request counts at most so many MiB; no device takes more in one request.
const REQUEST_MIB_MAX: u64 = 1024;
/// So many MiB (16 TiB) are counted apart; their bitmaps are 1.2 GB.
const BLOCKS_MAX: usize = 1 << 24;

/// Positions by number, quick for small numbers.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// Position + 1; 0 where there is none.
    front: Vec<u32>,
    back: Map<u64, u32>,
    sparse: bool,
}

impl Table {
    /// An empty table; a `sparse` one keeps no array.
    pub(super) fn new(sparse: bool) -> Table {
        Table {
            sparse,
            ..Table::default()
        }
    }

    /// The position kept for `number`, if any.
    #[inline]
    pub(super) fn get(&self, number: u64) -> Option<u32> {
        let kept = match self.front.get(number as usize) {
            Some(&kept) => kept,
            None => self.back.get(&number).copied().unwrap_or(0),
        };
        kept.checked_sub(1)
    }

    /// Keeps `position` for `number`.
    pub(super) fn put(&mut self, number: u64, position: u32) {
        if !self.sparse && number < FRONT_MAX as u64 {
            let number = number as usize;
            if number >= self.front.len() {
                let len = (number + 1).next_power_of_two().max(64);
                self.front.resize(len, 0);
            }
            self.front[number] = position + 1;
        } else {
            self.back.insert(number, position + 1);
        }
    }

    /// Every position kept, in no order that means anything.
    pub(super) fn positions(&self) -> impl Iterator<Item = u32> {
        self.front
            .iter()
            .chain(self.back.values())
            .filter_map(|kept| kept.checked_sub(1))
    }
}

/// One MiB: a bit for each page read, a bit for each page written.
#[derive(Debug, Clone, Default)]
struct Block {
    read: [u64; 4],
    written: [u64; 4],
    /// A request began here.
    entered: bool,
}

/// What was touched of all devices, to the page.
#[derive(Debug, Default)]
pub(super) struct Footprint {
    blocks: Vec<Block>,
    partial: bool,
}

/// How much was touched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Touched {
    pub(super) read_pages: u64,
    pub(super) written_pages: u64,
    pub(super) pages: u64,
    pub(super) mib: u64,
    /// MiB in which a request began.
    pub(super) entered_mib: u64,
}

impl Footprint {
    /// Marks `size` bytes from `offset` of the device whose MiB are kept in `table`.
    #[inline]
    pub(super) fn mark(&mut self, table: &mut Table, offset: u64, size: u64, is_read: bool) {
        let mut page = offset / PAGE;
        let Some(block) = self.block(table, page / PAGES) else {
            return;
        };
        block.entered = true;
        if size == 0 {
            return;
        }
        let mut last = offset.saturating_add(size - 1) / PAGE;
        if last - page >= REQUEST_MIB_MAX * PAGES {
            last = page + REQUEST_MIB_MAX * PAGES - 1;
            self.partial = true;
        }
        loop {
            let mib = page / PAGES;
            let Some(block) = self.block(table, mib) else {
                return;
            };
            let until = last.min(mib * PAGES + PAGES - 1);
            let bits = match is_read {
                true => &mut block.read,
                false => &mut block.written,
            };
            set(bits, page % PAGES, until % PAGES);
            if until == last {
                return;
            }
            page = until + 1;
        }
    }

    #[inline]
    fn block(&mut self, table: &mut Table, mib: u64) -> Option<&mut Block> {
        let position = match table.get(mib) {
            Some(position) => position as usize,
            None if self.blocks.len() >= BLOCKS_MAX => {
                self.partial = true;
                return None;
            }
            None => {
                table.put(mib, self.blocks.len() as u32);
                self.blocks.push(Block::default());
                self.blocks.len() - 1
            }
        };
        self.blocks.get_mut(position)
    }

    /// Is everything touched known?
    pub(super) fn is_exact(&self) -> bool {
        !self.partial
    }

    /// What was touched of the device whose MiB are kept in `table`.
    pub(super) fn touched(&self, table: &Table) -> Touched {
        let mut sum = Touched::default();
        for position in table.positions() {
            let block = &self.blocks[position as usize];
            let mut pages = 0;
            for (read, written) in block.read.iter().zip(&block.written) {
                sum.read_pages += u64::from(read.count_ones());
                sum.written_pages += u64::from(written.count_ones());
                pages += u64::from((read | written).count_ones());
            }
            sum.pages += pages;
            sum.mib += u64::from(pages > 0);
            sum.entered_mib += u64::from(block.entered);
        }
        sum
    }
}

impl std::ops::AddAssign for Touched {
    fn add_assign(&mut self, other: Touched) {
        self.read_pages += other.read_pages;
        self.written_pages += other.written_pages;
        self.pages += other.pages;
        self.mib += other.mib;
        self.entered_mib += other.entered_mib;
    }
}

/// Sets bits `first..=last` (below 256).
#[inline]
fn set(bits: &mut [u64; 4], first: u64, last: u64) {
    let (from, to) = ((first / 64) as usize, (last / 64) as usize);
    for (word, bits) in bits.iter_mut().enumerate().take(to + 1).skip(from) {
        let low = if word == from { first % 64 } else { 0 };
        let high = if word == to { last % 64 } else { 63 };
        *bits |= (u64::MAX >> (63 - high)) & (u64::MAX << low);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn a_footprint_holds_the_pages_a_plain_set_holds(
            requests in prop::collection::vec((0u64..1 << 24, 0u64..1 << 22, any::<bool>()), 0..40),
            far in any::<bool>(),
        ) {
            let base = if far { 1 << 62 } else { 0 };
            let (mut table, mut footprint) = (Table::new(far), Footprint::default());
            let mut plain = [BTreeSet::new(), BTreeSet::new()];
            let mut entered = BTreeSet::new();
            for (offset, size, is_read) in requests {
                footprint.mark(&mut table, base + offset, size, is_read);
                entered.insert(offset >> 20);
                if size > 0 {
                    plain[usize::from(is_read)].extend(offset / PAGE..=(offset + size - 1) / PAGE);
                }
            }
            let all: BTreeSet<u64> = plain[0].union(&plain[1]).copied().collect();
            let mib: BTreeSet<u64> = all.iter().map(|page| page / PAGES).collect();
            let expected = Touched {
                read_pages: plain[1].len() as u64,
                written_pages: plain[0].len() as u64,
                pages: all.len() as u64,
                mib: mib.len() as u64,
                entered_mib: entered.len() as u64,
            };
            prop_assert_eq!(footprint.touched(&table), expected);
            prop_assert!(footprint.is_exact());
        }
    }

    #[test]
    fn a_request_beyond_any_device_makes_the_footprint_a_lower_bound() {
        let (mut table, mut footprint) = (Table::new(false), Footprint::default());
        footprint.mark(&mut table, u64::MAX - 10, u64::MAX, true);
        assert_eq!(footprint.touched(&table).pages, 1);
        assert!(footprint.is_exact());
        footprint.mark(&mut table, 0, u64::MAX, true);
        assert_eq!(footprint.touched(&table).mib, 1 + REQUEST_MIB_MAX);
        assert!(!footprint.is_exact());
    }
}
