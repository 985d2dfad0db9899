//! Which tiering rules are there, and what are they called?

use std::fmt;
use std::str::FromStr;

use super::{Hystor, OnTheFly, Parameters, StaticTiering, TierPolicy};

/// A tiering rule by name: `on-the-fly`, `static`, `hystor`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Kind {
    /// As published: groups of adjacent hot regions, minute by minute.
    #[default]
    OnTheFly,
    /// The busiest regions of the window before.
    Static,
    /// The busiest regions by counters over a quarter of an hour, in the manner of Hystor.
    Hystor,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 3] = [Kind::OnTheFly, Kind::Static, Kind::Hystor];

    /// The name in configuration, metrics and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::OnTheFly => "on-the-fly",
            Kind::Static => "static",
            Kind::Hystor => "hystor",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is no tiering rule's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no tiering rule; choose one of on-the-fly, static, hystor")]
pub struct UnknownKind(pub String);

impl FromStr for Kind {
    type Err = UnknownKind;
    fn from_str(name: &str) -> Result<Kind, UnknownKind> {
        let known = Kind::ALL.into_iter().find(|kind| kind.name() == name);
        known.ok_or_else(|| UnknownKind(name.to_owned()))
    }
}

/// The rule `kind` for a fast tier that holds `room` regions, with nothing up.
///
/// # Panics
/// If `parameters` do not [check](Parameters::check).
///
/// # Example
/// ```
/// use policy::tier::{Kind, Parameters, build};
/// let policy = build(Kind::OnTheFly, Parameters::default(), 24);
/// assert_eq!(policy.residents(), []);
/// ```
pub fn build(kind: Kind, parameters: Parameters, room: u32) -> Box<dyn TierPolicy> {
    match kind {
        Kind::OnTheFly => Box::new(OnTheFly::new(parameters, room)),
        Kind::Static => Box::new(StaticTiering::new(parameters, room)),
        Kind::Hystor => Box::new(Hystor::new(parameters, room)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_is_found_by_its_name() {
        for kind in Kind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        assert_eq!(
            "otf".parse::<Kind>().unwrap_err().to_string(),
            "'otf' is no tiering rule; choose one of on-the-fly, static, hystor"
        );
    }
}
