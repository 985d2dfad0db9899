//! Why a database was not measured.

use super::drive::DriveError;
use base::Bytes;
use std::io;
use std::path::{Path, PathBuf};

/// Why there is no measurement.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppError {
    /// A program is missing.
    #[error("cannot find {tool}; install the package `{package}` of your system")]
    Tool {
        /// The program.
        tool: String,
        /// A package that has it.
        package: &'static str,
    },
    /// No user to run the server as.
    #[error(
        "cannot run the database as {asked}: name a user that is on this machine and is not root (--user)"
    )]
    User {
        /// Who.
        asked: String,
    },
    /// The target holds something.
    #[error(
        "{} holds data, such as {found}: they would share the device with the measurement; name an empty folder, or say that it \
         does not matter (--beside; the data stay as they are)",
        target.display()
    )]
    HoldsData {
        /// The target.
        target: PathBuf,
        /// One of them.
        found: String,
    },
    /// Another run is there.
    #[error(
        "another run is under way in {} (process {pid}); wait for its end, or end it",
        target.display()
    )]
    Busy {
        /// The target.
        target: PathBuf,
        /// Whose it is.
        pid: u32,
    },
    /// Too small.
    #[error(
        "{} has {free} left; {records} records take about {needed}: ask for fewer (--records)",
        target.display()
    )]
    Room {
        /// The target.
        target: PathBuf,
        /// What is free.
        free: Bytes,
        /// How many.
        records: u64,
        /// What they take.
        needed: Bytes,
    },
    /// A folder or a file cannot be used.
    #[error("cannot {what} {}: {source}", path.display())]
    Folder {
        /// What was to be done.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A program cannot be run.
    #[error("cannot run {what}: {source}")]
    Start {
        /// Which.
        what: String,
        /// The cause.
        source: io::Error,
    },
    /// The server failed.
    #[error("the database did not {what}; it said:\n{said}")]
    Server {
        /// What it was to do.
        what: &'static str,
        /// The end of its log.
        said: String,
    },
    /// A statement failed.
    #[error("cannot {what}: {source}")]
    Sql {
        /// What was to be done.
        what: &'static str,
        /// The cause.
        source: Box<mysql::Error>,
    },
    /// A run has no result.
    #[error("{name}: {source}")]
    Drive {
        /// The run.
        name: String,
        /// The cause.
        source: DriveError,
    },
    /// The caller wants it to stop.
    #[error("interrupted; what was measured is kept, and the same command goes on from there")]
    Interrupted,
}

impl AppError {
    pub(super) fn folder(what: &'static str, path: &Path, source: io::Error) -> AppError {
        AppError::Folder {
            what,
            path: path.to_owned(),
            source,
        }
    }
}
