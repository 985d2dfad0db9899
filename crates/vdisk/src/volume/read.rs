//! Reads of a volume, piece by piece.
//!
//! ```text
//! a read -> pieces within one extent each -> reconciled, range shared -> layers -> a copy each, tried for `deadline`
//! ```
//!
//! Copies at whose stores something booked for the volume is left come first; among them, and else, the policy chooses.
//!
//! Always true: no read meets a write, nor an extent whose copies may differ.

use std::rc::Rc;

use base::{Buf, Bytes};
use env::sync::join_all;
use policy::place::{Candidate, Op};
use store::place_of;

use super::connections::{Connections, reported};
use super::error::VolumeError;
use super::extent::ExtentEntry;
#[cfg(test)]
use super::life::Mutation;
use super::pieces::{BLOCK, ExtentRange, extent_ranges, touched};
use super::reconcile::Reconcile;
use super::record_io::RecordIo;
use super::repair::Repair;
use super::replica::{Replica, SyncState};
use super::rewrite::Rewrite;
use super::state::Core;
use super::users::UserId;
use crate::names::{EXTENT, StoreNumber};
use crate::replica::choice::Reported;
use crate::replica::connect::{Connection, ConnectionError};

/// Reads what clients ask for.
#[derive(Clone, Copy)]
pub(super) struct Reads<'a> {
    core: &'a Rc<Core>,
}

impl<'a> Reads<'a> {
    pub fn of(core: &'a Rc<Core>) -> Reads<'a> {
        Reads { core }
    }

    pub(super) async fn read(
        self,
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
    async fn read_piece(self, piece: ExtentRange) -> Result<Option<Buf>, VolumeError> {
        let deadline = env::now() + self.core.settings.deadline;
        let mut tries = 0;
        loop {
            Reconcile::of(self.core)
                .await_reconciled(piece.index, deadline)
                .await?;
            self.core.usable()?;
            let held = {
                #[cfg(test)]
                let loose = self.core.mutated(Mutation::LooseRead);
                #[cfg(not(test))]
                let loose = false;
                match loose {
                    true => None,
                    false => Some(self.core.locks.ranges.take(piece.range(false), false).await),
                }
            };
            if held.is_some() && self.core.is_unreconciled(piece.index) {
                continue;
            }
            self.core.within_size(piece.range(false).end)?;
            let Some(placed) = self.core.extents.placed(piece.index) else {
                return Ok(None);
            };
            match self.read_layers(&placed, piece).await {
                Ok(data) => return Ok(Some(data)),
                Err(error) if !error.passes() || self.core.is_late(deadline, &error) => {
                    return Err(error);
                }
                Err(_) => {}
            }
            drop(held);
            let core = Rc::clone(self.core);
            match env::spawn(async move { RecordIo::of(&core).renew().await }).await {
                Err(error) if !error.passes() || self.core.is_late(deadline, &error) => {
                    return Err(error);
                }
                _ => {}
            }
            self.core.pause(&mut tries).await;
        }
    }

    /// A piece of an extent, from the layers that hold it: its first bytes, and zeroes behind them.
    pub(super) async fn read_layers(
        self,
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

    /// From the copy that the policy chooses, or another one.
    pub(super) async fn read_copy(
        self,
        placed: &Rc<ExtentEntry>,
        piece: ExtentRange,
    ) -> Result<Buf, VolumeError> {
        self.core.usable()?;
        let copies = readable(self.core, placed, piece);
        if copies.is_empty() {
            let why = ConnectionError::Gone("none of its in-sync stores can be reached".to_owned());
            return Err(self.core.no_copy(piece.index, &why));
        }
        let request = self.core.request(Op::Read, piece.len, piece.user);
        let of = |disk| self.core.replicas.of_disk(disk).expect("listed just now");
        let booked = self.core.settings.prefer_booked && piece.user != UserId::BACKGROUND;
        let preferred = |disk| {
            let replica = of(disk);
            booked && replica.has_credit(Connections::of(self.core).heard_by(replica, piece.user))
        };
        let choice = &self.core.choice;
        let read = choice.read_first(&request, &copies, preferred, |disk| {
            let replica = of(disk);
            replica.reads(Bytes(piece.len));
            let connection = Connections::of(self.core).connection_of(replica, piece.user);
            read_by(self.core, replica, connection, placed, piece)
        });
        let (failed, answer) = match read.await {
            Ok(got) => (got.failed, Some(got.what)),
            Err(failed) => (failed, None),
        };
        for (disk, error) in &failed {
            let store = StoreNumber(disk.0 as u16);
            match error {
                ConnectionError::Fenced { why, .. } => return Err(self.core.fence(why)),
                ConnectionError::Damaged(_) | ConnectionError::Absent(_) if answer.is_some() => {
                    Repair::of(self.core).repair_later(placed, store, piece);
                }
                _ => {}
            }
        }
        let is_damaged = |error: &ConnectionError| matches!(error, ConnectionError::Damaged(_));
        if answer.is_none()
            && failed.iter().all(|(_, error)| is_damaged(error))
            && let Ok(data) = Rewrite::of(self.core).read_by_pages(placed, piece).await
        {
            for (disk, _) in &failed {
                Repair::of(self.core).repair_later(placed, StoreNumber(disk.0 as u16), piece);
            }
            return Ok(data);
        }
        match (answer, failed.first()) {
            (Some(data), _) => Ok(data),
            // The first write of it was never answered, and reached no store.
            (None, Some((_, ConnectionError::Absent(_)))) if placed.is_unacknowledged() => {
                Ok(Buf::zeroed(0))
            }
            (None, Some((_, why))) => Err(self.core.no_copy(piece.index, why)),
            (None, None) => unreachable!("no answer and no failure"),
        }
    }

    /// The blocks that an overlay has; those of the caller's range stay as they are.
    pub(super) async fn blocks(self, placed: &ExtentEntry) -> Result<u64, VolumeError> {
        while !placed.blocks.are_known() {
            let times_forgotten = placed.blocks.times_forgotten.get();
            let found = self.look_for_blocks(placed).await?;
            if placed.blocks.times_forgotten.get() == times_forgotten {
                placed.blocks.add(found);
                placed.blocks.known.set(true);
            } else if self.core.is_unreconciled(placed.name.index) {
                let why = ConnectionError::Gone("which blocks it has is unknown".to_owned());
                return Err(self.core.no_copy(placed.name.index, &why));
            }
        }
        Ok(placed.blocks.has.get())
    }

    async fn look_for_blocks(self, placed: &ExtentEntry) -> Result<u64, VolumeError> {
        let numbers = placed.stores();
        let fit = |it: &&Replica| it.sync_state() == SyncState::InSync;
        let replicas = numbers
            .iter()
            .filter_map(|number| self.core.replicas.get(*number));
        let mut why = ConnectionError::Gone("none of its in-sync stores can be reached".to_owned());
        for replica in replicas.filter(fit) {
            let Some(connection) = replica.connection() else {
                continue;
            };
            match self
                .core
                .within(connection.extents(&placed.object, 0, EXTENT))
                .await
            {
                Ok(extents) => {
                    let data = extents.iter().filter(|it| it.data && it.len > 0);
                    return Ok(data.fold(0, |mask, it| mask | touched(it.offset, it.len)));
                }
                // The first change of it was never answered, and reached no store.
                Err(ConnectionError::Absent(_)) if placed.is_unacknowledged() => {
                    return Ok(0);
                }
                Err(ConnectionError::Fenced { why, .. }) => return Err(self.core.fence(why)),
                Err(error) => {
                    if error.ends_connection() {
                        replica.lose(&connection, false);
                    }
                    why = error;
                }
            }
        }
        Err(self.core.no_copy(placed.name.index, &why))
    }

    pub(super) fn allocation(self, at: u64, len: u64) -> Vec<(u64, bool)> {
        let mut all: Vec<(u64, bool)> = Vec::new();
        for (_, piece) in extent_ranges(at, len, EXTENT, UserId::OWN) {
            let data = self.core.extents.placed(piece.index).is_some();
            match all.last_mut() {
                Some(last) if last.1 == data => last.0 += piece.len,
                _ => all.push((piece.len, data)),
            }
        }
        all
    }
}

/// The copies of an extent that can be read now.
fn readable(core: &Rc<Core>, placed: &ExtentEntry, piece: ExtentRange) -> Vec<Candidate> {
    let readable = core
        .replication
        .borrow()
        .readable(&placed.copies.borrow().stores);
    let replicas = readable.iter().filter_map(|one| core.replicas.get(*one));
    let at = Some(place_of(&placed.object, piece.from));
    replicas.map(|replica| replica.candidate(at)).collect()
}

/// Reads from one copy.
async fn read_by(
    core: &Rc<Core>,
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
