//! Why a reservation was not made, changed or ended.

use policy::share::Second;
use vdisk::meta::MetaError;

use crate::calendar::PartError;
use crate::record::{BadRecord, ReservationId};

/// Why not. Nothing was promised unless it says so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReservationError {
    /// What was asked for makes no sense.
    #[error("{0}")]
    Request(String),
    /// There is none of this name or id.
    #[error("there is no reservation {0}; `tanada reservation list` shows what there is")]
    Absent(String),
    /// The account has one of this name, on other terms.
    #[error(
        "the account has a reservation {0} on other terms already; choose another name, change that one \
         (`tanada reservation set`), or release it first"
    )]
    NameTaken(String),
    /// It is over, or was never promised.
    #[error("reservation {name} is {state}; reserve anew")]
    Over {
        /// Which.
        name: String,
        /// How far it came.
        state: &'static str,
    },
    /// Another node changed it meanwhile.
    #[error("reservation {0} is being changed by another request; try again")]
    Changing(String),
    /// Another one has the target's requests in that time.
    #[error(
        "{target} has the reservation {other} in that time already; change that one (`tanada reservation set {other}`), \
         or ask for a time from {until} on"
    )]
    Clash {
        /// What for.
        target: String,
        /// The other one.
        other: ReservationId,
        /// The first second behind it.
        until: Second,
    },
    /// It does not fit at some stores.
    #[error("cannot reserve {what}: {}", reasons(.refused))]
    Refused {
        /// What was asked for.
        what: String,
        /// Stores by their names, and why.
        refused: Vec<(String, String)>,
    },
    /// A store did not answer.
    #[error("cannot reserve {what}: {store} does not answer: {why}; try again, or when it is back")]
    Unreachable {
        /// What was asked for.
        what: String,
        /// The store's name.
        store: String,
        /// What happened.
        why: String,
    },
    /// Holding took so long that the holds may be gone.
    #[error("cannot reserve {0}: the stores took too long to hold their parts; try again")]
    TooSlow(String),
    /// The account may not have so much.
    #[error("{0}")]
    Quota(String),
    /// The meta store.
    #[error(transparent)]
    Meta(#[from] MetaError),
    /// A record of it.
    #[error(transparent)]
    Record(#[from] BadRecord),
}

fn reasons(refused: &[(String, String)]) -> String {
    let each = refused
        .iter()
        .map(|(store, why)| format!("on {store}: {why}"));
    each.collect::<Vec<_>>().join("; ")
}

impl ReservationError {
    /// What one store's refusal of a part comes to.
    pub(crate) fn of_part(what: &str, store: String, error: PartError) -> ReservationError {
        let what = what.to_owned();
        match error {
            PartError::Refused(why) | PartError::Absent(why) => ReservationError::Refused {
                what,
                refused: vec![(store, why)],
            },
            PartError::Unreachable(why) => ReservationError::Unreachable { what, store, why },
        }
    }
}
