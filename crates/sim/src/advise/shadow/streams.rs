//! Is a request part of a long stream?

/// Streams followed.
const STREAMS: usize = 16;

/// The latest streams: where each goes on, and how long it is.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Streams {
    ends: [u64; STREAMS],
    lengths: [u64; STREAMS],
    oldest: usize,
}

impl Streams {
    /// How long the stream is that this request ends.
    pub(super) fn see(&mut self, from: u64, length: u64) -> u64 {
        let end = from.saturating_add(length);
        // Ends of 0 are none: nothing ends there.
        let found = self.ends.iter().position(|&end| end == from && from > 0);
        let at = match found {
            Some(at) => at,
            None => {
                let at = self.oldest;
                self.oldest = (at + 1) % STREAMS;
                self.lengths[at] = 0;
                at
            }
        };
        self.ends[at] = end;
        self.lengths[at] = self.lengths[at].saturating_add(length);
        self.lengths[at]
    }
}
