//! Are promises kept across power cuts? Holds, commits and releases cut off at every step, alone and over two stores.
//!
//! ```text
//! reservations made -> an operation, its step N failing -> restart -> open
//!   -> what was answered is there, what was released is not, room belongs to exactly what is there
//! ```
//!
//! `TANADA_SEEDS=N` runs more seeds of the random test, `TANADA_SEED=S` replays one.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use base::{Bytes, Nanos};
use device::crash::PowerSupply;
use device::fault::{Book, Done, Injury, Rule};
use device::{Crash, Device};
use policy::share::calendar::{BookingId, State};
use policy::share::{BytesPerSec, Direction, Second, Slot};

use super::crash_run::{seeds, until_cut};
use super::manager::{CREATE, options, request, reserved, soon};
use super::{pattern, small, small_size, sums_hold};
use crate::qos::manager::{
    Decision, Group, Manager, ManagerOptions, PartName, ReservationRequest, ReserveError, Reserved,
    reconcile,
};
use crate::qos::session::Access;
use crate::{ObjectCalls, Store, check};

async fn open(disk: Rc<dyn Device>) -> Result<Rc<Manager>, String> {
    let manager = Manager::open(disk, options()).await;
    manager.map_err(|error| format!("opening: {error}"))
}

async fn formatted(disk: Rc<dyn Device>) -> Rc<Manager> {
    let store = Store::format(Rc::clone(&disk), small()).await.unwrap();
    store.close().await.unwrap();
    open(disk).await.unwrap()
}

/// Room belongs to what is reserved, to each its own, and to nothing else.
fn room_is_whose_it_is(manager: &Manager) -> Result<(), String> {
    let rooms: Vec<u64> = manager
        .store()
        .reservations()
        .iter()
        .map(|it| it.id.0)
        .collect();
    let records = manager.core.bookings.records.borrow();
    let mut owned: Vec<u64> = records
        .values()
        .filter_map(|it| it.room)
        .map(|it| it.0)
        .collect();
    owned.sort_unstable();
    if rooms != owned {
        return Err(format!(
            "rooms {rooms:x?} in the store, {owned:x?} in the book"
        ));
    }
    for record in records.values() {
        // An amendment that is held gets the room of what it replaces once it is committed.
        let waits = record.replaces.is_some() && record.state != State::Committed;
        if (record.contract.space.0 > 0 && !waits) != record.room.is_some() {
            return Err(format!("reservation {} and its room", record.id.0));
        }
        if manager.core.bookings.calendar.borrow().get(record.id) != Some(&record.booking()) {
            return Err(format!("reservation {} in the calendar", record.id.0));
        }
    }
    if manager.core.bookings.calendar.borrow().bookings().count() != records.len() {
        return Err("the calendar has more than the book".to_owned());
    }
    sums_hold(manager.store());
    Ok(())
}

fn opens(manager: &Rc<Manager>, capability: &str) -> Result<(), String> {
    let session = manager.open_session(Access::Capability(capability));
    session
        .map(drop)
        .map_err(|error| format!("a capability that was answered: {error}"))
}

fn state(manager: &Manager, id: BookingId) -> Option<State> {
    let all = manager.reservations();
    all.iter().find(|it| it.id == id).map(|it| it.state)
}

// --- one store, one operation, each step ------------------------------------------------------------

#[derive(Debug, Clone, Copy, PartialEq)]
enum Failure {
    PowerCut,
    IoError,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Operation {
    Hold,
    CommitHeld,
    ReleaseHeld,
    ReleaseCommitted,
    AmendCommitted,
    RotateKey,
}

/// What an amendment promises, in MB/s.
const AMENDED: u64 = 12;

/// Of a reservation and what replaces it exactly one is promised, the latter if that was answered.
fn one_of_both(manager: &Manager, committed: BookingId, answered: bool) -> Result<(), String> {
    let all = manager.reservations();
    let promised = all.iter().filter(|it| it.state == State::Committed);
    let promised: Vec<_> = promised.map(|it| (it.id, it.request.rate)).collect();
    match promised[..] {
        [(id, _)] if id == committed && !answered => Ok(()),
        [(id, rate)] if id != committed && rate == BytesPerSec::mb(AMENDED) => Ok(()),
        _ => Err(format!("{promised:?} are promised, answered: {answered}")),
    }
}

async fn carry_out(
    manager: Rc<Manager>,
    operation: Operation,
    held: BookingId,
    committed: BookingId,
) -> Result<Option<String>, ReserveError> {
    match operation {
        Operation::Hold => {
            let more = request(&manager, Direction::Write, 9).space(Bytes::kib(64));
            manager
                .hold(&more, None, soon(&manager))
                .await
                .map(|_| None)
        }
        Operation::CommitHeld => manager.commit(held).await.map(Some),
        Operation::ReleaseHeld => manager.release(held).await.map(|()| None),
        Operation::ReleaseCommitted => manager.release(committed).await.map(|()| None),
        Operation::AmendCommitted => {
            let more = request(&manager, Direction::Write, AMENDED);
            let until = soon(&manager);
            let amended = manager.amend(committed, &more, None, until).await?;
            manager.commit(amended).await.map(Some)
        }
        Operation::RotateKey => manager.rotate_key([9; 32]).await.map(|()| None),
    }
}

async fn one_step(operation: Operation, failure: Failure, step: u64) -> Result<bool, String> {
    let supply = PowerSupply::new();
    let disk = Crash::on(&supply, "disk", small_size(20), env::rng("disk"));
    let book = Book::new(env::rng("faults"));
    let manager = formatted(book.wrap(disk.clone())).await;
    let writing = request(&manager, Direction::Write, 9).space(Bytes::kib(64));
    let (committed, capability) = reserved(&manager, &writing).await;
    let held = manager.hold(&writing, None, soon(&manager)).await.unwrap();
    match failure {
        Failure::PowerCut => supply.cut_at(supply.steps() + step),
        Failure::IoError => {
            book.add(Rule::new(Injury::Error(Done::Part)).after(step).once());
        }
    }
    let running = env::spawn(carry_out(Rc::clone(&manager), operation, held, committed));
    let answer = until_cut(&supply, running).await;
    let injuries = book.injuries();
    let through = supply.is_on() && injuries.errors + injuries.failed_flushes == 0;
    book.clear();
    manager.store().inner.stop();
    let disk = disk.restart(env::rng("restart"));
    if !check(disk.clone(), true)
        .await
        .map_err(|e| e.to_string())?
        .is_clean()
    {
        return Err("a check found something".to_owned());
    }
    // Another signer than before, where the answer said so.
    let rotated = operation == Operation::RotateKey && matches!(answer, Some(Ok(_)));
    let signer = if rotated { [9; 32] } else { [7; 32] };
    let manager = Manager::open(
        disk,
        ManagerOptions {
            signer,
            ..options()
        },
    )
    .await
    .map_err(|error| format!("opening: {error}"))?;
    room_is_whose_it_is(&manager)?;
    let answered = matches!(answer, Some(Ok(_)));
    if operation == Operation::AmendCommitted {
        one_of_both(&manager, committed, answered)?;
    }
    match state(&manager, committed) {
        // What took its place is opened by what was answered before.
        None if operation == Operation::AmendCommitted => opens(&manager, &capability)?,
        Some(State::Committed) if operation == Operation::ReleaseCommitted && answered => {
            return Err("what was released is back".to_owned());
        }
        Some(State::Committed) => opens(&manager, &capability)?,
        None if operation == Operation::ReleaseCommitted => {}
        other => return Err(format!("what was committed is {other:?}")),
    }
    match (operation, state(&manager, held)) {
        (Operation::ReleaseHeld, Some(_)) if answered => {
            return Err("what was let go is back".to_owned());
        }
        (Operation::ReleaseHeld, _) => {}
        (Operation::CommitHeld, Some(State::Tentative { .. })) if answered => {
            return Err("what was committed is only held".to_owned());
        }
        (_, None) => return Err("what was held is gone".to_owned()),
        _ => {}
    }
    if let Some(Ok(Some(capability))) = &answer {
        opens(&manager, capability)?;
    }
    let there = manager.reservations().len();
    if operation == Operation::Hold && answered && there != 3 {
        return Err(format!("{there} of 3 are there"));
    }
    Ok(through && answered)
}

fn fail_each_step(operation: Operation) {
    for failure in [Failure::PowerCut, Failure::IoError] {
        for step in 0.. {
            let verdict =
                env::Runtime::simulated(step).block_on(one_step(operation, failure, step));
            match verdict {
                Ok(false) => {}
                Ok(true) => {
                    println!("{operation:?}: {step} steps failed one by one ({failure:?})");
                    assert!(step >= 2, "it has steps");
                    break;
                }
                Err(why) => panic!("{operation:?}, {failure:?} at step {step}: {why}"),
            }
            assert!(step < 300, "{operation:?} does not come to an end");
        }
    }
}

#[test]
fn holding_may_fail_at_any_step() {
    fail_each_step(Operation::Hold);
}

#[test]
fn committing_may_fail_at_any_step() {
    fail_each_step(Operation::CommitHeld);
}

#[test]
fn releasing_may_fail_at_any_step() {
    fail_each_step(Operation::ReleaseHeld);
    fail_each_step(Operation::ReleaseCommitted);
}

#[test]
fn amending_may_fail_at_any_step() {
    fail_each_step(Operation::AmendCommitted);
}

#[test]
fn changing_the_key_may_fail_at_any_step() {
    fail_each_step(Operation::RotateKey);
}

// --- over two stores --------------------------------------------------------------------------------

/// What a manager does: all hold, all commit in order, then the answer.
async fn reserve_both(nodes: [Rc<Manager>; 2], group: Group) -> Result<[String; 2], ReserveError> {
    let mut ids = Vec::new();
    for manager in &nodes {
        let part = request(manager, Direction::Write, 20).space(Bytes::kib(64));
        ids.push(
            manager
                .hold(&part, Some(group.clone()), soon(manager))
                .await?,
        );
    }
    let part = |id| PartName::of(id, group.id);
    let first = nodes[0].commit(part(ids[0])).await?;
    Ok([first, nodes[1].commit(part(ids[1])).await?])
}

/// What a manager does: the deciding store first.
async fn release_both(nodes: [Rc<Manager>; 2]) -> Result<(), ReserveError> {
    for manager in nodes.iter().rev() {
        let Reserved { id, group, .. } = manager.reservations().remove(0);
        let group = group.map(|it| it.id);
        manager.release(PartName { id, group }).await?;
    }
    Ok(())
}

type Running<T> = Pin<Box<dyn Future<Output = Result<T, ReserveError>>>>;

/// Cuts `operation` off at `step`, and the settling after it at `again`; what both stores have in the end, and whether
/// the operation was answered.
async fn cut_both<T: 'static>(
    before: bool,
    operation: fn([Rc<Manager>; 2], Group) -> Running<T>,
    step: u64,
    again: Option<u64>,
) -> Result<([Vec<State>; 2], Option<T>, [Rc<Manager>; 2]), String> {
    let mut supply = PowerSupply::new();
    let disk = |name: &str| Crash::on(&supply, name, small_size(20), env::rng(name));
    let mut disks = [disk("a"), disk("b")];
    let [a, b] = &disks;
    let nodes = [formatted(a.clone()).await, formatted(b.clone()).await];
    let stores = nodes.iter().map(|it| it.store().uuid()).collect();
    let group = Group { id: 77, stores };
    if before {
        reserve_both(nodes.clone(), group.clone()).await.unwrap();
    }
    supply.cut_at(supply.steps() + step);
    let answer = until_cut(&supply, env::spawn(operation(nodes.clone(), group))).await;
    let answer = answer.and_then(Result::ok).filter(|_| supply.is_on());
    for manager in &nodes {
        manager.store().inner.stop();
    }
    let mut reopened: Vec<Rc<Manager>> = Vec::new();
    for cut in again.into_iter().map(Some).chain([None]) {
        supply = PowerSupply::new();
        disks = disks.map(|disk| disk.restart_on(&supply, env::rng("restart")));
        if let Some(step) = cut {
            supply.cut_at(step);
        }
        let (a, b) = (disks[0].clone(), disks[1].clone());
        let settle = async move {
            let nodes = vec![open(a).await?, open(b).await?];
            let settled = reconcile(&nodes).await;
            match settled.failed.first() {
                Some((_, why)) => Err(why.clone()),
                None => Ok::<_, String>(nodes),
            }
        };
        match until_cut(&supply, env::spawn(settle)).await {
            Some(Ok(nodes)) if supply.is_on() => reopened = nodes,
            Some(Err(why)) if supply.is_on() => return Err(why),
            _ => continue,
        }
        if cut.is_some() {
            for manager in &reopened {
                manager.store().inner.stop();
            }
        }
    }
    for manager in &reopened {
        room_is_whose_it_is(manager)?;
    }
    let nodes: [Rc<Manager>; 2] = reopened.try_into().map_err(|_| "two nodes".to_owned())?;
    let states = |manager: &Rc<Manager>| manager.reservations().iter().map(|it| it.state).collect();
    Ok(([states(&nodes[0]), states(&nodes[1])], answer, nodes))
}

#[test]
fn a_reservation_over_two_stores_is_there_whole_or_not_at_all() {
    let (mut whole, mut none) = (0, 0);
    for step in 0.. {
        let mut answered = false;
        for again in [
            None,
            Some(3),
            Some(9),
            Some(14),
            Some(20),
            Some(26),
            Some(33),
        ] {
            let verdict = env::Runtime::simulated(step).block_on(async move {
                let reserve: fn([Rc<Manager>; 2], Group) -> Running<[String; 2]> =
                    |nodes, group| Box::pin(reserve_both(nodes, group));
                let (states, answer, nodes) = cut_both(false, reserve, step, again).await?;
                let there = match states.each_ref().map(|it| it.as_slice()) {
                    [[], []] => false,
                    [[State::Committed], [State::Committed]] => true,
                    other => return Err(format!("{other:?}")),
                };
                if let Some(capabilities) = &answer {
                    for (manager, capability) in nodes.iter().zip(capabilities) {
                        opens(manager, capability)?;
                    }
                }
                Ok::<_, String>((there, answer.is_some()))
            });
            match verdict {
                Ok((there, got)) => {
                    *(if there { &mut whole } else { &mut none }) += 1;
                    answered = got;
                }
                Err(why) => panic!("cut at step {step}, then at {again:?}: {why}"),
            }
        }
        if answered {
            println!("{step} steps: {whole} times whole, {none} times not at all");
            break;
        }
        assert!(step < 300, "it does not come to an end");
    }
    assert!(whole > 0 && none > 20);
}

#[test]
fn releasing_a_reservation_over_two_stores_takes_all_of_it_or_nothing() {
    for step in 0.. {
        let verdict = env::Runtime::simulated(step).block_on(async move {
            let release: fn([Rc<Manager>; 2], Group) -> Running<()> =
                |nodes, _| Box::pin(release_both(nodes));
            let (states, answer, _) = cut_both(true, release, step, None).await?;
            match states.each_ref().map(|it| it.as_slice()) {
                [[], []] => Ok(answer.is_some()),
                [[State::Committed], [State::Committed]] if answer.is_none() => Ok(false),
                other => Err(format!("{other:?}, answered: {}", answer.is_some())),
            }
        });
        match verdict {
            Ok(true) => return println!("{step} steps"),
            Ok(false) => {}
            Err(why) => panic!("cut at step {step}: {why}"),
        }
    }
}

#[test]
fn what_another_store_decides_waits_for_it() {
    env::Runtime::simulated(1).block_on(async {
        let disks = ["a", "b"].map(|name| Crash::new(name, small_size(20), env::rng(name)));
        let nodes = [
            formatted(disks[0].clone()).await,
            formatted(disks[1].clone()).await,
        ];
        let stores = nodes.iter().map(|it| it.store().uuid()).collect();
        let [capability, _] = reserve_both(nodes.clone(), Group { id: 7, stores })
            .await
            .unwrap();
        assert_eq!(nodes[1].parts().decision(7).await, Ok(Decision::Committed));
        for manager in nodes {
            manager.close().await.unwrap();
        }
        let alone = open(disks[0].clone()).await.unwrap();
        let outcome = reconcile(&[Rc::clone(&alone)]).await;
        assert_eq!((outcome.undecided, outcome.released), (1, 0));
        opens(&alone, &capability).unwrap();
        let both = [alone, open(disks[1].clone()).await.unwrap()];
        let outcome = reconcile(&both).await;
        assert_eq!(
            (outcome.committed, outcome.undecided, outcome.released),
            (2, 0, 0)
        );
        let stranger = Group {
            id: 8,
            stores: vec![1, 2],
        };
        let refused = both[0]
            .hold(
                &request(&both[0], Direction::Read, 1),
                Some(stranger),
                soon(&both[0]),
            )
            .await;
        assert!(matches!(refused, Err(ReserveError::Request { .. })));
    });
}

#[test]
fn what_the_deciding_store_called_aborted_nobody_commits_afterwards() {
    env::Runtime::simulated(1).block_on(async {
        let disk = Crash::new("a", small_size(20), env::rng("a"));
        let manager = formatted(disk.clone()).await;
        let group = Group {
            id: 7,
            stores: vec![1, manager.store().uuid()],
        };
        let part = request(&manager, Direction::Write, 1).space(Bytes::kib(64));
        let id = manager
            .hold(&part, Some(group), soon(&manager))
            .await
            .unwrap();
        assert_eq!(manager.parts().decision(7).await, Ok(Decision::Aborted));
        let late = manager.commit(PartName::of(id, 7)).await;
        assert!(matches!(late, Err(ReserveError::NoBooking(_))), "{late:?}");
        room_is_whose_it_is(&manager).unwrap();
        assert_eq!(manager.parts().decision(7).await, Ok(Decision::Aborted));
        drop(manager);
        let manager = open(disk).await.unwrap();
        assert_eq!(manager.reservations(), []);
    });
}

// --- many, at random --------------------------------------------------------------------------------

/// What a client knows of one of its reservations.
#[derive(Debug, Clone, PartialEq)]
enum Expected {
    Tentative(Second),
    Committed(String, Second),
    /// An operation on it has no answer yet.
    Asked,
    Released,
}

#[derive(Default)]
struct World {
    known: RefCell<Vec<(BookingId, Expected)>>,
    broken: RefCell<Option<String>>,
    answers: Cell<u64>,
}

impl World {
    fn set(&self, id: BookingId, known: Expected) {
        let mut all = self.known.borrow_mut();
        match all.iter_mut().find(|(other, _)| *other == id) {
            Some((_, state)) => *state = known,
            None => all.push((id, known)),
        }
    }

    fn fail(&self, why: String) {
        self.broken.borrow_mut().get_or_insert(why);
    }

    fn holds(&self, manager: &Rc<Manager>) -> Result<(), String> {
        let now = manager.now();
        for (id, known) in self.known.borrow().iter() {
            let found = state(manager, *id);
            match known {
                Expected::Tentative(until) if now < *until && found.is_none() => {
                    return Err(format!(
                        "what was held until {until} is gone at {now}: {id:?}"
                    ));
                }
                Expected::Committed(capability, end) if now < *end => opens(manager, capability)?,
                Expected::Released if found.is_some() => return Err(format!("{id:?} is back")),
                _ => {}
            }
        }
        room_is_whose_it_is(manager)
    }
}

/// One client: holds, commits, uses and releases reservations of its own.
async fn client(manager: Rc<Manager>, world: Rc<World>, mut rng: env::Rng) {
    let mut mine: Vec<(BookingId, Expected)> = Vec::new();
    loop {
        world.answers.set(world.answers.get() + 1);
        // Time goes on also where nothing is written.
        env::sleep(Nanos::millis(1 + rng.below(50))).await;
        let now = manager.now();
        let at = rng.below(mine.len().max(1) as u64) as usize;
        match (rng.below(6), mine.get(at).cloned()) {
            (0 | 1, _) | (_, None) => {
                let start = Second(now.0 + rng.below(3));
                let slot = Slot::new(start, 2 + rng.below(30));
                let rate = BytesPerSec::mb(1 + rng.below(30));
                let direction = if rng.chance(0.5) {
                    Direction::Read
                } else {
                    Direction::Write
                };
                let mut wanted = ReservationRequest::new(direction, rate, slot);
                if direction == Direction::Write && rng.chance(0.7) {
                    wanted.space = Bytes(1 + rng.below(150_000));
                }
                let until = Second(now.0 + 1 + rng.below(8));
                match manager.hold(&wanted, None, until).await {
                    Ok(id) => {
                        world.set(id, Expected::Tentative(until.min(slot.end)));
                        mine.push((id, Expected::Tentative(until)));
                    }
                    Err(ReserveError::Refused(_)) => {}
                    Err(_) => return,
                }
                if mine.len() > 6 {
                    mine.remove(0);
                }
            }
            (2 | 3, Some((id, _))) => {
                let end = manager
                    .reservations()
                    .iter()
                    .find(|it| it.id == id)
                    .map(|it| it.request.slot.end);
                world.set(id, Expected::Asked);
                match manager.commit(id).await {
                    Ok(capability) => {
                        let known = Expected::Committed(capability, end.unwrap_or(now));
                        world.set(id, known.clone());
                        mine[at].1 = known;
                    }
                    Err(ReserveError::NoBooking(_)) => {
                        world.set(id, Expected::Released);
                        mine.remove(at);
                    }
                    Err(_) => return,
                }
            }
            (4, Some((id, _))) => {
                world.set(id, Expected::Asked);
                match manager.release(id).await {
                    Ok(()) | Err(ReserveError::NoBooking(_)) => world.set(id, Expected::Released),
                    Err(_) => return,
                }
                mine.remove(at);
            }
            (_, Some((id, Expected::Committed(capability, _)))) => {
                let name = format!("by {}", id.0);
                if let Ok(session) = manager.open_session(Access::Capability(&capability)) {
                    let data = pattern(rng.bits(), 1 + rng.below(20_000) as usize);
                    let _ = session.write(&name, rng.below(3) << 14, data, CREATE).await;
                }
                let master = manager.open_session(Access::NodeKey);
                if let Ok(master) = master {
                    let _ = master.delete(&name, CREATE).await;
                }
            }
            _ => env::sleep(Nanos::millis(rng.below(900))).await,
        }
        if let Err(why) = room_fits(&manager) {
            world.fail(why);
        }
    }
}

/// While others are under way: no more room than there is.
fn room_fits(manager: &Manager) -> Result<(), String> {
    let space = manager.store().space();
    let sum = space.free + space.reserved + space.used;
    match sum == space.total {
        true => Ok(()),
        false => Err(format!("{sum} of {}", space.total)),
    }
}

async fn survive(seed: u64) -> Result<u64, String> {
    let mut rng = env::rng("promises");
    let mut disk = Crash::new("disk", small_size(12), env::rng("disk"));
    let world: Rc<World> = Rc::default();
    let mut manager = formatted(disk.clone()).await;
    for cut in 0..6 {
        let supply = Rc::clone(disk.supply());
        supply.cut_at(supply.steps() + rng.below(400));
        let clients: Vec<_> = (0..3)
            .map(|number| {
                let rng = env::rng(&format!("{seed} {cut} {number}"));
                env::spawn(client(Rc::clone(&manager), Rc::clone(&world), rng))
            })
            .collect();
        env::timeout(Nanos::secs(40), supply.wait_for_cut())
            .await
            .ok();
        for task in clients {
            task.cancel();
        }
        if let Some(why) = world.broken.borrow().clone() {
            return Err(why);
        }
        manager.store().inner.stop();
        disk = disk.restart(env::rng("restart"));
        let report = check(disk.clone(), true).await.map_err(|e| e.to_string())?;
        if !report.is_clean() {
            return Err(format!("a check found {:?}", report.findings));
        }
        manager = open(disk.clone()).await?;
        world
            .holds(&manager)
            .map_err(|why| format!("after cut {cut}: {why}"))?;
    }
    Ok(world.answers.get())
}

#[test]
fn promises_survive_power_cuts() {
    let mut answers = 0;
    for seed in seeds(60) {
        match env::Runtime::simulated(seed).block_on(survive(seed)) {
            Ok(more) => answers += more,
            Err(why) => panic!(
                "seed {seed}: {why}\nreplay: TANADA_SEED={seed} cargo test -p store promises_survive"
            ),
        }
    }
    println!("{answers} answers held");
}
