//! Where the log stands on its device: head, tail, and what of it a batch moves.
//!
//! ```text
//! entries at the head of the queue -> frame: one batch as it goes to the device -> durable: head and tail move
//! ```

use std::collections::VecDeque;

use base::Buf;

use crate::layout::{BLOCK, HEADER, Heading, Place, blocks_for};
use crate::queue::Entry;
use crate::replay::Start;
use crate::report::Unreadable;

/// A batch as it goes to the device.
pub(crate) struct Frame {
    pub at: Place,
    pub data: Buf,
    /// Entries in it.
    pub entries: usize,
    /// The tail once it is durable.
    pub tail: Place,
    /// A sweep ends in it.
    pub ends: bool,
    /// Of its header. A new one counts once the superblocks name it, which they do before any commit is answered.
    pub generation: u64,
    pub renews: bool,
    pub records: u64,
    pub swept: u64,
    /// Blocks that its entries would take apart and do not take together.
    pub saved: u64,
}

impl Frame {
    /// Blocks it takes.
    pub fn blocks(&self) -> u64 {
        (self.data.len() / BLOCK) as u64
    }

    /// Position behind its last block.
    pub fn end(&self) -> u64 {
        self.at.position + self.blocks()
    }
}

/// See the module's head.
pub(crate) struct Track {
    pub head: Place,
    pub tail: Place,
    /// The last durable batch.
    pub durable: u64,
    /// Where the sweeps under way or ended in the queue began on the device.
    starts: VecDeque<(u64, Place)>,
    /// What replay could not read behind the head; written over before the next batch.
    pub unreadable: Unreadable,
}

impl Track {
    pub fn new(start: Start) -> Track {
        Track {
            head: start.head,
            tail: start.tail,
            durable: start.head.sequence - 1,
            starts: VecDeque::new(),
            unreadable: start.unreadable,
        }
    }

    /// Blocks between tail and head.
    pub fn used(&self) -> u64 {
        self.head.position - self.tail.position
    }

    /// The indeterminate batch; 0: none any more.
    pub fn indeterminate(&self) -> u64 {
        match self.unreadable.doubted > self.durable {
            true => self.unreadable.doubted,
            false => 0,
        }
    }

    /// The next batch: these entries one behind the other, with `generation` in its header.
    pub fn frame<'a>(
        &mut self,
        entries: impl Iterator<Item = &'a Entry> + Clone,
        generation: u64,
    ) -> Frame {
        let length = entries.clone().map(|entry| entry.batch.bytes.len()).sum();
        let mut data = Buf::for_read(blocks_for(length) as usize * BLOCK);
        let (mut many, mut count, mut swept, mut apart, mut from) = (0, 0, 0, 0, HEADER);
        for entry in entries.clone() {
            let bytes = &entry.batch.bytes;
            data[from..from + bytes.len()].copy_from_slice(bytes);
            from += bytes.len();
            many += 1;
            count += entry.batch.count;
            swept += entry.swept;
            apart += entry.blocks;
        }
        data[from..].fill(0);
        let renews = entries.clone().next().is_some_and(|entry| entry.renews);
        let (tail, ends) = self.tail_after(entries);
        let heading = Heading {
            generation,
            place: self.head,
            tail,
            length: length as u32,
            count,
            swept,
        };
        heading.seal(&mut data);
        Frame {
            at: self.head,
            entries: many,
            tail,
            ends,
            generation,
            renews,
            records: u64::from(count - swept),
            swept: u64::from(swept),
            saved: apart - heading.blocks(),
            data,
        }
    }

    /// The tail once these entries are durable at the head, and whether a sweep ends with them.
    fn tail_after<'a>(&mut self, entries: impl Iterator<Item = &'a Entry>) -> (Place, bool) {
        let (mut tail, mut ends) = (self.tail, false);
        for entry in entries {
            if entry.starts {
                self.starts.push_back((entry.epoch, self.head));
            }
            if entry.ends {
                ends = true;
                let start = self.starts.iter().find(|(epoch, _)| *epoch == entry.epoch);
                tail = start.map_or(tail, |(_, start)| *start);
            }
        }
        self.starts
            .retain(|(_, start)| start.position >= tail.position);
        (tail, ends)
    }

    /// The frame, which ends at block `end`, is durable.
    pub fn landed(&mut self, frame: &Frame, end: u64) {
        self.head = Place {
            sequence: frame.at.sequence + 1,
            position: end,
        };
        self.durable = frame.at.sequence;
        self.tail = frame.tail;
    }
}
