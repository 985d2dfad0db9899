//! Binary traces of Linux' blktrace: one file per CPU (`sda.blktrace.0`, `.1`, ...), or all in one as
//! `blkparse -d` writes them.
//!
//! ```text
//!  0 u32 0x65617407: "eat" and version 7   32 u32 process
//!  4 u32 sequence number, per CPU          36 u32 device: major << 20 | minor
//!  8 u64 nanoseconds                       40 u32 CPU
//! 16 u64 first 512-byte sector             44 u16 error
//! 24 u32 length in bytes                   46 u16 bytes that follow this record (pdu)
//! 28 u32 action: what happened in the lower half, to what kind of request in the upper
//! ```
//!
//! In the byte order of the machine that was traced, which the first record shows. Layout: Linux'
//! `include/uapi/linux/blktrace_api.h`.
//!
//! A trace has every stage of a request; one stage is read:
//!
//! - Q, the request as it was asked for (queued);
//! - D, the request as it went to the device (issued), if the trace has no Q, as with `blktrace -a issue`.
//!
//! Reads and writes with data, discards and empty flushes are requests. Passed over are the other stages,
//! messages and names of processes, and commands passed through to the device, which have no range. A device
//! has its minor number, as in what blkparse prints (see there for two with the same).

use base::{Bytes, Map, Nanos, SECTOR};
use zerocopy::byteorder::{BE, ByteOrder, LE, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::records::{RecordParser, Resume, place};
use super::sink::Sink;
use super::{Format, Op, Reason, Request, TraceError};

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Record<O: ByteOrder> {
    magic: U32<O>,
    _sequence: U32<O>,
    at_ns: U64<O>,
    sector: U64<O>,
    len: U32<O>,
    action: U32<O>,
    _process: U32<O>,
    device: U32<O>,
    _cpu: U32<O>,
    _error: U16<O>,
    pdu: U16<O>,
}

/// The length of a record without what follows it.
const RECORD: usize = size_of::<Record<LE>>();

/// The upper three bytes of the magic number; the lowest is the version.
const MAGIC: u32 = 0x6561_7400;
/// The version of what `BLKTRACESETUP` of Linux records.
const VERSION: u32 = 7;

/// What happened (`__BLK_TA_*`), in the lower 8 bits of an action; bit 8 says that a cgroup follows.
const QUEUED: u32 = 1;
const ISSUED: u32 = 7;

/// Kinds of requests (`BLK_TC_*`), in the upper half of an action.
const READ: u32 = 1 << 0;
const WRITE: u32 = 1 << 1;
const FLUSH: u32 = 1 << 2;
const PASSED_THROUGH: u32 = 1 << 9;
const MESSAGE: u32 = 1 << 10;
const DISCARD: u32 = 1 << 13;

/// The byte order of the machine that was traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Little,
    Big,
}

impl Order {
    /// The byte order of a trace that begins like this; `None` if it is none of blktrace's.
    fn of(start: &[u8]) -> Option<Order> {
        let magic: [u8; 4] = start.first_chunk().copied()?;
        if u32::from_le_bytes(magic) & !0xff == MAGIC {
            Some(Order::Little)
        } else if u32::from_be_bytes(magic) & !0xff == MAGIC {
            Some(Order::Big)
        } else {
            None
        }
    }
}

/// The stage of a request that a record is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Asked for: Q.
    Queued,
    /// Gone to the device: D.
    Issued,
}

/// Do `bytes`, from the start of a file, look like records?
pub(super) fn looks(bytes: &[u8]) -> bool {
    Order::of(bytes).is_some()
}

/// The stage to read of a trace whose files begin with these blocks.
///
/// Q if any of them has one: each file holds what one CPU did, and a CPU may have issued what others queued.
pub(super) fn stage<'a>(starts: impl IntoIterator<Item = &'a [u8]>) -> Stage {
    let queued = |start: &'a [u8]| {
        let Some(order) = Order::of(start) else {
            return false;
        };
        let mut rest = start;
        while let Some(Ok(pdu)) = rest.get(..RECORD).map(|record| pdu(order, record)) {
            if let Ok(Some((Stage::Queued, _))) = parse(order, &rest[..RECORD]) {
                return true;
            }
            rest = rest.get(RECORD + pdu..).unwrap_or(&[]);
        }
        false
    };
    if starts.into_iter().any(queued) {
        Stage::Queued
    } else {
        Stage::Issued
    }
}

/// Reads the records of one stage.
pub(super) struct Parser {
    order: Order,
    stage: Stage,
    /// The kernel's number of a device to ours.
    devices: Map<u32, u32>,
}

impl Parser {
    /// Our number of the kernel's device, which has the name that blkparse prints.
    fn device(&mut self, number: u32, sink: &mut Sink<'_>) -> Result<u32, Reason> {
        if let Some(&ours) = self.devices.get(&number) {
            return Ok(ours);
        }
        let (major, minor) = (number >> 20, number & 0xf_ffff);
        let ours = sink.device(format!("{major},{minor}").as_bytes(), Some(minor))?;
        self.devices.insert(number, ours);
        Ok(ours)
    }

    pub(super) fn new(stage: Stage) -> Parser {
        Parser {
            order: Order::Little,
            stage,
            devices: Map::default(),
        }
    }
}

impl RecordParser for Parser {
    fn head(&mut self, start: &[u8], sink: &mut Sink<'_>) -> Result<Option<usize>, TraceError> {
        match Order::of(start) {
            Some(order) => self.order = order,
            None => {
                return Err(TraceError::Unsupported {
                    file: sink.file().to_owned(),
                    format: Format::Blktrace,
                    why: format!(
                        "it does not begin with {MAGIC:#x} in either byte order; \
                         look whether it is another format, such as what blkparse prints"
                    ),
                });
            }
        }
        if self.stage == Stage::Issued {
            sink.note(
                "no request is seen being queued (Q); those issued to the device (D) are read"
                    .to_owned(),
            );
        }
        Ok(Some(0))
    }

    fn length(&self, bytes: &[u8]) -> Result<Option<usize>, Reason> {
        let Some(record) = bytes.get(..RECORD) else {
            return Ok(None);
        };
        pdu(self.order, record).map(|pdu| Some(RECORD + pdu))
    }

    fn request(&mut self, record: &[u8], sink: &mut Sink<'_>) -> Result<Option<Request>, Reason> {
        match parse(self.order, &record[..RECORD])? {
            Some((stage, mut request)) if stage == self.stage => {
                request.device = self.device(request.device, sink)?;
                Ok(Some(request))
            }
            Some((Stage::Queued, _)) => {
                sink.note(
                    "requests queued (Q) turn up only after the start of the trace, and are passed over"
                        .to_owned(),
                );
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    fn resume(&self, bytes: &[u8]) -> Resume {
        let magic = match self.order {
            Order::Little => (MAGIC | VERSION).to_le_bytes(),
            Order::Big => (MAGIC | VERSION).to_be_bytes(),
        };
        let found = memchr::memmem::find(bytes, &magic);
        found.map_or(Resume::NotIn(bytes.len().saturating_sub(3)), Resume::At)
    }
}

/// How many bytes follow a record, [`RECORD`] bytes.
///
/// # Errors
/// If it is none: where the next one begins is not known then.
fn pdu(order: Order, record: &[u8]) -> Result<usize, Reason> {
    match order {
        Order::Little => {
            pdu_of(Record::<LE>::ref_from_bytes(record).map_err(|_| Reason::Truncated)?)
        }
        Order::Big => pdu_of(Record::<BE>::ref_from_bytes(record).map_err(|_| Reason::Truncated)?),
    }
}

fn pdu_of<O: ByteOrder>(record: &Record<O>) -> Result<usize, Reason> {
    let magic = record.magic.get();
    if magic & !0xff != MAGIC {
        return Err(Reason::Other(format!(
            "begins with {magic:#010x}, a record of blktrace with {:#010x}",
            MAGIC | VERSION
        )));
    }
    if magic & 0xff != VERSION {
        return Err(Reason::Other(format!(
            "a record of version {}; only version {VERSION} is known; let blkparse print it and read that",
            magic & 0xff
        )));
    }
    Ok(usize::from(record.pdu.get()))
}

/// The request a record, [`RECORD`] bytes, is about, if it is about one.
fn parse(order: Order, record: &[u8]) -> Result<Option<(Stage, Request)>, Reason> {
    match order {
        Order::Little => {
            request(Record::<LE>::ref_from_bytes(record).map_err(|_| Reason::Truncated)?)
        }
        Order::Big => request(Record::<BE>::ref_from_bytes(record).map_err(|_| Reason::Truncated)?),
    }
}

fn request<O: ByteOrder>(record: &Record<O>) -> Result<Option<(Stage, Request)>, Reason> {
    let action = record.action.get();
    let kind = action >> 16;
    let stage = match action & 0xff {
        QUEUED => Stage::Queued,
        ISSUED => Stage::Issued,
        _ => return Ok(None),
    };
    if kind & (MESSAGE | PASSED_THROUGH) != 0 {
        return Ok(None);
    }
    let len = record.len.get();
    let op = match kind {
        _ if len == 0 && kind & FLUSH != 0 => Op::Flush,
        // A request without data: a barrier of old, a mark.
        _ if len == 0 => return Ok(None),
        _ if kind & DISCARD != 0 => Op::Discard,
        _ if kind & WRITE != 0 => Op::Write,
        _ if kind & READ != 0 => Op::Read,
        _ => return Ok(None),
    };
    // A flush's sector means nothing, and may be all ones.
    let sector = if op == Op::Flush {
        0
    } else {
        record.sector.get()
    };
    let request = Request {
        at: Nanos(record.at_ns.get()),
        offset: place(sector, SECTOR)?,
        size: Bytes(u64::from(len)),
        device: record.device.get(),
        op,
    };
    Ok(Some((stage, request)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE: u32 = 1 << 4;

    /// A record of a read of 8 sectors at sector 80 of device 8,16, and `pdu` bytes.
    fn record(order: Order, action: u32, len: u32, pdu: u16) -> Vec<u8> {
        let u16 = |n: u16| match order {
            Order::Little => n.to_le_bytes(),
            Order::Big => n.to_be_bytes(),
        };
        let u32 = |n: u32| match order {
            Order::Little => n.to_le_bytes(),
            Order::Big => n.to_be_bytes(),
        };
        let u64 = |n: u64| match order {
            Order::Little => n.to_le_bytes(),
            Order::Big => n.to_be_bytes(),
        };
        let mut bytes = [u32(MAGIC | VERSION), u32(5)].concat();
        bytes.extend([u64(123_456_789), u64(80)].concat());
        let device = 8 << 20 | 16;
        bytes.extend([u32(len), u32(action), u32(4711), u32(device), u32(1)].concat());
        bytes.extend([u16(0), u16(pdu)].concat());
        bytes.extend(vec![0xaa; usize::from(pdu)]);
        bytes
    }

    fn asked(action: u32, len: u32) -> Option<(Stage, Op)> {
        let request = parse(Order::Little, &record(Order::Little, action, len, 0));
        request
            .expect("well formed")
            .map(|(stage, request)| (stage, request.op))
    }

    #[test]
    fn both_byte_orders_say_the_same() {
        let request = Request {
            at: Nanos(123_456_789),
            offset: Bytes(80 * 512),
            size: Bytes(4096),
            device: 8 << 20 | 16,
            op: Op::Read,
        };
        for order in [Order::Little, Order::Big] {
            let bytes = record(order, QUEUED | (READ | QUEUE) << 16, 4096, 12);
            assert_eq!(Order::of(&bytes), Some(order));
            assert_eq!(pdu(order, &bytes[..RECORD]), Ok(12));
            assert_eq!(
                parse(order, &bytes[..RECORD]),
                Ok(Some((Stage::Queued, request)))
            );
        }
        assert_eq!(Order::of(b"8,0"), None);
    }

    #[test]
    fn kinds_of_requests_are_distinguished() {
        assert_eq!(
            asked(ISSUED | WRITE << 16, 512),
            Some((Stage::Issued, Op::Write))
        );
        let discard = QUEUED | (WRITE | DISCARD) << 16;
        assert_eq!(asked(discard, 1 << 20), Some((Stage::Queued, Op::Discard)));
        let flush = QUEUED | (WRITE | FLUSH) << 16;
        assert_eq!(asked(flush, 0), Some((Stage::Queued, Op::Flush)));
        assert_eq!(
            asked(flush, 512),
            Some((Stage::Queued, Op::Write)),
            "a write behind a flush"
        );
        let of_a_cgroup = QUEUED | 1 << 8 | READ << 16;
        assert_eq!(asked(of_a_cgroup, 512), Some((Stage::Queued, Op::Read)));
        assert_eq!(asked(QUEUED | READ << 16, 0), None, "without data");
        assert_eq!(asked(QUEUED | (READ | PASSED_THROUGH) << 16, 36), None);
        assert_eq!(asked(QUEUED | MESSAGE << 16, 512), None);
        assert_eq!(asked(8 | READ << 16, 512), None, "completed");
    }

    #[test]
    fn requests_are_read_where_they_were_queued_if_any_file_tells() {
        let order = Order::Big;
        let issued = record(order, ISSUED | READ << 16, 512, 3);
        let queued = record(order, QUEUED | READ << 16, 512, 0);
        let both = [issued.clone(), queued].concat();
        assert_eq!(stage([&issued[..], &issued]), Stage::Issued);
        assert_eq!(stage([&issued[..], &both]), Stage::Queued);
        assert_eq!(stage([&both[..60], &b"text"[..]]), Stage::Issued);
    }

    #[test]
    fn what_is_no_record_says_so() {
        let mut bytes = record(Order::Little, QUEUED, 0, 0);
        bytes[0] = 8;
        let refusal = pdu(Order::Little, &bytes)
            .expect_err("version 8")
            .to_string();
        assert!(
            refusal.starts_with("a record of version 8; only version 7 is known"),
            "{refusal}"
        );
        bytes[3] = 0;
        let refusal = pdu(Order::Little, &bytes)
            .expect_err("no magic")
            .to_string();
        assert_eq!(
            refusal,
            "begins with 0x00617408, a record of blktrace with 0x65617407"
        );
    }
}
