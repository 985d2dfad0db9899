//! Which stacks are compared: four disks in RAID 0, an SSD, and what is made of both.
//!
//! ```text
//! method -> Setup: the engine's settings -> Stack: hdd0..hdd3 -> raid -> hybrid with the SSD
//! ```
//!
//! Source: AST table 1 (devices), table 3 (conditions), 4.1 (24 regions of 1 GiB and a cache of 24 GB: the same
//! fast capacity for every method).
//!
//! Choice: the paper's volume of 293 GB is the beginning of the array. The disks keep their full size, or the same
//! places would be as far apart as the whole disk.
//!
//! Choice: the SSD has its full size and the engine may use so much of it that 24 GiB of data have room beside
//! the slots that the engine holds back for writing out of place.

use base::{Bytes, Nanos, Span};
use device::model::{Spec, SpecError};
use hybrid::{Admission, Buffer, CopyBack, Demotion, Mode, Mover, Settings, Tier};
use policy::cache::Kind;
use policy::tier::Parameters;

use sim::run::{Made, Modelled, Stack, Stripe};

/// Regions that static tiering places. Source: AST table 3.
pub(super) const PLACED: usize = 24;

/// What of the SSD holds data, for every method alike. Source: AST 4.1.
pub(super) const FAST: Bytes = Bytes::gib(24);

/// Between the two passes of a run that goes on with a warm cache.
pub(super) const PAUSE: Nanos = Nanos::secs(60);

/// The beginning of a window, before moves overload the disks. Source: AST 4.3.
pub(super) const BEGINNING: Nanos = Nanos::secs(20 * 60);

/// What is judged, and in the published method moved, as one.
pub(super) const REGION: Bytes = Bytes::gib(1);

/// How a method uses the two devices.
#[derive(Debug, Clone)]
pub(super) enum How {
    /// The disks alone.
    Disks,
    /// A hybrid.
    Hybrid(Box<Settings>),
    /// A hybrid on which the busiest regions of the window before live from the beginning.
    Placed(Box<Settings>),
    /// A hybrid on which the window comes twice.
    Twice(Box<Settings>),
}

/// One run and the methods whose rows it gives.
#[derive(Debug, Clone)]
pub(super) struct Setup {
    /// Names in the tables: of the whole window; of a second pass or of its beginning, where there is such a row.
    pub methods: &'static [&'static str],
    /// What a reader should know of it.
    pub about: &'static str,
    pub how: How,
}

fn base(mode: Mode) -> Settings {
    Settings {
        name: "volume".to_owned(),
        mode,
        fast_bytes: Some(slots_for(FAST)),
        ..Settings::default()
    }
}

/// The slots that leave room for `data`: the engine holds one of fifty back, and a tier one more.
fn slots_for(data: Bytes) -> Bytes {
    const PAGE: u64 = base::PAGE as u64;
    let pages = data.0.div_ceil(PAGE) + 1;
    let slots = (pages..).find(|slots| slots - slots / 50 >= pages);
    Bytes(slots.expect("there is such a number") * PAGE)
}

/// The paper's block cache: LRU, 4 KiB, write-back, everything admitted, nothing bypassed.
fn lru() -> Settings {
    Settings {
        policy: Kind::Lru,
        block: Bytes::kib(4),
        admission: Admission::Always,
        sequential_bypass: None,
        ..base(Mode::Cache)
    }
}

/// The paper's own method, exactly.
fn published() -> Tier {
    Tier {
        parameters: Parameters::default(),
        region: REGION,
        extent: Some(REGION),
        mover: Mover::Published,
        buffer: Buffer::Memory,
        demotion: Demotion {
            copy_back: CopyBack::All,
            lazy: false,
            without_contents: true,
        },
        flow_control: false,
        break_even: false,
        either: false,
        ..Tier::default()
    }
}

/// As published, but for what is written back.
fn writing_back(copy_back: CopyBack) -> Demotion {
    Demotion {
        copy_back,
        ..published().demotion
    }
}

fn tiered(tier: Tier) -> How {
    hybrid(Settings {
        tier,
        ..base(Mode::Tier)
    })
}

fn setup(methods: &'static [&'static str], about: &'static str, how: How) -> Setup {
    Setup {
        methods,
        about,
        how,
    }
}

fn hybrid(settings: Settings) -> How {
    How::Hybrid(Box::new(settings))
}

/// Every run, in the order of the tables.
pub(super) fn setups() -> Vec<Setup> {
    let ours = [
        setup(
            &["tanada-cache"],
            "for comparison: our block cache with its defaults and no tier",
            hybrid(base(Mode::Cache)),
        ),
        setup(
            &["tanada-tier"],
            "for comparison: our tier with its defaults and no block cache",
            tiered(Tier::default()),
        ),
        setup(
            &["tanada"],
            "our defaults: tier and block cache side by side",
            hybrid(base(Mode::Both)),
        ),
    ];
    let mut all = as_published();
    all.extend(improved());
    all.extend(ours);
    all
}

/// The names of the methods, in the order of the tables.
pub fn methods() -> Vec<&'static str> {
    let setups = setups();
    setups
        .iter()
        .flat_map(|setup| setup.methods)
        .copied()
        .collect()
}

/// What the paper compares.
fn as_published() -> Vec<Setup> {
    // What is pinned stays; no interval ends before the run does, so nothing else is ever hot.
    let pinned = Tier {
        parameters: Parameters {
            period: Nanos::secs(100 * 86_400),
            ..Parameters::default()
        },
        mover: Mover::Direct,
        buffer: Buffer::Fast,
        demotion: writing_back(CopyBack::Changed),
        ..published()
    };
    vec![
        setup(
            &["hdd-only"],
            "four disks in RAID 0, nothing else",
            How::Disks,
        ),
        setup(
            &["static"],
            "the 24 busiest regions of the window before, placed at no cost before the window",
            How::Placed(Box::new(Settings {
                tier: pinned,
                ..base(Mode::Tier)
            })),
        ),
        setup(
            &["lru-cache-run1", "lru-cache-run2"],
            "a block cache: LRU, 4 KiB, 24 GiB, write-back, everything admitted; run 2 goes on with the warm cache",
            How::Twice(Box::new(lru())),
        ),
        setup(
            &["otf-published", "otf-published-first-20min"],
            "the published decision and mover: regions of 1 GiB, a buffer in memory, everything copied back",
            tiered(published()),
        ),
        setup(
            &["otf-no-copy-back"],
            "the same, but on the way down the map flips and nothing is written",
            tiered(Tier {
                demotion: writing_back(CopyBack::Nothing),
                ..published()
            }),
        ),
    ]
}

/// The published method, and one improvement on top of the other.
fn improved() -> Vec<Setup> {
    type Step = (&'static [&'static str], &'static str, fn(&mut Tier));
    const STEPS: [Step; 6] = [
        (
            &["+clean-drop"],
            "the published method, and on the way down only what changed is written",
            |tier| tier.demotion.copy_back = CopyBack::Changed,
        ),
        (
            &["+direct"],
            "and a region is up at once: writes go straight there, what is read is copied first",
            |tier| (tier.mover, tier.buffer) = (Mover::Direct, Buffer::Fast),
        ),
        (
            &["+flow-control"],
            "and moves yield to the users of the disks",
            |tier| tier.flow_control = true,
        ),
        (
            &["+extents"],
            "and extents of 16 MiB move, each when it is expected to be worth it",
            |tier| (tier.extent, tier.break_even) = (Some(Bytes::mib(16)), true),
        ),
        (
            &["+lazy-down"],
            "and what timed out stays until its room is needed",
            |tier| tier.demotion.lazy = true,
        ),
        (
            &["+either"],
            "and clean data may be read from the disks when the SSD is the busier",
            |tier| tier.either = true,
        ),
    ];
    let mut tier = published();
    let mut all = Vec::new();
    for (methods, about, improve) in STEPS {
        improve(&mut tier);
        all.push(setup(methods, about, tiered(tier.clone())));
    }
    let both = Settings {
        tier,
        ..base(Mode::Both)
    };
    let about = "and a block cache beside it";
    all.push(setup(&["+both"], about, hybrid(both)));
    all
}

impl Setup {
    /// The stack; `placed` are the regions that live on the SSD from the beginning, where the method wants that.
    pub fn stack(&self, placed: &[u64]) -> Result<Stack, SpecError> {
        let disk = Spec::find("hdd-10k-sas")?;
        let ssd = Spec::find("ssd-sata-mlc")?;
        let names: Vec<String> = (0..4).map(|n| format!("hdd{n}")).collect();
        let modelled = |name: &str, spec: &Spec| Modelled {
            name: name.to_owned(),
            spec: spec.clone(),
            size: spec.size,
        };
        let mut stack = Stack {
            name: self.methods[0].to_owned(),
            devices: names.iter().map(|name| modelled(name, &disk)).collect(),
            stripes: vec![Stripe {
                name: "raid".to_owned(),
                members: names,
                chunk: Bytes::kib(64),
            }],
            hybrids: Vec::new(),
            volume: "raid".to_owned(),
            config: String::new(),
        };
        let settings = match &self.how {
            How::Disks => return Ok(stack),
            How::Hybrid(settings) | How::Twice(settings) => (**settings).clone(),
            How::Placed(settings) => {
                let mut settings = (**settings).clone();
                let region = |index: &u64| Span::bytes(index * REGION.0, REGION.0);
                settings.tier.pinned = placed.iter().map(region).collect();
                settings
            }
        };
        stack.devices.push(modelled("ssd", &ssd));
        stack.volume.clone_from(&settings.name);
        stack.hybrids.push(Made {
            settings,
            slow: "raid".to_owned(),
            fast: "ssd".to_owned(),
        });
        Ok(stack)
    }

    /// Does the window come twice?
    pub fn twice(&self) -> bool {
        matches!(self.how, How::Twice(_))
    }

    /// Do regions have to be placed first?
    pub fn placed(&self) -> bool {
        matches!(self.how, How::Placed(_))
    }

    /// The second row of the run: what it is of the window.
    pub fn second(&self, length: Nanos) -> Option<(Nanos, Nanos)> {
        match (self.methods.len(), self.twice()) {
            (2, true) => Some((length + PAUSE, length * 2 + PAUSE)),
            (2, false) => Some((Nanos(0), BEGINNING)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_has_the_same_room() {
        const PAGE: u64 = base::PAGE as u64;
        let slots = slots_for(FAST).0 / PAGE;
        assert_eq!(slots - slots / 50, FAST.0 / PAGE + 1);
        for setup in setups() {
            let stack = setup.stack(&[3, 7]).unwrap();
            assert_eq!(
                stack
                    .devices
                    .iter()
                    .take(4)
                    .map(|d| &*d.spec.name)
                    .collect::<Vec<_>>(),
                ["hdd-10k-sas"; 4]
            );
            for made in &stack.hybrids {
                assert_eq!(
                    made.settings.fast_bytes,
                    Some(slots_for(FAST)),
                    "{:?}",
                    setup.methods
                );
                assert_eq!(made.settings.check(), Ok(()), "{:?}", setup.methods);
                assert_eq!(
                    made.settings.tier.pinned.len(),
                    if setup.placed() { 2 } else { 0 }
                );
            }
        }
    }
}
