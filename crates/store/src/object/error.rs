//! Why a store did not do what it was asked, and what would help.

use base::{Bytes, Span};
use device::DeviceError;
use ledger::LedgerError;

use crate::object::finding::Finding;
use crate::object::types::ReservationId;
use crate::object::types::{Condition, Version};

/// Why an operation on a store's objects failed. Cheap to clone: a group of flushes shares one failure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// No object has this name.
    #[error("{store} has no object {object:?}; list shows what is there")]
    NotFound {
        /// The store's name.
        store: String,
        /// The name asked for.
        object: String,
    },
    /// The object exists already.
    #[error("cannot create {object:?} in {store}: it exists; delete it first or write to it")]
    Exists {
        /// The store's name.
        store: String,
        /// The name asked for.
        object: String,
    },
    /// What the operation was to be done on is no longer what is there. Nothing was changed.
    #[error(
        "{object:?} in {store} was to be changed only if {asked}; it is at generation {found} with mark {stamp}: \
         look again, then decide"
    )]
    Condition {
        /// The store's name.
        store: String,
        /// The object.
        object: String,
        /// The condition.
        asked: Condition,
        /// The object's version.
        found: Version,
        /// The object's stamp.
        stamp: u64,
    },
    /// The request itself is not one that any store could carry out.
    #[error("cannot {what}: {why}")]
    Request {
        /// What was asked.
        what: String,
        /// What is wrong with it and what would do.
        why: String,
    },
    /// No room for the data.
    #[error(
        "no room in {store} for {asked} more: {available} of {total} is neither used nor promised; \
         delete objects or release a reservation"
    )]
    NoSpace {
        /// The store's name.
        store: String,
        /// What was needed.
        asked: Bytes,
        /// What may be taken.
        available: Bytes,
        /// The store's data space.
        total: Bytes,
    },
    /// A reservation has less left than a write needs.
    #[error(
        "reservation {reservation} in {store} has {left} left, {asked} are needed; \
         reserve more or write without it"
    )]
    Reservation {
        /// The store's name.
        store: String,
        /// The reservation.
        reservation: ReservationId,
        /// What was needed.
        asked: Bytes,
        /// What it has left.
        left: Bytes,
    },
    /// No such reservation.
    #[error("{store} has no reservation {reservation}; it may have been released")]
    NoReservation {
        /// The store's name.
        store: String,
        /// The reservation.
        reservation: ReservationId,
    },
    /// The table of objects is full.
    #[error(
        "the object table of {store} is full: {live} of {most} are taken; delete objects, \
         or format with a larger ledger"
    )]
    TableFull {
        /// The store's name.
        store: String,
        /// Bytes of live records.
        live: Bytes,
        /// Bytes there may be.
        most: Bytes,
    },
    /// What was read is not what was written.
    #[error(
        "{len} at byte {offset} of {object:?} in {store} are damaged (on {device}, {span}): \
         the checksum differs; write them again from another copy"
    )]
    Damaged {
        /// The store's name.
        store: String,
        /// The object.
        object: String,
        /// First damaged byte of the object.
        offset: u64,
        /// Length of the damaged page.
        len: Bytes,
        /// The device's name.
        device: String,
        /// Where on the device.
        span: Span,
    },
    /// The device failed.
    #[error("cannot {what} {object:?} in {store}: {source}")]
    Device {
        /// The store's name.
        store: String,
        /// What was under way.
        what: &'static str,
        /// The object.
        object: String,
        /// What the device answered.
        source: Box<DeviceError>,
    },
    /// A flush or a commit failed, so what should be durable may be lost: nothing more is taken.
    #[error(
        "{store} takes no more changes, because a commit failed ({why}); close it and open it again"
    )]
    Failed {
        /// The store's name.
        store: String,
        /// The first failure.
        why: String,
    },
    /// The client works under a token below the one that its successor has sealed. Nothing was changed.
    #[error(
        "fenced: what {object:?} in {store} guards has been taken over, mark {found}; this was asked under mark \
         {stamp} and nothing more is done under it: open it anew"
    )]
    Fenced {
        /// The store's name.
        store: String,
        /// The fence object.
        object: String,
        /// The token of the request.
        stamp: u64,
        /// The one it was sealed with.
        found: u64,
    },
    /// The store was closed.
    #[error("{store} is closed; open it again")]
    Closed {
        /// The store's name.
        store: String,
    },
}

/// Why a store could not be formatted, opened or checked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The device failed.
    #[error("cannot {what} the store on {device}: {source}")]
    Device {
        /// The device's name.
        device: String,
        /// What was under way.
        what: &'static str,
        /// What it answered.
        source: DeviceError,
    },
    /// The settings do not make a store.
    #[error("cannot make a store on {device}: {why}")]
    Settings {
        /// The device's name.
        device: String,
        /// What is wrong and what would do.
        why: String,
    },
    /// The device holds something already.
    #[error(
        "cannot make a store on {device}: it holds {what}; wipe it or force it if nothing on it is needed"
    )]
    Occupied {
        /// The device's name.
        device: String,
        /// What is there.
        what: String,
    },
    /// There is no store on the device.
    #[error(
        "no store on {device}: superblock A {a}, superblock B {b}; format it first, or name the right device"
    )]
    NoStore {
        /// The device's name.
        device: String,
        /// What is wrong with the first superblock.
        a: &'static str,
        /// What is wrong with the second.
        b: &'static str,
    },
    /// A store of a version this program does not know. Nothing was written.
    #[error(
        "the store on {device} has format version {found}, this program knows {known}; use the program that wrote it"
    )]
    Version {
        /// The device's name.
        device: String,
        /// The version found.
        found: u32,
        /// The version this program writes.
        known: u32,
    },
    /// The object table cannot be read.
    #[error("cannot read the object table on {device}: {source}")]
    Ledger {
        /// The device's name.
        device: String,
        /// What the ledger answered.
        source: LedgerError,
    },
    /// An object that the store's manager keeps for itself is not as it was written. Nothing was written.
    #[error(
        "cannot open {store}: its system object {object:?} says what cannot be ({why}); restore it from another \
         copy, or open the store without its reservations"
    )]
    System {
        /// The store's name.
        store: String,
        /// The object.
        object: String,
        /// What is wrong with it.
        why: String,
    },
    /// An object that the store's manager keeps for itself is of a version this program does not know. Nothing was
    /// written.
    #[error(
        "cannot open {store}: its system object {object:?} has version {found}, this program knows {known}; use \
         the program that wrote it"
    )]
    SystemVersion {
        /// The store's name.
        store: String,
        /// The object.
        object: String,
        /// The version found.
        found: u32,
        /// The version this program writes.
        known: u32,
    },
    /// The manager could not write what it must remember.
    #[error("cannot open {store}: {source}")]
    Write {
        /// The store's name.
        store: String,
        /// What the store answered.
        source: Box<StoreError>,
    },
    /// The object table contradicts itself. Nothing was written.
    #[error(
        "the store on {device} contradicts itself in {count} places, first: {first}; nothing was changed; \
         check tells all of them"
    )]
    Inconsistent {
        /// The device's name.
        device: String,
        /// How many findings there are.
        count: usize,
        /// The first.
        first: Box<Finding>,
    },
}

impl OpenError {
    /// Is what lies there no whole store any more? Else it may be one: what stood in the way is the device, the system, the
    /// settings, or this program's age.
    pub fn is_damage(&self) -> bool {
        match self {
            OpenError::NoStore { .. }
            | OpenError::Occupied { .. }
            | OpenError::System { .. }
            | OpenError::Inconsistent { .. } => true,
            OpenError::Ledger { source, .. } => matches!(
                source,
                LedgerError::NoLedger { .. } | LedgerError::Damaged { .. }
            ),
            OpenError::Device { .. }
            | OpenError::Settings { .. }
            | OpenError::Version { .. }
            | OpenError::SystemVersion { .. }
            | OpenError::Write { .. } => false,
        }
    }

    /// Was it written by a newer program?
    pub fn is_newer(&self) -> bool {
        matches!(
            self,
            OpenError::Version { .. }
                | OpenError::SystemVersion { .. }
                | OpenError::Ledger {
                    source: LedgerError::Version { .. },
                    ..
                }
        )
    }
}
