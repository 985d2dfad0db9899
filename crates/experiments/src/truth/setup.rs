//! One set-up in two forms: as the simulator takes it, and as the configuration of a daemon.
//!
//! ```text
//! Disks -> sim::run::Stack
//!       -> tanada.toml: models in memory, the export, and a plain device in memory beside it
//! ```
//!
//! Always true: what is chosen here is in both forms; all else is the product's default in both.

use base::{Bytes, Nanos};
use device::model::{Spec, SpecError};
use hybrid::Mode;
use sim::run::{Made, Modelled, Stack};

/// The models, by their names in the catalogue.
pub(super) const SLOW: &str = "hdd-7200-sata";
pub(super) const FAST: &str = "ssd-sata-mlc";
/// What is exported of a hybrid or a volume.
pub(super) const VOLUME: &str = "vol0";
/// The device in memory by which the floor is measured, and the store on it.
pub(super) const FLOOR: &str = "floor";
/// The store.
pub(super) const STORE: &str = "s0";
/// Stores of a volume, each on a disk of its own.
pub(super) const COPIES: usize = 3;
/// A disk below a store.
pub(super) const DISK: Bytes = Bytes::gib(2);
/// What each session reserves: more than it asks for.
pub(super) const RATE_MB: u64 = 3;

/// A hybrid.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Disks {
    pub slow: Bytes,
    pub fast: Bytes,
    pub mode: Mode,
    pub tier: Option<QuickTier>,
}

/// A tier that moves small regions soon.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct QuickTier {
    pub region: Bytes,
    pub period: Nanos,
    pub iops_min: u32,
}

impl Disks {
    fn settings(&self) -> hybrid::Settings {
        let mut settings = hybrid::Settings {
            name: VOLUME.to_owned(),
            mode: self.mode,
            ..hybrid::Settings::default()
        };
        if let Some(tier) = self.tier {
            settings.tier.region = tier.region;
            settings.tier.parameters.period = tier.period;
            settings.tier.parameters.iops_min = f64::from(tier.iops_min);
        }
        settings
    }

    /// For the simulator.
    ///
    /// # Errors
    /// [`SpecError`].
    pub fn stack(&self) -> Result<Stack, SpecError> {
        let device = |name: &str, model, size| {
            Ok(Modelled {
                name: name.to_owned(),
                spec: Spec::find(model)?,
                size,
            })
        };
        Ok(Stack {
            name: VOLUME.to_owned(),
            devices: vec![
                device("hdd0", SLOW, self.slow)?,
                device("ssd0", FAST, self.fast)?,
            ],
            stripes: Vec::new(),
            hybrids: vec![Made {
                settings: self.settings(),
                slow: "hdd0".to_owned(),
                fast: "ssd0".to_owned(),
            }],
            volume: VOLUME.to_owned(),
            config: self.configuration(),
        })
    }

    /// For a daemon.
    pub fn configuration(&self) -> String {
        let mut text = head();
        text += &model("hdd0", SLOW, self.slow);
        text += &model("ssd0", FAST, self.fast);
        text += &memory(self.slow);
        text += &format!(
            "[[hybrid]]\nname = \"{VOLUME}\"\nslow = \"hdd0\"\nfast = \"ssd0\"\nmode = \"{}\"\n",
            self.mode
        );
        if let Some(tier) = self.tier {
            text += &format!(
                "[hybrid.tier]\nregion = {}\nperiod = \"{}ms\"\niops_min = {}\n",
                tier.region.0,
                tier.period.0 / 1_000_000,
                tier.iops_min
            );
        }
        text + &export(VOLUME) + &export(FLOOR)
    }
}

/// Three stores that keep volumes together.
pub(super) fn of_volume() -> String {
    let mut text = head();
    for nth in 0..COPIES {
        text += &model(&disk(nth), SLOW, DISK);
        text += &store(&format!("s{nth}"), &disk(nth));
    }
    text += &memory(DISK);
    text += "[cluster]\nnode = \"n0\"\nnbd = \"unix:vol0.sock\"\n";
    text + &export(FLOOR)
}

/// A store, and another one in memory.
pub(super) fn of_store() -> String {
    let mut text = head() + &model(&disk(0), SLOW, DISK) + &memory(DISK);
    for (name, device) in [(STORE, &*disk(0)), (FLOOR_STORE, FLOOR)] {
        text += &store(name, device);
        text += "unauthenticated = true\n";
    }
    text
}

/// The store in memory.
pub(super) const FLOOR_STORE: &str = "s-floor";

/// The disk below a store.
pub(super) fn disk(nth: usize) -> String {
    format!("hdd{nth}")
}

/// The object of a session.
pub(super) fn object(session: u32) -> String {
    format!("object-{session}")
}

fn head() -> String {
    "data_dir = \"data\"\n[web]\nlisten = []\n[admin]\nlisten = \"unix:admin.sock\"\n".to_owned()
}

fn model(name: &str, model: &str, size: Bytes) -> String {
    format!(
        "[[device]]\nname = \"{name}\"\nmodel = \"{model}\"\nmemory = true\nsize = {}\n",
        size.0
    )
}

fn memory(size: Bytes) -> String {
    format!(
        "[[device]]\nname = \"{FLOOR}\"\nmemory = true\nsize = {}\n",
        size.0
    )
}

fn store(name: &str, device: &str) -> String {
    format!(
        "[[store]]\nname = \"{name}\"\ndevice = \"{device}\"\nlisten = \"unix:{name}.sock\"\ncreate = true\n"
    )
}

fn export(device: &str) -> String {
    format!("[[export]]\ndevice = \"{device}\"\nnbd = \"unix:{device}.sock\"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISKS: Disks = Disks {
        slow: Bytes::gib(4),
        fast: Bytes::mib(512),
        mode: Mode::Tier,
        tier: Some(QuickTier {
            region: Bytes::mib(16),
            period: Nanos::millis(1500),
            iops_min: 10,
        }),
    };

    #[test]
    fn both_forms_of_a_set_up_say_the_same() {
        let (text, stack) = (DISKS.configuration(), DISKS.stack().unwrap());
        for device in &stack.devices {
            let said = format!(
                "[[device]]\nname = \"{}\"\nmodel = \"{}\"\nmemory = true\nsize = {}\n",
                device.name, device.spec.name, device.size.0
            );
            assert!(text.contains(&said), "{text}");
        }
        let settings = &stack.hybrids[0].settings;
        assert_eq!(settings.mode, Mode::Tier);
        assert!(text.contains("mode = \"tier\"\n[hybrid.tier]\n"), "{text}");
        assert_eq!(settings.tier.region, Bytes::mib(16));
        assert!(text.contains("region = 16777216\n"), "{text}");
        assert_eq!(settings.tier.parameters.period, Nanos::millis(1500));
        assert!(text.contains("period = \"1500ms\"\n"), "{text}");
        assert_eq!(settings.tier.parameters.iops_min, 10.0);
        assert!(text.contains("iops_min = 10\n"), "{text}");
    }

    #[test]
    fn what_is_not_chosen_is_the_default() {
        let settings = Disks {
            tier: None,
            ..DISKS
        }
        .settings();
        let usual = hybrid::Settings {
            name: VOLUME.to_owned(),
            mode: Mode::Tier,
            ..hybrid::Settings::default()
        };
        assert_eq!(settings, usual);
        let text = Disks {
            tier: None,
            ..DISKS
        }
        .configuration();
        assert!(!text.contains("[hybrid.tier]"), "{text}");
    }

    #[test]
    fn a_volume_has_a_store_on_each_of_three_disks() {
        let text = of_volume();
        for nth in 0..COPIES {
            let said = format!("[[store]]\nname = \"s{nth}\"\ndevice = \"hdd{nth}\"\n");
            assert!(text.contains(&said), "{text}");
        }
        assert!(text.contains("[cluster]"), "{text}");
    }
}
