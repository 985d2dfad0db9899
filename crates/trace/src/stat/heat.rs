//! Where was the load, when? A map of at most 256 rows of addresses by 600 bars of time.
//!
//! Rows are powers of two of 1 MiB and are joined by two when a higher address appears; bars are those of
//! [`super::time`]. Each device has rows of its own until the end, when all get the widest.
//!
//! Always true: the cells add up to the requests of the devices shown.

use base::Bytes;
use serde::Serialize;

use super::time::BARS_MAX;

/// Rows of the map.
const ROWS_MAX: usize = 256;
/// Rows are at least 1 MiB.
const SHIFT_MIN: u32 = 20;

/// The rows of one device.
#[derive(Debug)]
pub(super) struct Grid {
    shift: u32,
    /// Row after row, [`BARS_MAX`] cells each.
    cells: Vec<u32>,
}

/// Requests by place and time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct HeatMap {
    /// Width of a column in milliseconds.
    pub bar_ms: u64,
    /// Height of a row in bytes.
    pub row_bytes: u64,
    /// The rows, by device and address.
    pub rows: Vec<HeatRow>,
    /// Devices beyond the first 64, which the map leaves out.
    pub devices_left_out: u64,
}

/// One row of a heat map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HeatRow {
    /// The device.
    pub device: u32,
    /// Where the row begins on it, in bytes.
    pub offset: u64,
    /// Reads and writes that began in the row, per column; columns behind the last are empty.
    pub counts: Vec<u32>,
}

impl Grid {
    pub(super) fn new() -> Grid {
        Grid {
            shift: SHIFT_MIN,
            cells: Vec::new(),
        }
    }

    #[inline]
    pub(super) fn add(&mut self, offset: u64, bar: usize) {
        let cell = (offset >> self.shift) as usize * BARS_MAX + bar;
        match self.cells.get_mut(cell) {
            Some(count) if offset >> self.shift < ROWS_MAX as u64 => {
                *count = count.saturating_add(1);
            }
            _ => self.add_above(offset, bar),
        }
    }

    /// Makes room for a row that is not there yet.
    #[cold]
    fn add_above(&mut self, offset: u64, bar: usize) {
        while offset >> self.shift >= ROWS_MAX as u64 {
            self.join_rows();
        }
        let row = (offset >> self.shift) as usize;
        if self.cells.len() < (row + 1) * BARS_MAX {
            self.cells.resize((row + 1) * BARS_MAX, 0);
        }
        let count = &mut self.cells[row * BARS_MAX + bar];
        *count = count.saturating_add(1);
    }

    fn join_rows(&mut self) {
        self.shift += 1;
        let mut joined = Vec::with_capacity(self.cells.len() / 2 + BARS_MAX);
        for pair in self.cells.chunks(2 * BARS_MAX) {
            let (low, high) = pair.split_at(BARS_MAX);
            let high = high.iter().chain(std::iter::repeat(&0));
            joined.extend(low.iter().zip(high).map(|(a, b)| a.saturating_add(*b)));
        }
        self.cells = joined;
    }

    /// Joins each `by` neighbours in time.
    pub(super) fn join_bars(&mut self, by: usize) {
        for row in self.cells.chunks_mut(BARS_MAX) {
            for bar in 0..BARS_MAX {
                let from = (bar * by).min(BARS_MAX);
                let to = (from + by).min(BARS_MAX);
                let sum = row[from..to]
                    .iter()
                    .fold(0, |a: u32, b| a.saturating_add(*b));
                row[bar] = sum;
            }
        }
    }

    fn rows(&self) -> usize {
        self.cells.len() / BARS_MAX
    }
}

/// The map of all `grids` (device, its grid), of `bars` columns of `bar_ms` milliseconds.
pub(super) fn map(mut grids: Vec<(u32, Grid)>, bars: usize, bar_ms: u64, left_out: u64) -> HeatMap {
    let Some(mut shift) = grids.iter().map(|(_, grid)| grid.shift).max() else {
        return HeatMap {
            bar_ms,
            ..HeatMap::default()
        };
    };
    grids.sort_by_key(|(device, _)| *device);
    loop {
        for (_, grid) in &mut grids {
            while grid.shift < shift {
                grid.join_rows();
            }
        }
        let rows: usize = grids.iter().map(|(_, grid)| grid.rows()).sum();
        if rows <= ROWS_MAX {
            break;
        }
        shift += 1;
    }
    let row = |device: u32, row: usize, cells: &[u32]| HeatRow {
        device,
        offset: (row as u64) << shift,
        counts: cells[..bars].to_vec(),
    };
    let rows = grids
        .iter()
        .flat_map(|(device, grid)| {
            let rows = grid.cells.chunks(BARS_MAX).enumerate();
            rows.map(|(at, cells)| row(*device, at, cells))
        })
        .collect();
    HeatMap {
        bar_ms,
        row_bytes: 1 << shift,
        rows,
        devices_left_out: left_out,
    }
}

impl HeatMap {
    /// The map with at most `rows` rows per map and `columns` columns, neighbours added up. Rows of
    /// different devices stay apart.
    ///
    /// # Example
    /// ```
    /// let map = trace::stat::HeatMap::default();
    /// assert!(map.rebinned(20, 60).rows.is_empty());
    /// ```
    #[must_use]
    pub fn rebinned(&self, rows: usize, columns: usize) -> HeatMap {
        let width = self.rows.iter().map(|row| row.counts.len()).max();
        let by = width.unwrap_or(0).div_ceil(columns.max(1)).max(1);
        let mut times = 1u64;
        loop {
            let joined = self.joined(times, by);
            let devices = joined.chunk_by(|a, b| a.device == b.device).count();
            if joined.len() <= rows.max(devices) {
                return HeatMap {
                    bar_ms: self.bar_ms * by as u64,
                    row_bytes: self.row_bytes.saturating_mul(times),
                    rows: joined,
                    devices_left_out: self.devices_left_out,
                };
            }
            times += 1;
        }
    }

    fn joined(&self, times: u64, by: usize) -> Vec<HeatRow> {
        let height = self.row_bytes.saturating_mul(times).max(1);
        let mut joined: Vec<HeatRow> = Vec::new();
        for row in &self.rows {
            let counts = row.counts.chunks(by).map(|chunk| {
                let sum = |a: u32, b: &u32| a.saturating_add(*b);
                chunk.iter().fold(0, sum)
            });
            let offset = row.offset / height * height;
            match joined.last_mut() {
                Some(last) if (last.device, last.offset) == (row.device, offset) => {
                    for (sum, count) in last.counts.iter_mut().zip(counts) {
                        *sum = sum.saturating_add(count);
                    }
                }
                _ => joined.push(HeatRow {
                    device: row.device,
                    offset,
                    counts: counts.collect(),
                }),
            }
        }
        joined
    }

    /// The hottest cell.
    pub fn max(&self) -> u32 {
        let all = self.rows.iter().flat_map(|row| &row.counts);
        all.copied().max().unwrap_or(0)
    }

    /// The height of a row.
    pub fn row_height(&self) -> Bytes {
        Bytes(self.row_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_request_is_lost_however_rows_and_bars_are_joined(
            requests in prop::collection::vec((0u32..4, 0u32..64, 0usize..BARS_MAX), 1..60),
            by in 1usize..12,
            (rows, columns) in (1usize..40, 1usize..90),
        ) {
            let mut grids: Vec<(u32, Grid)> = (0..4).map(|device| (device, Grid::new())).collect();
            for &(device, bits, bar) in &requests {
                grids[device as usize].1.add((1u64 << bits) + 5, bar);
            }
            for (_, grid) in &mut grids {
                grid.join_bars(by);
            }
            let map = map(grids, BARS_MAX, 1, 0);
            let sum = |map: &HeatMap| -> u32 { map.rows.iter().flat_map(|row| &row.counts).sum() };
            prop_assert_eq!(sum(&map), requests.len() as u32);
            prop_assert!(map.rows.len() <= ROWS_MAX);
            let small = map.rebinned(rows, columns);
            prop_assert_eq!(sum(&small), requests.len() as u32);
            prop_assert!(small.rows.len() <= rows.max(4));
            prop_assert!(small.rows.iter().all(|row| row.counts.len() <= columns));
        }
    }

    #[test]
    fn a_row_says_where_it_begins() {
        let mut grid = Grid::new();
        grid.add(0, 0);
        grid.add(300 << 20, 1);
        let map = map(vec![(7, grid)], 2, 1000, 0);
        assert_eq!((map.row_bytes, map.rows.len()), (2 << 20, 151));
        assert_eq!(map.rows[0].counts, [1, 0]);
        assert_eq!(
            map.rows[150],
            HeatRow {
                device: 7,
                offset: 300 << 20,
                counts: vec![0, 1]
            }
        );
    }
}
