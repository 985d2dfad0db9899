//! Which client is let in, by what it shows?

use policy::share::calendar::{BookingId, State};
use policy::share::{OpenError as Full, Second};

use crate::object::store::Store;
use crate::qos::book::record::Record;
use crate::qos::capability::{CapabilityError, Grant};

/// What a client shows to be let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access<'a> {
    /// The capability of a reservation.
    Capability(&'a str),
    /// The client has proved that it has the node's key. Everything is allowed, nothing promised.
    NodeKey,
    /// The node itself, for one of its accounts: everything is allowed. It is served as that account is, under its cap, and
    /// as this store's parts of a reservation promise.
    OnBehalf {
        /// The account; `None`: the daemon's owner.
        account: Option<&'a str>,
        /// The number of a reservation over several stores, now or later.
        reservation: Option<u128>,
    },
    /// Nothing. Everything is allowed where the manager is open to all, else nothing.
    Open,
    /// The same of a client that has shown that it is this account.
    Account(&'a str),
}

/// Why the client was not let in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The capability is not good.
    #[error(transparent)]
    Capability(#[from] CapabilityError),
    /// Its reservation is not there (any more).
    #[error(
        "the capability is genuine, but {store} has no reservation {} any more: it was released; reserve anew",
        .reservation.0
    )]
    NoReservation {
        /// The store's name.
        store: String,
        /// The reservation.
        reservation: BookingId,
    },
    /// Its reservation is another, or not yet made.
    #[error(
        "the capability is genuine, but reservation {} of {store} {why}; show the capability that its commit answered",
        .reservation.0
    )]
    OtherReservation {
        /// The store's name.
        store: String,
        /// The reservation.
        reservation: BookingId,
        /// What it is.
        why: &'static str,
    },
    /// It may have been ended where this store does not hear of it.
    #[error(
        "the capability is genuine, but {store} did not reach the cluster's meta store for 10 minutes, so \
         reservation {} may have ended; come back when it does, or reserve with --offline", .reservation.0
    )]
    Lapsed {
        /// The store's name.
        store: String,
        /// The reservation.
        reservation: BookingId,
    },
    /// Nothing was shown, and that is not enough here.
    #[error(
        "{store} lets in no client without a capability or the node key; reserve to get the one, or configure \
         it to be open (on loopback only)"
    )]
    NotOpen {
        /// The store's name.
        store: String,
    },
    /// No more sessions.
    #[error("cannot open a session at {store}: {source}")]
    Full {
        /// The store's name.
        store: String,
        /// The limit.
        source: Full,
    },
}

/// The reservation that a good capability is of, if `record` is what its store knows of it.
///
/// # Errors
/// [`SessionError`] if the reservation is not there any more, another, or not committed.
pub(super) fn admitted(
    store: &Store,
    grant: &Grant,
    record: Option<Record>,
    now: Second,
    skew: u64,
) -> Result<Record, SessionError> {
    let reservation = grant.reservation;
    let Some(record) = record else {
        let ended = grant.slot.end;
        return Err(match now.0.checked_sub(ended.0) {
            Some(ago) => SessionError::Capability(CapabilityError::Expired {
                reservation,
                ended,
                now,
                ago,
                skew,
            }),
            None => SessionError::NoReservation {
                store: store.name().to_owned(),
                reservation,
            },
        });
    };
    let why = if grant.store != store.uuid() || !record.is_of(grant) {
        "is another"
    } else if record.state != State::Committed {
        "is only held"
    } else {
        return Ok(record);
    };
    Err(SessionError::OtherReservation {
        store: store.name().to_owned(),
        reservation,
        why,
    })
}
