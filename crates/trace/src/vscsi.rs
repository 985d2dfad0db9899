//! Traces of virtual disks as CloudPhysics took them from VMware hosts (`vscsi`), record versions 1 and 2.
//!
//! ```text
//! version 1, 32 bytes                   version 2, 40 bytes
//!  0 u32 serial number                   0 u16 SCSI operation code
//!  4 u32 length in bytes                 2 u16 version in the upper byte: 2
//!  8 u32 pieces of memory                4 u32 serial number
//! 12 u16 SCSI operation code             8 u32 length in bytes
//! 14 u16 version in the upper byte: 1   12 u32 pieces of memory
//! 16 u64 first 512-byte block           16 u64 first 512-byte block
//! 24 u64 microseconds                   24 u64 microseconds
//!                                       32 u64 response time, microseconds
//! ```
//!
//! All little-endian, no header. Layout: the vscsi reader of libCacheSim, whose sample trace is read by
//! our tests.
//!
//! Commands that move no data of a range (inquiries, reservations, UNMAP, whose ranges are not recorded) are
//! passed over; SYNCHRONIZE CACHE is a flush.

use base::{Bytes, SECTOR};
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::records::{RecordParser, Resume, place, time};
use super::sink::Sink;
use super::{Format, Op, Reason, Request, TraceError};

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RecordV1 {
    _serial: U32,
    len: U32,
    _pieces: U32,
    command: U16,
    version: U16,
    block: U64,
    at_us: U64,
}

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RecordV2 {
    command: U16,
    version: U16,
    _serial: U32,
    len: U32,
    _pieces: U32,
    block: U64,
    at_us: U64,
    _response_us: U64,
}

/// The version of a trace's records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    /// 32 bytes each.
    One,
    /// 40 bytes each.
    Two,
}

impl Version {
    /// Which version a trace begins with; `None` if neither.
    ///
    /// The byte that holds 1 in a record of version 1 is the highest of a count of pieces of memory in
    /// version 2, where it never is 1.
    pub(super) fn of(start: &[u8]) -> Option<Version> {
        let one = RecordV1::ref_from_prefix(start)
            .is_ok_and(|(record, _)| record.version.get() >> 8 == 1);
        let two = RecordV2::ref_from_prefix(start)
            .is_ok_and(|(record, _)| record.version.get() >> 8 == 2);
        match (one, two) {
            (true, _) => Some(Version::One),
            (false, true) => Some(Version::Two),
            (false, false) => None,
        }
    }

    /// The length of a record.
    pub(super) const fn record(self) -> usize {
        match self {
            Version::One => size_of::<RecordV1>(),
            Version::Two => size_of::<RecordV2>(),
        }
    }

    /// What one record, [`Version::record`] bytes, asks of the disk; `None` if nothing of a range.
    pub(super) fn parse(self, record: &[u8]) -> Result<Option<Request>, Reason> {
        let (version, command, len, block, at_us) = match self {
            Version::One => {
                let r = RecordV1::ref_from_bytes(record).map_err(|_| Reason::Truncated)?;
                (r.version, r.command, r.len, r.block, r.at_us)
            }
            Version::Two => {
                let r = RecordV2::ref_from_bytes(record).map_err(|_| Reason::Truncated)?;
                (r.version, r.command, r.len, r.block, r.at_us)
            }
        };
        let wanted = match self {
            Version::One => 1,
            Version::Two => 2,
        };
        let found = version.get() >> 8;
        if found != wanted {
            return Err(Reason::Other(format!(
                "a record of version {found} in a trace of version {wanted}"
            )));
        }
        let Some(op) = operation(command.get()) else {
            return Ok(None);
        };
        let (block, len) = match op {
            Op::Flush => (0, 0),
            _ => (block.get(), len.get()),
        };
        let request = Request {
            at: time(at_us.get(), 1_000)?,
            offset: place(block, SECTOR)?,
            size: Bytes(u64::from(len)),
            device: 0,
            op,
        };
        Ok(Some(request))
    }
}

/// Do `bytes`, from the start of a file, look like records? One version throughout, and
/// places and times that can be.
pub(super) fn looks(bytes: &[u8]) -> bool {
    let Some(version) = Version::of(bytes) else {
        return false;
    };
    bytes
        .chunks_exact(version.record())
        .all(|record| Version::of(record) == Some(version) && version.parse(record).is_ok())
}

/// Reads the records of a trace of either version.
pub(super) struct Parser {
    version: Version,
}

impl Parser {
    pub(super) fn new() -> Parser {
        Parser {
            version: Version::One,
        }
    }
}

impl RecordParser for Parser {
    fn head(&mut self, start: &[u8], sink: &mut Sink<'_>) -> Result<Option<usize>, TraceError> {
        match Version::of(start) {
            Some(version) => self.version = version,
            None => {
                return Err(TraceError::Unsupported {
                    file: sink.file().to_owned(),
                    format: Format::Vscsi,
                    why: "its first record says neither version 1 (in byte 15) nor version 2 (in byte 3); \
                          look whether it is another format"
                        .to_owned(),
                });
            }
        }
        Ok(Some(0))
    }

    fn length(&self, _bytes: &[u8]) -> Result<Option<usize>, Reason> {
        Ok(Some(self.version.record()))
    }

    fn request(&mut self, record: &[u8], _sink: &mut Sink<'_>) -> Result<Option<Request>, Reason> {
        self.version.parse(record)
    }

    fn resume(&self, _bytes: &[u8]) -> Resume {
        Resume::At(0)
    }
}

/// What an operation code of SCSI does to a range of a disk.
fn operation(code: u16) -> Option<Op> {
    match code & 0xff {
        // READ with 6, 10, 12, 16 bytes of command.
        0x08 | 0x28 | 0xa8 | 0x88 => Some(Op::Read),
        // WRITE likewise; WRITE AND VERIFY; COMPARE AND WRITE.
        0x0a | 0x2a | 0xaa | 0x8a | 0x2e | 0xae | 0x8e | 0x89 => Some(Op::Write),
        0x35 | 0x91 => Some(Op::Flush),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use base::Nanos;

    use super::*;

    fn one(command: u16, len: u32, block: u64, at_us: u64) -> Vec<u8> {
        let mut record = 0x8000_02f4u32.to_le_bytes().to_vec();
        record.extend(len.to_le_bytes());
        record.extend(1u32.to_le_bytes());
        record.extend(command.to_le_bytes());
        record.extend(0x0100u16.to_le_bytes());
        record.extend(block.to_le_bytes());
        record.extend(at_us.to_le_bytes());
        record
    }

    fn two(command: u16, len: u32, block: u64, at_us: u64) -> Vec<u8> {
        let mut record = command.to_le_bytes().to_vec();
        record.extend(0x0200u16.to_le_bytes());
        record.extend(7u32.to_le_bytes());
        record.extend(len.to_le_bytes());
        record.extend(1u32.to_le_bytes());
        record.extend(block.to_le_bytes());
        record.extend(at_us.to_le_bytes());
        record.extend(250u64.to_le_bytes());
        record
    }

    #[test]
    fn both_versions_say_the_same_each_in_its_layout() {
        let request = Request {
            at: Nanos::micros(9_000_001),
            offset: Bytes(77 * 512),
            size: Bytes(8192),
            device: 0,
            op: Op::Write,
        };
        for (version, record) in [
            (Version::One, one(0x2a, 8192, 77, 9_000_001)),
            (Version::Two, two(0x2a, 8192, 77, 9_000_001)),
        ] {
            assert_eq!(Version::of(&record), Some(version));
            assert_eq!(record.len(), version.record());
            assert_eq!(version.parse(&record), Ok(Some(request)));
            assert!(looks(&[&record[..], &record, &record[..9]].concat()));
            assert!(!looks(&[&record[..], &[0; 40]].concat()));
        }
    }

    #[test]
    fn commands_are_recognised_by_what_they_move() {
        let op = |command| {
            let request = Version::One.parse(&one(command, 512, 1, 0));
            request.expect("well formed").map(|request| request.op)
        };
        assert_eq!([0x08, 0x28, 0xa8, 0x88].map(op), [Some(Op::Read); 4]);
        assert_eq!([0x0a, 0x2a, 0xaa, 0x8a].map(op), [Some(Op::Write); 4]);
        assert_eq!([0x35, 0x91].map(op), [Some(Op::Flush); 2]);
        assert_eq!([0x00, 0x12, 0x42, 0x5f].map(op), [None; 4]);
    }

    #[test]
    fn a_record_of_another_version_says_so() {
        let mut record = one(0x28, 512, 1, 0);
        record[15] = 3;
        assert_eq!(Version::of(&record), None);
        assert_eq!(
            Version::One
                .parse(&record)
                .expect_err("version 3")
                .to_string(),
            "a record of version 3 in a trace of version 1"
        );
    }

    #[test]
    fn a_place_beyond_all_devices_and_a_time_beyond_all_clocks_are_malformed() {
        let far = Version::One.parse(&one(0x28, 512, 1 << 63, 0));
        assert_eq!(
            far.expect_err("2^72 bytes").to_string(),
            "block 9223372036854775808, of 512 bytes, begins beyond 2^63, farther than any device reaches"
        );
        let late = Version::Two.parse(&two(0x28, 512, 1, u64::MAX));
        assert!(matches!(late, Err(Reason::Time { .. })), "{late:?}");
    }
}
