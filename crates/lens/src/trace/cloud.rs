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
