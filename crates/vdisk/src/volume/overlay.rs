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

use super::commit::MapIo;
use super::copies::Copies;
use super::error::VolumeError;
use super::extent::ExtentEntry;
#[cfg(test)]
use super::life::Mutation;
use super::pieces::{BLOCK, ExtentRange, touched};
use super::read::Reads;
use super::record_io::RecordIo;
use super::replica::Replica;
use super::room::Room;
use super::spread::{Spread, Tried};
use super::state::Core;
use super::users::UserId;
use crate::names::{EXTENT, ExtentName};
use crate::replica::connect::{Connection, ConnectionError};

/// Merged at once.
const CHUNK: u64 = 1 << 20;

/// Changes extents that share with another image.
#[derive(Clone, Copy)]
pub(super) struct Overlay<'a> {
    core: &'a Rc<Core>,
}

impl<'a> Overlay<'a> {
    pub fn of(core: &'a Rc<Core>) -> Overlay<'a> {
        Overlay { core }
    }

    /// Changes an overlay; zeroes (`None`) are written. The piece's blocks are the caller's alone.
    pub(super) async fn change_overlay(
        self,
        placed: &Rc<ExtentEntry>,
        piece: ExtentRange,
        data: Option<View>,
    ) -> Result<Tried, VolumeError> {
        let longest = self.core.replicas.write_max.get();
        let deadline = env::now() + self.core.settings.deadline;
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
                    | Err(error) => match self.core.is_late(deadline, &error) {
                        false => self.core.pause(&mut tries).await,
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
            match self.core.maps.head.set(piece.index, entry).await {
                Ok(_) => drop(placed.base.borrow_mut().take()),
                Err(error) => tracing::debug!(volume = %self.core.id, %error, "a base stays"),
            }
        }
        Ok(too_few.map_or(Tried::Done, Tried::TooFew))
    }

    async fn change_part(
        self,
        placed: &Rc<ExtentEntry>,
        part: ExtentRange,
        data: Option<View>,
    ) -> Result<Tried, VolumeError> {
        let (part, bytes) = self.whole_blocks(placed, part, data).await?;
        let tried = Spread::of(self.core)
            .spread(placed, part, Some(bytes))
            .await?;
        if matches!(tried, Tried::Done | Tried::TooFew(_)) {
            placed.blocks.add(touched(part.from, part.len));
        }
        Ok(tried)
    }

    /// The piece and its bytes, with the rest of the blocks at its ends that the overlay lacks.
    async fn whole_blocks(
        self,
        placed: &Rc<ExtentEntry>,
        piece: ExtentRange,
        data: Option<View>,
    ) -> Result<(ExtentRange, View), VolumeError> {
        let has = Reads::of(self.core).blocks(placed).await?;
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
        let skips = self.core.mutated(Mutation::HalfBlock);
        #[cfg(not(test))]
        let skips = false;
        for (from, to) in [(first, piece.from), (end, last)] {
            if from < to && !skips {
                let len = to - from;
                let part = ExtentRange { from, len, ..piece };
                let rest = Reads::of(self.core).read_copy(&base, part).await?;
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

    /// An object of the head's own that holds what both shared layers do. The extent's range is the caller's alone.
    pub(super) async fn merge(
        self,
        index: u32,
        both: &Rc<ExtentEntry>,
    ) -> Result<Rc<ExtentEntry>, VolumeError> {
        if self.core.is_forgotten(index) {
            MapIo::of(self.core).commit().await?;
        }
        let stores = Room::of(self.core)
            .choose_with_room(EXTENT, UserId::OWN)
            .await?;
        let _pending = self.core.replicas.pending_placement(&stores);
        RecordIo::of(self.core).list_stores(&stores).await?;
        let replicas = stores
            .iter()
            .filter_map(|number| self.core.replicas.get(*number));
        let linked = replicas.filter_map(|it| Some((it, it.connection()?)));
        let copies: Vec<(&Replica, Rc<dyn Connection>)> = linked.collect();
        if copies.len() < stores.len() {
            let why = "a link broke".to_owned();
            return Err(self.core.no_copy(index, &ConnectionError::Gone(why)));
        }
        let beside = Copies::of(self.core).beside(both);
        self.fill(index, both, &copies, &beside).await?;
        // It has a name only from here on: a commit that begins before that does not need it.
        let under_way = self.core.begin();
        let name = ExtentName {
            owner: self.core.id,
            born: under_way.stamp(),
            index,
        };
        let numbers = copies.iter().map(|(it, _)| it.info.number).collect();
        let merged = ExtentEntry::new(name, numbers, false);
        let change = Change {
            stamp: Some(under_way.stamp().0),
            ..Change::FUA
        };
        let entered = self.name_merged(&merged, &copies, &beside, change).await?;
        if let Err(error) = entered {
            // Where it has its name it holds what both do, and no change reaches it: the next try has a later one.
            RecordIo::of(self.core)
                .change_record(|record| Ok(record.generation <= name.born))
                .await?;
            return Err(error);
        }
        merged.copies.borrow_mut().uncounted = true;
        self.core
            .extents
            .all
            .borrow_mut()
            .insert(index, Rc::clone(&merged));
        self.core.count(|counters| counters.merged += 1);
        Ok(merged)
    }

    /// Gives a filled object its name on these stores, and enters it in the map. The inner error: some of them may have it.
    async fn name_merged(
        self,
        merged: &ExtentEntry,
        copies: &[(&Replica, Rc<dyn Connection>)],
        beside: &str,
        change: Change,
    ) -> Result<Result<(), VolumeError>, VolumeError> {
        let index = merged.name.index;
        let named = copies.iter().map(|(replica, connection)| {
            let rename = connection.rename(beside, &merged.object, true, change);
            Copies::of(self.core).change_at(replica, connection, rename)
        });
        let named = join_all(named.collect::<Vec<_>>()).await;
        let named: Result<Vec<()>, ConnectionError> = named.into_iter().collect();
        match named {
            Ok(_) => {}
            Err(ConnectionError::Fenced { why, .. }) => return Err(self.core.fence(why)),
            Err(error) => return Ok(Err(self.core.no_copy(index, &error))),
        }
        // A store that went out meanwhile may have come back already, and had it deleted as an orphan.
        let still = || copies.iter().all(|(it, by)| it.is_in_by(by));
        let entered = MapIo::of(self.core).enter_if(index, merged, still);
        Ok(match entered.await {
            Ok(true) => Ok(()),
            Ok(false) => {
                let why = "a store went out meanwhile".to_owned();
                Err(self.core.no_copy(index, &ConnectionError::Gone(why)))
            }
            Err(error) => Err(error),
        })
    }

    /// Fills a new object on these stores with all that an extent holds.
    async fn fill(
        self,
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
                ConnectionError::Fenced { why, .. } => self.core.fence(why),
                error => self.core.no_copy(index, &error),
            })
        };
        let made = copies.iter().map(|(replica, connection)| async move {
            match Copies::of(self.core)
                .change_at(
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
            Copies::of(self.core)
                .change_at(replica, connection, create)
                .await
        });
        failed(join_all(made.collect::<Vec<_>>()).await)?;
        let step = CHUNK.min(self.core.replicas.write_max.get());
        for from in (0..EXTENT).step_by(step as usize) {
            let len = step.min(EXTENT - from);
            let user = UserId::OWN;
            let part = ExtentRange {
                index,
                from,
                len,
                user,
            };
            let data = Reads::of(self.core).read_layers(both, part).await?;
            if data.iter().all(|byte| *byte == 0) {
                continue;
            }
            let data = data.freeze();
            let writes = copies.iter().map(|(replica, connection)| {
                let write = connection.write(beside, from, data.clone(), Change::default());
                Copies::of(self.core).change_at(replica, connection, write)
            });
            failed(join_all(writes.collect::<Vec<_>>()).await)?;
        }
        Ok(())
    }
}
