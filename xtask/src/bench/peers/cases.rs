//! What is measured: which peers, in which phases.

use clap::ValueEnum;

/// What stands over the two disks. The order is that of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(super) enum Peer {
    /// The slow disk alone.
    Bare,
    Bcache,
    DmCache,
    DmWritecache,
    DmWriteboost,
    /// A cache that takes in all it sees, as the lab's bcache does.
    TanadaUblk,
    TanadaNbd,
    /// Over ublk, with every choice left as it comes: a tier beside the cache, admission at the second access.
    TanadaDefault,
}

/// The order is that in which a peer goes through them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(super) enum Phase {
    #[value(name = "cold-1")]
    Cold1,
    #[value(name = "cold-16")]
    Cold16,
    HotCold,
    Warming,
    #[value(name = "warm-read-1")]
    WarmRead1,
    #[value(name = "warm-read-16")]
    WarmRead16,
    #[value(name = "warm-write-1")]
    WarmWrite1,
    #[value(name = "warm-write-16")]
    WarmWrite16,
    #[value(name = "warm-256k")]
    Warm256k,
    Copy,
    AfterCopy,
    Burst,
    Idle,
    Restarted,
    Verified,
}

fn word(value: &impl ValueEnum) -> String {
    let possible = value.to_possible_value();
    possible.map_or_else(String::new, |it| it.get_name().to_owned())
}

impl Peer {
    pub(super) fn name(self) -> String {
        word(&self)
    }

    pub(super) fn all() -> Vec<Peer> {
        Peer::value_variants().to_vec()
    }
}

impl Phase {
    pub(super) fn name(self) -> String {
        word(&self)
    }

    pub(super) fn all() -> Vec<Phase> {
        Phase::value_variants().to_vec()
    }

    /// Does it come after a power cut, in a guest of its own?
    pub(super) fn is_after_cut(self) -> bool {
        matches!(self, Phase::Restarted | Phase::Verified)
    }

    /// Does its share of requests that the slow disk did not see say what the cache holds?
    pub(super) fn shows_hits(self) -> bool {
        matches!(
            self,
            Phase::HotCold
                | Phase::WarmRead1
                | Phase::WarmRead16
                | Phase::AfterCopy
                | Phase::Restarted
        )
    }

    /// What is done, for people.
    pub(super) fn about(self) -> &'static str {
        match self {
            Phase::Cold1 => "4 KiB reads over the whole disk, one at a time",
            Phase::Cold16 => "4 KiB reads over the whole disk, 16 at once",
            Phase::HotCold => "4 KiB reads of the hot set that nothing has read yet",
            Phase::Warming => "256 KiB reads of the hot set over and over, 8 at once",
            Phase::WarmRead1 => "4 KiB random reads of the hot set, one at a time",
            Phase::WarmRead16 => "4 KiB random reads of the hot set, 16 at once",
            Phase::WarmWrite1 => "4 KiB random writes of the hot set, one at a time",
            Phase::WarmWrite16 => "4 KiB random writes of the hot set, 16 at once",
            Phase::Warm256k => "256 KiB random reads of the hot set, 4 at once",
            Phase::Copy => "a copy within the disk, in sequence",
            Phase::AfterCopy => "4 KiB random reads of the hot set after it",
            Phase::Burst => "each 4 KiB page of the hot set written once, 16 at once",
            Phase::Idle => "nothing",
            Phase::Restarted => "4 KiB random reads of the hot set after a power cut",
            Phase::Verified => "what was flushed before the power cut, read and compared",
        }
    }
}
