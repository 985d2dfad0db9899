//! Text printed by blkparse in its default form.
//!
//! ```text
//! device cpu number seconds     pid  action flags  sector + sectors [process]
//!   8,0    3      1 0.000000000 697   Q      W     223490 + 8 [kjournald]
//!   8,0    3      2 0.000041115 697   Q      FN    [kjournald]
//! ```
//!
//! A request is a `Q` (queued) event; where the start of a file has none, a `D` (issued to the driver).
//! In the flags R is a read, W a write, D a discard, a leading F with no sectors a flush; events that move
//! no data otherwise, and zone commands, are no requests. Sectors have 512 bytes. Lines that begin with a
//! letter are blkparse's summary.
//!
//! Choice: a device has its minor number, unless another major has it already: then the next free one. A
//! write that asks for a flush before it (`FW`) is a write.
//!
//! Source: blkparse(1), "Output"; the flags are those of the kernel's `blk_fill_rwbs`.

use base::{Bytes, Nanos};

use super::fields::{device, sectors, time};
use super::lines::LineParser;
use super::sink::Sink;
use super::{Op, Reason, Request, TraceError};

const COLUMNS: &str = "7 or more: device cpu number seconds pid action flags [sector + sectors]";

/// Reads events of one action.
pub(super) struct Blkparse {
    action: u8,
}

impl Blkparse {
    pub(super) fn new() -> Blkparse {
        Blkparse { action: b'Q' }
    }
}

/// One line, split.
struct Event<'a> {
    device: &'a [u8],
    seconds: &'a [u8],
    action: &'a [u8],
    flags: &'a [u8],
    /// Where and how much, in sectors.
    run: Option<(&'a [u8], &'a [u8])>,
}

fn event(line: &[u8]) -> Result<Event<'_>, Reason> {
    let mut words = line
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty());
    let mut found = 0;
    let mut next = || {
        found += 1;
        words.next().ok_or(Reason::Columns {
            found: found - 1,
            wanted: COLUMNS,
        })
    };
    let device = next()?;
    let (_cpu, _number) = (next()?, next()?);
    let seconds = next()?;
    let _pid = next()?;
    let (action, flags) = (next()?, next()?);
    let run = match (words.next(), words.next(), words.next()) {
        (Some(sector), Some(b"+"), Some(count)) => Some((sector, count)),
        _ => None,
    };
    Ok(Event {
        device,
        seconds,
        action,
        flags,
        run,
    })
}

impl LineParser for Blkparse {
    fn begin(&mut self, block: &[u8], sink: &mut Sink<'_>) -> Result<(), TraceError> {
        let has = |action: &[u8]| {
            block
                .split(|&byte| byte == b'\n')
                .any(|line| event(line).is_ok_and(|event| event.action == action))
        };
        if !has(b"Q") && has(b"D") {
            self.action = b'D';
            let note = format!(
                "{}: no request is recorded as queued (Q); its requests are those issued to the driver (D)",
                sink.file()
            );
            sink.note(note);
        }
        Ok(())
    }

    fn line(&mut self, line: &[u8], sink: &mut Sink<'_>) -> Result<(), Reason> {
        let line = line.trim_ascii_start();
        if line.first().is_some_and(u8::is_ascii_alphabetic) {
            return Ok(());
        }
        let event = event(line)?;
        if event.action != [self.action] {
            return Ok(());
        }
        let Some(op) = operation(event.flags, event.run.is_some()) else {
            return Ok(());
        };
        let (offset, size) = match event.run {
            Some((sector, count)) => (sectors("sector", sector)?, sectors("size", count)?),
            None => (0, 0),
        };
        let minor = event.device.split(|&byte| byte == b',').nth(1);
        let minor = device("minor number", minor.unwrap_or(event.device))?;
        let device = sink.device(event.device, Some(minor))?;
        sink.push(Request {
            at: time(event.seconds, Nanos::secs(1))?,
            offset: Bytes(offset),
            size: Bytes(size),
            device,
            op,
        })
    }
}

/// What the flags of an event ask for; none if that is no request.
fn operation(flags: &[u8], data: bool) -> Option<Op> {
    let (flush, rest) = match flags {
        [b'F', rest @ ..] => (true, rest),
        _ => (false, flags),
    };
    match (rest.first(), data) {
        (_, false) => flush.then_some(Op::Flush),
        (Some(b'R'), true) => Some(Op::Read),
        (Some(b'W'), true) => Some(Op::Write),
        (Some(b'D'), true) => Some(Op::Discard),
        (_, true) => flush.then_some(Op::Flush),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{counted, read_as, req};
    use super::super::{Format, ReadOptions};
    use super::*;

    const SAMPLE: &str = "\
  8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]
  8,0    3        2     0.000001829   697  G   W 223490 + 8 [kjournald]
  8,0    3        3     0.000002197   697  P   N [kjournald]
  8,0    3        4     0.000005000   697  D   W 223490 + 8 [kjournald]
  8,0    0        0     0.000006000     0  m   N cfq697 insert_request
  8,16   1        5     0.000041115   701  Q  RA 2048 + 16 [cat]
  8,0    1        6     0.000050000   701  Q  DS 4096 + 1024 [fstrim]
  8,0    1        7     0.000060000   701  Q FWS [jbd2/sda1-8]
  8,0    1        8     0.000070000   701  Q FWS 64 + 8 [jbd2/sda1-8]
  8,0    1        9     0.000080000   701  Q   N [smartctl]
  8,0    1        9     0.000090000   701  Q   R 36 (12 00 00 00 24 00) [smartctl]
253,0    1       10     0.000100000   701  Q  WS 8 + 8 [dd]
  8,0    1       11     0.000400000     0  C   W 223490 + 8 [0]
CPU3 (sda):
 Reads Queued:           0,        0KiB\t Writes Queued:           1,        4KiB
Total (sda):
Throughput (R/W): 0KiB/s / 4KiB/s
Events (sda): 11 entries
Skips: 0 forward (0 -   0.0%)
";

    #[test]
    fn queued_events_become_requests() {
        let (all, trace) = read_as(SAMPLE.as_bytes(), &ReadOptions::default()).expect("read");
        assert_eq!(trace.format(), Format::Blkparse);
        assert_eq!(
            all,
            [
                req(0, Op::Write, 223_490 * 512, 4096, 0),
                req(41_115, Op::Read, 2048 * 512, 8192, 16),
                req(50_000, Op::Discard, 4096 * 512, 1024 * 512, 0),
                req(60_000, Op::Flush, 0, 0, 0),
                req(70_000, Op::Write, 64 * 512, 4096, 0),
                // Its minor number, 0, is taken.
                req(100_000, Op::Write, 4096, 4096, 1),
            ]
        );
        assert_eq!(trace.device_names().last(), Some(&(1, "253,0".to_owned())));
    }

    #[test]
    fn where_nothing_is_queued_the_driver_is_asked() {
        let text = "8,0 3 4 0.5 697 D W 223490 + 8 [a]\n8,0 3 5 0.75 0 C W 223490 + 8 [0]\n";
        let (all, trace) = read_as(text.as_bytes(), &ReadOptions::default()).expect("read");
        assert_eq!(all, [req(0, Op::Write, 223_490 * 512, 4096, 0)]);
        assert!(trace.notes()[0].contains("issued to the driver (D)"));
    }

    #[test]
    fn zone_commands_are_no_requests() {
        assert_eq!(operation(b"ZR", true), None);
        assert_eq!(operation(b"FF", false), Some(Op::Flush));
        assert_eq!(operation(b"DE", true), Some(Op::Discard));
    }

    #[test]
    fn bad_lines_say_what_is_wrong() {
        for (line, why) in [
            ("8,0 3 1 0.5 697 Q", "6 columns where 7 or more"),
            ("8,0 3 1 soon 697 Q W 8 + 8 [a]", "'soon' is no time"),
            (
                "8,0 3 1 0.5 697 Q W x + 8 [a]",
                "'x' in the place of the sector",
            ),
            ("8,0 3 1 0.5 697 Q W 8 + 0 [a]", "a request of 0 bytes"),
            (
                "8;0 3 1 0.5 697 Q W 8 + 8 [a]",
                "'8;0' in the place of the minor number",
            ),
        ] {
            let text = format!("{SAMPLE}{line}\n");
            let (_, trace) = read_as(text.as_bytes(), &counted(Format::Blkparse)).expect("counted");
            let reason = trace.malformed().first[0].reason.to_string();
            assert!(reason.contains(why), "{line}: {reason}");
        }
    }
}
