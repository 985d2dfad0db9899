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

use super::io::{Piece, Tried};
use super::members::{Member, Standing};
use super::users::UserId;
use super::{Core, Placed, VolumeError};
use crate::link::{Link, LinkError};
use crate::names::{EXTENT, ExtentName, filling};

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
    pub(super) fn is_shared(&self, placed: &Placed) -> bool {
        let since = self.head.borrow().record.since;
        placed.name.owner != self.id || placed.name.born <= since
    }

    /// What is filled before it gets its name, or takes the place of what has it.
    pub(super) fn beside(&self, placed: &Placed) -> String {
        filling(&placed.object, self.id)
    }

    /// Must the extent have an object of its own, or has it one that no other image has, for a change of it?
    pub(super) fn begins(&self, index: u32) -> bool {
        let placed = self.placed(index);
        placed.is_none_or(|placed| placed.young.get() || self.is_shared(&placed))
    }

    /// Is it an overlay?
    pub(super) fn is_overlay(&self, index: u32) -> bool {
        self.placed(index).is_some_and(|it| it.base().is_some())
    }

    // --- which blocks ---------------------------------------------------------------------------------------

    /// The blocks that an overlay has; those of the caller's range stay as they are.
    async fn blocks(&self, placed: &Placed) -> Result<u64, VolumeError> {
        while !placed.blocks.are_known() {
            let doubts = placed.blocks.doubts.get();
            let found = self.look_for_blocks(placed).await?;
            if placed.blocks.doubts.get() == doubts {
                placed.blocks.add(found);
                placed.blocks.known.set(true);
            } else if self.is_doubtful(placed.name.index) {
                let why = LinkError::Gone("which blocks it has is unknown".to_owned());
                return Err(self.no_copy(placed.name.index, &why));
            }
        }
        Ok(placed.blocks.has.get())
    }

    async fn look_for_blocks(&self, placed: &Placed) -> Result<u64, VolumeError> {
        let numbers = placed.stores.borrow().clone();
        let fit = |it: &&Member| it.standing.get() == Standing::In;
        let members = numbers.iter().filter_map(|number| self.member(*number));
        let mut why = LinkError::Gone("none of its in-sync stores can be reached".to_owned());
        for member in members.filter(fit) {
            let Some(link) = member.link() else { continue };
            match self.within(link.extents(&placed.object, 0, EXTENT)).await {
                Ok(extents) => {
                    let data = extents.iter().filter(|it| it.data && it.len > 0);
                    return Ok(data.fold(0, |mask, it| mask | touched(it.offset, it.len)));
                }
                // The first change of it was never answered, and reached no store.
                Err(LinkError::Absent(_)) if placed.young.get() => return Ok(0),
                Err(LinkError::Fenced { why, .. }) => return Err(self.fence(why)),
                Err(error) => {
                    if error.ends_link() {
                        member.lose(&link, false);
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
        placed: &Rc<Placed>,
        piece: Piece,
    ) -> Result<Buf, VolumeError> {
        let Some(base) = placed.base() else {
            return self.read_copy(placed, piece).await;
        };
        let has = self.blocks(placed).await?;
        let mut runs: Vec<(bool, Piece)> = Vec::new();
        let mut at = piece.from;
        while at < piece.from + piece.len {
            let len = (BLOCK - at % BLOCK).min(piece.from + piece.len - at);
            let own = has & (1 << (at / BLOCK)) != 0;
            match runs.last_mut() {
                Some((before, run)) if *before == own => run.len += len,
                _ => runs.push((
                    own,
                    Piece {
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
        placed: &Rc<Placed>,
        piece: Piece,
        data: Option<View>,
    ) -> Result<Tried, VolumeError> {
        let longest = self.piece.get();
        let deadline = env::now() + self.settings.deadline;
        let mut too_few = None;
        let mut done = 0;
        while done < piece.len {
            let from = piece.from + done;
            let part = Piece {
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
                    Ok(Tried::Again(error) | Tried::InDoubt(error) | Tried::GivenUp(error))
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
        placed: &Rc<Placed>,
        part: Piece,
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
        placed: &Rc<Placed>,
        piece: Piece,
        data: Option<View>,
    ) -> Result<(Piece, View), VolumeError> {
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
        let skips = self.planted(super::Bug::HalfBlock);
        #[cfg(not(test))]
        let skips = false;
        for (from, to) in [(first, piece.from), (end, last)] {
            if from < to && !skips {
                let len = to - from;
                let part = Piece { from, len, ..piece };
                let rest = self.read_copy(&base, part).await?;
                whole[(from - first) as usize..][..rest.len()].copy_from_slice(&rest);
            }
        }
        if let Some(data) = data {
            whole[(piece.from - first) as usize..][..data.len()].copy_from_slice(&data);
        }
        let wide = Piece {
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
        both: &Rc<Placed>,
    ) -> Result<Rc<Placed>, VolumeError> {
        if self.is_forgotten(index) {
            self.commit().await?;
        }
        let stores = self.choose_with_room(EXTENT, UserId::OWN).await?;
        let _bound = self.bound_for(&stores);
        self.list_stores(&stores).await?;
        let members = stores.iter().filter_map(|number| self.member(*number));
        let copies: Vec<(&Member, Rc<dyn Link>)> =
            members.filter_map(|it| Some((it, it.link()?))).collect();
        if copies.len() < stores.len() {
            let why = LinkError::Gone("a link broke".to_owned());
            return Err(self.no_copy(index, &why));
        }
        let beside = self.beside(both);
        self.fill(index, both, &copies, &beside).await?;
        // It has a name only from here on: a commit that begins before that does not need it.
        let under_way = self.begin();
        let name = ExtentName {
            owner: self.id,
            born: under_way.mark,
            index,
        };
        let numbers = copies.iter().map(|(it, _)| it.site.number).collect();
        let merged = Placed::new(name, numbers, false);
        let change = Change {
            mark: Some(under_way.mark.0),
            ..Change::FUA
        };
        let named = copies.iter().map(|(member, link)| {
            let rename = link.rename(&beside, &merged.object, true, change);
            self.of(member, link, rename)
        });
        let named = join_all(named.collect::<Vec<_>>()).await;
        let named = named.into_iter().collect::<Result<Vec<()>, LinkError>>();
        // A store that went out meanwhile may have come back already, and had it deleted as an orphan.
        let still = || copies.iter().all(|(member, link)| member.is_in_by(link));
        let entered = match named {
            Ok(_) => match self.enter_if(index, &merged, still).await {
                Ok(true) => Ok(()),
                Ok(false) => {
                    let why = LinkError::Gone("a store went out meanwhile".to_owned());
                    Err(self.no_copy(index, &why))
                }
                Err(error) => Err(error),
            },
            Err(LinkError::Fenced { why, .. }) => return Err(self.fence(why)),
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
        self.count(|figures| figures.merged += 1);
        Ok(merged)
    }

    /// Fills a new object on these stores with all that an extent holds.
    async fn fill(
        self: &Rc<Self>,
        index: u32,
        both: &Rc<Placed>,
        copies: &[(&Member, Rc<dyn Link>)],
        beside: &str,
    ) -> Result<(), VolumeError> {
        let failed = |answers: Vec<Result<(), LinkError>>| {
            let all = answers.into_iter().collect::<Result<Vec<()>, LinkError>>();
            all.map(drop).map_err(|error| match error {
                LinkError::Fenced { why, .. } => self.fence(why),
                error => self.no_copy(index, &error),
            })
        };
        let made = copies.iter().map(|(member, link)| async move {
            match self
                .of(member, link, link.delete(beside, Change::default()))
                .await
            {
                Ok(()) | Err(LinkError::Absent(_)) => {}
                Err(error) => return Err(error),
            }
            let create = link.create(beside, Change::default());
            self.of(member, link, create).await
        });
        failed(join_all(made.collect::<Vec<_>>()).await)?;
        let step = CHUNK.min(self.piece.get());
        for from in (0..EXTENT).step_by(step as usize) {
            let len = step.min(EXTENT - from);
            let user = UserId::OWN;
            let part = Piece {
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
            let writes = copies.iter().map(|(member, link)| {
                let write = link.write(beside, from, data.clone(), Change::default());
                self.of(member, link, write)
            });
            failed(join_all(writes.collect::<Vec<_>>()).await)?;
        }
        Ok(())
    }

    /// One change at a store, whose link is of no more use if it ends it.
    pub(super) async fn of(
        &self,
        member: &Member,
        link: &Rc<dyn Link>,
        change: impl Future<Output = Result<(), LinkError>>,
    ) -> Result<(), LinkError> {
        let answer = self.within(change).await;
        if let Err(error) = &answer
            && error.ends_link()
        {
            member.lose(link, matches!(error, LinkError::Unknown(_)));
        }
        answer
    }
}
