//! How are the two devices divided among lanes?
//!
//! Pure: sizes in, places out.

use base::Bytes;
use device::Device;

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
        let extent = settings.tier.extent.unwrap_or(UNIT_MIN);
        let unit = unit_for(extent);
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
        let least = unit.0 * u64::from(lanes);
        if slow.size.0 < least {
            let why = format!(
                "{} has {}, and each lane needs {unit} of it at least; choose fewer lanes",
                slow.name, slow.size
            );
            return Err(refuse(why));
        }
        let len = Bytes(fast.size.0 / u64::from(lanes) / PAGE * PAGE);
        let part = device::shared::size_of_part(unit, lanes, 0, slow.size);
        // What is looked at to tell a blank device from another one is the first lane's alone.
        let needed = Label::smallest(part).max(START);
        if len < needed {
            let why = format!(
                "{} has {}, and each lane needs {needed} of it at least; choose fewer lanes",
                fast.name, fast.size
            );
            return Err(refuse(why));
        }
        Ok(Layout { lanes, unit, len })
    }
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
        /// Crash runs have short units, so that requests meet all lanes on small devices.
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
        let layout = fresh(4, Bytes::gib(1), Bytes(Bytes::mib(64).0 + 4096)).unwrap();
        assert_eq!((layout.unit, layout.len), (Bytes::mib(16), Bytes::mib(16)));
        assert_eq!(unit_for(Bytes::mib(64)), Bytes::mib(64));
    }

    #[test]
    fn lanes_that_do_not_fit_are_refused_with_what_would() {
        assert_eq!(
            fresh(3, Bytes::gib(1), Bytes::mib(64)).unwrap_err(),
            "vol cannot have 3 lanes: it must be a power of two from 1 to 64"
        );
        assert_eq!(
            fresh(4, Bytes::mib(48), Bytes::mib(64)).unwrap_err(),
            "vol cannot have 4 lanes: hdd0 has 48.0 MiB, and each lane needs 16.0 MiB of it at least; choose fewer lanes"
        );
        assert!(
            fresh(8, Bytes::gib(1), Bytes::mib(1))
                .unwrap_err()
                .starts_with("vol cannot have 8 lanes: ssd0 has 1.0 MiB, and each lane needs ")
        );
    }
}
