//! From the ledger's records to the objects in memory, looking at every byte on the way.
//!
//! ```text
//! records, the latest of each key -> sorted by kind -> objects with their parts -> table and space
//!                                        \_ what contradicts itself -> findings
//! ```
//!
//! `open` refuses a store with findings; `check` reports them all. Neither changes anything here.

use std::collections::BTreeMap;
use std::rc::Rc;

use ledger::Record;
use zerocopy::FromBytes;

use crate::object::finding::Finding;
use crate::object::layout::Superblock;
use crate::object::objects::Object;
use crate::object::record::{self, Cursor, FLAG_DELETING, KINDS, RawCursor, RawObject};
use crate::object::segment::{PAGES, Segment};
use crate::object::space::Space;
use crate::object::table::Table;
use crate::object::types::{ATTRIBUTES_MAX, NAME_MAX};

/// Findings beyond this many are counted, not kept.
const FINDINGS_MAX: usize = 10_000;

/// The latest records, by kind and number.
#[derive(Default)]
pub(crate) struct Records {
    kinds: [BTreeMap<u64, Box<[u8]>>; KINDS as usize],
    pub findings: Vec<Finding>,
    pub findings_count: usize,
}

/// What the records make.
pub(crate) struct Loaded {
    pub table: Table,
    pub space: Space,
    /// The greatest version seen.
    pub version: u64,
    pub findings: Vec<Finding>,
    pub findings_count: usize,
}

impl Records {
    /// Takes one record, in the ledger's order.
    pub fn visit(&mut self, record: Record<'_>) {
        let Some((kind, number, value)) = record::sort(record) else {
            let key = match record {
                Record::Put { key, .. } | Record::Remove { key } => key,
            };
            return self.find(Finding::Record {
                key,
                why: "is none that a store writes",
            });
        };
        let kind = &mut self.kinds[kind as usize];
        match value {
            Some(value) => kind.insert(number, value.into()),
            None => kind.remove(&number),
        };
    }

    pub fn find(&mut self, finding: Finding) {
        self.findings_count += 1;
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        }
    }

    fn bad(&mut self, kind: u64, number: u64, why: &'static str) {
        self.find(Finding::Record {
            key: number << 3 | kind,
            why,
        });
    }

    /// Puts everything together.
    pub fn load(mut self, superblock: &Superblock) -> Loaded {
        let zone_units = superblock.zone.0 / superblock.unit.0;
        let mut loaded = Loaded {
            table: Table::default(),
            space: Space::new(superblock.units, superblock.unit_pages(), zone_units),
            version: 0,
            findings: Vec::new(),
            findings_count: 0,
        };
        self.objects(superblock, &mut loaded);
        for kind in [record::NAME, record::ATTRIBUTES, record::SEGMENT] {
            for number in self.take(kind).into_keys() {
                self.bad(kind, number, "belongs to no object");
            }
        }
        self.reservations(&mut loaded);
        let cursor = self.cursor();
        loaded.table.adopt_cursor(cursor);
        loaded.findings = self.findings;
        loaded.findings_count = self.findings_count;
        loaded
    }

    fn take(&mut self, kind: u64) -> BTreeMap<u64, Box<[u8]>> {
        std::mem::take(&mut self.kinds[kind as usize])
    }

    fn objects(&mut self, superblock: &Superblock, loaded: &mut Loaded) {
        let mut names: BTreeMap<Rc<str>, u32> = BTreeMap::new();
        // A page's owner is looked for only where two claim it: the first one's name is then found again.
        for (number, value) in self.take(record::OBJECT) {
            let id = number as u32;
            let Some(mut object) = self.object(number, &value) else {
                continue;
            };
            loaded.version = loaded.version.max(object.version);
            if !object.deleting
                && let Some(other) = names.insert(Rc::clone(&object.name), id)
            {
                self.find(Finding::NameTwice {
                    object: object.name.to_string(),
                    ids: (other, id),
                });
                continue;
            }
            let from = u64::from(id) << 29;
            let segments: Vec<u64> = self.kinds[record::SEGMENT as usize]
                .range(from..from + record::SEGMENTS_MAX)
                .map(|(key, _)| *key)
                .collect();
            for key in segments {
                let bytes = self.kinds[record::SEGMENT as usize]
                    .remove(&key)
                    .expect("just listed");
                self.segment(&mut object, key, bytes, superblock, &mut loaded.space);
            }
            loaded.table.adopt(id, object);
        }
    }

    fn reservations(&mut self, loaded: &mut Loaded) {
        let (total, free) = (loaded.space.total(), loaded.space.free_count());
        let mut reserved = 0_u64;
        for (number, value) in self.take(record::RESERVATION) {
            match <[u8; 8]>::try_from(&*value) {
                Ok(left) => {
                    let left = u64::from_le_bytes(left);
                    reserved = reserved.saturating_add(left);
                    // More than there is would make the sums overflow; the finding reports it.
                    let left = left.min(u64::from(total));
                    loaded.table.adopt_promise(number, left);
                }
                Err(_) => self.bad(record::RESERVATION, number, "is no reservation"),
            }
        }
        if reserved > u64::from(free) {
            self.find(Finding::Space {
                total: u64::from(total),
                used: u64::from(total - free),
                reserved,
            });
        }
    }

    fn cursor(&mut self) -> Cursor {
        let mut cursor = Cursor::default();
        for (number, value) in self.take(record::SCRUB) {
            match RawCursor::read_from_bytes(&value) {
                Ok(raw) => cursor = Cursor::of(&raw),
                Err(_) => self.bad(record::SCRUB, number, "is no scrub cursor"),
            }
        }
        cursor
    }

    /// An object without its segments; `None` (and a finding) if its record cannot be read.
    fn object(&mut self, number: u64, value: &[u8]) -> Option<Object> {
        let Ok(raw) = RawObject::read_from_bytes(value) else {
            self.bad(record::OBJECT, number, "is no object");
            return None;
        };
        let deleting = raw.flags == FLAG_DELETING;
        let name = self.kinds[record::NAME as usize].remove(&number);
        let parts: Vec<Option<Box<[u8]>>> = (0..4)
            .map(|part| self.kinds[record::ATTRIBUTES as usize].remove(&(number << 2 | part)))
            .collect();
        let Some(name) = name_of(name.as_deref(), deleting) else {
            self.bad(
                record::OBJECT,
                number,
                "has no name, or one it should not have",
            );
            return None;
        };
        let attributes = self.attributes(number, parts);
        if raw.flags > FLAG_DELETING || raw.born.get() > raw.version.get() {
            self.bad(record::OBJECT, number, "has values no store writes");
        }
        Some(Object {
            name,
            size: raw.size.get(),
            born: raw.born.get(),
            version: raw.version.get(),
            stamp: raw.stamp.get(),
            cut_generation: raw.cut_generation.get(),
            cut_offset: raw.cut_offset.get(),
            deleting,
            attributes: attributes.into_boxed_slice(),
            segments: BTreeMap::new(),
            next: None,
        })
    }

    /// An object's attributes from their parts; none (and a finding) if they cannot be read.
    fn attributes(&mut self, number: u64, parts: Vec<Option<Box<[u8]>>>) -> Vec<u8> {
        // Parts fill up in order; what follows a short one is left over from longer attributes.
        let mut attributes: Vec<u8> = Vec::new();
        let mut gap = false;
        for part in parts {
            let full = part
                .as_ref()
                .is_some_and(|bytes| bytes.len() == record::PART);
            if gap && part.is_some() {
                self.bad(
                    record::ATTRIBUTES,
                    number << 2,
                    "follows a part that is not full",
                );
            }
            attributes.extend(part.into_iter().flatten());
            gap = !full;
        }
        if record::decode_attributes(&attributes).is_none() || attributes.len() > ATTRIBUTES_MAX {
            self.bad(record::ATTRIBUTES, number << 2, "are no attributes");
            attributes.clear();
        }
        attributes
    }

    fn segment(
        &mut self,
        object: &mut Object,
        key: u64,
        bytes: Box<[u8]>,
        superblock: &Superblock,
        space: &mut Space,
    ) {
        let number = (key & (record::SEGMENTS_MAX - 1)) as u32;
        let Some(segment) = Segment::decode(&bytes) else {
            return self.bad(record::SEGMENT, key, "is no segment");
        };
        if segment.version > object.version {
            self.bad(record::SEGMENT, key, "is newer than its object");
        }
        let pages = object.size.div_ceil(superblock.page.0);
        for (at, entry) in segment.entries.iter().enumerate() {
            let Some(entry) = entry else { continue };
            let page = u64::from(number) * PAGES + at as u64;
            let offset = page.saturating_mul(superblock.page.0);
            let name = object.name.to_string();
            if page >= pages && !object.deleting {
                self.find(Finding::Beyond {
                    object: name.clone(),
                    offset,
                    size: object.size,
                });
            }
            if entry.place >= space.total() {
                self.find(Finding::Outside {
                    object: name,
                    offset,
                    page: entry.place,
                    pages: space.total(),
                });
            } else if !space.claim(entry.place) {
                self.find(Finding::PageTwice {
                    object: name,
                    offset,
                    page: entry.place,
                });
            }
        }
        object.next = segment
            .entries
            .iter()
            .flatten()
            .last()
            .and_then(|entry| entry.place.checked_add(1));
        object.segments.insert(number, bytes);
    }
}

/// The name an object has by its record; one under deletion has none.
fn name_of(name: Option<&[u8]>, deleting: bool) -> Option<Rc<str>> {
    match (name, deleting) {
        (None, true) => Some(Rc::from("")),
        (Some(bytes), false) if !bytes.is_empty() && bytes.len() <= NAME_MAX => {
            std::str::from_utf8(bytes).ok().map(Rc::from)
        }
        _ => None,
    }
}
