//! The stores of a volume, and its record: which are in sync, which are out, and how does every node come to know?
//!
//! Always true:
//! 1. The record is changed by compare-and-swap only, one change at a time, and each has a new generation. A writer that
//!    finds a record with another epoch is fenced.
//! 2. A store leaves the in-sync set with a generation before every change it may have missed.
//! 3. A link with an indeterminate change is never used again; the store's next one has a greater mark.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::rc::Rc;

use base::{Bytes, Instant, Nanos};
use policy::place::{At, Candidate, DiskId, Permille, Target};

use super::age::Age;
use super::open::writer_lease;
use super::users::{Sides, UserId};
use super::{Condition, Core, Health, Site, Volume, VolumeError, stores};
use crate::link::{Door, Link, LinkError};
use crate::meta::{Compare, Entry, LeaseId, MetaError, Op, Outcome};
use crate::names::{ExtentName, Generation, StoreNumber};
use crate::record::{VolumeRecord, Writer, gone_key};

/// Where a store stands with this volume; see the module's arrows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    In,
    Joining,
    Out,
}

/// A store as this volume's writer has it.
pub(super) struct Member {
    pub site: Site,
    /// The way to it as it is now: its node may come back at another address.
    door: RefCell<Rc<dyn Door>>,
    pub standing: Cell<Standing>,
    link: RefCell<Option<Rc<dyn Link>>>,
    /// Those of users, beside it.
    pub sides: Sides,
    /// A change is indeterminate: the next link needs a greater mark than this.
    tainted: Cell<bool>,
    /// The mark of its next link.
    mark: Cell<Generation>,
    /// While it is out: extents that were resynced, and that changes keep up to date.
    pub synced: RefCell<BTreeSet<u32>>,
    /// The same of what older images have.
    pub brought: RefCell<BTreeSet<ExtentName>>,
    /// Why something cannot be resynced to it.
    pub held_up: RefCell<Option<String>>,
    /// Copies that are being taken away from it.
    pub leaving: Cell<u64>,
    /// Room it had when it was last asked, and what was sent there since.
    pub free: Cell<Bytes>,
    pub sent: Cell<u64>,
    pub total: Cell<Bytes>,
    /// When it was last asked for that and answered, or got a link.
    pub answered: Cell<Instant>,
    /// How far the volume's fence is there.
    pub age: Age,
    /// It refused something for lack of room, and was not in sync since.
    pub was_full: Cell<bool>,
}

impl Member {
    pub fn new(site: Site, mark: Generation) -> Member {
        Member {
            door: RefCell::new(Rc::clone(&site.door)),
            site,
            standing: Cell::new(Standing::In),
            link: RefCell::default(),
            sides: Sides::default(),
            tainted: Cell::new(false),
            mark: Cell::new(mark),
            synced: RefCell::default(),
            brought: RefCell::default(),
            held_up: RefCell::default(),
            leaving: Cell::new(0),
            free: Cell::new(Bytes(0)),
            sent: Cell::new(0),
            total: Cell::new(Bytes(0)),
            answered: Cell::new(env::now()),
            age: Age::default(),
            was_full: Cell::new(false),
        }
    }

    /// The way to it.
    pub fn door(&self) -> Rc<dyn Door> {
        self.door.borrow().clone()
    }

    pub fn disk(&self) -> DiskId {
        DiskId(u32::from(self.site.number.0))
    }

    pub fn candidate(&self, at: Option<At>) -> Candidate {
        Candidate {
            disk: self.disk(),
            local: self.site.local,
            rotating: self.site.rotating,
            at,
        }
    }

    fn target(&self) -> Target {
        Target {
            candidate: self.candidate(None),
            domain: self.site.domain,
            free: self.room(),
            capacity: self.total.get(),
            reserved: Permille(0),
        }
    }

    /// Must changes reach it?
    pub fn is_needed(&self) -> bool {
        self.standing.get() != Standing::Out
    }

    /// It misses a change of this extent: that must be resynced again before it joins, also where a snapshot has it by then.
    pub fn lacks(&self, index: u32) {
        self.synced.borrow_mut().remove(&index);
        self.brought.borrow_mut().retain(|it| it.index != index);
    }

    /// Nothing counts as resynced to it.
    pub fn lacks_all(&self) {
        self.synced.borrow_mut().clear();
        self.brought.borrow_mut().clear();
    }

    /// Its link, if it can be used.
    pub fn link(&self) -> Option<Rc<dyn Link>> {
        self.link.borrow().clone()
    }

    /// Is it in sync, and this its link? Then it was never out since this became so.
    pub fn is_in_by(&self, link: &Rc<dyn Link>) -> bool {
        let own = self.link.borrow();
        let same = own.as_ref().is_some_and(|own| Rc::ptr_eq(own, link));
        same && self.standing.get() == Standing::In
    }

    /// The mark of its link.
    pub fn mark(&self) -> Generation {
        self.mark.get()
    }

    pub fn drop_link(&self) {
        self.sides.clear();
        *self.link.borrow_mut() = None;
    }

    pub fn set_link(&self, link: Rc<dyn Link>) {
        self.answered.set(env::now());
        self.sides.clear();
        *self.link.borrow_mut() = Some(link);
    }

    /// This link is of no more use. `tainted`: a change on it is indeterminate.
    pub fn lose(&self, link: &Rc<dyn Link>, tainted: bool) {
        self.sides.drop_one(link);
        let mut own = self.link.borrow_mut();
        if own.as_ref().is_some_and(|own| Rc::ptr_eq(own, link)) {
            *own = None;
            self.sides.clear();
            self.tainted.set(self.tainted.get() || tainted);
        } else if tainted {
            // A later link, there or not yet, would have the same mark, and so has the volume's beside a user's. An
            // indeterminate change may still come after its changes.
            *own = None;
            self.sides.clear();
            self.tainted.set(true);
        }
    }
}

impl Volume {
    /// All stores of the cluster: those that joined since the volume was opened may be used from now on, and those that it knows
    /// and that are not named have left. To the others the next link goes the way that is named now.
    pub fn add_stores(&self, sites: Vec<Site>) {
        let core = &self.core;
        let named = |number: &StoreNumber| sites.iter().any(|it| it.number == *number);
        let left = core.members.keys().filter(|it| !named(it));
        let left: Vec<StoreNumber> = left.copied().collect();
        left.into_iter().for_each(|number| core.leave(number));
        // A list that is older than what is known here may come late.
        core.gone.borrow_mut().retain(|number| !named(number));
        for site in sites {
            let number = site.number;
            if let Some(known) = core.member(number) {
                *known.door.borrow_mut() = site.door;
                continue;
            }
            // Its first link seals the guard with what is newest now; the volume never wrote there before.
            let member = Member::new(site, core.generation());
            if core.record.borrow().0.out.contains_key(&number) {
                member.standing.set(Standing::Out);
            }
            if core.members.add(member) {
                tracing::info!(volume = %core.id, store = %core.label(number), "a store more");
                core.learn_ages(&core.record.borrow().0);
                core.start_with(number);
                core.news.notify_all();
            }
        }
    }
}

impl Core {
    pub(super) fn member(&self, number: StoreNumber) -> Option<&Member> {
        self.members.get(&number)
    }

    /// What a store is called.
    pub(super) fn label(&self, number: StoreNumber) -> String {
        match self.member(number) {
            Some(member) => member.site.name.clone(),
            None => format!("number {number} (not in the cluster any more)"),
        }
    }

    pub(super) fn labels<'a>(
        &self,
        numbers: impl IntoIterator<Item = &'a StoreNumber>,
    ) -> Vec<String> {
        let numbers = numbers.into_iter();
        numbers.map(|number| self.label(*number)).collect()
    }

    pub(super) fn member_of(&self, disk: DiskId) -> Option<&Member> {
        self.member(StoreNumber(disk.0 as u16))
    }

    /// Those of `numbers` that changes must reach.
    pub(super) fn needed(&self, numbers: &[StoreNumber]) -> Vec<&Member> {
        let members = numbers.iter().filter_map(|number| self.member(*number));
        members.filter(|member| member.is_needed()).collect()
    }

    /// Where new copies may go.
    pub(super) fn targets(&self, but: &[StoreNumber]) -> Vec<Target> {
        let taken: Vec<_> = (but.iter())
            .filter_map(|number| self.member(*number).map(|member| member.site.domain))
            .collect();
        let fit = self.members.values().filter(|member| {
            member.standing.get() == Standing::In
                && member.link().is_some()
                && !taken.contains(&member.site.domain)
                && !self.is_drained(member.site.number)
                && !self.freeing.borrow().contains(&member.site.number)
        });
        fit.map(Member::target).collect()
    }

    /// One request to a store, no longer than it may take.
    pub(super) async fn within<T>(
        &self,
        request: impl Future<Output = Result<T, LinkError>>,
    ) -> Result<T, LinkError> {
        match env::timeout(self.settings.patience, request).await {
            // A later link of our own has the greater mark: this one is over.
            Ok(Err(LinkError::Fenced { found, why })) if found <= self.generation().0 => {
                Err(LinkError::Gone(why))
            }
            Ok(answer) => answer,
            Err(elapsed) => Err(LinkError::Unknown(format!("{elapsed} from a store"))),
        }
    }

    // --- the record ---------------------------------------------------------------------------------

    pub(super) fn meta_error(&self, source: MetaError) -> VolumeError {
        VolumeError::Meta {
            volume: self.id,
            source,
        }
    }

    /// The record the meta store holds now; another epoch means that another writer has the volume.
    pub(super) fn check_epoch(&self, entry: Option<&Entry>) -> Result<VolumeRecord, VolumeError> {
        let Some(entry) = entry else {
            return Err(self.fence("its record is gone"));
        };
        let record = VolumeRecord::decode(self.id, &entry.value)?;
        let epoch = self.record.borrow().0.epoch;
        if record.epoch != epoch {
            let by = record.writer.as_ref().map_or("nobody", |one| &one.node);
            return Err(self.fence(format!("by {by}, epoch {}", record.epoch)));
        }
        Ok(record)
    }

    /// Takes what the meta store holds now.
    pub(super) fn learn(&self, entry: Option<&Entry>) -> Result<(), VolumeError> {
        let record = self.check_epoch(entry)?;
        let entry = entry.expect("checked");
        if entry.changed != self.record.borrow().1 {
            self.record_in_doubt.set(false);
        }
        *self.record.borrow_mut() = (record, entry.changed);
        self.heed();
        Ok(())
    }

    /// A store that is out by the record is out here too: a change whose answer was lost may have removed it. One that
    /// joins does so in spite of the record.
    fn heed(&self) {
        let out: Vec<StoreNumber> = self.record.borrow().0.out.keys().copied().collect();
        for member in out.iter().filter_map(|number| self.member(*number)) {
            if member.standing.get() == Standing::In {
                self.leaves(member);
            }
        }
    }

    /// A store is out from here on.
    fn leaves(&self, member: &Member) {
        if member.standing.replace(Standing::Out) != Standing::Out {
            tracing::warn!(volume = %self.id, store = %member.site.name, "out of sync");
            self.count(|figures| figures.put_out += 1);
        }
        member.drop_link();
        member.lacks_all();
        // Resync opens it anew, under the mark there is then.
        member.tainted.set(false);
        self.news.notify_all();
    }

    /// Changes the record: `change` makes the new one of the old one and says whether there is anything to change. It may be
    /// asked several times.
    pub(super) async fn change_record(
        &self,
        change: impl Fn(&mut VolumeRecord) -> Result<bool, VolumeError>,
    ) -> Result<(), VolumeError> {
        self.change_record_without(&[], change).await
    }

    /// The same, if none of these stores has left the cluster.
    async fn change_record_without(
        &self,
        gone: &[StoreNumber],
        change: impl Fn(&mut VolumeRecord) -> Result<bool, VolumeError>,
    ) -> Result<(), VolumeError> {
        let _one = self.changing.acquire(1).await;
        let deadline = env::now() + self.settings.deadline;
        let mut last = None;
        loop {
            self.usable()?;
            let (mut next, revision) = self.record.borrow().clone();
            if !change(&mut next)? {
                if !self.record_in_doubt.get() {
                    return Ok(());
                }
                // What was asked before may still come about: a new revision sees to it that it does not.
                next = self.record.borrow().0.clone();
            }
            if let Some(error) = last.take_if(|_| env::now() >= deadline) {
                return Err(self.meta_error(error));
            }
            next.generation = next.generation.next();
            self.note_ages(&mut next);
            let put = Op::Put {
                key: self.key.clone(),
                value: next.encode(),
                lease: None,
            };
            let mut compares = vec![Compare::Unchanged(self.key.clone(), revision)];
            compares.extend(gone.iter().map(|one| Compare::Absent(gone_key(*one))));
            match self.meta.txn(compares, vec![put]).await {
                Ok(Outcome::Done(revision)) => {
                    *self.record.borrow_mut() = (next, revision);
                    self.record_in_doubt.set(false);
                    self.heed();
                    self.news.notify_all();
                    return Ok(());
                }
                Ok(Outcome::Refused(found)) => {
                    self.learn(found.first().and_then(Option::as_ref))?;
                    let left = gone.iter().zip(found.iter().skip(1));
                    let left = left.filter_map(|(one, found)| found.as_ref().map(|_| *one));
                    if let Some(store) = left.inspect(|one| self.leave(*one)).last() {
                        return Err(VolumeError::NoRoom {
                            volume: self.id,
                            why: format!("store {} has left the cluster", self.label(store)),
                        });
                    }
                }
                Err(error) => {
                    self.record_in_doubt.set(true);
                    last = Some(error);
                    if let Ok(found) = self.meta.get(&self.key).await {
                        self.learn(found.as_ref())?;
                    }
                    env::sleep(Nanos::millis(100)).await;
                }
            }
        }
    }

    /// The generation before every mark that a change under way, or one still to be begun, may leave on an object. Of two
    /// changes that run together the older mark may be the one that stays.
    fn complete(&self, record: &VolumeRecord) -> Generation {
        let floors = self.floors.borrow();
        let oldest = floors.keys().next().copied();
        let oldest = oldest.map_or(record.generation, |one| one.min(record.generation));
        Generation(oldest.0.saturating_sub(1))
    }

    /// The least number of in-sync copies of any extent or node, of older images too, with these stores out, as the next opening finds them; as many
    /// as there should be if there is none. No more than the bitmap replicas among them: the next opening must find one.
    pub(super) fn weakest(&self, out: &BTreeMap<StoreNumber, Generation>, copies: u8) -> u8 {
        let extents = self.extents.borrow();
        let all = extents.values().filter(|it| !it.stores.borrow().is_empty());
        let least = all.map(|it| it.in_sync(out)).min();
        let least = least.unwrap_or(copies).min(copies);
        let least = least.min(self.nodes.weakest(out).unwrap_or(copies));
        let least = least.min(self.kept.weakest(out).unwrap_or(copies));
        match self.homes_but(out) {
            Some(homes) if copies > 1 => least.min(homes as u8),
            _ => least,
        }
    }

    /// Puts stores that may have missed a change out, in the record. `false`: one of them has the last in-sync copy of some
    /// extent, and nothing was done.
    pub(super) async fn put_out(&self, numbers: &[StoreNumber]) -> Result<bool, VolumeError> {
        self.spare_nodes(numbers).await?;
        #[cfg(test)]
        let untold = self.planted(super::Bug::AnswerBeforeSwap);
        #[cfg(not(test))]
        let untold = false;
        let last_copy = Cell::new(false);
        let change = |record: &mut VolumeRecord| {
            let since = self.complete(record);
            let before = record.out.len();
            let mut anything = false;
            for number in numbers {
                anything |= record.out.insert(*number, since).is_none_or(|before| {
                    // It was out already: it stays so since then.
                    record.out.insert(*number, before);
                    false
                });
            }
            let newly = record.out.len() - before;
            let weakest = self.weakest_of_all(record, newly);
            last_copy.set(anything && weakest == 0);
            record.weakest = record.weakest.min(weakest);
            Ok(anything && weakest > 0)
        };
        match untold {
            true => drop(change(&mut self.record.borrow().0.clone())),
            false => self.change_record(change).await?,
        }
        if last_copy.get() {
            return Ok(false);
        }
        for member in numbers.iter().filter_map(|number| self.member(*number)) {
            self.leaves(member);
        }
        Ok(true)
    }

    /// A store has left the cluster, and this volume had not heard of it.
    fn leave(&self, store: StoreNumber) {
        self.gone.borrow_mut().insert(store);
    }

    /// Asks which of these have left since the volume was opened.
    pub(super) async fn learn_who_left(
        &self,
        stores: &BTreeSet<StoreNumber>,
    ) -> Result<(), VolumeError> {
        for store in stores.iter().filter(|it| !self.has_left(**it)) {
            let found = self.meta.get(&gone_key(*store)).await;
            if found.map_err(|error| self.meta_error(error))?.is_some() {
                self.leave(*store);
            }
        }
        Ok(())
    }

    /// Notes in the record that stores may have something of the volume, before they have: the next opening must seal them. A
    /// store that has left the cluster meanwhile is not listed any more.
    pub(super) async fn list_stores(&self, numbers: &[StoreNumber]) -> Result<(), VolumeError> {
        let lacks = |record: &VolumeRecord| {
            let listed = record.stores.as_ref();
            listed.is_some_and(|it| numbers.iter().any(|one| !it.contains(one)))
        };
        if !lacks(&self.record.borrow().0) {
            return Ok(());
        }
        self.change_record_without(numbers, |record| {
            let lacks = lacks(record);
            if let Some(listed) = &mut record.stores {
                listed.extend(numbers);
            }
            Ok(lacks)
        })
        .await
    }

    /// Has nodes of which these stores have the last in-sync copies written elsewhere, where extents can do without them.
    async fn spare_nodes(&self, numbers: &[StoreNumber]) -> Result<(), VolumeError> {
        let mut out = self.record.borrow().0.out.clone();
        out.extend(numbers.iter().map(|number| (*number, Generation(0))));
        if self.nodes.weakest(&out) == Some(0) && self.renew_thin_nodes(&out, 1).await? {
            match self.commit().await {
                Err(error) if !error.passes() => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// New links, under a greater mark, to in-sync stores with indeterminate changes: none of those is under way then.
    pub(super) async fn renew(&self) -> Result<(), VolumeError> {
        let tainted = || self.members.values().filter(|member| member.tainted.get());
        // Others may get there, under the newest mark, while the record is changed.
        while let Some(most) = tainted().map(|member| member.mark.get()).max() {
            self.change_record(|record| Ok(record.generation <= most))
                .await?;
            let now = self.generation();
            for member in tainted().filter(|member| member.mark.get() < now) {
                member.mark.set(now);
                member.tainted.set(false);
            }
            self.news.notify_all();
        }
        Ok(())
    }

    /// Opens a link to `member` under its mark.
    pub(super) async fn open_link(&self, member: &Member) -> Result<Rc<dyn Link>, LinkError> {
        let link = self.enter_store(member, member.mark.get()).await?;
        self.look_at_fence(member, &link).await;
        self.introduce(&link, UserId::OWN, true).await?;
        let longest = (link.write_max() / 4096 * 4096).max(4096);
        self.piece.set(self.piece.get().min(longest));
        if let Ok(space) = self.within(link.space()).await {
            member.says(&space);
        }
        Ok(link)
    }

    /// As [`Core::open_link`], under a mark greater than that of any link it had.
    pub(super) async fn open_anew(&self, member: &Member) -> Result<Rc<dyn Link>, LinkError> {
        let before = member.mark.get();
        let newer = self.change_record(|record| Ok(record.generation <= before));
        if let Err(error) = newer.await {
            return Err(LinkError::Refused(error.to_string()));
        }
        let mark = self.generation();
        let link = self.enter_store(member, mark).await?;
        self.look_at_fence(member, &link).await;
        self.introduce(&link, UserId::OWN, true).await?;
        member.mark.set(mark);
        member.tainted.set(false);
        Ok(link)
    }

    /// Opens links of in-sync stores again, as long as the volume is open.
    pub(super) async fn keep_links(self: Rc<Self>) {
        let mut turn = 0_u32;
        while self.usable().is_ok() {
            let broken: Vec<StoreNumber> = self
                .members
                .values()
                .filter(|it| it.is_needed() && it.link().is_none() && !it.tainted.get())
                .map(|it| it.site.number)
                .collect();
            for number in &broken {
                let member = self.member(*number).expect("just listed");
                let mark = member.mark.get();
                match self.open_link(member).await {
                    // Out of the in-sync set, or tainted again, while it was opened.
                    Ok(_) if !member.is_needed() || member.tainted.get() => {}
                    Ok(_) if member.mark.get() != mark => {}
                    Ok(link) => {
                        member.set_link(link);
                        self.news.notify_all();
                    }
                    Err(LinkError::Fenced { why, .. }) => {
                        self.fence(why);
                    }
                    Err(error) => {
                        tracing::debug!(volume = %self.id, store = %self.label(*number), %error, "no link");
                    }
                }
            }
            // 50 ms, 100 ms ... 1.6 s between tries that fail.
            turn = if broken.is_empty() {
                0
            } else {
                (turn + 1).min(5)
            };
            let wait = match broken.is_empty() {
                true => self.settings.tick,
                false => Nanos::millis(50 << turn),
            };
            let _ = env::timeout(wait, self.news.wait()).await;
            env::sleep(Nanos::millis(10)).await;
        }
    }

    // --- the lease ----------------------------------------------------------------------------------

    /// Keeps the lease, as long as the volume is open.
    pub(super) async fn keep_lease(self: Rc<Self>) {
        while self.usable().is_ok() {
            let lease = self.record.borrow().0.writer.as_ref().map(|it| it.lease);
            let Some(lease) = lease else { return };
            let asked = env::clocks();
            let wait = match self.meta.keep(LeaseId(lease)).await {
                // It may be kept although another writer has the volume: that one could not end it.
                Ok(ttl) => match self.still_ours().await {
                    Ok(()) => {
                        let ttl = ttl.min(self.settings.lease);
                        let counted = ttl.saturating_sub(self.settings.margin);
                        self.lease.keep(asked, counted);
                        self.news.notify_all();
                        Nanos(self.settings.lease.0 / 4)
                    }
                    Err(error) => {
                        tracing::debug!(volume = %self.id, %error, "the record was not read");
                        Nanos::millis(200)
                    }
                },
                Err(MetaError::NoLease { .. }) => {
                    if let Err(error) = self.new_lease().await {
                        tracing::warn!(volume = %self.id, %error, "no lease");
                    }
                    Nanos::millis(200)
                }
                Err(error) => {
                    tracing::debug!(volume = %self.id, %error, "the lease was not kept");
                    Nanos::millis(200)
                }
            };
            let _ = env::timeout(wait, self.lease.dropped()).await;
        }
    }

    /// Asks the meta store whether the record still has our epoch. What it says besides is not taken: a change of it may be
    /// under way.
    async fn still_ours(&self) -> Result<(), VolumeError> {
        let found = self.meta.get(&self.key).await;
        let found = found.map_err(|error| self.meta_error(error))?;
        self.check_epoch(found.as_ref()).map(drop)
    }

    /// Takes a lease again, if no other writer has the volume yet.
    async fn new_lease(&self) -> Result<(), VolumeError> {
        let lease = writer_lease(&*self.meta, &self.settings).await;
        let lease = lease.map_err(|error| self.meta_error(error))?;
        self.change_record(|record| {
            let writer = Writer {
                node: self.settings.node.clone(),
                lease: lease.0,
                // It is still awaited, or was: a new lease does not change that.
                waits: record.writer.as_ref().is_some_and(|it| it.waits),
            };
            let changes = record.writer.as_ref() != Some(&writer);
            record.writer = Some(writer);
            Ok(changes)
        })
        .await
    }

    /// No earlier writer answers any more.
    pub(super) async fn waits_no_more(&self) -> Result<(), VolumeError> {
        self.change_record(|record| {
            let writer = record.writer.as_mut();
            Ok(writer.is_some_and(|it| std::mem::take(&mut it.waits)))
        })
        .await
    }

    // --- for operators ---------------------------------------------------------------------------------

    pub(super) fn health(&self) -> Health {
        let record = self.record.borrow().0.clone();
        let told = |condition, why: String| Health { condition, why };
        if let Err(error) = self.usable() {
            return told(Condition::Offline, error.to_string());
        }
        let lease = self.health_of_lease();
        if let Some(health) = lease
            .as_ref()
            .filter(|it| it.condition == Condition::Offline)
        {
            return health.clone();
        }
        let out: Vec<StoreNumber> = record.out.keys().copied().collect();
        let weakest = self.weakest(&record.out, record.copies);
        let silent = self.silent();
        if !silent.is_empty() && silent.len() >= usize::from(weakest) {
            let why = format!(
                "an extent may have only {weakest} in-sync copies, and these do not answer: {}",
                stores(&self.out_in_words(&silent))
            );
            return told(Condition::Offline, why);
        }
        if weakest < record.min_isr {
            let why = format!(
                "an extent has {weakest} in-sync copies, and writes must reach {}; out: {}",
                record.min_isr,
                stores(&self.out_in_words(&out))
            );
            return told(Condition::ReadOnly, why);
        }
        if let Some(mut why) = self.full_in_words() {
            if !out.is_empty() {
                why = format!("{why}; out: {}", stores(&self.out_in_words(&out)));
            }
            return told(Condition::Full, why);
        }
        let back = |number: &StoreNumber| {
            self.member(*number)
                .is_some_and(|it| !it.synced.borrow().is_empty())
        };
        if out.iter().any(back) {
            let held = out.iter().filter_map(|number| self.member(*number));
            let held = held.filter_map(|it| it.held_up.borrow().clone()).next();
            let held = held.map_or(String::new(), |why| format!("; {why}"));
            let why = format!("bringing back {}{held}", stores(&self.out_in_words(&out)));
            return told(Condition::Resyncing, why);
        }
        if !out.is_empty() || !silent.is_empty() {
            let of = |what: &str, which: &[StoreNumber]| match which.is_empty() {
                true => None,
                false => Some(format!("{what}: {}", stores(&self.out_in_words(which)))),
            };
            let why = [of("out", &out), of("not answering", &silent)];
            let why = why.into_iter().flatten().chain(self.refused_store());
            let why: Vec<String> = why.collect();
            return told(Condition::Degraded, why.join("; "));
        }
        if weakest < record.copies {
            let why = format!("an extent has {weakest} of {} copies", record.copies);
            return told(Condition::Degraded, why);
        }
        if let Some(why) = self.lost_in_words() {
            return told(Condition::Degraded, why);
        }
        lease.unwrap_or_else(|| told(Condition::Healthy, String::new()))
    }

    /// Stores that are in sync, have something of the volume, and do not answer for some time.
    fn silent(&self) -> Vec<StoreNumber> {
        let record = self.record.borrow();
        let listed = record.0.stores.as_ref();
        let uses = |it: &&Member| {
            let number = it.site.number;
            listed.is_none_or(|all| all.contains(&number)) && it.is_needed()
        };
        let long = self.settings.patience;
        let silent =
            |it: &&Member| it.link().is_none() && env::now().since(it.answered.get()) > long;
        let all = self.members.values().filter(uses).filter(silent);
        all.map(|it| it.site.number).collect()
    }
}
