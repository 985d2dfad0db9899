//! Why a calibration found nothing.

use base::Bytes;
use policy::share::Slot;
use policy::share::calendar::BookingId;

use crate::object::error::{OpenError, StoreError};

/// Why nothing was found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CalibrateError {
    /// There is no store to work in.
    #[error("cannot calibrate {device}: {source}; make a store on it first (tanada store create)")]
    Open {
        /// The device's name.
        device: String,
        /// The cause.
        source: Box<OpenError>,
    },
    /// Its objects have no room.
    #[error(
        "cannot calibrate {store}: it needs {needed} for objects of its own and {free} is free; delete objects or \
         plan with less room"
    )]
    NoRoom {
        /// The store's name.
        store: String,
        /// For its objects.
        needed: Bytes,
        /// What there is.
        free: Bytes,
    },
    /// What is reserved would not be kept.
    #[error(
        "cannot calibrate {store} now: it takes the whole device in {needed}, and reservation {} has {reserved}; \
         calibrate when nothing is reserved for so long, or release it", .reservation.0
    )]
    Reserved {
        /// The store's name.
        store: String,
        /// The first reservation in the way.
        reservation: BookingId,
        /// When it is.
        reserved: Slot,
        /// When nothing may be reserved.
        needed: Slot,
    },
    /// One at a time.
    #[error("{store} is being calibrated already; wait until that has ended")]
    Running {
        /// The store's name.
        store: String,
    },
    /// The plan makes no sense.
    #[error("cannot calibrate with this plan: {0}")]
    Plan(&'static str),
    /// A request failed.
    #[error("the calibration failed: {0}")]
    Store(#[from] StoreError),
    /// A session was refused.
    #[error("the calibration failed: {0}")]
    Session(#[from] policy::share::OpenError),
}
