//! The status of all lanes as that of one disk.
//!
//! Always true: what counts is a sum, what took time is the longest, and the health is that of the worst lane.

use crate::stats::{
    Health, LedgerUse, NanosOf, Occupancy, Recovered, Share, Status, Traffic, Upkeep, UserRequests,
    Written,
};

/// Adds the named fields of `$more` to those of `$to`.
macro_rules! add {
    ($to:expr, $more:expr; $($field:ident),+ $(,)?) => {{
        let (to, more) = (&mut $to, &$more);
        $( to.$field += more.$field; )+
    }};
}

/// The status of a disk of these lanes.
pub(super) fn joined(lanes: Vec<Status>) -> Status {
    let mut lanes = lanes.into_iter();
    let mut all = lanes.next().unwrap_or_default();
    for lane in lanes {
        if severity(lane.health) > severity(all.health) {
            (all.health, all.why) = (lane.health, lane.why);
        }
        all.size_bytes += lane.size_bytes;
        all.memory_bytes += lane.memory_bytes;
        all.slow_asleep &= lane.slow_asleep;
        occupancy(&mut all.occupancy, &lane.occupancy);
        requests(&mut all.requests, &lane.requests);
        traffic(&mut all.traffic, &lane.traffic);
        upkeep(&mut all.upkeep, &lane.upkeep);
        ledger(&mut all.ledger, &lane.ledger);
        recovered(&mut all.recovered, &lane.recovered);
    }
    all
}

fn severity(health: Health) -> u8 {
    match health {
        Health::Healthy => 0,
        Health::Degraded => 1,
        Health::PassThrough => 2,
        Health::Evacuating => 3,
        Health::Failed => 4,
        Health::CacheLost => 5,
        Health::Closed => 6,
    }
}

fn occupancy(all: &mut Occupancy, lane: &Occupancy) {
    add!(*all, *lane; cache_bytes, cached_bytes, dirty_bytes, unreadable_dirty_bytes, clean_failures, marked_regions);
    all.dirty_age_ns = all.dirty_age_ns.max(lane.dirty_age_ns);
}

fn requests(all: &mut UserRequests, lane: &UserRequests) {
    for (all, lane) in [
        (&mut all.random_reads, &lane.random_reads),
        (&mut all.sequential_reads, &lane.sequential_reads),
    ] {
        share(all, lane);
    }
    for (all, lane) in [
        (&mut all.random_writes, &lane.random_writes),
        (&mut all.sequential_writes, &lane.sequential_writes),
    ] {
        written(all, lane);
    }
    add!(*all, *lane; user_requests, home_requests, buffer_requests, dirty_write_requests);
}

fn share(all: &mut Share, lane: &Share) {
    add!(*all, *lane; requests_fast, requests_slow, requests_both, bytes_fast, bytes_slow);
}

fn written(all: &mut Written, lane: &Written) {
    add!(*all, *lane; requests, bytes);
}

fn traffic(all: &mut Traffic, lane: &Traffic) {
    add!(*all, *lane; fast_bytes_read, fast_bytes_written, fast_data_writes, slow_bytes_read, slow_bytes_written);
}

fn upkeep(all: &mut Upkeep, lane: &Upkeep) {
    add!(
        *all, *lane;
        fills, fills_dropped, evicted, bytes_cleaned, clean_rounds, waits_for_room, bad_checksums
    );
}

fn ledger(all: &mut LedgerUse, lane: &LedgerUse) {
    add!(*all, *lane; commits, bytes_written, writes, used_bytes, size_bytes);
}

fn recovered(all: &mut Recovered, lane: &Recovered) {
    add!(*all, *lane; pages, dropped);
    all.took = NanosOf(all.took.0.max(lane.took.0));
}

#[cfg(test)]
mod tests {
    use base::Nanos;

    use super::*;

    #[test]
    fn counts_are_added_and_the_worst_health_is_that_of_all() {
        let lane = |health, why: &str, took| Status {
            health,
            why: why.to_owned(),
            size_bytes: 7,
            slow_asleep: true,
            occupancy: Occupancy {
                dirty_bytes: 3,
                dirty_age_ns: took,
                ..Occupancy::default()
            },
            recovered: Recovered {
                pages: 2,
                took: NanosOf(Nanos(took)),
                ..Recovered::default()
            },
            ..Status::default()
        };
        let lanes = vec![
            lane(Health::Healthy, "", 5),
            lane(Health::Degraded, "some cannot be read", 9),
            lane(Health::Healthy, "", 1),
        ];
        let all = joined(lanes);
        assert_eq!(
            (all.health, &*all.why),
            (Health::Degraded, "some cannot be read")
        );
        assert_eq!((all.size_bytes, all.occupancy.dirty_bytes), (21, 9));
        assert_eq!(
            (all.occupancy.dirty_age_ns, all.recovered.took),
            (9, NanosOf(Nanos(9)))
        );
        assert_eq!((all.recovered.pages, all.slow_asleep), (6, true));
    }
}
