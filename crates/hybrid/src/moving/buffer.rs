//! The temporary buffer of one moving region: which sectors were written while it moves, and what?
//!
//! ```text
//! user write -> bit per 512-byte sector + contents -> read: marked parts from here
//!                                                  -> synchronization: marked runs in address order
//! ```
//!
//! Pure memory: no clock, no device. Sectors are counted from the start of the region.
//!
//! Source: AST 3.3.2 (a buffer of the region's size, one bit per 512 bytes).
//!
//! Always true:
//! 1. `marked` counts the bits that are set.
//! 2. A page of contents is kept only where a bit of it is set, and only if it may hold something else than
//!    zeroes: what is known to be zero takes no memory, and all of it never more than the region's size.

use std::ops::Range;

use base::{Buf, Bytes, Map, SECTOR, View};

/// Sectors in a page.
pub(super) const PAGE_SECTORS: u64 = 8;
const SECTOR_LEN: usize = SECTOR as usize;

/// A part of a request, in sectors of the region.
#[derive(Debug, Clone)]
pub(crate) enum Piece {
    /// Marked: these are the contents.
    Buffered(Range<u64>, View),
    /// Not marked: whatever lies beneath counts.
    Beneath(Range<u64>),
}

/// The temporary buffer of one region.
pub(crate) struct TemporaryBuffer {
    // Fixed.
    sectors: u64,
    // What was written.
    bits: Vec<u64>,
    marked: u64,
    pages: Map<u64, Buf>,
}

impl TemporaryBuffer {
    /// An empty one for a region of `len`, whole sectors.
    pub fn new(len: Bytes) -> TemporaryBuffer {
        let sectors = len.0 / SECTOR;
        TemporaryBuffer {
            sectors,
            bits: vec![0; sectors.div_ceil(64) as usize],
            marked: 0,
            pages: Map::default(),
        }
    }

    /// Sectors of the region.
    pub fn sectors(&self) -> u64 {
        self.sectors
    }

    /// How much is marked.
    pub fn marked(&self) -> Bytes {
        Bytes(self.marked * SECTOR)
    }

    /// Bytes of memory in total.
    pub fn memory(&self) -> usize {
        self.bits.capacity() * 8 + self.pages.len() * base::PAGE
    }

    fn is_marked(&self, sector: u64) -> bool {
        self.bits[(sector / 64) as usize] >> (sector % 64) & 1 == 1
    }

    /// Is every sector of `range` marked?
    pub fn covers(&self, range: Range<u64>) -> bool {
        range.start < range.end && self.next(range.clone(), false) == range.end
    }

    /// Is any sector of `range` marked?
    pub fn touches(&self, range: Range<u64>) -> bool {
        range.start < range.end && self.next(range.clone(), true) < range.end
    }

    /// The first sector of `range` whose bit is `wanted`; the end of the range if there is none.
    fn next(&self, range: Range<u64>, wanted: bool) -> u64 {
        let flip = if wanted { 0 } else { u64::MAX };
        let mut reach = u64::MAX << (range.start % 64);
        for word in range.start / 64..range.end.div_ceil(64) {
            let found = (self.bits[word as usize] ^ flip) & reach;
            if found != 0 {
                return (word * 64 + u64::from(found.trailing_zeros())).min(range.end);
            }
            reach = u64::MAX;
        }
        range.end
    }

    /// The first run of marked sectors from `from` on, at most `most` of them.
    pub fn next_run(&self, from: u64, most: u64) -> Option<Range<u64>> {
        let start = self.next(from..self.sectors, true);
        let end = start.saturating_add(most).min(self.sectors);
        (start < self.sectors).then(|| start..self.next(start..end, false))
    }

    fn set(&mut self, range: Range<u64>, value: bool) {
        for sector in range {
            if self.is_marked(sector) != value {
                self.bits[(sector / 64) as usize] ^= 1 << (sector % 64);
                match value {
                    true => self.marked += 1,
                    false => self.marked -= 1,
                }
            }
        }
    }

    /// A user writes `data`, whole sectors, at sector `at`.
    pub fn write(&mut self, at: u64, data: &View) {
        let end = at + data.len() as u64 / SECTOR;
        assert!(end <= self.sectors, "sectors {at}..{end} of a region");
        if data.is_known_zero() {
            return self.write_zeroes(at..end);
        }
        for (page, part) in by_page(at..end) {
            let from = ((part.start - at) * SECTOR) as usize;
            let len = ((part.end - part.start) * SECTOR) as usize;
            let within = ((part.start % PAGE_SECTORS) * SECTOR) as usize;
            let contents = self
                .pages
                .entry(page)
                .or_insert_with(|| Buf::zeroed(base::PAGE));
            contents[within..within + len].copy_from_slice(&data[from..from + len]);
        }
        self.set(at..end, true);
    }

    /// A user writes zeroes.
    pub fn write_zeroes(&mut self, range: Range<u64>) {
        assert!(range.end <= self.sectors, "sectors {range:?} of a region");
        self.zero(range.clone());
        self.set(range, true);
    }

    /// The contents of `range` are zeroes from now on; pages that lie in it whole are freed.
    fn zero(&mut self, range: Range<u64>) {
        if self.pages.is_empty() {
            return;
        }
        for (page, part) in by_page(range) {
            let Some(contents) = self.pages.get_mut(&page) else {
                continue;
            };
            if part.end - part.start == PAGE_SECTORS {
                self.pages.remove(&page);
                continue;
            }
            let within = ((part.start % PAGE_SECTORS) * SECTOR) as usize;
            contents[within..within + (part.end - part.start) as usize * SECTOR_LEN].fill(0);
        }
    }

    /// The contents of `range`, every sector of which is marked.
    pub fn contents(&self, range: Range<u64>) -> View {
        assert!(self.covers(range.clone()), "sectors {range:?} are marked");
        let mut whole = Buf::zeroed(((range.end - range.start) * SECTOR) as usize);
        self.copy_out(range, &mut whole);
        whole.freeze()
    }

    /// Copies `range` into `to`, whose bytes are zero where no page is kept.
    fn copy_out(&self, range: Range<u64>, to: &mut Buf) {
        let start = range.start;
        for (page, part) in by_page(range) {
            if let Some(contents) = self.pages.get(&page) {
                let from = ((part.start - start) * SECTOR) as usize;
                let len = ((part.end - part.start) * SECTOR) as usize;
                let within = ((part.start % PAGE_SECTORS) * SECTOR) as usize;
                to[from..from + len].copy_from_slice(&contents[within..within + len]);
            }
        }
    }

    /// `range` in parts that are marked, with what they hold now, and parts that are not; in order.
    pub fn pieces(&self, range: Range<u64>) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let marked = self.is_marked(at);
            let upto = self.next(at..range.end, !marked);
            pieces.push(match marked {
                true => Piece::Buffered(at..upto, self.contents(at..upto)),
                false => Piece::Beneath(at..upto),
            });
            at = upto;
        }
        pieces
    }

    /// `range` is where it belongs: its marks and contents go.
    pub fn clear(&mut self, range: Range<u64>) {
        self.set(range.clone(), false);
        // Whole pages without a mark need no contents; parts of others are no longer looked at.
        for (page, _) in by_page(range) {
            let first = page * PAGE_SECTORS;
            if !self.touches(first..(first + PAGE_SECTORS).min(self.sectors)) {
                self.pages.remove(&page);
            }
        }
    }

    /// Everything below sector `position` is where it belongs.
    pub fn clear_below(&mut self, position: u64) {
        let mut from = 0;
        while let Some(run) = self.next_run(from, position - from) {
            if run.start >= position {
                return;
            }
            from = run.end.min(position);
            self.clear(run.start..from);
        }
    }

    /// The truth of rules 1 and 2, for tests.
    #[cfg(test)]
    pub fn check(&self) {
        let ones: u64 = self
            .bits
            .iter()
            .map(|word| u64::from(word.count_ones()))
            .sum();
        assert_eq!(self.marked, ones, "marked sectors are counted");
        for page in self.pages.keys() {
            let first = page * PAGE_SECTORS;
            let end = (first + PAGE_SECTORS).min(self.sectors);
            assert!(self.touches(first..end), "page {page} is kept for a mark");
        }
    }
}

/// `range` cut at page bounds: (page, its part).
fn by_page(range: Range<u64>) -> impl Iterator<Item = (u64, Range<u64>)> {
    let pages = range.start / PAGE_SECTORS..range.end.div_ceil(PAGE_SECTORS);
    pages.map(move |page| {
        let first = page * PAGE_SECTORS;
        let part = range.start.max(first)..range.end.min(first + PAGE_SECTORS);
        (page, part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECTORS: u64 = 200;

    fn buffer() -> TemporaryBuffer {
        TemporaryBuffer::new(Bytes(SECTORS * SECTOR))
    }

    fn painted(sectors: u64, with: u8) -> View {
        View::copy_of(&vec![with; (sectors * SECTOR) as usize])
    }

    #[test]
    fn marked_runs_come_in_address_order_however_they_were_written() {
        let mut buffer = buffer();
        for at in [130, 63, 64, 3] {
            buffer.write(at, &painted(1, 7));
        }
        buffer.write_zeroes(4..8);
        let mut runs = Vec::new();
        let mut from = 0;
        while let Some(run) = buffer.next_run(from, 100) {
            from = run.end;
            runs.push(run);
        }
        assert_eq!(runs, [3..8, 63..65, 130..131]);
        assert_eq!(buffer.next_run(3, 2), Some(3..5), "at most two sectors");
        assert_eq!(buffer.marked(), Bytes(8 * SECTOR));
    }

    #[test]
    fn zeroes_take_no_memory_however_many_there_are() {
        let mut buffer = TemporaryBuffer::new(Bytes::gib(1));
        let empty = buffer.memory();
        for mib in 0..64 {
            buffer.write(mib * 2048, &Buf::zeroed(1 << 20).freeze());
        }
        assert_eq!(buffer.memory(), empty);
        assert_eq!(buffer.marked(), Bytes::mib(64));
        assert!(buffer.contents(0..8).iter().all(|byte| *byte == 0));
        // 1 GiB has 2 Mi sectors: 256 KiB of bits.
        assert_eq!(empty, 256 << 10);
        buffer.write(2048, &painted(8, 1));
        assert_eq!(buffer.memory(), empty + base::PAGE);
        buffer.clear_below(2048 + 8);
        assert_eq!(buffer.memory(), empty);
    }

    #[test]
    fn zeroes_over_contents_are_zeroes() {
        let mut buffer = buffer();
        buffer.write(0, &painted(8, 9));
        buffer.write_zeroes(2..4);
        let contents = buffer.contents(0..8);
        let first_bytes: Vec<u8> = (0..8).map(|sector| contents[sector * 512]).collect();
        assert_eq!(first_bytes, [9, 9, 0, 0, 9, 9, 9, 9]);
    }

    #[derive(Debug, Clone)]
    enum Act {
        Write(Range<u64>, u8),
        Zero(Range<u64>),
        Clear(Range<u64>),
        ClearBelow(u64),
        Look(Range<u64>),
        Runs(u64, u64),
    }

    fn ranges() -> impl Strategy<Value = Range<u64>> {
        (0..SECTORS, 1..40u64).prop_map(|(start, len)| start..(start + len).min(SECTORS))
    }

    fn acts() -> impl Strategy<Value = Act> {
        prop_oneof![
            4 => (ranges(), 1..=255u8).prop_map(|(range, with)| Act::Write(range, with)),
            1 => ranges().prop_map(Act::Zero),
            2 => ranges().prop_map(Act::Clear),
            1 => (0..=SECTORS).prop_map(Act::ClearBelow),
            3 => ranges().prop_map(Act::Look),
            1 => (0..SECTORS, 1..20u64).prop_map(|(from, most)| Act::Runs(from, most)),
        ]
    }

    proptest! {
        /// The reference model: one byte for the contents and one `bool` for the mark of each sector.
        #[test]
        fn it_is_its_plain_twin(acts in prop::collection::vec(acts(), 1..60)) {
            let mut buffer = buffer();
            let mut bytes = vec![0u8; SECTORS as usize];
            let mut marks = vec![false; SECTORS as usize];
            let places = |range: &Range<u64>| range.start as usize..range.end as usize;
            for act in acts {
                match act {
                    Act::Write(range, with) => {
                        buffer.write(range.start, &painted(range.end - range.start, with));
                        bytes[places(&range)].fill(with);
                        marks[places(&range)].fill(true);
                    }
                    Act::Zero(range) => {
                        buffer.write_zeroes(range.clone());
                        bytes[places(&range)].fill(0);
                        marks[places(&range)].fill(true);
                    }
                    Act::Clear(range) => {
                        buffer.clear(range.clone());
                        marks[places(&range)].fill(false);
                    }
                    Act::ClearBelow(position) => {
                        buffer.clear_below(position);
                        marks[..position as usize].fill(false);
                    }
                    Act::Look(range) => {
                        let all = marks[places(&range)].iter().all(|mark| *mark);
                        let any = marks[places(&range)].iter().any(|mark| *mark);
                        prop_assert_eq!(buffer.covers(range.clone()), all);
                        prop_assert_eq!(buffer.touches(range.clone()), any);
                        let mut at = range.start;
                        for piece in buffer.pieces(range.clone()) {
                            let (part, held) = match &piece {
                                Piece::Buffered(part, view) => (part.clone(), Some(view)),
                                Piece::Beneath(part) => (part.clone(), None),
                            };
                            prop_assert_eq!(part.start, at);
                            at = part.end;
                            for (number, sector) in part.enumerate() {
                                prop_assert_eq!(marks[sector as usize], held.is_some());
                                if let Some(view) = held {
                                    let got = &view[number * 512..(number + 1) * 512];
                                    let expected = bytes[sector as usize];
                                    prop_assert!(got.iter().all(|byte| *byte == expected));
                                }
                            }
                        }
                        prop_assert_eq!(at, range.end);
                    }
                    Act::Runs(from, most) => {
                        let first = (from..SECTORS).find(|sector| marks[*sector as usize]);
                        let expected = first.map(|first| {
                            let end = (first..SECTORS).find(|sector| !marks[*sector as usize]);
                            first..end.unwrap_or(SECTORS).min(first + most)
                        });
                        prop_assert_eq!(buffer.next_run(from, most), expected);
                    }
                }
                buffer.check();
                let marked = marks.iter().filter(|mark| **mark).count() as u64;
                prop_assert_eq!(buffer.marked(), Bytes(marked * SECTOR));
            }
        }
    }
}
