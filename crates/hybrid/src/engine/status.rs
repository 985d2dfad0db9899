//! What a disk did and where it stands, gathered for people.

use super::disk::Engine;

use crate::attach::label::PAGE;
use crate::index::page_map::oldest_waiting;
use crate::stats::{Health, LedgerUse, Occupancy, Status, Traffic, Upkeep};
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
        requests: volume.counters.requests(),
        traffic: Traffic {
            slow_bytes_read: volume.slow.bytes_read.get(),
            slow_bytes_written: volume.slow.bytes_written.get(),
            ..Traffic::default()
        },
        slow_asleep: volume.slow.asleep(),
        recovered: engine.recovered.get(),
        ..Status::default()
    };
    match engine.tier() {
        None => {
            status.health = Health::PassThrough;
            status.why = engine.why_alone.borrow().clone();
        }
        Some(tier) => cache_status(&tier, &mut status),
    }
    if let Some(why) = engine.why_withheld() {
        status.health = Health::CacheLost;
        status.why = why;
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
    let fast = &cache.fast.counters;
    let unreadable = cache.fast.unreadable.dirty(&map);
    let clean_error = cache.destaging.error.borrow();
    (status.health, status.why) = cache.health.status(&map, &unreadable, clean_error.as_ref());
    let oldest = oldest_waiting(&map);
    status.occupancy = Occupancy {
        cache_bytes: u64::from(cache.state.slots().total()) * PAGE,
        cached_bytes: u64::from(map.resident()) * PAGE,
        dirty_bytes: u64::from(map.dirty()) * PAGE,
        unreadable_dirty_bytes: unreadable.len() as u64 * PAGE,
        clean_failures: cache.health.trouble.failed_rounds(),
        dirty_age_ns: oldest.map_or(0, |oldest| env::now().since(oldest).0),
        marked_regions: cache.state.intents.borrow().len() as u64,
    };
    let (requests, counts) = (&mut status.requests, &tier.counts);
    requests.user_requests = counts.requests.get();
    requests.home_requests = counts.hit_requests.get();
    requests.buffer_requests = counts.buffer_requests.get();
    requests.dirty_write_requests = counts.dirty_write_requests.get();
    status.traffic.fast_bytes_read = fast.bytes_read.get();
    status.traffic.fast_bytes_written = fast.bytes_written.get();
    status.traffic.fast_data_writes = fast.writes.get();
    status.upkeep = Upkeep {
        bad_checksums: fast.bad_checksums.get(),
        ..cache.upkeep.get()
    };
    let ledger = cache.commit.ledger().figures();
    status.ledger = LedgerUse {
        commits: cache.commit.counters().commits,
        bytes_written: ledger.bytes_written,
        writes: ledger.device_writes,
        used_bytes: ledger.log_used,
        size_bytes: ledger.log_size,
    };
    status.memory_bytes = (map.memory() + cache.mover.memory()) as u64;
}
