//! Segments with bad pages, in the order in which they are asked for.
//!
//! Always true: the names are those of the objects that have such a segment and are not being deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Segments with bad pages, as they are asked for: by name, and by place in the object.
#[derive(Default)]
pub(crate) struct Damaged {
    /// By object and number.
    segments: BTreeSet<(u32, u32)>,
    /// Objects that have any and can be named.
    pub names: BTreeMap<Rc<str>, u32>,
}

impl Damaged {
    /// Whether a segment has bad pages, and what its object is called; `None`: it is being deleted.
    pub fn note(&mut self, segment: (u32, u32), bad: bool, name: Option<&Rc<str>>) {
        let changed = match bad {
            true => self.segments.insert(segment),
            false => self.segments.remove(&segment),
        };
        let Some(name) = name.filter(|_| changed) else {
            return;
        };
        match self.has_any(segment.0) {
            true => drop(self.names.insert(Rc::clone(name), segment.0)),
            false => drop(self.names.remove(name)),
        }
    }

    /// An object has another name, or none any more.
    pub fn renamed(&mut self, object: u32, old: &Rc<str>, new: Option<&Rc<str>>) {
        if !self.has_any(object) {
            return;
        }
        self.names.remove(old);
        if let Some(new) = new {
            self.names.insert(Rc::clone(new), object);
        }
    }

    fn has_any(&self, object: u32) -> bool {
        self.of(object, 0).next().is_some()
    }

    /// Numbers of an object's damaged segments from `first` on.
    pub fn of(&self, object: u32, first: u32) -> impl Iterator<Item = u32> {
        let all = self.segments.range((object, first)..=(object, u32::MAX));
        all.map(|(_, number)| *number)
    }
}
