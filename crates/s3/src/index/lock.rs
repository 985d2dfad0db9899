//! Locks of versions: until when, and by whom, a version may be removed or its lock be changed.
//!
//! ```text
//! a version:  retention (mode, until)  and  legal hold (on, off)
//! now < until, Compliance   removed by no account; only lengthened
//! now < until, Governance   removed and shortened with a bypass
//! legal hold on             removed by no account, until it is off
//! ```
//!
//! Pure. It is asked within the change that removes a version, so what it says is so when the version is removed.
//!
//! Source: Amazon S3's Object Lock.
//!
//! Always true:
//! 1. While a retention in Compliance lasts nothing shortens it, and nothing removes its version.
//! 2. A delete marker has no lock.

use serde::{Deserialize, Serialize};

use super::error::Refused;

/// How strictly a version is retained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockMode {
    /// An account that may bypass it can remove the version.
    Governance,
    /// No account can.
    Compliance,
}

/// For how long a version is retained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retention {
    /// How strictly.
    pub mode: LockMode,
    /// Milliseconds since 1970.
    pub until: u64,
}

/// What protects a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Lock {
    /// `None`: it was not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<Retention>,
    /// On or off; `None`: it was not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub legal_hold: Option<bool>,
}

/// What a bucket with object lock gives its new versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LockRule {
    /// `None`: nothing, unless the request says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<DefaultRetention>,
}

/// The retention of versions whose request says none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DefaultRetention {
    /// How strictly.
    pub mode: LockMode,
    /// From when a version is put.
    pub days: u32,
    /// The days were said as years of 365.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_years: bool,
}

/// Who changes something, and when.
#[derive(Debug, Clone, Copy)]
pub struct Change {
    /// Milliseconds since 1970.
    pub now: u64,
    /// The request bypasses Governance, and its account may.
    pub bypass: bool,
}

/// A day in milliseconds.
const DAY: u64 = 24 * 3600 * 1000;

impl Lock {
    /// Is nothing set?
    pub fn is_empty(&self) -> bool {
        *self == Lock::default()
    }

    /// The lock of a version that is put at `now` into a bucket with `rule`.
    ///
    /// # Errors
    /// [`Refused::NoLock`] if the request says one and the bucket has no object lock.
    pub fn of_new(self, rule: Option<&LockRule>, now: u64) -> Result<Lock, Refused> {
        let Some(rule) = rule else {
            return match self.is_empty() {
                true => Ok(self),
                false => Err(Refused::NoLock),
            };
        };
        let by_rule = rule.retention.map(|it| Retention {
            mode: it.mode,
            until: now.saturating_add(u64::from(it.days) * DAY),
        });
        Ok(Lock {
            retention: self.retention.or(by_rule),
            ..self
        })
    }

    /// May the version be removed?
    ///
    /// # Errors
    /// [`Refused::Locked`].
    pub fn check_removal(&self, change: Change) -> Result<(), Refused> {
        if self.legal_hold == Some(true) {
            return Err(Refused::Locked("a legal hold is on it".to_owned()));
        }
        match self.retention.filter(|it| change.now < it.until) {
            Some(Retention {
                mode: LockMode::Governance,
                ..
            }) if change.bypass => Ok(()),
            Some(retention) => Err(lasts(retention)),
            None => Ok(()),
        }
    }

    /// Takes another retention; `None` ends it.
    ///
    /// # Errors
    /// [`Refused::Locked`] where that makes it weaker.
    pub fn retain(&mut self, wanted: Option<Retention>, change: Change) -> Result<(), Refused> {
        if let Some(now) = self.retention.filter(|it| change.now < it.until) {
            let is_longer = wanted.is_some_and(|it| it.mode == now.mode && it.until >= now.until);
            let may_bypass = now.mode == LockMode::Governance && change.bypass;
            if !is_longer && !may_bypass {
                return Err(lasts(now));
            }
        }
        self.retention = wanted;
        Ok(())
    }
}

fn lasts(retention: Retention) -> Refused {
    let mode = match retention.mode {
        LockMode::Governance => "GOVERNANCE",
        LockMode::Compliance => "COMPLIANCE",
    };
    let until = retention.until / 1000;
    Refused::Locked(format!(
        "it is retained in {mode} until second {until} since 1970"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(mode: LockMode, until: u64) -> Lock {
        Lock {
            retention: Some(Retention { mode, until }),
            legal_hold: None,
        }
    }

    #[test]
    fn a_version_goes_when_its_retention_is_over_or_governance_is_bypassed() {
        use LockMode::{Compliance, Governance};
        let held = |on| Lock {
            legal_hold: Some(on),
            ..lock(Governance, 10)
        };
        for (lock, now, bypass, goes) in [
            (Lock::default(), 5, false, true),
            (lock(Governance, 10), 9, false, false),
            (lock(Governance, 10), 9, true, true),
            (lock(Governance, 10), 10, false, true),
            (lock(Compliance, 10), 9, true, false),
            (lock(Compliance, 10), 10, false, true),
            (held(true), 99, true, false),
            (held(false), 99, false, true),
            (held(false), 9, false, false),
        ] {
            let done = lock.check_removal(Change { now, bypass });
            assert_eq!(done.is_ok(), goes, "{lock:?} at {now}, {bypass}");
        }
    }

    #[test]
    fn a_retention_is_lengthened_and_never_made_weaker() {
        use LockMode::{Compliance, Governance};
        let at = |mode, until| Some(Retention { mode, until });
        for (before, wanted, bypass, may) in [
            (at(Compliance, 10), at(Compliance, 11), false, true),
            (at(Compliance, 10), at(Compliance, 9), true, false),
            (at(Compliance, 10), at(Governance, 99), true, false),
            (at(Compliance, 10), None, true, false),
            (at(Compliance, 5), None, false, true),
            (at(Governance, 10), at(Governance, 11), false, true),
            (at(Governance, 10), at(Governance, 9), false, false),
            (at(Governance, 10), at(Governance, 9), true, true),
            (at(Governance, 10), at(Compliance, 10), false, false),
            (at(Governance, 10), at(Compliance, 10), true, true),
            (at(Governance, 10), None, false, false),
            (None, at(Compliance, 10), false, true),
        ] {
            let mut lock = Lock {
                retention: before,
                legal_hold: None,
            };
            let done = lock.retain(wanted, Change { now: 5, bypass });
            assert_eq!(done.is_ok(), may, "{before:?} {wanted:?} {bypass}");
            assert_eq!(lock.retention, if may { wanted } else { before });
        }
    }

    #[test]
    fn a_new_version_takes_what_the_request_says_or_else_the_bucket() {
        let rule = LockRule {
            retention: Some(DefaultRetention {
                mode: LockMode::Compliance,
                days: 2,
                in_years: false,
            }),
        };
        let by_rule = lock(LockMode::Compliance, 7 + 2 * DAY);
        assert_eq!(Lock::default().of_new(Some(&rule), 7), Ok(by_rule));
        let said = lock(LockMode::Governance, 8);
        assert_eq!(said.of_new(Some(&rule), 7), Ok(said));
        assert_eq!(said.of_new(None, 7), Err(Refused::NoLock));
        assert_eq!(Lock::default().of_new(None, 7), Ok(Lock::default()));
    }
}
