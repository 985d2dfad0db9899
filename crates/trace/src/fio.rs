//! fio's iolog, versions 2 and 3.
//!
//! ```text
//! fio version 2 iolog                 fio version 3 iolog
//! /dev/sdb add                        0 /dev/sdb add
//! /dev/sdb open                       0 /dev/sdb open
//! /dev/sdb read 4096 8192             217 /dev/sdb read 4096 8192       217 us after the start
//! /dev/sdb wait 500 0                 900 /dev/sdb datasync 0 0
//! /dev/sdb close                      901 /dev/sdb close
//! ```
//!
//! Offsets and lengths are bytes, times microseconds. Files become devices 0, 1, ... in the order in which
//! they are named. `read`, `write`, `trim` (a discard), `sync`, `datasync` and `syncfs` (flushes) are requests;
//! `add`, `open`, `close`, `unlink` and `sync_file_range` are not.
//!
//! Source: "Trace file format" of fio's documentation.
//!
//! Choice: `sync_file_range` is left out with a note: it begins to write back a range of the page cache, and
//! promises neither that the range is on the medium nor that it outlives a loss of power.
//!
//! Choice: version 2 knows time only by `wait`, so all requests between two waits come at the same time.

use base::{Bytes, Nanos};

use super::fields::number;
use super::lines::LineParser;
use super::sink::Sink;
use super::{Format, Op, Reason, Request, TraceError};

const HEAD_2: &[u8] = b"fio version 2 iolog";
const HEAD_3: &[u8] = b"fio version 3 iolog";

const COLUMNS_2: &str = "2 or 4: file action [offset length]";
const COLUMNS_3: &str = "3 or 5: timestamp file action [offset length]";
const ACTIONS: &str = "read, write, trim, sync, datasync, syncfs, sync_file_range, wait (in version 2), add, \
                       open, close and unlink";

/// Reads lines of either version; the first line says which.
pub(super) struct Fio {
    version: u8,
    /// The first line has been read.
    begun: bool,
    /// How long version 2 has waited.
    waited: Nanos,
}

/// Does the file begin as an iolog does?
pub(super) fn looks(bytes: &[u8]) -> bool {
    bytes.starts_with(HEAD_2) || bytes.starts_with(HEAD_3)
}

impl Fio {
    pub(super) fn new() -> Fio {
        Fio {
            version: 3,
            begun: false,
            waited: Nanos(0),
        }
    }
}

impl LineParser for Fio {
    fn begin(&mut self, block: &[u8], sink: &mut Sink<'_>) -> Result<(), TraceError> {
        if !looks(block) {
            return Err(TraceError::Unsupported {
                file: sink.file().to_owned(),
                format: Format::Fio,
                why: "it does not begin with 'fio version 2 iolog' or 'fio version 3 iolog'"
                    .to_owned(),
            });
        }
        self.version = if block.starts_with(HEAD_2) { 2 } else { 3 };
        Ok(())
    }

    fn line(&mut self, line: &[u8], sink: &mut Sink<'_>) -> Result<(), Reason> {
        if !std::mem::replace(&mut self.begun, true) {
            return Ok(());
        }
        let mut words = line
            .split(u8::is_ascii_whitespace)
            .filter(|word| !word.is_empty());
        let found = words.clone().count();
        let wanted = if self.version == 2 {
            COLUMNS_2
        } else {
            COLUMNS_3
        };
        let mut next = || words.next().ok_or(Reason::Columns { found, wanted });
        let stamp = if self.version == 2 {
            None
        } else {
            Some(next()?)
        };
        let (file, action) = (next()?, next()?);
        let op = match action {
            b"wait" if self.version == 2 => {
                let wait = micros(next()?)?;
                let waited = self.waited.0.checked_add(wait.0);
                self.waited = waited.map(Nanos).ok_or_else(|| {
                    Reason::Other("the waits add up to more than 584 years".to_owned())
                })?;
                return Ok(());
            }
            b"sync_file_range" => {
                sink.device(file, None)?;
                sink.note("sync_file_range was left out: it makes nothing durable".to_owned());
                return Ok(());
            }
            action => match op_of(action)? {
                Some(op) => op,
                None => {
                    sink.device(file, None)?;
                    return Ok(());
                }
            },
        };
        // A sync may come without a place.
        let (offset, size) = match op {
            Op::Flush => (0, 0),
            _ => (number("offset", next()?)?, number("length", next()?)?),
        };
        let device = sink.device(file, None)?;
        sink.push(Request {
            at: stamp.map_or(Ok(self.waited), micros)?,
            offset: Bytes(offset),
            size: Bytes(size),
            device,
            op,
        })
    }
}

/// What an action asks of the device; `None` if nothing.
#[inline]
fn op_of(action: &[u8]) -> Result<Option<Op>, Reason> {
    Ok(Some(match action {
        b"add" | b"open" | b"close" | b"unlink" => return Ok(None),
        b"read" => Op::Read,
        b"write" => Op::Write,
        b"trim" => Op::Discard,
        b"sync" | b"datasync" | b"syncfs" => Op::Flush,
        other => {
            return Err(Reason::Operation {
                text: Reason::shown(other),
                known: ACTIONS,
            });
        }
    }))
}

fn micros(text: &[u8]) -> Result<Nanos, Reason> {
    let micros = number("time", text)?;
    micros
        .checked_mul(1_000)
        .map(Nanos)
        .ok_or_else(|| Reason::Time {
            text: Reason::shown(text),
        })
}

#[cfg(test)]
mod tests {
    use super::super::ReadOptions;
    use super::super::tests::{counted, named, read_as, refusal, req};
    use super::*;

    const THREE: &str = "fio version 3 iolog\n\
                         0 /dev/sdb add\n\
                         2 /dev/sdc add\n\
                         3 /dev/sdb open\n\
                         10 /dev/sdb read 4096 8192\n\
                         227 /dev/sdc write 0 512\n\
                         900 /dev/sdb datasync 0 0\n\
                         901 /dev/sdb trim 65536 4096\n\
                         905 /dev/sdb close\n";

    #[test]
    fn version_three_has_a_time_on_every_line() {
        let (all, trace) = read_as(THREE.as_bytes(), &ReadOptions::default()).expect("read");
        assert_eq!(trace.format(), Format::Fio);
        assert_eq!(
            all,
            [
                req(0, Op::Read, 4096, 8192, 0),
                req(217_000, Op::Write, 0, 512, 1),
                req(890_000, Op::Flush, 0, 0, 0),
                req(891_000, Op::Discard, 65536, 4096, 0),
            ]
        );
        assert_eq!(trace.device_names()[1], (1, "/dev/sdc".to_owned()));
    }

    #[test]
    fn version_two_has_time_only_where_it_waits() {
        let text = "fio version 2 iolog\n\
                    f add\nf open\n\
                    f read 0 4096\nf write 4096 4096\n\
                    f wait 500 0\n\
                    f sync 0 0\n\
                    f wait 250\n\
                    f read 8192 512\nf close\n";
        let (all, _) = read_as(text.as_bytes(), &ReadOptions::default()).expect("read");
        assert_eq!(
            all,
            [
                req(0, Op::Read, 0, 4096, 0),
                req(0, Op::Write, 4096, 4096, 0),
                req(500_000, Op::Flush, 0, 0, 0),
                req(750_000, Op::Read, 8192, 512, 0),
            ]
        );
    }

    #[test]
    fn only_what_makes_data_durable_is_a_flush() {
        let text = "fio version 3 iolog\n\
                    0 f add\n\
                    5 f write 0 4096\n\
                    7 f sync_file_range 0 4096\n\
                    9 f sync_file_range 0 0\n\
                    11 f syncfs 0 0\n";
        let (all, trace) = read_as(text.as_bytes(), &ReadOptions::default()).expect("read");
        assert_eq!(
            all,
            [
                req(0, Op::Write, 0, 4096, 0),
                req(6_000, Op::Flush, 0, 0, 0)
            ]
        );
        assert_eq!(
            trace.notes(),
            ["sync_file_range was left out: it makes nothing durable"]
        );
    }

    #[test]
    fn bad_lines_say_what_is_wrong() {
        for (line, why) in [
            ("950 /dev/sdb read 0", "4 columns where 3 or 5"),
            ("950 /dev/sdb wait 5 0", "'wait' is no operation"),
            ("x /dev/sdb read 0 512", "'x' in the place of the time"),
            ("950 /dev/sdb read 0 0", "a request of 0 bytes"),
            (
                "950 /dev/sdb read zero 512",
                "'zero' in the place of the offset",
            ),
        ] {
            let text = format!("{THREE}{line}\n");
            let (_, trace) = read_as(text.as_bytes(), &counted(Format::Fio)).expect("counted");
            let reason = trace.malformed().first[0].reason.to_string();
            assert!(reason.contains(why), "{line}: {reason}");
        }
        assert_eq!(
            refusal(b"fio version 1 iolog\n", &named(Format::Fio)),
            "sample cannot be read as fio: it does not begin with 'fio version 2 iolog' or 'fio version 3 iolog'"
        );
    }
}
