//! Why a file cannot be opened as a meta store.

use std::path::PathBuf;

/// The version of the format; see docs/formats/meta-store.md.
pub(super) const VERSION: u64 = 1;

/// Why a file cannot be opened as a meta store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RedbError {
    /// Another process, or this one, has it open.
    #[error("the meta store {path} is in use; stop the program that has it open")]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// It is a redb file of something else.
    #[error("{path} is a redb file but no meta store of Tanada's; name another file")]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// It is of a version this program does not know.
    #[error(
        "the meta store {path} has format version {version}, this program knows {VERSION}; use a newer program"
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// What it says.
        version: u64,
    },
    /// What it holds is not what was written.
    #[error("the meta store {path} is damaged: {what}; restore it from a backup")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where.
        what: String,
    },
    /// redb cannot read or write it.
    #[error("cannot open the meta store {path}")]
    Database {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<::redb::Error>,
    },
    /// No thread, or no runtime for it.
    #[error("cannot start the thread of the meta store {path}")]
    Thread {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}
