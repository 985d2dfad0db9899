//! The log as one stream of blocks, read ahead: is the batch that should come next here?
//!
//! A read that fails is repeated block by block. A block that cannot be read holds no batch.
//!
//! Always true: a batch counts as whole only after both of its checksums agreed.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

use base::Buf;
use base::crc::crc32c;
use device::DeviceError;

use crate::batch::{Records, well_formed};
use crate::error::LedgerError;
use crate::layout::{BLOCK, HEADER, Heading, Place, Superblock};
use crate::log::Log;

/// Reads on their way at once; at most 1 MiB each.
const READ_AHEAD: usize = 4;

/// A read on its way: from which position, and how many blocks.
struct Flight {
    from: u64,
    blocks: u64,
    task: env::Task<Result<Buf, DeviceError>>,
}

/// The log as one stream of blocks, read ahead.
pub(crate) struct Reader<'a> {
    log: &'a Log,
    /// The next block to ask for, and where to stop.
    pub next: u64,
    pub end: u64,
    flights: VecDeque<Flight>,
    /// Blocks that cannot be read, by position.
    pub unreadable: BTreeSet<u64>,
    /// What the device said of the last of them.
    failure: Option<DeviceError>,
    /// Blocks that were read.
    readable: u64,
    /// Blocks read and not passed: `window[offset..]` begins with block `at`.
    window: Vec<u8>,
    offset: usize,
    at: u64,
}

impl<'a> Reader<'a> {
    pub fn new(log: &'a Log, from: u64) -> Reader<'a> {
        Reader {
            log,
            next: from,
            end: from + log.blocks,
            flights: VecDeque::new(),
            unreadable: BTreeSet::new(),
            failure: None,
            readable: 0,
            window: Vec::new(),
            offset: 0,
            at: from,
        }
    }

    /// Waits until the window holds `blocks` blocks; false if the log does not go that far.
    async fn have(&mut self, blocks: u64) -> Result<bool, LedgerError> {
        if blocks > self.end - self.at {
            return Ok(false);
        }
        while self.window.len() - self.offset < blocks as usize * BLOCK {
            while self.flights.len() < READ_AHEAD && self.next < self.end {
                let blocks = self.log.stride(self.next, self.end);
                self.flights.push_back(Flight {
                    from: self.next,
                    blocks,
                    task: self.log.read(self.next, blocks),
                });
                self.next += blocks;
            }
            let Some(flight) = self.flights.pop_front() else {
                return Ok(false);
            };
            self.land(flight).await?;
        }
        Ok(true)
    }

    /// Waits for a read and appends its data to the window.
    async fn land(&mut self, flight: Flight) -> Result<(), LedgerError> {
        let Flight { from, blocks, task } = flight;
        self.window.drain(..self.offset);
        self.offset = 0;
        self.readable += blocks;
        let failure = match task.await {
            Ok(read) => {
                self.window.extend_from_slice(&read);
                return Ok(());
            }
            Err(failure) => failure,
        };
        let singly = self.log.read_singly(from, blocks, failure.clone()).await;
        let (read, unreadable) = singly.map_err(|source| self.log.error("replay", source))?;
        self.window.extend_from_slice(&read);
        self.readable -= unreadable.len() as u64;
        if !unreadable.is_empty() {
            self.failure = Some(failure);
            self.unreadable.extend(unreadable);
        }
        Ok(())
    }

    /// Not one block could be read: the device is gone, which is no damage to the log.
    pub fn expect_any(&self) -> Result<(), LedgerError> {
        match &self.failure {
            Some(failure) if self.readable == 0 => Err(self.log.error("replay", failure.clone())),
            _ => Ok(()),
        }
    }

    fn is_unreadable(&self, blocks: Range<u64>) -> bool {
        self.unreadable.range(blocks).next().is_some()
    }

    pub fn pass(&mut self, blocks: u64) {
        self.at += blocks;
        self.offset += blocks as usize * BLOCK;
    }

    /// Is batch `expected` here, whole?
    pub async fn batch(
        &mut self,
        superblock: &Superblock,
        expected: Place,
    ) -> Result<Here, LedgerError> {
        // An opening went on without it. What is there now may be what that could not read.
        if superblock.doubted == expected.sequence {
            return Ok(Here::Unreadable("it was indeterminate"));
        }
        if !self.have(1).await? {
            return Ok(Here::Not("the log ends there"));
        }
        if self.is_unreadable(self.at..self.at + 1) {
            return Ok(Here::Unreadable("the device cannot read it"));
        }
        let Some((heading, body_crc)) = Heading::decode(&self.window[self.offset..]) else {
            return Ok(Here::Not("there is no whole header"));
        };
        if heading.generation != superblock.generation || heading.place != expected {
            return Ok(Here::Not("another batch is there"));
        }
        if !self.have(heading.blocks()).await? {
            return Ok(Here::Torn("it is longer than the log"));
        }
        if self.is_unreadable(self.at..self.at + heading.blocks()) {
            return Ok(Here::Unreadable("the device cannot read all of it"));
        }
        let frame = &self.window[self.offset..self.offset + heading.blocks() as usize * BLOCK];
        Ok(match check(&heading, body_crc, frame, self.log.blocks) {
            Ok(()) => Here::Whole(heading),
            Err(why) => Here::Torn(why),
        })
    }

    /// Looks up to block `last` for a whole header of a batch behind `missing`, which proves that that was durable.
    pub async fn later(
        &mut self,
        superblock: &Superblock,
        missing: Place,
        last: u64,
    ) -> Result<Option<u64>, LedgerError> {
        // What was behind a doubted batch proves nothing: it does not count either.
        let proves = superblock.doubted != missing.sequence;
        while self.at + 1 < last && self.have(2).await? {
            self.pass(1);
            if let Some((heading, _)) = Heading::decode(&self.window[self.offset..])
                && proves
                && heading.generation == superblock.generation
                && heading.place.position == self.at
                && heading.place.sequence > missing.sequence
            {
                return Ok(Some(heading.place.sequence));
            }
        }
        Ok(None)
    }

    pub fn records(&self, heading: &Heading) -> Records<'_> {
        let from = self.offset + HEADER;
        Records {
            rest: &self.window[from..from + heading.length as usize],
        }
    }
}

/// What is where a batch should be.
pub(crate) enum Here {
    Whole(Heading),
    /// Its header is, the rest is not.
    Torn(&'static str),
    /// The device could not read it.
    Unreadable(&'static str),
    Not(&'static str),
}

/// Are a batch's records whole and its numbers such as a ledger writes?
pub(crate) fn check(
    heading: &Heading,
    body_crc: u32,
    frame: &[u8],
    log: u64,
) -> Result<(), &'static str> {
    if crc32c(&frame[HEADER..]) != body_crc {
        return Err("its checksum is wrong");
    }
    let (place, tail) = (heading.place, heading.tail);
    let sound = tail.sequence >= 1
        && tail.sequence <= place.sequence
        && tail.position <= place.position
        && place.position - tail.position + heading.blocks() <= log;
    let records = &frame[HEADER..HEADER + heading.length as usize];
    if !sound || !well_formed(records, heading.count) {
        return Err("it holds what no ledger writes");
    }
    Ok(())
}
