//! Every management operation cut off, and failed with an I/O error, at each of its steps.
//!
//! ```text
//! hybrids of one lane, and of several: there an operation may be cut off between two lanes
//! a seed's work, the same each time -> the operation once, untroubled: it takes N requests of both devices
//!   -> for each of them: the same work -> the operation, with that request failing -> what the disk still answers
//!   -> power cut -> open -> read all -> detach -> read the bare slow device
//! ```

use std::cell::RefCell;
use std::rc::Rc;

use base::{Bytes, Nanos, Sector, Span};
use device::crash::PowerSupply;
use device::fault::{Book, Done, Injury, Rule};
use device::{Crash, Device, DeviceError, DeviceExt, Op, Pending};
use env::Rng;

use super::{
    AREA_PAGES, AREAS, FAST_LANE, PLAIN, Plan, SLOW, World, audit, check, is_moving, lanes,
    live_caches, live_tiers, paint, pick_span, seeds, until_cut,
};
use crate::attach::label::Label;
use crate::tier::interval::{demote_idle, demote_region, promote_region};
use crate::{Demotion, Health, Hybrid, Lanes, Mode, OpenError, Settings, Tier, Ties, WriteMode};

/// Different work, and so different steps.
const SEEDS: u64 = 5;
/// How long an operation that goes on behind its call is waited for, in milliseconds.
const WAIT_MS: u64 = 2_000;

/// How the step fails.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Failure {
    PowerCut,
    IoError,
}

/// What there is before the operation begins.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Stage {
    /// A slow device with data, a blank fast one.
    Blank,
    /// A disk of a slow device alone, a blank fast one.
    Alone,
    /// A block cache with dirty data.
    Cache,
    /// The same, closed.
    Closed,
    /// The same after a power cut.
    Crashed,
    /// A tier with nothing up.
    Tier,
    /// A tier with every region up that was written to, dirty.
    Up,
}

impl Stage {
    fn plan(self) -> Plan {
        match self {
            Stage::Tier | Stage::Up => Plan {
                uses: &[Mode::Tier],
                ..PLAIN
            },
            _ => PLAIN,
        }
    }

    fn fast(self) -> Bytes {
        match self {
            Stage::Tier | Stage::Up => self.plan().fast(),
            // Room to grow into.
            _ => Bytes::mib(1),
        }
    }

    fn choices(self) -> Settings {
        match self {
            Stage::Tier | Stage::Up => Settings {
                mode: Mode::Tier,
                tier: Tier {
                    region: Bytes::mib(1),
                    extent: Some(Bytes::mib(1)),
                    demotion: Demotion {
                        lazy: false,
                        ..Demotion::default()
                    },
                    flow_control: false,
                    break_even: false,
                    ..Tier::default()
                },
                ..Settings::default()
            },
            _ => Settings {
                fast_bytes: Some(Bytes(100 * 4096)),
                sequential_bypass: None,
                ..Settings::default()
            },
        }
    }
}

/// Two devices, what was done with them, and the disk of them if there is one.
struct Pair {
    supply: Rc<PowerSupply>,
    slow: Rc<Crash>,
    fast: Rc<Crash>,
    book: Rc<Book>,
    choices: Settings,
    abandoned: Rc<RefCell<Vec<u128>>>,
    disk: RefCell<Option<Lanes>>,
    lanes: u32,
    world: World,
    rng: RefCell<Rng>,
}

fn plainly(error: impl std::fmt::Display) -> DeviceError {
    DeviceError::Gone {
        device: "vol".to_owned(),
        op: Op::Flush,
        why: error.to_string(),
    }
}

impl Pair {
    fn new(stage: Stage, lanes: u32) -> Pair {
        let supply = PowerSupply::new();
        let plan = Plan {
            lanes,
            ..stage.plan()
        };
        lanes::shorten_units(&mut env::rng("units"), plan);
        let mut choices = stage.choices();
        choices.fast_bytes = choices.fast_bytes.map(|bytes| bytes * u64::from(lanes));
        let fast = match lanes {
            1 => stage.fast(),
            // A part of each is left to grow into.
            _ => (FAST_LANE + Bytes::kib(256)) * u64::from(lanes),
        };
        Pair {
            slow: Crash::on(&supply, "slow", SLOW, env::rng("slow")),
            fast: Crash::on(&supply, "fast", fast, env::rng("fast")),
            supply,
            // One book of faults, so that steps count over both devices.
            book: Book::new(env::rng("faults")),
            choices,
            abandoned: Rc::default(),
            disk: RefCell::default(),
            lanes,
            world: World::new(plan),
            rng: RefCell::new(env::rng("work")),
        }
    }

    fn faulty(&self) -> (Rc<dyn Device>, Rc<dyn Device>) {
        let slow = self.book.wrap(self.slow.clone());
        (slow, self.book.wrap(self.fast.clone()))
    }

    fn disk(&self) -> Lanes {
        self.disk.borrow().clone().expect("the stage has a disk")
    }

    fn ties(&self) -> Ties {
        let (registry, supply) = (Rc::clone(&self.abandoned), Rc::clone(&self.supply));
        Ties {
            abandoned: self.abandoned.borrow().clone(),
            on_abandon: Some(Rc::new(move |cache| {
                // A dead process writes nothing.
                if !supply.is_on() {
                    return Err("the power is off".to_owned());
                }
                registry.borrow_mut().push(cache);
                Ok(())
            })),
            ..Ties::default()
        }
    }

    async fn create(&self) -> Result<(), DeviceError> {
        let (slow, fast) = self.faulty();
        let (count, choices) = (self.lanes, self.choices.clone());
        let made = Lanes::create(count, choices, slow, fast, |_| self.ties()).await;
        *self.disk.borrow_mut() = Some(made.map_err(plainly)?);
        Ok(())
    }

    async fn open(&self) -> Result<(), DeviceError> {
        let (slow, fast) = self.faulty();
        let opened = Lanes::open(self.choices.clone(), slow, fast, |_| self.ties()).await;
        *self.disk.borrow_mut() = Some(opened.map_err(plainly)?);
        Ok(())
    }

    async fn write(&self, disk: &dyn Device, id: u64) -> Result<(), DeviceError> {
        let span = pick_span(&mut self.rng.borrow_mut(), PLAIN);
        let begun = self.world.oracle.borrow_mut().begin(span, id, false);
        disk.write_at(span.start, paint(span, id)).await?;
        self.world.oracle.borrow_mut().end(span, begun, false);
        Ok(())
    }

    async fn flush(&self, disk: &dyn Device) -> Result<(), DeviceError> {
        let begun = self.world.oracle.borrow_mut().tick();
        disk.flush().await?;
        self.world.oracle.borrow_mut().flushed(begun);
        Ok(())
    }

    /// The work of this seed, up to where the operation begins.
    async fn prepare(&mut self, stage: Stage) -> Result<(), DeviceError> {
        match stage {
            Stage::Blank => {}
            Stage::Alone if self.lanes == 1 => {
                let (slow, fast) = self.faulty();
                let alone = Hybrid::alone(self.choices.clone(), slow).map_err(plainly)?;
                *self.disk.borrow_mut() = Some(Lanes::around(alone, fast));
            }
            Stage::Alone => {
                self.create().await?;
                self.disk().detach().await.map_err(plainly)?;
            }
            _ => self.create().await?,
        }
        if stage == Stage::Up {
            move_regions(&self.disk(), true).await;
        }
        let disk: Rc<dyn Device> = match self.disk.borrow().clone() {
            Some(disk) => Rc::new(disk),
            None => self.slow.clone(),
        };
        for id in 1..60 {
            self.write(&*disk, id).await?;
        }
        self.flush(&*disk).await?;
        if stage == Stage::Closed {
            self.disk().close().await.map_err(plainly)?;
        }
        if matches!(stage, Stage::Closed | Stage::Crashed) {
            self.stop();
            self.restart();
        }
        Ok(())
    }

    /// Ends the disk's background tasks.
    fn stop(&self) {
        if let Some(disk) = self.disk.borrow_mut().take() {
            live_caches(&disk).for_each(|cache| cache.stop());
        }
    }

    fn restart(&mut self) {
        self.supply = PowerSupply::new();
        self.slow = self.slow.restart_on(&self.supply, env::rng("slow restart"));
        self.fast = self.fast.restart_on(&self.supply, env::rng("fast restart"));
    }

    /// The disk may have stopped. What it still takes and flushes counts, whatever became of the operation, and what
    /// it still answers must be right.
    async fn go_on(&self) {
        let Some(disk) = self.disk.borrow().clone() else {
            return;
        };
        for id in 100..130 {
            let _ = self.write(&disk, id).await;
        }
        let _ = self.flush(&disk).await;
        for area in AREAS {
            let span = Span::bytes(area * 4096, AREA_PAGES * 4096);
            if let Ok(buf) = disk.read_at(span.start, span.len).await {
                check(&self.world, span, &buf, None, "after the error");
            }
        }
    }

    /// A disk of several lanes as it was left, by the way that makes nothing where there is something.
    async fn reopen(&self, slow: Rc<dyn Device>, fast: Rc<dyn Device>) -> Result<Lanes, OpenError> {
        let (below, above) = (Rc::clone(&slow), Rc::clone(&fast));
        match Lanes::open(self.choices.clone(), below, above, |_| self.ties()).await {
            // Before or after the operation there is none; or one is being made.
            Err(OpenError::NoCache { .. } | OpenError::LaneBlank { .. }) => {
                let (count, choices) = (self.lanes, self.choices.clone());
                Lanes::open_or_create(count, choices, slow, fast, |_| self.ties()).await
            }
            answer => answer,
        }
    }

    /// After a power cut: all is as it may be, on the disk and on the bare slow device.
    async fn settle(&mut self) -> Result<(), String> {
        self.stop();
        self.restart();
        let (slow, fast) = (self.slow.clone(), self.fast.clone());
        let disk = match self.lanes {
            1 => Lanes::open_or_create(1, self.choices.clone(), slow, fast, |_| self.ties()).await,
            _ => self.reopen(slow, fast).await,
        };
        let disk = disk.map_err(|error| format!("reopening: {error}"))?;
        let health = disk.status().health;
        if health != Health::Healthy {
            return Err(format!("reopened, it is {health:?}"));
        }
        audit(&disk, &self.world, "reopened").await;
        disk.detach().await.map_err(|error| error.to_string())?;
        audit(&*self.slow, &self.world, "the bare slow device").await;
        let broken = self.world.broken.borrow().clone();
        broken.map_or(Ok(()), Err)
    }
}

/// Sends the regions that are worked in up or down and waits for them, but not for ever: a device may fail.
async fn move_regions(disk: &Lanes, up: bool) {
    for area in AREAS {
        let (lane, there) = disk.place_of(area * 4096);
        let Some(tier) = lane.engine.live_tier() else {
            return;
        };
        let region = {
            let table = tier.cache.state.extents.borrow();
            table.grains.region_of(table.grains.extent_of(there / 4096))
        };
        match up {
            true => promote_region(&tier, region, "test".to_owned()),
            false => demote_region(&tier, region, "test".to_owned()),
        }
    }
    if !up {
        live_tiers(disk).for_each(|tier| demote_idle(&tier));
    }
    for _ in 0..WAIT_MS {
        let running = live_caches(disk).all(|cache| cache.is_running());
        if !disk.lanes().any(is_moving) || !running {
            return;
        }
        env::sleep(Nanos::millis(1)).await;
    }
}

type Operation = fn(Rc<Pair>) -> Pending<'static, ()>;

/// One run of a seed's work and the operation, with `failing` as the step that fails. Returns how many requests the
/// operation made, by which a fault counts, and how many reached the devices, by which a power cut counts.
async fn run(
    (stage, lanes): (Stage, u32),
    operation: Operation,
    failing: Option<(Failure, u64)>,
) -> Result<[u64; 2], String> {
    let mut pair = Pair::new(stage, lanes);
    let prepared = pair.prepare(stage).await;
    prepared.map_err(|error| format!("before the operation: {error}"))?;
    let (asked, first) = (pair.book.steps(), pair.supply.steps());
    match failing {
        None => {}
        Some((Failure::PowerCut, step)) => pair.supply.cut_at(first + step),
        Some((Failure::IoError, step)) => {
            let rule = Rule::new(Injury::Error(Done::Part)).after(step).once();
            pair.book.add(rule);
        }
    }
    let pair = Rc::new(pair);
    let answer = until_cut(&pair.supply, env::spawn(operation(Rc::clone(&pair)))).await;
    let steps = [pair.book.steps() - asked, pair.supply.steps() - first];
    let injuries = pair.book.injuries();
    match failing {
        None if answer != Some(Ok(())) => return Err(format!("untroubled: {answer:?}")),
        Some((Failure::PowerCut, _)) if pair.supply.is_on() => {
            return Err("the step was not reached: the work was not the same".to_owned());
        }
        Some((Failure::IoError, _)) if injuries.errors + injuries.failed_flushes == 0 => {
            return Err("the step was not reached: the work was not the same".to_owned());
        }
        _ => {}
    }
    pair.book.clear();
    if pair.supply.is_on() {
        pair.go_on().await;
    }
    pair.stop();
    let mut pair = until_ours(pair).await;
    pair.settle().await.map(|()| steps)
}

/// Waits until no other owner has the pair.
async fn until_ours(mut pair: Rc<Pair>) -> Pair {
    loop {
        match Rc::try_unwrap(pair) {
            Ok(ours) => return ours,
            Err(shared) => pair = shared,
        }
        env::sleep(Nanos::millis(1)).await;
    }
}

/// Fails every step of `operation`, one by one, in both ways, over [`SEEDS`] seeds.
fn fail_each_step(name: &str, stage: Stage, operation: Operation) {
    fail_steps(name, (stage, 1), (SEEDS, 1), operation);
}

/// The same with two, four and eight lanes, of which the last have very many steps: some are passed over, others in each seed.
fn fail_steps_of_lanes(name: &str, stage: Stage, operation: Operation) {
    for (lanes, some) in [(2, (2, 1)), (4, (2, 3)), (8, (2, 11))] {
        let name = format!("{name}, {lanes} lanes");
        fail_steps(&name, (stage, lanes), some, operation);
    }
}

/// Fails steps of `operation` over some seeds, one by one, in both ways: each step, or each n-th.
fn fail_steps(name: &str, stage: (Stage, u32), (least, nth): (u64, usize), operation: Operation) {
    for seed in seeds(0, least) {
        let once = |failing| {
            let runtime = env::Runtime::simulated(seed);
            runtime.block_on(async move { run(stage, operation, failing).await })
        };
        let all = once(None).unwrap_or_else(|why| panic!("{name}, seed {seed}: {why}"));
        for (failure, steps) in [Failure::IoError, Failure::PowerCut].into_iter().zip(all) {
            assert!(steps > 0, "{name} asks the devices for something");
            for step in (seed % nth as u64..steps).step_by(nth) {
                if let Err(why) = once(Some((failure, step))) {
                    panic!("{name}, {failure:?} at step {step} of {steps}, seed {seed}: {why}");
                }
            }
        }
        println!("{name}, seed {seed}: {all:?} steps failed and cut off one by one");
    }
}

fn create(pair: Rc<Pair>) -> Pending<'static, ()> {
    Box::pin(async move { pair.create().await })
}

fn open(pair: Rc<Pair>) -> Pending<'static, ()> {
    Box::pin(async move { pair.open().await })
}

fn attach(pair: Rc<Pair>) -> Pending<'static, ()> {
    Box::pin(async move {
        let (_, fast) = pair.faulty();
        let attached = pair.disk().attach(fast, |_| pair.ties()).await;
        attached.map_err(plainly)
    })
}

fn detach(pair: Rc<Pair>) -> Pending<'static, ()> {
    Box::pin(async move { pair.disk().detach().await.map_err(plainly) })
}

fn detach_and_attach(pair: Rc<Pair>) -> Pending<'static, ()> {
    Box::pin(async move {
        pair.disk().detach().await.map_err(plainly)?;
        let (_, fast) = pair.faulty();
        let attached = pair.disk().attach(fast, |_| pair.ties()).await;
        attached.map_err(plainly)
    })
}

fn grow(pair: Rc<Pair>) -> Pending<'static, ()> {
    Box::pin(async move { pair.disk().resize(None).await.map_err(plainly) })
}

fn shrink(pair: Rc<Pair>) -> Pending<'static, ()> {
    Box::pin(async move {
        let size = Some(Bytes(64 * 4096) * u64::from(pair.lanes));
        pair.disk().resize(size).await.map_err(plainly)
    })
}

fn close(pair: Rc<Pair>) -> Pending<'static, ()> {
    Box::pin(async move { pair.disk().close().await.map_err(plainly) })
}

fn write_through(pair: Rc<Pair>) -> Pending<'static, ()> {
    Box::pin(async move {
        let answer = pair.disk().set_write_mode(WriteMode::Through).await;
        answer.map_err(plainly)
    })
}

#[test]
fn creating_may_fail_at_any_step() {
    fail_each_step("create", Stage::Blank, create);
}

#[test]
fn opening_after_a_close_may_fail_at_any_step() {
    fail_each_step("open", Stage::Closed, open);
}

#[test]
fn opening_after_a_power_cut_may_fail_at_any_step() {
    fail_each_step("open after a crash", Stage::Crashed, open);
}

#[test]
fn attaching_may_fail_at_any_step() {
    fail_each_step("attach", Stage::Alone, attach);
}

#[test]
fn detach_may_fail_at_any_step() {
    fail_each_step("detach", Stage::Cache, detach);
}

#[test]
fn detach_and_attach_may_fail_at_any_step() {
    fail_each_step("detach and attach", Stage::Cache, detach_and_attach);
}

#[test]
fn growing_may_fail_at_any_step() {
    fail_each_step("grow", Stage::Cache, grow);
}

#[test]
fn shrinking_may_fail_at_any_step() {
    fail_each_step("shrink", Stage::Cache, shrink);
}

#[test]
fn closing_may_fail_at_any_step() {
    fail_each_step("close", Stage::Cache, close);
}

#[test]
fn leaving_write_back_may_fail_at_any_step() {
    fail_each_step("write-through", Stage::Cache, write_through);
}

#[test]
fn evacuating_may_fail_at_any_step() {
    fail_each_step("evacuate", Stage::Cache, |pair| {
        Box::pin(async move {
            let cache = live_caches(&pair.disk()).next().expect("it is attached");
            let slots = slots_of(&cache.health.label.borrow());
            let dying = Rule::new(Injury::Error(Done::Nothing)).on(&[Op::Write]);
            pair.book.add(dying.device("fast").within(slots));
            let disk = pair.disk();
            let _ = pair.write(&disk, 90).await;
            for _ in 0..WAIT_MS {
                let health = disk.status().health;
                if matches!(health, Health::PassThrough | Health::Failed) {
                    return pair.flush(&disk).await;
                }
                env::sleep(Nanos::millis(1)).await;
            }
            Err(plainly("it does not come to an end"))
        })
    });
}

fn slots_of(label: &Label) -> Span {
    let end = label.slot(label.slots_max);
    let start: Sector = label.slot(0);
    Span::new(start, Bytes(end.byte() - start.byte()))
}

#[test]
fn going_up_may_fail_at_any_step() {
    fail_each_step("up", Stage::Tier, |pair| {
        Box::pin(async move {
            move_regions(&pair.disk(), true).await;
            Ok(())
        })
    });
}

#[test]
fn going_down_may_fail_at_any_step() {
    fail_each_step("down", Stage::Up, |pair| {
        Box::pin(async move {
            move_regions(&pair.disk(), false).await;
            Ok(())
        })
    });
}

#[test]
fn detaching_a_tier_may_fail_at_any_step() {
    fail_each_step("detach a tier", Stage::Up, |pair| {
        Box::pin(async move { pair.disk().detach().await.map_err(plainly) })
    });
}

#[test]
fn leaving_a_tier_for_a_cache_may_fail_at_any_step() {
    fail_each_step("tier to cache", Stage::Up, |pair| {
        Box::pin(async move {
            let settings = Settings {
                mode: Mode::Cache,
                ..pair.disk().settings()
            };
            pair.disk().set(settings).await.map_err(plainly)?;
            pair.disk().flush().await
        })
    });
}

#[test]
fn making_lanes_may_fail_at_any_step() {
    fail_steps_of_lanes("create", Stage::Blank, create);
}

#[test]
fn opening_lanes_after_a_close_may_fail_at_any_step() {
    fail_steps_of_lanes("open", Stage::Closed, open);
}

#[test]
fn opening_lanes_after_a_power_cut_may_fail_at_any_step() {
    fail_steps_of_lanes("open after a crash", Stage::Crashed, open);
}

#[test]
fn attaching_to_lanes_may_fail_at_any_step() {
    fail_steps_of_lanes("attach", Stage::Alone, attach);
}

#[test]
fn detaching_from_lanes_may_fail_at_any_step() {
    fail_steps_of_lanes("detach", Stage::Cache, detach);
}

#[test]
fn detaching_from_lanes_and_attaching_may_fail_at_any_step() {
    fail_steps_of_lanes("detach and attach", Stage::Cache, detach_and_attach);
}

#[test]
fn growing_lanes_may_fail_at_any_step() {
    fail_steps_of_lanes("grow", Stage::Cache, grow);
}

#[test]
fn shrinking_lanes_may_fail_at_any_step() {
    fail_steps_of_lanes("shrink", Stage::Cache, shrink);
}

#[test]
fn closing_lanes_may_fail_at_any_step() {
    fail_steps_of_lanes("close", Stage::Cache, close);
}

#[test]
fn leaving_write_back_with_lanes_may_fail_at_any_step() {
    fail_steps_of_lanes("write-through", Stage::Cache, write_through);
}
