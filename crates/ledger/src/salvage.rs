//! What is readable of a damaged log, wherever the damage is, and where batches are missing.
//!
//! ```text
//! every whole header of the generation -> by number -> batches whose checksums agree, from the live tail on -> records, gaps
//! ```
//!
//! Always true: a batch of an earlier lap or an earlier format never counts: number, place and generation must agree.

use std::collections::BTreeSet;
use std::ops::Range;

use base::Bytes;

use crate::batch::{Record, Records};
use crate::error::LedgerError;
use crate::layout::{BLOCK, FAR_SALVAGED, HEADER, Heading, Place, Superblock};
use crate::log::Log;
use crate::reader::check;
use crate::replay::{Start, show};
use crate::report::{Loss, Replay, Salvaged, Unreadable};

/// Shows what is readable, wherever the log is damaged, and lists the gaps.
pub(crate) async fn salvage(
    log: &Log,
    superblock: &Superblock,
    visit: &mut impl FnMut(Salvaged<'_>),
) -> Result<(Start, Replay), LedgerError> {
    let (mut headers, unreadable) = headers(log, superblock).await?;
    headers.sort_by_key(|(heading, _)| heading.place.sequence);
    let tail = tail(log, superblock, &headers).await?;
    headers.retain(|(heading, _)| {
        let place = heading.place;
        place.sequence >= tail.sequence && place.position < tail.position + log.blocks
    });
    let highest = headers
        .last()
        .map_or(0, |(heading, _)| heading.place.sequence);
    let (mut report, shown) = show_whole(log, &headers, tail, visit).await?;
    let proven = superblock
        .proven()
        .max(highest.saturating_sub(u64::from(report.torn_tail)));
    let hidden = is_hidden(log, shown.next, &headers, &unreadable);
    let until = (proven + 1).max(shown.next.sequence + u64::from(hidden));
    if lose(log, &mut report, shown.next, until) {
        visit(Salvaged::Gap);
    }
    let head = Place {
        sequence: highest.max(superblock.durable) + 1,
        position: shown.end.min(tail.position + log.blocks),
    };
    let start = Start {
        head: if head.sequence < tail.sequence {
            tail
        } else {
            head
        },
        tail,
        put_bytes: shown.put_bytes,
        renew: true,
        unreadable: Unreadable::noted(superblock),
    };
    Ok((start, report))
}

/// How far the whole batches go.
struct Shown {
    /// Behind the last whole one.
    next: Place,
    /// Position behind the last one, whole or not.
    end: u64,
    put_bytes: u64,
}

/// Shows the whole batches from the tail on, by their headers in order, and the gaps between them.
async fn show_whole(
    log: &Log,
    headers: &[(Heading, u32)],
    tail: Place,
    visit: &mut impl FnMut(Salvaged<'_>),
) -> Result<(Replay, Shown), LedgerError> {
    let mut report = Replay::default();
    let mut shown = Shown {
        next: tail,
        end: tail.position,
        put_bytes: 0,
    };
    let highest = headers.last().map(|(heading, _)| heading.place.sequence);
    for (heading, crc) in headers {
        let end = heading.place.position + heading.blocks();
        shown.end = shown.end.max(end);
        let Some(frame) = read_batch(log, heading, *crc).await? else {
            // Only the last can have been cut off; any other was durable.
            report.torn_tail = Some(heading.place.sequence) == highest;
            continue;
        };
        if lose(log, &mut report, shown.next, heading.place.sequence) {
            visit(Salvaged::Gap);
        }
        let rest = &frame[HEADER..HEADER + heading.length as usize];
        let mut record = |record: Record<'_>| visit(Salvaged::Record(record));
        shown.put_bytes += show(Records { rest }, &mut record);
        report.batches += 1;
        report.records += u64::from(heading.count);
        report.bytes += Bytes(frame.len() as u64);
        shown.next = Place {
            sequence: heading.place.sequence + 1,
            position: end,
        };
    }
    Ok((report, shown))
}

/// Where the live part begins: the newest whole batch knows.
async fn tail(
    log: &Log,
    superblock: &Superblock,
    headers: &[(Heading, u32)],
) -> Result<Place, LedgerError> {
    for (heading, crc) in headers.iter().rev() {
        if read_batch(log, heading, *crc).await?.is_some() {
            let found = Some(heading.tail);
            let later = found.filter(|tail| tail.position >= superblock.tail.position);
            return Ok(later.unwrap_or(superblock.tail));
        }
    }
    Ok(superblock.tail)
}

/// Is there a block that the device cannot read where the `next` batch would be? That may have been durable.
fn is_hidden(
    log: &Log,
    next: Place,
    headers: &[(Heading, u32)],
    unreadable: &BTreeSet<u64>,
) -> bool {
    let last = headers
        .last()
        .filter(|(heading, _)| heading.place.sequence >= next.sequence);
    let blocks = last.map_or(1, |(heading, _)| heading.blocks());
    (next.position..next.position + blocks)
        .any(|position| unreadable.contains(&(position % log.blocks)))
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
        Some(source) if readable == 0 => Err(log.error("replay", source)),
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
