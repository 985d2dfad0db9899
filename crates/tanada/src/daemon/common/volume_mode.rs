//! Which mode has a hybrid whose configuration names none?
//!
//! ```text
//! mode = "..." in the configuration                        -> that, and it is kept
//! label of the fast device and record of pairs, the later  -> the mode it keeps; of an earlier version: cache
//! neither                                                  -> a new hybrid: both where that suits, else cache
//! ```
//!
//! What is kept lies in the label and in the record of pairs (`docs/formats.md`): a volume does not change its mode
//! because the default changes.

use std::rc::Rc;

use anyhow::Context;
use config::HybridConfig;
use device::Device;
use hybrid::{MadeIn, Mode, Settings, kept_mode};

use super::pairs::Memory;

/// The mode of a volume, and what is said of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// What is in force from the start on.
    pub mode: Mode,
    /// What label and record keep.
    pub kept: Mode,
    /// For the log: what that means and how to choose; empty if the configuration chose.
    pub words: String,
}

/// The mode of a volume with these settings, whose mode is `named` in its configuration or not.
pub fn choose(settings: &Settings, named: bool, made: MadeIn) -> Chosen {
    let name = &settings.name;
    let chosen = |mode, kept, words| Chosen { mode, kept, words };
    if named {
        return chosen(settings.mode, settings.mode, String::new());
    }
    match made {
        MadeIn::Nothing => {
            let mode = config::usual_mode(settings.write, settings.energy.is_some());
            let words = format!(
                "{name} is new and its configuration names no mode, so it has mode {mode} from now on; write mode = \
                 \"cache\", \"tier\" or \"both\" under [[hybrid]] to choose"
            );
            chosen(mode, mode, words)
        }
        MadeIn::Earlier => {
            let words = format!(
                "{name} was made when mode = \"cache\" was the default, and its configuration names no mode: it stays a \
                 block cache; write mode = \"both\" under [[hybrid]] to let hot regions live on the fast device, too, \
                 as new hybrids do, or mode = \"cache\" to have it in writing. This is said once"
            );
            chosen(Mode::Cache, Mode::Cache, words)
        }
        MadeIn::Mode(kept) if kept.has_tier() && !settings.write.keeps_dirty() => {
            let words = format!(
                "{name} has mode {kept}, which needs write = \"back\" or \"only-writes\": with write = \"{}\" it is a \
                 block cache; write mode = \"cache\" under [[hybrid]] to let it stay one",
                settings.write
            );
            chosen(Mode::Cache, kept, words)
        }
        MadeIn::Mode(kept) => chosen(kept, kept, String::new()),
    }
}

/// Looks at what is kept of the volume, and chooses.
///
/// # Errors
/// The fast device is gone, or the record cannot be understood.
pub async fn find(
    config: &HybridConfig,
    fast: &Rc<dyn Device>,
    memory: &Memory,
) -> anyhow::Result<Chosen> {
    let said = || format!("volume {}", config.name());
    let made = match config.mode_named {
        true => MadeIn::Nothing,
        false => {
            let record = memory.record().with_context(said)?;
            let abandoned = memory.registry.read()?;
            let made = kept_mode(fast, config.name(), record, &abandoned).await;
            made.with_context(said)?
        }
    };
    Ok(choose(&config.settings, config.mode_named, made))
}

#[cfg(test)]
mod tests {
    use config::usual_mode as usual;
    use hybrid::WriteMode;

    use super::*;

    fn settings(mode: Mode, write: WriteMode) -> Settings {
        Settings {
            name: "vol0".to_owned(),
            mode,
            write,
            ..Settings::default()
        }
    }

    /// Mode in force, mode kept, and whether something is said.
    fn found(write: WriteMode, made: MadeIn) -> (Mode, Mode, bool) {
        let chosen = choose(&settings(usual(write, false), write), false, made);
        (chosen.mode, chosen.kept, !chosen.words.is_empty())
    }

    #[test]
    fn a_mode_that_is_named_always_wins_and_is_kept() {
        for made in [
            MadeIn::Nothing,
            MadeIn::Earlier,
            MadeIn::Mode(Mode::Both),
            MadeIn::Mode(Mode::Cache),
        ] {
            for mode in Mode::ALL {
                let chosen = choose(&settings(mode, WriteMode::Back), true, made);
                assert_eq!((chosen.mode, chosen.kept), (mode, mode));
                assert_eq!(chosen.words, "");
            }
        }
    }

    #[test]
    fn a_new_hybrid_has_both_where_that_suits() {
        use WriteMode::{Around, Back, OnlyWrites, Pass, Through};
        let both = (Mode::Both, Mode::Both, true);
        let cache = (Mode::Cache, Mode::Cache, true);
        assert_eq!(found(Back, MadeIn::Nothing), both);
        for write in [Through, Around, OnlyWrites, Pass] {
            assert_eq!(found(write, MadeIn::Nothing), cache, "{write}");
        }
        assert_eq!(usual(Back, true), Mode::Cache, "a disk that sleeps");
    }

    #[test]
    fn a_hybrid_of_an_earlier_version_stays_a_cache_and_that_is_said() {
        let found = choose(
            &settings(Mode::Both, WriteMode::Back),
            false,
            MadeIn::Earlier,
        );
        assert_eq!((found.mode, found.kept), (Mode::Cache, Mode::Cache));
        assert_eq!(
            found.words,
            "vol0 was made when mode = \"cache\" was the default, and its configuration names no mode: it stays a \
             block cache; write mode = \"both\" under [[hybrid]] to let hot regions live on the fast device, too, as \
             new hybrids do, or mode = \"cache\" to have it in writing. This is said once"
        );
    }

    #[test]
    fn what_is_kept_is_in_force_unless_the_write_mode_forbids_it() {
        use WriteMode::{Back, OnlyWrites, Through};
        for mode in Mode::ALL {
            assert_eq!(found(Back, MadeIn::Mode(mode)), (mode, mode, false));
            assert_eq!(found(OnlyWrites, MadeIn::Mode(mode)), (mode, mode, false));
        }
        let waits = (Mode::Cache, Mode::Both, true);
        assert_eq!(found(Through, MadeIn::Mode(Mode::Both)), waits);
        let cache = (Mode::Cache, Mode::Cache, false);
        assert_eq!(found(Through, MadeIn::Mode(Mode::Cache)), cache);
    }
}
