//! The flash translation layer: where does a logical page live, and what must move when space runs low?
//!
//! ```text
//! host write -> open row of the die whose turn it is -> map -> (row full) program
//! few free blocks -> victim with the fewest valid pages -> valid ones to the die's own open row -> erase
//! ```
//!
//! A *unit* is what the mapping counts in (4 KiB as a rule), a *row* is one page of every plane of a die,
//! programmed at once, and a *block* is the rows of a die that are erased together. Units are handed to the
//! dies row by row, so a sequential run lies spread over all of them.
//!
//! Pure bookkeeping: no time. Tables are allocated where something was written.
//!
//! Always true:
//! 1. A mapped unit's place names that unit as its owner, and no place has two owners.
//! 2. A block's count of valid units is the number of its places whose owner is mapped to them.
//! 3. Host writes never take a die's last free block: it is kept for collecting garbage.

use std::collections::VecDeque;

use super::map::{DISCARDED, UNTOUCHED, UnitMap};

/// A place in a block that holds nothing (padding of a row).
const NOBODY: u32 = u32::MAX;

/// Sizes, fixed at open.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Units the host sees.
    pub units: u32,
    /// Dies.
    pub dies: u32,
    /// Erase blocks per die.
    pub blocks: u32,
    /// Rows per block.
    pub rows: u32,
    /// Units per row.
    pub row_units: u32,
    /// A die collects garbage while it has at most so many free blocks.
    pub low: u32,
}

/// A row to be programmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Which die.
    pub die: u32,
    /// Which block of it.
    pub block: u32,
    /// Units in the row that count against the write buffer.
    pub units: u32,
}

/// Where a unit is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// In flash: the die, and a number of the row that differs from row to row.
    Flash {
        /// Which die.
        die: u32,
        /// Which row.
        row: u64,
    },
    /// Still in the write buffer.
    Buffer,
    /// Nowhere: discarded.
    Nothing,
}

/// What one step of collection did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Step {
    /// Units moved.
    pub moved: u32,
    /// Rows they had to be read from.
    pub rows_read: u32,
    /// Was the open row filled, and so has to be programmed?
    pub programs: bool,
    /// Is the victim empty, and has to be erased?
    pub erases: bool,
}

struct Block {
    owners: Option<Box<[u32]>>,
    valid: u32,
    filled: u32,
    /// Units below this one are in flash; the others are still in the buffer.
    programmed: u32,
    erases: u32,
}

#[derive(Clone, Copy)]
struct Open {
    block: u32,
}

struct Die {
    blocks: Vec<Block>,
    free: VecDeque<u32>,
    host: Option<Open>,
    collector: Option<Open>,
    victim: Option<(u32, u32)>,
    /// No block was worth collecting when last looked, and nothing has changed since.
    barren: bool,
}

/// What the layer has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Work {
    /// Units written by the host.
    pub host_units: u64,
    /// Units moved by garbage collection.
    pub moved_units: u64,
    /// Units of flash programmed: rows times units per row, padding included.
    pub programmed_units: u64,
    /// Blocks erased.
    pub erases: u64,
}

impl Work {
    /// Units programmed per unit the host wrote.
    pub fn amplification(&self) -> f64 {
        self.programmed_units as f64 / self.host_units.max(1) as f64
    }
}

/// The mapping and its dies.
pub struct Ftl {
    shape: Shape,
    map: UnitMap,
    dies: Vec<Die>,
    turn: u32,
    work: Work,
}

impl Ftl {
    /// A fresh device: every block is free.
    pub fn new(shape: Shape) -> Ftl {
        let block_units = shape.rows * shape.row_units;
        let places = u64::from(shape.dies) * u64::from(shape.blocks) * u64::from(block_units);
        assert!(
            places < u64::from(DISCARDED),
            "{places} places do not fit the 32-bit map"
        );
        let die = || Die {
            blocks: (0..shape.blocks)
                .map(|_| Block {
                    owners: None,
                    valid: 0,
                    filled: 0,
                    programmed: 0,
                    erases: 0,
                })
                .collect(),
            free: (0..shape.blocks).collect(),
            host: None,
            collector: None,
            victim: None,
            barren: false,
        };
        Ftl {
            map: UnitMap::new(shape.units),
            dies: (0..shape.dies).map(|_| die()).collect(),
            turn: 0,
            work: Work::default(),
            shape,
        }
    }

    /// The sizes.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// What has been done so far.
    pub fn work(&self) -> Work {
        self.work
    }

    /// Free blocks of a die.
    pub fn free_blocks(&self, die: u32) -> u32 {
        self.dies[die as usize].free.len() as u32
    }

    fn block_units(&self) -> u32 {
        self.shape.rows * self.shape.row_units
    }

    /// Splits a place into die, block and unit within the block.
    fn split(&self, place: u32) -> (u32, u32, u32) {
        let per_block = self.block_units();
        let (block, slot) = (place / per_block, place % per_block);
        (block / self.shape.blocks, block % self.shape.blocks, slot)
    }

    fn join(&self, die: u32, block: u32, slot: u32) -> u32 {
        (die * self.shape.blocks + block) * self.block_units() + slot
    }

    /// Where `unit` is to be read.
    pub fn find(&self, unit: u32) -> Found {
        match self.map.get(unit) {
            DISCARDED => Found::Nothing,
            UNTOUCHED => {
                let row = unit / self.shape.row_units;
                Found::Flash {
                    die: row % self.shape.dies,
                    // Above every real row.
                    row: (1 << 40) + u64::from(row),
                }
            }
            place => {
                let (die, block, slot) = self.split(place);
                if slot >= self.dies[die as usize].blocks[block as usize].programmed {
                    return Found::Buffer;
                }
                Found::Flash {
                    die,
                    row: u64::from(place / self.shape.row_units),
                }
            }
        }
    }

    fn release(&mut self, unit: u32) {
        let place = self.map.get(unit);
        if place == UNTOUCHED || place == DISCARDED {
            return;
        }
        let (die, block, slot) = self.split(place);
        self.dies[die as usize].barren = false;
        let block = &mut self.dies[die as usize].blocks[block as usize];
        if let Some(owners) = &mut block.owners {
            debug_assert_eq!(owners[slot as usize], unit, "the place names its owner");
            owners[slot as usize] = NOBODY;
        }
        block.valid -= 1;
    }

    /// Puts `unit` into `slot` of a block.
    fn settle(&mut self, unit: u32, die: u32, block: u32, slot: u32) {
        let per_block = self.block_units() as usize;
        let here = &mut self.dies[die as usize].blocks[block as usize];
        let owners = here
            .owners
            .get_or_insert_with(|| vec![NOBODY; per_block].into_boxed_slice());
        owners[slot as usize] = unit;
        here.valid += 1;
        here.filled = slot + 1;
        let place = self.join(die, block, slot);
        self.map.set(unit, place);
    }

    /// The die whose open row takes the next unit; dies without room are passed over. `None` if no die
    /// has room before garbage has been collected.
    fn next_die(&mut self) -> Option<u32> {
        for _ in 0..self.shape.dies {
            let die = &mut self.dies[self.turn as usize];
            if die.host.is_none() && die.free.len() > 1 {
                die.host = die.free.pop_front().map(|block| Open { block });
            }
            if die.host.is_some() {
                return Some(self.turn);
            }
            self.turn = (self.turn + 1) % self.shape.dies;
        }
        None
    }

    /// Writes one unit for the host. `None` means no room: collect garbage first. `Some((took, row))`:
    /// did it take room in the buffer (it does not where it is written over while still in the open row),
    /// and the row it filled, to be programmed.
    pub fn write(&mut self, unit: u32) -> Option<(bool, Option<Row>)> {
        let old = self.map.get(unit);
        if old < DISCARDED {
            let (die, block, slot) = self.split(old);
            let here = &self.dies[die as usize];
            let open = here.host.is_some_and(|open| open.block == block);
            let filled = here.blocks[block as usize].filled;
            let row_start = filled - filled % self.shape.row_units;
            if open && slot >= row_start {
                self.work.host_units += 1;
                return Some((false, None));
            }
        }
        let die = self.next_die()?;
        self.work.host_units += 1;
        self.release(unit);
        let block = self.dies[die as usize].host.expect("just opened").block;
        let slot = self.dies[die as usize].blocks[block as usize].filled;
        self.settle(unit, die, block, slot);
        let full = (slot + 1).is_multiple_of(self.shape.row_units);
        let row = full.then(|| self.close_row(die, block, self.shape.row_units));
        Some((true, row))
    }

    /// The open row of a die goes to be programmed; the next unit goes to the next die.
    fn close_row(&mut self, die: u32, block: u32, units: u32) -> Row {
        self.work.programmed_units += u64::from(self.shape.row_units);
        let here = &mut self.dies[die as usize];
        if here.blocks[block as usize].filled == self.shape.rows * self.shape.row_units {
            here.host = None;
        }
        if self.turn == die {
            self.turn = (self.turn + 1) % self.shape.dies;
        }
        Row { die, block, units }
    }

    /// Pads the half-filled row, if there is one, so that it can be programmed now.
    pub fn pad(&mut self) -> Option<Row> {
        let die = self.turn;
        let block = self.dies[die as usize].host?.block;
        let filled = self.dies[die as usize].blocks[block as usize].filled;
        let within = filled % self.shape.row_units;
        if within == 0 {
            return None;
        }
        self.dies[die as usize].blocks[block as usize].filled =
            filled - within + self.shape.row_units;
        Some(self.close_row(die, block, within))
    }

    /// A row has been programmed.
    pub fn programmed(&mut self, die: u32, block: u32) {
        let row_units = self.shape.row_units;
        let here = &mut self.dies[die as usize];
        here.blocks[block as usize].programmed += row_units;
        here.barren = false;
    }

    /// Gives `unit` up.
    pub fn discard(&mut self, unit: u32) {
        self.release(unit);
        self.map.set(unit, DISCARDED);
    }

    /// Has this die few free blocks, and perhaps garbage to collect?
    pub fn wants_collection(&self, die: u32) -> bool {
        let here = &self.dies[die as usize];
        here.victim.is_some() || (here.free.len() as u32 <= self.shape.low && !here.barren)
    }

    /// Has this die so little room that nothing else may go on?
    pub fn is_starved(&self, die: u32) -> bool {
        let here = &self.dies[die as usize];
        here.free.len() <= 1 && here.host.is_none()
    }

    /// The closed block with the fewest valid units, if collecting it gains anything.
    fn best_victim(&self, die: u32) -> Option<u32> {
        let here = &self.dies[die as usize];
        let per_block = self.block_units();
        let open = |index: u32| {
            let is = |open: Option<Open>| open.is_some_and(|open| open.block == index);
            is(here.host) || is(here.collector)
        };
        let mut best = None;
        let mut fewest = per_block;
        for (index, block) in here.blocks.iter().enumerate() {
            let closed = block.filled == per_block && block.programmed == per_block;
            if closed && block.valid < fewest && !open(index as u32) {
                fewest = block.valid;
                best = Some(index as u32);
            }
        }
        best
    }

    /// Moves up to one row of valid units out of the die's victim, choosing one where there is none.
    pub fn collect(&mut self, die: u32) -> Step {
        let mut step = Step::default();
        if self.dies[die as usize].victim.is_none() {
            let victim = self.best_victim(die);
            let here = &mut self.dies[die as usize];
            here.victim = victim.map(|block| (block, 0));
            here.barren = victim.is_none();
        }
        let Some((victim, from)) = self.dies[die as usize].victim else {
            return step;
        };
        let slot = self.empty_row(die, victim, from, &mut step);
        self.work.moved_units += u64::from(step.moved);
        if slot == self.block_units() {
            self.dies[die as usize].victim = None;
            step.erases = true;
            self.erase(die, victim);
        } else {
            self.dies[die as usize].victim = Some((victim, slot));
        }
        step
    }

    /// Moves valid units out of `victim`, from a slot on, until a row of the collector is full or nothing valid is
    /// left; returns the slot to go on from.
    fn empty_row(&mut self, die: u32, victim: u32, from: u32, step: &mut Step) -> u32 {
        let mut last_row = u32::MAX;
        for slot in from..self.block_units() {
            let block = &self.dies[die as usize].blocks[victim as usize];
            if block.valid == 0 {
                return self.block_units();
            }
            let owner = match &block.owners {
                Some(owners) => owners[slot as usize],
                None => NOBODY,
            };
            if owner == NOBODY {
                continue;
            }
            if !self.open_collector(die) {
                return slot;
            }
            let row = slot / self.shape.row_units;
            if row != last_row {
                last_row = row;
                step.rows_read += 1;
            }
            step.moved += 1;
            if self.collect_unit(die, owner) {
                step.programs = true;
                return slot + 1;
            }
        }
        self.block_units()
    }

    /// Moves one unit to the die's collector; true if that filled a row. The unit is in flash in its old place until
    /// the row is programmed: readable as before.
    #[inline]
    fn collect_unit(&mut self, die: u32, unit: u32) -> bool {
        self.release(unit);
        let here = &self.dies[die as usize];
        let block = here.collector.expect("just opened").block;
        let to = here.blocks[block as usize].filled;
        self.settle(unit, die, block, to);
        let full = (to + 1).is_multiple_of(self.shape.row_units);
        if full {
            self.work.programmed_units += u64::from(self.shape.row_units);
            self.programmed(die, block);
            if to + 1 == self.block_units() {
                self.dies[die as usize].collector = None;
            }
        }
        full
    }

    /// Erases a block with nothing valid left.
    fn erase(&mut self, die: u32, index: u32) {
        self.work.erases += 1;
        let block = &mut self.dies[die as usize].blocks[index as usize];
        assert_eq!(
            block.valid, 0,
            "a block is erased when nothing valid is left"
        );
        block.owners = None;
        block.filled = 0;
        block.programmed = 0;
        block.erases += 1;
        self.dies[die as usize].free.push_back(index);
    }

    fn open_collector(&mut self, die: u32) -> bool {
        let here = &mut self.dies[die as usize];
        if here.collector.is_none() {
            here.collector = here.free.pop_front().map(|block| Open { block });
        }
        here.collector.is_some()
    }

    /// Checks every rule of the module's head; for tests.
    ///
    /// # Panics
    /// Where a rule is broken.
    pub fn check(&self) {
        let mut owned = 0;
        for (die, here) in self.dies.iter().enumerate() {
            for (index, block) in here.blocks.iter().enumerate() {
                let owners = block.owners.as_deref().unwrap_or(&[]);
                let valid = owners.iter().filter(|&&owner| owner != NOBODY).count();
                assert_eq!(valid as u32, block.valid, "die {die} block {index}");
                assert!(block.programmed <= block.filled);
                owned += valid;
                for (slot, &owner) in owners.iter().enumerate() {
                    if owner != NOBODY {
                        let place = self.join(die as u32, index as u32, slot as u32);
                        assert_eq!(self.map.get(owner), place, "unit {owner}");
                    }
                }
            }
            for &free in &here.free {
                assert_eq!(here.blocks[free as usize].valid, 0);
            }
        }
        let mapped = (0..self.shape.units)
            .filter(|&unit| self.map.get(unit) < DISCARDED)
            .count();
        assert_eq!(mapped, owned, "as many units mapped as places owned");
    }
}
