//! Volumes of both kinds in one list.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::cluster::Disk;
use super::volume::Volume;

/// A volume: a disk with a name that clients can open. Its key `kind` says which it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum AnyVolume {
    /// Of a slow and a fast device.
    Hybrid(Box<HybridVolume>),
    /// With copies in several stores of a cluster.
    Virtual(Box<Disk>),
}

/// A hybrid among volumes of both kinds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HybridVolume {
    pub kind: HybridKind,
    #[serde(flatten)]
    pub volume: Volume,
}

/// `hybrid`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum HybridKind {
    Hybrid,
}

impl From<Volume> for AnyVolume {
    fn from(volume: Volume) -> AnyVolume {
        AnyVolume::Hybrid(Box::new(HybridVolume {
            kind: HybridKind::Hybrid,
            volume,
        }))
    }
}

impl From<Disk> for AnyVolume {
    fn from(disk: Disk) -> AnyVolume {
        AnyVolume::Virtual(Box::new(disk))
    }
}
