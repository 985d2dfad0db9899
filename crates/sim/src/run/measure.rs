//! What counters said at two moments, and what that comes to.

use std::cell::Cell;
use std::rc::Rc;

use base::{Bytes, Instant};
use device::meter::Counters;
use device::{Class, Device, Power};
use hybrid::{Share, Status};

use super::build::{Built, Watched};
use super::outcome::{CacheOutcome, ClassBytes, DeviceOutcome, FlashWork, Moved};
use super::tally::DeviceBin;

/// Requests under way on the volume, over time.
#[derive(Default)]
pub(super) struct Depth {
    pub(super) now: Cell<u64>,
    pub(super) deepest: Cell<u64>,
    /// Nanoseconds times requests.
    pub(super) time: Cell<u128>,
    pub(super) counted_to: Cell<Instant>,
}

impl Depth {
    pub(super) fn count(&self, now: Instant) {
        let span = now.since(self.counted_to.replace(now)).0;
        let time = u128::from(self.now.get()) * u128::from(span);
        self.time.set(self.time.get() + time);
    }

    pub(super) fn step(&self, now: Instant, by: i64) {
        self.count(now);
        let depth = self
            .now
            .get()
            .checked_add_signed(by)
            .expect("what ends has begun");
        self.now.set(depth);
        self.deepest.set(self.deepest.get().max(depth));
    }
}

/// What counters said at one moment.
pub(super) struct Snapshot {
    pub(super) counters: Vec<Counters>,
    pub(super) powers: Vec<Power>,
    pub(super) statuses: Vec<Status>,
    pub(super) depth_time: u128,
}

impl Snapshot {
    /// What all counters say now; `depth_time` is the volume's.
    pub(super) fn of(built: &Built, depth_time: u128) -> Snapshot {
        let devices = &built.devices;
        let power = |device: &Watched| device.model.power().expect("a model knows its power");
        let hybrids = built.hybrids.iter();
        Snapshot {
            counters: devices.iter().map(|it| it.meter.counters()).collect(),
            powers: devices.iter().map(power).collect(),
            statuses: hybrids.map(|(_, hybrid)| hybrid.status()).collect(),
            depth_time,
        }
    }

    /// Data that only fast devices have.
    pub(super) fn dirty(&self) -> Bytes {
        let statuses = self.statuses.iter();
        Bytes(statuses.map(|status| status.occupancy.dirty_bytes).sum())
    }

    /// What each device did since an earlier moment.
    pub(super) fn bins_since(&self, last: &Snapshot) -> Vec<DeviceBin> {
        let bin = |index: usize| {
            let since = self.counters[index].since(&last.counters[index]);
            DeviceBin {
                read: since.all(device::Op::Read).bytes,
                written: since.all(device::Op::Write).bytes,
                depth_time: since.depth_time,
                busy: since.busy,
                joules: self.powers[index].joules - last.powers[index].joules,
            }
        };
        (0..self.counters.len()).map(bin).collect()
    }

    /// Bytes of reads of the hybrid that is the volume: from its fast device, and from its slow one.
    pub(super) fn hits(&self, built: &Built) -> (u64, u64) {
        let named = || {
            let top = built.top.as_ref()?;
            let mut named = built.hybrids.iter().zip(&self.statuses);
            named.find(|((_, hybrid), _)| Rc::ptr_eq(hybrid, top))
        };
        let reads = named().map_or(Share::default(), |(_, status)| status.requests.reads());
        (reads.bytes_fast, reads.bytes_slow)
    }
}

pub(super) fn device_outcome(
    device: &Watched,
    index: usize,
    base: &Snapshot,
    end: &Snapshot,
    seconds: f64,
) -> DeviceOutcome {
    let since = end.counters[index].since(&base.counters[index]);
    let joules = end.powers[index].joules - base.powers[index].joules;
    DeviceOutcome {
        name: device.name.clone(),
        model: device.spec_name.clone(),
        size_bytes: device.size.0,
        read: moved(&since, device::Op::Read),
        written: moved(&since, device::Op::Write),
        flushes: since.all(device::Op::Flush).requests,
        queue_depth_mean: per_second(since.depth_time as f64 / 1e9, seconds),
        queue_depth_max: since.deepest,
        utilisation: per_second(since.busy.secs_f64(), seconds),
        joules,
        watts: per_second(joules, seconds),
        spin_ups: end.powers[index].spin_ups - base.powers[index].spin_ups,
        states: device.model.spent(),
        flash: device.model.flash_work().map(FlashWork::from),
    }
}

fn moved(since: &Counters, op: device::Op) -> Moved {
    let class = |class| since.of(op, class).bytes;
    let all = since.all(op);
    Moved {
        requests: all.requests,
        bytes: all.bytes,
        by_class: ClassBytes {
            foreground: class(Class::Foreground),
            metadata: class(Class::Metadata),
            background: class(Class::Background),
        },
    }
}

pub(super) fn cache_outcome(name: &str, before: &Status, status: Status) -> CacheOutcome {
    let (reads, reads_before) = (status.requests.reads(), before.requests.reads());
    let hit_bytes = reads.bytes_fast - reads_before.bytes_fast;
    let miss_bytes = reads.bytes_slow - reads_before.bytes_slow;
    let share = |part: u64, all: u64| (all > 0).then(|| part as f64 / all as f64);
    let all = |of: Share| of.requests_fast + of.requests_slow + of.requests_both;
    let hits = reads.requests_fast - reads_before.requests_fast;
    let pages = |now: u64, then: u64| (now - then) * base::PAGE as u64;
    CacheOutcome {
        name: name.to_owned(),
        hit_bytes,
        miss_bytes,
        hit_share: share(hit_bytes, hit_bytes + miss_bytes),
        request_hit_share: share(hits, all(reads) - all(reads_before)),
        promoted_bytes: pages(status.upkeep.fills, before.upkeep.fills),
        evicted_bytes: pages(status.upkeep.evicted, before.upkeep.evicted),
        flash_data_bytes: status.traffic.fast_bytes_written - before.traffic.fast_bytes_written,
        flash_ledger_bytes: status.ledger.bytes_written - before.ledger.bytes_written,
        written_back_bytes: status.upkeep.bytes_cleaned - before.upkeep.bytes_cleaned,
        dirty_bytes: status.occupancy.dirty_bytes,
        cached_bytes: status.occupancy.cached_bytes,
        room_bytes: status.occupancy.cache_bytes,
        status,
    }
}

/// A mean over time; 0 over none.
pub(super) fn per_second(amount: f64, seconds: f64) -> f64 {
    if seconds > 0.0 { amount / seconds } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use base::Nanos;

    use super::*;

    #[test]
    fn the_deepest_queue_is_counted_over_days() {
        let depth = Depth::default();
        depth.step(Instant(0), 65_536);
        let days = Instant(0) + Nanos::secs(10 * 86_400);
        depth.step(days, -65_536);
        assert_eq!(depth.time.get(), 65_536 * u128::from(days.0));
    }
}
