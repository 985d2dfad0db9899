//! A cache without data: is this request a hit? For the simulator, the golden tests and benchmarks.

use super::{Index, Replacement};

/// An [`Index`], the keys and a policy: everything a cache decides, nothing it stores.
///
/// # Example
/// ```
/// use policy::cache::{Cache, Lru};
/// let mut cache = Cache::new(Lru::new(2));
/// let hits = [1, 2, 1, 3, 2].map(|key| cache.access(key));
/// assert_eq!(hits, [false, false, true, false, false]);
/// ```
#[derive(Clone, Debug)]
pub struct Cache<P> {
    index: Index,
    keys: Vec<u64>,
    capacity: u32,
    policy: P,
}

impl<P: Replacement> Cache<P> {
    /// A cache of as many objects as `policy` was made for, with a [roomy](Index::roomy) index.
    ///
    /// # Panics
    /// If `policy` holds frames already or was made for none.
    pub fn new(policy: P) -> Self {
        let index = Index::roomy(policy.capacity());
        Cache::with(policy, index)
    }

    /// The same with the compact index that engines use: half its size, about half the rate.
    ///
    /// # Panics
    /// If `policy` holds frames already or was made for none.
    pub fn compact(policy: P) -> Self {
        let index = Index::new(policy.capacity());
        Cache::with(policy, index)
    }

    fn with(policy: P, index: Index) -> Self {
        let capacity = policy.capacity();
        assert!(
            capacity > 0 && policy.is_empty(),
            "a cache starts with room and empty"
        );
        Cache {
            index,
            keys: Vec::with_capacity(capacity as usize),
            capacity,
            policy,
        }
    }

    /// One request for `key`: a hit? A missing key comes in, if need be for another.
    #[inline]
    pub fn access(&mut self, key: u64) -> bool {
        let keys = &self.keys;
        if let Some(frame) = self.index.find(key, |frame| keys[frame as usize]) {
            self.policy.hit(frame, key);
            return true;
        }
        self.policy.missed(key);
        let frame = self.room(key);
        let keys = &self.keys;
        self.index.insert(key, frame, |frame| keys[frame as usize]);
        self.policy.insert(frame, key);
        false
    }

    /// A frame that holds `key` but is in neither index nor policy yet.
    #[inline]
    fn room(&mut self, key: u64) -> u32 {
        if self.keys.len() < self.capacity as usize {
            self.keys.push(key);
            return self.keys.len() as u32 - 1;
        }
        let keys = &self.keys;
        let key_of = |frame: u32| keys[frame as usize];
        let victim = self.policy.evict(Some(key), &key_of, &mut |_| true);
        let victim = victim.expect("a full cache whose frames may all go has a victim");
        let known = self.index.remove(keys[victim as usize], victim, key_of);
        debug_assert!(known, "frame {victim} is not in the index");
        self.keys[victim as usize] = key;
        victim
    }

    /// Objects resident.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Is nothing resident?
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// The policy.
    pub fn policy(&self) -> &P {
        &self.policy
    }

    /// Bytes held by index, keys and policy.
    pub fn memory(&self) -> usize {
        self.index.memory() + self.keys.capacity() * size_of::<u64>() + self.policy.memory()
    }
}
