//! Objects become shorter, longer, or get holes: truncate and punch.
//!
//! ```text
//! a step's bounds -> hold its pages -> pages of which a part stays: read, zeroed, written elsewhere
//!   -> one step in memory: whole pages are holes, the size is set -> the next step
//! ```
//!
//! Always true: what a page holds behind the end of its object is zero, so an object that grows shows zeroes there.

use std::ops::Range;
use std::rc::Rc;

use base::Bytes;
use device::Class;

use crate::object::allocate::{Need, Piece, Taken};
use crate::object::error::StoreError;
use crate::object::parts::Parts;
use crate::object::read::Reader;
use crate::object::segment::{Entry, PAGES, SEGMENT_BYTES_MAX};
use crate::object::table::Pages;
use crate::object::target::{Attempt, Target};
use crate::object::types::{Change, Condition, Version};

/// Makes objects shorter, longer and emptier.
pub(crate) struct Cutter(pub Rc<Parts>);

/// What one step does.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Cut {
    /// The object has this size from then on.
    Truncate(u64),
    /// These bytes are a hole.
    Punch(Range<u64>),
}

/// What a step means for the pages of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Plan {
    /// Pages held meanwhile.
    held: Range<u64>,
    /// Pages that become holes as a whole.
    whole: Range<u64>,
    /// Pages of which a part stays, and the bytes that become zero.
    edges: Vec<(u64, Range<u64>)>,
}

impl Plan {
    /// Of a step on an object of `old` bytes.
    fn new(cut: &Cut, old: u64, page: u64) -> Plan {
        let (zeroes, held, cuts) = match cut {
            Cut::Punch(hole) => {
                let held = hole.start / page..hole.end.div_ceil(page);
                (hole.clone(), held, true)
            }
            // All that follows is held, whatever is being added to it.
            Cut::Truncate(size) => {
                let zeroes = *size.min(&old)..old.max(*size);
                let held = zeroes.start / page..u64::MAX;
                (zeroes, held, *size < old)
            }
        };
        // A hole that reaches the end takes the rest of the last page along.
        let to_end = zeroes.end >= old;
        let end = match to_end {
            true => zeroes.end.div_ceil(page),
            false => zeroes.end / page,
        };
        let mut edges: Vec<(u64, Range<u64>)> = Vec::new();
        for at in [zeroes.start / page, zeroes.end / page] {
            let from = at * page;
            let (start, stop) = (zeroes.start.max(from), zeroes.end.min(from + page));
            let whole = start == from && (stop == from + page || to_end);
            let new = edges.last().is_none_or(|(last, _)| *last != at);
            if cuts && start < stop && !whole && new {
                edges.push((at, start..stop));
            }
        }
        Plan {
            held,
            whole: zeroes.start.div_ceil(page)..end,
            edges,
        }
    }
}

impl Cutter {
    /// Sets the object's size; see [`crate::Store::truncate`].
    pub async fn truncate(
        &self,
        name: &str,
        size: u64,
        change: Change,
    ) -> Result<Version, StoreError> {
        let disk = &self.0.disk;
        let size_max = disk.size_max();
        if size > size_max {
            return Err(StoreError::Request {
                what: format!(
                    "set the size of {name:?} in {} to {}",
                    disk.name,
                    Bytes(size)
                ),
                why: format!("an object holds at most {}", Bytes(size_max)),
            });
        }
        let mut change = existing(change);
        loop {
            let target = Target::find(&self.0, name, change)?;
            let to = self.size_after_step(target, size);
            match self.attempt(target, Cut::Truncate(to), change).await? {
                Attempt::Done(version) if to == size => {
                    return self.0.finish(version, change.fua).await;
                }
                Attempt::Done(version) => change = after(change, version),
                Attempt::Again => {}
            }
        }
    }

    /// So far down in this step: the start of the last segment that is still to go after it.
    fn size_after_step(&self, target: Target<'_>, size: u64) -> u64 {
        let segment = PAGES * self.0.disk.page;
        let table = self.0.table.borrow();
        let object = target.object(&table).expect("found just now");
        let keep = size.div_ceil(segment) as u32;
        let mut beyond = object.segments.range(keep..).rev();
        let next = beyond.nth(self.0.disk.segments_at_once());
        next.map_or(size, |(number, _)| {
            ((u64::from(*number) + 1) * segment).max(size)
        })
    }

    /// Makes bytes a hole; see [`crate::Store::punch`].
    pub async fn punch(
        &self,
        name: &str,
        offset: u64,
        len: u64,
        change: Change,
    ) -> Result<Version, StoreError> {
        let disk = &self.0.disk;
        let stretch = disk.segments_at_once() as u64 / 2 * PAGES * disk.page;
        let mut change = existing(change);
        let end = offset.saturating_add(len);
        let mut at = offset;
        loop {
            let target = Target::find(&self.0, name, change)?;
            let size = {
                let table = self.0.table.borrow();
                target.object(&table).map_or(0, |object| object.size)
            };
            let end = end.min(size);
            at = at.min(end);
            let to = stretch_end(at, end, stretch);
            match self.attempt(target, Cut::Punch(at..to), change).await? {
                Attempt::Done(version) if to == end => {
                    return self.0.finish(version, change.fua).await;
                }
                Attempt::Done(version) => {
                    change = after(change, version);
                    at = to;
                }
                Attempt::Again => {}
            }
        }
    }

    /// One step.
    async fn attempt(
        &self,
        target: Target<'_>,
        cut: Cut,
        change: Change,
    ) -> Result<Attempt, StoreError> {
        let parts = &*self.0;
        let size = || {
            let table = parts.table.borrow();
            target.object(&table).map_or(0, |object| object.size)
        };
        let id = target.id().expect("only what is there is cut");
        let old = size();
        let plan = Plan::new(&cut, old, parts.disk.page);
        let _held = parts.locks.acquire(id, plan.held.clone()).await;
        // Others may have made it longer or shorter before the lock was ours.
        if !target.is_same(&parts.table.borrow()) || size() != old {
            return Ok(Attempt::Again);
        }
        let pieces = self.edges(target, &plan, change.class).await?;
        let need = Need {
            pages: pieces.len() as u64,
            growth: 0,
            object: Some(id),
            end: 0,
            reservation: None,
        };
        let mut taken = Taken::wait(parts, need).await?;
        let put = taken.write(target.name, &pieces, change.class).await?;
        let segments = parts.disk.segments_at_once() as u64;
        let charge = need.pages * SEGMENT_BYTES_MAX + 80 + segments * 22;
        let most = parts.disk.superblock.stage_max();
        parts.stage(charge.min(most)).await?;
        let attempt = self.apply(target, &cut, old, &plan, &put, change)?;
        if let Attempt::Done(_) = attempt {
            taken.used = true;
            #[cfg(test)]
            parts.log(match cut {
                Cut::Punch(hole) => crate::tests::Step::punch(target.name, hole, change),
                Cut::Truncate(size) => crate::tests::Step::truncate(target.name, size, change),
            });
        }
        Ok(attempt)
    }

    /// The pages at the edges that hold data, with zeroes where it ends.
    async fn edges(
        &self,
        target: Target<'_>,
        plan: &Plan,
        class: Class,
    ) -> Result<Vec<Piece>, StoreError> {
        let page = self.0.disk.page;
        let mut pieces: Vec<Piece> = Vec::new();
        for (at, range) in &plan.edges {
            let mapped = {
                let table = self.0.table.borrow();
                let object = target.object(&table);
                object.is_some_and(|object| object.entry(*at).is_some())
            };
            if mapped {
                let reader = Reader(&self.0);
                let stays = reader.stays(target.name, target.id(), *at, 0..0, class);
                let mut buf = stays.await?;
                buf[(range.start - at * page) as usize..(range.end - at * page) as usize].fill(0);
                pieces.push((*at, buf.freeze()));
            }
        }
        Ok(pieces)
    }

    /// The step in memory.
    fn apply(
        &self,
        target: Target<'_>,
        cut: &Cut,
        old: u64,
        plan: &Plan,
        put: &[(u64, Entry)],
        change: Change,
    ) -> Result<Attempt, StoreError> {
        let parts = &*self.0;
        parts.usable()?;
        let table = &mut *parts.table.change();
        let Some((id, found)) = table.find(target.name).filter(|_| target.is_same(table)) else {
            return Ok(Attempt::Again);
        };
        let now = found.size;
        if matches!(cut, Cut::Truncate(_)) && now != old {
            return Ok(Attempt::Again);
        }
        parts.holds(target.name, Some(found), change.condition)?;
        let version = parts.next_version();
        let unmap = match cut {
            Cut::Punch(_) if !plan.whole.is_empty() => plan.whole.clone(),
            _ => 0..0,
        };
        let mut released = table.remap(id, version, &Pages { put, unmap });
        let size = match cut {
            Cut::Punch(_) => now,
            Cut::Truncate(size) => *size,
        };
        if size < now {
            // Pages behind the end in the segment that stays, then the segments behind it.
            let keep = size.div_ceil(PAGES * parts.disk.page);
            let first = plan.whole.start;
            let unmap = first..(keep * PAGES).max(first);
            released.extend(table.remap(id, version, &Pages { put: &[], unmap }));
            released.extend(table.drop_segments(id, keep as u32, usize::MAX));
        }
        table.stamp(id, version, change.stamp, size);
        parts.space.change().release(&released);
        parts.commit.note();
        Ok(Attempt::Done(version))
    }
}

/// What is not there is not made.
fn existing(change: Change) -> Change {
    Change {
        create: false,
        ..change
    }
}

/// The change for the next step: on what this one, with `version`, made of the object.
fn after(change: Change, version: u64) -> Change {
    let condition = match change.condition {
        Condition::Version(_) => Condition::Version(Version(version)),
        other => other,
    };
    Change {
        condition,
        ..change
    }
}

/// Where the step of a hole ends that begins at `at`: at the next border of `stretch`, or at `end` before it.
fn stretch_end(at: u64, end: u64, stretch: u64) -> u64 {
    let border = (at / stretch + 1).saturating_mul(stretch);
    border.min(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hole_keeps_the_parts_of_its_first_and_last_page() {
        let plan = Plan::new(&Cut::Punch(10..350), 1000, 100);
        assert_eq!((plan.held, plan.whole), (0..4, 1..3));
        assert_eq!(plan.edges, [(0, 10..100), (3, 300..350)]);
    }

    #[test]
    fn a_hole_to_the_end_takes_the_rest_of_the_last_page_along() {
        let plan = Plan::new(&Cut::Punch(100..350), 350, 100);
        assert_eq!((plan.whole, plan.edges), (1..4, vec![]));
    }

    #[test]
    fn a_hole_within_a_page_is_one_edge() {
        let plan = Plan::new(&Cut::Punch(110..120), 350, 100);
        assert_eq!(plan.edges, [(1, 110..120)]);
        assert!(plan.whole.is_empty());
    }

    #[test]
    fn a_shorter_object_has_zeroes_behind_its_end_and_a_longer_one_needs_none() {
        let plan = Plan::new(&Cut::Truncate(150), 350, 100);
        assert_eq!((plan.held, plan.whole), (1..u64::MAX, 2..4));
        assert_eq!(plan.edges, [(1, 150..200)]);
        let plan = Plan::new(&Cut::Truncate(350), 150, 100);
        assert_eq!((plan.held, plan.edges), (1..u64::MAX, vec![]));
    }
}
