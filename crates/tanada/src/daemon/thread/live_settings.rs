//! The settings of a hybrid that runs: changed, taken back, shown.
//!
//! Always true: a change is checked whole before any of it happens, and so is the start that it will last to.

use base::Bytes;
use config::HybridConfig;
use device::Device;
use hybrid::Settings;
use policy::share::cap::Caps;
use serde_json::{Value, json};

use super::change::{Wrong, caps_after, changed, within};
use super::hybrid::OpenVolume;
use super::refused::{Refused, cannot_set, failed};
use crate::api;
use crate::api::refusal::Refusal;
use crate::api::settings::Override;
use crate::api::volume::Change;
use crate::daemon::common::differences::differences;

/// Why `keys` are not as the configuration says again, beside all that are `set`.
fn cannot_reset((keys, set): (&[String], &[String]), volume: &str, (key, what): Wrong) -> Refused {
    let of_key = |it: &&String| it.as_str() == key || it.strip_prefix("tier.") == Some(key);
    let Some(key) = set.iter().find(of_key).filter(|it| !keys.contains(it)) else {
        return cannot_set(key, volume, &what);
    };
    Refused::Invalid(Refusal {
        error: format!(
            "cannot reset {} of {volume} alone: {key}, which is set, makes no sense without it",
            keys.join(", ")
        ),
        what_to_do: format!("nothing was changed; reset {key}, too"),
    })
}

/// Those of one that is open.
pub(super) struct LiveSettings<'a>(pub &'a OpenVolume);

impl LiveSettings<'_> {
    /// Changes settings while it runs; what `lasts` must make sense beside the configuration, too.
    pub async fn change(&self, change: Change, lasts: bool, who: &str) -> Result<(), Refused> {
        let name = self.0.config.name();
        let cannot = |(key, what): Wrong| cannot_set(key, name, &what);
        // Until it is written it passes.
        let layers = self.0.layers.borrow().with(&change, false);
        layers.whole().map_err(cannot)?;
        if lasts {
            let lasting = self.0.layers.borrow().with(&change, true);
            lasting.next_start().map_err(cannot)?;
        }
        let old = self.0.hybrid.settings();
        let new = changed(&old, &change, self.0.config.standby_after).map_err(cannot)?;
        let caps = caps_after(self.0.throttle.caps(), &change).map_err(cannot)?;
        self.check(&new, &caps).await?;
        if change.advise == Some(true) && !self.0.is_attached() {
            return Err(Refused::Conflict(Refusal {
                error: format!("cannot set advise of {name}: it has no cache to give advice on"),
                what_to_do: format!("give it a fast device with `tanada volume attach {name}`"),
            }));
        }
        // Last of the checks: this one makes a file.
        let wanted = self.0.traces.check(&change).await?;
        self.0.traces.change(&change, wanted).await?;
        let before = self.shown();
        let done = self.set(new, caps, change.advise).await;
        // What failed may be in force all the same.
        if done.is_ok() || self.0.hybrid.settings() != old {
            *self.0.layers.borrow_mut() = layers;
        }
        let words = differences(&before, &self.shown());
        tracing::info!(
            volume = name,
            who,
            asked = change.words(),
            "settings: {words}"
        );
        done
    }

    /// What was changed is written: it lasts.
    pub fn saved(&self, change: &Change) {
        let lasting = self.0.layers.borrow().with(change, true);
        *self.0.layers.borrow_mut() = lasting;
    }

    /// These settings are as the configuration says again.
    pub async fn reset(&self, keys: &[String], who: &str) -> Result<(), Refused> {
        let name = self.0.config.name();
        let set: Vec<String> = self.overrides().into_iter().map(|it| it.key).collect();
        let cannot = |wrong: Wrong| cannot_reset((keys, &set), name, wrong);
        let layers = self.0.layers.borrow().without(keys);
        let whole = layers.whole().map_err(cannot)?;
        layers.next_start().map_err(cannot)?;
        self.check(&whole.settings, &whole.caps).await?;
        let advise = keys.iter().any(|it| it == "advise");
        let before = self.shown();
        self.set(whole.settings, whole.caps, advise.then_some(whole.advise))
            .await?;
        *self.0.layers.borrow_mut() = layers;
        if keys.is_empty() {
            return Ok(());
        }
        let words = differences(&before, &self.shown());
        tracing::info!(
            volume = name,
            who,
            "settings as configured again, {}: {words}",
            keys.join(" ")
        );
        Ok(())
    }

    /// Those in force, as they are shown.
    fn shown(&self) -> Value {
        let caps = super::caps::shown(&self.0.throttle);
        let settings = api::volume::Settings::from(&self.0.hybrid.settings());
        json!({ "settings": settings, "caps": caps, "advise": self.0.is_watched() })
    }

    /// The configuration was read anew: goes by it, or only checks that it can.
    pub async fn configure(&self, config: &HybridConfig, is_check: bool) -> Result<(), Refused> {
        let name = self.0.config.name();
        let cannot = |(key, what): Wrong| cannot_set(key, name, &what);
        let old = self.0.layers.borrow().clone();
        let layers = old.configured_as(config);
        let mut whole = layers.whole().map_err(cannot)?;
        layers.next_start().map_err(cannot)?;
        if layers.has_tier_of(&old) {
            // Learned parameters are not forgotten for another line.
            whole.settings.tier = self.0.hybrid.settings().tier;
        }
        self.check(&whole.settings, &whole.caps).await?;
        if is_check {
            return Ok(());
        }
        let advised = old.whole().is_ok_and(|it| it.advise);
        let advise = (whole.advise != advised).then_some(whole.advise);
        self.set(whole.settings, whole.caps, advise).await?;
        *self.0.layers.borrow_mut() = layers;
        Ok(())
    }

    /// Which settings are not as the configuration says.
    pub fn overrides(&self) -> Vec<Override> {
        self.0.layers.borrow().overrides()
    }

    async fn check(&self, new: &Settings, caps: &Caps) -> Result<(), Refused> {
        let name = self.0.config.name();
        let size = Bytes(self.0.hybrid.status().size_bytes);
        within(&new.tier, size).map_err(|(key, what)| cannot_set(key, name, &what))?;
        if new.energy.is_some() {
            let prepared = self.0.hybrid.prepare_sleep().await;
            prepared.map_err(|error| cannot_set("energy", name, &error.to_string()))?;
        }
        match &self.0.queued {
            Some(queued) => queued.check_caps(name, caps).map_err(Refused::Conflict),
            None => Ok(()),
        }
    }

    /// Puts settings in force that were checked; `advise`: a shadow is wanted from now on, or no more.
    async fn set(&self, new: Settings, caps: Caps, advise: Option<bool>) -> Result<(), Refused> {
        let (name, old) = (self.0.config.name(), self.0.hybrid.settings());
        if new.fast_bytes != old.fast_bytes {
            let to = new
                .fast_bytes
                .map_or_else(|| "all".to_owned(), |it| it.to_string());
            tracing::info!(volume = name, to, "resizing the cache");
            self.0
                .hybrid
                .resize(new.fast_bytes)
                .await
                .map_err(|error| failed(format!("cannot resize the cache of {name}: {error}")))?;
        }
        if (Settings {
            fast_bytes: old.fast_bytes,
            ..new.clone()
        }) != old
        {
            self.0
                .hybrid
                .set(new)
                .await
                .map_err(|error| failed(format!("settings of {name}: {error}")))?;
        }
        self.0.throttle.set(caps);
        match advise {
            Some(true) => self.0.shadow_anew(),
            Some(false) => self.0.stop_shadow(),
            None => self.0.keep_shadow_true(),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_that_goes_with_another_is_named_when_that_is_reset() {
        let key = |key: &str| key.to_owned();
        let set = [key("energy"), key("age_limit"), key("tier.period")];
        let of = |keys: &[String], wrong: &'static str| {
            let refused = cannot_reset((keys, &set), "vol0", (wrong, "set energy=true".to_owned()));
            let refusal = refused.into_refusal();
            format!("{}; {}", refusal.error, refusal.what_to_do)
        };
        let said = of(&set[..1], "age_limit");
        assert!(
            said.ends_with("nothing was changed; reset age_limit, too"),
            "{said}"
        );
        assert!(of(&set[..1], "period").ends_with("reset tier.period, too"));
        // What is wrong for another reason says that.
        for (keys, wrong) in [(&set[..], "age_limit"), (&set[..1], "write")] {
            assert!(of(keys, wrong).contains("set energy=true"), "{wrong}");
        }
    }
}
