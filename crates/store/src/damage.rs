//! Which bytes of objects are known to be damaged? What a scrub or a read found, and nothing has written since.
//!
//! ```text
//! scrub, read -> a bit beside the page in the table -> this list -> owner of the object -> page written anew -> bit gone
//! ```
//!
//! Always true:
//! 1. The list costs as much as there is damage, not as much as there are objects.
//! 2. Stretches come in the order of names and bytes, none twice, and neighbours in one.

use base::Bytes;

use crate::check::BadBlock;
use crate::open::{Inner, Store};
use crate::table::PAGES;

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
    fn meets(&self, next: &BadBlock) -> bool {
        self.object == next.object && self.offset + self.len == next.offset
    }
}

impl Store {
    /// Every page known to be bad, by object: found by scrubs and reads, and not written since.
    pub fn bad_blocks(&self) -> Vec<BadBlock> {
        self.inner.bad_blocks("")
    }

    /// Damaged stretches of objects whose names begin with `prefix`, from byte `offset` of `object` on in the order of names:
    /// at most `most`, and whether there are more.
    pub fn damage(
        &self,
        prefix: &str,
        object: &str,
        offset: u64,
        most: usize,
    ) -> (Vec<Damage>, bool) {
        let mut all: Vec<Damage> = Vec::new();
        for bad in self.inner.bad_blocks(prefix) {
            if (bad.object.as_str(), bad.offset) < (object, offset) {
                continue;
            }
            if let Some(last) = all.last_mut().filter(|last| last.meets(&bad)) {
                last.len += bad.len.0;
                continue;
            }
            if all.len() >= most {
                return (all, true);
            }
            all.push(Damage {
                object: bad.object,
                offset: bad.offset,
                len: bad.len.0,
            });
        }
        (all, false)
    }
}

impl Inner {
    /// Bad pages of objects whose names begin so, in the order of names and bytes.
    fn bad_blocks(&self, prefix: &str) -> Vec<BadBlock> {
        let table = self.table.borrow();
        let mut all = Vec::new();
        for (id, number) in &table.damaged {
            let object = table.get(*id).expect("a damaged segment has an object");
            if object.doomed || !object.name.starts_with(prefix) {
                continue;
            }
            let segment = object
                .segment(*number)
                .expect("it is damaged, so it is there");
            for (at, entry) in segment.entries.iter().enumerate() {
                let Some(entry) = entry.filter(|_| segment.bad >> at & 1 == 1) else {
                    continue;
                };
                all.push(BadBlock {
                    object: object.name.to_string(),
                    offset: (u64::from(*number) * PAGES + at as u64) * self.page,
                    len: Bytes(self.page),
                    page: entry.place,
                    why: "it was found to differ from its checksum".to_owned(),
                });
            }
        }
        all.sort_by(|a, b| (&a.object, a.offset).cmp(&(&b.object, b.offset)));
        all
    }
}
