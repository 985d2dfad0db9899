//! Block traces of two clouds: Alibaba's and Tencent's.
//!
//! ```text
//! Alibaba   device_id,opcode,offset,length,timestamp     419,W,8792731648,16384,1577808144360767
//!           offset and length in bytes, R or W, microseconds since 1970
//! Tencent   timestamp,offset,size,iotype,volume_id       1538323200,12910952,128,0,1063
//!           seconds since 1970, sectors of 512 bytes, 0 read or 1 write
//! ```
//!
//! Source: the README files of Alibaba's block-traces and of SNIA IOTTA trace set 27917 (Tencent CBS).
//! Both may begin with a line of these names.

use base::{Bytes, Nanos};

use super::fields::{device, number, sectors, split, time};
use super::lines::LineParser;
use super::sink::Sink;
use super::{Op, Reason, Request};

const ALIBABA: &str = "5: device_id,opcode,offset,length,timestamp";
const TENCENT: &str = "5: timestamp,offset,size,iotype,volume_id";

/// Reads Alibaba's lines.
#[derive(Default)]
pub(super) struct Alibaba {
    begun: bool,
}

impl LineParser for Alibaba {
    fn line(&mut self, line: &[u8], sink: &mut Sink<'_>) -> Result<(), Reason> {
        if !std::mem::replace(&mut self.begun, true) && line.starts_with(b"device_id,") {
            return Ok(());
        }
        let [disk, op, offset, size, at] = split(line, b',', ALIBABA)?;
        let op = match op {
            b"R" => Op::Read,
            b"W" => Op::Write,
            other => {
                return Err(Reason::Operation {
                    text: Reason::shown(other),
                    known: "R and W",
                });
            }
        };
        sink.push(Request {
            at: time(at, Nanos::micros(1))?,
            offset: Bytes(number("offset", offset)?),
            size: Bytes(number("length", size)?),
            device: device("device", disk)?,
            op,
        })
    }
}

/// Reads Tencent's lines.
#[derive(Default)]
pub(super) struct Tencent {
    begun: bool,
}

impl LineParser for Tencent {
    fn line(&mut self, line: &[u8], sink: &mut Sink<'_>) -> Result<(), Reason> {
        if !std::mem::replace(&mut self.begun, true)
            && line.first().is_some_and(u8::is_ascii_alphabetic)
        {
            return Ok(());
        }
        let [at, offset, size, op, volume] = split(line, b',', TENCENT)?;
        let op = match op {
            b"0" => Op::Read,
            b"1" => Op::Write,
            other => {
                return Err(Reason::Operation {
                    text: Reason::shown(other),
                    known: "0 (read) and 1 (write)",
                });
            }
        };
        sink.push(Request {
            at: time(at, Nanos::secs(1))?,
            offset: Bytes(sectors("offset", offset)?),
            size: Bytes(sectors("size", size)?),
            device: device("volume", volume)?,
            op,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{counted, read_as, req};
    use super::super::{Format, ReadOptions};
    use super::*;

    const OF_ALIBABA: &str = "419,W,8792731648,16384,1577808144360767\n\
                              725,R,59110326272,360448,1577808144360813\n";
    const OF_TENCENT: &str = "1538323200,12910952,128,0,1063\n1538323201,6338688,8,1,1627\n";

    #[test]
    fn lines_of_alibaba_become_requests() {
        let header = "device_id,opcode,offset,length,timestamp\n";
        for text in [OF_ALIBABA.to_owned(), format!("{header}{OF_ALIBABA}")] {
            let (all, trace) = read_as(text.as_bytes(), &ReadOptions::default()).expect("read");
            assert_eq!(trace.format(), Format::Alibaba);
            assert_eq!(
                all,
                [
                    req(0, Op::Write, 8_792_731_648, 16384, 419),
                    req(46_000, Op::Read, 59_110_326_272, 360_448, 725),
                ]
            );
        }
    }

    #[test]
    fn lines_of_tencent_become_requests() {
        let header = "Timestamp,Offset,Size,IOType,VolumeID\n";
        for text in [OF_TENCENT.to_owned(), format!("{header}{OF_TENCENT}")] {
            let (all, trace) = read_as(text.as_bytes(), &ReadOptions::default()).expect("read");
            assert_eq!(trace.format(), Format::Tencent);
            assert_eq!(
                all,
                [
                    req(0, Op::Read, 12_910_952 * 512, 65536, 1063),
                    req(1_000_000_000, Op::Write, 6_338_688 * 512, 4096, 1627),
                ]
            );
        }
    }

    #[test]
    fn bad_lines_say_what_is_wrong() {
        for (format, before, line, why) in [
            (
                Format::Alibaba,
                OF_ALIBABA,
                "1,X,0,512,1577808144360813",
                "'X' is no operation",
            ),
            (
                Format::Alibaba,
                OF_ALIBABA,
                "1,R,0,0,1577808144360813",
                "a request of 0 bytes",
            ),
            (
                Format::Alibaba,
                OF_ALIBABA,
                "1,R,0,512",
                "4 columns where 5",
            ),
            (
                Format::Tencent,
                OF_TENCENT,
                "1538323202,1,8,2,1",
                "0 (read) and 1 (write)",
            ),
            (
                Format::Tencent,
                OF_TENCENT,
                "soon,1,8,1,1",
                "'soon' is no time",
            ),
        ] {
            let text = format!("{before}{line}\n");
            let (_, trace) = read_as(text.as_bytes(), &counted(format)).expect("counted");
            let reason = trace.malformed().first[0].reason.to_string();
            assert!(reason.contains(why), "{line}: {reason}");
        }
    }
}
