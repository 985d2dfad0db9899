//! Which workloads there are.

use std::fmt;
use std::str::FromStr;

use base::Nanos;

use super::shapes::{SRC1_0, SRC1_1, Shape};

/// A window of `drifting`.
pub(super) const HOUR: Nanos = Nanos::secs(3_600);

/// A workload that can be generated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Profile {
    /// The write-heavy window of the tiering paper.
    Src1_0,
    /// The read-only window of the tiering paper.
    Src1_1,
    /// Blocks of a few ranks take most requests.
    Zipf,
    /// Every block alike.
    Uniform,
    /// Streams, block after block.
    Sequential,
    /// Streams among random requests of several sizes.
    Mixed,
    /// A database: page reads, a log, checkpoints.
    Db,
    /// Hot spots by rules that were fitted to no published result.
    Drifting,
}

/// No profile has this name.
#[derive(Debug, thiserror::Error)]
#[error("there is no profile {asked}; known are {}", Profile::names())]
pub struct UnknownProfile {
    /// What was asked for.
    pub asked: String,
}

impl Profile {
    /// All of them.
    pub const ALL: [Profile; 8] = [
        Profile::Src1_0,
        Profile::Src1_1,
        Profile::Zipf,
        Profile::Uniform,
        Profile::Sequential,
        Profile::Mixed,
        Profile::Db,
        Profile::Drifting,
    ];

    /// The name it is asked for by.
    pub fn name(self) -> &'static str {
        match self {
            Profile::Src1_0 => "src1-0",
            Profile::Src1_1 => "src1-1",
            Profile::Zipf => "zipf",
            Profile::Uniform => "uniform",
            Profile::Sequential => "sequential",
            Profile::Mixed => "mixed",
            Profile::Db => "db",
            Profile::Drifting => "drifting",
        }
    }

    /// What it is, in a line.
    pub fn about(self) -> &'static str {
        match self {
            Profile::Src1_0 => {
                "hot spots of GiB size that live for minutes, drift and return; 89 % writes, 100 minutes"
            }
            Profile::Src1_1 => "the same with 99 % reads, 120 minutes",
            Profile::Zipf => "random blocks, few of which take most requests",
            Profile::Uniform => "random blocks, each as likely",
            Profile::Sequential => "streams that go from block to block",
            Profile::Mixed => "streams among random requests of 4 to 64 KiB",
            Profile::Db => "a database: Zipf page reads, a flushed log, checkpoints of dirty pages",
            Profile::Drifting => {
                "hot spots of 1 GiB by rules fitted to nothing: Zipf, log-normal lives, returns; 2 windows of an hour"
            }
        }
    }

    /// How long each of its two windows is, the one before and the one that is measured; `None` for a profile
    /// that goes on as long as it is asked to.
    pub fn window(self) -> Option<Nanos> {
        match (self.shape(), self) {
            (Some(shape), _) => Some(Nanos::secs(60 * shape.minutes)),
            (None, Profile::Drifting) => Some(HOUR),
            (None, _) => None,
        }
    }

    fn names() -> String {
        Profile::ALL.map(Profile::name).join(", ")
    }

    pub(super) fn shape(self) -> Option<&'static Shape> {
        match self {
            Profile::Src1_0 => Some(&SRC1_0),
            Profile::Src1_1 => Some(&SRC1_1),
            _ => None,
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Profile {
    type Err = UnknownProfile;
    fn from_str(name: &str) -> Result<Profile, UnknownProfile> {
        Profile::ALL
            .into_iter()
            .find(|profile| profile.name() == name)
            .ok_or_else(|| UnknownProfile {
                asked: name.to_owned(),
            })
    }
}
