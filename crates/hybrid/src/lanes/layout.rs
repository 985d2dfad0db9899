//! How are the two devices divided among lanes?
//!
//! Pure: sizes in, places out.

use base::Bytes;
use device::{Device, Info};

use crate::attach::error::OpenError;
use crate::attach::inspect::START;
use crate::attach::label::{Label, PAGE};
use crate::attach::lane::{LANES_MAX, Lane};
use crate::settings::Settings;

/// What is dealt out in turn is at least so long.
const UNIT_MIN: Bytes = Bytes::mib(16);

/// How many lanes, what is dealt out to them in turn, and how much of the fast device each has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    pub lanes: u32,
    pub unit: Bytes,
    pub len: Bytes,
}

impl Layout {
    /// As a label has it.
    pub fn of(lane: Lane) -> Layout {
        Layout {
            lanes: lane.lanes,
            unit: lane.unit,
            len: lane.len,
        }
    }

    /// For a new cache of `lanes` lanes; the settings fit the fast device.
    ///
    /// # Errors
    /// [`OpenError::Lanes`].
    pub fn fresh(
        lanes: u32,
        settings: &Settings,
        slow: &dyn Device,
        fast: &dyn Device,
    ) -> Result<Layout, OpenError> {
        let refuse = |why: String| OpenError::Lanes {
            name: settings.name.clone(),
            asked: lanes,
            why,
        };
        if !lanes.is_power_of_two() || !(2..=LANES_MAX).contains(&lanes) {
            let why = format!("it must be a power of two from 1 to {LANES_MAX}");
            return Err(refuse(why));
        }
        let (slow, fast) = (slow.info(), fast.info());
        let of = |lanes| Layout::of_devices(lanes, settings, &slow, &fast);
        of(lanes).map_err(|why| {
            let fewer = (1..lanes.ilog2()).map(|less| lanes >> less);
            let most = fewer.into_iter().find(|lanes| of(*lanes).is_ok());
            refuse(format!("{why}; they can have {}", most.unwrap_or(1)))
        })
    }

    /// The same, or what stands in the way.
    fn of_devices(
        lanes: u32,
        settings: &Settings,
        slow: &Info,
        fast: &Info,
    ) -> Result<Layout, String> {
        let unit = unit_for(settings.tier.extent.unwrap_or(UNIT_MIN));
        if slow.size.0 / u64::from(lanes) < unit.0 {
            return Err(format!(
                "{} has {}, and each lane needs {unit} of it at least",
                slow.name, slow.size
            ));
        }
        let len = Bytes(fast.size.0 / u64::from(lanes) / PAGE * PAGE);
        let part = device::shared::size_of_part(unit, lanes, 0, slow.size);
        // What is looked at to tell a blank device from another one is the first lane's alone.
        let needed = Label::size_for(pages_min(), part).max(START);
        if len < needed {
            return Err(format!(
                "{} has {}, and each lane needs {needed} of it at least",
                fast.name, fast.size
            ));
        }
        match settings.fast_bytes {
            Some(bytes) => check_cache(lanes, bytes)
                .map_err(|why| format!("of {} {why}", fast.name))
                .map(|()| Layout { lanes, unit, len }),
            None => Ok(Layout { lanes, unit, len }),
        }
    }
}

/// Is a cache of `bytes` enough for so many lanes?
///
/// # Errors
/// Why not: the end of a sentence that names what the cache is on.
pub(super) fn check_cache(lanes: u32, bytes: Bytes) -> Result<(), String> {
    let least = Bytes(u64::from(pages_min()) * PAGE);
    match bytes.0 / u64::from(lanes) < least.0 {
        true => Err(format!(
            "the cache may use {bytes}, and each lane needs {least} at least"
        )),
        false => Ok(()),
    }
}

/// A lane with fewer pages misses more than its part of a whole cache would: see decision 13 of `docs/decisions`.
const PAGES_MIN: u32 = 4096;

fn pages_min() -> u32 {
    #[cfg(test)]
    if tests::UNIT.get().is_some() {
        return crate::attach::label::SLOTS_MIN;
    }
    PAGES_MIN
}

/// What is dealt out to lanes in turn, where a tier moves extents of this length.
fn unit_for(extent: Bytes) -> Bytes {
    #[cfg(test)]
    if let Some(unit) = tests::UNIT.get() {
        return unit;
    }
    extent.max(UNIT_MIN)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use device::Memory;

    use super::*;

    thread_local! {
        /// Crash runs have short units, so that requests meet all lanes on small devices, and lanes of few pages.
        pub static UNIT: Cell<Option<Bytes>> = const { Cell::new(None) };
    }

    fn fresh(lanes: u32, slow: Bytes, fast: Bytes) -> Result<Layout, String> {
        let (slow, fast): (Rc<Memory>, Rc<Memory>) =
            (Memory::new("hdd0", slow), Memory::new("ssd0", fast));
        let mut settings = Settings {
            name: "vol".to_owned(),
            ..Settings::default()
        };
        settings.fit(&*fast);
        Layout::fresh(lanes, &settings, &*slow, &*fast).map_err(|error| error.to_string())
    }

    #[test]
    fn devices_are_divided_evenly_in_whole_pages() {
        let layout = fresh(4, Bytes::gib(1), Bytes(Bytes::mib(80).0 + 4096)).unwrap();
        assert_eq!((layout.unit, layout.len), (Bytes::mib(16), Bytes::mib(20)));
        assert_eq!(unit_for(Bytes::mib(64)), Bytes::mib(64));
    }

    #[test]
    fn a_lane_has_the_least_pages_or_more_where_it_is_made() {
        let label = |size: Bytes| Label::layout(size, None, Bytes::mib(256), "vol", 1).unwrap();
        let least = Label::size_for(PAGES_MIN, Bytes::mib(256));
        assert_eq!(label(least).slots, PAGES_MIN);
        assert!(label(Bytes(least.0 - PAGE)).slots < PAGES_MIN);
        assert_eq!(fresh(4, Bytes::gib(1), least * 4).unwrap().len, least);
        assert!(fresh(4, Bytes::gib(1), Bytes(least.0 * 4 - PAGE)).is_err());
    }

    #[test]
    fn lanes_that_do_not_fit_are_refused_with_how_many_would() {
        let refused = |lanes, slow, fast| fresh(lanes, slow, fast).unwrap_err();
        assert_eq!(
            refused(3, Bytes::gib(1), Bytes::gib(1)),
            "vol cannot have 3 lanes: it must be a power of two from 1 to 64"
        );
        assert_eq!(
            refused(4, Bytes::mib(48), Bytes::gib(1)),
            "vol cannot have 4 lanes: hdd0 has 48.0 MiB, and each lane needs 16.0 MiB of it at least; they can have 2"
        );
        assert_eq!(
            refused(8, Bytes::gib(1), Bytes::mib(80)),
            "vol cannot have 8 lanes: ssd0 has 80.0 MiB, and each lane needs 16.7 MiB of it at least; they can have 4"
        );
        assert_eq!(
            refused(2, Bytes::gib(1), Bytes::mib(20)),
            "vol cannot have 2 lanes: ssd0 has 20.0 MiB, and each lane needs 16.7 MiB of it at least; they can have 1"
        );
    }

    #[test]
    fn a_cache_of_a_part_of_the_device_has_lanes_by_its_own_size() {
        let (slow, fast): (Rc<Memory>, Rc<Memory>) = (
            Memory::new("hdd0", Bytes::gib(1)),
            Memory::new("ssd0", Bytes::gib(1)),
        );
        let settings = Settings {
            name: "vol".to_owned(),
            fast_bytes: Some(Bytes::mib(40)),
            ..Settings::default()
        };
        let refused = Layout::fresh(8, &settings, &*slow, &*fast).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "vol cannot have 8 lanes: of ssd0 the cache may use 40.0 MiB, and each lane needs 16.0 MiB at least; they can \
             have 2"
        );
    }
}
