//! Where are 32 neighbouring pages of an object, and what must their checksums be?
//!
//! ```text
//! generation u64 | bad u32 | run run ...
//! run: head u16 (first page: 5 bits, count - 1: 5 bits) | place u32 | CRC-32C u32 for each page
//! ```
//!
//! A page in no run is a hole and reads as zeroes. The record in the ledger and the form in memory are the same
//! bytes: 12 + 6 + 4 * 32 = 146 for 32 pages in a row, at most 12 + 32 * 10 = 332.
//!
//! Always true:
//! 1. Runs rise and do not overlap; two runs that could be one are one.
//! 2. A bit of `bad` is set only for a page that is there.

/// Pages one record maps.
pub(crate) const SEGMENT_PAGES: usize = 32;
/// The same, as a number of pages.
pub(crate) const PAGES: u64 = SEGMENT_PAGES as u64;
/// The longest a record can be in the ledger: head and key beside the worst value.
pub(crate) const SEGMENT_BYTES_MAX: u64 = 10 + 12 + 32 * 10;

const HEADER: usize = 12;

/// Where a page is and what its checksum must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The page of the store.
    pub place: u32,
    /// Of the whole page.
    pub crc: u32,
}

/// 32 pages of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Segment {
    /// The version of the last change here.
    pub version: u64,
    /// One bit for each page that a scrub could not read rightly.
    pub bad: u32,
    pub entries: [Option<Entry>; SEGMENT_PAGES],
}

/// What the records of pages `first..end` may grow by in a commit, at most, with the object's own.
pub(crate) fn charge(first: u64, end: u64) -> u64 {
    let segments = end.div_ceil(PAGES).saturating_sub(first / PAGES);
    segments * SEGMENT_BYTES_MAX + 80
}

impl Segment {
    /// All holes.
    pub fn empty(version: u64) -> Segment {
        Segment {
            version,
            bad: 0,
            entries: [None; SEGMENT_PAGES],
        }
    }

    pub fn encode(&self) -> Box<[u8]> {
        let mut bytes = Vec::with_capacity(HEADER + 6 + 4 * SEGMENT_PAGES);
        bytes.extend_from_slice(&self.version.to_le_bytes());
        bytes.extend_from_slice(&self.bad.to_le_bytes());
        let mut first = 0;
        while first < SEGMENT_PAGES {
            let Some(start) = self.entries[first] else {
                first += 1;
                continue;
            };
            let mut count = 1;
            while first + count < SEGMENT_PAGES
                && self.entries[first + count]
                    .is_some_and(|next| next.place == start.place.wrapping_add(count as u32))
            {
                count += 1;
            }
            let head = (first | (count - 1) << 5) as u16;
            bytes.extend_from_slice(&head.to_le_bytes());
            bytes.extend_from_slice(&start.place.to_le_bytes());
            for entry in self.entries[first..first + count].iter().flatten() {
                bytes.extend_from_slice(&entry.crc.to_le_bytes());
            }
            first += count;
        }
        bytes.into_boxed_slice()
    }

    /// Does one that is written so have bad pages?
    pub fn has_bad(bytes: &[u8]) -> bool {
        bytes.get(8..HEADER).is_some_and(|bad| bad != [0; 4])
    }

    /// `None` if no segment is written like this.
    pub fn decode(bytes: &[u8]) -> Option<Segment> {
        let (version, rest) = bytes.split_first_chunk::<8>()?;
        let (bad, mut rest) = rest.split_first_chunk::<4>()?;
        let mut segment = Segment::empty(u64::from_le_bytes(*version));
        segment.bad = u32::from_le_bytes(*bad);
        let mut mapped = 0_u32;
        let mut end = 0;
        while !rest.is_empty() {
            let (head, more) = rest.split_first_chunk::<2>()?;
            let (place, more) = more.split_first_chunk::<4>()?;
            let head = usize::from(u16::from_le_bytes(*head));
            let place = u32::from_le_bytes(*place);
            let (first, count) = (head & 31, (head >> 5 & 31) + 1);
            if head >> 10 != 0 || first < end || first + count > SEGMENT_PAGES {
                return None;
            }
            place.checked_add(count as u32)?;
            if more.len() < 4 * count {
                return None;
            }
            let (crcs, more) = more.split_at(4 * count);
            for (at, crc) in crcs.chunks_exact(4).enumerate() {
                segment.entries[first + at] = Some(Entry {
                    place: place + at as u32,
                    crc: u32::from_le_bytes(crc.try_into().ok()?),
                });
                mapped |= 1 << (first + at);
            }
            end = first + count;
            rest = more;
        }
        (segment.bad & !mapped == 0).then_some(segment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(rng: &mut env::Rng) -> Segment {
        let mut segment = Segment::empty(rng.bits() >> 20);
        let mut place = rng.below(1 << 30) as u32;
        for at in 0..SEGMENT_PAGES {
            place = if rng.chance(0.6) {
                place + 1
            } else {
                rng.below(1 << 31) as u32
            };
            if rng.chance(0.7) {
                segment.entries[at] = Some(Entry {
                    place,
                    crc: rng.bits() as u32,
                });
                segment.bad |= u32::from(rng.chance(0.1)) << at;
            }
        }
        segment
    }

    #[test]
    fn a_segment_comes_back_as_it_was_and_fits_its_bound() {
        let mut rng = env::Rng::from_seed(1);
        for _ in 0..2_000 {
            let segment = random(&mut rng);
            let bytes = segment.encode();
            assert!(bytes.len() as u64 + 10 <= SEGMENT_BYTES_MAX);
            assert_eq!(Segment::decode(&bytes), Some(segment));
        }
    }

    #[test]
    fn pages_in_a_row_take_146_bytes_and_no_pages_12() {
        let mut segment = Segment::empty(7);
        assert_eq!(segment.encode().len(), 12);
        for at in 0..SEGMENT_PAGES {
            segment.entries[at] = Some(Entry {
                place: 100 + at as u32,
                crc: 1,
            });
        }
        assert_eq!(segment.encode().len(), 146);
    }

    #[test]
    fn bytes_that_are_no_segment_are_refused_without_a_panic() {
        let mut rng = env::Rng::from_seed(2);
        for _ in 0..20_000 {
            let mut bytes = random(&mut rng).encode().to_vec();
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << rng.below(8);
            bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize);
            if let Some(segment) = Segment::decode(&bytes) {
                let mapped = segment.entries.iter().flatten().count();
                assert!(mapped <= SEGMENT_PAGES);
            }
        }
        assert_eq!(Segment::decode(&[0; 11]), None);
    }
}
