//! What a disk did and where it stands, gathered for people.

use super::disk::Engine;
use crate::attach::label::PAGE;
use crate::stats::{Health, NanosOf, Status};
use crate::tier::Tier;

/// What the disk did since it was opened and where it stands.
pub(super) fn status(engine: &Engine) -> Status {
    let volume = &engine.volume;
    let settings = volume.settings.borrow();
    let mut status = Status {
        name: volume.name.clone(),
        write_mode: settings.write.to_string(),
        policy: settings.policy.to_string(),
        block_bytes: settings.block.0,
        size_bytes: volume.slow.info.size.0,
        slow_bytes_read: volume.slow.bytes_read.get(),
        slow_bytes_written: volume.slow.bytes_written.get(),
        slow_asleep: volume.slow.asleep(),
        recovered_pages: engine.recovered.get().pages,
        recovered_dropped: engine.recovered.get().dropped,
        recovery: NanosOf(engine.recovered.get().took),
        ..Status::default()
    };
    volume.counters.fill_in(&mut status);
    match engine.tier() {
        None => {
            status.health = Health::PassThrough;
            status.why = engine.why_alone.borrow().clone();
        }
        Some(tier) => cache_status(&tier, &mut status),
    }
    if let Some(why) = volume.slow.failure() {
        status.health = Health::Failed;
        status.why = format!("a flush of the slow device failed: {why}");
    }
    if engine.closed.get() {
        status.health = Health::Closed;
    }
    status
}

fn cache_status(tier: &Tier, status: &mut Status) {
    let cache = &tier.cache;
    let map = cache.state.map();
    let counts = &cache.counters;
    let fast = &cache.fast.counters;
    let ledger = cache.commit.ledger().figures();
    let unreadable = cache.fast.unreadable.dirty(&map);
    let clean_error = cache.destaging.error.borrow();
    (status.health, status.why) = cache.health.status(&map, &unreadable, clean_error.as_ref());
    status.cache_bytes = u64::from(cache.state.slots().total()) * PAGE;
    status.cached_bytes = u64::from(map.resident()) * PAGE;
    status.dirty_bytes = u64::from(map.dirty()) * PAGE;
    status.unreadable_dirty_bytes = unreadable.len() as u64 * PAGE;
    status.clean_failures = cache.health.trouble.failed_rounds();
    status.dirty_age_ns = map
        .regions()
        .oldest()
        .map_or(0, |oldest| env::now().since(oldest).0);
    status.marked_regions = cache.state.intents.borrow().len() as u64;
    let requests = &tier.counts;
    status.user_requests = requests.requests.get();
    status.home_requests = requests.hit_requests.get();
    status.buffer_requests = requests.buffer_requests.get();
    status.dirty_write_requests = requests.dirty_write_requests.get();
    status.fast_bytes_read = fast.bytes_read.get();
    status.fast_bytes_written = fast.bytes_written.get();
    status.fast_data_writes = fast.writes.get();
    status.fills = counts.fills.get();
    status.fills_dropped = counts.fills_dropped.get();
    status.evicted = counts.evicted.get();
    status.bytes_cleaned = counts.bytes_cleaned.get();
    status.clean_rounds = counts.clean_batches.get();
    status.waits_for_room = counts.waits_for_room.get();
    status.bad_checksums = fast.bad_checksums.get();
    status.commits = cache.commit.counters().commits;
    status.ledger_bytes_written = ledger.bytes_written;
    status.ledger_writes = ledger.device_writes;
    status.ledger_used_bytes = ledger.log_used;
    status.ledger_size_bytes = ledger.log_size;
    status.memory_bytes = (map.memory() + cache.mover.memory()) as u64;
}
