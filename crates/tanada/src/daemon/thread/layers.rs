//! Where the settings of a hybrid come from; pure.
//!
//! ```text
//! configuration (with what is built in) -> kept in DATA_DIR/settings.toml -> until the restart -> in force
//! ```

use base::Nanos;
use config::HybridConfig;
use hybrid::Settings;
use policy::share::cap::Caps;
use serde_json::Value;

use super::change::{Wrong, caps_after, changed};
use super::refused::Refused;
use crate::api::refusal::Refusal;
use crate::api::settings::Override;
use crate::api::volume::{self, Change};
use crate::daemon::common::saved_settings::{Keys, change_of, keys_of};

/// What is to be in force.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Whole {
    pub settings: Settings,
    pub caps: Caps,
    pub advise: bool,
}

/// The settings of one hybrid, by where they come from.
#[derive(Debug, Clone)]
pub(super) struct Layers {
    configured: Whole,
    /// The configuration names a mode.
    names_mode: bool,
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
        let whole = layers.whole().map_err(|(key, what)| {
            anyhow::anyhow!(
                "volume {}: {key}: {what}; it comes from settings.toml in the data directory, where `tanada volume set` \
                 wrote it: take it out there, or correct the configuration",
                config.name()
            )
        })?;
        config.settings = whole.settings;
        config.caps = whole.caps;
        config.advise = whole.advise;
        config.mode_named |= layers.kept.contains_key("mode");
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

    /// The keys that are not as the configuration says, all of `asked` among them.
    pub fn known(&self, volume: &str, asked: &[String]) -> Result<Vec<String>, Refused> {
        let known: Vec<String> = self.overrides().into_iter().map(|it| it.key).collect();
        match asked.iter().find(|key| !known.contains(key)) {
            None => Ok(known),
            Some(unknown) => Err(Refused::Unknown(Refusal {
                error: format!("{unknown} of {volume} is as the configuration says"),
                what_to_do: match known.is_empty() {
                    true => "no setting of it was changed".to_owned(),
                    false => format!("what was changed: {}", known.join(", ")),
                },
            })),
        }
    }

    /// What all of them together say; else which key is wrong, and how.
    pub fn whole(&self) -> Result<Whole, Wrong> {
        let mut all = self.kept.clone();
        all.extend(self.passing.clone());
        let change = change_of(&all).map_err(|what| ("the settings", what))?;
        let from = &self.configured;
        Ok(Whole {
            settings: changed(&from.settings, &change, self.standby_after)?,
            caps: caps_after(from.caps, &change)?,
            advise: change.advise.unwrap_or(from.advise),
        })
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

    /// With these, or all if none is named, as the configuration says.
    #[must_use]
    pub fn without(&self, keys: &[String]) -> Layers {
        let stays = |key: &String| !keys.is_empty() && !keys.contains(key);
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

/// What is shown under a key, be it with its unit behind it; null: nothing is shown of it.
fn find(all: &Value, key: &str) -> Value {
    let (table, key) = match key.strip_prefix("tier.") {
        Some(key) => (&all["tier"], key),
        None => (all, key),
    };
    let units = ["", "_bytes", "_seconds"];
    let mut names = units.iter().map(|unit| format!("{key}{unit}"));
    let found = names.find_map(|name| table.get(&name));
    found.cloned().unwrap_or_default()
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
        assert_eq!(passing.without(&[]).whole().unwrap(), before.configured);
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
    fn overrides_are_shown_beside_what_the_configuration_says() {
        let kept = layers(r#"{"block": "64KiB", "tier": {"period": "10s"}, "max_write": "9MB/s"}"#);
        let all = kept.with(&change(r#"{"energy": true}"#), false).overrides();
        let of = |key: &str| all.iter().find(|it| it.key == key).unwrap();
        assert_eq!(
            of("block").configured,
            Value::from(Settings::default().block.0)
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
