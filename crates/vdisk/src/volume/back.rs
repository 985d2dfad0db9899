//! Resync: what stores that come back get.
//!
//! ```text
//! out -> opened anew -> leftovers deleted -> each extent alone: copied where its mark is later -> joining -> in
//! ```
//!
//! Always true:
//! 1. A store joins only when each of its extents was resynced and changes have kept it up to date since.
//! 2. By no map in the meta store does a store that joins have a copy that was not resynced.
//! 3. What cannot be read keeps its own stores out; everything else is resynced to them all the same.
//! 4. A stale copy stays until the fresh one is whole, if the store has room for both.

use std::rc::Rc;

use base::Nanos;
use store::Change;

use super::members::{Member, Standing};
use super::mend::{Copy, Halt, Held, marked, marked_none};
use super::{Core, Placed};
use crate::link::{Link, LinkError};
use crate::names::{EXTENT, ExtentName, Generation, StoreNumber};

impl Core {
    /// Resyncs `number` whenever it is out, as long as the volume is open.
    pub(super) async fn keep_in_sync(self: Rc<Self>, number: StoreNumber) {
        let member = self.member(number).expect("a task for each member");
        let mut wait = Nanos::millis(100);
        while self.usable().is_ok() {
            if member.standing.get() != Standing::Out {
                self.news.wait().await;
                continue;
            }
            match self.bring_back(member).await {
                Ok(()) => wait = Nanos::millis(100),
                Err(why) => {
                    tracing::debug!(volume = %self.id, store = %self.label(number), why, "not back in sync");
                    member.lacks_all();
                    if member.standing.get() == Standing::Out {
                        member.drop_link();
                    }
                    env::sleep(wait).await;
                    wait = Nanos((wait.0 * 2).min(self.settings.patience.0.max(100_000_000)));
                }
            }
        }
    }

    async fn bring_back(&self, member: &Member) -> Result<(), String> {
        let number = member.site.number;
        let said = |error: LinkError| error.to_string();
        let link = match self.open_anew(member).await {
            Ok(link) => link,
            Err(LinkError::Fenced { why, .. }) => return Err(self.fence(why).to_string()),
            Err(error) => return Err(error.to_string()),
        };
        let since = self.record.borrow().0.out.get(&number).copied();
        let since = since.ok_or("the record does not say since when it is out")?;
        member.lacks_all();
        member.set_link(Rc::clone(&link));
        self.delete_strays(number, &link).await.map_err(said)?;
        self.read_kept().await.map_err(|error| error.to_string())?;
        self.bring_nodes(member).await?;
        let mut tries = 0;
        loop {
            self.bring_all(member, &link, since).await?;
            self.within(link.flush()).await.map_err(said)?;
            if !member.link().is_some_and(|own| Rc::ptr_eq(&own, &link)) {
                return Err("its link broke".to_owned());
            }
            // A change may have missed it meanwhile; and by the map it may still have a copy that was not resynced.
            let lacks =
                self.next_to_bring(member, 0).is_some() || self.next_kept(member, None).is_some();
            if !lacks && member.leaving.get() == 0 {
                break;
            }
            self.usable().map_err(|error| error.to_string())?;
            self.pause(&mut tries).await;
        }
        // So that a disk that is put back to before this is noticed.
        if !self.stamp_fence(member, Rc::clone(&link)).await {
            return Err("its fence is not stamped".to_owned());
        }
        // From here on changes need it: none that it misses is acknowledged before it is out again.
        member.standing.set(Standing::Joining);
        // The same of extents that are gone, and of which nothing was resynced to it.
        while self.is_anything_forgotten() && member.standing.get() == Standing::Joining {
            match self.commit().await {
                Ok(()) => break,
                Err(error) if !error.passes() => return Err(error.to_string()),
                Err(_) => self.pause(&mut tries).await,
            }
        }
        loop {
            let taken = self.change_record(|record| {
                // A store that missed a change while this waited its turn is out again.
                let joins = member.standing.get() == Standing::Joining;
                let was_out = joins && record.out.remove(&number).is_some();
                let weakest = self.weakest(&record.out, record.copies).max(1);
                record.weakest = match self.kept.is_known() {
                    true => weakest,
                    false => weakest.min(record.weakest),
                };
                Ok(was_out)
            });
            match taken.await {
                Ok(()) => break,
                Err(error) if !error.passes() => return Err(error.to_string()),
                // Whether it was taken in is not known: changes need it until that is.
                Err(_) => self.pause(&mut tries).await,
            }
        }
        if member.standing.get() == Standing::Joining {
            member.standing.set(Standing::In);
            member.was_full.set(false);
            member.lacks_all();
            self.count(|figures| figures.taken_in += 1);
            tracing::info!(volume = %self.id, store = %self.label(number), "in sync again");
            self.news.notify_all();
        }
        Ok(())
    }

    /// Resyncs to a store that is out all that it should have. What cannot be read holds up nothing else: it is tried
    /// again, while changes keep up to date what is there already.
    async fn bring_all(
        &self,
        member: &Member,
        link: &Rc<dyn Link>,
        since: Generation,
    ) -> Result<(), String> {
        let mut wait = Nanos::millis(100);
        loop {
            let mut held = self.bring_extents(member, link, since).await?;
            if let Some(why) = self.bring_kept(member, link, since).await? {
                held = Some(why);
            }
            *member.held_up.borrow_mut() = held.clone();
            let Some(why) = held else {
                return Ok(());
            };
            tracing::debug!(volume = %self.id, store = %member.site.name, why, "resynced all but this");
            env::sleep(wait).await;
            wait = Nanos((wait.0 * 2).min(self.settings.patience.0.max(100_000_000)));
            self.usable().map_err(|error| error.to_string())?;
            if !member.link().is_some_and(|own| Rc::ptr_eq(&own, link)) {
                return Err("its link broke".to_owned());
            }
        }
    }

    /// Resyncs extents until none are left but those that cannot be; returns why one of them cannot.
    async fn bring_extents(
        &self,
        member: &Member,
        link: &Rc<dyn Link>,
        since: Generation,
    ) -> Result<Option<String>, String> {
        let mut held: Option<String> = None;
        let mut from = 0;
        loop {
            let Some((index, _)) = self.next_to_bring(member, from) else {
                // Some that were passed may lack a change by now.
                match from == 0 || held.is_some() {
                    true => return Ok(held),
                    false => from = 0,
                }
                continue;
            };
            match self.bring(member, link, index, since).await {
                Ok(()) => {}
                Err(Held::Store(why)) => return Err(why),
                Err(Held::Extent(why)) => held = Some(why),
            }
            from = index.saturating_add(1);
        }
    }

    /// An extent of this store from there on that was not resynced yet.
    fn next_to_bring(&self, member: &Member, from: u32) -> Option<(u32, Rc<Placed>)> {
        let synced = member.synced.borrow();
        let extents = self.extents.borrow();
        let number = member.site.number;
        let next = extents.range(from..).find(|(index, placed)| {
            let mut layers = placed.layers();
            !synced.contains(index) && layers.any(|it| it.stores.borrow().contains(&number))
        });
        next.map(|(index, placed)| (*index, Rc::clone(placed)))
    }

    /// Resyncs one extent to a store that is out.
    async fn bring(
        &self,
        member: &Member,
        link: &Rc<dyn Link>,
        index: u32,
        since: Generation,
    ) -> Result<(), Held> {
        // Once: others are not to wait for what cannot be reconciled now.
        let settled = self.settled(index, env::now()).await;
        settled.map_err(Held::by_extent)?;
        let start = u64::from(index) * EXTENT;
        let _held = self.ranges.take(start..start + EXTENT, true).await;
        let Some(placed) = self.placed(index).filter(|_| !self.is_doubtful(index)) else {
            return Ok(());
        };
        if !member.link().is_some_and(|own| Rc::ptr_eq(&own, link)) {
            return Err(Held::Store("its link broke".to_owned()));
        }
        let mut brought = Vec::new();
        for layer in placed.layers() {
            let numbers = layer.stores.borrow().clone();
            if !numbers.contains(&member.site.number) {
                continue;
            }
            if layer.young.get() {
                // What it alone has of it was never acknowledged; the first change makes it on all.
                let gone = self.within(link.delete(&layer.object, marked_none()));
                match gone.await {
                    Ok(()) | Err(LinkError::Absent(_)) => continue,
                    Err(error) => return Err(Held::by_store(error)),
                }
            }
            self.bring_layer(link, &layer, &numbers, since).await?;
            brought.push(layer.name);
        }
        // All together: changes reach it from here on, and none did before.
        member.brought.borrow_mut().extend(brought);
        member.synced.borrow_mut().insert(index);
        Ok(())
    }

    /// Is it one of the head's own objects? After a rollback what was born after the head's beginning may be another image's.
    pub(super) fn is_heads(&self, placed: &Placed) -> bool {
        let there = self.placed(placed.name.index);
        there.is_some_and(|it| it.layers().any(|layer| layer.name == placed.name))
    }

    /// Resyncs one object to a store that is out. No write changes it meanwhile.
    pub(super) async fn bring_layer(
        &self,
        link: &Rc<dyn Link>,
        placed: &Placed,
        numbers: &[StoreNumber],
        since: Generation,
    ) -> Result<(), Held> {
        let copies: Vec<Copy<'_>> = (self.needed(numbers).into_iter())
            .filter_map(|other| Some((other, other.link()?)))
            .collect();
        let source = self.source(placed, &copies).await;
        let Some((source, _)) = source.map_err(Held::by_extent)? else {
            let why = format!("no in-sync copy of {} can be reached", placed.object);
            return Err(Held::Extent(why));
        };
        let held = |halt: Halt| match halt {
            Halt::To(error) => Held::by_store(error),
            Halt::From(error) => {
                if error.ends_link() {
                    self.lose_source(&copies, &source);
                }
                Held::Extent(format!("{} cannot be read: {error}", placed.object))
            }
        };
        let object = &placed.object;
        let stat = self.within(source.stat(object)).await;
        let mark = stat.map_err(|error| held(Halt::From(error)))?.mark;
        let there = self.within(link.stat(object)).await;
        // A copy that is not whole has the mark 0.
        let whole = there.is_ok_and(|there| there.mark > 0);
        if mark <= since.0 && whole {
            return Ok(());
        }
        self.count(|figures| figures.resynced += 1);
        let change = marked(Generation(mark), false);
        // Beside what is there, and in its place in one step: until the fresh copy is whole the stale one may be all that is left, if
        // the sources fail meanwhile. Where it is shared it may be read meanwhile, too.
        let put = self.put_beside(placed, &source, &copies, link, change);
        match put.await {
            Err(Halt::To(LinkError::Full(_)))
                if !self.is_shared(placed) && self.is_heads(placed) => {}
            other => return other.map_err(held),
        }
        // There is no room for both: the stale copy goes first, and what was begun beside it.
        let beside = self.beside(placed);
        let gone = self.within(link.delete(&beside, marked_none())).await;
        if let Err(error) = gone
            && !matches!(error, LinkError::Absent(_))
        {
            return Err(Held::by_store(error));
        }
        match self.within(link.delete(object, marked_none())).await {
            Ok(()) | Err(LinkError::Absent(_)) => {}
            Err(error) => return Err(Held::by_store(error)),
        }
        let copied = self.copy_behind(object, object, &source, &copies, link);
        copied.await.map_err(held)?;
        let stamp = self.within(link.stamp(object, change)).await;
        stamp.map_err(Held::by_store)
    }

    /// Puts a copy of a shared object on a store, in one step: a client may be reading what is there.
    pub(super) async fn put_beside(
        &self,
        placed: &Placed,
        source: &Rc<dyn Link>,
        copies: &[Copy<'_>],
        to: &Rc<dyn Link>,
        change: Change,
    ) -> Result<(), Halt> {
        let beside = self.beside(placed);
        match self.within(to.delete(&beside, marked_none())).await {
            Ok(()) | Err(LinkError::Absent(_)) => {}
            Err(error) => return Err(Halt::To(error)),
        }
        let object = &placed.object;
        self.copy_behind(object, &beside, source, copies, to)
            .await?;
        let named = self.within(to.rename(&beside, object, true, change));
        named.await.map_err(Halt::To)
    }

    /// Looks through what a returning store has and was named since the volume was opened, or a snapshot taken: what no
    /// extent knows goes. What is older may be that of another image.
    async fn delete_strays(
        &self,
        number: StoreNumber,
        link: &Rc<dyn Link>,
    ) -> Result<(), LinkError> {
        let prefix = ExtentName::prefix(self.id);
        let mut after = Some(ExtentName::before(self.id, self.floor.get().next()));
        loop {
            let part = self.within(link.list(&prefix, after.as_deref())).await?;
            for stat in &part.objects {
                let name = ExtentName::parse(&stat.name);
                let placed = name.and_then(|name| self.placed(name.index));
                let layers = placed.into_iter().flat_map(|placed| placed.layers());
                let mut known = layers.filter(|layer| Some(layer.name) == name);
                let keep = known.any(|layer| layer.stores.borrow().contains(&number));
                if name.is_some() && !keep {
                    match self.within(link.delete(&stat.name, marked_none())).await {
                        Ok(()) | Err(LinkError::Absent(_)) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
            match part.next {
                Some(next) => after = Some(next),
                None => return Ok(()),
            }
        }
    }
}
