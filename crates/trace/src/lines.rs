//! Text a line at a time, for the formats that have one record a line.

use base::Bytes;
use memchr::memchr;

use super::sink::{Decoder, Sink};
use super::{Place, Reason, TraceError};

/// The longest line a text may have: no format comes near.
pub(super) const LINE_MAX: usize = 64 << 10;

/// Reads one line of a format.
pub(super) trait LineParser: Send {
    /// Looks at the first block of the file before any line is read.
    ///
    /// # Errors
    /// What makes the whole file unreadable.
    fn begin(&mut self, _block: &[u8], _sink: &mut Sink<'_>) -> Result<(), TraceError> {
        Ok(())
    }

    /// Puts what `line` says into `sink`. It is not blank and has no end-of-line.
    ///
    /// # Errors
    /// Why it is malformed.
    fn line(&mut self, line: &[u8], sink: &mut Sink<'_>) -> Result<(), Reason>;
}

/// A [`LineParser`] made a [`Decoder`]: it counts lines, and reports bad ones by their number.
pub(super) struct Lines<P> {
    parser: P,
    /// Lines read.
    read: u64,
    begun: bool,
    /// Within a line that was too long, and has been reported.
    skipping: bool,
}

impl<P: LineParser> Lines<P> {
    pub(super) fn new(parser: P) -> Lines<P> {
        Lines {
            parser,
            read: 0,
            begun: false,
            skipping: false,
        }
    }

    /// Reads the line that begins `at` bytes into `input` and answers where the next one does; none if
    /// `input` holds no whole line any more.
    pub(super) fn step(
        &mut self,
        input: &[u8],
        mut at: usize,
        last: bool,
        sink: &mut Sink<'_>,
    ) -> Result<Option<usize>, TraceError> {
        if !self.begun {
            self.begun = true;
            // A mark that says "UTF-8", which some editors put before the first line.
            if input.starts_with(b"\xef\xbb\xbf") {
                at = 3;
            }
            self.parser.begin(&input[at..], sink)?;
        }
        let rest = &input[at..];
        if let Some(length) = memchr(b'\n', rest) {
            self.line(&rest[..length], at, sink)?;
            return Ok(Some(at + length + 1));
        }
        if rest.is_empty() {
            return Ok(None);
        }
        if last {
            self.line(rest, at, sink)?;
            return Ok(Some(input.len()));
        }
        if rest.len() <= LINE_MAX {
            return Ok(None);
        }
        if !self.skipping {
            let limit = Bytes(LINE_MAX as u64);
            sink.malformed(self.place(), at, Reason::TooLong { limit })?;
        }
        self.skipping = true;
        Ok(Some(input.len()))
    }

    /// Does the next line begin at the start of the next input?
    pub(super) fn at_line(&self) -> bool {
        self.begun && !self.skipping
    }

    /// Counts a line that was read elsewhere, bad if there is a reason.
    #[inline]
    pub(super) fn passed(
        &mut self,
        at: usize,
        read: Result<(), Reason>,
        sink: &mut Sink<'_>,
    ) -> Result<(), TraceError> {
        self.read += 1;
        match read {
            Ok(()) => Ok(()),
            Err(reason) => sink.malformed(Place::Line(self.read), at, reason),
        }
    }

    fn line(&mut self, line: &[u8], at: usize, sink: &mut Sink<'_>) -> Result<(), TraceError> {
        self.read += 1;
        if std::mem::take(&mut self.skipping) {
            return Ok(());
        }
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        match self.parser.line(line, sink) {
            Ok(()) => Ok(()),
            Err(reason) => sink.malformed(Place::Line(self.read), at, reason),
        }
    }
}

impl<P: LineParser> Decoder for Lines<P> {
    fn decode(
        &mut self,
        input: &[u8],
        last: bool,
        sink: &mut Sink<'_>,
    ) -> Result<usize, TraceError> {
        let mut at = 0;
        while let Some(next) = self.step(input, at, last, sink)? {
            at = next;
        }
        Ok(at)
    }

    fn place(&self) -> Place {
        Place::Line(self.read + 1)
    }
}
