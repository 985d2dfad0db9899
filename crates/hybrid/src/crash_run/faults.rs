//! The same work under worse faults than power cuts.
//!
//! ```text
//! wrong pairs are refused -> open, while reads fail -> read all, read again -> work, while a device goes away or fails
//!   -> the life ends: each device loses its power, or only the process dies; or a clean close
//!   -> after a power cut some sectors read as errors; after a clean close the slow device may be changed
//! record of pairs: its writes are cut and fail like others; while it says that nothing is dirty the slow device alone
//!   has everything, and a copy of the fast device from before its last attachment is refused
//! ```
//!
//! A sector may be unreadable only if a write to it was not durable when the life ended.

use std::cell::RefCell;
use std::rc::Rc;

use base::{Bytes, Nanos, SECTOR, Sector, Span, View};
use device::crash::PowerSupply;
use device::fault::{Book, Done, Injury, Rule};
use device::{Crash, Device, DeviceExt, Memory, Op};
use env::Rng;

use super::notes::Notes;
use super::restarts::Shared;
use super::{
    AREA_PAGES, AREAS, CLIENTS, Oracle, PLAIN, Plan, SLOW, WORK_STEPS, World, audit, check, client,
    lanes, live_caches, live_tiers, manager, seeds, settings, until_cut,
};
use crate::attach::label::Label;
use crate::cache::Cache;
use crate::durable::samples::sample_pages;
use crate::mutation::Mutation;
use crate::{Lanes, Mode, OpenError, Pair, Settings, Ties, WriteMode};

/// A life whose devices answer no more ends after this long.
const LIFE_MAX: Nanos = Nanos::millis(400);
/// Long runs report how far they are every so many seeds.
const PROGRESS: u64 = 500;
/// Requests to a device before something goes wrong with it, at most.
const MISHAP_STEPS: u64 = 300;

/// What runs under faults went through.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    power_cuts: u64,
    kills: u64,
    /// One device lost its power, the other kept what it had.
    halves: u64,
    /// Power cuts of a device that had what a dead process left in its volatile cache.
    kills_then_cuts: u64,
    closes: u64,
    /// Blank fast devices, swapped devices, other pairs' fast devices; in all.
    blank: u64,
    swapped: u64,
    wrong_pairs: u64,
    /// Copies of the fast device from before its last attachment.
    older_copies: u64,
    changed_behind: u64,
    /// Openings during which reads failed.
    poor_openings: u64,
    /// Devices that went away under work, and I/O errors there.
    mishaps: u64,
    unreadable: u64,
    /// Writes of the record of pairs that the end of a life hit.
    records_cut: u64,
    /// Writes of it that failed with the power on.
    records_failed: u64,
    /// Failed or cut writes of it after which the new one was on the disk and the old one was seen.
    records_unseen: u64,
    /// Lives after which the record said that nothing is dirty, so that the bare slow device was read.
    bare: u64,
}

impl Tally {
    fn add(&mut self, other: Tally) {
        self.power_cuts += other.power_cuts;
        self.kills += other.kills;
        self.halves += other.halves;
        self.kills_then_cuts += other.kills_then_cuts;
        self.closes += other.closes;
        self.blank += other.blank;
        self.swapped += other.swapped;
        self.wrong_pairs += other.wrong_pairs;
        self.older_copies += other.older_copies;
        self.changed_behind += other.changed_behind;
        self.poor_openings += other.poor_openings;
        self.mishaps += other.mishaps;
        self.unreadable += other.unreadable;
        self.records_cut += other.records_cut;
        self.records_failed += other.records_failed;
        self.records_unseen += other.records_unseen;
        self.bare += other.bare;
    }

    /// Did each kind of fault happen?
    fn expect_all(&self, test: &str) {
        let kinds = [
            ("power cut of both devices", self.power_cuts),
            ("power cut of one device", self.halves),
            ("death of the process alone", self.kills),
            (
                "power cut after the death of a process",
                self.kills_then_cuts,
            ),
            ("unreadable sector", self.unreadable),
            ("older copy", self.older_copies),
            ("blank fast device", self.blank),
            ("swap of devices", self.swapped),
            ("change behind the cache", self.changed_behind),
            ("opening while reads failed", self.poor_openings),
            ("device that failed or went away under work", self.mishaps),
            ("cut write of the record", self.records_cut),
            ("failed write of the record", self.records_failed),
            ("record on the disk that was not seen", self.records_unseen),
            ("look at the bare slow device", self.bare),
        ];
        for (kind, count) in kinds {
            assert!(count > 0, "{test}: there was no {kind}: {self:?}");
        }
    }

    fn lives(&self) -> u64 {
        self.power_cuts + self.kills + self.halves
    }
}

/// The fast device as it once was.
struct Copy {
    /// The lanes that counted, each with its cache and its attachment.
    lanes: Vec<(u32, u128, u64)>,
    image: Vec<u8>,
}

/// How a life of a device ends.
#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    PowerCut,
    Kill,
}

struct Run {
    rng: Rng,
    world: Rc<World>,
    supply: Rc<PowerSupply>,
    slow: Rc<Crash>,
    fast: Rc<Crash>,
    choices: Settings,
    abandoned: Rc<RefCell<Vec<u128>>>,
    /// The record of pairs of each lane, if one is kept, and what is drawn for it alone.
    notes: Vec<Rc<Notes>>,
    notes_rng: Rng,
    /// The memory of each lane's restart log, if there is one.
    shared: Vec<Rc<Shared>>,
    copies: Vec<Copy>,
    tally: Tally,
    /// How the last life of each device ended.
    ended: [End; 2],
    /// The device that went away in this life.
    away: Option<&'static str>,
    /// After a clean close: a page that the next opening compares.
    compared: Option<u64>,
    /// What happened so far, to look into a failure.
    events: Vec<String>,
}

impl Run {
    fn new(plan: Plan) -> Run {
        let mut rng = env::rng("faults");
        let supply = PowerSupply::new();
        let slow = Crash::on(&supply, "slow", SLOW, env::rng("slow"));
        let fast = Crash::on(&supply, "fast", plan.fast(), env::rng("fast"));
        slow.set_delay(Nanos(20_000), Nanos(900_000));
        fast.set_delay(Nanos(1_000), Nanos(90_000));
        let unreadable = [0.0, 0.05, 0.3];
        slow.set_unreadable(unreadable[rng.below(3) as usize]);
        fast.set_unreadable(unreadable[rng.below(3) as usize]);
        lanes::shorten_units(&mut rng, plan);
        let each = 0..plan.lanes;
        let run = Run {
            choices: settings(&mut rng, plan),
            rng,
            world: Rc::new(World::new(plan)),
            notes: each
                .clone()
                .filter(|_| plan.pairs)
                .map(|_| Notes::new(plan.mutation))
                .collect(),
            notes_rng: env::rng("copies"),
            shared: each
                .filter(|_| plan.restarts)
                .map(|_| Shared::new(plan.mutation))
                .collect(),
            copies: Vec::new(),
            supply,
            slow,
            fast,
            abandoned: Rc::default(),
            tally: Tally::default(),
            ended: [End::PowerCut; 2],
            away: None,
            compared: None,
            events: Vec::new(),
        };
        run.tie_manager();
        run
    }

    /// The manager attaches under the same record, if there is one.
    fn tie_manager(&self) {
        if !self.shared.is_empty() {
            let life = Some(Rc::clone(&self.supply));
            self.world.life.replace(life);
        }
        if !self.notes.is_empty() || !self.shared.is_empty() {
            let ties = self.make_ties();
            self.world.ties.replace(ties);
        }
    }

    fn note(&mut self, what: impl Into<String>) {
        self.events.push(what.into());
    }

    fn make_ties(&self) -> Rc<dyn Fn(u32) -> Ties> {
        let (registry, supply) = (Rc::clone(&self.abandoned), Rc::clone(&self.supply));
        let of_life = |notes: &Rc<Notes>| notes.of_life(&supply);
        let pairs: Vec<_> = self.notes.iter().map(of_life).collect();
        let memory = |shared: &Rc<Shared>| shared.of_life(&supply);
        let restart: Vec<_> = self.shared.iter().map(memory).collect();
        Rc::new(move |lane| {
            let (listed, supply) = (Rc::clone(&registry), Rc::clone(&supply));
            Ties {
                abandoned: registry.borrow().clone(),
                on_abandon: Some(Rc::new(move |cache| {
                    // A dead process writes nothing.
                    if !supply.is_on() {
                        return Err("the power is off".to_owned());
                    }
                    listed.borrow_mut().push(cache);
                    Ok(())
                })),
                pairs: pairs.get(lane as usize).cloned(),
                restart: restart.get(lane as usize).cloned(),
                ..Ties::default()
            }
        })
    }

    /// From now on writes of the record may fail, or no more. How many failed so far?
    fn shake_notes(&self, shaky: bool) -> u64 {
        let shaken = self.notes.iter().map(|notes| {
            notes.shaky.set(shaky);
            notes.failed.get()
        });
        shaken.sum()
    }

    fn open_pair(
        &self,
        slow: Rc<dyn Device>,
        fast: Rc<dyn Device>,
    ) -> env::Task<Result<Lanes, OpenError>> {
        let (choices, ties) = (self.choices.clone(), self.make_ties());
        let lanes = self.world.plan.lanes;
        env::spawn(async move {
            Lanes::open_or_create(lanes, choices, slow, fast, |lane| ties(lane)).await
        })
    }

    /// The pair, opened; none if the power went meanwhile. Where reads fail the opening may be refused, and the
    /// next one without errors may not.
    async fn open(&mut self, book: &Rc<Book>) -> Result<Option<Lanes>, String> {
        if self.rng.chance(0.15) {
            let steps = self.supply.steps();
            self.supply.cut_at(steps + self.rng.below(200));
        }
        if self.rng.chance(0.3) {
            let rule = Rule::new(Injury::Error(Done::Nothing)).on(&[Op::Read]);
            let (after, times) = (self.rng.below(40), 1 + self.rng.below(3));
            // As often in a row as one block of a log is asked for: beside a block that a power cut left unreadable such a
            // block is an unreadable end, which is told and gone on from. Of several lanes another one may then refuse, so
            // that the warning is not seen here.
            let times = if self.world.plan.lanes > 1 {
                times.min(2)
            } else {
                times
            };
            book.add(rule.after(after).times(times));
        }
        for last in [false, true] {
            let failed = self.shake_notes(!last);
            let (slow, fast) = (book.wrap(self.slow.clone()), book.wrap(self.fast.clone()));
            let opening = self.open_pair(slow, fast);
            let opened = until_cut(&self.supply, opening).await;
            let injured = book.injuries().errors > 0 || self.shake_notes(true) > failed;
            book.clear();
            match opened {
                Some(Ok(disk)) => {
                    self.tally.poor_openings += u64::from(injured || last);
                    let unit = disk.unit();
                    self.note(format!(
                        "open, units of {unit} (injured: {injured}, again: {last})"
                    ));
                    return Ok(Some(disk));
                }
                None => return Ok(None),
                Some(Err(_)) if !self.supply.is_on() => return Ok(None),
                Some(Err(error)) if injured && !last => self.note(format!("refused: {error}")),
                Some(Err(error)) => return Err(format!("cannot open: {error}")),
            }
        }
        unreachable!("the last attempt answers")
    }

    /// Reads everything twice. False if the power went meanwhile, which proves nothing, or if something is wrong.
    async fn audits(&self, disk: &Lanes) -> bool {
        let before = self.world.broken.borrow().clone();
        let audits = env::spawn({
            let (disk, world) = (disk.clone(), Rc::clone(&self.world));
            async move {
                audit(&disk, &world, "opened").await;
                audit(&disk, &world, "read again").await;
            }
        });
        let ended = until_cut(&self.supply, audits).await;
        if ended.is_none() || !self.supply.is_on() {
            *self.world.broken.borrow_mut() = before;
            return false;
        }
        self.world.broken.borrow().is_none()
    }

    /// Plans something that goes wrong under the work to come.
    fn plan_mishap(&mut self, book: &Rc<Book>) {
        let after = self.rng.below(MISHAP_STEPS);
        let rule = match self.rng.below(10) {
            device @ (0 | 1) => {
                let device = ["slow", "fast"][device as usize];
                self.away = Some(device);
                Rule::new(Injury::Gone).device(device)
            }
            2 => {
                let times = 1 + self.rng.below(3);
                Rule::new(Injury::Error(Done::Part)).times(times)
            }
            _ => return,
        };
        self.tally.mishaps += 1;
        self.note(format!("mishap after {after}, away: {:?}", self.away));
        book.add(rule.after(after));
    }

    /// Lets users and a manager work until the power goes, or closes the disk.
    async fn work(&mut self, disk: &Lanes, book: &Rc<Book>) {
        self.plan_mishap(book);
        let mut users = Vec::new();
        for number in 0..CLIENTS {
            let rng = env::rng(&format!("client {number}"));
            let seen: Rc<dyn Device> = Rc::new(disk.clone());
            let user = client(seen, Rc::clone(&self.world), rng);
            users.push(env::cancel_scope(env::spawn(user)));
        }
        let fast: Rc<dyn Device> = book.wrap(self.fast.clone());
        let world = Rc::clone(&self.world);
        let manager = manager(disk.clone(), fast, world, env::rng("manager"));
        users.push(env::cancel_scope(env::spawn(manager)));
        let steps = self.supply.steps() + self.rng.below(WORK_STEPS);
        if !self.rng.chance(0.2) {
            self.supply.cut_at(steps);
            let _ = env::timeout(LIFE_MAX, self.supply.wait_for_cut()).await;
            return;
        }
        let end = env::now() + LIFE_MAX;
        while self.supply.steps() < steps && env::now() < end && self.supply.is_on() {
            env::sleep(Nanos::micros(50)).await;
        }
        drop(users);
        // What the manager began goes on.
        let managing = || disk.lanes().any(|lane| lane.engine.managing.get());
        while managing() && env::now() < end + LIFE_MAX && self.supply.is_on() {
            env::sleep(Nanos::micros(50)).await;
        }
        self.close(disk).await;
    }

    async fn close(&mut self, disk: &Lanes) {
        let caches: Vec<_> = disk.lanes().map(|lane| lane.engine.live_cache()).collect();
        let begun = self.world.oracle.borrow_mut().tick();
        let closing = env::spawn({
            let disk = disk.clone();
            async move { disk.close().await }
        });
        let Ok(Some(Ok(()))) = env::timeout(LIFE_MAX, until_cut(&self.supply, closing)).await
        else {
            return;
        };
        self.world.oracle.borrow_mut().flushed(begun);
        self.tally.closes += 1;
        self.note("close");
        let mut known = Vec::new();
        for (lane, cache) in (0u64..).zip(caches) {
            let cache = cache.filter(|cache| cache.is_running());
            let pages = cache.map_or_else(Vec::new, |cache| compared(&cache));
            known.extend(pages.into_iter().map(|page| disk.page_of(lane, page)));
        }
        self.compared =
            (!known.is_empty()).then(|| known[self.rng.below(known.len() as u64) as usize]);
    }

    /// One life of the pair, until both devices are off.
    async fn live(&mut self) -> Result<(), String> {
        let book = Book::new(env::rng("mishaps"));
        if let Some(disk) = self.open(&book).await? {
            for tier in live_tiers(&disk) {
                let cache = &tier.cache;
                cache.volume.planted.set(self.world.plan.mutation);
                let step = Bytes::kib(128 << self.rng.below(4));
                tier.movers.published.step.set(step);
                cache.check_tier();
            }
            if self.audits(&disk).await {
                self.work(&disk, &book).await;
            }
            let status = disk.status();
            self.note(format!(
                "{:?} {}, {:?}",
                status.health, status.why, status.write_mode
            ));
            for cache in live_caches(&disk) {
                cache.stop();
                cache.state.map().check();
                cache.check_tier();
            }
        }
        let broken = self.world.broken.borrow().clone();
        broken.map_or(Ok(()), Err)
    }

    /// How the two devices come out of this life.
    fn ends(&mut self) -> [End; 2] {
        let mut draw = |device| match self.away == Some(device) || self.rng.chance(0.5) {
            true => End::PowerCut,
            false => End::Kill,
        };
        let own = [draw("slow"), draw("fast")];
        match self.rng.chance(0.5) && self.away.is_none() {
            true => [own[0]; 2],
            false => own,
        }
    }

    fn restart(&mut self) {
        let [slow, fast] = self.ends();
        let later = |(before, now)| (before, now) == (End::Kill, End::PowerCut);
        let of_both = std::mem::replace(&mut self.ended, [slow, fast]).into_iter();
        let followed = of_both.zip([slow, fast]).any(later);
        self.tally.kills_then_cuts += u64::from(followed);
        match (slow, fast) {
            (End::PowerCut, End::PowerCut) => self.tally.power_cuts += 1,
            (End::Kill, End::Kill) => self.tally.kills += 1,
            _ => self.tally.halves += 1,
        }
        if let Some(shared) = self.shared.first() {
            if (slow, fast) == (End::Kill, End::Kill) {
                // Every write answered in this life outlives the process.
                self.world.oracle.borrow_mut().survived(shared.begun.get());
            } else {
                // One device may lose its power while the machine goes on.
                let both = slow == fast;
                if both || shared.rng.borrow_mut().chance(0.5) {
                    self.shared.iter().for_each(|shared| shared.reboot());
                }
                self.world.oracle.borrow_mut().lost_power();
            }
            shared.begun.set(self.world.oracle.borrow_mut().tick());
        }
        self.note(format!("slow {slow:?}, fast {fast:?}"));
        self.supply = PowerSupply::new();
        let restart = |device: &Rc<Crash>, end, rng| match end {
            End::PowerCut => device.restart_on(&self.supply, rng),
            End::Kill => device.restart_process_on(&self.supply, rng),
        };
        let bare = slow;
        let slow = restart(&self.slow, slow, env::rng("slow restart"));
        let fast = restart(&self.fast, fast, env::rng("fast restart"));
        (self.slow, self.fast) = (slow, fast);
        if !self.notes.is_empty() {
            let cut = bare == End::PowerCut || self.notes_rng.chance(0.3);
            for notes in self.notes.clone() {
                notes.restart(cut);
                notes.shaky.set(false);
                self.note(format!("record {:?}", notes.now()));
            }
        }
        self.tie_manager();
        self.away = None;
        self.world.oracle.borrow_mut().reading.clear();
        self.tally.unreadable +=
            (self.slow.unreadable().len() + self.fast.unreadable().len()) as u64;
        if self.rng.chance(0.3) {
            self.choices = settings(&mut self.rng, self.world.plan);
        }
    }

    /// The newest label of each lane on the fast device.
    fn labels(&self) -> Vec<Option<Label>> {
        let plan = self.world.plan;
        let len = plan.fast().0 / u64::from(plan.lanes);
        let label = |lane| {
            let start = self.fast.contents(Span::bytes(lane * len, 8192));
            let labels = start.chunks(4096);
            let whole = labels.filter_map(|page| Label::parse(page, Bytes(len)).ok());
            whole.max_by_key(|label| label.sequence)
        };
        (0..u64::from(plan.lanes)).map(label).collect()
    }

    fn is_given_up(&self, cache: u128) -> bool {
        self.abandoned.borrow().contains(&cache)
    }

    /// What the record of each lane says.
    fn records(&self) -> Vec<Option<Pair>> {
        self.notes.iter().map(|notes| notes.now()).collect()
    }

    /// Does a cache count that may be missed?
    fn is_missed(&self) -> bool {
        (0..self.notes.len()).any(|lane| self.misses(lane))
    }

    /// Does one of this lane?
    fn misses(&self, lane: usize) -> bool {
        let given_up = |cache| self.is_given_up(cache);
        let record = self.notes[lane].now();
        record.is_some_and(|pair| pair.dirty && !pair.cache.is_some_and(given_up))
    }

    /// Opens a pair as the daemon does, which makes an empty cache where nothing is missed; or only opens it.
    async fn offer(
        &self,
        slow: Rc<dyn Device>,
        fast: Rc<dyn Device>,
        as_daemon: bool,
    ) -> Result<Lanes, OpenError> {
        let (choices, ties) = (self.choices.clone(), self.make_ties());
        let (lanes, ties) = (self.world.plan.lanes, |lane| ties(lane));
        match as_daemon {
            true => Lanes::open_or_create(lanes, choices, slow, fast, ties).await,
            false => Lanes::open(choices, slow, fast, ties).await,
        }
    }

    /// Offers a device that is not what it should be: it must be refused, and nothing may be written.
    async fn offer_wrong_pair(&mut self) -> Result<(), String> {
        let size = self.world.plan.fast();
        let (slow, fast): (Rc<dyn Device>, Rc<dyn Device>) = (self.slow.clone(), self.fast.clone());
        let counts = self
            .labels()
            .into_iter()
            .flatten()
            .any(|label| label.attachment.counts() && !self.is_given_up(label.uuid));
        let kind = self.rng.below(4);
        // Where nothing counts the daemon may make an empty cache.
        let as_daemon = match kind {
            0 => self.is_missed(),
            1 => self.is_missed() || counts,
            _ => true,
        };
        let (what, slow, fast) = match kind {
            0 => ("a blank fast device", slow, Memory::new("fast", size) as _),
            1 => ("swapped devices", fast, slow),
            2 => (
                "another pair's fast device",
                slow,
                another_fast(self.world.plan).await,
            ),
            _ => return Ok(()),
        };
        let whole = Span::new(Sector(0), size);
        let head = Span::bytes(0, 1 << 20);
        let seen = || {
            (
                self.fast.contents(whole),
                self.slow.contents(head),
                self.records(),
            )
        };
        let before = seen();
        let opened = self.offer(slow, fast, as_daemon).await;
        if opened.is_ok() {
            return Err(format!("{what} was accepted"));
        }
        if before != seen() {
            return Err(format!("{what} was refused, and yet something was written"));
        }
        self.tally.wrong_pairs += 1;
        self.tally.blank += u64::from(kind == 0 && as_daemon);
        self.tally.swapped += u64::from(kind == 1 && as_daemon);
        self.note(what);
        Ok(())
    }

    /// Keeps a copy of the fast device as it is between two lives.
    fn keep_copy(&mut self) {
        if self.notes.is_empty() || !self.notes_rng.chance(0.4) {
            return;
        }
        let size = self.world.plan.fast();
        let image = self.fast.contents(Span::new(Sector(0), size));
        let counting = (0..).zip(self.labels()).filter_map(|(lane, label)| {
            let label = label.filter(|label| label.attachment.counts())?;
            Some((lane, label.uuid, label.generation))
        });
        let lanes: Vec<_> = counting.collect();
        if !lanes.is_empty() {
            self.copies.push(Copy { lanes, image });
        }
    }

    /// Offers a copy of the fast device from before its last attachment.
    async fn offer_older_copy(&mut self) -> Result<(), String> {
        let records = self.records();
        if records.iter().all(Option::is_none) {
            return Ok(());
        }
        // A lane of it is of an attachment before the last one.
        let older_in = |copy: &Copy| {
            let mut lanes = copy.lanes.iter().copied();
            lanes.find(|(lane, _, generation)| {
                records[*lane as usize].is_some_and(|record| *generation < record.generation)
            })
        };
        let mut copies = self.copies.iter().rev();
        let older = copies.find_map(|copy| Some((copy, older_in(copy)?)));
        let Some((copy, older)) = older.filter(|_| self.notes_rng.chance(0.5)) else {
            return Ok(());
        };
        let (lane, cache, generation) = older;
        let fast = Memory::new("fast", self.world.plan.fast());
        fast.load(Sector(0), &copy.image);
        let (slow, ssd) = (self.slow.clone(), fast.clone());
        // On one that was given up the daemon makes an empty cache, unless another one is missed.
        let as_daemon = !self.is_given_up(cache) || self.misses(lane as usize);
        let opened = self.offer(slow, ssd, as_daemon).await;
        let what = format!("a copy of attachment {generation} of lane {lane}, {records:?}");
        match opened {
            Ok(_) => return Err(format!("{what}: it was accepted")),
            Err(
                OpenError::Older { .. } | OpenError::NotHere { .. } | OpenError::NoCache { .. },
            ) => {}
            Err(other) => return Err(format!("{what}: {other}")),
        }
        let whole = Span::new(Sector(0), fast.info().size);
        if self.records() != records || fast.contents(whole) != copy.image {
            return Err(format!("{what}: refused, and yet something was written"));
        }
        self.tally.older_copies += u64::from(as_daemon);
        self.note(what);
        Ok(())
    }

    /// While the record says that nothing is dirty, the slow device alone has everything.
    fn check_bare(&mut self) -> Result<(), String> {
        let records = self.records();
        if records.is_empty()
            || records
                .iter()
                .any(|record| record.is_none_or(|pair| pair.dirty))
        {
            return Ok(());
        }
        let unreadable = self.slow.unreadable();
        for area in AREAS {
            for sector in area * 8..(area + AREA_PAGES) * 8 {
                if unreadable.binary_search(&Sector(sector)).is_ok() {
                    continue;
                }
                let span = Span::new(Sector(sector), Bytes(SECTOR));
                let bytes = self.slow.contents(span);
                check(&self.world, span, &bytes, None, "the record says clean");
            }
        }
        self.tally.bare += 1;
        let broken = self.world.broken.borrow().clone();
        broken.map_or(Ok(()), Err)
    }

    /// After a clean close: changes a page of the slow device, which must be seen, and puts it back.
    async fn change_behind(&mut self) -> Result<(), String> {
        let Some(page) = self.compared.take() else {
            return Ok(());
        };
        let span = Span::bytes(page * 4096, 4096);
        let sectors = span.start.0..span.end().0;
        let unreadable = self.slow.unreadable();
        if unreadable.iter().any(|sector| sectors.contains(&sector.0)) {
            return Ok(());
        }
        let own = self.slow.contents(span);
        let mut other = own.clone();
        other[self.rng.below(4096) as usize] ^= 0x10;
        put(&self.slow, span, &other).await;
        let (slow, fast) = (self.slow.clone(), self.fast.clone());
        // A lane of several may have been given up before: the daemon's way passes it over.
        let as_daemon = self.world.plan.lanes > 1;
        let opened = self.offer(slow, fast, as_daemon).await;
        put(&self.slow, span, &own).await;
        self.tally.changed_behind += 1;
        self.note(format!("page {page} changed behind"));
        match opened {
            Err(OpenError::Stale { .. }) => Ok(()),
            Err(other) => Err(format!("page {page} was changed behind: {other}")),
            Ok(_) => Err(format!(
                "page {page} was changed behind, and the start did not see it"
            )),
        }
    }

    /// The end: open, read twice, detach, and the bare slow device shows the same.
    async fn finish(&mut self) -> Result<Tally, String> {
        let at_end = |error: OpenError| format!("at the end: {error}");
        let disk = self.open_pair(self.slow.clone(), self.fast.clone());
        let disk = disk.await.map_err(at_end)?;
        audit(&disk, &self.world, "at the end").await;
        audit(&disk, &self.world, "at the end, again").await;
        disk.detach().await.map_err(at_end)?;
        audit(&*self.slow, &self.world, "the bare slow device").await;
        for notes in &self.notes {
            self.tally.records_cut += notes.cut.get();
            self.tally.records_failed += notes.failed.get();
            self.tally.records_unseen += notes.unseen.get();
        }
        let broken = self.world.broken.borrow().clone();
        broken.map_or(Ok(self.tally), Err)
    }

    async fn lives(&mut self) -> Result<Tally, String> {
        for _ in 0..self.world.plan.cuts {
            self.live().await?;
            self.restart();
            self.check_bare()?;
            self.offer_wrong_pair().await?;
            self.offer_older_copy().await?;
            self.keep_copy();
            self.change_behind().await?;
        }
        self.finish().await
    }
}

/// Writes and flushes, past everything.
async fn put(device: &Rc<Crash>, span: Span, bytes: &[u8]) {
    let written = device.write_at(span.start, View::copy_of(bytes)).await;
    written.expect("the power is on");
    device.flush().await.expect("the power is on");
}

/// Pages that a later opening compares with their fingerprints.
fn compared(cache: &Cache) -> Vec<u64> {
    let map = cache.state.map();
    let samples = cache.state.samples.borrow();
    let pages = (0u64..).zip(cache.state.sample_pages());
    let known = pages.filter(|(number, page)| {
        let known = samples.known().get(number).copied().flatten();
        known.is_some() && !map.is_dirty(**page)
    });
    known.map(|(_, page)| *page).collect()
}

/// The fast device of a pair whose slow one has something else on it.
async fn another_fast(plan: Plan) -> Rc<dyn Device> {
    let slow = Memory::new("slow", SLOW);
    match plan.lanes {
        1 => sample_pages(SLOW.0 / 4096)
            .into_iter()
            .for_each(|page| slow.load(Sector(page * 8), &[0xee; 512])),
        // Each lane compares pages of its own.
        _ => slow.load(Sector(0), &vec![0xee; SLOW.usize()]),
    }
    let fast = Memory::new("fast", plan.fast());
    let (settings, above) = (Settings::default(), fast.clone());
    let disk = Lanes::create(plan.lanes, settings, slow, above, |_| Ties::default()).await;
    disk.expect("two blank devices")
        .close()
        .await
        .expect("they work");
    fast
}

/// Reads what could not be read at once sector by sector: each is as it may be, or may be unreadable.
pub(super) async fn audit_singly(disk: &dyn Device, world: &World, area: Span, what: &str) {
    for sector in area.start.0..area.end().0 {
        let span = Span::new(Sector(sector), Bytes(SECTOR));
        match disk.read_at(span.start, span.len).await {
            Ok(buf) => {
                let seen = check(world, span, &buf, None, what);
                world.oracle.borrow_mut().settle(sector, seen[0]);
            }
            Err(_) if world.oracle.borrow_mut().lose(sector) => {}
            Err(error) => {
                let why =
                    format!("{what}, sector {sector} was durable and cannot be read: {error}");
                world.broken.borrow_mut().get_or_insert(why);
            }
        }
    }
}

impl Oracle {
    /// `sector` cannot be read. False if it should be: nothing but one durable write is there. What was under way
    /// when the last life ended is over.
    fn lose(&mut self, sector: u64) -> bool {
        let now = self.tick();
        let versions = self.versions(sector);
        for version in versions.iter_mut() {
            version.ended = Some(now);
        }
        versions.len() > 1
    }
}

/// Runs one seed: what it went through, or what went wrong.
fn run(seed: u64, plan: Plan) -> Result<Tally, String> {
    env::Runtime::simulated(seed).block_on(async move {
        let mut run = Run::new(plan);
        let answer = run.lives().await;
        answer.map_err(|why| format!("{why}\nafter: {}", run.events.join("; ")))
    })
}

pub(super) fn survive(test: &str, least: u64, plan: Plan) {
    let mut all = Tally::default();
    for seed in seeds(0, least) {
        match run(seed, plan) {
            Ok(tally) => {
                all.add(tally);
                if (seed + 1) % PROGRESS == 0 {
                    println!("{test}: seed {seed} survived, {} lives so far", all.lives());
                }
            }
            Err(why) => {
                panic!("seed {seed}: {why}\nreplay: TANADA_SEED={seed} cargo test -p hybrid {test}")
            }
        }
    }
    println!("{} lives: {all:?}", all.lives());
    let count = seeds(0, least).count() as u64;
    if plan.pairs && count >= least {
        all.expect_all(test);
    }
}

pub(super) const FAULTS: Plan = Plan {
    faults: true,
    pairs: true,
    ..PLAIN
};

/// A seed that was found before the record of pairs took part.
const fn without_record(plan: Plan) -> Plan {
    Plan {
        pairs: false,
        ..plan
    }
}

pub(super) const EVERY_MODE: Plan = Plan {
    modes: &WriteMode::ALL,
    management: true,
    ..FAULTS
};

pub(super) const TIERS: Plan = Plan {
    modes: &[WriteMode::Back, WriteMode::OnlyWrites],
    uses: &[Mode::Tier, Mode::Both, Mode::Cache],
    movers: &[crate::Mover::Direct, crate::Mover::Published],
    management: true,
    ..FAULTS
};

/// Seeds that continuous integration runs of each test here.
const SEEDS: u64 = 60;

/// A planted mistake must be caught by what continuous integration runs.
pub(super) fn catch(mutation: Mutation, plan: Plan) {
    let plan = Plan {
        mutation: Some(mutation),
        ..plan
    };
    let caught = (0..SEEDS).find_map(|seed| Some((seed, run(seed, plan).err()?)));
    let (seed, why) =
        caught.unwrap_or_else(|| panic!("{mutation:?} went unseen through {SEEDS} seeds"));
    println!("{mutation:?} caught at seed {seed}: {why}");
}

#[test]
fn a_record_that_does_not_say_what_may_be_dirty_is_caught() {
    catch(Mutation::UnrecordedDirty, FAULTS);
}

#[test]
fn an_older_attachment_that_is_opened_is_caught() {
    catch(Mutation::OlderAccepted, FAULTS);
}

#[test]
fn write_back_survives_faults() {
    survive("write_back_survives_faults", SEEDS, FAULTS);
}

#[test]
fn every_write_mode_survives_faults_under_management() {
    survive(
        "every_write_mode_survives_faults_under_management",
        SEEDS,
        EVERY_MODE,
    );
}

#[test]
fn tiers_survive_faults_under_management() {
    survive("tiers_survive_faults_under_management", SEEDS, TIERS);
}

/// The fast device goes away while a region's buffer in memory has what users wrote last.
#[test]
fn reads_see_a_buffer_whose_fast_device_went_away() {
    let survived = run(464, without_record(TIERS));
    assert!(survived.is_ok(), "{}", survived.unwrap_err());
}

/// A manager goes away while its operation writes to the slow device, and then the disk is closed.
#[test]
fn a_pair_closed_after_a_manager_went_away_opens_again() {
    let survived = run(496, without_record(EVERY_MODE));
    assert!(survived.is_ok(), "{}", survived.unwrap_err());
}
