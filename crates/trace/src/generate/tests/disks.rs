//! Four modelled disks side by side under a generated trace: how busy, how long does a request take?

use base::{Bytes, Instant, Nanos, Span};
use device::Op;
use device::model::{Request as DiskRequest, Spec, Timing};

use super::super::{Profile, Settings};
use super::each;
use crate::{Op as Asked, Request};

const DISKS: u64 = 4;
/// Choice: the paper does not say how its RAID 0 is cut.
const CHUNK: u64 = 64 << 10;
const MINUTE: Nanos = Nanos::secs(60);

/// What the disks did.
pub struct Account {
    /// Share of time a disk was busy, mean of the four, in each minute.
    pub busy: Vec<f64>,
    /// Mean response of all requests in milliseconds.
    pub response_ms: f64,
}

struct Disk {
    timing: Box<dyn Timing>,
    under_way: u32,
    since: Instant,
}

/// A request whose parts are not all done: parts left, when it came, the latest part.
type Open = (u32, Instant, Instant);

struct Array {
    disks: Vec<Disk>,
    open: base::Map<u64, Open>,
    busy: Vec<u64>,
    waited: u64,
    done: u64,
}

impl Array {
    fn advance(&mut self, now: Instant) {
        for disk in &mut self.disks {
            disk.timing.advance(now);
            while let Some(done) = disk.timing.take_done() {
                disk.under_way -= 1;
                if disk.under_way == 0 {
                    spread(&mut self.busy, disk.since, done.at);
                }
                let Some(open) = self.open.get_mut(&done.id) else {
                    panic!("the disks answer what was asked");
                };
                open.0 -= 1;
                open.2 = open.2.max(done.at);
                if open.0 == 0 {
                    self.waited += open.2.since(open.1).0;
                    self.done += 1;
                    self.open.remove(&done.id);
                }
            }
        }
    }

    fn submit(&mut self, id: u64, request: &Request) {
        let now = Instant(request.at.0);
        self.advance(now);
        let op = match request.op {
            Asked::Read => Op::Read,
            _ => Op::Write,
        };
        let (mut from, end) = (request.offset.0, request.offset.0 + request.size.0);
        let mut parts = 0;
        while from < end {
            let chunk = from / CHUNK;
            let to = end.min((chunk + 1) * CHUNK);
            let disk = &mut self.disks[(chunk % DISKS) as usize];
            if disk.under_way == 0 {
                disk.since = now;
            }
            disk.under_way += 1;
            let at = chunk / DISKS * CHUNK + from % CHUNK;
            let span = Span::bytes(at, to - from);
            disk.timing.submit(
                now,
                DiskRequest {
                    id,
                    op,
                    span,
                    fua: false,
                },
            );
            parts += 1;
            from = to;
        }
        self.open.insert(id, (parts, now, now));
    }
}

/// Books the time from `from` to `to` in the minutes it lies in.
fn spread(busy: &mut [u64], from: Instant, to: Instant) {
    let mut from = from.0;
    while from < to.0 {
        let minute = (from / MINUTE.0) as usize;
        let end = to.0.min((minute as u64 + 1) * MINUTE.0);
        if let Some(busy) = busy.get_mut(minute) {
            *busy += end - from;
        }
        from = end;
    }
}

/// The first `minutes` of the window of a profile on four disks of the paper's kind, nothing else.
pub fn run(profile: Profile, minutes: u64) -> Account {
    let spec = Spec::find("hdd-10k-sas").expect("the catalogue has it");
    let size = Some(Bytes(450_000_000_000));
    let disk = |seed| Disk {
        timing: spec.timing(size, seed).expect("the size is the model's"),
        under_way: 0,
        since: Instant(0),
    };
    let mut array = Array {
        disks: (0..DISKS).map(disk).collect(),
        open: base::Map::default(),
        busy: vec![0; minutes as usize],
        waited: 0,
        done: 0,
    };
    let settings = Settings {
        span: Some(Nanos(MINUTE.0 * minutes)),
        ..Settings::default()
    };
    let mut id = 0;
    each(profile, &settings, |batch| {
        for request in batch {
            array.submit(id, request);
            id += 1;
        }
    });
    array.advance(Instant(u64::MAX / 4));
    assert_eq!(array.done, id);
    Account {
        busy: array
            .busy
            .iter()
            .map(|busy| *busy as f64 / (DISKS * MINUTE.0) as f64)
            .collect(),
        response_ms: array.waited as f64 / id as f64 / 1e6,
    }
}
