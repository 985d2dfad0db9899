//! What can happen next, and what it changes: each action is what some functions of the engine do.
//!
//! | action | in the engine (`vdisk::volume`) |
//! |---|---|
//! | `Open`, `Recover`, `Start` | `open::take`; `Core::seal`, `recover`, `write_all_bits`; the wait in `Volume::open` |
//! | `Tick` | clocks; `keep_lease` and `still_ours` while no other writer has the record; `leased` |
//! | `Begin`, `Deliver`, `Fail`, `Resolve` | `try_change`, `note_dirty`, `send`; a store's fence; `within`; `missed` |
//! | `Swap`, `GiveUp`, `Expel` | `shrink_set` in `missed`; its deadline; `shrink_set` in `reachable`, `write_bits` and `discard_copy` |
//! | `Renew` | `renew`, `keep_connected` |
//! | `Reconcile`, `Clean` | `ensure_reconciled`, `reconcile`; `clear_dirty` |
//! | `Resync`, `Join`, `JoinSwap` | `open_anew`, `adopt_or_delete`, `resync_extent`; the two ends of `resync` |
//! | `Fill`, `DiscardCopy`, `RaiseFloor` | `rereplicate`; `discard_copy`; `raise_floor` |
//! | `Lands` | `change_record`: a compare-and-swap whose answer did not come in time |
//! | `Read` | `read_piece`, `read_copy` |
//! | `Crash`, `Learn` | a node's crash; `check_epoch` that finds a later epoch |

use super::state::{
    BEHIND, Broken, COPIES, COUNTED, LEASE, Message, Phase, Record, STORES, Set, State, Store,
    SyncState, WRITERS, Work, Writer, bit, first, has,
};

/// A mistake that is planted to see that it is found.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mutation {
    /// Stores are opened without a seal.
    NoSeal,
    /// A write is answered before the record says who missed it.
    AnswerBeforeSwap,
    /// The holder of a lease counts all of it.
    WholeLease,
    /// Resync takes a change in the first generation that the store missed as one that it has.
    ResyncMisses,
    /// A store joins before everything was resynced.
    JoinsEarly,
    /// The last store with a copy that is in sync leaves the set.
    DropsTheLastCopy,
    /// Extents are not noted as dirty.
    NoDirtyBit,
    /// After an indeterminate change the next connection has the same token.
    SameToken,
    /// A change of the record that may yet come about is not made void.
    LetsItLand,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    Open {
        writer: usize,
    },
    /// These stores are sealed, the others do not answer.
    Recover {
        writer: usize,
        sealed: Set,
    },
    Start {
        writer: usize,
    },
    /// A moment goes by while a lease is awaited, on one writer's clock perhaps not.
    Tick {
        slow: Option<usize>,
    },
    Begin {
        writer: usize,
    },
    /// A message arrives; `lost`: its answer does not.
    Deliver {
        store: usize,
        place: usize,
        lost: bool,
    },
    /// The writer waits for a store no longer.
    Fail {
        writer: usize,
        store: usize,
    },
    Resolve {
        writer: usize,
    },
    /// `lost`: it is under way, and no answer comes.
    Swap {
        writer: usize,
        lost: bool,
    },
    GiveUp {
        writer: usize,
    },
    Expel {
        writer: usize,
        store: usize,
    },
    Renew {
        writer: usize,
        store: usize,
    },
    Reconcile {
        writer: usize,
        source: usize,
    },
    Clean {
        writer: usize,
    },
    Resync {
        writer: usize,
        store: usize,
    },
    Join {
        writer: usize,
        store: usize,
    },
    JoinSwap {
        writer: usize,
        store: usize,
        lost: bool,
    },
    /// `lost`: the copy is made, and its writer does not know.
    Fill {
        writer: usize,
        store: usize,
        lost: bool,
    },
    DiscardCopy {
        writer: usize,
    },
    RaiseFloor {
        writer: usize,
    },
    Lands {
        writer: usize,
    },
    Read {
        writer: usize,
        store: usize,
    },
    Crash {
        writer: usize,
    },
    Learn {
        writer: usize,
    },
}

/// How far the model goes.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub writes: u8,
    pub openings: u8,
    /// Crashes, broken connections, lost answers, stores given up.
    pub faults: u8,
    pub generations: u8,
}

#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub bounds: Bounds,
    pub mutation: Option<Mutation>,
}

/// What a change of the record came to.
enum Changed {
    Done,
    /// A new generation, and nothing else.
    Newer,
    /// A store has the last copy in sync.
    LastCopy,
}

impl Rules {
    fn mutated(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// All actions that could be possible in some state.
    pub fn all() -> Vec<Action> {
        let mut all = vec![Action::Tick { slow: None }];
        for writer in 0..WRITERS {
            all.extend([false, true].map(|lost| Action::Swap { writer, lost }));
            all.extend((1..1 << STORES).map(|sealed| Action::Recover { writer, sealed }));
            all.extend([
                Action::Tick { slow: Some(writer) },
                Action::Open { writer },
                Action::Start { writer },
                Action::Begin { writer },
                Action::Resolve { writer },
                Action::GiveUp { writer },
                Action::Clean { writer },
                Action::DiscardCopy { writer },
                Action::RaiseFloor { writer },
                Action::Lands { writer },
                Action::Crash { writer },
                Action::Learn { writer },
            ]);
            for store in 0..STORES {
                let source = store;
                all.extend([
                    Action::Fail { writer, store },
                    Action::Expel { writer, store },
                    Action::Renew { writer, store },
                    Action::Reconcile { writer, source },
                    Action::Resync { writer, store },
                    Action::Join { writer, store },
                    Action::Read { writer, store },
                ]);
                for lost in [false, true] {
                    let more = [
                        Action::JoinSwap {
                            writer,
                            store,
                            lost,
                        },
                        Action::Fill {
                            writer,
                            store,
                            lost,
                        },
                    ];
                    all.extend(more);
                }
            }
        }
        for store in 0..STORES {
            for place in 0..super::state::UNDER_WAY {
                for lost in [false, true] {
                    all.push(Action::Deliver { store, place, lost });
                }
            }
        }
        all
    }

    /// The state after an action; `None`: it cannot happen now.
    pub fn after(&self, state: &State, action: Action) -> Option<State> {
        let mut next = *state;
        self.take(&mut next, action)?;
        next.tidy();
        Some(next)
    }

    fn take(&self, s: &mut State, action: Action) -> Option<()> {
        match action {
            Action::Open { writer } => self.open(s, writer),
            Action::Recover { writer, sealed } => self.recover(s, writer, sealed),
            Action::Start { writer } => {
                let it = &mut s.writers[writer];
                only(it.phase == Phase::Waiting && it.wait == 0)?;
                it.phase = Phase::Open;
                Some(())
            }
            Action::Tick { slow } => self.tick(s, slow),
            Action::Begin { writer } => self.begin(s, writer),
            Action::Deliver { store, place, lost } => deliver(s, store, place, lost),
            Action::Fail { writer, store } => fail(s, writer, store),
            Action::Resolve { writer } => self.resolve(s, writer),
            Action::Swap { writer, lost } => self.swap(s, writer, lost),
            Action::GiveUp { writer } => {
                let it = &mut s.writers[writer];
                only(matches!(it.work, Work::Swap { .. }))?;
                it.work = Work::Idle;
                Some(())
            }
            Action::Expel { writer, store } => self.expel(s, writer, store),
            Action::Renew { writer, store } => self.renew(s, writer, store),
            Action::Reconcile { writer, source } => reconcile(s, writer, source),
            Action::Clean { writer } => self.clean(s, writer),
            Action::Resync { writer, store } => self.resync(s, writer, store),
            Action::Join { writer, store } => {
                let early = self.mutated(Mutation::JoinsEarly);
                let it = &mut s.writers[writer];
                only(it.phase == Phase::Open && it.sync_state[store] == SyncState::Out)?;
                only(it.connection[store] != 0)?;
                only(!has(it.placed, store) || has(it.synced, store) || early)?;
                it.sync_state[store] = SyncState::Joining;
                Some(())
            }
            Action::JoinSwap {
                writer,
                store,
                lost,
            } => self.join_swap(s, writer, store, lost),
            Action::Fill {
                writer,
                store,
                lost,
            } => fill(s, writer, store, lost),
            Action::DiscardCopy { writer } => discard_copy(s, writer),
            Action::RaiseFloor { writer } => self.raise_floor(s, writer),
            Action::Lands { writer } => {
                let (asked_for, next) = s.asked[writer].take()?;
                only(asked_for == s.record.generation)?;
                s.record = next;
                Some(())
            }
            Action::Read { writer, store } => read(s, writer, store),
            Action::Crash { writer } => {
                only(s.writers[writer].phase != Phase::Down)?;
                s.fault()?;
                s.writers[writer] = Writer::default();
                Some(())
            }
            Action::Learn { writer } => {
                let it = &s.writers[writer];
                only(it.phase != Phase::Down && it.epoch != s.record.epoch)?;
                s.writers[writer] = Writer::default();
                Some(())
            }
        }
    }

    // --- opening ----------------------------------------------------------------------------------------

    fn open(&self, s: &mut State, writer: usize) -> Option<()> {
        only(s.writers[writer].phase == Phase::Down && s.openings < self.bounds.openings)?;
        // Which of them is the first does not matter.
        only(writer == 0 || s.openings > 0)?;
        s.openings += 1;
        let before = s.record;
        s.record.generation += 1;
        s.record.epoch = s.record.generation;
        s.record.written = true;
        s.writers[writer] = Writer {
            phase: Phase::Sealing,
            epoch: s.record.epoch,
            generation: s.record.epoch,
            before: before.generation,
            wait: if before.written { LEASE } else { 0 },
            ..Writer::default()
        };
        Some(())
    }

    fn recover(&self, s: &mut State, writer: usize, sealed: Set) -> Option<()> {
        let it = &mut s.writers[writer];
        only(it.phase == Phase::Sealing && it.epoch == s.record.epoch)?;
        only(sealed & !in_sync(&s.record) == 0)?;
        it.sealed = sealed;
        for store in (0..STORES).filter(|store| has(sealed, *store)) {
            let seal = &mut s.stores[store].seal;
            assert!(*seal <= it.epoch, "a later epoch would be in the record");
            if !self.mutated(Mutation::NoSeal) {
                *seal = it.epoch;
            }
        }
        let in_sync = in_sync(&s.record);
        let missing = in_sync & !it.sealed;
        only(missing.count_ones() < u32::from(s.record.redundancy_floor))?;
        let mut record = s.record;
        if missing != 0 {
            for store in 0..STORES {
                if has(missing, store) {
                    record.out[store] = it.before + 1;
                }
            }
            record.redundancy_floor -= missing.count_ones() as u8;
        }
        for store in 0..STORES {
            if has(it.sealed, store) {
                it.sync_state[store] = SyncState::InSync;
                it.connection[store] = it.epoch;
                if s.stores[store].stamp > 0 {
                    it.placed |= bit(store);
                }
                it.unreconciled |= s.stores[store].dirty;
            }
            it.token[store] = it.epoch;
        }
        it.unreconciled &= it.placed != 0;
        let least = redundancy_floor(it, &record).max(1);
        record.redundancy_floor = least.min(record.redundancy_floor.max(1));
        if record != s.record {
            record.generation += 1;
            it.generation = record.generation;
            s.record = record;
        }
        it.bitmap_replicas = first(it.sealed, COPIES);
        it.noted = it.unreconciled;
        if it.unreconciled {
            for store in 0..STORES {
                s.stores[store].dirty |= has(it.bitmap_replicas, store);
            }
        }
        it.phase = Phase::Waiting;
        let whole = self.mutated(Mutation::WholeLease);
        (it.lease, it.behind) = (if whole { LEASE } else { COUNTED }, BEHIND);
        Some(())
    }

    /// A lease is as new as can be for as long as the record has the holder's epoch. A shorter one only keeps it from answering.
    fn tick(&self, s: &mut State, slow: Option<usize>) -> Option<()> {
        only(s.writers.iter().any(|it| it.wait > 0))?;
        if let Some(writer) = slow {
            let it = &mut s.writers[writer];
            only(it.lease > 0 && it.epoch != s.record.epoch)?;
            it.behind = it.behind.checked_sub(1)?;
            it.lease += 1;
        }
        for it in &mut s.writers {
            if it.epoch != s.record.epoch {
                it.lease = it.lease.saturating_sub(1);
            }
            it.wait = it.wait.saturating_sub(1);
        }
        Some(())
    }

    // --- the record -------------------------------------------------------------------------------------

    /// `change` makes the new record of the old one. `lost`: it is under way from now on.
    fn change_record(
        &self,
        s: &mut State,
        writer: usize,
        lost: bool,
        change: impl FnOnce(&Writer, &mut Record) -> Changed,
    ) -> Option<Changed> {
        let it = &mut s.writers[writer];
        only(it.epoch == s.record.epoch)?;
        let mut next = s.record;
        let changed = change(it, &mut next);
        if matches!(changed, Changed::LastCopy) {
            next = s.record;
        }
        // What was asked before may still come about: a new generation sees to it that it does not.
        let void = it.record_indeterminate && !self.mutated(Mutation::LetsItLand);
        if next == s.record && !void && !matches!(changed, Changed::Newer) {
            only(!lost)?;
            return Some(changed);
        }
        next.generation += 1;
        if lost {
            only(s.asked[writer].is_none())?;
            it.record_indeterminate = true;
            s.asked[writer] = Some((s.record.generation, next));
            s.fault()?;
        } else {
            it.record_indeterminate = false;
            it.generation = next.generation;
            s.record = next;
        }
        Some(changed)
    }

    /// What `shrink_set` asks of the record.
    fn out(&self, who: Set, stamp: u8) -> impl FnOnce(&Writer, &mut Record) -> Changed {
        let careless = self.mutated(Mutation::DropsTheLastCopy);
        move |it, record| {
            let since = stamp.min(record.generation) - 1;
            let mut anything = false;
            for store in 0..STORES {
                if has(who, store) && record.out[store] == 0 {
                    record.out[store] = since + 1;
                    anything = true;
                }
            }
            record.redundancy_floor = redundancy_floor(it, record);
            match anything && record.redundancy_floor == 0 && !careless {
                true => Changed::LastCopy,
                false => Changed::Done,
            }
        }
    }

    /// Removes stores from the in-sync set; what is done with the range has the stamp `stamp` at least.
    fn shrink_set(&self, s: &mut State, writer: usize, who: Set, stamp: u8) -> Option<Changed> {
        let changed = self.change_record(s, writer, false, self.out(who, stamp))?;
        if matches!(changed, Changed::Done) {
            s.writers[writer].went_out(who);
        }
        Some(changed)
    }

    fn raise_floor(&self, s: &mut State, writer: usize) -> Option<()> {
        let it = &s.writers[writer];
        only(
            it.phase == Phase::Open && redundancy_floor(it, &s.record) > s.record.redundancy_floor,
        )?;
        self.change_record(s, writer, false, |it, record| {
            record.redundancy_floor = redundancy_floor(it, record);
            Changed::Done
        })?;
        Some(())
    }

    // --- writes -----------------------------------------------------------------------------------------

    /// The bitmap replicas as `write_bits` chooses them; each must take them.
    fn bitmap_replicas(&self, s: &State, writer: usize) -> Option<Set> {
        let it = &s.writers[writer];
        let fit = it.in_sync();
        let mut bitmap_replicas = it.bitmap_replicas & fit;
        let more = COPIES.saturating_sub(bitmap_replicas.count_ones());
        bitmap_replicas |= first(fit & !bitmap_replicas, more);
        only(bitmap_replicas & !it.linked() == 0)?;
        (0..STORES)
            .try_for_each(|store| only(!has(bitmap_replicas, store) || s.takes(writer, store)))?;
        Some(bitmap_replicas)
    }

    fn begin(&self, s: &mut State, writer: usize) -> Option<()> {
        let it = &s.writers[writer];
        only(it.phase == Phase::Open && it.work == Work::Idle && !it.unreconciled)?;
        only(s.next <= self.bounds.writes && it.placed & it.needed() != 0)?;
        if !it.noted && !self.mutated(Mutation::NoDirtyBit) {
            let bitmap_replicas = self.bitmap_replicas(s, writer)?;
            for store in 0..STORES {
                s.stores[store].dirty |= has(bitmap_replicas, store);
            }
            s.writers[writer].bitmap_replicas = bitmap_replicas;
            s.writers[writer].noted = true;
        }
        let it = &s.writers[writer];
        let targets = it.placed & (it.needed() | it.synced);
        let sent = targets & it.linked();
        let (value, stamp) = (s.next, it.generation);
        for store in 0..STORES {
            if has(sent, store) {
                let message = Message {
                    from: writer,
                    connection: it.connection[store],
                    stamp,
                    value,
                };
                let place = s.messages[store].iter_mut().find(|it| it.is_none())?;
                *place = Some(message);
            }
        }
        s.next += 1;
        s.writers[writer].work = Work::Write {
            value,
            stamp,
            targets,
            acked: 0,
            failed: targets & !sent,
        };
        Some(())
    }

    fn resolve(&self, s: &mut State, writer: usize) -> Option<()> {
        let it = &mut s.writers[writer];
        let Work::Write {
            value,
            stamp,
            targets,
            acked,
            failed,
        } = it.work
        else {
            return None;
        };
        only(acked | failed == targets)?;
        it.synced &= !failed;
        let needed = it.needed();
        let failed = failed & needed;
        it.work = Work::Idle;
        if failed == 0 {
            s.answer(writer, value);
            return Some(());
        }
        it.unreconciled = true;
        if acked & needed == 0 {
            return Some(());
        }
        if self.mutated(Mutation::AnswerBeforeSwap) {
            it.went_out(failed);
            it.unreconciled = false;
            s.answer(writer, value);
            return Some(());
        }
        it.work = Work::Swap {
            value,
            stamp,
            failed,
        };
        Some(())
    }

    fn swap(&self, s: &mut State, writer: usize, lost: bool) -> Option<()> {
        let Work::Swap {
            value,
            stamp,
            failed,
        } = s.writers[writer].work
        else {
            return None;
        };
        if lost {
            let asked = self.change_record(s, writer, true, self.out(failed, stamp))?;
            return only(matches!(asked, Changed::Done));
        }
        let changed = self.shrink_set(s, writer, failed, stamp)?;
        s.writers[writer].work = Work::Idle;
        if matches!(changed, Changed::Done) {
            s.writers[writer].unreconciled = false;
            s.answer(writer, value);
        }
        Some(())
    }

    fn expel(&self, s: &mut State, writer: usize, store: usize) -> Option<()> {
        let it = &s.writers[writer];
        only(it.phase == Phase::Open && it.sync_state[store] != SyncState::Out)?;
        let wanted = match it.work {
            Work::Idle => {
                (it.unreconciled && has(it.placed, store)) || has(it.bitmap_replicas, store)
            }
            Work::DiscardCopy(other) => other == store,
            _ => false,
        };
        only(wanted)?;
        let stamp = it.generation;
        if it.connection[store] != 0 {
            s.fault()?;
        }
        match self.shrink_set(s, writer, bit(store), stamp)? {
            Changed::LastCopy => None,
            Changed::Done | Changed::Newer => {
                let it = &mut s.writers[writer];
                if it.work == Work::DiscardCopy(store) {
                    it.work = Work::Idle;
                }
                Some(())
            }
        }
    }

    fn renew(&self, s: &mut State, writer: usize, store: usize) -> Option<()> {
        let it = &s.writers[writer];
        only(it.phase == Phase::Open && has(it.tainted, store))?;
        only(it.sync_state[store] != SyncState::Out)?;
        if !self.mutated(Mutation::SameToken) {
            self.newer_token(s, writer, store)?;
        }
        s.connection(writer, store)?;
        s.writers[writer].tainted &= !bit(store);
        Some(())
    }

    /// The next connection to the store gets a token that none before had.
    fn newer_token(&self, s: &mut State, writer: usize, store: usize) -> Option<()> {
        let before = s.writers[writer].token[store];
        if s.writers[writer].generation <= before {
            self.change_record(s, writer, false, |_, _| Changed::Newer)?;
        } else {
            self.change_record(s, writer, false, |_, _| Changed::Done)?;
        }
        let it = &mut s.writers[writer];
        it.token[store] = it.generation;
        Some(())
    }

    fn clean(&self, s: &mut State, writer: usize) -> Option<()> {
        let it = &s.writers[writer];
        only(it.phase == Phase::Open && it.work == Work::Idle && it.noted && !it.unreconciled)?;
        let bitmap_replicas = self.bitmap_replicas(s, writer)?;
        for store in 0..STORES {
            if has(bitmap_replicas, store) {
                s.stores[store].dirty = false;
            }
        }
        s.writers[writer].bitmap_replicas = bitmap_replicas;
        s.writers[writer].noted = false;
        Some(())
    }

    // --- stores that come back --------------------------------------------------------------------------

    fn resync(&self, s: &mut State, writer: usize, store: usize) -> Option<()> {
        let it = &s.writers[writer];
        only(it.phase == Phase::Open && it.work == Work::Idle && !it.unreconciled)?;
        only(it.sync_state[store] == SyncState::Out && s.record.out[store] != 0)?;
        only(it.connection[store] == 0 || !has(it.synced, store))?;
        self.newer_token(s, writer, store)?;
        s.connection(writer, store)?;
        let it = &mut s.writers[writer];
        it.tainted &= !bit(store);
        let back = &mut s.stores[store];
        if back.stamp > 0 && !has(it.placed, store) {
            match it.placed.count_ones() < COPIES {
                true => it.placed |= bit(store),
                false => back.stamp = 0,
            }
        }
        if !has(it.placed, store) {
            return Some(());
        }
        let sources = it.placed & it.needed();
        let mut sources = (0..STORES).filter(|one| has(sources, *one) && s.takes(writer, *one));
        let from = s.stores[sources.find(|one| s.stores[*one].stamp > 0)?];
        let mut since = s.record.out[store] - 1;
        if self.mutated(Mutation::ResyncMisses) {
            since += 1;
        }
        let to = &mut s.stores[store];
        if from.stamp > since || to.stamp == 0 {
            (to.value, to.stamp) = (from.value, from.stamp);
        }
        s.writers[writer].synced |= bit(store);
        Some(())
    }

    fn join_swap(&self, s: &mut State, writer: usize, store: usize, lost: bool) -> Option<()> {
        only(s.writers[writer].sync_state[store] == SyncState::Joining)?;
        self.change_record(s, writer, lost, |it, record| {
            record.out[store] = 0;
            record.redundancy_floor = redundancy_floor(it, record).max(1);
            Changed::Done
        })?;
        if !lost {
            let it = &mut s.writers[writer];
            it.sync_state[store] = SyncState::InSync;
            it.synced &= !bit(store);
        }
        Some(())
    }
}

/// `None` unless it holds.
fn only(holds: bool) -> Option<()> {
    holds.then_some(())
}

fn in_sync(record: &Record) -> Set {
    let all = (0..STORES).filter(|store| record.out[*store] == 0);
    all.fold(0, |set, store| set | bit(store))
}

/// `Core::redundancy_floor`.
fn redundancy_floor(it: &Writer, record: &Record) -> u8 {
    let in_sync = in_sync(record);
    let least = match it.placed {
        0 => COPIES,
        placed => (placed & in_sync).count_ones().min(COPIES),
    };
    match it.bitmap_replicas {
        0 => least as u8,
        bitmap_replicas => least.min((bitmap_replicas & in_sync).count_ones()) as u8,
    }
}

impl Writer {
    fn went_out(&mut self, who: Set) {
        for store in 0..STORES {
            if has(who, store) {
                self.sync_state[store] = SyncState::Out;
                self.connection[store] = 0;
            }
        }
        self.synced &= !who;
        self.tainted &= !who;
    }
}

impl State {
    /// One of the faults that there may be.
    fn fault(&mut self) -> Option<()> {
        self.faults = self.faults.checked_sub(1)?;
        Some(())
    }

    /// Does a store take what this writer asks on its connection?
    fn takes(&self, writer: usize, store: usize) -> bool {
        let connection = self.writers[writer].connection[store];
        connection != 0 && self.stores[store].seal <= connection
    }

    /// A new connection to a store, under the token that is next.
    fn connection(&mut self, writer: usize, store: usize) -> Option<()> {
        let it = &mut self.writers[writer];
        let seal = &mut self.stores[store].seal;
        only(*seal <= it.token[store])?;
        *seal = it.token[store];
        it.connection[store] = it.token[store];
        Some(())
    }

    /// A client hears from a writer: `value` is there.
    fn observed(&mut self, writer: usize, value: u8) {
        let epoch = self.writers[writer].epoch;
        if value < self.known {
            self.broken = Some(Broken::WentBack);
        } else if epoch < self.answered {
            self.broken = Some(Broken::BothAnswer);
        }
        self.known = self.known.max(value);
        self.answered = self.answered.max(epoch);
    }

    /// A write is over: it is answered if the lease is good, else it is an error.
    fn answer(&mut self, writer: usize, value: u8) {
        if self.writers[writer].lease > 0 {
            self.observed(writer, value);
        }
    }

    /// States that cannot be distinguished become one.
    fn tidy(&mut self) {
        for messages in &mut self.messages {
            messages.sort_unstable_by_key(|message| (message.is_none(), *message));
        }
        for asked in &mut self.asked {
            // It asks for a generation that is gone.
            if asked.is_some_and(|(generation, _)| generation != self.record.generation) {
                *asked = None;
            }
        }
        for writer in &mut self.writers {
            if writer.lease == 0 {
                writer.behind = 0;
            }
        }
    }
}

fn deliver(s: &mut State, store: usize, place: usize, lost: bool) -> Option<()> {
    let message = s.messages[store][place].take()?;
    let it = &mut s.writers[message.from];
    let awaited = match &mut it.work {
        Work::Write {
            value,
            targets,
            acked,
            failed,
            ..
        } if *value == message.value && has(*targets & !*failed, store) => Some(acked),
        _ => None,
    };
    let far = &mut s.stores[store];
    let refused = far.seal > message.connection || far.stamp == 0;
    if refused {
        return only(!lost);
    }
    (far.value, far.stamp) = (message.value, message.stamp);
    match awaited {
        Some(_) if lost => s.fault(),
        Some(acked) => {
            *acked |= bit(store);
            Some(())
        }
        None => only(!lost),
    }
}

fn fail(s: &mut State, writer: usize, store: usize) -> Option<()> {
    let it = &mut s.writers[writer];
    let Work::Write {
        targets,
        acked,
        failed,
        value,
        ..
    } = &mut it.work
    else {
        return None;
    };
    only(has(*targets & !*acked & !*failed, store))?;
    *failed |= bit(store);
    it.connection[store] = 0;
    it.tainted |= bit(store);
    let under_way = s.messages[store].iter().flatten();
    let mut ours = under_way.filter(|it| it.value == *value);
    match ours.next().is_some() {
        true => s.fault(),
        // Its answer was lost, or it was refused.
        false => Some(()),
    }
}

fn reconcile(s: &mut State, writer: usize, source: usize) -> Option<()> {
    let it = &s.writers[writer];
    only(it.phase == Phase::Open && it.work == Work::Idle && it.unreconciled)?;
    let needed = it.placed & it.needed();
    only(has(needed, source) && needed & !it.linked() == 0)?;
    let from: Store = s.stores[source];
    only(from.stamp > 0)?;
    (0..STORES).try_for_each(|store| only(!has(needed, store) || s.takes(writer, store)))?;
    let it = &mut s.writers[writer];
    for store in 0..STORES {
        if has(needed, store) {
            s.stores[store].value = from.value;
            s.stores[store].stamp = it.generation;
        }
    }
    it.synced &= !it.placed;
    it.unreconciled = false;
    Some(())
}

fn fill(s: &mut State, writer: usize, store: usize, lost: bool) -> Option<()> {
    let it = &s.writers[writer];
    only(it.phase == Phase::Open && it.work == Work::Idle && !it.unreconciled)?;
    only(it.placed != 0 && it.placed.count_ones() < COPIES && !has(it.placed, store))?;
    only(it.sync_state[store] == SyncState::InSync && s.takes(writer, store))?;
    let sources = it.placed & it.needed();
    let mut sources = (0..STORES).filter(|one| has(sources, *one) && s.takes(writer, *one));
    let source = sources.find(|one| s.stores[*one].stamp > 0)?;
    let it = &mut s.writers[writer];
    s.stores[store].value = s.stores[source].value;
    s.stores[store].stamp = it.generation;
    if lost {
        it.work = Work::DiscardCopy(store);
        it.connection[store] = 0;
        it.tainted |= bit(store);
        return s.fault();
    }
    it.placed |= bit(store);
    Some(())
}

fn discard_copy(s: &mut State, writer: usize) -> Option<()> {
    let Work::DiscardCopy(store) = s.writers[writer].work else {
        return None;
    };
    only(s.takes(writer, store))?;
    s.stores[store].stamp = 0;
    s.writers[writer].work = Work::Idle;
    Some(())
}

fn read(s: &mut State, writer: usize, store: usize) -> Option<()> {
    let it = &s.writers[writer];
    only(it.phase == Phase::Open && it.work == Work::Idle && !it.unreconciled && it.lease > 0)?;
    let value = match it.placed {
        // No store has it: it was never written.
        0 => 0,
        placed => {
            only(has(placed & it.in_sync(), store) && s.takes(writer, store))?;
            only(s.stores[store].stamp > 0)?;
            s.stores[store].value
        }
    };
    s.observed(writer, value);
    Some(())
}
