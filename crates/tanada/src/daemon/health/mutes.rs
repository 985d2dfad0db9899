//! Codes that do not count for a while, and what ends that early.
//!
//! ```text
//! PUT /v1/health/mutes/{code} -> Mutes -> DATA_DIR/health-mutes.json
//! checks -> judge: muted or not -> verdict
//! ```
//!
//! Always true: a mute ends when its code is about more than it was then, or has become an error.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::api::health::{Health, HealthCheck, HealthStatus, Mute, Severity};
use crate::daemon::common::whole_file;

/// What is muted, and the file that says so.
pub struct Mutes {
    path: PathBuf,
    all: Vec<Mute>,
}

impl Mutes {
    /// Those in `data_dir`; a file that cannot be read mutes nothing.
    pub fn open(data_dir: &Path) -> Mutes {
        let path = data_dir.join("health-mutes.json");
        let all = fs::read(&path).ok();
        let all = all.and_then(|text| serde_json::from_slice(&text).ok());
        Mutes {
            path,
            all: all.unwrap_or_default(),
        }
    }

    /// Mutes a code, as its checks are now.
    pub fn mute(&mut self, mute: Mute) -> io::Result<()> {
        let mut next = self.all.clone();
        next.retain(|it| it.code != mute.code);
        next.push(mute);
        self.write(next)
    }

    /// Was it muted?
    pub fn unmute(&mut self, code: &str) -> io::Result<bool> {
        let mut next = self.all.clone();
        next.retain(|it| it.code != code);
        let was = next.len() < self.all.len();
        self.write(next)?;
        Ok(was)
    }

    fn write(&mut self, next: Vec<Mute>) -> io::Result<()> {
        if next != self.all {
            let text = serde_json::to_vec_pretty(&next)?;
            whole_file::replace(&self.path, &text)?;
            self.all = next;
        }
        Ok(())
    }

    /// Ends mutes that are over, or whose code became worse, and judges what is left.
    pub fn judge(&mut self, checks: Vec<HealthCheck>, now_unix_seconds: u64) -> Health {
        let mut left = self.all.clone();
        left.retain(|mute| mute.until_unix_seconds > now_unix_seconds && !is_worse(mute, &checks));
        if let Err(error) = self.write(left.clone()) {
            // It holds for this run at least.
            tracing::warn!(%error, "cannot write {}", self.path.display());
            self.all = left;
        }
        verdict(checks, &self.all)
    }
}

/// Is its code about more than it was, or an error by now?
fn is_worse(mute: &Mute, checks: &[HealthCheck]) -> bool {
    let mut of_code = checks.iter().filter(|check| check.code == mute.code);
    of_code.any(|check| {
        let about = check.about.clone().unwrap_or_default();
        check.severity > mute.severity || !mute.about.contains(&about)
    })
}

/// The verdict on checks where these codes do not count.
fn verdict(mut checks: Vec<HealthCheck>, mutes: &[Mute]) -> Health {
    for check in &mut checks {
        check.muted = mutes.iter().any(|mute| mute.code == check.code);
    }
    let counted = checks.iter().filter(|check| !check.muted);
    let status = counted.map(|check| check.severity.status()).max();
    Health {
        status: status.unwrap_or(HealthStatus::Ok),
        checks,
        mutes: mutes.to_vec(),
    }
}

/// A mute of a code as its checks are now.
pub fn mute_of(code: &str, checks: &[HealthCheck], until_unix_seconds: u64, who: String) -> Mute {
    let of_code = || checks.iter().filter(|check| check.code == code);
    let about = of_code().map(|check| check.about.clone().unwrap_or_default());
    let severity = of_code().map(|check| check.severity).max();
    Mute {
        code: code.to_owned(),
        until_unix_seconds,
        who,
        about: about.collect(),
        severity: severity.unwrap_or(Severity::Warning),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(code: &str, about: &str, severity: Severity) -> HealthCheck {
        HealthCheck {
            code: code.to_owned(),
            severity,
            about: Some(about.to_owned()),
            message: String::new(),
            what_to_do: String::new(),
            muted: false,
        }
    }

    #[test]
    fn a_mute_lasts_over_a_restart_and_ends_with_its_time_or_when_it_gets_worse() {
        let dir = tempfile::tempdir().expect("a folder");
        let old = check("DIRTY_OLD", "vol0", Severity::Warning);
        let mut mutes = Mutes::open(dir.path());
        assert_eq!(
            mutes.judge(vec![old.clone()], 10).status,
            HealthStatus::Warn
        );
        let mute = mute_of(
            "DIRTY_OLD",
            std::slice::from_ref(&old),
            100,
            "root".to_owned(),
        );
        mutes.mute(mute.clone()).expect("it is written");

        let mut mutes = Mutes::open(dir.path());
        let health = mutes.judge(vec![old.clone()], 10);
        assert_eq!(
            (health.status, health.checks[0].muted),
            (HealthStatus::Ok, true)
        );
        assert_eq!(health.mutes, std::slice::from_ref(&mute));
        // Another code counts.
        let other = check("CHECKSUM", "vol0", Severity::Error);
        let health = mutes.judge(vec![other, old.clone()], 20);
        assert_eq!(health.status, HealthStatus::Err);
        // Over, or about another volume too, or an error by now.
        assert_eq!(
            mutes.judge(vec![old.clone()], 100).status,
            HealthStatus::Warn
        );
        for worse in [
            check("DIRTY_OLD", "vol1", Severity::Warning),
            check("DIRTY_OLD", "vol0", Severity::Error),
        ] {
            mutes.mute(mute.clone()).expect("it is written");
            let health = mutes.judge(vec![old.clone(), worse], 10);
            assert!(health.status != HealthStatus::Ok && health.mutes.is_empty());
            assert!(Mutes::open(dir.path()).all.is_empty(), "for good");
        }
        mutes.mute(mute).expect("it is written");
        assert!(mutes.unmute("DIRTY_OLD").expect("it is written"));
        assert!(!mutes.unmute("DIRTY_OLD").expect("it is written"));
    }
}
