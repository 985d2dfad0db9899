//! Does it lose data? Random work, power cuts at random steps, and an oracle that knows what may be there.
//!
//! ```text
//! work by several clients -> power cut at step N -> restart with any subset of unflushed writes, torn
//!   -> open -> read all, read again -> more work and cuts -> detach -> read the bare slow device
//! ```
//!
//! Each sector's contents name the write that made them. The oracle keeps, per sector, every write that may
//! still be seen: a write is out as soon as a later one (begun after it ended) is known to be durable, or,
//! for reads without a crash, known to have completed.
//!
//! `TANADA_SEEDS=N` runs more seeds, `TANADA_SEED=S` replays one.

mod digests;
mod faults;
mod lanes;
mod notes;
mod restarts;
mod steps;

use std::cell::RefCell;
use std::rc::Rc;

use base::{Buf, Bytes, Map, Nanos, SECTOR, Sector, Span, View};
use device::crash::{AfterCut, PowerSupply};
use device::{Class, Crash, Device, DeviceError, DeviceExt, WriteFlags};
use env::Rng;
use policy::cache::Kind;
use policy::tier::Parameters;

use self::digests::noted::Requests;
use crate::cache::Cache;
use crate::mutation::{Flushless, Mutation};
use crate::tier::Tier as TierState;
use crate::tier::interval::{demote_region, promote_region};
use crate::writeback::clear_intents;
use crate::{
    Admission, Buffer, CopyBack, Demotion, Hybrid, Lanes, Mode, Mover, OpenError, Settings, Tier,
    Ties, WriteMode,
};

const SLOW: Bytes = Bytes::mib(24);
const FAST: Bytes = Bytes::kib(768);
/// With a tier: room for a few extents.
const FAST_TIER: Bytes = Bytes::mib(8);
/// Of each lane of several; none has less than a MiB.
const FAST_LANE: Bytes = Bytes::mib(1);
const CLIENTS: u64 = 4;
/// Between an error and a user's next request.
const USER_REST: Nanos = Nanos::millis(5);
/// Work goes to a few small areas in different 4 MiB regions, so that requests meet.
const AREAS: [u64; 5] = [0, 1023, 1030, 3000, 6120];
const AREA_PAGES: u64 = 24;
/// Device requests between the beginning of a move and an aimed cut, at most.
const AIMED_STEPS: u64 = 40;
/// Device requests of work between two cuts, at most.
const WORK_STEPS: u64 = 600;
/// ... and when a move is waited for.
const AIMED_WORK_STEPS: u64 = 3_000;
/// Power cuts inside moves that each test of them survives, and how many that are together.
const IN_MOVES_EACH: u64 = 1_000;
const IN_MOVES: u64 = 10_000;

// --- the oracle -----------------------------------------------------------------------------------

/// One write that a sector may show. Times are the oracle's own ticks.
#[derive(Debug, Clone, Copy)]
struct Version {
    /// Names the write; 0 is zeroes.
    id: u64,
    begun: u64,
    /// `None` while in flight, or if it failed: it may land any time.
    ended: Option<u64>,
    durable: bool,
    /// Outlives the process, not yet a power cut.
    kept: bool,
    /// Advice: may show, but puts nothing else out.
    advice: bool,
}

#[derive(Default)]
struct Oracle {
    tick: u64,
    next_id: u64,
    sectors: Map<u64, Vec<Version>>,
    /// When the reads under way began: what they may show is kept.
    reading: Vec<u64>,
}

impl Oracle {
    fn tick(&mut self) -> u64 {
        self.tick += 1;
        self.tick
    }

    fn begin_read(&mut self) -> u64 {
        let begun = self.tick();
        self.reading.push(begun);
        begun
    }

    fn end_read(&mut self, begun: u64) {
        self.reading.retain(|other| *other != begun);
    }

    /// What completed before this tick is known to every read under way.
    fn horizon(&self) -> u64 {
        self.reading.iter().copied().min().unwrap_or(u64::MAX)
    }

    fn versions(&mut self, sector: u64) -> &mut Vec<Version> {
        self.sectors.entry(sector).or_insert_with(|| {
            vec![Version {
                id: 0,
                begun: 0,
                ended: Some(0),
                durable: true,
                kept: false,
                advice: false,
            }]
        })
    }

    /// A write begins; its tick names it.
    fn begin(&mut self, span: Span, id: u64, advice: bool) -> u64 {
        let begun = self.tick();
        for sector in span.start.0..span.end().0 {
            self.versions(sector).push(Version {
                id,
                begun,
                ended: None,
                durable: false,
                kept: false,
                advice,
            });
        }
        begun
    }

    fn end(&mut self, span: Span, begun: u64, durable: bool) {
        let now = self.tick();
        let horizon = self.horizon();
        for sector in span.start.0..span.end().0 {
            let versions = self.versions(sector);
            if let Some(version) = versions.iter_mut().find(|v| v.begun == begun) {
                version.ended = Some(now);
                version.durable = durable && !version.advice;
            }
            prune(versions, horizon);
        }
    }

    /// A flush that began at tick `begun` has completed.
    fn flushed(&mut self, begun: u64) {
        let horizon = self.horizon();
        for versions in self.sectors.values_mut() {
            for version in versions.iter_mut() {
                if version.ended.is_some_and(|ended| ended < begun) && !version.advice {
                    version.durable = true;
                }
            }
            prune(versions, horizon);
        }
    }

    /// May a read that began at tick `begun` (`None`: after a crash) show `id`?
    fn allows(&mut self, sector: u64, id: u64, begun: Option<u64>) -> bool {
        let versions = self.versions(sector);
        versions.iter().filter(|v| v.id == id).any(|seen| {
            let out = versions.iter().any(|later| {
                let after = seen.ended.is_some_and(|ended| ended < later.begun) && !later.advice;
                after
                    && match begun {
                        Some(begun) => later.ended.is_some_and(|ended| ended < begun),
                        None => later.durable || later.kept,
                    }
            });
            !out
        })
    }

    /// What recovery showed is what is there from now on.
    fn settle(&mut self, sector: u64, id: u64) {
        let now = self.tick();
        self.sectors.insert(
            sector,
            vec![Version {
                id,
                begun: now,
                ended: Some(now),
                durable: true,
                kept: false,
                advice: false,
            }],
        );
    }
}

/// Forgets versions that nothing may show any more: neither a crash nor a read that is under way since
/// before `horizon`.
fn prune(versions: &mut Vec<Version>, horizon: u64) {
    let newest = versions
        .iter()
        .filter(|v| v.durable && v.ended.is_some_and(|ended| ended < horizon))
        .map(|v| v.begun)
        .max()
        .unwrap_or(0);
    versions.retain(|v| v.ended.is_none_or(|ended| ended >= newest));
}

/// A sector's contents: who wrote it, and where to.
fn paint(span: Span, id: u64) -> View {
    let mut buf = Buf::zeroed(span.len.usize());
    if id != 0 {
        for (number, sector) in buf.chunks_mut(SECTOR as usize).enumerate() {
            let at = span.start.0 + number as u64;
            for (word, bytes) in sector.chunks_mut(16).enumerate() {
                bytes[..8].copy_from_slice(&id.to_le_bytes());
                bytes[8..].copy_from_slice(&(at << 8 | word as u64).to_le_bytes());
            }
        }
    }
    buf.freeze()
}

/// Who wrote this sector; `Err` for a mixture of two writes or another sector's data.
fn signature(bytes: &[u8], at: u64) -> Result<u64, String> {
    if bytes.iter().all(|byte| *byte == 0) {
        return Ok(0);
    }
    let word =
        |range: std::ops::Range<usize>| u64::from_le_bytes(bytes[range].try_into().expect("eight"));
    let id = word(0..8);
    for number in 0..bytes.len() / 16 {
        let (who, place) = (
            word(number * 16..number * 16 + 8),
            word(number * 16 + 8..number * 16 + 16),
        );
        if who != id || place != (at << 8 | number as u64) {
            return Err(format!(
                "torn or foreign: write {who} for place {place:#x} among write {id}'s"
            ));
        }
    }
    Ok(id)
}

// --- the work -------------------------------------------------------------------------------------

/// What a run does.
#[derive(Debug, Clone, Copy)]
struct Plan {
    modes: &'static [WriteMode],
    uses: &'static [Mode],
    movers: &'static [Mover],
    /// Cuts come soon after a move began, if one does.
    aimed: bool,
    /// Detach, attach, resize, settings.
    management: bool,
    /// Only whole pages, cached: after a crash a page must be of one write.
    whole_pages: bool,
    cuts: u64,
    /// Devices fail in other ways, too: users go on after an error, and sectors may be unreadable.
    faults: bool,
    /// A record of pairs is kept.
    pairs: bool,
    /// There is a restart log: what was answered outlives the process.
    restarts: bool,
    /// The disk has so many lanes, of short units.
    lanes: u32,
    /// Users reach each lane through a gate, as from another thread.
    remote: bool,
    mutation: Option<Mutation>,
}

impl Plan {
    fn has_tier(&self) -> bool {
        self.uses.iter().any(|mode| mode.has_tier())
    }

    fn fast(&self) -> Bytes {
        let each = match (self.has_tier(), self.lanes) {
            (true, _) => FAST_TIER,
            (false, 1) => FAST,
            (false, _) => FAST_LANE,
        };
        each * u64::from(self.lanes)
    }
}

struct World {
    oracle: Rc<RefCell<Oracle>>,
    plan: Plan,
    broken: Rc<RefCell<Option<String>>>,
    /// How the manager attaches a fast device.
    ties: RefCell<Rc<dyn Fn(u32) -> Ties>>,
    /// Users hear nothing after the end of the life that this feeds.
    life: RefCell<Option<Rc<PowerSupply>>>,
}

impl World {
    fn new(plan: Plan) -> World {
        World {
            oracle: Rc::default(),
            plan,
            broken: Rc::default(),
            ties: RefCell::new(Rc::new(|_| Ties::default())),
            life: RefCell::default(),
        }
    }

    /// Is there still a process that answers?
    fn answers(&self) -> bool {
        let life = self.life.borrow();
        life.as_ref().is_none_or(|supply| supply.is_on())
    }
}

fn pick_span(rng: &mut Rng, plan: Plan) -> Span {
    let area = AREAS[rng.below(AREAS.len() as u64) as usize];
    if plan.whole_pages {
        let first = rng.below(AREA_PAGES);
        let count = 1 + rng.below(3.min(AREA_PAGES - first));
        return Span::bytes((area + first) * 4096, count * 4096);
    }
    let sectors = AREA_PAGES * 8;
    let first = rng.below(sectors);
    let most = match rng.below(4) {
        0 => 1,
        1 => 8,
        2 => 24,
        _ => 96,
    };
    let count = 1 + rng.below(most.min(sectors - first));
    // Half of the requests keep to pages, as most clients do.
    if rng.chance(0.5) {
        let (first, end) = (first / 8, (first + count).div_ceil(8));
        return Span::bytes((area + first) * 4096, (end - first) * 4096);
    }
    Span::new(Sector(area * 8 + first), Bytes(count * SECTOR))
}

/// After an error a user gives up; under faults the user tries something else a moment later.
macro_rules! rest_or_return {
    ($world:expr) => {{
        if !$world.plan.faults {
            return;
        }
        env::sleep(USER_REST).await;
        continue;
    }};
}

async fn client(disk: Rc<dyn Device>, world: Rc<World>, mut rng: Rng) {
    loop {
        if rng.chance(0.3) {
            env::sleep(Nanos(rng.below(200_000))).await;
        }
        let span = pick_span(&mut rng, world.plan);
        let oracle = &world.oracle;
        let draw = rng.below(100);
        match draw {
            0..=44 => {
                let id = {
                    let mut oracle = oracle.borrow_mut();
                    oracle.next_id += 1;
                    oracle.next_id
                };
                let fua = rng.chance(0.1);
                let begun = oracle.borrow_mut().begin(span, id, false);
                let flags = WriteFlags {
                    fua,
                    class: Class::Foreground,
                };
                let written = disk.write(span.start, paint(span, id), flags).await;
                if written.is_err() {
                    rest_or_return!(world);
                }
                if !world.answers() {
                    return;
                }
                oracle.borrow_mut().end(span, begun, fua);
            }
            45..=54 => {
                let begun = oracle.borrow_mut().tick();
                if disk.flush().await.is_err() {
                    rest_or_return!(world);
                }
                oracle.borrow_mut().flushed(begun);
            }
            55..=58 if !world.plan.whole_pages => {
                let begun = oracle.borrow_mut().begin(span, 0, true);
                if disk.discard(span).await.is_err() {
                    rest_or_return!(world);
                }
                oracle.borrow_mut().end(span, begun, false);
            }
            59..=63 if !world.plan.whole_pages => {
                let fua = rng.chance(0.2);
                let begun = oracle.borrow_mut().begin(span, 0, false);
                let flags = WriteFlags {
                    fua,
                    class: Class::Foreground,
                };
                if disk.write_zeroes(span, flags).await.is_err() {
                    rest_or_return!(world);
                }
                if !world.answers() {
                    return;
                }
                oracle.borrow_mut().end(span, begun, fua);
            }
            _ => {
                let begun = oracle.borrow_mut().begin_read();
                let answer = disk.read_at(span.start, span.len).await;
                oracle.borrow_mut().end_read(begun);
                let Ok(buf) = answer else {
                    rest_or_return!(world);
                };
                check(&world, span, &buf, Some(begun), "a read");
            }
        }
    }
}

fn check(world: &World, span: Span, bytes: &[u8], begun: Option<u64>, what: &str) -> Vec<u64> {
    let mut seen = Vec::new();
    let mut oracle = world.oracle.borrow_mut();
    for (sector, bytes) in (span.start.0..).zip(bytes.chunks(SECTOR as usize)) {
        let verdict = signature(bytes, sector).and_then(|id| {
            if oracle.allows(sector, id, begun) {
                return Ok(id);
            }
            let known = oracle.versions(sector).clone();
            Err(format!("write {id} must not show; known: {known:?}"))
        });
        match verdict {
            Ok(id) => seen.push(id),
            Err(why) => {
                let mut broken = world.broken.borrow_mut();
                broken.get_or_insert_with(|| {
                    format!("{what}, sector {sector} (page {}): {why}", sector / 8)
                });
                seen.push(0);
            }
        }
    }
    seen
}

async fn manager(disk: Lanes, fast: Rc<dyn Device>, world: Rc<World>, mut rng: Rng) {
    loop {
        env::sleep(Nanos(rng.below(3_000_000))).await;
        let modes = world.plan.modes;
        if world.plan.has_tier() && live_tiers(&disk).next().is_some() {
            push_regions(&disk, &mut rng);
        }
        let draw = match (world.plan.management, world.plan.has_tier()) {
            (true, _) => rng.below(6),
            (false, true) => continue,
            (false, false) => 0,
        };
        let answer: Result<(), String> = match draw {
            0 => {
                let mode = modes[rng.below(modes.len() as u64) as usize];
                disk.set_write_mode(mode)
                    .await
                    .map_err(|error| error.to_string())
            }
            1 => disk.detach().await.map_err(|error| error.to_string()),
            2 => {
                let ties = world.ties.borrow().clone();
                match disk.attach(Rc::clone(&fast), |lane| ties(lane)).await {
                    Err(OpenError::State { .. }) => Ok(()),
                    answer => answer.map_err(|error| error.to_string()),
                }
            }
            3 => {
                let bytes = size(&mut rng, world.plan);
                match disk.resize(Some(bytes)).await {
                    Err(OpenError::State { .. }) => Ok(()),
                    answer => answer.map_err(|error| error.to_string()),
                }
            }
            4 => {
                let mut settings = Settings {
                    block: Bytes(4096 << rng.below(4)),
                    policy: Kind::ALL[rng.below(Kind::ALL.len() as u64) as usize],
                    ..disk.settings()
                };
                if world.plan.has_tier() {
                    let uses = world.plan.uses;
                    settings.mode = uses[rng.below(uses.len() as u64) as usize];
                    settings.tier = tier(&mut rng, world.plan);
                }
                disk.set(settings).await.map_err(|error| error.to_string())
            }
            _ => {
                for cache in live_caches(&disk) {
                    let _ = clear_intents(&cache, Nanos(0)).await;
                }
                Ok(())
            }
        };
        if answer.is_err() && !world.plan.faults {
            return;
        }
    }
}

/// How much of the fast device is used.
fn size(rng: &mut Rng, plan: Plan) -> Bytes {
    let pages = match plan.has_tier() {
        // Where moves are waited for there is room for some.
        true if plan.aimed => 900 + rng.below(500),
        true => 400 + rng.below(1_000),
        false => 64 + rng.below(80),
    };
    Bytes(pages * 4096 * u64::from(plan.lanes))
}

/// Each lane's tier, where there is one.
fn live_tiers(disk: &Lanes) -> impl Iterator<Item = Rc<TierState>> {
    disk.lanes().filter_map(|lane| lane.engine.live_tier())
}

fn live_caches(disk: &Lanes) -> impl Iterator<Item = Rc<Cache>> {
    disk.lanes().filter_map(|lane| lane.engine.live_cache())
}

/// Choices under which regions go up and down all the time.
fn tier(rng: &mut Rng, plan: Plan) -> Tier {
    let extent = Bytes::mib(1 << rng.below(2));
    let region = extent * (1 << rng.below(2));
    let ranges = |some: bool, area: usize| match some {
        true => vec![Span::bytes(AREAS[area] * 4096, 4096)],
        false => Vec::new(),
    };
    let (mover, buffer) = match plan.movers {
        [Mover::Direct] => (Mover::Direct, Buffer::Fast),
        movers => {
            let mover = movers[rng.below(movers.len() as u64) as usize];
            let buffer = [Buffer::Fast, Buffer::Memory][rng.below(2) as usize];
            (mover, buffer)
        }
    };
    Tier {
        parameters: Parameters {
            period: Nanos::millis(1 + rng.below(8)),
            iops_min: 0.0,
            sub_luns_max: 1 + rng.below(3) as u32,
            share_min: rng.below(90) as f64,
            streak_min: 1 + rng.below(2) as u32,
            timeout: 1 + rng.below(3) as u32,
            ..Parameters::default()
        },
        region,
        extent: Some(extent),
        demotion: Demotion {
            copy_back: if rng.chance(0.3) {
                CopyBack::All
            } else {
                CopyBack::Changed
            },
            lazy: rng.chance(0.5),
            ..Demotion::default()
        },
        flow_control: rng.chance(0.3),
        break_even: rng.chance(0.3),
        either: rng.chance(0.5),
        share: match plan.aimed {
            true => rng.chance(0.7).then(|| 60 + rng.below(35) as u8),
            false => rng.chance(0.7).then(|| 20 + rng.below(70) as u8),
        },
        mover,
        buffer,
        pinned: ranges(rng.chance(0.2), 0),
        barred: ranges(rng.chance(0.2), 4),
        ..Tier::default()
    }
}

/// Sends a region up or down, whatever the policy thinks of it.
fn push_regions(disk: &Lanes, rng: &mut Rng) {
    if !disk.settings().mode.has_tier() {
        return;
    }
    let area = AREAS[rng.below(AREAS.len() as u64) as usize];
    let draw = rng.below(3);
    let (lane, there) = disk.place_of(area * 4096);
    let Some(tier) = lane.engine.live_tier() else {
        return;
    };
    let region = {
        let table = tier.cache.state.extents.borrow();
        table.grains.region_of(table.grains.extent_of(there / 4096))
    };
    match draw {
        0 => promote_region(&tier, region, "torture".to_owned()),
        1 => demote_region(&tier, region, "torture".to_owned()),
        _ => {}
    }
}

fn settings(rng: &mut Rng, plan: Plan) -> Settings {
    Settings {
        name: "vol".to_owned(),
        write: plan.modes[rng.below(plan.modes.len() as u64) as usize],
        block: if rng.chance(0.5) {
            Bytes(4096)
        } else {
            Bytes(16384)
        },
        policy: Kind::ALL[rng.below(Kind::ALL.len() as u64) as usize],
        admission: if rng.chance(0.7) {
            Admission::Always
        } else {
            Admission::SecondAccess
        },
        sequential_bypass: if plan.whole_pages || rng.chance(0.5) {
            None
        } else {
            Some(Bytes(16384))
        },
        dirty_low: 5,
        dirty_high: 40,
        fast_bytes: Some(match plan.has_tier() {
            true => size(rng, plan),
            false => Bytes((64 + rng.below(60)) * 4096 * u64::from(plan.lanes)),
        }),
        commit_after: Nanos::millis(1 + rng.below(5)),
        mode: match plan.has_tier() {
            true => plan.uses[rng.below(plan.uses.len() as u64) as usize],
            false => Mode::Cache,
        },
        tier: match plan.has_tier() {
            true => tier(rng, plan),
            false => Tier::default(),
        },
        ..Settings::default()
    }
}

/// Reads every sector the oracle knows of and settles it.
async fn audit(disk: &dyn Device, world: &World, what: &str) {
    for area in AREAS {
        let span = Span::bytes(area * 4096, AREA_PAGES * 4096);
        let buf = match disk.read_at(span.start, span.len).await {
            Ok(buf) => buf,
            Err(_) if world.plan.faults => {
                faults::audit_singly(disk, world, span, what).await;
                continue;
            }
            Err(error) => {
                let why = format!("{what}: {error}");
                world.broken.borrow_mut().get_or_insert(why);
                return;
            }
        };
        let seen = check(world, span, &buf, None, what);
        if world.plan.whole_pages {
            for (page, ids) in seen.chunks(8).enumerate() {
                if ids.iter().any(|id| *id != ids[0]) {
                    let why = format!("{what}: page {} is torn: {ids:?}", area + page as u64);
                    world.broken.borrow_mut().get_or_insert(why);
                }
            }
        }
        let mut oracle = world.oracle.borrow_mut();
        for (sector, id) in (span.start.0..).zip(seen) {
            oracle.settle(sector, id);
        }
    }
}

/// What a run went through.
#[derive(Debug, Clone, Copy, Default)]
struct Survived {
    cuts: u64,
    /// Cuts while a region was on its way up or down.
    in_moves: u64,
}

/// Is anything of the tier on its way up or down?
fn is_moving(disk: &Hybrid) -> bool {
    let Some(tier) = disk.engine.live_tier() else {
        return false;
    };
    let extents = tier.cache.state.extents.borrow();
    let demoting = extents.demoting().next().is_some();
    demoting || tier.jobs.borrow().any() || tier.movers.published.is_moving()
}

/// Cuts the power while a move is under way, `steps` device requests after one began. One that is over by then is let
/// go, and the next waited for.
async fn cut_in_a_move(disk: Lanes, supply: Rc<PowerSupply>, steps: u64) {
    let mut begun = None;
    loop {
        begun = match (disk.lanes().any(is_moving), begun) {
            (false, _) => None,
            (true, None) => Some(supply.steps()),
            (true, Some(begun)) if supply.steps() >= begun + steps => {
                supply.cut_now();
                return;
            }
            (true, begun) => begun,
        };
        env::sleep(Nanos::micros(20)).await;
    }
}

/// Runs one seed: what it survived, or what went wrong.
fn run(seed: u64, plan: Plan) -> Result<Survived, String> {
    let requests = Rc::new(Requests::default());
    run_on(&env::Runtime::simulated(seed), plan, &requests)
}

/// The same on a runtime whose trace is wanted, with the devices' requests.
fn run_on(runtime: &env::Runtime, plan: Plan, requests: &Rc<Requests>) -> Result<Survived, String> {
    let requests = Rc::clone(requests);
    runtime.block_on(async move {
        let mut rng = env::rng("torture");
        let world = Rc::new(World::new(plan));
        let mut supply = PowerSupply::new();
        let mut slow = Crash::on(&supply, "slow", SLOW, env::rng("slow"));
        let mut fast = Crash::on(&supply, "fast", plan.fast(), env::rng("fast"));
        slow.set_delay(Nanos(20_000), Nanos(900_000));
        fast.set_delay(Nanos(1_000), Nanos(90_000));
        let after = if rng.chance(0.5) {
            AfterCut::Silence
        } else {
            AfterCut::default()
        };
        slow.set_after_cut(after);
        fast.set_after_cut(after);
        let (mut cuts, mut in_moves) = (0, 0);
        lanes::shorten_units(&mut rng, plan);
        let mut choices = settings(&mut rng, plan);
        while cuts < plan.cuts {
            // Some cuts come while the pair is being opened or read, most of them under load.
            if rng.chance(if plan.aimed { 0.05 } else { 0.25 }) {
                supply.cut_at(supply.steps() + rng.below(200));
            }
            let opening = {
                let choices = choices.clone();
                let slow = requests.of(Rc::clone(&slow) as Rc<dyn Device>);
                let fast = requests.of(Rc::clone(&fast) as Rc<dyn Device>);
                let fast = Flushless::over(fast, plan.mutation);
                env::spawn(async move {
                    Lanes::open_or_create(plan.lanes, choices, slow, fast, |_| Ties::default())
                        .await
                })
            };
            let opened = until_cut(&supply, opening).await;
            match opened {
                None => {}
                Some(Err(OpenError::Device(DeviceError::Gone { .. }))) if !supply.is_on() => {}
                Some(Err(_)) if !supply.is_on() => {}
                Some(Err(error)) => return Err(format!("cut {cuts}: cannot open: {error}")),
                Some(Ok(disk)) => {
                    for tier in live_tiers(&disk) {
                        let cache = &tier.cache;
                        cache.volume.planted.set(plan.mutation);
                        let step = Bytes::kib(128 << rng.below(4));
                        tier.movers.published.step.set(step);
                        cache.check_tier();
                    }
                    let audits = env::spawn({
                        let (disk, world) = (disk.clone(), Rc::clone(&world));
                        async move {
                            audit(&disk, &world, "after the cut").await;
                            audit(&disk, &world, "read again").await;
                        }
                    });
                    // An audit cut off by the next cut proves nothing and claims nothing.
                    let before = world.broken.borrow().clone();
                    if until_cut(&supply, audits).await.is_none() || !supply.is_on() {
                        *world.broken.borrow_mut() = before;
                    } else if world.broken.borrow().is_none() {
                        let seen: Rc<dyn Device> = match plan.remote {
                            true => lanes::through_gate(&disk).await,
                            false => Rc::new(disk.clone()),
                        };
                        // The users die with the machine.
                        let mut users = Vec::new();
                        for number in 0..CLIENTS {
                            let rng = env::rng(&format!("client {number}"));
                            let user = client(Rc::clone(&seen), Rc::clone(&world), rng);
                            users.push(env::cancel_scope(env::spawn(user)));
                        }
                        let manager = manager(
                            disk.clone(),
                            requests.of(Rc::clone(&fast) as Rc<dyn Device>),
                            Rc::clone(&world),
                            env::rng("manager"),
                        );
                        users.push(env::cancel_scope(env::spawn(manager)));
                        let work = match plan.aimed {
                            true => {
                                let (supply, disk) = (Rc::clone(&supply), disk.clone());
                                let cut = cut_in_a_move(disk, supply, rng.below(AIMED_STEPS));
                                users.push(env::cancel_scope(env::spawn(cut)));
                                AIMED_WORK_STEPS
                            }
                            false => rng.below(WORK_STEPS),
                        };
                        supply.cut_at(supply.steps() + work);
                        supply.wait_for_cut().await;
                        in_moves += u64::from(disk.lanes().any(is_moving));
                    }
                    for cache in live_caches(&disk) {
                        cache.stop();
                        cache.state.map().check();
                        cache.check_tier();
                    }
                }
            }
            if let Some(why) = world.broken.borrow().clone() {
                return Err(format!("cut {cuts}: {why}"));
            }
            cuts += 1;
            world.oracle.borrow_mut().reading.clear();
            supply = PowerSupply::new();
            let (dead_slow, dead_fast) = (slow, fast);
            slow = dead_slow.restart_on(&supply, env::rng("slow restart"));
            fast = dead_fast.restart_on(&supply, env::rng("fast restart"));
            if rng.chance(0.3) {
                choices = settings(&mut rng, plan);
            }
        }
        // The end: open, read twice, detach, and the bare slow device shows the same.
        let disk = Lanes::open_or_create(
            plan.lanes,
            choices,
            requests.of(Rc::clone(&slow) as _),
            requests.of(Rc::clone(&fast) as _),
            |_| Ties::default(),
        )
        .await
        .map_err(|error| format!("at the end: {error}"))?;
        audit(&disk, &world, "at the end").await;
        audit(&disk, &world, "at the end, again").await;
        disk.detach()
            .await
            .map_err(|error| format!("at the end: {error}"))?;
        audit(&*slow, &world, "the bare slow device").await;
        let broken = world.broken.borrow().clone();
        broken.map_or(Ok(Survived { cuts, in_moves }), Err)
    })
}

/// Waits for `task`, or for the power cut, which ends it: `None`.
async fn until_cut<T: 'static>(supply: &Rc<PowerSupply>, mut task: env::Task<T>) -> Option<T> {
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

/// `TANADA_SEED` alone, or `TANADA_SEEDS` (else `least`) of them from `first` on.
fn seeds(first: u64, least: u64) -> std::ops::Range<u64> {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    match number("TANADA_SEED") {
        Some(seed) => seed..seed + 1,
        None => first..first + number("TANADA_SEEDS").unwrap_or(least).max(1),
    }
}

fn survive(test: &str, least: u64, plan: Plan) {
    survive_from(test, 0, least, plan);
}

fn survive_from(test: &str, first: u64, least: u64, plan: Plan) {
    let mut all = Survived::default();
    for seed in seeds(first, least) {
        match run(seed, plan) {
            Ok(survived) => {
                all.cuts += survived.cuts;
                all.in_moves += survived.in_moves;
            }
            Err(why) => panic!(
                "seed {seed}: {why}\nreplay: TANADA_SEED={seed} cargo test -p hybrid crash_run::{test}"
            ),
        }
    }
    let Survived { cuts, in_moves } = all;
    println!("{cuts} power cuts survived, {in_moves} of them while a region moved");
    if plan.aimed && cuts >= least * plan.cuts {
        assert!(
            in_moves >= IN_MOVES_EACH,
            "{in_moves} power cuts inside moves are too few"
        );
    }
}

const PLAIN: Plan = Plan {
    modes: &[WriteMode::Back],
    uses: &[Mode::Cache],
    movers: &[Mover::Direct],
    aimed: false,
    management: false,
    whole_pages: false,
    cuts: 5,
    faults: false,
    pairs: false,
    restarts: false,
    lanes: 1,
    remote: false,
    mutation: None,
};

#[test]
fn write_back_survives_power_cuts() {
    survive("write_back_survives_power_cuts", 500, PLAIN);
}

#[test]
fn write_through_and_around_survive_power_cuts() {
    let plan = Plan {
        modes: &[WriteMode::Through, WriteMode::Around],
        ..PLAIN
    };
    survive("write_through_and_around_survive_power_cuts", 500, plan);
}

#[test]
fn changing_modes_survive_power_cuts() {
    let plan = Plan {
        modes: &WriteMode::ALL,
        ..PLAIN
    };
    survive("changing_modes_survive_power_cuts", 500, plan);
}

#[test]
fn management_under_load_survives_power_cuts() {
    let plan = Plan {
        modes: &WriteMode::ALL,
        management: true,
        ..PLAIN
    };
    survive("management_under_load_survives_power_cuts", 500, plan);
}

#[test]
fn regions_on_the_move_survive_power_cuts() {
    let plan = Plan {
        uses: &[Mode::Tier, Mode::Both],
        ..PLAIN
    };
    survive("regions_on_the_move_survive_power_cuts", 500, plan);
}

/// Cuts aimed at moves of some mover.
const fn moves(movers: &'static [Mover], uses: &'static [Mode]) -> Plan {
    Plan {
        modes: &[WriteMode::Back, WriteMode::OnlyWrites],
        uses,
        movers,
        aimed: true,
        ..PLAIN
    }
}

/// The same with changes of mode, size and choices all the while.
const fn managed_moves(movers: &'static [Mover]) -> Plan {
    Plan {
        management: true,
        ..moves(movers, &[Mode::Tier, Mode::Both, Mode::Cache])
    }
}

/// The tests of moves, each with its first seed and how many of them: together they survive [`IN_MOVES`].
const MOVE_TESTS: [(&str, u64, u64, Plan); 10] = [
    (
        "published_moves_survive_power_cuts",
        0,
        260,
        moves(&[Mover::Published], &[Mode::Tier]),
    ),
    (
        "more_published_moves_survive_power_cuts",
        1000,
        260,
        moves(&[Mover::Published], &[Mode::Tier]),
    ),
    (
        "published_moves_beside_a_cache_survive_power_cuts",
        0,
        300,
        moves(&[Mover::Published], &[Mode::Both]),
    ),
    (
        "more_published_moves_beside_a_cache_survive_power_cuts",
        1000,
        300,
        moves(&[Mover::Published], &[Mode::Both]),
    ),
    (
        "direct_moves_survive_power_cuts",
        0,
        260,
        moves(&[Mover::Direct], &[Mode::Tier]),
    ),
    (
        "more_direct_moves_survive_power_cuts",
        1000,
        260,
        moves(&[Mover::Direct], &[Mode::Tier]),
    ),
    (
        "direct_moves_beside_a_cache_survive_power_cuts",
        0,
        300,
        moves(&[Mover::Direct], &[Mode::Both]),
    ),
    (
        "more_direct_moves_beside_a_cache_survive_power_cuts",
        1000,
        300,
        moves(&[Mover::Direct], &[Mode::Both]),
    ),
    (
        "published_moves_under_management_survive_power_cuts",
        0,
        340,
        managed_moves(&[Mover::Published]),
    ),
    (
        "direct_moves_under_management_survive_power_cuts",
        0,
        340,
        managed_moves(&[Mover::Direct]),
    ),
];
const _: () = assert!(MOVE_TESTS.len() as u64 * IN_MOVES_EACH >= IN_MOVES);

fn survive_moves(nth: usize) {
    let (name, first, count, plan) = MOVE_TESTS[nth];
    survive_from(name, first, count, plan);
}

#[test]
fn published_moves_survive_power_cuts() {
    survive_moves(0);
}

#[test]
fn more_published_moves_survive_power_cuts() {
    survive_moves(1);
}

#[test]
fn published_moves_beside_a_cache_survive_power_cuts() {
    survive_moves(2);
}

#[test]
fn more_published_moves_beside_a_cache_survive_power_cuts() {
    survive_moves(3);
}

#[test]
fn direct_moves_survive_power_cuts() {
    survive_moves(4);
}

#[test]
fn more_direct_moves_survive_power_cuts() {
    survive_moves(5);
}

#[test]
fn direct_moves_beside_a_cache_survive_power_cuts() {
    survive_moves(6);
}

#[test]
fn more_direct_moves_beside_a_cache_survive_power_cuts() {
    survive_moves(7);
}

#[test]
fn published_moves_under_management_survive_power_cuts() {
    survive_moves(8);
}

#[test]
fn direct_moves_under_management_survive_power_cuts() {
    survive_moves(9);
}

#[test]
fn tiers_under_management_survive_power_cuts() {
    let plan = Plan {
        modes: &[WriteMode::Back, WriteMode::OnlyWrites],
        uses: &[Mode::Tier, Mode::Both, Mode::Cache],
        management: true,
        ..PLAIN
    };
    survive("tiers_under_management_survive_power_cuts", 500, plan);
}

#[test]
fn cached_pages_are_never_torn() {
    let plan = Plan {
        modes: &[WriteMode::Back, WriteMode::OnlyWrites],
        whole_pages: true,
        ..PLAIN
    };
    survive("cached_pages_are_never_torn", 200, plan);
}

/// A planted bug must show within so many seeds.
const SEEDS_TO_CATCH: u64 = 3_000;

/// A planted bug must be caught, or the checkers are blind.
fn catch(mutation: Mutation, plan: Plan) {
    let plan = Plan {
        mutation: Some(mutation),
        ..plan
    };
    for seed in 0..SEEDS_TO_CATCH {
        if let Err(why) = run(seed, plan) {
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
fn a_late_invalidation_is_caught() {
    let plan = Plan {
        modes: &[WriteMode::Through, WriteMode::Around],
        ..PLAIN
    };
    catch(Mutation::LateInvalidation, plan);
}

#[test]
fn an_unrecorded_intent_is_caught() {
    let plan = Plan {
        uses: &[Mode::Tier],
        ..PLAIN
    };
    catch(Mutation::UnrecordedIntent, plan);
}

#[test]
fn an_early_clean_is_caught() {
    catch(Mutation::EarlyClean, PLAIN);
}

const MOVES: Plan = moves(&[Mover::Published], &[Mode::Tier, Mode::Both]);

const DIRECT_MOVES: Plan = Plan {
    movers: &[Mover::Direct],
    ..MOVES
};

#[test]
fn pages_dropped_before_the_slow_device_was_flushed_are_caught() {
    catch(Mutation::DroppedEarly, MOVES);
}

#[test]
fn a_region_demoted_before_its_pages_are_destaged_is_caught() {
    catch(Mutation::RecordFirst, DIRECT_MOVES);
}

#[test]
fn a_copy_over_a_newer_write_is_caught() {
    catch(Mutation::StaleCopy, MOVES);
    catch(Mutation::StaleFill, DIRECT_MOVES);
}

#[test]
fn a_synchronization_that_leaves_a_mark_out_is_caught() {
    catch(Mutation::IgnoredMark, MOVES);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let plan = Plan {
        modes: &WriteMode::ALL,
        management: true,
        ..PLAIN
    };
    let hash = |seed: u64| {
        let runtime = env::Runtime::simulated(seed);
        runtime.block_on(async move {
            let supply = PowerSupply::new();
            let slow = Crash::on(&supply, "slow", SLOW, env::rng("slow"));
            let fast = Crash::on(&supply, "fast", FAST, env::rng("fast"));
            slow.set_delay(Nanos(20_000), Nanos(900_000));
            fast.set_delay(Nanos(1_000), Nanos(90_000));
            let world = Rc::new(World::new(plan));
            let mut rng = env::rng("torture");
            let choices = settings(&mut rng, plan);
            let disk = Hybrid::create(choices, slow, fast, Ties::default())
                .await
                .unwrap();
            for number in 0..CLIENTS {
                let rng = env::rng(&format!("client {number}"));
                let disk: Rc<dyn Device> = Rc::new(disk.clone());
                env::spawn(client(disk, Rc::clone(&world), rng));
            }
            env::sleep(Nanos::millis(200)).await;
        });
        runtime.trace_hash()
    };
    assert_eq!(hash(7), hash(7));
    assert_ne!(hash(7), hash(8));
}
