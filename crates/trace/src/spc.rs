//! SPC traces, as UMass publishes them.
//!
//! ```text
//! ASU,LBA,size,opcode,timestamp[,more]
//! 0,20941264,8192,W,0.551706
//! ```
//!
//! The application storage unit is the device; LBA counts sectors of 512 bytes, size is in bytes, R or W in
//! either case, seconds from the start of the trace. Columns behind the fifth are passed over, as the
//! specification allows them.
//!
//! Source: SPC trace file format specification, revision 1.0.1.

use base::{Bytes, Nanos};

use super::fields::{device, number, sectors, split_first, time};
use super::lines::LineParser;
use super::sink::Sink;
use super::{Op, Reason, Request};

const COLUMNS: &str = "5 or more: ASU,LBA,size,opcode,timestamp";

/// Reads lines of five columns or more.
pub(super) struct Spc;

impl LineParser for Spc {
    fn line(&mut self, line: &[u8], sink: &mut Sink<'_>) -> Result<(), Reason> {
        let [unit, lba, size, op, at] = split_first(line, b',', COLUMNS)?;
        let op = match op.trim_ascii() {
            b"R" | b"r" => Op::Read,
            b"W" | b"w" => Op::Write,
            other => {
                return Err(Reason::Operation {
                    text: Reason::shown(other),
                    known: "R and W",
                });
            }
        };
        sink.push(Request {
            at: time(at, Nanos::secs(1))?,
            offset: Bytes(sectors("LBA", lba)?),
            size: Bytes(number("size", size)?),
            device: device("ASU", unit)?,
            op,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{counted, read_as, req};
    use super::super::{Format, ReadOptions};
    use super::*;

    const SAMPLE: &str = "0,20941264,8192,W,0.551706\n\
                          0,20939840,8192,w,0.554041\n\
                          1,3436288,15872,r,1.011732,anything\n";

    #[test]
    fn lines_become_requests() {
        let (all, trace) = read_as(SAMPLE.as_bytes(), &ReadOptions::default()).expect("read");
        assert_eq!(trace.format(), Format::Spc);
        assert_eq!(
            all,
            [
                req(0, Op::Write, 20_941_264 * 512, 8192, 0),
                req(2_335_000, Op::Write, 20_939_840 * 512, 8192, 0),
                req(460_026_000, Op::Read, 3_436_288 * 512, 15872, 1),
            ]
        );
    }

    #[test]
    fn bad_lines_say_what_is_wrong() {
        for (line, why) in [
            ("0,1,512,R", "4 columns where 5 or more"),
            ("0,1,512,X,2.0", "'X' is no operation"),
            ("0,1,512,R,nan", "'nan' is no time"),
            ("0,1,0,R,2.0", "a request of 0 bytes"),
            (
                "4294967296,1,512,R,2.0",
                "the ASU 4294967296 does not fit in 32 bits",
            ),
            ("0,36028797018963968,512,R,2.0", "lies beyond 2^64 bytes"),
        ] {
            let text = format!("{SAMPLE}{line}\n");
            let (_, trace) = read_as(text.as_bytes(), &counted(Format::Spc)).expect("counted");
            let reason = trace.malformed().first[0].reason.to_string();
            assert!(reason.contains(why), "{line}: {reason}");
        }
    }
}
