//! Operations under way: where is each, and who waits for it?
//!
//! Always true: a slot is freed only when its operation has ended.

use std::task::Waker;

use super::operation::Operation;

pub(super) enum State {
    Waiting(Option<Waker>),
    Ended(i32),
    /// Its future is gone.
    Orphaned,
}

pub(super) struct Slot {
    /// Distinguishes operations that use one slot after another.
    pub(super) serial: u32,
    pub(super) operation: Operation,
    pub(super) state: State,
}

impl Slot {
    /// The operation's name in the ring. Were it the index alone, a late cancellation could hit the
    /// slot's next operation.
    pub(super) fn name(&self, index: u32) -> u64 {
        (u64::from(self.serial) << 32) | u64::from(index)
    }
}

/// Operations under way, by slot. A slot may move while its operation is under way: the kernel holds
/// pointers only to buffers and boxed messages.
#[derive(Default)]
pub(super) struct Slots {
    all: Vec<Option<Slot>>,
    free: Vec<u32>,
    pub(super) serial: u32,
    /// Operations that have not ended.
    pub(super) under_way: usize,
}

impl Slots {
    pub(super) fn insert(&mut self, operation: Operation) -> u32 {
        self.serial = self.serial.wrapping_add(1);
        let slot = Some(Slot {
            serial: self.serial,
            operation,
            state: State::Waiting(None),
        });
        self.under_way += 1;
        match self.free.pop() {
            Some(index) => {
                self.all[index as usize] = slot;
                index
            }
            None => {
                self.all.push(slot);
                u32::try_from(self.all.len() - 1).expect("fewer than 2^32 operations")
            }
        }
    }

    /// Commands to drivers that have not ended.
    pub(super) fn commands(&self) -> usize {
        let is_one = |slot: &&Slot| {
            let ended = matches!(slot.state, State::Ended(_));
            !ended && matches!(slot.operation, Operation::Command { .. })
        };
        self.all.iter().flatten().filter(is_one).count()
    }

    pub(super) fn get(&mut self, index: u32) -> &mut Slot {
        self.all[index as usize]
            .as_mut()
            .expect("a slot lives until its operation has ended and been taken")
    }

    pub(super) fn remove(&mut self, index: u32) -> Slot {
        self.free.push(index);
        self.all[index as usize]
            .take()
            .expect("a slot is removed once")
    }
}
