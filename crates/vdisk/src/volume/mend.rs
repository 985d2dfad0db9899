//! What makes copies equal again.
//!
//! ```text
//! unreconciled -> extent alone -> one in-sync copy to the others, marked anew -> reconciled
//! ```
//!
//! Always true:
//! 1. A copy that others are made from was in sync: every change that was answered is in it.
//! 2. What was copied to others is marked with the present generation, so that resync gives it to stores that are out.
//! 3. A copy that is being made where there was none does not count before it is whole.

use std::rc::Rc;

use base::{Instant, View};
use device::Class;
use store::Change;

use super::members::Member;
use super::{Core, Placed, VolumeError};
use crate::link::{Link, LinkError};
use crate::names::{EXTENT, Generation, StoreNumber};

/// Copied at once.
pub(super) const CHUNK: u64 = 1 << 20;
/// The unit in which damage is repaired.
pub(super) const PAGE: u64 = 4096;

/// A store and its link.
pub(super) type Copy<'a> = (&'a Member, Rc<dyn Link>);

/// Which end of a copy failed.
pub(super) enum Halt {
    From(LinkError),
    To(LinkError),
}

/// Why something was not resynced to a store that is out.
pub(super) enum Held {
    /// By the store itself: it begins anew.
    Store(String),
    /// By what was to be resynced: everything else can be.
    Extent(String),
}

impl Held {
    pub fn by_store(error: LinkError) -> Held {
        Held::Store(error.to_string())
    }

    pub fn by_extent(error: VolumeError) -> Held {
        Held::Extent(error.to_string())
    }
}

impl Core {
    /// Waits until the copies of `index` are equal; makes them so.
    pub(super) async fn settled(&self, index: u32, deadline: Instant) -> Result<(), VolumeError> {
        let mut tries = 0;
        let once = env::now() >= deadline;
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
                    // No other task is at this extent: whichever requests left it unreconciled, it is reconciled.
                    self.doubtful.borrow_mut().remove(&index);
                    return Ok(());
                }
                Err(error) if !error.passes() || once || self.is_late(deadline, &error) => {
                    return Err(error);
                }
                Err(_) => {}
            }
            drop(held);
            self.pause(&mut tries).await;
        }
    }

    /// Waits until the copies of `index` are equal. One task makes them so for all requests that wait, to its end, whether
    /// or not they wait so long. Changes of copies under way belong to this task alone.
    pub(super) async fn settled_beside(
        self: &Rc<Self>,
        index: u32,
        deadline: Instant,
    ) -> Result<(), VolumeError> {
        while self.is_doubtful(index) {
            self.usable()?;
            let why = "its copies may differ, and cannot be made equal now".to_owned();
            let error = self.no_copy(index, &LinkError::Gone(why));
            if self.is_late(deadline, &error) {
                return Err(error);
            }
            if self.settling.borrow_mut().insert(index) {
                let core = Rc::clone(self);
                env::spawn(async move {
                    if let Err(error) = core.settled(index, deadline).await {
                        tracing::debug!(volume = %core.id, index, %error, "still unreconciled");
                    }
                    core.settling.borrow_mut().remove(&index);
                    core.news.notify_all();
                });
            }
            let _ = env::timeout(self.until(deadline), self.news.wait()).await;
        }
        Ok(())
    }

    /// Every store that is needed, with its link; one without leaves the in-sync set, if it can be spared.
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
            let why = LinkError::Gone(format!("there is no link to store {}", self.label(lost[0])));
            if linked.is_empty() || !self.put_out(&lost).await? {
                self.renew().await?;
                return Err(self.no_copy(index, &why));
            }
        }
        let copies: Vec<Copy<'_>> = (linked.iter())
            .filter_map(|it| Some((*it, it.link()?)))
            .collect();
        if copies.len() < linked.len() || copies.is_empty() {
            // A store that could not be asked may have it: that none does is only known when all were.
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
            // Its copies were equal when it became so; what was unreconciled above it was never named.
            return Ok(());
        }
        let numbers = placed.stores.borrow().clone();
        // A store that is out must have this resynced again before it joins.
        for member in numbers.iter().filter_map(|one| self.member(*one)) {
            member.lacks(index);
        }
        let copies = self.reachable(index, &numbers).await?;
        let under_way = self.begin();
        let source = self.source(&placed, &copies).await?;
        let Some((source, size)) = source else {
            // No store has it, so no write of it was acknowledged. Its bit stays.
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
                    let made = self.make_equal(&placed, (&source, size), &copies, link);
                    match made.await {
                        Ok(()) => Ok(()),
                        Err(Halt::To(error)) => Err(error),
                        // Nothing is wrong with the target: no store leaves the in-sync set for this.
                        Err(Halt::From(error)) if error.ends_link() => {
                            self.lose_source(&copies, &source);
                            self.renew().await?;
                            return Err(self.no_copy(index, &error));
                        }
                        Err(Halt::From(error)) => Err(error),
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

    /// Makes one copy of an unreconciled extent what `source` is, of that size, but for its mark. One that is not there yet
    /// has the mark 0 until it is whole. An opening after a crash must not take it for a copy.
    async fn make_equal(
        &self,
        placed: &Placed,
        (source, size): (&Rc<dyn Link>, u64),
        copies: &[Copy<'_>],
        to: &Rc<dyn Link>,
    ) -> Result<(), Halt> {
        let object = &placed.object;
        let mark = match self.within(to.stat(object)).await {
            Ok(stat) => Generation(stat.mark),
            Err(LinkError::Absent(_)) => Generation(0),
            Err(error) => return Err(Halt::To(error)),
        };
        self.copy(object, object, source, copies, to, mark).await?;
        if size == EXTENT {
            return Ok(());
        }
        let rest = to.punch(object, size, EXTENT - size, marked(mark, false));
        self.within(rest).await.map_err(Halt::To)
    }

    /// What was to be copied could not be asked for.
    pub(super) fn lose_source(&self, copies: &[Copy<'_>], source: &Rc<dyn Link>) {
        for (member, link) in copies {
            if Rc::ptr_eq(link, source) {
                member.lose(link, false);
            }
        }
    }

    /// The first whole copy that has the object, and its size.
    pub(super) async fn source(
        &self,
        placed: &Placed,
        copies: &[Copy<'_>],
    ) -> Result<Option<(Rc<dyn Link>, u64)>, VolumeError> {
        for (member, link) in copies {
            match self.within(link.stat(&placed.object)).await {
                // Its making was broken off.
                Ok(stat) if stat.mark == 0 => {}
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

    /// Copies what `source` has of an object to `to`, as `as_object`; where it is damaged, what another of `copies` has.
    pub(super) async fn copy(
        &self,
        object: &str,
        as_object: &str,
        source: &Rc<dyn Link>,
        copies: &[Copy<'_>],
        to: &Rc<dyn Link>,
        mark: Generation,
    ) -> Result<(), Halt> {
        match self.within(to.create(as_object, marked(mark, false))).await {
            Ok(()) | Err(LinkError::Refused(_)) => {}
            Err(error) => return Err(Halt::To(error)),
        }
        let extents = self.within(source.extents(object, 0, EXTENT)).await;
        let extents = extents.map_err(Halt::From)?;
        // Is the one that gets it a copy that is read like the others?
        let is_copy = object == as_object && copies.iter().any(|(_, link)| Rc::ptr_eq(link, to));
        for extent in extents {
            if !extent.data {
                let change = marked(mark, false);
                let hole = to.punch(as_object, extent.offset, extent.len, change);
                self.within(hole).await.map_err(Halt::To)?;
                continue;
            }
            let end = extent.offset + extent.len;
            let mut at = extent.offset;
            // Below this it goes page by page.
            let mut fine = at;
            while at < end {
                let most = if at < fine { PAGE - at % PAGE } else { CHUNK };
                let len = most.min(end - at).min(self.piece.get());
                let data = match self.read_any(object, source, copies, at, len).await {
                    // What no copy has stays as it is on each: none is out of sync for it.
                    Err(LinkError::Damaged(_)) if is_copy && len > PAGE => {
                        fine = at + len;
                        continue;
                    }
                    Err(LinkError::Damaged(_)) if is_copy => {
                        at += len;
                        continue;
                    }
                    data => data.map_err(Halt::From)?,
                };
                let write = to.write(as_object, at, data, marked(mark, false));
                self.within(write).await.map_err(Halt::To)?;
                at += len;
            }
        }
        // A disk that is put back to before this is noticed.
        self.stamps.due();
        Ok(())
    }

    /// As [`Core::copy`], behind what clients ask for.
    pub(super) async fn copy_behind(
        &self,
        object: &str,
        as_object: &str,
        source: &Rc<dyn Link>,
        copies: &[Copy<'_>],
        to: &Rc<dyn Link>,
    ) -> Result<(), Halt> {
        let (source, to) = (self.background(source).await, self.background(to).await);
        self.copy(object, as_object, &source, copies, &to, Generation(0))
            .await
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
}

/// A copied change.
pub(super) fn marked(mark: Generation, fua: bool) -> Change {
    Change {
        class: Class::Foreground,
        fua,
        mark: Some(mark.0),
        ..Change::default()
    }
}

pub(super) fn marked_none() -> Change {
    Change::default()
}
