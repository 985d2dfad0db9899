//! Which parts of a read can one request of the fast device bring?
//!
//! ```text
//! slots of the parts, in order:   5 6 7 . 9 10          40 41
//!                                 '-request-'           '-request-'
//!                                       slot 8 is read too, into scrap
//! ```
//!
//! A request of the fast device costs more than the bytes of a few slots. So parts in neighbouring slots are one
//! request, wherever their pages lie in the user's, and so are parts with a short gap between them.
//!
//! Always true: what lies in a gap is neither checked nor given out, and no gap makes a read fail.

use std::rc::Rc;

use base::{Buf, PAGE};
use device::{Class, DeviceError};
use env::sync::join_all;

use super::parts::{Part, Source, read_part};
use crate::cache::Cache;

/// Slots of a gap that is read through, at most.
const GAP_MAX: u32 = 8;
/// At most one slot in so many of a request lies in a gap.
const GAPS_SHARE: u32 = 4;

/// Parts that are read with one request, by their number. Those of several lie in slots, in this order.
#[derive(Debug)]
struct Batch {
    parts: Vec<usize>,
    /// Slots between them.
    gaps: u32,
}

impl Batch {
    fn one(number: usize) -> Batch {
        Batch {
            parts: vec![number],
            gaps: 0,
        }
    }
}

/// The slots that a request of the fast device covers so far.
struct Run {
    first: u32,
    slots: u32,
    batch: Batch,
}

impl Run {
    /// Takes part `number`, in `count` slots from `slot` on, if one request of at most `slots_max` slots may cover it too.
    fn takes(&mut self, number: usize, slot: u32, count: u32, slots_max: u32) -> bool {
        let gap = slot - (self.first + self.slots);
        let (slots, gaps) = (self.slots + gap + count, self.batch.gaps + gap);
        let takes = gap <= GAP_MAX && gaps * GAPS_SHARE <= slots && slots <= slots_max;
        if takes {
            (self.slots, self.batch.gaps) = (slots, gaps);
            self.batch.parts.push(number);
        }
        takes
    }
}

/// Puts `parts` into requests of at most `io_max` bytes.
fn batches(parts: &[Part], io_max: usize) -> Vec<Batch> {
    let mut batches = Vec::with_capacity(parts.len());
    let mut fast = Vec::with_capacity(parts.len());
    for (number, part) in parts.iter().enumerate() {
        match part.source {
            Source::Fast(slot) => fast.push((slot, number)),
            _ => batches.push(Batch::one(number)),
        }
    }
    fast.sort_unstable();
    let mut run: Option<Run> = None;
    for (first, number) in fast {
        let slots = (parts[number].len / PAGE) as u32;
        let slots_max = (io_max / PAGE) as u32;
        let takes = |run: &mut Run| run.takes(number, first, slots, slots_max);
        if run.as_mut().is_some_and(takes) {
            continue;
        }
        let next = Run {
            first,
            slots,
            batch: Batch::one(number),
        };
        batches.extend(run.replace(next).map(|run| run.batch));
    }
    batches.extend(run.map(|run| run.batch));
    batches
}

/// Reads all parts at once, each into its piece of `buf`.
pub(super) async fn read_parts(
    cache: &Rc<Cache>,
    parts: &[Part],
    buf: Buf,
    class: Class,
) -> Result<Buf, DeviceError> {
    let len = buf.len();
    let batches = batches(parts, cache.fast.io_max);
    match read_batches(cache, parts, &batches, buf, class).await {
        // It may be a slot in a gap that cannot be read.
        Err(error) if cache.fast.is_own(&error) && batches.iter().any(|batch| batch.gaps > 0) => {
            let alone: Vec<Batch> = (0..parts.len()).map(Batch::one).collect();
            read_batches(cache, parts, &alone, Buf::for_read(len), class).await
        }
        answer => answer,
    }
}

async fn read_batches(
    cache: &Rc<Cache>,
    parts: &[Part],
    batches: &[Batch],
    mut buf: Buf,
    class: Class,
) -> Result<Buf, DeviceError> {
    let mut pieces = Vec::with_capacity(parts.len());
    for part in parts {
        let rest = buf.split_off(part.len);
        pieces.push(Some(std::mem::replace(&mut buf, rest)));
    }
    let mut reads = Vec::with_capacity(batches.len());
    for batch in batches {
        let bufs = batch.parts.iter().map(|number| pieces[*number].take());
        let bufs = bufs.map(|buf| buf.expect("a part is in one batch"));
        reads.push(read_batch(cache, parts, batch, bufs.collect(), class));
    }
    for (batch, answer) in batches.iter().zip(join_all(reads).await) {
        for (number, buf) in batch.parts.iter().zip(answer?) {
            pieces[*number] = Some(buf);
        }
    }
    let mut pieces = pieces.into_iter().flatten();
    let mut whole = pieces.next().expect("a request has at least one part");
    pieces.for_each(|piece| whole.join(piece));
    Ok(whole)
}

async fn read_batch(
    cache: &Rc<Cache>,
    parts: &[Part],
    batch: &Batch,
    mut bufs: Vec<Buf>,
    class: Class,
) -> Result<Vec<Buf>, DeviceError> {
    if let [only] = batch.parts.as_slice() {
        let buf = bufs.pop().expect("one buffer a part");
        let buf = read_part(cache, parts[*only], buf, class).await?;
        bufs.push(buf);
        return Ok(bufs);
    }
    let slots = batch
        .parts
        .iter()
        .map(|number| match parts[*number].source {
            Source::Fast(slot) => slot,
            _ => unreachable!("only parts in slots share a request"),
        });
    let pieces = slots.zip(bufs).collect();
    let index = &cache.state.index;
    cache.fast.read_pieces(pieces, class, index).await
}

#[cfg(test)]
mod tests {
    use base::{Bytes, Sector, Span, View};
    use device::fault::{Book, Done, Injury, Rule};
    use device::{Device, DeviceExt, Memory, Op, WriteFlags};

    use super::*;
    use crate::{Hybrid, Settings, Ties};

    /// Page 4 of eight is written anew; its first slot, in the gap that it left, cannot be read any more.
    #[test]
    fn a_slot_in_a_gap_that_cannot_be_read_fails_no_request() {
        env::Runtime::simulated(1).block_on(async {
            let book = Book::new(env::rng("faults"));
            let slow = Memory::new("hdd0", Bytes::mib(16));
            let fast = book.wrap(Memory::new("ssd0", Bytes::mib(4)));
            let made = Hybrid::create(Settings::default(), slow, fast, Ties::default()).await;
            let disk = made.unwrap();
            let write = async |page: u64, pages: usize, fill: u8| {
                let data = View::copy_of(&vec![fill; pages * PAGE]);
                let at = Sector::containing(page * PAGE as u64);
                disk.write(at, data, WriteFlags::default()).await.unwrap();
            };
            write(0, 8, 1).await;
            let cache = disk.engine.live_cache().unwrap();
            let left = cache.state.map().find(4).unwrap();
            write(100, 20, 2).await;
            write(4, 1, 3).await;
            let start = cache.health.label.borrow().slots_start;
            let bad = Span::bytes(start + u64::from(left) * PAGE as u64, PAGE as u64);
            let fails = Rule::new(Injury::Error(Done::Nothing)).on(&[Op::Read]);
            book.add(fails.within(bad).device("ssd0"));
            let read = disk
                .read_at(Sector(0), Bytes(8 * PAGE as u64))
                .await
                .unwrap();
            let fills: Vec<u8> = read.chunks(PAGE).map(|page| page[0]).collect();
            assert_eq!(fills, [1, 1, 1, 1, 3, 1, 1, 1]);
            assert_eq!(
                disk.status().occupancy.dirty_bytes,
                28 * PAGE as u64,
                "none is lost"
            );
        });
    }

    fn fast(slot: u32, slots: usize) -> Part {
        Part {
            at: 0,
            len: slots * PAGE,
            source: Source::Fast(slot),
        }
    }

    fn slow() -> Part {
        Part {
            at: 0,
            len: PAGE,
            source: Source::Slow,
        }
    }

    #[track_caller]
    fn check(parts: &[Part], slots_max: usize, expected: &[&[usize]]) {
        let found = batches(parts, slots_max * PAGE);
        let found: Vec<&[usize]> = found.iter().map(|batch| batch.parts.as_slice()).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn neighbouring_slots_are_one_request_in_whatever_order_their_pages_lie() {
        check(&[fast(7, 1), fast(4, 3), fast(8, 2)], 256, &[&[1, 0, 2]]);
        check(&[fast(7, 1), slow(), fast(4, 3)], 256, &[&[1], &[2, 0]]);
    }

    #[test]
    fn a_gap_is_read_through_while_it_is_short_and_a_small_part() {
        // 8 of 32 slots in the gap, then 9 of 36, then 8 of 31.
        check(&[fast(0, 12), fast(20, 12)], 256, &[&[0, 1]]);
        check(&[fast(0, 14), fast(23, 13)], 256, &[&[0], &[1]]);
        check(&[fast(0, 12), fast(20, 11)], 256, &[&[0], &[1]]);
        // Gaps add up: 1 of 4 slots, then 2 of 6.
        check(&[fast(0, 2), fast(3, 1), fast(5, 1)], 256, &[&[0, 1], &[2]]);
    }

    #[test]
    fn a_request_is_no_longer_than_the_device_takes() {
        check(&[fast(0, 3), fast(3, 3), fast(6, 2)], 6, &[&[0, 1], &[2]]);
    }
}
