//! `.lis` traces of the ARC paper.
//!
//! ```text
//! first count 0 number      columns apart by white space
//! 230027 8 0 0
//! ```
//!
//! A request for `count` pages of 512 bytes from page `first`; the other columns say nothing about it.
//!
//! Choice: the traces know neither time nor reads from writes. Every request is a read, and they come 1 ms
//! apart, so that a minute holds 60,000; another unit of time puts them so far apart.

use base::{Bytes, Nanos};

use super::fields::{sectors, words};
use super::lines::LineParser;
use super::sink::Sink;
use super::{Op, Reason, Request, TraceError};

const COLUMNS: &str = "4: first count 0 number";

/// Reads lines of four columns.
pub(super) struct Lis {
    apart: Nanos,
    next: Nanos,
}

impl Lis {
    pub(super) fn new() -> Lis {
        Lis {
            apart: Nanos::millis(1),
            next: Nanos(0),
        }
    }
}

impl LineParser for Lis {
    fn begin(&mut self, _block: &[u8], sink: &mut Sink<'_>) -> Result<(), TraceError> {
        self.apart = sink.tick().unwrap_or(self.apart);
        let note = format!(
            "{}: the trace knows neither time nor writes: reads, {} apart (--tick says otherwise)",
            sink.file(),
            self.apart
        );
        sink.note(note);
        Ok(())
    }

    fn line(&mut self, line: &[u8], sink: &mut Sink<'_>) -> Result<(), Reason> {
        let [first, count, _, _] = words(line, COLUMNS)?;
        sink.push(Request {
            at: self.next,
            offset: Bytes(sectors("first page", first)?),
            size: Bytes(sectors("count", count)?),
            device: 0,
            op: Op::Read,
        })?;
        self.next = Nanos(self.next.0.saturating_add(self.apart.0));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{counted, named, read_as, req};
    use super::super::{Format, ReadOptions};
    use super::*;

    const SAMPLE: &str = "230027 8 0 0\n1842745 64 0 1\n216082 1 50 2\n";

    #[test]
    fn lines_become_reads_a_millisecond_apart() {
        let (all, trace) = read_as(SAMPLE.as_bytes(), &ReadOptions::default()).expect("read");
        assert_eq!(trace.format(), Format::Lis);
        assert_eq!(
            all,
            [
                req(0, Op::Read, 230_027 * 512, 4096, 0),
                req(1_000_000, Op::Read, 1_842_745 * 512, 32768, 0),
                req(2_000_000, Op::Read, 216_082 * 512, 512, 0),
            ]
        );
        assert!(trace.notes()[0].contains("1.00 ms apart"));
    }

    #[test]
    fn the_unit_of_time_sets_them_apart() {
        let options = ReadOptions {
            tick: Some(Nanos::micros(1)),
            ..named(Format::Lis)
        };
        let (all, _) = read_as(SAMPLE.as_bytes(), &options).expect("read");
        assert_eq!(all[2].at, Nanos::micros(2));
    }

    #[test]
    fn a_request_for_no_page_is_malformed_and_takes_no_time() {
        let text = format!("5 0 0 0\n{SAMPLE}");
        let (all, trace) = read_as(text.as_bytes(), &counted(Format::Lis)).expect("counted");
        assert_eq!(
            (all.len(), all[0].at, all[2].at),
            (3, Nanos(0), Nanos::millis(2))
        );
        assert_eq!(trace.malformed().first[0].reason, Reason::ZeroSize);
    }
}
