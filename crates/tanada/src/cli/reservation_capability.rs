//! The capability set of a reservation that was made or changed, where the answer has it or not.
//!
//! ```text
//! answer: with it | without, and a reason -> asked for once more -> with it | why not
//! ```

use report::terminal::said;

use super::reservation_service::{Service, Which};
use crate::api::reservation::WholeReservation;

/// Why it cannot be had.
#[derive(Debug)]
pub struct Missing(pub String);

/// Puts its capability set into `made`, if its clients need one: asked for once more where the answer has none.
///
/// # Errors
/// [`Missing`] with the latest reason.
pub fn complete(service: &Service, made: &mut WholeReservation) -> Result<(), Missing> {
    let is_needed = !made.target.stores.is_empty() && !made.terms.allotment;
    if !is_needed || made.capability.is_some() {
        return Ok(());
    }
    let which = Which {
        id: &made.id,
        account: None,
    };
    match service.capability(which) {
        Ok(Some(found)) if found.capability.is_some() => {
            made.capability = found.capability;
            made.lacks.capability_error = None;
            Ok(())
        }
        Ok(Some(_)) => {
            let why = made.lacks.capability_error.clone();
            Err(Missing(
                why.unwrap_or_else(|| "the daemon answers none".to_owned()),
            ))
        }
        Ok(None) => Err(Missing("it is no longer there".to_owned())),
        Err(error) => Err(Missing(said::words(&error))),
    }
}
