//! Why a session did not do what it was asked.

use policy::share::Direction;
use policy::share::calendar::BookingId;

use crate::object::error::StoreError;

/// Why a session did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OperationError {
    /// Outside of what its capability is for.
    #[error(
        "cannot {what} {object:?}: the capability of reservation {} is for names that begin with {scope:?}; \
         stay within or reserve for more", .reservation.0
    )]
    Scope {
        /// What was asked.
        what: &'static str,
        /// The object, or the prefix of a listing.
        object: String,
        /// The reservation.
        reservation: BookingId,
        /// What it is for.
        scope: String,
    },
    /// The other way than its capability is for.
    #[error(
        "cannot {what} {object:?}: the capability of reservation {} is for {direction}s only; reserve {}s as well",
        .reservation.0, other(*direction)
    )]
    Direction {
        /// What was asked.
        what: &'static str,
        /// The object.
        object: String,
        /// The reservation.
        reservation: BookingId,
        /// What it is for.
        direction: Direction,
    },
    /// The manager's own.
    #[error("cannot {what} {object:?}: names that begin with \".tanada/\" are the store's own")]
    System {
        /// What was asked.
        what: &'static str,
        /// The object.
        object: String,
    },
    /// A part of a virtual disk.
    #[error(
        "cannot {what} {object:?}: names that begin with v/, m/, d/ or g/ are those of virtual disks, for the node \
         key alone; choose another name, or come with --node-key"
    )]
    Cluster {
        /// What was asked.
        what: &'static str,
        /// The object.
        object: String,
    },
    /// The reservation is over.
    #[error(
        "cannot {what} {object:?}: reservation {} is over, and its capability with it; reserve anew",
        .reservation.0
    )]
    Over {
        /// What was asked.
        what: &'static str,
        /// The object.
        object: String,
        /// The reservation.
        reservation: BookingId,
    },
    /// It waited for the cap of its account until its connection or the daemon ended. Nothing was done.
    #[error(
        "not begun: while it waited for the cap of its account its connection ended, or the daemon stopped; ask again"
    )]
    Stops,
    /// The store could not.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn other(direction: Direction) -> Direction {
    match direction {
        Direction::Read => Direction::Write,
        Direction::Write => Direction::Read,
    }
}
