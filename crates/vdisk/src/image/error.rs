//! Why is an image not changed?

use crate::names::{Generation, ImageId};
use crate::record::Name;

/// Why an image is not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The size cannot be.
    #[error("cannot make {name} that large: {why}")]
    Size {
        /// The volume.
        name: Name,
        /// What is wrong with it.
        why: String,
    },
    /// A volume without copies, or more than there can be.
    #[error(
        "cannot make {name} with {copies} copies of which a write reaches {min_isr}; there are 1 to 3, and a write reaches 1 or more of them"
    )]
    Copies {
        /// The volume.
        name: Name,
        /// As asked.
        copies: u8,
        /// As asked.
        min_isr: u8,
    },
    /// Not a snapshot, or not one any more.
    #[error("cannot {asked}: image {image} is no snapshot; take one first")]
    NoSnapshot {
        /// What was asked.
        asked: &'static str,
        /// Which image.
        image: ImageId,
    },
    /// A snapshot of something else.
    #[error(
        "cannot roll {volume} back to image {image}: that is a snapshot of another volume; clone it instead"
    )]
    Foreign {
        /// The volume.
        volume: Name,
        /// The image.
        image: ImageId,
    },
    /// A node has it open.
    #[error("cannot {asked} {volume}: {node} has it open; close it there first")]
    Open {
        /// What was asked.
        asked: &'static str,
        /// The volume.
        volume: Name,
        /// Where.
        node: String,
    },
    /// It is being removed.
    #[error("cannot {asked} {volume}: it is being removed")]
    Going {
        /// What was asked.
        asked: &'static str,
        /// The volume.
        volume: Name,
    },
    /// The volume still has snapshots.
    #[error("cannot delete {volume}: it has {count} snapshots; delete them first")]
    HasSnapshots {
        /// The volume.
        volume: Name,
        /// How many.
        count: usize,
    },
    /// A commit in a generation that the record does not have yet.
    #[error(
        "cannot commit {volume} in generation {root}: its record is at {record}; the next generation goes there before a commit begins"
    )]
    Early {
        /// The volume.
        volume: Name,
        /// Of the commit.
        root: Generation,
        /// In the record.
        record: Generation,
    },
    /// All numbers were given.
    #[error("no number is left for another volume or image: 2^32 were given")]
    NoNumber,
}
