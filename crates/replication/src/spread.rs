//! One change of one object, sent to all its copies: when is it done, and what is to be done until then?
//!
//! ```text
//! attempt -> Send      all needed stores at once, and those that follow
//!   all have it                          -> Over(Done)       fewer than must                     -> Over(TooFew)
//!   some have not                        -> Shrink -> they are out, by compare-and-swap           -> Over(Done)
//!                                                     one of them has the last copy of something -> Renew -> Over(Indeterminate)
//!   none has                             -> Renew -> Over(Indeterminate)
//!   none has room, none may have it      -> Over(Full)
//! ```
//!
//! After [`Tried::Indeterminate`] the same bytes are sent in the next attempt, to however few stores are needed then. The extent stays
//! unreconciled until an attempt is done, or, if there is none any more, until its copies were made equal.
//!
//! Always true:
//! 1. A store that did not take a change is out, in the record, before the change is done.
//! 2. What was sent and is not done leaves its extent unreconciled.
//! 3. No store leaves for a change that none of them took.

use crate::extent::Copies;
use crate::names::StoreNumber;
use crate::state::Replication;

/// What a store answered to its part of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Answer {
    /// It is durable there.
    Taken,
    /// There is no room for it, and nothing was changed.
    Full,
    /// It is not done, or may not be.
    Missed,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Step {
    /// Send the change to these stores, under one stamp that is under way until the attempt is over: [`Spread::answered`].
    Send(Vec<StoreNumber>),
    /// Take the extent from the map: no client saw anything of it: [`Spread::forgotten`].
    Forget,
    /// Take these stores out of the in-sync set, in the record: [`Spread::shrunk`].
    Shrink(Vec<StoreNumber>),
    /// Give stores with indeterminate changes greater tokens: [`Spread::renewed`].
    Renew,
    /// The attempt is over.
    Over(Tried),
}

/// What became of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tried {
    /// Every in-sync copy has the change.
    Done,
    /// So have they, but they are so many, and must be more.
    TooFew(usize),
    /// Nothing was sent: so many stores could be, and must be more.
    NotSent(usize),
    /// No copy has it, and there is no room for it.
    Full,
    /// The same of a new extent, which was forgotten: others may have room.
    FullWhereNew,
    /// Some copies may have it.
    Indeterminate,
}

/// Where an attempt stands.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Stage {
    Idle,
    Sent { needed: usize },
    Shrinking { took: usize, all_full: bool },
    Renewing,
    Forgetting(Tried),
}

/// A change of one object; see the module's head.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Spread {
    index: u32,
    /// Some copies may have it, by an attempt before or by this one: the extent is unreconciled for it.
    begun: bool,
    begun_before: bool,
    /// To whom it was sent.
    sent: Vec<StoreNumber>,
    stage: Stage,
}

impl Spread {
    /// A change of this extent, of which nothing was sent yet.
    pub fn new(index: u32) -> Spread {
        Spread {
            index,
            begun: false,
            begun_before: false,
            sent: Vec::new(),
            stage: Stage::Idle,
        }
    }

    /// May some copies have it?
    pub fn is_begun(&self) -> bool {
        self.begun
    }

    /// It is tried, once more if it was before.
    pub fn attempt<C: Clone>(&mut self, volume: &Replication<C>, copies: &Copies) -> Step {
        assert_eq!(self.stage, Stage::Idle, "one attempt at a time");
        self.begun_before = self.begun;
        let mut sent = volume.needed(&copies.stores);
        let needed = sent.len();
        let must = usize::from(volume.record.get().terms.min_isr);
        if needed < must && !self.begun {
            let tried = Tried::NotSent(needed);
            if !copies.unacknowledged {
                return Step::Over(tried);
            }
            // Others may do.
            self.stage = Stage::Forgetting(tried);
            return Step::Forget;
        }
        sent.extend(volume.followers(&copies.stores, self.index));
        self.sent.clone_from(&sent);
        self.stage = Stage::Sent { needed };
        Step::Send(sent)
    }

    /// All stores answered, or are awaited no more: `answers` in the order in which [`Step::Send`] named them. Answers also the stores
    /// that must have the change and do not.
    pub fn answered<C: Clone>(
        &mut self,
        answers: &[Answer],
        volume: &mut Replication<C>,
        copies: &mut Copies,
    ) -> (Vec<StoreNumber>, Step) {
        let Stage::Sent { needed } = self.stage else {
            panic!("answers to nothing that was sent: {self:?}");
        };
        assert_eq!(answers.len(), self.sent.len(), "each store answered");
        let missed = |from: usize, to: usize| {
            let all = self.sent[from..to].iter().zip(&answers[from..to]);
            all.filter(|(_, answer)| **answer != Answer::Taken)
                .map(|(store, answer)| (*store, *answer))
        };
        let mut failed = Vec::new();
        for (store, answer) in missed(needed, answers.len()) {
            volume.lack(&[store], self.index);
            // It may have begun to join since this was sent: then it needs this as any other.
            if volume.is_needed(store) {
                failed.push((store, answer));
            }
        }
        let of_needed: Vec<_> = missed(0, needed).collect();
        let took = needed - of_needed.len();
        failed.extend(of_needed);
        if failed.is_empty() {
            return (Vec::new(), self.done(took, volume, copies));
        }
        // From here on no client reads it before the copies are equal, however this ends.
        if !self.begun {
            volume.unreconciled.add(self.index);
            self.begun = true;
        }
        let all_full = failed.iter().all(|(_, answer)| *answer == Answer::Full);
        let failed: Vec<StoreNumber> = failed.into_iter().map(|(store, _)| store).collect();
        if copies.unacknowledged && all_full {
            // No client had an answer, and none read it: it begins anew where there is room.
            self.stage = Stage::Forgetting(Tried::FullWhereNew);
            return (failed, Step::Forget);
        }
        self.stage = Stage::Shrinking { took, all_full };
        let step = match took {
            0 => self.shrunk(Some(false), volume, copies),
            _ => Step::Shrink(failed.clone()),
        };
        (failed, step)
    }

    /// The extent is not in the map any more, or (`gone` false) may still be there.
    pub fn forgotten<C: Clone>(&mut self, gone: bool, volume: &mut Replication<C>) -> Step {
        let Stage::Forgetting(tried) = self.stage else {
            panic!("nothing was to be forgotten: {self:?}");
        };
        if !gone {
            return self.over(Tried::Indeterminate);
        }
        if tried == Tried::FullWhereNew {
            self.as_before(volume);
        }
        self.over(tried)
    }

    /// The stores are out by the record, or (`false`) cannot be, since one of them has the last in-sync copy of something; `None`:
    /// whether they are is not known.
    pub fn shrunk<C: Clone>(
        &mut self,
        out: Option<bool>,
        volume: &mut Replication<C>,
        copies: &mut Copies,
    ) -> Step {
        let Stage::Shrinking { took, all_full } = self.stage else {
            panic!("no store was to leave: {self:?}");
        };
        match out {
            None => self.over(Tried::Indeterminate),
            // Every in-sync store has it.
            Some(true) => self.done(took, volume, copies),
            Some(false) if took == 0 && all_full => {
                self.as_before(volume);
                self.over(Tried::Full)
            }
            Some(false) => {
                self.stage = Stage::Renewing;
                Step::Renew
            }
        }
    }

    /// Stores with indeterminate changes have greater tokens, or will get them.
    pub fn renewed(&mut self) -> Step {
        assert_eq!(self.stage, Stage::Renewing, "no tokens were asked for");
        self.over(Tried::Indeterminate)
    }

    fn done<C: Clone>(
        &mut self,
        took: usize,
        volume: &mut Replication<C>,
        copies: &mut Copies,
    ) -> Step {
        copies.unacknowledged = false;
        if std::mem::take(&mut self.begun) {
            volume.unreconciled.remove(self.index);
        }
        let must = usize::from(volume.record.get().terms.min_isr);
        self.over(match took < must {
            true => Tried::TooFew(took),
            false => Tried::Done,
        })
    }

    /// This attempt changed nothing anywhere.
    fn as_before<C: Clone>(&mut self, volume: &mut Replication<C>) {
        if self.begun && !self.begun_before {
            volume.unreconciled.remove(self.index);
            self.begun = false;
        }
    }

    fn over(&mut self, tried: Tried) -> Step {
        self.stage = Stage::Idle;
        self.sent.clear();
        Step::Over(tried)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{Generation, ImageId, VolumeId};
    use crate::record::VolumeRecord;
    use crate::swap::Revision;

    const ONE: StoreNumber = StoreNumber(1);
    const TWO: StoreNumber = StoreNumber(2);

    fn volume(min_isr: u8) -> Replication<u8> {
        let name = "v".parse().unwrap();
        let record = VolumeRecord::new(VolumeId(1), name, 2, min_isr, ImageId(1));
        let mut volume = Replication::new(record, Revision(1), Generation(0));
        for store in [ONE, TWO] {
            volume.add_store(store, Generation(1));
        }
        volume
    }

    fn sent(volume: &Replication<u8>, copies: &Copies) -> Spread {
        let mut change = Spread::new(3);
        let step = change.attempt(volume, copies);
        assert_eq!(step, Step::Send(vec![ONE, TWO]));
        change
    }

    #[test]
    fn a_store_that_missed_a_change_leaves_before_it_is_done() {
        let (mut volume, mut copies) = (volume(2), Copies::new(vec![ONE, TWO], true));
        let mut change = sent(&volume, &copies);
        let answers = [Answer::Taken, Answer::Missed];
        let (_, step) = change.answered(&answers, &mut volume, &mut copies);
        assert_eq!(step, Step::Shrink(vec![TWO]));
        assert!(volume.unreconciled.contains(3) && copies.unacknowledged);
        let step = change.shrunk(Some(true), &mut volume, &mut copies);
        assert_eq!(step, Step::Over(Tried::TooFew(1)));
        assert!(volume.unreconciled.is_empty() && !copies.unacknowledged);
    }

    #[test]
    fn what_no_store_took_is_sent_again_and_its_extent_stays_unreconciled() {
        let (mut volume, mut copies) = (volume(1), Copies::new(vec![ONE, TWO], false));
        let mut change = sent(&volume, &copies);
        let missed = [Answer::Missed; 2];
        let (_, step) = change.answered(&missed, &mut volume, &mut copies);
        assert_eq!(step, Step::Renew);
        assert_eq!(change.renewed(), Step::Over(Tried::Indeterminate));
        assert!(change.is_begun() && volume.unreconciled.contains(3));
        assert_eq!(change.attempt(&volume, &copies), Step::Send(vec![ONE, TWO]));
        let taken = [Answer::Taken; 2];
        let (_, step) = change.answered(&taken, &mut volume, &mut copies);
        assert_eq!(step, Step::Over(Tried::Done));
        assert!(volume.unreconciled.is_empty());
    }

    #[test]
    fn a_new_extent_for_which_no_store_has_room_is_forgotten() {
        let (mut volume, mut copies) = (volume(1), Copies::new(vec![ONE, TWO], true));
        let mut change = sent(&volume, &copies);
        let full = [Answer::Full; 2];
        let (_, step) = change.answered(&full, &mut volume, &mut copies);
        assert_eq!(step, Step::Forget);
        let step = change.forgotten(true, &mut volume);
        assert_eq!(step, Step::Over(Tried::FullWhereNew));
        assert!(!change.is_begun() && volume.unreconciled.is_empty());
    }

    #[test]
    fn an_extent_that_could_not_be_forgotten_is_tried_again() {
        let (mut volume, mut copies) = (volume(1), Copies::new(vec![ONE, TWO], true));
        let mut change = sent(&volume, &copies);
        let one_missed = [Answer::Missed, Answer::Full];
        let (failed, step) = change.answered(&one_missed, &mut volume, &mut copies);
        assert_eq!((failed, step), (vec![ONE, TWO], Step::Renew));
        assert_eq!(change.renewed(), Step::Over(Tried::Indeterminate));
        change.attempt(&volume, &copies);
        let (_, step) = change.answered(&[Answer::Full; 2], &mut volume, &mut copies);
        assert_eq!(step, Step::Forget);
        let step = change.forgotten(false, &mut volume);
        assert_eq!(step, Step::Over(Tried::Indeterminate));
        assert_eq!(change.attempt(&volume, &copies), Step::Send(vec![ONE, TWO]));
        assert!(volume.unreconciled.contains(3));
    }

    #[test]
    fn nothing_is_sent_to_fewer_stores_than_must_have_it() {
        let (mut volume, copies) = (volume(2), Copies::new(vec![ONE, TWO], false));
        volume.leave(TWO);
        let step = Spread::new(3).attempt(&volume, &copies);
        assert_eq!(step, Step::Over(Tried::NotSent(1)));
    }

    #[test]
    fn a_store_that_follows_and_misses_a_change_is_resynced_again() {
        let (mut volume, mut copies) = (volume(1), Copies::new(vec![ONE, TWO], false));
        volume.leave(TWO);
        volume.replicas.get_mut(&TWO).unwrap().resynced(3, []);
        let mut change = sent(&volume, &copies);
        assert_eq!(change.stage, Stage::Sent { needed: 1 });
        let answers = [Answer::Taken, Answer::Missed];
        let (_, step) = change.answered(&answers, &mut volume, &mut copies);
        assert_eq!(step, Step::Over(Tried::Done));
        assert!(volume.replicas[&TWO].synced.is_empty());
    }
}
