//! Why a file could not be read or written.

use store::ops::ObjectError;

/// Why a file could not be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// A store says so.
    #[error("{0}")]
    Store(#[from] ObjectError),
    /// It cannot be a file's name, or nothing like it can be made.
    #[error("cannot open {name:?}: {why}")]
    Request {
        /// The name.
        name: String,
        /// What is wrong, and what would do.
        why: String,
    },
    /// There is no such file.
    #[error("there is no file {name:?} on {stores} stores; list shows what is there")]
    Absent {
        /// The name.
        name: String,
        /// How many stores were asked.
        stores: usize,
    },
    /// There is one already.
    #[error("{name:?} is there already; open it with \"wb\" to replace it")]
    Exists {
        /// The name.
        name: String,
    },
    /// An object of that name is no file over several stores.
    #[error("{name:?} is an object, but no file over stores: {why}; get it as an object")]
    Plain {
        /// The name.
        name: String,
        /// Why it is none.
        why: String,
    },
    /// A store of the file is none of those at hand.
    #[error(
        "{name:?} lies on store {identity}, too, which this client has no way to; connect to all stores of the file"
    )]
    Elsewhere {
        /// The name.
        name: String,
        /// The store.
        identity: String,
    },
    /// Another writer was first. Nothing was changed.
    #[error(
        "{name:?} was changed by another writer since it was opened; open it again and write once more"
    )]
    Changed {
        /// The name.
        name: String,
    },
    /// A writer put other data there while it was read.
    #[error("{name:?} was replaced or deleted while it was read; open it again")]
    Replaced {
        /// The name.
        name: String,
    },
    /// The data are not all there.
    #[error("{name:?} is damaged: {why}")]
    Damaged {
        /// The name.
        name: String,
        /// What is missing.
        why: String,
    },
}
