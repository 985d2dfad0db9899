//! How a node takes part in a cluster.

use base::{Bytes, Nanos};

use super::level::LevelRange;
use crate::record::Name;
use crate::volume;

/// How a node takes part.
#[derive(Debug, Clone)]
pub struct Settings {
    /// This node.
    pub node: Name,
    /// What its program can do.
    pub levels: LevelRange,
    /// How long the others think it is up when it is not heard of.
    pub lease: Nanos,
    /// A volume is closed when it had no users for so long.
    pub close_after: Nanos,
    /// How long an opening waits for another node that is about to close the volume.
    pub handover: Nanos,
    /// How often background work looks around.
    pub tick: Nanos,
    /// How often is looked for deleted images.
    pub collect_every: Nanos,
    /// How often is looked for idle volumes that are not well.
    pub idle_every: Nanos,
    /// How long is waited for one answer of a store, where no volume asks.
    pub timeout: Nanos,
    /// How volumes are used; whose their requests are comes from their records.
    pub volume: volume::Settings,
    /// Memory for nodes of maps that are being freed or audited.
    pub cache: Bytes,
}

impl Settings {
    /// A lease of 10 s; volumes are closed 4 s after their last user left, so that others have them within 5 s.
    pub fn new(node: Name) -> Settings {
        let nobody = policy::place::Origin {
            client: policy::place::ClientId(0),
            class: policy::place::Class::Normal,
        };
        Settings {
            levels: LevelRange::of_program(),
            lease: Nanos::secs(10),
            close_after: Nanos::secs(4),
            handover: Nanos::secs(7),
            tick: Nanos::secs(1),
            collect_every: Nanos::secs(30),
            idle_every: Nanos::secs(10),
            timeout: Nanos::secs(10),
            volume: volume::Settings::new(node.as_str(), nobody),
            cache: Bytes::mib(16),
            node,
        }
    }
}
