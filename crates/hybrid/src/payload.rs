//! What a request is to put on a span.

use std::ops::Range;

use base::View;

/// What is to be put on a span.
#[derive(Clone)]
pub(crate) enum Payload {
    Data(View),
    Zeroes,
}

impl Payload {
    /// The payload of bytes `range`, counted from its start.
    pub fn slice(&self, range: Range<u64>) -> Payload {
        match self {
            Payload::Data(view) => {
                let len = (range.end - range.start) as usize;
                Payload::Data(view.slice(range.start as usize, len))
            }
            Payload::Zeroes => Payload::Zeroes,
        }
    }
}
