//! Our normal form, as CSV.
//!
//! ```text
//! t_us,op,offset,size,dev
//! 0,R,4096,512,0
//! 17,F,0,0,0
//! ```
//!
//! Microseconds from the first request; R (read), W (write), D (discard) or F (flush); first byte; bytes;
//! number of the device. Requests stand in order of time. Every trace can be written in it, and nothing
//! reads faster: numbers are gathered byte by byte, with no search for the end of a line before.
//!
//! Choice: a file without the header is read too when the format is named; recognised is only one with it.

use base::{Bytes, Nanos};

use super::fields::{device, number, split};
use super::lines::{LineParser, Lines};
use super::sink::{Decoder, Sink};
use super::{Op, Place, Reason, Request, TraceError};

/// The first line.
pub const HEADER: &str = "t_us,op,offset,size,dev";

const COLUMNS: &str = "5: t_us,op,offset,size,dev";
const MICROSECOND: u64 = 1_000;

/// Reads the normal form.
pub(super) struct Normal {
    lines: Lines<Careful>,
}

impl Normal {
    pub(super) fn new() -> Normal {
        Normal {
            lines: Lines::new(Careful { first: true }),
        }
    }
}

impl Decoder for Normal {
    fn decode(
        &mut self,
        input: &[u8],
        last: bool,
        sink: &mut Sink<'_>,
    ) -> Result<usize, TraceError> {
        self.lines.decode(input, last, sink)
    }

    fn place(&self) -> Place {
        self.lines.place()
    }
}

/// Reads any line, and says what is wrong with it.
struct Careful {
    first: bool,
}

impl LineParser for Careful {
    fn line(&mut self, line: &[u8], sink: &mut Sink<'_>) -> Result<(), Reason> {
        if std::mem::take(&mut self.first) && line.trim_ascii() == HEADER.as_bytes() {
            return Ok(());
        }
        let [at, op, offset, size, disk] = split(line, b',', COLUMNS)?;
        let op = match op.trim_ascii() {
            b"R" => Op::Read,
            b"W" => Op::Write,
            b"D" => Op::Discard,
            b"F" => Op::Flush,
            other => {
                return Err(Reason::Operation {
                    text: Reason::shown(other),
                    known: "R, W, D and F",
                });
            }
        };
        let micros = number("time", at)?;
        let at = micros
            .checked_mul(MICROSECOND)
            .ok_or_else(|| Reason::Time {
                text: Reason::shown(at),
            })?;
        sink.push(Request {
            at: Nanos(at),
            offset: Bytes(number("offset", offset)?),
            size: Bytes(number("size", size)?),
            device: device("device", disk)?,
            op,
        })
    }
}
