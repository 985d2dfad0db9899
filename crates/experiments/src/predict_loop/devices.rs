//! Which devices are there, and what is each of them for?
//!
//! ```text
//! Fitted: their results are seen     OnTheLine: between two that are fitted     HeldOut: off that line
//! ```
//!
//! Source: SCM tables 4 and 5 (NAND, 3D XPoint, DRAM), section 5 (SCM1, SCM2).
//!
//! Choice: the held-out devices and all their parameters were written down in `experiments/predict/README.md` before any run with
//! them, and are not changed after it.

use device::model::{Kind, Spec};
use report::Evidence;

/// What a device is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The model is fitted to its results.
    Fitted,
    /// It is predicted, and lies between two that are fitted.
    OnTheLine,
    /// It is predicted, and does what a table of latencies does not say.
    HeldOut,
}

/// A device: its name in the rows, its model, what it is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// Its name.
    pub name: &'static str,
    /// A model of the catalogue, or a file's text.
    model: Model,
    /// What it is there for.
    pub role: Role,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Model {
    Catalogue(&'static str),
    Text(&'static str),
}

const fn case(name: &'static str, model: &'static str, role: Role) -> Case {
    Case {
        name,
        model: Model::Catalogue(model),
        role,
    }
}

const fn held_out(name: &'static str, text: &'static str) -> Case {
    Case {
        name,
        model: Model::Text(text),
        role: Role::HeldOut,
    }
}

/// The devices: those that are fitted, then those that are predicted.
pub const CASES: [Case; 9] = [
    case("NAND", "nand", Role::Fitted),
    case("3D XPoint", "scm", Role::Fitted),
    case("DRAM", "dram", Role::Fitted),
    case("SCM1", "scm1", Role::OnTheLine),
    case("SCM2", "scm2", Role::OnTheLine),
    held_out(
        "write cache",
        include_str!("../../../../experiments/predict/devices/write-cache.toml"),
    ),
    held_out(
        "read cache",
        include_str!("../../../../experiments/predict/devices/read-cache.toml"),
    ),
    held_out(
        "depth",
        include_str!("../../../../experiments/predict/devices/depth.toml"),
    ),
    held_out(
        "large writes",
        include_str!("../../../../experiments/predict/devices/large-writes.toml"),
    ),
];

impl Case {
    /// Its model, at the speed of its sheet.
    ///
    /// # Errors
    /// A sentence.
    pub fn spec(&self) -> Result<Spec, String> {
        let spec = match self.model {
            Model::Catalogue(name) => Spec::find(name),
            Model::Text(text) => Spec::parse(self.name, text),
        };
        spec.map_err(|error| error.to_string())
    }
}

impl Role {
    /// What a prediction of such a device is worth: one on the line could hardly come out otherwise.
    pub fn evidence(self) -> Evidence {
        match self {
            Role::Fitted => Evidence::Measured,
            Role::OnTheLine => Evidence::Calibrated,
            Role::HeldOut => Evidence::HeldOut,
        }
    }

    /// What its devices are called together.
    pub fn name(self) -> &'static str {
        match self {
            Role::Fitted => "fitted",
            Role::OnTheLine => "on the line",
            Role::HeldOut => "held out",
        }
    }
}

/// `spec` as many times slower: latencies longer, bytes a second fewer.
pub fn slowed(spec: &Spec, times: f64) -> Spec {
    let mut slow = spec.clone();
    if let Kind::Constant(constant) = &mut slow.kind {
        let hits = constant
            .read_cache
            .iter_mut()
            .flat_map(|cache| &mut cache.hit_us);
        let points = constant.read_us.iter_mut().chain(&mut constant.write_us);
        for (_, latency) in points.chain(hits) {
            *latency *= times;
        }
        constant.read_mb_s /= times;
        constant.write_mb_s /= times;
        if let Some(cache) = &mut constant.write_cache {
            cache.refill_mb_s /= times;
        }
    }
    slow
}

/// What the model takes for one access of this size, in us; none where that depends on what was asked before.
pub fn modelled(spec: &Spec, way: &str, size: base::Bytes) -> Option<f64> {
    let Kind::Constant(constant) = &spec.kind else {
        return None;
    };
    let (points, always) = match way {
        "read" => (&constant.read_us, constant.read_cache.is_none()),
        _ => (&constant.write_us, constant.write_cache.is_none()),
    };
    let at = points.iter().find(|(bytes, _)| *bytes == size.0 as f64);
    at.filter(|_| always).map(|(_, latency)| *latency)
}

#[cfg(test)]
mod tests {
    use base::Bytes;

    use super::*;

    fn of(name: &str) -> Spec {
        let case = CASES.iter().find(|case| case.name == name).unwrap();
        case.spec().unwrap()
    }

    #[test]
    fn a_slowed_device_takes_as_many_times_as_long() {
        let (spec, slow) = (of("SCM1"), slowed(&of("SCM1"), 8.0));
        let latencies = |spec: &Spec| match &spec.kind {
            Kind::Constant(constant) => (
                constant.read_us.clone(),
                constant.write_us.clone(),
                constant.read_mb_s,
            ),
            _ => panic!("constant"),
        };
        let (before, after) = (latencies(&spec), latencies(&slow));
        for (a, b) in before.1.iter().zip(&after.1) {
            assert!(a.0 == b.0 && (b.1 / a.1 - 8.0).abs() < 1e-9);
        }
        // The paper's assumption: 50 us for a 64 KiB write.
        assert_eq!(after.1[3], (65_536.0, 400.0));
        assert_eq!(after.2, before.2 / 8.0);
    }

    #[test]
    fn caches_are_slowed_with_their_device_and_stay_as_large() {
        let Kind::Constant(writes) = slowed(&of("write cache"), 4.0).kind else {
            panic!("constant");
        };
        let cache = writes.write_cache.unwrap();
        assert_eq!((cache.size, cache.refill_mb_s), (Bytes::mib(16), 5.0));
        assert_eq!(cache.beyond_times, 8.0);
        let Kind::Constant(reads) = slowed(&of("read cache"), 4.0).kind else {
            panic!("constant");
        };
        let cache = reads.read_cache.unwrap();
        assert_eq!(
            (cache.size, cache.hit_us[1]),
            (Bytes::mib(32), (4096.0, 73.148))
        );
    }

    #[test]
    fn every_held_out_device_is_off_the_line_by_what_its_name_says() {
        let held_out: Vec<&Case> = CASES.iter().filter(|c| c.role == Role::HeldOut).collect();
        assert_eq!(held_out.len(), 4);
        for case in held_out {
            let spec = case.spec().unwrap();
            assert!(spec.figures.iter().all(|figure| !figure.source.is_empty()));
            let Kind::Constant(constant) = &spec.kind else {
                panic!("constant");
            };
            let off = match case.name {
                "write cache" => constant.write_cache.is_some(),
                "read cache" => constant.read_cache.is_some(),
                "depth" => constant.each_in_flight_percent == 50.0,
                "large writes" => constant.write_us[4].1 == 1619.4,
                _ => false,
            };
            assert!(off, "{case:?}");
        }
        // fio sees of "large writes" what it sees of 3D XPoint.
        for kib in [4, 16, 64] {
            let figure = |name| modelled(&of(name), "write", Bytes::kib(kib));
            assert_eq!(figure("large writes"), figure("3D XPoint"));
        }
        assert_eq!(modelled(&of("write cache"), "write", Bytes::kib(4)), None);
        assert_eq!(
            modelled(&of("write cache"), "read", Bytes::kib(4)),
            Some(151.73)
        );
    }
}
