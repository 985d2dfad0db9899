//! Extents that share with another image what was not written since: copy-on-write in blocks of 64 KiB.
//!
//! ```text
//! (top), shared             first change -> an object of the head's own on stores chosen anew: (new, top)
//! (top, base)               blocks the top has are its own, others the base's; of a block it lacks the rest is read and written too
//! (top, base), top shared   first change -> both into one, beside, which then gets its name: (new)
//! all 64 blocks             -> (top)
//! ```
//!
//! An object is shared if another volume allocated it, or this one not after the image before its head.
//!
//! Always true:
//! 1. An overlay has a block whole or not at all, and a block that it has once it never lacks again, but while
//!    unreconciled.
//! 2. What is shared is never changed.
//! 3. The base of a block and the block are under one range: no client reads the one while the other is written.

use std::rc::Rc;

use base::{Buf, View};
use env::sync::join_all;
use store::Change;

use super::io::{ExtentRange, Tried};
use super::membership::{Replica, SyncState};
use super::users::UserId;
use super::{Core, ExtentEntry, VolumeError};
use crate::names::{EXTENT, ExtentName, filling};
use crate::replica::connect::{Connection, ConnectionError};

/// The unit in which an overlay is filled.
pub(super) const BLOCK: u64 = 64 << 10;
/// Merged at once.
const CHUNK: u64 = 1 << 20;

/// The blocks that a stretch of an extent touches.
fn touched(from: u64, len: u64) -> u64 {
    let (first, last) = (from / BLOCK, (from + len - 1) / BLOCK);
    (first..=last).fold(0, |mask, block| mask | 1 << block)
}

impl Core {
    /// Does another image have it too?
    pub(super) fn is_shared(&self, placed: &ExtentEntry) -> bool {
        let since = self.head.borrow().record.since;
        placed.name.owner != self.id || placed.name.born <= since
    }

    /// What is filled before it gets its name, or takes the place of what has it.
    pub(super) fn beside(&self, placed: &ExtentEntry) -> String {
        filling(&placed.object, self.id)
    }

    /// Must the extent have an object of its own, or has it one that no other image has, for a change of it?
    pub(super) fn begins(&self, index: u32) -> bool {
        let placed = self.placed(index);
        placed.is_none_or(|placed| placed.unacknowledged.get() || self.is_shared(&placed))
    }

    /// Is it an overlay?
    pub(super) fn is_overlay(&self, index: u32) -> bool {
        self.placed(index).is_some_and(|it| it.base().is_some())
    }

    // --- which blocks ---------------------------------------------------------------------------------------

    /// The blocks that an overlay has; those of the caller's range stay as they are.
    async fn blocks(&self, placed: &ExtentEntry) -> Result<u64, VolumeError> {
        while !placed.blocks.are_known() {
            let times_forgotten = placed.blocks.times_forgotten.get();
            let found = self.look_for_blocks(placed).await?;
            if placed.blocks.times_forgotten.get() == times_forgotten {
                placed.blocks.add(found);
                placed.blocks.known.set(true);
            } else if self.is_unreconciled(placed.name.index) {
                let why = ConnectionError::Gone("which blocks it has is unknown".to_owned());
                return Err(self.no_copy(placed.name.index, &why));
            }
        }
        Ok(placed.blocks.has.get())
    }

    async fn look_for_blocks(&self, placed: &ExtentEntry) -> Result<u64, VolumeError> {
        let numbers = placed.stores.borrow().clone();
        let fit = |it: &&Replica| it.sync_state.get() == SyncState::InSync;
        let replicas = numbers.iter().filter_map(|number| self.replica(*number));
        let mut why = ConnectionError::Gone("none of its in-sync stores can be reached".to_owned());
        for replica in replicas.filter(fit) {
            let Some(connection) = replica.connection() else {
                continue;
            };
            match self
                .within(connection.extents(&placed.object, 0, EXTENT))
                .await
            {
                Ok(extents) => {
                    let data = extents.iter().filter(|it| it.data && it.len > 0);
                    return Ok(data.fold(0, |mask, it| mask | touched(it.offset, it.len)));
                }
                // The first change of it was never answered, and reached no store.
                Err(ConnectionError::Absent(_)) if placed.unacknowledged.get() => return Ok(0),
                Err(ConnectionError::Fenced { why, .. }) => return Err(self.fence(why)),
                Err(error) => {
                    if error.ends_connection() {
                        replica.lose(&connection, false);
                    }
                    why = error;
                }
            }
        }
        Err(self.no_copy(placed.name.index, &why))
    }

    // --- reads ------------------------------------------------------------------------------------------------

    /// A piece of an extent, from the layers that hold it: its first bytes, and zeroes behind them.
    pub(super) async fn read_layers(
        self: &Rc<Self>,
        placed: &Rc<ExtentEntry>,
        piece: ExtentRange,
    ) -> Result<Buf, VolumeError> {
        let Some(base) = placed.base() else {
            return self.read_copy(placed, piece).await;
        };
        let has = self.blocks(placed).await?;
        let mut runs: Vec<(bool, ExtentRange)> = Vec::new();
        let mut at = piece.from;
        while at < piece.from + piece.len {
            let len = (BLOCK - at % BLOCK).min(piece.from + piece.len - at);
            let own = has & (1 << (at / BLOCK)) != 0;
            match runs.last_mut() {
                Some((before, run)) if *before == own => run.len += len,
                _ => runs.push((
                    own,
                    ExtentRange {
                        from: at,
                        len,
                        ..piece
                    },
                )),
            }
            at += len;
        }
        let reads = runs.iter().map(|(own, run)| {
            let layer = if *own { placed } else { &base };
            self.read_copy(layer, *run)
        });
        let mut whole = Buf::zeroed(piece.len as usize);
        for ((_, run), data) in runs.iter().zip(join_all(reads.collect::<Vec<_>>()).await) {
            let data = data?;
            whole[(run.from - piece.from) as usize..][..data.len()].copy_from_slice(&data);
        }
        Ok(whole)
    }

    // --- changes ----------------------------------------------------------------------------------------------

    /// Changes an overlay; zeroes (`None`) are written. The piece's blocks are the caller's alone.
    pub(super) async fn change_overlay(
        self: &Rc<Self>,
        placed: &Rc<ExtentEntry>,
        piece: ExtentRange,
        data: Option<View>,
    ) -> Result<Tried, VolumeError> {
        let longest = self.write_max.get();
        let deadline = env::now() + self.settings.deadline;
        let mut too_few = None;
        let mut done = 0;
        while done < piece.len {
            let from = piece.from + done;
            let part = ExtentRange {
                from,
                len: (longest - from % longest).min(piece.len - done),
                ..piece
            };
            let own = data.as_ref();
            let own = own.map(|data| data.slice(done as usize, part.len as usize));
            let mut tries = 0;
            loop {
                let tried = self.change_part(placed, part, own.clone()).await;
                match tried {
                    Ok(Tried::Done) => break,
                    Ok(Tried::TooFew(error)) => {
                        too_few = Some(error);
                        break;
                    }
                    Err(error) if !error.passes() => return Err(error),
                    // What is done of it already must not be done again when others were there.
                    other if done == 0 => return other,
                    Ok(
                        Tried::Again(error) | Tried::Indeterminate(error) | Tried::GivenUp(error),
                    )
                    | Err(error) => match self.is_late(deadline, &error) {
                        false => self.pause(&mut tries).await,
                        true => return Ok(Tried::GivenUp(error)),
                    },
                }
            }
            done += part.len;
        }
        if placed.blocks.has.get() == u64::MAX {
            // Nothing of the base is seen any more.
            let layer = placed.layer().expect("it has stores");
            let entry = crate::map::Entry::full(layer);
            match self.map.set(piece.index, entry).await {
                Ok(_) => drop(placed.base.borrow_mut().take()),
                Err(error) => tracing::debug!(volume = %self.id, %error, "a base stays"),
            }
        }
        Ok(too_few.map_or(Tried::Done, Tried::TooFew))
    }

    async fn change_part(
        self: &Rc<Self>,
        placed: &Rc<ExtentEntry>,
        part: ExtentRange,
        data: Option<View>,
    ) -> Result<Tried, VolumeError> {
        let (part, bytes) = self.whole_blocks(placed, part, data).await?;
        let tried = self.spread(placed, part, Some(bytes)).await?;
        if matches!(tried, Tried::Done | Tried::TooFew(_)) {
            placed.blocks.add(touched(part.from, part.len));
        }
        Ok(tried)
    }

    /// The piece and its bytes, with the rest of the blocks at its ends that the overlay lacks.
    async fn whole_blocks(
        self: &Rc<Self>,
        placed: &Rc<ExtentEntry>,
        piece: ExtentRange,
        data: Option<View>,
    ) -> Result<(ExtentRange, View), VolumeError> {
        let has = self.blocks(placed).await?;
        let lacks = |at: u64| has & (1 << (at / BLOCK)) == 0;
        let end = piece.from + piece.len;
        let first = match lacks(piece.from) {
            true => piece.from / BLOCK * BLOCK,
            false => piece.from,
        };
        let last = match lacks(end - 1) {
            true => end.next_multiple_of(BLOCK),
            false => end,
        };
        if let Some(data) = data.as_ref().filter(|_| (first, last) == (piece.from, end)) {
            return Ok((piece, data.clone()));
        }
        let mut whole = Buf::zeroed((last - first) as usize);
        let base = placed.base().expect("it is an overlay");
        #[cfg(test)]
        let skips = self.mutated(super::Mutation::HalfBlock);
        #[cfg(not(test))]
        let skips = false;
        for (from, to) in [(first, piece.from), (end, last)] {
            if from < to && !skips {
                let len = to - from;
                let part = ExtentRange { from, len, ..piece };
                let rest = self.read_copy(&base, part).await?;
                whole[(from - first) as usize..][..rest.len()].copy_from_slice(&rest);
            }
        }
        if let Some(data) = data {
            whole[(piece.from - first) as usize..][..data.len()].copy_from_slice(&data);
        }
        let wide = ExtentRange {
            from: first,
            len: last - first,
            ..piece
        };
        Ok((wide, whole.freeze()))
    }

    // --- two into one -----------------------------------------------------------------------------------------

    /// An object of the head's own that holds what both shared layers do. The extent's range is the caller's alone.
    pub(super) async fn merge(
        self: &Rc<Self>,
        index: u32,
        both: &Rc<ExtentEntry>,
    ) -> Result<Rc<ExtentEntry>, VolumeError> {
        if self.is_forgotten(index) {
            self.commit().await?;
        }
        let stores = self.choose_with_room(EXTENT, UserId::OWN).await?;
        let _pending = self.pending_placement(&stores);
        self.list_stores(&stores).await?;
        let replicas = stores.iter().filter_map(|number| self.replica(*number));
        let linked = replicas.filter_map(|it| Some((it, it.connection()?)));
        let copies: Vec<(&Replica, Rc<dyn Connection>)> = linked.collect();
        let gone = |why: &str| self.no_copy(index, &ConnectionError::Gone(why.to_owned()));
        if copies.len() < stores.len() {
            return Err(gone("a link broke"));
        }
        let beside = self.beside(both);
        self.fill(index, both, &copies, &beside).await?;
        // It has a name only from here on: a commit that begins before that does not need it.
        let under_way = self.begin();
        let name = ExtentName {
            owner: self.id,
            born: under_way.stamp(),
            index,
        };
        let numbers = copies.iter().map(|(it, _)| it.info.number).collect();
        let merged = ExtentEntry::new(name, numbers, false);
        let change = Change {
            stamp: Some(under_way.stamp().0),
            ..Change::FUA
        };
        let named = copies.iter().map(|(replica, connection)| {
            let rename = connection.rename(&beside, &merged.object, true, change);
            self.of(replica, connection, rename)
        });
        let named = join_all(named.collect::<Vec<_>>()).await;
        let named: Result<Vec<()>, ConnectionError> = named.into_iter().collect();
        // A store that went out meanwhile may have come back already, and had it deleted as an orphan.
        let still = || copies.iter().all(|(it, by)| it.is_in_by(by));
        let entered = match named {
            Ok(_) => match self.enter_if(index, &merged, still).await {
                Ok(true) => Ok(()),
                Ok(false) => Err(gone("a store went out meanwhile")),
                Err(error) => Err(error),
            },
            Err(ConnectionError::Fenced { why, .. }) => return Err(self.fence(why)),
            Err(error) => Err(self.no_copy(index, &error)),
        };
        if let Err(error) = entered {
            // Where it has its name it holds what both do, and no change reaches it: the next try has a later one.
            self.change_record(|record| Ok(record.generation <= name.born))
                .await?;
            return Err(error);
        }
        merged.uncounted.set(true);
        self.extents.borrow_mut().insert(index, Rc::clone(&merged));
        self.count(|counters| counters.merged += 1);
        Ok(merged)
    }

    /// Fills a new object on these stores with all that an extent holds.
    async fn fill(
        self: &Rc<Self>,
        index: u32,
        both: &Rc<ExtentEntry>,
        copies: &[(&Replica, Rc<dyn Connection>)],
        beside: &str,
    ) -> Result<(), VolumeError> {
        let failed = |answers: Vec<Result<(), ConnectionError>>| {
            let all = answers
                .into_iter()
                .collect::<Result<Vec<()>, ConnectionError>>();
            all.map(drop).map_err(|error| match error {
                ConnectionError::Fenced { why, .. } => self.fence(why),
                error => self.no_copy(index, &error),
            })
        };
        let made = copies.iter().map(|(replica, connection)| async move {
            match self
                .of(
                    replica,
                    connection,
                    connection.delete(beside, Change::default()),
                )
                .await
            {
                Ok(()) | Err(ConnectionError::Absent(_)) => {}
                Err(error) => return Err(error),
            }
            let create = connection.create(beside, Change::default());
            self.of(replica, connection, create).await
        });
        failed(join_all(made.collect::<Vec<_>>()).await)?;
        let step = CHUNK.min(self.write_max.get());
        for from in (0..EXTENT).step_by(step as usize) {
            let len = step.min(EXTENT - from);
            let user = UserId::OWN;
            let part = ExtentRange {
                index,
                from,
                len,
                user,
            };
            let data = self.read_layers(both, part).await?;
            if data.iter().all(|byte| *byte == 0) {
                continue;
            }
            let data = data.freeze();
            let writes = copies.iter().map(|(replica, connection)| {
                let write = connection.write(beside, from, data.clone(), Change::default());
                self.of(replica, connection, write)
            });
            failed(join_all(writes.collect::<Vec<_>>()).await)?;
        }
        Ok(())
    }

    /// One change at a store, whose connection is of no more use if it ends it.
    pub(super) async fn of(
        &self,
        replica: &Replica,
        connection: &Rc<dyn Connection>,
        change: impl Future<Output = Result<(), ConnectionError>>,
    ) -> Result<(), ConnectionError> {
        let answer = self.within(change).await;
        if let Err(error) = &answer
            && error.ends_connection()
        {
            replica.lose(connection, error.is_indeterminate());
        }
        answer
    }
}
