//! Basic types that all crates share: units, aligned buffers, checksums, and maps whose order is the same in each
//! run.
//!
//! Nothing here knows a clock, a device or a task; everything above may use everything here.

pub mod buf;
pub mod crc;
mod huge;
mod parcel;
pub mod units;

pub use buf::{Buf, PAGE, View};
pub use parcel::Parcel;
pub use units::{Bytes, Instant, Nanos, SECTOR, Sector, Span};

/// A hash map whose order is the same in every run (a fixed hash, no random state).
pub type Map<K, V> = rustc_hash::FxHashMap<K, V>;
/// A hash set whose order is the same in every run.
pub type Set<K> = rustc_hash::FxHashSet<K>;
