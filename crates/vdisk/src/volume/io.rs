//! Reads and writes of a volume, piece by piece.
//!
//! ```text
//! a request -> pieces within one extent each -> tried until it is answered, or for `deadline`
//! ```
//!
//! Always true:
//! 1. A piece that was sent and not answered leaves its extent unreconciled before its range is given up.
//! 2. Stores for a new extent are noted before the first byte is sent to any of them.
//! 3. Of two changes of the same bytes the one that came first is over before the other one begins, however often it is tried: one
//!    that its client gave up long ago cannot land on what was answered later.

use std::ops::Range;
use std::rc::Rc;

use base::{Buf, Bytes, Instant, Nanos, View};
use env::sync::join_all;
use policy::place::{Candidate, Op, Reply, Request};
use store::{Change, place_of};

use super::membership::{Replica, SyncState};
use super::overlay::BLOCK;
use super::ranges;
use super::users::UserId;
use super::{Core, ExtentEntry, VolumeError};
use crate::names::{EXTENT, ExtentName, Generation, StoreNumber};
use crate::record::VolumeRecord;
use crate::replica::choice::Reported;
use crate::replica::connect::{Connection, ConnectionError};

/// A stretch of one extent.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExtentRange {
    pub index: u32,
    /// First byte in the extent.
    pub from: u64,
    pub len: u64,
    /// Whose it is.
    pub user: UserId,
}

impl ExtentRange {
    fn of(at: u64, len: u64, longest: u64, user: UserId) -> ExtentRange {
        let from = at % EXTENT;
        ExtentRange {
            index: (at / EXTENT) as u32,
            from,
            len: len.min(EXTENT - from).min(longest - from % longest),
            user,
        }
    }

    /// The bytes in the volume of all blocks it touches.
    fn blocks(&self) -> Range<u64> {
        let bytes = self.range(false);
        bytes.start / BLOCK * BLOCK..bytes.end.next_multiple_of(BLOCK)
    }

    /// Its bytes in the volume; with `whole` those of its extent.
    fn range(&self, whole: bool) -> Range<u64> {
        let start = u64::from(self.index) * EXTENT;
        match whole {
            true => start..start + EXTENT,
            false => start + self.from..start + self.from + self.len,
        }
    }
}

/// All pieces of a stretch of the volume.
fn extent_ranges(at: u64, len: u64, longest: u64, user: UserId) -> Vec<(u64, ExtentRange)> {
    let mut all = Vec::new();
    let mut done = 0;
    while done < len {
        let piece = ExtentRange::of(at + done, len - done, longest, user);
        all.push((done, piece));
        done += piece.len;
    }
    all
}

/// What became of one try.
pub(super) enum Tried {
    Done,
    /// Not yet; why.
    Again(VolumeError),
    /// Not yet, and some of its copies may have it.
    Indeterminate(VolumeError),
    /// All in-sync copies have it, but they are fewer than must.
    TooFew(VolumeError),
    /// Some of its copies may have it, and it is not tried again: others may be there by now.
    GivenUp(VolumeError),
}

impl Core {
    pub(super) fn request(&self, op: Op, len: u64, user: UserId) -> Request {
        let caller = self.users.get(user);
        Request {
            origin: caller.origin,
            op,
            bytes: Bytes(len),
            sequential: false,
            penalties: caller.penalties,
        }
    }

    pub(super) fn allocation(&self, at: u64, len: u64) -> Vec<(u64, bool)> {
        let mut all: Vec<(u64, bool)> = Vec::new();
        for (_, piece) in extent_ranges(at, len, EXTENT, UserId::OWN) {
            let data = self.placed(piece.index).is_some();
            match all.last_mut() {
                Some(last) if last.1 == data => last.0 += piece.len,
                _ => all.push((piece.len, data)),
            }
        }
        all
    }

    // --- reads ----------------------------------------------------------------------------------------

    pub(super) async fn read(
        self: &Rc<Self>,
        at: u64,
        mut buf: Buf,
        user: UserId,
    ) -> Result<Buf, VolumeError> {
        let len = buf.len() as u64;
        let all = extent_ranges(at, len, EXTENT, user);
        let reads = all.iter().map(|(_, piece)| self.read_piece(*piece));
        let answers = join_all(reads.collect::<Vec<_>>()).await;
        for ((done, piece), answer) in all.iter().zip(answers) {
            let (from, len) = (*done as usize, piece.len as usize);
            let part = &mut buf[from..from + len];
            let held = match answer? {
                Some(data) => {
                    part[..data.len()].copy_from_slice(&data);
                    data.len()
                }
                None => 0,
            };
            part[held..].fill(0);
        }
        Ok(buf)
    }

    /// The piece's bytes, fewer where the extent's object ends before; `None`: nothing was ever written there.
    async fn read_piece(self: &Rc<Self>, piece: ExtentRange) -> Result<Option<Buf>, VolumeError> {
        let deadline = env::now() + self.settings.deadline;
        let mut tries = 0;
        loop {
            self.await_reconciled(piece.index, deadline).await?;
            self.usable()?;
            let held = {
                #[cfg(test)]
                let loose = self.mutated(super::Mutation::LooseRead);
                #[cfg(not(test))]
                let loose = false;
                match loose {
                    true => None,
                    false => Some(self.ranges.take(piece.range(false), false).await),
                }
            };
            if held.is_some() && self.is_unreconciled(piece.index) {
                continue;
            }
            self.within_size(piece.range(false).end)?;
            let Some(placed) = self.placed(piece.index) else {
                return Ok(None);
            };
            match self.read_layers(&placed, piece).await {
                Ok(data) => return Ok(Some(data)),
                Err(error) if !error.passes() || self.is_late(deadline, &error) => {
                    return Err(error);
                }
                Err(_) => {}
            }
            drop(held);
            let core = Rc::clone(self);
            match env::spawn(async move { core.renew().await }).await {
                Err(error) if !error.passes() || self.is_late(deadline, &error) => {
                    return Err(error);
                }
                _ => {}
            }
            self.pause(&mut tries).await;
        }
    }

    /// From the copy that the policy chooses, or another one.
    pub(super) async fn read_copy(
        self: &Rc<Self>,
        placed: &Rc<ExtentEntry>,
        piece: ExtentRange,
    ) -> Result<Buf, VolumeError> {
        self.usable()?;
        let copies = readable(self, placed, piece);
        if copies.is_empty() {
            let why = ConnectionError::Gone("none of its in-sync stores can be reached".to_owned());
            return Err(self.no_copy(piece.index, &why));
        }
        let request = self.request(Op::Read, piece.len, piece.user);
        let read = self.choice.read(&request, &copies, |disk| {
            let replica = self.replica_of(disk).expect("listed just now");
            let connection = self.connection_of(replica, piece.user);
            read_by(self, replica, connection, placed, piece)
        });
        let (failed, answer) = match read.await {
            Ok(got) => (got.failed, Some(got.what)),
            Err(failed) => (failed, None),
        };
        for (disk, error) in &failed {
            let store = StoreNumber(disk.0 as u16);
            match error {
                ConnectionError::Fenced { why, .. } => return Err(self.fence(why)),
                ConnectionError::Damaged(_) | ConnectionError::Absent(_) if answer.is_some() => {
                    self.repair_later(placed, store, piece);
                }
                _ => {}
            }
        }
        let is_damaged = |error: &ConnectionError| matches!(error, ConnectionError::Damaged(_));
        if answer.is_none()
            && failed.iter().all(|(_, error)| is_damaged(error))
            && let Ok(data) = self.read_by_pages(placed, piece).await
        {
            for (disk, _) in &failed {
                self.repair_later(placed, StoreNumber(disk.0 as u16), piece);
            }
            return Ok(data);
        }
        match (answer, failed.first()) {
            (Some(data), _) => Ok(data),
            // The first write of it was never answered, and reached no store.
            (None, Some((_, ConnectionError::Absent(_)))) if placed.unacknowledged.get() => {
                Ok(Buf::zeroed(0))
            }
            (None, Some((_, why))) => Err(self.no_copy(piece.index, why)),
            (None, None) => unreachable!("no answer and no failure"),
        }
    }

    // --- changes ----------------------------------------------------------------------------------------

    /// Writes, or makes zeroes of (`None`).
    pub(super) async fn change(
        self: &Rc<Self>,
        at: u64,
        len: u64,
        data: Option<View>,
        user: UserId,
    ) -> Result<(), VolumeError> {
        let longest = match data {
            Some(_) => self.write_max.get(),
            None => EXTENT,
        };
        let all = extent_ranges(at, len, longest, user).into_iter();
        let changes = all.map(|(done, piece)| {
            let data = data.as_ref();
            let data = data.map(|data| data.slice(done as usize, piece.len as usize));
            self.change_piece(piece, data)
        });
        for answer in join_all(changes.collect::<Vec<_>>()).await {
            answer?;
        }
        Ok(())
    }

    async fn change_piece(
        self: &Rc<Self>,
        piece: ExtentRange,
        data: Option<View>,
    ) -> Result<(), VolumeError> {
        let begun = env::now();
        let deadline = begun + self.settings.deadline;
        let turn = self.turn(piece, deadline).await?;
        let mut tries = 0;
        loop {
            match self.ensure_reconciled(piece.index, deadline).await {
                Ok(()) => {}
                Err(error) if !error.passes() || self.is_late(deadline, &error) => {
                    return Err(error);
                }
                Err(_) => {
                    self.pause(&mut tries).await;
                    continue;
                }
            }
            // A change has an unacknowledged extent, or a block of an overlay, to itself.
            let index = piece.index;
            let (begins, overlay) = (self.begins(index), self.is_overlay(index));
            let range = match overlay && !begins {
                true => piece.blocks(),
                false => piece.range(begins),
            };
            let held = self.ranges.take(range, true).await;
            if self.is_unreconciled(index) || self.begins(index) != begins {
                continue;
            }
            if self.is_overlay(index) && !overlay && !begins {
                continue;
            }
            self.within_size(piece.range(false).end)?;
            let tried = match data.is_none() && self.placed(index).is_none() {
                // What was given up and never answered must not come back after that.
                true if self.is_forgotten(index) => self.commit().await.map(|()| Tried::Done),
                true => return Ok(()),
                false => self.try_change(piece, data.clone()).await,
            };
            let error = match tried {
                Ok(Tried::Done) => return Ok(()),
                Ok(Tried::TooFew(error)) => {
                    let placed = self.placed(index);
                    drop((held, turn));
                    return self.enough(placed, error, deadline).await;
                }
                Ok(Tried::GivenUp(error)) => return Err(error),
                Ok(Tried::Again(error) | Tried::Indeterminate(error)) => error,
                Err(error) if error.passes() => error,
                Err(error) => return Err(error),
            };
            drop(held);
            // Room that is being freed comes within seconds; a request that waits longer waits for more stores.
            let full = matches!(error, VolumeError::NoRoom { .. });
            let given_up = full && env::now() >= begun + self.settings.timeout;
            if given_up || self.is_late(deadline, &error) {
                return Err(error);
            }
            self.pause(&mut tries).await;
        }
    }

    /// Waits until all changes of these bytes that came before are over, as long as a request is tried.
    async fn turn(
        &self,
        piece: ExtentRange,
        deadline: Instant,
    ) -> Result<Option<ranges::RangeLock>, VolumeError> {
        #[cfg(test)]
        if self.mutated(super::Mutation::FreeRange) {
            return Ok(None);
        }
        let mut turn = std::pin::pin!(self.turns.take(piece.range(false), true));
        loop {
            if let Ok(held) = env::timeout(self.until(deadline), &mut turn).await {
                return Ok(Some(held));
            }
            let why = "an earlier change of the same bytes is not over".to_owned();
            let error = self.no_copy(piece.index, &ConnectionError::Gone(why));
            if self.is_late(deadline, &error) {
                return Err(error);
            }
        }
    }

    /// A change is on all in-sync copies of an extent: waits until those are as many as must be, which get it when they come
    /// back. It is not done again: others may be there by now.
    async fn enough(
        &self,
        placed: Option<Rc<ExtentEntry>>,
        error: VolumeError,
        deadline: Instant,
    ) -> Result<(), VolumeError> {
        let Some(placed) = placed else {
            return Ok(());
        };
        let mut tries = 0;
        while !self.is_late(deadline, &error) {
            self.usable()?;
            let numbers = placed.stores.borrow().clone();
            let replicas = numbers.iter().filter_map(|number| self.replica(*number));
            let in_sync = replicas.filter(|it| it.sync_state.get() == SyncState::InSync);
            if in_sync.count() >= usize::from(self.record.borrow().0.min_isr) {
                return Ok(());
            }
            self.pause(&mut tries).await;
        }
        Err(error)
    }

    pub(super) async fn try_change(
        self: &Rc<Self>,
        piece: ExtentRange,
        data: Option<View>,
    ) -> Result<Tried, VolumeError> {
        self.usable()?;
        let found = self.placed(piece.index);
        let copies = self.record.borrow().0.copies;
        let _dirty = match copies > 1 || self.begins(piece.index) {
            true => Some(self.note_dirty(piece.index).await?),
            false => None,
        };
        let placed = match found {
            Some(placed) if placed.unacknowledged.get() || !self.is_shared(&placed) => placed,
            Some(placed) if placed.base().is_some() => self.merge(piece.index, &placed).await?,
            shared => self.place(piece, shared).await?,
        };
        self.count_copies(&placed).await?;
        if (data.is_some() || placed.base().is_some()) && !placed.unacknowledged.get() {
            self.check_room(&placed, piece).await?;
        }
        match placed.base() {
            None => self.spread(&placed, piece, data).await,
            Some(_) => self.change_overlay(&placed, piece, data).await,
        }
    }

    /// The node that opens the volume must know how few copies there may be. Of a new extent that is asked behind all
    /// changes of the record under way: they counted without it.
    async fn count_copies(&self, placed: &ExtentEntry) -> Result<(), VolumeError> {
        let fewer = |record: &VolumeRecord| placed.in_sync(&record.out) < record.redundancy_floor;
        if !placed.uncounted.get() && !fewer(&self.record.borrow().0) {
            return Ok(());
        }
        self.change_record(|record| {
            let fewer = fewer(record);
            let count = placed.in_sync(&record.out).max(1);
            record.redundancy_floor = record.redundancy_floor.min(count);
            Ok(fewer && count < self.record.borrow().0.redundancy_floor)
        })
        .await?;
        placed.uncounted.set(false);
        Ok(())
    }

    /// Sends a change to all copies of one object. Once some copies may have it, it is tried for as long as a request may take.
    /// If its range were free meanwhile a client might read it and write something else. The next try would undo that write.
    pub(super) async fn spread(
        self: &Rc<Self>,
        placed: &Rc<ExtentEntry>,
        piece: ExtentRange,
        data: Option<View>,
    ) -> Result<Tried, VolumeError> {
        let deadline = env::now() + self.settings.deadline;
        let (mut indeterminate, mut tries) = (0, 0);
        loop {
            let tried = self.try_to_spread(placed, piece, data.clone(), indeterminate > 0);
            let tried = tried.await;
            #[cfg(test)]
            if self.mutated(super::Mutation::FreeRange)
                && let Ok(Tried::Indeterminate(error) | Tried::TooFew(error)) = tried
            {
                return Ok(Tried::Again(error));
            }
            let error = match tried {
                Ok(done @ (Tried::Done | Tried::TooFew(_))) => {
                    (0..indeterminate).for_each(|_| self.remove_unreconciled(piece.index));
                    return Ok(done);
                }
                Ok(Tried::Indeterminate(error)) => {
                    indeterminate += 1;
                    error
                }
                Ok(Tried::Again(error) | Tried::GivenUp(error)) => error,
                Err(error) if indeterminate > 0 && error.passes() => error,
                Err(error) => return Err(error),
            };
            let there = self.placed(piece.index);
            let given_up = there.is_none_or(|it| !Rc::ptr_eq(&it, placed));
            if indeterminate == 0 || given_up {
                return Ok(Tried::Again(error));
            }
            if self.is_late(deadline, &error) {
                return Ok(Tried::GivenUp(error));
            }
            self.pause(&mut tries).await;
        }
    }

    /// Once. `begun`: some copies may have it, so that all must get it, however few they are.
    async fn try_to_spread(
        self: &Rc<Self>,
        placed: &Rc<ExtentEntry>,
        piece: ExtentRange,
        data: Option<View>,
        begun: bool,
    ) -> Result<Tried, VolumeError> {
        let least = self.record.borrow().0.min_isr;
        let numbers = placed.stores.borrow().clone();
        let needed = self.needed(&numbers);
        if needed.len() < usize::from(least) && !begun {
            if placed.unacknowledged.get() {
                // Others may do.
                self.forget(piece.index, placed).await?;
            }
            return Ok(Tried::Again(self.read_only(needed.len())));
        }
        let under_way = self.begin();
        let followers = numbers.iter().filter_map(|one| self.replica(*one));
        let followers: Vec<&Replica> = followers
            .filter(|it| !it.is_needed() && it.synced.borrow().contains(&piece.index))
            .collect();
        let all = needed.iter().chain(&followers);
        let (stamp, unacknowledged) = (under_way.stamp(), placed.unacknowledged.get());
        let sent =
            all.map(|replica| self.send(replica, placed, piece, &data, stamp, unacknowledged));
        let mut answers = join_all(sent.collect::<Vec<_>>()).await;
        if let Some(why) = answers.iter().find_map(fenced) {
            return Err(self.fence(why));
        }
        let mut failed: Vec<(&Replica, ConnectionError)> = Vec::new();
        for (replica, answer) in followers.iter().zip(answers.drain(needed.len()..)) {
            let Err(error) = answer else { continue };
            replica.lacks(piece.index);
            // It may have begun to join since this was sent: then it needs this as any other.
            if replica.is_needed() {
                failed.push((replica, error));
            }
        }
        let answers = needed.iter().zip(answers);
        failed.extend(answers.filter_map(|(it, answer)| Some((*it, answer.err()?))));
        if failed.is_empty() {
            placed.unacknowledged.set(false);
            return Ok(match needed.len() < usize::from(least) {
                true => Tried::TooFew(self.read_only(needed.len())),
                false => Tried::Done,
            });
        }
        let took = |replica: &&&Replica| failed.iter().all(|(it, _)| !std::ptr::eq(*it, **replica));
        let done = needed.iter().filter(took).count();
        self.missed(piece, placed, done, failed).await
    }

    /// Some stores did not take the change: may it be answered all the same?
    async fn missed(
        &self,
        piece: ExtentRange,
        placed: &ExtentEntry,
        done: usize,
        failed: Vec<(&Replica, ConnectionError)>,
    ) -> Result<Tried, VolumeError> {
        let numbers: Vec<StoreNumber> = failed.iter().map(|(it, _)| it.info.number).collect();
        let is_full = |why: &ConnectionError| matches!(why, ConnectionError::Full(_));
        let full = failed.iter().all(|(_, why)| is_full(why));
        let why = &failed[0].1;
        // From here on no client reads it before the copies are equal, however this ends.
        self.add_unreconciled(piece.index);
        if placed.unacknowledged.get() && full {
            // No client had an answer, and none read it: it begins anew where there is room.
            for (replica, _) in &failed {
                replica.free.set(Bytes(0));
            }
            self.forget(piece.index, placed).await?;
            self.remove_unreconciled(piece.index);
            let (volume, why) = (self.id, why.to_string());
            return Ok(Tried::Again(VolumeError::NoRoom { volume, why }));
        }
        let out = match done {
            0 => Ok(false),
            _ => self.shrink_set(&numbers).await,
        };
        for (replica, _) in failed.iter().filter(|(_, why)| is_full(why)) {
            replica.free.set(Bytes(0));
            replica.was_full.set(matches!(out, Ok(true)));
        }
        let out = match out {
            Err(error) if error.passes() => return Ok(Tried::Indeterminate(error)),
            other => other?,
        };
        if !out {
            if done == 0 && full {
                let why = why.to_string();
                self.remove_unreconciled(piece.index);
                let volume = self.id;
                return Err(VolumeError::NoRoom { volume, why });
            }
            return match self.renew().await {
                Err(error) if !error.passes() => Err(error),
                _ => Ok(Tried::Indeterminate(self.no_copy(piece.index, why))),
            };
        }
        // Every in-sync store has it.
        self.remove_unreconciled(piece.index);
        placed.unacknowledged.set(false);
        let least = self.record.borrow().0.min_isr;
        Ok(match done < usize::from(least) {
            true => Tried::TooFew(self.read_only(done)),
            false => Tried::Done,
        })
    }

    fn read_only(&self, copies: usize) -> VolumeError {
        let record = &self.record.borrow().0;
        VolumeError::ReadOnly {
            volume: self.id,
            copies,
            least: record.min_isr,
            out: self.labels(record.out.keys()),
        }
    }

    /// One copy's part of a change; what a user's connection surely did not do goes on the volume's.
    async fn send(
        self: &Rc<Self>,
        replica: &Replica,
        placed: &ExtentEntry,
        piece: ExtentRange,
        data: &Option<View>,
        stamp: Generation,
        unacknowledged: bool,
    ) -> Result<(), ConnectionError> {
        let own = piece.user == UserId::OWN;
        let send = |piece| self.send_by(replica, placed, piece, data, stamp, unacknowledged);
        match send(piece).await {
            Err(ConnectionError::Gone(_)) if !own => {
                let user = UserId::OWN;
                send(ExtentRange { user, ..piece }).await
            }
            answer => answer,
        }
    }

    async fn send_by(
        self: &Rc<Self>,
        replica: &Replica,
        placed: &ExtentEntry,
        piece: ExtentRange,
        data: &Option<View>,
        stamp: Generation,
        unacknowledged: bool,
    ) -> Result<(), ConnectionError> {
        let Some(connection) = self.connection_of(replica, piece.user) else {
            let why = format!("there is no link to store {}", replica.info.name);
            return Err(ConnectionError::Gone(why));
        };
        let change = Change {
            stamp: Some(stamp.0),
            create: unacknowledged,
            ..Change::FUA
        };
        let answer = match data {
            Some(data) => {
                let request = self.request(Op::Write, piece.len, piece.user);
                let at = place_of(&placed.object, piece.from);
                let write = async {
                    let begun = env::now();
                    let write = connection.write(&placed.object, piece.from, data.clone(), change);
                    let wrote = self.within(write).await;
                    wrote.map(|()| reported((), begun, &connection))
                };
                replica.takes(piece.len);
                let copy = replica.candidate(Some(at));
                self.choice.one(&request, copy, write).await
            }
            None => {
                let zeroed = zeroed(&connection, placed, piece, change);
                self.within(zeroed).await
            }
        };
        if let Err(error) = &answer
            && error.ends_connection()
        {
            let tainted = error.is_indeterminate();
            #[cfg(test)]
            let tainted = tainted
                && (piece.user == UserId::OWN
                    || !self.mutated(super::Mutation::UntaintedByClients));
            replica.lose(&connection, tainted);
        }
        answer
    }

    // --- new extents --------------------------------------------------------------------------------------

    /// A new extent, or an overlay on one that is shared: in the map and in the table before the first byte of it is sent. Its
    /// range is the caller's alone.
    async fn place(
        &self,
        piece: ExtentRange,
        base: Option<Rc<ExtentEntry>>,
    ) -> Result<Rc<ExtentEntry>, VolumeError> {
        let index = piece.index;
        if self.is_forgotten(index) {
            // Else the next opening takes the one before for something that is still there.
            self.commit().await?;
        }
        let stores = self.choose_with_room(piece.len, piece.user).await?;
        let _pending = self.pending_placement(&stores);
        self.list_stores(&stores).await?;
        let name = ExtentName {
            owner: self.id,
            born: self.generation(),
            index,
        };
        let placed = ExtentEntry::new(name, stores, true);
        *placed.base.borrow_mut() = base.clone();
        placed.blocks.known.set(true);
        // Counts of copies from here on count it.
        placed.uncounted.set(true);
        self.extents.borrow_mut().insert(index, Rc::clone(&placed));
        if let Err(error) = self.enter(index, &placed).await {
            let mut extents = self.extents.borrow_mut();
            match base {
                Some(base) => extents.insert(index, base),
                None => extents.remove(&index),
            };
            return Err(error);
        }
        self.count(|counters| counters.allocated += 1);
        Ok(placed)
    }

    /// Lets the map have an extent as it is now.
    pub(super) async fn enter(&self, index: u32, placed: &ExtentEntry) -> Result<(), VolumeError> {
        let entry = placed.entry().expect("it has stores");
        let set = self.map.set(index, entry).await;
        set.map(drop).map_err(|error| self.map_error(&error))
    }

    /// The same, if `still` holds when the map changes. Does it?
    pub(super) async fn enter_if(
        &self,
        index: u32,
        placed: &ExtentEntry,
        still: impl Fn() -> bool,
    ) -> Result<bool, VolumeError> {
        let entry = placed.entry().expect("it has stores");
        let set = self.map.set_if(index, entry, still).await;
        set.map_err(|error| self.map_error(&error))
    }

    /// An extent of which nothing was answered, nor read, is given up. Its range is the caller's alone.
    pub(super) async fn forget(&self, index: u32, placed: &ExtentEntry) -> Result<(), VolumeError> {
        debug_assert!(placed.unacknowledged.get());
        let base = placed.base();
        let entry = base.as_ref().and_then(|base| base.entry());
        let removed = match entry {
            Some(entry) => self.map.set(index, entry).await,
            None => self.map.remove(index).await,
        };
        removed.map_err(|error| self.map_error(&error))?;
        self.forgotten(index);
        let mut extents = self.extents.borrow_mut();
        match base {
            Some(base) => extents.insert(index, base),
            None => extents.remove(&index),
        };
        Ok(())
    }
}

/// The copies of an extent that can be read now.
fn readable(core: &Core, placed: &ExtentEntry, piece: ExtentRange) -> Vec<Candidate> {
    let numbers = placed.stores.borrow().clone();
    let fit = |replica: &&Replica| {
        replica.sync_state.get() == SyncState::InSync && replica.connection().is_some()
    };
    let replicas = numbers.iter().filter_map(|number| core.replica(*number));
    let at = Some(place_of(&placed.object, piece.from));
    let copies = replicas.filter(fit).map(|replica| replica.candidate(at));
    copies.collect()
}

/// Reads from one copy.
async fn read_by(
    core: &Core,
    replica: &Replica,
    connection: Option<Rc<dyn Connection>>,
    placed: &ExtentEntry,
    piece: ExtentRange,
) -> Result<Reported<Buf>, ConnectionError> {
    let begun = env::now();
    let Some(connection) = connection else {
        return Err(ConnectionError::Gone("its link broke".to_owned()));
    };
    let read = connection.read(&placed.object, piece.from, piece.len);
    match core.within(read).await {
        Ok(data) => Ok(reported(data, begun, &connection)),
        Err(error) => {
            if error.ends_connection() {
                replica.lose(&connection, false);
            }
            Err(error)
        }
    }
}

/// Why a store says that another writer has the volume, if it does.
fn fenced(answer: &Result<(), ConnectionError>) -> Option<String> {
    match answer {
        Err(ConnectionError::Fenced { why, .. }) => Some(why.clone()),
        _ => None,
    }
}

/// An answer, with what the policy learns from it.
fn reported<T>(what: T, begun: Instant, connection: &Rc<dyn Connection>) -> Reported<T> {
    let took: Nanos = env::now().since(begun);
    Reported {
        what,
        reply: Reply {
            residence: took,
            service: took,
            state: connection.state(),
        },
    }
}

/// Makes zeroes of a piece, in an object that may not be there yet if the change may make it.
async fn zeroed(
    connection: &Rc<dyn Connection>,
    placed: &ExtentEntry,
    piece: ExtentRange,
    change: Change,
) -> Result<(), ConnectionError> {
    if change.create {
        match connection.create(&placed.object, change).await {
            // It exists.
            Ok(()) | Err(ConnectionError::Refused(_)) => {}
            Err(error) => return Err(error),
        }
    }
    let change = Change {
        create: false,
        ..change
    };
    connection
        .punch(&placed.object, piece.from, piece.len, change)
        .await
}
