//! What can happen next, and what it changes: the part that `vdisk` has around the same machines, and the world around it.
//!
//! | action | in `vdisk::volume` |
//! |---|---|
//! | `Open`, `Recover`, `Start` | `opening::take`; `Recovery::begin_with`; the wait in `Volume::open` |
//! | `Tick` | clocks; `LeaseKeeper::keep_lease` while no other writer has the record; `Core::leased` |
//! | `Begin`, `Deliver`, `Fail`, `Resolve` | `Writes::try_change`, `BitmapIo::note_dirty`, `Spread::attempt`; a store's fence; `Core::within` |
//! | `Swap`, `Unknown`, `Again`, `GiveUp` | `Membership::shrink_set`; its deadline; `Spread::spread` |
//! | `Expel` | `shrink_set` in `BitmapIo::write_bits` and `LayerCopies::discard_copy` |
//! | `Renew`, `Connect` | `RecordIo::renew`; `Connections::keep_connected` |
//! | `Reconcile`, `Look`, `Equalize`, `Clean` | `Reconcile::reconcile`; `BitmapIo::clear_dirty` |
//! | `Resync`, `Join`, `JoinSwap` | `Resync::resync` |
//! | `Fill`, `Discard`, `RaiseFloor` | `LayerCopies::add_copy_on`, `discard_copy`; `RecordIo::raise_floor` |
//! | `Lands` | `RecordIo::change_record`: a compare-and-swap whose answer did not come in time |
//! | `Read` | `Reads::read_copy` |
//! | `Crash`, `Learn` | a node's crash; `RecordIo::check_epoch` that finds a later epoch |

use replication::StoreNumber;
use replication::reconcile;
use replication::replica::SyncState;

use super::turn::Turn;
use super::world::{At, STORES, Stage, UNDER_WAY, WRITERS, Work, World, Writer};

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
    /// Copies that were made equal keep the stamp of the one they were made from.
    OldStamp,
}

/// Something that happens. `lost`: it does, and its answer does not arrive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// A moment goes by while a lease is awaited, on one writer's clock perhaps not.
    Tick {
        slow: Option<usize>,
    },
    Open {
        writer: usize,
    },
    /// These stores are sealed, the others do not answer.
    Recover {
        writer: usize,
        sealed: u8,
    },
    Start {
        writer: usize,
    },
    Begin {
        writer: usize,
    },
    /// A message arrives.
    Deliver {
        store: StoreNumber,
        place: usize,
        lost: bool,
    },
    /// The writer waits for a store no longer.
    Fail {
        writer: usize,
        store: StoreNumber,
    },
    Resolve {
        writer: usize,
    },
    Swap {
        writer: usize,
        lost: bool,
    },
    /// Whether the record was changed is awaited no longer.
    Unknown {
        writer: usize,
    },
    Again {
        writer: usize,
    },
    GiveUp {
        writer: usize,
    },
    Expel {
        writer: usize,
        store: StoreNumber,
    },
    Renew {
        writer: usize,
    },
    Connect {
        writer: usize,
        store: StoreNumber,
    },
    Reconcile {
        writer: usize,
    },
    Look {
        writer: usize,
        source: StoreNumber,
    },
    /// At one store it may not be done.
    Equalize {
        writer: usize,
        fails: Option<StoreNumber>,
    },
    Clean {
        writer: usize,
    },
    Resync {
        writer: usize,
        store: StoreNumber,
    },
    Join {
        writer: usize,
        store: StoreNumber,
    },
    JoinSwap {
        writer: usize,
        store: StoreNumber,
        lost: bool,
    },
    /// `lost`: the copy is made, and its writer does not know.
    Fill {
        writer: usize,
        store: StoreNumber,
        lost: bool,
    },
    Discard {
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
        store: StoreNumber,
    },
    Crash {
        writer: usize,
    },
    Learn {
        writer: usize,
    },
}

/// How far the exploration goes.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Copies that a write must reach.
    pub min_isr: u8,
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

/// All actions that could be possible in some state.
pub fn all() -> Vec<Action> {
    let both = [false, true];
    let mut all = vec![Action::Tick { slow: None }];
    for writer in 0..WRITERS {
        all.extend((1..1 << STORES.len()).map(|sealed| Action::Recover { writer, sealed }));
        all.extend(both.map(|lost| Action::Swap { writer, lost }));
        all.extend([
            Action::Tick { slow: Some(writer) },
            Action::Open { writer },
            Action::Start { writer },
            Action::Begin { writer },
            Action::Resolve { writer },
            Action::Unknown { writer },
            Action::Again { writer },
            Action::GiveUp { writer },
            Action::Renew { writer },
            Action::Reconcile { writer },
            Action::Equalize {
                writer,
                fails: None,
            },
            Action::Clean { writer },
            Action::Discard { writer },
            Action::RaiseFloor { writer },
            Action::Lands { writer },
            Action::Crash { writer },
            Action::Learn { writer },
        ]);
        for store in STORES {
            let fails = Some(store);
            all.extend([
                Action::Fail { writer, store },
                Action::Expel { writer, store },
                Action::Connect { writer, store },
                Action::Look {
                    writer,
                    source: store,
                },
                Action::Equalize { writer, fails },
                Action::Resync { writer, store },
                Action::Join { writer, store },
                Action::Read { writer, store },
            ]);
            all.extend(both.map(|lost| Action::JoinSwap {
                writer,
                store,
                lost,
            }));
            all.extend(both.map(|lost| Action::Fill {
                writer,
                store,
                lost,
            }));
        }
    }
    for store in STORES {
        for place in 0..UNDER_WAY {
            all.extend(both.map(|lost| Action::Deliver { store, place, lost }));
        }
    }
    all
}

impl Rules {
    pub fn mutated(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// The state after an action; `None`: it cannot happen now.
    pub fn after(&self, world: &World, action: Action) -> Option<World> {
        // Most actions cannot happen: that is found out before anything is copied.
        if !may(world, action) {
            return None;
        }
        let mut turn = Turn {
            rules: *self,
            world: world.clone(),
        };
        turn.take(action)?;
        turn.world.tidy();
        Some(turn.world)
    }
}

/// Can it be that an action happens? What is cheap to find out.
fn may(world: &World, action: Action) -> bool {
    let writer = |writer: usize| world.writers[writer].as_ref();
    let is_open = |one| writer(one).is_some_and(|it| it.stage == Stage::Open);
    let is_idle = |one| writer(one).is_some_and(Writer::is_idle);
    let writes = |one, at: fn(&At) -> bool| {
        let write = writer(one).map(|it| &it.work);
        matches!(write, Some(Work::Write(write)) if at(&write.at))
    };
    let equal_at = |one, step: fn(&reconcile::Step) -> bool| {
        let equal = writer(one).map(|it| &it.work);
        matches!(equal, Some(Work::Reconcile(equal)) if step(&equal.step))
    };
    let stands = |one, store, sync_state| {
        is_open(one)
            && writer(one).is_some_and(|it| it.volume.replicas[&store].sync_state() == sync_state)
    };
    match action {
        Action::Tick { slow } => slow.is_none_or(|one| writer(one).is_some()),
        Action::Open { writer: one } => writer(one).is_none(),
        Action::Recover { writer: one, .. } => {
            writer(one).is_some_and(|it| it.stage == Stage::Sealing)
        }
        Action::Start { writer: one } => writer(one).is_some_and(|it| it.stage == Stage::Waiting),
        Action::Begin { writer: one } => {
            is_idle(one) && !writer(one).is_some_and(Writer::is_unreconciled)
        }
        Action::Read { writer: one, .. } | Action::Fill { writer: one, .. } => {
            is_idle(one) && !writer(one).is_some_and(Writer::is_unreconciled)
        }
        Action::Deliver { store, place, .. } => world.messages[usize::from(store.0)].len() > place,
        Action::Fail { writer: one, .. } | Action::Resolve { writer: one } => {
            writes(one, |at| matches!(at, At::Sent { .. }))
        }
        Action::Swap { writer: one, .. } => {
            writes(one, |at| matches!(at, At::Shrink { .. }))
                || equal_at(one, |step| matches!(step, reconcile::Step::Shrink(_)))
        }
        Action::Unknown { writer: one } => writes(one, |at| matches!(at, At::Shrink { .. })),
        Action::Again { writer: one } | Action::GiveUp { writer: one } => {
            writes(one, |at| *at == At::Pause)
        }
        Action::Reconcile { writer: one } => {
            is_idle(one) && writer(one).is_some_and(Writer::is_unreconciled)
        }
        Action::Look { writer: one, .. } => {
            equal_at(one, |step| matches!(step, reconcile::Step::Look(_)))
        }
        Action::Equalize { writer: one, .. } => {
            equal_at(one, |step| *step == reconcile::Step::Equalize)
        }
        Action::Resync { writer: one, store } | Action::Join { writer: one, store } => {
            stands(one, store, SyncState::Out)
        }
        Action::JoinSwap {
            writer: one, store, ..
        } => stands(one, store, SyncState::Joining),
        Action::Renew { writer: one } => {
            is_open(one) && writer(one).is_some_and(|it| it.volume.most_tainted().is_some())
        }
        Action::Expel { writer: one, .. }
        | Action::Connect { writer: one, .. }
        | Action::Clean { writer: one }
        | Action::RaiseFloor { writer: one } => is_open(one),
        Action::Discard { writer: one } => {
            matches!(writer(one).map(|it| &it.work), Some(Work::Discard(_)))
        }
        Action::Lands { writer: one } => world.asked[one].is_some(),
        Action::Crash { writer: one } => writer(one).is_some() && world.faults > 0,
        Action::Learn { writer: one } => {
            writer(one).is_some_and(|it| it.epoch() != world.record.epoch)
        }
    }
}
