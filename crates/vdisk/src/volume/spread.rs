//! One change of one extent, sent to all its copies.
//!
//! ```text
//! a step -> connections, the record -> what became of it -> the next step ... -> Tried
//! ```
//!
//! [`replication::spread`] decides what is to be done, in which order, and when a change is done.
//!
//! Always true:
//! 1. A piece that was sent and not answered leaves its extent unreconciled before its range is given up.
//! 2. What a user's connection surely did not do goes on the volume's.

use std::collections::BTreeMap;
use std::rc::Rc;

use base::{Bytes, View};
use env::sync::join_all;
use policy::place::Op;
use replication::spread::{self, Answer, Step};
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

/// A store that did not take a change, and why.
type Failure = (StoreNumber, ConnectionError);

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
        let mut change = spread::Spread::new(piece.index);
        let mut tries = 0;
        loop {
            let begun_before = change.is_begun();
            let tried = self.attempt(&mut change, placed, piece, &data).await;
            #[cfg(test)]
            if self.core.mutated(Mutation::FreeRange)
                && let Ok(Tried::Indeterminate(error) | Tried::TooFew(error)) = tried
            {
                return Ok(Tried::Again(error));
            }
            let error = match tried {
                Ok(done @ (Tried::Done | Tried::TooFew(_))) => return Ok(done),
                Ok(Tried::Indeterminate(why) | Tried::Again(why) | Tried::GivenUp(why)) => why,
                Err(error) if begun_before && error.passes() => error,
                Err(error) => return Err(error),
            };
            let there = self.core.extents.placed(piece.index);
            let given_up = there.is_none_or(|it| !Rc::ptr_eq(&it, placed));
            if !change.is_begun() || given_up {
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
        if !placed.copies.borrow().uncounted && !fewer(&self.core.volume_record()) {
            return Ok(());
        }
        RecordIo::of(self.core)
            .change_record(|record| {
                let fewer = fewer(record);
                let count = placed.in_sync(&record.out).max(1);
                record.redundancy_floor = record.redundancy_floor.min(count);
                Ok(fewer && count < self.core.volume_record().redundancy_floor)
            })
            .await?;
        placed.copies.borrow_mut().uncounted = false;
        Ok(())
    }

    /// One attempt: carries out each step of it, until it is over.
    async fn attempt(
        self,
        change: &mut spread::Spread,
        placed: &Rc<ExtentEntry>,
        piece: ExtentRange,
        data: &Option<View>,
    ) -> Result<Tried, VolumeError> {
        let core = self.core;
        let copies = &placed.copies;
        let mut step = change.attempt(&core.replication.borrow(), &copies.borrow());
        let mut failed = Vec::new();
        let mut unknown = None;
        // Until the attempt is over: a store that leaves for it is out since before it.
        let mut under_way = None;
        loop {
            step = match step {
                Step::Send(stores) => {
                    let stamp = under_way.insert(core.begin()).stamp();
                    let answers = self.send_all(&stores, placed, piece, data, stamp).await;
                    self.answered(change, placed, answers, &mut failed)?
                }
                Step::Forget => {
                    self.note_full(&failed, None);
                    let gone = MapIo::of(core).forget(piece.index, placed).await;
                    let next = change.forgotten(gone.is_ok(), &mut core.replication.borrow_mut());
                    gone.map(|()| next)?
                }
                Step::Shrink(stores) => {
                    let shrunk = Membership::of(core).shrink_set(&stores).await;
                    self.note_full(&failed, Some(matches!(shrunk, Ok(true))));
                    let out = match shrunk {
                        Err(error) if error.passes() => {
                            unknown = Some(error);
                            None
                        }
                        other => Some(other?),
                    };
                    let replication = &mut core.replication.borrow_mut();
                    change.shrunk(out, replication, &mut copies.borrow_mut())
                }
                Step::Renew => {
                    self.note_full(&failed, Some(false));
                    match RecordIo::of(core).renew().await {
                        Err(error) if !error.passes() => return Err(error),
                        _ => change.renewed(),
                    }
                }
                Step::Over(tried) => return self.over(tried, piece, &failed, unknown),
            }
        }
    }

    /// What all stores of a step answered; none of it counts if one of them says that another writer has the volume.
    fn answered(
        self,
        change: &mut spread::Spread,
        placed: &ExtentEntry,
        answers: Vec<(StoreNumber, Result<(), ConnectionError>)>,
        failed: &mut Vec<Failure>,
    ) -> Result<Step, VolumeError> {
        if let Some(why) = answers.iter().find_map(|(_, answer)| fenced(answer)) {
            return Err(self.core.fence(why));
        }
        let stored = answers.iter().map(|(_, answer)| match answer {
            Ok(()) => Answer::Taken,
            Err(ConnectionError::Full(_)) => Answer::Full,
            Err(_) => Answer::Missed,
        });
        let stored: Vec<Answer> = stored.collect();
        let replication = &mut self.core.replication.borrow_mut();
        let copies = &mut placed.copies.borrow_mut();
        let (missed, step) = change.answered(&stored, replication, copies);
        let mut errors: BTreeMap<StoreNumber, ConnectionError> = answers
            .into_iter()
            .filter_map(|(store, answer)| Some((store, answer.err()?)))
            .collect();
        failed.extend(missed.iter().filter_map(|store| errors.remove_entry(store)));
        if !failed.is_empty() {
            self.forget_blocks(placed.name.index);
        }
        Ok(step)
    }

    /// Copies of an overlay may differ: which blocks it has is looked for again.
    fn forget_blocks(self, index: u32) {
        #[cfg(test)]
        if self.core.mutated(Mutation::StaleBlocks) {
            return;
        }
        if let Some(placed) = self.core.extents.placed(index) {
            placed.blocks.forget();
        }
    }

    /// Of stores that have no room nothing new is asked; if they are `out`, or are not, for that reason, that is remembered.
    fn note_full(self, failed: &[Failure], out: Option<bool>) {
        let full = failed.iter().filter(|(_, why)| is_full(why));
        for replica in full.filter_map(|(store, _)| self.core.replicas.get(*store)) {
            replica.free.set(Bytes(0));
            if let Some(out) = out {
                replica.was_full.set(out);
            }
        }
    }

    /// What became of an attempt, in words.
    fn over(
        self,
        tried: spread::Tried,
        piece: ExtentRange,
        failed: &[Failure],
        unknown: Option<VolumeError>,
    ) -> Result<Tried, VolumeError> {
        let core = self.core;
        let no_room = || VolumeError::NoRoom {
            volume: core.id,
            why: failed[0].1.to_string(),
        };
        Ok(match tried {
            spread::Tried::Done => Tried::Done,
            spread::Tried::TooFew(copies) => Tried::TooFew(self.read_only(copies)),
            spread::Tried::NotSent(copies) => Tried::Again(self.read_only(copies)),
            spread::Tried::FullWhereNew => Tried::Again(no_room()),
            spread::Tried::Full => {
                self.note_full(failed, Some(false));
                return Err(no_room());
            }
            spread::Tried::Indeterminate => {
                let no_copy = || core.no_copy(piece.index, &failed[0].1);
                Tried::Indeterminate(unknown.unwrap_or_else(no_copy))
            }
        })
    }

    fn read_only(self, copies: usize) -> VolumeError {
        let record = &self.core.volume_record();
        VolumeError::ReadOnly {
            volume: self.core.id,
            copies,
            least: record.terms.min_isr,
            out: self.core.replicas.labels(record.out.keys()),
        }
    }

    /// Each store's part of a change, all at once.
    async fn send_all(
        self,
        stores: &[StoreNumber],
        placed: &ExtentEntry,
        piece: ExtentRange,
        data: &Option<View>,
        stamp: Generation,
    ) -> Vec<(StoreNumber, Result<(), ConnectionError>)> {
        let unacknowledged = placed.is_unacknowledged();
        let replicas = stores.iter().map(|store| {
            let replica = self.core.replicas.get(*store);
            replica.expect("each store is a replica")
        });
        let sent =
            replicas.map(|replica| self.send(replica, placed, piece, data, stamp, unacknowledged));
        let answers = join_all(sent.collect::<Vec<_>>()).await;
        stores.iter().copied().zip(answers).collect()
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

fn is_full(why: &ConnectionError) -> bool {
    matches!(why, ConnectionError::Full(_))
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
