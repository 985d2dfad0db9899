//! What clients did and saw, in the order of events.

use std::cell::{Cell, RefCell};

use crate::linear::{Act, Impossible, Moment, Operation, Tag, check};

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

    /// A tag that nobody wrote before.
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

    /// A block that nobody can have written.
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
