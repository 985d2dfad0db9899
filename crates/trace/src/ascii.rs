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

#[cfg(test)]
mod tests {
    use super::super::tests::{counted, named, read_as, req};
    use super::super::{Format, ReadOptions};
    use super::*;

    #[test]
    fn fractions_are_milliseconds() {
        let text = "0 5 174224064 16 1\n0.221 5 162947904 16 0\n";
        let (all, trace) = read_as(text.as_bytes(), &ReadOptions::default()).expect("read");
        assert_eq!(trace.format(), Format::Ascii);
        assert_eq!(
            all,
            [
                req(0, Op::Read, 174_224_064 * 512, 8192, 5),
                req(221_000, Op::Write, 162_947_904 * 512, 8192, 5),
            ]
        );
        assert_eq!(
            trace.notes(),
            [
                "sample: the times are taken for milliseconds: they have fractions; --tick says otherwise"
            ]
        );
    }

    #[test]
    fn whole_numbers_are_nanoseconds_unless_a_unit_is_asked_for() {
        let text = "0 0 303567 7 0\r\n26214000\t1  55590 6 1\r\n";
        let (all, _) = read_as(text.as_bytes(), &ReadOptions::default()).expect("read");
        assert_eq!(all[1], req(26_214_000, Op::Read, 55_590 * 512, 3072, 1));
        let options = ReadOptions {
            tick: Some(Nanos::micros(1)),
            ..named(Format::Ascii)
        };
        let (all, trace) = read_as(text.as_bytes(), &options).expect("read");
        assert_eq!(all[1].at, Nanos(26_214_000_000));
        assert!(trace.notes().is_empty());
    }

    #[test]
    fn bad_lines_say_what_is_wrong() {
        for (line, why) in [
            ("1 0 2 3", "4 columns where 5"),
            ("1 0 2 3 z", "'z' is no operation"),
            ("-1 0 2 3 1", "'-1' is no time"),
            ("1 0 2 0 1", "a request of 0 bytes"),
            ("1 0 18014398509481984 1 1", "ends beyond 2^63"),
        ] {
            let text = format!("0 0 1 1 1\n{line}\n");
            let (_, trace) = read_as(text.as_bytes(), &counted(Format::Ascii)).expect("counted");
            let reason = trace.malformed().first[0].reason.to_string();
            assert!(reason.contains(why), "{line}: {reason}");
        }
    }
}
