//! Background work: extents reconciled, bits cleared, as many copies of each extent as configured.
//!
//! ```text
//! too few  -> extent alone -> one more copy, named when it is whole -> counted when a root with it is in the meta store
//! too many -> extent alone -> one is not counted any more -> freed with the root that leaves it out
//! ```
//!
//! Always true:
//! 1. A store that loses a copy does not join before the meta store has a map without it.
//! 2. One extent that nothing can be done about keeps neither the others waiting, nor the closing of the volume.

use std::cell::Cell;
use std::rc::Rc;

use env::sync::join_all;
use store::Change;

use super::members::{Member, Standing};
use super::mend::{Copy, Halt, marked, marked_none};
use super::{Core, Placed, VolumeError};
use crate::link::LinkError;
use crate::names::{COPIES_MAX, EXTENT, Generation, StoreNumber};

/// Extents re-replicated at a time, when it takes long.
const EVENING_MAX: usize = 8;

/// Unreconciled extents that are looked at before everything else goes on.
const SETTLED_MAX: usize = 16;

/// A store loses a copy: until the meta store has a map without it, the store does not join.
pub(super) struct Leaving<'a>(&'a Member);

impl Leaving<'_> {
    pub(super) fn of(member: &Member) -> Leaving<'_> {
        member.leaving.set(member.leaving.get() + 1);
        Leaving(member)
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.leaving.set(self.0.leaving.get() - 1);
    }
}

impl Core {
    /// Reconciles extents and clears what is clean, as long as the volume is open.
    pub(super) async fn keep_clean(self: Rc<Self>) {
        let mut turn = 0_u64;
        let mut from = 0;
        while self.usable().is_ok() {
            turn += 1;
            let doubtful: Vec<u32> = {
                let all = self.doubtful.borrow();
                all.range(from..)
                    .map(|it| *it.0)
                    .take(SETTLED_MAX)
                    .collect()
            };
            from = doubtful.last().map_or(0, |last| last.saturating_add(1));
            for index in &doubtful {
                // Once: what cannot be reconciled now keeps nothing else waiting.
                if let Err(error) = self.settled(*index, env::now()).await {
                    tracing::debug!(volume = %self.id, index, %error, "still unreconciled");
                }
            }
            if let Err(error) = self.clear_dirty(false).await {
                tracing::debug!(volume = %self.id, %error, "dirty bits stay");
            }
            self.ask_for_room().await;
            if let Err(error) = self.keep_kept(turn).await {
                tracing::debug!(volume = %self.id, %error, "what older images have is not known");
            }
            let filled = async {
                self.find_homes().await?;
                self.fill_up().await?;
                let (out, copies) = {
                    let record = &self.record.borrow().0;
                    (record.out.clone(), record.copies)
                };
                self.renew_thin_nodes(&out, copies).await?;
                self.tell_weakest().await
            };
            if let Err(error) = filled.await {
                tracing::debug!(volume = %self.id, %error, "extents lack copies");
            }
            env::sleep(self.settings.tick).await;
        }
    }

    /// Looks at each extent once: gives those that have too few stores another one, and takes one from those that have too
    /// many. One that takes long is gone on with beside the others.
    async fn fill_up(self: &Rc<Self>) -> Result<(), VolumeError> {
        let mut from = 0;
        while let Some(index) = self.next_uneven(from) {
            from = index + 1;
            if self.evening.borrow().len() >= EVENING_MAX {
                return Ok(());
            }
            let core = Rc::clone(self);
            self.evening.borrow_mut().insert(index);
            let task = env::spawn(async move {
                let done = core.even_out(index).await;
                core.evening.borrow_mut().remove(&index);
                done
            });
            match env::timeout(self.settings.patience, task).await {
                Ok(Err(error)) if error.passes() => {
                    tracing::debug!(volume = %self.id, index, %error, "not the copies it should have");
                }
                Ok(other) => other?,
                Err(_) => {
                    tracing::debug!(volume = %self.id, index, "its copies take long to even out");
                }
            }
        }
        Ok(())
    }

    /// The first extent from there on that has too few stores or too many.
    fn next_uneven(&self, from: u32) -> Option<u32> {
        let copies = usize::from(self.record.borrow().0.copies);
        let extents = self.extents.borrow();
        let mut all = extents.range(from..).filter(|(index, placed)| {
            let count = |it: &Rc<Placed>| it.stores.borrow().len();
            let uneven = match placed.young.get() {
                true => count(placed) < copies,
                false => placed.layers().any(|it| count(&it) != copies),
            };
            uneven && !self.is_doubtful(**index) && !self.evening.borrow().contains(*index)
        });
        all.next().map(|(index, _)| *index)
    }

    async fn even_out(&self, index: u32) -> Result<(), VolumeError> {
        let copies = usize::from(self.record.borrow().0.copies);
        let start = u64::from(index) * EXTENT;
        let _held = self.ranges.take(start..start + EXTENT, true).await;
        let Some(placed) = self.placed(index).filter(|_| !self.is_doubtful(index)) else {
            return Ok(());
        };
        if placed.young.get() {
            // Of no use, and it would count for ever: the next change makes it anew.
            let lacks = placed.stores.borrow().len() < copies;
            return match lacks {
                true => self.forget(index, &placed).await,
                false => Ok(()),
            };
        }
        for layer in placed.layers().filter(|layer| !layer.young.get()) {
            let count = layer.stores.borrow().len();
            if count > copies && !self.is_shared(&layer) {
                self.take_away(index, &placed, &layer, copies).await?;
            } else if count < copies {
                self.fill_one(index, &placed, &layer).await?;
            }
        }
        Ok(())
    }

    /// Gives one layer of an extent another copy. The extent's range is the caller's alone.
    pub(super) async fn fill_one(
        &self,
        index: u32,
        placed: &Rc<Placed>,
        layer: &Rc<Placed>,
    ) -> Result<(), VolumeError> {
        let numbers = layer.stores.borrow().clone();
        // Where one goes away another may come.
        let mut stay = numbers.clone();
        stay.retain(|one| !self.is_drained(*one));
        let Some(number) = self.choose_one(&stay) else {
            return Ok(());
        };
        let _bound = self.bound_for(&[number]);
        self.list_stores(&[number]).await?;
        let member = self.member(number).expect("chosen from the members");
        let sources: Vec<Copy<'_>> = (self.needed(&numbers).into_iter())
            .filter_map(|other| Some((other, other.link()?)))
            .collect();
        let (Some(link), Some((source, _))) = (member.link(), self.source(layer, &sources).await?)
        else {
            return Ok(());
        };
        let named = Cell::new(false);
        let shared = self.is_shared(layer);
        let object = &layer.object;
        let copied = async {
            if shared {
                let stat = self.within(source.stat(object)).await;
                let mark = stat.map_err(Halt::From)?.mark;
                let change = marked(Generation(mark), true);
                return self
                    .put_beside(layer, &source, &sources, &link, change)
                    .await;
            }
            match self.within(link.delete(object, marked_none())).await {
                Ok(()) | Err(LinkError::Absent(_)) => {}
                Err(error) => return Err(Halt::To(error)),
            }
            // Not whole, and of no account, until it has its mark.
            self.copy_behind(object, object, &source, &sources, &link)
                .await?;
            named.set(true);
            let mark = marked(self.generation(), true);
            self.within(link.stamp(object, mark))
                .await
                .map_err(Halt::To)
        };
        match copied.await {
            Ok(()) if member.standing.get() == Standing::In => {
                // A store that went out meanwhile may be in again, and had it deleted as an orphan.
                let still = || member.is_in_by(&link);
                let leaves = numbers.iter().copied().find(|one| self.is_drained(*one));
                let named = match leaves.filter(|_| numbers.len() >= COPIES_MAX) {
                    Some(leaves) => {
                        let places = (number, leaves);
                        self.take_place(index, placed, layer, places, still).await?
                    }
                    None => self.add(index, placed, layer, number, still).await?,
                };
                match named || shared {
                    true => Ok(()),
                    false => self.rid(layer, number).await,
                }
            }
            // The store left the in-sync set meanwhile: it looks through all it has when it comes back.
            Ok(()) => Ok(()),
            Err(
                Halt::From(LinkError::Fenced { why, .. }) | Halt::To(LinkError::Fenced { why, .. }),
            ) => Err(self.fence(why)),
            Err(Halt::From(error)) => {
                tracing::debug!(volume = %self.id, index, store = %self.label(number), %error, "no further copy");
                if error.ends_link() {
                    self.lose_source(&sources, &source);
                }
                // What is there is not whole: of no account.
                Ok(())
            }
            Err(Halt::To(error)) => {
                tracing::debug!(volume = %self.id, index, store = %self.label(number), %error, "no further copy");
                if error.ends_link() {
                    member.lose(&link, matches!(error, LinkError::Unknown(_)));
                }
                match named.get() {
                    true => self.rid(layer, number).await?,
                    // It is not whole, or as all others are: of no account.
                    false if error.ends_link() => {
                        if !self.put_out(&[number]).await? {
                            self.renew().await?;
                        }
                    }
                    false => {}
                }
                Ok(())
            }
        }
    }

    /// A store may have a whole copy of an extent that changes do not reach: waits until it is out or the copy gone. The
    /// extent's range is the caller's alone.
    async fn rid(&self, placed: &Placed, number: StoreNumber) -> Result<(), VolumeError> {
        let member = self.member(number).expect("it was asked just now");
        let mut tries = 0;
        loop {
            if let Some(link) = member.link() {
                let gone = self.within(link.delete(&placed.object, Change::FUA)).await;
                match gone {
                    Ok(()) | Err(LinkError::Absent(_)) => return Ok(()),
                    Err(LinkError::Fenced { why, .. }) => return Err(self.fence(why)),
                    Err(error) if error.ends_link() => {
                        member.lose(&link, matches!(error, LinkError::Unknown(_)));
                    }
                    Err(_) => {}
                }
            }
            match self.put_out(&[number]).await {
                Ok(true) => return Ok(()),
                Ok(false) => match self.renew().await {
                    Err(error) if !error.passes() => return Err(error),
                    _ => {}
                },
                Err(error) if !error.passes() => return Err(error),
                Err(_) => {}
            }
            self.pause(&mut tries).await;
        }
    }

    /// Takes a copy away that an extent has too many. Its range is the caller's alone, until a root without the copy is in
    /// the meta store. A reader of the map must not count a copy that changes do not reach.
    pub(super) async fn take_away(
        &self,
        index: u32,
        top: &Rc<Placed>,
        layer: &Rc<Placed>,
        copies: usize,
    ) -> Result<(), VolumeError> {
        let numbers = layer.stores.borrow().clone();
        let members = || numbers.iter().rev().filter_map(|one| self.member(*one));
        let gone =
            |it: &&Member| it.standing.get() == Standing::Out || self.is_drained(it.site.number);
        let in_sync = || members().filter(|it| it.standing.get() == Standing::In);
        let enough = || in_sync().count() > copies;
        let member = match members().find(gone) {
            Some(member) => member,
            None if !enough() => return Ok(()),
            None => in_sync().next().expect("there are enough"),
        };
        let number = member.site.number;
        let _leaving = Leaving::of(member);
        layer.stores.borrow_mut().retain(|one| *one != number);
        let counted = match self.tell_fewer().await {
            Ok(()) if member.standing.get() != Standing::Out && !enough() => Err(()),
            Ok(()) => self.enter(index, top).await.map_err(drop),
            Err(error) if !error.passes() => return Err(error),
            Err(_) => Err(()),
        };
        if counted.is_err() {
            layer.stores.borrow_mut().push(number);
            return Ok(());
        }
        // What it has of it is freed with the commit.
        self.commit_surely().await
    }

    /// Lowers the record if something has fewer copies in sync than it says. A store that leaves the in-sync set from here
    /// on, or just did, is counted without a copy that was just taken from its extent.
    pub(super) async fn tell_fewer(&self) -> Result<(), VolumeError> {
        self.change_record(|record| {
            let weakest = self.weakest(&record.out, record.copies);
            let less = 0 < weakest && weakest < record.weakest;
            record.weakest = record.weakest.min(weakest);
            Ok(less)
        })
        .await
    }

    /// Raises the record when extents have more copies in sync than it says.
    async fn tell_weakest(&self) -> Result<(), VolumeError> {
        self.change_record(|record| {
            let weakest = self.weakest(&record.out, record.copies);
            let more = weakest > record.weakest && self.kept.is_known();
            if !more {
                return Ok(false);
            }
            record.weakest = weakest.max(record.weakest);
            Ok(more)
        })
        .await
    }

    /// Asks all stores for their room. Of one that does not answer the link is given up: so an idle volume learns that a
    /// store is gone.
    async fn ask_for_room(&self) {
        let linked = self.members.values();
        let linked = linked.filter_map(|member| Some((member, member.link()?)));
        let asked = linked.map(
            async |(member, link)| match self.within(link.space()).await {
                Ok(space) => {
                    member.says(&space);
                    member.answered.set(env::now());
                }
                Err(error) if error.ends_link() => member.lose(&link, false),
                Err(_) => {}
            },
        );
        join_all(asked.collect::<Vec<_>>()).await;
    }
}
