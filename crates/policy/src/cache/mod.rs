//! Which block leaves when another must come in? Replacement policies, and what decides beside them.
//!
//! ```text
//! request --key--> Index --hit--> Replacement::hit
//!                        --miss-> Replacement::missed -> (admission) -> evict -> insert
//! ```
//!
//! Policies are index-based: a cached block lives in a *frame* `0..capacity`, and a policy keeps a few
//! bits and links per frame, never keys (those are lent through `key_of`). The engine in `hybrid`, the
//! simulator ([`Cache`]) and the benchmarks run this same code.
//!
//! **Frames that may not go now.** The caller refuses a frame that is busy or dirty. Such a frame is
//! *set aside*: it leaves its place in the order for a queue of refused frames, of which the next
//! victim hunts look at a few first, oldest first, before they go on. So a refused frame goes soon
//! after it may, a long cold stretch of dirty frames is passed once and not at every eviction, and
//! where nothing is refused every policy is exactly the published one. A use brings a frame back as
//! the policy has it. Only when no frame outside the queue may go is the queue looked through whole:
//! a caller that knows that no frame may go should not ask.
//!
//! Source: DMSSD 4.2 (LRU); S3-FIFO (SOSP 2023), SIEVE (NSDI 2024), ARC (FAST 2003), W-TinyLFU (2017).

pub mod admission;
pub mod allowance;
mod arc;
pub mod cleaner;
mod clock;
pub mod dmssd;
mod fifo;
mod ghost;
mod index;
mod kind;
mod lists;
mod lru;
mod marks;
mod packed;
mod s3fifo;
mod sieve;
mod simulated;
#[cfg(test)]
mod tests;
mod tinylfu;

pub use arc::Arc;
pub use clock::Clock;
pub use fifo::Fifo;
pub use ghost::Ghost;
pub use index::Index;
pub use kind::{Kind, Remembering, UnknownKind, build, build_remembering};
pub use lru::Lru;
pub use s3fifo::{S3Fifo, S3FifoOptions};
pub use sieve::Sieve;
pub use simulated::Cache;
pub use tinylfu::{WTinyLfu, WTinyLfuOptions};

/// A replacement policy over frames `0..capacity`.
///
/// The caller owns the frames and their keys. It calls [`missed`](Self::missed) or
/// [`hit`](Self::hit) for every request, [`insert`](Self::insert) when a frame is filled, and
/// [`evict`](Self::evict) when it needs a frame. A frame is held from `insert` until `evict` returns
/// it or `remove` forgets it; every other call on a frame not held is a mistake and panics.
pub trait Replacement {
    /// `key` was looked up and is not resident (admission bookkeeping: sketches, ghosts).
    fn missed(&mut self, key: u64);

    /// `frame`, which holds `key`, was used.
    fn hit(&mut self, frame: u32, key: u64);

    /// `frame` (free until now) holds `key` from now on.
    fn insert(&mut self, frame: u32, key: u64);

    /// The next victim among the frames `may` allows, to make room for `incoming` (`None`: room ahead
    /// of need). It leaves the policy; ghosts remember its key, which `key_of` returns. `None`: every
    /// frame was refused. For the order under refusals see the [module](self).
    fn evict(
        &mut self,
        incoming: Option<u64>,
        key_of: &dyn Fn(u32) -> u64,
        may: &mut dyn FnMut(u32) -> bool,
    ) -> Option<u32>;

    /// `frame` was invalidated: forget it, no ghost.
    fn remove(&mut self, frame: u32);

    /// Was `frame` not used since it came in, or since the hunt last passed it? For a caller that would rather have frames
    /// which lie together than the next ones. `false` where the policy does not know.
    fn is_unused(&self, _frame: u32) -> bool {
        false
    }

    /// `frame`, which holds `key`, leaves to make room though it is not the next victim; ghosts remember its key.
    fn leave(&mut self, frame: u32, _key: u64) {
        self.remove(frame);
    }

    /// The object in `from` lives in `to` from now on, everything else unchanged (out-of-place
    /// overwrite). `to` was free; `from` is free then.
    fn moved(&mut self, from: u32, to: u32);

    /// Has `key` been seen lately though it is not resident? For admission on second access; ask before
    /// `missed`, which may make the policy remember. Policies without a memory of their own answer
    /// `false` unless wrapped in [`Remembering`].
    fn remembers(&self, key: u64) -> bool;

    /// Frames held.
    fn len(&self) -> usize;

    /// Are no frames held?
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Visits every frame held, coldest first as far as the policy knows an order: inserting them in
    /// this order into a fresh policy approximates this one (for saving recency across restarts).
    fn coldest_first(&self, visit: &mut dyn FnMut(u32));

    /// Frames it was made for.
    fn capacity(&self) -> u32;

    /// Grows or shrinks to frames `0..capacity`, after the caller evicted or moved what must go.
    ///
    /// # Panics
    /// If a frame beyond `capacity` is held.
    fn resize(&mut self, capacity: u32);

    /// Memory it holds, in bytes.
    fn memory(&self) -> usize;
}

impl<P: Replacement + ?Sized> Replacement for Box<P> {
    fn missed(&mut self, key: u64) {
        (**self).missed(key);
    }
    fn hit(&mut self, frame: u32, key: u64) {
        (**self).hit(frame, key);
    }
    fn insert(&mut self, frame: u32, key: u64) {
        (**self).insert(frame, key);
    }
    fn evict(
        &mut self,
        incoming: Option<u64>,
        key_of: &dyn Fn(u32) -> u64,
        may: &mut dyn FnMut(u32) -> bool,
    ) -> Option<u32> {
        (**self).evict(incoming, key_of, may)
    }
    fn remove(&mut self, frame: u32) {
        (**self).remove(frame);
    }
    fn is_unused(&self, frame: u32) -> bool {
        (**self).is_unused(frame)
    }
    fn leave(&mut self, frame: u32, key: u64) {
        (**self).leave(frame, key);
    }
    fn moved(&mut self, from: u32, to: u32) {
        (**self).moved(from, to);
    }
    fn remembers(&self, key: u64) -> bool {
        (**self).remembers(key)
    }
    fn len(&self) -> usize {
        (**self).len()
    }
    fn coldest_first(&self, visit: &mut dyn FnMut(u32)) {
        (**self).coldest_first(visit);
    }
    fn capacity(&self) -> u32 {
        (**self).capacity()
    }
    fn resize(&mut self, capacity: u32) {
        (**self).resize(capacity);
    }
    fn memory(&self) -> usize {
        (**self).memory()
    }
}
