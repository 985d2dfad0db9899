//! What makes copies equal again.
//!
//! ```text
//! in doubt  -> extent alone -> one in-sync copy to the others, marked anew -> not in doubt
//! damaged   -> range alone -> from another copy -> written over it
//! out       -> opened anew -> strays deleted -> each extent alone: copied where its mark is later -> joining -> in
//! ```
//!
//! Always true:
//! 1. A copy that is brought to others was in sync: every change that was answered is in it.
//! 2. What was brought to others is marked with the present generation, so that who is out gets it when he comes back.
//! 3. A store joins only when each of its extents was brought to it and changes have kept it up to date since.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use base::{Bytes, Instant, Nanos, View};
use device::Class;
use store::Change;

use super::io::Piece;
use super::members::{Member, Standing};
use super::{Core, Placed, VolumeError};
use crate::link::{Link, LinkError};
use crate::names::{EXTENT, ExtentName, Generation, StoreNumber};

/// Copied at once.
const CHUNK: u64 = 1 << 20;
/// The unit in which damage is mended.
const PAGE: u64 = 4096;

/// A store and its link.
type Copy<'a> = (&'a Member, Rc<dyn Link>);

impl Core {
    /// Waits until the copies of `index` are equal; makes them so.
    pub(super) async fn settled(&self, index: u32, deadline: Instant) -> Result<(), VolumeError> {
        loop {
            self.usable()?;
            if !self.is_doubtful(index) {
                return Ok(());
            }
            let start = u64::from(index) * EXTENT;
            let held = self.ranges.take(start..start + EXTENT, true).await;
            if !self.is_doubtful(index) {
                return Ok(());
            }
            match self.reconcile(index).await {
                Ok(()) => {
                    // Nobody else is at this extent: whosever doubts there were, they are settled.
                    self.doubtful.borrow_mut().remove(&index);
                    return Ok(());
                }
                Err(error) if !error.passes() || env::now() >= deadline => return Err(error),
                Err(_) => {}
            }
            drop(held);
            self.pause().await;
        }
    }

    /// Whoever is needed, with a link; who has none is put out, if he can be spared.
    async fn reachable(
        &self,
        index: u32,
        numbers: &[StoreNumber],
    ) -> Result<Vec<Copy<'_>>, VolumeError> {
        let needed = self.needed(numbers);
        let (linked, lost): (Vec<_>, Vec<_>) = needed
            .into_iter()
            .partition(|member| member.link().is_some());
        if !lost.is_empty() {
            let lost: Vec<StoreNumber> = lost.iter().map(|it| it.site.number).collect();
            let why = LinkError::Gone(format!("there is no link to store {}", lost[0]));
            if linked.is_empty() || !self.put_out(&lost).await? {
                self.renew().await?;
                return Err(self.no_copy(index, &why));
            }
        }
        let copies: Vec<Copy<'_>> = (linked.iter())
            .filter_map(|it| Some((*it, it.link()?)))
            .collect();
        if copies.len() < linked.len() || copies.is_empty() {
            // Who could not be asked may have it: that nobody does is only known when all were.
            self.renew().await?;
            let why = LinkError::Gone("a link broke meanwhile".to_owned());
            return Err(self.no_copy(index, &why));
        }
        Ok(copies)
    }

    /// Makes the copies of an extent equal. Its range is the caller's alone.
    pub(super) async fn reconcile(&self, index: u32) -> Result<(), VolumeError> {
        let Some(placed) = self.placed(index) else {
            return Ok(());
        };
        if self.is_shared(&placed) {
            // Its copies were equal when it became so; what was doubtful above it was never named.
            return Ok(());
        }
        let numbers = placed.stores.borrow().clone();
        // Who is out and was brought this before must be brought it again before it joins.
        for member in numbers.iter().filter_map(|one| self.member(*one)) {
            member.synced.borrow_mut().remove(&index);
        }
        let copies = self.reachable(index, &numbers).await?;
        let under_way = self.begin();
        let source = self.source(&placed, &copies).await?;
        let Some((source, size)) = source else {
            // Nobody has it, so nobody was told that it was written. Its bit stays.
            placed.young.set(true);
            placed.blocks.doubt();
            return Ok(());
        };
        // From here on it may be read.
        placed.young.set(false);
        let mut failed = Vec::new();
        for (member, link) in &copies {
            let done = match Rc::ptr_eq(link, &source) {
                true => Ok(()),
                false => {
                    let whole = size..EXTENT;
                    let object = &placed.object;
                    let mark = under_way.mark;
                    let copied = self.copy(object, object, &source, &copies, link, mark);
                    match copied.await {
                        Ok(()) if !whole.is_empty() => {
                            let change = marked(under_way.mark, false);
                            let (from, len) = (whole.start, whole.end - whole.start);
                            self.within(link.punch(&placed.object, from, len, change))
                                .await
                        }
                        other => other,
                    }
                }
            };
            let done = match done {
                Ok(()) => {
                    let stamp = link.stamp(&placed.object, marked(under_way.mark, true));
                    self.within(stamp).await
                }
                error => error,
            };
            match done {
                Ok(()) => {}
                Err(LinkError::Fenced { why, .. }) => return Err(self.fence(why)),
                Err(error) => {
                    if error.ends_link() {
                        member.lose(link, matches!(error, LinkError::Unknown(_)));
                    }
                    failed.push((member.site.number, error));
                }
            }
        }
        if let Some((_, why)) = failed.first() {
            let numbers: Vec<StoreNumber> = failed.iter().map(|(one, _)| *one).collect();
            if failed.len() == copies.len() || !self.put_out(&numbers).await? {
                self.renew().await?;
                return Err(self.no_copy(index, why));
            }
        }
        self.count(|figures| figures.reconciled += 1);
        #[cfg(test)]
        if self.planted(super::Bug::StaleBlocks) {
            return Ok(());
        }
        placed.blocks.doubt();
        Ok(())
    }

    /// The first copy that has the object, and its size.
    async fn source(
        &self,
        placed: &Placed,
        copies: &[Copy<'_>],
    ) -> Result<Option<(Rc<dyn Link>, u64)>, VolumeError> {
        for (member, link) in copies {
            match self.within(link.stat(&placed.object)).await {
                Ok(stat) => return Ok(Some((Rc::clone(link), stat.size.min(EXTENT)))),
                Err(LinkError::Absent(_)) => {}
                Err(LinkError::Fenced { why, .. }) => return Err(self.fence(why)),
                Err(error) => {
                    if error.ends_link() {
                        member.lose(link, false);
                    }
                    return Err(self.no_copy(placed.name.index, &error));
                }
            }
        }
        Ok(None)
    }

    /// Brings what `source` has of an object to `to`, as `as_object`; where it is damaged, what another of `copies` has.
    async fn copy(
        &self,
        object: &str,
        as_object: &str,
        source: &Rc<dyn Link>,
        copies: &[Copy<'_>],
        to: &Rc<dyn Link>,
        mark: Generation,
    ) -> Result<(), LinkError> {
        match self.within(to.create(as_object, marked(mark, false))).await {
            Ok(()) | Err(LinkError::Refused(_)) => {}
            Err(error) => return Err(error),
        }
        let extents = self.within(source.extents(object, 0, EXTENT)).await?;
        for extent in extents {
            if !extent.data {
                let change = marked(mark, false);
                let hole = to.punch(as_object, extent.offset, extent.len, change);
                self.within(hole).await?;
                continue;
            }
            let end = extent.offset + extent.len;
            let mut at = extent.offset;
            while at < end {
                let len = CHUNK.min(end - at).min(self.piece.get());
                let data = self.read_any(object, source, copies, at, len).await?;
                let write = to.write(as_object, at, data, marked(mark, false));
                self.within(write).await?;
                at += len;
            }
        }
        Ok(())
    }

    /// From `source`, or where it is damaged from another copy, page by page.
    async fn read_any(
        &self,
        object: &str,
        source: &Rc<dyn Link>,
        copies: &[Copy<'_>],
        at: u64,
        len: u64,
    ) -> Result<View, LinkError> {
        match self.within(source.read(object, at, len)).await {
            Ok(data) => return Ok(data.freeze()),
            Err(LinkError::Damaged(_)) => {}
            Err(error) => return Err(error),
        }
        let mut whole = Vec::with_capacity(len as usize);
        for from in (at..at + len).step_by(PAGE as usize) {
            let len = PAGE.min(at + len - from);
            let mut found = self.within(source.read(object, from, len)).await;
            for (_, link) in copies {
                if matches!(found, Err(LinkError::Damaged(_))) {
                    found = self.within(link.read(object, from, len)).await;
                }
            }
            let data = found?;
            whole.extend_from_slice(&data);
            whole.resize((from - at + len) as usize, 0);
        }
        Ok(View::copy_of(&whole))
    }

    // --- damage -------------------------------------------------------------------------------------------

    /// The copy of `store` could not be read there: writes what another one has over it, in a while.
    pub(super) fn mend_later(
        self: &Rc<Self>,
        placed: &Rc<Placed>,
        store: StoreNumber,
        piece: Piece,
    ) {
        let (core, placed) = (Rc::clone(self), Rc::clone(placed));
        env::spawn(async move {
            if let Err(error) = core.mend(&placed, store, piece).await {
                tracing::warn!(volume = %core.id, store = store.0, %error, "a copy was not mended");
            }
        });
    }

    async fn mend(
        &self,
        placed: &Placed,
        store: StoreNumber,
        piece: Piece,
    ) -> Result<(), VolumeError> {
        let start = u64::from(piece.index) * EXTENT;
        let from = piece.from / PAGE * PAGE;
        let end = (piece.from + piece.len).next_multiple_of(PAGE).min(EXTENT);
        let _held = self.ranges.take(start + from..start + end, true).await;
        self.usable()?;
        let numbers = placed.stores.borrow().clone();
        let Some(member) = self.needed(&[store]).pop() else {
            return Ok(());
        };
        if !numbers.contains(&store) || self.is_doubtful(piece.index) {
            return Ok(());
        }
        let layers = self.placed(piece.index).into_iter();
        let mut layers = layers.flat_map(|placed| placed.layers());
        if !layers.any(|layer| std::ptr::eq(&*layer, placed)) {
            return Ok(());
        }
        let shared = self.is_shared(placed);
        let under_way = self.begin();
        let others: Vec<Copy<'_>> = (self.needed(&numbers).into_iter())
            .filter(|other| other.site.number != store)
            .filter_map(|other| Some((other, other.link()?)))
            .collect();
        let (Some(link), Some((_, source))) = (member.link(), others.first()) else {
            return Ok(());
        };
        let mended = async {
            let mut at = from;
            while at < end {
                let len = CHUNK.min(end - at).min(self.piece.get());
                let data = self
                    .read_any(&placed.object, source, &others, at, len)
                    .await?;
                if data.is_empty() {
                    break;
                }
                let change = match shared {
                    true => Change::FUA,
                    false => marked(under_way.mark, true),
                };
                let write = link.write(&placed.object, at, data, change);
                self.within(write).await?;
                at += len;
            }
            Ok(())
        };
        match mended.await {
            Ok(()) => {
                self.count(|figures| figures.mended += 1);
                Ok(())
            }
            Err(LinkError::Fenced { why, .. }) => Err(self.fence(why)),
            Err(error) => {
                tracing::warn!(volume = %self.id, store = store.0, %error, "a damaged copy cannot be mended");
                if error.ends_link() {
                    member.lose(&link, matches!(error, LinkError::Unknown(_)));
                }
                // Resync writes it anew.
                self.put_out(&[store]).await.map(drop)
            }
        }
    }

    // --- stores that come back ------------------------------------------------------------------------------

    /// Brings `number` back whenever it is out, as long as the volume is open.
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
                    tracing::debug!(volume = %self.id, store = number.0, why, "not back in sync");
                    member.synced.borrow_mut().clear();
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
        member.synced.borrow_mut().clear();
        member.brought.borrow_mut().clear();
        member.set_link(Rc::clone(&link));
        self.delete_strays(number, &link).await.map_err(said)?;
        self.read_kept().await.map_err(|error| error.to_string())?;
        self.bring_nodes(member).await?;
        let mut from = 0;
        loop {
            let Some((index, _)) = self.next_to_bring(member, from) else {
                match from {
                    0 => break,
                    _ => from = 0,
                }
                continue;
            };
            self.bring(member, &link, index, since).await?;
            from = index.saturating_add(1);
        }
        self.bring_kept(member, &link, since).await?;
        self.within(link.flush()).await.map_err(said)?;
        if !member.link().is_some_and(|own| Rc::ptr_eq(&own, &link)) {
            return Err("its link broke".to_owned());
        }
        // From here on changes need it: nobody is told of one that misses it before it is out again.
        if self.next_to_bring(member, 0).is_some() || self.next_kept(member).is_some() {
            return Err("a change missed it while it was brought back".to_owned());
        }
        member.standing.set(Standing::Joining);
        loop {
            let taken = self.change_record(|record| {
                // Who missed a change while this waited its turn is out again.
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
                Err(_) => self.pause().await,
            }
        }
        if member.standing.get() == Standing::Joining {
            member.standing.set(Standing::In);
            member.synced.borrow_mut().clear();
            self.count(|figures| figures.taken_in += 1);
            tracing::info!(volume = %self.id, store = number.0, "in sync again");
            self.news.notify_all();
        }
        Ok(())
    }

    /// An extent of this store from there on that it was not brought yet.
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

    /// Brings one extent to a store that is out.
    async fn bring(
        &self,
        member: &Member,
        link: &Rc<dyn Link>,
        index: u32,
        since: Generation,
    ) -> Result<(), String> {
        let deadline = env::now() + self.settings.deadline;
        let settled = self.settled(index, deadline).await;
        settled.map_err(|error| error.to_string())?;
        let start = u64::from(index) * EXTENT;
        let _held = self.ranges.take(start..start + EXTENT, true).await;
        let Some(placed) = self.placed(index).filter(|_| !self.is_doubtful(index)) else {
            return Ok(());
        };
        if !member.link().is_some_and(|own| Rc::ptr_eq(&own, link)) {
            return Err("its link broke".to_owned());
        }
        for layer in placed.layers() {
            let numbers = layer.stores.borrow().clone();
            // One that nobody has yet is made by its first change.
            if numbers.contains(&member.site.number) && !layer.young.get() {
                self.bring_layer(link, &layer, &numbers, since).await?;
                member.brought.borrow_mut().insert(layer.name);
            }
        }
        member.synced.borrow_mut().insert(index);
        Ok(())
    }

    /// Brings one object to a store that is out. Nobody changes it meanwhile.
    pub(super) async fn bring_layer(
        &self,
        link: &Rc<dyn Link>,
        placed: &Placed,
        numbers: &[StoreNumber],
        since: Generation,
    ) -> Result<(), String> {
        let copies: Vec<Copy<'_>> = (self.needed(numbers).into_iter())
            .filter_map(|other| Some((other, other.link()?)))
            .collect();
        let source = self.source(placed, &copies).await;
        let source = source.map_err(|error| error.to_string())?;
        let Some((source, _)) = source else {
            return Err(format!(
                "no in-sync copy of {} can be reached",
                placed.object
            ));
        };
        let said = |error: LinkError| error.to_string();
        let stat = self
            .within(source.stat(&placed.object))
            .await
            .map_err(said)?;
        let there = self.within(link.stat(&placed.object)).await;
        // A copy that is not whole has the mark 0.
        let whole = there.is_ok_and(|there| there.mark > 0);
        if stat.mark <= since.0 && whole {
            return Ok(());
        }
        self.count(|figures| figures.resynced += 1);
        let mark = marked(Generation(stat.mark), false);
        if self.is_shared(placed) {
            let put = self.put_beside(placed, &source, &copies, link, mark);
            return put.await.map_err(said);
        }
        match self
            .within(link.delete(&placed.object, marked_none()))
            .await
        {
            Ok(()) | Err(LinkError::Absent(_)) => {}
            Err(error) => return Err(error.to_string()),
        }
        let object = &placed.object;
        let copied = self.copy(object, object, &source, &copies, link, Generation(0));
        copied.await.map_err(said)?;
        let stamp = self.within(link.stamp(object, mark)).await;
        stamp.map_err(said)
    }

    /// Puts a copy of a shared object on a store, in one step: somebody may be reading what is there.
    async fn put_beside(
        &self,
        placed: &Placed,
        source: &Rc<dyn Link>,
        copies: &[Copy<'_>],
        to: &Rc<dyn Link>,
        change: Change,
    ) -> Result<(), LinkError> {
        let beside = self.beside(placed);
        match self.within(to.delete(&beside, marked_none())).await {
            Ok(()) | Err(LinkError::Absent(_)) => {}
            Err(error) => return Err(error),
        }
        let object = &placed.object;
        self.copy(object, &beside, source, copies, to, Generation(0))
            .await?;
        self.within(to.rename(&beside, object, true, change)).await
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

    // --- by itself --------------------------------------------------------------------------------------------

    /// Settles what is in doubt and clears what is clean, as long as the volume is open.
    pub(super) async fn keep_clean(self: Rc<Self>) {
        let mut turn = 0_u64;
        while self.usable().is_ok() {
            turn += 1;
            let doubtful: Vec<u32> = self.doubtful.borrow().keys().copied().take(16).collect();
            for index in &doubtful {
                let deadline = env::now() + self.settings.patience;
                if let Err(error) = self.settled(*index, deadline).await {
                    tracing::debug!(volume = %self.id, index, %error, "still in doubt");
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
            if doubtful.is_empty() {
                env::sleep(self.settings.tick).await;
            }
        }
    }

    /// Looks at each extent once: gives those that have too few stores another one, and takes one from those that have too
    /// many. One that nothing can be done about does not keep the others waiting.
    async fn fill_up(&self) -> Result<(), VolumeError> {
        let mut from = 0;
        while let Some((index, _)) = self.next_uneven(from) {
            match self.even_out(index).await {
                Err(error) if error.passes() => {
                    tracing::debug!(volume = %self.id, index, %error, "not the copies it should have");
                }
                other => other?,
            }
            from = index + 1;
        }
        Ok(())
    }

    /// The first extent from there on that has too few stores or too many.
    fn next_uneven(&self, from: u32) -> Option<(u32, Rc<Placed>)> {
        let copies = usize::from(self.record.borrow().0.copies);
        let extents = self.extents.borrow();
        let mut all = extents.range(from..).filter(|(index, placed)| {
            let mut layers = placed.layers();
            layers.any(|it| it.stores.borrow().len() != copies)
                && !placed.young.get()
                && !self.is_doubtful(**index)
        });
        all.next()
            .map(|(index, placed)| (*index, Rc::clone(placed)))
    }

    async fn even_out(&self, index: u32) -> Result<(), VolumeError> {
        let copies = usize::from(self.record.borrow().0.copies);
        let start = u64::from(index) * EXTENT;
        let _held = self.ranges.take(start..start + EXTENT, true).await;
        let Some(placed) = self.placed(index).filter(|_| !self.is_doubtful(index)) else {
            return Ok(());
        };
        for layer in placed.layers().filter(|layer| !layer.young.get()) {
            let count = layer.stores.borrow().len();
            if count > copies && Rc::ptr_eq(&layer, &placed) && !self.is_shared(&layer) {
                self.take_away(index, &layer, copies).await?;
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
        let Some(number) = self.choose_one(&numbers) else {
            return Ok(());
        };
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
                let mark = self.within(source.stat(object)).await?.mark;
                let change = marked(Generation(mark), true);
                return self
                    .put_beside(layer, &source, &sources, &link, change)
                    .await;
            }
            match self.within(link.delete(object, marked_none())).await {
                Ok(()) | Err(LinkError::Absent(_)) => {}
                Err(error) => return Err(error),
            }
            // Not whole, and of no account, until it has its mark.
            self.copy(object, object, &source, &sources, &link, Generation(0))
                .await?;
            named.set(true);
            let mark = marked(self.generation(), true);
            self.within(link.stamp(object, mark)).await
        };
        match copied.await {
            Ok(()) if member.standing.get() == Standing::In => {
                let added = self.add(index, placed, layer, number).await;
                if added.is_err() && !shared {
                    self.rid(layer, number).await?;
                }
                added
            }
            // The store was put out meanwhile: it looks through all it has when it comes back.
            Ok(()) => Ok(()),
            Err(LinkError::Fenced { why, .. }) => Err(self.fence(why)),
            Err(error) => {
                tracing::debug!(volume = %self.id, index, store = number.0, %error, "no further copy");
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
            self.pause().await;
        }
    }

    /// Takes a copy away that an extent has too many. Its range is the caller's alone, until a root without the copy is in
    /// the meta store: whoever reads the map must not count one that changes do not reach.
    async fn take_away(
        &self,
        index: u32,
        placed: &Rc<Placed>,
        copies: usize,
    ) -> Result<(), VolumeError> {
        let numbers = placed.stores.borrow().clone();
        let members = || numbers.iter().rev().filter_map(|one| self.member(*one));
        let gone = |it: &&Member| it.standing.get() == Standing::Out;
        let in_sync = || members().filter(|it| it.standing.get() == Standing::In);
        let enough = || in_sync().count() > copies;
        let member = match members().find(gone) {
            Some(member) => member,
            None if !enough() => return Ok(()),
            None => in_sync().next().expect("there are enough"),
        };
        let number = member.site.number;
        placed.stores.borrow_mut().retain(|one| *one != number);
        // Whoever is put out from here on, or was a moment ago, is counted without this copy.
        let counted = self.change_record(|record| {
            let weakest = self.weakest(&record.out, record.copies);
            let less = 0 < weakest && weakest < record.weakest;
            record.weakest = record.weakest.min(weakest);
            Ok(less)
        });
        let counted = match counted.await {
            Ok(()) if member.standing.get() != Standing::Out && !enough() => Err(()),
            Ok(()) => self.enter(index, placed).await.map_err(drop),
            Err(error) if !error.passes() => return Err(error),
            Err(_) => Err(()),
        };
        if counted.is_err() {
            placed.stores.borrow_mut().push(number);
            return Ok(());
        }
        #[cfg(test)]
        if self.planted(super::Bug::NoCommit) {
            return Ok(());
        }
        // What it has of it is freed with the commit. Whether one that failed comes about nobody knows: until one does not
        // fail, nobody changes the extent.
        loop {
            match self.commit().await {
                Err(error) if error.passes() => self.pause().await,
                other => return other,
            }
        }
    }

    /// Tells the record when extents have more copies in sync than it says.
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

    async fn ask_for_room(&self) {
        for member in self.members.values() {
            let Some(link) = member.link() else { continue };
            if let Ok(space) = self.within(link.space()).await {
                member
                    .free
                    .set(Bytes(space.free.0.saturating_sub(space.spare.0)));
                member.total.set(space.total);
            }
        }
    }

    /// What listings of in-sync stores say of the extents: the one allocated last, and who has it.
    pub(super) fn gather(
        found: &mut BTreeMap<u32, (ExtentName, Vec<StoreNumber>)>,
        name: ExtentName,
        store: StoreNumber,
    ) {
        let entry = found.entry(name.index).or_insert((name, Vec::new()));
        if name.born > entry.0.born {
            *entry = (name, Vec::new());
        }
        if name == entry.0 {
            entry.1.push(store);
        }
    }
}

/// A copied change.
fn marked(mark: Generation, fua: bool) -> Change {
    Change {
        class: Class::Foreground,
        fua,
        mark: Some(mark.0),
        ..Change::default()
    }
}

fn marked_none() -> Change {
    Change::default()
}
