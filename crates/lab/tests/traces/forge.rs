//! Traces made by hand, a small honest one of every format among them: what the tests read and the fuzzers
//! start from.

use base::{Bytes, Nanos};
use trace::{Format, Op, Request};

use crate::round_trip::{csv, parquet};

/// Eight requests: every operation, twice at the same time, a run and a jump.
pub fn requests() -> Vec<Request> {
    let request = |at_us, op, offset, size, device| Request {
        at: Nanos::micros(at_us),
        offset: Bytes(offset),
        size: Bytes(size),
        device,
        op,
    };
    vec![
        request(0, Op::Read, 4096, 512, 0),
        request(17, Op::Write, 4608, 4096, 0),
        request(17, Op::Write, 8704, 4096, 0),
        request(250, Op::Flush, 0, 0, 0),
        request(1_000, Op::Discard, 1 << 30, 1 << 20, 0),
        request(60_000_000, Op::Read, 1 << 40, 65_536, 3),
        request(60_000_001, Op::Read, 0, 512, 0),
        request(3_600_000_000, Op::Write, 12_800, 1024, 3),
    ]
}

/// Record `number` of a vscsi trace of version 1.
pub fn vscsi_1(number: u32, command: u16, len: u32, block: u64, at_us: u64) -> Vec<u8> {
    let mut record = (0x8000_0000 | number).to_le_bytes().to_vec();
    record.extend(len.to_le_bytes());
    record.extend(1u32.to_le_bytes());
    record.extend(command.to_le_bytes());
    record.extend(0x0100u16.to_le_bytes());
    record.extend(block.to_le_bytes());
    record.extend(at_us.to_le_bytes());
    record
}

/// The same of version 2.
pub fn vscsi_2(number: u32, command: u16, len: u32, block: u64, at_us: u64) -> Vec<u8> {
    let mut record = command.to_le_bytes().to_vec();
    record.extend(0x0200u16.to_le_bytes());
    record.extend(number.to_le_bytes());
    record.extend(len.to_le_bytes());
    record.extend(1u32.to_le_bytes());
    record.extend(block.to_le_bytes());
    record.extend(at_us.to_le_bytes());
    record.extend(250u64.to_le_bytes());
    record
}

/// A vscsi trace: reads, writes, a flush, an inquiry.
pub fn vscsi(record: fn(u32, u16, u32, u64, u64) -> Vec<u8>) -> Vec<u8> {
    let commands = [
        (0x28, 512, 7),
        (0x2a, 4096, 8),
        (0x12, 36, 0),
        (0x35, 0, 0),
        (0x88, 65_536, 1 << 33),
    ];
    let record = |(n, (command, len, block)): (usize, (u16, u32, u64))| {
        let n = n as u32;
        record(
            n,
            command,
            len,
            block,
            5_631_000_000 + u64::from(n) * 250_000,
        )
    };
    commands.into_iter().enumerate().flat_map(record).collect()
}

/// One event of a blktrace trace.
#[derive(Debug, Clone, Copy)]
pub struct Event {
    /// Nanoseconds.
    pub at: u64,
    /// First sector.
    pub sector: u64,
    /// Bytes.
    pub len: u32,
    /// Action and kind.
    pub action: u32,
    /// Major and minor number of the device.
    pub device: (u32, u32),
    /// CPU.
    pub cpu: u32,
    /// What follows the record.
    pub pdu: &'static [u8],
}

/// Actions of blktrace: queued, issued, completed.
pub const QUEUED: u32 = 1 | 1 << 20;
/// Issued to the device.
pub const ISSUED: u32 = 7 | 1 << 22;
/// Completed.
pub const COMPLETED: u32 = 8 | 1 << 23;
/// Kinds of requests of blktrace.
pub const READ: u32 = 1 << 16;
/// A write.
pub const WRITE: u32 = 1 << 17;
/// A flush.
pub const FLUSH: u32 = 1 << 18;
/// A synchronous request.
pub const SYNC: u32 = 1 << 19;
/// A message.
pub const NOTIFY: u32 = 1 << 26;
/// A discard.
pub const DISCARD: u32 = 1 << 29;

impl Event {
    /// The record of the event, the `number`th of its CPU, as a machine of this byte order writes it.
    pub fn record(&self, number: u32, big: bool) -> Vec<u8> {
        let mut record = Vec::new();
        let mut put = |value: u64, len: usize| {
            let bytes = value.to_be_bytes();
            let bytes = &bytes[8 - len..];
            if big {
                record.extend(bytes);
            } else {
                record.extend(bytes.iter().rev());
            }
        };
        put(0x6561_7407, 4);
        put(u64::from(number), 4);
        put(self.at, 8);
        put(self.sector, 8);
        put(u64::from(self.len), 4);
        put(u64::from(self.action), 4);
        put(4711, 4);
        put(u64::from(self.device.0 << 20 | self.device.1), 4);
        put(u64::from(self.cpu), 4);
        put(0, 2);
        put(self.pdu.len() as u64, 2);
        record.extend(self.pdu);
        record
    }
}

/// What one CPU saw: a process's name, then requests queued, issued and completed.
pub fn events(cpu: u32) -> Vec<Event> {
    let from = 1_000_000 + u64::from(cpu) * 500;
    let event = |at, action, sector, len| Event {
        at: from + at,
        sector,
        len,
        action,
        device: (8, 0),
        cpu,
        pdu: &[],
    };
    vec![
        Event {
            pdu: b"fio\0\0\0\0\0\0\0\0\0\0\0\0\0",
            ..event(0, NOTIFY, 0, 0)
        },
        event(1_000, QUEUED | READ, 2048, 4096),
        event(2_000, ISSUED | READ, 2048, 4096),
        event(3_000, QUEUED | WRITE | SYNC, 1 << 31, 65_536),
        event(4_000, COMPLETED | READ, 2048, 4096),
        event(5_000, QUEUED | WRITE | DISCARD, 4096, 1 << 20),
        event(6_000, QUEUED | WRITE | FLUSH | SYNC, 0, 0),
        Event {
            device: (8, 16),
            ..event(7_000_000_000, QUEUED | READ, 8, 512)
        },
    ]
}

/// The file blktrace writes for one CPU.
pub fn blktrace(cpu: u32, big: bool) -> Vec<u8> {
    let numbered = (1..).zip(events(cpu));
    numbered
        .flat_map(|(number, event)| event.record(number, big))
        .collect()
}

/// A record of an SRT trace: an I/O of `version`.
pub fn srt_record(
    version: u32,
    at: (u32, u32),
    bytes: u32,
    block: u32,
    disk: u32,
    read: bool,
) -> Vec<u8> {
    let mut words = vec![
        0,
        version << 16 | 1,
        at.0,
        at.1,
        84,
        9_000,
        bytes,
        block,
        0x0800_0000 | disk << 8 | 7,
        4,
        17,
        0x1a | u32::from(read),
        0x0007_0000,
    ];
    if version == 4 {
        words.push(1);
    }
    words[0] = 4 * words.len() as u32;
    words.into_iter().flat_map(u32::to_be_bytes).collect()
}

/// An SRT trace of two disks with sectors of 256 and 512 bytes.
pub fn srt() -> Vec<u8> {
    let mut trace = b"$$TR_IOREC-1.3 (IOAdaptor Upgrade Version)\nversion = 1.3;\n\
        disks = {\n 0 -> { sectorsize = 256, sections = { 8 -> { \"/\" } } },\n\
        1 -> { sectorsize = 512 }\n};\n\x0c"
        .to_vec();
    trace.extend(srt_record(4, (0, 174), 4096, 0x420, 0, true));
    trace.extend(srt_record(4, (30, 5), 8192, 0xa48f0, 1, false));
    trace.extend(srt_record(3, (30, 900_000), 8192, 8, 0, true));
    trace
}

/// A record of an oracleGeneral trace.
pub fn oracle_record(at_s: u32, object: u64, size: u32, next: i64) -> Vec<u8> {
    let mut record = at_s.to_le_bytes().to_vec();
    record.extend(object.to_le_bytes());
    record.extend(size.to_le_bytes());
    record.extend(next.to_le_bytes());
    record
}

/// A small honest trace of `format`.
pub fn sample(format: Format) -> Vec<u8> {
    match format {
        Format::Csv => csv(&requests()),
        Format::Parquet => parquet(&requests()),
        Format::Msr => b"128166372003061629,src1,0,Read,8986374144,65536,4523\n\
            128166372016382155,src1,1,Write,2205175808,4096,800\n\
            128166372016382155,hm,1,Write,2205179904,4096,801\n"
            .to_vec(),
        Format::Blktrace => blktrace(0, false),
        Format::Blkparse => {
            b"  8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]\n  \
            8,0    3        4     0.000005000   697  D   W 223490 + 8 [kjournald]\n  \
            8,16   1        5     0.000041115   701  Q  RA 2048 + 16 [cat]\n  \
            8,0    1        6     0.000050000   701  Q  DS 4096 + 1024 [fstrim]\n  \
            8,0    1        7     0.000060000   701  Q FWS [jbd2/sda1-8]\nCPU3 (sda):\n"
                .to_vec()
        }
        Format::Fio => b"fio version 3 iolog\n0 /dev/sdb add\n3 /dev/sdb open\n\
            10 /dev/sdb read 4096 8192\n227 /dev/sdb write 0 512\n\
            900 /dev/sdb datasync 0 0\n901 /dev/sdb trim 65536 4096\n905 /dev/sdb close\n"
            .to_vec(),
        Format::Vscsi => vscsi(vscsi_1),
        Format::Spc => b"0,20941264,8192,W,0.551706\n1,3436288,15872,r,1.011732\n\
            0,20939840,8192,R,1.121,more\n"
            .to_vec(),
        Format::Ascii => b"0 5 174224064 16 1\n0.221 5 162947904 16 0\n1.5 0 8 1 3\n".to_vec(),
        Format::Srt => srt(),
        Format::Lis => b"230027 8 0 0\n1842745 64 0 1\n216082 1 0 2\n".to_vec(),
        Format::OracleGeneral => [
            oracle_record(0, 17, 4096, 3),
            oracle_record(0, u64::MAX, 512, -1),
            oracle_record(9, 17, 4096, -1),
        ]
        .concat(),
        Format::CacheCsv => b"version,time,op,size,lbn\n1,33898,2a,512,42932745\n\
            1,33899,28,6656,40409911\n1,33899,get,1,18446744073709551615\n"
            .to_vec(),
        Format::Alibaba => b"419,W,8792731648,16384,1577808144360767\n\
            725,R,59110326272,360448,1577808144360813\n"
            .to_vec(),
        Format::Tencent => {
            b"1538323200,12910952,128,0,1063\n1538323201,6338688,8,1,1627\n".to_vec()
        }
    }
}
