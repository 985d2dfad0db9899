//! Why does a connection end?

use std::io;

use super::guest::QUEUES;
use super::inflight::InflightError;
use super::memory::{Outside, TableError};
use super::message::MessageError;
use super::recover::Why;
use super::ring::RingError;

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(super) enum SessionError {
    #[error("{0}")]
    Message(#[from] MessageError),
    #[error("request {0} is not served here")]
    Unknown(u32),
    #[error(
        "features {asked:#x} are asked, of {offered:#x} offered; if the disk's configuration has changed since its guest \
         began, reset the virtual machine"
    )]
    Features { asked: u64, offered: u64 },
    #[error("queue {queue} is asked for, of {QUEUES}")]
    Queue { queue: u16 },
    #[error("queue {queue} has no {what} yet")]
    Early { queue: u16, what: &'static str },
    #[error("queue {queue} is in use; it is stopped before that is changed")]
    InUse { queue: u16 },
    #[error("memory: {0}")]
    Table(#[from] TableError),
    #[error("memory: {0}")]
    Outside(#[from] Outside),
    #[error("queue {queue}: {source}")]
    Ring { queue: u16, source: RingError },
    #[error("queue {queue} cannot go on: {source}: reset the virtual machine")]
    Inflight { queue: u16, source: InflightError },
    #[error("the record of what is in flight: {0}")]
    Area(InflightError),
    #[error("queue {queue} cannot go on: {why}")]
    Refused { queue: u16, why: Why },
    #[error(
        "which guest has the disk cannot be kept for the next daemon: {0}; until it can, no guest is served"
    )]
    Book(String),
    #[error("a descriptor cannot be used: {0}")]
    Descriptor(io::Error),
    #[error(
        "memory of the guest was taken away while it was in use, or its file system is full: give the virtual machine \
         memory that stays, and reset it"
    )]
    Broken,
    #[error("it connected, and said nothing for ten seconds")]
    Silent,
    #[error("it began a message, and did not end it within ten seconds")]
    Slow,
    #[error("{0}")]
    Lost(io::Error),
}

impl SessionError {
    /// Will the same client be refused again, until its guest begins anew?
    pub fn is_refusal(&self) -> bool {
        let waits = matches!(self, SessionError::Features { .. } | SessionError::Book(_));
        self.makes_unknown() || waits
    }

    /// May its guest not go on the next time either?
    pub fn makes_unknown(&self) -> bool {
        matches!(
            self,
            SessionError::Refused { .. } | SessionError::Inflight { .. } | SessionError::Broken
        )
    }
}
