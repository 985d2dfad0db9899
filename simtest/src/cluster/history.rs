//! What clients did and saw, in the order of events.

use std::cell::{Cell, RefCell};

use crate::linear::moment::at_one_moment;
use crate::linear::{Act, Impossible, Moment, Operation, Tag, ZERO, check};

/// What a clone began as was there by then.
const BEFORE: Moment = 2;

/// Grows while clients work.
#[derive(Default)]
pub struct History {
    operations: RefCell<Vec<Operation>>,
    clock: Cell<Moment>,
    tags: Cell<Tag>,
    answered: Cell<u64>,
    torn: RefCell<Option<String>>,
}

/// Writes that were asked for and not answered yet.
pub struct Asked(Vec<usize>);

impl History {
    fn tick(&self) -> Moment {
        self.clock.set(self.clock.get() + 1);
        self.clock.get()
    }

    /// A tag that no client wrote before.
    pub fn tag(&self) -> Tag {
        self.tags.set(self.tags.get() + 1);
        self.tags.get()
    }

    /// `who` is about to read.
    pub fn reads(&self) -> Moment {
        self.tick()
    }

    /// The read that began then gave these tags from `block` on.
    pub fn read(&self, who: u32, began: Moment, block: u64, tags: &[Tag]) {
        self.answered.set(self.answered.get() + 1);
        for (block, tag) in (block..).zip(tags) {
            let read = Operation {
                began,
                ended: Some(self.tick()),
                block,
                act: Act::Read(*tag),
                who,
            };
            self.operations.borrow_mut().push(read);
        }
    }

    /// `who` is about to write `tag` to blocks.
    pub fn writes(&self, who: u32, block: u64, count: u64, tag: Tag) -> Asked {
        let mut operations = self.operations.borrow_mut();
        let asked = (block..block + count).map(|block| {
            operations.push(Operation {
                began: self.tick(),
                ended: None,
                block,
                act: Act::Write(tag),
                who,
            });
            operations.len() - 1
        });
        Asked(asked.collect())
    }

    /// It was answered.
    pub fn wrote(&self, asked: &Asked) {
        self.answered.set(self.answered.get() + 1);
        for at in &asked.0 {
            let ended = self.tick();
            self.operations.borrow_mut()[*at].ended = Some(ended);
        }
    }

    /// That of a clone: what is written there is nowhere else, and what it began as comes before all.
    pub fn of_clone(nth: u64) -> History {
        let history = History::default();
        history.tags.set(nth << 32);
        history.clock.set(BEFORE);
        history
    }

    /// What a clone began as.
    pub fn begins_as(&self, holds: &[(u64, Tag)]) {
        for (block, tag) in holds.iter().filter(|(_, tag)| *tag != ZERO) {
            self.operations.borrow_mut().push(Operation {
                began: 1,
                ended: Some(BEFORE),
                block: *block,
                act: Act::Write(*tag),
                who: 0,
            });
        }
    }

    /// This moment.
    pub fn moment(&self) -> Moment {
        self.tick()
    }

    /// A snapshot that was asked for at the first of these moments, and there at the second, holds these tags.
    ///
    /// # Errors
    /// If it is torn.
    pub fn kept(
        &self,
        who: u32,
        between: (Moment, Moment),
        holds: &[(u64, Tag)],
    ) -> Result<(), String> {
        at_one_moment(&self.operations.borrow(), between, holds)?;
        for (block, tag) in holds {
            self.operations.borrow_mut().push(Operation {
                began: between.0,
                ended: Some(between.1),
                block: *block,
                act: Act::Read(*tag),
                who,
            });
        }
        Ok(())
    }

    /// A block that no client can have written.
    pub fn torn(&self, why: String) {
        self.torn.borrow_mut().get_or_insert(why);
    }

    /// Requests that were answered.
    pub fn answered(&self) -> u64 {
        self.answered.get()
    }

    /// Could one disk have given all this?
    ///
    /// # Errors
    /// What does not fit.
    pub fn judge(&self) -> Result<(), String> {
        if let Some(torn) = &*self.torn.borrow() {
            return Err(torn.clone());
        }
        check(&self.operations.borrow()).map_err(|error: Impossible| error.to_string())
    }
}
