//! The cleaner: when are dirty data destaged, and how much of them?
//!
//! ```text
//! load of the slow device, share of dirty pages, their age -> policy -> hold | rounds at a rate | rounds at once
//! ```

use std::rc::Rc;

use base::{Bytes, Instant, Nanos};
use policy::cache::cleaner::{Cleaner, CleanerOptions, Decision, Load};

use crate::attach::label::PAGE;
use crate::cache::Cache;
use crate::index::page_map::oldest_waiting;
use crate::limits::DirtyMarks;
use crate::slow::SlowDevice;
use crate::stats::Health;
use crate::volume::Volume;
use crate::writeback::{ROUND_PAGES, Which, clear_intents, destage_all, destage_round};

/// A region that was not written for this long may lose its intent.
const INTENT_REST: Nanos = Nanos::secs(2);
/// How often intents are looked at.
const INTENT_PERIOD: Nanos = Nanos::secs(5);
/// A gentle round still destages this much.
const ROUND_BYTES_MIN: u64 = 64 << 10;
/// The longest rest between two gentle rounds.
const PAUSE_MAX: Nanos = Nanos::millis(200);
/// How often a holding cleaner looks at the age of what is dirty.
const LOOK_AGAIN: Nanos = Nanos::secs(1);
/// The load of the slow device is measured over at least this long.
const BUSY_OVER: Nanos = Nanos::millis(200);
/// How fast dirty pages of the cache are destaged while a tier needs their room.
const GENTLE_RATE: Bytes = Bytes::mib(4);
/// After a failed round the cleaner rests this long.
const FAILURE_REST: Nanos = Nanos::secs(1);

/// The share of its time that the slow device spends on users, over the last moments.
struct Busy {
    since: Instant,
    spent: Nanos,
    share: f64,
}

impl Busy {
    fn new(slow: &SlowDevice) -> Busy {
        Busy {
            since: env::now(),
            spent: slow.foreground_busy(),
            share: 0.0,
        }
    }

    fn share(&mut self, slow: &SlowDevice) -> f64 {
        let over = env::now().since(self.since);
        if over >= BUSY_OVER {
            let spent = slow.foreground_busy();
            self.share = spent.saturating_sub(self.spent).secs_f64() / over.secs_f64();
            (self.since, self.spent) = (env::now(), spent);
        }
        self.share
    }
}

/// The cleaner's task.
pub(crate) async fn destage_loop(cache: Rc<Cache>) {
    let mut cleaner = Cleaner::new(cleaner_options(&cache.volume));
    let mut busy = Busy::new(&cache.volume.slow);
    let mut cursor = 0;
    while !cache.stopped.get() {
        if cache.health.is(Health::Evacuating) {
            evacuate(&cache).await;
            continue;
        }
        if !cache.is_running() {
            return;
        }
        let options = cleaner_options(&cache.volume);
        cleaner.set(options);
        let which = which(&cache);
        let load = load(&cache, &mut busy, which);
        if load.dirty.0 as f64 >= load.capacity.0 as f64 * options.high_mark {
            cache.volume.ask_for_more();
        }
        let decision = pressed(&cache, cleaner.decide(&load), load.dirty);
        let until = match decision {
            Decision::Hold => cleaner.holds_until(&load),
            _ => Bytes(0),
        };
        cache.destaging.holds_until.set(until);
        let changed = cache.destaging.work.wait();
        match decision {
            Decision::Hold => {
                let wait = rest(&cache, load.dirty, &options);
                match wait {
                    Some(span) => {
                        let _ = env::timeout(span, changed).await;
                    }
                    None => changed.await,
                }
            }
            Decision::Clean { bytes_per_second } => {
                gentle_round(&cache, &mut cursor, bytes_per_second, which).await;
            }
            Decision::Urgent => {
                round_or_rest(&cache, &mut cursor, ROUND_PAGES, which).await;
            }
        }
        drop_leftovers(&cache);
    }
}

/// What the policy decided, but for what cannot wait: `dirty` bytes are there.
fn pressed(cache: &Cache, decision: Decision, dirty: Bytes) -> Decision {
    let starving = cache.destaging.starving.get() > 0;
    let pressed = starving || !cache.volume.settings.borrow().write.keeps_dirty();
    match decision {
        Decision::Hold | Decision::Clean { .. } if pressed && dirty > Bytes(0) => Decision::Urgent,
        // Beside a tier alone no page of the cache stays, and room for an extent is made of clean pages.
        // The dirty ones are destaged at the gentle rate. Neither wakes a slow device.
        Decision::Hold
            if (has_leftovers(cache) || cache.destaging.wanting.get())
                && !cache.volume.is_at_rest() =>
        {
            Decision::Clean {
                bytes_per_second: GENTLE_RATE,
            }
        }
        decision => decision,
    }
}

/// One round at a rate: work done faster is followed by a rest.
async fn gentle_round(cache: &Rc<Cache>, cursor: &mut u64, rate: Bytes, which: Which) {
    let begun = env::now();
    let bytes = (rate.0 / 10).max(ROUND_BYTES_MIN);
    let pages = (bytes / PAGE).min(ROUND_PAGES as u64) as usize;
    round_or_rest(cache, cursor, pages, which).await;
    let due = pages as f64 * PAGE as f64 / rate.0 as f64;
    let took = env::now().since(begun);
    let pause = Nanos::from_secs_f64(due).saturating_sub(took);
    if pause > Nanos(0) && cache.destaging.starving.get() == 0 {
        env::sleep(pause.min(PAUSE_MAX)).await;
    }
}

/// Which dirty pages are to be cleaned now?
///
/// Choice: those of extents that are fast and wanted are written again and again, so they stay dirty until
/// their extent is wanted no longer, or until so much is dirty that the cleaner hurries.
fn which(cache: &Cache) -> Which {
    let high = cache.volume.dirty_marks().high;
    let map = cache.state.map();
    let all = f64::from(map.dirty()) * 100.0 >= f64::from(cache.state.slots().total()) * high;
    if all { Which::All } else { Which::Cold }
}

/// Are there pages of a cache though there is none any more?
fn has_leftovers(cache: &Cache) -> bool {
    cache.volume.settings.borrow().mode == crate::Mode::Tier && cache.state.map().frames() > 0
}

/// Beside a tier alone clean pages of the former cache are dropped.
fn drop_leftovers(cache: &Cache) {
    if has_leftovers(cache) {
        while cache.evict(None, 1) {}
    }
}

fn cleaner_options(volume: &Volume) -> CleanerOptions {
    let DirtyMarks { low, high } = volume.dirty_marks();
    let settings = volume.settings.borrow();
    let default = CleanerOptions::default();
    let slow = volume.limited.slow();
    CleanerOptions {
        low_mark: low / 100.0,
        high_mark: high / 100.0,
        urgent_mark: (high + 100.0) / 200.0,
        age_max: settings
            .energy
            .map_or(default.age_max, |energy| energy.age_limit),
        energy: settings.energy.is_some(),
        slow_bytes_per_second: slow
            .map_or(default.slow_bytes_per_second, |slow| slow.bytes_per_second),
        ..default
    }
}

fn load(cache: &Cache, busy: &mut Busy, which: Which) -> Load {
    let map = cache.state.map();
    let (dirty, oldest) = match which {
        Which::All => (map.dirty(), map.regions().oldest()),
        // What is hot stays dirty: its age wakes no slow device.
        Which::Cold => (map.dirty() - map.pins().hot_dirty(), oldest_waiting(&map)),
    };
    let slow = &cache.volume.slow;
    // The others' users are users of the same device.
    let others = cache.volume.limited.slow();
    let (others_busy, others_idle) =
        others.map_or((0.0, true), |slow| (slow.others_busy, slow.others_idle));
    Load {
        now: env::now(),
        dirty: Bytes(u64::from(dirty) * PAGE),
        capacity: Bytes(u64::from(cache.state.slots().total()) * PAGE),
        slow_idle_since: slow.idle_since().filter(|_| others_idle),
        slow_busy: (busy.share(slow) + others_busy).min(1.0),
        dirty_since: oldest.filter(|_| dirty > 0),
        // A tier alone destages as the paper has it: what it holds dirty is no cache's.
        written_at: match cache.volume.settings.borrow().mode {
            crate::Mode::Tier => None,
            crate::Mode::Cache | crate::Mode::Both => cache.destaging.written_at.get(),
        },
        standby: cache.volume.slow.asleep(),
    }
}

/// How long to rest before looking again, unless something happens; `None`: for as long as nothing does.
fn rest(cache: &Cache, dirty: Bytes, options: &CleanerOptions) -> Option<Nanos> {
    let volume = &cache.volume;
    let energy = volume.settings.borrow().energy;
    let idle = volume
        .slow
        .idle_since()
        .map_or(Nanos(0), |since| env::now().since(since));
    let sleep = energy.map(|energy| {
        if idle >= energy.standby_after {
            if is_moving(cache) {
                return LOOK_AGAIN;
            }
            volume.slow.sleep_now();
            // A read may wake it again.
            return energy.standby_after;
        }
        energy
            .standby_after
            .saturating_sub(idle)
            .max(Nanos::millis(1))
    });
    if dirty == Bytes(0) {
        return sleep;
    }
    // Something may grow old, or the device idle.
    let soon = options.idle_after.saturating_sub(idle);
    let look = if soon > Nanos(0) { soon } else { LOOK_AGAIN };
    Some(sleep.map_or(look, |sleep| sleep.min(look)))
}

/// Is a tier's mover at work on the slow device? What has begun is ended before that sleeps.
fn is_moving(cache: &Cache) -> bool {
    cache.mover.is_moving() || cache.state.extents.borrow().demoting().next().is_some()
}

async fn round_or_rest(cache: &Rc<Cache>, cursor: &mut u64, pages: usize, which: Which) {
    match destage_round(cache, cursor, pages, which).await {
        Ok(0) => {
            // Other tasks had every page locked: wait until they have gone on.
            env::sleep(Nanos::micros(100)).await;
        }
        Ok(_) => {}
        Err(error) => {
            tracing::error!(volume = %cache.volume.name, %error, "the cleaner could not go on");
            env::sleep(FAILURE_REST).await;
        }
    }
}

/// The fast device failed with dirty data on it: destages what can be read, then passes through.
async fn evacuate(cache: &Rc<Cache>) {
    let failing = || cache.health.is(Health::Evacuating);
    while failing() && !cache.health.is_failing_noted() && cache.state.map().dirty() > 0 {
        cache.room.wait().await;
    }
    if !failing() {
        return;
    }
    match destage_all(cache).await {
        Ok(()) => {
            cache
                .pass("the fast device failed; its dirty data were destaged")
                .await
        }
        Err(error) => cache.die(error),
    }
}

// --- write intents ----------------------------------------------------------------------------

/// Clears intents of regions that have rested, every few seconds.
pub(crate) async fn clear_intents_loop(cache: Rc<Cache>) {
    while !cache.stopped.get() {
        env::sleep(INTENT_PERIOD).await;
        if cache.stopped.get() || !cache.is_running() {
            return;
        }
        // A sleeping disk is not woken for this.
        if cache.volume.slow.asleep() {
            continue;
        }
        if let Err(error) = clear_intents(&cache, INTENT_REST).await {
            tracing::warn!(volume = %cache.volume.name, %error, "marks stay set");
        }
    }
}
