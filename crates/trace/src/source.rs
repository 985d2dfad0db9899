//! Where the requests of one file come from.
//!
//! ```text
//! Input (unpacked bytes) -> a decoder, block by block -> Sink
//! ```

use super::input::Input;
use super::sink::{Decoder, Sink};
use super::{Reason, TraceError};

/// Where the requests of one file come from.
pub(super) trait Source: Send {
    /// Puts more requests into `sink`; `false` once there are no more.
    fn fill(&mut self, sink: &mut Sink<'_>) -> Result<bool, TraceError>;
}

/// A file read from start to end by a decoder.
pub(super) struct Decoded {
    input: Input,
    decoder: Box<dyn Decoder>,
}

impl Decoded {
    pub(super) fn new(input: Input, decoder: Box<dyn Decoder>) -> Decoded {
        Decoded { input, decoder }
    }
}

impl Source for Decoded {
    fn fill(&mut self, sink: &mut Sink<'_>) -> Result<bool, TraceError> {
        sink.origin = self.input.position();
        let (bytes, last) = (self.input.bytes(), self.input.is_last());
        let taken = self.decoder.decode(bytes, last, sink)?;
        if taken == 0 && !last && self.input.is_full() {
            return Err(TraceError::Malformed(Box::new(super::BadRecord {
                file: self.input.name.clone(),
                place: self.decoder.place(),
                byte: sink.origin,
                reason: Reason::TooLong {
                    limit: base::Bytes(bytes.len() as u64),
                },
            })));
        }
        if last && taken < bytes.len() {
            sink.malformed(self.decoder.place(), taken, Reason::Truncated)?;
        }
        self.input.consume(taken);
        if last {
            return Ok(false);
        }
        self.input.fill()?;
        Ok(true)
    }
}
