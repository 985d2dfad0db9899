//! libCacheSim's oracleGeneral: what a cache was asked for, and when it will be asked for it next.
//!
//! ```text
//!  0 u32 seconds
//!  4 u64 object
//! 12 u32 size in bytes
//! 16 i64 number of the next request for the same object, -1 if there is none
//! ```
//!
//! 24 bytes a record, little-endian, no header. Layout: libCacheSim's `oracleGeneralBin.h`.
//!
//! What was done is not recorded: all are reads. The number of the next request is passed over: what needs the
//! future (Belady's policy) finds it out itself. A record of size 0 is malformed; libCacheSim passes over it.

use base::{Bytes, Nanos};
use zerocopy::byteorder::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::records::{RecordParser, Resume, time};
use super::sink::Sink;
use super::{Op, Reason, Request, TraceError, object};

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Record {
    at_s: U32,
    object: U64,
    size: U32,
    next: I64,
}

/// The length of a record.
const RECORD: usize = size_of::<Record>();

/// No trace has as many requests: eight bytes of text are a greater number.
const NUMBER_MAX: i64 = 1 << 48;

/// Do `bytes`, from the start of a file, look like records? There is no mark; but times climb, sizes are not
/// 0, and the next request for an object comes later than this one, or never.
pub(super) fn looks(bytes: &[u8]) -> bool {
    let mut latest = 0;
    let mut records = bytes.chunks_exact(RECORD).enumerate();
    bytes.len() >= RECORD
        && records.all(|(number, record)| {
            let Ok(record) = Record::ref_from_bytes(record) else {
                return false;
            };
            let (at_s, next) = (record.at_s.get(), record.next.get());
            let climbs = at_s >= latest;
            latest = at_s;
            let later = (number as i64 + 1..NUMBER_MAX).contains(&next);
            climbs && record.size.get() > 0 && (later || matches!(next, -1 | i64::MAX))
        })
}

/// Reads the records, with times in units of a second or what was asked for.
pub(super) struct Parser {
    tick: Nanos,
}

impl Parser {
    pub(super) fn new(tick: Option<Nanos>) -> Parser {
        Parser {
            tick: tick.unwrap_or(Nanos::secs(1)),
        }
    }
}

impl RecordParser for Parser {
    fn head(&mut self, _start: &[u8], _sink: &mut Sink<'_>) -> Result<Option<usize>, TraceError> {
        Ok(Some(0))
    }

    fn length(&self, _bytes: &[u8]) -> Result<Option<usize>, Reason> {
        Ok(Some(RECORD))
    }

    fn request(&mut self, record: &[u8], _sink: &mut Sink<'_>) -> Result<Option<Request>, Reason> {
        parse(self.tick, record).map(Some)
    }

    fn resume(&self, _bytes: &[u8]) -> Resume {
        Resume::At(0)
    }
}

/// What one record, [`RECORD`] bytes, asks for.
fn parse(tick: Nanos, record: &[u8]) -> Result<Request, Reason> {
    let record = Record::ref_from_bytes(record).map_err(|_| Reason::Truncated)?;
    Ok(Request {
        at: time(u64::from(record.at_s.get()), tick.0)?,
        offset: object::place(record.object.get()),
        size: Bytes(u64::from(record.size.get())),
        device: 0,
        op: Op::Read,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(at_s: u32, object: u64, size: u32) -> Vec<u8> {
        let mut bytes = at_s.to_le_bytes().to_vec();
        bytes.extend(object.to_le_bytes());
        bytes.extend(size.to_le_bytes());
        bytes.extend((-1i64).to_le_bytes());
        bytes
    }

    #[test]
    fn a_record_is_a_read_of_its_object() {
        let request = Request {
            at: Nanos::secs(7),
            offset: Bytes(1_000 * 512),
            size: Bytes(4096),
            device: 0,
            op: Op::Read,
        };
        let second = Nanos::secs(1);
        assert_eq!(parse(second, &record(7, 1_000, 4096)), Ok(request));
        assert_eq!(parse(second, &[0; RECORD - 1]), Err(Reason::Truncated));
    }

    #[test]
    fn records_are_known_by_their_order() {
        let trace = [record(7, 1, 512), record(7, 2, 1), record(9, 1, 512)].concat();
        assert!(looks(&trace));
        assert!(looks(&trace[..70]), "cut off by the end of the sample");
        let backwards = [record(9, 1, 512), record(7, 2, 1)].concat();
        assert!(!looks(&backwards));
        assert!(!looks(&[0; 96]), "sizes of 0");
        assert!(!looks(b"t_us,op,offset,size,dev\n0,R,4096,512,0\n"));
        assert!(!looks(&trace[..RECORD - 1]));
    }
}
