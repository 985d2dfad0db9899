//! Files over several stores: striped for the rate of all of them, replaced as wholes.
//!
//! ```text
//! NAME on the first store                  the head: which blob, how it is cut, over which stores
//! NAME.tds-<blob> on store j mod width     chunk j, behind the chunks that this store has already
//!
//! Writer: look at the head -> chunks, many at once -> flush every store -> the head, if it is as it was -> older blobs go
//! Reader: the head -> pieces of all stores at once -> bytes
//! ```
//!
//! Always true:
//! 1. A reader sees the bytes of one writer, all of them; where these were replaced meanwhile, an error.
//! 2. A head names data that are durable.
//! 3. Of writers that looked at the same head one at most succeeds; the others change nothing.

mod error;
mod head;
mod layout;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

use std::rc::Rc;

use store::{ObjectOps, ops::ObjectError};

pub use error::FileError;
pub use head::{HEAD_LEN, Head, WIDTH_MAX};
pub use layout::{Layout, Piece, STRIPE};
pub use reader::Reader;
pub use writer::{Make, Writer};

/// The objects of one store.
pub type Objects = dyn ObjectOps<Error = ObjectError>;

/// A store that files may lie on.
#[derive(Clone)]
pub struct Place {
    /// Its identity, in 32 hexadecimal digits: what a head calls it.
    pub identity: String,
    /// The way to it.
    pub objects: Rc<Objects>,
}

/// The longest read or write that is asked of a store.
const PIECE: u64 = 1 << 20;
/// Pieces under way at once, for each store.
const DEPTH: usize = 8;
/// What stands between a file's name and its blob.
const MARK: &str = ".tds-";

/// What the object of a blob is called on every store.
fn object_of(name: &str, blob: &str) -> String {
    format!("{name}{MARK}{blob}")
}
