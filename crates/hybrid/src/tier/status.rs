//! Where the tier stands, gathered for people.

use base::Bytes;

use super::Tier;
use super::view::{Heat, TierMoves, TierRoom, TierStatus};
use crate::attach::label::PAGE;

/// See [`crate::Hybrid::heat`].
pub(crate) fn heat(tier: &Tier, first: u64) -> Heat {
    let cache = &tier.cache;
    let (table, stats) = (cache.state.extents.borrow(), tier.stats.borrow());
    Heat {
        region: table.grains.region_bytes(),
        regions: table.grains.regions(),
        intervals: stats
            .intervals()
            .filter(|interval| interval.number >= first)
            .cloned()
            .collect(),
    }
}

/// See [`crate::Hybrid::tier`].
pub(crate) fn tier_status(tier: &Tier) -> TierStatus {
    let cache = &tier.cache;
    let (table, stats, map) = (
        cache.state.extents.borrow(),
        tier.stats.borrow(),
        cache.state.map(),
    );
    let counts = &tier.counts;
    let flow = cache.volume.settings.borrow().tier.flow_control;
    let candidates = stats
        .intervals()
        .last()
        .map_or(0, |last| last.candidates.len());
    TierStatus {
        room: TierRoom {
            region_bytes: table.grains.region_bytes().0,
            extent_bytes: Bytes(table.grains.extent_pages() * PAGE).0,
            regions: table.grains.regions(),
            regions_up: table.regions_up().len() as u32,
            room_bytes: tier.room() * PAGE,
            held_bytes: u64::from(map.pins().resident()) * PAGE,
            held_dirty_bytes: u64::from(map.pins().dirty()) * PAGE,
        },
        intervals: stats.number(),
        candidates: candidates as u32,
        moves: TierMoves {
            under_way: stats.pending() as u32,
            up: counts.moves_up.get(),
            down: counts.moves_down.get(),
            cancelled: counts.cancelled.get(),
            failed: counts.failed.get(),
            bytes_up: counts.bytes_promoted.get(),
            bytes_down: counts.bytes_demoted.get(),
            bytes_dropped: counts.bytes_dropped.get(),
        },
        requests_up: counts.tier_requests.get(),
        flow_bytes_per_second: flow.then(|| tier.pace.borrow().rate().0 as f64),
        sync_writes: tier.movers.published.sync_writes.get(),
    }
}
