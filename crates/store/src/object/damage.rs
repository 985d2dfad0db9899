//! Which bytes of objects are known to be damaged? What a scrub or a read found, and nothing has written since.
//!
//! ```text
//! scrub, read -> a bit beside the page in the table -> this list -> owner of the object -> page written anew -> bit gone
//! ```
//!
//! Always true:
//! 1. A part of the list costs as much as it tells, whatever else is damaged and however many objects there are.
//! 2. Stretches come in the order of names and bytes, none twice, and neighbours in one.

use std::ops::Bound;

use base::Bytes;

use crate::object::finding::BadBlock;
use crate::object::parts::Parts;
use crate::object::segment::PAGES;

/// Bytes of an object that cannot be read as they were written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Damage {
    /// The object.
    pub object: String,
    /// First byte; a multiple of the page.
    pub offset: u64,
    /// Length in bytes, of whole pages.
    pub len: u64,
}

impl Damage {
    /// Does `next` begin where this one ends?
    fn meets(&self, next: &Bad<'_>) -> bool {
        self.object == next.object && self.offset + self.len == next.offset
    }
}

/// A bad page of an object that can be named.
struct Bad<'a> {
    object: &'a str,
    offset: u64,
    /// Of the store.
    place: u32,
}

/// Lists known damage; see [`crate::Store::bad_blocks`].
pub(crate) struct BadPages<'a>(pub &'a Parts);

impl BadPages<'_> {
    pub fn all(&self) -> Vec<BadBlock> {
        let mut all = Vec::new();
        self.each("", "", 0, |bad| {
            all.push(BadBlock {
                object: bad.object.to_owned(),
                offset: bad.offset,
                len: Bytes(self.0.disk.page),
                page: bad.place,
                why: "it was found to differ from its checksum".to_owned(),
            });
            true
        });
        all
    }

    /// At most `most` stretches, and whether there are more.
    pub fn stretches(
        &self,
        prefix: &str,
        object: &str,
        offset: u64,
        most: usize,
    ) -> (Vec<Damage>, bool) {
        let (mut all, mut more): (Vec<Damage>, bool) = (Vec::new(), false);
        let page = self.0.disk.page;
        self.each(prefix, object, offset, |bad| {
            if let Some(last) = all.last_mut().filter(|last| last.meets(&bad)) {
                last.len += page;
                return true;
            }
            if all.len() >= most {
                more = true;
                return false;
            }
            all.push(Damage {
                object: bad.object.to_owned(),
                offset: bad.offset,
                len: page,
            });
            true
        });
        (all, more)
    }

    /// Visits bad pages of objects whose names begin so, from byte `offset` of `object` on, in the order of names and bytes, until
    /// `visit` has enough. It costs as much as is visited: an answer that tells a part does not look at the rest.
    fn each(
        &self,
        prefix: &str,
        object: &str,
        offset: u64,
        mut visit: impl FnMut(Bad<'_>) -> bool,
    ) {
        let (table, page) = (self.0.table.borrow(), self.0.disk.page);
        let from = prefix.max(object);
        let names = &table.damaged.names;
        let names = names.range::<str, _>((Bound::Included(from), Bound::Unbounded));
        for (name, id) in names.take_while(|(name, _)| name.starts_with(prefix)) {
            let least = if **name == *object { offset } else { 0 };
            let first = u32::try_from(least / (PAGES * page)).unwrap_or(u32::MAX);
            let object = table.get(*id).expect("a damaged name has an object");
            for number in table.damaged.of(*id, first) {
                let segment = object
                    .segment(number)
                    .expect("it is damaged, so it is there");
                for (at, entry) in segment.entries.iter().enumerate() {
                    let Some(entry) = entry.filter(|_| segment.bad >> at & 1 == 1) else {
                        continue;
                    };
                    let offset = (u64::from(number) * PAGES + at as u64) * page;
                    let bad = Bad {
                        object: name,
                        offset,
                        place: entry.place,
                    };
                    if offset >= least && !visit(bad) {
                        return;
                    }
                }
            }
        }
    }
}
