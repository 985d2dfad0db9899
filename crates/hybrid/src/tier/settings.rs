//! What an administrator chooses for the tier of one hybrid disk.

use std::fmt;
use std::str::FromStr;

use base::{Bytes, Nanos, Span};
use policy::tier::{Kind, Parameters};
use serde::{Deserialize, Serialize};

use crate::settings::UnknownWord;

/// What the fast device is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// A block cache.
    #[default]
    Cache,
    /// A home for hot regions.
    Tier,
    /// Both, side by side.
    Both,
}

impl Mode {
    /// All modes, for listings and tests.
    pub const ALL: [Mode; 3] = [Mode::Cache, Mode::Tier, Mode::Both];

    /// Are there regions that live on the fast device?
    pub fn has_tier(self) -> bool {
        self != Mode::Cache
    }

    fn word(self) -> &'static str {
        match self {
            Mode::Cache => "cache",
            Mode::Tier => "tier",
            Mode::Both => "both",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Mode {
    type Err = UnknownWord;
    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        let found = Mode::ALL.into_iter().find(|mode| mode.word() == text);
        found.ok_or_else(|| UnknownWord {
            asked: text.to_owned(),
            what: "mode",
            choices: Mode::ALL.map(Mode::word).join(", "),
        })
    }
}

/// How a region gets to the fast device and back while users read and write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mover {
    /// It is up at once: writes go straight to the fast device, what is read is copied, the rest follows.
    #[default]
    Direct,
    /// As published: a whole copy with a temporary buffer for writes, then an ordered synchronization.
    Published,
}

impl Mover {
    /// Both, for listings and tests.
    pub const ALL: [Mover; 2] = [Mover::Direct, Mover::Published];

    fn word(self) -> &'static str {
        match self {
            Mover::Direct => "direct",
            Mover::Published => "published",
        }
    }
}

impl fmt::Display for Mover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Mover {
    type Err = UnknownWord;
    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        let found = Mover::ALL.into_iter().find(|mover| mover.word() == text);
        found.ok_or_else(|| UnknownWord {
            asked: text.to_owned(),
            what: "mover",
            choices: Mover::ALL.map(Mover::word).join(", "),
        })
    }
}

/// Where the published mover's temporary buffer lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Buffer {
    /// In slots of the fast device: survives a crash.
    #[default]
    Fast,
    /// In memory, as published. A flush brings it to its destination first.
    Memory,
}

/// What is written to the slow device when a region goes down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CopyBack {
    /// What changed while it was up.
    #[default]
    Changed,
    /// All of it, as published.
    All,
    /// Nothing: the map flips and the changes are lost. Only for simulations without contents, where the paper
    /// compares with it.
    Nothing,
}

/// The choices for the tier.
#[derive(Debug, Clone, PartialEq)]
pub struct Tier {
    /// Which rule decides.
    pub policy: Kind,
    /// Its parameters.
    pub parameters: Parameters,
    /// What is counted and judged together: a power of two from 1 MiB to 1 GiB.
    pub region: Bytes,
    /// What is moved together: a power of two from 1 MiB to the region.
    pub extent: Bytes,
    /// How regions are moved.
    pub mover: Mover,
    /// Where the published mover buffers writes.
    pub buffer: Buffer,
    /// What a region costs on its way down.
    pub copy_back: CopyBack,
    /// Do moves yield to users of the slow device?
    pub flow_control: bool,
    /// Is an extent copied only when the reads it saves are expected to cost more than the copy?
    pub break_even: bool,
    /// May clean data be read from the slow device when the fast one is the busier?
    pub either: bool,
    /// In mode "both": the tier's share of the fast device in percent; none: as measured benefit says.
    pub share: Option<u8>,
    /// Ranges that always live on the fast device.
    pub pinned: Vec<Span>,
    /// Ranges that never do.
    pub barred: Vec<Span>,
    /// When moves may begin, in time of the day (UTC), from and to; none: always.
    pub windows: Vec<(Nanos, Nanos)>,
    /// Are the parameters learned from what happens?
    pub auto: bool,
}

impl Default for Tier {
    fn default() -> Self {
        Tier {
            policy: Kind::default(),
            // Choice: six decisions a minute instead of one, two in a row instead of three, four fifths of the
            // requests instead of three fifths, ten minutes of patience as published. Where a region goes up an
            // extent at a time, as it is touched, moving costs so little that being early pays: on the two
            // workloads of the paper's kind decisions alone give 62 and 81 % of the requests to the fast tier,
            // with the published parameters 28 and 50 %.
            parameters: Parameters {
                period: Nanos::secs(10),
                sub_luns_max: 40,
                share_min: 80.0,
                streak_min: 2,
                timeout: 60,
                ..Parameters::default()
            },
            region: Bytes::gib(1),
            extent: Bytes::mib(1),
            mover: Mover::Direct,
            buffer: Buffer::Fast,
            copy_back: CopyBack::Changed,
            flow_control: true,
            break_even: true,
            either: true,
            share: None,
            pinned: Vec::new(),
            barred: Vec::new(),
            windows: Vec::new(),
            auto: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_modes_and_movers_are_read_back_as_they_are_shown() {
        for mode in Mode::ALL {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        for mover in Mover::ALL {
            assert_eq!(mover.to_string().parse(), Ok(mover));
        }
        let refusal = "tiering".parse::<Mode>().unwrap_err().to_string();
        assert_eq!(
            refusal,
            "'tiering' is not a mode; choose one of cache, tier, both"
        );
    }
}
