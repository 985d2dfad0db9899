//! Where does a byte of a file lie?
//!
//! ```text
//! byte -> chunk j = byte / stripe -> store j mod width, behind its j / width chunks before
//! ```
//!
//! Pure.
//!
//! Always true: the pieces of a range follow each other in the file, and none of it lies in two.

/// How long a chunk is, unless another length is said.
pub const STRIPE: u64 = 1 << 20;

/// How a file is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of a chunk.
    pub stripe: u64,
    /// How many stores it is on.
    pub width: usize,
}

/// A part of a range that one request takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// The store's number in the head.
    pub store: usize,
    /// Its first byte in the store's object.
    pub at: u64,
    /// Its first byte in the range.
    pub from: u64,
    /// Its length in bytes.
    pub len: u64,
}

impl Layout {
    /// The pieces of `len` bytes from byte `offset` on, none longer than `longest`.
    ///
    /// # Example
    /// ```
    /// use files::Layout;
    /// let layout = Layout { stripe: 4096, width: 2 };
    /// let pieces: Vec<_> = layout.pieces(4000, 5000, 1 << 20).collect();
    /// let places: Vec<_> = pieces.iter().map(|it| (it.store, it.at, it.len)).collect();
    /// assert_eq!(places, [(0, 4000, 96), (1, 0, 4096), (0, 4096, 808)]);
    /// ```
    pub fn pieces(self, offset: u64, len: u64, longest: u64) -> impl Iterator<Item = Piece> {
        let width = self.width as u64;
        let mut from = 0;
        std::iter::from_fn(move || {
            if from == len {
                return None;
            }
            let place = offset + from;
            let (chunk, within) = (place / self.stripe, place % self.stripe);
            let piece = Piece {
                store: (chunk % width) as usize,
                at: chunk / width * self.stripe + within,
                from,
                len: (len - from).min(self.stripe - within).min(longest),
            };
            from += piece.len;
            Some(piece)
        })
    }

    /// How long a store's object is, of a file of `size` bytes.
    pub fn len_at(self, size: u64, store: usize) -> u64 {
        let (whole, rest) = (size / self.stripe, size % self.stripe);
        let (width, store) = (self.width as u64, store as u64);
        let chunks = whole / width + u64::from(store < whole % width);
        let last = match store == whole % width {
            true => rest,
            false => 0,
        };
        chunks * self.stripe + last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_pieces_of_a_file_fill_each_store_s_object_without_a_gap(
            stripe in 1u64..50, width in 1usize..6, size in 0u64..2_000, longest in 1u64..60,
        ) {
            let layout = Layout { stripe, width };
            let mut ends = vec![0; width];
            let mut whole = 0;
            for piece in layout.pieces(0, size, longest) {
                prop_assert_eq!(piece.from, whole);
                prop_assert_eq!(piece.at, ends[piece.store]);
                prop_assert!(piece.len > 0 && piece.len <= longest);
                ends[piece.store] += piece.len;
                whole += piece.len;
            }
            prop_assert_eq!(whole, size);
            let lengths: Vec<u64> = (0..width).map(|store| layout.len_at(size, store)).collect();
            prop_assert_eq!(lengths, ends);
        }

        #[test]
        fn a_range_has_the_places_that_it_has_in_the_whole_file(
            stripe in 1u64..50, width in 1usize..6, offset in 0u64..500, len in 0u64..500,
        ) {
            let layout = Layout { stripe, width };
            let bytes = |offset, len| {
                let pieces = layout.pieces(offset, len, u64::MAX);
                pieces.flat_map(|it| (it.at..it.at + it.len).map(move |at| (it.store, at)))
            };
            let all: Vec<_> = bytes(0, offset + len).skip(offset as usize).collect();
            prop_assert_eq!(bytes(offset, len).collect::<Vec<_>>(), all);
        }
    }
}
