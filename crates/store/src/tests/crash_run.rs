//! Does it lose or mix up anything? Random changes by several clients, power cuts at random steps.
//!
//! ```text
//! clients at work -> power cut at step N -> restart with any subset of unflushed writes, torn
//!   -> open (all invariants) -> read all: the state after some change, none before the last answered flush's
//!   -> more work and cuts
//! ```
//!
//! The store promises more than its sectors one by one: what a crash leaves is the state after some prefix of all changes.
//! So the oracle is short: apply the journal to the model, and one of the models since the last flush must be it.
//!
//! `TANADA_SEEDS=N` runs more seeds, `TANADA_SEED=S` replays one.

mod digests;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::{Bytes, Map, Nanos};
use device::crash::{AfterCut, PowerSupply};
use device::{Class, Crash};
use env::Rng;

use self::digests::noted::Requests;
use super::mistakes::{self, Mutation};
use super::{Model, Step, pattern, small, small_size};
use crate::{Change, Condition, ReservationId, Store, StoreError, Version, check};

const CLIENTS: u64 = 3;
const NAMES: [&str; 6] = ["a", "b", "c/1", "c/2", "d", "longer-name-than-the-others"];
/// Device requests of work between two cuts, at most.
const WORK_STEPS: u64 = 250;
/// No object gets longer than this.
const SIZE_MAX: u64 = 160 << 10;

/// What a run does.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub units: u64,
    pub page: Bytes,
    /// Deletes, renames, attributes, reservations, scrubs beside writes.
    pub management: bool,
    pub cuts: u64,
    pub mutation: Option<Mutation>,
}

pub(super) const PLAIN: Plan = Plan {
    units: 14,
    page: Bytes::kib(4),
    management: false,
    cuts: 6,
    mutation: None,
};

/// What a client knows of a reservation.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Expected {
    Reserved,
    Releasing,
    Gone,
}

/// The model of a store at work, and what of it must survive.
#[derive(Default)]
pub(super) struct World {
    /// The state when the store was opened.
    base: RefCell<Model>,
    /// The state now, and how much of the journal is in it.
    now: RefCell<(usize, Model)>,
    /// So many entries of the journal are durable for certain.
    floor: Cell<usize>,
    reservations: RefCell<Map<u64, Expected>>,
    pub broken: RefCell<Option<String>>,
}

impl World {
    pub fn fail(&self, why: String) {
        self.broken.borrow_mut().get_or_insert(why);
    }

    fn len(&self, store: &Store) -> usize {
        store.inner.journal.borrow().len()
    }

    /// The model now.
    fn current(&self, store: &Store) -> Model {
        let mut now = self.now.borrow_mut();
        let journal = store.inner.journal.borrow();
        for (_, step) in &journal[now.0..] {
            now.1.apply(step);
        }
        now.0 = journal.len();
        now.1.clone()
    }

    fn durable(&self, len: usize) {
        self.floor.set(self.floor.get().max(len));
    }

    /// The change with this version, and all before it, are durable.
    fn durable_with(&self, store: &Store, version: Version) {
        let journal = store.inner.journal.borrow();
        let at = journal.iter().rposition(|(one, _)| *one == version.0);
        self.durable(at.expect("each change is in the journal") + 1);
    }

    pub async fn flush(&self, store: &Store) -> Result<(), StoreError> {
        let len = self.len(store);
        store.flush().await?;
        self.durable(len);
        Ok(())
    }

    /// Compares a reopened store with what it may be, and begins anew from there.
    pub async fn recovered(&self, journal: &[(u64, Step)], store: &Store) -> Result<(), String> {
        let found = Model::of(store)
            .await
            .map_err(|error| format!("reading all: {error}"))?;
        let mut model = self.base.borrow().clone();
        let floor = self.floor.get();
        let mut matches = floor == 0 && model == found;
        for (at, (_, step)) in journal.iter().enumerate() {
            if matches {
                break;
            }
            model.apply(step);
            matches = at + 1 >= floor && model == found;
        }
        if !matches {
            return Err(format!(
                "what is there was never there: {found:#?}, after {} changes of which {floor} are durable: {model:#?}",
                journal.len()
            ));
        }
        super::sums_hold(store);
        let present: Vec<u64> = store.reservations().iter().map(|one| one.id.0).collect();
        for (number, known) in self.reservations.borrow_mut().iter_mut() {
            let there = present.contains(number);
            match known {
                Expected::Reserved if !there => {
                    return Err(format!("reservation {number:x} is gone"));
                }
                Expected::Gone if there => return Err(format!("reservation {number:x} is back")),
                Expected::Releasing if !there => *known = Expected::Gone,
                Expected::Releasing => *known = Expected::Reserved,
                _ => {}
            }
        }
        self.floor.set(0);
        *self.now.borrow_mut() = (0, found.clone());
        *self.base.borrow_mut() = found;
        Ok(())
    }
}

/// A place to write or read.
fn place(rng: &mut Rng) -> (u64, u64) {
    let offset = rng.below(SIZE_MAX - 40_000);
    let len = match rng.below(4) {
        0 => 1 + rng.below(600),
        1 => 1 + rng.below(9_000),
        2 => 4096,
        _ => 1 + rng.below(40_000),
    };
    // Half of the requests keep to pages.
    match rng.chance(0.5) {
        true => (offset / 4096 * 4096, len.next_multiple_of(4096)),
        false => (offset, len),
    }
}

/// One request of a client; `false`: the store is gone.
pub(super) async fn request(store: &Store, world: &World, plan: Plan, rng: &mut Rng) -> bool {
    let name = NAMES[rng.below(NAMES.len() as u64) as usize];
    let (offset, len) = place(rng);
    let stamp = rng.chance(0.3).then(|| rng.below(9));
    let reservation = match rng.chance(0.1) {
        true => store.reservations().first().map(|one| one.id),
        false => None,
    };
    let condition = match rng.below(12) {
        0 => Condition::StampAtMost(rng.below(9)),
        1 => Condition::Version(store.stat(name).map_or(Version(0), |stat| stat.version)),
        _ => Condition::Any,
    };
    let class = match rng.chance(0.2) {
        true => Class::Background,
        false => Class::Foreground,
    };
    let change = Change {
        class,
        fua: rng.chance(0.1),
        condition,
        stamp,
        reservation,
        create: rng.chance(0.8),
    };
    let draw = rng.below(if plan.management { 100 } else { 76 });
    let answer: Result<Option<Version>, StoreError> = match draw {
        0..=34 => {
            let data = pattern(rng.bits(), len as usize);
            let answer = store.write(name, offset, data, change).await;
            answer.map(Some)
        }
        35..=40 => store.truncate(name, offset, change).await.map(Some),
        41..=46 => store.punch(name, offset, len, change).await.map(Some),
        47..=56 => match world.flush(store).await {
            Ok(()) => Ok(None),
            Err(error) => Err(error),
        },
        57..=75 => {
            let mut model = world.current(store);
            let from = world.len(store);
            let answer = store.read(name, offset, len, Class::Foreground).await;
            if let Err(error) = answer.as_ref()
                && !matches!(
                    error,
                    StoreError::NotFound { .. }
                        | StoreError::Device { .. }
                        | StoreError::Closed { .. }
                )
            {
                world.fail(format!("a read of {name}: {error}"));
            }
            let found = match answer {
                Ok(buf) => Some(buf),
                Err(StoreError::NotFound { .. }) => None,
                Err(_) => return false,
            };
            let suits = |model: &Model| match (model.0.get(name), &found) {
                (None, None) => true,
                (Some(object), Some(found)) => {
                    let end = object.bytes.len();
                    let (from, to) = (offset as usize, (offset + len) as usize);
                    object.bytes[from.min(end)..to.min(end)] == **found
                }
                _ => false,
            };
            let journal = store.inner.journal.borrow();
            let later = &journal[from..];
            let seen = suits(&model)
                || later.iter().any(|(_, step)| {
                    model.apply(step);
                    suits(&model)
                });
            if !seen {
                world.fail(format!(
                    "a read of {len} bytes at {offset} of {name} shows what was never there"
                ));
            }
            Ok(None)
        }
        76..=82 => store.delete(name, change).await.map(|()| None),
        83..=85 => {
            let value = pattern(rng.bits(), rng.below(900) as usize);
            let attributes = [("kind", &b"x"[..]), ("value", &value)];
            store.create(name, &attributes, change).await.map(Some)
        }
        86..=88 => {
            let value = pattern(rng.bits(), rng.below(1_500) as usize);
            let (keep, key) = (
                rng.chance(0.7),
                ["kind", "size", "value"][rng.below(3) as usize],
            );
            let changes = [(key, keep.then_some(&value[..]))];
            store.set_attributes(name, &changes, change).await.map(Some)
        }
        89..=92 => {
            let to = NAMES[rng.below(NAMES.len() as u64) as usize];
            let replace = rng.chance(0.6);
            store.rename(name, to, replace, change).await.map(Some)
        }
        93..=95 => match store.reserve(Bytes(1 + rng.below(60_000))).await {
            Ok(id) => {
                // Another client may have seen it before the answer, and be releasing it.
                let mut known = world.reservations.borrow_mut();
                known.entry(id.0).or_insert(Expected::Reserved);
                Ok(None)
            }
            Err(error) => Err(error),
        },
        96..=97 => {
            let id = store
                .reservations()
                .last()
                .map_or(ReservationId(1), |one| one.id);
            let known = world.reservations.borrow().get(&id.0).copied();
            if known.is_some_and(|known| known != Expected::Reserved) {
                return true;
            }
            world
                .reservations
                .borrow_mut()
                .insert(id.0, Expected::Releasing);
            let answer = store.release(id).await;
            if answer.is_ok() {
                world.reservations.borrow_mut().insert(id.0, Expected::Gone);
            }
            answer.map(|()| None)
        }
        _ => match store.scrub_step(Bytes::kib(64)).await {
            Ok(step) => {
                if !step.bad.is_empty() {
                    world.fail(format!("a scrub found {:?}", step.bad));
                }
                Ok(None)
            }
            Err(error) => Err(error),
        },
    };
    match answer {
        Ok(Some(version)) if change.fua => world.durable_with(store, version),
        Ok(_) => {}
        Err(
            StoreError::NotFound { .. }
            | StoreError::Exists { .. }
            | StoreError::Condition { .. }
            | StoreError::NoSpace { .. }
            | StoreError::Reservation { .. }
            | StoreError::NoReservation { .. },
        ) => {}
        Err(StoreError::Device { .. } | StoreError::Failed { .. } | StoreError::Closed { .. }) => {
            return false;
        }
        Err(error) => world.fail(format!("{error}")),
    }
    true
}

async fn client(store: Store, world: Rc<World>, plan: Plan, mut rng: Rng) {
    loop {
        if rng.chance(0.3) {
            env::sleep(Nanos(rng.below(200_000))).await;
        }
        if !request(&store, &world, plan, &mut rng).await {
            return;
        }
    }
}

/// Waits for `task`, or for the power cut, which ends it: `None`.
pub(super) async fn until_cut<T: 'static>(
    supply: &Rc<PowerSupply>,
    mut task: env::Task<T>,
) -> Option<T> {
    let answer = {
        let mut task = std::pin::pin!(&mut task);
        let mut cut = std::pin::pin!(supply.wait_for_cut());
        std::future::poll_fn(|cx| {
            if let std::task::Poll::Ready(value) = task.as_mut().poll(cx) {
                return std::task::Poll::Ready(Some(value));
            }
            cut.as_mut().poll(cx).map(|()| None)
        })
        .await
    };
    task.cancel();
    answer
}

/// Runs one seed; the number of power cuts survived, or what went wrong.
fn run(seed: u64, plan: Plan) -> Result<u64, String> {
    let requests = Rc::new(Requests::default());
    run_on(&env::Runtime::simulated(seed), plan, &requests)
}

/// The same on a runtime whose trace is wanted, with the device's requests.
fn run_on(runtime: &env::Runtime, plan: Plan, requests: &Rc<Requests>) -> Result<u64, String> {
    let requests = Rc::clone(requests);
    runtime.block_on(async move {
        let mut rng = env::rng("torture");
        let world: Rc<World> = Rc::default();
        let mut supply = PowerSupply::new();
        let mut disk = Crash::on(&supply, "disk", small_size(plan.units), env::rng("disk"));
        disk.set_delay(Nanos(1_000), Nanos(90_000));
        let after = match rng.chance(0.5) {
            true => AfterCut::Silence,
            false => AfterCut::default(),
        };
        disk.set_after_cut(after);
        let settings = crate::Settings {
            page: plan.page,
            ..small()
        };
        let store = Store::format(requests.of(disk.clone()), settings).await;
        drop(store.map_err(|error| error.to_string())?);
        let mut cuts = 0;
        let mut journal: Vec<(u64, Step)> = Vec::new();
        while cuts <= plan.cuts {
            // Some cuts come while the store is being opened or read, most of them under load.
            if cuts > 0 && rng.chance(0.2) {
                supply.cut_at(supply.steps() + rng.below(60));
            }
            let (known, before) = (Rc::clone(&world), journal.clone());
            let device = requests.of(disk.clone());
            let opening = env::spawn(async move {
                let store = mistakes::open(device, plan.mutation)
                    .await
                    .map_err(|error| error.to_string())?;
                known.recovered(&before, &store).await?;
                Ok::<Store, String>(store)
            });
            let opened = until_cut(&supply, opening).await;
            match opened {
                None => {}
                Some(Err(why)) if supply.is_on() => return Err(format!("cut {cuts}: {why}")),
                Some(Err(_)) => {}
                Some(Ok(store)) => {
                    journal.clear();
                    disk.lie_about_flush(plan.mutation == Some(Mutation::SkippedFlush));
                    store.inner.trim.after.set(Nanos(200_000));
                    let mut users = Vec::new();
                    for number in 0..CLIENTS {
                        let rng = env::rng(&format!("client {number}"));
                        let client = client(store.clone(), Rc::clone(&world), plan, rng);
                        users.push(env::cancel_scope(env::spawn(client)));
                    }
                    supply.cut_at(supply.steps() + rng.below(WORK_STEPS));
                    supply.wait_for_cut().await;
                    drop(users);
                    store.inner.stop();
                    journal.clone_from(&store.inner.journal.borrow());
                }
            }
            if let Some(why) = world.broken.borrow().clone() {
                return Err(format!("cut {cuts}: {why}"));
            }
            cuts += 1;
            supply = PowerSupply::new();
            disk = disk.restart_on(&supply, env::rng("restart"));
            disk.lie_about_flush(false);
            if rng.chance(0.05) {
                let report = check(disk.clone(), true)
                    .await
                    .map_err(|error| error.to_string())?;
                if !report.is_clean() {
                    return Err(format!("cut {cuts}: a check found {:?}", report.findings));
                }
            }
        }
        let store = Store::open(requests.of(disk))
            .await
            .map_err(|error| error.to_string())?;
        world.recovered(&journal, &store).await?;
        store.close().await.map_err(|error| error.to_string())?;
        Ok(cuts)
    })
}

/// `TANADA_SEED` alone, or `TANADA_SEEDS` (else `least`) of them.
pub(super) fn seeds(least: u64) -> std::ops::Range<u64> {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    match number("TANADA_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("TANADA_SEEDS").unwrap_or(least).max(1),
    }
}

fn survive(test: &str, least: u64, plan: Plan) {
    let mut cuts = 0;
    for seed in seeds(least) {
        match run(seed, plan) {
            Ok(survived) => cuts += survived,
            Err(why) => panic!(
                "seed {seed}: {why}\nreplay: TANADA_SEED={seed} cargo test -p store crash_run::{test}"
            ),
        }
    }
    println!("{cuts} power cuts survived");
}

#[test]
fn writes_survive_power_cuts() {
    survive("writes_survive_power_cuts", 400, PLAIN);
}

#[test]
fn management_under_load_survives_power_cuts() {
    let plan = Plan {
        management: true,
        ..PLAIN
    };
    survive("management_under_load_survives_power_cuts", 400, plan);
}

#[test]
fn a_store_that_is_nearly_full_survives_power_cuts() {
    let plan = Plan {
        units: 4,
        management: true,
        ..PLAIN
    };
    survive("a_store_that_is_nearly_full_survives_power_cuts", 400, plan);
}

#[test]
fn larger_pages_survive_power_cuts() {
    let plan = Plan {
        page: Bytes::kib(16),
        management: true,
        units: 24,
        ..PLAIN
    };
    survive("larger_pages_survive_power_cuts", 400, plan);
}

/// A planted bug must show within so many seeds.
const SEEDS_TO_CATCH: u64 = 1_000;

/// A planted bug must be caught, or the checkers are blind.
fn catch(mutation: Mutation, plan: Plan) {
    let plan = Plan {
        mutation: Some(mutation),
        ..plan
    };
    for seed in 0..SEEDS_TO_CATCH {
        if let Err(why) = run(seed, plan) {
            let why: String = why.chars().take(200).collect();
            println!("{mutation:?} caught at seed {seed}: {why}");
            return;
        }
    }
    panic!("{mutation:?} went unseen through {SEEDS_TO_CATCH} seeds");
}

#[test]
fn a_skipped_flush_is_caught() {
    catch(Mutation::SkippedFlush, PLAIN);
}

#[test]
fn an_early_free_is_caught() {
    catch(Mutation::EarlyFree, PLAIN);
}

#[test]
fn a_late_record_is_caught() {
    catch(Mutation::LateRecord, PLAIN);
}

#[test]
fn a_discard_before_the_commit_is_caught() {
    catch(Mutation::EarlyTrim, PLAIN);
}

#[test]
fn a_discard_of_what_is_taken_again_is_caught() {
    let plan = Plan {
        units: 4,
        management: true,
        ..PLAIN
    };
    catch(Mutation::LooseTrim, plan);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let hash = |seed: u64| {
        let runtime = env::Runtime::simulated(seed);
        runtime.block_on(async move {
            let disk = Crash::new("disk", small_size(14), env::rng("disk"));
            disk.set_delay(Nanos(1_000), Nanos(90_000));
            let store = Store::format(disk, small()).await.unwrap();
            let world: Rc<World> = Rc::default();
            let plan = Plan {
                management: true,
                ..PLAIN
            };
            for number in 0..CLIENTS {
                let rng = env::rng(&format!("client {number}"));
                env::spawn(client(store.clone(), Rc::clone(&world), plan, rng));
            }
            env::sleep(Nanos::millis(50)).await;
        });
        runtime.trace_hash()
    };
    assert_eq!(hash(7), hash(7));
    assert_ne!(hash(7), hash(8));
}
