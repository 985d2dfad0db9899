//! The object that a change of bytes is of: is it still the one that the change began with?
//!
//! A change reads, waits and writes before it is applied in one step; meanwhile its object may have been deleted, or made.

use crate::object::error::StoreError;
use crate::object::objects::Object;
use crate::object::parts::Parts;
use crate::object::table::Table;
use crate::object::types::Change;

/// How an attempt at a change ended.
pub(crate) enum Attempt {
    /// Applied, with this version.
    Done(u64),
    /// Another change came between: look again.
    Again,
}

/// An object by name, as it was when a change began.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pub name: &'a str,
    /// Its number and when it was made, if it was there.
    begun: Option<(u32, u64)>,
}

impl<'a> Target<'a> {
    /// The object that a change begins with; looks at the condition early, so that what is refused costs nothing.
    pub fn find(parts: &Parts, name: &'a str, change: Change) -> Result<Target<'a>, StoreError> {
        parts.usable()?;
        let table = parts.table.borrow();
        let found = table.find(name);
        if found.is_none() && !change.create {
            return Err(parts.disk.not_found(name));
        }
        parts.holds(name, found.map(|(_, object)| object), change.condition)?;
        Ok(Target {
            name,
            begun: found.map(|(id, object)| (id, object.born)),
        })
    }

    /// Its number, if it was there.
    pub fn id(&self) -> Option<u32> {
        self.begun.map(|(id, _)| id)
    }

    /// Is the object still the one the change began with?
    pub fn is_same(&self, table: &Table) -> bool {
        table.find(self.name).map(|(id, object)| (id, object.born)) == self.begun
    }

    /// The object now, if it was there.
    pub fn object<'t>(&self, table: &'t Table) -> Option<&'t Object> {
        self.id().and_then(|id| table.get(id))
    }
}
