//! Which units may a measurement have, and what is each in the one we reckon in?
//!
//! ```text
//! "4.2 ms" -> Quantity{4.2, Ms} -> kind: latency -> 4200 us
//! ```
//!
//! Always true:
//! 1. Latencies are reckoned in microseconds, throughput in MB/s (millions of bytes), rates in operations a second.
//! 2. A quantity keeps the number and unit it was given; only [`Quantity::reckoned`] converts.

use std::fmt;
use std::str::FromStr;

/// What a quantity measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A time for each operation, in us.
    Latency,
    /// Bytes a second, in MB/s.
    Throughput,
    /// Operations a second.
    Rate,
}

impl Kind {
    /// The unit it is reckoned in.
    pub fn unit(self) -> Unit {
        match self {
            Kind::Latency => Unit::Us,
            Kind::Throughput => Unit::MbPerS,
            Kind::Rate => Unit::PerS,
        }
    }

    /// What a name promises: `read-4K-latency` a time, `read-4K-iops` a rate. Names that say nothing
    /// promise nothing; `throughput` alone may be bytes or operations.
    ///
    /// # Example
    /// ```
    /// use predict::units::Kind;
    /// assert!(Kind::allows("read-4K-latency", Kind::Latency));
    /// assert!(!Kind::allows("read-4K-latency", Kind::Throughput));
    /// assert!(Kind::allows("endurance", Kind::Rate));
    /// ```
    pub fn allows(name: &str, kind: Kind) -> bool {
        let name = name.to_ascii_lowercase();
        let says = |words: &[&str]| words.iter().any(|word| name.contains(word));
        if says(&["latency"]) {
            kind == Kind::Latency
        } else if says(&["iops"]) {
            kind == Kind::Rate
        } else if says(&["throughput", "bandwidth"]) {
            kind != Kind::Latency
        } else {
            true
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Latency => "a time (ns, us, ms, s)",
            Kind::Throughput => "bytes a second (kB/s, KiB/s, MB/s, MiB/s, GB/s, GiB/s)",
            Kind::Rate => "operations a second (IOPS, ops/s, tps)",
        })
    }
}

/// A unit of measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unit {
    /// Nanoseconds.
    Ns,
    /// Microseconds.
    Us,
    /// Milliseconds.
    Ms,
    /// Seconds.
    S,
    /// Bytes a second.
    BPerS,
    /// 1000 bytes a second.
    KbPerS,
    /// 1024 bytes a second.
    KibPerS,
    /// A million bytes a second.
    MbPerS,
    /// 2^20 bytes a second.
    MibPerS,
    /// 10^9 bytes a second.
    GbPerS,
    /// 2^30 bytes a second.
    GibPerS,
    /// Operations a second.
    PerS,
}

/// Every unit: its name as we write it, the other names it is known by, its kind, and how many of
/// the reckoning unit one of it is.
const UNITS: [(Unit, &str, &[&str], Kind, f64); 12] = [
    (
        Unit::Ns,
        "ns",
        &["nsec", "nanoseconds"],
        Kind::Latency,
        1e-3,
    ),
    (
        Unit::Us,
        "us",
        &["usec", "\u{b5}s", "\u{3bc}s", "microseconds"],
        Kind::Latency,
        1.0,
    ),
    (
        Unit::Ms,
        "ms",
        &["msec", "milliseconds"],
        Kind::Latency,
        1e3,
    ),
    (Unit::S, "s", &["sec", "seconds"], Kind::Latency, 1e6),
    (Unit::BPerS, "B/s", &["bytes/s"], Kind::Throughput, 1e-6),
    (Unit::KbPerS, "kB/s", &["KB/s"], Kind::Throughput, 1e-3),
    (Unit::KibPerS, "KiB/s", &[], Kind::Throughput, 1024e-6),
    (Unit::MbPerS, "MB/s", &["MBps"], Kind::Throughput, 1.0),
    (
        Unit::MibPerS,
        "MiB/s",
        &["MiBps"],
        Kind::Throughput,
        1.048_576,
    ),
    (Unit::GbPerS, "GB/s", &["GBps"], Kind::Throughput, 1e3),
    (
        Unit::GibPerS,
        "GiB/s",
        &["GiBps"],
        Kind::Throughput,
        1_073.741_824,
    ),
    (
        Unit::PerS,
        "ops/s",
        &["IOPS", "iops", "1/s", "tps", "ops/sec"],
        Kind::Rate,
        1.0,
    ),
];

impl Unit {
    fn entry(self) -> &'static (Unit, &'static str, &'static [&'static str], Kind, f64) {
        UNITS
            .iter()
            .find(|entry| entry.0 == self)
            .expect("every unit is listed")
    }

    /// What it measures.
    pub fn kind(self) -> Kind {
        self.entry().3
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.entry().1)
    }
}

/// Why a text is no quantity.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum UnitError {
    /// The unit is unknown.
    #[error(
        "'{asked}' is no unit known here; a measurement is {}, {} or {}",
        Kind::Latency,
        Kind::Throughput,
        Kind::Rate
    )]
    Unknown {
        /// The text.
        asked: String,
    },
    /// The number is none.
    #[error("'{asked}' is no number; write one such as 19.5")]
    Number {
        /// The text.
        asked: String,
    },
    /// The number cannot be a measurement.
    #[error("{value} {unit} cannot be measured: a measurement is finite and above zero")]
    Value {
        /// The number.
        value: f64,
        /// Its unit.
        unit: Unit,
    },
    /// The unit does not fit what is measured.
    #[error("'{name}' cannot be in {unit}, which is {}", unit.kind())]
    Misfit {
        /// What is measured.
        name: String,
        /// The unit.
        unit: Unit,
    },
}

impl FromStr for Unit {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Unit, UnitError> {
        let text = text.trim();
        UNITS
            .iter()
            .find(|(_, name, others, _, _)| *name == text || others.contains(&text))
            .map(|entry| entry.0)
            .ok_or_else(|| UnitError::Unknown {
                asked: text.to_owned(),
            })
    }
}

/// A number with its unit, as it was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quantity {
    /// The number.
    pub value: f64,
    /// Its unit.
    pub unit: Unit,
}

impl Quantity {
    /// A measurement of `name`, checked.
    ///
    /// # Errors
    /// [`UnitError::Value`] unless `value` is finite and above zero; [`UnitError::Misfit`] if `name`
    /// promises another kind ([`Kind::allows`]).
    pub fn of(name: &str, value: f64, unit: Unit) -> Result<Quantity, UnitError> {
        if !(value.is_finite() && value > 0.0) {
            return Err(UnitError::Value { value, unit });
        }
        if !Kind::allows(name, unit.kind()) {
            return Err(UnitError::Misfit {
                name: name.to_owned(),
                unit,
            });
        }
        Ok(Quantity { value, unit })
    }

    /// The number in the unit its kind is reckoned in.
    ///
    /// # Example
    /// ```
    /// use predict::units::Quantity;
    /// assert_eq!("4.2 ms".parse::<Quantity>()?.reckoned(), 4200.0);
    /// assert_eq!("125MiB/s".parse::<Quantity>()?.reckoned(), 131.072);
    /// # Ok::<(), predict::units::UnitError>(())
    /// ```
    pub fn reckoned(self) -> f64 {
        let times = self.unit.entry().4;
        // Halves and thousandths come out as they were written: 19.527 us stays 19.527.
        let of_them = 1.0 / times;
        match times < 1.0 && of_them.fract() == 0.0 {
            true => self.value / of_them,
            false => self.value * times,
        }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.value, self.unit)
    }
}

impl FromStr for Quantity {
    type Err = UnitError;

    /// A number and a unit, with or without a space between them.
    fn from_str(text: &str) -> Result<Quantity, UnitError> {
        let text = text.trim();
        let digits = |c: char| c.is_ascii_digit() || matches!(c, '.' | '+' | '-');
        let end = text.find(|c: char| !digits(c)).unwrap_or(text.len());
        // `1e3 us`: an exponent belongs to the number.
        let rest = &text[end..];
        let end = match rest.strip_prefix(['e', 'E']) {
            Some(more) if more.starts_with(digits) => {
                end + 1 + more.find(|c: char| !digits(c)).unwrap_or(more.len())
            }
            _ => end,
        };
        let value: f64 = text[..end].parse().map_err(|_| UnitError::Number {
            asked: text.to_owned(),
        })?;
        let unit: Unit = text[end..].parse()?;
        Quantity::of("", value, unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_reads_back_under_each_of_its_names() {
        for (unit, name, others, _, _) in &UNITS {
            for name in [name].into_iter().chain(others.iter()) {
                assert_eq!(name.parse::<Unit>().as_ref(), Ok(unit), "{name}");
            }
            assert_eq!(unit.to_string(), *name);
        }
    }

    #[test]
    fn quantities_are_converted_to_the_reckoning_unit() {
        let reckoned = |text: &str| text.parse::<Quantity>().unwrap().reckoned();
        assert_eq!(reckoned("19527 ns"), 19.527);
        assert_eq!(reckoned("1.5ms"), 1500.0);
        assert_eq!(reckoned("2 s"), 2e6);
        assert_eq!(reckoned("1 MiB/s"), 1.048576);
        assert_eq!(reckoned("2 GB/s"), 2000.0);
        assert_eq!(reckoned("1e3 KiB/s"), 1.024);
        assert_eq!(reckoned("14038 IOPS"), 14038.0);
    }

    #[test]
    fn what_is_no_quantity_is_answered_with_what_is() {
        let refused = |text: &str| text.parse::<Quantity>().unwrap_err().to_string();
        assert_eq!(
            refused("20 miles"),
            "'miles' is no unit known here; a measurement is a time (ns, us, ms, s), bytes a second \
             (kB/s, KiB/s, MB/s, MiB/s, GB/s, GiB/s) or operations a second (IOPS, ops/s, tps)"
        );
        assert_eq!(refused("us"), "'us' is no number; write one such as 19.5");
        assert_eq!(
            refused("0 us"),
            "0 us cannot be measured: a measurement is finite and above zero"
        );
        assert_eq!(
            Quantity::of("read-4K-latency", 7.0, Unit::MbPerS)
                .unwrap_err()
                .to_string(),
            "'read-4K-latency' cannot be in MB/s, which is bytes a second (kB/s, KiB/s, MB/s, MiB/s, GB/s, GiB/s)"
        );
    }
}
