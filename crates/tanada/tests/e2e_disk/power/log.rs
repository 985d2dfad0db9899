//! What reached the two disks of a guest, in which order: the log of dm-log-writes.
//!
//! ```text
//! superblock | entry, its data | entry, its data | ...     one log for one disk: slow part, fast part
//! trace of flushes, in the order of the log                -> which part each was for
//! ```
//!
//! A write is logged when it is complete, with the next flush of either part; a flush stands behind what it covers. An
//! empty flush names no sector, so the kernel's trace of the two parts says whose it was.
//!
//! The format is described in Linux, Documentation/admin-guide/device-mapper/log-writes.rst and drivers/md/dm-log-writes.c.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

/// One of the two disks of a hybrid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Slow,
    Fast,
}

/// Something that happened to the disks. Places are bytes of the disk that has both parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Write { at: u64, data: Vec<u8>, fua: bool },
    Discard { at: u64, len: u64 },
    Flush(Side),
    Mark(u64),
}

/// Size of the slow part; the fast one follows.
pub const SLOW: u64 = 16 << 20;
pub const FAST: u64 = 8 << 20;

const MAGIC: u64 = 0x006a_7366_7773_6872;
const VERSION: u64 = 1;
const FLUSH: u64 = 1;
const FUA: u64 = 2;
const DISCARD: u64 = 4;
const MARK: u64 = 8;
/// Sectors of one entry, at most: more is no log.
const SECTORS_MAX: u64 = (SLOW + FAST) / 512;

/// The part that byte `at` belongs to.
pub fn side(at: u64) -> Side {
    if at < SLOW { Side::Slow } else { Side::Fast }
}

/// Reads the log in `log`, and whose its flushes were from `trace`, where the parts are called `slow` and `fast` ("253,1").
///
/// # Errors
/// What is not as the kernel writes it; a flush that one of the two has and the other has not.
pub fn read(log: &Path, trace: &str, slow: &str, fast: &str) -> Result<Vec<Event>, String> {
    let file = File::open(log).map_err(|error| format!("{}: {error}", log.display()))?;
    let mut flushes = flushes(trace, slow, fast).into_iter();
    let events = parse(&mut BufReader::new(file), &mut flushes)?;
    match flushes.count() {
        0 => Ok(events),
        more => Err(format!("the trace has {more} flushes that the log has not")),
    }
}

/// The parts whose flushes `trace` holds, in its order.
fn flushes(trace: &str, slow: &str, fast: &str) -> Vec<Side> {
    let owner = |line: &str| {
        let (_, event) = line.split_once("block_bio_complete: ")?;
        let (device, event) = event.split_once(' ')?;
        if !event.starts_with('F') {
            return None;
        }
        match device {
            device if device == slow => Some(Side::Slow),
            device if device == fast => Some(Side::Fast),
            _ => None,
        }
    };
    trace.lines().filter_map(owner).collect()
}

fn parse(
    input: &mut impl Read,
    flushes: &mut impl Iterator<Item = Side>,
) -> Result<Vec<Event>, String> {
    let head = take(input, 512)?;
    let (magic, version, entries) = (number(&head, 0), number(&head, 8), number(&head, 16));
    let sector = u32::from_le_bytes(head[24..28].try_into().expect("four bytes"));
    if (magic, version, sector) != (MAGIC, VERSION, 512) {
        return Err(format!(
            "no log of dm-log-writes: magic {magic:#x}, version {version}, sectors of {sector} bytes"
        ));
    }
    let mut events = Vec::new();
    for index in 0..entries {
        let event = entry(input, flushes).map_err(|why| format!("entry {index}: {why}"))?;
        events.extend(event);
    }
    Ok(events)
}

/// The next entry; `None` if it is a mark of the kernel's.
fn entry(
    input: &mut impl Read,
    flushes: &mut impl Iterator<Item = Side>,
) -> Result<Option<Event>, String> {
    let head = take(input, 512)?;
    let (at, sectors) = (number(&head, 0) * 512, number(&head, 8));
    let (flags, mark_len) = (number(&head, 16), number(&head, 24) as usize);
    if sectors > SECTORS_MAX || mark_len > 480 {
        return Err(format!("{sectors} sectors, a mark of {mark_len} bytes"));
    }
    let event = match flags {
        FLUSH if sectors == 0 => {
            let side = flushes.next();
            Event::Flush(side.ok_or("a flush that the trace has not")?)
        }
        0 | FUA => Event::Write {
            at,
            data: take(input, sectors as usize * 512)?,
            fua: flags == FUA,
        },
        DISCARD => Event::Discard {
            at,
            len: sectors * 512,
        },
        MARK => {
            let text = String::from_utf8_lossy(&head[32..32 + mark_len]);
            let number = text.trim_end_matches('\0').parse();
            return Ok(number.ok().map(Event::Mark));
        }
        _ => return Err(format!("flags {flags:#x}, {sectors} sectors")),
    };
    Ok(Some(event))
}

fn take(input: &mut impl Read, count: usize) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0; count];
    input
        .read_exact(&mut bytes)
        .map_err(|error| format!("{count} bytes: {error}"))?;
    Ok(bytes)
}

fn number(bytes: &[u8], from: usize) -> u64 {
    u64::from_le_bytes(bytes[from..from + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sector(numbers: &[u64], text: &str) -> Vec<u8> {
        let mut bytes: Vec<u8> = numbers.iter().flat_map(|it| it.to_le_bytes()).collect();
        bytes.extend(text.as_bytes());
        bytes.resize(512, 0);
        bytes
    }

    #[test]
    fn a_log_is_read_as_the_kernel_writes_it() {
        let log = [
            sector(&[MAGIC, VERSION, 6, 512], ""),
            sector(&[8, 1, 0, 0], ""),
            vec![7; 512],
            sector(&[0, 0, FLUSH, 0], ""),
            sector(&[SLOW / 512, 1, FUA, 0], ""),
            vec![9; 512],
            sector(&[16, 2, DISCARD, 0], ""),
            sector(&[0, 0, MARK, 2], "12"),
            sector(&[0, 0, MARK, 17], "dm-log-writes-end"),
        ]
        .concat();
        let trace = "# tracer: nop\nblock_bio_complete: 253,0 FWS 0 + 0 [0]\nblock_bio_complete: 253,1 FWS 0 + 0 [0]\n\
                     block_bio_complete: 253,2 WFS 0 + 1 [0]\n";
        let owners = flushes(trace, "253,1", "253,2");
        let events = parse(&mut &log[..], &mut owners.into_iter());
        let write = |at, byte, fua| Event::Write {
            at,
            data: vec![byte; 512],
            fua,
        };
        let expected = vec![
            write(4096, 7, false),
            Event::Flush(Side::Slow),
            write(SLOW, 9, true),
            Event::Discard {
                at: 8192,
                len: 1024,
            },
            Event::Mark(12),
        ];
        assert_eq!(events, Ok(expected));
        let refused = parse(&mut &log[..], &mut std::iter::empty());
        assert_eq!(
            refused,
            Err("entry 1: a flush that the trace has not".to_owned())
        );
    }
}
