//! The cache block allocation of DMSSD, exactly as published: for comparison, never in production.
//!
//! ```text
//! request --hash, chain--> hit: to the LRU tail
//!                       -> miss, allocate (figure 7):
//!                            a block never used yet, lowest number first  -> mapped
//!                            else from the LRU head on:
//!                              being written back or mapped: skip
//!                              dirty: write it back, the request bypasses
//!                              else: mapped
//!                            every block busy: the request bypasses
//! ```
//!
//! Source: DMSSD 4.2, figures 4-7. Index arrays in place of pointers; a hash table of 2^21 heads.
//!
//! Choice: the paper names no hash function; a multiplication, its upper bits, as the kernel's
//! `hash_64`. A block goes to the LRU tail when it is mapped and when it is used.
//!
//! The states of a block and the functions that walk them:
//!
//! ```text
//! (never used)      -> reserved          allocate
//! reserved          -> valid             filled     the block's data are on the fast device
//! valid             -> dirty             wrote      write-back only
//! dirty             -> dirty, writeback  allocate   chosen as victim: its request bypasses
//! dirty, writeback  -> valid             written_back
//! valid             -> reserved          allocate   for another block
//! ```
//!
//! Always true:
//! 1. A block in use is in exactly one hash chain and in the LRU list; one never used is in neither.
//! 2. Blocks come into use in ascending order.

/// "No block", the paper's -1.
const NONE: u32 = u32::MAX;

/// Heads of the hash table.
///
/// Source: DMSSD 4.2, "2M entries".
pub const HEADS: usize = 1 << 21;

/// The flags of one block (figure 4, `state`). Allocated: it has been mapped at least once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct State {
    /// It stands for some block of the slow device.
    pub allocated: bool,
    /// Its data are those of that block, or newer.
    pub valid: bool,
    /// They are newer.
    pub dirty: bool,
    /// They are being written to the slow device.
    pub writeback: bool,
    /// It is being mapped: its data are still to come.
    pub reserved: bool,
}

/// What figure 7 answers to a miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// This cache block stands for the wanted block now; it is reserved until filled.
    Mapped {
        /// The cache block.
        cache_block: u32,
        /// The block it stood for until now.
        replaced: Option<u64>,
    },
    /// This dirty cache block is to be written back; the request goes to the slow device.
    WriteBack {
        /// The cache block.
        cache_block: u32,
        /// The block it stands for.
        block: u64,
    },
    /// Every cache block is being mapped or written back; the request goes to the slow device.
    Busy,
}

/// The mapping table of figure 6.
#[derive(Clone, Debug)]
pub struct Dmssd {
    block: Vec<u64>,
    state: Vec<State>,
    hash_table: Vec<u32>,
    chain_prev: Vec<u32>,
    chain_next: Vec<u32>,
    lru_prev: Vec<u32>,
    lru_next: Vec<u32>,
    /// Unused for longest.
    lru_head: u32,
    /// Used last.
    lru_tail: u32,
    /// Blocks used so far.
    index: u32,
}

impl Dmssd {
    /// A table for `size` cache blocks, none used yet.
    pub fn new(size: u32) -> Dmssd {
        Dmssd::with_heads(size, HEADS)
    }

    /// The same with another number of hash heads, a power of two.
    pub fn with_heads(size: u32, heads: usize) -> Dmssd {
        assert!(
            heads.is_power_of_two(),
            "{heads} hash heads are no power of two"
        );
        assert!(size < NONE, "{size} blocks are too many");
        let none = vec![NONE; size as usize];
        Dmssd {
            block: vec![0; size as usize],
            state: vec![State::default(); size as usize],
            hash_table: vec![NONE; heads],
            chain_prev: none.clone(),
            chain_next: none.clone(),
            lru_prev: none.clone(),
            lru_next: none,
            lru_head: NONE,
            lru_tail: NONE,
            index: 0,
        }
    }

    /// Cache blocks.
    pub fn size(&self) -> u32 {
        self.block.len() as u32
    }

    /// The flags of a cache block.
    pub fn state(&self, cache_block: u32) -> State {
        self.state[cache_block as usize]
    }

    /// The block of the slow device a cache block stands for.
    pub fn block(&self, cache_block: u32) -> Option<u64> {
        self.state(cache_block)
            .allocated
            .then(|| self.block[cache_block as usize])
    }

    fn head_of(&self, block: u64) -> usize {
        let bits = self.hash_table.len().trailing_zeros();
        let hash = block.wrapping_mul(0x61c8_8646_80b5_83eb);
        // The full shift of a table with one head is written out.
        if bits == 0 {
            0
        } else {
            (hash >> (64 - bits)) as usize
        }
    }

    /// The cache block that stands for `block`; it may still be reserved.
    pub fn find(&self, block: u64) -> Option<u32> {
        let mut at = self.hash_table[self.head_of(block)];
        while at != NONE {
            if self.block[at as usize] == block {
                return Some(at);
            }
            at = self.chain_next[at as usize];
        }
        None
    }

    /// A cache block was used: it becomes the last of the LRU list.
    pub fn used(&mut self, cache_block: u32) {
        self.lru_unlink(cache_block);
        self.lru_append(cache_block);
    }

    /// Finds a cache block for `block`, which is not cached: figure 7.
    pub fn allocate(&mut self, block: u64) -> Allocation {
        debug_assert!(
            self.find(block).is_none(),
            "block {block} is cached already"
        );
        let (cache_block, replaced) = if self.index < self.size() {
            let fresh = self.index;
            self.index += 1;
            (fresh, None)
        } else {
            let mut this = self.lru_head;
            loop {
                if this == NONE {
                    return Allocation::Busy;
                }
                let state = &mut self.state[this as usize];
                if state.writeback || state.reserved {
                    this = self.lru_next[this as usize];
                } else if state.dirty {
                    state.writeback = true;
                    let block = self.block[this as usize];
                    return Allocation::WriteBack {
                        cache_block: this,
                        block,
                    };
                } else {
                    break;
                }
            }
            self.chain_unlink(this);
            self.lru_unlink(this);
            (this, Some(self.block[this as usize]))
        };
        self.block[cache_block as usize] = block;
        self.state[cache_block as usize] = State {
            allocated: true,
            reserved: true,
            ..State::default()
        };
        self.chain_push(cache_block);
        self.lru_append(cache_block);
        Allocation::Mapped {
            cache_block,
            replaced,
        }
    }

    /// A reserved block has its data: it is valid.
    pub fn filled(&mut self, cache_block: u32) {
        let state = &mut self.state[cache_block as usize];
        assert!(
            state.reserved,
            "cache block {cache_block} is not being mapped: {state:?}"
        );
        state.reserved = false;
        state.valid = true;
    }

    /// A valid block was written on the fast device only: it is dirty.
    pub fn wrote(&mut self, cache_block: u32) {
        let state = &mut self.state[cache_block as usize];
        assert!(
            state.valid,
            "cache block {cache_block} has no data to be newer: {state:?}"
        );
        state.dirty = true;
    }

    /// A block's data have reached the slow device: it is clean.
    pub fn written_back(&mut self, cache_block: u32) {
        let state = &mut self.state[cache_block as usize];
        assert!(
            state.writeback,
            "cache block {cache_block} is not being written back: {state:?}"
        );
        state.writeback = false;
        state.dirty = false;
    }

    /// Visits the cache blocks in LRU order, the one unused for longest first.
    pub fn lru(&self, visit: &mut dyn FnMut(u32)) {
        let mut at = self.lru_head;
        while at != NONE {
            visit(at);
            at = self.lru_next[at as usize];
        }
    }

    /// Bytes it holds.
    pub fn memory(&self) -> usize {
        self.block.capacity() * size_of::<u64>()
            + self.state.capacity() * size_of::<State>()
            + (self.hash_table.capacity() + 4 * self.block.len()) * size_of::<u32>()
    }

    fn chain_push(&mut self, at: u32) {
        let head = self.head_of(self.block[at as usize]);
        let next = self.hash_table[head];
        self.chain_prev[at as usize] = NONE;
        self.chain_next[at as usize] = next;
        if next != NONE {
            self.chain_prev[next as usize] = at;
        }
        self.hash_table[head] = at;
    }

    fn chain_unlink(&mut self, at: u32) {
        let (prev, next) = (self.chain_prev[at as usize], self.chain_next[at as usize]);
        if prev == NONE {
            let head = self.head_of(self.block[at as usize]);
            self.hash_table[head] = next;
        } else {
            self.chain_next[prev as usize] = next;
        }
        if next != NONE {
            self.chain_prev[next as usize] = prev;
        }
    }

    fn lru_append(&mut self, at: u32) {
        self.lru_prev[at as usize] = self.lru_tail;
        self.lru_next[at as usize] = NONE;
        match self.lru_tail {
            NONE => self.lru_head = at,
            tail => self.lru_next[tail as usize] = at,
        }
        self.lru_tail = at;
    }

    fn lru_unlink(&mut self, at: u32) {
        let (prev, next) = (self.lru_prev[at as usize], self.lru_next[at as usize]);
        match prev {
            NONE => self.lru_head = next,
            prev => self.lru_next[prev as usize] = next,
        }
        match next {
            NONE => self.lru_tail = prev,
            next => self.lru_prev[next as usize] = prev,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::tests::Dice;

    /// A full table of clean blocks 100, 101, ..., in this order of use.
    fn full(size: u32) -> Dmssd {
        let mut table = Dmssd::with_heads(size, 8);
        for n in 0..size {
            let mapped = table.allocate(100 + u64::from(n));
            assert_eq!(
                mapped,
                Allocation::Mapped {
                    cache_block: n,
                    replaced: None
                }
            );
            table.filled(n);
        }
        table
    }

    fn order(table: &Dmssd) -> Vec<u32> {
        let mut order = Vec::new();
        table.lru(&mut |at| order.push(at));
        order
    }

    #[test]
    fn never_used_blocks_come_first_lowest_number_first() {
        let mut table = Dmssd::with_heads(3, 8);
        for (n, block) in [900, 5, 70].into_iter().enumerate() {
            assert_eq!(table.find(block), None);
            let cache_block = n as u32;
            assert_eq!(
                table.allocate(block),
                Allocation::Mapped {
                    cache_block,
                    replaced: None
                }
            );
            assert_eq!(table.find(block), Some(cache_block));
            let mapping = State {
                allocated: true,
                reserved: true,
                ..State::default()
            };
            assert_eq!(table.state(cache_block), mapping);
            // Even where an older block could be replaced.
            table.filled(cache_block);
            assert_eq!(
                table.state(cache_block),
                State {
                    reserved: false,
                    valid: true,
                    ..mapping
                }
            );
        }
        assert_eq!(order(&table), [0, 1, 2]);
    }

    #[test]
    fn then_the_clean_block_unused_for_longest_is_replaced() {
        let mut table = full(3);
        table.used(0);
        assert_eq!(
            table.allocate(7),
            Allocation::Mapped {
                cache_block: 1,
                replaced: Some(101)
            }
        );
        assert_eq!((table.find(101), table.find(7)), (None, Some(1)));
        assert_eq!(table.block(1), Some(7));
        assert_eq!(order(&table), [2, 0, 1]);
    }

    #[test]
    fn blocks_being_written_back_or_mapped_are_skipped() {
        let mut table = full(4);
        table.wrote(0);
        assert_eq!(
            table.allocate(7),
            Allocation::WriteBack {
                cache_block: 0,
                block: 100
            }
        );
        assert_eq!(
            table.allocate(7),
            Allocation::Mapped {
                cache_block: 1,
                replaced: Some(101)
            },
            "0 is being written back"
        );
        table.used(2);
        table.used(3);
        assert_eq!(order(&table), [0, 1, 2, 3]);
        assert_eq!(
            table.allocate(8),
            Allocation::Mapped {
                cache_block: 2,
                replaced: Some(102)
            },
            "1 is being mapped"
        );
    }

    #[test]
    fn a_dirty_victim_is_only_written_back_and_the_request_bypasses() {
        let mut table = full(2);
        table.wrote(0);
        assert_eq!(
            table.allocate(7),
            Allocation::WriteBack {
                cache_block: 0,
                block: 100
            }
        );
        assert_eq!(table.find(7), None, "nothing was mapped");
        assert_eq!(table.find(100), Some(0), "its old block is still cached");
        assert!(table.state(0).writeback && table.state(0).dirty);
        table.written_back(0);
        assert!(!table.state(0).writeback && !table.state(0).dirty && table.state(0).valid);
        assert_eq!(
            table.allocate(7),
            Allocation::Mapped {
                cache_block: 0,
                replaced: Some(100)
            },
            "clean now, and still unused for longest"
        );
    }

    #[test]
    fn a_clean_block_behind_a_dirty_one_is_not_looked_for() {
        let mut table = full(3);
        table.wrote(0);
        assert!(matches!(
            table.allocate(7),
            Allocation::WriteBack { cache_block: 0, .. }
        ));
    }

    #[test]
    fn with_every_block_busy_the_request_bypasses() {
        let mut table = Dmssd::with_heads(2, 8);
        table.allocate(1);
        table.allocate(2);
        assert_eq!(table.allocate(3), Allocation::Busy);
        table.filled(1);
        table.wrote(1);
        assert_eq!(
            table.allocate(3),
            Allocation::WriteBack {
                cache_block: 1,
                block: 2
            }
        );
        assert_eq!(table.allocate(3), Allocation::Busy);
        table.filled(0);
        assert_eq!(
            table.allocate(3),
            Allocation::Mapped {
                cache_block: 0,
                replaced: Some(1)
            }
        );
    }

    #[test]
    fn a_table_of_one_chain_finds_what_a_map_finds() {
        for heads in [1, 2, 16] {
            let mut dice = Dice::new(heads as u64);
            let mut table = Dmssd::with_heads(20, heads);
            let mut map = std::collections::BTreeMap::new();
            let mut hits = 0;
            for _ in 0..5_000 {
                let block = dice.below(40);
                assert_eq!(table.find(block), map.get(&block).copied());
                if let Some(at) = table.find(block) {
                    table.used(at);
                    hits += 1;
                    continue;
                }
                let Allocation::Mapped {
                    cache_block,
                    replaced,
                } = table.allocate(block)
                else {
                    panic!("every block is clean");
                };
                if let Some(replaced) = replaced {
                    assert_eq!(map.remove(&replaced), Some(cache_block));
                }
                map.insert(block, cache_block);
                table.filled(cache_block);
                let mut seen = order(&table);
                assert_eq!(seen.last(), Some(&cache_block));
                seen.sort_unstable();
                assert_eq!(seen, (0..map.len() as u32).collect::<Vec<_>>());
            }
            assert!(hits > 1_000, "{hits}");
        }
    }

    #[test]
    fn the_published_table_has_two_million_heads() {
        let table = Dmssd::new(1_000);
        assert_eq!(table.hash_table.len(), 2_097_152);
        assert!(table.memory() > 8 << 20, "8 MiB of heads");
    }
}
