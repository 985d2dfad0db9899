//! What an administrator chooses for one hybrid disk.

use std::fmt;
use std::str::FromStr;

use base::{Bytes, Nanos};
use device::Device;
use policy::cache::Kind;
use serde::{Deserialize, Serialize};

mod tier;

pub use tier::{Buffer, CopyBack, Demotion, Mode, Mover, Tier, TierError};

/// Where a write goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WriteMode {
    /// To the fast device; the slow one follows later.
    #[default]
    Back,
    /// To the slow device; the fast one gets a copy.
    Through,
    /// To the slow device only; reads fill the fast one.
    Around,
    /// To the fast device, as `Back`; reads never fill it.
    OnlyWrites,
    /// To the slow device; nothing is cached any more. Dirty data stay reachable until cleaned.
    Pass,
}

impl WriteMode {
    /// All modes, for listings and tests.
    pub const ALL: [WriteMode; 5] = [
        WriteMode::Back,
        WriteMode::Through,
        WriteMode::Around,
        WriteMode::OnlyWrites,
        WriteMode::Pass,
    ];

    /// Do writes stay on the fast device alone for a while?
    pub fn keeps_dirty(self) -> bool {
        matches!(self, WriteMode::Back | WriteMode::OnlyWrites)
    }

    /// May a read miss be copied to the fast device?
    pub fn fills_on_read(self) -> bool {
        matches!(
            self,
            WriteMode::Back | WriteMode::Through | WriteMode::Around
        )
    }

    fn word(self) -> &'static str {
        match self {
            WriteMode::Back => "back",
            WriteMode::Through => "through",
            WriteMode::Around => "around",
            WriteMode::OnlyWrites => "only-writes",
            WriteMode::Pass => "pass",
        }
    }
}

impl fmt::Display for WriteMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A word that names none of the choices.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{asked}' is not a {what}; choose one of {choices}")]
pub struct UnknownWord {
    pub(crate) asked: String,
    pub(crate) what: &'static str,
    pub(crate) choices: String,
}

impl FromStr for WriteMode {
    type Err = UnknownWord;
    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        WriteMode::ALL
            .into_iter()
            .find(|mode| mode.word() == text)
            .ok_or_else(|| UnknownWord {
                asked: text.to_owned(),
                what: "write mode",
                choices: WriteMode::ALL.map(WriteMode::word).join(", "),
            })
    }
}

/// Which reads are worth a copy on the fast device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Admission {
    /// Blocks seen before, not long ago.
    #[default]
    SecondAccess,
    /// Every block read.
    Always,
}

impl fmt::Display for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Admission::SecondAccess => "second-access",
            Admission::Always => "always",
        })
    }
}

impl FromStr for Admission {
    type Err = UnknownWord;
    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        match text {
            "second-access" => Ok(Admission::SecondAccess),
            "always" => Ok(Admission::Always),
            _ => Err(UnknownWord {
                asked: text.to_owned(),
                what: "admission rule",
                choices: "second-access, always".to_owned(),
            }),
        }
    }
}

/// Lets the slow disk sleep: dirty data wait on the fast device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Energy {
    /// The oldest dirty data wait at most this long while the disk sleeps.
    pub age_limit: Nanos,
    /// The disk is sent to sleep after this long without a request.
    pub standby_after: Nanos,
}

/// What can be chosen for one hybrid disk. [`Settings::default`] suits a hard disk with an SSD, as a block cache alone; the
/// program gives new disks [`Mode::Both`].
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The volume's name, for errors and figures.
    pub name: String,
    /// What is fetched, allocated and evicted together: a power of two from 4 KiB to 1 MiB. Mapping,
    /// atomicity and checksums are always per 4 KiB page.
    pub block: Bytes,
    /// Which block leaves when room is needed.
    pub policy: Kind,
    /// Where writes go first.
    pub write: WriteMode,
    /// Which reads are copied to the fast device.
    pub admission: Admission,
    /// Streams that have run at least this long in sequence go past the cache; `None`: never.
    pub sequential_bypass: Option<Bytes>,
    /// The cleaner rests below this share of dirty pages, in percent of the cache.
    pub dirty_low: u8,
    /// The cleaner hurries above this share, in percent of the cache.
    pub dirty_high: u8,
    /// Sleep-aware cleaning.
    pub energy: Option<Energy>,
    /// At most this much is written to the fast device a day; beyond it reads are not copied and writes go
    /// around.
    pub flash_writes_per_day: Option<Bytes>,
    /// Use only this much of the fast device; `None`: all of it.
    pub fast_bytes: Option<Bytes>,
    /// A map change waits at most this long for others before it is committed unasked.
    pub commit_after: Nanos,
    /// What the fast device is used for.
    pub mode: Mode,
    /// Choices for the tier, where there is one.
    pub tier: Tier,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            name: "hybrid".to_owned(),
            block: Bytes::kib(4),
            policy: Kind::default(),
            write: WriteMode::Back,
            admission: Admission::SecondAccess,
            sequential_bypass: Some(Bytes::mib(1)),
            dirty_low: 10,
            dirty_high: 60,
            energy: None,
            flash_writes_per_day: None,
            fast_bytes: None,
            commit_after: Nanos::secs(1),
            mode: Mode::Cache,
            tier: Tier::default(),
        }
    }
}

/// Why a set of choices cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// Block size.
    #[error("block = {0}: it must be a power of two from 4 KiB to 1 MiB")]
    Block(Bytes),
    /// Dirty marks.
    #[error(
        "dirty_low = {low} %, dirty_high = {high} %: low must be below high, and high at most 95 %"
    )]
    DirtyMarks {
        /// The low mark asked for.
        low: u8,
        /// The high mark asked for.
        high: u8,
    },
    /// A bypass threshold below one page.
    #[error("sequential_bypass = {0}: it must be at least 4 KiB")]
    Bypass(Bytes),
    /// A write mode that keeps nothing on the fast device alone, with a tier.
    #[error(
        "write = {write} with mode = {mode}: a region on the fast device takes writes alone, so write must be back \
         or only-writes; or choose mode = cache"
    )]
    WriteMode {
        /// The write mode asked for.
        write: WriteMode,
        /// The mode asked for.
        mode: Mode,
    },
    /// The choices for the tier.
    #[error(transparent)]
    Tier(#[from] TierError),
}

impl Settings {
    /// Chooses what was not asked for as fits the fast device.
    pub(crate) fn fit(&mut self, fast: &dyn Device) {
        let size = fast.info().size;
        self.tier
            .fit(self.fast_bytes.map_or(size, |limit| limit.min(size)));
    }

    /// Refuses choices that make no sense.
    ///
    /// # Errors
    /// The first [`SettingsError`], naming the key.
    pub fn check(&self) -> Result<(), SettingsError> {
        match self.mistakes().into_iter().next() {
            Some(mistake) => Err(mistake),
            None => Ok(()),
        }
    }

    /// Every choice that makes no sense.
    pub fn mistakes(&self) -> Vec<SettingsError> {
        let mut mistakes = Vec::new();
        if !self.block.0.is_power_of_two() || !(4096..=1 << 20).contains(&self.block.0) {
            mistakes.push(SettingsError::Block(self.block));
        }
        if self.dirty_low >= self.dirty_high || self.dirty_high > 95 {
            mistakes.push(SettingsError::DirtyMarks {
                low: self.dirty_low,
                high: self.dirty_high,
            });
        }
        if let Some(bypass) = self.sequential_bypass.filter(|bypass| bypass.0 < 4096) {
            mistakes.push(SettingsError::Bypass(bypass));
        }
        if self.mode.has_tier() && !self.write.keeps_dirty() {
            mistakes.push(SettingsError::WriteMode {
                write: self.write,
                mode: self.mode,
            });
        }
        // Choices for a tier that is not there are checked too: it may come with one word.
        mistakes.extend(self.tier.check().err().map(SettingsError::Tier));
        mistakes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_back_as_they_are_shown() {
        for mode in WriteMode::ALL {
            assert_eq!(mode.to_string().parse::<WriteMode>(), Ok(mode));
        }
        let refusal = "writeback".parse::<WriteMode>().unwrap_err().to_string();
        assert_eq!(
            refusal,
            "'writeback' is not a write mode; choose one of back, through, around, only-writes, pass"
        );
    }

    #[test]
    fn senseless_choices_are_refused_by_name() {
        let refused = |change: fn(&mut Settings)| {
            let mut settings = Settings::default();
            change(&mut settings);
            settings.check().unwrap_err().to_string()
        };
        assert!(refused(|s| s.block = Bytes(6000)).starts_with("block = "));
        assert!(refused(|s| s.dirty_low = 70).starts_with("dirty_low = 70 %"));
        assert!(
            refused(|s| s.sequential_bypass = Some(Bytes(512))).starts_with("sequential_bypass")
        );
        assert_eq!(Settings::default().check(), Ok(()));
    }
}
