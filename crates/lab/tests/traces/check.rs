//! What must hold of every trace, whatever its bytes: nothing panics, everything ends, requests are requests.
//! The fuzzers hold every parser to it too.

use std::io::{Cursor, Read};

use base::Nanos;
use trace::{
    BATCH, Bad, Format, Malformed, Op, ReadOptions, Request, Requests, Trace, TraceError, open,
};

/// A reader that hands out a few bytes at a time.
struct Drops(Cursor<Vec<u8>>);

impl Read for Drops {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let len = buffer.len().min(13);
        self.0.read(&mut buffer[..len])
    }
}

/// What came of a trace: its requests, what was left out, and the error that ended it.
#[derive(Debug)]
pub struct Outcome {
    /// In the order in which they came.
    pub requests: Vec<Request>,
    /// What was left out.
    pub malformed: Malformed,
    /// Why it ended before its end.
    pub error: Option<TraceError>,
}

/// Reads `bytes` as `format`, whatever comes of it.
pub fn read(format: Option<Format>, bad: Bad, bytes: &[u8], in_drops: bool) -> Outcome {
    lab::parquet::provide();
    let options = ReadOptions {
        format,
        bad,
        ..ReadOptions::default()
    };
    let cursor = Cursor::new(bytes.to_vec());
    // Parquet is read from a file only.
    let opened = if format == Some(Format::Parquet) {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), bytes).expect("written");
        open(file.path(), &options)
    } else if in_drops {
        Trace::from_reader("hostile", Box::new(Drops(cursor)), &options)
    } else {
        Trace::from_reader("hostile", Box::new(cursor), &options)
    };
    let mut outcome = Outcome {
        requests: Vec::new(),
        malformed: Malformed::default(),
        error: None,
    };
    let mut trace = match opened {
        Ok(trace) => trace,
        Err(error) => {
            outcome.error = Some(error);
            return outcome;
        }
    };
    let mut batch = Vec::new();
    loop {
        match trace.next_batch(&mut batch) {
            Ok(true) => {
                assert!(!batch.is_empty() && batch.len() <= BATCH);
                outcome.requests.extend_from_slice(&batch);
            }
            Ok(false) => {
                assert!(batch.is_empty());
                break;
            }
            Err(error) => {
                outcome.error = Some(error);
                break;
            }
        }
    }
    outcome.malformed = trace.malformed().clone();
    outcome
}

/// Asserts all that must hold of `bytes` read as `format`.
pub fn check(format: Format, bytes: &[u8]) {
    // What unpacks to a thousand times its size is another test's.
    if bytes.starts_with(&[0x1f, 0x8b]) || bytes.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        return;
    }
    let counted = read(Some(format), Bad::Count, bytes, false);
    let (requests, malformed) = (&counted.requests, &counted.malformed);
    if let Some(first) = requests.first() {
        assert_eq!(first.at, Nanos(0), "time begins with the first request");
    }
    assert!(
        requests.is_sorted_by_key(|request| request.at),
        "in order of time"
    );
    for request in requests {
        let end = request.offset.0.checked_add(request.size.0);
        assert!(end.is_some_and(|end| end <= 1 << 63), "{request:?}");
        assert_eq!(request.size.0 == 0, request.op == Op::Flush, "{request:?}");
    }
    // A request takes a byte at least, but in Parquet, which packs a million of them into a few.
    if format != Format::Parquet {
        assert!(requests.len() as u64 + malformed.count <= bytes.len() as u64 + 1);
    }
    assert!(malformed.first.len() as u64 == malformed.count.min(Malformed::KEPT as u64));
    if let Some(error) = &counted.error {
        let sentence = error.to_string();
        let named = sentence.contains("hostile") || format == Format::Parquet;
        assert!(named, "the file is named: {sentence}");
        assert!(!matches!(error, TraceError::Malformed(_)) || sentence.contains("longer than"));
    }

    let strict = read(Some(format), Bad::Fatal, bytes, false);
    assert!(requests.starts_with(&strict.requests) || malformed.count > 0);
    match (&strict.error, malformed.first.first()) {
        (Some(TraceError::Malformed(bad)), Some(first)) if format != Format::Parquet => {
            assert_eq!(
                **bad, *first,
                "the first that is counted is the one that is fatal"
            );
        }
        (_, Some(first)) if format != Format::Parquet => {
            panic!("{first} was counted, but was not fatal: {:?}", strict.error)
        }
        (error, None) => {
            let both = (error, &counted.error);
            assert_eq!(both.0.is_some(), both.1.is_some(), "{both:?}");
            assert!(*requests == strict.requests);
        }
        _ => {}
    }

    if format != Format::Parquet {
        let drops = read(Some(format), Bad::Count, bytes, true);
        assert!(
            drops.requests == *requests && drops.malformed == *malformed,
            "in drops"
        );
    }
    // Recognizing the format must stand any bytes too.
    let _ = read(None, Bad::Count, bytes, false);
}
