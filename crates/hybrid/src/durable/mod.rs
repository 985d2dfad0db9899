//! What the ledger keeps: records of pages and extents, write intents, fingerprints of the slow device; and what the
//! next process finds of it between two commits.

pub(crate) mod intent;
pub(crate) mod record;
pub(crate) mod restart;
pub(crate) mod samples;
pub(crate) mod source;
