//! Which stretches of an object hold data, and since when?

use crate::object::objects::Object;
use crate::object::record::SEGMENTS_MAX;
use crate::object::segment::PAGES;
use crate::object::types::{AllocatedRange, Version};

/// The stretches of `len` bytes from `offset` on, as far as the object reaches; see [`crate::Store::allocated_ranges`].
pub(crate) fn allocated_ranges(
    object: &Object,
    page: u64,
    offset: u64,
    len: u64,
) -> Vec<AllocatedRange> {
    let end = object.size.min(offset.saturating_add(len));
    if offset >= end {
        return Vec::new();
    }
    let mut all: Vec<AllocatedRange> = Vec::new();
    let mut add = |from: u64, to: u64, data: bool, version: u64| {
        let (from, to) = (from.max(offset), to.min(end));
        if from >= to {
            return;
        }
        let version = Version(version);
        if let Some(last) = all.last_mut()
            && last.data == data
            && last.version == version
        {
            last.len += to - from;
            return;
        }
        all.push(AllocatedRange {
            offset: from,
            len: to - from,
            data,
            version,
        });
    };
    // A stretch without a record has been a hole since the object was made, or since it was last cut off.
    let hole = |add: &mut dyn FnMut(u64, u64, bool, u64), from: u64, to: u64| {
        let cut = object.cut_offset.clamp(from, to.max(from));
        add(from, cut, false, object.born);
        add(cut, to, false, object.cut_generation);
    };
    let span = PAGES * page;
    let mut at = offset / span * span;
    let last = end.div_ceil(span).min(SEGMENTS_MAX) as u32;
    for number in object
        .segments
        .range((offset / span) as u32..last)
        .map(|(number, _)| *number)
    {
        let segment = object.segment(number).expect("just listed");
        let start = u64::from(number) * span;
        hole(&mut add, at, start);
        for (place, entry) in segment.entries.iter().enumerate() {
            let from = start + place as u64 * page;
            add(from, from + page, entry.is_some(), segment.version);
        }
        at = start + span;
    }
    hole(&mut add, at, end);
    all
}
