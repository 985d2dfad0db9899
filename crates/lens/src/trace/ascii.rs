//! ASCII traces of DiskSim, and of MQSim and SSDsim which took them over.
//!
//! ```text
//! time device LBA sectors flags      columns apart by white space
//! 0.221 5 162947904 16 1
//! ```
//!
//! LBA and size count sectors of 512 bytes. The flags are hexadecimal; the lowest bit says read (1) or
//! write (0). DiskSim counts time in milliseconds with a fraction, MQSim and SSDsim in whole nanoseconds.
//!
//! Choice: where no unit of time is asked for, a point in a time of the first block says milliseconds,
//! none nanoseconds; the trace leaves a note of that.

use base::{Bytes, Nanos};

use super::fields::{device, sectors, time, words};
use super::lines::LineParser;
use super::sink::Sink;
use super::{Op, Reason, Request, TraceError};

const COLUMNS: &str = "5: time device LBA sectors flags";

/// Reads lines of five columns.
pub(super) struct Ascii {
    tick: Nanos,
}

impl Ascii {
    pub(super) fn new() -> Ascii {
        Ascii { tick: Nanos(1) }
    }
}

impl LineParser for Ascii {
    fn begin(&mut self, block: &[u8], sink: &mut Sink<'_>) -> Result<(), TraceError> {
        if let Some(tick) = sink.tick() {
            self.tick = tick;
            return Ok(());
        }
        let fractions = block
            .split(|&byte| byte == b'\n')
            .filter_map(|line| {
                line.trim_ascii_start()
                    .split(u8::is_ascii_whitespace)
                    .next()
            })
            .any(|time| time.contains(&b'.'));
        let (tick, why) = match fractions {
            true => (Nanos::millis(1), "milliseconds: they have fractions"),
            false => (Nanos(1), "nanoseconds: they are whole numbers"),
        };
        self.tick = tick;
        let file = sink.file().to_owned();
        sink.note(format!(
            "{file}: the times are taken for {why}; --tick says otherwise"
        ));
        Ok(())
    }

    fn line(&mut self, line: &[u8], sink: &mut Sink<'_>) -> Result<(), Reason> {
        let [at, disk, lba, size, flags] = words(line, COLUMNS)?;
        let flags = std::str::from_utf8(flags)
            .ok()
            .and_then(|text| u64::from_str_radix(text, 16).ok())
            .ok_or_else(|| Reason::Operation {
                text: Reason::shown(flags),
                known: "a hexadecimal number, odd for a read and even for a write",
            })?;
        sink.push(Request {
            at: time(at, self.tick)?,
            offset: Bytes(sectors("LBA", lba)?),
            size: Bytes(sectors("size", size)?),
            device: device("device", disk)?,
            op: if flags & 1 == 1 { Op::Read } else { Op::Write },
        })
    }
}
