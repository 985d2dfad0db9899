//! The normal form as CSV, written fast: digits two at a time, no formatting machinery.

use super::Encoder;
use crate::{Op, Request};

/// The longest line: numbers of 20, 1, 20, 20 and 10 characters, commas and the end.
const LINE_MAX: usize = 76;

/// The digits of 0 to 99.
static PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut n = 0;
    while n < 100 {
        pairs[n] = [b'0' + (n / 10) as u8, b'0' + (n % 10) as u8];
        n += 1;
    }
    pairs
};

pub(super) struct Csv;

impl Encoder for Csv {
    fn encode(&mut self, batch: &[Request], bytes: &mut Vec<u8>) {
        push_csv(batch, bytes);
    }

    fn remark(&mut self, text: &str, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(b"# ");
        bytes.extend_from_slice(text.as_bytes());
        bytes.push(b'\n');
    }
}

/// Appends `batch` as lines of the normal form, times rounded to the microsecond.
pub fn push_csv(batch: &[Request], bytes: &mut Vec<u8>) {
    bytes.reserve(batch.len() * 32);
    for request in batch {
        let mut line = Line {
            text: [0; LINE_MAX],
            start: LINE_MAX,
        };
        // From the end to the front, as digits come.
        line.byte(b'\n');
        line.number(u64::from(request.device));
        line.byte(b',');
        line.number(request.size.0);
        line.byte(b',');
        line.number(request.offset.0);
        line.byte(b',');
        line.byte(letter(request.op));
        line.byte(b',');
        line.number(request.micros());
        bytes.extend_from_slice(&line.text[line.start..]);
    }
}

fn letter(op: Op) -> u8 {
    match op {
        Op::Read => b'R',
        Op::Write => b'W',
        Op::Discard => b'D',
        Op::Flush => b'F',
    }
}

/// A line being written from its end.
struct Line {
    text: [u8; LINE_MAX],
    start: usize,
}

impl Line {
    #[inline]
    fn byte(&mut self, byte: u8) {
        self.start -= 1;
        self.text[self.start] = byte;
    }

    #[inline]
    fn number(&mut self, mut number: u64) {
        while number >= 100 {
            self.pair((number % 100) as usize);
            number /= 100;
        }
        match number {
            0..10 => self.byte(b'0' + number as u8),
            _ => self.pair(number as usize),
        }
    }

    #[inline]
    fn pair(&mut self, pair: usize) {
        self.start -= 2;
        self.text[self.start..self.start + 2].copy_from_slice(&PAIRS[pair]);
    }
}

#[cfg(test)]
mod tests {
    use base::{Bytes, Nanos};

    use super::*;

    #[test]
    fn every_number_has_all_its_digits() {
        let mut numbers = vec![0, 9, 10, 99, 100, 101, 12_345, u64::MAX];
        numbers.extend((0..20).map(|power| 10u64.pow(power)));
        for number in numbers {
            let request = Request {
                at: Nanos(number),
                offset: Bytes(number),
                size: Bytes(number / 3),
                device: number as u32,
                op: Op::Discard,
            };
            let mut bytes = Vec::new();
            push_csv(&[request], &mut bytes);
            let micros = (u128::from(number) + 500) / 1000;
            let expected = format!("{micros},D,{number},{},{}\n", number / 3, number as u32);
            assert_eq!(String::from_utf8_lossy(&bytes), expected);
        }
    }
}
