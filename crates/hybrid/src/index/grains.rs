//! The grains that the index goes by.

/// Pages in a region: write intents and the cleaner's order go by 4 MiB.
pub(crate) const REGION_PAGES: u64 = 1024;
/// Pages that are pinned together: a MiB, and no block is bigger.
pub(crate) const UNIT_PAGES: u64 = 256;
/// All eight sectors of a page.
pub(crate) const FULL: u8 = 0xff;
