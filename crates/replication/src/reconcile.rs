//! Copies of an extent may differ: how do they become equal again?
//!
//! ```text
//! begin -> all needed stores have connections        -> Look -> one has the object  -> Equalize -> all are as it is     -> Over(Equal)
//!          some have none -> Shrink -> they are out  -> Look    none has            -> Over(NoneHasIt)
//!                                                                                  some could not -> Shrink -> they are out -> Over(Equal)
//! what cannot be done now -> Renew -> Over(NotNow)
//! ```
//!
//! The range of the extent is the caller's alone from `begin` to the end.
//!
//! Always true:
//! 1. A copy that others are made from was in sync: every change that was answered is in it.
//! 2. That no store has the object is only known when every needed store was asked.
//! 3. No store leaves the in-sync set for what is wrong with the source.

use crate::extent::Copies;
use crate::names::StoreNumber;
use crate::state::Replication;

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Step {
    /// Take these stores out of the in-sync set, in the record: [`Reconcile::shrunk`].
    Shrink(Vec<StoreNumber>),
    /// Find the first of these stores that has a whole copy: [`Reconcile::found`].
    Look(Vec<StoreNumber>),
    /// Make the copies at all stores that were looked at what the source's is, and give all of them one stamp:
    /// [`Reconcile::equalized`].
    Equalize,
    /// Give stores with indeterminate changes greater tokens: [`Reconcile::renewed`].
    Renew,
    /// It is over.
    Over(Ended),
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ended {
    /// The copies are equal.
    Equal,
    /// No store has the object, so no change of it was acknowledged.
    NoneHasIt,
    /// Not now: it is tried again.
    NotNow,
}

/// Where it stands.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Stage {
    Begun,
    ShrinkingUnlinked,
    Looking,
    Equalizing,
    ShrinkingFailed,
    Renewing,
    Over,
}

/// See the module's head.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Reconcile {
    index: u32,
    /// Stores whose copies are to be equal.
    linked: Vec<StoreNumber>,
    /// Stores that could not be asked when it began.
    unlinked: Vec<StoreNumber>,
    stage: Stage,
}

impl Reconcile {
    /// Of this extent.
    pub fn new(index: u32) -> Reconcile {
        Reconcile {
            index,
            linked: Vec::new(),
            unlinked: Vec::new(),
            stage: Stage::Begun,
        }
    }

    /// Needed stores that had no connection when it began.
    pub fn unlinked(&self) -> &[StoreNumber] {
        &self.unlinked
    }

    /// With the copies as they are now.
    pub fn begin<C: Clone>(&mut self, volume: &mut Replication<C>, copies: &Copies) -> Step {
        assert_eq!(self.stage, Stage::Begun);
        // A store that is out must have this resynced again before it joins.
        volume.lack(&copies.stores, self.index);
        let is_linked = |store: &StoreNumber| volume.connection(*store).is_some();
        let needed = volume.needed(&copies.stores).into_iter();
        (self.linked, self.unlinked) = needed.partition(is_linked);
        match self.unlinked.is_empty() {
            true => self.look(volume),
            false if self.linked.is_empty() => self.renew(),
            false => {
                self.stage = Stage::ShrinkingUnlinked;
                Step::Shrink(self.unlinked.clone())
            }
        }
    }

    fn look<C: Clone>(&mut self, volume: &Replication<C>) -> Step {
        let counts =
            |store: &StoreNumber| volume.is_needed(*store) && volume.connection(*store).is_some();
        if self.linked.is_empty() || !self.linked.iter().all(counts) {
            // A store that could not be asked may have it: that none does is only known when all were.
            return self.renew();
        }
        self.stage = Stage::Looking;
        Step::Look(self.linked.clone())
    }

    /// The stores are out by the record, or (`false`) one of them has the last in-sync copy of something.
    pub fn shrunk<C: Clone>(&mut self, out: bool, volume: &Replication<C>) -> Step {
        match (&self.stage, out) {
            (Stage::ShrinkingUnlinked, true) => self.look(volume),
            (Stage::ShrinkingFailed, true) => self.over(Ended::Equal),
            (Stage::ShrinkingUnlinked | Stage::ShrinkingFailed, false) => self.renew(),
            _ => panic!("no store was to leave: {self:?}"),
        }
    }

    /// A store has a whole copy, or none of them has.
    pub fn found(&mut self, has: bool, copies: &mut Copies) -> Step {
        assert_eq!(self.stage, Stage::Looking);
        // From here on it may be read, or its first change makes it on all stores. Where none has it its bit stays.
        copies.unacknowledged = !has;
        if !has {
            return self.over(Ended::NoneHasIt);
        }
        self.stage = Stage::Equalizing;
        Step::Equalize
    }

    /// All copies are equal but those of `failed`; `None`: the source could not be read.
    pub fn equalized(&mut self, failed: Option<Vec<StoreNumber>>) -> Step {
        assert_eq!(self.stage, Stage::Equalizing);
        match failed {
            Some(failed) if failed.is_empty() => self.over(Ended::Equal),
            Some(failed) if failed.len() < self.linked.len() => {
                self.stage = Stage::ShrinkingFailed;
                Step::Shrink(failed)
            }
            _ => self.renew(),
        }
    }

    /// Stores with indeterminate changes have greater tokens.
    pub fn renewed(&mut self) -> Step {
        assert_eq!(self.stage, Stage::Renewing);
        self.over(Ended::NotNow)
    }

    fn renew(&mut self) -> Step {
        self.stage = Stage::Renewing;
        Step::Renew
    }

    fn over(&mut self, ended: Ended) -> Step {
        self.stage = Stage::Over;
        Step::Over(ended)
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

    /// A volume with connections to these stores.
    fn volume(linked: &[StoreNumber]) -> Replication<u8> {
        let name = "v".parse().unwrap();
        let record = VolumeRecord::new(VolumeId(1), name, 2, 1, ImageId(1));
        let mut volume = Replication::new(record, Revision(1), Generation(0));
        for store in [ONE, TWO] {
            volume.add_store(store, Generation(1));
        }
        for store in linked {
            volume.replicas.get_mut(store).unwrap().connect(0);
        }
        volume
    }

    #[test]
    fn a_store_without_a_connection_leaves_before_the_others_are_looked_at() {
        let (mut volume, mut copies) = (volume(&[ONE]), Copies::new(vec![ONE, TWO], true));
        let mut equal = Reconcile::new(3);
        assert_eq!(equal.begin(&mut volume, &copies), Step::Shrink(vec![TWO]));
        volume.leave(TWO);
        assert_eq!(equal.shrunk(true, &volume), Step::Look(vec![ONE]));
        assert_eq!(equal.found(true, &mut copies), Step::Equalize);
        assert!(!copies.unacknowledged);
        assert_eq!(equal.equalized(Some(vec![])), Step::Over(Ended::Equal));
    }

    #[test]
    fn a_store_that_left_meanwhile_is_not_looked_at() {
        let (mut volume, copies) = (volume(&[ONE]), Copies::new(vec![ONE, TWO], false));
        let mut equal = Reconcile::new(3);
        assert_eq!(equal.begin(&mut volume, &copies), Step::Shrink(vec![TWO]));
        // It has a connection again, for its resync.
        volume.leave(ONE);
        volume.replicas.get_mut(&ONE).unwrap().connect(1);
        assert_eq!(equal.shrunk(true, &volume), Step::Renew);
    }

    #[test]
    fn that_none_has_it_is_not_known_while_one_cannot_be_asked() {
        let (mut volume, copies) = (volume(&[]), Copies::new(vec![ONE, TWO], false));
        let mut equal = Reconcile::new(3);
        assert_eq!(equal.begin(&mut volume, &copies), Step::Renew);
        assert_eq!(equal.unlinked(), [ONE, TWO]);
        assert_eq!(equal.renewed(), Step::Over(Ended::NotNow));
    }

    #[test]
    fn what_no_store_has_is_made_by_its_first_change() {
        let (mut volume, mut copies) = (volume(&[ONE, TWO]), Copies::new(vec![ONE, TWO], false));
        let mut equal = Reconcile::new(3);
        assert_eq!(
            equal.begin(&mut volume, &copies),
            Step::Look(vec![ONE, TWO])
        );
        assert_eq!(
            equal.found(false, &mut copies),
            Step::Over(Ended::NoneHasIt)
        );
        assert!(copies.unacknowledged);
    }

    #[test]
    fn no_store_leaves_for_a_source_that_cannot_be_read() {
        let (mut volume, mut copies) = (volume(&[ONE, TWO]), Copies::new(vec![ONE, TWO], false));
        let mut equal = Reconcile::new(3);
        equal.begin(&mut volume, &copies);
        equal.found(true, &mut copies);
        assert_eq!(equal.clone().equalized(None), Step::Renew);
        assert_eq!(equal.equalized(Some(vec![TWO])), Step::Shrink(vec![TWO]));
        assert_eq!(equal.shrunk(false, &volume), Step::Renew);
    }
}
