//! What can be set about a generated trace, and within which bounds.

use std::fmt;
use std::str::FromStr;

use base::{Bytes, Nanos};

use super::profile::Profile;

/// Which windows of a tiering workload, or of `drifting`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Part {
    /// The one before, from which static tiering learns.
    Before,
    /// The one that is measured.
    #[default]
    Window,
    /// The one before, and behind it the one that is measured.
    Both,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Part::Before => "before",
            Part::Window => "window",
            Part::Both => "both",
        })
    }
}

impl FromStr for Part {
    type Err = String;
    fn from_str(name: &str) -> Result<Part, String> {
        match name {
            "before" => Ok(Part::Before),
            "window" => Ok(Part::Window),
            "both" => Ok(Part::Both),
            other => Err(format!("{other} is none of before, window and both")),
        }
    }
}

/// What is set; `None` takes the profile's own value.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Of all chance.
    pub seed: u64,
    /// Which windows of a workload that has them.
    pub part: Option<Part>,
    /// At most so many requests.
    pub requests: Option<u64>,
    /// Requests before this moment only.
    pub span: Option<Nanos>,
    /// The address space; 64 GiB.
    pub size: Option<Bytes>,
    /// Mean requests per second; 1,000, `drifting` 250.
    pub iops: Option<f64>,
    /// Mean requests in a burst; 1, which is a Poisson process, `drifting` 8.
    pub burst: Option<f64>,
    /// Share of reads among reads and writes, 0 to 1; 0.7, 1 for streams alone, `drifting` 0.4.
    pub read_share: Option<f64>,
    /// Size of a request: 4 KiB; of a stream's 128 KiB; of a database page 8 KiB. `mixed`: of the random
    /// ones, in place of 4 to 64 KiB.
    pub block: Option<Bytes>,
    /// How steep the ranks fall: rank k is asked for in proportion to `1 / k^theta`; 0.99.
    pub theta: Option<f64>,
    /// How many streams; 1, `mixed` 4.
    pub streams: Option<u32>,
    /// `mixed`: share of requests that belong to streams; 0.3.
    pub stream_share: Option<f64>,
    /// `db`: time between checkpoints; 60 s.
    pub checkpoint: Option<Nanos>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            seed: 1,
            part: None,
            requests: None,
            span: None,
            size: None,
            iops: None,
            burst: None,
            read_share: None,
            block: None,
            theta: None,
            streams: None,
            stream_share: None,
            checkpoint: None,
        }
    }
}

/// Why a trace cannot be generated.
#[derive(Debug, thiserror::Error, PartialEq)]
#[non_exhaustive]
pub enum GenerateError {
    /// The profile has no such setting.
    #[error("profile {profile} has no {setting}; it has {has}")]
    NotThere {
        /// The profile.
        profile: Profile,
        /// The setting.
        setting: &'static str,
        /// What can be set.
        has: String,
    },
    /// A value out of bounds.
    #[error("{setting} {value} is out of bounds for profile {profile}; it lies in {low} to {high}")]
    Bounds {
        /// The profile.
        profile: Profile,
        /// The setting.
        setting: &'static str,
        /// What was asked for.
        value: String,
        /// The least.
        low: String,
        /// The greatest.
        high: String,
    },
    /// Sectors cannot be split.
    #[error("block {block} is no multiple of 512 bytes; requests begin and end at sectors")]
    Sectors {
        /// What was asked for.
        block: Bytes,
    },
}

/// Without a limit of either kind a plain profile ends after so many requests.
const REQUESTS: u64 = 1_000_000;

impl Settings {
    /// Which settings apply to a profile, beside seed, requests and time.
    fn of(profile: Profile) -> &'static [&'static str] {
        match profile {
            Profile::Src1_0 | Profile::Src1_1 => &["part"],
            Profile::Drifting => &["part", "iops", "burst", "read-share"],
            Profile::Uniform => &["size", "iops", "burst", "read-share", "block"],
            Profile::Zipf => &["size", "iops", "burst", "read-share", "block", "theta"],
            Profile::Sequential => &["size", "iops", "burst", "read-share", "block", "streams"],
            Profile::Mixed => &[
                "size",
                "iops",
                "burst",
                "read-share",
                "block",
                "theta",
                "streams",
                "stream-share",
            ],
            Profile::Db => &[
                "size",
                "iops",
                "burst",
                "read-share",
                "block",
                "theta",
                "checkpoint",
            ],
        }
    }

    /// # Errors
    /// [`GenerateError`]: a setting that the profile has not, or beyond its range.
    pub(super) fn check(&self, profile: Profile) -> Result<(), GenerateError> {
        self.check_known(profile)?;
        let number =
            |setting, value: Option<f64>, low, high| within(profile, setting, value, low, high);
        number("iops", self.iops, 0.001, 1e8)?;
        number("burst", self.burst, 1.0, 1e6)?;
        number("read-share", self.read_share, 0.0, 1.0)?;
        number("theta", self.theta, 0.0, 10.0)?;
        number("stream-share", self.stream_share, 0.0, 1.0)?;
        number("streams", self.streams.map(f64::from), 1.0, 65_536.0)?;
        let seconds = self.checkpoint.map(Nanos::secs_f64);
        number("checkpoint", seconds, 0.001, 1e6)?;
        if let Some(block) = self.block.filter(|block| !block.is_multiple_of(512)) {
            return Err(GenerateError::Sectors { block });
        }
        within(profile, "block", self.block, Bytes(512), Bytes::mib(64))?;
        // Room for 16 requests, in each stream's part of the volume and in a database's log.
        let block = self.block_of(profile).0;
        let streams = u64::from(self.streams_of(profile));
        let least = match profile {
            Profile::Sequential => 16 * streams * block,
            Profile::Mixed => 16 * streams * block.max(128 << 10),
            Profile::Db => 256 * block.max(16 << 10),
            _ => 16 * block,
        };
        let size = Some(self.size_of());
        within(profile, "size", size, Bytes(least), Bytes(1 << 62))
    }

    /// Is nothing set that the profile has not?
    fn check_known(&self, profile: Profile) -> Result<(), GenerateError> {
        let set = [
            ("part", self.part.is_some()),
            ("size", self.size.is_some()),
            ("iops", self.iops.is_some()),
            ("burst", self.burst.is_some()),
            ("read-share", self.read_share.is_some()),
            ("block", self.block.is_some()),
            ("theta", self.theta.is_some()),
            ("streams", self.streams.is_some()),
            ("stream-share", self.stream_share.is_some()),
            ("checkpoint", self.checkpoint.is_some()),
        ];
        let known = Settings::of(profile);
        let mut unknown = set
            .iter()
            .filter(|(setting, is_set)| *is_set && !known.contains(setting));
        let Some((setting, _)) = unknown.next() else {
            return Ok(());
        };
        let has = ["seed", "requests", "for"].iter().chain(known).copied();
        Err(GenerateError::NotThere {
            profile,
            setting,
            has: has.collect::<Vec<_>>().join(", "),
        })
    }

    pub(super) fn requests_of(&self, profile: Profile) -> u64 {
        match (self.requests, self.span) {
            (Some(requests), _) => requests,
            (None, None) if profile.window().is_none() => REQUESTS,
            _ => u64::MAX,
        }
    }

    pub(super) fn span_of(&self, profile: Profile) -> Nanos {
        let asked = self.span.unwrap_or(Nanos(u64::MAX));
        match profile.window() {
            None => asked,
            Some(window) => {
                let windows = match self.part.unwrap_or_default() {
                    Part::Both => 2,
                    Part::Before | Part::Window => 1,
                };
                asked.min(window * windows)
            }
        }
    }

    pub(super) fn size_of(&self) -> Bytes {
        self.size.unwrap_or(Bytes::gib(64))
    }

    pub(super) fn iops_of(&self, profile: Profile) -> f64 {
        self.iops.unwrap_or(match profile {
            Profile::Drifting => 250.0,
            _ => 1_000.0,
        })
    }

    pub(super) fn burst_of(&self, profile: Profile) -> f64 {
        self.burst.unwrap_or(match profile {
            Profile::Drifting => 8.0,
            _ => 1.0,
        })
    }

    pub(super) fn read_share_of(&self, profile: Profile) -> f64 {
        self.read_share.unwrap_or(match profile {
            Profile::Sequential => 1.0,
            Profile::Drifting => 0.4,
            _ => 0.7,
        })
    }

    pub(super) fn block_of(&self, profile: Profile) -> Bytes {
        self.block.unwrap_or(match profile {
            Profile::Sequential => Bytes::kib(128),
            Profile::Db => Bytes::kib(8),
            _ => Bytes::kib(4),
        })
    }

    pub(super) fn theta_of(&self) -> f64 {
        self.theta.unwrap_or(0.99)
    }

    pub(super) fn streams_of(&self, profile: Profile) -> u32 {
        self.streams.unwrap_or(match profile {
            Profile::Mixed => 4,
            _ => 1,
        })
    }

    pub(super) fn stream_share_of(&self) -> f64 {
        self.stream_share.unwrap_or(0.3)
    }

    pub(super) fn checkpoint_of(&self) -> Nanos {
        self.checkpoint.unwrap_or(Nanos::secs(60))
    }
}

/// # Errors
/// [`GenerateError::Bounds`], if it is set and out of bounds.
fn within<T: PartialOrd + fmt::Display>(
    profile: Profile,
    setting: &'static str,
    value: Option<T>,
    low: T,
    high: T,
) -> Result<(), GenerateError> {
    match value {
        Some(value) if !(&low..=&high).contains(&&value) => Err(GenerateError::Bounds {
            profile,
            setting,
            value: value.to_string(),
            low: low.to_string(),
            high: high.to_string(),
        }),
        _ => Ok(()),
    }
}
