//! Where the settings of a hybrid come from; pure.
//!
//! ```text
//! configuration (with what is built in) -> kept in DATA_DIR/settings.toml -> until the restart -> in force
//! ```

use base::{Bytes, Nanos};
use config::HybridConfig;
use config::tier::{size_text, time_text};
use hybrid::Settings;
use policy::share::cap::Caps;
use serde_json::Value;

use super::change::{Wrong, caps_after, changed};
use crate::api::settings::Override;
use crate::api::volume::{self, Change};
use crate::daemon::common::saved_settings::{Keys, change_of, keys_of};

/// What is to be in force.
#[derive(Debug, Clone, PartialEq)]
pub struct Whole {
    pub settings: Settings,
    pub caps: Caps,
    pub advise: bool,
}

/// The settings of one hybrid, by where they come from.
#[derive(Debug, Clone)]
pub struct Layers {
    configured: Whole,
    /// The configuration names a mode.
    names_mode: bool,
    /// Rates are promised to its exports.
    has_queue: bool,
    standby_after: Nanos,
    kept: Keys,
    /// Until the restart.
    passing: Keys,
}

impl Layers {
    /// Of a hybrid that is to be opened: what is `kept` stands before what `config` says.
    ///
    /// # Errors
    /// Together they make no sense, and where to correct that.
    pub fn before(config: &mut HybridConfig, kept: Keys) -> anyhow::Result<Layers> {
        let layers = Layers::new(config, kept);
        let whole = layers.next_start().map_err(|(key, what)| {
            anyhow::anyhow!(
                "volume {}: {key}: {what}; it comes from settings.toml in the data directory, where `tanada volume set` \
                 wrote it: take it out there, or correct the configuration",
                config.name()
            )
        })?;
        let mode = config.settings.mode;
        config.settings = whole.settings;
        config.caps = whole.caps;
        config.advise = whole.advise;
        config.mode_named |= layers.kept.contains_key("mode");
        if !config.mode_named {
            // It is looked up, and goes with what else is set.
            config.settings.mode = mode;
        }
        Ok(layers)
    }

    fn new(config: &HybridConfig, kept: Keys) -> Layers {
        let configured = Whole {
            settings: config.settings.clone(),
            caps: config.caps,
            advise: config.advise,
        };
        Layers {
            configured,
            names_mode: config.mode_named,
            has_queue: config.queue.is_some(),
            standby_after: config.standby_after,
            kept,
            passing: Keys::new(),
        }
    }

    /// Where the configuration names no mode it is this one.
    pub fn found_mode(&mut self, mode: hybrid::Mode) {
        if !self.names_mode {
            self.configured.settings.mode = mode;
        }
    }

    /// What all of them together say; else which key is wrong, and how.
    pub fn whole(&self) -> Result<Whole, Wrong> {
        let mut all = self.kept.clone();
        all.extend(self.passing.clone());
        if all.get("energy") == Some(&Value::from(false)) {
            all.remove("age_limit");
        }
        let change = change_of(&all).map_err(|what| ("the settings", what))?;
        let from = &self.configured;
        let settings = changed(&from.settings, &change, self.standby_after)?;
        if self.has_queue && settings.energy.is_some() {
            let what = "the slow device may be asleep then, and what sleeps keeps no promise; it has queue = true";
            return Err(("energy", what.to_owned()));
        }
        Ok(Whole {
            settings,
            caps: caps_after(from.caps, &change)?,
            advise: change.advise.unwrap_or(from.advise),
        })
    }

    /// What will be in force at the next start; else which key is wrong, and how.
    pub fn next_start(&self) -> Result<Whole, Wrong> {
        let mut start = self.clone();
        start.passing.clear();
        if !start.names_mode {
            // Which one it is the volume itself says then, as far as the rest allows.
            start.configured.settings.mode = hybrid::Mode::Cache;
        }
        start.whole()
    }

    /// With a change, which lasts or passes.
    #[must_use]
    pub fn with(&self, change: &Change, lasts: bool) -> Layers {
        let mut new = self.clone();
        let keys = keys_of(change);
        if lasts {
            new.passing.retain(|key, _| !keys.contains_key(key));
            new.kept.extend(keys);
        } else {
            new.passing.extend(keys);
        }
        new
    }

    /// With what the configuration says now.
    #[must_use]
    pub fn configured_as(&self, config: &HybridConfig) -> Layers {
        let mut new = Layers::new(config, self.kept.clone());
        new.passing.clone_from(&self.passing);
        // What it does not name stays.
        new.found_mode(self.configured.settings.mode);
        new
    }

    /// Does the configuration say the same of a tier?
    pub fn has_tier_of(&self, other: &Layers) -> bool {
        self.configured.settings.tier == other.configured.settings.tier
    }

    /// With these as the configuration says.
    #[must_use]
    pub fn without(&self, keys: &[String]) -> Layers {
        let stays = |key: &String| !keys.contains(key);
        let mut new = self.clone();
        new.kept.retain(|key, _| stays(key));
        new.passing.retain(|key, _| stays(key));
        new
    }

    /// What is not as the configuration says, by key.
    pub fn overrides(&self) -> Vec<Override> {
        let mut keys: Vec<&String> = self.kept.keys().chain(self.passing.keys()).collect();
        keys.sort();
        keys.dedup();
        let configured = shown(&self.configured);
        let one = |key: &String| Override {
            key: key.clone(),
            configured: find(&configured, key),
            kept: self.kept.get(key).cloned(),
            until_restart: self.passing.get(key).cloned(),
        };
        keys.into_iter().map(one).collect()
    }
}

/// As the API shows it.
fn shown(whole: &Whole) -> Value {
    let mut all = serde_json::to_value(volume::Settings::from(&whole.settings)).unwrap_or_default();
    let caps = [
        ("max_read", whole.caps.read.bytes.map(|it| it.to_string())),
        ("max_write", whole.caps.write.bytes.map(|it| it.to_string())),
        (
            "max_read_iops",
            whole.caps.read.requests.map(|it| it.to_string()),
        ),
        (
            "max_write_iops",
            whole.caps.write.requests.map(|it| it.to_string()),
        ),
    ];
    if let Some(all) = all.as_object_mut() {
        for (key, cap) in caps {
            let text = cap.unwrap_or_else(|| "off".to_owned());
            all.insert(key.to_owned(), Value::from(text));
        }
        all.insert("advise".to_owned(), Value::from(whole.advise));
    }
    all
}

/// What is shown under a key, as it is typed; null: nothing is shown of it.
fn find(all: &Value, key: &str) -> Value {
    let (table, key) = match key.strip_prefix("tier.") {
        Some(key) => (&all["tier"], key),
        None => (all, key),
    };
    let of = |unit: &str| table.get(format!("{key}{unit}"));
    let bytes = of("_bytes").and_then(Value::as_u64);
    let bytes = bytes.map(|it| size_text(Bytes(it)));
    let seconds = of("_seconds").and_then(Value::as_f64);
    let span = seconds.map(|it| time_text(Nanos::from_secs_f64(it)));
    match (of(""), bytes.or(span)) {
        (Some(plain), _) => plain.clone(),
        (None, text) => text.map_or(Value::Null, Value::from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(json: &str) -> Change {
        serde_json::from_str(json).unwrap()
    }

    fn layers(kept: &str) -> Layers {
        Layers {
            configured: Whole {
                settings: Settings::default(),
                caps: Caps::default(),
                advise: false,
            },
            names_mode: false,
            has_queue: false,
            standby_after: Nanos::secs(60),
            kept: keys_of(&change(kept)),
            passing: Keys::new(),
        }
    }

    #[test]
    fn what_is_set_until_the_restart_stands_before_what_is_kept_and_that_before_the_configuration()
    {
        let before = layers(r#"{"write": "through", "dirty_high": 40, "max_read": "100MB/s"}"#);
        let whole = before.whole().unwrap();
        assert_eq!(whole.settings.write, hybrid::WriteMode::Through);
        assert_eq!(whole.settings.dirty_high, 40);
        assert_eq!(whole.caps.read.bytes.unwrap().0, 100_000_000);
        let passing = before.with(&change(r#"{"write": "around"}"#), false);
        let write = |it: &Layers| it.whole().unwrap().settings.write;
        assert_eq!(write(&passing), hybrid::WriteMode::Around);
        // What is set to last is in force, whatever passed before.
        let lasting = passing.with(&change(r#"{"write": "pass"}"#), true);
        assert_eq!(write(&lasting), hybrid::WriteMode::Pass);
        assert!(lasting.passing.is_empty());
        let reset = passing.without(&["write".to_owned()]);
        let usual = Settings::default();
        assert_eq!(write(&reset), usual.write);
        assert_eq!(reset.whole().unwrap().settings.dirty_high, 40);
        let all: Vec<String> = passing.overrides().into_iter().map(|it| it.key).collect();
        assert_eq!(passing.without(&all).whole().unwrap(), before.configured);
        assert_eq!(passing.without(&[]).whole(), passing.whole());
    }

    #[test]
    fn what_no_longer_fits_the_configuration_names_its_key() {
        let kept = layers(r#"{"age_limit": "5m"}"#);
        assert_eq!(kept.whole().unwrap_err().0, "age_limit");
        let mut none = layers("{}");
        none.kept.insert("warp".to_owned(), Value::from(9));
        assert!(none.whole().unwrap_err().1.contains("warp"));
    }

    #[test]
    fn what_lasts_must_make_sense_without_what_passes() {
        let wrong = |before: &str, passing: &str, lasting: &str| {
            let now = layers(before).with(&change(passing), false);
            let next = now.with(&change(lasting), true);
            assert!(next.whole().is_ok(), "{lasting}");
            next.next_start().map(drop)
        };
        for (before, passing, lasting, key) in [
            (
                "{}",
                r#"{"energy": true}"#,
                r#"{"age_limit": "5m"}"#,
                "age_limit",
            ),
            (
                "{}",
                r#"{"dirty_high": 90}"#,
                r#"{"dirty_low": 80}"#,
                "the settings",
            ),
        ] {
            assert_eq!(wrong(before, passing, lasting).unwrap_err().0, key);
        }
        assert_eq!(
            wrong("{}", "{}", r#"{"energy": true, "age_limit": "5m"}"#),
            Ok(())
        );
        // An age limit has no meaning without the energy mode that it was set with.
        let off = r#"{"energy": false}"#;
        assert_eq!(
            wrong(r#"{"energy": true, "age_limit": "5m"}"#, "{}", off),
            Ok(())
        );
    }

    #[test]
    fn a_start_asks_for_no_mode_that_neither_configuration_nor_change_named() {
        let mut both = layers(r#"{"write": "through"}"#);
        both.configured.settings.mode = hybrid::Mode::Both;
        // What it is then the volume says.
        assert!(both.whole().is_err());
        assert!(both.next_start().is_ok());
        both.names_mode = true;
        assert!(both.next_start().is_err());
        let mut queued = layers(r#"{"energy": true}"#);
        assert!(queued.whole().is_ok());
        queued.has_queue = true;
        assert_eq!(queued.next_start().unwrap_err().0, "energy");
    }

    #[test]
    fn overrides_are_shown_beside_what_the_configuration_says() {
        let kept = layers(r#"{"block": "64KiB", "tier": {"period": "10s"}, "max_write": "9MB/s"}"#);
        let all = kept.with(&change(r#"{"energy": true}"#), false).overrides();
        let of = |key: &str| all.iter().find(|it| it.key == key).unwrap();
        // Both as they are typed.
        assert_eq!(
            of("block").configured,
            Value::from(size_text(Settings::default().block))
        );
        assert_eq!(of("block").kept, Some(Value::from("64KiB")));
        assert_eq!(of("max_write").configured, Value::from("off"));
        let energy = of("energy");
        assert_eq!(
            (&energy.configured, &energy.kept, &energy.until_restart),
            (&Value::from(false), &None, &Some(Value::from(true)))
        );
        assert_eq!(all.len(), 4);
    }
}
