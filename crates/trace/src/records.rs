//! Binary records one after another, for the formats that have no lines.
//!
//! A record that is damaged inside is left out and the next one read. Where not even its length is known,
//! the format says where the next one may begin; all that is passed over to get there counts as one record.

use base::{Bytes, Nanos};

use super::sink::{Decoder, Sink};
use super::{Place, Reason, Request, TraceError};

/// Reads one record of a format.
pub(super) trait RecordParser: Send {
    /// Looks at the start of the file and answers how many bytes stand before the first record; `None` to
    /// be asked again with more.
    ///
    /// # Errors
    /// What makes the whole file unreadable.
    fn head(&mut self, start: &[u8], sink: &mut Sink<'_>) -> Result<Option<usize>, TraceError>;

    /// The length of the record that `bytes` begin with; `None` if it takes more of them.
    ///
    /// # Errors
    /// Why no record begins there.
    fn length(&self, bytes: &[u8]) -> Result<Option<usize>, Reason>;

    /// What `record`, of that length, asks of a disk; `None` if nothing of a range.
    ///
    /// # Errors
    /// Why it is malformed.
    fn request(&mut self, record: &[u8], sink: &mut Sink<'_>) -> Result<Option<Request>, Reason>;

    /// Where in `bytes`, which begin within something that is no record, one may begin again.
    fn resume(&self, bytes: &[u8]) -> Resume;
}

/// Where records go on behind a damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resume {
    /// This many bytes on.
    At(usize),
    /// Not in the first so many bytes; what lies behind them has to be seen with more.
    NotIn(usize),
}

/// A [`RecordParser`] made a [`Decoder`]: it counts records, and reports bad ones by their number.
pub(super) struct Records<P> {
    parser: P,
    /// Records read.
    read: u64,
    begun: bool,
    /// Within something that is no record, and has been reported.
    lost: bool,
}

impl<P: RecordParser> Records<P> {
    pub(super) fn new(parser: P) -> Records<P> {
        Records {
            parser,
            read: 0,
            begun: false,
            lost: false,
        }
    }

    /// Reads the record at the start of `rest`, which is `at` bytes into the input; how long it is, `None` if
    /// it is not all there.
    #[inline]
    fn record(
        &mut self,
        rest: &[u8],
        at: usize,
        sink: &mut Sink<'_>,
    ) -> Result<Option<usize>, TraceError> {
        let length = match self.parser.length(rest) {
            Ok(Some(length)) => length,
            Ok(None) => return Ok(None),
            Err(reason) => {
                self.read += 1;
                self.lost = true;
                sink.malformed(Place::Record(self.read), at, reason)?;
                return Ok(Some(1));
            }
        };
        let Some(record) = rest.get(..length) else {
            return Ok(None);
        };
        self.read += 1;
        let request = self.parser.request(record, sink);
        if let Err(reason) =
            request.and_then(|request| request.map_or(Ok(()), |one| sink.push(one)))
        {
            sink.malformed(Place::Record(self.read), at, reason)?;
        }
        Ok(Some(length))
    }
}

impl<P: RecordParser> Decoder for Records<P> {
    fn decode(
        &mut self,
        input: &[u8],
        last: bool,
        sink: &mut Sink<'_>,
    ) -> Result<usize, TraceError> {
        let mut at = 0;
        if !self.begun {
            match self.parser.head(input, sink)? {
                Some(length) => at = length,
                None => return Ok(0),
            }
            self.begun = true;
        }
        while at < input.len() {
            if self.lost {
                match self.parser.resume(&input[at..]) {
                    Resume::At(skip) => {
                        at += skip;
                        self.lost = false;
                    }
                    // It has been reported; its end is not cut off once more.
                    Resume::NotIn(_) if last => return Ok(input.len()),
                    Resume::NotIn(skip) => return Ok(at + skip),
                }
            }
            match self.record(&input[at..], at, sink)? {
                Some(length) => at += length,
                None => break,
            }
        }
        Ok(at)
    }

    fn place(&self) -> Place {
        Place::Record(self.read + 1)
    }
}

/// `count` of `unit` nanoseconds.
#[inline]
pub fn time(count: u64, unit: u64) -> Result<Nanos, Reason> {
    let nanos = count.checked_mul(unit).map(Nanos);
    nanos.ok_or_else(|| Reason::Time {
        text: count.to_string(),
    })
}

/// Where block `number`, of `unit` bytes, begins.
#[inline]
pub(super) fn place(number: u64, unit: u64) -> Result<Bytes, Reason> {
    let byte = number.checked_mul(unit).map(Bytes);
    byte.ok_or_else(|| {
        Reason::Other(format!(
            "block {number}, of {unit} bytes, begins beyond 2^63, farther than any device reaches"
        ))
    })
}
