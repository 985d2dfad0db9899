//! Pages and units: which are free, counted by units and zones, and found again without looking at each.
//!
//! Always true: the counts of units and zones are those of the bits.

/// Units in a row, counted together.
#[derive(Clone, Copy, Default)]
struct Zone {
    free_pages: u32,
    free_units: u32,
    /// Units with some free pages and some taken.
    begun: u32,
}

/// What became of a unit when one of its pages was taken or freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    Nothing,
    /// Its first page was taken.
    Begun(u32),
    /// Its last page became free.
    Emptied(u32),
}

/// See the module's head.
pub(super) struct Units {
    total: u32,
    unit_pages: u32,
    zone_units: u32,
    /// One bit a page, set while it is free.
    free: Vec<u64>,
    free_count: u32,
    /// Free pages by unit.
    unit_free: Vec<u16>,
    zones: Vec<Zone>,
}

impl Units {
    /// `units` units of `unit_pages` pages each, all free.
    pub fn new(units: u32, unit_pages: u32, zone_units: u32) -> Units {
        let total = units * unit_pages;
        let zones = (0..units.div_ceil(zone_units))
            .map(|zone| {
                let here = zone_units.min(units - zone * zone_units);
                Zone {
                    free_pages: here * unit_pages,
                    free_units: here,
                    begun: 0,
                }
            })
            .collect();
        let mut free = vec![u64::MAX; (total as usize).div_ceil(64)];
        if !total.is_multiple_of(64)
            && let Some(last) = free.last_mut()
        {
            *last = (1 << (total % 64)) - 1;
        }
        Units {
            total,
            unit_pages,
            zone_units,
            free,
            free_count: total,
            unit_free: vec![unit_pages as u16; units as usize],
            zones,
        }
    }

    pub fn total(&self) -> u32 {
        self.total
    }

    pub fn unit_pages(&self) -> u32 {
        self.unit_pages
    }

    pub fn free_count(&self) -> u32 {
        self.free_count
    }

    /// Free units, and begun ones.
    pub fn sums(&self) -> (u32, u32) {
        let sum = |part: fn(&Zone) -> u32| self.zones.iter().map(part).sum();
        debug_assert_eq!(self.free_count, sum(|zone| zone.free_pages));
        (sum(|zone| zone.free_units), sum(|zone| zone.begun))
    }

    /// Bytes of memory this takes.
    pub fn memory(&self) -> u64 {
        (self.free.len() * 8 + self.unit_free.len() * 2 + self.zones.len() * 12) as u64
    }

    pub fn is_free(&self, page: u32) -> bool {
        self.free[page as usize / 64] >> (page % 64) & 1 == 1
    }

    /// Free pages of a unit.
    pub fn free_in(&self, unit: u32) -> u32 {
        u32::from(self.unit_free[unit as usize])
    }

    /// Takes or frees a page.
    pub fn set(&mut self, page: u32, free: bool) -> Turn {
        assert_ne!(
            self.is_free(page),
            free,
            "page {page} is taken and freed by turns"
        );
        self.free[page as usize / 64] ^= 1 << (page % 64);
        let unit = page / self.unit_pages;
        let before = self.free_in(unit);
        let after = if free { before + 1 } else { before - 1 };
        self.unit_free[unit as usize] = after as u16;
        let zone = &mut self.zones[(unit / self.zone_units) as usize];
        let begun = |count| u32::from(count > 0 && count < self.unit_pages);
        let whole = |count| u32::from(count == self.unit_pages);
        zone.begun = zone.begun + begun(after) - begun(before);
        zone.free_units = zone.free_units + whole(after) - whole(before);
        if free {
            zone.free_pages += 1;
            self.free_count += 1;
        } else {
            zone.free_pages -= 1;
            self.free_count -= 1;
        }
        match (free, self.unit_pages) {
            (true, whole) if after == whole => Turn::Emptied(unit),
            (false, whole) if before == whole => Turn::Begun(unit),
            _ => Turn::Nothing,
        }
    }

    /// The first free page from `from` on.
    pub fn next_free(&self, from: u32) -> Option<u32> {
        let mut word = from as usize / 64;
        let mut bits = self.free.get(word)? & (u64::MAX << (from % 64));
        loop {
            if bits != 0 {
                return Some(word as u32 * 64 + bits.trailing_zeros());
            }
            word += 1;
            bits = *self.free.get(word)?;
        }
    }

    /// The first unit from `cursor` on, round the end, that suits, in zones that may hold one.
    fn find(
        &self,
        cursor: u32,
        zone_may: impl Fn(&Zone) -> bool,
        suits: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let units = self.unit_free.len() as u32;
        let zones = self.zones.len() as u32;
        let start = cursor.min(units - 1) / self.zone_units;
        // The cursor's zone comes twice: its end first, its beginning last.
        for step in 0..=zones {
            let zone = (start + step) % zones;
            if !zone_may(&self.zones[zone as usize]) {
                continue;
            }
            let (mut from, mut to) = (
                zone * self.zone_units,
                ((zone + 1) * self.zone_units).min(units),
            );
            if step == 0 {
                from = from.max(cursor);
            } else if step == zones {
                to = to.min(cursor);
            }
            if let Some(unit) = (from..to).find(|unit| suits(*unit)) {
                return Some(unit);
            }
        }
        None
    }

    /// The first free unit from `cursor` on, round the end.
    pub fn free_unit(&self, cursor: u32) -> Option<u32> {
        let whole = self.unit_pages;
        self.find(
            cursor,
            |zone| zone.free_units > 0,
            |unit| self.free_in(unit) == whole,
        )
    }

    /// The first unit from `cursor` on, round the end, with free pages and taken ones, that suits.
    pub fn begun_unit(&self, cursor: u32, suits: impl Fn(u32) -> bool) -> Option<u32> {
        self.find(
            cursor,
            |zone| zone.begun > 0,
            |unit| {
                let free = self.free_in(unit);
                free > 0 && free < self.unit_pages && suits(unit)
            },
        )
    }

    /// The first unit with a free page.
    pub fn any_unit(&self) -> Option<u32> {
        self.find(0, |zone| zone.free_pages > 0, |unit| self.free_in(unit) > 0)
    }
}
