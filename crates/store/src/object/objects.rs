//! One object in memory, with its records as the ledger has them.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::object::record::{FLAG_DELETING, RawObject};
use crate::object::segment::{Entry, PAGES, Segment};
use crate::object::types::{Stat, Version};

/// One object.
#[derive(Debug, Clone)]
pub(crate) struct Object {
    pub name: Rc<str>,
    pub size: u64,
    pub born: u64,
    pub version: u64,
    pub stamp: u64,
    /// The last change that made it shorter, and the shortest it has been since it was made.
    pub cut_generation: u64,
    pub cut_offset: u64,
    pub deleting: bool,
    pub attributes: Box<[u8]>,
    pub segments: BTreeMap<u32, Box<[u8]>>,
    /// The place behind the last page written: data that go on do so there. Not durable.
    pub next: Option<u32>,
}

impl Object {
    /// Its own record.
    pub fn raw(&self) -> RawObject {
        RawObject {
            size: self.size.into(),
            born: self.born.into(),
            version: self.version.into(),
            stamp: self.stamp.into(),
            cut_generation: self.cut_generation.into(),
            cut_offset: self.cut_offset.into(),
            flags: if self.deleting { FLAG_DELETING } else { 0 },
        }
    }

    pub fn stat(&self) -> Stat {
        Stat {
            name: self.name.to_string(),
            size: self.size,
            version: Version(self.version),
            born: Version(self.born),
            stamp: self.stamp,
        }
    }

    pub fn segment(&self, number: u32) -> Option<Segment> {
        let bytes = self.segments.get(&number)?;
        Some(Segment::decode(bytes).expect("what is in the table was checked when it came in"))
    }

    /// Where page `page` is, if it is no hole.
    pub fn entry(&self, page: u64) -> Option<Entry> {
        self.segment((page / PAGES) as u32)?.entries[(page % PAGES) as usize]
    }

    /// The places of `count` pages from `first` on.
    pub fn entries(&self, first: u64, count: u64) -> Vec<Option<Entry>> {
        let mut entries = vec![None; count as usize];
        let last = (first + count).div_ceil(PAGES);
        for (number, bytes) in self
            .segments
            .range((first / PAGES) as u32..last.min(u64::from(u32::MAX)) as u32)
        {
            let segment = Segment::decode(bytes).expect("checked when it came in");
            let start = u64::from(*number) * PAGES;
            for (at, entry) in segment.entries.iter().enumerate() {
                let page = start + at as u64;
                if page >= first && page < first + count {
                    entries[(page - first) as usize] = *entry;
                }
            }
        }
        entries
    }
}
