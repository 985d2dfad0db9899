//! Where does a store stand with a volume's writer?
//!
//! ```text
//! InSync  -> Out      leave         a change may have missed it: the record says so before it is acknowledged
//! Out     -> Joining  begin_join    resync has given it everything; changes need it again from here on
//! Joining -> InSync   joined        the record says so
//! Joining -> Out      leave         a change missed it
//! ```
//!
//! A *connection* is whatever leads to a store under the volume's fence; the *token* orders connections of one store. A store is
//! *tainted* when a change on a connection is indeterminate: its next connection needs a greater token.
//!
//! Always true:
//! 1. A connection that was lost is never used again.
//! 2. No connection is opened under the token of one on which a change is indeterminate.

use std::collections::BTreeSet;

use crate::names::{ExtentName, Generation};

/// Where a store stands with this volume; see the module's arrows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SyncState {
    /// It has every change that was acknowledged.
    InSync,
    /// It has everything, and the record does not say so yet.
    Joining,
    /// It may have missed changes.
    Out,
}

/// A store as the volume's writer has it. `C` is a connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ReplicaState<C> {
    sync_state: SyncState,
    connection: Option<C>,
    token: Generation,
    tainted: bool,
    /// While it is out: extents that were resynced, and that changes keep up to date.
    pub synced: BTreeSet<u32>,
    /// The same of what older images have.
    pub synced_objects: BTreeSet<ExtentName>,
    /// Copies that are being taken away from it.
    leaving: u64,
}

impl<C: Clone> ReplicaState<C> {
    /// One whose next connection has this token.
    pub fn new(sync_state: SyncState, token: Generation) -> ReplicaState<C> {
        ReplicaState {
            sync_state,
            connection: None,
            token,
            tainted: false,
            synced: BTreeSet::new(),
            synced_objects: BTreeSet::new(),
            leaving: 0,
        }
    }

    /// Where it stands.
    pub fn sync_state(&self) -> SyncState {
        self.sync_state
    }

    /// Must changes reach it?
    pub fn is_needed(&self) -> bool {
        self.sync_state != SyncState::Out
    }

    /// Does it count as having all that was acknowledged?
    pub fn is_in_sync(&self) -> bool {
        self.sync_state == SyncState::InSync
    }

    // --- connections ------------------------------------------------------------------------------------------

    /// Its connection, if it can be used.
    pub fn connection(&self) -> Option<&C> {
        self.connection.as_ref()
    }

    /// The token of its connection, or of the next one.
    pub fn token(&self) -> Generation {
        self.token
    }

    /// Is a change on a connection with this token indeterminate?
    pub fn is_tainted(&self) -> bool {
        self.tainted
    }

    /// It has a connection, under its token.
    pub fn connect(&mut self, connection: C) {
        self.connection = Some(connection);
    }

    /// It was opened under a token greater than that of any connection it had: none of their changes is under way.
    pub fn opened_anew(&mut self, token: Generation) {
        self.token = token;
        self.tainted = false;
    }

    /// Its connection is given up, and nothing on it is indeterminate.
    pub fn disconnect(&mut self) {
        self.connection = None;
    }

    /// A connection is of no more use: its own, or, with `own` false, one beside or before it that has or had the same token.
    /// `tainted`: a change on it is indeterminate. Is its own connection gone?
    pub fn lose(&mut self, own: bool, tainted: bool) -> bool {
        // A later connection, there or not yet, would have the same token, and so has the volume's beside a client's. An
        // indeterminate change may still come after its changes.
        let ends = own || tainted;
        if ends {
            self.connection = None;
            self.tainted |= tainted;
        }
        ends
    }

    // --- in sync, out, joining --------------------------------------------------------------------------------

    /// It is out from here on. Was it not before?
    pub fn leave(&mut self) -> bool {
        let newly = self.is_needed();
        self.sync_state = SyncState::Out;
        self.disconnect();
        self.lacks_all();
        // Resync opens it anew, under the token there is then.
        self.tainted = false;
        newly
    }

    /// Everything was resynced to it: changes need it from here on.
    pub fn begin_join(&mut self) {
        self.sync_state = SyncState::Joining;
    }

    /// The record says that it is in sync. Is it here too? Not if a change missed it meanwhile.
    pub fn joined(&mut self) -> bool {
        let joins = self.sync_state == SyncState::Joining;
        if joins {
            self.sync_state = SyncState::InSync;
            self.lacks_all();
        }
        joins
    }

    // --- resync -----------------------------------------------------------------------------------------------

    /// An extent and these objects of it were resynced to it, all together: changes reach it from here on, and none did before.
    pub fn resynced(&mut self, index: u32, objects: impl IntoIterator<Item = ExtentName>) {
        self.synced_objects.extend(objects);
        self.synced.insert(index);
    }

    /// It misses a change of this extent: that must be resynced again before it joins, also where a snapshot has it by then.
    pub fn lacks(&mut self, index: u32) {
        self.synced.remove(&index);
        self.synced_objects.retain(|it| it.index != index);
    }

    /// Nothing counts as resynced to it.
    pub fn lacks_all(&mut self) {
        self.synced.clear();
        self.synced_objects.clear();
    }

    /// A copy is being taken away from it: until the meta store has a map without it, the store does not join.
    pub fn begin_leaving(&mut self) {
        self.leaving += 1;
    }

    /// The meta store has a map without the copy, or it stays.
    pub fn end_leaving(&mut self) {
        self.leaving -= 1;
    }

    /// May a store join that has everything it should have, or (`has_all` false) lacks something?
    pub fn may_join(&self, has_all: bool) -> bool {
        has_all && self.leaving == 0
    }
}

/// Must a copy be made anew at a store that is out `since` then, of an object whose good copies have this `stamp`? `whole`: the
/// store has a copy that was made to its end.
pub fn must_resync(stamp: Generation, since: Generation, whole: bool) -> bool {
    stamp > since || !whole
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica() -> ReplicaState<u8> {
        let mut replica = ReplicaState::new(SyncState::InSync, Generation(5));
        replica.connect(1);
        replica
    }

    #[test]
    fn an_indeterminate_change_beside_the_connection_ends_it() {
        let mut beside = replica();
        assert!(!beside.lose(false, false));
        assert_eq!(beside.connection(), Some(&1));
        assert!(beside.lose(false, true));
        assert_eq!((beside.connection(), beside.is_tainted()), (None, true));
        beside.opened_anew(Generation(6));
        assert_eq!(
            (beside.token(), beside.is_tainted()),
            (Generation(6), false)
        );
    }

    #[test]
    fn a_store_that_misses_a_change_while_it_joins_is_not_in() {
        let mut joins = replica();
        assert!(joins.leave() && !joins.leave());
        joins.resynced(3, []);
        joins.begin_join();
        assert!(joins.is_needed() && !joins.is_in_sync());
        assert!(joins.leave());
        assert!(!joins.joined() && joins.synced.is_empty());
        joins.begin_join();
        assert!(joins.joined() && joins.is_in_sync());
    }

    #[test]
    fn a_copy_is_made_anew_where_its_stamp_is_late_or_it_is_not_whole() {
        let must = |stamp, whole| must_resync(Generation(stamp), Generation(4), whole);
        assert!(must(5, true) && must(3, false) && !must(4, true));
    }
}
