//! Object lock: of buckets, and of versions. The rules are `index::lock`'s; here is how clients write them.
//!
//! Always true: a lock is judged within the change of the index that it is to stop.

use std::time::UNIX_EPOCH;

use s3s::dto::*;
use s3s::{S3Error, S3ErrorCode, S3Response, S3Result, s3_error};

use super::asked::Asked;
use super::core::{Answer, Gateway, Request};
use super::failure::failed;
use super::policies::Action;
use crate::index::lock::{self, Change, Lock, LockMode, LockRule, Retention};
use crate::index::record::Version;
use crate::index::{Found, Refused, Transaction};

/// The longest retention that a bucket gives by itself: 100 years.
const DAYS_MAX: i32 = 36_500;
/// Of a year.
const DAYS: u32 = 365;

/// Takes what an input that makes an object says of its lock.
macro_rules! lock_said {
    ($input:expr, $now:expr) => {
        $crate::gateway::locks::of_headers(
            $input.object_lock_mode.as_ref().map(|it| it.as_str()),
            $input.object_lock_retain_until_date.as_ref(),
            $input.object_lock_legal_hold_status.as_ref(),
            $now,
        )
    };
}

/// Gives an output what locks its object.
macro_rules! show_lock {
    ($output:expr, $lock:expr) => {{
        let retention = $lock.retention;
        let mode = retention.map(|it| $crate::gateway::locks::word(it.mode));
        $output.object_lock_mode = mode.map(ObjectLockMode::from_static);
        let until = retention.map(|it| $crate::gateway::headers::moment(it.until));
        $output.object_lock_retain_until_date = until;
        let hold = $lock.legal_hold.map($crate::gateway::locks::hold_word);
        $output.object_lock_legal_hold_status = hold;
    }};
}
pub(super) use {lock_said, show_lock};

pub(super) fn word(mode: LockMode) -> &'static str {
    match mode {
        LockMode::Governance => ObjectLockMode::GOVERNANCE,
        LockMode::Compliance => ObjectLockMode::COMPLIANCE,
    }
}

pub(super) fn hold_word(on: bool) -> ObjectLockLegalHoldStatus {
    ObjectLockLegalHoldStatus::from_static(match on {
        true => ObjectLockLegalHoldStatus::ON,
        false => ObjectLockLegalHoldStatus::OFF,
    })
}

fn mode_of(word: &str) -> Option<LockMode> {
    match word {
        ObjectLockMode::GOVERNANCE => Some(LockMode::Governance),
        ObjectLockMode::COMPLIANCE => Some(LockMode::Compliance),
        _ => None,
    }
}

fn hold_of(status: &ObjectLockLegalHoldStatus) -> Option<bool> {
    match status.as_str() {
        ObjectLockLegalHoldStatus::ON => Some(true),
        ObjectLockLegalHoldStatus::OFF => Some(false),
        _ => None,
    }
}

/// The moment in milliseconds since 1970; a part of one counts whole, so that nothing is retained too short.
fn until_of(date: &Timestamp, now: u64) -> S3Result<u64> {
    let date = std::time::SystemTime::from(time::OffsetDateTime::from(date.clone()));
    let since = date.duration_since(UNIX_EPOCH).unwrap_or_default();
    let until = u64::try_from(since.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
    match until > now {
        true => Ok(until),
        false => Err(s3_error!(
            InvalidArgument,
            "an object is retained until a moment that is to come"
        )),
    }
}

/// The lock that headers give to a new version.
pub(super) fn of_headers(
    mode: Option<&str>,
    until: Option<&Timestamp>,
    hold: Option<&ObjectLockLegalHoldStatus>,
    now: u64,
) -> S3Result<Lock> {
    let bad = |what: &str| S3Error::with_message(S3ErrorCode::InvalidArgument, what.to_owned());
    let retention = match (mode, until) {
        (None, None) => None,
        (Some(mode), Some(until)) => Some(Retention {
            mode: mode_of(mode)
                .ok_or_else(|| bad("x-amz-object-lock-mode is GOVERNANCE or COMPLIANCE"))?,
            until: until_of(until, now)?,
        }),
        _ => {
            return Err(bad(
                "send x-amz-object-lock-mode and x-amz-object-lock-retain-until-date, or neither",
            ));
        }
    };
    let legal_hold =
        hold.map(|it| hold_of(it).ok_or_else(|| bad("x-amz-object-lock-legal-hold is ON or OFF")));
    Ok(Lock {
        retention,
        legal_hold: legal_hold.transpose()?,
    })
}

fn malformed(what: &str) -> S3Error {
    S3Error::with_message(S3ErrorCode::MalformedXML, what.to_owned())
}

/// What XML says that a bucket gives its new versions.
fn rule_of(configuration: Option<ObjectLockConfiguration>) -> S3Result<LockRule> {
    let configuration = configuration.ok_or_else(|| malformed("a configuration is needed"))?;
    let enabled = configuration.object_lock_enabled;
    if enabled.is_none_or(|it| it.as_str() != ObjectLockEnabled::ENABLED) {
        return Err(malformed("ObjectLockEnabled is Enabled"));
    }
    let Some(rule) = configuration.rule else {
        return Ok(LockRule::default());
    };
    let default = rule.default_retention;
    let default = default.ok_or_else(|| malformed("a Rule has a DefaultRetention"))?;
    let mode = default.mode.as_ref().and_then(|it| mode_of(it.as_str()));
    let mode = mode.ok_or_else(|| malformed("Mode is GOVERNANCE or COMPLIANCE"))?;
    let (count, unit) = match (default.days, default.years) {
        (Some(days), None) => (days, 1),
        (None, Some(years)) => (years, DAYS),
        _ => return Err(malformed("a DefaultRetention has Days or Years")),
    };
    let days = u32::try_from(count).ok().filter(|it| *it > 0);
    let days = days.and_then(|it| it.checked_mul(unit));
    let days = days.filter(|it| *it <= DAYS_MAX as u32).ok_or_else(|| {
        let code = S3ErrorCode::Custom("InvalidRetentionPeriod".into());
        let mut error = S3Error::with_message(code, "a retention has 1 day to 100 years");
        error.set_status_code(hyper::StatusCode::BAD_REQUEST);
        error
    })?;
    Ok(LockRule {
        retention: Some(lock::DefaultRetention {
            mode,
            days,
            in_years: unit == DAYS,
        }),
    })
}

pub(super) async fn set_of_bucket(
    gateway: &Gateway,
    request: Request<PutObjectLockConfigurationInput>,
) -> Answer<PutObjectLockConfigurationOutput> {
    let name = &request.input.bucket;
    let id = gateway
        .admit(&Asked::of(
            &request,
            name,
            Action::PutBucketObjectLockConfiguration,
        )?)?
        .id;
    let rule = rule_of(request.input.object_lock_configuration)?;
    let name = request.input.bucket;
    let change = move |t: &mut Transaction<'_>| {
        t.try_bucket((&name, id), |bucket| {
            if bucket.versioning != crate::Versioning::Enabled {
                return Err(Refused::LockNeedsVersions);
            }
            bucket.lock = Some(rule);
            Ok(())
        })
    };
    gateway.index.change(change).await.map_err(failed)?;
    Ok(S3Response::new(PutObjectLockConfigurationOutput::default()))
}

pub(super) fn of_bucket(
    gateway: &Gateway,
    request: &Request<GetObjectLockConfigurationInput>,
) -> Answer<GetObjectLockConfigurationOutput> {
    let name = &request.input.bucket;
    let asked = Asked::of(request, name, Action::GetBucketObjectLockConfiguration)?;
    let rule = gateway.admit(&asked)?.lock.ok_or_else(|| {
        s3_error!(
            ObjectLockConfigurationNotFoundError,
            "the bucket has no object lock"
        )
    })?;
    let shown = rule.retention.map(|it| ObjectLockRule {
        default_retention: Some(DefaultRetention {
            mode: Some(ObjectLockRetentionMode::from_static(word(it.mode))),
            days: (!it.in_years).then_some(it.days as i32),
            years: it.in_years.then_some((it.days / DAYS) as i32),
        }),
    });
    Ok(S3Response::new(GetObjectLockConfigurationOutput {
        object_lock_configuration: Some(ObjectLockConfiguration {
            object_lock_enabled: Some(ObjectLockEnabled::from_static(ObjectLockEnabled::ENABLED)),
            rule: shown,
        }),
    }))
}

/// The lock of the version that is asked for.
fn lock_of(gateway: &Gateway, asked: &Asked, version: Option<&str>) -> S3Result<Lock> {
    let (bucket, found, _) = gateway.admit_to(asked, version)?;
    match bucket.lock {
        Some(_) => Ok(found.version.lock),
        None => Err(failed(Refused::NoLock.into())),
    }
}

fn not_set() -> S3Error {
    s3_error!(
        NoSuchObjectLockConfiguration,
        "this was not set for the object"
    )
}

pub(super) fn retention(
    gateway: &Gateway,
    request: &Request<GetObjectRetentionInput>,
) -> Answer<GetObjectRetentionOutput> {
    let input = &request.input;
    let version = input.version_id.as_deref();
    let asked = Asked::of(request, &input.bucket, Action::GetObjectRetention)?;
    let lock = lock_of(gateway, &asked.key(&input.key).version(version), version)?;
    let found = lock.retention.ok_or_else(not_set)?;
    Ok(S3Response::new(GetObjectRetentionOutput {
        retention: Some(ObjectLockRetention {
            mode: Some(ObjectLockRetentionMode::from_static(word(found.mode))),
            retain_until_date: Some(super::headers::moment(found.until)),
        }),
    }))
}

pub(super) fn legal_hold(
    gateway: &Gateway,
    request: &Request<GetObjectLegalHoldInput>,
) -> Answer<GetObjectLegalHoldOutput> {
    let input = &request.input;
    let version = input.version_id.as_deref();
    let asked = Asked::of(request, &input.bucket, Action::GetObjectLegalHold)?;
    let lock = lock_of(gateway, &asked.key(&input.key).version(version), version)?;
    let on = lock.legal_hold.ok_or_else(not_set)?;
    Ok(S3Response::new(GetObjectLegalHoldOutput {
        legal_hold: Some(ObjectLockLegalHold {
            status: Some(hold_word(on)),
        }),
    }))
}

/// Changes the lock of the version that the request was let in to.
async fn change(
    gateway: &Gateway,
    asked: &Asked,
    (bucket, found): (u64, &Found),
    change: impl FnOnce(&mut Version) -> Result<(), Refused> + Send + 'static,
) -> S3Result<()> {
    let (name, key) = (asked.bucket.clone(), asked.key.clone().unwrap_or_default());
    let number = found.number;
    let change = move |t: &mut Transaction<'_>| {
        if t.bucket(&name)?.lock.is_none() {
            return Err(Refused::NoLock.into());
        }
        t.change_version((&name, bucket), (&key, number), change)
    };
    gateway.index.change(change).await.map_err(failed)?;
    Ok(())
}

pub(super) async fn set_retention(
    gateway: &Gateway,
    request: Request<PutObjectRetentionInput>,
) -> Answer<PutObjectRetentionOutput> {
    let version = request.input.version_id.as_deref();
    let asked = Asked::of(&request, &request.input.bucket, Action::PutObjectRetention)?;
    let asked = asked.key(&request.input.key).version(version);
    let (bucket, found, _) = gateway.admit_to(&asked, version)?;
    let now = gateway.now();
    let written = request.input.retention;
    let written = written.ok_or_else(|| malformed("a Retention is needed"))?;
    let wanted = match (written.mode, written.retain_until_date) {
        (None, None) => None,
        (Some(mode), Some(date)) => Some(Retention {
            mode: mode_of(mode.as_str())
                .ok_or_else(|| malformed("Mode is GOVERNANCE or COMPLIANCE"))?,
            until: until_of(&date, now)?,
        }),
        _ => return Err(malformed("a Retention has Mode and RetainUntilDate")),
    };
    let bypass = gateway.judged(&asked.bucket, |judge, _| judge.bypasses(&asked))?;
    let by = Change { now, bypass };
    change(gateway, &asked, (bucket.id, &found), move |it| {
        it.lock.retain(wanted, by)
    })
    .await?;
    Ok(S3Response::new(PutObjectRetentionOutput::default()))
}

pub(super) async fn set_legal_hold(
    gateway: &Gateway,
    request: Request<PutObjectLegalHoldInput>,
) -> Answer<PutObjectLegalHoldOutput> {
    let version = request.input.version_id.as_deref();
    let asked = Asked::of(&request, &request.input.bucket, Action::PutObjectLegalHold)?;
    let asked = asked.key(&request.input.key).version(version);
    let (bucket, found, _) = gateway.admit_to(&asked, version)?;
    let status = request.input.legal_hold.and_then(|it| it.status);
    let on = status.as_ref().and_then(hold_of);
    let on = on.ok_or_else(|| malformed("the Status of a LegalHold is ON or OFF"))?;
    let set = move |version: &mut Version| {
        version.lock.legal_hold = Some(on);
        Ok(())
    };
    change(gateway, &asked, (bucket.id, &found), set).await?;
    Ok(S3Response::new(PutObjectLegalHoldOutput::default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn date(text: &str) -> Timestamp {
        Timestamp::parse(TimestampFormat::DateTime, text).unwrap()
    }

    #[test]
    fn a_retention_in_headers_is_whole_and_to_come() {
        let until = date("1970-01-01T00:00:02.0000001Z");
        let of = |mode, until, now| of_headers(mode, until, None, now).map(|it| it.retention);
        let expected = Retention {
            mode: LockMode::Governance,
            until: 2001,
        };
        assert_eq!(
            of(Some("GOVERNANCE"), Some(&until), 7).unwrap(),
            Some(expected)
        );
        assert_eq!(of(None, None, 7).unwrap(), None);
        for (mode, until, now) in [
            (Some("governance"), Some(&until), 7),
            (Some("GOVERNANCE"), None, 7),
            (None, Some(&until), 7),
            (Some("COMPLIANCE"), Some(&until), 2001),
        ] {
            assert!(of(mode, until, now).is_err(), "{mode:?} {now}");
        }
    }

    #[test]
    fn a_default_retention_is_in_days_or_years() {
        let rule = |mode: &'static str, days, years| {
            rule_of(Some(ObjectLockConfiguration {
                object_lock_enabled: Some(ObjectLockEnabled::from_static("Enabled")),
                rule: Some(ObjectLockRule {
                    default_retention: Some(DefaultRetention {
                        days,
                        mode: Some(ObjectLockRetentionMode::from_static(mode)),
                        years,
                    }),
                }),
            }))
        };
        let days = |rule: S3Result<LockRule>| rule.unwrap().retention.unwrap().days;
        assert_eq!(days(rule("COMPLIANCE", None, Some(2))), 730);
        assert_eq!(days(rule("GOVERNANCE", Some(36_500), None)), 36_500);
        for (mode, days, years, code) in [
            ("GOVERNANCE", Some(1), Some(1), "MalformedXML"),
            ("GOVERNANCE", None, None, "MalformedXML"),
            ("governance", Some(1), None, "MalformedXML"),
            ("GOVERNANCE", Some(0), None, "InvalidRetentionPeriod"),
            ("GOVERNANCE", None, Some(-1), "InvalidRetentionPeriod"),
            ("GOVERNANCE", None, Some(i32::MAX), "InvalidRetentionPeriod"),
        ] {
            let error = rule(mode, days, years).unwrap_err();
            assert_eq!(error.code().as_str(), code, "{mode} {days:?} {years:?}");
        }
    }
}
