//! How many different blocks were used since this one? LRU stack distances, in one pass.
//!
//! ```text
//! uses in order of time:  . . 1 . 1 1 . . 1 1      one bit per use: is it the last of its block?
//!                             ^ block b's last use: 4 blocks since, so its distance is 5
//! ```
//!
//! A Fenwick tree counts the bits of 512 uses per leaf, so a distance costs some popcounts and the
//! logarithm of (blocks / 256) additions in memory that fits a processor's cache. When the row of uses is full,
//! the last uses are moved together: the row is never longer than twice the blocks.
//!
//! Source: Mattson et al. (1970), stack distances; Olken (1981), a tree over last uses.
//!
//! Always true: the distance of a use is 1 + the number of different blocks used after the block's
//! last use, so an LRU cache of that many blocks or more has it.

const LEAF_WORDS: usize = 8;
const LEAF: usize = 64 * LEAF_WORDS;

/// The row of last uses. Blocks are named by numbers the caller keeps small.
#[derive(Clone, Debug)]
pub(super) struct Stack {
    /// Bit per use.
    bits: Vec<u64>,
    /// Which block made each use.
    user: Vec<u32>,
    /// Fenwick tree over leaves; entry 0 is unused.
    tree: Vec<u32>,
    /// Of each block its last use.
    last: Vec<u32>,
    next: u32,
    held: u32,
}

const NONE: u32 = u32::MAX;

impl Stack {
    /// For blocks below `blocks`; more may come.
    pub(super) fn new(blocks: usize) -> Stack {
        let mut stack = Stack {
            bits: Vec::new(),
            user: Vec::new(),
            tree: Vec::new(),
            last: vec![NONE; blocks],
            next: 0,
            held: 0,
        };
        stack.resize(2 * blocks);
        stack
    }

    /// Room for at least `uses` uses; clears the row.
    fn resize(&mut self, uses: usize) {
        let leaves = uses.max(2 * LEAF).div_ceil(LEAF);
        self.bits = vec![0; leaves * LEAF_WORDS];
        self.user.resize(leaves * LEAF, NONE);
        self.tree = vec![0; leaves + 1];
    }

    /// Notes a use of `block`: its distance, `None` the first time.
    #[inline]
    pub(super) fn used(&mut self, block: u32) -> Option<u32> {
        if self.next as usize == self.user.len() {
            self.move_together();
        }
        if block as usize >= self.last.len() {
            self.last.resize(block as usize + 1, NONE);
        }
        let before = std::mem::replace(&mut self.last[block as usize], self.next);
        let distance = (before != NONE).then(|| {
            let distance = self.held - self.up_to(before) + 1;
            self.unmark(before);
            distance
        });
        self.mark(self.next, block);
        self.next += 1;
        distance
    }

    /// Takes `block` from the stack.
    pub(super) fn forget(&mut self, block: u32) {
        let Some(last) = self.last.get_mut(block as usize) else {
            return;
        };
        let before = std::mem::replace(last, NONE);
        if before != NONE {
            self.unmark(before);
        }
    }

    #[inline]
    fn mark(&mut self, at: u32, block: u32) {
        self.bits[at as usize / 64] |= 1 << (at % 64);
        self.user[at as usize] = block;
        self.held += 1;
        let mut node = at as usize / LEAF + 1;
        while node < self.tree.len() {
            self.tree[node] += 1;
            node += node & node.wrapping_neg();
        }
    }

    #[inline]
    fn unmark(&mut self, at: u32) {
        self.bits[at as usize / 64] &= !(1 << (at % 64));
        self.held -= 1;
        let mut node = at as usize / LEAF + 1;
        while node < self.tree.len() {
            self.tree[node] -= 1;
            node += node & node.wrapping_neg();
        }
    }

    /// Last uses at `at` and before.
    #[inline]
    fn up_to(&self, at: u32) -> u32 {
        let word = at as usize / 64;
        let mut sum = (self.bits[word] << (63 - at % 64)).count_ones();
        let leaf = word / LEAF_WORDS;
        for bits in &self.bits[leaf * LEAF_WORDS..word] {
            sum += bits.count_ones();
        }
        let mut node = leaf;
        while node > 0 {
            sum += self.tree[node];
            node &= node - 1;
        }
        sum
    }

    /// Moves the last uses to the front of the row, in order.
    fn move_together(&mut self) {
        let users: Vec<u32> = (0..self.next)
            .filter(|&at| self.bits[at as usize / 64] & (1 << (at % 64)) != 0)
            .map(|at| self.user[at as usize])
            .collect();
        self.resize(2 * users.len());
        self.held = 0;
        for (at, &block) in users.iter().enumerate() {
            self.last[block as usize] = at as u32;
            self.mark(at as u32, block);
        }
        self.next = users.len() as u32;
    }

    /// Memory it holds, in bytes.
    pub(super) fn memory(&self) -> usize {
        8 * self.bits.capacity()
            + 4 * (self.user.capacity() + self.tree.capacity() + self.last.capacity())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_those_of_a_list_kept_in_order() {
        let (mut stack, mut list) = (Stack::new(3), Vec::<u32>::new());
        let mut state = 3u64;
        for step in 0..20_000u32 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let block = (state >> 33) as u32 % (1 + step / 20).min(700);
            let at = list.iter().position(|&held| held == block);
            let expected = at.map(|at| at as u32 + 1);
            if let Some(at) = at {
                list.remove(at);
            }
            // Now and then one is forgotten.
            if step % 13 == 0 {
                stack.forget(block);
                assert_eq!(stack.used(block), None);
            } else {
                assert_eq!(stack.used(block), expected, "step {step}");
            }
            list.insert(0, block);
            assert_eq!(stack.held as usize, list.len());
        }
    }
}
