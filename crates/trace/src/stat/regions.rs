//! The regions of a trace, and what each got in the window at hand.
//!
//! Always true: a region is listed as touched in the window at hand exactly if it got something in it.

use base::Bytes;

use super::StatError;
use super::disks::Disk;
use super::hot::{Place, Windows};

/// Regions counted apart; their counters are half a GiB.
pub(super) const REGIONS_MAX: usize = 1 << 24;

/// A region while it is looked at.
#[derive(Debug)]
struct Region {
    place: Place,
    total: u64,
    in_window: u32,
}

/// All regions.
#[derive(Debug)]
pub(super) struct Regions {
    size: Bytes,
    /// Regions of a power of two are found by a shift.
    shift: Option<u32>,
    touched: Vec<Region>,
    /// Up to the highest byte asked for.
    pub(super) total: u64,

    window: u64,
    window_requests: u64,
    touched_now: Vec<u32>,
    pub(super) windows: Windows,
}

impl Regions {
    pub(super) fn new(size: Bytes) -> Regions {
        Regions {
            size,
            shift: size.0.is_power_of_two().then(|| size.0.ilog2()),
            touched: Vec::new(),
            total: 0,
            window: 0,
            window_requests: 0,
            touched_now: Vec::new(),
            windows: Windows::new(),
        }
    }

    /// A read or write begins at `offset` of a device.
    ///
    /// # Errors
    /// [`StatError::Regions`], if there are too many.
    #[inline]
    pub(super) fn add(&mut self, disk: &mut Disk, offset: u64) -> Result<(), StatError> {
        let number = match self.shift {
            Some(shift) => offset >> shift,
            None => offset / self.size.0,
        };
        let region = match disk.regions.get(number) {
            Some(region) => region,
            None if self.touched.len() >= REGIONS_MAX => {
                return Err(StatError::Regions { region: self.size });
            }
            None => {
                let region = self.touched.len() as u32;
                disk.regions.put(number, region);
                self.touched.push(Region {
                    place: Place {
                        device: disk.number,
                        region: number,
                    },
                    total: 0,
                    in_window: 0,
                });
                region
            }
        };
        let counts = &mut self.touched[region as usize];
        if counts.in_window == 0 {
            self.touched_now.push(region);
        }
        counts.in_window = counts.in_window.saturating_add(1);
        counts.total += 1;
        self.window_requests += 1;
        Ok(())
    }

    /// The window of this number is at hand; one with fewer than `min_io` requests before it says nothing.
    pub(super) fn enter(&mut self, window: u64, min_io: u64) {
        if window != self.window {
            self.close_window(min_io);
            self.window = window;
        }
    }

    /// The window at hand is over.
    pub(super) fn close_window(&mut self, min_io: u64) {
        let is_busy = self.window_requests >= min_io.max(1);
        self.window_requests = 0;
        let mut counts = Vec::with_capacity(if is_busy { self.touched_now.len() } else { 0 });
        for region in self.touched_now.drain(..) {
            let region = &mut self.touched[region as usize];
            if is_busy {
                counts.push((region.place, region.in_window));
            }
            region.in_window = 0;
        }
        if is_busy {
            self.windows.put(self.window, counts, self.total);
        }
    }

    /// How many were touched.
    pub(super) fn touched(&self) -> u64 {
        self.touched.len() as u64
    }

    /// What each got over the whole trace, the most first.
    pub(super) fn totals(&self) -> Vec<u64> {
        let mut totals: Vec<u64> = self.touched.iter().map(|region| region.total).collect();
        totals.sort_unstable_by(|a, b| b.cmp(a));
        totals
    }
}
