//! Converts the status of a tier into the types of the admin API: settings, figures, heat over time, the log of
//! moves.
//!
//! ```text
//! hybrid::{Tier, TierStatus, Heat, MoveRecord}, moments of the data thread -> the same with seconds since 1970
//!                                                                          -> pages: `after`, `limit`, `next`
//! ```
//!
//! Always true: following `next` from the first page to the last shows everything that is kept, once.

use base::{Bytes, Instant, Nanos};
use config::tier::TierKeys;
use hybrid::MoveEnd;

use super::refused::Refused;
use crate::api::refusal::Refusal;
use crate::api::tier::{
    Ask, Heat, HeatInterval, Move, Moves, RegionCount, RegionResident, Tier, TierRoom, TierRules,
    TierSettings,
};

impl From<&hybrid::Tier> for TierSettings {
    fn from(tier: &hybrid::Tier) -> TierSettings {
        let parameters = &tier.parameters;
        // Lists have one way to be written: that of the configuration.
        let keys = TierKeys::of(tier);
        let texts = |list: Option<config::tier::Listed>| list.map_or_else(Vec::new, |list| list.0);
        TierSettings {
            rules: TierRules {
                policy: tier.policy.to_string(),
                period_seconds: parameters.period.secs_f64(),
                iops_min: parameters.iops_min,
                sub_luns_max: parameters.sub_luns_max,
                share_min: parameters.share_min,
                streak_min: parameters.streak_min,
                timeout: parameters.timeout,
                look_back_seconds: parameters.window.map(Nanos::secs_f64),
            },
            region_bytes: tier.region.0,
            extent_bytes: tier.extent().0,
            mover: tier.mover.to_string(),
            lazy_down: tier.demotion.lazy,
            flow_control: tier.flow_control,
            break_even: tier.break_even,
            either: tier.either,
            share: tier.share,
            pinned: texts(keys.pinned),
            barred: texts(keys.barred),
            windows: texts(keys.windows),
            auto: tier.auto,
        }
    }
}

impl From<hybrid::TierStatus> for Tier {
    fn from(status: hybrid::TierStatus) -> Tier {
        let (room, moves) = (status.room, status.moves);
        Tier {
            room: TierRoom {
                region_bytes: room.region_bytes,
                extent_bytes: room.extent_bytes,
                regions: room.regions,
                regions_up: room.regions_up,
                room_bytes: room.room_bytes,
                held_bytes: room.held_bytes,
                held_dirty_bytes: room.held_dirty_bytes,
            },
            intervals: status.intervals,
            candidates: status.candidates,
            moves_under_way: moves.under_way,
            moves_up: moves.up,
            moves_down: moves.down,
            moves_cancelled: moves.cancelled,
            moves_failed: moves.failed,
            up_bytes: moves.bytes_up,
            down_bytes: moves.bytes_down,
            dropped_bytes: moves.bytes_dropped,
            requests_up: status.requests_up,
            sync_writes: status.sync_writes,
            flow_bytes_per_second: status.flow_bytes_per_second,
        }
    }
}

/// The most one answer holds.
const LIMIT_MAX: usize = 1000;
/// What one answer holds unless asked for more or less.
const LIMIT: usize = 200;

impl Ask {
    fn limit(&self) -> usize {
        self.limit.unwrap_or(LIMIT).clamp(1, LIMIT_MAX)
    }

    /// The moment from which on things count.
    fn since(&self, now: Instant) -> Instant {
        let span = self.last_seconds.map_or(Nanos(u64::MAX), |seconds| {
            Nanos::from_secs_f64(seconds.clamp(0.0, 1e9))
        });
        Instant(now.0.saturating_sub(span.0))
    }
}

/// The data thread's clock beside the calendar, to say when something was.
#[derive(Debug, Clone, Copy)]
pub struct Clocks {
    pub now: Instant,
    /// Since 1970.
    pub wall: Nanos,
}

impl Clocks {
    /// Both now; on a data thread.
    pub fn read() -> Clocks {
        Clocks {
            now: env::now(),
            wall: env::wall_clock(),
        }
    }

    /// In seconds since 1970.
    fn unix_seconds(&self, at: Instant) -> f64 {
        let passed = self.now.0.saturating_sub(at.0);
        self.wall.0.saturating_sub(passed) as f64 / 1e9
    }
}

impl Heat {
    /// The part of `heat` that is asked for.
    pub fn new(volume: &str, heat: hybrid::Heat, ask: &Ask, clocks: Clocks) -> Heat {
        let since = ask.since(clocks.now);
        let wanted = heat.intervals.into_iter().filter(|interval| {
            ask.after.is_none_or(|after| interval.number > after)
                && interval.start + interval.length > since
        });
        let mut intervals: Vec<HeatInterval> = wanted
            .take(ask.limit() + 1)
            .map(|interval| heat_interval(interval, clocks))
            .collect();
        let more = intervals.len() > ask.limit();
        intervals.truncate(ask.limit());
        Heat {
            volume: volume.to_owned(),
            region_bytes: heat.region.0,
            regions: heat.regions,
            next: intervals.last().filter(|_| more).map(|last| last.number),
            intervals,
        }
    }
}

fn heat_interval(interval: hybrid::HeatInterval, clocks: Clocks) -> HeatInterval {
    let count = |count: &policy::tier::Count| RegionCount {
        region: count.region.0,
        reads: count.reads,
        writes: count.writes,
    };
    let resident = |&(region, Bytes(bytes)): &(policy::tier::Region, Bytes)| RegionResident {
        region: region.0,
        bytes,
    };
    HeatInterval {
        number: interval.number,
        start_unix_seconds: clocks.unix_seconds(interval.start),
        seconds: interval.length.secs_f64(),
        counts: interval.counts.iter().map(count).collect(),
        candidates: interval.candidates.iter().map(|region| region.0).collect(),
        resident: interval.resident.iter().map(resident).collect(),
        up: interval.up.iter().map(|region| region.0).collect(),
    }
}

impl Moves {
    /// The part of `log` (its moves after number `ask.after`) that is asked for.
    pub fn new(
        volume: &str,
        region: Bytes,
        log: Vec<hybrid::MoveRecord>,
        ask: &Ask,
        clocks: Clocks,
    ) -> Moves {
        let since = ask.since(clocks.now);
        let wanted = log.into_iter().filter(|record| {
            ask.after.is_none_or(|after| record.number > after)
                && record.at >= since
                && ask
                    .region
                    .is_none_or(|asked| (record.region.0, record.region_len) == (asked, region))
        });
        let mut moves: Vec<Move> = wanted
            .take(ask.limit() + 1)
            .map(|record| one_move(record, clocks))
            .collect();
        let more = moves.len() > ask.limit();
        moves.truncate(ask.limit());
        Moves {
            volume: volume.to_owned(),
            region_bytes: region.0,
            next: moves.last().filter(|_| more).map(|last| last.number),
            moves,
        }
    }
}

fn one_move(record: hybrid::MoveRecord, clocks: Clocks) -> Move {
    let end = match record.end {
        MoveEnd::UnderWay => "under-way",
        MoveEnd::Done => "done",
        MoveEnd::Cancelled => "cancelled",
        MoveEnd::Failed => "failed",
    };
    Move {
        number: record.number,
        at_unix_seconds: clocks.unix_seconds(record.at),
        interval: record.interval,
        region: record.region.0,
        region_bytes: record.region_len.0,
        up: record.up,
        why: record.why,
        end: end.to_owned(),
        took_seconds: record.ended.map(|ended| ended.since(record.at).secs_f64()),
        copied_bytes: record.copied.0,
    }
}

/// What is said where there is no tier.
pub fn no_tier(volume: &str) -> Refused {
    Refused::Conflict(Refusal {
        error: format!("{volume} has no tier: nothing lives on its fast device by region"),
        what_to_do: format!("give it one with `tanada volume set {volume} mode=both`"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::tier::{Count, Region};

    const CLOCKS: Clocks = Clocks {
        now: Instant(100_000_000_000),
        wall: Nanos(1_000_000_000_000),
    };

    fn heat() -> hybrid::Heat {
        let interval = |number: u64| hybrid::HeatInterval {
            number,
            start: Instant(number * 10_000_000_000),
            length: Nanos::secs(10),
            counts: vec![Count {
                region: Region(2),
                reads: number,
                writes: 1,
            }],
            candidates: vec![Region(2)],
            resident: vec![(Region(2), Bytes::mib(number))],
            up: vec![Region(2)],
        };
        hybrid::Heat {
            region: Bytes::mib(16),
            regions: 4,
            intervals: (0..10).map(interval).collect(),
        }
    }

    #[test]
    fn following_next_shows_every_interval_once() {
        let mut ask = Ask {
            limit: Some(3),
            ..Ask::default()
        };
        let mut numbers = Vec::new();
        loop {
            let page = Heat::new("vol0", heat(), &ask, CLOCKS);
            assert!(page.intervals.len() <= 3);
            numbers.extend(page.intervals.iter().map(|interval| interval.number));
            match page.next {
                Some(next) => ask.after = Some(next),
                None => break,
            }
        }
        assert_eq!(numbers, (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn intervals_know_the_calendar_and_the_last_ones_can_be_asked_for() {
        let ask = Ask {
            last_seconds: Some(25.0),
            ..Ask::default()
        };
        let page = Heat::new("vol0", heat(), &ask, CLOCKS);
        let numbers: Vec<u64> = page
            .intervals
            .iter()
            .map(|interval| interval.number)
            .collect();
        assert_eq!(numbers, [7, 8, 9]);
        assert_eq!(page.intervals[2].start_unix_seconds, 990.0);
        assert_eq!(page.intervals[2].resident[0].bytes, 9 << 20);
        assert_eq!(
            page.intervals[2].counts[0],
            RegionCount {
                region: 2,
                reads: 9,
                writes: 1
            }
        );
    }

    #[test]
    fn moves_are_found_by_region_and_by_number() {
        let record = |number: u64| hybrid::MoveRecord {
            number,
            at: Instant(number * 1_000_000_000),
            interval: number,
            region: Region(1 + number as u32 % 2),
            region_len: Bytes::mib(if number == 6 { 2 } else { 1 }),
            up: number < 5,
            why: "it was hot".to_owned(),
            end: if number < 5 {
                MoveEnd::Done
            } else {
                MoveEnd::UnderWay
            },
            ended: (number < 5).then_some(Instant(number * 1_000_000_000 + 500_000_000)),
            copied: Bytes::kib(number),
            copying: Nanos(0),
        };
        let log = || (1..=8).map(record).collect();
        let ask = Ask {
            region: Some(1),
            after: Some(3),
            ..Ask::default()
        };
        let found = Moves::new("vol0", Bytes::mib(1), log(), &ask, CLOCKS);
        let numbers: Vec<u64> = found.moves.iter().map(|one| one.number).collect();
        assert_eq!(numbers, [4, 8], "6 is of another length");
        assert_eq!(
            (found.moves[0].end.as_str(), found.moves[0].took_seconds),
            ("done", Some(0.5))
        );
        assert_eq!(
            (found.moves[1].end.as_str(), found.moves[1].took_seconds),
            ("under-way", None)
        );
        assert_eq!(found.next, None);
        let first = Moves::new(
            "v",
            Bytes::mib(1),
            log(),
            &Ask {
                limit: Some(2),
                ..Ask::default()
            },
            CLOCKS,
        );
        assert_eq!(first.next, Some(2));
    }
}
