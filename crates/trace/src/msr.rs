//! MSR Cambridge traces, as SNIA publishes them.
//!
//! ```text
//! Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime
//! 128166372003061629,src1,0,Read,8986374144,65536,4523
//! ```
//!
//! Time counts 100 ns since 1601 (Windows' file time), offset and size are bytes; the time a request took
//! is not kept. The files have no header; a line of these names is passed over.
//!
//! Choice: a device has its disk number, unless another host of the trace has it already: then the next
//! free one.
//!
//! Source: SNIA IOTTA trace set 388, README.

use base::{Bytes, Nanos};

use super::fields::{device, number, split, time};
use super::lines::LineParser;
use super::sink::Sink;
use super::{Op, Reason, Request};

const COLUMNS: &str = "7: Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime";
const FILE_TIME: Nanos = Nanos(100);

/// Reads lines of seven columns.
#[derive(Default)]
pub(super) struct Msr {
    begun: bool,
    /// Host and disk of the last line, `host,disk`, and the number they have.
    last: (Vec<u8>, u32),
}

impl Msr {
    /// Host and disk hardly ever change from line to line.
    fn device(&mut self, host: &[u8], disk: &[u8], sink: &mut Sink<'_>) -> Result<u32, Reason> {
        let (name, number) = &mut self.last;
        if let Some((known, rest)) = name.split_at_checked(host.len())
            && known == host
            && rest.split_first() == Some((&b',', disk))
        {
            return Ok(*number);
        }
        let preferred = device("disk number", disk)?;
        let both = [host, b",", disk].concat();
        *number = sink.device(&both, Some(preferred))?;
        *name = both;
        Ok(*number)
    }
}

impl LineParser for Msr {
    fn line(&mut self, line: &[u8], sink: &mut Sink<'_>) -> Result<(), Reason> {
        if !std::mem::replace(&mut self.begun, true) && line.starts_with(b"Timestamp,") {
            return Ok(());
        }
        let [at, host, disk, op, offset, size, _] = split(line, b',', COLUMNS)?;
        let op = match op {
            b"Read" | b"read" | b"R" => Op::Read,
            b"Write" | b"write" | b"W" => Op::Write,
            other => {
                return Err(Reason::Operation {
                    text: Reason::shown(other),
                    known: "Read and Write",
                });
            }
        };
        let request = Request {
            at: time(at, FILE_TIME)?,
            offset: Bytes(number("offset", offset)?),
            size: Bytes(number("size", size)?),
            device: self.device(host, disk, sink)?,
            op,
        };
        sink.push(request)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{counted, named, read_as, refusal, req};
    use super::super::{Format, ReadOptions};
    use super::*;

    const SAMPLE: &str = "128166372003061629,src1,0,Read,8986374144,65536,4523\n\
                          128166372003061630,src1,1,Write,4096,512,991\n\
                          128166372003062629,usr,0,Read,0,4096,7\n\
                          128166372003062629,src1,0,Write,512,512,8\n";

    #[test]
    fn lines_become_requests_and_a_second_host_gets_a_device_of_its_own() {
        let (all, trace) = read_as(SAMPLE.as_bytes(), &ReadOptions::default()).expect("read");
        assert_eq!(trace.format(), Format::Msr);
        assert_eq!(
            all,
            [
                req(0, Op::Read, 8_986_374_144, 65536, 0),
                req(100, Op::Write, 4096, 512, 1),
                req(100_000, Op::Read, 0, 4096, 2),
                req(100_000, Op::Write, 512, 512, 0),
            ]
        );
        let names = ["src1,0", "src1,1", "usr,0"].map(str::to_owned);
        let expected: Vec<(u32, String)> = (0..).zip(names).collect();
        assert_eq!(trace.device_names(), expected);
    }

    #[test]
    fn requests_recorded_late_find_their_place() {
        let mut lines: Vec<&str> = SAMPLE.lines().collect();
        lines.swap(0, 3);
        let (all, trace) =
            read_as(lines.join("\n").as_bytes(), &ReadOptions::default()).expect("read");
        assert_eq!(all[0], req(0, Op::Read, 8_986_374_144, 65536, 0));
        assert_eq!(trace.disorder().count, 2);
        assert_eq!(trace.disorder().most, Nanos(100_000));
    }

    #[test]
    fn time_running_backwards_by_an_hour_is_refused() {
        let text = format!("{SAMPLE}128166336003061629,src1,0,Read,0,512,8\n");
        let sentence = refusal(text.as_bytes(), &named(Format::Msr));
        assert!(
            sentence.starts_with(
                "sample, line 5 (byte 179): time runs backwards by 3600.00 s, from 12816637200306262900 ns to \
                 12816633600306162900 ns; at most 5.00 s of disorder is put right"
            ),
            "{sentence}"
        );
    }

    #[test]
    fn bad_lines_say_what_is_wrong() {
        for (line, why) in [
            ("128166372003061629,src1,0,Read,0,512", "6 columns where 7"),
            ("x,src1,0,Read,0,512,1", "'x' is no time"),
            ("-5,src1,0,Read,0,512,1", "'-5' is no time"),
            ("999999999999999999999,src1,0,Read,0,512,1", "is no time"),
            (
                "128166372003061629,src1,0,Erase,0,512,1",
                "'Erase' is no operation of this format; it knows Read and Write",
            ),
            (
                "128166372003061629,src1,0,Read,-1,512,1",
                "'-1' in the place of the offset",
            ),
            (
                "128166372003061629,src1,0,Read,0,0,1",
                "a request of 0 bytes",
            ),
            (
                "128166372003061629,src1,-,Read,0,512,1",
                "'-' in the place of the disk number",
            ),
            (
                "128166372003061629,src1,0,Read,9223372036854775808,512,1",
                "ends beyond 2^63",
            ),
        ] {
            let text = format!("{SAMPLE}{line}\n");
            let (all, trace) = read_as(text.as_bytes(), &counted(Format::Msr)).expect("counted");
            assert_eq!(all.len(), 4);
            let reason = trace.malformed().first[0].reason.to_string();
            assert!(reason.contains(why), "{line}: {reason}");
        }
    }
}
