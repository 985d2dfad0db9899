//! The devices of a trace, each with what is counted of it alone.
//!
//! Always true: a device is found without a hash while there are few.

use base::Bytes;

use super::StatError;
use super::flow::Streams;
use super::heat::{self, Grid, HeatMap};
use super::places::{Table, Touched};
use super::round::{GIB, percent, rounded};
use super::summary::DeviceFigures;
use crate::Op;

/// Devices counted apart.
pub(super) const DEVICES_MAX: usize = 1 << 17;
/// The first devices find their places without a hash.
const DENSE_DEVICES: usize = 16;
/// The first devices are in the heat map.
const HEAT_DEVICES: usize = 64;

/// One device while it is looked at.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) number: u32,
    pub(super) requests: u64,
    pub(super) reads: u64,
    pub(super) writes: u64,
    pub(super) read_bytes: u64,
    pub(super) write_bytes: u64,
    /// The lowest byte read or written.
    pub(super) first: u64,
    /// Behind the highest byte asked for.
    pub(super) end: u64,
    pub(super) regions_total: u64,
    pub(super) regions: Table,
    pub(super) mibs: Table,
    pub(super) streams: Box<Streams>,
    pub(super) heat: Option<Grid>,
}

impl Disk {
    pub(super) fn figures(&self, touched: Touched) -> DeviceFigures {
        let io = self.reads + self.writes;
        let bytes = self.read_bytes.saturating_add(self.write_bytes);
        DeviceFigures {
            device: self.number,
            requests: self.requests,
            read_pct: rounded(percent(self.reads, io.max(1)), 2),
            mean_size: bytes / io.max(1),
            max_offset_gib: rounded(self.end as f64 / GIB, 3),
            pages_gib: rounded(touched.pages as f64 * 4096.0 / GIB, 6),
        }
    }

    /// A read or write has come.
    #[inline]
    pub(super) fn add(&mut self, op: Op, size: u64) {
        if op == Op::Read {
            self.reads += 1;
            self.read_bytes = self.read_bytes.saturating_add(size);
        } else {
            self.writes += 1;
            self.write_bytes = self.write_bytes.saturating_add(size);
        }
    }

    /// It reaches up to byte `end`; returns how many regions that adds.
    #[inline]
    pub(super) fn reach(&mut self, end: u64, region: Bytes) -> u64 {
        if end <= self.end {
            return 0;
        }
        self.end = end;
        let total = end.div_ceil(region.0);
        let more = total - self.regions_total;
        self.regions_total = total;
        more
    }
}

/// All devices, in the order in which they appear.
#[derive(Debug)]
pub(super) struct Disks {
    pub(super) all: Vec<Disk>,
    table: Table,
    last: usize,
}

impl Disks {
    pub(super) fn new() -> Disks {
        Disks {
            all: Vec::new(),
            table: Table::new(false),
            last: 0,
        }
    }

    /// Device `number`.
    #[inline]
    pub(super) fn get(&mut self, number: u32) -> Result<&mut Disk, StatError> {
        let known = self.all.get(self.last);
        if known.is_none_or(|disk| disk.number != number) {
            self.last = match self.table.get(u64::from(number)) {
                Some(disk) => disk as usize,
                None if self.all.len() >= DEVICES_MAX => return Err(StatError::Devices),
                None => self.add(number),
            };
        }
        Ok(&mut self.all[self.last])
    }

    #[cold]
    fn add(&mut self, number: u32) -> usize {
        let position = self.all.len();
        let sparse = position >= DENSE_DEVICES;
        self.table.put(u64::from(number), position as u32);
        self.all.push(Disk {
            number,
            requests: 0,
            reads: 0,
            writes: 0,
            read_bytes: 0,
            write_bytes: 0,
            first: u64::MAX,
            end: 0,
            regions_total: 0,
            regions: Table::new(sparse),
            mibs: Table::new(sparse),
            streams: Box::new(Streams::new()),
            heat: (position < HEAT_DEVICES).then(Grid::new),
        });
        position
    }

    /// Bars of time are joined: so they are in each device's picture.
    pub(super) fn join_bars(&mut self, by: usize) {
        for heat in self.all.iter_mut().filter_map(|disk| disk.heat.as_mut()) {
            heat.join_bars(by);
        }
    }

    /// The picture of the first ones, in `bars` of `bar_ms`.
    pub(super) fn heat(self, bars: usize, bar_ms: u64) -> HeatMap {
        let left_out = self.all.len().saturating_sub(HEAT_DEVICES) as u64;
        let grids = self.all.into_iter();
        let grids = grids.filter_map(|disk| Some((disk.number, disk.heat?)));
        heat::map(grids.collect(), bars, bar_ms, left_out)
    }
}
