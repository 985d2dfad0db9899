//! CSV traces of libCacheSim: a request for an object a line, in columns that a header names.
//!
//! ```text
//! version,time,op,size,lbn
//! 1,33898,2a,512,42932745
//! ```
//!
//! Needed is the object; time, size and operation may be missing: then requests come 1 ms apart, have 512
//! bytes, are reads. Time counts seconds unless another unit is asked for. Columns are found by the names
//! in the header (in either case), or where [`super::ReadOptions::columns`] says; without either they
//! are time, object, size. The separator is the comma, tab, semicolon, bar or space the first line has
//! most of. An operation is a word (`read`, `get`, `set`, `delete`, ...) or a SCSI command in hexadecimal,
//! as the vscsi sample of libCacheSim has it.
//!
//! Choice: `object.rs` says where an object lies.

use base::{Bytes, Nanos};

use super::fields::{number, time};
use super::lines::LineParser;
use super::object;
use super::sink::Sink;
use super::{Format, Op, Reason, Request, TraceError};

/// The size of an object that says none.
const SIZE: u64 = 512;

/// What a column may hold: how `--columns` calls it, and the names a header may give it.
const KINDS: [(&str, &[&str]); 4] = [
    (
        "time",
        &["time", "timestamp", "ts", "t", "clock_time", "real_time"],
    ),
    (
        "obj",
        &[
            "obj",
            "obj_id",
            "objid",
            "object",
            "object_id",
            "id",
            "key",
            "lbn",
            "lba",
            "block",
            "block_id",
        ],
    ),
    (
        "size",
        &["size", "obj_size", "object_size", "length", "len", "bytes"],
    ),
    ("op", &["op", "operation", "opcode", "cmd", "command"]),
];

/// Where time, object, size and operation stand, counting from 0.
type Columns = [Option<usize>; KINDS.len()];

/// Reads lines whose columns the first block has named.
#[derive(Default)]
pub(super) struct CacheCsv {
    separator: u8,
    columns: Columns,
    /// How many columns a line must have at least.
    needed: usize,
    /// The first line names the columns and has not been passed over.
    header: bool,
    tick: Nanos,
    next: Nanos,
}

/// Does the file begin with a header that names time and object?
pub(super) fn looks(bytes: &[u8]) -> bool {
    let line = first_line(bytes);
    let columns = by_header(line, separator(line));
    columns[0].is_some() && columns[1].is_some()
}

fn first_line(bytes: &[u8]) -> &[u8] {
    bytes
        .split(|&byte| byte == b'\n')
        .next()
        .unwrap_or_default()
        .trim_ascii()
}

fn separator(line: &[u8]) -> u8 {
    let count = |wanted: u8| line.iter().filter(|&&byte| byte == wanted).count();
    // The first of the most: `max_by_key` takes the last of equals.
    b" |;\t,"
        .iter()
        .copied()
        .max_by_key(|&byte| count(byte))
        .unwrap_or(b',')
}

/// The name of a column as names are compared.
fn plain(name: &[u8]) -> String {
    String::from_utf8_lossy(name.trim_ascii())
        .trim_matches(['#', '"', '\''])
        .to_ascii_lowercase()
        .replace('-', "_")
}

fn by_header(line: &[u8], separator: u8) -> Columns {
    let names: Vec<String> = line.split(|&byte| byte == separator).map(plain).collect();
    KINDS.map(|(_, known)| names.iter().position(|name| known.contains(&name.as_str())))
}

/// Columns as asked for: `time=1,obj=lbn`.
fn as_asked(asked: &str, header: &[u8], separator: u8) -> Result<Columns, String> {
    let mut columns = Columns::default();
    for part in asked.split(',') {
        let wrong = || {
            format!(
                "'{part}' in the columns '{asked}' is not KIND=COLUMN; the kinds are time, obj, size and op, and \
                 a column is its number from 1 or its name in the first line"
            )
        };
        let (kind, column) = part.split_once('=').ok_or_else(wrong)?;
        let kind = KINDS
            .iter()
            .position(|(name, _)| *name == kind.trim())
            .ok_or_else(wrong)?;
        let at = match column.trim().parse::<usize>() {
            Ok(number) => number.checked_sub(1),
            Err(_) => header
                .split(|&byte| byte == separator)
                .position(|name| plain(name) == plain(column.as_bytes())),
        };
        columns[kind] = Some(at.ok_or_else(wrong)?);
    }
    Ok(columns)
}

impl LineParser for CacheCsv {
    fn begin(&mut self, block: &[u8], sink: &mut Sink<'_>) -> Result<(), TraceError> {
        let line = first_line(block);
        self.separator = separator(line);
        let named = by_header(line, self.separator);
        let unusable = |why: String, sink: &Sink<'_>| TraceError::Unsupported {
            file: sink.file().to_owned(),
            format: Format::CacheCsv,
            why,
        };
        // A header has no number in it.
        self.header = line
            .split(|&byte| byte == self.separator)
            .all(|name| number("name", name).is_err());
        self.columns = match &sink.options.columns {
            Some(asked) => {
                as_asked(asked, line, self.separator).map_err(|why| unusable(why, sink))?
            }
            None if self.header => named,
            None => [Some(0), Some(1), Some(2), None],
        };
        if self.columns[1].is_none() {
            let line = Reason::shown(line);
            let why = format!(
                "no column of its first line, '{line}', is an object by name; say which is with \
                 --columns obj=N,time=N,size=N"
            );
            return Err(unusable(why, sink));
        }
        self.needed = self
            .columns
            .iter()
            .flatten()
            .max()
            .map_or(0, |last| last + 1);
        self.tick = match (sink.tick(), self.columns[0]) {
            (Some(tick), _) => tick,
            (None, Some(_)) => Nanos::secs(1),
            (None, None) => Nanos::millis(1),
        };
        Ok(())
    }

    fn line(&mut self, line: &[u8], sink: &mut Sink<'_>) -> Result<(), Reason> {
        if std::mem::take(&mut self.header) {
            return Ok(());
        }
        let mut kinds: [Option<&[u8]>; KINDS.len()] = [None; KINDS.len()];
        let mut found = 0;
        for text in line.split(|&byte| byte == self.separator) {
            for (kind, column) in kinds.iter_mut().zip(&self.columns) {
                if *column == Some(found) {
                    *kind = Some(text.trim_ascii());
                }
            }
            found += 1;
        }
        if found < self.needed {
            return Err(Reason::Columns {
                found,
                wanted: "those with time, object, size and operation",
            });
        }
        let [at, object, size, op] = kinds;
        let object = object.unwrap_or_default();
        if object.is_empty() {
            return Err(Reason::Other("no object in its column".to_owned()));
        }
        let number_of = number("object", object).unwrap_or_else(|_| object::of_name(object));
        sink.push(Request {
            at: at.map_or(Ok(self.next), |text| time(text, self.tick))?,
            offset: object::place(number_of),
            size: Bytes(size.map_or(Ok(SIZE), |text| number("size", text))?),
            device: 0,
            op: op.map_or(Ok(Op::Read), operation)?,
        })?;
        self.next = Nanos(self.next.0.saturating_add(self.tick.0));
        Ok(())
    }
}

fn operation(text: &[u8]) -> Result<Op, Reason> {
    match plain(text).as_str() {
        "r" | "read" | "get" | "gets" | "head" | "08" | "28" | "88" | "a8" => Ok(Op::Read),
        "w" | "write" | "set" | "put" | "add" | "replace" | "cas" | "append" | "prepend"
        | "incr" | "decr" | "0a" | "2a" | "8a" | "aa" => Ok(Op::Write),
        "d" | "discard" | "trim" | "delete" | "del" | "42" => Ok(Op::Discard),
        _ => Err(Reason::Operation {
            text: Reason::shown(text),
            known: "words such as read, write, get, set, delete, and SCSI commands in hexadecimal",
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::ReadOptions;
    use super::super::tests::{named, read_as, refusal, req};
    use super::*;

    fn with_columns(columns: &str) -> ReadOptions {
        ReadOptions {
            columns: Some(columns.to_owned()),
            ..named(Format::CacheCsv)
        }
    }

    #[test]
    fn columns_are_found_by_the_names_in_the_header() {
        let text = "version,time,op,size,lbn\n1,33898,2a,512,42932745\n1,33899,28,6656,40409911\n";
        let (all, trace) = read_as(text.as_bytes(), &ReadOptions::default()).expect("read");
        assert_eq!(trace.format(), Format::CacheCsv);
        assert_eq!(
            all,
            [
                req(0, Op::Write, 42_932_745 * 512, 512, 0),
                req(1_000_000_000, Op::Read, 40_409_911 * 512, 6656, 0),
            ]
        );
    }

    #[test]
    fn without_a_header_they_are_time_object_size() {
        let text = "7\t12\t4096\n8\t13\t512\n";
        let (all, _) = read_as(text.as_bytes(), &named(Format::CacheCsv)).expect("read");
        assert_eq!(
            all,
            [
                req(0, Op::Read, 12 * 512, 4096, 0),
                req(1_000_000_000, Op::Read, 13 * 512, 512, 0),
            ]
        );
        let sentence = refusal(text.as_bytes(), &ReadOptions::default());
        assert!(sentence.contains("name it with --format"), "{sentence}");
    }

    #[test]
    fn columns_can_be_said_by_number_or_name() {
        let text = "what;who;when\nget;a;0.5\nset;b;0.75\n";
        for columns in ["op=1,obj=2,time=3", "time=when,obj=who,op=what"] {
            let (all, _) = read_as(text.as_bytes(), &with_columns(columns)).expect("read");
            assert_eq!(all.len(), 2, "{columns}");
            assert_eq!((all[0].op, all[1].op), (Op::Read, Op::Write));
            assert_eq!(all[1].at, Nanos::millis(250));
            assert_ne!(all[0].offset, all[1].offset);
        }
        let sentence = refusal(text.as_bytes(), &with_columns("obj=where"));
        assert!(
            sentence.starts_with("sample cannot be read as cache-csv: 'obj=where' in the columns"),
            "{sentence}"
        );
    }

    #[test]
    fn a_list_of_objects_is_a_trace() {
        let (all, _) = read_as(b"5\n6\n5\n", &with_columns("obj=1")).expect("read");
        assert_eq!(all[1], req(1_000_000, Op::Read, 6 * 512, 512, 0));
        assert_eq!(all[0].offset, all[2].offset);
    }

    #[test]
    fn bad_lines_say_what_is_wrong() {
        for (line, why) in [
            ("7,1", "2 columns where those with time"),
            ("7,,512", "no object in its column"),
            ("soon,1,512", "'soon' is no time"),
            ("7,1,many", "'many' in the place of the size"),
            ("7,1,0", "a request of 0 bytes"),
        ] {
            let text = format!("6,1,512\n{line}\n");
            let sentence = refusal(text.as_bytes(), &named(Format::CacheCsv));
            assert!(sentence.contains(why), "{line}: {sentence}");
        }
    }
}
