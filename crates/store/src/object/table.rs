//! The objects in memory: what is there, what of it the ledger does not know yet, and what it takes.
//!
//! ```text
//! change in memory -> key touched -> cut: each touched key's present record, or its removal -> ledger
//! ```
//!
//! The records of the ledger are kept as they are written (segments, attributes), so a sweep copies them. Memory:
//! about 6 bytes a page of data in a row (146 bytes for 32 of them, and a place in a tree), about 200 bytes and
//! the name an object.
//!
//! Always true:
//! 1. `live` is the sum of the bytes of all records a sweep would write.
//! 2. What is touched is all that differs from the ledger's prepared state.
//! 3. Names lead to objects that are not under deletion, and each such object to its name.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use base::Bytes;
use ledger::{Batch, Owner};
use zerocopy::IntoBytes;

use crate::object::damaged::Damaged;
use crate::object::objects::Object;
use crate::object::promises::{Promise, Promises};
use crate::object::record::{self, Cursor, PART, RawCursor, RawObject};
use crate::object::segment::{Entry, PAGES, Segment};

#[derive(Default)]
pub(crate) struct Table {
    pub objects: Vec<Option<Object>>,
    free_ids: BTreeSet<u32>,
    pub names: BTreeMap<Rc<str>, u32>,
    pub promises: Promises,
    pub scrub: Cursor,
    /// Objects being taken apart.
    pub deleting: BTreeSet<u32>,
    /// Segments with bad pages.
    pub damaged: Damaged,
    live: u64,
    /// Keys, and the bytes each was counted with in `staged`.
    touched: BTreeMap<u64, u64>,
    /// The bytes the touched records take at most.
    staged: u64,
}

/// What a change of pages does.
pub(crate) struct Pages<'a> {
    /// New places, by page of the object.
    pub put: &'a [(u64, Entry)],
    /// Pages that become holes.
    pub unmap: std::ops::Range<u64>,
}

impl Table {
    pub fn get(&self, id: u32) -> Option<&Object> {
        self.objects.get(id as usize)?.as_ref()
    }

    fn get_mut(&mut self, id: u32) -> &mut Object {
        self.objects[id as usize]
            .as_mut()
            .expect("the caller has seen it")
    }

    pub fn find(&self, name: &str) -> Option<(u32, &Object)> {
        let id = *self.names.get(name)?;
        Some((id, self.get(id).expect("names lead to objects")))
    }

    pub fn live(&self) -> u64 {
        self.live
    }

    pub fn staged(&self) -> u64 {
        self.staged
    }

    pub fn anything_touched(&self) -> bool {
        !self.touched.is_empty()
    }

    // --- bookkeeping ------------------------------------------------------------------------------

    /// The length of the record under `key` now.
    fn record_len(&self, key: u64) -> Option<usize> {
        let (kind, number) = (key & 7, key >> 3);
        match kind {
            record::OBJECT => self.get(number as u32).map(|_| size_of::<RawObject>()),
            record::NAME => {
                let object = self.get(number as u32).filter(|object| !object.deleting)?;
                Some(object.name.len())
            }
            record::ATTRIBUTES => {
                let object = self
                    .get((number >> 2) as u32)
                    .filter(|object| !object.deleting)?;
                let part = object.attributes.chunks(PART).nth((number & 3) as usize)?;
                Some(part.len())
            }
            record::SEGMENT => {
                let object = self.get((number >> 29) as u32)?;
                let number = (number & (record::SEGMENTS_MAX - 1)) as u32;
                object.segments.get(&number).map(|bytes| bytes.len())
            }
            record::RESERVATION => self.promises.get(number).map(|_| 8),
            _ => Some(size_of::<RawCursor>()),
        }
    }

    fn live_of(&self, key: u64) -> u64 {
        self.record_len(key)
            .map_or(0, |len| Batch::record_bytes(key, len).0)
    }

    /// Changes what `key` stands for, and keeps count of it.
    fn change<T>(&mut self, key: u64, change: impl FnOnce(&mut Table) -> T) -> T {
        let before = self.live_of(key);
        let answer = change(self);
        let after = self.live_of(key);
        self.live = self.live + after - before;
        let charged = self.touched.entry(key).or_insert(0);
        let now = after.max(10);
        if *charged < now {
            self.staged += now - *charged;
            *charged = now;
        }
        answer
    }

    /// Writes the present record under `key`, or its removal.
    fn emit(&self, key: u64, out: &mut Batch) {
        let (kind, number) = (key & 7, key >> 3);
        if self.record_len(key).is_none() {
            return out.remove(key);
        }
        let object = |id: u64| self.get(id as u32).expect("its record has a length");
        match kind {
            record::OBJECT => out.put(key, object(number).raw().as_bytes()),
            record::NAME => out.put(key, object(number).name.as_bytes()),
            record::ATTRIBUTES => {
                let parts = &object(number >> 2).attributes;
                let from = (number & 3) as usize * PART;
                out.put(key, &parts[from..parts.len().min(from + PART)]);
            }
            record::SEGMENT => {
                let segment = (number & (record::SEGMENTS_MAX - 1)) as u32;
                out.put(key, &object(number >> 29).segments[&segment]);
            }
            record::RESERVATION => {
                let promise = self.promises.get(number).expect("its record has a length");
                out.put(key, &promise.left.to_le_bytes());
            }
            _ => out.put(key, self.scrub.raw().as_bytes()),
        }
    }

    /// Everything that changed since the last call, as one batch.
    pub fn take_touched(&mut self, batch: &mut Batch) {
        self.staged = 0;
        for key in std::mem::take(&mut self.touched).into_keys() {
            self.emit(key, batch);
        }
    }

    // --- objects ----------------------------------------------------------------------------------

    /// Makes an empty object; the name must be free.
    pub fn create(&mut self, name: &str, version: u64, stamp: u64, attributes: Vec<u8>) -> u32 {
        let id = self.free_ids.pop_first().unwrap_or_else(|| {
            self.objects.push(None);
            (self.objects.len() - 1) as u32
        });
        let name: Rc<str> = Rc::from(name);
        let before = self.names.insert(Rc::clone(&name), id);
        assert_eq!(before, None, "the caller has looked");
        let object = Object {
            name,
            size: 0,
            born: version,
            version,
            stamp,
            cut_generation: version,
            cut_offset: u64::MAX,
            deleting: false,
            attributes: Box::default(),
            segments: BTreeMap::new(),
            next: None,
        };
        // The name's record appears with the object's, so both are counted around its arrival.
        self.change(record::object_key(id), |table| {
            table.change(record::name_key(id), |table| {
                table.objects[id as usize] = Some(object);
            });
        });
        self.set_attributes(id, attributes);
        id
    }

    /// Puts an object where recovery found it, touching nothing.
    pub fn adopt(&mut self, id: u32, object: Object) {
        while self.objects.len() <= id as usize {
            self.free_ids.insert(self.objects.len() as u32);
            self.objects.push(None);
        }
        self.free_ids.remove(&id);
        if object.deleting {
            self.deleting.insert(id);
        } else {
            self.names.insert(Rc::clone(&object.name), id);
        }
        let bad = object.segments.iter();
        for (number, _) in bad.filter(|(_, bytes)| Segment::has_bad(bytes)) {
            let name = (!object.deleting).then_some(&object.name);
            self.damaged.note((id, *number), true, name);
        }
        let keys: Vec<u64> = (object.segments.keys())
            .map(|number| record::segment_key(id, *number))
            .chain((0..4).map(|part| record::attributes_key(id, part)))
            .chain([record::object_key(id), record::name_key(id)])
            .collect();
        self.objects[id as usize] = Some(object);
        for key in keys {
            self.live += self.live_of(key);
        }
    }

    /// Puts a reservation where recovery found it, touching nothing.
    pub fn adopt_promise(&mut self, number: u64, left: u64) {
        let promise = Promise { left, held: 0 };
        self.promises.put(number, Some(promise));
        self.live += self.live_of(record::reservation_key(number));
    }

    /// Puts the scrub cursor where recovery found it. Its record is live from the start, found or not.
    pub fn adopt_cursor(&mut self, cursor: Cursor) {
        self.scrub = cursor;
        self.live += self.live_of(record::SCRUB_KEY);
    }

    pub fn set_attributes(&mut self, id: u32, attributes: Vec<u8>) {
        let (old, new) = (self.get_mut(id).attributes.len(), attributes.len());
        let parts = old.max(new).div_ceil(PART) as u64;
        let before: u64 = (0..parts)
            .map(|part| self.live_of(record::attributes_key(id, part)))
            .sum();
        self.get_mut(id).attributes = attributes.into_boxed_slice();
        for part in 0..parts {
            // Each part's present length is counted; the old ones go all at once.
            self.live += self.live_of(record::attributes_key(id, part));
            self.change(record::attributes_key(id, part), |_| ());
        }
        self.live -= before;
    }

    /// The object changed: its version, its stamp if there is a new one, its size.
    pub fn stamp(&mut self, id: u32, version: u64, stamp: Option<u64>, size: u64) {
        let object = self.get_mut(id);
        object.version = version;
        if let Some(stamp) = stamp {
            object.stamp = stamp;
        }
        if size < object.size {
            object.cut_generation = version;
            object.cut_offset = object.cut_offset.min(size);
        }
        object.size = size;
        // The length of its record never changes.
        self.change(record::object_key(id), |_| ());
    }

    /// Changes where pages are; returns the places nothing names any longer.
    pub fn remap(&mut self, id: u32, version: u64, pages: &Pages<'_>) -> Vec<u32> {
        let mut released = Vec::new();
        let mut at = 0;
        while let Some((page, _)) = pages.put.get(at) {
            let number = (page / PAGES) as u32;
            let mut segment = self
                .get_mut(id)
                .segment(number)
                .unwrap_or_else(|| Segment::empty(version));
            segment.version = version;
            while let Some((page, entry)) = pages
                .put
                .get(at)
                .filter(|(p, _)| p / PAGES == u64::from(number))
            {
                let place = (page % PAGES) as usize;
                released.extend(segment.entries[place].map(|old| old.place));
                segment.entries[place] = Some(*entry);
                segment.bad &= !(1 << place);
                at += 1;
            }
            self.put_segment(id, number, Some(&segment));
        }
        if let Some((_, last)) = pages.put.last() {
            self.get_mut(id).next = last.place.checked_add(1);
        }
        let (first, end) = (pages.unmap.start / PAGES, pages.unmap.end.div_ceil(PAGES));
        let numbers: Vec<u32> = if pages.unmap.is_empty() {
            Vec::new()
        } else {
            let end = end.min(record::SEGMENTS_MAX) as u32;
            (self.get_mut(id).segments.range(first as u32..end))
                .map(|(number, _)| *number)
                .collect()
        };
        for number in numbers {
            let mut segment = self.get_mut(id).segment(number).expect("just listed");
            segment.version = version;
            for (place, entry) in segment.entries.iter_mut().enumerate() {
                if pages
                    .unmap
                    .contains(&(u64::from(number) * PAGES + place as u64))
                {
                    released.extend(entry.take().map(|old| old.place));
                    segment.bad &= !(1 << place);
                }
            }
            self.put_segment(id, number, Some(&segment));
        }
        released
    }

    /// Drops the segments from `number` on: the object ends before them. Returns the places they named.
    pub fn drop_segments(&mut self, id: u32, from: u32, most: usize) -> Vec<u32> {
        let numbers: Vec<u32> = (self.get_mut(id).segments.range(from..).rev())
            .take(most)
            .map(|(number, _)| *number)
            .collect();
        let mut released = Vec::new();
        for number in numbers {
            let segment = self.get_mut(id).segment(number).expect("just listed");
            released.extend(segment.entries.iter().flatten().map(|entry| entry.place));
            self.put_segment(id, number, None);
        }
        released
    }

    fn put_segment(&mut self, id: u32, number: u32, segment: Option<&Segment>) {
        let bad = segment.is_some_and(|segment| segment.bad != 0);
        let object = self.objects[id as usize].as_ref();
        let name = object.filter(|it| !it.deleting).map(|it| &it.name);
        self.damaged.note((id, number), bad, name);
        self.change(record::segment_key(id, number), |table| {
            let segments = &mut table.get_mut(id).segments;
            match segment {
                Some(segment) => segments.insert(number, segment.encode()),
                None => segments.remove(&number),
            }
        });
    }

    /// Notes which pages of a segment a scrub found bad; the data have not changed.
    pub fn set_bad(&mut self, id: u32, number: u32, bad: u32) {
        if let Some(mut segment) = self.get(id).and_then(|object| object.segment(number))
            && segment.bad != bad
        {
            segment.bad = bad;
            self.put_segment(id, number, Some(&segment));
        }
    }

    /// Takes the name away; what is left is taken apart by and by.
    pub fn doom(&mut self, id: u32) {
        let name = Rc::clone(&self.get_mut(id).name);
        self.set_attributes(id, Vec::new());
        self.change(record::object_key(id), |table| {
            table.change(record::name_key(id), |table| {
                table.get_mut(id).deleting = true
            });
        });
        self.names.remove(&name);
        self.damaged.renamed(id, &name, None);
        self.deleting.insert(id);
    }

    /// Forgets an object under deletion that has no segments left.
    pub fn bury(&mut self, id: u32) {
        assert!(
            self.get_mut(id).segments.is_empty(),
            "nothing is left of it"
        );
        self.change(record::object_key(id), |table| {
            table.objects[id as usize] = None;
        });
        self.deleting.remove(&id);
        self.free_ids.insert(id);
    }

    /// Gives the object another name, which must be free.
    pub fn rename(&mut self, id: u32, name: &str) {
        let name: Rc<str> = Rc::from(name);
        let old = Rc::clone(&self.get_mut(id).name);
        self.change(record::name_key(id), |table| {
            table.get_mut(id).name = Rc::clone(&name);
        });
        self.names.remove(&old);
        self.damaged.renamed(id, &old, Some(&name));
        self.names.insert(name, id);
    }

    // --- reservations and the scrub ---------------------------------------------------------------

    /// Pages that are promised, neither written nor being written.
    pub fn promised(&self) -> u64 {
        self.promises.free()
    }

    /// Sets what a reservation has left; `None`: it is gone.
    pub fn set_promise(&mut self, number: u64, promise: Option<Promise>) {
        self.change(record::reservation_key(number), |table| {
            table.promises.put(number, promise);
        });
    }

    /// A write that held `pages` is over: they were used, or are promised again.
    pub fn let_go(&mut self, number: u64, pages: u64, used: bool) {
        let Some(mut promise) = self.promises.get(number) else {
            return;
        };
        promise.held -= pages;
        if used {
            promise.left -= pages;
            self.set_promise(number, Some(promise));
        } else {
            self.promises.put(number, Some(promise));
        }
    }

    pub fn set_cursor(&mut self, cursor: Cursor) {
        self.change(record::SCRUB_KEY, |table| table.scrub = cursor);
    }

    /// Bytes of memory the table takes, near enough: records, tree nodes, names.
    pub fn memory(&self) -> u64 {
        let objects = self.objects.iter().flatten().map(|object| {
            let segments: usize = object.segments.values().map(|bytes| bytes.len() + 48).sum();
            object.name.len() + object.attributes.len() + segments + 80
        });
        let slots = self.objects.len() * size_of::<Option<Object>>();
        (objects.sum::<usize>() + slots + self.touched.len() * 20 + self.promises.iter().len() * 40)
            as u64
    }
}

/// Cursors: 0 is reservations and the scrub cursor; then, for object `id`, `(id + 1) << 30` is its own records and
/// `(id + 1) << 30 | segment + 1` its segments from there on.
impl Owner for Table {
    fn sweep(&mut self, cursor: u64, max: usize, out: &mut Batch) -> Option<u64> {
        let end = out.len() + max;
        let (mut id, mut at) = (cursor >> 30, cursor & ((1 << 30) - 1));
        if cursor == 0 {
            for (number, _) in self.promises.iter() {
                self.emit(record::reservation_key(number), out);
            }
            self.emit(record::SCRUB_KEY, out);
            (id, at) = (1, 0);
        }
        while let Some(object) = self.objects.get(id as usize - 1) {
            if out.len() >= end {
                return Some(id << 30 | at);
            }
            let Some(object) = object else {
                (id, at) = (id + 1, 0);
                continue;
            };
            let number = (id - 1) as u32;
            if at == 0 {
                let own = (0..4).map(|part| record::attributes_key(number, part));
                for key in own.chain([record::object_key(number), record::name_key(number)]) {
                    if self.record_len(key).is_some() {
                        self.emit(key, out);
                    }
                }
                at = 1;
            }
            for (segment, bytes) in object.segments.range((at - 1) as u32..) {
                if out.len() >= end {
                    return Some(id << 30 | (u64::from(*segment) + 1));
                }
                out.put(record::segment_key(number, *segment), bytes);
            }
            (id, at) = (id + 1, 0);
        }
        None
    }

    fn live(&self) -> Option<Bytes> {
        Some(Bytes(self.live))
    }
}

/// For the mistake of a commit that leaves a record out.
#[cfg(test)]
mod tests {
    use super::Table;

    impl Table {
        /// Takes the last touched key of a kind out.
        pub fn set_aside(&mut self, kind: u64) -> Option<u64> {
            let late = self.touched.keys().copied().rfind(|key| key & 7 == kind);
            self.touched.retain(|key, _| Some(*key) != late);
            late
        }

        /// It is for the next commit.
        pub fn put_back(&mut self, late: Option<u64>) {
            self.touched.extend(late.map(|key| (key, 0)));
        }
    }
}
