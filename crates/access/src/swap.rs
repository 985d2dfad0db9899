//! Changes of records by compare-and-swap.
//!
//! Always true: a change that another one came before has no effect, and is tried again a few times at most.

use base::Nanos;
use vdisk::meta::{Compare, MetaError, MetaStore, Op, Outcome};

use crate::error::AccessError;

/// How often something is tried again that another change came before.
const TRIES: u64 = 6;

/// One transaction; `None` if another change came before, or its outcome is unknown: look again.
pub(crate) async fn swap(
    meta: &dyn MetaStore,
    compares: Vec<Compare>,
    ops: Vec<Op>,
) -> Result<Option<()>, AccessError> {
    match meta.txn(compares, ops).await {
        Ok(Outcome::Done(_)) => Ok(Some(())),
        Ok(Outcome::Refused(_)) | Err(MetaError::Unknown { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Tries something until no other change comes before, a few times.
pub(crate) async fn again<T>(
    what: &str,
    attempt: impl AsyncFn() -> Result<Option<T>, AccessError>,
) -> Result<T, AccessError> {
    for tried in 1..=TRIES {
        if let Some(done) = attempt().await? {
            return Ok(done);
        }
        let wait = env::rng("again").below(40 * tried);
        env::sleep(Nanos::millis(5 + wait)).await;
    }
    Err(AccessError::Busy(what.to_owned()))
}
