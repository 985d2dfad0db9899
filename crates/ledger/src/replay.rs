//! Finding the records again: which batches are there, and is one missing that should not be?
//!
//! ```text
//! tail: batch n, n+1, n+2, ... the first that is not the next in line, whole and of this generation: the head
//!    behind it, a header of a later batch?  -> damage: the missing one was durable
//!    the superblock knows a later batch?    -> damage
//!    neither                                -> the end, or a batch that a crash cut off
//! ```
//!
//! A read that fails is repeated block by block. A block that cannot be read holds no batch: before the head it is
//! damage like any other. At the head it is what a crash left of the batch under way, or a batch that was durable:
//! nothing shows which, so it is reported until the next commit. From when that begins the superblock notes the batch as
//! indeterminate, and the batch no longer counts; the commit begins a generation.
//!
//! Always true:
//! 1. A batch's records are shown only after both of its checksums agreed.
//! 2. A batch of an earlier lap or an earlier format never counts: number, place and generation must agree.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::rc::Rc;

use base::crc::crc32c;
use base::{Buf, Bytes, SECTOR, Sector, Span};
use device::{Class, Device, DeviceError};

use crate::batch::{Record, Records, well_formed};
use crate::error::LedgerError;
use crate::layout::{BLOCK, FAR_SALVAGED, HEADER, Heading, Place, Superblock};
use crate::report::{Loss, Replay, Salvaged, Unreadable};

/// Reads on their way at once; at most 1 MiB each.
const READ_AHEAD: usize = 4;
/// A block that cannot be read is asked for so many times before it counts as lost.
const ATTEMPTS: u32 = 3;
/// The superblock notes the last durable batch at least this often, in blocks (64 MiB). So a header
/// that proves damage is at most this far behind it.
pub(crate) const NOTE_EVERY: u64 = 16 << 10;

/// Where a ledger goes on after replay.
pub(crate) struct Start {
    pub head: Place,
    pub tail: Place,
    /// Bytes of records put: no more than this is live.
    pub put_bytes: u64,
    /// The first commit must leave damage behind.
    pub renew: bool,
    /// What could not be read behind the head.
    pub unreadable: Unreadable,
}

impl Start {
    pub fn empty(at: Place) -> Start {
        Start {
            head: at,
            tail: at,
            put_bytes: 0,
            renew: false,
            unreadable: Unreadable::default(),
        }
    }
}

/// The log on the device.
pub(crate) struct Log {
    pub device: Rc<dyn Device>,
    pub name: String,
    pub region: Span,
    /// First sector of the log.
    pub start: Sector,
    pub blocks: u64,
    /// The longest read in bytes; whole blocks.
    pub piece: usize,
}

impl Log {
    fn sector(&self, position: u64) -> Sector {
        Sector(self.start.0 + position % self.blocks * (BLOCK as u64 / SECTOR))
    }

    fn error(&self, source: DeviceError) -> LedgerError {
        LedgerError::Device {
            device: self.name.clone(),
            doing: "replay",
            region: self.region,
            source: Box::new(source),
        }
    }

    /// Starts to read `blocks` blocks that do not cross the log's end.
    fn read(&self, position: u64, blocks: u64) -> env::Task<Result<Buf, DeviceError>> {
        let device = Rc::clone(&self.device);
        let at = self.sector(position);
        env::spawn(async move {
            let buf = Buf::for_read(blocks as usize * BLOCK);
            device.read(at, buf, Class::Metadata).await
        })
    }

    /// As [`Log::read`] after that failed with `first`: one block at a time, each several times. What cannot be
    /// read is zeroes in the answer; with it the blocks that are.
    ///
    /// # Errors
    /// The device's, if it is gone.
    async fn read_singly(
        &self,
        position: u64,
        blocks: u64,
        first: DeviceError,
    ) -> Result<(Vec<u8>, Vec<u64>), DeviceError> {
        if matches!(first, DeviceError::Gone { .. }) {
            return Err(first);
        }
        let mut bytes = Vec::with_capacity(blocks as usize * BLOCK);
        let mut unreadable = Vec::new();
        for block in position..position + blocks {
            match self.read_block(block).await? {
                Some(read) => bytes.extend_from_slice(&read),
                None => {
                    bytes.resize(bytes.len() + BLOCK, 0);
                    unreadable.push(block);
                }
            }
        }
        Ok((bytes, unreadable))
    }

    /// One block, if one of several attempts can read it.
    async fn read_block(&self, position: u64) -> Result<Option<Buf>, DeviceError> {
        for _ in 0..ATTEMPTS {
            match self.read(position, 1).await {
                Ok(read) => return Ok(Some(read)),
                Err(gone @ DeviceError::Gone { .. }) => return Err(gone),
                Err(_) => {}
            }
        }
        Ok(None)
    }

    /// The longest read from `position` on, up to `end`.
    fn stride(&self, position: u64, end: u64) -> u64 {
        ((self.piece / BLOCK) as u64)
            .min(self.blocks - position % self.blocks)
            .min(end - position)
    }
}

/// A read on its way: from which position, and how many blocks.
struct Flight {
    from: u64,
    blocks: u64,
    task: env::Task<Result<Buf, DeviceError>>,
}

/// The log as one stream of blocks, read ahead.
struct Reader<'a> {
    log: &'a Log,
    /// The next block to ask for, and where to stop.
    next: u64,
    end: u64,
    flights: VecDeque<Flight>,
    /// Blocks that cannot be read, by position.
    unreadable: BTreeSet<u64>,
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
    fn new(log: &'a Log, from: u64) -> Reader<'a> {
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
        let (read, unreadable) = singly.map_err(|source| self.log.error(source))?;
        self.window.extend_from_slice(&read);
        self.readable -= unreadable.len() as u64;
        if !unreadable.is_empty() {
            self.failure = Some(failure);
            self.unreadable.extend(unreadable);
        }
        Ok(())
    }

    /// Not one block could be read: the device is gone, which is no damage to the log.
    fn expect_any(&self) -> Result<(), LedgerError> {
        match &self.failure {
            Some(failure) if self.readable == 0 => Err(self.log.error(failure.clone())),
            _ => Ok(()),
        }
    }

    fn is_unreadable(&self, blocks: Range<u64>) -> bool {
        self.unreadable.range(blocks).next().is_some()
    }

    fn pass(&mut self, blocks: u64) {
        self.at += blocks;
        self.offset += blocks as usize * BLOCK;
    }

    /// Is batch `expected` here, whole?
    async fn batch(
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
    async fn later(
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

    fn records(&self, heading: &Heading) -> Records<'_> {
        let from = self.offset + HEADER;
        Records {
            rest: &self.window[from..from + heading.length as usize],
        }
    }
}

/// What is where a batch should be.
enum Here {
    Whole(Heading),
    /// Its header is, the rest is not.
    Torn(&'static str),
    /// The device could not read it.
    Unreadable(&'static str),
    Not(&'static str),
}

/// Are a batch's records whole and its numbers such as a ledger writes?
fn check(heading: &Heading, body_crc: u32, frame: &[u8], log: u64) -> Result<(), &'static str> {
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

/// Shows the records; returns the bytes put.
fn show(records: Records<'_>, visit: &mut impl FnMut(Record<'_>)) -> u64 {
    let mut put = 0;
    for record in records {
        if let Record::Put { value, .. } = record {
            // A record's head and key take at most 10 bytes.
            put += value.len() as u64 + 10;
        }
        visit(record);
    }
    put
}

/// Shows every record from the tail on to `visit`.
pub(crate) async fn replay(
    log: &Log,
    superblock: &Superblock,
    visit: &mut impl FnMut(Record<'_>),
) -> Result<(Start, Replay), LedgerError> {
    let mut reader = Reader::new(log, superblock.tail.position);
    let mut start = Start::empty(superblock.tail);
    let mut report = Replay::default();
    let mut suspect = false;
    let why = loop {
        match reader.batch(superblock, start.head).await? {
            Here::Whole(heading) => {
                start.put_bytes += show(reader.records(&heading), visit);
                report.batches += 1;
                report.records += u64::from(heading.count);
                report.bytes += Bytes(heading.blocks() * BLOCK as u64);
                // Batches from before the superblock's tail moved there name an older one.
                if heading.tail.position >= start.tail.position {
                    start.tail = heading.tail;
                }
                start.head = Place {
                    sequence: start.head.sequence + 1,
                    position: start.head.position + heading.blocks(),
                };
                reader.pass(heading.blocks());
            }
            Here::Torn(why) => {
                report.torn_tail = true;
                break why;
            }
            Here::Unreadable(why) => {
                (report.torn_tail, suspect) = (true, true);
                break why;
            }
            Here::Not(why) => break why,
        }
    };
    let missing = start.head;
    let damaged = |durable| LedgerError::Damaged {
        device: log.name.clone(),
        sector: log.sector(missing.position),
        sequence: missing.sequence,
        durable,
        why,
    };
    if superblock.durable >= missing.sequence {
        reader.expect_any()?;
        return Err(damaged(superblock.durable));
    }
    report.clean = superblock.clean && superblock.durable + 1 == missing.sequence;
    if report.clean {
        // Nothing was written after the clean mark, so nothing can be missing.
        return Ok((start, report));
    }
    let last = reader.end.min(missing.position + NOTE_EVERY + 1);
    reader.end = last.max(reader.next);
    if let Some(later) = reader.later(superblock, missing, last).await? {
        return Err(damaged(later));
    }
    reader.expect_any()?;
    let positions: Vec<u64> = reader
        .unreadable
        .range(missing.position..)
        .copied()
        .collect();
    if suspect {
        let first = positions.first().copied().unwrap_or(missing.position);
        report.unreadable = positions.len() as u64;
        report.unreadable_at = Some(log.sector(first));
    }
    start.renew = suspect;
    start.unreadable = Unreadable {
        positions,
        doubted: if suspect { missing.sequence } else { 0 },
    };
    Ok((start, report))
}

/// Shows what is readable, wherever the log is damaged, and lists the gaps.
pub(crate) async fn salvage(
    log: &Log,
    superblock: &Superblock,
    visit: &mut impl FnMut(Salvaged<'_>),
) -> Result<(Start, Replay), LedgerError> {
    let (mut headers, unreadable) = headers(log, superblock).await?;
    headers.sort_by_key(|(heading, _)| heading.place.sequence);
    // The newest whole batch knows where the live part begins.
    let mut newest = None;
    for (heading, crc) in headers.iter().rev() {
        if read_batch(log, heading, *crc).await?.is_some() {
            newest = Some(*heading);
            break;
        }
    }
    let tail = newest
        .map(|heading| heading.tail)
        .filter(|tail| tail.position >= superblock.tail.position)
        .unwrap_or(superblock.tail);
    headers.retain(|(heading, _)| {
        let place = heading.place;
        place.sequence >= tail.sequence && place.position < tail.position + log.blocks
    });
    let highest = headers
        .last()
        .map_or(0, |(heading, _)| heading.place.sequence);
    let mut report = Replay::default();
    let mut put_bytes = 0;
    let mut next = tail;
    let mut end = tail.position;
    for (heading, crc) in &headers {
        end = end.max(heading.place.position + heading.blocks());
        let Some(frame) = read_batch(log, heading, *crc).await? else {
            // Only the last can have been cut off; any other was durable.
            report.torn_tail = heading.place.sequence == highest;
            continue;
        };
        if lose(log, &mut report, next, heading.place.sequence) {
            visit(Salvaged::Gap);
        }
        let rest = &frame[HEADER..HEADER + heading.length as usize];
        let mut record = |record: Record<'_>| visit(Salvaged::Record(record));
        put_bytes += show(Records { rest }, &mut record);
        report.batches += 1;
        report.records += u64::from(heading.count);
        report.bytes += Bytes(frame.len() as u64);
        next = Place {
            sequence: heading.place.sequence + 1,
            position: heading.place.position + heading.blocks(),
        };
    }
    let proven = superblock
        .proven()
        .max(highest.saturating_sub(u64::from(report.torn_tail)));
    // Where the next batch would be the device cannot read: it may have been durable.
    let last = headers
        .last()
        .filter(|(heading, _)| heading.place.sequence >= next.sequence);
    let blocks = last.map_or(1, |(heading, _)| heading.blocks());
    let hidden = (next.position..next.position + blocks)
        .any(|position| unreadable.contains(&(position % log.blocks)));
    let until = (proven + 1).max(next.sequence + u64::from(hidden));
    if lose(log, &mut report, next, until) {
        visit(Salvaged::Gap);
    }
    let head = Place {
        sequence: highest.max(superblock.durable) + 1,
        position: end.min(tail.position + log.blocks),
    };
    let start = Start {
        head: if head.sequence < tail.sequence {
            tail
        } else {
            head
        },
        tail,
        put_bytes,
        renew: true,
        unreadable: Unreadable::noted(superblock),
    };
    Ok((start, report))
}

/// Notes the loss of the batches from `from` up to, not including, `until`, if there are any.
fn lose(log: &Log, report: &mut Replay, from: Place, until: u64) -> bool {
    let any = from.sequence < until;
    if any {
        report.losses.push(Loss {
            first: from.sequence,
            last: until - 1,
            sector: log.sector(from.position),
        });
    }
    any
}

/// Whole headers in their right places, with the checksums of what follows them; and blocks that cannot be read.
type Headers = (Vec<(Heading, u32)>, BTreeSet<u64>);

/// Every whole header of the generation.
async fn headers(log: &Log, superblock: &Superblock) -> Result<Headers, LedgerError> {
    let (mut found, mut unreadable) = (Vec::new(), BTreeSet::new());
    let (mut readable, mut failure) = (0u64, None);
    let mut at = 0;
    while at < log.blocks {
        let stride = log.stride(at, log.blocks);
        let mut look = |range: Range<u64>, read: &[u8]| {
            readable += range.end - range.start;
            for (block, index) in read.chunks_exact(BLOCK).zip(range) {
                if let Some((heading, crc)) = Heading::decode(block)
                    && heading.generation == superblock.generation
                    && superblock.counts(heading.place.sequence)
                    && heading.place.position % log.blocks == index
                    && heading.blocks() <= log.blocks
                    && heading.place.sequence.max(heading.place.position) < FAR_SALVAGED
                {
                    found.push((heading, crc));
                }
            }
        };
        match log.read(at, stride).await {
            Ok(read) => look(at..at + stride, &read),
            Err(_) => {
                for one in at..at + stride {
                    match log.read(one, 1).await {
                        Ok(read) => look(one..one + 1, &read),
                        Err(source) => {
                            unreadable.insert(one);
                            failure = Some(source);
                        }
                    }
                }
            }
        }
        at += stride;
    }
    match failure {
        // Not one block: the device is gone, which is no loss of the log's.
        Some(source) if readable == 0 => Err(log.error(source)),
        _ => Ok((found, unreadable)),
    }
}

/// The whole batch with its header, if it can be read and its checksum agrees.
async fn read_batch(
    log: &Log,
    heading: &Heading,
    crc: u32,
) -> Result<Option<Vec<u8>>, LedgerError> {
    let (mut at, end) = (
        heading.place.position,
        heading.place.position + heading.blocks(),
    );
    let mut frame = Vec::with_capacity(heading.blocks() as usize * BLOCK);
    while at < end {
        let stride = log.stride(at, end);
        match log.read(at, stride).await {
            Ok(read) => frame.extend_from_slice(&read),
            Err(failure) => match log.read_singly(at, stride, failure).await {
                Ok((read, lost)) if lost.is_empty() => frame.extend_from_slice(&read),
                _ => return Ok(None),
            },
        }
        at += stride;
    }
    Ok(check(heading, crc, &frame, log.blocks)
        .is_ok()
        .then_some(frame))
}
