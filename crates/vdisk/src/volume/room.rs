//! Is there room for all copies of what is to be written?
//!
//! ```text
//! new extent        -> as many domains with room as there should be copies, of those that can be reached or are only full
//! written in holes  -> each store of the extent has room, also one that is out because it was full
//! over what is there-> goes on: stores keep room back for that
//! ```
//!
//! Always true:
//! 1. A store that is full makes no extent have fewer copies: what lacks room on one of them is refused.
//! 2. A store that is gone, full or not, holds up nothing: extents go on without it as without any other.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use base::Bytes;
use env::sync::join_all;
use policy::place::{DomainId, Op, PlaceError, Target};

use super::error::VolumeError;
use super::extent::ExtentEntry;
use super::pieces::{BLOCK, ExtentRange};
use super::replica::{Replica, SyncState};
use super::state::Core;
use super::users::UserId;
use crate::names::{EXTENT, StoreNumber};
use crate::replica::connect::ConnectionError;

/// A store with less room than this is full, for operators.
const LITTLE: u64 = 1 << 20;

/// A store that was full and has not answered for so many timeouts is gone: it holds up no writes.
const GONE_AFTER: u64 = 4;

/// Chooses stores with room.
#[derive(Clone, Copy)]
pub(super) struct Room<'a> {
    core: &'a Rc<Core>,
}

impl<'a> Room<'a> {
    pub fn of(core: &'a Rc<Core>) -> Room<'a> {
        Room { core }
    }

    /// Is it out because it was full, and comes back when it has room? One that does not answer is gone, whatever it was before.
    fn is_only_full(self, replica: &Replica) -> bool {
        let out = replica.sync_state() == SyncState::Out && replica.was_full.get();
        let silent = env::now().since(replica.answered.get());
        let answers =
            replica.connection().is_some() || silent.0 <= GONE_AFTER * self.core.settings.timeout.0;
        out && answers && !self.core.replicas.is_drained(replica.info.number)
    }

    /// Is its room known to be less than this? Of one that is out nothing is known but that it was full.
    fn lacks_room(self, replica: &Replica, bytes: u64) -> bool {
        match replica.sync_state() {
            SyncState::Out => self.is_only_full(replica),
            _ => replica.total.get() > Bytes(0) && replica.room().0 < bytes,
        }
    }

    /// Asks a store for its room, if something was sent there since it was asked.
    async fn ask_again(self, replica: &Replica) -> Result<(), VolumeError> {
        let Some(connection) = replica.connection().filter(|_| replica.sent.get() > 0) else {
            return Ok(());
        };
        match self.core.within(connection.space()).await {
            Ok(space) => replica.says(&space),
            Err(ConnectionError::Fenced { why, .. }) => return Err(self.core.fence(why)),
            Err(error) if error.ends_connection() => replica.lose(&connection, false),
            Err(_) => {}
        }
        Ok(())
    }

    /// Asks all stores for their room. Of one that does not answer the connection is given up: so an idle volume learns that a
    /// store is gone.
    pub(super) async fn ask_for_room(self) {
        let linked = self.core.replicas.values();
        let linked = linked.filter_map(|replica| Some((replica, replica.connection()?)));
        let asked = linked.map(async |(replica, connection)| {
            match self.core.within(connection.space()).await {
                Ok(space) => {
                    replica.says(&space);
                    replica.answered.set(env::now());
                }
                Err(error) if error.ends_connection() => replica.lose(&connection, false),
                Err(_) => {}
            }
        });
        join_all(asked.collect::<Vec<_>>()).await;
    }

    /// Stores for a new extent. Not all that was sent took room: before it is refused all are asked.
    pub(super) async fn choose_with_room(
        self,
        len: u64,
        user: UserId,
    ) -> Result<Vec<StoreNumber>, VolumeError> {
        match self.choose_for(len, user) {
            Err(VolumeError::NoRoom { .. }) => {}
            chosen => return chosen,
        }
        for replica in self.core.replicas.values() {
            self.ask_again(replica).await?;
        }
        self.choose_for(len, user)
    }

    /// What can be written for certain: the room of the store with the least, of as many as a new extent has copies, and of all that
    /// have something of the volume, whose extents have holes. A store that did not say what it has, or cannot be reached,
    /// counts as empty: writes wait for it, or say why not.
    pub(super) fn left(self) -> Bytes {
        let targets = self.core.replicas.targets(&[]);
        let mut most: BTreeMap<DomainId, Bytes> = BTreeMap::new();
        for target in targets.iter().filter(|it| it.capacity > Bytes(0)) {
            let of_domain = most.entry(target.domain).or_default();
            *of_domain = target.free.max(*of_domain);
        }
        let mut rooms: Vec<Bytes> = most.into_values().collect();
        rooms.sort_unstable_by(|a, b| b.cmp(a));
        let last = self.copies_to_place(&targets) - 1;
        let anew = rooms.get(last).copied().unwrap_or(Bytes(u64::MAX));
        let record = &self.core.volume_record();
        let has = |it: &&Replica| {
            let listed = record.stores.as_ref();
            let listed = listed.is_none_or(|all| all.contains(&it.info.number));
            listed && it.total.get() > Bytes(0) && it.sync_state() != SyncState::Out
        };
        let in_holes = self.core.replicas.values().filter(has);
        in_holes.map(Replica::last_room).fold(anew, Bytes::min)
    }

    /// A store for one more copy of an extent that these have.
    pub(super) fn choose_one(self, has: &[StoreNumber]) -> Option<StoreNumber> {
        let request = self.core.request(Op::Write, EXTENT, UserId::OWN);
        let disks = self
            .core
            .choice
            .place(&request, 1, &self.core.replicas.targets(has))
            .ok()?;
        disks.first().map(|disk| StoreNumber(disk.0 as u16))
    }

    /// Stores for a new extent, as many as there should be copies, or as there are.
    fn choose_for(self, len: u64, user: UserId) -> Result<Vec<StoreNumber>, VolumeError> {
        let request = self.core.request(Op::Write, len, user);
        let targets = self.core.replicas.targets(&[]);
        let count = self.copies_to_place(&targets);
        let placed = self.core.choice.place(&request, count, &targets);
        let disks = placed.map_err(|why| self.no_room(&why))?;
        let numbers = disks.iter().map(|disk| StoreNumber(disk.0 as u16));
        Ok(numbers.collect())
    }

    /// How many copies a new extent gets: as many as there should be, or as there are domains that can be reached. Those whose
    /// stores are only full count.
    fn copies_to_place(self, targets: &[Target]) -> usize {
        let record = &self.core.volume_record();
        let most = usize::from(record.copies).min(self.domains(targets).len());
        most.max(usize::from(record.terms.min_isr).max(1))
    }

    fn domains(self, targets: &[Target]) -> BTreeSet<DomainId> {
        let full = self
            .core
            .replicas
            .values()
            .filter(|it| self.is_only_full(it));
        let full = full.map(|it| it.info.domain);
        let reached = targets.iter().map(|it| it.domain);
        reached.chain(full).collect()
    }

    /// Refuses a write into holes of an extent one of whose stores has no room for it: some copies would get it, and others not.
    pub(super) async fn check_room(
        self,
        placed: &ExtentEntry,
        piece: ExtentRange,
    ) -> Result<(), VolumeError> {
        let numbers = placed.stores();
        let replicas = || {
            numbers
                .iter()
                .filter_map(|one| self.core.replicas.get(*one))
        };
        let needs = piece.len.next_multiple_of(BLOCK) * 2;
        for replica in replicas().filter(|it| self.lacks_room(it, needs)) {
            self.ask_again(replica).await?;
        }
        let Some(full) = replicas().find(|it| self.lacks_room(it, needs)) else {
            return Ok(());
        };
        let in_sync = |it: &&Replica| it.sync_state() == SyncState::InSync;
        for replica in replicas().filter(in_sync) {
            let Some(connection) = replica.connection() else {
                continue;
            };
            let extents = connection.extents(&placed.object, piece.from, piece.len);
            match self.core.within(extents).await {
                Ok(all) => {
                    let there: u64 = all.iter().filter(|it| it.data).map(|it| it.len).sum();
                    if there >= piece.len {
                        return Ok(());
                    }
                }
                Err(ConnectionError::Fenced { why, .. }) => return Err(self.core.fence(why)),
                Err(error) if error.ends_connection() => replica.lose(&connection, false),
                Err(_) => {}
            }
        }
        Err(VolumeError::NoRoom {
            volume: self.core.id,
            why: format!(
                "{}; add a store, or delete what is not needed",
                full.room_in_words()
            ),
        })
    }

    fn no_room(self, why: &PlaceError) -> VolumeError {
        VolumeError::NoRoom {
            volume: self.core.id,
            why: self.full_in_words().unwrap_or_else(|| why.to_string()),
        }
    }

    /// What finds no place, and why, if anything does.
    pub(super) fn full_in_words(self) -> Option<String> {
        let targets = self.core.replicas.targets(&[]);
        let has_room = |it: &&Target| {
            let replica = self.core.replicas.of_disk(it.candidate.disk);
            replica.is_some_and(|it| it.last_room().0 >= LITTLE)
        };
        let with_room = targets.iter().filter(has_room);
        let with_room: BTreeSet<DomainId> = with_room.map(|it| it.domain).collect();
        let wanted = self.copies_to_place(&targets);
        let full = self.full_stores();
        let first = full.first()?;
        let enough = self.domains(&targets).len() < wanted || with_room.len() >= wanted;
        let what = match enough {
            true => format!("extents on full stores take nothing in their holes: {first}"),
            false => format!(
                "new extents find no place for {wanted} copies: {}",
                full.join(", ")
            ),
        };
        Some(format!("{what}; add a store, or delete what is not needed"))
    }

    /// Stores without room that have something of the volume, in words.
    fn full_stores(self) -> Vec<String> {
        let record = &self.core.volume_record();
        let full = self.core.replicas.values().filter(|it| {
            let number = it.info.number;
            let listed = record
                .stores
                .as_ref()
                .is_none_or(|all| all.contains(&number));
            let lacks = match it.sync_state() {
                SyncState::Out => self.is_only_full(it),
                _ => it.total.get() > Bytes(0) && it.last_room().0 < LITTLE,
            };
            listed && !self.core.replicas.is_drained(number) && lacks
        });
        full.map(Replica::room_in_words).collect()
    }

    /// Stores that are out, in words, those with a reason that is known.
    pub(super) fn out_in_words(self, numbers: &[StoreNumber]) -> Vec<String> {
        let said = |number: &StoreNumber| {
            let full = self
                .core
                .replicas
                .get(*number)
                .is_some_and(|it| it.was_full.get());
            match full {
                true => format!("{} (it was full)", self.core.replicas.label(*number)),
                false => self.core.replicas.label(*number),
            }
        };
        numbers.iter().map(said).collect()
    }
}
