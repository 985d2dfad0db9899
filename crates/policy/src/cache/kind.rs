//! Which policies are there, and what are they called?

use std::fmt;
use std::str::FromStr;

use super::{Arc, Clock, Fifo, Ghost, Lru, Replacement, S3Fifo, Sieve, WTinyLfu};

/// A replacement policy by name: `lru`, `fifo`, `clock`, `sieve`, `s3-fifo`, `arc`, `w-tinylfu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Kind {
    /// [`Lru`].
    Lru,
    /// [`Fifo`].
    Fifo,
    /// [`Clock`].
    Clock,
    /// [`Sieve`].
    Sieve,
    /// [`S3Fifo`] with one-bit counters; the default, as its authors advise for block traces.
    #[default]
    S3Fifo,
    /// [`Arc`].
    Arc,
    /// [`WTinyLfu`].
    WTinyLfu,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 7] = [
        Kind::Lru,
        Kind::Fifo,
        Kind::Clock,
        Kind::Sieve,
        Kind::S3Fifo,
        Kind::Arc,
        Kind::WTinyLfu,
    ];

    /// The name in configuration, metrics and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Lru => "lru",
            Kind::Fifo => "fifo",
            Kind::Clock => "clock",
            Kind::Sieve => "sieve",
            Kind::S3Fifo => "s3-fifo",
            Kind::Arc => "arc",
            Kind::WTinyLfu => "w-tinylfu",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is no policy's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is no replacement policy; choose one of lru, fifo, clock, sieve, s3-fifo, arc, w-tinylfu"
)]
pub struct UnknownKind(pub String);

impl FromStr for Kind {
    type Err = UnknownKind;
    fn from_str(name: &str) -> Result<Kind, UnknownKind> {
        let known = Kind::ALL.into_iter().find(|kind| kind.name() == name);
        known.ok_or_else(|| UnknownKind(name.to_owned()))
    }
}

/// The policy `kind` for frames `0..capacity`, with its default options.
///
/// # Example
/// ```
/// use policy::cache::{Kind, build};
/// let mut lru = build(Kind::Lru, 2);
/// lru.insert(0, 10);
/// lru.insert(1, 11);
/// lru.hit(0, 10);
/// assert_eq!(lru.evict(Some(12), &|frame| 10 + u64::from(frame), &mut |_| true), Some(1));
/// ```
pub fn build(kind: Kind, capacity: u32) -> Box<dyn Replacement> {
    match kind {
        Kind::Lru => Box::new(Lru::new(capacity)),
        Kind::Fifo => Box::new(Fifo::new(capacity)),
        Kind::Clock => Box::new(Clock::new(capacity)),
        Kind::Sieve => Box::new(Sieve::new(capacity)),
        Kind::S3Fifo => Box::new(S3Fifo::new(capacity)),
        Kind::Arc => Box::new(Arc::new(capacity)),
        Kind::WTinyLfu => Box::new(WTinyLfu::new(capacity)),
    }
}

/// Like [`build`], but LRU, FIFO, CLOCK and SIEVE come with a ghost of their last victims, so that
/// every policy answers [`Replacement::remembers`].
pub fn build_remembering(kind: Kind, capacity: u32) -> Box<dyn Replacement> {
    match kind {
        Kind::Lru => Box::new(Remembering::new(Lru::new(capacity))),
        Kind::Fifo => Box::new(Remembering::new(Fifo::new(capacity))),
        Kind::Clock => Box::new(Remembering::new(Clock::new(capacity))),
        Kind::Sieve => Box::new(Remembering::new(Sieve::new(capacity))),
        Kind::S3Fifo | Kind::Arc | Kind::WTinyLfu => build(kind, capacity),
    }
}

/// The share of the capacity a ghost remembers.
///
/// Source: S3-FIFO 4.1: as many ghost entries as the main queue has objects, 90 %.
pub(crate) const GHOST_SHARE: f64 = 0.9;

/// A policy that remembers its victims in a [`Ghost`], for admission on second access.
#[derive(Clone, Debug)]
pub struct Remembering<P> {
    policy: P,
    ghost: Ghost,
}

impl<P: Replacement> Remembering<P> {
    /// Wraps `policy` with a ghost of 0.9 of its capacity.
    pub fn new(policy: P) -> Self {
        let ghost = Ghost::share(policy.capacity(), GHOST_SHARE);
        Remembering { policy, ghost }
    }
}

impl<P: Replacement> Replacement for Remembering<P> {
    fn missed(&mut self, key: u64) {
        self.policy.missed(key);
    }
    fn hit(&mut self, frame: u32, key: u64) {
        self.policy.hit(frame, key);
    }
    fn insert(&mut self, frame: u32, key: u64) {
        self.ghost.take(key);
        self.policy.insert(frame, key);
    }
    fn evict(
        &mut self,
        incoming: Option<u64>,
        key_of: &dyn Fn(u32) -> u64,
        may: &mut dyn FnMut(u32) -> bool,
    ) -> Option<u32> {
        let victim = self.policy.evict(incoming, key_of, may)?;
        self.ghost.push(key_of(victim));
        Some(victim)
    }
    fn remove(&mut self, frame: u32) {
        self.policy.remove(frame);
    }
    fn is_unused(&self, frame: u32) -> bool {
        self.policy.is_unused(frame)
    }
    fn leave(&mut self, frame: u32, key: u64) {
        self.policy.leave(frame, key);
        self.ghost.push(key);
    }
    fn moved(&mut self, from: u32, to: u32) {
        self.policy.moved(from, to);
    }
    fn remembers(&self, key: u64) -> bool {
        self.ghost.contains(key) || self.policy.remembers(key)
    }
    fn len(&self) -> usize {
        self.policy.len()
    }
    fn coldest_first(&self, visit: &mut dyn FnMut(u32)) {
        self.policy.coldest_first(visit);
    }
    fn capacity(&self) -> u32 {
        self.policy.capacity()
    }
    fn resize(&mut self, capacity: u32) {
        self.policy.resize(capacity);
        self.ghost = Ghost::share(capacity, GHOST_SHARE);
    }
    fn memory(&self) -> usize {
        self.policy.memory() + self.ghost.memory()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_is_found_by_its_name() {
        for kind in Kind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        assert_eq!(
            "mru".parse::<Kind>().unwrap_err().to_string(),
            "'mru' is no replacement policy; choose one of lru, fifo, clock, sieve, s3-fifo, arc, w-tinylfu"
        );
    }

    #[test]
    fn a_policy_with_a_ghost_remembers_victims_until_they_return() {
        for kind in Kind::ALL {
            if kind == Kind::WTinyLfu || kind == Kind::S3Fifo || kind == Kind::Arc {
                continue; // Tested beside the policy: they remember in their own way.
            }
            let mut policy = build_remembering(kind, 4);
            policy.insert(3, 9);
            assert!(!policy.remembers(9), "{kind}: resident");
            assert_eq!(policy.evict(None, &|_| 9, &mut |_| true), Some(3), "{kind}");
            assert!(policy.remembers(9), "{kind}");
            assert!(!policy.remembers(10), "{kind}");
            policy.insert(0, 9);
            assert!(!policy.remembers(9), "{kind}: resident again");
        }
    }
}
