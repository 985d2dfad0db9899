//! Which extents' copies may differ after a crash, and which stores keep their bits?
//!
//! ```text
//! before a change: the extent's bit, durable on the bitmap replicas       some seconds after the last: the bit goes again
//! ```
//!
//! The *bitmap replicas* are as many in-sync stores as extents have copies. So a node that can open the volume
//! can seal one of them. Volumes of one copy need it for new extents alone: a single copy differs from nothing, but may not
//! be there.
//!
//! Always true: a bit that [`DirtyBitmap::is_set`] shows was durable on all bitmap replicas when it was set.

use std::collections::{BTreeMap, BTreeSet};

use base::{Instant, Nanos};
use policy::place::DomainId;

use crate::names::{Generation, StoreNumber};

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// Extents in a page.
pub const BITS: u32 = 32_768;
/// Extents behind one that is written in order whose bits are set with its own: 32 MiB, of which at most so much more is compared
/// after a crash.
const AHEAD: usize = 8;

/// How many changes use an extent, and when it was last used.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Use {
    under_way: u64,
    last: Instant,
}

/// A store that may keep bits: in sync, and not about to be taken from the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Keeper {
    /// Its number.
    pub store: StoreNumber,
    /// What it fails together with.
    pub domain: DomainId,
    /// Is there a connection to it?
    pub linked: bool,
    /// Is it to be empty?
    pub drained: bool,
}

/// The bits of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct DirtyBitmap {
    /// Durable on all bitmap replicas.
    bits: BTreeSet<u32>,
    /// To be durable next.
    wanted: BTreeSet<u32>,
    used: BTreeMap<u32, Use>,
    replicas: Vec<StoreNumber>,
}

impl DirtyBitmap {
    /// What the bitmaps of the writer before said: set, and to be written to the bitmap replicas of this one.
    pub fn preset(&mut self, bits: BTreeSet<u32>) {
        self.bits = bits;
    }

    /// All that are set.
    pub fn bits(&self) -> &BTreeSet<u32> {
        &self.bits
    }

    /// Is an extent's bit durable?
    pub fn is_set(&self, index: u32) -> bool {
        self.bits.contains(&index)
    }

    // --- uses -------------------------------------------------------------------------------------------------

    /// A change of an extent begins.
    pub fn begin_use(&mut self, index: u32) {
        self.used.entry(index).or_default().under_way += 1;
    }

    /// It is over.
    pub fn end_use(&mut self, index: u32, now: Instant) {
        let used = self.used.get_mut(&index).expect("counted when it began");
        used.under_way -= 1;
        used.last = now;
    }

    // --- bits that come ---------------------------------------------------------------------------------------

    /// An extent's bit is to be set with the next write of bits.
    pub fn want(&mut self, index: u32) {
        self.wanted.insert(index);
    }

    /// All that wait, in one write: `index`, also if the task that took it with its own gave up, and what will be changed next if a
    /// client writes in order. A bit for each extent would hold up every fourth write of 1 MiB. The volume ends before extent `end`;
    /// `wants` says which extents need a bit for a change at all.
    pub fn take_wanted(
        &mut self,
        index: u32,
        end: u32,
        now: Instant,
        wants: impl Fn(u32) -> bool,
    ) -> BTreeSet<u32> {
        let mut wanted = std::mem::take(&mut self.wanted);
        wanted.insert(index);
        let before = |index: &u32| index.checked_sub(1).is_some_and(|one| self.is_set(one));
        let in_order = wanted.iter().filter(|index| before(index));
        let next = in_order.flat_map(|index| (index + 1..end).take(AHEAD));
        let next = next.filter(|index| !self.is_set(*index) && wants(*index));
        let next: Vec<u32> = next.collect();
        for index in &next {
            // They go as others do when no write came.
            self.used.entry(*index).or_default().last = now;
        }
        wanted.extend(next);
        wanted
    }

    /// These are durable now.
    pub fn set(&mut self, bits: &BTreeSet<u32>) {
        self.bits.extend(bits);
    }

    /// These are not durable: they are to be with the next write.
    pub fn want_again(&mut self, bits: BTreeSet<u32>) {
        self.wanted.extend(bits);
    }

    // --- bits that go -----------------------------------------------------------------------------------------

    /// Takes the bits away of extents that were not used for `clean_after`, or with `all` of all that no change uses now, but for
    /// those of which something `keeps` the bit. A change that begins from here on finds no bit.
    pub fn take_clean(
        &mut self,
        now: Instant,
        clean_after: Nanos,
        all: bool,
        keeps: impl Fn(u32) -> bool,
    ) -> BTreeSet<u32> {
        let is_quiet = |index: &u32| {
            self.used.get(index).is_none_or(|it| {
                let old = now.since(it.last) >= clean_after;
                it.under_way == 0 && (all || old)
            })
        };
        let clean = self.bits.iter().copied();
        let clean = clean.filter(|index| is_quiet(index) && !keeps(*index));
        let clean: BTreeSet<u32> = clean.collect();
        self.bits.retain(|it| !clean.contains(it));
        self.used.retain(|it, _| !clean.contains(it));
        clean
    }

    // --- bitmap replicas --------------------------------------------------------------------------------------

    /// The stores that have all bits.
    pub fn replicas(&self) -> &[StoreNumber] {
        &self.replicas
    }

    /// Does a store have all bits?
    pub fn is_replica(&self, store: StoreNumber) -> bool {
        self.replicas.contains(&store)
    }

    /// These have all bits from now on.
    pub fn set_replicas(&mut self, replicas: Vec<StoreNumber>) {
        self.replicas = replicas;
    }

    /// How many bitmap replicas there are besides these; `None`: none were chosen yet.
    pub fn replicas_without(&self, out: &BTreeMap<StoreNumber, Generation>) -> Option<usize> {
        let left = self.replicas.iter().filter(|it| !out.contains_key(it));
        (!self.replicas.is_empty()).then_some(left.count())
    }

    /// The bitmap replicas among `keepers`, with more of other failure domains if they can be had; and how many were there
    /// before.
    pub fn next_replicas(&self, copies: usize, keepers: &[Keeper]) -> (Vec<StoreNumber>, usize) {
        let mut replicas = self.replicas.clone();
        replicas.retain(|number| keepers.iter().any(|it| it.store == *number));
        let there = |it: &&Keeper| replicas.contains(&it.store) && it.linked && !it.drained;
        if keepers.iter().filter(there).count() >= copies {
            // The others have all bits.
            let is_drained =
                |number: &StoreNumber| keepers.iter().any(|it| it.store == *number && it.drained);
            replicas.retain(|number| !is_drained(number));
        }
        let old = replicas.len();
        loop {
            let (own, left): (Vec<&Keeper>, Vec<&Keeper>) =
                (keepers.iter()).partition(|it| replicas.contains(&it.store));
            let near = |it: &Keeper| own.iter().any(|own| own.domain == it.domain);
            let cost = |it: &&Keeper| (it.drained, !it.linked, near(it));
            let Some(next) = left.into_iter().min_by_key(cost) else {
                return (replicas, old);
            };
            // One that cannot be reached does not do in place of one that can, nor one that is about to go in place of one that
            // stays.
            let counts =
                |it: &&&Keeper| (!it.drained || next.drained) && (it.linked || !next.linked);
            if own.iter().filter(counts).count() >= copies {
                return (replicas, old);
            }
            replicas.push(next.store);
        }
    }

    /// Are there too few bitmap replicas in sync, or is one drained that others could replace? `most` stores are in sync, of which `stay`
    /// are not drained.
    pub fn lacks_replicas(
        &self,
        copies: usize,
        (most, stay): (usize, usize),
        is_in_sync: impl Fn(StoreNumber) -> bool,
        is_drained: impl Fn(StoreNumber) -> bool,
    ) -> bool {
        let drained = self.replicas.iter().any(|one| is_drained(*one));
        let own = self.replicas.iter().filter(|one| is_in_sync(**one));
        own.count() < copies.min(most) || (drained && stay >= copies)
    }
}

/// The pages in which these extents have their bits.
pub fn pages(extents: &BTreeSet<u32>) -> BTreeSet<u32> {
    extents.iter().map(|it| it / BITS).collect()
}

/// Writes a page's bits into `bytes`, zeroes of its length.
pub fn fill(bytes: &mut [u8], page: u32, bits: &BTreeSet<u32>) {
    let first = page * BITS;
    for bit in bits.range(first..first.saturating_add(BITS)) {
        let at = bit - first;
        bytes[at as usize / 8] |= 1 << (at % 8);
    }
}

/// What pages of a bitmap say; `from` is the first byte's place in it.
pub fn parse(bytes: &[u8], from: u64) -> impl Iterator<Item = u32> + '_ {
    let set = bytes.iter().enumerate().filter(|(_, byte)| **byte != 0);
    set.flat_map(move |(at, byte)| {
        let first = (from + at as u64) * 8;
        (0..8_u64)
            .filter(move |bit| byte & (1 << bit) != 0)
            .map(move |bit| (first + bit) as u32)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keeper(store: u16, domain: u32) -> Keeper {
        Keeper {
            store: StoreNumber(store),
            domain: DomainId(domain),
            linked: true,
            drained: false,
        }
    }

    fn numbers(all: &[u16]) -> Vec<StoreNumber> {
        all.iter().map(|one| StoreNumber(*one)).collect()
    }

    #[test]
    fn a_page_says_the_bits_it_was_filled_with() {
        let bits = BTreeSet::from([0, 9, BITS - 1, BITS, BITS + 8]);
        assert_eq!(pages(&bits), BTreeSet::from([0, 1]));
        let mut read = BTreeSet::new();
        for page in 0..2 {
            let mut bytes = vec![0; PAGE as usize];
            fill(&mut bytes, page, &bits);
            read.extend(parse(&bytes, u64::from(page) * PAGE));
        }
        assert_eq!(read, bits);
    }

    #[test]
    fn extents_written_in_order_get_the_next_bits_too() {
        let mut bitmap = DirtyBitmap::default();
        let now = Instant::default();
        assert_eq!(
            bitmap.take_wanted(3, 100, now, |_| true),
            BTreeSet::from([3])
        );
        bitmap.set(&BTreeSet::from([3]));
        let next = bitmap.take_wanted(4, 8, now, |index| index != 6);
        assert_eq!(next, BTreeSet::from([4, 5, 7]));
    }

    #[test]
    fn a_bit_stays_while_its_extent_is_used_and_a_while_longer() {
        let mut bitmap = DirtyBitmap::default();
        bitmap.preset(BTreeSet::from([1, 2, 3]));
        let later = |seconds| Instant::default() + Nanos::secs(seconds);
        bitmap.begin_use(1);
        bitmap.begin_use(2);
        bitmap.end_use(2, later(10));
        let clean = |bitmap: &mut DirtyBitmap, at, all| {
            bitmap.take_clean(at, Nanos::secs(5), all, |index| index == 3)
        };
        assert_eq!(clean(&mut bitmap, later(14), false), BTreeSet::new());
        assert_eq!(clean(&mut bitmap, later(14), true), BTreeSet::from([2]));
        bitmap.end_use(1, later(14));
        assert_eq!(clean(&mut bitmap, later(19), false), BTreeSet::from([1]));
        assert_eq!(bitmap.bits(), &BTreeSet::from([3]));
    }

    #[test]
    fn bitmap_replicas_are_of_different_domains_and_stay() {
        let mut bitmap = DirtyBitmap::default();
        let keepers = [keeper(1, 1), keeper(2, 1), keeper(3, 2)];
        assert_eq!(bitmap.next_replicas(2, &keepers), (numbers(&[1, 3]), 0));
        bitmap.set_replicas(numbers(&[2, 3]));
        assert_eq!(bitmap.next_replicas(2, &keepers), (numbers(&[2, 3]), 2));
    }

    #[test]
    fn a_drained_bitmap_replica_goes_when_others_have_all_bits() {
        let mut bitmap = DirtyBitmap::default();
        bitmap.set_replicas(numbers(&[1, 2]));
        let mut keepers = [keeper(1, 1), keeper(2, 2), keeper(3, 3)];
        keepers[0].drained = true;
        assert_eq!(bitmap.next_replicas(2, &keepers), (numbers(&[1, 2, 3]), 2));
        assert!(bitmap.lacks_replicas(2, (3, 2), |_| true, |one| one.0 == 1));
        assert!(!bitmap.lacks_replicas(2, (2, 1), |_| true, |one| one.0 == 1));
        bitmap.set_replicas(numbers(&[1, 2, 3]));
        assert_eq!(bitmap.next_replicas(2, &keepers), (numbers(&[2, 3]), 2));
    }

    #[test]
    fn a_store_without_a_connection_does_not_do_in_place_of_one_with() {
        let mut bitmap = DirtyBitmap::default();
        bitmap.set_replicas(numbers(&[1, 2]));
        let mut keepers = [keeper(1, 1), keeper(2, 2), keeper(3, 3)];
        keepers[1].linked = false;
        assert_eq!(bitmap.next_replicas(2, &keepers), (numbers(&[1, 2, 3]), 2));
        keepers[2].linked = false;
        assert_eq!(bitmap.next_replicas(2, &keepers), (numbers(&[1, 2]), 2));
    }
}
