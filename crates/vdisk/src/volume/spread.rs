//! One change of one extent, sent to all its copies.
//!
//! ```text
//! all in-sync copies at once -> all have it: done | some have not: out, by compare-and-swap, before the answer
//!                               none, or it may be the last copy: unreconciled, and the same bytes again
//! ```
//!
//! Always true:
//! 1. A piece that was sent and not answered leaves its extent unreconciled before its range is given up.
//! 2. What a user's connection surely did not do goes on the volume's.

use std::rc::Rc;

use base::{Bytes, View};
use env::sync::join_all;
use policy::place::Op;
use store::{Change, place_of};

use super::commit::MapIo;
use super::connections::{Connections, reported};
use super::error::VolumeError;
use super::extent::ExtentEntry;
#[cfg(test)]
use super::life::Mutation;
use super::membership::Membership;
use super::pieces::ExtentRange;
use super::record_io::RecordIo;
use super::replica::Replica;
use super::state::Core;
use super::users::UserId;
use crate::names::{Generation, StoreNumber};
use crate::record::VolumeRecord;
use crate::replica::connect::{Connection, ConnectionError};

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

/// Sends one change to all copies.
#[derive(Clone, Copy)]
pub(super) struct Spread<'a> {
    core: &'a Rc<Core>,
}

impl<'a> Spread<'a> {
    pub fn of(core: &'a Rc<Core>) -> Spread<'a> {
        Spread { core }
    }

    /// Sends a change to all copies of one object. Once some copies may have it, it is tried for as long as a request may take.
    /// If its range were free meanwhile a client might read it and write something else. The next try would undo that write.
    pub(super) async fn spread(
        self,
        placed: &Rc<ExtentEntry>,
        piece: ExtentRange,
        data: Option<View>,
    ) -> Result<Tried, VolumeError> {
        let deadline = env::now() + self.core.settings.deadline;
        let (mut indeterminate, mut tries) = (0, 0);
        loop {
            let tried = self.try_to_spread(placed, piece, data.clone(), indeterminate > 0);
            let tried = tried.await;
            #[cfg(test)]
            if self.core.mutated(Mutation::FreeRange)
                && let Ok(Tried::Indeterminate(error) | Tried::TooFew(error)) = tried
            {
                return Ok(Tried::Again(error));
            }
            let error = match tried {
                Ok(done @ (Tried::Done | Tried::TooFew(_))) => {
                    (0..indeterminate)
                        .for_each(|_| self.core.extents.remove_unreconciled(piece.index));
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
            let there = self.core.extents.placed(piece.index);
            let given_up = there.is_none_or(|it| !Rc::ptr_eq(&it, placed));
            if indeterminate == 0 || given_up {
                return Ok(Tried::Again(error));
            }
            if self.core.is_late(deadline, &error) {
                return Ok(Tried::GivenUp(error));
            }
            self.core.pause(&mut tries).await;
        }
    }

    /// The node that opens the volume must know how few copies there may be. Of a new extent that is asked behind all
    /// changes of the record under way: they counted without it.
    pub(super) async fn count_copies(self, placed: &ExtentEntry) -> Result<(), VolumeError> {
        let fewer = |record: &VolumeRecord| placed.in_sync(&record.out) < record.redundancy_floor;
        if !placed.uncounted.get() && !fewer(&self.core.record.volume.borrow().0) {
            return Ok(());
        }
        RecordIo::of(self.core)
            .change_record(|record| {
                let fewer = fewer(record);
                let count = placed.in_sync(&record.out).max(1);
                record.redundancy_floor = record.redundancy_floor.min(count);
                Ok(fewer && count < self.core.record.volume.borrow().0.redundancy_floor)
            })
            .await?;
        placed.uncounted.set(false);
        Ok(())
    }

    /// Once. `begun`: some copies may have it, so that all must get it, however few they are.
    async fn try_to_spread(
        self,
        placed: &Rc<ExtentEntry>,
        piece: ExtentRange,
        data: Option<View>,
        begun: bool,
    ) -> Result<Tried, VolumeError> {
        let least = self.core.record.volume.borrow().0.min_isr;
        let numbers = placed.stores.borrow().clone();
        let needed = self.core.replicas.needed(&numbers);
        if needed.len() < usize::from(least) && !begun {
            if placed.unacknowledged.get() {
                // Others may do.
                MapIo::of(self.core).forget(piece.index, placed).await?;
            }
            return Ok(Tried::Again(self.read_only(needed.len())));
        }
        let under_way = self.core.begin();
        let followers = numbers
            .iter()
            .filter_map(|one| self.core.replicas.get(*one));
        let followers: Vec<&Replica> = followers
            .filter(|it| !it.is_needed() && it.synced.borrow().contains(&piece.index))
            .collect();
        let all = needed.iter().chain(&followers);
        let (stamp, unacknowledged) = (under_way.stamp(), placed.unacknowledged.get());
        let sent =
            all.map(|replica| self.send(replica, placed, piece, &data, stamp, unacknowledged));
        let mut answers = join_all(sent.collect::<Vec<_>>()).await;
        if let Some(why) = answers.iter().find_map(fenced) {
            return Err(self.core.fence(why));
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
        self,
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
        self.core.add_unreconciled(piece.index);
        if placed.unacknowledged.get() && full {
            // No client had an answer, and none read it: it begins anew where there is room.
            for (replica, _) in &failed {
                replica.free.set(Bytes(0));
            }
            MapIo::of(self.core).forget(piece.index, placed).await?;
            self.core.extents.remove_unreconciled(piece.index);
            let (volume, why) = (self.core.id, why.to_string());
            return Ok(Tried::Again(VolumeError::NoRoom { volume, why }));
        }
        let out = match done {
            0 => Ok(false),
            _ => Membership::of(self.core).shrink_set(&numbers).await,
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
                self.core.extents.remove_unreconciled(piece.index);
                let volume = self.core.id;
                return Err(VolumeError::NoRoom { volume, why });
            }
            return match RecordIo::of(self.core).renew().await {
                Err(error) if !error.passes() => Err(error),
                _ => Ok(Tried::Indeterminate(self.core.no_copy(piece.index, why))),
            };
        }
        // Every in-sync store has it.
        self.core.extents.remove_unreconciled(piece.index);
        placed.unacknowledged.set(false);
        let least = self.core.record.volume.borrow().0.min_isr;
        Ok(match done < usize::from(least) {
            true => Tried::TooFew(self.read_only(done)),
            false => Tried::Done,
        })
    }

    fn read_only(self, copies: usize) -> VolumeError {
        let record = &self.core.record.volume.borrow().0;
        VolumeError::ReadOnly {
            volume: self.core.id,
            copies,
            least: record.min_isr,
            out: self.core.replicas.labels(record.out.keys()),
        }
    }

    /// One copy's part of a change; what a user's connection surely did not do goes on the volume's.
    async fn send(
        self,
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
        self,
        replica: &Replica,
        placed: &ExtentEntry,
        piece: ExtentRange,
        data: &Option<View>,
        stamp: Generation,
        unacknowledged: bool,
    ) -> Result<(), ConnectionError> {
        let Some(connection) = Connections::of(self.core).connection_of(replica, piece.user) else {
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
                let request = self.core.request(Op::Write, piece.len, piece.user);
                let at = place_of(&placed.object, piece.from);
                let write = async {
                    let begun = env::now();
                    let write = connection.write(&placed.object, piece.from, data.clone(), change);
                    let wrote = self.core.within(write).await;
                    wrote.map(|()| reported((), begun, &connection))
                };
                replica.takes(piece.len);
                let copy = replica.candidate(Some(at));
                self.core.choice.one(&request, copy, write).await
            }
            None => {
                let zeroed = zeroed(&connection, placed, piece, change);
                self.core.within(zeroed).await
            }
        };
        if let Err(error) = &answer
            && error.ends_connection()
        {
            let tainted = error.is_indeterminate();
            #[cfg(test)]
            let tainted = tainted
                && (piece.user == UserId::OWN || !self.core.mutated(Mutation::UntaintedByClients));
            replica.lose(&connection, tainted);
        }
        answer
    }
}

/// Why a store says that another writer has the volume, if it does.
fn fenced(answer: &Result<(), ConnectionError>) -> Option<String> {
    match answer {
        Err(ConnectionError::Fenced { why, .. }) => Some(why.clone()),
        _ => None,
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
