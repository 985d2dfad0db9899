//! Traces of HP Labs (SRT): the disks of HP-UX machines, 1992 and later (hplajw, snake, cello).
//!
//! ```text
//! "$$TR_IOREC-1.3 ..."  text: what was traced, and of every disk its geometry, closed by a form feed (0x0c)
//! record, record, ...   big-endian words of 32 bits:
//!    0 length of this record in bytes, this word included
//!    1 version of the record in the upper half (1 to 4), its type in the lower (1: an I/O)
//!    2 seconds          3 microseconds     when the request was queued, since the trace began
//!    4 microseconds until the disk started 5 microseconds until it was done
//!    6 length of the request in bytes      7 first block, in sectors of the disk
//!    8 device: disk in bits 8 to 15, section in the lower 8
//!    9 type of the driver                 10 cylinder
//!   11 flags: bit 0 set for a read        12 more about it
//!   13 requests waiting (version 4 only)
//! ```
//!
//! A record of another type (4: an I/O whose figures are suspect; long I/O, text, file system calls) is passed
//! over by its length. The size of a sector is said in the header for each disk (`sectorsize`, 256 bytes on
//! hplajw). Layout: the `hpl` reader of DiskSim, which was written with the traces' makers.

use base::{Bytes, Map};
use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::records::{RecordParser, Resume, place, time};
use super::sink::Sink;
use super::{Format, Op, Reason, Request, TraceError};

/// What the header must begin with; the digits behind it are the version.
pub(super) const MAGIC: &[u8] = b"$$TR_IOREC";

/// Ends the header, which has to lie in the first block of the file.
const FORM_FEED: u8 = 0x0c;

/// The size of a sector where a header says nothing of it.
const SECTOR_DEFAULT: u64 = 512;

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Record {
    len: U32,
    id: U32,
    at_s: U32,
    at_us: U32,
    _started_us: U32,
    _done_us: U32,
    bytes: U32,
    block: U32,
    device: U32,
    _driver: U32,
    _cylinder: U32,
    flags: U32,
    _more: U32,
}

/// The least a record may take.
const RECORD_MIN: usize = size_of::<Record>();
/// The most a record may take: those of file system calls hold a path.
const RECORD_MAX: usize = 1 << 16;

/// The types of records; all others up to [`TYPE_MAX`] are passed over.
const SHORT_IO: u32 = 1;
const TYPE_MAX: u32 = 10;

/// The length of the record that begins with these four bytes.
///
/// # Errors
/// If it is none: where the next one begins is not known then.
fn record_len(start: [u8; 4]) -> Result<usize, Reason> {
    let len = u32::from_be_bytes(start) as usize;
    if !(RECORD_MIN..=RECORD_MAX).contains(&len) || !len.is_multiple_of(4) {
        return Err(Reason::Other(format!(
            "a record said to be {len} bytes long; they take {RECORD_MIN} to {RECORD_MAX}, a multiple of 4"
        )));
    }
    Ok(len)
}

/// What a record asks of a disk; `None` if it is not an I/O.
fn parse(header: &Header, record: &[u8]) -> Result<Option<Request>, Reason> {
    let (record, _) = Record::ref_from_prefix(record).map_err(|_| Reason::Truncated)?;
    let (version, kind) = (record.id.get() >> 16, record.id.get() & 0xffff);
    if !known(record.id.get()) {
        return Err(Reason::Other(format!(
            "a record of version {version} and type {kind}; versions 1 to 4 and types 0 to {TYPE_MAX} are known"
        )));
    }
    if kind != SHORT_IO {
        return Ok(None);
    }
    let disk = record.device.get() >> 8 & 0xff;
    let at_s = time(u64::from(record.at_s.get()), 1_000_000_000)?;
    Ok(Some(Request {
        at: at_s + time(u64::from(record.at_us.get()), 1_000)?,
        offset: place(u64::from(record.block.get()), header.sector(disk))?,
        size: Bytes(u64::from(record.bytes.get())),
        device: disk,
        op: if record.flags.get() & 1 == 1 {
            Op::Read
        } else {
            Op::Write
        },
    }))
}

/// Reads the header and the records.
pub(super) struct Parser {
    header: Header,
}

impl Parser {
    pub(super) fn new() -> Parser {
        Parser {
            header: Header::default(),
        }
    }
}

impl RecordParser for Parser {
    fn head(&mut self, start: &[u8], sink: &mut Sink<'_>) -> Result<Option<usize>, TraceError> {
        let unsupported = |why: String| TraceError::Unsupported {
            file: sink.file().to_owned(),
            format: Format::Srt,
            why,
        };
        if !start.starts_with(MAGIC) {
            let found = Reason::shown(&start[..start.len().min(MAGIC.len())]);
            return Err(unsupported(format!(
                "it begins with '{found}', not with '$$TR_IOREC'; look whether it is another format"
            )));
        }
        let Some(end) = memchr::memchr(FORM_FEED, start) else {
            return Err(unsupported(format!(
                "no form feed ends its header in the first {} bytes; it may have been cut off, \
                 or changed by a transfer as text",
                start.len()
            )));
        };
        self.header = Header::parse(&start[..end]);
        Ok(Some(end + 1))
    }

    fn length(&self, bytes: &[u8]) -> Result<Option<usize>, Reason> {
        bytes
            .first_chunk()
            .map(|start| record_len(*start))
            .transpose()
    }

    fn request(&mut self, record: &[u8], _sink: &mut Sink<'_>) -> Result<Option<Request>, Reason> {
        parse(&self.header, record)
    }

    fn resume(&self, bytes: &[u8]) -> Resume {
        // Records begin with a length and a type, both known to a few values.
        let found = bytes.windows(8).position(|start| {
            let (length, id) = start.split_at(4);
            let word = |bytes: &[u8]| {
                bytes
                    .iter()
                    .fold(0, |sum, &byte| sum << 8 | u32::from(byte))
            };
            let (length, id) = (word(length), word(id));
            (RECORD_MIN as u32..RECORD_MIN as u32 + 16).contains(&length)
                && length.is_multiple_of(4)
                && known(id)
        });
        found.map_or(Resume::NotIn(bytes.len().saturating_sub(7)), Resume::At)
    }
}

/// Is this the version and type of a record?
fn known(id: u32) -> bool {
    (1..=4).contains(&(id >> 16)) && id & 0xffff <= TYPE_MAX
}

/// What the header says of the disks.
#[derive(Debug, Default, PartialEq, Eq)]
struct Header {
    /// Disk number to bytes of a sector.
    sectors: Map<u32, u64>,
}

impl Header {
    /// Reads the text between the start of the file and the form feed.
    fn parse(text: &[u8]) -> Header {
        let mut header = Header::default();
        let mut depth = 0usize;
        let mut disk = 0;
        let words = Words { text };
        // The last three words are `N -> {` and `sectorsize = N`.
        let mut last: [&[u8]; 2] = [b"", b""];
        for word in words {
            match word {
                b"{" => {
                    depth += 1;
                    // `disks = {` is the first level, `N -> {` within it the second.
                    if let (2, b"->", Some(number)) = (depth, last[1], number(last[0])) {
                        disk = u32::try_from(number).unwrap_or(u32::MAX);
                    }
                }
                b"}" => depth = depth.saturating_sub(1),
                _ => {
                    if let (b"sectorsize", b"=", Some(size)) = (last[0], last[1], number(word))
                        && size > 0
                    {
                        header.sectors.entry(disk).or_insert(size);
                    }
                }
            }
            last = [last[1], word];
        }
        header
    }

    /// Bytes of a sector of a disk; of a disk the header does not name, those of the disk named first.
    fn sector(&self, disk: u32) -> u64 {
        let first = || self.sectors.iter().min().map(|(_, &size)| size);
        let named = self.sectors.get(&disk).copied();
        named.or_else(first).unwrap_or(SECTOR_DEFAULT)
    }
}

fn number(word: &[u8]) -> Option<u64> {
    let digits = word.len() <= 10 && word.iter().all(u8::is_ascii_digit);
    digits
        .then(|| std::str::from_utf8(word).ok()?.parse().ok())
        .flatten()
}

/// The words of a header: names and numbers, quoted texts whole, `->`, and every other character by itself.
struct Words<'a> {
    text: &'a [u8],
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let from = self
            .text
            .iter()
            .position(|byte| !byte.is_ascii_whitespace())?;
        let text = &self.text[from..];
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.".contains(byte);
        let len = match text[0] {
            b'"' => memchr::memchr(b'"', &text[1..]).map_or(text.len(), |end| end + 2),
            b'-' if text.get(1) == Some(&b'>') => 2,
            byte if plain(&byte) => text
                .iter()
                .position(|byte| !plain(byte))
                .unwrap_or(text.len()),
            _ => 1,
        };
        let (word, rest) = text.split_at(len);
        self.text = rest;
        Some(word)
    }
}

#[cfg(test)]
mod tests {
    use base::Nanos;

    use super::*;

    const HEADER: &[u8] = br#"$$TR_IOREC-1.3 (IOAdaptor Upgrade Version)
version      = 1.3;
disks        = {
          0 -> {
            disktype = hp335h, adaptor = 1 -> { hp_ib , 1.2 , 250 },
            description = "sectorsize = 9 } of no { disk",
            sectorsize  = 256,
            sections   = { 8 -> { "/", size = (171760 291362816) } }
          },
          3 -> { sectorsize = 1024 }
};
"#;

    fn record(words: &[u32]) -> Vec<u8> {
        let len = 4 * (words.len() as u32 + 1);
        let words = std::iter::once(len).chain(words.iter().copied());
        words.flat_map(u32::to_be_bytes).collect()
    }

    #[test]
    fn the_header_tells_the_sector_of_each_disk() {
        let header = Header::parse(HEADER);
        assert_eq!(header.sector(0), 256);
        assert_eq!(header.sector(3), 1024);
        assert_eq!(header.sector(7), 256, "a disk it does not name");
        assert_eq!(Header::parse(b"$$TR_IOREC-1.3").sector(0), 512);
    }

    #[test]
    fn a_record_is_a_request_in_sectors_of_its_disk() {
        let header = Header::parse(HEADER);
        let id = 4 << 16 | 1;
        let words = [
            id,
            7,
            500_001,
            84,
            900,
            8192,
            0x420,
            0x0800_0308,
            4,
            1,
            0x1b,
            0,
            2,
        ];
        let bytes = record(&words);
        assert_eq!(record_len([0, 0, 0, bytes.len() as u8]), Ok(56));
        let request = Request {
            at: Nanos::micros(7_500_001),
            offset: Bytes(0x420 * 1024),
            size: Bytes(8192),
            device: 3,
            op: Op::Read,
        };
        assert_eq!(parse(&header, &bytes), Ok(Some(request)));
        let suspect = record(&[&[4 << 16 | 4], &words[1..]].concat());
        assert_eq!(parse(&header, &suspect), Ok(None));
    }

    #[test]
    fn a_record_that_is_none_says_why() {
        let header = Header::default();
        let refusal = parse(&header, &record(&[5 << 16 | 1; 12])).expect_err("version 5");
        assert_eq!(
            refusal.to_string(),
            "a record of version 5 and type 1; versions 1 to 4 and types 0 to 10 are known"
        );
        for len in [0, 48, 54, 1 << 17, u32::MAX] {
            let refusal = record_len(len.to_be_bytes()).expect_err("no length");
            assert!(
                refusal
                    .to_string()
                    .starts_with(&format!("a record said to be {len} bytes long")),
                "{refusal}"
            );
        }
    }
}
