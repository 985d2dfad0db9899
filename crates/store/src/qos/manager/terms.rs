//! What of a manager's options may change while it runs.
//!
//! ```text
//! check_terms: would what is promised still fit? -> set_terms: clients that came in without credentials leave
//! ```

use policy::share::{BytesPerSec, OpenError, Second};

use super::Manager;
use crate::qos::state::Core;

/// Terms of a manager that may change while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ManagerTerms {
    /// May clients that show nothing do everything?
    pub unauthenticated: bool,
    /// Seconds by which clocks may differ.
    pub skew: u64,
    /// Background work gets at least so much of the device.
    pub floor: BytesPerSec,
    /// And at most so much.
    pub ceiling: BytesPerSec,
}

/// Why a manager cannot go by other terms.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TermsError {
    /// What is promised would not fit any more.
    #[error(
        "cannot give background work of {store} at least {floor}: together with what is reserved from {from} on it is more \
         than the device can do; choose a lower floor, or cancel a reservation (`tanada reservation calendar`)"
    )]
    Promised {
        /// The store's name.
        store: String,
        /// As asked.
        floor: BytesPerSec,
        /// The first second at which there is too much.
        from: Second,
    },
    /// The scheduler takes no such terms.
    #[error("cannot set what background work of {store} gets: {source}")]
    Scheduler {
        /// The store's name.
        store: String,
        /// What it said.
        source: OpenError,
    },
}

/// Can the manager go by these terms? Nothing changes.
///
/// # Errors
/// [`TermsError::Promised`] if what is reserved would not fit any more, or fits even less.
pub fn check_terms(manager: &Manager, terms: &ManagerTerms) -> Result<(), TermsError> {
    let core = &manager.core;
    let now = core.now();
    let trusted = core.capacity.borrow().trusted();
    let mut calendar = core.bookings.calendar.borrow_mut();
    let fits_now = calendar.overcommitted(now).is_empty();
    calendar.set_floors(core.share_of(terms.floor, &trusted));
    let over = calendar.overcommitted(now);
    calendar.set_floors(core.floors(&trusted));
    // What fits no more by now is not made worse.
    let is_refused = fits_now || terms.floor > core.queue.floor();
    match over.first().filter(|_| is_refused) {
        None => Ok(()),
        Some(stretch) => Err(TermsError::Promised {
            store: core.store.name().to_owned(),
            floor: terms.floor,
            from: stretch.slot.start,
        }),
    }
}

/// The manager goes by these terms from now on: also clients that are in by what is allowed no more go.
///
/// # Errors
/// [`TermsError`]; then nothing changes.
pub fn set_terms(manager: &Manager, terms: &ManagerTerms) -> Result<(), TermsError> {
    check_terms(manager, terms)?;
    let core = &manager.core;
    set_background(core, terms)?;
    core.keys.set_skew(terms.skew);
    manager.sessions.unauthenticated.set(terms.unauthenticated);
    core.revoked.notify_all();
    Ok(())
}

fn set_background(core: &Core, terms: &ManagerTerms) -> Result<(), TermsError> {
    if core.queue.background() == (terms.floor, terms.ceiling) {
        return Ok(());
    }
    let done = core.queue.set_background(terms.floor, terms.ceiling);
    done.map_err(|source| TermsError::Scheduler {
        store: core.store.name().to_owned(),
        source,
    })?;
    core.set_trusted_capacity();
    Ok(())
}
