//! Requests written in the normal form, as text and as Parquet, and read again: the same come back from both.

use base::{Bytes, Nanos};
use lab::parquet::ParquetWriter;
use trace::write::push_csv;
use trace::{Bad, Format, HEADER, Op, Request};

use crate::check::{check, read};

/// The normal form of some requests.
pub fn csv(requests: &[Request]) -> Vec<u8> {
    let mut text = format!("{HEADER}\n").into_bytes();
    push_csv(requests, &mut text);
    text
}

/// The normal form of some requests in Parquet.
pub fn parquet(requests: &[Request]) -> Vec<u8> {
    let mut writer = ParquetWriter::new(Vec::new()).expect("memory does not fail");
    writer.write(requests).expect("memory does not fail");
    writer.finish().expect("memory does not fail")
}

/// The requests that some bytes spell, 16 each; whatever they are, they are requests.
fn spelt(bytes: &[u8]) -> Vec<Request> {
    let mut at_us = 0u64;
    let number = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(0u64, |sum, &byte| sum << 8 | u64::from(byte))
    };
    let request = |record: &[u8]| {
        at_us += number(&record[1..4]);
        let op = [Op::Read, Op::Write, Op::Discard, Op::Flush][usize::from(record[0] % 4)];
        let size = 1 + number(&record[11..14]);
        let offset = number(&record[4..11]) << 6;
        let (offset, size) = match op {
            Op::Flush => (0, 0),
            _ => (offset, size),
        };
        Request {
            at: Nanos::micros(at_us),
            offset: Bytes(offset),
            size: Bytes(size),
            device: number(&record[14..16]) as u32,
            op,
        }
    };
    bytes.chunks_exact(16).map(request).collect()
}

/// Asserts that the requests some bytes spell come back as they were, time beginning with the first.
pub fn round_trip(bytes: &[u8]) {
    let written = spelt(bytes);
    let text = csv(&written);
    check(Format::Csv, &text);
    let first = written.first().map_or(Nanos(0), |request| request.at);
    let expected: Vec<Request> = written
        .iter()
        .map(|request| Request {
            at: request.at - first,
            ..*request
        })
        .collect();
    for (format, file) in [(Format::Csv, text), (Format::Parquet, parquet(&written))] {
        let read = read(Some(format), Bad::Fatal, &file, false);
        assert_eq!(read.requests, expected, "{format}");
        assert_eq!(
            read.error.is_some(),
            written.is_empty(),
            "{format}: {:?}",
            read.error
        );
    }
}
