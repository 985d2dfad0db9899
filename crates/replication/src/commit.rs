//! Of the map what the meta store does not have yet, from commit to commit.
//!
//! ```text
//! uncommitted -> its nodes are being written -> awaiting the root -> the meta store has the root
//!      '----------- not written --'
//! ```
//!
//! Always true: what was noted is in one of the three places until a root with it is in the meta store.

use std::collections::BTreeSet;

use crate::names::{ExtentName, Generation, StoreNumber};

/// Changes of the map.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Changes {
    /// Copies that extents got.
    added: Vec<(ExtentName, StoreNumber)>,
    /// Extents that are there no more.
    forgotten: BTreeSet<u32>,
}

impl Changes {
    fn join(&mut self, other: Changes) {
        self.added.extend(other.added);
        self.forgotten.extend(other.forgotten);
    }
}

/// What is to become durable of the map.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct MapCommit {
    uncommitted: Changes,
    writing: Changes,
    awaiting_root: Changes,
    scan_floor: Generation,
}

impl MapCommit {
    /// Nothing has changed yet; what was named in `scan_floor` or before is in the map, in that of another image, or of no use.
    pub fn new(scan_floor: Generation) -> MapCommit {
        MapCommit {
            scan_floor,
            ..MapCommit::default()
        }
    }

    /// The map has a store that a layer got.
    pub fn add(&mut self, layer: ExtentName, store: StoreNumber) {
        self.uncommitted.added.push((layer, store));
    }

    /// The map has an extent no more.
    pub fn forget(&mut self, index: u32) {
        self.uncommitted.forgotten.insert(index);
    }

    /// Is an extent gone, and the meta store may not know?
    pub fn is_forgotten(&self, index: u32) -> bool {
        self.all().any(|it| it.forgotten.contains(&index))
    }

    /// Is anything gone that the meta store may still have?
    pub fn is_anything_forgotten(&self) -> bool {
        self.all().any(|it| !it.forgotten.is_empty())
    }

    fn all(&self) -> impl Iterator<Item = &Changes> {
        [&self.uncommitted, &self.writing, &self.awaiting_root].into_iter()
    }

    /// The nodes of a commit are being written from here on: what changes now is for the next one.
    pub fn begin(&mut self) {
        let changes = std::mem::take(&mut self.uncommitted);
        self.writing.join(changes);
    }

    /// They are durable, or with `false` not: then the next commit writes them.
    pub fn end(&mut self, written: bool) {
        let changes = std::mem::take(&mut self.writing);
        match written {
            true => self.awaiting_root.join(changes),
            false => self.uncommitted.join(changes),
        }
    }

    /// The meta store has the root: answers the copies that count from now on.
    pub fn committed(&mut self) -> Vec<(ExtentName, StoreNumber)> {
        std::mem::take(&mut self.awaiting_root).added
    }

    /// What was named in it or before is in the map, in that of another image, or of no use.
    pub fn scan_floor(&self) -> Generation {
        self.scan_floor
    }

    /// A snapshot was taken in this generation: what was named before is in its map.
    pub fn raise_scan_floor(&mut self, since: Generation) {
        self.scan_floor = self.scan_floor.max(since);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::VolumeId;

    fn layer(index: u32) -> ExtentName {
        ExtentName {
            owner: VolumeId(1),
            born: Generation(2),
            index,
        }
    }

    #[test]
    fn a_copy_counts_when_the_root_of_the_commit_that_wrote_it_is_there() {
        let mut commit = MapCommit::default();
        commit.add(layer(1), StoreNumber(1));
        commit.begin();
        commit.add(layer(2), StoreNumber(2));
        commit.end(true);
        assert_eq!(commit.committed(), [(layer(1), StoreNumber(1))]);
        assert_eq!(commit.committed(), []);
        commit.begin();
        commit.end(true);
        assert_eq!(commit.committed(), [(layer(2), StoreNumber(2))]);
    }

    #[test]
    fn what_was_not_written_is_for_the_next_commit() {
        let mut commit = MapCommit::default();
        commit.add(layer(1), StoreNumber(1));
        commit.begin();
        commit.end(false);
        assert_eq!(commit.committed(), []);
        commit.begin();
        commit.end(true);
        assert_eq!(commit.committed(), [(layer(1), StoreNumber(1))]);
    }

    #[test]
    fn an_extent_stays_forgotten_until_the_root_is_there() {
        let mut commit = MapCommit::default();
        commit.forget(7);
        for step in [MapCommit::begin, |it: &mut MapCommit| it.end(true)] {
            assert!(commit.is_forgotten(7) && commit.is_anything_forgotten());
            step(&mut commit);
        }
        assert!(commit.is_forgotten(7) && !commit.is_forgotten(8));
        commit.committed();
        assert!(!commit.is_anything_forgotten());
    }

    #[test]
    fn the_scan_floor_never_falls() {
        let mut commit = MapCommit::new(Generation(5));
        commit.raise_scan_floor(Generation(3));
        assert_eq!(commit.scan_floor(), Generation(5));
        commit.raise_scan_floor(Generation(8));
        assert_eq!(commit.scan_floor(), Generation(8));
    }
}
