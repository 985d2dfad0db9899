//! What is reserved for, and where the calendars of its parts are.
//!
//! A volume and a set of stores have parts at stores; an export has one at the queue of its hybrid, on its own node.

use serde::{Deserialize, Serialize};
use vdisk::StoreNumber;

/// Changes with each reservation that is made or changed of a volume, of an export.
const VOLUMES: &str = "reservation-volume/";
const EXPORTS: &str = "reservation-export/";
/// In place of a store in the parts of an export's reservation: the queue in front of its hybrid.
pub const QUEUE: StoreNumber = StoreNumber(u16::MAX);

/// What is reserved for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Target {
    /// A virtual disk, by its number; requests of its clients come under the reservation.
    Volume {
        /// As it was called when it was reserved for.
        name: String,
        /// Its number.
        id: u32,
    },
    /// Stores, by capabilities for objects whose names begin with `scope`.
    Stores {
        /// Their numbers.
        stores: Vec<StoreNumber>,
        /// The rate is that of all together.
        stripe: bool,
        /// Not empty, but of an allotment.
        scope: String,
    },
    /// An export of a hybrid that has a queue. Its calendar is its node's alone.
    Export {
        /// Whose it is.
        node: String,
        /// Its name there.
        name: String,
    },
}

/// Where a calendar is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place<'a> {
    /// At a store.
    Store(StoreNumber),
    /// At the queue of an export, on the node that has it.
    Export {
        /// The node.
        node: &'a str,
        /// The export.
        name: &'a str,
    },
}

impl Target {
    /// Where the part of `store` is.
    pub fn place(&self, store: StoreNumber) -> Place<'_> {
        match self {
            Target::Export { node, name } => Place::Export { node, name },
            Target::Volume { .. } | Target::Stores { .. } => Place::Store(store),
        }
    }

    /// What changes with each reservation that is made or changed of it, where there is one at a time.
    pub(crate) fn key(&self) -> Option<String> {
        match self {
            Target::Volume { id, .. } => Some(format!("{VOLUMES}{id:08x}")),
            Target::Export { node, name } => Some(format!("{EXPORTS}{node}/{name}")),
            Target::Stores { .. } => None,
        }
    }

    /// In words.
    pub(crate) fn label(&self) -> String {
        match self {
            Target::Volume { name, .. } => format!("volume {name}"),
            Target::Export { node, name } => format!("export {name} of node {node}"),
            Target::Stores { .. } => "its stores".to_owned(),
        }
    }
}
