//! Which records may this cluster be written? Its level says so; each program can do a range of levels.
//!
//! ```text
//! cluster/level     {"version": 1, "level": 2}: the level in force; not there: 1
//! alive/<node>      "levels": [1, 2]: what the program of a node that is up can do; left out: level 1 alone
//! store/<number>    from level 2 on: version 2, and the same of the node's program, also while it is down
//! ```
//!
//! | level | what is written |
//! |---|---|
//! | 1 | everything as programs do that know of no levels |
//! | 2 | records of stores have version 2 and the range of their node's program. Programs of level 1 refuse them, so none joins |
//!
//! Always true:
//! 1. A cluster's level never falls, and is one that the program of each node can do.
//! 2. What a node writes goes by the cluster's level, however much more its program can do.
//!
//! # Source
//! As Ceph's `require_osd_release` and CockroachDB's `cluster version`: programs first, then what they write.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::record::{RecordError, read};

/// Of the record of the level itself: it stays, so that every later program says which level it does not do.
const VERSION: u32 = 1;

/// The lowest level that this program can do.
pub const LEVEL_MIN: Level = Level(1);
/// The highest level that this program can do.
pub const LEVEL_MAX: Level = Level(HIGHEST);
/// `packaging/formats` has a line for each up to it.
const HIGHEST: u32 = 2;

/// What wire, records and disk formats of a whole cluster may be.
///
/// # Example
/// ```
/// use vdisk::cluster::level::{LEVEL_MAX, Level, LevelRange};
///
/// assert!(LevelRange::of_program().has(LEVEL_MAX));
/// assert_eq!(LevelRange::new(Level(2), Level(3)).unwrap().to_string(), "levels 2 to 3");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Level(pub u32);

impl Level {
    /// Of what was written before there were levels.
    pub const FIRST: Level = Level(1);
    /// From this one on records of stores have the levels of their node's program.
    pub const IN_STORE_RECORDS: Level = Level(2);
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "level {}", self.0)
    }
}

/// The levels that a program can do. Written as `[min, max]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "(Level, Level)", into = "(Level, Level)")]
pub struct LevelRange {
    min: Level,
    max: Level,
}

impl LevelRange {
    /// Those of this program: [`LEVEL_MIN`] to [`LEVEL_MAX`].
    pub const fn of_program() -> LevelRange {
        LevelRange {
            min: LEVEL_MIN,
            max: LEVEL_MAX,
        }
    }

    /// Those of a program that says nothing of levels.
    pub const fn before_levels() -> LevelRange {
        LevelRange {
            min: Level::FIRST,
            max: Level::FIRST,
        }
    }

    /// From one to another, both included; `None` if there is none between them, or the first is 0.
    pub fn new(min: Level, max: Level) -> Option<LevelRange> {
        (Level::FIRST <= min && min <= max).then_some(LevelRange { min, max })
    }

    /// The lowest.
    pub fn min(self) -> Level {
        self.min
    }

    /// The highest.
    pub fn max(self) -> Level {
        self.max
    }

    /// Is it one of these?
    pub fn has(self, level: Level) -> bool {
        (self.min..=self.max).contains(&level)
    }
}

impl TryFrom<(Level, Level)> for LevelRange {
    type Error = String;

    fn try_from((min, max): (Level, Level)) -> Result<LevelRange, String> {
        LevelRange::new(min, max).ok_or_else(|| format!("{min} to {max} are no levels"))
    }
}

impl From<LevelRange> for (Level, Level) {
    fn from(range: LevelRange) -> (Level, Level) {
        (range.min, range.max)
    }
}

impl fmt::Display for LevelRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.min == self.max {
            true => write!(f, "{} alone", self.min),
            false => write!(f, "levels {} to {}", self.min.0, self.max.0),
        }
    }
}

/// The record of the level in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LevelRecord {
    version: u32,
    pub level: Level,
}

impl LevelRecord {
    pub fn new(level: Level) -> LevelRecord {
        LevelRecord {
            version: VERSION,
            level,
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a record is plain data")
    }

    /// Reads it back. What a later program may have added beside the level is for that program.
    pub fn decode(bytes: &[u8]) -> Result<LevelRecord, RecordError> {
        let what = "the record of the cluster's level";
        let record: LevelRecord = read(what, bytes)?;
        match record.level >= Level::FIRST {
            true => Ok(record),
            false => Err(RecordError::malformed(what, "there is no level 0")),
        }
    }
}

/// What a node's program can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeLevels {
    /// The node.
    pub node: String,
    /// `None`: it is down, and did not leave it in a record.
    pub levels: Option<LevelRange>,
    /// Does it keep its lease?
    pub is_up: bool,
}

impl fmt::Display for NodeLevels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is = if self.is_up { "up" } else { "down" };
        match self.levels {
            Some(levels) => write!(f, "{} ({is}) can do {levels}", self.node),
            None => write!(f, "{} is {is} and does not say what it can do", self.node),
        }
    }
}

/// The highest level that all nodes can do; those that keep the cluster at its level, where others can do more.
///
/// # Errors
/// The nodes that can do no more than `level`, or do not say.
pub(super) fn highest(level: Level, nodes: &[NodeLevels]) -> Result<Level, Vec<NodeLevels>> {
    let max = |of: &NodeLevels| of.levels.map_or(level, LevelRange::max);
    let all = nodes.iter().map(max).min().unwrap_or(level);
    let any = nodes.iter().map(max).max().unwrap_or(level);
    if all > level || any <= level {
        return Ok(all.max(level));
    }
    let cannot = nodes.iter().filter(|of| max(of) <= level);
    Err(cannot.cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(min: u32, max: u32) -> LevelRange {
        LevelRange::new(Level(min), Level(max)).expect("a range")
    }

    fn node(name: &str, levels: Option<LevelRange>) -> NodeLevels {
        NodeLevels {
            node: name.to_owned(),
            levels,
            is_up: levels.is_some(),
        }
    }

    #[test]
    fn a_level_is_the_highest_that_all_nodes_can_do() {
        let one = |max| node("n", Some(range(1, max)));
        for (level, maxima, expected) in [
            (1, vec![2, 2, 2], 2),
            (1, vec![3, 2, 4], 2),
            (1, vec![1, 1], 1),
            (2, vec![2, 3, 3], 2),
            (2, vec![2], 2),
            (2, vec![], 2),
        ] {
            let nodes: Vec<NodeLevels> = maxima.iter().map(|max| one(*max)).collect();
            let found = highest(Level(level), &nodes);
            match maxima.iter().any(|it| *it > level) && maxima.contains(&level) {
                true => assert!(found.is_err(), "{level} {maxima:?}"),
                false => assert_eq!(found, Ok(Level(expected)), "{level} {maxima:?}"),
            }
        }
    }

    #[test]
    fn who_keeps_a_cluster_at_its_level_is_named() {
        let nodes = [
            node("n1", Some(range(1, 2))),
            node("n2", Some(range(1, 1))),
            node("n3", None),
        ];
        let cannot = highest(Level(1), &nodes).expect_err("two cannot");
        let words: Vec<String> = cannot.iter().map(NodeLevels::to_string).collect();
        assert_eq!(
            words,
            [
                "n2 (up) can do level 1 alone",
                "n3 is down and does not say what it can do"
            ]
        );
    }

    #[test]
    fn a_record_of_the_level_is_read_back_and_nonsense_is_refused() {
        let record = LevelRecord::new(Level(2));
        assert_eq!(record.encode(), br#"{"version":1,"level":2}"#);
        assert_eq!(LevelRecord::decode(&record.encode()), Ok(record));
        // A later program may say more.
        let more = br#"{"version":1,"level":7,"since":"x"}"#;
        assert_eq!(LevelRecord::decode(more).map(|it| it.level), Ok(Level(7)));
        for bad in [
            &b"{\"version\":1,\"level\":0}"[..],
            b"{\"version\":2,\"level\":1}",
            b"{\"version\":1}",
            b"2",
            b"",
        ] {
            assert!(LevelRecord::decode(bad).is_err(), "{bad:?}");
        }
        for bad in ["[2,1]", "[0,1]", "[1]", "[1,2,3]", "2", "[-1,2]"] {
            assert!(serde_json::from_str::<LevelRange>(bad).is_err(), "{bad}");
        }
        let text = serde_json::to_string(&range(1, 2)).expect("plain data");
        assert_eq!(text, "[1,2]");
    }
}
