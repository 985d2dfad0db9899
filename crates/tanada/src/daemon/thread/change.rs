//! What the settings of a hybrid are after a change; pure.

use crate::api::volume::Change;
use base::{Bytes, Nanos};
use config::{AGE_LIMIT, read_span, tier::range_text};
use hybrid::Settings;
use std::fmt::Display;

/// Refuses ranges beyond the end of a volume of `size`.
pub(super) fn within(tier: &hybrid::Tier, size: Bytes) -> Result<(), (&'static str, String)> {
    for (key, ranges) in [("tier.pinned", &tier.pinned), ("tier.barred", &tier.barred)] {
        if let Some(range) = ranges.iter().find(|range| range.end().byte() > size.0) {
            let what = format!("{} reaches beyond its end at {size}", range_text(*range));
            return Err((key, what));
        }
    }
    Ok(())
}

/// The settings after a change; else which key is wrong, and how.
pub(super) fn changed(
    old: &Settings,
    change: &Change,
    standby_after: Nanos,
) -> Result<Settings, (&'static str, String)> {
    fn parse<T: std::str::FromStr<Err: Display>>(
        key: &'static str,
        text: &Option<String>,
        old: T,
    ) -> Result<T, (&'static str, String)> {
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
    ) -> Result<Option<Bytes>, (&'static str, String)> {
        match text.as_deref() {
            None => Ok(old),
            Some(text) if text == none => Ok(None),
            Some(text) => text
                .parse()
                .map(Some)
                .map_err(|error| (key, format!("{error}, or {none}"))),
        }
    }
    let energy = match (change.energy, old.energy) {
        (Some(false), _) | (None, None) => None,
        (Some(true), None) => Some(hybrid::Energy {
            age_limit: AGE_LIMIT,
            standby_after,
        }),
        (_, Some(energy)) => Some(energy),
    };
    let energy = match (&change.age_limit, energy) {
        (None, energy) => energy,
        (Some(text), Some(energy)) => Some(hybrid::Energy {
            age_limit: read_span(text).map_err(|what| ("age_limit", what))?,
            ..energy
        }),
        (Some(_), None) => {
            let what = "it has a meaning only in energy mode; set energy=true as well";
            return Err(("age_limit", what.to_owned()));
        }
    };
    let tier = match &change.tier {
        None => old.tier.clone(),
        Some(keys) => keys.apply(&old.tier).map_err(|wrong| {
            // Like all other keys: the first mistake is reported.
            let (key, what) = wrong.into_iter().next().expect("a refusal names a key");
            (key, what)
        })?,
    };
    let new = Settings {
        mode: parse("mode", &change.mode, old.mode)?,
        tier,
        write: parse("write", &change.write, old.write)?,
        policy: parse("policy", &change.policy, old.policy)?,
        admission: parse("admission", &change.admission, old.admission)?,
        block: parse("block", &change.block, old.block)?,
        dirty_low: change.dirty_low.unwrap_or(old.dirty_low),
        dirty_high: change.dirty_high.unwrap_or(old.dirty_high),
        energy,
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
