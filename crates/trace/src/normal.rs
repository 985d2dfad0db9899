//! Our normal form, as CSV.
//!
//! ```text
//! t_us,op,offset,size,dev
//! 0,R,4096,512,0
//! 17,F,0,0,0
//! ```
//!
//! Microseconds from the first request; R (read), W (write), D (discard) or F (flush); first byte; bytes;
//! number of the device. Requests stand in order of time. A line that begins with `#` is a remark for people;
//! one right behind the header says that the trace was generated, if it was.
//!
//! It is read twice as fast as by searching for line ends and commas first: digits are gathered eight at a
//! time, and where they end the next column begins. A line that is not just so - the header, a blank
//! more, a mistake - is read again by a careful parser, which says what is wrong.
//!
//! Choice: a file without the header is read too when the format is named; recognised is only one with it.

use base::{Bytes, Nanos};

use super::fields::{device, number, split};
use super::lines::{LineParser, Lines};
use super::sink::{Decoder, Sink};
use super::{Op, Place, Reason, Request, TraceError};

/// The first line.
pub const HEADER: &str = "t_us,op,offset,size,dev";

/// The remark that begins so says that the trace was generated, not recorded, and how.
pub const GENERATED: &str = "generated: ";

const COLUMNS: &str = "5: t_us,op,offset,size,dev";
const MICROSECOND: u64 = 1_000;
/// Remarks are shown up to this length.
const REMARK_MAX: usize = 400;

/// Is the first line the header?
pub(super) fn looks(bytes: &[u8]) -> bool {
    let first = bytes.split(|&byte| byte == b'\n').next();
    first.is_some_and(|line| line.trim_ascii() == HEADER.as_bytes())
}

/// A remark as it is handed on.
pub(super) fn shown(remark: &[u8]) -> String {
    let remark = &remark[..remark.len().min(REMARK_MAX)];
    String::from_utf8_lossy(remark.trim_ascii())
        .escape_debug()
        .collect()
}

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
        let mut at = 0;
        loop {
            while self.lines.at_line()
                && let Some((request, length)) = plain(&input[at..])
            {
                let pushed = sink.push(request);
                self.lines.passed(at, pushed, sink)?;
                at += length;
            }
            match self.lines.step(input, at, last, sink)? {
                Some(next) => at = next,
                None => return Ok(at),
            }
        }
    }

    fn place(&self) -> Place {
        self.lines.place()
    }
}

/// The longest plain line: four numbers of 15 places, the operation, separators and the end make 66, and
/// digits are looked at eight at a time.
const WINDOW: usize = 72;

/// The request of a line without anything unusual, and the length of the line with its end.
#[inline]
fn plain(bytes: &[u8]) -> Option<(Request, usize)> {
    let line = bytes.first_chunk::<WINDOW>()?;
    let (micros, at) = digits(line, 0)?;
    let op = match line[at..at + 3] {
        [b',', b'R', b','] => Op::Read,
        [b',', b'W', b','] => Op::Write,
        [b',', b'D', b','] => Op::Discard,
        [b',', b'F', b','] => Op::Flush,
        _ => return None,
    };
    let (offset, at) = digits(line, at + 3)?;
    if line[at] != b',' {
        return None;
    }
    let (size, at) = digits(line, at + 1)?;
    if line[at] != b',' {
        return None;
    }
    let (device, at) = digits(line, at + 1)?;
    if line[at] != b'\n' {
        return None;
    }
    let request = Request {
        at: Nanos(micros.checked_mul(MICROSECOND)?),
        offset: Bytes(offset),
        size: Bytes(size),
        device: u32::try_from(device).ok()?,
        op,
    };
    Some((request, at + 1))
}

/// The number of 1 to 15 digits that begins at `at`, and where it ends.
#[inline]
fn digits(line: &[u8; WINDOW], at: usize) -> Option<(u64, usize)> {
    let (high, length) = up_to_eight(line, at)?;
    if length < 8 {
        return (length > 0).then_some((high, at + length));
    }
    let (low, more) = up_to_eight(line, at + 8)?;
    // The careful parser reads the few that are longer, and sees whether they fit.
    let power = POWERS.get(more)?;
    Some((high * power + low, at + 8 + more))
}

const POWERS: [u64; 8] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000];

/// The number of the digits, at most eight, that begin at `at`, and how many there are. All eight places
/// are worked on at once, as the bytes of a word.
#[inline]
fn up_to_eight(line: &[u8; WINDOW], at: usize) -> Option<(u64, usize)> {
    let bytes = line.get(at..)?.first_chunk::<8>()?;
    // Digits become 0 to 9; what is none has its top bit set in `others`, the first of them for certain.
    let places = u64::from_le_bytes(*bytes) ^ 0x3030_3030_3030_3030;
    let others = (places.wrapping_add(0x7676_7676_7676_7676) | places) & 0x8080_8080_8080_8080;
    let length = others.trailing_zeros() as usize / 8;
    if length == 0 {
        return Some((0, 0));
    }
    // Moved up, so that zeros stand in front: then tens and ones, hundreds and ones, and so on are joined.
    let eight = places << (64 - 8 * length);
    let two = eight.wrapping_mul(1 + (10 << 8)) >> 8 & 0x00ff_00ff_00ff_00ff;
    let four = two.wrapping_mul(1 + (100 << 16)) >> 16 & 0x0000_ffff_0000_ffff;
    let number = four.wrapping_mul(1 + (10_000 << 32)) >> 32;
    Some((number, length))
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
        if let Some(remark) = line.strip_prefix(b"#") {
            sink.note(shown(remark));
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

#[cfg(test)]
mod tests {
    use super::super::tests::{counted, named, read_as, refusal, req};
    use super::super::write::push_csv;
    use super::super::{Format, ReadOptions};
    use super::*;

    /// What one line is read as, by the fast way if there is enough behind it, by the careful one if not.
    fn both_ways(line: &str) -> [Result<Vec<Request>, String>; 2] {
        let behind = "9000000000000000,F,0,0,0\n".repeat(8);
        [behind.as_str(), ""].map(|behind| {
            let text = format!("{HEADER}\n{line}\n{behind}");
            let options = ReadOptions {
                reorder: Some(Nanos(u64::MAX)),
                ..named(Format::Csv)
            };
            match read_as(text.as_bytes(), &options) {
                Ok((mut all, _)) => {
                    all.truncate(1);
                    Ok(all)
                }
                Err(error) => Err(error.to_string()),
            }
        })
    }

    #[test]
    fn the_fast_and_the_careful_way_agree() {
        let mut numbers = vec![
            0,
            1,
            9,
            10,
            255,
            512,
            99_999_999,
            100_000_000,
            (1 << 62) - 1,
        ];
        numbers.extend((0..18).map(|power| 10u64.pow(power)));
        numbers.extend((1..18).map(|power| 10u64.pow(power) - 1));
        for (i, &number) in numbers.iter().enumerate() {
            let size = numbers[(i * 7 + 3) % numbers.len()].clamp(1, 1 << 40);
            let line = format!("0,W,{number},{size},{}", number as u32);
            let [fast, careful] = both_ways(&line);
            let expected = req(0, Op::Write, number, size, number as u32);
            assert_eq!(fast, Ok(vec![expected]), "{line}");
            assert_eq!(careful, Ok(vec![expected]), "{line}");
        }
        for line in [
            "0,W,1,1,4294967296",
            "0,W,9223372036854775808,1,0",
            "0,W,99999999999999999999,1,0",
            "18446744073709552,R,1,1,0",
            "0,R,,1,0",
            "0,R,1,1",
            "0,R,1,1,0,0",
            "0,X,1,1,0",
            "0,RW,1,1,0",
            "0,R,1:,1,0",
            "0,R,/1,1,0",
            "0,R,1,0,0",
            "-1,R,1,1,0",
        ] {
            let [fast, careful] = both_ways(line);
            assert_eq!(fast, careful, "{line}");
            assert!(fast.is_err(), "{line}");
        }
    }

    #[test]
    fn blanks_and_a_missing_header_are_forgiven_when_the_format_is_named() {
        let text = "7, R ,4096, 512,0 \n 9,W,0,512,1\n";
        let (all, _) = read_as(text.as_bytes(), &named(Format::Csv)).expect("read");
        assert_eq!(
            all,
            [
                req(0, Op::Read, 4096, 512, 0),
                req(2_000, Op::Write, 0, 512, 1)
            ]
        );
        let sentence = refusal(b"7,R,4096,512,0\n", &ReadOptions::default());
        assert!(sentence.contains("cannot tell the format"), "{sentence}");
    }

    #[test]
    fn bad_lines_in_the_midst_of_good_ones_are_counted_by_line() {
        let good: Vec<Request> = (0..50_000)
            .map(|i| req(i * 1_000, Op::Read, i * 512, 512, 0))
            .collect();
        let mut text = format!("{HEADER}\n").into_bytes();
        let mut expected = Vec::new();
        for (chunk, requests) in (0u64..).zip(good.chunks(997)) {
            push_csv(requests, &mut text);
            text.extend_from_slice(b"?\n");
            expected.push(1 + (chunk + 1) * 998);
        }
        let (all, trace) = read_as(&text, &counted(Format::Csv)).expect("counted");
        // The last chunk is shorter than the others, so its line is not as expected.
        assert!(all == good);
        assert_eq!(trace.malformed().count, expected.len() as u64);
        for (bad, line) in trace.malformed().first.iter().zip(expected) {
            assert_eq!(bad.place, Place::Line(line));
            assert_eq!(&text[bad.byte as usize..][..2], b"?\n");
        }
    }
}
