//! One action, carried out.

use std::collections::BTreeSet;

use base::{Instant, Nanos};
use policy::place::DomainId;
use replication::bitmap::Keeper;
use replication::extent::Copies;
use replication::membership::{self, Shrunk};
use replication::reconcile::{self, Ended, Reconcile};
use replication::record::{self, VolumeRecord};
use replication::replica::{SyncState, must_resync};
use replication::spread::{Answer, Spread, Step, Tried};
use replication::{Generation, Replication, StoreNumber, opening};

use super::rules::{Action, Mutation, Rules};
use super::world::{
    At, Broken, COPIES, EXTENT, Equal, LEASE, MARGIN, Message, STORES, Stage, UNDER_WAY, Work,
    World, Write, Writer,
};

/// What a change of the record came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Answered,
    /// It is under way, and no answer comes.
    Lost,
}

/// A state while an action changes it.
pub struct Turn {
    pub rules: Rules,
    pub world: World,
}

/// `None` unless it holds.
fn only(holds: bool) -> Option<()> {
    holds.then_some(())
}

/// The least number of in-sync copies of anything there is.
fn floor(copies: &Copies, volume: &Replication<Generation>, record: &VolumeRecord) -> u8 {
    let has_any = !copies.stores.is_empty();
    let counts = has_any.then(|| copies.in_sync(&record.out));
    let bitmap_replicas = volume.bitmap.replicas_without(&record.out);
    membership::floor(record.copies, counts, bitmap_replicas)
}

impl Turn {
    pub fn take(&mut self, action: Action) -> Option<()> {
        match action {
            Action::Tick { slow } => self.tick(slow),
            Action::Open { writer } => self.open(writer),
            Action::Recover { writer, sealed } => self.recover(writer, sealed),
            Action::Start { writer } => {
                let it = self.writer(writer);
                only(it.wait == 0)?;
                it.stage = Stage::Open;
                Some(())
            }
            Action::Begin { writer } => self.begin(writer),
            Action::Deliver { store, place, lost } => self.deliver(store, place, lost),
            Action::Fail { writer, store } => self.fail(writer, store),
            Action::Resolve { writer } => self.resolve(writer),
            Action::Swap { writer, lost } => self.swap(writer, lost),
            Action::Unknown { writer } => self.with_change(writer, |change, volume, copies| {
                change.shrunk(None, volume, copies)
            }),
            Action::Again { writer } => self.attempt(writer),
            Action::GiveUp { writer } => {
                self.end_write(writer);
                Some(())
            }
            Action::Expel { writer, store } => self.expel(writer, store),
            Action::Renew { writer } => self.renew(writer),
            Action::Connect { writer, store } => self.connect(writer, store),
            Action::Reconcile { writer } => self.reconcile(writer),
            Action::Look { writer, source } => self.look(writer, source),
            Action::Equalize { writer, fails } => self.equalize(writer, fails),
            Action::Clean { writer } => self.clean(writer),
            Action::Resync { writer, store } => self.resync(writer, store),
            Action::Join { writer, store } => self.join(writer, store),
            Action::JoinSwap {
                writer,
                store,
                lost,
            } => self.join_swap(writer, store, lost),
            Action::Fill {
                writer,
                store,
                lost,
            } => self.fill(writer, store, lost),
            Action::Discard { writer } => self.discard(writer),
            Action::RaiseFloor { writer } => self.raise_floor(writer),
            Action::Lands { writer } => self.lands(writer),
            Action::Read { writer, store } => self.read(writer, store),
            Action::Crash { writer } => {
                self.fault()?;
                self.world.writers[writer] = None;
                Some(())
            }
            Action::Learn { writer } => {
                self.world.writers[writer] = None;
                Some(())
            }
        }
    }

    fn mutated(&self, mutation: Mutation) -> bool {
        self.rules.mutated(mutation)
    }

    fn writer(&mut self, writer: usize) -> &mut Writer {
        self.world.writers[writer]
            .as_mut()
            .expect("it has the volume")
    }

    /// One of the faults that there may be.
    fn fault(&mut self) -> Option<()> {
        self.world.faults = self.world.faults.checked_sub(1)?;
        Some(())
    }

    /// Does a store take what this writer asks on its connection?
    fn takes(&self, writer: usize, store: StoreNumber) -> bool {
        let writer = self.world.writers[writer]
            .as_ref()
            .expect("it has the volume");
        let seal = self.world.stores[usize::from(store.0)].seal;
        writer
            .volume
            .connection(store)
            .is_some_and(|token| seal <= *token)
    }

    /// A client hears from a writer: `value` is there.
    fn observed(&mut self, writer: usize, value: u8) {
        let epoch = self.writer(writer).epoch();
        let world = &mut self.world;
        if value < world.known {
            world.broken = Some(Broken::WentBack);
        } else if epoch < world.answered {
            world.broken = Some(Broken::BothAnswer);
        }
        world.known = world.known.max(value);
        world.answered = world.answered.max(epoch);
    }

    // --- opening ------------------------------------------------------------------------------------------

    fn open(&mut self, writer: usize) -> Option<()> {
        let world = &mut self.world;
        only(world.openings < self.rules.bounds.openings)?;
        // Which of them is the first does not matter.
        only(writer == 0 || world.openings > 0)?;
        world.openings += 1;
        let before = world.record.clone();
        let waits = before.writer.is_some();
        let node = record::Writer {
            node: "n".to_owned(),
            lease: 0,
            waits,
        };
        world.record = opening::take(&before, node);
        let revision = world.revision();
        let mut volume = Replication::new(world.record.clone(), revision, Generation(0));
        for store in STORES {
            volume.add_store(store, world.record.epoch);
        }
        world.writers[writer] = Some(Writer {
            volume,
            before,
            stage: Stage::Sealing,
            copies: Copies::default(),
            work: Work::Idle,
            lease: 0,
            behind: 0,
            wait: if waits { LEASE } else { 0 },
        });
        Some(())
    }

    fn recover(&mut self, writer: usize, sealed: u8) -> Option<()> {
        let no_seal = self.mutated(Mutation::NoSeal);
        let world = &mut self.world;
        let it = world.writers[writer].as_mut()?;
        let epoch = it.epoch();
        only(epoch == world.record.epoch)?;
        let is_sealed = |store: &StoreNumber| sealed & (1 << store.0) != 0;
        let (sealed, missing): (Vec<_>, Vec<_>) = STORES.into_iter().partition(is_sealed);
        only(sealed.iter().all(|store| it.volume.is_needed(*store)))?;
        let needed = |store: &StoreNumber| it.volume.is_needed(*store);
        let missing: Vec<_> = missing.into_iter().filter(needed).collect();
        let floor_now = it.volume.record.get().redundancy_floor;
        only(opening::can_open(
            &it.before,
            floor_now,
            sealed.len(),
            missing.len(),
        ))?;
        let mut dirty = false;
        for store in &sealed {
            let far = &mut world.stores[usize::from(store.0)];
            assert!(far.seal <= epoch, "a later epoch would be in the record");
            if !no_seal {
                far.seal = epoch;
            }
            let state = it.volume.replicas.get_mut(store)?;
            state.connect(epoch);
            if far.stamp > Generation(0) {
                it.copies.stores.push(*store);
            }
            dirty |= far.dirty;
        }
        let unreconciled = dirty && !it.copies.stores.is_empty();
        let since = it.before.generation;
        self.change(writer, false, |_, record| {
            membership::go_on_without(record, &missing, since)
        })?;
        self.change(writer, false, |it, record| {
            let floor = floor(&it.copies, &it.volume, record);
            opening::recovered(record, floor)
        })?;
        let all: BTreeSet<u32> = unreconciled.then_some(EXTENT).into_iter().collect();
        let it = self.writer(writer);
        it.volume.bitmap.preset(all.clone());
        it.volume.unreconciled.preset(all);
        self.write_bits(writer, false)?;
        let whole = self.mutated(Mutation::WholeLease);
        let margin = if whole { 0 } else { MARGIN };
        let it = self.writer(writer);
        it.stage = Stage::Waiting;
        it.lease = opening::counted(Nanos(LEASE), Nanos(LEASE), Nanos(margin)).0;
        it.behind = MARGIN;
        Some(())
    }

    /// A lease is as new as can be for as long as the record has the holder's epoch. A shorter one only keeps it from answering.
    fn tick(&mut self, slow: Option<usize>) -> Option<()> {
        let epoch = self.world.record.epoch;
        let writers = &mut self.world.writers;
        only(writers.iter().flatten().any(|it| it.wait > 0))?;
        if let Some(writer) = slow {
            let it = writers[writer].as_mut()?;
            only(it.lease > 0 && it.epoch() != epoch)?;
            it.behind = it.behind.checked_sub(1)?;
            it.lease += 1;
        }
        for it in writers.iter_mut().flatten() {
            if it.epoch() != epoch {
                it.lease = it.lease.saturating_sub(1);
            }
            it.wait = it.wait.saturating_sub(1);
        }
        Some(())
    }

    // --- the record ---------------------------------------------------------------------------------------

    /// `RecordIo::change_record`. `lost`: what is asked for is under way from now on.
    fn change(
        &mut self,
        writer: usize,
        lost: bool,
        change: impl Fn(&Writer, &mut VolumeRecord) -> bool,
    ) -> Option<Asked> {
        let lets_it_land = self.mutated(Mutation::LetsItLand);
        let (now, revision) = (self.world.record.clone(), self.world.revision());
        let it = self.writer(writer);
        // A writer that finds another epoch is fenced: `Learn`.
        only(it.epoch() == now.epoch)?;
        if it.volume.record.revision() != revision {
            it.volume.learn(now, revision).expect("of the same epoch");
        }
        let mut next = it.volume.record.get().clone();
        let next = change(it, &mut next).then_some(next);
        let proposed = match (next, lets_it_land) {
            (None, true) => None,
            (next, _) => it.volume.record.propose(next),
        };
        let Some(proposed) = proposed else {
            only(!lost)?;
            return Some(Asked::Answered);
        };
        if lost {
            it.volume.record.lost();
            only(self.world.asked[writer].is_none())?;
            self.world.asked[writer] = Some((revision, proposed));
            self.fault()?;
            return Some(Asked::Lost);
        }
        self.world.record = proposed.clone();
        let revision = self.world.revision();
        let it = self.writer(writer);
        it.volume.swapped(proposed, revision);
        Some(Asked::Answered)
    }

    /// `Membership::shrink_set`. `Some(false)`: one of them has the last copy of something. `None`: that is not known.
    fn shrink_set(
        &mut self,
        writer: usize,
        stores: &[StoreNumber],
        lost: bool,
    ) -> Option<Option<bool>> {
        let careless = self.mutated(Mutation::DropsTheLastCopy);
        let shrunk = std::cell::Cell::new(Shrunk::Nothing);
        let asked = self.change(writer, lost, |it, record| {
            let since = it.volume.out_since(record);
            let floor = |record: &VolumeRecord, _| {
                let floor = floor(&it.copies, &it.volume, record);
                if careless { floor.max(1) } else { floor }
            };
            shrunk.set(membership::shrink(record, stores, since, floor));
            shrunk.get() == Shrunk::Out
        })?;
        if asked == Asked::Lost {
            only(shrunk.get() == Shrunk::Out)?;
            return Some(None);
        }
        if shrunk.get() == Shrunk::LastCopy {
            return Some(Some(false));
        }
        for store in stores {
            self.writer(writer).volume.leave(*store);
        }
        Some(Some(true))
    }

    fn raise_floor(&mut self, writer: usize) -> Option<()> {
        let it = self.writer(writer);
        let record = it.volume.record.get();
        only(floor(&it.copies, &it.volume, record) > record.redundancy_floor)?;
        self.change(writer, false, |it, record| {
            let floor = floor(&it.copies, &it.volume, record);
            membership::raise_floor(record, floor)
        })?;
        Some(())
    }

    fn lands(&mut self, writer: usize) -> Option<()> {
        let (revision, next) = self.world.asked[writer].take()?;
        only(revision == self.world.revision())?;
        self.world.record = next;
        Some(())
    }

    // --- dirty bits ---------------------------------------------------------------------------------------

    /// `BitmapIo::write_bits`, where all bitmap replicas take them.
    fn write_bits(&mut self, writer: usize, set: bool) -> Option<()> {
        let it = self.writer(writer);
        let keepers: Vec<Keeper> = STORES
            .iter()
            .filter(|store| it.volume.is_in_sync(**store))
            .map(|store| Keeper {
                store: *store,
                domain: DomainId(u32::from(store.0)),
                linked: it.volume.connection(*store).is_some(),
                drained: false,
            })
            .collect();
        let (replicas, _) = it
            .volume
            .bitmap
            .next_replicas(usize::from(COPIES), &keepers);
        let dirty = set || it.volume.bitmap.is_set(EXTENT);
        only(replicas.iter().all(|store| self.takes(writer, *store)))?;
        for store in &replicas {
            self.world.store(*store).dirty = dirty;
        }
        self.writer(writer).volume.bitmap.set_replicas(replicas);
        Some(())
    }

    fn clean(&mut self, writer: usize) -> Option<()> {
        let it = self.writer(writer);
        only(it.volume.bitmap.is_set(EXTENT))?;
        let unacknowledged = it.copies.unacknowledged;
        let clean = it
            .volume
            .take_clean(Instant::default(), Nanos(0), true, |_| unacknowledged);
        only(!clean.is_empty())?;
        self.write_bits(writer, false)
    }

    // --- writes -------------------------------------------------------------------------------------------

    fn begin(&mut self, writer: usize) -> Option<()> {
        let value = self.world.next;
        only(value <= self.rules.bounds.writes)?;
        let notes = !self.mutated(Mutation::NoDirtyBit);
        let it = self.writer(writer);
        only(!it.volume.needed(&it.copies.stores).is_empty())?;
        it.volume.bitmap.begin_use(EXTENT);
        if notes && !it.volume.bitmap.is_set(EXTENT) {
            let bitmap = &mut it.volume.bitmap;
            let wanted = bitmap.take_wanted(EXTENT, EXTENT + 1, Instant::default(), |_| true);
            self.write_bits(writer, true)?;
            self.writer(writer).volume.bitmap.set(&wanted);
        }
        self.world.next += 1;
        let it = self.writer(writer);
        it.work = Work::Write(Write {
            value,
            change: Spread::new(EXTENT),
            at: At::Pause,
        });
        self.attempt(writer)
    }

    fn attempt(&mut self, writer: usize) -> Option<()> {
        self.with_change(writer, |change, volume, copies| {
            change.attempt(volume, copies)
        })
    }

    /// The next step of a write, as the machine says.
    fn with_change(
        &mut self,
        writer: usize,
        next: impl FnOnce(&mut Spread, &mut Replication<Generation>, &mut Copies) -> Step,
    ) -> Option<()> {
        let it = self.writer(writer);
        let Work::Write(write) = &mut it.work else {
            return None;
        };
        let step = next(&mut write.change, &mut it.volume, &mut it.copies);
        self.carry_out(writer, step)
    }

    fn carry_out(&mut self, writer: usize, step: Step) -> Option<()> {
        match step {
            Step::Send(stores) => self.send(writer, &stores),
            Step::Shrink(stores) if self.mutated(Mutation::AnswerBeforeSwap) => {
                for store in &stores {
                    self.writer(writer).volume.leave(*store);
                }
                self.with_change(writer, |change, volume, copies| {
                    change.shrunk(Some(true), volume, copies)
                })
            }
            Step::Shrink(stores) => {
                let write = self.write(writer)?;
                let At::Sent { under_way, .. } = write.at else {
                    return None;
                };
                write.at = At::Shrink { under_way, stores };
                Some(())
            }
            // That it may fail, and be done later, `Action::Renew` sees to.
            Step::Renew => self.with_change(writer, |change, _, _| change.renewed()),
            Step::Forget => unreachable!("the extent is acknowledged"),
            Step::Over(tried) => self.over(writer, tried),
        }
    }

    fn write(&mut self, writer: usize) -> Option<&mut Write> {
        match &mut self.writer(writer).work {
            Work::Write(write) => Some(write),
            _ => None,
        }
    }

    fn send(&mut self, writer: usize, stores: &[StoreNumber]) -> Option<()> {
        let it = self.writer(writer);
        let under_way = it.volume.begin_change();
        let value = self.write(writer)?.value;
        let mut to = Vec::new();
        for store in stores {
            let token = self.writer(writer).volume.connection(*store).copied();
            let missed = token.is_none().then_some(Answer::Missed);
            to.push((*store, missed));
            let Some(token) = token else { continue };
            let messages = &mut self.world.messages[usize::from(store.0)];
            only(messages.len() < UNDER_WAY)?;
            messages.push(Message {
                from: writer,
                token,
                stamp: under_way.stamp,
                value,
            });
        }
        self.write(writer)?.at = At::Sent { under_way, to };
        Some(())
    }

    fn over(&mut self, writer: usize, tried: Tried) -> Option<()> {
        let it = self.writer(writer);
        let Work::Write(write) = &mut it.work else {
            return None;
        };
        if let At::Sent { under_way, .. } | At::Shrink { under_way, .. } = write.at {
            it.volume.stamps.end(under_way);
        }
        write.at = At::Pause;
        let value = write.value;
        match tried {
            // It waits for a store to come back, and others may write meanwhile: that it is never answered is one of the ways it can end.
            Tried::TooFew(_) | Tried::NotSent(_) => self.end_write(writer),
            Tried::Done => {
                self.end_write(writer);
                // It is answered if the lease is good, else it is an error.
                if self.writer(writer).lease > 0 {
                    self.observed(writer, value);
                }
            }
            Tried::Indeterminate => {}
            Tried::Full | Tried::FullWhereNew => unreachable!("stores have room"),
        }
        Some(())
    }

    fn end_write(&mut self, writer: usize) {
        let it = self.writer(writer);
        it.volume.bitmap.end_use(EXTENT, Instant::default());
        it.work = Work::Idle;
    }

    fn deliver(&mut self, store: StoreNumber, place: usize, lost: bool) -> Option<()> {
        let messages = &mut self.world.messages[usize::from(store.0)];
        let message = messages.remove(place);
        // The same again is the same state.
        only(place == 0 || messages[place - 1] != message)?;
        let far = self.world.store(store);
        if far.seal > message.token || far.stamp == Generation(0) {
            return only(!lost);
        }
        (far.value, far.stamp) = (message.value, message.stamp);
        match self.awaited(message, store) {
            Some(_) if lost => self.fault(),
            Some(answer) => {
                *answer = Some(Answer::Taken);
                Some(())
            }
            None => only(!lost),
        }
    }

    /// The answer to a message, if its writer still waits for it.
    fn awaited(&mut self, message: Message, store: StoreNumber) -> Option<&mut Option<Answer>> {
        let it = self.world.writers[message.from].as_mut()?;
        let same = it.volume.connection(store) == Some(&message.token);
        let Work::Write(write) = &mut it.work else {
            return None;
        };
        let At::Sent { to, .. } = &mut write.at else {
            return None;
        };
        let mut to = to
            .iter_mut()
            .filter(|_| same && write.value == message.value);
        let (_, answer) = to.find(|(one, answer)| *one == store && answer.is_none())?;
        Some(answer)
    }

    fn fail(&mut self, writer: usize, store: StoreNumber) -> Option<()> {
        let write = self.write(writer)?;
        let value = write.value;
        let At::Sent { to, .. } = &mut write.at else {
            return None;
        };
        let (_, answer) = to
            .iter_mut()
            .find(|(one, answer)| *one == store && answer.is_none())?;
        *answer = Some(Answer::Missed);
        self.writer(writer)
            .volume
            .replicas
            .get_mut(&store)?
            .lose(true, true);
        let mut under_way = self.world.messages[usize::from(store.0)].iter();
        match under_way.any(|it| it.from == writer && it.value == value) {
            true => self.fault(),
            // Its answer was lost, or it was refused.
            false => Some(()),
        }
    }

    fn resolve(&mut self, writer: usize) -> Option<()> {
        let At::Sent { to, .. } = &self.write(writer)?.at else {
            return None;
        };
        let answers: Option<Vec<Answer>> = to.iter().map(|(_, answer)| *answer).collect();
        let answers = answers?;
        self.with_change(writer, |change, volume, copies| {
            change.answered(&answers, volume, copies).1
        })
    }

    fn swap(&mut self, writer: usize, lost: bool) -> Option<()> {
        let stores = match &self.writer(writer).work {
            Work::Write(Write {
                at: At::Shrink { stores, .. },
                ..
            }) => stores.clone(),
            Work::Reconcile(Equal {
                step: reconcile::Step::Shrink(stores),
                ..
            }) => {
                only(!lost)?;
                let stores = stores.clone();
                let out = self.shrink_set(writer, &stores, false)??;
                return self.with_equal(writer, |machine, volume, _| machine.shrunk(out, volume));
            }
            _ => return None,
        };
        match self.shrink_set(writer, &stores, lost)? {
            // Asked again, or given up: `Unknown`.
            None => Some(()),
            out => self.with_change(writer, |change, volume, copies| {
                change.shrunk(out, volume, copies)
            }),
        }
    }

    // --- the in-sync set ----------------------------------------------------------------------------------

    /// A bitmap replica that misses bits, of whichever extent, or a store that may have a copy too many, leaves.
    fn expel(&mut self, writer: usize, store: StoreNumber) -> Option<()> {
        let it = self.writer(writer);
        only(it.volume.is_needed(store))?;
        let discards = it.work == Work::Discard(store);
        let wanted = discards || it.volume.bitmap.is_replica(store);
        only(wanted)?;
        if it.volume.connection(store).is_some() {
            self.fault()?;
        }
        only(self.shrink_set(writer, &[store], false)? == Some(true))?;
        if discards {
            self.writer(writer).work = Work::Idle;
        }
        Some(())
    }

    fn renew(&mut self, writer: usize) -> Option<()> {
        let most = self.writer(writer).volume.most_tainted()?;
        if self.mutated(Mutation::SameToken) {
            for replica in self.writer(writer).volume.replicas.values_mut() {
                let token = replica.token();
                replica.opened_anew(token);
            }
            return Some(());
        }
        self.change(writer, false, |_, record| record.generation <= most)?;
        self.writer(writer).volume.renew_tokens();
        Some(())
    }

    fn connect(&mut self, writer: usize, store: StoreNumber) -> Option<()> {
        let it = self.writer(writer);
        let state = it.volume.replicas.get_mut(&store)?;
        only(state.is_needed() && state.connection().is_none() && !state.is_tainted())?;
        let token = state.token();
        state.connect(token);
        let far = self.world.store(store);
        only(far.seal <= token)?;
        far.seal = token;
        Some(())
    }

    fn resync(&mut self, writer: usize, store: StoreNumber) -> Option<()> {
        let misses = self.mutated(Mutation::ResyncMisses);
        let it = self.writer(writer);
        let state = &it.volume.replicas[&store];
        only(it.work == Work::Idle && !it.is_unreconciled())?;
        only(!state.synced.contains(&EXTENT) || state.connection().is_none())?;
        let before = state.token();
        self.change(writer, false, |_, record| record.generation <= before)?;
        let token = self.writer(writer).volume.generation();
        let far = self.world.store(store);
        only(far.seal <= token)?;
        far.seal = token;
        let it = self.writer(writer);
        let since = *it.volume.record.get().out.get(&store)?;
        let state = it.volume.replicas.get_mut(&store)?;
        state.opened_anew(token);
        state.lacks_all();
        state.connect(token);
        if !it.copies.stores.contains(&store) {
            // What no extent knows goes.
            self.world.store(store).stamp = Generation(0);
            return Some(());
        }
        if self.mutated(Mutation::JoinsEarly) {
            return Some(());
        }
        let source = self.source(writer)?;
        let from = *self.world.store(source);
        let far = self.world.store(store);
        let whole = far.stamp > Generation(0);
        let since = if misses { since.next() } else { since };
        if must_resync(from.stamp, since, whole) {
            (far.value, far.stamp) = (from.value, from.stamp);
        }
        let state = self.writer(writer).volume.replicas.get_mut(&store)?;
        state.resynced(EXTENT, []);
        Some(())
    }

    /// The first store that can be asked and has a whole copy.
    fn source(&mut self, writer: usize) -> Option<StoreNumber> {
        let it = self.writer(writer);
        let needed = it.volume.needed(&it.copies.stores);
        let mut sources = needed
            .into_iter()
            .filter(|store| self.takes(writer, *store));
        sources.find(|store| self.world.stores[usize::from(store.0)].stamp > Generation(0))
    }

    fn join(&mut self, writer: usize, store: StoreNumber) -> Option<()> {
        let early = self.mutated(Mutation::JoinsEarly);
        let it = self.writer(writer);
        let has = it.copies.stores.contains(&store);
        let state = it.volume.replicas.get_mut(&store)?;
        only(state.connection().is_some())?;
        only(state.may_join(early || !has || state.synced.contains(&EXTENT)))?;
        state.begin_join();
        Some(())
    }

    fn join_swap(&mut self, writer: usize, store: StoreNumber, lost: bool) -> Option<()> {
        let asked = self.change(writer, lost, |it, record| {
            let joins = it.volume.replicas[&store].sync_state() == SyncState::Joining;
            let floor = |out: &_, _| {
                let with = VolumeRecord {
                    out: std::collections::BTreeMap::clone(out),
                    ..it.volume.record.get().clone()
                };
                floor(&it.copies, &it.volume, &with)
            };
            membership::expand(record, store, joins, true, floor)
        })?;
        if asked == Asked::Answered {
            self.writer(writer)
                .volume
                .replicas
                .get_mut(&store)?
                .joined();
        }
        Some(())
    }

    // --- copies -------------------------------------------------------------------------------------------

    fn reconcile(&mut self, writer: usize) -> Option<()> {
        let it = self.writer(writer);
        let mut machine = Reconcile::new(EXTENT);
        let step = machine.begin(&mut it.volume, &it.copies);
        it.work = Work::Reconcile(Equal {
            machine,
            step: reconcile::Step::Renew,
            source: None,
            under_way: None,
        });
        self.equal_step(writer, step)
    }

    fn with_equal(
        &mut self,
        writer: usize,
        next: impl FnOnce(&mut Reconcile, &Replication<Generation>, &mut Copies) -> reconcile::Step,
    ) -> Option<()> {
        let it = self.writer(writer);
        let Work::Reconcile(equal) = &mut it.work else {
            return None;
        };
        let step = next(&mut equal.machine, &it.volume, &mut it.copies);
        self.equal_step(writer, step)
    }

    fn equal_step(&mut self, writer: usize, step: reconcile::Step) -> Option<()> {
        let it = self.writer(writer);
        match step {
            reconcile::Step::Renew => self.with_equal(writer, |machine, _, _| machine.renewed()),
            reconcile::Step::Over(ended) => {
                if ended == Ended::Equal {
                    it.volume.unreconciled.reconciled(EXTENT);
                }
                assert!(ended != Ended::NoneHasIt, "it was written before");
                let work = std::mem::replace(&mut it.work, Work::Idle);
                if let Work::Reconcile(Equal {
                    under_way: Some(under_way),
                    ..
                }) = work
                {
                    it.volume.stamps.end(under_way);
                }
                Some(())
            }
            step => {
                let Work::Reconcile(equal) = &mut it.work else {
                    return None;
                };
                equal.step = step;
                Some(())
            }
        }
    }

    fn look(&mut self, writer: usize, source: StoreNumber) -> Option<()> {
        let it = self.writer(writer);
        let Work::Reconcile(equal) = &mut it.work else {
            return None;
        };
        let reconcile::Step::Look(stores) = equal.step.clone() else {
            return None;
        };
        equal.under_way = Some(it.volume.begin_change());
        // Which of them is the first does not matter to the machine.
        equal.source = Some(source);
        only(stores.contains(&source) && stores.iter().all(|store| self.takes(writer, *store)))?;
        only(self.world.store(source).stamp > Generation(0))?;
        self.with_equal(writer, |machine, _, copies| machine.found(true, copies))
    }

    fn equalize(&mut self, writer: usize, fails: Option<StoreNumber>) -> Option<()> {
        let it = self.writer(writer);
        let Work::Reconcile(equal) = &it.work else {
            return None;
        };
        let (source, stamp) = (equal.source?, equal.under_way?.stamp);
        let stores = it.volume.needed(&it.copies.stores);
        only(stores.iter().all(|store| self.takes(writer, *store)))?;
        if let Some(fails) = fails {
            only(stores.contains(&fails) && fails != source)?;
            self.fault()?;
            let state = self.writer(writer).volume.replicas.get_mut(&fails)?;
            state.lose(true, true);
        }
        let stamp = match self.mutated(Mutation::OldStamp) {
            true => self.world.store(source).stamp,
            false => stamp,
        };
        let value = self.world.store(source).value;
        for store in stores.iter().filter(|store| Some(**store) != fails) {
            let far = self.world.store(*store);
            (far.value, far.stamp) = (value, stamp);
        }
        let failed = fails.into_iter().collect();
        self.with_equal(writer, |machine, _, _| machine.equalized(Some(failed)))
    }

    fn fill(&mut self, writer: usize, store: StoreNumber, lost: bool) -> Option<()> {
        let it = self.writer(writer);
        let has = &it.copies.stores;
        only(!has.is_empty() && has.len() < usize::from(COPIES) && !has.contains(&store))?;
        only(it.volume.is_in_sync(store) && self.takes(writer, store))?;
        let source = self.source(writer)?;
        let value = self.world.store(source).value;
        let stamp = self.writer(writer).volume.generation();
        let far = self.world.store(store);
        (far.value, far.stamp) = (value, stamp);
        let it = self.writer(writer);
        if lost {
            it.work = Work::Discard(store);
            it.volume.replicas.get_mut(&store)?.lose(true, true);
            return self.fault();
        }
        it.copies.stores.push(store);
        it.copies.stores.sort_unstable();
        Some(())
    }

    fn discard(&mut self, writer: usize) -> Option<()> {
        let Work::Discard(store) = self.writer(writer).work else {
            return None;
        };
        only(self.takes(writer, store))?;
        self.world.store(store).stamp = Generation(0);
        self.writer(writer).work = Work::Idle;
        Some(())
    }

    fn read(&mut self, writer: usize, store: StoreNumber) -> Option<()> {
        let it = self.writer(writer);
        only(it.lease > 0)?;
        let value = match it.copies.stores.is_empty() {
            // No store has it: it was never written.
            true => 0,
            false => {
                only(it.volume.readable(&it.copies.stores).contains(&store))?;
                only(self.takes(writer, store))?;
                let far = self.world.store(store);
                only(far.stamp > Generation(0))?;
                far.value
            }
        };
        self.observed(writer, value);
        Some(())
    }
}
