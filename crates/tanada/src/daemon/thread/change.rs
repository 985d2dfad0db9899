//! What the settings of a hybrid are after a change; pure.

use crate::api::volume::Change;
use base::{Bytes, Nanos};
use config::{AGE_LIMIT, read_span, tier::range_text};
use hybrid::{Energy, Settings};
use policy::share::cap::Caps;
use std::fmt::Display;

/// Which key is wrong, and how.
pub(super) type Wrong = (&'static str, String);

/// Refuses ranges beyond the end of a volume of `size`.
pub(super) fn within(tier: &hybrid::Tier, size: Bytes) -> Result<(), Wrong> {
    for (key, ranges) in [("tier.pinned", &tier.pinned), ("tier.barred", &tier.barred)] {
        if let Some(range) = ranges.iter().find(|range| range.end().byte() > size.0) {
            let what = format!("{} reaches beyond its end at {size}", range_text(*range));
            return Err((key, what));
        }
    }
    Ok(())
}

/// The caps after a change; else which key is wrong, and how.
pub(super) fn caps_after(old: Caps, change: &Change) -> Result<Caps, Wrong> {
    let texts = [
        change.max_read.as_deref(),
        change.max_write.as_deref(),
        change.max_read_iops.as_deref(),
        change.max_write_iops.as_deref(),
    ];
    config::caps::change(old, texts)
}

/// The settings after a change; else which key is wrong, and how.
pub(super) fn changed(
    old: &Settings,
    change: &Change,
    standby_after: Nanos,
) -> Result<Settings, Wrong> {
    let energy = energy(old.energy, change, standby_after)?;
    let tier = match &change.tier {
        None => old.tier.clone(),
        Some(keys) => keys.apply(&old.tier).map_err(|wrong| {
            // Like all other keys: the first mistake is reported.
            let (key, what) = wrong.into_iter().next().expect("a refusal names a key");
            (key, what)
        })?,
    };
    let new = Settings {
        energy,
        mode: parse("mode", &change.mode, old.mode)?,
        tier,
        write: parse("write", &change.write, old.write)?,
        policy: parse("policy", &change.policy, old.policy)?,
        admission: parse("admission", &change.admission, old.admission)?,
        block: parse("block", &change.block, old.block)?,
        dirty_low: change.dirty_low.unwrap_or(old.dirty_low),
        dirty_high: change.dirty_high.unwrap_or(old.dirty_high),
        sequential_bypass: size(
            "sequential_bypass",
            &change.sequential_bypass,
            "off",
            old.sequential_bypass,
        )?,
        flash_writes_per_day: size(
            "flash_writes_per_day",
            &change.flash_writes_per_day,
            "off",
            old.flash_writes_per_day,
        )?,
        fast_bytes: size("fast_size", &change.fast_size, "all", old.fast_bytes)?,
        ..old.clone()
    };
    new.check()
        .map_err(|error| ("the settings", error.to_string()))?;
    Ok(new)
}

fn parse<T: std::str::FromStr<Err: Display>>(
    key: &'static str,
    text: &Option<String>,
    old: T,
) -> Result<T, Wrong> {
    match text {
        None => Ok(old),
        Some(text) => text
            .parse()
            .map_err(|error: T::Err| (key, error.to_string())),
    }
}

/// A size, or `none` for no size.
fn size(
    key: &'static str,
    text: &Option<String>,
    none: &str,
    old: Option<Bytes>,
) -> Result<Option<Bytes>, Wrong> {
    match text.as_deref() {
        None => Ok(old),
        Some(text) if text == none => Ok(None),
        Some(text) => text
            .parse()
            .map(Some)
            .map_err(|error| (key, format!("{error}, or {none}"))),
    }
}

/// What energy mode is after a change.
fn energy(
    old: Option<Energy>,
    change: &Change,
    standby_after: Nanos,
) -> Result<Option<Energy>, Wrong> {
    let energy = match (change.energy, old) {
        (Some(false), _) | (None, None) => None,
        (Some(true), None) => Some(Energy {
            age_limit: AGE_LIMIT,
            standby_after,
        }),
        (_, Some(energy)) => Some(energy),
    };
    match (&change.age_limit, energy) {
        (None, energy) => Ok(energy),
        (Some(text), Some(energy)) => Ok(Some(Energy {
            age_limit: read_span(text).map_err(|what| ("age_limit", what))?,
            ..energy
        })),
        (Some(_), None) => {
            let what = "it has a meaning only in energy mode; set energy=true as well";
            Err(("age_limit", what.to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(json: &str) -> Result<Settings, (&'static str, String)> {
        let change = serde_json::from_str(json).unwrap();
        changed(&Settings::default(), &change, Nanos::secs(60))
    }

    #[test]
    fn what_is_not_named_stays() {
        assert_eq!(change("{}").unwrap(), Settings::default());
        let new = change(r#"{"write": "through", "dirty_high": 40, "sequential_bypass": "off"}"#);
        let expected = Settings {
            write: hybrid::WriteMode::Through,
            dirty_high: 40,
            sequential_bypass: None,
            ..Settings::default()
        };
        assert_eq!(new.unwrap(), expected);
    }

    #[test]
    fn a_tier_is_changed_key_by_key() {
        let new = change(r#"{"mode": "both", "tier": {"period": "10s", "pinned": ["1GiB+1MiB"]}}"#);
        let new = new.unwrap();
        assert_eq!(new.mode, hybrid::Mode::Both);
        assert_eq!(new.tier.parameters.period, Nanos::secs(10));
        let usual = Settings::default().tier.parameters;
        assert_eq!(new.tier.parameters.streak_min, usual.streak_min);
        let (key, what) = within(&new.tier, Bytes::gib(1)).unwrap_err();
        assert_eq!(
            (key, what.as_str()),
            ("tier.pinned", "1GiB+1MiB reaches beyond its end at 1.0 GiB")
        );
        assert_eq!(within(&new.tier, Bytes::gib(2)), Ok(()));
    }

    #[test]
    fn energy_comes_with_its_age_limit() {
        let new = change(r#"{"energy": true, "age_limit": "5m"}"#).unwrap();
        assert_eq!(new.energy.unwrap().age_limit, Nanos::secs(300));
        let (key, what) = change(r#"{"age_limit": "5m"}"#).unwrap_err();
        assert_eq!(key, "age_limit");
        assert!(what.contains("energy=true"), "{what}");
    }

    #[test]
    fn a_cap_is_set_and_taken_off_by_itself() {
        let after = |old, json: &str| caps_after(old, &serde_json::from_str(json).unwrap());
        let both = after(
            Caps::default(),
            r#"{"max_read": "100MB/s", "max_write_iops": "500"}"#,
        )
        .unwrap();
        assert_eq!(both.read.bytes.unwrap().to_string(), "100 MB/s");
        assert_eq!(both.write.requests, Some(500));
        let one = after(both, r#"{"max_read": "off"}"#).unwrap();
        assert_eq!((one.read.bytes, one.write.requests), (None, Some(500)));
        for (json, key, said) in [
            (r#"{"max_read": "fast"}"#, "max_read", "or \"off\""),
            (
                r#"{"max_write": "1B/s"}"#,
                "max_write",
                "less than one block",
            ),
            (
                r#"{"max_read_iops": "0"}"#,
                "max_read_iops",
                "stops everything",
            ),
            (
                r#"{"max_write_iops": "-1"}"#,
                "max_write_iops",
                "no number of requests",
            ),
        ] {
            let (wrong, what) = after(both, json).unwrap_err();
            assert_eq!(wrong, key);
            assert!(what.contains(said), "{what}");
        }
    }

    #[test]
    fn a_senseless_change_names_its_key() {
        assert_eq!(change(r#"{"write": "fast"}"#).unwrap_err().0, "write");
        let (key, what) = change(r#"{"fast_size": "much"}"#).unwrap_err();
        assert_eq!(key, "fast_size");
        assert!(what.ends_with("or all"), "{what}");
        let (key, what) = change(r#"{"tier": {"timeout": 0}}"#).unwrap_err();
        assert_eq!(key, "timeout");
        assert!(what.contains("go down at once"), "{what}");
        let (_, what) = change(r#"{"dirty_low": 80}"#).unwrap_err();
        assert!(what.starts_with("dirty_low = 80 %"), "{what}");
    }
}
