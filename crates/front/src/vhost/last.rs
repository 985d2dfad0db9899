//! Whose guest had a disk last?
//!
//! ```text
//! this process: Last, with what was in flight     over the lives of daemons: GuestBook, which guest alone
//! ```
//!
//! Always true: a guest is in the book before anything of it is carried out.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use super::inflight::Area;

/// By what a region of a guest's memory is known again as long as its client lives: two numbers of its file.
pub type MemoryId = (u64, u64);

/// Which guest had a disk last, over the lives of daemons: the next one knows by it that another guest came between.
pub trait GuestBook {
    /// Its memory. None: no guest was served, as far as is known. Empty: one that is not known again.
    ///
    /// # Errors
    /// In words: no guest can be served now.
    fn read(&self) -> Result<Option<Vec<MemoryId>>, String>;

    /// From now on it is this one. What is written outlives this process; no guest outlives the machine's boot.
    ///
    /// # Errors
    /// In words: this guest cannot be served.
    fn write(&self, memory: &[MemoryId]) -> Result<(), String>;
}

/// Is this the memory of one guest? It grows and shrinks, and two guests may share a region of it. A guest of which nothing is
/// known is no other's.
pub(super) fn is_one_guest(one: &[MemoryId], other: &[MemoryId]) -> bool {
    let holds = |all: &[MemoryId], part: &[MemoryId]| part.iter().all(|id| all.contains(id));
    !one.is_empty() && !other.is_empty() && (holds(one, other) || holds(other, one))
}

/// Is another guest than that of `memory` the last one in the book?
///
/// # Errors
/// The book's.
pub(super) fn is_noted_another(book: &dyn GuestBook, memory: &[MemoryId]) -> Result<bool, String> {
    let noted = book.read()?;
    Ok(noted.is_some_and(|noted| !is_one_guest(memory, &noted)))
}

/// The guest of `memory` is the last one from now on; `is_known`: this process served it last, and noted it then.
///
/// # Errors
/// The book's, for a guest that is not known.
pub(super) fn note(
    book: &dyn GuestBook,
    memory: &[MemoryId],
    is_known: bool,
) -> Result<(), String> {
    let noted = book.read().ok().flatten();
    if noted.as_deref() == Some(memory) {
        return Ok(());
    }
    match book.write(memory) {
        Err(why) if is_known => {
            tracing::warn!(
                why,
                "a guest goes on, though what is noted of it cannot be looked at"
            );
            Ok(())
        }
        answer => answer,
    }
}

/// What outlives a connection: whose guest was served last, and what was in flight where the client keeps no record.
pub(super) struct Last {
    /// The memory of the guest.
    pub memory: Vec<MemoryId>,
    pub records: RefCell<BTreeMap<u16, (u16, Rc<Area>)>>,
    pub write_back: Cell<bool>,
}

impl Last {
    /// A guest that is not known again.
    pub fn unknown() -> Rc<Last> {
        Rc::new(Last {
            memory: Vec::new(),
            records: RefCell::default(),
            write_back: Cell::new(false),
        })
    }
}

/// Which guests a disk is for.
pub(super) struct Offer {
    /// The device shows every write that an earlier process answered, and the next one will.
    pub found_all: bool,
    /// Whose guest this process served last.
    pub last: Option<Rc<Last>>,
    /// Whose guest any process did.
    pub book: Rc<dyn GuestBook>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_is_known_while_its_memory_grows_and_not_by_what_it_shares() {
        let [own, plugged, shared, others] = [(1, 1), (1, 2), (1, 3), (1, 4)];
        assert!(is_one_guest(&[own], &[own, plugged]));
        assert!(is_one_guest(&[plugged, own], &[own]));
        assert!(!is_one_guest(&[own, shared], &[shared, others]));
        assert!(!is_one_guest(&[own], &[others]));
        assert!(!is_one_guest(&[own], &[]) && !is_one_guest(&[], &[]));
    }
}
