//! Why a cluster did not do what it was asked. Behind the semicolon each says what to do.

use base::Bytes;
use policy::share::cap::{BelowBooking, CapError};

use super::level::{Level, LevelRange, NodeLevels};
use crate::image::records::ImagesError;
use crate::image::tree::ImageError;
use crate::meta::MetaError;
use crate::names::StoreNumber;
use crate::record::{Name, RecordError};
use crate::volume::VolumeError;

/// Why a cluster did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// The meta store.
    #[error(transparent)]
    Meta(#[from] MetaError),
    /// A record that cannot be read.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Images.
    #[error(transparent)]
    Images(ImagesError),
    /// A volume in use.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// No such volume.
    #[error("there is no volume {name}; there are {}", listed(known))]
    NoVolume {
        /// As asked.
        name: Name,
        /// Those that there are.
        known: Vec<Name>,
    },
    /// No such snapshot.
    #[error("volume {volume} has no snapshot {name}; it has {}", listed(known))]
    NoSnapshot {
        /// Of which volume.
        volume: Name,
        /// As asked.
        name: Name,
        /// Those that it has.
        known: Vec<Name>,
    },
    /// The name is taken.
    #[error("there is a volume {0} already; choose another name, or remove that one first")]
    Exists(Name),
    /// Volumes in the trash have such names.
    #[error("cannot call a volume {0}: volumes in the trash are called so; choose another name")]
    TrashName(Name),
    /// No such deleted volume.
    #[error("there is no {name} in the trash; there are {}", listed(known))]
    NotInTrash {
        /// As asked.
        name: Name,
        /// What those were called that there are.
        known: Vec<Name>,
    },
    /// Several deleted volumes had that name.
    #[error("there are {} volumes {name} in the trash: {}; say which of these", ids.len(), listed(ids))]
    SeveralInTrash {
        /// As asked.
        name: Name,
        /// What they are called there.
        ids: Vec<Name>,
    },
    /// The snapshot's name is taken.
    #[error("volume {volume} has a snapshot {name} already; choose another name, or delete it")]
    SnapshotExists {
        /// Of which volume.
        volume: Name,
        /// As asked.
        name: Name,
    },
    /// The request did not allow it to become smaller.
    #[error(
        "volume {volume} has {now}, and {asked} are less: all that lies behind would be gone; say so (--shrink), or ask for more"
    )]
    Shrinks {
        /// Which.
        volume: Name,
        /// Its size.
        now: Bytes,
        /// As asked.
        asked: Bytes,
    },
    /// Clients of this node use it.
    #[error(
        "cannot {asked} volume {volume}: it is in use here ({users} users); disconnect its clients first"
    )]
    Busy {
        /// What was asked.
        asked: &'static str,
        /// Which.
        volume: Name,
        /// How many there are.
        users: u64,
    },
    /// A user of this node has it for itself.
    #[error(
        "volume {volume} is for an S3 gateway of this node alone: what other clients write, or another size, would destroy its \
         objects; connect to the gateway, or end it first"
    )]
    Taken {
        /// Which.
        volume: Name,
    },
    /// Another node has it.
    #[error(
        "cannot {asked} volume {volume}: node {node} has it open{used}; ask there, disconnect its clients there, or, if they \
         are idle or gone, take it over (`tanada volume takeover {volume}`)"
    )]
    Elsewhere {
        /// What was asked.
        asked: &'static str,
        /// Which.
        volume: Name,
        /// The node that has it.
        node: String,
        /// What for, as far as that node says.
        used: String,
    },
    /// The node that has the volume open refused.
    #[error("node {node}, which has the volume open: {said}")]
    Refused {
        /// Which.
        node: String,
        /// What it said.
        said: String,
    },
    /// The node that has the volume open did not answer.
    #[error(
        "node {node} has volume {volume} open and did not say what became of this: {}",
        if *taken {
            "it took it, so it may be done; `tanada volume show` says whether it is"
        } else {
            "nothing was done; ask there"
        }
    )]
    NoAnswer {
        /// Which.
        node: String,
        /// Of which volume.
        volume: Name,
        /// May it have been done?
        taken: bool,
    },
    /// What became of a request to the node that has the volume open is not known: the meta store carries the answer.
    #[error(
        "node {node} was asked to {asked} of volume {volume}, and the meta store does not tell what became of it ({source}); it may \
         be done: when the meta store answers again `tanada volume show {volume}` says whether it is, and if not, ask again"
    )]
    Unheard {
        /// Which node.
        node: String,
        /// Of which volume.
        volume: Name,
        /// What was asked.
        asked: &'static str,
        /// What the meta store said.
        source: Box<MetaError>,
    },
    /// More copies than there are.
    #[error(
        "writes of volume {volume} cannot reach {asked} copies: it has {copies}; ask for 1 to {copies}"
    )]
    MinCopies {
        /// Which.
        volume: Name,
        /// As asked.
        asked: u8,
        /// Those of each extent.
        copies: u8,
    },
    /// No such cap can be.
    #[error("cannot cap volume {volume}: {source}")]
    Cap {
        /// Which.
        volume: Name,
        /// Why.
        source: CapError,
    },
    /// A cap below what is booked for it.
    #[error(
        "cannot cap volume {volume} so, under what {holder} has reserved: {source}; cancel or change the reservation \
         (`tanada reservation list --parts`), or set a higher cap"
    )]
    CapBelowBooking {
        /// Which.
        volume: Name,
        /// Under whose reservations it is.
        holder: String,
        /// Both.
        source: BelowBooking,
    },
    /// Fewer failure domains than copies.
    #[error(
        "cannot keep {copies} copies: stores that take new data are in {domains} failure domains; ask for fewer copies, \
         or add a store in another domain"
    )]
    TooFewDomains {
        /// As asked.
        copies: u8,
        /// There are.
        domains: usize,
    },
    /// No such store.
    #[error("there is no store {name}; there are {}", listed(known))]
    NoStore {
        /// As asked.
        name: Name,
        /// Those that there are.
        known: Vec<Name>,
    },
    /// Another store has the name.
    #[error(
        "cannot register store {name}: another store of that name is registered, at {address} on node {node}; give this \
         one another name, or remove the other (`tanada node delete`) if it is gone for good"
    )]
    StoreTaken {
        /// The name.
        name: Name,
        /// Of the one that is there.
        address: String,
        /// Of the one that is there.
        node: Name,
    },
    /// It was given up, and what it has is out of date.
    #[error(
        "cannot register store {0}: it was removed as lost (`tanada node delete --lost`), so volumes went on without it and what \
         it has is out of date; make it anew on an empty disk, or on this one with `tanada store create DEVICE --name {0} \
         --force`, which deletes what is there"
    )]
    WasLost(Name),
    /// A number that cannot be given.
    #[error(
        "cannot register store {name} as number {number}: numbers below {next} were given already, and none is given twice; \
         leave the number out"
    )]
    NumberTaken {
        /// Of which store.
        name: Name,
        /// As asked.
        number: StoreNumber,
        /// The next one.
        next: u32,
    },
    /// Something may be on its way there.
    #[error(
        "cannot remove store {0}: new data may go there; drain it first (`tanada node drain {0}`)"
    )]
    Active(Name),
    /// Volumes have something there.
    #[error(
        "cannot remove store {name}: {} something there; it is being moved, `tanada node list` shows how far; ask again \
         then, or, if the store is gone for good, say so (--lost)",
        having(volume, *others)
    )]
    NotEmpty {
        /// Which.
        name: Name,
        /// A volume.
        volume: Name,
        /// How many there are besides.
        others: usize,
    },
    /// Volumes need it.
    #[error(
        "cannot remove store {name}: volume {volume} counts it as in sync, and cannot go on without it now: it answers still, has \
         the last copy of something, or the node that has the volume open does not say; drain a store that answers (`tanada node drain {name}`), \
         else look why with `tanada volume repair {volume}` on the node that has it open, and ask again"
    )]
    StillInSync {
        /// Which store.
        name: Name,
        /// A volume.
        volume: Name,
    },
    /// A store that is sealed beyond reason could not be put right.
    #[error(
        "cannot put the stores of volume {volume} right, of which one is sealed beyond reason: store {store}: {why}; bring it \
         back, and ask again"
    )]
    NotUnsealed {
        /// Which volume.
        volume: Name,
        /// The store that does not do it.
        store: Name,
        /// What it said.
        why: String,
    },
    /// The cluster's level is none of this program's.
    #[error(
        "node {node} cannot take part in the cluster: that is at {level}, and this program can do {range}; {}",
        if level > &range.max() {
            format!("install a version on this node that can do {level}, as the other nodes have")
        } else {
            format!(
                "install a version on this node that can do {level}, and raise the cluster with `tanada cluster upgrade` when all \
                 nodes can do {}",
                range.min()
            )
        }
    )]
    Level {
        /// This node.
        node: Name,
        /// Of the cluster.
        level: Level,
        /// What this program can do.
        range: LevelRange,
    },
    /// Not all nodes can do a higher level.
    #[error(
        "cannot raise the cluster above {level}: {}; install a newer version there and start it, or, if a node is gone for good, \
         forget its stores (`tanada node delete NODE --lost`), and ask again",
        cannot.iter().map(NodeLevels::to_string).collect::<Vec<_>>().join(", ")
    )]
    LevelHeld {
        /// In force.
        level: Level,
        /// Who can do no higher one.
        cannot: Vec<NodeLevels>,
    },
    /// Another node collects.
    #[error("node {node} looks through the stores now; ask again in a minute")]
    Collecting {
        /// Which.
        node: String,
    },
    /// This node stops.
    #[error("this node is stopping; ask again when it is back")]
    Stopping,
}

impl From<ImagesError> for ClusterError {
    fn from(error: ImagesError) -> ClusterError {
        match error {
            ImagesError::Meta(error) => ClusterError::Meta(error),
            ImagesError::Record(error) => ClusterError::Record(error),
            other => ClusterError::Images(other),
        }
    }
}

impl From<ImageError> for ClusterError {
    fn from(error: ImageError) -> ClusterError {
        ClusterError::Images(ImagesError::Image(error))
    }
}

impl ClusterError {
    /// Did another request change something meanwhile?
    pub(super) fn is_conflict(&self) -> bool {
        matches!(self, ClusterError::Images(ImagesError::Conflict(_)))
    }
}

fn having(volume: &Name, others: usize) -> String {
    match others {
        0 => format!("volume {volume} has"),
        _ => format!("volume {volume} and {others} more have"),
    }
}

fn listed(names: &[Name]) -> String {
    const SHOWN: usize = 20;
    if names.is_empty() {
        return "none".to_owned();
    }
    let mut shown: Vec<&str> = names.iter().take(SHOWN).map(Name::as_str).collect();
    if names.len() > SHOWN {
        shown.push("...");
    }
    shown.join(", ")
}
