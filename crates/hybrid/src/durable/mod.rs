//! What the ledger keeps: records of pages and extents, write intents, fingerprints of the slow device.

pub(crate) mod intent;
pub(crate) mod record;
pub(crate) mod samples;
pub(crate) mod source;
